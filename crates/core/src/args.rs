//! Reading a call's arguments: parse, repair what is lossless, fill defaults, validate.
//!
//! The rule of the house: repair only what loses nothing and can mean only one thing, say what was repaired, then validate. What is not
//! on this list is an issue for the model to act on:
//!
//! | written | read as |
//! |---|---|
//! | empty or blank text | `{}` |
//! | `null` for the arguments as a whole | `{}` |
//! | a JSON string that holds the arguments | the object in it, one level deep |
//! | a string where no string can stand, whose text is exactly a value of a type that can | that value: `"4"` is 4, `"[1]"` is `[1]`; `"04"`, `" 4"` and `"4.0"` for an integer are not |
//! | `null` for a property that may be left out and can't be null | absent |
//! | nothing, for a required property that names null as one of its types | `null` |
//! | a float without a fraction where only integers can stand | the integer, below 2^53 where floats are exact |
//! | half of a surrogate pair in a string | U+FFFD |
//!
//! Inside `anyOf` and `oneOf` a repair is made only if a single branch can be meant, or all branches that hold afterwards agree on the value.
//!
//! Defaults are no repairs: they belong to the schema's output type (`sdk-tools` 1.2), so they are filled in either way and are not
//! listed. A default that would break the schema is not filled in.

mod repair;

use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::json;
use crate::schema::{Issue, Schema, shown};

/// Whether a tool has its arguments repaired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Repair {
    /// Lossless repairs are made and listed.
    #[default]
    On,
    /// What was written is what is validated. Empty text still is `{}`, and defaults are still filled in.
    Off,
}

/// One repair, as `tool.start` lists it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RepairNote {
    /// Where, dotted; the root is empty.
    pub path: String,
    /// What was written; missing where nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub from: Option<Value>,
    /// What it was read as; missing where that is nothing.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub to: Option<Value>,
}

/// Keeps a `null` apart from a missing field.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Arguments that hold for a schema. Clones share the value and the text.
///
/// The text is what is hashed, journaled, shown to people and run: it is the value as compact JSON, keys in the order written.
#[derive(Clone, Debug)]
pub struct Arguments {
    value: Arc<Value>,
    text: Arc<str>,
    /// Worked out when it is asked for: a body runs without it.
    sha256: OnceLock<[u8; 32]>,
    repairs: Vec<RepairNote>,
}

impl PartialEq for Arguments {
    fn eq(&self, other: &Self) -> bool {
        // The hash is the text's.
        (&self.text, &self.value, &self.repairs) == (&other.text, &other.value, &other.repairs)
    }
}

impl Arguments {
    /// Reads a value that a hook or a person gave in place of the model's, under the same checks as text.
    pub fn from_value(value: Value, schema: &Schema, repair: Repair) -> Result<Self, Vec<Issue>> {
        if !json::is_within(&value, json::MAX_DEPTH) {
            return Err(vec![Issue::root("arrays and objects stand more than 128 deep")]);
        }
        let mut notes = Vec::new();
        let value = match repair {
            Repair::On => unwrapped(value, &mut notes)?,
            Repair::Off => value,
        };
        settle(value, schema, repair, notes, true)
    }

    /// The arguments, an object.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The arguments as compact JSON.
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// The hash of the text.
    pub fn sha256(&self) -> &[u8; 32] {
        self.sha256.get_or_init(|| Sha256::digest(self.text.as_bytes()).into())
    }

    /// The hash of the text in lower-case hexadecimal.
    pub fn sha256_hex(&self) -> String {
        crate::text::hex(self.sha256())
    }

    /// What was repaired, in the order of the walk.
    pub fn repairs(&self) -> &[RepairNote] {
        &self.repairs
    }

    /// The value on its own, without a copy if no clone shares it.
    pub fn into_value(self) -> Value {
        Arc::unwrap_or_clone(self.value)
    }
}

/// Reads the text that a model wrote as a call's arguments.
///
/// Never runs on a guess: text that is not JSON is one issue at the root with the position, and what does not hold for the schema is an
/// issue each with its path.
pub fn read(text: &str, schema: &Schema, repair: Repair) -> Result<Arguments, Vec<Issue>> {
    if is_blank(text) {
        return settle(Value::Object(Map::new()), schema, repair, Vec::new(), false);
    }
    let document = json::read(text).map_err(|error| not_json(&error))?;
    let mut notes = Vec::new();
    note_replaced(document.replaced, repair, &mut notes)?;
    let mut has_floats = document.has_floats;
    let value = match (document.value, repair) {
        (value @ Value::Object(_), _) | (value, Repair::Off) => value,
        (value, Repair::On) => {
            has_floats = true;
            unwrapped(value, &mut notes)?
        }
    };
    settle(value, schema, repair, notes, has_floats)
}

fn is_blank(text: &str) -> bool {
    text.chars().all(|c| c.is_whitespace() || c == '\u{feff}')
}

