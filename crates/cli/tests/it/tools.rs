//! `toolwright tools`, `models list` and `doctor`.

use crate::support::Home;
use serde_json::{Value, json};

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn tools_are_listed_with_what_they_promise() {
    let ended = Home::new().run(&["tools", "list"]);
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
    let names: Vec<Vec<&str>> = ended.out.lines().map(|line| line.split_whitespace().take(2).collect()).collect();
    let first = [["dates", "current_date"], ["dates", "day_name"], ["todo", "todo_write"], ["todo", "todo_read"], ["web", "web_fetch"]];
    assert_eq!(names[..5], first);
    for set in ["files", "edit", "http", "shell", "github", "slack", "jira", "email"] {
        assert!(names.iter().any(|name| name[0] == set), "{set}: {}", ended.out);
    }
    assert!(ended.out.contains("(read-only)"));

    let listed = parsed(&Home::new().run(&["tools", "list", "--json"]).out);
    assert_eq!(listed[1]["name"], "day_name");
    assert_eq!(listed[1]["annotations"], json!({ "readOnlyHint": true }));
    assert_eq!(listed[1]["inputSchema"]["type"], "object");
}

#[test]
fn a_tool_is_shown_with_its_schema_and_its_cost() {
    let ended = Home::new().run(&["tools", "show", "day_name"]);
    assert_eq!(ended.code, Some(0));
    for part in ["The day of the week", "read-only", "\"date\": {", "(an estimate)"] {
        assert!(ended.out.contains(part), "{part}: {}", ended.out);
    }
    let ended = Home::new().run(&["tools", "show", "day_nam"]);
    assert_eq!(
        (ended.code, ended.err.as_str()),
        (Some(2), "error: no tool is called `day_nam` [TOOLWRIGHT_TOOL_NOT_FOUND]\nhint: did you mean `day_name`?\n")
    );
}

#[test]
fn a_call_prints_its_result() {
    let home = Home::new();
    let ended = home.run(&["tools", "call", "day_name", r#"{"date": "31 December 1999"}"#]);
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
    assert_eq!(parsed(&ended.out), json!({ "date": "1999-12-31", "day": "Friday" }));
    let piped = home.run_with(&["tools", "call", "day_name", "-"], &[], r#"{"date": "31 December 1999"}"#);
    assert_eq!(piped.out, ended.out);
}

#[test]
fn a_call_that_fails_says_what_is_wrong_and_where() {
    let ended = Home::new().run(&["tools", "call", "day_name", r#"{"date": 5, "x": 1}"#]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""));
    assert_eq!(
        ended.err,
        "error: the arguments of `day_name` have 2 issues [TOOLWRIGHT_TOOL_ARGS_INVALID]\n  date must be a string, not 5\n  \
         x is not a known property; known are date\nhint: see the schema with `toolwright tools show day_name`\n"
    );
    let malformed = Home::new().run(&["tools", "call", "day_name", "soon"]);
    assert_eq!((malformed.code, malformed.out.as_str()), (Some(1), ""), "{}", malformed.err);
    assert!(malformed.err.contains("[TOOLWRIGHT_TOOL_ARGS_INVALID]"), "{}", malformed.err);
}

#[test]
fn events_of_a_call_are_one_object_a_line() {
    let ended = Home::new().run(&["tools", "call", "current_date", "--json"]);
    let kinds: Vec<Value> = ended.out.lines().map(|line| parsed(line)["type"].clone()).collect();
    assert_eq!((ended.code, kinds), (Some(0), vec![json!("run.start"), json!("tool.start"), json!("tool.done"), json!("run.done")]));
}

#[test]
fn the_built_in_tools_have_nothing_doubtful() {
    let ended = Home::new().run(&["tools", "lint", "--json"]);
    let report = parsed(&ended.out);
    assert_eq!((ended.code, &report["errors"], &report["warnings"]), (Some(0), &json!(0), &json!(0)), "{report:#}");
}

const DOUBTFUL: &str = r#"[
  { "type": "function", "function": { "name": "get weather", "parameters": { "type": "object", "properties": { "city": { "type": "string" } } } } },
  { "name": "read_file", "description": "Reads a text file and returns its content.", "inputSchema": { "type": "object" } },
  { "name": "load_file", "description": "Reads a text file and returns the content.", "inputSchema": { "type": "object" } },
  { "name": "either", "description": "Takes one or the other.", "parameters": { "type": "object", "anyOf": [{ "required": ["a"] }] } },
  { "name": "broken", "description": "Has no usable schema.", "parameters": { "type": "strin" } }
]"#;

#[test]
fn doubtful_tools_of_a_file_are_found() {
    let home = Home::new();
    let file = home.file("tools.json", DOUBTFUL);
    let ended = home.run(&["tools", "lint", "--tools", &file]);
    assert_eq!((ended.code, ended.err.as_str()), (Some(1), ""));
    let expected = include_str!("lint.txt");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/lint.txt"), &ended.out).unwrap();
    } else {
        assert_eq!(ended.out, expected, "UPDATE=1 writes tests/it/lint.txt anew");
    }
    let report = parsed(&home.run_with(&["tools", "lint", "--tools", "-", "--json"], &[], DOUBTFUL).out);
    assert_eq!(report["errors"], 4, "{report:#}");
    assert_eq!(report["tools"][2]["findings"][0]["check"], "alike");
}

#[test]
fn a_file_without_tools_is_refused() {
    let home = Home::new();
    let (no_json, no_list) = (home.file("a.json", "["), home.file("b.json", "[{}]"));
    for (file, say) in
        [(no_json, "is not JSON"), (no_list, "is no list of tools: tool 0 has no text `name`"), ("none.json".to_owned(), "can't be read")]
    {
        let ended = home.run(&["tools", "lint", "--tools", &file]);
        assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""));
        assert!(ended.err.contains(say), "{say}: {}", ended.err);
    }
}

#[test]
fn keys_are_named_and_never_shown() {
    let home = Home::new();
    let env = [("OPENAI_API_KEY", "sk-very-secret")];
    for arguments in [&["models", "list"][..], &["models", "list", "--json"], &["doctor"], &["doctor", "--json"]] {
        let ended = home.run_with(arguments, &env, "");
        assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}");
        assert!(ended.out.contains("OPENAI_API_KEY") && !ended.out.contains("secret") && !ended.err.contains("secret"), "{}", ended.out);
    }
}

#[test]
fn doctor_fails_where_a_run_would() {
    let ended = Home::new().run_with(&["doctor"], &[("TOOLWRIGHT_MODEL", "openai/x")], "");
    assert_eq!(ended.code, Some(1));
    assert!(ended.out.contains("fail  model"), "{}", ended.out);
}
