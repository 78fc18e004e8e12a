//! `toolwright threads export`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use toolwright::{AgentError, Seq, ThreadId};

use super::Looked;
use crate::args::ExportOptions;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::terminal::{DIM, Terminal};

/// How many records are read at once.
const PAGE: usize = 1000;

pub(crate) async fn export(options: &ExportOptions, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let (looked, _, info) = Looked::thread(&options.store, &options.id).await?;
    let Some(path) = &options.output else {
        write_journal(&looked, &info.id, terminal.out()).await?;
        terminal.out().flush()?;
        return Ok(Exit::Done);
    };
    let mut half = Half::beside(path)?;
    let written = write_journal(&looked, &info.id, &mut half.file).await;
    let count = written.map_err(|failed| match failed {
        Failed::Output(error) => unwritable(path, &error),
        Failed::Store(problem) => problem,
    })?;
    half.becomes(path)?;
    let noun = if count == 1 { "record" } else { "records" };
    terminal.note(format_args!("{DIM}{count} {noun} of {} in {}{DIM:#}", info.id, path.display()));
    Ok(Exit::Done)
}

/// What can fail on the way from the store to the output.
enum Failed {
    Output(io::Error),
    Store(Problem),
}

impl From<Failed> for Problem {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Output(error) => error.into(),
            Failed::Store(problem) => problem,
        }
    }
}

/// Writes the records, a page at a time, and gives how many there were.
async fn write_journal(looked: &Looked, thread: &ThreadId, out: &mut impl Write) -> Result<u64, Failed> {
    let mut written = 0;
    let mut after = Seq(0);
    loop {
        let page = looked.store.read(thread, after, PAGE).await.map_err(|error| Failed::Store(looked.problem(error)))?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        for record in &page {
            let line = serde_json::to_string(record).map_err(|error| Failed::Output(io::Error::other(error)))?;
            writeln!(out, "{line}").map_err(Failed::Output)?;
            written += 1;
        }
        if page.len() < PAGE {
            break;
        }
    }
    if written == 0 {
        // Deleted since it was looked up.
        return Err(Failed::Store(looked.problem(AgentError::UnknownThread { thread: thread.clone() })));
    }
    out.flush().map_err(Failed::Output)?;
    Ok(written)
}

/// A file that gets its name once it is whole; until then it is removed if anything fails.
struct Half {
    path: PathBuf,
    file: BufWriter<File>,
    is_whole: bool,
}

impl Half {
    fn beside(path: &Path) -> Result<Self, Problem> {
        if path.is_dir() {
            let sentence = format!("{} is a folder", path.display());
            return Err(Problem::usage(sentence).hint(format!("name a file in it: --output {}", path.join("thread.jsonl").display())));
        }
        let Some(name) = path.file_name() else {
            return Err(Problem::usage(format!("{} names no file", path.display())).hint("write --output thread.jsonl"));
        };
        let mut half_name = name.to_owned();
        half_name.push(format!(".{}.part", std::process::id()));
        let half = path.with_file_name(half_name);
        let file = File::create(&half).map_err(|error| {
            Problem::usage(format!("{} can't be written: {error}", path.display())).hint("name a file in a folder of yours")
        })?;
        Ok(Self { path: half, file: BufWriter::new(file), is_whole: false })
    }

    fn becomes(mut self, path: &Path) -> Result<(), Problem> {
        let synced = self.file.flush().and_then(|()| self.file.get_ref().sync_all());
        synced.and_then(|()| std::fs::rename(&self.path, path)).map_err(|error| unwritable(path, &error))?;
        self.is_whole = true;
        Ok(())
    }
}

impl Drop for Half {
    fn drop(&mut self) {
        if !self.is_whole {
            // What can't be removed is at least not under the name that was asked for.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn unwritable(path: &Path, error: &io::Error) -> Problem {
    Problem::failed("TOOLWRIGHT_AGENT_EXECUTION_FAILED", format!("{} can't be written: {error}", path.display()))
}
