//! `toolwright threads events`.

use futures_util::StreamExt as _;
use toolwright::{AgentError, Seq};

use super::Looked;
use crate::args::EventsOptions;
use crate::exit::Exit;
use crate::interrupt::Interrupts;
use crate::problem::Problem;
use crate::show::Show;
use crate::terminal::{DIM, Terminal};

pub(crate) async fn events(options: &EventsOptions, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let (looked, thread, info) = Looked::thread(&options.store, &options.id).await?;
    if options.from > info.head.0 {
        let range = format!("its journal ends at {}", info.head);
        return Err(looked.problem(AgentError::StepNotFound { thread: info.id, what: format!("position {}", options.from), range }));
    }
    let from = Seq(options.from);
    let mut interrupts = Interrupts::listen();
    let events = if options.follow { thread.events(from) } else { thread.events_so_far(from) };
    let mut events = events.map_err(|error| looked.problem(error))?;
    let mut show = Show::replayed(options.json.json);
    if options.follow && !options.json.json && terminal.is_watched() {
        terminal.note(format_args!("{DIM}following {}; Ctrl-C ends it{DIM:#}", info.id));
    }
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            () = interrupts.next() => {
                show.rest(terminal)?;
                return Ok(Exit::Interrupted);
            }
        };
        match event {
            Some(Ok(event)) => show.event(&event, terminal)?,
            Some(Err(error)) => {
                show.rest(terminal)?;
                return Err(looked.problem(error));
            }
            None => break,
        }
    }
    show.rest(terminal)?;
    Ok(Exit::Done)
}
