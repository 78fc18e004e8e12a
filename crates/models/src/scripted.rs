//! A model that says what a test wrote.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use toolwright_core::{ArgsState, CallId, CallItem, FinishReason, Item, Usage};
use toolwright_runtime::{Model, ModelError, ModelEvent, ModelInfo, ModelReply, ModelRequest, ModelStream, Prices};

const PROVIDER: &str = "scripted";

/// A model whose replies are written down. Clones share the script and what was asked.
///
/// ```
/// use serde_json::json;
/// use toolwright_models::scripted::{Reply, ScriptedModel};
///
/// let model = ScriptedModel::new()
///     .reply(Reply::call("day_name", json!({ "date": "1999-12-31" })))
///     .reply(Reply::text("It was a Friday.").check(|request| assert!(request.messages.len() > 1)));
/// assert_eq!(model.calls(), 0);
/// ```
#[derive(Clone)]
pub struct ScriptedModel {
    shared: Arc<Mutex<Script>>,
    info: Arc<ModelInfo>,
}

#[derive(Default)]
struct Script {
    replies: VecDeque<Reply>,
    /// How many replies were written.
    written: usize,
    repeat: Option<Reply>,
    repeats: bool,
    requests: Vec<ModelRequest>,
    failures: Vec<String>,
}

impl fmt::Debug for ScriptedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let script = self.script();
        f.debug_struct("ScriptedModel").field("written", &script.written).field("called", &script.requests.len()).finish()
    }
}

impl Default for ScriptedModel {
    fn default() -> Self {
        Self::new()
    }
}

impl ScriptedModel {
    /// A model without replies yet.
    pub fn new() -> Self {
        Self { shared: Arc::default(), info: Arc::new(ModelInfo::new(PROVIDER, "script")) }
    }

    /// A model that says these texts, one a call.
    pub fn texts<T: Into<String>>(texts: impl IntoIterator<Item = T>) -> Self {
        texts.into_iter().fold(Self::new(), |model, text| model.reply(Reply::text(text)))
    }

    /// Adds a reply: one for each call, in order.
    #[must_use]
    pub fn reply(self, reply: Reply) -> Self {
        self.push(reply);
        self
    }

    /// Adds a reply to a model that is in use.
    pub fn push(&self, reply: Reply) {
        let mut script = self.script();
        script.written += 1;
        script.replies.push_back(reply);
    }

    /// When the script is over, the last reply is given again and again, instead of an error.
    #[must_use]
    pub fn repeat_last(self) -> Self {
        self.script().repeats = true;
        self
    }

    /// The name it goes by: `provider/model`.
    #[must_use]
    pub fn named(mut self, provider: impl Into<String>, model: impl Into<String>) -> Self {
        let info = Arc::make_mut(&mut self.info);
        info.provider = provider.into();
        info.model = model.into();
        self
    }

    /// How many tokens it says fit.
    #[must_use]
    pub fn context_window(mut self, tokens: u64) -> Self {
        Arc::make_mut(&mut self.info).context_window = Some(tokens);
        self
    }

    /// What it says its tokens cost.
    #[must_use]
    pub fn prices(mut self, prices: Prices) -> Self {
        Arc::make_mut(&mut self.info).prices = Some(prices);
        self
    }

    /// Every request so far, in order, those that failed included.
    pub fn requests(&self) -> Vec<ModelRequest> {
        self.script().requests.clone()
    }

    /// The request of a call, counted from 1.
    pub fn request(&self, call: usize) -> Option<ModelRequest> {
        self.script().requests.get(call.checked_sub(1)?).cloned()
    }

    /// How often it was asked.
    pub fn calls(&self) -> usize {
        self.script().requests.len()
    }

    /// How many replies nobody has asked for yet.
    pub fn remaining(&self) -> usize {
        self.script().replies.len()
    }

