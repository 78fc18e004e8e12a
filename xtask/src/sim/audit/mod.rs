//! The journal read a second time, independently of the core's fold: every record is checked as it becomes durable.

mod decisions;
mod index;
mod inputs;
mod limits;
mod told;

use std::collections::HashMap;
use std::sync::Arc;

use toolwright_core::json::sorted_hash;
use toolwright_core::{
    ApprovalMark, CallId, CallOpening, CallOrigin, Compaction, Decision, Ending, FinishReason, InputId, InputMode, Message, OnInterrupt,
    Outcome, Record, RecordBody, RunCause, RunId, RunLimits, StepFinish, Transcript,
};
use toolwright_runtime::InboxItem;

pub(super) use self::decisions::Approval;
use self::decisions::Stands;
use self::index::Index;
pub(super) use self::inputs::Heard;
use self::inputs::Inputs;
use self::limits::Limits;
use self::told::{Script, Told};
use super::{Broken, broken, tools};

const STEERED: &str = "a step that an immediate steer ends is given up: its model says nothing more";
const FORK: &str = "a fork has its own decisions, and what had not begun comes before the gate again";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Opened,
    /// Waits for the approval of this index.
    Asking(usize),
    /// The approval of this index was decided.
    Decided(usize),
    Cleared,
    /// The gate supplied its result, or ends the run.
    Stopped,
    Executing,
    Done,
}

pub(super) struct AuditCall {
    pub(super) id: CallId,
    pub(super) tool: Arc<str>,
    pub(super) stage: Stage,
    pub(super) attempts: u32,
    pub(super) gated: bool,
    origin: CallOrigin,
    /// The arguments that the gate let pass last, and their hash.
    pub(super) arguments: Option<Arc<str>>,
    sha256: Option<Arc<str>>,
    outcome: Option<Outcome>,
    /// Its body began in the thread that this one is a fork of.
    elsewhere: bool,
    /// The decision that let it come before the gate again.
    decision: Option<Decision>,
    /// It waits, and an approval of another call may answer.
    covered: bool,
    /// Its tool, or whatever wrote it, wants it approved.
    asks: bool,
    sequential: bool,
    /// Somebody let it run since its body last began.
    allowed: bool,
}

/// A cancellation that was posted.
struct Cancel {
    position: u64,
    run: Option<RunId>,
}

pub(super) struct AuditRun {
    pub(super) id: RunId,
    limits: RunLimits,
    ending: bool,
}

pub(super) struct AuditStep {
    pub(super) number: u32,
    pub(super) replied: bool,
    /// Its model call was given up for input that steers.
    steered: bool,
    /// What the model said was withheld.
    withheld: bool,
}

/// What the journal says.
#[derive(Default)]
pub(super) struct Audit {
    last: u64,
    pub(super) run: Option<AuditRun>,
    pub(super) step: Option<AuditStep>,
    pub(super) calls: Vec<AuditCall>,
    pub(super) approvals: Vec<Approval>,
    /// Approvals that stand for later calls.
    memory: Vec<Stands>,
    /// Calls that an approval of another one let run: that waited, and that nobody was asked about.
    pub(super) covered: u64,
    pub(super) remembered: u64,
    pub(super) runs: u64,
    /// Cancellations posted up to here were for earlier runs.
    pub(super) stale_cancels: u64,
    /// What the owner's model had said when it took input.
    pub(super) heard: HashMap<InputId, Heard>,
    known: Index,
    /// The last run that ended.
    pub(super) last_run: Option<RunId>,
    pub(super) steered: u64,
    inputs: Inputs,
    limits: Limits,
    script: Script,
    cancels: HashMap<u64, Cancel>,
    index: HashMap<CallId, usize>,
    turn: Vec<usize>,
    last_step: u32,
    steps_since_input: u32,
    direct: bool,
    /// Up to here the records are copied from another thread.
    copied_through: u64,
    /// It is a fork, and no run has begun: records change what was copied.
    patched: bool,
    /// The run that paused before the one that is open, if that one is to end the wait.
    stood_for: Option<RunId>,
}

