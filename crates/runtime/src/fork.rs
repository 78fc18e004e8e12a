//! Forks: a thread that goes on from a place in another one's past (sdk-runtime 22, 24).

use std::sync::Arc;

use toolwright_core::redact::Redactor;
use toolwright_core::{
    CallId, CallState, Comparison, Input, InputMode, Item, Message, Outcome, Part, Record, RecordBody, Seq, Thread, ThreadId, ToolOutput,
    Trajectory, compare, end_of_step, sha256_hex,
};

use crate::agent::checked_input;
use crate::driver::mode_record;
use crate::error::AgentError;
use crate::store::{Append, Claim, Shelf, StoreError};
use crate::thread::ThreadHandle;

const PAGE: usize = 1000;
/// The longest id of a thread.
const ID_LENGTH: usize = 128;

/// Where a fork leaves its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForkAt {
    /// After everything of a step; 0 keeps nothing.
    Step(u32),
    /// After the record at a position of the journal, whatever it is.
    Seq(Seq),
    /// Where the source stands now.
    Head,
}

impl From<u32> for ForkAt {
    fn from(step: u32) -> Self {
        Self::Step(step)
    }
}

impl From<Seq> for ForkAt {
    fn from(seq: Seq) -> Self {
        Self::Seq(seq)
    }
}

/// Edits the messages of a fork.
type Edit = Box<dyn FnOnce(Vec<Message>) -> Vec<Message> + Send>;

/// What is different in a fork. Applied in this order: messages, results, input (sdk-runtime HIS-5).
#[derive(Default)]
pub struct ForkPatch {
    messages: Option<Edit>,
    results: Vec<(CallId, ToolOutput)>,
    input: Option<Input>,
    id: Option<String>,
}

impl ForkPatch {
    /// Nothing is different.
    pub fn new() -> Self {
        Self::default()
    }

    /// Edits the messages that a model sees. What comes out has to be balanced.
    #[must_use]
    pub fn messages(mut self, edit: impl FnOnce(Vec<Message>) -> Vec<Message> + Send + 'static) -> Self {
        self.messages = Some(Box::new(edit));
        self
    }

    /// Another result for a call: in place of the one that is there, or as its one result if it has none yet.
    #[must_use]
    pub fn tool_result(mut self, call: CallId, output: ToolOutput) -> Self {
        self.results.push((call, output));
        self
    }

    /// Input that comes after what is kept and the calls that are open.
    #[must_use]
    pub fn append_input(mut self, input: impl Into<Input>) -> Self {
        self.input = Some(input.into());
        self
    }

    /// The fork's id; by default `<source>-fork-<n>`, the first `n` from 1 that is free (sdk-runtime FRK-5).
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }
}

impl ThreadHandle {
    /// A new thread whose past is this one's up to a place, in the same store, with its files and values. The source stays as it
    /// is. Recorded results are not made again; calls that wait, or had not begun, come before the gate again (sdk-runtime HIS-8).
    ///
    /// ```no_run
    /// # async fn f(agent: toolwright_runtime::Agent) -> Result<(), toolwright_runtime::AgentError> {
    /// use toolwright_runtime::ForkPatch;
    /// let fork = agent.thread("chat-42").fork(3, ForkPatch::new().append_input("And if it rains?")).await?;
    /// let reply = fork.resume().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `TOOLWRIGHT_SESSION_STEP_NOT_FOUND` names the range there is; `TOOLWRIGHT_SESSION_EXISTS` if the id is taken. Nothing is
    /// written then.
    pub async fn fork(&self, at: impl Into<ForkAt>, patch: ForkPatch) -> Result<ThreadHandle, AgentError> {
        let source = self.id()?.clone();
        let asked = patch.id.as_deref().map(ThreadId::new).transpose()?;
        if let Some(asked) = asked.as_ref().filter(|asked| **asked == source) {
            return Err(AgentError::ThreadExists { thread: asked.clone() });
        }
        let records = self.journal(&source).await?;
        let through = cut(&source, &records, at.into())?;
        let store = &self.inner.store;
        let (target, claim) = match asked {
            Some(target) => {
                let claim = store.claim(&target).await?;
                if self.is_taken(&target).await? {
                    return Err(AgentError::ThreadExists { thread: target });
                }
                (target, claim)
            }
            None => self.free_id(&source).await?,
        };
        let redactor = self.inner.redactor(&source).await?;
        let mut fork = Fork { thread: Thread::new(), records: Vec::new(), now: self.inner.clock.now(), redactor };
        for record in records.iter().take_while(|record| record.seq <= through) {
            fork.copy(record, &target)?;
        }
        fork.add(RecordBody::ThreadForked { from: source.clone(), through })?;
        // A fork stands under the mode that its source has now, wherever it was cut (sdk-runtime FRK-5).
        let switched = records.iter().rev().find_map(|record| match record.body {
            RecordBody::PermissionMode { to, run_only: false, .. } => Some((record.seq, to)),
            _ => None,
        });
        if let Some((_, to)) = switched.filter(|(at, _)| *at > through) {
            let agents = self.inner.dispatch.permissions.mode().unwrap_or_default();
            fork.add(mode_record(&fork.thread, agents, to))?;
        }
        fork.patch(patch)?;
        // Files first: the fork is there once its journal is, and then it is whole.
        store.data().copy(&source, &target).await?;
        Box::pin(self.inner.environment.rebind(&**store, &source, &target)).await?;
        store.append(&*claim, Seq(0), Append::records(fork.records)).await?;
        store.release(Arc::from(claim)).await;
        Ok(ThreadHandle::new(Arc::clone(&self.inner), Ok(target)))
    }

