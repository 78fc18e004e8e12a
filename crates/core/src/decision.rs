//! Decisions: what somebody is asked about a call, and what they say.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::failure::ToolFailure;
use crate::ids::{ApprovalId, Timestamp};
use crate::output::ToolOutput;
use crate::words::words;

words! {
    /// What a waiting call waits for.
    AskKind {
        /// A yes or a no.
        Tool = "tool",
        /// An answer.
        Question = "question",
        /// A sign-in.
        SignIn = "sign-in",
        /// A result that is made outside: the tool has no body.
        External = "external",
        /// A yes or a no to running again what was interrupted and had perhaps run.
        Outcome = "outcome",
    }
}

impl AskKind {
    fn tool() -> Self {
        Self::Tool
    }

    /// A plain yes or no.
    pub fn is_tool(&self) -> bool {
        *self == Self::Tool
    }

    /// Whether a decision of this kind is an answer to it.
    pub fn takes(&self, verdict: &DecisionVerdict) -> bool {
        match verdict {
            DecisionVerdict::Reject | DecisionVerdict::Lapsed => true,
            DecisionVerdict::Approve => *self != Self::External,
            DecisionVerdict::ApproveEdited { .. } => matches!(self, Self::Tool | Self::Outcome),
            DecisionVerdict::Complete { .. } | DecisionVerdict::Fail { .. } => *self == Self::External,
        }
    }

    /// Whether an approval of another call may answer it (sdk-tools 11.2/7).
    pub fn can_be_remembered(&self) -> bool {
        self.is_tool()
    }
}

words! {
    /// How far an approval is remembered.
    Remember {
        /// For every call of the tool.
        Tool = "tool",
        /// For calls of the tool with the same arguments, in whatever order their keys stand.
        Arguments = "args",
    }
}

/// What a pending decision is about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalAsk {
    /// The decision's id.
    pub approval: ApprovalId,
    /// What the call waits for.
    #[serde(default = "AskKind::tool", rename = "waitsFor", skip_serializing_if = "AskKind::is_tool")]
    pub kind: AskKind,
    /// Why it is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When the question lapses; a later approval counts as a refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Kind-specific detail: a question with options, a sign-in address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Value>,
    /// How many different people have to approve; one rejection is enough to refuse.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub quorum: u32,
    /// Who may decide; anybody where it is empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deciders: Vec<String>,
    /// How far an approval answers later calls by itself, where the tool says so (sdk-tools 11.1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub once: Option<Remember>,
    /// Milliseconds after which deciders are reminded, again and again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remind_every_ms: Option<u64>,
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out a reference")]
fn is_one(quorum: &u32) -> bool {
    *quorum == 1
}

impl ApprovalAsk {
    /// A plain yes or no of anybody, without a limit of time.
    pub fn new(approval: ApprovalId) -> Self {
        Self {
            approval,
            kind: AskKind::Tool,
            reason: None,
            expires_at: None,
            detail: None,
            quorum: 1,
            deciders: Vec::new(),
            once: None,
            remind_every_ms: None,
        }
    }

    /// Whether the question had lapsed at `at`.
    pub fn has_lapsed(&self, at: Timestamp) -> bool {
        self.expires_at.is_some_and(|expires| at >= expires)
    }

    /// Whether the decision lets the call run, and came in time.
    pub fn is_approved_by(&self, decision: &Decision) -> bool {
        decision.approves() && !decision.at.is_some_and(|at| self.has_lapsed(at))
    }
}

/// What was decided about a waiting call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// Yes or no.
    pub verdict: DecisionVerdict,
    /// What the decider wants to say; the answer, where a question was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Who decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// When; set where the decision is posted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// Whether it stands for later calls of the thread too, and for which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remember: Option<Remember>,
    /// Made by code rather than by a person: not remembered unless it says so (sdk-tools 11.2/9).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub automatic: bool,
}

/// The decision itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum DecisionVerdict {
    /// The call may run as it was shown.
    Approve,
    /// The call may run with these arguments instead: compact JSON text, read and validated like any other.
    ApproveEdited {
        /// The new arguments.
        arguments: Arc<str>,
    },
    /// The call does not run.
    Reject,
    /// The result of a call whose tool has no body.
    Complete {
        /// The result.
        output: Arc<ToolOutput>,
    },
    /// The failure of a call whose tool has no body.
    Fail {
        /// The failure.
        failure: Arc<ToolFailure>,
    },
    /// Nobody decided in time.
    Lapsed,
}

