//! Forks: a thread that goes on from any place in another one's past.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;

use common::*;
use futures_util::{StreamExt, stream};
use serde_json::json;
use toolwright_core::{
    ApprovalId, Author, CallId, CallOrigin, Decision, FinishReason, Item, Message, Record, RecordBody, Seq, Thread, ThreadId, ToolOutput,
    Transcript,
};
use toolwright_runtime::{
    Agent, AgentError, ForkAt, ForkPatch, MemoryStore, Model, ModelError, ModelEvent, ModelRequest, Reply, Shelf, Store, ThreadHandle,
    ThreadStatus,
};
use toolwright_tool::{Identity, Tool, ToolContext, ToolError};

fn id() -> ThreadId {
    ThreadId::new("t").unwrap()
}

fn texts(transcript: &Transcript) -> Vec<String> {
    transcript.iter().map(|message| message.text_of()).filter(|text| !text.is_empty()).collect()
}

/// The tools of every agent here: `act` and `ask` log their bodies, `wait` waits, `fail` fails, `deny` is refused by a rule.
fn with_tools(model: impl Model, log: &Log, latch: &Latch, store: &MemoryStore) -> Agent {
    let ask = logged_with(Tool::new("ask", "Asks first.").needs_approval(), log);
    let (body, held) = (log.clone(), latch.clone());
    let wait = Tool::new("wait", "Waits.").run_json(move |args, cx: ToolContext| {
        body.add(format!("body {}", cx.call_id()));
        let held = held.clone();
        async move {
            held.hold().await;
            Ok::<_, ToolError>(args)
        }
    });
    let rule = says("no", |call| Ok(if call.cx.tool_name() == "deny" { Say::Deny(None) } else { Say::Pass }));
    agent(model)
        .tool(logged("act", log))
        .tool(logged("deny", log))
        .tool(ask)
        .tool(wait.unwrap())
        .tool(failing("fail", ToolError::new("broken")))
        .at(At::Rule, rule)
        .max_steps(20)
        .store(store.clone())
        .build()
        .unwrap()
}

fn one(id: &str, name: &str) -> Item {
    Item::ToolCall(call_item(id, name, "{}"))
}

