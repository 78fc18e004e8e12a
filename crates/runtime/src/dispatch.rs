//! The one dispatch: every path to a tool's body goes through here, in the order this file reads.
//!
//! [`Dispatch::gate`] takes a call to a verdict; [`Dispatch::execute`] runs a cleared call's body to its one result.
//! Nothing else in this workspace begins a body (invariant 5).

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use serde_json::{Map, Value};
use tokio::task::coop::{consume_budget, unconstrained};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use toolwright_core::args::{Arguments, Repair, RepairNote};
use toolwright_core::policy::{PermissionMode, Taint};
use toolwright_core::taint::Marks;
use toolwright_core::{
    ApprovalAsk, ArgsState, AskKind, CallId, Decision, DecisionVerdict, Ending, Failure, GateNotes, Issue, Outcome, Part, PermissionNote,
    PermissionWord, Remembered, RunId, ThreadId, Timestamp, ToolFailure, ToolFailureKind, ToolOutput, Transcript, Verdict,
};
use toolwright_tool::{
    Approval, ApprovalOutcome, ApprovalRequest, ContextParts, EnvSource, Identity, MemoryKeep, ReadNotes, Running, Snapshots, StateMap,
    Tool, ToolContext, ToolError,
};

mod asking;
mod secrets;
pub(crate) mod taint;
mod watch;

use self::taint::{Reads, WatchedKeep, watched_env};
pub(crate) use self::watch::WatchedRun;
use self::watch::{After, Watch};

use crate::driver::{Executed, GateOutcome};
use crate::guard::Guardrails;
use crate::hook::{Hooks, thrown};
use crate::keep::Beside;
use crate::permissions::{Permissions, Said, Trail};
use crate::registry::Registry;
use crate::stage::{Check, GateCall, StageKind, Stages};

/// How long a body may take where its tool does not say (invariant 13).
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a body that was told to stop may take to end before it is dropped (invariant 13).
pub const GRACE: Duration = Duration::from_secs(5);
/// The longest result, in characters, where neither tool nor agent says.
pub const DEFAULT_RESULT_LIMIT: usize = 100_000;

/// What an agent's dispatch goes by.
#[derive(Clone)]
pub(crate) struct Dispatch {
    pub(crate) registry: Registry,
    pub(crate) stages: Stages,
    pub(crate) permissions: Permissions,
    pub(crate) hooks: Hooks,
    pub(crate) guardrails: Arc<Guardrails>,
    /// How often a run may call a tool, beside what the tool says.
    pub(crate) max_calls: HashMap<Arc<str>, u32>,
    pub(crate) agent: Arc<str>,
    pub(crate) state: StateMap,
    pub(crate) env: Arc<dyn EnvSource>,
    pub(crate) timeout: Duration,
    pub(crate) grace: Duration,
    pub(crate) result_limit: usize,
    /// How long a question stands where nobody says.
    pub(crate) approval_ttl: Option<Duration>,
}

/// What is the same for every call of a run.
#[derive(Clone)]
pub(crate) struct RunFacts {
    pub(crate) thread: Option<ThreadId>,
    pub(crate) run: Option<RunId>,
    pub(crate) principal: Option<Arc<Identity>>,
    pub(crate) state: StateMap,
    pub(crate) cancelled: CancellationToken,
    pub(crate) beside: Beside,
    /// The permission mode that the thread says, as it is now.
    pub(crate) mode: Option<PermissionMode>,
    /// What those need who look at calls; `None` where nobody does.
    pub(crate) watched: Option<Box<WatchedRun>>,
}

/// A call before the gate.
pub(crate) struct GateRequest {
    pub(crate) call: CallId,
    pub(crate) tool: Arc<str>,
    pub(crate) written: Arc<str>,
    pub(crate) args_state: ArgsState,
    /// Why whatever wrote the call wants it confirmed.
    pub(crate) ask: Option<String>,
    /// After a decision: what was asked, what was decided, and the arguments it was about.
    pub(crate) decided: Option<(ApprovalAsk, Decision, Arc<str>)>,
    /// How often a decision was asked for.
    pub(crate) asked: u32,
    /// Approvals of this tool that stand for later calls.
    pub(crate) remembered: Vec<Remembered>,
    /// Hashes of the arguments that people approved in this turn, of this tool.
    pub(crate) approved_in_turn: Vec<Arc<str>>,
    /// When the call came before the gate.
    pub(crate) now: Timestamp,
    /// Bodies of this tool begun in this run.
    pub(crate) calls_in_run: u32,
    /// The transcript before the calling turn.
    pub(crate) messages: Transcript,
    pub(crate) run: RunFacts,
}

