//! A tool without a body: its result is made elsewhere, and posted by whichever process a webhook reaches. A webhook that comes
//! twice, as they do, changes nothing the second time.
#![allow(clippy::print_stdout, reason = "an example shows what happens")]
#![expect(clippy::disallowed_methods, reason = "an example of processes starts some")]

use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use toolwright::models::scripted::{Reply, ScriptedModel};
use toolwright::prelude::*;
use toolwright::store::Sqlite;
use toolwright::{ApprovalId, DefinitionError, json};

/// Paying happens on a page of somebody else's.
fn take_payment() -> Result<Tool, DefinitionError> {
    let schema = json!({ "type": "object", "properties": { "cents": { "type": "integer", "minimum": 1 } }, "required": ["cents"] });
    Tool::external("take_payment", "Has the customer pay.", schema)?.result_within(Duration::from_secs(3600)).outside()
}

/// The same agent in every process.
async fn agent(folder: &Path) -> Result<Agent, Box<dyn Error>> {
    // In place of a real model: asks for the payment, then says what came of it.
    let answer = Reply::with(|request| match request.messages.last() {
        Some(last) => match last.results().next() {
            Some(result) => Reply::text(format!("Thank you, here is what we have: {}", result.text())),
            None => Reply::call("take_payment", json!({ "cents": 1999 })),
        },
        None => Reply::empty(),
    });
    let model = ScriptedModel::new().reply(answer).repeat_last();
    Ok(Agent::builder().model(model).tool(take_payment()?).store(Sqlite::open(folder.join("threads.db")).await?).build()?)
}

/// The process that the webhook reaches: it posts what it was told, and knows nothing else.
async fn webhook(id: &str, receipt: &str, folder: &Path) -> Result<(), Box<dyn Error>> {
    let agent = agent(folder).await?;
    match agent.calls().complete(&ApprovalId::new(id), ToolOutput::json(json!({ "receipt": receipt }))).await {
        Ok(()) => println!("  the webhook posts the receipt {receipt}"),
        Err(AgentError::ApprovalConflict { .. }) => println!("  the webhook comes again, and nothing has to be done"),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    if let (Some(id), Some(receipt), Some(folder)) = (arguments.next(), arguments.next(), arguments.next()) {
        return webhook(&id, &receipt, Path::new(&folder)).await;
    }

    let folder = std::env::temp_dir().join(format!("paid-elsewhere-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let agent = agent(&folder).await?;
    let thread = agent.thread("checkout-3");
    let reply = thread.send("I would like to pay.").await?;
    println!("{}", reply.finish_reason);
    for pending in &reply.pending {
        println!("{} waits for its result, with {}", pending.tool, pending.arguments);
        for _ in 0..2 {
            let ended = Command::new(std::env::current_exe()?).arg(pending.id.as_str()).arg("R-2026-17").arg(&folder).spawn()?.wait()?;
            if !ended.success() {
                return Err(format!("the process of the webhook failed: {ended}").into());
            }
        }
    }
    println!("{}", thread.resume().await?.text);
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
