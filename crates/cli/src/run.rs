//! `toolwright run`.

use std::io::{IsTerminal as _, Read as _};

use crate::args::RunOptions;
use crate::exit::Exit;
use crate::follow::ended;
use crate::problem::Problem;
use crate::talk;
use crate::terminal::Terminal;

/// The longest text that is read from standard input, in bytes.
const MOST: u64 = 16 << 20;

pub(crate) async fn run(options: RunOptions, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let prompt = prompt(options.prompt)?;
    let mut session = talk::session(&options.talk, terminal).await?;
    let outcome = session.send(&prompt).await.and_then(|reply| ended(&reply));
    session.end(outcome).await
}

fn prompt(given: Option<String>) -> Result<String, Problem> {
    let prompt = match given {
        Some(text) if text != "-" => text,
        None if std::io::stdin().is_terminal() => {
            return Err(Problem::usage("the request is missing").hint("write it after the command: toolwright run \"What day is it?\""));
        }
        _ => input("the request")?,
    };
    if prompt.trim().is_empty() {
        return Err(Problem::usage("the request is empty").hint("write it after the command, or pipe it in"));
    }
    Ok(prompt)
}

/// All of standard input.
pub(crate) fn input(what: &str) -> Result<String, Problem> {
    let mut bytes = Vec::new();
    let read = std::io::stdin().lock().take(MOST + 1).read_to_end(&mut bytes);
    read.map_err(|error| Problem::usage(format!("{what} can't be read from standard input: {error}")))?;
    if bytes.len() as u64 > MOST {
        return Err(Problem::usage(format!("{what} is longer than {} MiB", MOST >> 20)));
    }
    String::from_utf8(bytes).map_err(|_| Problem::usage(format!("{what} is not valid UTF-8")))
}
