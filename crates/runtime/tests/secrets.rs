//! Secrets: what may leave a run, who gets a variable, and how a thread's are kept.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod common;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use common::*;
use serde_json::{Value, json};
use toolwright_core::{
    ApprovalId, ArgsState, Decision, EventKind, FinishReason, Item, Message, Outcome, Part, ToolFailureKind, ToolOutput,
};
use toolwright_runtime::{AgentBuilder, EnvType, ForkPatch, MemoryStore, ModelError, ModelEvent, Shelf, Store};
use toolwright_tool::{EnvSource, Identity, Tool, ToolContext, ToolError};

const SECRET: &str = "s3cr3t/with \"odd\" +bits";
/// A part of it long enough to give it away, in each encoding that the tests use.
const PARTS: [&str; 5] = ["cr3t/with", "cr3t%2Fwith", "637233742f", "czNjcjN0L3dpdG", "dd\\\" +bits"];
const KEY: &str = "a key of sixteen and more";

fn base64() -> String {
    // The secret's bytes with the standard alphabet, made elsewhere.
    "czNjcjN0L3dpdGggIm9kZCIgK2JpdHM=".to_owned()
}

fn hex() -> String {
    SECRET.bytes().fold(String::new(), |mut out, byte| {
        write!(out, "{byte:02x}").unwrap();
        out
    })
}

fn in_all_ways() -> String {
    format!("{SECRET} {} {} {} s3cr3t%2Fwith%20%22odd%22%20%2Bbits", base64(), hex(), serde_json::to_string(SECRET).unwrap())
}

fn clean(what: &str, text: &str) {
    for part in PARTS {
        assert!(!text.contains(part), "{what} holds {part}: {text}");
    }
}

fn with_secret(builder: AgentBuilder) -> AgentBuilder {
    builder.secret("KEY", SECRET)
}

/// Everything that is logged, as text.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<String>>);

impl tracing::field::Visit for Logged {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        writeln!(self.0.lock().unwrap(), "{}={value:?}", field.name()).unwrap();
    }
}

impl tracing::Subscriber for Logged {
    fn enabled(&self, _metadata: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        span.record(&mut self.clone());
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _span: &tracing::span::Id, values: &tracing::span::Record<'_>) {
        values.record(&mut self.clone());
    }
    fn record_follows_from(&self, _span: &tracing::span::Id, _follows: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut self.clone());
    }
    fn enter(&self, _span: &tracing::span::Id) {}
    fn exit(&self, _span: &tracing::span::Id) {}
}