/// A cleared call.
pub(crate) struct ExecuteRequest {
    pub(crate) call: CallId,
    pub(crate) tool: Arc<str>,
    pub(crate) arguments: Arc<str>,
    pub(crate) attempt: u32,
    pub(crate) decision: Option<Decision>,
    /// Who approved besides, where several had to.
    pub(crate) approved_by: Vec<String>,
    /// How often this tool asked for another try in this run.
    pub(crate) retries_in_run: u32,
    pub(crate) messages: Transcript,
    pub(crate) run: RunFacts,
    pub(crate) cancelled: CancellationToken,
    pub(crate) snapshots: Arc<dyn Snapshots>,
}

/// What rules say about a call.
struct Ruled {
    ask: Option<ApprovalRequest>,
    allowed: bool,
    decided: bool,
    /// What the arguments repeat of marked text.
    repeats: toolwright_core::taint::Taint,
}

struct NoSnapshots;

impl Snapshots for NoSnapshots {
    fn show(&self, _snapshot: Value) {}
}

/// A call that does not go on: its verdict, and its result unless somebody has to decide first.
struct Stopped {
    verdict: Box<Verdict>,
    outcome: Option<Outcome>,
    /// The hook that answered.
    replaced_by: Option<String>,
}

impl Stopped {
    /// The failure of a call that was refused.
    fn refusal(&self) -> Option<&ToolFailure> {
        match &*self.verdict {
            Verdict::Refuse { failure } => Some(failure),
            _ => None,
        }
    }

    fn refused(failure: ToolFailure) -> Self {
        let failure = Arc::new(failure);
        Self {
            verdict: Box::new(Verdict::Refuse { failure: Arc::clone(&failure) }),
            outcome: Some(Outcome::Failed { failure }),
            replaced_by: None,
        }
    }

    /// By a hook, or from outside.
    fn answered(by: Option<&str>, output: ToolOutput) -> Self {
        let output = Arc::new(output);
        let verdict = Box::new(Verdict::Answer { output: Arc::clone(&output) });
        Self { verdict, outcome: Some(Outcome::Done { output }), replaced_by: by.map(str::to_owned) }
    }

    fn ends_run(ending: Ending) -> Self {
        Self { verdict: Box::new(Verdict::EndRun { ending }), outcome: None, replaced_by: None }
    }

    /// A stage that throws ends the run with an error.
    fn threw(what: &str, name: &str, error: &ToolError) -> Self {
        Self::ends_run(Ending::Error { failure: thrown(what, name, error) })
    }
}

impl Dispatch {
    /// Whether hooks or guardrails look at calls.
    pub(crate) fn is_watched(&self) -> bool {
        !self.hooks.is_empty() || self.guardrails.watches_calls()
    }

