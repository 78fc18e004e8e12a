//! The journal read a second time, independently of the core's fold: every record is checked as it becomes durable.

use std::collections::HashMap;
use std::sync::Arc;

use toolwright_core::{
    ApprovalId, CallId, CallOpening, CallOrigin, Decision, DecisionVerdict, FinishReason, OnInterrupt, Record, RecordBody, RunCause, RunId,
    RunLimits, Verdict,
};

use super::{Broken, broken, tools};

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
    /// The hash of the arguments that the gate let pass last.
    sha256: Option<Arc<str>>,
    sequential: bool,
    /// Somebody let it run since its body last began.
    allowed: bool,
}

pub(super) struct Approval {
    pub(super) id: ApprovalId,
    pub(super) call: usize,
    pub(super) sha256: Arc<str>,
    /// What was posted first.
    pub(super) posted: Option<Decision>,
    pub(super) applied: bool,
}

pub(super) struct AuditRun {
    id: RunId,
    limits: RunLimits,
    ending: bool,
}

pub(super) struct AuditStep {
    pub(super) number: u32,
    pub(super) replied: bool,
}

/// What the journal says.
#[derive(Default)]
pub(super) struct Audit {
    last: u64,
    pub(super) run: Option<AuditRun>,
    pub(super) step: Option<AuditStep>,
    pub(super) calls: Vec<AuditCall>,
    pub(super) approvals: Vec<Approval>,
    pub(super) runs: u64,
    /// Cancellations posted up to here were for earlier runs.
    pub(super) stale_cancels: u64,
    index: HashMap<CallId, usize>,
    turn: Vec<usize>,
    last_step: u32,
    steps_since_input: u32,
    direct: bool,
}

impl Audit {
    pub(super) fn call(&self, id: &CallId) -> Option<&AuditCall> {
        self.calls.get(*self.index.get(id)?)
    }

