use toolwright_tool::prelude::*;

#[tool(readonly)]
async fn close() {}

#[tool(colour = "red", time_out = "3s")]
async fn far() {}

#[tool(read_only, idempotent, read_only)]
async fn twice() {}

fn main() {}
