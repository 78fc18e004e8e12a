//! The gate and the loop: what one call and one step cost, and how a run's cost grows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use toolwright_core::policy::{ArgMatch, deny, glob};
use toolwright_core::{ArgsState, CallId, CallItem, FinishReason, Item};
use toolwright_runtime::{
    Agent, GuardrailVerdict, Guardrails, Hook, Model, ModelEvent, ModelInfo, ModelReply, ModelRequest, ModelStream, NoResolvers, guard,
};
use toolwright_tool::{Tool, ToolError, tool, tools};

use super::{Measured, median};

/// Adds an order line.
#[tool]
pub(super) async fn order_line(
    /// Article number.
    article: String,
    /// How many.
    count: u32,
    /// Whether it is a gift.
    gift: bool,
) -> bool {
    !article.is_empty() && count > 0 && gift
}

const ARGUMENTS: &str = r#"{"article":"A-1042","count":3,"gift":true}"#;

/// Calls the same tools in each of its steps, then says that it is done. Arguments differ from step to step.
pub(super) struct Caller {
    steps: u32,
    calls: u32,
    asked: AtomicU32,
}

impl Caller {
    pub(super) fn new(steps: u32, calls: u32) -> Self {
        Self { steps, calls, asked: AtomicU32::new(0) }
    }
}

impl Model for Caller {
    fn info(&self) -> ModelInfo {
        ModelInfo::new("bench", "caller")
    }

    fn stream(&self, _request: ModelRequest) -> ModelStream {
        let step = self.asked.fetch_add(1, Ordering::Relaxed);
        let (items, finish) = if step >= self.steps {
            (vec![Item::text("done")], FinishReason::Stop)
        } else {
            ((0..self.calls).map(|n| call(step, n)).collect(), FinishReason::ToolCalls)
        };
        let reply = ModelReply { items, finish, usage: None, model: None };
        Box::pin(futures_util::stream::once(std::future::ready(Ok(ModelEvent::Done(reply)))))
    }
}

fn call(step: u32, n: u32) -> Item {
    Item::ToolCall(CallItem {
        call_id: CallId::new(""),
        provider_id: Some(format!("c{step}_{n}")),
        name: "order_line".to_owned(),
        arguments: format!(r#"{{"article":"A-{step}","count":3,"gift":true}}"#),
        state: ArgsState::Complete,
        ask: None,
        provider_data: None,
    })
}

pub(super) fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().context("the async runtime does not start")
}

/// Median time of one call through gate and body.
pub(super) fn dispatch() -> Result<Measured> {
    let agent = Agent::<NoResolvers>::builder().model(Caller::new(0, 0)).tools(tools![order_line]).build()?;
    Ok(vec![("dispatch", one_call(&agent)?)])
}

/// A hook that watches and does nothing.
struct Idle(u32);

impl Hook for Idle {
    fn name(&self) -> &str {
        ["one", "two", "three"].get(self.0 as usize).copied().unwrap_or("more")
    }
}

/// What three hooks, 50 rules and two guardrails that do nothing add to a call.
pub(super) fn gate() -> Result<Measured> {
    let plain = || Agent::<NoResolvers>::builder().model(Caller::new(0, 0)).tools(tools![order_line]);
    let idle = || guard::from_fn("idle", |_| std::future::ready(Ok(GuardrailVerdict::Pass)));
    // Half of them are about another tool, half about other arguments.
    let rules = (0..50).map(|n| match n % 2 {
        0 => deny(glob(format!("other_{n}*"))),
        _ => deny(glob("order_*")).argument("article", ArgMatch::equals(format!("B-{n}"))),
    });
    let watched = plain()
        .hooks((0..3).map(|n| Arc::new(Idle(n)) as Arc<dyn Hook>))
        .rules(rules)
        .guardrails(Guardrails::new().tool(idle()).result(idle()))
        .build()?;
    let bare = one_call(&plain().build()?)?;
    Ok(vec![("gate", one_call(&watched)? - bare)])
}

fn one_call(agent: &Agent<NoResolvers>) -> Result<f64> {
    let (name, written): (Arc<str>, Arc<str>) = (Arc::from("order_line"), Arc::from(ARGUMENTS));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let times: Vec<f64> = runtime.block_on(async {
        let mut times = Vec::new();
        let dispatch = agent.dispatch_alone();
        // Batches, since one call is too short for the clock; the first ones warm up.
        for round in 0..220 {
            let began = Instant::now();
            for _ in 0..200 {
                let executed = dispatch(&name, &written).await;
                ensure!(matches!(executed.outcome, toolwright_core::Outcome::Done { .. }), "the call failed: {:?}", executed.outcome);
            }
            if round >= 20 {
                times.push(began.elapsed().as_secs_f64() * 1e6 / 200.0);
            }
        }
        Ok::<_, anyhow::Error>(times)
    })?;
    median(times).context("nothing was measured")
}

async fn run(steps: u32) -> Result<Duration> {
    let agent = Agent::<NoResolvers>::builder().model(Caller::new(steps, 1)).tools(tools![order_line]).max_steps(steps + 1).build()?;
    let began = Instant::now();
    let reply = agent.send("go").await?;
    let took = began.elapsed();
    ensure!(reply.steps == steps + 1 && reply.text == "done", "the run ended after {} steps with {}", reply.steps, reply.finish_reason);
    Ok(took)
}

/// Median time of one step with one call, of runs of 1,000 steps.
pub(super) fn step() -> Result<Measured> {
    let runtime = runtime()?;
    let mut times = Vec::new();
    for _ in 0..7 {
        times.push(runtime.block_on(run(1000))?.as_secs_f64() * 1e6 / 1000.0);
    }
    Ok(vec![("loop.step", median(times).context("nothing was measured")?)])
}

/// Time of 4,000 steps over time of 1,000: 4 is linear.
pub(super) fn growth() -> Result<Measured> {
    let runtime = runtime()?;
    let mut ratios = Vec::new();
    for _ in 0..7 {
        let short = runtime.block_on(run(1000))?;
        let long = runtime.block_on(run(4000))?;
        ratios.push(long.as_secs_f64() / short.as_secs_f64());
    }
    Ok(vec![("loop.growth", median(ratios).context("nothing was measured")?)])
}

/// Median time of a run with one step of 100 calls that wait 10 ms each.
pub(super) fn parallel() -> Result<Measured> {
    let runtime = runtime()?;
    let mut times = Vec::new();
    for _ in 0..9 {
        let wait = Tool::new("order_line", "Waits.").run_json(|_args, _cx| async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            Ok::<_, ToolError>(true)
        })?;
        let agent = Agent::<NoResolvers>::builder().model(Caller::new(1, 100)).tool(wait).build()?;
        let began = Instant::now();
        let reply = runtime.block_on(agent.send("go"))?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
        ensure!(reply.steps == 2, "the run took {} steps", reply.steps);
    }
    Ok(vec![("parallel", median(times).context("nothing was measured")?)])
}
