//! A call that an approval of another one lets run, while somebody may decide about it at the same time.
//!
//! Who decides is told at once whether their decision counts: it does where it is the first under its key. So an approval of another
//! call has to be the first there too, before the call goes on because of it. Where somebody was faster, they are heard.

use std::sync::Arc;

use toolwright_core::{ApprovalAsk, Call, CallId, Misfit, Timestamp, Verdict};

use super::{Driver, Effect, GateOutcome};
use crate::posting::key_of;
use crate::store::{InboxItem, Posted};

/// The question that a call waits with, where the gate only asks it again.
pub(super) fn stands<'a>(open: &'a Call, verdict: &Verdict, sha256: Option<&Arc<str>>) -> Option<&'a ApprovalAsk> {
    let (Some(asked), Some(gated), Verdict::Ask(ask)) = (open.asking(), &open.gated, verdict) else { return None };
    let same = (asked.quorum, &asked.kind, Some(&gated.sha256)) == (ask.quorum, &ask.kind, sha256);
    same.then_some(asked)
}

impl Driver {
    /// Whether what the gate found would end the wait for a decision that nobody has made.
    pub(super) fn has_to_be_first(&self, call: &CallId, found: &GateOutcome) -> bool {
        #[cfg(feature = "planted-bugs")]
        if self.has(crate::planted::Bug::CoveredBesideARejection) {
            return false;
        }
        let Some(open) = self.thread.call(call).filter(|open| open.asking().is_some()) else { return false };
        let sha256 = found.arguments.as_ref().map(|(_, sha256)| sha256);
        // A run that ends takes its calls with it, decided or not.
        stands(open, &found.verdict, sha256).is_none() && !matches!(found.verdict, Verdict::EndRun { .. })
    }

    /// The answer to post for the call that stands at the gate, if that has to be known first.
    pub(super) fn answer(&self) -> Option<Effect> {
        let gate = self.at_gate.as_ref().filter(|gate| gate.found.is_some())?;
        let open = self.thread.call(&gate.call)?;
        let (ask, gated, answer) = (open.asking()?, open.gated.as_ref()?, open.covered.as_ref()?);
        let item = InboxItem::Decision {
            approval: ask.approval.clone(),
            call: open.id.clone(),
            sha256: Arc::clone(&gated.sha256),
            decision: (**answer).clone(),
        };
        let key = key_of(&ask.approval, ask.expires_at, 1);
        Some(Effect::Answer { call: open.id.clone(), key, item: Box::new(item) })
    }

    /// The answer was the first, or somebody's decision was, which counts as if it had been taken from the inbox.
    pub(super) fn answered(&mut self, call: &CallId, posted: Posted, now: Timestamp) -> Result<(), Misfit> {
        let Some(gate) = self.at_gate.take_if(|gate| gate.call == *call && gate.found.is_some()) else { return Ok(()) };
        let Some(found) = gate.found.filter(|_| !self.is_decided(call)) else { return Ok(()) };
        let Posted::Late(first) = posted else { return self.record_gated(call, *found, now) };
        self.take_posted(*first, now)?;
        let Some(open) = self.thread.call(call) else { return Ok(()) };
        let (Some(ask), Some(gated)) = (open.asking(), &open.gated) else { return Ok(()) };
        // What stands under the key decides nothing: the question stands.
        let arguments = Some((Arc::clone(&gated.text), Arc::clone(&gated.sha256)));
        let stands = GateOutcome { arguments, verdict: Verdict::Ask(ask.clone()), settled: None, ..*found };
        self.record_gated(call, stands, now)
    }
}
