//! The shell tool, rule by rule. After each test nothing that it started is alive.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolwright_host::process::Environment;
use toolwright_host::sandbox::NoSandbox;
use toolwright_tool::core::ThreadId;
use toolwright_tool::core::args::{Arguments, Repair};
use toolwright_tool::{ApprovalOutcome, ContextParts, NeedsApproval, Running, Snapshots, Tool, ToolContext, ToolError};
use toolwright_tools::shell::ShellTools;

/// A shell whose programs carry a word that nobody else does.
struct Bench {
    tools: Vec<Tool>,
    token: String,
    dir: tempfile::TempDir,
    cancelled: CancellationToken,
    shown: Arc<Mutex<Vec<Value>>>,
}

struct Shown(Arc<Mutex<Vec<Value>>>);

impl Snapshots for Shown {
    fn show(&self, snapshot: Value) {
        self.0.lock().unwrap().push(snapshot);
    }
}

impl Bench {
    fn new() -> Self {
        Self::with(|shell| shell)
    }

    fn with(change: impl FnOnce(ShellTools) -> ShellTools) -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
        let token = format!("toolwright-shell-{}-{now}", std::process::id());
        let dir = tempfile::tempdir().unwrap();
        let shell =
            ShellTools::in_dir(dir.path()).environment(Environment::scrubbed().set("TOKEN", &token)).grace(Duration::from_millis(200));
        Self { tools: change(shell).tools().unwrap(), token, dir, cancelled: CancellationToken::new(), shown: Arc::default() }
    }

    fn tool(&self, name: &str) -> &Tool {
        self.tools.iter().find(|tool| tool.name().as_str() == name).unwrap()
    }

    fn context(&self, name: &str, args: Value, thread: &str) -> ToolContext {
        let args = Arguments::from_value(args, &self.tool(name).spec().input, Repair::On).unwrap();
        let parts = ContextParts {
            cancelled: self.cancelled.clone(),
            snapshots: Arc::new(Shown(Arc::clone(&self.shown))),
            thread: Some(ThreadId::new(thread).unwrap()),
            ..ToolContext::detached(args).parts().clone()
        };
        ToolContext::new(parts)
    }

    async fn call_in(&self, thread: &str, name: &str, args: Value) -> Result<Value, ToolError> {
        let cx = self.context(name, args, thread);
        let Running::Future(body) = self.tool(name).body().begin(cx) else { panic!("an async tool") };
        Ok(body.await?.shown())
    }

    async fn call(&self, name: &str, args: Value) -> Result<Value, ToolError> {
        self.call_in("t", name, args).await
    }

    async fn run(&self, command: &str) -> Value {
        self.call("shell", json!({ "command": command })).await.unwrap()
    }

    async fn asked(&self, command: &str) -> ApprovalOutcome {
        let NeedsApproval::Policy(policy) = self.tool("shell").needs_approval() else { panic!("a policy") };
        policy(self.context("shell", json!({ "command": command }), "t")).await.unwrap()
    }

    fn alive(&self) -> Vec<u32> {
        let pids = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let has =
            |pid: u32| std::fs::read(format!("/proc/{pid}/environ")).is_ok_and(|all| String::from_utf8_lossy(&all).contains(&self.token));
        pids.filter(|pid| *pid != std::process::id() && has(*pid)).collect()
    }

    async fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let began = Instant::now();
        while !holds() {
            assert!(began.elapsed() < Duration::from_secs(30), "in vain: {what}");
            tokio::task::yield_now().await;
        }
    }
}

// rule: sdk-tools 25.2/8
#[tokio::test]
async fn a_code_other_than_zero_is_a_result() {
    let bench = Bench::new();
    assert_eq!(bench.run("printf boom >&2; exit 1").await, json!({ "exitCode": 1, "stdout": "", "stderr": "boom" }));
    assert_eq!(bench.run("kill -9 $$").await, json!({ "exitCode": 137, "stdout": "", "stderr": "", "note": "signal 9 ended it" }));
    assert_eq!(bench.run("no-such-command").await["exitCode"], 127);
}

// rule: sdk-tools 25.4/1
// rule: sdk-tools 26.1/2
#[tokio::test]
async fn it_begins_in_its_folder_and_has_few_variables() {
    let bench = Bench::new();
    std::fs::write(bench.dir.path().join("here"), "yes").unwrap();
    assert_eq!(bench.run("cat here; cd sub 2>/dev/null || pwd").await["stdout"], format!("yes{}\n", bench.dir.path().display()));
    let seen = bench.run("env | cut -d= -f1 | sort").await["stdout"].as_str().unwrap().to_owned();
    // What cargo sets for a test stands for the keys that this process has.
    assert!(std::env::var("CARGO_MANIFEST_DIR").is_ok() && !seen.contains("CARGO"), "{seen}");
    assert!(seen.lines().any(|name| name == "PATH") && seen.lines().any(|name| name == "TOKEN"), "{seen}");
    let none = Bench::with(|shell| shell.sandbox(Arc::new(NoSandbox)));
    assert_eq!(none.run("env | cut -d= -f1 | sort").await["stdout"], seen, "no sandbox changes nothing");
}

