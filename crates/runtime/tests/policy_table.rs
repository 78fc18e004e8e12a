//! Random policies against a small reference: what the whole gate makes of a call is what the table says.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod common;

use common::*;
use proptest::prelude::*;
use toolwright_core::policy::{ArgMatch, PermissionMode, Rule, RuleAction, allow, ask, deny, glob};
use toolwright_core::{Decision, FinishReason, Outcome, ToolFailureKind};
use toolwright_runtime::{Agent, RuleWhen};
use toolwright_tool::{ApprovalOutcome, Tool};

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Ran,
    Asked,
    Refused,
    RunEnded,
}

/// One rule, as the reference sees it.
#[derive(Clone, Copy, Debug)]
struct Line {
    action: RuleAction,
    /// Whether its names, its arguments and its code match the call.
    named: bool,
    fits: bool,
    says: Option<bool>,
    shadow: bool,
}

#[derive(Clone, Debug)]
struct Policy {
    hook_denies: bool,
    rules: Vec<Line>,
    /// Whether a guardrail ends the run.
    guardrail: bool,
    own: u8,
    mode: PermissionMode,
    read_only: bool,
    edits: bool,
}

/// What the stages before the mode say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Denied,
    RunEnds,
    WouldAsk,
    Allowed,
    Nothing,
}

/// The table of sdk-tools 16.4: a row is what was said before, a column is the mode and the tool.
fn table(before: Before, mode: PermissionMode, read_only: bool, edits: bool) -> Fate {
    use Fate::{Asked, Ran, Refused, RunEnded};
    let column = match (mode, read_only, edits) {
        (PermissionMode::Default, ..) => 0,
        (PermissionMode::Plan, true, _) => 1,
        (PermissionMode::Plan, false, _) => 2,
        (PermissionMode::AcceptEdits, _, true) => 3,
        (PermissionMode::AcceptEdits, _, false) => 4,
        (PermissionMode::DontAsk, ..) => 5,
    };
    let row = match before {
        Before::Denied => [Refused; 6],
        Before::RunEnds => [RunEnded; 6],
        Before::WouldAsk => [Asked, Asked, Refused, Ran, Asked, Refused],
        Before::Allowed | Before::Nothing => [Ran, Ran, Refused, Ran, Ran, Ran],
    };
    row[column]
}

fn before(policy: &Policy) -> Before {
    if policy.hook_denies {
        return Before::Denied;
    }
    let rule = policy.rules.iter().find(|line| line.named && line.fits && line.says != Some(false) && !line.shadow).map(|line| line.action);
    if rule == Some(RuleAction::Deny) {
        return Before::Denied;
    }
    if policy.guardrail {
        return Before::RunEnds;
    }
    match (policy.own, rule) {
        (2, _) => Before::Denied,
        (_, Some(RuleAction::Ask)) | (1, None) => Before::WouldAsk,
        (_, Some(RuleAction::Allow)) => Before::Allowed,
        _ => Before::Nothing,
    }
}

fn expected(policy: &Policy) -> Fate {
    table(before(policy), policy.mode, policy.read_only, policy.edits)
}

fn rule(line: Line) -> Rule {
    let matcher = if line.named { glob("a?t") } else { glob("b*") };
    let rule = match line.action {
        RuleAction::Allow => allow(matcher),
        RuleAction::Deny => deny(matcher),
        RuleAction::Ask => ask(matcher),
    };
    let rule = rule.argument("x", ArgMatch::equals(if line.fits { 1 } else { 2 }));
    let rule = match line.says {
        Some(says) => rule.when(move |_| async move { Ok(says) }),
        None => rule,
    };
    if line.shadow { rule.shadow() } else { rule }
}

fn built(policy: &Policy, log: &Log) -> Agent {
    let own = match policy.own {
        0 => ApprovalOutcome::Run,
        1 => ApprovalOutcome::Ask,
        _ => ApprovalOutcome::Deny(None),
    };
    let tool = Tool::new("act", "Acts.").needs_approval_if(move |_| {
        let own = own.clone();
        async move { Ok(own) }
    });
    let tool = if policy.read_only { tool.read_only() } else { tool };
    let tool = if policy.edits { tool.edits_files() } else { tool };
    let (hook, guardrail) = (policy.hook_denies, policy.guardrail);
    agent(Script::new([]))
        .tool(logged_with(tool, log))
        .at(At::Hook, says("hook", move |_| Ok(if hook { Say::Deny(None) } else { Say::Pass })))
        .at(At::Guardrail, says("guardrail", move |_| Ok(if guardrail { Say::EndRun("no".to_owned()) } else { Say::Pass })))
        .rules(policy.rules.iter().map(|line| rule(*line)))
        .permission_mode(policy.mode)
        .build()
        .unwrap()
}

