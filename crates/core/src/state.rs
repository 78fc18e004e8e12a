//! What a thread's state is made of: its calls, its runs, what waits. How records change it is in `thread.rs`.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Map;

use crate::budget::{Budgets, Spent};
use crate::decision::{ApprovalAsk, ApprovalMark, Decision};
use crate::failure::ToolFailureKind;
use crate::finish::FinishReason;
use crate::ids::{CallId, InputId, RunId, Seq, Timestamp};
use crate::message::{CallItem, Message, Part, ResultItem};
use crate::output::ToolOutput;
use crate::record::{CallOrigin, Ending, InputMode, Outcome, RunCause, RunLimits};
use crate::taint::Marks;
use crate::usage::Usage;

/// Where a call stands.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum CallState {
    /// Waits for its turn at the gate.
    Opened,
    /// Passed the gate, waits for its body to begin.
    Cleared,
    /// Somebody has to decide.
    Asking(ApprovalAsk),
    /// Decided; the gate runs once more.
    Decided(ApprovalAsk, Decision),
    /// The body began, perhaps in a process that is gone.
    Executing {
        /// From 1.
        attempt: u32,
    },
    /// Has its one result.
    Done,
}

/// A call of the open turn, or of an invocation.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its id.
    pub id: CallId,
    /// The tool's name.
    pub tool: Arc<str>,
    /// What asked for it.
    pub origin: CallOrigin,
    /// The call that opened it.
    pub parent: Option<CallId>,
    /// The arguments as written.
    pub written: Arc<str>,
    /// The call item of the model's message.
    pub item: Option<CallItem>,
    /// Whether it is a barrier in its batch.
    pub sequential: bool,
    /// Where it stands.
    pub state: CallState,
    /// The arguments that the gate let pass, with their hash.
    pub gated: Option<GatedArgs>,
    /// When the gate first let its start be seen.
    pub started_at: Option<Timestamp>,
    /// When the decision it waits for, or waited for last, was asked for.
    pub asked_at: Option<Timestamp>,
    /// How often its body began.
    pub attempts: u32,
    /// How often a decision was asked for.
    pub asked: u32,
    /// The decision that let it run, once there was one.
    pub decision: Option<Decision>,
    /// Approvals of a decision that several people make, in the order they came.
    pub votes: Vec<Decision>,
    /// How often deciders were reminded.
    pub reminded: u32,
    /// It waits, but this approval, given to another call, may answer for it: it comes before the gate again.
    pub covered: Option<Box<Decision>>,
    pub(crate) result: Option<(Seq, Outcome)>,
    pub(crate) marks: Marks,
}

impl Call {
    /// Its result, once there is one.
    pub fn result(&self) -> Option<&Outcome> {
        self.result.as_ref().map(|(_, outcome)| outcome)
    }

    /// The pending decision, if the call waits for one.
    pub fn asking(&self) -> Option<&ApprovalAsk> {
        match &self.state {
            CallState::Asking(ask) => Some(ask),
            _ => None,
        }
    }

    /// The mark of the approval that let it run.
    pub(crate) fn approval_mark(&self) -> Option<ApprovalMark> {
        let decision = self.decision.as_ref().filter(|decision| decision.approves())?;
        let arguments = self.gated.as_ref().map_or(&self.written, |gated| &gated.text);
        let args = crate::json::sorted_hash(arguments).into();
        Some(ApprovalMark { args, automatic: decision.automatic, remember: decision.remember.clone() })
    }

    /// The arguments that a person approved, also where the gate has not looked at the decision yet; those that code approved only
    /// where it says that this is to be remembered (sdk-tools 11.2/9).
    pub(crate) fn approved_arguments(&self) -> Option<&Arc<str>> {
        let shown = self.gated.as_ref().map_or(&self.written, |gated| &gated.text);
        let (decision, arguments) = match &self.state {
            CallState::Decided(ask, decision) if ask.kind.can_be_remembered() && ask.is_approved_by(decision) => {
                (decision, decision.edited().unwrap_or(shown))
            }
            CallState::Decided(..) => return None,
            _ => (self.decision.as_ref().filter(|decision| decision.approves())?, shown),
        };
        (!decision.automatic || decision.remember.is_some()).then_some(arguments)
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self.state, CallState::Done)
    }
}

/// Arguments the gate let pass: compact JSON text and its SHA-256.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatedArgs {
    /// Compact JSON.
    pub text: Arc<str>,
    /// SHA-256 of the text, in hexadecimal.
    pub sha256: Arc<str>,
}

