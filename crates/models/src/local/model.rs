//! The local model as a [`Model`].

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::sync::{Mutex, OnceCell};
use toolwright_core::{ArgsState, CallId, CallItem, FinishReason, Item, Message, Role, Usage};
use toolwright_runtime::{
    ErrorCategory, Model, ModelError, ModelEvent, ModelInfo, ModelReply, ModelRequest, ModelResolver, ModelStream, ResolveError, ToolChoice,
};

use super::engine::Engine;
use super::gate::{Answer, Offer, Question, answer};
use super::narrow::narrow;
use super::prompt::{Outcome, Said, ToolText};
use super::{LocalError, weights};

/// The name by which the model is asked for.
pub const NAME: &str = "local";
/// The model's own name.
const MODEL: &str = "needle3";

/// The embedded model: no key, no server, tool calls only.
///
/// It does not follow instructions and does not converse, so it is shown the tools, the last request and what its calls came to,
/// and nothing else. Cheap to clone; clones share the loaded weights, and one turn runs at a time.
#[derive(Clone)]
pub struct LocalModel {
    shared: Arc<Shared>,
}

struct Shared {
    path: Option<PathBuf>,
    engine: OnceCell<Engine>,
    /// The engine uses every core it is given, so turns side by side would only slow each other.
    turn: Mutex<()>,
}

impl LocalModel {
    /// The model of this user; its file is looked for, and fetched if need be, when the first request comes.
    pub fn new() -> Self {
        Self { shared: Arc::new(Shared { path: None, engine: OnceCell::new(), turn: Mutex::new(()) }) }
    }

    /// The model in a file that [`weights::ensure`] has found or fetched.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { shared: Arc::new(Shared { path: Some(path.into()), engine: OnceCell::new(), turn: Mutex::new(()) }) }
    }

    /// Loads the weights now, so that the first request need not wait for them.
    pub async fn load(&self) -> Result<(), LocalError> {
        self.shared.engine().await.map(|_| ())
    }
}

impl Default for LocalModel {
    fn default() -> Self {
        Self::new()
    }
}

impl Shared {
    async fn engine(&self) -> Result<&Engine, LocalError> {
        let load = || async {
            let path = match &self.path {
                Some(path) => path.clone(),
                None => weights::ensure(|_| ()).await?,
            };
            blocking(move || Engine::load(&path)).await
        };
        self.engine.get_or_try_init(load).await
    }

    async fn reply(&self, request: &ModelRequest) -> Result<Answer, LocalError> {
        let engine = self.engine().await?.clone();
        let _turn = self.turn.lock().await;
        let said = said(request);
        let offers = offers(request, &said);
        let cancel = Arc::new(AtomicBool::new(false));
        // The flag is also set when this future is dropped, so an abandoned turn stops within a token.
        let _guard = SetOnDrop(Arc::clone(&cancel));
        let flag = Arc::clone(&cancel);
        let turn = blocking(move || {
            let question = Question { tools: &offers, said: &said };
            answer(&engine, &question, &flag)
        });
        tokio::select! {
            answer = turn => answer,
            () = request.cancelled.cancelled() => Err(LocalError::Cancelled),
        }
    }
}

struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Model for LocalModel {
    fn info(&self) -> ModelInfo {
        ModelInfo { context_window: Some(super::engine::CONTEXT as u64), ..ModelInfo::new(NAME, MODEL) }
    }

    fn stream(&self, request: ModelRequest) -> ModelStream {
        let shared = Arc::clone(&self.shared);
        let events = async move {
            match shared.reply(&request).await {
                Ok(answer) => events(answer),
                Err(error) => vec![Err(failure(&error))],
            }
        };
        futures_util::stream::once(events).flat_map(futures_util::stream::iter).boxed()
    }
}

