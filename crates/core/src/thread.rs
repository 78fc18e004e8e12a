//! A thread's state: the fold of its records. What should happen next is in `next.rs`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::Map;

use crate::budget::Spent;
use crate::checked::is_input;
use crate::decision::{ApprovalAsk, Decision, DecisionVerdict, Remember, Remembered};
use crate::fingerprint::Fingerprint;
use crate::finish::{AbortReason, FinishReason};
use crate::ids::{ApprovalId, CallId, InputId, RunId, Seq, ThreadId, Timestamp};
use crate::message::{Author, CallItem, Item, Message};
use crate::policy::PermissionMode;
use crate::record::{CallOpening, CallOrigin, Ending, Outcome, Record, RecordBody, RunCause, Verdict};
use crate::saved::{Origin, ResultOrigin};
use crate::state::{
    Call, CallState, Ended, GatedArgs, LastRun, Measured, OpenStep, QueuedInput, Repetition, Run, Turn, result_item, without_call_id,
};
use crate::taint::Marks;
use crate::transcript::Transcript;
use crate::usage::Usage;

/// Why a record does not fit the journal it is applied to. A store that hands one out is broken; the thread does not move on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("record {seq} ({kind}) does not fit the journal: {problem}")]
pub struct Misfit {
    /// Its position.
    pub seq: Seq,
    /// Its kind.
    pub kind: String,
    /// What is wrong.
    pub problem: String,
}

/// A thread: the fold of its journal.
///
/// [`Thread::apply`] folds one record in; [`Thread::next`] says what is outstanding.
#[derive(Clone, Debug, Default)]
pub struct Thread {
    pub(crate) id: Option<ThreadId>,
    pub(crate) head: Seq,
    pub(crate) transcript: Transcript,
    /// Where each message of the transcript came from.
    pub(crate) origins: Vec<Origin>,
    pub(crate) run: Option<Run>,
    pub(crate) last_run: Option<LastRun>,
    /// What the agent of the last run is.
    pub(crate) fingerprint: Option<Arc<Fingerprint>>,
    /// Its instructions, and the position of the record that has them.
    pub(crate) instructions: Option<(Seq, Arc<str>)>,
    /// Input that waits for a safe point.
    pub(crate) queued: Vec<QueuedInput>,
    /// The thread is a fork, and no run has gone on from there yet.
    pub(crate) forked_open: bool,
    /// The last step that what a model sees was made shorter for.
    pub(crate) compacted_for: u32,
    /// What the last model call was counted as, while its messages stand as they were.
    pub(crate) measured: Option<Measured>,
    pub(crate) last_results: Vec<(Seq, CallId, Outcome)>,
    /// The last calls that ended were asked for by no model: nobody waits for another step.
    pub(crate) ended_direct: bool,
    pub(crate) step: Option<OpenStep>,
    /// How many messages at the end of the transcript are input that no guardrail has checked and no model was asked about.
    pub(crate) unchecked: usize,
    /// What was used since the last new input, and by the thread in all, by runs that are over.
    pub(crate) spent: Spent,
    pub(crate) spent_in_all: Spent,
    /// The time of the last record.
    pub(crate) last_at: Timestamp,
    /// Steps taken since the last new input: what `max_steps` counts, pauses included.
    pub(crate) steps_taken: u32,
    /// The last step number.
    pub(crate) last_step: u32,
    /// The open turn: its calls in order. Empty when every call has its result in the transcript.
    pub(crate) turn: Vec<CallId>,
    pub(crate) calls: HashMap<CallId, Call>,
    pub(crate) used_ids: HashSet<CallId>,
    pub(crate) repetition: Repetition,
    /// Approvals that stand for later calls.
    pub(crate) remembered: Vec<Remembered>,
    /// The permission mode of the thread, and that of one run, each with the position of its record.
    pub(crate) mode: Option<(Seq, PermissionMode)>,
    pub(crate) run_mode: Option<(Seq, PermissionMode)>,
    pub(crate) blocked_by: Option<String>,
    #[cfg(feature = "planted-bugs")]
    completion_order: Option<Vec<CallId>>,
    #[cfg(feature = "planted-bugs")]
    pub(crate) planted: Option<FoldBug>,
}

