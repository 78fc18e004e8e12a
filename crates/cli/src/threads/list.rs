//! `toolwright threads list`.

use std::fmt::Write as _;
use std::io::Write as _;

use serde_json::json;
use toolwright::{Page, ThreadInfo, ThreadQuery, ThreadStatus};

use super::{Looked, ago, now, status};
use crate::args::{ListOptions, Status};
use crate::exit::Exit;
use crate::kept::{Kept, quoted};
use crate::problem::Problem;
use crate::terminal::{BOLD, DIM, Terminal, one_line};

/// The widest column of ids that others are aligned to.
const WIDEST: usize = 40;

pub(crate) async fn list(options: &ListOptions, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let query = ThreadQuery {
        status: options.status.map(Status::of_thread),
        agent: options.agent.clone(),
        text: options.search.clone(),
        limit: usize::try_from(options.limit).unwrap_or(usize::MAX),
        cursor: options.after.clone(),
        ..ThreadQuery::default()
    };
    let (kept, page) = match Looked::at(Kept::named_or_default(&options.store)?).await? {
        Ok(looked) => {
            let page = looked.agent.threads().list(&query).await.map_err(|error| looked.problem(error))?;
            (looked.kept, page)
        }
        Err(kept) => (kept, Page::default()),
    };
    if options.json.json {
        writeln!(terminal.out(), "{}", json!({ "threads": page.items, "next": page.next }))?;
        return Ok(Exit::Done);
    }
    if page.items.is_empty() {
        let sought = options.status.is_some() || options.agent.is_some() || options.search.is_some() || options.after.is_some();
        if sought {
            terminal.note(format_args!("{DIM}no thread fits{DIM:#}"));
        } else {
            let keep = kept.command("run --thread ID \"...\"");
            terminal.note(format_args!("{DIM}no thread is kept in {} yet; `{keep}` keeps one{DIM:#}", kept.shown()));
        }
    }
    table(&page.items, terminal)?;
    if let Some(next) = &page.next {
        let more = kept.command(&again(options, next));
        terminal.note(format_args!("{DIM}there are more: {more}{DIM:#}"));
    }
    Ok(Exit::Done)
}

fn table(threads: &[ThreadInfo], terminal: &mut Terminal) -> Result<(), Problem> {
    let widest = threads.iter().map(|thread| thread.id.as_str().len()).max().unwrap_or_default().min(WIDEST);
    let now = now();
    for thread in threads {
        let (style, word) = status(thread.status);
        let (id, changed) = (thread.id.as_str(), ago(thread.changed_at, now));
        let before = id.len().max(widest) + 2 + 17 + 2 + 11 + 2;
        let title = one_line(&thread.title, terminal.width().saturating_sub(before).max(20));
        let line = format!("{BOLD}{id:<widest$}{BOLD:#}  {style}{word:<17}{style:#}  {DIM}{changed:<11}{DIM:#}  {title}");
        writeln!(terminal.out(), "{}", line.trim_end())?;
    }
    Ok(())
}

/// The words of the same command for the next page.
fn again(options: &ListOptions, cursor: &str) -> String {
    let mut words = "threads list".to_owned();
    let mut option = |name: &str, value: Option<&str>| {
        if let Some(value) = value {
            // Writing to a text can't fail.
            let _ = write!(words, " --{name} {}", quoted(value));
        }
    };
    option("status", options.status.map(|status| status.of_thread().as_str()));
    option("agent", options.agent.as_deref());
    option("search", options.search.as_deref());
    option("limit", Some(&options.limit.to_string()));
    option("after", Some(cursor));
    words
}

impl Status {
    fn of_thread(self) -> ThreadStatus {
        match self {
            Self::InProgress => ThreadStatus::InProgress,
            Self::AwaitingApproval => ThreadStatus::AwaitingApproval,
            Self::Finished => ThreadStatus::Finished,
        }
    }
}
