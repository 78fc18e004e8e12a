//! One call against the rules that can concern its tool.

use std::borrow::Cow;

use serde_json::Value;

use super::args::Fared;
use super::command::{Fit, Script, SimpleCommand, read, read_words};
use super::compile::{Commands, Condition, ToolRules};
use super::rule::{Rule, RuleAction};
use crate::text::bounded;

/// Where text in a call's arguments came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taint {
    /// They repeat text of a result that came from the outside world.
    pub untrusted: bool,
    /// They repeat text that was read from files, values or the environment.
    pub private: bool,
}

/// A call, as rules see it.
#[derive(Clone, Copy, Debug)]
pub struct RuleCall<'a> {
    /// The arguments, an object.
    pub args: &'a Value,
    /// Where text in them came from.
    pub taint: Taint,
}

/// What the rules say about a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// What becomes of it; `None` where no rule matched.
    pub action: Option<RuleAction>,
    /// The rule that decided. `None` with an action where a command is allowed in part only.
    pub rule: Option<usize>,
    /// Why, for people and models: the rule's own reason, or what is in doubt.
    pub reason: Option<String>,
    /// How long a question waits.
    pub ttl_ms: Option<u64>,
}

/// What judging needs next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Whether the code of this rule says yes; told with [`Judging::answer`].
    Ask(usize),
    /// It is done.
    Done(Judged),
}

/// A part of a call that is judged by itself.
struct Part {
    what: What,
    /// The rule that decided.
    by: Option<usize>,
    /// The first rule of each action that may match it.
    doubts: [Option<usize>; 3],
}

enum What {
    /// The call as a whole: it has no commands.
    Call,
    /// A command in an argument; `base` is where its name begins after the folders before it.
    Command { argument: usize, command: SimpleCommand, base: usize },
    /// Something in an argument that can't be told.
    Unclear { argument: usize, why: String },
}

/// A call being judged. [`step`](Self::step) until it is done.
pub struct Judging<'a> {
    rules: &'a ToolRules,
    call: RuleCall<'a>,
    with_shadows: bool,
    /// How many of the rules were tried.
    tried: usize,
    fared: Vec<Option<Fared>>,
    parts: Vec<Part>,
    /// The arguments that are commands have been read.
    read: bool,
    /// The rule whose code was asked, and what it said.
    answer: Option<(usize, bool)>,
}

impl ToolRules {
    /// Begins to judge a call. `with_shadows` asks what the rules would say if none were in shadow.
    pub fn judging<'a>(&'a self, call: RuleCall<'a>, with_shadows: bool) -> Judging<'a> {
        Judging {
            rules: self,
            call,
            with_shadows,
            tried: 0,
            fared: Vec::new(),
            parts: vec![Part { what: What::Call, by: None, doubts: [None; 3] }],
            read: false,
            answer: None,
        }
    }

    /// Judges a call, with `says` for the code of rules.
    pub fn judge(&self, call: RuleCall<'_>, with_shadows: bool, mut says: impl FnMut(usize) -> bool) -> Judged {
        let mut judging = self.judging(call, with_shadows);
        loop {
            match judging.step() {
                Step::Ask(rule) => judging.answer(rule, says(rule)),
                Step::Done(judged) => return judged,
            }
        }
    }
}