// rule: standard-agents ENV-12
// rule: standard-agents TOL-10
#[tokio::test]
async fn no_registered_secret_leaves_a_run() {
    let logged = Logged::default();
    let _guard = tracing::subscriber::set_default(logged.clone());
    let store = MemoryStore::new();
    let leak = Tool::new("leak", "Gives a secret away.")
        .run_json(|_args: Value, cx: ToolContext| {
            cx.show(json!({ "so far": in_all_ways(), SECRET: 1 }));
            async {
                let output = ToolOutput::json(json!({ "text": in_all_ways(), SECRET: [SECRET] }));
                Ok::<_, ToolError>(output.with(Part::text(in_all_ways())).shown_as(json!(SECRET)))
            }
        })
        .unwrap();
    let panics = Tool::new("panics", "Panics.")
        .run_json(|_args: Value, _cx: ToolContext| async {
            assert!(SECRET.is_empty(), "at {SECRET}");
            Ok::<_, ToolError>(Value::Null)
        })
        .unwrap();
    let cut = failing("cut", ToolError::new(format!("{}{SECRET}", "x".repeat(1970))).named(SECRET));
    let snapshots = streaming(Tool::new("stream", "Streams."), vec![json!(SECRET), json!([base64()])]);
    let said: Vec<ModelEvent> = in_all_ways()
        .as_bytes()
        .chunks(3)
        .flat_map(|piece| {
            let piece = String::from_utf8(piece.to_vec()).unwrap();
            let arguments = piece.clone();
            [
                ModelEvent::ReasoningDelta(piece.clone()),
                ModelEvent::TextDelta(piece),
                ModelEvent::CallDelta { index: 0, name: Some("leak".to_owned()), arguments },
            ]
        })
        .collect();
    let items = vec![
        Item::Reasoning { text: in_all_ways(), signature: None, provenance: None, encrypted: None },
        Item::text(in_all_ways()),
        Item::ToolCall(call_item("1", "leak", "{}")),
        Item::ToolCall(call_item("2", "panics", "{}")),
        Item::ToolCall(call_item("3", "cut", "{}")),
        Item::ToolCall(call_item("4", "stream", "{}")),
        Item::ToolCall(call_item("5", SECRET, "{}")),
    ];
    let first = [said, vec![ModelEvent::Done(reply(items, FinishReason::ToolCalls))]].concat();
    let fails = fails(ModelError::new("test", &format!("no: {SECRET}")));
    let script = Script::new([stream_of(first), fails]);
    let builder = with_secret(agent(Arc::clone(&script))).instructions(format!("Mind {SECRET}.")).store(store.clone());
    let agent = builder.tools([leak, panics, cut, snapshots]).build().unwrap();
    let mut principal = Identity::new("kim");
    principal.claims.insert("token".to_owned(), json!(SECRET));
    let mut message = Message::human(in_all_ways());
    message.metadata.insert("note".to_owned(), json!(SECRET));
    let thread = agent.thread("t").principal(principal).metadata(json!({ "m": SECRET }).as_object().unwrap().clone());
    let (events, ended) = collect(thread.instructions(in_all_ways()).stream(message)).await;

    let error = ended.unwrap_err();
    assert!(error.to_string().contains("[redacted:KEY]"), "{error}");
    clean("the error", &format!("{error} {error:?}"));
    let events: Vec<String> = events.iter().map(|event| serde_json::to_string(event).unwrap()).collect();
    clean("an event", &events.join("\n"));
    let joined = |kind: &str| -> String {
        let of_kind = events.iter().map(|event| serde_json::from_str::<Value>(event).unwrap()).filter(|event| event["type"] == kind);
        of_kind.map(|event| event["text"].as_str().unwrap().to_owned()).collect()
    };
    for kind in ["text.delta", "reasoning.delta", "tool.input.delta"] {
        clean(kind, &joined(kind));
        assert!(joined(kind).starts_with("[redacted:KEY] [redacted:KEY]M= [redacted:KEY] "), "{kind}: {}", joined(kind));
    }
    assert!(events.iter().any(|event| event.contains("tool.partial") && event.contains("[redacted:KEY]")));
    let records = journal(&store, &"t".parse_thread()).await;
    let journal: Vec<String> = records.iter().map(|record| serde_json::to_string(record).unwrap()).collect();
    clean("the journal", &journal.join("\n"));
    assert!(journal.iter().any(|record| record.contains("call.done") && record.contains("[redacted:KEY]")));
    for request in script.asked() {
        clean("a request", &format!("{:?} {:?}", request.instructions, request.messages));
        clean("a request", &serde_json::to_string(&request.messages.iter().collect::<Vec<_>>()).unwrap());
    }
    assert_eq!(script.times(), 2);
    clean("the log", &logged.0.lock().unwrap());
}

async fn journal_text(store: &MemoryStore, thread: &str) -> String {
    let records = journal(store, &thread.parse_thread()).await;
    records.iter().map(|record| serde_json::to_string(record).unwrap() + "\n").collect()
}

trait ParseThread {
    fn parse_thread(&self) -> toolwright_core::ThreadId;
}

impl ParseThread for &str {
    fn parse_thread(&self) -> toolwright_core::ThreadId {
        toolwright_core::ThreadId::new(*self).unwrap()
    }
}