    /// The approvals that wait, by index.
    pub(super) fn waiting(&self) -> impl Iterator<Item = usize> {
        self.open().filter_map(|call| match call.stage {
            Stage::Asking(approval) => Some(approval),
            _ => None,
        })
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
            Some(open) if open.number == step && !open.replied => Ok(()),
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
        if let RecordBody::RunStarted { cause, limits, .. } = &record.body {
            return self.run_started(record, cause, *limits);
        }
        let open = self.run.as_ref().map(|run| &run.id);
        if record.run.as_ref() != open {
            return broken("a record belongs to the open run", format!("{}: {:?}, open is {open:?}", record.seq, record.run));
        }
        let ending = self.run.as_ref().is_some_and(|run| run.ending);
        match &record.body {
            RecordBody::ThreadOpened { .. } if self.last == 1 => Ok(()),
            RecordBody::MessageAdded { .. } => self.turn_is_closed(record),
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
                self.step = Some(AuditStep { number: *step, replied: false });
                Ok(())
            }
            RecordBody::ModelReplied { step, calls, .. } => {
                self.may_ask(*step)?;
                self.turn_is_closed(record)?;
                if let Some(open) = &mut self.step {
                    open.replied = true;
                }
                calls.iter().try_for_each(|opening| self.opened(opening))
            }
            RecordBody::ModelFailed { step, .. } => {
                self.may_ask(*step)?;
                self.run_ends();
                Ok(())
            }
            RecordBody::CallOpened(opening) => self.opened(opening),
            RecordBody::CallGated { call, verdict, resumed, arguments, sha256, .. } => {
                if ending {
                    return broken("nothing starts once the run has to end", format!("{}: {call} passes the gate", record.seq));
                }
                self.gated(record, call, verdict, *resumed, arguments.as_ref(), sha256.as_ref())
            }
            RecordBody::CallDecided { approval, call, sha256, decision } => self.decided(approval, call, sha256, decision),
            RecordBody::CallExecuting { call, attempt, .. } => {
                if ending {
                    return broken("nothing starts once the run has to end", format!("{}: {call} begins", record.seq));
                }
                self.executing(record, call, *attempt)
            }
            RecordBody::CallDone { call, fatal, .. } => {
                self.done(call, ending)?;
                if fatal.is_some() {
                    self.run_ends();
                }
                Ok(())
            }
            RecordBody::StepDone { step, .. } => match self.step.take() {
                Some(open) if open.number == *step => Ok(()),
                _ => broken("every step that starts ends once", format!("{}: step {step} ends", record.seq)),
            },
            RecordBody::RunCancelled { reason } => {
                let posted = reason.message.strip_prefix("inbox ").and_then(|at| at.parse::<u64>().ok());
                if let Some(at) = posted.filter(|at| *at <= self.stale_cancels) {
                    return broken(
                        "a cancellation stops the run it was meant for, no later one",
                        format!("{}: it was posted at {at}", record.seq),
                    );
                }
                self.run_ends();
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
                self.steps_since_input = 0;
                self.direct = *cause == RunCause::Invocation;
            }
            // To end a wait: its calls get their results.
            RunCause::Resume if !self.turn.is_empty() => {}
            _ => {
                if !self.open().any(|call| matches!(call.stage, Stage::Decided(_))) {
                    return broken("a run of a decision has one", format!("{}: nothing is decided", record.seq));
                }
            }
        }
        self.runs += 1;
        self.run = Some(AuditRun { id, limits, ending: false });
        Ok(())
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
        if *finish == FinishReason::AwaitingApproval {
            let stuck = self.open().all(|call| matches!(call.stage, Stage::Asking(_) | Stage::Opened | Stage::Done));
            if run.ending || !stuck || self.waiting().next().is_none() {
                return broken("a run awaits approval only when nothing can move", format!("{} at {}", run.id, record.seq));
            }
            return Ok(());
        }
        self.turn_is_closed(record)
    }

    fn turn_is_closed(&self, record: &Record) -> Result<(), Broken> {
        if self.turn.is_empty() { Ok(()) } else { broken("results stand before any new input", format!("{}: calls are open", record.seq)) }
    }

    fn opened(&mut self, opening: &CallOpening) -> Result<(), Broken> {
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
            sha256: None,
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

    fn gated(
        &mut self,
        record: &Record,
        id: &CallId,
        verdict: &Verdict,
        resumed: bool,
        arguments: Option<&Arc<str>>,
        sha256: Option<&Arc<str>>,
    ) -> Result<(), Broken> {
        let (at, call) = self.at(id)?;
        let decided = match call.stage {
            Stage::Opened if !resumed => None,
            Stage::Decided(approval) if resumed => self.approvals.get(approval),
            Stage::Executing if resumed && matches!(verdict, Verdict::Ask(_)) && on_interrupt(&call.tool) == OnInterrupt::Ask => None,
            stage => {
                return broken("a call passes the gate once, and once more when decided", format!("{}: {id} is {stage:?}", record.seq));
            }
        };
        if call.stage == Stage::Opened || matches!(verdict, Verdict::Run) {
            self.may_start(record, at, call.stage == Stage::Opened)?;
        }
        if let (Some(approval), Verdict::Run) = (decided, verdict) {
            let as_decided = match approval.posted.as_ref().map(|decision| &decision.verdict) {
                Some(DecisionVerdict::Approve) => sha256 == Some(&approval.sha256),
                Some(DecisionVerdict::ApproveEdited { arguments: edited }) => arguments == Some(edited),
                _ => false,
            };
            if !as_decided {
                return broken("a call runs as it was decided", format!("{}: {id}", record.seq));
            }
        }
        let stage = match verdict {
            Verdict::Run => Stage::Cleared,
            Verdict::Ask(ask) => {
                let Some(sha256) = sha256 else { return broken("a decision is about arguments", id.to_string()) };
                self.approvals.push(Approval {
                    id: ask.approval.clone(),
                    call: at,
                    sha256: Arc::clone(sha256),
                    posted: None,
                    applied: false,
                });
                Stage::Asking(self.approvals.len() - 1)
            }
            Verdict::EndRun { .. } => {
                self.run_ends();
                Stage::Stopped
            }
            _ => Stage::Stopped,
        };
        self.set(at, |call| {
            call.stage = stage;
            call.gated = true;
            if let Some(sha256) = sha256 {
                call.sha256 = Some(Arc::clone(sha256));
            }
        });
        Ok(())
    }

    fn decided(&mut self, id: &ApprovalId, call: &CallId, sha256: &Arc<str>, decision: &Decision) -> Result<(), Broken> {
        let (at, open) = self.at(call)?;
        let Stage::Asking(waiting) = open.stage else {
            return broken("a decision is applied once", format!("{call} waits for none"));
        };
        let Some(approval) = self.approvals.get_mut(waiting) else { return Ok(()) };
        if approval.id != *id || approval.applied {
            return broken("a decision is applied once", format!("{id} for {call}"));
        }
        if approval.sha256 != *sha256 || approval.posted.as_ref() != Some(decision) {
            return broken(
                "late and altered decisions change nothing",
                format!("{id} was decided as {decision:?}, posted first was {:?}", approval.posted),
            );
        }
        approval.applied = true;
        let allowed = !matches!(decision.verdict, DecisionVerdict::Reject);
        self.set(at, |call| {
            call.stage = Stage::Decided(waiting);
            call.allowed = allowed;
        });
        Ok(())
    }

    fn executing(&mut self, record: &Record, id: &CallId, attempt: u32) -> Result<(), Broken> {
        let (at, call) = self.at(id)?;
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
        self.may_start(record, at, false)?;
        self.set(at, |call| {
            call.stage = Stage::Executing;
            call.attempts = attempt;
            call.allowed = false;
        });
        Ok(())
    }

    fn done(&mut self, id: &CallId, ending: bool) -> Result<(), Broken> {
        let (at, call) = self.at(id)?;
        match call.stage {
            Stage::Done => return broken("every call has exactly one result", id.to_string()),
            Stage::Executing | Stage::Stopped => {}
            // Only a run that has to end settles what did not run.
            stage if !ending => return broken("a call that may still run is not settled", format!("{id} is {stage:?}")),
            _ => {}
        }
        self.set(at, |call| call.stage = Stage::Done);
        if self.open().all(|call| call.stage == Stage::Done) {
            self.turn.clear();
        }
        Ok(())
    }
}

fn on_interrupt(tool: &str) -> OnInterrupt {
    tools::tool(tool).map_or(OnInterrupt::Rerun, |tool| tool.on_interrupt)
}
