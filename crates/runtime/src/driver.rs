//! The driver: what to do about the core's actions, without an executor.
//!
//! [`Driver::step`] takes what completed and gives what to do now. Records come first: nothing that follows an
//! [`Effect::Append`] may begin before the append is durable (invariant 3). The tokio shell and the simulator run this same
//! code; what was running at a crash differs from what runs now by the driver's own set of keys.

use std::collections::HashSet;
use std::sync::Arc;

use toolwright_core::policy::PermissionMode;
use toolwright_core::redact::Redactor;
use toolwright_core::{
    AbortReason, Action, ApprovalAsk, ApprovalId, AskKind, Budgets, CallId, CallItem, CallOpening, CallOrigin, CallState, Compaction,
    Drift, Ending, Failure, Fingerprint, FinishReason, GateNotes, InputId, Item, Key, Message, Misfit, OnInterrupt, Outcome, Record,
    RecordBody, ResultNotes, RewriteNote, RewrittenInput, RunCause, RunId, RunLimits, Side, SideUsage, Thread, ThreadId, Timestamp,
    ToolFailure, ToolFailureKind, Verdict,
};

mod covered;
mod posted;

use covered::stands;

pub(crate) use posted::mode_record;

use crate::model::{ModelError, ModelReply};
use crate::store::{InboxItem, Posted};

/// What the driver has to know about tools, by name.
pub trait ToolFacts: Send + Sync {
    /// The registered name that `written` means; `None` if there is none.
    fn resolve(&self, written: &str) -> Option<Arc<str>>;

    /// Whether the tool is a barrier in its batch.
    fn is_sequential(&self, tool: &str) -> bool;

    /// What happens to a call that had begun when the process died.
    fn after_interrupt(&self, tool: &str) -> OnInterrupt;

    /// The same under the permission mode that the thread says: where it refuses the tool, or nobody is asked, the call fails.
    fn after_interrupt_in(&self, tool: &str, _mode: Option<PermissionMode>) -> OnInterrupt {
        self.after_interrupt(tool)
    }
}

/// What the gate found about a call.
#[derive(Clone, Debug)]
pub struct GateOutcome {
    /// The arguments that would run, compact, with their hash; absent if they could not be read.
    pub arguments: Option<(Arc<str>, Arc<str>)>,
    /// What was repaired in them.
    pub repairs: Vec<toolwright_core::args::RepairNote>,
    /// Whether the tool says that it only reads.
    pub read_only: bool,
    /// What its stages noted besides.
    pub notes: Option<Box<GateNotes>>,
    /// What the gate found.
    pub verdict: Verdict,
    /// The result of a call that does not run, as post-call hooks left it.
    pub settled: Option<Executed>,
}

/// How a call ended.
#[derive(Clone, Debug)]
pub struct Executed {
    /// Its one result.
    pub outcome: Outcome,
    /// The hook that replaced it.
    pub replaced_by: Option<String>,
    /// The failure that ends the run with it.
    pub fatal: Option<Failure>,
    /// What was noted about the result.
    pub notes: Option<Box<ResultNotes>>,
}

impl Executed {
    /// An end as the body left it.
    pub fn of(outcome: Outcome) -> Self {
        Self { outcome, replaced_by: None, fatal: None, notes: None }
    }
}

/// Something the driver had started, or was waiting for, has come.
#[derive(Debug)]
pub enum Completion {
    /// The model replied, or failed.
    Model {
        /// The step.
        step: u32,
        /// What came.
        result: Result<ModelReply, ModelError>,
        /// What those said who looked at it.
        review: Box<Review>,
    },
    /// New input was checked.
    Checked(Box<InputCheck>),
    /// The gate is done with a call.
    Gated {
        /// The call.
        call: CallId,
        /// What it found.
        outcome: Box<GateOutcome>,
    },
    /// A body ended.
    Executed {
        /// The call.
        call: CallId,
        /// How.
        executed: Box<Executed>,
    },
    /// The inbox has something.
    Posted {
        /// The item's position.
        position: u64,
        /// The item.
        item: InboxItem,
    },
    /// What the model sees was, or could not be, made shorter before its next call.
    Compacted(Box<Compaction>),
    /// The answer of [`Effect::Answer`] was posted.
    First {
        /// The call.
        call: CallId,
        /// Whether it is the first, or which decision was.
        posted: Posted,
    },
    /// The run's own handle asks it to stop.
    Cancel {
        /// Why.
        reason: AbortReason,
        /// The text that a model in mid-reply has streamed so far.
        partial: Option<String>,
    },
}

