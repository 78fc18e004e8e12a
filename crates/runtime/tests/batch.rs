//! The calls of one turn: their order, their concurrency, their pauses, and how they end together.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::*;
use futures_util::{FutureExt, StreamExt, stream};
use serde_json::{Value, json};
use tokio::sync::Barrier;
use toolwright_core::{Decision, EventKind, FinishReason, Item, RecordBody, ToolFailureKind};
use toolwright_runtime::{AgentError, MemoryStore};
use toolwright_tool::{Running, Tool, ToolError};

fn same_turn(names: &[&str]) -> Answer {
    let items = names.iter().map(|name| Item::ToolCall(call_item(name, name, "{}"))).collect();
    items_of(items, FinishReason::ToolCalls)
}

fn call_ids(reply: &toolwright_runtime::Reply) -> Vec<String> {
    results(&reply.messages).iter().map(|result| result.call_id.to_string()).collect()
}

fn asks(name: &str, log: &Log) -> Tool {
    logged_with(Tool::new(name, "Asks first.").needs_approval(), log)
}

// rule: sdk-tools 5.2/2
// rule: sdk-runtime PAR-1
// case: rust-reports B-22
#[tokio::test]
async fn bodies_of_one_turn_run_side_by_side() {
    // None of them ends before all of them have begun.
    let meet = Arc::new(Barrier::new(100));
    let tool = Tool::new("act", "Meets the others.")
        .run_json(move |_, _| {
            let meet = Arc::clone(&meet);
            async move {
                meet.wait().await;
                Ok::<_, ToolError>(1)
            }
        })
        .unwrap();
    let items = (0..100).map(|n| Item::ToolCall(call_item(&format!("c{n}"), "act", "{}"))).collect();
    let agent = agent(Script::new([items_of(items, FinishReason::ToolCalls), say("done")])).tool(tool).build().unwrap();
    let reply = go(&agent).await.1.unwrap();
    assert_eq!(call_ids(&reply), (0..100).map(|n| format!("c{n}")).collect::<Vec<_>>());
}

