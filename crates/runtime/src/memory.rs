//! The in-memory store: for tests, and where nothing has to outlive the process.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use toolwright_core::{CallId, Record, Seq, ThreadId, Timestamp};

use crate::index::{PendingApproval, ThreadInfo, ThreadStatus};
use crate::store::{
    Answer, Append, BlobId, CLAIM_LIMIT, Claim, DataStore, FileChange, FileEntry, InboxItem, Page, Posted, Shelf, Snapshot, Store,
    StoreError, ThreadQuery, read_cursor,
};

/// Journals in memory. Clones share them.
#[derive(Clone, Default)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    threads: BTreeMap<ThreadId, Log>,
    /// Outlives the threads, so that a fencing number is never used twice.
    fences: HashMap<ThreadId, u64>,
    claimed: HashMap<ThreadId, u64>,
    timers: BTreeMap<(Timestamp, ThreadId, String), InboxItem>,
}

#[derive(Default)]
struct Log {
    records: Vec<Arc<Record>>,
    info: Option<ThreadInfo>,
    pending: Vec<(CallId, PendingApproval)>,
    snapshot: Option<Snapshot>,
    inbox: Vec<(u64, InboxItem)>,
    by_key: HashMap<String, InboxItem>,
    posted: watch::Sender<u64>,
    appended: watch::Sender<u64>,
    values: BTreeMap<(&'static str, String), Arc<str>>,
    files: BTreeMap<String, FileEntry>,
    blobs: HashMap<BlobId, Bytes>,
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
        let mut state = self.shared.lock();
        if state.claimed.get(&self.thread) == Some(&self.fence) {
            state.claimed.remove(&self.thread);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change under the lock is complete at each step, so a panic elsewhere leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn log(&mut self, thread: &ThreadId) -> &mut Log {
        self.threads.entry(thread.clone()).or_default()
    }

    fn check(&self, thread: &ThreadId, fence: u64) -> Result<(), StoreError> {
        if self.fences.get(thread) == Some(&fence) { Ok(()) } else { Err(StoreError::Fenced { thread: thread.clone() }) }
    }

    fn check_if(&self, thread: &ThreadId, fence: Option<u64>) -> Result<(), StoreError> {
        fence.map_or(Ok(()), |fence| self.check(thread, fence))
    }

    fn append(&mut self, claim: &dyn Claim, expected: Seq, append: Append) -> Result<(), StoreError> {
        let thread = claim.thread();
        self.check(thread, claim.fence())?;
        let log = self.log(thread);
        let actual = Seq(log.records.len() as u64);
        if actual != expected {
            return Err(StoreError::Conflict { thread: thread.clone(), expected, actual });
        }
        let change = append.index();
        log.records.extend(append.records);
        let head = log.records.len() as u64;
        if append.inbox_through > 0 {
            log.inbox.retain(|(position, _)| *position > append.inbox_through);
        }
        log.info = change.applied(thread, log.info.take(), Seq(head));
        if change.all_settled {
            log.pending.clear();
        }
        log.pending.retain(|(call, _)| !change.settled.contains(call));
        log.pending.extend(change.asked.iter().map(|row| (row.call.clone(), row.of_thread(thread))));
        log.appended.send_replace(head);
        Ok(())
    }

    fn post(&mut self, thread: &ThreadId, key: &str, item: InboxItem) -> Posted {
        let log = self.log(thread);
        if let Some(first) = log.by_key.get(key) {
            return Posted::Late(Box::new(first.clone()));
        }
        log.by_key.insert(key.to_owned(), item.clone());
        let position = log.posted.borrow().saturating_add(1);
        log.inbox.push((position, item));
        log.posted.send_replace(position);
        Posted::First
    }

    fn threads(&self, query: &ThreadQuery) -> Result<Page<ThreadInfo>, StoreError> {
        let text = query.text.as_ref().map(|text| text.to_lowercase());
        let mut all: Vec<&ThreadInfo> = self
            .threads
            .values()
            .filter_map(|log| log.info.as_ref())
            .filter(|info| query.status.is_none_or(|status| status == info.status))
            .filter(|info| query.agent.as_ref().is_none_or(|agent| *agent == info.agent))
            .filter(|info| query.parent.is_none() || query.parent == info.parent)
            .filter(|info| query.changed_before.is_none_or(|moment| info.changed_at < moment))
            .filter(|info| {
                let holds = |field: &str, text: &str| field.to_lowercase().contains(text);
                text.as_ref().is_none_or(|text| holds(&info.title, text) || holds(info.id.as_str(), text))
            })
            .collect();
        all.sort_by(|a, b| (b.changed_at, &b.id).cmp(&(a.changed_at, &a.id)));
        let from = match &query.cursor {
            None => 0,
            Some(cursor) => {
                let (at, id) = read_cursor(cursor)?;
                all.iter().take_while(|info| (info.changed_at.0, info.id.as_str()) >= (at, id)).count()
            }
        };
        let found = all.into_iter().skip(from).take(query.limit.saturating_add(1)).cloned().collect();
        Ok(Page::of(found, query.limit, ThreadInfo::cursor))
    }

    fn pending(&self, thread: Option<&ThreadId>, cursor: Option<&str>, limit: usize) -> Result<Page<PendingApproval>, StoreError> {
        let mut all: Vec<&PendingApproval> = self
            .threads
            .iter()
            .filter(|(id, _)| thread.is_none_or(|only| only == *id))
            .flat_map(|(_, log)| log.pending.iter().map(|(_, pending)| pending))
            .collect();
        let key = |pending: &PendingApproval| (pending.asked_at.unwrap_or_default().0, pending.id.as_str().to_owned());
        all.sort_by_key(|pending| key(pending));
        let from = match cursor {
            None => 0,
            Some(cursor) => {
                let (at, id) = read_cursor(cursor)?;
                all.iter().take_while(|pending| key(pending) <= (at, id.to_owned())).count()
            }
        };
        let found = all.into_iter().skip(from).take(limit.saturating_add(1)).cloned().collect();
        Ok(Page::of(found, limit, PendingApproval::cursor))
    }
}

fn ready<'a, T: Send + 'a>(answer: Result<T, StoreError>) -> Answer<'a, T> {
    std::future::ready(answer).boxed()
}

/// Returns once `watched` is beyond `after`.
fn beyond<'a>(mut watched: watch::Receiver<u64>, after: u64) -> BoxFuture<'a, ()> {
    async move {
        // An error means that the thread was deleted. Whoever waits looks again, and then waits for the one that comes to be.
        drop(watched.wait_for(|position| *position > after).await);
    }
    .boxed()
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn claim_now(&self, thread: &ThreadId) -> Result<Box<dyn Claim>, StoreError> {
        let mut state = self.shared.lock();
        if state.claimed.contains_key(thread) {
            return Err(StoreError::Busy { thread: thread.clone() });
        }
        let fence = state.fences.entry(thread.clone()).or_default();
        *fence += 1;
        let fence = *fence;
        state.claimed.insert(thread.clone(), fence);
        Ok(Box::new(MemoryClaim { shared: Arc::clone(&self.shared), thread: thread.clone(), fence }))
    }
}

impl Store for MemoryStore {
    fn claim<'a>(&'a self, thread: &'a ThreadId) -> Answer<'a, Box<dyn Claim>> {
        ready(self.claim_now(thread))
    }