impl Audit {
    pub(super) fn call(&self, id: &CallId) -> Option<&AuditCall> {
        self.calls.get(*self.index.get(id)?)
    }

    pub(super) fn open(&self) -> impl Iterator<Item = &AuditCall> {
        self.turn.iter().filter_map(|at| self.calls.get(*at))
    }

    /// Whether the run, once resumed, could go on: a decision was journaled, or waits in the inbox for a call that asks.
    pub(super) fn can_resume(&self) -> bool {
        self.open().any(|call| match call.stage {
            Stage::Decided(_) => true,
            Stage::Asking(at) => self.approvals.get(at).is_some_and(|approval| approval.posted.is_some()),
            _ => false,
        })
    }

    /// A fork that was made and not resumed, and ends with what somebody has to answer.
    pub(super) fn is_open_fork(&self) -> bool {
        self.patched && (!self.turn.is_empty() || self.script.awaits_reply())
    }

    /// A fork in which no run has begun.
    pub(super) fn is_new_fork(&self) -> bool {
        self.patched
    }

    /// Whether new input may start a run: no call is open, no step is.
    pub(super) fn may_send(&self) -> bool {
        self.run.is_none() && self.turn.is_empty() && (self.step.is_none() || self.patched)
    }

    /// Whether input waits that the next run takes.
    pub(super) fn input_waits(&self) -> bool {
        self.may_send() && self.inputs.waits()
    }

    /// Something came into the inbox, as the first of its key.
    pub(super) fn posted(&mut self, item: &InboxItem, position: u64) {
        match item {
            InboxItem::Input { id, mode, messages, only } => self.inputs.posted(id, mode, messages, only.as_ref(), position),
            InboxItem::Cancel { reason, run } => {
                if let Some(number) = cancel_number(&reason.message) {
                    self.cancels.insert(number, Cancel { position, run: run.clone() });
                }
            }
            _ => self.posted_about(item, position),
        }
    }

    /// How many budgets were reached.
    pub(super) fn exceeded(&self) -> u64 {
        self.limits.exceeded
    }

    /// Everything up to a position of the inbox is taken.
    pub(super) fn taken(&mut self, through: u64) -> Result<(), Broken> {
        self.decisions_taken(through)?;
        self.inputs.taken(through)
    }

    /// The records up to this position are copied.
    pub(super) fn copy(&mut self, through: u64) {
        self.copied_through = through;
    }

    fn is_copied(&self) -> bool {
        self.last <= self.copied_through
    }

    /// Whether a transcript is what the records say.
    pub(super) fn is_told(&self, transcript: &Transcript) -> Result<(), Broken> {
        self.script.is_told(transcript)
    }

    /// All input has joined, or the thread waits for something else.
    pub(super) fn all_joined(&self) -> Result<(), Broken> {
        self.inputs.all_joined()
    }

    /// A body is about to begin.
    pub(super) fn may_begin(&self, id: &CallId, attempt: u32, sha256: Option<&Arc<str>>) -> Result<(), Broken> {
        let Some(call) = self.call(id) else {
            return broken("no body begins before its call.executing is durable", format!("the call {id} is not even opened"));
        };
        match call.stage {
            Stage::Done => broken("a call with a recorded result is never begun again", format!("the call {id} has its result")),
            Stage::Executing if call.attempts == attempt && call.sha256.as_ref() == sha256 => Ok(()),
            Stage::Executing if call.attempts == attempt => broken("a body gets the arguments that passed the gate", id.to_string()),
            stage => broken(
                "no body begins before its call.executing is durable",
                format!("attempt {attempt} of {id}, which is {stage:?} durably"),
            ),
        }
    }

    /// The model is about to be asked.
    pub(super) fn may_ask(&self, step: u32) -> Result<(), Broken> {
        match &self.step {
            Some(open) if open.number == step && !open.replied && !open.steered => Ok(()),
            _ => broken(
                "a recorded model reply is never asked for again",
                format!("the model is asked for step {step}, which does not wait for a reply"),
            ),
        }
    }

