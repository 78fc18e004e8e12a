use std::rc::Rc;

use toolwright_tool::prelude::*;

#[tool]
async fn count() -> usize {
    let shared = Rc::new(1);
    std::future::ready(()).await;
    Rc::strong_count(&shared)
}

fn main() {}
