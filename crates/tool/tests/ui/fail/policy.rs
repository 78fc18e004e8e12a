use toolwright_tool::prelude::*;

fn says_text(Ctx(_cx): Ctx) -> String {
    "yes".to_owned()
}

#[tool(needs_approval = says_text)]
async fn answers_nonsense() {}

fn takes_argument(amount: f64) -> bool {
    amount > 100.0
}

#[tool(needs_approval = takes_argument)]
async fn pay(amount: f64) {}

fn main() {}
