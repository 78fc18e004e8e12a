//! What must hold of a whole journal, once its thread rests for good.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::FutureExt;
use toolwright_core::{CallId, EventKind, FinishReason, LastRun, Record, RecordBody, Run, RunCause, Seq, Thread, Transcript, project};
use toolwright_runtime::{Store as _, ThreadQuery, ThreadStatus};

use super::audit::{Audit, Stage};
use super::store::{Store, done};
use super::tools::TOOLS;
use super::{Broken, broken};

/// Everything that is checked at the end of a schedule.
pub(super) fn whole_journal(store: &Store, round_trip: bool) -> Result<(), Broken> {
    let audit = &store.audit;
    let waits = audit.waiting().next().is_some() || audit.is_open_fork();
    if audit.run.is_some() || (audit.step.is_some() && !audit.is_new_fork()) {
        return broken("every run that starts ends once", "a run is open at the end".to_owned());
    }
    for call in &audit.calls {
        if call.stage != Stage::Done && !waits {
            return broken("every call has exactly one result", format!("{} is {:?} at the end, and nothing waits", call.id, call.stage));
        }
    }
    for (number, approval) in audit.approvals.iter().enumerate() {
        let waits = audit.calls.get(approval.call).is_some_and(|call| matches!(call.stage, Stage::Asking(at) if at == number));
        if approval.posted.is_some() && !approval.applied && waits {
            return broken("a decision that was posted first is applied", format!("{} was not", approval.id));
        }
    }
    if !waits {
        audit.all_joined()?;
    }
    let thread = store.load()?;
    balanced(&thread)?;
    audit.is_told(thread.transcript())?;
    projection(&store.records, audit)?;
    index(store)?;
    if round_trip {
        let mut again = store.fresh();
        for record in &store.records {
            let read: Result<Record, _> = serde_json::to_string(record).and_then(|text| serde_json::from_str(&text));
            match read {
                Ok(read) if read == **record => drop(again.apply(&read)),
                Ok(read) => return broken("a record survives a round trip", format!("{record:?} became {read:?}")),
                Err(error) => return broken("a record survives a round trip", format!("{error}: {record:?}")),
            }
        }
        same_fold("a record survives a round trip", &thread, &again)?;
    }
    Ok(())
}

/// What the runtime's store answers about the thread without its journal.
pub(super) fn index(store: &Store) -> Result<(), Broken> {
    const INDEX: &str = "the index says what the journal says";
    let Some(real) = store.real() else { return Ok(()) };
    let thread = &store.thread;
    let Some(info) = done("info", real.info(thread))? else {
        return if store.records.is_empty() { Ok(()) } else { broken(INDEX, format!("{thread} is unknown")) };
    };
    store.audit.is_shown(thread, &info)?;
    store.audit.is_pending(thread, &done("pending", real.pending(Some(thread), None, 100))?.items)?;
    let everywhere = pages(|cursor| {
        let page = done("pending", real.pending(None, cursor.as_deref(), 1))?;
        Ok((page.items, page.next))
    })?;
    let mine: Vec<_> = everywhere.into_iter().filter(|pending| pending.thread_id == *thread).collect();
    store.audit.is_pending(thread, &mine)?;
    for status in [None, Some(ThreadStatus::InProgress), Some(ThreadStatus::AwaitingApproval), Some(ThreadStatus::Finished)] {
        let listed = pages(|cursor| {
            let query = ThreadQuery { status, limit: 1, cursor, ..ThreadQuery::default() };
            let page = done("threads", real.threads(&query))?;
            Ok((page.items, page.next))
        })?;
        let here = listed.iter().filter(|listed| **listed == info).count();
        if here != usize::from(status.is_none_or(|status| status == info.status)) {
            return broken(INDEX, format!("{thread} is listed {here} times under {status:?}, and is {info:?}"));
        }
    }
    // Whoever waits for what is there is told at once, and who waits for more is not.
    let (head, posted) = (store.records.len() as u64, store.posted());
    let told = [
        (real.appended(thread, Seq(head.saturating_sub(1))).now_or_never().is_some(), head > 0),
        (real.appended(thread, Seq(head)).now_or_never().is_some(), false),
        (real.posted(thread, posted.saturating_sub(1)).now_or_never().is_some(), posted > 0),
        (real.posted(thread, posted).now_or_never().is_some(), false),
    ];
    if told.iter().any(|(told, there)| told != there) {
        return broken("who waits for a thread is told", format!("{thread} at {head}, posted {posted}: {told:?}"));
    }
    let unfinished = done("unfinished", real.unfinished(None, 100))?.contains(thread);
    let open = info.status == ThreadStatus::InProgress || store.has_news(0);
    if unfinished != open {
        return broken(INDEX, format!("{thread} is {info:?}, and among the unfinished: {unfinished}"));
    }
    Ok(())
}

