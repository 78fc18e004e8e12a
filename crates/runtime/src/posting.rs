//! How a decision is posted, and what is to be posted when its time comes.

use std::sync::Arc;

use toolwright_core::{ApprovalId, AskKind, CallId, Decision, DecisionVerdict, Record, RecordBody, Thread, ThreadId, Timestamp, Verdict};

use crate::error::AgentError;
use crate::index::PendingApproval;
use crate::store::{InboxItem, Posted, Store};

/// How many people can have to approve.
pub(crate) const MOST_APPROVALS: u32 = 64;

/// What a decision is bound to.
pub(crate) struct Bound {
    pub(crate) thread: ThreadId,
    pub(crate) approval: ApprovalId,
    pub(crate) call: CallId,
    pub(crate) sha256: Arc<str>,
    pub(crate) quorum: u32,
    pub(crate) expires_at: Option<Timestamp>,
}

impl Bound {
    pub(crate) fn of(pending: &PendingApproval) -> Self {
        Self {
            thread: pending.thread_id.clone(),
            approval: pending.id.clone(),
            call: pending.call_id.clone(),
            sha256: Arc::clone(&pending.sha256),
            quorum: pending.quorum.max(1),
            expires_at: pending.expires_at,
        }
    }
}

/// The key under which the decision at a place is posted, of as many places as people have to approve.
///
/// It names the end of the time for it: where a process died after it had set the timer and before it had asked, the question is
/// asked again under the same id, and the timer of before must not stand in the way of an answer.
pub(crate) fn key_of(approval: &ApprovalId, expires_at: Option<Timestamp>, place: u32) -> String {
    let until = expires_at.map(|at| format!("@{}", at.0)).unwrap_or_default();
    let place = if place > 1 { format!(":{place:02}") } else { String::new() };
    format!("decision:{approval}{until}{place}")
}

/// That nobody decided before `at`.
pub(crate) fn lapsed_at(at: Timestamp) -> Decision {
    Decision { at: Some(at), ..Decision::lapsed() }
}

/// That a decision came first, as an error that says whose.
pub(crate) fn decided(approval: &ApprovalId, first: &Decision) -> AgentError {
    match first.verdict {
        DecisionVerdict::Lapsed => AgentError::ApprovalLapsed { approval: approval.to_string(), at: first.at },
        _ => AgentError::ApprovalConflict { approval: approval.to_string(), by: first.by.clone() },
    }
}

/// A decision on its way to the place where it counts.
///
/// There are as many places as people have to approve, each with a key of its own. Whoever decides takes the first one that is free,
/// and so does the end of the time; so whoever comes later knows all that was posted before. Nobody approves twice, or other
/// arguments than those before, and nobody gets past what is no approval: that decides, and what comes after it is told so.
pub(crate) struct Way {
    bound: Bound,
    decision: Decision,
    place: u32,
    #[cfg(feature = "planted-bugs")]
    pub(crate) bug: Option<crate::planted::Bug>,
}

impl Way {
    pub(crate) fn of(bound: Bound, decision: Decision) -> Self {
        Self {
            bound,
            decision,
            place: 1,
            #[cfg(feature = "planted-bugs")]
            bug: None,
        }
    }

    /// What to post next, and under which key.
    pub(crate) fn next(&self) -> (String, InboxItem) {
        let Bound { approval, call, sha256, expires_at, .. } = &self.bound;
        let key = key_of(approval, *expires_at, self.place);
        #[cfg(feature = "planted-bugs")]
        let key = match (self.bug, &self.decision.verdict) {
            (Some(crate::planted::Bug::FailureHasAKeyOfItsOwn), DecisionVerdict::Fail { .. }) => format!("{key}:failure"),
            _ => key,
        };
        let item = InboxItem::Decision {
            approval: approval.clone(),
            call: call.clone(),
            sha256: Arc::clone(sha256),
            decision: self.decision.clone(),
        };
        (key, item)
    }

    /// Another came first at this place: it goes on to the next one, if there may be another.
    pub(crate) fn is_late(&mut self, first: InboxItem) -> Result<(), AgentError> {
        let approval = &self.bound.approval;
        let InboxItem::Decision { decision: first, .. } = first else {
            return Err(AgentError::ApprovalConflict { approval: approval.to_string(), by: None });
        };
        let same = first.by == self.decision.by;
        #[cfg(feature = "planted-bugs")]
        let same = same && self.bug != Some(crate::planted::Bug::OneVotesTwice);
        // Who approved may still reject, as long as others have to approve.
        let approves = self.decision.approves();
        if self.place >= self.bound.quorum || !first.approves() || approves && same {
            return Err(decided(approval, &first));
        }
        if approves && first.edited() != self.decision.edited() {
            let who = first.by.unwrap_or_default();
            let problem = format!("{who} approved it with other arguments; approve the same, or reject it");
            return Err(AgentError::ApprovalInvalid { approval: approval.to_string(), problem });
        }
        self.place = self.place.saturating_add(1);
        Ok(())
    }
}

/// Posts a decision where it counts, or says who was first.
pub(crate) async fn post_decision(store: &dyn Store, bound: Bound, decision: Decision) -> Result<(), AgentError> {
    let thread = bound.thread.clone();
    let mut way = Way::of(bound, decision);
    loop {
        let (key, item) = way.next();
        match store.post(&thread, &key, item).await? {
            Posted::First => return Ok(()),
            Posted::Late(first) => way.is_late(*first)?,
        }
    }
}