/// A run that has not ended.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its id.
    pub id: RunId,
    /// What started it.
    pub cause: RunCause,
    /// The agent's name.
    pub agent: Arc<str>,
    /// Its limits.
    pub limits: RunLimits,
    /// What was added to the agent's instructions for it.
    pub added: Option<Arc<str>>,
    /// Who it acts for.
    pub principal: Option<serde_json::Value>,
    /// The application's own data.
    pub metadata: Map<String, serde_json::Value>,
    /// What its model calls used.
    pub usage: Option<Usage>,
    /// How many model calls there were.
    pub model_calls: u32,
    /// Set once it has to end before the model is done.
    pub ending: Option<Ending>,
    /// The position of its first record.
    pub since: Seq,
    /// The last reply of its model, if its calls did not make the run go on.
    pub(crate) last_finish: Option<FinishReason>,
    /// The last reply's text, and the position of its record.
    pub(crate) text: Arc<str>,
    pub(crate) text_at: Option<Seq>,
    /// Bodies begun in this run, per tool.
    pub(crate) calls_per_tool: HashMap<Arc<str>, u32>,
    /// Calls of this run whose body asked for another try, per tool.
    pub(crate) retries_per_tool: HashMap<Arc<str>, u32>,
    /// A summary was not enough in this run.
    pub(crate) prune_only: bool,
    /// What it may use.
    pub budgets: Option<Arc<Budgets>>,
    /// Whether guardrails check its input before a model sees it.
    pub checks_input: bool,
    /// What it has used; its time stands in the next two.
    pub(crate) spent: Spent,
    pub(crate) began_at: Timestamp,
    /// Milliseconds in which nobody moved it.
    pub(crate) idle_ms: u64,
}

impl Run {
    /// Whether a summary was not enough in this run: it prunes only from then on (sdk-runtime CMP-9).
    pub fn prunes_only(&self) -> bool {
        self.prune_only
    }
}

/// What a provider counted of the transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// Tokens of the whole request, instructions and tools included.
    pub tokens: u64,
    /// How many messages of the transcript it had.
    pub messages: usize,
}

/// How the last run ended.
#[derive(Clone, Debug)]
pub struct LastRun {
    /// Its id.
    pub id: RunId,
    /// Its reason.
    pub finish: FinishReason,
    /// The final reply.
    pub text: Arc<str>,
    /// What its model calls used.
    pub usage: Option<Usage>,
    /// How many model calls there were.
    pub model_calls: u32,
    /// Why it ended early.
    pub ending: Option<Ending>,
    /// What was added to the agent's instructions for it.
    pub added: Option<Arc<str>>,
    /// Who it acted for.
    pub principal: Option<serde_json::Value>,
    /// The application's own data.
    pub metadata: Map<String, serde_json::Value>,
    /// The position of its first record, and of the one that has the text.
    pub(crate) since: Seq,
    pub(crate) text_at: Option<Seq>,
}

/// The step that is open: its start has a record, its end has none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct OpenStep {
    pub(crate) number: u32,
    pub(crate) replied: bool,
    /// Its silent model call is given up for input that steers.
    pub(crate) steered: bool,
    pub(crate) usage: Option<Usage>,
    pub(crate) finish: Option<FinishReason>,
}

/// One call of a turn and its end: tool, arguments, outcome.
pub(crate) type Ended = (Arc<str>, Arc<str>, Outcome);

/// The last turn of a model, and how often in a row it was the same calls with the same results.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repetition {
    pub(crate) what: Turn,
    pub(crate) count: u32,
}

/// A turn that ended: in full, or as a hash, where it was loaded from a snapshot.
#[derive(Clone, Debug)]
pub(crate) enum Turn {
    Ended(Vec<Ended>),
    Hash(String),
}

impl Default for Turn {
    fn default() -> Self {
        Self::Ended(Vec::new())
    }
}

impl Turn {
    pub(crate) fn hash(&self) -> String {
        match self {
            Self::Ended(calls) => crate::text::sha256_hex(serde_json::to_string(calls).unwrap_or_default().as_bytes()),
            Self::Hash(hash) => hash.clone(),
        }
    }

    pub(crate) fn is(&self, calls: &[Ended]) -> bool {
        match self {
            Self::Ended(known) => *known == calls,
            Self::Hash(hash) => *hash == Self::Ended(calls.to_vec()).hash(),
        }
    }
}

/// Input that no run has taken yet.
#[derive(Clone, Debug, PartialEq)]
pub struct QueuedInput {
    /// Its id.
    pub id: InputId,
    /// How it joins.
    pub mode: InputMode,
    /// Its messages.
    pub messages: Vec<Arc<Message>>,
    /// The only run that may take it.
    pub only: Option<RunId>,
    /// The position of its record.
    pub since: Seq,
}

/// The result of a call, as it stands in the transcript.
pub(crate) fn result_item(
    call: &CallId,
    tool: &str,
    outcome: &Outcome,
    provider_id: Option<String>,
    approval: Option<ApprovalMark>,
    marks: Marks,
) -> ResultItem {
    let (parts, failed): (Vec<Part>, Option<ToolFailureKind>) = match outcome {
        Outcome::Done { output } => (parts_of(output), None),
        Outcome::Failed { failure } => {
            let value = serde_json::to_value(&**failure).unwrap_or_default();
            (vec![Part::Json { value }], Some(failure.kind.clone()))
        }
    };
    ResultItem { call_id: call.clone(), provider_id, tool_name: tool.to_owned(), parts, failed, approval, marks }
}

/// What a model reads of an output: `null` if there is nothing.
pub(crate) fn parts_of(output: &ToolOutput) -> Vec<Part> {
    if output.parts().is_empty() { vec![Part::Json { value: serde_json::Value::Null }] } else { output.parts().to_vec() }
}

/// Two failures of one kind are the same whichever call they belong to.
pub(crate) fn without_call_id(mut outcome: Outcome) -> Outcome {
    if let Outcome::Failed { failure } = &mut outcome {
        Arc::make_mut(failure).tool_call_id = None;
    }
    outcome
}
