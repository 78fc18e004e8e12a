//! The tokio shell around the driver: one task moves one thread until it rests.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use toolwright_core::{
    AbortReason, CallId, CallState, Key, Outcome, Record, Seq, Side, Thread, ThreadId, ToolFailure, ToolFailureKind, ToolSpec, Transcript,
};
use toolwright_tool::{Identity, Snapshots, StateMap};

use crate::clock::Clock;
use crate::dispatch::{Dispatch, ExecuteRequest, GateRequest, RunFacts};
use crate::driver::{Completion, Driver, Effect, Executed};
use crate::error::AgentError;
use crate::hub::{Hub, Stretch};
use crate::model::{ErrorCategory, Model, ModelError, ModelEvent, ModelReply, ModelRequest, ModelSettings};
use crate::store::{Append, Claim, Store};

/// What one run is made with.
#[derive(Clone)]
pub(crate) struct RunSetup {
    pub(crate) thread: ThreadId,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) dispatch: Arc<Dispatch>,
    pub(crate) model: Arc<dyn Model>,
    pub(crate) instructions: Arc<str>,
    pub(crate) settings: Arc<ModelSettings>,
    pub(crate) tools: Arc<[Arc<ToolSpec>]>,
    pub(crate) principal: Option<Arc<Identity>>,
    pub(crate) state: StateMap,
    pub(crate) model_timeout: Duration,
}

/// A run's handle side asks the shell to stop.
#[derive(Clone)]
pub(crate) struct Stopper {
    pub(crate) token: CancellationToken,
    pub(crate) reason: Arc<std::sync::Mutex<Option<AbortReason>>>,
}

impl Stopper {
    pub(crate) fn new() -> Self {
        Self { token: CancellationToken::new(), reason: Arc::default() }
    }

    pub(crate) fn stop(&self, reason: AbortReason) {
        let mut slot = self.reason.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        slot.get_or_insert(reason);
        drop(slot);
        self.token.cancel();
    }

    fn reason(&self) -> AbortReason {
        self.reason
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone()
            .unwrap_or_else(|| AbortReason::abort("the run was cancelled"))
    }
}

struct InFlight {
    abort: AbortHandle,
    /// Fires when the call, or the model, shall stop.
    token: CancellationToken,
    /// When a body that not even dropping could end is given up.
    give_up: Option<Instant>,
}

/// Moves a thread until it rests.
pub(crate) struct Shell {
    setup: RunSetup,
    driver: Driver,
    claim: Box<dyn Claim>,
    hub: Arc<Hub>,
    stopper: Stopper,
    durable: Seq,
    completions: mpsc::UnboundedSender<Completion>,
    incoming: mpsc::UnboundedReceiver<Completion>,
    in_flight: HashMap<Key, InFlight>,
    run_cancelled: CancellationToken,
    /// The last records, so that the caller gets the run's end without reading it back.
    last: Option<Arc<Record>>,
}

/// Reads a thread's journal into its fold.
pub(crate) async fn load(store: &dyn Store, thread: &ThreadId) -> Result<Thread, AgentError> {
    const PAGE: usize = 1000;
    let mut fold = Thread::new();
    loop {
        let records = store.read(thread, fold.head(), PAGE).await?;
        for record in &records {
            fold.apply(record)?;
        }
        if records.len() < PAGE {
            return Ok(fold);
        }
    }
}

impl Shell {
    pub(crate) fn new(setup: RunSetup, driver: Driver, claim: Box<dyn Claim>, hub: Arc<Hub>, durable: Seq, stopper: Stopper) -> Self {
        let (completions, incoming) = mpsc::unbounded_channel();
        Self {
            setup,
            driver,
            claim,
            hub,
            stopper,
            durable,
            completions,
            incoming,
            in_flight: HashMap::new(),
            run_cancelled: CancellationToken::new(),
            last: None,
        }
    }

    /// Drives until the thread rests; gives its fold.
    pub(crate) async fn run(mut self) -> Result<Thread, AgentError> {
        let ended = self.drive().await;
        // Nothing outlives the run: what is still in flight is told, and dropped with this task's handles.
        self.run_cancelled.cancel();
        for (_, flight) in self.in_flight.drain() {
            flight.token.cancel();
            flight.abort.abort();
        }
        drop(self.claim);
        self.hub.close();
        ended.map(|()| self.driver.thread().clone())
    }

