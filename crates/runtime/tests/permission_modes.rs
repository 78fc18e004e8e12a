//! Permission modes: where they come from, how long they hold, what they change.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use common::*;
use serde_json::json;
use toolwright_core::policy::PermissionMode::{AcceptEdits, Default, DontAsk, Plan};
use toolwright_core::policy::{PermissionMode, allow, ask};
use toolwright_core::{Decision, EventKind, FinishReason, Outcome, RecordBody, ThreadId, ToolFailureKind, ToolOrigin};
use toolwright_runtime::{AgentError, ApproveAnswer, ForkAt, ForkPatch, MemoryStore, Reply, RunStream, TurnPolicy};
use toolwright_tool::Tool;

fn reads(name: &str, log: &Log) -> Tool {
    logged_with(Tool::new(name, "Reads.").read_only(), log)
}

fn one_call(name: &str) -> Arc<Script> {
    Script::new([calls([("c1", name, "{}")]), say("done")])
}

fn id() -> ThreadId {
    ThreadId::new("t").unwrap()
}

fn is_denied(reply: &Reply) -> bool {
    let (kind, _, _) = failure(reply);
    kind == ToolFailureKind::Denied
}

// rule: sdk-tools 16.3/2, sdk-tools 16.3/8, sdk-tools 3.1/7
// rule: sdk-tools 1.2/6
#[tokio::test]
async fn plan_mode_lets_only_reading_tools_run_whatever_a_rule_allows() {
    for (name, runs) in [("look", true), ("change", false)] {
        let log = Log::default();
        let agent = agent(one_call(name))
            .tools([reads("look", &log), logged("change", &log)])
            .rules([allow("*").reason("all of it")])
            .permission_mode(Plan)
            .build()
            .unwrap();
        let (events, reply) = go(&agent).await;
        let reply = reply.unwrap();
        assert_eq!(log.len() == 1, runs, "{name}");
        let told = events.iter().find_map(|event| match &event.kind {
            EventKind::PermissionDecision { decision, rule, reason, mode, .. } => {
                Some((decision.clone(), rule.clone(), reason.clone(), mode.clone()))
            }
            _ => None,
        });
        let (decision, rule, reason, mode) = told.unwrap();
        assert_eq!(rule.unwrap().index, 0);
        if runs {
            assert_eq!((decision.as_str(), reason, mode), ("allow", None, None));
        } else {
            // The refusal says what to do instead, and the entry keeps the rule.
            assert!(is_denied(&reply));
            assert_eq!((decision.as_str(), mode.as_deref()), ("deny", Some("plan")));
            assert!(reason.unwrap().contains("describe the change you would make"));
        }
    }
}

// case: rust-reports H-91
// rule: sdk-tools 16.3/6
#[tokio::test]
async fn a_hint_of_an_untrusted_origin_lets_nothing_run_in_plan_mode() {
    let foreign = |log: &Log| {
        let origin = ToolOrigin::Mcp { server: "docs".to_owned() };
        logged_with(Tool::new("look", "Looks.").read_only().origin(origin), log)
    };
    let log = Log::default();
    let builder = || agent(one_call("look")).tool(foreign(&log)).permission_mode(Plan);
    assert!(is_denied(&go(&builder().build().unwrap()).await.1.unwrap()));
    assert_eq!(log.len(), 0);
    go(&builder().trust_hints_of("mcp:docs").build().unwrap()).await.1.unwrap();
    assert_eq!(log.len(), 1);
    go(&builder().trust_hints_of("mcp:other").build().unwrap()).await.1.unwrap();
    assert_eq!(log.len(), 1);
}

// rule: sdk-tools 3.2/4
#[tokio::test]
async fn an_unknown_tool_is_not_found_in_plan_mode_too() {
    let agent = agent(one_call("nothing")).permission_mode(Plan).build().unwrap();
    assert_eq!(failure(&go(&agent).await.1.unwrap()).0, ToolFailureKind::NotFound);
}

// rule: sdk-tools 16.3/4
#[tokio::test]
async fn accept_edits_skips_a_pause_of_file_edits_alone() {
    for (edits, asked) in [(true, false), (false, true)] {
        let log = Log::default();
        let builder = Tool::new("write_file", "Writes.").needs_approval();
        let builder = if edits { builder.edits_files() } else { builder };
        let agent = agent(one_call("write_file")).tool(logged_with(builder, &log)).permission_mode(AcceptEdits).build().unwrap();
        let (events, reply) = go(&agent).await;
        assert_eq!(reply.unwrap().pending.is_empty(), !asked);
        let told = events.iter().find_map(|event| match &event.kind {
            EventKind::PermissionDecision { decision, mode, .. } => Some((decision.clone(), mode.clone())),
            _ => None,
        });
        let expected = if edits { ("allow".to_owned(), Some("acceptEdits".to_owned())) } else { ("default".to_owned(), None) };
        assert_eq!((told, log.len() == 1), (Some(expected), edits));
    }
}

