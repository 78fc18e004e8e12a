//! Decisions: who may make them, how often, until when, and what they lead to.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use toolwright_core::policy::PermissionMode;
use toolwright_core::{
    ApprovalId, AskKind, CallId, Decision, EventKind, FinishReason, RecordBody, Remember, ThreadId, Timestamp, ToolFailureKind, ToolOutput,
};
use toolwright_runtime::{Agent, AgentBuilder, ApproveAnswer, FixedClock, MemoryStore, NoResolvers, PendingApproval, Reply, RuleWhen};
use toolwright_tool::{ApprovalOutcome, ApprovalRequest, Identity, NeedsApproval, PrincipalKind, Tool, ToolError};

use common::*;

fn asks(log: &Log) -> Tool {
    logged_with(Tool::new("act", "Acts.").needs_approval(), log)
}

fn once(per: NeedsApproval, log: &Log) -> Tool {
    logged_with(Tool::new("act", "Acts.").approval(per), log)
}

fn asked_by(request: ApprovalRequest, log: &Log) -> Tool {
    logged_with(Tool::new("act", "Acts.").needs_approval_if(move |_| std::future::ready(Ok(ApprovalOutcome::from(request.clone())))), log)
}

/// A model that asks for one call of `act` a turn, with these arguments, and then is done.
fn turns(arguments: &[&'static str]) -> Arc<Script> {
    Script::new(
        arguments
            .iter()
            .enumerate()
            .flat_map(|(n, arguments)| [calls([(["c1", "c2", "c3", "c4", "c5"][n], "act", *arguments)]), say("done")])
            .collect::<Vec<_>>(),
    )
}

fn only(reply: &Reply) -> &PendingApproval {
    assert_eq!(reply.pending.len(), 1, "{:?}", reply.pending);
    &reply.pending[0]
}

async fn decide(agent: &Agent, reply: &Reply, decision: Decision) -> Reply {
    agent.approvals().decide(&only(reply).id, decision).await.unwrap();
    agent.thread(reply.thread_id.as_str()).resume().await.unwrap()
}

fn kinds_of(reply: &Reply) -> Vec<ToolFailureKind> {
    failures(&reply.messages).into_iter().map(|(_, kind, ..)| kind).collect()
}

// ---------------------------------------------------------------------------------------------------- the tool's own policy

// rule: sdk-tools 11.2/1
// rule: sdk-tools 11.2/2
// rule: sdk-tools 13.8
#[tokio::test]
async fn a_policy_that_denies_or_throws_asks_nobody() {
    for (policy, kind) in [
        (Ok(ApprovalOutcome::Deny(Some("not on Sundays".to_owned()))), ToolFailureKind::Denied),
        (Err(ToolError::new("the calendar is gone").named("CalendarError")), ToolFailureKind::Execution),
    ] {
        let log = Log::default();
        let tool = logged_with(Tool::new("act", "Acts.").needs_approval_if(move |_| std::future::ready(policy.clone())), &log);
        let agent = agent(turns(&["{}"])).tool(tool).build().unwrap();
        let reply = agent.send("go").await.unwrap();
        let (found, _, message) = failure(&reply);
        assert_eq!((found, reply.pending.len(), log.len()), (kind.clone(), 0, 0));
        let why = if kind == ToolFailureKind::Denied { "not on Sundays" } else { "the calendar is gone" };
        assert!(message.contains(why), "{message}");
    }
}

// rule: sdk-tools 11.2/3
// rule: sdk-tools 11.2/6
#[tokio::test]
async fn once_is_read_from_the_transcript_in_any_process_and_in_forks() {
    let (log, store) = (Log::default(), MemoryStore::new());
    let make = |script| agent(script).tool(once(NeedsApproval::once(), &log)).store(store.clone()).build().unwrap();
    let first = make(turns(&[r#"{"n":1}"#]));
    let waits = first.thread("t").send("go").await.unwrap();
    decide(&first, &waits, Decision::approve()).await;
    assert_eq!(log.take(), ["body c1"]);
    // Another process, later, with other arguments.
    let second = make(Script::new([calls([("c2", "act", r#"{"n":2}"#)]), say("done")]));
    assert_eq!(second.thread("t").send("go").await.unwrap().finish_reason, FinishReason::Stop);
    assert_eq!(log.take(), ["body c2"]);
    let fork = second.thread("t").fork(toolwright_runtime::ForkAt::Head, toolwright_runtime::ForkPatch::new()).await.unwrap();
    let third = make(Script::new([calls([("c3", "act", "{}")]), say("done")]));
    let reply = third.thread(fork.id().unwrap().as_str()).send("go").await.unwrap();
    assert_eq!((reply.pending.len(), log.take().len()), (0, 1));
    // Another thread knows nothing of it; nor does this one once it was emptied.
    let fourth = make(turns(&["{}", "{}"]));
    assert_eq!(fourth.thread("other").send("go").await.unwrap().pending.len(), 1);
    fourth.thread("t").clear().await.unwrap();
    let fifth = make(turns(&["{}"]));
    assert_eq!(fifth.thread("t").send("go").await.unwrap().pending.len(), 1);
}

// rule: sdk-tools 11.2/4
// rule: sdk-tools 11.2/5
#[tokio::test]
async fn once_per_arguments_goes_by_their_value_and_a_rejection_is_not_remembered() {
    let log = Log::default();
    let script = turns(&[
        r#"{"a":1,"b":[{"c":2,"d":3}]}"#,
        r#"{ "b":[{"d":3,"c":2}], "a":1 }"#,
        r#"{"a":2,"b":[{"c":2,"d":3}]}"#,
        r#"{"a":2,"b":[{"c":2,"d":3}]}"#,
    ]);
    let agent = agent(script).tool(once(NeedsApproval::once_per_arguments(), &log)).build().unwrap();
    let thread = agent.thread("t");
    let waits = thread.send("go").await.unwrap();
    decide(&agent, &waits, Decision::approve()).await;
    assert_eq!(thread.send("again").await.unwrap().pending.len(), 0, "the same value in another order");
    let waits = thread.send("others").await.unwrap();
    assert_eq!(waits.pending.len(), 1, "another value");
    let rejected = decide(&agent, &waits, Decision::reject()).await;
    assert_eq!(kinds_of(&rejected), [ToolFailureKind::Rejected]);
    assert_eq!(thread.send("the rejected ones again").await.unwrap().pending.len(), 1);
    assert_eq!(log.all(), ["body c1", "body c2"]);
}

// rule: sdk-tools 11.2/7
#[tokio::test]
async fn an_approval_answers_the_same_call_of_the_same_turn() {
    for (per, answered) in [(NeedsApproval::once(), 3), (NeedsApproval::once_per_arguments(), 2)] {
        let log = Log::default();
        let turn = calls([("a", "act", r#"{"n":1}"#), ("b", "act", r#"{"n":1}"#), ("c", "act", r#"{"n":2}"#)]);
        let store = MemoryStore::new();
        let agent = agent(Script::new([turn, say("done")])).tool(once(per, &log)).store(store).build().unwrap();
        let waits = agent.thread("t").send("go").await.unwrap();
        assert_eq!(waits.pending.len(), 3);
        agent.approvals().decide(&waits.pending[1].id, Decision::approve()).await.unwrap();
        let reply = agent.thread("t").resume().await.unwrap();
        assert_eq!((log.len(), reply.pending.len()), (answered, 3 - answered));
        assert_eq!(agent.approvals().pending().await.unwrap(), reply.pending, "lists say the same");
        if let Some(left) = reply.pending.first() {
            agent.approvals().decide(&left.id, Decision::reject()).await.unwrap();
            let reply = agent.thread("t").resume().await.unwrap();
            assert_eq!(kinds_of(&reply), [ToolFailureKind::Rejected]);
        }
        // What was answered by another's approval can't be decided any more.
        let late = agent.approvals().decide(&waits.pending[0].id, Decision::reject()).await.unwrap_err();
        assert_eq!(late.code(), "TOOLWRIGHT_APPROVAL_NOT_FOUND");
    }
}

// A rejection that was posted before the approval of another call is looked at still counts.
#[tokio::test]
async fn a_rejection_counts_also_where_an_approval_of_another_call_would_answer() {
    let log = Log::default();
    let turn = calls([("a", "act", "{}"), ("b", "act", "{}")]);
    let agent = agent(Script::new([turn, say("done")])).tool(once(NeedsApproval::once(), &log)).build().unwrap();
    let waits = agent.thread("t").send("go").await.unwrap();
    agent.approvals().decide(&waits.pending[0].id, Decision::approve()).await.unwrap();
    agent.approvals().decide(&waits.pending[1].id, Decision::reject()).await.unwrap();
    let reply = agent.thread("t").resume().await.unwrap();
    assert_eq!((log.all(), kinds_of(&reply)), (vec!["body a".to_owned()], vec![ToolFailureKind::Rejected]));
}

#[tokio::test]
async fn always_stands_for_the_tool_in_the_thread_and_for_nothing_else() {
    let (log, store) = (Log::default(), MemoryStore::new());
    let turn = || calls([("a", "act", r#"{"n":1}"#), ("b", "other", "{}")]);
    let make = |script| {
        let other = logged_with(Tool::new("other", "Acts otherwise.").needs_approval(), &log);
        agent(script).tool(asks(&log)).tool(other).store(store.clone()).build().unwrap()
    };
    let first = make(Script::new([turn(), say("done"), turn()]));
    let waits = first.thread("t").send("go").await.unwrap();
    first.approvals().decide(&waits.pending[0].id, Decision::approve().by("ada").always()).await.unwrap();
    first.approvals().decide(&waits.pending[1].id, Decision::approve()).await.unwrap();
    first.thread("t").resume().await.unwrap();
    let waits = first.thread("t").send("again").await.unwrap();
    assert_eq!(only(&waits).tool.as_ref(), "other");
    // Also in another process, and after a restart from the journal alone.
    let second = make(Script::new([say("done")]));
    second.approvals().decide(&only(&waits).id, Decision::reject()).await.unwrap();
    second.thread("t").resume().await.unwrap();
    assert_eq!(log.take(), ["body a", "body b", "body a_d1"]);
    let third = make(Script::new([turn(), say("done")]));
    assert_eq!(third.thread("u").send("go").await.unwrap().pending.len(), 2, "another thread");
}

#[tokio::test]
async fn always_with_these_arguments_stands_for_these() {
    let log = Log::default();
    let script = turns(&[r#"{"n":1}"#, r#"{"n":1}"#, r#"{"n":2}"#]);
    let agent = agent(script).tool(asks(&log)).build().unwrap();
    let waits = agent.thread("t").send("go").await.unwrap();
    decide(&agent, &waits, Decision::approve().always_with_these_arguments()).await;
    assert_eq!(agent.thread("t").send("again").await.unwrap().pending.len(), 0);
    assert_eq!(agent.thread("t").send("others").await.unwrap().pending.len(), 1);
}

#[tokio::test]
async fn what_is_always_approved_is_still_denied_by_a_rule() {
    let (log, store) = (Log::default(), MemoryStore::new());
    let make = |script, deny| {
        let rule = says("rule", move |_| Ok(if deny { Say::Deny(None) } else { Say::Ask(Some("by rule".to_owned())) }));
        agent(script).tool(logged("act", &log)).at(At::Rule, rule).store(store.clone()).build().unwrap()
    };
    let first = make(turns(&["{}", "{}"]), false);
    let waits = first.thread("t").send("go").await.unwrap();
    assert_eq!(only(&waits).reason.as_deref(), Some("by rule"));
    decide(&first, &waits, Decision::approve().always()).await;
    assert_eq!(first.thread("t").send("again").await.unwrap().pending.len(), 0, "a rule's ask is answered too");
    let reply = make(turns(&["{}"]), true).thread("t").send("go").await.unwrap();
    assert_eq!((kinds_of(&reply), log.len()), (vec![ToolFailureKind::Denied], 2));
}

#[tokio::test]
async fn what_a_guardrail_makes_of_arguments_is_judged_by_the_rules_too() {
    use toolwright_core::policy::{ArgMatch, allow, deny};
    for (rewritten, kind) in [(json!({ "to": "prod" }), Some(ToolFailureKind::Denied)), (json!({ "to": "test" }), None)] {
        let log = Log::default();
        let rewrite = rewritten.clone();
        let agent = agent(turns(&[r#"{"to":"dev"}"#]))
            .tool(logged("act", &log))
            .rules([deny("act").argument("to", ArgMatch::equals("prod")), allow("*")])
            .at(At::Guardrail, says("rewrites", move |_| Ok(Say::Rewrite(rewrite.clone()))))
            .build()
            .unwrap();
        let reply = agent.send("go").await.unwrap();
        assert_eq!((kinds_of(&reply).first().cloned(), log.len()), (kind.clone(), usize::from(kind.is_none())), "{rewritten}");
    }
}

// ------------------------------------------------------------------------------------------------- what a decision is bound to

#[tokio::test]
async fn a_decision_is_about_the_arguments_that_were_shown() {
    let log = Log::default();
    let agent = agent(turns(&[r#"{"n":1}"#])).tool(asks(&log)).build().unwrap();
    let waits = agent.thread("t").send("go").await.unwrap();
    let pending = only(&waits);
    let approvals = agent.approvals();
    let altered = approvals.decide_about(&pending.id, "0000", Decision::approve()).await.unwrap_err();
    assert_eq!(altered.code(), "TOOLWRIGHT_APPROVAL_INVALID");
    assert!(altered.to_string().contains("other arguments"), "{altered}");
    for (wrong, problem) in [
        (Decision::complete(ToolOutput::text("x")), "yes or a no"),
        (Decision::fail(toolwright_core::ToolFailure::denied("act", None)), "yes or a no"),
    ] {
        let refused = approvals.decide(&pending.id, wrong).await.unwrap_err();
        assert!(refused.code() == "TOOLWRIGHT_APPROVAL_INVALID" && refused.to_string().contains(problem), "{refused}");
    }
    approvals.decide_about(&pending.id, &pending.sha256, Decision::approve()).await.unwrap();
    let replayed = approvals.decide_about(&pending.id, &pending.sha256, Decision::approve()).await.unwrap_err();
    assert_eq!(replayed.code(), "TOOLWRIGHT_APPROVAL_CONFLICT");
    agent.thread("t").resume().await.unwrap();
    assert_eq!(log.len(), 1);
}

// rule: sdk-runtime APR-2
// rule: sdk-tools 15/8
#[tokio::test]
async fn who_comes_late_is_told_who_decided_however_late() {
    let agent = agent(turns(&["{}"])).tool(asks(&Log::default())).build().unwrap();
    let waits = agent.thread("t").send("go").await.unwrap();
    agent.approvals().decide(&only(&waits).id, Decision::approve().by("ada")).await.unwrap();
    for resumed in [false, true] {
        if resumed {
            agent.thread("t").resume().await.unwrap();
        }
        let late = agent.approvals().decide(&only(&waits).id, Decision::reject().by("bob")).await.unwrap_err();
        assert_eq!(late.code(), "TOOLWRIGHT_APPROVAL_CONFLICT");
        assert!(late.to_string().ends_with("by ada"), "{late}");
    }
    for unknown in ["t:1:another", "nowhere:1:c1", "nonsense"] {
        let refused = agent.approvals().decide(&ApprovalId::new(unknown), Decision::approve()).await.unwrap_err();
        assert!(refused.code() == "TOOLWRIGHT_APPROVAL_NOT_FOUND" && refused.to_string().contains(unknown), "{refused}");
    }
}

// rule: sdk-tools 13.4/2
// rule: sdk-runtime APR-3
#[tokio::test]
async fn what_is_decided_too_late_is_refused_whatever_was_said() {
    for decision in [Decision::approve(), Decision::approve().always(), Decision::reject()] {
        let (log, time) = (Log::default(), clock());
        let agent = agent(turns(&["{}", "{}"])).tool(asks(&log)).approval_ttl(Duration::from_secs(60)).clock(time.clone()).build().unwrap();
        let waits = agent.thread("t").send("go").await.unwrap();
        assert_eq!(only(&waits).expires_at.map(Timestamp::to_iso).as_deref(), Some("2026-01-01T00:01:00.000Z"));
        time.advance(60_000);
        let late = agent.approvals().decide(&only(&waits).id, decision.clone()).await.unwrap_err();
        assert_eq!(late.code(), "TOOLWRIGHT_APPROVAL_CONFLICT");
        assert!(late.to_string().contains("before 2026-01-01T00:01:00.000Z; nobody did in time"), "{late}");
        // The run goes on with the refusal.
        let reply = agent.approvals().resolve(&only(&waits).id, decision.clone()).await.unwrap();
        let (kind, _, message) = failure(&reply);
        assert_eq!((kind, log.len(), reply.text.as_str()), (ToolFailureKind::Denied, 0, "done"));
        assert!(message.contains("approval expired"), "{message}");
        // What came too late stands for nothing later either.
        if decision.remember.is_some() {
            assert_eq!(agent.thread("t").send("again").await.unwrap().pending.len(), 1);
        }
    }
}

#[tokio::test]
async fn a_question_that_nobody_answers_in_time_lapses_by_itself_where_a_worker_runs() {
    let (log, time, store) = (Log::default(), clock(), MemoryStore::new());
    let agent = agent(turns(&["{}"]))
        .tool(asks(&log))
        .approval_ttl(Duration::from_secs(60))
        .clock(time.clone())
        .store(store.clone())
        .build()
        .unwrap();
    let waits = agent.thread("t").send("go").await.unwrap();
    let worker = || agent.worker().until_idle().run(tokio_util::sync::CancellationToken::new());
    within(worker()).await.unwrap();
    assert_eq!(agent.approvals().pending().await.unwrap().len(), 1, "not yet");
    time.advance(60_000);
    within(worker()).await.unwrap();
    assert_eq!(agent.approvals().pending().await.unwrap().len(), 0);
    let history = agent.thread("t").history().await.unwrap();
    assert_eq!(failures(&history)[0].1, ToolFailureKind::Denied);
    assert_eq!((history.last().unwrap().text_of().as_str(), log.len()), ("done", 0));
    let late = agent.approvals().decide(&only(&waits).id, Decision::approve()).await.unwrap_err();
    assert_eq!(late.code(), "TOOLWRIGHT_APPROVAL_CONFLICT");
}

// ------------------------------------------------------------------------------------------------------------ several deciders

fn quorum(log: &Log) -> Tool {
    asked_by(ApprovalRequest::new().quorum(2).deciders(["ada", "grace", "edsger"]).reason("it moves money"), log)
}

#[tokio::test]
async fn a_quorum_is_of_different_people_who_may_decide() {
    let log = Log::default();
    let agent = agent(turns(&[r#"{"n":1}"#])).tool(quorum(&log)).build().unwrap();
    let waits = agent.thread("t").send("go").await.unwrap();
    let (id, approvals) = (&only(&waits).id, agent.approvals());
    assert_eq!((only(&waits).quorum, only(&waits).deciders.len()), (2, 3));
    let refused = |decision: Decision| {
        let approvals = approvals.clone();
        async move { approvals.decide(id, decision).await.unwrap_err() }
    };
    assert_eq!(refused(Decision::approve()).await.code(), "TOOLWRIGHT_APPROVAL_INVALID", "who?");
    assert_eq!(refused(Decision::approve().by("mallory")).await.code(), "TOOLWRIGHT_APPROVAL_FORBIDDEN");
    assert_eq!(refused(Decision::approve().by("ada").always()).await.code(), "TOOLWRIGHT_APPROVAL_INVALID");
    approvals.decide(id, Decision::approve().by("ada")).await.unwrap();
    assert_eq!(approvals.get(id).await.unwrap().approved_by, ["ada"], "also before an owner has taken it");
    for resumed in [false, true] {
        if resumed {
            // One is not enough.
            assert_eq!(agent.thread("t").resume().await.unwrap_err().code(), "TOOLWRIGHT_SESSION_AWAITING_APPROVAL");
            assert_eq!(approvals.get(id).await.unwrap().approved_by, ["ada"]);
        }
        let twice = refused(Decision::approve().by("ada")).await;
        assert!(twice.code() == "TOOLWRIGHT_APPROVAL_CONFLICT" && twice.to_string().ends_with("by ada"), "{twice}");
        let edited = refused(Decision::approve_with(r#"{"n":2}"#).by("grace")).await;
        assert!(edited.code() == "TOOLWRIGHT_APPROVAL_INVALID" && edited.to_string().contains("ada approved it with other"), "{edited}");
    }
    assert_eq!(log.len(), 0);
    approvals.decide(id, Decision::approve().by("grace")).await.unwrap();
    assert_eq!(refused(Decision::approve().by("edsger")).await.code(), "TOOLWRIGHT_APPROVAL_CONFLICT");
    let (events, reply) = collect(agent.thread("t").resume_stream()).await;
    assert_eq!((reply.unwrap().text.as_str(), log.len()), ("done", 1));
    assert!(events.iter().any(|event| matches!(event.kind, EventKind::ToolResume { .. })));
}

#[tokio::test]
async fn one_rejection_is_enough_and_a_body_knows_who_approved() {
    let log = Log::default();
    let agent = agent(turns(&["{}"])).tool(quorum(&log)).build().unwrap();
    let waits = agent.thread("t").send("go").await.unwrap();
    let id = &only(&waits).id;
    agent.approvals().decide(id, Decision::approve().by("ada")).await.unwrap();
    agent.approvals().decide(id, Decision::reject().by("grace").note("too much")).await.unwrap();
    let late = agent.approvals().decide(id, Decision::approve().by("edsger")).await.unwrap_err();
    assert!(late.to_string().ends_with("by grace"), "{late}");
    let reply = agent.thread("t").resume().await.unwrap();
    let (kind, _, message) = failure(&reply);
    assert_eq!((kind, log.len()), (ToolFailureKind::Rejected, 0));
    assert!(message.contains("too much"), "{message}");

    let who = Log::default();
    let told = who.clone();
    let tool = Tool::new("act", "Acts.")
        .needs_approval_if(|_| async { Ok(ApprovalOutcome::from(ApprovalRequest::new().quorum(3))) })
        .run_json(move |_, cx| {
            let approval = cx.approval().cloned().unwrap();
            told.add(format!("{:?} and {:?}", approval.by, approval.others));
            async { Ok::<_, ToolError>(Value::Null) }
        })
        .unwrap();
    let agent = common::agent(turns(&["{}"])).tool(tool).build().unwrap();
    let waits = agent.thread("t").send("go").await.unwrap();
    for by in ["a", "b", "c"] {
        agent.approvals().decide(&only(&waits).id, Decision::approve().by(by)).await.unwrap();
    }
    agent.thread("t").resume().await.unwrap();
    assert_eq!(who.all(), [r#"Some("c") and ["a", "b"]"#]);
}

#[tokio::test]
async fn a_decision_is_handed_to_others_who_then_decide_alone() {
    let (log, store) = (Log::default(), MemoryStore::new());
    let agent = agent(turns(&["{}"])).tool(quorum(&log)).store(store.clone()).build().unwrap();
    let waits = agent.thread("t").send("go").await.unwrap();
    let (id, approvals) = (&only(&waits).id, agent.approvals());
    let few = approvals.delegate(id, vec!["barbara".to_owned()], None, None).await.unwrap_err();
    assert_eq!(few.code(), "TOOLWRIGHT_APPROVAL_INVALID", "one can't be two");
    let to = vec!["barbara".to_owned(), "ada".to_owned()];
    approvals.delegate(id, to.clone(), Some("grace".to_owned()), Some("I am away".to_owned())).await.unwrap();
    assert_eq!(approvals.get(id).await.unwrap().deciders, to, "at once");
    let refused = approvals.decide(id, Decision::approve().by("grace")).await.unwrap_err();
    assert_eq!(refused.code(), "TOOLWRIGHT_APPROVAL_FORBIDDEN");
    // An owner takes it, and lists say so too.
    assert_eq!(agent.thread("t").resume().await.unwrap_err().code(), "TOOLWRIGHT_SESSION_AWAITING_APPROVAL");
    let listed = approvals.pending().await.unwrap();
    assert_eq!((listed[0].deciders.clone(), listed[0].asked_at, listed.len()), (to, only(&waits).asked_at, 1));
    let records = journal(&store, &waits.thread_id).await;
    let told = records.iter().flat_map(|record| toolwright_core::project(record)).find(|kind| kind.type_name() == "approval.delegated");
    assert_eq!(
        serde_json::to_value(told.unwrap()).unwrap(),
        json!({ "type": "approval.delegated", "approvalId": id, "toolCallId": "c1", "to": ["barbara", "ada"], "by": "grace", "note": "I am away" })
    );
    for by in ["barbara", "ada"] {
        approvals.decide(id, Decision::approve().by(by)).await.unwrap();
    }
    assert_eq!((agent.thread("t").resume().await.unwrap().text.as_str(), log.len()), ("done", 1));
}

#[tokio::test]
async fn deciders_are_reminded_until_they_decide() {
    let (log, time, store) = (Log::default(), clock(), MemoryStore::new());
    let tool = asked_by(ApprovalRequest::new().remind_every(Duration::from_secs(3600)), &log);
    let agent = agent(turns(&["{}"])).tool(tool).clock(time.clone()).store(store.clone()).build().unwrap();
    let waits = agent.thread("t").send("go").await.unwrap();
    let reminders = || async {
        let records = journal(&store, &waits.thread_id).await;
        records.iter().filter(|record| matches!(record.body, RecordBody::ApprovalReminded { .. })).count()
    };
    for hour in 0..3 {
        assert_eq!(reminders().await, hour);
        time.advance(3_600_000);
        within(agent.worker().until_idle().run(tokio_util::sync::CancellationToken::new())).await.unwrap();
    }
    let records = journal(&store, &waits.thread_id).await;
    let told: Vec<Value> = records
        .iter()
        .flat_map(|record| toolwright_core::project(record))
        .filter(|kind| kind.type_name() == "approval.reminded")
        .map(|kind| serde_json::to_value(kind).unwrap()["times"].clone())
        .collect();
    assert_eq!(told, [json!(1), json!(2), json!(3)]);
    decide(&agent, &waits, Decision::approve()).await;
    time.advance(36_000_000);
    within(agent.worker().until_idle().run(tokio_util::sync::CancellationToken::new())).await.unwrap();
    assert_eq!((reminders().await, log.len()), (3, 1), "nobody is reminded of what was decided");
}

// ------------------------------------------------------------------------------------------------------------- who may decide

// rule: sdk-tools 15/1
// rule: sdk-tools 15/4
// rule: sdk-tools 15/6
// rule: sdk-runtime APR-7
#[tokio::test]
async fn by_default_whom_the_run_acts_for_decides_and_nobody_else() {
    let kim = Identity { kind: Some(PrincipalKind::User), authenticator: Some("jwt".to_owned()), ..Identity::new("kim") };
    let log = Log::default();
    let told = log.clone();
    let tool = Tool::new("act", "Acts.")
        .needs_approval()
        .run_json(move |_, cx| {
            told.add(format!("{} by {:?}", cx.principal().unwrap().id, cx.approval().unwrap().by));
            async { Ok::<_, ToolError>(Value::Null) }
        })
        .unwrap();
    let agent = agent(turns(&["{}"])).tool(tool).build().unwrap();
    let waits = agent.thread("t").principal(kim.clone()).send("go").await.unwrap();
    let id = &only(&waits).id;
    for other in [
        Identity::new("kim"),
        Identity { authenticator: Some("basic".to_owned()), ..kim.clone() },
        Identity { kind: Some(PrincipalKind::Service), ..kim.clone() },
        Identity { issuer: Some("elsewhere".to_owned()), ..kim.clone() },
        Identity { id: "lee".to_owned(), ..kim.clone() },
    ] {
        let refused = agent.approvals().on_behalf_of(other.clone()).decide(id, Decision::approve()).await.unwrap_err();
        assert_eq!(refused.code(), "TOOLWRIGHT_APPROVAL_FORBIDDEN", "{other:?}");
    }
    let with_claims = Identity { claims: common::map(&json!({ "role": "admin" })), ..kim };
    agent.approvals().on_behalf_of(with_claims).decide(id, Decision::approve()).await.unwrap();
    agent.thread("t").resume().await.unwrap();
    assert_eq!(log.all(), [r#"kim by Some("kim")"#]);
}

// rule: sdk-tools 15/6
#[tokio::test]
async fn an_application_says_itself_who_may_decide() {
    let log = Log::default();
    let agent = agent(turns(&["{}", "{}"]))
        .tool(asks(&log))
        .authorize_approvals(|who, pending| async move { who.id == "chief" && &*pending.tool == "act" })
        .build()
        .unwrap();
    let waits = agent.thread("t").principal(Identity::new("kim")).send("go").await.unwrap();
    let id = &only(&waits).id;
    let refused = agent.approvals().on_behalf_of(Identity::new("kim")).decide(id, Decision::approve()).await.unwrap_err();
    assert_eq!(refused.code(), "TOOLWRIGHT_APPROVAL_FORBIDDEN");
    let reply = agent.approvals().on_behalf_of(Identity::new("chief")).resolve(id, Decision::approve()).await.unwrap();
    assert_eq!((reply.text.as_str(), log.len()), ("done", 1));
    // A run that acts for nobody may be decided by anybody, by default.
    let open = common::agent(turns(&["{}"])).tool(asks(&log)).build().unwrap();
    let waits = open.thread("t").send("go").await.unwrap();
    open.approvals().on_behalf_of(Identity::new("anybody")).resolve(&only(&waits).id, Decision::approve()).await.unwrap();
}

struct Listens(Log);

impl toolwright_runtime::Hook for Listens {
    fn name(&self) -> &'static str {
        "listens"
    }

    fn pre_tool_call<'a>(
        &'a self,
        call: &'a toolwright_runtime::HookCall<'a>,
    ) -> futures_util::future::BoxFuture<'a, Result<toolwright_runtime::BeforeCall, ToolError>> {
        self.0.add(format!("hook {}", call.cx().principal().unwrap().id));
        Box::pin(std::future::ready(Ok(toolwright_runtime::BeforeCall::Pass)))
    }
}

// rule: sdk-tools 15/2
#[tokio::test]
async fn everybody_who_looks_at_a_call_is_told_whom_it_is_for() {
    let log = Log::default();
    let (of_rule, of_policy, of_body) = (log.clone(), log.clone(), log.clone());
    let tool = Tool::new("act", "Acts.")
        .needs_approval_if(move |cx| {
            of_policy.add(format!("policy {}", cx.principal().unwrap().id));
            async { Ok(false) }
        })
        .run_json(move |_, cx| {
            of_body.add(format!("body {}", cx.principal().unwrap().id));
            async { Ok::<_, ToolError>(Value::Null) }
        })
        .unwrap();
    let agent = agent(turns(&["{}"]))
        .tool(tool)
        .hook(Listens(log.clone()))
        .rules([
            toolwright_core::policy::allow("other"),
            toolwright_core::policy::deny("act").when(move |call| {
                of_rule.add(format!("rule {}", call.principal().unwrap().id));
                async { Ok(false) }
            }),
        ])
        .build()
        .unwrap();
    agent.thread("t").principal(Identity::new("kim")).send("go").await.unwrap();
    assert_eq!(log.all(), ["hook kim", "rule kim", "policy kim", "body kim"]);
}

// rule: sdk-tools 15/3
#[tokio::test]
async fn a_principal_is_kept_with_the_run_and_stands_in_no_event() {
    let (log, store) = (Log::default(), MemoryStore::new());
    let agent = agent(turns(&["{}"])).tool(asks(&log)).store(store.clone()).build().unwrap();
    let who = Identity { claims: common::map(&json!({ "tenant": "acme-77" })), ..Identity::new("kim-4711") };
    let (events, waits) = collect(agent.thread("t").principal(who).stream("go")).await;
    let waits = waits.unwrap();
    let (more, _) = collect(agent.approvals().resolve_stream(&only(&waits).id, Decision::approve()).await.unwrap()).await;
    for event in events.iter().chain(&more) {
        let text = serde_json::to_string(event).unwrap();
        assert!(!text.contains("4711") && !text.contains("acme"), "{text}");
    }
    let kept = journal(&store, &waits.thread_id).await;
    let runs =
        kept.iter().filter(|record| matches!(&record.body, RecordBody::RunStarted { principal: Some(who), .. } if who["id"] == "kim-4711"));
    assert_eq!(runs.count(), 2);
}

// ------------------------------------------------------------------------------------------------------------- deciding in code

fn approving(answer: impl Fn(&PendingApproval) -> Result<ApproveAnswer, ToolError> + Send + Sync + 'static) -> AgentBuilder<NoResolvers> {
    agent(turns(&["{}", "{}", "{}"])).approve(move |pending| std::future::ready(answer(&pending)))
}

// rule: sdk-tools 13.6/1
// rule: sdk-tools 13.6/2
// rule: sdk-tools 13.6/4
// rule: sdk-runtime APR-8
#[tokio::test]
async fn code_decides_until_the_run_is_done_or_it_defers() {
    let log = Log::default();
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    let two = Script::new([calls([("a", "act", "{}"), ("b", "act", "{}")]), calls([("c", "act", "{}")]), say("done")]);
    let agent = common::agent(two)
        .tool(asks(&log))
        .approve(move |pending| {
            count.fetch_add(1, Ordering::Relaxed);
            std::future::ready(Ok(if &*pending.call_id.to_string() == "b" {
                ApproveAnswer::reject().note("no")
            } else {
                ApproveAnswer::approve()
            }))
        })
        .build()
        .unwrap();
    let reply = agent.thread("t").send("go").await.unwrap();
    assert_eq!(
        (reply.text.as_str(), log.all(), asked.load(Ordering::Relaxed)),
        ("done", vec!["body a".to_owned(), "body c".to_owned()], 3)
    );

    let defers = approving(|_| Ok(ApproveAnswer::Defer)).tool(asks(&log)).build().unwrap();
    let waits = defers.thread("t").send("go").await.unwrap();
    assert_eq!(waits.finish_reason, FinishReason::AwaitingApproval);
}

// rule: sdk-tools 13.6/3
// rule: sdk-runtime SES-10
// rule: sdk-tools 13.6/6
#[tokio::test]
async fn a_stream_ends_at_the_pause_and_a_decision_in_code_names_nobody() {
    let log = Log::default();
    let store = MemoryStore::new();
    let agent = approving(|_| Ok(ApproveAnswer::approve())).tool(asks(&log)).store(store.clone()).build().unwrap();
    let (_, waits) = collect(agent.thread("t").stream("go")).await;
    let waits = waits.unwrap();
    assert_eq!((waits.finish_reason.clone(), log.len()), (FinishReason::AwaitingApproval, 0));
    agent.approvals().decide(&only(&waits).id, Decision::reject()).await.unwrap();
    agent.thread("t").resume().await.unwrap();
    let reply = agent.thread("t").send("again").await.unwrap();
    assert_eq!((reply.finish_reason, log.len()), (FinishReason::Stop, 1));
    let records = journal(&store, &waits.thread_id).await;
    let decided = records.iter().rev().find_map(|record| match &record.body {
        RecordBody::CallDecided { decision, .. } => Some(decision.clone()),
        _ => None,
    });
    let decided = decided.unwrap();
    assert_eq!((decided.by, decided.automatic), (None, true));
}

// rule: sdk-tools 11.2/9
#[tokio::test]
async fn what_code_approved_is_remembered_only_where_it_says_so() {
    for (decision, times) in [(Decision::approve(), 2), (Decision::approve().always(), 1)] {
        let asked = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&asked);
        let agent = approving(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(ApproveAnswer::Decide(decision.clone()))
        });
        let agent = agent.tool(once(NeedsApproval::once(), &Log::default())).build().unwrap();
        agent.thread("t").send("go").await.unwrap();
        agent.thread("t").send("again").await.unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), times);
    }
}

#[tokio::test]
async fn code_that_fails_or_panics_decides_nothing() {
    for panics in [false, true] {
        let log = Log::default();
        let agent = approving(move |_| {
            assert!(!panics, "out of order");
            Err(ToolError::new("the policy server is gone").named("PolicyError"))
        });
        let agent = agent.tool(asks(&log)).build().unwrap();
        let failed = agent.thread("t").send("go").await.unwrap_err();
        assert_eq!(failed.code(), "TOOLWRIGHT_AGENT_EXECUTION_FAILED");
        assert!(failed.to_string().contains("`act` still waits"), "{failed}");
        assert_eq!((agent.approvals().pending().await.unwrap().len(), log.len()), (1, 0));
    }
}

// ---------------------------------------------------------------------------------------------------------- questions and results

fn question(log: &Log) -> Tool {
    let told = log.clone();
    Tool::new("ask", "Asks.")
        .needs_approval_if(|_| async {
            Ok(ApprovalOutcome::from(ApprovalRequest::question("Which?", &["a".to_owned(), "b".to_owned()], false)))
        })
        .run_json(move |_, cx| {
            let note = cx.approval().and_then(|approval| approval.note.clone());
            told.add(format!("{note:?}"));
            async move { note.map(Value::String).ok_or_else(|| ToolError::new("nobody answered")) }
        })
        .unwrap()
}

// rule: sdk-tools 14.2/1
// rule: sdk-tools 14.2/4
// rule: sdk-tools 13.7
#[tokio::test]
async fn a_question_waits_for_an_answer() {
    let log = Log::default();
    let script = || Script::new([calls([("c1", "ask", "{}")]), say("done")]);
    let agent = agent(script()).tool(question(&log)).build().unwrap();
    let (events, waits) = go(&agent).await;
    let waits = waits.unwrap();
    let requested = events.iter().find(|event| matches!(event.kind, EventKind::ApprovalRequested { .. })).unwrap();
    let requested = serde_json::to_value(requested).unwrap();
    assert_eq!(
        (&requested["kind"], &requested["question"]),
        (&json!("question"), &json!({ "text": "Which?", "options": ["a", "b"], "allowFreeText": false }))
    );
    assert_eq!(only(&waits).kind, AskKind::Question);
    let edited = agent.approvals().decide(&only(&waits).id, Decision::approve_with("{}")).await.unwrap_err();
    assert_eq!(edited.code(), "TOOLWRIGHT_APPROVAL_INVALID");
    agent.approvals().answer(&only(&waits).id, "b").await.unwrap();
    let reply = agent.thread(waits.thread_id.as_str()).resume().await.unwrap();
    assert_eq!((value(&results(&reply.messages)[0]), log.take()), (json!("b"), vec![r#"Some("b")"#.to_owned()]));

    let agent = common::agent(script()).tool(question(&log)).build().unwrap();
    let waits = agent.send("go").await.unwrap();
    let reply = agent.approvals().resolve(&only(&waits).id, Decision::reject()).await.unwrap();
    let (kind, _, message) = failure(&reply);
    assert_eq!((kind, message.as_str(), log.len()), (ToolFailureKind::Rejected, "the user declined to answer", 0));
}

// rule: sdk-tools 14.2/5
#[tokio::test]
async fn a_question_may_be_asked_in_plan_mode_and_not_where_nobody_is_asked() {
    for (mode, waits) in [(PermissionMode::Plan, true), (PermissionMode::DontAsk, false)] {
        let log = Log::default();
        let tool = question(&log).with_spec(|spec| {
            spec.annotations = toolwright_core::Annotations { read_only_hint: Some(true), ..Default::default() };
        });
        let agent = agent(Script::new([calls([("c1", "ask", "{}")]), say("done")])).tool(tool).permission_mode(mode).build().unwrap();
        let reply = agent.send("go").await.unwrap();
        assert_eq!(reply.pending.len(), usize::from(waits));
        if !waits {
            assert_eq!((failure(&reply).0, log.len()), (ToolFailureKind::Denied, 0));
        }
    }
}

// rule: sdk-tools 12.2/10
#[tokio::test]
async fn a_question_that_a_rule_lets_run_fails_for_want_of_an_answer_and_one_it_asks_about_is_still_a_question() {
    let log = Log::default();
    for ask in [false, true] {
        let rule = says("rule", move |_| Ok(if ask { Say::Ask(Some("by rule".to_owned())) } else { Say::Allow }));
        let agent =
            agent(Script::new([calls([("c1", "ask", "{}")]), say("done")])).tool(question(&log)).at(At::Rule, rule).build().unwrap();
        let reply = agent.send("go").await.unwrap();
        if ask {
            assert_eq!((only(&reply).kind.clone(), only(&reply).reason.as_deref()), (AskKind::Question, Some("by rule")));
        } else {
            assert!(failure(&reply).2.contains("nobody answered"));
        }
    }
}

fn outside() -> Tool {
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
    Tool::external("pick", "Has the user pick.", schema).unwrap().result_within(Duration::from_secs(600)).outside().unwrap()
}

#[tokio::test]
async fn a_result_comes_from_outside_exactly_once() {
    let (time, store) = (clock(), MemoryStore::new());
    let make = |script| agent(script).tool(outside()).clock(time.clone()).store(store.clone()).build().unwrap();
    let first = make(Script::new([calls([("c1", "pick", r#"{"n":1}"#), ("c2", "pick", r#"{"n":"x"}"#)]), say("done")]));
    let (events, waits) = collect(first.thread("t").stream("go")).await;
    let waits = waits.unwrap();
    let pending = only(&waits);
    assert_eq!((pending.kind.clone(), &*pending.arguments), (AskKind::External, r#"{"n":1}"#));
    let kind = events.iter().find_map(|event| match &event.kind {
        EventKind::ApprovalRequested { approval_kind, .. } => approval_kind.clone(),
        _ => None,
    });
    assert_eq!(kind.as_deref(), Some("external"));
    let thread = ThreadId::new("t").unwrap();
    assert_eq!(first.calls().waiting(&thread, &CallId::new("c1")).await.unwrap().id, pending.id);
    assert_eq!(first.calls().waiting(&thread, &CallId::new("c9")).await.unwrap_err().code(), "TOOLWRIGHT_APPROVAL_NOT_FOUND");
    assert_eq!(first.calls().page(None, 10).await.unwrap().items.len(), 1);
    let yes = first.approvals().decide(&pending.id, Decision::approve()).await.unwrap_err();
    assert!(yes.code() == "TOOLWRIGHT_APPROVAL_INVALID" && yes.to_string().contains("calls().complete"), "{yes}");
    // From another process; a second result, or a failure, is refused.
    let webhook = make(Script::new([say("done")]));
    webhook.calls().complete(&pending.id, ToolOutput::json(json!({ "picked": 7 }))).await.unwrap();
    let twice = first.calls().complete(&pending.id, ToolOutput::text("8")).await.unwrap_err();
    assert_eq!(twice.code(), "TOOLWRIGHT_APPROVAL_CONFLICT");
    assert_eq!(first.calls().fail(&pending.id, "no").await.unwrap_err().code(), "TOOLWRIGHT_APPROVAL_CONFLICT");
    let (events, reply) = collect(webhook.thread("t").resume_stream()).await;
    let reply = reply.unwrap();
    assert_eq!(value(&results(&reply.messages)[0]), json!({ "picked": 7 }));
    assert!(events.iter().any(|event| matches!(&event.kind, EventKind::ToolDone { result, .. } if *result == json!({ "picked": 7 }))));
    assert_eq!(kinds_of(&reply), [ToolFailureKind::Validation], "arguments are checked like any others");
}

#[tokio::test]
async fn a_result_from_outside_may_fail_be_rejected_or_not_come() {
    for (how, kind, text) in [
        ("fail", ToolFailureKind::Execution, "the browser was closed"),
        ("reject", ToolFailureKind::Rejected, "rejected"),
        ("never", ToolFailureKind::Execution, "came in time"),
        ("late", ToolFailureKind::Execution, "came in time"),
    ] {
        let time: FixedClock = clock();
        let agent =
            agent(Script::new([calls([("c1", "pick", r#"{"n":1}"#)]), say("done")])).tool(outside()).clock(time.clone()).build().unwrap();
        let waits = agent.thread("t").send("go").await.unwrap();
        let id = &only(&waits).id;
        match how {
            "fail" => agent.calls().fail(id, "the browser was closed").await.unwrap(),
            "reject" => agent.approvals().decide(id, Decision::reject()).await.unwrap(),
            "late" => {
                time.advance(600_001);
                let late = agent.calls().complete(id, ToolOutput::text("too late")).await.unwrap_err();
                assert_eq!(late.code(), "TOOLWRIGHT_APPROVAL_CONFLICT", "who posts it knows that it does not count");
            }
            _ => time.advance(600_001),
        }
        within(agent.worker().until_idle().run(tokio_util::sync::CancellationToken::new())).await.unwrap();
        let history = agent.thread("t").history().await.unwrap();
        let (_, found, _, message) = failures(&history).remove(0);
        assert!(found == kind && message.contains(text), "{how}: {message}");
        assert_eq!(history.last().unwrap().text_of(), "done");
    }
}

#[tokio::test]
async fn a_result_from_outside_passes_the_gate_and_what_comes_after_it() {
    let log = Log::default();
    let told = log.clone();
    let tool = Tool::external("pick", "Has the user pick.", json!({ "type": "object" })).unwrap().needs_approval().outside().unwrap();
    let store = MemoryStore::new();
    let agent = agent(Script::new([calls([("c1", "pick", "{}")]), say("done")]))
        .tool(tool)
        .at(
            At::Hook,
            common::afterwards("mask", move |outcome| {
                told.add(format!("{outcome:?}").contains("secret").to_string());
                Ok(Some(toolwright_core::Outcome::done(ToolOutput::text("masked"))))
            }),
        )
        .store(store.clone())
        .build()
        .unwrap();
    let waits = agent.thread("t").send("go").await.unwrap();
    assert_eq!(only(&waits).kind, AskKind::Tool, "somebody approves first");
    let early = agent.calls().complete(&only(&waits).id, ToolOutput::text("early")).await.unwrap_err();
    assert_eq!(early.code(), "TOOLWRIGHT_APPROVAL_INVALID");
    let waits = decide(&agent, &waits, Decision::approve().by("ada")).await;
    assert_eq!(only(&waits).kind, AskKind::External, "then the result is waited for");
    agent.calls().complete(&only(&waits).id, ToolOutput::text("secret")).await.unwrap();
    let reply = agent.thread("t").resume().await.unwrap();
    let result = &results(&reply.messages)[0];
    assert_eq!((value(result), log.all()), (json!("masked"), vec!["true".to_owned()]));
    assert!(result.approval.is_some(), "it was approved, too");
}

// ----------------------------------------------------------------------------------------------------------- what the mark says

// rule: sdk-tools 13.7
#[tokio::test]
async fn the_result_of_an_approved_call_is_marked() {
    let log = Log::default();
    let turn = calls([("a", "act", r#"{"b":1,"a":2}"#), ("b", "act", "{}"), ("c", "act", "{}")]);
    let agent = agent(Script::new([turn, say("done")])).tool(asks(&log)).build().unwrap();
    let waits = agent.thread("t").send("go").await.unwrap();
    let approvals = agent.approvals();
    approvals.decide(&waits.pending[0].id, Decision::approve_with(r#"{"a":2,"b":1}"#)).await.unwrap();
    approvals.decide(&waits.pending[1].id, Decision::approve().always().automatic()).await.unwrap();
    approvals.decide(&waits.pending[2].id, Decision::reject()).await.unwrap();
    let reply = agent.thread("t").resume().await.unwrap();
    let marks: Vec<_> = results(&reply.messages).into_iter().map(|result| result.approval).collect();
    let hash = toolwright_core::json::sorted_hash(r#"{"b":1,"a":2}"#);
    assert_eq!(marks[0].as_ref().map(|mark| (&*mark.args, mark.automatic, mark.remember.clone())), Some((hash.as_str(), false, None)));
    assert_eq!(marks[1].as_ref().map(|mark| (mark.automatic, mark.remember.clone())), Some((true, Some(Remember::Tool))));
    assert_eq!(marks[2], None);
}