/// What hooks and guardrails said about a model's reply.
#[derive(Clone, Debug, Default)]
pub struct Review {
    /// Guardrails that changed its text; the reply is as they left it.
    pub rewrote: Vec<RewriteNote>,
    /// How the run ends, if the reply is withheld.
    pub ending: Option<Ending>,
    /// What models used that they asked.
    pub side: Option<SideUsage>,
}

/// What guardrails said about new input.
#[derive(Clone, Debug, Default)]
pub struct InputCheck {
    /// Messages whose text they changed.
    pub rewritten: Vec<RewrittenInput>,
    /// What changed them.
    pub rewrote: Vec<RewriteNote>,
    /// How the run ends, if the input does not pass.
    pub ending: Option<Ending>,
    /// What models used that they asked.
    pub side: Option<SideUsage>,
}

/// Something to do now.
#[derive(Debug)]
pub enum Effect {
    /// Make these durable before anything that follows.
    Append(Vec<Arc<Record>>),
    /// Ask the model.
    Ask {
        /// The step.
        step: u32,
    },
    /// Have guardrails check the input that [`Thread::unchecked_input`] gives.
    CheckInput,
    /// Take a call through the gate.
    Gate {
        /// The call.
        call: CallId,
    },
    /// Begin a call's body.
    Execute {
        /// The call.
        call: CallId,
        /// From 1.
        attempt: u32,
    },
    /// Tell what stands under the key to stop.
    Cancel(Key),
    /// Post that an approval of another call lets this one run, and say with [`Completion::First`] what came first under the key.
    Answer {
        /// The call.
        call: CallId,
        /// The key of the decision it waits for.
        key: String,
        /// The decision.
        item: Box<InboxItem>,
    },
    /// The thread rests: the run is done, or somebody has to decide.
    Rest,
}

/// What a model in mid-reply has streamed so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Streamed {
    /// Its text.
    pub text: String,
    /// Whether it has begun a call.
    pub calls: bool,
}

/// Drives one thread.
pub struct Driver {
    thread: Thread,
    facts: Arc<dyn ToolFacts>,
    in_flight: HashSet<Key>,
    /// The call whose gate is in flight.
    at_gate: Option<AtGate>,
    told_to_stop: HashSet<Key>,
    batch: Vec<Arc<Record>>,
    next_run: Option<NextRun>,
    /// A difference of the agent, until the run it belongs to has begun.
    drift: Option<Drift>,
    inbox_through: u64,
    disregarded: u64,
    streamed: Option<Streamed>,
    /// The run was left by another owner, and its time is limited: the first record says when it goes on.
    takes_over: bool,
    /// What takes secrets out of records.
    redactor: Option<Arc<Redactor>>,
    #[cfg(feature = "planted-bugs")]
    bug: Option<crate::planted::Bug>,
}

/// A call whose gate is in flight.
struct AtGate {
    call: CallId,
    /// Whether it had been decided when that began.
    decided: bool,
    /// Something was decided since, which may answer what the gate asks.
    overtaken: bool,
    /// What the gate found about a call that waits for a decision, until it is known who decided it first.
    found: Option<Box<GateOutcome>>,
}

