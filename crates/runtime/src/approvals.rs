//! Decisions that somebody has to make.

use std::sync::Arc;

use toolwright_core::{ApprovalAsk, ApprovalId, Call, CallId, Decision, ThreadId, Timestamp};

use crate::agent::AgentInner;
use crate::error::AgentError;
use crate::shell::load;
use crate::store::{InboxItem, Posted};

/// A call that waits for a decision.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingApproval {
    /// The decision's id: all that a decider needs.
    pub id: ApprovalId,
    /// The thread.
    pub thread_id: ThreadId,
    /// The call.
    pub call_id: CallId,
    /// The tool.
    pub tool: Arc<str>,
    /// The arguments that would run: compact JSON, byte for byte.
    pub arguments: Arc<str>,
    /// Their SHA-256; the decision is bound to it.
    pub sha256: Arc<str>,
    /// Why it is asked for.
    pub reason: Option<String>,
    /// When it was asked for.
    pub asked_at: Option<Timestamp>,
}

impl PendingApproval {
    pub(crate) fn of(thread: &ThreadId, call: &Call, ask: &ApprovalAsk) -> Option<Self> {
        let gated = call.gated.as_ref()?;
        Some(Self {
            id: ask.approval.clone(),
            thread_id: thread.clone(),
            call_id: call.id.clone(),
            tool: Arc::clone(&call.tool),
            arguments: Arc::clone(&gated.text),
            sha256: Arc::clone(&gated.sha256),
            reason: ask.reason.clone(),
            asked_at: call.started_at,
        })
    }
}

/// An agent's pending decisions.
#[derive(Clone)]
pub struct Approvals {
    inner: Arc<AgentInner>,
}

impl Approvals {
    pub(crate) fn new(inner: Arc<AgentInner>) -> Self {
        Self { inner }
    }

    /// What waits, on every thread of the store, oldest thread first.
    pub async fn pending(&self) -> Result<Vec<PendingApproval>, AgentError> {
        let mut all = Vec::new();
        for id in self.inner.store.threads().await? {
            let thread = load(&*self.inner.store, &id).await?;
            all.extend(thread.pending().filter_map(|(call, ask)| PendingApproval::of(&id, call, ask)));
        }
        Ok(all)
    }

    /// One of them.
    pub async fn get(&self, id: &ApprovalId) -> Result<PendingApproval, AgentError> {
        let not_found = || AgentError::ApprovalNotFound { approval: id.to_string() };
        let thread_id = id.thread().ok_or_else(not_found)?;
        let thread = load(&*self.inner.store, &thread_id).await?;
        let call = thread.waiting_for(id).ok_or_else(not_found)?;
        call.asking().and_then(|ask| PendingApproval::of(&thread_id, call, ask)).ok_or_else(not_found)
    }

    /// Decides, once: records the decision and wakes whoever moves the thread. It does not run the thread;
    /// [`crate::ThreadHandle::resume`] does, where nobody moves it.
    pub async fn decide(&self, id: &ApprovalId, decision: Decision) -> Result<(), AgentError> {
        let pending = self.get(id).await?;
        let item = InboxItem::Decision { approval: id.clone(), call: pending.call_id, sha256: pending.sha256, decision };
        match self.inner.store.post(&pending.thread_id, &format!("decision:{id}"), item).await? {
            Posted::First => Ok(()),
            Posted::Late(first) => {
                let by = match *first {
                    InboxItem::Decision { decision, .. } => decision.by,
                    InboxItem::Cancel { .. } => None,
                };
                Err(AgentError::ApprovalConflict { approval: id.to_string(), by })
            }
        }
    }
}
