//! One run, from its start to its reply: who may start it, what it is made with, and its handle.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::{oneshot, watch};
use toolwright_core::policy::PermissionMode;
use toolwright_core::{
    AbortReason, BudgetTrip, CallState, Ending, Event, FinishReason, GuardrailTrip, Input, InputMode, Message, Outcome, Record, RecordBody,
    RunId, Seq, Thread, ThreadId, Timestamp, Transcript, Usage,
};

use crate::agent::{AgentInner, OnDrift, Start, checked_input, next_run};
use crate::attachments::{Shown, keep_input};
use crate::driver::{Driver, mode_record};
use crate::error::AgentError;
use crate::hub::Hub;
use crate::index::PendingApproval;
use crate::input::{Ticket, TurnPolicy, post_input};
use crate::keep::Beside;
use crate::load::{Loaded, load, read_through};
use crate::permissions::Facts;
use crate::shell::{Position, RunSetup, Shell, Stopper};
use crate::store::{Append, Claim, InboxItem, Store, StoreError};
use crate::subscription::Subscription;
use crate::thread::ThreadHandle;

/// What is known of a run from outside while it goes on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// The run, and the position before its first record.
    pub(crate) run: Option<(RunId, Seq)>,
    pub(crate) over: bool,
}

/// A run about to begin, on a task of its own.
pub(crate) struct Prepared {
    pub(crate) handle: ThreadHandle,
    pub(crate) thread: ThreadId,
    pub(crate) start: Start,
    pub(crate) stopper: Stopper,
    pub(crate) known: watch::Sender<Known>,
}

impl Prepared {
    pub(crate) async fn go(self, begun: oneshot::Sender<Subscription>) -> Result<Reply, AgentError> {
        let known = self.known.clone();
        let stopper = self.stopper.clone();
        let reply = Box::pin(self.claim_and_run(begun)).await;
        // Frees the task that waits for the caller's token, and tells those who would send more that it is too late.
        stopper.token.cancel();
        known.send_modify(|known| known.over = true);
        reply
    }

    async fn claim_and_run(self, begun: oneshot::Sender<Subscription>) -> Result<Reply, AgentError> {
        let inner = Arc::clone(&self.handle.inner);
        let policy = if matches!(self.start, Start::Input(_)) { self.handle.policy } else { TurnPolicy::Refuse };
        // Calls that wait take their turns in the order they came.
        let _turn = match policy {
            TurnPolicy::Wait => {
                let turn = inner.turns.of(&self.thread).lock_owned();
                tokio::select! {
                    biased;
                    turn = turn => Some(turn),
                    () = self.stopper.token.cancelled() => return Err(StoreError::Busy { thread: self.thread }.into()),
                }
            }
            _ => None,
        };
        let claim = match inner.store.claim(&self.thread).await {
            Err(StoreError::Busy { .. }) => match policy {
                TurnPolicy::Refuse => return Err(StoreError::Busy { thread: self.thread }.into()),
                TurnPolicy::Wait => claim_when_free(&*inner.store, &self.thread, &self.stopper).await?,
                TurnPolicy::Queue => return Box::pin(self.join(InputMode::Queue, begun)).await,
                TurnPolicy::Steer => return Box::pin(self.join(InputMode::Steer, begun)).await,
            },
            claim => claim?,
        };
        let claim: Arc<dyn Claim> = Arc::from(claim);
        let Self { handle, thread, start, stopper, known } = self;
        let owner = Owner { handle: &handle, id: &thread, stopper: &stopper, known: &known };
        let mut found = owner.look().await?;
        if policy != TurnPolicy::Refuse && found.was_interrupted() {
            // What was interrupted comes first; its events are not streamed (sdk-runtime DSE-4).
            owner.run(Arc::clone(&claim), found, Start::GoOn, None).await?;
            found = owner.look().await?;
        }
        owner.run(claim, found, start, Some(begun)).await
    }

