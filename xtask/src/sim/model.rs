//! The simulated model: random replies, well-formed and not.

use toolwright_core::{
    ArgsState, CallId, CallItem, Ending, Failure, FinishReason, GuardrailTrip, Item, RewriteNote, RewrittenInput, SideUsage, Usage,
};
use toolwright_runtime::{ErrorCategory, InputCheck, ModelError, ModelReply, Review};

use super::rng::Rng;
use super::tools::TOOLS;

/// Arguments as a model writes them; the gate reads its verdict off them.
const ARGUMENTS: [&str; 12] = [
    r#"{"n":1}"#,
    r#"{"n":2}"#,
    r#"{"n":3}"#,
    r#"{"n":4}"#,
    r#"{"text":"é"}"#,
    "{}",
    r#"{"deny":1}"#,
    r#"{"answer":1}"#,
    r#"{"n":"#,
    "",
    r#"{"trip":1}"#,
    r#"{"throw":1}"#,
];

pub(super) fn arguments(rng: &mut Rng) -> &'static str {
    // Those that end the run are rare, or few schedules would get far.
    let kinds = if rng.percent(4) { ARGUMENTS.len() } else { ARGUMENTS.len() - 2 };
    let usual = if rng.percent(70) { 6 } else { kinds };
    ARGUMENTS.get(rng.index(usual)).copied().unwrap_or("{}")
}

/// How the model of a schedule is.
#[derive(Clone, Copy)]
pub(super) struct Character {
    /// In a hundred replies, those that call tools.
    pub(super) calls: u64,
    /// In a hundred requests, those that fail.
    pub(super) fails: u64,
    /// The most calls in a reply.
    pub(super) most: u64,
    /// It calls the same thing for ever.
    pub(super) endless: bool,
}

pub(super) fn reply(model: Character, rng: &mut Rng) -> Result<ModelReply, ModelError> {
    if rng.percent(model.fails) {
        return Err(ModelError::new("sim", "it is overloaded").in_category(ErrorCategory::RateLimit));
    }
    let usage = rng.percent(80).then(|| Usage { input_tokens: rng.below(100), output_tokens: rng.below(100), ..Usage::default() });
    let mut items = Vec::new();
    if model.endless {
        items.push(call("read", "{}", Some("again"), ArgsState::Complete, None));
        return Ok(ModelReply { items, finish: FinishReason::ToolCalls, usage, model: None });
    }
    if rng.percent(10) {
        items.push(Item::Reasoning { text: "hm".to_owned(), signature: None, provenance: None, encrypted: None });
    }
    if !rng.percent(model.calls) {
        if !rng.percent(15) {
            items.push(Item::text("that is all"));
        }
        let finish = match rng.below(10) {
            0 => FinishReason::Length,
            1 => FinishReason::ContentFilter,
            2 => FinishReason::Unknown,
            _ => FinishReason::Stop,
        };
        return Ok(ModelReply { items, finish, usage, model: Some("sim-1".to_owned()) });
    }
    if rng.percent(30) {
        items.push(Item::text("let me see"));
    }
    let count = rng.between(1, model.most);
    let cut = rng.percent(4);
    // Now and then all are of one tool that asks, some with the same arguments.
    let asking: Vec<&str> = TOOLS.iter().filter(|tool| tool.needs_approval).map(|tool| tool.name).collect();
    let one = if rng.percent(20) { rng.pick(&asking) } else { None };
    for position in 1..=count {
        let name = match rng.below(20) {
            0 => "nothing_of_the_kind",
            1 => "READ",
            _ if one.is_some() => one.unwrap_or("pay"),
            _ => TOOLS.get(rng.index(TOOLS.len())).map_or("read", |tool| tool.name),
        };
        let unique;
        let id = match rng.below(10) {
            0 | 1 => None,
            2 => Some("dup"),
            3 => Some("  "),
            _ => {
                unique = format!("id_{}", rng.below(1_000_000));
                Some(unique.as_str())
            }
        };
        let state = if cut && position == count { ArgsState::Truncated } else { ArgsState::Complete };
        let confirm = rng.percent(3).then_some("please confirm");
        items.push(call(name, arguments(rng), id, state, confirm));
    }
    let finish = match rng.below(20) {
        _ if cut => FinishReason::Length,
        0 => FinishReason::Stop,
        1 => FinishReason::Unknown,
        2 => FinishReason::ContentFilter,
        _ => FinishReason::ToolCalls,
    };
    Ok(ModelReply { items, finish, usage, model: None })
}

fn call(name: &str, arguments: &str, provider_id: Option<&str>, state: ArgsState, ask: Option<&str>) -> Item {
    Item::ToolCall(CallItem {
        call_id: CallId::new(""),
        provider_id: provider_id.map(str::to_owned),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
        state,
        ask: ask.map(str::to_owned),
        provider_data: None,
    })
}

/// How a check that does not pass ends the run.
fn ending(kind: &str, rng: &mut Rng) -> Ending {
    if rng.percent(25) {
        return Ending::Error { failure: Failure { name: "CheckError".to_owned(), message: "a check threw".to_owned(), code: None } };
    }
    let trip = GuardrailTrip { name: "fence".to_owned(), kind: kind.to_owned(), reason: "tripped".to_owned(), tool_name: None, info: None };
    Ending::Guardrail { trip, throws: rng.percent(20) }
}

fn side(rng: &mut Rng) -> Option<SideUsage> {
    let usage = Usage { input_tokens: rng.below(30), output_tokens: 1, ..Usage::default() };
    rng.percent(10).then_some(SideUsage { calls: 1, usage })
}

/// What those say who look at a reply, or at the input beside it.
pub(super) fn review(trips: u64, replied: bool, rng: &mut Rng) -> Review {
    let mut review = Review { side: side(rng), ..Review::default() };
    if rng.percent(trips) {
        let kind = if rng.percent(40) { "input" } else { "output" };
        review.ending = Some(ending(kind, rng));
    } else if replied && rng.percent(trips) {
        review.rewrote.push(RewriteNote { name: "fence".to_owned(), reason: None, info: None });
    }
    review
}

/// What guardrails say about new input.
pub(super) fn check(messages: usize, trips: u64, rng: &mut Rng) -> InputCheck {
    let mut check = InputCheck { side: side(rng), ..InputCheck::default() };
    if rng.percent(20) {
        check.rewritten.push(RewrittenInput { index: rng.index(messages), text: "[checked]".into() });
        check.rewrote.push(RewriteNote { name: "fence".to_owned(), reason: None, info: None });
    }
    if rng.percent(trips * 2) {
        check.ending = Some(ending("input", rng));
    }
    check
}
