//! The job that is killed: an agent with a model and tools that do the same every time, and logs of what they did outside the
//! process.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use toolwright_core::{ArgsState, CallId, CallItem, Decision, FinishReason, Item, OnInterrupt};
use toolwright_runtime::{
    Agent, AgentBuilder, AgentError, Model, ModelEvent, ModelInfo, ModelReply, ModelRequest, ModelStream, NoResolvers, Store,
};
use toolwright_tool::{Tool, ToolError};

/// The model's replies with calls.
pub(crate) const STEPS: u32 = 5;

/// What a process did, one line each, in a file that outlives it.
#[derive(Clone)]
pub(crate) struct Log(PathBuf);

impl Log {
    pub(crate) fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// One line, written whole or not at all.
    pub(crate) fn add(&self, line: &str) {
        let mut file = OpenOptions::new().create(true).append(true).open(&self.0).unwrap();
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        std::fs::read_to_string(&self.0).unwrap_or_default().lines().map(str::to_owned).collect()
    }
}

/// Answers by the number of the step alone, after a moment.
struct Steady {
    log: Log,
    pace: Duration,
}

impl Model for Steady {
    fn info(&self) -> ModelInfo {
        ModelInfo::new("test", "steady")
    }

    fn stream(&self, request: ModelRequest) -> ModelStream {
        self.log.add(&format!("ask {}", request.step));
        let (step, pace) = (request.step, self.pace);
        let reply = async move {
            tokio::time::sleep(pace).await;
            Ok(ModelEvent::Done(reply(step)))
        };
        Box::pin(futures_util::stream::once(reply))
    }
}

/// What the model says in a step.
fn reply(step: u32) -> ModelReply {
    let call = |name: &str, n: u32| {
        Item::ToolCall(CallItem {
            call_id: CallId::new(""),
            provider_id: Some(format!("{name}_{step}_{n}")),
            name: name.to_owned(),
            arguments: json!({ "step": step, "n": n }).to_string(),
            state: ArgsState::Complete,
            ask: None,
            provider_data: None,
        })
    };
    let (items, finish) = if step > STEPS {
        (vec![Item::text("All of it is done.")], FinishReason::Stop)
    } else {
        let mut items = vec![Item::text(format!("Step {step}.")), call("read", 1), call("write", 2)];
        match step % 5 {
            1 => items.push(call("fragile", 3)),
            2 => items.push(call("wipe", 3)),
            3 => items.push(call("alone", 3)),
            _ => {}
        }
        (items, FinishReason::ToolCalls)
    };
    ModelReply { items, finish, usage: None, model: None }
}

/// The tools: each logs its effect, then takes a moment, then answers by its arguments alone.
fn tool(name: &'static str, log: &Log, pace: Duration) -> Tool {
    let log = log.clone();
    let builder = Tool::new(name, "Does its part of the job.");
    let builder = match name {
        "read" => builder.read_only(),
        "fragile" => builder.on_interrupt(OnInterrupt::Fail),
        // Destructive: after a crash somebody is asked.
        "wipe" => builder.destructive(),
        "alone" => builder.sequential(),
        _ => builder,
    };
    builder
        .run_json(move |args: Value, cx| {
            let log = log.clone();
            async move {
                log.add(&format!("body {} {}", cx.call_id(), cx.attempt()));
                tokio::time::sleep(pace).await;
                Ok::<_, ToolError>(json!({ "did": name, "with": args, "filler": "x".repeat(120) }))
            }
        })
        .unwrap()
}

/// The agent of the job.
pub(crate) fn agent(store: Arc<dyn Store>, log: &Log, pace: Duration) -> Agent {
    agent_with(store, log, pace, |builder| builder)
}

/// The same with something else about it.
pub(crate) fn agent_with(store: Arc<dyn Store>, log: &Log, pace: Duration, with: impl FnOnce(AgentBuilder) -> AgentBuilder) -> Agent {
    let builder = Agent::<NoResolvers>::builder()
        .model(Steady { log: log.clone(), pace })
        .tools(["read", "write", "fragile", "wipe", "alone"].map(|name| tool(name, log, pace)))
        .max_steps(STEPS + 3)
        .store(store);
    with(builder).build().unwrap()
}

/// Does the job on a thread, from wherever it stands, and approves what asks.
pub(crate) async fn finish(agent: &Agent, thread: &str) -> Result<(), AgentError> {
    let handle = agent.thread(thread);
    let mut reply = match handle.info().await? {
        None => handle.send("Do the job.").await,
        Some(_) => handle.resume().await,
    };
    loop {
        match reply {
            Err(AgentError::AwaitingApproval { .. }) => {}
            Ok(ref waits) if waits.finish_reason == FinishReason::AwaitingApproval => {}
            // It was done before.
            Err(AgentError::NothingToResume { .. }) => return Ok(()),
            ended => return ended.map(|_| ()),
        }
        for pending in agent.approvals().pending().await? {
            if pending.thread_id.as_str() == thread {
                // Decided by a process that was killed before it could go on, perhaps.
                match agent.approvals().decide(&pending.id, Decision::approve()).await {
                    Ok(()) | Err(AgentError::ApprovalConflict { .. } | AgentError::ApprovalNotFound { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        reply = handle.resume().await;
    }
}
