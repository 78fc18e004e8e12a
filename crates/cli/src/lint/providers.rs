//! What providers take of a tool's definition, as data. Each row says where it comes from; what a provider does not take, the gate still
//! checks before a tool's body runs.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

use super::walk;

/// What becomes of a part of a schema at a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// A request that has it is refused, so it has to be left out or written in another way.
    Refused,
    /// It is taken, and calls need not keep to it.
    Ignored,
}

/// A part of a schema that a provider loses.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Loss {
    /// The provider.
    pub provider: &'static str,
    /// What is lost: a keyword, or what it says.
    pub what: String,
    /// What becomes of it there.
    pub effect: Effect,
    /// Where it stands, as JSON pointers.
    pub places: Vec<String>,
}

/// What one provider takes.
#[derive(Debug)]
pub struct Provider {
    /// Its name, and its mode where that matters.
    pub name: &'static str,
    /// Its rule for names of tools.
    pub tool_name: NameRule,
    /// Its rule for names of parameters, where it has one.
    pub parameter_name: Option<NameRule>,
    /// Keywords it does not take.
    pub keywords: &'static [(&'static str, Effect)],
    /// The only formats of strings it takes; `None` for any.
    pub formats: Option<(&'static [&'static str], Effect)>,
    /// Whether every property has to be required.
    pub all_required: bool,
    /// Whether every object has to say `additionalProperties: false`.
    pub closed_objects: bool,
    /// Whether `type` has to be one word.
    pub single_type: bool,
    /// Whether `enum` has to be of strings.
    pub text_enums: bool,
}

/// A rule for names.
#[derive(Clone, Copy, Debug)]
pub struct NameRule {
    /// The longest, in characters.
    pub longest: usize,
    /// What may stand in it besides letters and digits of ASCII.
    pub also: &'static str,
    /// Whether it has to begin with a letter or `_`.
    pub begins_with_letter: bool,
}

/// The providers that are looked at.
pub const PROVIDERS: [Provider; 3] = [
    // Chat Completions with `strict: true`, which alone makes calls keep to the schema. Its guide on structured outputs lists what it
    // takes (numbers: multipleOf and the four bounds; strings: pattern and nine formats; arrays: minItems and maxItems; anyOf, $ref,
    // enum, const), and it answers "is not permitted" to the rest, `default` included. Without `strict` a schema is a hint, and taken whole.
    Provider {
        name: "openai (strict)",
        tool_name: NameRule { longest: 64, also: "_-", begins_with_letter: false },
        parameter_name: None,
        keywords: &[
            ("allOf", Effect::Refused),
            ("contains", Effect::Refused),
            ("default", Effect::Refused),
            ("dependentRequired", Effect::Refused),
            ("dependentSchemas", Effect::Refused),
            ("if", Effect::Refused),
            ("maxLength", Effect::Refused),
            ("maxProperties", Effect::Refused),
            ("minLength", Effect::Refused),
            ("minProperties", Effect::Refused),
            ("not", Effect::Refused),
            ("oneOf", Effect::Refused),
            ("patternProperties", Effect::Refused),
            ("prefixItems", Effect::Refused),
            ("propertyNames", Effect::Refused),
            ("unevaluatedItems", Effect::Refused),
            ("unevaluatedProperties", Effect::Refused),
            ("uniqueItems", Effect::Refused),
        ],
        formats: Some((&["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"], Effect::Refused)),
        all_required: true,
        closed_objects: true,
        single_type: false,
        text_enums: false,
    },
    // The Messages API takes JSON Schema 2020-12 whole and guides the model by it, but for unions at the root (a finding of its own) and
    // for names of properties, which it checks against `^[a-zA-Z0-9_.-]{1,64}$`.
    Provider {
        name: "anthropic",
        tool_name: NameRule { longest: 64, also: "_-", begins_with_letter: false },
        parameter_name: Some(NameRule { longest: 64, also: "_.-", begins_with_letter: false }),
        keywords: &[],
        formats: None,
        all_required: false,
        closed_objects: false,
        single_type: false,
        text_enums: false,
    },
    // `functionDeclarations[].parameters` is a subset of OpenAPI 3.0: a field that its Schema message does not have is an unknown name and
    // refused, and so are formats of strings other than two. (`parametersJsonSchema` takes more; which models heed it differs.)
    Provider {
        name: "gemini",
        tool_name: NameRule { longest: 64, also: "_.-", begins_with_letter: true },
        parameter_name: None,
        keywords: &[
            ("$ref", Effect::Refused),
            ("additionalProperties", Effect::Refused),
            ("allOf", Effect::Refused),
            ("const", Effect::Refused),
            ("contains", Effect::Refused),
            ("default", Effect::Ignored),
            ("dependentRequired", Effect::Refused),
            ("dependentSchemas", Effect::Refused),
            ("exclusiveMaximum", Effect::Refused),
            ("exclusiveMinimum", Effect::Refused),
            ("if", Effect::Refused),
            ("multipleOf", Effect::Refused),
            ("not", Effect::Refused),
            ("oneOf", Effect::Refused),
            ("patternProperties", Effect::Refused),
            ("prefixItems", Effect::Refused),
            ("propertyNames", Effect::Refused),
            ("unevaluatedItems", Effect::Refused),
            ("unevaluatedProperties", Effect::Refused),
            ("uniqueItems", Effect::Refused),
        ],
        formats: Some((&["enum", "date-time"], Effect::Refused)),
        all_required: false,
        closed_objects: false,
        single_type: true,
        text_enums: true,
    },
];

