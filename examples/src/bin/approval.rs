//! A tool that has to be approved: the run ends as waiting, somebody decides, and it goes on.
#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use toolwright::models::scripted::{Reply, ScriptedModel};
use toolwright::prelude::*;

/// Deletes a file.
#[tool(destructive, needs_approval)]
async fn delete_file(
    /// Path of the file.
    path: String,
) -> String {
    format!("{path} would be gone")
}

#[tokio::main]
async fn main() -> Result<(), AgentError> {
    let model = ScriptedModel::new()
        .reply(Reply::call("delete_file", toolwright::json!({ "path": "draft.txt" })))
        .reply(Reply::text("The draft is gone."));
    let agent = Agent::builder().model(model).tools(tools![delete_file]).build()?;
    let thread = agent.thread("cleanup");

    let reply = thread.send("Remove the draft.").await?;
    println!("{}", reply.finish_reason);
    for pending in &reply.pending {
        println!("{} wants to run with {}", pending.tool, pending.arguments);
        agent.approvals().decide(&pending.id, Decision::approve().by("kim").note("fine")).await?;
    }
    // Nothing ran while the thread waited: this may be another process, days later.
    println!("{}", thread.resume().await?.text);
    Ok(())
}
