//! Built-in tools: dates, todo lists, a question to the user; behind features, the files of a folder (`workspace`), a shell
//! (`shell`), checks of patches (`patch`), and pages and requests (`web`).
//!
//! ```
//! let names: Vec<_> = toolwright_tools::builtin().iter().map(|tool| tool.name().to_string()).collect();
//! assert_eq!(names, ["current_date", "day_name", "todo_write", "todo_read"]);
//! ```

mod clock;
mod date;
#[cfg(feature = "_integrations")]
pub mod integrations;
#[cfg(feature = "patch")]
pub mod patch;
mod question;
#[cfg(feature = "shell")]
pub mod shell;
mod todo;
#[cfg(feature = "web")]
mod web;
#[cfg(all(unix, feature = "workspace"))]
pub mod workspace;
mod written;

pub use clock::{Clock, Today};
pub use date::{Day, current_date, day_name};
pub use question::{Answered, Question, ask_question};
pub use todo::{MemoryTodos, TodoEntry, TodoList, TodoStore, TodoTools};
pub use toolwright_tool::core::{Todo, TodoCounts, TodoStatus};
#[cfg(feature = "web")]
pub use web::{HttpRequest, Links, WebFetch, main_text, page_text};

use toolwright_tool::{Tool, tools};

/// The tools that touch nothing outside the program, always in this order: dates, then a todo list of its own.
pub fn builtin() -> Vec<Tool> {
    let mut all = tools![current_date, day_name];
    all.extend(TodoTools::new().tools());
    all
}
