//! How the runtime reaches models: one object-safe trait.

use std::sync::Arc;

use futures_util::stream::BoxStream;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;
use toolwright_core::{FinishReason, Item, RunId, Side, ThreadId, ToolSpec, Transcript, Usage};

/// What is known of a model. Unknown figures are absent, never guessed.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelInfo {
    /// The provider's name, such as `openai`.
    pub provider: String,
    /// The model's name at its provider.
    pub model: String,
    /// Tokens that fit in a request and its reply together.
    pub context_window: Option<u64>,
    /// What tokens cost.
    pub prices: Option<Prices>,
}

impl ModelInfo {
    /// A model of which only the names are known.
    pub fn new(provider: impl Into<String>, model: impl Into<String>) -> Self {
        Self { provider: provider.into(), model: model.into(), context_window: None, prices: None }
    }

    /// `provider/model`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.provider, self.model)
    }
}

/// Prices in US dollars per million tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prices {
    /// Of tokens read.
    pub input: f64,
    /// Of tokens written.
    pub output: f64,
    /// Of tokens read from a provider's cache.
    pub cached_input: Option<f64>,
}

impl Prices {
    /// What `usage` costs.
    pub fn cost(&self, usage: &Usage) -> f64 {
        let cached = usage.cached_input_tokens.unwrap_or(0).min(usage.input_tokens);
        let fresh = usage.input_tokens - cached;
        (fresh as f64 * self.input + cached as f64 * self.cached_input.unwrap_or(self.input) + usage.output_tokens as f64 * self.output)
            / 1e6
    }
}

/// Which tool a model has to call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model chooses.
    #[default]
    Auto,
    /// At least one tool.
    Required,
    /// No tool.
    None,
    /// This tool.
    Tool(String),
}

/// Sampling settings. What is absent is not sent, so a provider's defaults stand (sdk-runtime SET-2).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelSettings {
    /// Longest reply, in tokens.
    pub max_tokens: Option<u32>,
    /// 0 to 2.
    pub temperature: Option<f64>,
    /// 0 to 1.
    pub top_p: Option<f64>,
    /// -2 to 2.
    pub frequency_penalty: Option<f64>,
    /// -2 to 2.
    pub presence_penalty: Option<f64>,
    /// Texts that end the reply.
    pub stop: Option<Vec<String>>,
    /// For repeatable sampling, where a provider has it.
    pub seed: Option<u64>,
    /// Which tool has to be called.
    pub tool_choice: Option<ToolChoice>,
    /// Merged into the request last, by provider name.
    pub provider_options: Map<String, Value>,
}

/// One request to a model. Everything in it is shared, so making it costs no copy of the transcript.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    /// The instructions.
    pub instructions: Arc<str>,
    /// The transcript; balanced (invariant 2).
    pub messages: Transcript,
    /// The side that speaks: its own messages are the assistant's.
    pub acting: Side,
    /// The tools on offer, in registration order.
    pub tools: Arc<[Arc<ToolSpec>]>,
    /// Sampling settings.
    pub settings: Arc<ModelSettings>,
    /// The thread, for logs and caches.
    pub thread: Option<ThreadId>,
    /// The run.
    pub run: Option<RunId>,
    /// The step, from 1.
    pub step: u32,
    /// Today's date as the runtime's clock has it (`2026-11-30`); a model without a clock may need it.
    pub today: Arc<str>,
    /// Fires when the reply is no longer wanted.
    pub cancelled: CancellationToken,
}

impl ModelRequest {
    /// A request of one's own, beside a run's: instructions and messages, no tools. Whoever sends it fills in the rest.
    pub fn asking(instructions: impl Into<Arc<str>>, messages: Transcript) -> Self {
        Self {
            instructions: instructions.into(),
            messages,
            acting: Side::A,
            tools: Arc::from([]),
            settings: Arc::default(),
            thread: None,
            run: None,
            step: 0,
            today: Arc::from(""),
            cancelled: CancellationToken::new(),
        }
    }

    /// With one more paragraph of instructions.
    #[must_use]
    pub fn with_system(mut self, paragraph: &str) -> Self {
        self.instructions = format!("{}\n\n{paragraph}", self.instructions).into();
        self
    }

    /// Without the tools of these names.
    #[must_use]
    pub fn without_tools(mut self, names: &[&str]) -> Self {
        self.tools = self.tools.iter().filter(|tool| !names.contains(&tool.name.as_str())).cloned().collect();
        self
    }
}

/// A piece of a reply, or the whole of it at the end.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ModelEvent {
    /// A piece of text.
    TextDelta(String),
    /// A piece of reasoning.
    ReasoningDelta(String),
    /// A piece of a call's arguments.
    CallDelta {
        /// Position of the call in the reply.
        index: u32,
        /// The tool's name, once known.
        name: Option<String>,
        /// The piece.
        arguments: String,
    },
    /// The reply, complete; the last event. A stream that ends without it has failed.
    Done(ModelReply),
}