// rule: sdk-tools 36/15
#[tokio::test]
async fn an_argument_that_holds_a_secret_is_denied_and_never_seen() {
    let (log, store) = (Log::default(), MemoryStore::new());
    let arguments = json!({ "url": format!("https://x.test/?k={}", base64()), "n": 1 }).to_string();
    let script = Script::new([calls([("1", "act", &arguments), ("2", "act", "{\"n\":2}")]), say("done")]);
    let agent = with_secret(agent(script)).tool(logged("act", &log)).store(store.clone()).build().unwrap();
    let (events, reply) = collect(agent.thread("t").stream("go")).await;
    let (kind, _, message) = failure(&reply.unwrap());
    assert_eq!(kind, ToolFailureKind::Denied);
    assert_eq!(
        message,
        "`act` was denied: its arguments hold the secret KEY; arguments never carry secrets, a tool gets them from its environment"
    );
    assert_eq!(log.all().len(), 1);
    let shown = events.iter().find_map(|event| match &event.kind {
        EventKind::ToolStart { args, .. } => Some(args.clone()),
        _ => None,
    });
    assert_eq!(shown, Some(json!({ "url": "https://x.test/?k=[redacted:KEY]M=", "n": 1 })));
    clean("an event", &format!("{events:?}"));
    clean("the journal", &journal_text(&store, "t").await);

    // A client's own call too.
    let invoked = agent.thread("u").invoke("act", &arguments).await.unwrap();
    let Some(Outcome::Failed { failure }) = &invoked.outcome else { panic!("{invoked:?}") };
    assert_eq!(failure.kind, ToolFailureKind::Denied);
    clean("the journal", &journal_text(&store, "u").await);
    assert_eq!(log.all().len(), 1);
}

#[tokio::test]
async fn a_hook_can_neither_put_a_secret_into_arguments_nor_into_a_result() {
    let (log, store) = (Log::default(), MemoryStore::new());
    let script = Script::new([calls([("1", "act", "{}")]), calls([("2", "fine", "{}")]), say("done")]);
    let puts = says("puts", |call| Ok(if call.cx.tool_name() == "act" { Say::Rewrite(json!({ "k": SECRET })) } else { Say::Pass }));
    let tells = afterwards("tells", |outcome| {
        // What the hook sees is clean already.
        assert!(!format!("{outcome:?}").contains("cr3t/with"));
        Ok(matches!(outcome, Outcome::Done { .. }).then(|| Outcome::done(ToolOutput::text(format!("{}{SECRET}", "x".repeat(90))))))
    });
    let gives = Tool::new("fine", "Gives.").run_json(|_args: Value, _cx| async { Ok::<_, ToolError>(json!(SECRET)) }).unwrap();
    let builder = with_secret(agent(script)).tools([logged("act", &log), gives]).at(At::Hook, puts);
    // Nor does whoever is told what was decided see it.
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let audit = Arc::clone(&told);
    let builder = builder.on_permission_decision(move |entry, _| audit.lock().unwrap().push(format!("{entry:?}")));
    // The result is cut in the middle of where the secret was.
    let agent = builder.at(At::Hook, tells).result_limit(100).store(store.clone()).build().unwrap();
    let (events, reply) = collect(agent.thread("t").stream("go")).await;
    let reply = reply.unwrap();
    assert_eq!(failure(&reply).0, ToolFailureKind::Denied);
    assert!(log.all().is_empty());
    let result = results(&reply.messages).pop().unwrap();
    let text = value(&result);
    assert!(text.as_str().unwrap().contains("x[redacted"), "{text}");
    clean("the audit", &told.lock().unwrap().join("\n"));
    assert!(told.lock().unwrap()[0].contains("its arguments hold the secret KEY"));
    clean("an event", &format!("{events:?}"));
    clean("the journal", &journal_text(&store, "t").await);
}

