//! Budgets: of a run, of a thread, and of what is in flight when time is over.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::*;
use serde_json::{Value, json};
use tokio::time::Instant;
use toolwright_core::{Budget, Decision, EventKind, FinishReason, Item, Record, RecordBody, ThreadId, Timestamp, ToolFailureKind, Usage};
use toolwright_runtime::{AgentError, Clock, ErrorCategory, FixedClock, MemoryStore, ModelError, ModelEvent, ModelReply, Prices};
use toolwright_tool::{Tool, ToolContext, ToolError};

fn id() -> ThreadId {
    ThreadId::new("t").unwrap()
}

/// A clock that goes with tokio's.
struct Ticking(Instant);

impl Clock for Ticking {
    fn now(&self) -> Timestamp {
        Timestamp(1_700_000_000_000 + i64::try_from(self.0.elapsed().as_millis()).unwrap())
    }
}

/// A clock that a test and an agent share.
struct Shared(Arc<FixedClock>);

impl Clock for Shared {
    fn now(&self) -> Timestamp {
        self.0.now()
    }
}

fn used(input_tokens: u64, output_tokens: u64, cost_usd: Option<f64>) -> Usage {
    Usage { input_tokens, output_tokens, cost_usd, ..Usage::default() }
}

/// A reply that used this, and calls `act` or ends.
fn uses(usage: Option<Usage>, call: Option<&str>) -> Answer {
    let (items, finish) = match call {
        Some(id) => (vec![Item::text("thinking"), Item::ToolCall(call_item(id, "act", "{}"))], FinishReason::ToolCalls),
        None => (vec![Item::text("done")], FinishReason::Stop),
    };
    stream_of(vec![ModelEvent::Done(ModelReply { usage, ..reply(items, finish) })])
}

fn trip(reply: &toolwright_runtime::Reply) -> Value {
    serde_json::to_value(reply.budget.as_ref().unwrap()).unwrap()
}

// rule: sdk-runtime BUD-1, sdk-runtime BUD-4, sdk-runtime 57/5
// rule: sdk-tools 36/13
#[tokio::test]
async fn a_limit_trips_once_it_is_reached_and_the_calls_of_that_reply_do_not_run() {
    let cases = [
        (Budget::new().max_tokens(20), json!({ "limit": "maxTokens", "value": 22, "max": 20, "scope": "run" })),
        (Budget::new().max_input_tokens(20), json!({ "limit": "maxInputTokens", "value": 20, "max": 20, "scope": "run" })),
        (Budget::new().max_output_tokens(2), json!({ "limit": "maxOutputTokens", "value": 2, "max": 2, "scope": "run" })),
        (Budget::new().max_cost_usd(0.25), json!({ "limit": "maxCostUsd", "value": 0.5, "max": 0.25, "scope": "run" })),
        (Budget::new().max_steps(2), json!({ "limit": "maxSteps", "value": 2, "max": 2, "scope": "run" })),
    ];
    for (budget, expected) in cases {
        let log = Log::default();
        let cheap = budget.max_cost_usd.is_none();
        let usage = used(10, 1, Some(if cheap { 0.0 } else { 0.25 / 2.0 }));
        let second = used(10, 1, Some(if cheap { 0.0 } else { 0.375 }));
        let script = Script::new([uses(Some(usage), Some("c1")), uses(Some(second), Some("c2")), uses(None, None)]);
        let agent = agent(script.clone()).tool(logged("act", &log)).budget(budget).build().unwrap();
        let (events, reply) = go(&agent).await;
        let reply = reply.unwrap();
        assert_eq!((reply.finish_reason.clone(), script.times(), log.all()), (FinishReason::BudgetExceeded, 2, vec!["body c1".to_owned()]));
        assert_eq!(trip(&reply), expected);
        // The call that did not run has its result, and no event.
        assert_eq!(failure(&reply).0, ToolFailureKind::NotRun);
        assert!(failure(&reply).2.contains("the run reached its budget before the call started"));
        let all = brief(&events);
        assert_eq!(
            all[all.len() - 5..],
            ["text.delta", "text.done thinking", "budget.exceeded", "step.done 2 budget-exceeded", "run.done budget-exceeded"]
        );
        let told = events.iter().find_map(|event| match &event.kind {
            EventKind::BudgetExceeded(budget) => Some(serde_json::to_value(budget).unwrap()),
            _ => None,
        });
        assert_eq!(told, Some(expected));
    }
}

