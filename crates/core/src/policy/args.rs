//! Conditions on arguments.

use std::cmp::Ordering;
use std::collections::HashMap;

use regex::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};
use serde_json::{Number, Value};

use super::glob::Glob;

/// How big a compiled expression may get, in bytes.
const REGEX_SIZE: usize = 1 << 20;

/// What an argument has to be; all that is said has to hold.
#[derive(Clone, Debug, PartialEq)]
pub struct ArgMatch {
    pub(crate) tests: Vec<Test>,
}

/// One thing to hold.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Test {
    Exists(bool),
    Value { is: Is, negated: bool },
}

/// What a single value is compared with. Texts are compared with strings as they are, and with numbers and booleans as JSON writes them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Is {
    Regex(String),
    Glob(String),
    Prefix(String),
    OneOf(Vec<Value>),
    AtLeast(Number),
    AtMost(Number),
}

impl ArgMatch {
    fn of(is: Is) -> Self {
        Self { tests: vec![Test::Value { is, negated: false }] }
    }

    /// A regular expression finds something in it; anchor it with `^` and `$`.
    pub fn regex(pattern: impl Into<String>) -> Self {
        Self::of(Is::Regex(pattern.into()))
    }

    /// The whole of it fits a glob: `*` is any characters, `/` included, `?` one.
    pub fn glob(pattern: impl Into<String>) -> Self {
        Self::of(Is::Glob(pattern.into()))
    }

    /// It begins with this.
    pub fn prefix(prefix: impl Into<String>) -> Self {
        Self::of(Is::Prefix(prefix.into()))
    }

    /// It is this value. Numbers are compared as numbers.
    pub fn equals(value: impl Into<Value>) -> Self {
        Self::of(Is::OneOf(vec![value.into()]))
    }

    /// It is one of these values.
    pub fn one_of<V: Into<Value>>(values: impl IntoIterator<Item = V>) -> Self {
        Self::of(Is::OneOf(values.into_iter().map(Into::into).collect()))
    }

    /// It is a number, and not less than this.
    pub fn at_least(number: impl Into<Number>) -> Self {
        Self::of(Is::AtLeast(number.into()))
    }

    /// It is a number, and not more than this.
    pub fn at_most(number: impl Into<Number>) -> Self {
        Self::of(Is::AtMost(number.into()))
    }

    /// It is there, and not null; or, with `false`, it is not.
    pub fn exists(exists: bool) -> Self {
        Self { tests: vec![Test::Exists(exists)] }
    }

    /// None of what this says holds.
    #[must_use]
    pub fn negated(mut self) -> Self {
        for test in &mut self.tests {
            match test {
                Test::Exists(exists) => *exists = !*exists,
                Test::Value { negated, .. } => *negated = !*negated,
            }
        }
        self
    }

    /// Both this and the other hold.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.tests.extend(other.tests);
        self
    }
}

/// A text is a regular expression, as in the data form.
impl From<&str> for ArgMatch {
    fn from(pattern: &str) -> Self {
        Self::regex(pattern)
    }
}

/// Where an argument stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ArgPath(Vec<String>);

impl ArgPath {
    /// A name, or a JSON Pointer.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let Some(pointer) = text.strip_prefix('/') else {
            return if text.is_empty() { Err("the name of an argument is empty".to_owned()) } else { Ok(Self(vec![text.to_owned()])) };
        };
        let unescaped = |name: &str| -> Result<String, String> {
            let mut out = String::with_capacity(name.len());
            let mut chars = name.chars();
            while let Some(c) = chars.next() {
                match c {
                    '~' => match chars.next() {
                        Some('0') => out.push('~'),
                        Some('1') => out.push('/'),
                        _ => {
                            return Err(format!(
                                "the pointer `{text}` has a `~` that stands for nothing; write `~0` for `~` and `~1` for `/`"
                            ));
                        }
                    },
                    c => out.push(c),
                }
            }
            Ok(out)
        };
        pointer.split('/').map(unescaped).collect::<Result<_, _>>().map(Self)
    }

    pub(crate) fn find<'a>(&self, args: &'a Value) -> Option<&'a Value> {
        let mut value = args;
        for name in &self.0 {
            value = match value {
                Value::Object(fields) => fields.get(name)?,
                Value::Array(items) => items.get(name.parse::<usize>().ok()?)?,
                _ => return None,
            };
        }
        (!value.is_null()).then_some(value)
    }
}

/// Compiles one expression.
pub(crate) fn compile_regex(pattern: &str) -> Result<Regex, String> {
    RegexBuilder::new(pattern).size_limit(REGEX_SIZE).build().map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => format!("the regular expression `{pattern}` is too big"),
        // The last line says what is wrong; those before it draw where.
        error => {
            let text = error.to_string();
            let last = text.lines().last().unwrap_or_default().trim().trim_start_matches("error: ");
            format!("`{pattern}` is no regular expression: {last}")
        }
    })
}

/// Every test of one argument, over all rules.
#[derive(Debug)]
pub(crate) struct ArgTests {
    path: ArgPath,
    count: usize,
    /// Expressions over texts, tried in one pass, with the test that each belongs to.
    expressions: Expressions,
    expression_tests: Vec<usize>,
    /// Texts to be equal to, with the tests they belong to.
    texts: HashMap<String, Vec<usize>>,
    /// Everything else.
    others: Vec<(usize, Is)>,
}

#[derive(Debug)]
enum Expressions {
    None,
    Set(RegexSet),
    /// Where a set would be too big.
    Each(Vec<(usize, Regex)>),
}

