//! The tools of one service: what they have in common.

use std::future::Future;
use std::sync::Arc;

use serde_json::Value;
use toolwright_tool::{OnInterrupt, Tool, ToolArg, ToolContext, ToolError};

use super::http::{Api, Session};
use super::option::OptionError;
use super::shape::compact;

/// What a tool does to a service.
#[derive(Clone, Copy)]
pub(super) enum Access {
    /// Nothing changes.
    Reads,
    /// Something is added or moved on; again, it would be again.
    Adds,
    /// Again, nothing more would change.
    Sets,
}

/// Makes the tools of a service.
pub(super) struct ToolSet {
    api: Arc<Api>,
}

impl ToolSet {
    pub(super) fn new(api: Api) -> Self {
        Self { api: Arc::new(api) }
    }

    pub(super) fn tool<T, F, Fut>(&self, name: &str, description: &str, access: Access, body: F) -> Result<Tool, OptionError>
    where
        T: ToolArg,
        F: Fn(Hub, T) -> Fut + Copy + Send + Sync + 'static,
        Fut: Future<Output = Result<Value, ToolError>> + Send + 'static,
    {
        self.tool_with(&Arc::new(()), name, description, access, move |hub, _, args| body(hub, args))
    }

    /// A tool whose body gets what the options allow.
    pub(super) fn tool_with<L, T, F, Fut>(
        &self,
        limits: &Arc<L>,
        name: &str,
        description: &str,
        access: Access,
        body: F,
    ) -> Result<Tool, OptionError>
    where
        L: Send + Sync + 'static,
        T: ToolArg,
        F: Fn(Hub, Arc<L>, T) -> Fut + Copy + Send + Sync + 'static,
        Fut: Future<Output = Result<Value, ToolError>> + Send + 'static,
    {
        let mut builder = Tool::new(name, description).open_world().timeout(self.api.times().of_tool());
        builder = match access {
            Access::Reads => builder.read_only(),
            // After a crash in its middle nobody knows whether it was done.
            Access::Adds => builder.needs_approval().on_interrupt(OnInterrupt::Ask),
            Access::Sets => builder.needs_approval().idempotent(),
        };
        let required = !(matches!(access, Access::Reads) && self.api.reads_without());
        if let Some(need) = self.api.credential().need(&format!("A token for {}.", self.api.service.name)) {
            builder = builder.env_need(if required { need } else { need.optional() });
        }
        let (api, limits) = (Arc::clone(&self.api), Arc::clone(limits));
        let tool = builder.run_with(move |args: T, cx: ToolContext| {
            let hub = Hub { api: Arc::clone(&api), cx };
            let there = if required { api.credential().required(&hub.cx, api.service.name).map(drop) } else { Ok(()) };
            let limits = Arc::clone(&limits);
            async move {
                there?;
                body(hub, limits, args).await.map(compact)
            }
        })?;
        Ok(tool)
    }
}

/// A service within one call of a tool.
pub(super) struct Hub {
    pub(super) api: Arc<Api>,
    pub(super) cx: ToolContext,
}

impl Hub {
    /// The requests of the call, with the credential.
    pub(super) fn session(&self) -> Session<'_> {
        self.api.session(&self.cx)
    }
}