/// What a run that has to start is started with.
#[derive(Clone, Debug)]
pub struct NextRun {
    /// Its id.
    pub id: RunId,
    /// The agent's name.
    pub agent: Arc<str>,
    /// Its limits.
    pub limits: RunLimits,
    /// Who it acts for.
    pub principal: Option<serde_json::Value>,
    /// The application's own data.
    pub metadata: serde_json::Map<String, serde_json::Value>,
    /// The agent's instructions.
    pub instructions: Option<Arc<str>>,
    /// What is added to them for it.
    pub added: Option<Arc<str>>,
    /// What the agent is.
    pub fingerprint: Option<Arc<Fingerprint>>,
    /// The permission mode before, and the one that it has for itself.
    pub mode: Option<(PermissionMode, PermissionMode)>,
    /// What it may use.
    pub budgets: Option<Arc<Budgets>>,
    /// Whether guardrails check input before a model sees it.
    pub checks_input: bool,
}

impl Driver {
    /// Drives `thread`, for one run: the one that is active, else `next_run` once something asks for a run. What comes after that
    /// run is for the next owner.
    pub fn new(thread: Thread, facts: Arc<dyn ToolFacts>, next_run: NextRun) -> Self {
        let next_run = Some(next_run).filter(|_| thread.run().is_none());
        let takes_over = thread.deadline().is_some();
        Self {
            thread,
            facts,
            in_flight: HashSet::new(),
            at_gate: None,
            told_to_stop: HashSet::new(),
            batch: Vec::new(),
            next_run,
            drift: None,
            inbox_through: 0,
            disregarded: 0,
            streamed: None,
            takes_over,
            redactor: None,
            #[cfg(feature = "planted-bugs")]
            bug: None,
        }
    }

    /// With what takes the run's secrets out of every record.
    #[must_use]
    pub fn redacting(mut self, redactor: Option<Arc<Redactor>>) -> Self {
        self.redactor = redactor;
        self
    }

    /// With a bug that the simulator has to find.
    #[cfg(feature = "planted-bugs")]
    #[must_use]
    pub fn with_bug(mut self, bug: crate::planted::Bug) -> Self {
        self.bug = Some(bug);
        if bug == crate::planted::Bug::ResultOutOfOrder {
            self.thread.plant_completion_order();
        }
        self
    }

    #[cfg(feature = "planted-bugs")]
    fn has(&self, bug: crate::planted::Bug) -> bool {
        self.bug == Some(bug)
    }

    /// The planted bug: a compaction that takes the results of the latest turn too.
    #[cfg(feature = "planted-bugs")]
    fn with_latest(&self, mut compaction: Box<Compaction>) -> Box<Compaction> {
        if self.has(crate::planted::Bug::PruneOfTheLatestTurn) {
            let latest = self.thread.transcript().iter().rev().find_map(|message| message.results().next());
            compaction.pruned.extend(latest.map(|result| result.call_id.clone()));
        }
        compaction
    }

    /// The thread as folded so far, records on their way to the store included.
    pub fn thread(&self) -> &Thread {
        &self.thread
    }

    /// What was posted up to `position` was meant for runs that are over. Where a new run starts, it is taken with the run's
    /// first records and changes nothing, after a crash neither.
    pub fn disregard_posted_through(&mut self, position: u64) {
        self.disregarded = position;
        self.inbox_through = self.inbox_through.max(position);
    }

    /// What a model in mid-reply has streamed so far: its text is kept if what is posted next stops the run, and a model that
    /// has said nothing is given up for input that steers.
    pub fn streamed(&mut self, streamed: Streamed) {
        self.streamed = Some(streamed);
    }

    /// Whether a run may still begin under this owner.
    pub fn can_start(&self) -> bool {
        self.next_run.is_some()
    }

    /// When to take a step without anything having come: the time of a budget is over then.
    pub fn wake_at(&self) -> Option<Timestamp> {
        self.thread.deadline()
    }

    /// How far the inbox is taken; belongs into the next append.
    pub fn inbox_through(&self) -> u64 {
        self.inbox_through
    }

    /// Opens the thread if it is new.
    pub fn open(&mut self, id: &ThreadId, now: Timestamp) -> Result<(), Misfit> {
        if self.thread.id().is_some() {
            return Ok(());
        }
        let agent = self.next_run.as_ref().map_or_else(|| Arc::from(""), |run| Arc::clone(&run.agent));
        let version = toolwright_core::RECORD_VERSION;
        self.record(RecordBody::ThreadOpened { thread: id.clone(), version, agent, parent: None }, now)
    }

