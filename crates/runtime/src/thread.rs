//! A handle to a thread, and to its runs.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use serde_json::{Map, Value};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use toolwright_core::{
    AbortReason, CallState, Ending, Event, FinishReason, GuardrailTrip, Input, InvalidThreadId, Outcome, RunId, RunLimits, Thread,
    ThreadId, Transcript, Usage,
};
use toolwright_tool::{Identity, StateMap};

use crate::agent::{AgentInner, Start, check_limits, checked_input, next_run};
use crate::driver::Driver;
use crate::error::AgentError;
use crate::hub::Hub;
use crate::index::PendingApproval;
use crate::shell::{RunSetup, Shell, Stopper, load};
use crate::store::{InboxItem, StoreError};
use crate::subscription::Subscription;

/// A thread of an agent, with what its next run is made with.
#[derive(Clone)]
pub struct ThreadHandle {
    inner: Arc<AgentInner>,
    id: Result<ThreadId, InvalidThreadId>,
    state: StateMap,
    errors: Vec<AgentError>,
    principal: Option<Identity>,
    metadata: Map<String, Value>,
    limits: RunLimits,
    instructions: Option<String>,
    cancel_on: Option<CancellationToken>,
}

impl ThreadHandle {
    pub(crate) fn new(inner: Arc<AgentInner>, id: Result<ThreadId, InvalidThreadId>) -> Self {
        let limits = inner.limits;
        Self {
            inner,
            id,
            state: StateMap::default(),
            errors: Vec::new(),
            principal: None,
            metadata: Map::new(),
            limits,
            instructions: None,
            cancel_on: None,
        }
    }

    /// Its id.
    pub fn id(&self) -> Result<&ThreadId, AgentError> {
        self.id.as_ref().map_err(|error| error.clone().into())
    }

