//! What the command says when it can't do what was asked: one sentence, a hint, a stable code.

use std::io;

use toolwright::{AgentError, ToolFailure, ToolFailureKind};

use crate::exit::Exit;
use crate::terminal::{Terminal, plain};

/// The code of a command line or an option that is wrong.
pub(crate) const USAGE: &str = "TOOLWRIGHT_CONFIG_INVALID";

/// Why a command ends early.
#[derive(Debug)]
pub(crate) enum Problem {
    /// Something to say.
    Said(Box<Saying>),
    /// Nothing to say: it was said, or nobody reads any more.
    Quiet(Exit),
}

/// One sentence, with what goes with it.
#[derive(Debug)]
pub(crate) struct Saying {
    exit: Exit,
    code: String,
    sentence: String,
    details: Vec<String>,
    hint: Option<String>,
}

impl Problem {
    pub(crate) fn new(exit: Exit, code: impl Into<String>, sentence: impl Into<String>) -> Self {
        Self::Said(Box::new(Saying { exit, code: code.into(), sentence: sentence.into(), details: Vec::new(), hint: None }))
    }

    /// The command line or the configuration is wrong.
    pub(crate) fn usage(sentence: impl Into<String>) -> Self {
        Self::new(Exit::Usage, USAGE, sentence)
    }

    /// The run, or what else was asked for, failed.
    pub(crate) fn failed(code: impl Into<String>, sentence: impl Into<String>) -> Self {
        Self::new(Exit::Failed, code, sentence)
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        if let Self::Said(saying) = &mut self {
            saying.hint = Some(hint.into());
        }
        self
    }

    #[must_use]
    pub(crate) fn details(mut self, details: impl IntoIterator<Item = String>) -> Self {
        if let Self::Said(saying) = &mut self {
            saying.details.extend(details);
        }
        self
    }

    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Said(saying) => saying.exit,
            Self::Quiet(exit) => *exit,
        }
    }

    /// Says it on standard error and gives the exit.
    pub(crate) fn tell(&self, terminal: &mut Terminal) -> Exit {
        if let Self::Said(saying) = self {
            terminal.error(&plain(&saying.sentence), &saying.code);
            for detail in &saying.details {
                terminal.note(format_args!("  {}", plain(detail)));
            }
            if let Some(hint) = &saying.hint {
                terminal.hint(&plain(hint));
            }
        }
        self.exit()
    }

    /// A tool call that failed: its message, and each issue with its place.
    pub(crate) fn of_failure(failure: &ToolFailure) -> Self {
        let code = match failure.kind {
            ToolFailureKind::Validation => "TOOLWRIGHT_TOOL_ARGS_INVALID",
            ToolFailureKind::NotFound => "TOOLWRIGHT_TOOL_NOT_FOUND",
            _ => "TOOLWRIGHT_TOOL_EXECUTION_FAILED",
        };
        if failure.issues.is_empty() {
            return Self::failed(code, format!("`{}` failed ({}): {}", failure.tool_name, failure.kind, failure.message));
        }
        let count = failure.issues.len();
        let noun = if count == 1 { "issue" } else { "issues" };
        let sentence = format!("the arguments of `{}` have {count} {noun}", failure.tool_name);
        Self::failed(code, sentence)
            .details(failure.issues.iter().map(ToString::to_string))
            .hint(format!("see the schema with `toolwright tools show {}`", failure.tool_name))
    }
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        // Whoever read the output has had enough (`| head`).
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::Quiet(Exit::Done);
        }
        Self::failed("TOOLWRIGHT_AGENT_EXECUTION_FAILED", format!("the output can't be written: {error}"))
    }
}

impl From<AgentError> for Problem {
    fn from(error: AgentError) -> Self {
        let code = error.code().to_owned();
        if let AgentError::Run { failure, .. } = &error {
            return Self::failed(code, failure.message.clone());
        }
        let exit = if error.is_usage() { Exit::Usage } else { Exit::Failed };
        // The library's sentences say what is wrong, then what to do.
        let message = error.to_string();
        match message.split_once("; ") {
            Some((sentence, hint)) => Self::new(exit, code, sentence).hint(hint),
            None => Self::new(exit, code, message),
        }
    }
}
