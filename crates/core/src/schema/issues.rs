//! What is wrong with a value, said so that a model can act on it.

use std::fmt::Write as _;

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::paths::{Location, LocationSegment};
use jsonschema::{JsonType, ValidationError};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::text::bounded;

/// Longest message of one issue, in characters.
const MESSAGE: usize = 600;
/// Longest value that a message quotes, in characters.
const QUOTE: usize = 80;
/// Most values or names that a message lists.
const LISTED: usize = 24;

/// One thing that is wrong with a value (`sdk-tools` 4.2).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Issue {
    /// Where, dotted (`files.0.path`); the root is empty.
    pub path: String,
    /// What is wrong there and what is wanted.
    pub message: String,
}

impl Issue {
    /// An issue whose message is cut to a bounded length.
    pub fn new(path: impl Into<String>, message: &str) -> Self {
        Self { path: path.into(), message: bounded(message, MESSAGE) }
    }

    /// An issue with the value as a whole.
    pub fn root(message: &str) -> Self {
        Self::new("", message)
    }
}

impl std::fmt::Display for Issue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.path.is_empty() { f.write_str(&self.message) } else { write!(f, "{} {}", self.path, self.message) }
    }
}

/// One line for a call whose arguments do not hold: the tool, the number of issues, then each (`sdk-tools` 4.2).
pub fn summary(tool: &str, issues: &[Issue]) -> String {
    let count = issues.len();
    let noun = if count == 1 { "issue" } else { "issues" };
    let each: Vec<String> = issues.iter().map(ToString::to_string).collect();
    bounded(&format!("the arguments of {tool} have {count} {noun}: {}", each.join("; ")), 2_000)
}

/// `path` one step further in, dotted.
pub(crate) fn step_into(path: &str, step: &str) -> String {
    if path.is_empty() { step.to_owned() } else { format!("{path}.{step}") }
}

/// A value as a message names it, bounded.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) if text.is_empty() => "the empty string".to_owned(),
        Value::String(text) => format!("the string {}", quoted(text)),
        Value::Array(items) if items.is_empty() => "an empty array".to_owned(),
        Value::Array(_) => "an array".to_owned(),
        Value::Object(map) if map.is_empty() => "an empty object".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

fn quoted(text: &str) -> String {
    Value::String(bounded(text, QUOTE)).to_string()
}

/// The two documents that errors point into.
#[derive(Clone, Copy)]
pub(super) struct Documents<'d> {
    pub(super) schema: &'d Value,
    pub(super) value: &'d Value,
}

pub(super) fn collect<'e>(documents: Documents<'_>, errors: impl Iterator<Item = ValidationError<'e>>) -> Vec<Issue> {
    let mut issues: Vec<Issue> = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for error in errors {
        for issue in describe(documents, &error) {
            if seen.insert(issue.clone()) {
                issues.push(issue);
            }
        }
    }
    issues
}