/// A bug in folds that the simulator has to find.
#[cfg(feature = "planted-bugs")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoldBug {
    /// A fork keeps what its source waits for.
    ForkKeepsApprovals,
    /// What is saved lacks queued input.
    SavedWithoutInput,
    /// What is saved lacks the ids that calls had.
    SavedWithoutIds,
    /// A model is asked although its input was not checked.
    InputIsNotChecked,
    /// What earlier runs used is not counted.
    SpentIsForgotten,
    /// A person who approves twice is two people.
    OneVotesTwice,
    /// An approval that stands for calls with the same arguments stands for all calls of the tool.
    AlwaysForgetsTheArguments,
    /// An approval that stands for other calls leaves those alone that wait already.
    AlwaysAnswersNobody,
    /// What is saved lacks approvals that stand for later calls.
    SavedWithoutApprovals,
}

impl Thread {
    /// Plants a bug that the simulator has to find: results join the transcript in the order they came.
    #[cfg(feature = "planted-bugs")]
    pub fn plant_completion_order(&mut self) {
        self.completion_order = Some(Vec::new());
    }

    /// Plants a bug that the simulator has to find.
    #[cfg(feature = "planted-bugs")]
    pub fn plant(&mut self, bug: FoldBug) {
        self.planted = Some(bug);
    }

    /// A thread without records.
    pub fn new() -> Self {
        Self::default()
    }

    /// Its id, once it was opened.
    pub fn id(&self) -> Option<&ThreadId> {
        self.id.as_ref()
    }

    /// The position of the last record applied.
    pub fn head(&self) -> Seq {
        self.head
    }

    /// What a model would be sent; always balanced when no turn is open (invariant 2).
    pub fn transcript(&self) -> &Transcript {
        &self.transcript
    }

    /// The run that has not ended.
    pub fn run(&self) -> Option<&Run> {
        self.run.as_ref()
    }

    /// The run that a cancellation has to name: the one that is active, or has paused with calls that are open.
    pub fn run_to_cancel(&self) -> Option<&RunId> {
        match (&self.run, &self.last_run) {
            (Some(run), _) => Some(&run.id),
            (None, Some(last)) if !self.turn.is_empty() => Some(&last.id),
            _ => None,
        }
    }

    /// How the last run ended.
    pub fn last_run(&self) -> Option<&LastRun> {
        self.last_run.as_ref()
    }

    /// The results of the last turn, or direct calls, that ended; in call order.
    pub fn last_results(&self) -> impl DoubleEndedIterator<Item = (&CallId, &Outcome)> {
        self.last_results.iter().map(|(_, call, outcome)| (call, outcome))
    }

    /// Input that no run has taken yet, in the order it came.
    pub fn queued(&self) -> &[QueuedInput] {
        &self.queued
    }

    /// What the agent of the last run is, where its records say.
    pub fn fingerprint(&self) -> Option<&Arc<Fingerprint>> {
        self.fingerprint.as_ref()
    }

    /// The instructions that the agent had where the last fingerprint was written.
    pub fn instructions(&self) -> Option<&Arc<str>> {
        self.instructions.as_ref().map(|(_, text)| text)
    }

    /// Whether a run can start by itself: calls were decided, input waits, or a fork stands in the middle of a run.
    pub fn can_go_on(&self) -> bool {
        self.run.is_some() || !self.next().is_empty()
    }

    /// The last step that what a model sees was made shorter for.
    pub fn compacted_for(&self) -> u32 {
        self.compacted_for
    }

    /// What a provider counted of the transcript as it was at the last model call; `None` where none did, or what it counted has
    /// changed since.
    pub fn measured(&self) -> Option<Measured> {
        self.measured
    }

    /// How many steps were taken since the last new input.
    pub fn steps_taken(&self) -> u32 {
        self.steps_taken
    }

    /// The calls of the open turn, in order.
    pub fn open_calls(&self) -> impl Iterator<Item = &Call> {
        self.turn.iter().filter_map(|id| self.calls.get(id))
    }

    /// A call of the open turn.
    pub fn call(&self, id: &CallId) -> Option<&Call> {
        self.calls.get(id)
    }

    /// Decisions that somebody has to make.
    pub fn pending(&self) -> impl Iterator<Item = (&Call, &ApprovalAsk)> {
        self.open_calls().filter_map(|call| call.asking().map(|ask| (call, ask)))
    }

    /// The step whose model has not replied, and was not given up for input that steers.
    pub fn unanswered_step(&self) -> Option<u32> {
        self.step.as_ref().filter(|step| !step.replied && !step.steered).map(|step| step.number)
    }

    /// The number of the open or last step.
    pub fn step(&self) -> u32 {
        self.last_step
    }

    /// The unknown kind of record that keeps this thread from moving, if there is one.
    pub fn blocked_by(&self) -> Option<&str> {
        self.blocked_by.as_deref()
    }

