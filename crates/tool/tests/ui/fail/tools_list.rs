use toolwright_tool::prelude::*;

#[tool]
async fn weather() {}

async fn plain() {}

fn main() {
    let _ = tools![weather()];
    let _ = tools![plain];
    let _ = tools![nowhere];
}
