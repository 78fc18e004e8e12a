//! The function-calling leaderboard's functions and accepted calls, read from the shared fixtures: real schemas, and what models are
//! expected to write for them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "clippy.toml allows these in test functions only, and the helpers beside them are as much a test"
)]

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use serde_json::{Map, Value, json};
use toolwright_core::ToolName;
use toolwright_core::args::{Repair, read};
use toolwright_core::schema::Schema;

const FOLDER: &str = "../../../shared/fixtures/bfcl";

/// Accepted calls that do not hold for the schema they are given with.
const DEFECTIVE: &[(&str, &str)] = &[
    ("live_multiple_144-56-0", "leaves out a required argument"),
    ("live_multiple_152-58-6", "a list where one value is asked for"),
    ("live_multiple_507-149-4", "leaves out a required argument"),
    ("live_multiple_552-153-1", "a boolean or number where a string is asked for"),
    ("live_multiple_595-158-1", "a boolean or number where a string is asked for"),
    ("live_multiple_596-158-2", "a boolean or number where a string is asked for"),
    ("live_multiple_731-167-2", "a boolean or number where a string is asked for"),
    ("live_multiple_733-167-4", "a boolean or number where a string is asked for"),
    ("live_multiple_735-167-6", "a boolean or number where a string is asked for"),
    ("live_multiple_750-169-5", "a value that is not among the listed ones"),
    ("live_multiple_756-169-11", "a value that is not among the listed ones"),
    ("live_multiple_834-178-9", "leaves out a required argument"),
    ("live_multiple_835-178-10", "a value that is not among the listed ones"),
    ("live_multiple_87-38-4", "a value that is not among the listed ones"),
    ("live_multiple_871-182-8", "a value that is not among the listed ones"),
    ("live_multiple_947-197-0", "a value that is not among the listed ones"),
    ("live_multiple_964-207-0", "leaves out a required argument"),
    ("live_parallel_multiple_2-2-0", "a value that is not among the listed ones"),
    ("live_simple_106-63-0", "leaves out a required argument"),
    ("live_simple_112-68-0", "leaves out a required argument"),
    ("live_simple_71-35-0", "a list where one value is asked for"),
    ("parallel_multiple_21", "names a variable of the program where a value is asked for"),
    ("parallel_multiple_94", "strings where integers are asked for"),
    ("simple_java_26", "names a variable of the program where a value is asked for"),
    ("simple_java_35", "names a variable of the program where a value is asked for"),
    ("simple_java_38", "names a variable of the program where a value is asked for"),
    ("simple_java_45", "names a variable of the program where a value is asked for"),
    ("simple_java_58", "names a variable of the program where a value is asked for"),
    ("simple_java_69", "names a variable of the program where a value is asked for"),
    ("simple_java_72", "names a variable of the program where a value is asked for"),
    ("simple_java_82", "names a variable of the program where a value is asked for"),
    ("simple_java_87", "names a variable of the program where a value is asked for"),
    ("simple_java_88", "names a variable of the program where a value is asked for"),
    ("simple_javascript_11", "names a variable of the program where a value is asked for"),
    ("simple_javascript_15", "names a variable of the program where a value is asked for"),
    ("simple_javascript_19", "names a variable of the program where a value is asked for"),
    ("simple_javascript_32", "names a variable of the program where a value is asked for"),
    ("simple_javascript_37", "names a variable of the program where a value is asked for"),
    ("simple_javascript_39", "names a variable of the program where a value is asked for"),
    ("simple_javascript_5", "names a variable of the program where a value is asked for"),
    ("simple_javascript_9", "names a variable of the program where a value is asked for"),
    ("simple_python_200", "leaves out a required argument"),
];

struct Tool {
    schema: Schema,
    value: Value,
}

/// A call that the data accepts.
struct Gold {
    id: String,
    tool: String,
    arguments: Map<String, Value>,
}

