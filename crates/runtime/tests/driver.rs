//! The driver alone, without an executor: what it starts, and what it leaves alone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use std::sync::Arc;

use toolwright_core::{
    AbortReason, ApprovalAsk, ApprovalId, ArgsState, CallId, CallItem, CallOpening, CallOrigin, CallState, Decision, FinishReason, InputId,
    InputMode, Item, Message, OnInterrupt, Outcome, Record, RecordBody, RunCause, RunId, RunLimits, Thread, ThreadId, Timestamp,
    ToolOutput, Verdict,
};
use toolwright_runtime::{Completion, Driver, Effect, Executed, GateOutcome, InboxItem, ModelReply, NextRun, Streamed, ToolFacts};

struct Plain;

impl ToolFacts for Plain {
    fn resolve(&self, written: &str) -> Option<Arc<str>> {
        Some(written.into())
    }

    fn is_sequential(&self, _tool: &str) -> bool {
        false
    }

    fn after_interrupt(&self, _tool: &str) -> OnInterrupt {
        OnInterrupt::Rerun
    }
}

const NOW: Timestamp = Timestamp(0);

fn next_run(id: &str, limits: RunLimits) -> NextRun {
    NextRun {
        id: RunId::new(id),
        agent: "a".into(),
        limits,
        principal: None,
        metadata: serde_json::Map::new(),
        instructions: None,
        added: None,
        fingerprint: None,
        mode: None,
        budgets: None,
        checks_input: false,
    }
}

/// A driver whose run has begun with an input.
fn started() -> Driver {
    let mut driver = Driver::new(Thread::new(), Arc::new(Plain), next_run("r", RunLimits::default()));
    driver.open(&ThreadId::new("t").unwrap(), NOW).unwrap();
    driver.start(RunCause::Input, Vec::new(), vec![Message::human("go")], NOW).unwrap();
    driver
}

fn call(id: &str) -> Item {
    Item::ToolCall(CallItem {
        call_id: CallId::new(""),
        provider_id: Some(id.to_owned()),
        name: "tool".to_owned(),
        arguments: "{}".to_owned(),
        state: ArgsState::Complete,
        ask: None,
        provider_data: None,
    })
}

fn gated(call: &str, verdict: Verdict) -> Completion {
    let arguments = Some((Arc::from("{}"), Arc::from("hash")));
    let outcome = GateOutcome { arguments, repairs: Vec::new(), read_only: false, notes: None, verdict, settled: None };
    Completion::Gated { call: CallId::new(call), outcome: Box::new(outcome) }
}

fn gates(effects: &[Effect]) -> Vec<&str> {
    effects.iter().filter_map(|effect| if let Effect::Gate { call } = effect { Some(call.as_str()) } else { None }).collect()
}

#[test]
fn gates_resolve_one_at_a_time_when_an_earlier_call_is_decided() {
    let mut driver = started();
    driver.step(None, NOW).unwrap();
    let reply = ModelReply { items: vec![call("a"), call("b")], finish: FinishReason::ToolCalls, usage: None, model: None };
    let effects = driver.step(Some(Completion::Model { step: 1, result: Ok(reply), review: Box::default() }), NOW).unwrap();
    assert_eq!(gates(&effects), ["a"]);
    let approval = ApprovalId::new("ask");
    let ask = ApprovalAsk::new(approval.clone());
    let effects = driver.step(Some(gated("a", Verdict::Ask(ask))), NOW).unwrap();
    assert_eq!(gates(&effects), ["b"]);
    let item = InboxItem::Decision { approval, call: CallId::new("a"), sha256: "hash".into(), decision: Decision::approve() };
    let effects = driver.step(Some(Completion::Posted { position: 1, item }), NOW).unwrap();
    assert!(gates(&effects).is_empty(), "`b` stands at the gate");
    let effects = driver.step(Some(gated("b", Verdict::Run)), NOW).unwrap();
    assert_eq!(gates(&effects), ["a"]);
}

