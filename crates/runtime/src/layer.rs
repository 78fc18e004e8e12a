//! Stores around stores: for faults in tests, for counting and logging.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use toolwright_core::{Record, Seq, ThreadId, Timestamp};

use crate::index::{PendingApproval, ThreadInfo};
use crate::store::{Answer, Append, Claim, DataStore, InboxItem, Page, Posted, Snapshot, Store, ThreadQuery};

/// A store that passes everything on to another one; whoever implements it overrides what shall be different.
///
/// ```
/// use std::sync::Arc;
/// use toolwright_runtime::{Answer, Append, Claim, MemoryStore, Store, StoreError, StoreLayer};
/// use toolwright_core::Seq;
///
/// /// A store whose disk is full.
/// struct Full(MemoryStore);
///
/// impl StoreLayer for Full {
///     fn inner(&self) -> &dyn Store {
///         &self.0
///     }
///
///     fn append<'a>(&'a self, _claim: &'a dyn Claim, _expected: Seq, _append: Append) -> Answer<'a, ()> {
///         Box::pin(async { Err(StoreError::failed("the disk is full")) })
///     }
/// }
/// ```
pub trait StoreLayer: Send + Sync + 'static {
    /// The store below.
    fn inner(&self) -> &dyn Store;

    /// As [`Store::claim`].
    fn claim<'a>(&'a self, thread: &'a ThreadId) -> Answer<'a, Box<dyn Claim>> {
        self.inner().claim(thread)
    }

    /// As [`Store::release`].
    fn release(&self, claim: Arc<dyn Claim>) -> BoxFuture<'_, ()> {
        self.inner().release(claim)
    }

    /// As [`Store::renew`].
    fn renew<'a>(&'a self, claim: &'a dyn Claim) -> Answer<'a, ()> {
        self.inner().renew(claim)
    }

    /// As [`Store::claim_limit`].
    fn claim_limit(&self) -> Duration {
        self.inner().claim_limit()
    }

    /// As [`Store::append`].
    fn append<'a>(&'a self, claim: &'a dyn Claim, expected: Seq, append: Append) -> Answer<'a, ()> {
        self.inner().append(claim, expected, append)
    }

    /// As [`Store::read`].
    fn read<'a>(&'a self, thread: &'a ThreadId, after: Seq, limit: usize) -> Answer<'a, Vec<Arc<Record>>> {
        self.inner().read(thread, after, limit)
    }

    /// As [`Store::read_at`].
    fn read_at<'a>(&'a self, thread: &'a ThreadId, positions: &'a [Seq]) -> Answer<'a, Vec<Arc<Record>>> {
        self.inner().read_at(thread, positions)
    }

    /// As [`Store::appended`].
    fn appended<'a>(&'a self, thread: &'a ThreadId, after: Seq) -> BoxFuture<'a, ()> {
        self.inner().appended(thread, after)
    }

    /// As [`Store::save_snapshot`].
    fn save_snapshot<'a>(&'a self, claim: &'a dyn Claim, snapshot: Snapshot) -> Answer<'a, ()> {
        self.inner().save_snapshot(claim, snapshot)
    }

    /// As [`Store::snapshot`].
    fn snapshot<'a>(&'a self, thread: &'a ThreadId) -> Answer<'a, Option<Snapshot>> {
        self.inner().snapshot(thread)
    }

    /// As [`Store::post`].
    fn post<'a>(&'a self, thread: &'a ThreadId, key: &'a str, item: InboxItem) -> Answer<'a, Posted> {
        self.inner().post(thread, key, item)
    }

    /// As [`Store::inbox`].
    fn inbox<'a>(&'a self, thread: &'a ThreadId, after: u64) -> Answer<'a, Vec<(u64, InboxItem)>> {
        self.inner().inbox(thread, after)
    }

    /// As [`Store::posted_through`].
    fn posted_through<'a>(&'a self, thread: &'a ThreadId) -> Answer<'a, u64> {
        self.inner().posted_through(thread)
    }

    /// As [`Store::posted`].
    fn posted<'a>(&'a self, thread: &'a ThreadId, after: u64) -> BoxFuture<'a, ()> {
        self.inner().posted(thread, after)
    }

    /// As [`Store::post_at`].
    fn post_at<'a>(&'a self, thread: &'a ThreadId, key: &'a str, at: Timestamp, item: InboxItem) -> Answer<'a, ()> {
        self.inner().post_at(thread, key, at, item)
    }

    /// As [`Store::cancel_timer`].
    fn cancel_timer<'a>(&'a self, thread: &'a ThreadId, key: &'a str) -> Answer<'a, bool> {
        self.inner().cancel_timer(thread, key)
    }

    /// As [`Store::post_due`].
    fn post_due(&self, now: Timestamp, limit: usize) -> Answer<'_, Vec<ThreadId>> {
        self.inner().post_due(now, limit)
    }

    /// As [`Store::info`].
    fn info<'a>(&'a self, thread: &'a ThreadId) -> Answer<'a, Option<ThreadInfo>> {
        self.inner().info(thread)
    }

    /// As [`Store::threads`].
    fn threads<'a>(&'a self, query: &'a ThreadQuery) -> Answer<'a, Page<ThreadInfo>> {
        self.inner().threads(query)
    }

    /// As [`Store::unfinished`].
    fn unfinished<'a>(&'a self, after: Option<&'a ThreadId>, limit: usize) -> Answer<'a, Vec<ThreadId>> {
        self.inner().unfinished(after, limit)
    }

    /// As [`Store::pending`].
    fn pending<'a>(&'a self, thread: Option<&'a ThreadId>, cursor: Option<&'a str>, limit: usize) -> Answer<'a, Page<PendingApproval>> {
        self.inner().pending(thread, cursor, limit)
    }

    /// As [`Store::delete`].
    fn delete<'a>(&'a self, claim: &'a dyn Claim) -> Answer<'a, ()> {
        self.inner().delete(claim)
    }

    /// As [`Store::data`].
    fn data(&self) -> &dyn DataStore {
        self.inner().data()
    }
}

