//! What must hold of a whole journal, once its thread rests for good.

use std::collections::HashMap;
use std::sync::Arc;

use toolwright_core::{CallId, EventKind, Record, Thread, Transcript, project};

use super::audit::{Audit, Stage};
use super::store::Store;
use super::{Broken, broken};

/// Everything that is checked at the end of a schedule.
pub(super) fn whole_journal(store: &Store, round_trip: bool) -> Result<(), Broken> {
    let audit = &store.audit;
    if audit.run.is_some() || audit.step.is_some() {
        return broken("every run that starts ends once", "a run is open at the end".to_owned());
    }
    for call in &audit.calls {
        if call.stage != Stage::Done && audit.waiting().next().is_none() {
            return broken("every call has exactly one result", format!("{} is {:?} at the end, and nothing waits", call.id, call.stage));
        }
    }
    for approval in &audit.approvals {
        let settled = audit.calls.get(approval.call).is_none_or(|call| call.stage == Stage::Done);
        if approval.posted.is_some() && !approval.applied && !settled {
            return broken("a decision that was posted first is applied", format!("{} was not", approval.id));
        }
    }
    let thread = store.load()?;
    balanced(&thread)?;
    projection(&store.records, audit)?;
    if round_trip {
        let mut again = Thread::new();
        for record in &store.records {
            let read: Result<Record, _> = serde_json::to_string(record).and_then(|text| serde_json::from_str(&text));
            match read {
                Ok(read) if read == **record => drop(again.apply(&read)),
                Ok(read) => return broken("a record survives a round trip", format!("{record:?} became {read:?}")),
                Err(error) => return broken("a record survives a round trip", format!("{error}: {record:?}")),
            }
        }
        same_state(&thread, &again)?;
    }
    Ok(())
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

/// Two folds that should be the same.
pub(super) fn same_state(stored: &Thread, owner: &Thread) -> Result<(), Broken> {
    let pending = |thread: &Thread| thread.pending().map(|(call, ask)| (call.id.clone(), ask.clone())).collect::<Vec<_>>();
    let same = stored.head() == owner.head()
        && stored.step() == owner.step()
        && stored.steps_taken() == owner.steps_taken()
        && stored.run().is_some() == owner.run().is_some()
        && stored.last_results().eq(owner.last_results())
        && stored.transcript() == owner.transcript()
        && pending(stored) == pending(owner);
    if same {
        return Ok(());
    }
    let results = |thread: &Thread| thread.last_results().map(|(call, _)| call.to_string()).collect::<Vec<_>>();
    broken(
        "the fold of the stored journal is the owner's",
        format!(
            "stored: head {}, results {:?}; owner: head {}, results {:?}",
            stored.head(),
            results(stored),
            owner.head(),
            results(owner)
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
    let mut shown: HashMap<CallId, Shown> = HashMap::new();
    for record in records {
        for event in project(record) {
            let wrong = || broken(ORDER, format!("{} at {}", event.type_name(), record.seq));
            if matches!(event, EventKind::RunStart { .. }) == run_open {
                return wrong();
            }
            match &event {
                EventKind::RunStart { .. } => run_open = true,
                EventKind::RunDone { .. } if step_open => return wrong(),
                EventKind::RunDone { .. } => run_open = false,
                EventKind::StepStart { .. } | EventKind::StepDone { .. } => {
                    if matches!(event, EventKind::StepStart { .. }) == step_open {
                        return wrong();
                    }
                    step_open = !step_open;
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