impl Judging<'_> {
    /// Tells what the code of a rule said.
    pub fn answer(&mut self, rule: usize, says: bool) {
        self.answer = Some((rule, says));
    }

    /// Goes on as far as it can.
    pub fn step(&mut self) -> Step {
        let set = &*self.rules.set.inner;
        while let Some(index) = self.rules.rules.get(self.tried).copied() {
            let Some(rule) = set.rules.get(index) else { break };
            if (rule.shadow && !self.with_shadows) || !self.conditions_hold(index, rule) {
                self.tried += 1;
                continue;
            }
            let commands = set.commands.get(index).and_then(Option::as_ref);
            if commands.is_some() && !self.read {
                self.read = true;
                self.read_commands();
            }
            if !self.parts.iter().any(|part| part.by.is_none() && part.fit(rule, commands) != Fit::No) {
                self.tried += 1;
                continue;
            }
            if rule.predicate.is_some() {
                match self.answer.take() {
                    Some((answered, says)) if answered == index => {
                        if !says {
                            self.tried += 1;
                            continue;
                        }
                    }
                    _ => return Step::Ask(index),
                }
            }
            for part in self.parts.iter_mut().filter(|part| part.by.is_none()) {
                match part.fit(rule, commands) {
                    Fit::Yes => part.by = Some(index),
                    Fit::Maybe => {
                        if let Some(doubt) = part.doubts.get_mut(slot(rule.action)) {
                            doubt.get_or_insert(index);
                        }
                    }
                    Fit::No => {}
                }
            }
            self.tried += 1;
            let denied = |part: &Part| part.by == Some(index) && rule.action == RuleAction::Deny;
            if self.parts.iter().any(denied) || self.parts.iter().all(|part| part.by.is_some()) {
                break;
            }
        }
        Step::Done(self.conclude())
    }

    fn conditions_hold(&mut self, index: usize, rule: &Rule) -> bool {
        let (taint, grants) = (self.call.taint, rule.action == RuleAction::Allow);
        if rule.untrusted.is_some_and(|wanted| wanted != taint.untrusted) || rule.private.is_some_and(|wanted| wanted != taint.private) {
            return false;
        }
        let set = &*self.rules.set.inner;
        let Some(conditions) = set.conditions.get(index).filter(|conditions| !conditions.is_empty()) else { return true };
        if self.fared.is_empty() {
            self.fared.resize_with(set.arguments.len(), || None);
        }
        conditions.iter().all(|condition| {
            let (Condition::Exists { argument, .. } | Condition::Holds { argument, .. }) = *condition;
            let (Some(slot), Some(tests)) = (self.fared.get_mut(argument), set.arguments.get(argument)) else { return false };
            let fared = slot.get_or_insert_with(|| tests.try_on(self.call.args));
            match *condition {
                Condition::Exists { exists, .. } => fared.exists == exists,
                Condition::Holds { test, negated, .. } => fared.holds(test, negated, grants),
            }
        })
    }

    /// Replaces the call as a whole by the commands in it, where it has any.
    fn read_commands(&mut self) {
        let mut parts: Vec<Part> = Vec::new();
        let mut any = false;
        for (number, argument) in &self.rules.commands {
            let number = *number;
            let value = match self.call.args.get(argument) {
                None | Some(Value::Null) => continue,
                Some(value) => value,
            };
            any = true;
            let script = script_of(value);
            let part = |what| Part { what, by: None, doubts: [None; 3] };
            parts.extend(script.commands.into_iter().map(|command| {
                let base = command.words.first().and_then(|name| name.text.rfind('/')).map_or(0, |slash| slash + 1);
                part(What::Command { argument: number, command, base })
            }));
            parts.extend(script.unclear.into_iter().map(|why| part(What::Unclear { argument: number, why })));
        }
        // A text without commands runs nothing: rules about the tool as a whole still speak of it.
        if any && !parts.is_empty() {
            self.parts = parts;
        }
    }

    fn conclude(&self) -> Judged {
        let rule = |index: usize| self.rules.rule(index);
        // For each action the first rule, and what it was about.
        let mut denied: Option<usize> = None;
        let mut asked: Option<usize> = None;
        let mut doubted: Option<(usize, &What)> = None;
        let mut allowed: Option<usize> = None;
        let mut unsaid: Option<&What> = None;
        let first = |slot: &mut Option<usize>, index: usize| *slot = Some(slot.map_or(index, |there| there.min(index)));
        for part in &self.parts {
            let action = part.by.and_then(rule).map(Rule::action);
            let [may_allow, may_deny, may_ask] = part.doubts;
            match (action, part.by) {
                (Some(RuleAction::Deny), Some(by)) => first(&mut denied, by),
                (Some(RuleAction::Ask), Some(by)) => first(&mut asked, by),
                (Some(RuleAction::Allow), Some(by)) if may_deny.is_none() && may_ask.is_none() => first(&mut allowed, by),
                _ => match may_deny.into_iter().chain(may_ask).chain(may_allow).min() {
                    Some(doubt) => {
                        doubted.get_or_insert((doubt, &part.what));
                    }
                    // What only runs another command, which is judged by itself, needs no word of its own.
                    None if matches!(&part.what, What::Command { command, .. } if command.only_wraps) => {}
                    None => {
                        unsaid.get_or_insert(&part.what);
                    }
                },
            }
        }
        let by_rule = |action: RuleAction, index: usize| Judged {
            action: Some(action),
            rule: Some(index),
            reason: rule(index).and_then(Rule::why).map(str::to_owned),
            ttl_ms: rule(index).and_then(|rule| rule.ttl_ms),
        };
        if let Some(index) = denied {
            return by_rule(RuleAction::Deny, index);
        }
        if let Some(index) = asked {
            return by_rule(RuleAction::Ask, index);
        }
        if let Some((index, what)) = doubted {
            let ttl_ms = rule(index).and_then(|rule| rule.ttl_ms);
            return Judged { action: Some(RuleAction::Ask), rule: Some(index), reason: Some(what.in_doubt()), ttl_ms };
        }
        match (allowed, unsaid) {
            (Some(_), Some(what)) => Judged { action: Some(RuleAction::Ask), rule: None, reason: Some(what.not_covered()), ttl_ms: None },
            (Some(index), None) => Judged { ttl_ms: None, ..by_rule(RuleAction::Allow, index) },
            (None, _) => Judged::default(),
        }
    }
}

