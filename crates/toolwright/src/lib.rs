//! Tools for AI agents: typed, checked, approved, run safely, and never lost.
//!
//! A tool is a typed function that a model may call. Toolwright finds it, checks its arguments, asks a person where that is
//! wanted, runs it safely, shows its progress, survives a crash, and hands back exactly one result.
//!
//! | feature | what it adds |
//! |---|---|
//! | `chat` (default) | models behind an OpenAI-compatible chat endpoint, as `provider/model` |
//! | `tools` (default) | the built-in tools, [`builtin`] |
//! | `workspace` | the files of a folder among the built-in tools: `builtin::workspace`, and what reaches them: `files` |
//! | `shell` | a shell among the built-in tools: [`builtin::shell`] |
//! | `patch` | checks of patches: [`builtin::patch`] |
//! | `sandbox` | confined programs: [`sandbox`] |
//! | `github`, `jira`, `slack`, `email` | tools of these services: `builtin::integrations` |
//! | `web` | `web_fetch` and `http_request` among the built-in tools, and the guarded HTTP client: [`net`] |
//! | `local` | the embedded model, as `local` |
//! | `sqlite` | threads in a file: [`store`] |
//! | `postgres` | threads on a server that several machines share: [`store`] |
//! | `testing` | the scripted model, and recorded HTTP conversations |

/// What stops a run with `cancel_on`, and a worker.
pub use tokio_util::sync::CancellationToken;
/// Vocabulary and decisions, without I/O: records, events, the thread's state machine.
pub use toolwright_core as core;
pub use toolwright_core::compact::{is_pinned, pin_message};
pub use toolwright_core::{
    AbortReason, Action, Annotations, ApprovalId, AskKind, Author, Decision, DecisionVerdict, EnvNeed, Event, EventKind, FinishReason,
    Input, Issue, Item, Message, OnInterrupt, Outcome, Part, Record, RecordBody, Remember, RunId, RunLimits, Seq, Side, Thread, ThreadId,
    Timestamp, ToolFailure, ToolFailureKind, ToolName, ToolOrigin, ToolOutput, ToolSpec, Transcript, Usage,
};
/// Hooks, guardrails and budgets: the guide `docs/guardrails.md` says which is for what.
pub use toolwright_core::{Budget, BudgetTrip, GuardrailTrip, OnExceeded};
pub use toolwright_runtime::{
    AfterCall, BeforeCall, BeforeGenerate, GenerateContext, Guardrail, GuardrailContext, GuardrailKind, GuardrailVerdict, Guardrails, Hook,
    HookCall, OnTripped, guard,
};
pub use toolwright_runtime::{
    AgentError, Approvals, ApproveAnswer, Calls, Canceller, Check, Clock, CompactedMessages, Compaction, CompactionFailure,
    CompactionOutcome, CompactionPlan, CompactionRequest, CompactionStrategy, EnvEntry, EnvType, FixedClock, ForkAt, ForkPatch, GateCall,
    InstalledResolvers, Joined, MemoryStore, Model, ModelChoice, ModelError, ModelEvent, ModelInfo, ModelReply, ModelRequest,
    ModelResolver, ModelSettings, ModelStream, OnDrift, Page, PendingApproval, Prices, PruneToolResults, Question, Registry, RegistryError,
    Reply, RunControl, RunStream, Stage, StageKind, Store, StoreError, Summarize, SystemClock, ThreadEvents, ThreadHandle, ThreadInfo,
    ThreadQuery, ThreadStatus, Threads, Ticket, ToolChoice, TurnPolicy, TwoPhase, Worker, compact_messages,
};
#[doc(hidden)]
pub use toolwright_tool::macro_support;
/// `serde_json`'s macro for JSON values.
pub use toolwright_tool::macro_support::serde_json::json;
pub use toolwright_tool::{
    Approval, ApprovalOutcome, ApprovalRequest, Args, CallId, Content, Ctx, DefinitionError, Env, EnvSource, FileEntry, FileKind,
    FileOptions, FileStats, Files, FromCall, GrepHit, Identity, IntoToolResult, Keep, KeepLimits, NeedsApproval, Principal, PrincipalKind,
    PrivateSource, Progress, ProgressSender, Requirements, Running, State, StateMap, ThreadFiles, ThreadValues, Tool, ToolArg, ToolBody,
    ToolBuilder, ToolContext, ToolDef, ToolError, Values, args, schema_of, tool, tools,
};