    /// Takes a call through the gate: resolve, read, hooks, rules, guardrails, the tool's own say, the mode, approval.
    ///
    /// What few calls come to is boxed here and below: the future of the others is moved to the heap as a whole, and stays small.
    pub(crate) async fn gate(&self, request: &GateRequest) -> GateOutcome {
        let id = request.call.to_string();
        let Some(tool) = self.registry.get(&request.tool) else {
            let mut failure = self.not_found(&request.tool);
            failure.tool_call_id = Some(id);
            let shown = object_text(&request.written);
            let permission = self.audit(Trail::new(), request, &Value::Object(Map::new()));
            return GateOutcome {
                arguments: shown,
                repairs: Vec::new(),
                read_only: false,
                notes: GateNotes { permission, ..GateNotes::default() }.some(),
                verdict: Verdict::Refuse { failure: Arc::new(failure.clone()) },
                settled: Some(Executed::of(Outcome::failed(failure))),
            };
        };
        let read_only = tool.spec().annotations.read_only();
        if request.args_state == ArgsState::Redacted {
            return Box::pin(self.held_secret(tool, request)).await;
        }
        let arguments = match read_arguments(tool, request) {
            Ok(arguments) => arguments,
            Err(issues) => {
                let mut failure = ToolFailure::validation(tool.name().as_str(), issues);
                failure.tool_call_id = Some(id);
                let cx = self.context(tool, request, Arc::new(empty_arguments(tool)));
                let watch = Watch::of(&request.run, &request.run.cancelled);
                let executed = Executed::of(Outcome::failed(failure.clone()));
                let after = After { run: &request.run, resumed: request.decided.is_some(), watch: watch.as_ref(), from_outside: false };
                let settled = Box::pin(self.after_hooks(tool, &cx, executed, &after)).await;
                return GateOutcome {
                    arguments: object_text(&request.written),
                    repairs: Vec::new(),
                    read_only,
                    notes: None,
                    verdict: Verdict::Refuse { failure: Arc::new(failure) },
                    settled: Some(settled),
                };
            }
        };
        let mut cx = self.context(tool, request, Arc::new(arguments));
        let mut trail = Trail::new();
        let mut watch = Watch::of(&request.run, &request.run.cancelled);
        let mut passed = self.stages_and_approval(tool, &mut cx, request, &mut trail, watch.as_mut()).await;
        let noted = watch.as_mut().map(Watch::noted).unwrap_or_default();
        // Whoever put it there: nothing that a stage says lets it through, and whoever comes after sees arguments without it.
        if let Some((name, clean)) = secrets::held(request.run.beside.redactor.as_ref(), cx.args()) {
            let failure = secrets::refusal(tool.spec(), Some(&name));
            trail.lapsed(failure.reason.clone());
            passed = Err(Stopped::refused(failure));
            cx = ToolContext::new(ContextParts { args: Arc::new(clean), ..cx.parts().clone() });
        }
        let args = cx.args();
        let shown = Some((Arc::clone(args.text()), Arc::from(args.sha256_hex())));
        let repairs: Vec<RepairNote> = args.repairs().to_vec();
        let edited = request.decided.as_ref().is_some_and(|(_, decision, _)| decision.edited().is_some());
        let taint = match trail.repeats.take() {
            Some((text, taint)) if text == *args.text() => taint,
            _ => request.run.beside.marked.taint_of(&request.messages, args.value()),
        };
        let permission = match &passed {
            // One refused for its arguments was not judged (sdk-tools 12.3/1).
            Err(stopped) if stopped.refusal().is_some_and(|failure| failure.kind == ToolFailureKind::Validation) => None,
            _ => self.audit(trail, request, args.value()),
        };
        let notes = GateNotes { permission, edited, taint, ..noted }.some();
        match passed {
            Ok(()) => GateOutcome { arguments: shown, repairs, read_only, notes, verdict: Verdict::Run, settled: None },
            Err(Stopped { verdict, outcome, replaced_by }) => {
                let mut verdict = *verdict;
                let settled = match outcome {
                    Some(mut outcome) => {
                        if let Outcome::Failed { failure } = &mut outcome {
                            Arc::make_mut(failure).tool_call_id = Some(id);
                        }
                        let answered = matches!(verdict, Verdict::Answer { .. });
                        let executed = Executed { replaced_by, ..Executed::of(outcome) };
                        let resumed = request.decided.is_some();
                        let after = After { run: &request.run, resumed, watch: watch.as_ref(), from_outside: answered };
                        let mut settled = Box::pin(self.after_hooks(tool, &cx, executed, &after)).await;
                        if answered {
                            // Whoever answered in the body's place may have it from outside too.
                            taint::mark(&mut settled, Marks { untrusted: tool.spec().annotations.open_world(), private: Vec::new() });
                        }
                        Some(settled)
                    }
                    None => None,
                };
                // What a hook answered is recorded as it was bounded, kept and checked.
                if let (Verdict::Answer { .. }, Some(settled)) = (&verdict, &settled) {
                    verdict = match &settled.outcome {
                        Outcome::Done { output } => Verdict::Answer { output: Arc::clone(output) },
                        Outcome::Failed { failure } => Verdict::Refuse { failure: Arc::clone(failure) },
                    };
                }
                GateOutcome { arguments: shown, repairs, read_only, notes, verdict, settled }
            }
        }
    }

    /// A call whose arguments held a secret, which was taken out before they came here.
    async fn held_secret(&self, tool: &Tool, request: &GateRequest) -> GateOutcome {
        let name = request.run.beside.redactor.as_ref().and_then(|redactor| redactor.find_mark(&request.written));
        let mut failure = secrets::refusal(tool.spec(), name.map(|name| &**name));
        failure.tool_call_id = Some(request.call.to_string());
        let mut trail = Trail::new();
        trail.lapsed(failure.reason.clone());
        let shown = object_text(&request.written);
        let args = shown.as_ref().and_then(|(text, _)| Arguments::of_sealed(Arc::clone(text)).ok()).unwrap_or_else(Arguments::empty);
        let permission = self.audit(trail, request, args.value());
        let cx = self.context(tool, request, Arc::new(args));
        let watch = Watch::of(&request.run, &request.run.cancelled);
        let executed = Executed::of(Outcome::failed(failure.clone()));
        let settled = self
            .after_hooks(tool, &cx, executed, &After { run: &request.run, resumed: false, watch: watch.as_ref(), from_outside: false })
            .await;
        GateOutcome {
            arguments: shown,
            repairs: Vec::new(),
            read_only: tool.spec().annotations.read_only(),
            notes: GateNotes { permission, ..GateNotes::default() }.some(),
            verdict: Verdict::Refuse { failure: Arc::new(failure) },
            settled: Some(settled),
        }
    }

    /// The audit entry of a call, where anybody wants one. After a decision there is a second one only if the call is refused then.
    fn audit(&self, trail: Trail, request: &GateRequest, args: &Value) -> Option<PermissionNote> {
        let mode = request.run.mode.or_else(|| self.permissions.mode().ok()).unwrap_or_default();
        if !self.permissions.audits(mode) || request.decided.is_some() && !trail.is_denied() {
            return None;
        }
        let who = request.run.principal.as_deref();
        Some(self.permissions.note(trail, &request.tool, &request.call, args, who, request.now))
    }

