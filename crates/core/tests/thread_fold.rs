//! The fold of a journal: what fits, what does not, and what this version does not know.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use std::sync::Arc;

use serde_json::{Map, Value, json};
use toolwright_core::args::RepairNote;
use toolwright_core::policy::PermissionMode;
use toolwright_core::{
    AbortReason, Action, ApprovalAsk, ApprovalId, ArgsState, AskKind, Author, BudgetScope, BudgetTrip, CallId, CallItem, CallOpening,
    CallOrigin, Compaction, Decision, Delegation, Drift, Ending, Event, EventKind, Failure, Fingerprint, FinishReason, Folded,
    GuardrailTrip, InputId, InputMode, Item, Message, Outcome, Part, Record, RecordBody, Remember, RewriteNote, RewrittenInput, RunCause,
    RunId, RunLimits, Seq, SideUsage, StepFinish, Thread, ThreadId, Timestamp, ToolFailure, ToolOutput, Usage, Verdict, is_event,
};

fn id() -> ThreadId {
    ThreadId::new("t").unwrap()
}

fn record(seq: u64, body: RecordBody) -> Record {
    Record { seq: Seq(seq), at: Timestamp(seq as i64), run: Some(RunId::new("r1")), body }
}

fn item(call: &str) -> CallItem {
    CallItem {
        call_id: CallId::new(call),
        provider_id: Some(call.to_owned()),
        name: "act".to_owned(),
        arguments: r#"{"n":1}"#.to_owned(),
        state: ArgsState::Complete,
        ask: None,
        provider_data: None,
    }
}

fn opening(call: &str) -> CallOpening {
    CallOpening { call: CallId::new(call), tool: "act".into(), origin: CallOrigin::Model, parent: None, arguments: None, sequential: false }
}

fn opened() -> RecordBody {
    RecordBody::ThreadOpened { thread: id(), version: 1, agent: "agent".into(), parent: None }
}

fn started() -> RecordBody {
    RecordBody::RunStarted {
        cause: RunCause::Input,
        agent: "agent".into(),
        limits: RunLimits::default(),
        fingerprint: None,
        instructions: None,
        added: None,
        principal: None,
        metadata: Map::new(),
        budgets: None,
        checks_input: false,
    }
}

fn added() -> RecordBody {
    RecordBody::MessageAdded { message: Arc::new(Message::human("go")) }
}

fn replied(calls: &[&str]) -> RecordBody {
    let items = calls.iter().map(|call| Item::ToolCall(item(call))).collect();
    RecordBody::ModelReplied {
        step: 1,
        message: Arc::new(Message { author: Author::SideA, items, metadata: Map::new() }),
        calls: calls.iter().map(|call| opening(call)).collect(),
        finish: FinishReason::ToolCalls,
        usage: None,
        model: "m".into(),
        rewrote: Vec::new(),
        side: None,
    }
}

