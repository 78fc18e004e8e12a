//! Reported faults of approvals and resuming, and what else goes wrong when people, code and time decide at once.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use common::*;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use toolwright_core::{
    ApprovalId, CallId, Decision, DecisionVerdict, Event, EventKind, FinishReason, RecordBody, Remember, Seq, ThreadId, Timestamp,
    ToolFailureKind, ToolOutput,
};
use toolwright_runtime::{Agent, AgentBuilder, AgentError, ApproveAnswer, FixedClock, InboxItem, MemoryStore, Reply, StageKind, Store};
use toolwright_tool::{ApprovalOutcome, ApprovalRequest, Identity, NeedsApproval, Tool};

fn asks(name: &str, log: &Log) -> Tool {
    logged_with(Tool::new(name, "Acts.").needs_approval(), log)
}

fn asks_for(name: &str, log: &Log, request: ApprovalRequest) -> Tool {
    logged_with(Tool::new(name, "Acts.").needs_approval_if(move |_| std::future::ready(Ok(request.clone()))), log)
}

fn id() -> ThreadId {
    ThreadId::new("t").unwrap()
}

/// The id of the pending decision about a call.
fn of(reply: &Reply, call: &str) -> ApprovalId {
    let found = reply.pending.iter().find(|pending| pending.call_id == CallId::new(call));
    found.unwrap_or_else(|| panic!("{call} does not wait: {:?}", reply.pending)).id.clone()
}

fn waits(reply: &Reply) -> Vec<&str> {
    reply.pending.iter().map(|pending| pending.call_id.as_str()).collect()
}

/// How often each call was asked about, and how many decisions each has.
async fn asked_and_decided(store: &MemoryStore) -> BTreeMap<String, (u32, u32)> {
    let mut counts: BTreeMap<String, (u32, u32)> = BTreeMap::new();
    for record in journal(store, &id()).await {
        match &record.body {
            RecordBody::CallGated { call, verdict: toolwright_core::Verdict::Ask(_), .. } => {
                counts.entry(call.to_string()).or_default().0 += 1
            }
            RecordBody::CallDecided { call, .. } => counts.entry(call.to_string()).or_default().1 += 1,
            _ => {}
        }
    }
    counts
}

// case: field-reports 61
#[tokio::test]
async fn each_of_several_calls_is_asked_about_once_whatever_the_order_of_decisions() {
    let orders = [["a", "b", "c"], ["a", "c", "b"], ["b", "a", "c"], ["b", "c", "a"], ["c", "a", "b"], ["c", "b", "a"]];
    // After how many decisions the thread goes on: after each, after two, after all.
    for (order, every) in orders.iter().flat_map(|order| [1, 2, 3].map(|every| (order, every))) {
        let (store, log) = (MemoryStore::new(), Log::default());
        let script = Script::new([calls([("a", "act", "{}"), ("b", "act", "{}"), ("c", "act", "{}")]), say("done")]);
        let agent = agent(script.clone()).tool(asks("act", &log)).store(store.clone()).build().unwrap();
        let first = agent.thread("t").send("go").await.unwrap();
        assert_eq!(waits(&first), ["a", "b", "c"]);
        let mut last = None;
        for (at, call) in order.iter().enumerate() {
            agent.approvals().decide(&of(&first, call), Decision::approve()).await.unwrap();
            if (at + 1) % every == 0 || at == 2 {
                let reply = agent.thread("t").resume().await.unwrap();
                let still: Vec<&str> = ["a", "b", "c"].into_iter().filter(|call| !order[..=at].contains(call)).collect();
                assert_eq!(waits(&reply), still, "{order:?} {every}");
                last = Some(reply);
            }
        }
        let last = last.unwrap();
        assert_eq!((last.finish_reason, last.text.as_str(), script.times()), (FinishReason::Stop, "done", 2), "{order:?} {every}");
        let mut ran = log.take();
        ran.sort_unstable();
        assert_eq!(ran, ["body a", "body b", "body c"], "{order:?} {every}");
        let once: BTreeMap<String, (u32, u32)> = ["a", "b", "c"].map(|call| (call.to_owned(), (1, 1))).into();
        assert_eq!(asked_and_decided(&store).await, once, "{order:?} {every}");
        // In call order for the model, whatever the order of decisions.
        let ids: Vec<String> = results(&last.messages).iter().map(|result| result.call_id.to_string()).collect();
        assert_eq!(ids, ["a", "b", "c"]);
    }
}

