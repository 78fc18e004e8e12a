//! Vocabulary and decisions of Toolwright.
//!
//! No I/O, no clock, no randomness, no async: time and ids come in with records (invariant 1 of ARCHITECTURE.md).

pub mod args;
pub mod codes;
pub mod compact;
pub mod json;
pub mod policy;
pub mod query;
pub mod rank;
pub mod redact;
pub mod schema;
pub mod screen;
pub mod taint;
pub mod tokens;

mod budget;
mod checked;
mod decision;
mod event;
mod failure;
mod file;
mod fingerprint;
mod finish;
mod ids;
mod message;
mod name;
mod next;
mod notes;
mod output;
mod path;
mod project;
mod record;
mod reshape;
mod saved;
mod spec;
mod state;
mod text;
mod thread;
mod trajectory;
mod transcript;
mod usage;
mod words;

pub use budget::{Budget, BudgetScope, Budgets, OnExceeded, Spent};
pub use checked::with_text;
pub use decision::{ApprovalAsk, ApprovalMark, AskKind, Decision, DecisionVerdict, Remember, Remembered};
pub use event::{CompactionError, EVENT_VERSION, ErrorBody, Event, EventKind, EventUsage, Todo, TodoCounts, TodoStatus, is_event};
pub use failure::{ToolFailure, ToolFailureKind};
pub use file::{AttachmentRef, BLOB_SCHEME, BlobId, BlobRef, FileChange, FileEntry, FileStorage};
pub use fingerprint::{Drift, Fingerprint};
pub use finish::{AbortReason, BudgetTrip, Failure, FinishReason, GuardrailTrip, StepFinish};
pub use ids::{ApprovalId, CallId, InputId, InvalidThreadId, RunId, Seq, ThreadId, Timestamp};
pub use message::{ArgsState, Author, CallItem, Input, Item, Message, Part, ResultItem, Role, Side};
pub use name::{InvalidToolName, ToolName};
pub use next::{Action, Key};
pub use notes::{GateNotes, PermissionNote, PermissionWord, ResultNotes, RewriteNote, RuleMatch, ShadowNote};
pub use output::ToolOutput;
pub use path::{FilePath, InvalidPath, sanitized_name};
pub use project::project;
pub use record::{
    CallOpening, CallOrigin, Compaction, Delegation, Ending, Folded, InputMode, Outcome, RECORD_VERSION, Record, RecordBody,
    RewrittenInput, RunCause, RunLimits, Verdict,
};
pub use reshape::{SUMMARY_HEADER, pruned_marker};
pub use saved::{Saved, SavedError};
pub use schema::Issue;
pub use spec::{Annotations, ArgsExample, EnvNeed, OnInterrupt, ToolOrigin, ToolSpec};
pub use state::{Call, CallState, GatedArgs, LastRun, Measured, QueuedInput, Run};
pub use text::{TRUNCATION_MARKER, bounded, cut, hex, sha256_hex};
#[cfg(feature = "planted-bugs")]
pub use thread::FoldBug;
pub use thread::{Misfit, Thread};
pub use trajectory::{Comparison, HistoryCall, HistoryStep, Trajectory, TrajectoryDrift, compare, end_of_step};
pub use transcript::{Transcript, Unbalanced};
pub use usage::{SideUsage, Usage};
