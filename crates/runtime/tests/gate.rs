//! The gate: one call from the text a model wrote to its one result.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::*;
use serde_json::{Value, json};
use toolwright_core::{
    ApprovalId, ArgsState, Decision, EventKind, FinishReason, Item, Outcome, Part, ThreadId, ToolFailure, ToolFailureKind, ToolOutput,
};
use toolwright_runtime::{AgentError, MemoryStore};
use toolwright_tool::{ApprovalOutcome, Identity, Tool, ToolError};

fn stages(builder: toolwright_runtime::AgentBuilder, log: &Log) -> toolwright_runtime::AgentBuilder {
    // Registered out of order: the kind says where a stage stands.
    builder
        .at(At::Mode, passes("mode", log))
        .at(At::Guardrail, passes("guardrail", log))
        .at(At::Rule, passes("rule", log))
        .at(At::Hook, passes("hook", log))
}

fn asking(log: &Log, ask: bool) -> Tool {
    let policy = log.clone();
    let builder = Tool::new("act", "Acts.").needs_approval_if(move |cx| {
        policy.add(if cx.approval().is_some() { "policy again" } else { "policy" });
        async move { Ok(ask) }
    });
    logged_with(builder, log)
}

// rule: sdk-tools 3.1/9, sdk-tools 3.2/1
#[tokio::test]
async fn every_path_to_a_body_has_the_same_stages_in_the_same_order() {
    let order = ["hook", "rule", "guardrail", "policy", "mode"];
    let log = Log::default();

    // A model's call.
    let script = Script::new([calls([("c1", "act", "{}")]), say("done")]);
    let direct = stages(agent(script), &log).tool(asking(&log, false)).build().unwrap();
    go(&direct).await.1.unwrap();
    let mut ran: Vec<&str> = order.to_vec();
    ran.extend(["body c1", "after hook"]);
    assert_eq!(log.take(), ran);

    // A direct call.
    let reply = direct.invoke("act", "{}").await.unwrap();
    assert!(matches!(reply.outcome, Some(Outcome::Done { .. })), "{reply:?}");
    let seen = log.take();
    assert_eq!(seen[..5], order);
    assert!(seen[5].starts_with("body call_") && seen[6..] == ["after hook"], "{seen:?}");

    // A call after its decision: the whole gate once more, told that it is.
    let script = Script::new([calls([("c1", "act", "{}")]), say("done")]);
    let waits = stages(agent(script), &log).tool(asking(&log, true)).build().unwrap();
    let reply = waits.send("go").await.unwrap();
    assert_eq!(log.take(), order);
    waits.approvals().decide(&reply.pending[0].id, Decision::approve()).await.unwrap();
    waits.thread(reply.thread_id.as_str()).resume().await.unwrap();
    let again: Vec<String> =
        order.iter().map(|stage| format!("{stage} again")).chain(["body c1".to_owned(), "after hook".to_owned()]).collect();
    assert_eq!(log.take(), again);
}

