//! `toolwright threads resume` and `fork`: threads that go on.

use std::io::Write as _;

use serde_json::json;
use toolwright::{AgentError, ForkAt, ForkPatch, Seq, ThreadStatus};

use super::Looked;
use crate::args::{ForkOptions, ResumeOptions};
use crate::exit::Exit;
use crate::follow::{Stays, ended};
use crate::kept::thread_id;
use crate::problem::Problem;
use crate::talk;
use crate::terminal::{DIM, Terminal};

pub(crate) async fn resume(options: &ResumeOptions, terminal: &mut Terminal) -> Result<Exit, Problem> {
    // Whether there is such a thread is known before a model is looked for, or fetched.
    let (looked, ..) = Looked::thread(&options.store, &options.id).await?;
    let Looked { kept, opened, .. } = looked;
    let mut session = talk::session_in(Some(Stays { kept, opened }), Some(&options.id), &options.agent, terminal).await?;
    let outcome = session.resume().await.and_then(|reply| ended(&reply));
    session.end(outcome).await
}

pub(crate) async fn fork(options: ForkOptions, terminal: &mut Terminal) -> Result<Exit, Problem> {
    if let Some(id) = &options.new {
        thread_id(id)?;
    }
    let (looked, thread, info) = Looked::thread(&options.store, &options.id).await?;
    let at = match (options.at, options.step) {
        (Some(seq), _) => ForkAt::Seq(Seq(seq)),
        (None, Some(step)) => ForkAt::Step(step),
        (None, None) => ForkAt::Head,
    };
    let mut patch = ForkPatch::new();
    if let Some(id) = options.new {
        patch = patch.id(id);
    }
    let says = options.input.is_some();
    if let Some(input) = options.input {
        if input.trim().is_empty() {
            return Err(Problem::usage("the input for the fork is empty").hint("leave --input out, or say something"));
        }
        patch = patch.append_input(input);
    }
    let fork = thread.fork(at, patch).await.map_err(|error| looked.problem(error))?;
    let id = fork.id().map_err(Problem::from)?.clone();
    let forked = fork.info().await.map_err(|error| looked.problem(error))?;
    let forked = forked.ok_or_else(|| looked.problem(AgentError::UnknownThread { thread: id.clone() }))?;
    if options.json.json {
        writeln!(terminal.out(), "{}", json!({ "thread": forked, "from": info.id }))?;
        looked.close().await;
        return Ok(Exit::Done);
    }
    writeln!(terminal.out(), "{id}")?;
    terminal.out().flush()?;
    let words =
        if says || forked.status != ThreadStatus::Finished { format!("threads resume {id}") } else { format!("run --thread {id} \"...\"") };
    terminal.note(format_args!("{DIM}go on with `{}`{DIM:#}", looked.kept.command(&words)));
    looked.close().await;
    Ok(Exit::Done)
}
