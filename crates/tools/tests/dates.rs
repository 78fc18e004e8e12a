//! The date tools.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "clippy knows no test helpers")]

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use toolwright_tool::core::args::{Arguments, Repair};
use toolwright_tool::{Running, StateMap, Tool, ToolContext, ToolError, ToolFailureKind, tools};
use toolwright_tools::{Clock, current_date, day_name};

/// 2024-02-28, a minute before midnight in UTC.
fn before_leap_day() -> Clock {
    Clock::fixed(SystemTime::UNIX_EPOCH + Duration::from_mins(28_486_079))
}

async fn run(tool: &Tool, args: Value) -> Result<Value, ToolError> {
    let args = Arguments::from_value(args, &tool.spec().input, Repair::On).unwrap();
    let mut parts = ToolContext::detached(args).parts().clone();
    let mut state = StateMap::default();
    state.insert(before_leap_day()).unwrap();
    parts.state = vec![state];
    let Running::Future(body) = tool.body().begin(ToolContext::new(parts)) else { panic!("an async tool") };
    body.await.map(|output| output.shown())
}

// rule: sdk-tools 9.4
#[tokio::test]
async fn the_date_tools_read_and_change_nothing() {
    let tools = tools![current_date, day_name];
    for tool in &tools {
        assert!(tool.spec().annotations.read_only(), "{}", tool.name());
        assert!(tool.requirements().needs().is_empty(), "they need no state");
        assert!(tool.definition_error().is_none());
    }
    assert_eq!(run(&tools[0], json!({})).await.unwrap(), json!("2024-02-28"));
    assert_eq!(run(&tools[1], json!({})).await.unwrap(), json!({ "date": "2024-02-28", "day": "Wednesday" }));
    assert_eq!(run(&tools[1], json!({ "date": "tomorrow" })).await.unwrap(), json!({ "date": "2024-02-29", "day": "Thursday" }));
}

// rule: sdk-tools 9.4
#[tokio::test]
async fn the_day_of_a_written_date() {
    let tool = &tools![day_name][0];
    let friday = json!({ "date": "1999-12-31", "day": "Friday" });
    for date in ["1999-12-31", "31 December 1999", "December 31, 1999", "31.12.1999"] {
        assert_eq!(run(tool, json!({ "date": date })).await.unwrap(), friday, "{date}");
    }
    let days = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
    for (day, date) in days.iter().zip(1..) {
        assert_eq!(run(tool, json!({ "date": format!("2024-01-0{date}") })).await.unwrap()["day"], *day);
    }
}

#[tokio::test]
async fn a_date_that_is_none_is_an_issue_at_its_argument() {
    let tool = &tools![day_name][0];
    let failure = run(tool, json!({ "date": "03/04/1999" })).await.unwrap_err().to_failure("day_name");
    assert_eq!(failure.kind, ToolFailureKind::Validation);
    assert_eq!(failure.issues[0].path, "date");
    assert_eq!(failure.issues[0].message, "`03/04/1999` may be 1999-04-03 or 1999-03-04; write the one that is meant");
}

#[tokio::test]
async fn without_a_clock_the_systems_is_asked() {
    let tool = &tools![current_date][0];
    let args = Arguments::from_value(json!({}), &tool.spec().input, Repair::On).unwrap();
    let Running::Future(body) = tool.body().begin(ToolContext::detached(args)) else { panic!("an async tool") };
    let today = body.await.unwrap().shown();
    assert!(today.as_str().unwrap() > "2024-02-28", "{today}");
}

#[test]
fn descriptions_are_short() {
    for tool in toolwright_tools::builtin() {
        assert!((1..80).contains(&tool.spec().description.len()), "{}", tool.name());
        let schema = tool.spec().input.as_value().to_string();
        assert!(schema.len() < 600, "{} takes {}: {schema}", tool.name(), schema.len());
    }
}
