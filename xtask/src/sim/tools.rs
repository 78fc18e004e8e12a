//! The simulated tools: a fixed table, a gate that is a pure function of it, and bodies.

use std::sync::Arc;

use serde_json::json;
use toolwright_core::{
    ApprovalAsk, ApprovalId, ApprovalMark, ArgsState, AskKind, CallId, Decision, DecisionVerdict, Ending, Failure, GuardrailTrip, Issue,
    OnInterrupt, Outcome, Remember, Remembered, ThreadId, Timestamp, ToolFailure, ToolFailureKind, ToolOutput, Verdict, json::sorted_hash,
};
use toolwright_runtime::{Executed, GateOutcome, ToolFacts};

use super::rng::Rng;

/// One simulated tool.
#[derive(Clone, Copy)]
pub(super) struct Tool {
    pub(super) name: &'static str,
    pub(super) sequential: bool,
    pub(super) needs_approval: bool,
    pub(super) read_only: bool,
    pub(super) on_interrupt: OnInterrupt,
    /// The longest time its body takes, in milliseconds.
    pub(super) slowest: u64,
    /// In a hundred bodies, those that fail.
    pub(super) fails: u64,
    /// In a hundred bodies, those whose error ends the run.
    pub(super) fatal: u64,
    /// How many people have to approve, and who may.
    pub(super) quorum: u32,
    pub(super) deciders: &'static [&'static str],
    /// How long a decision or a result is waited for, and how often somebody is reminded, in milliseconds.
    within: Option<i64>,
    remind: Option<u64>,
    /// For which later calls an approval stands by itself.
    pub(super) once: Once,
    /// Its result comes from outside.
    pub(super) external: bool,
}

/// For which later calls of a tool an approval stands by itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Once {
    None,
    All,
    SameArguments,
}

impl Tool {
    pub(super) fn deciders(&self) -> Vec<String> {
        self.deciders.iter().map(|name| (*name).to_owned()).collect()
    }

    pub(super) fn once(&self) -> Option<Remember> {
        match self.once {
            Once::None => None,
            Once::All => Some(Remember::Tool),
            Once::SameArguments => Some(Remember::Arguments),
        }
    }
}

const PLAIN: Tool = Tool {
    name: "",
    sequential: false,
    needs_approval: false,
    read_only: false,
    on_interrupt: OnInterrupt::Rerun,
    slowest: 50,
    fails: 0,
    fatal: 0,
    quorum: 1,
    deciders: &[],
    within: None,
    remind: None,
    once: Once::None,
    external: false,
};

/// A tool that asks.
const ASKS: Tool = Tool { needs_approval: true, ..PLAIN };

pub(super) const TOOLS: [Tool; 19] = [
    Tool { name: "read", read_only: true, slowest: 5, ..PLAIN },
    Tool { name: "write", ..PLAIN },
    Tool { name: "flaky", fails: 50, ..PLAIN },
    Tool { name: "crawl", slowest: 5000, fails: 10, ..PLAIN },
    Tool { name: "wipe", on_interrupt: OnInterrupt::Ask, ..PLAIN },
    Tool { name: "pay", needs_approval: true, on_interrupt: OnInterrupt::Fail, ..PLAIN },
    Tool { name: "send", needs_approval: true, on_interrupt: OnInterrupt::Ask, fails: 20, ..PLAIN },
    Tool { name: "migrate", sequential: true, ..PLAIN },
    Tool { name: "deploy", sequential: true, needs_approval: true, on_interrupt: OnInterrupt::Ask, ..PLAIN },
    Tool { name: "boom", fails: 20, fatal: 20, ..PLAIN },
    Tool {
        name: "wire",
        quorum: 2,
        deciders: &["ada", "bob", "cleo"],
        within: Some(4000),
        remind: Some(800),
        on_interrupt: OnInterrupt::Ask,
        ..ASKS
    },
    Tool { name: "amend", quorum: 3, ..ASKS },
    Tool { name: "brief", within: Some(400), ..ASKS },
    Tool { name: "sign", deciders: &["ada", "bob"], remind: Some(600), ..ASKS },
    Tool { name: "grant", once: Once::All, within: Some(3000), ..ASKS },
    Tool { name: "visit", once: Once::SameArguments, ..ASKS },
    Tool { name: "seal", once: Once::All, quorum: 2, ..ASKS },
    Tool { name: "pick", external: true, within: Some(1500), ..PLAIN },
    Tool { name: "hire", external: true, within: Some(3000), remind: Some(1000), ..ASKS },
];

