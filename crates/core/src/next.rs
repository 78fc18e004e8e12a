//! What is outstanding: the decisions of the core.
//!
//! [`Thread::next`] is level-triggered: it gives every outstanding action, however often it is asked, each under a stable
//! [`Key`]. Whoever drives the thread starts those that are not in flight. Actions that need nobody from outside have their
//! record at once ([`Thread::record_for`]).

use std::sync::Arc;

use crate::failure::ToolFailure;
use crate::finish::{BudgetTrip, FinishReason, GuardrailTrip, StepFinish};
use crate::ids::{CallId, InputId};
use crate::message::Author;
use crate::record::{CallOrigin, Ending, InputMode, Outcome, RecordBody, RunCause};
use crate::state::{Call, CallState, QueuedInput, Run};
use crate::thread::Thread;

/// The stable name of an action, by which a driver knows what it has in flight.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// The run's start.
    StartRun,
    /// The start of a step.
    StartStep(u32),
    /// The model call of a step.
    Ask(u32),
    /// The check of new input.
    CheckInput,
    /// A budget that is reached.
    Exceed,
    /// A call at the gate.
    Gate(CallId),
    /// A call's body.
    Execute(CallId),
    /// A result for a call that will not run.
    Settle(CallId),
    /// Queued input that joins the transcript.
    ApplyInput(InputId),
    /// Queued input that goes back to its sender.
    ReturnInput(InputId),
    /// The end of a step.
    EndStep(u32),
    /// The end of the run.
    Finish,
    /// The cancellation of what stands under a key.
    Cancel(Box<Key>),
}

/// One outstanding action.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Action {
    /// A run has to start, because calls were decided while none was active.
    StartRun(RunCause),
    /// A step has to start.
    StartStep(u32),
    /// The model has to be asked.
    AskModel {
        /// The step.
        step: u32,
    },
    /// Guardrails have to check the input that joined since the last model call.
    CheckInput,
    /// A budget is reached.
    Exceed {
        /// Which.
        budget: BudgetTrip,
        /// The run fails for it.
        throws: bool,
    },
    /// A call has to pass the gate.
    Gate(CallId),
    /// A call's body has to run.
    Execute {
        /// The call.
        call: CallId,
        /// A body of this call began before. Not in flight, that means: in a process that is gone.
        begun: bool,
    },
    /// A call that will not run needs its result.
    Settle {
        /// The call.
        call: CallId,
        /// Why it will not run.
        why: &'static str,
    },
    /// What stands under the key, if it is in flight, has to stop.
    Cancel(Key),
    /// Queued input joins the transcript, at a safe point.
    ApplyInput {
        /// Which.
        id: InputId,
        /// The step that follows.
        step: u32,
    },
    /// Queued input was meant for this run only, which ends without it.
    ReturnInput(InputId),
    /// The step has to end.
    EndStep {
        /// Its number.
        step: u32,
        /// How.
        finish: StepFinish,
    },
    /// The run has to end.
    Finish(FinishReason),
}

impl Action {
    /// Its stable key.
    pub fn key(&self) -> Key {
        match self {
            Self::StartRun(_) => Key::StartRun,
            Self::StartStep(step) => Key::StartStep(*step),
            Self::AskModel { step } => Key::Ask(*step),
            Self::CheckInput => Key::CheckInput,
            Self::Exceed { .. } => Key::Exceed,
            Self::Gate(call) => Key::Gate(call.clone()),
            Self::Execute { call, .. } => Key::Execute(call.clone()),
            Self::Settle { call, .. } => Key::Settle(call.clone()),
            Self::Cancel(key) => Key::Cancel(Box::new(key.clone())),
            Self::ApplyInput { id, .. } => Key::ApplyInput(id.clone()),
            Self::ReturnInput(id) => Key::ReturnInput(id.clone()),
            Self::EndStep { step, .. } => Key::EndStep(*step),
            Self::Finish(_) => Key::Finish,
        }
    }
}

impl Action {
    /// Whether the run has something to do, beside coming to its end.
    pub(crate) fn is_work(&self) -> bool {
        matches!(
            self,
            Self::StartStep(_) | Self::AskModel { .. } | Self::CheckInput | Self::Gate(_) | Self::Execute { .. } | Self::ApplyInput { .. }
        )
    }
}

