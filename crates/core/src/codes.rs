//! The stable codes of every error, with a hint each. Codes are the interface; messages may change (sdk-tools 33.1/3).

use std::fmt::Write as _;

/// One code: what it stands for, and what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// The code, such as `TOOLWRIGHT_CONFIG_INVALID`.
    pub code: &'static str,
    /// When it comes.
    pub when: &'static str,
    /// What to do.
    pub hint: &'static str,
}

const fn code(code: &'static str, when: &'static str, hint: &'static str) -> Code {
    Code { code, when, hint }
}

/// Every code, in alphabetical order.
pub const CODES: &[Code] = &[
    code(
        "TOOLWRIGHT_AGENT_DRIFT",
        "the agent that would go on with a thread differs from the one that began",
        "resume with the agent that began, or allow the difference with `on_drift`",
    ),
    code(
        "TOOLWRIGHT_AGENT_EXECUTION_FAILED",
        "a run failed for a reason of its own code or of a hook's",
        "read the message, and the log at the time of the run",
    ),
    code("TOOLWRIGHT_AGENT_MAX_STEPS", "a run of the command used all its steps", "raise `--max-steps`, or ask for less at once"),
    code(
        "TOOLWRIGHT_AGENT_OUTPUT_CUT",
        "a model's reply ended at its length limit",
        "raise the model's output limit, or ask for less at once",
    ),
    code(
        "TOOLWRIGHT_APPROVAL_CONFLICT",
        "somebody else decided first, or nobody did in time",
        "nothing has to be done: the first decision counts, and what nobody decided in time is refused",
    ),
    code("TOOLWRIGHT_APPROVAL_FORBIDDEN", "who wants to decide may not", "have one of the deciders decide, or hand the decision on"),
    code("TOOLWRIGHT_APPROVAL_INVALID", "a decision does not fit what is asked", "put right what the message names, and decide again"),
    code("TOOLWRIGHT_APPROVAL_NOT_FOUND", "no such decision is pending", "list what is pending; it may have been decided already"),
    code("TOOLWRIGHT_BUDGET_EXCEEDED", "a budget was reached", "raise the budget, or ask for less at once"),
    code("TOOLWRIGHT_CASSETTE_INVALID", "a recorded conversation is missing or does not fit the request", "record it again"),
    code("TOOLWRIGHT_CHECKPOINT_NOT_FOUND", "there is nothing to resume", "send new input instead"),
    code("TOOLWRIGHT_CONFIG_INVALID", "an option, a tool or a set of tools is not valid", "put right what the message names"),
    code("TOOLWRIGHT_CONFIG_MISSING_INPUT", "there is nothing to send", "send a text, parts or messages"),
    code("TOOLWRIGHT_CONFIG_MISSING_PROVIDER", "no model is set", "name a model, or set `TOOLWRIGHT_MODEL` or a provider's key"),
    code("TOOLWRIGHT_GUARDRAIL_TRIPPED", "a guardrail ended the run", "read which one, and why, in the message"),
    code("TOOLWRIGHT_OPERATION_TIMEOUT", "something outside did not answer in time", "try again, or raise the time limit"),
    code("TOOLWRIGHT_PROVIDER_CONTENT_FILTERED", "a provider withheld the reply", "word the request differently"),
    code("TOOLWRIGHT_PROVIDER_MISSING_API_KEY", "a provider's key is not set", "set the variable that the message names"),
    code(
        "TOOLWRIGHT_PROVIDER_RATE_LIMITED",
        "a provider takes no more requests for now",
        "wait as long as the provider says, then try again",
    ),
    code("TOOLWRIGHT_PROVIDER_REQUEST_FAILED", "a provider refused or broke off a request", "read the provider's own words in the message"),
    code("TOOLWRIGHT_PROVIDER_SPEC_INVALID", "a model's name is not of the form `provider/model`", "write it as the message shows"),
    code("TOOLWRIGHT_PROVIDER_UNKNOWN", "no such provider is known", "use one that `toolwright models list` shows"),
    code(
        "TOOLWRIGHT_RESUME_TOOL_MISSING",
        "a call that waits has no tool in the agent that would go on",
        "resume with an agent that has the tool, or cancel the thread",
    ),
    code(
        "TOOLWRIGHT_SANDBOX_EGRESS_UNSUPPORTED",
        "a sandbox has no guarded way out to the hosts that were allowed",
        "do what the message says, or leave the network off",
    ),
    code(
        "TOOLWRIGHT_SANDBOX_UNAVAILABLE",
        "this system can't keep what a sandbox was asked for",
        "run `toolwright doctor` to see what is missing, or say that the sandbox may do without it",
    ),
    code(
        "TOOLWRIGHT_SESSION_AWAITING_APPROVAL",
        "calls of the thread wait for decisions",
        "decide them, or cancel the thread, before sending more",
    ),
    code("TOOLWRIGHT_SESSION_BUSY", "another owner moves the thread", "wait for its run to end, or cancel it"),
    code("TOOLWRIGHT_SESSION_EXISTS", "there is a thread of that id already", "choose another id"),
    code(
        "TOOLWRIGHT_SESSION_FILE_CORRUPT",
        "a journal does not fit together, or is of a newer version",
        "open it with the version that wrote it",
    ),
    code("TOOLWRIGHT_SESSION_ID_INVALID", "a thread id is outside the grammar", "use 1 to 128 letters, digits, `_` and `-`"),
    code("TOOLWRIGHT_SESSION_NOT_FOUND", "there is no such thread", "list the threads that there are; ids are exact"),
    code("TOOLWRIGHT_SESSION_STEP_NOT_FOUND", "a thread has no such step or position", "use one of the range that the message names"),
    code("TOOLWRIGHT_SESSION_TURN_PENDING", "the thread's last run was interrupted", "resume it before sending more"),
    code("TOOLWRIGHT_STORAGE_FAILED", "the store did not do what it was asked", "read the store's own words in the message"),
    code("TOOLWRIGHT_TOOL_ARGS_INVALID", "arguments of a call do not match", "put right the paths that the message lists"),
    code("TOOLWRIGHT_TOOL_EXECUTION_FAILED", "a tool's body failed", "read the tool's own words in the message"),
    code("TOOLWRIGHT_TOOL_NOT_FOUND", "there is no tool of that name", "use one of the names that the message lists"),
];

/// The hint of a code.
pub fn hint(code: &str) -> Option<&'static str> {
    CODES.iter().find(|known| known.code == code).map(|known| known.hint)
}

/// All codes as the Markdown table of `docs/errors.md`.
pub fn table() -> String {
    let mut out = String::from("| code | when | what to do |\n| --- | --- | --- |\n");
    for Code { code, when, hint } in CODES {
        // Writing to a String can't fail.
        let _ = writeln!(out, "| `{code}` | {when} | {hint} |");
    }
    out
}
