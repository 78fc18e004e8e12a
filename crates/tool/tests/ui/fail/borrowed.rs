use std::borrow::Cow;

use toolwright_tool::prelude::*;

#[tool]
async fn text(city: &str) {}

#[tool]
async fn slice(cities: &[String]) {}

#[tool]
async fn number(count: Option<&u32>) {}

#[tool]
async fn cow(city: Cow<'_, str>) {}

#[tool]
async fn any(city: impl Into<String>) {}

#[tool]
async fn context(Ctx(cx): &Ctx) {}

fn main() {}