    /// Starts a run with new input. What was posted before, with its position, stands before it, as does input that waited.
    pub fn start(&mut self, cause: RunCause, posted: Vec<(u64, InboxItem)>, messages: Vec<Message>, now: Timestamp) -> Result<(), Misfit> {
        let Some(run) = self.next_run.take() else { return Ok(()) };
        // What the agent is stands where it is new: a chat of many runs tells it once.
        let fingerprint = run.fingerprint.filter(|now| self.thread.fingerprint() != Some(now));
        let instructions = run.instructions.filter(|_| fingerprint.is_some());
        let takes_input = cause == RunCause::Input;
        self.record_in(
            Some(run.id),
            RecordBody::RunStarted {
                cause,
                agent: run.agent,
                limits: run.limits,
                fingerprint,
                instructions,
                added: run.added,
                principal: run.principal,
                metadata: run.metadata,
                budgets: run.budgets,
                checks_input: run.checks_input,
            },
            now,
        )?;
        if let Some(drift) = self.drift.take() {
            self.record(RecordBody::AgentDrifted(drift), now)?;
        }
        for (position, item) in posted {
            self.inbox_through = self.inbox_through.max(position);
            self.take_posted(item, now)?;
        }
        if let Some((from, to)) = run.mode {
            self.record(RecordBody::PermissionMode { from, to, run_only: true }, now)?;
        }
        if takes_input {
            let step = self.thread.step() + 1;
            let waiting: Vec<InputId> =
                self.thread.queued().iter().filter(|input| input.only.is_none()).map(|input| input.id.clone()).collect();
            for id in waiting {
                self.record(RecordBody::InputApplied { id, step }, now)?;
            }
        }
        for message in messages {
            self.record(RecordBody::MessageAdded { message: Arc::new(message) }, now)?;
        }
        Ok(())
    }

    /// Gives the run that is active a permission mode of its own.
    pub fn switch_mode(&mut self, from: PermissionMode, to: PermissionMode, now: Timestamp) -> Result<(), Misfit> {
        if self.thread.run().is_none() || from == to {
            return Ok(());
        }
        self.record(RecordBody::PermissionMode { from, to, run_only: true }, now)
    }

    /// Says that the agent differs from the one that began: in the run that is active, else in the one that starts.
    pub fn drifted(&mut self, drift: Drift, now: Timestamp) -> Result<(), Misfit> {
        if self.thread.run().is_none() {
            self.drift = Some(drift);
            return Ok(());
        }
        self.record(RecordBody::AgentDrifted(drift), now)
    }

    /// Opens a call that no model asked for.
    pub fn open_call(&mut self, opening: CallOpening, now: Timestamp) -> Result<(), Misfit> {
        self.record(RecordBody::CallOpened(opening), now)
    }

    /// Takes what completed, gives what to do now. Without a completion: what is outstanding, as after a restart.
    pub fn step(&mut self, completion: Option<Completion>, now: Timestamp) -> Result<Vec<Effect>, Misfit> {
        let mut external = Vec::new();
        if let Some(completion) = completion {
            #[cfg(feature = "planted-bugs")]
            if let (true, Completion::Executed { call, .. }) = (self.has(crate::planted::Bug::RerunOfARecordedCall), &completion) {
                external.push(Effect::Execute { call: call.clone(), attempt: 1 });
            }
            let gated = matches!(completion, Completion::Gated { .. });
            self.take(completion, now)?;
            external.extend(self.answer().filter(|_| gated));
        }
        self.take_over(now)?;
        loop {
            let mut recorded = false;
            if let Some(exceeded) = self.overdue(now) {
                let partial = self.streamed.take().map(|streamed| streamed.text);
                self.keep_partial(partial, now)?;
                self.record(exceeded, now)?;
            }
            for action in self.thread.next() {
                match self.attend(&action, now)? {
                    Attended::Recorded => {
                        // The state has moved: ask again.
                        recorded = true;
                        break;
                    }
                    Attended::Start(effect) => external.push(effect),
                    Attended::Nothing => {}
                }
            }
            if !recorded {
                break;
            }
        }
        let mut effects = Vec::with_capacity(external.len() + 1);
        if !self.batch.is_empty() {
            effects.push(Effect::Append(std::mem::take(&mut self.batch)));
        }
        effects.append(&mut external);
        #[cfg(feature = "planted-bugs")]
        if self.has(crate::planted::Bug::BodyBeforeRecord) {
            // The planted bug: the body begins before its record is durable.
            effects.sort_by_key(|effect| !matches!(effect, Effect::Execute { .. }));
        }
        // Where no run is left to start, what waits is for the next owner.
        if self.thread.run().is_none() && (self.next_run.is_none() || self.thread.next().is_empty()) {
            effects.push(Effect::Rest);
        }
        Ok(effects)
    }

