//! Decisions: what the index says of one from when it is asked for to when it is made, whoever makes it and however.

use std::sync::Arc;

use serde_json::json;
use toolwright_core::{
    ApprovalAsk, ApprovalId, AskKind, CallId, Decision, Delegation, FinishReason, RecordBody, Remember, RunCause, Seq, StepFinish,
    ThreadId, Timestamp, ToolFailure, ToolFailureKind, ToolOutput, Verdict as Gated, sha256_hex,
};
use toolwright_runtime::{PendingApproval, Store, ThreadStatus};

use super::index::moved;
use super::script::{ARGUMENTS, Script};
use super::{Failure, Subject, Verdict, append, same, thread};

fn sha256() -> Arc<str> {
    sha256_hex(ARGUMENTS.as_bytes()).into()
}

/// One decision of every kind, with everything that it may have.
pub(super) fn of_every_kind() -> Vec<Decision> {
    let odd = "\u{0}\"\\é 日本 🧰\n";
    let failure = ToolFailure::new(ToolFailureKind::Execution, "act", odd);
    vec![
        Decision::approve(),
        Decision { at: Some(Timestamp(i64::MIN)), ..Decision::approve().by(odd).note(odd).always() },
        Decision::approve().always_with_these_arguments().automatic(),
        Decision::approve_with(r#"{"b":1,"a":2}"#).by("me"),
        Decision::reject().note(""),
        Decision::answer(odd),
        Decision::complete(ToolOutput::json(json!({ "z": [u64::MAX, 0.1 + 0.2, null], "a": { "é": odd } }))),
        Decision::complete(ToolOutput::text(odd)),
        Decision::fail(failure),
        Decision { at: Some(Timestamp(i64::MAX)), ..Decision::lapsed() },
    ]
}

/// What waits: id, moment and deciders.
async fn waiting(store: &dyn Store) -> Result<Vec<(String, i64, Vec<String>)>, Failure> {
    let told = |pending: PendingApproval| (pending.id.to_string(), pending.asked_at.unwrap_or_default().0, pending.deciders);
    Ok(store.pending(None, None, usize::MAX).await?.items.into_iter().map(told).collect())
}

/// The calls that wait.
async fn calls(store: &dyn Store) -> Result<Vec<String>, Failure> {
    Ok(store.pending(None, None, usize::MAX).await?.items.iter().map(|pending| pending.call_id.to_string()).collect())
}

/// A thread that has paused for these calls, the first of which was asked about at a moment.
fn paused(id: &ThreadId, at: i64, of: &[&str]) -> Result<Script, Failure> {
    let mut script = Script::opened(id, at - 10)?;
    script.asked("Do it")?.calls(of)?.at(at);
    for call in of {
        script.asks(call)?;
    }
    script.step_ends(StepFinish::AwaitingApproval)?.run_ends(FinishReason::AwaitingApproval)?;
    Ok(script)
}

pub(super) async fn whatever_is_decided_settles_the_call(subject: Subject) -> Verdict {
    let store = &*subject.store;
    let another = subject.another().await?;
    for (number, decision) in of_every_kind().into_iter().enumerate() {
        let id = thread(&format!("kind-{number}"))?;
        let mut script = paused(&id, 100, &["c"])?;
        moved(store, &id, &mut script).await?;
        same("calls that wait", &calls(store).await?, &vec!["c".to_owned()])?;
        let (approval, call) = (script.approval("c"), CallId::new("c"));
        script.add(RecordBody::CallDecided { approval, call, sha256: sha256(), decision })?.started(&RunCause::Decision)?;
        same("the status of a run that goes on", &moved(store, &id, &mut script).await?.status, &ThreadStatus::InProgress)?;
        same("calls that wait", &calls(&*another).await?, &Vec::new())?;
        script.done("c", json!(number))?.replies("Done")?.run_ends(FinishReason::Stop)?;
        moved(store, &id, &mut script).await?;
        // What was decided comes back as it was.
        let json =
            |records: &[Arc<toolwright_core::Record>]| serde_json::to_string(records).map_err(|error| Failure::new(error.to_string()));
        same("the journal", &json(&another.read(&id, Seq(0), 100).await?)?, &json(script.made())?)?;
    }
    Ok(())
}

pub(super) async fn approvals_of_several_and_reminders_leave_it_pending(subject: Subject) -> Verdict {
    let (store, id) = (&*subject.store, thread("several")?);
    let another = subject.another().await?;
    let mut script = Script::opened(&id, 1)?;
    let approval = script.approval("c");
    let deciders = vec!["ada".to_owned(), "grace".to_owned()];
    let ask = ApprovalAsk { quorum: 2, deciders: deciders.clone(), remind_every_ms: Some(1), ..ApprovalAsk::new(approval.clone()) };
    script.asked("Do it")?.calls(&["c"])?.at(77).asks_for("c", ask)?;
    script.step_ends(StepFinish::AwaitingApproval)?.run_ends(FinishReason::AwaitingApproval)?;
    moved(store, &id, &mut script).await?;
    let expected = vec![(approval.to_string(), 77, deciders)];
    same("what waits", &waiting(store).await?, &expected)?;
    let call = CallId::new("c");
    let remind = |times| RecordBody::ApprovalReminded { approval: approval.clone(), call: call.clone(), tool: "act".into(), times };
    let vote = |decision| RecordBody::CallVoted { approval: approval.clone(), call: call.clone(), sha256: sha256(), decision, votes: 1 };
    for body in [remind(1), vote(Decision::approve().by("ada")), remind(2)] {
        script.add(body)?;
        same("the status of a thread that still waits", &moved(store, &id, &mut script).await?.status, &ThreadStatus::AwaitingApproval)?;
        same("what waits", &waiting(&*another).await?, &expected)?;
    }
    let decision = Decision::approve().by("grace");
    script.add(RecordBody::CallDecided { approval: approval.clone(), call: call.clone(), sha256: sha256(), decision })?;
    moved(store, &id, &mut script).await?;
    same("what waits", &waiting(store).await?, &Vec::new())
}

pub(super) async fn a_decision_that_is_handed_on_keeps_its_place(subject: Subject) -> Verdict {
    let (store, id) = (&*subject.store, thread("handed")?);
    let another = subject.another().await?;
    for (name, at) in [("before", 50), ("after", 100)] {
        let other = thread(name)?;
        append(store, &other, 0, paused(&other, at, &["c"])?.take()).await?;
    }
    let mut script = Script::opened(&id, 1)?;
    let approval = script.approval("c");
    let ask = ApprovalAsk {
        kind: AskKind::External,
        reason: Some("why".to_owned()),
        expires_at: Some(Timestamp(9000)),
        detail: Some(json!({ "z": 1, "a": [null] })),
        once: Some(Remember::Tool),
        ..ApprovalAsk::new(approval.clone())
    };
    script.asked("Do it")?.calls(&["c"])?.at(77).asks_for("c", ask.clone())?;
    script.step_ends(StepFinish::AwaitingApproval)?.run_ends(FinishReason::AwaitingApproval)?;
    moved(store, &id, &mut script).await?;
    let before = store.pending(Some(&id), None, 9).await?.items;
    let to = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>();
    let handed = |names: &[&str]| {
        RecordBody::ApprovalDelegated(Box::new(Delegation {
            call: CallId::new("c"),
            tool: "act".into(),
            arguments: ARGUMENTS.into(),
            sha256: sha256(),
            asked_at: Timestamp(77),
            ask: ApprovalAsk { deciders: to(names), ..ask.clone() },
            by: Some("me".to_owned()),
            note: None,
        }))
    };
    // To some, to others twice in one write, and to anybody.
    for names in [vec![vec!["ada"]], vec![vec!["bob"], vec!["cleo", "é \"'"]], vec![vec![]]] {
        for names in &names {
            script.at(5000).add(handed(names))?;
        }
        let moved = moved(store, &id, &mut script).await?;
        same("the status of a thread that still waits", &moved.status, &ThreadStatus::AwaitingApproval)?;
        let deciders = to(names.last().map(Vec::as_slice).unwrap_or_default());
        let expected: Vec<PendingApproval> =
            before.iter().map(|pending| PendingApproval { deciders: deciders.clone(), ..pending.clone() }).collect();
        same("what waits after it was handed on", &another.pending(Some(&id), None, 9).await?.items, &expected)?;
        let listed = store.pending(None, None, 9).await?.items;
        let order: Vec<&str> = listed.iter().map(|pending| pending.thread_id.as_str()).collect();
        same("threads whose calls wait, oldest first", &order, &vec!["before", "handed", "after"])?;
    }
    // Handed on and made in one write.
    let decision = Decision::complete(ToolOutput::text("done"));
    script.add(handed(&["ada"]))?;
    script.add(RecordBody::CallDecided { approval, call: CallId::new("c"), sha256: sha256(), decision })?;
    moved(store, &id, &mut script).await?;
    same("what waits after it was made", &store.pending(Some(&id), None, 9).await?.items, &Vec::new())
}

pub(super) async fn what_an_approval_of_another_call_answers_waits_no_longer(subject: Subject) -> Verdict {
    let (store, id) = (&*subject.store, thread("answered")?);
    let another = subject.another().await?;
    let mut script = paused(&id, 100, &["a", "b", "c", "d"])?;
    moved(store, &id, &mut script).await?;
    let always = |call: &str| RecordBody::CallDecided {
        approval: ApprovalId::of(&id, &CallId::new(call), 1),
        call: CallId::new(call),
        sha256: sha256(),
        decision: Decision::approve().always(),
    };
    script.add(always("a"))?.started(&RunCause::Decision)?;
    moved(store, &id, &mut script).await?;
    let words = |of: &[&str]| of.iter().map(|word| (*word).to_owned()).collect::<Vec<String>>();
    same("calls that wait", &calls(store).await?, &words(&["b", "c", "d"]))?;
    // The gate lets one pass, asks about another as before, and about a third anew.
    script.gated_again("b", Gated::Run)?.at(700);
    let (same_one, new_one) = (script.approval("c"), ApprovalId::of(&id, &CallId::new("d"), 2));
    script.gated_again("c", Gated::Ask(ApprovalAsk::new(same_one.clone())))?;
    script.at(800).gated_again("d", Gated::Ask(ApprovalAsk::new(new_one.clone())))?;
    moved(store, &id, &mut script).await?;
    let expected = vec![(same_one.to_string(), 700, Vec::new()), (new_one.to_string(), 800, Vec::new())];
    same("what waits", &waiting(&*another).await?, &expected)?;
    // Refused by the gate after all.
    script.add(always("c"))?;
    let failure = Arc::new(ToolFailure::denied("act", None));
    script.gated_again("d", Gated::Refuse { failure })?;
    moved(store, &id, &mut script).await?;
    same("what waits", &waiting(&*another).await?, &Vec::new())?;

    // All of it in one write.
    let id = thread("at-once")?;
    let mut script = paused(&id, 100, &["e", "f"])?;
    let decision = Decision::approve().always();
    let (approval, call) = (script.approval("e"), CallId::new("e"));
    script.add(RecordBody::CallDecided { approval, call, sha256: sha256(), decision })?.started(&RunCause::Decision)?;
    script.gated_again("f", Gated::Run)?;
    append(store, &id, 0, script.take()).await?;
    same("what waits", &waiting(store).await?, &Vec::new())
}
