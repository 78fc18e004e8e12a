//! What the tests of the runtime share: a scripted model, tools that wait, stages that tell, and a short form of events.
#![allow(dead_code, unreachable_pub, reason = "each test file takes its part")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use toolwright_core::{
    ArgsState, CallId, CallItem, Event, EventKind, FinishReason, Issue, Item, Outcome, Part, Record, ResultItem, Seq, ThreadId,
    ToolFailureKind, ToolOutput, Transcript,
};
use toolwright_runtime::{
    AfterCall, Agent, AgentBuilder, AgentError, Append, BeforeCall, Check, FixedClock, GateCall, Guardrail, GuardrailContext,
    GuardrailVerdict, Guardrails, Hook, HookCall, MemoryStore, Model, ModelError, ModelEvent, ModelInfo, ModelReply, ModelRequest,
    ModelStream, NoResolvers, Reply, RunStream, Stage, StageKind, Store,
};
use toolwright_tool::{Running, Tool, ToolBody, ToolBuilder, ToolContext, ToolError};

// ------------------------------------------------------------------------------------------------------------- the model

pub type Answer = Box<dyn FnOnce(&ModelRequest) -> ModelStream + Send>;

/// A model that gives its answers in order, and keeps what it was asked. Asked once too often, it fails.
pub struct Script {
    answers: Mutex<VecDeque<Answer>>,
    asked: Mutex<Vec<ModelRequest>>,
}

impl Script {
    pub fn new(answers: impl IntoIterator<Item = Answer>) -> Arc<Self> {
        Arc::new(Self { answers: Mutex::new(answers.into_iter().collect()), asked: Mutex::default() })
    }

    /// What it was asked.
    pub fn asked(&self) -> Vec<ModelRequest> {
        self.asked.lock().unwrap().clone()
    }

    /// How often it was asked.
    pub fn times(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

impl Model for Script {
    fn info(&self) -> ModelInfo {
        ModelInfo::new("test", "script")
    }

    fn stream(&self, request: ModelRequest) -> ModelStream {
        let answer = self.answers.lock().unwrap().pop_front();
        self.asked.lock().unwrap().push(request.clone());
        match answer {
            Some(answer) => answer(&request),
            None => stream::iter([Err(ModelError::new("test", "the script is at its end"))]).boxed(),
        }
    }
}

/// A model whose answer depends on the request alone.
pub struct Answers<F>(pub F, pub Mutex<Vec<u32>>);

impl<F: Fn(&ModelRequest) -> ModelReply + Send + Sync + 'static> Answers<F> {
    pub fn new(answer: F) -> Arc<Self> {
        Arc::new(Self(answer, Mutex::default()))
    }

    /// The steps it was asked for.
    pub fn steps(&self) -> Vec<u32> {
        self.1.lock().unwrap().clone()
    }
}

impl<F: Fn(&ModelRequest) -> ModelReply + Send + Sync + 'static> Model for Answers<F> {
    fn info(&self) -> ModelInfo {
        ModelInfo::new("test", "answers")
    }

    fn stream(&self, request: ModelRequest) -> ModelStream {
        self.1.lock().unwrap().push(request.step);
        stream::iter([Ok(ModelEvent::Done((self.0)(&request)))]).boxed()
    }
}

pub fn reply(items: Vec<Item>, finish: FinishReason) -> ModelReply {
    ModelReply { items, finish, usage: None, model: None }
}

/// A text, streamed in one piece.
pub fn say(text: &str) -> Answer {
    let events = vec![ModelEvent::TextDelta(text.to_owned()), ModelEvent::Done(reply(vec![Item::text(text)], FinishReason::Stop))];
    stream_of(events)
}

/// Calls: id, name, arguments.
pub fn calls<const N: usize>(calls: [(&str, &str, &str); N]) -> Answer {
    let items = calls.into_iter().map(|(id, name, arguments)| Item::ToolCall(call_item(id, name, arguments))).collect();
    items_of(items, FinishReason::ToolCalls)
}

pub fn items_of(items: Vec<Item>, finish: FinishReason) -> Answer {
    stream_of(vec![ModelEvent::Done(reply(items, finish))])
}

pub fn stream_of(events: Vec<ModelEvent>) -> Answer {
    Box::new(move |_| stream::iter(events.into_iter().map(Ok)).boxed())
}

/// Streams these and then says nothing more.
pub fn then_silence(events: Vec<ModelEvent>) -> Answer {
    Box::new(move |_| stream::iter(events.into_iter().map(Ok)).chain(stream::pending()).boxed())
}

pub fn fails(error: ModelError) -> Answer {
    Box::new(move |_| stream::iter([Err(error)]).boxed())
}

