//! Which commands may run, and which never.

use regex::Regex;
use toolwright_tool::core::policy::command::{CommandPattern, Fit, SimpleCommand, read};

use super::ShellError;

/// What a command is compared with: the words of one command, or a regular expression over the whole line.
///
/// A text is a command's first words: `git log` is `git log` with any arguments. It is compared with each command in the line, as a shell
/// would read it, and never with the line's characters. `*` and `?` in a word stand for any characters and for one.
#[derive(Clone, Debug)]
pub enum ShellPattern {
    /// The first words of a command.
    Words(String),
    /// A regular expression, searched for in the whole line; anchor it.
    Line(Regex),
}

impl From<&str> for ShellPattern {
    fn from(words: &str) -> Self {
        Self::Words(words.to_owned())
    }
}

impl From<String> for ShellPattern {
    fn from(words: String) -> Self {
        Self::Words(words)
    }
}

impl From<Regex> for ShellPattern {
    fn from(line: Regex) -> Self {
        Self::Line(line)
    }
}

/// Compiled patterns.
#[derive(Clone, Debug, Default)]
struct Patterns {
    words: Vec<CommandPattern>,
    lines: Vec<Regex>,
}

impl Patterns {
    fn compile(patterns: &[ShellPattern]) -> Result<Self, ShellError> {
        let mut made = Self::default();
        for pattern in patterns {
            match pattern {
                ShellPattern::Words(words) => {
                    let whole = if words.split_whitespace().next_back() == Some("*") { words.clone() } else { format!("{words} *") };
                    if words.trim().is_empty() {
                        return Err(ShellError::Pattern { problem: "a pattern of a command is empty; name the command".to_owned() });
                    }
                    let parsed = CommandPattern::parse(&whole).map_err(|error| ShellError::Pattern { problem: error.to_string() })?;
                    made.words.push(parsed);
                }
                ShellPattern::Line(line) => made.lines.push(line.clone()),
            }
        }
        Ok(made)
    }

    fn is_line(&self, line: &str) -> bool {
        self.lines.iter().any(|pattern| pattern.is_match(line))
    }

    fn best(&self, fit: impl Fn(&CommandPattern) -> Fit) -> Fit {
        self.words.iter().map(fit).fold(Fit::No, |best, fit| match (best, fit) {
            (Fit::Yes, _) | (_, Fit::Yes) => Fit::Yes,
            (Fit::Maybe, _) | (_, Fit::Maybe) => Fit::Maybe,
            _ => Fit::No,
        })
    }
}

/// The two lists of a shell tool.
#[derive(Clone, Debug, Default)]
pub(super) struct Lists {
    allow: Option<Patterns>,
    deny: Patterns,
}

impl Lists {
    pub(super) fn compile(allow: Option<&[ShellPattern]>, deny: &[ShellPattern]) -> Result<Self, ShellError> {
        Ok(Self { allow: allow.map(Patterns::compile).transpose()?, deny: Patterns::compile(deny)? })
    }

    /// Why a line may not run, in a sentence.
    pub(super) fn refusal(&self, line: &str) -> Option<String> {
        if self.deny.is_line(line) {
            return Some("commands like this one are refused here".to_owned());
        }
        let whole = self.allow.as_ref().is_some_and(|allow| allow.is_line(line));
        if self.deny.words.is_empty() && (whole || self.allow.is_none()) {
            return None;
        }
        let script = read(line);
        for command in &script.commands {
            match self.deny.best(|pattern| pattern.catches(command)) {
                Fit::Yes => return Some(format!("`{}` is refused here", shown(command))),
                Fit::Maybe => return Some(format!("it can't be told whether `{}` is refused here; write it plainly", shown(command))),
                Fit::No => {}
            }
        }
        if let Some(why) = script.unclear.first().filter(|_| !whole) {
            return Some(format!("it can't be told what it would run: {why}; write it plainly"));
        }
        let allow = self.allow.as_ref().filter(|_| !whole)?;
        if script.commands.is_empty() {
            return Some("there is no command in it".to_owned());
        }
        script.commands.iter().find_map(|command| {
            let fit = allow.best(|pattern| pattern.allows(command, false));
            let covered = fit == Fit::Yes || (fit == Fit::No && command.only_wraps);
            (!covered).then(|| format!("`{}` is not among the commands that are allowed here{}", shown(command), more(command)))
        })
    }
}

