//! What a schema is refused for, and how issues are told.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "clippy.toml allows these in test functions only, and the helpers beside them are as much a test"
)]

use serde_json::{Value, json};
use toolwright_core::schema::{Issue, Schema, summary};

fn refused(schema: Value) -> String {
    Schema::new(schema).unwrap_err().to_string()
}

fn told(schema: Value, value: &Value) -> Vec<String> {
    Schema::any(schema).unwrap().validate(value).iter().map(ToString::to_string).collect()
}

// rule: sdk-tools 1.2/1
// rule: sdk-tools 1.3/3
#[test]
fn a_schema_is_checked_when_it_is_made() {
    for (schema, said) in [
        (json!(true), "the schema is not usable at `#`: true is given; give an object such as {\"type\": \"object\", \"properties\": {}}"),
        (json!({"type": "array"}), "at `#/type`: a tool's input is an object, not the string \"array\"; say \"type\": \"object\""),
        (json!({"type": ["object", "null"]}), "a tool's input is an object, not an array"),
        (
            json!({"properties": {"a": {"type": "dict"}}}),
            "at `#/properties/a/type`: the string \"dict\" is no JSON Schema type; use string, number",
        ),
        (json!({"properties": {"a": {"minimum": "1"}}}), "at `#/properties/a/minimum`: must be a number, not the string \"1\""),
        (json!({"required": "a"}), "at `#/required`"),
        (json!({"properties": []}), "at `#/properties`"),
        (json!({"properties": {"a": {"pattern": "("}}}), "at `#/properties/a/pattern`"),
        (
            json!({"properties": {"a": {"items": {"$ref": "https://example.com/a.json"}}}}),
            "at `#/properties/a/items/$ref`: the reference to `https://example.com/a.json` leaves the schema, and references are never fetched",
        ),
        (json!({"properties": {"a": {"$ref": "#/$defs/none"}}}), "a reference can't be followed"),
        (json!({"$schema": "https://example.com/dialect"}), "at `#/$schema`: the dialect `https://example.com/dialect` is not known"),
    ] {
        let error = refused(schema);
        assert!(error.contains(said), "{error}");
    }
    let deep = (0..200).fold(json!({}), |inner, _| json!({"properties": {"a": inner}}));
    assert!(refused(deep).contains("128 levels"));
}

