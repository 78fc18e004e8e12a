//! A thread's fold, from its journal: from the last snapshot on where there is one, else from the beginning.

use toolwright_core::{Saved, Seq, Thread, ThreadId};

use crate::error::AgentError;
use crate::store::Store;

const PAGE: usize = 1000;

/// A fold and where it came from.
pub(crate) struct Loaded {
    pub(crate) thread: Thread,
    /// The position of the snapshot it was loaded from; 0 if there was none.
    pub(crate) saved_at: Seq,
}

/// Loads a thread.
pub(crate) async fn load(store: &dyn Store, id: &ThreadId) -> Result<Loaded, AgentError> {
    if let Some(thread) = from_snapshot(store, id).await? {
        let saved_at = thread.head();
        match read_on(store, id, thread).await {
            Ok(thread) => return Ok(Loaded { thread, saved_at }),
            // Whether the journal itself is damaged is seen when it is read from its beginning.
            Err(AgentError::Journal(misfit)) => tracing::debug!(thread = %id, %misfit, "a snapshot does not fit its journal"),
            Err(error) => return Err(error),
        }
    }
    Ok(Loaded { thread: read_on(store, id, Thread::new()).await?, saved_at: Seq(0) })
}

/// The fold with the records that follow it.
async fn read_on(store: &dyn Store, id: &ThreadId, mut thread: Thread) -> Result<Thread, AgentError> {
    loop {
        let records = store.read(id, thread.head(), PAGE).await?;
        for record in &records {
            thread.apply(record)?;
        }
        if records.len() < PAGE {
            return Ok(thread);
        }
    }
}

/// The fold with the records that follow it, up to a position. From an empty one, that is the fold of a journal's beginning.
pub(crate) async fn read_through(store: &dyn Store, id: &ThreadId, mut thread: Thread, through: Seq) -> Result<Thread, AgentError> {
    while thread.head() < through {
        let records = store.read(id, thread.head(), PAGE).await?;
        if records.is_empty() {
            break;
        }
        for record in records.iter().take_while(|record| record.seq <= through) {
            thread.apply(record)?;
        }
    }
    Ok(thread)
}

/// The fold that was saved; `None` where there is none that can be used. A snapshot is a cache, so one that is damaged or of
/// another version costs time only.
async fn from_snapshot(store: &dyn Store, id: &ThreadId) -> Result<Option<Thread>, AgentError> {
    let Some(snapshot) = store.snapshot(id).await? else { return Ok(None) };
    let saved = match Saved::read(&snapshot.text) {
        Ok(saved) => saved,
        Err(error) => {
            tracing::debug!(thread = %id, %error, "a snapshot was passed over");
            return Ok(None);
        }
    };
    // The journal has to reach as far: one that was put back from a backup may not.
    let mut wanted = saved.positions();
    if wanted.last() != Some(&saved.head()) {
        wanted.push(saved.head());
    }
    let records = store.read_at(id, &wanted).await?;
    if records.last().is_none_or(|record| record.seq != saved.head()) {
        tracing::debug!(thread = %id, "a snapshot reaches beyond its journal and was passed over");
        return Ok(None);
    }
    match saved.complete(&records) {
        Ok(thread) if thread.id() == Some(id) => Ok(Some(thread)),
        Ok(_) => {
            tracing::debug!(thread = %id, "a snapshot of another thread was passed over");
            Ok(None)
        }
        Err(error) => {
            tracing::debug!(thread = %id, %error, "a snapshot was passed over");
            Ok(None)
        }
    }
}