// rule: sdk-runtime BUD-3
#[tokio::test]
async fn a_run_that_ends_by_itself_in_the_step_that_reached_a_limit_keeps_its_reason() {
    let budget = Budget::new().max_tokens(5).max_steps(1);
    let agent = agent(Script::new([uses(Some(used(10, 10, None)), None)])).budget(budget).build().unwrap();
    let reply = go(&agent).await.1.unwrap();
    assert_eq!((reply.finish_reason, reply.budget, reply.text.as_str()), (FinishReason::Stop, None, "done"));
}

// rule: sdk-runtime BUD-5
#[tokio::test]
async fn a_budget_may_fail_the_run() {
    let script = Script::new([uses(Some(used(10, 10, None)), Some("c1"))]);
    let agent = agent(script).tool(echo("act")).budget(Budget::new().max_tokens(5).throws()).build().unwrap();
    let (events, reply) = go(&agent).await;
    let error = reply.unwrap_err();
    assert_eq!((error.code(), error.is_usage()), ("TOOLWRIGHT_BUDGET_EXCEEDED", false));
    assert_eq!(
        error.to_string(),
        "the run reached its budget: maxTokens of the run is 5, and 20 is reached; raise it, or ask for less at once"
    );
    assert!(matches!(error, AgentError::BudgetExceeded { budget, .. } if budget.limit == "maxTokens"));
    let all = brief(&events);
    assert_eq!(all[all.len() - 4..], ["budget.exceeded", "step.done 1 error", "error BudgetExceededError", "run.done error"]);
}

// rule: sdk-runtime BUD-6
#[tokio::test]
async fn of_two_limits_on_steps_the_stricter_counts_and_a_tie_is_max_steps() {
    let endless = || Script::new((0..30).map(|n| uses(None, Some(&format!("c{n}")))));
    for (steps, budget, expected) in [
        (Some(3), Some(2), (FinishReason::BudgetExceeded, 2)),
        (Some(2), Some(3), (FinishReason::MaxSteps, 2)),
        (Some(2), Some(2), (FinishReason::MaxSteps, 2)),
        (None, Some(12), (FinishReason::BudgetExceeded, 12)),
        (None, None, (FinishReason::MaxSteps, 10)),
    ] {
        let mut builder = agent(endless()).tool(echo("act")).max_repeats(None);
        if let Some(steps) = steps {
            builder = builder.max_steps(steps);
        }
        let limit = budget.map(|budget| Budget::new().max_steps(budget));
        let mut handles = Vec::new();
        // Set on the agent, and on the thread.
        if let Some(limit) = limit.clone() {
            let mut with = agent(endless()).tool(echo("act")).max_repeats(None).budget(limit);
            if let Some(steps) = steps {
                with = with.max_steps(steps);
            }
            handles.push(with.build().unwrap().new_thread());
        }
        let plain = builder.build().unwrap().new_thread();
        handles.push(match limit {
            Some(limit) => plain.budget(limit),
            None => plain,
        });
        for handle in handles {
            let reply = handle.send("go").await.unwrap();
            assert_eq!((reply.finish_reason, reply.steps), expected, "{steps:?} {budget:?}");
        }
    }
}

/// A model whose prices are known, or not.
struct Priced(Arc<Script>, Option<Prices>);

impl toolwright_runtime::Model for Priced {
    fn info(&self) -> toolwright_runtime::ModelInfo {
        toolwright_runtime::ModelInfo { prices: self.1, ..toolwright_runtime::ModelInfo::new("test", "priced") }
    }

    fn stream(&self, request: toolwright_runtime::ModelRequest) -> toolwright_runtime::ModelStream {
        self.0.stream(request)
    }
}

// rule: sdk-runtime BUD-7
#[test]
fn cost_is_held_where_prices_are_known_and_not_where_they_are_not_which_is_said_once() {
    let warnings = Warnings::default();
    tracing::subscriber::with_default(warnings.clone(), || {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(priced_and_not());
    });
    assert_eq!(warnings.all(), ["the price of this model is not known, so `max_cost_usd` is not held"]);
}

async fn priced_and_not() {
    for (prices, finish, cost) in [
        (Some(Prices { input: 1.0, output: 2.0, cached_input: None }), FinishReason::BudgetExceeded, Some(30.0)),
        (None, FinishReason::Stop, None),
    ] {
        let script = Script::new([uses(Some(used(10_000_000, 10_000_000, None)), Some("c1")), uses(None, None)]);
        let agent = agent(Priced(script, prices)).tool(echo("act")).budget(Budget::new().max_cost_usd(1.0)).build().unwrap();
        let reply = go(&agent).await.1.unwrap();
        assert_eq!((reply.finish_reason.clone(), reply.usage.and_then(|usage| usage.cost_usd)), (finish, cost));
    }
}

