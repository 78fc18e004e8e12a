//! Runs of a thread, followed to their end: shown, interrupted, decided.

use futures_util::StreamExt as _;
use toolwright::store::Opened;
use toolwright::{Agent, AgentError, Event, FinishReason, PendingApproval, Reply, RunStream, ThreadHandle};

use crate::ask::{Asked, decide};
use crate::exit::Exit;
use crate::interrupt::Interrupts;
use crate::kept::{Kept, close};
use crate::lines::Lines;
use crate::problem::Problem;
use crate::show::Show;
use crate::terminal::{DIM, Terminal, plain};

/// A thread, and who watches it.
pub(crate) struct Session<'t> {
    pub(crate) agent: Agent,
    pub(crate) thread: ThreadHandle,
    /// Where the thread stays when the command is over; `None` if it does not.
    pub(crate) stays: Option<Stays>,
    pub(crate) show: Show,
    pub(crate) lines: Lines,
    pub(crate) interrupts: Interrupts,
    pub(crate) terminal: &'t mut Terminal,
    /// Who answers when a call asks.
    pub(crate) answers: Answers,
}

/// Where a thread stays.
pub(crate) struct Stays {
    pub(crate) kept: Kept,
    pub(crate) opened: Opened,
}

/// Who answers when a call asks for a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answers {
    /// The command line said yes to everything.
    Yes,
    /// The person at the terminal.
    Person,
    /// Nobody is there.
    Nobody,
}

impl Answers {
    /// Events go to a program, which can't answer on a terminal.
    pub(crate) fn new(yes: bool, json: bool, terminal: &Terminal) -> Self {
        match (yes, json) {
            (true, _) => Self::Yes,
            (false, false) if terminal.can_ask() => Self::Person,
            _ => Self::Nobody,
        }
    }
}

