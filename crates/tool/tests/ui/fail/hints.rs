use toolwright_tool::prelude::*;

#[tool(read_only = "yes")]
async fn text() {}

#[tool(destructive, read_only)]
async fn both() {}

#[tool(needs_approval = "always")]
async fn approval() {}

fn main() {}
