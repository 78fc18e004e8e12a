use toolwright_tool::prelude::*;

struct Offline;

#[tool]
async fn weather() -> Result<String, Offline> {
    Err(Offline)
}

fn main() {}
