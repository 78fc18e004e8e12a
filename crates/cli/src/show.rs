//! A run as people, or programs, see it.

use std::io::{self, Write as _};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;
use toolwright::core::TodoStatus;
use toolwright::{Event, EventKind, FinishReason};

use crate::terminal::{BAD, CALL, DIM, GOOD, Terminal, WARN, one_line, plain};

/// What becomes of events.
pub(crate) enum Show {
    /// For programs: one JSON object a line on standard output.
    Events,
    /// For no one: only the outcome counts.
    Nothing,
    /// For people: the text on standard output, everything around it on standard error.
    People(People),
}

impl Show {
    /// The form that was asked for. With `raw`, results of tools belong to the reply.
    pub(crate) fn new(json: bool, raw: Raw) -> Self {
        if json { Self::Events } else { Self::People(People { raw, role: Role::Runs, line_is_open: false, waiting: None }) }
    }

    /// The form of what somebody else runs, or ran: what would be asked or told at the end is shown as well.
    pub(crate) fn replayed(json: bool) -> Self {
        if json { Self::Events } else { Self::People(People { raw: Raw::Text, role: Role::Watches, line_is_open: false, waiting: None }) }
    }

    pub(crate) fn event(&mut self, event: &Event, terminal: &mut Terminal) -> io::Result<()> {
        match self {
            Self::Events => {
                let line = serde_json::to_string(event).map_err(io::Error::other)?;
                writeln!(terminal.out(), "{line}")?;
                terminal.out().flush()
            }
            Self::Nothing => Ok(()),
            Self::People(people) => people.event(&event.kind, terminal),
        }
    }

    /// Between runs, and before anything else is written.
    pub(crate) fn rest(&mut self, terminal: &mut Terminal) -> io::Result<()> {
        match self {
            Self::Events | Self::Nothing => Ok(()),
            Self::People(people) => people.begin_line(terminal),
        }
    }
}

/// Whether results of tools belong to the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Raw {
    /// The model's text is the reply.
    Text,
    /// The model is small and its sentence may be wrong, so the results it speaks of stand beside it.
    Results,
}

/// What the command has to do with the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// The run is its own: it asks for decisions, and tells how the run ended.
    Runs,
    /// The run is somebody else's, or over.
    Watches,
}

/// The readable form.
pub(crate) struct People {
    raw: Raw,
    role: Role,
    line_is_open: bool,
    waiting: Option<ProgressBar>,
}

impl People {
    fn event(&mut self, kind: &EventKind, terminal: &mut Terminal) -> io::Result<()> {
        match kind {
            EventKind::StepStart { .. } => {
                self.begin_line(terminal)?;
                self.wait(terminal, "asking the model");
            }
            EventKind::TextDelta { text } => {
                self.stop_waiting();
                let text = plain(text);
                terminal.out().write_all(text.as_bytes())?;
                terminal.out().flush()?;
                if let Some(last) = text.chars().next_back() {
                    self.line_is_open = last != '\n';
                }
            }
            EventKind::ToolStart { tool_name, args, .. } | EventKind::ToolResume { tool_name, args, .. } => {
                self.begin_line(terminal)?;
                let room = terminal.width().saturating_sub(tool_name.chars().count() + 3);
                let shown = one_line(&args.to_string(), room);
                terminal.note(format_args!("{CALL}→ {}{CALL:#} {DIM}{shown}{DIM:#}", plain(tool_name)));
                self.wait(terminal, "running");
            }
            EventKind::ToolPartial { output, .. } => {
                if let Some(bar) = &self.waiting {
                    bar.set_message(one_line(&text_of(output), terminal.width().saturating_sub(4)));
                }
            }
            EventKind::ToolDone { tool_name, result, duration_ms, .. } => {
                self.begin_line(terminal)?;
                let took = took(*duration_ms);
                let result = text_of(result);
                if self.raw == Raw::Results {
                    terminal.note(format_args!("{GOOD}✓ {}{GOOD:#} {DIM}{took}{DIM:#}", plain(tool_name)));
                    writeln!(terminal.out(), "{}", plain(&result))?;
                } else {
                    let room = terminal.width().saturating_sub(tool_name.chars().count() + took.chars().count() + 4);
                    let shown = one_line(&result, room);
                    terminal.note(format_args!("{GOOD}✓ {}{GOOD:#} {shown} {DIM}{took}{DIM:#}", plain(tool_name)));
                }
            }
            EventKind::ToolError { tool_name, error, duration_ms, .. } => {
                self.begin_line(terminal)?;
                let message = plain(&error.message);
                let (name, took) = (plain(tool_name), took(*duration_ms));
                terminal.note(format_args!("{BAD}✗ {name} {}: {message}{BAD:#} {DIM}{took}{DIM:#}", plain(&error.name)));
            }
            EventKind::TodoUpdated { todos, .. } => {
                self.begin_line(terminal)?;
                for todo in todos {
                    let (mark, style) = match todo.status {
                        TodoStatus::Pending => ("[ ]", WARN),
                        TodoStatus::InProgress => ("[>]", CALL),
                        TodoStatus::Completed => ("[x]", GOOD),
                    };
                    terminal.note(format_args!("  {style}{mark}{style:#} {}", plain(&todo.content)));
                }
            }
            EventKind::RunDone { finish_reason, .. } => {
                self.begin_line(terminal)?;
                if self.role == Role::Watches && *finish_reason != FinishReason::Stop {
                    terminal.note(format_args!("{DIM}the run ended: {finish_reason}{DIM:#}"));
                }
            }
            EventKind::ApprovalRequested { tool_name, args, reason, .. } if self.role == Role::Watches => {
                self.begin_line(terminal)?;
                let why = reason.as_ref().map(|reason| format!(" ({})", plain(reason))).unwrap_or_default();
                let shown = args.to_string();
                terminal.note(format_args!("{WARN}? {}{WARN:#} {} waits for a decision{why}", plain(tool_name), plain(&shown)));
            }
            EventKind::Error { error } if self.role == Role::Watches => {
                self.begin_line(terminal)?;
                terminal.note(format_args!("{BAD}✗ {}{BAD:#}", plain(&error.message)));
            }
            EventKind::GuardrailTripped { name, reason, .. } if self.role == Role::Watches => {
                self.begin_line(terminal)?;
                terminal.note(format_args!("{BAD}✗ guardrail {}: {}{BAD:#}", plain(name), plain(reason)));
            }
            EventKind::InputQueued { text, .. } | EventKind::InputSteered { text, .. } => {
                self.begin_line(terminal)?;
                let shown = one_line(text, terminal.width().saturating_sub(2));
                terminal.note(format_args!("{DIM}> {shown}{DIM:#}"));
            }
            other => {
                if let Some(said) = aside(other) {
                    self.begin_line(terminal)?;
                    terminal.note(format_args!("{DIM}{}{DIM:#}", plain(&said)));
                }
            }
        }
        Ok(())
    }