    pub(super) fn note(&mut self, record: &Record) -> Result<(), Broken> {
        self.last += 1;
        if record.seq.0 != self.last {
            return broken("positions are gapless", format!("{} follows {}", record.seq, self.last - 1));
        }
        self.known.note(record);
        self.limits.note(record)?;
        if let RecordBody::RunStarted { cause, limits, .. } = &record.body {
            return self.run_started(record, cause, *limits);
        }
        if matches!(record.body, RecordBody::ThreadForked { .. }) && self.last <= self.copied_through + 1 {
            self.forked();
            return Ok(());
        }
        let open = self.run.as_ref().map(|run| &run.id);
        // What is said about a decision while the run has paused for it is that run's.
        let about_pause =
            matches!(record.body, RecordBody::CallVoted { .. } | RecordBody::ApprovalDelegated(_) | RecordBody::ApprovalReminded { .. });
        if record.run.as_ref() != open.or(self.last_run.as_ref().filter(|_| about_pause)) {
            return broken("a record belongs to the open run", format!("{}: {:?}, open is {open:?}", record.seq, record.run));
        }
        let ending = self.run.as_ref().is_some_and(|run| run.ending);
        match &record.body {
            RecordBody::ThreadOpened { .. } if self.last == 1 => Ok(()),
            RecordBody::MessageAdded { message } => {
                self.joins(message);
                self.turn_is_closed(record)
            }
            RecordBody::RunTakenOver {} if open.is_some() => Ok(()),
            RecordBody::InputChecked { messages, rewritten, ending, .. } => {
                self.turn_is_closed(record)?;
                if self.step.is_some() {
                    return broken("input is checked between steps", record.seq.to_string());
                }
                self.script.rewrite(*messages, rewritten);
                match ending {
                    Some(Ending::Guardrail { .. }) => self.script.drop_last(*messages),
                    Some(_) => {}
                    None => self.limits.unchecked = 0,
                }
                if let Some(ending) = ending {
                    if matches!(ending, Ending::Guardrail { .. }) {
                        self.limits.unchecked = 0;
                    }
                    self.run_ends();
                }
                Ok(())
            }
            RecordBody::ReplyWithheld { step, ending, .. } => {
                self.may_ask(*step)?;
                if let Some(open) = &mut self.step {
                    (open.replied, open.withheld) = (true, true);
                }
                if matches!(ending, Ending::Guardrail { trip, .. } if trip.kind == "input") {
                    self.script.drop_last(self.script.input_at_end());
                }
                self.run_ends();
                Ok(())
            }
            RecordBody::BudgetExceeded { .. } if !ending => {
                self.run_ends();
                Ok(())
            }
            RecordBody::StepStarted { step } => {
                self.turn_is_closed(record)?;
                self.steps_since_input += 1;
                let within = self.run.as_ref().is_some_and(|run| self.steps_since_input <= run.limits.max_steps);
                if ending || self.step.is_some() || *step != self.last_step + 1 || !within {
                    return broken("steps follow each other up to the limit", format!("{}: step {step} begins", record.seq));
                }
                if self.direct {
                    return broken("a direct call asks no model", format!("{}: step {step} begins", record.seq));
                }
                self.last_step = *step;
                self.step = Some(AuditStep { number: *step, replied: false, steered: false, withheld: false });
                Ok(())
            }
            RecordBody::ModelReplied { step, calls, message, .. } => {
                if self.step.as_ref().is_some_and(|open| open.steered) {
                    return broken(STEERED, format!("{}: step {step}", record.seq));
                }
                self.may_ask(*step)?;
                self.turn_is_closed(record)?;
                self.joins(message);
                if let Some(open) = &mut self.step {
                    open.replied = true;
                }
                let confirm = |call: &CallId| message.calls().any(|item| item.call_id == *call && item.ask.is_some());
                calls.iter().try_for_each(|opening| self.opened(opening, confirm(&opening.call)))
            }
            RecordBody::ModelFailed { step, .. } => {
                self.may_ask(*step)?;
                self.run_ends();
                Ok(())
            }
            RecordBody::CallOpened(opening) => self.opened(opening, false),
            RecordBody::CallGated { call, verdict, resumed, arguments, sha256, .. } => {
                if ending {
                    return broken("nothing starts once the run has to end", format!("{}: {call} passes the gate", record.seq));
                }
                self.gated(record, call, verdict, *resumed, arguments.as_ref(), sha256.as_ref())
            }
            RecordBody::CallDecided { approval, call, sha256, decision } => self.decided(approval, call, sha256, decision),
            RecordBody::CallVoted { approval, call, decision, votes, .. } => self.voted(approval, call, decision, *votes),
            RecordBody::ApprovalDelegated(delegation) => self.delegated(delegation),
            RecordBody::ApprovalReminded { approval, call, times, .. } => self.reminded(approval, call, *times),
            RecordBody::CallExecuting { call, attempt, .. } => {
                if ending {
                    return broken("nothing starts once the run has to end", format!("{}: {call} begins", record.seq));
                }
                self.executing(record, call, *attempt)
            }
            RecordBody::CallDone { call, outcome, fatal, .. } => {
                self.done(call, outcome, ending)?;
                if fatal.is_some() {
                    self.run_ends();
                }
                Ok(())
            }
            RecordBody::StepDone { step, finish, .. } => match self.step.take() {
                Some(open) if open.number == *step && (open.steered && !ending) != (*finish == StepFinish::Steered) => {
                    broken("an immediate steer ends its step as steered", format!("{}: step {step} ends as {finish}", record.seq))
                }
                Some(open) if open.number == *step => Ok(()),
                _ => broken("every step that starts ends once", format!("{}: step {step} ends", record.seq)),
            },
            RecordBody::RunCancelled { reason } => {
                let posted = cancel_number(&reason.message).and_then(|number| self.cancels.get(&number));
                let meant = |run: &Option<RunId>| run.is_none() || *run == record.run || *run == self.stood_for;
                let stale = |cancel: &Cancel| cancel.position <= self.stale_cancels || !meant(&cancel.run);
                if let Some(cancel) = posted.filter(|cancel| !self.is_copied() && stale(cancel)) {
                    return broken(
                        "a cancellation stops the run it was meant for, no later one",
                        format!("{}: it was posted at {} for {:?}", record.seq, cancel.position, cancel.run),
                    );
                }
                self.run_ends();
                Ok(())
            }
            RecordBody::InputQueued { id, mode, messages, only, immediate } => {
                self.queued(record, id, mode, messages, only.as_ref(), *immediate)
            }
            RecordBody::InputApplied { id, step } => {
                self.turn_is_closed(record)?;
                if ending || self.step.is_some() || *step != self.last_step + 1 {
                    return broken("input joins between steps, before the step it names", format!("{}: {id} before {step}", record.seq));
                }
                let Some(run) = open else { return broken("a record belongs to the open run", record.seq.to_string()) };
                for message in self.inputs.applied(id, run)? {
                    self.joins(&message);
                }
                Ok(())
            }
            RecordBody::InputReturned { id, .. } => match open {
                Some(run) => self.inputs.returned(id, run),
                None => broken("a record belongs to the open run", record.seq.to_string()),
            },
            RecordBody::AgentDrifted(_) if open.is_some() => Ok(()),
            RecordBody::PermissionMode { run_only, .. } if open.is_some() || !run_only => Ok(()),
            RecordBody::ContextCompacted(compaction) => self.compacted(record, compaction, ending),
            RecordBody::TranscriptReplaced { messages, cleared } if self.patched || (cleared.is_some() && open.is_none()) => {
                self.turn_is_closed(record)?;
                if cleared.is_some() {
                    self.memory.clear();
                }
                self.script.replace(messages);
                self.limits.unchecked = self.script.input_at_end();
                Ok(())
            }
            RecordBody::ResultReplaced { call, output, .. } if self.patched => {
                self.script.replace_result(call, output);
                Ok(())
            }
            RecordBody::RunDone { finish, .. } => self.run_done(record, finish),
            other => broken("the journal has known records only", format!("{}: {other:?}", record.seq)),
        }
    }

