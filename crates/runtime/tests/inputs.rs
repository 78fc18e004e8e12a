//! Input that comes while a run goes on: queued, steering, and what becomes of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod common;

use std::sync::Arc;

use common::*;
use futures_util::{StreamExt, stream};
use tokio_util::sync::CancellationToken;
use toolwright_core::{
    Decision, Event, EventKind, FinishReason, InputMode, Item, Message, Record, RecordBody, Seq, ThreadId, ToolFailureKind, Transcript,
};
use toolwright_runtime::{
    Agent, AgentError, InboxItem, Joined, MemoryStore, ModelError, ModelEvent, ModelReply, ModelRequest, Reply, Store, ThreadStatus, Ticket,
};
use toolwright_tool::{Tool, ToolError};

fn id() -> ThreadId {
    ThreadId::new("t").unwrap()
}

/// What a model sees: author and text, or calls, or results, of each message.
fn seen(transcript: &Transcript) -> Vec<String> {
    transcript
        .iter()
        .map(|message| {
            let calls: Vec<String> = message.calls().map(|call| call.call_id.to_string()).collect();
            let results: Vec<String> = message
                .results()
                .map(|result| format!("{}{}", result.call_id, if result.failed.is_some() { " failed" } else { "" }))
                .collect();
            format!("{}: {}{}{}", message.author.as_str(), message.text_of(), calls.join(" "), results.join(" "))
        })
        .collect()
}

/// Says `before`, waits at the latch, and then goes on with `after`.
fn held(latch: &Latch, before: Vec<ModelEvent>, after: Vec<ModelEvent>) -> Answer {
    let latch = latch.clone();
    Box::new(move |_| {
        let rest = stream::once(async move {
            latch.hold().await;
            stream::iter(after.into_iter().map(Ok))
        });
        stream::iter(before.into_iter().map(Ok)).chain(rest.flatten()).boxed()
    })
}

fn done(text: &str) -> ModelEvent {
    ModelEvent::Done(reply(vec![Item::text(text)], FinishReason::Stop))
}

fn word(text: &str) -> ModelEvent {
    ModelEvent::TextDelta(text.to_owned())
}

fn asks(name: &str) -> Tool {
    Tool::new(name, "Asks first.").needs_approval().run_json(|args, _| async move { Ok::<_, ToolError>(args) }).unwrap()
}

/// The events of a thread as they stand in its journal.
async fn told(agent: &Agent) -> Vec<Event> {
    let events: Vec<_> = agent.thread("t").events_so_far(Seq(0)).unwrap().collect().await;
    events.into_iter().map(Result::unwrap).collect()
}

fn inputs_of(records: &[Arc<Record>]) -> Vec<String> {
    records
        .iter()
        .filter_map(|record| match &record.body {
            RecordBody::InputQueued { mode, immediate, .. } => Some(format!("queued {mode}{}", if *immediate { " at once" } else { "" })),
            RecordBody::InputApplied { step, .. } => Some(format!("applied {step}")),
            RecordBody::InputReturned { .. } => Some("returned".to_owned()),
            RecordBody::RunDone { finish, .. } => Some(format!("done {finish}")),
            _ => None,
        })
        .collect()
}

/// What became of a ticket, without the run.
async fn fate(ticket: &Ticket) -> String {
    match within(ticket.outcome()).await.unwrap() {
        Joined::Run { step, immediate, .. } => format!("step {step}{}", if immediate { " at once" } else { "" }),
        Joined::Returned => "returned".to_owned(),
        other => panic!("{other:?}"),
    }
}

// ---------------------------------------------------------------------------------------------------------------- queued

