//! The agent, its driver, and the one dispatch of tool calls.

mod model;

pub use model::{
    ErrorCategory, Model, ModelError, ModelEvent, ModelInfo, ModelReply, ModelRequest, ModelResolver, ModelSettings, ModelStream, Prices,
    ResolveError, ToolChoice,
};
