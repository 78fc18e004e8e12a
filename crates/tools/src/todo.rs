//! `todo_write` and `todo_read` (sdk-tools 9.5).

use std::fmt;
use std::sync::Arc;

use futures_core::future::BoxFuture;
use tokio::sync::Mutex;
use toolwright_tool::core::{EventKind, Todo, TodoCounts, TodoStatus};
use toolwright_tool::{CallId, State, StateMap, Tool, ToolError, ToolOutput, args, tool, tools};

/// Keeps a list. One object keeps one list.
pub trait TodoStore: Send + Sync {
    /// The list.
    fn get(&self) -> BoxFuture<'_, Result<Vec<Todo>, ToolError>>;

    /// Replaces the list.
    fn set(&self, todos: Vec<Todo>) -> BoxFuture<'_, Result<(), ToolError>>;
}

/// A list in memory.
#[derive(Debug, Default)]
pub struct MemoryTodos {
    todos: Mutex<Vec<Todo>>,
}

impl TodoStore for MemoryTodos {
    fn get(&self) -> BoxFuture<'_, Result<Vec<Todo>, ToolError>> {
        Box::pin(async { Ok(self.todos.lock().await.clone()) })
    }

    fn set(&self, todos: Vec<Todo>) -> BoxFuture<'_, Result<(), ToolError>> {
        Box::pin(async {
            *self.todos.lock().await = todos;
            Ok(())
        })
    }
}

type OnChange = Arc<dyn Fn(&[Todo]) + Send + Sync>;

struct Inner {
    store: Box<dyn TodoStore>,
    /// Held over reading and replacing the list; also the highest number that an id was made of.
    writing: Mutex<u64>,
}

/// A todo list that a model keeps with two tools. Cheap to clone; clones share the list.
///
/// ```
/// use toolwright_tools::TodoTools;
///
/// let list = TodoTools::new();
/// assert_eq!(list.tools().len(), 2);
/// ```
#[derive(Clone)]
pub struct TodoTools {
    inner: Arc<Inner>,
    on_change: Option<OnChange>,
}

impl Default for TodoTools {
    fn default() -> Self {
        Self::with_store(MemoryTodos::default())
    }
}

impl fmt::Debug for TodoTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TodoTools").finish_non_exhaustive()
    }
}

impl TodoTools {
    /// A list in memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// A list that `store` keeps.
    pub fn with_store(store: impl TodoStore + 'static) -> Self {
        Self { inner: Arc::new(Inner { store: Box::new(store), writing: Mutex::default() }), on_change: None }
    }

    /// Calls `on_change` with the list after each successful write through this value and what is made of it.
    #[must_use]
    pub fn on_change(mut self, on_change: impl Fn(&[Todo]) + Send + Sync + 'static) -> Self {
        self.on_change = Some(Arc::new(on_change));
        self
    }

    /// `todo_write` and `todo_read`.
    pub fn tools(&self) -> Vec<Tool> {
        let mut state = StateMap::default();
        // The map is empty, so nothing stands in the way.
        let _ = state.insert(self.clone());
        tools![todo_write, todo_read].iter().map(|tool| tool.with_tool_set_state(state.clone())).collect()
    }

    /// The list.
    pub async fn todos(&self) -> Result<Vec<Todo>, ToolError> {
        self.inner.store.get().await
    }

    async fn write(&self, entries: Vec<TodoEntry>) -> Result<TodoList, ToolError> {
        let mut highest = self.inner.writing.lock().await;
        let current = self.inner.store.get().await?;
        if let Some(problem) = problem(&entries) {
            // The model reads what the list still is, so that it need not remember (it may have been compacted away).
            let list = serde_json::to_string(&current).unwrap_or_default();
            return Err(ToolError::invalid(problem.path, format!("{}; the list is unchanged: {list}", problem.message)));
        }
        let todos = numbered(entries, &current, &mut highest);
        self.inner.store.set(todos.clone()).await?;
        if let Some(on_change) = &self.on_change {
            on_change(&todos);
        }
        Ok(TodoList::of(todos))
    }
}

