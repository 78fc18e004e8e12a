//! Who waits for news of a thread, and how they get them: from the writer in this process at once, and of other processes from
//! a thread that looks, for as long as somebody waits, whether the file was written.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension};
use tokio::sync::watch;
use toolwright_core::ThreadId;
use toolwright_runtime::StoreError;

use super::fault::Trouble;
use super::journal::unsigned;

/// How often it is looked whether another process wrote.
const LOOKS_EVERY: Duration = Duration::from_millis(20);

/// For so many looks a thread is still watched when nobody waits for it any more: its owner mostly waits again soon, and need
/// not ask the database then.
const LINGERS: u32 = 10;

/// What was written, and is durable.
pub(super) enum News {
    Appended(ThreadId, u64),
    Posted(ThreadId, u64),
    Deleted(ThreadId),
}

/// Where a thread stands: the ends of its journal and of its inbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) head: u64,
    pub(super) posted: u64,
}

impl Ends {
    pub(super) fn of(connection: &Connection, thread: &ThreadId) -> Result<Self, Trouble> {
        let mut find = connection.prepare_cached("SELECT head, posted FROM threads WHERE id = ?1")?;
        let found = find.query_row([thread.as_str()], |row| Ok(Self { head: unsigned(row.get(0)?), posted: unsigned(row.get(1)?) }));
        Ok(found.optional()?.unwrap_or_default())
    }
}

/// What somebody waits for.
#[derive(Clone, Copy)]
pub(super) enum End {
    Journal,
    Inbox,
}

/// A position, and how often all who wait for it were told to look for themselves.
#[derive(Clone, Copy, Default)]
struct Mark {
    position: u64,
    nudges: u64,
}

/// Everyone who waits.
pub(super) struct Wakes {
    watched: Mutex<Watched>,
    came: Condvar,
    /// Whether others may write what nobody here is told of.
    shared_file: bool,
}

#[derive(Default)]
struct Watched {
    threads: HashMap<ThreadId, Entry>,
    polled: bool,
    shut: bool,
}

#[derive(Default)]
struct Entry {
    journal: watch::Sender<Mark>,
    inbox: watch::Sender<Mark>,
    waiters: usize,
    /// For so many looks nobody has waited.
    idle: u32,
    /// Whether the database was asked since the entry is watched.
    known: bool,
    /// How often something was learned of the thread: what was read before that may be old.
    learned: u64,
}

impl Entry {
    fn end(&self, end: End) -> &watch::Sender<Mark> {
        match end {
            End::Journal => &self.journal,
            End::Inbox => &self.inbox,
        }
    }

    fn set(&mut self, end: End, position: u64) {
        self.end(end).send_if_modified(|mark| std::mem::replace(&mut mark.position, position) != position);
    }

    fn raise(&mut self, end: End, position: u64) {
        let now = self.end(end).borrow().position;
        self.set(end, now.max(position));
    }

    fn nudge(&mut self) {
        for end in [End::Journal, End::Inbox] {
            self.end(end).send_modify(|mark| mark.nudges += 1);
        }
    }

    /// Takes what the database said when `learned` was as given.
    fn learn(&mut self, ends: Ends, learned: u64) {
        for (end, position) in [(End::Journal, ends.head), (End::Inbox, ends.posted)] {
            if self.learned == learned { self.set(end, position) } else { self.raise(end, position) }
        }
        self.learned += 1;
        self.known = true;
    }
}

impl Wakes {
    pub(super) fn new(shared_file: bool) -> Self {
        Self { watched: Mutex::default(), came: Condvar::new(), shared_file }
    }

    fn lock(&self) -> MutexGuard<'_, Watched> {
        // Every change under the lock is complete at each step.
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins those who wait; `None` at the end of the store.
    pub(super) fn join(self: &Arc<Self>, thread: &ThreadId, end: End) -> Option<Waiter> {
        let mut watched = self.lock();
        if watched.shut {
            return None;
        }
        let entry = watched.threads.entry(thread.clone()).or_default();
        entry.waiters += 1;
        entry.idle = 0;
        let unknown = (!entry.known).then_some(entry.learned);
        let mut mark = entry.end(end).subscribe();
        let nudges = mark.borrow_and_update().nudges;
        drop(watched);
        self.came.notify_all();
        Some(Waiter { wakes: Arc::clone(self), thread: thread.clone(), unknown, mark, nudges })
    }

    /// Whether nobody polls yet; then whoever asks starts to.
    pub(super) fn needs_poller(&self) -> bool {
        self.shared_file && !std::mem::replace(&mut self.lock().polled, true)
    }