    /// A value that belongs to the next run: tools take it with `State<T>`.
    #[must_use]
    pub fn with_state<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        if let Err(error) = self.state.insert(value) {
            self.errors.push(error.into());
        }
        self
    }

    /// Who the next run acts for.
    #[must_use]
    pub fn principal(mut self, who: Identity) -> Self {
        self.principal = Some(who);
        self
    }

    /// The application's own data about the next run; never sent to a model.
    #[must_use]
    pub fn metadata(mut self, metadata: Map<String, Value>) -> Self {
        self.metadata = metadata;
        self
    }

    /// Steps of the next run, in place of the agent's (sdk-runtime SET-6).
    #[must_use]
    pub fn max_steps(mut self, steps: u32) -> Self {
        self.limits.max_steps = steps;
        self
    }

    /// Appended to the agent's instructions for the next run; never part of the transcript (sdk-runtime SET-7).
    #[must_use]
    pub fn instructions(mut self, more: impl Into<String>) -> Self {
        self.instructions = Some(more.into());
        self
    }

    /// Stops the next run when `token` fires.
    #[must_use]
    pub fn cancel_on(mut self, token: CancellationToken) -> Self {
        self.cancel_on = Some(token);
        self
    }

    /// Sends, and waits for the end of the run.
    pub async fn send(&self, input: impl Into<Input>) -> Result<Reply, AgentError> {
        self.stream(input).await
    }

    /// Sends; a stream of events that can be awaited for the reply. The run starts at once, and goes on if the stream is
    /// dropped; [`RunStream::cancel`] stops it.
    pub fn stream(&self, input: impl Into<Input>) -> RunStream {
        match checked_input(input.into()) {
            Ok(messages) => self.start(Start::Input(messages)),
            Err(error) => RunStream::failed(error),
        }
    }

    /// Goes on: after a crash, or after decisions. The interrupted run goes on as itself; decisions start a new one.
    pub async fn resume(&self) -> Result<Reply, AgentError> {
        self.resume_stream().await
    }

    /// As [`ThreadHandle::resume`], as a stream.
    pub fn resume_stream(&self) -> RunStream {
        self.start(Start::GoOn)
    }

    /// Calls one tool directly, through the same gate as a model's call.
    pub async fn invoke(&self, tool: &str, arguments: &str) -> Result<Reply, AgentError> {
        self.invoke_stream(tool, arguments).await
    }

    /// As [`ThreadHandle::invoke`], as a stream.
    pub fn invoke_stream(&self, tool: &str, arguments: &str) -> RunStream {
        let name = self.inner.dispatch.registry.resolve(tool).map_or_else(|| Arc::from(tool), |tool| tool.name().to_shared());
        self.start(Start::call(name, arguments, crate::random::call_id()))
    }

    /// Asks whoever moves the thread to stop its run, which ends with `aborted` soon after. A thread that nobody moves,
    /// because its calls wait for decisions or its process died, is stopped from here; one at rest stays as it is.
    pub async fn cancel(&self, message: impl Into<String>) -> Result<(), AgentError> {
        let id = self.id()?;
        let reason = AbortReason::abort(message);
        let key = format!("cancel:{}", crate::random::call_id());
        self.inner.store.post(id, &key, InboxItem::Cancel { reason: reason.clone(), run: None }).await?;
        let thread = load(&*self.inner.store, id).await?;
        if thread.run().is_none() && thread.open_calls().next().is_none() {
            return Ok(());
        }
        match self.start(Start::Stop(reason)).await {
            // Somebody moves it, and reads the inbox; or it has come to rest.
            Err(AgentError::Store(StoreError::Busy { .. }) | AgentError::NothingToResume { .. }) => Ok(()),
            ended => ended.map(|_| ()),
        }
    }

    /// The transcript so far.
    pub async fn history(&self) -> Result<Transcript, AgentError> {
        Ok(load(&*self.inner.store, self.id()?).await?.transcript().clone())
    }

    fn start(&self, start: Start) -> RunStream {
        if let Some(error) = self.errors.first() {
            return RunStream::failed(error.clone());
        }
        let thread = match &self.id {
            Ok(id) => id.clone(),
            Err(error) => return RunStream::failed(error.clone().into()),
        };
        if let Err(error) = check_limits(&self.limits).and_then(|()| self.check_state()) {
            return RunStream::failed(error);
        }
        if tokio::runtime::Handle::try_current().is_err() {
            return RunStream::failed(AgentError::RuntimeStopped);
        }
        let stopper = Stopper::new();
        if let Start::Stop(reason) = &start {
            stopper.stop(reason.clone());
        }
        if let Some(token) = &self.cancel_on {
            if token.is_cancelled() {
                stopper.stop(AbortReason::abort("the caller's token was cancelled before the run began"));
            } else {
                let (token, stopper) = (token.clone(), stopper.clone());
                let ended = stopper.token.clone();
                tokio::spawn(async move {
                    tokio::select! {
                        () = token.cancelled() => stopper.stop(AbortReason::abort("the caller's token was cancelled")),
                        () = ended.cancelled() => {}
                    }
                });
            }
        }
        let (begun, begins) = oneshot::channel();
        let (done, result) = oneshot::channel();
        let run = Prepared { handle: self.clone(), thread, start, stopper: stopper.clone() };
        tokio::spawn(async move {
            let reply = run.go(begun).await;
            // Whoever asked may have gone: the run does not depend on it.
            let _ = done.send(reply);
        });
        let events = futures_util::stream::once(async move { begins.await.ok() })
            .filter_map(std::future::ready)
            .flat_map(|subscription| {
                futures_util::stream::unfold(subscription, |mut subscription: Subscription| async move {
                    // A store that fails ends the stream; the reply says why.
                    let event = subscription.next().await.ok().flatten()?;
                    Some((event, subscription))
                })
            })
            .boxed();
        RunStream { events, result: Some(result), failed: None, stopper }
    }

    fn check_state(&self) -> Result<(), AgentError> {
        let missing: Vec<(String, String)> = self
            .inner
            .run_state_missing
            .iter()
            .filter_map(|(tool, need)| match need {
                toolwright_tool::Need::State { id, type_name } if !self.state.contains_id(*id) => {
                    Some((tool.clone(), (*type_name).to_owned()))
                }
                _ => None,
            })
            .collect();
        if missing.is_empty() { Ok(()) } else { Err(AgentError::MissingState { missing }) }
    }
}

/// A run about to begin, on a task of its own.
struct Prepared {
    handle: ThreadHandle,
    thread: ThreadId,
    start: Start,
    stopper: Stopper,
}