/// What providers lose of a schema, provider by provider.
pub(super) fn losses(schema: &Value) -> Vec<Loss> {
    let mut all = Vec::new();
    for provider in &PROVIDERS {
        // In the order of what is lost, so that the same schema gives the same report.
        let mut lost: BTreeMap<(String, Effect), Vec<String>> = BTreeMap::new();
        walk::each(schema, &mut |pointer, part| {
            for (what, effect) in provider.lost_of(part) {
                lost.entry((what, effect)).or_default().push(if pointer.is_empty() { "/".to_owned() } else { pointer.to_owned() });
            }
        });
        all.extend(lost.into_iter().map(|((what, effect), places)| Loss { provider: provider.name, what, effect, places }));
    }
    all
}

impl Provider {
    /// What is lost of one part, its inner parts aside.
    fn lost_of(&self, part: &Map<String, Value>) -> Vec<(String, Effect)> {
        let mut lost: Vec<(String, Effect)> = self
            .keywords
            .iter()
            .filter(|(keyword, _)| part.contains_key(*keyword))
            .map(|(keyword, effect)| ((*keyword).to_owned(), *effect))
            .collect();
        let is = |kind: &str| match part.get("type") {
            Some(Value::String(word)) => word == kind,
            Some(Value::Array(words)) => words.iter().any(|word| word == kind),
            _ => false,
        };
        if let (Some((formats, effect)), Some(Value::String(format))) = (self.formats, part.get("format"))
            // Formats of numbers say how wide they are, and are annotations everywhere.
            && !is("number") && !is("integer") && !formats.contains(&format.as_str())
        {
            lost.push((format!("format {format}"), effect));
        }
        if self.single_type && matches!(part.get("type"), Some(Value::Array(_))) {
            lost.push(("a list of types".to_owned(), Effect::Refused));
        }
        if self.text_enums && part.get("enum").and_then(Value::as_array).is_some_and(|values| values.iter().any(|value| !value.is_string()))
        {
            lost.push(("an enum of other values than texts".to_owned(), Effect::Refused));
        }
        if self.all_required
            && let Some(Value::Object(properties)) = part.get("properties")
        {
            let required = part.get("required").and_then(Value::as_array);
            if properties.keys().any(|name| !required.is_some_and(|names| names.iter().any(|other| other == name))) {
                lost.push(("optional properties".to_owned(), Effect::Refused));
            }
        }
        if self.closed_objects && is("object") && part.get("additionalProperties") != Some(&Value::Bool(false)) {
            lost.push(("an open object".to_owned(), Effect::Refused));
        }
        lost
    }
}

