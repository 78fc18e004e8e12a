//! A tool that streams: each item is a complete snapshot, the last one is the result.
#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use futures_util::{Stream, StreamExt};
use toolwright::models::scripted::{Reply, ScriptedModel};
use toolwright::prelude::*;

#[args]
struct Count {
    seen: u32,
    done: bool,
}

/// Counts the rows of a table.
#[tool(read_only)]
fn count_rows(
    /// Name of the table.
    table: String,
) -> impl Stream<Item = Count> {
    let pages = u32::try_from(table.len()).unwrap_or(1);
    futures_util::stream::iter(1..=pages).map(move |page| Count { seen: page * 100, done: page == pages })
}

#[tokio::main]
async fn main() -> Result<(), AgentError> {
    let model = ScriptedModel::new()
        .reply(Reply::call("count_rows", toolwright::json!({ "table": "orders" })))
        .reply(Reply::text("There are 600 rows."));
    let agent = Agent::builder().model(model).tools(tools![count_rows]).build()?;
    let mut run = agent.stream("How many orders are there?");
    while let Some(event) = run.next().await {
        match event.kind {
            EventKind::ToolPartial { index, output, .. } => println!("{index}: {output}"),
            EventKind::ToolDone { result, .. } => println!("result: {result}"),
            _ => {}
        }
    }
    println!("{}", run.await?.text);
    Ok(())
}