    fn renew<'a>(&'a self, claim: &'a dyn Claim) -> Answer<'a, ()> {
        ready(self.shared.lock().check(claim.thread(), claim.fence()))
    }

    /// An owner in this process can't hang without everything else in it hanging too, so no owner is ever replaced.
    fn claim_limit(&self) -> Duration {
        CLAIM_LIMIT
    }

    fn append<'a>(&'a self, claim: &'a dyn Claim, expected: Seq, append: Append) -> Answer<'a, ()> {
        ready(self.shared.lock().append(claim, expected, append))
    }

    fn read<'a>(&'a self, thread: &'a ThreadId, after: Seq, limit: usize) -> Answer<'a, Vec<Arc<Record>>> {
        let state = self.shared.lock();
        let from = usize::try_from(after.0).unwrap_or(usize::MAX);
        ready(Ok(state.threads.get(thread).map(|log| log.records.iter().skip(from).take(limit).cloned().collect()).unwrap_or_default()))
    }

    fn read_at<'a>(&'a self, thread: &'a ThreadId, positions: &'a [Seq]) -> Answer<'a, Vec<Arc<Record>>> {
        let state = self.shared.lock();
        let at = |log: &Log, seq: &Seq| log.records.get(usize::try_from(seq.0).ok()?.checked_sub(1)?).cloned();
        ready(Ok(state.threads.get(thread).map(|log| positions.iter().filter_map(|seq| at(log, seq)).collect()).unwrap_or_default()))
    }

    fn appended<'a>(&'a self, thread: &'a ThreadId, after: Seq) -> BoxFuture<'a, ()> {
        beyond(self.shared.lock().log(thread).appended.subscribe(), after.0)
    }

    fn save_snapshot<'a>(&'a self, claim: &'a dyn Claim, snapshot: Snapshot) -> Answer<'a, ()> {
        let mut state = self.shared.lock();
        let checked = state.check(claim.thread(), claim.fence());
        if checked.is_ok() {
            state.log(claim.thread()).snapshot = Some(snapshot);
        }
        ready(checked)
    }

    fn snapshot<'a>(&'a self, thread: &'a ThreadId) -> Answer<'a, Option<Snapshot>> {
        ready(Ok(self.shared.lock().threads.get(thread).and_then(|log| log.snapshot.clone())))
    }

    fn post<'a>(&'a self, thread: &'a ThreadId, key: &'a str, item: InboxItem) -> Answer<'a, Posted> {
        ready(StoreError::refuse_nul("key", key).map(|()| self.shared.lock().post(thread, key, item)))
    }

    fn inbox<'a>(&'a self, thread: &'a ThreadId, after: u64) -> Answer<'a, Vec<(u64, InboxItem)>> {
        let state = self.shared.lock();
        let items = state.threads.get(thread).map(|log| log.inbox.iter().filter(|(position, _)| *position > after).cloned().collect());
        ready(Ok(items.unwrap_or_default()))
    }

    fn posted_through<'a>(&'a self, thread: &'a ThreadId) -> Answer<'a, u64> {
        let state = self.shared.lock();
        ready(Ok(state.threads.get(thread).map(|log| *log.posted.borrow()).unwrap_or_default()))
    }

    fn posted<'a>(&'a self, thread: &'a ThreadId, after: u64) -> BoxFuture<'a, ()> {
        beyond(self.shared.lock().log(thread).posted.subscribe(), after)
    }

    fn post_at<'a>(&'a self, thread: &'a ThreadId, key: &'a str, at: Timestamp, item: InboxItem) -> Answer<'a, ()> {
        if let Err(error) = StoreError::refuse_nul("key", key) {
            return ready(Err(error));
        }
        let mut state = self.shared.lock();
        state.timers.retain(|(_, of, known), _| of != thread || known != key);
        state.timers.insert((at, thread.clone(), key.to_owned()), item);
        ready(Ok(()))
    }

    fn cancel_timer<'a>(&'a self, thread: &'a ThreadId, key: &'a str) -> Answer<'a, bool> {
        let mut state = self.shared.lock();
        let before = state.timers.len();
        state.timers.retain(|(_, of, known), _| of != thread || known != key);
        ready(Ok(state.timers.len() < before))
    }

    fn post_due(&self, now: Timestamp, limit: usize) -> Answer<'_, Vec<ThreadId>> {
        let mut state = self.shared.lock();
        let mut threads = Vec::new();
        while threads.len() < limit {
            let Some(first) = state.timers.first_entry().filter(|entry| entry.key().0 <= now) else { break };
            let ((_, thread, key), item) = first.remove_entry();
            state.post(&thread, &key, item);
            threads.push(thread);
        }
        ready(Ok(threads))
    }

    fn info<'a>(&'a self, thread: &'a ThreadId) -> Answer<'a, Option<ThreadInfo>> {
        ready(Ok(self.shared.lock().threads.get(thread).and_then(|log| log.info.clone())))
    }

    fn threads<'a>(&'a self, query: &'a ThreadQuery) -> Answer<'a, Page<ThreadInfo>> {
        ready(self.shared.lock().threads(query))
    }

    fn unfinished<'a>(&'a self, after: Option<&'a ThreadId>, limit: usize) -> Answer<'a, Vec<ThreadId>> {
        let state = self.shared.lock();
        let open = |log: &Log| !log.inbox.is_empty() || log.info.as_ref().is_some_and(|info| info.status == ThreadStatus::InProgress);
        let threads = state.threads.iter().filter(|(id, log)| after.is_none_or(|after| *id > after) && open(log));
        ready(Ok(threads.map(|(id, _)| id.clone()).take(limit).collect()))
    }

    fn pending<'a>(&'a self, thread: Option<&'a ThreadId>, cursor: Option<&'a str>, limit: usize) -> Answer<'a, Page<PendingApproval>> {
        ready(self.shared.lock().pending(thread, cursor, limit))
    }

    fn delete<'a>(&'a self, claim: &'a dyn Claim) -> Answer<'a, ()> {
        let mut state = self.shared.lock();
        let checked = state.check(claim.thread(), claim.fence());
        if checked.is_ok() {
            state.threads.remove(claim.thread());
            state.timers.retain(|(_, of, _), _| of != claim.thread());
        }
        ready(checked)
    }

    fn data(&self) -> &dyn DataStore {
        self
    }
}

