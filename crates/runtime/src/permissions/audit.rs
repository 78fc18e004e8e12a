//! The audit of calls: what was decided about each, and by what.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use toolwright_core::policy::PermissionMode;
use toolwright_core::taint::Taint;
use toolwright_core::{CallId, PermissionNote, PermissionWord, RuleMatch, ShadowNote, Timestamp};
use toolwright_tool::Identity;

/// What was decided about a call, as the audit callback gets it (sdk-tools 12.3). The same stands in the event `permission.decision`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct PermissionEntry {
    /// The tool.
    pub tool_name: String,
    /// The call.
    pub tool_call_id: CallId,
    /// The action of the rule that matched; `default` where none did; `deny` or `allow` also where a hook or the mode decided.
    pub decision: PermissionWord,
    /// The rule that matched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<RuleMatch>,
    /// The arguments it saw.
    pub args: Value,
    /// When, in ISO 8601.
    pub at: String,
    /// The hook that refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hook: Option<String>,
    /// Why it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The permission mode, where it changed the outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// What rules in shadow would have decided.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shadow: Vec<ShadowNote>,
}

impl PermissionEntry {
    pub(super) fn of(note: &PermissionNote, tool: &str, call: &CallId, args: &Value, now: Timestamp) -> Self {
        Self {
            tool_name: tool.to_owned(),
            tool_call_id: call.clone(),
            decision: note.decision.clone(),
            rule: note.rule.clone(),
            args: args.clone(),
            at: now.to_iso(),
            hook: note.hook.clone(),
            reason: note.reason.clone(),
            mode: note.mode.clone(),
            shadow: note.shadow.clone(),
        }
    }
}

type Listener = dyn Fn(&PermissionEntry, Option<&Identity>) + Send + Sync;

/// Who is told of each decision.
#[derive(Clone)]
pub(crate) struct Audit(Arc<Listener>);

impl Audit {
    pub(crate) fn new(tell: impl Fn(&PermissionEntry, Option<&Identity>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }

    /// Tells; the journal has the entry whatever becomes of this.
    pub(super) fn tell(&self, entry: &PermissionEntry, principal: Option<&Identity>) {
        if catch_unwind(AssertUnwindSafe(|| (self.0)(entry, principal))).is_err() {
            tracing::error!(tool = entry.tool_name, call = %entry.tool_call_id, "the audit callback panicked");
        }
    }
}

/// What the stages of the gate leave behind about one call.
pub(crate) struct Trail {
    pub(crate) decision: PermissionWord,
    pub(crate) rule: Option<RuleMatch>,
    pub(crate) hook: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) mode: Option<PermissionMode>,
    pub(crate) shadow: Vec<ShadowNote>,
    /// What these arguments repeat of marked text, once somebody has looked.
    pub(crate) repeats: Option<(Arc<str>, Taint)>,
}

impl Trail {
    pub(crate) fn new() -> Self {
        Self { decision: PermissionWord::Default, rule: None, hook: None, reason: None, mode: None, shadow: Vec::new(), repeats: None }
    }

    /// A hook refused the call.
    pub(crate) fn refused_by_hook(&mut self, hook: &str, reason: Option<&String>) {
        self.decision = PermissionWord::Deny;
        self.hook = Some(hook.to_owned());
        self.reason = reason.cloned();
    }

    /// Nobody decided in time.
    pub(crate) fn lapsed(&mut self, reason: Option<String>) {
        self.decision = PermissionWord::Deny;
        self.reason = reason;
    }

    /// Whether the call was refused here.
    pub(crate) fn is_denied(&self) -> bool {
        self.decision == PermissionWord::Deny
    }

    pub(super) fn into_note(self) -> PermissionNote {
        let Self { decision, rule, hook, reason, mode, shadow, repeats: _ } = self;
        PermissionNote { rule, hook, reason, mode: mode.map(|mode| mode.as_str().to_owned()), shadow, ..PermissionNote::new(decision) }
    }
}
