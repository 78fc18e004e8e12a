//! Threads from outside: whose turn it is, how a run is stopped from elsewhere, what is read of a thread, and how it goes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use common::*;
use futures_util::{FutureExt, StreamExt, stream};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use toolwright_core::{Author, Decision, EventKind, FinishReason, Item, RecordBody, RunId, Seq, ThreadId, Timestamp, Transcript};
use toolwright_runtime::{
    Agent, AgentError, Answer as StoreAnswer, Append, Claim, ErrorCategory, FixedClock, ForkPatch, InboxItem, MemoryStore, ModelError,
    ModelEvent, ModelRequest, RunStream, Shelf, Store, StoreError, StoreLayer, ThreadQuery, ThreadStatus, TurnPolicy,
};
use toolwright_tool::{Tool, ToolError};

fn id() -> ThreadId {
    ThreadId::new("t").unwrap()
}

fn texts(transcript: &Transcript) -> Vec<String> {
    transcript.iter().map(|message| message.text_of()).filter(|text| !text.is_empty()).collect()
}

fn asks(name: &str) -> Tool {
    Tool::new(name, "Asks first.").needs_approval().run_json(|args, _| async move { Ok::<_, ToolError>(args) }).unwrap()
}

/// A model that gives the last message back.
fn parrot() -> Arc<Answers<impl Fn(&ModelRequest) -> toolwright_runtime::ModelReply + Send + Sync>> {
    Answers::new(|request| {
        let last = request.messages.last().map(|message| message.text_of()).unwrap_or_default();
        reply(vec![Item::text(format!("re {last}"))], FinishReason::Stop)
    })
}

/// A reply that waits at a latch.
fn held(latch: &Latch, answer: Answer) -> Answer {
    let latch = latch.clone();
    Box::new(move |request| {
        let said = answer(request);
        stream::once(async move {
            latch.hold().await;
            said
        })
        .flatten()
        .boxed()
    })
}

/// Lets everything that can go on do so.
async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// Until so much input stands in the journal.
async fn taken(store: &MemoryStore, inputs: usize) {
    let is_input = |record: &&Arc<toolwright_core::Record>| matches!(record.body, RecordBody::InputQueued { .. });
    while journal(store, &id()).await.iter().filter(is_input).count() < inputs {
        tokio::task::yield_now().await;
    }
}

/// A store whose next append fails, once told.
#[derive(Clone)]
struct Failing(MemoryStore, Arc<AtomicBool>);

impl StoreLayer for Failing {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    fn append<'a>(&'a self, claim: &'a dyn Claim, expected: Seq, append: Append) -> StoreAnswer<'a, ()> {
        if self.1.swap(false, Ordering::SeqCst) {
            return async { Err(StoreError::failed("the disk is full")) }.boxed();
        }
        self.0.append(claim, expected, append)
    }
}

// ----------------------------------------------------------------------------------------------------------------- turns

// rule: sdk-runtime SES-5, sdk-runtime DUR-11
#[tokio::test]
async fn a_second_send_is_refused_by_name_unless_the_program_says_otherwise() {
    let latch = Latch::default();
    let agent = agent(Script::new([held(&latch, say("one"))])).build().unwrap();
    let run = agent.thread("t").stream("first");
    latch.reached().await;
    let refused = agent.thread("t").send("second").await.unwrap_err();
    assert_eq!((refused.code(), refused.to_string().contains("the thread t is being moved")), ("TOOLWRIGHT_SESSION_BUSY", true));
    latch.release();
    assert_eq!(texts(&collect(run).await.1.unwrap().messages), ["first", "one"]);
}

// rule: sdk-runtime SES-3, sdk-runtime SES-4
#[tokio::test(start_paused = true)]
async fn sends_that_wait_take_their_turns_in_the_order_they_came() {
    let store = MemoryStore::new();
    let (latch, first) = (Latch::default(), AtomicBool::new(true));
    let held = latch.clone();
    let model = Script::new((0..12).map(|_| {
        let (held, hold) = (held.clone(), first.swap(false, Ordering::SeqCst));
        Box::new(move |request: &ModelRequest| {
            let last = request.messages.last().map(|message| message.text_of()).unwrap_or_default();
            let events = vec![ModelEvent::Done(reply(vec![Item::text(format!("re {last}"))], FinishReason::Stop))];
            stream::once(async move {
                if hold {
                    held.hold().await;
                }
                stream::iter(events.into_iter().map(Ok))
            })
            .flatten()
            .boxed()
        }) as Answer
    }));
    let agent = agent(model).store(store.clone()).build().unwrap();
    let running = agent.thread("t").stream("0");
    latch.reached().await;
    let waiting: Vec<RunStream> = (1..10).map(|n| agent.thread("t").turn_policy(TurnPolicy::Wait).stream(n.to_string())).collect();
    settle().await;
    // One that changed its mind is not sent at all, whether it waits in the queue or at its head.
    let last = agent.thread("t").turn_policy(TurnPolicy::Wait).stream("never");
    settle().await;
    last.cancel("changed my mind");
    assert!(matches!(within(last).await.unwrap_err(), AgentError::Store(StoreError::Busy { .. })));
    latch.release();
    within(running).await.unwrap();
    for (n, run) in waiting.into_iter().enumerate() {
        assert_eq!(within(run).await.unwrap().text, format!("re {}", n + 1));
    }
    let all: Vec<String> = (0..10).flat_map(|n| [n.to_string(), format!("re {n}")]).collect();
    assert_eq!(texts(&agent.thread("t").history().await.unwrap()), all);
}

