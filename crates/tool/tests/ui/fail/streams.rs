use futures_core::Stream;
use toolwright_tool::prelude::*;

#[tool]
async fn awaited() -> impl Stream<Item = u32> {
    futures_util::stream::iter([1])
}

#[tool]
fn unnamed() -> impl Stream {
    futures_util::stream::iter([1])
}

fn main() {}
