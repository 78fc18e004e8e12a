//! A permission rule.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::args::ArgMatch;
use super::names::Matcher;
use crate::notes::PermissionWord;

/// What becomes of a call that a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleAction {
    /// It runs without asking. A refusal of the tool's own still counts.
    Allow,
    /// It does not run.
    Deny,
    /// Somebody decides.
    Ask,
}

impl RuleAction {
    /// The word for it: `allow`, `deny` or `ask`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Ask => "ask",
        }
    }

    /// The word for it in an audit entry.
    pub fn word(self) -> PermissionWord {
        match self {
            Self::Allow => PermissionWord::Allow,
            Self::Deny => PermissionWord::Deny,
            Self::Ask => PermissionWord::Ask,
        }
    }
}

/// Of which commands a rule speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandMatch {
    /// The argument that is a command: shell text, or a list of words.
    pub argument: String,
    /// Patterns; any of them.
    pub patterns: Vec<String>,
    /// An `allow` rule also lets them read and write files by redirection.
    pub redirects: bool,
}

impl CommandMatch {
    /// The argument that holds a command where a rule does not say.
    pub const ARGUMENT: &'static str = "command";
}

/// Code of the application's that has to say yes too. What it is, the runtime knows; here it is only known to be there.
#[derive(Clone)]
pub struct Predicate(pub Arc<dyn Any + Send + Sync>);

impl fmt::Debug for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Predicate")
    }
}

/// A permission rule: of which calls it speaks, and what becomes of them. All conditions have to hold.
///
/// ```
/// use toolwright_core::policy::{ArgMatch, RuleSet, allow, ask, deny, glob, read_only};
///
/// let rules = RuleSet::compile(vec![
///     deny(glob("delete_*")).reason("nothing is deleted here"),
///     allow("shell").command(["git log *", "git status"]),
///     ask("pay").argument("amount", ArgMatch::at_least(100)),
///     allow(read_only()),
/// ])?;
/// assert_eq!(rules.len(), 4);
/// # Ok::<(), toolwright_core::policy::InvalidRules>(())
/// ```
#[derive(Clone, Debug)]
pub struct Rule {
    pub(crate) matcher: Matcher,
    pub(crate) action: RuleAction,
    pub(crate) arguments: Vec<(String, ArgMatch)>,
    pub(crate) command: Option<CommandMatch>,
    pub(crate) untrusted: Option<bool>,
    pub(crate) private: Option<bool>,
    pub(crate) reason: Option<String>,
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) shadow: bool,
    pub(crate) trusted: bool,
    pub(crate) predicate: Option<Predicate>,
}

/// Calls of these tools run without asking.
pub fn allow(tools: impl Into<Matcher>) -> Rule {
    Rule::new(RuleAction::Allow, tools.into())
}

/// Calls of these tools do not run.
pub fn deny(tools: impl Into<Matcher>) -> Rule {
    Rule::new(RuleAction::Deny, tools.into())
}

/// Somebody decides about calls of these tools.
pub fn ask(tools: impl Into<Matcher>) -> Rule {
    Rule::new(RuleAction::Ask, tools.into())
}

impl Rule {
    /// A rule about every call of these tools.
    pub fn new(action: RuleAction, matcher: Matcher) -> Self {
        Self {
            matcher,
            action,
            arguments: Vec::new(),
            command: None,
            untrusted: None,
            private: None,
            reason: None,
            ttl_ms: None,
            shadow: false,
            trusted: false,
            predicate: None,
        }
    }

    /// What becomes of the calls.
    pub fn action(&self) -> RuleAction {
        self.action
    }

    /// Why; a model reads it when it is refused, a person when one is asked.
    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// An argument has to fit. `path` is an argument's name, or a JSON Pointer into one: `/filter/user`.
    ///
    /// An argument that is a list or an object is looked into: for `deny` and `ask` one value in it is enough, for `allow` all have to fit.
    /// One that is missing or null fits nothing but [`ArgMatch::exists`]`(false)`.
    #[must_use]
    pub fn argument(mut self, path: impl Into<String>, matches: impl Into<ArgMatch>) -> Self {
        self.arguments.push((path.into(), matches.into()));
        self
    }

    /// The argument `command` has to be a command that fits one of these patterns, see
    /// [`CommandPattern`](super::command::CommandPattern).
    #[must_use]
    pub fn command<S: Into<String>>(self, patterns: impl IntoIterator<Item = S>) -> Self {
        self.command_in(CommandMatch::ARGUMENT, patterns)
    }

    /// As [`command`](Self::command), for a tool that calls the argument otherwise.
    #[must_use]
    pub fn command_in<S: Into<String>>(mut self, argument: impl Into<String>, patterns: impl IntoIterator<Item = S>) -> Self {
        let patterns = patterns.into_iter().map(Into::into).collect();
        let redirects = self.command.as_ref().is_some_and(|command| command.redirects);
        self.command = Some(CommandMatch { argument: argument.into(), patterns, redirects });
        self
    }

    /// An `allow` rule about commands also lets them read and write files by redirection, which it does not otherwise.
    #[must_use]
    pub fn with_redirects(mut self) -> Self {
        if let Some(command) = &mut self.command {
            command.redirects = true;
        }
        self
    }

    /// The arguments have to repeat text of a result that came from the outside world.
    #[must_use]
    pub fn untrusted_data(mut self) -> Self {
        self.untrusted = Some(true);
        self
    }

    /// The arguments have to repeat text that was read from files, values or the environment.
    #[must_use]
    pub fn private_data(mut self) -> Self {
        self.private = Some(true);
        self
    }

    /// How long a question of this rule waits for its answer, in milliseconds; for `ask` alone.
    #[must_use]
    pub fn ttl_ms(mut self, ttl_ms: u64) -> Self {
        self.ttl_ms = Some(ttl_ms);
        self
    }

    /// The rule decides nothing; what it would have decided is noted.
    #[must_use]
    pub fn shadow(mut self) -> Self {
        self.shadow = true;
        self
    }

    /// What tools say of themselves counts for this rule, wherever they come from.
    #[must_use]
    pub fn trusting_hints(mut self) -> Self {
        self.trusted = true;
        self
    }

    /// Code that has to say yes too; the runtime's `when` makes one.
    #[must_use]
    pub fn predicate(mut self, predicate: Predicate) -> Self {
        self.predicate = Some(predicate);
        self
    }

    /// The code that has to say yes too.
    pub fn asks(&self) -> Option<&Predicate> {
        self.predicate.as_ref()
    }

    /// Why.
    pub fn why(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Whether it decides nothing.
    pub fn is_shadow(&self) -> bool {
        self.shadow
    }
}