/// A model's reply.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelReply {
    /// What it said, in the order received. Ids of calls are given later, by the thread.
    pub items: Vec<Item>,
    /// How it ended, in the closed set.
    pub finish: FinishReason,
    /// What it used, where reported.
    pub usage: Option<Usage>,
    /// The model that replied, as the provider names it.
    pub model: Option<String>,
}

/// Why a model did not reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{provider}: {message}")]
pub struct ModelError {
    /// Who failed.
    pub provider: String,
    /// One sentence, at most 500 characters.
    pub message: String,
    /// Which of five categories.
    pub category: ErrorCategory,
    /// The HTTP status, if there was one.
    pub status: Option<u16>,
    /// The provider's id of the request.
    pub request_id: Option<String>,
    /// How long the provider asks to wait.
    pub retry_after_ms: Option<u64>,
}

/// The categories of a provider's failure (sdk-tools 33.1/6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorCategory {
    /// Too many requests.
    RateLimit,
    /// No answer in time.
    Timeout,
    /// The request does not fit the model's window.
    ContextLengthExceeded,
    /// The key was refused.
    AuthFailure,
    /// Anything else.
    Unknown,
}

impl ErrorCategory {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RateLimit => "rate-limit",
            Self::Timeout => "timeout",
            Self::ContextLengthExceeded => "context-length-exceeded",
            Self::AuthFailure => "auth-failure",
            Self::Unknown => "unknown",
        }
    }
}

impl ModelError {
    /// The longest message, in characters.
    pub const MAX_MESSAGE: usize = 500;

    /// A failure outside the known categories.
    pub fn new(provider: impl Into<String>, message: &str) -> Self {
        Self {
            provider: provider.into(),
            message: toolwright_core::bounded(message, Self::MAX_MESSAGE),
            category: ErrorCategory::Unknown,
            status: None,
            request_id: None,
            retry_after_ms: None,
        }
    }

    /// In a category.
    #[must_use]
    pub fn in_category(mut self, category: ErrorCategory) -> Self {
        self.category = category;
        self
    }

    /// The stable code (sdk-tools 33.2).
    pub fn code(&self) -> &'static str {
        match self.category {
            ErrorCategory::RateLimit => "TOOLWRIGHT_PROVIDER_RATE_LIMITED",
            ErrorCategory::Timeout => "TOOLWRIGHT_OPERATION_TIMEOUT",
            _ => "TOOLWRIGHT_PROVIDER_REQUEST_FAILED",
        }
    }
}

/// A reply as it comes in.
pub type ModelStream = BoxStream<'static, Result<ModelEvent, ModelError>>;

/// A model. Object-safe; the runtime knows no model by name.
///
/// One call of [`Model::stream`] is one model turn (sdk-runtime LOOP-7). The stream ends with [`ModelEvent::Done`] or an error;
/// the runtime puts its own deadline around it and stops reading when the request is cancelled.
pub trait Model: Send + Sync + 'static {
    /// What is known of it.
    fn info(&self) -> ModelInfo;

    /// Asks, and streams the reply.
    fn stream(&self, request: ModelRequest) -> ModelStream;

    /// Roughly how many tokens the request has, where the model can tell.
    fn estimate_tokens(&self, _request: &ModelRequest) -> Option<u64> {
        None
    }
}

impl<M: Model + ?Sized> Model for Arc<M> {
    fn info(&self) -> ModelInfo {
        (**self).info()
    }

    fn stream(&self, request: ModelRequest) -> ModelStream {
        (**self).stream(request)
    }

    fn estimate_tokens(&self, request: &ModelRequest) -> Option<u64> {
        (**self).estimate_tokens(request)
    }
}

/// Why a model's name did not lead to a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ResolveError {
    /// One sentence that names the model and says what to do.
    pub message: String,
    /// The stable code: `TOOLWRIGHT_PROVIDER_SPEC_INVALID`, `_UNKNOWN`, `_MISSING_API_KEY`, or another of the provider codes.
    pub code: &'static str,
}

/// Turns a name such as `openai/gpt-5` or `local` into a model.
///
/// `None` means "not one of mine": the next resolver is asked.
pub trait ModelResolver: Send + Sync + 'static {
    /// The model of `name`.
    fn resolve(&self, name: &str) -> Option<Result<Arc<dyn Model>, ResolveError>>;

    /// The name that the environment asks for, if it asks for one of this resolver's.
    #[expect(clippy::wrong_self_convention, reason = "the name comes from the environment, not from the resolver")]
    fn from_env(&self) -> Option<String> {
        None
    }

    /// The names, or name patterns, this resolver takes: for listings and suggestions.
    fn known(&self) -> Vec<String>;
}
