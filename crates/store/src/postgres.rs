//! PostgreSQL: a server that several machines share.
//!
//! ```no_run
//! # async fn example() -> Result<(), toolwright_runtime::StoreError> {
//! let store = toolwright_store::postgres::Postgres::connect("postgres://user:password@db.example/app").await?;
//! # Ok(())
//! # }
//! ```
//!
//! Everything is in one schema, `toolwright` by default. Where to look: `schema_1.sql` has the tables and the functions in which
//! each operation is one statement; `session.rs` the rule by which it is tried again when a connection is lost; `claims.rs` who
//! may move a thread; `wakes.rs` how a process hears of what another wrote.

mod address;
mod claims;
mod inbox;
mod journal;
mod kept;
mod listing;
mod schema;
mod session;
mod text;
mod wakes;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use toolwright_core::{Record, Seq, ThreadId, Timestamp};
use toolwright_runtime::{
    Answer, Append, BlobId, CLAIM_LIMIT, Claim, DataStore, FileChange, FileEntry, InboxItem, Page, PendingApproval, Posted, Shelf,
    Snapshot, Store, StoreError, ThreadInfo, ThreadQuery,
};

use self::address::Address;
use self::claims::Claims;
use self::session::{Pool, Server};
use self::wakes::{Event, Wakes};

/// How long an operation may be without an answer of the server, where a store is not told otherwise.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// How many sessions a process has at most for its operations, where a store is not told otherwise. Two more are for its claims
/// and for listening.
pub const POOL_SIZE: usize = 10;

/// The schema, where a store is not told otherwise.
pub const SCHEMA: &str = "toolwright";

/// The longest name of a schema, in bytes: PostgreSQL would cut it off without a word.
const LONGEST_SCHEMA: usize = 63;

/// How a store over PostgreSQL is opened.
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    schema: String,
    claim_limit: Duration,
    pool_size: usize,
    patience: Duration,
}

impl Default for Builder {
    fn default() -> Self {
        Self { schema: SCHEMA.to_owned(), claim_limit: CLAIM_LIMIT, pool_size: POOL_SIZE, patience: PATIENCE }
    }
}

impl Builder {
    /// The schema that has everything. It is made where it is not there; one that holds anything else is refused.
    pub fn schema(mut self, name: impl Into<String>) -> Self {
        self.schema = name.into();
        self
    }

    /// How long an owner may give no sign of life. The same for every process that shares the store; owners renew their claims at
    /// least four times as often.
    pub fn claim_limit(mut self, limit: Duration) -> Self {
        self.claim_limit = limit;
        self
    }

    /// How many sessions the process has at most for its operations; at least one.
    pub fn pool_size(mut self, size: usize) -> Self {
        self.pool_size = size;
        self
    }

    /// How long an operation may be without an answer of the server before it fails; work that touches much at once, such as
    /// deleting a thread, six times as long. Meanwhile lost connections are opened again.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Opens the store. The address is `postgres://user:password@host:port/database`, with options after `?`: `host=` with the
    /// folder of a Unix socket, `sslmode=disable|prefer|require`, `sslrootcert=` with a file of certificates in PEM form. With
    /// `require` the server's certificate is checked.
    ///
    /// Where the schema is missing or older it is brought up to date; one of a newer version is refused, and one that holds
    /// anything else, untouched (as sdk-runtime STO-4 has it for SQLite).
    pub async fn connect(self, url: &str) -> Result<Postgres, StoreError> {
        if self.schema.is_empty() || self.schema.len() > LONGEST_SCHEMA || self.schema.contains('\0') {
            let say = format!("{:?} can't be the name of a schema; use 1 to {LONGEST_SCHEMA} bytes without U+0000", self.schema);
            return Err(StoreError::invalid(say));
        }
        let address = Address::parse(url, self.patience)?;
        let server = Server { address, schema: self.schema, patience: self.patience };
        schema::open(&server).await?;
        let shared = Shared {
            pool: Arc::new(Pool::new(server, self.pool_size)),
            claims: Arc::new(Claims::new(self.claim_limit)),
            wakes: Wakes::default(),
        };
        Ok(Postgres { shared: Arc::new(shared) })
    }
}

