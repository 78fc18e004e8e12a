//! Permission rules within the gate, and their audit.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod common;

use std::sync::{Arc, Mutex};

use common::*;
use serde_json::{Value, json};
use toolwright_core::policy::{ArgMatch, PermissionMode, RuleSet, allow, any, ask, deny, glob};
use toolwright_core::{Decision, Event, EventKind, FinishReason, RecordBody, ThreadId, Timestamp, ToolFailureKind};
use toolwright_runtime::{Agent, AgentBuilder, AgentError, FixedClock, MemoryStore, PermissionEntry, Reply, RuleWhen};
use toolwright_tool::{ApprovalOutcome, Identity, Tool, ToolError};

/// What was told, each time with who the run acts for.
type Told<T> = Arc<Mutex<Vec<(T, Option<String>)>>>;

/// A model that calls `tool` once, as `c1`, and is done.
fn one_call(tool: &str, arguments: &str) -> Arc<Script> {
    Script::new([calls([("c1", tool, arguments)]), say("done")])
}

fn own(outcome: ApprovalOutcome, log: &Log) -> Tool {
    logged_with(
        Tool::new("act", "Acts.").needs_approval_if(move |_| {
            let outcome = outcome.clone();
            async move { Ok(outcome) }
        }),
        log,
    )
}

