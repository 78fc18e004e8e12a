//! What others posted to the thread: decisions, reminders, cancellation, input.

use std::sync::Arc;

use toolwright_core::policy::PermissionMode;
use toolwright_core::{
    AbortReason, ApprovalId, Call, CallId, Decision, DecisionVerdict, Delegation, InputId, InputMode, Item, Key, Message, Misfit,
    RecordBody, RunCause, RunId, Thread, Timestamp,
};

use super::Driver;
use crate::model::ModelReply;
use crate::store::InboxItem;
use toolwright_core::FinishReason;

/// The record of a switch of the thread's own mode; `agents` is the mode where the thread has said none.
pub(crate) fn mode_record(thread: &Thread, agents: PermissionMode, to: PermissionMode) -> RecordBody {
    RecordBody::PermissionMode { from: thread.permission_mode().unwrap_or(agents), to, run_only: false }
}

impl Driver {
    pub(super) fn take_posted(&mut self, item: InboxItem, now: Timestamp) -> Result<(), Misfit> {
        match item {
            InboxItem::Decision { approval, call, sha256, decision } => self.take_decision(approval, call, sha256, decision, now),
            InboxItem::Delegate { approval, call, to, by, note } => {
                #[cfg(feature = "planted-bugs")]
                if self.has(crate::planted::Bug::DelegationIsIgnored) {
                    return Ok(());
                }
                let Some(open) = self.waiting(&approval, &call) else { return Ok(()) };
                let (Some(ask), Some(gated)) = (open.asking(), &open.gated) else { return Ok(()) };
                let mut ask = ask.clone();
                ask.deciders = to;
                let delegation = Delegation {
                    call,
                    tool: Arc::clone(&open.tool),
                    arguments: Arc::clone(&gated.text),
                    sha256: Arc::clone(&gated.sha256),
                    asked_at: open.asked_at.unwrap_or(now),
                    ask,
                    by,
                    note,
                };
                self.record_about_pause(RecordBody::ApprovalDelegated(Box::new(delegation)), now)
            }
            InboxItem::Remind { approval, call, times } => {
                let Some(open) = self.waiting(&approval, &call) else { return Ok(()) };
                // One of a wait that is over, or that was reminded of before; or that was never written down, whose id another has now.
                if times <= open.reminded || open.asking().is_none_or(|ask| ask.remind_every_ms.is_none()) {
                    return Ok(());
                }
                let tool = Arc::clone(&open.tool);
                self.record_about_pause(RecordBody::ApprovalReminded { approval, call, tool, times }, now)
            }
            InboxItem::Cancel { reason, run } => {
                // One that names another run comes too late, or too early.
                if run.is_some() && run.as_ref() != self.thread.run_to_cancel() {
                    return Ok(());
                }
                let partial = self.streamed.take().map(|streamed| streamed.text);
                self.cancel(reason, partial, now)
            }
            InboxItem::Mode { from, to } => {
                let body = mode_record(&self.thread, from, to);
                self.record(body, now)
            }
            InboxItem::Input { id, mode, messages, only } => self.queue_input(id, mode, messages, only, now),
        }
    }

    fn waiting(&self, approval: &ApprovalId, call: &CallId) -> Option<&Call> {
        self.thread.waiting_for(approval).filter(|open| open.id == *call)
    }

    /// What is said about a call that waits belongs to the run that paused for it.
    fn record_about_pause(&mut self, body: RecordBody, now: Timestamp) -> Result<(), Misfit> {
        let run = self.thread.run().map(|run| &run.id).or(self.thread.last_run().map(|run| &run.id)).cloned();
        self.record_in(run, body, now)
    }