impl Session<'_> {
    /// Sends, and follows what comes of it. What the thread waits for is decided first, and comes to its end.
    pub(crate) async fn send(&mut self, text: &str) -> Result<Reply, Problem> {
        let run = self.thread.stream(text);
        match self.watch(run).await? {
            Err(AgentError::AwaitingApproval { thread, .. }) => {
                if self.answers != Answers::Nobody {
                    self.terminal.note(format_args!("{DIM}the thread {thread} waits for a decision, which comes first{DIM:#}"));
                }
                let reply = self.resume().await?;
                if let Err(problem) = ended(&reply) {
                    self.terminal.note(format_args!("{DIM}what waited did not come to a good end, so the new request was not sent{DIM:#}"));
                    return Err(problem);
                }
                let run = self.thread.stream(text);
                self.follow(run).await
            }
            ended => self.go_on(ended).await,
        }
    }

    /// Goes on with a thread that was interrupted, or that waits for decisions.
    pub(crate) async fn resume(&mut self) -> Result<Reply, Problem> {
        let run = self.thread.resume_stream();
        self.follow(run).await
    }

    /// Follows a run, and those that its decisions lead to, until nothing is left to decide.
    pub(crate) async fn follow(&mut self, run: RunStream) -> Result<Reply, Problem> {
        let ended = self.watch(run).await?;
        self.go_on(ended).await
    }

    async fn go_on(&mut self, mut ended: Result<Reply, AgentError>) -> Result<Reply, Problem> {
        loop {
            let pending = match ended {
                Ok(reply) if reply.finish_reason == FinishReason::AwaitingApproval => reply.pending,
                Ok(reply) => return Ok(reply),
                Err(error @ AgentError::AwaitingApproval { .. }) => {
                    let pending = self.pending().await?;
                    if pending.is_empty() {
                        return Err(self.problem(error));
                    }
                    pending
                }
                Err(error) => return Err(self.problem(error)),
            };
            let mut open = Vec::new();
            for asks in &pending {
                if !self.decides(asks).await? {
                    open.push(asks.clone());
                }
            }
            if open.len() == pending.len() {
                return Err(self.waiting(&open));
            }
            let run = self.thread.resume_stream();
            ended = self.watch(run).await?;
        }
    }

    /// Has one call decided; gives whether it was. What can't be decided so is said, and asked again.
    async fn decides(&mut self, asks: &PendingApproval) -> Result<bool, Problem> {
        loop {
            let asked = decide(asks, self.answers, &mut self.lines, &mut self.interrupts, self.terminal).await?;
            let Asked::Decided(decision) = asked else { return Ok(false) };
            match self.agent.approvals().decide(&asks.id, decision).await {
                Ok(()) => return Ok(true),
                Err(error @ AgentError::ApprovalInvalid { .. }) if self.answers == Answers::Person => {
                    self.terminal.note(format_args!("{DIM}{}{DIM:#}", plain(&error.to_string())));
                }
                // Somebody else was faster, and that decision counts.
                Err(
                    error @ (AgentError::ApprovalConflict { .. } | AgentError::ApprovalLapsed { .. } | AgentError::ApprovalNotFound { .. }),
                ) => {
                    self.terminal.note(format_args!("{DIM}{}{DIM:#}", plain(&error.to_string())));
                    return Ok(true);
                }
                // Others decide.
                Err(error @ (AgentError::ApprovalForbidden { .. } | AgentError::ApprovalInvalid { .. })) => {
                    self.terminal.note(format_args!("{DIM}{}{DIM:#}", plain(&error.to_string())));
                    return Ok(false);
                }
                Err(error) => return Err(self.problem(error)),
            }
        }
    }

    /// The end of the command, with how it ended. Where it was told to stop at once, nothing is waited for.
    pub(crate) async fn end(self, outcome: Result<Exit, Problem>) -> Result<Exit, Problem> {
        if let Some(stays) = self.stays
            && !matches!(outcome, Err(Problem::Quiet(Exit::Interrupted)))
        {
            close(stays.opened).await;
        }
        outcome
    }

    /// What the thread waits for, as its store has it.
    async fn pending(&self) -> Result<Vec<PendingApproval>, Problem> {
        let Some(stays) = &self.stays else { return Ok(Vec::new()) };
        let id = self.thread.id().map_err(Problem::from)?;
        let page = stays.opened.store().pending(Some(id), None, MOST_ASKED).await;
        page.map(|page| page.items).map_err(|error| self.problem(error.into()))
    }

    /// One run. The first Ctrl-C stops it, the second one does not wait for that.
    async fn watch(&mut self, mut run: RunStream) -> Result<Result<Reply, AgentError>, Problem> {
        let mut interrupted = false;
        let mut ended = false;
        let outcome = loop {
            tokio::select! {
                news = news(&mut run, &mut ended) => match news {
                    News::Event(event) => {
                        if let Err(error) = self.show.event(&event, self.terminal) {
                            run.cancel("its output is not read any more");
                            // What began is brought to its end all the same.
                            let _ = run.await;
                            return Err(error.into());
                        }
                    }
                    News::End(outcome) => break *outcome,
                },
                () = self.interrupts.next() => {
                    self.show.rest(self.terminal)?;
                    if interrupted {
                        self.tell_how_to_finish();
                        return Err(Problem::Quiet(Exit::Interrupted));
                    }
                    interrupted = true;
                    run.cancel("interrupted by Ctrl-C");
                    self.terminal.note(format_args!("{DIM}stopping; press Ctrl-C again to stop at once{DIM:#}"));
                }
            }
        };
        self.show.rest(self.terminal)?;
        if interrupted {
            return Err(Problem::Quiet(Exit::Interrupted));
        }
        Ok(outcome)
    }

    /// A run that is left in the middle is not lost where its thread stays.
    fn tell_how_to_finish(&mut self) {
        if let (Some(stays), Ok(id)) = (&self.stays, self.thread.id()) {
            let command = stays.kept.command(&format!("threads resume {id}"));
            self.terminal.note(format_args!("{DIM}the run has not ended; finish it with `{command}`{DIM:#}"));
        }
    }

    /// What the library says, with what to do about it here.
    pub(crate) fn problem(&self, error: AgentError) -> Problem {
        match &self.stays {
            Some(stays) => stays.kept.problem(error),
            None => error.into(),
        }
    }

    /// Nobody is there to decide.
    fn waiting(&self, pending: &[PendingApproval]) -> Problem {
        let asks = pending.iter().map(|pending| {
            let reason = pending.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
            format!("{}: {} {}{reason}", pending.id, pending.tool, pending.arguments)
        });
        let noun = if pending.len() == 1 { "a decision" } else { "decisions" };
        let (who, hint) = match (&self.stays, self.thread.id()) {
            (Some(stays), Ok(id)) => (format!("the thread {id}"), stays.kept.how_to_decide(id)),
            _ => ("the run".to_owned(), "run it on a terminal to be asked, or approve every call with --yes".to_owned()),
        };
        let sentence = format!("{who} waits for {noun}, and nobody is there to decide");
        Problem::new(Exit::Waiting, "TOOLWRIGHT_SESSION_AWAITING_APPROVAL", sentence).details(asks).hint(hint)
    }
}

