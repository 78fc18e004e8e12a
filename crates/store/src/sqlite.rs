//! SQLite: threads in a file on one machine, which processes on it share.
//!
//! One thread writes, and commits for all who wait at once; others read beside it. The log is flushed at each commit
//! (`synchronous=FULL`). A thread is claimed by a lock that the operating system frees when its owner dies; the locks are files
//! in a folder beside the database. The file has to be on a local disk: neither the locks nor SQLite's log work over a network.

mod claims;
mod fault;
mod guests;
mod inbox;
mod journal;
mod keep;
mod listing;
mod readers;
mod schema;
mod wakes;
mod writer;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rusqlite::Connection;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::Instant;
use toolwright_core::{Record, Seq, ThreadId, Timestamp};
use toolwright_runtime::{
    Answer, Append, BlobId, CLAIM_LIMIT, Claim, DataStore, FileChange, FileEntry, InboxItem, Page, PendingApproval, Posted, Shelf,
    Snapshot, Store, StoreError, ThreadInfo, ThreadQuery,
};

use self::claims::{Attempt, Locks, Sign, wall_clock};
use self::fault::{Database, Trouble};
use self::guests::Guests;
use self::readers::Readers;
use self::wakes::{End, Ends, Wakes};
use self::writer::{Writer, Writing};

/// The path of a database that lives in memory, and as long as its store.
const IN_MEMORY: &str = ":memory:";

/// Content from this size on is hashed where it keeps nobody waiting.
const LARGE_BLOB: usize = 256 * 1024;

/// A store in a file. Clones share it; it ends with the last of them.
///
/// Follows sdk-runtime STO-4: a write-ahead log, five seconds' patience with other processes, the schema's version in
/// `user_version`, older files brought up to date when they are opened, newer ones refused.
#[derive(Clone)]
pub struct Sqlite {
    inner: Arc<Inner>,
}

struct Inner {
    database: Database,
    path: PathBuf,
    claim_limit: Duration,
    locks: Locks,
    writer: Writer,
    /// Absent in memory: the writer reads, too, because its connection is the database.
    readers: Option<Readers>,
    wakes: Arc<Wakes>,
    /// Each thread holds a receiver for as long as it has the file open.
    alive: watch::Sender<()>,
    guests: Arc<Guests>,
    closed: AtomicBool,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.wakes.shut();
    }
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").field("path", &self.inner.path).finish_non_exhaustive()
    }
}

/// How a store is opened, where the defaults don't fit.
#[derive(Clone, Debug)]
pub struct SqliteOptions {
    claim_limit: Duration,
    max_bytes: Option<u64>,
}

impl SqliteOptions {
    /// How long an owner may give no sign of life before another may take its place; [`CLAIM_LIMIT`] by default.
    #[must_use]
    pub fn claim_limit(mut self, limit: Duration) -> Self {
        self.claim_limit = limit;
        self
    }

    /// How large the database may become, in bytes, its log aside. Beyond that nothing is written, as on a disk that is full.
    #[must_use]
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = Some(bytes);
        self
    }

    /// Opens the store, as [`Sqlite::open`] does.
    pub async fn open(self, path: impl AsRef<Path>) -> Result<Sqlite, StoreError> {
        let (path, in_memory) = (path.as_ref().to_owned(), path.as_ref() == Path::new(IN_MEMORY));
        let database = Database::of(&path);
        let opening = {
            let database = database.clone();
            tokio::task::spawn_blocking(move || {
                if in_memory {
                    return Ok((schema::open_in_memory(&database)?, path));
                }
                let connection = schema::open_writer(&path, &database, self.max_bytes)?;
                // However the file is named by others: its locks are in one database, and a change of folder does not matter.
                let path = path.canonicalize().map_err(|error| database.unreadable("the path", &error))?;
                Ok::<_, StoreError>((connection, path))
            })
        };
        let (connection, path) = opening.await.map_err(|_| database.broken("the opening"))??;
        let (alive, _) = watch::channel(());
        let wakes = Arc::new(Wakes::new(!in_memory));
        let guests = Arc::new(Guests::default());
        let writer = Writer::start(connection, &database, &wakes, &alive, &guests)?;
        let readers = (!in_memory).then(|| Readers::of(path.clone(), &database, &alive, &guests));
        let locks = if in_memory {
            Locks::Memory(Arc::default())
        } else {
            let mut folder = path.clone().into_os_string();
            folder.push(".claims");
            Locks::Folder(folder.into())
        };
        let closed = AtomicBool::new(false);
        let inner = Inner { database, path, claim_limit: self.claim_limit, locks, writer, readers, wakes, alive, guests, closed };
        Ok(Sqlite { inner: Arc::new(inner) })
    }
}

