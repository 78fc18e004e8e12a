//! Records: the journal of a thread. State is the fold of its records; everything else is a view of them.
//!
//! A record carries its time and everything a view needs, so that projecting it asks nobody. Kinds are added, never
//! changed; a kind this version does not know is kept whole, and the thread then does not move.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::args::RepairNote;
use crate::budget::Budgets;
use crate::decision::{ApprovalAsk, Decision};
use crate::failure::ToolFailure;
use crate::fingerprint::{Drift, Fingerprint};
use crate::finish::{AbortReason, BudgetTrip, Failure, FinishReason, GuardrailTrip, StepFinish};
use crate::ids::{ApprovalId, CallId, InputId, RunId, Seq, ThreadId, Timestamp};
use crate::message::Message;
use crate::notes::{GateNotes, ResultNotes, RewriteNote};
use crate::output::ToolOutput;
use crate::policy::PermissionMode;
use crate::usage::{SideUsage, Usage};
use crate::words::words;

/// The layout version of records this crate writes.
pub const RECORD_VERSION: u32 = 1;

/// One entry of a thread's journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Its position.
    pub seq: Seq,
    /// When it was written.
    pub at: Timestamp,
    /// The run it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// What happened.
    #[serde(flatten)]
    pub body: RecordBody,
}

words! {
    /// What started a run.
    RunCause {
        /// New input.
        Input = "input",
        /// A decision on a waiting call.
        Decision = "decision",
        /// Somebody asked an interrupted or waiting thread to go on.
        Resume = "resume",
        /// A client called a tool directly.
        Invocation = "invocation",
    }
}

words! {
    /// What asked for a call.
    CallOrigin {
        /// A model's turn.
        Model = "model",
        /// A script.
        Script = "script",
        /// A queue.
        Queue = "queue",
        /// Another tool or the application.
        Invocation = "invocation",
        /// A handoff.
        Handoff = "handoff",
        /// A node of a flow.
        Flow = "flow",
        /// A client: command line, HTTP, MCP.
        Client = "client",
    }
}

words! {
    /// How queued input joins a run.
    InputMode {
        /// At the next safe point: after the step's results, before the next model call (sdk-runtime QUE-1).
        Queue = "queue",
        /// As soon as it can: a silent model call is given up, calls that have not begun are not begun (sdk-runtime STE-1, STE-3).
        Steer = "steer",
    }
}

/// How what a model sees was made shorter. Applied to the transcript as it stood: first `pruned`, then `folded`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Compaction {
    /// The step before whose model call it happened; absent if somebody asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
    /// What decided: `prune`, `summarize`, `two-phase`, or a name of the application's.
    pub strategy: Arc<str>,
    /// Tokens before, estimated.
    pub tokens_before: u64,
    /// Tokens after, estimated.
    pub tokens_after: u64,
    /// The model's window.
    pub context_window: u64,
    /// From how many tokens on it acts.
    pub threshold_tokens: u64,
    /// Calls whose results are now a marker.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pruned: Vec<CallId>,
    /// Messages that are now one summary, which stands where the first of them stood.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folded: Option<Folded>,
    /// What went wrong on the way; the run goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// A summary was not enough: the run prunes only from here on (sdk-runtime CMP-9).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub prune_only: bool,
    /// What the summary cost; counted among the run's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// Messages that became one summary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Folded {
    /// Index ranges in the transcript, the end not included; ascending, apart, each whole groups of calls and results.
    pub ranges: Vec<(usize, usize)>,
    /// The summary, without its header.
    pub summary: Arc<str>,
}

/// A call enters the tree of calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallOpening {
    /// Its id.
    pub call: CallId,
    /// The tool's name, resolved where it could be.
    pub tool: Arc<str>,
    /// What asked for it.
    pub origin: CallOrigin,
    /// The call whose body opened it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<CallId>,
    /// The arguments as written. Absent for a model's call, whose message has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Arc<str>>,
    /// Whether the call is a barrier in its batch.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sequential: bool,
}

/// What the gate found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Verdict {
    /// The call may run.
    Run,
    /// Somebody has to decide first.
    Ask(ApprovalAsk),
    /// The call gets this failure and does not run.
    Refuse {
        /// The failure.
        failure: Arc<ToolFailure>,
    },
    /// A hook supplied the result; the body does not run.
    Answer {
        /// The result.
        output: Arc<ToolOutput>,
    },
    /// The run ends: a guardrail, or a stage that failed in a way that ends runs.
    EndRun {
        /// How.
        ending: Ending,
    },
}

