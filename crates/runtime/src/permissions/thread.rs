//! The permission mode of a thread.

use std::sync::Arc;

use toolwright_core::policy::PermissionMode;
use toolwright_core::{RECORD_VERSION, Record, RecordBody, Seq};

use crate::driver::mode_record;
use crate::error::AgentError;
use crate::load::load;
use crate::store::{Append, InboxItem, StoreError};
use crate::thread::ThreadHandle;

impl ThreadHandle {
    /// Switches the thread's permission mode. It is kept: it holds for the calls of a run that goes on now, in whatever process, from
    /// its next call on, and for every run to come, until it is switched again. Each switch is told by the event `permission.mode`.
    ///
    /// ```
    /// # use toolwright_core::policy::PermissionMode;
    /// # use toolwright_runtime::{Agent, NoResolvers};
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let agent = Agent::<NoResolvers>::builder().build_without_model()?;
    /// let thread = agent.thread("chat-42");
    /// thread.set_permission_mode(PermissionMode::Plan).await?;
    /// assert_eq!(thread.current_permission_mode().await?, PermissionMode::Plan);
    /// # Ok::<_, toolwright_runtime::AgentError>(())
    /// # }).unwrap();
    /// ```
    pub async fn set_permission_mode(&self, mode: PermissionMode) -> Result<(), AgentError> {
        let id = self.id()?;
        let store = &self.inner.store;
        let agents = self.inner.dispatch.permissions.mode().unwrap_or_default();
        let post = async || {
            let key = format!("mode:{}", crate::random::call_id());
            store.post(id, &key, InboxItem::Mode { from: agents, to: mode }).await.map(drop)
        };
        let claim = match store.claim(id).await {
            // Whoever moves the thread takes it from there.
            Err(StoreError::Busy { .. }) => return Ok(post().await?),
            claim => claim?,
        };
        let thread = load(&**store, id).await?.thread;
        let waiting = store.inbox(id, 0).await?;
        let switched = async {
            if let Some(kind) = thread.blocked_by() {
                return Err(AgentError::UnknownRecord { thread: id.clone(), kind: kind.to_owned() });
            }
            // One that was posted before and is not taken yet comes first.
            if waiting.iter().any(|(_, item)| matches!(item, InboxItem::Mode { .. })) {
                return Ok(post().await?);
            }
            let mut bodies = Vec::new();
            if thread.head() == Seq(0) {
                let agent = Arc::clone(&self.inner.name);
                bodies.push(RecordBody::ThreadOpened { thread: id.clone(), version: RECORD_VERSION, agent, parent: None });
            }
            bodies.push(mode_record(&thread, agents, mode));
            let (mut seq, at) = (thread.head(), self.inner.clock.now());
            let run = thread.run().map(|run| run.id.clone());
            let mut records = Vec::with_capacity(bodies.len());
            for body in bodies {
                seq = seq.next();
                records.push(Arc::new(Record { seq, at, run: run.clone(), body }));
            }
            store.append(&*claim, thread.head(), Append::records(records)).await?;
            Ok(())
        };
        let switched = switched.await;
        store.release(Arc::from(claim)).await;
        switched
    }

    /// The thread's permission mode, or the agent's where the thread has none.
    pub async fn current_permission_mode(&self) -> Result<PermissionMode, AgentError> {
        let id = self.id()?;
        let store = &self.inner.store;
        let posted = store.inbox(id, 0).await?.into_iter().rev().find_map(|(_, item)| match item {
            InboxItem::Mode { to, .. } => Some(to),
            _ => None,
        });
        let thread = load(&**store, id).await?.thread;
        let agents = || self.inner.dispatch.permissions.mode().unwrap_or_default();
        Ok(posted.or(thread.permission_mode()).unwrap_or_else(agents))
    }
}
