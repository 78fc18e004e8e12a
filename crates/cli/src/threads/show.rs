//! `toolwright threads show`.

use std::io::Write as _;

use serde_json::{Value, json};
use toolwright::store::{DataStore, Shelf};
use toolwright::{Author, Message, PendingApproval, StoreError, ThreadId, ThreadInfo, ThreadStatus, Transcript};

use super::{Looked, ago, count, now, status};
use crate::args::OneOptions;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::terminal::{BAD, BOLD, CALL, DIM, GOOD, Terminal, WARN, one_line, plain};

/// How many are read at once.
const PAGE: usize = 1000;

pub(crate) async fn show(options: &OneOptions, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let (looked, thread, info) = Looked::thread(&options.store, &options.id).await?;
    let history = thread.history().await.map_err(|error| looked.problem(error))?;
    let store = &*looked.store;
    let pending = store.pending(Some(&info.id), None, PAGE).await.map_err(|error| looked.problem(error))?.items;
    let posted = store.inbox(&info.id, 0).await.map_err(|error| looked.problem(error))?.len();
    let kept = Counts::of(store.data(), &info.id).await.map_err(|error| looked.problem(error))?;
    if options.json.json {
        let messages: Vec<&Message> = history.iter().map(|message| &**message).collect();
        let Counts { values, environment, files } = kept;
        let all = json!({
            "thread": info, "messages": messages, "pending": pending, "posted": posted,
            "values": values, "environment": environment, "files": files,
        });
        writeln!(terminal.out(), "{all}")?;
        return Ok(Exit::Done);
    }
    head(&info, posted, &kept, terminal)?;
    transcript(&history, terminal)?;
    for waits in &pending {
        asks(waits, terminal)?;
    }
    terminal.out().flush()?;
    match info.status {
        ThreadStatus::AwaitingApproval => terminal.hint(&looked.kept.how_to_decide(&info.id)),
        ThreadStatus::InProgress => {
            let finish = looked.kept.command(&format!("threads resume {}", info.id));
            terminal.hint(&format!("a run has not ended; if nobody moves the thread, finish it with `{finish}`"));
        }
        ThreadStatus::Finished => {}
    }
    Ok(Exit::Done)
}

/// How much a thread keeps beside its journal.
struct Counts {
    values: usize,
    environment: usize,
    files: usize,
}

impl Counts {
    async fn of(data: &dyn DataStore, thread: &ThreadId) -> Result<Self, StoreError> {
        let mut files = 0;
        let mut after: Option<String> = None;
        loop {
            let page = data.files(thread, "", after.as_deref(), PAGE).await?;
            files += page.len();
            match page.last() {
                Some(last) if page.len() == PAGE => after = Some(last.path.clone()),
                _ => break,
            }
        }
        Ok(Self { values: values(data, thread, Shelf::Values).await?, environment: values(data, thread, Shelf::Environment).await?, files })
    }
}

async fn values(data: &dyn DataStore, thread: &ThreadId, shelf: Shelf) -> Result<usize, StoreError> {
    let mut found = 0;
    let mut after: Option<String> = None;
    loop {
        let page = data.values(thread, shelf, "", after.as_deref(), PAGE).await?;
        found += page.len();
        match page.last() {
            Some((key, _)) if page.len() == PAGE => after = Some(key.clone()),
            _ => return Ok(found),
        }
    }
}