#[tokio::test(start_paused = true)]
async fn a_send_that_waits_for_another_process_can_be_cancelled() {
    let store = MemoryStore::new();
    let agent = agent(Script::new([])).store(store.clone()).build().unwrap();
    let claim = store.claim(&id()).await.unwrap();
    let run = agent.thread("t").turn_policy(TurnPolicy::Wait).stream("never");
    settle().await;
    run.cancel("enough");
    assert!(matches!(within(run).await.unwrap_err(), AgentError::Store(StoreError::Busy { .. })));
    drop(claim);
    assert!(journal(&store, &id()).await.is_empty());
}

// rule: sdk-runtime DSE-4, sdk-runtime DUR-3
#[tokio::test(start_paused = true)]
async fn what_was_interrupted_comes_before_a_send_that_may_wait() {
    for policy in [TurnPolicy::Wait, TurnPolicy::Queue, TurnPolicy::Steer] {
        let whole = MemoryStore::new();
        let tools = || vec![echo("act")];
        let first = agent(Script::new([calls([("c", "act", "{}")]), say("one")])).tools(tools()).store(whole.clone()).build().unwrap();
        first.thread("t").send("first").await.unwrap();
        let records = journal(&whole, &id()).await;
        let cut = records.iter().position(|record| matches!(record.body, RecordBody::CallDone { .. })).unwrap();
        let store = store_of(&id(), &records[..=cut]).await;
        let agent = agent(Script::new([say("one"), say("two")])).tools(tools()).store(store.clone()).build().unwrap();
        let (events, reply) = collect(agent.thread("t").turn_policy(policy).stream("second")).await;
        assert_eq!(texts(&reply.unwrap().messages), ["first", "one", "second", "two"]);
        // The events are those of the new run.
        assert_eq!(brief(&events), ["run.start", "step.start 3", "text.delta", "text.done two", "step.done 3 stop", "run.done stop"]);
    }
    // By default it is refused, and says what to do.
    let store = store_of(&id(), &journal(&interrupted().await, &id()).await).await;
    let agent = agent(Script::new([])).store(store).build().unwrap();
    let refused = agent.thread("t").send("x").await.unwrap_err();
    assert_eq!((refused.code(), refused.to_string().contains("call `resume()`")), ("TOOLWRIGHT_SESSION_TURN_PENDING", true));
}

/// A thread whose run was left after its first step began.
async fn interrupted() -> MemoryStore {
    let whole = MemoryStore::new();
    agent(parrot()).store(whole.clone()).build().unwrap().thread("t").send("first").await.unwrap();
    store_of(&id(), &journal(&whole, &id()).await[..4]).await
}

// rule: sdk-runtime SES-5
#[tokio::test(start_paused = true)]
async fn a_send_may_join_the_run_that_goes_on() {
    for policy in [TurnPolicy::Queue, TurnPolicy::Steer] {
        let (store, latch) = (MemoryStore::new(), Latch::default());
        let script = Script::new([calls([("c", "wait", "{}")]), held(&latch, say("both")), say("and the third")]);
        let owner = agent(script.clone()).tool(holding("wait", &latch)).store(store.clone()).build().unwrap();
        // Who joins may be another process.
        let other = agent(Script::new([])).store(store.clone()).build().unwrap();
        let run = owner.thread("t").stream("first");
        latch.reached().await;
        let joining = other.thread("t").turn_policy(policy).stream("second");
        let control = joining.control().unwrap();
        taken(&store, 1).await;
        latch.release();
        latch.reached().await;
        // It has joined, and more can be sent to the run it joined.
        let third = control.enqueue("third").await.unwrap();
        taken(&store, 2).await;
        latch.release();
        let (events, joined) = collect(joining).await;
        let (joined, own) = (joined.unwrap(), collect(run).await.1.unwrap());
        // The reply is that run's, for both.
        assert_eq!((&joined.run_id, &joined.text, &joined.messages), (&own.run_id, &own.text, &own.messages));
        assert_eq!(joined.text, "and the third");
        assert_eq!(brief(&events), ["run.done stop"]);
        assert_eq!(events[0].run_id, own.run_id);
        assert!(third.joined_run().await.unwrap());
        assert_eq!(texts(&own.messages), ["first", "second", "both", "third", "and the third"]);
        assert_eq!(joined.new_messages().map(|message| message.text_of()).next().as_deref(), Some("second"));
    }
}

// rule: sdk-runtime SES-5
#[tokio::test(start_paused = true)]
async fn who_joined_a_run_that_fails_gets_the_same_error() {
    let latch = Latch::default();
    let failing = held(&latch, fails(ModelError::new("test", "overloaded")));
    let agent = agent(Script::new([calls([("c", "wait", "{}")]), failing])).tool(holding("wait", &latch)).build().unwrap();
    let run = agent.thread("t").stream("first");
    latch.reached().await;
    let joining = agent.thread("t").turn_policy(TurnPolicy::Queue).stream("second");
    settle().await;
    latch.release();
    latch.reached().await;
    latch.release();
    let (own, joined) = (collect(run).await.1.unwrap_err(), collect(joining).await);
    assert_eq!(joined.1.unwrap_err(), own);
    assert_eq!(brief(&joined.0), ["error ModelError", "run.done error"]);
}

