//! A handle to a thread, with what its next run is made with.

use std::sync::Arc;

use futures_util::StreamExt;
use serde_json::{Map, Value};
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;
use toolwright_core::policy::PermissionMode;
use toolwright_core::{
    AbortReason, Budget, Budgets, Input, InputId, InputMode, InvalidThreadId, RecordBody, RunLimits, Seq, ThreadId, Timestamp, Transcript,
};
use toolwright_tool::{Identity, StateMap};

use crate::agent::{AgentInner, Start, check_budgets, check_limits, checked_input};
use crate::approve::Approve;
use crate::attachments::keep_input;
use crate::compaction::{Compaction, Configured};
use crate::error::AgentError;
use crate::events::ThreadEvents;
use crate::index::ThreadInfo;
use crate::input::{Ticket, TurnPolicy, input_item, post_input};
use crate::keep::keep_of;
use crate::load::load;
use crate::run::{Known, Prepared, Reply, RunControl, RunStream, still_waits};
use crate::shell::Stopper;
use crate::store::{Append, InboxItem, StoreError};
use crate::subscription::Subscription;

/// A thread of an agent, with what its next run is made with.
#[derive(Clone)]
pub struct ThreadHandle {
    pub(crate) inner: Arc<AgentInner>,
    id: Result<ThreadId, InvalidThreadId>,
    pub(crate) state: StateMap,
    errors: Vec<AgentError>,
    pub(crate) principal: Option<Identity>,
    pub(crate) metadata: Map<String, Value>,
    pub(crate) limits: RunLimits,
    /// Whether the steps of the run were set, and are not the default.
    steps_given: bool,
    pub(crate) budgets: Arc<Budgets>,
    pub(crate) instructions: Option<String>,
    pub(crate) mode: Option<PermissionMode>,
    pub(crate) policy: TurnPolicy,
    compaction: Option<Configured>,
    cancel_on: Option<CancellationToken>,
}

