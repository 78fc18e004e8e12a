//! A user's crate depends on nothing but the facade: no serde, no schemars, no room of ours.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use toolwright::models::scripted::{Reply, ScriptedModel};
use toolwright::prelude::*;

#[args]
struct Order {
    /// Article number.
    article: String,
    /// How many.
    #[arg(range(min = 1))]
    count: u32,
}

/// Places an order.
#[tool(name = "place-order", max_calls = 1)]
async fn place_order(Args(order): Args<Order>, CallId(id): CallId) -> String {
    format!("{} x {} as {id}", order.count, order.article)
}

fn agent(arguments: toolwright::macro_support::serde_json::Value) -> Agent {
    let model = ScriptedModel::new().reply(Reply::call("place-order", arguments)).reply(Reply::text("done"));
    Agent::builder().model(model).tools(tools![place_order]).build().unwrap()
}

#[tokio::test]
async fn a_call_reaches_the_body() {
    let reply = agent(toolwright::json!({ "article": "A-1", "count": "2" })).send("Two of A-1.").await.unwrap();
    let results: Vec<String> =
        reply.messages.iter().flat_map(|message| message.results().map(toolwright::core::ResultItem::text).collect::<Vec<_>>()).collect();
    assert_eq!(results.len(), 1);
    assert!(results[0].contains("2 x A-1 as "), "{results:?}");
}

#[tokio::test]
async fn a_constraint_is_enforced_before_the_body() {
    let reply = agent(toolwright::json!({ "article": "A-1", "count": 0 })).send("None of A-1.").await.unwrap();
    let failed = reply.messages.iter().any(|message| message.results().any(|result| result.failed == Some(ToolFailureKind::Validation)));
    assert!(failed, "{:?}", reply.messages);
}
