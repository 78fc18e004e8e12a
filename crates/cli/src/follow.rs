//! Runs of a thread, followed to their end: shown, interrupted, decided.

use futures_util::StreamExt as _;
use toolwright::{Agent, AgentError, Event, FinishReason, Reply, RunStream, ThreadHandle};

use crate::ask::{Asked, decide};
use crate::exit::Exit;
use crate::interrupt::Interrupts;
use crate::lines::Lines;
use crate::problem::Problem;
use crate::show::Show;
use crate::terminal::{DIM, Terminal};

/// A thread, and who watches it.
pub(crate) struct Session<'t> {
    pub(crate) agent: Agent,
    pub(crate) thread: ThreadHandle,
    pub(crate) show: Show,
    pub(crate) lines: Lines,
    pub(crate) interrupts: Interrupts,
    pub(crate) terminal: &'t mut Terminal,
    /// Who answers when a call asks.
    pub(crate) answers: Answers,
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
    /// Follows a run, and those that its decisions lead to, until nothing is left to decide.
    pub(crate) async fn follow(&mut self, run: RunStream) -> Result<Reply, Problem> {
        let mut run = run;
        loop {
            let reply = self.watch(run).await?;
            if reply.finish_reason != FinishReason::AwaitingApproval {
                return Ok(reply);
            }
            for pending in &reply.pending {
                let asked = decide(pending, self.answers, &mut self.lines, &mut self.interrupts, self.terminal).await?;
                let Asked::Decided(decision) = asked else { return Err(waiting(&reply)) };
                self.agent.approvals().decide(&pending.id, decision).await?;
            }
            run = self.thread.resume_stream();
        }
    }

    /// One run. The first Ctrl-C stops it, the second one does not wait for that.
    async fn watch(&mut self, mut run: RunStream) -> Result<Reply, Problem> {
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
        Ok(outcome?)
    }
}

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

fn waiting(reply: &Reply) -> Problem {
    let asks = reply.pending.iter().map(|pending| {
        let reason = pending.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
        format!("{}: {} {}{reason}", pending.id, pending.tool, pending.arguments)
    });
    let count = reply.pending.len();
    let noun = if count == 1 { "a decision" } else { "decisions" };
    Problem::new(Exit::Waiting, "TOOLWRIGHT_SESSION_AWAITING_APPROVAL", format!("the run waits for {noun}, and nobody is there to decide"))
        .details(asks)
        .hint("run it on a terminal to be asked, or approve every call with --yes")
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
        FinishReason::BudgetExceeded => Problem::failed("TOOLWRIGHT_BUDGET_EXCEEDED", "the run reached its budget"),
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
