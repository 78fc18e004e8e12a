//! Hooks: trusted code of the application that watches and changes calls of tools and of the model (sdk-tools 17).

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use toolwright_core::{Failure, Outcome, RunId, ThreadId, ToolOutput, ToolSpec};
use toolwright_tool::{Identity, ToolContext, ToolError};

use crate::model::{Model, ModelError, ModelReply, ModelRequest};
use crate::side::Aside;

/// What a hook says before a call. Only [`BeforeCall::Pass`] lets it go on as it is; a value that is made has to be returned.
#[must_use = "a decision counts only where it is returned"]
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum BeforeCall {
    /// Nothing.
    #[default]
    Pass,
    /// The call does not run, and the model reads why. Later hooks are not asked.
    Deny(String),
    /// The result is this; the body does not run. Later hooks are not asked.
    Answer(ToolOutput),
    /// Other arguments, which are read and validated like the model's. Later hooks see them.
    Rewrite(Value),
}

/// What a hook says about a call's end.
#[must_use = "a decision counts only where it is returned"]
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum AfterCall {
    /// Nothing.
    #[default]
    Keep,
    /// The end is this. The one it had is kept nowhere; later hooks see this one.
    Replace(Outcome),
}

/// What a hook says before a model call.
#[must_use = "a decision counts only where it is returned"]
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum BeforeGenerate {
    /// Nothing.
    #[default]
    Pass,
    /// The model gets this request. The transcript stays as it is; later hooks see this request.
    Request(Box<ModelRequest>),
}

/// A call of a tool as a hook sees it.
pub struct HookCall<'a> {
    pub(crate) spec: &'a Arc<ToolSpec>,
    pub(crate) cx: &'a ToolContext,
    pub(crate) resumed: bool,
    pub(crate) metadata: &'a Map<String, Value>,
    pub(crate) aside: &'a Aside,
}

impl HookCall<'_> {
    /// The tool.
    pub fn spec(&self) -> &Arc<ToolSpec> {
        self.spec
    }

    /// The call's facts: its arguments, as hooks before this one left them; the transcript before its turn; who the run acts for.
    pub fn cx(&self) -> &ToolContext {
        self.cx
    }

    /// Whether somebody has approved the call, and the gate runs once more: what counts calls skips it.
    pub fn resumed_after_approval(&self) -> bool {
        self.resumed
    }

    /// The application's own data about the run.
    pub fn metadata(&self) -> &Map<String, Value> {
        self.metadata
    }

    /// Asks a model. What it uses counts for the run and its budgets.
    pub async fn generate(&self, model: &dyn Model, request: ModelRequest) -> Result<ModelReply, ModelError> {
        self.aside.ask(model, request).await
    }
}

/// A model call as a hook sees it, beside the request or the reply.
pub struct GenerateContext<'a> {
    pub(crate) agent: &'a str,
    pub(crate) step: u32,
    pub(crate) principal: Option<&'a Identity>,
    pub(crate) metadata: &'a Map<String, Value>,
    pub(crate) aside: &'a Aside,
}

impl GenerateContext<'_> {
    /// The agent's name.
    pub fn agent(&self) -> &str {
        self.agent
    }

    /// The step, from 1.
    pub fn step(&self) -> u32 {
        self.step
    }

    /// The thread.
    pub fn thread_id(&self) -> Option<&ThreadId> {
        self.aside.thread.as_ref()
    }

    /// The run.
    pub fn run_id(&self) -> Option<&RunId> {
        self.aside.run.as_ref()
    }

    /// Who the run acts for.
    pub fn principal(&self) -> Option<&Identity> {
        self.principal
    }

    /// The application's own data about the run.
    pub fn metadata(&self) -> &Map<String, Value> {
        self.metadata
    }

    /// Asks a model. What it uses counts for the run and its budgets.
    pub async fn generate(&self, model: &dyn Model, request: ModelRequest) -> Result<ModelReply, ModelError> {
        self.aside.ask(model, request).await
    }
}

