//! Tokens spent.

use serde::{Deserialize, Serialize};

/// What one model call, or a run, used (sdk-runtime 1). Absent optional fields mean "not reported".
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Tokens read.
    pub input_tokens: u64,
    /// Tokens written, reasoning included.
    pub output_tokens: u64,
    /// Of the tokens read, those from a provider's cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_input_tokens: Option<u64>,
    /// Tokens written to a provider's cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_tokens: Option<u64>,
    /// Of the tokens written, those of reasoning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_tokens: Option<u64>,
    /// Price in US dollars, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// Whether any figure is an estimate of ours.
    #[serde(default)]
    pub estimated: bool,
}

impl Usage {
    /// Tokens read and written.
    pub fn total_tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    /// The sum; an optional figure is present if either side reported it.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        fn sum(a: Option<u64>, b: Option<u64>) -> Option<u64> {
            match (a, b) {
                (None, None) => None,
                (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
            }
        }
        Self {
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            cached_input_tokens: sum(self.cached_input_tokens, other.cached_input_tokens),
            cache_write_tokens: sum(self.cache_write_tokens, other.cache_write_tokens),
            reasoning_tokens: sum(self.reasoning_tokens, other.reasoning_tokens),
            cost_usd: match (self.cost_usd, other.cost_usd) {
                (None, None) => None,
                (a, b) => Some(a.unwrap_or(0.0) + b.unwrap_or(0.0)),
            },
            estimated: self.estimated || other.estimated,
        }
    }
}

/// What models used that were asked beside the agent's own: by hooks and guardrails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SideUsage {
    /// How many replied.
    pub calls: u32,
    /// What they used.
    pub usage: Usage,
}

impl SideUsage {
    /// One more reply. One that reports nothing has used an unknown amount, whose price is not known either.
    pub fn add(&mut self, usage: Option<&Usage>) {
        let priced = usage.is_some_and(|usage| usage.cost_usd.is_some()) && (self.calls == 0 || self.usage.cost_usd.is_some());
        self.calls = self.calls.saturating_add(1);
        self.usage = self.usage.plus(usage.unwrap_or(&Usage::default()));
        if !priced {
            self.usage.cost_usd = None;
        }
    }

    /// The figures, or nothing where no model was asked.
    pub fn some(self) -> Option<Self> {
        (self.calls > 0).then_some(self)
    }
}