    /// The permission mode that the thread says: that of its run, unless the thread's own was switched since; else its own.
    /// `None` where only the agent has one.
    pub fn permission_mode(&self) -> Option<PermissionMode> {
        self.run_mode_since(self.run.as_ref().map(|run| run.since)).or(self.mode.map(|(_, mode)| mode))
    }

    /// The mode that was meant for the last run alone, if a run that goes on from it is to have it too.
    pub fn mode_to_go_on(&self) -> Option<PermissionMode> {
        self.run_mode_since(self.last_run.as_ref().map(|run| run.since))
    }

    fn run_mode_since(&self, since: Option<Seq>) -> Option<PermissionMode> {
        let (at, mode) = self.run_mode?;
        let is_of_run = since.is_some_and(|since| at > since);
        (is_of_run && self.mode.is_none_or(|(switched, _)| switched < at)).then_some(mode)
    }

    /// How many bodies of `tool` began in this run.
    pub fn calls_in_run(&self, tool: &str) -> u32 {
        self.run.as_ref().and_then(|run| run.calls_per_tool.get(tool)).copied().unwrap_or(0)
    }

    /// How often `tool` asked for another try in this run.
    pub fn retries_in_run(&self, tool: &str) -> u32 {
        self.run.as_ref().and_then(|run| run.retries_per_tool.get(tool)).copied().unwrap_or(0)
    }

    /// Gives every call of a reply an id that is unique in this thread: the provider's where it sent a usable one that is
    /// still free, otherwise the same with a suffix, otherwise one made from the step and the position.
    ///
    /// One with control characters is not usable: the id becomes part of a key in the store, which keeps no U+0000.
    ///
    /// Deterministic, so a replay gives the same ids (field reports ).
    pub fn assign_ids(&self, step: u32, items: &mut [Item]) {
        let mut taken: HashSet<CallId> = HashSet::new();
        let mut position = 0u32;
        for item in items {
            let Item::ToolCall(call) = item else { continue };
            position += 1;
            let given = call.provider_id.as_deref().map(str::trim).filter(|id| !id.is_empty() && !id.contains(char::is_control));
            let base = given.map_or_else(|| format!("call_{step}_{position}"), str::to_owned);
            let mut id = CallId::new(base.as_str());
            let mut round = 0u32;
            while taken.contains(&id) || self.used_ids.contains(&id) {
                round += 1;
                id = CallId::new(format!("{base}_d{round}"));
            }
            taken.insert(id.clone());
            call.call_id = id;
        }
    }

    /// Folds one record in. Nothing changes if it does not fit.
    pub fn apply(&mut self, record: &Record) -> Result<(), Misfit> {
        let misfit = |problem: &str| Misfit { seq: record.seq, kind: kind_of(&record.body), problem: problem.to_owned() };
        if record.seq != self.head.next() {
            return Err(misfit(&format!("the journal ends at {}, so {} is expected", self.head, self.head.next())));
        }
        if self.blocked_by.is_none() {
            self.fold(record).map_err(|problem| misfit(&problem))?;
        }
        self.head = record.seq;
        self.last_at = record.at;
        Ok(())
    }

