//! The agent, its driver, and the one dispatch of tool calls.
//!
//! ```
//! use toolwright_runtime::{Agent, NoResolvers};
//! # use toolwright_runtime::{Model, ModelEvent, ModelInfo, ModelReply, ModelRequest, ModelStream};
//! # struct Echo;
//! # impl Model for Echo {
//! #     fn info(&self) -> ModelInfo { ModelInfo::new("test", "echo") }
//! #     fn stream(&self, _request: ModelRequest) -> ModelStream {
//! #         let items = vec![toolwright_core::Item::text("Hello.")];
//! #         let reply = ModelReply { items, finish: toolwright_core::FinishReason::Stop, usage: None, model: None };
//! #         Box::pin(futures_util::stream::once(std::future::ready(Ok(ModelEvent::Done(reply)))))
//! #     }
//! # }
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let agent = Agent::<NoResolvers>::builder().model(Echo).build()?;
//! assert_eq!(agent.send("Hi").await?.text, "Hello.");
//! # Ok::<_, toolwright_runtime::AgentError>(())
//! # }).unwrap();
//! ```

mod agent;
mod approvals;
mod approve;
mod attachments;
mod clock;
mod compaction;
mod dispatch;
mod driver;
mod environment;
mod error;
mod events;
mod fork;
mod generate;
pub mod guard;
mod hook;
mod hub;
mod index;
mod input;
mod keep;
mod layer;
mod load;
mod memory;
mod model;
mod permissions;
#[cfg(feature = "planted-bugs")]
pub mod planted;
mod posting;
mod random;
mod registry;
mod run;
mod seal;
mod shell;
mod side;
#[cfg(feature = "planted-bugs")]
pub mod simulated;
mod stage;
mod store;
mod subscription;
mod summarize;
mod thread;
mod threads;
mod worker;

pub use agent::{Agent, AgentBuilder, DEFAULT_INSTRUCTIONS, DEFAULT_MODEL_TIMEOUT, InstalledResolvers, ModelChoice, NoResolvers, OnDrift};
pub use approvals::{Approvals, Calls};
pub use approve::ApproveAnswer;
pub use clock::{Clock, FixedClock, SystemClock};
pub use compaction::{
    CompactedMessages, Compaction, CompactionFailure, CompactionOutcome, CompactionPlan, CompactionRequest, CompactionStrategy,
    DEFAULT_CONTEXT_WINDOW, DEFAULT_PROTECTED_TOKENS, DEFAULT_THRESHOLD_PERCENT, PruneToolResults, compact_messages,
};
pub use dispatch::{DEFAULT_RESULT_LIMIT, DEFAULT_TIMEOUT, GRACE};
pub use driver::{Completion, Driver, Effect, Executed, GateOutcome, InputCheck, NextRun, Review, Streamed, ToolFacts};
pub use environment::{EnvEntry, EnvType};
pub use error::AgentError;
pub use events::ThreadEvents;
pub use fork::{ForkAt, ForkPatch};
pub use guard::{Guardrail, GuardrailContext, GuardrailKind, GuardrailVerdict, Guardrails, OnTripped};
pub use hook::{AfterCall, BeforeCall, BeforeGenerate, GenerateContext, Hook, HookCall};
pub use index::{IndexChange, Opening, PendingApproval, PendingRow, Question, ThreadInfo, ThreadStatus};
pub use input::{Joined, Ticket, TurnPolicy};
pub use layer::StoreLayer;
pub use memory::MemoryStore;
pub use model::{
    ErrorCategory, Model, ModelError, ModelEvent, ModelInfo, ModelReply, ModelRequest, ModelResolver, ModelSettings, ModelStream, Prices,
    ResolveError, ToolChoice,
};
pub use permissions::{ModeSource, PermissionEntry, RuleWhen, WhenCall};
pub use registry::{Registry, RegistryError};
pub use run::{Canceller, Reply, RunControl, RunStream};
pub use seal::{ENCRYPTION_KEY, OWN_ENCRYPTION_KEY};
pub use stage::{Check, GateCall, Stage, StageKind};
pub use store::{
    Answer, Append, BlobId, CLAIM_LIMIT, Claim, DataStore, FileChange, FileEntry, InboxItem, Page, Posted, Shelf, Snapshot, Store,
    StoreError, ThreadQuery, read_cursor,
};
pub use summarize::{DEFAULT_SUMMARY_PROMPT, DEFAULT_SUMMARY_TOKENS, Summarize, TwoPhase};
pub use thread::ThreadHandle;
pub use threads::Threads;
pub use worker::Worker;
