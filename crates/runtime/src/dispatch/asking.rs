//! The end of the gate: somebody has to decide, has decided, or an earlier approval answers.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use toolwright_core::{
    ApprovalAsk, ApprovalId, AskKind, DecisionVerdict, Remember, Remembered, Timestamp, ToolFailure, ToolFailureKind, Verdict,
    json::sorted_hash,
};
use toolwright_tool::{ApprovalOutcome, ApprovalRequest, NeedsApproval, Tool, ToolContext, ToolError};

use crate::posting::{MOST_APPROVALS, people};

use super::{Dispatch, GateRequest, Stopped, panicked};

impl Dispatch {
    /// The tool's own say about a call.
    pub(super) async fn own_say(&self, tool: &Tool, cx: &ToolContext) -> Result<ApprovalOutcome, ToolError> {
        match tool.needs_approval() {
            NeedsApproval::Never => Ok(ApprovalOutcome::Run),
            NeedsApproval::Always => Ok(ApprovalOutcome::Ask),
            NeedsApproval::Once(per) => Ok(ApprovalRequest::new().once(per.clone()).into()),
            NeedsApproval::Policy(policy) => {
                let asked = AssertUnwindSafe(async { policy(cx.clone()).await }).catch_unwind().await;
                asked.unwrap_or_else(|panic| Err(panicked(&*panic)))
            }
        }
    }

    /// Whether an earlier approval of a person stands for this call, so that nobody is asked again (sdk-tools 11.2).
    pub(super) fn is_remembered(request: &GateRequest, cx: &ToolContext, ask: &ApprovalRequest) -> bool {
        if !ask.kind.can_be_remembered() || request.remembered.is_empty() && ask.once.is_none() {
            return false;
        }
        let args = sorted_hash(cx.args().text());
        let answers = |known: &Remembered| known.covers(cx.tool_name(), &args) && known.may_answer(ask.quorum, &ask.deciders);
        if request.remembered.iter().any(answers) {
            return true;
        }
        let Some(per) = &ask.once else { return false };
        let covers = |approved: &str| *per == Remember::Tool || *approved == args;
        // Approved by code is approved by nobody, unless it says that it is to be remembered (sdk-tools 11.2/9).
        let results = request.messages.iter().flat_map(|message| message.results());
        let marks = results.filter(|result| result.tool_name == cx.tool_name()).filter_map(|result| result.approval.as_ref());
        request.approved_in_turn.iter().any(|approved| covers(approved))
            || marks.filter(|mark| !mark.automatic || mark.remember.is_some()).any(|mark| covers(&mark.args))
    }

    /// What is left once every stage has spoken: `ask` is what is to be asked, if anything.
    pub(super) fn settle(&self, tool: &Tool, request: &GateRequest, ask: Option<ApprovalRequest>) -> Result<(), Stopped> {
        let name = tool.name().as_str();
        let Some((asked, decision, _)) = &request.decided else {
            return match ask.or_else(|| tool.external_request().cloned()) {
                Some(ask) => Err(self.asks(name, request, ask)),
                None => Ok(()),
            };
        };
        // Whatever was decided, it came too late (sdk-tools 13.4/2).
        if decision.verdict == DecisionVerdict::Lapsed || decision.at.is_some_and(|at| asked.has_lapsed(at)) {
            return Err(Stopped::refused(lapsed(name, asked)));
        }
        match &decision.verdict {
            // Nobody reviewed anything: a question was declined (sdk-tools 14.2/4).
            DecisionVerdict::Reject if asked.kind == AskKind::Question => Err(Stopped::refused(declined(name, decision.note.clone()))),
            DecisionVerdict::Reject => Err(Stopped::refused(ToolFailure::rejected(name, decision.note.clone()))),
            DecisionVerdict::Complete { output } => Err(Stopped::answered(None, (**output).clone())),
            DecisionVerdict::Fail { failure } => Err(Stopped::refused((**failure).clone())),
            // Decided: an ask counts as answered. What comes from outside is waited for now.
            _ => match tool.external_request() {
                Some(outside) => Err(self.asks(name, request, outside.clone())),
                None => Ok(()),
            },
        }
    }

    fn asks(&self, name: &str, request: &GateRequest, ask: ApprovalRequest) -> Stopped {
        let Some(thread) = &request.run.thread else {
            return Stopped::refused(ToolFailure::denied(name, Some("nobody can be asked outside a thread".to_owned())));
        };
        let people = people(&ask.deciders);
        if people > 0 && people < ask.quorum {
            // Nobody could ever let it run.
            let message =
                format!("`{name}` asks for {} approvals and names {people} who may decide; name more, or ask for fewer", ask.quorum);
            return Stopped::refused(ToolFailure::new(ToolFailureKind::Execution, name, &message));
        }
        if ask.quorum > MOST_APPROVALS {
            let message = format!("`{name}` asks for {} approvals; at most {MOST_APPROVALS} people can have to approve", ask.quorum);
            return Stopped::refused(ToolFailure::new(ToolFailureKind::Execution, name, &message));
        }
        let millis = |time: std::time::Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let within = ask.within.or(self.approval_ttl);
        let ask = ApprovalAsk {
            approval: ApprovalId::of(thread, &request.call, request.asked + 1),
            kind: ask.kind,
            reason: ask.reason,
            expires_at: within.map(|time| Timestamp(request.now.0.saturating_add(millis(time)))),
            detail: ask.detail,
            quorum: ask.quorum.max(1),
            deciders: ask.deciders,
            once: ask.once,
            remind_every_ms: ask.remind_every.map(|time| millis(time).unsigned_abs().max(1)),
        };
        Stopped { verdict: Box::new(Verdict::Ask(ask)), outcome: None, replaced_by: None }
    }
}

fn declined(name: &str, note: Option<String>) -> ToolFailure {
    let said = note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
    let mut failure = ToolFailure::rejected(name, note);
    failure.message = format!("the user declined to answer{said}");
    failure
}

fn lapsed(name: &str, asked: &ApprovalAsk) -> ToolFailure {
    let until = asked.expires_at.map(|at| format!(" at {}", at.to_iso())).unwrap_or_default();
    if asked.kind == AskKind::External {
        let message = format!("no result for `{name}` came in time; the wait ended{until}, and the outcome is unknown");
        return ToolFailure::new(ToolFailureKind::Execution, name, &message).named("TimeoutError");
    }
    ToolFailure::denied(name, Some(format!("approval expired{until}: nobody decided in time")))
}
