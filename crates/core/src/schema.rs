//! JSON Schemas of tools: checked when a tool is defined, compiled once, cheap to hold.
//!
//! Rules that are decisions of this crate:
//! - `format` is an annotation, as 2020-12 has it: a date or an address is checked where a tool decodes its types.
//! - A `$ref` that leaves the document is refused. Nothing is ever fetched.
//! - A value for which a validator would try the branches of recursive unions beyond all measure does not hold.
//! - Patterns run with a bounded amount of backtracking; a value that needs more is an issue, not a hang.

mod issues;
mod plan;

use std::fmt;
use std::sync::{Arc, OnceLock};

use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, ValidationError, Validator, ValidatorMap};
use serde_json::Value;

use issues::Documents;
pub use issues::{Issue, summary};
pub(crate) use issues::{shown, step_into};
pub(crate) use plan::{Branch, Node, NodeId, Plan, Types};

/// Backtracking steps of one `pattern` on one string.
const BACKTRACK_LIMIT: usize = 100_000;

/// A JSON Schema with its validator. Clones share it.
#[derive(Clone)]
pub struct Schema {
    inner: Arc<Inner>,
}

struct Inner {
    value: Value,
    validator: Validator,
    plan: Plan,
    /// Validators of parts, compiled when a repair first has to choose between branches.
    parts: OnceLock<Option<ValidatorMap>>,
}

/// A schema that can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the schema is not usable at `{pointer}`: {problem}; {fix}")]
pub struct SchemaError {
    pointer: String,
    problem: String,
    fix: String,
}

impl SchemaError {
    fn new(pointer: &str, problem: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { pointer: format!("#{pointer}"), problem: problem.into(), fix: fix.into() }
    }

    /// Where in the schema, as a JSON pointer that starts with `#`.
    pub fn pointer(&self) -> &str {
        &self.pointer
    }

    /// What is wrong there.
    pub fn problem(&self) -> &str {
        &self.problem
    }

    /// What to do about it.
    pub fn fix(&self) -> &str {
        &self.fix
    }
}

impl Schema {
    /// The schema of a tool's input. Arguments are an object, so a schema without `type` gets `"type": "object"` (clients refuse a tool
    /// that leaves it out) and any other type is refused.
    pub fn new(schema: Value) -> Result<Self, SchemaError> {
        let Value::Object(mut map) = schema else {
            let problem = format!("{} is given", shown(&schema));
            return Err(SchemaError::new("", problem, "give an object such as {\"type\": \"object\", \"properties\": {}}"));
        };
        let is_object = match map.get("type") {
            Some(Value::String(name)) => name == "object",
            Some(Value::Array(names)) => names.len() == 1 && names.first().is_some_and(|name| name == "object"),
            Some(_) => false,
            None => true,
        };
        if !is_object {
            let given = map.get("type").map(shown).unwrap_or_default();
            return Err(SchemaError::new("/type", format!("a tool's input is an object, not {given}"), "say \"type\": \"object\""));
        }
        if map.contains_key("type") {
            map.insert("type".to_owned(), "object".into());
        } else {
            map.shift_insert(0, "type".to_owned(), "object".into());
        }
        Self::any(Value::Object(map))
    }

    /// A schema of any value, such as the one of a tool's output.
    pub fn any(schema: Value) -> Result<Self, SchemaError> {
        if !crate::json::is_within(&schema, crate::json::MAX_DEPTH) {
            return Err(SchemaError::new("", "it is more than 128 levels deep", "move inner parts under $defs and refer to them"));
        }
        let validator = options().build(&schema).map_err(|error| refused(&schema, &error))?;
        let plan = Plan::new(&schema, validator.draft());
        Ok(Self { inner: Arc::new(Inner { value: schema, validator, plan, parts: OnceLock::new() }) })
    }

    /// The schema as JSON, in declaration order.
    pub fn as_value(&self) -> &Value {
        &self.inner.value
    }

    /// Whether a value holds.
    pub fn is_valid(&self, value: &Value) -> bool {
        self.inner.plan.is_affordable(value) && self.inner.validator.is_valid(value)
    }

