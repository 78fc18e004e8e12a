//! The events of a run: whole sequences, their order, and who reads them how slowly.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod common;

use common::*;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use toolwright_core::{Decision, Event, EventKind, FinishReason, Item, RunId, Usage, project};
use toolwright_runtime::{MemoryStore, ModelError, ModelEvent, ModelReply};
use toolwright_tool::{Running, Tool, ToolError};

/// Events as they are written, under a run id of their own.
fn written(events: &[Event]) -> Vec<String> {
    events
        .iter()
        .map(|event| {
            let event = Event { run_id: RunId::new("r1"), ..event.clone() };
            serde_json::to_string(&event).unwrap()
        })
        .collect()
}

// rule: sdk-runtime 57/1, sdk-runtime EV-1, sdk-runtime EV-2, sdk-runtime ORD-1, sdk-runtime ORD-11
// rule: sdk-tools 34/5
// rule: sdk-runtime RUN-8
#[tokio::test]
async fn a_text_run_event_by_event() {
    let latch = Latch::default();
    let held = latch.clone();
    let answer: Answer = Box::new(move |_| {
        let first = stream::iter([Ok(ModelEvent::TextDelta("Hel".to_owned()))]);
        let rest = stream::once(async move {
            held.hold().await;
            stream::iter([
                Ok(ModelEvent::TextDelta("lo".to_owned())),
                Ok(ModelEvent::Done(ModelReply {
                    usage: Some(Usage { input_tokens: 5, output_tokens: 2, ..Usage::default() }),
                    ..reply(vec![Item::text("Hello")], FinishReason::Stop)
                })),
            ])
        });
        first.chain(rest.flatten()).boxed()
    });
    let agent = agent(Script::new([answer])).clock(clock()).build().unwrap();
    let mut run = agent.stream("Hi");
    let mut events = until(&mut run, |event| matches!(event, EventKind::TextDelta { .. })).await;
    latch.reached().await;
    latch.release();
    events.extend(collect(run).await.0);
    let usage = r#""promptTokens":5,"completionTokens":2,"totalTokens":7,"inputTokens":5,"outputTokens":2,"estimated":false"#;
    let envelope = |name: &str, seq: u32, rest: &str| {
        format!(r#"{{"type":"{name}","runId":"r1","seq":{seq},"timestamp":"2026-01-01T00:00:00.000Z","v":1,{rest}}}"#)
    };
    assert_eq!(
        written(&events),
        [
            envelope("run.start", 0, r#""position":2,"agentName":"agent""#),
            envelope("step.start", 1, r#""position":4,"step":1"#),
            envelope("text.delta", 2, r#""text":"Hel""#),
            envelope("text.delta", 3, r#""text":"lo""#),
            envelope("text.done", 4, r#""position":5,"text":"Hello""#),
            envelope("step.done", 5, &format!(r#""position":6,"step":1,"finishReason":"stop","usage":{{{usage}}}"#)),
            envelope("run.done", 6, &format!(r#""position":7,"finishReason":"stop","text":"Hello","usage":{{{usage},"modelCalls":1}}"#)),
        ]
    );
    // What is written is an event again, and the same one.
    for event in &events {
        let value = serde_json::to_value(event).unwrap();
        assert!(toolwright_core::is_event(&value));
        assert_eq!(&serde_json::from_value::<Event>(value).unwrap(), event);
    }
}

fn thinking() -> Answer {
    let items = vec![
        Item::Reasoning { text: "They want two.".to_owned(), signature: None, provenance: None, encrypted: None },
        Item::text("Let me see."),
        Item::ToolCall(call_item("a", "act", r#"{"n":1}"#)),
        Item::ToolCall(call_item("b", "act", r#"{"n":2}"#)),
    ];
    stream_of(vec![
        ModelEvent::ReasoningDelta("They want ".to_owned()),
        ModelEvent::ReasoningDelta("two.".to_owned()),
        ModelEvent::TextDelta("Let me ".to_owned()),
        ModelEvent::TextDelta("see.".to_owned()),
        ModelEvent::CallDelta { index: 0, name: Some("act".to_owned()), arguments: r#"{"n":1}"#.to_owned() },
        ModelEvent::Done(reply(items, FinishReason::ToolCalls)),
    ])
}

// rule: sdk-tools 34/2
// rule: sdk-runtime ORD-2, sdk-runtime ORD-3, sdk-runtime ORD-4, sdk-runtime ORD-11, sdk-runtime EV-8
#[tokio::test]
async fn a_tool_run_in_its_order() {
    let agent = agent(Script::new([thinking(), say("done")])).tool(echo("act")).tool_concurrency(1).build().unwrap();
    let (events, reply) = go(&agent).await;
    let order: Vec<String> = brief(&events).into_iter().filter(|event| event != "tool.input.delta").collect();
    assert_eq!(
        order,
        [
            "run.start",
            "step.start 1",
            "reasoning.start",
            "reasoning.delta",
            "reasoning.done They want two.",
            "text.delta",
            "text.done Let me see.",
            "tool.start a",
            "tool.done a",
            "tool.start b",
            "tool.done b",
            "step.done 1 tool_calls",
            "step.start 2",
            "text.delta",
            "text.done done",
            "step.done 2 stop",
            "run.done stop",
        ]
    );
    for (at, event) in events.iter().enumerate() {
        assert_eq!(event.seq, at as u64);
        if let EventKind::TextDelta { text } | EventKind::TextDone { text } = &event.kind {
            assert!(!text.contains("want"), "{text}");
        }
    }
    assert_eq!(reply.unwrap().text, "done");
}

// rule: sdk-runtime EV-8
#[tokio::test]
async fn the_text_of_a_run_has_no_reasoning() {
    let items = vec![
        Item::Reasoning { text: "Hm.".to_owned(), signature: None, provenance: None, encrypted: None },
        Item::text("Yes."),
        Item::text(" Sure."),
    ];
    let agent = agent(Script::new([items_of(items, FinishReason::Stop)])).build().unwrap();
    let (events, reply) = go(&agent).await;
    assert_eq!(reply.unwrap().text, "Yes. Sure.");
    assert!(matches!(&events.last().unwrap().kind, EventKind::RunDone { text, .. } if &**text == "Yes. Sure."));
}

// rule: sdk-runtime RUN-7
// case: field-reports 151
#[tokio::test]
async fn who_reads_the_journal_sees_what_who_watched_saw() {
    let store = MemoryStore::new();
    let script = Script::new([thinking(), calls([("c", "broken", "{}")]), say("done")]);
    let agent = agent(script)
        .tools([echo("act"), failing("broken", ToolError::new("no"))])
        .tool_concurrency(1)
        .store(store.clone())
        .build()
        .unwrap();
    let thread = agent.thread("t");
    let (events, _) = collect(thread.stream("go")).await;
    let live: Vec<String> = brief(&events).into_iter().filter(|event| event != "tool.input.delta").collect();
    let read: Vec<Event> = journal(&store, thread.id().unwrap())
        .await
        .iter()
        .flat_map(|record| project(record))
        .map(|kind| Event {
            run_id: RunId::new("r1"),
            seq: 0,
            timestamp: toolwright_core::Timestamp(0),
            position: None,
            subagent: None,
            kind,
        })
        .collect();
    assert_eq!(brief(&read), live);
    // Every durable event says where it stands.
    for event in &events {
        if event.position.is_none() {
            assert!(!event.kind.is_durable() || event.kind.type_name() == "reasoning.done", "{event:?}");
        }
    }
}

// rule: sdk-runtime FIN-4, sdk-runtime EV-6, sdk-runtime ORD-1
// rule: sdk-tools 34/5
#[tokio::test]
async fn a_failed_run_ends_with_error_and_then_run_done() {
    let answer: Answer =
        Box::new(|_| stream::iter([Ok(ModelEvent::TextDelta("Hel".to_owned())), Err(ModelError::new("test", "the wire broke"))]).boxed());
    let agent = agent(Script::new([answer])).build().unwrap();
    let thread = agent.thread("t");
    let (events, reply) = collect(thread.stream("go")).await;
    let error = reply.unwrap_err();
    assert_eq!((error.to_string().as_str(), error.code()), ("test: the wire broke", "TOOLWRIGHT_PROVIDER_REQUEST_FAILED"));
    let all = brief(&events);
    assert_eq!(all[all.len() - 3..], ["step.done 1 error", "error ModelError", "run.done error"]);
    assert_eq!((all[0].as_str(), all.iter().filter(|event| event.starts_with("run.")).count()), ("run.start", 2));
    let last = serde_json::to_value(events.last().unwrap()).unwrap();
    assert_eq!((&last["finishReason"], &last["text"], last.get("usage")), (&json!("error"), &json!(""), None));
    // Nothing half said is kept, and the thread can go on.
    assert_eq!(thread.history().await.unwrap().len(), 1);
}

// rule: sdk-runtime EV-7
#[tokio::test]
async fn the_last_event_agrees_with_the_reply() {
    let asks = || Tool::new("asks", "Asks.").needs_approval().run_json(|args, _| async move { Ok::<_, ToolError>(args) }).unwrap();
    let mut cut = vec![Item::text("and so ")];
    cut.push(Item::text("on"));
    for (script, expected) in [
        (Script::new([say("done")]), FinishReason::Stop),
        (Script::new([items_of(cut, FinishReason::Length)]), FinishReason::Length),
        (Script::new([items_of(vec![], FinishReason::ContentFilter)]), FinishReason::ContentFilter),
        (Script::new([items_of(vec![], FinishReason::Unknown)]), FinishReason::Unknown),
        (Script::new([calls([("c1", "asks", "{}")])]), FinishReason::AwaitingApproval),
        (Script::new([calls([("c1", "nothing", "{}")]), calls([("c2", "nothing", "{}")])]), FinishReason::MaxSteps),
    ] {
        let agent = agent(script).tool(asks()).max_steps(2).build().unwrap();
        let (events, reply) = go(&agent).await;
        let reply = reply.unwrap();
        assert_eq!(reply.finish_reason, expected);
        let EventKind::RunDone { finish_reason, text, object, .. } = &events.last().unwrap().kind else { panic!("{events:?}") };
        assert_eq!((finish_reason, &**text, object), (&reply.finish_reason, reply.text.as_str(), &None));
    }
}

// rule: sdk-tools 34/1, sdk-tools 34/4
// rule: sdk-runtime ORD-12, sdk-runtime EV-9
// rule: sdk-tools 13.4/13
#[tokio::test]
async fn a_call_starts_once_over_its_pause() {
    for (decision, end) in [(Decision::approve(), "tool.done c1"), (Decision::reject(), "tool.error c1 ToolRejectedError")] {
        let tool = Tool::new("act", "Acts.").needs_approval().run_json(|args, _| async move { Ok::<_, ToolError>(args) }).unwrap();
        let agent = agent(Script::new([calls([("c1", "act", r#"{"n":1}"#)]), say("done")])).tool(tool).build().unwrap();
        let (paused, reply) = collect(agent.thread("t").stream("go")).await;
        assert_eq!(
            brief(&paused),
            [
                "run.start",
                "step.start 1",
                "tool.start c1",
                "approval.requested c1",
                "step.done 1 awaiting-approval",
                "run.done awaiting-approval",
            ]
        );
        let asked = paused
            .iter()
            .find(|event| event.kind.type_name() == "approval.requested")
            .map(|event| serde_json::to_value(event).unwrap())
            .unwrap();
        let pending = &reply.unwrap().pending[0];
        assert_eq!(
            (&asked["approvalId"], &asked["toolCallId"], &asked["toolName"], &asked["args"]),
            (&json!(pending.id), &json!("c1"), &json!("act"), &json!({ "n": 1 }))
        );
        agent.approvals().decide(&pending.id, decision).await.unwrap();
        let (resumed, _) = collect(agent.thread("t").resume_stream()).await;
        assert_eq!(
            brief(&resumed),
            ["run.start", "tool.resume c1", end, "step.start 2", "text.delta", "text.done done", "step.done 2 stop", "run.done stop"]
        );
        assert_eq!(resumed.iter().map(|event| event.seq).collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
    }
}

async fn at_rest(store: &MemoryStore, thread: &toolwright_core::ThreadId) {
    while kinds(&journal(store, thread).await).last().map(String::as_str) != Some("run.done") {
        tokio::task::yield_now().await;
    }
}

// rule: sdk-tools 36/19, sdk-tools 34/6
#[tokio::test]
async fn a_slow_reader_stops_nobody_and_gets_merged_deltas_and_all_that_is_durable() {
    const MANY: u64 = 20_000;
    let store = MemoryStore::new();
    let chatty =
        with_body(Tool::new("chatty", "Chats."), |_| Running::Stream(stream::iter((0..MANY).map(|n| Ok(json!({ "n": n })))).boxed()));
    let mut talks: Vec<ModelEvent> = (0..MANY).map(|_| ModelEvent::TextDelta("é".to_owned())).collect();
    let text = "é".repeat(MANY as usize);
    talks.push(ModelEvent::Done(reply(
        vec![Item::text(text.clone()), Item::ToolCall(call_item("c1", "chatty", "{}"))],
        FinishReason::ToolCalls,
    )));
    let agent = agent(Script::new([stream_of(talks), say("done")])).tool(chatty).store(store.clone()).build().unwrap();
    let thread = agent.thread("t");
    let run = thread.stream("go");
    // The run is over before its first event is read.
    within(at_rest(&store, thread.id().unwrap())).await;
    let (events, reply) = collect(run).await;
    reply.unwrap();
    let durable: Vec<String> =
        brief(&events).into_iter().filter(|event| !event.ends_with("delta") && !event.starts_with("tool.partial")).collect();
    assert_eq!(
        durable,
        [
            "run.start".to_owned(),
            "step.start 1".to_owned(),
            format!("text.done {text}"),
            "tool.start c1".to_owned(),
            "tool.done c1".to_owned(),
            "step.done 1 tool_calls".to_owned(),
            "step.start 2".to_owned(),
            "text.done done".to_owned(),
            "step.done 2 stop".to_owned(),
            "run.done stop".to_owned(),
        ]
    );
    let deltas: String = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::TextDelta { text } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(deltas, format!("{text}done"));
    let snapshots: Vec<u64> = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::ToolPartial { index, .. } => Some(*index),
            _ => None,
        })
        .collect();
    assert!(snapshots.len() <= 256 && events.len() < 300, "{}", events.len());
    assert_eq!(snapshots.last(), Some(&(MANY - 1)), "the last snapshot is never the one that is dropped");
}

// rule: sdk-tools 34/6
#[tokio::test]
async fn leaving_a_stream_detaches_from_the_run() {
    let (store, latch) = (MemoryStore::new(), Latch::default());
    let agent = agent(Script::new([calls([("c1", "slow", "{}")]), say("done")]))
        .tool(holding("slow", &latch))
        .store(store.clone())
        .build()
        .unwrap();
    let thread = agent.thread("t");
    let mut run = thread.stream("go");
    until(&mut run, |event| matches!(event, EventKind::ToolStart { .. })).await;
    let canceller = run.canceller();
    drop(run);
    latch.reached().await;
    latch.release();
    within(at_rest(&store, thread.id().unwrap())).await;
    let transcript = thread.history().await.unwrap();
    assert_eq!(transcript.last().unwrap().text_of(), "done");
    // Nothing of a run that is over can be stopped.
    canceller.cancel("late");
    assert_eq!(kinds(&journal(&store, thread.id().unwrap()).await).iter().filter(|kind| *kind == "run.cancelled").count(), 0);
}

#[tokio::test]
async fn a_run_goes_on_without_being_polled_and_may_be_stopped_when_nobody_reads() {
    let latch = Latch::default();
    let store = MemoryStore::new();
    let agent = agent(Script::new([calls([("c1", "slow", "{}")])]))
        .tool(holding("slow", &latch))
        .grace(std::time::Duration::ZERO)
        .store(store.clone())
        .build()
        .unwrap();
    let thread = agent.thread("t");
    let canceller = thread.stream("go").canceller();
    latch.reached().await;
    canceller.cancel("enough");
    within(at_rest(&store, thread.id().unwrap())).await;
    thread.history().await.unwrap().check_balance().unwrap();
}

// rule: sdk-runtime EV-9
#[tokio::test]
async fn a_resumed_run_is_shown_from_its_start() {
    // A crash while the second call ran: the first has its result.
    let (store, id) = (MemoryStore::new(), toolwright_core::ThreadId::new("t").unwrap());
    let script = Script::new([calls([("a", "act", "{}"), ("b", "act", "{}")]), say("done")]);
    let first = agent(script).tool(echo("act")).tool_concurrency(1).store(store.clone()).build().unwrap();
    first.thread("t").send("go").await.unwrap();
    let records = journal(&store, &id).await;
    let cut = records.iter().rposition(|record| matches!(record.body, toolwright_core::RecordBody::CallExecuting { .. })).unwrap();
    let second = agent(Script::new([say("done")]))
        .tool(echo("act"))
        .tool_concurrency(1)
        .store(store_of(&id, &records[..=cut]).await)
        .build()
        .unwrap();
    let (events, _) = collect(second.thread("t").resume_stream()).await;
    assert_eq!(
        brief(&events)[..8],
        [
            "run.start",
            "step.start 1",
            "tool.start a",
            "tool.done a",
            "tool.start b",
            // The interrupted body begins anew.
            "tool.start b",
            "tool.done b",
            "step.done 1 tool_calls",
        ]
    );
    let shown: Vec<Value> = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::ToolStart { args, .. } => Some(args.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(shown, vec![json!({}); 3]);
}