#[test]
fn a_cancellation_of_an_earlier_run_does_not_stop_a_new_one() {
    let cancel = |position| {
        let item = InboxItem::Cancel { reason: AbortReason::abort("stop"), run: None };
        Some(Completion::Posted { position, item })
    };
    let mut driver = started();
    driver.disregard_posted_through(3);
    // Taken with the first records already: after a crash it would find the run going on.
    assert_eq!(driver.inbox_through(), 3);
    driver.step(cancel(2), NOW).unwrap();
    assert!(driver.thread().run().is_some_and(|run| run.ending.is_none()));
    driver.step(cancel(4), NOW).unwrap();
    assert_eq!(driver.thread().last_run().map(|run| run.finish.clone()), Some(FinishReason::Aborted));
}

fn reply(items: Vec<Item>) -> Completion {
    let finish = FinishReason::ToolCalls;
    Completion::Model { step: 1, result: Ok(ModelReply { items, finish, usage: None, model: None }), review: Box::default() }
}

fn steering(position: u64) -> Completion {
    let messages = vec![Arc::new(Message::human("rather this"))];
    let item = InboxItem::Input { id: InputId::new("i"), mode: InputMode::Steer, messages, only: None };
    Completion::Posted { position, item }
}

fn records(effects: &[Effect]) -> Vec<Arc<Record>> {
    effects.iter().flat_map(|effect| if let Effect::Append(records) = effect { records.clone() } else { Vec::new() }).collect()
}

fn bodies(effects: &[Effect]) -> Vec<(&str, u32)> {
    effects
        .iter()
        .filter_map(|effect| if let Effect::Execute { call, attempt } = effect { Some((call.as_str(), *attempt)) } else { None })
        .collect()
}

/// A fork of a journal that is cut here.
fn fork_of(journal: &[Arc<Record>]) -> Thread {
    let mut thread = Thread::new();
    for record in journal {
        thread.apply(record).unwrap();
    }
    let through = thread.head();
    let body = RecordBody::ThreadForked { from: ThreadId::new("t").unwrap(), through };
    thread.apply(&Record { seq: through.next(), at: NOW, run: None, body }).unwrap();
    thread
}

// rule: sdk-runtime ORD-7
#[test]
fn nothing_is_kept_of_a_model_call_that_was_given_up_also_where_the_run_is_cancelled_with_it() {
    let mut driver = started();
    driver.step(None, NOW).unwrap();
    driver.streamed(Streamed::default());
    driver.take(steering(1), NOW).unwrap();
    // The model says something before the next item is taken.
    driver.streamed(Streamed { text: "so far".to_owned(), calls: false });
    let cancel = InboxItem::Cancel { reason: AbortReason::abort("stop"), run: None };
    driver.take(Completion::Posted { position: 2, item: cancel }, NOW).unwrap();
    let written = records(&driver.step(None, NOW).unwrap());
    assert!(!written.iter().any(|record| matches!(record.body, RecordBody::ModelReplied { .. })), "{written:?}");
    assert_eq!(driver.thread().last_run().map(|run| run.finish.clone()), Some(FinishReason::Aborted));
    assert_eq!(driver.thread().queued().len(), 1, "the input waits for the next run");
}

// rule: sdk-runtime STE-3
#[test]
fn input_that_steers_settles_what_a_model_asked_for_and_no_direct_call() {
    let mut driver = Driver::new(Thread::new(), Arc::new(Plain), next_run("r", RunLimits::default()));
    driver.open(&ThreadId::new("t").unwrap(), NOW).unwrap();
    driver.start(RunCause::Invocation, Vec::new(), Vec::new(), NOW).unwrap();
    let opening = CallOpening {
        call: CallId::new("a"),
        tool: "tool".into(),
        origin: CallOrigin::Client,
        parent: None,
        arguments: Some("{}".into()),
        sequential: false,
    };
    driver.open_call(opening, NOW).unwrap();
    driver.step(None, NOW).unwrap();
    let approval = ApprovalId::new("ask");
    let ask = ApprovalAsk::new(approval.clone());
    driver.step(Some(gated("a", Verdict::Ask(ask))), NOW).unwrap();
    assert_eq!(driver.thread().last_run().map(|run| run.finish.clone()), Some(FinishReason::AwaitingApproval));

    let mut driver = Driver::new(driver.thread().clone(), Arc::new(Plain), next_run("s", RunLimits::default()));
    let item = InboxItem::Decision { approval, call: CallId::new("a"), sha256: "hash".into(), decision: Decision::approve() };
    driver.step(Some(Completion::Posted { position: 1, item }), NOW).unwrap();
    driver.step(Some(steering(2)), NOW).unwrap();
    assert!(matches!(driver.thread().call(&CallId::new("a")).unwrap().state, CallState::Decided(..)), "it was decided");
    let effects = driver.step(Some(gated("a", Verdict::Run)), NOW).unwrap();
    assert_eq!(bodies(&effects), [("a", 1)]);
}