/// How many decisions of one thread are asked for at once.
const MOST_ASKED: usize = 1000;

/// What a run has to say next.
enum News {
    Event(Box<Event>),
    End(Box<Result<Reply, AgentError>>),
}

/// The next event, or the end. `ended` remembers that there are no more events, as this may be dropped and called again.
async fn news(run: &mut RunStream, ended: &mut bool) -> News {
    if !*ended {
        if let Some(event) = run.next().await {
            return News::Event(Box::new(event));
        }
        *ended = true;
    }
    News::End(Box::new(run.await))
}

/// What the end of a run means for the command: only a reply that the model finished is a success.
pub(crate) fn ended(reply: &Reply) -> Result<Exit, Problem> {
    let steps = reply.steps;
    Err(match &reply.finish_reason {
        FinishReason::Stop | FinishReason::Unknown => return Ok(Exit::Done),
        FinishReason::Length => Problem::failed("TOOLWRIGHT_AGENT_OUTPUT_CUT", "the reply was cut at the model's output limit")
            .hint("ask for less, or name a model that writes longer replies"),
        FinishReason::ContentFilter => {
            Problem::failed("TOOLWRIGHT_PROVIDER_CONTENT_FILTERED", "the provider withheld the reply").hint("word the request differently")
        }
        FinishReason::MaxSteps => Problem::failed(
            "TOOLWRIGHT_AGENT_MAX_STEPS",
            format!("the run ended after {steps} step{} without a final reply", if steps == 1 { "" } else { "s" }),
        )
        .hint("allow more with --max-steps"),
        FinishReason::Guardrail => {
            let why = reply.guardrail.as_ref().map_or_else(String::new, |trip| format!(" `{}`: {}", trip.name, trip.reason));
            Problem::failed("TOOLWRIGHT_GUARDRAIL_TRIPPED", format!("the run was ended by the guardrail{why}"))
        }
        FinishReason::Aborted => {
            let why = reply.abort_reason.as_ref().map_or_else(String::new, |reason| format!(": {}", reason.message));
            Problem::failed("TOOLWRIGHT_AGENT_EXECUTION_FAILED", format!("the run was stopped{why}"))
        }
        FinishReason::BudgetExceeded => {
            let which = reply.budget.as_ref().map_or_else(String::new, |budget| format!(": {budget}"));
            Problem::failed("TOOLWRIGHT_BUDGET_EXCEEDED", format!("the run reached its budget{which}"))
        }
        other => Problem::failed("TOOLWRIGHT_AGENT_EXECUTION_FAILED", format!("the run ended with `{other}`")),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use toolwright::models::scripted::{Reply as Turn, ScriptedModel};
    use toolwright::{Tool, ToolError};

    use super::*;

    /// What becomes of a run whose one call asks first.
    async fn asked(answers: Answers) -> (Result<Exit, Problem>, ScriptedModel) {
        let model = ScriptedModel::new().reply(Turn::call("wipe", json!({ "disk": "a" }))).reply(Turn::text("Wiped."));
        let wipe =
            Tool::new("wipe", "Wipes a disk.").needs_approval().run_json(|args, _cx| async move { Ok::<_, ToolError>(args) }).unwrap();
        let agent = Agent::builder().model(model.clone()).tool(wipe).build().unwrap();
        let mut terminal = Terminal::new(anstream::ColorChoice::Never);
        let mut session = Session {
            thread: agent.new_thread(),
            agent,
            stays: None,
            show: Show::Nothing,
            lines: Lines::default(),
            interrupts: Interrupts::listen(),
            terminal: &mut terminal,
            answers,
        };
        let run = session.thread.stream("Wipe it.");
        (session.follow(run).await.and_then(|reply| ended(&reply)), model)
    }

    #[tokio::test]
    async fn a_call_that_nobody_decides_ends_with_3_and_names_itself() {
        let (ended, model) = asked(Answers::Nobody).await;
        let problem = ended.unwrap_err();
        assert_eq!((problem.exit(), model.calls()), (Exit::Waiting, 1));
        let said = format!("{problem:?}");
        assert!(said.contains("wipe") && said.contains("--yes"), "{said}");
    }

    #[tokio::test]
    async fn yes_to_everything_runs_it_and_goes_on() {
        let (ended, model) = asked(Answers::Yes).await;
        assert_eq!((ended.unwrap(), model.calls()), (Exit::Done, 2));
    }
}