#[test]
fn a_tool_without_parameters_has_a_type() {
    assert_eq!(Schema::new(json!({})).unwrap().as_value(), &json!({"type": "object"}));
    let schema = Schema::new(json!({"properties": {"b": {}, "a": {}}, "type": ["object"]})).unwrap();
    // Declaration order stays (invariant 11).
    assert_eq!(schema.as_value().to_string(), r#"{"properties":{"b":{},"a":{}},"type":"object"}"#);
}

#[test]
fn references_are_followed_and_recursion_ends() {
    let schema = Schema::new(json!({
        "properties": {"root": {"$ref": "#/$defs/node"}, "target": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}},
        "$defs": {"node": {"type": "object", "properties": {"child": {"$ref": "#/$defs/node"}}, "additionalProperties": false}}
    }));
    let schema = schema.unwrap();
    assert!(schema.is_valid(&json!({"root": {"child": {"child": {}}}, "target": null})));
    let issues = schema.validate(&json!({"root": {"child": {"chid": {}}}, "target": {"child": 1}}));
    let told: Vec<String> = issues.iter().map(ToString::to_string).collect();
    assert_eq!(told, ["root.child.chid is not a known property; did you mean child?", "target.child must be an object, not 1"]);
    for circle in [
        json!({"$ref": "#"}),
        json!({"properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"$ref": "#/$defs/y"}, "y": {"$ref": "#/$defs/x"}}}),
        json!({"allOf": [{"$ref": "#"}]}),
    ] {
        // A circle without an end says nothing, and must not hang.
        if let Ok(schema) = Schema::new(circle) {
            schema.validate(&json!({"a": 1}));
        }
    }
}

// rule: sdk-tools 4.2/1
// case: field-reports 23
#[test]
fn messages_say_what_was_given_and_what_is_wanted() {
    for (schema, value, said) in [
        (json!({"type": "integer"}), json!("four"), "must be an integer, not the string \"four\""),
        (json!({"type": ["integer", "null"]}), json!(true), "must be an integer or null, not true"),
        (json!({"type": "array"}), json!("[]"), "must be an array, not the string \"[]\"; pass it as JSON directly, not as text"),
        (
            json!({"enum": ["small", "large", 3]}),
            json!("lagre"),
            "must be one of \"small\", \"large\", 3, not the string \"lagre\"; did you mean \"large\"?",
        ),
        (json!({"const": "a"}), json!([1]), "must be \"a\", not an array"),
        (json!({"minimum": 1}), json!(0), "must be at least 1, not 0"),
        (json!({"exclusiveMaximum": 1}), json!(1), "must be less than 1, not 1"),
        (json!({"multipleOf": 5}), json!(7), "must be a multiple of 5, not 7"),
        (json!({"minLength": 2}), json!("é"), "must have at least 2 characters, not 1"),
        (json!({"maxItems": 1}), json!([1, 2]), "must have at most 1 item, not 2"),
        (json!({"minProperties": 2}), json!({"a": 1}), "must have at least 2 properties, not 1"),
        (json!({"uniqueItems": true}), json!([1, 1]), "must not hold the same item twice"),
        (json!({"pattern": "^a+$"}), json!("b"), "must match the pattern ^a+$, not the string \"b\""),
        (json!({"properties": {"a": false}}), json!({"a": 1}), "a is not allowed here"),
        (json!({"required": ["a"]}), json!({}), "a is required"),
        (
            json!({"properties": {"b": {}, "c": {}}, "additionalProperties": false}),
            json!({"x": 1}),
            "x is not a known property; known are b, c",
        ),
        (json!({"additionalProperties": false}), json!({"x": 1}), "x is not a known property; leave it out"),
        (
            json!({"propertyNames": {"maxLength": 2}}),
            json!({"abc": 1}),
            "abc has a name that is not allowed: it must have at most 2 characters, not 3",
        ),
        (
            json!({"anyOf": [{"type": "integer"}, {"type": "boolean"}]}),
            json!("x"),
            "the string \"x\" fits none of the alternatives: must be an integer, not the string \"x\" / must be true or false, not the string \"x\"",
        ),
        (json!({"anyOf": [{"type": "object", "required": ["a"]}, {"type": "null"}]}), json!({}), "a is required"),
        (
            json!({"oneOf": [{"properties": {"k": {"const": 1}, "a": {"type": "string"}}}, {"properties": {"k": {"const": 2}}, "required": ["b"]}]}),
            json!({"k": 2}),
            "b is required",
        ),
        (json!({"oneOf": [{}, {"type": "string"}]}), json!("x"), "fits more than one of the alternatives; it must fit exactly one"),
        (json!({"format": "date"}), json!("never"), ""),
    ] {
        assert_eq!(told(schema.clone(), &value).join("|"), said, "{schema}");
    }
}

#[test]
fn messages_are_bounded() {
    let options: Vec<String> = (0..5_000).map(|n| format!("option-{n}")).collect();
    let long = "é".repeat(100_000);
    let schema = json!({"properties": {"a": {"enum": options}, "b": {"type": "integer"}, "c": {"pattern": "x".repeat(9_000)}}});
    let schema = Schema::new(schema).unwrap();
    let issues = schema.validate(&json!({"a": long, "b": long, "c": long}));
    assert_eq!(issues.len(), 3);
    assert!(issues.iter().all(|issue| issue.message.chars().count() <= 600));
    assert!(issues[0].message.contains("and 4976 more"), "{}", issues[0].message);
    let many: Vec<Issue> = (0..500).map(|n| Issue::new(format!("p{n}"), "is required")).collect();
    let summary = summary("book_room", &many);
    assert!(summary.chars().count() <= 2_000 && summary.starts_with("the arguments of book_room have 500 issues: p0 is required; p1"));
}

#[test]
fn a_pattern_that_backtracks_for_ever_is_an_issue() {
    let schema = json!({"type": "string", "pattern": "^(?=(a+)+$)(a|aa)+b$"});
    let issues = told(schema, &json!("a".repeat(60)));
    assert_eq!(issues.len(), 1, "{issues:?}");
}