// case: field-reports 152
// case: field-reports 149
#[tokio::test]
async fn a_provider_that_refuses_after_a_call_does_not_make_the_call_run_again() {
    for category in [ErrorCategory::ContextLengthExceeded, ErrorCategory::Unknown] {
        let log = Log::default();
        let refuses = fails(ModelError::new("test", "no").in_category(category));
        let script = Script::new([calls([("c", "charge", "{}")]), refuses, say("Charged.")]);
        let agent = agent(script.clone()).tool(logged("charge", &log)).build().unwrap();
        let thread = agent.thread("t");
        assert!(matches!(thread.send("Charge it.").await.unwrap_err(), AgentError::Run { .. }));
        // The failure is final for the run; trying again is a new turn, which reads the result that is there.
        assert!(matches!(thread.resume().await.unwrap_err(), AgentError::NothingToResume { .. }));
        assert_eq!(thread.send("Try again.").await.unwrap().text, "Charged.");
        assert_eq!((log.all(), script.times()), (vec!["body c".to_owned()], 3));
        thread.history().await.unwrap().check_balance().unwrap();
    }
}

// rule: sdk-runtime SES-5
#[tokio::test(start_paused = true)]
async fn who_joins_a_run_that_ends_first_has_the_next_turn() {
    let latch = Latch::default();
    let script = Script::new([held(&latch, fails(ModelError::new("test", "overloaded"))), say("two")]);
    let agent = agent(script.clone()).build().unwrap();
    let run = agent.thread("t").stream("first");
    latch.reached().await;
    let joining = agent.thread("t").turn_policy(TurnPolicy::Queue).stream("second");
    settle().await;
    latch.release();
    collect(run).await.1.unwrap_err();
    let (events, reply) = collect(joining).await;
    assert_eq!(texts(&reply.unwrap().messages), ["first", "second", "two"]);
    assert_eq!(brief(&events).last().unwrap(), "run.done stop");
    // Idle, it is a turn like any other.
    let refused = agent.thread("t").turn_policy(TurnPolicy::Steer).send(" ").await.unwrap_err();
    assert!(matches!(refused, AgentError::MissingInput));
}

// rule: sdk-runtime SES-5, sdk-runtime DSE-6, sdk-runtime DUR-5
// rule: sdk-tools 13.3/6
#[tokio::test(start_paused = true)]
async fn who_joins_a_run_that_pauses_is_told_and_its_input_waits() {
    let latch = Latch::default();
    let script = Script::new([calls([("a", "ask", "{}"), ("b", "wait", "{}")]), say("done")]);
    let agent = agent(script.clone()).tool(asks("ask")).tool(holding("wait", &latch)).build().unwrap();
    let run = agent.thread("t").stream("first");
    latch.reached().await;
    let joining = agent.thread("t").turn_policy(TurnPolicy::Queue).stream("second");
    settle().await;
    latch.release();
    let paused = collect(run).await.1.unwrap();
    assert_eq!(collect(joining).await.1.unwrap_err().code(), "TOOLWRIGHT_SESSION_AWAITING_APPROVAL");
    for policy in [TurnPolicy::Refuse, TurnPolicy::Wait, TurnPolicy::Queue, TurnPolicy::Steer] {
        let refused = agent.thread("t").turn_policy(policy).send("third").await.unwrap_err();
        assert_eq!(refused.code(), "TOOLWRIGHT_SESSION_AWAITING_APPROVAL");
        assert!(refused.to_string().contains(paused.pending[0].id.as_str()), "{refused}");
    }
    assert_eq!(script.times(), 1);
    agent.approvals().decide(&paused.pending[0].id, Decision::approve()).await.unwrap();
    // Decided, it has to go on first; a send that may wait sees to it.
    assert_eq!(agent.thread("t").send("third").await.unwrap_err().code(), "TOOLWRIGHT_SESSION_TURN_PENDING");
    let script = Script::new([say("done"), say("and that")]);
    let agent = common::agent(script).tool(asks("ask")).tool(holding("wait", &latch)).store(store_of_agent(&agent).await).build().unwrap();
    let reply = agent.thread("t").turn_policy(TurnPolicy::Wait).send("third").await.unwrap();
    assert_eq!(texts(&reply.messages), ["first", "second", "done", "third", "and that"]);
}

/// A store with the thread of an agent, its decisions posted.
async fn store_of_agent(agent: &Agent) -> MemoryStore {
    let records = agent.thread("t").records().await.unwrap();
    let store = store_of(&id(), &records).await;
    let waiting = store.pending(Some(&id()), None, 10).await.unwrap().items;
    for pending in waiting {
        let decision = Decision::approve();
        let item = InboxItem::Decision { approval: pending.id.clone(), call: pending.call_id, sha256: pending.sha256, decision };
        store.post(&id(), &format!("decision:{}", pending.id), item).await.unwrap();
    }
    store
}

