//! Journals for the cases: each record is folded as it is made, so that no case rests on a journal that could not be.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use toolwright_core::{
    ApprovalAsk, ApprovalId, ArgsState, Author, CallId, CallItem, CallOpening, CallOrigin, Decision, FinishReason, InputId, InputMode,
    Item, Message, Outcome, Record, RecordBody, RunCause, RunId, RunLimits, Seq, StepFinish, Thread, ThreadId, Timestamp, ToolOutput,
    Verdict, sha256_hex,
};
use toolwright_runtime::{Append, InboxItem};

use super::Failure;

/// The arguments of every call.
pub(super) const ARGUMENTS: &str = r#"{"n":1}"#;

/// A journal under way: what was made, and what of it was taken for an append.
pub(super) struct Script {
    thread: Thread,
    id: ThreadId,
    /// The moment of the next record.
    now: i64,
    runs: u32,
    made: Vec<Arc<Record>>,
    taken: usize,
}

impl Script {
    /// A thread that is opened at a moment.
    pub(super) fn opened(id: &ThreadId, now: i64) -> Result<Self, Failure> {
        Self::opened_with(id, now, "agent", None)
    }

    pub(super) fn opened_with(id: &ThreadId, now: i64, agent: &str, parent: Option<&ThreadId>) -> Result<Self, Failure> {
        let mut script = Self::unopened(id, now);
        script.opens(agent, parent)?;
        Ok(script)
    }

    /// A thread without records.
    pub(super) fn unopened(id: &ThreadId, now: i64) -> Self {
        Self { thread: Thread::new(), id: id.clone(), now, runs: 0, made: Vec::new(), taken: 0 }
    }

    pub(super) fn opens(&mut self, agent: &str, parent: Option<&ThreadId>) -> Result<&mut Self, Failure> {
        let (thread, agent) = (self.id.clone(), Arc::from(agent));
        self.add(RecordBody::ThreadOpened { thread, version: 1, agent, parent: parent.cloned() })
    }

    /// The moment of what comes next; without it, a second passes from record to record.
    pub(super) fn at(&mut self, now: i64) -> &mut Self {
        self.now = now;
        self
    }

    /// One more record.
    pub(super) fn add(&mut self, body: RecordBody) -> Result<&mut Self, Failure> {
        let run = match &body {
            RecordBody::RunStarted { .. } => {
                self.runs += 1;
                Some(RunId::new(format!("run-{}", self.runs)))
            }
            _ => self.thread.run().map(|run| run.id.clone()),
        };
        let record = Record { seq: self.thread.head().next(), at: Timestamp(self.now), run, body };
        self.thread.apply(&record).map_err(|misfit| Failure::new(format!("the suite made a journal that does not fit: {misfit}")))?;
        self.now = self.now.saturating_add(1000);
        self.made.push(Arc::new(record));
        Ok(self)
    }

    /// A run begins with an input.
    pub(super) fn asked(&mut self, text: &str) -> Result<&mut Self, Failure> {
        self.started(&RunCause::Input)?.said(Message::human(text))
    }

    pub(super) fn started(&mut self, cause: &RunCause) -> Result<&mut Self, Failure> {
        // As JSON, so that a field added to the record changes nothing here.
        let limits = serde_json::to_value(RunLimits::default()).unwrap_or_default();
        let body = json!({ "kind": "run.started", "cause": cause.as_str(), "agent": "agent", "limits": limits });
        self.add(serde_json::from_value(body).map_err(|error| Failure::new(error.to_string()))?)
    }

    pub(super) fn said(&mut self, message: Message) -> Result<&mut Self, Failure> {
        self.add(RecordBody::MessageAdded { message: Arc::new(message) })
    }

    /// A step whose reply calls the tool `act`.
    pub(super) fn calls(&mut self, calls: &[&str]) -> Result<&mut Self, Failure> {
        let step = self.thread.step() + 1;
        let item = |call: &&str| {
            Item::ToolCall(CallItem {
                call_id: CallId::new(*call),
                provider_id: None,
                name: "act".to_owned(),
                arguments: ARGUMENTS.to_owned(),
                state: ArgsState::Complete,
                ask: None,
                provider_data: None,
            })
        };
        let opening = |call: &&str| CallOpening {
            call: CallId::new(*call),
            tool: "act".into(),
            origin: CallOrigin::Model,
            parent: None,
            arguments: None,
            sequential: false,
        };
        self.add(RecordBody::StepStarted { step })?.add(RecordBody::ModelReplied {
            step,
            message: Arc::new(Message { author: Author::SideA, items: calls.iter().map(item).collect(), metadata: Map::new() }),
            calls: calls.iter().map(opening).collect(),
            finish: FinishReason::ToolCalls,
            usage: None,
            model: "model".into(),
            rewrote: Vec::new(),
            side: None,
        })
    }