#[test]
fn in_a_fork_a_body_that_had_begun_is_for_its_tool_to_say_within_the_limit_of_the_forks_run() {
    let mut driver = started();
    let mut journal = records(&driver.step(None, NOW).unwrap());
    journal.extend(records(&driver.step(Some(reply(vec![call("a"), call("b")])), NOW).unwrap()));
    for id in ["a", "b"] {
        journal.extend(records(&driver.step(Some(gated(id, Verdict::Run)), NOW).unwrap()));
    }
    // Both run in the source; here one may at a time.
    let limits = RunLimits { tool_concurrency: Some(1), ..RunLimits::default() };
    let mut fork = Driver::new(fork_of(&journal), Arc::new(Plain), next_run("s", limits));
    assert_eq!(bodies(&fork.step(None, NOW).unwrap()), [("a", 2)]);
    let executed = Executed::of(Outcome::done(ToolOutput::text("ok")));
    let done = Completion::Executed { call: CallId::new("a"), executed: Box::new(executed) };
    assert_eq!(bodies(&fork.step(Some(done), NOW).unwrap()), [("b", 2)]);

    // A question about a body that had begun does not make it one that had not.
    let ask = ApprovalAsk::new(ApprovalId::new("ask"));
    let body = RecordBody::CallGated {
        call: CallId::new("a"),
        tool: "tool".into(),
        arguments: Some("{}".into()),
        sha256: Some("hash".into()),
        repairs: Vec::new(),
        resumed: true,
        parent: None,
        read_only: false,
        notes: None,
        verdict: Verdict::Ask(ask),
    };
    let last = journal.last().unwrap();
    journal.push(Arc::new(Record { seq: last.seq.next(), at: NOW, run: last.run.clone(), body }));
    let forked = fork_of(&journal);
    assert_eq!(forked.call(&CallId::new("a")).unwrap().state, CallState::Executing { attempt: 1 });
}

#[test]
fn a_fork_that_was_cut_before_the_end_of_a_step_takes_new_input() {
    let mut driver = started();
    let mut journal = records(&driver.step(None, NOW).unwrap());
    journal.extend(records(&driver.step(Some(reply(vec![call("a")])), NOW).unwrap()));
    let refused = gated("a", Verdict::Answer { output: Arc::new(ToolOutput::text("by a hook")) });
    let Completion::Gated { call, mut outcome } = refused else { panic!() };
    let output = Arc::new(ToolOutput::text("by a hook"));
    outcome.settled = Some(Executed::of(Outcome::Done { output }));
    journal.extend(records(&driver.step(Some(Completion::Gated { call, outcome }), NOW).unwrap()));
    let end = journal.iter().position(|record| matches!(record.body, RecordBody::StepDone { .. })).unwrap();
    let mut fork = Driver::new(fork_of(&journal[..end]), Arc::new(Plain), next_run("s", RunLimits::default()));
    fork.step(Some(steering(1)), NOW).unwrap();
    assert_eq!(fork.thread().transcript().last().unwrap().text_of(), "rather this");
    assert_eq!(fork.thread().unanswered_step(), Some(2));
}

/// Tools that a person is asked about once their body was lost.
struct Asks;

impl ToolFacts for Asks {
    fn resolve(&self, written: &str) -> Option<Arc<str>> {
        Some(written.into())
    }

    fn is_sequential(&self, _tool: &str) -> bool {
        false
    }

    fn after_interrupt(&self, _tool: &str) -> OnInterrupt {
        OnInterrupt::Ask
    }
}

