//! How a decision is posted, and what is to be posted when its time comes.

use std::sync::Arc;

use toolwright_core::{ApprovalId, CallId, Decision, Record, RecordBody, ThreadId, Timestamp, Verdict};

use crate::error::AgentError;
use crate::store::{InboxItem, Posted, Store};

/// What a decision is bound to.
pub(crate) struct Bound {
    pub(crate) thread: ThreadId,
    pub(crate) approval: ApprovalId,
    pub(crate) call: CallId,
    pub(crate) sha256: Arc<str>,
}

/// Posts a decision where it is the first, or one of the first `quorum`.
///
/// Each of them has a key of its own, and who posts tries one after the other: whoever comes later knows all that were posted
/// before, so that nobody approves twice, approves other arguments than those before, or approves what was rejected.
pub(crate) async fn post_decision(store: &dyn Store, bound: &Bound, quorum: u32, decision: Decision) -> Result<(), AgentError> {
    let approval = &bound.approval;
    let conflict = |first: &Decision| AgentError::ApprovalConflict { approval: approval.to_string(), by: first.by.clone() };
    let mut before = None;
    for place in 1..=quorum.max(1) {
        let key = if place == 1 { format!("decision:{approval}") } else { format!("decision:{approval}:{place}") };
        let item = InboxItem::Decision {
            approval: approval.clone(),
            call: bound.call.clone(),
            sha256: Arc::clone(&bound.sha256),
            decision: decision.clone(),
        };
        match store.post(&bound.thread, &key, item).await? {
            Posted::First => return Ok(()),
            Posted::Late(first) => {
                let InboxItem::Decision { decision: first, .. } = *first else {
                    return Err(AgentError::ApprovalConflict { approval: approval.to_string(), by: None });
                };
                if !first.approves() || decision.approves() && first.by == decision.by {
                    return Err(conflict(&first));
                }
                if decision.approves() && first.edited() != decision.edited() {
                    let who = first.by.unwrap_or_default();
                    let problem = format!("{who} approved it with other arguments; approve the same, or reject it");
                    return Err(AgentError::ApprovalInvalid { approval: approval.to_string(), problem });
                }
                before = Some(first);
            }
        }
    }
    Err(before.as_ref().map_or_else(|| AgentError::ApprovalNotFound { approval: approval.to_string() }, conflict))
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
                        decision: Decision::lapsed(),
                    };
                    timers.push((format!("lapse:{approval}:{}", at.0), at, item));
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