    /// Everything that is wrong with a value; empty when it holds.
    pub fn validate(&self, value: &Value) -> Vec<Issue> {
        if self.is_valid(value) {
            return Vec::new();
        }
        if !self.inner.plan.is_affordable(value) {
            return vec![Issue::root("is nested too deeply to be checked against the alternatives of its schema; make it flatter")];
        }
        let documents = Documents { schema: &self.inner.value, value };
        let mut issues = issues::collect(documents, self.inner.validator.iter_errors(value));
        // Callers take "no issues" for "holds".
        if issues.is_empty() {
            issues.push(Issue::root("does not hold for the schema"));
        }
        issues
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.inner.plan
    }

    /// Whether a value holds for the part of the schema at a pointer; `None` where that part has no validator of its own.
    pub(crate) fn part_is_valid(&self, pointer: &str, value: &Value) -> Option<bool> {
        let parts = self.inner.parts.get_or_init(|| options().build_map(&self.inner.value).ok());
        Some(parts.as_ref()?.get(pointer)?.is_valid(value))
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Schema").field(&self.inner.value).finish()
    }
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner) || self.inner.value == other.inner.value
    }
}

impl serde::Serialize for Schema {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.inner.value.serialize(serializer)
    }
}

fn options<'i>() -> jsonschema::ValidationOptions<'i> {
    jsonschema::options()
        .offline()
        .should_validate_formats(false)
        .with_pattern_options(PatternOptions::fancy_regex().backtrack_limit(BACKTRACK_LIMIT))
}

fn refused(schema: &Value, error: &ValidationError<'_>) -> SchemaError {
    use jsonschema::ReferencingError;

    let pointer = error.instance_path().as_str();
    match error.kind() {
        ValidationErrorKind::Referencing(ReferencingError::Unretrievable { uri, .. }) => SchemaError::new(
            &place_of(schema, uri, &mut String::new()).unwrap_or_default(),
            format!("the reference to `{}` leaves the schema, and references are never fetched", crate::text::cut(uri, 200)),
            "put what it names under $defs and refer to \"#/$defs/...\"",
        ),
        ValidationErrorKind::Referencing(ReferencingError::UnknownSpecification { specification }) => SchemaError::new(
            "/$schema",
            format!("the dialect `{}` is not known, and none is ever fetched", crate::text::cut(specification, 200)),
            "leave $schema out, or say \"https://json-schema.org/draft/2020-12/schema\"",
        ),
        ValidationErrorKind::Referencing(other) => SchemaError::new(
            pointer,
            format!("a reference can't be followed ({other})"),
            "refer to something that stands in the schema, such as \"#/$defs/...\"",
        ),
        _ if pointer.ends_with("/type") => SchemaError::new(
            pointer,
            format!("{} is no JSON Schema type", shown(error.instance())),
            "use string, number, integer, boolean, object, array or null",
        ),
        _ => {
            let issue = issues::describe(Documents { schema: &Value::Null, value: schema }, error).into_iter().next();
            let problem = issue.map_or_else(|| "it is not valid".to_owned(), |issue| issue.message);
            SchemaError::new(pointer, problem, "see JSON Schema 2020-12 for what this keyword takes")
        }
    }
}

/// The pointer to the first reference that a URI came from; relative ones are the end of it.
fn place_of(schema: &Value, uri: &str, pointer: &mut String) -> Option<String> {
    let length = pointer.len();
    let mut enter = |step: &str, inner: &Value| {
        pointer.push('/');
        pointer.push_str(&step.replace('~', "~0").replace('/', "~1"));
        let found = match inner {
            Value::String(reference) if step == "$ref" || step == "$dynamicRef" => {
                let document = reference.split('#').next().unwrap_or_default().trim_start_matches("./");
                (!document.is_empty() && uri.ends_with(document)).then(|| pointer.clone())
            }
            inner => place_of(inner, uri, pointer),
        };
        pointer.truncate(length);
        found
    };
    match schema {
        Value::Object(map) => map.iter().find_map(|(name, inner)| enter(name, inner)),
        Value::Array(items) => items.iter().enumerate().find_map(|(index, inner)| enter(&index.to_string(), inner)),
        _ => None,
    }
}
