//! What runs used, counted a second time; what was checked before a model saw it.

use std::sync::Arc;

use toolwright_core::{Budget, Budgets, FinishReason, Record, RecordBody, RunCause, SideUsage, Usage};

use super::super::{Broken, broken};

const BUDGET: &str = "nothing begins beyond a budget, and none is reached that is not";
const CHECKED: &str = "a model sees no input that was not checked, and input is checked once";

#[derive(Clone, Copy, Default)]
struct Used {
    tokens: u64,
    steps: u32,
    millis: u64,
}

impl Used {
    fn plus(self, other: Self) -> Self {
        Self { tokens: self.tokens + other.tokens, steps: self.steps + other.steps, millis: self.millis + other.millis }
    }
}

struct Open {
    budgets: Option<Arc<Budgets>>,
    max_steps: u32,
    checks: bool,
    began: i64,
    idle: u64,
    used: Used,
    exceeded: bool,
}

/// The accounts of a thread.
#[derive(Default)]
pub(super) struct Limits {
    run: Option<Open>,
    /// By runs that are over: since the last new input, and in all.
    turn: Used,
    thread: Used,
    last_at: i64,
    /// A step is open whose model has not replied.
    unanswered: bool,
    /// Messages of input that wait for a check.
    pub(super) unchecked: usize,
    pub(super) exceeded: u64,
}

impl Limits {
    pub(super) fn note(&mut self, record: &Record) -> Result<(), Broken> {
        let at = record.at.0;
        let noted = self.counted(record, at);
        self.last_at = at;
        noted
    }

    fn counted(&mut self, record: &Record, at: i64) -> Result<(), Broken> {
        match &record.body {
            RecordBody::RunStarted { cause, limits, budgets, checks_input, .. } => {
                if matches!(cause, RunCause::Input | RunCause::Invocation) {
                    self.turn = Used::default();
                }
                let budgets = budgets.clone();
                let (max_steps, checks) = (limits.max_steps, *checks_input);
                self.run = Some(Open { budgets, max_steps, checks, began: at, idle: 0, used: Used::default(), exceeded: false });
            }
            RecordBody::RunTakenOver {} => {
                let idle = since(at, self.last_at);
                if let Some(run) = &mut self.run {
                    run.idle += idle;
                }
            }
            RecordBody::StepStarted { step } => {
                self.may_go_on(record, at, true)?;
                if self.unchecked > 0 && self.run.as_ref().is_some_and(|run| run.checks) {
                    return broken(CHECKED, format!("{}: step {step} begins, and {} messages wait", record.seq, self.unchecked));
                }
                (self.unchecked, self.unanswered) = (0, true);
                if let Some(run) = &mut self.run {
                    run.used.steps += 1;
                }
            }
            RecordBody::CallExecuting { .. } => self.may_go_on(record, at, false)?,
            RecordBody::ModelReplied { usage, side, .. } | RecordBody::ReplyWithheld { usage, side, .. } => {
                self.unanswered = false;
                self.use_up(usage.as_ref());
                self.use_up(side.as_ref().map(|SideUsage { usage, .. }| usage));
            }
            RecordBody::InputChecked { messages, side, .. } => {
                if *messages == 0 || *messages != self.unchecked {
                    return broken(CHECKED, format!("{}: {messages} are checked, {} wait", record.seq, self.unchecked));
                }
                self.use_up(side.as_ref().map(|SideUsage { usage, .. }| usage));
            }
            RecordBody::StepDone { .. } => self.unanswered = false,
            RecordBody::ThreadForked { .. } => self.forked(),
            RecordBody::ContextCompacted(compaction) => self.use_up(compaction.usage.as_ref()),
            RecordBody::BudgetExceeded { budget, .. } => {
                self.exceeded += 1;
                let (of_run, of_thread) = self.used(at);
                let used = if budget.scope.as_str() == "run" { of_run } else { of_thread };
                let value = match budget.limit.as_str() {
                    "maxTokens" => used.tokens,
                    "maxSteps" => u64::from(used.steps),
                    _ => used.millis,
                };
                // Time goes on between what is told and when.
                let told = budget.value.as_u64().unwrap_or_default();
                let right = told == value || (budget.limit == "maxDurationMs" && told <= value);
                let over = right && budget.max.as_u64().is_some_and(|max| told >= max);
                let Some(run) = self.run.as_mut().filter(|run| over && !run.exceeded) else {
                    return broken(BUDGET, format!("{}: {budget}, and {value} are counted", record.seq));
                };
                run.exceeded = true;
            }
            RecordBody::RunDone { finish, .. } => {
                let (_, thread) = self.used(at);
                let Some(run) = &self.run else { return Ok(()) };
                if (*finish == FinishReason::BudgetExceeded) && !run.exceeded {
                    return broken(BUDGET, format!("{}: the run ends so, and none was reached", record.seq));
                }
                self.turn = self.used(at).0;
                if *finish != FinishReason::Aborted {
                    self.thread = thread;
                }
                self.run = None;
            }
            _ => {}
        }
        Ok(())
    }

    /// What was used by now, since the last new input and in all.
    fn used(&self, at: i64) -> (Used, Used) {
        let now =
            self.run.as_ref().map_or_else(Used::default, |run| Used { millis: since(at, run.began).saturating_sub(run.idle), ..run.used });
        (self.turn.plus(now), self.thread.plus(now))
    }

    /// A step, or a body, is about to begin.
    fn may_go_on(&self, record: &Record, at: i64, step: bool) -> Result<(), Broken> {
        let Some(run) = &self.run else { return Ok(()) };
        let Some(budgets) = &run.budgets else { return Ok(()) };
        let (of_run, of_thread) = self.used(at);
        let reached = |budget: &Budget, used: Used, steps: bool| {
            budget.max_duration_ms.is_some_and(|max| used.millis >= max)
                || step && budget.max_tokens.is_some_and(|max| used.tokens >= max)
                || step && steps && budget.max_steps.is_some_and(|max| used.steps >= max)
        };
        let stricter = budgets.run.as_ref().and_then(|budget| budget.max_steps).is_some_and(|max| max < run.max_steps);
        if budgets.run.as_ref().is_some_and(|budget| reached(budget, of_run, stricter))
            || budgets.thread.as_ref().is_some_and(|budget| reached(budget, of_thread, true))
        {
            return broken(
                BUDGET,
                format!("{}: it goes on with {} tokens, {} steps, {} ms", record.seq, of_run.tokens, of_run.steps, of_run.millis),
            );
        }
        Ok(())
    }

    fn use_up(&mut self, usage: Option<&Usage>) {
        let tokens = usage.map_or(0, Usage::total_tokens);
        match &mut self.run {
            Some(run) => run.used.tokens += tokens,
            None => self.thread.tokens += tokens,
        }
    }

    /// A message joins: `input`, or something else.
    pub(super) fn joins(&mut self, input: bool) {
        self.unchecked = if input { self.unchecked + 1 } else { 0 };
    }

    /// The thread is a fork: its past is over, and no run counts on. A model call that nobody answered is none.
    fn forked(&mut self) {
        let (turn, _) = self.used(self.last_at);
        self.turn = turn;
        if std::mem::take(&mut self.unanswered) && self.run.is_some() {
            self.turn.steps = self.turn.steps.saturating_sub(1);
        }
        self.run = None;
    }
}

fn since(at: i64, earlier: i64) -> u64 {
    u64::try_from(at - earlier).unwrap_or(0)
}