    /// The record of a budget's time that is over.
    fn overdue(&self, now: Timestamp) -> Option<RecordBody> {
        #[cfg(feature = "planted-bugs")]
        if self.has(crate::planted::Bug::TimeIsNotLimited) {
            return None;
        }
        self.thread.overdue(now)
    }

    fn attend(&mut self, action: &Action, now: Timestamp) -> Result<Attended, Misfit> {
        if let Some(body) = self.thread.record_for(action) {
            self.record(body, now)?;
            return Ok(Attended::Recorded);
        }
        let key = action.key();
        match action {
            Action::StartRun(cause) => {
                if self.next_run.is_none() {
                    return Ok(Attended::Nothing);
                }
                self.start(cause.clone(), Vec::new(), Vec::new(), now)?;
                Ok(Attended::Recorded)
            }
            Action::AskModel { step } if self.in_flight.insert(key.clone()) => Ok(Attended::Start(Effect::Ask { step: *step })),
            Action::CheckInput if self.in_flight.insert(key.clone()) => Ok(Attended::Start(Effect::CheckInput)),
            // Gates resolve one at a time, also when an earlier call is decided while a later one stands there.
            Action::Gate(call) if !self.gate_is_taken() => {
                self.at_gate = Some(AtGate { call: call.clone(), decided: self.is_decided(call), overtaken: false, found: None });
                Ok(Attended::Start(Effect::Gate { call: call.clone() }))
            }
            Action::Execute { call, begun } if !self.in_flight.contains(&key) => self.begin_call(call, *begun, key, now),
            Action::Cancel(stopping) if self.in_flight.contains(stopping) && self.told_to_stop.insert(stopping.clone()) => {
                if matches!(stopping, Key::Ask(_) | Key::CheckInput) {
                    // Nobody waits for a model, or a check, that was told to stop; what it still says is dropped.
                    self.in_flight.remove(stopping);
                }
                Ok(Attended::Start(Effect::Cancel(stopping.clone())))
            }
            _ => Ok(Attended::Nothing),
        }
    }

    fn is_decided(&self, call: &CallId) -> bool {
        self.thread.call(call).is_some_and(|call| matches!(call.state, CallState::Decided(..)))
    }

    /// Whether a call stands at the gate that still waits for its result.
    fn gate_is_taken(&self) -> bool {
        self.at_gate.as_ref().and_then(|gate| self.thread.call(&gate.call)).is_some_and(|call| !matches!(call.state, CallState::Done))
    }