    /// Joins the run of whoever moves the thread; gives that run's reply. Where nobody takes the input, it is the next turn.
    async fn join(self, mode: InputMode, begun: oneshot::Sender<Subscription>) -> Result<Reply, AgentError> {
        let Self { handle, thread, start, stopper, known } = self;
        let inner = Arc::clone(&handle.inner);
        let Start::Input(messages) = start else { return Err(StoreError::Busy { thread }.into()) };
        let ticket = post_input(&inner, &thread, mode, messages, None).await?;
        let mut begun = Some(begun);
        loop {
            let standing = Standing::of(&*inner.store, &thread, &ticket).await?;
            if let Standing::Done { joined, done } = &standing {
                let fold = read_through(&*inner.store, &thread, Thread::new(), Seq(joined.0.saturating_sub(1))).await?;
                let before = fold.transcript().len();
                let fold = read_through(&*inner.store, &thread, fold, done.seq).await?;
                if let (Some(begun), Some(run)) = (begun.take(), &done.run) {
                    // Who joins is told of the end of the run (sdk-runtime SES-5).
                    let after = Seq(done.seq.0.saturating_sub(1));
                    let _ = begun.send(Subscription::of_run(&inner, &thread, closed_hub(), run.clone(), after));
                }
                return Reply::of(&fold, &thread, before);
            }
            if let Standing::Joined { run: Some(run), at } = &standing {
                // More may be sent to the run that was joined.
                known.send_if_modified(|known| {
                    let new = known.run.is_none();
                    known.run.get_or_insert_with(|| (run.clone(), *at));
                    new
                });
            }
            if let Ok(claim) = inner.store.claim(&thread).await {
                // Nobody moves the thread. That may be so because the run has just ended: only who has claimed it can tell.
                if matches!(Standing::of(&*inner.store, &thread, &ticket).await?, Standing::Done { .. }) {
                    continue;
                }
                // The input waits in the inbox, or its run was left where it was: this is the turn that takes it on.
                let claim: Arc<dyn Claim> = Arc::from(claim);
                let owner = Owner { handle: &handle, id: &thread, stopper: &stopper, known: &known };
                let reply = owner.run(claim, owner.look().await?, Start::GoOn, begun.take()).await?;
                if ticket.joined().await?.is_some() {
                    return Ok(reply);
                }
                continue;
            }
            let head = ticket.seen();
            tokio::select! {
                () = inner.store.appended(&thread, head) => {}
                () = tokio::time::sleep(FREE_POLL_MAX) => {}
            }
        }
    }
}

/// Where input that joins another's run stands.
enum Standing {
    Open,
    Joined { run: Option<RunId>, at: Seq },
    Done { joined: Seq, done: Arc<Record> },
}

impl Standing {
    async fn of(store: &dyn Store, thread: &ThreadId, ticket: &Ticket) -> Result<Self, AgentError> {
        let Some((joined, run)) = ticket.joined().await? else { return Ok(Self::Open) };
        Ok(match run_done(store, thread, joined).await? {
            Some(done) => Self::Done { joined, done },
            None => Self::Joined { run, at: joined },
        })
    }
}

fn closed_hub() -> Arc<Hub> {
    let hub = Arc::new(Hub::new(Seq(0), RunId::new("")));
    hub.close();
    hub
}

/// The end of the run that has the record `at`, if it has ended.
async fn run_done(store: &dyn Store, thread: &ThreadId, at: Seq) -> Result<Option<Arc<Record>>, AgentError> {
    let mut after = at;
    loop {
        let records = store.read(thread, after, 256).await?;
        if let Some(done) = records.iter().find(|record| matches!(record.body, RecordBody::RunDone { .. })) {
            return Ok(Some(Arc::clone(done)));
        }
        match records.last() {
            Some(last) => after = last.seq,
            None => return Ok(None),
        }
    }
}

const FREE_POLL_MIN: Duration = Duration::from_millis(2);
const FREE_POLL_MAX: Duration = Duration::from_millis(100);

/// Claims a thread once its owner is done with it. A release makes no sound, so it is listened for ever less often.
async fn claim_when_free(store: &dyn Store, thread: &ThreadId, stopper: &Stopper) -> Result<Box<dyn Claim>, AgentError> {
    let mut pause = FREE_POLL_MIN;
    loop {
        match store.claim(thread).await {
            Err(StoreError::Busy { thread }) if stopper.token.is_cancelled() => return Err(StoreError::Busy { thread }.into()),
            Err(StoreError::Busy { .. }) => {}
            claim => return Ok(claim?),
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = stopper.token.cancelled() => {}
        }
        pause = (pause * 2).min(FREE_POLL_MAX);
    }
}