impl Sqlite {
    /// Opens the store in a file, which is made if there is none, in a folder that is there. `:memory:` is a store of its own
    /// that lives in memory.
    ///
    /// An error names the file and what is wrong: it is no database, or that of another application, or of a newer version; it
    /// is damaged; it can't be read or written.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::options().open(path).await
    }

    /// How a store is opened, where the defaults don't fit.
    pub fn options() -> SqliteOptions {
        SqliteOptions { claim_limit: CLAIM_LIMIT, max_bytes: None }
    }

    /// Closes the store for all who share it. What was begun is finished; returns once the file is let go. Whoever uses the
    /// store after that is told so (sdk-runtime STO-4).
    pub async fn close(&self) {
        let inner = &self.inner;
        inner.closed.store(true, Ordering::SeqCst);
        inner.writer.close();
        if let Some(readers) = &inner.readers {
            readers.close();
        }
        inner.wakes.shut();
        inner.alive.closed().await;
    }
}

impl Inner {
    fn check_open(&self) -> Result<(), StoreError> {
        if self.closed.load(Ordering::SeqCst) { Err(self.database.closed()) } else { Ok(()) }
    }

    /// Does a piece of work in a transaction, durably.
    async fn write<T, Work>(&self, work: Work) -> Result<T, StoreError>
    where
        T: Send + 'static,
        Work: FnOnce(&mut Writing<'_>) -> Result<T, Trouble> + Send + 'static,
    {
        self.check_open()?;
        let answer = self.writer.ask(work).await;
        // One that the end of the store overtook.
        answer.or_else(|error| self.check_open().and(Err(error)))
    }

    /// Asks the database.
    async fn read<T, Work>(&self, work: Work) -> Result<T, StoreError>
    where
        T: Send + 'static,
        Work: FnOnce(&Connection, &Database) -> Result<T, Trouble> + Send + 'static,
    {
        self.check_open()?;
        match &self.readers {
            Some(readers) => {
                let database = self.database.clone();
                readers.ask(move |connection| work(connection, &database)).await
            }
            None => self.write(move |writing| work(writing.connection, writing.database)).await,
        }
    }

    /// Returns once a thread's journal or inbox is beyond a position; early where that can't be found out.
    async fn beyond(&self, thread: &ThreadId, end: End, after: u64) {
        // First one joins those who wait, then one looks: so nothing is missed in between.
        let Some(mut waiter) = self.wakes.join(thread, end) else { return };
        if self.wakes.needs_poller() && !self.start_poller() {
            self.wakes.no_poller();
            return;
        }
        if waiter.must_ask() {
            let asked = thread.clone();
            let Ok(ends) = self.read(move |connection, _| Ends::of(connection, &asked)).await else { return };
            waiter.learn(ends);
        }
        waiter.beyond(after).await;
    }

    fn start_poller(&self) -> bool {
        let (wakes, path, database, alive) = (Arc::clone(&self.wakes), self.path.clone(), self.database.clone(), self.alive.subscribe());
        let guest = self.guests.enter();
        let thread = std::thread::Builder::new().name("toolwright-watch".to_owned());
        let started = thread.spawn(move || {
            wakes.poll(|| schema::open_reader(&path, &database));
            drop((guest, alive));
        });
        started.is_ok()
    }

    async fn claim(&self, thread: &ThreadId) -> Result<Box<dyn Claim>, StoreError> {
        // A part of the limit, so that an owner which gives its sign in time is seen to.
        let (watch, step) = (self.claim_limit / 2, self.claim_limit / 16);
        let mut watched: Option<(Sign, Instant)> = None;
        loop {
            let silent = watched.filter(|(_, since)| since.elapsed() >= watch).map(|(sign, _)| sign);
            let (locks, id) = (self.locks.clone(), thread.clone());
            let sign = match self.write(move |writing| claims::claim(writing, &locks, &id, silent)).await? {
                Attempt::Claimed { claim, replaced } => {
                    if let Some(name) = replaced {
                        self.locks.forget(name);
                        tracing::warn!(%thread, "the thread's owner was silent for too long and was replaced");
                    }
                    return Ok(Box::new(claim));
                }
                Attempt::Owned(sign) => sign,
            };
            let lives = match watched {
                Some((before, _)) => before != sign,
                None => sign.is_recent(wall_clock(), self.claim_limit.as_millis()),
            };
            if lives {
                return Err(StoreError::Busy { thread: thread.clone() });
            }
            // The clock says that the owner is silent, and the clock may have jumped: so it is watched for a while.
            watched = watched.or_else(|| Some((sign, Instant::now())));
            tokio::time::sleep(step).await;
        }
    }
}

/// JSON text of something that is kept as such.
fn json(what: &str, value: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::failed(format!("{what} can't be written as JSON ({error})")))
}

