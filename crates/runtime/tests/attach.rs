//! The events of a thread for whoever attaches: from any position, at any moment, in any process; without gap or repeat.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::*;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use proptest::prelude::*;
use serde_json::json;
use toolwright_core::{Decision, Event, EventKind, FinishReason, Item, Record, RecordBody, Seq, ThreadId, project};
use toolwright_runtime::{
    Agent, AgentError, Answer as StoreAnswer, Append, Claim, MemoryStore, ModelError, ModelEvent, Store, StoreError, StoreLayer,
    ThreadEvents,
};
use toolwright_tool::{Running, Tool, ToolError};

fn id() -> ThreadId {
    ThreadId::new("t").unwrap()
}

fn asks(name: &str) -> Tool {
    Tool::new(name, "Asks first.").needs_approval().run_json(|args, _| async move { Ok::<_, ToolError>(args) }).unwrap()
}

/// Streams these, with a rest for everybody else before each.
fn slowly(events: Vec<Result<ModelEvent, ModelError>>) -> Answer {
    Box::new(move |_| {
        let pieces = stream::iter(events).then(|event| async move {
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            event
        });
        pieces.boxed()
    })
}

fn words(text: &str) -> Vec<Result<ModelEvent, ModelError>> {
    text.split_inclusive(' ').map(|word| Ok(ModelEvent::TextDelta(word.to_owned()))).collect()
}

fn thinks(text: &str) -> Vec<Result<ModelEvent, ModelError>> {
    text.split_inclusive(' ').map(|word| Ok(ModelEvent::ReasoningDelta(word.to_owned()))).collect()
}

fn reasoning(text: &str) -> Item {
    Item::Reasoning { text: text.to_owned(), signature: None, provenance: None, encrypted: None }
}

/// A tool that shows snapshots, with rests between.
fn shows(name: &str) -> Tool {
    with_body(Tool::new(name, "Shows how far it is."), |_cx| {
        Running::Stream(
            stream::iter(0..6)
                .then(|n| async move {
                    tokio::task::yield_now().await;
                    Ok(json!({ "n": n }))
                })
                .boxed(),
        )
    })
}

/// Three runs: one with reasoning, text, calls and an approval; one that fails in the middle of its text; one that is fine.
fn rich() -> Vec<Answer> {
    let calls = vec![
        reasoning("Let me think about that."),
        Item::text("I look it up."),
        Item::ToolCall(call_item("a", "show", "{}")),
        Item::ToolCall(call_item("b", "ask", "{}")),
    ];
    let mut first = thinks("Let me think about that.");
    first.extend(words("I look it up."));
    first.push(Ok(ModelEvent::CallDelta { index: 0, name: Some("show".to_owned()), arguments: "{}".to_owned() }));
    first.push(Ok(ModelEvent::Done(reply(calls, FinishReason::ToolCalls))));
    let mut second = words("It is as I thought it was.");
    second.push(Ok(ModelEvent::Done(reply(vec![Item::text("It is as I thought it was.")], FinishReason::Stop))));
    let mut broken = thinks("Hm, now");
    broken.extend(words("What I wanted to"));
    broken.push(Err(ModelError::new("test", "overloaded")));
    let mut last = thinks("Again, then.");
    last.extend(words("That is all."));
    last.push(Ok(ModelEvent::Done(reply(vec![reasoning("Again, then."), Item::text("That is all.")], FinishReason::Stop))));
    vec![slowly(first), slowly(second), slowly(broken), slowly(last)]
}

fn rich_agent(store: impl Store) -> Agent {
    agent(Script::new(rich())).tool(shows("show")).tool(asks("ask")).store(store).build().unwrap()
}

/// The three runs, and the decision between.
async fn play(agent: &Agent) {
    let thread = agent.thread("t");
    let paused = thread.send("first").await.unwrap();
    tokio::task::yield_now().await;
    agent.approvals().decide(&paused.pending[0].id, Decision::approve()).await.unwrap();
    thread.resume().await.unwrap();
    thread.send("second").await.unwrap_err();
    thread.send("third").await.unwrap();
}

const RUNS: usize = 4;

async fn so_far(agent: &Agent, from: Seq) -> Vec<Event> {
    agent.thread("t").events_so_far(from).unwrap().map(Result::unwrap).collect().await
}

/// Events without what differs between two subscriptions: their numbers and the moments of what is live.
fn bare(events: &[Event]) -> Vec<(String, Option<Seq>, EventKind)> {
    events.iter().map(|event| (event.run_id.to_string(), event.position, event.kind.clone())).collect()
}