    async fn stages_and_approval(
        &self,
        tool: &Tool,
        cx: &mut ToolContext,
        request: &GateRequest,
        trail: &mut Trail,
        watch: Option<&mut Watch>,
    ) -> Result<(), Stopped> {
        let spec = tool.spec();
        let name = spec.name.as_str();
        let resumed = request.decided.is_some();

        if let Some(watch) = watch.as_deref() {
            Box::pin(self.before_hooks(tool, cx, resumed, watch, trail)).await?;
        }

        let limits = [spec.max_calls, self.max_calls.get(name).copied()];
        if let Some(limit) = limits.into_iter().flatten().min().filter(|limit| request.calls_in_run >= *limit) {
            let calls = if limit == 1 { "1 call".to_owned() } else { format!("{limit} calls") };
            return Err(Stopped::refused(ToolFailure::denied(name, Some(format!("its limit of {calls} a run is reached")))));
        }

        // Permission rules: the first that decides wins. What a guardrail makes of the arguments they look at too, so that no rewrite
        // slips past a refusal.
        let mut ruled = self.by_rules(tool, cx, request, trail).await?;
        if let Some(watch) = watch {
            let judged = Arc::clone(cx.args().text());
            Box::pin(self.guard_arguments(tool, cx, resumed, request, watch)).await?;
            if *cx.args().text() != judged {
                *trail = Trail::new();
                ruled = self.by_rules(tool, cx, request, trail).await?;
            }
        }
        let Ruled { mut ask, allowed: rule_allowed, decided: rule_decided, repeats } = ruled;

        // The tool's own say: its refusal counts whatever a rule allowed; its ask only where no rule decided.
        match self.own_say(tool, cx).await.map_err(|error| Stopped::refused(error.to_failure(name)))? {
            ApprovalOutcome::Deny(reason) => return Err(Stopped::refused(ToolFailure::denied(name, reason))),
            ApprovalOutcome::Ask if !rule_decided => ask = Some(ApprovalRequest::new()),
            ApprovalOutcome::AskFor(own) if !rule_decided => ask = Some(*own),
            // A rule's ask replaces the tool's own, but what is asked for stays: an answer is still needed.
            ApprovalOutcome::AskFor(own) if !own.kind.is_tool() => {
                ask = ask.map(|rule| ApprovalRequest { kind: own.kind, detail: own.detail, ..rule });
            }
            _ => {}
        }
        if let Some(reason) = request.ask.as_ref().filter(|_| !rule_decided && !spec.annotations.read_only()) {
            ask.get_or_insert_with(|| ApprovalRequest::new().reason(reason.clone()));
        }
        if let Some(asks) = ask.as_ref().filter(|_| request.decided.is_none())
            && Self::is_remembered(request, cx, asks)
        {
            ask = None;
        }

        // What is the thread's own goes out only where a rule or a person lets it; that a tool was approved once for all says nothing of
        // what its next call would take along.
        if !rule_decided && ask.is_none() && spec.annotations.open_world() {
            ask = taint::asks(spec, &repeats);
        }

        // The mode, last: it may refuse or skip a pause, never un-deny.
        for mode in self.stages.of(StageKind::Mode) {
            let checked = mode.check(&GateCall { spec, cx, resumed_after_approval: resumed }).await;
            match checked.map_err(|error| Stopped::threw("mode", mode.name(), &error))? {
                Check::Deny(reason) => return Err(Stopped::refused(ToolFailure::denied(name, reason))),
                Check::Allow => ask = None,
                Check::Ask(request) => ask = Some(*request),
                _ => {}
            }
        }
        let decided = request.decided.as_ref().map(|(_, decision, _)| decision.approves());
        // What a person rejected, or what has come from outside, is settled.
        if decided != Some(false) {
            let mode = match request.run.mode {
                Some(mode) => mode,
                None => self.permissions.mode().map_err(|error| Stopped::refused(error.to_failure(name)))?,
            };
            let waits = || ask.is_some() || mode == PermissionMode::DontAsk && tool.external_request().is_some();
            let asks = decided.is_none() && waits();
            match self.permissions.last_word(spec, mode, asks, rule_allowed, trail) {
                Ok(skips) => ask = ask.filter(|_| !skips),
                Err(why) => return Err(Stopped::refused(ToolFailure::denied(name, Some(why.to_owned())))),
            }
        }
        let settled = self.settle(tool, request, ask);
        if let (Some(failure), Some((asked, decision, _))) = (settled.as_ref().err().and_then(Stopped::refusal), &request.decided)
            && asked.kind != AskKind::External
            && (decision.verdict == DecisionVerdict::Lapsed || decision.at.is_some_and(|at| asked.has_lapsed(at)))
        {
            // Expired questions are told to the audit too (sdk-tools 12.3/7).
            trail.lapsed(failure.reason.clone());
        }
        settled
    }

