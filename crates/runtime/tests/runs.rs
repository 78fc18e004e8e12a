//! Runs from outside: what an agent is built of, how a run ends, is stopped, and survives.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod common;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::*;
use futures_util::{FutureExt, StreamExt, stream};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use toolwright_core::{
    AbortReason, Author, Decision, EventKind, FinishReason, Item, Message, OnInterrupt, Part, Record, RecordBody, ResultItem, RunId, Seq,
    ThreadId, Timestamp, ToolFailureKind,
};
use toolwright_runtime::{
    Agent, AgentError, Append, Claim, MemoryStore, Model, ModelEvent, ModelInfo, ModelRequest, ModelResolver, ModelSettings, ModelStream,
    NoResolvers, ResolveError, Store, StoreError, StoreLayer,
};
use toolwright_tool::{FromCall, Requirements, Running, State, Tool, ToolContext, ToolError};

fn id() -> ThreadId {
    ThreadId::new("t").unwrap()
}

fn forever(name: &str) -> Tool {
    Tool::new(name, "Never ends, and never looks at the signal.")
        .run_json(|_, _| async {
            std::future::pending::<()>().await;
            Ok::<_, ToolError>(())
        })
        .unwrap()
}

// ------------------------------------------------------------------------------------------------------------- building

// rule: sdk-runtime AGT-4, sdk-runtime EXE-1
#[tokio::test]
async fn what_is_missing_or_wrong_is_refused_before_a_run_and_says_what_to_do() {
    let builder = Agent::<NoResolvers>::builder;
    let good = || builder().model(Script::new([say("done")]));
    let hot = ModelSettings { temperature: Some(3.0), ..ModelSettings::default() };
    let empty = ModelSettings { max_tokens: Some(0), ..ModelSettings::default() };
    for (refused, code, sentence) in [
        (builder().build().unwrap_err(), "TOOLWRIGHT_CONFIG_MISSING_PROVIDER", "no model is set; use `.model("),
        (builder().model_from_env().build().unwrap_err(), "TOOLWRIGHT_CONFIG_MISSING_PROVIDER", "no model is set; use `.model("),
        (good().max_steps(0).build().unwrap_err(), "TOOLWRIGHT_CONFIG_INVALID", "max_steps is 0; give a whole number of at least 1"),
        (good().tool_concurrency(0).build().unwrap_err(), "TOOLWRIGHT_CONFIG_INVALID", "tool_concurrency is 0; give"),
        (good().max_repeats(Some(0)).build().unwrap_err(), "TOOLWRIGHT_CONFIG_INVALID", "max_repeats is 0; give"),
        (good().settings(hot).build().unwrap_err(), "TOOLWRIGHT_CONFIG_INVALID", "settings.temperature is 3; give a number from 0 to 2"),
        (good().settings(empty).build().unwrap_err(), "TOOLWRIGHT_CONFIG_INVALID", "settings.max_tokens is 0; give"),
        (good().tool(echo("a")).tool(echo("a")).build().unwrap_err(), "TOOLWRIGHT_CONFIG_INVALID", "two tools are named `a`"),
        (good().state(1_u8).state(2_u8).build().unwrap_err(), "TOOLWRIGHT_CONFIG_INVALID", "two states of the type u8 are given; wrap"),
    ] {
        assert_eq!(refused.code(), code);
        assert!(refused.to_string().starts_with(sentence), "{refused}");
        assert!(refused.is_usage());
    }
    let script = Script::new([say("done")]);
    let agent = agent(script.clone()).build().unwrap();
    for (refused, code) in [
        (agent.send(Vec::<Message>::new()).await.unwrap_err(), "TOOLWRIGHT_CONFIG_MISSING_INPUT"),
        (agent.send(Vec::<Item>::new()).await.unwrap_err(), "TOOLWRIGHT_CONFIG_MISSING_INPUT"),
        (agent.send(" \n").await.unwrap_err(), "TOOLWRIGHT_CONFIG_MISSING_INPUT"),
        (agent.thread("../x").send("go").await.unwrap_err(), "TOOLWRIGHT_SESSION_ID_INVALID"),
        (agent.thread("t").max_steps(0).send("go").await.unwrap_err(), "TOOLWRIGHT_CONFIG_INVALID"),
        (agent.thread("t").with_state(1_u8).with_state(2_u8).send("go").await.unwrap_err(), "TOOLWRIGHT_CONFIG_INVALID"),
        (agent.thread("t").resume().await.unwrap_err(), "TOOLWRIGHT_CHECKPOINT_NOT_FOUND"),
    ] {
        assert_eq!(refused.code(), code, "{refused}");
    }
    // A stream of what is refused has no events.
    let (events, reply) = collect(agent.stream(" ")).await;
    assert!(events.is_empty() && reply.is_err());
    assert_eq!(script.times(), 0);
}

struct ByName(Arc<AtomicUsize>);

impl ModelResolver for ByName {
    fn resolve(&self, name: &str) -> Option<Result<Arc<dyn Model>, ResolveError>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        (name == "test/echo").then(|| Ok(Answers::new(|_| reply(vec![Item::text("done")], FinishReason::Stop)) as Arc<dyn Model>))
    }

    fn from_env(&self) -> Option<String> {
        Some("test/echo".to_owned())
    }

    fn known(&self) -> Vec<String> {
        vec!["test/echo".to_owned()]
    }
}