    fn run_started(&mut self, record: &Record, cause: &RunCause, limits: RunLimits) -> Result<(), Broken> {
        let Some(id) = record.run.clone().filter(|_| self.run.is_none()) else {
            return broken("every run that starts ends once", format!("{}: a run starts inside another", record.seq));
        };
        match cause {
            RunCause::Input | RunCause::Invocation => {
                self.turn_is_closed(record)?;
                // A fork may have been cut between the results of a step and its end.
                if self.step.take().is_some() && !self.patched {
                    return broken("results stand before any new input", format!("{}: a step is open", record.seq));
                }
                self.steps_since_input = 0;
                self.direct = *cause == RunCause::Invocation;
            }
            // To end a wait: its calls get their results.
            RunCause::Resume if !self.turn.is_empty() || self.is_open_fork() => {}
            _ => {
                if !self.open().any(|call| matches!(call.stage, Stage::Decided(_))) {
                    return broken("a run of a decision has one", format!("{}: nothing is decided", record.seq));
                }
            }
        }
        self.runs += 1;
        self.run = Some(AuditRun { id, limits, ending: false });
        self.stood_for = self.last_run.clone().filter(|_| *cause == RunCause::Resume);
        self.known.begins();
        self.patched = false;
        Ok(())
    }

    /// What was copied is this thread's past: nothing that the source waits for is decided here, no run of its goes on.
    fn forked(&mut self) {
        self.patched = true;
        self.known.forked(self.run.take().is_some());
        if self.step.as_ref().is_some_and(|step| !step.replied) {
            self.limits.unchecked = self.script.input_at_end();
        }
        self.direct = !self.turn.is_empty() && self.open().all(|call| call.origin != CallOrigin::Model);
        self.inputs.forget();
        for approval in &mut self.approvals {
            approval.foreign = true;
        }
        for at in self.turn.clone() {
            self.set(at, |call| {
                if !matches!(call.stage, Stage::Executing | Stage::Done) {
                    // A body that had begun is for its tool to say, whatever was asked about it since.
                    call.stage = if call.attempts > 0 { Stage::Executing } else { Stage::Opened };
                    (call.allowed, call.covered, call.decision) = (false, false, None);
                }
                call.elsewhere = call.stage == Stage::Executing;
            });
        }
        match &self.step {
            Some(step) if !step.replied => {
                self.step = None;
                self.last_step -= 1;
                self.steps_since_input -= 1;
            }
            // The model's last word was recorded: nothing is left to do in its step.
            Some(step) if self.turn.is_empty() && (step.withheld || !self.script.ends_with_results()) => self.step = None,
            _ => {}
        }
    }