// rule: sdk-tools 4.1/1
// rule: sdk-tools 4.2/1
#[test]
fn accepted_calls_hold_and_broken_ones_are_refused() {
    if !Path::new(FOLDER).is_dir() {
        println!("skipped: the shared fixtures are not here");
        return;
    }
    let (tools, count) = tools();
    let gold = gold(&tools);
    let mut held = Vec::new();
    let mut failed: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut repaired = 0;
    for call in &gold {
        match read(&text(&call.arguments), &tools[&key(call)].schema, Repair::On) {
            Ok(args) => {
                repaired += usize::from(!args.repairs().is_empty());
                held.push(call);
            }
            Err(issues) => failed.entry(&call.id).or_default().extend(issues.iter().map(ToString::to_string)),
        }
    }
    let calls_failed = gold.len() - held.len();
    println!("{count} functions are valid tool schemas");
    println!("{} of {} accepted calls hold ({repaired} after a repair), {calls_failed} are defective", held.len(), gold.len());
    let known: BTreeMap<&str, &str> = DEFECTIVE.iter().copied().collect();
    let news: Vec<String> =
        failed.iter().filter(|(id, _)| !known.contains_key(*id)).map(|(id, issues)| format!("{id}\t{}", issues.join("; "))).collect();
    assert!(news.is_empty(), "accepted calls that do not hold:\n{}", news.join("\n"));
    let healed: Vec<_> = known.keys().filter(|id| !failed.contains_key(*id)).collect();
    assert!(healed.is_empty(), "listed as defective, but hold: {healed:?}");
    assert!(calls_failed <= 120);

    let mut refused = [("wrong type", 0), ("missing", 0), ("unknown option", 0)];
    for call in held {
        let tool = &tools[&key(call)];
        for ((_, count), change) in refused.iter_mut().zip([mistyped, missing, unknown_option]) {
            for (name, arguments) in change(tool, &call.arguments) {
                let written = text(&arguments);
                let issues = read(&written, &tool.schema, Repair::On).map(|args| args.text().to_string());
                let issues = issues.expect_err(&format!("{}: {name}: {written}", call.id));
                let inside = format!("{name}.");
                assert!(issues.iter().all(|issue| issue.path == name || issue.path.starts_with(&inside)), "{name}: {issues:?}");
                *count += 1;
            }
        }
    }
    println!("refused at the right path: {refused:?}");
    assert!(refused.iter().all(|(_, count)| *count > 500), "{refused:?}");
}

/// The arguments once for each one that has a type, with a value there that no repair could make right.
fn mistyped(tool: &Tool, arguments: &Map<String, Value>) -> Vec<(String, Map<String, Value>)> {
    changed(tool, arguments, |schema| match schema["type"].as_str()? {
        "string" => Some(json!(true)),
        "integer" => Some(json!("4.5")),
        "array" => Some(json!("{}")),
        "object" => Some(json!("[]")),
        _ => Some(json!("neither here nor there")),
    })
}

/// The arguments once for each one with counted values, with another value there.
fn unknown_option(tool: &Tool, arguments: &Map<String, Value>) -> Vec<(String, Map<String, Value>)> {
    changed(tool, arguments, |schema| {
        let options = |schema: &Value| schema["enum"].as_array().is_some_and(|options| options.iter().all(Value::is_string));
        match schema["type"].as_str()? {
            "string" if options(schema) => Some(json!("neither here nor there")),
            "array" if options(&schema["items"]) => Some(json!(["neither here nor there"])),
            _ => None,
        }
    })
}

/// The arguments once for each that is required and has no default, without it.
fn missing(tool: &Tool, arguments: &Map<String, Value>) -> Vec<(String, Map<String, Value>)> {
    let required = tool.value["required"].as_array().cloned().unwrap_or_default();
    required
        .iter()
        .filter_map(Value::as_str)
        .filter(|name| tool.value["properties"][*name].get("default").is_none())
        .map(|name| {
            let mut without = arguments.clone();
            without.shift_remove(name);
            (name.to_owned(), without)
        })
        .collect()
}

/// The arguments once for each one for which `change` has another value.
fn changed(tool: &Tool, arguments: &Map<String, Value>, change: impl Fn(&Value) -> Option<Value>) -> Vec<(String, Map<String, Value>)> {
    let changed = arguments.keys().filter_map(|name| {
        let value = change(&tool.value["properties"][name])?;
        let mut arguments = arguments.clone();
        arguments.insert(name.clone(), value);
        Some((name.clone(), arguments))
    });
    changed.collect()
}