    async fn drive(&mut self) -> Result<(), AgentError> {
        let mut inbox_seen = 0;
        self.take_inbox(&mut inbox_seen).await?;
        if self.stopper.token.is_cancelled() {
            // Stopped before it began: the model is never asked (sdk-runtime CAN-3).
            if self.step(Some(Completion::Cancel { reason: self.stopper.reason(), partial: None })).await? {
                return Ok(());
            }
        } else if self.step(None).await? {
            return Ok(());
        }
        let mut stopping = self.stopper.token.is_cancelled();
        loop {
            let give_up = self.in_flight.values().filter_map(|flight| flight.give_up).min();
            let store = Arc::clone(&self.setup.store);
            let thread = self.setup.thread.clone();
            let stopper = self.stopper.token.clone();
            let completion = tokio::select! {
                biased;
                completion = self.incoming.recv() => completion,
                () = stopper.cancelled(), if !stopping => {
                    stopping = true;
                    Some(Completion::Cancel { reason: self.stopper.reason(), partial: Some(self.hub.text_so_far()) })
                }
                () = store.posted(&thread, inbox_seen) => {
                    if self.take_inbox(&mut inbox_seen).await? {
                        return Ok(());
                    }
                    None
                }
                () = sleep_until(give_up) => {
                    if self.give_up_stuck().await? {
                        return Ok(());
                    }
                    None
                }
            };
            if let Some(completion) = completion
                && self.step(Some(completion)).await?
            {
                return Ok(());
            }
        }
    }

    /// Journals what was posted. Gives whether the thread rests.
    async fn take_inbox(&mut self, seen: &mut u64) -> Result<bool, AgentError> {
        let items = self.setup.store.inbox(&self.setup.thread, *seen).await?;
        let mut rests = false;
        for (position, item) in items {
            *seen = (*seen).max(position);
            self.driver.streamed(self.hub.so_far());
            rests = self.step(Some(Completion::Posted { position, item })).await?;
        }
        Ok(rests)
    }

    /// Bodies that not even dropping could end: they hold a thread without yielding. Their result does not wait for them.
    async fn give_up_stuck(&mut self) -> Result<bool, AgentError> {
        let now = Instant::now();
        let stuck: Vec<CallId> = self
            .in_flight
            .iter()
            .filter(|(_, flight)| flight.give_up.is_some_and(|at| at <= now))
            .filter_map(|(key, _)| match key {
                Key::Execute(call) => Some(call.clone()),
                _ => None,
            })
            .collect();
        let mut rests = false;
        for call in stuck {
            let tool = self.driver.thread().call(&call).map(|open| open.tool.to_string()).unwrap_or_default();
            tracing::warn!(%tool, %call, "a tool holds its thread without yielding and was given up");
            let message = format!("`{tool}` did not stop when told to; its outcome is unknown, and it may still be running");
            let mut failure = ToolFailure::new(ToolFailureKind::Execution, &*tool, &message).named("TimeoutError");
            failure.tool_call_id = Some(call.to_string());
            let executed = Executed { outcome: Outcome::failed(failure), replaced_by: None, fatal: None };
            rests = self.step(Some(Completion::Executed { call, executed: Box::new(executed) })).await?;
        }
        Ok(rests)
    }

    /// One step of the driver and its effects. Gives whether the thread rests.
    async fn step(&mut self, completion: Option<Completion>) -> Result<bool, AgentError> {
        match &completion {
            Some(Completion::Model { step, .. }) => drop(self.in_flight.remove(&Key::Ask(*step))),
            Some(Completion::Gated { call, .. }) => drop(self.in_flight.remove(&Key::Gate(call.clone()))),
            Some(Completion::Executed { call, .. }) => {
                if let Some(flight) = self.in_flight.remove(&Key::Execute(call.clone())) {
                    flight.abort.abort();
                }
            }
            _ => {}
        }
        let now = self.setup.clock.now();
        let effects = self.driver.step(completion, now)?;
        for effect in effects {
            match effect {
                Effect::Append(records) => self.append(records).await?,
                Effect::Ask { step } => self.ask(step),
                Effect::Gate { call } => self.gate(&call),
                Effect::Execute { call, attempt } => self.execute(&call, attempt),
                Effect::Cancel(key) => self.cancel(&key),
                Effect::Rest => return Ok(true),
            }
        }
        Ok(false)
    }

