//! The tokio shell around the driver: one task moves one thread until it rests.

use std::collections::{HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use toolwright_core::{
    AbortReason, ArgsState, Call, CallId, CallState, Ending, Failure, Key, Message, Outcome, Record, RecordBody, Run, Seq, Side, Thread,
    ThreadId, ToolFailure, ToolFailureKind, ToolSpec, Transcript,
};
use toolwright_tool::{Identity, Snapshots, StateMap};

use crate::attachments::Shown;
use crate::clock::Clock;
use crate::compaction::{Compacting, Meter, Trigger};
use crate::dispatch::{Dispatch, ExecuteRequest, GateRequest, RunFacts, WatchedRun};
use crate::driver::{Completion, Driver, Effect, Executed, InputCheck};
use crate::error::AgentError;
use crate::generate::{Generation, Watched};
use crate::guard::Around;
use crate::hub::Hub;
use crate::keep::Beside;
use crate::model::{Model, ModelError, ModelRequest, ModelSettings};
use crate::posting::timers_of_thread;
use crate::side::Aside;
use crate::store::{Append, Claim, InboxItem, Snapshot, Store, StoreError};

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
    /// Whether it was said that a model's price is not known.
    pub(crate) price_warned: Arc<AtomicBool>,
    pub(crate) compaction: Option<Arc<Compacting>>,
    pub(crate) beside: Beside,
    /// What the model gets in place of addresses of content.
    pub(crate) shown: Arc<Shown>,
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

/// What became of a gate that was begun.
enum Gating {
    Answered(Completion),
    Waits(BoxFuture<'static, Completion>),
}

/// What taking the inbox did.
struct Taken {
    came: bool,
    rests: bool,
}

/// A call, the key of the decision it waits for, and what is to be posted there.
type Answered = (CallId, String, Box<InboxItem>);

struct InFlight {
    abort: AbortHandle,
    /// Fires when the call, or the model, shall stop.
    token: CancellationToken,
    /// When a body that not even dropping could end is given up.
    give_up: Option<Instant>,
}

/// Where a shell begins in the journal.
#[derive(Clone, Copy)]
pub(crate) struct Position {
    /// The last record that is durable.
    pub(crate) durable: Seq,
    /// The last snapshot.
    pub(crate) saved_at: Seq,
}

/// How often within the claim limit an owner gives a sign of life: whoever suspects it watches for a quarter of the limit.
pub(crate) const RENEWALS: u32 = 6;
/// How often a claim is confirmed before a body, where the store's word comes too late to count.
const CONFIRMATIONS: u32 = 3;
/// A snapshot is worth its bytes from this length of a journal on.
const FIRST_SNAPSHOT: u64 = 256;

/// Moves a thread until it rests.
pub(crate) struct Shell {
    setup: RunSetup,
    driver: Driver,
    claim: Arc<dyn Claim>,
    hub: Arc<Hub>,
    stopper: Stopper,
    durable: Seq,
    /// The position of the last snapshot, saved or tried; the next one comes when the journal is twice as long.
    saved_at: Seq,
    /// How far the store knows the inbox to be taken.
    inbox_marked: u64,
    /// When the store last confirmed the claim.
    confirmed: Instant,
    completions: mpsc::UnboundedSender<Incoming>,
    incoming: mpsc::UnboundedReceiver<Incoming>,
    in_flight: HashMap<Key, InFlight>,
    run_cancelled: CancellationToken,
    /// How long the next request is, where that matters.
    meter: Option<Meter>,
    /// How much of the transcript was looked through for secrets, and whether there were none.
    clean: (usize, bool),
    /// Something in the inbox is this shell's own.
    has_posted: bool,
}

/// Something that a task of this shell has to say.
enum Incoming {
    Completed(Completion),
    /// The claim could not be confirmed before a body.
    Lost(StoreError),
}

impl Shell {
    pub(crate) fn new(setup: RunSetup, driver: Driver, claim: Arc<dyn Claim>, hub: Arc<Hub>, from: Position, stopper: Stopper) -> Self {
        let (completions, incoming) = mpsc::unbounded_channel();
        Self {
            setup,
            driver,
            claim,
            hub,
            stopper,
            durable: from.durable,
            saved_at: from.saved_at,
            inbox_marked: 0,
            confirmed: Instant::now(),
            completions,
            incoming,
            in_flight: HashMap::new(),
            run_cancelled: CancellationToken::new(),
            meter: None,
            clean: (0, true),
            has_posted: false,
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
        // Free before anybody hears of the end, so that who does may claim it at once.
        self.setup.store.release(self.claim).await;
        self.hub.close();
        ended.map(|()| self.driver.thread().clone())
    }

    async fn drive(&mut self) -> Result<(), AgentError> {
        // Read first: what was posted up to here is in the inbox, or was taken by an owner before.
        let posted_through = self.setup.store.posted_through(&self.setup.thread).await?;
        let mut inbox_seen = 0;
        self.take_inbox(&mut inbox_seen).await?;
        inbox_seen = inbox_seen.max(posted_through);
        let mut news = self.news(inbox_seen);
        let mut rests = if self.stopper.token.is_cancelled() {
            // Stopped before it began: the model is never asked (sdk-runtime CAN-3).
            self.step(Some(Completion::Cancel { reason: self.stopper.reason(), partial: None })).await?
        } else {
            self.step(None).await?
        };
        let mut stopping = self.stopper.token.is_cancelled();
        loop {
            if !rests && std::mem::take(&mut self.has_posted) {
                // It is taken like anything else, so that nothing of it is left when the run ends.
                let taken = self.take_inbox(&mut inbox_seen).await?;
                rests = taken.came && taken.rests;
                continue;
            }
            if rests && self.driver.can_start() {
                // What came meanwhile may start the run. After its end, what comes is left in the inbox, where the next owner, or a
                // worker that looks for one, finds it.
                let taken = self.take_inbox(&mut inbox_seen).await?;
                rests = !taken.came || taken.rests;
            }
            if rests {
                return self.mark_inbox().await;
            }
            rests = self.turn(&mut news, &mut inbox_seen, &mut stopping).await?;
        }
    }

    /// Ends when something was posted. It is kept over turns: to begin waiting asks the store.
    fn news(&self, seen: u64) -> BoxFuture<'static, ()> {
        let (store, thread) = (Arc::clone(&self.setup.store), self.setup.thread.clone());
        async move { store.posted(&thread, seen).await }.boxed()
    }

    /// Waits for one thing to happen and takes it. Gives whether the thread rests.
    async fn turn(&mut self, news: &mut BoxFuture<'static, ()>, inbox_seen: &mut u64, stopping: &mut bool) -> Result<bool, AgentError> {
        let give_up = self.in_flight.values().filter_map(|flight| flight.give_up).min();
        let stopper = self.stopper.token.clone();
        let renewal = self.confirmed + self.setup.store.claim_limit() / RENEWALS;
        let time_left = self.time_left();
        tokio::select! {
            biased;
            incoming = self.incoming.recv() => match incoming {
                Some(Incoming::Completed(completion)) => self.step(Some(completion)).await,
                Some(Incoming::Lost(error)) => Err(error.into()),
                // The sender is this shell's own.
                None => Err(AgentError::RuntimeStopped),
            },
            () = stopper.cancelled(), if !*stopping => {
                *stopping = true;
                self.step(Some(Completion::Cancel { reason: self.stopper.reason(), partial: Some(self.hub.text_so_far()) })).await
            }
            () = &mut *news => {
                let taken = self.take_inbox(inbox_seen).await?;
                *news = self.news(*inbox_seen);
                Ok(taken.rests)
            }
            () = sleep_until(give_up) => self.give_up_stuck().await,
            () = tokio::time::sleep(time_left.unwrap_or(Duration::MAX)), if time_left.is_some() => {
                self.driver.streamed(self.hub.so_far());
                self.step(None).await
            }
            () = tokio::time::sleep_until(renewal) => {
                let sent = Instant::now();
                self.setup.store.renew(&*self.claim).await?;
                self.confirmed = sent;
                Ok(false)
            }
        }
    }

    /// How long until the time of a budget is over.
    fn time_left(&self) -> Option<Duration> {
        let at = self.driver.wake_at()?;
        // Never at once: where the time is over and nothing is left to stop, the run ends by itself.
        Some(Duration::from_millis(at.millis_since(self.setup.clock.now()).max(1)))
    }

    /// Tells the store how far the inbox is taken, where no record did: what changed nothing is not read again.
    async fn mark_inbox(&mut self) -> Result<(), AgentError> {
        let through = self.driver.inbox_through();
        if through > self.inbox_marked {
            self.write(Vec::new()).await?;
        }
        Ok(())
    }

    /// Journals what was posted.
    async fn take_inbox(&mut self, seen: &mut u64) -> Result<Taken, AgentError> {
        let items = self.setup.store.inbox(&self.setup.thread, *seen).await?;
        if items.is_empty() {
            return Ok(Taken { came: false, rests: false });
        }
        let now = self.setup.clock.now();
        for (position, item) in items {
            *seen = (*seen).max(position);
            self.driver.streamed(self.hub.so_far());
            self.driver.take(Completion::Posted { position, item }, now)?;
        }
        Ok(Taken { came: true, rests: self.step(None).await? })
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
            let executed = Executed::of(Outcome::failed(failure));
            rests = self.step(Some(Completion::Executed { call, executed: Box::new(executed) })).await?;
        }
        Ok(rests)
    }

    /// One step of the driver and its effects. Gives whether the thread rests.
    ///
    /// A gate that answers at once shares the append of what led to it: a reply, its calls' verdicts and the records that
    /// their bodies begin are one write. Whatever else follows an append waits for it.
    async fn step(&mut self, completion: Option<Completion>) -> Result<bool, AgentError> {
        match &completion {
            Some(Completion::Model { step, .. }) => drop(self.in_flight.remove(&Key::Ask(*step))),
            Some(Completion::Compacted(compaction)) => {
                self.in_flight.remove(&Key::Ask(compaction.step.unwrap_or_default()));
            }
            Some(Completion::Checked(_)) => drop(self.in_flight.remove(&Key::CheckInput)),
            Some(Completion::Gated { call, .. }) => drop(self.in_flight.remove(&Key::Gate(call.clone()))),
            Some(Completion::Executed { call, .. }) => {
                if let Some(flight) = self.in_flight.remove(&Key::Execute(call.clone())) {
                    flight.abort.abort();
                }
            }
            _ => {}
        }
        let mut effects = self.driver.step(completion, self.setup.clock.now())?;
        loop {
            let (rests, answer) = self.set_going(effects).await?;
            let Some((call, key, item)) = answer else { return Ok(rests) };
            // Nobody answers for a thread that has another owner by now.
            self.hold().is_held().await?;
            let posted = self.setup.store.post(&self.setup.thread, &key, *item).await?;
            self.has_posted = true;
            effects = self.driver.step(Some(Completion::First { call, posted }), self.setup.clock.now())?;
        }
    }

    /// Begins what a step of the driver gave. Gives whether the thread rests, and the answer that is to be posted, if there is one.
    async fn set_going(&mut self, effects: Vec<Effect>) -> Result<(bool, Option<Answered>), AgentError> {
        let now = self.setup.clock.now();
        let mut todo: VecDeque<Effect> = effects.into();
        let (mut records, mut gates, mut after) = (Vec::new(), Vec::new(), Vec::new());
        while let Some(effect) = todo.pop_front() {
            match effect {
                Effect::Append(more) => records.extend(more),
                Effect::Gate { call } => match self.gate(&call) {
                    Some(Gating::Answered(completion)) => {
                        // What the step before said about rest is said anew.
                        after.retain(|effect| !matches!(effect, Effect::Rest));
                        todo.extend(self.driver.step(Some(completion), now)?);
                    }
                    Some(Gating::Waits(gate)) => gates.push((call, gate)),
                    None => {}
                },
                effect => after.push(effect),
            }
        }
        if !records.is_empty() {
            self.write(records).await?;
        }
        for (call, gate) in gates {
            let abort = start_boxed(gate, self.completions.clone());
            let token = self.run_cancelled.child_token();
            self.in_flight.insert(Key::Gate(call), InFlight { abort, token, give_up: None });
        }
        let (mut rests, mut answer) = (false, None);
        for effect in after {
            match effect {
                Effect::Ask { step } => self.ask(step),
                Effect::CheckInput => self.check_input(),
                Effect::Execute { call, attempt } => self.execute(&call, attempt),
                Effect::Cancel(key) => self.cancel(&key),
                Effect::Answer { call, key, item } => answer = Some((call, key, item)),
                Effect::Rest => rests = true,
                Effect::Append(_) | Effect::Gate { .. } => {}
            }
        }
        Ok((rests, answer))
    }

    async fn write(&mut self, records: Vec<Arc<Record>>) -> Result<(), AgentError> {
        let head = records.last().map_or(self.durable, |record| record.seq);
        let inbox_through = self.driver.inbox_through();
        for (key, at, item) in timers_of_thread(self.driver.thread(), &records) {
            self.setup.store.post_at(&self.setup.thread, &key, at, item).await?;
        }
        let append = Append { records: records.clone(), inbox_through };
        // The claim held when this was sent: the answer may be read much later, by a process that was stopped in between.
        let sent = Instant::now();
        self.setup.store.append(&*self.claim, self.durable, append).await?;
        self.durable = head;
        self.inbox_marked = inbox_through;
        self.confirmed = sent;
        self.hub.appended(&records);
        self.compacted(&records);
        self.save_snapshot().await;
        Ok(())
    }

    /// Saves the fold when the journal has grown to twice what it was at the last snapshot: so all snapshots together cost
    /// about as much as the journal, however long it gets.
    async fn save_snapshot(&mut self) {
        if self.durable.0 < FIRST_SNAPSHOT || self.durable.0 < self.saved_at.0.saturating_mul(2) {
            return;
        }
        let thread = self.driver.thread();
        if thread.head() != self.durable {
            return;
        }
        let Some(text) = thread.save() else { return };
        let snapshot = Snapshot { at: self.durable, text: text.into() };
        // Tried again at twice the length, not at each append: the journal is whole without it.
        self.saved_at = self.durable;
        if let Err(error) = self.setup.store.save_snapshot(&*self.claim, snapshot).await {
            tracing::warn!(thread = %self.setup.thread, %error, "a snapshot could not be saved");
        }
    }

    fn facts(&self) -> RunFacts {
        RunFacts {
            thread: Some(self.setup.thread.clone()),
            run: self.driver.thread().run().map(|run| run.id.clone()),
            principal: self.setup.principal.clone(),
            state: self.setup.state.clone(),
            cancelled: self.run_cancelled.clone(),
            beside: self.setup.beside.clone(),
            mode: self.driver.thread().permission_mode(),
            watched: self.setup.dispatch.is_watched().then(|| {
                let metadata = self.driver.thread().run().map(|run| run.metadata.clone()).unwrap_or_default();
                Box::new(WatchedRun { metadata, today: self.today(), model_timeout: self.setup.model_timeout })
            }),
        }
    }

    /// What the model sees is shorter now, durably.
    fn compacted(&mut self, records: &[Arc<Record>]) {
        for record in records {
            if let (RecordBody::ContextCompacted(compaction), Some(compacting)) = (&record.body, &self.setup.compaction) {
                self.meter.iter_mut().for_each(Meter::forget);
                compacting.tell(compaction);
            }
        }
    }

    /// Begins to make what the model sees shorter, if it is too long for this step and that was not tried. The driver asks for the
    /// model again once it is done (sdk-runtime CMP-2).
    fn compact(&mut self, step: u32) -> bool {
        let Some(compacting) = self.setup.compaction.clone() else { return false };
        let thread = self.driver.thread();
        if thread.compacted_for() == step {
            return false;
        }
        let size = self.meter.get_or_insert_with(|| Meter::new(&self.setup.instructions, &self.setup.tools)).size(thread);
        if size.total <= compacting.threshold_tokens() {
            return false;
        }
        let token = self.run_cancelled.child_token();
        let (id, today) = (Some(self.setup.thread.clone()), self.today());
        let request = compacting.request(thread.transcript().clone(), size, id, today, token.clone());
        let run = thread.run();
        let prune_only = run.is_some_and(Run::prunes_only);
        let trigger = Trigger::Step { run: run.map(|run| run.id.clone()), step, prune_only };
        // Nothing of the step before is this one's, should the run be stopped meanwhile.
        self.hub.step_begins(step);
        let broken = Box::new(compacting.broken(size.total, step));
        let work = async move { Completion::Compacted(Box::new(compacting.run(request, trigger).await)) };
        let work = caught(work, move || Completion::Compacted(broken)).boxed();
        let abort = start_if_held(work, self.hold(), self.completions.clone());
        self.in_flight.insert(Key::Ask(step), InFlight { abort, token, give_up: None });
        true
    }

    fn today(&self) -> Arc<str> {
        self.setup.clock.now().to_iso().get(..10).unwrap_or_default().into()
    }

    fn ask(&mut self, step: u32) {
        if self.compact(step) {
            return;
        }
        let token = self.run_cancelled.child_token();
        let request = ModelRequest {
            instructions: Arc::clone(&self.setup.instructions),
            messages: self.transcript_for_model(),
            acting: Side::A,
            tools: Arc::clone(&self.setup.tools),
            settings: Arc::clone(&self.setup.settings),
            thread: Some(self.setup.thread.clone()),
            run: self.driver.thread().run().map(|run| run.id.clone()),
            step,
            today: self.today(),
            cancelled: token.clone(),
        };
        self.hub.step_begins(step);
        let generation = Generation {
            model: Arc::clone(&self.setup.model),
            shown: Arc::clone(&self.setup.shown),
            hub: Arc::clone(&self.hub),
            timeout: self.setup.model_timeout,
            watched: self.watched(&request),
            estimates: self.driver.thread().run().is_some_and(|run| run.budgets.is_some()),
            price_warned: Some(&self.setup.price_warned).filter(|_| self.driver.thread().run().is_some_and(Run::limits_cost)).cloned(),
            redactor: self.setup.beside.redactor.clone(),
            request,
        };
        // A panic in a model is its failure, not a hang.
        let panicked = move || {
            let result = Err(ModelError::new("model", "the model's own code panicked"));
            Completion::Model { step, result, review: Box::default() }
        };
        let abort = start_if_held(caught(generation.run(), panicked).boxed(), self.hold(), self.completions.clone());
        self.in_flight.insert(Key::Ask(step), InFlight { abort, token, give_up: None });
    }

    /// What those need who look at a model call; `None` where nobody does.
    fn watched(&self, request: &ModelRequest) -> Option<Watched> {
        let Dispatch { hooks, guardrails, agent, .. } = &*self.setup.dispatch;
        let thread = self.driver.thread();
        let races = guardrails.races_input() && thread.input_at_end() > 0;
        if hooks.is_empty() && guardrails.output.is_empty() && !races {
            return None;
        }
        let transcript = thread.transcript();
        let raced =
            if races { transcript.from(transcript.len().saturating_sub(thread.input_at_end())).cloned().collect() } else { Vec::new() };
        Some(Watched {
            hooks: hooks.clone(),
            guardrails: Arc::clone(guardrails),
            agent: Arc::clone(agent),
            principal: self.setup.principal.clone(),
            metadata: thread.run().map(|run| run.metadata.clone()).unwrap_or_default(),
            raced,
            messages: transcript.clone(),
            aside: self.aside(request.cancelled.clone()),
        })
    }

    fn aside(&self, cancelled: CancellationToken) -> Aside {
        let run = self.driver.thread().run().map(|run| run.id.clone());
        Aside::new(Some(self.setup.thread.clone()), run, self.today(), self.setup.model_timeout, cancelled)
    }

    /// Has guardrails check new input.
    fn check_input(&mut self) {
        let token = self.run_cancelled.child_token();
        let thread = self.driver.thread();
        let input: Vec<Arc<Message>> = thread.unchecked_input().cloned().collect();
        let (messages, aside) = (thread.transcript().clone(), self.aside(token.clone()));
        let (guardrails, principal) = (Arc::clone(&self.setup.dispatch.guardrails), self.setup.principal.clone());
        let work = async move {
            let around = Around { guardrails: &guardrails, messages: &messages, principal: principal.as_ref(), call: None, aside: &aside };
            Completion::Checked(Box::new(around.input(&input).await))
        };
        let panicked = || {
            let failure = Failure {
                name: "PanicError".to_owned(),
                message: "the check of the input panicked".to_owned(),
                code: Some("TOOLWRIGHT_AGENT_EXECUTION_FAILED".to_owned()),
            };
            Completion::Checked(Box::new(InputCheck { ending: Some(Ending::Error { failure }), ..InputCheck::default() }))
        };
        let abort = start_if_held(caught(work, panicked).boxed(), self.hold(), self.completions.clone());
        self.in_flight.insert(Key::CheckInput, InFlight { abort, token, give_up: None });
    }

    /// The transcript as a model gets it. What was journaled before a secret was registered may hold it still.
    fn transcript_for_model(&mut self) -> Transcript {
        let transcript = self.driver.thread().transcript();
        let Some(redactor) = &self.setup.beside.redactor else { return transcript.clone() };
        // A compaction makes it shorter: then all of it is new.
        let seen = if transcript.len() < self.clean.0 { 0 } else { self.clean.0 };
        let is_clean = |message: &Arc<Message>| matches!(redactor.redacted(&**message), Ok(None));
        if (self.clean.1 || seen == 0) && transcript.from(seen).all(is_clean) {
            self.clean = (transcript.len(), true);
            return transcript.clone();
        }
        self.clean = (transcript.len(), false);
        crate::generate::without_secrets(redactor, transcript)
    }

    fn hold(&self) -> Hold {
        Hold { claim: Arc::clone(&self.claim), store: Arc::clone(&self.setup.store), confirmed: self.confirmed }
    }

    /// What is known of a call's arguments. Those of a call that no model made say by the mark in them that they held a secret.
    fn args_state(&self, open: &Call) -> ArgsState {
        match (&open.item, &self.setup.beside.redactor) {
            (Some(item), _) => item.state,
            (None, Some(redactor)) if redactor.find_mark(&open.written).is_some() => ArgsState::Redacted,
            _ => ArgsState::Complete,
        }
    }

    /// Begins a call's gate. What answers at once is given back; the rest goes on in a task of its own.
    fn gate(&self, call: &CallId) -> Option<Gating> {
        let thread = self.driver.thread();
        let open = thread.call(call)?;
        let decided = match (&open.state, &open.gated) {
            (CallState::Decided(ask, decision), Some(gated)) => Some((ask.clone(), decision.clone(), Arc::clone(&gated.text))),
            _ => None,
        };
        let request = GateRequest {
            call: call.clone(),
            tool: Arc::clone(&open.tool),
            written: Arc::clone(&open.written),
            args_state: self.args_state(open),
            ask: open.item.as_ref().and_then(|item| item.ask.clone()),
            decided,
            asked: open.asked,
            remembered: thread.remembered(&open.tool).cloned().collect(),
            approved_in_turn: thread.approved_in_turn(&open.tool),
            now: self.setup.clock.now(),
            calls_in_run: thread.calls_in_run(&open.tool),
            messages: before_turn(thread),
            run: self.facts(),
        };
        let dispatch = Arc::clone(&self.setup.dispatch);
        let (id, panicked_id, tool) = (call.clone(), call.clone(), Arc::clone(&open.tool));
        let gate = async move { Completion::Gated { call: id, outcome: Box::new(dispatch.gate(&request).await) } };
        let mut gate: BoxFuture<'static, Completion> = caught(gate, move || gate_panicked(panicked_id, &tool)).boxed();
        Some(match (&mut gate).now_or_never() {
            Some(completion) => Gating::Answered(completion),
            None => Gating::Waits(gate),
        })
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
            approved_by: open.votes.iter().filter_map(|vote| vote.by.clone()).collect(),
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
        let body = caught(body, move || execute_panicked(panicked_id, &tool));
        let abort = start_if_held(body.boxed(), self.hold(), self.completions.clone());
        self.in_flight.insert(Key::Execute(call.clone()), InFlight { abort, token, give_up: Some(give_up) });
    }

    fn cancel(&mut self, key: &Key) {
        if matches!(key, Key::Ask(_) | Key::CheckInput) {
            // Nobody waits for a model, or a check, that ignores the signal (sdk-runtime CAN-4).
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

/// A completion, whatever happens in the work.
async fn caught(work: impl Future<Output = Completion> + Send, panicked: impl FnOnce() -> Completion + Send) -> Completion {
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| panicked())
}

/// What tells whether an owner still is one.
struct Hold {
    claim: Arc<dyn Claim>,
    store: Arc<dyn Store>,
    confirmed: Instant,
}

impl Hold {
    /// Whether the claim holds now. What the store said counts from the moment it was asked: the process may also have been stopped
    /// between the store's word and its arrival here.
    async fn is_held(&self) -> Result<(), StoreError> {
        let fresh = self.store.claim_limit() / 2;
        let mut confirmed = self.confirmed;
        for _ in 0..CONFIRMATIONS {
            if confirmed.elapsed() < fresh {
                return Ok(());
            }
            confirmed = Instant::now();
            self.store.renew(&*self.claim).await?;
        }
        if confirmed.elapsed() < fresh {
            return Ok(());
        }
        Err(StoreError::failed(format!(
            "to confirm the claim on the thread {} took longer than half the claim limit of {} ms, {CONFIRMATIONS} times; raise the limit",
            self.claim.thread(),
            self.store.claim_limit().as_millis()
        )))
    }
}

/// Starts a task that sends one completion, if the claim holds. Between the append before and the moment it begins the whole
/// process may have been stopped for a while: an owner whose place may have been taken begins nothing (invariant 9).
fn start_if_held(work: BoxFuture<'static, Completion>, hold: Hold, completions: mpsc::UnboundedSender<Incoming>) -> AbortHandle {
    let task = tokio::spawn(async move {
        let held = hold.is_held().await;
        // A run that is over holds no claim while its last work ends.
        drop(hold);
        let said = match held {
            Ok(()) => Incoming::Completed(work.await),
            Err(error) => Incoming::Lost(error),
        };
        // The receiver is gone only when the run is.
        let _ = completions.send(said);
    });
    task.abort_handle()
}

/// Starts a task that sends one completion.
fn start_boxed(work: BoxFuture<'static, Completion>, completions: mpsc::UnboundedSender<Incoming>) -> AbortHandle {
    let task = tokio::spawn(async move {
        // The receiver is gone only when the run is.
        let _ = completions.send(Incoming::Completed(work.await));
    });
    task.abort_handle()
}

fn gate_panicked(call: CallId, tool: &str) -> Completion {
    let mut failure = ToolFailure::new(ToolFailureKind::Execution, tool, &format!("a check of `{tool}` panicked, so the call did not run"))
        .named("PanicError");
    failure.tool_call_id = Some(call.to_string());
    let settled = Executed::of(Outcome::failed(failure.clone()));
    Completion::Gated {
        call,
        outcome: Box::new(crate::driver::GateOutcome {
            arguments: None,
            repairs: Vec::new(),
            read_only: false,
            notes: None,
            verdict: toolwright_core::Verdict::Refuse { failure: Arc::new(failure) },
            settled: Some(settled),
        }),
    }
}

fn execute_panicked(call: CallId, tool: &str) -> Completion {
    let mut failure =
        ToolFailure::new(ToolFailureKind::Execution, tool, &format!("`{tool}` panicked; its outcome is unknown")).named("PanicError");
    failure.tool_call_id = Some(call.to_string());
    Completion::Executed { call, executed: Box::new(Executed::of(Outcome::failed(failure))) }
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
