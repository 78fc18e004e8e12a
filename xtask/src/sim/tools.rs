//! The simulated tools: a fixed table, a gate that is a pure function of it, and bodies.

use std::sync::Arc;

use serde_json::json;
use toolwright_core::{
    ApprovalAsk, ApprovalId, ArgsState, CallId, Decision, DecisionVerdict, Ending, Failure, GuardrailTrip, Issue, OnInterrupt, Outcome,
    ThreadId, ToolFailure, ToolFailureKind, ToolOutput, Verdict,
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
};

pub(super) const TOOLS: [Tool; 10] = [
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
    pub(super) decided: Option<(Decision, Arc<str>)>,
    pub(super) asked: u32,
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
        Some((Decision { verdict: DecisionVerdict::ApproveEdited { arguments }, .. }, _)) => arguments,
        Some((_, gated)) => gated,
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
    match &request.decided {
        Some((Decision { verdict: DecisionVerdict::Reject, note, .. }, _)) => {
            refused(arguments.clone(), ToolFailure::rejected(tool.name, note.clone()))
        }
        Some(_) => passed(Verdict::Run, None),
        None if tool.needs_approval || (request.confirm && !tool.read_only) => {
            let approval = ApprovalId::of(thread, &request.call, request.asked + 1);
            passed(Verdict::Ask(ApprovalAsk::new(approval)), None)
        }
        None => passed(Verdict::Run, None),
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