// rule: sdk-runtime QUE-1, sdk-runtime QUE-3, sdk-runtime ORD-6
// rule: sdk-runtime LOOP-4
#[tokio::test]
async fn input_queued_while_a_tool_runs_joins_after_its_results_in_its_order() {
    let latch = Latch::default();
    let script = Script::new([calls([("a", "wait", "{}"), ("b", "act", "{}")]), say("done")]);
    let agent = agent(script.clone()).tool(holding("wait", &latch)).tool(echo("act")).build().unwrap();
    let run = agent.thread("t").stream("go");
    latch.reached().await;
    let first = run.enqueue("one").await.unwrap();
    let second = run.enqueue(vec![Message::human("two"), Message::human("three")]).await.unwrap();
    latch.release();
    let (events, reply) = collect(run).await;
    let reply = reply.unwrap();
    assert_eq!(
        seen(&reply.messages),
        ["human: go", "side_a: a b", "tool: a b", "human: one", "human: two", "human: three", "side_a: done"]
    );
    assert_eq!((fate(&first).await, fate(&second).await), ("step 2".to_owned(), "step 2".to_owned()));
    assert!(first.joined_run().await.unwrap());
    let events = brief(&events);
    let at = |what: &str| events.iter().position(|event| event == what).unwrap();
    assert_eq!(
        events[at("step.done 1 tool_calls")..],
        [
            "step.done 1 tool_calls",
            "input.applied",
            "input.applied",
            "step.start 2",
            "text.delta",
            "text.done done",
            "step.done 2 stop",
            "run.done stop"
        ]
    );
    assert!(at("run.start") < at("input.queued") && at("input.queued") < at("step.done 1 tool_calls"), "{events:?}");
    // The ids of events are those of the tickets.
    let named: Vec<_> = told(&agent)
        .await
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::InputQueued { id, text } => Some((id.clone(), text.clone())),
            _ => None,
        })
        .collect();
    assert_eq!(named, [(first.id().unwrap().clone(), "one".to_owned()), (second.id().unwrap().clone(), "two\nthree".to_owned())]);
}

// rule: sdk-runtime QUE-2
#[tokio::test]
async fn input_queued_while_the_model_writes_its_last_reply_makes_one_more_step() {
    let latch = Latch::default();
    let script = Script::new([held(&latch, vec![word("Hel")], vec![word("lo"), done("Hello")]), say("and more")]);
    let agent = agent(script.clone()).build().unwrap();
    let run = agent.thread("t").stream("go");
    latch.reached().await;
    let ticket = run.control().unwrap().enqueue("and?").await.unwrap();
    latch.release();
    let reply = collect(run).await.1.unwrap();
    assert_eq!((reply.text.as_str(), reply.steps, script.times()), ("and more", 2, 2));
    assert_eq!(seen(&reply.messages), ["human: go", "side_a: Hello", "human: and?", "side_a: and more"]);
    assert_eq!(fate(&ticket).await, "step 2");
}

// rule: sdk-runtime QUE-1
#[tokio::test]
async fn another_process_may_queue_by_the_thread_alone() {
    let (store, latch) = (MemoryStore::new(), Latch::default());
    let script = Script::new([calls([("a", "wait", "{}")]), say("done")]);
    let owner = agent(script).tool(holding("wait", &latch)).store(store.clone()).build().unwrap();
    let other = agent(Script::new([])).store(store.clone()).build().unwrap();
    let run = owner.thread("t").stream("go");
    latch.reached().await;
    let ticket = other.thread("t").enqueue("also this").await.unwrap();
    latch.release();
    let reply = collect(run).await.1.unwrap();
    assert_eq!(seen(&reply.messages), ["human: go", "side_a: a", "tool: a", "human: also this", "side_a: done"]);
    assert_eq!(within(ticket.outcome()).await.unwrap(), Joined::Run { run: Some(reply.run_id), step: 2, immediate: false });
    assert!(store.inbox(&id(), 0).await.unwrap().is_empty());
}

#[tokio::test]
async fn what_is_no_input_is_refused_before_it_is_posted() {
    let store = MemoryStore::new();
    let agent = agent(Script::new([])).store(store.clone()).build().unwrap();
    let thread = agent.thread("t");
    let mut called = Message::human("x");
    called.items.push(Item::ToolCall(call_item("c", "act", "{}")));
    assert!(matches!(thread.enqueue(" ").await.err().unwrap(), AgentError::MissingInput));
    assert!(matches!(thread.steer(vec![called]).await.err().unwrap(), AgentError::Unbalanced { .. }));
    assert_eq!(agent.thread("a/b").enqueue("x").await.err().unwrap().code(), "TOOLWRIGHT_SESSION_ID_INVALID");
    assert!(store.inbox(&id(), 0).await.unwrap().is_empty());
}