/// Who has claimed a thread, and moves it.
struct Owner<'a> {
    handle: &'a ThreadHandle,
    id: &'a ThreadId,
    stopper: &'a Stopper,
    known: &'a watch::Sender<Known>,
}

/// What an owner finds.
struct Found {
    loaded: Loaded,
    /// What was posted and not taken.
    posted: Vec<(u64, InboxItem)>,
}

impl Found {
    /// Whether a run of the thread was left where it was, or it is a fork in the middle of a turn.
    fn was_interrupted(&self) -> bool {
        let thread = &self.loaded.thread;
        let decided = || self.posted.iter().any(|(_, item)| decides(thread, item));
        thread.run().is_some() || thread.open_calls().next().is_some() && (thread.can_go_on() || decided())
    }
}

impl Owner<'_> {
    /// Reads the thread and its inbox.
    async fn look(&self) -> Result<Found, AgentError> {
        let store = &*self.handle.inner.store;
        Ok(Found { loaded: load(store, self.id).await?, posted: store.inbox(self.id, 0).await? })
    }

    async fn run(
        &self,
        claim: Arc<dyn Claim>,
        found: Found,
        start: Start,
        begun: Option<oneshot::Sender<Subscription>>,
    ) -> Result<Reply, AgentError> {
        let (handle, id) = (self.handle, self.id);
        let inner = &handle.inner;
        let Found { loaded: Loaded { thread, saved_at }, posted } = found;
        if let Some(kind) = thread.blocked_by() {
            return Err(AgentError::UnknownRecord { thread: id.clone(), kind: kind.to_owned() });
        }
        let through = posted.last().map_or(0, |(position, _)| *position);
        if let Err(refused) = may_start(&thread, id, &start, &posted) {
            if matches!(refused, AgentError::NothingToResume { .. }) && through > 0 {
                // What was posted for runs that are over is not read again; a mode is for those to come.
                let append = Append { records: switches(&thread, &posted, inner.clock.now())?, inbox_through: through };
                inner.store.append(&*claim, thread.head(), append).await?;
            }
            return Err(refused);
        }
        let goes_on = matches!(start, Start::GoOn);
        let drift = if goes_on { same_agent(inner, &thread, id)? } else { None };

        // A run that goes on acts for whom it began, with the instructions it began with (sdk-runtime LOOP-11, DRF-6).
        let continues = thread.run().is_some() || matches!(start, Start::GoOn | Start::Stop(_)) && thread.open_calls().next().is_some();
        let (kept, kept_added) = match (thread.run(), thread.last_run()) {
            (Some(run), _) => (run.principal.clone(), run.added.clone()),
            (None, Some(run)) if continues => (run.principal.clone(), run.added.clone()),
            _ => (None, None),
        };
        let principal = match kept {
            Some(value) => serde_json::from_value(value).ok(),
            None => handle.principal.clone(),
        };
        let posted_mode = posted.iter().rev().find_map(|(_, item)| match item {
            InboxItem::Mode { to, .. } => Some(*to),
            _ => None,
        });
        // A function that fails is the failure of each call; here it only means that nobody speaks of plans.
        let agents_mode = || inner.dispatch.permissions.mode().unwrap_or_default();
        let mode_before = posted_mode.or(thread.permission_mode()).unwrap_or_else(agents_mode);
        // What goes on goes on in the mode it was given, unless the thread's was switched since.
        let own_mode = handle.mode.or_else(|| thread.mode_to_go_on().filter(|_| continues && posted_mode.is_none()));
        let mut added: Option<Arc<str>> = handle.instructions.clone().map(Arc::from).or(kept_added);
        if !continues && own_mode.unwrap_or(mode_before) == PermissionMode::Plan {
            let note = PermissionMode::PLAN_NOTE;
            added = Some(added.map_or_else(|| note.into(), |more| format!("{more}\n\n{note}").into()));
        }
        let base = match thread.instructions() {
            Some(began) if continues => Arc::clone(began),
            _ => Arc::clone(&inner.instructions),
        };
        let instructions = match &added {
            Some(more) => format!("{base}\n\n{more}").into(),
            None => base,
        };
        let mut next = next_run(inner, (handle.limits, &handle.budgets), principal.as_ref(), handle.metadata.clone(), added);
        if continues {
            // What began stays on record, however often its calls pause.
            (next.fingerprint, next.instructions) = (None, None);
        }
        next.mode = own_mode.map(|own| (mode_before, own));
        let (run, after) = match thread.run() {
            Some(run) => (run.id.clone(), Seq(run.since.0.saturating_sub(1))),
            None => (next.id.clone(), thread.head()),
        };
        let from = Position { durable: thread.head(), saved_at };
        let transcript_before = thread.transcript().len();
        let beside = Beside::of_run(inner, id, claim.fence()).await?;
        let mut driver = Driver::new(thread, Arc::new(Facts(Arc::clone(&inner.dispatch))), next).redacting(beside.redactor.clone());
        let now = inner.clock.now();
        driver.open(id, now)?;
        if let Some(drift) = drift {
            driver.drifted(drift, now)?;
        }
        let cause = start.cause();
        let waiting =
            || posted.iter().filter(|(_, item)| matches!(item, InboxItem::Input { .. } | InboxItem::Mode { .. })).cloned().collect();
        match start {
            Start::Input(messages) => {
                let messages = keep_input(&beside.keep, messages).await;
                driver.disregard_posted_through(through);
                driver.start(cause, waiting(), messages, now)?;
            }
            Start::Call(opening) => {
                driver.disregard_posted_through(through);
                driver.start(cause, waiting(), Vec::new(), now)?;
                driver.open_call(opening, now)?;
            }
            Start::GoOn | Start::Stop(_) => {
                if let Some(own) = handle.mode {
                    driver.switch_mode(mode_before, own, now)?;
                }
            }
        }
        self.known.send_modify(|known| known.run = Some((run.clone(), after)));
        let hub = Arc::new(Hub::new(from.durable, run.clone()).redacting(beside.redactor.clone()));
        inner.hubs.register(id, &hub);
        if let Some(begun) = begun {
            // Nobody may be listening.
            let _ = begun.send(Subscription::of_run(inner, id, Arc::clone(&hub), run.clone(), after));
        }
        let instructions = match &beside.redactor {
            Some(redactor) => redactor.redact(&instructions).into(),
            None => instructions,
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
            price_warned: Arc::clone(&inner.price_warned),
            compaction: handle.compaction_in_force().map(|configured| Arc::clone(&configured.compacting)),
            shown: Arc::new(Shown::new(Arc::clone(&beside.keep))),
            beside,
        };
        let ended = Shell::new(setup, driver, claim, hub, from, self.stopper.clone()).run().await?;
        if ended.last_run().map(|last| &last.id) != Some(&run) {
            // What was posted changed nothing: no run began.
            return Err(still_waits(&ended, id).unwrap_or_else(|| AgentError::NothingToResume { thread: id.clone() }));
        }
        Reply::of(&ended, id, transcript_before)
    }
}

