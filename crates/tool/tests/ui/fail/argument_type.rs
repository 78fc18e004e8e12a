use toolwright_tool::prelude::*;

struct Search {
    query: String,
}

#[tool]
async fn find(search: Search) {}

fn main() {}