/// A run that ends in a way of its own while input for it waits; gives its end, and the ticket's.
async fn ended_with_input_waiting(how: &str, to_thread: bool) -> (String, String, Agent, MemoryStore) {
    let (store, latch) = (MemoryStore::new(), Latch::default());
    let answers: Vec<Answer> = match how {
        "failure" => vec![calls([("a", "wait", "{}")])],
        "pause" => vec![calls([("a", "wait", "{}"), ("b", "ask", "{}")]), say("decided"), say("later")],
        _ => vec![calls([("a", "wait", "{}")]), say("later"), say("later")],
    };
    let mut builder = agent(Script::new(answers)).tool(asks("ask")).store(store.clone());
    builder = if how == "failure" {
        let held = latch.clone();
        let tool = Tool::new("wait", "Fails for good.").run_json(move |_, _| {
            let held = held.clone();
            async move {
                held.hold().await;
                Err::<(), _>(ToolError::propagate(ToolError::new("broken")))
            }
        });
        builder.tool(tool.unwrap())
    } else {
        builder.tool(holding("wait", &latch))
    };
    let agent = builder.max_steps(if how == "max-steps" { 1 } else { 10 }).build().unwrap();
    let thread = agent.thread("t");
    let run = thread.stream("go");
    latch.reached().await;
    let ticket = if to_thread { thread.enqueue("more").await.unwrap() } else { run.enqueue("more").await.unwrap() };
    // Taken before the run ends: it stands in the journal.
    while !journal(&store, &id()).await.iter().any(|record| matches!(record.body, RecordBody::InputQueued { .. })) {
        tokio::task::yield_now().await;
    }
    if how == "abort" {
        run.cancel("enough");
    }
    latch.release();
    let (_, reply) = collect(run).await;
    let end = match reply {
        Ok(reply) => reply.finish_reason.to_string(),
        Err(error) => error.code().to_owned(),
    };
    let fate = if to_thread { "waits".to_owned() } else { fate(&ticket).await };
    (end, fate, agent, store)
}

// rule: sdk-runtime QUE-4
#[tokio::test]
async fn input_for_a_run_that_ends_without_it_goes_back() {
    for (how, end) in
        [("abort", "aborted"), ("max-steps", "max-steps"), ("pause", "awaiting-approval"), ("failure", "TOOLWRIGHT_TOOL_EXECUTION_FAILED")]
    {
        let (ended, fate, agent, store) = ended_with_input_waiting(how, false).await;
        assert_eq!((ended.as_str(), fate.as_str()), (end, "returned"), "{how}");
        // It does not come back with the next run.
        let records = journal(&store, &id()).await;
        assert_eq!(inputs_of(&records)[..2], ["queued queue", "returned"], "{how}");
        let returned = told(&agent).await.iter().any(|event| matches!(event.kind, EventKind::InputReturned { .. }));
        assert!(returned, "{how}");
        let status = agent.thread("t").info().await.unwrap().unwrap().status;
        assert_eq!(status, if how == "pause" { ThreadStatus::AwaitingApproval } else { ThreadStatus::Finished });
    }
}

// rule: sdk-runtime QUE-5
#[tokio::test]
async fn input_for_a_thread_outlives_the_end_of_a_run() {
    for how in ["abort", "max-steps", "failure"] {
        let (_, _, agent, store) = ended_with_input_waiting(how, true).await;
        // It is not lost, and a worker sees that there is something to do.
        assert_eq!(agent.thread("t").info().await.unwrap().unwrap().status, ThreadStatus::InProgress, "{how}");
        assert_eq!(store.unfinished(None, 10).await.unwrap(), [id()], "{how}");
        // What failed has used the script up; everywhere else the next run takes the input, with steps of its own.
        let reply = agent.thread("t").resume().await;
        let records = journal(&store, &id()).await;
        assert_eq!(inputs_of(&records)[2], "applied 2", "{how}");
        if how != "failure" {
            assert_eq!(reply.unwrap().text, "later", "{how}");
        }
        assert!(store.unfinished(None, 10).await.unwrap().is_empty(), "{how}");
    }
    let (_, _, agent, store) = ended_with_input_waiting("pause", true).await;
    // Nothing slips past the decision.
    assert_eq!(agent.thread("t").resume().await.unwrap_err().code(), "TOOLWRIGHT_SESSION_AWAITING_APPROVAL");
    assert!(store.unfinished(None, 10).await.unwrap().is_empty());
    let pending = agent.approvals().pending().await.unwrap();
    agent.approvals().decide(&pending[0].id, Decision::approve()).await.unwrap();
    let reply = agent.thread("t").resume().await.unwrap();
    assert_eq!(seen(&reply.messages), ["human: go", "side_a: a b", "tool: a b", "human: more", "side_a: decided"]);
}