    /// A body has to begin; or it began in a process that is gone, and its tool says what then.
    fn begin_call(&mut self, call: &CallId, begun: bool, key: Key, now: Timestamp) -> Result<Attended, Misfit> {
        let Some(open) = self.thread.call(call) else { return Ok(Attended::Nothing) };
        let tool = Arc::clone(&open.tool);
        let attempt = open.attempts + 1;
        if begun {
            if self.thread.run().is_some_and(|run| run.ending.is_some()) {
                return self.outcome_unknown(call, &tool, "the run ended", now);
            }
            match self.facts.after_interrupt_in(&tool, self.thread.permission_mode()) {
                // A fork's run may let fewer run at once than the one that began them.
                OnInterrupt::Rerun if self.has_no_slot() => return Ok(Attended::Nothing),
                OnInterrupt::Rerun => {}
                OnInterrupt::Fail => return self.outcome_unknown(call, &tool, "the process stopped while it ran", now),
                OnInterrupt::Ask => return self.ask_after_interrupt(call, now),
            }
        }
        let arguments = open.gated.as_ref().filter(|_| attempt > 1).map(|gated| Arc::clone(&gated.text));
        self.record(RecordBody::CallExecuting { call: call.clone(), tool, attempt, arguments }, now)?;
        self.in_flight.insert(key);
        Ok(Attended::Start(Effect::Execute { call: call.clone(), attempt }))
    }

    /// Whether as many bodies are in flight as the run lets run at once.
    fn has_no_slot(&self) -> bool {
        let limit = self.thread.run().and_then(|run| run.limits.tool_concurrency);
        let bodies = || self.in_flight.iter().filter(|key| matches!(key, Key::Execute(_))).count();
        limit.is_some_and(|limit| bodies() >= limit as usize)
    }

    fn outcome_unknown(&mut self, call: &CallId, tool: &Arc<str>, why: &str, now: Timestamp) -> Result<Attended, Misfit> {
        let message = format!("`{tool}` was interrupted: {why}; its outcome is unknown, so check before trying again");
        let mut failure = ToolFailure::new(ToolFailureKind::Execution, &**tool, &message).named("InterruptedError");
        failure.tool_call_id = Some(call.to_string());
        let executed = Executed::of(Outcome::failed(failure));
        self.record_done(call, executed, now)?;
        Ok(Attended::Recorded)
    }

    fn ask_after_interrupt(&mut self, call: &CallId, now: Timestamp) -> Result<Attended, Misfit> {
        let (Some(open), Some(thread)) = (self.thread.call(call), self.thread.id()) else { return Ok(Attended::Nothing) };
        let mut ask = ApprovalAsk::new(ApprovalId::of(thread, call, open.asked + 1));
        ask.kind = AskKind::Outcome;
        ask.reason = Some("outcome unknown: the process stopped while this call ran; approving runs it again".to_owned());
        let body = RecordBody::CallGated {
            call: call.clone(),
            tool: Arc::clone(&open.tool),
            arguments: open.gated.as_ref().map(|gated| Arc::clone(&gated.text)),
            sha256: open.gated.as_ref().map(|gated| Arc::clone(&gated.sha256)),
            repairs: Vec::new(),
            resumed: true,
            parent: open.parent.clone(),
            read_only: false,
            notes: None,
            verdict: Verdict::Ask(ask),
        };
        self.record(body, now)?;
        Ok(Attended::Recorded)
    }