/// What of a command is often overlooked.
fn more(command: &SimpleCommand) -> &'static str {
    let files = command.redirects.iter().any(toolwright_tool::core::policy::command::Redirect::touches_a_file);
    match (files, command.assignments.is_empty()) {
        (true, _) => ", or not with a redirection to a file",
        (false, false) => ", or not with variables set before it",
        _ => "",
    }
}

fn shown(command: &SimpleCommand) -> String {
    toolwright_tool::core::bounded(&command.shown(), 200)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(allow: Option<&[&str]>, deny: &[&str], line: &str) -> bool {
        let patterns = |texts: &[&str]| texts.iter().map(|text| ShellPattern::from(*text)).collect::<Vec<_>>();
        let allow = allow.map(patterns);
        Lists::compile(allow.as_deref(), &patterns(deny)).unwrap().refusal(line).is_some()
    }

    // rule: sdk-tools 25.2/2
    #[test]
    fn a_text_is_a_command_alone_or_with_arguments() {
        let allow: Option<&[&str]> = Some(&["git log", "ls"]);
        for line in ["git log", "git log -3", "ls", "ls -la src", "git log | ls", "git log && ls"] {
            assert!(!refused(allow, &[], line), "{line}");
        }
        for line in ["git", "git logx", "git push", "lsof", "", "./ls"] {
            assert!(refused(allow, &[], line), "{line}");
        }
    }

    #[test]
    fn nothing_rides_along_with_an_allowed_command() {
        let allow: Option<&[&str]> = Some(&["git log"]);
        for line in [
            "git log; rm -rf x",
            "git log & rm x",
            "git log && rm x",
            "git log | sh",
            "git log `rm x`",
            "git log $(rm x)",
            "git log < x",
            "git log > x",
            "git log\nrm x",
            "PAGER=x git log",
            "git log 'x",
            "$X log",
        ] {
            assert!(refused(allow, &[], line), "{line}");
        }
    }

    // rule: sdk-tools 25.2/4
    #[test]
    fn an_expression_is_about_the_whole_line() {
        let lists = Lists::compile(Some(&[Regex::new("^make [a-z]+$").unwrap().into()]), &[]).unwrap();
        assert_eq!(lists.refusal("make all"), None);
        assert!(lists.refusal("make all; rm x").is_some());
        let denied = Lists::compile(None, &[Regex::new("secret").unwrap().into()]).unwrap();
        assert!(denied.refusal("cat a/secret/b").is_some() && denied.refusal("cat a").is_none());
        let both = Lists::compile(Some(&[Regex::new("^rm").unwrap().into()]), &["rm".into()]).unwrap();
        assert!(both.refusal("rm x").is_some(), "a refusal is not undone");
    }

    // rule: sdk-tools 25.2/5
    #[test]
    fn a_denied_command_is_found_in_every_part() {
        for line in
            ["rm x", "ls; rm x", "ls && rm x", "ls | rm", "ls & rm x", "/bin/rm x", "sudo rm x", "echo $(rm x)", "sh -c 'rm x'", "$X y"]
        {
            assert!(refused(None, &["rm"], line), "{line}");
        }
        for line in ["ls", "rmdir x", "echo rm"] {
            assert!(!refused(None, &["rm"], line), "{line}");
        }
    }

    #[test]
    fn a_pattern_that_says_nothing_is_refused() {
        for pattern in ["", "  ", "a; b", "$x"] {
            assert!(Lists::compile(None, &[pattern.into()]).is_err(), "{pattern:?}");
        }
    }
}
