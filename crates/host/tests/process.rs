//! Programs that a model asked for: their ends, their outputs, and that nothing of them stays.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod common;

use std::time::{Duration, Instant};

use common::{alive, token, until};
use toolwright_host::process::{Environment, How, ProcessError, Spawn};

fn shell(script: &str, token: &str) -> Spawn {
    Spawn::shell(script).environment(Environment::scrubbed().set("TOKEN", token)).grace(Duration::from_millis(200))
}

#[tokio::test]
async fn it_ends_with_its_code_and_outputs() {
    let ended = Spawn::shell("printf out; printf err >&2; exit 3").run().await.unwrap();
    assert_eq!((ended.how, ended.code, ended.signal), (How::Exited, Some(3), None));
    assert_eq!((ended.stdout.text().as_str(), ended.stderr.text().as_str()), ("out", "err"));
    let killed = Spawn::shell("kill -9 $$").run().await.unwrap();
    assert_eq!((killed.how, killed.code, killed.signal), (How::Exited, None, Some(9)));
}

// case: field-reports 100
#[tokio::test]
async fn a_child_in_the_background_with_open_outputs_is_not_waited_for() {
    let token = token("nohup");
    let began = Instant::now();
    let script = "nohup sleep 300 & echo started; cat nohup.out 2>/dev/null; true";
    let ended = shell(script, &token).deadline(Duration::from_secs(60)).run().await.unwrap();
    assert_eq!((ended.how, ended.code, ended.stdout.text().as_str()), (How::Exited, Some(0), "started\n"));
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!(alive(&token), [0; 0]);
}

// case: field-reports 101
#[tokio::test]
async fn at_the_deadline_a_grandchild_that_holds_the_pipe_is_killed_too() {
    let token = token("pipe");
    let began = Instant::now();
    let script = "echo before; sh -c 'trap \"\" TERM; while :; do sleep 300; done' | cat";
    let ended = shell(script, &token).deadline(Duration::from_millis(300)).run().await.unwrap();
    assert_eq!((ended.how, ended.code, ended.stdout.text().as_str()), (How::TimedOut, None, "before\n"));
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!(alive(&token), [0; 0]);
}

// case: field-reports 103
// rule: sdk-tools 25.2/6
#[tokio::test]
async fn no_child_survives_a_deadline() {
    let token = token("spin");
    let script = "for c in 1 2 3 4; do (while :; do :; done) & done; sleep 999";
    let ended = shell(script, &token).deadline(Duration::from_millis(300)).run().await.unwrap();
    assert_eq!(ended.how, How::TimedOut);
    assert_eq!(alive(&token), [0; 0]);
}

#[tokio::test]
async fn who_leaves_the_group_is_found() {
    let token = token("setsid");
    let script = "setsid sleep 300 & (setsid sh -c 'sleep 300 & sleep 301 &' &) ; nohup setsid sleep 302 >/dev/null 2>&1 & echo done";
    let ended = shell(script, &token).run().await.unwrap();
    assert_eq!((ended.how, ended.stdout.text().as_str()), (How::Exited, "done\n"));
    assert_eq!(alive(&token), [0; 0]);
}

#[tokio::test]
async fn a_stop_asks_first_and_what_was_said_is_kept() {
    let token = token("stop");
    let script = "trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.05; done";
    let process = shell(script, &token).grace(Duration::from_secs(20)).start().unwrap();
    until("it is ready", || process.output().0.text() == "ready\n").await;
    assert!(!process.has_ended());
    let ended = process.stop().await.unwrap();
    assert_eq!((ended.how, ended.code, ended.stdout.text().as_str()), (How::Stopped, Some(7), "ready\nbye\n"));
    assert_eq!(process.stop().await.unwrap().code, Some(7), "a second stop changes nothing");
    assert_eq!(alive(&token), [0; 0]);
}

#[tokio::test]
async fn a_run_ends_when_it_is_told_to() {
    let token = token("until");
    let run = shell("sleep 300", &token);
    let ended = run.run_until(until("it runs", || !alive(&token).is_empty())).await.unwrap();
    assert_eq!((ended.how, ended.signal), (How::Stopped, Some(15)));
    assert_eq!(alive(&token), [0; 0]);
}

#[tokio::test]
async fn dropping_it_kills_all_of_it() {
    let token = token("drop");
    let process = shell("setsid sleep 300 & sleep 300", &token).start().unwrap();
    until("three of them run", || alive(&token).len() == 3).await;
    drop(process);
    until("they are gone", || alive(&token).is_empty()).await;
}

#[tokio::test]
async fn output_without_end_is_bounded_and_counted() {
    let token = token("flood");
    let began = Instant::now();
    let ended = shell("echo first; yes | head -c 20000000; echo last", &token).keep(1000).run().await.unwrap();
    assert_eq!((ended.stdout.head().len(), ended.stdout.tail().len()), (500, 500));
    assert_eq!(ended.stdout.written(), 20_000_011);
    let text = ended.stdout.text();
    assert!(text.starts_with("first\ny\n") && text.ends_with("y\nlast\n"), "{text}");
    assert!(began.elapsed() < Duration::from_secs(20));
    let stopped = shell("yes", &token).keep(100).deadline(Duration::from_millis(200)).run().await.unwrap();
    assert!(stopped.how == How::TimedOut && stopped.stdout.dropped() > 0);
    assert_eq!(alive(&token), [0; 0]);
}

#[tokio::test]
async fn nobody_sits_before_it() {
    let ended = Spawn::shell("read line || echo no input; test -t 0 || echo no terminal; echo $PAGER $TERM").run().await.unwrap();
    assert_eq!(ended.stdout.text(), "no input\nno terminal\ncat dumb\n");
}

#[tokio::test]
async fn what_cannot_start_says_why() {
    let missing = Spawn::new("toolwright-no-such-program").run().await.unwrap_err();
    assert!(missing.to_string().starts_with("`toolwright-no-such-program` could not be started"), "{missing}");
    let nowhere = Spawn::shell("true").dir("/nowhere/at/all").run().await.unwrap_err();
    assert!(matches!(nowhere, ProcessError::Folder { .. }), "{nowhere}");
    assert_eq!(nowhere.to_string(), "`sh` can't run in /nowhere/at/all: there is no such folder; create it, or name another one");
}

#[test]
fn without_a_runtime_nothing_is_started() {
    let error = Spawn::shell("true").start().unwrap_err();
    assert!(error.to_string().contains("no tokio runtime"), "{error}");
}
