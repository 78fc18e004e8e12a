use toolwright_tool::prelude::*;

#[tool]
struct Search;

#[args]
fn search() {}

#[args]
union Either {
    a: u32,
    b: f32,
}

#[args(rename_all = "camelCase")]
struct Camel {
    a: u32,
}

fn main() {}