/// Why a run ends before the model is done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ending", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Ending {
    /// Stopped from outside.
    Aborted {
        /// Why.
        reason: AbortReason,
    },
    /// Something failed.
    Error {
        /// What.
        failure: Failure,
    },
    /// A guardrail.
    Guardrail {
        /// Which.
        trip: GuardrailTrip,
        /// The run fails for it, as the agent has it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        throws: bool,
    },
    /// A budget.
    Budget {
        /// Which.
        budget: BudgetTrip,
        /// The run fails for it, as the budget has it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        throws: bool,
    },
}

impl Ending {
    /// What the run fails with; `None` where it ends in another way.
    pub fn failure(&self) -> Option<Failure> {
        let named = |name: &str, message: String, code: &str| Failure { name: name.to_owned(), message, code: Some(code.to_owned()) };
        match self {
            Self::Error { failure } => Some(failure.clone()),
            Self::Guardrail { trip, throws: true } => {
                let message = format!("the guardrail `{}` on {} ended the run: {}", trip.name, trip.kind, trip.reason);
                Some(named("GuardrailError", message, "TOOLWRIGHT_GUARDRAIL_TRIPPED"))
            }
            Self::Budget { budget, throws: true } => {
                let message = format!("the run reached its budget: {budget}; raise it, or ask for less at once");
                Some(named("BudgetExceededError", message, "TOOLWRIGHT_BUDGET_EXCEEDED"))
            }
            Self::Aborted { .. } | Self::Guardrail { .. } | Self::Budget { .. } => None,
        }
    }
}

/// Input whose text a guardrail changed before a model saw it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RewrittenInput {
    /// Which of the messages that were checked, from 0.
    pub index: usize,
    /// Its text now.
    pub text: Arc<str>,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// With a result.
    Done {
        /// The result.
        output: Arc<ToolOutput>,
    },
    /// With a failure.
    Failed {
        /// The failure.
        failure: Arc<ToolFailure>,
    },
}

impl Outcome {
    /// A failure.
    pub fn failed(failure: ToolFailure) -> Self {
        Self::Failed { failure: Arc::new(failure) }
    }

    /// A result.
    pub fn done(output: ToolOutput) -> Self {
        Self::Done { output: Arc::new(output) }
    }
}