pub fn call_item(id: &str, name: &str, arguments: &str) -> CallItem {
    CallItem {
        call_id: CallId::new(""),
        provider_id: Some(id.to_owned()),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
        state: ArgsState::Complete,
        ask: None,
        provider_data: None,
    }
}

// ------------------------------------------------------------------------------------------------------------- the tools

/// What happened, in order.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub fn add(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    pub fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// Where a tool waits until the test lets it go.
#[derive(Clone)]
pub struct Latch(Arc<(Semaphore, Semaphore)>);

impl Default for Latch {
    fn default() -> Self {
        Self(Arc::new((Semaphore::new(0), Semaphore::new(0))))
    }
}

impl Latch {
    /// Tells that it is here, and waits.
    pub async fn hold(&self) {
        self.0.0.add_permits(1);
        self.0.1.acquire().await.unwrap().forget();
    }

    /// Tells that it is here.
    pub fn arrive(&self) {
        self.0.0.add_permits(1);
    }

    /// Somebody has come to wait.
    pub async fn reached(&self) {
        self.0.0.acquire().await.unwrap().forget();
    }

    /// Lets one go.
    pub fn release(&self) {
        self.0.1.add_permits(1);
    }

    /// How many wait, or passed and were not taken note of.
    pub fn waiting(&self) -> usize {
        self.0.0.available_permits()
    }
}

/// A tool that gives its arguments back.
pub fn echo(name: &str) -> Tool {
    Tool::new(name, "Gives its arguments back.").run_json(|args, _cx| async move { Ok::<_, ToolError>(args) }).unwrap()
}

/// A tool that logs `body <call id>` and gives its arguments back.
pub fn logged(name: &str, log: &Log) -> Tool {
    logged_with(Tool::new(name, "Logs, and gives its arguments back."), log)
}

pub fn logged_with(builder: ToolBuilder, log: &Log) -> Tool {
    let log = log.clone();
    let body = move |args: Value, cx: ToolContext| {
        log.add(format!("body {}", cx.call_id()));
        async move { Ok::<_, ToolError>(args) }
    };
    builder.run_json(body).unwrap()
}

/// A tool that waits at a latch and gives its name.
pub fn holding(name: &str, latch: &Latch) -> Tool {
    let latch = latch.clone();
    let body = move |_args: Value, cx: ToolContext| {
        let latch = latch.clone();
        async move {
            latch.hold().await;
            Ok::<_, ToolError>(cx.tool_name().to_owned())
        }
    };
    Tool::new(name, "Waits.").run_json(body).unwrap()
}

/// A tool that fails.
pub fn failing(name: &str, error: ToolError) -> Tool {
    let body = move |_args: Value, _cx| {
        let error = error.clone();
        async move { Err::<Value, _>(error) }
    };
    Tool::new(name, "Fails.").run_json(body).unwrap()
}

/// A body made of one closure.
pub struct Body<F>(pub F);

impl<F: Fn(ToolContext) -> Running + Send + Sync + 'static> ToolBody for Body<F> {
    fn check(&self, _args: &Value) -> Result<(), Vec<Issue>> {
        Ok(())
    }

    fn begin(&self, cx: ToolContext) -> Running {
        (self.0)(cx)
    }
}

pub fn with_body(builder: ToolBuilder, body: impl Fn(ToolContext) -> Running + Send + Sync + 'static) -> Tool {
    builder.run_body(json!({ "type": "object" }), Arc::new(Body(body))).unwrap()
}

/// A tool that yields these snapshots.
pub fn streaming(builder: ToolBuilder, snapshots: Vec<Value>) -> Tool {
    with_body(builder, move |_cx| Running::Stream(stream::iter(snapshots.clone().into_iter().map(Ok)).boxed()))
}

/// Counts warnings, and keeps their texts.
#[derive(Clone, Default)]
pub struct Warnings(Log);

impl Warnings {
    pub fn all(&self) -> Vec<String> {
        self.0.all()
    }
}

impl tracing::field::Visit for Warnings {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0.add(format!("{value:?}"));
        }
    }
}

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }
    fn new_span(&self, _span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _span: &tracing::span::Id, _values: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _span: &tracing::span::Id, _follows: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut self.clone());
    }
    fn enter(&self, _span: &tracing::span::Id) {}
    fn exit(&self, _span: &tracing::span::Id) {}
}

// ------------------------------------------------------------------------------------------------------------ the stages

/// What a stage of a test says about a call; each kind takes what it may say.
#[derive(Debug)]
pub enum Say {
    Pass,
    Allow,
    Deny(Option<String>),
    Ask(Option<String>),
    Answer(ToolOutput),
    Rewrite(Value),
    EndRun(String),
}

/// Where a stage of a test stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum At {
    Hook,
    Rule,
    Guardrail,
    Mode,
}

/// A call as a stage of a test sees it.
pub struct Seen<'a> {
    pub cx: &'a ToolContext,
    pub resumed_after_approval: bool,
}