/// Whether the thread may take this start: nothing slips past a pending decision or an interrupted run.
fn may_start(thread: &Thread, id: &ThreadId, start: &Start, posted: &[(u64, InboxItem)]) -> Result<(), AgentError> {
    let waits = thread.open_calls().next().is_some();
    let wakes = |item: &InboxItem| match item {
        InboxItem::Decision { .. } | InboxItem::Delegate { .. } | InboxItem::Remind { .. } => true,
        // Where calls wait, it is put down for the run that a decision starts.
        InboxItem::Input { only, .. } => only.is_none(),
        InboxItem::Mode { .. } => false,
        InboxItem::Cancel { run, .. } => waits && (run.is_none() || run.as_ref() == thread.run_to_cancel()),
    };
    let goes_on = thread.can_go_on() || posted.iter().any(|(_, item)| wakes(item));
    match (start, thread.run()) {
        (Start::GoOn | Start::Stop(_), Some(_)) => Ok(()),
        (Start::Stop(_), None) if waits => Ok(()),
        (Start::GoOn, None) if goes_on => Ok(()),
        (_, Some(_)) => Err(AgentError::Interrupted { thread: id.clone() }),
        // Decisions that were made are not asked for again: the run goes on first.
        (Start::Input(_) | Start::Call(_), None) if posted.iter().any(|(_, item)| decides(thread, item)) => {
            Err(AgentError::Interrupted { thread: id.clone() })
        }
        (_, None) => match (still_waits(thread, id), start) {
            (Some(waits), _) => Err(waits),
            (None, Start::GoOn | Start::Stop(_)) => Err(AgentError::NothingToResume { thread: id.clone() }),
            // A fork that stands in the middle of a turn is finished first.
            (None, _) if waits => Err(AgentError::Interrupted { thread: id.clone() }),
            (None, _) => Ok(()),
        },
    }
}