/// The issues in one error: one for each missing or unknown property, those of a branch where only one branch can be meant.
pub(super) fn describe(documents: Documents<'_>, error: &ValidationError<'_>) -> Vec<Issue> {
    let path = dotted(error.instance_path());
    let value = error.instance();
    let given = || shown(value);
    let message = match error.kind() {
        ValidationErrorKind::Required { property } => {
            let name = property.as_str().unwrap_or_default();
            let wanted = beside(documents.schema, error, "properties").and_then(|properties| properties.get(name)).and_then(wanted);
            let message = wanted.map_or_else(|| "is required".to_owned(), |wanted| format!("is required: {wanted}"));
            return vec![Issue::new(step_into(&path, name), &message)];
        }
        ValidationErrorKind::AdditionalProperties { unexpected } | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            let known = beside(documents.schema, error, "properties").and_then(Value::as_object);
            let known: Vec<&str> = known.map(|known| known.keys().map(String::as_str).collect()).unwrap_or_default();
            return unexpected.iter().map(|name| Issue::new(step_into(&path, name), &unknown(name, &known))).collect();
        }
        ValidationErrorKind::AnyOf { context }
        | ValidationErrorKind::OneOfNotValid { context }
        | ValidationErrorKind::OneOfMultipleValid { context }
            if context.iter().any(|branch| !branch.is_empty()) =>
        {
            if let ValidationErrorKind::OneOfMultipleValid { .. } = error.kind() {
                "fits more than one of the alternatives; it must fit exactly one".to_owned()
            } else {
                return alternatives(documents, error, &path, context);
            }
        }
        ValidationErrorKind::AnyOf { .. } | ValidationErrorKind::OneOfNotValid { .. } => {
            format!("{} fits none of the alternatives", given())
        }
        ValidationErrorKind::OneOfMultipleValid { .. } => "fits more than one of the alternatives; it must fit exactly one".to_owned(),
        ValidationErrorKind::Type { kind } => mistyped(kind, value),
        ValidationErrorKind::Enum { options } => {
            let options = options.as_array().map(Vec::as_slice).unwrap_or_default();
            format!("must be one of {}, not {}{}", listed(options.iter().map(literal)), given(), nearest_option(value, options))
        }
        ValidationErrorKind::Constant { expected_value } => format!("must be {}, not {}", literal(expected_value), given()),
        ValidationErrorKind::Minimum { limit } => format!("must be at least {limit}, not {}", given()),
        ValidationErrorKind::Maximum { limit } => format!("must be at most {limit}, not {}", given()),
        ValidationErrorKind::ExclusiveMinimum { limit } => format!("must be more than {limit}, not {}", given()),
        ValidationErrorKind::ExclusiveMaximum { limit } => format!("must be less than {limit}, not {}", given()),
        ValidationErrorKind::MultipleOf { multiple_of } => format!("must be a multiple of {multiple_of}, not {}", given()),
        ValidationErrorKind::MinLength { limit } => {
            format!("must have at least {}, not {}", counted(*limit, "character"), characters(value))
        }
        ValidationErrorKind::MaxLength { limit } => {
            format!("must have at most {}, not {}", counted(*limit, "character"), characters(value))
        }
        ValidationErrorKind::MinItems { limit } => format!("must have at least {}, not {}", counted(*limit, "item"), size(value)),
        ValidationErrorKind::MaxItems { limit } => format!("must have at most {}, not {}", counted(*limit, "item"), size(value)),
        ValidationErrorKind::AdditionalItems { limit } => {
            format!("must have at most {}, not {}", counted(*limit as u64, "item"), size(value))
        }
        ValidationErrorKind::UnevaluatedItems { .. } => format!("has more items than are allowed ({})", size(value)),
        ValidationErrorKind::MinProperties { limit } => {
            format!("must have at least {}, not {}", counted(*limit, "property"), size(value))
        }
        ValidationErrorKind::MaxProperties { limit } => {
            format!("must have at most {}, not {}", counted(*limit, "property"), size(value))
        }
        ValidationErrorKind::UniqueItems => "must not hold the same item twice".to_owned(),
        ValidationErrorKind::Contains => "does not hold the item that is wanted, or not as often".to_owned(),
        ValidationErrorKind::Pattern { pattern } => {
            format!("must match the pattern {}, not {}", bounded(pattern, QUOTE), given())
        }
        ValidationErrorKind::Format { format } => format!("must have the format {format}, not {}", given()),
        ValidationErrorKind::PropertyNames { error } => {
            let inner = describe(documents, error).into_iter().next();
            let name = error.instance().as_str().unwrap_or_default();
            let why = inner.map(|issue| issue.message).unwrap_or_default();
            return vec![Issue::new(step_into(&path, name), &format!("has a name that is not allowed: it {why}"))];
        }
        // Where no property is known, the validator names the first one's object only.
        ValidationErrorKind::FalseSchema if error.schema_path().as_str().ends_with("/additionalProperties") => {
            let given = documents.value.pointer(error.instance_path().as_str()).and_then(Value::as_object);
            let names = given.into_iter().flat_map(serde_json::Map::keys);
            return names.map(|name| Issue::new(step_into(&path, name), &unknown(name, &[]))).collect();
        }
        ValidationErrorKind::FalseSchema => "is not allowed here".to_owned(),
        ValidationErrorKind::Not { .. } => format!("must not be {}", given()),
        ValidationErrorKind::ContentEncoding { content_encoding } => format!("must be encoded as {content_encoding}"),
        ValidationErrorKind::ContentMediaType { content_media_type } => format!("must hold {content_media_type}"),
        ValidationErrorKind::BacktrackLimitExceeded { .. } | ValidationErrorKind::RegexEngineFailure { .. } => {
            "took too long to match against the pattern; send a shorter or simpler value".to_owned()
        }
        ValidationErrorKind::Custom { message, .. } => message.clone(),
        ValidationErrorKind::FromUtf8 { .. } => "does not decode to text".to_owned(),
        ValidationErrorKind::Referencing(_) => "can't be checked: a reference in the schema leads nowhere".to_owned(),
    };
    vec![Issue::new(path, &message)]
}

