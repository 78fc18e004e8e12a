//! Where journals live: one small trait.
//!
//! Whoever moves a thread claims it first; the claim's fencing number is checked at each append, so that an owner that was
//! thought dead can't write (invariant 9). Everyone else posts to the thread's inbox, from which the owner journals.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use toolwright_core::{AbortReason, ApprovalId, CallId, Decision, Record, Seq, ThreadId};

/// The right to move a thread. Dropping it, or the death of its process, gives the thread free.
pub trait Claim: Send + Sync {
    /// The thread.
    fn thread(&self) -> &ThreadId;

    /// Greater than that of every earlier claim.
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
    /// The run shall stop.
    Cancel {
        /// Why.
        reason: AbortReason,
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
            Self::Fenced { .. } | Self::Conflict { .. } | Self::Failed { .. } => "TOOLWRIGHT_STORAGE_FAILED",
        }
    }
}

/// A store of journals.
pub trait Store: Send + Sync + 'static {
    /// Claims a thread, which need not exist yet.
    fn claim<'a>(&'a self, thread: &'a ThreadId) -> BoxFuture<'a, Result<Box<dyn Claim>, StoreError>>;

    /// Appends records after `expected`, durably once this returns. `inbox_through` marks what was posted up to there as
    /// taken, in the same write.
    fn append<'a>(
        &'a self,
        claim: &'a dyn Claim,
        expected: Seq,
        records: Vec<Arc<Record>>,
        inbox_through: u64,
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// The records after `after`, in order; at most `limit`.
    fn read<'a>(&'a self, thread: &'a ThreadId, after: Seq, limit: usize) -> BoxFuture<'a, Result<Vec<Arc<Record>>, StoreError>>;

    /// Posts to a thread's inbox. Only the first item of a key is kept.
    fn post<'a>(&'a self, thread: &'a ThreadId, key: &'a str, item: InboxItem) -> BoxFuture<'a, Result<Posted, StoreError>>;

    /// What was posted and not yet taken, with positions.
    fn inbox<'a>(&'a self, thread: &'a ThreadId, after: u64) -> BoxFuture<'a, Result<Vec<(u64, InboxItem)>, StoreError>>;

    /// Returns when something was posted for the thread since the last return, at once if that already happened.
    fn posted<'a>(&'a self, thread: &'a ThreadId, after: u64) -> BoxFuture<'a, ()>;

    /// Every thread, in the order of their first record.
    fn threads(&self) -> BoxFuture<'_, Result<Vec<ThreadId>, StoreError>>;
}
