//! The folds of what guardrails and budgets say, and what a budget has left.

use std::sync::Arc;

use crate::budget::{BudgetScope, Budgets, Spent};
use crate::finish::{BudgetTrip, FinishReason};
use crate::ids::{Seq, Timestamp};
use crate::message::{Author, Item, Message};
use crate::record::{Ending, RecordBody, RewrittenInput};
use crate::saved::Origin;
use crate::state::Run;
use crate::thread::Thread;
use crate::usage::{SideUsage, Usage};

/// Whether a message is something that came in, and not what a side or a tool said.
pub(crate) fn is_input(message: &Message) -> bool {
    matches!(message.author, Author::Human | Author::System)
}

/// The message with other text; what else it holds stays where it was.
pub fn with_text(message: &Message, text: &str) -> Message {
    let mut out = Message { items: Vec::with_capacity(message.items.len()), ..message.clone() };
    let mut new = (!text.is_empty()).then(|| Item::text(text));
    for item in &message.items {
        match item {
            Item::Text { .. } => out.items.extend(new.take()),
            item => out.items.push(item.clone()),
        }
    }
    out.items.extend(new);
    out
}

impl Thread {
    /// The input that no guardrail has checked and no model was asked about: messages at the end of the transcript.
    pub fn unchecked_input(&self) -> impl Iterator<Item = &Arc<Message>> {
        self.transcript.from(self.transcript.len().saturating_sub(self.unchecked))
    }

    /// How many messages at the end of the transcript are input, whether it was checked or not.
    pub fn input_at_end(&self) -> usize {
        let summary = |origin: &Origin| matches!(origin, Origin::Summary(_));
        let tail = self.transcript.iter().rev().zip(self.origins.iter().rev());
        tail.take_while(|(message, origin)| is_input(message) && !summary(origin)).count()
    }

    /// What was used since the last new input, and by all runs of the thread that count, at `now`.
    pub fn spent(&self, now: Timestamp) -> (Spent, Spent) {
        let run = self.run.as_ref().map(|run| run.spent_at(now)).unwrap_or_default();
        (self.spent.plus(&run), self.spent_in_all.plus(&run))
    }

    pub(crate) fn fold_checked(
        &mut self,
        seq: Seq,
        messages: usize,
        rewritten: &[RewrittenInput],
        ending: Option<&Ending>,
    ) -> Result<(), String> {
        if self.step.is_some() || !self.turn.is_empty() {
            return Err("input is checked between steps".to_owned());
        }
        if messages != self.unchecked || rewritten.iter().any(|change| change.index >= messages) {
            return Err(format!("{messages} messages were checked, where {} wait for it", self.unchecked));
        }
        self.active_run()?;
        let first = self.transcript.len().saturating_sub(messages);
        for (change, made) in rewritten.iter().enumerate() {
            let at = first + made.index;
            let (Some(message), Some(origin)) = (self.transcript.get(at), self.origins.get_mut(at)) else { continue };
            let message = Arc::new(with_text(message, &made.text));
            *origin = Origin::Checked(seq, change, Box::new(origin.clone()));
            self.transcript.set(at, message);
        }
        match ending {
            // What is blocked is seen by no model, in a later run neither.
            Some(Ending::Guardrail { .. }) => self.drop_input(messages),
            // Nobody has looked at it: it is checked once a run goes on.
            Some(_) => {}
            None => self.unchecked = 0,
        }
        if let Some(ending) = ending {
            self.active_run()?.ending.get_or_insert_with(|| ending.clone());
        }
        Ok(())
    }

    pub(crate) fn fold_withheld(&mut self, step: u32, ending: &Ending, usage: Option<&Usage>) -> Result<(), String> {
        let open = self.step.as_mut().filter(|open| open.number == step && !open.replied).ok_or("that step waits for no reply")?;
        let run = self.run.as_mut().ok_or("no run is active")?;
        open.replied = true;
        open.usage = usage.copied();
        run.model_calls += 1;
        if let Some(usage) = usage {
            run.usage = Some(run.usage.unwrap_or_default().plus(usage));
            run.spent.add(Some(usage));
        }
        run.ending.get_or_insert_with(|| ending.clone());
        if matches!(ending, Ending::Guardrail { trip, .. } if trip.kind == "input") {
            self.drop_input(self.input_at_end());
        }
        Ok(())
    }

