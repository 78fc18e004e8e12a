//! Patterns of commands, matched word by word.

use super::{Expands, Redirect, SimpleCommand, Word};
use crate::policy::glob::Glob;

/// A pattern such as `git log *`, matched against the words of a command, never against its text.
///
/// Words are separated by blanks. A `*` within a word stands for any characters of that word, a `?` for one; a `*` alone stands for one word, and
/// at the end for any number of words, none included. Assignments in front, `LANG=* sort *`, match assignments.
#[derive(Clone, Debug)]
pub struct CommandPattern {
    text: String,
    assignments: Vec<Glob>,
    words: Vec<Glob>,
    any_rest: bool,
}

/// How a command fits a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It does.
    Yes,
    /// It does not.
    No,
    /// It may: some of it is not known, or it does more than the pattern says.
    Maybe,
}

/// Why a command pattern can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the command pattern `{pattern}` {problem}")]
pub struct InvalidCommandPattern {
    /// The pattern.
    pub pattern: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl CommandPattern {
    /// Reads a pattern.
    pub fn parse(text: &str) -> Result<Self, InvalidCommandPattern> {
        let invalid = |problem| InvalidCommandPattern { pattern: text.to_owned(), problem };
        if text.len() > 1024 {
            return Err(invalid("is longer than 1024 bytes"));
        }
        // What would separate commands can't be part of one: whoever writes it expects more than it says.
        if text.contains(['|', '&', ';', '<', '>', '`', '\n', '\0', '(', ')', '"', '\'', '\\', '$']) {
            return Err(invalid(
                "has a character that a shell does not take as part of a word; write the words of one command, without quotes",
            ));
        }
        let mut assignments = Vec::new();
        let mut words: Vec<Glob> = Vec::new();
        for word in text.split_whitespace() {
            let assigns = word.split_once('=').is_some_and(|(name, _)| super::parse::is_name(name));
            if words.is_empty() && assigns { assignments.push(Glob::parse(word)) } else { words.push(Glob::parse(word)) }
        }
        let any_rest = words.last().is_some_and(Glob::is_any);
        if any_rest {
            words.pop();
        }
        if words.is_empty() && !any_rest {
            return Err(invalid("names no command"));
        }
        Ok(Self { text: text.to_owned(), assignments, words, any_rest })
    }

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The command's name, if the pattern spells it.
    pub fn name(&self) -> Option<&str> {
        self.words.first().and_then(Glob::literal)
    }

    /// Whether no command of this name can fit: `base` is the name without the folders before it.
    pub(crate) fn is_about_others(&self, name: &str, base: &str) -> bool {
        self.name().is_some_and(|own| own != base && own != name)
    }

    /// Whether a command may run because of this pattern. Its name has to be as written, not a path to it; assignments and
    /// files that are read or written have to be part of what is allowed; a `*` in a word does not reach out of a folder with `..`.
    pub fn allows(&self, command: &SimpleCommand, redirects: bool) -> Fit {
        let fit = self.fits(command, true);
        if fit == Fit::No {
            return Fit::No;
        }
        let assigns = command.assignments.len() == self.assignments.len()
            && command.assignments.iter().zip(&self.assignments).all(|(word, glob)| word.known().is_some_and(|text| glob.is_match(text)));
        let files = redirects || !command.redirects.iter().any(Redirect::touches_a_file);
        if assigns && files { fit } else { Fit::Maybe }
    }

    /// Whether a command is one that this pattern is to catch: by name or by a path to it, whatever is assigned before it.
    pub fn catches(&self, command: &SimpleCommand) -> Fit {
        self.fits(command, false)
    }

    fn fits(&self, command: &SimpleCommand, strictly: bool) -> Fit {
        let mut fit = Fit::Yes;
        let mut words = command.words.iter();
        for (n, glob) in self.words.iter().enumerate() {
            let Some(word) = words.next() else { return Fit::No };
            match word.expands {
                Expands::Many => return Fit::Maybe,
                Expands::One if glob.is_any() => {}
                Expands::One => fit = Fit::Maybe,
                Expands::No if n == 0 && !strictly => {
                    let base = word.text.rsplit_once('/').map_or(word.text.as_str(), |(_, base)| base);
                    if !glob.is_match(&word.text) && !glob.is_match(base) {
                        return Fit::No;
                    }
                }
                Expands::No if !glob.is_match(&word.text) => return Fit::No,
                Expands::No if strictly && glob.literal().is_none() && !glob.is_any() && climbs(&word.text) => fit = Fit::Maybe,
                Expands::No => {}
            }
        }
        if command.words.is_empty() {
            // Assignments alone change what comes after them: only a pattern of everything may speak of them.
            return if self.any_rest && self.words.is_empty() { Fit::Yes } else { Fit::No };
        }
        if self.any_rest || words.as_slice().is_empty() {
            return fit;
        }
        // What is left may turn out to be nothing.
        if words.all(|word: &Word| word.expands == Expands::Many) { Fit::Maybe } else { Fit::No }
    }
}

/// Whether a path goes up.
fn climbs(text: &str) -> bool {
    text.split('/').any(|name| name == "..")
}
