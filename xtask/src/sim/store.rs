//! The store of a schedule: the simulator's own, short enough to be read as the contract. In some schedules the runtime's
//! in-memory store stands beside it, is asked everything through the trait `Store`, and has to answer the same.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::FutureExt;
use toolwright_core::{ApprovalId, Record, Saved, Seq, Thread, ThreadId, Timestamp};
use toolwright_runtime::planted::Bug;
use toolwright_runtime::{Answer, Append, Claim, InboxItem, MemoryStore, Posted, Snapshot, Store as Contract, StoreError};

use super::audit::Audit;
use super::rng::Rng;
use super::{Broken, Stats, broken, checks};

const CONTRACT: &str = "a store keeps its contract";
const SAVED: &str = "a saved fold is the fold, or is passed over";

/// What waits for its moment.
struct Timer {
    at: i64,
    key: String,
    item: InboxItem,
}

/// A thread in the runtime's own store.
struct Real {
    store: MemoryStore,
    held: Option<Box<dyn Claim>>,
}

/// A claim as its owner knows it, also after it was lost.
struct Known {
    thread: ThreadId,
    fence: u64,
}

impl Claim for Known {
    fn thread(&self) -> &ThreadId {
        &self.thread
    }

    fn fence(&self) -> u64 {
        self.fence
    }
}

/// The answer of a store that never waits.
fn said<T>(what: &str, answer: Answer<'_, T>) -> Result<Result<T, StoreError>, Broken> {
    match answer.now_or_never() {
        Some(answer) => Ok(answer),
        None => broken(CONTRACT, format!("{what} waits for something")),
    }
}

/// An answer that is no error.
pub(super) fn done<T>(what: &str, answer: Answer<'_, T>) -> Result<T, Broken> {
    said(what, answer)?.or_else(|error| broken(CONTRACT, format!("{what}: {error}")))
}

fn same_records(ours: &[Arc<Record>], theirs: &[Arc<Record>]) -> bool {
    ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(a, b)| Arc::ptr_eq(a, b) || a == b)
}

pub(super) struct Store {
    pub(super) thread: ThreadId,
    pub(super) records: Vec<Arc<Record>>,
    /// What the journal says, read independently of the core's fold.
    pub(super) audit: Audit,
    bug: Option<Bug>,
    fence: u64,
    last_writer: u64,
    inbox: Vec<(u64, InboxItem)>,
    keys: HashMap<String, InboxItem>,
    position: u64,
    timers: Vec<Timer>,
    /// All that were saved; the last one is the store's.
    snapshots: Vec<Snapshot>,
    /// A fold that was saved with records that never became durable.
    ahead: Option<String>,
    real: Option<Real>,
    /// Threads of the same store whose timers were posted from here.
    elsewhere: Vec<ThreadId>,
}

impl Store {
    pub(super) fn new(thread: ThreadId, bug: Option<Bug>, real: Option<MemoryStore>) -> Self {
        Self {
            thread,
            records: Vec::new(),
            audit: Audit::default(),
            bug,
            fence: 0,
            last_writer: 0,
            inbox: Vec::new(),
            keys: HashMap::new(),
            position: 0,
            timers: Vec::new(),
            snapshots: Vec::new(),
            ahead: None,
            real: real.map(|store| Real { store, held: None }),
            elsewhere: Vec::new(),
        }
    }

    /// The runtime's store, where this schedule has it.
    pub(super) fn real(&self) -> Option<&MemoryStore> {
        self.real.as_ref().map(|real| &real.store)
    }

    fn known(&self, fence: u64) -> Known {
        Known { thread: self.thread.clone(), fence }
    }