    fn queued(
        &mut self,
        record: &Record,
        id: &InputId,
        mode: &InputMode,
        messages: &[Arc<Message>],
        only: Option<&RunId>,
        immediate: bool,
    ) -> Result<(), Broken> {
        if (self.patched || self.is_copied()) && !self.inputs.knows(id) {
            // Nobody posted it to this thread.
            self.inputs.posted(id, mode, messages, only, 0);
        }
        let run = self.run.as_ref().filter(|run| !run.ending).map(|run| &run.id);
        self.inputs.queued(id, mode, messages, only, run)?;
        let heard = self.heard.remove(id);
        if immediate {
            let open = self.step.as_mut().filter(|step| !step.replied && run.is_some() && *mode == InputMode::Steer);
            match open {
                Some(step) if heard != Some(Heard::Something) => step.steered = true,
                _ => return broken("only a silent model call is given up", format!("{}: {id}", record.seq)),
            }
            self.steered += 1;
        } else if *mode == InputMode::Steer && heard == Some(Heard::Nothing) && self.step.as_ref().is_some_and(|step| !step.replied) {
            return broken("a silent model call is given up", format!("{}: {id}", record.seq));
        }
        Ok(())
    }

    fn compacted(&mut self, record: &Record, compaction: &Compaction, ending: bool) -> Result<(), Broken> {
        self.turn_is_closed(record)?;
        let Some(step) = compaction.step else {
            if self.run.is_some() {
                return broken("a thread at rest may be made shorter", format!("{}: a run is open", record.seq));
            }
            self.script.compact(compaction)?;
            self.limits.unchecked = self.limits.unchecked.min(self.script.input_at_end());
            return Ok(());
        };
        let open = self.step.as_ref().is_some_and(|open| open.number == step && !open.replied && !open.steered);
        if !open || ending {
            return broken("what a model sees is made shorter before it is asked", format!("{}: step {step}", record.seq));
        }
        self.script.compact(compaction)
    }