/// One call through the real gate, and what `then` does with it if somebody has to decide.
async fn run(policy: &Policy, then: Option<(Decision, PermissionMode)>) -> (Fate, Option<Fate>) {
    let log = Log::default();
    let agent = built(policy, &log);
    let thread = agent.thread("t");
    let reply = thread.invoke("act", r#"{"x":1}"#).await.unwrap();
    let fate = |reply: &toolwright_runtime::Reply| match (&reply.finish_reason, &reply.outcome) {
        (FinishReason::AwaitingApproval, _) => Fate::Asked,
        (FinishReason::Guardrail, _) => Fate::RunEnded,
        (_, Some(Outcome::Done { .. })) => Fate::Ran,
        (_, Some(Outcome::Failed { failure })) => {
            assert!(matches!(failure.kind, ToolFailureKind::Denied | ToolFailureKind::Rejected), "{failure:?}");
            Fate::Refused
        }
        other => panic!("{other:?}"),
    };
    let first = fate(&reply);
    // Nothing that was not let through has run, and what was has run once.
    assert_eq!(log.len(), usize::from(first == Fate::Ran));
    let (Fate::Asked, Some((decision, mode))) = (first, then) else { return (first, None) };
    thread.set_permission_mode(mode).await.unwrap();
    agent.approvals().decide(&reply.pending[0].id, decision).await.unwrap();
    let last = fate(&thread.resume().await.unwrap());
    assert_eq!(log.len(), usize::from(last == Fate::Ran));
    (first, Some(last))
}

fn line() -> impl Strategy<Value = Line> {
    let action = prop_oneof![Just(RuleAction::Allow), Just(RuleAction::Deny), Just(RuleAction::Ask)];
    let says = prop_oneof![3 => Just(None), 1 => Just(Some(true)), 1 => Just(Some(false))];
    (action, prop::bool::weighted(0.8), prop::bool::weighted(0.7), says, prop::bool::weighted(0.15))
        .prop_map(|(action, named, fits, says, shadow)| Line { action, named, fits, says, shadow })
}

fn mode() -> impl Strategy<Value = PermissionMode> {
    prop::sample::select(PermissionMode::ALL.to_vec())
}

fn policy() -> impl Strategy<Value = Policy> {
    (
        prop::bool::weighted(0.1),
        prop::collection::vec(line(), 0..5),
        prop::bool::weighted(0.15),
        0u8..3,
        mode(),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(hook_denies, rules, guardrail, own, mode, read_only, edits)| Policy {
            hook_denies,
            rules,
            guardrail,
            own,
            mode,
            read_only,
            edits,
        })
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(within(work))
}

fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(400);
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) }
}

proptest! {
    #![proptest_config(config())]

    // rule: sdk-tools 3.1/3, sdk-tools 3.2/3, sdk-tools 16.4
    #[test]
    fn the_gate_does_what_the_table_says(policy in policy(), approve in any::<bool>(), later in mode()) {
        let decision = if approve { Decision::approve() } else { Decision::reject() };
        let (first, last) = block_on(run(&policy, Some((decision, later))));
        prop_assert_eq!(first, expected(&policy));
        if let Some(last) = last {
            // After a decision the gate runs once more; an ask counts as answered.
            let runs = approve && (later != PermissionMode::Plan || policy.read_only);
            prop_assert_eq!(last, if runs { Fate::Ran } else { Fate::Refused });
        }
    }

    // rule: sdk-tools 3.2/3, sdk-tools 16.3/1
    #[test]
    fn a_later_stage_never_takes_back_a_refusal(policy in policy(), other in policy()) {
        // The first stages of one policy, the last ones of another.
        let joined = |stages: usize| {
            let mut mixed = policy.clone();
            if stages < 4 { mixed.mode = other.mode; }
            if stages < 3 { mixed.own = other.own; }
            if stages < 2 { mixed.guardrail = other.guardrail; }
            if stages < 1 { mixed.rules.clone_from(&other.rules); }
            mixed
        };
        let refused_by = if policy.hook_denies {
            0
        } else {
            let alone = |stages: usize| {
                let silent = Policy { hook_denies: false, rules: Vec::new(), guardrail: false, own: 0, mode: PermissionMode::Default, ..policy.clone() };
                match stages {
                    1 => Policy { rules: policy.rules.clone(), ..silent },
                    2 => Policy { guardrail: policy.guardrail, ..silent },
                    _ => Policy { own: policy.own, ..silent },
                }
            };
            match (1..4).find(|stage| block_on(run(&alone(*stage), None)).0 == Fate::Refused) {
                Some(stage) => stage,
                None => return Ok(()),
            }
        };
        let fate = block_on(run(&joined(refused_by), None)).0;
        // A guardrail before the refusing stage may have ended the whole run.
        prop_assert!(fate == Fate::Refused || fate == Fate::RunEnded && refused_by > 1 && policy.guardrail, "{:?}", fate);
    }
}
