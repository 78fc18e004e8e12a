use toolwright_tool::prelude::*;

struct Weather;

#[tool]
async fn plain() -> Weather {
    Weather
}

#[tool]
async fn in_result() -> Result<Weather, ToolError> {
    Ok(Weather)
}

fn main() {}