// rule: sdk-runtime PAR-1
#[tokio::test]
async fn a_limit_caps_the_bodies_in_flight() {
    let (latch, running, most) = (Latch::default(), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (held, counted, highest) = (latch.clone(), Arc::clone(&running), Arc::clone(&most));
    let tool = Tool::new("act", "Waits.")
        .run_json(move |_, _| {
            let (held, counted) = (held.clone(), Arc::clone(&counted));
            highest.fetch_max(counted.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            async move {
                held.hold().await;
                counted.fetch_sub(1, Ordering::SeqCst);
                Ok::<_, ToolError>(1)
            }
        })
        .unwrap();
    let agent = agent(Script::new([calls([("a", "act", "{}"), ("b", "act", "{}"), ("c", "act", "{}"), ("d", "act", "{}")]), say("done")]))
        .tool(tool)
        .tool_concurrency(2)
        .build()
        .unwrap();
    let run = agent.stream("go");
    latch.reached().await;
    latch.reached().await;
    for _ in 0..4 {
        latch.release();
    }
    run.await.unwrap();
    assert_eq!(most.load(Ordering::SeqCst), 2);
}

// rule: sdk-tools 5.2/3
#[tokio::test]
async fn with_a_concurrency_of_one_starts_and_ends_alternate() {
    let agent = agent(Script::new([same_turn(&["a", "b", "c"]), say("done")]))
        .tools([echo("a"), echo("b"), echo("c")])
        .tool_concurrency(1)
        .build()
        .unwrap();
    let (events, _) = go(&agent).await;
    let of_tools: Vec<String> = brief(&events).into_iter().filter(|event| event.starts_with("tool.")).collect();
    assert_eq!(of_tools, ["tool.start a", "tool.done a", "tool.start b", "tool.done b", "tool.start c", "tool.done c"]);
}

// rule: sdk-tools 5.1
#[test]
fn a_concurrency_of_none_is_refused_by_name() {
    let error = agent(Script::new([])).tool_concurrency(0).build().unwrap_err();
    assert_eq!(error.code(), "TOOLWRIGHT_CONFIG_INVALID");
    assert_eq!(error.to_string(), "tool_concurrency is 0; give a whole number of at least 1, or leave it out for no limit");
}

// rule: sdk-tools 5.2/4, sdk-tools 5.2/5
// rule: sdk-runtime PAR-2, sdk-runtime PAR-3, sdk-runtime 57/2
// case: field-reports 169, rust-reports B-28
#[tokio::test]
async fn results_stand_in_call_order_whatever_ends_first() {
    let names = ["a", "b", "c"];
    let latches = [Latch::default(), Latch::default(), Latch::default()];
    let script = Script::new([same_turn(&names), say("done")]);
    let agent = agent(script.clone()).tools(names.iter().zip(&latches).map(|(name, latch)| holding(name, latch))).build().unwrap();
    let mut run = agent.stream("go");
    for latch in &latches {
        latch.reached().await;
    }
    let mut events = Vec::new();
    for last in [2, 0, 1] {
        latches[last].release();
        events.extend(until(&mut run, |event| matches!(event, EventKind::ToolDone { .. })).await);
    }
    let (rest, reply) = collect(run).await;
    events.extend(rest);
    assert_eq!(
        brief(&events),
        [
            "run.start",
            "step.start 1",
            "tool.start a",
            "tool.start b",
            "tool.start c",
            "tool.done c",
            "tool.done a",
            "tool.done b",
            "step.done 1 tool_calls",
            "step.start 2",
            "text.delta",
            "text.done done",
            "step.done 2 stop",
            "run.done stop",
        ]
    );
    let reply = reply.unwrap();
    assert_eq!(call_ids(&reply), names);
    // One message holds them all, directly after the turn.
    let sent = &script.asked()[1].messages;
    assert_eq!(sent.last().unwrap().results().count(), 3);
    assert_eq!(results(sent).iter().map(value).collect::<Vec<_>>(), [json!("a"), json!("b"), json!("c")]);
}

// rule: sdk-tools 5.2/1, sdk-tools 5.2/2
// rule: sdk-runtime GATE-1
#[tokio::test]
async fn gates_open_one_at_a_time_in_call_order_while_bodies_run() {
    let (gate, body, log) = (Latch::default(), Latch::default(), Log::default());
    let (at_gate, seen) = (gate.clone(), log.clone());
    let held = body.clone();
    let tool = Tool::new("act", "Acts.")
        .needs_approval_if(move |cx| {
            let (at_gate, seen) = (at_gate.clone(), seen.clone());
            async move {
                seen.add(format!("gate {}", cx.call_id()));
                at_gate.hold().await;
                seen.add(format!("passed {}", cx.call_id()));
                Ok(false)
            }
        })
        .run_json(move |_, _| {
            let held = held.clone();
            async move {
                held.hold().await;
                Ok::<_, ToolError>(1)
            }
        })
        .unwrap();
    let agent =
        agent(Script::new([calls([("a", "act", "{}"), ("b", "act", "{}"), ("c", "act", "{}")]), say("done")])).tool(tool).build().unwrap();
    let run = agent.stream("go");
    for ids in [["gate a"].as_slice(), &["passed a", "gate b"], &["passed b", "gate c"]] {
        gate.reached().await;
        // The next gate opens while the bodies before it still run.
        assert_eq!(log.take(), ids);
        gate.release();
    }
    for _ in 0..3 {
        body.reached().await;
        body.release();
    }
    run.await.unwrap();
}

// rule: sdk-tools 5.2/6
// rule: sdk-runtime PAR-6
#[tokio::test]
async fn a_failing_or_panicking_tool_harms_no_sibling() {
    let latch = Latch::default();
    let panics = Tool::new("panics", "Panics.")
        .run_json(|args, _| async move { if true { panic!("at the disco") } else { Ok::<_, ToolError>(args) } })
        .unwrap();
    // One that panics before its future exists.
    let at_once = with_body(Tool::new("at_once", "Panics at once."), |_| panic!("at once"));
    let blocking = with_body(Tool::new("blocking", "Panics on the pool."), |_| {
        let work: toolwright_tool::BlockingWork =
            Box::new(|| if true { panic!("on the pool") } else { Ok(toolwright_tool::ToolOutput::default()) });
        Running::Blocking(std::future::ready(Ok(work)).boxed())
    });
    let agent = agent(Script::new([same_turn(&["breaks", "slow", "panics", "at_once", "blocking"]), say("done")]))
        .tools([failing("breaks", ToolError::new("no")), holding("slow", &latch), panics, at_once, blocking])
        .build()
        .unwrap();
    let mut run = agent.stream("go");
    let mut ended = 0;
    while ended < 4 {
        until(&mut run, |event| matches!(event, EventKind::ToolError { .. })).await;
        ended += 1;
    }
    latch.release();
    let reply = collect(run).await.1.unwrap();
    let failed: Vec<(String, String, String)> =
        failures(&reply.messages).into_iter().map(|(call, _, error, message)| (call, error, message)).collect();
    let expected = [
        ("breaks", "ToolExecutionError", "no"),
        ("panics", "PanicError", "it panicked: at the disco"),
        ("at_once", "PanicError", "it panicked: at once"),
        ("blocking", "PanicError", "it panicked: on the pool"),
    ];
    assert_eq!(failed, expected.map(|(call, error, message)| (call.to_owned(), error.to_owned(), message.to_owned())));
    assert_eq!((value(&results(&reply.messages)[1]), reply.text.as_str()), (json!("slow"), "done"));
}

// rule: sdk-tools 5.2/7, sdk-tools 7.4/5
// rule: sdk-runtime GATE-6, sdk-runtime PAR-8, sdk-runtime FIN-4, sdk-runtime EV-6
// case: field-reports 172
#[tokio::test]
async fn a_propagating_error_stops_its_siblings_awaits_them_and_fails_the_run() {
    let (latch, log) = (Latch::default(), Log::default());
    let (held, cleaned) = (latch.clone(), log.clone());
    let sibling = Tool::new("sibling", "Cleans up when told to stop.")
        .run_json(move |_, cx| {
            let (held, cleaned) = (held.clone(), cleaned.clone());
            async move {
                held.arrive();
                cx.cancelled().cancelled().await;
                // What it still has to do is waited for.
                tokio::task::yield_now().await;
                cleaned.add("cleaned up");
                Err::<Value, _>(ToolError::new("stopped"))
            }
        })
        .unwrap();
    let reached = latch.clone();
    let ends = Tool::new("ends", "Ends the run.")
        .run_json(move |_, _| {
            let reached = reached.clone();
            async move {
                reached.reached().await;
                Err::<Value, _>(ToolError::propagate(ToolError::new("the account is gone").named("AccountError")))
            }
        })
        .unwrap();
    let script = Script::new([same_turn(&["sibling", "ends", "later"])]);
    let agent = agent(script.clone()).tools([sibling, ends, logged("later", &log)]).tool_concurrency(2).build().unwrap();
    let thread = agent.thread("t");
    let (events, reply) = collect(thread.stream("go")).await;
    let error = reply.unwrap_err();
    assert_eq!(
        (error.code(), error.to_string().as_str()),
        ("TOOLWRIGHT_TOOL_EXECUTION_FAILED", "the tool `ends` ended the run: the account is gone")
    );
    assert_eq!((log.all(), script.times()), (vec!["cleaned up".to_owned()], 1), "the third call never begins");
    let all = brief(&events);
    assert_eq!(all[all.len() - 3..], ["step.done 1 error", "error AccountError", "run.done error"]);
    assert!(
        all.contains(&"tool.error ends AccountError".to_owned()) && all.contains(&"tool.error sibling AbortError".to_owned()),
        "{all:?}"
    );
    let Some(EventKind::RunDone { text, usage, .. }) = events.last().map(|event| event.kind.clone()) else { panic!() };
    assert_eq!((&*text, usage), ("", None));
    let transcript = thread.history().await.unwrap();
    transcript.check_balance().unwrap();
    assert_eq!(
        failures(&transcript).iter().map(|(call, kind, ..)| (call.as_str(), kind.clone())).collect::<Vec<_>>(),
        [("sibling", ToolFailureKind::Execution), ("ends", ToolFailureKind::Execution), ("later", ToolFailureKind::NotRun)]
    );
}

// rule: sdk-tools 5.2/8, sdk-tools 7.3/5
// rule: sdk-runtime CAN-2, sdk-runtime CAN-6, sdk-runtime ORD-10
// case: field-reports 44, rust-reports B-31, rust-reports F-77
#[tokio::test]
async fn an_abort_keeps_what_is_finished_and_gives_every_other_call_a_result() {
    let (latch, log) = (Latch::default(), Log::default());
    let held = latch.clone();
    let stops = Tool::new("stops", "Stops when told to.")
        .run_json(move |_, cx| {
            let held = held.clone();
            async move {
                held.arrive();
                cx.cancelled().cancelled().await;
                Err::<Value, _>(ToolError::new("stopped"))
            }
        })
        .unwrap();
    let script = Script::new([same_turn(&["quick", "stops", "never"]), say("and on")]);
    let agent = agent(script.clone()).tools([echo("quick"), stops, logged("never", &log)]).tool_concurrency(1).build().unwrap();
    let thread = agent.thread("t");
    let run = thread.stream("go");
    latch.reached().await;
    run.cancel("enough");
    let (events, reply) = collect(run).await;
    let reply = reply.unwrap();
    assert_eq!((reply.finish_reason.clone(), script.times(), log.len()), (FinishReason::Aborted, 1, 0));
    assert_eq!(value(&results(&reply.messages)[0]), json!({}));
    let failed = failures(&reply.messages);
    assert_eq!((failed[0].0.as_str(), failed[0].2.as_str()), ("stops", "AbortError"));
    assert!(failed[0].3.contains("its outcome is unknown"), "{failed:?}");
    assert_eq!((failed[1].0.as_str(), &failed[1].1, failed[1].2.as_str()), ("never", &ToolFailureKind::NotRun, "ToolNotRunError"));
    assert_eq!(failed[1].3, "cancelled: the run was aborted before the call started");
    let all = brief(&events);
    assert_eq!(all[all.len() - 2..], ["step.done 1 aborted", "run.done aborted"]);
    assert!(!all.iter().any(|event| event.contains("never")), "a call that never started is not shown: {all:?}");
    // The next message finds a history that any provider takes.
    thread.send("go on").await.unwrap();
    script.asked()[1].messages.check_balance().unwrap();
}

#[tokio::test]
async fn a_sequential_tool_is_a_barrier_both_ways() {
    let (before, alone, log) = (Latch::default(), Latch::default(), Log::default());
    let (held, seen) = (alone.clone(), log.clone());
    let barrier = Tool::new("alone", "Runs alone.")
        .sequential()
        .run_json(move |_, _| {
            let (held, seen) = (held.clone(), seen.clone());
            async move {
                seen.add("alone begins");
                held.hold().await;
                seen.add("alone ends");
                Ok::<_, ToolError>(1)
            }
        })
        .unwrap();
    let agent = agent(Script::new([calls([("a", "before", "{}"), ("b", "alone", "{}"), ("c", "after", "{}")]), say("done")]))
        .tools([holding("before", &before), barrier, logged("after", &log)])
        .build()
        .unwrap();
    let mut run = agent.stream("go");
    before.reached().await;
    assert_eq!(log.len(), 0);
    before.release();
    until(&mut run, |event| matches!(event, EventKind::ToolDone { .. })).await;
    alone.reached().await;
    assert_eq!(log.take(), ["alone begins"]);
    alone.release();
    collect(run).await.1.unwrap();
    assert_eq!(log.all(), ["alone ends", "body c"]);
}

// rule: sdk-tools 5.2/9, sdk-tools 5.3/1, sdk-tools 5.3/2, sdk-tools 5.3/3
// rule: sdk-runtime PAR-4, sdk-runtime PAR-5, sdk-runtime 57/3, sdk-runtime ORD-8
// case: rust-reports B-32
// rule: sdk-tools 13.4/9
#[tokio::test]
async fn siblings_of_a_waiting_call_go_on_and_the_model_is_asked_when_all_have_results() {
    let (latch, log) = (Latch::default(), Log::default());
    let script = Script::new([same_turn(&["a", "b", "c"]), say("done")]);
    let agent = agent(script.clone()).tools([holding("a", &latch), asks("b", &log), logged("c", &log)]).build().unwrap();
    let thread = agent.thread("t");
    let mut run = thread.stream("go");
    // The person hears of it while a sibling still runs.
    let mut events = until(&mut run, |event| matches!(event, EventKind::ToolDone { .. })).await;
    assert_eq!(brief(&events)[2..], ["tool.start a", "tool.start b", "approval.requested b", "tool.start c", "tool.done c"]);
    latch.reached().await;
    latch.release();
    let (rest, reply) = collect(run).await;
    events.extend(rest);
    assert_eq!(brief(&events)[7..], ["tool.done a", "step.done 1 awaiting-approval", "run.done awaiting-approval"]);
    let waits = reply.unwrap();
    assert_eq!((waits.pending.len(), log.take(), script.times()), (1, vec!["body c".to_owned()], 1));

    agent.approvals().decide(&waits.pending[0].id, Decision::approve()).await.unwrap();
    let (events, reply) = collect(thread.resume_stream()).await;
    assert_eq!(
        brief(&events),
        ["run.start", "tool.resume b", "tool.done b", "step.start 2", "text.delta", "text.done done", "step.done 2 stop", "run.done stop",]
    );
    // Neither a nor c ran again; b's result stands in its place.
    assert_eq!((log.all(), call_ids(&reply.unwrap())), (vec!["body b".to_owned()], vec!["a".to_owned(), "b".to_owned(), "c".to_owned()]));
    assert_eq!(results(&script.asked()[1].messages).len(), 3);
}

// rule: sdk-tools 5.2/9
// rule: sdk-runtime PAR-4
#[tokio::test]
async fn with_a_concurrency_of_one_a_waiting_call_holds_the_rest() {
    let log = Log::default();
    let script = Script::new([same_turn(&["a", "b", "c"]), say("done")]);
    let agent = agent(script).tools([logged("a", &log), asks("b", &log), logged("c", &log)]).tool_concurrency(1).build().unwrap();
    let waits = agent.thread("t").send("go").await.unwrap();
    assert_eq!(log.take(), ["body a"]);
    agent.approvals().decide(&waits.pending[0].id, Decision::approve()).await.unwrap();
    let (events, reply) = collect(agent.thread("t").resume_stream()).await;
    assert_eq!(brief(&events)[..5], ["run.start", "tool.resume b", "tool.done b", "tool.start c", "tool.done c"]);
    assert_eq!((log.all(), call_ids(&reply.unwrap()).len()), (vec!["body b".to_owned(), "body c".to_owned()], 3));
}

// rule: sdk-tools 13.3/7
#[tokio::test]
async fn two_decisions_may_come_in_any_order_and_one_by_one() {
    for order in [[0, 1], [1, 0]] {
        let log = Log::default();
        let script = Script::new([calls([("a", "act", "{}"), ("b", "act", "{}")]), say("done")]);
        let agent = agent(script.clone()).tool(asks("act", &log)).build().unwrap();
        let thread = agent.thread("t");
        let waits = thread.send("go").await.unwrap();
        assert_eq!(waits.pending.len(), 2);
        agent.approvals().decide(&waits.pending[order[0]].id, Decision::approve()).await.unwrap();
        let half = thread.resume().await.unwrap();
        assert_eq!((half.finish_reason, half.pending.len(), log.len(), script.times()), (FinishReason::AwaitingApproval, 1, 1, 1));
        agent.approvals().decide(&waits.pending[order[1]].id, Decision::approve()).await.unwrap();
        let reply = thread.resume().await.unwrap();
        assert_eq!(
            (reply.finish_reason.clone(), call_ids(&reply), script.times()),
            (FinishReason::Stop, vec!["a".to_owned(), "b".to_owned()], 2)
        );
        assert_eq!(log.all(), order.map(|at| format!("body {}", ["a", "b"][at])));
    }
}

// rule: sdk-runtime LOOP-9
#[tokio::test]
async fn a_decision_that_comes_early_goes_on_in_the_same_run() {
    let (latch, log) = (Latch::default(), Log::default());
    let agent =
        agent(Script::new([same_turn(&["slow", "act"]), say("done")])).tools([holding("slow", &latch), asks("act", &log)]).build().unwrap();
    let mut run = agent.thread("t").stream("go");
    let mut events = until(&mut run, |event| matches!(event, EventKind::ApprovalRequested { .. })).await;
    let id = agent.approvals().pending().await.unwrap().remove(0).id;
    agent.approvals().decide(&id, Decision::approve()).await.unwrap();
    events.extend(until(&mut run, |event| matches!(event, EventKind::ToolDone { .. })).await);
    latch.release();
    let (rest, reply) = collect(run).await;
    events.extend(rest);
    let all = brief(&events);
    assert_eq!(all[2..7], ["tool.start slow", "tool.start act", "approval.requested act", "tool.resume act", "tool.done act"]);
    assert_eq!((reply.unwrap().finish_reason, all.iter().filter(|event| event.starts_with("run.")).count()), (FinishReason::Stop, 2));
}

// rule: sdk-tools 5.2/11
// rule: sdk-runtime LOOP-5, sdk-runtime LOOP-6, sdk-runtime PAR-7
// rule: sdk-runtime DUR-1
#[tokio::test]
async fn the_turn_is_in_the_store_before_any_body_and_each_result_as_it_comes() {
    let (store, log) = (MemoryStore::new(), Log::default());
    let journal_of = {
        let store = store.clone();
        move || {
            let store = store.clone();
            async move { journal(&store, &toolwright_core::ThreadId::new("t").unwrap()).await }
        }
    };
    let (reads, told) = (journal_of.clone(), log.clone());
    let tool = Tool::new("act", "Reads the journal.")
        .run_json(move |_, cx| {
            let (reads, told) = (reads(), told.clone());
            async move {
                let records = reads.await;
                let is_mine = |record: &RecordBody| matches!(record, RecordBody::CallExecuting { call, .. } if call == cx.call_id());
                let begun = records.iter().any(|record| is_mine(&record.body));
                let done = records.iter().filter(|record| matches!(record.body, RecordBody::CallDone { .. })).count();
                told.add(format!(
                    "{} replied {} begun {begun} done {done}",
                    cx.call_id(),
                    records.iter().any(|record| matches!(record.body, RecordBody::ModelReplied { .. }))
                ));
                Ok::<_, ToolError>(1)
            }
        })
        .unwrap();
    // The model sees its own step in the store, and nothing of its reply.
    let (reads, told) = (journal_of, log.clone());
    let ask: Answer = Box::new(move |request| {
        assert_eq!(request.step, 1);
        stream::once(async move {
            let kinds = kinds(&reads().await);
            told.add(kinds.join(" "));
            let items = ["a", "b", "c"].iter().map(|id| Item::ToolCall(call_item(id, "act", "{}"))).collect();
            Ok(toolwright_runtime::ModelEvent::Done(toolwright_runtime::ModelReply {
                usage: Some(toolwright_core::Usage { input_tokens: 7, output_tokens: 3, ..toolwright_core::Usage::default() }),
                ..reply(items, FinishReason::ToolCalls)
            }))
        })
        .boxed()
    });
    let agent = agent(Script::new([ask, say("done")])).tool(tool).tool_concurrency(1).store(store.clone()).build().unwrap();
    let reply = agent.thread("t").send("go").await.unwrap();
    assert_eq!(
        log.all(),
        [
            "thread.opened run.started message.added step.started",
            "a replied true begun true done 0",
            "b replied true begun true done 1",
            "c replied true begun true done 2",
        ]
    );
    assert_eq!(reply.usage.map(|usage| usage.total_tokens()), Some(10));
}

// ------------------------------------------------------------------------------------------------------------ snapshots

// rule: sdk-tools 8.1/2, sdk-tools 8.1/3, sdk-tools 8.1/4, sdk-tools 8.1/5, sdk-tools 8.1/12
#[tokio::test]
async fn the_last_snapshot_is_the_result_and_none_is_kept() {
    let store = MemoryStore::new();
    let script = Script::new([calls([("c1", "build", "{}"), ("c2", "empty", "{}")]), say("done")]);
    let agent = agent(script.clone())
        .tool(streaming(Tool::new("build", "Builds."), vec![json!({ "done": 1 }), json!({ "done": 2 }), json!({ "done": 3 })]))
        .tool(streaming(Tool::new("empty", "Yields nothing."), vec![]))
        .store(store.clone())
        .build()
        .unwrap();
    let thread = agent.thread("t");
    let (events, reply) = collect(thread.stream("go")).await;
    let reply = reply.unwrap();
    assert_eq!(results(&reply.messages).iter().map(value).collect::<Vec<_>>(), [json!({ "done": 3 }), Value::Null]);
    let of_build: Vec<String> = brief(&events).into_iter().filter(|event| event.contains("c1")).collect();
    assert_eq!(of_build, ["tool.start c1", "tool.partial c1 0", "tool.partial c1 1", "tool.partial c1 2", "tool.done c1"]);
    // Neither the journal nor the model has what only was on its way.
    let kept = serde_json::to_string(&journal(&store, thread.id().unwrap()).await).unwrap();
    assert!(kept.contains(r#"{"done":3}"#) && !kept.contains(r#"{"done":2}"#), "{kept}");
    // A direct call reads the stream too.
    let (events, reply) = collect(agent.new_thread().invoke_stream("build", "{}")).await;
    assert_eq!(events.iter().filter(|event| event.kind.type_name() == "tool.partial").count(), 3);
    assert!(matches!(reply.unwrap().outcome, Some(toolwright_core::Outcome::Done { output }) if output.shown() == json!({ "done": 3 })));
}

// rule: sdk-tools 8.1/8
#[tokio::test]
async fn a_stream_that_needs_approval_runs_after_the_decision() {
    let tool = streaming(Tool::new("build", "Builds.").needs_approval(), vec![json!(1), json!(2)]);
    let agent = agent(Script::new([calls([("c1", "build", "{}")]), say("done")])).tool(tool).build().unwrap();
    let (events, waits) = collect(agent.thread("t").stream("go")).await;
    assert!(!brief(&events).iter().any(|event| event.starts_with("tool.partial")));
    agent.approvals().decide(&waits.unwrap().pending[0].id, Decision::approve()).await.unwrap();
    let (events, _) = collect(agent.thread("t").resume_stream()).await;
    assert_eq!(brief(&events)[1..5], ["tool.resume c1", "tool.partial c1 0", "tool.partial c1 1", "tool.done c1"]);
}

// rule: sdk-tools 5.2/13
#[tokio::test]
async fn a_stream_holds_its_slot_to_its_end() {
    let (latch, log) = (Latch::default(), Log::default());
    let held = latch.clone();
    let build = with_body(Tool::new("build", "Builds."), move |_| {
        let held = held.clone();
        let first = stream::iter([Ok(json!(1))]);
        let last = stream::once(async move {
            held.hold().await;
            Ok(json!(2))
        });
        Running::Stream(first.chain(last).boxed())
    });
    let agent = agent(Script::new([same_turn(&["build", "next"]), say("done")]))
        .tools([build, logged("next", &log)])
        .tool_concurrency(1)
        .build()
        .unwrap();
    let mut run = agent.stream("go");
    let mut events = until(&mut run, |event| matches!(event, EventKind::ToolPartial { .. })).await;
    latch.reached().await;
    assert_eq!(log.len(), 0, "the first snapshot does not free the slot");
    latch.release();
    events.extend(collect(run).await.0);
    assert_eq!(
        brief(&events)[2..8],
        ["tool.start build", "tool.partial build 0", "tool.partial build 1", "tool.done build", "tool.start next", "tool.done next"]
    );
}

// rule: sdk-tools 8.1/9
#[tokio::test(start_paused = true)]
async fn an_abort_ends_the_reading_and_closes_the_stream() {
    struct Closes(Log);
    impl Drop for Closes {
        fn drop(&mut self) {
            self.0.add("closed");
        }
    }
    let log = Log::default();
    let seen = log.clone();
    let build = with_body(Tool::new("build", "Builds."), move |_| {
        let closes = Closes(seen.clone());
        let items = stream::unfold((0, closes), |(n, closes)| async move {
            if n == 2 {
                // It never looks at the signal.
                std::future::pending::<()>().await;
            }
            Some((Ok(json!(n)), (n + 1, closes)))
        });
        Running::Stream(items.boxed())
    });
    let agent = agent(Script::new([same_turn(&["build"])])).tool(build).build().unwrap();
    let mut run = agent.stream("go");
    until(&mut run, |event| matches!(event, EventKind::ToolPartial { index: 1, .. })).await;
    run.cancel("enough");
    let (events, reply) = collect(run).await;
    let reply = reply.unwrap();
    assert_eq!((reply.finish_reason.clone(), log.all()), (FinishReason::Aborted, vec!["closed".to_owned()]));
    assert_eq!(failure(&reply).1, "AbortError");
    assert_eq!(brief(&events), ["tool.error build AbortError", "step.done 1 aborted", "run.done aborted"]);
}

// ---------------------------------------------------------------------------------------------- a thread that waits

// rule: sdk-tools 13.3/6
// rule: sdk-runtime DUR-5
#[tokio::test]
async fn nothing_slips_past_a_waiting_call() {
    let log = Log::default();
    let agent = agent(Script::new([same_turn(&["act"]), say("done")])).tool(asks("act", &log)).build().unwrap();
    let thread = agent.thread("t");
    let waits = thread.send("go").await.unwrap();
    let error = thread.send("never mind").await.unwrap_err();
    assert_eq!(error.code(), "TOOLWRIGHT_SESSION_AWAITING_APPROVAL");
    assert!(error.to_string().contains(waits.pending[0].id.as_str()), "{error}");
    assert!(matches!(thread.resume().await.unwrap_err(), AgentError::AwaitingApproval { .. }));
    assert!(matches!(thread.invoke("act", "{}").await.unwrap_err(), AgentError::AwaitingApproval { .. }));
    // Decided, but nobody has moved the thread since: it has to go on first.
    agent.approvals().decide(&waits.pending[0].id, Decision::reject()).await.unwrap();
    assert!(thread.send("never mind").await.is_err());
    assert_eq!(thread.resume().await.unwrap().text, "done");
    assert_eq!(log.len(), 0);
}

// rule: sdk-runtime CAN-8
#[tokio::test]
async fn a_thread_that_waits_can_be_cancelled_and_goes_on() {
    let log = Log::default();
    let script = Script::new([same_turn(&["a", "b"]), say("fine")]);
    let agent = agent(script.clone()).tools([logged("a", &log), asks("b", &log)]).build().unwrap();
    let thread = agent.thread("t");
    let waits = thread.send("go").await.unwrap();
    thread.cancel("we changed our mind").await.unwrap();
    let late = agent.approvals().decide(&waits.pending[0].id, Decision::approve()).await.unwrap_err();
    assert_eq!(late.code(), "TOOLWRIGHT_APPROVAL_NOT_FOUND");
    let transcript = thread.history().await.unwrap();
    transcript.check_balance().unwrap();
    assert_eq!(
        failures(&transcript).iter().map(|(call, kind, ..)| (call.as_str(), kind.clone())).collect::<Vec<_>>(),
        [("b", ToolFailureKind::NotRun)]
    );
    assert_eq!(thread.send("and now?").await.unwrap().text, "fine");
    assert_eq!((log.all(), script.times()), (vec!["body a".to_owned()], 2));
}

#[tokio::test]
async fn cancelling_a_thread_at_rest_does_not_stop_its_next_run() {
    let agent = agent(Script::new([say("one"), say("two")])).build().unwrap();
    let thread = agent.thread("t");
    thread.send("go").await.unwrap();
    thread.cancel("too late").await.unwrap();
    let reply = thread.send("again").await.unwrap();
    assert_eq!((reply.finish_reason, reply.text.as_str()), (FinishReason::Stop, "two"));
}

#[tokio::test]
async fn an_abort_during_the_wait_gives_the_waiting_call_its_result() {
    let (latch, log) = (Latch::default(), Log::default());
    let agent = agent(Script::new([same_turn(&["slow", "act"])]))
        .tools([holding("slow", &latch), asks("act", &log)])
        .grace(std::time::Duration::ZERO)
        .build()
        .unwrap();
    let mut run = agent.thread("t").stream("go");
    until(&mut run, |event| matches!(event, EventKind::ApprovalRequested { .. })).await;
    latch.reached().await;
    run.cancel("enough");
    let reply = collect(run).await.1.unwrap();
    assert_eq!((reply.finish_reason.clone(), reply.pending.len(), log.len()), (FinishReason::Aborted, 0, 0));
    let failed = failures(&reply.messages);
    assert_eq!((failed[0].2.as_str(), failed[1].2.as_str()), ("AbortError", "ToolNotRunError"));
}

// rule: sdk-tools 3.2/6
#[tokio::test]
async fn a_mode_that_skips_the_pause_lets_the_call_run() {
    let log = Log::default();
    let agent = agent(Script::new([same_turn(&["act"]), say("done")]))
        .tool(asks("act", &log))
        .at(At::Mode, says("trusting", |_| Ok(Say::Allow)))
        .build()
        .unwrap();
    assert_eq!((go(&agent).await.1.unwrap().finish_reason, log.len()), (FinishReason::Stop, 1));
}