fn head(info: &ThreadInfo, posted: usize, kept: &Counts, terminal: &mut Terminal) -> Result<(), Problem> {
    let (style, word) = status(info.status);
    let now = now();
    let mut lines = vec![
        ("agent", plain(&info.agent).into_owned()),
        ("begun", format!("{}, {}", info.created_at.to_iso(), ago(info.created_at, now))),
        ("changed", format!("{}, {}", info.changed_at.to_iso(), ago(info.changed_at, now))),
        ("journal", count(usize::try_from(info.head.0).unwrap_or(usize::MAX), "record", "records")),
    ];
    if let Some(from) = &info.forked_from {
        lines.push(("fork of", from.to_string()));
    }
    if let Some(parent) = &info.parent {
        lines.push(("child of", parent.to_string()));
    }
    let Counts { values, environment, files } = *kept;
    if values + environment + files > 0 {
        let values = count(values, "value", "values");
        let variables = count(environment, "environment value", "environment values");
        lines.push(("keeps", format!("{values}, {variables}, {}", count(files, "file", "files"))));
    }
    if posted > 0 {
        lines.push(("inbox", format!("{} for the next run", count(posted, "item", "items"))));
    }
    let out = terminal.out();
    writeln!(out, "{BOLD}{}{BOLD:#}  {style}{word}{style:#}", info.id)?;
    for (name, value) in lines {
        writeln!(out, "{DIM}{name:<8}{DIM:#} {value}")?;
    }
    Ok(())
}

/// What was said, the calls and what became of them, as a model would be sent it.
fn transcript(history: &Transcript, terminal: &mut Terminal) -> Result<(), Problem> {
    let width = terminal.width();
    for message in history.iter() {
        let text = message.text_of();
        let text = plain(text.trim_end());
        let starts_turn = matches!(message.author, Author::Human | Author::System);
        if starts_turn {
            writeln!(terminal.out())?;
        }
        match message.author {
            Author::Human => {
                for line in text.lines() {
                    writeln!(terminal.out(), "{BOLD}>{BOLD:#} {line}")?;
                }
            }
            Author::System => writeln!(terminal.out(), "{DIM}{text}{DIM:#}")?,
            _ if text.is_empty() => {}
            _ => writeln!(terminal.out(), "{text}")?,
        }
        for call in message.calls() {
            let line = call_line(&call.name, &call.arguments, width);
            writeln!(terminal.out(), "{line}")?;
        }
        for result in message.results() {
            let line = result_line(&result.tool_name, &result.text(), result.is_error(), width);
            writeln!(terminal.out(), "{line}")?;
        }
    }
    Ok(())
}

/// A call, as `run` shows it.
fn call_line(tool: &str, arguments: &str, width: usize) -> String {
    let tool = plain(tool);
    let room = width.saturating_sub(tool.chars().count() + 3);
    format!("{CALL}→ {tool}{CALL:#} {DIM}{}{DIM:#}", one_line(arguments, room))
}

/// A result, as `run` shows it: of a failure, its name and its message.
fn result_line(tool: &str, text: &str, failed: bool, width: usize) -> String {
    let tool = plain(tool);
    let failure: Option<Value> = failed.then(|| serde_json::from_str(text).ok()).flatten();
    let field = |name: &str| failure.as_ref().and_then(|failure| failure.get(name)).and_then(Value::as_str);
    let told = field("message").map(|message| format!("{}: {message}", field("error").unwrap_or("failed")));
    let text = told.as_deref().unwrap_or(text);
    let (style, mark) = if failed { (BAD, '✗') } else { (GOOD, '✓') };
    let room = width.saturating_sub(tool.chars().count() + 3);
    format!("{style}{mark} {tool}{style:#} {}", one_line(text, room))
}

/// A call that waits. Its arguments are shown whole, since somebody has to decide about them.
fn asks(pending: &PendingApproval, terminal: &mut Terminal) -> Result<(), Problem> {
    let out = terminal.out();
    writeln!(out, "\n{WARN}? {BOLD}{}{BOLD:#}{WARN:#} {}", plain(&pending.tool), plain(&pending.arguments))?;
    if let Some(reason) = &pending.reason {
        writeln!(out, "  {}", plain(reason))?;
    }
    if let Some(question) = pending.detail.as_ref().and_then(|detail| detail.get("question")).filter(|question| !question.is_null()) {
        writeln!(out, "  {}", plain(&shown(question)))?;
    }
    writeln!(out, "  {DIM}decision {}{DIM:#}", plain(pending.id.as_str()))?;
    Ok(())
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