fn text(arguments: &Map<String, Value>) -> String {
    serde_json::to_string(arguments).unwrap()
}

fn key(call: &Gold) -> (String, String) {
    (call.id.clone(), call.tool.clone())
}

/// The functions by question and name, and how many there are.
fn tools() -> (HashMap<(String, String), Tool>, usize) {
    let mut tools = HashMap::new();
    let mut names: BTreeMap<ToolName, String> = BTreeMap::new();
    let mut count = 0;
    for line in lines(FOLDER) {
        let id = line["id"].as_str().unwrap().to_owned();
        for function in line["function"].as_array().unwrap() {
            let name = function["name"].as_str().unwrap().to_owned();
            let mapped = ToolName::mapped(&name);
            assert_eq!(names.entry(mapped).or_insert_with(|| name.clone()), &name, "two functions of one tool name");
            let value = schema(&function["parameters"]);
            let schema = Schema::new(value.clone()).unwrap_or_else(|error| panic!("{id}: {name}: {error}"));
            tools.insert((id.clone(), name), Tool { schema, value });
            count += 1;
        }
    }
    (tools, count)
}

/// The leaderboard's dialect of JSON Schema, with the type names of Python, Java and JavaScript.
fn schema(dialect: &Value) -> Value {
    let Value::Object(map) = dialect else { return dialect.clone() };
    let mut out = Map::new();
    for (keyword, value) in map {
        match keyword.as_str() {
            "type" => match value.as_str().unwrap() {
                "dict" | "HashMap" => drop(out.insert("type".into(), "object".into())),
                "float" | "double" => drop(out.insert("type".into(), "number".into())),
                "long" => drop(out.insert("type".into(), "integer".into())),
                "tuple" | "Array" | "ArrayList" => drop(out.insert("type".into(), "array".into())),
                "String" | "char" => drop(out.insert("type".into(), "string".into())),
                "Boolean" => drop(out.insert("type".into(), "boolean".into())),
                "any" | "" => {}
                known => drop(out.insert("type".into(), known.into())),
            },
            "properties" => {
                let properties = value.as_object().unwrap().iter().map(|(name, value)| (name.clone(), schema(value)));
                out.insert(keyword.clone(), Value::Object(properties.collect()));
            }
            "items" => drop(out.insert(keyword.clone(), schema(value))),
            // No keyword of JSON Schema; `required` of the object says the same.
            "optional" => {}
            _ => drop(out.insert(keyword.clone(), value.clone())),
        }
    }
    Value::Object(out)
}

fn gold(tools: &HashMap<(String, String), Tool>) -> Vec<Gold> {
    let mut gold = Vec::new();
    for line in lines(&format!("{FOLDER}/answers")) {
        let id = line["id"].as_str().unwrap().to_owned();
        for call in line["ground_truth"].as_array().unwrap() {
            for (tool, arguments) in call.as_object().unwrap() {
                if tools.contains_key(&(id.clone(), tool.clone())) {
                    gold.push(Gold { id: id.clone(), tool: tool.clone(), arguments: first(arguments) });
                } else {
                    panic!("{id} calls {tool}, which it does not list");
                }
            }
        }
    }
    gold
}

/// Of each argument the first accepted value; `""` stands for an argument that is left out.
fn first(arguments: &Value) -> Map<String, Value> {
    let mut out = Map::new();
    for (name, accepted) in arguments.as_object().unwrap() {
        let value = match accepted {
            Value::Array(accepted) => match accepted.first() {
                None => continue,
                Some(value) if value == "" => continue,
                Some(value) => value,
            },
            value => value,
        };
        out.insert(name.clone(), inner(value));
    }
    out
}

/// Objects inside a value list accepted values as well.
fn inner(value: &Value) -> Value {
    match value {
        Value::Object(_) => Value::Object(first(value)),
        Value::Array(items) => items.iter().map(inner).collect(),
        value => value.clone(),
    }
}

fn lines(folder: &str) -> Vec<Value> {
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|ext| ext == "jsonl"));
    files.sort();
    let lines = files.iter().flat_map(|file| {
        let text = std::fs::read_to_string(file).unwrap();
        text.lines().filter(|line| !line.trim().is_empty()).map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    });
    lines.collect()
}
