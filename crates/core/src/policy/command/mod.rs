//! Shell text as the list of commands it would run.
//!
//! [`read`] parses the text as a POSIX shell or bash would and lists every simple command in it: through chains and pipelines, subshells,
//! substitutions, loops, here-documents, and the commands that other commands run (`sudo`, `xargs`, `sh -c`, `find -exec`). Nothing is
//! expanded or run. Where the text is not clear, because it does not parse, because a name is computed, or because shells disagree about
//! it, the script says so, and whoever judges it has to ask a person.
//!
//! The rule behind every choice here: a text that some shell would run as two commands is never listed as one without being unclear.

mod parse;
mod pattern;
mod word;
mod wrappers;

pub use pattern::{CommandPattern, Fit, InvalidCommandPattern};

/// The longest text that is read, in bytes; a longer one is unclear.
pub const MAX_TEXT: usize = 64 * 1024;
/// How deep substitutions, groups and wrappers may stand in each other.
pub(crate) const MAX_DEPTH: usize = 24;
/// The most commands that are listed; more make the text unclear.
pub(crate) const MAX_COMMANDS: usize = 2_000;

/// What a word may become when a shell expands it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expands {
    /// It is what it says.
    No,
    /// One word, whose text is not known.
    One,
    /// Any number of words.
    Many,
}

/// A word of a command, quotes resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// Its text, as far as it is known.
    pub text: String,
    /// Whether a shell would make something else of it.
    pub expands: Expands,
}

impl Word {
    /// A word that is what it says.
    pub fn fixed(text: impl Into<String>) -> Self {
        Self { text: text.into(), expands: Expands::No }
    }

    /// Words that are not known.
    pub fn unknown() -> Self {
        Self { text: String::new(), expands: Expands::Many }
    }

    /// The text, if a shell leaves it as it is.
    pub fn known(&self) -> Option<&str> {
        (self.expands == Expands::No).then_some(self.text.as_str())
    }
}

/// What a redirection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedirectKind {
    /// Reads a file.
    Read,
    /// Writes, or may write, a file.
    Write,
    /// Makes one descriptor another, or closes one.
    Duplicate,
    /// Gives the command a text: a here-document or here-string.
    Text,
}

/// A redirection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// What it does.
    pub kind: RedirectKind,
    /// The file, descriptor or text.
    pub target: Word,
}

impl Redirect {
    /// Whether a file other than the null device is read or written.
    pub fn touches_a_file(&self) -> bool {
        matches!(self.kind, RedirectKind::Read | RedirectKind::Write) && self.target.known() != Some("/dev/null")
    }
}

/// One simple command: what a shell would run as one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SimpleCommand {
    /// Assignments before it, each `NAME=value`. Without words they change the shell itself.
    pub assignments: Vec<Word>,
    /// Its name and arguments.
    pub words: Vec<Word>,
    /// Its redirections.
    pub redirects: Vec<Redirect>,
    /// All it does is run another command, which is in the list too: `timeout 5 ...`, `sh -c '...'`.
    pub only_wraps: bool,
}

impl SimpleCommand {
    /// A command of words that stand as they are.
    pub fn of_words<S: Into<String>>(words: impl IntoIterator<Item = S>) -> Self {
        Self { words: words.into_iter().map(Word::fixed).collect(), ..Self::default() }
    }

    /// Its words with spaces between, for people: words that are not known stand as `...`.
    pub fn shown(&self) -> String {
        let word = |word: &Word| match word.expands {
            Expands::No => word.text.clone(),
            _ => "...".to_owned(),
        };
        self.assignments.iter().chain(&self.words).map(word).collect::<Vec<_>>().join(" ")
    }
}

/// What a text would run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// Every command in it, outer ones before the ones they run.
    pub commands: Vec<SimpleCommand>,
    /// Why there may be more than is listed; empty where the list is whole. Each is one sentence without a full stop.
    pub unclear: Vec<String>,
}

impl Script {
    pub(crate) fn doubt(&mut self, why: impl Into<String>) {
        let why = why.into();
        if !self.unclear.contains(&why) && self.unclear.len() < 16 {
            self.unclear.push(why);
        }
    }

    /// Adds a command and what it runs.
    pub(crate) fn add(&mut self, command: SimpleCommand, depth: usize) {
        if self.commands.len() >= MAX_COMMANDS {
            self.doubt("it has too many commands");
            return;
        }
        let at = self.commands.len();
        self.commands.push(SimpleCommand::default());
        let only_wraps = wrappers::unwrap(&command, self, depth);
        if let Some(there) = self.commands.get_mut(at) {
            *there = SimpleCommand { only_wraps, ..command };
        }
    }
}

/// Reads shell text.
///
/// ```
/// let script = toolwright_core::policy::command::read("git log | tee \"$(date).txt\" && rm -rf build");
/// let names: Vec<&str> = script.commands.iter().map(|command| command.words[0].text.as_str()).collect();
/// assert_eq!(names, ["git", "date", "tee", "rm"]);
/// assert!(script.unclear.is_empty());
/// ```
pub fn read(text: &str) -> Script {
    let mut script = Script::default();
    read_into(text, &mut script, 0);
    script
}

/// Reads a command that is given as a list of words, without a shell.
pub fn read_words<S: Into<String>>(words: impl IntoIterator<Item = S>) -> Script {
    let mut script = Script::default();
    let command = SimpleCommand::of_words(words);
    if command.words.is_empty() {
        script.doubt("it has no words");
    } else {
        script.add(command, 0);
    }
    script
}

/// Reads text that stands in other text.
pub(crate) fn read_into(text: &str, script: &mut Script, depth: usize) {
    if text.len() > MAX_TEXT {
        script.doubt(format!("it is longer than {MAX_TEXT} bytes"));
    } else if depth > MAX_DEPTH {
        script.doubt("its commands stand too deep in each other");
    } else if let Err(why) = parse::parse(text, script, depth) {
        script.doubt(why);
    }
}