#[tokio::test]
async fn what_a_provider_does_not_report_is_estimated_where_a_budget_counts_it() {
    let agent = agent(Script::new([uses(None, Some("c1"))])).tool(echo("act")).budget(Budget::new().max_tokens(20)).build().unwrap();
    let reply = agent.send("some words to be read, and some more of them, so that it adds up").await.unwrap();
    let usage = reply.usage.unwrap();
    assert!(reply.finish_reason == FinishReason::BudgetExceeded && usage.estimated && usage.total_tokens() >= 20, "{usage:?}");
}

// rule: sdk-runtime BUD-2
#[tokio::test(start_paused = true)]
async fn the_end_of_the_time_stops_a_model_in_mid_reply_and_what_it_said_stays() {
    let started = Instant::now();
    let script = Script::new([then_silence(vec![ModelEvent::TextDelta("so far".to_owned())])]);
    let agent = agent(script.clone())
        .budget(Budget::new().max_duration(Duration::from_secs(30)))
        .clock(Ticking(started))
        .model_timeout(Duration::from_secs(900))
        .build()
        .unwrap();
    let (events, reply) = go(&agent).await;
    let reply = reply.unwrap();
    assert_eq!(started.elapsed().as_secs(), 30);
    assert_eq!(
        (reply.finish_reason.clone(), reply.text.as_str(), reply.abort_reason.clone()),
        (FinishReason::BudgetExceeded, "so far", None)
    );
    assert_eq!((trip(&reply)["limit"].as_str(), trip(&reply)["max"].as_u64()), (Some("maxDurationMs"), Some(30_000)));
    assert!(script.asked()[0].cancelled.is_cancelled());
    let all = brief(&events);
    assert_eq!(all[all.len() - 3..], ["budget.exceeded", "step.done 1 budget-exceeded", "run.done budget-exceeded"]);
}

// rule: sdk-runtime BUD-2
#[tokio::test(start_paused = true)]
async fn the_end_of_the_time_stops_bodies_like_a_cancellation() {
    let started = Instant::now();
    let waits = Tool::new("act", "Waits until it is told to stop.")
        .run_json(|_, cx: ToolContext| async move {
            cx.cancelled().cancelled().await;
            Err::<Value, _>(ToolError::new("stopped"))
        })
        .unwrap();
    let agent = agent(Script::new([uses(None, Some("c1"))]))
        .tool(waits)
        .budget(Budget::new().max_duration(Duration::from_secs(60)).throws())
        .tool_timeout(Duration::from_secs(900))
        .clock(Ticking(started))
        .build()
        .unwrap();
    let (events, reply) = go(&agent).await;
    assert_eq!((reply.unwrap_err().code(), started.elapsed().as_secs()), ("TOOLWRIGHT_BUDGET_EXCEEDED", 60));
    let all = brief(&events);
    assert_eq!(
        all[all.len() - 5..],
        ["budget.exceeded", "tool.error c1 AbortError", "step.done 1 error", "error BudgetExceededError", "run.done error"]
    );
}

#[tokio::test(start_paused = true)]
async fn waiting_for_people_takes_no_time_of_a_budget_and_the_next_input_begins_anew() {
    let clock = Arc::new(FixedClock::at(Timestamp(1_000_000)));
    let ticks = Arc::clone(&clock);
    let slow = Tool::new("act", "Takes a minute.")
        .needs_approval()
        .run_json(move |_, _| {
            ticks.advance(60_000);
            async { Ok::<_, ToolError>("ok") }
        })
        .unwrap();
    let script = Script::new([uses(None, Some("c1")), uses(None, Some("c2")), uses(None, None), uses(None, Some("c3")), uses(None, None)]);
    let agent = agent(script)
        .tool(slow)
        .budget(Budget::new().max_duration(Duration::from_secs(100)))
        .clock(Shared(Arc::clone(&clock)))
        .build()
        .unwrap();
    let thread = agent.thread("t");
    let mut reply = thread.send("go").await.unwrap();
    for _ in 0..2 {
        clock.advance(3_600_000);
        agent.approvals().decide(&reply.pending[0].id, Decision::approve()).await.unwrap();
        reply = thread.resume().await.unwrap();
    }
    // Two minutes of work in one turn, over its pauses.
    assert_eq!((reply.finish_reason.clone(), trip(&reply)["value"].as_u64()), (FinishReason::BudgetExceeded, Some(120_000)));
    let waits = thread.send("and now?").await.unwrap();
    assert_eq!(waits.text, "done");
}