    async fn append(&mut self, records: Vec<Arc<Record>>) -> Result<(), AgentError> {
        self.last = records.last().cloned();
        let head = self.last.as_ref().map_or(self.durable, |record| record.seq);
        let append = Append { records, inbox_through: self.driver.inbox_through() };
        self.setup.store.append(&*self.claim, self.durable, append).await?;
        self.durable = head;
        self.hub.appended(head);
        Ok(())
    }

    fn facts(&self) -> RunFacts {
        RunFacts {
            thread: Some(self.setup.thread.clone()),
            run: self.driver.thread().run().map(|run| run.id.clone()),
            principal: self.setup.principal.clone(),
            state: self.setup.state.clone(),
            cancelled: self.run_cancelled.clone(),
        }
    }

    fn ask(&mut self, step: u32) {
        let token = self.run_cancelled.child_token();
        let request = ModelRequest {
            instructions: Arc::clone(&self.setup.instructions),
            messages: self.driver.thread().transcript().clone(),
            acting: Side::A,
            tools: Arc::clone(&self.setup.tools),
            settings: Arc::clone(&self.setup.settings),
            thread: Some(self.setup.thread.clone()),
            run: self.driver.thread().run().map(|run| run.id.clone()),
            step,
            today: self.setup.clock.now().to_iso().get(..10).unwrap_or_default().into(),
            cancelled: token.clone(),
        };
        self.hub.step_begins(step);
        let (model, hub, completions) = (Arc::clone(&self.setup.model), Arc::clone(&self.hub), self.completions.clone());
        let timeout = self.setup.model_timeout;
        let reply = async move {
            let result = reply_of(&*model, request, &hub, step, timeout).await;
            Completion::Model { step, result }
        };
        // A panic in a model is its failure, not a hang.
        let panicked = move || Completion::Model { step, result: Err(ModelError::new("model", "the model's own code panicked")) };
        let abort = start(reply, panicked, completions);
        self.in_flight.insert(Key::Ask(step), InFlight { abort, token, give_up: None });
    }

    fn gate(&mut self, call: &CallId) {
        let thread = self.driver.thread();
        let Some(open) = thread.call(call) else { return };
        let decided = match (&open.state, &open.gated) {
            (CallState::Decided(ask, decision), Some(gated)) => Some((ask.clone(), decision.clone(), Arc::clone(&gated.text))),
            _ => None,
        };
        let request = GateRequest {
            call: call.clone(),
            tool: Arc::clone(&open.tool),
            written: Arc::clone(&open.written),
            args_state: open.item.as_ref().map(|item| item.state).unwrap_or_default(),
            ask: open.item.as_ref().and_then(|item| item.ask.clone()),
            decided,
            asked: open.asked,
            calls_in_run: thread.calls_in_run(&open.tool),
            messages: before_turn(thread),
            run: self.facts(),
        };
        let dispatch = Arc::clone(&self.setup.dispatch);
        let token = self.run_cancelled.child_token();
        let (id, panicked_id, tool) = (call.clone(), call.clone(), Arc::clone(&open.tool));
        let gate = async move { Completion::Gated { call: id, outcome: Box::new(dispatch.gate(request).await) } };
        let abort = start(gate, move || gate_panicked(panicked_id, &tool), self.completions.clone());
        self.in_flight.insert(Key::Gate(call.clone()), InFlight { abort, token, give_up: None });
    }

    fn execute(&mut self, call: &CallId, attempt: u32) {
        let thread = self.driver.thread();
        let Some(open) = thread.call(call) else { return };
        let Some(gated) = &open.gated else { return };
        let token = self.run_cancelled.child_token();
        let request = ExecuteRequest {
            call: call.clone(),
            tool: Arc::clone(&open.tool),
            arguments: Arc::clone(&gated.text),
            attempt,
            decision: open.decision.clone(),
            retries_in_run: thread.retries_in_run(&open.tool),
            messages: before_turn(thread),
            run: self.facts(),
            cancelled: token.clone(),
            snapshots: Arc::new(HubSnapshots {
                hub: Arc::clone(&self.hub),
                call: call.clone(),
                tool: Arc::clone(&open.tool),
                next: AtomicU64::new(0),
            }),
        };
        let dispatch = Arc::clone(&self.setup.dispatch);
        let timeout = dispatch.registry.get(&open.tool).and_then(|tool| tool.spec().timeout).unwrap_or(dispatch.timeout);
        // One second beyond what dispatch itself grants.
        let give_up = Instant::now() + timeout + dispatch.grace + Duration::from_secs(1);
        let (id, panicked_id, tool) = (call.clone(), call.clone(), Arc::clone(&open.tool));
        let body = async move { Completion::Executed { call: id, executed: Box::new(dispatch.execute(request).await) } };
        let abort = start(body, move || execute_panicked(panicked_id, &tool), self.completions.clone());
        self.in_flight.insert(Key::Execute(call.clone()), InFlight { abort, token, give_up: Some(give_up) });
    }

