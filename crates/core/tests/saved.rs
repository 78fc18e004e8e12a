//! Snapshots of the fold: for journals of any valid run, what was saved and completed is what the whole journal gives.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "clippy.toml allows these in test functions only, and the helpers beside them are as much a test"
)]

use std::collections::VecDeque;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use toolwright_core::policy::PermissionMode;
use toolwright_core::{
    AbortReason, Action, ApprovalAsk, ApprovalId, ArgsState, Author, CallId, CallItem, CallOpening, CallOrigin, CallState, Decision,
    Failure, FinishReason, InputId, InputMode, Item, Message, Outcome, Record, RecordBody, RunCause, RunId, RunLimits, Saved, Seq, Thread,
    ThreadId, Timestamp, ToolFailure, ToolFailureKind, ToolOutput, Usage, Verdict, sha256_hex,
};

/// Part of every text that a snapshot may not have: messages, results, summaries, who a run acts for.
const SENTINEL: &str = "BODY-OF";

/// Makes a journal from choices: mostly what the thread asks for next, sometimes something else that may come.
struct Journal {
    thread: Thread,
    records: Vec<Arc<Record>>,
    /// Records that have to follow at once.
    forced: VecDeque<RecordBody>,
    count: u32,
    runs: u32,
    refused: u32,
}

fn body(value: Value) -> RecordBody {
    serde_json::from_value(value).unwrap()
}

fn gated(call: &CallId, verdict: Verdict) -> RecordBody {
    let arguments: Arc<str> = r#"{"n":1}"#.into();
    RecordBody::CallGated {
        call: call.clone(),
        tool: "act".into(),
        sha256: Some(sha256_hex(arguments.as_bytes()).into()),
        arguments: Some(arguments),
        repairs: Vec::new(),
        resumed: false,
        parent: None,
        read_only: false,
        notes: None,
        verdict,
    }
}

fn call_item(id: &str) -> Item {
    Item::ToolCall(CallItem {
        call_id: CallId::new(id),
        provider_id: Some(format!("p-{id}")),
        name: "act".to_owned(),
        // Mostly alike, so that turns repeat; never so that a snapshot may have it.
        arguments: format!("{{\"a\":\"{SENTINEL}-arguments\"}}"),
        state: ArgsState::Complete,
        ask: None,
        provider_data: None,
    })
}

impl Journal {
    fn new() -> Self {
        let mut journal = Self { thread: Thread::new(), records: Vec::new(), forced: VecDeque::new(), count: 0, runs: 0, refused: 0 };
        let thread = ThreadId::new("t").unwrap();
        assert!(journal.add(RecordBody::ThreadOpened { thread, version: 1, agent: "agent".into(), parent: None }));
        journal
    }

    /// Whether the record fits. One that does not changes nothing.
    fn add(&mut self, body: RecordBody) -> bool {
        let mut run = self.thread.run().map(|run| run.id.clone());
        if matches!(body, RecordBody::RunStarted { .. }) {
            self.runs += 1;
            run = Some(RunId::new(format!("run-{}", self.runs)));
        }
        let record = Record { seq: self.thread.head().next(), at: Timestamp(i64::from(self.count)), run, body };
        self.count += 1;
        // Only what a journal can hold: a store keeps records as text.
        let record: Record = serde_json::from_str(&serde_json::to_string(&record).unwrap()).unwrap();
        let before = view(&self.thread);
        match self.thread.apply(&record) {
            Ok(()) => {
                self.records.push(Arc::new(record));
                true
            }
            Err(misfit) => {
                assert_eq!(view(&self.thread), before, "{misfit} changed something");
                self.refused += 1;
                false
            }
        }
    }

    fn text(&self, what: &str) -> String {
        format!("{SENTINEL}-{what}-{}", self.count)
    }