    /// What permission rules say about a call: those of the agent, then stages in code.
    async fn by_rules(&self, tool: &Tool, cx: &ToolContext, request: &GateRequest, trail: &mut Trail) -> Result<Ruled, Stopped> {
        let repeats = request.run.beside.marked.taint_of(&request.messages, cx.args().value());
        trail.repeats = Some((Arc::clone(cx.args().text()), repeats.clone()));
        let ruled = Ruled { ask: None, allowed: false, decided: false, repeats };
        if !self.permissions.concern(cx.tool_name()) && self.stages.of(StageKind::Rule).next().is_none() {
            return Ok(ruled);
        }
        Box::pin(self.by_each_rule(tool, cx, request, ruled, trail)).await
    }

    async fn by_each_rule(
        &self,
        tool: &Tool,
        cx: &ToolContext,
        request: &GateRequest,
        mut ruled: Ruled,
        trail: &mut Trail,
    ) -> Result<Ruled, Stopped> {
        let spec = tool.spec();
        let name = spec.name.as_str();
        let marks = Taint { untrusted: !ruled.repeats.untrusted.is_empty(), private: !ruled.repeats.private.is_empty() };
        match self.permissions.ask(cx, marks, trail).await.map_err(|error| Stopped::refused(error.to_failure(name)))? {
            Said::Nothing => {}
            Said::Allow => (ruled.decided, ruled.allowed) = (true, true),
            Said::Ask(request) => (ruled.decided, ruled.ask) = (true, Some(request)),
            Said::Deny(reason) => return Err(Stopped::refused(ToolFailure::denied(name, reason))),
        }
        for rule in self.stages.of(StageKind::Rule) {
            if ruled.decided {
                break;
            }
            let checked = rule.check(&GateCall { spec, cx, resumed_after_approval: request.decided.is_some() }).await;
            match checked.map_err(|error| Stopped::refused(error.to_failure(name)))? {
                Check::Deny(reason) => {
                    trail.decision = PermissionWord::Deny;
                    trail.reason.clone_from(&reason);
                    return Err(Stopped::refused(ToolFailure::denied(name, reason)));
                }
                Check::Allow => {
                    trail.decision = PermissionWord::Allow;
                    (ruled.decided, ruled.allowed) = (true, true);
                }
                Check::Ask(request) => {
                    trail.decision = PermissionWord::Ask;
                    (ruled.decided, ruled.ask) = (true, Some(*request));
                }
                _ => {}
            }
        }
        Ok(ruled)
    }

    /// Runs a cleared call's body to its one result: deadline, cancellation, snapshots, post-call hooks, bounded size.
    pub(crate) async fn execute(&self, request: ExecuteRequest) -> Executed {
        let Some(tool) = self.registry.get(&request.tool) else {
            let mut failure = self.not_found(&request.tool);
            failure.tool_call_id = Some(request.call.to_string());
            return Executed::of(Outcome::failed(failure));
        };
        let spec = tool.spec();
        let body = if spec.requires_sandbox { tool.sandboxed_body() } else { Some(tool.body()) };
        // The gate read this very text; reading it again gives the same value, and after a restart the first one is gone.
        let args = match Arguments::of_sealed(request.arguments) {
            Ok(args) => args,
            Err(issues) => {
                let failure = ToolFailure::validation(spec.name.as_str(), issues);
                return Executed::of(Outcome::failed(failure));
            }
        };
        let approval = request.decision.as_ref().map(|decision| approval_of(decision, request.approved_by));
        let reads: Arc<Reads> = Arc::default();
        let cx = ToolContext::new(ContextParts {
            call_id: request.call.clone(),
            tool: spec.name.to_shared(),
            args: Arc::new(args),
            messages: request.messages,
            cancelled: request.cancelled.clone(),
            thread: request.run.thread.clone(),
            run: request.run.run.clone(),
            agent: Arc::clone(&self.agent),
            principal: request.run.principal.clone(),
            approval,
            attempt: request.attempt,
            state: vec![request.run.state.clone(), self.state.clone(), tool.state().clone()],
            env: watched_env(spec, &request.run.beside.env, &reads),
            env_names: spec.env.iter().map(|need| need.name.clone()).collect(),
            snapshots: self.shown_on_the_way(request.snapshots),
            keep: Arc::new(WatchedKeep { keep: Arc::clone(&request.run.beside.keep), reads: Arc::clone(&reads) }),
            reads: Arc::clone(&reads) as Arc<dyn ReadNotes>,
        });
        let timeout = spec.timeout.unwrap_or(self.timeout);
        let limits = Limits { timeout, grace: self.grace, cancelled: request.cancelled };
        let ready = secrets::has_environment(spec, &*request.run.beside.env);
        let begun = || body.map(|body| std::panic::catch_unwind(AssertUnwindSafe(|| body.begin(cx.clone()))));
        let returned = match ready.map(|()| begun()) {
            Err(missing) => Err(missing),
            Ok(Some(Ok(running))) => run_to_end(running, &cx, &limits).await,
            Ok(Some(Err(panic))) => Err(panicked(&*panic)),
            Ok(None) => {
                let message = format!("`{}` runs in a sandbox only, and it has no body for one", spec.name);
                Err(ToolError::new(message).with_kind(ToolFailureKind::Sandbox))
            }
        };
        let (outcome, fatal) = match returned {
            Ok(output) => (Outcome::done(output), None),
            Err(error) => {
                let mut failure = error.to_failure(spec.name.as_str());
                failure.tool_call_id = Some(request.call.to_string());
                if error.asks_for_retry() {
                    grant_retry(&mut failure, spec.max_retries, request.retries_in_run);
                }
                let fatal = error.propagates().then(|| Failure {
                    name: error.name().to_owned(),
                    message: format!("the tool `{}` ended the run: {}", spec.name, error.message()),
                    code: Some("TOOLWRIGHT_TOOL_EXECUTION_FAILED".to_owned()),
                });
                (Outcome::failed(failure), fatal)
            }
        };
        let watch = Watch::of(&request.run, &limits.cancelled);
        let marks = reads.marks(spec, &outcome);
        let executed = Executed { fatal, ..Executed::of(outcome) };
        let mut executed = self
            .after_hooks(
                tool,
                &cx,
                executed,
                &After { run: &request.run, resumed: request.decision.is_some(), watch: watch.as_ref(), from_outside: true },
            )
            .await;
        taint::mark(&mut executed, marks);
        executed
    }