// rule: sdk-tools 16.3/5, sdk-tools 16.3/10, sdk-tools 13.6/5
#[tokio::test]
async fn in_dont_ask_nothing_pauses_and_no_code_is_asked() {
    let asked = Arc::new(AtomicUsize::new(0));
    let own = |log: &Log| logged_with(Tool::new("own", "Asks by itself.").needs_approval(), log);
    let question = |log: &Log| {
        let asks = |_| async { Ok(toolwright_tool::ApprovalRequest::question("Which?", &[], true)) };
        logged_with(Tool::new("ask_question", "Asks a person.").read_only().needs_approval_if(asks), log)
    };
    let outside = Tool::external("outside", "Waits for others.", json!({ "type": "object" })).unwrap().outside().unwrap();
    let log = Log::default();
    let script = Script::new([
        calls([("c1", "own", "{}"), ("c2", "ruled", "{}"), ("c3", "ask_question", "{}"), ("c4", "plain", "{}"), ("c5", "outside", "{}")]),
        say("done"),
    ]);
    let counted = Arc::clone(&asked);
    let agent = agent(script)
        .tools([own(&log), logged("ruled", &log), question(&log), logged("plain", &log), outside])
        .rules([ask("ruled")])
        .permission_mode(DontAsk)
        .approve(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            async { Ok(ApproveAnswer::approve()) }
        })
        .build()
        .unwrap();
    let reply = agent.send("go").await.unwrap();
    assert_eq!((reply.finish_reason.clone(), log.all(), asked.load(Ordering::SeqCst)), (FinishReason::Stop, vec!["body c4".to_owned()], 0));
    let refused = failures(&reply.messages);
    assert_eq!(
        refused.iter().map(|(call, kind, ..)| (call.as_str(), kind.clone())).collect::<Vec<_>>(),
        [
            ("c1", ToolFailureKind::Denied),
            ("c2", ToolFailureKind::Denied),
            ("c3", ToolFailureKind::Denied),
            ("c5", ToolFailureKind::Denied),
        ]
    );
    assert!(refused[0].3.contains("nobody can be asked"), "{refused:?}");

    // What waited from before is not decided by code either.
    let counted = Arc::clone(&asked);
    let script = Script::new([calls([("c1", "own", "{}")]), say("done")]);
    let agent = common::agent(script)
        .tool(own(&log))
        .approve(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            async { Ok(ApproveAnswer::approve()) }
        })
        .build()
        .unwrap();
    let thread = agent.thread("t");
    let paused: Reply = within(thread.stream("go")).await.unwrap();
    assert_eq!(paused.pending.len(), 1);
    thread.set_permission_mode(DontAsk).await.unwrap();
    assert!(matches!(thread.resume().await, Err(AgentError::AwaitingApproval { .. })));
    assert_eq!(asked.load(Ordering::SeqCst), 0);
}

// rule: sdk-tools 16.1
#[tokio::test]
async fn the_mode_is_the_runs_else_the_threads_else_the_agents() {
    let log = Log::default();
    let store = MemoryStore::new();
    let script = Answers::new(|request| match request.messages.last().map(|message| message.results().count()) {
        Some(1..) => reply(vec![toolwright_core::Item::text("done")], FinishReason::Stop),
        _ => reply(vec![toolwright_core::Item::ToolCall(call_item("c", "change", "{}"))], FinishReason::ToolCalls),
    });
    let agents = Arc::new(Mutex::new(Plan));
    let read = Arc::clone(&agents);
    let agent =
        agent(script).tool(logged("change", &log)).store(store.clone()).permission_mode(move || *read.lock().unwrap()).build().unwrap();
    let thread = agent.thread("t");
    let runs = async |thread: &toolwright_runtime::ThreadHandle| {
        let before = log.len();
        thread.send("go").await.unwrap();
        log.len() > before
    };
    assert!(!runs(&thread).await, "the agent's: plan");
    *agents.lock().unwrap() = Default;
    assert!(runs(&thread).await, "a function is read at every call");
    thread.set_permission_mode(Plan).await.unwrap();
    assert!(!runs(&thread).await, "the thread's");
    assert!(runs(&thread.clone().permission_mode(Default)).await, "the run's");
    assert!(!runs(&thread).await, "of that run alone");
    // Another handle, another process: the thread keeps its mode.
    assert!(!runs(&agent.thread("t")).await);
    assert_eq!(agent.thread("t").current_permission_mode().await.unwrap(), Plan);
    assert_eq!(agent.thread("other").current_permission_mode().await.unwrap(), Default);
    // A function that fails lets nothing run.
    let broken = common::agent(one_call("change")).tool(logged("change", &log)).permission_mode(|| panic!("no mode")).build().unwrap();
    let before = log.len();
    assert_eq!(failure(&go(&broken).await.1.unwrap()).0, ToolFailureKind::Execution);
    assert_eq!(log.len(), before);
}