/// What waits, as somebody sees it who also looks at what was posted and that nobody who moves the thread has taken yet: it counts
/// all the same.
pub(crate) fn with_posted(
    mut pending: PendingApproval,
    posted: impl IntoIterator<Item = InboxItem>,
) -> Result<PendingApproval, AgentError> {
    let mut approvals = pending.approved_by.len();
    for item in posted {
        match item {
            InboxItem::Delegate { approval, to, .. } if approval == pending.id => pending.deciders = to,
            InboxItem::Decision { approval, sha256, decision, .. } if approval == pending.id && sha256 == pending.sha256 => {
                let lapsed = decision.verdict == DecisionVerdict::Lapsed;
                // Of an earlier question, which nobody was asked.
                if lapsed && decision.at != pending.expires_at {
                    continue;
                }
                approvals += 1;
                if !decision.approves() || approvals >= pending.quorum as usize {
                    return Err(decided(&pending.id, &decision));
                }
                pending.approved_by.extend(decision.by);
            }
            _ => {}
        }
    }
    Ok(pending)
}

/// Whether the decision is an answer to what is asked.
pub(crate) fn fits(pending: &PendingApproval, decision: &Decision) -> Result<(), String> {
    if decision.verdict == DecisionVerdict::Lapsed {
        return Err("that its time is over is no decision of anybody's; reject it".to_owned());
    }
    if !pending.kind.takes(&decision.verdict) {
        return Err(match pending.kind {
            AskKind::External => "the call waits for a result; give one with `calls().complete(..)`, or reject it".to_owned(),
            AskKind::Tool => "the call waits for a yes or a no; its tool makes the result itself".to_owned(),
            _ => "it can be answered or rejected, not changed".to_owned(),
        });
    }
    if pending.quorum > 1 && decision.approves() {
        if decision.by.is_none() {
            return Err(format!("{} people have to approve; say who does with `.by(..)`", pending.quorum));
        }
        if decision.remember.is_some() {
            return Err(format!("{} people have to approve each call, so one approval can't stand for later ones", pending.quorum));
        }
    }
    Ok(())
}

/// Whether who decides is one of those who may.
pub(crate) fn may_decide(pending: &PendingApproval, by: Option<&String>) -> Result<(), AgentError> {
    if pending.deciders.is_empty() || by.is_some_and(|by| pending.deciders.contains(by)) {
        return Ok(());
    }
    let who = by.cloned().unwrap_or_else(|| "somebody without a name".to_owned());
    Err(AgentError::ApprovalForbidden { approval: pending.id.to_string(), who })
}

/// Begins to post a decision that is made now. Where that is too late, whoever says so first: the call is refused, and the run may
/// go on (sdk-tools 13.4/2).
pub(crate) fn begin(pending: &PendingApproval, mut decision: Decision, now: Timestamp) -> (Bound, Decision) {
    let bound = Bound::of(pending);
    match bound.expires_at.filter(|at| now >= *at) {
        Some(at) => decision = lapsed_at(at),
        None => decision.at = Some(now),
    }
    (bound, decision)
}

/// How many different people these names are of.
pub(crate) fn people(names: &[String]) -> u32 {
    let different: std::collections::BTreeSet<&String> = names.iter().collect();
    u32::try_from(different.len()).unwrap_or(u32::MAX)
}

/// [`timers_of`] with what the fold says of what waits.
pub(crate) fn timers_of_thread(thread: &Thread, records: &[Arc<Record>]) -> Vec<Timer> {
    timers_of(records, |call| {
        let ask = thread.call(call)?.asking()?;
        Some((ask.approval.clone(), ask.remind_every_ms?))
    })
}

/// A timer: key, moment, and what is posted then.
pub(crate) type Timer = (String, Timestamp, InboxItem);

/// What is to be posted later because of these records: that nobody decided in time, and reminders. Set before the records are
/// written: one that comes to nothing is passed over by whoever takes it, and one that is missing would never come.
fn timers_of(records: &[Arc<Record>], ask_of: impl Fn(&CallId) -> Option<(ApprovalId, u64)>) -> Vec<Timer> {
    let mut timers = Vec::new();
    let after = |at: Timestamp, millis: u64| Timestamp(at.0.saturating_add(i64::try_from(millis).unwrap_or(i64::MAX)));
    let reminder = |approval: &ApprovalId, call: &CallId, times: u32, at: Timestamp| {
        let item = InboxItem::Remind { approval: approval.clone(), call: call.clone(), times };
        (format!("remind:{approval}:{}", at.0), at, item)
    };
    for record in records {
        match &record.body {
            RecordBody::CallGated { call, sha256: Some(sha256), verdict: Verdict::Ask(ask), .. } => {
                let approval = &ask.approval;
                if let Some(at) = ask.expires_at {
                    let item = InboxItem::Decision {
                        approval: approval.clone(),
                        call: call.clone(),
                        sha256: Arc::clone(sha256),
                        decision: lapsed_at(at),
                    };
                    // It takes the first place that is free, which nobody knows yet.
                    timers.extend((1..=ask.quorum.max(1)).map(|place| (key_of(approval, Some(at), place), at, item.clone())));
                }
                if let Some(every) = ask.remind_every_ms {
                    timers.push(reminder(approval, call, 1, after(record.at, every)));
                }
            }
            RecordBody::ApprovalReminded { approval, call, times, .. } => {
                if let Some((_, every)) = ask_of(call).filter(|(known, _)| known == approval) {
                    timers.push(reminder(approval, call, times.saturating_add(1), after(record.at, every)));
                }
            }
            _ => {}
        }
    }
    timers
}