fn events(answer: Answer) -> Vec<Result<ModelEvent, ModelError>> {
    let mut events = Vec::new();
    let mut items = Vec::new();
    if !answer.think.is_empty() {
        events.push(Ok(ModelEvent::ReasoningDelta(answer.think.clone())));
        let provenance = Some(format!("{NAME}/{MODEL}"));
        items.push(Item::Reasoning { text: answer.think, signature: None, provenance, encrypted: None });
    }
    let finish = if answer.calls.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls };
    for (call, index) in answer.calls.into_iter().zip(0..) {
        events.push(Ok(ModelEvent::CallDelta { index, name: Some(call.name.clone()), arguments: call.arguments.clone() }));
        items.push(Item::ToolCall(CallItem {
            call_id: CallId::new(""),
            provider_id: None,
            name: call.name,
            arguments: call.arguments,
            state: ArgsState::Complete,
            ask: call.doubt,
            provider_data: answer.confidence.map(|confidence| json!({"confidence": confidence})),
        }));
    }
    if !answer.text.is_empty() {
        events.push(Ok(ModelEvent::TextDelta(answer.text.clone())));
        items.push(Item::text(answer.text));
    }
    let (read, written) = answer.tokens;
    let usage = Usage { input_tokens: read as u64, output_tokens: written as u64, ..Usage::default() };
    events.push(Ok(ModelEvent::Done(ModelReply { items, finish, usage: Some(usage), model: Some(MODEL.into()) })));
    events
}

fn failure(error: &LocalError) -> ModelError {
    let category = match error {
        LocalError::TooLong { .. } => ErrorCategory::ContextLengthExceeded,
        _ => ErrorCategory::Unknown,
    };
    ModelError::new(NAME, &error.to_string()).in_category(category)
}

/// The last request and what followed it.
fn said(request: &ModelRequest) -> Vec<Said> {
    let messages: Vec<&Arc<Message>> = request.messages.iter().collect();
    let role = |message: &Message| message.author.role_for(&request.acting);
    let last = messages.iter().rposition(|message| role(message) == Role::User).unwrap_or(0);
    let mut said = Vec::new();
    for message in messages.into_iter().skip(last) {
        match role(message) {
            Role::User => said.push(Said::Request(message.text_of())),
            Role::System => {}
            Role::Assistant => {
                let calls: Vec<Value> = message
                    .calls()
                    .map(|call| json!({"name": call.name, "arguments": serde_json::from_str::<Value>(&call.arguments).unwrap_or_else(|_| json!({}))}))
                    .collect();
                let calls = (!calls.is_empty()).then(|| Value::Array(calls).to_string());
                said.push(Said::Reply { think: message.reasoning_of().filter(|think| !think.is_empty()), calls, text: message.text_of() });
            }
            Role::Tool => {
                let results = message.results().map(|result| Outcome {
                    tool: result.tool_name.clone(),
                    text: result.text(),
                    failed: result.is_error(),
                });
                said.push(Said::Results(results.collect()));
            }
        }
    }
    said
}

/// The tools on offer, as many as the model can tell apart.
fn offers(request: &ModelRequest, said: &[Said]) -> Vec<Offer> {
    let chosen = match &request.settings.tool_choice {
        Some(ToolChoice::None) => return Vec::new(),
        Some(ToolChoice::Tool(name)) => Some(name.as_str()),
        _ => None,
    };
    let specs = request.tools.iter().filter(|spec| chosen.is_none_or(|name| spec.name.as_str() == name));
    let offers = specs.map(|spec| Offer {
        text: ToolText::new(spec.name.as_str(), &spec.description, spec.input.as_value()),
        read_only: spec.annotations.read_only(),
    });
    let asked = said.iter().find_map(|said| match said {
        Said::Request(text) => Some(text.as_str()),
        _ => None,
    });
    let called = said.iter().flat_map(|said| match said {
        Said::Results(results) => results.iter().map(|result| result.tool.as_str()).collect(),
        _ => Vec::new(),
    });
    narrow(offers.collect(), asked.unwrap_or_default(), &called.collect::<Vec<_>>())
}

/// Runs a turn where it does not hold up the async runtime.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, LocalError> + Send + 'static) -> Result<T, LocalError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The runtime is going down.
        Err(_) => Err(LocalError::Cancelled),
    }
}

/// Resolves the name `local`.
#[derive(Clone, Default)]
pub struct LocalResolver {
    model: LocalModel,
}

impl LocalResolver {
    /// Resolves to `model`.
    pub fn new(model: LocalModel) -> Self {
        Self { model }
    }
}

impl ModelResolver for LocalResolver {
    fn resolve(&self, name: &str) -> Option<Result<Arc<dyn Model>, ResolveError>> {
        (name == NAME).then(|| Ok(Arc::new(self.model.clone()) as Arc<dyn Model>))
    }

    fn known(&self) -> Vec<String> {
        vec![NAME.into()]
    }
}
