//! Where journals live, and what a thread keeps beside its journal: two small traits.
//!
//! Whoever moves a thread claims it first; the claim's fencing number is checked at each append, so that an owner that was
//! thought dead can't write (invariant 9). Everyone else posts to the thread's inbox, from which the owner journals.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use toolwright_core::policy::PermissionMode;
use toolwright_core::{
    AbortReason, ApprovalId, CallId, Decision, InputId, InputMode, Message, Record, RunId, Seq, ThreadId, Timestamp, cut,
};

pub use toolwright_core::{BlobId, FileChange, FileEntry};

use crate::index::{IndexChange, PendingApproval, ThreadInfo, ThreadStatus};

/// How long an owner may give no sign of life before another may take its place, where a store is not told otherwise.
pub const CLAIM_LIMIT: Duration = Duration::from_secs(30);

/// The right to move a thread. Dropping it, or the death of its process, gives the thread free.
pub trait Claim: Send + Sync {
    /// The thread.
    fn thread(&self) -> &ThreadId;

    /// Greater than that of every earlier claim on the thread, also of those before it was deleted.
    fn fence(&self) -> u64;
}

/// Something posted for a thread's owner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum InboxItem {
    /// A decision on a waiting call, bound to the arguments that were shown.
    Decision {
        /// The decision's id.
        approval: ApprovalId,
        /// The call.
        call: CallId,
        /// Hash of the arguments it is about.
        sha256: Arc<str>,
        /// What was decided.
        decision: Decision,
    },
    /// Others shall decide about a waiting call.
    Delegate {
        /// The decision's id.
        approval: ApprovalId,
        /// The call.
        call: CallId,
        /// Who may decide.
        to: Vec<String>,
        /// Who hands it on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        /// What they say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// Deciders shall be reminded that a call waits.
    Remind {
        /// The decision's id.
        approval: ApprovalId,
        /// The call.
        call: CallId,
        /// How often, this time included.
        times: u32,
    },
    /// The run shall stop.
    Cancel {
        /// Why.
        reason: AbortReason,
        /// The run that is meant; absent, whatever run is active.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run: Option<RunId>,
    },
    /// The thread's permission mode shall be another one.
    Mode {
        /// The mode where the thread has had none of its own: the agent's.
        from: PermissionMode,
        /// The mode from then on.
        to: PermissionMode,
    },
    /// New input for the run that is active, or for the next one.
    Input {
        /// Its id.
        id: InputId,
        /// How it joins.
        mode: InputMode,
        /// The messages, which hold neither calls nor results.
        messages: Vec<Arc<Message>>,
        /// The run it is for: where that one ends without taking it, it goes back to the sender. Absent, it waits for the
        /// next run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        only: Option<RunId>,
    },
}

/// What became of something posted under a unique key.
#[derive(Clone, Debug, PartialEq)]
pub enum Posted {
    /// It was the first.
    First,
    /// Another came first: this one.
    Late(Box<InboxItem>),
}

/// Why a store did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Somebody else moves the thread.
    #[error("the thread {thread} is being moved by another owner; wait for its run to end, or cancel it")]
    Busy {
        /// The thread.
        thread: ThreadId,
    },
    /// A later claim took over.
    #[error("the claim on the thread {thread} was lost to a later owner")]
    Fenced {
        /// The thread.
        thread: ThreadId,
    },
    /// The journal does not end where the writer thinks.
    #[error("the journal of the thread {thread} ends at {actual}, not at {expected}")]
    Conflict {
        /// The thread.
        thread: ThreadId,
        /// Where the writer thought it ends.
        expected: Seq,
        /// Where it ends.
        actual: Seq,
    },
    /// A page was asked for with a cursor that no page gave.
    #[error("{cursor:?} is no cursor of a page; use the `next` of the page before")]
    Cursor {
        /// What was given.
        cursor: String,
    },
    /// What a store was to be opened with can't be used.
    #[error("{message}")]
    Invalid {
        /// One sentence, and what to do.
        message: String,
    },
    /// The store itself failed.
    #[error("the store failed: {message}")]
    Failed {
        /// One sentence.
        message: String,
    },
}