    fn fold(&mut self, record: &Record) -> Result<(), String> {
        match &record.body {
            RecordBody::ThreadOpened { thread, version, .. } => {
                if self.head != Seq(0) {
                    return Err("a thread is opened once, by its first record".to_owned());
                }
                if *version > crate::record::RECORD_VERSION {
                    self.blocked_by = Some(format!("thread.opened of version {version}"));
                }
                self.id = Some(thread.clone());
            }
            RecordBody::RunStarted {
                cause,
                agent,
                limits,
                fingerprint,
                instructions,
                added,
                principal,
                metadata,
                budgets,
                checks_input,
            } => {
                if self.run.is_some() {
                    return Err("another run has not ended".to_owned());
                }
                let id = record.run.clone().ok_or("it names no run")?;
                if matches!(cause, RunCause::Input | RunCause::Invocation) {
                    if !self.turn.is_empty() {
                        return Err("calls of the last turn have no result yet".to_owned());
                    }
                    self.steps_taken = 0;
                    self.spent = Spent::default();
                    self.repetition = Repetition::default();
                    // A fork that was cut after the results of a step: it has nothing left to do.
                    self.step = None;
                }
                self.forked_open = false;
                if fingerprint.is_some() {
                    self.fingerprint.clone_from(fingerprint);
                    self.instructions = instructions.clone().map(|text| (record.seq, text));
                }
                self.run = Some(Run {
                    id,
                    cause: cause.clone(),
                    agent: Arc::clone(agent),
                    limits: *limits,
                    added: added.clone(),
                    principal: principal.clone(),
                    metadata: metadata.clone(),
                    usage: None,
                    model_calls: 0,
                    ending: None,
                    since: record.seq,
                    last_finish: None,
                    text: Arc::from(""),
                    text_at: None,
                    calls_per_tool: HashMap::new(),
                    retries_per_tool: HashMap::new(),
                    prune_only: false,
                    budgets: budgets.clone(),
                    checks_input: *checks_input,
                    spent: Spent::default(),
                    began_at: record.at,
                    idle_ms: 0,
                });
            }
            RecordBody::MessageAdded { message } => {
                if !self.turn.is_empty() {
                    return Err("a message may not stand between calls and their results".to_owned());
                }
                if message.results().next().is_some() || message.calls().next().is_some() {
                    // A history brought along: it has to be balanced by itself, which the caller checked.
                    for call in message.calls() {
                        self.used_ids.insert(call.call_id.clone());
                    }
                }
                self.push(Arc::clone(message), Origin::Record(record.seq));
            }
            RecordBody::StepStarted { step } => {
                if self.step.is_some() {
                    return Err("the last step has not ended".to_owned());
                }
                if !self.turn.is_empty() {
                    return Err("calls of the last turn have no result yet".to_owned());
                }
                let run = self.active_run()?;
                run.last_finish = None;
                run.spent.steps = run.spent.steps.saturating_add(1);
                self.ended_direct = false;
                self.unchecked = 0;
                self.step = Some(OpenStep { number: *step, replied: false, steered: false, usage: None, finish: None });
                self.last_step = *step;
                self.steps_taken += 1;
            }
            RecordBody::ModelReplied { step, message, calls, finish, usage, side, .. } => {
                self.fold_reply(record.seq, *step, message, calls, finish, usage.as_ref())?;
                self.asked_beside(side.as_ref());
            }
            RecordBody::ReplyWithheld { step, ending, usage, side } => {
                self.fold_withheld(*step, ending, usage.as_ref())?;
                self.asked_beside(side.as_ref());
            }
            RecordBody::InputChecked { messages, rewritten, ending, side, .. } => {
                self.fold_checked(record.seq, *messages, rewritten, ending.as_ref())?;
                self.asked_beside(side.as_ref());
            }
            RecordBody::RunTakenOver {} => {
                let idle = record.at.millis_since(self.last_at);
                let run = self.active_run()?;
                run.idle_ms = run.idle_ms.saturating_add(idle);
            }
            RecordBody::BudgetExceeded { budget, throws } => {
                let ending = Ending::Budget { budget: budget.clone(), throws: *throws };
                self.active_run()?.ending.get_or_insert(ending);
            }
            RecordBody::ModelFailed { failure, .. } => {
                self.active_run()?.ending.get_or_insert(Ending::Error { failure: failure.clone() });
            }
            RecordBody::CallOpened(opening) => {
                if self.used_ids.contains(&opening.call) {
                    return Err(format!("the call {} was opened before", opening.call));
                }
                let written = opening.arguments.clone().unwrap_or_else(|| Arc::from("{}"));
                self.open_call(opening, written, None);
            }
            RecordBody::CallGated { call, arguments, sha256, verdict, notes, .. } => {
                let asked = self.gated(call, arguments.as_ref().zip(sha256.as_ref()), verdict, record.at)?;
                self.asked_beside(notes.as_ref().and_then(|notes| notes.side.as_ref()));
                if let Some(ending) = asked {
                    self.active_run()?.ending.get_or_insert(ending);
                }
            }
            RecordBody::CallDecided { approval, call, sha256, decision } => {
                let open = self.waits_for(call, approval, sha256)?;
                let CallState::Asking(ask) = &open.state else { return Err("the call waits for no decision".to_owned()) };
                let ask = ask.clone();
                open.state = CallState::Decided(ask.clone(), decision.clone());
                let call = call.clone();
                self.approved(&call, &ask, decision);
            }
            RecordBody::CallVoted { approval, call, sha256, decision, votes } => {
                #[cfg(feature = "planted-bugs")]
                let planted = self.planted;
                let open = self.waits_for(call, approval, sha256)?;
                let twice = open.votes.iter().any(|vote| vote.by == decision.by);
                #[cfg(feature = "planted-bugs")]
                let twice = twice && planted != Some(FoldBug::OneVotesTwice);
                if !decision.approves() || twice {
                    return Err("it is no further approval".to_owned());
                }
                if *votes as usize != open.votes.len() + 1 {
                    return Err(format!("it is approval {}, not {votes}", open.votes.len() + 1));
                }
                open.votes.push(decision.clone());
            }
            RecordBody::ApprovalDelegated(delegation) => {
                let open = self.waits_for(&delegation.call, &delegation.ask.approval, &delegation.sha256)?;
                open.state = CallState::Asking(delegation.ask.clone());
            }
            RecordBody::ApprovalReminded { approval, call, times, .. } => {
                let open = self.calls.get_mut(call).ok_or("no such call is open")?;
                if open.asking().is_none_or(|ask| ask.approval != *approval) {
                    return Err("the call does not wait for this decision".to_owned());
                }
                open.reminded = *times;
            }
            RecordBody::CallExecuting { call, tool, attempt, .. } => {
                let open = self.calls.get_mut(call).ok_or("no such call is open")?;
                let begins = matches!(open.state, CallState::Cleared);
                if *attempt != open.attempts + 1 || !(begins || matches!(open.state, CallState::Executing { .. })) {
                    return Err(format!("attempt {attempt} does not follow where the call stands"));
                }
                if *attempt == 1 {
                    let run = self.run.as_mut().ok_or("no run is active")?;
                    *run.calls_per_tool.entry(Arc::clone(tool)).or_insert(0) += 1;
                } else {
                    open.started_at = Some(record.at);
                }
                open.attempts = *attempt;
                open.state = CallState::Executing { attempt: *attempt };
            }
            RecordBody::CallDone { call, tool, outcome, fatal, notes, .. } => {
                self.fold_result(record.seq, call, tool, outcome, fatal.as_ref())?;
                if let Some(notes) = notes {
                    if let Some(open) = self.calls.get_mut(call) {
                        open.marks.clone_from(&notes.marks);
                    }
                    self.asked_beside(notes.side.as_ref());
                    if let (Some(run), Some(ending)) = (self.run.as_mut(), &notes.ending) {
                        run.ending.get_or_insert_with(|| ending.clone());
                    }
                }
                self.close_turn();
            }
            RecordBody::StepDone { step, .. } => {
                if self.step.as_ref().is_none_or(|open| open.number != *step) {
                    return Err("that step is not open".to_owned());
                }
                self.step = None;
            }
            RecordBody::RunCancelled { reason } => {
                let reason: AbortReason = reason.clone();
                self.active_run()?.ending.get_or_insert(Ending::Aborted { reason });
            }
            RecordBody::RunDone { finish, text, usage, model_calls, ending, .. } => {
                if self.step.is_some() {
                    return Err("a step has not ended".to_owned());
                }
                let run = self.run.take().ok_or("no run is active")?;
                self.count_run(&run, finish, record.at);
                self.last_run = Some(LastRun {
                    id: run.id,
                    finish: finish.clone(),
                    text: Arc::clone(text),
                    usage: *usage,
                    model_calls: *model_calls,
                    ending: ending.clone(),
                    added: run.added,
                    principal: run.principal,
                    metadata: run.metadata,
                    since: run.since,
                    text_at: Some(record.seq),
                });
            }
            RecordBody::InputQueued { id, mode, messages, only, immediate } => {
                if self.queued.iter().any(|input| input.id == *id) {
                    return Err(format!("the input {id} was queued before"));
                }
                if messages.iter().any(|message| message.calls().next().is_some() || message.results().next().is_some()) {
                    return Err("queued input holds calls or results".to_owned());
                }
                if *immediate {
                    let step = self.step.as_mut().filter(|step| !step.replied).ok_or("no model call is in flight")?;
                    step.steered = true;
                }
                let (mode, messages) = (mode.clone(), messages.clone());
                self.queued.push(QueuedInput { id: id.clone(), mode, messages, only: only.clone(), since: record.seq });
            }
            RecordBody::InputApplied { id, .. } => {
                if self.step.is_some() || !self.turn.is_empty() {
                    return Err("input may not join in the middle of a step".to_owned());
                }
                self.active_run()?;
                let input = self.unqueue(id)?;
                self.active_run()?.last_finish = None;
                for (index, message) in input.messages.into_iter().enumerate() {
                    self.push(message, Origin::Part(input.since, index));
                }
                self.repetition = Repetition::default();
            }
            RecordBody::InputReturned { id, .. } => drop(self.unqueue(id)?),
            RecordBody::ContextCompacted(compaction) => self.compact(record.seq, compaction)?,
            RecordBody::AgentDrifted(_) => {}
            RecordBody::PermissionMode { to, run_only, .. } => {
                if *run_only {
                    self.active_run()?;
                    self.run_mode = Some((record.seq, *to));
                } else {
                    self.mode = Some((record.seq, *to));
                }
            }
            RecordBody::ThreadForked { .. } => self.become_fork(),
            RecordBody::TranscriptReplaced { messages, cleared } => {
                self.replace_transcript(record.seq, messages)?;
                if cleared.is_some() {
                    // What was approved is forgotten with what was said (sdk-tools 11.2/6).
                    self.remembered.clear();
                }
            }
            RecordBody::ResultReplaced { call, output, .. } => self.replace_result(record.seq, call, output)?,
            RecordBody::Unknown(fields) => {
                let kind = fields.get("kind").and_then(serde_json::Value::as_str).unwrap_or("without a kind");
                self.blocked_by = Some(kind.to_owned());
            }
        }
        Ok(())
    }

