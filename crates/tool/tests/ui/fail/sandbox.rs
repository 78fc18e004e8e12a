use toolwright_tool::prelude::*;

fn plain(command: String) -> Result<String, ToolError> {
    Ok(command)
}

#[tool(requires_sandbox = plain)]
async fn shell(command: String) {}

fn main() {}
