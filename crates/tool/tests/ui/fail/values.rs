use toolwright_tool::prelude::*;

#[tool(timeout = 30)]
async fn no_unit() {}

#[tool(timeout = "30 parsecs")]
async fn bad_unit() {}

#[tool(timeout = "0s")]
async fn no_time() {}

#[tool(on_interrupt = retry)]
async fn interrupt() {}

#[tool(max_calls = -1)]
async fn calls() {}

#[tool(result_limit = "many")]
async fn limit() {}

#[tool(env(TOKEN: hidden))]
async fn environment() {}

#[tool(env = "TOKEN")]
async fn environment_text() {}

#[tool(examples = { "a": 1 })]
async fn no_list() {}

#[tool(examples = [r#"{ "a": }"#])]
async fn no_json() {}

#[tool(description)]
async fn no_text() {}

#[tool(display_name = 3)]
async fn no_label() {}

#[tool(provider_options = "x")]
async fn provider() {}

fn main() {}
