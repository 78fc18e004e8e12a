//! Whether a call has to be approved: the tool's own say.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::Value;
use toolwright_core::{AskKind, Remember};

use crate::context::ToolContext;
use crate::error::ToolError;

/// How a decision is asked for: who may decide, how many of them, until when.
///
/// ```
/// use std::time::Duration;
/// use toolwright_tool::ApprovalRequest;
///
/// let request = ApprovalRequest::new()
///     .reason("it moves money")
///     .deciders(["ada", "grace", "edsger"])
///     .quorum(2)
///     .within(Duration::from_secs(24 * 3600));
/// # let _ = request;
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ApprovalRequest {
    /// What the call waits for.
    pub kind: AskKind,
    /// Why it is asked for.
    pub reason: Option<String>,
    /// Detail of its kind: `{ "question": { "text", "options", "allowFreeText" } }`.
    pub detail: Option<Value>,
    /// How long the question stands; the agent's `approval_ttl` where `None`.
    pub within: Option<Duration>,
    /// How many different people have to approve.
    pub quorum: u32,
    /// Who may decide; anybody where it is empty.
    pub deciders: Vec<String>,
    /// How often deciders are reminded.
    pub remind_every: Option<Duration>,
    /// How far an approval answers later calls by itself.
    pub once: Option<Remember>,
}

impl Default for ApprovalRequest {
    fn default() -> Self {
        Self::new()
    }
}

impl ApprovalRequest {
    /// A yes or no of anybody.
    pub fn new() -> Self {
        Self {
            kind: AskKind::Tool,
            reason: None,
            detail: None,
            within: None,
            quorum: 1,
            deciders: Vec::new(),
            remind_every: None,
            once: None,
        }
    }

    /// A question to a person: the call runs once it is answered, and finds the answer in [`crate::ToolContext::approval`].
    /// Where `options` are given, a UI offers them; the body says whether other answers count.
    pub fn question(text: impl Into<String>, options: &[String], allow_free_text: bool) -> Self {
        let mut question = serde_json::Map::new();
        question.insert("text".to_owned(), Value::String(text.into()));
        if !options.is_empty() {
            question.insert("options".to_owned(), options.iter().cloned().map(Value::String).collect());
        }
        question.insert("allowFreeText".to_owned(), Value::Bool(allow_free_text));
        Self { kind: AskKind::Question, detail: Some(serde_json::json!({ "question": question })), ..Self::new() }
    }

    /// Why it is asked for: people read it.
    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// How long the question stands. After that the call is refused, whatever is decided.
    #[must_use]
    pub fn within(mut self, time: Duration) -> Self {
        self.within = Some(time);
        self
    }

    /// How many different people have to approve, at least 1 and at most 64; one rejection refuses.
    #[must_use]
    pub fn quorum(mut self, people: u32) -> Self {
        self.quorum = people.max(1);
        self
    }

    /// Who may decide, by the names that decisions come with.
    #[must_use]
    pub fn deciders(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.deciders = names.into_iter().map(Into::into).collect();
        self
    }

    /// Reminds deciders after this long, and again after each such time, with `approval.reminded`. A worker has to run.
    #[must_use]
    pub fn remind_every(mut self, time: Duration) -> Self {
        self.remind_every = Some(time);
        self
    }

    /// An approval answers later calls of the tool in this thread too.
    #[must_use]
    pub fn once(mut self, per: Remember) -> Self {
        self.once = Some(per);
        self
    }
}

/// What a tool's own policy says about one call (sdk-tools 11.1).
#[derive(Clone, Debug, PartialEq)]
pub enum ApprovalOutcome {
    /// It runs.
    Run,
    /// Somebody has to decide.
    Ask,
    /// Somebody has to decide, asked this way.
    AskFor(Box<ApprovalRequest>),
    /// It does not run, and nobody is asked.
    Deny(Option<String>),
}

impl From<bool> for ApprovalOutcome {
    /// `true` asks, as in `needs_approval`.
    fn from(needs_approval: bool) -> Self {
        if needs_approval { Self::Ask } else { Self::Run }
    }
}

impl From<ApprovalRequest> for ApprovalOutcome {
    fn from(request: ApprovalRequest) -> Self {
        Self::AskFor(Box::new(request))
    }
}

/// A policy with the call's context.
pub type ApprovalPolicy = Arc<dyn Fn(ToolContext) -> BoxFuture<'static, Result<ApprovalOutcome, ToolError>> + Send + Sync>;

/// Whether calls of a tool have to be approved.
#[derive(Clone, Default)]
pub enum NeedsApproval {
    /// Never.
    #[default]
    Never,
    /// Always.
    Always,
    /// Until a person approved one in this thread: any call of the tool, or one with the same arguments (sdk-tools 11.1). It is
    /// remembered for as long as the approved call's result stands in the transcript.
    Once(Remember),
    /// By a policy of the tool's own. One that fails is an error result for the call, never a silent yes.
    Policy(ApprovalPolicy),
}

impl NeedsApproval {
    /// Every call.
    pub fn always() -> Self {
        Self::Always
    }

    /// No call.
    pub fn never() -> Self {
        Self::Never
    }

    /// The first call of the tool in a thread.
    pub fn once() -> Self {
        Self::Once(Remember::Tool)
    }

    /// The first call with the same arguments in a thread; the order of their keys does not matter.
    pub fn once_per_arguments() -> Self {
        Self::Once(Remember::Arguments)
    }
}

impl std::fmt::Debug for NeedsApproval {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Never => f.write_str("Never"),
            Self::Always => f.write_str("Always"),
            Self::Once(per) => write!(f, "Once({per})"),
            Self::Policy(_) => f.write_str("Policy"),
        }
    }
}