#[tokio::test(start_paused = true)]
async fn who_joined_a_run_whose_owner_died_takes_it_on() {
    let fail = Arc::new(AtomicBool::new(false));
    let (store, latch) = (MemoryStore::new(), Latch::default());
    let script = Script::new([calls([("c", "wait", "{}")]), held(&latch, say("lost")), say("both")]);
    let layer = Failing(store.clone(), Arc::clone(&fail));
    let agent = agent(script.clone()).tool(holding("wait", &latch)).store(layer).build().unwrap();
    let run = agent.thread("t").stream("first");
    latch.reached().await;
    let joining = agent.thread("t").turn_policy(TurnPolicy::Queue).stream("second");
    settle().await;
    latch.release();
    latch.reached().await;
    // The input has joined; the reply to it does not get into the journal.
    fail.store(true, Ordering::SeqCst);
    latch.release();
    assert!(matches!(collect(run).await.1.unwrap_err(), AgentError::Store(StoreError::Failed { .. })));
    let reply = collect(joining).await.1.unwrap();
    assert_eq!(texts(&reply.messages), ["first", "second", "both"]);
}

// ---------------------------------------------------------------------------------------------------------------- runs

// rule: sdk-runtime RUN-1, sdk-runtime RUN-2, sdk-runtime RUN-3
// rule: sdk-runtime LIS-4
#[tokio::test]
async fn a_run_needs_nobody_to_read_it_and_keeps_its_events() {
    let store = MemoryStore::new();
    let script = Script::new([calls([("c", "act", "{}")]), say("done")]);
    let agent = agent(script.clone()).tool(echo("act")).store(store.clone()).build().unwrap();
    let run = agent.thread("t").stream("go");
    while agent.thread("t").info().await.unwrap().is_none_or(|info| info.status != ThreadStatus::Finished) {
        tokio::task::yield_now().await;
    }
    // Read after its end, all of it comes, in order; and then the reply.
    let (events, reply) = collect(run).await;
    assert_eq!(
        brief(&events),
        [
            "run.start",
            "step.start 1",
            "tool.start c",
            "tool.done c",
            "step.done 1 tool_calls",
            "step.start 2",
            "text.delta",
            "text.done done",
            "step.done 2 stop",
            "run.done stop"
        ]
    );
    assert!(events.iter().enumerate().all(|(at, event)| event.seq == at as u64));
    assert_eq!(reply.unwrap().text, "done");
    // A run that fails and that nobody awaits fails nobody else.
    drop(agent.thread("t").stream("again"));
    settle().await;
    assert_eq!(script.times(), 3);
}

/// A store whose append of a run's end waits at a latch.
struct Late(MemoryStore, Latch);

impl StoreLayer for Late {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    fn append<'a>(&'a self, claim: &'a dyn Claim, expected: Seq, append: Append) -> StoreAnswer<'a, ()> {
        async move {
            if append.records.iter().any(|record| matches!(record.body, RecordBody::RunDone { .. })) {
                self.1.hold().await;
            }
            self.0.append(claim, expected, append).await
        }
        .boxed()
    }
}

// rule: sdk-runtime SES-9
#[tokio::test]
async fn the_end_of_a_run_is_told_once_it_is_written_down() {
    let latch = Latch::default();
    let agent = agent(Script::new([say("done")])).store(Late(MemoryStore::new(), latch.clone())).build().unwrap();
    let mut run = agent.thread("t").stream("go");
    let mut other = agent.thread("t").events(Seq(0)).unwrap();
    let before = until(&mut run, |kind| matches!(kind, EventKind::TextDelta { .. })).await;
    latch.reached().await;
    settle().await;
    assert!(run.next().now_or_never().is_none());
    let mut seen = Vec::new();
    while let Some(event) = other.next().now_or_never() {
        seen.push(event.unwrap().unwrap());
    }
    assert!(!brief(&seen).contains(&"run.done stop".to_owned()), "{:?}", brief(&seen));
    latch.release();
    let (rest, reply) = collect(run).await;
    assert_eq!((before.len() + rest.len(), brief(&rest).last().map(String::as_str)), (6, Some("run.done stop")));
    assert!(rest.iter().all(|event| event.run_id == reply.as_ref().unwrap().run_id));
}

// rule: sdk-runtime RUN-7, sdk-runtime RUN-8, sdk-runtime RUN-9
#[tokio::test]
async fn a_stream_is_a_send_that_is_watched() {
    let script = || {
        let called = items_of(vec![Item::text("Whole."), Item::ToolCall(call_item("c", "act", "{}"))], FinishReason::ToolCalls);
        Script::new([called, say("done"), fails(ModelError::new("test", "overloaded"))])
    };
    let mut journals = Vec::new();
    for way in ["send", "stream", "watched"] {
        let store = MemoryStore::new();
        let agent = agent(script()).tool(echo("act")).store(store.clone()).build().unwrap();
        let watching = agent.thread("t").events(Seq(0)).unwrap();
        if way == "send" {
            agent.thread("t").send("go").await.unwrap();
        } else {
            let (events, _) = collect(agent.thread("t").stream("go")).await;
            // A model that does not stream gives its text in one piece.
            let deltas: Vec<_> = events.iter().filter(|event| matches!(event.kind, EventKind::TextDelta { .. })).collect();
            assert_eq!(deltas.len(), 2);
        }
        agent.thread("t").send("again").await.unwrap_err();
        journals.push(kinds(&journal(&store, &id()).await));
        if way == "watched" {
            let ends = watching.map(Result::unwrap).filter(|event| {
                let ends = matches!(event.kind, EventKind::RunDone { .. });
                std::future::ready(ends)
            });
            assert_eq!(brief(&ends.take(2).collect::<Vec<_>>().await), ["run.done stop", "run.done error"]);
        }
    }
    assert_eq!((&journals[0], &journals[1]), (&journals[1], &journals[2]));
    assert!(journals[0].contains(&"model.failed".to_owned()));
}