fn written(append: &Append, thread: &ThreadId) -> Result<journal::Written, StoreError> {
    let change = append.index();
    let pending = change.asked.iter().map(|row| {
        let body = json("a pending decision", &row.of_thread(thread))?;
        Ok(journal::Pending { call: row.call.to_string(), approval: row.approval.to_string(), asked_at: row.at.0, body })
    });
    let pending = pending.collect::<Result<_, StoreError>>()?;
    let records = append.records.iter().map(|record| json("a record", &**record)).collect::<Result<_, _>>()?;
    Ok(journal::Written { records, change, pending, inbox_through: append.inbox_through })
}

impl Store for Sqlite {
    fn claim<'a>(&'a self, thread: &'a ThreadId) -> Answer<'a, Box<dyn Claim>> {
        self.inner.claim(thread).boxed()
    }

    fn renew<'a>(&'a self, claim: &'a dyn Claim) -> Answer<'a, ()> {
        let (thread, fence) = (claim.thread().clone(), claim.fence());
        self.inner.write(move |writing| claims::renew(writing, &thread, fence)).boxed()
    }

    fn claim_limit(&self) -> Duration {
        self.inner.claim_limit
    }

    fn append<'a>(&'a self, claim: &'a dyn Claim, expected: Seq, append: Append) -> Answer<'a, ()> {
        let (thread, fence) = (claim.thread().clone(), claim.fence());
        async move {
            let written = written(&append, &thread)?;
            self.inner.write(move |writing| journal::append(writing, &thread, fence, expected, &written)).await
        }
        .boxed()
    }

    fn read<'a>(&'a self, thread: &'a ThreadId, after: Seq, limit: usize) -> Answer<'a, Vec<Arc<Record>>> {
        let thread = thread.clone();
        self.inner.read(move |connection, database| journal::read(connection, database, &thread, after, limit)).boxed()
    }

