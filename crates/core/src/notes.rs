//! What stages note about a call besides their verdict: the audit of rules, rewrites of guardrails, where text came from.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::record::Ending;
use crate::taint::{Marks, Taint};
use crate::usage::SideUsage;
use crate::words::words;

words! {
    /// What an audit entry says about a call (sdk-tools 12.3).
    PermissionWord {
        /// A rule let it run.
        Allow = "allow",
        /// A rule, a hook or the mode refused it.
        Deny = "deny",
        /// A rule has somebody decide.
        Ask = "ask",
        /// No rule matched.
        Default = "default",
    }
}

/// A rule that matched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleMatch {
    /// Its index in the list, from 0.
    pub index: usize,
    /// Its reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What a rule in shadow would have decided; it decided nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShadowNote {
    /// Its index in the list, from 0.
    pub index: usize,
    /// `allow`, `deny` or `ask`.
    pub decision: PermissionWord,
    /// Its reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The audit entry of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PermissionNote {
    /// What was decided.
    pub decision: PermissionWord,
    /// The rule that matched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<RuleMatch>,
    /// The hook that refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<String>,
    /// Why it was refused; absent unless it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The permission mode, where it changed the outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// What rules in shadow would have decided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shadow: Vec<ShadowNote>,
}

impl PermissionNote {
    /// A note that says `decision` and nothing else.
    pub fn new(decision: PermissionWord) -> Self {
        Self { decision, rule: None, hook: None, reason: None, mode: None, shadow: Vec::new() }
    }
}

/// A guardrail that changed what it checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RewriteNote {
    /// The guardrail.
    pub name: String,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Types and offsets, never matched text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info: Option<Value>,
}

/// What the stages of the gate noted about a call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GateNotes {
    /// The audit entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission: Option<PermissionNote>,
    /// Guardrails that changed the arguments, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rewrote: Vec<RewriteNote>,
    /// Whoever decided changed the arguments.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub edited: bool,
    /// What the arguments repeat of marked text.
    #[serde(default, skip_serializing_if = "Taint::is_empty")]
    pub taint: Taint,
    /// What models used that hooks and guardrails asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub side: Option<SideUsage>,
}

impl GateNotes {
    /// The notes, or nothing where there are none.
    pub fn some(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }
}

/// What was noted about a result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResultNotes {
    /// Guardrails that changed the result, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rewrote: Vec<RewriteNote>,
    /// Where its text came from, for later calls that repeat it.
    #[serde(default, skip_serializing_if = "Marks::is_empty")]
    pub marks: Marks,
    /// How the run ends with it, where a guardrail withheld it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<Ending>,
    /// What models used that hooks and guardrails asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub side: Option<SideUsage>,
}

impl ResultNotes {
    /// The notes, or nothing where there are none.
    pub fn some(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }
}