impl StoreError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Busy { .. } => "TOOLWRIGHT_SESSION_BUSY",
            Self::Cursor { .. } | Self::Invalid { .. } => "TOOLWRIGHT_CONFIG_INVALID",
            Self::Fenced { .. } | Self::Conflict { .. } | Self::Failed { .. } => "TOOLWRIGHT_STORAGE_FAILED",
        }
    }

    /// Refuses text that no store keeps, because one can't: a key, a path or a value with U+0000.
    pub fn refuse_nul(what: &str, text: &str) -> Result<(), Self> {
        if text.contains('\0') {
            return Err(Self::failed(format!(
                "the {what} {:?} has the character U+0000, which no store keeps; leave it out",
                cut(text, 80)
            )));
        }
        Ok(())
    }

    /// Something a store can't be opened with, in one sentence that says what to do.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid { message: message.into() }
    }

    /// A failure of the store itself, in one sentence.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed { message: message.into() }
    }
}

/// What a store answers, later.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// What one append writes, all of it or nothing.
#[derive(Clone, Debug, Default)]
pub struct Append {
    /// The records, in order. May be empty, where only the inbox moves on.
    pub records: Vec<Arc<Record>>,
    /// Everything posted up to here is taken: it was journaled by these records, or changes nothing. What was taken before
    /// stays so.
    pub inbox_through: u64,
}

impl Append {
    /// Records, with the inbox where it was.
    pub fn records(records: Vec<Arc<Record>>) -> Self {
        Self { records, inbox_through: 0 }
    }

    /// What the records change in the store's index.
    pub fn index(&self) -> IndexChange {
        IndexChange::of(&self.records)
    }
}

/// A fold that was saved, so that a long thread need not be read from its beginning. It is a cache: a store may lose it, and
/// one that can't be read is passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The position of the last record in it.
    pub at: Seq,
    /// The fold, as [`toolwright_core::Thread::save`] writes it.
    pub text: Arc<str>,
}

/// A page of a listing.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T> {
    /// What is on it.
    pub items: Vec<T>,
    /// The cursor of the page after; absent on the last one.
    pub next: Option<String>,
}

impl<T> Page<T> {
    /// Of what was found in its order, of which one more than `limit` was looked for: that one tells that there is a next page.
    pub fn of(mut found: Vec<T>, limit: usize, cursor: impl Fn(&T) -> String) -> Self {
        let more = found.len() > limit;
        found.truncate(limit);
        let next = found.last().filter(|_| more).map(cursor);
        Self { items: found, next }
    }
}

/// What a cursor says: a moment in milliseconds and an id, as [`ThreadInfo::cursor`] and [`PendingApproval::cursor`] write them.
///
/// # Errors
///
/// [`StoreError::Cursor`] for what no page gave.
pub fn read_cursor(cursor: &str) -> Result<(i64, &str), StoreError> {
    let parsed = cursor.split_once(':').and_then(|(at, id)| Some((at.parse().ok()?, id)));
    parsed.filter(|(_, id)| !id.contains('\0')).ok_or_else(|| StoreError::Cursor { cursor: cursor.to_owned() })
}

impl<T> Default for Page<T> {
    fn default() -> Self {
        Self { items: Vec::new(), next: None }
    }
}

/// Which threads are listed: those that fit all that is given, the last changed first, those of one moment by their ids backwards.
///
/// Pages that follow each other list what does not change meanwhile once each.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadQuery {
    /// In this state.
    pub status: Option<ThreadStatus>,
    /// Opened with this agent.
    pub agent: Option<String>,
    /// Children of this thread.
    pub parent: Option<ThreadId>,
    /// With this text in the id or the title, as it stands but for upper and lower case: each is compared as
    /// [`str::to_lowercase`] gives it.
    pub text: Option<String>,
    /// Last changed before this moment.
    pub changed_before: Option<Timestamp>,
    /// How many at most on a page.
    pub limit: usize,
    /// From where; the `next` of the page before.
    pub cursor: Option<String>,
}

impl Default for ThreadQuery {
    fn default() -> Self {
        Self { status: None, agent: None, parent: None, text: None, changed_before: None, limit: 100, cursor: None }
    }
}