// case: field-reports 62
#[tokio::test]
async fn what_was_not_decided_waits_on_and_ids_that_mean_nothing_are_refused_by_name() {
    let (store, log) = (MemoryStore::new(), Log::default());
    let turn = |x, y| calls([(x, "act", "{}"), (y, "act", "{}")]);
    let script = Script::new([turn("t1", "t2"), turn("u1", "u2"), say("done")]);
    let agent = agent(script.clone()).tool(asks("act", &log)).store(store.clone()).build().unwrap();
    let (thread, approvals) = (agent.thread("t"), agent.approvals());
    let older = thread.send("go").await.unwrap();
    approvals.decide(&of(&older, "t1"), Decision::approve().by("kim")).await.unwrap();
    let reply = thread.resume().await.unwrap();
    assert_eq!((waits(&reply), log.take()), (vec!["t2"], vec!["body t1".to_owned()]));
    assert_eq!(of(&reply, "t2"), of(&older, "t2"), "the question is the same one");
    // Nothing moves it, and nothing slips past it.
    assert!(matches!(thread.resume().await, Err(AgentError::AwaitingApproval { .. })));
    assert!(matches!(thread.send("more").await, Err(AgentError::AwaitingApproval { .. })));
    approvals.decide(&of(&older, "t2"), Decision::reject().by("kim")).await.unwrap();
    let newer = thread.resume().await.unwrap();
    assert_eq!(waits(&newer), ["u1", "u2"]);
    let before = journal(&store, &id()).await.len();

    // Ids of the older turn, of nobody, of another call, of another thread, of a second wait that never was.
    let made_up = [
        ApprovalId::of(&id(), &CallId::new("u3"), 1),
        ApprovalId::of(&id(), &CallId::new("u1"), 2),
        ApprovalId::of(&ThreadId::new("other").unwrap(), &CallId::new("u1"), 1),
        ApprovalId::new("t1"),
        ApprovalId::new(""),
        ApprovalId::new("apr_1"),
    ];
    for approval in made_up {
        let error = approvals.decide(&approval, Decision::approve()).await.unwrap_err();
        assert_eq!(error.code(), "TOOLWRIGHT_APPROVAL_NOT_FOUND", "{approval}");
        assert!(error.to_string().contains(approval.as_str()), "{error}");
    }
    for call in ["t1", "t2"] {
        let stale = of(&older, call);
        let error = approvals.decide(&stale, Decision::approve().by("lee")).await.unwrap_err();
        assert_eq!(error, AgentError::ApprovalConflict { approval: stale.to_string(), by: Some("kim".to_owned()) });
    }
    assert!(matches!(thread.resume().await, Err(AgentError::AwaitingApproval { .. })));
    assert_eq!((journal(&store, &id()).await.len(), log.take()), (before, Vec::<String>::new()), "none of it changed anything");
    // The good ones are as good as before.
    for call in ["u2", "u1"] {
        approvals.decide(&of(&newer, call), Decision::approve()).await.unwrap();
    }
    assert_eq!(thread.resume().await.unwrap().text, "done");
}

// case: field-reports 64
#[tokio::test]
async fn what_is_done_is_never_done_again_after_an_approval() {
    let (store, log) = (MemoryStore::new(), Log::default());
    let steps = || {
        let asked =
            |request: &toolwright_runtime::ModelRequest| request.messages.iter().flat_map(|m| m.results().collect::<Vec<_>>()).count();
        Answers::new(move |request| match asked(request) {
            3 => reply(vec![toolwright_core::Item::text("all three")], FinishReason::Stop),
            done => {
                let call = call_item(&format!("c{}", done + 1), &format!("step_{}", done + 1), "{}");
                reply(vec![toolwright_core::Item::ToolCall(call)], FinishReason::ToolCalls)
            }
        })
    };
    // A new agent each time, as in another process: nothing is known but the journal.
    let fresh = || {
        let model = steps();
        let tools = ["step_1", "step_2", "step_3"].map(|name| asks(name, &log));
        (agent(model.clone()).tools(tools).store(store.clone()).build().unwrap(), model)
    };
    let mut reply = fresh().0.thread("t").send("go").await.unwrap();
    for call in ["c1", "c2", "c3"] {
        assert_eq!((waits(&reply), log.len()), (vec![call], 0));
        let (agent, model) = fresh();
        agent.approvals().decide(&of(&reply, call), Decision::approve()).await.unwrap();
        let (events, ended) = collect(agent.thread("t").resume_stream()).await;
        reply = ended.unwrap();
        // Of the call that was decided, and nothing else: not in its bodies, not in its model calls, not in its events.
        assert_eq!(log.take(), [format!("body {call}")]);
        assert_eq!(model.steps().len(), 1);
        let begun: BTreeSet<String> = events.iter().filter_map(call_of).map(ToString::to_string).collect();
        let expected: u32 = call.strip_prefix('c').unwrap().parse().unwrap();
        let next = (expected < 3).then(|| format!("c{}", expected + 1));
        assert_eq!(begun, [call.to_owned()].into_iter().chain(next).collect());
    }
    assert_eq!((reply.finish_reason, reply.text.as_str()), (FinishReason::Stop, "all three"));
}