// rule: sdk-tools 16.3/16
#[tokio::test]
async fn every_switch_is_reported() {
    let store = MemoryStore::new();
    let log = Log::default();
    let agent = agent(Script::new([say("one"), say("two")])).store(store.clone()).tool(logged("change", &log)).build().unwrap();
    let thread = agent.thread("t");
    // A thread need not have been spoken to.
    thread.set_permission_mode(Plan).await.unwrap();
    thread.set_permission_mode(DontAsk).await.unwrap();
    let (events, _) = collect(thread.clone().permission_mode(AcceptEdits).stream("go")).await;
    let switches = |events: &[toolwright_core::Event]| -> Vec<(PermissionMode, PermissionMode, bool)> {
        let switch = |event: &toolwright_core::Event| match &event.kind {
            EventKind::PermissionMode { from, to, run_only } => Some((*from, *to, *run_only)),
            _ => None,
        };
        events.iter().filter_map(switch).collect()
    };
    assert_eq!(switches(&events), [(DontAsk, AcceptEdits, true)]);
    let all: Vec<_> = journal(&store, &id())
        .await
        .iter()
        .filter_map(|record| match record.body {
            RecordBody::PermissionMode { from, to, run_only } => Some((from, to, run_only)),
            _ => None,
        })
        .collect();
    assert_eq!(all, [(Default, Plan, false), (Plan, DontAsk, false), (DontAsk, AcceptEdits, true)]);
    assert_eq!(agent.thread("t").current_permission_mode().await.unwrap(), DontAsk);
}

// rule: sdk-tools 16.3/3
#[tokio::test]
async fn a_run_that_starts_in_plan_mode_is_told_so() {
    let script = Script::new([say("one"), say("two"), say("three")]);
    let agent = agent(Arc::clone(&script)).instructions("Base.").build().unwrap();
    let thread = agent.thread("t");
    thread.clone().permission_mode(Plan).send("go").await.unwrap();
    thread.send("go").await.unwrap();
    thread.set_permission_mode(Plan).await.unwrap();
    thread.clone().instructions("More.").send("go").await.unwrap();
    let told: Vec<String> = script.asked().iter().map(|request| request.instructions.to_string()).collect();
    assert_eq!(
        told,
        [format!("Base.\n\n{}", PermissionMode::PLAN_NOTE), "Base.".to_owned(), format!("Base.\n\nMore.\n\n{}", PermissionMode::PLAN_NOTE)]
    );
}

// rule: sdk-tools 16.3/3
#[tokio::test]
async fn a_switch_reaches_a_run_that_goes_on() {
    let latch = Latch::default();
    let log = Log::default();
    let script = Script::new([calls([("c1", "wait", "{}")]), calls([("c2", "change", "{}")]), say("done")]);
    let agent = agent(Arc::clone(&script)).tools([holding("wait", &latch), logged("change", &log)]).build().unwrap();
    let thread = agent.thread("t").turn_policy(TurnPolicy::Refuse);
    let run: RunStream = thread.stream("go");
    latch.reached().await;
    // Somebody else, who knows the thread's id.
    let elsewhere = agent.thread("t");
    elsewhere.set_permission_mode(Plan).await.unwrap();
    assert_eq!(elsewhere.current_permission_mode().await.unwrap(), Plan);
    latch.release();
    let (events, reply) = collect(run).await;
    assert!(is_denied(&reply.unwrap()));
    assert_eq!(log.len(), 0);
    assert!(events.iter().any(|event| matches!(event.kind, EventKind::PermissionMode { from: Default, to: Plan, run_only: false })));
    // The gate alone says so: the instructions are those that the run began with.
    assert!(script.asked().iter().all(|request| !request.instructions.contains("Plan mode")));
    assert_eq!(elsewhere.current_permission_mode().await.unwrap(), Plan);
}

