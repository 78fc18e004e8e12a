//! How arguments are read: what is repaired, what is not, and what a model is told.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::needless_pass_by_value,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "clippy.toml allows these in test functions only, and the helpers beside them are as much a test"
)]

use serde_json::{Value, json};
use toolwright_core::args::{Arguments, Repair, RepairNote, read};
use toolwright_core::schema::{Issue, Schema};

fn schema(value: Value) -> Schema {
    Schema::new(value).unwrap()
}

fn properties(value: Value) -> Schema {
    schema(json!({"type": "object", "properties": value, "additionalProperties": false}))
}

/// The text that arguments are read as, and the paths that were repaired.
fn good(text: &str, schema: &Schema) -> (String, Vec<String>) {
    let args = read(text, schema, Repair::On).unwrap_or_else(|issues| panic!("{text}: {issues:?}"));
    (args.text().to_string(), args.repairs().iter().map(|note| note.path.clone()).collect())
}

/// The issues of arguments that do not hold.
fn bad(text: &str, schema: &Schema) -> Vec<(String, String)> {
    let issues = read(text, schema, Repair::On).map(|args| args.text().to_string()).unwrap_err();
    issues.into_iter().map(|issue| (issue.path, issue.message)).collect()
}

fn paths(issues: &[(String, String)]) -> Vec<&str> {
    issues.iter().map(|(path, _)| path.as_str()).collect()
}

fn note(path: &str, from: Option<Value>, to: Option<Value>) -> RepairNote {
    RepairNote { path: path.to_owned(), from, to }
}