    /// What checks of requests found, each naming its call. Empty if all was as expected.
    pub fn failures(&self) -> Vec<String> {
        self.script().failures.clone()
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reply to this call, or why there is none.
    fn take(&self, request: &ModelRequest) -> Result<Reply, ModelError> {
        let mut script = self.script();
        script.requests.push(request.clone());
        let call = script.requests.len();
        let next = script.replies.pop_front();
        let Some(reply) = next.or_else(|| script.repeat.clone()) else {
            let last = request.messages.last().map(|message| message.text_of()).unwrap_or_default();
            let message = format!("the script has {} and this is call {call}; the last message is {last:?}", replies(script.written));
            return Err(ModelError::new(PROVIDER, &message));
        };
        if script.repeats {
            script.repeat = Some(reply.clone());
        }
        drop(script);
        let run = catch_unwind(AssertUnwindSafe(|| {
            let reply = match &reply.made_by {
                Some(make) => make(request),
                None => reply.clone(),
            };
            for check in &reply.checks {
                check(request);
            }
            reply
        }));
        run.map_err(|panic| {
            let failure = format!("the check of call {call} failed: {}", said(&*panic));
            self.script().failures.push(failure.clone());
            ModelError::new(PROVIDER, &failure)
        })
    }
}

fn replies(count: usize) -> String {
    if count == 1 { "1 reply".to_owned() } else { format!("{count} replies") }
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a text")
}

impl Model for ScriptedModel {
    fn info(&self) -> ModelInfo {
        (*self.info).clone()
    }

    fn stream(&self, request: ModelRequest) -> ModelStream {
        let cancelled = request.cancelled.clone();
        match self.take(&request) {
            Ok(reply) => {
                let speaking = Speaking { steps: reply.steps(&self.info).into(), cancelled, over: false };
                stream::unfold(speaking, |mut speaking| async move { Some((speaking.next().await?, speaking)) }).boxed()
            }
            Err(error) => stream::iter([Err(error)]).boxed(),
        }
    }
}

/// A function that looks at a request.
type Check = Arc<dyn Fn(&ModelRequest) + Send + Sync>;

/// A function that makes a reply to a request.
type Make = Arc<dyn Fn(&ModelRequest) -> Reply + Send + Sync>;

/// One reply of a script.
#[derive(Clone, Default)]
pub struct Reply {
    items: Vec<Item>,
    finish: Option<FinishReason>,
    usage: Option<Usage>,
    pieces: Pieces,
    before: Vec<Wait>,
    between: Option<Duration>,
    gates: Vec<(usize, Gate)>,
    ends: Ending,
    checks: Vec<Check>,
    made_by: Option<Make>,
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("items", &self.items).field("ends", &self.ends).finish_non_exhaustive()
    }
}

/// How texts and arguments are cut into deltas.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Pieces {
    #[default]
    Words,
    Whole,
    Characters(usize),
}

#[derive(Clone, Debug)]
enum Wait {
    For(Duration),
    At(Gate),
}

#[derive(Clone, Debug, Default)]
enum Ending {
    #[default]
    Done,
    /// Instead of the reply's end, after what it said.
    Fails(Box<ModelError>),
    /// Without a last event.
    BreaksOff,
    /// This text for ever.
    Endless(String),
    /// Silence for ever.
    Hangs,
}

impl Reply {
    /// A reply of the given items.
    pub fn items(items: impl IntoIterator<Item = Item>) -> Self {
        Self { items: items.into_iter().collect(), ..Self::default() }
    }

