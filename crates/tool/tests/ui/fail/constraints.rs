use toolwright_tool::prelude::*;

#[tool]
async fn unknown(#[arg(ranges(min = 1))] count: u32) {}

#[tool]
async fn no_bounds(#[arg(range)] count: u32) {}

#[tool]
async fn bad_bounds(#[arg(range(minimum = 1))] count: u32) {}

#[tool]
async fn no_pattern(#[arg(regex)] code: String) {}

#[tool]
async fn not_alone(#[arg(email = true)] mail: String) {}

#[tool]
async fn not_a_name(#[arg(rename = NAME)] mail: String) {}

#[args]
struct Search {
    #[arg(lenght(min = 1))]
    query: String,
}

fn main() {}
