//! What a thread keeps beside its journal, over a store: its values and files, and its environment.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use toolwright_core::{BlobId, FileChange, FileEntry, ThreadId, Timestamp};
use toolwright_tool::{EnvSource, Keep, KeepLimits, Kept, ThreadFiles, ThreadValues, ToolError, Tree};

use crate::agent::AgentInner;
use crate::clock::Clock;
use crate::error::AgentError;
use crate::store::{Answer, Shelf, Store, StoreError};
use crate::thread::ThreadHandle;

/// How many values are read at once.
const PAGE: usize = 500;

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
}

impl Beside {
    /// Of a run that begins now, under the claim of that fencing number.
    pub(crate) async fn of_run(inner: &AgentInner, thread: &ThreadId, fence: u64) -> Result<Self, AgentError> {
        let declared = inner.dispatch.registry.iter().any(|tool| !tool.spec().env.is_empty());
        let values = if declared { environment(&*inner.store, thread).await? } else { HashMap::new() };
        let below = Arc::clone(&inner.dispatch.env);
        let env: Arc<dyn EnvSource> = if values.is_empty() { below } else { Arc::new(ThreadEnv { values, below }) };
        Ok(Self { keep: keep_of(inner, thread, Some(fence)), env })
    }
}

/// The thread's environment, then the agent's.
struct ThreadEnv {
    values: HashMap<String, String>,
    below: Arc<dyn EnvSource>,
}

impl EnvSource for ThreadEnv {
    fn get(&self, name: &str) -> Option<String> {
        self.values.get(name).cloned().or_else(|| self.below.get(name))
    }
}

async fn environment(store: &dyn Store, thread: &ThreadId) -> Result<HashMap<String, String>, StoreError> {
    let mut all = HashMap::new();
    let mut after: Option<String> = None;
    loop {
        let page = store.data().values(thread, Shelf::Environment, "", after.as_deref(), PAGE).await?;
        let more = page.len() == PAGE;
        after = page.last().map(|(name, _)| name.clone());
        all.extend(page.into_iter().filter_map(|(name, text)| Some((name, serde_json::from_str::<String>(&text).ok()?))));
        if !more {
            return Ok(all);
        }
    }
}

/// The name of an environment value: letters, digits and `_`, not beginning with a digit.
fn checked_name(name: &str) -> Result<(), AgentError> {
    let letters = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if letters && !name.is_empty() && name.len() <= 128 && !name.starts_with(|first: char| first.is_ascii_digit()) {
        return Ok(());
    }
    Err(AgentError::Invalid {
        field: "the name of an environment value".to_owned(),
        given: format!("{:?}", toolwright_core::bounded(name, 80)),
        fix: "use 1 to 128 letters, digits and `_`, and no digit first".to_owned(),
    })
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

    /// Sets a value of the thread's environment, or removes it with `None`. Tools that declare `env(NAME)` get it in runs that
    /// begin from now on, before the agent's own (standard-agents ENV-2). No event, record or reply ever shows it.
    pub async fn set_env(&self, name: &str, value: Option<&str>) -> Result<(), AgentError> {
        checked_name(name)?;
        let text = value.map(|value| serde_json::Value::from(value).to_string().into());
        Ok(self.inner.store.data().set_value(self.id()?, Shelf::Environment, name, text, None).await?)
    }

    /// The names in the thread's environment, sorted. The values are for its tools alone.
    pub async fn env_names(&self) -> Result<Vec<String>, AgentError> {
        let mut names: Vec<String> = environment(&*self.inner.store, self.id()?).await?.into_keys().collect();
        names.sort();
        Ok(names)
    }
}
