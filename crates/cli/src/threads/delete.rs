//! `toolwright threads delete`.

use std::io::Write as _;

use toolwright::{StoreError, ThreadQuery, ThreadStatus, Timestamp};

use super::{Looked, count};
use crate::args::DeleteOptions;
use crate::exit::Exit;
use crate::interrupt::Interrupts;
use crate::kept::Kept;
use crate::lines::Lines;
use crate::problem::Problem;
use crate::terminal::{DIM, Terminal, one_line};

pub(crate) async fn delete(options: &DeleteOptions, terminal: &mut Terminal) -> Result<Exit, Problem> {
    match (&options.id, &options.finished_before) {
        (Some(id), _) => one(id, options, terminal).await,
        (None, Some(date)) => finished(date, options, terminal).await,
        (None, None) => Err(Problem::usage("no thread is named").hint("name one, or those finished before a date with --finished-before")),
    }
}

async fn one(id: &str, options: &DeleteOptions, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let (looked, thread, info) = Looked::thread(&options.store, id).await?;
    let title = one_line(&info.title, 60);
    let named = if title.is_empty() { info.id.to_string() } else { format!("{} ({title})", info.id) };
    if !agreed(&format!("delete the thread {named} with everything it has?"), options.yes, terminal).await? {
        return Ok(Exit::Done);
    }
    thread.delete().await.map_err(|error| looked.problem(error))?;
    terminal.note(format_args!("{DIM}the thread {} is deleted{DIM:#}", info.id));
    looked.close().await;
    Ok(Exit::Done)
}

async fn finished(date: &str, options: &DeleteOptions, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let before = moment(date).ok_or_else(|| {
        Problem::usage(format!("`{date}` is neither a date nor a moment")).hint("write 2026-01-31, or 2026-01-31T12:00:00Z")
    })?;
    let found = match Looked::at(Kept::named_or_default(&options.store)?).await? {
        Ok(looked) => {
            let found = how_many(&looked, before).await.map_err(|error| looked.problem(error))?;
            (found > 0).then_some((looked, found))
        }
        Err(_) => None,
    };
    let Some((looked, found)) = found else {
        terminal.note(format_args!("{DIM}no thread was finished before {}{DIM:#}", before.to_iso()));
        return Ok(Exit::Done);
    };
    let threads = count(found, "thread", "threads");
    let question = format!("delete {threads} finished before {}, with everything they have?", before.to_iso());
    if !agreed(&question, options.yes, terminal).await? {
        return Ok(Exit::Done);
    }
    let deleted = looked.agent.threads().prune(before).await.map_err(|error| looked.problem(error))?;
    for id in &deleted {
        writeln!(terminal.out(), "{id}")?;
    }
    terminal.out().flush()?;
    terminal.note(format_args!("{DIM}{} deleted{DIM:#}", count(deleted.len(), "thread", "threads")));
    looked.close().await;
    Ok(Exit::Done)
}

async fn how_many(looked: &Looked, before: Timestamp) -> Result<usize, StoreError> {
    let mut query =
        ThreadQuery { status: Some(ThreadStatus::Finished), changed_before: Some(before), limit: 1000, ..ThreadQuery::default() };
    let mut found = 0;
    loop {
        let page = looked.store.threads(&query).await?;
        found += page.items.len();
        query.cursor = page.next;
        if query.cursor.is_none() {
            return Ok(found);
        }
    }
}

/// Whether somebody agrees: here, with `--yes`, or on the terminal. Nobody is no answer.
async fn agreed(question: &str, yes: bool, terminal: &mut Terminal) -> Result<bool, Problem> {
    if yes {
        return Ok(true);
    }
    if !terminal.can_ask() {
        return Err(Problem::usage("nobody is there to agree that it is deleted").hint("say so with --yes"));
    }
    terminal.prompt(format_args!("{question} [y/N] "));
    let (mut lines, mut interrupts) = (Lines::default(), Interrupts::listen());
    let line = tokio::select! {
        line = lines.next() => line,
        () = interrupts.next() => {
            terminal.note("");
            return Err(Problem::Quiet(Exit::Interrupted));
        }
    };
    let agreed = line.is_some_and(|line| matches!(line.trim().to_lowercase().as_str(), "y" | "yes"));
    if !agreed {
        terminal.note(format_args!("{DIM}nothing is deleted{DIM:#}"));
    }
    Ok(agreed)
}

/// A date in UTC, or a moment.
fn moment(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    Timestamp::from_iso(text).or_else(|| Timestamp::from_iso(&format!("{text}T00:00:00Z")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_its_beginning_in_utc() {
        assert_eq!(moment("2026-01-01"), Some(Timestamp(1_767_225_600_000)));
        assert_eq!(moment(" 2026-01-01T01:00:00+01:00 "), Some(Timestamp(1_767_225_600_000)));
        for odd in ["", "yesterday", "2026-02-30", "2026", "1767225600000"] {
            assert_eq!(moment(odd), None, "{odd}");
        }
    }
}