    fn outcome(&self, call: &CallId, choice: u8) -> Outcome {
        match choice % 8 {
            // A few that are alike, so that turns repeat.
            0..=3 => Outcome::done(ToolOutput::text(format!("{SENTINEL}-result-{}", choice % 2))),
            4 => Outcome::done(ToolOutput::json(json!({ "long": self.text("result").repeat(20), "n": [1.5, u64::MAX] }))),
            5 => Outcome::done(ToolOutput::default()),
            kind => {
                let mut failure = ToolFailure::new(ToolFailureKind::Execution, "act", &self.text("failure"));
                failure.tool_call_id = Some(call.to_string());
                failure.retries_left = (kind == 6).then_some(1);
                Outcome::failed(failure)
            }
        }
    }

    fn done(&self, call: &CallId, choice: u8) -> RecordBody {
        let fatal = (choice >= 250).then(|| Failure { name: "E".to_owned(), message: "it failed".to_owned(), code: None });
        let outcome = self.outcome(call, choice);
        RecordBody::CallDone { call: call.clone(), tool: "act".into(), outcome, duration_ms: None, replaced_by: None, fatal, notes: None }
    }

    fn ask(&self, call: &CallId) -> Verdict {
        let approval = ApprovalId::new(format!("t:{}:{call}", self.count));
        Verdict::Ask(ApprovalAsk::new(approval))
    }

    fn started(&self, cause: &RunCause, choice: u8) -> RecordBody {
        let mut limits = serde_json::to_value(RunLimits::default()).unwrap();
        limits["maxSteps"] = json!(1 + choice % 12);
        limits["toolConcurrency"] = [json!(null), json!(1), json!(2)][usize::from(choice % 3)].clone();
        let mut started = json!({
            "kind": "run.started", "cause": cause.as_str(), "agent": "agent", "limits": limits,
            "principal": { "sub": self.text("principal") }, "metadata": { "m": self.text("metadata") }, "added": self.text("added"),
        });
        if choice.is_multiple_of(2) {
            started["fingerprint"] = json!({ "model": format!("m{choice}"), "tools": [["act", "1"]], "instructions": "hash" });
            started["instructions"] = json!(self.text("instructions"));
        }
        body(started)
    }

    fn human(&self) -> Arc<Message> {
        let mut message = Message::human(self.text("input"));
        message.metadata.insert("m".to_owned(), json!(self.text("metadata")));
        Arc::new(message)
    }