impl Prepared {
    async fn go(self, begun: oneshot::Sender<Subscription>) -> Result<Reply, AgentError> {
        let Self { handle, thread: id, start, stopper } = self;
        let inner = &handle.inner;
        let claim = inner.store.claim(&id).await?;
        let thread = load(&*inner.store, &id).await?;
        if let Some(kind) = thread.blocked_by() {
            return Err(AgentError::UnknownRecord { thread: id, kind: kind.to_owned() });
        }
        let posted = inner.store.inbox(&id, 0).await?;
        may_start(&thread, &id, &start, posted.iter().any(|(_, item)| matches!(item, InboxItem::Decision { .. })))?;

        // A run that goes on acts for whom it began (sdk-runtime LOOP-11).
        let kept = match thread.run() {
            Some(run) => run.principal.clone(),
            None if matches!(start, Start::GoOn | Start::Stop(_)) => thread.last_run().and_then(|run| run.principal.clone()),
            None => None,
        };
        let principal = match kept {
            Some(value) => serde_json::from_value(value).ok(),
            None => handle.principal.clone(),
        };
        let next = next_run(inner, handle.limits, principal.as_ref(), handle.metadata.clone(), handle.instructions.clone().map(Arc::from));
        let (run, after) = match thread.run() {
            Some(run) => (run.id.clone(), toolwright_core::Seq(run.since.0.saturating_sub(1))),
            None => (next.id.clone(), thread.head()),
        };
        let durable = thread.head();
        let transcript_before = thread.transcript().len();
        let mut driver = Driver::new(thread, Arc::new(inner.dispatch.registry.clone()), next);
        if matches!(start, Start::Input(_) | Start::Call(_)) {
            driver.disregard_posted_through(posted.last().map_or(0, |(position, _)| *position));
        }
        let now = inner.clock.now();
        driver.open(&id, now)?;
        let cause = start.cause();
        match start {
            Start::Input(messages) => driver.start(cause, messages, now)?,
            Start::Call(opening) => {
                driver.start(cause, Vec::new(), now)?;
                driver.open_call(opening, now)?;
            }
            Start::GoOn | Start::Stop(_) => {}
        }
        let hub = Arc::new(Hub::new(durable));
        let subscription = Subscription::new(Arc::clone(&inner.store), Arc::clone(&inner.clock), id.clone(), Arc::clone(&hub), run, after);
        // Nobody may be listening.
        let _ = begun.send(subscription);
        let instructions = match &handle.instructions {
            Some(more) => format!("{}\n\n{more}", inner.instructions).into(),
            None => Arc::clone(&inner.instructions),
        };
        let setup = RunSetup {
            thread: id.clone(),
            store: Arc::clone(&inner.store),
            clock: Arc::clone(&inner.clock),
            dispatch: Arc::clone(&inner.dispatch),
            model: Arc::clone(&inner.model),
            instructions,
            settings: Arc::clone(&inner.settings),
            tools: Arc::clone(&inner.tools),
            principal: principal.map(Arc::new),
            state: handle.state.clone(),
            model_timeout: inner.model_timeout,
        };
        let ended = Shell::new(setup, driver, claim, hub, durable, stopper.clone()).run().await;
        // Frees the task that waits for the caller's token.
        stopper.token.cancel();
        Reply::of(&ended?, &id, transcript_before)
    }
}

/// Whether the thread may take this start: nothing slips past a pending decision or an interrupted run.
fn may_start(thread: &Thread, id: &ThreadId, start: &Start, decisions_posted: bool) -> Result<(), AgentError> {
    let decided = decisions_posted || thread.open_calls().any(|call| matches!(call.state, CallState::Decided(..)));
    match (start, thread.run()) {
        (Start::GoOn | Start::Stop(_), Some(_)) => Ok(()),
        (Start::Stop(_), None) if thread.open_calls().next().is_some() => Ok(()),
        (Start::GoOn, None) if decided => Ok(()),
        (_, Some(_)) => Err(AgentError::Interrupted { thread: id.clone() }),
        (_, None) => {
            let approvals: Vec<String> = thread.pending().map(|(_, ask)| ask.approval.to_string()).collect();
            if !approvals.is_empty() {
                return Err(AgentError::AwaitingApproval { thread: id.clone(), approvals: approvals.join(", ") });
            }
            match start {
                Start::GoOn | Start::Stop(_) => Err(AgentError::NothingToResume { thread: id.clone() }),
                _ => Ok(()),
            }
        }
    }
}