// rule: sdk-runtime QUE-4
// rule: sdk-runtime STE-7
#[tokio::test]
async fn input_for_a_run_that_is_over_is_not_taken() {
    let store = MemoryStore::new();
    let agent = agent(Script::new([say("done"), say("again")])).store(store.clone()).build().unwrap();
    let mut run = agent.thread("t").stream("go");
    let control = run.control().unwrap();
    while run.next().await.is_some() {}
    run.await.unwrap();
    for ticket in [control.enqueue("late").await.unwrap(), control.steer("late").await.unwrap()] {
        assert_eq!((ticket.id(), within(ticket.outcome()).await.unwrap()), (None, Joined::Returned));
    }
    assert!(store.inbox(&id(), 0).await.unwrap().is_empty());
    // A run that never began takes nothing either.
    let refused = agent.thread("t").resume_stream();
    assert!(!refused.enqueue("x").await.unwrap().joined_run().await.unwrap());
    let invalid = agent.thread("a/b").stream("go");
    assert_eq!(invalid.steer("x").await.err().unwrap().code(), "TOOLWRIGHT_SESSION_ID_INVALID");
    assert_eq!(agent.thread("t").send("next").await.unwrap().text, "again");
}

#[tokio::test]
async fn input_that_is_posted_in_the_moment_a_run_ends_is_answered() {
    let (store, latch) = (MemoryStore::new(), Latch::default());
    let script = Script::new([held(&latch, vec![], vec![done("done")]), say("again")]);
    let agent = agent(script).store(Held::on_run_done(store.clone(), &latch)).build().unwrap();
    let run = agent.thread("t").stream("go");
    latch.reached().await;
    latch.release();
    // The record of the run's end is on its way.
    latch.reached().await;
    let to_run = run.enqueue("late").await.unwrap();
    let to_thread = agent.thread("t").enqueue("later").await.unwrap();
    latch.release();
    collect(run).await.1.unwrap();
    assert_eq!(fate(&to_run).await, "returned");
    assert_eq!(store.unfinished(None, 10).await.unwrap(), [id()]);
    assert_eq!(agent.thread("t").resume().await.unwrap().text, "again");
    assert_eq!(fate(&to_thread).await, "step 2");
    assert_eq!(fate(&to_run).await, "returned");
}

/// A store whose append of a run's end waits at a latch.
struct Held(MemoryStore, Latch);

impl Held {
    fn on_run_done(store: MemoryStore, latch: &Latch) -> Self {
        Self(store, latch.clone())
    }
}

impl toolwright_runtime::StoreLayer for Held {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    fn append<'a>(
        &'a self,
        claim: &'a dyn toolwright_runtime::Claim,
        expected: Seq,
        append: toolwright_runtime::Append,
    ) -> toolwright_runtime::Answer<'a, ()> {
        Box::pin(async move {
            let first = expected < Seq(10) && append.records.iter().any(|record| matches!(record.body, RecordBody::RunDone { .. }));
            if first && self.0.read(claim.thread(), Seq(0), 100).await?.iter().all(|r| !matches!(r.body, RecordBody::RunDone { .. })) {
                self.1.hold().await;
            }
            self.0.append(claim, expected, append).await
        })
    }
}

// ---------------------------------------------------------------------------------------------------- at rest, and paused

// rule: sdk-runtime ORD-6
#[tokio::test]
async fn input_for_a_thread_at_rest_waits_for_whoever_moves_it_next() {
    let store = MemoryStore::new();
    let script = Script::new([say("one"), say("two"), say("three"), say("four")]);
    let agent = agent(script.clone()).store(store.clone()).build().unwrap();
    let thread = agent.thread("t");
    // It need not exist yet.
    let first = thread.enqueue("first").await.unwrap();
    assert_eq!(thread.resume().await.unwrap().text, "one");
    assert_eq!(fate(&first).await, "step 1");
    // It stands before what is sent.
    let second = thread.steer("second").await.unwrap();
    let reply = thread.send("third").await.unwrap();
    assert_eq!(seen(&reply.messages), ["human: first", "side_a: one", "human: second", "human: third", "side_a: two"]);
    assert_eq!(fate(&second).await, "step 2");
    // A worker takes it too, and nothing is left to do then.
    let third = thread.enqueue("fourth").await.unwrap();
    agent.worker().until_idle().run(CancellationToken::new()).await.unwrap();
    assert_eq!(fate(&third).await, "step 3");
    assert_eq!(script.times(), 3);
    assert_eq!(thread.resume().await.unwrap_err().code(), "TOOLWRIGHT_CHECKPOINT_NOT_FOUND");
    // Every piece of input is told of inside the run that takes it.
    let events = told(&agent).await;
    let mut inside = false;
    for event in brief(&events) {
        match event.as_str() {
            "run.start" => inside = true,
            "run.done stop" => inside = false,
            "input.queued" | "input.applied" => assert!(inside),
            _ => {}
        }
    }
    assert!(events.iter().all(|event| !event.run_id.as_str().is_empty()));
}

