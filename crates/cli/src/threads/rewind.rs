//! `toolwright threads rewind`.

use std::io::Write as _;

use serde_json::json;
use toolwright::ToolError;
use toolwright::builtin::workspace::{Rewind, RewindReport, SkipReason, Workspace};

use super::{Looked, count};
use crate::args::RewindOptions;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::terminal::{DIM, Terminal, one_line};

pub(crate) async fn rewind(options: &RewindOptions, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let workspace = Workspace::at(&options.workspace).map_err(|error| said(Problem::usage, &error.to_string()))?;
    let (looked, thread, info) = Looked::thread(&options.store, &options.id).await?;
    let values = thread.values().map_err(|error| looked.problem(error))?;
    let files = thread.files().map_err(|error| looked.problem(error))?;
    let checkpoints = workspace.checkpoints_of(values, files);
    let Some(turn) = options.turn else {
        let turns = checkpoints.list().await.map_err(|error| failed(&error))?;
        if options.json.json {
            writeln!(terminal.out(), "{}", json!({ "turns": turns }))?;
            return Ok(Exit::Done);
        }
        for changes in &turns {
            let paths: Vec<String> = changes.paths.iter().map(|path| one_line(path, 200)).collect();
            writeln!(terminal.out(), "{:>4}  {}", changes.turn, paths.join(", "))?;
        }
        let said = if turns.is_empty() {
            format!("{} changed no file of this workspace that could be taken back", info.id)
        } else {
            "go back to before a turn with --turn".to_owned()
        };
        terminal.note(format_args!("{DIM}{said}{DIM:#}"));
        return Ok(Exit::Done);
    };
    let how = Rewind { dry_run: options.dry_run, force: options.force };
    let report = checkpoints.rewind(turn, how).await.map_err(|error| failed(&error))?;
    if options.json.json {
        writeln!(terminal.out(), "{}", json!(report))?;
    } else {
        told(&report, terminal)?;
    }
    looked.close().await;
    Ok(Exit::Done)
}

fn told(report: &RewindReport, terminal: &mut Terminal) -> Result<(), Problem> {
    for (word, paths) in [("restored", &report.restored), ("deleted", &report.deleted)] {
        for path in paths {
            writeln!(terminal.out(), "{word:<9} {}", one_line(path, 200))?;
        }
    }
    for skipped in &report.skipped {
        let why = match skipped.reason {
            SkipReason::ChangedSince => "somebody changed it since; --force takes it back all the same",
            SkipReason::TooLarge => "it was too large to be kept",
            SkipReason::Unreadable => "it can't be read, or what it was is not kept",
        };
        writeln!(terminal.out(), "{:<9} {} ({why})", "left", one_line(&skipped.path, 200))?;
    }
    terminal.out().flush()?;
    let files = count(report.restored.len() + report.deleted.len(), "file", "files");
    let said = if report.dry_run { "would be taken back" } else { "taken back" };
    terminal.note(format_args!("{DIM}{files} {said}{DIM:#}"));
    Ok(())
}

fn failed(error: &ToolError) -> Problem {
    said(|sentence| Problem::failed("TOOLWRIGHT_TOOL_EXECUTION_FAILED", sentence), error.message())
}

/// The library's sentences say what is wrong, then what to do.
fn said(problem: impl Fn(String) -> Problem, message: &str) -> Problem {
    match message.split_once("; ") {
        Some((sentence, hint)) => problem(sentence.to_owned()).hint(hint),
        None => problem(message.to_owned()),
    }
}