type Checks = Arc<dyn Fn(&Seen<'_>) -> Result<Say, ToolError> + Send + Sync>;
type Afters = Arc<dyn Fn(&Outcome) -> Result<Option<Outcome>, ToolError> + Send + Sync>;

/// A stage of two closures.
#[derive(Clone)]
pub struct Says {
    name: String,
    check: Checks,
    after: Afters,
}

pub fn says(name: &str, check: impl Fn(&Seen<'_>) -> Result<Say, ToolError> + Send + Sync + 'static) -> Says {
    Says { name: name.to_owned(), check: Arc::new(check), after: Arc::new(|_| Ok(None)) }
}

/// A stage that lets everything pass, and says afterwards what `after` says.
pub fn afterwards(name: &str, after: impl Fn(&Outcome) -> Result<Option<Outcome>, ToolError> + Send + Sync + 'static) -> Says {
    Says { name: name.to_owned(), check: Arc::new(|_| Ok(Say::Pass)), after: Arc::new(after) }
}

/// A stage that logs its name, and lets everything pass.
pub fn passes(name: &str, log: &Log) -> Says {
    let (checked, ended) = (log.clone(), log.clone());
    let (before, after) = (name.to_owned(), format!("after {name}"));
    Says {
        name: name.to_owned(),
        check: Arc::new(move |call| {
            checked.add(if call.resumed_after_approval { format!("{before} again") } else { before.clone() });
            Ok(Say::Pass)
        }),
        after: Arc::new(move |_| {
            ended.add(after.clone());
            Ok(None)
        }),
    }
}

/// Builders that take stages of tests.
pub trait Staged {
    #[must_use]
    fn at(self, at: At, says: Says) -> Self;
}

impl Staged for AgentBuilder {
    fn at(self, at: At, says: Says) -> Self {
        match at {
            At::Hook => self.hook(says),
            At::Guardrail => self.guardrails(Guardrails::new().tool(says)),
            At::Rule => self.stage(StageKind::Rule, says),
            At::Mode => self.stage(StageKind::Mode, says),
        }
    }
}

impl Stage for Says {
    fn name(&self) -> &str {
        &self.name
    }

    fn check<'a>(&'a self, call: &'a GateCall<'a>) -> BoxFuture<'a, Result<Check, ToolError>> {
        let seen = Seen { cx: call.cx, resumed_after_approval: call.resumed_after_approval };
        let check = (self.check)(&seen).map(|say| match say {
            Say::Allow => Check::Allow,
            Say::Deny(reason) => Check::Deny(reason),
            Say::Ask(reason) => Check::ask(reason),
            _ => Check::Pass,
        });
        std::future::ready(check).boxed()
    }
}

impl Hook for Says {
    fn name(&self) -> &str {
        &self.name
    }

    fn pre_tool_call<'a>(&'a self, call: &'a HookCall<'a>) -> BoxFuture<'a, Result<BeforeCall, ToolError>> {
        let seen = Seen { cx: call.cx(), resumed_after_approval: call.resumed_after_approval() };
        let check = (self.check)(&seen).map(|say| match say {
            Say::Deny(reason) => BeforeCall::Deny(reason.unwrap_or_else(|| "no reason".to_owned())),
            Say::Answer(output) => BeforeCall::Answer(output),
            Say::Rewrite(value) => BeforeCall::Rewrite(value),
            _ => BeforeCall::Pass,
        });
        std::future::ready(check).boxed()
    }

    fn post_tool_call<'a>(&'a self, _call: &'a HookCall<'a>, outcome: &'a Outcome) -> BoxFuture<'a, Result<AfterCall, ToolError>> {
        let after = (self.after)(outcome).map(|replaced| replaced.map_or(AfterCall::Keep, AfterCall::Replace));
        std::future::ready(after).boxed()
    }
}

impl Guardrail for Says {
    fn name(&self) -> &str {
        &self.name
    }

    fn check(&self, cx: GuardrailContext) -> BoxFuture<'_, Result<GuardrailVerdict, ToolError>> {
        let call = cx.call().unwrap();
        let seen = Seen { cx: call, resumed_after_approval: call.approval().is_some() };
        let check = (self.check)(&seen).map(|say| match say {
            Say::EndRun(reason) => GuardrailVerdict::block(reason),
            Say::Rewrite(value) => GuardrailVerdict::rewrite(value.to_string(), "rewritten"),
            _ => GuardrailVerdict::Pass,
        });
        std::future::ready(check).boxed()
    }
}

// --------------------------------------------------------------------------------------------------------- agent and run

pub fn agent(model: impl Model) -> AgentBuilder<NoResolvers> {
    Agent::<NoResolvers>::builder().model(model)
}

/// One send of "go".
pub async fn go(agent: &Agent) -> (Vec<Event>, Result<Reply, AgentError>) {
    collect(agent.stream("go")).await
}