// rule: sdk-tools 16.3/14, sdk-tools 13.4/7
#[tokio::test]
async fn an_approved_call_is_refused_where_plan_mode_is_on_by_then() {
    let log = Log::default();
    let script = Script::new([calls([("c1", "own", "{}")]), say("done")]);
    let agent = agent(script).tool(logged_with(Tool::new("own", "Asks.").needs_approval(), &log)).build().unwrap();
    let thread = agent.thread("t");
    let paused = thread.send("go").await.unwrap();
    thread.set_permission_mode(Plan).await.unwrap();
    agent.approvals().decide(&paused.pending[0].id, Decision::approve()).await.unwrap();
    let reply = thread.resume().await.unwrap();
    assert!(is_denied(&reply));
    assert_eq!(log.len(), 0);
    // A rejection stays one, with the person's words.
    let script = Script::new([calls([("c1", "own", "{}")]), say("done")]);
    let agent = common::agent(script).tool(logged_with(Tool::new("own", "Asks.").needs_approval(), &log)).build().unwrap();
    let thread = agent.thread("t");
    let paused = thread.send("go").await.unwrap();
    thread.set_permission_mode(Plan).await.unwrap();
    agent.approvals().decide(&paused.pending[0].id, Decision::reject().note("never")).await.unwrap();
    let reply = thread.resume().await.unwrap();
    assert_eq!(failure(&reply).0, ToolFailureKind::Rejected);
}

// rule: sdk-tools 16.3/13
#[tokio::test]
async fn what_goes_on_after_a_pause_keeps_its_mode_unless_it_was_switched() {
    for switched in [false, true] {
        let log = Log::default();
        let script = Script::new([calls([("c1", "look", "{}")]), calls([("c2", "change", "{}")]), say("done")]);
        let agent = agent(script)
            .tools([logged_with(Tool::new("look", "Looks.").read_only().needs_approval(), &log), logged("change", &log)])
            .build()
            .unwrap();
        let thread = agent.thread("t");
        let paused = thread.clone().permission_mode(Plan).send("go").await.unwrap();
        if switched {
            thread.set_permission_mode(AcceptEdits).await.unwrap();
        }
        agent.approvals().decide(&paused.pending[0].id, Decision::approve()).await.unwrap();
        let reply = thread.resume().await.unwrap();
        let ran: &[&str] = if switched { &["body c1", "body c2"] } else { &["body c1"] };
        assert_eq!((log.all().iter().map(String::as_str).collect::<Vec<_>>().as_slice(), reply.text.as_str()), (ran, "done"));
    }
}

// rule: sdk-runtime FRK-5
#[tokio::test]
async fn a_fork_stands_under_the_mode_that_its_source_has_now() {
    let log = Log::default();
    let script = Script::new([say("one"), calls([("c1", "change", "{}")]), say("two")]);
    let agent = agent(script).tool(logged("change", &log)).build().unwrap();
    let thread = agent.thread("t");
    thread.send("go").await.unwrap();
    thread.set_permission_mode(Plan).await.unwrap();
    let fork = thread.fork(ForkAt::Step(1), ForkPatch::default()).await.unwrap();
    assert_eq!(fork.current_permission_mode().await.unwrap(), Plan);
    assert!(is_denied(&fork.send("go").await.unwrap()));
    let head = thread.fork(ForkAt::Head, ForkPatch::default()).await.unwrap();
    assert_eq!(head.current_permission_mode().await.unwrap(), Plan);
}

#[tokio::test]
async fn a_direct_call_stands_under_the_mode_too() {
    let log = Log::default();
    let agent = agent(Script::new([])).tool(logged("change", &log)).permission_mode(Plan).build().unwrap();
    let reply = agent.invoke("change", "{}").await.unwrap();
    assert!(matches!(reply.outcome, Some(Outcome::Failed { failure }) if failure.kind == ToolFailureKind::Denied));
    assert_eq!(log.len(), 0);
}

/// A store with a thread whose process was gone while `act` ran.
async fn interrupted(tool: Tool) -> MemoryStore {
    let store = MemoryStore::new();
    let script = Script::new([calls([("c1", "act", "{}")]), say("done")]);
    agent(script).tool(tool).store(store.clone()).build().unwrap().thread("t").send("go").await.unwrap();
    let whole = journal(&store, &id()).await;
    let begun = whole.iter().position(|record| matches!(record.body, RecordBody::CallExecuting { .. })).unwrap();
    store_of(&id(), &whole[..=begun]).await
}

// rule: sdk-tools 16.3/5
#[tokio::test]
async fn what_was_running_at_a_crash_stands_under_the_mode_that_is_on_by_then() {
    for (mode, destructive, fails) in [(Default, false, false), (Plan, false, true), (DontAsk, false, false), (DontAsk, true, true)] {
        let log = Log::default();
        let tool = |log: &Log| {
            let tool = Tool::new("act", "Acts.");
            logged_with(if destructive { tool.destructive() } else { tool }, log)
        };
        let store = interrupted(tool(&Log::default())).await;
        let agent = agent(Script::new([say("done")])).tool(tool(&log)).store(store).build().unwrap();
        let thread = agent.thread("t");
        thread.set_permission_mode(mode).await.unwrap();
        let reply = thread.resume().await.unwrap();
        assert_eq!((reply.text.as_str(), log.len() == 1), ("done", !fails), "{mode} {destructive}");
        if fails {
            assert!(failure(&reply).2.contains("its outcome is unknown"));
        }
    }
}
