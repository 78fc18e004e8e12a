//! What holds of reading for all arguments and schemas.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "clippy.toml allows these in test functions only, and the helpers beside them are as much a test"
)]

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use toolwright_core::args::{Arguments, Repair, read};
use toolwright_core::schema::Schema;

/// Scalars that schemas and arguments share, so that they meet often.
fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3_i64..6).prop_map(Value::from),
        prop::sample::select(vec![4.0, 0.5, -0.0, 1e30, 9_007_199_254_740_993.0]).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        prop::sample::select(vec![
            "",
            "4",
            "4.0",
            "4.5",
            "04",
            "-1",
            "true",
            "null",
            "a",
            "b",
            "[]",
            "{}",
            "[\"4\"]",
            "{\"a\":\"4\"}",
            "{\"a\":null}"
        ])
        .prop_map(Value::from),
        ".{0,4}".prop_map(Value::from),
    ]
}

fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "c", "kind"]).prop_map(str::to_owned)
}

fn value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name(), inner.clone()), 0..4).prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
            // A value encoded in a string.
            inner.prop_map(|value| Value::String(value.to_string())),
        ]
    })
}

fn arguments() -> impl Strategy<Value = Value> {
    prop::collection::vec((name(), value()), 0..4).prop_map(|pairs| Value::Object(pairs.into_iter().collect()))
}

fn subschema() -> impl Strategy<Value = Value> {
    let one = prop::sample::select(vec!["string", "integer", "number", "boolean", "null", "array", "object"]);
    let leaf = prop_oneof![
        one.clone().prop_map(|name| json!({ "type": name })),
        prop::collection::btree_set(one, 2..4).prop_map(|names| json!({ "type": names })),
        prop::collection::vec(scalar(), 1..4).prop_map(|options| json!({ "enum": options })),
        scalar().prop_map(|value| json!({ "const": value })),
        Just(json!({})),
        Just(json!({"$ref": "#"})),
        Just(json!({"$ref": "#/$defs/d"})),
    ];
    let schema = leaf.prop_recursive(3, 24, 3, |inner| {
        prop_oneof![
            object(inner.clone()),
            inner.clone().prop_map(|items| json!({"type": "array", "items": items})),
            prop::collection::vec(inner.clone(), 1..3).prop_map(|schemas| json!({"type": "array", "prefixItems": schemas})),
            prop::collection::vec(inner.clone(), 1..4).prop_map(|schemas| json!({"anyOf": schemas})),
            prop::collection::vec(inner.clone(), 1..4).prop_map(|schemas| json!({"oneOf": schemas})),
            prop::collection::vec(inner, 1..3).prop_map(|schemas| json!({"allOf": schemas})),
        ]
    });
    (schema, prop::option::weighted(0.2, value())).prop_map(|(mut schema, default)| {
        if let (Some(default), Value::Object(map)) = (default, &mut schema) {
            map.insert("default".to_owned(), default);
        }
        schema
    })
}

fn object(inner: impl Strategy<Value = Value> + Clone) -> impl Strategy<Value = Value> {
    let properties = prop::collection::vec((name(), inner.clone()), 0..4);
    (properties, prop::collection::btree_set(name(), 0..3), prop::option::of(prop_oneof![Just(json!(false)), inner])).prop_map(
        |(properties, required, additional)| {
            let properties: Map<String, Value> = properties.into_iter().collect();
            let mut schema = json!({"type": "object", "properties": properties, "required": required});
            if let (Some(additional), Value::Object(map)) = (additional, &mut schema) {
                map.insert("additionalProperties".to_owned(), additional);
            }
            schema
        },
    )
}

fn schema() -> impl Strategy<Value = Schema> {
    (object(subschema().boxed()), subschema()).prop_map(|(mut root, shared)| {
        if let Value::Object(map) = &mut root {
            map.insert("$defs".to_owned(), json!({ "d": shared }));
        }
        Schema::new(root).unwrap()
    })
}

/// Whether `read` is `written` with defaults added, at any depth.
fn only_adds(written: &Value, read: &Value) -> bool {
    match (written, read) {
        (Value::Object(written), Value::Object(read)) => {
            written.iter().all(|(name, value)| read.get(name).is_some_and(|read| only_adds(value, read)))
        }
        (Value::Array(written), Value::Array(read)) => {
            written.len() == read.len() && written.iter().zip(read).all(|(written, read)| only_adds(written, read))
        }
        _ => written == read,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn what_was_read_holds_and_reads_as_itself(schema in schema(), arguments in arguments()) {
        if let Ok(args) = read(&arguments.to_string(), &schema, Repair::On) {
            prop_assert!(schema.is_valid(args.value()));
            prop_assert_eq!(serde_json::from_str::<Value>(args.text()).unwrap(), args.value().clone());
            let again = read(args.text(), &schema, Repair::On).unwrap();
            prop_assert_eq!(again.text(), args.text());
            prop_assert!(again.repairs().is_empty(), "{:?}", again.repairs());
            prop_assert_eq!(again.sha256(), args.sha256());
        }
    }

    #[test]
    fn what_is_refused_says_why(schema in schema(), arguments in arguments()) {
        for repair in [Repair::On, Repair::Off] {
            if let Err(issues) = read(&arguments.to_string(), &schema, repair) {
                prop_assert!(!issues.is_empty());
                for issue in issues {
                    prop_assert!(!issue.message.is_empty() && issue.message.chars().count() <= 600);
                }
            }
        }
    }

    #[test]
    fn text_and_value_read_the_same(schema in schema(), arguments in arguments()) {
        let text = read(&arguments.to_string(), &schema, Repair::On);
        prop_assert_eq!(text, Arguments::from_value(arguments, &schema, Repair::On));
    }

    #[test]
    fn with_repair_off_values_stay(schema in schema(), arguments in arguments()) {
        if let Ok(args) = read(&arguments.to_string(), &schema, Repair::Off) {
            prop_assert!(args.repairs().is_empty());
            prop_assert!(only_adds(&arguments, args.value()), "{arguments} became {}", args.text());
        }
    }

    #[test]
    fn what_holds_as_written_is_never_refused_for_a_repair(schema in schema(), arguments in arguments()) {
        if schema.is_valid(&arguments) {
            prop_assert!(read(&arguments.to_string(), &schema, Repair::On).is_ok());
        }
    }

    #[test]
    fn reading_never_panics(schema in schema(), text in ".{0,40}", shape in "[{}\\[\\]\",:0-9a-d\\\\ ]{0,40}") {
        for text in [text, shape] {
            for repair in [Repair::On, Repair::Off] {
                let _ = read(&text, &schema, repair);
            }
        }
    }

    #[test]
    fn any_json_is_a_schema_or_refused(value in value()) {
        if let Err(error) = Schema::any(value.clone()) {
            prop_assert!(error.pointer().starts_with('#') && !error.fix().is_empty());
        }
        let _ = Schema::new(value);
    }
}