/// A store of journals.
///
/// Every promise here is tested by the behaviour suite of the crate `toolwright-store`, over each store. What holds for all of it:
///
/// - Records, items, snapshots, values and entries come back as they were given: records byte for byte as JSON, with their keys in
///   order and numbers digit for digit.
/// - Ids, keys and paths are compared byte by byte: `a` is not `A`. That is also the order in which they are listed.
/// - Keys, paths and values may be any text without U+0000. A write with one that has it is refused with [`StoreError::Failed`]
///   ([`StoreError::refuse_nul`]); a read finds nothing.
/// - Positions, moments and limits may be the greatest of their type. A limit of 0 gives nothing.
/// - An answer that was dropped before it came may or may not have been done; never a part of it.
pub trait Store: Send + Sync + 'static {
    /// Claims a thread, which need not exist yet. `Busy` if it is claimed, unless its owner has given no sign of life for
    /// longer than [`Store::claim_limit`]: then the owner's place is taken.
    ///
    /// The owner is not judged by a clock that may jump: whoever takes over has seen the owner silent.
    fn claim<'a>(&'a self, thread: &'a ThreadId) -> Answer<'a, Box<dyn Claim>>;

    /// Gives a thread free and waits until everybody can see it: who hears of a run's end may claim the thread at once, from
    /// another process too. Dropping a claim gives it free as well, a moment later where the store is far away.
    fn release(&self, claim: Arc<dyn Claim>) -> BoxFuture<'_, ()> {
        drop(claim);
        Box::pin(std::future::ready(()))
    }

    /// A sign of life of an owner, also a check: `Fenced` if the claim is lost. An append is one too.
    fn renew<'a>(&'a self, claim: &'a dyn Claim) -> Answer<'a, ()>;

    /// How long an owner may give no sign of life.
    fn claim_limit(&self) -> Duration;

    /// Appends after `expected`, durably once this returns, together with the index and what is taken from the inbox.
    /// `Fenced` if the claim is lost, else `Conflict` if the journal ends elsewhere; then nothing is written.
    fn append<'a>(&'a self, claim: &'a dyn Claim, expected: Seq, append: Append) -> Answer<'a, ()>;

    /// The records after `after`, in order; at most `limit`.
    fn read<'a>(&'a self, thread: &'a ThreadId, after: Seq, limit: usize) -> Answer<'a, Vec<Arc<Record>>>;

    /// The records at these positions, which ascend. Positions that the journal does not have are left out.
    fn read_at<'a>(&'a self, thread: &'a ThreadId, positions: &'a [Seq]) -> Answer<'a, Vec<Arc<Record>>>;

    /// Returns when the journal goes on beyond `after`, at once if it does, whoever appended. May return early: whoever
    /// waits looks again, and waits again. Over a deletion the wait goes on for the thread that comes to be under the id.
    fn appended<'a>(&'a self, thread: &'a ThreadId, after: Seq) -> BoxFuture<'a, ()>;

    /// Saves a snapshot in place of the one before. `Fenced` if the claim is lost.
    fn save_snapshot<'a>(&'a self, claim: &'a dyn Claim, snapshot: Snapshot) -> Answer<'a, ()>;

    /// The last snapshot, if there is one.
    fn snapshot<'a>(&'a self, thread: &'a ThreadId) -> Answer<'a, Option<Snapshot>>;

    /// Posts to a thread's inbox, durably. Only the first item of a key is kept, for as long as the thread exists, also once it
    /// was taken. The thread need not have a journal.
    fn post<'a>(&'a self, thread: &'a ThreadId, key: &'a str, item: InboxItem) -> Answer<'a, Posted>;

    /// What was posted after the position `after` and not yet taken, with positions, which ascend and are never used twice while
    /// the thread exists. They begin above 0 and may have gaps. Nothing is posted below a position that was seen: whoever asks
    /// for what comes after the last one misses nothing, however many post at once.
    fn inbox<'a>(&'a self, thread: &'a ThreadId, after: u64) -> Answer<'a, Vec<(u64, InboxItem)>>;

    /// The position of the last item that was posted for the thread, taken or not; 0 if none was.
    fn posted_through<'a>(&'a self, thread: &'a ThreadId) -> Answer<'a, u64>;

    /// Returns when something was posted for the thread after the position `after`, at once if that already happened,
    /// whoever posted it and whether or not it was taken. May return early, as [`Store::appended`].
    fn posted<'a>(&'a self, thread: &'a ThreadId, after: u64) -> BoxFuture<'a, ()>;

    /// A timer: posts the item once its moment has come and somebody calls [`Store::post_due`]. One of the same thread and key
    /// is replaced while it has not been posted.
    fn post_at<'a>(&'a self, thread: &'a ThreadId, key: &'a str, at: Timestamp, item: InboxItem) -> Answer<'a, ()>;

    /// Takes a timer back. Gives whether it was still there.
    fn cancel_timer<'a>(&'a self, thread: &'a ThreadId, key: &'a str) -> Answer<'a, bool>;

    /// Posts what is due at `now` or before, each timer once whoever calls; at most `limit` of them, the earliest first, those of
    /// one moment by thread and key. Gives the thread of each in this order, also of one whose key was posted before: that
    /// timer is over, and posts nothing.
    fn post_due(&self, now: Timestamp, limit: usize) -> Answer<'_, Vec<ThreadId>>;

    /// What the index says of a thread; `None` if it has no journal.
    fn info<'a>(&'a self, thread: &'a ThreadId) -> Answer<'a, Option<ThreadInfo>>;

    /// A page of threads. Those without a journal are not listed.
    fn threads<'a>(&'a self, query: &'a ThreadQuery) -> Answer<'a, Page<ThreadInfo>>;

    /// Threads that may have something to do though nobody need be moving them: a run that has not ended, or something in
    /// the inbox, with or without a journal. In the order of their ids, after `after`.
    fn unfinished<'a>(&'a self, after: Option<&'a ThreadId>, limit: usize) -> Answer<'a, Vec<ThreadId>>;

    /// A page of pending decisions, oldest first, those of one moment by their ids; of one thread, where one is given.
    fn pending<'a>(&'a self, thread: Option<&'a ThreadId>, cursor: Option<&'a str>, limit: usize) -> Answer<'a, Page<PendingApproval>>;

    /// Deletes a thread with everything it has, timers and keys of its inbox too, but for its fencing number. A thread of this id
    /// then begins anew, under this claim or a later one. `Fenced` if the claim is lost.
    fn delete<'a>(&'a self, claim: &'a dyn Claim) -> Answer<'a, ()>;

    /// What threads keep beside their journals.
    fn data(&self) -> &dyn DataStore;
}