/// The records of modes that were posted for a thread at rest.
fn switches(thread: &Thread, posted: &[(u64, InboxItem)], now: Timestamp) -> Result<Vec<Arc<Record>>, AgentError> {
    let (mut fold, mut records) = (thread.clone(), Vec::new());
    for (_, item) in posted {
        let InboxItem::Mode { from, to } = item else { continue };
        let record = Record { seq: fold.head().next(), at: now, run: None, body: mode_record(&fold, *from, *to) };
        fold.apply(&record)?;
        records.push(Arc::new(record));
    }
    Ok(records)
}

/// Whether what was posted decides a call that waits.
fn decides(thread: &Thread, item: &InboxItem) -> bool {
    matches!(item, InboxItem::Decision { approval, .. } if thread.waiting_for(approval).is_some())
}

/// The decisions that keep the thread from moving, as an error that names them.
pub(crate) fn still_waits(thread: &Thread, id: &ThreadId) -> Option<AgentError> {
    let approvals: Vec<String> = thread.pending().map(|(_, ask)| ask.approval.to_string()).collect();
    (!approvals.is_empty()).then(|| AgentError::AwaitingApproval { thread: id.clone(), approvals: approvals.join(", ") })
}

/// Checks that the agent may go on with what another, or itself at an earlier time, began. Gives what to say about a difference.
fn same_agent(inner: &AgentInner, thread: &Thread, id: &ThreadId) -> Result<Option<toolwright_core::Drift>, AgentError> {
    // A call that waits, or had begun, had a tool; without it, it can neither run nor be refused (sdk-runtime DRF-3).
    let gone = thread
        .open_calls()
        .filter(|call| matches!(call.state, CallState::Asking(_) | CallState::Decided(..) | CallState::Executing { .. }))
        .find(|call| inner.dispatch.registry.get(&call.tool).is_none());
    if let Some(call) = gone {
        return Err(AgentError::ToolMissing { thread: id.clone(), tool: call.tool.to_string(), call: call.id.clone() });
    }
    // A thread that rests starts a new run, with whatever agent sends to it.
    if thread.run().is_none() && thread.open_calls().next().is_none() {
        return Ok(None);
    }
    // Threads of before agents were told apart go on silently (sdk-runtime DRF-4).
    let Some(drift) = thread.fingerprint().and_then(|began| began.drift(&inner.fingerprint)) else { return Ok(None) };
    match inner.on_drift {
        OnDrift::Ignore => Ok(None),
        OnDrift::Error => Err(AgentError::Drift { thread: id.clone(), drift: drift.to_string() }),
        OnDrift::Warn => {
            tracing::warn!(thread = %id, %drift, "the agent that goes on differs from the one that began");
            Ok(Some(drift))
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
    /// Which budget ended it, with `budget-exceeded`.
    pub budget: Option<BudgetTrip>,
    /// The result of a direct call.
    pub outcome: Option<Outcome>,
    /// The transcript of the thread.
    pub messages: Transcript,
    new_from: usize,
    /// The permission mode that the thread says for whoever goes on with it.
    pub(crate) mode: Option<PermissionMode>,
}

impl Reply {
    fn of(thread: &Thread, id: &ThreadId, new_from: usize) -> Result<Self, AgentError> {
        // A thread that rests has had a run.
        let run = thread.last_run().ok_or_else(|| AgentError::NothingToResume { thread: id.clone() })?;
        if let Some(failure) = run.ending.as_ref().and_then(Ending::failure) {
            let run_id = run.id.clone();
            return Err(match &run.ending {
                Some(Ending::Guardrail { trip, .. }) => AgentError::Guardrail { run: run_id, trip: Box::new(trip.clone()) },
                Some(Ending::Budget { budget, .. }) => AgentError::BudgetExceeded { run: run_id, budget: Box::new(budget.clone()) },
                _ => AgentError::Run { run: run_id, failure },
            });
        }
        let (mut abort_reason, mut guardrail, mut budget) = (None, None, None);
        match &run.ending {
            Some(Ending::Aborted { reason }) => abort_reason = Some(reason.clone()),
            Some(Ending::Guardrail { trip, .. }) => guardrail = Some(trip.clone()),
            Some(Ending::Budget { budget: trip, .. }) => budget = Some(trip.clone()),
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
            budget,
            outcome: if run.model_calls == 0 { thread.last_results().next_back().map(|(_, outcome)| outcome.clone()) } else { None },
            messages: thread.transcript().clone(),
            new_from,
            mode: thread.mode_to_go_on().or(thread.permission_mode()),
        })
    }

    /// The messages this run added to the transcript.
    pub fn new_messages(&self) -> impl Iterator<Item = &Arc<toolwright_core::Message>> {
        self.messages.from(self.new_from)
    }
}

/// A run: a stream of its events, and a future of its reply. Dropping it detaches; the run goes on.
pub struct RunStream {
    events: BoxStream<'static, Event>,
    result: Option<oneshot::Receiver<Result<Reply, AgentError>>>,
    failed: Option<AgentError>,
    stopper: Stopper,
    control: Option<RunControl>,
}

impl RunStream {
    pub(crate) fn failed(error: AgentError) -> Self {
        let events = futures_util::stream::empty().boxed();
        Self { events, result: None, failed: Some(error), stopper: Stopper::new(), control: None }
    }

    pub(crate) fn new(
        events: BoxStream<'static, Event>,
        result: oneshot::Receiver<Result<Reply, AgentError>>,
        stopper: Stopper,
        control: RunControl,
    ) -> Self {
        Self { events, result: Some(result), failed: None, stopper, control: Some(control) }
    }

    /// A handle that can send more to the run after the stream was given away. `None` for a run that could not begin.
    pub fn control(&self) -> Option<RunControl> {
        self.control.clone()
    }

    /// Queues input for the run: it joins after the step that goes on now, before the next model call (sdk-runtime QUE-1).
    /// Where the run ends first, [`Ticket::joined_run`] says so and the input is yours again.
    pub async fn enqueue(&self, input: impl Into<Input>) -> Result<Ticket, AgentError> {
        self.send_more(InputMode::Queue, input.into()).await
    }

    /// Redirects the run: a model that has said nothing yet is given up and asked again with the input, calls that have not
    /// begun are not begun (sdk-runtime STE-1, STE-3).
    pub async fn steer(&self, input: impl Into<Input>) -> Result<Ticket, AgentError> {
        self.send_more(InputMode::Steer, input.into()).await
    }

    async fn send_more(&self, mode: InputMode, input: Input) -> Result<Ticket, AgentError> {
        match (&self.control, &self.failed) {
            (Some(control), _) => control.send_more(mode, input).await,
            (None, Some(error)) => Err(error.clone()),
            (None, None) => Err(AgentError::RuntimeStopped),
        }
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

/// Sends more to a run.
#[derive(Clone)]
pub struct RunControl {
    pub(crate) inner: Arc<AgentInner>,
    pub(crate) thread: ThreadId,
    pub(crate) known: watch::Receiver<Known>,
}

impl RunControl {
    /// As [`RunStream::enqueue`].
    pub async fn enqueue(&self, input: impl Into<Input>) -> Result<Ticket, AgentError> {
        self.send_more(InputMode::Queue, input.into()).await
    }

    /// As [`RunStream::steer`].
    pub async fn steer(&self, input: impl Into<Input>) -> Result<Ticket, AgentError> {
        self.send_more(InputMode::Steer, input.into()).await
    }

    /// The run's id, once it has begun; `None` if it never does.
    pub async fn run_id(&self) -> Option<RunId> {
        Some(self.run().await?.0)
    }

    async fn run(&self) -> Option<(RunId, Seq)> {
        let mut known = self.known.clone();
        let known = known.wait_for(|known| known.run.is_some() || known.over).await.ok()?;
        known.run.clone()
    }

    async fn send_more(&self, mode: InputMode, input: Input) -> Result<Ticket, AgentError> {
        let messages: Vec<Message> = checked_input(input)?;
        let run = self.run().await;
        if self.known.borrow().over {
            // Not taken, and not a promise either (sdk-runtime QUE-4).
            return Ok(Ticket::returned());
        }
        post_input(&self.inner, &self.thread, mode, messages, run).await
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
