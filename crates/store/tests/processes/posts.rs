//! Decisions, input, steering and cancellation that come from other processes while the owner works.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use toolwright_core::{ArgsState, Author, CallId, CallItem, Decision, Event, EventKind, FinishReason, Item, RecordBody, Seq, ThreadId};
use toolwright_runtime::{Agent, AgentError, Model, ModelEvent, ModelInfo, ModelReply, ModelRequest, ModelStream, NoResolvers, Store};
use toolwright_tool::{Tool, ToolError};

use crate::Orders;
use crate::job::Log;
use crate::stores::{self, Place};

use std::sync::Arc;

/// Works until somebody says that it is enough; every third step it wants to order something, which asks first.
struct Listens {
    pace: Duration,
}

impl Model for Listens {
    fn info(&self) -> ModelInfo {
        ModelInfo::new("test", "listens")
    }

    fn stream(&self, request: ModelRequest) -> ModelStream {
        let enough = request.messages.iter().any(|message| message.author == Author::Human && message.text_of().contains("enough"));
        let (step, pace) = (request.step, self.pace);
        let reply = async move {
            tokio::time::sleep(pace).await;
            let call = |name: &str| {
                Item::ToolCall(CallItem {
                    call_id: CallId::new(""),
                    provider_id: Some(format!("{name}_{step}")),
                    name: name.to_owned(),
                    arguments: json!({ "step": step }).to_string(),
                    state: ArgsState::Complete,
                    ask: None,
                    provider_data: None,
                })
            };
            let (items, finish) = match step % 3 {
                _ if enough => (vec![Item::text("Then I stop.")], FinishReason::Stop),
                1 => (vec![call("order"), call("read")], FinishReason::ToolCalls),
                _ => (vec![call("read")], FinishReason::ToolCalls),
            };
            Ok(ModelEvent::Done(ModelReply { items, finish, usage: None, model: None }))
        };
        Box::pin(futures_util::stream::once(reply))
    }
}

pub(crate) fn agent(store: Arc<dyn Store>, log: &Log, pace: Duration) -> Agent {
    let tool = |name: &'static str| {
        let log = log.clone();
        let builder = Tool::new(name, "Does something.");
        let builder = if name == "order" { builder.needs_approval() } else { builder };
        builder
            .run_json(move |_args: Value, cx| {
                let log = log.clone();
                async move {
                    log.add(&format!("body {} {}", cx.call_id(), cx.attempt()));
                    tokio::time::sleep(pace).await;
                    Ok::<_, ToolError>(name)
                }
            })
            .unwrap()
    };
    Agent::<NoResolvers>::builder()
        .model(Listens { pace })
        .tools([tool("order"), tool("read")])
        .max_steps(2000)
        .max_repeats(None)
        .store(store)
        .build()
        .unwrap()
}

/// What the child does: moves the thread until its run ends for good.
pub(crate) async fn listen(agent: &Agent, thread: &str) -> Result<FinishReason, AgentError> {
    let handle = agent.thread(thread);
    let mut reply = handle.send("Go.").await;
    loop {
        match reply {
            Ok(reply) if reply.finish_reason != FinishReason::AwaitingApproval => return Ok(reply.finish_reason),
            Ok(_) | Err(AgentError::AwaitingApproval { .. }) => tokio::time::sleep(Duration::from_millis(2)).await,
            Err(error) => return Err(error),
        }
        reply = handle.resume().await;
    }
}