fn not_json(error: &json::SyntaxError) -> Vec<Issue> {
    vec![Issue::root(&format!("are not valid JSON: {error}; send one complete JSON object"))]
}

/// Notes strings that could not be read as written, or refuses them where nothing may change.
fn note_replaced(replaced: Vec<json::Replaced>, repair: Repair, notes: &mut Vec<RepairNote>) -> Result<(), Vec<Issue>> {
    if replaced.is_empty() {
        return Ok(());
    }
    if repair == Repair::Off {
        let issue =
            |replaced: json::Replaced| Issue::new(json::dotted(&replaced.path), "holds half of a surrogate pair (\\uD800 to \\uDFFF)");
        return Err(replaced.into_iter().map(issue).collect());
    }
    notes.extend(replaced.into_iter().map(|replaced| RepairNote {
        path: json::dotted(&replaced.path),
        from: Some(replaced.written.into()),
        to: Some(replaced.read.into()),
    }));
    Ok(())
}

/// The object meant by arguments that are `null`, or a string that holds them.
fn unwrapped(value: Value, notes: &mut Vec<RepairNote>) -> Result<Value, Vec<Issue>> {
    let meant = match &value {
        Value::Null => Value::Object(Map::new()),
        Value::String(text) if is_blank(text) => Value::Object(Map::new()),
        Value::String(text) => {
            let document = json::read(text).map_err(|error| not_json(&error))?;
            note_replaced(document.replaced, Repair::On, notes)?;
            match document.value {
                Value::Null => Value::Object(Map::new()),
                object @ Value::Object(_) => object,
                // Left as it was, so that the issue names what was sent.
                _ => return Ok(value),
            }
        }
        _ => return Ok(value),
    };
    notes.push(RepairNote { path: String::new(), from: Some(value), to: Some(meant.clone()) });
    Ok(meant)
}

/// From a parsed value to arguments that hold.
fn settle(value: Value, schema: &Schema, repair: Repair, mut notes: Vec<RepairNote>, has_floats: bool) -> Result<Arguments, Vec<Issue>> {
    if !value.is_object() {
        return Err(vec![Issue::root(&format!("must be a JSON object, not {}", shown(&value)))]);
    }
    let plan = schema.plan();
    if !plan.is_affordable(&value) {
        return Err(schema.validate(&value));
    }
    let has_defaults = plan.has_defaults();
    let is_whole = repair == Repair::Off || !(plan.has_integers && (has_floats || plan.has_float_defaults));
    // Most calls are right as they are; nothing is copied for them.
    if is_whole && !has_defaults && schema.is_valid(&value) {
        return sealed(value, notes);
    }
    let mut value = value;
    if repair == Repair::On && !(is_whole && schema.is_valid(&value)) {
        repair::mend(&mut value, schema, &mut notes);
    }
    if !has_defaults {
        let issues = schema.validate(&value);
        return if issues.is_empty() { sealed(value, notes) } else { Err(issues) };
    }
    let mut filled = value.clone();
    let count = repair::fill(&mut filled, schema);
    if count == Some(0) {
        let issues = schema.validate(&value);
        return if issues.is_empty() { sealed(value, notes) } else { Err(issues) };
    }
    if count.is_some() {
        if repair == Repair::On && !is_whole {
            repair::make_floats_whole(&mut filled, schema);
        }
        if schema.is_valid(&filled) {
            return sealed(filled, notes);
        }
    }
    // Defaults that break the schema are left out; then it is the value as written that counts.
    if schema.is_valid(&value) {
        return sealed(value, notes);
    }
    Err(schema.validate(if count.is_some() { &filled } else { &value }))
}

fn sealed(value: Value, repairs: Vec<RepairNote>) -> Result<Arguments, Vec<Issue>> {
    let text = serde_json::to_string(&value).map_err(|error| vec![Issue::root(&format!("can't be written as JSON ({error})"))])?;
    Ok(Arguments { value: Arc::new(value), text: text.into(), sha256: OnceLock::new(), repairs })
}

impl Arguments {
    /// Arguments that were read before, from their text as it was sealed then: the journal's. Only the syntax is checked.
    pub fn of_sealed(text: Arc<str>) -> Result<Self, Vec<Issue>> {
        let document = json::read(&text).map_err(|error| not_json(&error))?;
        Ok(Self { value: Arc::new(document.value), text, sha256: OnceLock::new(), repairs: Vec::new() })
    }

    /// Arguments that nobody checks against a schema, because they are only shown.
    pub fn unchecked(text: &str) -> Result<Self, Vec<Issue>> {
        let document = json::read(text).map_err(|error| not_json(&error))?;
        sealed(document.value, Vec::new())
    }

    /// No arguments: `{}`.
    pub fn empty() -> Self {
        Self { value: Arc::new(Value::Object(Map::new())), text: Arc::from("{}"), sha256: OnceLock::new(), repairs: Vec::new() }
    }
}
