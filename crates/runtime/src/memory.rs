//! The in-memory store: for tests, and where nothing has to outlive the process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use toolwright_core::{Record, Seq, ThreadId};

use crate::store::{Claim, InboxItem, Posted, Store, StoreError};

/// Journals in memory. Clones share them.
#[derive(Clone, Default)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    threads: Mutex<Threads>,
}

#[derive(Default)]
struct Threads {
    by_id: HashMap<ThreadId, Log>,
    in_order: Vec<ThreadId>,
}

struct Log {
    records: Vec<Arc<Record>>,
    fence: u64,
    claimed: bool,
    inbox: Vec<(u64, InboxItem)>,
    by_key: HashMap<String, InboxItem>,
    posted: watch::Sender<u64>,
}

impl Default for Log {
    fn default() -> Self {
        Self { records: Vec::new(), fence: 0, claimed: false, inbox: Vec::new(), by_key: HashMap::new(), posted: watch::Sender::new(0) }
    }
}

struct MemoryClaim {
    shared: Arc<Shared>,
    thread: ThreadId,
    fence: u64,
}

impl Claim for MemoryClaim {
    fn thread(&self) -> &ThreadId {
        &self.thread
    }

    fn fence(&self) -> u64 {
        self.fence
    }
}

impl Drop for MemoryClaim {
    fn drop(&mut self) {
        let mut threads = self.shared.lock();
        if let Some(log) = threads.by_id.get_mut(&self.thread)
            && log.fence == self.fence
        {
            log.claimed = false;
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Threads> {
        // Every change under the lock is complete at each step, so a panic elsewhere leaves nothing half done.
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn claim_now(&self, thread: &ThreadId) -> Result<Box<dyn Claim>, StoreError> {
        let mut threads = self.shared.lock();
        let log = threads.by_id.entry(thread.clone()).or_default();
        if log.claimed {
            return Err(StoreError::Busy { thread: thread.clone() });
        }
        log.claimed = true;
        log.fence += 1;
        Ok(Box::new(MemoryClaim { shared: Arc::clone(&self.shared), thread: thread.clone(), fence: log.fence }))
    }

    fn append_now(&self, claim: &dyn Claim, expected: Seq, records: Vec<Arc<Record>>, inbox_through: u64) -> Result<(), StoreError> {
        let thread = claim.thread();
        let mut guard = self.shared.lock();
        let threads = &mut *guard;
        let log = threads.by_id.entry(thread.clone()).or_default();
        if log.fence != claim.fence() {
            return Err(StoreError::Fenced { thread: thread.clone() });
        }
        let actual = Seq(log.records.len() as u64);
        if actual != expected {
            return Err(StoreError::Conflict { thread: thread.clone(), expected, actual });
        }
        if log.records.is_empty() && !records.is_empty() {
            threads.in_order.push(thread.clone());
        }
        log.records.extend(records);
        if inbox_through > 0 {
            log.inbox.retain(|(position, _)| *position > inbox_through);
        }
        Ok(())
    }

    fn post_now(&self, thread: &ThreadId, key: &str, item: InboxItem) -> Posted {
        let mut threads = self.shared.lock();
        let log = threads.by_id.entry(thread.clone()).or_default();
        if let Some(first) = log.by_key.get(key) {
            return Posted::Late(Box::new(first.clone()));
        }
        log.by_key.insert(key.to_owned(), item.clone());
        let position = log.posted.borrow().saturating_add(1);
        log.inbox.push((position, item));
        log.posted.send_replace(position);
        Posted::First
    }
}

impl Store for MemoryStore {
    fn claim<'a>(&'a self, thread: &'a ThreadId) -> BoxFuture<'a, Result<Box<dyn Claim>, StoreError>> {
        std::future::ready(self.claim_now(thread)).boxed()
    }

    fn append<'a>(
        &'a self,
        claim: &'a dyn Claim,
        expected: Seq,
        records: Vec<Arc<Record>>,
        inbox_through: u64,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        std::future::ready(self.append_now(claim, expected, records, inbox_through)).boxed()
    }

    fn read<'a>(&'a self, thread: &'a ThreadId, after: Seq, limit: usize) -> BoxFuture<'a, Result<Vec<Arc<Record>>, StoreError>> {
        let threads = self.shared.lock();
        let from = usize::try_from(after.0).unwrap_or(usize::MAX);
        let records = threads.by_id.get(thread).map(|log| log.records.iter().skip(from).take(limit).cloned().collect()).unwrap_or_default();
        std::future::ready(Ok(records)).boxed()
    }

    fn post<'a>(&'a self, thread: &'a ThreadId, key: &'a str, item: InboxItem) -> BoxFuture<'a, Result<Posted, StoreError>> {
        std::future::ready(Ok(self.post_now(thread, key, item))).boxed()
    }

    fn inbox<'a>(&'a self, thread: &'a ThreadId, after: u64) -> BoxFuture<'a, Result<Vec<(u64, InboxItem)>, StoreError>> {
        let threads = self.shared.lock();
        let items = threads.by_id.get(thread).map(|log| log.inbox.iter().filter(|(position, _)| *position > after).cloned().collect());
        std::future::ready(Ok(items.unwrap_or_default())).boxed()
    }

    fn posted<'a>(&'a self, thread: &'a ThreadId, after: u64) -> BoxFuture<'a, ()> {
        let mut posted = self.shared.lock().by_id.entry(thread.clone()).or_default().posted.subscribe();
        async move {
            // An error means that the store is gone: nothing will be posted any more.
            if posted.wait_for(|position| *position > after).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
        .boxed()
    }

    fn threads(&self) -> BoxFuture<'_, Result<Vec<ThreadId>, StoreError>> {
        std::future::ready(Ok(self.shared.lock().in_order.clone())).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolwright_core::{AbortReason, RecordBody, Timestamp};

    fn record(seq: u64) -> Arc<Record> {
        Arc::new(Record { seq: Seq(seq), at: Timestamp(0), run: None, body: RecordBody::StepStarted { step: 1 } })
    }

    #[test]
    fn two_writers_cannot_both_move_a_thread() {
        let store = MemoryStore::new();
        let thread = ThreadId::new("t").unwrap();
        let first = store.claim_now(&thread).unwrap();
        assert!(matches!(store.claim_now(&thread), Err(StoreError::Busy { .. })));
        store.append_now(&*first, Seq(0), vec![record(1)], 0).unwrap();
        assert!(matches!(store.append_now(&*first, Seq(0), vec![record(1)], 0), Err(StoreError::Conflict { .. })));
        drop(first);
        let second = store.claim_now(&thread).unwrap();
        assert_eq!(second.fence(), 2);
    }

    #[test]
    fn only_the_first_of_a_key_is_kept() {
        let store = MemoryStore::new();
        let thread = ThreadId::new("t").unwrap();
        let item = |message: &str| InboxItem::Cancel { reason: AbortReason::abort(message) };
        assert_eq!(store.post_now(&thread, "k", item("one")), Posted::First);
        assert_eq!(store.post_now(&thread, "k", item("two")), Posted::Late(Box::new(item("one"))));
        assert_eq!(store.post_now(&thread, "other", item("three")), Posted::First);
    }
}
