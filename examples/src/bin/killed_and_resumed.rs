//! A job is killed with SIGKILL while a tool runs, and another process brings it to its end. What was done is not done again;
//! only the call that was running at the kill runs a second time, under the same call id.
#![allow(clippy::print_stdout, reason = "an example shows what happens")]
#![expect(clippy::disallowed_methods, reason = "an example of processes starts some")]

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use toolwright::models::scripted::{Reply, ScriptedModel};
use toolwright::prelude::*;
use toolwright::store::Sqlite;

/// A file outside every process: what bodies did, line by line.
#[derive(Clone)]
struct Effects(PathBuf);

impl Effects {
    fn write(&self, line: &str) -> std::io::Result<()> {
        let mut file = OpenOptions::new().append(true).open(&self.0)?;
        file.write_all(format!("{line}\n").as_bytes())
    }
}

/// Imports a table into the warehouse.
#[tool(on_interrupt = rerun)]
async fn import_table(
    /// Name of the table.
    table: String,
    CallId(call): CallId,
    State(effects): State<Effects>,
) -> Result<String, std::io::Error> {
    effects.write(&format!("{table} begins, as {call}"))?;
    if table == "orders" && std::env::args().nth(1).as_deref() == Some("begin") {
        // Long enough to be killed in the middle.
        tokio::time::sleep(Duration::from_secs(3600)).await;
    }
    effects.write(&format!("{table} is done"))?;
    Ok(format!("{table} is imported"))
}

/// One of the two processes that move the thread: one begins the job, the other goes on with it.
async fn work(role: &str, folder: &Path) -> Result<(), Box<dyn Error>> {
    let model = ScriptedModel::new();
    let model = match role {
        "begin" => model
            .reply(Reply::call("import_table", toolwright::json!({ "table": "customers" })))
            .reply(Reply::call("import_table", toolwright::json!({ "table": "orders" }))),
        // Two replies are in the journal, so the model is asked for the third alone.
        _ => model.reply(Reply::text("Both tables are in the warehouse.")),
    };
    let agent = Agent::builder()
        .model(model)
        .tools(tools![import_table])
        .state(Effects(folder.join("effects.txt")))
        .store(Sqlite::open(folder.join("threads.db")).await?)
        .build()?;
    let thread = agent.thread("nightly-import");
    let reply = if role == "begin" { thread.send("Import customers and orders.").await? } else { thread.resume().await? };
    println!("the other process ends the job: {}", reply.text);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    if let (Some(role), Some(folder)) = (arguments.next(), arguments.next()) {
        return work(&role, Path::new(&folder)).await;
    }

    let folder = std::env::temp_dir().join(format!("killed-and-resumed-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let effects = folder.join("effects.txt");
    File::create(&effects)?;
    let process = |role: &str| Command::new(std::env::current_exe()?).arg(role).arg(&folder).spawn();

    let mut first = process("begin")?;
    println!("a process begins the job");
    while !std::fs::read_to_string(&effects)?.contains("orders begins") {
        if let Some(ended) = first.try_wait()? {
            return Err(format!("the first process ended too early: {ended}").into());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    first.kill()?;
    println!("it is killed while it imports the orders: {}", first.wait()?);

    let ended = process("resume")?.wait()?;
    if !ended.success() {
        return Err(format!("the second process failed: {ended}").into());
    }

    println!("what bodies did:");
    let lines = std::fs::read_to_string(&effects)?;
    for line in lines.lines() {
        println!("  {line}");
    }
    let begun = |table: &str| lines.lines().filter(|line| line.starts_with(&format!("{table} begins"))).count();
    println!("customers ran {} time, orders {} times: only what was running at the kill ran again", begun("customers"), begun("orders"));
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