#[tokio::test]
async fn what_people_post_loses_secrets_before_it_is_kept() {
    let (log, store) = (Log::default(), MemoryStore::new());
    let script = Script::new([calls([("1", "act", "{\"n\":1}")]), say("done"), say("done")]);
    let asks = says("asks", |_| Ok(Say::Ask(Some(format!("because of {SECRET}")))));
    let agent = with_secret(agent(script)).tool(logged("act", &log)).at(At::Rule, asks).store(store.clone()).build().unwrap();
    let thread = agent.thread("t");
    let paused = thread.send("go").await.unwrap();
    let pending = &paused.pending[0];
    clean("what is pending", &format!("{pending:?}"));
    let id: ApprovalId = pending.id.clone();
    let refused = agent.approvals().decide(&id, Decision::approve_with(json!({ "n": SECRET }).to_string())).await.unwrap_err();
    assert!(refused.to_string().contains("an edited argument is the secret KEY"), "{refused}");
    thread.enqueue(in_all_ways()).await.unwrap();
    agent.approvals().decide(&id, Decision::approve().note(in_all_ways()).by("kim")).await.unwrap();
    clean("the inbox", &format!("{:?}", store.inbox(&"t".parse_thread(), 0).await.unwrap()));
    thread.resume().await.unwrap();
    clean("the journal", &journal_text(&store, "t").await);
    assert_eq!(log.all().len(), 1);

    let fork = thread.fork(1, ForkPatch::new().id("f").append_input(in_all_ways())).await.unwrap();
    clean("the fork", &journal_text(&store, fork.id().unwrap().as_str()).await);
}

/// The journal of before a secret was registered goes to no model with it.
#[tokio::test]
async fn what_was_said_before_a_secret_was_registered_is_not_sent() {
    let store = MemoryStore::new();
    let before = agent(Script::new([say("noted")])).store(store.clone()).build().unwrap();
    before.thread("t").send(in_all_ways()).await.unwrap();
    let script = Script::new([calls([("1", "act", "{}")]), say("done")]);
    let log = Log::default();
    let after = with_secret(agent(Arc::clone(&script))).tool(logged("act", &log)).store(store).build().unwrap();
    after.thread("t").send("go on").await.unwrap();
    assert_eq!(script.times(), 2);
    for request in script.asked() {
        assert!(request.messages.iter().any(|message| message.text_of().contains("[redacted:KEY]")));
        clean("a request", &serde_json::to_string(&request.messages.iter().collect::<Vec<_>>()).unwrap());
    }
}

#[tokio::test]
async fn a_stream_that_is_cut_shows_no_part_of_a_secret() {
    let store = MemoryStore::new();
    let script = Script::new([then_silence(vec![ModelEvent::TextDelta(format!("it is {}", SECRET.get(..18).unwrap()))])]);
    let agent = with_secret(agent(script)).store(store.clone()).build().unwrap();
    let mut run = agent.thread("t").stream("go");
    let mut events = until(&mut run, |kind| matches!(kind, EventKind::TextDelta { .. })).await;
    run.cancel("enough");
    let (more, reply) = collect(run).await;
    events.extend(more);
    assert_eq!(reply.unwrap().finish_reason, FinishReason::Aborted);
    clean("an event", &format!("{events:?}"));
    let journal = journal_text(&store, "t").await;
    clean("the journal", &journal);
    assert!(journal.contains("it is [redacted:KEY]"), "{journal}");
}

// --------------------------------------------------------------------------------------------------------- environment

struct Given(HashMap<&'static str, &'static str>);

impl EnvSource for Given {
    fn get(&self, name: &str) -> Option<String> {
        self.0.get(name).map(|value| (*value).to_owned())
    }
}

fn given<const N: usize>(values: [(&'static str, &'static str); N]) -> Given {
    Given(HashMap::from(values))
}

/// A tool that gives what it has of these variables, spelled so that nothing of it is redacted.
fn reads(builder: toolwright_tool::ToolBuilder, names: &'static [&'static str]) -> Tool {
    builder
        .run_json(move |_args: Value, cx: ToolContext| {
            let values: Vec<Value> =
                names.iter().map(|name| json!(cx.env(name).map(|value| value.chars().rev().collect::<String>()))).collect();
            async { Ok::<_, ToolError>(Value::Array(values)) }
        })
        .unwrap()
}

fn reversed(text: &str) -> String {
    text.chars().rev().collect()
}