    fn read_at<'a>(&'a self, thread: &'a ThreadId, positions: &'a [Seq]) -> Answer<'a, Vec<Arc<Record>>> {
        let (thread, positions) = (thread.clone(), positions.to_vec());
        self.inner.read(move |connection, database| journal::read_at(connection, database, &thread, &positions)).boxed()
    }

    fn appended<'a>(&'a self, thread: &'a ThreadId, after: Seq) -> BoxFuture<'a, ()> {
        self.inner.beyond(thread, End::Journal, after.0).boxed()
    }

    fn save_snapshot<'a>(&'a self, claim: &'a dyn Claim, snapshot: Snapshot) -> Answer<'a, ()> {
        let (thread, fence) = (claim.thread().clone(), claim.fence());
        self.inner.write(move |writing| journal::save_snapshot(writing, &thread, fence, &snapshot)).boxed()
    }

    fn snapshot<'a>(&'a self, thread: &'a ThreadId) -> Answer<'a, Option<Snapshot>> {
        let thread = thread.clone();
        self.inner.read(move |connection, _| journal::snapshot(connection, &thread)).boxed()
    }

    fn post<'a>(&'a self, thread: &'a ThreadId, key: &'a str, item: InboxItem) -> Answer<'a, Posted> {
        let (id, key) = (thread.clone(), key.to_owned());
        async move {
            StoreError::refuse_nul("key", &key)?;
            let text = json("what is posted", &item)?;
            match self.inner.write(move |writing| inbox::post(writing, &id, &key, &text)).await? {
                None => Ok(Posted::First),
                Some(first) => Ok(Posted::Late(Box::new(inbox::item(&first, &self.inner.database, thread)?))),
            }
        }
        .boxed()
    }

    fn inbox<'a>(&'a self, thread: &'a ThreadId, after: u64) -> Answer<'a, Vec<(u64, InboxItem)>> {
        let thread = thread.clone();
        self.inner.read(move |connection, database| inbox::after(connection, database, &thread, after)).boxed()
    }

    fn posted_through<'a>(&'a self, thread: &'a ThreadId) -> Answer<'a, u64> {
        let thread = thread.clone();
        self.inner.read(move |connection, _database| inbox::last(connection, &thread)).boxed()
    }

    fn posted<'a>(&'a self, thread: &'a ThreadId, after: u64) -> BoxFuture<'a, ()> {
        self.inner.beyond(thread, End::Inbox, after).boxed()
    }

    fn post_at<'a>(&'a self, thread: &'a ThreadId, key: &'a str, at: Timestamp, item: InboxItem) -> Answer<'a, ()> {
        let (thread, key) = (thread.clone(), key.to_owned());
        async move {
            StoreError::refuse_nul("key", &key)?;
            let text = json("what is posted", &item)?;
            self.inner.write(move |writing| inbox::post_at(writing, &thread, &key, at, &text)).await
        }
        .boxed()
    }

    fn cancel_timer<'a>(&'a self, thread: &'a ThreadId, key: &'a str) -> Answer<'a, bool> {
        let (thread, key) = (thread.clone(), key.to_owned());
        self.inner.write(move |writing| inbox::cancel_timer(writing, &thread, &key)).boxed()
    }

    fn post_due(&self, now: Timestamp, limit: usize) -> Answer<'_, Vec<ThreadId>> {
        self.inner.write(move |writing| inbox::post_due(writing, now, limit)).boxed()
    }

    fn info<'a>(&'a self, thread: &'a ThreadId) -> Answer<'a, Option<ThreadInfo>> {
        let thread = thread.clone();
        self.inner.read(move |connection, database| listing::info(connection, database, &thread)).boxed()
    }

    fn threads<'a>(&'a self, query: &'a ThreadQuery) -> Answer<'a, Page<ThreadInfo>> {
        let query = query.clone();
        self.inner.read(move |connection, database| listing::threads(connection, database, &query)).boxed()
    }

    fn unfinished<'a>(&'a self, after: Option<&'a ThreadId>, limit: usize) -> Answer<'a, Vec<ThreadId>> {
        let after = after.cloned();
        self.inner.read(move |connection, database| listing::unfinished(connection, database, after.as_ref(), limit)).boxed()
    }

    fn pending<'a>(&'a self, thread: Option<&'a ThreadId>, cursor: Option<&'a str>, limit: usize) -> Answer<'a, Page<PendingApproval>> {
        let (thread, cursor) = (thread.cloned(), cursor.map(str::to_owned));
        self.inner
            .read(move |connection, database| listing::pending(connection, database, thread.as_ref(), cursor.as_deref(), limit))
            .boxed()
    }

    fn delete<'a>(&'a self, claim: &'a dyn Claim) -> Answer<'a, ()> {
        let (thread, fence) = (claim.thread().clone(), claim.fence());
        self.inner.write(move |writing| journal::delete(writing, &thread, fence)).boxed()
    }

    fn data(&self) -> &dyn DataStore {
        self
    }
}

