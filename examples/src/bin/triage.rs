//! An issue of GitHub is read and labelled: reading runs by itself, labelling asks.
//!
//! `GITHUB_TOKEN=... GITHUB_REPOSITORY=acme/shop cargo run -p toolwright-examples --bin triage -- approve`
#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use toolwright::builtin::integrations::GitHub;
use toolwright::models::scripted::{Reply, ScriptedModel};
use toolwright::prelude::*;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let repository = std::env::var("GITHUB_REPOSITORY").unwrap_or_default();
    let (Some((owner, repo)), Ok(_)) = (repository.split_once('/'), std::env::var("GITHUB_TOKEN")) else {
        println!("GITHUB_TOKEN and GITHUB_REPOSITORY (such as `acme/shop`) are not set, so there is nothing to show");
        return Ok(());
    };
    let mut github = GitHub::new();
    if let Ok(api) = std::env::var("GITHUB_API_URL") {
        github = github.base_url(api);
    }
    let model = ScriptedModel::new()
        .reply(Reply::call("get_github_issue", toolwright::json!({ "owner": owner, "repo": repo, "number": 1 })))
        .reply(Reply::call("label_github_issue", toolwright::json!({ "owner": owner, "repo": repo, "number": 1, "labels": ["bug"] })))
        .reply(Reply::text("Issue 1 is a bug, and labelled as one."));
    let agent = Agent::builder().model(model).tools(github.tools()?).build()?;
    let thread = agent.thread("triage");

    let reply = thread.send("Triage issue 1.").await?;
    for pending in &reply.pending {
        println!("{} wants to run with {}", pending.tool, pending.arguments);
        let approve = std::env::args().any(|argument| argument == "approve");
        println!("  somebody {}", if approve { "approves" } else { "rejects: say `approve` to have it done" });
        let decision = if approve { Decision::approve() } else { Decision::reject() };
        agent.approvals().decide(&pending.id, decision.by("kim")).await?;
    }
    println!("{}", thread.resume().await?.text);
    Ok(())
}
