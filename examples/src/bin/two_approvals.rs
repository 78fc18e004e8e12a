//! A refund that two people have to approve, each in a process of their own. Nothing runs while it waits, nobody counts twice, and
//! who may not decide is refused by name.
#![allow(clippy::print_stdout, reason = "an example shows what happens")]
#![expect(clippy::disallowed_methods, reason = "an example of processes starts some")]

use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use toolwright::models::scripted::{Reply, ScriptedModel};
use toolwright::prelude::*;
use toolwright::store::Sqlite;
use toolwright::{ApprovalRequest, json};

/// Any two of the three, within a day.
fn two_of_three() -> ApprovalOutcome {
    let request = ApprovalRequest::new().reason("it moves money").deciders(["ada", "grace", "edsger"]).quorum(2);
    request.within(Duration::from_secs(24 * 3600)).into()
}

/// Refunds an order.
#[tool(destructive, needs_approval = two_of_three)]
async fn refund(
    /// Number of the order.
    order: String,
    /// How much, in cents.
    cents: u64,
    Ctx(cx): Ctx,
) -> String {
    let approval = cx.approval().cloned().unwrap_or_default();
    let people = [approval.others, approval.by.into_iter().collect()].concat();
    format!("{cents} cents for order {order}, approved by {}", people.join(" and "))
}

/// The same agent in every process.
async fn agent(folder: &Path) -> Result<Agent, AgentError> {
    // In place of a real model: asks for the refund, then says what came of it.
    let answer = Reply::with(|request| match request.messages.last() {
        Some(last) => match last.results().next() {
            Some(result) => Reply::text(format!("Refunded: {}.", result.text().trim_matches('"'))),
            None => Reply::call("refund", json!({ "order": "1042", "cents": 1999 })),
        },
        None => Reply::empty(),
    });
    Agent::builder()
        .model(ScriptedModel::new().reply(answer).repeat_last())
        .tools(tools![refund])
        .store(Sqlite::open(folder.join("threads.db")).await?)
        .build()
}

/// One of the people, in a process of their own: sees what waits, and approves it.
async fn approve(name: &str, folder: &Path) -> Result<(), AgentError> {
    let agent = agent(folder).await?;
    for pending in agent.approvals().pending().await? {
        println!("  {name} reads: {} wants to run with {}", pending.tool, pending.arguments);
        match agent.approvals().decide(&pending.id, Decision::approve().by(name)).await {
            Ok(()) => println!("  {name} approves"),
            Err(error) => println!("  {name} is refused: {}", error.code()),
        }
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    if let (Some(name), Some(folder)) = (arguments.next(), arguments.next()) {
        return Ok(approve(&name, Path::new(&folder)).await?);
    }

    let folder = std::env::temp_dir().join(format!("two-approvals-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let agent = agent(&folder).await?;
    let thread = agent.thread("support-7");
    let reply = thread.send("The customer of order 1042 wants the money back.").await?;
    println!("{}", reply.finish_reason);
    for name in ["ada", "ada", "mallory", "grace"] {
        let ended = Command::new(std::env::current_exe()?).arg(name).arg(&folder).spawn()?.wait()?;
        if !ended.success() {
            return Err(format!("the process of {name} failed: {ended}").into());
        }
        match thread.resume().await {
            Err(AgentError::AwaitingApproval { .. }) => println!("the refund still waits"),
            reply => println!("{}", reply?.text),
        }
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
