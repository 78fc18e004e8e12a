use toolwright_tool::prelude::*;

struct Pair(u32, u32);

#[tool]
async fn add(Pair(a, b): Pair) -> u32 {
    a + b
}

fn main() {}