/// The call that an event is about.
fn call_of(event: &Event) -> Option<&CallId> {
    match &event.kind {
        EventKind::ToolStart { tool_call_id, .. }
        | EventKind::ToolResume { tool_call_id, .. }
        | EventKind::ToolDone { tool_call_id, .. }
        | EventKind::ToolError { tool_call_id, .. }
        | EventKind::ApprovalRequested { tool_call_id, .. } => Some(tool_call_id),
        _ => None,
    }
}

/// The ends of calls that a stream tells.
fn ends(events: &[Event]) -> Vec<(String, &'static str)> {
    let end = |event: &Event| match &event.kind {
        EventKind::ToolDone { .. } => Some("done"),
        EventKind::ToolError { .. } => Some("error"),
        _ => None,
    };
    events.iter().filter_map(|event| Some((call_of(event)?.to_string(), end(event)?))).collect()
}

// case: field-reports 65
#[tokio::test]
async fn a_call_that_does_not_run_has_its_end_in_the_stream_and_in_the_journal() {
    let refuses = [
        ("a person", Some(Decision::reject().note("not today")), ToolFailureKind::Rejected),
        ("time", None, ToolFailureKind::Denied),
        ("the policy", None, ToolFailureKind::Denied),
        ("code", None, ToolFailureKind::Rejected),
        ("outside", Some(Decision::reject().note("no date")), ToolFailureKind::Rejected),
    ];
    for (who, decision, kind) in refuses {
        let (store, log, clock) = (MemoryStore::new(), Log::default(), FixedClock::at(Timestamp(1000)));
        let tool = match who {
            "time" => asks_for("act", &log, ApprovalRequest::new().within(Duration::from_secs(1))),
            "the policy" => {
                let builder =
                    Tool::new("act", "Acts.").needs_approval_if(|_| std::future::ready(Ok(ApprovalOutcome::Deny(Some("never".into())))));
                logged_with(builder, &log)
            }
            "outside" => Tool::external("act", "Acts.", json!({ "type": "object" })).unwrap().outside().unwrap(),
            _ => asks("act", &log),
        };
        let script = Script::new([calls([("c", "act", "{}")]), say("so be it")]);
        let mut builder = agent(script).tool(tool).store(store.clone()).clock(clock.clone());
        if who == "code" {
            builder = builder.approve(|_| async { Ok(ApproveAnswer::reject().note("code says no")) });
        }
        let agent = builder.build().unwrap();
        let thread = agent.thread("t");
        let events = match who {
            "the policy" => collect(thread.stream("go")).await.0,
            "code" => {
                assert_eq!(thread.send("go").await.unwrap().text, "so be it");
                events_of(&agent).await
            }
            _ => {
                let (events, reply) = collect(thread.stream("go")).await;
                assert_eq!((ends(&events), reply.as_ref().unwrap().pending.len()), (Vec::new(), 1), "{who}");
                if let Some(decision) = decision {
                    agent.approvals().decide(&of(&reply.unwrap(), "c"), decision).await.unwrap();
                } else {
                    clock.advance(1000);
                    assert_eq!(store.post_due(Timestamp(2000), 10).await.unwrap(), [id()]);
                }
                collect(thread.resume_stream()).await.0
            }
        };
        assert_eq!(ends(&events), [("c".to_owned(), "error")], "{who}: {:?}", brief(&events));
        // Whoever reads it later, from the start, is told the same, once.
        assert_eq!(ends(&events_of(&agent).await), [("c".to_owned(), "error")], "{who}");
        let kept = failures(&thread.history().await.unwrap());
        assert_eq!(kept.iter().map(|(call, kind, ..)| (call.as_str(), kind.clone())).collect::<Vec<_>>(), [("c", kind)], "{who}");
        assert_eq!(store.pending(None, None, 9).await.unwrap().items, Vec::new(), "{who}: nothing waits for ever");
        assert_eq!(log.take(), Vec::<String>::new(), "{who}");
    }
}