impl DataStore for Sqlite {
    fn value<'a>(&'a self, thread: &'a ThreadId, shelf: Shelf, key: &'a str) -> Answer<'a, Option<Arc<str>>> {
        let (thread, key) = (thread.clone(), key.to_owned());
        self.inner.read(move |connection, _| keep::value(connection, &thread, shelf, &key)).boxed()
    }

    fn set_value<'a>(
        &'a self,
        thread: &'a ThreadId,
        shelf: Shelf,
        key: &'a str,
        value: Option<Arc<str>>,
        fence: Option<u64>,
    ) -> Answer<'a, ()> {
        let (thread, key) = (thread.clone(), key.to_owned());
        async move {
            StoreError::refuse_nul("key", &key)?;
            StoreError::refuse_nul("value", value.as_deref().unwrap_or_default())?;
            self.inner.write(move |writing| keep::set_value(writing, &thread, shelf, &key, value.as_deref(), fence)).await
        }
        .boxed()
    }

    fn values<'a>(
        &'a self,
        thread: &'a ThreadId,
        shelf: Shelf,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> Answer<'a, Vec<(String, Arc<str>)>> {
        let (thread, prefix, after) = (thread.clone(), prefix.to_owned(), after.map(str::to_owned));
        self.inner.read(move |connection, _| keep::values(connection, &thread, shelf, (&prefix, after.as_deref(), limit))).boxed()
    }

    fn keep_blob<'a>(&'a self, thread: &'a ThreadId, bytes: Bytes, fence: Option<u64>) -> Answer<'a, BlobId> {
        let thread = thread.clone();
        async move {
            let id = if bytes.len() < LARGE_BLOB {
                BlobId::of(&bytes)
            } else {
                let bytes = bytes.clone();
                let hashed = tokio::task::spawn_blocking(move || BlobId::of(&bytes)).await;
                hashed.map_err(|_| self.inner.database.broken("a piece of work"))?
            };
            self.inner
                .write(move |writing| {
                    keep::keep_blob(writing, &thread, &id, &bytes, fence)?;
                    Ok(id)
                })
                .await
        }
        .boxed()
    }

    fn blob<'a>(&'a self, thread: &'a ThreadId, id: &'a BlobId) -> Answer<'a, Option<Bytes>> {
        let (thread, id) = (thread.clone(), id.clone());
        self.inner.read(move |connection, _| keep::blob(connection, &thread, &id)).boxed()
    }

    fn change_files<'a>(&'a self, thread: &'a ThreadId, changes: Vec<FileChange>, fence: Option<u64>) -> Answer<'a, ()> {
        let thread = thread.clone();
        async move {
            let changes = changes.into_iter().map(keep::Change::of).collect::<Result<Vec<_>, _>>()?;
            self.inner.write(move |writing| keep::change_files(writing, &thread, &changes, fence)).await
        }
        .boxed()
    }

    fn file<'a>(&'a self, thread: &'a ThreadId, path: &'a str) -> Answer<'a, Option<FileEntry>> {
        let (thread, path) = (thread.clone(), path.to_owned());
        self.inner.read(move |connection, database| keep::file(connection, database, &thread, &path)).boxed()
    }

    fn files<'a>(&'a self, thread: &'a ThreadId, prefix: &'a str, after: Option<&'a str>, limit: usize) -> Answer<'a, Vec<FileEntry>> {
        let (thread, prefix, after) = (thread.clone(), prefix.to_owned(), after.map(str::to_owned));
        self.inner.read(move |connection, database| keep::files(connection, database, &thread, (&prefix, after.as_deref(), limit))).boxed()
    }

    fn copy<'a>(&'a self, from: &'a ThreadId, to: &'a ThreadId) -> Answer<'a, ()> {
        let (from, to) = (from.clone(), to.clone());
        self.inner.write(move |writing| keep::copy(writing, &from, &to)).boxed()
    }
}
