//! How a decision is posted, and what is to be posted when its time comes.

use std::sync::Arc;

use toolwright_core::{ApprovalId, CallId, Decision, DecisionVerdict, Record, RecordBody, ThreadId, Timestamp, Verdict};

use crate::error::AgentError;
use crate::index::PendingApproval;
use crate::store::{InboxItem, Posted, Store};

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
fn key_of(approval: &ApprovalId, expires_at: Option<Timestamp>, place: u32) -> String {
    let until = expires_at.map(|at| format!("@{}", at.0)).unwrap_or_default();
    let place = if place > 1 { format!(":{place}") } else { String::new() };
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

/// Posts a decision where it is the first, or one of the first approvals of as many as there have to be.
///
/// Approvals take the places one after the other, each with a key of its own, so that whoever comes later knows all that were
/// posted before, and nobody approves twice, or other arguments than those before. Whatever else decides takes the last place, as
/// does the approval that completes them, and so does the end of the time: of these the store lets one be the first.
pub(crate) async fn post_decision(store: &dyn Store, bound: &Bound, decision: Decision) -> Result<(), AgentError> {
    let approval = &bound.approval;
    let from = if decision.approves() { 1 } else { bound.quorum };
    for place in from..=bound.quorum {
        let item = InboxItem::Decision {
            approval: approval.clone(),
            call: bound.call.clone(),
            sha256: Arc::clone(&bound.sha256),
            decision: decision.clone(),
        };
        match store.post(&bound.thread, &key_of(approval, bound.expires_at, place), item).await? {
            Posted::First => return Ok(()),
            Posted::Late(first) => {
                let InboxItem::Decision { decision: first, .. } = *first else {
                    return Err(AgentError::ApprovalConflict { approval: approval.to_string(), by: None });
                };
                if place == bound.quorum || !first.approves() || first.by == decision.by {
                    return Err(decided(approval, &first));
                }
                if first.edited() != decision.edited() {
                    let who = first.by.unwrap_or_default();
                    let problem = format!("{who} approved it with other arguments; approve the same, or reject it");
                    return Err(AgentError::ApprovalInvalid { approval: approval.to_string(), problem });
                }
            }
        }
    }
    // The last place is one or the other's.
    Err(AgentError::ApprovalNotFound { approval: approval.to_string() })
}

/// How many different people these names are of.
pub(crate) fn people(names: &[String]) -> u32 {
    let different: std::collections::BTreeSet<&String> = names.iter().collect();
    u32::try_from(different.len()).unwrap_or(u32::MAX)
}

/// A timer: key, moment, and what is posted then.
pub(crate) type Timer = (String, Timestamp, InboxItem);

/// What is to be posted later because of these records: that nobody decided in time, and reminders. Set before the records are
/// written: one that comes to nothing is passed over by whoever takes it, and one that is missing would never come.
pub(crate) fn timers_of(records: &[Arc<Record>], ask_of: impl Fn(&CallId) -> Option<(ApprovalId, u64)>) -> Vec<Timer> {
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
                    timers.push((key_of(approval, Some(at), ask.quorum), at, item));
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
