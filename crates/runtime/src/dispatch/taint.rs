//! Where the text of results came from, and what a call's arguments repeat of it; see [`toolwright_core::taint`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::FutureExt;
use serde_json::Value;
use toolwright_core::taint::{Marks, PrivateSource, Taint, TaintIndex};
use toolwright_core::{BlobId, FileChange, FileEntry, Outcome, Part, ResultNotes, Timestamp, ToolSpec, Transcript};
use toolwright_tool::{ApprovalRequest, EnvSource, Keep, KeepLimits, Kept, ReadNotes, Tree};

use crate::driver::Executed;

/// What is marked in a run's thread, as far as it was looked at.
#[derive(Clone, Default)]
pub(crate) struct Marked(Arc<Mutex<TaintIndex>>);

impl Marked {
    /// What the arguments of a call that follows this transcript repeat.
    pub(super) fn taint_of(&self, transcript: &Transcript, arguments: &Value) -> Taint {
        let mut index = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        index.follow(transcript);
        index.taint_of(arguments)
    }
}

/// Why somebody has to decide about a call that would take what is the thread's own to the world outside.
pub(super) fn asks(spec: &ToolSpec, taint: &Taint) -> Option<ApprovalRequest> {
    let from = taint.private.first().filter(|_| spec.annotations.open_world())?;
    let more = match taint.private.len() {
        1 => String::new(),
        more => format!(", and {} more", more - 1),
    };
    let reason = format!("`{}` reaches the world outside, and its arguments repeat text from {from}{more}", spec.name);
    Some(ApprovalRequest::new().reason(reason))
}

/// What a body has read that is its thread's own.
#[derive(Default)]
pub(super) struct Reads {
    files: AtomicBool,
    values: AtomicBool,
    /// Texts of the environment.
    environment: Mutex<Vec<String>>,
    /// What the body said that it had read.
    said: Mutex<Vec<PrivateSource>>,
}

impl ReadNotes for Reads {
    fn note(&self, source: PrivateSource) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if !said.contains(&source) {
            said.push(source);
        }
    }
}

/// Notes nothing: a policy gives no result.
pub(super) struct NoNotes;

impl ReadNotes for NoNotes {
    fn note(&self, _source: PrivateSource) {}
}

impl Reads {
    /// The marks of what the body gave. A variable's text marks a result only where it stands in it: what a service answered to
    /// somebody with the right key is not the key's.
    pub(super) fn marks(&self, spec: &ToolSpec, outcome: &Outcome) -> Marks {
        let mut private = Vec::new();
        if self.files.load(Ordering::Relaxed) {
            private.push(PrivateSource::Files);
        }
        if self.values.load(Ordering::Relaxed) {
            private.push(PrivateSource::Values);
        }
        let texts = std::mem::take(&mut *self.environment.lock().unwrap_or_else(PoisonError::into_inner));
        if texts.iter().any(|text| holds(outcome, text)) {
            private.push(PrivateSource::Environment);
        }
        for source in self.said.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            if !private.contains(&source) {
                private.push(source);
            }
        }
        Marks { untrusted: spec.annotations.open_world(), private }
    }
}

fn holds(outcome: &Outcome, text: &str) -> bool {
    let Outcome::Done { output } = outcome else { return false };
    output.parts().iter().any(|part| match part {
        Part::Text { text: said } => said.contains(text),
        Part::Json { value } => in_value(value, text),
        _ => false,
    })
}

fn in_value(value: &Value, text: &str) -> bool {
    match value {
        Value::String(said) => said.contains(text),
        Value::Array(items) => items.iter().any(|item| in_value(item, text)),
        Value::Object(fields) => fields.iter().any(|(key, value)| key.contains(text) || in_value(value, text)),
        _ => false,
    }
}

/// Puts marks down with a result.
pub(super) fn mark(executed: &mut Executed, marks: Marks) {
    if !marks.is_empty() {
        let notes = executed.notes.take().unwrap_or_default();
        executed.notes = ResultNotes { marks, ..*notes }.some();
    }
}

/// Notes what is read of a keep.
pub(super) struct WatchedKeep {
    pub(super) keep: Arc<dyn Keep>,
    pub(super) reads: Arc<Reads>,
}

impl Keep for WatchedKeep {
    fn now(&self) -> Timestamp {
        self.keep.now()
    }

    fn limits(&self) -> KeepLimits {
        self.keep.limits()
    }

    fn tree(&self) -> &tokio::sync::Mutex<Tree> {
        self.keep.tree()
    }

    fn value<'a>(&'a self, key: &'a str) -> Kept<'a, Option<Arc<str>>> {
        let value = self.keep.value(key);
        value.inspect(|value| note(&self.reads.values, matches!(value, Ok(Some(_))))).boxed()
    }

    fn set_value<'a>(&'a self, key: &'a str, value: Option<Arc<str>>) -> Kept<'a, ()> {
        self.keep.set_value(key, value)
    }

    fn values<'a>(&'a self, prefix: &'a str, after: Option<&'a str>, limit: usize) -> Kept<'a, Vec<(String, Arc<str>)>> {
        let values = self.keep.values(prefix, after, limit);
        values.inspect(|values| note(&self.reads.values, values.as_ref().is_ok_and(|values| !values.is_empty()))).boxed()
    }

    fn keep_blob(&self, bytes: Bytes) -> Kept<'_, BlobId> {
        self.keep.keep_blob(bytes)
    }

    fn blob<'a>(&'a self, id: &'a BlobId) -> Kept<'a, Option<Bytes>> {
        let blob = self.keep.blob(id);
        blob.inspect(|blob| note(&self.reads.files, matches!(blob, Ok(Some(_))))).boxed()
    }

    fn change_files(&self, changes: Vec<FileChange>) -> Kept<'_, ()> {
        self.keep.change_files(changes)
    }

    fn file<'a>(&'a self, path: &'a str) -> Kept<'a, Option<FileEntry>> {
        self.keep.file(path)
    }

    fn files<'a>(&'a self, prefix: &'a str, after: Option<&'a str>, limit: usize) -> Kept<'a, Vec<FileEntry>> {
        self.keep.files(prefix, after, limit)
    }
}

fn note(what: &AtomicBool, read: bool) {
    what.fetch_or(read, Ordering::Relaxed);
}

/// The shortest text of a variable that marks a result, in bytes.
const SHORTEST: usize = 6;

/// Notes which texts of the environment are read. Secrets are none: they are taken out of every result.
pub(super) struct WatchedEnv {
    pub(super) env: Arc<dyn EnvSource>,
    pub(super) texts: Vec<String>,
    pub(super) reads: Arc<Reads>,
}

impl EnvSource for WatchedEnv {
    fn get(&self, name: &str) -> Option<String> {
        let value = self.env.get(name)?;
        if value.len() >= SHORTEST && self.texts.iter().any(|text| text == name) {
            self.reads.environment.lock().unwrap_or_else(PoisonError::into_inner).push(value.clone());
        }
        Some(value)
    }

    fn problem(&self, name: &str) -> Option<String> {
        self.env.problem(name)
    }
}

/// The environment of a body, watched where it has texts.
pub(super) fn watched_env(spec: &ToolSpec, env: &Arc<dyn EnvSource>, reads: &Arc<Reads>) -> Arc<dyn EnvSource> {
    let texts: Vec<String> = spec.env.iter().filter(|need| !need.secret).map(|need| need.name.clone()).collect();
    if texts.is_empty() {
        return Arc::clone(env);
    }
    Arc::new(WatchedEnv { env: Arc::clone(env), texts, reads: Arc::clone(reads) })
}
