//! `toolwright chat`: one thread, line by line.

use std::io::Write as _;

use crate::args::ChatOptions;
use crate::choose::{Choice, agent};
use crate::exit::Exit;
use crate::follow::{Answers, Session, ended};
use crate::interrupt::Interrupts;
use crate::lines::Lines;
use crate::problem::Problem;
use crate::show::{Raw, Show};
use crate::terminal::{BOLD, DIM, Terminal};
use crate::tools;

const HELP: &str = "  /tools  the tools of this agent
  /help   this list
  /quit   end; so does the end of the input";

pub(crate) async fn chat(options: &ChatOptions, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let options = &options.agent;
    let choice = Choice::of(options.model.as_deref());
    let mut interrupts = Interrupts::listen();
    let agent = agent(options, &choice, terminal, &mut interrupts).await?;
    let person = terminal.can_ask();
    if person {
        terminal.note(format_args!("{DIM}{}; /help for commands{DIM:#}", agent.model().name()));
    }
    let raw = if choice.is_local() { Raw::Results } else { Raw::Text };
    let mut session = Session {
        thread: agent.new_thread(),
        agent,
        show: Show::new(options.json, raw),
        lines: Lines::default(),
        interrupts,
        answers: Answers::new(options.yes, options.json, terminal),
        terminal,
    };
    loop {
        if person {
            session.terminal.prompt(format_args!("{BOLD}>{BOLD:#} "));
        }
        let line = tokio::select! {
            line = session.lines.next() => line,
            () = session.interrupts.next() => {
                session.terminal.note("");
                return Ok(Exit::Interrupted);
            }
        };
        let Some(line) = line else {
            if person {
                session.terminal.note("");
            }
            return Ok(Exit::Done);
        };
        match line.trim() {
            "" => {}
            "/quit" | "/exit" => return Ok(Exit::Done),
            "/help" => session.terminal.note(HELP),
            "/tools" => {
                let names = tools::lines(session.agent.tools().iter());
                session.terminal.note(names.join("\n"));
            }
            command if command.starts_with('/') => {
                Problem::usage(format!("there is no command `{command}`")).hint("/help lists the commands").tell(session.terminal);
            }
            text => {
                if let Err(problem) = turn(&mut session, text).await
                    && !goes_on(&problem, person)
                {
                    return Err(problem);
                }
            }
        }
    }
}

/// One request and its reply. A run that fails is told, and the conversation goes on.
async fn turn(session: &mut Session<'_>, text: &str) -> Result<(), Problem> {
    let stream = session.thread.stream(text);
    match session.follow(stream).await.and_then(|reply| ended(&reply)) {
        Ok(_) => {}
        Err(problem) if problem.exit() == Exit::Failed => {
            problem.tell(session.terminal);
        }
        Err(problem) => return Err(problem),
    }
    Ok(session.terminal.out().flush()?)
}

/// A person who stops a run wants to say something else.
fn goes_on(problem: &Problem, person: bool) -> bool {
    person && matches!(problem, Problem::Quiet(Exit::Interrupted))
}