/// Threads on a PostgreSQL server. Clones share the connections.
#[derive(Clone)]
pub struct Postgres {
    shared: Arc<Shared>,
}

struct Shared {
    pool: Arc<Pool>,
    claims: Arc<Claims>,
    wakes: Wakes,
}

impl std::fmt::Debug for Postgres {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Postgres").field(&self.shared.pool.server.address.name).finish()
    }
}

impl Postgres {
    /// Opens the store as it is by default; see [`Builder::connect`].
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::builder().connect(url).await
    }

    /// Options.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Frees the claims of this process and ends its connections. Whatever is asked of the store afterwards fails.
    pub async fn close(&self) {
        self.shared.pool.close();
        self.shared.claims.close().await;
        self.shared.wakes.close().await;
    }

    fn pool(&self) -> &Pool {
        &self.shared.pool
    }

    /// Waits until `event` stands beyond `after`. Returns early if that can't be found out: whoever waits looks again, and is
    /// told what is wrong.
    async fn beyond(&self, event: Event, thread: &ThreadId, after: u64) {
        loop {
            let ticket = self.shared.wakes.register(event, thread, after);
            if self.shared.wakes.listen(self.pool()).await.is_err() {
                return;
            }
            let at = match event {
                Event::Appended => journal::head(self.pool(), thread).await,
                Event::Posted => inbox::last(self.pool(), thread).await,
            };
            match at {
                Ok(at) if at <= after => ticket.woken().await,
                _ => return,
            }
        }
    }
}

impl Store for Postgres {
    fn claim<'a>(&'a self, thread: &'a ThreadId) -> Answer<'a, Box<dyn Claim>> {
        self.shared.claims.claim(&self.shared.pool, thread).boxed()
    }

    fn release(&self, claim: Arc<dyn Claim>) -> BoxFuture<'_, ()> {
        drop(claim);
        self.shared.claims.settled().boxed()
    }

    fn renew<'a>(&'a self, claim: &'a dyn Claim) -> Answer<'a, ()> {
        journal::renew(self.pool(), claim).boxed()
    }

    fn claim_limit(&self) -> Duration {
        self.shared.claims.limit()
    }

    fn append<'a>(&'a self, claim: &'a dyn Claim, expected: Seq, append: Append) -> Answer<'a, ()> {
        journal::append(self.pool(), claim, expected, append).boxed()
    }

    fn read<'a>(&'a self, thread: &'a ThreadId, after: Seq, limit: usize) -> Answer<'a, Vec<Arc<Record>>> {
        journal::read_after(self.pool(), thread, after, limit).boxed()
    }

    fn read_at<'a>(&'a self, thread: &'a ThreadId, positions: &'a [Seq]) -> Answer<'a, Vec<Arc<Record>>> {
        journal::read_at(self.pool(), thread, positions).boxed()
    }

    fn appended<'a>(&'a self, thread: &'a ThreadId, after: Seq) -> BoxFuture<'a, ()> {
        self.beyond(Event::Appended, thread, after.0).boxed()
    }

    fn save_snapshot<'a>(&'a self, claim: &'a dyn Claim, snapshot: Snapshot) -> Answer<'a, ()> {
        journal::save_snapshot(self.pool(), claim, snapshot).boxed()
    }

    fn snapshot<'a>(&'a self, thread: &'a ThreadId) -> Answer<'a, Option<Snapshot>> {
        journal::snapshot(self.pool(), thread).boxed()
    }

    fn post<'a>(&'a self, thread: &'a ThreadId, key: &'a str, item: InboxItem) -> Answer<'a, Posted> {
        async move { inbox::post(self.pool(), thread, key, &item).await }.boxed()
    }

    fn inbox<'a>(&'a self, thread: &'a ThreadId, after: u64) -> Answer<'a, Vec<(u64, InboxItem)>> {
        inbox::inbox(self.pool(), thread, after).boxed()
    }

    fn posted_through<'a>(&'a self, thread: &'a ThreadId) -> Answer<'a, u64> {
        inbox::last(self.pool(), thread).boxed()
    }

    fn posted<'a>(&'a self, thread: &'a ThreadId, after: u64) -> BoxFuture<'a, ()> {
        self.beyond(Event::Posted, thread, after).boxed()
    }

    fn post_at<'a>(&'a self, thread: &'a ThreadId, key: &'a str, at: Timestamp, item: InboxItem) -> Answer<'a, ()> {
        async move { inbox::post_at(self.pool(), thread, key, at, &item).await }.boxed()
    }

    fn cancel_timer<'a>(&'a self, thread: &'a ThreadId, key: &'a str) -> Answer<'a, bool> {
        inbox::cancel_timer(self.pool(), thread, key).boxed()
    }

    fn post_due(&self, now: Timestamp, limit: usize) -> Answer<'_, Vec<ThreadId>> {
        inbox::post_due(self.pool(), now, limit).boxed()
    }

    fn info<'a>(&'a self, thread: &'a ThreadId) -> Answer<'a, Option<ThreadInfo>> {
        listing::info(self.pool(), thread).boxed()
    }

    fn threads<'a>(&'a self, query: &'a ThreadQuery) -> Answer<'a, Page<ThreadInfo>> {
        listing::threads(self.pool(), query).boxed()
    }

    fn unfinished<'a>(&'a self, after: Option<&'a ThreadId>, limit: usize) -> Answer<'a, Vec<ThreadId>> {
        listing::unfinished(self.pool(), after, limit).boxed()
    }

    fn pending<'a>(&'a self, thread: Option<&'a ThreadId>, cursor: Option<&'a str>, limit: usize) -> Answer<'a, Page<PendingApproval>> {
        listing::pending(self.pool(), thread, cursor, limit).boxed()
    }

    fn delete<'a>(&'a self, claim: &'a dyn Claim) -> Answer<'a, ()> {
        journal::delete(self.pool(), claim).boxed()
    }

    fn data(&self) -> &dyn DataStore {
        self
    }
}