/// What became of one call of `act` under these rules: `ran`, `denied: why`, `asked: why`.
async fn becomes(rules: Vec<toolwright_core::policy::Rule>, says: ApprovalOutcome) -> String {
    let log = Log::default();
    let agent = agent(one_call("act", r#"{"x":"1"}"#)).tool(own(says, &log)).rules(rules).build().unwrap();
    let reply = go(&agent).await.1.unwrap();
    told(&reply, &log)
}

fn told(reply: &Reply, log: &Log) -> String {
    if let Some(pending) = reply.pending.first() {
        assert_eq!((reply.finish_reason.clone(), log.len()), (FinishReason::AwaitingApproval, 0));
        return format!("asked: {}", pending.reason.clone().unwrap_or_default());
    }
    if log.all() == ["body c1"] {
        return "ran".to_owned();
    }
    assert_eq!(log.len(), 0);
    let result = &results(&reply.messages)[0];
    assert_eq!(result.failed, Some(ToolFailureKind::Denied));
    format!("denied: {}", value(result)["reason"].as_str().unwrap_or_default())
}

fn no() -> ApprovalOutcome {
    ApprovalOutcome::Deny(Some("the tool says no".to_owned()))
}

// rule: sdk-tools 12.2/1, sdk-tools 12.2/2, sdk-tools 12.2/3, sdk-tools 12.2/4
// rule: sdk-tools 3.1/4, sdk-tools 3.1/6, sdk-tools 36/4
#[tokio::test]
async fn the_first_rule_that_matches_decides_and_the_tool_keeps_its_refusal() {
    use ApprovalOutcome::{Ask, Run};
    let r = || ("act", "why");
    assert_eq!(becomes(vec![deny("act").reason(r().1), allow("*")], Run).await, "denied: why");
    assert_eq!(becomes(vec![allow("*"), deny("act")], Ask).await, "ran");
    assert_eq!(becomes(vec![ask("act").reason("why"), deny("*")], Run).await, "asked: why");
    // An allow takes back the tool's ask, never its refusal; an ask replaces its ask, never its refusal.
    assert_eq!(becomes(vec![allow("act")], no()).await, "denied: the tool says no");
    assert_eq!(becomes(vec![ask("act")], no()).await, "denied: the tool says no");
    assert_eq!(becomes(vec![ask("act").reason("the rule's")], Ask).await, "asked: the rule's");
    // Where none matches, the tool has its say.
    assert_eq!(becomes(vec![deny("other"), deny("act").argument("x", "^2$")], Ask).await, "asked: ");
    assert_eq!(becomes(vec![deny("other")], Run).await, "ran");
    assert_eq!(becomes(vec![deny(glob("a?t")).argument("x", ArgMatch::equals("1"))], Run).await, "denied: ");
}

// rule: sdk-tools 12.2/5, sdk-tools 36/5
// rule: sdk-tools 3.2/2
#[tokio::test]
async fn code_of_a_rule_sees_what_would_run_and_a_failure_is_never_a_yes() {
    let log = Log::default();
    let seen: Told<Value> = Arc::default();
    let kept = Arc::clone(&seen);
    let builder = agent(one_call("act", r#"{"x":"1"}"#))
        .tool(logged("act", &log))
        .at(At::Hook, says("rewrites", |_| Ok(Say::Rewrite(json!({ "x": "2" })))))
        .rules([deny("act").when(move |call| {
            kept.lock().unwrap().push((call.args().clone(), call.principal().map(|who| who.id.clone())));
            async move { Ok(call.args()["x"] == "2" && call.tool() == "act" && call.context().call_id().as_str() == "c1") }
        })]);
    let agent = builder.build().unwrap();
    let reply = agent.new_thread().principal(Identity::new("ada")).send("go").await.unwrap();
    assert_eq!((told(&reply, &log).as_str(), seen.lock().unwrap().len()), ("denied: ", 1));
    assert_eq!(seen.lock().unwrap()[0], (json!({ "x": "2" }), Some("ada".to_owned())));

    for panics in [false, true] {
        let log = Log::default();
        let rules = [
            allow("act").when(move |_| async move {
                assert!(!panics, "the code is broken");
                Err(ToolError::new("the database is away").named("DbError"))
            }),
            allow("act"),
        ];
        let agent = common::agent(one_call("act", "{}")).tool(logged("act", &log)).rules(rules).build().unwrap();
        let reply = go(&agent).await.1.unwrap();
        let (kind, error, message) = failure(&reply);
        assert_eq!((kind, log.len(), reply.text.as_str()), (ToolFailureKind::Execution, 0, "done"));
        assert_eq!(error, if panics { "PanicError" } else { "DbError" });
        assert!(message.contains("the condition of permission rule 0 failed, so the call does not run"), "{message}");
    }
}

fn listening(builder: AgentBuilder, entries: &Told<PermissionEntry>) -> AgentBuilder {
    let kept = Arc::clone(entries);
    builder.on_permission_decision(move |entry, who| kept.lock().unwrap().push((entry.clone(), who.map(|who| who.id.clone()))))
}

fn decisions(events: &[Event]) -> Vec<Value> {
    let events = events.iter().filter(|event| matches!(event.kind, EventKind::PermissionDecision { .. }));
    events.map(|event| serde_json::to_value(event).unwrap()).collect()
}

// rule: sdk-tools 12.3/1, sdk-tools 12.3/2, sdk-tools 12.3/4, sdk-tools 12.3/5, sdk-tools 12.3/6
// rule: sdk-tools 34/3, sdk-tools 4.1/7
#[tokio::test]
async fn every_call_that_was_judged_has_one_entry_and_the_principal_is_in_none() {
    let entries = Arc::default();
    let log = Log::default();
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
    let strict =
        Tool::from_schema("strict", "Strict.", schema).unwrap().run_json(|args, _| async move { Ok::<_, ToolError>(args) }).unwrap();
    let script = Script::new([
        calls([
            ("c1", "act", r#"{"x":5}"#),
            ("c2", "pay", "{}"),
            ("c3", "strict", r#"{"n":"many"}"#),
            ("c4", "hooked", "{}"),
            ("c5", "plain", "{}"),
            ("c6", "nothing", "{}"),
            ("c7", "ask_me", "{}"),
        ]),
        say("done"),
    ]);
    let builder = agent(script)
        .tools(["act", "pay", "hooked", "plain", "ask_me"].map(|name| logged(name, &log)))
        .tool(strict)
        .at(
            At::Hook,
            says("guard", |call| Ok(if call.cx.tool_name() == "hooked" { Say::Deny(Some("not today".to_owned())) } else { Say::Pass })),
        )
        .rules([
            allow("other"),
            deny("pay").reason("no money"),
            allow("act"),
            ask("ask_me").reason("sure?"),
            deny("plain").shadow().reason("soon"),
        ]);
    let agent = listening(builder, &entries).build().unwrap();
    let thread = agent.thread("t").principal(Identity::new("secret-principal"));
    let (events, reply) = collect(thread.stream("go")).await;
    assert_eq!(reply.unwrap().finish_reason, FinishReason::AwaitingApproval);

    let entries = entries.lock().unwrap();
    let told: Vec<Value> = entries.iter().map(|(entry, _)| serde_json::to_value(entry).unwrap()).collect();
    let one = |call: &str| -> Value {
        let of: Vec<&Value> = told.iter().filter(|entry| entry["toolCallId"] == call).collect();
        assert!(of.len() <= 1, "{call}: {of:?}");
        let mut entry = of.first().map_or(Value::Null, |entry| (*entry).clone());
        if let Some(fields) = entry.as_object_mut() {
            assert!(fields.remove("at").is_some_and(|at| at.as_str().is_some_and(|at| at.ends_with('Z'))));
        }
        entry
    };
    assert_eq!(
        one("c1"),
        json!({ "toolName": "act", "toolCallId": "c1", "decision": "allow", "rule": { "index": 2 }, "args": { "x": 5 } })
    );
    assert_eq!(
        one("c2"),
        json!({ "toolName": "pay", "toolCallId": "c2", "decision": "deny", "rule": { "index": 1, "reason": "no money" }, "args": {}, "reason": "no money" })
    );
    assert_eq!(one("c3"), Value::Null);
    assert_eq!(
        one("c4"),
        json!({ "toolName": "hooked", "toolCallId": "c4", "decision": "deny", "hook": "guard", "args": {}, "reason": "not today" })
    );
    assert_eq!(
        one("c5"),
        json!({ "toolName": "plain", "toolCallId": "c5", "decision": "default", "args": {}, "shadow": [{ "index": 4, "decision": "deny", "reason": "soon" }] })
    );
    assert_eq!(one("c6"), json!({ "toolName": "nothing", "toolCallId": "c6", "decision": "default", "args": {} }));
    assert_eq!(
        one("c7"),
        json!({ "toolName": "ask_me", "toolCallId": "c7", "decision": "ask", "rule": { "index": 3, "reason": "sure?" }, "args": {} })
    );
    assert!(entries.iter().all(|(_, who)| who.as_deref() == Some("secret-principal")));

    // The same entries are events, each between its call's start and its outcome.
    let events_told = decisions(&events);
    assert_eq!(events_told.len(), told.len());
    for (event, entry) in events_told.iter().zip(&told) {
        for key in ["toolName", "toolCallId", "decision", "rule", "args", "hook", "reason", "mode", "shadow"] {
            assert_eq!(event.get(key), entry.get(key), "{key}");
        }
    }
    let short = brief(&events);
    let place = |wanted: &str| short.iter().position(|line| line == wanted).unwrap_or_else(|| panic!("{wanted} in {short:?}"));
    assert_eq!(short[place("tool.start c1") + 1], "permission.decision");
    assert_eq!(short[place("tool.start c7") + 1..place("tool.start c7") + 3], ["permission.decision", "approval.requested c7"]);
    assert!(!serde_json::to_string(&events).unwrap().contains("secret-principal"));
    assert!(log.all().contains(&"body c5".to_owned()), "a rule in shadow decides nothing");
}

// rule: sdk-tools 12.3/5
#[tokio::test]
async fn where_nobody_asked_for_it_there_is_no_audit() {
    let log = Log::default();
    let quiet = agent(one_call("act", "{}")).tool(logged("act", &log)).build().unwrap();
    assert!(decisions(&go(&quiet).await.0).is_empty());
    // A callback alone is enough, and one that panics changes nothing.
    let told = agent(one_call("act", "{}")).tool(logged("act", &log)).on_permission_decision(|_, _| panic!("broken")).build().unwrap();
    let (events, reply) = go(&told).await;
    assert_eq!((decisions(&events).len(), reply.unwrap().text.as_str()), (1, "done"));
    assert_eq!(log.len(), 2);
    // A mode other than the default is enough too.
    let planned = agent(one_call("act", "{}")).tool(logged("act", &log)).permission_mode(PermissionMode::AcceptEdits).build().unwrap();
    assert_eq!(decisions(&go(&planned).await.0).len(), 1);
}

// rule: sdk-tools 12.2/6
#[tokio::test]
async fn a_rule_says_how_long_its_question_waits() {
    let tool = || Tool::new("act", "Acts.").needs_approval().run_json(|args, _| async move { Ok::<_, ToolError>(args) }).unwrap();
    let expires = async |rules: Vec<toolwright_core::policy::Rule>| {
        let builder = agent(one_call("act", "{}")).tool(tool()).clock(FixedClock::at(Timestamp(1_000)));
        let agent = builder.approval_ttl(std::time::Duration::from_millis(50)).rules(rules).build().unwrap();
        go(&agent).await.1.unwrap().pending[0].expires_at
    };
    assert_eq!(expires(vec![ask("act").ttl_ms(200)]).await, Some(Timestamp(1_200)));
    assert_eq!(expires(vec![ask("act")]).await, Some(Timestamp(1_050)));
    assert_eq!(expires(Vec::new()).await, Some(Timestamp(1_050)));
}

// rule: sdk-tools 12.3/7
#[tokio::test]
async fn a_question_that_expired_is_told_to_the_audit() {
    let entries = Arc::default();
    let log = Log::default();
    let clock = FixedClock::at(Timestamp(1_000));
    let builder = agent(one_call("act", "{}")).tool(logged("act", &log)).clock(clock.clone()).rules([ask("act").ttl_ms(10)]);
    let agent = listening(builder, &entries).build().unwrap();
    let reply = go(&agent).await.1.unwrap();
    clock.advance(1_000);
    let late = agent.approvals().decide(&reply.pending[0].id, Decision::approve()).await.unwrap_err();
    assert!(matches!(late, AgentError::ApprovalLapsed { .. }), "{late}");
    let (events, reply) = collect(agent.thread(reply.thread_id.as_str()).resume_stream()).await;
    assert_eq!((failure(&reply.unwrap()).0, log.len()), (ToolFailureKind::Denied, 0));
    let told: Vec<String> = entries.lock().unwrap().iter().map(|(entry, _)| entry.decision.to_string()).collect();
    assert_eq!(told, ["ask", "deny"]);
    let again = &decisions(&events)[0];
    assert_eq!(again["decision"], "deny");
    assert!(again["reason"].as_str().unwrap().starts_with("approval expired"), "{again}");
}

// rule: sdk-tools 12.2/10
#[tokio::test]
async fn a_question_that_a_rule_allows_has_no_answer() {
    let question = || {
        Tool::new("ask_question", "Asks.")
            .needs_approval_if(|_| async { Ok(toolwright_tool::ApprovalRequest::question("Which?", &[], true)) })
            .run_json(|_, cx| async move {
                cx.approval().and_then(|approval| approval.note.clone()).map(Value::String).ok_or_else(|| ToolError::new("nobody answered"))
            })
            .unwrap()
    };
    let allowed = agent(one_call("ask_question", "{}")).tool(question()).rules([allow("ask_question")]).build().unwrap();
    assert_eq!(failure(&go(&allowed).await.1.unwrap()).2, "nobody answered");
    let asked = agent(one_call("ask_question", "{}")).tool(question()).rules([ask(any())]).build().unwrap();
    let reply = go(&asked).await.1.unwrap();
    assert_eq!(reply.pending[0].kind.as_str(), "question");
}

#[tokio::test]
async fn a_deny_still_denies_after_an_approval() {
    let log = Log::default();
    let closed = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let seen = Arc::clone(&closed);
    let rules = [
        deny("act").reason("closed meanwhile").when(move |_| {
            let closed = seen.load(std::sync::atomic::Ordering::SeqCst);
            async move { Ok(closed) }
        }),
        ask("act"),
    ];
    let agent = agent(one_call("act", "{}")).tool(logged("act", &log)).rules(rules).build().unwrap();
    let reply = go(&agent).await.1.unwrap();
    agent.approvals().decide(&reply.pending[0].id, Decision::approve()).await.unwrap();
    closed.store(true, std::sync::atomic::Ordering::SeqCst);
    let reply = agent.thread(reply.thread_id.as_str()).resume().await.unwrap();
    assert_eq!(told(&reply, &log), "denied: closed meanwhile");
}

#[tokio::test]
async fn rules_that_were_read_from_data_join_the_others_in_their_order() {
    let log = Log::default();
    let set = RuleSet::from_value(&json!([{ "tools": "act", "action": "deny", "reason": "from the file" }]), "rules.json").unwrap();
    let first = agent(one_call("act", "{}")).tool(logged("act", &log)).rule_set(&set).rules([allow("*")]).build().unwrap();
    assert_eq!(told(&go(&first).await.1.unwrap(), &log), "denied: from the file");
    let last = agent(one_call("act", "{}")).tool(logged("act", &log)).rules([allow("*")]).rule_set(&set).build().unwrap();
    assert_eq!(told(&go(&last).await.1.unwrap(), &log), "ran");
}

#[tokio::test]
async fn bad_rules_are_refused_when_the_agent_is_built() {
    let built: Result<Agent, AgentError> =
        agent(say_script()).rules([deny("get weather"), allow("a").ttl_ms(5), ask("b").argument("x", "(")]).build();
    let error = built.unwrap_err();
    assert_eq!(error.code(), "TOOLWRIGHT_CONFIG_INVALID");
    let text = error.to_string();
    for says in ["the permission rules can't be used: rule 0, `tools`", "rule 1, `ttlMs`", "rule 2, `when.x`: `(` is no regular expression"]
    {
        assert!(text.contains(says), "{text}");
    }
    let foreign = toolwright_core::policy::Predicate(Arc::new(7u8));
    let error = agent(say_script()).rules([deny("a").predicate(foreign)]).build().unwrap_err().to_string();
    assert!(error.contains("rule 0 has code that nobody here can ask; add it with `.when(...)`"), "{error}");
}

fn say_script() -> Arc<Script> {
    Script::new([say("done")])
}

#[tokio::test]
async fn rules_see_the_name_a_tool_is_registered_under() {
    let log = Log::default();
    let agent = agent(one_call("docs__search", "{}")).tool(logged("docs__search", &log)).rules([deny(glob("docs__*"))]).build().unwrap();
    assert_eq!(told(&go(&agent).await.1.unwrap(), &log), "denied: ");
}

#[tokio::test]
async fn the_journal_keeps_what_was_decided() {
    let store = MemoryStore::new();
    let log = Log::default();
    let agent =
        agent(one_call("act", "{}")).tool(logged("act", &log)).store(store.clone()).rules([allow("act").reason("fine")]).build().unwrap();
    agent.thread("t").send("go").await.unwrap();
    let records = journal(&store, &ThreadId::new("t").unwrap()).await;
    let note = records.iter().find_map(|record| match &record.body {
        RecordBody::CallGated { notes, .. } => notes.as_ref().and_then(|notes| notes.permission.clone()),
        _ => None,
    });
    let note = note.unwrap();
    assert_eq!((note.decision.as_str(), note.rule.unwrap().reason.as_deref()), ("allow", Some("fine")));
}