fn gated(call: &str, verdict: Verdict) -> RecordBody {
    RecordBody::CallGated {
        call: CallId::new(call),
        tool: "act".into(),
        arguments: Some(r#"{"n":1}"#.into()),
        sha256: Some("abc".into()),
        repairs: Vec::new(),
        resumed: false,
        parent: None,
        read_only: false,
        notes: None,
        verdict,
    }
}

fn ask(call: &str) -> Verdict {
    Verdict::Ask(ApprovalAsk::new(ApprovalId::of(&id(), &CallId::new(call), 1)))
}

fn executing(call: &str, attempt: u32) -> RecordBody {
    RecordBody::CallExecuting { call: CallId::new(call), tool: "act".into(), attempt, arguments: None }
}

fn done(call: &str) -> RecordBody {
    RecordBody::CallDone {
        call: CallId::new(call),
        tool: "act".into(),
        outcome: Outcome::done(ToolOutput::json(json!(1))),
        duration_ms: Some(1),
        replaced_by: None,
        fatal: None,
        notes: None,
    }
}

fn run_done() -> RecordBody {
    RecordBody::RunDone { finish: FinishReason::Stop, text: "".into(), usage: None, model_calls: 1, ending: None, input_waits: false }
}

fn decided(call: &str, approval: ApprovalId, sha256: &str) -> RecordBody {
    RecordBody::CallDecided { approval, call: CallId::new(call), sha256: sha256.into(), decision: Decision::approve() }
}

fn fold(bodies: Vec<RecordBody>) -> Thread {
    let mut thread = Thread::new();
    for (at, body) in bodies.into_iter().enumerate() {
        thread.apply(&record(at as u64 + 1, body)).unwrap();
    }
    thread
}

/// The journal so far, and how the thread refuses the next record.
fn refuses(bodies: Vec<RecordBody>, next: RecordBody) -> String {
    let mut thread = fold(bodies);
    let seen = |thread: &Thread| {
        let calls: Vec<_> = thread.open_calls().collect();
        format!("{:?} {:?} {calls:?} {:?}", thread.next(), thread.transcript(), thread.queued())
    };
    let (head, before) = (thread.head(), seen(&thread));
    let misfit = thread.apply(&record(head.0 + 1, next)).unwrap_err();
    assert_eq!(thread.head(), head, "nothing changes");
    assert_eq!(seen(&thread), before, "nothing changes");
    assert!(misfit.to_string().starts_with(&format!("record {} ({}) does not fit the journal: ", head.0 + 1, misfit.kind)), "{misfit}");
    misfit.problem
}

#[test]
fn a_record_that_does_not_fit_is_refused_and_changes_nothing() {
    let run = || vec![opened(), started(), added()];
    let step = || [run(), vec![RecordBody::StepStarted { step: 1 }]].concat();
    let turn = || [step(), vec![replied(&["a", "b"])]].concat();
    let asks = || [turn(), vec![gated("a", ask("a"))]].concat();
    let runs = || [turn(), vec![gated("a", Verdict::Run), executing("a", 1)]].concat();
    let approval = |call: &str| ApprovalId::of(&id(), &CallId::new(call), 1);
    let gated_without_arguments = |call: &str, verdict: Verdict| match gated(call, verdict) {
        RecordBody::CallGated { call, tool, repairs, resumed, parent, read_only, verdict, notes, .. } => {
            RecordBody::CallGated { call, tool, arguments: None, sha256: None, repairs, resumed, parent, read_only, notes, verdict }
        }
        other => other,
    };
    // A call waits, another stands before the gate, and no run is active: more than a run leaves behind, but a journal may say it.
    let paused = || {
        let ends = [RecordBody::StepDone { step: 1, finish: StepFinish::AwaitingApproval, usage: None }, run_done()];
        [asks(), ends.to_vec()].concat()
    };
    let end_run = || Verdict::EndRun { ending: Ending::Aborted { reason: AbortReason::abort("x") } };
    let fatal = |call: &str| match done(call) {
        RecordBody::CallDone { call, tool, outcome, duration_ms, replaced_by, .. } => {
            let fatal = Some(Failure { name: "E".to_owned(), message: "it failed".to_owned(), code: None });
            RecordBody::CallDone { call, tool, outcome, duration_ms, replaced_by, fatal, notes: None }
        }
        other => other,
    };
    let queued = |id: &str| RecordBody::InputQueued {
        id: InputId::new(id),
        mode: InputMode::Queue,
        messages: Vec::new(),
        only: None,
        immediate: false,
    };
    for (journal, next, problem) in [
        (run(), opened(), "a thread is opened once, by its first record"),
        (run(), started(), "another run has not ended"),
        (turn(), added(), "a message may not stand between calls and their results"),
        (step(), RecordBody::StepStarted { step: 2 }, "the last step has not ended"),
        (vec![opened()], RecordBody::StepStarted { step: 1 }, "no run is active"),
        (run(), replied(&["a"]), "that step is not open"),
        (turn(), replied(&["c"]), "the model replied before"),
        (step(), RecordBody::StepDone { step: 2, finish: StepFinish::Stop, usage: None }, "that step is not open"),
        (turn(), gated("c", Verdict::Run), "no such call is open"),
        (runs(), gated("a", Verdict::Run), "the call does not stand before the gate"),
        (turn(), executing("a", 1), "attempt 1 does not follow where the call stands"),
        (runs(), executing("a", 3), "attempt 3 does not follow where the call stands"),
        (runs(), executing("a", 1), "attempt 1 does not follow where the call stands"),
        (turn(), decided("a", approval("a"), "abc"), "the call waits for no decision"),
        (asks(), decided("a", approval("b"), "abc"), "the call waits for the decision t:1:a"),
        (asks(), decided("a", approval("a"), "abd"), "the decision was about other arguments"),
        ([runs(), vec![done("a")]].concat(), done("a"), "the call has its result"),
        (turn(), done("c"), "no such call is open"),
        (turn(), run_done(), "a step has not ended"),
        (vec![opened()], run_done(), "no run is active"),
        (vec![opened()], RecordBody::RunCancelled { reason: AbortReason::abort("x") }, "no run is active"),
        (turn(), gated_without_arguments("a", ask("a")), "a decision is asked for without arguments"),
        (paused(), gated("b", end_run()), "no run is active"),
        (paused(), fatal("b"), "no run is active"),
        (vec![opened(), queued("i")], RecordBody::InputApplied { id: InputId::new("i"), step: 1 }, "no run is active"),
        (run(), RecordBody::CallOpened(opening("a")), ""),
    ] {
        if problem.is_empty() {
            let mut thread = fold(journal);
            thread.apply(&record(thread.head().0 + 1, next)).unwrap();
            continue;
        }
        assert_eq!(refuses(journal, next), problem);
    }
    let unopened = RecordBody::ModelReplied {
        step: 1,
        message: Arc::new(Message {
            author: Author::SideA,
            items: vec![Item::ToolCall(item("a")), Item::ToolCall(item("b"))],
            metadata: Map::new(),
        }),
        calls: vec![opening("a")],
        finish: FinishReason::ToolCalls,
        usage: None,
        model: "m".into(),
        rewrote: Vec::new(),
        side: None,
    };
    assert_eq!(refuses(step(), unopened), "a call of the message is not opened");
    assert_eq!(refuses(step(), replied(&["a", "a"])), "the call a is not the next new one of the message");
}

#[test]
fn a_journal_has_no_gap_and_no_repeat() {
    let mut thread = fold(vec![opened(), started()]);
    for seq in [1, 2, 4] {
        let misfit = thread.apply(&record(seq, added())).unwrap_err();
        assert_eq!(misfit.problem, "the journal ends at 2, so 3 is expected");
    }
    thread.apply(&record(3, added())).unwrap();
}

#[test]
fn what_is_outstanding_is_the_same_however_often_it_is_asked() {
    let thread =
        fold(vec![opened(), started(), added(), RecordBody::StepStarted { step: 1 }, replied(&["a", "b"]), gated("a", Verdict::Run)]);
    let actions = thread.next();
    assert_eq!(actions, thread.next());
    assert_eq!(actions, [Action::Execute { call: CallId::new("a"), begun: false }, Action::Gate(CallId::new("b"))]);
    let keys: std::collections::HashSet<_> = actions.iter().map(Action::key).collect();
    assert_eq!(keys.len(), actions.len());
}

#[test]
fn a_thread_with_a_record_of_an_unknown_kind_can_be_read_and_does_not_move() {
    let later: Record =
        serde_json::from_value(json!({ "seq": 4, "at": 9, "run": "r1", "kind": "call.teleported", "where": { "x": 1 } })).unwrap();
    let mut thread = fold(vec![opened(), started(), added()]);
    assert!(!thread.next().is_empty());
    thread.apply(&later).unwrap();
    assert_eq!((thread.blocked_by(), thread.next()), (Some("call.teleported"), vec![]));
    // What follows is kept as it comes, and changes nothing; what was before is still there.
    thread.apply(&record(5, RecordBody::StepStarted { step: 7 })).unwrap();
    assert_eq!((thread.head(), thread.transcript().len(), thread.next()), (Seq(5), 1, vec![]));
    assert_eq!(
        serde_json::to_value(&later).unwrap(),
        json!({ "seq": 4, "at": 9, "run": "r1", "kind": "call.teleported", "where": { "x": 1 } })
    );
    assert!(toolwright_core::project(&later).is_empty());
}

#[test]
fn a_thread_of_a_later_layout_does_not_move() {
    let later = RecordBody::ThreadOpened { thread: id(), version: 2, agent: "agent".into(), parent: None };
    let thread = fold(vec![later, started(), added()]);
    assert_eq!((thread.blocked_by(), thread.next()), (Some("thread.opened of version 2"), vec![]));
}

fn every_record() -> Vec<RecordBody> {
    let failure =
        Failure { name: "ModelError".to_owned(), message: "no".to_owned(), code: Some("TOOLWRIGHT_PROVIDER_REQUEST_FAILED".to_owned()) };
    let trip = GuardrailTrip {
        name: "pii".to_owned(),
        kind: "tool".to_owned(),
        reason: "an address".to_owned(),
        tool_name: Some("act".to_owned()),
        info: None,
    };
    let usage =
        Usage { input_tokens: 1, output_tokens: 2, cached_input_tokens: Some(0), cost_usd: Some(0.5), estimated: true, ..Usage::default() };
    let repaired = RecordBody::CallGated {
        call: CallId::new("a"),
        tool: "act".into(),
        arguments: None,
        sha256: None,
        repairs: vec![RepairNote { path: "n".to_owned(), from: Some(json!("1")), to: Some(json!(1)) }],
        resumed: true,
        parent: Some(CallId::new("p")),
        read_only: true,
        notes: None,
        verdict: Verdict::EndRun { ending: Ending::Guardrail { trip: trip.clone(), throws: false } },
    };
    let asked = ApprovalAsk {
        kind: AskKind::Question,
        reason: Some("why".to_owned()),
        expires_at: Some(Timestamp(5)),
        detail: Some(json!({ "question": { "text": "?" } })),
        quorum: 2,
        deciders: vec!["ada".to_owned(), "grace".to_owned()],
        once: Some(Remember::Arguments),
        remind_every_ms: Some(60_000),
        ..ApprovalAsk::new(ApprovalId::new("t:1:a"))
    };
    let message = Message {
        author: Author::SideA,
        items: vec![
            Item::text("hi"),
            Item::Reasoning {
                text: "hm".to_owned(),
                signature: Some("s".to_owned()),
                provenance: Some("p/m".to_owned()),
                encrypted: Some(json!([1])),
            },
            Item::ToolCall(CallItem {
                ask: Some("sure?".to_owned()),
                provider_data: Some(json!({ "sig": "x" })),
                state: ArgsState::Truncated,
                ..item("a")
            }),
            Item::Image { image: "data:,".to_owned(), mime_type: None },
            Item::File { data: "data:,".to_owned(), mime_type: "text/plain".to_owned(), filename: Some("f".to_owned()) },
            Item::Opaque { provider: "p".to_owned(), value: json!({ "type": "web_search" }) },
            Item::Unknown(json!({ "type": "hologram", "depth": 3 })),
        ],
        metadata: json!({ "pinned": true }).as_object().unwrap().clone(),
    };
    let output = ToolOutput::of(vec![Part::text("x"), Part::Json { value: json!(null) }, Part::Unknown(json!({ "type": "smell" }))])
        .shown_as(json!("shown"))
        .with_event(EventKind::TextDone { text: "e".to_owned() });
    vec![
        opened(),
        RecordBody::ThreadOpened { thread: id(), version: 1, agent: "a".into(), parent: Some(ThreadId::new("p").unwrap()) },
        started(),
        RecordBody::RunStarted {
            cause: RunCause::from_word("tide"),
            agent: "a".into(),
            limits: RunLimits { max_steps: 3, tool_concurrency: Some(2), max_repeats: None },
            fingerprint: Some(Arc::new(Fingerprint {
                model: "m".to_owned(),
                tools: vec![("t".to_owned(), "00".to_owned())],
                instructions: "11".to_owned(),
            })),
            instructions: Some("Be kind.".into()),
            added: Some("And brief.".into()),
            principal: Some(json!({ "id": "ada" })),
            metadata: json!({ "k": [1] }).as_object().unwrap().clone(),
            budgets: None,
            checks_input: false,
        },
        added(),
        RecordBody::StepStarted { step: 1 },
        RecordBody::ModelReplied {
            step: 1,
            message: Arc::new(message),
            calls: vec![opening("a")],
            finish: FinishReason::ToolCalls,
            usage: Some(usage),
            model: "m".into(),
            rewrote: Vec::new(),
            side: None,
        },
        RecordBody::ModelFailed { step: 1, failure: failure.clone() },
        RecordBody::CallOpened(CallOpening {
            origin: CallOrigin::Client,
            arguments: Some("{}".into()),
            sequential: true,
            parent: Some(CallId::new("p")),
            ..opening("a")
        }),
        gated("a", Verdict::Run),
        gated("a", Verdict::Ask(asked.clone())),
        gated("a", Verdict::Refuse { failure: Arc::new(ToolFailure::denied("act", Some("night".to_owned()))) }),
        gated("a", Verdict::Answer { output: Arc::new(output.clone()) }),
        repaired,
        decided("a", ApprovalId::new("t:1:a"), "abc"),
        RecordBody::CallDecided {
            approval: ApprovalId::new("t:1:a"),
            call: CallId::new("a"),
            sha256: "abc".into(),
            decision: Decision::approve_with(r#"{"n":2}"#).note("ok").by("ada"),
        },
        RecordBody::CallDecided {
            approval: ApprovalId::new("t:1:a"),
            call: CallId::new("a"),
            sha256: "abc".into(),
            decision: Decision { at: Some(Timestamp(6)), ..Decision::complete(output.clone()).always().automatic() },
        },
        RecordBody::RunTakenOver {},
        RecordBody::InputChecked {
            messages: 2,
            rewritten: vec![RewrittenInput { index: 1, text: "[email]".into() }],
            rewrote: vec![RewriteNote { name: "pii".to_owned(), reason: Some("email".to_owned()), info: None }],
            ending: Some(Ending::Budget {
                budget: BudgetTrip { limit: "maxTokens".to_owned(), value: 12.into(), max: 10.into(), scope: BudgetScope::Thread },
                throws: true,
            }),
            side: Some(SideUsage { calls: 2, usage }),
        },
        RecordBody::ReplyWithheld {
            step: 1,
            ending: Ending::Guardrail { trip: trip.clone(), throws: true },
            usage: Some(usage),
            side: None,
        },
        RecordBody::BudgetExceeded {
            budget: BudgetTrip { limit: "maxSteps".to_owned(), value: 3.into(), max: 3.into(), scope: BudgetScope::Run },
            throws: false,
        },
        RecordBody::CallVoted {
            approval: ApprovalId::new("t:1:a"),
            call: CallId::new("a"),
            sha256: "abc".into(),
            decision: Decision::approve().by("ada"),
            votes: 1,
        },
        RecordBody::ApprovalDelegated(Box::new(Delegation {
            call: CallId::new("a"),
            tool: "act".into(),
            arguments: "{}".into(),
            sha256: "abc".into(),
            asked_at: Timestamp(4),
            ask: asked.clone(),
            by: Some("ada".to_owned()),
            note: Some("away".to_owned()),
        })),
        RecordBody::ApprovalReminded { approval: ApprovalId::new("t:1:a"), call: CallId::new("a"), tool: "act".into(), times: 2 },
        executing("a", 1),
        RecordBody::CallExecuting { call: CallId::new("a"), tool: "act".into(), attempt: 2, arguments: Some("{}".into()) },
        done("a"),
        RecordBody::CallDone {
            call: CallId::new("a"),
            tool: "act".into(),
            outcome: Outcome::done(output),
            duration_ms: None,
            replaced_by: Some("hook".to_owned()),
            fatal: Some(failure.clone()),
            notes: None,
        },
        RecordBody::CallDone {
            call: CallId::new("a"),
            tool: "act".into(),
            outcome: Outcome::failed(ToolFailure::not_run("act", "x")),
            duration_ms: None,
            replaced_by: None,
            fatal: None,
            notes: None,
        },
        RecordBody::StepDone { step: 1, finish: StepFinish::from_word("odd"), usage: Some(usage) },
        RecordBody::RunCancelled { reason: AbortReason::timeout("late") },
        run_done(),
        RecordBody::RunDone {
            finish: FinishReason::Error,
            text: "".into(),
            usage: Some(usage),
            model_calls: 3,
            ending: Some(Ending::Error { failure }),
            input_waits: true,
        },
        RecordBody::InputQueued {
            id: InputId::new("i1"),
            mode: InputMode::Steer,
            messages: vec![Arc::new(Message::human("no, the other"))],
            only: Some(RunId::new("r1")),
            immediate: true,
        },
        RecordBody::InputApplied { id: InputId::new("i1"), step: 2 },
        RecordBody::InputReturned { id: InputId::new("i1"), why: "over".into() },
        RecordBody::ContextCompacted(Compaction {
            step: Some(3),
            strategy: "two-phase".into(),
            tokens_before: 9,
            tokens_after: 4,
            context_window: 10,
            threshold_tokens: 8,
            pruned: vec![CallId::new("a")],
            folded: Some(Folded { ranges: vec![(0, 2)], summary: "They spoke.".into() }),
            error: Some("slow".to_owned()),
            prune_only: true,
            usage: Some(usage),
        }),
        RecordBody::AgentDrifted(Drift { model: true, tools_added: vec!["t".to_owned()], ..Drift::default() }),
        RecordBody::PermissionMode { from: PermissionMode::Default, to: PermissionMode::Plan, run_only: true },
        RecordBody::ThreadForked { from: ThreadId::new("source").unwrap(), through: Seq(7) },
        RecordBody::TranscriptReplaced { messages: vec![Arc::new(Message::human("go"))], cleared: Some((id(), 4)) },
        RecordBody::ResultReplaced { call: CallId::new("a"), tool: "act".into(), output: Arc::new(ToolOutput::text("x")) },
        RecordBody::Unknown(json!({ "kind": "call.teleported", "where": { "x": 1 } })),
    ]
}

// rule: sdk-runtime DATA-4
#[test]
fn every_record_survives_being_written_and_read() {
    for body in every_record() {
        let record = record(3, body);
        let text = serde_json::to_string(&record).unwrap();
        let back: Record = serde_json::from_str(&text).unwrap();
        assert_eq!(back, record, "{text}");
        assert_eq!(serde_json::to_string(&back).unwrap(), text);
        // What is absent is left out. Values of the application, of tools and of providers may hold nulls of their own.
        let own = text.replace(r#""value":null"#, "");
        assert!(!own.contains("null"), "{text}");
    }
}

#[test]
fn a_record_of_no_run_names_none() {
    let record = Record { run: None, ..record(1, opened()) };
    assert_eq!(
        serde_json::to_string(&record).unwrap(),
        r#"{"seq":1,"at":1,"kind":"thread.opened","thread":"t","version":1,"agent":"agent"}"#
    );
}

fn every_event() -> Vec<Value> {
    let envelope = |mut fields: Value| {
        let object = fields.as_object_mut().unwrap();
        for (key, value) in json!({ "runId": "r1", "seq": 3, "timestamp": "2026-01-01T00:00:00.007Z", "v": 1 }).as_object().unwrap() {
            object.insert(key.clone(), value.clone());
        }
        fields
    };
    [
        json!({ "type": "run.start", "agentName": "agent" }),
        json!({ "type": "step.start", "step": 1 }),
        json!({ "type": "text.delta", "text": "a" }),
        json!({ "type": "text.done", "text": "a" }),
        json!({ "type": "reasoning.start" }),
        json!({ "type": "reasoning.delta", "text": "a" }),
        json!({ "type": "reasoning.done", "text": "a", "tokens": 3 }),
        json!({ "type": "tool.input.delta", "index": 0, "toolName": "act", "text": "{" }),
        json!({ "type": "tool.start", "toolCallId": "c", "toolName": "act", "args": {}, "repairs": [{ "path": "n", "from": "1", "to": 1 }], "executedBy": "provider", "parentToolCallId": "p" }),
        json!({ "type": "tool.resume", "toolCallId": "c", "toolName": "act", "args": {} }),
        json!({ "type": "tool.partial", "toolCallId": "c", "toolName": "act", "index": 0, "output": null }),
        json!({ "type": "tool.done", "toolCallId": "c", "toolName": "act", "result": null, "durationMs": 4, "replacedByHook": "h" }),
        json!({ "type": "tool.error", "toolCallId": "c", "toolName": "act", "error": { "name": "E", "message": "m", "code": "TOOLWRIGHT_X" }, "durationMs": 4 }),
        json!({ "type": "todo.updated", "todos": [{ "id": "1", "content": "x", "status": "in_progress" }], "counts": { "pending": 0, "in_progress": 1, "completed": 0, "total": 1 }, "toolCallId": "c" }),
        json!({ "type": "approval.requested", "approvalId": "t:1:c", "toolCallId": "c", "toolName": "act", "args": {}, "kind": "question", "question": { "text": "?" }, "expiresAt": "2026-01-01T00:00:00.000Z", "quorum": 2, "deciders": ["ada"] }),
        json!({ "type": "approval.voted", "approvalId": "t:1:c", "toolCallId": "c", "by": "ada", "votes": 1 }),
        json!({ "type": "approval.delegated", "approvalId": "t:1:c", "toolCallId": "c", "to": ["grace"], "by": "ada", "note": "away" }),
        json!({ "type": "approval.reminded", "approvalId": "t:1:c", "toolCallId": "c", "toolName": "act", "times": 2 }),
        json!({ "type": "permission.decision", "toolCallId": "c", "toolName": "act", "decision": "deny", "rule": { "index": 0, "reason": "r" }, "args": {}, "at": "rules", "hook": "h", "reason": "r", "mode": "plan", "shadow": [{ "index": 1, "decision": "ask" }] }),
        json!({ "type": "permission.mode", "from": "default", "to": "acceptEdits", "runOnly": true }),
        json!({ "type": "step.done", "step": 1, "finishReason": "odd", "usage": { "promptTokens": 1, "completionTokens": 2, "totalTokens": 3, "inputTokens": 1, "outputTokens": 2, "estimated": false } }),
        json!({ "type": "error", "error": { "name": "E", "message": "m" } }),
        json!({ "type": "run.done", "finishReason": "aborted", "text": "", "abortReason": { "name": "AbortError", "message": "m" } }),
        json!({ "type": "guardrail.tripped", "name": "g", "kind": "tool", "reason": "r", "toolName": "act" }),
        json!({ "type": "guardrail.rewrote", "name": "g", "kind": "result", "toolName": "act", "toolCallId": "c", "reason": "r", "info": { "category": "pii" } }),
        json!({ "type": "budget.exceeded", "limit": "maxCostUsd", "value": 0.27, "max": 0.25, "scope": "run" }),
        json!({ "type": "input.queued", "id": "i", "text": "and then" }),
        json!({ "type": "input.steered", "id": "i", "text": "no", "mode": "immediate" }),
        json!({ "type": "input.applied", "id": "i", "step": 2 }),
        json!({ "type": "input.returned", "id": "i", "reason": "over" }),
        json!({ "type": "compaction.start", "strategy": "prune", "tokensBefore": 9, "contextWindow": 10, "thresholdTokens": 8, "trigger": "manual" }),
        json!({ "type": "compaction.done", "strategy": "prune", "tokensBefore": 9, "tokensAfter": 4, "prunedToolCallIds": ["c"], "summary": true, "error": { "message": "m" } }),
        json!({ "type": "context.cleared", "sessionId": "t", "messagesCleared": 4 }),
        json!({ "type": "agent.drift", "model": true, "toolsAdded": ["a"], "toolsRemoved": [], "toolsChanged": [], "instructions": false }),
        json!({ "type": "thread.forked", "from": "source", "at": 7 }),
    ]
    .into_iter()
    .map(envelope)
    .collect()
}

// rule: sdk-runtime EV-3, sdk-runtime EV-5, sdk-runtime DATA-4
#[test]
fn every_event_survives_being_read_and_written() {
    let types: Vec<String> = every_event().iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect();
    assert_eq!(types, EventKind::TYPES, "every type is here");
    for value in every_event() {
        assert!(is_event(&value), "{value}");
        let event: Event = serde_json::from_value(value.clone()).unwrap();
        assert!(!matches!(event.kind, EventKind::Unknown(_)), "{value}");
        assert_eq!(serde_json::to_value(&event).unwrap(), value);
        let name = event.kind.type_name().to_owned();
        assert_eq!(
            (event.kind.is_tool_event(), event.kind.is_text_event(), event.kind.is_step_event()),
            (name.starts_with("tool."), name.starts_with("text."), name.starts_with("step."))
        );
    }
}

// rule: sdk-runtime EV-4
// rule: sdk-tools 34/7
#[test]
fn an_event_of_a_later_version_is_kept_and_may_be_ignored() {
    let unknown = json!({ "type": "sub.surfaced", "runId": "r1", "seq": 0, "timestamp": "2026-01-01T00:00:00.000Z", "v": 1, "depth": [1, { "m": null }] });
    let event: Event = serde_json::from_value(unknown.clone()).unwrap();
    assert!(is_event(&unknown) && matches!(event.kind, EventKind::Unknown(_)));
    assert_eq!((event.kind.type_name(), serde_json::to_value(&event).unwrap()), ("sub.surfaced", unknown));
    // A new optional field of a known type is no new version.
    let mut known = every_event()[1].clone();
    known["mood"] = json!("calm");
    assert!(matches!(serde_json::from_value::<Event>(known).unwrap().kind, EventKind::StepStart { step: 1 }));
}

// rule: sdk-runtime EV-5
#[test]
fn what_is_no_event_is_told_from_one() {
    let good = every_event()[1].clone();
    let without = |key: &str| {
        let mut event = good.clone();
        event.as_object_mut().unwrap().remove(key);
        event
    };
    let with = |key: &str, value: Value| {
        let mut event = good.clone();
        event[key] = value;
        event
    };
    for key in ["type", "runId", "seq", "timestamp", "v", "step"] {
        assert!(!is_event(&without(key)), "without {key}");
    }
    for (key, value) in [
        ("type", json!(1)),
        ("seq", json!(-1)),
        ("seq", json!("0")),
        ("timestamp", json!("yesterday")),
        ("v", json!(2)),
        ("v", json!("1")),
        ("step", json!("x")),
    ] {
        assert!(!is_event(&with(key, value.clone())), "{key} {value}");
    }
    for value in [json!(null), json!([]), json!("run.start")] {
        assert!(!is_event(&value));
    }
}

// rule: sdk-runtime DATA-1, sdk-runtime DATA-2
#[test]
fn text_and_parts_become_one_message_and_messages_pass_unchanged() {
    use toolwright_core::Input;
    let text: Input = "hi".into();
    assert_eq!(text.0, [Message::human("hi")]);
    let items = vec![Item::text("look: "), Item::Image { image: "data:,".to_owned(), mime_type: None }, Item::text("there")];
    let parts: Input = items.clone().into();
    assert_eq!(parts.0, [Message { author: Author::Human, items, metadata: Map::new() }]);
    assert_eq!(parts.0[0].text_of(), "look: there");
    let messages = vec![Message::human("a"), Message::text(Author::SideA, "b"), Message::human("c")];
    let whole: Input = messages.clone().into();
    assert_eq!(whole.0, messages);
}

#[test]
fn an_id_with_control_characters_is_replaced_by_one_of_ours() {
    let named = |id: &str| Item::ToolCall(CallItem { provider_id: Some(id.to_owned()), ..item("") });
    let mut items = vec![named("toolu_1"), named("a\u{0}b"), named("a\nb"), named("é:1")];
    Thread::new().assign_ids(3, &mut items);
    let ids: Vec<_> = items.iter().map(|item| if let Item::ToolCall(call) = item { call.call_id.as_str() } else { "" }).collect();
    assert_eq!(ids, ["toolu_1", "call_3_2", "call_3_3", "é:1"]);
}

type Change<'a> = &'a dyn Fn(ApprovalAsk) -> ApprovalAsk;

#[test]
fn an_approval_brings_calls_before_the_gate_that_wait_for_one_persons_word_in_time() {
    let with = |call: &str, change: &dyn Fn(ApprovalAsk) -> ApprovalAsk| {
        gated(call, Verdict::Ask(change(ApprovalAsk::new(ApprovalId::of(&id(), &CallId::new(call), 1)))))
    };
    let always = Decision { at: Some(Timestamp(50)), ..Decision::approve().by("ada").always() };
    let plain = Decision { at: Some(Timestamp(50)), ..Decision::approve().by("ada") };
    let once = |ask| ApprovalAsk { once: Some(Remember::Tool), ..ask };
    let cases: [(Decision, Change<'_>, Change<'_>, bool); 8] = [
        (always.clone(), &|ask| ask, &|ask| ask, true),
        (plain.clone(), &|ask| ask, &|ask| ask, false),
        (plain.clone(), &once, &once, true),
        // Its time was over when the other was approved, or was not.
        (always.clone(), &|ask| ask, &|ask| ApprovalAsk { expires_at: Some(Timestamp(50)), ..ask }, false),
        (always.clone(), &|ask| ask, &|ask| ApprovalAsk { expires_at: Some(Timestamp(51)), ..ask }, true),
        // Others decide, or more.
        (always.clone(), &|ask| ask, &|ask| ApprovalAsk { deciders: vec!["bob".to_owned()], ..ask }, false),
        (always, &|ask| ask, &|ask| ApprovalAsk { quorum: 2, ..ask }, false),
        (plain, &once, &|ask| once(ApprovalAsk { quorum: 2, ..ask }), false),
    ];
    for (at, (decision, first, second, covered)) in cases.into_iter().enumerate() {
        let step = RecordBody::StepStarted { step: 1 };
        let approval = ApprovalId::of(&id(), &CallId::new("a"), 1);
        let decided = RecordBody::CallDecided { approval, call: CallId::new("a"), sha256: "abc".into(), decision };
        let thread = fold(vec![opened(), started(), added(), step, replied(&["a", "b"]), with("a", first), with("b", second), decided]);
        let waits = thread.call(&CallId::new("b")).unwrap();
        assert_eq!(waits.covered.is_some(), covered, "case {at}");
        let by = waits.covered.as_ref().map(|answer| (answer.by.as_deref(), answer.at, answer.remember.clone()));
        assert!(by.is_none_or(|by| by == (Some("ada"), Some(Timestamp(50)), None)));
    }
}
