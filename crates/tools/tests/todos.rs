//! The todo tools, rule by rule.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "clippy knows no test helpers")]

use std::sync::{Arc, Mutex};

use futures_core::future::BoxFuture;
use serde_json::{Value, json};
use toolwright_tool::core::args::{Arguments, Repair};
use toolwright_tool::core::{EventKind, Todo};
use toolwright_tool::{Running, Tool, ToolContext, ToolError, ToolFailureKind, ToolOutput};
use toolwright_tools::{TodoStore, TodoTools};

async fn run(tool: &Tool, args: Value) -> Result<ToolOutput, ToolError> {
    let args = Arguments::from_value(args, &tool.spec().input, Repair::On).unwrap();
    let mut parts = ToolContext::detached(args).parts().clone();
    parts.state = vec![tool.state().clone()];
    let Running::Future(body) = tool.body().begin(ToolContext::new(parts)) else { panic!("an async tool") };
    body.await
}

async fn write(list: &TodoTools, todos: Value) -> Result<ToolOutput, ToolError> {
    run(&list.tools()[0], json!({ "todos": todos })).await
}

fn ids(output: &ToolOutput) -> Vec<String> {
    let todos = output.shown()["todos"].as_array().cloned().unwrap();
    todos.iter().map(|todo| format!("{} {}", todo["id"].as_str().unwrap(), todo["content"].as_str().unwrap())).collect()
}

fn todo(content: &str, status: &str) -> Value {
    json!({ "content": content, "status": status })
}

// rule: sdk-tools 9.5/1
// rule: sdk-tools 9.5/2
#[tokio::test]
async fn a_write_replaces_the_list() {
    let list = TodoTools::new();
    let tools = list.tools();
    let names: Vec<_> = tools.iter().map(|tool| tool.name().as_str()).collect();
    assert_eq!(names, ["todo_write", "todo_read"]);
    assert!(tools[1].spec().annotations.read_only() && !tools[0].spec().annotations.read_only());
    assert_eq!(list.todos().await.unwrap(), []);

    let written = write(&list, json!([todo("plan", "completed"), todo("build", "in_progress"), todo("test", "pending")])).await.unwrap();
    let expected = json!({
        "todos": [
            { "id": "todo_1", "content": "plan", "status": "completed" },
            { "id": "todo_2", "content": "build", "status": "in_progress" },
            { "id": "todo_3", "content": "test", "status": "pending" },
        ],
        "counts": { "pending": 1, "in_progress": 1, "completed": 1, "total": 3 },
    });
    assert_eq!(written.shown(), expected);
    assert_eq!(run(&tools[1], json!({})).await.unwrap().shown(), expected);
    assert_eq!(json!(list.todos().await.unwrap()), expected["todos"]);

    write(&list, json!([todo("test", "in_progress")])).await.unwrap();
    assert_eq!(list.todos().await.unwrap().len(), 1);
    assert_eq!(write(&list, json!([])).await.unwrap().shown()["counts"]["total"], 0);
}

// rule: sdk-tools 9.5/3
#[tokio::test]
async fn an_item_keeps_its_id() {
    let list = TodoTools::new();
    write(&list, json!([todo("a", "pending"), todo("b", "pending"), todo("a", "pending")])).await.unwrap();
    let again = write(&list, json!([todo("b", "completed"), todo("c", "pending"), todo(" a ", "pending")])).await.unwrap();
    assert_eq!(ids(&again), ["todo_2 b", "todo_4 c", "todo_1 a"]);
    let changed = json!([{ "id": "todo_2", "content": "c", "status": "pending" }, todo("c", "pending"), todo("c", "pending")]);
    assert_eq!(ids(&write(&list, changed).await.unwrap()), ["todo_2 c", "todo_4 c", "todo_5 c"]);
    let unknown =
        json!([{ "id": "todo_99", "content": "x", "status": "pending" }, { "id": "todo_2", "content": "y", "status": "pending" }]);
    assert_eq!(ids(&write(&list, unknown).await.unwrap()), ["todo_6 x", "todo_2 y"]);
    write(&list, json!([])).await.unwrap();
    assert_eq!(ids(&write(&list, json!([todo("z", "pending")])).await.unwrap()), ["todo_7 z"], "no id is given twice");
}

