//! What a thread keeps beside its journal, over a store: its values and files.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use toolwright_core::redact::Redactor;
use toolwright_core::{BlobId, FileChange, FileEntry, ThreadId, Timestamp};
use toolwright_tool::{EnvSource, Keep, KeepLimits, Kept, ThreadFiles, ThreadValues, ToolError, Tree};

use crate::agent::AgentInner;
use crate::clock::Clock;
use crate::dispatch::taint::Marked;
use crate::environment::RunEnvironment;
use crate::error::AgentError;
use crate::store::{Answer, Shelf, Store, StoreError};
use crate::thread::ThreadHandle;

/// A thread's keep. With a fence, what is written under it is refused once its claim is lost.
struct StoreKeep {
    store: Arc<dyn Store>,
    thread: ThreadId,
    fence: Option<u64>,
    clock: Arc<dyn Clock>,
    limits: KeepLimits,
    tree: Arc<tokio::sync::Mutex<Tree>>,
}

/// What a thread keeps, under the claim of that fencing number where one is given.
pub(crate) fn keep_of(inner: &AgentInner, thread: &ThreadId, fence: Option<u64>) -> Arc<dyn Keep> {
    Arc::new(StoreKeep {
        store: Arc::clone(&inner.store),
        thread: thread.clone(),
        fence,
        clock: Arc::clone(&inner.clock),
        limits: inner.keep_limits,
        tree: inner.trees.of(thread),
    })
}

/// Why a store did not, for whoever called a tool.
fn told(error: &StoreError) -> ToolError {
    match error {
        StoreError::Fenced { .. } => {
            ToolError::new("another owner moves the thread by now, so nothing was written").named("ClaimLostError")
        }
        error => ToolError::new(error.to_string()).named("StorageError"),
    }
}

fn answered<'a, T: Send + 'a>(answer: Answer<'a, T>) -> Kept<'a, T> {
    answer.map(|answer| answer.map_err(|error| told(&error))).boxed()
}

impl Keep for StoreKeep {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn limits(&self) -> KeepLimits {
        self.limits
    }

    fn tree(&self) -> &tokio::sync::Mutex<Tree> {
        &self.tree
    }

    fn value<'a>(&'a self, key: &'a str) -> Kept<'a, Option<Arc<str>>> {
        answered(self.store.data().value(&self.thread, Shelf::Values, key))
    }

    fn set_value<'a>(&'a self, key: &'a str, value: Option<Arc<str>>) -> Kept<'a, ()> {
        answered(self.store.data().set_value(&self.thread, Shelf::Values, key, value, self.fence))
    }

    fn values<'a>(&'a self, prefix: &'a str, after: Option<&'a str>, limit: usize) -> Kept<'a, Vec<(String, Arc<str>)>> {
        answered(self.store.data().values(&self.thread, Shelf::Values, prefix, after, limit))
    }

    fn keep_blob(&self, bytes: Bytes) -> Kept<'_, BlobId> {
        answered(self.store.data().keep_blob(&self.thread, bytes, self.fence))
    }

    fn blob<'a>(&'a self, id: &'a BlobId) -> Kept<'a, Option<Bytes>> {
        answered(self.store.data().blob(&self.thread, id))
    }

    fn change_files(&self, changes: Vec<FileChange>) -> Kept<'_, ()> {
        answered(self.store.data().change_files(&self.thread, changes, self.fence))
    }

    fn file<'a>(&'a self, path: &'a str) -> Kept<'a, Option<FileEntry>> {
        answered(self.store.data().file(&self.thread, path))
    }

    fn files<'a>(&'a self, prefix: &'a str, after: Option<&'a str>, limit: usize) -> Kept<'a, Vec<FileEntry>> {
        answered(self.store.data().files(&self.thread, prefix, after, limit))
    }
}

/// What a run has beside its journal.
#[derive(Clone)]
pub(crate) struct Beside {
    pub(crate) keep: Arc<dyn Keep>,
    pub(crate) env: Arc<dyn EnvSource>,
    /// What takes the run's secrets out; `None` where there are none.
    pub(crate) redactor: Option<Arc<Redactor>>,
    /// Which results are marked, for calls that repeat their text.
    pub(crate) marked: Marked,
}

impl Beside {
    /// Of a run that begins now, under the claim of that fencing number.
    pub(crate) async fn of_run(inner: &AgentInner, thread: &ThreadId, fence: u64) -> Result<Self, AgentError> {
        let RunEnvironment { env, redactor } = inner.environment.of_run(&*inner.store, thread).await?;
        Ok(Self { keep: keep_of(inner, thread, Some(fence)), env, redactor, marked: Marked::default() })
    }
}

impl ThreadHandle {
    /// The thread's keyed values: those that its tools have with `cx.values()`.
    pub fn values(&self) -> Result<ThreadValues, AgentError> {
        Ok(ThreadValues::new(keep_of(&self.inner, self.id()?, None)))
    }

    /// The thread's files: those that its tools have with `cx.files()`.
    pub fn files(&self) -> Result<ThreadFiles, AgentError> {
        Ok(ThreadFiles::new(keep_of(&self.inner, self.id()?, None)))
    }
}
