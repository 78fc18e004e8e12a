//! Guardrails: checks of what goes into a run, comes out of it, into a tool and out of a tool (sdk-tools 27).
//!
//! ```
//! use toolwright_runtime::guard::{self, Guardrails};
//!
//! let guardrails = Guardrails::new()
//!     .input(guard::max_length(10_000))
//!     .input(guard::prompt_injection())
//!     .output(guard::secrets())
//!     .tool(guard::pii().types([guard::Pii::CreditCard]))
//!     .result(guard::pii().rewrites());
//! ```

mod builtin;
mod judged;
mod run;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use toolwright_core::{RunId, ThreadId, Transcript};
use toolwright_tool::{Identity, ToolContext, ToolError};

pub use toolwright_core::screen::Pii;

pub use self::builtin::{
    DenyTopics, MaxLength, Pattern, PiiCheck, PromptInjection, SecretsCheck, deny_topics, max_length, pii, prompt_injection, regex, secrets,
};
pub use self::judged::{LlmJudge, Moderation, llm_judge, moderation};
pub(crate) use self::run::{Around, Checked};
use crate::model::{Model, ModelError, ModelReply, ModelRequest};
use crate::side::Aside;

/// What a guardrail checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GuardrailKind {
    /// Text that came in, before a model sees it.
    Input,
    /// Text that the model wrote, before anybody sees it.
    Output,
    /// Arguments of a call, as JSON, before it runs.
    Tool,
    /// The result of a call, before the model sees it.
    Result,
}

impl GuardrailKind {
    /// Its word in events.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Output => "output",
            Self::Tool => "tool",
            Self::Result => "result",
        }
    }
}

/// What a guardrail says. Offsets in `info` refer to the text that was checked, in bytes; matched text has no place in it.
#[must_use = "a verdict counts only where it is returned"]
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum GuardrailVerdict {
    /// Nothing is wrong.
    Pass,
    /// The run ends.
    Block {
        /// Why, for people and logs.
        reason: String,
        /// Types and offsets.
        info: Option<Value>,
    },
    /// The text is replaced, and what follows sees the replacement. For arguments of a tool it has to be JSON.
    Rewrite {
        /// The new text.
        replacement: String,
        /// Why, for people and logs.
        reason: String,
        /// Types and offsets.
        info: Option<Value>,
    },
}

impl GuardrailVerdict {
    /// The run ends.
    pub fn block(reason: impl Into<String>) -> Self {
        Self::Block { reason: reason.into(), info: None }
    }

    /// The text is replaced.
    pub fn rewrite(replacement: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Rewrite { replacement: replacement.into(), reason: reason.into(), info: None }
    }

    /// With types and offsets; never the text itself.
    pub fn with_info(self, info: Value) -> Self {
        match self {
            Self::Pass => Self::Pass,
            Self::Block { reason, .. } => Self::Block { reason, info: Some(info) },
            Self::Rewrite { replacement, reason, .. } => Self::Rewrite { replacement, reason, info: Some(info) },
        }
    }
}

/// What is to be checked. Cheap to clone.
#[derive(Clone)]
pub struct GuardrailContext {
    kind: GuardrailKind,
    text: Arc<str>,
    messages: Transcript,
    call: Option<ToolContext>,
    principal: Option<Arc<Identity>>,
    aside: Aside,
}

impl GuardrailContext {
    /// What the text is.
    pub fn kind(&self) -> GuardrailKind {
        self.kind
    }

    /// The text, as guardrails before this one left it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The transcript. For a call it is that before the calling turn.
    pub fn messages(&self) -> &Transcript {
        &self.messages
    }

    /// The facts of the call, where the text is of one.
    pub fn call(&self) -> Option<&ToolContext> {
        self.call.as_ref()
    }

    /// The tool, where the text is of a call.
    pub fn tool_name(&self) -> Option<&str> {
        self.call.as_ref().map(ToolContext::tool_name)
    }

    /// The arguments, where the text is of a call.
    pub fn args(&self) -> Option<&Value> {
        self.call.as_ref().map(|call| call.args().value())
    }

    /// Who the run acts for.
    pub fn principal(&self) -> Option<&Identity> {
        self.principal.as_deref()
    }

    /// The thread.
    pub fn thread_id(&self) -> Option<&ThreadId> {
        self.aside.thread.as_ref()
    }

    /// The run.
    pub fn run_id(&self) -> Option<&RunId> {
        self.aside.run.as_ref()
    }

    /// Fires when nobody waits for the verdict any more.
    pub fn cancelled(&self) -> CancellationToken {
        self.aside.cancelled.clone()
    }

    /// Asks a model. What it uses counts for the run and its budgets.
    pub async fn generate(&self, model: &dyn Model, request: ModelRequest) -> Result<ModelReply, ModelError> {
        self.aside.ask(model, request).await
    }
}

/// A check. An error, or a panic, fails the run: it is no pass.
pub trait Guardrail: Send + Sync + 'static {
    /// What results and events call it.
    fn name(&self) -> &str;

    /// Looks at a text.
    fn check(&self, cx: GuardrailContext) -> BoxFuture<'_, Result<GuardrailVerdict, ToolError>>;

    /// Whether the check of input runs beside the first model call, whose words and calls are held back until it passes. A rewrite
    /// then blocks. For input only.
    fn run_in_parallel(&self) -> bool {
        false
    }
}

