//! Whether a call has to be approved: the tool's own say.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::context::ToolContext;
use crate::error::ToolError;

/// What a tool's own policy says about one call (sdk-tools 11.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalOutcome {
    /// It runs.
    Run,
    /// Somebody has to decide.
    Ask,
    /// It does not run, and nobody is asked.
    Deny(Option<String>),
}

impl From<bool> for ApprovalOutcome {
    /// `true` asks, as in `needs_approval`.
    fn from(needs_approval: bool) -> Self {
        if needs_approval { Self::Ask } else { Self::Run }
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
    /// By a policy of the tool's own. One that fails is an error result for the call, never a silent yes.
    Policy(ApprovalPolicy),
}

impl std::fmt::Debug for NeedsApproval {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Never => "Never",
            Self::Always => "Always",
            Self::Policy(_) => "Policy",
        })
    }
}