    /// What calls without a thread share.
    pub(crate) fn alone(&self) -> RunFacts {
        RunFacts {
            thread: None,
            run: None,
            principal: None,
            state: StateMap::default(),
            cancelled: CancellationToken::new(),
            beside: Beside {
                keep: Arc::new(MemoryKeep::new()),
                env: Arc::clone(&self.env),
                redactor: None,
                marked: taint::Marked::default(),
            },
            mode: None,
            watched: self.is_watched().then(|| Box::new(WatchedRun::default())),
        }
    }

    /// Gate and body of one call without a thread, for the bench.
    pub(crate) async fn once(&self, run: &RunFacts, tool: &Arc<str>, written: &Arc<str>) -> Executed {
        let call = CallId::new("call_1");
        let gated = self
            .gate(&GateRequest {
                call: call.clone(),
                tool: Arc::clone(tool),
                written: Arc::clone(written),
                args_state: ArgsState::Complete,
                ask: None,
                decided: None,
                asked: 0,
                remembered: Vec::new(),
                approved_in_turn: Vec::new(),
                now: Timestamp::default(),
                calls_in_run: 0,
                messages: Transcript::new(),
                run: run.clone(),
            })
            .await;
        let (Verdict::Run, Some((arguments, _))) = (&gated.verdict, &gated.arguments) else {
            return gated
                .settled
                .unwrap_or_else(|| Executed::of(Outcome::failed(ToolFailure::not_run(&**tool, "somebody has to decide first"))));
        };
        self.execute(ExecuteRequest {
            call,
            tool: Arc::clone(tool),
            arguments: Arc::clone(arguments),
            attempt: 1,
            decision: None,
            approved_by: Vec::new(),
            retries_in_run: 0,
            messages: Transcript::new(),
            run: run.clone(),
            cancelled: run.cancelled.child_token(),
            snapshots: Arc::new(NoSnapshots),
        })
        .await
    }

    fn context(&self, tool: &Tool, request: &GateRequest, args: Arc<Arguments>) -> ToolContext {
        let approval = request.decided.as_ref().map(|(_, decision, _)| approval_of(decision, Vec::new()));
        ToolContext::new(ContextParts {
            call_id: request.call.clone(),
            tool: tool.name().to_shared(),
            args,
            messages: request.messages.clone(),
            cancelled: request.run.cancelled.clone(),
            thread: request.run.thread.clone(),
            run: request.run.run.clone(),
            agent: Arc::clone(&self.agent),
            principal: request.run.principal.clone(),
            approval,
            attempt: 1,
            state: vec![request.run.state.clone(), self.state.clone(), tool.state().clone()],
            env: Arc::clone(&request.run.beside.env),
            env_names: tool.spec().env.iter().map(|need| need.name.clone()).collect(),
            snapshots: Arc::new(NoSnapshots),
            keep: Arc::clone(&request.run.beside.keep),
            reads: Arc::new(taint::NoNotes),
        })
    }