    fn cancel(&mut self, key: &Key) {
        if matches!(key, Key::Ask(_)) {
            // Nobody waits for a model that ignores the signal (sdk-runtime CAN-4).
            if let Some(flight) = self.in_flight.remove(key) {
                flight.token.cancel();
                flight.abort.abort();
            }
            return;
        }
        let grace = self.setup.dispatch.grace;
        if let Some(flight) = self.in_flight.get_mut(key) {
            flight.token.cancel();
            flight.give_up = Some(Instant::now() + grace + Duration::from_secs(1));
        }
    }
}

/// The transcript before the turn that is open (sdk-tools 6).
fn before_turn(thread: &Thread) -> Transcript {
    let transcript = thread.transcript();
    if transcript.last().is_some_and(|message| message.calls().next().is_some()) { transcript.without_last() } else { transcript.clone() }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Starts a task that sends one completion, whatever happens in it.
fn start(
    work: impl Future<Output = Completion> + Send + 'static,
    panicked: impl FnOnce() -> Completion + Send + 'static,
    completions: mpsc::UnboundedSender<Completion>,
) -> AbortHandle {
    let task = tokio::spawn(async move {
        let completion = AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| panicked());
        // The receiver is gone only when the run is.
        let _ = completions.send(completion);
    });
    task.abort_handle()
}

fn gate_panicked(call: CallId, tool: &str) -> Completion {
    let mut failure = ToolFailure::new(ToolFailureKind::Execution, tool, &format!("a check of `{tool}` panicked, so the call did not run"))
        .named("PanicError");
    failure.tool_call_id = Some(call.to_string());
    let settled = Executed { outcome: Outcome::failed(failure.clone()), replaced_by: None, fatal: None };
    Completion::Gated {
        call,
        outcome: Box::new(crate::driver::GateOutcome {
            arguments: None,
            repairs: Vec::new(),
            read_only: false,
            verdict: toolwright_core::Verdict::Refuse { failure: Arc::new(failure) },
            settled: Some(settled),
        }),
    }
}

fn execute_panicked(call: CallId, tool: &str) -> Completion {
    let mut failure =
        ToolFailure::new(ToolFailureKind::Execution, tool, &format!("`{tool}` panicked; its outcome is unknown")).named("PanicError");
    failure.tool_call_id = Some(call.to_string());
    Completion::Executed { call, executed: Box::new(Executed { outcome: Outcome::failed(failure), replaced_by: None, fatal: None }) }
}

struct HubSnapshots {
    hub: Arc<Hub>,
    call: CallId,
    tool: Arc<str>,
    next: AtomicU64,
}

impl Snapshots for HubSnapshots {
    fn show(&self, snapshot: Value) {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        self.hub.shown(&self.call, &self.tool, index, snapshot);
    }
}

/// Asks a model and reads its reply to the end, showing it as it comes. Bounded in time between pieces.
async fn reply_of(model: &dyn Model, request: ModelRequest, hub: &Hub, step: u32, timeout: Duration) -> Result<ModelReply, ModelError> {
    let provider = model.info().provider;
    let mut stream = model.stream(request);
    loop {
        // A stream that is always ready must not keep everything else from running.
        tokio::task::coop::consume_budget().await;
        let Ok(next) = tokio::time::timeout(timeout, stream.next()).await else {
            let message = format!("nothing came for {} s; try again, or raise `model_timeout`", timeout.as_secs());
            return Err(ModelError::new(provider, &message).in_category(ErrorCategory::Timeout));
        };
        match next {
            Some(Ok(ModelEvent::TextDelta(text))) => hub.said(step, Stretch::Text, &text),
            Some(Ok(ModelEvent::ReasoningDelta(text))) => hub.said(step, Stretch::Reasoning, &text),
            Some(Ok(ModelEvent::CallDelta { index, name, arguments })) => hub.said(step, Stretch::Input { index, name }, &arguments),
            Some(Ok(ModelEvent::Done(reply))) => return Ok(reply),
            Some(Err(error)) => return Err(error),
            None => return Err(ModelError::new(provider, "the reply ended before it was complete; nothing of it was kept")),
        }
    }
}