// rule: sdk-runtime AGT-2, sdk-runtime AGT-5, sdk-runtime CTX-5
#[tokio::test]
async fn the_model_is_the_one_that_was_named_and_is_found_once() {
    let asked = Arc::new(AtomicUsize::new(0));
    let named = |name: &str| Agent::<NoResolvers>::builder().model(name).resolver(ByName(Arc::clone(&asked))).build();
    let agent = named("test/echo").unwrap();
    for _ in 0..3 {
        assert_eq!(agent.send("go").await.unwrap().text, "done");
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    assert_eq!(agent.model(), ModelInfo::new("test", "answers"));
    let error = named("test/other").unwrap_err();
    assert_eq!(
        (error.code(), error.to_string().as_str()),
        ("TOOLWRIGHT_PROVIDER_UNKNOWN", "the model `test/other` is not known; use one of test/echo")
    );
    let error = Agent::<NoResolvers>::builder().model("test/echo").build().unwrap_err();
    assert!(error.to_string().contains("no source of models by name is installed"), "{error}");
    // The environment is looked at when that is asked for, and never otherwise.
    let from_env = Agent::<NoResolvers>::builder().model_from_env().resolver(ByName(Arc::clone(&asked))).build().unwrap();
    assert_eq!(from_env.send("go").await.unwrap().text, "done");
    assert!(matches!(Agent::<NoResolvers>::builder().resolver(ByName(asked)).build().unwrap_err(), AgentError::NoModel));
}

// rule: sdk-runtime AGT-5, sdk-runtime AGT-6, sdk-runtime CTX-1
#[tokio::test]
async fn each_send_begins_empty_with_the_same_tools_and_one_instruction() {
    let script = Script::new([say("one"), say("two"), say("three"), say("four")]);
    let agent = agent(script.clone()).tool(echo("act")).instructions("Be brief.").build().unwrap();
    agent.send("first").await.unwrap();
    agent.send("second").await.unwrap();
    let thread = agent.thread("t");
    thread.send("third").await.unwrap();
    thread.instructions("In French.").send("fourth").await.unwrap();
    let asked = script.asked();
    assert!(Arc::ptr_eq(&asked[0].tools, &asked[3].tools));
    let texts = |at: usize| asked[at].messages.iter().map(|message| message.text_of()).collect::<Vec<_>>();
    assert_eq!((texts(0), texts(1)), (vec!["first".to_owned()], vec!["second".to_owned()]));
    assert_eq!(texts(3), ["third", "three", "fourth"]);
    // Instructions are one text beside the transcript, rebuilt each time and never stored.
    assert_eq!(
        asked.iter().map(|request| &*request.instructions).collect::<Vec<_>>(),
        ["Be brief.", "Be brief.", "Be brief.", "Be brief.\n\nIn French."]
    );
    assert!(agent.thread("t").history().await.unwrap().iter().all(|message| message.author != Author::System));
    let script = Script::new([say("done")]);
    common::agent(script.clone()).build().unwrap().send("go").await.unwrap();
    assert_eq!(&*script.asked()[0].instructions, toolwright_runtime::DEFAULT_INSTRUCTIONS);
}

#[tokio::test]
async fn a_history_brought_along_has_to_be_balanced() {
    let script = Script::new([say("done")]);
    let agent = agent(script.clone()).build().unwrap();
    let mut call = call_item("c1", "act", "{}");
    call.call_id = toolwright_core::CallId::new("c1");
    let called = Message { author: Author::SideA, items: vec![Item::ToolCall(call)], metadata: Map::new() };
    let result = ResultItem {
        call_id: toolwright_core::CallId::new("c1"),
        provider_id: None,
        tool_name: "act".to_owned(),
        parts: vec![Part::text("x")],
        failed: None,
        approval: None,
        marks: toolwright_core::taint::Marks::default(),
    };
    let answered = |author| Message { author, items: vec![Item::ToolResult(result.clone())], metadata: Map::new() };
    for broken in [
        vec![called.clone()],
        vec![called.clone(), Message::human("stop, do X")],
        vec![answered(Author::Tool)],
        vec![called.clone(), answered(Author::Human)],
    ] {
        assert!(matches!(agent.send(broken).await.unwrap_err(), AgentError::Unbalanced { .. }));
    }
    assert_eq!(script.times(), 0);
    agent.send(vec![Message::human("go"), called, answered(Author::Tool), Message::human("and?")]).await.unwrap();
    assert_eq!(script.asked()[0].messages.len(), 4);
}

// ---------------------------------------------------------------------------------------------------------------- state

struct Db(&'static str);

struct Wrapped<T>(T);

impl<T: FromCall> FromCall for Wrapped<T> {
    fn requires(requirements: &mut Requirements) {
        T::requires(requirements);
    }

    async fn from_call(cx: &ToolContext) -> Result<Self, ToolError> {
        Ok(Self(T::from_call(cx).await?))
    }
}

fn reads_db(name: &str) -> Tool {
    Tool::new(name, "Reads.")
        .requires(Wrapped::<Wrapped<State<Arc<Db>>>>::requires)
        .run_json(|_, cx| async move {
            let Wrapped(Wrapped(State(db))) = Wrapped::<Wrapped<State<Arc<Db>>>>::from_call(&cx).await?;
            Ok::<_, ToolError>(db.0)
        })
        .unwrap()
}

#[tokio::test]
async fn missing_state_is_named_at_build_through_every_wrapper() {
    let error = agent(Script::new([])).tool(reads_db("one")).tool(echo("two")).tool(reads_db("three")).build().unwrap_err();
    let AgentError::MissingState { missing } = &error else { panic!("{error}") };
    assert_eq!(missing.iter().map(|(tool, _)| tool.as_str()).collect::<Vec<_>>(), ["one", "three"]);
    let name = &missing[0].1;
    assert_eq!(
        error.to_string(),
        format!("tool `one` needs State<{name}>, tool `three` needs State<{name}>; add `.state(...)` with a {name} to the builder")
    );
    let of_agent =
        agent(Script::new([calls([("c1", "one", "{}")]), say("done")])).tool(reads_db("one")).state(Arc::new(Db("agent"))).build().unwrap();
    assert_eq!(value(&results(&of_agent.send("go").await.unwrap().messages)[0]), json!("agent"));
}

#[tokio::test]
async fn state_of_a_run_is_asked_for_at_the_send_and_is_nearest() {
    let script = Script::new([calls([("c1", "one", "{}")]), say("done")]);
    let agent = agent(script.clone()).tool(reads_db("one")).run_state::<Arc<Db>>().build().unwrap();
    let error = agent.thread("t").send("go").await.unwrap_err();
    assert!(matches!(&error, AgentError::MissingState { missing } if missing.len() == 1 && missing[0].0 == "one"), "{error}");
    assert_eq!(script.times(), 0);
    let reply = agent.thread("t").with_state(Arc::new(Db("run"))).send("go").await.unwrap();
    assert_eq!(value(&results(&reply.messages)[0]), json!("run"));
}

// ----------------------------------------------------------------------------------------------------------------- loop

fn one_call_each_step() -> Arc<Answers<impl Fn(&ModelRequest) -> toolwright_runtime::ModelReply + Send + Sync>> {
    Answers::new(|request| {
        reply(
            vec![Item::ToolCall(call_item(&format!("c{}", request.step), "act", &format!(r#"{{"n":{}}}"#, request.step)))],
            FinishReason::ToolCalls,
        )
    })
}

// rule: sdk-runtime FIN-1, sdk-runtime FIN-3, sdk-runtime LOOP-3, sdk-runtime LOOP-7
#[tokio::test]
async fn max_steps_ends_a_run_only_where_the_model_wanted_more() {
    let model = one_call_each_step();
    let log = Log::default();
    let agent = agent(model.clone()).tool(logged("act", &log)).max_steps(3).build().unwrap();
    let reply = go(&agent).await.1.unwrap();
    assert_eq!((reply.finish_reason, reply.steps, model.steps(), log.len()), (FinishReason::MaxSteps, 3, vec![1, 2, 3], 3));
    // The last step may be the model's own end.
    let script = Script::new([calls([("c1", "act", "{}")]), say("done")]);
    let agent = common::agent(script.clone()).tool(echo("act")).max_steps(2).build().unwrap();
    let reply = go(&agent).await.1.unwrap();
    assert_eq!((reply.finish_reason, reply.steps, script.times()), (FinishReason::Stop, 2, 2));
    // A run may have its own.
    let model = one_call_each_step();
    let reply = common::agent(model).tool(echo("act")).build().unwrap().new_thread().max_steps(1).send("go").await.unwrap();
    assert_eq!(reply.steps, 1);
}

// rule: sdk-runtime FIN-2
// rule: sdk-tools 13.4/12
#[tokio::test]
async fn steps_before_a_pause_count_after_it() {
    let tool = Tool::new("act", "Acts.").needs_approval().run_json(|args, _| async move { Ok::<_, ToolError>(args) }).unwrap();
    let model = one_call_each_step();
    let agent = agent(model.clone()).tool(tool).max_steps(2).build().unwrap();
    let thread = agent.thread("t");
    let mut reply = thread.send("go").await.unwrap();
    for steps in [1, 2] {
        assert_eq!((reply.finish_reason.clone(), reply.steps), (FinishReason::AwaitingApproval, steps));
        agent.approvals().decide(&reply.pending[0].id, Decision::approve()).await.unwrap();
        reply = thread.resume().await.unwrap();
    }
    assert_eq!((reply.finish_reason, reply.steps, model.steps()), (FinishReason::MaxSteps, 2, vec![1, 2]));
    // New input has a budget of its own.
    assert_eq!(thread.send("more").await.unwrap().steps, 1);
}

// rule: sdk-runtime LOOP-8, sdk-runtime LOOP-9
#[tokio::test]
async fn a_step_goes_on_after_calls_and_stops_after_text() {
    let ran = |finish: FinishReason, items: Vec<Item>| async move {
        let script = Script::new([items_of(items, finish), say("done")]);
        let agent = agent(script.clone()).tool(echo("act")).build().unwrap();
        (go(&agent).await.1.unwrap().finish_reason, script.times())
    };
    let call = || vec![Item::ToolCall(call_item("c1", "act", "{}"))];
    // Calls make it go on, whatever word comes with them.
    for word in [FinishReason::ToolCalls, FinishReason::Stop, FinishReason::Unknown] {
        assert_eq!(ran(word, call()).await, (FinishReason::Stop, 2));
    }
    // A reply that was cut or withheld does not.
    for word in [FinishReason::Length, FinishReason::ContentFilter] {
        assert_eq!(ran(word.clone(), call()).await, (word, 1));
    }
    assert_eq!(ran(FinishReason::Stop, vec![Item::text("x")]).await, (FinishReason::Stop, 1));
    // A model that answers nothing is done.
    for word in [FinishReason::Stop, FinishReason::ToolCalls] {
        assert_eq!(ran(word.clone(), vec![]).await, (word, 1));
    }
}

// rule: sdk-tools 36/13
#[tokio::test]
async fn the_same_call_without_effect_is_stopped() {
    let model = Answers::new(|request| {
        reply(vec![Item::ToolCall(call_item(&format!("c{}", request.step), "act", r#"{"n":1}"#))], FinishReason::ToolCalls)
    });
    let agent = agent(model.clone()).tool(echo("act")).max_steps(100).max_repeats(Some(3)).build().unwrap();
    let (events, reply) = go(&agent).await;
    let reply = reply.unwrap();
    assert_eq!((reply.finish_reason, model.steps().len()), (FinishReason::Guardrail, 3));
    let trip = reply.guardrail.unwrap();
    assert_eq!((trip.name.as_str(), trip.reason.as_str()), ("repeated-call", "the same calls gave the same results 3 times in a row"));
    let all = brief(&events);
    assert_eq!(all[all.len() - 2..], ["guardrail.tripped repeated-call", "run.done guardrail"]);
    // Calls that make a difference go on.
    let model = one_call_each_step();
    let agent = common::agent(model.clone()).tool(echo("act")).max_steps(9).max_repeats(Some(3)).build().unwrap();
    assert_eq!(go(&agent).await.1.unwrap().finish_reason, FinishReason::MaxSteps);
    let never = common::agent(Answers::new(|_| common::reply(vec![Item::ToolCall(call_item("c", "act", "{}"))], FinishReason::ToolCalls)))
        .tool(echo("act"))
        .max_repeats(None)
        .build()
        .unwrap();
    assert_eq!(go(&never).await.1.unwrap().finish_reason, FinishReason::MaxSteps);
}

// rule: sdk-tools 33.3
#[tokio::test]
async fn what_is_a_result_what_is_a_reason_and_what_is_an_error() {
    let denies = |kind: ToolFailureKind| failing("act", ToolError::new("no").with_kind(kind));
    for kind in
        [ToolFailureKind::Execution, ToolFailureKind::Validation, ToolFailureKind::Denied, ToolFailureKind::Mcp, ToolFailureKind::Sandbox]
    {
        let agent = agent(Script::new([calls([("c1", "act", "{}")]), say("done")])).tool(denies(kind.clone())).build().unwrap();
        let reply = go(&agent).await.1.unwrap();
        assert_eq!((failure(&reply).0, reply.finish_reason), (kind, FinishReason::Stop));
    }
    let propagates = failing("act", ToolError::propagate(ToolError::new("no")));
    let agent = common::agent(Script::new([calls([("c1", "act", "{}")])])).tool(propagates).build().unwrap();
    assert!(matches!(go(&agent).await.1.unwrap_err(), AgentError::Run { .. }));
    let agent = common::agent(Script::new([])).build().unwrap();
    assert!(matches!(go(&agent).await.1.unwrap_err(), AgentError::Run { .. }));
}

// ---------------------------------------------------------------------------------------------------------- models fail

struct Panics;

impl Model for Panics {
    fn info(&self) -> ModelInfo {
        ModelInfo::new("test", "panics")
    }

    fn stream(&self, request: ModelRequest) -> ModelStream {
        assert!(request.step > 1, "not yet");
        stream::poll_fn(|_| panic!("in mid-stream")).boxed()
    }
}

#[tokio::test]
async fn a_model_that_panics_fails_its_run_and_no_more() {
    let agent = agent(Panics).build().unwrap();
    let thread = agent.thread("t");
    for _ in 0..2 {
        let (events, reply) = collect(thread.stream("go")).await;
        assert!(reply.unwrap_err().to_string().contains("panicked"));
        assert_eq!(brief(&events).last().map(String::as_str), Some("run.done error"));
    }
    thread.history().await.unwrap().check_balance().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_model_that_falls_silent_fails_its_step() {
    let script = Script::new([then_silence(vec![ModelEvent::TextDelta("Hm".to_owned())]), then_silence(vec![])]);
    let agent = agent(script).model_timeout(Duration::from_secs(20)).build().unwrap();
    for _ in 0..2 {
        let error = go(&agent).await.1.unwrap_err();
        assert_eq!(
            (error.code(), error.to_string().as_str()),
            ("TOOLWRIGHT_OPERATION_TIMEOUT", "test: nothing came for 20 s; try again, or raise `model_timeout`")
        );
    }
}

// rule: sdk-runtime RUN-9
#[tokio::test]
async fn a_reply_that_ends_early_is_not_kept() {
    let item = ModelEvent::CallDelta { index: 0, name: Some("act".to_owned()), arguments: r#"{"a"#.to_owned() };
    let log = Log::default();
    let agent =
        agent(Script::new([stream_of(vec![ModelEvent::TextDelta("Hm".to_owned()), item])])).tool(logged("act", &log)).build().unwrap();
    let thread = agent.thread("t");
    let error = collect(thread.stream("go")).await.1.unwrap_err();
    assert!(error.to_string().contains("the reply ended before it was complete"), "{error}");
    assert_eq!((log.len(), thread.history().await.unwrap().len()), (0, 1));
}

#[tokio::test]
async fn a_model_that_streams_for_ever_can_be_stopped() {
    let endless: Answer = Box::new(|_| stream::repeat_with(|| Ok(ModelEvent::TextDelta("x".to_owned()))).boxed());
    let agent = agent(Script::new([endless])).build().unwrap();
    let mut run = agent.stream("go");
    until(&mut run, |event| matches!(event, EventKind::TextDelta { .. })).await;
    run.cancel("enough");
    assert_eq!(collect(run).await.1.unwrap().finish_reason, FinishReason::Aborted);
}

#[tokio::test]
async fn a_tool_that_streams_for_ever_can_be_stopped_and_has_a_deadline() {
    let endless = |timeout: u64| {
        with_body(Tool::new("endless", "Counts.").timeout(Duration::from_millis(timeout)), |_| {
            Running::Stream(stream::iter(0_u64..).map(|n| Ok(json!(n))).boxed())
        })
    };
    let agent =
        |tool| agent(Script::new([calls([("c1", "endless", "{}")]), say("done")])).tool(tool).grace(Duration::ZERO).build().unwrap();
    let stopped = agent(endless(1_000_000));
    let mut run = stopped.stream("go");
    until(&mut run, |event| matches!(event, EventKind::ToolPartial { .. })).await;
    run.cancel("enough");
    assert_eq!(collect(run).await.1.unwrap().finish_reason, FinishReason::Aborted);
    let reply = collect(agent(endless(20)).stream("go")).await.1.unwrap();
    assert_eq!((failure(&reply).1.as_str(), reply.text.as_str()), ("TimeoutError", "done"));
}

// --------------------------------------------------------------------------------------------------------- cancellation

// rule: sdk-runtime CAN-3
#[tokio::test]
async fn a_token_that_was_cancelled_before_never_asks_the_model() {
    let script = Script::new([say("done"), say("done")]);
    let agent = agent(script.clone()).build().unwrap();
    let token = CancellationToken::new();
    token.cancel();
    let thread = agent.thread("t");
    let (events, reply) = collect(thread.clone().cancel_on(token).stream("go")).await;
    let reply = reply.unwrap();
    assert_eq!((reply.finish_reason, reply.steps, script.times()), (FinishReason::Aborted, 0, 0));
    assert_eq!(brief(&events), ["run.start", "run.done aborted"]);
    assert_eq!(thread.send("again").await.unwrap().text, "done");
}

// rule: sdk-runtime CAN-1, sdk-runtime CAN-2, sdk-runtime CAN-4, sdk-runtime CAN-7, sdk-runtime ORD-10
#[tokio::test]
async fn an_abort_while_the_model_speaks_keeps_what_it_said() {
    enum How {
        Handle,
        Time,
        Token,
        Inbox,
    }
    for how in [How::Handle, How::Time, How::Token, How::Inbox] {
        // It ignores the signal: nobody waits for it.
        let script = Script::new([
            then_silence(vec![ModelEvent::TextDelta("Half a ".to_owned()), ModelEvent::TextDelta("thought".to_owned())]),
            say("done"),
        ]);
        let agent = agent(script.clone()).build().unwrap();
        let token = CancellationToken::new();
        let thread = agent.thread("t").cancel_on(token.clone());
        let mut run = thread.stream("go");
        let mut events = until(&mut run, |event| matches!(event, EventKind::TextDelta { text } if text.ends_with("thought"))).await;
        let expected = match how {
            How::Handle => {
                run.cancel("enough");
                AbortReason::abort("enough")
            }
            How::Time => {
                run.cancel_for_time("30 s are over");
                AbortReason::timeout("30 s are over")
            }
            How::Token => {
                token.cancel();
                AbortReason::abort("the caller's token was cancelled")
            }
            How::Inbox => {
                agent.thread("t").cancel("enough").await.unwrap();
                AbortReason::abort("enough")
            }
        };
        let (rest, reply) = collect(run).await;
        events.extend(rest);
        let reply = reply.unwrap();
        assert_eq!(
            (reply.finish_reason, reply.text.as_str(), reply.abort_reason.clone()),
            (FinishReason::Aborted, "Half a thought", Some(expected.clone()))
        );
        assert_eq!(
            brief(&events),
            ["run.start", "step.start 1", "text.delta", "text.done Half a thought", "step.done 1 aborted", "run.done aborted"]
        );
        assert!(matches!(&events.last().unwrap().kind, EventKind::RunDone { abort_reason: Some(reason), .. } if *reason == expected));
        // The model was told, and the thread goes on from there.
        assert!(script.asked()[0].cancelled.is_cancelled());
        assert_eq!(agent.thread("t").send("go on").await.unwrap().text, "done");
        let sent: Vec<String> = script.asked()[1].messages.iter().map(|message| message.text_of()).collect();
        assert_eq!(sent, ["go", "Half a thought", "go on"]);
    }
}

// rule: sdk-runtime CAN-1
// case: rust-reports F-77
#[tokio::test]
async fn nothing_begins_after_an_abort_that_comes_between_gate_and_body() {
    let (latch, log) = (Latch::default(), Log::default());
    let held = latch.clone();
    let builder = Tool::new("act", "Acts.").needs_approval_if(move |_| {
        let held = held.clone();
        async move {
            held.hold().await;
            Ok(false)
        }
    });
    let script = Script::new([calls([("c1", "act", "{}"), ("c2", "act", "{}")])]);
    let agent = agent(script.clone()).tool(logged_with(builder, &log)).build().unwrap();
    let run = agent.stream("go");
    latch.reached().await;
    run.cancel("enough");
    latch.release();
    let reply = collect(run).await.1.unwrap();
    assert_eq!((reply.finish_reason.clone(), log.len(), script.times()), (FinishReason::Aborted, 0, 1));
    assert!(failures(&reply.messages).iter().all(|(_, kind, ..)| *kind == ToolFailureKind::NotRun));
}

// rule: sdk-runtime CAN-5
// case: field-reports 56
#[tokio::test(start_paused = true)]
async fn an_abort_does_not_wait_for_a_tool_that_ignores_it() {
    let log = Log::default();
    let script = Script::new([calls([("c1", "deaf", "{}")]), say("done")]);
    let agent = agent(script.clone()).tools([forever("deaf"), logged("act", &log)]).tool_timeout(Duration::from_mins(8)).build().unwrap();
    let mut run = agent.thread("t").stream("go");
    until(&mut run, |event| matches!(event, EventKind::ToolStart { .. })).await;
    let before = tokio::time::Instant::now();
    run.cancel("enough");
    let reply = collect(run).await.1.unwrap();
    assert_eq!((reply.finish_reason.clone(), before.elapsed()), (FinishReason::Aborted, Duration::from_secs(5)));
    let (_, error, message) = failure(&reply);
    assert_eq!((error.as_str(), message.as_str()), ("AbortError", "the call was stopped because the run was; its outcome is unknown"));
    assert_eq!(script.times(), 1);
}

// rule: sdk-runtime CAN-1
// case: rust-reports F-79
#[tokio::test]
async fn a_context_that_a_stage_changed_still_hears_of_the_abort() {
    let latch = Latch::default();
    let held = latch.clone();
    let tool = Tool::new("act", "Waits for the signal.")
        .run_json(move |args, cx| {
            let held = held.clone();
            async move {
                held.arrive();
                cx.cancelled().cancelled().await;
                Ok::<_, ToolError>(json!({ "seen": args, "cancelled": ToolContext::new(cx.parts().clone()).cancelled().is_cancelled() }))
            }
        })
        .unwrap();
    let agent = agent(Script::new([calls([("c1", "act", "{}")])]))
        .tool(tool)
        .at(At::Hook, says("adds", |_| Ok(Say::Rewrite(json!({ "n": 1 })))))
        .build()
        .unwrap();
    let run = agent.stream("go");
    latch.reached().await;
    run.cancel("enough");
    // What ends within the grace counts.
    let reply = collect(run).await.1.unwrap();
    assert_eq!(value(&results(&reply.messages)[0]), json!({ "seen": { "n": 1 }, "cancelled": true }));
}

// rule: sdk-runtime CAN-8
#[tokio::test]
async fn an_aborted_thread_can_go_on() {
    let latch = Latch::default();
    let script = Script::new([calls([("c1", "slow", "{}")]), say("fine")]);
    let agent = agent(script.clone()).tool(holding("slow", &latch)).grace(Duration::ZERO).build().unwrap();
    let thread = agent.thread("t");
    let run = thread.stream("go");
    latch.reached().await;
    thread.cancel("enough").await.unwrap();
    assert_eq!(collect(run).await.1.unwrap().finish_reason, FinishReason::Aborted);
    assert_eq!(thread.send("and now?").await.unwrap().text, "fine");
    let last = &script.asked()[1].messages;
    last.check_balance().unwrap();
    assert_eq!(last.last().unwrap().text_of(), "and now?");
}

// ------------------------------------------------------------------------------------------------------------ deadlines

// case: rust-reports F-80
// case: field-reports 148
#[tokio::test(start_paused = true)]
async fn a_tool_has_one_deadline_and_its_result_says_that_the_outcome_is_unknown() {
    let takes = |name: &str, seconds: u64, timeout: Option<u64>| {
        let mut builder = Tool::new(name, "Takes its time.");
        if let Some(timeout) = timeout {
            builder = builder.timeout(Duration::from_secs(timeout));
        }
        let body = move |_: Value, _: ToolContext| async move {
            // paused clock
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            Ok::<_, ToolError>(seconds)
        };
        builder.run_json(body).unwrap()
    };
    let names = ["default", "late", "long", "short"];
    let items = names.iter().map(|name| Item::ToolCall(call_item(name, name, "{}"))).collect();
    let agent = agent(Script::new([items_of(items, FinishReason::ToolCalls), say("done")]))
        .tools([takes("default", 119, None), takes("late", 200, None), takes("long", 655, Some(660)), takes("short", 10, Some(2))])
        .build()
        .unwrap();
    let before = tokio::time::Instant::now();
    let reply = go(&agent).await.1.unwrap();
    let all = results(&reply.messages);
    assert_eq!((value(&all[0]), value(&all[2])), (json!(119), json!(655)), "a tool that asks for 660 s has them");
    let late = failures(&reply.messages);
    assert_eq!(
        (late[0].2.as_str(), late[0].3.as_str()),
        ("TimeoutError", "it did not finish within 120 s and was stopped; its outcome is unknown")
    );
    assert_eq!(late[1].3, "it did not finish within 2 s and was stopped; its outcome is unknown");
    assert_eq!((reply.text.as_str(), before.elapsed().as_secs()), ("done", 655));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_ends_in_its_grace_keeps_its_result() {
    let tool = Tool::new("act", "Saves what it has.")
        .timeout(Duration::from_secs(1))
        .run_json(|_, cx| async move {
            cx.cancelled().cancelled().await;
            Ok::<_, ToolError>("half")
        })
        .unwrap();
    let agent = agent(Script::new([calls([("c1", "act", "{}")]), say("done")])).tool(tool).build().unwrap();
    assert_eq!(value(&results(&go(&agent).await.1.unwrap().messages)[0]), json!("half"));
}

#[tokio::test(start_paused = true)]
async fn the_deadline_of_a_call_stands_still_while_a_person_decides() {
    let tool = Tool::new("act", "Takes a minute.")
        .needs_approval()
        .run_json(|_, _| async {
            // paused clock
            tokio::time::sleep(Duration::from_mins(1)).await;
            Ok::<_, ToolError>("done")
        })
        .unwrap();
    let agent = agent(Script::new([calls([("c1", "act", "{}")]), say("done")])).tool(tool).build().unwrap();
    let waits = agent.thread("t").send("go").await.unwrap();
    tokio::time::advance(Duration::from_hours(72)).await;
    agent.approvals().decide(&waits.pending[0].id, Decision::approve()).await.unwrap();
    let reply = agent.thread("t").resume().await.unwrap();
    assert_eq!(value(&results(&reply.messages)[0]), json!("done"));
}

#[tokio::test]
async fn a_blocking_body_is_abandoned_and_said_to_be_perhaps_still_running() {
    let (release, waits) = std::sync::mpsc::channel::<()>();
    let waiting = Arc::new(Mutex::new(Some(waits)));
    let tool = with_body(Tool::new("act", "Blocks.").timeout(Duration::from_millis(10)), move |_| {
        let waits = waiting.lock().unwrap().take().unwrap();
        let work: toolwright_tool::BlockingWork = Box::new(move || {
            let _ = waits.recv();
            Ok(toolwright_tool::ToolOutput::default())
        });
        Running::Blocking(std::future::ready(Ok(work)).boxed())
    });
    let agent =
        agent(Script::new([calls([("c1", "act", "{}")]), say("done")])).tool(tool).grace(Duration::from_millis(10)).build().unwrap();
    let reply = go(&agent).await.1.unwrap();
    let (_, error, message) = failure(&reply);
    assert_eq!(
        (error.as_str(), message.as_str()),
        ("TimeoutError", "it did not finish within 10 ms and was stopped; its outcome is unknown, and it may still be running")
    );
    drop(release);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_never_yields_is_given_up() {
    let (release, waits) = std::sync::mpsc::channel::<()>();
    let waiting = Arc::new(Mutex::new(waits));
    let tool = Tool::new("act", "Holds its thread.")
        .timeout(Duration::from_millis(10))
        .run_json(move |_, _| {
            let waiting = Arc::clone(&waiting);
            async move {
                // What a body must not do: wait without giving its thread back.
                let _ = waiting.lock().unwrap().recv();
                Ok::<_, ToolError>(())
            }
        })
        .unwrap();
    let script = Script::new([calls([("c1", "act", "{}")]), say("done")]);
    let agent = agent(script).tool(tool).grace(Duration::from_millis(10)).build().unwrap();
    let run = tokio::time::timeout(Duration::from_mins(1), agent.send("go")).await;
    drop(release);
    let reply = run.expect("the run waits for a body that never yields").unwrap();
    let (_, error, message) = failure(&reply);
    assert_eq!(
        (error.as_str(), message.as_str()),
        ("TimeoutError", "`act` did not stop when told to; its outcome is unknown, and it may still be running")
    );
    assert_eq!(reply.text, "done");
}

// -------------------------------------------------------------------------------------------------------- crash, resume

/// A run with text, a batch, a stream, a failure and an approval, as its model answers it.
fn answers(request: &ModelRequest) -> toolwright_runtime::ModelReply {
    let call = |id: &str, name: &str| Item::ToolCall(call_item(id, name, r#"{"n":1}"#));
    match request.step {
        1 => reply(vec![Item::text("Let me see."), call("a", "act"), call("b", "breaks"), call("c", "act")], FinishReason::ToolCalls),
        2 => reply(vec![call("d", "build"), call("e", "asks"), call("f", "unknown")], FinishReason::ToolCalls),
        3 => reply(vec![call("g", "act")], FinishReason::ToolCalls),
        _ => reply(vec![Item::text("All done.")], FinishReason::Stop),
    }
}

fn whole(store: MemoryStore, log: &Log) -> (Agent, impl Fn() -> Vec<u32>) {
    let broken = log.clone();
    let model = Answers::new(answers);
    let breaks = Tool::new("breaks", "Breaks.")
        .run_json(move |_, cx| {
            broken.add(format!("body {}", cx.call_id()));
            async { Err::<Value, _>(ToolError::new("no")) }
        })
        .unwrap();
    let streamed = log.clone();
    let build = with_body(Tool::new("build", "Builds."), move |cx| {
        streamed.add(format!("body {}", cx.call_id()));
        Running::Stream(stream::iter([Ok(json!(1)), Ok(json!(2))]).boxed())
    });
    let asks = logged_with(Tool::new("asks", "Asks.").needs_approval(), log);
    let agent = agent(model.clone()).tools([logged("act", log), breaks, build, asks]).store(store).build().unwrap();
    (agent, move || model.steps())
}

/// Goes on until the thread rests, approving whatever asks.
async fn to_the_end(agent: &Agent) -> toolwright_runtime::Reply {
    loop {
        match agent.thread("t").resume().await {
            Ok(reply) if reply.finish_reason == FinishReason::AwaitingApproval => {}
            Ok(reply) => return reply,
            Err(AgentError::AwaitingApproval { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        for pending in agent.approvals().pending().await.unwrap() {
            agent.approvals().decide(&pending.id, Decision::approve()).await.unwrap();
        }
    }
}

// rule: sdk-tools 5.2/12
// rule: sdk-runtime LOOP-2, sdk-runtime CTX-3
// rule: sdk-runtime DSE-3
// rule: sdk-runtime DUR-8, sdk-runtime DUR-9
#[tokio::test]
async fn after_a_crash_at_any_record_nothing_recorded_is_done_again_and_the_end_is_the_same() {
    let (store, log) = (MemoryStore::new(), Log::default());
    let (agent, _) = whole(store.clone(), &log);
    assert_eq!(agent.thread("t").send("go").await.unwrap().finish_reason, FinishReason::AwaitingApproval);
    let expected = to_the_end(&agent).await.messages;
    expected.check_balance().unwrap();
    assert_eq!(results(&expected).len(), 7);
    let records = journal(&store, &id()).await;
    let first = records.iter().position(|record| matches!(record.body, RecordBody::StepStarted { .. })).unwrap();
    for cut in first + 1..records.len() {
        let (prefix, log) = (&records[..cut], Log::default());
        let (agent, asked) = whole(store_of(&id(), prefix).await, &log);
        let reply = to_the_end(&agent).await;
        assert_eq!(reply.messages, expected, "cut after {cut}");
        let replied: BTreeSet<u32> = prefix
            .iter()
            .filter_map(|record| match &record.body {
                RecordBody::ModelReplied { step, .. } => Some(*step),
                _ => None,
            })
            .collect();
        let again: Vec<u32> = asked().into_iter().filter(|step| replied.contains(step)).collect();
        assert_eq!(again, Vec::<u32>::new(), "a recorded reply is asked for again, cut after {cut}");
        let done: BTreeSet<String> = prefix
            .iter()
            .filter_map(|record| match &record.body {
                RecordBody::CallDone { call, .. } => Some(format!("body {call}")),
                _ => None,
            })
            .collect();
        let ran = log.all();
        assert!(ran.iter().all(|body| !done.contains(body)), "a recorded call runs again, cut after {cut}: {ran:?}");
        assert_eq!(ran.iter().collect::<BTreeSet<_>>().len(), ran.len(), "a call runs twice, cut after {cut}: {ran:?}");
        assert!(matches!(agent.thread("t").resume().await.unwrap_err(), AgentError::NothingToResume { .. }));
    }
}

// rule: sdk-runtime LOOP-2, sdk-runtime CTX-3
// rule: sdk-runtime DUR-3
#[tokio::test]
async fn unanswered_calls_run_before_new_input_can_come() {
    let (store, log) = (MemoryStore::new(), Log::default());
    let script = Script::new([calls([("c1", "act", "{}")]), say("done")]);
    agent(script).tool(echo("act")).store(store.clone()).build().unwrap().thread("t").send("go").await.unwrap();
    let records = journal(&store, &id()).await;
    let cut = records.iter().position(|record| matches!(record.body, RecordBody::ModelReplied { .. })).unwrap();
    let script = Script::new([say("done"), say("later")]);
    let agent = agent(script.clone()).tool(logged("act", &log)).store(store_of(&id(), &records[..=cut]).await).build().unwrap();
    let thread = agent.thread("t");
    let error = thread.send("stop, do X").await.unwrap_err();
    assert_eq!((error.code(), log.len(), script.times()), ("TOOLWRIGHT_SESSION_TURN_PENDING", 0, 0));
    thread.resume().await.unwrap();
    assert_eq!(log.all(), ["body c1"]);
    assert_eq!(script.asked()[0].messages.last().unwrap().results().count(), 1, "the model is first asked when the results are there");
    assert_eq!(thread.send("stop, do X").await.unwrap().text, "later");
}

/// The journal of a call that was running when the process died, and an agent that finds it.
async fn interrupted(builder: toolwright_tool::ToolBuilder, log: &Log) -> (Agent, Arc<Script>) {
    let store = MemoryStore::new();
    let script = Script::new([calls([("c1", "act", r#"{"n":1}"#)]), say("done")]);
    agent(script).tool(echo("act")).store(store.clone()).build().unwrap().thread("t").send("go").await.unwrap();
    let records = journal(&store, &id()).await;
    let cut = records.iter().position(|record| matches!(record.body, RecordBody::CallExecuting { .. })).unwrap();
    let script = Script::new([say("done")]);
    let told = log.clone();
    let tool = builder
        .run_json(move |args, cx| {
            told.add(format!("body {} attempt {}", cx.call_id(), cx.attempt()));
            async move { Ok::<_, ToolError>(args) }
        })
        .unwrap();
    (agent(script.clone()).tool(tool).store(store_of(&id(), &records[..=cut]).await).build().unwrap(), script)
}

// rule: sdk-tools 6/5, sdk-tools 5.2/12
// rule: sdk-runtime DUR-10
#[tokio::test]
async fn an_interrupted_call_runs_again_under_its_id_where_that_is_harmless_or_allowed() {
    for builder in [
        Tool::new("act", "Acts."),
        Tool::new("act", "Reads.").read_only().on_interrupt(OnInterrupt::Fail),
        Tool::new("act", "Sets.").destructive().idempotent(),
        Tool::new("act", "Acts.").on_interrupt(OnInterrupt::Rerun),
    ] {
        let log = Log::default();
        let (agent, _) = interrupted(builder, &log).await;
        let reply = agent.thread("t").resume().await.unwrap();
        assert_eq!((log.all(), value(&results(&reply.messages)[0])), (vec!["body c1 attempt 2".to_owned()], json!({ "n": 1 })));
    }
}

#[tokio::test]
async fn an_interrupted_call_may_fail_with_its_outcome_unknown() {
    let log = Log::default();
    let (agent, _) = interrupted(Tool::new("act", "Acts.").on_interrupt(OnInterrupt::Fail), &log).await;
    let reply = agent.thread("t").resume().await.unwrap();
    let (kind, error, message) = failure(&reply);
    assert_eq!((kind, error.as_str(), log.len(), reply.text.as_str()), (ToolFailureKind::Execution, "InterruptedError", 0, "done"));
    assert!(message.contains("its outcome is unknown"), "{message}");
}

#[tokio::test]
async fn an_interrupted_destructive_call_asks_and_runs_only_if_approved() {
    for builder in [|| Tool::new("act", "Deletes.").destructive(), || Tool::new("act", "Acts.").on_interrupt(OnInterrupt::Ask)] {
        for approve in [true, false] {
            let log = Log::default();
            let (agent, script) = interrupted(builder(), &log).await;
            let (events, waits) = collect(agent.thread("t").resume_stream()).await;
            let waits = waits.unwrap();
            assert_eq!((waits.finish_reason, log.len(), script.times()), (FinishReason::AwaitingApproval, 0, 0));
            assert!(waits.pending[0].reason.as_deref().unwrap().starts_with("outcome unknown"));
            assert_eq!(&*waits.pending[0].arguments, r#"{"n":1}"#);
            assert!(brief(&events).contains(&"approval.requested c1".to_owned()));
            let decision = if approve { Decision::approve() } else { Decision::reject() };
            agent.approvals().decide(&waits.pending[0].id, decision).await.unwrap();
            let (events, reply) = collect(agent.thread("t").resume_stream()).await;
            let reply = reply.unwrap();
            if approve {
                assert_eq!((log.all(), value(&results(&reply.messages)[0])), (vec!["body c1 attempt 2".to_owned()], json!({ "n": 1 })));
                // Whatever is shown of its start shows its arguments.
                for event in &events {
                    if let EventKind::ToolStart { args, .. } | EventKind::ToolResume { args, .. } = &event.kind {
                        assert_eq!(args, &json!({ "n": 1 }));
                    }
                }
            } else {
                assert_eq!((failure(&reply).0, log.len()), (ToolFailureKind::Rejected, 0));
            }
        }
    }
}

// rule: sdk-tools 8.1/6, sdk-tools 34/1
#[tokio::test]
async fn a_crash_in_a_stream_begins_it_anew() {
    let store = MemoryStore::new();
    let tool = || streaming(Tool::new("build", "Builds."), vec![json!(1), json!(2)]);
    let script = Script::new([calls([("c1", "build", "{}")]), say("done")]);
    agent(script).tool(tool()).store(store.clone()).build().unwrap().thread("t").send("go").await.unwrap();
    let records = journal(&store, &id()).await;
    let cut = records.iter().position(|record| matches!(record.body, RecordBody::CallExecuting { .. })).unwrap();
    let agent = agent(Script::new([say("done")])).tool(tool()).store(store_of(&id(), &records[..=cut]).await).build().unwrap();
    let (events, _) = collect(agent.thread("t").resume_stream()).await;
    let of_call: Vec<String> = brief(&events).into_iter().filter(|event| event.contains("c1")).collect();
    assert_eq!(of_call, ["tool.start c1", "tool.start c1", "tool.partial c1 0", "tool.partial c1 1", "tool.done c1"]);
}

// rule: sdk-runtime LOOP-11
// rule: sdk-runtime DUR-14
#[tokio::test]
async fn a_resumed_run_keeps_its_caller_and_its_metadata() {
    let store = MemoryStore::new();
    let log = Log::default();
    let told = log.clone();
    let tool = Tool::new("act", "Tells.")
        .run_json(move |_, cx| {
            told.add(cx.principal().map(|who| who.id.clone()).unwrap_or_default());
            async { Ok::<_, ToolError>(1) }
        })
        .unwrap();
    let make = |script| agent(script).tool(tool.clone()).store(store.clone()).build().unwrap();
    let first = make(Script::new([calls([("c1", "act", "{}")]), say("done")]));
    let caller = || toolwright_tool::Identity::new("ada");
    first.thread("t").principal(caller()).metadata(map(&json!({ "order": 7 }))).send("go").await.unwrap();
    log.take();
    let records = journal(&store, &id()).await;
    let cut = records.iter().position(|record| matches!(record.body, RecordBody::CallGated { .. })).unwrap();
    let kept = store_of(&id(), &records[..=cut]).await;
    let second = agent(Script::new([say("done")])).tool(tool).store(kept.clone()).build().unwrap();
    let resumed = second.thread("t").principal(toolwright_tool::Identity::new("eve")).metadata(map(&json!({ "order": 8 })));
    resumed.resume().await.unwrap();
    assert_eq!(log.all(), ["ada"]);
    let starts: Vec<Value> = journal(&kept, &id())
        .await
        .iter()
        .filter(|record| matches!(record.body, RecordBody::RunStarted { .. }))
        .map(|record| serde_json::to_value(&**record).unwrap())
        .collect();
    assert_eq!((starts.len(), &starts[0]["metadata"], &starts[0]["principal"]["id"]), (1, &json!({ "order": 7 }), &json!("ada")));
}

#[tokio::test]
async fn a_thread_with_an_unknown_record_can_be_read_and_not_moved() {
    let store = MemoryStore::new();
    let script = Script::new([say("done"), say("more")]);
    agent(script.clone()).store(store.clone()).build().unwrap().thread("t").send("go").await.unwrap();
    let mut records = journal(&store, &id()).await;
    let head = records.len() as u64;
    records.push(Arc::new(Record {
        seq: Seq(head + 1),
        at: Timestamp(0),
        run: Some(RunId::new("r")),
        body: RecordBody::Unknown(json!({ "kind": "call.teleported" })),
    }));
    let later = store_of(&id(), &records).await;
    let agent = agent(script.clone()).store(later.clone()).build().unwrap();
    let thread = agent.thread("t");
    for error in [thread.send("go").await.unwrap_err(), thread.resume().await.unwrap_err(), thread.invoke("act", "{}").await.unwrap_err()] {
        assert_eq!(error, AgentError::UnknownRecord { thread: id(), kind: "call.teleported".to_owned() });
    }
    assert_eq!((thread.history().await.unwrap().len(), journal(&later, &id()).await.len() as u64, script.times()), (2, head + 1, 1));
}

// rule: sdk-tools 36/18
#[tokio::test]
async fn two_runs_cannot_move_one_thread() {
    let latch = Latch::default();
    let store = MemoryStore::new();
    let make = |script| agent(script).tool(holding("slow", &latch)).store(store.clone()).build().unwrap();
    let (first, second) = (make(Script::new([calls([("c1", "slow", "{}")]), say("done")])), make(Script::new([say("other")])));
    let run = first.thread("t").stream("go");
    latch.reached().await;
    for error in [
        second.thread("t").send("go").await.unwrap_err(),
        first.thread("t").send("go").await.unwrap_err(),
        second.thread("t").resume().await.unwrap_err(),
    ] {
        assert_eq!(error.code(), "TOOLWRIGHT_SESSION_BUSY");
        assert_eq!(error, AgentError::Store(StoreError::Busy { thread: id() }));
    }
    // Another thread is free.
    assert_eq!(second.thread("u").send("go").await.unwrap().text, "other");
    latch.release();
    assert_eq!(collect(run).await.1.unwrap().text, "done");
}

/// A store that fails at its n-th append.
#[derive(Clone)]
struct Fails {
    inner: MemoryStore,
    left: Arc<AtomicUsize>,
}

impl StoreLayer for Fails {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn append<'a>(&'a self, claim: &'a dyn Claim, expected: Seq, append: Append) -> toolwright_runtime::Answer<'a, ()> {
        if self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_err() {
            return std::future::ready(Err(StoreError::Failed { message: "the disk is full".to_owned() })).boxed();
        }
        self.inner.append(claim, expected, append)
    }
}

#[tokio::test]
async fn a_store_that_fails_ends_the_run_and_begins_no_body_that_is_not_recorded() {
    let log = Log::default();
    for appends in 0..20 {
        let inner = MemoryStore::new();
        let store = Fails { inner: inner.clone(), left: Arc::new(AtomicUsize::new(appends)) };
        log.take();
        let agent = agent(Script::new([calls([("a", "act", "{}"), ("b", "act", "{}")]), say("done")]))
            .tool(logged("act", &log))
            .store(store)
            .build()
            .unwrap();
        let (_, reply) = collect(agent.thread("t").stream("go")).await;
        let records = journal(&inner, &id()).await;
        let recorded: BTreeSet<String> = records
            .iter()
            .filter_map(|record| match &record.body {
                RecordBody::CallExecuting { call, .. } => Some(format!("body {call}")),
                _ => None,
            })
            .collect();
        assert!(log.all().iter().all(|body| recorded.contains(body)), "after {appends} appends: {:?} of {recorded:?}", log.all());
        match reply {
            Ok(reply) => {
                assert_eq!(reply.text, "done");
                return;
            }
            Err(error) => {
                assert_eq!((error.code(), error.to_string().as_str()), ("TOOLWRIGHT_STORAGE_FAILED", "the store failed: the disk is full"));
            }
        }
        // The thread is free, and goes on from what is durable where the store takes it again.
        let again = common::agent(Answers::new(|_| reply_done())).tool(logged("act", &log)).store(inner).build().unwrap();
        if records.is_empty() {
            continue;
        }
        match again.thread("t").resume().await {
            Ok(reply) => reply.messages.check_balance().unwrap(),
            Err(error) => assert!(matches!(error, AgentError::NothingToResume { .. }), "{error}"),
        }
    }
    panic!("the run never got through");
}

fn reply_done() -> toolwright_runtime::ModelReply {
    reply(vec![Item::text("done")], FinishReason::Stop)
}

#[tokio::test]
async fn an_interrupted_thread_can_be_cancelled_where_nobody_moves_it() {
    let log = Log::default();
    let (agent, script) = interrupted(Tool::new("act", "Acts."), &log).await;
    let thread = agent.thread("t");
    thread.cancel("never mind").await.unwrap();
    let transcript = thread.history().await.unwrap();
    transcript.check_balance().unwrap();
    assert_eq!(failures(&transcript)[0].2, "InterruptedError");
    assert_eq!((thread.send("go").await.unwrap().text.as_str(), log.len(), script.times()), ("done", 0, 1));
}

#[test]
fn a_run_outside_an_async_runtime_is_refused() {
    let agent = agent(Script::new([say("done")])).build().unwrap();
    let run = agent.stream("go");
    assert!(matches!(run.now_or_never(), Some(Err(AgentError::RuntimeStopped))));
}
