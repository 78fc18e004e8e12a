//! `toolwright approvals`: what waits for a decision, and decisions from anywhere.

use std::io::{Read as _, Write as _};

use serde_json::json;
use toolwright::{AgentError, ApprovalId, AskKind, Decision, Page, PendingApproval, ToolOutput};

use crate::args::{
    AnswerOptions, ApprovalOptions, ApprovalsOptions, ApproveOptions, CompleteOptions, DecideOptions, DelegateOptions, RejectOptions,
};
use crate::ask::{decider, shown};
use crate::exit::Exit;
use crate::kept::{Kept, quoted};
use crate::problem::Problem;
use crate::terminal::{BOLD, DIM, Terminal, WARN, one_line};
use crate::threads::{Looked, ago, now};

pub(crate) async fn list(options: &ApprovalsOptions, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let limit = usize::try_from(options.limit).unwrap_or(usize::MAX);
    let (kept, page) = match Looked::at(Kept::named_or_default(&options.store)?).await? {
        Ok(looked) => {
            let page = looked.agent.approvals().page(options.after.as_deref(), limit).await.map_err(|error| looked.problem(error))?;
            (looked.kept, page)
        }
        Err(kept) => (kept, Page::default()),
    };
    if options.json.json {
        let items: Vec<_> = page.items.iter().map(PendingApproval::to_json).collect();
        writeln!(terminal.out(), "{}", json!({ "approvals": items, "next": page.next }))?;
        return Ok(Exit::Done);
    }
    if page.items.is_empty() {
        terminal.note(format_args!("{DIM}nothing waits for a decision in {}{DIM:#}", kept.shown()));
    }
    let now = now();
    for pending in &page.items {
        let asked = pending.asked_at.map(|at| ago(at, now)).unwrap_or_default();
        let what = match pending.question() {
            Some(question) => question.text,
            None => format!("{} {}", pending.tool, pending.arguments),
        };
        let kind = if pending.kind.is_tool() { String::new() } else { format!("{WARN}{}{WARN:#}  ", pending.kind) };
        let width = terminal.width().saturating_sub(pending.id.as_str().len() + 15).max(20);
        writeln!(
            terminal.out(),
            "{BOLD}{}{BOLD:#}  {DIM}{asked:<11}{DIM:#}  {kind}{}",
            one_line(pending.id.as_str(), 400),
            one_line(&what, width)
        )?;
    }
    if let Some(next) = &page.next {
        let more = kept.command(&format!("approvals list --limit {} --after {}", options.limit, quoted(next)));
        terminal.note(format_args!("{DIM}there are more: {more}{DIM:#}"));
    }
    Ok(Exit::Done)
}

pub(crate) async fn show(options: &ApprovalOptions, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let (looked, id) = at(&options.store, &options.id).await?;
    let pending = looked.agent.approvals().get(&id).await.map_err(|error| looked.problem(error))?;
    if options.json.json {
        writeln!(terminal.out(), "{}", pending.to_json())?;
        return Ok(Exit::Done);
    }
    shown(&pending, terminal);
    writeln!(terminal.out(), "{}", pending.arguments)?;
    terminal.out().flush()?;
    let name = quoted(pending.id.as_str());
    let how = match pending.kind {
        AskKind::Question => looked.kept.command(&format!("approvals answer {name} \"...\"")),
        AskKind::External => looked.kept.command(&format!("approvals complete {name} RESULT")),
        _ => looked.kept.command(&format!("approvals approve {name}")),
    };
    terminal.note(format_args!("{DIM}decide with `{how}`{DIM:#}"));
    Ok(Exit::Done)
}

pub(crate) async fn approve(options: &ApproveOptions, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let mut decision = match &options.edit {
        Some(arguments) => Decision::approve_with(text_of(arguments)?),
        None => Decision::approve(),
    };
    if options.always {
        decision = decision.always();
    }
    decide(&options.decide, decision, terminal).await
}

pub(crate) async fn reject(options: &RejectOptions, terminal: &mut Terminal) -> Result<Exit, Problem> {
    decide(&options.decide, Decision::reject(), terminal).await
}

