// What the user's names mean is their business: generated code says which ones it means.
#![allow(dead_code)]

use toolwright_tool::{args, tool, tools};

type Result<T> = std::result::Result<T, std::fmt::Error>;

struct Option;
struct Vec;
struct Box;
struct String;
struct Tool;
fn drop() {}

mod core {}
mod serde {}
mod std_names {}

#[args]
struct Search {
    query: ::std::string::String,
}

#[tool]
async fn find(#[arg(default)] limit: u32, search: ::std::option::Option<Search>) -> Result<u32> {
    Ok(limit + search.map_or(0, |search| search.query.len() as u32))
}

#[tool]
async fn context(toolwright_tool::Ctx(cx): toolwright_tool::Ctx) -> bool {
    cx.approval().is_none()
}

#[args]
struct Kind {
    failure: bool,
}

#[tool]
fn same_names_as_generated_code(running: bool, tool: bool) -> Kind {
    Kind { failure: running && tool }
}

fn main() {
    assert_eq!(tools![find, context].len(), 2);
    let tool = &tools![same_names_as_generated_code][0];
    assert!(tool.spec().output.is_some());
}