async fn read_by(builder: AgentBuilder, store: &MemoryStore, thread: &str) -> Result<Value, String> {
    let agent = builder.store(store.clone()).build().map_err(|error| error.to_string())?;
    match agent.thread(thread).invoke("look", "{}").await.unwrap().outcome.unwrap() {
        Outcome::Done { output } => Ok(output.shown()),
        Outcome::Failed { failure } => Err(failure.message.clone()),
    }
}

fn looking(tool: Tool) -> AgentBuilder {
    agent(Script::new([])).tool(tool)
}

// As standard-agents ENV-2 has it.
#[tokio::test]
async fn the_first_that_has_a_value_wins() {
    let store = MemoryStore::new();
    let names = &["ONE", "TWO", "THREE", "HOME"];
    let tool = || reads(Tool::new("look", "Looks.").env("ONE").env("TWO").env("THREE"), names);
    let builder = || {
        let source = given([("ONE", "process-1"), ("TWO", "process-2"), ("THREE", "process-3"), ("HOME", "process-4")]);
        looking(tool()).env(source).env_value("ONE", "agent-1").env_value("TWO", "agent-2")
    };
    let agent = builder().store(store.clone()).build().unwrap();
    agent.thread("t").set_env("ONE", Some("thread-1")).await.unwrap();
    // Of the process's variables, only those that the tool declares.
    let expected = json!([reversed("thread-1"), reversed("agent-2"), reversed("process-3"), null]);
    assert_eq!(read_by(builder(), &store, "t").await, Ok(expected));
    agent.thread("t").set_env("ONE", None).await.unwrap();
    let expected = json!([reversed("agent-1"), reversed("agent-2"), reversed("process-3"), null]);
    assert_eq!(read_by(builder(), &store, "t").await, Ok(expected));
}

// rule: standard-agents TOL-9
// rule: standard-agents ENV-3
#[tokio::test]
async fn a_body_never_runs_without_what_it_needs() {
    let store = MemoryStore::new();
    let needs = Tool::new("look", "Looks.")
        .secret_env("TOKEN")
        .env("REGION")
        .env("PLACE")
        .env_need(toolwright_core::EnvNeed::text("LANGUAGE").optional());
    let tool = reads(needs, &["TOKEN", "REGION", "PLACE", "LANGUAGE"]);
    let builder = || looking(tool.clone()).env(given([("PLACE", "here"), ("REGION", " ")]));
    let missing = "`look` needs the environment values TOKEN, REGION, which nobody has set, so it did not run";
    assert_eq!(read_by(builder(), &store, "t").await, Err(missing.to_owned()));
    let agent = builder().encryption_key(KEY).store(store.clone()).build().unwrap();
    // Blank is a value, and what is required is missing all the same.
    agent.thread("t").set_env("TOKEN", Some("")).await.unwrap();
    assert_eq!(agent.thread("t").env_names().await.unwrap(), ["TOKEN"]);
    assert_eq!(read_by(builder().encryption_key(KEY), &store, "t").await, Err(missing.to_owned()));
    agent.thread("t").set_env("TOKEN", Some("top-secret")).await.unwrap();
    let one = "`look` needs the environment value REGION, which nobody has set, so it did not run";
    assert_eq!(read_by(builder().encryption_key(KEY), &store, "t").await, Err(one.to_owned()));
    agent.thread("t").set_env("REGION", Some("eu")).await.unwrap();
    let expected = json!([reversed("top-secret"), reversed("eu"), reversed("here"), null]);
    assert_eq!(read_by(builder().encryption_key(KEY), &store, "t").await, Ok(expected));
}