pub(crate) async fn answer(options: &AnswerOptions, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let text = text_of(&options.answer)?;
    if text.trim().is_empty() {
        return Err(Problem::usage("the answer is empty").hint("say something, or decline with `approvals reject`"));
    }
    let (looked, id) = at(&options.store, &options.id).await?;
    let pending = looked.agent.approvals().get(&id).await.map_err(|error| looked.problem(error))?;
    if pending.kind != AskKind::Question {
        return Err(Problem::usage(format!("{id} asks for no answer")).hint("see what it waits for with `approvals show`"));
    }
    let decision = Decision::answer(text).by(options.by.clone().unwrap_or_else(decider));
    decided(looked, &id, decision, terminal).await
}

pub(crate) async fn complete(options: &CompleteOptions, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let text = text_of(&options.result)?;
    let (looked, id) = at(&options.store, &options.id).await?;
    let by = options.by.clone().unwrap_or_else(decider);
    let decision = if options.failed {
        let tool = looked.agent.approvals().get(&id).await.map_err(|error| looked.problem(error))?.tool;
        Decision::fail(toolwright::ToolFailure::new(toolwright::ToolFailureKind::Execution, &*tool, text.trim()))
    } else {
        Decision::complete(serde_json::from_str(&text).map_or_else(|_| ToolOutput::text(text), ToolOutput::json))
    };
    decided(looked, &id, decision.by(by), terminal).await
}

pub(crate) async fn delegate(options: &DelegateOptions, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let (looked, id) = at(&options.store, &options.id).await?;
    let by = options.by.clone().unwrap_or_else(decider);
    let handed = looked.agent.approvals().delegate(&id, options.to.clone(), Some(by), options.note.clone()).await;
    handed.map_err(|error| looked.problem(error))?;
    let to = if options.to.is_empty() { "anybody".to_owned() } else { options.to.join(", ") };
    terminal.note(format_args!("{DIM}{id} is for {to} to decide now{DIM:#}"));
    looked.close().await;
    Ok(Exit::Done)
}

async fn decide(options: &DecideOptions, decision: Decision, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let (looked, id) = at(&options.store, &options.id).await?;
    let mut decision = decision.by(options.by.clone().unwrap_or_else(decider));
    if let Some(note) = &options.note {
        decision = decision.note(note.as_str());
    }
    decided(looked, &id, decision, terminal).await
}

/// Posts the decision and says what comes next. It moves nothing itself: whoever has the agent's tools does.
async fn decided(looked: Looked, id: &ApprovalId, decision: Decision, terminal: &mut Terminal) -> Result<Exit, Problem> {
    looked.agent.approvals().decide(id, decision).await.map_err(|error| looked.problem(error))?;
    let left = match looked.agent.approvals().get(id).await {
        Ok(pending) if pending.quorum > 1 => pending.quorum.saturating_sub(u32::try_from(pending.approved_by.len()).unwrap_or(u32::MAX)),
        _ => 0,
    };
    match (left, id.thread()) {
        (0, Some(thread)) => {
            let resume = looked.kept.command(&format!("threads resume {thread}"));
            terminal.note(format_args!("{DIM}decided; the thread {thread} goes on where its program runs, or with `{resume}`{DIM:#}"));
        }
        (0, None) => terminal.note(format_args!("{DIM}decided{DIM:#}")),
        (left, _) => terminal.note(format_args!("{DIM}noted; {left} more have to approve{DIM:#}")),
    }
    looked.close().await;
    Ok(Exit::Done)
}

/// The store, and the id of a decision in it.
async fn at(options: &crate::args::StoreOptions, id: &str) -> Result<(Looked, ApprovalId), Problem> {
    match Looked::at(Kept::named_or_default(options)?).await? {
        Ok(looked) => Ok((looked, ApprovalId::new(id))),
        Err(kept) => Err(kept.problem(AgentError::ApprovalNotFound { approval: id.to_owned() })),
    }
}

/// The text, or what standard input has for `-`.
fn text_of(given: &str) -> Result<String, Problem> {
    if given != "-" {
        return Ok(given.to_owned());
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|error| Problem::usage(format!("standard input can't be read: {error}")))?;
    Ok(text)
}