/// All items of a listing, page by page.
fn pages<T>(mut page: impl FnMut(Option<String>) -> Result<(Vec<T>, Option<String>), Broken>) -> Result<Vec<T>, Broken> {
    let (mut all, mut cursor) = (Vec::new(), None);
    loop {
        let (items, next) = page(cursor)?;
        all.extend(items);
        if next.is_none() {
            return Ok(all);
        }
        cursor = next;
    }
}

/// A thread that has something to do is found by whoever looks for such threads.
pub(super) fn is_found(store: &Store) -> Result<(), Broken> {
    let listed = match store.real() {
        Some(real) => done("unfinished", real.unfinished(None, 100))?.contains(&store.thread),
        None => store.audit.status() == ThreadStatus::InProgress || store.has_news(0),
    };
    if listed {
        return Ok(());
    }
    broken("what waits is found by a worker", format!("{} can go on, and no store lists it", store.thread))
}

/// The transcript is balanced; an open turn's calls have no results yet.
pub(super) fn balanced(thread: &Thread) -> Result<(), Broken> {
    let whole = thread.transcript();
    let turn_open = thread.open_calls().next().is_some() && whole.last().is_some_and(|message| message.calls().next().is_some());
    let cut: Transcript;
    let transcript = if turn_open {
        cut = whole.without_last();
        &cut
    } else {
        whole
    };
    match transcript.check_balance() {
        Ok(()) => Ok(()),
        Err(unbalanced) => broken("the transcript is balanced, results in call order", unbalanced.to_string()),
    }
}

/// Two folds that should be the same, in everything that can be seen of them, and in what would be saved of them.
pub(super) fn same_fold(what: &'static str, ours: &Thread, theirs: &Thread) -> Result<(), Broken> {
    same_shown(what, ours, theirs)?;
    let (ours, theirs) = (ours.save(), theirs.save());
    if ours == theirs { Ok(()) } else { broken(what, format!("what is saved differs: {ours:?} and {theirs:?}")) }
}

/// Two folds that should be the same, in everything that can be seen of them.
pub(super) fn same_shown(what: &'static str, ours: &Thread, theirs: &Thread) -> Result<(), Broken> {
    let calls = |thread: &Thread| thread.open_calls().map(|call| format!("{call:?}")).collect::<Vec<_>>();
    let counts = |thread: &Thread| -> Vec<(u32, u32)> {
        TOOLS.iter().map(|tool| (thread.calls_in_run(tool.name), thread.retries_in_run(tool.name))).collect()
    };
    let runs = |thread: &Thread| {
        let open = thread.run().map(|run| {
            let Run { id, cause, agent, limits, added, principal, metadata, usage, model_calls, ending, since, .. } = run;
            format!("{id} {cause} {agent} {limits:?} {added:?} {principal:?} {metadata:?} {usage:?} {model_calls} {ending:?} {since}")
        });
        let last = thread.last_run().map(|run| {
            let LastRun { id, finish, text, usage, model_calls, ending, added, principal, metadata, .. } = run;
            format!("{id} {finish} {text} {usage:?} {model_calls} {ending:?} {added:?} {principal:?} {metadata:?}")
        });
        (open, last)
    };
    let different = if ours.head() != theirs.head() || ours.id() != theirs.id() {
        "the head"
    } else if (ours.step(), ours.steps_taken()) != (theirs.step(), theirs.steps_taken()) {
        "the steps"
    } else if runs(ours) != runs(theirs) {
        "the runs"
    } else if !ours.last_results().eq(theirs.last_results()) {
        "the last results"
    } else if ours.transcript() != theirs.transcript() {
        "the transcript"
    } else if ours.queued() != theirs.queued() {
        "the queued input"
    } else if ours.fingerprint() != theirs.fingerprint() || ours.instructions() != theirs.instructions() {
        "the agent"
    } else if calls(ours) != calls(theirs) || counts(ours) != counts(theirs) {
        "the calls"
    } else if (ours.compacted_for(), ours.measured()) != (theirs.compacted_for(), theirs.measured()) {
        "what it was measured or made shorter for"
    } else if (ours.next(), ours.can_go_on()) != (theirs.next(), theirs.can_go_on()) {
        "what is outstanding"
    } else {
        return Ok(());
    };
    broken(
        what,
        format!(
            "{different} differ at {} and {}: {:?} and {:?}; outstanding {:?} and {:?}",
            ours.head(),
            theirs.head(),
            runs(ours),
            runs(theirs),
            ours.next(),
            theirs.next()
        ),
    )
}