fn slot(action: RuleAction) -> usize {
    match action {
        RuleAction::Allow => 0,
        RuleAction::Deny => 1,
        RuleAction::Ask => 2,
    }
}

fn script_of(value: &Value) -> Script {
    match value {
        Value::String(text) => read(text),
        Value::Array(words) => {
            let texts: Option<Vec<&str>> = words.iter().map(Value::as_str).collect();
            match texts {
                Some(texts) => read_words(texts),
                None => unclear("it is a list of other things than words"),
            }
        }
        _ => unclear("it is neither a text nor a list of words"),
    }
}

fn unclear(why: &str) -> Script {
    Script { commands: Vec::new(), unclear: vec![why.to_owned()] }
}

impl Part {
    fn fit(&self, rule: &Rule, commands: Option<&Commands>) -> Fit {
        let Some(commands) = commands else { return Fit::Yes };
        match &self.what {
            What::Call => Fit::No,
            What::Unclear { argument, .. } if *argument == commands.number => Fit::Maybe,
            What::Command { argument, command, base } if *argument == commands.number => {
                let name = command.words.first().map_or("", |name| name.text.as_str());
                let base = name.get(*base..).unwrap_or(name);
                let about = commands.patterns.iter().filter(|pattern| !pattern.is_about_others(name, base));
                let fits = about.map(|pattern| match rule.action {
                    RuleAction::Allow => pattern.allows(command, commands.redirects),
                    RuleAction::Deny | RuleAction::Ask => pattern.catches(command),
                });
                fits.fold(Fit::No, |best, fit| match (best, fit) {
                    (Fit::Yes, _) | (_, Fit::Yes) => Fit::Yes,
                    (Fit::Maybe, _) | (_, Fit::Maybe) => Fit::Maybe,
                    _ => Fit::No,
                })
            }
            What::Unclear { .. } | What::Command { .. } => Fit::No,
        }
    }
}

impl What {
    fn shown(&self) -> Cow<'static, str> {
        match self {
            Self::Command { command, .. } => Cow::Owned(format!("`{}`", bounded(&command.shown(), 200))),
            Self::Call | Self::Unclear { .. } => Cow::Borrowed("it"),
        }
    }

    fn in_doubt(&self) -> String {
        match self {
            Self::Unclear { why, .. } => format!("it can't be told what the command runs: {why}"),
            _ => format!("it can't be told whether {} is allowed", self.shown()),
        }
    }

    fn not_covered(&self) -> String {
        match self {
            Self::Unclear { why, .. } => format!("it can't be told what the command runs: {why}"),
            _ => format!("{} is not among the commands that are allowed", self.shown()),
        }
    }
}