#[tokio::test]
async fn a_direct_call_leaves_input_for_the_next_run() {
    let store = MemoryStore::new();
    let agent = agent(Script::new([say("done")])).tool(echo("act")).store(store.clone()).build().unwrap();
    let thread = agent.thread("t");
    thread.enqueue("hello").await.unwrap();
    let reply = thread.invoke("act", "{}").await.unwrap();
    assert!(reply.outcome.is_some() && reply.messages.is_empty());
    assert_eq!(store.unfinished(None, 10).await.unwrap(), [id()]);
    assert_eq!(seen(&thread.resume().await.unwrap().messages), ["human: hello", "side_a: done"]);
}

// rule: sdk-runtime STE-3
#[tokio::test]
async fn steering_a_paused_thread_waits_for_the_decision() {
    let store = MemoryStore::new();
    let script = Script::new([calls([("a", "ask", "{}")]), say("done")]);
    let agent = agent(script.clone()).tool(asks("ask")).store(store.clone()).build().unwrap();
    let thread = agent.thread("t");
    let reply = thread.send("go").await.unwrap();
    let ticket = thread.steer("rather not").await.unwrap();
    assert_eq!(thread.resume().await.unwrap_err().code(), "TOOLWRIGHT_SESSION_AWAITING_APPROVAL");
    // Looked at once, it is put down: a worker does not look at it again and again.
    assert!(store.unfinished(None, 10).await.unwrap().is_empty());
    assert_eq!(agent.approvals().pending().await.unwrap().len(), 1);
    agent.approvals().decide(&reply.pending[0].id, Decision::approve()).await.unwrap();
    let reply = thread.resume().await.unwrap();
    assert_eq!(seen(&reply.messages), ["human: go", "side_a: a", "tool: a", "human: rather not", "side_a: done"]);
    assert_eq!(fate(&ticket).await, "step 2");
}

// -------------------------------------------------------------------------------------------------------------- steering

// rule: sdk-runtime STE-1, sdk-runtime STE-5, sdk-runtime STE-8, sdk-runtime ORD-7, sdk-runtime 57/4
#[tokio::test]
async fn steering_gives_up_a_model_that_has_said_nothing() {
    let thinking = vec![ModelEvent::ReasoningDelta("Hm.".to_owned())];
    for before in [vec![], thinking] {
        let thinks = !before.is_empty();
        // The model looks at no signal, and would never end.
        let script = Script::new([then_silence(before), say("done")]);
        let agent = agent(script.clone()).build().unwrap();
        let mut run = agent.thread("t").stream("go");
        let mut events = until(&mut run, |kind| {
            if thinks { matches!(kind, EventKind::ReasoningDelta { .. }) } else { matches!(kind, EventKind::StepStart { .. }) }
        })
        .await;
        while script.times() == 0 {
            tokio::task::yield_now().await;
        }
        let ticket = run.steer("the other one").await.unwrap();
        let (rest, reply) = collect(run).await;
        events.extend(rest);
        let mut expected = vec!["run.start", "step.start 1"];
        if thinks {
            expected.extend(["reasoning.start", "reasoning.delta"]);
        }
        expected.push("input.steered");
        if thinks {
            expected.push("reasoning.done Hm.");
        }
        expected.extend([
            "step.done 1 steered",
            "input.applied",
            "step.start 2",
            "text.delta",
            "text.done done",
            "step.done 2 stop",
            "run.done stop",
        ]);
        assert_eq!(brief(&events), expected);
        let steered = events.iter().find_map(|event| match &event.kind {
            EventKind::InputSteered { id, text, mode } => Some((id.clone(), text.clone(), mode.clone())),
            _ => None,
        });
        assert_eq!(steered.unwrap(), (ticket.id().unwrap().clone(), "the other one".to_owned(), "immediate".to_owned()));
        let reply = reply.unwrap();
        assert_eq!(seen(&reply.messages), ["human: go", "human: the other one", "side_a: done"]);
        assert_eq!((reply.steps, fate(&ticket).await), (2, "step 2 at once".to_owned()));
        assert!(script.asked()[0].cancelled.is_cancelled());
        // What the model had not said is in no record.
        let replies = journal_of(&agent).await.iter().filter(|record| matches!(record.body, RecordBody::ModelReplied { .. })).count();
        assert_eq!(replies, 1);
    }
}