    /// What the thread did, step by step: all of it, also what compaction took out of the model's sight.
    pub async fn steps(&self) -> Result<Trajectory, AgentError> {
        let id = self.id()?;
        Ok(Trajectory::of(&self.journal(id).await?))
    }

    /// How this thread compares with another one of the same store.
    pub async fn compare(&self, other: &ThreadId) -> Result<Comparison, AgentError> {
        let (a, b) = (self.journal(self.id()?).await?, self.journal(other).await?);
        Ok(compare(&Trajectory::of(&a), &Trajectory::of(&b)))
    }

    /// Every record of the thread's journal, in order: what an export holds.
    pub async fn records(&self) -> Result<Vec<Arc<Record>>, AgentError> {
        self.journal(self.id()?).await
    }

    async fn journal(&self, id: &ThreadId) -> Result<Vec<Arc<Record>>, AgentError> {
        let mut all: Vec<Arc<Record>> = Vec::new();
        loop {
            let after = all.last().map_or(Seq(0), |record| record.seq);
            let page = self.inner.store.read(id, after, PAGE).await?;
            let last = page.len() < PAGE;
            all.extend(page);
            if last {
                break;
            }
        }
        if all.is_empty() { Err(AgentError::UnknownThread { thread: id.clone() }) } else { Ok(all) }
    }

    /// Whether a fork would not be the only thing under an id: a journal, or what waits there for one.
    async fn is_taken(&self, id: &ThreadId) -> Result<bool, AgentError> {
        let store = &self.inner.store;
        let data = store.data();
        Ok(store.info(id).await?.is_some()
            || !store.inbox(id, 0).await?.is_empty()
            || !data.values(id, Shelf::Values, "", None, 1).await?.is_empty()
            || !data.values(id, Shelf::Environment, "", None, 1).await?.is_empty()
            || !data.files(id, "", None, 1).await?.is_empty())
    }

    /// `<source>-fork-<n>`, the first that is free, claimed; a source whose id leaves no room for it is shortened and hashed.
    async fn free_id(&self, source: &ThreadId) -> Result<(ThreadId, Box<dyn Claim>), AgentError> {
        let mut n = 1u32;
        loop {
            let ending = format!("-fork-{n}");
            let id = if source.as_str().len() + ending.len() <= ID_LENGTH {
                format!("{source}{ending}")
            } else {
                let hash = sha256_hex(source.as_str().as_bytes());
                let hash = toolwright_core::cut(&hash, 8);
                let start = toolwright_core::cut(source.as_str(), ID_LENGTH - ending.len() - hash.len() - 1);
                format!("{start}-{hash}{ending}")
            };
            let id = ThreadId::new(id)?;
            if !self.is_taken(&id).await? {
                match self.inner.store.claim(&id).await {
                    // Another fork is being made under it.
                    Err(StoreError::Busy { .. }) => {}
                    claim => {
                        let claim = claim?;
                        if !self.is_taken(&id).await? {
                            return Ok((id, claim));
                        }
                    }
                }
            }
            n += 1;
        }
    }
}

/// The position after which nothing is kept.
fn cut(source: &ThreadId, records: &[Arc<Record>], at: ForkAt) -> Result<Seq, AgentError> {
    let head = records.last().map_or(Seq(0), |record| record.seq);
    let found = match at {
        ForkAt::Head => Some(head),
        ForkAt::Seq(seq) => (seq.0 >= 1 && seq <= head).then_some(seq),
        ForkAt::Step(step) => end_of_step(records, step),
    };
    found.ok_or_else(|| {
        let (what, range) = match at {
            ForkAt::Step(step) => {
                let ended = records.iter().rev().find_map(|record| match record.body {
                    RecordBody::StepDone { step, .. } => Some(step),
                    _ => None,
                });
                (format!("step {step}"), format!("its steps that can be forked are 0 to {}", ended.unwrap_or(0)))
            }
            ForkAt::Seq(seq) => (format!("position {seq}"), format!("its journal goes from 1 to {head}")),
            ForkAt::Head => ("position".to_owned(), "its journal is empty".to_owned()),
        };
        AgentError::StepNotFound { thread: source.clone(), what, range }
    })
}