    fn unqueue(&mut self, id: &InputId) -> Result<QueuedInput, String> {
        let at = self.queued.iter().position(|input| input.id == *id).ok_or_else(|| format!("the input {id} is not queued"))?;
        Ok(self.queued.remove(at))
    }

    pub(crate) fn push(&mut self, message: Arc<Message>, origin: Origin) {
        self.unchecked = if is_input(&message) { self.unchecked.saturating_add(1) } else { 0 };
        self.transcript.push(message);
        self.origins.push(origin);
    }

    pub(crate) fn active_run(&mut self) -> Result<&mut Run, String> {
        self.run.as_mut().ok_or_else(|| "no run is active".to_owned())
    }

    fn open_call(&mut self, opening: &CallOpening, written: Arc<str>, item: Option<CallItem>) {
        self.used_ids.insert(opening.call.clone());
        self.turn.push(opening.call.clone());
        self.calls.insert(
            opening.call.clone(),
            Call {
                id: opening.call.clone(),
                tool: Arc::clone(&opening.tool),
                origin: opening.origin.clone(),
                parent: opening.parent.clone(),
                written,
                item,
                sequential: opening.sequential,
                state: CallState::Opened,
                gated: None,
                started_at: None,
                asked_at: None,
                attempts: 0,
                asked: 0,
                decision: None,
                votes: Vec::new(),
                reminded: 0,
                covered: None,
                result: None,
                marks: Marks::default(),
            },
        );
    }

