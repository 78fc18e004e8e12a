//! A thread edits the files of a folder, somebody else does too, and in the end all goes back.
//!
//! `cargo run -p toolwright-examples --bin edited_and_taken_back`
#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use toolwright::builtin::workspace::{Rewind, Workspace};
use toolwright::json;
use toolwright::models::scripted::{Reply, ScriptedModel};
use toolwright::prelude::*;
use toolwright::rules::PermissionMode;

/// What a model would do: look, edit, and look again once it is told to.
fn model() -> ScriptedModel {
    let edit = |old: &str, new: &str| Reply::call("edit_file", json!({ "path": "plan.md", "old_string": old, "new_string": new }));
    ScriptedModel::new()
        .reply(Reply::call("read_file", json!({ "path": "plan.md" })))
        .reply(edit("Monday", "Tuesday"))
        .reply(Reply::text("The plan begins on Tuesday."))
        .reply(edit("Tuesday", "Wednesday"))
        .reply(Reply::call("grep", json!({ "pattern": "begin" })))
        .reply(Reply::text("Somebody changed the plan; I leave it to you."))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::temp_dir().join(format!("toolwright-workspace-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("plan.md"), "We begin on Monday.\r\n")?;
    let workspace = Workspace::at(&folder)?;
    let agent = Agent::builder().model(model()).tools(workspace.tools()).permission_mode(PermissionMode::AcceptEdits).build()?;
    let thread = agent.thread("plans");

    println!("{}", thread.send("Begin a day later.").await?.text);
    println!("the file: {:?}", std::fs::read_to_string(folder.join("plan.md"))?);

    std::fs::write(folder.join("plan.md"), "We begin on Tuesday, at nine.\r\n")?;
    println!("{}", thread.send("One more day.").await?.text);
    println!("the file: {:?}", std::fs::read_to_string(folder.join("plan.md"))?);

    let kept = workspace.checkpoints_of(thread.values()?, thread.files()?);
    for how in [Rewind::default(), Rewind { force: true, ..Rewind::default() }] {
        let report = kept.rewind(0, Rewind { dry_run: !how.force, ..how }).await.map_err(|error| error.to_string())?;
        println!("restored {:?}, left {:?}", report.restored, report.skipped.iter().map(|file| &file.path).collect::<Vec<_>>());
    }
    println!("the file: {:?}", std::fs::read_to_string(folder.join("plan.md"))?);
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