impl Decision {
    fn of(verdict: DecisionVerdict) -> Self {
        Self { verdict, note: None, by: None, at: None, remember: None, automatic: false }
    }

    /// The call may run as shown.
    pub fn approve() -> Self {
        Self::of(DecisionVerdict::Approve)
    }

    /// The call may run with other arguments: a JSON object as text.
    pub fn approve_with(arguments: impl Into<Arc<str>>) -> Self {
        Self::of(DecisionVerdict::ApproveEdited { arguments: arguments.into() })
    }

    /// The call does not run.
    pub fn reject() -> Self {
        Self::of(DecisionVerdict::Reject)
    }

    /// The answer to a question.
    pub fn answer(answer: impl Into<String>) -> Self {
        Self::approve().note(answer)
    }

    /// The result of a call whose tool has no body.
    pub fn complete(output: ToolOutput) -> Self {
        Self::of(DecisionVerdict::Complete { output: Arc::new(output) })
    }

    /// The failure of a call whose tool has no body.
    pub fn fail(failure: ToolFailure) -> Self {
        Self::of(DecisionVerdict::Fail { failure: Arc::new(failure) })
    }

    /// Nobody decided in time.
    pub fn lapsed() -> Self {
        Self { automatic: true, ..Self::of(DecisionVerdict::Lapsed) }
    }

    /// With a note for the model.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// Who decided.
    #[must_use]
    pub fn by(mut self, by: impl Into<String>) -> Self {
        self.by = Some(by.into());
        self
    }

    /// The approval stands for every later call of this tool in the thread. A refusal of a rule, a hook or the mode still refuses.
    #[must_use]
    pub fn always(mut self) -> Self {
        self.remember = Some(Remember::Tool);
        self
    }

    /// As [`Decision::always`], for calls with the same arguments only.
    #[must_use]
    pub fn always_with_these_arguments(mut self) -> Self {
        self.remember = Some(Remember::Arguments);
        self
    }

    /// Made by code rather than by a person.
    #[must_use]
    pub fn automatic(mut self) -> Self {
        self.automatic = true;
        self
    }

    /// Whether it lets the call run.
    pub fn approves(&self) -> bool {
        matches!(self.verdict, DecisionVerdict::Approve | DecisionVerdict::ApproveEdited { .. })
    }

    /// The arguments it sets in place of those that were shown.
    pub fn edited(&self) -> Option<&Arc<str>> {
        match &self.verdict {
            DecisionVerdict::ApproveEdited { arguments } => Some(arguments),
            _ => None,
        }
    }
}

/// That a person, or code in a person's place, approved a call: kept with its result (sdk-tools 13.7).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalMark {
    /// Hash of the arguments that ran, in whatever order their keys stood: [`crate::json::sorted_hash`].
    pub args: Arc<str>,
    /// Approved by code.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub automatic: bool,
    /// Whether it stands for later calls too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remember: Option<Remember>,
}

/// An approval that stands for later calls of its tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Remembered {
    /// The tool.
    pub tool: Arc<str>,
    /// For which of its calls.
    pub per: Remember,
    /// Hash of the approved arguments: [`crate::json::sorted_hash`].
    pub args: Arc<str>,
    /// Who approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

impl Remembered {
    /// Whether it stands for a call of `tool` with these arguments.
    pub fn covers(&self, tool: &str, args: &str) -> bool {
        *self.tool == *tool
            && match self.per {
                Remember::Tool => true,
                Remember::Arguments => *self.args == *args,
                Remember::Other(_) => false,
            }
    }

    /// Whether who approved could decide by themselves where so many of these have to approve: one person's approval that stands for
    /// later calls stands for nobody else's.
    pub fn may_answer(&self, quorum: u32, deciders: &[String]) -> bool {
        quorum <= 1 && (deciders.is_empty() || self.by.as_ref().is_some_and(|by| deciders.contains(by)))
    }
}
