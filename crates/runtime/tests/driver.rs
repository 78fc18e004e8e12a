//! The driver alone, without an executor: what it starts, and what it leaves alone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use std::sync::Arc;

use toolwright_core::{
    AbortReason, ApprovalAsk, ApprovalId, ArgsState, CallId, CallItem, Decision, FinishReason, Item, Message, OnInterrupt, RunCause, RunId,
    RunLimits, Thread, ThreadId, Timestamp, Verdict,
};
use toolwright_runtime::{Completion, Driver, Effect, GateOutcome, InboxItem, ModelReply, NextRun, ToolFacts};

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

/// A driver whose run has begun with an input.
fn started() -> Driver {
    let next = NextRun {
        id: RunId::new("r"),
        agent: "a".into(),
        limits: RunLimits::default(),
        principal: None,
        metadata: serde_json::Map::new(),
        instructions: None,
        added: None,
        fingerprint: None,
    };
    let mut driver = Driver::new(Thread::new(), Arc::new(Plain), next);
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
    let outcome = GateOutcome { arguments, repairs: Vec::new(), read_only: false, verdict, settled: None };
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
    let effects = driver.step(Some(Completion::Model { step: 1, result: Ok(reply) }), NOW).unwrap();
    assert_eq!(gates(&effects), ["a"]);
    let approval = ApprovalId::new("ask");
    let ask = ApprovalAsk { approval: approval.clone(), reason: None, expires_at: None, detail: None };
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