/// Which providers refuse a tool's name, and why; those that agree stand together.
pub(super) fn name_problems(name: &str) -> Vec<(Vec<&'static str>, String)> {
    problems(name, |provider| Some(provider.tool_name))
}

/// Which providers refuse a parameter's name.
pub(super) fn property_problems(name: &str) -> Vec<(Vec<&'static str>, String)> {
    problems(name, |provider| provider.parameter_name)
}

fn problems(name: &str, rule: impl Fn(&Provider) -> Option<NameRule>) -> Vec<(Vec<&'static str>, String)> {
    let mut all: Vec<(Vec<&'static str>, String)> = Vec::new();
    for provider in &PROVIDERS {
        let Some(problem) = rule(provider).and_then(|rule| rule.problem(name)) else { continue };
        match all.iter_mut().find(|(_, other)| *other == problem) {
            Some((providers, _)) => providers.push(provider.name),
            None => all.push((vec![provider.name], problem)),
        }
    }
    all
}

impl NameRule {
    fn problem(&self, name: &str) -> Option<String> {
        let first = name.chars().next();
        match first {
            None => return Some("is empty".to_owned()),
            Some(first) if self.begins_with_letter && !first.is_ascii_alphabetic() && first != '_' => {
                return Some(format!("begins with {first:?}"));
            }
            Some(_) => {}
        }
        if let Some(bad) = name.chars().find(|c| !c.is_ascii_alphanumeric() && !self.also.contains(*c)) {
            return Some(format!("has the character {bad:?}"));
        }
        let count = name.chars().count();
        (count > self.longest).then(|| format!("has {count} characters, and {} is the most", self.longest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lost(schema: &Value, provider: &str) -> Vec<String> {
        losses(schema)
            .into_iter()
            .filter(|loss| loss.provider == provider)
            .map(|loss| format!("{} {}", loss.what, loss.places.join(" ")))
            .collect()
    }

    #[test]
    fn a_schema_that_everyone_takes_loses_nothing() {
        let schema = json!({ "type": "object", "properties": { "a": { "type": "string" } }, "required": ["a"] });
        assert_eq!(lost(&schema, "gemini"), [""; 0]);
        assert_eq!(lost(&schema, "anthropic"), [""; 0]);
        assert_eq!(lost(&schema, "openai (strict)"), ["an open object /"]);
    }

    #[test]
    fn what_is_lost_has_its_place() {
        let schema = json!({
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "site": { "type": "string", "format": "uri", "minLength": 1 },
                "level": { "type": ["integer", "null"], "exclusiveMinimum": 0, "format": "int32" },
                "kind": { "oneOf": [{ "const": "a" }, { "enum": [1, 2] }] },
            },
            "required": ["site", "level", "kind"],
        });
        assert_eq!(
            lost(&schema, "openai (strict)"),
            ["format uri /properties/site", "minLength /properties/site", "oneOf /properties/kind"]
        );
        assert_eq!(
            lost(&schema, "gemini"),
            [
                "a list of types /properties/level",
                "additionalProperties /",
                "an enum of other values than texts /properties/kind/oneOf/1",
                "const /properties/kind/oneOf/0",
                "exclusiveMinimum /properties/level",
                "format uri /properties/site",
                "oneOf /properties/kind",
            ]
        );
    }

    #[test]
    fn names_are_told_with_who_refuses_them() {
        let say = |name: &str| {
            name_problems(name).into_iter().map(|(providers, problem)| format!("{}: {problem}", providers.join(", "))).collect::<Vec<_>>()
        };
        assert_eq!(say("get_weather-2"), [""; 0]);
        assert_eq!(say("9lives"), ["gemini: begins with '9'"]);
        assert_eq!(say("admin.list"), ["openai (strict), anthropic: has the character '.'"]);
        assert_eq!(say(&"x".repeat(65)), ["openai (strict), anthropic, gemini: has 65 characters, and 64 is the most"]);
        assert_eq!(say(""), ["openai (strict), anthropic, gemini: is empty"]);
    }
}
