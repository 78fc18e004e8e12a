//! The two outputs, and how they look. The only place that knows a terminal.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, IsTerminal as _, Stderr, Stdout, Write};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Color, Style};

use crate::problem::Problem;

pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const GOOD: Style = color(AnsiColor::Green);
pub(crate) const BAD: Style = color(AnsiColor::Red);
pub(crate) const WARN: Style = color(AnsiColor::Yellow);
pub(crate) const CALL: Style = color(AnsiColor::Cyan);

const fn color(color: AnsiColor) -> Style {
    Style::new().fg_color(Some(Color::Ansi(color)))
}

/// The widest line where there is no terminal to ask.
const WIDTH: usize = 160;

/// Standard output for what was asked for, standard error for everything said about it.
pub(crate) struct Terminal {
    out: AutoStream<Stdout>,
    err: AutoStream<Stderr>,
    is_watched: bool,
    is_typed: bool,
}

impl Terminal {
    pub(crate) fn new(choice: ColorChoice) -> Self {
        Self {
            out: AutoStream::new(io::stdout(), choice),
            err: AutoStream::new(io::stderr(), choice),
            is_watched: io::stderr().is_terminal(),
            is_typed: io::stdin().is_terminal(),
        }
    }

    /// Standard output.
    pub(crate) fn out(&mut self) -> &mut AutoStream<Stdout> {
        &mut self.out
    }

    /// A line on standard error. A reader that went away there is nobody's loss.
    pub(crate) fn note(&mut self, line: impl Display) {
        let _ = writeln!(self.err, "{line}");
    }

    /// A question on standard error; the answer stands on the same line.
    pub(crate) fn prompt(&mut self, question: impl Display) {
        let _ = write!(self.err, "{question}");
        let _ = self.err.flush();
    }

    pub(crate) fn error(&mut self, sentence: &str, code: &str) {
        self.note(format_args!("{BAD}{BOLD}error:{BOLD:#}{BAD:#} {sentence} {DIM}[{code}]{DIM:#}"));
    }

    pub(crate) fn hint(&mut self, hint: &str) {
        self.note(format_args!("{GOOD}hint:{GOOD:#} {hint}"));
    }

    /// Whether there is a person who sees questions and can answer them.
    pub(crate) fn can_ask(&self) -> bool {
        self.is_typed && self.is_watched
    }

    /// Whether standard error is watched by a person.
    pub(crate) fn is_watched(&self) -> bool {
        self.is_watched
    }

    /// How many columns a line may have.
    pub(crate) fn width(&self) -> usize {
        let size = if self.is_watched { console::Term::stderr().size_checked() } else { None };
        size.map_or(WIDTH, |(_, columns)| usize::from(columns))
    }
}

/// `text` without control characters but line breaks and tabs: what a model, a tool or a file says must not move the cursor.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    let hidden = |c: char| c.is_control() && c != '\n' && c != '\t';
    if text.contains(hidden) { text.chars().filter(|c| !hidden(*c)).collect::<String>().into() } else { text.into() }
}

/// `text` on one line of at most `width` columns.
pub(crate) fn one_line(text: &str, width: usize) -> String {
    // No line is longer than this, and most of what is cut need not be looked at.
    let head: String = text.chars().filter(|c| !c.is_control() || c.is_whitespace()).take(width.saturating_add(1) * 2).collect();
    let joined = head.split_whitespace().collect::<Vec<_>>().join(" ");
    console::truncate_str(&joined, width, "…").into_owned()
}

/// Sends the library's log to standard error.
pub(crate) fn log(filter: &str) -> Result<(), Problem> {
    use tracing_subscriber::filter::Targets;
    use tracing_subscriber::layer::SubscriberExt as _;
    use tracing_subscriber::util::SubscriberInitExt as _;

    let targets: Targets = filter.parse().map_err(|error: tracing_subscriber::filter::ParseError| {
        // Some builds of the filter's parser put a preface before what is wrong.
        let said = error.to_string();
        let wrong = said.strip_prefix("invalid filter directive: ").unwrap_or(&said);
        Problem::usage(format!("`{filter}` is not a log filter: {wrong}"))
            .hint("write a level (`debug`), or targets and levels (`toolwright_models=trace,info`)")
    })?;
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_ansi(false);
    // A second subscriber can't be set; the first one serves as well.
    let _ = tracing_subscriber::registry().with(lines).with(targets).try_init();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_model_says_moves_no_cursor() {
        assert_eq!(plain("a\u{1b}[2Jb\u{9b}1m\u{7}c\n\td"), "a[2Jb1mc\n\td");
        assert_eq!(one_line("a\n  b\t\u{1b}[0m c", 80), "a b [0m c");
    }

    #[test]
    fn a_line_is_cut_at_its_width() {
        assert_eq!(one_line(&"x".repeat(1_000_000), 5), "xxxx…");
        assert_eq!(one_line("漢字漢字", 5), "漢字…");
        assert_eq!(one_line("short", 5), "short");
    }
}