async fn journal_of(agent: &Agent) -> Vec<Arc<Record>> {
    agent.thread("t").records().await.unwrap()
}

// rule: sdk-runtime STE-2
#[tokio::test]
async fn steering_after_text_or_a_call_was_begun_is_queued() {
    let call = ModelEvent::CallDelta { index: 0, name: Some("act".to_owned()), arguments: String::new() };
    let called = || ModelEvent::Done(reply(vec![Item::ToolCall(call_item("a", "act", "{}"))], FinishReason::ToolCalls));
    for (before, after, expected) in [
        (word("Hel"), vec![word("lo"), done("Hello")], vec!["human: go", "side_a: Hello", "human: stop", "side_a: done"]),
        (call, vec![called()], vec!["human: go", "side_a: a", "tool: a failed", "human: stop", "side_a: done"]),
    ] {
        let latch = Latch::default();
        let script = Script::new([held(&latch, vec![before], after), say("done")]);
        let log = Log::default();
        let agent = agent(script.clone()).tool(logged("act", &log)).build().unwrap();
        let run = agent.thread("t").stream("go");
        latch.reached().await;
        let ticket = run.steer("stop").await.unwrap();
        while !journal_of(&agent).await.iter().any(|record| matches!(record.body, RecordBody::InputQueued { .. })) {
            tokio::task::yield_now().await;
        }
        latch.release();
        let reply = collect(run).await.1.unwrap();
        assert_eq!(seen(&reply.messages), expected);
        assert_eq!((fate(&ticket).await, log.len()), ("step 2".to_owned(), 0));
        let mode = told(&agent).await.into_iter().find_map(|event| match event.kind {
            EventKind::InputSteered { mode, .. } => Some(mode),
            _ => None,
        });
        assert_eq!(mode.as_deref(), Some("queued"));
    }
}

// rule: sdk-runtime STE-3
#[tokio::test]
async fn steering_lets_running_calls_end_and_begins_no_other() {
    let (latch, log) = (Latch::default(), Log::default());
    let script = Script::new([calls([("a", "wait", "{}"), ("b", "act", "{}"), ("c", "ask", "{}")]), say("done")]);
    let builder = agent(script.clone()).tool(holding("wait", &latch)).tool(logged("act", &log)).tool(asks("ask"));
    let agent = builder.tool_concurrency(1).build().unwrap();
    let run = agent.thread("t").stream("go");
    latch.reached().await;
    let ticket = run.steer("something else").await.unwrap();
    while journal_of(&agent).await.iter().filter(|record| matches!(record.body, RecordBody::CallDone { .. })).count() < 2 {
        tokio::task::yield_now().await;
    }
    latch.release();
    let reply = collect(run).await.1.unwrap();
    assert_eq!(seen(&reply.messages), ["human: go", "side_a: a b c", "tool: a b failed c failed", "human: something else", "side_a: done"]);
    let failed = failures(&reply.messages);
    assert!(
        failed.iter().all(|(_, kind, _, message)| *kind == ToolFailureKind::NotRun && message.contains("new input came")),
        "{failed:?}"
    );
    assert_eq!((fate(&ticket).await, log.len()), ("step 2".to_owned(), 0));
}

// rule: sdk-runtime STE-3
#[tokio::test]
async fn steering_takes_a_question_back_that_nobody_answered() {
    let latch = Latch::default();
    let script = Script::new([calls([("a", "ask", "{}"), ("b", "wait", "{}")]), say("done")]);
    let agent = agent(script.clone()).tool(holding("wait", &latch)).tool(asks("ask")).build().unwrap();
    let run = agent.thread("t").stream("go");
    latch.reached().await;
    let pending = agent.approvals().pending().await.unwrap();
    assert_eq!(pending.len(), 1);
    run.steer("leave that").await.unwrap();
    while !agent.approvals().pending().await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let late = agent.approvals().decide(&pending[0].id, Decision::approve()).await.unwrap_err();
    assert_eq!(late.code(), "TOOLWRIGHT_APPROVAL_NOT_FOUND");
    latch.release();
    let reply = collect(run).await.1.unwrap();
    assert_eq!(seen(&reply.messages), ["human: go", "side_a: a b", "tool: a failed b", "human: leave that", "side_a: done"]);
}