    /// A decision that nobody waits for, that does not fit what is asked, or that is about other arguments changes nothing: who posted
    /// it was told so, or is told when asking.
    fn take_decision(
        &mut self,
        approval: ApprovalId,
        call: CallId,
        sha256: Arc<str>,
        mut decision: Decision,
        now: Timestamp,
    ) -> Result<(), Misfit> {
        #[cfg(feature = "planted-bugs")]
        if self.has(crate::planted::Bug::LostDecision) && self.thread.run().is_some() {
            return Ok(());
        }
        let Some(open) = self.waiting(&approval, &call) else { return Ok(()) };
        let Some(ask) = open.asking().filter(|_| open.gated.as_ref().is_some_and(|gated| gated.sha256 == sha256)) else { return Ok(()) };
        let lapsed = decision.verdict == DecisionVerdict::Lapsed;
        // A timer of an earlier wait says nothing about this one. One of this wait counts whatever the time is here: who decides
        // was told so.
        let of_this_wait = decision.at.map_or(ask.has_lapsed(now), |at| ask.expires_at == Some(at));
        if !ask.kind.takes(&decision.verdict) || lapsed && !of_this_wait {
            return Ok(());
        }
        decision.at.get_or_insert(now);
        if decision.approves() && ask.quorum > 1 {
            let edited = |vote: &Decision| vote.edited().cloned();
            let same = |vote: &Decision| vote.by == decision.by;
            #[cfg(feature = "planted-bugs")]
            let same = |vote: &Decision| same(vote) && !self.has(crate::planted::Bug::OneVotesTwice);
            if decision.by.is_none() || open.votes.iter().any(|vote| same(vote) || edited(vote) != edited(&decision)) {
                return Ok(());
            }
            let votes = u32::try_from(open.votes.len()).unwrap_or(u32::MAX).saturating_add(1);
            if votes < ask.quorum {
                return self.record_about_pause(RecordBody::CallVoted { approval, call, sha256, decision, votes }, now);
            }
        }
        if let Some(gate) = self.at_gate.as_mut().filter(|gate| gate.call != call) {
            #[cfg(feature = "planted-bugs")]
            let looks_again = self.bug != Some(crate::planted::Bug::AskedBesideAnApproval);
            #[cfg(not(feature = "planted-bugs"))]
            let looks_again = true;
            gate.overtaken |= decision.approves() && looks_again;
        }
        self.record(RecordBody::CallDecided { approval, call, sha256, decision }, now)
    }

    fn queue_input(
        &mut self,
        id: InputId,
        mode: InputMode,
        messages: Vec<Arc<Message>>,
        only: Option<RunId>,
        now: Timestamp,
    ) -> Result<(), Misfit> {
        #[cfg(feature = "planted-bugs")]
        if self.has(crate::planted::Bug::LostInput) && self.in_flight.contains(&Key::Ask(self.thread.step())) {
            return Ok(());
        }
        let run = self.thread.run().filter(|run| run.ending.is_none());
        let mine = run.is_some_and(|run| only.as_ref().is_none_or(|only| *only == run.id));
        if only.is_some() && !mine {
            // The run it was for is over: its sender has it back, and the end of that run says so.
            return Ok(());
        }
        // Nothing slips past a decision that is pending: where the run has paused, input waits its turn.
        let mode = if mine { mode } else { InputMode::Queue };
        let silent = self.streamed.take().is_some_and(|streamed| streamed.text.is_empty() && !streamed.calls);
        #[cfg(feature = "planted-bugs")]
        let silent = silent || self.has(crate::planted::Bug::SteerOverAReply);
        let immediate = mode == InputMode::Steer && silent && self.in_flight.contains(&Key::Ask(self.thread.step()));
        // A model that is yet to be asked, as after a crash, has said nothing either.
        let unasked = self.thread.unanswered_step().is_some_and(|step| !self.in_flight.contains(&Key::Ask(step)));
        let immediate = immediate || mode == InputMode::Steer && unasked;
        self.record(RecordBody::InputQueued { id, mode, messages, only, immediate }, now)
    }

    pub(super) fn cancel(&mut self, reason: AbortReason, partial: Option<String>, now: Timestamp) -> Result<(), Misfit> {
        if self.thread.run().is_none() && self.thread.open_calls().next().is_some() {
            // The run has paused and its calls wait: a run of its own gives them their results.
            self.start(RunCause::Resume, Vec::new(), Vec::new(), now)?;
        }
        if self.thread.run().is_none_or(|run| run.ending.is_some()) {
            return Ok(());
        }
        self.keep_partial(partial, now)?;
        self.record(RecordBody::RunCancelled { reason }, now)
    }

    /// What a model had said when it was stopped stays: people saw it. One that was given up for input just before says nothing.
    pub(super) fn keep_partial(&mut self, partial: Option<String>, now: Timestamp) -> Result<(), Misfit> {
        if let (Some(text), Some(step)) = (partial.filter(|text| !text.is_empty()), self.thread.unanswered_step())
            && self.in_flight.contains(&Key::Ask(step))
        {
            let reply = ModelReply { items: vec![Item::text(text)], finish: FinishReason::Aborted, usage: None, model: None };
            self.in_flight.remove(&Key::Ask(step));
            self.record_reply(step, reply, Vec::new(), None, now)?;
        }
        Ok(())
    }
}