/// What happened. Serialised with the tag `kind`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind")]
#[non_exhaustive]
pub enum RecordBody {
    /// The thread came to be.
    #[serde(rename = "thread.opened", rename_all = "camelCase")]
    ThreadOpened {
        /// Its id.
        thread: ThreadId,
        /// The layout version of its records.
        version: u32,
        /// The agent it was opened with.
        agent: Arc<str>,
        /// The thread it is a child of.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<ThreadId>,
    },
    /// A run began.
    #[serde(rename = "run.started", rename_all = "camelCase")]
    RunStarted {
        /// What started it.
        cause: RunCause,
        /// The agent's name.
        agent: Arc<str>,
        /// Its limits.
        limits: RunLimits,
        /// What the agent is; absent if it is as at the run before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fingerprint: Option<Arc<Fingerprint>>,
        /// The agent's instructions, where the fingerprint is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instructions: Option<Arc<str>>,
        /// What was added to them for this run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        added: Option<Arc<str>>,
        /// Who it acts for; never part of an event.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        principal: Option<Value>,
        /// The application's own data.
        #[serde(default, skip_serializing_if = "Map::is_empty")]
        metadata: Map<String, Value>,
        /// What it may use.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        budgets: Option<Arc<Budgets>>,
        /// Whether guardrails check input before a model sees it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        checks_input: bool,
    },
    /// An owner goes on with a run that another left where it was. The time since the last record is not the run's; written where that
    /// matters.
    #[serde(rename = "run.taken_over")]
    RunTakenOver {},
    /// Guardrails checked the input that joined since the last model call. Never checked again.
    #[serde(rename = "input.checked", rename_all = "camelCase")]
    InputChecked {
        /// How many messages.
        messages: usize,
        /// Those whose text was changed.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        rewritten: Vec<RewrittenInput>,
        /// What changed them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        rewrote: Vec<RewriteNote>,
        /// How the run ends, if they do not pass. Blocked input leaves the transcript.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ending: Option<Ending>,
        /// What models used that were asked about them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        side: Option<SideUsage>,
    },
    /// A message that no model wrote joined the transcript.
    #[serde(rename = "message.added", rename_all = "camelCase")]
    MessageAdded {
        /// The message.
        message: Arc<Message>,
    },
    /// A step began.
    #[serde(rename = "step.started", rename_all = "camelCase")]
    StepStarted {
        /// Its number, from 1, counted over pauses.
        step: u32,
    },
    /// The model replied. Never asked for again (invariant 3).
    #[serde(rename = "model.replied", rename_all = "camelCase")]
    ModelReplied {
        /// The step.
        step: u32,
        /// The reply; its calls carry our ids.
        message: Arc<Message>,
        /// Its calls, as they enter the tree.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<CallOpening>,
        /// How the reply ended.
        finish: FinishReason,
        /// What it used.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
        /// The model that replied.
        model: Arc<str>,
        /// Guardrails that changed its text.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        rewrote: Vec<RewriteNote>,
        /// What models used that hooks and guardrails asked about it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        side: Option<SideUsage>,
    },
    /// The model replied and its reply is withheld: nothing of it joins the transcript, its calls neither, and it is never asked for
    /// again.
    #[serde(rename = "reply.withheld", rename_all = "camelCase")]
    ReplyWithheld {
        /// The step.
        step: u32,
        /// How the run ends: a guardrail blocked the reply, or the input it was racing with, or something that looked at it failed.
        ending: Ending,
        /// What the reply used; absent where the model was stopped before it said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
        /// What models used that hooks and guardrails asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        side: Option<SideUsage>,
    },
    /// A budget was reached.
    #[serde(rename = "budget.exceeded", rename_all = "camelCase")]
    BudgetExceeded {
        /// Which.
        budget: BudgetTrip,
        /// The run fails for it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        throws: bool,
    },
    /// The model could not reply.
    #[serde(rename = "model.failed", rename_all = "camelCase")]
    ModelFailed {
        /// The step.
        step: u32,
        /// Why.
        failure: Failure,
    },
    /// A call that is not part of a model's reply entered the tree.
    #[serde(rename = "call.opened")]
    CallOpened(CallOpening),
    /// A call passed the gate, one way or another.
    #[serde(rename = "call.gated", rename_all = "camelCase")]
    CallGated {
        /// The call.
        call: CallId,
        /// The tool.
        tool: Arc<str>,
        /// The arguments that hooks, rules and people saw and that run: compact JSON. Absent if they could not be read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments: Option<Arc<str>>,
        /// SHA-256 of `arguments`, in hexadecimal; a decision is bound to it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sha256: Option<Arc<str>>,
        /// What was repaired.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        repairs: Vec<RepairNote>,
        /// Whether this was the gate after a decision.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        resumed: bool,
        /// The call that opened this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<CallId>,
        /// Whether the tool says that it only reads.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        read_only: bool,
        /// What its stages have to say besides; absent where that is nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        notes: Option<Box<GateNotes>>,
        /// What the gate found.
        #[serde(flatten)]
        verdict: Verdict,
    },
    /// Somebody decided about a waiting call.
    #[serde(rename = "call.decided", rename_all = "camelCase")]
    CallDecided {
        /// The decision's id.
        approval: ApprovalId,
        /// The call.
        call: CallId,
        /// The hash of the arguments it was about.
        sha256: Arc<str>,
        /// What was decided.
        decision: Decision,
    },
    /// One of several deciders approved; more have to.
    #[serde(rename = "call.voted", rename_all = "camelCase")]
    CallVoted {
        /// The decision's id.
        approval: ApprovalId,
        /// The call.
        call: CallId,
        /// The hash of the arguments it was about.
        sha256: Arc<str>,
        /// The approval.
        decision: Decision,
        /// How many have approved, this one included.
        votes: u32,
    },
    /// A decision was handed to others.
    #[serde(rename = "approval.delegated")]
    ApprovalDelegated(Box<Delegation>),
    /// Deciders were reminded that a call waits.
    #[serde(rename = "approval.reminded", rename_all = "camelCase")]
    ApprovalReminded {
        /// The decision's id.
        approval: ApprovalId,
        /// The call.
        call: CallId,
        /// The tool.
        tool: Arc<str>,
        /// How often, this time included.
        times: u32,
    },
    /// A body is about to begin; durable before it does (invariant 3).
    #[serde(rename = "call.executing", rename_all = "camelCase")]
    CallExecuting {
        /// The call.
        call: CallId,
        /// The tool.
        tool: Arc<str>,
        /// From 1; more than 1 after an interruption.
        attempt: u32,
        /// On a later attempt: the arguments, so that `tool.start` can be shown anew.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments: Option<Arc<str>>,
    },
    /// A call's one result. Never produced again (invariant 3).
    #[serde(rename = "call.done", rename_all = "camelCase")]
    CallDone {
        /// The call.
        call: CallId,
        /// The tool.
        tool: Arc<str>,
        /// How it ended.
        #[serde(flatten)]
        outcome: Outcome,
        /// Milliseconds since its start; absent if it never started.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        duration_ms: Option<u64>,
        /// The hook that replaced the result.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        replaced_by: Option<String>,
        /// The failure that ends the run with it, if the tool propagated one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fatal: Option<Failure>,
        /// What was noted about the result; absent where that is nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        notes: Option<Box<ResultNotes>>,
    },
    /// A step ended.
    #[serde(rename = "step.done", rename_all = "camelCase")]
    StepDone {
        /// Its number.
        step: u32,
        /// How.
        finish: StepFinish,
        /// What its model call used.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
    },
    /// Somebody asked the run to stop.
    #[serde(rename = "run.cancelled", rename_all = "camelCase")]
    RunCancelled {
        /// Why.
        reason: AbortReason,
    },
    /// A run ended, once.
    #[serde(rename = "run.done", rename_all = "camelCase")]
    RunDone {
        /// How.
        finish: FinishReason,
        /// The final reply.
        text: Arc<str>,
        /// What all model calls used.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
        /// How many model calls there were.
        model_calls: u32,
        /// Why it ended early.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ending: Option<Ending>,
        /// Input was sent to the thread that this run did not take: the thread has more to do.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        input_waits: bool,
    },
    /// Input came for the run that is active, or for the next one.
    #[serde(rename = "input.queued", rename_all = "camelCase")]
    InputQueued {
        /// Its id.
        id: InputId,
        /// How it joins.
        mode: InputMode,
        /// Its messages.
        messages: Vec<Arc<Message>>,
        /// The only run that may take it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        only: Option<RunId>,
        /// Whether the model call in flight is given up for it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        immediate: bool,
    },
    /// Queued input joined the transcript.
    #[serde(rename = "input.applied", rename_all = "camelCase")]
    InputApplied {
        /// Which.
        id: InputId,
        /// The step before whose model call it joined.
        step: u32,
    },
    /// Queued input was not taken: its sender has it back.
    #[serde(rename = "input.returned", rename_all = "camelCase")]
    InputReturned {
        /// Which.
        id: InputId,
        /// Why.
        why: Arc<str>,
    },
    /// What a model sees was made shorter. The journal keeps everything.
    #[serde(rename = "context.compacted")]
    ContextCompacted(Compaction),
    /// The agent that goes on differs from the one that began.
    #[serde(rename = "agent.drifted")]
    AgentDrifted(Drift),
    /// The permission mode was switched.
    #[serde(rename = "permission.mode", rename_all = "camelCase")]
    PermissionMode {
        /// The mode before.
        from: PermissionMode,
        /// The mode from here on.
        to: PermissionMode,
        /// It holds for this run alone, and for what goes on from it after a pause.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        run_only: bool,
    },
    /// The records before this one were copied from another thread.
    #[serde(rename = "thread.forked", rename_all = "camelCase")]
    ThreadForked {
        /// The thread they were copied from.
        from: ThreadId,
        /// Up to where.
        through: Seq,
    },
    /// The transcript was replaced as a whole: in a fork, or because it was emptied.
    #[serde(rename = "transcript.replaced", rename_all = "camelCase")]
    TranscriptReplaced {
        /// The messages, balanced.
        messages: Vec<Arc<Message>>,
        /// The thread, if it was emptied, and how many messages it had.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cleared: Option<(ThreadId, u64)>,
    },
    /// A result in the transcript was replaced, in a fork.
    #[serde(rename = "result.replaced", rename_all = "camelCase")]
    ResultReplaced {
        /// The call.
        call: CallId,
        /// The tool.
        tool: Arc<str>,
        /// Its result now.
        output: Arc<ToolOutput>,
    },
    /// A kind this version does not know, kept whole.
    #[serde(untagged)]
    Unknown(Value),
}

/// A decision that was handed to others, with all that a list of pending decisions shows of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Delegation {
    /// The call.
    pub call: CallId,
    /// The tool.
    pub tool: Arc<str>,
    /// The arguments that would run.
    pub arguments: Arc<str>,
    /// Their hash.
    pub sha256: Arc<str>,
    /// When the decision was asked for.
    pub asked_at: Timestamp,
    /// The question, with who may decide now.
    #[serde(flatten)]
    pub ask: ApprovalAsk,
    /// Who handed it on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// What they said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The limits of a run, fixed at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunLimits {
    /// Model calls, pauses included.
    pub max_steps: u32,
    /// Bodies side by side; `None` is unbounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_concurrency: Option<u32>,
    /// How often the same call may give the same result in a row before the run is stopped; `None` is never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_repeats: Option<u32>,
}

impl Default for RunLimits {
    fn default() -> Self {
        Self { max_steps: 10, tool_concurrency: None, max_repeats: Some(5) }
    }
}