// rule: sdk-runtime STE-4
#[tokio::test]
async fn a_model_call_that_was_given_up_is_a_step() {
    let script = Script::new([then_silence(vec![]), then_silence(vec![]), say("never asked")]);
    let agent = agent(script.clone()).max_steps(2).build().unwrap();
    let run = agent.thread("t").stream("go");
    for step in 1..=2 {
        while script.times() < step {
            tokio::task::yield_now().await;
        }
        run.steer(format!("no {step}")).await.unwrap();
    }
    let reply = collect(run).await.1.unwrap();
    assert_eq!((reply.finish_reason, reply.steps, script.times()), (FinishReason::MaxSteps, 2, 2));
    // The first joined; for the second no step was left.
    assert_eq!(seen(&reply.messages), ["human: go", "human: no 1"]);
    let records = journal_of(&agent).await;
    assert_eq!(inputs_of(&records), ["queued steer at once", "applied 2", "queued steer at once", "returned", "done max-steps"]);
}

// rule: sdk-runtime STE-1
#[tokio::test]
async fn a_late_word_of_a_model_that_was_given_up_is_dropped() {
    let latch = Latch::default();
    let script = Script::new([held(&latch, vec![], vec![word("too late"), done("too late")]), say("done")]);
    let agent = agent(script.clone()).build().unwrap();
    let run = agent.thread("t").stream("go");
    latch.reached().await;
    run.steer("one").await.unwrap();
    run.steer("two").await.unwrap();
    latch.release();
    let (events, reply) = collect(run).await;
    let reply = reply.unwrap();
    assert_eq!(seen(&reply.messages), ["human: go", "human: one", "human: two", "side_a: done"]);
    assert!(!brief(&events).iter().any(|event| event.contains("too late")));
}

// ------------------------------------------------------------------------------------------------------------- crashes

/// What every answer here depends on: the messages alone, so that it does not matter which process asks.
fn answers(request: &ModelRequest) -> ModelReply {
    let last = request.messages.last().map(|message| message.text_of()).unwrap_or_default();
    if request.messages.iter().all(|message| message.calls().next().is_none()) && !last.starts_with("more") {
        let call = |id: &str, name: &str| Item::ToolCall(call_item(id, name, "{}"));
        return reply(vec![call("a", "wait"), call("b", "act")], FinishReason::ToolCalls);
    }
    reply(vec![Item::text(format!("after {} messages", request.messages.len()))], FinishReason::Stop)
}

/// Resumes a journal that was cut after each of its records, with what had not been taken from the inbox by then.
async fn after_each_crash(records: &[Arc<Record>], expected: &[String], tools: impl Fn() -> Vec<Tool>, same: impl Fn(usize) -> bool) {
    let run = records.iter().find_map(|record| record.run.clone());
    for cut in 3..=records.len() {
        let store = store_of(&id(), &records[..cut]).await;
        for record in &records[cut..] {
            let RecordBody::InputQueued { id: input, mode, messages, only, .. } = &record.body else { continue };
            assert!(only.is_none() || *only == run);
            let item = InboxItem::Input { id: input.clone(), mode: mode.clone(), messages: messages.clone(), only: only.clone() };
            store.post(&id(), &format!("input:{input}"), item).await.unwrap();
        }
        let agent = agent(Answers::new(answers)).tools(tools()).store(store.clone()).build().unwrap();
        let resumed = agent.thread("t").resume().await;
        if cut == records.len() {
            assert_eq!(resumed.unwrap_err().code(), "TOOLWRIGHT_CHECKPOINT_NOT_FOUND");
        } else {
            resumed.unwrap();
        }
        let transcript = agent.thread("t").history().await.unwrap();
        transcript.check_balance().unwrap();
        let seen = seen(&transcript);
        if same(cut) {
            assert_eq!(seen, expected, "cut after {cut}: {:?}", kinds(&records[..cut]));
        }
        // Never lost, never twice.
        for input in ["human: more 1", "human: more 2"] {
            assert_eq!(seen.iter().filter(|message| *message == input).count(), 1, "cut after {cut}: {seen:?}");
        }
        assert!(store.inbox(&id(), 0).await.unwrap().is_empty());
        assert!(store.unfinished(None, 10).await.unwrap().is_empty());
    }
}