    /// Claims the thread. A later claim fences all earlier ones; whoever holds it is dead, or hangs for too long.
    pub(super) fn claim(&mut self) -> Result<u64, Broken> {
        let before = self.fence;
        self.fence += 1;
        if let Some(real) = &mut self.real {
            if real.held.is_some() && !matches!(said("claim", real.store.claim(&self.thread))?, Err(StoreError::Busy { .. })) {
                return broken(CONTRACT, "a thread was claimed that has an owner".to_owned());
            }
            real.held = None;
            let claim = done("claim", real.store.claim(&self.thread))?;
            self.fence = claim.fence();
            real.held = Some(claim);
            if self.fence <= before {
                return broken(CONTRACT, format!("the fence {} comes after {before}", self.fence));
            }
        }
        Ok(self.fence)
    }

    /// The owner with this fence is dead, or done.
    pub(super) fn release(&mut self, fence: u64) {
        if fence == self.fence
            && let Some(real) = &mut self.real
        {
            real.held = None;
        }
    }

    pub(super) fn is_current(&self, fence: u64) -> bool {
        fence == self.fence
    }

    /// Appends, all or nothing. `false`: refused, because a later owner has the thread.
    pub(super) fn append(&mut self, fence: u64, expected: Seq, records: &[Arc<Record>], inbox_through: u64) -> Result<bool, Broken> {
        let actual = Seq(self.records.len() as u64);
        if let Some(real) = &self.real {
            let append = Append { records: records.to_vec(), inbox_through };
            let answer = said("append", real.store.append(&self.known(fence), expected, append))?;
            let fits = match &answer {
                Ok(()) => fence == self.fence && expected == actual,
                Err(StoreError::Fenced { .. }) => fence != self.fence,
                Err(StoreError::Conflict { .. }) => fence == self.fence && expected != actual,
                Err(_) => false,
            };
            if !fits {
                return broken(CONTRACT, format!("an append of fence {fence} after {expected} gave {answer:?}"));
            }
        }
        if fence != self.fence {
            return Ok(false);
        }
        if fence < self.last_writer {
            return broken("only one writer moves the thread", format!("fence {fence} wrote after {}", self.last_writer));
        }
        self.last_writer = fence;
        if expected != actual {
            return broken("an owner knows where its journal ends", format!("it expected {expected}, the journal ends at {actual}"));
        }
        for record in records {
            self.records.push(Arc::clone(record));
            self.audit.note(record)?;
        }
        self.audit.taken(inbox_through)?;
        self.inbox.retain(|(position, _)| *position > inbox_through);
        Ok(true)
    }

    /// A fold without records, with the bug that is planted in folds.
    pub(super) fn fresh(&self) -> Thread {
        let mut thread = Thread::new();
        if let Some(fold) = self.bug.and_then(Bug::of_folds) {
            thread.plant(fold);
        }
        thread
    }

    /// The fold of the journal, from its beginning.
    pub(super) fn load(&self) -> Result<Thread, Broken> {
        if let Some(real) = &self.real {
            const PAGE: usize = 64;
            let mut from = 0;
            loop {
                let page = done("read", real.store.read(&self.thread, Seq(from as u64), PAGE))?;
                let ours: Vec<Arc<Record>> = self.records.iter().skip(from).take(PAGE).cloned().collect();
                if !same_records(&ours, &page) {
                    return broken(CONTRACT, format!("the records after {from} came back as others"));
                }
                from += page.len();
                if page.len() < PAGE {
                    break;
                }
            }
        }
        let mut thread = self.fresh();
        self.follow(&mut thread)?;
        Ok(thread)
    }

    fn follow(&self, thread: &mut Thread) -> Result<(), Broken> {
        for record in self.records.iter().skip(thread.head().0 as usize) {
            if let Err(misfit) = thread.apply(record) {
                return broken("the stored journal folds without misfit", misfit.to_string());
            }
        }
        Ok(())
    }

    /// Saves a fold in place of the one before.
    pub(super) fn save(&mut self, fence: u64, thread: &Thread) -> Result<bool, Broken> {
        let Some(text) = thread.save() else { return Ok(false) };
        let snapshot = Snapshot { at: thread.head(), text: text.into() };
        if let Some(real) = &self.real {
            let answer = said("save_snapshot", real.store.save_snapshot(&self.known(fence), snapshot.clone()))?;
            if answer.is_ok() != self.is_current(fence) {
                return broken(CONTRACT, format!("a snapshot of fence {fence} gave {answer:?}"));
            }
        }
        let saved = self.is_current(fence);
        if saved {
            self.snapshots.push(snapshot);
        }
        Ok(saved)
    }