fn dotted(location: &Location) -> String {
    let mut out = String::new();
    for segment in location {
        let segment = match segment {
            LocationSegment::Property(name) => name.into_owned(),
            LocationSegment::Index(index) => index.to_string(),
        };
        out = step_into(&out, &segment);
    }
    out
}

/// The keyword `name` in the same subschema as the keyword that failed.
fn beside<'s>(schema: &'s Value, error: &ValidationError<'_>, name: &str) -> Option<&'s Value> {
    let (parent, _) = error.schema_path().as_str().rsplit_once('/')?;
    schema.pointer(parent)?.get(name)
}

/// What a simple subschema asks for, in words.
fn wanted(schema: &Value) -> Option<String> {
    if let Some(options) = schema.get("enum").and_then(Value::as_array) {
        return Some(format!("one of {}", listed(options.iter().map(literal))));
    }
    match schema.get("type")? {
        Value::String(name) => Some(with_article(name).to_owned()),
        Value::Array(names) => {
            let names: Vec<&str> = names.iter().filter_map(Value::as_str).map(with_article).collect();
            Some(names.join(" or "))
        }
        _ => None,
    }
}

fn with_article(name: &str) -> &str {
    match name {
        "string" => "a string",
        "number" => "a number",
        "integer" => "an integer",
        "boolean" => "true or false",
        "object" => "an object",
        "array" => "an array",
        other => other,
    }
}

fn mistyped(kind: &TypeKind, value: &Value) -> String {
    let mut types: Vec<JsonType> = match kind {
        TypeKind::Single(one) => vec![*one],
        TypeKind::Multiple(set) => set.iter().collect(),
    };
    // "a string or null" reads better than the other way round.
    types.sort_by_key(|one| matches!(one, JsonType::Null));
    let names: Vec<&str> = types.iter().map(|one| with_article(one.as_str())).collect();
    let mut message = format!("must be {}, not {}", names.join(" or "), shown(value));
    if let Value::String(text) = value {
        let holds_json = types.iter().any(|one| matches!(one, JsonType::Array | JsonType::Object));
        if holds_json {
            message.push_str("; pass it as JSON directly, not as text");
            // Saying what is wrong in the text is only worth it where a container was meant.
            if let Err(error) = crate::json::read(text) {
                // Writing to a String can't fail.
                let _ = write!(message, " (the text is not JSON: {error})");
            }
        }
    }
    message
}

