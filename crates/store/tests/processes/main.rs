//! Real processes over real stores: killed at any moment, racing for a thread, hanging past their limit, posting to each other.
//!
//! A child is this test binary once more, told by an environment variable what to be. What it does to the world stands in a
//! file outside of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]
#![expect(clippy::disallowed_methods, reason = "these tests are about processes")]
#![expect(clippy::print_stdout, reason = "children speak through their output, and the counts belong into the log")]

mod decisions;
mod faults;
mod hanging;
mod job;
mod kill;
mod posts;
mod race;
#[path = "../support/server.rs"]
mod server;
mod stores;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use toolwright_runtime::{AgentError, Store};

use job::Log;

const ROLE: &str = "TOOLWRIGHT_TEST_CHILD";

/// What a child is told on its command line, so to speak.
#[derive(Clone)]
struct Orders {
    role: &'static str,
    store: String,
    thread: String,
    log: Log,
    pace: Duration,
}

impl Orders {
    fn command(&self) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "a_child_does_what_it_is_told", "--nocapture", "--test-threads", "1"])
            .env(ROLE, self.role)
            .env("STORE", &self.store)
            .env("THREAD", &self.thread)
            .env("LOG", self.log.path())
            .env("PACE", self.pace.as_micros().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        command
    }

    fn start(&self) -> Told {
        Told::of(self.command().spawn().unwrap())
    }
}

/// A child, and what it says.
struct Told {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Told {
    fn of(mut child: Child) -> Self {
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    /// The next line that the child says of itself; the test harness around it says more. `None` at its end.
    fn says(&mut self) -> Option<String> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.output.read_line(&mut line).unwrap_or(0) == 0 {
                return None;
            }
            if let Some(said) = line.trim_end().rsplit_once("child: ") {
                return Some(said.1.to_owned());
            }
        }
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
        self.input.flush().unwrap();
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        // A child that has ended is reaped; one that a failed test leaves behind is ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn say(text: impl std::fmt::Display) {
    println!("child: {text}");
    std::io::stdout().flush().unwrap();
}

/// How a run ended, as a child says it.
fn told(result: Result<(), AgentError>) -> String {
    match result {
        Ok(()) => "done".to_owned(),
        Err(error) => format!("{} {error}", error.code()),
    }
}

/// The part of this binary that is a child. On its own it has nothing to do: the tests beside it start it.
#[test]
fn a_child_does_what_it_is_told() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let var = |name: &str| std::env::var(name).unwrap();
    let (log, pace) = (Log::at(var("LOG")), Duration::from_micros(var("PACE").parse().unwrap()));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let store: Arc<dyn Store> = match stores::open(&var("STORE")).await {
            Ok(store) => store,
            Err(error) => return say(told(Err(error.into()))),
        };
        let agent = job::agent(Arc::clone(&store), &log, pace);
        match role.as_str() {
            "listen" => match posts::listen(&posts::agent(store, &log, pace), &var("THREAD")).await {
                Ok(finish) => say(finish),
                Err(error) => say(told(Err(error))),
            },
            "decide" => decisions::decide(&decisions::agent(store, &log, pace)).await,
            "go on" => decisions::go_on(&decisions::agent(store, &log, pace), &var("THREAD")).await,
            "work" => {
                say("begins");
                say(told(job::finish(&agent, &var("THREAD")).await));
            }
            // Goes on with each thread it is named, once.
            "race" => {
                say("ready");
                for thread in std::io::stdin().lock().lines() {
                    say(told(agent.thread(thread.unwrap()).resume().await.map(|_| ())));
                }
            }
            role => panic!("there is no role {role}"),
        }
    });
}
