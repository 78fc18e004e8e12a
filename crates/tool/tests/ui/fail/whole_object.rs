use toolwright_tool::prelude::*;

#[args]
struct Search {
    query: String,
}

#[tool]
async fn beside(Args(search): Args<Search>, limit: u32) {}

#[tool]
async fn two(Args(a): Args<Search>, Args(b): Args<Search>) {}

fn main() {}
