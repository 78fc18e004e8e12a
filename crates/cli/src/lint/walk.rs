//! Through a schema, part by part. Names of properties are not keywords, and nothing is looked at twice.

use serde_json::{Map, Value};

use super::{resolve, step};

/// Keywords whose value is one schema.
const ONE: [&str; 12] = [
    "additionalProperties",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    "additionalItems",
    "contentSchema",
];
/// Keywords whose value is a list of schemas.
const LIST: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];
/// Keywords whose value is an object of schemas.
const NAMED: [&str; 5] = ["$defs", "definitions", "dependentSchemas", "patternProperties", "properties"];
/// Schemas that are nested more deeply are refused elsewhere.
const DEPTH: usize = 128;

/// Visits every schema within `schema`, itself first, with its pointer.
pub(super) fn each<'s>(schema: &'s Value, visit: &mut dyn FnMut(&str, &'s Map<String, Value>)) {
    enter(schema, "", 0, visit);
}

fn enter<'s>(schema: &'s Value, pointer: &str, depth: usize, visit: &mut dyn FnMut(&str, &'s Map<String, Value>)) {
    let Value::Object(map) = schema else { return };
    if depth > DEPTH {
        return;
    }
    visit(pointer, map);
    for (keyword, value) in map {
        let inner = step(pointer, keyword);
        match value {
            Value::Object(_) if ONE.contains(&keyword.as_str()) => enter(value, &inner, depth + 1, visit),
            // The older form of `prefixItems`.
            Value::Array(list) if LIST.contains(&keyword.as_str()) || keyword == "items" => {
                for (index, schema) in list.iter().enumerate() {
                    enter(schema, &step(&inner, &index.to_string()), depth + 1, visit);
                }
            }
            Value::Object(named) if NAMED.contains(&keyword.as_str()) => {
                for (name, schema) in named {
                    enter(schema, &step(&inner, name), depth + 1, visit);
                }
            }
            _ => {}
        }
    }
}

/// A property of an object somewhere in the schema.
pub(super) struct Property {
    pub(super) name: String,
    pub(super) pointer: String,
    pub(super) is_described: bool,
}

/// Every property, at any depth.
pub(super) fn properties(root: &Value) -> Vec<Property> {
    let mut all = Vec::new();
    each(root, &mut |pointer, schema| {
        let Some(Value::Object(properties)) = schema.get("properties") else { return };
        for (name, property) in properties {
            let says = |schema: &Value| schema.get("description").and_then(Value::as_str).is_some_and(|text| !text.trim().is_empty());
            let is_described =
                says(property) || says(resolve(root, property)) || branches(property).any(|branch| says(resolve(root, branch)));
            all.push(Property { name: name.clone(), pointer: step(&step(pointer, "properties"), name), is_described });
        }
    });
    all
}

/// An optional value is often written as a choice between it and null.
fn branches(schema: &Value) -> impl Iterator<Item = &Value> {
    ["anyOf", "oneOf", "allOf"].iter().filter_map(|keyword| schema.get(*keyword)?.as_array()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_part_is_visited_once_and_names_are_no_keywords() {
        let schema = json!({
            "type": "object",
            "properties": { "format": { "type": "string" }, "list": { "items": { "anyOf": [{ "type": "null" }, { "$ref": "#/$defs/x" }] } } },
            "$defs": { "x": { "type": "object", "properties": { "a/b": { "const": 1 } } } },
        });
        let mut seen = Vec::new();
        each(&schema, &mut |pointer, _| seen.push(pointer.to_owned()));
        assert_eq!(
            seen,
            [
                "",
                "/properties/format",
                "/properties/list",
                "/properties/list/items",
                "/properties/list/items/anyOf/0",
                "/properties/list/items/anyOf/1",
                "/$defs/x",
                "/$defs/x/properties/a~1b"
            ]
        );
    }

    #[test]
    fn a_description_behind_a_reference_counts() {
        let schema = json!({
            "properties": { "a": { "$ref": "#/$defs/x" }, "b": { "anyOf": [{ "$ref": "#/$defs/x" }, { "type": "null" }] }, "c": {} },
            "$defs": { "x": { "description": "An x." } },
        });
        let bare: Vec<String> =
            properties(&schema).into_iter().filter(|property| !property.is_described).map(|property| property.name).collect();
        assert_eq!(bare, ["c"]);
    }
}