async fn posts(place: Place) {
    let store = stores::open(&place.address()).await.unwrap();
    let logs = tempfile::tempdir().unwrap();
    let log = Log::at(logs.path().join("log"));
    let agent = agent(Arc::clone(&store), &Log::at(logs.path().join("unused")), Duration::ZERO);
    let orders = |thread: &str| Orders {
        role: "listen",
        store: place.address(),
        thread: thread.to_owned(),
        log: log.clone(),
        pace: Duration::from_millis(4),
    };
    let mut child = orders("listens").start();
    let deadline = Instant::now() + Duration::from_secs(60);
    let thread = agent.thread("listens");
    while thread.info().await.unwrap().is_none() {
        assert!(Instant::now() < deadline, "the child does not begin");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // From several tasks of this process, none of which moves the thread.
    let inputs = |name: &'static str, steer: bool| {
        let thread = thread.clone();
        tokio::spawn(async move {
            for number in 0..20u64 {
                let text = format!("{name} {number}.");
                let ticket = if steer { thread.steer(text).await } else { thread.enqueue(text).await };
                ticket.unwrap();
                tokio::time::sleep(Duration::from_millis(3 + number % 5)).await;
            }
        })
    };
    let decider = {
        let agent = agent.clone();
        tokio::spawn(async move {
            let mut decided = 0u32;
            loop {
                for pending in agent.approvals().pending().await.unwrap() {
                    let decision = if decided.is_multiple_of(2) { Decision::approve() } else { Decision::reject().note("no") };
                    match agent.approvals().decide(&pending.id, decision.by(format!("person {decided}"))).await {
                        Ok(()) => decided += 1,
                        Err(AgentError::ApprovalConflict { .. } | AgentError::ApprovalNotFound { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                    // The same again is refused by name.
                    let again = agent.approvals().decide(&pending.id, Decision::reject()).await.unwrap_err();
                    assert!(matches!(again, AgentError::ApprovalConflict { .. } | AgentError::ApprovalNotFound { .. }), "{again}");
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
    };
    let (queued, steered) = (inputs("queued", false), inputs("steered", true));
    queued.await.unwrap();
    steered.await.unwrap();
    thread.enqueue("That is enough.").await.unwrap();
    assert_eq!(child.says().as_deref(), Some("stop"));

    let records = store.read(&ThreadId::new("listens").unwrap(), Seq(0), 100_000).await.unwrap();
    let transcript = thread.history().await.unwrap();
    transcript.check_balance().unwrap();
    let said: Vec<String> = transcript.iter().filter(|message| message.author == Author::Human).map(|message| message.text_of()).collect();
    for name in ["queued", "steered"] {
        let of_it: Vec<&String> = said.iter().filter(|text| text.starts_with(name)).collect();
        let expected: Vec<String> = (0..20).map(|number| format!("{name} {number}.")).collect();
        assert!(of_it.iter().map(|text| text.as_str()).eq(expected.iter().map(String::as_str)), "{of_it:?}");
    }
    let decided: Vec<&CallId> = records
        .iter()
        .filter_map(|record| match &record.body {
            RecordBody::CallDecided { call, .. } => Some(call),
            _ => None,
        })
        .collect();
    let distinct: std::collections::BTreeSet<_> = decided.iter().collect();
    assert_eq!(distinct.len(), decided.len(), "each decision was applied once");
    assert!(!decided.is_empty(), "somebody decided");
    // What ran was approved, once; what was rejected did not run.
    let ran: Vec<String> = log.lines();
    for record in &records {
        if let RecordBody::CallDecided { call, decision, .. } = &record.body {
            let times = ran.iter().filter(|line| line.starts_with(&format!("body {call} "))).count();
            let approved = !matches!(decision.verdict, toolwright_core::DecisionVerdict::Reject);
            assert!(times <= usize::from(approved), "{call} ran {times} times");
        }
    }

    // A cancellation arrives, and names the run it stops.
    let mut child = orders("stops").start();
    let thread = agent.thread("stops");
    let mut events = thread.events(Seq(0)).unwrap();
    // The second step asks nobody.
    while !matches!(next(&mut events).await.kind, EventKind::StepStart { step: 2 }) {}
    thread.cancel("enough of this").await.unwrap();
    assert_eq!(child.says().as_deref(), Some("aborted"));
    loop {
        if let EventKind::RunDone { finish_reason: FinishReason::Aborted, abort_reason, .. } = next(&mut events).await.kind {
            assert_eq!(abort_reason.unwrap().message, "enough of this");
            break;
        }
    }
    decider.abort();
    println!("{place}: 41 inputs, {} decisions and a cancellation from another process arrived, each once", decided.len());
}

async fn next(events: &mut toolwright_runtime::ThreadEvents) -> Event {
    use futures_util::StreamExt;
    tokio::time::timeout(Duration::from_secs(30), events.next()).await.expect("no event came").unwrap().unwrap()
}

// rule: sdk-runtime QUE-5
#[tokio::test(flavor = "multi_thread")]
async fn over_sqlite_what_other_processes_post_arrives_once() {
    posts(Place::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn over_postgres_what_other_processes_post_arrives_once() {
    if let Some(place) = Place::postgres() {
        posts(place).await;
    }
}