    fn replied(&self, step: u32, choice: u8) -> RecordBody {
        let calls: Vec<String> = (0..[0, 1, 1, 2, 3][usize::from(choice % 5)]).map(|at| format!("call-{}-{at}", self.count)).collect();
        let mut items = vec![Item::text(self.text("reply"))];
        items.extend(calls.iter().map(|call| call_item(call)));
        let opening = |call: &String| CallOpening {
            call: CallId::new(call.as_str()),
            tool: "act".into(),
            origin: CallOrigin::Model,
            parent: None,
            arguments: None,
            sequential: choice >= 200,
        };
        let finish = if calls.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls };
        let usage =
            (!choice.is_multiple_of(3)).then(|| Usage { input_tokens: 10 + u64::from(choice), cost_usd: Some(0.1), ..Usage::default() });
        let message = Arc::new(Message { author: Author::SideA, items, metadata: Map::new() });
        let calls = calls.iter().map(opening).collect();
        RecordBody::ModelReplied { step, message, calls, finish, usage, model: "m".into(), rewrote: Vec::new(), side: None }
    }

    /// What the thread asks for.
    fn follow(&mut self, which: u8, choice: u8) -> Option<RecordBody> {
        let actions = self.thread.next();
        if actions.is_empty() {
            return self.wake(choice);
        }
        let action = &actions[usize::from(which) % actions.len()];
        match action {
            Action::StartRun(cause) => Some(self.started(cause, choice)),
            Action::AskModel { step } if choice < 240 => Some(self.replied(*step, choice)),
            Action::AskModel { step } => {
                let failure = Failure { name: "E".to_owned(), message: "no answer".to_owned(), code: None };
                Some(RecordBody::ModelFailed { step: *step, failure })
            }
            Action::Gate(call) => Some(match choice % 16 {
                0..=7 => gated(call, Verdict::Run),
                8..=11 => gated(call, self.ask(call)),
                12 => {
                    self.forced.push_back(self.done(call, choice));
                    let failure = Arc::new(ToolFailure::denied("act", Some(self.text("reason"))));
                    gated(call, Verdict::Refuse { failure })
                }
                13 => {
                    self.forced.push_back(self.done(call, choice));
                    gated(call, Verdict::Answer { output: Arc::new(ToolOutput::text(self.text("answer"))) })
                }
                14 => {
                    let ending = serde_json::from_value(json!({ "ending": "aborted", "reason": { "name": "E", "message": "enough" } }));
                    gated(call, Verdict::EndRun { ending: ending.unwrap() })
                }
                _ => self.done(call, choice),
            }),
            Action::Execute { call, begun } => {
                let attempt = self.thread.call(call).map_or(1, |call| call.attempts + 1);
                let executing = || RecordBody::CallExecuting { call: call.clone(), tool: "act".into(), attempt, arguments: None };
                Some(match (begun, choice % 16) {
                    (false, 0..=14) | (true, 0) => executing(),
                    // A body that may have run: a person decides.
                    (true, 1) => gated(call, self.ask(call)),
                    (true, 2) => RecordBody::CallOpened(CallOpening {
                        call: CallId::new(format!("{call}:{}", self.count)),
                        tool: "act".into(),
                        origin: CallOrigin::Script,
                        parent: Some(call.clone()),
                        arguments: Some(self.text("arguments").into()),
                        sequential: false,
                    }),
                    _ => self.done(call, choice),
                })
            }
            other => self.thread.record_for(other),
        }
    }

    /// What comes to a thread that rests.
    fn wake(&mut self, choice: u8) -> Option<RecordBody> {
        if let Some((call, ask)) = self.thread.pending().next() {
            let decision = if choice.is_multiple_of(3) { Decision::reject() } else { Decision::approve().note(self.text("note")) };
            let sha256 = call.gated.as_ref()?.sha256.clone();
            return Some(RecordBody::CallDecided { approval: ask.approval.clone(), call: call.id.clone(), sha256, decision });
        }
        let cause = if choice.is_multiple_of(8) { RunCause::Invocation } else { RunCause::Input };
        if cause == RunCause::Invocation {
            let call = CallId::new(format!("direct-{}", self.count));
            let arguments = Some(self.text("arguments").into());
            let (tool, origin) = ("act".into(), CallOrigin::Client);
            self.forced.push_back(RecordBody::CallOpened(CallOpening { call, tool, origin, parent: None, arguments, sequential: false }));
        } else {
            self.forced.push_back(RecordBody::MessageAdded { message: self.human() });
        }
        Some(self.started(&cause, choice))
    }

    /// Results that stand in the transcript.
    fn results(&self) -> Vec<CallId> {
        self.thread.transcript().iter().flat_map(|message| message.results()).map(|result| result.call_id.clone()).collect()
    }

    /// The indexes at which the transcript can be cut.
    fn cuts(&self) -> Vec<usize> {
        let messages: Vec<_> = self.thread.transcript().iter().collect();
        (0..=messages.len()).filter(|at| messages.get(*at).is_none_or(|message| message.results().next().is_none())).collect()
    }

    fn compacted(&self, which: u8, choice: u8) -> RecordBody {
        let results = self.results();
        let pruned: Vec<_> = results.iter().enumerate().filter(|(at, _)| (choice >> (at % 8)) & 1 == 1).map(|(_, call)| call).collect();
        let cuts = self.cuts();
        let mut compaction = json!({
            "kind": "context.compacted", "step": self.thread.step() + 1, "strategy": "test", "tokensBefore": 9, "tokensAfter": 5,
            "contextWindow": 10, "thresholdTokens": 8, "pruned": pruned, "pruneOnly": choice > 200,
        });
        let at = |choice: u8| cuts[usize::from(choice) % cuts.len()];
        let (from, to) = (at(which).min(at(choice)), at(which).max(at(choice)));
        if from < to && !which.is_multiple_of(4) {
            compaction["folded"] = json!({ "ranges": [[from, to]], "summary": self.text("summary") });
        }
        body(compaction)
    }

    /// Something that may come at any time; whether it fits, the thread says.
    fn disturb(&mut self, which: u8, choice: u8) -> Option<RecordBody> {
        Some(match which % 13 {
            0 | 1 => {
                let only = (choice.is_multiple_of(3)).then(|| self.thread.run().map(|run| run.id.clone())).flatten();
                let mode = if choice.is_multiple_of(2) { InputMode::Queue } else { InputMode::Steer };
                let messages = (0..=choice % 3).map(|_| self.human()).collect();
                RecordBody::InputQueued {
                    id: InputId::new(format!("i-{}", self.count)),
                    mode,
                    messages,
                    only,
                    immediate: choice.is_multiple_of(5),
                }
            }
            2 => RecordBody::RunCancelled { reason: AbortReason::abort("stop") },
            3..=5 => self.compacted(choice, which.wrapping_mul(37) ^ choice),
            12 => {
                let to = PermissionMode::ALL[usize::from(choice) % 4];
                RecordBody::PermissionMode { from: PermissionMode::Default, to, run_only: choice.is_multiple_of(3) }
            }
            6 => RecordBody::ThreadForked { from: ThreadId::new("other").unwrap(), through: self.thread.head() },
            7 => {
                let messages: Vec<_> = self.thread.transcript().iter().skip(self.cuts()[0]).cloned().collect();
                let keep = self.cuts().get(usize::from(choice) % self.cuts().len()).copied().unwrap_or(0);
                let mut messages: Vec<_> = messages.into_iter().take(keep).collect();
                messages.push(self.human());
                RecordBody::TranscriptReplaced { messages, cleared: None }
            }
            8 => {
                let results = self.results();
                let call = results.get(usize::from(choice) % results.len().max(1))?.clone();
                let output = Arc::new(ToolOutput::text(self.text("replaced")));
                RecordBody::ResultReplaced { call, tool: "act".into(), output }
            }
            9 => RecordBody::MessageAdded { message: self.human() },
            10 => {
                // A history brought along, with a call and its result.
                let id = if choice.is_multiple_of(2) { format!("brought-{}", self.count) } else { "brought".to_owned() };
                let result = json!({ "author": "tool", "items": [
                    { "type": "tool-result", "callId": id, "toolName": "act", "parts": [{ "type": "text", "text": self.text("brought") }] },
                ]});
                let result: Message = serde_json::from_value(result).unwrap();
                self.forced.push_back(RecordBody::MessageAdded { message: Arc::new(result) });
                let message = Message { author: Author::SideA, items: vec![call_item(&id)], metadata: Map::new() };
                RecordBody::MessageAdded { message: Arc::new(message) }
            }
            _ => {
                // A decision, or a result, that comes while others move.
                let open: Vec<_> = self.thread.open_calls().map(|call| (call.id.clone(), call.state.clone(), call.gated.clone())).collect();
                let (call, state, gated) = open.get(usize::from(choice) % open.len().max(1))?.clone();
                match (state, gated) {
                    (CallState::Asking(ask), Some(gated)) => {
                        let sha256 = gated.sha256;
                        RecordBody::CallDecided { approval: ask.approval, call, sha256, decision: Decision::approve() }
                    }
                    _ => self.done(&call, choice),
                }
            }
        })
    }

    fn take(&mut self, (kind, which, choice): (u8, u8, u8)) {
        let next = if let Some(forced) = self.forced.pop_front() {
            Some(forced)
        } else if kind < 40 {
            self.disturb(which, choice)
        } else {
            self.follow(which, choice)
        };
        if let Some(next) = next {
            self.add(next);
        }
    }

    fn made(choices: &[(u8, u8, u8)]) -> Self {
        let mut journal = Self::new();
        for choice in choices {
            journal.take(*choice);
        }
        journal
    }
}

