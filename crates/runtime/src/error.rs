//! What an agent fails with.

use toolwright_core::{BudgetTrip, CallId, Failure, GuardrailTrip, Misfit, RunId, ThreadId, Timestamp};

use crate::model::ResolveError;
use crate::registry::RegistryError;
use crate::store::StoreError;

/// What an agent, or one of its runs, fails with. One sentence each, a stable code, and a hint where there is one.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// No model was given.
    #[error("no model is set; use `.model(\"provider/name\")`, `.model_from_env()`, or `.model(\"local\")` with the feature `local`")]
    NoModel,
    /// A model's name did not lead to a model.
    #[error(transparent)]
    Model(#[from] ResolveError),
    /// An option has a value that can't be used.
    #[error("{field} is {given}; {fix}")]
    Invalid {
        /// The option.
        field: String,
        /// What was given.
        given: String,
        /// What to do.
        fix: String,
    },
    /// Permission rules that can't be used; every problem is listed.
    #[error("the permission rules can't be used: {problems}")]
    Rules {
        /// What is wrong, by rule and field.
        problems: String,
    },
    /// A tool could not be registered.
    #[error(transparent)]
    Tool(#[from] RegistryError),
    /// Tools need state that is not there; every one of them is listed.
    #[error("{}", missing_sentence(.missing))]
    MissingState {
        /// Tool and type.
        missing: Vec<(String, String)>,
    },
    /// Two states of one type.
    #[error(transparent)]
    DuplicateState(#[from] toolwright_tool::DuplicateState),
    /// Something that can't be a secret.
    #[error(transparent)]
    Secret(#[from] toolwright_core::redact::SecretRefused),
    /// A secret can't be kept without encryption.
    #[error(
        "the secret {name} can't be kept: there is no key to encrypt it with; set `ENCRYPTION_KEY` to a random text of at least 16 characters, or give it with `.encryption_key(...)`"
    )]
    NoEncryptionKey {
        /// The variable.
        name: String,
    },
    /// A secret can't be taken out of what would be written down, so it was not.
    #[error("{problem}")]
    Unredactable {
        /// What is wrong.
        problem: String,
    },
    /// A thread id outside the grammar.
    #[error(transparent)]
    ThreadId(#[from] toolwright_core::InvalidThreadId),
    /// There is nothing to send.
    #[error("the input is empty; send a text, parts or messages")]
    MissingInput,
    /// Messages brought along are not balanced.
    #[error("the messages can't be taken over: {problem}")]
    Unbalanced {
        /// What is wrong.
        problem: String,
    },
    /// Calls of the thread wait for decisions; nothing may slip past them.
    #[error("the thread {thread} waits for a decision on {approvals}; decide, or cancel the thread, before sending more")]
    AwaitingApproval {
        /// The thread.
        thread: ThreadId,
        /// The decisions' ids, listed.
        approvals: String,
    },
    /// An interrupted run has to go on first.
    #[error("the last run of the thread {thread} was interrupted; call `resume()` before sending more")]
    Interrupted {
        /// The thread.
        thread: ThreadId,
    },
    /// There is nothing to go on with.
    #[error("the thread {thread} has nothing to resume; its last run is done and nobody decided anything since")]
    NothingToResume {
        /// The thread.
        thread: ThreadId,
    },
    /// There is no such thread.
    #[error("there is no thread {thread} in this store; list what there is with `threads()`")]
    UnknownThread {
        /// What was asked for.
        thread: ThreadId,
    },
    /// There is a thread of this id.
    #[error("there is a thread {thread} already; choose another id")]
    ThreadExists {
        /// The thread.
        thread: ThreadId,
    },
    /// The thread has no such step, or position.
    #[error("the thread {thread} has no {what}; {range}")]
    StepNotFound {
        /// The thread.
        thread: ThreadId,
        /// What was asked for.
        what: String,
        /// What there is.
        range: String,
    },
    /// The agent that would go on differs from the one that began, and is told to mind.
    #[error(
        "the agent that would go on with the thread {thread} differs from the one that began: {drift}; resume with that one, or allow it with `on_drift`"
    )]
    Drift {
        /// The thread.
        thread: ThreadId,
        /// In what.
        drift: String,
    },
    /// A call that waits has no tool any more.
    #[error(
        "the call {call} of the thread {thread} needs the tool `{tool}`, which this agent does not have; resume with one that has it, or cancel the thread"
    )]
    ToolMissing {
        /// The thread.
        thread: ThreadId,
        /// The tool.
        tool: String,
        /// The call.
        call: CallId,
    },
    /// No such decision is pending.
    #[error("no decision {approval} is pending; list the pending ones with `approvals().pending()`")]
    ApprovalNotFound {
        /// What was asked for.
        approval: String,
    },
    /// Somebody else decided first.
    #[error("{approval} was decided before{}", .by.as_ref().map(|by| format!(", by {by}")).unwrap_or_default())]
    ApprovalConflict {
        /// The decision's id.
        approval: String,
        /// Who was first, where that is known.
        by: Option<String>,
    },
    /// Nobody decided in time: the call is refused, whatever is decided now.
    #[error("{approval} had to be decided{}; nobody did in time, so the call is refused", .at.map(|at| format!(" before {}", at.to_iso())).unwrap_or_default())]
    ApprovalLapsed {
        /// The decision's id.
        approval: String,
        /// Until when.
        at: Option<Timestamp>,
    },
    /// Who decides may not.
    #[error("{who} may not decide {approval}; ask one of its deciders, or hand it on with `delegate`")]
    ApprovalForbidden {
        /// The decision's id.
        approval: String,
        /// Who wanted to decide.
        who: String,
    },
    /// A decision does not fit what is asked.
    #[error("{approval} can't be decided so: {problem}")]
    ApprovalInvalid {
        /// The decision's id.
        approval: String,
        /// What does not fit, and what to do.
        problem: String,
    },
    /// The thread has a record of a kind this version does not know.
    #[error("the thread {thread} has a record of the kind `{kind}`, which this version does not know; move it with a version that does")]
    UnknownRecord {
        /// The thread.
        thread: ThreadId,
        /// The kind.
        kind: String,
    },
    /// The run failed.
    #[error("{}", .failure.message)]
    Run {
        /// The run.
        run: RunId,
        /// Why.
        failure: Failure,
    },
    /// A guardrail blocked, and the agent has runs fail then.
    #[error("the guardrail `{}` on {} ended the run: {}", .trip.name, .trip.kind, .trip.reason)]
    Guardrail {
        /// The run.
        run: RunId,
        /// Which, and why.
        trip: Box<GuardrailTrip>,
    },
    /// A budget was reached, and has runs fail then.
    #[error("the run reached its budget: {budget}; raise it, or ask for less at once")]
    BudgetExceeded {
        /// The run.
        run: RunId,
        /// Which.
        budget: Box<BudgetTrip>,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The journal does not fit together.
    #[error("the journal is damaged: {0}")]
    Journal(#[from] Misfit),
    /// The async runtime stopped in mid-run.
    #[error("the run was dropped because the async runtime stopped; call `resume()` to go on")]
    RuntimeStopped,
}

fn missing_sentence(missing: &[(String, String)]) -> String {
    let needs: Vec<String> = missing.iter().map(|(tool, state)| format!("tool `{tool}` needs State<{state}>")).collect();
    let mut types: Vec<&str> = missing.iter().map(|(_, state)| state.as_str()).collect();
    types.dedup();
    let gives: Vec<String> = types.iter().map(|state| format!("`.state(...)` with a {state}")).collect();
    format!("{}; add {} to the builder", needs.join(", "), gives.join(" and "))
}

impl AgentError {
    /// The stable code; messages may change, codes don't.
    pub fn code(&self) -> &str {
        match self {
            Self::NoModel => "TOOLWRIGHT_CONFIG_MISSING_PROVIDER",
            Self::Model(error) => error.code,
            Self::Invalid { .. }
            | Self::Rules { .. }
            | Self::Tool(_)
            | Self::MissingState { .. }
            | Self::DuplicateState(_)
            | Self::Unbalanced { .. }
            | Self::Secret(_)
            | Self::NoEncryptionKey { .. }
            | Self::Unredactable { .. } => "TOOLWRIGHT_CONFIG_INVALID",
            Self::ThreadId(_) => "TOOLWRIGHT_SESSION_ID_INVALID",
            Self::MissingInput => "TOOLWRIGHT_CONFIG_MISSING_INPUT",
            Self::AwaitingApproval { .. } => "TOOLWRIGHT_SESSION_AWAITING_APPROVAL",
            Self::Interrupted { .. } => "TOOLWRIGHT_SESSION_TURN_PENDING",
            Self::NothingToResume { .. } => "TOOLWRIGHT_CHECKPOINT_NOT_FOUND",
            Self::UnknownThread { .. } => "TOOLWRIGHT_SESSION_NOT_FOUND",
            Self::ThreadExists { .. } => "TOOLWRIGHT_SESSION_EXISTS",
            Self::StepNotFound { .. } => "TOOLWRIGHT_SESSION_STEP_NOT_FOUND",
            Self::Drift { .. } => "TOOLWRIGHT_AGENT_DRIFT",
            Self::ToolMissing { .. } => "TOOLWRIGHT_RESUME_TOOL_MISSING",
            Self::ApprovalNotFound { .. } => "TOOLWRIGHT_APPROVAL_NOT_FOUND",
            Self::ApprovalConflict { .. } | Self::ApprovalLapsed { .. } => "TOOLWRIGHT_APPROVAL_CONFLICT",
            Self::ApprovalForbidden { .. } => "TOOLWRIGHT_APPROVAL_FORBIDDEN",
            Self::ApprovalInvalid { .. } => "TOOLWRIGHT_APPROVAL_INVALID",
            Self::UnknownRecord { .. } | Self::Journal(_) => "TOOLWRIGHT_SESSION_FILE_CORRUPT",
            Self::Run { failure, .. } => failure.code.as_deref().unwrap_or("TOOLWRIGHT_AGENT_EXECUTION_FAILED"),
            Self::Guardrail { .. } => "TOOLWRIGHT_GUARDRAIL_TRIPPED",
            Self::BudgetExceeded { .. } => "TOOLWRIGHT_BUDGET_EXCEEDED",
            Self::Store(error) => error.code(),
            Self::RuntimeStopped => "TOOLWRIGHT_AGENT_EXECUTION_FAILED",
        }
    }

    /// What to do, in general for the code; the message says it for the case.
    pub fn hint(&self) -> Option<&'static str> {
        toolwright_core::codes::hint(self.code())
    }

    /// Message, code and hint in one line, for people who develop with the library (sdk-tools 33.1/2).
    pub fn help_line(&self) -> String {
        match self.hint() {
            Some(hint) => format!("{self} [{}] {hint}", self.code()),
            None => format!("{self} [{}]", self.code()),
        }
    }

    /// Whether the caller's configuration or usage is at fault, rather than a run.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Store(error) => matches!(error, StoreError::Cursor { .. } | StoreError::Invalid { .. }),
            Self::Run { .. } | Self::Guardrail { .. } | Self::BudgetExceeded { .. } | Self::Journal(_) | Self::RuntimeStopped => false,
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // rule: sdk-tools 33.1/1
    // rule: sdk-tools 33.1/2
    #[test]
    fn an_error_has_a_sentence_a_code_and_a_hint() {
        let error = AgentError::NoModel;
        assert_eq!(error.code(), "TOOLWRIGHT_CONFIG_MISSING_PROVIDER");
        assert_eq!(error.hint(), Some("name a model, or set `TOOLWRIGHT_MODEL` or a provider's key"));
        let line = error.help_line();
        assert!(line.starts_with("no model is set; use ") && line.contains(" [TOOLWRIGHT_CONFIG_MISSING_PROVIDER] name a model"), "{line}");
        // The sentence itself carries neither: a model may see it.
        assert!(!error.to_string().contains("TOOLWRIGHT_"), "{error}");
    }
}
