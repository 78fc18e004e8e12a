//! Events: what observers of a run see (sdk-runtime 15). A projection of records, plus a few that are only streamed.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::args::RepairNote;
use crate::file::AttachmentRef;
use crate::finish::{AbortReason, BudgetTrip, FinishReason, StepFinish};
use crate::ids::{ApprovalId, CallId, InputId, RunId, Seq, ThreadId, Timestamp};
use crate::notes::{RuleMatch, ShadowNote};
use crate::policy::PermissionMode;
use crate::usage::Usage;

/// The version of the event layout.
pub const EVENT_VERSION: u32 = 1;

/// One event: envelope and kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The run.
    pub run_id: RunId,
    /// From 0, without gaps, per subscription.
    pub seq: u64,
    /// When.
    pub timestamp: Timestamp,
    /// For a durable event, the journal position to resume after: that of its record or, where more events of that record
    /// follow, the one before, so that nothing is missed.
    pub position: Option<Seq>,
    /// The child it came from.
    pub subagent: Option<Value>,
    /// What happened.
    pub kind: EventKind,
}

impl Serialize for Event {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::{Error, SerializeMap};
        // `type` first, then the envelope, then the kind's own fields: the order people read.
        let kind = serde_json::to_value(&self.kind).map_err(S::Error::custom)?;
        let Value::Object(mut fields) = kind else {
            return Err(S::Error::custom("an event kind is always an object"));
        };
        let name = fields.shift_remove("type").unwrap_or(Value::Null);
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", &name)?;
        map.serialize_entry("runId", &self.run_id)?;
        map.serialize_entry("seq", &self.seq)?;
        map.serialize_entry("timestamp", &self.timestamp.to_iso())?;
        map.serialize_entry("v", &EVENT_VERSION)?;
        if let Some(position) = self.position {
            map.serialize_entry("position", &position)?;
        }
        if let Some(subagent) = &self.subagent {
            map.serialize_entry("subagent", subagent)?;
        }
        for (key, value) in &fields {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let mut fields = Map::deserialize(deserializer)?;
        let mut take = |key: &str| fields.shift_remove(key);
        let version = take("v").and_then(|v| v.as_u64()).ok_or_else(|| D::Error::custom("an event has a number `v`"))?;
        if version != u64::from(EVENT_VERSION) {
            return Err(D::Error::custom(format!("event version {version} is not {EVENT_VERSION}")));
        }
        let run_id =
            take("runId").and_then(|v| v.as_str().map(RunId::new)).ok_or_else(|| D::Error::custom("an event has a text `runId`"))?;
        let seq = take("seq").and_then(|v| v.as_u64()).ok_or_else(|| D::Error::custom("an event has a number `seq`"))?;
        let timestamp = take("timestamp")
            .and_then(|v| v.as_str().and_then(Timestamp::from_iso))
            .ok_or_else(|| D::Error::custom("an event has an ISO 8601 `timestamp`"))?;
        let position = take("position").and_then(|v| v.as_u64()).map(Seq);
        let subagent = take("subagent");
        if !fields.get("type").is_some_and(Value::is_string) {
            return Err(D::Error::custom("an event has a text `type`"));
        }
        let kind = serde_json::from_value(Value::Object(fields)).map_err(D::Error::custom)?;
        Ok(Self { run_id, seq, timestamp, position, subagent, kind })
    }
}

/// Whether `value` is an event of this layout: a known type has its fields, an unknown type has the envelope
/// (sdk-runtime EV-4, EV-5).
pub fn is_event(value: &Value) -> bool {
    match Event::deserialize(value) {
        Ok(event) => match &event.kind {
            EventKind::Unknown(fields) => !fields.get("type").and_then(Value::as_str).is_some_and(EventKind::is_known_type),
            _ => true,
        },
        Err(_) => false,
    }
}

/// Tokens on an event. The first two names are older ones of the same figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventUsage {
    /// Same as `input_tokens`.
    pub prompt_tokens: u64,
    /// Same as `output_tokens`.
    pub completion_tokens: u64,
    /// Read and written.
    pub total_tokens: u64,
    /// Read.
    pub input_tokens: u64,
    /// Written.
    pub output_tokens: u64,
    /// Whether any figure is an estimate.
    pub estimated: bool,
    /// Price in US dollars, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// How many model calls; on run level only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_calls: Option<u32>,
}