    /// Keeps a fold whose last records are lost: it reaches beyond the journal.
    pub(super) fn save_ahead(&mut self, thread: &Thread) {
        if let Some(text) = thread.save() {
            self.ahead = Some(text);
        }
    }

    /// The fold as a process loads it: from a saved fold where there is one that it can use. Held against the fold of the whole.
    pub(super) fn load_saved(&self, rng: &mut Rng, stats: &mut Stats) -> Result<Thread, Broken> {
        let whole = self.load()?;
        if let Some(real) = &self.real
            && done("snapshot", real.store.snapshot(&self.thread))?.as_ref() != self.snapshots.last()
        {
            return broken(CONTRACT, "another snapshot came back than was saved last".to_owned());
        }
        let Some(last) = self.snapshots.last() else { return Ok(whole) };
        let (text, usable) = match rng.below(10) {
            0 | 1 => return Ok(whole),
            // One that was put back from a backup.
            2 => self
                .snapshots
                .get(rng.index(self.snapshots.len()))
                .map_or((last.text.to_string(), true), |old| (old.text.to_string(), true)),
            3 => (damaged(&last.text, rng), false),
            4 => match &self.ahead {
                // It may reach no further than the journal by now, and then nobody could tell that it is another one's.
                Some(ahead) if Saved::read(ahead).is_ok_and(|saved| saved.head().0 > self.records.len() as u64) => (ahead.clone(), false),
                _ => return Ok(whole),
            },
            _ => (last.text.to_string(), true),
        };
        let Some(mut loaded) = self.fold_of(&text)? else {
            if usable {
                return broken(SAVED, format!("{} could not be used: {text}", self.thread));
            }
            stats.passed_over += 1;
            return Ok(whole);
        };
        if !usable {
            return broken(SAVED, format!("it was used although it was damaged or ahead: {text}"));
        }
        if let Some(bug) = self.bug.and_then(Bug::of_folds) {
            loaded.plant(bug);
        }
        stats.loaded += 1;
        self.follow(&mut loaded)?;
        checks::same_fold(SAVED, &whole, &loaded)?;
        Ok(loaded)
    }

    /// A saved fold with the bodies it needs, as the runtime loads it; `None` if it can't be used.
    fn fold_of(&self, text: &str) -> Result<Option<Thread>, Broken> {
        let Ok(saved) = Saved::read(text) else { return Ok(None) };
        let mut wanted = saved.positions();
        if wanted.last() != Some(&saved.head()) {
            wanted.push(saved.head());
        }
        let at = |seq: &Seq| self.records.get((seq.0 as usize).checked_sub(1)?).cloned();
        let records: Vec<Arc<Record>> = wanted.iter().filter_map(at).collect();
        if let Some(real) = &self.real
            && !same_records(&records, &done("read_at", real.store.read_at(&self.thread, &wanted))?)
        {
            return broken(CONTRACT, format!("the records at {wanted:?} came back as others"));
        }
        if records.last().is_none_or(|record| record.seq != saved.head()) {
            return Ok(None);
        }
        Ok(saved.complete(&records).ok())
    }

    /// Posts under a key. `false`: another came first.
    pub(super) fn post(&mut self, key: &str, item: InboxItem) -> Result<bool, Broken> {
        if let Some(real) = &self.real {
            let fits = match done("post", real.store.post(&self.thread, key, item.clone()))? {
                Posted::First => !self.keys.contains_key(key),
                Posted::Late(first) => self.keys.get(key) == Some(&*first),
            };
            if !fits {
                return broken(CONTRACT, format!("another item is said to have come first under `{key}`"));
            }
        }
        Ok(self.posts(key, item))
    }

