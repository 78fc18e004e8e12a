use toolwright_tool::prelude::*;

const NAME: &str = "weather";

#[tool(name = "get weather")]
async fn spaced() {}

#[tool(name = "")]
async fn empty() {}

#[tool(name = "weather.get")]
async fn dotted() {}

#[tool(name = "a2345678901234567890123456789012345678901234567890123456789012345")]
async fn long() {}

#[tool(name = NAME)]
async fn not_literal() {}

#[tool]
async fn größe() {}

#[tool]
async fn str() {}

fn main() {}