/// Trusted code that watches and changes calls. Every point is optional; hooks run in the order they were given, one at a time.
///
/// An error, or a panic, ends the run with an error: it is no refusal, and never a yes.
///
/// ```
/// use futures_util::future::BoxFuture;
/// use toolwright_runtime::{BeforeCall, Hook, HookCall};
/// use toolwright_tool::ToolError;
///
/// /// Nothing is sent at night.
/// struct NightRest;
///
/// impl Hook for NightRest {
///     fn name(&self) -> &str {
///         "night-rest"
///     }
///
///     fn pre_tool_call<'a>(&'a self, call: &'a HookCall<'a>) -> BoxFuture<'a, Result<BeforeCall, ToolError>> {
///         let sends = call.spec().name.as_str().starts_with("send_");
///         let says = if sends { BeforeCall::Deny("nothing is sent at night".to_owned()) } else { BeforeCall::Pass };
///         Box::pin(std::future::ready(Ok(says)))
///     }
/// }
/// ```
pub trait Hook: Send + Sync + 'static {
    /// What messages, events and the audit call it.
    fn name(&self) -> &str;

    /// Before a call runs: after its arguments were read, before rules. Also before calls that were approved, and those that no model
    /// asked for.
    fn pre_tool_call<'a>(&'a self, _call: &'a HookCall<'a>) -> BoxFuture<'a, Result<BeforeCall, ToolError>> {
        Box::pin(std::future::ready(Ok(BeforeCall::Pass)))
    }

    /// After a call ended: by its body, or because it was refused or answered. Not while somebody still has to decide.
    fn post_tool_call<'a>(&'a self, _call: &'a HookCall<'a>, _outcome: &'a Outcome) -> BoxFuture<'a, Result<AfterCall, ToolError>> {
        Box::pin(std::future::ready(Ok(AfterCall::Keep)))
    }

    /// Before each model call of the agent.
    fn pre_generate<'a>(
        &'a self,
        _cx: &'a GenerateContext<'a>,
        _request: &'a ModelRequest,
    ) -> BoxFuture<'a, Result<BeforeGenerate, ToolError>> {
        Box::pin(std::future::ready(Ok(BeforeGenerate::Pass)))
    }

    /// After each reply of the model, before guardrails look at it.
    fn post_generate<'a>(&'a self, _cx: &'a GenerateContext<'a>, _reply: &'a ModelReply) -> BoxFuture<'a, Result<(), ToolError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// The hooks of an agent, in order; no two of one name.
#[derive(Clone, Default)]
pub(crate) struct Hooks {
    all: Arc<Vec<Arc<dyn Hook>>>,
}

impl Hooks {
    /// One more; in the place of one that has its name (sdk-tools 17.2/10).
    pub(crate) fn add(&mut self, hook: Arc<dyn Hook>) {
        let all = Arc::make_mut(&mut self.all);
        match all.iter_mut().find(|there| there.name() == hook.name()) {
            Some(there) => {
                tracing::warn!(hook = hook.name(), "two hooks have one name; the later one takes the place of the earlier");
                *there = hook;
            }
            None => all.push(hook),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<dyn Hook>> {
        self.all.iter()
    }
}

/// What a hook or guardrail said, or that it panicked.
pub(crate) async fn said<T>(asked: BoxFuture<'_, Result<T, ToolError>>) -> Result<T, ToolError> {
    AssertUnwindSafe(asked).catch_unwind().await.unwrap_or_else(|panic| Err(crate::dispatch::panicked(&*panic)))
}

/// As [`said`], for code that may panic before it gives its future.
pub(crate) async fn asked<'a, T>(ask: impl FnOnce() -> BoxFuture<'a, Result<T, ToolError>>) -> Result<T, ToolError> {
    match std::panic::catch_unwind(AssertUnwindSafe(ask)) {
        Ok(asked) => said(asked).await,
        Err(panic) => Err(crate::dispatch::panicked(&*panic)),
    }
}

/// The failure of a run that a hook or guardrail failed.
pub(crate) fn thrown(what: &str, name: &str, error: &ToolError) -> Failure {
    Failure {
        name: error.name().to_owned(),
        message: format!("the {what} `{name}` failed: {}", error.message()),
        code: Some("TOOLWRIGHT_AGENT_EXECUTION_FAILED".to_owned()),
    }
}