impl Thread {
    /// Every outstanding action. Empty when the thread rests: no run is active, or somebody has to decide.
    pub fn next(&self) -> Vec<Action> {
        if self.blocked_by.is_some() {
            return Vec::new();
        }
        let Some(run) = &self.run else { return self.start_by_itself().map(Action::StartRun).into_iter().collect() };
        if let Some(ending) = &run.ending {
            return self.wind_down(ending);
        }
        if let Some((budget, throws)) = self.over_budget() {
            // Whatever it was about to do: the calls of a reply that reached it do not begin.
            return vec![Action::Exceed { budget, throws }];
        }
        if let Some(step) = self.step.as_ref().filter(|step| !step.replied) {
            if step.steered {
                let end = Action::EndStep { step: step.number, finish: StepFinish::Steered };
                return vec![Action::Cancel(Key::Ask(step.number)), end];
            }
            return vec![Action::AskModel { step: step.number }];
        }
        if !self.turn.is_empty() {
            return self.move_calls(run.limits.tool_concurrency);
        }
        if let Some(step) = &self.step {
            return vec![Action::EndStep { step: step.number, finish: step_finish(step.finish.as_ref()) }];
        }
        vec![self.go_on_or_finish()]
    }

    /// A budget that was reached while a step is open. Its own model call may go on whatever the number of steps.
    fn over_budget(&self) -> Option<(BudgetTrip, bool)> {
        self.run.as_ref()?.budgets.as_ref()?;
        let step = self.step.as_ref()?;
        if step.replied && self.turn.is_empty() {
            return None;
        }
        self.reached(step.replied)
    }

    /// What starts a run where none is active: decided calls, a fork in mid-run, input that waits.
    fn start_by_itself(&self) -> Option<RunCause> {
        let (mut decided, mut asking) = (false, false);
        for call in self.open_calls() {
            decided |= matches!(call.state, CallState::Decided(..)) || call.covered.is_some();
            asking |= matches!(call.state, CallState::Asking(_)) && call.covered.is_none();
        }
        if decided {
            Some(RunCause::Decision)
        } else if asking {
            None
        } else if self.forked_open && self.lacks_reply() {
            Some(RunCause::Resume)
        } else {
            (self.turn.is_empty() && self.queued.iter().any(|input| input.only.is_none())).then_some(RunCause::Input)
        }
    }

    /// Whether the transcript ends with what a model has to answer.
    fn lacks_reply(&self) -> bool {
        !self.turn.is_empty() || self.transcript.last().is_some_and(|last| !matches!(last.author, Author::SideA | Author::SideB))
    }

    /// The end of the run, once input that was meant for it alone has gone back.
    fn finish(&self, reason: FinishReason) -> Action {
        let run = self.run.as_ref().map(|run| &run.id);
        match self.queued.iter().find(|input| input.only.is_some() && input.only.as_ref() == run) {
            Some(input) => Action::ReturnInput(input.id.clone()),
            None => Action::Finish(reason),
        }
    }

    /// Input that the active run may take at a safe point.
    fn joining(&self) -> Option<&QueuedInput> {
        self.may_join().next()
    }

    fn may_join(&self) -> impl Iterator<Item = &QueuedInput> {
        let run = self.run.as_ref().filter(|run| !self.is_direct(run));
        let fits = move |input: &&QueuedInput| run.is_some_and(|run| input.only.as_ref().is_none_or(|only| *only == run.id));
        self.queued.iter().filter(fits)
    }

    /// Whether the run is about calls that no model asked for, also where a decision or a fork came between.
    fn is_direct(&self, run: &Run) -> bool {
        let goes_on = matches!(run.cause, RunCause::Decision | RunCause::Resume);
        let asked = || self.open_calls().any(|call| call.origin == CallOrigin::Model);
        run.cause == RunCause::Invocation || (goes_on && if self.turn.is_empty() { self.ended_direct } else { !asked() })
    }

