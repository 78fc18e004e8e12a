//! What a thread keeps beside its journal, as a body's context reaches it: values, content and the entries of a file tree.
//!
//! The runtime implements [`Keep`] over its store; [`MemoryKeep`] is for a context without a run. What files and values *mean*
//! is in [`crate::ThreadFiles`] and [`crate::ThreadValues`], over this trait, so that it is the same everywhere.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use toolwright_core::{BlobId, FileChange, FileEntry, Timestamp};

use crate::error::ToolError;

/// How much a thread may keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepLimits {
    /// The largest file or attachment, in bytes.
    pub file: u64,
    /// All files of a thread together, in bytes; the same content under two paths counts twice.
    pub total: u64,
    /// Files and directories of a thread.
    pub entries: u64,
    /// The largest file whose text is searched, in bytes.
    pub searched: u64,
    /// The largest value, in bytes of JSON.
    pub value: u64,
}

impl Default for KeepLimits {
    /// 16 MiB for a file, 1 GiB and 100,000 entries for a thread; 4 MiB for a file that is searched; 1 MiB for a value.
    fn default() -> Self {
        const MIB: u64 = 1024 * 1024;
        Self { file: 16 * MIB, total: 1024 * MIB, entries: 100_000, searched: 4 * MIB, value: MIB }
    }
}

/// What a keep answers, later. Where the run no longer moves its thread, what would be written is a `ClaimLostError`.
pub type Kept<'a, T> = BoxFuture<'a, Result<T, ToolError>>;

/// What is known of a tree while somebody holds the right to change it.
#[derive(Debug, Default)]
pub struct Tree {
    pub(crate) used: Option<Used>,
}

/// What a tree takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Used {
    pub(crate) bytes: u64,
    pub(crate) entries: u64,
}

/// What one thread keeps. Paths are normalised, keys are checked before they come here.
pub trait Keep: Send + Sync {
    /// The time.
    fn now(&self) -> Timestamp;

    /// How much may be kept.
    fn limits(&self) -> KeepLimits;

    /// Whoever checks the tree and then changes it holds this meanwhile.
    fn tree(&self) -> &tokio::sync::Mutex<Tree>;

    /// A value, as JSON text.
    fn value<'a>(&'a self, key: &'a str) -> Kept<'a, Option<Arc<str>>>;

    /// Sets a value, or removes it with `None`.
    fn set_value<'a>(&'a self, key: &'a str, value: Option<Arc<str>>) -> Kept<'a, ()>;

    /// Values whose keys begin with `prefix`, by key, after `after`; at most `limit`.
    fn values<'a>(&'a self, prefix: &'a str, after: Option<&'a str>, limit: usize) -> Kept<'a, Vec<(String, Arc<str>)>>;

    /// Keeps content.
    fn keep_blob(&self, bytes: Bytes) -> Kept<'_, BlobId>;

    /// Content.
    fn blob<'a>(&'a self, id: &'a BlobId) -> Kept<'a, Option<Bytes>>;

    /// Changes entries, all of it or nothing.
    fn change_files(&self, changes: Vec<FileChange>) -> Kept<'_, ()>;

    /// The entry of a path.
    fn file<'a>(&'a self, path: &'a str) -> Kept<'a, Option<FileEntry>>;

    /// Entries whose paths begin with `prefix`, by path in byte order, after `after`; at most `limit`.
    fn files<'a>(&'a self, prefix: &'a str, after: Option<&'a str>, limit: usize) -> Kept<'a, Vec<FileEntry>>;
}

/// In memory: for calling a tool in a test, without a run.
#[derive(Default)]
pub struct MemoryKeep {
    limits: KeepLimits,
    tree: tokio::sync::Mutex<Tree>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    values: BTreeMap<String, Arc<str>>,
    files: BTreeMap<String, FileEntry>,
    blobs: HashMap<BlobId, Bytes>,
}

fn ready<'a, T: Send + 'a>(answer: T) -> Kept<'a, T> {
    std::future::ready(Ok(answer)).boxed()
}

impl MemoryKeep {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty one with other limits than the default ones.
    pub fn with_limits(limits: KeepLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is complete at each step, so a panic elsewhere leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keep for MemoryKeep {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        Timestamp(i64::try_from(since).unwrap_or(i64::MAX))
    }

    fn limits(&self) -> KeepLimits {
        self.limits
    }

    fn tree(&self) -> &tokio::sync::Mutex<Tree> {
        &self.tree
    }

    fn value<'a>(&'a self, key: &'a str) -> Kept<'a, Option<Arc<str>>> {
        ready(self.state().values.get(key).cloned())
    }

    fn set_value<'a>(&'a self, key: &'a str, value: Option<Arc<str>>) -> Kept<'a, ()> {
        let mut state = self.state();
        match value {
            Some(value) => drop(state.values.insert(key.to_owned(), value)),
            None => drop(state.values.remove(key)),
        }
        ready(())
    }

    fn values<'a>(&'a self, prefix: &'a str, after: Option<&'a str>, limit: usize) -> Kept<'a, Vec<(String, Arc<str>)>> {
        let state = self.state();
        let values = state.values.iter().filter(|(key, _)| key.starts_with(prefix) && after.is_none_or(|after| key.as_str() > after));
        ready(values.take(limit).map(|(key, value)| (key.clone(), Arc::clone(value))).collect())
    }

    fn keep_blob(&self, bytes: Bytes) -> Kept<'_, BlobId> {
        let id = BlobId::of(&bytes);
        self.state().blobs.insert(id.clone(), bytes);
        ready(id)
    }

    fn blob<'a>(&'a self, id: &'a BlobId) -> Kept<'a, Option<Bytes>> {
        ready(self.state().blobs.get(id).cloned())
    }

    fn change_files(&self, changes: Vec<FileChange>) -> Kept<'_, ()> {
        let mut state = self.state();
        for change in changes {
            match change {
                FileChange::Put(entry) => drop(state.files.insert(entry.path.clone(), entry)),
                FileChange::Remove(path) => drop(state.files.remove(&path)),
            }
        }
        ready(())
    }

    fn file<'a>(&'a self, path: &'a str) -> Kept<'a, Option<FileEntry>> {
        ready(self.state().files.get(path).cloned())
    }

    fn files<'a>(&'a self, prefix: &'a str, after: Option<&'a str>, limit: usize) -> Kept<'a, Vec<FileEntry>> {
        let state = self.state();
        let files = state.files.iter().filter(|(path, _)| path.starts_with(prefix) && after.is_none_or(|after| path.as_str() > after));
        ready(files.take(limit).map(|(_, entry)| entry.clone()).collect())
    }
}