/// Everything that can be seen of a thread.
fn view(thread: &Thread) -> Vec<(&'static str, String)> {
    let run = thread.run().map(|run| {
        let limits = serde_json::to_string(&run.limits).unwrap();
        let words = format!("{:?} {:?} {:?} {:?} {limits} {:?}", run.id, run.cause, run.agent, run.since, run.added);
        format!("{words} {:?} {:?} {:?} {:?} {:?}", run.principal, run.metadata, run.usage, run.model_calls, run.ending)
    });
    vec![
        ("id", format!("{:?}", thread.id())),
        ("head", format!("{:?}", thread.head())),
        ("transcript", serde_json::to_string(&thread.transcript().iter().collect::<Vec<_>>()).unwrap()),
        ("run", format!("{run:?}")),
        ("last run", format!("{:?}", thread.last_run())),
        ("last results", format!("{:?}", thread.last_results().collect::<Vec<_>>())),
        ("queued", format!("{:?}", thread.queued())),
        ("pending", format!("{:?}", thread.pending().collect::<Vec<_>>())),
        ("open calls", format!("{:?}", thread.open_calls().collect::<Vec<_>>())),
        ("fingerprint", format!("{:?}", thread.fingerprint())),
        ("instructions", format!("{:?}", thread.instructions())),
        ("steps", format!("{} {} {}", thread.step(), thread.steps_taken(), thread.compacted_for())),
        ("counts", format!("{} {}", thread.calls_in_run("act"), thread.retries_in_run("act"))),
        ("what is next", format!("{:?} {}", thread.next(), thread.can_go_on())),
        ("what is saved", format!("{:?}", thread.save())),
        ("permission mode", format!("{:?} {:?}", thread.permission_mode(), thread.mode_to_go_on())),
        ("blocked by", format!("{:?}", thread.blocked_by())),
    ]
}