    /// Takes what completed without going on from it yet: several decisions that came together are all known before the
    /// first of them moves anything. [`Driver::step`] goes on.
    pub fn take(&mut self, completion: Completion, now: Timestamp) -> Result<(), Misfit> {
        match completion {
            Completion::Model { step, result, review } => {
                // What nobody waits for any more is dropped.
                if !self.in_flight.remove(&Key::Ask(step)) {
                    return Ok(());
                }
                let Review { rewrote, ending, side } = *review;
                match (result, ending) {
                    (result, Some(ending)) => {
                        let usage = result.ok().and_then(|reply| reply.usage);
                        self.record(RecordBody::ReplyWithheld { step, ending, usage, side }, now)
                    }
                    (Ok(reply), None) => self.record_reply(step, reply, rewrote, side, now),
                    (Err(error), None) => {
                        let failure =
                            Failure { name: "ModelError".to_owned(), message: error.to_string(), code: Some(error.code().to_owned()) };
                        match side {
                            None => self.record(RecordBody::ModelFailed { step, failure }, now),
                            // What others used in the step counts all the same.
                            side => {
                                let ending = Ending::Error { failure };
                                self.record(RecordBody::ReplyWithheld { step, ending, usage: None, side }, now)
                            }
                        }
                    }
                }
            }
            Completion::Checked(check) => {
                if !self.in_flight.remove(&Key::CheckInput) {
                    return Ok(());
                }
                let InputCheck { rewritten, rewrote, ending, side } = *check;
                let messages = self.thread.unchecked_input().count();
                self.record(RecordBody::InputChecked { messages, rewritten, rewrote, ending, side }, now)
            }
            Completion::Gated { call, outcome } => {
                let Some(gate) = self.at_gate.take_if(|gate| gate.call == call && gate.found.is_none()) else { return Ok(()) };
                // Decided while an approval of another call was looked at: what the gate found says nothing about that.
                if !gate.decided && self.is_decided(&call) {
                    return Ok(());
                }
                // Nobody is asked what an approval of another call may have answered by now: the gate looks again.
                if gate.overtaken && matches!(outcome.verdict, Verdict::Ask(_)) {
                    return Ok(());
                }
                if self.has_to_be_first(&call, &outcome) {
                    self.at_gate = Some(AtGate { found: Some(outcome), ..gate });
                    return Ok(());
                }
                self.record_gated(&call, *outcome, now)
            }
            Completion::First { call, posted } => self.answered(&call, posted, now),
            Completion::Executed { call, executed } => {
                if !self.in_flight.remove(&Key::Execute(call.clone())) {
                    return Ok(());
                }
                self.record_done(&call, *executed, now)
            }
            Completion::Posted { position, item } => {
                #[cfg(feature = "planted-bugs")]
                let before = self.inbox_through;
                self.inbox_through = self.inbox_through.max(position);
                #[cfg(feature = "planted-bugs")]
                if self.has(crate::planted::Bug::InputTakenTwice) && matches!(item, InboxItem::Input { .. }) {
                    self.inbox_through = before;
                }
                if position <= self.disregarded {
                    return Ok(());
                }
                // Input wakes a thread at rest: it is told of inside the run that takes it (sdk-runtime ORD-6).
                let wakes = matches!(&item, InboxItem::Input { only: None, .. })
                    && self.thread.run().is_none()
                    && self.thread.open_calls().next().is_none();
                if wakes && self.next_run.is_some() {
                    return self.start(RunCause::Input, vec![(position, item)], Vec::new(), now);
                }
                self.take_posted(item, now)
            }
            Completion::Compacted(compaction) => {
                let step = compaction.step.unwrap_or_default();
                // The run may have ended meanwhile.
                if !self.in_flight.remove(&Key::Ask(step)) {
                    return Ok(());
                }
                #[cfg(feature = "planted-bugs")]
                let compaction = self.with_latest(compaction);
                self.record(RecordBody::ContextCompacted(*compaction), now)
            }
            Completion::Cancel { reason, partial } => self.cancel(reason, partial, now),
        }
    }

    fn record_reply(
        &mut self,
        step: u32,
        mut reply: ModelReply,
        rewrote: Vec<RewriteNote>,
        side: Option<SideUsage>,
        now: Timestamp,
    ) -> Result<(), Misfit> {
        self.thread.assign_ids(step, &mut reply.items);
        let calls: Vec<CallOpening> = reply
            .items
            .iter()
            .filter_map(|item| match item {
                Item::ToolCall(call) => Some(self.opening_of(call)),
                _ => None,
            })
            .collect();
        let finish = match reply.finish {
            // Some providers say "stop" although they called tools (field reports A-13).
            FinishReason::Stop | FinishReason::Unknown if !calls.is_empty() => FinishReason::ToolCalls,
            finish => finish,
        };
        let message = Message { author: toolwright_core::Author::of_side(&Side::A), items: reply.items, metadata: serde_json::Map::new() };
        let model = reply.model.map_or_else(|| Arc::from(""), Arc::from);
        self.record(
            RecordBody::ModelReplied { step, message: Arc::new(message), calls, finish, usage: reply.usage, model, rewrote, side },
            now,
        )
    }

