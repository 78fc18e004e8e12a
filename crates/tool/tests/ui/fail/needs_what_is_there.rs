use toolwright_tool::prelude::*;

struct NotClone;

#[tool]
async fn state(State(shared): State<NotClone>) {}

fn main() {}