    fn drop_input(&mut self, messages: usize) {
        for _ in 0..messages {
            self.transcript = self.transcript.without_last();
            self.origins.pop();
        }
        self.unchecked = 0;
    }

    /// What models used that were asked beside the agent's own.
    pub(crate) fn asked_beside(&mut self, side: Option<&SideUsage>) {
        let Some(side) = side else { return };
        let Some(run) = self.run.as_mut() else {
            self.spent_in_all.add(Some(&side.usage));
            return;
        };
        run.model_calls = run.model_calls.saturating_add(side.calls);
        run.usage = Some(run.usage.unwrap_or_default().plus(&side.usage));
        run.spent.add(Some(&side.usage));
    }

    /// A run is over: what it used counts for what follows. One that was aborted does not count for the thread (sdk-runtime BUD-10).
    pub(crate) fn count_run(&mut self, run: &Run, finish: &FinishReason, at: Timestamp) {
        let spent = run.spent_at(at);
        #[cfg(feature = "planted-bugs")]
        if self.planted == Some(crate::thread::FoldBug::SpentIsForgotten) {
            return;
        }
        self.spent = self.spent.plus(&spent);
        if *finish != FinishReason::Aborted {
            self.spent_in_all = self.spent_in_all.plus(&spent);
        }
    }

    /// The budget that is reached by what records say was used, and whether the run fails for it.
    pub(crate) fn reached(&self, steps: bool) -> Option<(BudgetTrip, bool)> {
        let run = self.run.as_ref()?;
        reached(run, run.budgets.as_ref()?, (self.spent.plus(&run.spent), self.spent_in_all.plus(&run.spent)), steps)
    }

    /// When the time of a budget is over, if it limits the run that is active.
    pub fn deadline(&self) -> Option<Timestamp> {
        let run = self.run.as_ref().filter(|run| run.ending.is_none())?;
        let budgets = run.budgets.as_ref()?;
        let limits = [(&budgets.run, &self.spent), (&budgets.thread, &self.spent_in_all)];
        let left =
            limits.into_iter().filter_map(|(budget, before)| Some(budget.as_ref()?.max_duration_ms?.saturating_sub(before.active_ms)));
        let left = left.min()?;
        if left == 0 {
            // It was over before this run began, also where the clock has jumped back since.
            return Some(Timestamp::default());
        }
        let left = left.saturating_add(run.idle_ms);
        Some(Timestamp(run.began_at.0.saturating_add(i64::try_from(left).unwrap_or(i64::MAX))))
    }

    /// The record of a time that is over at `now`, while the run has something to do. One that only has to end does so by itself
    /// (sdk-runtime BUD-3).
    pub fn overdue(&self, now: Timestamp) -> Option<RecordBody> {
        if self.deadline()? > now {
            return None;
        }
        let run = self.run.as_ref()?;
        let (budget, throws) = reached(run, run.budgets.as_ref()?, self.spent(now), false)?;
        self.next().iter().any(crate::next::Action::is_work).then_some(RecordBody::BudgetExceeded { budget, throws })
    }
}

fn reached(run: &Run, budgets: &Budgets, (of_run, of_thread): (Spent, Spent), steps: bool) -> Option<(BudgetTrip, bool)> {
    let throws = |budget: &crate::budget::Budget| budget.on_exceeded == crate::budget::OnExceeded::Throw;
    // Of two limits on steps the stricter counts; where they are the same, the run ends as one that used its steps (BUD-6).
    let stricter = |max: u32| max < run.limits.max_steps;
    if let Some(budget) = &budgets.run
        && let Some(trip) = budget.reached(&of_run, steps && budget.max_steps.is_some_and(stricter), &BudgetScope::Run)
    {
        return Some((trip, throws(budget)));
    }
    let budget = budgets.thread.as_ref()?;
    Some((budget.reached(&of_thread, steps, &BudgetScope::Thread)?, throws(budget)))
}

impl Run {
    fn spent_at(&self, now: Timestamp) -> Spent {
        let active_ms = now.millis_since(self.began_at).saturating_sub(self.idle_ms);
        Spent { active_ms, ..self.spent }
    }

    /// Whether what models cost matters to a budget of it.
    pub fn limits_cost(&self) -> bool {
        let limits = |budgets: &Arc<Budgets>| [&budgets.run, &budgets.thread].into_iter().flatten().any(crate::budget::Budget::limits_cost);
        self.budgets.as_ref().is_some_and(limits)
    }
}