/// A store that was chosen at run time is a store: what opens one by its address gives it so.
impl StoreLayer for Arc<dyn Store> {
    fn inner(&self) -> &dyn Store {
        &**self
    }
}

impl<L: StoreLayer> Store for L {
    fn claim<'a>(&'a self, thread: &'a ThreadId) -> Answer<'a, Box<dyn Claim>> {
        StoreLayer::claim(self, thread)
    }

    fn release(&self, claim: Arc<dyn Claim>) -> BoxFuture<'_, ()> {
        StoreLayer::release(self, claim)
    }

    fn renew<'a>(&'a self, claim: &'a dyn Claim) -> Answer<'a, ()> {
        StoreLayer::renew(self, claim)
    }

    fn claim_limit(&self) -> Duration {
        StoreLayer::claim_limit(self)
    }

    fn append<'a>(&'a self, claim: &'a dyn Claim, expected: Seq, append: Append) -> Answer<'a, ()> {
        StoreLayer::append(self, claim, expected, append)
    }

    fn read<'a>(&'a self, thread: &'a ThreadId, after: Seq, limit: usize) -> Answer<'a, Vec<Arc<Record>>> {
        StoreLayer::read(self, thread, after, limit)
    }

    fn read_at<'a>(&'a self, thread: &'a ThreadId, positions: &'a [Seq]) -> Answer<'a, Vec<Arc<Record>>> {
        StoreLayer::read_at(self, thread, positions)
    }

    fn appended<'a>(&'a self, thread: &'a ThreadId, after: Seq) -> BoxFuture<'a, ()> {
        StoreLayer::appended(self, thread, after)
    }

    fn save_snapshot<'a>(&'a self, claim: &'a dyn Claim, snapshot: Snapshot) -> Answer<'a, ()> {
        StoreLayer::save_snapshot(self, claim, snapshot)
    }

    fn snapshot<'a>(&'a self, thread: &'a ThreadId) -> Answer<'a, Option<Snapshot>> {
        StoreLayer::snapshot(self, thread)
    }

    fn post<'a>(&'a self, thread: &'a ThreadId, key: &'a str, item: InboxItem) -> Answer<'a, Posted> {
        StoreLayer::post(self, thread, key, item)
    }

    fn inbox<'a>(&'a self, thread: &'a ThreadId, after: u64) -> Answer<'a, Vec<(u64, InboxItem)>> {
        StoreLayer::inbox(self, thread, after)
    }

    fn posted_through<'a>(&'a self, thread: &'a ThreadId) -> Answer<'a, u64> {
        StoreLayer::posted_through(self, thread)
    }

    fn posted<'a>(&'a self, thread: &'a ThreadId, after: u64) -> BoxFuture<'a, ()> {
        StoreLayer::posted(self, thread, after)
    }

    fn post_at<'a>(&'a self, thread: &'a ThreadId, key: &'a str, at: Timestamp, item: InboxItem) -> Answer<'a, ()> {
        StoreLayer::post_at(self, thread, key, at, item)
    }

    fn cancel_timer<'a>(&'a self, thread: &'a ThreadId, key: &'a str) -> Answer<'a, bool> {
        StoreLayer::cancel_timer(self, thread, key)
    }

    fn post_due(&self, now: Timestamp, limit: usize) -> Answer<'_, Vec<ThreadId>> {
        StoreLayer::post_due(self, now, limit)
    }

    fn info<'a>(&'a self, thread: &'a ThreadId) -> Answer<'a, Option<ThreadInfo>> {
        StoreLayer::info(self, thread)
    }

    fn threads<'a>(&'a self, query: &'a ThreadQuery) -> Answer<'a, Page<ThreadInfo>> {
        StoreLayer::threads(self, query)
    }

    fn unfinished<'a>(&'a self, after: Option<&'a ThreadId>, limit: usize) -> Answer<'a, Vec<ThreadId>> {
        StoreLayer::unfinished(self, after, limit)
    }

    fn pending<'a>(&'a self, thread: Option<&'a ThreadId>, cursor: Option<&'a str>, limit: usize) -> Answer<'a, Page<PendingApproval>> {
        StoreLayer::pending(self, thread, cursor, limit)
    }

    fn delete<'a>(&'a self, claim: &'a dyn Claim) -> Answer<'a, ()> {
        StoreLayer::delete(self, claim)
    }

    fn data(&self) -> &dyn DataStore {
        StoreLayer::data(self)
    }
}
