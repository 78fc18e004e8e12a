//! What a crate of tools depends on: [`Tool`], [`FromCall`] and its extractors, [`ToolContext`], [`ToolError`].
//!
//! A tool is a function; its signature says what it needs:
//!
//! ```
//! use toolwright_tool::prelude::*;
//!
//! /// Adds two numbers.
//! #[tool(read_only)]
//! async fn add(
//!     /// The first number.
//!     a: i64,
//!     /// The second number.
//!     b: i64,
//! ) -> i64 {
//!     a + b
//! }
//!
//! let tools = tools![add];
//! assert_eq!(tools[0].name().as_str(), "add");
//! ```

// So that what the macros write finds this crate from within, and from its tests, by one path.
#[allow(unused_extern_crates, reason = "the paths are in generated code")]
extern crate self as toolwright_tool;

mod approval;
mod body;
mod context;
mod define;
mod error;
mod extract;
mod files;
mod keep;
#[doc(hidden)]
pub mod macro_support;
mod output;
mod require;
mod state;
mod values;

pub use approval::{ApprovalOutcome, ApprovalPolicy, ApprovalRequest, NeedsApproval};
pub use body::{BlockingWork, Running, ToolBody};
pub use context::{Approval, ContextParts, EnvSource, Identity, PrincipalKind, ReadNotes, Snapshots, ToolContext};
pub use define::{DefinitionError, Tool, ToolBuilder, ToolDef, schema_of};
pub use error::ToolError;
pub use extract::{Args, CallId, Ctx, Env, EnvView, Files, FromCall, Principal, Progress, ProgressSender, State, ToolArg, Values};
pub use files::{Content, FileKind, FileOptions, FileStats, GrepHit, ThreadFiles, Walk, ending_of, is_text, media_type_of};
pub use keep::{Keep, KeepLimits, Kept, MemoryKeep, Tree};
pub use output::IntoToolResult;
pub use require::{Need, Requirements};
pub use state::{DuplicateState, StateMap};
pub use toolwright_core as core;
pub use toolwright_core::taint::PrivateSource;
pub use toolwright_core::{Annotations, FileEntry, OnInterrupt, Part, ToolFailureKind, ToolName, ToolOutput, ToolSpec};
pub use toolwright_macros::{args, tool, tools};
pub use values::ThreadValues;

/// What a file of tools imports.
pub mod prelude {
    pub use crate::{
        ApprovalOutcome, Args, CallId, Ctx, Env, FileKind, FileOptions, Files, FromCall, Part, Principal, Progress, Requirements, State,
        Tool, ToolContext, ToolDef, ToolError, ToolFailureKind, ToolOutput, Values, args, tool, tools,
    };
}
