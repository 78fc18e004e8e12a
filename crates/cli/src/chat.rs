//! `toolwright chat`: one thread, line by line.

use std::io::Write as _;

use toolwright::ThreadStatus;

use crate::args::TalkOptions;
use crate::exit::Exit;
use crate::follow::{Session, ended};
use crate::problem::Problem;
use crate::talk;
use crate::terminal::{BOLD, DIM, Terminal, plain};
use crate::tools;

const HELP: &str = "  /tools  the tools of this agent
  /help   this list
  /quit   end; so does the end of the input";

pub(crate) async fn chat(options: &TalkOptions, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let person = terminal.can_ask();
    let mut session = talk::session(options, terminal).await?;
    if person {
        session.terminal.note(format_args!("{DIM}{}; /help for commands{DIM:#}", session.agent.model().name()));
    }
    let outcome = converse(&mut session, person).await;
    session.end(outcome).await
}

async fn converse(session: &mut Session<'_>, person: bool) -> Result<Exit, Problem> {
    begin(session).await?;
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
                if let Err(problem) = turn(session, text).await
                    && !goes_on(&problem, person)
                {
                    return Err(problem);
                }
            }
        }
    }
}

/// A thread that was there before goes on where it stands: what it waits for is decided first.
async fn begin(session: &mut Session<'_>) -> Result<(), Problem> {
    let info = session.thread.info().await.map_err(|error| session.problem(error))?;
    let (Some(info), Some(stays)) = (info, &session.stays) else { return Ok(()) };
    match info.status {
        ThreadStatus::Finished => {
            session.terminal.note(format_args!("{DIM}going on with the thread {}: {}{DIM:#}", info.id, plain(&info.title)));
        }
        ThreadStatus::InProgress => {
            let finish = stays.kept.command(&format!("threads resume {}", info.id));
            let watch = stays.kept.command(&format!("threads events {} --follow", info.id));
            let sentence = format!("the last run of the thread {} has not ended", info.id);
            let problem = Problem::new(Exit::Usage, "TOOLWRIGHT_SESSION_TURN_PENDING", sentence);
            return Err(problem.hint(format!("if it was interrupted, finish it with `{finish}`; if it goes on, watch it with `{watch}`")));
        }
        ThreadStatus::AwaitingApproval => {
            let reply = session.resume().await?;
            session.terminal.out().flush()?;
            if let Err(problem) = ended(&reply) {
                problem.tell(session.terminal);
            }
        }
    }
    Ok(())
}

/// One request and its reply. A run that fails is told, and the conversation goes on.
async fn turn(session: &mut Session<'_>, text: &str) -> Result<(), Problem> {
    match session.send(text).await.and_then(|reply| ended(&reply)) {
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
