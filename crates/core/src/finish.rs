//! How runs and steps end.

use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

use crate::budget::BudgetScope;
use crate::words::words;

words! {
    /// How a run, or a model's reply, ended (sdk-runtime 10). A word a provider sends that is not in the closed set
    /// reads as [`FinishReason::Unknown`] through [`FinishReason::from_provider`].
    FinishReason {
        /// The model was done.
        Stop = "stop",
        /// The model ran into its output limit.
        Length = "length",
        /// The model asked for tools.
        ToolCalls = "tool_calls",
        /// The provider withheld the reply.
        ContentFilter = "content_filter",
        /// The run failed.
        Error = "error",
        /// The model ended for a reason outside the closed set.
        Unknown = "other",
        /// Nothing can move before somebody decides.
        AwaitingApproval = "awaiting-approval",
        /// Stopped from outside.
        Aborted = "aborted",
        /// The model wanted to go on, the step budget did not allow it.
        MaxSteps = "max-steps",
        /// The structured reply did not validate.
        OutputInvalid = "output-invalid",
        /// A budget was reached.
        BudgetExceeded = "budget-exceeded",
        /// A guardrail ended the run.
        Guardrail = "guardrail",
    }
}

impl FinishReason {
    /// A provider's own word: the five model words, anything else is `other`.
    pub fn from_provider(word: &str) -> Self {
        match Self::from_word(word) {
            known @ (Self::Stop | Self::Length | Self::ToolCalls | Self::ContentFilter | Self::Error) => known,
            _ => Self::Unknown,
        }
    }
}

words! {
    /// How a step ended: a model's reason, or one of ours.
    StepFinish {
        /// The model was done.
        Stop = "stop",
        /// Output limit.
        Length = "length",
        /// Tools were called.
        ToolCalls = "tool_calls",
        /// Withheld by the provider.
        ContentFilter = "content_filter",
        /// Some call waits for a decision.
        AwaitingApproval = "awaiting-approval",
        /// Stopped from outside.
        Aborted = "aborted",
        /// Ended early by new input.
        Steered = "steered",
        /// A budget was reached.
        BudgetExceeded = "budget-exceeded",
        /// A guardrail ended the run.
        Guardrail = "guardrail",
        /// The step failed.
        Error = "error",
    }
}

/// Why a run was stopped from outside (sdk-runtime CAN-7).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbortReason {
    /// `AbortError` for a plain abort, `TimeoutError` for a time limit, or the caller's own name.
    pub name: String,
    /// What the caller said.
    pub message: String,
}

impl AbortReason {
    /// A plain abort.
    pub fn abort(message: impl Into<String>) -> Self {
        Self { name: "AbortError".to_owned(), message: message.into() }
    }

    /// A time limit that ran out.
    pub fn timeout(message: impl Into<String>) -> Self {
        Self { name: "TimeoutError".to_owned(), message: message.into() }
    }
}

/// Which guardrail ended a run, and why (sdk-runtime 1, `ExecutionResult.guardrail`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GuardrailTrip {
    /// The guardrail's name.
    pub name: String,
    /// `input`, `output`, `tool` or `result`.
    pub kind: String,
    /// Why.
    pub reason: String,
    /// The tool, for a guardrail on tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// Types and offsets, never matched text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info: Option<Value>,
}

/// Which budget ended a run (sdk-runtime 13).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetTrip {
    /// The limit, such as `maxTokens`.
    pub limit: String,
    /// What was used.
    pub value: Number,
    /// How much it allows.
    pub max: Number,
    /// `run`, or `session` for a thread's.
    pub scope: BudgetScope,
}

impl std::fmt::Display for BudgetTrip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { limit, value, max, scope } = self;
        write!(f, "{limit} of the {scope} is {max}, and {value} is reached")
    }
}

/// A failure as records and events carry it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The error's own name, such as `ModelError`.
    pub name: String,
    /// One sentence.
    pub message: String,
    /// The stable code, where the failure is one of ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_round_trip_and_unknown_ones_survive() {
        for word in ["stop", "awaiting-approval", "max-steps", "other", "something-new"] {
            let reason = FinishReason::from_word(word);
            let text = serde_json::to_string(&reason).unwrap();
            assert_eq!(text, format!("\"{word}\""));
            assert_eq!(serde_json::from_str::<FinishReason>(&text).unwrap(), reason);
        }
        assert_eq!(FinishReason::from_provider("model_length"), FinishReason::Unknown);
        assert_eq!(FinishReason::from_provider("awaiting-approval"), FinishReason::Unknown);
    }
}