// As standard-agents ENV-6 and ENV-7 have it.
// rule: standard-agents ENV-13
#[tokio::test]
async fn types_are_kept_and_only_declared_texts_are_shown() {
    let store = MemoryStore::new();
    let tool = reads(Tool::new("look", "Looks.").secret_env("TOKEN").env("REGION"), &["TOKEN"]);
    let agent = looking(tool).encryption_key(KEY).store(store.clone()).build().unwrap();
    let thread = agent.thread("t");
    thread.set_env("REGION", Some("eu")).await.unwrap();
    thread.set_env("TOKEN", Some("top-secret")).await.unwrap();
    thread.set_env("OTHER", Some("of no tool")).await.unwrap();
    thread.set_env_as("NOTE", "a text of no tool", EnvType::Text).await.unwrap();
    // What a tool calls a secret can't be set as a text.
    thread.set_env_as("TOKEN", "top-secret-2", EnvType::Text).await.unwrap();
    let shown: Vec<_> =
        thread.env().await.unwrap().into_iter().map(|entry| (entry.name, entry.env_type, entry.declared, entry.value)).collect();
    let row = |name: &str, env_type, declared, value: Option<&str>| (name.to_owned(), env_type, declared, value.map(str::to_owned));
    assert_eq!(
        shown,
        [
            row("NOTE", EnvType::Secret, false, None),
            row("OTHER", EnvType::Secret, false, None),
            row("REGION", EnvType::Text, true, Some("eu")),
            row("TOKEN", EnvType::Secret, true, None),
        ]
    );
    // A new one is a secret where nobody says otherwise, and a secret is long enough to be taken out.
    let error = thread.set_env("NEW", Some("short")).await.unwrap_err();
    assert!(error.to_string().starts_with("the secret NEW has fewer than 6 characters"), "{error}");
    thread.set_env("REGION", Some("us")).await.unwrap();
    thread.set_env_as("REGION", "a secret region", EnvType::Secret).await.unwrap();
    // It keeps the type it has.
    let error = thread.set_env("REGION", Some("eu")).await.unwrap_err();
    assert_eq!(error.code(), "TOOLWRIGHT_CONFIG_INVALID");
}

// rule: standard-agents ENV-8
#[tokio::test]
async fn values_are_encrypted_where_they_are_kept() {
    let store = MemoryStore::new();
    let tool = || reads(Tool::new("look", "Looks.").secret_env("TOKEN"), &["TOKEN"]);
    let other = || Tool::new("look", "Looks.").run_json(|_args: Value, _cx| async { Ok::<_, ToolError>("fine") }).unwrap();
    let keyless = looking(tool()).store(store.clone()).build().unwrap();
    let error = keyless.thread("t").set_env("TOKEN", Some("top-secret")).await.unwrap_err();
    assert!(error.to_string().contains("there is no key to encrypt it with; set `ENCRYPTION_KEY`"), "{error}");
    assert!(keyless.thread("t").env_names().await.unwrap().is_empty());

    let keyed = looking(tool()).encryption_key(KEY).store(store.clone()).build().unwrap();
    keyed.thread("t").set_env("TOKEN", Some("top-secret")).await.unwrap();
    keyed.thread("t").set_env_as("REGION", "a-long-text", EnvType::Text).await.unwrap();
    let kept = store.data().values(&"t".parse_thread(), Shelf::Environment, "", None, 10).await.unwrap();
    assert_eq!(kept.len(), 2);
    assert!(!format!("{kept:?}").contains("top-secret") && !format!("{kept:?}").contains("a-long-text"), "{kept:?}");

    let ok = json!([reversed("top-secret")]);
    assert_eq!(read_by(looking(tool()).encryption_key(KEY), &store, "t").await, Ok(ok.clone()));
    let without = read_by(looking(tool()), &store, "t").await.unwrap_err();
    assert!(without.contains("TOKEN is encrypted, and no key is there; set `ENCRYPTION_KEY`"), "{without}");
    let wrong = read_by(looking(tool()).encryption_key("another key of sixteen"), &store, "t").await.unwrap_err();
    assert!(wrong.contains("TOKEN can't be decrypted with the key in `ENCRYPTION_KEY`"), "{wrong}");
    // Who does not need it is not held up.
    assert_eq!(read_by(looking(other()), &store, "t").await, Ok(json!("fine")));
    // A value that does not open does not make way for another one.
    let below = looking(tool()).env(given([("TOKEN", "of-the-process")]));
    assert!(read_by(below, &store, "t").await.is_err());

    // A fork has its own copy, which opens; a row that is moved by hand does not.
    let fork = keyed.thread("t").fork(toolwright_runtime::ForkAt::Head, ForkPatch::new().id("f")).await.unwrap();
    assert_eq!(fork.env_names().await.unwrap(), ["REGION", "TOKEN"]);
    assert_eq!(read_by(looking(tool()).encryption_key(KEY), &store, "f").await, Ok(ok.clone()));
    store.data().set_value(&"m".parse_thread(), Shelf::Environment, "TOKEN", Some(Arc::clone(&kept[1].1)), None).await.unwrap();
    assert!(read_by(looking(tool()).encryption_key(KEY), &store, "m").await.unwrap_err().contains("can't be decrypted"));

    // Rows of before values were encrypted are read.
    store.data().set_value(&"o".parse_thread(), Shelf::Environment, "TOKEN", Some("\"top-secret\"".into()), None).await.unwrap();
    assert_eq!(read_by(looking(tool()), &store, "o").await, Ok(ok));
    // A key that is none is refused when the agent is made.
    let error = looking(tool()).encryption_key("short").build().unwrap_err();
    assert!(error.to_string().contains("the key in `ENCRYPTION_KEY` is too short"), "{error}");
}

