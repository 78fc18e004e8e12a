//! Decisions that code makes in a person's place.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use toolwright_core::{AskKind, Decision, Failure};
use toolwright_tool::ToolError;

use crate::agent::AgentInner;
use crate::approvals::Approvals;
use crate::error::AgentError;
use crate::index::PendingApproval;
use crate::run::Reply;

type Callback = Arc<dyn Fn(PendingApproval) -> BoxFuture<'static, Result<ApproveAnswer, ToolError>> + Send + Sync>;

/// What an `approve` callback says about a call that waits (sdk-tools 13.6/2).
#[derive(Clone, Debug, PartialEq)]
pub enum ApproveAnswer {
    /// This is decided. It is marked automatic: `once` policies don't remember it, unless it says so with [`Decision::always`].
    Decide(Decision),
    /// A person decides; the call still waits.
    Defer,
}

impl ApproveAnswer {
    /// The call runs.
    pub fn approve() -> Self {
        Self::Decide(Decision::approve())
    }

    /// The call does not run.
    pub fn reject() -> Self {
        Self::Decide(Decision::reject())
    }

    /// The answer to a question.
    pub fn answer(answer: impl Into<String>) -> Self {
        Self::Decide(Decision::answer(answer))
    }

    /// With a note: the model reads why a call was rejected, the tool why it was approved.
    #[must_use]
    pub fn note(self, note: impl Into<String>) -> Self {
        match self {
            Self::Decide(decision) => Self::Decide(decision.note(note)),
            Self::Defer => Self::Defer,
        }
    }
}

/// Decides in code.
#[derive(Clone)]
pub(crate) struct Approve {
    callback: Callback,
}

impl Approve {
    pub(crate) fn new<F, Fut>(approve: F) -> Self
    where
        F: Fn(PendingApproval) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<ApproveAnswer, ToolError>> + Send + 'static,
    {
        // The closure itself may panic too, before there is a future.
        Self { callback: Arc::new(move |pending| approve(pending).boxed()) }
    }

    /// Decides what waits after a run; gives whether anything was decided.
    pub(crate) async fn decide(&self, inner: &Arc<AgentInner>, reply: &Reply) -> Result<bool, AgentError> {
        let mut decided = false;
        for pending in &reply.pending {
            if matches!(pending.kind, AskKind::SignIn | AskKind::External) {
                continue;
            }
            let asked = AssertUnwindSafe(async { (self.callback)(pending.clone()).await }).catch_unwind().await;
            let answer = asked.unwrap_or_else(|_| Err(ToolError::new("it panicked").named("PanicError")));
            let answer = answer.map_err(|error| AgentError::Run {
                run: reply.run_id.clone(),
                failure: Failure {
                    name: error.name().to_owned(),
                    message: format!("`approve` failed, so `{}` still waits: {}", pending.tool, error.message()),
                    code: Some("TOOLWRIGHT_AGENT_EXECUTION_FAILED".to_owned()),
                },
            })?;
            let ApproveAnswer::Decide(decision) = answer else { continue };
            // Nobody's yes is none of several people's.
            if pending.quorum > 1 && decision.approves() && decision.by.is_none() {
                continue;
            }
            match Approvals::of(inner).decide_bound(&pending.id, Some(&pending.sha256), decision.automatic()).await {
                // A person was faster, or time was.
                Ok(())
                | Err(AgentError::ApprovalConflict { .. } | AgentError::ApprovalLapsed { .. } | AgentError::ApprovalNotFound { .. }) => {
                    decided = true
                }
                // Others have to decide.
                Err(AgentError::ApprovalForbidden { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(decided)
    }
}