/// How a run ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Reply {
    /// The run.
    pub run_id: RunId,
    /// Its thread.
    pub thread_id: ThreadId,
    /// The final text.
    pub text: String,
    /// How it ended.
    pub finish_reason: FinishReason,
    /// What its model calls used, where reported.
    pub usage: Option<Usage>,
    /// Steps since the last new input, pauses included.
    pub steps: u32,
    /// Decisions that somebody has to make before the thread goes on.
    pub pending: Vec<PendingApproval>,
    /// Why it was stopped, with `aborted`.
    pub abort_reason: Option<AbortReason>,
    /// Which guardrail ended it, with `guardrail`.
    pub guardrail: Option<GuardrailTrip>,
    /// The result of a direct call.
    pub outcome: Option<Outcome>,
    /// The transcript of the thread.
    pub messages: Transcript,
    new_from: usize,
}

impl Reply {
    fn of(thread: &Thread, id: &ThreadId, new_from: usize) -> Result<Self, AgentError> {
        // A thread that rests has had a run.
        let run = thread.last_run().ok_or_else(|| AgentError::NothingToResume { thread: id.clone() })?;
        if let Some(Ending::Error { failure }) = &run.ending {
            return Err(AgentError::Run { run: run.id.clone(), failure: failure.clone() });
        }
        let (mut abort_reason, mut guardrail) = (None, None);
        match &run.ending {
            Some(Ending::Aborted { reason }) => abort_reason = Some(reason.clone()),
            Some(Ending::Guardrail { trip }) => guardrail = Some(trip.clone()),
            _ => {}
        }
        Ok(Self {
            run_id: run.id.clone(),
            thread_id: id.clone(),
            text: run.text.to_string(),
            finish_reason: run.finish.clone(),
            usage: run.usage,
            steps: thread.steps_taken(),
            pending: thread.pending().filter_map(|(call, ask)| PendingApproval::of(id, call, ask)).collect(),
            abort_reason,
            guardrail,
            outcome: if run.model_calls == 0 { thread.last_results().next_back().map(|(_, outcome)| outcome.clone()) } else { None },
            messages: thread.transcript().clone(),
            new_from,
        })
    }

    /// The messages this run added to the transcript.
    pub fn new_messages(&self) -> impl Iterator<Item = &Arc<toolwright_core::Message>> {
        self.messages.iter().skip(self.new_from)
    }
}

/// A run: a stream of its events, and a future of its reply. Dropping it detaches; the run goes on.
pub struct RunStream {
    events: BoxStream<'static, Event>,
    result: Option<oneshot::Receiver<Result<Reply, AgentError>>>,
    failed: Option<AgentError>,
    stopper: Stopper,
}

impl RunStream {
    fn failed(error: AgentError) -> Self {
        Self { events: futures_util::stream::empty().boxed(), result: None, failed: Some(error), stopper: Stopper::new() }
    }

    /// Stops the run: it ends with `aborted`, and what it had done stays.
    pub fn cancel(&self, message: impl Into<String>) {
        self.stopper.stop(AbortReason::abort(message));
    }

    /// Stops the run because its time is over: the reason is named `TimeoutError`.
    pub fn cancel_for_time(&self, message: impl Into<String>) {
        self.stopper.stop(AbortReason::timeout(message));
    }

    /// A handle that can stop the run after the stream was given away.
    pub fn canceller(&self) -> Canceller {
        Canceller { stopper: self.stopper.clone() }
    }
}

/// Stops a run.
#[derive(Clone)]
pub struct Canceller {
    stopper: Stopper,
}

impl Canceller {
    /// Stops it: it ends with `aborted`.
    pub fn cancel(&self, message: impl Into<String>) {
        self.stopper.stop(AbortReason::abort(message));
    }
}

impl Stream for RunStream {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        self.events.poll_next_unpin(cx)
    }
}

impl Future for RunStream {
    type Output = Result<Reply, AgentError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Err(error));
        }
        match &mut self.result {
            Some(result) => result.poll_unpin(cx).map(|received| received.unwrap_or(Err(AgentError::RuntimeStopped))),
            None => Poll::Ready(Err(AgentError::RuntimeStopped)),
        }
    }
}