// rule: sdk-runtime SES-8
// rule: sdk-tools 13.3/1
#[tokio::test]
async fn a_pause_is_an_answer_and_a_decision_goes_on_from_it() {
    let script = Script::new([calls([("c", "ask", "{}")]), say("done")]);
    let agent = agent(script.clone()).tool(asks("ask")).build().unwrap();
    let paused = agent.thread("t").send("go").await.unwrap();
    assert_eq!((paused.finish_reason, paused.pending.len()), (FinishReason::AwaitingApproval, 1));
    assert_eq!(texts(&agent.thread("t").history().await.unwrap()), ["go"]);
    // Decided in the moment it is asked, it is there for whoever goes on.
    agent.approvals().decide(&paused.pending[0].id, Decision::approve()).await.unwrap();
    let reply = agent.thread("t").resume().await.unwrap();
    assert_ne!(reply.run_id, paused.run_id);
    assert_eq!((reply.text.as_str(), reply.steps, script.times()), ("done", 2, 2));
}

// rule: sdk-runtime RUN-6
#[tokio::test]
async fn what_can_not_run_is_a_stream_that_fails_and_writes_nothing() {
    let store = MemoryStore::new();
    let agent = agent(Script::new([])).store(store.clone()).build().unwrap();
    let (events, reply) = collect(agent.thread("t").max_steps(0).stream("go")).await;
    assert!(events.is_empty());
    assert_eq!(reply.unwrap_err().code(), "TOOLWRIGHT_CONFIG_INVALID");
    assert!(agent.thread("t").info().await.unwrap().is_none());
}

// rule: sdk-runtime SES-1, sdk-runtime SES-2
// rule: sdk-runtime SES-6
#[tokio::test]
async fn threads_have_ids_of_their_own_and_no_instructions_in_them() {
    let agent = agent(parrot()).instructions("Be kind.").build().unwrap();
    let (one, two) = (agent.new_thread(), agent.new_thread());
    assert_ne!(one.id().unwrap(), two.id().unwrap());
    one.send("hello").await.unwrap();
    let history = one.history().await.unwrap();
    assert!(history.iter().all(|message| message.author != Author::System));
    // Another handle sees it, and goes on with it.
    let again = agent.thread(one.id().unwrap().as_str());
    assert_eq!(texts(&again.send("more").await.unwrap().messages), ["hello", "re hello", "more", "re more"]);
    // What was read before is a snapshot.
    assert_eq!(history.len(), 2);
    assert!(two.history().await.unwrap().is_empty());
}

// ------------------------------------------------------------------------------------------------------------- stopping

// rule: sdk-runtime CAN-2
#[tokio::test]
async fn a_run_is_stopped_from_another_process() {
    let (store, latch) = (MemoryStore::new(), Latch::default());
    let script = Script::new([calls([("a", "wait", "{}"), ("b", "act", "{}")]), say("next")]);
    let log = Log::default();
    let owner = agent(script.clone()).tool(holding("wait", &latch)).tool(logged("act", &log)).tool_concurrency(1);
    let owner = owner.store(store.clone()).build().unwrap();
    let other = agent(Script::new([])).store(store.clone()).build().unwrap();
    let run = owner.thread("t").stream("go");
    latch.reached().await;
    other.thread("t").cancel("enough").await.unwrap();
    settle().await;
    latch.release();
    let reply = collect(run).await.1.unwrap();
    assert_eq!(reply.finish_reason, FinishReason::Aborted);
    assert_eq!(reply.abort_reason.unwrap().message, "enough");
    assert!(log.all().is_empty() && store.inbox(&id(), 0).await.unwrap().is_empty());
    // At rest it stays as it is, and the next run is not stopped by what came too late.
    other.thread("t").cancel("too late").await.unwrap();
    let late = InboxItem::Cancel { reason: toolwright_core::AbortReason::abort("of the last run"), run: Some(reply.run_id) };
    store.post(&id(), "late", late).await.unwrap();
    owner.worker().until_idle().run(CancellationToken::new()).await.unwrap();
    assert_eq!(owner.thread("t").send("go on").await.unwrap().text, "next");
    // One that is posted while the next run goes on does not stop it either.
    let (store, latch) = (MemoryStore::new(), Latch::default());
    let agent = agent(Script::new([held(&latch, say("done"))])).store(store.clone()).build().unwrap();
    let run = agent.thread("t").stream("go");
    latch.reached().await;
    let late = InboxItem::Cancel { reason: toolwright_core::AbortReason::abort("of another"), run: Some(RunId::new("another")) };
    store.post(&id(), "late", late).await.unwrap();
    settle().await;
    latch.release();
    assert_eq!(collect(run).await.1.unwrap().text, "done");
}