    /// A step whose reply is a text.
    pub(super) fn replies(&mut self, text: &str) -> Result<&mut Self, Failure> {
        let step = self.thread.step() + 1;
        self.add(RecordBody::StepStarted { step })?
            .add(RecordBody::ModelReplied {
                step,
                message: Arc::new(Message::text(Author::SideA, text)),
                calls: Vec::new(),
                finish: FinishReason::Stop,
                usage: None,
                model: "model".into(),
                rewrote: Vec::new(),
                side: None,
            })?
            .step_ends(StepFinish::Stop)
    }

    pub(super) fn step_ends(&mut self, finish: StepFinish) -> Result<&mut Self, Failure> {
        let step = self.thread.step();
        self.add(RecordBody::StepDone { step, finish, usage: None })
    }

    pub(super) fn run_ends(&mut self, finish: FinishReason) -> Result<&mut Self, Failure> {
        self.add(RecordBody::RunDone { finish, text: "".into(), usage: None, model_calls: 1, ending: None, input_waits: false })
    }

    /// The decision's id of a call's first wait.
    pub(super) fn approval(&self, call: &str) -> ApprovalId {
        ApprovalId::of(&self.id, &CallId::new(call), 1)
    }

    fn gated(&mut self, call: &str, verdict: Verdict) -> Result<&mut Self, Failure> {
        self.add(RecordBody::CallGated {
            call: CallId::new(call),
            tool: "act".into(),
            arguments: Some(ARGUMENTS.into()),
            sha256: Some(sha256_hex(ARGUMENTS.as_bytes()).into()),
            repairs: Vec::new(),
            resumed: false,
            parent: None,
            read_only: false,
            notes: None,
            verdict,
        })
    }

    /// The gate asks.
    pub(super) fn asks(&mut self, call: &str) -> Result<&mut Self, Failure> {
        let approval = self.approval(call);
        self.asks_for(call, ApprovalAsk::new(approval))
    }

    pub(super) fn asks_for(&mut self, call: &str, ask: ApprovalAsk) -> Result<&mut Self, Failure> {
        self.gated(call, Verdict::Ask(ask))
    }

    /// The gate lets the call pass, and its body begins.
    pub(super) fn executes(&mut self, call: &str) -> Result<&mut Self, Failure> {
        self.gated(call, Verdict::Run)?.add(RecordBody::CallExecuting {
            call: CallId::new(call),
            tool: "act".into(),
            attempt: 1,
            arguments: None,
        })
    }

    /// Somebody approves of a call that waits.
    pub(super) fn decided(&mut self, call: &str) -> Result<&mut Self, Failure> {
        self.add(RecordBody::CallDecided {
            approval: self.approval(call),
            call: CallId::new(call),
            sha256: sha256_hex(ARGUMENTS.as_bytes()).into(),
            decision: Decision::approve(),
        })
    }

    /// A call's result.
    pub(super) fn done(&mut self, call: &str, value: Value) -> Result<&mut Self, Failure> {
        self.add(RecordBody::CallDone {
            call: CallId::new(call),
            tool: "act".into(),
            outcome: Outcome::done(ToolOutput::json(value)),
            duration_ms: Some(1),
            replaced_by: None,
            fatal: None,
            notes: None,
        })
    }

    /// What was made since the last time, to be appended.
    pub(super) fn take(&mut self) -> Append {
        let records = self.made.iter().skip(self.taken).cloned().collect();
        self.taken = self.made.len();
        Append::records(records)
    }

    /// Everything that was made.
    pub(super) fn made(&self) -> &[Arc<Record>] {
        &self.made
    }
}

/// A record that need not fit a journal, where only what a store keeps of it counts.
pub(super) fn loose(seq: u64, body: RecordBody) -> Arc<Record> {
    Arc::new(Record { seq: Seq(seq), at: Timestamp(seq as i64), run: None, body })
}

/// Input that is told from others by its id.
pub(super) fn input(id: &str) -> InboxItem {
    let messages = vec![Arc::new(Message::human(format!("the text of {id}")))];
    InboxItem::Input { id: InputId::new(id), mode: InputMode::Queue, messages, only: None }
}

/// The id of an input.
pub(super) fn input_id(item: &InboxItem) -> String {
    match item {
        InboxItem::Input { id, .. } => id.to_string(),
        other => super::shown(other),
    }
}