    /// As [`Store::post`], and says what came first.
    pub(super) fn post_first(&mut self, key: &str, item: InboxItem) -> Result<Posted, Broken> {
        if self.post(key, item)? {
            return Ok(Posted::First);
        }
        match self.keys.get(key) {
            Some(first) => Ok(Posted::Late(Box::new(first.clone()))),
            None => broken(CONTRACT, format!("nothing stands under `{key}`, and it was late")),
        }
    }

    fn posts(&mut self, key: &str, item: InboxItem) -> bool {
        if self.keys.contains_key(key) {
            return false;
        }
        self.keys.insert(key.to_owned(), item.clone());
        self.position += 1;
        self.audit.posted(&item, self.position);
        self.inbox.push((self.position, item));
        true
    }

    /// The position of the last item posted.
    pub(super) fn posted(&self) -> u64 {
        self.position
    }

    pub(super) fn has_news(&self, after: u64) -> bool {
        self.inbox.last().is_some_and(|(position, _)| *position > after)
    }

    /// What was not taken yet.
    pub(super) fn inbox(&self, after: u64) -> Result<Vec<(u64, InboxItem)>, Broken> {
        let items: Vec<(u64, InboxItem)> = self.inbox.iter().filter(|(position, _)| *position > after).cloned().collect();
        if let Some(real) = &self.real
            && done("inbox", real.store.inbox(&self.thread, after))? != items
        {
            return broken(CONTRACT, format!("the inbox after {after} holds something else than was posted"));
        }
        Ok(items)
    }

    /// Sets a timer, in place of one of the same key.
    pub(super) fn post_at(&mut self, key: String, at: i64, item: InboxItem) -> Result<(), Broken> {
        if let Some(real) = &self.real {
            done("post_at", real.store.post_at(&self.thread, &key, Timestamp(at), item.clone()))?;
        }
        self.timers.retain(|timer| timer.key != key);
        self.timers.push(Timer { at, key, item });
        Ok(())
    }

    /// Takes a timer back, if there is one.
    pub(super) fn cancel_timer(&mut self, at: usize) -> Result<(), Broken> {
        // Those of decisions are nobody's to take back.
        let taken_back = self.timers.get(at).filter(|timer| timer.key.starts_with("input:") || timer.key.starts_with("cancel "));
        let Some(key) = taken_back.map(|timer| timer.key.clone()) else { return Ok(()) };
        self.timers.remove(at);
        if let Some(real) = &self.real {
            let first = done("cancel_timer", real.store.cancel_timer(&self.thread, &key))?;
            if !first || done("cancel_timer", real.store.cancel_timer(&self.thread, &key))? {
                return broken(CONTRACT, format!("the timer `{key}` was not there once"));
            }
        }
        Ok(())
    }

    pub(super) fn timers(&self) -> usize {
        self.timers.len()
    }

    /// Whether something besides reminders is still to be posted.
    pub(super) fn has_to_come(&self) -> bool {
        self.timers.iter().any(|timer| !matches!(timer.item, InboxItem::Remind { .. }))
    }

    /// Whoever is to be reminded will be.
    pub(super) fn reminds(&self) -> Result<(), Broken> {
        let about = |item: &InboxItem, id: &ApprovalId| matches!(item, InboxItem::Remind { approval, .. } if approval == id);
        let lost = self.audit.to_be_reminded().find(|id| {
            let to_come = self.timers.iter().any(|timer| about(&timer.item, id));
            !to_come && !self.inbox.iter().any(|(_, item)| about(item, id))
        });
        match lost {
            Some(id) => broken("deciders are reminded until they decide", format!("nobody is reminded of {id} any more")),
            None => Ok(()),
        }
    }

    /// The moment of the next timer.
    pub(super) fn next_timer(&self) -> Option<i64> {
        self.timers.iter().map(|timer| timer.at).min()
    }