#[derive(Default)]
struct Shown {
    starts: u32,
    ends: u32,
}

/// The events that the journal projects to obey the catalogue's order.
fn projection(records: &[Arc<Record>], audit: &Audit) -> Result<(), Broken> {
    const ORDER: &str = "events come in the catalogue's order";
    let mut run_open = false;
    let mut step_open = false;
    let mut waiting = false;
    let mut steps = 0;
    let mut shown: HashMap<CallId, Shown> = HashMap::new();
    let (mut replied, mut called) = (false, false);
    // Until a run begins, a fork's records change what was copied.
    let mut patched = false;
    for record in records {
        match &record.body {
            RecordBody::StepStarted { .. } => (replied, called) = (false, false),
            RecordBody::ModelReplied { calls, .. } => (replied, called) = (true, !calls.is_empty()),
            RecordBody::ReplyWithheld { .. } => (replied, called) = (true, false),
            RecordBody::RunStarted { cause, .. } => {
                // One that was cut after its results is over once something new begins.
                step_open &= !(patched && matches!(cause, RunCause::Input | RunCause::Invocation));
                patched = false;
            }
            RecordBody::ThreadForked { .. } => {
                (patched, run_open) = (true, false);
                // A model call that the source had not heard the end of is no step of the fork, and one without calls is over.
                steps -= u32::from(step_open && !replied);
                step_open &= called;
            }
            _ => {}
        }
        for event in project(record) {
            let wrong = || broken(ORDER, format!("{} at {}", event.type_name(), record.seq));
            // Input that comes while the thread waits for a decision is told of at once.
            let outside = match &event {
                EventKind::InputQueued { .. } => waiting || patched,
                // So is what is said about the decision.
                EventKind::ApprovalVoted { .. } | EventKind::ApprovalDelegated { .. } | EventKind::ApprovalReminded { .. } => {
                    waiting || patched
                }
                // Somebody asked for it while the thread was at rest.
                EventKind::CompactionStart { trigger, .. } | EventKind::CompactionDone { trigger, .. } => trigger.is_some(),
                EventKind::ContextCleared { .. } => true,
                _ => patched,
            };
            if matches!(event, EventKind::RunStart { .. }) == run_open && (run_open || !outside) {
                return wrong();
            }
            match &event {
                EventKind::RunStart { .. } => run_open = true,
                EventKind::RunDone { .. } if step_open => return wrong(),
                EventKind::RunDone { finish_reason, .. } => {
                    run_open = false;
                    waiting = *finish_reason == FinishReason::AwaitingApproval;
                }
                // Between the step's end and the start of the one they name.
                EventKind::InputApplied { step, .. } if step_open || *step != steps + 1 => return wrong(),
                EventKind::CompactionStart { .. } | EventKind::CompactionDone { .. } if run_open && (!step_open || replied) => {
                    return wrong();
                }
                EventKind::StepStart { step } | EventKind::StepDone { step, .. } => {
                    if matches!(event, EventKind::StepStart { .. }) == step_open {
                        return wrong();
                    }
                    step_open = !step_open;
                    steps = *step;
                }
                EventKind::ToolStart { tool_call_id, .. } => {
                    let call = shown.entry(tool_call_id.clone()).or_default();
                    call.starts += 1;
                    if call.ends > 0 {
                        return wrong();
                    }
                }
                EventKind::ToolResume { tool_call_id, .. } | EventKind::ApprovalRequested { tool_call_id, .. }
                    if shown.get(tool_call_id).is_none_or(|call| call.starts == 0 || call.ends > 0) =>
                {
                    return wrong();
                }
                EventKind::ToolDone { tool_call_id, .. } | EventKind::ToolError { tool_call_id, .. } => {
                    let call = shown.entry(tool_call_id.clone()).or_default();
                    call.ends += 1;
                    if call.starts == 0 || call.ends > 1 {
                        return wrong();
                    }
                }
                _ => {}
            }
        }
    }
    for call in &audit.calls {
        let Shown { starts, ends } = shown.remove(&call.id).unwrap_or_default();
        let expected = u32::from(call.gated) + call.attempts.saturating_sub(1);
        let ended = u32::from(call.gated && call.stage == Stage::Done);
        if starts != expected || ends != ended {
            return broken(ORDER, format!("{} is shown to start {starts} times and to end {ends} times", call.id));
        }
    }
    Ok(())
}
