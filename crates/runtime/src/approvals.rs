//! Decisions that somebody has to make.

use std::sync::Arc;

use toolwright_core::{ApprovalId, Decision};

use crate::agent::AgentInner;
use crate::error::AgentError;
use crate::index::PendingApproval;
use crate::load::load;
use crate::store::{InboxItem, Page, Posted};

/// An agent's pending decisions.
#[derive(Clone)]
pub struct Approvals {
    inner: Arc<AgentInner>,
}

impl Approvals {
    pub(crate) fn new(inner: Arc<AgentInner>) -> Self {
        Self { inner }
    }

    /// What waits, on every thread of the store, oldest first.
    pub async fn pending(&self) -> Result<Vec<PendingApproval>, AgentError> {
        let mut all = Vec::new();
        let mut cursor = None;
        loop {
            let page = self.page(cursor.as_deref(), 1000).await?;
            all.extend(page.items);
            cursor = page.next;
            if cursor.is_none() {
                return Ok(all);
            }
        }
    }

    /// A page of what waits, oldest first: at most `limit`, from the `next` of the page before.
    pub async fn page(&self, cursor: Option<&str>, limit: usize) -> Result<Page<PendingApproval>, AgentError> {
        Ok(self.inner.store.pending(None, cursor, limit).await?)
    }

    /// One of them.
    pub async fn get(&self, id: &ApprovalId) -> Result<PendingApproval, AgentError> {
        let not_found = || AgentError::ApprovalNotFound { approval: id.to_string() };
        let thread_id = id.thread().ok_or_else(not_found)?;
        let thread = load(&*self.inner.store, &thread_id).await?.thread;
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
                    InboxItem::Cancel { .. } | InboxItem::Input { .. } => None,
                };
                Err(AgentError::ApprovalConflict { approval: id.to_string(), by })
            }
        }
    }
}