/// A union that nothing fits: where only one branch can be meant, what is wrong with that; else what each branch asks for.
fn alternatives(
    documents: Documents<'_>,
    error: &ValidationError<'_>,
    path: &str,
    context: &[Vec<ValidationError<'static>>],
) -> Vec<Issue> {
    let here = error.instance_path().as_str();
    let is_other = |branch: &[ValidationError<'static>]| {
        branch.iter().any(|inner| {
            let at = inner.instance_path().as_str();
            match inner.kind() {
                ValidationErrorKind::Type { .. } => at == here,
                // A property that has to be one fixed value tells the branches of a union apart.
                ValidationErrorKind::Constant { .. } | ValidationErrorKind::Enum { .. } => {
                    at == here || at.rsplit_once('/').is_some_and(|(parent, _)| parent == here)
                }
                _ => false,
            }
        })
    };
    let meant: Vec<&Vec<ValidationError<'static>>> = context.iter().filter(|branch| !branch.is_empty() && !is_other(branch)).collect();
    if let [branch] = meant.as_slice() {
        return branch.iter().flat_map(|inner| describe(documents, inner)).collect();
    }
    // `anyOf: [{"type": "integer"}, {"type": "null"}]` reads as one list of types.
    let shown_branches = context.iter().filter_map(|branch| branch.first()).map(|inner| {
        let issue = describe(documents, inner).into_iter().next().unwrap_or_else(|| Issue::root("fits"));
        let relative = issue.path.strip_prefix(path).unwrap_or(&issue.path).trim_start_matches('.').to_owned();
        if relative.is_empty() { issue.message } else { format!("{relative} {}", issue.message) }
    });
    let message = format!("{} fits none of the alternatives: {}", shown(error.instance()), listed_with(shown_branches, " / "));
    vec![Issue::new(path, &message)]
}

fn unknown(name: &str, known: &[&str]) -> String {
    if known.is_empty() {
        return "is not a known property; leave it out".to_owned();
    }
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("is not a known property; did you mean {near}?"),
        None => format!("is not a known property; known are {}", listed(known.iter().map(|name| (*name).to_owned()))),
    }
}

fn nearest_option(value: &Value, options: &[Value]) -> String {
    let Value::String(given) = value else { return String::new() };
    match nearest(given, options.iter().filter_map(Value::as_str)) {
        Some(near) => format!("; did you mean {}?", quoted(near)),
        None => String::new(),
    }
}

/// The option that a slip of the pen or another case style would turn into `given`.
fn nearest<'o>(given: &str, options: impl Iterator<Item = &'o str>) -> Option<&'o str> {
    let given = folded(given);
    let allowed = (given.chars().count() + 1) / 3;
    options
        .map(|option| (distance(&given, &folded(option), allowed), option))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, option)| option)
}

fn folded(text: &str) -> String {
    // Names are short; what is longer is no slip of the pen.
    text.chars().take(64).filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// Edit distance, or something beyond `limit`.
fn distance(a: &str, b: &str, limit: usize) -> usize {
    let b: Vec<char> = b.chars().collect();
    if a.chars().count().abs_diff(b.len()) > limit {
        return limit + 1;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut next = Vec::with_capacity(row.len());
        next.push(i + 1);
        for ((to, cells), left_up) in b.iter().zip(row.windows(2)).zip(0..) {
            let [diagonal, up] = cells else { continue };
            let left = next.get(left_up).copied().unwrap_or(usize::MAX);
            let changed = diagonal + usize::from(from != *to);
            next.push(changed.min(up + 1).min(left.saturating_add(1)));
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

fn literal(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        other => bounded(&other.to_string(), QUOTE),
    }
}

fn listed(items: impl Iterator<Item = String>) -> String {
    listed_with(items, ", ")
}

/// The first items, and how many more there are.
fn listed_with(items: impl Iterator<Item = String>, separator: &str) -> String {
    let mut out = String::new();
    let mut left_out = 0;
    for (index, item) in items.enumerate() {
        // Room is kept for what else a message says.
        if index >= LISTED || out.chars().count() + item.chars().count() > MESSAGE - 2 * QUOTE {
            left_out += 1;
            continue;
        }
        if index > 0 {
            out.push_str(separator);
        }
        out.push_str(&item);
    }
    if left_out > 0 { format!("{out} and {left_out} more") } else { out }
}

fn counted(count: u64, noun: &str) -> String {
    match (count, noun) {
        (1, _) => format!("1 {noun}"),
        (_, "property") => format!("{count} properties"),
        _ => format!("{count} {noun}s"),
    }
}

fn characters(value: &Value) -> usize {
    value.as_str().map(|text| text.chars().count()).unwrap_or_default()
}

fn size(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.len(),
        Value::Object(map) => map.len(),
        _ => 0,
    }
}