    fn fold_reply(
        &mut self,
        seq: Seq,
        step: u32,
        message: &Arc<Message>,
        calls: &[CallOpening],
        finish: &FinishReason,
        usage: Option<&Usage>,
    ) -> Result<(), String> {
        let open = self.step.as_mut().filter(|open| open.number == step).ok_or("that step is not open")?;
        if open.replied {
            return Err("the model replied before".to_owned());
        }
        let mut items = message.calls();
        let mut new = HashSet::with_capacity(calls.len());
        for opening in calls {
            let matches = items.next().is_some_and(|item| item.call_id == opening.call);
            if !matches || self.used_ids.contains(&opening.call) || !new.insert(&opening.call) {
                return Err(format!("the call {} is not the next new one of the message", opening.call));
            }
        }
        if items.next().is_some() {
            return Err("a call of the message is not opened".to_owned());
        }
        open.replied = true;
        open.usage = usage.copied();
        open.finish = Some(finish.clone());
        let run = self.run.as_mut().ok_or("no run is active")?;
        run.model_calls += 1;
        run.spent.add(usage);
        run.text = message.text_of().into();
        run.text_at = Some(seq);
        run.last_finish = Some(finish.clone());
        if let Some(usage) = usage {
            run.usage = Some(run.usage.unwrap_or_default().plus(usage));
        }
        if let Some(usage) = usage.filter(|usage| !usage.estimated && usage.input_tokens > 0) {
            self.measured = Some(Measured { tokens: usage.input_tokens, messages: self.transcript.len() });
        }
        self.push(Arc::clone(message), Origin::Record(seq));
        for (opening, item) in calls.iter().zip(message.calls()) {
            self.open_call(opening, item.arguments.as_str().into(), Some(item.clone()));
        }
        Ok(())
    }

