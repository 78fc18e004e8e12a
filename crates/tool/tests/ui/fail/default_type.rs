use toolwright_tool::prelude::*;

#[tool]
async fn wrong(#[arg(default = 1.5)] count: u32) {}

fn main() {}