#[test]
fn in_a_fork_with_one_slot_a_later_call_that_was_decided_goes_before_an_earlier_one_that_had_not_begun() {
    let mut driver = started();
    let mut journal = records(&driver.step(None, NOW).unwrap());
    journal.extend(records(&driver.step(Some(reply(vec![call("a"), call("b")])), NOW).unwrap()));
    let ask = ApprovalAsk::new(ApprovalId::new("ask"));
    journal.extend(records(&driver.step(Some(gated("a", Verdict::Ask(ask))), NOW).unwrap()));
    journal.extend(records(&driver.step(Some(gated("b", Verdict::Run)), NOW).unwrap()));

    let limits = RunLimits { tool_concurrency: Some(1), ..RunLimits::default() };
    let mut fork = Driver::new(fork_of(&journal), Arc::new(Asks), next_run("s", limits));
    fork.step(None, NOW).unwrap();
    let paused = fork.thread().clone();
    assert_eq!(paused.last_run().map(|run| run.finish.clone()), Some(FinishReason::AwaitingApproval));
    let (waits, asked) = paused.pending().next().unwrap();
    assert_eq!(waits.id.as_str(), "b");

    let mut fork = Driver::new(paused.clone(), Arc::new(Asks), next_run("u", limits));
    let item = InboxItem::Decision {
        approval: asked.approval.clone(),
        call: waits.id.clone(),
        sha256: "hash".into(),
        decision: Decision::approve(),
    };
    assert_eq!(gates(&fork.step(Some(Completion::Posted { position: 1, item }), NOW).unwrap()), ["b"]);
    assert_eq!(bodies(&fork.step(Some(gated("b", Verdict::Run)), NOW).unwrap()), [("b", 2)]);
    let executed = Executed::of(Outcome::done(ToolOutput::text("ok")));
    let done = Completion::Executed { call: CallId::new("b"), executed: Box::new(executed) };
    assert_eq!(gates(&fork.step(Some(done), NOW).unwrap()), ["a"]);
}

#[test]
fn a_reminder_of_a_question_that_was_never_written_down_is_none_of_another_with_its_id() {
    for every in [None, Some(1000)] {
        let mut driver = started();
        driver.step(None, NOW).unwrap();
        driver.step(Some(reply(vec![call("a")])), NOW).unwrap();
        let approval = ApprovalId::new("ask");
        let ask = ApprovalAsk { remind_every_ms: every, ..ApprovalAsk::new(approval.clone()) };
        driver.step(Some(gated("a", Verdict::Ask(ask))), NOW).unwrap();
        let item = InboxItem::Remind { approval, call: CallId::new("a"), times: 1 };
        let effects = driver.step(Some(Completion::Posted { position: 1, item }), NOW).unwrap();
        let reminded = |record: &Arc<Record>| matches!(record.body, RecordBody::ApprovalReminded { .. });
        let told = effects.iter().any(|effect| matches!(effect, Effect::Append(records) if records.iter().any(reminded)));
        assert_eq!(told, every.is_some());
    }
}

#[test]
fn a_gate_that_asks_looks_again_where_another_call_was_approved_meanwhile() {
    for decision in [Decision::approve().always(), Decision::reject()] {
        let mut driver = started();
        driver.step(None, NOW).unwrap();
        driver.step(Some(reply(vec![call("a"), call("b")])), NOW).unwrap();
        let approval = ApprovalId::new("ask");
        driver.step(Some(gated("a", Verdict::Ask(ApprovalAsk::new(approval.clone())))), NOW).unwrap();
        // `b` stands at the gate.
        let approves = decision.approves();
        let item = InboxItem::Decision { approval, call: CallId::new("a"), sha256: "hash".into(), decision };
        driver.step(Some(Completion::Posted { position: 1, item }), NOW).unwrap();
        let asks = || gated("b", Verdict::Ask(ApprovalAsk::new(ApprovalId::new("another"))));
        let effects = driver.step(Some(asks()), NOW).unwrap();
        assert_eq!(driver.thread().pending().count(), usize::from(!approves));
        // What was decided comes before the gate first, in call order.
        assert_eq!(gates(&effects), ["a"]);
        driver.step(Some(gated("a", Verdict::Run)), NOW).unwrap();
        if approves {
            // It asks all the same: then somebody is asked.
            driver.step(Some(asks()), NOW).unwrap();
            assert_eq!(driver.thread().pending().count(), 1);
        }
    }
}