    /// No call is open, no step is open: another step, or the end.
    fn go_on_or_finish(&self) -> Action {
        let Some(run) = &self.run else { return Action::Finish(FinishReason::Stop) };
        // A direct call ends with its result.
        if self.is_direct(run) {
            return self.finish(FinishReason::Stop);
        }
        let over = self.reached(true);
        #[cfg(feature = "planted-bugs")]
        if self.planted == Some(crate::thread::FoldBug::InputIsNotChecked) && self.unchecked > 0 && over.is_none() {
            return Action::StartStep(self.last_step + 1);
        }
        let may_step = over.is_none() && self.steps_taken < run.limits.max_steps;
        // Nothing else happens until it is known whether a model may see what came.
        if may_step && run.checks_input && self.unchecked > 0 {
            return Action::CheckInput;
        }
        // New input makes even a run whose model is done go on (sdk-runtime QUE-2), as far as its steps reach.
        if may_step && let Some(input) = self.joining() {
            return Action::ApplyInput { id: input.id.clone(), step: self.last_step + 1 };
        }
        if let Some(finish) = &run.last_finish {
            let called = self.transcript.last().is_some_and(|message| message.results().next().is_some());
            // Calls make the run go on whatever the reply's reason says, except where the reply was cut or withheld.
            if !called || matches!(finish, FinishReason::Length | FinishReason::ContentFilter) {
                return self.finish(finish.clone());
            }
        }
        if run.limits.max_repeats.is_some_and(|max| self.repetition.count >= max) {
            return self.finish(FinishReason::Guardrail);
        }
        if self.steps_taken >= run.limits.max_steps {
            return self.finish(FinishReason::MaxSteps);
        }
        if let Some((budget, throws)) = over {
            return Action::Exceed { budget, throws };
        }
        Action::StartStep(self.last_step + 1)
    }

    /// The calls of the open turn. Gates run one at a time in call order; bodies run side by side up to the limit.
    fn move_calls(&self, limit: Option<u32>) -> Vec<Action> {
        let mut actions = Vec::new();
        let limit = limit.map_or(usize::MAX, |limit| limit as usize);
        let has_slot = |call: &Call| matches!(call.state, CallState::Cleared | CallState::Executing { .. });
        // With one slot a waiting call holds it, so that starts and ends alternate; with more it holds none.
        let holds = |call: &Call| has_slot(call) || (limit == 1 && matches!(call.state, CallState::Asking(_) | CallState::Decided(..)));
        let running = self.open_calls().filter(|call| has_slot(call)).count();
        let mut held = self.open_calls().filter(|call| holds(call)).count();
        let mut gate_free = true;
        let mut all_before_done = true;
        let mut waiting = false;
        // New input that steers: what has not begun does not begin (sdk-runtime STE-3).
        let steered = self.may_join().any(|input| input.mode == InputMode::Steer);
        for call in self.open_calls() {
            if steered && !matches!(call.state, CallState::Executing { .. } | CallState::Done) {
                actions.push(Action::Settle { call: call.id.clone(), why: "new input came before the call started" });
                continue;
            }
            let may_pass = all_before_done || !call.sequential;
            match &call.state {
                CallState::Opened => {
                    if gate_free && may_pass && held < limit {
                        actions.push(Action::Gate(call.id.clone()));
                        held += 1;
                        // One gate at a time, in call order.
                        gate_free = false;
                    }
                    // Where no slot is free, it may be a later call that holds it, in a fork: that one goes first.
                }
                CallState::Decided(..) | CallState::Asking(_) if matches!(call.state, CallState::Decided(..)) || call.covered.is_some() => {
                    // What was decided needs a slot like any other.
                    if gate_free && running < limit {
                        actions.push(Action::Gate(call.id.clone()));
                    }
                    gate_free = false;
                }
                CallState::Cleared => actions.push(Action::Execute { call: call.id.clone(), begun: false }),
                CallState::Executing { .. } => actions.push(Action::Execute { call: call.id.clone(), begun: true }),
                CallState::Decided(..) | CallState::Asking(_) => waiting = true,
                CallState::Done => {}
            }
            if !matches!(call.state, CallState::Done) {
                all_before_done = false;
                if call.sequential {
                    // A barrier both ways: nothing later starts.
                    break;
                }
            }
        }
        if actions.is_empty() && waiting {
            // Nothing can move before somebody decides.
            return match &self.step {
                Some(step) => vec![Action::EndStep { step: step.number, finish: StepFinish::AwaitingApproval }],
                None => vec![self.finish(FinishReason::AwaitingApproval)],
            };
        }
        actions
    }