    fn gated(
        &mut self,
        call: &CallId,
        args: Option<(&Arc<str>, &Arc<str>)>,
        verdict: &Verdict,
        at: Timestamp,
    ) -> Result<Option<Ending>, String> {
        let open = self.calls.get_mut(call).ok_or("no such call is open")?;
        let decision = match &open.state {
            CallState::Opened => None,
            CallState::Decided(_, decision) => Some(decision.clone()),
            CallState::Asking(_) if open.covered.is_some() => None,
            // Asked again after an interruption: the body may have run, a person decides.
            CallState::Executing { .. } if matches!(verdict, Verdict::Ask(_)) => None,
            _ => return Err("the call does not stand before the gate".to_owned()),
        };
        // Whatever does not fit is found before anything changes.
        if matches!(verdict, Verdict::Ask(_)) && args.is_none() && open.gated.is_none() {
            return Err("a decision is asked for without arguments".to_owned());
        }
        if matches!(verdict, Verdict::EndRun { .. }) && self.run.is_none() {
            return Err("no run is active".to_owned());
        }
        if let Some((text, sha256)) = args {
            open.gated = Some(GatedArgs { text: Arc::clone(text), sha256: Arc::clone(sha256) });
        }
        open.started_at.get_or_insert(at);
        open.covered = None;
        // An approval counts also where a result from outside comes after it.
        let is_result = |decision: &Decision| matches!(decision.verdict, DecisionVerdict::Complete { .. } | DecisionVerdict::Fail { .. });
        if let Some(decision) = decision.filter(|decision| open.decision.is_none() || !is_result(decision)) {
            open.decision = Some(decision);
        }
        match verdict {
            Verdict::Run => open.state = CallState::Cleared,
            Verdict::Ask(ask) => {
                open.asked_at = Some(at);
                // An approval of another call was no answer: the question stands as it was, with what was said about it.
                if open.asking().is_none_or(|asked| asked.approval != ask.approval) {
                    open.asked += 1;
                    open.votes.clear();
                    open.reminded = 0;
                }
                open.state = CallState::Asking(ask.clone());
            }
            // The result follows in a record of its own, directly after this one. Until then nothing lets the body begin.
            Verdict::Refuse { .. } | Verdict::Answer { .. } => open.state = CallState::Opened,
            Verdict::EndRun { ending } => {
                open.state = CallState::Cleared;
                return Ok(Some(ending.clone()));
            }
        }
        Ok(None)
    }

    fn fold_result(
        &mut self,
        seq: Seq,
        id: &CallId,
        tool: &Arc<str>,
        outcome: &Outcome,
        fatal: Option<&crate::finish::Failure>,
    ) -> Result<(), String> {
        let open = self.calls.get_mut(id).ok_or("no such call is open")?;
        if open.is_done() {
            return Err("the call has its result".to_owned());
        }
        if fatal.is_some() && self.run.is_none() {
            return Err("no run is active".to_owned());
        }
        open.state = CallState::Done;
        open.result = Some((seq, outcome.clone()));
        if let (Some(run), Outcome::Failed { failure }) = (self.run.as_mut(), outcome)
            && failure.retries_left.is_some()
        {
            *run.retries_per_tool.entry(Arc::clone(tool)).or_insert(0) += 1;
        }
        #[cfg(feature = "planted-bugs")]
        if let Some(order) = &mut self.completion_order {
            order.push(id.clone());
        }
        if let Some(failure) = fatal {
            self.active_run()?.ending.get_or_insert(Ending::Error { failure: failure.clone() });
        }
        Ok(())
    }

    /// Once every call of the turn has its result, the results join the transcript as one message in call order.
    fn close_turn(&mut self) {
        if self.turn.iter().any(|id| self.calls.get(id).is_some_and(|call| !call.is_done())) {
            return;
        }
        let mut items = Vec::new();
        let mut origins = Vec::new();
        let mut turn: Vec<Ended> = Vec::new();
        self.last_results.clear();
        #[cfg(feature = "planted-bugs")]
        if let Some(order) = &mut self.completion_order {
            self.turn = std::mem::take(order);
        }
        for id in std::mem::take(&mut self.turn) {
            let Some(call) = self.calls.remove(&id) else { continue };
            let Some((seq, outcome)) = call.result.clone() else { continue };
            self.last_results.push((seq, id, outcome.clone()));
            // Nested and direct calls have their results in the journal only: no model asked for them.
            if call.origin != CallOrigin::Model {
                continue;
            }
            let provider_id = call.item.as_ref().and_then(|item| item.provider_id.clone());
            let approval = call.approval_mark();
            items.push(Item::ToolResult(result_item(&call.id, &call.tool, &outcome, provider_id.clone(), approval.clone(), call.marks)));
            origins.push(ResultOrigin { at: seq, call: call.id, provider_id, approval });
            let arguments = call.gated.map_or(call.written, |gated| gated.text);
            turn.push((call.tool, arguments, without_call_id(outcome)));
        }
        self.ended_direct = items.is_empty();
        if !items.is_empty() {
            if self.repetition.what.is(&turn) {
                self.repetition.count += 1;
            } else {
                self.repetition = Repetition { what: Turn::Ended(turn), count: 1 };
            }
            self.push(Arc::new(Message { author: Author::Tool, items, metadata: Map::new() }), Origin::Results(origins));
        }
    }
}