/// Which of a thread's keyed values are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shelf {
    /// What tools and the application keep.
    Values,
    /// The thread's environment.
    Environment,
}

impl Shelf {
    /// Its name in a store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Values => "values",
            Self::Environment => "environment",
        }
    }
}

/// What threads keep beside their journals: keyed values, environment, files, and the content these and results refer to.
///
/// `fence`, where it is given, is that of the claim under which a body writes; `Fenced` if it is lost, and nothing is written.
/// Order, odd text and limits are as [`Store`] has them. A thread need not have a journal.
pub trait DataStore: Send + Sync {
    /// One value, as JSON text.
    fn value<'a>(&'a self, thread: &'a ThreadId, shelf: Shelf, key: &'a str) -> Answer<'a, Option<Arc<str>>>;

    /// Sets a value, or removes it with `None`. Durable once this returns.
    fn set_value<'a>(
        &'a self,
        thread: &'a ThreadId,
        shelf: Shelf,
        key: &'a str,
        value: Option<Arc<str>>,
        fence: Option<u64>,
    ) -> Answer<'a, ()>;

    /// The values whose keys begin with `prefix`, by key, after `after`; at most `limit`.
    fn values<'a>(
        &'a self,
        thread: &'a ThreadId,
        shelf: Shelf,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> Answer<'a, Vec<(String, Arc<str>)>>;

    /// Keeps content for a thread, once however often it is given. It stays for as long as some thread that keeps it exists;
    /// files that no longer refer to it change nothing in that.
    fn keep_blob<'a>(&'a self, thread: &'a ThreadId, bytes: Bytes, fence: Option<u64>) -> Answer<'a, BlobId>;

    /// Content that a thread keeps; `None` if it does not.
    fn blob<'a>(&'a self, thread: &'a ThreadId, id: &'a BlobId) -> Answer<'a, Option<Bytes>>;

    /// Changes a thread's files one after the other, all of it or nothing. Content comes first, with [`DataStore::keep_blob`]; an
    /// entry whose content the thread does not keep is refused with [`StoreError::Failed`].
    fn change_files<'a>(&'a self, thread: &'a ThreadId, changes: Vec<FileChange>, fence: Option<u64>) -> Answer<'a, ()>;

    /// The entry of a path.
    fn file<'a>(&'a self, thread: &'a ThreadId, path: &'a str) -> Answer<'a, Option<FileEntry>>;

    /// The entries whose paths begin with `prefix`, by path in byte order, after `after`; at most `limit`.
    fn files<'a>(&'a self, thread: &'a ThreadId, prefix: &'a str, after: Option<&'a str>, limit: usize) -> Answer<'a, Vec<FileEntry>>;

    /// Gives `to` everything `from` keeps, as it is at one moment: values, environment, files and content, nothing else. `to` has
    /// none of it before, and goes its own way after.
    fn copy<'a>(&'a self, from: &'a ThreadId, to: &'a ThreadId) -> Answer<'a, ()>;
}