    /// A text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::items([Item::text(text)])
    }

    /// A call.
    pub fn call(name: impl Into<String>, arguments: Value) -> Self {
        Self::default().and_call(name, arguments)
    }

    /// Several calls side by side.
    pub fn calls<N: Into<String>>(calls: impl IntoIterator<Item = (N, Value)>) -> Self {
        calls.into_iter().fold(Self::default(), |reply, (name, arguments)| reply.and_call(name, arguments))
    }

    /// Nothing at all.
    pub fn empty() -> Self {
        Self::default()
    }

    /// An error, in the place of a reply.
    pub fn error(error: ModelError) -> Self {
        Self::default().then_error(error)
    }

    /// This text for ever, until the request is cancelled or the stream dropped.
    pub fn endless(text: impl Into<String>) -> Self {
        Self { ends: Ending::Endless(text.into()), ..Self::default() }
    }

    /// Silence, until the request is cancelled or the stream dropped.
    pub fn hang() -> Self {
        Self { ends: Ending::Hangs, ..Self::default() }
    }

    /// A reply that is made when the request is known.
    pub fn with(make: impl Fn(&ModelRequest) -> Reply + Send + Sync + 'static) -> Self {
        Self { made_by: Some(Arc::new(make)), ..Self::default() }
    }

    /// Adds a text.
    #[must_use]
    pub fn and_text(mut self, text: impl Into<String>) -> Self {
        self.items.push(Item::text(text));
        self
    }

    /// Adds a call.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "`json!` stands in its place")]
    pub fn and_call(self, name: impl Into<String>, arguments: Value) -> Self {
        self.and_raw_call(name, arguments.to_string())
    }

    /// Adds a call whose arguments are any text.
    #[must_use]
    pub fn and_raw_call(mut self, name: impl Into<String>, arguments: impl Into<String>) -> Self {
        self.items.push(Item::ToolCall(CallItem {
            call_id: CallId::new(""),
            provider_id: None,
            name: name.into(),
            arguments: arguments.into(),
            state: ArgsState::Complete,
            ask: None,
            provider_data: None,
        }));
        self
    }

    /// Gives the call added last an id, as a provider would.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        if let Some(Item::ToolCall(call)) = self.items.last_mut() {
            call.provider_id = Some(id.into());
        }
        self
    }

    /// Marks the call added last as cut off in its arguments.
    #[must_use]
    pub fn truncated(mut self) -> Self {
        if let Some(Item::ToolCall(call)) = self.items.last_mut() {
            call.state = ArgsState::Truncated;
        }
        self
    }

    /// Adds reasoning.
    #[must_use]
    pub fn and_reasoning(mut self, text: impl Into<String>) -> Self {
        self.items.push(Item::Reasoning { text: text.into(), signature: None, provenance: None, encrypted: None });
        self
    }

    /// Adds any item.
    #[must_use]
    pub fn and_item(mut self, item: Item) -> Self {
        self.items.push(item);
        self
    }

    /// How it ended; by default `tool_calls` with calls and `stop` without.
    #[must_use]
    pub fn finish(mut self, finish: FinishReason) -> Self {
        self.finish = Some(finish);
        self
    }

    /// What it used.
    #[must_use]
    pub fn usage(mut self, input_tokens: u64, output_tokens: u64) -> Self {
        self.usage = Some(Usage { input_tokens, output_tokens, ..Usage::default() });
        self
    }

    /// Every item in one delta, instead of word by word.
    #[must_use]
    pub fn in_one_piece(mut self) -> Self {
        self.pieces = Pieces::Whole;
        self
    }

    /// Deltas of this many characters.
    #[must_use]
    pub fn in_pieces_of(mut self, characters: usize) -> Self {
        self.pieces = Pieces::Characters(characters.max(1));
        self
    }

    /// Waits before the first event, on tokio's clock.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.before.push(Wait::For(delay));
        self
    }

    /// Waits between events, on tokio's clock.
    #[must_use]
    pub fn every(mut self, delay: Duration) -> Self {
        self.between = Some(delay);
        self
    }

    /// Waits at a gate before the first event.
    #[must_use]
    pub fn at(mut self, gate: &Gate) -> Self {
        self.before.push(Wait::At(gate.clone()));
        self
    }

    /// Waits at a gate when this many events are out.
    #[must_use]
    pub fn at_event(mut self, events: usize, gate: &Gate) -> Self {
        self.gates.push((events, gate.clone()));
        self
    }

    /// Fails after what it said.
    #[must_use]
    pub fn then_error(mut self, error: ModelError) -> Self {
        self.ends = Ending::Fails(Box::new(error));
        self
    }

    /// Breaks off after what it said: the stream ends without its last event.
    #[must_use]
    pub fn then_break_off(mut self) -> Self {
        self.ends = Ending::BreaksOff;
        self
    }

    /// Says nothing more, for ever, after what it said.
    #[must_use]
    pub fn then_hang(mut self) -> Self {
        self.ends = Ending::Hangs;
        self
    }

    /// Looks at the request. It may panic, as assertions do: then the call fails, and [`ScriptedModel::failures`] tells.
    #[must_use]
    pub fn check(mut self, check: impl Fn(&ModelRequest) + Send + Sync + 'static) -> Self {
        self.checks.push(Arc::new(check));
        self
    }

    fn steps(mut self, info: &ModelInfo) -> Vec<Step> {
        let mut events = Vec::new();
        let mut index = 0;
        for item in &mut self.items {
            match item {
                Item::Text { text } => events.extend(self.pieces.of(text).into_iter().map(ModelEvent::TextDelta)),
                Item::Reasoning { text, provenance, .. } => {
                    provenance.get_or_insert_with(|| info.name());
                    events.extend(self.pieces.of(text).into_iter().map(ModelEvent::ReasoningDelta));
                }
                Item::ToolCall(call) => {
                    let mut name = Some(call.name.clone());
                    let mut pieces = self.pieces.of(&call.arguments);
                    if pieces.is_empty() {
                        pieces.push(String::new());
                    }
                    events.extend(pieces.into_iter().map(|arguments| ModelEvent::CallDelta { index, name: name.take(), arguments }));
                    index += 1;
                }
                _ => {}
            }
        }
        let mut steps: Vec<Step> = self.before.into_iter().map(Step::Wait).collect();
        let gates =
            |at: usize| self.gates.iter().filter(move |(events, _)| *events == at).map(|(_, gate)| Step::Wait(Wait::At(gate.clone())));
        let count = events.len();
        for (at, event) in events.into_iter().enumerate() {
            steps.extend(gates(at));
            if at > 0 {
                steps.extend(self.between.map(|delay| Step::Wait(Wait::For(delay))));
            }
            steps.push(Step::Say(event));
        }
        steps.extend(gates(count));
        match self.ends {
            Ending::Done => {
                let called = index > 0;
                let finish = self.finish.unwrap_or(if called { FinishReason::ToolCalls } else { FinishReason::Stop });
                let reply = ModelReply { items: self.items, finish, usage: self.usage, model: Some(info.model.clone()) };
                steps.push(Step::Say(ModelEvent::Done(reply)));
            }
            Ending::Fails(error) => steps.push(Step::Fail(error)),
            Ending::BreaksOff => {}
            Ending::Endless(text) => steps.push(Step::Repeat(text)),
            Ending::Hangs => steps.push(Step::Hang),
        }
        steps
    }
}