// rule: sdk-tools 4.1/1
#[test]
fn what_holds_is_read_as_written() {
    let schema = properties(json!({"b": {"type": "string"}, "a": {"type": "integer"}}));
    let args = read("{ \"b\" : \"x\", \"a\": 1 }", &schema, Repair::On).unwrap();
    // Keys stay in the order written (invariant 11).
    assert_eq!(&**args.text(), r#"{"b":"x","a":1}"#);
    assert_eq!(args.value(), &json!({"b": "x", "a": 1}));
    assert!(args.repairs().is_empty());
    assert_eq!(args.sha256_hex(), "3dc6ec680b7b614742aac293b2504cd90ae0d83d9a093fcd6847e04e8262c1c2");
}

// case: field-reports 20
// case: field-reports 22
// case: field-reports 146
// case: rust-reports A-7
// case: rust-reports A-8
#[test]
fn no_arguments_are_an_empty_object() {
    let open = schema(json!({}));
    for text in ["", "  ", "\n\t", "\u{feff}", "null", "{}", "\"\"", "\"{}\"", "\"null\""] {
        assert_eq!(good(text, &open).0, "{}", "{text:?}");
    }
    assert_eq!(good("", &open).1, [""; 0]);
    assert_eq!(good("null", &open).1, [""]);
    // Then the schema decides.
    let needs = schema(json!({"properties": {"city": {"type": "string"}}, "required": ["city"]}));
    assert_eq!(bad("", &needs), [("city".to_owned(), "is required: a string".to_owned())]);
}

// rule: sdk-tools 4.1/6
// case: field-reports 14
// case: rust-reports A-5
// case: rust-reports A-16
// case: rust-reports A-20
#[test]
fn text_that_is_not_json_is_one_issue_at_the_root() {
    let open = schema(json!({}));
    for text in [r#"{"location": "Paris""#, "{", "nope", "{'a': 1}", "{} trailing", r#"{"a":1,"a":2}"#, "{\"a\":", "\"{\\\"a\\\"\""] {
        for repair in [Repair::On, Repair::Off] {
            let issues = read(text, &open, repair).unwrap_err();
            assert_eq!(issues.len(), 1, "{text}");
            assert_eq!(issues[0].path, "");
        }
    }
    assert_eq!(
        bad(r#"{"location": "Paris""#, &open)[0].1,
        "are not valid JSON: the text ends where `,` or `}` was expected at line 1 column 21; send one complete JSON object"
    );
}

// case: rust-reports A-2
#[test]
fn json_that_is_no_object_never_becomes_one() {
    let open = schema(json!({}));
    for text in ["[]", "42", "true", "[{}]", "\"[1]\"", "\"42\""] {
        let issues = bad(text, &open);
        assert_eq!(paths(&issues), [""], "{text}");
        assert!(issues[0].1.starts_with("must be a JSON object, not"), "{issues:?}");
    }
    assert!(bad("\"nope\"", &open)[0].1.contains("not valid JSON"));
    // Two levels of encoding are a guess too many.
    let twice = serde_json::to_string(&serde_json::to_string(&json!({"a": 1}).to_string()).unwrap()).unwrap();
    assert!(bad(&twice, &open)[0].1.starts_with("must be a JSON object"));
}

// case: field-reports 26
#[test]
fn arguments_encoded_twice_are_decoded_once() {
    let calls = schema(json!({
        "properties": {"calls": {"type": "array", "minItems": 1, "items": {
            "type": "object", "properties": {"name": {"type": "string"}, "arguments": {"type": "object"}}
        }}},
        "required": ["calls"]
    }));
    let right = r#"{"calls":[{"name":"a","arguments":{}}]}"#;
    assert_eq!(good(r#"{"calls":"[{\"name\":\"a\",\"arguments\":\"{}\"}]"}"#, &calls).0, right);
    let (text, repaired) = good(&serde_json::to_string(right).unwrap(), &calls);
    assert_eq!((text.as_str(), repaired), (right, vec![String::new()]));

    assert_eq!(bad(r#"{"calls":"[]"}"#, &calls), [("calls".to_owned(), "must have at least 1 item, not 0".to_owned())]);
    assert!(bad(r#"{"calls":"42"}"#, &calls)[0].1.starts_with("must be an array, not the string \"42\""));
    assert!(bad(r#"{"calls":"null"}"#, &calls)[0].1.starts_with("must be an array"));
    let message = &bad(r#"{"calls":"nope"}"#, &calls)[0].1;
    assert!(message.contains("pass it as JSON directly") && message.contains("not JSON"), "{message}");
}

// case: field-reports 23
// case: field-reports 25
#[test]
fn a_string_is_decoded_where_no_string_can_stand() {
    let schema = properties(json!({
        "i": {"type": "integer"}, "n": {"type": "number"}, "b": {"type": "boolean"},
        "o": {"type": "object"}, "a": {"type": "array"}, "in": {"type": ["integer", "null"]}, "e": {"enum": [60, 1440]}
    }));
    for (given, read_as) in [
        (json!({"i": "4"}), json!({"i": 4})),
        (json!({"i": "-4"}), json!({"i": -4})),
        (json!({"i": "18446744073709551615"}), json!({"i": 18_446_744_073_709_551_615_u64})),
        (json!({"n": "4.5"}), json!({"n": 4.5})),
        (json!({"n": "4"}), json!({"n": 4})),
        (json!({"b": "true"}), json!({"b": true})),
        (json!({"o": "{\"User-Agent\": \"x\"}"}), json!({"o": {"User-Agent": "x"}})),
        (json!({"a": " [1, 2]\n"}), json!({"a": [1, 2]})),
        (json!({"in": "200000"}), json!({"in": 200_000})),
        (json!({"e": "60"}), json!({"e": 60})),
    ] {
        let args = read(&given.to_string(), &schema, Repair::On).unwrap();
        assert_eq!(args.value(), &read_as, "{given}");
        let (name, from) = given.as_object().unwrap().iter().next().unwrap();
        assert_eq!(args.repairs(), [note(name, Some(from.clone()), Some(read_as[name].clone()))]);
    }
    for given in [
        json!({"i": "4.5"}),
        json!({"i": "04"}),
        json!({"i": "04a"}),
        json!({"i": " 4"}),
        json!({"i": "+4"}),
        json!({"i": "4.0"}),
        json!({"i": "-0"}),
        json!({"i": "1e3"}),
        json!({"i": "18446744073709551616"}),
        json!({"i": ""}),
        json!({"i": "null"}),
        json!({"i": true}),
        json!({"i": [4]}),
        json!({"n": "4.50"}),
        json!({"n": "four"}),
        json!({"b": "True"}),
        json!({"b": "yes"}),
        json!({"b": 1}),
        json!({"o": "[]"}),
        json!({"a": "{}"}),
        json!({"a": "a"}),
        json!({"a": 1}),
        json!({"in": "null"}),
        json!({"e": "61"}),
    ] {
        let name = given.as_object().unwrap().keys().next().unwrap();
        let issues = bad(&given.to_string(), &schema);
        assert_eq!(paths(&issues), [name.as_str()], "{given}");
    }
}

#[test]
fn a_string_stays_where_a_string_can_stand() {
    let schema = properties(json!({
        "s": {"type": "string"}, "list": {"type": ["string", "integer"]}, "any": {},
        "union": {"anyOf": [{"type": "string", "maxLength": 9}, {"type": "integer"}]},
        "mixed": {"enum": ["4", 4]}, "all": {"allOf": [{"type": ["integer", "string"]}, {"description": "id"}]}
    }));
    for name in ["s", "list", "any", "union", "mixed", "all"] {
        let text = json!({name: "4"}).to_string();
        assert_eq!(good(&text, &schema), (text.clone(), Vec::new()), "{name}");
    }
    // A number where text is wanted is not guessed at either.
    assert_eq!(bad(r#"{"s":4}"#, &schema), [("s".to_owned(), "must be a string, not 4".to_owned())]);
}

// case: field-reports 143
#[test]
fn null_for_what_may_be_left_out_is_absent() {
    let schema = schema(json!({
        "type": "object",
        "properties": {
            "query": {"type": "string"}, "limit": {"type": "number"}, "page": {"type": "integer", "default": 1},
            "cursor": {"type": ["string", "null"]}, "any": {}, "filter": {"type": "object", "properties": {"tag": {"type": "string"}}}
        },
        "required": ["query"]
    }));
    let args = read(r#"{"query":"cats","limit":null}"#, &schema, Repair::On).unwrap();
    assert_eq!(&**args.text(), r#"{"query":"cats","page":1}"#);
    assert_eq!(args.repairs(), [note("limit", Some(Value::Null), None)]);
    assert_eq!(serde_json::to_string(args.repairs()).unwrap(), r#"[{"path":"limit","from":null}]"#);

    assert_eq!(good(r#"{"query":"cats","page":null}"#, &schema).0, r#"{"query":"cats","page":1}"#);
    assert_eq!(
        good(r#"{"limit":null,"query":"cats","filter":{"tag":null},"page":2}"#, &schema).0,
        r#"{"query":"cats","filter":{},"page":2}"#
    );
    // Null that can stand, stands.
    assert_eq!(good(r#"{"query":"c","cursor":null,"any":null,"page":1}"#, &schema).1, [""; 0]);
    // And a required one is not silently dropped.
    assert_eq!(bad(r#"{"query":null}"#, &schema), [("query".to_owned(), "must be a string, not null".to_owned())]);
}

// case: field-reports 145
#[test]
fn a_required_field_that_can_be_null_may_be_left_out() {
    let schema = schema(json!({
        "type": "object",
        "properties": {
            "clientRef": {"type": ["string", "null"]}, "owner": {"anyOf": [{"$ref": "#/$defs/user"}, {"type": "null"}]}, "any": {}
        },
        "required": ["clientRef", "owner"],
        "$defs": {"user": {"type": "object", "properties": {"name": {"type": "string"}}}}
    }));
    let args = read("{}", &schema, Repair::On).unwrap();
    assert_eq!(args.value(), &json!({"clientRef": null, "owner": null}));
    assert_eq!(args.repairs(), [note("clientRef", None, Some(Value::Null)), note("owner", None, Some(Value::Null))]);
    let json = serde_json::to_string(args.repairs()).unwrap();
    assert_eq!(json, r#"[{"path":"clientRef","to":null},{"path":"owner","to":null}]"#);
    assert_eq!(serde_json::from_str::<Vec<RepairNote>>(&json).unwrap(), args.repairs());

    // A schema that only fails to rule null out does not ask for it.
    let untyped = Schema::new(json!({"properties": {"any": {}}, "required": ["any"]})).unwrap();
    assert_eq!(bad("{}", &untyped), [("any".to_owned(), "is required".to_owned())]);
}

// rule: sdk-tools 1.2/3
#[test]
fn defaults_are_filled_in_where_the_parent_is() {
    let schema = schema(json!({
        "type": "object",
        "properties": {
            "unit": {"type": "string", "default": "celsius"},
            "page": {"type": "object", "properties": {"size": {"type": "integer", "default": 10}, "at": {"type": "integer"}}},
            "sort": {"type": "object", "default": {}, "properties": {"by": {"type": "string", "default": "name"}}},
            "rows": {"type": "array", "items": {"$ref": "#/$defs/row"}},
            "wrong": {"type": "string", "default": null},
            "named": {"$ref": "#/$defs/kind"}
        },
        "$defs": {
            "row": {"type": "object", "properties": {"on": {"type": "boolean", "default": true}}},
            "kind": {"enum": ["a", "b"], "default": "a"}
        }
    }));
    for repair in [Repair::On, Repair::Off] {
        let read = |text: &str| {
            let args = read(text, &schema, repair).unwrap();
            assert!(args.repairs().is_empty());
            args.into_value()
        };
        assert_eq!(read("{}"), json!({"unit": "celsius", "sort": {"by": "name"}, "named": "a"}));
        assert_eq!(
            read(r#"{"unit":"kelvin","page":{"at":2},"rows":[{},{"on":false}],"sort":{"by":"age"},"named":"b"}"#),
            json!({
                "unit": "kelvin", "page": {"at": 2, "size": 10}, "rows": [{"on": true}, {"on": false}], "sort": {"by": "age"}, "named": "b"
            })
        );
    }
}

#[test]
fn a_default_that_breaks_the_schema_is_left_out() {
    let either = schema(json!({
        "type": "object",
        "properties": {"id": {"type": "integer"}, "name": {"type": "string", "default": "x"}},
        "oneOf": [{"required": ["id"]}, {"required": ["name"]}]
    }));
    assert_eq!(good(r#"{"id":1}"#, &either).0, r#"{"id":1}"#);
    assert_eq!(good("{}", &either).0, r#"{"name":"x"}"#);
    let endless = schema(json!({
        "$ref": "#/$defs/node",
        "$defs": {"node": {"type": "object", "properties": {"child": {"$ref": "#/$defs/node", "default": {}}}}}
    }));
    assert_eq!(good("{}", &endless).0, "{}");
}

#[test]
fn a_whole_float_is_an_integer_where_only_integers_can_stand() {
    let schema = properties(json!({"i": {"type": "integer"}, "n": {"type": "number"}, "d": {"type": "integer", "default": 3.0}}));
    let args = read(r#"{"i":4.0,"n":4.0}"#, &schema, Repair::On).unwrap();
    assert_eq!(&**args.text(), r#"{"i":4,"n":4.0,"d":3}"#);
    assert_eq!(args.repairs()[0], note("i", Some(json!(4.0)), Some(json!(4))));
    assert_eq!(paths(&bad(r#"{"i":4.5}"#, &schema)), ["i"]);
    // From here on a float may stand for more than one integer.
    assert_eq!(good(r#"{"i":9007199254740992.0,"d":1}"#, &schema).0, r#"{"i":9007199254740992.0,"d":1}"#);
}

// case: field-reports 52
#[test]
fn integers_are_exact() {
    let schema = properties(json!({"id": {"type": "integer"}}));
    for id in ["2512292042121000001", "18446744073709551615", "-9223372036854775808"] {
        let text = format!(r#"{{"id":{id}}}"#);
        assert_eq!(good(&text, &schema), (text.clone(), Vec::new()));
    }
    let issues = bad(r#"{"id":18446744073709551616}"#, &schema);
    assert_eq!(paths(&issues), [""]);
    assert!(issues[0].1.contains("18446744073709551616"), "{issues:?}");
}

// case: field-reports 50
#[test]
fn half_a_surrogate_pair_becomes_the_replacement_character() {
    let schema = properties(json!({"d": {"type": "string"}, "o": {"type": "object"}}));
    let args = read(r#"{"d":"현\ud99c 보유"}"#, &schema, Repair::On).unwrap();
    assert_eq!(&**args.text(), "{\"d\":\"현\u{fffd} 보유\"}");
    assert_eq!(args.repairs(), [note("d", Some(json!(r"현\ud99c 보유")), Some(json!("현\u{fffd} 보유")))]);
    assert_eq!(good(r#"{"o":"{\"in\":\"\\udc00\"}"}"#, &schema).1, ["o.in", "o"]);
    let issues = read(r#"{"d":"\ud99c"}"#, &schema, Repair::Off).unwrap_err();
    assert_eq!(issues[0].path, "d");
}

#[test]
fn repair_follows_references_items_and_unions() {
    let schema = schema(json!({
        "type": "object",
        "properties": {
            "tree": {"$ref": "#/$defs/node"},
            "pair": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": {"type": "boolean"}},
            "both": {"allOf": [{"type": ["integer", "boolean"]}, {"type": ["integer", "string"]}]},
            "shape": {"oneOf": [
                {"type": "object", "properties": {"kind": {"const": "circle"}, "r": {"type": "number"}}, "required": ["kind", "r"]},
                {"type": "object", "properties": {"kind": {"const": "square"}, "a": {"type": "integer"}}, "required": ["kind", "a"]}
            ]},
            "maybe": {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]},
            "either": {"anyOf": [
                {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": false},
                {"type": "object", "properties": {"y": {"type": "boolean"}}, "required": ["y"], "additionalProperties": false}
            ]}
        },
        "additionalProperties": {"type": "integer"},
        "$defs": {"node": {"type": "object", "properties": {"size": {"type": "integer"}, "child": {"$ref": "#/$defs/node"}}}}
    }));
    for (given, read_as, repaired) in [
        (
            json!({"tree": {"child": {"child": {"size": "3"}}}}),
            json!({"tree": {"child": {"child": {"size": 3}}}}),
            vec!["tree.child.child.size"],
        ),
        (json!({"tree": {"size": 1, "child": null}}), json!({"tree": {"size": 1}}), vec!["tree.child"]),
        (json!({"pair": ["1", "2", "true"]}), json!({"pair": [1, "2", true]}), vec!["pair.0", "pair.2"]),
        (json!({"both": "7"}), json!({"both": 7}), vec!["both"]),
        (json!({"shape": {"kind": "square", "a": "2"}}), json!({"shape": {"kind": "square", "a": 2}}), vec!["shape.a"]),
        (json!({"shape": "{\"kind\":\"circle\",\"r\":\"2.5\"}"}), json!({"shape": {"kind": "circle", "r": 2.5}}), vec!["shape", "shape.r"]),
        (json!({"maybe": "[\"1\"]"}), json!({"maybe": [1]}), vec!["maybe", "maybe.0"]),
        (json!({"either": {"y": "true"}}), json!({"either": {"y": true}}), vec!["either.y"]),
        (json!({"other": "9"}), json!({"other": 9}), vec!["other"]),
    ] {
        let args = read(&given.to_string(), &schema, Repair::On).unwrap_or_else(|issues| panic!("{given}: {issues:?}"));
        assert_eq!(args.value(), &read_as);
        assert_eq!(args.repairs().iter().map(|note| note.path.as_str()).collect::<Vec<_>>(), repaired);
    }
}

#[test]
fn a_repair_that_can_mean_two_things_is_not_made() {
    let schema = properties(json!({"v": {"anyOf": [
        {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
        {"type": "object", "properties": {"x": {"type": ["array", "string"]}, "y": {"type": "integer"}}, "required": ["y"]},
        {"type": "object", "properties": {"z": {"type": "integer"}}, "required": ["z"]}
    ]}}));
    // Read by the first branch `x` is 1 and `z` stays; read by the last, the other way round.
    assert_eq!(paths(&bad(r#"{"v":{"x":"1","z":"2"}}"#, &schema)), ["v"]);
    assert_eq!(good(r#"{"v":{"x":"1"}}"#, &schema).1, ["v.x"]);
    // Two branches that agree on the value mean one thing.
    let numbers = properties(json!({"v": {"anyOf": [{"type": "integer"}, {"type": "number"}]}}));
    assert_eq!(good(r#"{"v":"4"}"#, &numbers).0, r#"{"v":4}"#);
    assert_eq!(good(r#"{"v":"4.5"}"#, &numbers).0, r#"{"v":4.5}"#);
}

#[test]
fn a_tool_can_turn_repair_off() {
    let schema = properties(json!({"i": {"type": "integer"}, "o": {"type": "string"}}));
    for text in ["null", "\"{}\"", r#"{"i":"4"}"#, r#"{"o":null}"#] {
        assert!(read(text, &schema, Repair::On).is_ok());
        assert!(read(text, &schema, Repair::Off).is_err(), "{text}");
    }
    assert_eq!(&**read(" ", &schema, Repair::Off).unwrap().text(), "{}");
    assert_eq!(&**read(r#"{"i":4.0}"#, &schema, Repair::Off).unwrap().text(), r#"{"i":4.0}"#);
}

// rule: sdk-tools 4.1/5
#[test]
fn a_value_from_a_hook_is_read_like_text() {
    let schema = properties(json!({"i": {"type": "integer"}, "d": {"type": "integer", "default": 2}}));
    let from_value = |value: Value| Arguments::from_value(value, &schema, Repair::On);
    let args = from_value(json!({"i": "4"})).unwrap();
    assert_eq!(args, read(r#"{"i":"4"}"#, &schema, Repair::On).unwrap());
    assert_eq!(from_value(json!("{\"i\":1}")).unwrap().value(), &json!({"i": 1, "d": 2}));
    assert_eq!(from_value(json!({"x": 1})).unwrap_err()[0].path, "x");
    assert_eq!(from_value(json!([1])).unwrap_err()[0].path, "");
    let deep = (0..200).fold(json!({}), |inner, _| json!({"i": inner}));
    assert_eq!(from_value(deep).unwrap_err().len(), 1);
}

// rule: sdk-tools 4.1/8
// rule: sdk-tools 4.2/1
#[test]
fn every_issue_is_told_at_once() {
    let schema = schema(json!({
        "type": "object",
        "properties": {
            "guests": {"type": "integer", "minimum": 1}, "room": {"enum": ["small", "large"]},
            "files": {"type": "array", "items": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}}
        },
        "required": ["guests", "room"],
        "additionalProperties": false
    }));
    let issues = read(r#"{"guests":0,"files":[{"path":1},{}],"rom":"small"}"#, &schema, Repair::On).unwrap_err();
    let mut told: Vec<(&str, &str)> = issues.iter().map(|issue| (issue.path.as_str(), issue.message.as_str())).collect();
    told.sort_unstable();
    assert_eq!(
        told,
        [
            ("files.0.path", "must be a string, not 1"),
            ("files.1.path", "is required: a string"),
            ("guests", "must be at least 1, not 0"),
            ("rom", "is not a known property; did you mean room?"),
            ("room", "is required: one of \"small\", \"large\""),
        ]
    );
    assert_eq!(serde_json::to_value(Issue::new("guests", "is required")).unwrap(), json!({"path": "guests", "message": "is required"}));
    let summary = toolwright_core::schema::summary("book_room", &issues[..1]);
    assert!(summary.starts_with("the arguments of book_room have 1 issue: "), "{summary}");
}

#[test]
fn text_encoded_inside_text_stays_within_the_depth() {
    let schema = properties(json!({"a": {"type": "array"}}));
    let inner = format!("{}{}", "[".repeat(128), "]".repeat(128));
    assert_eq!(paths(&bad(&json!({"a": inner}).to_string(), &schema)), ["a"]);
    let inner = format!("{}{}", "[".repeat(127), "]".repeat(127));
    let (text, _) = good(&json!({"a": inner}).to_string(), &schema);
    assert_eq!(good(&text, &schema), (text, Vec::new()));
}

#[test]
fn a_union_that_names_itself_ends() {
    let schema = schema(json!({
        "type": "object",
        "properties": {"v": {"$ref": "#/$defs/loop"}, "w": {"$ref": "#/$defs/wide"}},
        "$defs": {
            "loop": {"anyOf": [{"type": "integer"}, {"type": "object", "properties": {"v": {"$ref": "#/$defs/loop"}}}]},
            "wide": {"anyOf": [
                {"type": "object", "properties": {"w": {"$ref": "#/$defs/wide"}, "a": {"type": "integer"}}, "required": ["a"]},
                {"type": "object", "properties": {"w": {"$ref": "#/$defs/wide"}, "b": {"type": "integer"}}, "required": ["b"]}
            ]}
        }
    }));
    let deep = (0..100).fold(json!("x"), |inner, _| json!({"v": inner}));
    assert!(read(&deep.to_string(), &schema, Repair::On).is_err());
    let wide = |depth: usize| (0..depth).fold(json!("x"), |inner, _| json!({"w": inner, "a": "1", "b": "2"})).to_string();
    assert!(read(&wide(9), &schema, Repair::On).is_err());
    // Each level doubles what there is to try: beyond some depth the value is refused unseen.
    let issues = read(&wide(60), &schema, Repair::On).unwrap_err();
    assert!(issues[0].message.contains("nested too deeply"), "{issues:?}");
    // So does a reference that is followed twice, with or without a value that goes down.
    let twice = self::schema(json!({
        "type": "object",
        "properties": {"a": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}, "n": {"type": "integer"}}
    }));
    let deep = |depth: usize| (0..depth).fold(json!({"n": "x"}), |inner, _| json!({"a": inner})).to_string();
    assert_eq!(read(&deep(9), &twice, Repair::On).unwrap_err()[0].path, "a.a.a.a.a.a.a.a.a.n");
    assert!(read(&deep(100), &twice, Repair::On).unwrap_err()[0].message.contains("nested too deeply"));
    let level =
        |n: usize| (format!("l{n}"), json!({"allOf": [{"$ref": format!("#/$defs/l{}", n + 1)}, {"$ref": format!("#/$defs/l{}", n + 1)}]}));
    let mut levels: serde_json::Map<String, Value> = (0..40).map(level).collect();
    levels.insert("l40".to_owned(), json!({"required": ["n"]}));
    let wide = self::schema(json!({"$ref": "#/$defs/l0", "$defs": levels}));
    assert!(read("{}", &wide, Repair::On).is_err());
}

#[test]
fn a_default_is_not_repaired() {
    // The default of `b` lacks `c`, which a repair would add to what a model wrote.
    let lacking = schema(json!({
        "type": "object",
        "properties": {
            "b": {"anyOf": [{"$ref": "#"}, {"type": "integer"}], "default": {"b": 0}},
            "c": {"type": ["string", "null"]}
        },
        "required": ["c"]
    }));
    assert_eq!(good("{}", &lacking), (r#"{"c":null}"#.to_owned(), vec!["c".to_owned()]));
    assert_eq!(Arguments::from_value(json!({}), &lacking, Repair::On).unwrap().value(), &json!({"c": null}));
    let wrong = schema(json!({"properties": {"a": {"type": "array", "items": {"enum": [0]}, "default": [4.0]}}}));
    assert_eq!(good("{}", &wrong), ("{}".to_owned(), Vec::new()));
}