    /// The run has to end early: what has not begun gets its result, what runs is told to stop, and then the end.
    fn wind_down(&self, ending: &Ending) -> Vec<Action> {
        let why = match ending {
            Ending::Aborted { .. } => "the run was aborted before the call started",
            Ending::Error { .. } => "the run failed before the call started",
            Ending::Guardrail { .. } => "a guardrail ended the run before the call started",
            Ending::Budget { .. } => "the run reached its budget before the call started",
        };
        let mut actions = Vec::new();
        if let Some(step) = self.step.as_ref().filter(|step| !step.replied) {
            actions.push(Action::Cancel(Key::Ask(step.number)));
        }
        if self.run.as_ref().is_some_and(|run| run.checks_input) {
            actions.push(Action::Cancel(Key::CheckInput));
        }
        for call in self.open_calls() {
            match call.state {
                CallState::Executing { .. } => {
                    actions.push(Action::Cancel(Key::Execute(call.id.clone())));
                    actions.push(Action::Execute { call: call.id.clone(), begun: true });
                }
                CallState::Done => {}
                _ => actions.push(Action::Settle { call: call.id.clone(), why }),
            }
        }
        if !self.turn.is_empty() {
            return actions;
        }
        let (step_finish, finish) = match ending {
            Ending::Aborted { .. } => (StepFinish::Aborted, FinishReason::Aborted),
            Ending::Error { .. } => (StepFinish::Error, FinishReason::Error),
            Ending::Guardrail { throws: true, .. } | Ending::Budget { throws: true, .. } => (StepFinish::Error, FinishReason::Error),
            Ending::Guardrail { .. } => (StepFinish::Guardrail, FinishReason::Guardrail),
            Ending::Budget { .. } => (StepFinish::BudgetExceeded, FinishReason::BudgetExceeded),
        };
        match &self.step {
            Some(step) => actions.push(Action::EndStep { step: step.number, finish: step_finish }),
            None => actions.push(self.finish(finish)),
        }
        actions
    }

    /// The record of an action that needs nobody from outside; `None` for the others.
    pub fn record_for(&self, action: &Action) -> Option<RecordBody> {
        match action {
            Action::StartStep(step) => Some(RecordBody::StepStarted { step: *step }),
            Action::EndStep { step, finish } => {
                let usage = self.step.as_ref().and_then(|open| open.usage);
                Some(RecordBody::StepDone { step: *step, finish: finish.clone(), usage })
            }
            Action::Settle { call, why } => {
                let call = self.call(call)?;
                let mut failure = ToolFailure::not_run(&*call.tool, why);
                failure.tool_call_id = Some(call.id.to_string());
                Some(RecordBody::CallDone {
                    call: call.id.clone(),
                    tool: Arc::clone(&call.tool),
                    outcome: Outcome::failed(failure),
                    duration_ms: call.started_at.map(|_| 0),
                    replaced_by: None,
                    fatal: None,
                    notes: None,
                })
            }
            Action::Exceed { budget, throws } => Some(RecordBody::BudgetExceeded { budget: budget.clone(), throws: *throws }),
            Action::ApplyInput { id, step } => Some(RecordBody::InputApplied { id: id.clone(), step: *step }),
            Action::ReturnInput(id) => {
                Some(RecordBody::InputReturned { id: id.clone(), why: Arc::from("the run ended before its next model call") })
            }
            Action::Finish(finish) => self.run_done(finish),
            _ => None,
        }
    }

    fn run_done(&self, finish: &FinishReason) -> Option<RecordBody> {
        let run = self.run.as_ref()?;
        let ending = match (&run.ending, finish) {
            (Some(ending), _) => Some(ending.clone()),
            (None, FinishReason::Guardrail) => Some(Ending::Guardrail {
                trip: GuardrailTrip {
                    name: "repeated-call".to_owned(),
                    kind: "tool".to_owned(),
                    reason: format!("the same calls gave the same results {} times in a row", self.repetition.count),
                    tool_name: None,
                    info: None,
                },
                throws: false,
            }),
            _ => None,
        };
        let failed = *finish == FinishReason::Error;
        let withheld = matches!(run.ending, Some(Ending::Guardrail { .. }));
        Some(RecordBody::RunDone {
            finish: finish.clone(),
            text: if failed || withheld { Arc::from("") } else { Arc::clone(&run.text) },
            usage: if failed { None } else { run.usage },
            model_calls: run.model_calls,
            ending,
            input_waits: self.queued.iter().any(|input| input.only.is_none()),
        })
    }

    /// Whether a call's result goes to a model.
    pub fn is_model_call(&self, call: &CallId) -> bool {
        self.call(call).is_some_and(|call| call.origin == CallOrigin::Model)
    }
}

/// A step's reason: the model's own. Calls make it `tool_calls`.
fn step_finish(finish: Option<&FinishReason>) -> StepFinish {
    finish.map_or(StepFinish::Stop, |finish| StepFinish::from_word(finish.as_str()))
}