    fn opening_of(&self, call: &CallItem) -> CallOpening {
        let tool = self.facts.resolve(&call.name).unwrap_or_else(|| Arc::from(call.name.as_str()));
        let sequential = self.facts.is_sequential(&tool);
        CallOpening { call: call.call_id.clone(), tool, origin: CallOrigin::Model, parent: None, arguments: None, sequential }
    }

    fn record_gated(&mut self, call: &CallId, outcome: GateOutcome, now: Timestamp) -> Result<(), Misfit> {
        let Some(open) = self.thread.call(call) else { return Ok(()) };
        // A run that ended meanwhile has given the call its result.
        if matches!(open.state, CallState::Done) {
            return Ok(());
        }
        // Shown before: decided, or copied into a fork while it waited.
        let resumed = matches!(open.state, CallState::Decided(..)) || open.started_at.is_some();
        let (arguments, sha256) = outcome.arguments.map_or((None, None), |(text, sha256)| (Some(text), Some(sha256)));
        let mut verdict = outcome.verdict;
        if let (Some(asked), Verdict::Ask(ask)) = (stands(open, &verdict, sha256.as_ref()), &mut verdict) {
            // An approval of another call was no answer: what is on its way to the question that stands is not lost.
            ask.clone_from(asked);
        }
        let body = RecordBody::CallGated {
            call: call.clone(),
            tool: Arc::clone(&open.tool),
            arguments,
            sha256,
            repairs: outcome.repairs,
            resumed,
            parent: open.parent.clone(),
            read_only: outcome.read_only,
            notes: outcome.notes,
            verdict,
        };
        self.record(body, now)?;
        match outcome.settled {
            Some(settled) => self.record_done(call, settled, now),
            None => Ok(()),
        }
    }

    fn record_done(&mut self, call: &CallId, executed: Executed, now: Timestamp) -> Result<(), Misfit> {
        let Some(open) = self.thread.call(call) else { return Ok(()) };
        let duration_ms = open.started_at.map(|started| now.millis_since(started));
        let body = RecordBody::CallDone {
            call: call.clone(),
            tool: Arc::clone(&open.tool),
            outcome: executed.outcome,
            duration_ms,
            replaced_by: executed.replaced_by,
            fatal: executed.fatal,
            notes: executed.notes,
        };
        self.told_to_stop.remove(&Key::Execute(call.clone()));
        self.record(body, now)
    }

    fn record(&mut self, body: RecordBody, now: Timestamp) -> Result<(), Misfit> {
        let run = self.thread.run().map(|run| run.id.clone());
        self.record_in(run, body, now)
    }

    /// The one place at which anything becomes a record: what it holds of the run's secrets goes here, before the fold and the
    /// journal have it (invariant 7).
    fn record_in(&mut self, run: Option<RunId>, body: RecordBody, now: Timestamp) -> Result<(), Misfit> {
        self.take_over(now)?;
        self.append(run, body, now)
    }

    /// Before anything else of this owner.
    fn take_over(&mut self, now: Timestamp) -> Result<(), Misfit> {
        if !std::mem::take(&mut self.takes_over) {
            return Ok(());
        }
        self.append(self.thread.run().map(|run| run.id.clone()), RecordBody::RunTakenOver {}, now)
    }

    fn append(&mut self, run: Option<RunId>, body: RecordBody, now: Timestamp) -> Result<(), Misfit> {
        let mut record = Record { seq: self.thread.head().next(), at: now, run, body };
        if let Some(redactor) = &self.redactor {
            let clean = redactor.record(&record);
            let misfit = |problem: String| Misfit { seq: record.seq, kind: "a new one".to_owned(), problem };
            if let Some(clean) = clean.map_err(|error| misfit(error.to_string()))? {
                record = clean;
            }
        }
        self.thread.apply(&record)?;
        self.batch.push(Arc::new(record));
        Ok(())
    }
}

enum Attended {
    Recorded,
    Start(Effect),
    Nothing,
}