fn kind_of(body: &RecordBody) -> String {
    serde_json::to_value(body)
        .ok()
        .and_then(|value| value.get("kind").and_then(|kind| kind.as_str().map(str::to_owned)))
        .unwrap_or_default()
}

impl Thread {
    /// The call that waits for `approval`.
    pub fn waiting_for(&self, approval: &ApprovalId) -> Option<&Call> {
        self.open_calls().find(|call| call.asking().is_some_and(|ask| ask.approval == *approval))
    }

    /// Approvals that stand for later calls of `tool`, because who decided said so.
    pub fn remembered<'a>(&'a self, tool: &'a str) -> impl Iterator<Item = &'a Remembered> {
        self.remembered.iter().filter(move |known| *known.tool == *tool)
    }

    /// All approvals that stand for later calls of the thread.
    pub fn remembers(&self) -> &[Remembered] {
        &self.remembered
    }

    /// Approvals by people of calls of the open turn: what `once` reads besides the transcript (sdk-tools 11.2/7).
    pub fn approved_in_turn(&self, tool: &str) -> Vec<Arc<str>> {
        let of_tool = self.open_calls().filter(|call| *call.tool == *tool);
        let approved = of_tool.filter_map(|call| call.approved_arguments());
        approved.map(|arguments| crate::json::sorted_hash(arguments).into()).collect()
    }

    /// The open call that waits for this decision, about these arguments.
    fn waits_for(&mut self, call: &CallId, approval: &ApprovalId, sha256: &str) -> Result<&mut Call, String> {
        let open = self.calls.get_mut(call).ok_or("no such call is open")?;
        let Some(ask) = open.asking() else { return Err("the call waits for no decision".to_owned()) };
        if ask.approval != *approval {
            return Err(format!("the call waits for the decision {}", ask.approval));
        }
        if open.gated.as_ref().is_none_or(|gated| *gated.sha256 != *sha256) {
            return Err("the decision was about other arguments".to_owned());
        }
        Ok(open)
    }

    /// A decision that stands for other calls too brings those of the turn that wait before the gate again (sdk-tools 11.2/7).
    fn approved(&mut self, decided: &CallId, ask: &ApprovalAsk, decision: &Decision) {
        if !ask.is_approved_by(decision) || !ask.kind.can_be_remembered() {
            return;
        }
        let Some(call) = self.calls.get(decided) else { return };
        let tool = Arc::clone(&call.tool);
        let shown = call.gated.as_ref().map_or(&call.written, |gated| &gated.text);
        let arguments = decision.edited().unwrap_or(shown);
        let once = ask.once.clone().filter(|_| !decision.automatic);
        if decision.remember.is_none() && once.is_none() {
            return;
        }
        let args: Arc<str> = crate::json::sorted_hash(arguments).into();
        let stands = |per: Remember| Remembered { tool: Arc::clone(&tool), per, args: Arc::clone(&args), by: decision.by.clone() };
        let (always, once) = (decision.remember.clone().map(stands), once.map(stands));
        #[cfg(feature = "planted-bugs")]
        let always = match self.planted {
            Some(FoldBug::AlwaysForgetsTheArguments) => always.map(|stands| Remembered { per: Remember::Tool, ..stands }),
            _ => always,
        };
        if let Some(stands) = always.clone().filter(|stands| !self.remembered.contains(stands)) {
            self.remembered.push(stands);
        }
        #[cfg(feature = "planted-bugs")]
        if self.planted == Some(FoldBug::AlwaysAnswersNobody) {
            return;
        }
        let answer = Decision { by: decision.by.clone(), at: decision.at, automatic: decision.automatic, ..Decision::approve() };
        for call in self.calls.values_mut().filter(|call| call.id != *decided) {
            let Some(other) = call.asking().filter(|other| other.kind.can_be_remembered() && other.is_approved_by(&answer)) else {
                // It waits for something else, or its time was over by then.
                continue;
            };
            let Some(gated) = &call.gated else { continue };
            let args = crate::json::sorted_hash(&gated.text);
            // Where several have to approve, what waits already is for them.
            let once = once.iter().filter(|_| other.quorum <= 1);
            let answers = always.iter().filter(|stands| stands.may_answer(other.quorum, &other.deciders)).chain(once);
            if answers.into_iter().any(|stands| stands.covers(&call.tool, &args)) {
                call.covered.get_or_insert_with(|| Box::new(answer.clone()));
            }
        }
    }
}