// rule: sdk-tools 25.2/1
// rule: sdk-tools 25.7/6
#[tokio::test]
async fn what_is_refused_is_refused_before_anybody_is_asked_and_after() {
    let bench = Bench::with(|shell| shell.allow(["echo", "git log"]).deny(["git push"]));
    assert_eq!(bench.asked("echo hello").await, ApprovalOutcome::Ask);
    for command in ["rm x", "echo a; rm x", "echo a > file", "echo `id`", "git push", "echo a\nrm x"] {
        let ApprovalOutcome::Deny(Some(why)) = bench.asked(command).await else { panic!("{command}") };
        let error = bench.call("shell", json!({ "command": command })).await.unwrap_err();
        assert_eq!((error.name(), error.message()), ("CommandRefusedError", why.as_str()));
    }
    assert_eq!(bench.asked("echo a > file").await, {
        let why = "`echo a` is not among the commands that are allowed here, or not with a redirection to a file";
        ApprovalOutcome::Deny(Some(why.to_owned()))
    });
    assert_eq!(bench.run("echo hello && git log --version 2>/dev/null; echo x").await["exitCode"], 0);
    assert!(!bench.dir.path().join("file").exists());
}

#[tokio::test]
async fn it_asks_unless_told_otherwise() {
    assert_eq!(Bench::new().asked("ls").await, ApprovalOutcome::Ask);
    assert_eq!(Bench::with(|shell| shell.needs_approval(false)).asked("ls").await, ApprovalOutcome::Run);
    let some = Bench::with(|shell| shell.needs_approval_if(|line| line.contains("push")));
    assert_eq!((some.asked("git push").await, some.asked("git log").await), (ApprovalOutcome::Ask, ApprovalOutcome::Run));
}

// case: field-reports 103
#[tokio::test]
async fn at_its_deadline_it_ends_with_what_it_has_said() {
    let bench = Bench::new();
    let command = "echo begun; for c in 1 2 3; do (while :; do :; done) & done; setsid sleep 999 & sleep 999";
    let result = bench.call("shell", json!({ "command": command, "timeout_ms": 300 })).await.unwrap();
    assert_eq!((&result["exitCode"], &result["timedOut"], &result["stdout"]), (&Value::Null, &json!(true), &json!("begun\n")));
    let note = result["note"].as_str().unwrap();
    assert!(note.starts_with("it did not end within 300 ms") && note.contains("`timeout_ms`"), "{note}");
    assert_eq!(bench.alive(), [0; 0]);
}

// rule: sdk-tools 25.7/7
#[tokio::test]
async fn more_time_than_there_is_is_lowered() {
    let bench = Bench::with(|shell| shell.max_timeout(Duration::from_millis(200)));
    let began = Instant::now();
    let result = bench.call("shell", json!({ "command": "sleep 300", "timeout_ms": 300_000 })).await.unwrap();
    assert_eq!(result["timedOut"], true);
    assert!(began.elapsed() < Duration::from_secs(20));
    assert!(bench.tool("shell").spec().timeout.unwrap() > Duration::from_millis(200), "its own deadline comes first");
}

// case: field-reports 56
// case: rust-reports F-76
#[tokio::test]
async fn a_run_that_stops_stops_it() {
    let bench = Bench::new();
    let stop = async {
        bench.until("it runs", || bench.alive().len() >= 2).await;
        bench.cancelled.cancel();
    };
    let command = "echo begun; trap '' TERM; sleep 300 & sleep 300";
    let (result, ()) = tokio::join!(bench.run(command), stop);
    assert_eq!((&result["exitCode"], &result["aborted"], &result["stdout"]), (&Value::Null, &json!(true), &json!("begun\n")));
    assert_eq!(bench.alive(), [0; 0]);
}

// case: field-reports 100
#[tokio::test]
async fn what_it_leaves_running_is_neither_waited_for_nor_left() {
    let bench = Bench::new();
    let began = Instant::now();
    let result = bench.run("nohup sleep 300 > log & cat log; echo ready").await;
    assert_eq!((&result["exitCode"], &result["stdout"]), (&json!(0), &json!("ready\n")));
    assert!(began.elapsed() < Duration::from_secs(20));
    assert_eq!(bench.alive(), [0; 0]);
}

