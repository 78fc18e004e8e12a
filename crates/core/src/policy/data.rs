//! Rules as data: what a file of rules says.

use serde_json::{Map, Value};

use super::args::{ArgMatch, Is, Test};
use super::compile::{InvalidRule, InvalidRules, RuleSet};
use super::names::{Matcher, Names};
use super::rule::{CommandMatch, Rule, RuleAction};

/// The fields of a rule, each with its other spelling.
const FIELDS: [(&str, &str); 15] = [
    ("tools", "tool"),
    ("origin", "origin"),
    ("readOnly", "read_only"),
    ("destructive", "destructive"),
    ("idempotent", "idempotent"),
    ("openWorld", "open_world"),
    ("editsFiles", "edits_files"),
    ("when", "when"),
    ("command", "command"),
    ("untrusted", "untrusted"),
    ("private", "private"),
    ("action", "action"),
    ("reason", "reason"),
    ("ttlMs", "ttl_ms"),
    ("shadow", "shadow"),
];
/// What a rule may say of hints besides.
const TRUSTED: (&str, &str) = ("trustHints", "trust_hints");

impl RuleSet {
    /// Reads rules from data, such as a TOML or JSON file: a list of rules, or an object with `rules` and perhaps `shadow = true` for all
    /// of them. `source` is what messages call it. All problems come at once, each with the rule's index and the field.
    ///
    /// A rule has an `action` and says of which calls it speaks: `tools` (a name, a glob, a list of them, `{ regex = "..." }`), `origin`,
    /// the hints `readOnly`, `destructive`, `idempotent`, `openWorld`, `editsFiles`, conditions on arguments in `when`, `command`,
    /// `untrusted` and `private` data. `reason`, `ttlMs`, `shadow` and `trustHints` say more. Names may also be written in snake_case.
    ///
    /// ```
    /// use toolwright_core::policy::RuleSet;
    /// let rules = RuleSet::from_value(
    ///     &serde_json::json!({ "rules": [
    ///         { "tools": "delete_*", "action": "deny" },
    ///         { "tools": "shell", "command": "git log *", "action": "allow" },
    ///         { "tools": "pay", "when": { "amount": { "min": 100 } }, "action": "ask", "ttlMs": 60000 },
    ///     ] }),
    ///     "rules.json",
    /// )?;
    /// let wrong = RuleSet::from_value(&serde_json::json!([{ "tool": "pay", "action": "alow" }]), "rules.json").unwrap_err();
    /// assert_eq!(wrong.to_string(), "rules.json: rule 0, `action`: `alow` is no action; use `allow`, `deny` or `ask`");
    /// # Ok::<(), toolwright_core::policy::InvalidRules>(())
    /// ```
    pub fn from_value(value: &Value, source: &str) -> Result<Self, InvalidRules> {
        let mut reading = Reading { problems: Vec::new(), index: None };
        let rules = reading.rules(value);
        // Rules that could be read are checked too, so that one look shows everything.
        let named = |mut rule: InvalidRule| {
            rule.source = Some(source.to_owned());
            rule
        };
        let all: Vec<Rule> = rules.iter().map(|(_, rule)| rule.clone()).collect();
        match (Self::compile(all), reading.problems) {
            (Ok(set), problems) if problems.is_empty() => Ok(set),
            (compiled, mut problems) => {
                if let Err(InvalidRules(more)) = compiled {
                    // Their indices count the rules that could be read.
                    problems.extend(more.into_iter().map(|mut rule| {
                        rule.index = rule.index.and_then(|at| rules.get(at)).map(|(index, _)| *index);
                        rule
                    }));
                }
                problems.sort_by_key(|problem| problem.index);
                Err(InvalidRules(problems.into_iter().map(named).collect()))
            }
        }
    }
}

/// Collects what is wrong.
struct Reading {
    problems: Vec<InvalidRule>,
    index: Option<usize>,
}

impl Reading {
    fn wrong(&mut self, field: impl Into<String>, problem: impl Into<String>) {
        self.problems.push(InvalidRule { source: None, index: self.index, field: field.into(), problem: problem.into() });
    }

    /// The rules that could be read, each with its index.
    fn rules(&mut self, value: &Value) -> Vec<(usize, Rule)> {
        let mut shadow = false;
        let list = match value {
            Value::Array(list) => list,
            Value::Object(fields) => {
                for name in fields.keys() {
                    if !matches!(name.as_str(), "rules" | "shadow") {
                        self.wrong(name, "is not known here; there are `rules` and `shadow`");
                    }
                }
                shadow = fields.get("shadow").is_some_and(|value| self.boolean("shadow", value).unwrap_or(false));
                match fields.get("rules") {
                    Some(Value::Array(list)) => list,
                    Some(other) => {
                        self.wrong("rules", format!("has to be a list of rules, not {}", kind(other)));
                        return Vec::new();
                    }
                    None => {
                        self.wrong("rules", "is missing; write the rules as a list under it");
                        return Vec::new();
                    }
                }
            }
            other => {
                self.wrong("", format!("rules are a list, or an object with `rules`, not {}", kind(other)));
                return Vec::new();
            }
        };
        let mut rules = Vec::new();
        for (index, value) in list.iter().enumerate() {
            self.index = Some(index);
            if let Some(mut rule) = self.rule(value) {
                rule.shadow |= shadow;
                rules.push((index, rule));
            }
        }
        self.index = None;
        rules
    }