/// Those that last. The end of reasoning does too, but who watched it has it before its record.
fn durable(events: &[Event]) -> Vec<(String, Option<Seq>, EventKind)> {
    bare(events).into_iter().filter(|(_, _, kind)| lasts(kind)).collect()
}

fn lasts(kind: &EventKind) -> bool {
    kind.is_durable() && !matches!(kind, EventKind::ReasoningDone { .. })
}

/// What the records after `from` say, as events that last.
fn expected(records: &[Arc<Record>], from: Seq) -> Vec<(String, Option<Seq>, EventKind)> {
    let mut run = String::new();
    let mut all = Vec::new();
    for record in records.iter().filter(|record| record.seq > from) {
        if let Some(id) = &record.run {
            run = id.to_string();
        }
        let kinds: Vec<EventKind> = project(record).into_iter().filter(lasts).collect();
        let last = kinds.len();
        let after = |at: usize| if at + 1 == last { record.seq } else { Seq(record.seq.0 - 1) };
        all.extend(kinds.into_iter().enumerate().map(|(at, kind)| (run.clone(), Some(after(at)), kind)));
    }
    all
}

/// Checks what a subscriber got against the journal: everything that lasts once and in order, and the deltas of each reply are
/// its text, where it saw the step from its beginning or attached in the middle.
fn check(events: &[Event], records: &[Arc<Record>], from: Seq) {
    assert!(events.iter().enumerate().all(|(at, event)| event.seq == at as u64), "numbers have gaps");
    assert_eq!(durable(events), expected(records, from));
    let runs: Vec<String> = records.iter().filter_map(|record| record.run.as_ref().map(ToString::to_string)).collect();
    let (mut text, mut thought, mut thinking) = (String::new(), String::new(), false);
    for event in events {
        assert!(runs.contains(&event.run_id.to_string()), "{event:?}");
        match &event.kind {
            EventKind::StepStart { .. } => assert!(!thinking),
            EventKind::TextDelta { text: delta } => {
                assert!(!thinking, "text before the reasoning has ended: {:?}", brief(events));
                text.push_str(delta);
            }
            EventKind::TextDone { text: whole } => assert_eq!(std::mem::take(&mut text), *whole),
            EventKind::ReasoningStart {} => {
                assert!(!thinking);
                (thinking, thought) = (true, String::new());
            }
            EventKind::ReasoningDelta { text: delta } => {
                assert!(thinking);
                thought.push_str(delta);
            }
            EventKind::ReasoningDone { text: whole, .. } => {
                assert!(thinking);
                thinking = false;
                assert_eq!(&thought, whole);
            }
            EventKind::StepDone { .. } => {
                assert!(!thinking, "reasoning goes on after its step: {:?}", brief(events));
                text.clear();
            }
            _ => {}
        }
    }
    assert!(!thinking && text.is_empty());
}

/// Reads up to the end of so many runs, with rests between where it is slow.
async fn read(mut events: ThreadEvents, runs: usize, rests: usize) -> Vec<Event> {
    let mut all = Vec::new();
    let mut ended = 0;
    while ended < runs {
        let event = within(events.next()).await.unwrap().unwrap();
        ended += usize::from(matches!(event.kind, EventKind::RunDone { .. }));
        all.push(event);
        for _ in 0..rests {
            tokio::task::yield_now().await;
        }
    }
    all
}

// rule: sdk-runtime EV-1
#[tokio::test]
async fn from_every_position_the_rest_is_told_and_no_more() {
    let store = MemoryStore::new();
    let agent = rich_agent(store.clone());
    play(&agent).await;
    let records = journal(&store, &id()).await;
    let whole = so_far(&agent, Seq(0)).await;
    check(&whole, &records, Seq(0));
    assert_eq!(brief(&whole).iter().filter(|event| event.starts_with("run.start")).count(), RUNS);
    for from in 0..=records.len() as u64 {
        let rest = so_far(&agent, Seq(from)).await;
        // As many as the records after it tell.
        let told: usize = records.iter().filter(|record| record.seq.0 > from).map(|record| project(record).len()).sum();
        assert_eq!(bare(&rest), bare(&whole[whole.len() - told..]), "from {from}");
        check(&rest, &records, Seq(from));
    }
    // Beyond the end there is nothing, and an unknown thread has nothing.
    assert!(so_far(&agent, Seq(u64::MAX)).await.is_empty());
    let mut nobody = agent.thread("nobody").events_so_far(Seq(0)).unwrap();
    assert!(nobody.next().await.is_none());
}

