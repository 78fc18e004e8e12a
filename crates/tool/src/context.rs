//! The facts of one call.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;
use toolwright_core::args::Arguments;
use toolwright_core::taint::PrivateSource;
use toolwright_core::{CallId, RunId, ThreadId, Transcript};

use crate::files::ThreadFiles;
use crate::keep::{Keep, MemoryKeep};
use crate::state::StateMap;
use crate::values::ThreadValues;

/// Who a run acts for. Read-only to everybody after the run's start (sdk-tools 6/4).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    /// A stable id.
    pub id: String,
    /// What it is, where that is known.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<PrincipalKind>,
    /// What found out who it is: the name of a sign-in, of a channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authenticator: Option<String>,
    /// Whose id it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// What else is known: claims, roles, a tenant.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub claims: Map<String, Value>,
}

impl Identity {
    /// Somebody of whom only the id is known.
    pub fn new(id: impl Into<String>) -> Self {
        Self { id: id.into(), kind: None, authenticator: None, issuer: None, claims: Map::new() }
    }

    /// Whether it is the same one: id, kind, authenticator and issuer are equal, whatever else is known (sdk-tools 15/6).
    pub fn is_same_as(&self, other: &Self) -> bool {
        (&self.id, &self.kind, &self.authenticator, &self.issuer) == (&other.id, &other.kind, &other.authenticator, &other.issuer)
    }
}

/// What a principal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PrincipalKind {
    /// A person.
    User,
    /// A program.
    Service,
}

/// The approval that let a call run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Approval {
    /// What the decider said.
    pub note: Option<String>,
    /// Who decided, where that is known; the last of them, where several had to.
    pub by: Option<String>,
    /// Whether they changed the arguments.
    pub edited: bool,
    /// Who else approved, where several had to.
    pub others: Vec<String>,
}

/// Where a tool's environment values come from.
pub trait EnvSource: Send + Sync {
    /// The value of `name`.
    fn get(&self, name: &str) -> Option<String>;

    /// Why there is no value of `name`, where that is more than that nobody set it: one sentence.
    fn problem(&self, name: &str) -> Option<String> {
        let _ = name;
        None
    }
}

/// Takes the snapshots a running call shows.
pub trait Snapshots: Send + Sync {
    /// One more complete snapshot.
    fn show(&self, snapshot: Value);
}

/// Takes note of what a body has read that nobody outside should get.
pub trait ReadNotes: Send + Sync {
    /// The body has read something of this source.
    fn note(&self, source: PrivateSource);
}

/// Everything a [`ToolContext`] is made of. The runtime fills it in; a test may.
#[derive(Clone)]
pub struct ContextParts {
    /// The call.
    pub call_id: CallId,
    /// The tool's name.
    pub tool: Arc<str>,
    /// The arguments as they run.
    pub args: Arc<Arguments>,
    /// The transcript before the calling turn (sdk-tools 6).
    pub messages: Transcript,
    /// Fires when the run stops or the deadline is over.
    pub cancelled: CancellationToken,
    /// The thread; absent where a call has none.
    pub thread: Option<ThreadId>,
    /// The run.
    pub run: Option<RunId>,
    /// The agent's name.
    pub agent: Arc<str>,
    /// Who the run acts for.
    pub principal: Option<Arc<Identity>>,
    /// Present only if a person approved this call.
    pub approval: Option<Approval>,
    /// From 1; more after an interruption.
    pub attempt: u32,
    /// Shared values, nearest first: run, agent, tool set.
    pub state: Vec<StateMap>,
    /// Environment values.
    pub env: Arc<dyn EnvSource>,
    /// The names of the environment values this tool declared.
    pub env_names: Arc<[String]>,
    /// Where snapshots go.
    pub snapshots: Arc<dyn Snapshots>,
    /// What the thread keeps beside its journal.
    pub keep: Arc<dyn Keep>,
    /// Where it is noted that something private was read.
    pub reads: Arc<dyn ReadNotes>,
}

/// The facts of one call, the same on every path (sdk-tools 6). Cheap to clone.
#[derive(Clone)]
pub struct ToolContext {
    parts: Arc<ContextParts>,
}

struct NoEnv;

impl EnvSource for NoEnv {
    fn get(&self, _name: &str) -> Option<String> {
        None
    }
}

impl ReadNotes for NoEnv {
    fn note(&self, _source: PrivateSource) {}
}

struct NoSnapshots;

