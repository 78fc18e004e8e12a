//! The threads of an agent's store: listing, pruning.

use std::sync::Arc;

use toolwright_core::{ThreadId, Timestamp};

use crate::agent::AgentInner;
use crate::error::AgentError;
use crate::index::{ThreadInfo, ThreadStatus};
use crate::store::{Page, StoreError, ThreadQuery};

/// The threads of an agent's store, whichever agent they belong to.
#[derive(Clone)]
pub struct Threads {
    inner: Arc<AgentInner>,
}

impl Threads {
    pub(crate) fn new(inner: Arc<AgentInner>) -> Self {
        Self { inner }
    }

    /// A page of threads, the last changed first.
    ///
    /// ```no_run
    /// # async fn f(agent: toolwright_runtime::Agent) -> Result<(), toolwright_runtime::AgentError> {
    /// use toolwright_runtime::{ThreadQuery, ThreadStatus};
    /// let waiting = ThreadQuery { status: Some(ThreadStatus::AwaitingApproval), limit: 20, ..ThreadQuery::default() };
    /// for thread in agent.threads().list(&waiting).await?.items {
    ///     println!("{} {}", thread.id, thread.title);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn list(&self, query: &ThreadQuery) -> Result<Page<ThreadInfo>, AgentError> {
        Ok(self.inner.store.threads(query).await?)
    }

    /// Deletes the threads that are finished and were last changed before a moment; gives their ids. Threads that wait, that
    /// somebody moves, or that were interrupted stay (sdk-runtime STO-6).
    pub async fn prune(&self, before: Timestamp) -> Result<Vec<ThreadId>, AgentError> {
        let mut pruned = Vec::new();
        let mut query = ThreadQuery { status: Some(ThreadStatus::Finished), changed_before: Some(before), ..ThreadQuery::default() };
        loop {
            let page = self.inner.store.threads(&query).await?;
            for info in page.items {
                let claim = match self.inner.store.claim(&info.id).await {
                    Err(StoreError::Busy { .. }) => continue,
                    claim => claim?,
                };
                // It may have gone on since it was listed.
                let now = self.inner.store.info(&info.id).await?;
                let waits = !self.inner.store.inbox(&info.id, 0).await?.is_empty();
                if !waits && now.is_some_and(|now| now.status == ThreadStatus::Finished && now.changed_at < before) {
                    self.inner.store.delete(&*claim).await?;
                    pruned.push(info.id);
                }
            }
            query.cursor = page.next;
            if query.cursor.is_none() {
                return Ok(pruned);
            }
        }
    }
}
