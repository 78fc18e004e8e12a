//! What many rules cost one call.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use toolwright_core::policy::{ArgMatch, Rule, RuleAction, RuleCall, RuleSet, Taint, ToolRules, allow, any, ask, deny, glob, regex};
use toolwright_core::schema::Schema;
use toolwright_core::{ToolName, ToolOrigin, ToolSpec};

use super::{Measured, median};

const RULES: usize = 1_000;

/// Microseconds for one call against 1,000 rules, all of which concern its tool: each looks at the call's arguments, or at the command
/// in them, and the last one matches.
pub(super) fn rules() -> Result<Measured> {
    let tool = tool()?;
    let calls: Vec<Value> = (0..64).map(call).collect();
    let judge = |args: &Value| tool.judge(RuleCall { args, taint: Taint::default() }, false, |_| false);
    for args in &calls {
        let judged = judge(args);
        ensure!(judged.action == Some(RuleAction::Allow) && judged.rule == Some(RULES - 1), "an earlier rule matched: {judged:?}");
    }
    let mut times = Vec::new();
    for _ in 0..31 {
        let began = Instant::now();
        for args in &calls {
            std::hint::black_box(judge(std::hint::black_box(args)));
        }
        times.push(began.elapsed().as_secs_f64() * 1e6 / calls.len() as f64);
    }
    Ok(vec![("policy", median(times).context("nothing was measured")?)])
}

fn tool() -> Result<ToolRules> {
    let mut rules: Vec<Rule> = (0..RULES - 1).map(rule).collect();
    rules.push(allow(any()));
    let spec =
        ToolSpec::new(ToolName::new("http_request")?, "Sends a request.", Schema::new(json!({ "type": "object" }))?, ToolOrigin::Value);
    Ok(RuleSet::compile(rules)?.for_tool(&spec, true))
}

fn rule(n: usize) -> Rule {
    let rule = match n % 4 {
        0 => deny(any()),
        1 => ask(glob("http_*")),
        2 => allow(["http_request", "web_fetch"]),
        _ => deny(regex("request$")),
    };
    match n % 10 {
        0 | 1 => rule.argument("url", format!("^https://[a-z]+\\.host{n}\\.example/").as_str()),
        2 => rule.argument("url", ArgMatch::prefix(format!("https://internal-{n}."))),
        3 => rule.argument("url", ArgMatch::glob(format!("*/admin/{n}/*"))),
        4 | 5 => rule.argument("method", ArgMatch::one_of([format!("M{n}"), format!("N{n}")])),
        6 => rule.argument("amount", ArgMatch::at_least(1_000 + n as u64)),
        7 => rule.argument("amount", ArgMatch::at_most(5)).argument("method", ArgMatch::equals(format!("Q{n}"))),
        8 => rule.command([format!("tool{n} *")]),
        _ => rule.command([format!("git sub{n} *"), format!("npm run task{n}")]),
    }
}

fn call(n: usize) -> Value {
    json!({
        "url": format!("https://www.shop{n}.example/products/{n}/reviews?page=2"),
        "method": if n.is_multiple_of(2) { "GET" } else { "POST" },
        "amount": n,
        "command": format!("git log --oneline -n {n} | head -5"),
    })
}