    /// Posts what is due, at most `limit`. Gives how many timers of this thread are over.
    pub(super) fn post_due(&mut self, now: i64, limit: usize) -> Result<usize, Broken> {
        let mut mine = self.timers.iter().filter(|timer| timer.at <= now).count().min(limit);
        if let Some(real) = &self.real {
            let all = done("post_due", real.store.post_due(Timestamp(now), limit))?;
            let here = all.iter().filter(|thread| **thread == self.thread).count();
            if all.len() < limit && here != mine {
                return broken(CONTRACT, format!("{here} timers of this thread were due, not {mine}"));
            }
            mine = here;
            self.elsewhere.extend(all.into_iter().filter(|thread| *thread != self.thread));
        }
        (0..mine).for_each(|_| self.next_is_over());
        Ok(mine)
    }

    /// The next timer is over, and posts its item if that is the first of its key.
    fn next_is_over(&mut self) {
        let next = (0..self.timers.len()).min_by_key(|at| self.timers.get(*at).map(|timer| (timer.at, timer.key.as_str())));
        if let Some(next) = next {
            let Timer { key, item, .. } = self.timers.remove(next);
            self.posts(&key, item);
        }
    }

    /// Takes over what the schedule of another thread in the same store posted here.
    pub(super) fn posted_by(&mut self, other: &mut Self) {
        for thread in std::mem::take(&mut other.elsewhere) {
            if thread == self.thread {
                self.next_is_over();
            } else {
                self.elsewhere.push(thread);
            }
        }
    }

    /// Deletes the thread; everything of it is gone, but its fencing number.
    pub(super) fn delete(&mut self, keys: usize) -> Result<(), Broken> {
        let Some(store) = self.real().cloned() else { return Ok(()) };
        let old = self.fence;
        let fence = self.claim()?;
        let thread = &self.thread;
        if old > 0 && !matches!(said("delete", store.delete(&self.known(old)))?, Err(StoreError::Fenced { .. })) {
            return broken(CONTRACT, "a claim that was lost deletes the thread".to_owned());
        }
        done("delete", store.delete(&self.known(fence)))?;
        let gone = done("info", store.info(thread))?.is_none()
            && done("read", store.read(thread, Seq(0), usize::MAX))?.is_empty()
            && done("inbox", store.inbox(thread, 0))?.is_empty()
            && done("snapshot", store.snapshot(thread))?.is_none()
            && done("pending", store.pending(Some(thread), None, 10))?.items.is_empty();
        if !gone {
            return broken(CONTRACT, "something of a deleted thread is left".to_owned());
        }
        for (key, item) in self.keys.iter().take(keys) {
            if done("post", store.post(thread, key, item.clone()))? != Posted::First {
                return broken(CONTRACT, format!("the key `{key}` outlives its thread"));
            }
        }
        self.release(fence);
        if self.claim()? <= fence {
            return broken(CONTRACT, "a fencing number came twice".to_owned());
        }
        Ok(())
    }

    /// An append that thinks the journal ends elsewhere changes nothing.
    pub(super) fn refuses_a_gap(&mut self) -> Result<(), Broken> {
        let Some(store) = self.real().cloned() else { return Ok(()) };
        let fence = self.claim()?;
        let elsewhere = Seq(self.records.len() as u64 + 1);
        let append = Append { records: Vec::new(), inbox_through: u64::MAX };
        let answer = said("append", store.append(&self.known(fence), elsewhere, append))?;
        self.release(fence);
        match answer {
            Err(StoreError::Conflict { actual, .. }) if actual.0 == self.records.len() as u64 => self.inbox(0).map(drop),
            other => broken(CONTRACT, format!("an append behind the end of the journal gave {other:?}")),
        }
    }
}

/// A saved fold that can't be read.
fn damaged(text: &str, rng: &mut Rng) -> String {
    match rng.below(3) {
        0 => text.replacen("\"version\":", "\"version\":9", 1),
        1 => text.replacen("\"head\":", "\"tail\":", 1),
        _ => text.chars().take(rng.index(text.chars().count())).collect(),
    }
}