/// Everything that the thread's journal tells.
async fn events_of(agent: &Agent) -> Vec<Event> {
    use futures_util::StreamExt;
    let mut stream = agent.thread("t").events_so_far(Seq(0)).unwrap();
    let mut events = Vec::new();
    while let Some(event) = within(stream.next()).await {
        events.push(event.unwrap());
    }
    events
}

// case: field-reports 67
#[tokio::test]
async fn a_stream_that_goes_on_tells_of_a_call_before_it_tells_of_its_end() {
    let (store, log) = (MemoryStore::new(), Log::default());
    let arguments = r#"{"order":7}"#;
    let outside = || Tool::external("outside", "Waits.", json!({ "type": "object" })).unwrap().outside().unwrap();
    let make = |script| {
        let tools = [asks("act", &log), outside()];
        agent(script).tools(tools).store(store.clone()).build().unwrap()
    };
    let all = [("a", "act", arguments), ("b", "act", arguments), ("c", "outside", arguments), ("d", "act", arguments)];
    let first = make(Script::new([calls(all)])).thread("t").send("go").await.unwrap();
    let decisions = [
        ("a", Decision::approve()),
        ("b", Decision::reject()),
        ("c", Decision::complete(ToolOutput::json(json!(7)))),
        ("d", Decision::approve_with(r#"{"order":8}"#)),
    ];
    for (call, decision) in decisions {
        // Another process that has seen nothing of what was before; its stream alone has to be enough.
        let agent = make(Script::new([say("done")]));
        agent.approvals().decide(&of(&first, call), decision).await.unwrap();
        let (events, _) = collect(agent.thread("t").resume_stream()).await;
        let mut told: BTreeSet<CallId> = BTreeSet::new();
        for event in &events {
            match &event.kind {
                EventKind::ToolStart { tool_call_id, tool_name, args, .. }
                | EventKind::ToolResume { tool_call_id, tool_name, args, .. } => {
                    let order = if call == "d" { 8 } else { 7 };
                    assert_eq!((&**tool_name == "outside", args), (call == "c", &json!({ "order": order })));
                    told.insert(tool_call_id.clone());
                }
                EventKind::ToolDone { tool_call_id, .. } | EventKind::ToolError { tool_call_id, .. } => {
                    assert!(told.contains(tool_call_id), "{call}: {:?}", brief(&events));
                }
                _ => {}
            }
        }
        assert_eq!(told, BTreeSet::from([CallId::new(call)]), "of this call and no other");
        assert_eq!(ends(&events), [(call.to_owned(), if call == "b" { "error" } else { "done" })]);
    }
}

// ------------------------------------------------------------------------------------------- people, code and time at once

/// An agent whose clock stands at 1000, with a tool whose call has to be decided within a second.
fn timed(store: &MemoryStore, log: &Log, clock: &FixedClock) -> AgentBuilder {
    let request = ApprovalRequest::new().within(Duration::from_secs(1));
    let outside = Tool::external("outside", "Waits.", json!({ "type": "object" })).unwrap();
    let outside = outside.result_within(Duration::from_secs(1)).outside().unwrap();
    let script = Script::new([calls([("c", "act", "{}"), ("o", "outside", "{}")]), say("done")]);
    agent(script).tools([asks_for("act", log, request), outside]).store(store.clone()).clock(clock.clone())
}

async fn post_due(store: &MemoryStore, now: i64) {
    store.post_due(Timestamp(now), 100).await.unwrap();
}

#[tokio::test]
async fn what_comes_too_late_is_refused_by_name_and_the_run_goes_on() {
    // Whether a worker has said so before, or nobody has.
    for told in [false, true] {
        let (store, log, clock) = (MemoryStore::new(), Log::default(), FixedClock::at(Timestamp(1000)));
        let agent = timed(&store, &log, &clock).build().unwrap();
        let first = agent.thread("t").send("go").await.unwrap();
        clock.advance(1000);
        if told {
            post_due(&store, 2000).await;
        }
        let (act, outside) = (of(&first, "c"), of(&first, "o"));
        for _ in 0..2 {
            let error = agent.approvals().decide(&act, Decision::approve().by("kim")).await.unwrap_err();
            assert_eq!(error, AgentError::ApprovalLapsed { approval: act.to_string(), at: Some(Timestamp(2000)) });
            assert_eq!(error.code(), "TOOLWRIGHT_APPROVAL_CONFLICT");
            assert!(error.to_string().contains("1970-01-01T00:00:02"), "{error}");
        }
        // A webhook's result comes too late as well, and is told so.
        let error = agent.calls().complete(&outside, ToolOutput::json(json!(1))).await.unwrap_err();
        assert_eq!(error.code(), "TOOLWRIGHT_APPROVAL_CONFLICT", "{error}");
        // Who decides and goes on, goes on.
        let reply = agent.approvals().resolve(&act, Decision::approve()).await.unwrap();
        assert_eq!((reply.finish_reason, log.len()), (FinishReason::Stop, 0));
        let kinds: Vec<_> = failures(&reply.messages).into_iter().map(|(call, kind, _, message)| (call, kind, message)).collect();
        let [(c, denied, said), (o, unknown, _)] = &kinds[..] else { panic!("{kinds:?}") };
        assert_eq!([c.as_str(), o.as_str()], ["c", "o"]);
        assert_eq!((denied, unknown), (&ToolFailureKind::Denied, &ToolFailureKind::Execution));
        assert!(said.contains("approval expired"), "{said}");
        // Once more, when it has long been over.
        let error = agent.approvals().resolve(&act, Decision::approve()).await.unwrap_err();
        assert_eq!(error, AgentError::ApprovalLapsed { approval: act.to_string(), at: Some(Timestamp(2000)) });
        let once: BTreeMap<String, (u32, u32)> = ["c", "o"].map(|call| (call.to_owned(), (1, 1))).into();
        assert_eq!(asked_and_decided(&store).await, once);
    }
}

#[tokio::test]
async fn what_was_decided_in_time_counts_whenever_it_is_taken() {
    let (store, log, clock) = (MemoryStore::new(), Log::default(), FixedClock::at(Timestamp(1000)));
    let agent = timed(&store, &log, &clock).build().unwrap();
    let first = agent.thread("t").send("go").await.unwrap();
    clock.advance(999);
    agent.approvals().decide(&of(&first, "c"), Decision::approve()).await.unwrap();
    agent.calls().complete(&of(&first, "o"), ToolOutput::json(json!("2026-01-02"))).await.unwrap();
    // The time runs out before anybody moves the thread, and a worker says so: too late.
    clock.advance(3_600_000);
    post_due(&store, 3_700_000).await;
    agent.worker().until_idle().run(CancellationToken::new()).await.unwrap();
    let history = agent.thread("t").history().await.unwrap();
    assert_eq!((failures(&history), log.take()), (Vec::new(), vec!["body c".to_owned()]));
    assert_eq!(value(&results(&history)[1]), json!("2026-01-02"));
}

#[tokio::test]
async fn the_timer_of_a_question_that_nobody_was_asked_does_not_stand_in_its_way() {
    let (store, log, clock) = (MemoryStore::new(), Log::default(), FixedClock::at(Timestamp(1000)));
    let agent = timed(&store, &log, &clock).build().unwrap();
    // As after a process that died when it had set the timer and not yet asked: the question comes under the same id.
    let approval = ApprovalId::of(&id(), &CallId::new("c"), 1);
    let first = agent.thread("t").send("go").await.unwrap();
    let pending = first.pending.iter().find(|pending| pending.id == approval).unwrap();
    let lapsed = Decision { at: Some(Timestamp(900)), ..Decision::lapsed() };
    let item = InboxItem::Decision {
        approval: approval.clone(),
        call: pending.call_id.clone(),
        sha256: Arc::clone(&pending.sha256),
        decision: lapsed,
    };
    store.post_at(&id(), &format!("decision:{approval}@900"), Timestamp(900), item).await.unwrap();
    post_due(&store, 1000).await;
    agent.approvals().decide(&approval, Decision::approve()).await.unwrap();
    let reply = agent.thread("t").resume().await.unwrap();
    assert_eq!((waits(&reply), log.take()), (vec!["o"], vec!["body c".to_owned()]));
}

#[tokio::test]
async fn time_that_runs_out_after_one_of_two_approvals_refuses_and_after_both_does_not() {
    for approvals in [0, 1, 2] {
        let (store, log, clock) = (MemoryStore::new(), Log::default(), FixedClock::at(Timestamp(1000)));
        let request = ApprovalRequest::new().quorum(2).within(Duration::from_secs(1));
        let script = Script::new([calls([("c", "act", "{}")]), say("done")]);
        let agent = agent(script).tool(asks_for("act", &log, request)).store(store.clone()).clock(clock.clone()).build().unwrap();
        let first = agent.thread("t").send("go").await.unwrap();
        for by in ["ada", "bob"].iter().take(approvals) {
            agent.approvals().decide(&of(&first, "c"), Decision::approve().by(*by)).await.unwrap();
        }
        clock.advance(1000);
        post_due(&store, 2000).await;
        let late = agent.approvals().decide(&of(&first, "c"), Decision::approve().by("cleo")).await.unwrap_err();
        assert_eq!(matches!(late, AgentError::ApprovalLapsed { .. }), approvals < 2, "{late}");
        let reply = agent.thread("t").resume().await.unwrap();
        assert_eq!((reply.finish_reason, log.len()), (FinishReason::Stop, usize::from(approvals == 2)));
    }
}

#[tokio::test]
async fn nobody_says_that_the_time_is_over_but_time() {
    let (store, log) = (MemoryStore::new(), Log::default());
    let script = Script::new([calls([("c", "act", "{}")]), say("done")]);
    let agent = agent(script).tool(asks("act", &log)).store(store.clone()).build().unwrap();
    let first = agent.thread("t").send("go").await.unwrap();
    let refused = agent.approvals().decide(&of(&first, "c"), Decision::lapsed()).await.unwrap_err();
    assert!(refused.code() == "TOOLWRIGHT_APPROVAL_INVALID" && refused.to_string().contains("reject it"), "{refused}");
    let reply = agent.approvals().resolve(&of(&first, "c"), Decision::approve()).await.unwrap();
    assert_eq!((reply.finish_reason, log.len()), (FinishReason::Stop, 1));
}

#[tokio::test]
async fn a_rejection_decides_at_once_and_later_approvals_are_told_of_it() {
    for votes in [0, 1] {
        let (store, log) = (MemoryStore::new(), Log::default());
        let script = Script::new([calls([("c", "act", "{}")]), say("done")]);
        let agent = agent(script).tool(asks_for("act", &log, ApprovalRequest::new().quorum(3))).store(store.clone()).build().unwrap();
        let first = agent.thread("t").send("go").await.unwrap();
        let approval = of(&first, "c");
        for by in ["ada"].iter().take(votes) {
            agent.approvals().decide(&approval, Decision::approve().by(*by)).await.unwrap();
        }
        agent.approvals().decide(&approval, Decision::reject().by("bob")).await.unwrap();
        // Before anybody took it, and after.
        for taken in [false, true] {
            if taken {
                assert_eq!(agent.thread("t").resume().await.unwrap().finish_reason, FinishReason::Stop);
            }
            for decision in [Decision::approve().by("cleo"), Decision::reject().by("cleo"), Decision::approve().by("ada")] {
                let error = agent.approvals().decide(&approval, decision).await.unwrap_err();
                assert_eq!(error, AgentError::ApprovalConflict { approval: approval.to_string(), by: Some("bob".to_owned()) });
            }
        }
        assert_eq!(log.len(), 0);
    }
}

#[tokio::test]
async fn code_is_none_of_several_people_and_no_decider() {
    let named = || ApprovalRequest::new().deciders(["ada", "bob"]);
    for (request, people) in [(ApprovalRequest::new().quorum(2), 2), (named().quorum(2), 2), (named(), 1)] {
        let (store, log) = (MemoryStore::new(), Log::default());
        let script = Script::new([calls([("c", "act", "{}"), ("p", "plain", "{}")]), say("done")]);
        let tools = [asks_for("act", &log, request), asks("plain", &log)];
        let builder = agent(script).tools(tools).store(store.clone());
        let agent = builder.approve(|_| async { Ok(ApproveAnswer::approve()) }).build().unwrap();
        // What it may decide it decides; the rest waits as if it had said nothing.
        let reply = within(agent.thread("t").send("go")).await.unwrap();
        assert_eq!((reply.finish_reason.clone(), waits(&reply)), (FinishReason::AwaitingApproval, vec!["c"]));
        assert_eq!(log.take(), ["body p"]);
        let approval = of(&reply, "c");
        if people == 2 {
            agent.approvals().decide(&approval, Decision::approve().by("ada")).await.unwrap();
        }
        let reply = within(agent.approvals().resolve(&approval, Decision::approve().by("bob"))).await.unwrap();
        assert_eq!((reply.finish_reason, log.take()), (FinishReason::Stop, vec!["body c".to_owned()]));
    }
}

#[tokio::test]
async fn code_that_votes_in_a_name_votes_once_and_its_edits_are_checked() {
    let (store, log) = (MemoryStore::new(), Log::default());
    let script = Script::new([calls([("c", "act", "{}")]), say("done")]);
    let tool = asks_for("act", &log, ApprovalRequest::new().quorum(2));
    let agent = agent(script).tool(tool).store(store.clone());
    let agent = agent.approve(|_| async { Ok(ApproveAnswer::Decide(Decision::approve().by("the bot"))) }).build().unwrap();
    let reply = within(agent.thread("t").send("go")).await.unwrap();
    assert_eq!(reply.finish_reason, FinishReason::AwaitingApproval);
    assert_eq!(agent.approvals().get(&of(&reply, "c")).await.unwrap().approved_by, ["the bot"]);
    let reply = within(agent.approvals().resolve(&of(&reply, "c"), Decision::approve().by("ada"))).await.unwrap();
    assert_eq!((reply.finish_reason, log.len()), (FinishReason::Stop, 1));

    // What does not fit is refused where it is said, and the call waits for something better.
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
    for wrong in [Decision::approve_with(r#"{"n":"many"}"#), Decision::complete(ToolOutput::json(json!(1)))] {
        let log = Log::default();
        let script = Script::new([calls([("c", "act", r#"{"n":1}"#)]), say("done")]);
        let tool = logged_with(Tool::from_schema("act", "Acts.", schema.clone()).unwrap().needs_approval(), &log);
        let agent = common::agent(script).tool(tool).store(MemoryStore::new());
        let agent = agent.approve(move |_| std::future::ready(Ok(ApproveAnswer::Decide(wrong.clone())))).build().unwrap();
        let error = within(agent.thread("t").send("go")).await.unwrap_err();
        assert_eq!(error.code(), "TOOLWRIGHT_APPROVAL_INVALID", "{error}");
        let pending = agent.approvals().pending().await.unwrap();
        agent.approvals().decide(&pending[0].id, Decision::approve()).await.unwrap();
        assert_eq!((agent.thread("t").resume().await.unwrap().text.as_str(), log.len()), ("done", 1));
    }
}

#[tokio::test]
async fn one_persons_always_stands_for_nobody_else() {
    let (store, log) = (MemoryStore::new(), Log::default());
    // One approval is enough for small amounts, two people for large ones, and some are for the head of finance alone.
    let schema = json!({ "type": "object", "properties": { "amount": { "type": "integer" } } });
    let tool = Tool::from_schema("pay", "Pays.", schema).unwrap().needs_approval_if(|cx| {
        let request = match cx.args().value()["amount"].as_u64() {
            Some(amount) if amount >= 1000 => ApprovalRequest::new().deciders(["cfo"]),
            Some(amount) if amount >= 100 => ApprovalRequest::new().quorum(2),
            _ => ApprovalRequest::new(),
        };
        std::future::ready(Ok(request))
    });
    let pay = |amount: u32| format!(r#"{{"amount":{amount}}}"#);
    let (small, large, huge) = (pay(1), pay(100), pay(1000));
    let turn = || calls([("s", "pay", &small), ("s2", "pay", &small), ("l", "pay", &large), ("h", "pay", &huge)]);
    let script =
        Script::new([turn(), say("done"), calls([("s3", "pay", &small), ("l2", "pay", &large), ("h2", "pay", &huge)]), say("done")]);
    let agent = agent(script).tool(logged_with(tool, &log)).store(store.clone()).build().unwrap();
    let thread = agent.thread("t");
    let reply = thread.send("go").await.unwrap();
    // A vote for the large one is not lost by what is said about another.
    agent.approvals().decide(&of(&reply, "l"), Decision::approve().by("bob")).await.unwrap();
    let decided = agent.approvals().resolve(&of(&reply, "s"), Decision::approve().by("ada").always()).await.unwrap();
    assert_eq!((log.take(), waits(&decided)), (vec!["body s".to_owned(), "body s2".to_owned()], vec!["l", "h"]));
    assert_eq!(agent.approvals().get(&of(&reply, "l")).await.unwrap().approved_by, ["bob"]);
    agent.approvals().decide(&of(&reply, "l"), Decision::approve().by("ada")).await.unwrap();
    agent.approvals().resolve(&of(&reply, "h"), Decision::approve().by("cfo")).await.unwrap();
    log.take();
    let reply = thread.send("again").await.unwrap();
    assert_eq!((log.take(), waits(&reply)), (vec!["body s3".to_owned()], vec!["l2", "h2"]));
}

#[tokio::test]
async fn a_question_that_an_approval_of_another_call_does_not_answer_stands_as_it_was() {
    let (store, log) = (MemoryStore::new(), Log::default());
    let script = Script::new([calls([("a", "act", "{}"), ("b", "act", "{}")]), say("done")]);
    let tool = logged_with(Tool::new("act", "Acts.").approval(NeedsApproval::Once(Remember::Tool)), &log);
    let mode = says("careful", |call| Ok(if call.resumed_after_approval { Say::Pass } else { Say::Ask(Some("careful".to_owned())) }));
    let agent = agent(script).tool(tool).stage(StageKind::Mode, mode).store(store.clone()).build().unwrap();
    let first = agent.thread("t").send("go").await.unwrap();
    let reply = agent.approvals().resolve(&of(&first, "a"), Decision::approve()).await.unwrap();
    assert_eq!((waits(&reply), of(&reply, "b")), (vec!["b"], of(&first, "b")), "who looked at it before can still decide");
    let reply = agent.approvals().resolve(&of(&first, "b"), Decision::reject()).await.unwrap();
    assert_eq!((reply.finish_reason, log.take()), (FinishReason::Stop, vec!["body a".to_owned()]));
    let decided: Vec<bool> = journal(&store, &id())
        .await
        .iter()
        .filter_map(|record| match &record.body {
            RecordBody::CallDecided { decision, .. } => Some(matches!(decision.verdict, DecisionVerdict::Reject)),
            _ => None,
        })
        .collect();
    assert_eq!(decided, [false, true]);
}

#[tokio::test]
async fn who_decides_in_their_own_name_decides_in_no_other() {
    let (store, log) = (MemoryStore::new(), Log::default());
    let script = Script::new([calls([("c", "act", "{}")]), say("done")]);
    let tool = asks_for("act", &log, ApprovalRequest::new().deciders(["ada", "bob"]).quorum(2));
    let agent = agent(script).tool(tool).store(store.clone()).build().unwrap();
    let first = agent.thread("t").send("go").await.unwrap();
    let approval = of(&first, "c");
    let [ada, mallory] = ["ada", "mallory"].map(|name| agent.approvals().on_behalf_of(Identity::new(name)));
    // The decision may have come in a request, with any name in it.
    ada.decide(&approval, Decision::approve().by("bob")).await.unwrap();
    assert_eq!(agent.approvals().get(&approval).await.unwrap().approved_by, ["ada"]);
    let twice = ada.decide(&approval, Decision::approve().by("bob")).await.unwrap_err();
    assert_eq!(twice, AgentError::ApprovalConflict { approval: approval.to_string(), by: Some("ada".to_owned()) });
    let forbidden = AgentError::ApprovalForbidden { approval: approval.to_string(), who: "mallory".to_owned() };
    assert_eq!(mallory.decide(&approval, Decision::approve().by("bob")).await.unwrap_err(), forbidden);
    // Nor does anybody make a decider of themselves, or two of one.
    let to = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>();
    let handed = mallory.delegate(&approval, to(&["mallory", "ada"]), Some("ada".to_owned()), None).await;
    assert_eq!(handed.unwrap_err(), forbidden);
    let handed = ada.delegate(&approval, to(&["cleo", "cleo"]), None, None).await.unwrap_err();
    assert_eq!(handed.code(), "TOOLWRIGHT_APPROVAL_INVALID", "{handed}");
    ada.delegate(&approval, to(&["cleo", "bob"]), Some("bob".to_owned()), None).await.unwrap();
    assert_eq!(agent.approvals().get(&approval).await.unwrap().deciders, ["cleo", "bob"]);
    let reply = agent.approvals().resolve(&approval, Decision::approve().by("cleo")).await.unwrap();
    assert_eq!((reply.finish_reason, log.len()), (FinishReason::Stop, 1));
    let by = journal(&store, &id()).await.iter().find_map(|record| match &record.body {
        RecordBody::ApprovalDelegated(delegation) => delegation.by.clone(),
        _ => None,
    });
    assert_eq!(by.as_deref(), Some("ada"));
}

#[tokio::test]
async fn a_policy_that_asks_for_more_people_than_it_names_is_an_error_and_no_wait_without_end() {
    let log = Log::default();
    let script = Script::new([calls([("c", "act", "{}")]), say("done")]);
    let tool = asks_for("act", &log, ApprovalRequest::new().deciders(["ada", "ada"]).quorum(2));
    let reply = agent(script).tool(tool).build().unwrap().thread("t").send("go").await.unwrap();
    let (kind, _, message) = failure(&reply);
    assert!(kind == ToolFailureKind::Execution && message.contains("asks for 2 approvals and names 1"), "{message}");
    assert_eq!((reply.finish_reason, log.len()), (FinishReason::Stop, 0));
}
