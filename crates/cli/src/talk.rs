//! What `run`, `chat` and `threads resume` have in common: an agent, and the thread it talks in.

use crate::args::{AgentOptions, TalkOptions};
use crate::choose::{Choice, agent};
use crate::follow::{Answers, Session, Stays};
use crate::interrupt::Interrupts;
use crate::kept::{Kept, thread_id};
use crate::lines::Lines;
use crate::problem::Problem;
use crate::show::{Raw, Show};
use crate::terminal::{DIM, Terminal};

/// The session of `run` and `chat`. Without a store and a thread, nothing is kept, and no store is touched.
pub(crate) async fn session<'t>(options: &TalkOptions, terminal: &'t mut Terminal) -> Result<Session<'t>, Problem> {
    if let Some(id) = &options.thread {
        thread_id(id)?;
    }
    let kept = match &options.thread {
        Some(_) => Some(Kept::named_or_default(&options.store)?),
        None => Kept::named(&options.store)?,
    };
    let stays = match kept.filter(|kept| !kept.is_memory()) {
        Some(kept) => Some(Stays { opened: kept.open(terminal).await?, kept }),
        None => None,
    };
    let session = session_in(stays, options.thread.as_deref(), &options.agent, terminal).await?;
    if let (Some(stays), None) = (&session.stays, &options.thread) {
        let id = session.thread.id().map_err(Problem::from)?;
        let command = stays.kept.command(&format!("run --thread {id} \"...\""));
        session.terminal.note(format_args!("{DIM}this is the thread {id}; go on with `{command}`{DIM:#}"));
    }
    Ok(session)
}

/// A session in a thread that stays there, or in one of its own that does not stay.
pub(crate) async fn session_in<'t>(
    stays: Option<Stays>,
    thread: Option<&str>,
    options: &AgentOptions,
    terminal: &'t mut Terminal,
) -> Result<Session<'t>, Problem> {
    let choice = Choice::of(options.model.as_deref());
    let mut interrupts = Interrupts::listen();
    let store = stays.as_ref().map(|stays| stays.opened.store());
    let agent = agent(options, &choice, store, terminal, &mut interrupts).await?;
    let raw = if choice.is_local() { Raw::Results } else { Raw::Text };
    let thread = thread.map_or_else(|| agent.new_thread(), |id| agent.thread(id));
    Ok(Session {
        thread: match options.mode {
            Some(mode) => thread.permission_mode(mode.into()),
            None => thread,
        },
        agent,
        stays,
        show: Show::new(options.json, raw),
        lines: Lines::default(),
        interrupts,
        answers: Answers::new(options.yes, options.json, terminal),
        terminal,
    })
}
