//! The local model, on the sets in `crates/models/evals/`: which calls it makes, and how fast.
//!
//! `cargo xtask bench local` measures on the sets kept for measuring; `cargo xtask local-eval [dev] [-v]` shows a set, and `dev`
//! the one that thresholds are chosen by.

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::Value;
use toolwright_models::local::{Answer, Engine, Offer, Question, Said, ToolText, answer, weights};

use super::Measured;

#[derive(Default)]
struct Figures {
    requests: u32,
    right: u32,
    asks: u32,
    declines: u32,
}

/// Every figure of the local model, from one loading of it.
pub(super) fn measured() -> Result<Measured> {
    let (engine, tools) = loaded()?;
    let (fitting, others) = sets(&engine, &tools, "", false)?;
    Ok(vec![
        ("local.turn", turn(&engine, &tools)?.as_secs_f64() * 1e3),
        ("local.right", percent(fitting.right, fitting.requests)),
        ("local.asks", percent(fitting.asks, fitting.requests)),
        ("local.declines", percent(others.declines, others.requests)),
    ])
}

/// `cargo xtask local-eval [dev] [-v]`.
pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    let given = |word: &str| args.iter().any(|arg| arg == word);
    let (engine, tools) = loaded()?;
    let (fitting, others) = sets(&engine, &tools, if given("dev") { "dev_" } else { "" }, given("-v"))?;
    println!("local.right {:.0} % ({} of {})", percent(fitting.right, fitting.requests), fitting.right, fitting.requests);
    println!("local.asks {:.0} % ({} of {})", percent(fitting.asks, fitting.requests), fitting.asks, fitting.requests);
    println!("local.declines {:.0} % ({} of {})", percent(others.declines, others.requests), others.declines, others.requests);
    println!("local.turn {} ms", turn(&engine, &tools)?.as_millis());
    Ok(ExitCode::SUCCESS)
}

fn percent(part: u32, whole: u32) -> f64 {
    f64::from(part) * 100.0 / f64::from(whole.max(1))
}

fn loaded() -> Result<(Engine, Value)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let path = runtime.block_on(weights::ensure(|_| ()))?;
    Ok((Engine::load(&path)?, read("tools")?))
}

fn sets(engine: &Engine, tools: &Value, prefix: &str, verbose: bool) -> Result<(Figures, Figures)> {
    let fitting = measure(engine, tools, &read(&format!("{prefix}covered"))?, verbose)?;
    let others = measure(engine, tools, &read(&format!("{prefix}uncovered"))?, verbose)?;
    Ok((fitting, others))
}

fn read(name: &str) -> Result<Value> {
    let path = crate::repo::root()?.join("crates/models/evals").join(format!("{name}.json"));
    let text = std::fs::read_to_string(&path).with_context(|| format!("{} can't be read", path.display()))?;
    Ok(serde_json::from_str(&text)?)
}

fn offers(tools: &Value, names: &Value) -> Vec<Offer> {
    let tool = |name: &Value| tools.as_array()?.iter().find(|tool| tool.get("name") == Some(name));
    let text = |tool: &Value, key: &str| tool.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let named = names.as_array().into_iter().flatten().filter_map(tool);
    named
        .map(|tool| Offer {
            text: ToolText::new(&text(tool, "name"), &text(tool, "description"), tool.get("parameters").unwrap_or(&Value::Null)),
            read_only: tool.get("readOnly") == Some(&Value::Bool(true)),
        })
        .collect()
}

fn measure(engine: &Engine, tools: &Value, cases: &Value, verbose: bool) -> Result<Figures> {
    let mut figures = Figures::default();
    for case in cases.as_array().into_iter().flatten() {
        let offers = offers(tools, case.get("tools").unwrap_or(&Value::Null));
        let request = case.get("request").and_then(Value::as_str).unwrap_or_default();
        let said = [Said::Request(request.into())];
        let question = Question { tools: &offers, said: &said };
        let given = answer(engine, &question, &AtomicBool::new(false))?;
        let read_only = |name: &str| offers.iter().any(|offer| offer.text.name() == name && offer.read_only);
        let asks = given.calls.iter().any(|call| call.doubt.is_some() && !read_only(&call.name));
        let unasked = given.calls.iter().any(|call| call.doubt.is_none() || read_only(&call.name));
        let golds = case.get("calls").into_iter().chain(case.get("alternatives").and_then(Value::as_array).into_iter().flatten());
        let right = golds.into_iter().any(|gold| matches(gold, &given));
        figures.requests += 1;
        figures.right += u32::from(right && !asks);
        figures.asks += u32::from(asks);
        figures.declines += u32::from(!unasked);
        if verbose {
            let calls: Vec<String> = given.calls.iter().map(|call| format!("{} {}", call.name, call.arguments)).collect();
            println!("{} {:.2} {request} -> {calls:?}", if right { "right" } else { "-----" }, given.confidence.unwrap_or_default());
        }
    }
    Ok(figures)
}

fn matches(gold: &Value, answer: &Answer) -> bool {
    let gold = gold.as_array().map(Vec::as_slice).unwrap_or_default();
    gold.len() == answer.calls.len()
        && gold.iter().zip(&answer.calls).all(|(gold, call)| {
            let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_default();
            gold.get("name").is_some_and(|name| name == call.name.as_str())
                && gold.get("arguments").is_some_and(|gold| same(gold, &arguments))
        })
}

fn same(gold: &Value, got: &Value) -> bool {
    if let Some(choices) = gold.get("anyOf").and_then(Value::as_array) {
        return choices.iter().any(|choice| same(choice, got));
    }
    let plain = |text: &str| text.trim().trim_end_matches(['.', '!', '?']).to_lowercase();
    match (gold, got) {
        (Value::Object(gold), Value::Object(got)) => {
            let left_out = |gold: &Value| gold.get("optional") == Some(&Value::Bool(true));
            got.keys().all(|key| gold.contains_key(key))
                && gold.iter().all(|(key, gold)| got.get(key).map_or(left_out(gold), |got| same(gold, got)))
        }
        (Value::Array(gold), Value::Array(got)) => gold.len() == got.len() && gold.iter().zip(got).all(|(gold, got)| same(gold, got)),
        (Value::String(gold), Value::String(got)) => plain(gold) == plain(got),
        (Value::Number(gold), Value::Number(got)) => gold.as_f64() == got.as_f64(),
        (gold, got) => gold == got,
    }
}

/// The median time of one request over four tools, the first turn, which reads the tool list, left out.
fn turn(engine: &Engine, tools: &Value) -> Result<Duration> {
    let offers = offers(tools, &serde_json::json!(["current_date", "day_name", "todo_write", "todo_read"]));
    let requests = [
        "What is on my list?",
        "What day of the week was 31 December 1999?",
        "What's today's date?",
        "Show the to-do list",
        "Which weekday was 6 June 1944?",
        "Tell me today's date",
        "Weekday of 1 May 2010?",
        "Order me a taxi",
    ];
    let mut times = Vec::new();
    for request in requests {
        let said = [Said::Request(request.into())];
        let begun = Instant::now();
        answer(engine, &Question { tools: &offers, said: &said }, &AtomicBool::new(false))?;
        times.push(begun.elapsed());
    }
    let mut later = times.split_off(1);
    later.sort();
    Ok(later.get(later.len() / 2).copied().unwrap_or_default())
}
