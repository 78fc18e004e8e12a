//! Where an agent's permission mode comes from.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use toolwright_core::policy::PermissionMode;
use toolwright_tool::ToolError;

use crate::dispatch::panicked;

/// An agent's permission mode: one, or what a function says at each call.
#[derive(Clone)]
pub enum ModeSource {
    /// Always this one.
    Fixed(PermissionMode),
    /// Read at every call.
    Function(Arc<dyn Fn() -> PermissionMode + Send + Sync>),
}

impl Default for ModeSource {
    fn default() -> Self {
        Self::Fixed(PermissionMode::Default)
    }
}

impl From<PermissionMode> for ModeSource {
    fn from(mode: PermissionMode) -> Self {
        Self::Fixed(mode)
    }
}

impl<F: Fn() -> PermissionMode + Send + Sync + 'static> From<F> for ModeSource {
    fn from(function: F) -> Self {
        Self::Function(Arc::new(function))
    }
}

impl ModeSource {
    /// The mode now. A function that panics says nothing, which is no yes.
    pub(super) fn now(&self) -> Result<PermissionMode, ToolError> {
        match self {
            Self::Fixed(mode) => Ok(*mode),
            Self::Function(function) => catch_unwind(AssertUnwindSafe(|| function())).map_err(|panic| panicked(&*panic)),
        }
    }
}