/// A journal with all that can happen: a batch with a failure, a refusal and an approval; steering while calls run and while the
/// model is silent; input that is queued; a run that fails; a direct call; a last run.
async fn rich(store: &MemoryStore) -> Vec<Arc<Record>> {
    let (log, latch) = (Log::default(), Latch::default());
    let batch = vec![Item::text("I look."), one("a", "act"), one("x", "fail"), one("d", "deny"), one("b", "ask")];
    let held = latch.clone();
    let writes: Answer = Box::new(move |_| {
        let rest = async move {
            held.hold().await;
            stream::iter([Ok(ModelEvent::Done(reply(vec![Item::text("Nearly.")], FinishReason::Stop)))])
        };
        stream::iter([Ok(ModelEvent::TextDelta("Near".to_owned()))]).chain(stream::once(rest).flatten()).boxed()
    });
    let script = Script::new([
        items_of(batch, FinishReason::ToolCalls),
        items_of(vec![one("c", "wait"), one("e", "wait")], FinishReason::ToolCalls),
        then_silence(vec![]),
        writes,
        say("There."),
        fails(ModelError::new("test", "overloaded")),
        say("Last."),
    ]);
    let agent = with_tools(script.clone(), &log, &latch, store);
    let thread = agent.thread("t").principal(Identity::new("ada"));
    let paused = thread.send("first").await.unwrap();
    agent.approvals().decide(&paused.pending[0].id, Decision::approve()).await.unwrap();
    let run = thread.resume_stream();
    latch.reached().await;
    latch.reached().await;
    run.steer("rather").await.unwrap();
    latch.release();
    latch.release();
    while script.times() < 3 {
        tokio::task::yield_now().await;
    }
    thread.steer("at once").await.unwrap();
    latch.reached().await;
    run.enqueue("and").await.unwrap();
    while journal(store, &id()).await.iter().filter(|record| matches!(record.body, RecordBody::InputQueued { .. })).count() < 3 {
        tokio::task::yield_now().await;
    }
    latch.release();
    collect(run).await.1.unwrap();
    thread.send("second").await.unwrap_err();
    thread.invoke("act", r#"{"direct":true}"#).await.unwrap();
    thread.send("third").await.unwrap();
    journal(store, &id()).await
}

/// A model that answers every request with the same text, and takes no request without messages.
fn plain() -> Arc<Answers<impl Fn(&ModelRequest) -> toolwright_runtime::ModelReply + Send + Sync>> {
    Answers::new(|request| {
        assert!(!request.messages.is_empty(), "a model is asked about nothing");
        request.messages.check_balance().unwrap();
        assert!(request.messages.last().unwrap().author != Author::SideA, "a model is asked to answer itself");
        reply(vec![Item::text("Forked.")], FinishReason::Stop)
    })
}

/// Goes on to the end, approving what is asked.
async fn to_the_end(agent: &Agent, fork: &ThreadHandle) -> Option<Reply> {
    let mut last = None;
    loop {
        match fork.resume().await {
            Ok(reply) if reply.finish_reason == FinishReason::AwaitingApproval => {
                for pending in &reply.pending {
                    assert_eq!(pending.id.thread().as_ref(), fork.id().ok(), "the old decision is asked for");
                    agent.approvals().decide(&pending.id, Decision::approve()).await.unwrap();
                }
                last = Some(reply);
            }
            Ok(reply) => return Some(reply),
            Err(AgentError::NothingToResume { .. }) => return last,
            Err(error) => panic!("{error}"),
        }
    }
}

fn fold(records: &[Arc<Record>]) -> Thread {
    let mut thread = Thread::new();
    for record in records {
        thread.apply(record).unwrap();
    }
    thread
}

// rule: sdk-runtime FRK-7, sdk-runtime FRK-10, sdk-runtime HIS-4, sdk-runtime HIS-8
#[tokio::test]
async fn a_fork_from_every_position_goes_on_from_there() {
    let store = MemoryStore::new();
    let records = rich(&store).await;
    let kinds = kinds(&records);
    for wanted in ["input.queued", "input.applied", "model.failed", "call.decided", "call.opened"] {
        assert!(kinds.iter().any(|kind| kind == wanted), "{wanted}");
    }
    let free = Latch::default();
    for _ in 0..1000 {
        free.release();
    }
    let mut finished = 0;
    for at in 1..=records.len() {
        let log = Log::default();
        let agent = with_tools(plain(), &log, &free, &store);
        let kept = &records[..at];
        let fork = agent.thread("t").fork(Seq(at as u64), ForkPatch::new()).await.unwrap();
        let fork_id = fork.id().unwrap().clone();
        assert_eq!(fork_id.as_str(), format!("t-fork-{at}"));
        // Its past is the source's, and the source is as it was.
        let copied = fork.records().await.unwrap();
        assert_eq!(copied.len(), at + 1);
        assert_eq!(copied[1..at], kept[1..]);
        assert!(matches!(&copied[0].body, RecordBody::ThreadOpened { thread, .. } if *thread == fork_id));
        assert!(matches!(&copied[at].body, RecordBody::ThreadForked { from, through } if *from == id() && *through == Seq(at as u64)));
        assert_eq!(journal(&store, &id()).await, records);
        let info = fork.info().await.unwrap().unwrap();
        assert_eq!((info.forked_from, info.status != ThreadStatus::AwaitingApproval), (Some(id()), true));
        assert!(store.pending(Some(&fork_id), None, 10).await.unwrap().items.is_empty());
        let before = fork.history().await.unwrap();
        assert_eq!(&before, fold(kept).transcript(), "at {at}");

        let told = format!("at {at}, after {}", kinds[at - 1]);
        let ended = to_the_end(&agent, &fork).await;
        finished += usize::from(ended.is_some());
        let after = fork.history().await.unwrap();
        after.check_balance().unwrap();
        assert!(before.iter().zip(after.iter()).all(|(before, after)| before == after), "{told}");
        // No recorded result was made again, and nothing ran that was refused.
        let done: BTreeSet<String> = kept
            .iter()
            .filter_map(|record| match &record.body {
                RecordBody::CallDone { call, .. } => Some(format!("body {call}")),
                _ => None,
            })
            .collect();
        for ran in log.all() {
            assert!(!done.contains(&ran) && ran != "body d", "{told}: {ran}");
        }
        let all = fork.records().await.unwrap();
        let mut results = BTreeSet::new();
        for record in &all {
            if let RecordBody::CallDone { call, .. } = &record.body {
                assert!(results.insert(call.clone()), "{told}: {call} has two results");
            }
        }
        // Whom the source acted for is not whom the fork acts for.
        let started = |record: &&Arc<Record>| matches!(&record.body, RecordBody::RunStarted { principal: Some(_), .. });
        assert!(!all[at..].iter().any(|record| started(&record)), "{told}");
        // What nobody waits for is nothing to go on with; and it takes new input like any other.
        assert_eq!(fork.resume().await.unwrap_err().code(), "TOOLWRIGHT_CHECKPOINT_NOT_FOUND", "{told}");
        let reply = fork.send("more").await.unwrap();
        assert_eq!(texts(&reply.messages)[texts(&reply.messages).len() - 2..], ["more", "Forked."], "{told}");
        assert_eq!(journal(&store, &id()).await, records);
    }
    // Of a journal with so much in it most places leave something to go on with.
    assert!(finished > records.len() / 2, "{finished} of {}", records.len());
}

// rule: sdk-runtime FRK-1, sdk-runtime FRK-3
#[tokio::test]
async fn a_fork_from_every_step_has_all_of_the_step_and_no_more() {
    let store = MemoryStore::new();
    rich(&store).await;
    let agent = with_tools(plain(), &Log::default(), &Latch::default(), &store);
    let thread = agent.thread("t");
    let steps = thread.steps().await.unwrap().steps;
    let last = steps.last().unwrap().step;
    for step in 0..=last {
        let fork = thread.fork(step, ForkPatch::new()).await.unwrap();
        let kept = fork.steps().await.unwrap().steps;
        let expected: Vec<_> = steps.iter().filter(|known| known.step <= step).cloned().collect();
        assert_eq!(kept, expected, "step {step}");
        fork.history().await.unwrap().check_balance().unwrap();
        if step == 0 {
            assert!(fork.history().await.unwrap().is_empty());
            assert_eq!(fork.resume().await.unwrap_err().code(), "TOOLWRIGHT_CHECKPOINT_NOT_FOUND");
        }
    }
    for beyond in [last + 1, u32::MAX] {
        let error = thread.fork(beyond, ForkPatch::new()).await.err().unwrap();
        assert_eq!(
            (error.code(), error.to_string()),
            (
                "TOOLWRIGHT_SESSION_STEP_NOT_FOUND",
                format!("the thread t has no step {beyond}; its steps that can be forked are 0 to {last}")
            )
        );
    }
    // What was forked and patched at a step is part of it for the next fork.
    let patched = thread.fork(1, ForkPatch::new().tool_result(CallId::new("a"), ToolOutput::text("other"))).await.unwrap();
    let again = patched.fork(1, ForkPatch::new()).await.unwrap();
    assert_eq!(again.history().await.unwrap(), patched.history().await.unwrap());
    assert_eq!(value(&results(&again.history().await.unwrap())[0]), json!("other"));
}

// rule: sdk-runtime FRK-10, sdk-runtime HIS-8
#[tokio::test]
async fn a_fork_of_a_paused_thread_asks_anew_and_the_old_decision_is_not_its() {
    let store = MemoryStore::new();
    let log = Log::default();
    let script = Script::new([items_of(vec![one("a", "act"), one("b", "ask")], FinishReason::ToolCalls), say("Source.")]);
    let agent = with_tools(script, &log, &Latch::default(), &store);
    let paused = agent.thread("t").send("go").await.unwrap();
    let old = paused.pending[0].id.clone();
    log.take();
    let other = with_tools(plain(), &log, &Latch::default(), &store);
    for at in [ForkAt::Head, ForkAt::Step(1)] {
        let fork = other.thread("t").fork(at, ForkPatch::new()).await.unwrap();
        // It is asked about once the fork moves, and not before.
        assert_eq!(other.approvals().pending().await.unwrap().len(), 1);
        let asked = fork.resume().await.unwrap();
        assert_eq!(asked.finish_reason, FinishReason::AwaitingApproval);
        let new = asked.pending[0].id.clone();
        assert_ne!(new, old);
        let made_up = ApprovalId::of(fork.id().unwrap(), &CallId::new("b"), 1);
        let refused = other.approvals().decide(&made_up, Decision::approve()).await.unwrap_err();
        assert!(refused.code() == "TOOLWRIGHT_APPROVAL_NOT_FOUND" && refused.to_string().contains(made_up.as_str()), "{refused}");
        // A decision on the source's call moves the source alone.
        other.approvals().decide(&new, Decision::reject()).await.unwrap();
        let reply = fork.resume().await.unwrap();
        assert_eq!((reply.text.as_str(), failures(&reply.messages).len()), ("Forked.", 1));
        assert!(log.all().is_empty(), "{:?}", log.all());
        assert_eq!(other.approvals().pending().await.unwrap()[0].id, old);
    }
    agent.approvals().decide(&old, Decision::approve()).await.unwrap();
    assert_eq!(agent.thread("t").resume().await.unwrap().text, "Source.");
    assert_eq!(log.all(), ["body b"]);
    let refused = agent.approvals().decide(&old, Decision::approve()).await.unwrap_err();
    assert_eq!(refused.code(), "TOOLWRIGHT_APPROVAL_CONFLICT");
}

#[tokio::test]
async fn what_the_source_was_refused_or_let_do_comes_before_the_forks_own_gate() {
    let store = MemoryStore::new();
    let records = rich(&store).await;
    // Between a verdict and what it led to: let pass and not begun, refused and without its result.
    let gated = |tool: &str| {
        let is = |record: &&Arc<Record>| matches!(&record.body, RecordBody::CallGated { tool: of, .. } if &**of == tool);
        records.iter().find(is).unwrap().seq
    };
    for (tool, call) in [("act", "a"), ("deny", "d")] {
        let log = Log::default();
        let agent = common::agent(plain())
            .tools([logged("act", &log), logged("deny", &log), logged("ask", &log), failing("fail", ToolError::new("x"))])
            .at(At::Rule, says("none", |_| Ok(Say::Deny(Some("not here".to_owned())))))
            .store(store.clone())
            .build()
            .unwrap();
        let fork = agent.thread("t").fork(gated(tool), ForkPatch::new()).await.unwrap();
        let reply = fork.resume().await.unwrap();
        let refused = failures(&reply.messages);
        assert!(refused.iter().any(|(id, _, _, message)| id == call && message.contains("not here")), "{refused:?}");
        assert!(!log.all().contains(&format!("body {call}")), "{:?}", log.all());
    }
}

// rule: sdk-runtime HIS-8
#[tokio::test]
async fn the_steps_that_were_taken_count_in_a_fork() {
    let store = MemoryStore::new();
    let model = || {
        Answers::new(|request| {
            let call = call_item(&format!("c{}", request.step), "act", &format!(r#"{{"n":{}}}"#, request.step));
            reply(vec![Item::ToolCall(call)], FinishReason::ToolCalls)
        })
    };
    let source = agent(model()).tool(echo("act")).max_steps(3).store(store.clone()).build().unwrap();
    source.thread("t").send("go").await.unwrap();
    let asked = model();
    let agent = agent(asked.clone()).tool(echo("act")).max_steps(3).store(store.clone()).build().unwrap();
    let reply = agent.thread("t").fork(2, ForkPatch::new()).await.unwrap().resume().await.unwrap();
    assert_eq!((reply.finish_reason, reply.steps, asked.steps()), (FinishReason::MaxSteps, 3, vec![3]));
    // With input at its end it has steps of its own only where nothing was going on.
    let fork = agent.thread("t").fork(ForkAt::Head, ForkPatch::new().append_input("more")).await.unwrap();
    assert_eq!(fork.info().await.unwrap().unwrap().status, ThreadStatus::InProgress);
}

// rule: sdk-runtime FRK-4, sdk-runtime HIS-5
#[tokio::test]
async fn what_is_different_in_a_fork_is_applied_in_its_order() {
    let store = MemoryStore::new();
    let log = Log::default();
    let script = Script::new([items_of(vec![one("a", "act"), one("b", "ask")], FinishReason::ToolCalls), say("Source.")]);
    let agent = with_tools(script, &log, &Latch::default(), &store);
    let paused = agent.thread("t").send("go").await.unwrap();
    agent.approvals().decide(&paused.pending[0].id, Decision::approve()).await.unwrap();
    agent.thread("t").resume().await.unwrap();
    log.take();
    let other = with_tools(plain(), &log, &Latch::default(), &store);
    let patch = || {
        ForkPatch::new()
            .append_input("What now?")
            .tool_result(CallId::new("a"), ToolOutput::json(json!({ "n": 7 })))
            .messages(|mut messages| {
                messages[0] = Message::human("went");
                messages
            })
            .id("changed")
    };
    let fork = other.thread("t").fork(1, patch()).await.unwrap();
    let kinds = kinds(&fork.records().await.unwrap());
    assert_eq!(kinds[kinds.len() - 4..], ["thread.forked", "transcript.replaced", "transcript.replaced", "input.queued"]);
    let history = fork.history().await.unwrap();
    assert_eq!((texts(&history), value(&results(&history)[0])), (vec!["went".to_owned()], json!({ "n": 7 })));
    // The steps tell of the result as it is now.
    assert_eq!(fork.steps().await.unwrap().steps[0].tool_calls[0].result, Some(json!({ "n": 7 })));
    let reply = fork.resume().await.unwrap();
    assert_eq!(texts(&reply.messages), ["went", "What now?", "Forked."]);
    assert!(log.all().is_empty());
    // It survives a restart: the fold of its journal is what it was.
    assert_eq!(fold(&fork.records().await.unwrap()).transcript(), &fork.history().await.unwrap());
    // A result for a call that has none yet is its one result; input comes after the calls that are open.
    let asked = paused.run_id.clone();
    let records = journal(&store, &id()).await;
    let paused_at = records.iter().rfind(|record| record.run.as_ref() == Some(&asked)).unwrap().seq;
    let patch = ForkPatch::new().tool_result(CallId::new("b"), ToolOutput::text("by hand")).append_input("What now?");
    let fork = other.thread("t").fork(paused_at, patch).await.unwrap();
    let reply = fork.resume().await.unwrap();
    assert_eq!(
        (texts(&reply.messages), value(&results(&reply.messages)[1])),
        (vec!["go".to_owned(), "What now?".to_owned(), "Forked.".to_owned()], json!("by hand"))
    );
    let fork = other.thread("t").fork(paused_at, ForkPatch::new().append_input("What now?")).await.unwrap();
    let reply = to_the_end(&other, &fork).await.unwrap();
    assert_eq!(texts(&reply.messages), ["go", "What now?", "Forked."]);
    assert_eq!(log.all(), ["body b"]);
}

// rule: sdk-runtime FRK-6, sdk-runtime HIS-7
#[tokio::test]
async fn a_fork_that_can_not_be_writes_nothing() {
    let store = MemoryStore::new();
    let script = Script::new([items_of(vec![one("a", "act")], FinishReason::ToolCalls), say("Source."), say("Other.")]);
    let agent = with_tools(script, &Log::default(), &Latch::default(), &store);
    let thread = agent.thread("t");
    thread.send("go").await.unwrap();
    agent.thread("taken").send("go").await.unwrap();
    agent.thread("posted").enqueue("hello").await.unwrap();
    let kept = ThreadId::new("kept").unwrap();
    store.data().set_value(&kept, Shelf::Values, "k", Some("1".into()), None).await.unwrap();
    let free = || ForkPatch::new().id("free");
    let unanswered = |mut messages: Vec<Message>| {
        messages.remove(2);
        messages
    };
    let head = journal(&store, &id()).await.len() as u64;
    let attempts: Vec<(&str, AgentError)> = vec![
        ("TOOLWRIGHT_SESSION_STEP_NOT_FOUND", thread.fork(9, free()).await.err().unwrap()),
        ("TOOLWRIGHT_SESSION_STEP_NOT_FOUND", thread.fork(Seq(0), free()).await.err().unwrap()),
        ("TOOLWRIGHT_SESSION_STEP_NOT_FOUND", thread.fork(Seq(head + 1), free()).await.err().unwrap()),
        ("TOOLWRIGHT_SESSION_NOT_FOUND", agent.thread("nobody").fork(0, free()).await.err().unwrap()),
        ("TOOLWRIGHT_SESSION_EXISTS", thread.fork(1, ForkPatch::new().id("t")).await.err().unwrap()),
        ("TOOLWRIGHT_SESSION_EXISTS", thread.fork(1, ForkPatch::new().id("taken")).await.err().unwrap()),
        ("TOOLWRIGHT_SESSION_EXISTS", thread.fork(1, ForkPatch::new().id("posted")).await.err().unwrap()),
        ("TOOLWRIGHT_SESSION_EXISTS", thread.fork(1, ForkPatch::new().id("kept")).await.err().unwrap()),
        ("TOOLWRIGHT_SESSION_ID_INVALID", thread.fork(1, ForkPatch::new().id("a/b")).await.err().unwrap()),
        ("TOOLWRIGHT_CONFIG_INVALID", thread.fork(1, free().messages(unanswered)).await.err().unwrap()),
        ("TOOLWRIGHT_CONFIG_INVALID", thread.fork(1, free().tool_result(CallId::new("z"), ToolOutput::text("x"))).await.err().unwrap()),
        ("TOOLWRIGHT_CONFIG_MISSING_INPUT", thread.fork(1, free().append_input(" ")).await.err().unwrap()),
    ];
    for (at, (code, error)) in attempts.into_iter().enumerate() {
        assert_eq!(error.code(), code, "{at}: {error}");
    }
    let range = thread.fork(Seq(head + 1), free()).await.err().unwrap().to_string();
    assert_eq!(range, format!("the thread t has no position {}; its journal goes from 1 to {head}", head + 1));
    // A call of which the patch says what no call is: named.
    let unknown = thread.fork(1, free().tool_result(CallId::new("z"), ToolOutput::text("x"))).await.err().unwrap();
    assert!(unknown.to_string().contains("the call z has no result"), "{unknown}");
    let free_id = ThreadId::new("free").unwrap();
    assert!(store.info(&free_id).await.unwrap().is_none());
    assert!(store.data().values(&free_id, Shelf::Values, "", None, 10).await.unwrap().is_empty());
    let fork = thread.fork(1, free()).await.unwrap();
    assert_eq!(fork.id().unwrap(), &free_id);
}

// rule: sdk-runtime FRK-5, sdk-runtime HIS-6
#[tokio::test]
async fn forks_have_the_first_free_name() {
    let store = MemoryStore::new();
    let agent = with_tools(plain(), &Log::default(), &Latch::default(), &store);
    let long = "x".repeat(124);
    for source in ["t", long.as_str()] {
        agent.thread(source).send("go").await.unwrap();
    }
    agent.thread("t-fork-2").enqueue("taken").await.unwrap();
    let thread = agent.thread("t");
    // Two at once get two names.
    let (first, second) = tokio::join!(thread.fork(1, ForkPatch::new()), thread.fork(1, ForkPatch::new()));
    let mut names = [first.unwrap(), second.unwrap()].map(|fork| fork.id().unwrap().to_string());
    names.sort();
    assert_eq!(names, ["t-fork-1", "t-fork-3"]);
    let one = agent.thread(long.as_str()).fork(1, ForkPatch::new()).await.unwrap().id().unwrap().to_string();
    let two = agent.thread(long.as_str()).fork(1, ForkPatch::new()).await.unwrap().id().unwrap().to_string();
    assert_eq!((one.len(), two.len()), (128, 128));
    assert!(one.starts_with("xxxx") && one.ends_with("-fork-1") && two.ends_with("-fork-2"), "{one} {two}");
    let hash = one.trim_end_matches("-fork-1").rsplit('-').next().unwrap();
    assert!(hash.len() == 8 && hash.bytes().all(|b| b.is_ascii_hexdigit()), "{hash}");
    // A fork of a fork is a fork like any other.
    let again = agent.thread("t-fork-1").fork(ForkAt::Head, ForkPatch::new()).await.unwrap();
    assert_eq!(again.id().unwrap().as_str(), "t-fork-1-fork-1");
    assert_eq!(again.info().await.unwrap().unwrap().forked_from, Some(ThreadId::new("t-fork-1").unwrap()));
}

// rule: sdk-runtime FRK-7
#[tokio::test]
async fn values_go_with_a_fork_and_then_their_own_way() {
    let store = MemoryStore::new();
    let agent = with_tools(plain(), &Log::default(), &Latch::default(), &store);
    let thread = agent.thread("t");
    thread.send("go").await.unwrap();
    let set = async |thread: &ThreadId, value: &str| {
        store.data().set_value(thread, Shelf::Values, "k", Some(value.into()), None).await.unwrap();
    };
    let get = async |thread: &ThreadId| store.data().value(thread, Shelf::Values, "k").await.unwrap().unwrap().to_string();
    set(&id(), "1").await;
    let fork = thread.fork(0, ForkPatch::new()).await.unwrap();
    let fork = fork.id().unwrap();
    set(&id(), "2").await;
    assert_eq!((get(&id()).await, get(fork).await), ("2".to_owned(), "1".to_owned()));
    set(fork, "3").await;
    assert_eq!((get(&id()).await, get(fork).await), ("2".to_owned(), "3".to_owned()));
    // Deleting the one leaves the other.
    thread.delete().await.unwrap();
    assert_eq!(get(fork).await, "3");
}

#[tokio::test]
async fn a_thread_that_is_being_moved_is_forked_from_what_is_written_down() {
    let (store, latch) = (MemoryStore::new(), Latch::default());
    let log = Log::default();
    let script = Script::new([items_of(vec![one("a", "act"), one("c", "wait")], FinishReason::ToolCalls), say("Source.")]);
    let owner = with_tools(script, &log, &latch, &store);
    let run = owner.thread("t").stream("go");
    latch.reached().await;
    let free = Latch::default();
    free.release();
    let other = with_tools(plain(), &log, &free, &store);
    let fork = other.thread("t").fork(ForkAt::Head, ForkPatch::new()).await.unwrap();
    // The running call has no result here: in the fork it is a call that was interrupted.
    let reply = fork.resume().await.unwrap();
    assert_eq!(reply.text, "Forked.");
    latch.release();
    assert_eq!(collect(run).await.1.unwrap().text, "Source.");
    let log = log.all();
    assert_eq!((log.iter().filter(|ran| *ran == "body a").count(), log.iter().filter(|ran| *ran == "body c").count()), (1, 2));
    // A fork that stands in the middle of a turn is finished before it takes more.
    let records = journal(&store, &id()).await;
    let cut = records.iter().find(|record| matches!(record.body, RecordBody::ModelReplied { .. })).unwrap().seq;
    free.release();
    let fork = other.thread("t").fork(cut, ForkPatch::new()).await.unwrap();
    assert_eq!(fork.send("more").await.unwrap_err().code(), "TOOLWRIGHT_SESSION_TURN_PENDING");
    let reply = fork.turn_policy(toolwright_runtime::TurnPolicy::Wait).send("more").await.unwrap();
    assert_eq!(texts(&reply.messages), ["go", "Forked.", "more", "Forked."]);
}

#[tokio::test]
async fn a_fork_in_a_direct_call_asks_no_model() {
    let store = MemoryStore::new();
    let records = rich(&store).await;
    let is_direct = |record: &&Arc<Record>| matches!(&record.body, RecordBody::CallOpened(opening) if opening.origin == CallOrigin::Client);
    let at = records.iter().find(is_direct).unwrap().seq;
    let model = plain();
    let log = Log::default();
    let agent = with_tools(model.clone(), &log, &Latch::default(), &store);
    let reply = agent.thread("t").fork(at, ForkPatch::new()).await.unwrap().resume().await.unwrap();
    assert!(reply.outcome.is_some() && model.steps().is_empty() && log.len() == 1);
}