/// Only the records that the saved fold asks for.
fn asked_for(saved: &Saved, records: &[Arc<Record>]) -> Vec<Arc<Record>> {
    let positions = saved.positions();
    assert!(positions.is_sorted_by(|a, b| a < b), "positions ascend: {positions:?}");
    assert!(positions.iter().all(|at| *at > Seq(0) && *at <= saved.head()), "positions are in the journal: {positions:?}");
    positions.iter().map(|at| Arc::clone(&records[at.0 as usize - 1])).collect()
}

fn same(what: &str, found: &Thread, expected: &[(&'static str, String)]) {
    for ((name, found), (_, expected)) in view(found).iter().zip(expected) {
        assert_eq!(found, expected, "{what}: {name}");
    }
}

fn choices(length: std::ops::Range<usize>) -> impl Strategy<Value = Vec<(u8, u8, u8)>> {
    prop::collection::vec(any::<(u8, u8, u8)>(), length)
}

/// `PROPTEST_CASES` asks for more.
fn config(cases: u32) -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(cases);
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) }
}

proptest! {
    #![proptest_config(config(64))]

    #[test]
    fn a_completed_fold_is_the_whole_one(choices in choices(1..120)) {
        let journal = Journal::made(&choices);
        let mut whole = Thread::new();
        let mut views = vec![view(&whole)];
        let mut saved = Vec::new();
        for record in &journal.records {
            whole.apply(record).unwrap();
            views.push(view(&whole));
            if let Some(text) = whole.save() {
                prop_assert!(!text.contains(SENTINEL), "a snapshot has a body: {text}");
                saved.push((whole.head().0 as usize, text));
            }
        }
        for (at, text) in saved {
            let read = Saved::read(&text).unwrap();
            prop_assert_eq!(read.head().0 as usize, at);
            let records = asked_for(&read, &journal.records);
            let mut thread = read.complete(&records).unwrap_or_else(|error| panic!("the fold at {at}: {error}\n{text}"));
            same(&format!("the fold at {at}"), &thread, &views[at]);
            for record in &journal.records[at..] {
                thread.apply(record).unwrap_or_else(|misfit| panic!("from the fold at {at} on: {misfit}"));
                let now = thread.head().0 as usize;
                // Closely at first, then at the end.
                if now <= at + 6 || now == journal.records.len() {
                    same(&format!("from the fold at {at} on, at {now}"), &thread, &views[now]);
                }
            }
        }
    }

    #[test]
    fn a_damaged_or_foreign_fold_panics_nobody(
        own in choices(20..80),
        foreign in choices(20..80),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<prop::sample::Index>()), 24),
    ) {
        let (own, foreign) = (Journal::made(&own), Journal::made(&foreign));
        let Some(text) = last_saved(&own.records) else { return Ok(()) };
        let value: Value = serde_json::from_str(&text).unwrap();
        for (place, how, other) in cuts {
            let damaged = match how % 4 {
                0 => text.chars().take(place.index(text.chars().count())).collect(),
                1 => {
                    let mut bytes = text.clone().into_bytes();
                    let at = place.index(bytes.len());
                    bytes[at] = b"0123456789[]{}\",:ntx"[other.index(20)];
                    String::from_utf8_lossy(&bytes).into_owned()
                }
                2 => {
                    let mut value = value.clone();
                    let field = value.as_object().unwrap().keys().nth(place.index(value.as_object().unwrap().len())).unwrap().clone();
                    value.as_object_mut().unwrap().remove(&field);
                    value.to_string()
                }
                _ => {
                    let mut value = value.clone();
                    let mut numbers = Vec::new();
                    number_places(&value, String::new(), &mut numbers);
                    if let Some(number) = numbers.get(place.index(numbers.len().max(1))).and_then(|place| value.pointer_mut(place)) {
                        *number = [json!(0), json!(1), json!(u64::MAX), json!(-1), json!(other.index(90)), json!(null)][other.index(6)].clone();
                    }
                    value.to_string()
                }
            };
            // Over its own journal, one that is short, and another's.
            for records in [&own.records[..], &own.records[..other.index(own.records.len())], &foreign.records[..]] {
                let Ok(saved) = Saved::read(&damaged) else { break };
                drop(saved.positions());
                let Ok(mut thread) = saved.complete(records) else { continue };
                // What can't be told from a sound one is none the less safe to hold.
                drop((view(&thread), thread.transcript().check_balance()));
                for record in own.records.iter().chain(&foreign.records) {
                    drop(thread.apply(record));
                    for action in thread.next() {
                        drop(thread.record_for(&action));
                    }
                }
            }
        }
    }
}