impl ThreadHandle {
    pub(crate) fn new(inner: Arc<AgentInner>, id: Result<ThreadId, InvalidThreadId>) -> Self {
        let (limits, steps_given, budgets) = (inner.limits, inner.steps_given, Arc::clone(&inner.budgets));
        Self {
            inner,
            id,
            state: StateMap::default(),
            errors: Vec::new(),
            principal: None,
            metadata: Map::new(),
            limits,
            steps_given,
            budgets,
            instructions: None,
            mode: None,
            policy: TurnPolicy::default(),
            compaction: None,
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
        self.steps_given = true;
        self
    }

    /// What the next run may use, in place of the agent's (sdk-runtime BUD-9).
    #[must_use]
    pub fn budget(mut self, budget: Budget) -> Self {
        if budget.max_steps.is_some() && !self.steps_given {
            // Alone it takes the place of the default (sdk-runtime BUD-6).
            self.limits.max_steps = u32::MAX;
        }
        Arc::make_mut(&mut self.budgets).run = Some(budget);
        self
    }

    /// What the thread may use over all its runs, in place of the agent's; held by the next run.
    #[must_use]
    pub fn thread_budget(mut self, budget: Budget) -> Self {
        Arc::make_mut(&mut self.budgets).thread = Some(budget);
        self
    }

    /// Appended to the agent's instructions for the next run; never part of the transcript (sdk-runtime SET-7).
    #[must_use]
    pub fn instructions(mut self, more: impl Into<String>) -> Self {
        self.instructions = Some(more.into());
        self
    }

    /// The permission mode of the next run, in place of the thread's and the agent's. A switch of the thread's mode while it goes on
    /// counts from then on.
    #[must_use]
    pub fn permission_mode(mut self, mode: PermissionMode) -> Self {
        self.mode = Some(mode);
        self
    }

    /// What a send does while somebody moves the thread; by default it is refused.
    #[must_use]
    pub fn turn_policy(mut self, policy: TurnPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// How what a model sees is made shorter in the next run, before the agent's options: what is not set is as they say.
    #[must_use]
    pub fn compaction(mut self, compaction: Compaction) -> Self {
        let given = compaction.over(self.inner.compaction.as_ref().map(|configured| &configured.given));
        match given.resolve(Some(&self.inner.model.info()), &self.inner.around_compaction()) {
            Ok(compacting) => self.compaction = Some(Configured { given, compacting: Arc::new(compacting) }),
            Err(error) => self.errors.push(error),
        }
        self
    }

    /// The thread's options of compaction, else the agent's.
    pub(crate) fn compaction_in_force(&self) -> Option<&Configured> {
        self.compaction.as_ref().or(self.inner.compaction.as_ref())
    }

    /// Stops the next run when `token` fires.
    #[must_use]
    pub fn cancel_on(mut self, token: CancellationToken) -> Self {
        self.cancel_on = Some(token);
        self
    }

    /// Sends, and waits for the end of the run.
    pub async fn send(&self, input: impl Into<Input>) -> Result<Reply, AgentError> {
        let reply = self.stream(input).await?;
        self.with_decisions(reply).await
    }

    /// Lets code decide what waits, where the agent has some, and goes on until nothing waits that it decides (sdk-tools 13.6).
    async fn with_decisions(&self, reply: Reply) -> Result<Reply, AgentError> {
        match &self.inner.approving.approve {
            Some(approve) if !reply.pending.is_empty() => Box::pin(self.decided_by(approve, reply)).await,
            _ => Ok(reply),
        }
    }

    async fn decided_by(&self, approve: &Approve, mut reply: Reply) -> Result<Reply, AgentError> {
        while !reply.pending.is_empty() && !self.asks_nobody(&reply) && approve.decide(&self.inner, &reply).await? {
            reply = match self.resume_stream().await {
                // What was decided is one approval of several, or had moved the thread before.
                Err(AgentError::AwaitingApproval { .. }) => return Ok(reply),
                resumed => resumed?,
            };
        }
        Ok(reply)
    }

    /// Whether the mode says that nobody is asked, code neither (sdk-tools 16.3/5).
    fn asks_nobody(&self, reply: &Reply) -> bool {
        let agents = || self.inner.dispatch.permissions.mode().unwrap_or_default();
        reply.mode.unwrap_or_else(agents) == PermissionMode::DontAsk
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
        let reply = self.resume_stream().await?;
        self.with_decisions(reply).await
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
        let run = load(&*self.inner.store, id).await?.thread.run_to_cancel().cloned();
        let key = format!("cancel:{}", crate::random::call_id());
        let item = self.inner.clean_post(id, InboxItem::Cancel { reason: reason.clone(), run }).await?;
        self.inner.store.post(id, &key, item).await?;
        let thread = load(&*self.inner.store, id).await?.thread;
        if thread.run().is_none() && thread.open_calls().next().is_none() {
            return Ok(());
        }
        match self.start(Start::Stop(reason)).await {
            // Somebody moves it, and reads the inbox; or it has come to rest.
            Err(AgentError::Store(StoreError::Busy { .. }) | AgentError::NothingToResume { .. }) => Ok(()),
            ended => ended.map(|_| ()),
        }
    }

    /// Sends input to whoever moves the thread, from any process: it joins the run after the step that goes on now. Where
    /// nobody moves the thread it waits for the next run: a `resume()`, a send, or a [`crate::Worker`].
    pub async fn enqueue(&self, input: impl Into<Input>) -> Result<Ticket, AgentError> {
        post_input(&self.inner, self.id()?, InputMode::Queue, checked_input(input.into())?, None).await
    }

    /// As [`ThreadHandle::enqueue`], and redirects the run: a model that has said nothing yet is given up and asked again with
    /// the input, calls that have not begun are not begun (sdk-runtime STE-1, STE-3).
    pub async fn steer(&self, input: impl Into<Input>) -> Result<Ticket, AgentError> {
        post_input(&self.inner, self.id()?, InputMode::Steer, checked_input(input.into())?, None).await
    }

    /// Input that is enqueued at a moment to come, once a [`crate::Worker`] sees that it is due.
    pub async fn enqueue_at(&self, at: Timestamp, input: impl Into<Input>) -> Result<InputId, AgentError> {
        let messages = keep_input(&keep_of(&self.inner, self.id()?, None), checked_input(input.into())?).await;
        let item = self.inner.clean_post(self.id()?, input_item(InputMode::Queue, messages, None)?).await?;
        let InboxItem::Input { id, .. } = &item else { return Err(AgentError::MissingInput) };
        let id = id.clone();
        self.inner.store.post_at(self.id()?, &format!("input:{id}"), at, item).await?;
        Ok(id)
    }

    /// Takes scheduled input back; gives whether it was not due yet.
    pub async fn unschedule(&self, input: &InputId) -> Result<bool, AgentError> {
        Ok(self.inner.store.cancel_timer(self.id()?, &format!("input:{input}")).await?)
    }

    /// The transcript so far: what a model would be sent. The journal keeps more; see [`ThreadHandle::steps`].
    pub async fn history(&self) -> Result<Transcript, AgentError> {
        Ok(load(&*self.inner.store, self.id()?).await?.thread.transcript().clone())
    }

    /// The thread's events after the position `from`: what the journal has, then what comes, without gap or repeat. Events of
    /// a run in this process include its deltas; of one elsewhere, the durable ones.
    pub fn events(&self, from: Seq) -> Result<ThreadEvents, AgentError> {
        Ok(ThreadEvents::new(Subscription::of_thread(&self.inner, self.id()?, from)))
    }

    /// The thread's events after the position `from` that the journal has now.
    pub fn events_so_far(&self, from: Seq) -> Result<ThreadEvents, AgentError> {
        Ok(ThreadEvents::there_are(Subscription::of_thread(&self.inner, self.id()?, from)))
    }

    /// What the store's index says of it; `None` if it has no journal.
    pub async fn info(&self) -> Result<Option<ThreadInfo>, AgentError> {
        Ok(self.inner.store.info(self.id()?).await?)
    }

    /// Empties the transcript. The journal keeps what was said, files and values stay. Refused while a run is active, or calls
    /// wait for decisions (sdk-runtime SES-11).
    pub async fn clear(&self) -> Result<(), AgentError> {
        let id = self.id()?;
        let claim = self.inner.store.claim(id).await?;
        let thread = load(&*self.inner.store, id).await?.thread;
        Self::must_rest(&thread, id)?;
        if thread.transcript().is_empty() {
            return Ok(());
        }
        let cleared = Some((id.clone(), thread.transcript().len() as u64));
        let body = RecordBody::TranscriptReplaced { messages: Vec::new(), cleared };
        let record = toolwright_core::Record { seq: thread.head().next(), at: self.inner.clock.now(), run: None, body };
        self.inner.store.append(&*claim, thread.head(), Append::records(vec![Arc::new(record)])).await?;
        self.inner.store.release(Arc::from(claim)).await;
        Ok(())
    }

    /// Deletes the thread with everything it has. Refused while somebody moves it.
    pub async fn delete(&self) -> Result<(), AgentError> {
        let id = self.id()?;
        let claim = self.inner.store.claim(id).await?;
        // One that has no journal yet may have values, or input that waits.
        let known = self.inner.store.info(id).await?.is_some() || !self.inner.store.inbox(id, 0).await?.is_empty();
        self.inner.store.delete(&*claim).await?;
        if known { Ok(()) } else { Err(AgentError::UnknownThread { thread: id.clone() }) }
    }

    /// An error that says why the thread does not rest, if it does not.
    pub(crate) fn must_rest(thread: &toolwright_core::Thread, id: &ThreadId) -> Result<(), AgentError> {
        if thread.head() == Seq(0) {
            return Err(AgentError::UnknownThread { thread: id.clone() });
        }
        if let Some(waits) = still_waits(thread, id) {
            return Err(waits);
        }
        if thread.run().is_some() || thread.open_calls().next().is_some() {
            return Err(AgentError::Interrupted { thread: id.clone() });
        }
        Ok(())
    }

    fn start(&self, start: Start) -> RunStream {
        if let Some(error) = self.errors.first() {
            return RunStream::failed(error.clone());
        }
        let thread = match &self.id {
            Ok(id) => id.clone(),
            Err(error) => return RunStream::failed(error.clone().into()),
        };
        if let Err(error) = check_limits(&self.limits).and_then(|()| check_budgets(&self.budgets)).and_then(|()| self.check_state()) {
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
        let known = watch::Sender::new(Known::default());
        let control = RunControl { inner: Arc::clone(&self.inner), thread: thread.clone(), known: known.subscribe() };
        let run = Prepared { handle: self.clone(), thread, start, stopper: stopper.clone(), known };
        tokio::spawn(async move {
            let reply = Box::pin(run.go(begun)).await;
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
        RunStream::new(events, result, stopper, control)
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