#[tokio::test]
async fn variables_that_are_secrets_are_taken_out_wherever_they_come_from() {
    let store = MemoryStore::new();
    let names = ["OF_THREAD", "OF_AGENT", "OF_PROCESS"];
    let needs = names.into_iter().fold(Tool::new("look", "Looks."), toolwright_tool::ToolBuilder::secret_env);
    let tool = needs
        .run_json(move |_args: Value, cx: ToolContext| {
            let values: Vec<Option<String>> = names.iter().map(|name| cx.env(name)).collect();
            async move { Ok::<_, ToolError>(json!(values)) }
        })
        .unwrap();
    let builder = || {
        let source = given([("OF_PROCESS", "process-value"), ("OF_THREAD", "hidden-below")]);
        looking(tool.clone()).env(source).env_secret("OF_AGENT", "agent-value").encryption_key(KEY)
    };
    let agent = builder().store(store.clone()).build().unwrap();
    agent.thread("t").set_env("OF_THREAD", Some("thread-value")).await.unwrap();
    let read = read_by(builder(), &store, "t").await;
    assert_eq!(read, Ok(json!(["[redacted:OF_THREAD]", "[redacted:OF_AGENT]", "[redacted:OF_PROCESS]"])));
    let journal = journal_text(&store, "t").await;
    assert!(!journal.contains("-value") && journal.contains("[redacted:OF_PROCESS]"), "{journal}");
    // One that is too short to be taken out is given to nobody.
    let short = looking(tool.clone()).env(given([("OF_PROCESS", "123"), ("OF_THREAD", "abcdefg")])).env_secret("OF_AGENT", "agent-value");
    let refused = read_by(short, &store, "u").await.unwrap_err();
    assert!(refused.contains("the secret OF_PROCESS has fewer than 6 characters"), "{refused}");
    let error = looking(tool).env_secret("OF_AGENT", "123").build().unwrap_err();
    assert!(error.to_string().contains("the secret OF_AGENT has fewer than 6 characters"), "{error}");
}

#[tokio::test]
async fn a_call_that_was_cut_and_held_a_secret_is_denied() {
    let mut item = call_item("1", "act", &json!({ "k": SECRET }).to_string());
    item.state = ArgsState::Truncated;
    let log = Log::default();
    let script = Script::new([items_of(vec![Item::ToolCall(item)], FinishReason::Length), say("done")]);
    let agent = with_secret(agent(script)).tool(logged("act", &log)).build().unwrap();
    let reply = within(agent.send("go")).await.unwrap();
    clean("the transcript", &format!("{:?}", reply.messages));
    assert!(log.all().is_empty());
}