/// The table as the driver sees it.
pub(super) struct Table {
    names: Vec<Arc<str>>,
}

impl Table {
    pub(super) fn new() -> Self {
        Self { names: TOOLS.iter().map(|tool| Arc::from(tool.name)).collect() }
    }
}

pub(super) fn tool(name: &str) -> Option<&'static Tool> {
    TOOLS.iter().find(|tool| tool.name == name)
}

impl ToolFacts for Table {
    fn resolve(&self, written: &str) -> Option<Arc<str>> {
        self.names.iter().find(|name| written.eq_ignore_ascii_case(name)).cloned()
    }

    fn is_sequential(&self, name: &str) -> bool {
        tool(name).is_some_and(|tool| tool.sequential)
    }

    fn after_interrupt(&self, name: &str) -> OnInterrupt {
        tool(name).map_or(OnInterrupt::Rerun, |tool| tool.on_interrupt)
    }
}

/// What the gate goes by; taken when the gate begins, as the shell does.
pub(super) struct GateRequest {
    pub(super) call: CallId,
    pub(super) tool: Arc<str>,
    pub(super) written: Arc<str>,
    pub(super) state: ArgsState,
    pub(super) confirm: bool,
    pub(super) decided: Option<(ApprovalAsk, Decision, Arc<str>)>,
    pub(super) asked: u32,
    /// Approvals that stand for later calls of the tool.
    pub(super) remembered: Vec<Remembered>,
    /// Hashes of arguments that people approved in this turn, and marks of what they approved before.
    pub(super) approved_in_turn: Vec<Arc<str>>,
    pub(super) approved: Vec<ApprovalMark>,
    pub(super) now: i64,
}

impl GateRequest {
    /// Whether an earlier approval stands for the call.
    fn is_remembered(&self, tool: &Tool, text: &str) -> bool {
        let (args, deciders) = (sorted_hash(text), tool.deciders());
        let stands = |known: &Remembered| known.covers(tool.name, &args) && known.may_answer(tool.quorum, &deciders);
        let same = |approved: &str| match tool.once {
            Once::None => false,
            Once::All => true,
            Once::SameArguments => *approved == args,
        };
        self.remembered.iter().any(stands)
            || self.approved_in_turn.iter().any(|approved| same(approved))
            || self.approved.iter().any(|mark| same(&mark.args))
    }

    fn asks(&self, tool: &Tool, thread: &ThreadId, kind: AskKind) -> Verdict {
        let outside = kind == AskKind::External;
        Verdict::Ask(ApprovalAsk {
            kind,
            expires_at: tool.within.map(|within| Timestamp(self.now + within)),
            quorum: if outside { 1 } else { tool.quorum },
            deciders: if outside { Vec::new() } else { tool.deciders() },
            once: tool.once(),
            remind_every_ms: tool.remind,
            ..ApprovalAsk::new(ApprovalId::of(thread, &self.call, self.asked + 1))
        })
    }
}

/// A stand-in for SHA-256 that costs nothing: FNV-1a.
pub(super) fn hash_of(text: &str) -> Arc<str> {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}").into()
}