    fn not_found(&self, written: &str) -> ToolFailure {
        let message = if self.registry.is_empty() {
            format!("there is no tool `{written}`; this agent has no tools")
        } else {
            let names: Vec<String> = self.registry.closest(written, 10).iter().map(|name| format!("`{name}`")).collect();
            let more =
                if self.registry.len() > names.len() { format!(" and {} more", self.registry.len() - names.len()) } else { String::new() };
            format!("there is no tool `{written}`; there are {}{more}", names.join(", "))
        };
        ToolFailure::new(ToolFailureKind::NotFound, written, &message)
    }
}

fn approval_of(decision: &Decision, others: Vec<String>) -> Approval {
    Approval { note: decision.note.clone(), by: decision.by.clone(), edited: decision.edited().is_some(), others }
}

/// Parse, repair, validate, decode: all issues at once, with paths.
fn read_arguments(tool: &Tool, request: &GateRequest) -> Result<Arguments, Vec<Issue>> {
    let spec = tool.spec();
    if request.args_state == ArgsState::Truncated {
        let message = "the arguments were cut off before they were complete; send the call again with shorter arguments".to_owned();
        return Err(vec![Issue { path: String::new(), message }]);
    }
    let repair = if spec.repair { Repair::On } else { Repair::Off };
    let text = match &request.decided {
        // What was approved runs, not what the model wrote; edited arguments are read like any others.
        Some((_, Decision { verdict: DecisionVerdict::ApproveEdited { arguments }, .. }, _)) => arguments,
        Some((_, _, gated)) => gated,
        None => &request.written,
    };
    let arguments = toolwright_core::args::read(text, &spec.input, repair)?;
    tool.body().check(arguments.value())?;
    Ok(arguments)
}

/// A hook's or guardrail's arguments, read like any others. After an approval nothing may change what was approved.
fn rewritten(tool: &Tool, cx: &ToolContext, value: Value, by: &str, resumed: bool) -> Result<ToolContext, Box<ToolFailure>> {
    let spec = tool.spec();
    let issue = |issue: Issue| Issue { path: issue.path, message: format!("{} (from `{by}`)", issue.message) };
    let repair = if spec.repair { Repair::On } else { Repair::Off };
    let checked = Arguments::from_value(value, &spec.input, repair).and_then(|args| tool.body().check(args.value()).map(|()| args));
    let args = checked.map_err(|issues| Box::new(ToolFailure::validation(spec.name.as_str(), issues.into_iter().map(issue).collect())))?;
    if resumed && args.text() != cx.args().text() {
        let message = "the arguments differ from those that were approved".to_owned();
        return Err(Box::new(ToolFailure::validation(spec.name.as_str(), vec![issue(Issue { path: String::new(), message })])));
    }
    let mut parts = cx.parts().clone();
    parts.args = Arc::new(args);
    Ok(ToolContext::new(parts))
}

/// The written text, if it is a JSON object: what `tool.start` shows of arguments that were refused.
fn object_text(written: &str) -> Option<(Arc<str>, Arc<str>)> {
    let args = Arguments::unchecked(written).ok().filter(|args| args.value().is_object())?;
    let hash = Arc::from(args.sha256_hex());
    Some((Arc::clone(args.text()), hash))
}

fn empty_arguments(_tool: &Tool) -> Arguments {
    Arguments::empty()
}

struct Limits {
    timeout: Duration,
    grace: Duration,
    cancelled: CancellationToken,
}

/// Why a body was told to stop.
enum Stop {
    Deadline,
    Cancelled,
}

