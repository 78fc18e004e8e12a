//! A list of rules, checked whole and made ready.

use std::fmt;
use std::sync::Arc;

use regex::Regex;

use super::args::{ArgPath, ArgTests, Collecting, Is, Test, compile_regex};
use super::command::CommandPattern;
use super::glob::Glob;
use super::names::Names;
use super::rule::{Rule, RuleAction};
use crate::spec::ToolSpec;

/// What is wrong with one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidRule {
    /// Where the rules come from: a file, or nothing for rules in code.
    pub source: Option<String>,
    /// The rule's index, from 0; `None` for what stands around the rules.
    pub index: Option<usize>,
    /// The field, dotted; empty for the rule as a whole.
    pub field: String,
    /// What is wrong, and what to do.
    pub problem: String,
}

impl fmt::Display for InvalidRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(source) = &self.source {
            write!(f, "{source}: ")?;
        }
        match (self.index, self.field.is_empty()) {
            (Some(index), true) => write!(f, "rule {index}: ")?,
            (Some(index), false) => write!(f, "rule {index}, `{}`: ", self.field)?,
            (None, false) => write!(f, "`{}`: ", self.field)?,
            (None, true) => {}
        }
        f.write_str(&self.problem)
    }
}

/// Everything that is wrong with a list of rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidRules(pub Vec<InvalidRule>);

impl fmt::Display for InvalidRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, rule) in self.0.iter().enumerate() {
            if n > 0 {
                f.write_str("; ")?;
            }
            rule.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for InvalidRules {}

/// Rules that were checked. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RuleSet {
    pub(crate) inner: Arc<Compiled>,
}

#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) rules: Vec<Rule>,
    names: Vec<NameTest>,
    pub(crate) conditions: Vec<Vec<Condition>>,
    pub(crate) commands: Vec<Option<Commands>>,
    pub(crate) arguments: Vec<ArgTests>,
}

#[derive(Debug)]
enum NameTest {
    Any,
    Exact(String),
    Glob(Glob),
    Regex(Regex),
    AnyOf(Vec<NameTest>),
}

impl NameTest {
    fn is_match(&self, name: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(exact) => exact == name,
            Self::Glob(glob) => glob.is_match(name),
            Self::Regex(regex) => regex.is_match(name),
            Self::AnyOf(tests) => tests.iter().any(|test| test.is_match(name)),
        }
    }
}

/// A condition on arguments: the number of the argument, and of the test there.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Condition {
    Exists { argument: usize, exists: bool },
    Holds { argument: usize, test: usize, negated: bool },
}

/// The patterns of a rule about commands.
#[derive(Debug)]
pub(crate) struct Commands {
    pub(crate) argument: String,
    /// The number of that argument, among all that rules take for commands.
    pub(crate) number: usize,
    pub(crate) patterns: Vec<CommandPattern>,
    pub(crate) redirects: bool,
}