// rule: sdk-tools 9.5/2
// rule: sdk-tools 9.5/4
#[tokio::test]
async fn a_bad_list_is_refused_with_the_list_as_it_is() {
    let list = TodoTools::new();
    write(&list, json!([todo("a", "in_progress")])).await.unwrap();
    let error = write(&list, json!([todo("a", "in_progress"), todo("b", "in_progress")])).await.unwrap_err();
    let failure = error.to_failure("todo_write");
    assert_eq!((failure.kind, failure.issues[0].path.as_str()), (ToolFailureKind::Validation, "todos.1.status"));
    assert_eq!(
        failure.issues[0].message,
        r#"at most one item is in_progress at a time; the list is unchanged: [{"id":"todo_1","content":"a","status":"in_progress"}]"#
    );
    let error = write(&list, json!([todo(" ", "pending")])).await.unwrap_err();
    assert_eq!(error.to_failure("todo_write").issues[0].path, "todos.0.content");
    assert_eq!(list.todos().await.unwrap().len(), 1);
    let status = Arguments::from_value(json!({ "todos": [todo("a", "done")] }), &list.tools()[0].spec().input, Repair::On);
    assert_eq!(status.unwrap_err()[0].path, "todos.0.status");
}

#[tokio::test]
async fn a_write_of_what_is_there_succeeds_too() {
    let list = TodoTools::new();
    let first = write(&list, json!([todo("a", "pending")])).await.unwrap();
    let second = write(&list, json!([todo("a", "pending")])).await.unwrap();
    assert_eq!(first.shown(), second.shown());
    assert_eq!(second.events().len(), 1);
}

/// A store that others see into, and that can fail.
#[derive(Clone, Default)]
struct Shelf {
    todos: Arc<Mutex<Vec<Todo>>>,
    locked: bool,
}

impl TodoStore for Shelf {
    fn get(&self) -> BoxFuture<'_, Result<Vec<Todo>, ToolError>> {
        Box::pin(async { Ok(self.todos.lock().unwrap().clone()) })
    }

    fn set(&self, todos: Vec<Todo>) -> BoxFuture<'_, Result<(), ToolError>> {
        Box::pin(async move {
            if self.locked {
                return Err(ToolError::new("the shelf is locked"));
            }
            *self.todos.lock().unwrap() = todos;
            Ok(())
        })
    }
}

// rule: sdk-tools 9.5/5
#[tokio::test]
async fn a_store_keeps_the_list() {
    let shelf = Shelf::default();
    let list = TodoTools::with_store(shelf.clone());
    write(&list, json!([todo("a", "pending")])).await.unwrap();
    assert_eq!(shelf.todos.lock().unwrap()[0].content, "a");
    let later = TodoTools::with_store(shelf);
    assert_eq!(ids(&write(&later, json!([todo("b", "pending"), todo("a", "pending")])).await.unwrap()), ["todo_2 b", "todo_1 a"]);
    let (one, other) = (TodoTools::new(), TodoTools::new());
    write(&one, json!([todo("a", "pending")])).await.unwrap();
    assert_eq!(other.todos().await.unwrap(), []);
}

// rule: sdk-tools 9.5/5
// rule: sdk-tools 9.5/6
#[tokio::test]
async fn each_successful_write_is_told() {
    let seen: Arc<Mutex<Vec<usize>>> = Arc::default();
    let counts = Arc::clone(&seen);
    let list = TodoTools::new().on_change(move |todos| counts.lock().unwrap().push(todos.len()));
    let output = write(&list, json!([todo("a", "pending"), todo("b", "completed")])).await.unwrap();
    let [event @ EventKind::TodoUpdated { .. }] = output.events() else { panic!("one event") };
    assert_eq!(
        serde_json::to_value(event).unwrap(),
        json!({
            "type": "todo.updated",
            "todos": [{ "id": "todo_1", "content": "a", "status": "pending" }, { "id": "todo_2", "content": "b", "status": "completed" }],
            "counts": { "pending": 1, "in_progress": 0, "completed": 1, "total": 2 },
            "toolCallId": "call_detached",
        })
    );
    assert!(write(&list, json!([todo("", "pending")])).await.is_err());
    assert!(run(&list.tools()[1], json!({})).await.unwrap().events().is_empty());
    assert_eq!(*seen.lock().unwrap(), [2]);

    let locked = TodoTools::with_store(Shelf { locked: true, ..Shelf::default() }).on_change(|_| panic!("nothing was written"));
    assert_eq!(write(&locked, json!([todo("a", "pending")])).await.unwrap_err().message(), "the shelf is locked");
}
