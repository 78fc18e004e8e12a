use toolwright_tool::prelude::*;

#[tool]
async fn documented(
    /// The context.
    Ctx(cx): Ctx,
) {
}

#[tool]
async fn constrained(#[arg(default)] Ctx(cx): Ctx) {}

#[tool]
async fn bound(all @ _: String) {}

fn main() {}