impl RuleSet {
    /// Checks rules; all problems at once.
    pub fn compile(rules: Vec<Rule>) -> Result<Self, InvalidRules> {
        let mut problems: Vec<InvalidRule> = Vec::new();
        let mut collected: Vec<Collecting> = Vec::new();
        let (mut names, mut conditions, mut commands) = (Vec::new(), Vec::new(), Vec::new());
        let mut command_arguments: Vec<String> = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            let mut problem = |field: &str, problem: String| {
                problems.push(InvalidRule { source: None, index: Some(index), field: field.to_owned(), problem });
            };
            names.push(name_test(&rule.matcher.names).unwrap_or_else(|wrong| {
                problem("tools", wrong);
                NameTest::Any
            }));
            if rule.matcher.origin.as_deref() == Some("") {
                problem("origin", "is empty; name a kind such as `mcp`, or a kind and a name such as `mcp:docs`".to_owned());
            }
            if rule.ttl_ms.is_some() && rule.action != RuleAction::Ask {
                problem("ttlMs", format!("only a question waits; `{}` has no time to live", rule.action.as_str()));
            }
            if rule.ttl_ms == Some(0) {
                problem("ttlMs", "a question that waits 0 ms is never answered; give a longer time, or deny".to_owned());
            }
            let mut here = Vec::new();
            for (name, matches) in &rule.arguments {
                let field = format!("when.{name}");
                let path = match ArgPath::parse(name) {
                    Ok(path) => path,
                    Err(wrong) => {
                        problem(&field, wrong);
                        continue;
                    }
                };
                let argument = collected.iter().position(|there| *there.path() == path).unwrap_or_else(|| {
                    collected.push(Collecting::new(path));
                    collected.len() - 1
                });
                if matches.tests.is_empty() {
                    problem(&field, "says nothing; give an expression, or take it out".to_owned());
                }
                for test in &matches.tests {
                    match test {
                        Test::Exists(exists) => here.push(Condition::Exists { argument, exists: *exists }),
                        Test::Value { is, negated } => {
                            let wrong = match is {
                                Is::Regex(pattern) => compile_regex(pattern).err(),
                                Is::OneOf(values) if values.is_empty() => Some("is one of no values, so it never holds".to_owned()),
                                _ => None,
                            };
                            if let Some(wrong) = wrong {
                                problem(&field, wrong);
                            }
                            let test = collected.get_mut(argument).map_or(0, |there| there.number(is));
                            here.push(Condition::Holds { argument, test, negated: *negated });
                        }
                    }
                }
            }
            conditions.push(here);
            commands.push(rule.command.as_ref().map(|command| {
                if command.argument.is_empty() {
                    problem("command.argument", "is empty; name the argument that holds the command".to_owned());
                }
                if command.patterns.is_empty() {
                    problem("command", "has no patterns; give at least one, such as `git log *`".to_owned());
                }
                let mut patterns = Vec::new();
                for pattern in &command.patterns {
                    match CommandPattern::parse(pattern) {
                        Ok(pattern) => patterns.push(pattern),
                        Err(wrong) => problem("command", wrong.to_string()),
                    }
                }
                let number = command_arguments.iter().position(|there| *there == command.argument).unwrap_or_else(|| {
                    command_arguments.push(command.argument.clone());
                    command_arguments.len() - 1
                });
                Commands { argument: command.argument.clone(), number, patterns, redirects: command.redirects }
            }));
        }
        if !problems.is_empty() {
            return Err(InvalidRules(problems));
        }
        let arguments = collected.into_iter().map(Collecting::finish).collect();
        Ok(Self { inner: Arc::new(Compiled { rules, names, conditions, commands, arguments }) })
    }

    /// How many rules there are.
    pub fn len(&self) -> usize {
        self.inner.rules.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.inner.rules.is_empty()
    }

    /// The rules, in their order.
    pub fn rules(&self) -> &[Rule] {
        &self.inner.rules
    }

    /// The rules that can concern a tool, in their order. `trusted` says whether what the tool says of itself counts for a yes; see
    /// [`ToolOrigin::is_trusted`](crate::ToolOrigin::is_trusted).
    pub fn for_tool(&self, spec: &ToolSpec, trusted: bool) -> ToolRules {
        let name = spec.name.as_str();
        let concerns = |(index, rule): (usize, &Rule)| {
            let named = self.inner.names.get(index).is_some_and(|names| names.is_match(name));
            let comes_from = || rule.matcher.origin.as_deref().is_none_or(|pattern| spec.origin.fits(pattern));
            let says = || rule.matcher.hints.hold(spec, trusted || rule.trusted, rule.action == RuleAction::Allow);
            (named && comes_from() && says()).then_some(index)
        };
        let rules: Vec<usize> = self.inner.rules.iter().enumerate().filter_map(concerns).collect();
        let mut commands: Vec<(usize, String)> = Vec::new();
        for command in rules.iter().filter_map(|index| self.inner.commands.get(*index).and_then(Option::as_ref)) {
            if !commands.iter().any(|(number, _)| *number == command.number) {
                commands.push((command.number, command.argument.clone()));
            }
        }
        let shadows = rules.iter().any(|index| self.inner.rules.get(*index).is_some_and(Rule::is_shadow));
        ToolRules { set: self.clone(), rules, commands, shadows }
    }
}

/// The rules that can concern one tool.
#[derive(Clone, Debug)]
pub struct ToolRules {
    pub(crate) set: RuleSet,
    /// Their indices.
    pub(crate) rules: Vec<usize>,
    /// The arguments that rules take for commands.
    pub(crate) commands: Vec<(usize, String)>,
    pub(crate) shadows: bool,
}

impl ToolRules {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether any of them is in shadow.
    pub fn has_shadows(&self) -> bool {
        self.shadows
    }

    /// A rule by its index in the whole list.
    pub fn rule(&self, index: usize) -> Option<&Rule> {
        self.set.inner.rules.get(index)
    }
}

fn name_test(names: &Names) -> Result<NameTest, String> {
    Ok(match names {
        Names::Any => NameTest::Any,
        Names::Exact(name) if name.is_empty() => return Err("names a tool with an empty name".to_owned()),
        Names::Exact(name) => {
            if let Err(wrong) = crate::name::ToolName::new(name.as_str()) {
                return Err(format!("`{name}` is the name of no tool: {wrong}; for a pattern use a glob or a regular expression"));
            }
            NameTest::Exact(name.clone())
        }
        Names::Glob(glob) if glob.is_empty() => return Err("has an empty glob; use `*` for every tool".to_owned()),
        Names::Glob(glob) => NameTest::Glob(Glob::parse(glob)),
        Names::Regex(pattern) if pattern.is_empty() => return Err("has an empty expression; use `*` for every tool".to_owned()),
        Names::Regex(pattern) => NameTest::Regex(compile_regex(pattern)?),
        Names::AnyOf(names) if names.is_empty() => return Err("names no tools; use `*` for every tool".to_owned()),
        Names::AnyOf(names) => NameTest::AnyOf(names.iter().map(name_test).collect::<Result<_, _>>()?),
    })
}
