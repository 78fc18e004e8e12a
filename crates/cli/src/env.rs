//! `toolwright env`: the variables of a thread, which its tools get.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use serde_json::json;
use toolwright::{Agent, AgentError, EnvType, ThreadHandle};

use crate::args::{EnvListOptions, EnvSetOptions, EnvUnsetOptions, VariableType};
use crate::exit::Exit;
use crate::kept::{Kept, close, thread_id};
use crate::problem::Problem;
use crate::terminal::{BOLD, DIM, Terminal, WARN};

/// The longest value that is read.
const LONGEST: u64 = 1024 * 1024;

fn handle(opened: &toolwright::store::Opened, id: &str) -> Result<ThreadHandle, AgentError> {
    let agent = Agent::builder().name("toolwright").store(Arc::clone(&opened.store())).build_without_model()?;
    Ok(agent.thread(id))
}

pub(crate) async fn list(options: &EnvListOptions, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let id = thread_id(&options.id)?;
    let kept = Kept::named_or_default(&options.store)?;
    let entries = match kept.look().await? {
        Some(opened) => match handle(&opened, id.as_str()) {
            Ok(thread) => thread.env().await.map_err(|error| kept.problem(error))?,
            Err(error) => return Err(kept.problem(error)),
        },
        None => Vec::new(),
    };
    if options.json.json {
        let rows: Vec<_> = entries
            .iter()
            .map(|entry| json!({ "name": entry.name, "type": entry.env_type, "declared": entry.declared, "problem": entry.problem }))
            .collect();
        writeln!(terminal.out(), "{}", json!({ "env": rows }))?;
        return Ok(Exit::Done);
    }
    if entries.is_empty() {
        let set = kept.command(&format!("env set {id} NAME"));
        terminal.note(format_args!("{DIM}the thread {id} has no variables; `{set}` sets one{DIM:#}"));
    }
    let widest = entries.iter().map(|entry| entry.name.len()).max().unwrap_or_default().min(40);
    for entry in &entries {
        let word = match entry.env_type {
            EnvType::Text => "text",
            EnvType::Secret => "secret",
        };
        write!(terminal.out(), "{BOLD}{:<widest$}{BOLD:#}  {word}", entry.name)?;
        match &entry.problem {
            Some(problem) => writeln!(terminal.out(), "  {WARN}{problem}{WARN:#}")?,
            None => writeln!(terminal.out())?,
        }
    }
    Ok(Exit::Done)
}

pub(crate) async fn set(options: &EnvSetOptions, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let id = thread_id(&options.id)?;
    let kept = Kept::named_or_default(&options.store)?;
    if kept.is_memory() {
        return Err(
            Problem::usage("the store `memory:` keeps nothing from one command to the next").hint("name a file or a server with --store")
        );
    }
    let value = value(&options.name, terminal)?;
    let opened = kept.open(terminal).await?;
    let done = async {
        let thread = handle(&opened, id.as_str())?;
        match options.variable_type {
            Some(VariableType::Text) => thread.set_env_as(&options.name, &value, EnvType::Text).await,
            Some(VariableType::Secret) => thread.set_env_as(&options.name, &value, EnvType::Secret).await,
            None => thread.set_env(&options.name, Some(&value)).await,
        }
    };
    let done = done.await;
    close(opened).await;
    done.map_err(|error| kept.problem(error))?;
    terminal.note(format_args!("{DIM}{} of the thread {id} is set{DIM:#}", options.name));
    Ok(Exit::Done)
}

pub(crate) async fn unset(options: &EnvUnsetOptions, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let id = thread_id(&options.id)?;
    let kept = Kept::named_or_default(&options.store)?;
    if let Some(opened) = kept.look().await? {
        let done = async { handle(&opened, id.as_str())?.set_env(&options.name, None).await };
        let done = done.await;
        close(opened).await;
        done.map_err(|error| kept.problem(error))?;
    }
    terminal.note(format_args!("{DIM}{} of the thread {id} is not set{DIM:#}", options.name));
    Ok(Exit::Done)
}

/// The value: typed unseen on a terminal, else all of standard input without the line end at its end. It never stands on the command
/// line, where other users of the machine could read it.
fn value(name: &str, terminal: &mut Terminal) -> Result<String, Problem> {
    if terminal.can_ask() {
        terminal.prompt(format_args!("{name}: "));
        return Ok(console::Term::stderr().read_secure_line()?);
    }
    let mut text = String::new();
    let read = std::io::stdin().take(LONGEST + 1).read_to_string(&mut text);
    read.map_err(|error| Problem::usage(format!("the value of {name} can't be read from standard input: {error}")))?;
    if text.len() as u64 > LONGEST {
        return Err(Problem::usage(format!("the value of {name} is longer than {LONGEST} bytes")).hint("keep it in a file of the thread"));
    }
    let line = text.strip_suffix('\n').unwrap_or(&text);
    Ok(line.strip_suffix('\r').unwrap_or(line).to_owned())
}