/// The last fold that can be saved.
fn last_saved(records: &[Arc<Record>]) -> Option<String> {
    let mut thread = Thread::new();
    let mut last = None;
    for record in records {
        thread.apply(record).unwrap();
        last = thread.save().or(last);
    }
    last
}

fn number_places(value: &Value, at: String, out: &mut Vec<String>) {
    match value {
        Value::Number(_) => out.push(at),
        Value::Array(items) => items.iter().enumerate().for_each(|(index, item)| number_places(item, format!("{at}/{index}"), out)),
        Value::Object(fields) => {
            for (key, field) in fields {
                number_places(field, format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), out);
            }
        }
        _ => {}
    }
}

/// A journal of a finished run with a result in it, and the fold at its end.
fn finished() -> (Vec<Arc<Record>>, Value) {
    let mut journal = Journal::new();
    assert!(journal.add(journal.started(&RunCause::Input, 10)));
    assert!(journal.add(RecordBody::MessageAdded { message: journal.human() }));
    assert!(journal.add(RecordBody::StepStarted { step: 1 }));
    let replied = journal.replied(1, 1);
    assert!(journal.add(replied));
    while journal.thread.run().is_some() {
        let next = journal.follow(0, 35).unwrap();
        assert!(journal.add(next));
    }
    let text = journal.thread.save().unwrap();
    (journal.records, serde_json::from_str(&text).unwrap())
}