impl EventUsage {
    /// The event form of `usage`.
    pub fn of(usage: &Usage, model_calls: Option<u32>) -> Self {
        Self {
            prompt_tokens: usage.input_tokens,
            completion_tokens: usage.output_tokens,
            total_tokens: usage.total_tokens(),
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            estimated: usage.estimated,
            cost_usd: usage.cost_usd,
            model_calls,
        }
    }
}

/// An error on an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// Its name.
    pub name: String,
    /// One sentence.
    pub message: String,
    /// The stable code, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

/// One item of a todo list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Todo {
    /// Generated, stable over writes.
    pub id: String,
    /// What is to be done.
    pub content: String,
    /// `pending`, `in_progress` or `completed`.
    pub status: TodoStatus,
}

/// Where a todo item stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TodoStatus {
    /// Not begun.
    Pending,
    /// Being done; at most one is.
    InProgress,
    /// Done.
    Completed,
}

/// Todo items by status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TodoCounts {
    /// Not begun.
    pub pending: usize,
    /// Being done.
    pub in_progress: usize,
    /// Done.
    pub completed: usize,
    /// All.
    pub total: usize,
}

/// What went wrong with a compaction; the run goes on without it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactionError {
    /// One sentence.
    pub message: String,
}

/// What happened. Serialised with the tag `type`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type")]
#[non_exhaustive]
pub enum EventKind {
    /// First event of a run.
    #[serde(rename = "run.start", rename_all = "camelCase")]
    RunStart {
        /// The agent's name.
        agent_name: Arc<str>,
        /// Its id, where it has one apart from its name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent_id: Option<String>,
    },
    /// A step begins.
    #[serde(rename = "step.start", rename_all = "camelCase")]
    StepStart {
        /// From 1; goes on after a pause.
        step: u32,
    },
    /// A piece of the model's text. Streamed only.
    #[serde(rename = "text.delta", rename_all = "camelCase")]
    TextDelta {
        /// The piece.
        text: String,
    },
    /// The step's whole text.
    #[serde(rename = "text.done", rename_all = "camelCase")]
    TextDone {
        /// The deltas joined.
        text: String,
    },
    /// The model starts thinking. Streamed only.
    #[serde(rename = "reasoning.start")]
    ReasoningStart {},
    /// A piece of reasoning. Streamed only.
    #[serde(rename = "reasoning.delta", rename_all = "camelCase")]
    ReasoningDelta {
        /// The piece.
        text: String,
    },
    /// The thinking ended.
    #[serde(rename = "reasoning.done", rename_all = "camelCase")]
    ReasoningDone {
        /// All of it.
        text: String,
        /// Tokens, where reported.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tokens: Option<u64>,
    },
    /// A piece of a call's arguments as the model writes them. Streamed only.
    #[serde(rename = "tool.input.delta", rename_all = "camelCase")]
    ToolInputDelta {
        /// Position of the call in the reply.
        index: u32,
        /// The tool's name, once it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tool_name: Option<String>,
        /// The piece.
        text: String,
    },
    /// A call starts.
    #[serde(rename = "tool.start", rename_all = "camelCase")]
    ToolStart {
        /// The call.
        tool_call_id: CallId,
        /// The tool.
        tool_name: Arc<str>,
        /// The arguments as read; `{}` if they could not be.
        args: Value,
        /// What was repaired in them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        repairs: Vec<RepairNote>,
        /// `provider` for hosted tools.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        executed_by: Option<String>,
        /// The call that opened this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent_tool_call_id: Option<CallId>,
    },
    /// A decided call goes on; stands in place of a second `tool.start`.
    #[serde(rename = "tool.resume", rename_all = "camelCase")]
    ToolResume {
        /// The call.
        tool_call_id: CallId,
        /// The tool.
        tool_name: Arc<str>,
        /// The arguments as decided.
        args: Value,
        /// Whether whoever decided changed them.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        edited: bool,
    },
    /// A snapshot of a running call's result. Streamed only.
    #[serde(rename = "tool.partial", rename_all = "camelCase")]
    ToolPartial {
        /// The call.
        tool_call_id: CallId,
        /// The tool.
        tool_name: Arc<str>,
        /// From 0 per call.
        index: u64,
        /// The whole snapshot.
        output: Value,
    },
    /// A call returned.
    #[serde(rename = "tool.done", rename_all = "camelCase")]
    ToolDone {
        /// The call.
        tool_call_id: CallId,
        /// The tool.
        tool_name: Arc<str>,
        /// Its result.
        result: Value,
        /// Since its start.
        duration_ms: u64,
        /// The files that its images and files became.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        attachments: Vec<AttachmentRef>,
        /// The hook that replaced the result.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        replaced_by_hook: Option<String>,
        /// `provider` for hosted tools.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        executed_by: Option<String>,
    },
    /// A call failed.
    #[serde(rename = "tool.error", rename_all = "camelCase")]
    ToolError {
        /// The call.
        tool_call_id: CallId,
        /// The tool.
        tool_name: Arc<str>,
        /// What went wrong.
        error: ErrorBody,
        /// Since its start.
        duration_ms: u64,
    },
    /// A todo list was written.
    #[serde(rename = "todo.updated", rename_all = "camelCase")]
    TodoUpdated {
        /// The list.
        todos: Vec<Todo>,
        /// By status.
        counts: TodoCounts,
        /// The call that wrote it.
        tool_call_id: CallId,
    },
    /// A call waits for a decision.
    #[serde(rename = "approval.requested", rename_all = "camelCase")]
    ApprovalRequested {
        /// The decision's id.
        approval_id: ApprovalId,
        /// The call.
        tool_call_id: CallId,
        /// The tool.
        tool_name: Arc<str>,
        /// The arguments that would run.
        args: Value,
        /// Why it is asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// `question`, `sign-in`, `external` or `outcome`; absent for a plain approval.
        #[serde(default, rename = "kind", skip_serializing_if = "Option::is_none")]
        approval_kind: Option<String>,
        /// The question.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        question: Option<Value>,
        /// The sign-in.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sign_in: Option<Value>,
        /// When the question lapses.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expires_at: Option<String>,
        /// How many have to approve, where it is more than one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        quorum: Option<u32>,
        /// Who may decide, where not everybody may.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        deciders: Vec<String>,
    },
    /// One of several deciders approved; more have to.
    #[serde(rename = "approval.voted", rename_all = "camelCase")]
    ApprovalVoted {
        /// The decision's id.
        approval_id: ApprovalId,
        /// The call.
        tool_call_id: CallId,
        /// Who approved.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        /// How many have approved.
        votes: u32,
    },
    /// A decision was handed to others.
    #[serde(rename = "approval.delegated", rename_all = "camelCase")]
    ApprovalDelegated {
        /// The decision's id.
        approval_id: ApprovalId,
        /// The call.
        tool_call_id: CallId,
        /// Who may decide now.
        to: Vec<String>,
        /// Who handed it on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        /// What they said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// Deciders were reminded that a call waits.
    #[serde(rename = "approval.reminded", rename_all = "camelCase")]
    ApprovalReminded {
        /// The decision's id.
        approval_id: ApprovalId,
        /// The call.
        tool_call_id: CallId,
        /// The tool.
        tool_name: Arc<str>,
        /// How often, this time included.
        times: u32,
    },
    /// What rules decided about a call.
    #[serde(rename = "permission.decision", rename_all = "camelCase")]
    PermissionDecision {
        /// The call.
        tool_call_id: CallId,
        /// The tool.
        tool_name: Arc<str>,
        /// `allow`, `deny`, `ask` or `default`.
        decision: String,
        /// The rule that matched.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rule: Option<RuleMatch>,
        /// The arguments it saw.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        args: Option<Value>,
        /// When.
        at: String,
        /// The hook that refused.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hook: Option<String>,
        /// Why it was refused.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// The permission mode, where it changed the outcome.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<String>,
        /// What rules in shadow would have decided.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        shadow: Vec<ShadowNote>,
    },
    /// A guardrail changed what it checked; the run goes on.
    #[serde(rename = "guardrail.rewrote", rename_all = "camelCase")]
    GuardrailRewrote {
        /// Which.
        name: String,
        /// `input`, `output`, `tool` or `result`.
        kind: String,
        /// The tool.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tool_name: Option<Arc<str>>,
        /// The call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tool_call_id: Option<CallId>,
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Types and offsets, never matched text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        info: Option<Value>,
    },
    /// A step ended.
    #[serde(rename = "step.done", rename_all = "camelCase")]
    StepDone {
        /// Its number.
        step: u32,
        /// How.
        finish_reason: StepFinish,
        /// What its model call used.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<EventUsage>,
    },
    /// The run failed, or a provider's failure was surfaced.
    #[serde(rename = "error", rename_all = "camelCase")]
    Error {
        /// What.
        error: ErrorBody,
    },
    /// Last event of a run, once.
    #[serde(rename = "run.done", rename_all = "camelCase")]
    RunDone {
        /// How it ended.
        finish_reason: FinishReason,
        /// The final reply; empty for a failed run.
        text: Arc<str>,
        /// Why it was stopped.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        abort_reason: Option<AbortReason>,
        /// What it used.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<EventUsage>,
        /// The structured reply.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        object: Option<Value>,
    },
    /// A guardrail blocked.
    #[serde(rename = "guardrail.tripped", rename_all = "camelCase")]
    GuardrailTripped {
        /// Which.
        name: String,
        /// `input`, `output`, `tool` or `result`.
        kind: String,
        /// Why.
        reason: String,
        /// The tool.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tool_name: Option<String>,
        /// Types and offsets, never matched text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        info: Option<Value>,
    },
    /// A budget was reached.
    #[serde(rename = "budget.exceeded")]
    BudgetExceeded(BudgetTrip),
    /// Input was queued for the run.
    #[serde(rename = "input.queued", rename_all = "camelCase")]
    InputQueued {
        /// Its id.
        id: InputId,
        /// Its text.
        text: String,
    },
    /// Input came that steers the run.
    #[serde(rename = "input.steered", rename_all = "camelCase")]
    InputSteered {
        /// Its id.
        id: InputId,
        /// Its text.
        text: String,
        /// `immediate` if a silent model call is given up for it, else `queued`.
        mode: String,
    },
    /// Queued input joined the transcript.
    #[serde(rename = "input.applied", rename_all = "camelCase")]
    InputApplied {
        /// Which.
        id: InputId,
        /// The step before whose model call it joined.
        step: u32,
    },
    /// Queued input was not taken; whoever sent it has it back.
    #[serde(rename = "input.returned", rename_all = "camelCase")]
    InputReturned {
        /// Which.
        id: InputId,
        /// Why.
        reason: Arc<str>,
    },
    /// What the model sees is being made shorter.
    #[serde(rename = "compaction.start", rename_all = "camelCase")]
    CompactionStart {
        /// What decides.
        strategy: Arc<str>,
        /// Tokens before, estimated.
        tokens_before: u64,
        /// The model's window.
        context_window: u64,
        /// From how many tokens on it acts.
        threshold_tokens: u64,
        /// `manual` if somebody asked for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trigger: Option<String>,
    },
    /// What the model sees was made shorter, or could not be.
    #[serde(rename = "compaction.done", rename_all = "camelCase")]
    CompactionDone {
        /// What decided.
        strategy: Arc<str>,
        /// Tokens before, estimated.
        tokens_before: u64,
        /// Tokens after, estimated.
        tokens_after: u64,
        /// Calls whose results are now a marker.
        pruned_tool_call_ids: Vec<CallId>,
        /// Whether older messages became a summary.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        summary: Option<bool>,
        /// What went wrong on the way.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<CompactionError>,
        /// `manual` if somebody asked for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trigger: Option<String>,
    },
    /// The thread's transcript was emptied.
    #[serde(rename = "context.cleared", rename_all = "camelCase")]
    ContextCleared {
        /// The thread.
        session_id: ThreadId,
        /// How many messages it had.
        messages_cleared: u64,
    },
    /// The agent that goes on differs from the one that began.
    #[serde(rename = "agent.drift", rename_all = "camelCase")]
    AgentDrift {
        /// The model is another.
        model: bool,
        /// Tools it did not have.
        tools_added: Vec<String>,
        /// Tools it has no longer.
        tools_removed: Vec<String>,
        /// Tools whose arguments are others.
        tools_changed: Vec<String>,
        /// The instructions are others.
        instructions: bool,
    },
    /// The permission mode was switched.
    #[serde(rename = "permission.mode", rename_all = "camelCase")]
    PermissionMode {
        /// The mode before.
        from: PermissionMode,
        /// The mode from here on.
        to: PermissionMode,
        /// It holds for this run alone.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        run_only: bool,
    },
    /// The events before this one are another thread's.
    #[serde(rename = "thread.forked", rename_all = "camelCase")]
    ThreadForked {
        /// The other thread.
        from: ThreadId,
        /// The position up to which its journal was copied.
        at: Seq,
    },
    /// Any other event, kept whole: of a later version, or of the application.
    #[serde(untagged)]
    Unknown(Map<String, Value>),
}

impl EventKind {
    /// The types this version reads.
    pub const TYPES: [&'static str; 35] = [
        "run.start",
        "step.start",
        "text.delta",
        "text.done",
        "reasoning.start",
        "reasoning.delta",
        "reasoning.done",
        "tool.input.delta",
        "tool.start",
        "tool.resume",
        "tool.partial",
        "tool.done",
        "tool.error",
        "todo.updated",
        "approval.requested",
        "approval.voted",
        "approval.delegated",
        "approval.reminded",
        "permission.decision",
        "permission.mode",
        "step.done",
        "error",
        "run.done",
        "guardrail.tripped",
        "guardrail.rewrote",
        "budget.exceeded",
        "input.queued",
        "input.steered",
        "input.applied",
        "input.returned",
        "compaction.start",
        "compaction.done",
        "context.cleared",
        "agent.drift",
        "thread.forked",
    ];