    fn rule(&mut self, value: &Value) -> Option<Rule> {
        let Value::Object(fields) = value else {
            self.wrong("", format!("has to be an object, not {}", kind(value)));
            return None;
        };
        for name in fields.keys() {
            if !FIELDS.iter().chain([&TRUSTED]).any(|(field, other)| name == field || name == other) {
                let known: Vec<String> = FIELDS.iter().chain([&TRUSTED]).map(|(field, _)| format!("`{field}`")).collect();
                self.wrong(name, format!("is not known; a rule has {}", known.join(", ")));
            }
        }
        let action = self.action(fields);
        let mut rule = Rule::new(action.unwrap_or(RuleAction::Deny), Matcher::default());
        if let Some(value) = self.field(fields, "tools") {
            rule.matcher.names = self.names("tools", value);
        }
        rule.matcher.origin = self.field(fields, "origin").and_then(|value| self.text("origin", value));
        rule.matcher.hints.read_only = self.flag(fields, "readOnly");
        rule.matcher.hints.destructive = self.flag(fields, "destructive");
        rule.matcher.hints.idempotent = self.flag(fields, "idempotent");
        rule.matcher.hints.open_world = self.flag(fields, "openWorld");
        rule.matcher.hints.edits_files = self.flag(fields, "editsFiles");
        rule.untrusted = self.flag(fields, "untrusted");
        rule.private = self.flag(fields, "private");
        rule.shadow = self.flag(fields, "shadow").unwrap_or(false);
        rule.trusted = self.flag(fields, "trustHints").unwrap_or(false);
        rule.reason = self.field(fields, "reason").and_then(|value| self.text("reason", value));
        if let Some(value) = self.field(fields, "ttlMs") {
            rule.ttl_ms = value.as_u64();
            if rule.ttl_ms.is_none() {
                self.wrong("ttlMs", format!("has to be a whole number of milliseconds, not {}", kind(value)));
            }
        }
        match self.field(fields, "when") {
            None => {}
            Some(Value::Object(conditions)) => {
                for (name, value) in conditions {
                    if let Some(matches) = self.argument(&format!("when.{name}"), value) {
                        rule.arguments.push((name.clone(), matches));
                    }
                }
            }
            Some(other) => self.wrong("when", format!("maps names of arguments to what they have to be; this is {}", kind(other))),
        }
        if let Some(value) = self.field(fields, "command") {
            rule.command = self.command(value);
        }
        let says = rule.matcher != Matcher::default()
            || fields.contains_key("tools")
            || fields.contains_key("tool")
            || !rule.arguments.is_empty()
            || rule.command.is_some()
            || rule.untrusted.is_some()
            || rule.private.is_some();
        if !says {
            self.wrong("tools", "is missing, and nothing else says of which calls the rule speaks; use `*` for every tool");
        }
        action.map(|_| rule)
    }

    /// A field under either of its spellings.
    fn field<'a>(&mut self, fields: &'a Map<String, Value>, name: &'static str) -> Option<&'a Value> {
        let other = FIELDS.iter().chain([&TRUSTED]).find(|(field, _)| *field == name).map_or(name, |(_, other)| *other);
        let second = fields.get(other).filter(|_| other != name);
        match (fields.get(name), second) {
            (Some(_), Some(_)) => {
                self.wrong(other, format!("says the same as `{name}`; give one of them"));
                None
            }
            (first, second) => first.or(second),
        }
    }

    fn action(&mut self, fields: &Map<String, Value>) -> Option<RuleAction> {
        match self.field(fields, "action") {
            Some(Value::String(word)) => {
                let action = [RuleAction::Allow, RuleAction::Deny, RuleAction::Ask].into_iter().find(|action| action.as_str() == word);
                if action.is_none() {
                    self.wrong("action", format!("`{word}` is no action; use `allow`, `deny` or `ask`"));
                }
                action
            }
            Some(other) => {
                self.wrong("action", format!("has to be `allow`, `deny` or `ask`, not {}", kind(other)));
                None
            }
            None => {
                self.wrong("action", "is missing; use `allow`, `deny` or `ask`");
                None
            }
        }
    }

    fn text(&mut self, field: &str, value: &Value) -> Option<String> {
        let text = value.as_str().map(str::to_owned);
        if text.is_none() {
            self.wrong(field, format!("has to be a text, not {}", kind(value)));
        }
        text
    }