// rule: sdk-tools 3.1/2, sdk-tools 4.1/2, sdk-tools 7.3/2
// rule: sdk-runtime GATE-5
#[tokio::test]
async fn arguments_that_do_not_hold_reach_neither_hook_nor_policy_nor_body() {
    let log = Log::default();
    let schema = json!({ "type": "object", "properties": { "guests": { "type": "integer" }, "room": { "type": "string" } }, "required": ["guests", "room"] });
    let policy = log.clone();
    let tool = Tool::from_schema("book_room", "Books.", schema).unwrap().needs_approval_if(move |_| {
        policy.add("policy");
        async { Ok(true) }
    });
    let script = Script::new([calls([("c1", "book_room", r#"{"guests":"many"}"#)]), say("done")]);
    let agent = stages(agent(script), &log).tool(logged_with(tool, &log)).build().unwrap();
    let (events, reply) = go(&agent).await;
    let reply = reply.unwrap();
    // Post-call hooks still hear of it.
    assert_eq!(log.all(), ["after hook"]);
    let result = &results(&reply.messages)[0];
    assert_eq!(result.failed, Some(ToolFailureKind::Validation));
    let value = value(result);
    assert_eq!((value["error"].as_str(), value["toolName"].as_str()), (Some("ToolArgumentsValidationError"), Some("book_room")));
    let mut paths: Vec<&str> = value["issues"].as_array().unwrap().iter().map(|issue| issue["path"].as_str().unwrap()).collect();
    paths.sort_unstable();
    assert_eq!(paths, ["guests", "room"]);
    assert!(value["message"].as_str().unwrap().starts_with("the arguments of `book_room` have 2 issues: "), "{value}");
    assert!(brief(&events).contains(&"tool.error c1 ToolArgumentsValidationError".to_owned()));
}

// rule: sdk-tools 36/1, sdk-tools 4.1/4, sdk-tools 4.1/6
#[tokio::test]
async fn text_that_is_no_json_is_a_validation_result_and_the_run_goes_on() {
    let log = Log::default();
    let script = Script::new([calls([("c1", "act", r#"{"a": tru"#)]), calls([("c2", "act", r#"{"a":true}"#)]), say("done")]);
    let agent = agent(script.clone()).tool(logged("act", &log)).build().unwrap();
    let (events, reply) = go(&agent).await;
    let reply = reply.unwrap();
    assert_eq!((reply.text.as_str(), log.all()), ("done", vec!["body c2".to_owned()]));
    let first = &results(&reply.messages)[0];
    assert_eq!(first.failed, Some(ToolFailureKind::Validation));
    let issues = value(first)["issues"].as_array().unwrap().clone();
    assert_eq!((issues.len(), issues[0]["path"].as_str()), (1, Some("")));
    let start = events.iter().find_map(|event| match &event.kind {
        EventKind::ToolStart { args, .. } => Some(args.clone()),
        _ => None,
    });
    assert_eq!(start, Some(json!({})));
    // The model reads the failure and tries again.
    assert_eq!(script.asked()[1].messages.last().unwrap().results().count(), 1);
}

// rule: sdk-tools 4.1/6
#[tokio::test]
async fn refused_arguments_that_are_an_object_are_shown_as_written() {
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
    let tool = Tool::from_schema("act", "Acts.", schema).unwrap().run_json(|args, _| async move { Ok::<_, ToolError>(args) }).unwrap();
    let agent = agent(Script::new([calls([("c1", "act", r#"{ "n": "x" }"#)]), say("done")])).tool(tool).build().unwrap();
    let (events, _) = go(&agent).await;
    assert!(events.iter().any(|event| matches!(&event.kind, EventKind::ToolStart { args, .. } if *args == json!({ "n": "x" }))));
}

// case: rust-reports A-19
#[tokio::test]
async fn a_call_that_was_cut_off_never_runs() {
    let log = Log::default();
    let mut cut = call_item("c1", "act", r#"{"a":1}"#);
    cut.state = ArgsState::Truncated;
    let script = Script::new([items_of(vec![Item::ToolCall(cut)], FinishReason::Length)]);
    let agent = agent(script).tool(logged("act", &log)).build().unwrap();
    let reply = go(&agent).await.1.unwrap();
    assert_eq!((reply.finish_reason.clone(), log.len()), (FinishReason::Length, 0));
    assert_eq!(failure(&reply).0, ToolFailureKind::Validation);
}

// rule: sdk-tools 4.1/3
#[tokio::test]
async fn a_tool_without_a_schema_takes_any_object() {
    let written = r#"{"z":[1,{"deep":null}],"a":"é"}"#;
    let agent = agent(Script::new([calls([("c1", "act", written)]), say("done")])).tool(echo("act")).build().unwrap();
    let reply = go(&agent).await.1.unwrap();
    assert_eq!(value(&results(&reply.messages)[0]).to_string(), written);
}

// rule: sdk-tools 3.2/4, sdk-tools 7.3/3
// case: field-reports 166
#[tokio::test]
async fn an_unknown_tool_is_a_result_that_names_the_closest() {
    let log = Log::default();
    let script = Script::new([calls([("c1", "get_date", "{}"), ("c2", "get_weather", "{}")]), say("done")]);
    let agent = agent(script).tool(echo("send_email")).tool(logged("get_weather", &log)).tool(echo("get_day")).build().unwrap();
    let (events, reply) = go(&agent).await;
    let reply = reply.unwrap();
    assert_eq!((reply.text.as_str(), log.all()), ("done", vec!["body c2".to_owned()]));
    let (kind, error, message) = failure(&reply);
    assert_eq!((kind, error.as_str()), (ToolFailureKind::NotFound, "ToolNotFoundError"));
    assert_eq!(message, "there is no tool `get_date`; there are `get_day`, `get_weather`, `send_email`");
    let code = events.iter().find_map(|event| match &event.kind {
        EventKind::ToolError { error, .. } => error.code.clone(),
        _ => None,
    });
    assert_eq!(code.as_deref(), Some("TOOLWRIGHT_TOOL_NOT_FOUND"));
}

// case: field-reports 166
#[tokio::test]
async fn a_model_that_calls_unknown_tools_for_ever_ends_by_the_rules() {
    let model = Answers::new(|request| {
        reply(vec![Item::ToolCall(call_item(&format!("c{}", request.step), "nothing", "{}"))], FinishReason::ToolCalls)
    });
    let agent = agent(model.clone()).tool(echo("something")).max_steps(4).build().unwrap();
    let reply = go(&agent).await.1.unwrap();
    assert_eq!((reply.finish_reason, reply.steps, model.steps()), (FinishReason::MaxSteps, 4, vec![1, 2, 3, 4]));
}

// rule: sdk-tools 3.2/5
#[tokio::test]
async fn without_tools_every_call_is_not_found() {
    let agent = agent(Script::new([calls([("c1", "act", "{}")]), say("done")])).build().unwrap();
    let reply = go(&agent).await.1.unwrap();
    let (kind, _, message) = failure(&reply);
    assert_eq!((kind, message.as_str()), (ToolFailureKind::NotFound, "there is no tool `act`; this agent has no tools"));
}

// rule: sdk-tools 3.2/3, sdk-tools 7.3/8
#[tokio::test]
async fn a_refusal_stands_whatever_comes_after_it() {
    let kinds = [At::Hook, At::Rule, At::Guardrail, At::Mode];
    // A guardrail ends the run, or does nothing.
    for denies in kinds.into_iter().filter(|kind| *kind != At::Guardrail) {
        let log = Log::default();
        let mut builder = agent(Script::new([calls([("c1", "act", "{}")]), say("done")])).tool(logged("act", &log));
        // Everything after the refusal allows.
        builder = builder.at(denies, says("no", |_| Ok(Say::Deny(Some("at night".to_owned())))));
        for allows in kinds.into_iter().filter(|kind| *kind >= denies) {
            builder = builder.at(allows, says("yes", |_| Ok(Say::Allow)));
        }
        let reply = go(&builder.build().unwrap()).await.1.unwrap();
        assert_eq!(log.len(), 0, "{denies:?}");
        let value = value(&results(&reply.messages)[0]);
        assert_eq!(
            (value["kind"].as_str(), value["error"].as_str(), value["reason"].as_str()),
            (Some("denied"), Some("ToolDeniedError"), Some("at night"))
        );
        assert_eq!(value["message"], "`act` was denied: at night");
    }
}

// rule: sdk-tools 36/4, sdk-tools 3.1/6
#[tokio::test]
async fn an_allow_drops_the_tools_ask_and_never_its_refusal() {
    for (says_own, ran, kind) in [(ApprovalOutcome::Ask, 1, None), (ApprovalOutcome::Deny(None), 0, Some(ToolFailureKind::Denied))] {
        let log = Log::default();
        let builder = Tool::new("act", "Acts.").needs_approval_if(move |_| {
            let says_own = says_own.clone();
            async move { Ok(says_own) }
        });
        let agent = agent(Script::new([calls([("c1", "act", "{}")]), say("done")]))
            .tool(logged_with(builder, &log))
            .at(At::Rule, says("yes", |_| Ok(Say::Allow)))
            .build()
            .unwrap();
        let reply = go(&agent).await.1.unwrap();
        assert_eq!((log.len(), results(&reply.messages)[0].failed.clone()), (ran, kind));
    }
}

// rule: sdk-tools 3.1/4
#[tokio::test]
async fn the_first_rule_that_decides_wins() {
    let log = Log::default();
    let agent = agent(Script::new([calls([("c1", "act", "{}")]), say("done")]))
        .tool(logged("act", &log))
        .at(At::Rule, passes("first", &log))
        .at(At::Rule, says("second", |_| Ok(Say::Allow)))
        .at(At::Rule, says("third", |_| Ok(Say::Deny(None))))
        .build()
        .unwrap();
    go(&agent).await.1.unwrap();
    assert_eq!(log.all(), ["first", "body c1"]);
}

// rule: sdk-tools 3.2/2, sdk-tools 4.1/5, sdk-tools 36/2
#[tokio::test]
async fn what_a_hook_or_guardrail_rewrites_is_read_again_and_seen_by_all_that_follow() {
    let log = Log::default();
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
    let rule = log.clone();
    let tool = Tool::from_schema("act", "Acts.", schema).unwrap().needs_approval();
    let body = log.clone();
    let tool = tool
        .run_json(move |args, _| {
            body.add(format!("body {args}"));
            async move { Ok::<_, ToolError>(args) }
        })
        .unwrap();
    let agent = agent(Script::new([calls([("c1", "act", r#"{"n":1}"#)]), say("done")]))
        .tool(tool)
        // A repair counts here as it does for the model's own text.
        .at(At::Hook, says("adds", |call| Ok(if call.resumed_after_approval { Say::Pass } else { Say::Rewrite(json!({ "n": "2" })) })))
        .at(
            At::Rule,
            says("rule", move |call| {
                rule.add(format!("rule {}", call.cx.args().text()));
                Ok(Say::Pass)
            }),
        )
        .build()
        .unwrap();
    let (events, reply) = go(&agent).await;
    let reply = reply.unwrap();
    assert_eq!(&*reply.pending[0].arguments, r#"{"n":2}"#);
    assert!(events.iter().any(|event| matches!(&event.kind, EventKind::ApprovalRequested { args, .. } if *args == json!({ "n": 2 }))));
    agent.approvals().decide(&reply.pending[0].id, Decision::approve()).await.unwrap();
    agent.thread(reply.thread_id.as_str()).resume().await.unwrap();
    assert_eq!(log.all(), [r#"rule {"n":2}"#, r#"rule {"n":2}"#, r#"body {"n":2}"#]);
}

// rule: sdk-tools 4.1/5, sdk-tools 36/2
#[tokio::test]
async fn a_rewrite_that_does_not_hold_is_a_validation_failure_that_names_who_made_it() {
    for kind in [At::Hook, At::Guardrail] {
        let log = Log::default();
        let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
        let agent = agent(Script::new([calls([("c1", "act", r#"{"n":1}"#)]), say("done")]))
            .tool(logged_with(Tool::from_schema("act", "Acts.", schema).unwrap(), &log))
            .at(kind, says("spoils", |_| Ok(Say::Rewrite(json!({ "n": [] })))))
            .build()
            .unwrap();
        let reply = go(&agent).await.1.unwrap();
        let (failed, _, message) = failure(&reply);
        assert_eq!((failed, log.len()), (ToolFailureKind::Validation, 0));
        assert!(message.contains("n: ") && message.contains("(from `spoils`)"), "{message}");
    }
}

// rule: sdk-tools 36/8
// rule: sdk-tools 13.4/5
// rule: sdk-runtime APR-5
#[tokio::test]
async fn a_hook_that_changes_what_was_approved_is_refused() {
    let log = Log::default();
    let agent = agent(Script::new([calls([("c1", "act", r#"{"n":1}"#)]), say("done")]))
        .tool(logged_with(Tool::new("act", "Acts.").needs_approval(), &log))
        .at(At::Hook, says("late", |call| Ok(if call.resumed_after_approval { Say::Rewrite(json!({ "n": 2 })) } else { Say::Pass })))
        .build()
        .unwrap();
    let waits = agent.send("go").await.unwrap();
    agent.approvals().decide(&waits.pending[0].id, Decision::approve()).await.unwrap();
    let reply = agent.thread(waits.thread_id.as_str()).resume().await.unwrap();
    let (kind, _, message) = failure(&reply);
    assert_eq!((kind, log.len()), (ToolFailureKind::Validation, 0));
    assert!(message.contains("differ from those that were approved"), "{message}");
}

// rule: sdk-tools 3.1/3
#[tokio::test]
async fn a_hook_may_answer_in_place_of_the_body() {
    let log = Log::default();
    let agent = agent(Script::new([calls([("c1", "act", "{}")]), say("done")]))
        .tool(logged("act", &log))
        .at(At::Hook, says("cache", |_| Ok(Say::Answer(ToolOutput::json(json!("cached"))))))
        .build()
        .unwrap();
    let (events, reply) = go(&agent).await;
    assert_eq!((value(&results(&reply.unwrap().messages)[0]), log.len()), (json!("cached"), 0));
    assert!(brief(&events).contains(&"tool.done c1".to_owned()));
}

// rule: sdk-tools 3.1/10, sdk-tools 36/11, sdk-tools 7.4/4
// rule: sdk-runtime GATE-2
#[tokio::test]
async fn a_post_call_hook_sees_every_end_and_may_replace_it() {
    let log = Log::default();
    let seen = log.clone();
    let agent = agent(Script::new([calls([("c1", "works", "{}"), ("c2", "breaks", "{}"), ("c3", "refused", "{}")]), say("done")]))
        .tool(echo("works"))
        .tool(failing("breaks", ToolError::new("no")))
        .tool(echo("refused"))
        .at(At::Rule, says("no", |call| Ok(if call.cx.tool_name() == "refused" { Say::Deny(Some("why".to_owned())) } else { Say::Pass })))
        .at(
            At::Hook,
            afterwards("watch", move |outcome| {
                seen.add(match outcome {
                    Outcome::Done { .. } => "done".to_owned(),
                    Outcome::Failed { failure } => failure.kind.to_string(),
                });
                // A failure built by hand has the shape of one that the gate makes.
                let by_hand = || Some(Outcome::failed(ToolFailure::denied("refused", Some("why".to_owned()))));
                Ok(if matches!(outcome, Outcome::Failed { failure } if failure.kind == ToolFailureKind::Execution) {
                    by_hand()
                } else {
                    None
                })
            }),
        )
        .build()
        .unwrap();
    let (events, reply) = go(&agent).await;
    let mut seen = log.all();
    seen.sort();
    assert_eq!(seen, ["denied", "done", "execution"]);
    let results = results(&reply.unwrap().messages);
    let (mut made, mut gates) = (value(&results[1]), value(&results[2]));
    made.as_object_mut().unwrap().remove("toolCallId");
    gates.as_object_mut().unwrap().remove("toolCallId");
    assert_eq!(made, gates);
    assert_eq!(results[1].failed, Some(ToolFailureKind::Denied));
    assert!(brief(&events).contains(&"tool.error c2 ToolDeniedError".to_owned()));
}

// rule: sdk-tools 36/5, sdk-tools 3.2/6
#[tokio::test]
async fn a_policy_or_rule_that_fails_is_a_failed_call_and_never_a_yes() {
    let failing_policy =
        Tool::new("act", "Acts.").needs_approval_if(|_| async { Err::<bool, _>(ToolError::new("no tenant").named("TenantError")) });
    let panicking_policy = Tool::new("act", "Acts.").needs_approval_if(|_| async { if true { panic!("no tenant") } else { Ok(false) } });
    for (policy, error) in [(failing_policy, "TenantError"), (panicking_policy, "PanicError")] {
        let log = Log::default();
        let agent = agent(Script::new([calls([("c1", "act", "{}")]), say("done")])).tool(logged_with(policy, &log)).build().unwrap();
        let reply = go(&agent).await.1.unwrap();
        let (kind, name, message) = failure(&reply);
        assert_eq!((kind, name.as_str(), log.len()), (ToolFailureKind::Execution, error, 0));
        assert!(message.contains("no tenant"), "{message}");
    }
    let log = Log::default();
    let agent = agent(Script::new([calls([("c1", "act", "{}")]), say("done")]))
        .tool(logged("act", &log))
        .at(At::Rule, says("when", |_| Err(ToolError::new("no clock"))))
        .build()
        .unwrap();
    let reply = go(&agent).await.1.unwrap();
    assert_eq!((failure(&reply).0, log.len()), (ToolFailureKind::Execution, 0));
}

// rule: sdk-tools 33.3
#[tokio::test]
async fn a_hook_that_throws_ends_the_run_and_leaves_it_balanced() {
    let log = Log::default();
    let store = MemoryStore::new();
    let agent = agent(Script::new([calls([("c1", "act", "{}"), ("c2", "act", "{}")])]))
        .tool(logged("act", &log))
        .at(At::Hook, says("audit", |_| Err(ToolError::new("the disk is full"))))
        .store(store.clone())
        .build()
        .unwrap();
    let (events, reply) = collect(agent.thread("t").stream("go")).await;
    let error = reply.unwrap_err();
    assert_eq!(
        (error.code(), error.to_string().as_str()),
        ("TOOLWRIGHT_AGENT_EXECUTION_FAILED", "the hook `audit` failed: the disk is full")
    );
    assert!(!error.is_usage());
    assert_eq!(log.len(), 0);
    let all = brief(&events);
    assert_eq!(all[all.len() - 3..], ["step.done 1 error", "error ToolExecutionError", "run.done error"]);
    let transcript = agent.thread("t").history().await.unwrap();
    transcript.check_balance().unwrap();
    assert_eq!(results(&transcript).len(), 2);
}

// case: field-reports 170
#[tokio::test]
async fn a_post_call_hook_that_throws_loses_no_result() {
    let count = Arc::new(AtomicUsize::new(0));
    let calls_of: Vec<Item> = (0..13).map(|n| Item::ToolCall(call_item(&format!("c{n}"), "act", "{}"))).collect();
    let agent = agent(Script::new([items_of(calls_of, FinishReason::ToolCalls)]))
        .tool(echo("act"))
        .at(
            At::Hook,
            afterwards("late", move |_| if count.fetch_add(1, Ordering::SeqCst) == 3 { Err(ToolError::new("no")) } else { Ok(None) }),
        )
        .build()
        .unwrap();
    let thread = agent.thread("t");
    collect(thread.stream("go")).await.1.unwrap_err();
    let transcript = thread.history().await.unwrap();
    transcript.check_balance().unwrap();
    assert_eq!(results(&transcript).len(), 13);
}

// rule: sdk-tools 17.2/7
#[tokio::test]
async fn a_panic_in_a_hook_ends_the_run_and_is_never_a_yes() {
    let log = Log::default();
    let agent = agent(Script::new([calls([("c1", "act", "{}"), ("c2", "act", "{}")]), say("done")]))
        .tool(logged("act", &log))
        .at(At::Hook, says("bad", |call| if call.cx.call_id().as_str() == "c1" { panic!("oh") } else { Ok(Say::Pass) }))
        .build()
        .unwrap();
    let error = go(&agent).await.1.unwrap_err();
    assert_eq!((error.code(), error.to_string().as_str()), ("TOOLWRIGHT_AGENT_EXECUTION_FAILED", "the hook `bad` failed: it panicked: oh"));
    assert_eq!(log.len(), 0);
}

// rule: sdk-tools 3.1/5, sdk-tools 5.2/10, sdk-tools 36/13
#[tokio::test]
async fn a_guardrail_ends_the_run_and_every_call_has_its_result() {
    let log = Log::default();
    let trip = |call: &Seen<'_>| Ok(if call.cx.call_id().as_str() == "c2" { Say::EndRun("an address".to_owned()) } else { Say::Pass });
    let script = Script::new([calls([("c1", "act", "{}"), ("c2", "act", "{}"), ("c3", "act", "{}")])]);
    let agent = agent(script.clone()).tool(logged("act", &log)).tool_concurrency(1).at(At::Guardrail, says("pii", trip)).build().unwrap();
    let (events, reply) = go(&agent).await;
    let reply = reply.unwrap();
    assert_eq!((reply.finish_reason, script.times(), log.all()), (FinishReason::Guardrail, 1, vec!["body c1".to_owned()]));
    let trip = reply.guardrail.unwrap();
    assert_eq!((&*trip.name, &*trip.kind, &*trip.reason, trip.tool_name.as_deref()), ("pii", "tool", "an address", Some("act")));
    assert_eq!(
        failures(&reply.messages).iter().map(|(call, kind, ..)| (call.as_str(), kind.clone())).collect::<Vec<_>>(),
        [("c2", ToolFailureKind::NotRun), ("c3", ToolFailureKind::NotRun)]
    );
    let all = brief(&events);
    assert_eq!(all[all.len() - 3..], ["tool.error c2 ToolNotRunError", "step.done 1 guardrail", "run.done guardrail"]);
    assert_eq!(all.iter().filter(|event| *event == "guardrail.tripped pii").count(), 1);
}

// rule: sdk-tools 7.2, sdk-tools 7.4/1, sdk-tools 7.4/2
// rule: sdk-runtime GATE-3
#[tokio::test]
async fn a_failed_body_is_a_result_of_one_shape_with_a_bounded_message() {
    let long = "é".repeat(3000);
    let agent = agent(Script::new([calls([("c1", "lookup", "{}")]), say("done")]))
        .tool(failing("lookup", ToolError::new(long).named("RangeError")))
        .build()
        .unwrap();
    let (events, reply) = go(&agent).await;
    let reply = reply.unwrap();
    let result = &results(&reply.messages)[0];
    assert!(result.is_error());
    let value = value(result);
    let keys: Vec<&String> = value.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["error", "toolName", "message", "kind", "toolCallId"]);
    assert_eq!((&value["error"], &value["toolName"], &value["kind"]), (&json!("RangeError"), &json!("lookup"), &json!("execution")));
    let message = value["message"].as_str().unwrap();
    assert_eq!(message.chars().count(), 2000);
    assert!(message.starts_with("éé") && message.ends_with(toolwright_core::TRUNCATION_MARKER), "{message}");
    let told = events.iter().find_map(|event| match &event.kind {
        EventKind::ToolError { error, .. } => Some(error.clone()),
        EventKind::ToolDone { .. } => panic!("a failed call is not done"),
        _ => None,
    });
    let told = told.unwrap();
    assert_eq!(
        (told.name.as_str(), told.message.as_str(), told.code.as_deref()),
        ("RangeError", message, Some("TOOLWRIGHT_TOOL_EXECUTION_FAILED"))
    );
}

// rule: sdk-runtime GATE-4
#[test]
fn the_kinds_of_failure_are_eight_and_a_new_one_survives() {
    let kinds = ["execution", "validation", "not-found", "rejected", "not-run", "mcp", "sandbox", "denied"];
    for kind in kinds {
        assert!(!matches!(ToolFailureKind::from_word(kind), ToolFailureKind::Other(_)), "{kind}");
    }
    let later: ToolFailureKind = serde_json::from_value(json!("melted")).unwrap();
    assert_eq!(serde_json::to_value(later).unwrap(), json!("melted"));
}

// rule: sdk-tools 7.4/6
#[tokio::test]
async fn no_failure_that_a_model_reads_has_a_code_or_a_link() {
    let names = ["breaks", "panics", "nothing", "denied", "strict", "boxed", "ends"];
    let items = names.iter().map(|name| Item::ToolCall(call_item(name, name, "{}"))).collect();
    let strict = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
    let agent = agent(Script::new([items_of(items, FinishReason::ToolCalls)]))
        .tool(failing("breaks", ToolError::new("no")))
        .tool(
            Tool::new("panics", "Panics.")
                .run_json(|args, _| async move { if true { panic!("oh") } else { Ok::<_, ToolError>(args) } })
                .unwrap(),
        )
        .tool(echo("denied"))
        .tool(
            Tool::from_schema("strict", "Is strict.", strict).unwrap().run_json(|args, _| async move { Ok::<_, ToolError>(args) }).unwrap(),
        )
        .tool(
            Tool::new("boxed", "Needs a sandbox.")
                .requires_sandbox(None)
                .run_json(|args, _| async move { Ok::<_, ToolError>(args) })
                .unwrap(),
        )
        .tool(failing("ends", ToolError::propagate(ToolError::new("all over"))))
        .at(At::Rule, says("no", |call| Ok(if call.cx.tool_name() == "denied" { Say::Deny(None) } else { Say::Pass })))
        .build()
        .unwrap();
    let thread = agent.thread("t");
    collect(thread.stream("go")).await.1.unwrap_err();
    let transcript = thread.history().await.unwrap();
    assert_eq!(failures(&transcript).len(), names.len());
    for result in results(&transcript) {
        let text = result.text();
        assert!(!text.contains("TOOLWRIGHT_") && !text.contains("http"), "{text}");
    }
}

// rule: sdk-tools 7.3/7
// rule: sdk-tools 10.2/1
#[tokio::test]
async fn a_tool_for_a_sandbox_without_a_body_for_one_does_not_run() {
    let (log, all) = (Log::default(), Log::default());
    let heard = all.clone();
    let agent = agent(Script::new([calls([("c1", "act", "{}")]), say("done")]))
        .tool(logged_with(Tool::new("act", "Acts.").requires_sandbox(None), &log))
        .at(
            At::Hook,
            afterwards("watch", move |_| {
                heard.add("heard");
                Ok(None)
            }),
        )
        .build()
        .unwrap();
    let (events, reply) = go(&agent).await;
    let reply = reply.unwrap();
    // A post-call hook hears of it, as everybody does.
    assert_eq!(all.len(), 1);
    assert!(brief(&events).contains(&"tool.error c1 SandboxRequiredError".to_owned()));
    let (kind, error, _) = failure(&reply);
    assert_eq!((kind, error.as_str(), log.len()), (ToolFailureKind::Sandbox, "SandboxRequiredError", 0));
    assert_eq!(value(&results(&reply.messages)[0])["toolCallId"], "c1");
}

// rule: sdk-tools 7.3/4, sdk-tools 7.4/7
// rule: sdk-runtime GATE-7
// rule: sdk-tools 13.4/8
#[tokio::test]
async fn a_rejected_call_and_an_approved_one_that_fails_have_the_one_shape() {
    let script = Script::new([calls([("c1", "act", "{}"), ("c2", "act", "{}")]), say("done")]);
    let tool = Tool::new("act", "Acts.")
        .needs_approval()
        .run_json(|_, _| async { Err::<Value, _>(ToolError::new("it broke").named("IoError")) })
        .unwrap();
    let agent = agent(script).tool(tool).build().unwrap();
    let waits = agent.send("go").await.unwrap();
    let pending = &waits.pending;
    agent.approvals().decide(&pending[0].id, Decision::reject().note("not today")).await.unwrap();
    agent.approvals().decide(&pending[1].id, Decision::approve()).await.unwrap();
    let (events, reply) = collect(agent.thread(waits.thread_id.as_str()).resume_stream()).await;
    let results = results(&reply.unwrap().messages);
    let (rejected, broken) = (value(&results[0]), value(&results[1]));
    assert_eq!(
        (&rejected["kind"], &rejected["error"], &rejected["note"]),
        (&json!("rejected"), &json!("ToolRejectedError"), &json!("not today"))
    );
    assert_eq!(broken, json!({ "error": "IoError", "toolName": "act", "message": "it broke", "kind": "execution", "toolCallId": "c2" }));
    assert_eq!((results[0].approval.is_some(), results[1].approval.is_some()), (false, true));
    let told = brief(&events);
    assert!(told.contains(&"tool.error c1 ToolRejectedError".to_owned()) && told.contains(&"tool.error c2 IoError".to_owned()), "{told:?}");
}

// rule: sdk-tools 6/1
// rule: sdk-runtime GATE-11
#[tokio::test]
async fn a_body_is_told_the_same_facts_on_every_path() {
    let log = Log::default();
    let told = log.clone();
    let facts = move |_args: Value, cx: toolwright_tool::ToolContext| {
        let by = cx.approval().map(|approval| format!("{:?} {:?}", approval.by.as_deref(), approval.note.as_deref()));
        told.add(format!(
            "{} {} {} run {} for {} attempt {} messages {} stopped {} {by:?}",
            cx.tool_name(),
            cx.agent(),
            cx.thread_id().is_some(),
            cx.run_id().is_some(),
            cx.principal().map(|who| who.id.clone()).unwrap_or_default(),
            cx.attempt(),
            cx.messages().len(),
            cx.cancelled().is_cancelled(),
        ));
        let id = cx.call_id().to_string();
        async move { Ok::<_, ToolError>(id) }
    };
    let free = Tool::new("free", "Tells.").run_json(facts.clone()).unwrap();
    let asks = Tool::new("asks", "Tells.").needs_approval().run_json(facts).unwrap();
    let script = Script::new([calls([("c1", "free", "{}"), ("c2", "asks", "{}")]), say("done")]);
    let agent = agent(script).name("clerk").tool(free).tool(asks).build().unwrap();
    let thread = agent.thread("t").principal(Identity::new("ada"));
    let waits = thread.send("go").await.unwrap();
    assert_eq!(log.take(), ["free clerk true run true for ada attempt 1 messages 1 stopped false None"]);
    agent.approvals().decide(&waits.pending[0].id, Decision::approve().by("bob").note("fine")).await.unwrap();
    // Whoever resumes: the run acts for whom it began.
    let reply = agent.thread("t").principal(Identity::new("eve")).resume().await.unwrap();
    assert_eq!(log.take(), [r#"asks clerk true run true for ada attempt 1 messages 1 stopped false Some("Some(\"bob\") Some(\"fine\")")"#]);
    assert_eq!(results(&reply.messages).iter().map(value).collect::<Vec<_>>(), [json!("c1"), json!("c2")]);
    thread.invoke("free", "{}").await.unwrap();
    assert_eq!(log.take(), ["free clerk true run true for ada attempt 1 messages 4 stopped false None"]);
}

// rule: sdk-tools 6/4
#[tokio::test]
async fn no_tool_can_change_who_the_run_acts_for() {
    use toolwright_tool::{FromCall as _, Principal};
    let log = Log::default();
    let told = log.clone();
    let tool = Tool::new("act", "Acts.")
        .run_json(move |_, cx| {
            let told = told.clone();
            async move {
                // What a body takes is its own copy.
                let Principal(who) = Principal::from_call(&cx).await?;
                let mut who = who.unwrap();
                told.add(who.id.clone());
                who.id = "root".to_owned();
                Ok::<_, ToolError>(who.id)
            }
        })
        .unwrap();
    let agent = agent(Script::new([calls([("c1", "act", "{}")]), calls([("c2", "act", "{}")]), say("done")])).tool(tool).build().unwrap();
    agent.new_thread().principal(Identity::new("ada")).send("go").await.unwrap();
    assert_eq!(log.all(), ["ada", "ada"]);
}

// rule: sdk-tools 7.1/1, sdk-tools 7.1/3
#[tokio::test]
async fn a_result_is_json_in_the_transcript_and_on_events() {
    #[derive(serde::Serialize)]
    struct Reading {
        at: std::net::Ipv4Addr,
        celsius: f64,
        list: Vec<Option<u8>>,
    }
    let tool = Tool::new("read", "Reads.")
        .run_json(|_, _| async {
            Ok::<_, ToolError>(Reading { at: std::net::Ipv4Addr::LOCALHOST, celsius: f64::NAN, list: vec![Some(1), None] })
        })
        .unwrap();
    let nothing = Tool::new("nothing", "Gives nothing.").run_json(|_, _| async { Ok::<_, ToolError>(()) }).unwrap();
    let agent =
        agent(Script::new([calls([("c1", "read", "{}"), ("c2", "nothing", "{}")]), say("done")])).tool(tool).tool(nothing).build().unwrap();
    let (events, reply) = go(&agent).await;
    let results = results(&reply.unwrap().messages);
    assert_eq!(results[0].text(), r#"{"at":"127.0.0.1","celsius":null,"list":[1,null]}"#);
    assert_eq!(results[1].text(), "null");
    let shown: Vec<Value> = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::ToolDone { result, .. } => Some(result.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(shown, [json!({ "at": "127.0.0.1", "celsius": null, "list": [1, null] }), Value::Null]);
}

#[tokio::test]
async fn people_may_be_shown_something_else_than_the_model_reads() {
    let tool = Tool::new("chart", "Draws.")
        .run_json(|_, _| async { Ok::<_, ToolError>(ToolOutput::text("12 sales").shown_as(json!({ "bars": [12] }))) })
        .unwrap();
    let agent = agent(Script::new([calls([("c1", "chart", "{}")]), say("done")])).tool(tool).build().unwrap();
    let (events, reply) = go(&agent).await;
    assert_eq!(results(&reply.unwrap().messages)[0].text(), "12 sales");
    assert!(events.iter().any(|event| matches!(&event.kind, EventKind::ToolDone { result, .. } if *result == json!({ "bars": [12] }))));
}

// case: field-reports 47
#[tokio::test]
async fn every_result_is_bounded_at_a_character_and_says_so() {
    let text = Tool::new("text", "Is long.").run_json(|_, _| async { Ok::<_, ToolError>(ToolOutput::text("é".repeat(500))) }).unwrap();
    let object = Tool::new("object", "Is long.").run_json(|_, _| async { Ok::<_, ToolError>(json!({ "a": "x".repeat(500) })) }).unwrap();
    let parts = Tool::new("parts", "Is long.")
        .run_json(|_, _| async {
            Ok::<_, ToolError>(ToolOutput::of(vec![Part::text("x".repeat(60)), Part::Json { value: json!(1) }, Part::text("y".repeat(60))]))
        })
        .unwrap();
    let own = Tool::new("own", "Has its own bound.")
        .result_limit(10)
        .run_json(|_, _| async { Ok::<_, ToolError>(ToolOutput::text("x".repeat(50))) })
        .unwrap();
    let small = Tool::new("small", "Is short.").run_json(|_, _| async { Ok::<_, ToolError>(json!({ "a": 1 })) }).unwrap();
    let cached = echo("cached");
    let names = ["text", "object", "parts", "own", "small", "cached"];
    let items = names.iter().map(|name| Item::ToolCall(call_item(name, name, "{}"))).collect();
    let agent = agent(Script::new([items_of(items, FinishReason::ToolCalls), say("done")]))
        .tools([text, object, parts, own, small, cached])
        .result_limit(100)
        // What a hook answers is a result like any other.
        .at(
            At::Hook,
            says("cache", |call| {
                Ok(if call.cx.tool_name() == "cached" { Say::Answer(ToolOutput::text("z".repeat(500))) } else { Say::Pass })
            }),
        )
        .build()
        .unwrap();
    let results = results(&go(&agent).await.1.unwrap().messages);
    assert_eq!(
        value(&results[0]),
        json!(format!("{}\n[cut: 100 of 500 characters are shown; ask for less, or for a part]", "é".repeat(100)))
    );
    assert!(results[1].text().starts_with(r#"{"a":"xxx"#) && results[1].text().contains("[cut: 100 of 508 characters are shown;"));
    assert_eq!(results[2].parts[..2], [Part::text("x".repeat(60)), Part::Json { value: json!(1) }]);
    assert!(results[2].text().contains("[cut: 39 of 60 characters are shown;"), "{}", results[2].text());
    assert!(results[3].text().contains("[cut: 10 of 50 characters are shown;"));
    assert_eq!(value(&results[4]), json!({ "a": 1 }));
    assert!(results[5].text().contains("[cut: 100 of 500 characters are shown;"), "{}", results[5].text());
}

#[tokio::test]
async fn a_limit_of_calls_is_kept_for_the_run() {
    let log = Log::default();
    let script = Script::new([
        calls([("c1", "act", "{}"), ("c2", "act", "{}")]),
        calls([("c3", "act", "{}")]),
        say("done"),
        calls([("c4", "act", "{}")]),
        say("done"),
    ]);
    let agent = agent(script).tool(logged_with(Tool::new("act", "Acts.").max_calls(1), &log)).build().unwrap();
    let thread = agent.thread("t");
    let reply = thread.send("go").await.unwrap();
    let refused = failures(&reply.messages);
    assert_eq!(
        refused.iter().map(|(call, kind, ..)| (call.as_str(), kind.clone())).collect::<Vec<_>>(),
        [("c2", ToolFailureKind::Denied), ("c3", ToolFailureKind::Denied)]
    );
    assert_eq!(refused[0].3, "`act` was denied: its limit of 1 call a run is reached");
    // The next run has its own count.
    thread.send("again").await.unwrap();
    assert_eq!(log.all(), ["body c1", "body c4"]);
}

#[tokio::test]
async fn a_tool_may_ask_for_another_try_as_often_as_it_says() {
    let tool = Tool::new("act", "Acts.").max_retries(2).run_json(|_, _| async { Err::<Value, _>(ToolError::retry("busy")) }).unwrap();
    let script = Script::new([calls([("c1", "act", "{}")]), calls([("c2", "act", "{}")]), calls([("c3", "act", "{}")]), say("done")]);
    let agent = agent(script).tool(tool).build().unwrap();
    let results = results(&go(&agent).await.1.unwrap().messages);
    let left: Vec<Value> = results.iter().map(|result| value(result)["retriesLeft"].clone()).collect();
    assert_eq!(left, [json!(1), json!(0), Value::Null]);
    assert_eq!(value(&results[2])["message"], "busy (no tries are left; do not call it again)");
}

// case: rust-reports B-29, field-reports 17, field-reports 19
#[tokio::test]
async fn missing_and_repeated_ids_lose_no_call() {
    let log = Log::default();
    let unnamed = |arguments: &str| {
        let mut item = call_item("", "act", arguments);
        item.provider_id = None;
        Item::ToolCall(item)
    };
    let named = |id: &str| Item::ToolCall(call_item(id, "act", "{}"));
    let script = Script::new([
        items_of(vec![named("x"), named("x"), unnamed("{}"), named("  ")], FinishReason::ToolCalls),
        items_of(vec![named("x"), unnamed("{}")], FinishReason::ToolCalls),
        say("done"),
    ]);
    let agent = agent(script).tool(logged("act", &log)).tool_concurrency(1).build().unwrap();
    let reply = go(&agent).await.1.unwrap();
    let ids = ["x", "x_d1", "call_1_3", "call_1_4", "x_d2", "call_2_2"];
    assert_eq!(log.all(), ids.map(|id| format!("body {id}")));
    // The provider's own id stands beside ours.
    let results = results(&reply.messages);
    assert_eq!(results.iter().map(|result| result.call_id.as_str()).collect::<Vec<_>>(), ids);
    assert_eq!(
        results.iter().map(|result| result.provider_id.as_deref()).collect::<Vec<_>>(),
        [Some("x"), Some("x"), None, Some("  "), Some("x"), None]
    );
}

// rule: sdk-tools 3.1/8
// rule: sdk-tools 13.3/1
// rule: sdk-tools 13.4/11
// rule: sdk-runtime SES-8
#[tokio::test]
async fn a_call_that_needs_approval_pauses_the_run_and_runs_once_decided() {
    let log = Log::default();
    let script = Script::new([calls([("c1", "act", r#"{"n":1}"#)]), say("done")]);
    let agent = agent(script.clone()).tool(logged_with(Tool::new("act", "Acts.").needs_approval(), &log)).build().unwrap();
    let thread = agent.thread("t");
    let waits = thread.send("go").await.unwrap();
    assert_eq!((waits.finish_reason, log.len(), script.times()), (FinishReason::AwaitingApproval, 0, 1));
    let pending = &waits.pending[0];
    assert_eq!((&*pending.tool, &*pending.arguments, pending.call_id.as_str()), ("act", r#"{"n":1}"#, "c1"));
    assert_eq!(agent.approvals().pending().await.unwrap(), waits.pending);
    agent.approvals().decide(&pending.id, Decision::approve()).await.unwrap();
    assert_eq!(log.len(), 0, "a decision is recorded, it does not run the thread");
    let reply = thread.resume().await.unwrap();
    assert_eq!((reply.finish_reason, reply.text.as_str(), log.all()), (FinishReason::Stop, "done", vec!["body c1".to_owned()]));
    assert!(agent.approvals().pending().await.unwrap().is_empty());
    // Nothing is left to resume, and the call never runs again.
    assert!(matches!(thread.resume().await.unwrap_err(), AgentError::NothingToResume { .. }));
    assert_eq!(log.len(), 1);
}

#[tokio::test]
async fn edited_arguments_are_validated_and_shown_where_the_call_goes_on() {
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
    for (edit, holds) in [(r#"{"n":"7"}"#, true), (r#"{"n":[]}"#, false), ("{", false)] {
        let log = Log::default();
        let body = log.clone();
        let tool = Tool::from_schema("act", "Acts.", schema.clone()).unwrap().needs_approval();
        let tool = tool
            .run_json(move |args, _| {
                body.add(args.to_string());
                async move { Ok::<_, ToolError>(args) }
            })
            .unwrap();
        let store = MemoryStore::new();
        let elsewhere = agent(Script::new([])).store(store.clone()).build().unwrap();
        let agent = agent(Script::new([calls([("c1", "act", r#"{"n":1}"#)]), say("done")])).tool(tool).store(store).build().unwrap();
        let waits = agent.send("go").await.unwrap();
        let id = &waits.pending[0].id;
        if !holds {
            // Who has the tool is told at once, and the call still waits.
            let refused = agent.approvals().decide(id, Decision::approve_with(edit)).await.unwrap_err();
            assert_eq!(refused.code(), "TOOLWRIGHT_APPROVAL_INVALID");
            assert!(refused.to_string().contains("the edited arguments don't fit `act`"), "{refused}");
            assert_eq!(agent.approvals().pending().await.unwrap().len(), 1);
        }
        // Whoever decides elsewhere need not know the tool: the gate reads what was edited.
        elsewhere.approvals().decide(id, Decision::approve_with(edit)).await.unwrap();
        let (events, reply) = collect(agent.thread(waits.thread_id.as_str()).resume_stream()).await;
        let reply = reply.unwrap();
        if holds {
            assert_eq!(log.all(), [r#"{"n":7}"#]);
            assert!(
                events
                    .iter()
                    .any(|event| matches!(&event.kind, EventKind::ToolResume { args, edited: true, .. } if *args == json!({ "n": 7 })))
            );
        } else {
            assert_eq!((log.len(), failure(&reply).0), (0, ToolFailureKind::Validation), "{edit}");
        }
    }
}

// rule: sdk-tools 13.4/1
#[tokio::test]
async fn a_second_decision_is_refused_with_the_name_of_the_first() {
    let store = MemoryStore::new();
    let make = |script| {
        agent(script)
            .tool(echo("other"))
            .tool(Tool::new("act", "Acts.").needs_approval().run_json(|args, _| async move { Ok::<_, ToolError>(args) }).unwrap())
            .store(store.clone())
            .build()
            .unwrap()
    };
    let first = make(Script::new([calls([("c1", "act", "{}")])]));
    let waits = first.thread("t").send("go").await.unwrap();
    let id = &waits.pending[0].id;
    // Decided, and resumed, by agents that share nothing but the store.
    let second = make(Script::new([say("done")]));
    second.approvals().decide(id, Decision::approve().by("ada")).await.unwrap();
    let late = first.approvals().decide(id, Decision::reject().by("bob")).await.unwrap_err();
    assert_eq!(late, AgentError::ApprovalConflict { approval: id.to_string(), by: Some("ada".to_owned()) });
    assert_eq!(late.code(), "TOOLWRIGHT_APPROVAL_CONFLICT");
    assert_eq!(second.thread("t").resume().await.unwrap().text, "done");
    let unknown = ApprovalId::of(&ThreadId::new("t").unwrap(), &toolwright_core::CallId::new("c9"), 1);
    for wrong in [unknown, ApprovalId::new("nonsense")] {
        assert_eq!(first.approvals().decide(&wrong, Decision::approve()).await.unwrap_err().code(), "TOOLWRIGHT_APPROVAL_NOT_FOUND");
    }
}

// rule: sdk-tools 13.4/6
#[tokio::test]
async fn a_deny_rule_made_while_the_call_waited_still_denies() {
    let store = MemoryStore::new();
    let log = Log::default();
    let make = |script, deny: bool| {
        let rule = says("rule", move |_| Ok(if deny { Say::Deny(None) } else { Say::Pass }));
        agent(script)
            .tool(logged_with(Tool::new("act", "Acts.").needs_approval(), &log))
            .at(At::Rule, rule)
            .store(store.clone())
            .build()
            .unwrap()
    };
    let waits = make(Script::new([calls([("c1", "act", "{}")])]), false).thread("t").send("go").await.unwrap();
    let later = make(Script::new([say("done")]), true);
    later.approvals().decide(&waits.pending[0].id, Decision::approve_with(r#"{"n":2}"#)).await.unwrap();
    let reply = later.thread("t").resume().await.unwrap();
    assert_eq!((failure(&reply).0, log.len()), (ToolFailureKind::Denied, 0));
}

#[tokio::test]
async fn what_wrote_a_call_may_want_it_confirmed_unless_it_only_reads() {
    for (tool, asks) in [
        (echo("act"), true),
        (Tool::new("act", "Reads.").read_only().run_json(|args, _| async move { Ok::<_, ToolError>(args) }).unwrap(), false),
    ] {
        let mut item = call_item("c1", "act", "{}");
        item.ask = Some("the model is not sure".to_owned());
        let agent =
            agent(Script::new([items_of(vec![Item::ToolCall(item)], FinishReason::ToolCalls), say("done")])).tool(tool).build().unwrap();
        let reply = agent.send("go").await.unwrap();
        assert_eq!(reply.pending.first().and_then(|pending| pending.reason.as_deref()), asks.then_some("the model is not sure"));
    }
}

#[tokio::test]
async fn a_direct_call_passes_the_same_gate() {
    let log = Log::default();
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
    let build = |tool: Tool| toolwright_runtime::Agent::<toolwright_runtime::NoResolvers>::builder().tool(tool);
    let strict = logged_with(Tool::from_schema("act", "Acts.", schema).unwrap(), &log);

    let denies = build(strict.clone()).at(At::Rule, says("no", |_| Ok(Say::Deny(None)))).build_without_model().unwrap();
    let kind = |outcome: Option<Outcome>| match outcome {
        Some(Outcome::Failed { failure }) => Some(failure.kind.clone()),
        _ => None,
    };
    assert_eq!(kind(denies.invoke("act", r#"{"n":1}"#).await.unwrap().outcome), Some(ToolFailureKind::Denied));
    let free = build(strict).build_without_model().unwrap();
    assert_eq!(kind(free.invoke("act", r#"{"n":[]}"#).await.unwrap().outcome), Some(ToolFailureKind::Validation));
    assert_eq!(kind(free.invoke("nothing", "{}").await.unwrap().outcome), Some(ToolFailureKind::NotFound));
    assert_eq!(log.len(), 0);
    let (events, reply) = collect(free.new_thread().invoke_stream("act", r#"{"n":"1"}"#)).await;
    let reply = reply.unwrap();
    let Some(Outcome::Done { output }) = &reply.outcome else { panic!("{reply:?}") };
    assert_eq!((output.shown(), reply.finish_reason, reply.messages.len()), (json!({ "n": 1 }), FinishReason::Stop, 0));
    assert_eq!(events.iter().map(|event| event.kind.type_name()).collect::<Vec<_>>(), ["run.start", "tool.start", "tool.done", "run.done"]);
    // The model of such an agent says what is missing.
    assert!(free.send("go").await.unwrap_err().to_string().contains("no model is set"));
}

#[tokio::test]
async fn a_direct_call_that_was_approved_ends_without_asking_a_model() {
    let log = Log::default();
    let script = Script::new([]);
    let agent = agent(script.clone()).tool(logged_with(Tool::new("act", "Acts.").needs_approval(), &log)).build().unwrap();
    let waits = agent.thread("t").invoke("act", r#"{"n":1}"#).await.unwrap();
    assert_eq!((waits.finish_reason, waits.pending.len()), (FinishReason::AwaitingApproval, 1));
    agent.approvals().decide(&waits.pending[0].id, Decision::approve()).await.unwrap();
    let reply = agent.thread("t").resume().await.unwrap();
    assert_eq!((reply.finish_reason, log.len(), script.times()), (FinishReason::Stop, 1, 0));
    assert!(matches!(reply.outcome, Some(Outcome::Done { .. })), "{:?}", reply.outcome);
}

// rule: sdk-tools 2.2/1
#[test]
fn tools_may_come_one_by_one_as_a_list_or_as_any_iterator() {
    use toolwright_tool::{tool, tools};
    /// Adds.
    #[tool]
    fn add(a: i64, b: i64) -> i64 {
        a + b
    }
    let more: std::collections::BTreeMap<&str, Tool> = [("x", echo("x")), ("y", echo("y"))].into();
    let agent =
        agent(Script::new([])).tool(echo("one")).tools(tools![add]).tools(vec![echo("two")]).tools(more.into_values()).build().unwrap();
    assert_eq!(agent.tools().iter().map(|tool| tool.name().as_str()).collect::<Vec<_>>(), ["one", "add", "two", "x", "y"]);
}

// rule: sdk-tools 2.2/10
#[tokio::test]
async fn a_model_is_sent_name_description_and_parameters() {
    let schema = json!({ "type": "object", "properties": { "b": { "type": "string" }, "a": { "type": "integer" } }, "required": ["b"] });
    let tool =
        Tool::from_schema("act", "Acts.", schema.clone()).unwrap().run_json(|args, _| async move { Ok::<_, ToolError>(args) }).unwrap();
    let script = Script::new([say("done")]);
    let agent = agent(script.clone()).tool(echo("first")).tool(tool).build().unwrap();
    agent.send("go").await.unwrap();
    let sent: Vec<Value> = script.asked()[0].tools.iter().map(|spec| spec.definition()).collect();
    assert_eq!(sent[1], json!({ "type": "function", "function": { "name": "act", "description": "Acts.", "parameters": schema } }));
    assert_eq!(sent[1]["function"]["parameters"].to_string(), schema.to_string(), "properties keep their order");
    assert_eq!(sent[0]["function"]["name"], "first");
}

#[tokio::test]
async fn a_guardrail_that_throws_ends_the_run() {
    let agent = agent(Script::new([calls([("c1", "act", "{}")])]))
        .tool(echo("act"))
        .at(At::Guardrail, says("scan", |_| Err(ToolError::new("no model"))))
        .build()
        .unwrap();
    let thread = agent.thread("t");
    let error = thread.send("go").await.unwrap_err();
    assert!(matches!(&error, AgentError::Run { failure, .. } if failure.message.contains("`scan` failed: no model")), "{error}");
    thread.history().await.unwrap().check_balance().unwrap();
}