// rule: sdk-runtime BUD-9, sdk-runtime BUD-10
#[tokio::test]
async fn a_threads_budget_adds_up_over_its_runs_and_survives_reload() {
    let store = MemoryStore::new();
    let budget = || Budget::new().max_tokens(50);
    let build = |script: Arc<Script>, store: &MemoryStore| {
        agent(script)
            .tool(echo("act"))
            .thread_budget(budget())
            .budget(Budget::new().max_tokens(1_000))
            .store(store.clone())
            .build()
            .unwrap()
    };
    let replies = || (0..9).map(|_| uses(Some(used(15, 5, None)), None));
    let first = build(Script::new(replies()), &store);
    for _ in 0..3 {
        assert_eq!(first.thread("t").send("go").await.unwrap().finish_reason, FinishReason::Stop);
    }
    // 60 of 50 are used: the next turn stops before its model call, in any process.
    let script = Script::new(replies());
    let second = build(script.clone(), &store);
    let (events, reply) = collect(second.thread("t").stream("more")).await;
    let reply = reply.unwrap();
    assert_eq!((reply.finish_reason.clone(), script.times()), (FinishReason::BudgetExceeded, 0));
    assert_eq!(trip(&reply), json!({ "limit": "maxTokens", "value": 60, "max": 50, "scope": "session" }));
    assert_eq!(brief(&events), ["run.start", "budget.exceeded", "run.done budget-exceeded"]);
    // Another thread has its own, and a larger one lets this one go on.
    assert_eq!(second.thread("u").send("go").await.unwrap().finish_reason, FinishReason::Stop);
    let larger = second.thread("t").thread_budget(Budget::new().max_tokens(100));
    assert_eq!(larger.send("more").await.unwrap().finish_reason, FinishReason::Stop);
}

// rule: sdk-runtime BUD-10
#[tokio::test]
async fn an_aborted_turn_does_not_count_for_the_thread() {
    let latch = Latch::default();
    let script = Script::new([uses(Some(used(60, 0, None)), Some("c1")), uses(Some(used(1, 0, None)), None)]);
    let agent = agent(script)
        .tool(holding("act", &latch))
        .grace(Duration::from_millis(1))
        .thread_budget(Budget::new().max_tokens(61))
        .build()
        .unwrap();
    let run = agent.thread("t").stream("go");
    latch.reached().await;
    run.cancel("enough");
    assert_eq!(collect(run).await.1.unwrap().finish_reason, FinishReason::Aborted);
    assert_eq!(agent.thread("t").send("again").await.unwrap().finish_reason, FinishReason::Stop);
}

// rule: sdk-runtime FRK-8
#[tokio::test]
async fn a_fork_goes_on_from_what_its_source_had_used() {
    let script = Script::new([uses(Some(used(60, 0, None)), None), uses(Some(used(60, 0, None)), None)]);
    let agent = agent(script.clone()).thread_budget(Budget::new().max_tokens(61)).build().unwrap();
    let thread = agent.thread("t");
    thread.send("go").await.unwrap();
    let fork = thread.fork(toolwright_runtime::ForkAt::Head, toolwright_runtime::ForkPatch::new()).await.unwrap();
    assert_eq!(fork.send("again").await.unwrap().finish_reason, FinishReason::Stop);
    assert_eq!(fork.send("once more").await.unwrap().finish_reason, FinishReason::BudgetExceeded);
    assert_eq!(script.times(), 2);
}

/// What an owner left that died an hour ago, in the middle of a model call.
async fn left_behind(budget: Budget) -> (MemoryStore, Vec<Arc<Record>>) {
    let clock = Arc::new(FixedClock::at(Timestamp(1_000_000)));
    let ticks = Arc::clone(&clock);
    let act = Tool::new("act", "Takes 20 s.")
        .run_json(move |_, _| {
            ticks.advance(20_000);
            async { Ok::<_, ToolError>("ok") }
        })
        .unwrap();
    let store = MemoryStore::new();
    let script = Script::new([uses(None, Some("c1")), fails(ModelError::new("test", "gone").in_category(ErrorCategory::Timeout))]);
    let agent = agent(script).tool(act).budget(budget).clock(Shared(clock)).store(store.clone()).build().unwrap();
    agent.thread("t").send("go").await.unwrap_err();
    let records = journal(&store, &id()).await;
    let died = records.iter().position(|record| matches!(record.body, RecordBody::ModelFailed { .. })).unwrap();
    (store_of(&id(), &records[..died]).await, records[..died].to_vec())
}