// rule: sdk-runtime CAN-6
#[tokio::test]
async fn a_paused_thread_is_stopped_and_what_waited_gets_its_result() {
    let store = MemoryStore::new();
    let agent = agent(Script::new([calls([("a", "ask", "{}")]), say("next"), calls([("a", "ask", "{}")])]))
        .tool(asks("ask"))
        .store(store.clone())
        .build()
        .unwrap();
    let thread = agent.thread("t");
    let paused = thread.send("go").await.unwrap();
    thread.cancel("never mind").await.unwrap();
    let info = thread.info().await.unwrap().unwrap();
    assert_eq!(info.status, ThreadStatus::Finished);
    assert!(agent.approvals().pending().await.unwrap().is_empty());
    let decided = agent.approvals().decide(&paused.pending[0].id, Decision::approve()).await.unwrap_err();
    assert_eq!(decided.code(), "TOOLWRIGHT_APPROVAL_NOT_FOUND");
    assert_eq!(thread.send("go on").await.unwrap().text, "next");
    // The process that asked died before it could move the thread: a worker sees to it.
    let paused = thread.send("once more").await.unwrap();
    let cancel = InboxItem::Cancel { reason: toolwright_core::AbortReason::abort("stop"), run: Some(paused.run_id) };
    store.post(&id(), "cancel", cancel).await.unwrap();
    agent.worker().until_idle().run(CancellationToken::new()).await.unwrap();
    assert_eq!(thread.info().await.unwrap().unwrap().status, ThreadStatus::Finished);
    let history = thread.history().await.unwrap();
    history.check_balance().unwrap();
    assert_eq!(results(&history).len(), 2);
}

#[tokio::test]
async fn a_cancellation_of_a_paused_run_does_not_stop_the_run_that_a_decision_starts() {
    let (store, latch) = (MemoryStore::new(), Latch::default());
    let tool = {
        let latch = latch.clone();
        Tool::new("ask", "Asks first.")
            .needs_approval()
            .run_json(move |args, _| {
                let latch = latch.clone();
                async move {
                    latch.hold().await;
                    Ok::<_, ToolError>(args)
                }
            })
            .unwrap()
    };
    let agent = agent(Script::new([calls([("a", "ask", "{}")]), say("done")])).tool(tool).store(store.clone()).build().unwrap();
    let paused = agent.thread("t").send("go").await.unwrap();
    agent.approvals().decide(&paused.pending[0].id, Decision::approve()).await.unwrap();
    let run = agent.thread("t").resume_stream();
    latch.reached().await;
    let late = InboxItem::Cancel { reason: toolwright_core::AbortReason::abort("the paused one"), run: Some(paused.run_id) };
    store.post(&id(), "late", late).await.unwrap();
    settle().await;
    latch.release();
    assert_eq!(collect(run).await.1.unwrap().text, "done");
}

// --------------------------------------------------------------------------------------------------------- what it did