async fn run_to_end(running: Running, cx: &ToolContext, limits: &Limits) -> Result<ToolOutput, ToolError> {
    let (body, blocking) = match running {
        Running::Future(body) => (body, false),
        Running::Blocking(prepare) => {
            let body = async move {
                let work = prepare.await?;
                match tokio::task::spawn_blocking(work).await {
                    Ok(returned) => returned,
                    Err(error) if error.is_panic() => Err(panicked(&*error.into_panic())),
                    Err(_) => Err(ToolError::new("the runtime stopped before the call ran").named("AbortError")),
                }
            };
            (body.boxed(), true)
        }
        Running::Stream(mut items) => {
            let cx = cx.clone();
            let body = async move {
                let mut last = None;
                while let Some(item) = items.next().await {
                    // A stream that is always ready must not keep everything else from running.
                    consume_budget().await;
                    let snapshot = item?;
                    cx.show(snapshot.clone());
                    last = Some(snapshot);
                }
                // Nothing yielded is null (sdk-tools 8.1/4).
                Ok(ToolOutput::json(last.unwrap_or(Value::Null)))
            };
            (body.boxed(), false)
        }
    };
    let mut body = AssertUnwindSafe(body).catch_unwind();
    let settle =
        |ended: Result<Result<ToolOutput, ToolError>, Box<dyn std::any::Any + Send>>| ended.unwrap_or_else(|panic| Err(panicked(&*panic)));
    // Most bodies are done at once; only the others pay for timers.
    if let std::task::Poll::Ready(ended) = futures_util::poll!(&mut body) {
        return settle(ended);
    }
    let started = Instant::now();
    let stop = tokio::select! {
        biased;
        ended = &mut body => {
            let returned = settle(ended);
            // The signal and its answer may come at once.
            return if returned.is_err() && limits.cancelled.is_cancelled() { Err(stopped(false)) } else { returned };
        }
        // A body that uses up its task's budget must not starve these.
        () = unconstrained(limits.cancelled.cancelled()) => Stop::Cancelled,
        () = unconstrained(tokio::time::sleep(limits.timeout)) => Stop::Deadline,
    };
    // Signal, grace, then the body is dropped (invariant 13).
    limits.cancelled.cancel();
    if let Ok(ended) = tokio::time::timeout(limits.grace, &mut body).await {
        // It ended in time: what it says counts, unless it only passes the signal on as a failure.
        let returned = settle(ended);
        return match (returned, stop) {
            (Ok(output), _) => Ok(output),
            (Err(_), Stop::Cancelled) => Err(stopped(false)),
            (Err(_), Stop::Deadline) => Err(timed_out(limits.timeout, false)),
        };
    }
    tracing::warn!(tool = cx.tool_name(), call = %cx.call_id(), blocking, elapsed_ms = started.elapsed().as_millis() as u64, "a tool did not stop when told to and was dropped");
    match stop {
        Stop::Deadline => Err(timed_out(limits.timeout, blocking)),
        Stop::Cancelled => Err(stopped(blocking)),
    }
}

fn stopped(still_running: bool) -> ToolError {
    let more = if still_running { ", and it may still be running" } else { "" };
    ToolError::new(format!("the call was stopped because the run was; its outcome is unknown{more}")).named("AbortError")
}

fn timed_out(timeout: Duration, still_running: bool) -> ToolError {
    let more = if still_running { ", and it may still be running" } else { "" };
    ToolError::new(format!("it did not finish within {} and was stopped; its outcome is unknown{more}", human(timeout)))
        .named("TimeoutError")
}

fn human(duration: Duration) -> String {
    if duration.as_millis().is_multiple_of(1000) { format!("{} s", duration.as_secs()) } else { format!("{} ms", duration.as_millis()) }
}

pub(crate) fn panicked(panic: &(dyn std::any::Any + Send)) -> ToolError {
    let said = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    ToolError::new(match said {
        Some(said) => format!("it panicked: {said}"),
        None => "it panicked".to_owned(),
    })
    .named("PanicError")
}

/// Says how many more tries there are; the last refusal says that there are none.
fn grant_retry(failure: &mut ToolFailure, max: u32, used: u32) {
    if used < max {
        failure.retries_left = Some(max - used - 1);
    } else {
        failure.message =
            toolwright_core::bounded(&format!("{} (no tries are left; do not call it again)", failure.message), ToolFailure::MAX_MESSAGE);
    }
}

/// Cuts what the model would read to `limit` characters and says what was cut.
fn bound(outcome: &mut Outcome, limit: usize) {
    let Outcome::Done { output } = outcome else { return };
    let long = |part: &Part| match part {
        Part::Text { text } => text.len(),
        Part::Json { value } => json_len(value, limit),
        _ => 0,
    };
    let total: usize = output.parts().iter().map(&long).sum();
    if total <= limit {
        return;
    }
    let output = Arc::make_mut(output);
    let mut left = limit;
    for part in output.parts_mut() {
        let text = match part {
            Part::Text { text } => std::mem::take(text),
            Part::Json { value } => value.to_string(),
            _ => continue,
        };
        let characters = text.chars().count();
        if characters <= left {
            left -= characters;
            // A JSON part that fits stays JSON.
            if let Part::Text { text: slot } = part {
                *slot = text;
            }
            continue;
        }
        let kept: String = text.chars().take(left).collect();
        *part = Part::Text { text: format!("{kept}\n[cut: {left} of {characters} characters are shown; ask for less, or for a part]") };
        left = 0;
    }
}

/// The length of a value's JSON, counted no further than needed to know that it is over `limit`.
fn json_len(value: &Value, limit: usize) -> usize {
    struct Counter {
        written: usize,
        limit: usize,
    }
    impl std::io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.written += bytes.len();
            if self.written > self.limit { Err(std::io::Error::other("long enough")) } else { Ok(bytes.len()) }
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter { written: 0, limit };
    // The error only says that counting stopped early.
    let _ = serde_json::to_writer(&mut counter, value);
    counter.written
}