impl Pieces {
    fn of(self, text: &str) -> Vec<String> {
        match self {
            _ if text.is_empty() => Vec::new(),
            Self::Whole => vec![text.to_owned()],
            Self::Words => text.split_inclusive(' ').map(str::to_owned).collect(),
            Self::Characters(count) => {
                let characters: Vec<char> = text.chars().collect();
                characters.chunks(count).map(|piece| piece.iter().collect()).collect()
            }
        }
    }
}

enum Step {
    Say(ModelEvent),
    Wait(Wait),
    Fail(Box<ModelError>),
    Repeat(String),
    Hang,
}

/// A reply that is being said.
struct Speaking {
    steps: VecDeque<Step>,
    cancelled: CancellationToken,
    over: bool,
}

impl Speaking {
    async fn next(&mut self) -> Option<Result<ModelEvent, ModelError>> {
        while !self.over {
            if self.cancelled.is_cancelled() {
                return Some(Err(self.end_cancelled()));
            }
            let cancelled = self.cancelled.clone();
            let waited = match self.steps.pop_front()? {
                Step::Say(event) => return Some(Ok(event)),
                Step::Fail(error) => {
                    self.over = true;
                    return Some(Err(*error));
                }
                Step::Repeat(text) => {
                    // Others get their turn: nothing else in this stream ever waits.
                    tokio::task::yield_now().await;
                    if cancelled.is_cancelled() {
                        return Some(Err(self.end_cancelled()));
                    }
                    let event = ModelEvent::TextDelta(text.clone());
                    self.steps.push_front(Step::Repeat(text));
                    return Some(Ok(event));
                }
                Step::Wait(Wait::For(delay)) => cancelled.run_until_cancelled(tokio::time::sleep(delay)).await,
                Step::Wait(Wait::At(gate)) => cancelled.run_until_cancelled(gate.pass()).await,
                Step::Hang => cancelled.run_until_cancelled(std::future::pending()).await,
            };
            if waited.is_none() {
                return Some(Err(self.end_cancelled()));
            }
        }
        None
    }

    fn end_cancelled(&mut self) -> ModelError {
        self.over = true;
        ModelError::new(PROVIDER, "the request was cancelled before the reply was complete")
    }
}

/// Holds replies until a test opens it, so that no test has to sleep. Clones are one gate.
#[derive(Clone, Debug)]
pub struct Gate {
    waiting: watch::Sender<usize>,
    open: watch::Sender<bool>,
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Gate {
    /// A closed gate.
    pub fn new() -> Self {
        Self { waiting: watch::Sender::new(0), open: watch::Sender::new(false) }
    }

    /// Waits until this many replies have come to the gate, in all.
    pub async fn reached_by(&self, replies: usize) {
        // The sender is held by `self`, so it can't be gone.
        let _ = self.waiting.subscribe().wait_for(|waiting| *waiting >= replies).await;
    }

    /// Waits until a reply has come to the gate.
    pub async fn reached(&self) {
        self.reached_by(1).await;
    }

    /// Lets through whoever waits, and whoever comes.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    async fn pass(&self) {
        self.waiting.send_modify(|waiting| *waiting += 1);
        let _ = self.open.subscribe().wait_for(|open| *open).await;
    }
}
