//! Budgets: what a run, or a thread over all its runs, may use (sdk-runtime 13).
//!
//! How much was used is part of the fold: it is counted from records, so it is the same for every owner, and for a thread that was
//! loaded anew. Time is that between records; what a thread waits for people, or for an owner, is none of it.

use serde::{Deserialize, Serialize};
use serde_json::Number;

use crate::finish::BudgetTrip;
use crate::usage::Usage;
use crate::words::words;

words! {
    /// What happens when a budget is reached.
    #[derive(Default)]
    OnExceeded {
        /// The run ends with `budget-exceeded`.
        #[default]
        Stop = "stop",
        /// The run fails, with the code `TOOLWRIGHT_BUDGET_EXCEEDED`.
        Throw = "throw",
    }
}

impl OnExceeded {
    fn is_stop(&self) -> bool {
        *self != Self::Throw
    }
}

words! {
    /// What a budget is of.
    BudgetScope {
        /// From one input to the answer, pauses included.
        Run = "run",
        /// All runs of a thread.
        Thread = "session",
    }
}

/// Limits of what may be used. What is absent is not limited. A limit is reached once what was used is as much, and is looked at before
/// each model call and after each reply that asks for tools.
///
/// ```
/// use toolwright_core::Budget;
///
/// let budget = Budget::new().max_tokens(50_000).max_cost_usd(0.25).throws();
/// assert!(budget.check().is_ok());
/// assert!(Budget::new().max_steps(0).check().is_err());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Budget {
    /// Tokens read and written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Tokens read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_input_tokens: Option<u64>,
    /// Tokens written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// US dollars. Not held while the price of a model that was used is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<f64>,
    /// Milliseconds. Whatever runs when they are over is told to stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_duration_ms: Option<u64>,
    /// Model calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<u32>,
    /// What happens then.
    #[serde(default, skip_serializing_if = "OnExceeded::is_stop")]
    pub on_exceeded: OnExceeded,
}

impl Budget {
    /// Without limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Tokens read and written together.
    #[must_use]
    pub fn max_tokens(mut self, tokens: u64) -> Self {
        self.max_tokens = Some(tokens);
        self
    }

    /// Tokens read.
    #[must_use]
    pub fn max_input_tokens(mut self, tokens: u64) -> Self {
        self.max_input_tokens = Some(tokens);
        self
    }

    /// Tokens written.
    #[must_use]
    pub fn max_output_tokens(mut self, tokens: u64) -> Self {
        self.max_output_tokens = Some(tokens);
        self
    }

    /// US dollars, as the provider reports them or as its prices are known. Not held, and said so once in the log, while the price of a
    /// model that was used is not known (sdk-runtime BUD-7).
    #[must_use]
    pub fn max_cost_usd(mut self, dollars: f64) -> Self {
        self.max_cost_usd = Some(dollars);
        self
    }

    /// How long it may take. Time in which nobody moves the thread, as while it waits for a decision, does not count.
    #[must_use]
    pub fn max_duration(mut self, duration: std::time::Duration) -> Self {
        self.max_duration_ms = Some(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
        self
    }

    /// Model calls.
    #[must_use]
    pub fn max_steps(mut self, steps: u32) -> Self {
        self.max_steps = Some(steps);
        self
    }

    /// A run that reaches a limit fails with `TOOLWRIGHT_BUDGET_EXCEEDED`, instead of ending with `budget-exceeded`.
    #[must_use]
    pub fn throws(mut self) -> Self {
        self.on_exceeded = OnExceeded::Throw;
        self
    }

    /// The first limit that can't be meant: its name and what was given.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let whole = [
            (MAX_TOKENS, self.max_tokens),
            (MAX_INPUT, self.max_input_tokens),
            (MAX_OUTPUT, self.max_output_tokens),
            (MAX_DURATION, self.max_duration_ms),
            (MAX_STEPS, self.max_steps.map(u64::from)),
        ];
        if let Some((name, _)) = whole.into_iter().find(|(_, limit)| *limit == Some(0)) {
            return Err((name, "0".to_owned()));
        }
        match self.max_cost_usd.filter(|dollars| !(dollars.is_finite() && *dollars > 0.0)) {
            Some(dollars) => Err((MAX_COST, dollars.to_string())),
            None => Ok(()),
        }
    }

    /// The first limit that `spent` reaches. Steps count only where `steps` says so.
    pub(crate) fn reached(&self, spent: &Spent, steps: bool, scope: &BudgetScope) -> Option<BudgetTrip> {
        let whole = |limit: &'static str, value: u64, max: Option<u64>| {
            let max = max.filter(|max| value >= *max)?;
            Some(BudgetTrip { limit: limit.to_owned(), value: value.into(), max: max.into(), scope: scope.clone() })
        };
        let cost = || {
            let max = self.max_cost_usd.filter(|max| !spent.unpriced && spent.cost_usd >= *max)?;
            let (value, max) = (Number::from_f64(spent.cost_usd)?, Number::from_f64(max)?);
            Some(BudgetTrip { limit: MAX_COST.to_owned(), value, max, scope: scope.clone() })
        };
        let taken = u64::from(spent.steps);
        whole(MAX_TOKENS, spent.input_tokens.saturating_add(spent.output_tokens), self.max_tokens)
            .or_else(|| whole(MAX_INPUT, spent.input_tokens, self.max_input_tokens))
            .or_else(|| whole(MAX_OUTPUT, spent.output_tokens, self.max_output_tokens))
            .or_else(cost)
            .or_else(|| whole(MAX_DURATION, spent.active_ms, self.max_duration_ms))
            .or_else(|| whole(MAX_STEPS, taken, self.max_steps.filter(|_| steps).map(u64::from)))
    }

    /// Whether what models cost matters to it.
    pub fn limits_cost(&self) -> bool {
        self.max_cost_usd.is_some()
    }
}

const MAX_TOKENS: &str = "maxTokens";
const MAX_INPUT: &str = "maxInputTokens";
const MAX_OUTPUT: &str = "maxOutputTokens";
const MAX_COST: &str = "maxCostUsd";
const MAX_DURATION: &str = "maxDurationMs";
const MAX_STEPS: &str = "maxSteps";

/// The budgets that a run goes by, fixed at its start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Budgets {
    /// Of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Budget>,
    /// Of the thread, over all its runs.
    #[serde(default, rename = "session", skip_serializing_if = "Option::is_none")]
    pub thread: Option<Budget>,
}

/// What was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spent {
    /// Tokens read.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// US dollars, as far as they are known.
    pub cost_usd: f64,
    /// Whether the price of something used is not known.
    pub unpriced: bool,
    /// Model calls.
    pub steps: u32,
    /// Milliseconds in which somebody moved the thread.
    pub active_ms: u64,
}

impl Spent {
    /// What a model call used. One that reports nothing has no price either.
    pub(crate) fn add(&mut self, usage: Option<&Usage>) {
        let Some(usage) = usage else {
            self.unpriced = true;
            return;
        };
        self.input_tokens = self.input_tokens.saturating_add(usage.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(usage.output_tokens);
        match usage.cost_usd.filter(|cost| cost.is_finite()) {
            Some(cost) => self.cost_usd += cost,
            None => self.unpriced = true,
        }
    }

    /// The sum.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            cost_usd: self.cost_usd + other.cost_usd,
            unpriced: self.unpriced || other.unpriced,
            steps: self.steps.saturating_add(other.steps),
            active_ms: self.active_ms.saturating_add(other.active_ms),
        }
    }
}