#[tokio::test]
async fn long_output_keeps_both_ends() {
    let bench = Bench::with(|shell| shell.max_output(100));
    let out = bench.run("echo first; seq 100000; echo last").await["stdout"].as_str().unwrap().to_owned();
    assert!(out.starts_with("first\n1\n2\n") && out.ends_with("100000\nlast\n") && out.contains("characters left out"), "{out}");
    assert!(out.chars().count() < 160, "{}", out.len());
    let flood = bench.run("yes | head -c 5000000").await["stdout"].as_str().unwrap().to_owned();
    assert!(flood.contains("bytes left out") && flood.chars().count() < 160, "{flood}");
}

#[tokio::test]
async fn a_long_command_shows_what_it_has_written() {
    let bench = Bench::new();
    let seen = async {
        bench.until("a snapshot", || bench.shown.lock().unwrap().iter().any(|shown| shown["stdout"] == "step 1\n")).await;
        std::fs::write(bench.dir.path().join("go"), "").unwrap();
    };
    let (result, ()) = tokio::join!(bench.run("echo step 1; until test -e go; do sleep 0.02; done; echo step 2"), seen);
    assert_eq!(result["stdout"], "step 1\nstep 2\n");
}

#[tokio::test]
async fn a_program_in_the_background_is_read_and_killed() {
    let bench = Bench::new();
    bench.run("mkfifo go").await;
    let command = "echo one; read x < go; echo two; sleep 300 & sleep 300";
    let started = bench.call("shell", json!({ "command": command, "background": true })).await.unwrap();
    assert_eq!((&started["id"], &started["running"]), (&json!("job_1"), &json!(true)));
    let first = bench.call("shell_output", json!({ "id": "job_1", "wait_ms": 30_000 })).await.unwrap();
    assert_eq!((&first["stdout"], &first["running"]), (&json!("one\n"), &json!(true)));
    let nothing = bench.call("shell_output", json!({ "id": "job_1" })).await.unwrap();
    assert_eq!(nothing["stdout"], "", "what was read is not read again");
    std::fs::write(bench.dir.path().join("go"), "x\n").unwrap();
    let second = bench.call("shell_output", json!({ "id": "job_1", "wait_ms": 30_000 })).await.unwrap();
    assert_eq!(second["stdout"], "two\n");
    let other = bench.call_in("another", "shell_output", json!({ "id": "job_1" })).await.unwrap_err();
    assert_eq!(other.message(), "there is no command `job_1` in the background; nothing runs in the background");
    let killed = bench.call("shell_kill", json!({ "id": "job_1" })).await.unwrap();
    assert_eq!((&killed["running"], &killed["exitCode"], &killed["note"]), (&json!(false), &Value::Null, &json!("it was ended")));
    assert_eq!(bench.alive(), [0; 0]);
    let again = bench.call("shell_kill", json!({ "id": "job_1" })).await.unwrap();
    assert_eq!(again["note"], "it had ended before");
}

#[tokio::test]
async fn background_programs_are_few_and_end_with_their_tools() {
    let bench = Bench::with(|shell| shell.max_jobs(2));
    let start = || bench.call("shell", json!({ "command": "sleep 300", "background": true }));
    assert_eq!((start().await.unwrap()["id"].clone(), start().await.unwrap()["id"].clone()), (json!("job_1"), json!("job_2")));
    let error = start().await.unwrap_err();
    assert_eq!(error.message(), "2 commands run in the background already; end one with `shell_kill` first");
    let there = bench.call("shell_output", json!({ "id": "nonsense" })).await.unwrap_err();
    assert_eq!(there.message(), "there is no command `nonsense` in the background; there are job_1, job_2");
    let Bench { tools, token, dir, cancelled, shown } = bench;
    drop(tools);
    let bench = Bench { tools: Vec::new(), token, dir, cancelled, shown };
    bench.until("they are gone", || bench.alive().is_empty()).await;
}

#[tokio::test]
async fn what_cannot_run_is_an_error_of_one_sentence() {
    let bench = Bench::new();
    let nul = bench.call("shell", json!({ "command": "echo \0" })).await.unwrap_err();
    assert_eq!(nul.message(), "it holds a NUL character, which no command can");
    let gone = ShellTools::in_dir("/nowhere/at/all").tools().unwrap();
    let args = Arguments::from_value(json!({ "command": "ls" }), &gone[0].spec().input, Repair::On).unwrap();
    let Running::Future(body) = gone[0].body().begin(ToolContext::detached(args)) else { panic!("an async tool") };
    let error = body.await.unwrap_err();
    assert_eq!(error.message(), "`sh` can't run in /nowhere/at/all: there is no such folder; create it, or name another one");
}