    /// A message joins the transcript.
    fn joins(&mut self, message: &Arc<Message>) {
        self.script.message(message);
        self.limits.joins(told::is_input(message));
    }

    /// Whether input steers the open run: what has not begun does not begin.
    fn is_steered(&self) -> bool {
        self.run.as_ref().is_some_and(|run| self.inputs.steers(&run.id)) && !self.direct
    }

    fn run_ends(&mut self) {
        if let Some(run) = &mut self.run {
            run.ending = true;
        }
    }

    fn run_done(&mut self, record: &Record, finish: &FinishReason) -> Result<(), Broken> {
        let Some(run) = self.run.take().filter(|_| self.step.is_none()) else {
            return broken("every run that starts ends once", format!("{}: it ends with a step open, or none was active", record.seq));
        };
        self.inputs.run_ends(&run.id)?;
        self.last_run = Some(run.id.clone());
        if *finish == FinishReason::AwaitingApproval {
            let stuck = self.open().all(|call| matches!(call.stage, Stage::Asking(_) | Stage::Opened | Stage::Done));
            if run.ending || !stuck || self.waiting().next().is_none() {
                return broken("a run awaits approval only when nothing can move", format!("{} at {}", run.id, record.seq));
            }
            return self.none_is_covered(record);
        }
        self.turn_is_closed(record)
    }

    fn turn_is_closed(&self, record: &Record) -> Result<(), Broken> {
        if self.turn.is_empty() { Ok(()) } else { broken("results stand before any new input", format!("{}: calls are open", record.seq)) }
    }

    fn opened(&mut self, opening: &CallOpening, confirm: bool) -> Result<(), Broken> {
        if self.index.insert(opening.call.clone(), self.calls.len()).is_some() {
            return broken("a call's id is its own", opening.call.to_string());
        }
        if opening.origin == CallOrigin::Model && self.run.is_none() {
            return broken("a record belongs to the open run", opening.call.to_string());
        }
        self.turn.push(self.calls.len());
        self.calls.push(AuditCall {
            id: opening.call.clone(),
            tool: Arc::clone(&opening.tool),
            stage: Stage::Opened,
            attempts: 0,
            gated: false,
            origin: opening.origin.clone(),
            arguments: None,
            sha256: None,
            outcome: None,
            elsewhere: false,
            decision: None,
            covered: false,
            asks: tools::tool(&opening.tool).is_some_and(|tool| tool.needs_approval || confirm && !tool.read_only),
            sequential: opening.sequential,
            allowed: false,
        });
        Ok(())
    }

    fn at(&self, id: &CallId) -> Result<(usize, &AuditCall), Broken> {
        match self.index.get(id).and_then(|at| Some((*at, self.calls.get(*at)?))) {
            Some(found) => Ok(found),
            None => broken("a record is about a call that was opened", id.to_string()),
        }
    }

    fn set(&mut self, at: usize, change: impl FnOnce(&mut AuditCall)) {
        if let Some(call) = self.calls.get_mut(at) {
            change(call);
        }
    }

