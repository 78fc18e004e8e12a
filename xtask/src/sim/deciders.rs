//! People who decide: they look at what waits, make up their minds, and post, while others do the same and the time runs out.

use toolwright_core::{ApprovalId, AskKind, CallId, Decision, DecisionVerdict, Timestamp, ToolFailure, ToolFailureKind, ToolOutput};
use toolwright_runtime::simulated::Deciding;
use toolwright_runtime::{AgentError, InboxItem, PendingApproval, Posted};

use super::audit::{Approval, Stage};
use super::world::World;
use super::{Broken, broken};

/// Everybody there is.
const PEOPLE: [&str; 4] = ["ada", "bob", "cleo", "dan"];

/// Somebody who has looked, and has not posted what they decided.
pub(super) struct Attempt {
    /// The approval, by index.
    at: usize,
    deciding: Deciding,
}

impl World<'_> {
    /// Somebody decides what the approval of this index asks; now and then others do something before it is posted.
    pub(super) fn decide(&mut self, at: usize) -> Result<(), Broken> {
        let Some(mut attempt) = self.look(at)? else { return Ok(()) };
        if self.rng.percent(25) {
            self.attempts.push(attempt);
            return Ok(());
        }
        while let Some(next) = self.post_decision(attempt)? {
            attempt = next;
        }
        Ok(())
    }

    /// Somebody who has looked goes on.
    pub(super) fn somebody_goes_on(&mut self) -> Result<(), Broken> {
        if self.attempts.is_empty() {
            return Ok(());
        }
        let at = self.rng.index(self.attempts.len());
        let attempt = self.attempts.swap_remove(at);
        let left = self.post_decision(attempt)?;
        self.attempts.extend(left);
        Ok(())
    }

    /// Somebody decides about a call right before its owner says that another approval stands for it.
    pub(super) fn somebody_is_faster(&mut self, call: &CallId) -> Result<(), Broken> {
        let asked = self.store.audit.call(call).map(|call| call.stage);
        let Some(Stage::Asking(at)) = asked else { return Ok(()) };
        if self.rng.percent(20) {
            // Time is.
            if let Some(end) = self.store.audit.expires_at(at) {
                self.now = self.now.max(end.0);
                return self.look_at_timers();
            }
        }
        self.decide(at)
    }

    /// What somebody sees of what waits, and what they make of it.
    fn look(&mut self, at: usize) -> Result<Option<Attempt>, Broken> {
        let Some(approval) = self.store.audit.approvals.get(at) else { return Ok(None) };
        let (id, again) = (approval.id.clone(), approval.posted.is_some());
        let waits = self.store.audit.waiting().any(|waiting| waiting == at);
        if !waits && self.rng.percent(90) {
            self.stats.late += 1;
            let decision = self.make_up(at);
            return self.post_again(at, decision).map(|()| None);
        }
        let thread = self.store.load()?;
        let pending = thread.waiting_for(&id).and_then(|call| PendingApproval::of(&self.store.thread, call, call.asking()?));
        if pending.is_some() != waits {
            return broken("who looks sees what waits", format!("{id} waits: {waits}"));
        }
        let decision = self.make_up(at);
        let Some(pending) = pending else {
            self.stats.late += 1;
            return self.post_again(at, decision).map(|()| None);
        };
        let posted = self.store.inbox(0)?.into_iter().map(|(_, item)| item).collect();
        let by = decision.by.clone();
        let looked = Deciding::look(pending, posted, decision.clone(), Timestamp(self.now), self.bug);
        match looked {
            Ok(deciding) => {
                self.store.audit.may_decide(at, by.as_ref(), true)?;
                Ok(Some(Attempt { at, deciding }))
            }
            Err(AgentError::ApprovalForbidden { .. }) => {
                self.stats.forbidden += 1;
                self.store.audit.may_decide(at, by.as_ref(), false)?;
                Ok(None)
            }
            Err(AgentError::ApprovalConflict { .. } | AgentError::ApprovalLapsed { .. }) => {
                self.stats.again += 1;
                self.store.audit.refused(at, &decision)?;
                if again { self.post_again(at, decision).map(|()| None) } else { Ok(None) }
            }
            Err(error) => broken("a decision is an answer to what is asked", format!("{decision:?}: {error}")),
        }
    }

    /// Posts a decision where it goes next. Gives whoever has to try elsewhere.
    fn post_decision(&mut self, mut attempt: Attempt) -> Result<Option<Attempt>, Broken> {
        let Attempt { at, deciding } = &mut attempt;
        let (key, item) = deciding.next();
        let decision = deciding.decision().clone();
        match self.store.post_first(&key, item)? {
            Posted::First => {
                self.store.audit.told(*at, &decision)?;
                self.count_decision(&decision);
                Ok(None)
            }
            Posted::Late(first) => {
                if deciding.is_late(*first).is_ok() {
                    return Ok(Some(attempt));
                }
                self.stats.again += 1;
                self.store.audit.refused(*at, &decision)?;
                Ok(None)
            }
        }
    }

    fn count_decision(&mut self, decision: &Decision) {
        match decision.verdict {
            DecisionVerdict::Approve => self.stats.approved += 1,
            DecisionVerdict::ApproveEdited { .. } => self.stats.edited += 1,
            DecisionVerdict::Complete { .. } | DecisionVerdict::Fail { .. } => self.stats.outside += 1,
            DecisionVerdict::Lapsed => self.stats.late += 1,
            _ => self.stats.rejected += 1,
        }
    }

    /// A second decision is refused by its key; now and then one gets past it, and changes nothing either.
    fn post_again(&mut self, at: usize, mut decision: Decision) -> Result<(), Broken> {
        let Some((item, posted)) = self.store.audit.approvals.get(at).and_then(|approval| {
            let call = self.store.audit.calls.get(approval.call)?.id.clone();
            decision.at = Some(Timestamp(self.now));
            let (id, sha256) = (approval.id.clone(), approval.sha256.clone());
            Some((InboxItem::Decision { approval: id, call, sha256, decision }, approval.posted.is_some()))
        }) else {
            return Ok(());
        };
        if posted && self.rng.percent(30) {
            let key = format!("again {}", self.store.posted());
            self.store.post(&key, item)?;
        }
        Ok(())
    }

    /// What somebody decides, whoever they are.
    fn make_up(&mut self, at: usize) -> Decision {
        let (kind, quorum, deciders) = match self.store.audit.approvals.get(at) {
            Some(Approval { ask, .. }) => (ask.kind.clone(), ask.quorum, ask.deciders.clone()),
            None => (AskKind::Tool, 1, Vec::new()),
        };
        let roll = self.rng.below(20);
        let mut decision = match kind {
            AskKind::External => match roll {
                0..=9 => Decision::complete(ToolOutput::text(format!("picked {}", self.rng.below(1000)))),
                10..=16 => Decision::fail(ToolFailure::new(ToolFailureKind::Execution, "outside", "the browser was closed")),
                _ => Decision::reject(),
            },
            // Where several have to agree, most do.
            _ if quorum > 1 && roll < 15 => Decision::approve(),
            _ => match roll {
                0..=9 => Decision::approve(),
                10..=11 => Decision::approve_with(r#"{"n":9}"#),
                12..=13 => Decision::approve_with(self.rng.pick(&[r#"{"deny":2}"#, r#"{"n":"#, r#"{"answer":2}"#]).unwrap_or("{}")),
                _ => Decision::reject(),
            },
        };
        if kind == AskKind::Tool && quorum == 1 && decision.approves() {
            decision = match self.rng.below(8) {
                0 | 1 => decision.always(),
                2 | 3 => decision.always_with_these_arguments(),
                _ => decision,
            };
        }
        let named = self.rng.index(deciders.len());
        let by = match deciders.get(named).filter(|_| self.rng.percent(85)) {
            Some(by) => by.clone(),
            None => self.rng.pick(&PEOPLE).unwrap_or("ada").to_owned(),
        };
        decision.by(by)
    }

    /// Somebody hands a decision to others.
    pub(super) fn hand_on(&mut self, at: usize) -> Result<(), Broken> {
        let Some(approval) = self.store.audit.approvals.get(at) else { return Ok(()) };
        let Some(call) = self.store.audit.calls.get(approval.call).map(|call| call.id.clone()) else { return Ok(()) };
        let (id, quorum): (ApprovalId, usize) = (approval.id.clone(), approval.ask.quorum as usize);
        // Enough to decide, or anybody.
        let first = self.rng.index(PEOPLE.len());
        let count = if self.rng.percent(15) { 0 } else { self.rng.between(quorum as u64, 3) as usize };
        let to = PEOPLE.iter().cycle().skip(first).take(count).map(|name| (*name).to_owned()).collect();
        let item = InboxItem::Delegate { approval: id, call, to, by: None, note: None };
        let key = format!("delegate:{}", self.store.posted());
        self.store.post(&key, item).map(drop)
    }
}
