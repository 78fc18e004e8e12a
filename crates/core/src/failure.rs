//! The one shape of a failed call.

use serde::{Deserialize, Serialize};

use crate::schema::Issue;
use crate::text::bounded;
use crate::words::words;

words! {
    /// Why a call failed (sdk-tools 7.3).
    ToolFailureKind {
        /// The body, an approval policy or a rule's condition failed.
        Execution = "execution",
        /// The arguments do not match, whoever wrote them.
        Validation = "validation",
        /// No such tool.
        NotFound = "not-found",
        /// A reviewer said no.
        Rejected = "rejected",
        /// Never started.
        NotRun = "not-run",
        /// An MCP server answered with an error.
        Mcp = "mcp",
        /// The tool needs a sandbox that is not there.
        Sandbox = "sandbox",
        /// Policy said no.
        Denied = "denied",
    }
}

impl ToolFailureKind {
    /// The error name of a failure that has none of its own (sdk-tools 7.3).
    pub fn default_error(&self) -> &'static str {
        match self {
            Self::Validation => "ToolArgumentsValidationError",
            Self::NotFound => "ToolNotFoundError",
            Self::Rejected => "ToolRejectedError",
            Self::NotRun => "ToolNotRunError",
            Self::Mcp => "McpToolError",
            Self::Sandbox => "SandboxRequiredError",
            Self::Denied => "ToolDeniedError",
            Self::Execution | Self::Other(_) => "ToolExecutionError",
        }
    }
}

/// A failed call, as the model, events, hooks and the journal see it (sdk-tools 7.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolFailure {
    /// The error's name.
    pub error: String,
    /// The tool, always.
    pub tool_name: String,
    /// The message only, never a stack; at most 2,000 characters.
    pub message: String,
    /// One of eight.
    pub kind: ToolFailureKind,
    /// The call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// With kind `validation`: every issue with its path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub issues: Vec<Issue>,
    /// With kind `rejected`: the reviewer's note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// With kind `denied`: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How many more tries the tool grants, where it asked for another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries_left: Option<u32>,
}

impl ToolFailure {
    /// The longest message, in characters.
    pub const MAX_MESSAGE: usize = 2000;

    /// A failure of `kind` with the kind's own error name.
    pub fn new(kind: ToolFailureKind, tool_name: impl Into<String>, message: &str) -> Self {
        Self {
            error: kind.default_error().to_owned(),
            tool_name: tool_name.into(),
            message: bounded(message, Self::MAX_MESSAGE),
            kind,
            tool_call_id: None,
            issues: Vec::new(),
            note: None,
            reason: None,
            retries_left: None,
        }
    }

    /// With the name of what was thrown.
    #[must_use]
    pub fn named(mut self, error: impl Into<String>) -> Self {
        self.error = error.into();
        self
    }

    /// Arguments that do not match: the summary names the tool, counts the issues and lists each (sdk-tools 4.2).
    pub fn validation(tool_name: impl Into<String>, issues: Vec<Issue>) -> Self {
        let tool_name = tool_name.into();
        let listed: Vec<String> = issues
            .iter()
            .map(|issue| if issue.path.is_empty() { issue.message.clone() } else { format!("{}: {}", issue.path, issue.message) })
            .collect();
        let count = if issues.len() == 1 { "1 issue".to_owned() } else { format!("{} issues", issues.len()) };
        let message = format!("the arguments of `{tool_name}` have {count}: {}", listed.join("; "));
        let mut failure = Self::new(ToolFailureKind::Validation, tool_name, &message);
        failure.issues = issues;
        failure
    }

    /// Refused by policy.
    pub fn denied(tool_name: impl Into<String>, reason: Option<String>) -> Self {
        let tool_name = tool_name.into();
        let message = match &reason {
            Some(reason) => format!("`{tool_name}` was denied: {reason}"),
            None => format!("`{tool_name}` was denied"),
        };
        let mut failure = Self::new(ToolFailureKind::Denied, tool_name, &message);
        failure.reason = reason;
        failure
    }

    /// Refused by a reviewer.
    pub fn rejected(tool_name: impl Into<String>, note: Option<String>) -> Self {
        let tool_name = tool_name.into();
        let message = match &note {
            Some(note) => format!("`{tool_name}` was rejected by the reviewer: {note}"),
            None => format!("`{tool_name}` was rejected by the reviewer"),
        };
        let mut failure = Self::new(ToolFailureKind::Rejected, tool_name, &message);
        failure.note = note;
        failure
    }

    /// Never started.
    pub fn not_run(tool_name: impl Into<String>, why: &str) -> Self {
        Self::new(ToolFailureKind::NotRun, tool_name, &format!("cancelled: {why}"))
    }
}