#[tokio::test]
async fn time_counts_over_owners_and_not_between_them() {
    let budget = || Budget::new().max_duration(Duration::from_secs(30));
    for (takes, finish) in [(5_000, FinishReason::Stop), (15_000, FinishReason::BudgetExceeded)] {
        let (store, before) = left_behind(budget()).await;
        let clock = Arc::new(FixedClock::at(Timestamp(1_000_000 + 3_600_000)));
        let ticks = Arc::clone(&clock);
        let act = Tool::new("act", "Takes a while.")
            .run_json(move |_, _| {
                ticks.advance(takes);
                async { Ok::<_, ToolError>("ok") }
            })
            .unwrap();
        let script = Script::new([uses(None, Some("c2")), uses(None, None)]);
        let agent = agent(script).tool(act).budget(budget()).clock(Shared(clock)).store(store.clone()).build().unwrap();
        let reply = agent.thread("t").resume().await.unwrap();
        assert_eq!(reply.finish_reason, finish, "{takes}");
        let records = journal(&store, &id()).await;
        let next = &records[before.len()];
        assert!(matches!(next.body, RecordBody::RunTakenOver {}), "{next:?}");
    }
    // Without a budget on time nobody writes that.
    let (store, before) = left_behind(Budget::new().max_tokens(1_000_000)).await;
    let agent = agent(Script::new([uses(None, None)])).tool(echo("act")).store(store.clone()).build().unwrap();
    agent.thread("t").resume().await.unwrap();
    assert!(matches!(journal(&store, &id()).await[before.len()].body, RecordBody::ModelReplied { .. }));
}

#[tokio::test]
async fn an_agent_limits_the_calls_of_a_tool_beside_what_the_tool_says() {
    let log = Log::default();
    let script = Script::new([calls([("c1", "act", "{}"), ("c2", "act", "{}")]), calls([("c3", "act", "{}")]), say("done")]);
    let agent = agent(script).tool(logged("act", &log)).tool_concurrency(1).max_calls("act", 1).build().unwrap();
    let reply = go(&agent).await.1.unwrap();
    assert_eq!(log.all(), ["body c1"]);
    let failed = failures(&reply.messages);
    assert_eq!(failed.len(), 2);
    assert!(failed.iter().all(|(_, kind, _, message)| {
        *kind == ToolFailureKind::Denied && message == "`act` was denied: its limit of 1 call a run is reached"
    }));
    // The stricter counts.
    let log = Log::default();
    let script = Script::new([calls([("c1", "act", "{}"), ("c2", "act", "{}")]), say("done")]);
    let strict = Tool::new("act", "Acts.").max_calls(1);
    let agent = self::agent(script).tool(logged_with(strict, &log)).max_calls("act", 5).build().unwrap();
    go(&agent).await.1.unwrap();
    assert_eq!(log.len(), 1);
}

#[tokio::test]
async fn limits_that_can_not_be_meant_are_refused_by_name() {
    let error = |budget: Budget| agent(Script::new([])).budget(budget).build().unwrap_err().to_string();
    assert_eq!(error(Budget::new().max_tokens(0)), "budget.maxTokens is 0; give a number above 0, or leave it out for no limit");
    assert_eq!(
        error(Budget::new().max_duration(Duration::ZERO)),
        "budget.maxDurationMs is 0; give a number above 0, or leave it out for no limit"
    );
    for cost in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(error(Budget::new().max_cost_usd(cost)).starts_with("budget.maxCostUsd is "));
    }
    let thread = agent(Script::new([])).build().unwrap().thread("t").thread_budget(Budget::new().max_steps(0));
    assert_eq!(thread.send("go").await.unwrap_err().code(), "TOOLWRIGHT_CONFIG_INVALID");
    let unknown = agent(Script::new([])).max_calls("nothing", 1).build().unwrap_err().to_string();
    assert_eq!(unknown, "max_calls is for `nothing`; give the name of a tool of this agent");
}