// rule: sdk-runtime QUE-5
#[tokio::test]
async fn queued_input_survives_a_crash_at_any_record() {
    for to_thread in [false, true] {
        let (store, latch) = (MemoryStore::new(), Latch::default());
        let tools = |latch: &Latch| vec![holding("wait", latch), echo("act")];
        let owner = agent(Answers::new(answers)).tools(tools(&latch)).store(store.clone()).build().unwrap();
        let run = owner.thread("t").stream("go");
        latch.reached().await;
        for text in ["more 1", "more 2"] {
            if to_thread {
                owner.thread("t").enqueue(text).await.unwrap();
            } else {
                run.enqueue(text).await.unwrap();
            }
        }
        latch.release();
        let reply: Reply = collect(run).await.1.unwrap();
        let expected = seen(&reply.messages);
        assert_eq!(expected, ["human: go", "side_a: a b", "tool: a b", "human: more 1", "human: more 2", "side_a: after 5 messages"]);
        let records = journal(&store, &id()).await;
        let free = Latch::default();
        for _ in 0..100 {
            free.release();
        }
        // Before the first step has begun, what was posted joins before it.
        after_each_crash(&records, &expected, || tools(&free), |cut| cut > 3).await;
    }
}

// rule: sdk-runtime STE-6
#[tokio::test]
async fn input_that_steers_survives_a_crash_at_any_record() {
    // While the model is silent.
    let store = MemoryStore::new();
    let script = Script::new([
        then_silence(vec![]),
        Box::new(|request: &ModelRequest| stream::iter([Ok(ModelEvent::Done(answers(request)))]).boxed()),
    ]);
    let owner = agent(script.clone()).store(store.clone()).build().unwrap();
    let run = owner.thread("t").stream("go");
    while script.times() == 0 {
        tokio::task::yield_now().await;
    }
    run.steer("more 1").await.unwrap();
    owner.thread("t").steer("more 2").await.unwrap();
    let reply = collect(run).await.1.unwrap();
    let expected = seen(&reply.messages);
    assert_eq!(expected, ["human: go", "human: more 1", "human: more 2", "side_a: after 3 messages"]);
    let records = journal(&store, &id()).await;
    after_each_crash(&records, &expected, || vec![echo("wait"), echo("act")], |_| true).await;

    // While a call runs and another has not begun. After a crash before the input was taken, both may have begun.
    let (store, latch) = (MemoryStore::new(), Latch::default());
    let builder = agent(Answers::new(answers)).tool(holding("wait", &latch)).tool(echo("act")).store(store.clone());
    let owner = builder.tool_concurrency(1).build().unwrap();
    let run = owner.thread("t").stream("go");
    latch.reached().await;
    run.steer("more 1").await.unwrap();
    owner.thread("t").steer("more 2").await.unwrap();
    while !journal(&store, &id()).await.iter().any(|record| matches!(record.body, RecordBody::CallDone { .. })) {
        tokio::task::yield_now().await;
    }
    latch.release();
    let reply = collect(run).await.1.unwrap();
    let expected = seen(&reply.messages);
    assert_eq!(expected[2], "tool: a b failed");
    let records = journal(&store, &id()).await;
    let replied = records.iter().position(|record| matches!(record.body, RecordBody::ModelReplied { .. })).unwrap();
    after_each_crash(&records, &expected, || vec![echo("wait"), echo("act")], |cut| cut > replied + 4).await;
}

// rule: sdk-runtime QUE-5
#[tokio::test]
async fn a_failed_run_leaves_input_to_the_thread() {
    let store = MemoryStore::new();
    let latch = Latch::default();
    let script = Script::new([
        Box::new({
            let latch = latch.clone();
            move |_: &ModelRequest| {
                stream::once(async move {
                    latch.hold().await;
                    Err(ModelError::new("test", "overloaded"))
                })
                .boxed()
            }
        }) as Answer,
        say("better"),
    ]);
    let agent = agent(script).store(store.clone()).build().unwrap();
    let run = agent.thread("t").stream("go");
    latch.reached().await;
    let ticket = agent.thread("t").enqueue("still there?").await.unwrap();
    while journal(&store, &id()).await.iter().all(|record| !matches!(record.body, RecordBody::InputQueued { mode: InputMode::Queue, .. })) {
        tokio::task::yield_now().await;
    }
    latch.release();
    assert!(matches!(collect(run).await.1.unwrap_err(), AgentError::Run { .. }));
    agent.worker().until_idle().run(CancellationToken::new()).await.unwrap();
    assert_eq!(fate(&ticket).await, "step 2");
    assert_eq!(seen(&agent.thread("t").history().await.unwrap()), ["human: go", "human: still there?", "side_a: better"]);
}