/// A fork being made: its journal, and the fold that says what fits.
struct Fork {
    thread: Thread,
    records: Vec<Arc<Record>>,
    now: toolwright_core::Timestamp,
    /// What takes the source's secrets out of what is new.
    redactor: Option<Arc<Redactor>>,
}

impl Fork {
    fn copy(&mut self, record: &Arc<Record>, target: &ThreadId) -> Result<(), AgentError> {
        let mut copied = Arc::clone(record);
        if let RecordBody::ThreadOpened { version, agent, .. } = &record.body {
            let body = RecordBody::ThreadOpened { thread: target.clone(), version: *version, agent: Arc::clone(agent), parent: None };
            copied = Arc::new(Record { body, ..(**record).clone() });
        }
        self.thread.apply(&copied)?;
        if let Some(kind) = self.thread.blocked_by() {
            return Err(AgentError::UnknownRecord { thread: target.clone(), kind: kind.to_owned() });
        }
        self.records.push(copied);
        Ok(())
    }

    fn add(&mut self, body: RecordBody) -> Result<(), AgentError> {
        let mut record = Record { seq: self.thread.head().next(), at: self.now, run: None, body };
        if let Some(redactor) = &self.redactor {
            let clean = redactor.record(&record).map_err(|error| AgentError::Unredactable { problem: error.to_string() })?;
            record = clean.unwrap_or(record);
        }
        let record = Arc::new(record);
        // A patch that does not fit is the caller's mistake, not a damaged journal.
        self.thread.apply(&record).map_err(|misfit| AgentError::Unbalanced { problem: misfit.problem })?;
        self.records.push(record);
        Ok(())
    }

    fn messages(&self) -> Vec<Message> {
        self.thread.transcript().iter().map(|message| (**message).clone()).collect()
    }

    fn replace(&mut self, messages: Vec<Message>) -> Result<(), AgentError> {
        let messages = messages.into_iter().map(Arc::new).collect();
        self.add(RecordBody::TranscriptReplaced { messages, cleared: None })
    }

    fn patch(&mut self, patch: ForkPatch) -> Result<(), AgentError> {
        if let Some(edit) = patch.messages {
            let messages = edit(self.messages());
            self.replace(messages)?;
        }
        for (call, output) in patch.results {
            if let Some(open) = self.thread.call(&call).filter(|open| !matches!(open.state, CallState::Done)) {
                let body = RecordBody::CallDone {
                    call,
                    tool: Arc::clone(&open.tool),
                    outcome: Outcome::Done { output: Arc::new(output) },
                    duration_ms: open.started_at.map(|_| 0),
                    replaced_by: Some("fork".to_owned()),
                    fatal: None,
                    notes: None,
                };
                self.add(body)?;
                continue;
            }
            let mut messages = self.messages();
            let tool = replace_result(&mut messages, &call, &output).unwrap_or_default();
            let replaced = self.add(RecordBody::ResultReplaced { call, tool: tool.as_str().into(), output: Arc::new(output) });
            // A result that stands in messages that were brought along, or edited, is replaced with them.
            match replaced {
                Err(_) if !tool.is_empty() => self.replace(messages)?,
                replaced => replaced?,
            }
        }
        if let Some(input) = patch.input {
            let messages = checked_input(input)?.into_iter().map(Arc::new).collect();
            let id = crate::random::input_id();
            self.add(RecordBody::InputQueued { id, mode: InputMode::Queue, messages, only: None, immediate: false })?;
        }
        Ok(())
    }
}

/// Replaces the result of `call`; gives its tool, or `None` where there is no such result.
fn replace_result(messages: &mut [Message], call: &CallId, output: &ToolOutput) -> Option<String> {
    let results = messages.iter_mut().rev().flat_map(|message| &mut message.items);
    let result = results.into_iter().find_map(|item| match item {
        Item::ToolResult(result) if result.call_id == *call => Some(result),
        _ => None,
    })?;
    result.parts = output.parts().to_vec();
    if result.parts.is_empty() {
        result.parts.push(Part::Json { value: serde_json::Value::Null });
    }
    result.failed = None;
    Some(result.tool_name.clone())
}