    /// A call starts: barriers and the limit hold.
    fn may_start(&self, record: &Record, at: usize, first: bool) -> Result<(), Broken> {
        let Some(call) = self.calls.get(at) else { return Ok(()) };
        let limit = self.run.as_ref().and_then(|run| run.limits.tool_concurrency);
        let mut running = 0;
        let mut waiting = 0;
        let mut earlier = true;
        for other in &self.turn {
            if *other == at {
                earlier = false;
                continue;
            }
            let Some(other) = self.calls.get(*other) else { continue };
            match other.stage {
                Stage::Done => continue,
                Stage::Executing if other.elsewhere => {}
                Stage::Cleared | Stage::Executing => running += 1,
                Stage::Asking(_) | Stage::Decided(_) => waiting += 1,
                Stage::Opened | Stage::Stopped => {}
            }
            let barred = if earlier { call.sequential || other.sequential } else { call.sequential && other.stage != Stage::Opened };
            if barred {
                return broken("a sequential tool runs alone", format!("{}: {} starts beside {}", record.seq, call.id, other.id));
            }
            if first && earlier && other.stage == Stage::Opened {
                return broken("gates resolve in call order", format!("{}: {} before {}", record.seq, call.id, other.id));
            }
        }
        let over = match limit {
            None => false,
            Some(1) if first => running + waiting >= 1,
            Some(limit) => running >= limit,
        };
        if over {
            return broken(
                "no more bodies at once than tool_concurrency",
                format!("{}: {} starts beside {running} others", record.seq, call.id),
            );
        }
        Ok(())
    }

    fn executing(&mut self, record: &Record, id: &CallId, attempt: u32) -> Result<(), Broken> {
        let (at, call) = self.at(id)?;
        if tools::tool(&call.tool).is_some_and(|tool| tool.external) {
            return broken("a tool whose result comes from outside has no body", format!("{}: {id}", record.seq));
        }
        if !matches!(call.stage, Stage::Cleared | Stage::Executing) || attempt != call.attempts + 1 {
            return broken(
                "only a cleared call's body begins",
                format!("{}: attempt {attempt} of {id}, which is {:?}", record.seq, call.stage),
            );
        }
        if attempt > 1 {
            let may = match on_interrupt(&call.tool) {
                OnInterrupt::Rerun => true,
                OnInterrupt::Ask => call.stage == Stage::Cleared && call.allowed,
                OnInterrupt::Fail => false,
            };
            if !may {
                return broken("a body that was lost runs again only as its tool says", format!("{}: {id} of `{}`", record.seq, call.tool));
            }
        }
        if attempt == 1 && self.is_steered() {
            return broken("what has not begun when input steers does not begin", format!("{}: {id}", record.seq));
        }
        self.may_start(record, at, false)?;
        self.set(at, |call| {
            call.stage = Stage::Executing;
            call.elsewhere = false;
            call.attempts = attempt;
            call.allowed = false;
        });
        Ok(())
    }

    fn done(&mut self, id: &CallId, outcome: &Outcome, ending: bool) -> Result<(), Broken> {
        let settles = ending || self.patched || self.is_steered();
        let (at, call) = self.at(id)?;
        match call.stage {
            Stage::Done => return broken("every call has exactly one result", id.to_string()),
            Stage::Executing | Stage::Stopped => {}
            // Only a run that has to end, or input that steers, settles what did not run.
            stage if !settles => return broken("a call that may still run is not settled", format!("{id} is {stage:?}")),
            _ => {}
        }
        self.is_from_outside(call, outcome)?;
        self.set(at, |call| {
            call.stage = Stage::Done;
            call.outcome = Some(outcome.clone());
        });
        if self.open().all(|call| call.stage == Stage::Done) {
            let asked = self.open().filter(|call| call.origin == CallOrigin::Model);
            let results = asked.filter_map(|call| {
                Some(Told {
                    call: call.id.clone(),
                    tool: Arc::clone(&call.tool),
                    outcome: call.outcome.clone()?,
                    approval: call.decision.as_ref().filter(|decision| decision.approves()).map(|decision| ApprovalMark {
                        args: sorted_hash(call.arguments.as_deref().unwrap_or_default()).into(),
                        automatic: false,
                        remember: decision.remember.clone(),
                    }),
                    pruned: false,
                })
            });
            let results = results.collect();
            if self.script.results(results) {
                self.limits.joins(false);
            }
            self.turn.clear();
        }
        Ok(())
    }
}

/// The number of a cancellation that was posted.
fn cancel_number(message: &str) -> Option<u64> {
    message.strip_prefix("posted ")?.parse().ok()
}

fn on_interrupt(tool: &str) -> OnInterrupt {
    tools::tool(tool).map_or(OnInterrupt::Rerun, |tool| tool.on_interrupt)
}