/// One item as a model writes it.
#[args]
pub struct TodoEntry {
    /// Id of an item that is changed; left out for new ones.
    pub id: Option<String>,
    /// What is to be done.
    pub content: String,
    /// How far it is.
    pub status: EntryStatus,
}

/// How far an item is.
#[args]
#[derive(Copy, PartialEq, Eq)]
pub enum EntryStatus {
    Pending,
    InProgress,
    Completed,
}

impl From<EntryStatus> for TodoStatus {
    fn from(status: EntryStatus) -> Self {
        match status {
            EntryStatus::Pending => Self::Pending,
            EntryStatus::InProgress => Self::InProgress,
            EntryStatus::Completed => Self::Completed,
        }
    }
}

/// The list with its counts: what both tools return.
#[derive(Clone, Debug, PartialEq)]
pub struct TodoList {
    /// The items.
    pub todos: Vec<Todo>,
    /// By status.
    pub counts: TodoCounts,
}

impl TodoList {
    /// With the counts of `todos`.
    pub fn of(todos: Vec<Todo>) -> Self {
        let count = |status| todos.iter().filter(|todo| todo.status == status).count();
        let counts = TodoCounts {
            pending: count(TodoStatus::Pending),
            in_progress: count(TodoStatus::InProgress),
            completed: count(TodoStatus::Completed),
            total: todos.len(),
        };
        Self { todos, counts }
    }

    fn to_output(&self) -> ToolOutput {
        ToolOutput::json(serde_json::json!({ "todos": self.todos, "counts": self.counts }))
    }
}

struct Problem {
    path: String,
    message: &'static str,
}

fn problem(entries: &[TodoEntry]) -> Option<Problem> {
    if let Some(index) = entries.iter().position(|entry| entry.content.trim().is_empty()) {
        return Some(Problem { path: format!("todos.{index}.content"), message: "says what is to be done, so it can't be empty" });
    }
    let mut running = entries.iter().enumerate().filter(|(_, entry)| entry.status == EntryStatus::InProgress);
    let (_, second) = (running.next(), running.next());
    second.map(|(index, _)| Problem { path: format!("todos.{index}.status"), message: "at most one item is in_progress at a time" })
}

/// The entries with ids: that of the item they name, or of the one with their content, or a new one.
fn numbered(entries: Vec<TodoEntry>, current: &[Todo], highest: &mut u64) -> Vec<Todo> {
    let number = |todo: &Todo| todo.id.strip_prefix("todo_").and_then(|number| number.parse::<u64>().ok());
    *highest = current.iter().filter_map(number).fold(*highest, u64::max);
    let mut free: Vec<&Todo> = current.iter().collect();
    let mut take = |wanted: &dyn Fn(&Todo) -> bool| free.iter().position(|todo| wanted(todo)).map(|index| free.remove(index).id.clone());
    // Named ones first, so that no other item takes their id for its content.
    let named: Vec<Option<String>> = entries.iter().map(|entry| entry.id.as_ref().and_then(|id| take(&|todo| todo.id == *id))).collect();
    let known: Vec<Option<String>> =
        entries.iter().zip(named).map(|(entry, id)| id.or_else(|| take(&|todo| todo.content == entry.content.trim()))).collect();
    let mut todos = Vec::with_capacity(entries.len());
    for (entry, id) in entries.into_iter().zip(known) {
        let id = id.unwrap_or_else(|| {
            *highest += 1;
            format!("todo_{highest}")
        });
        todos.push(Todo { id, content: entry.content.trim().to_owned(), status: entry.status.into() });
    }
    todos
}

/// Replaces the whole todo list. Keep one item in_progress.
#[tool(idempotent, sequential)]
async fn todo_write(
    /// All items, in order.
    todos: Vec<TodoEntry>,
    State(list): State<TodoTools>,
    CallId(call): CallId,
) -> Result<ToolOutput, ToolError> {
    let list = list.write(todos).await?;
    let output = list.to_output();
    Ok(output.with_event(EventKind::TodoUpdated { todos: list.todos, counts: list.counts, tool_call_id: call }))
}

/// Reads the todo list.
#[tool(read_only)]
async fn todo_read(State(list): State<TodoTools>) -> Result<ToolOutput, ToolError> {
    Ok(TodoList::of(list.todos().await?).to_output())
}
