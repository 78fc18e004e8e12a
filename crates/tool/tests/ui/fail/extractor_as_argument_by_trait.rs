use toolwright_tool::prelude::*;

#[tool]
async fn environment(env: Env) {}

fn main() {}