#[test]
fn a_fold_that_does_not_fit_its_journal_is_refused() {
    let (records, sound) = finished();
    let complete = |value: &Value, records: &[Arc<Record>]| -> Result<(), String> {
        let saved = Saved::read(&value.to_string()).map_err(|error| error.to_string())?;
        saved.complete(records).map(drop).map_err(|error| error.to_string())
    };
    complete(&sound, &records).unwrap();
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut value = sound.clone();
        change(&mut value);
        complete(&value, &records).expect_err(&value.to_string())
    };
    let error = changed(&|value| value["version"] = json!(99));
    assert!(error.contains("layout is 99"), "{error}");
    for text in ["", "null", "[]", "{}", "{\"version\":1}", "\u{0}", "{\"version\":1"] {
        let error = Saved::read(text).unwrap_err().to_string();
        assert!(error.starts_with("the saved fold can't be used: "), "{error}");
    }
    // A record that is not there, and one that is of another kind.
    let missing: Vec<_> = records.iter().filter(|record| !matches!(record.body, RecordBody::CallDone { .. })).cloned().collect();
    let error = complete(&sound, &missing).unwrap_err();
    assert!(error.contains("is missing"), "{error}");
    let error = changed(&|value| value["origins"][0] = json!({ "record": 1 }));
    assert!(error.contains("record 1 is not of the kind"), "{error}");
    for origin in [json!({ "part": [3, 0] }), json!({ "summary": 3 }), json!({ "results": [{ "at": 3, "call": "x" }] })] {
        changed(&|value| value["origins"][0] = origin.clone());
    }
    changed(&|value| value["queued"] = json!([["i", 3]]));
    changed(&|value| value["last_results"] = json!([[3, "x"]]));
    changed(&|value| value["last_run"]["since"] = json!(1));
    // A transcript whose calls and results are not paired would be sent to a model.
    for index in [1, 2] {
        let error = changed(&|value| drop(value["origins"].as_array_mut().unwrap().remove(index)));
        assert!(error.contains("not balanced"), "{error}");
    }
}

#[test]
fn a_thread_in_the_middle_of_a_turn_is_not_saved() {
    let mut journal = Journal::new();
    assert!(journal.add(journal.started(&RunCause::Input, 10)));
    assert!(journal.add(RecordBody::MessageAdded { message: journal.human() }));
    assert!(journal.thread.save().is_some());
    assert!(journal.add(RecordBody::StepStarted { step: 1 }));
    assert!(journal.thread.save().is_some());
    let replied = journal.replied(1, 1);
    assert!(journal.add(replied));
    while !journal.thread.open_calls().any(|call| call.result().is_some()) && journal.thread.open_calls().next().is_some() {
        assert_eq!(journal.thread.save(), None);
        let next = journal.follow(0, 35).unwrap();
        assert!(journal.add(next));
    }
    assert!(journal.thread.save().is_some());
    assert!(journal.add(body(json!({ "kind": "of.another.version" }))));
    assert_eq!(journal.thread.save(), None);
}

#[test]
fn the_journals_have_what_they_should_have() {
    // Choices by a plain counter: enough of them to meet everything.
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    let (mut kinds, mut refused, mut saved, mut records) = (std::collections::BTreeMap::<String, u32>::new(), 0, 0, 0);
    for _ in 0..60 {
        let choices: Vec<_> = (0..100).map(|_| (next(), next(), next())).collect();
        let journal = Journal::made(&choices);
        refused += journal.refused;
        let mut thread = Thread::new();
        for record in &journal.records {
            thread.apply(record).unwrap();
            records += 1;
            saved += u32::from(thread.save().is_some());
            let kind = serde_json::to_value(&record.body).unwrap()["kind"].as_str().unwrap().to_owned();
            *kinds.entry(kind).or_default() += 1;
        }
    }
    println!("{records} records, {saved} of them with a snapshot, {refused} refused: {kinds:?}");
    for kind in [
        "run.started",
        "message.added",
        "step.started",
        "model.replied",
        "model.failed",
        "call.opened",
        "call.gated",
        "call.decided",
        "call.executing",
        "call.done",
        "step.done",
        "run.cancelled",
        "run.done",
        "input.queued",
        "input.applied",
        "input.returned",
        "context.compacted",
        "thread.forked",
        "transcript.replaced",
        "result.replaced",
    ] {
        assert!(kinds.get(kind).is_some_and(|count| *count >= 10), "{kind}: {kinds:?}");
    }
    assert!(saved * 5 > records, "{saved} of {records}");
}