/// All events, and the end. A run that hangs fails the test.
pub async fn collect(mut run: RunStream) -> (Vec<Event>, Result<Reply, AgentError>) {
    let mut events = Vec::new();
    while let Some(event) = within(run.next()).await {
        events.push(event);
    }
    let reply = within(run).await;
    if let Ok(reply) = &reply
        && reply.finish_reason != FinishReason::AwaitingApproval
    {
        reply.messages.check_balance().unwrap();
    }
    (events, reply)
}

/// Fails the test instead of hanging it.
pub async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(100_000), work).await.expect("it hangs")
}

/// The events up to and including the first that fits.
pub async fn until(run: &mut RunStream, fits: impl Fn(&EventKind) -> bool) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(event) = within(run.next()).await {
        let found = fits(&event.kind);
        events.push(event);
        if found {
            return events;
        }
    }
    panic!("the run ended first: {:?}", brief(&events))
}

/// Events in a short form; neighbouring deltas of one kind are one.
pub fn brief(events: &[Event]) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for event in events {
        let name = event.kind.type_name();
        let is_delta =
            matches!(event.kind, EventKind::TextDelta { .. } | EventKind::ReasoningDelta { .. } | EventKind::ToolInputDelta { .. });
        let line = match &event.kind {
            EventKind::StepStart { step } => format!("{name} {step}"),
            EventKind::TextDone { text } | EventKind::ReasoningDone { text, .. } => format!("{name} {text}"),
            EventKind::ToolStart { tool_call_id, .. }
            | EventKind::ToolResume { tool_call_id, .. }
            | EventKind::ToolDone { tool_call_id, .. }
            | EventKind::ApprovalRequested { tool_call_id, .. } => format!("{name} {tool_call_id}"),
            EventKind::ToolPartial { tool_call_id, index, .. } => format!("{name} {tool_call_id} {index}"),
            EventKind::ToolError { tool_call_id, error, .. } => format!("{name} {tool_call_id} {}", error.name),
            EventKind::StepDone { step, finish_reason, .. } => format!("{name} {step} {finish_reason}"),
            EventKind::RunDone { finish_reason, .. } => format!("{name} {finish_reason}"),
            EventKind::Error { error } => format!("{name} {}", error.name),
            EventKind::GuardrailTripped { name: guardrail, .. } => format!("{name} {guardrail}"),
            _ => name.to_owned(),
        };
        if is_delta && out.last() == Some(&line) {
            continue;
        }
        out.push(line);
    }
    out
}

/// The results of a transcript, in order.
pub fn results(transcript: &Transcript) -> Vec<ResultItem> {
    transcript.iter().flat_map(|message| message.results().cloned().collect::<Vec<_>>()).collect()
}

/// The value of a result's only part.
pub fn value(result: &ResultItem) -> Value {
    match result.parts.as_slice() {
        [Part::Json { value }] => value.clone(),
        [Part::Text { text }] => Value::String(text.clone()),
        parts => panic!("one part expected: {parts:?}"),
    }
}

/// Call, failure kind, error name and message of each failed result.
pub fn failures(transcript: &Transcript) -> Vec<(String, ToolFailureKind, String, String)> {
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    results(transcript)
        .iter()
        .filter_map(|result| {
            let kind = result.failed.clone()?;
            let value = value(result);
            Some((result.call_id.to_string(), kind, text(&value, "error"), text(&value, "message")))
        })
        .collect()
}

/// The one failure of a run.
pub fn failure(reply: &Reply) -> (ToolFailureKind, String, String) {
    let mut all = failures(&reply.messages);
    assert_eq!(all.len(), 1, "{all:?}");
    let (_, kind, error, message) = all.remove(0);
    (kind, error, message)
}

pub async fn journal(store: &MemoryStore, thread: &ThreadId) -> Vec<Arc<Record>> {
    store.read(thread, Seq(0), 100_000).await.unwrap()
}

/// A store that holds these records of a thread.
pub async fn store_of(thread: &ThreadId, records: &[Arc<Record>]) -> MemoryStore {
    let store = MemoryStore::new();
    let claim = store.claim(thread).await.unwrap();
    store.append(&*claim, Seq(0), Append::records(records.to_vec())).await.unwrap();
    store
}

/// The kinds of records, as they stand in the journal.
pub fn kinds(records: &[Arc<Record>]) -> Vec<String> {
    records.iter().map(|record| serde_json::to_value(&**record).unwrap()["kind"].as_str().unwrap().to_owned()).collect()
}

pub fn clock() -> FixedClock {
    FixedClock::at(toolwright_core::Timestamp(1_767_225_600_000))
}

pub fn map(value: &Value) -> serde_json::Map<String, Value> {
    value.as_object().unwrap().clone()
}