// rule: sdk-runtime LIS-1, sdk-runtime LIS-3
#[tokio::test]
async fn who_attached_before_sees_every_run_of_a_thread_as_it_happens() {
    let store = MemoryStore::new();
    let agent = rich_agent(store.clone());
    // The thread does not exist yet.
    let readers: Vec<_> =
        [0, 1, 17].into_iter().map(|rests| tokio::spawn(read(agent.thread("t").events(Seq(0)).unwrap(), RUNS, rests))).collect();
    play(&agent).await;
    let records = journal(&store, &id()).await;
    for (at, reader) in readers.into_iter().enumerate() {
        let events = reader.await.unwrap();
        check(&events, &records, Seq(0));
        let deltas = events.iter().filter(|event| matches!(event.kind, EventKind::TextDelta { .. })).count();
        if at == 0 {
            // Who keeps up sees the words one by one, also those of the reply that failed, and what the call showed.
            assert!(deltas > 10, "{deltas}");
            let told = brief(&events);
            assert!(told.contains(&"tool.partial a 0".to_owned()) && told.contains(&"tool.partial a 5".to_owned()), "{told:?}");
            assert!(told.contains(&"tool.input.delta".to_owned()), "{told:?}");
        }
    }
}

#[tokio::test]
async fn another_process_sees_what_lasts() {
    let store = MemoryStore::new();
    let agent = rich_agent(store.clone());
    let other = common::agent(Script::new([])).store(store.clone()).build().unwrap();
    let early = tokio::spawn(read(other.thread("t").events(Seq(0)).unwrap(), RUNS, 0));
    play(&agent).await;
    let late = tokio::spawn(read(other.thread("t").events(Seq(0)).unwrap(), RUNS, 0));
    let records = journal(&store, &id()).await;
    let (early, late) = (early.await.unwrap(), late.await.unwrap());
    check(&early, &records, Seq(0));
    assert_eq!(bare(&early), bare(&late));
    assert_eq!(bare(&early), bare(&so_far(&agent, Seq(0)).await));
    assert!(early.iter().all(|event| !matches!(event.kind, EventKind::ToolPartial { .. } | EventKind::ToolInputDelta { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whenever_and_wherever_one_attaches_nothing_is_missing_and_nothing_comes_twice(
        readers in prop::collection::vec((0usize..400, 0u64..1000, 0usize..12, any::<bool>()), 1..6),
        threads in 1usize..3,
    ) {
        let runtime = if threads == 1 {
            tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
        } else {
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
        };
        runtime.block_on(async {
            let store = MemoryStore::new();
            let agent = rich_agent(store.clone());
            let other = common::agent(Script::new([])).store(store.clone()).build().unwrap();
            let tasks: Vec<_> = readers
                .into_iter()
                .map(|(moment, part, rests, elsewhere)| {
                    let (agent, other, store) = (agent.clone(), other.clone(), store.clone());
                    tokio::spawn(async move {
                        for _ in 0..moment {
                            tokio::task::yield_now().await;
                        }
                        let head = journal(&store, &id()).await.len() as u64;
                        let from = Seq(head * part / 1000);
                        let gone = journal(&store, &id()).await.into_iter().take(usize::try_from(from.0).unwrap());
                        let ended = gone.filter(|record| matches!(record.body, RecordBody::RunDone { .. })).count();
                        let reads = if elsewhere { &other } else { &agent };
                        let events = read_from(reads, from, RUNS - ended, rests).await;
                        (from, events)
                    })
                })
                .collect();
            play(&agent).await;
            let records = journal(&store, &id()).await;
            for task in tasks {
                let (from, events) = task.await.unwrap();
                check(&events, &records, from);
            }
        });
    }
}

async fn read_from(agent: &Agent, from: Seq, runs: usize, rests: usize) -> Vec<Event> {
    read(agent.thread("t").events(from).unwrap(), runs, rests).boxed().await
}

// ------------------------------------------------------------------------------------------------------------ in the middle

#[tokio::test]
async fn who_attaches_in_the_middle_gets_the_text_so_far_and_the_last_snapshots() {
    let (latch, store) = (Latch::default(), MemoryStore::new());
    let held = latch.clone();
    let answer: Answer = Box::new(move |_| {
        let mut before = thinks("Let me see.");
        before.extend(words("So far so good, "));
        let calls = vec![
            reasoning("Let me see."),
            Item::text("So far so good, and on."),
            Item::ToolCall(call_item("a", "show", "{}")),
            Item::ToolCall(call_item("b", "show", "{}")),
        ];
        let after = stream::once(async move {
            held.hold().await;
            let mut after = words("and on.");
            after.push(Ok(ModelEvent::Done(reply(calls, FinishReason::ToolCalls))));
            stream::iter(after)
        });
        stream::iter(before).chain(after.flatten()).boxed()
    });
    let snapshots = latch.clone();
    let tool = with_body(Tool::new("show", "Shows, and waits."), move |_cx| {
        let latch = snapshots.clone();
        let held = stream::once(async move {
            latch.hold().await;
            Ok(json!({ "n": 99 }))
        });
        Running::Stream(stream::iter((0..5).map(|n| Ok(json!({ "n": n })))).chain(held).boxed())
    });
    let agent = agent(Script::new([answer, say("done")])).tool(tool).store(store.clone()).build().unwrap();
    let run = agent.thread("t").stream("go");
    latch.reached().await;
    let head = Seq(journal(&store, &id()).await.len() as u64);
    let start = agent.thread("t").events(Seq(0)).unwrap();
    let now = agent.thread("t").events(head).unwrap();
    let first: Vec<Event> = now.take(4).map(Result::unwrap).collect().await;
    assert_eq!(brief(&first), ["reasoning.start", "reasoning.delta", "reasoning.done Let me see.", "text.delta"]);
    assert!(matches!(&first[3].kind, EventKind::TextDelta { text } if text == "So far so good, "));
    // They belong to the run that goes on, though no record of it was read.
    let id_of_run = run.control().unwrap().run_id().await.unwrap();
    assert!(first.iter().all(|event| event.run_id == id_of_run));
    latch.release();
    latch.reached().await;
    latch.reached().await;
    // In the middle of the calls: of each, the last snapshot.
    let head = Seq(journal(&store, &id()).await.len() as u64);
    let now = agent.thread("t").events(head).unwrap();
    let first: Vec<Event> = now.take(2).map(Result::unwrap).collect().await;
    assert_eq!(brief(&first), ["tool.partial a 4", "tool.partial b 4"]);
    latch.release();
    latch.release();
    collect(run).await.1.unwrap();
    let records = journal(&store, &id()).await;
    check(&read(start, 1, 0).await, &records, Seq(0));
    // After the end there is nothing live.
    let after = so_far(&agent, head).await;
    assert!(after.iter().all(|event| !matches!(event.kind, EventKind::ToolPartial { .. })));
}

#[tokio::test]
async fn what_a_model_said_that_failed_does_not_come_after_its_end() {
    let store = MemoryStore::new();
    let mut broken = thinks("Hm.");
    broken.extend(words("What I wanted "));
    broken.push(Err(ModelError::new("test", "overloaded")));
    let answer: Answer = Box::new(move |_| stream::iter(broken).boxed());
    let agent = agent(Script::new([answer])).store(store.clone()).build().unwrap();
    let mut events = agent.thread("t").events(Seq(0)).unwrap();
    let run = agent.thread("t").stream("go");
    let first = within(events.next()).await.unwrap().unwrap();
    assert!(matches!(first.kind, EventKind::RunStart { .. }));
    // The reader looks away until all is over.
    collect(run).await.1.unwrap_err();
    let mut all = vec![first];
    all.extend(read(events, 1, 0).await);
    check(&all, &journal(&store, &id()).await, Seq(0));
}

/// A store that does not write down replies for as long as it is told so.
#[derive(Clone)]
struct Deaf(MemoryStore, Arc<AtomicBool>);

impl StoreLayer for Deaf {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    fn append<'a>(&'a self, claim: &'a dyn Claim, expected: Seq, append: Append) -> StoreAnswer<'a, ()> {
        let replied = append.records.iter().any(|record| matches!(record.body, RecordBody::ModelReplied { .. }));
        if replied && self.1.load(Ordering::SeqCst) {
            return async { Err(StoreError::failed("the disk is full")) }.boxed();
        }
        self.0.append(claim, expected, append)
    }
}

#[tokio::test]
async fn a_reply_that_was_not_written_down_is_not_mixed_with_the_next_one() {
    for elsewhere in [false, true] {
        let store = MemoryStore::new();
        let full = Arc::new(AtomicBool::new(true));
        let said = |text: &str| {
            let mut events = thinks("First.");
            events.extend(words(text));
            events.push(Ok(ModelEvent::Done(reply(vec![reasoning("First."), Item::text(text)], FinishReason::Stop))));
            slowly(events)
        };
        let script = Script::new([said("One text that is lost."), said("Another text.")]);
        let agent = agent(script).store(Deaf(store.clone(), Arc::clone(&full))).build().unwrap();
        let events = agent.thread("t").events(Seq(0)).unwrap();
        let reader = tokio::spawn(read(events, 1, 0));
        assert!(matches!(agent.thread("t").send("go").await.unwrap_err(), AgentError::Store(_)));
        full.store(false, Ordering::SeqCst);
        if elsewhere {
            let other = common::agent(Script::new([said("Another text.")])).store(store.clone()).build().unwrap();
            other.thread("t").resume().await.unwrap();
        } else {
            agent.thread("t").resume().await.unwrap();
        }
        let events = reader.await.unwrap();
        assert_eq!(durable(&events), expected(&journal(&store, &id()).await, Seq(0)));
        let mut text = String::new();
        for event in &events {
            match &event.kind {
                EventKind::TextDelta { text: delta } => text.push_str(delta),
                EventKind::TextDone { text: whole } => assert_eq!(whole, "Another text."),
                _ => {}
            }
        }
        // All of the second reply follows what was seen of the first.
        assert!(text.ends_with("Another text."), "{text}");
        let starts = events.iter().filter(|event| matches!(event.kind, EventKind::ReasoningStart {})).count();
        let ends = events.iter().filter(|event| matches!(event.kind, EventKind::ReasoningDone { .. })).count();
        assert_eq!(starts, ends, "{:?}", brief(&events));
    }
}

/// A store whose reads fail, once told.
#[derive(Clone)]
struct Blind(MemoryStore, Arc<AtomicBool>);

impl StoreLayer for Blind {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    fn read<'a>(&'a self, thread: &'a ThreadId, after: Seq, limit: usize) -> StoreAnswer<'a, Vec<Arc<Record>>> {
        if self.1.load(Ordering::SeqCst) {
            return async { Err(StoreError::failed("the connection is lost")) }.boxed();
        }
        self.0.read(thread, after, limit)
    }

    fn appended<'a>(&'a self, thread: &'a ThreadId, after: Seq) -> BoxFuture<'a, ()> {
        self.0.appended(thread, after)
    }
}

#[tokio::test]
async fn a_store_that_fails_ends_the_events_and_one_goes_on_from_the_last_position() {
    let (store, lost) = (MemoryStore::new(), Arc::new(AtomicBool::new(false)));
    let agent = rich_agent(Blind(store.clone(), Arc::clone(&lost)));
    play(&agent).await;
    let records = journal(&store, &id()).await;
    let mut events = agent.thread("t").events(Seq(0)).unwrap();
    for _ in 0..5 {
        events.next().await.unwrap().unwrap();
    }
    let mut later = agent.thread("t").events(Seq(0)).unwrap();
    lost.store(true, Ordering::SeqCst);
    assert!(matches!(within(later.next()).await.unwrap().unwrap_err(), AgentError::Store(StoreError::Failed { .. })));
    assert!(later.next().await.is_none());
    lost.store(false, Ordering::SeqCst);
    // Wherever it broke off, nothing is missed: what was told of a record that was not told whole comes again.
    let whole = so_far(&agent, Seq(0)).await;
    for kept in 1..=whole.len() {
        let position = whole[..kept].iter().rev().find_map(|event| event.position).unwrap();
        let rest = so_far(&agent, position).await;
        assert!(rest.len() >= whole.len() - kept, "after {:?}", whole[kept - 1]);
        assert_eq!(bare(&rest), bare(&whole[whole.len() - rest.len()..]));
        // Never more than what one record says.
        assert!(rest.len() - (whole.len() - kept) <= 4, "{} come again after {:?}", rest.len() + kept - whole.len(), whole[kept - 1]);
    }
    check(&whole, &records, Seq(0));
}

#[tokio::test]
async fn who_reads_a_thread_of_many_pages_gets_them_all() {
    let store = MemoryStore::new();
    let model = Answers::new(|request| {
        if request.step < 120 {
            let call = call_item(&format!("c{}", request.step), "act", &format!(r#"{{"n":{}}}"#, request.step));
            return reply(vec![Item::text("On."), Item::ToolCall(call)], FinishReason::ToolCalls);
        }
        reply(vec![Item::text("Done.")], FinishReason::Stop)
    });
    let agent = agent(model).tool(echo("act")).max_steps(200).store(store.clone()).build().unwrap();
    let live = tokio::spawn(read(agent.thread("t").events(Seq(0)).unwrap(), 1, 0));
    agent.thread("t").send("go").await.unwrap();
    let records = journal(&store, &id()).await;
    assert!(records.len() > 600);
    check(&live.await.unwrap(), &records, Seq(0));
    for from in [0, 255, 256, 257, 512] {
        check(&so_far(&agent, Seq(from)).await, &records, Seq(from));
    }
}