    fn boolean(&mut self, field: &str, value: &Value) -> Option<bool> {
        let is = value.as_bool();
        if is.is_none() {
            self.wrong(field, format!("has to be true or false, not {}", kind(value)));
        }
        is
    }

    fn flag(&mut self, fields: &Map<String, Value>, name: &'static str) -> Option<bool> {
        self.field(fields, name).and_then(|value| self.boolean(name, value))
    }

    fn names(&mut self, field: &str, value: &Value) -> Names {
        match value {
            Value::String(name) if name == "*" => Names::Any,
            Value::String(name) if super::glob::Glob::is_glob(name) => Names::Glob(name.clone()),
            Value::String(name) => Names::Exact(name.clone()),
            Value::Array(names) => Names::AnyOf(names.iter().map(|name| self.names(field, name)).collect()),
            Value::Object(fields) if fields.len() == 1 && fields.contains_key("regex") => {
                let pattern = fields.get("regex").and_then(|value| self.text(&format!("{field}.regex"), value));
                pattern.map_or(Names::Any, Names::Regex)
            }
            Value::Object(fields) if fields.len() == 1 && fields.contains_key("glob") => {
                let pattern = fields.get("glob").and_then(|value| self.text(&format!("{field}.glob"), value));
                pattern.map_or(Names::Any, Names::Glob)
            }
            other => {
                let found = kind(other);
                self.wrong(field, format!("has to be a name, a glob, a list of these, or `{{ regex = \"...\" }}`, not {found}"));
                Names::Any
            }
        }
    }

    fn argument(&mut self, field: &str, value: &Value) -> Option<ArgMatch> {
        match value {
            Value::String(pattern) => Some(ArgMatch::regex(pattern.as_str())),
            Value::Object(says) => {
                let mut tests = Vec::new();
                for (name, value) in says {
                    let here = format!("{field}.{name}");
                    let is = match name.as_str() {
                        "regex" => self.text(&here, value).map(Is::Regex),
                        "glob" => self.text(&here, value).map(Is::Glob),
                        "prefix" => self.text(&here, value).map(Is::Prefix),
                        "equals" => Some(Is::OneOf(vec![value.clone()])),
                        "oneOf" | "one_of" => match value {
                            Value::Array(values) => Some(Is::OneOf(values.clone())),
                            other => {
                                self.wrong(here, format!("has to be a list of values, not {}", kind(other)));
                                None
                            }
                        },
                        "min" | "max" => match value {
                            Value::Number(limit) if name == "min" => Some(Is::AtLeast(limit.clone())),
                            Value::Number(limit) => Some(Is::AtMost(limit.clone())),
                            other => {
                                self.wrong(here, format!("has to be a number, not {}", kind(other)));
                                None
                            }
                        },
                        "exists" => {
                            tests.extend(self.boolean(&here, value).map(Test::Exists));
                            None
                        }
                        "not" => {
                            let inner = self.argument(&here, value);
                            if inner.as_ref().is_some_and(|inner| inner.tests.len() != 1) {
                                self.wrong(here, "has to say one thing");
                            } else if let Some(inner) = inner {
                                tests.extend(inner.negated().tests);
                            }
                            None
                        }
                        _ => {
                            self.wrong(
                                here,
                                "is not known; there are `regex`, `glob`, `prefix`, `equals`, `oneOf`, `min`, `max`, `exists` and `not`",
                            );
                            None
                        }
                    };
                    tests.extend(is.map(|is| Test::Value { is, negated: false }));
                }
                Some(ArgMatch { tests })
            }
            other => {
                self.wrong(field, format!("has to be a regular expression or an object such as `{{ equals = 1 }}`, not {}", kind(other)));
                None
            }
        }
    }

    fn command(&mut self, value: &Value) -> Option<CommandMatch> {
        let mut command = CommandMatch { argument: CommandMatch::ARGUMENT.to_owned(), patterns: Vec::new(), redirects: false };
        let Value::Object(fields) = value else {
            command.patterns = self.patterns("command", value)?;
            return Some(command);
        };
        for (name, value) in fields {
            let here = format!("command.{name}");
            match name.as_str() {
                "argument" => command.argument = self.text(&here, value)?,
                "is" => command.patterns = self.patterns(&here, value)?,
                "redirects" => command.redirects = self.boolean(&here, value)?,
                _ => self.wrong(here, "is not known; there are `argument`, `is` and `redirects`"),
            }
        }
        Some(command)
    }

    fn patterns(&mut self, field: &str, value: &Value) -> Option<Vec<String>> {
        let list = match value {
            Value::Array(list) => list.as_slice(),
            one => std::slice::from_ref(one),
        };
        list.iter().map(|pattern| self.text(field, pattern)).collect()
    }
}

/// What a value is, for messages.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