    /// Ends a line of text, so that what follows has one of its own.
    fn begin_line(&mut self, terminal: &mut Terminal) -> io::Result<()> {
        self.stop_waiting();
        if std::mem::take(&mut self.line_is_open) {
            writeln!(terminal.out())?;
        }
        Ok(())
    }

    fn wait(&mut self, terminal: &Terminal, what: &'static str) {
        self.stop_waiting();
        // Whoever only watches does not know that the other one still works.
        if !terminal.is_watched() || self.role == Role::Watches {
            return;
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            bar.set_style(style);
        }
        bar.set_message(what);
        bar.enable_steady_tick(Duration::from_millis(100));
        self.waiting = Some(bar);
    }

    fn stop_waiting(&mut self) {
        if let Some(bar) = self.waiting.take() {
            bar.finish_and_clear();
        }
    }
}

/// What happened to the thread beside the run, in a sentence.
fn aside(kind: &EventKind) -> Option<String> {
    Some(match kind {
        EventKind::InputReturned { reason, .. } => format!("input was not taken: {reason}"),
        EventKind::CompactionDone { tokens_before, tokens_after, .. } if tokens_after < tokens_before => {
            format!("what the model reads was made shorter: about {tokens_after} tokens, from {tokens_before}")
        }
        EventKind::ContextCleared { messages_cleared, .. } => format!("the conversation was emptied of {messages_cleared} messages"),
        EventKind::PermissionMode { from, to, .. } => format!("the permission mode is {to}, it was {from}"),
        EventKind::GuardrailRewrote { name, kind, reason, .. } => {
            let what = match kind.as_str() {
                "input" => "what was sent",
                "output" => "the reply",
                "tool" => "the arguments",
                _ => "the result",
            };
            let why = reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
            format!("the guardrail {name} changed {what}{why}")
        }
        EventKind::BudgetExceeded(budget) => format!("the budget is reached: {budget}"),
        EventKind::ThreadForked { from, at } => format!("up to here this is the past of {from}, up to its position {at}"),
        EventKind::AgentDrift { model, tools_added, tools_removed, tools_changed, instructions } => {
            let mut what: Vec<String> = Vec::new();
            what.extend(model.then(|| "another model".to_owned()));
            what.extend(instructions.then(|| "other instructions".to_owned()));
            for (tools, how) in [(tools_added, "new"), (tools_removed, "gone"), (tools_changed, "changed")] {
                what.extend((!tools.is_empty()).then(|| format!("tools {how}: {}", tools.join(", "))));
            }
            format!("the agent that goes on differs from the one that began: {}", what.join("; "))
        }
        _ => return None,
    })
}

/// A text as it is, anything else as JSON.
fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn took(milliseconds: u64) -> String {
    match milliseconds {
        0..1_000 => format!("{milliseconds} ms"),
        1_000..60_000 => format!("{}.{} s", milliseconds / 1_000, milliseconds % 1_000 / 100),
        _ => format!("{} min {} s", milliseconds / 60_000, milliseconds % 60_000 / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_at_a_glance() {
        assert_eq!([took(0), took(999), took(1_230), took(61_000)], ["0 ms", "999 ms", "1.2 s", "1 min 1 s"]);
    }
}