impl DataStore for Postgres {
    fn value<'a>(&'a self, thread: &'a ThreadId, shelf: Shelf, key: &'a str) -> Answer<'a, Option<Arc<str>>> {
        kept::value(self.pool(), thread, shelf, key).boxed()
    }

    fn set_value<'a>(
        &'a self,
        thread: &'a ThreadId,
        shelf: Shelf,
        key: &'a str,
        value: Option<Arc<str>>,
        fence: Option<u64>,
    ) -> Answer<'a, ()> {
        kept::set_value(self.pool(), thread, shelf, key, value, fence).boxed()
    }

    fn values<'a>(
        &'a self,
        thread: &'a ThreadId,
        shelf: Shelf,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> Answer<'a, Vec<(String, Arc<str>)>> {
        kept::values(self.pool(), thread, shelf, prefix, after, limit).boxed()
    }

    fn keep_blob<'a>(&'a self, thread: &'a ThreadId, bytes: Bytes, fence: Option<u64>) -> Answer<'a, BlobId> {
        async move { kept::keep_blob(self.pool(), thread, &bytes, fence).await }.boxed()
    }

    fn blob<'a>(&'a self, thread: &'a ThreadId, id: &'a BlobId) -> Answer<'a, Option<Bytes>> {
        kept::blob(self.pool(), thread, id).boxed()
    }

    fn change_files<'a>(&'a self, thread: &'a ThreadId, changes: Vec<FileChange>, fence: Option<u64>) -> Answer<'a, ()> {
        async move { kept::change_files(self.pool(), thread, &changes, fence).await }.boxed()
    }

    fn file<'a>(&'a self, thread: &'a ThreadId, path: &'a str) -> Answer<'a, Option<FileEntry>> {
        kept::file(self.pool(), thread, path).boxed()
    }

    fn files<'a>(&'a self, thread: &'a ThreadId, prefix: &'a str, after: Option<&'a str>, limit: usize) -> Answer<'a, Vec<FileEntry>> {
        kept::files(self.pool(), thread, prefix, after, limit).boxed()
    }

    fn copy<'a>(&'a self, from: &'a ThreadId, to: &'a ThreadId) -> Answer<'a, ()> {
        kept::copy(self.pool(), from, to).boxed()
    }
}
