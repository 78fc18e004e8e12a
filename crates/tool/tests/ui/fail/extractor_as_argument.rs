use toolwright_tool::prelude::*;

#[derive(Clone)]
struct Db;

#[tool]
async fn context(cx: Ctx) {}

#[tool]
async fn raw_context(cx: ToolContext) {}

#[tool]
async fn state(db: State<Db>) {}

#[tool]
async fn whole(all: toolwright_tool::Args<String>) {}

fn main() {
    let _ = tools![context, raw_context, state, whole];
}
