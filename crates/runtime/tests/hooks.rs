//! Hooks: what they see, what they may say, and what that leaves behind.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::*;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Map, json};
use toolwright_core::{Decision, EventKind, FinishReason, Item, Message, Outcome, ToolFailureKind, ToolOutput, Usage};
use toolwright_runtime::{
    AfterCall, BeforeCall, BeforeGenerate, GenerateContext, Hook, HookCall, Model, ModelEvent, ModelReply, ModelRequest,
};
use toolwright_tool::{Identity, Tool, ToolError};

type Before = dyn Fn(&HookCall<'_>) -> Result<BeforeCall, ToolError> + Send + Sync;
type After = dyn Fn(&HookCall<'_>, &Outcome) -> Result<AfterCall, ToolError> + Send + Sync;
type Generate = dyn Fn(&GenerateContext<'_>, &ModelRequest) -> Result<BeforeGenerate, ToolError> + Send + Sync;
type Replied = dyn Fn(&GenerateContext<'_>, &ModelReply) -> Result<(), ToolError> + Send + Sync;

/// A hook of closures.
#[derive(Default)]
struct Points {
    name: String,
    before: Option<Box<Before>>,
    after: Option<Box<After>>,
    generate: Option<Box<Generate>>,
    replied: Option<Box<Replied>>,
}

impl Points {
    fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    fn before(mut self, says: impl Fn(&HookCall<'_>) -> Result<BeforeCall, ToolError> + Send + Sync + 'static) -> Self {
        self.before = Some(Box::new(says));
        self
    }

    fn after(mut self, says: impl Fn(&HookCall<'_>, &Outcome) -> Result<AfterCall, ToolError> + Send + Sync + 'static) -> Self {
        self.after = Some(Box::new(says));
        self
    }

    fn generate(
        mut self,
        says: impl Fn(&GenerateContext<'_>, &ModelRequest) -> Result<BeforeGenerate, ToolError> + Send + Sync + 'static,
    ) -> Self {
        self.generate = Some(Box::new(says));
        self
    }

    fn replied(mut self, says: impl Fn(&GenerateContext<'_>, &ModelReply) -> Result<(), ToolError> + Send + Sync + 'static) -> Self {
        self.replied = Some(Box::new(says));
        self
    }
}

impl Hook for Points {
    fn name(&self) -> &str {
        &self.name
    }

    fn pre_tool_call<'a>(&'a self, call: &'a HookCall<'a>) -> BoxFuture<'a, Result<BeforeCall, ToolError>> {
        std::future::ready(self.before.as_ref().map_or(Ok(BeforeCall::Pass), |says| says(call))).boxed()
    }

    fn post_tool_call<'a>(&'a self, call: &'a HookCall<'a>, outcome: &'a Outcome) -> BoxFuture<'a, Result<AfterCall, ToolError>> {
        std::future::ready(self.after.as_ref().map_or(Ok(AfterCall::Keep), |says| says(call, outcome))).boxed()
    }

    fn pre_generate<'a>(
        &'a self,
        cx: &'a GenerateContext<'a>,
        request: &'a ModelRequest,
    ) -> BoxFuture<'a, Result<BeforeGenerate, ToolError>> {
        std::future::ready(self.generate.as_ref().map_or(Ok(BeforeGenerate::Pass), |says| says(cx, request))).boxed()
    }

    fn post_generate<'a>(&'a self, cx: &'a GenerateContext<'a>, reply: &'a ModelReply) -> BoxFuture<'a, Result<(), ToolError>> {
        std::future::ready(self.replied.as_ref().map_or(Ok(()), |says| says(cx, reply))).boxed()
    }
}

fn rewrites(name: &str, log: &Log, value: serde_json::Value) -> Points {
    let (log, said) = (log.clone(), name.to_owned());
    Points::named(name).before(move |call| {
        log.add(format!("{said} {}", call.cx().args().text()));
        Ok(BeforeCall::Rewrite(value.clone()))
    })
}

// rule: sdk-tools 17.2/1, sdk-tools 17.2/2, sdk-tools 17.2/5
#[tokio::test]
async fn hooks_run_in_order_and_each_sees_what_the_one_before_returned() {
    let log = Log::default();
    let body = log.clone();
    let tool = Tool::new("act", "Acts.")
        .run_json(move |args, _| {
            body.add(format!("body {args}"));
            async move { Ok::<_, ToolError>(args) }
        })
        .unwrap();
    let agent = agent(Script::new([calls([("c1", "act", r#"{"n":1}"#)]), say("done")]))
        .tool(tool)
        .hook(rewrites("one", &log, json!({ "n": 2 })))
        .hook(rewrites("two", &log, json!({ "n": 3 })))
        .build()
        .unwrap();
    let (events, reply) = go(&agent).await;
    reply.unwrap();
    assert_eq!(log.all(), [r#"one {"n":1}"#, r#"two {"n":2}"#, r#"body {"n":3}"#]);
    assert!(events.iter().any(|event| matches!(&event.kind, EventKind::ToolStart { args, .. } if *args == json!({ "n": 3 }))));
}

// rule: sdk-tools 17.2/3, sdk-tools 17.2/4
// case: rust-reports H-88
#[tokio::test]
async fn a_denial_or_an_answer_keeps_the_body_and_later_hooks_from_running() {
    for denies in [true, false] {
        let log = Log::default();
        let first = Points::named("first").before(move |_| {
            Ok(if denies { BeforeCall::Deny("at night".to_owned()) } else { BeforeCall::Answer(ToolOutput::text("cached")) })
        });
        let (seen, later) = (log.clone(), log.clone());
        let second = Points::named("second")
            .before(move |_| {
                seen.add("second");
                Ok(BeforeCall::Pass)
            })
            .after(move |_, outcome| {
                later.add(if matches!(outcome, Outcome::Done { .. }) { "after done" } else { "after failed" });
                Ok(AfterCall::Keep)
            });
        let agent = agent(Script::new([calls([("c1", "act", "{}")]), say("done")]))
            .tool(logged("act", &log))
            .hooks([Arc::new(first) as Arc<dyn Hook>, Arc::new(second)])
            .build()
            .unwrap();
        let (events, reply) = go(&agent).await;
        let reply = reply.unwrap();
        if denies {
            let (kind, error, message) = failure(&reply);
            assert_eq!((kind, error.as_str()), (ToolFailureKind::Denied, "ToolDeniedError"));
            assert_eq!((message.as_str(), log.all()), ("`act` was denied: at night", vec!["after failed".to_owned()]));
            assert!(brief(&events).contains(&"tool.error c1 ToolDeniedError".to_owned()));
        } else {
            assert_eq!((value(&results(&reply.messages)[0]), log.all()), (json!("cached"), vec!["after done".to_owned()]));
            let by = events.iter().find_map(|event| match &event.kind {
                EventKind::ToolDone { replaced_by_hook, .. } => replaced_by_hook.clone(),
                _ => None,
            });
            assert_eq!(by.as_deref(), Some("first"));
        }
    }
}

// rule: sdk-tools 17.2/6, sdk-tools 17.3/5, sdk-tools 8.1/11
#[tokio::test]
async fn a_replaced_result_is_the_only_one_and_later_hooks_see_it() {
    let log = Log::default();
    let seen = log.clone();
    let show = |outcome: &Outcome| match outcome {
        Outcome::Done { output } => serde_json::to_string(output.parts()).unwrap(),
        Outcome::Failed { failure } => failure.message.clone(),
    };
    let store = toolwright_runtime::MemoryStore::new();
    let agent = agent(Script::new([calls([("c1", "act", r#"{"secret":"s3cr3t"}"#)]), say("done")]))
        .tool(echo("act"))
        .hook(Points::named("keeps").after(|_, _| Ok(AfterCall::Keep)))
        .hook(Points::named("masks").after(|_, _| Ok(AfterCall::Replace(Outcome::done(ToolOutput::text("masked"))))))
        .hook(Points::named("sees").after(move |_, outcome| {
            seen.add(show(outcome));
            Ok(AfterCall::Keep)
        }))
        .store(store.clone())
        .build()
        .unwrap();
    let (events, reply) = collect(agent.thread("t").stream("go")).await;
    assert_eq!(value(&results(&reply.unwrap().messages)[0]), json!("masked"));
    assert_eq!(log.all(), [r#"[{"type":"text","text":"masked"}]"#]);
    assert!(events.iter().any(|event| {
        matches!(&event.kind, EventKind::ToolDone { replaced_by_hook: Some(by), result, .. } if by == "masks" && *result == json!("masked"))
    }));
    let done = journal(&store, &toolwright_core::ThreadId::new("t").unwrap()).await;
    let done = done.iter().find(|record| matches!(record.body, toolwright_core::RecordBody::CallDone { .. })).unwrap();
    assert!(!serde_json::to_string(&**done).unwrap().contains("s3cr3t"));
}

// rule: sdk-tools 17.2/7, sdk-tools 17.3/1
#[tokio::test]
async fn a_hook_that_throws_or_panics_ends_the_run_wherever_it_stands() {
    for (point, panics) in [(0, false), (1, false), (2, false), (3, false), (0, true), (1, true), (2, true), (3, true)] {
        let log = Log::default();
        let fails = move |here: i32| {
            if here != point {
                return Ok(());
            }
            assert!(!panics, "oh");
            Err(ToolError::new("the disk is full").named("DiskError"))
        };
        let hook = Points::named("audit")
            .before(move |_| fails(0).map(|()| BeforeCall::Pass))
            .after(move |_, _| fails(1).map(|()| AfterCall::Keep))
            .generate(move |_, _| fails(2).map(|()| BeforeGenerate::Pass))
            .replied(move |_, _| fails(3));
        let script = Script::new([calls([("c1", "act", "{}")]), say("done")]);
        let agent = agent(script.clone()).tool(logged("act", &log)).hook(hook).build().unwrap();
        let (events, reply) = go(&agent).await;
        let error = reply.unwrap_err();
        let said = if panics { "it panicked: oh" } else { "the disk is full" };
        assert_eq!((error.code(), error.to_string()), ("TOOLWRIGHT_AGENT_EXECUTION_FAILED", format!("the hook `audit` failed: {said}")));
        assert_eq!((script.times(), log.len()), (usize::from(point != 2), usize::from(point == 1)), "{point}");
        let name = if panics { "error PanicError" } else { "error DiskError" };
        let all = brief(&events);
        assert_eq!(all[all.len() - 2..], [name, "run.done error"]);
    }
}

// rule: sdk-tools 17.2/8, sdk-tools 17.2/9
#[tokio::test]
async fn hooks_stand_around_every_call_and_know_an_approved_one() {
    let count = Arc::new(AtomicUsize::new(0));
    let log = Log::default();
    let (counting, seen) = (Arc::clone(&count), log.clone());
    let hook = Points::named("counts").before(move |call| {
        if !call.resumed_after_approval() {
            counting.fetch_add(1, Ordering::SeqCst);
        }
        let metadata = call.metadata().get("ticket").cloned().unwrap_or_default();
        let who = call.cx().principal().map(|who| who.id.clone()).unwrap_or_default();
        seen.add(format!("{} {} {who} {metadata}", call.spec().name, call.resumed_after_approval()));
        Ok(BeforeCall::Pass)
    });
    let agent = agent(Script::new([calls([("c1", "act", "{}")]), say("done")]))
        .tool(logged_with(Tool::new("act", "Acts.").needs_approval(), &Log::default()))
        .tool(echo("free"))
        .hook(hook)
        .build()
        .unwrap();
    let mut metadata = Map::new();
    metadata.insert("ticket".to_owned(), json!(7));
    let thread = agent.thread("t").principal(Identity::new("ada")).metadata(metadata);
    let waits = thread.send("go").await.unwrap();
    agent.approvals().decide(&waits.pending[0].id, Decision::approve()).await.unwrap();
    agent.thread("t").resume().await.unwrap();
    agent.invoke("free", "{}").await.unwrap();
    assert_eq!(log.all(), ["act false ada 7", "act true ada null", "free false  null"]);
    assert_eq!(count.load(Ordering::SeqCst), 2);
}

// rule: sdk-tools 17.2/10, sdk-tools 17.3/4
#[tokio::test]
async fn of_two_hooks_with_one_name_the_later_stands_in_the_place_of_the_earlier() {
    let log = Log::default();
    let named = |name: &str, says: &'static str| {
        let log = log.clone();
        Points::named(name).before(move |_| {
            log.add(says);
            Ok(BeforeCall::Pass)
        })
    };
    let agent = agent(Script::new([calls([("c1", "act", "{}")]), say("done")]))
        .tool(echo("act"))
        .hook(named("a", "first a"))
        .hook(named("b", "b"))
        .hook(named("a", "second a"))
        .build()
        .unwrap();
    go(&agent).await.1.unwrap();
    assert_eq!(log.all(), ["second a", "b"]);
}

// rule: sdk-tools 17.3/2, sdk-tools 17.3/3
#[tokio::test]
async fn a_rewrite_that_does_not_hold_or_differs_from_what_was_approved_is_refused() {
    let log = Log::default();
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
    for (resumed, value) in [(false, json!({ "n": "many" })), (true, json!({ "n": 2 }))] {
        let builder = Tool::from_schema("act", "Acts.", schema.clone()).unwrap();
        let builder = if resumed { builder.needs_approval() } else { builder };
        let hook = Points::named("spoils").before(move |call| {
            Ok(if call.resumed_after_approval() == resumed { BeforeCall::Rewrite(value.clone()) } else { BeforeCall::Pass })
        });
        let agent = agent(Script::new([calls([("c1", "act", r#"{"n":1}"#)]), say("done")]))
            .tool(logged_with(builder, &log))
            .hook(hook)
            .build()
            .unwrap();
        let mut reply = agent.thread("t").send("go").await.unwrap();
        if resumed {
            agent.approvals().decide(&reply.pending[0].id, Decision::approve()).await.unwrap();
            reply = agent.thread("t").resume().await.unwrap();
        }
        let (kind, _, message) = failure(&reply);
        assert_eq!((kind, log.len()), (ToolFailureKind::Validation, 0));
        assert!(message.contains("(from `spoils`)"), "{message}");
    }
}

// rule: sdk-tools 17.2/14
#[tokio::test]
async fn a_hook_may_change_what_the_model_is_sent_and_nothing_else() {
    let hook = Points::named("brief").generate(|cx, request| {
        assert_eq!((cx.agent(), cx.step(), cx.thread_id().is_some(), cx.run_id().is_some()), ("agent", request.step, true, true));
        let mut changed = request.clone().with_system("Be brief.").without_tools(&["danger"]);
        changed.messages.push(Arc::new(Message::text(toolwright_core::Author::System, "The user is in Oslo.")));
        changed.step = 99;
        Ok(BeforeGenerate::Request(Box::new(changed)))
    });
    let last = Points::named("last").generate(|_, request| {
        assert!(request.instructions.ends_with("\n\nBe brief."));
        Ok(BeforeGenerate::Pass)
    });
    let script = Script::new([say("hello")]);
    let agent = agent(script.clone()).instructions("Help.").tool(echo("act")).tool(echo("danger")).hook(hook).hook(last).build().unwrap();
    let reply = agent.send("Hi").await.unwrap();
    let asked = script.asked().remove(0);
    assert_eq!((&*asked.instructions, asked.tools.len(), asked.step), ("Help.\n\nBe brief.", 1, 1));
    let texts: Vec<String> = asked.messages.iter().map(|message| message.text_of()).collect();
    assert_eq!(texts, ["Hi", "The user is in Oslo."]);
    // The transcript is as it was.
    assert_eq!((reply.messages.len(), reply.text.as_str()), (2, "hello"));

    // A request that can't be sent is the hook's failure.
    let spoils = Points::named("spoils").generate(|_, request| {
        let mut changed = request.clone();
        let call = Item::ToolCall(call_item("c9", "act", "{}"));
        changed.messages.push(Arc::new(Message { author: toolwright_core::Author::SideA, items: vec![call], metadata: Map::new() }));
        Ok(BeforeGenerate::Request(Box::new(changed)))
    });
    let script = Script::new([say("hello")]);
    let agent = self::agent(script.clone()).hook(spoils).build().unwrap();
    let error = agent.send("Hi").await.unwrap_err().to_string();
    assert!(error.starts_with("the hook `spoils` failed: the transcript is not balanced") && script.times() == 0, "{error}");
}

/// A hook that asks a model at every point.
struct AsksAround(Arc<Script>);

impl AsksAround {
    fn question() -> ModelRequest {
        ModelRequest::asking("Answer with yes.", [Message::human("?")].into_iter().collect())
    }
}

impl Hook for AsksAround {
    fn name(&self) -> &'static str {
        "asks-around"
    }

    fn pre_tool_call<'a>(&'a self, call: &'a HookCall<'a>) -> BoxFuture<'a, Result<BeforeCall, ToolError>> {
        async move {
            call.generate(&*self.0, Self::question()).await?;
            Ok(BeforeCall::Pass)
        }
        .boxed()
    }

    fn post_tool_call<'a>(&'a self, call: &'a HookCall<'a>, _outcome: &'a Outcome) -> BoxFuture<'a, Result<AfterCall, ToolError>> {
        async move {
            call.generate(&*self.0, Self::question()).await?;
            Ok(AfterCall::Keep)
        }
        .boxed()
    }

    fn pre_generate<'a>(
        &'a self,
        cx: &'a GenerateContext<'a>,
        _request: &'a ModelRequest,
    ) -> BoxFuture<'a, Result<BeforeGenerate, ToolError>> {
        async move {
            cx.generate(&*self.0, Self::question()).await?;
            Ok(BeforeGenerate::Pass)
        }
        .boxed()
    }
}

#[tokio::test]
async fn what_hooks_ask_of_models_counts_for_the_run() {
    let usage = |n: u64| Some(Usage { input_tokens: n, output_tokens: 1, cost_usd: Some(0.5), ..Usage::default() });
    let answer = |usage, items| stream_of(vec![ModelEvent::Done(ModelReply { usage, ..reply(items, FinishReason::Stop) })]);
    let beside = Script::new((0..4).map(|_| answer(usage(100), vec![Item::text("yes")])));
    let main =
        Script::new([answer(usage(1), vec![Item::ToolCall(call_item("c1", "act", "{}"))]), answer(usage(2), vec![Item::text("done")])]);
    assert_eq!(beside.info().model, "script");
    let agent = agent(main).tool(echo("act")).hook(AsksAround(beside.clone())).build().unwrap();
    let (events, reply) = go(&agent).await;
    let used = reply.unwrap().usage.unwrap();
    assert_eq!((beside.times(), used.input_tokens, used.output_tokens, used.cost_usd), (4, 403, 6, Some(3.0)));
    let asked = beside.asked().remove(0);
    assert!(asked.thread.is_some() && asked.run.is_some());
    let done = events.iter().find_map(|event| match &event.kind {
        EventKind::RunDone { usage: Some(usage), .. } => usage.model_calls,
        _ => None,
    });
    assert_eq!(done, Some(6));
}
