//! A tool's body, behind one object-safe trait.

use std::pin::Pin;

use futures_core::Stream;
use futures_util::future::BoxFuture;
use serde_json::Value;
use toolwright_core::{Issue, ToolOutput};

use crate::context::ToolContext;
use crate::error::ToolError;

/// Work for the blocking pool.
pub type BlockingWork = Box<dyn FnOnce() -> Result<ToolOutput, ToolError> + Send>;

/// A body that has begun.
pub enum Running {
    /// Runs on the async runtime.
    Future(BoxFuture<'static, Result<ToolOutput, ToolError>>),
    /// Takes its extractors on the async runtime, then runs on the blocking pool.
    Blocking(BoxFuture<'static, Result<BlockingWork, ToolError>>),
    /// Shows each item as a snapshot; the last one is the result (sdk-tools 8.1).
    Stream(Pin<Box<dyn Stream<Item = Result<Value, ToolError>> + Send>>),
}

/// A tool's body.
pub trait ToolBody: Send + Sync + 'static {
    /// Whether arguments that the schema holds for also decode into the body's types; every issue with its path.
    fn check(&self, args: &Value) -> Result<(), Vec<Issue>>;

    /// Begins. Only the runtime's `dispatch` calls this (invariant 5).
    fn begin(&self, cx: ToolContext) -> Running;
}