impl Snapshots for NoSnapshots {
    fn show(&self, _snapshot: Value) {}
}

impl ToolContext {
    /// From its parts.
    pub fn new(parts: ContextParts) -> Self {
        Self { parts: Arc::new(parts) }
    }

    /// A context without a run, for calling a function directly in a test. Its values and files are in memory, its own.
    pub fn detached(args: Arguments) -> Self {
        Self::new(ContextParts {
            call_id: CallId::new("call_detached"),
            tool: Arc::from("detached"),
            args: Arc::new(args),
            messages: Transcript::new(),
            cancelled: CancellationToken::new(),
            thread: None,
            run: None,
            agent: Arc::from("detached"),
            principal: None,
            approval: None,
            attempt: 1,
            state: Vec::new(),
            env: Arc::new(NoEnv),
            env_names: Arc::from([]),
            snapshots: Arc::new(NoSnapshots),
            keep: Arc::new(MemoryKeep::new()),
            reads: Arc::new(NoEnv),
        })
    }

    /// The parts, to make a changed context from.
    pub fn parts(&self) -> &ContextParts {
        &self.parts
    }

    /// The call's id: stable over crashes and pauses, so it serves as an idempotency key (sdk-tools 6/5).
    pub fn call_id(&self) -> &CallId {
        &self.parts.call_id
    }

    /// The tool's name.
    pub fn tool_name(&self) -> &str {
        &self.parts.tool
    }

    /// The arguments as they run.
    pub fn args(&self) -> &Arguments {
        &self.parts.args
    }

    /// The transcript before the calling turn, without instructions.
    pub fn messages(&self) -> &Transcript {
        &self.parts.messages
    }

    /// Fires when the run stops or the deadline is over; five seconds later the body is dropped.
    pub fn cancelled(&self) -> CancellationToken {
        self.parts.cancelled.clone()
    }

    /// The thread.
    pub fn thread_id(&self) -> Option<&ThreadId> {
        self.parts.thread.as_ref()
    }

    /// The run.
    pub fn run_id(&self) -> Option<&RunId> {
        self.parts.run.as_ref()
    }

    /// The agent's name.
    pub fn agent(&self) -> &str {
        &self.parts.agent
    }

    /// Who the run acts for.
    pub fn principal(&self) -> Option<&Identity> {
        self.parts.principal.as_deref()
    }

    /// The approval that let this call run; `None` if nobody was asked.
    pub fn approval(&self) -> Option<&Approval> {
        self.parts.approval.as_ref()
    }

    /// From 1; more after an interruption: then an earlier attempt may have had its effect.
    pub fn attempt(&self) -> u32 {
        self.parts.attempt
    }

    /// The shared value of a type: from the run, then the agent, then the tool set.
    pub fn state<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.parts.state.iter().find_map(StateMap::get)
    }

    /// An environment value this tool declared with `env(NAME)`.
    pub fn env(&self, name: &str) -> Option<String> {
        self.parts.env_names.iter().any(|declared| declared == name).then(|| self.parts.env.get(name)).flatten()
    }

    /// The thread's keyed values. What this call writes is refused once its run has lost the thread to another owner.
    pub fn values(&self) -> ThreadValues {
        ThreadValues::new(Arc::clone(&self.parts.keep))
    }

    /// The thread's files. What this call writes is refused once its run has lost the thread to another owner.
    pub fn files(&self) -> ThreadFiles {
        ThreadFiles::new(Arc::clone(&self.parts.keep))
    }

    /// Says that the body has read what nobody outside should get, from elsewhere than the thread's values, files and
    /// environment, which are watched by themselves. The call's result is marked private, a failure as well: who would send
    /// its text outside is asked about it.
    ///
    /// ```
    /// # use toolwright_tool::{PrivateSource, ToolContext};
    /// # fn body(cx: &ToolContext) {
    /// cx.note_read(PrivateSource::Workspace);
    /// # }
    /// ```
    pub fn note_read(&self, source: PrivateSource) {
        self.parts.reads.note(source);
    }

    /// Shows a snapshot: a complete one, which replaces the one before (sdk-tools 8.1/2).
    pub fn show(&self, snapshot: Value) {
        self.parts.snapshots.show(snapshot);
    }
}

impl fmt::Debug for ToolContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolContext").field("call_id", &self.parts.call_id).field("tool", &self.parts.tool).finish_non_exhaustive()
    }
}
