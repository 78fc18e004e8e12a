//! Two worker processes share the threads of one store. Whoever claims a thread moves it; nothing runs twice.
//!
//! Over PostgreSQL the processes may be on different machines:
//! `TOOLWRIGHT_STORE=postgres://user:password@host/database cargo run -p toolwright-examples --bin shared_threads`
#![allow(clippy::print_stdout, reason = "an example shows what happens")]
#![expect(clippy::disallowed_methods, reason = "an example of processes starts some")]

use std::collections::BTreeMap;
use std::error::Error;
use std::process::Command;
use std::sync::Arc;

use futures_util::StreamExt as _;
use toolwright::models::scripted::{Reply, ScriptedModel};
use toolwright::prelude::*;
use toolwright::{CancellationToken, Seq, Store};

const THREADS: usize = 8;

/// The name of the process that runs a body.
#[derive(Clone)]
struct Worker(String);

/// Counts the letters of a word.
#[tool(read_only)]
async fn count_letters(
    /// The word.
    word: String,
    State(worker): State<Worker>,
) -> String {
    // A little work, so that both have something to do.
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    format!("{} letters, counted by {}", word.chars().count(), worker.0)
}

/// The same agent in every process.
fn agent(store: Arc<dyn Store>, name: &str) -> Result<Agent, AgentError> {
    // In place of a real model: asks for the tool once, then says what it found.
    let answer = Reply::with(|request| match request.messages.last() {
        Some(last) => match last.results().next() {
            Some(result) => Reply::text(result.text().trim_matches('"')),
            None => Reply::call("count_letters", toolwright::json!({ "word": last.text_of() })),
        },
        None => Reply::empty(),
    });
    Agent::builder()
        .model(ScriptedModel::new().reply(answer).repeat_last())
        .tools(tools![count_letters])
        .state(Worker(name.to_owned()))
        .store(store)
        .build()
}

/// One of the processes: moves whatever has something to do, until nothing has.
async fn work(store: &str, name: &str) -> Result<(), Box<dyn Error>> {
    let agent = agent(toolwright::store::open(store).await?, name)?;
    agent.worker().concurrency(2).until_idle().run(CancellationToken::new()).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    if let (Some(store), Some(name)) = (arguments.next(), arguments.next()) {
        return work(&store, &name).await;
    }

    let named = std::env::var("TOOLWRIGHT_STORE").ok().filter(|store| !store.trim().is_empty());
    let folder = std::env::temp_dir().join(format!("shared-threads-{}", std::process::id()));
    let store = if let Some(store) = named {
        store
    } else {
        println!("no server is named, so the threads are in a file; for PostgreSQL, start one and name it:");
        println!("  docker run -d -p 5432:5432 -e POSTGRES_PASSWORD=secret postgres");
        println!("  export TOOLWRIGHT_STORE=postgres://postgres:secret@localhost/postgres");
        std::fs::create_dir_all(&folder)?;
        format!("sqlite:{}", folder.join("threads.db").display())
    };

    // Whoever posts input needs no worker, and waits for none.
    let agent = agent(toolwright::store::open(&store).await?, "nobody")?;
    let run = std::process::id();
    let words = ["anchor", "barley", "cedar", "delta", "ember", "fjord", "glacier", "harbour"];
    let mut threads = Vec::new();
    for word in words.iter().take(THREADS) {
        let thread = agent.thread(format!("words-{run}-{word}"));
        thread.enqueue(*word).await?;
        threads.push(thread);
    }

    let start = |name: &str| Command::new(std::env::current_exe()?).args([&store, name]).spawn();
    let mut workers = [start("worker 1")?, start("worker 2")?];
    for worker in &mut workers {
        let ended = worker.wait()?;
        if !ended.success() {
            return Err(format!("a worker failed: {ended}").into());
        }
    }

    let mut moved: BTreeMap<&str, usize> = BTreeMap::new();
    for thread in threads {
        let id = thread.id()?.clone();
        let mut bodies = 0;
        let mut events = thread.events_so_far(Seq(0))?;
        while let Some(event) = events.next().await {
            match event?.kind {
                EventKind::ToolDone { .. } => bodies += 1,
                EventKind::RunDone { text, .. } => {
                    println!("{id}: {text}");
                    *moved.entry(if text.ends_with('1') { "worker 1" } else { "worker 2" }).or_default() += bodies;
                }
                _ => {}
            }
        }
        thread.delete().await?;
    }
    let by: Vec<String> = moved.iter().map(|(worker, calls)| format!("{worker} ran {calls}")).collect();
    println!("{} calls of {THREADS} threads: {}", moved.values().sum::<usize>(), by.join(", "));
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    Ok(())
}
