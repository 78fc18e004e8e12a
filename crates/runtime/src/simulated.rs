//! What the simulator plays of the runtime besides the driver: how people decide, and what is posted when its time comes. Compiled
//! only with the feature `planted-bugs`.

use std::sync::Arc;

use toolwright_core::{Decision, Record, Thread, Timestamp};

use crate::error::AgentError;
use crate::index::PendingApproval;
use crate::planted::Bug;
use crate::posting::{self, Timer, Way};
use crate::store::InboxItem;

/// Somebody on their way to decide what waits.
pub struct Deciding {
    way: Way,
    decision: Decision,
}

impl Deciding {
    /// Looks at what waits, and at what was posted about it, and makes up their mind.
    ///
    /// # Errors
    ///
    /// As [`crate::Approvals::decide`].
    pub fn look(
        pending: PendingApproval,
        posted: Vec<InboxItem>,
        decision: Decision,
        now: Timestamp,
        bug: Option<Bug>,
    ) -> Result<Self, AgentError> {
        let pending = posting::with_posted(pending, posted)?;
        let invalid = |problem| AgentError::ApprovalInvalid { approval: pending.id.to_string(), problem };
        posting::fits(&pending, &decision).map_err(invalid)?;
        posting::may_decide(&pending, decision.by.as_ref())?;
        let (bound, decision) = posting::begin(&pending, decision, now);
        let mut way = Way::of(bound, decision.clone());
        way.bug = bug;
        Ok(Self { way, decision })
    }

    /// What they decided; that it came too late, where it did.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// What to post next, and under which key.
    pub fn next(&self) -> (String, InboxItem) {
        self.way.next()
    }

    /// Another came first there. They go on, or are told why not.
    ///
    /// # Errors
    ///
    /// As [`crate::Approvals::decide`].
    pub fn is_late(&mut self, first: InboxItem) -> Result<(), AgentError> {
        self.way.is_late(first)
    }
}

/// The timers that an owner of `thread` sets before it appends these records: key, moment, and what is posted then.
pub fn timers_of(thread: &Thread, records: &[Arc<Record>], bug: Option<Bug>) -> Vec<Timer> {
    let mut timers = posting::timers_of_thread(thread, records);
    if bug == Some(Bug::RemindedOnce) {
        timers.retain(|(_, _, item)| !matches!(item, InboxItem::Remind { times: 2.., .. }));
    }
    if bug == Some(Bug::LapseHasAKeyOfItsOwn) {
        for (key, _, item) in &mut timers {
            if matches!(item, InboxItem::Decision { .. }) {
                key.push_str(":lapse");
            }
        }
    }
    timers
}