    /// Whether `name` is a type this version reads into its own variant.
    pub fn is_known_type(name: &str) -> bool {
        Self::TYPES.contains(&name)
    }

    /// The event's type on the wire.
    pub fn type_name(&self) -> &str {
        match self {
            Self::RunStart { .. } => "run.start",
            Self::StepStart { .. } => "step.start",
            Self::TextDelta { .. } => "text.delta",
            Self::TextDone { .. } => "text.done",
            Self::ReasoningStart {} => "reasoning.start",
            Self::ReasoningDelta { .. } => "reasoning.delta",
            Self::ReasoningDone { .. } => "reasoning.done",
            Self::ToolInputDelta { .. } => "tool.input.delta",
            Self::ToolStart { .. } => "tool.start",
            Self::ToolResume { .. } => "tool.resume",
            Self::ToolPartial { .. } => "tool.partial",
            Self::ToolDone { .. } => "tool.done",
            Self::ToolError { .. } => "tool.error",
            Self::TodoUpdated { .. } => "todo.updated",
            Self::ApprovalRequested { .. } => "approval.requested",
            Self::ApprovalVoted { .. } => "approval.voted",
            Self::ApprovalDelegated { .. } => "approval.delegated",
            Self::ApprovalReminded { .. } => "approval.reminded",
            Self::PermissionDecision { .. } => "permission.decision",
            Self::StepDone { .. } => "step.done",
            Self::Error { .. } => "error",
            Self::RunDone { .. } => "run.done",
            Self::InputQueued { .. } => "input.queued",
            Self::InputSteered { .. } => "input.steered",
            Self::InputApplied { .. } => "input.applied",
            Self::InputReturned { .. } => "input.returned",
            Self::CompactionStart { .. } => "compaction.start",
            Self::CompactionDone { .. } => "compaction.done",
            Self::ContextCleared { .. } => "context.cleared",
            Self::AgentDrift { .. } => "agent.drift",
            Self::PermissionMode { .. } => "permission.mode",
            Self::ThreadForked { .. } => "thread.forked",
            Self::GuardrailTripped { .. } => "guardrail.tripped",
            Self::GuardrailRewrote { .. } => "guardrail.rewrote",
            Self::BudgetExceeded(_) => "budget.exceeded",
            Self::Unknown(fields) => fields.get("type").and_then(Value::as_str).unwrap_or_default(),
        }
    }

    /// Whether the journal has it; the others are streamed only.
    pub fn is_durable(&self) -> bool {
        !matches!(
            self,
            Self::TextDelta { .. }
                | Self::ReasoningStart {}
                | Self::ReasoningDelta { .. }
                | Self::ToolInputDelta { .. }
                | Self::ToolPartial { .. }
        )
    }

    /// A tool's event (`tool.*`).
    pub fn is_tool_event(&self) -> bool {
        self.type_name().starts_with("tool.")
    }

    /// A text event (`text.*`).
    pub fn is_text_event(&self) -> bool {
        self.type_name().starts_with("text.")
    }

    /// A step event (`step.*`).
    pub fn is_step_event(&self) -> bool {
        self.type_name().starts_with("step.")
    }
}