/// The wires to models.
#[cfg(any(feature = "chat", feature = "local", feature = "testing"))]
pub use toolwright_models as models;

/// Where threads are kept: the stores there are, opening one by its address, and what a store of one's own is made with.
///
/// The guide `docs/stores.md` says which one when.
pub mod store {
    pub use toolwright_runtime::{
        Answer, Append, BlobId, CLAIM_LIMIT, Claim, DataStore, FileChange, FileEntry, InboxItem, IndexChange, MemoryStore, Opening, Page,
        PendingApproval, PendingRow, Posted, Shelf, Snapshot, Store, StoreError, StoreLayer, ThreadInfo, ThreadQuery, ThreadStatus,
    };
    #[cfg(feature = "postgres")]
    pub use toolwright_store::postgres::Postgres;
    #[cfg(feature = "sqlite")]
    pub use toolwright_store::sqlite::Sqlite;
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub use toolwright_store::{Opened, Place, open};
}

/// Permission rules and modes: which calls may run, which are asked about, which are refused.
///
/// The guide `docs/permissions.md` shows them at work.
pub mod rules {
    pub use toolwright_core::policy::command;
    pub use toolwright_core::policy::{
        ArgMatch, CommandMatch, Hints, InvalidRule, InvalidRules, Matcher, Names, PermissionMode, Rule, RuleAction, RuleSet, UnknownMode,
        allow, any, ask, deny, destructive, edits_files, glob, idempotent, open_world, origin, read_only, regex,
    };
    pub use toolwright_runtime::{ModeSource, PermissionEntry, RuleWhen, WhenCall};
}

/// Outbound HTTP to addresses that nobody trusts: the client that `web_fetch` and `http_request` use, for tools of one's own.
///
/// The guide `docs/web.md` shows it at work.
#[cfg(feature = "web")]
pub mod net {
    pub use toolwright_host::net::{
        GuardConfigError, GuardError, GuardedBody, GuardedClient, GuardedClientBuilder, GuardedResponse, Header, NetMap, ReadBody, Request,
        Resolver, SpecialRange, SystemResolver, Url, special_range,
    };
}

/// The built-in tools.
#[cfg(feature = "tools")]
pub use toolwright_tools as builtin;

/// The files below one folder, reached so that nothing outside can be: for tools of one's own.
///
/// The guide `docs/workspace.md` says what holds for them, and shows the tools over them.
#[cfg(all(unix, feature = "workspace"))]
pub mod files {
    pub use toolwright_host::files::{
        Content, Entry, Expected, FileError, FileKind, FileStat, Folder, Resolve, Root, RootError, RootedPath, Staged, Stamp,
    };
}

/// Programs that run for a model: how they are started, and what becomes of them.
///
/// The guide `docs/shell.md` says what holds for them.
#[cfg(any(feature = "shell", feature = "patch", feature = "sandbox"))]
pub mod process {
    pub use toolwright_host::process::{Captured, Ended, Environment, GRACE, How, KEPT, Launch, Process, ProcessError, Spawn};
}

/// What such programs can reach: the trait, and the sandboxes there are.
#[cfg(any(feature = "shell", feature = "patch", feature = "sandbox"))]
pub use toolwright_host::sandbox;

/// Where this build finds models by name: its features.
#[derive(Clone, Copy, Debug)]
pub enum FeatureResolvers {}

impl InstalledResolvers for FeatureResolvers {
    fn resolvers() -> Vec<std::sync::Arc<dyn ModelResolver>> {
        vec![
            #[cfg(feature = "chat")]
            std::sync::Arc::new(toolwright_models::ChatResolver::new()),
            #[cfg(feature = "local")]
            std::sync::Arc::new(toolwright_models::local::LocalResolver::default()),
        ]
    }
}

/// An agent that finds models by name where this build has them.
pub type Agent = toolwright_runtime::Agent<FeatureResolvers>;
/// See [`Agent::builder`].
pub type AgentBuilder = toolwright_runtime::AgentBuilder<FeatureResolvers>;

/// What a file with tools and agents imports.
pub mod prelude {
    pub use crate::{
        Agent, AgentError, ApprovalOutcome, Args, CallId, Ctx, Decision, Env, Event, EventKind, FileKind, FileOptions, Files, FinishReason,
        FromCall, Part, Principal, Progress, Requirements, State, Tool, ToolContext, ToolDef, ToolError, ToolFailureKind, ToolOutput,
        Values, args, tool, tools,
    };
}