impl DataStore for MemoryStore {
    fn value<'a>(&'a self, thread: &'a ThreadId, shelf: Shelf, key: &'a str) -> Answer<'a, Option<Arc<str>>> {
        let state = self.shared.lock();
        ready(Ok(state.threads.get(thread).and_then(|log| log.values.get(&(shelf.as_str(), key.to_owned())).cloned())))
    }

    fn set_value<'a>(
        &'a self,
        thread: &'a ThreadId,
        shelf: Shelf,
        key: &'a str,
        value: Option<Arc<str>>,
        fence: Option<u64>,
    ) -> Answer<'a, ()> {
        let mut state = self.shared.lock();
        let checked = state
            .check_if(thread, fence)
            .and_then(|()| StoreError::refuse_nul("key", key))
            .and_then(|()| StoreError::refuse_nul("value", value.as_deref().unwrap_or_default()));
        if checked.is_ok() {
            let (values, key) = (&mut state.log(thread).values, (shelf.as_str(), key.to_owned()));
            match value {
                Some(value) => drop(values.insert(key, value)),
                None => drop(values.remove(&key)),
            }
        }
        ready(checked)
    }

    fn values<'a>(
        &'a self,
        thread: &'a ThreadId,
        shelf: Shelf,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> Answer<'a, Vec<(String, Arc<str>)>> {
        let state = self.shared.lock();
        let fits = |of: &str, key: &str| of == shelf.as_str() && key.starts_with(prefix) && after.is_none_or(|after| key > after);
        let values = state.threads.get(thread).map(|log| {
            let values = log.values.iter().filter(|((of, key), _)| fits(of, key));
            values.map(|((_, key), value)| (key.clone(), Arc::clone(value))).take(limit).collect()
        });
        ready(Ok(values.unwrap_or_default()))
    }

    fn keep_blob<'a>(&'a self, thread: &'a ThreadId, bytes: Bytes, fence: Option<u64>) -> Answer<'a, BlobId> {
        let mut state = self.shared.lock();
        ready(state.check_if(thread, fence).map(|()| {
            let id = BlobId::of(&bytes);
            state.log(thread).blobs.entry(id.clone()).or_insert(bytes);
            id
        }))
    }

    fn blob<'a>(&'a self, thread: &'a ThreadId, id: &'a BlobId) -> Answer<'a, Option<Bytes>> {
        ready(Ok(self.shared.lock().threads.get(thread).and_then(|log| log.blobs.get(id).cloned())))
    }

    fn change_files<'a>(&'a self, thread: &'a ThreadId, changes: Vec<FileChange>, fence: Option<u64>) -> Answer<'a, ()> {
        let mut state = self.shared.lock();
        if let Err(error) = state.check_if(thread, fence) {
            return ready(Err(error));
        }
        let log = state.log(thread);
        for change in &changes {
            let FileChange::Put(entry) = change else { continue };
            let kept = entry.blob.as_ref().is_none_or(|blob| log.blobs.contains_key(blob));
            let checked = StoreError::refuse_nul("path", &entry.path);
            let missing = || StoreError::failed(format!("the content of {} was not kept before", entry.path));
            if let Err(error) = checked.and_then(|()| if kept { Ok(()) } else { Err(missing()) }) {
                return ready(Err(error));
            }
        }
        for change in changes {
            match change {
                FileChange::Put(entry) => drop(log.files.insert(entry.path.clone(), entry)),
                FileChange::Remove(path) => drop(log.files.remove(&path)),
            }
        }
        ready(Ok(()))
    }

    fn file<'a>(&'a self, thread: &'a ThreadId, path: &'a str) -> Answer<'a, Option<FileEntry>> {
        ready(Ok(self.shared.lock().threads.get(thread).and_then(|log| log.files.get(path).cloned())))
    }

    fn files<'a>(&'a self, thread: &'a ThreadId, prefix: &'a str, after: Option<&'a str>, limit: usize) -> Answer<'a, Vec<FileEntry>> {
        let state = self.shared.lock();
        let fits = |path: &str| path.starts_with(prefix) && after.is_none_or(|after| path > after);
        let files = state.threads.get(thread).map(|log| log.files.iter().filter(|(path, _)| fits(path)).map(|(_, entry)| entry.clone()));
        ready(Ok(files.map(|files| files.take(limit).collect()).unwrap_or_default()))
    }

    fn copy<'a>(&'a self, from: &'a ThreadId, to: &'a ThreadId) -> Answer<'a, ()> {
        let mut state = self.shared.lock();
        if let Some(source) = state.threads.get(from) {
            let (values, files, blobs) = (source.values.clone(), source.files.clone(), source.blobs.clone());
            let target = state.log(to);
            (target.values, target.files, target.blobs) = (values, files, blobs);
        }
        ready(Ok(()))
    }
}