// rule: sdk-runtime FRK-1, sdk-runtime FRK-2
#[tokio::test]
async fn the_steps_of_a_thread_are_listed() {
    let store = MemoryStore::new();
    let latch = Latch::default();
    let broken = items_of(vec![Item::text("I try."), Item::ToolCall(call_item("b", "act", "{no json"))], FinishReason::ToolCalls);
    let answers = [calls([("a", "act", r#"{ "n" : 1 }"#), ("x", "none", "")]), broken, held(&latch, say("one")), say("more"), say("two")];
    let agent = agent(Script::new(answers)).tool(echo("act")).store(store.clone()).build().unwrap();
    let thread = agent.thread("t");
    let run = thread.stream("first");
    latch.reached().await;
    run.enqueue("also").await.unwrap();
    settle().await;
    latch.release();
    collect(run).await.1.unwrap();
    thread.send("second").await.unwrap();
    let steps = thread.steps().await.unwrap();
    assert_eq!(steps.finish_reason, Some(FinishReason::Stop));
    let steps = steps.steps;
    let short: Vec<(u32, u32, &str)> = steps.iter().map(|step| (step.step, step.turn, step.text.as_str())).collect();
    assert_eq!(short, [(1, 0, ""), (2, 0, "I try."), (3, 0, "one"), (4, 1, "more"), (5, 2, "two")]);
    let calls = &steps[0].tool_calls;
    assert_eq!((calls[0].id.as_str(), &calls[0].args, &calls[0].result), ("a", &json!({ "n": 1 }), &Some(json!({ "n": 1 }))));
    assert_eq!((calls[1].name.as_str(), &calls[1].args, calls[1].failed), ("none", &json!({}), true));
    assert_eq!((&steps[1].tool_calls[0].args, steps[1].tool_calls[0].failed), (&json!("{no json"), true));
    // The position is that of the model's reply.
    let records = thread.records().await.unwrap();
    for step in &steps {
        let record = records.iter().find(|record| record.seq == step.at).unwrap();
        assert!(matches!(&record.body, RecordBody::ModelReplied { step: of, .. } if *of == step.step));
    }
    let unknown = agent.thread("nobody").steps().await.unwrap_err();
    assert_eq!((unknown.code(), unknown.to_string().contains("nobody")), ("TOOLWRIGHT_SESSION_NOT_FOUND", true));
    // A step that goes on has calls without results.
    let cut = records.iter().position(|record| matches!(record.body, RecordBody::CallDone { .. })).unwrap();
    let store = store_of(&id(), &records[..=cut]).await;
    let part = common::agent(Script::new([])).store(store).build().unwrap().thread("t").steps().await.unwrap();
    assert_eq!((part.finish_reason, part.steps.len()), (None, 1));
    assert!(part.steps[0].tool_calls.iter().any(|call| call.result.is_none()));
}

// rule: sdk-runtime HIS-9
#[tokio::test]
async fn two_threads_are_compared() {
    let store = MemoryStore::new();
    let run = async |id: &str, answers: Vec<Answer>| {
        let agent = agent(Script::new(answers)).tool(echo("act")).tool(echo("look")).max_steps(2).store(store.clone()).build().unwrap();
        agent.thread(id).send("go").await.unwrap();
        agent
    };
    let agent = run("a", vec![calls([("1", "act", r#"{"n":1}"#)]), say("done")]).await;
    run("same", vec![calls([("other", "act", r#"{"n":1}"#)]), say("done")]).await;
    run("args", vec![calls([("1", "act", r#"{"n":2}"#)]), say("done")]).await;
    run("order", vec![calls([("1", "look", r#"{"n":1}"#)]), say("done")]).await;
    run("short", vec![say("done")]).await;
    run("longer", vec![calls([("1", "act", r#"{"n":1}"#)]), calls([("2", "act", r#"{"n":1}"#)])]).await;
    let mut found = Vec::new();
    for other in ["same", "args", "order", "short", "longer"] {
        let compared = agent.thread("a").compare(&ThreadId::new(other).unwrap()).await.unwrap();
        assert_eq!(compared.a.len(), 2);
        let drift = compared.drift;
        found.push((compared.diverged_at, [drift.tool_order, drift.args, drift.step_count, drift.finish_reason]));
    }
    assert_eq!(
        found,
        [
            (None, [false; 4]),
            (Some(0), [false, true, false, false]),
            (Some(0), [true, false, false, false]),
            (Some(0), [true, false, true, false]),
            (Some(1), [true, false, false, true]),
        ]
    );
    let unknown = agent.thread("a").compare(&ThreadId::new("b").unwrap()).await.unwrap_err();
    assert_eq!(unknown.code(), "TOOLWRIGHT_SESSION_NOT_FOUND");
}

// ------------------------------------------------------------------------------------------------- clear, delete, prune

// rule: sdk-runtime SES-11
// rule: sdk-runtime LIS-3
#[tokio::test]
async fn a_thread_is_emptied_and_keeps_its_journal() {
    let (store, latch) = (MemoryStore::new(), Latch::default());
    let answers = [say("one"), held(&latch, say("two")), calls([("c", "ask", "{}")]), say("three")];
    let agent = agent(Script::new(answers)).tool(asks("ask")).store(store.clone()).build().unwrap();
    let thread = agent.thread("t");
    assert_eq!(thread.clear().await.unwrap_err().code(), "TOOLWRIGHT_SESSION_NOT_FOUND");
    thread.send("first").await.unwrap();
    store.data().set_value(&id(), Shelf::Values, "k", Some("1".into()), None).await.unwrap();
    thread.clear().await.unwrap();
    assert!(thread.history().await.unwrap().is_empty());
    let head = thread.info().await.unwrap().unwrap().head;
    // Empty, it stays as it is.
    thread.clear().await.unwrap();
    assert_eq!(thread.info().await.unwrap().unwrap().head, head);
    assert!(store.data().value(&id(), Shelf::Values, "k").await.unwrap().is_some());
    let events: Vec<_> = thread.events_so_far(Seq(head.0 - 1)).unwrap().map(Result::unwrap).collect().await;
    assert!(
        matches!(&events[..], [event] if matches!(&event.kind, EventKind::ContextCleared { session_id, messages_cleared: 2 } if *session_id == id()))
    );
    // Steps are numbered on, and what was said is still in the journal.
    let run = thread.stream("second");
    latch.reached().await;
    assert_eq!(thread.clear().await.unwrap_err().code(), "TOOLWRIGHT_SESSION_BUSY");
    latch.release();
    assert_eq!(texts(&collect(run).await.1.unwrap().messages), ["second", "two"]);
    let steps: Vec<(u32, String)> = thread.steps().await.unwrap().steps.into_iter().map(|step| (step.step, step.text)).collect();
    assert_eq!(steps, [(1, "one".to_owned()), (2, "two".to_owned())]);
    let paused = thread.send("third").await.unwrap();
    assert_eq!(thread.clear().await.unwrap_err().code(), "TOOLWRIGHT_SESSION_AWAITING_APPROVAL");
    assert_eq!(paused.pending.len(), 1);
    let store = interrupted().await;
    let left = common::agent(parrot()).store(store).build().unwrap();
    assert_eq!(left.thread("t").clear().await.unwrap_err().code(), "TOOLWRIGHT_SESSION_TURN_PENDING");
}

// rule: sdk-runtime DUR-12
#[tokio::test]
async fn a_deleted_thread_is_gone_with_all_it_had() {
    let (store, latch) = (MemoryStore::new(), Latch::default());
    let clock = Arc::new(FixedClock::at(Timestamp(1_000)));
    let agent = agent(Script::new([held(&latch, say("one")), say("again")])).store(store.clone()).clock(Shared(clock)).build().unwrap();
    let thread = agent.thread("t");
    let run = thread.stream("first");
    latch.reached().await;
    assert_eq!(thread.delete().await.unwrap_err().code(), "TOOLWRIGHT_SESSION_BUSY");
    latch.release();
    collect(run).await.1.unwrap();
    store.data().set_value(&id(), Shelf::Values, "k", Some("1".into()), None).await.unwrap();
    thread.enqueue("more").await.unwrap();
    thread.enqueue_at(Timestamp(9_000), "later").await.unwrap();
    thread.delete().await.unwrap();
    assert!(thread.info().await.unwrap().is_none());
    assert!(store.data().value(&id(), Shelf::Values, "k").await.unwrap().is_none());
    assert!(store.inbox(&id(), 0).await.unwrap().is_empty() && store.unfinished(None, 10).await.unwrap().is_empty());
    assert!(store.post_due(Timestamp(10_000), 10).await.unwrap().is_empty());
    assert_eq!(thread.delete().await.unwrap_err().code(), "TOOLWRIGHT_SESSION_NOT_FOUND");
    // The id is free for another.
    assert_eq!(texts(&thread.send("hello").await.unwrap().messages), ["hello", "again"]);
    // One that has only input waiting can be deleted too.
    agent.thread("u").enqueue("x").await.unwrap();
    agent.thread("u").delete().await.unwrap();
    assert!(store.unfinished(None, 10).await.unwrap().is_empty());
}

/// One clock for a test and an agent.
struct Shared(Arc<FixedClock>);

impl toolwright_runtime::Clock for Shared {
    fn now(&self) -> Timestamp {
        self.0.now()
    }
}

// rule: sdk-runtime STO-6
#[tokio::test]
async fn pruning_takes_only_what_is_finished_and_old() {
    let store = MemoryStore::new();
    let clock = Arc::new(FixedClock::at(Timestamp(1_000)));
    let answers = [say("1"), say("2"), say("3"), calls([("c", "ask", "{}")]), say("4")];
    let agent = agent(Script::new(answers)).tool(asks("ask")).store(store.clone()).clock(Shared(Arc::clone(&clock))).build().unwrap();
    for id in ["old", "moved", "asked", "paused"] {
        agent.thread(id).send("go").await.unwrap();
    }
    agent.thread("asked").enqueue("wait for me").await.unwrap();
    let claim = store.claim(&ThreadId::new("moved").unwrap()).await.unwrap();
    clock.advance(1_000);
    agent.thread("new").send("go").await.unwrap();
    let pruned = agent.threads().prune(Timestamp(2_000)).await.unwrap();
    assert_eq!(pruned, [ThreadId::new("old").unwrap()]);
    drop(claim);
    assert_eq!(agent.threads().prune(Timestamp(2_000)).await.unwrap(), [ThreadId::new("moved").unwrap()]);
    let left: Vec<String> = agent.threads().list(&ThreadQuery::default()).await.unwrap().items.iter().map(|i| i.id.to_string()).collect();
    assert_eq!(left, ["new", "paused", "asked"]);
}

/// A store that counts how often it is asked for anything.
struct Counted(MemoryStore, Arc<AtomicUsize>);

impl StoreLayer for Counted {
    fn inner(&self) -> &dyn Store {
        self.1.fetch_add(1, Ordering::SeqCst);
        &self.0
    }
}

// rule: sdk-runtime DATA-5
#[tokio::test]
async fn an_id_with_odd_characters_is_refused_before_the_store_is_asked() {
    let asked = Arc::new(AtomicUsize::new(0));
    let agent = agent(Script::new([])).tool(echo("act")).store(Counted(MemoryStore::new(), Arc::clone(&asked))).build().unwrap();
    let long = "x".repeat(129);
    for id in ["", "../x", "a/b", "a.b", "a b", "é", "a\0b", long.as_str()] {
        let thread = agent.thread(id);
        let errors = [
            thread.send("x").await.err(),
            thread.clone().turn_policy(TurnPolicy::Queue).send("x").await.err(),
            thread.resume().await.err(),
            thread.invoke("act", "{}").await.err(),
            thread.cancel("x").await.err(),
            thread.enqueue("x").await.err(),
            thread.steer("x").await.err(),
            thread.enqueue_at(Timestamp(1), "x").await.err(),
            thread.history().await.err(),
            thread.steps().await.err(),
            thread.records().await.err(),
            thread.info().await.err(),
            thread.events(Seq(0)).err(),
            thread.events_so_far(Seq(0)).err(),
            thread.clear().await.err(),
            thread.delete().await.err(),
            thread.fork(0, ForkPatch::new()).await.err(),
            agent.thread("good").fork(0, ForkPatch::new().id(id)).await.err(),
            thread.compare(&ThreadId::new("b").unwrap()).await.err(),
            thread.id().err(),
        ];
        for (at, error) in errors.into_iter().enumerate() {
            let error = error.unwrap_or_else(|| panic!("{at} of {id:?}"));
            assert_eq!(error.code(), "TOOLWRIGHT_SESSION_ID_INVALID", "{at} of {id:?}: {error}");
        }
    }
    assert_eq!(asked.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn decisions_and_input_of_other_threads_are_left_alone() {
    // Ids that begin alike, or differ in case, are not one thread.
    let store = MemoryStore::new();
    let agent = agent(parrot()).store(store.clone()).build().unwrap();
    for id in ["a", "A", "a-", "a-b"] {
        agent.thread(id).enqueue(format!("for {id}")).await.unwrap();
    }
    for id in ["a", "A", "a-", "a-b"] {
        assert_eq!(agent.thread(id).resume().await.unwrap().text, format!("re for {id}"));
    }
}