/// A guardrail of a function.
///
/// ```
/// use toolwright_runtime::guard::{self, GuardrailVerdict};
///
/// let polite = guard::from_fn("polite", |cx| async move {
///     Ok(if cx.text().contains("!!!") { GuardrailVerdict::block("no shouting") } else { GuardrailVerdict::Pass })
/// });
/// ```
pub fn from_fn<F, W>(name: impl Into<String>, check: F) -> impl Guardrail
where
    F: Fn(GuardrailContext) -> W + Send + Sync + 'static,
    W: Future<Output = Result<GuardrailVerdict, ToolError>> + Send + 'static,
{
    FromFn { name: name.into(), check }
}

struct FromFn<F> {
    name: String,
    check: F,
}

impl<F, W> Guardrail for FromFn<F>
where
    F: Fn(GuardrailContext) -> W + Send + Sync + 'static,
    W: Future<Output = Result<GuardrailVerdict, ToolError>> + Send + 'static,
{
    fn name(&self) -> &str {
        &self.name
    }

    fn check(&self, cx: GuardrailContext) -> BoxFuture<'_, Result<GuardrailVerdict, ToolError>> {
        Box::pin((self.check)(cx))
    }
}

/// A guardrail that runs beside the first model call.
pub fn in_parallel(guardrail: impl Guardrail) -> impl Guardrail {
    InParallel(guardrail)
}

struct InParallel<G>(G);

impl<G: Guardrail> Guardrail for InParallel<G> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn check(&self, cx: GuardrailContext) -> BoxFuture<'_, Result<GuardrailVerdict, ToolError>> {
        self.0.check(cx)
    }

    fn run_in_parallel(&self) -> bool {
        true
    }
}

impl<G: Guardrail + ?Sized> Guardrail for Arc<G> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn check(&self, cx: GuardrailContext) -> BoxFuture<'_, Result<GuardrailVerdict, ToolError>> {
        (**self).check(cx)
    }

    fn run_in_parallel(&self) -> bool {
        (**self).run_in_parallel()
    }
}

/// What happens when a guardrail blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnTripped {
    /// The run ends with the reason `guardrail`.
    #[default]
    Stop,
    /// The run fails, with the code `TOOLWRIGHT_GUARDRAIL_TRIPPED`.
    Throw,
}

/// The guardrails of an agent, each kind in order. A rewrite feeds the next one.
#[derive(Clone, Default)]
pub struct Guardrails {
    pub(crate) input: Vec<Arc<dyn Guardrail>>,
    pub(crate) output: Vec<Arc<dyn Guardrail>>,
    pub(crate) tool: Vec<Arc<dyn Guardrail>>,
    pub(crate) result: Vec<Arc<dyn Guardrail>>,
    pub(crate) on_tripped: OnTripped,
}

impl std::fmt::Debug for Guardrails {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = |list: &[Arc<dyn Guardrail>]| list.iter().map(|guardrail| guardrail.name().to_owned()).collect::<Vec<_>>();
        f.debug_struct("Guardrails")
            .field("input", &names(&self.input))
            .field("output", &names(&self.output))
            .field("tool", &names(&self.tool))
            .field("result", &names(&self.result))
            .field("on_tripped", &self.on_tripped)
            .finish()
    }
}

impl Guardrails {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// One more on what comes in: each new message of a person, before a model sees it.
    #[must_use]
    pub fn input(mut self, guardrail: impl Guardrail) -> Self {
        self.input.push(Arc::new(guardrail));
        self
    }

    /// One more on the text of each of the model's replies. Nothing of a reply is streamed before it was checked.
    #[must_use]
    pub fn output(mut self, guardrail: impl Guardrail) -> Self {
        self.output.push(Arc::new(guardrail));
        self
    }

    /// One more on the arguments of calls: after rules, before the tool's own `needs_approval`.
    #[must_use]
    pub fn tool(mut self, guardrail: impl Guardrail) -> Self {
        self.tool.push(Arc::new(guardrail));
        self
    }

    /// One more on what tools give: after post-call hooks, before anything of it is recorded.
    #[must_use]
    pub fn result(mut self, guardrail: impl Guardrail) -> Self {
        self.result.push(Arc::new(guardrail));
        self
    }

    /// What happens when one blocks; the run ends with `guardrail` by default.
    #[must_use]
    pub fn on_tripped(mut self, on_tripped: OnTripped) -> Self {
        self.on_tripped = on_tripped;
        self
    }

    /// These, and then those of another.
    #[must_use]
    pub(crate) fn and(mut self, more: Self) -> Self {
        self.input.extend(more.input);
        self.output.extend(more.output);
        self.tool.extend(more.tool);
        self.result.extend(more.result);
        self.on_tripped = more.on_tripped;
        self
    }

    /// Whether input is checked before a model is asked.
    pub(crate) fn checks_input(&self) -> bool {
        self.input.iter().any(|guardrail| !guardrail.run_in_parallel())
    }

    /// Whether input is checked beside the model call.
    pub(crate) fn races_input(&self) -> bool {
        self.input.iter().any(Guardrail::run_in_parallel)
    }

    /// Whether calls are looked at.
    pub(crate) fn watches_calls(&self) -> bool {
        !(self.tool.is_empty() && self.result.is_empty())
    }
}