/// Takes a call to a verdict. What the arguments say decides, so that every answer is the same after a crash.
pub(super) fn gate(thread: &ThreadId, request: &GateRequest) -> GateOutcome {
    let refused = |arguments, failure: ToolFailure| {
        let failure = Arc::new(failure);
        let settled = Executed::of(Outcome::Failed { failure: Arc::clone(&failure) });
        GateOutcome {
            arguments,
            repairs: Vec::new(),
            read_only: false,
            notes: None,
            verdict: Verdict::Refuse { failure },
            settled: Some(settled),
        }
    };
    let Some(tool) = tool(&request.tool) else {
        return refused(None, ToolFailure::new(ToolFailureKind::NotFound, &*request.tool, "there is no such tool"));
    };
    let text = match &request.decided {
        Some((_, Decision { verdict: DecisionVerdict::ApproveEdited { arguments }, .. }, _)) => arguments,
        Some((_, _, gated)) => gated,
        None => &request.written,
    };
    let cut = request.decided.is_none() && request.state == ArgsState::Truncated;
    if cut || !(text.starts_with('{') && text.ends_with('}')) {
        let issue = Issue { path: String::new(), message: "not an object".to_owned() };
        return refused(None, ToolFailure::validation(tool.name, vec![issue]));
    }
    let arguments = Some((Arc::clone(text), hash_of(text)));
    if text.contains("deny") {
        return refused(arguments, ToolFailure::denied(tool.name, None));
    }
    let passed = |verdict, settled| GateOutcome {
        arguments: arguments.clone(),
        repairs: Vec::new(),
        read_only: tool.read_only,
        notes: None,
        verdict,
        settled,
    };
    if text.contains("answer") {
        let output = Arc::new(ToolOutput::text("answered by a hook"));
        let settled = Executed::of(Outcome::Done { output: Arc::clone(&output) });
        return passed(Verdict::Answer { output }, Some(settled));
    }
    if text.contains("throw") {
        let failure = Failure { name: "HookError".to_owned(), message: "a hook threw".to_owned(), code: None };
        return passed(Verdict::EndRun { ending: Ending::Error { failure } }, None);
    }
    if text.contains("trip") {
        let trip = GuardrailTrip {
            name: "fence".to_owned(),
            kind: "tool".to_owned(),
            reason: "tripped".to_owned(),
            tool_name: Some(tool.name.to_owned()),
            info: None,
        };
        return passed(Verdict::EndRun { ending: Ending::Guardrail { trip, throws: false } }, None);
    }
    let Some((asked, decision, _)) = &request.decided else {
        let asks = tool.needs_approval || (request.confirm && !tool.read_only);
        return match tool.external {
            _ if asks && !request.is_remembered(tool, text) => passed(request.asks(tool, thread, AskKind::Tool), None),
            true => passed(request.asks(tool, thread, AskKind::External), None),
            false => passed(Verdict::Run, None),
        };
    };
    if decision.verdict == DecisionVerdict::Lapsed || decision.at.is_some_and(|at| asked.has_lapsed(at)) {
        return refused(arguments.clone(), ToolFailure::denied(tool.name, Some("nobody decided in time".to_owned())));
    }
    match &decision.verdict {
        DecisionVerdict::Reject => refused(arguments.clone(), ToolFailure::rejected(tool.name, decision.note.clone())),
        DecisionVerdict::Fail { failure } => refused(arguments.clone(), (**failure).clone()),
        DecisionVerdict::Complete { output } => {
            let settled = Executed::of(Outcome::Done { output: Arc::clone(output) });
            passed(Verdict::Answer { output: Arc::clone(output) }, Some(settled))
        }
        _ if tool.external => passed(request.asks(tool, thread, AskKind::External), None),
        _ => passed(Verdict::Run, None),
    }
}

/// What a body ends with.
pub(super) fn body(tool: &Tool, told_to_stop: bool, rng: &mut Rng) -> Executed {
    let done = Executed::of;
    if told_to_stop && rng.percent(60) {
        let failure = ToolFailure::new(ToolFailureKind::Execution, tool.name, "it was stopped").named("AbortError");
        return done(Outcome::failed(failure));
    }
    if rng.percent(tool.fatal) {
        let failure = ToolFailure::new(ToolFailureKind::Execution, tool.name, "it gave up");
        let fatal = Failure { name: "Boom".to_owned(), message: "it gave up".to_owned(), code: None };
        return Executed { fatal: Some(fatal), ..Executed::of(Outcome::failed(failure)) };
    }
    if rng.percent(tool.fails) {
        let mut failure = ToolFailure::new(ToolFailureKind::Execution, tool.name, "it failed");
        failure.retries_left = rng.percent(30).then_some(1);
        return done(Outcome::failed(failure));
    }
    match rng.below(10) {
        0 => done(Outcome::done(ToolOutput::default())),
        1 | 2 => done(Outcome::done(ToolOutput::json(json!(rng.below(1000))))),
        _ => done(Outcome::done(ToolOutput::text("ok"))),
    }
}