    /// The poller could not be started.
    pub(super) fn no_poller(&self) {
        self.lock().polled = false;
    }

    /// What the writer of this process wrote.
    pub(super) fn tell(&self, news: &[News]) {
        if news.is_empty() {
            return;
        }
        let mut watched = self.lock();
        for news in news {
            let (News::Appended(thread, _) | News::Posted(thread, _) | News::Deleted(thread)) = news;
            let Some(entry) = watched.threads.get_mut(thread) else { continue };
            entry.learned += 1;
            match news {
                News::Appended(_, head) => entry.raise(End::Journal, *head),
                News::Posted(_, posted) => entry.raise(End::Inbox, *posted),
                News::Deleted(_) => {
                    // Another process may have begun it anew: whoever waits asks the database again.
                    entry.known = false;
                    entry.set(End::Journal, 0);
                    entry.set(End::Inbox, 0);
                    entry.nudge();
                }
            }
        }
    }

    /// Everyone who waits looks for themselves.
    fn nudge_all(&self) {
        for entry in self.lock().threads.values_mut() {
            entry.nudge();
        }
    }

    /// Nothing comes any more: everyone who waits returns.
    pub(super) fn shut(&self) {
        self.lock().shut = true;
        self.nudge_all();
        self.came.notify_all();
    }

    /// Looks for what other processes write, until the store's end.
    pub(super) fn poll(&self, open: impl Fn() -> Result<Connection, StoreError>) {
        let mut look = None;
        loop {
            let watched = self.lock();
            let waits = |watched: &mut Watched| watched.threads.is_empty() && !watched.shut;
            if self.came.wait_while(watched, waits).unwrap_or_else(PoisonError::into_inner).shut {
                return;
            }
            if look.is_none() {
                look = open().ok().map(|connection| Look { connection, version: None });
            }
            if look.as_mut().is_none_or(|look| look.look(self).is_err()) {
                // Whoever waits finds out what is wrong when they read.
                look = None;
                self.nudge_all();
            }
            let mut watched = self.lock();
            watched.threads.retain(|_, entry| {
                entry.idle = if entry.waiters == 0 { entry.idle + 1 } else { 0 };
                entry.idle <= LINGERS
            });
            // New waiters don't shorten the pause: they ask the database themselves.
            let paused = self.came.wait_timeout_while(watched, LOOKS_EVERY, |watched| !watched.shut);
            drop(paused);
        }
    }
}

/// The poller's view of the file.
struct Look {
    connection: Connection,
    /// Changes whenever another connection has committed.
    version: Option<i64>,
}

impl Look {
    fn look(&mut self, wakes: &Wakes) -> Result<(), Trouble> {
        let version: i64 = self.connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?;
        if self.version == Some(version) {
            return Ok(());
        }
        // Who comes later than this asks the database later, too, and so misses nothing that this look leaves out.
        let watched: Vec<(ThreadId, u64)> = wakes.lock().threads.iter().map(|(thread, entry)| (thread.clone(), entry.learned)).collect();
        for (thread, learned) in watched {
            let ends = Ends::of(&self.connection, &thread)?;
            if let Some(entry) = wakes.lock().threads.get_mut(&thread) {
                entry.learn(ends, learned);
            }
        }
        self.version = Some(version);
        Ok(())
    }
}

/// Somebody who waits.
pub(super) struct Waiter {
    wakes: Arc<Wakes>,
    thread: ThreadId,
    unknown: Option<u64>,
    mark: watch::Receiver<Mark>,
    nudges: u64,
}

impl Waiter {
    /// Whether the database has to be asked where the thread stands; then [`Waiter::learn`] is told the answer.
    pub(super) fn must_ask(&self) -> bool {
        self.unknown.is_some()
    }

    pub(super) fn learn(&self, ends: Ends) {
        if let Some(learned) = self.unknown
            && let Some(entry) = self.wakes.lock().threads.get_mut(&self.thread)
        {
            entry.learn(ends, learned);
        }
    }

    /// Returns once the position is beyond `after`, or when there is reason to look for oneself.
    pub(super) async fn beyond(&mut self, after: u64) {
        let nudges = self.nudges;
        // An error means that the entry is gone, which it isn't while somebody waits.
        let _ = self.mark.wait_for(|mark| mark.position > after || mark.nudges != nudges).await;
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut watched = self.wakes.lock();
        if let Some(entry) = watched.threads.get_mut(&self.thread) {
            entry.waiters = entry.waiters.saturating_sub(1);
            if entry.waiters == 0 && !self.wakes.shared_file {
                watched.threads.remove(&self.thread);
            }
        }
    }
}
