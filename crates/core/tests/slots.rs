//! Bodies side by side, up to the limit: what was decided needs a slot like any other.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use std::sync::Arc;

use toolwright_core::{
    Action, ApprovalAsk, ApprovalId, Author, CallId, CallItem, CallOpening, CallOrigin, Decision, FinishReason, Item, Message, Outcome,
    Record, RecordBody, RunCause, RunId, RunLimits, Thread, ThreadId, Timestamp, ToolOutput, Verdict,
};

struct Journal {
    thread: Thread,
    run: Option<RunId>,
}

impl Journal {
    /// A run whose model has called the tool `t` once for each id.
    fn of(calls: &[&str], tool_concurrency: Option<u32>) -> Self {
        let mut journal = Self { thread: Thread::new(), run: None };
        journal.add(RecordBody::ThreadOpened { thread: ThreadId::new("t").unwrap(), version: 1, agent: "a".into(), parent: None });
        journal.run = Some(RunId::new("r"));
        let limits = RunLimits { tool_concurrency, ..RunLimits::default() };
        let metadata = serde_json::Map::new();
        journal.add(RecordBody::RunStarted {
            cause: RunCause::Input,
            agent: "a".into(),
            limits,
            fingerprint: None,
            instructions: None,
            added: None,
            principal: None,
            metadata,
            budgets: None,
            checks_input: false,
        });
        journal.add(RecordBody::StepStarted { step: 1 });
        let item = |id: &&str| {
            Item::ToolCall(CallItem {
                call_id: CallId::new(*id),
                provider_id: None,
                name: "t".to_owned(),
                arguments: "{}".to_owned(),
                state: toolwright_core::ArgsState::Complete,
                ask: None,
                provider_data: None,
            })
        };
        let opening = |id: &&str| CallOpening {
            call: CallId::new(*id),
            tool: "t".into(),
            origin: CallOrigin::Model,
            parent: None,
            arguments: None,
            sequential: false,
        };
        journal.add(RecordBody::ModelReplied {
            step: 1,
            message: Arc::new(Message { author: Author::SideA, items: calls.iter().map(item).collect(), metadata: serde_json::Map::new() }),
            calls: calls.iter().map(opening).collect(),
            finish: FinishReason::ToolCalls,
            usage: None,
            model: "m".into(),
            rewrote: Vec::new(),
            side: None,
        });
        journal
    }

    fn add(&mut self, body: RecordBody) {
        let record = Record { seq: self.thread.head().next(), at: Timestamp(0), run: self.run.clone(), body };
        self.thread.apply(&record).unwrap();
    }

    fn gated(&mut self, call: &str, verdict: Verdict) {
        self.add(RecordBody::CallGated {
            call: CallId::new(call),
            tool: "t".into(),
            arguments: Some("{}".into()),
            sha256: Some("hash".into()),
            repairs: Vec::new(),
            resumed: false,
            parent: None,
            read_only: false,
            notes: None,
            verdict,
        });
    }

    fn asks(&mut self, call: &str) {
        let approval = ApprovalId::new(format!("ask-{call}"));
        self.gated(call, Verdict::Ask(ApprovalAsk::new(approval)));
    }

    fn begins(&mut self, call: &str) {
        self.gated(call, Verdict::Run);
        self.add(RecordBody::CallExecuting { call: CallId::new(call), tool: "t".into(), attempt: 1, arguments: None });
    }

    fn is_approved(&mut self, call: &str) {
        let approval = ApprovalId::new(format!("ask-{call}"));
        self.add(RecordBody::CallDecided { approval, call: CallId::new(call), sha256: "hash".into(), decision: Decision::approve() });
    }

    fn ends(&mut self, call: &str) {
        let outcome = Outcome::done(ToolOutput::text("ok"));
        self.add(RecordBody::CallDone {
            call: CallId::new(call),
            tool: "t".into(),
            outcome,
            duration_ms: Some(0),
            replaced_by: None,
            fatal: None,
            notes: None,
        });
    }

    fn gate_of(&self, call: &str) -> bool {
        self.thread.next().contains(&Action::Gate(CallId::new(call)))
    }
}

#[test]
fn an_approved_call_waits_for_a_slot() {
    let mut journal = Journal::of(&["a", "b", "c"], Some(2));
    journal.asks("a");
    // A call that waits for a decision holds no slot where there are several.
    journal.begins("b");
    journal.begins("c");
    journal.is_approved("a");
    assert!(!journal.gate_of("a"), "two bodies run already");
    journal.ends("c");
    assert!(journal.gate_of("a"));
}

#[test]
fn with_one_slot_a_waiting_call_holds_it() {
    let mut journal = Journal::of(&["a", "b"], Some(1));
    journal.asks("a");
    assert!(!journal.gate_of("b"));
    journal.is_approved("a");
    assert!(journal.gate_of("a") && !journal.gate_of("b"));
}

#[test]
fn without_a_limit_an_approved_call_goes_on_at_once() {
    let mut journal = Journal::of(&["a", "b"], None);
    journal.asks("a");
    journal.begins("b");
    journal.is_approved("a");
    assert!(journal.gate_of("a"));
}