/// How the values of one argument fared: for each test, how many of them hold.
#[derive(Debug)]
pub(crate) struct Fared {
    pub(crate) exists: bool,
    values: usize,
    held: Vec<usize>,
}

impl Fared {
    /// Whether a test holds: for a grant by every value, otherwise by any.
    pub(crate) fn holds(&self, test: usize, negated: bool, grants: bool) -> bool {
        let held = self.held.get(test).copied().unwrap_or(0);
        let fits = if negated { self.values - held.min(self.values) } else { held };
        if grants {
            self.values > 0 && fits == self.values
        } else {
            // Nothing is not what it should not be.
            fits > 0 || (negated && self.values == 0)
        }
    }
}

/// Collects the tests of one argument while rules are compiled.
#[derive(Debug)]
pub(crate) struct Collecting {
    path: ArgPath,
    tests: Vec<Is>,
}

impl Collecting {
    pub(crate) fn new(path: ArgPath) -> Self {
        Self { path, tests: Vec::new() }
    }

    pub(crate) fn path(&self) -> &ArgPath {
        &self.path
    }

    /// The number of a test; equal ones share it.
    pub(crate) fn number(&mut self, is: &Is) -> usize {
        if let Some(at) = self.tests.iter().position(|there| there == is) {
            return at;
        }
        self.tests.push(is.clone());
        self.tests.len() - 1
    }

    pub(crate) fn finish(self) -> ArgTests {
        let mut patterns: Vec<String> = Vec::new();
        let mut tests = ArgTests {
            path: self.path,
            count: self.tests.len(),
            expressions: Expressions::None,
            expression_tests: Vec::new(),
            texts: HashMap::new(),
            others: Vec::new(),
        };
        for (at, is) in self.tests.into_iter().enumerate() {
            let pattern = match is {
                Is::Regex(pattern) => pattern,
                Is::Glob(glob) => Glob::parse(&glob).to_regex(),
                Is::Prefix(prefix) => format!("^{}", regex::escape(&prefix)),
                Is::OneOf(values) if values.iter().all(Value::is_string) => {
                    for value in values {
                        if let Value::String(text) = value {
                            tests.texts.entry(text).or_default().push(at);
                        }
                    }
                    continue;
                }
                is => {
                    tests.others.push((at, is));
                    continue;
                }
            };
            patterns.push(pattern);
            tests.expression_tests.push(at);
        }
        if !patterns.is_empty() {
            let limit = REGEX_SIZE.saturating_mul(16);
            let set = RegexSetBuilder::new(&patterns).size_limit(limit).dfa_size_limit(8 * REGEX_SIZE).build();
            tests.expressions = set.map_or_else(
                |_| {
                    // Each was compiled before, so each compiles now.
                    let each = patterns.iter().zip(&tests.expression_tests);
                    Expressions::Each(each.filter_map(|(pattern, at)| Some((*at, compile_regex(pattern).ok()?))).collect())
                },
                Expressions::Set,
            );
        }
        tests
    }
}

impl ArgTests {
    /// Tries every test on the argument.
    pub(crate) fn try_on(&self, args: &Value) -> Fared {
        let mut fared = Fared { exists: false, values: 0, held: vec![0; self.count] };
        if let Some(value) = self.path.find(args) {
            fared.exists = true;
            self.try_value(value, &mut fared);
        }
        fared
    }

    fn try_value(&self, value: &Value, fared: &mut Fared) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.try_value(item, fared)),
            Value::Object(fields) => fields.values().for_each(|field| self.try_value(field, fared)),
            Value::Null => fared.values += 1,
            Value::String(text) => self.try_leaf(value, text, fared),
            Value::Number(number) => self.try_leaf(value, &number.to_string(), fared),
            Value::Bool(is) => self.try_leaf(value, if *is { "true" } else { "false" }, fared),
        }
    }

    fn try_leaf(&self, value: &Value, text: &str, fared: &mut Fared) {
        fared.values += 1;
        let mut hold = |at: usize| {
            if let Some(held) = fared.held.get_mut(at) {
                *held += 1;
            }
        };
        match &self.expressions {
            Expressions::None => {}
            Expressions::Set(set) => {
                set.matches(text).into_iter().filter_map(|n| self.expression_tests.get(n)).for_each(|at| hold(*at));
            }
            Expressions::Each(each) => {
                each.iter().filter(|(_, regex)| regex.is_match(text)).for_each(|(at, _)| hold(*at));
            }
        }
        if value.is_string() {
            self.texts.get(text).into_iter().flatten().for_each(|at| hold(*at));
        }
        for (at, is) in &self.others {
            let holds = match is {
                Is::OneOf(values) => values.iter().any(|wanted| same(wanted, value)),
                Is::AtLeast(limit) => compared(value, limit).is_some_and(Ordering::is_ge),
                Is::AtMost(limit) => compared(value, limit).is_some_and(Ordering::is_le),
                Is::Regex(_) | Is::Glob(_) | Is::Prefix(_) => false,
            };
            if holds {
                hold(*at);
            }
        }
    }
}

fn same(wanted: &Value, value: &Value) -> bool {
    match (wanted, value) {
        (Value::Number(wanted), value @ Value::Number(_)) => compared(value, wanted) == Some(Ordering::Equal),
        (wanted, value) => wanted == value,
    }
}

/// Compares as numbers: integers exactly, everything else as floats.
fn compared(value: &Value, limit: &Number) -> Option<Ordering> {
    let Value::Number(number) = value else { return None };
    let whole = |number: &Number| number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
    match (whole(number), whole(limit)) {
        (Some(number), Some(limit)) => Some(number.cmp(&limit)),
        _ => number.as_f64()?.partial_cmp(&limit.as_f64()?),
    }
}
