//! Everybody else: people and programs that post decisions, input and cancellations, at any time.

use std::sync::Arc;

use toolwright_core::{AbortReason, ApprovalId, Decision, InputId, InputMode, Message, RunId};
use toolwright_runtime::InboxItem;

use super::Broken;
use super::audit::Stage;
use super::world::World;

/// What people say.
pub(super) const TEXTS: [&str; 4] = [
    "go on",
    "\n \u{7}\t\n  what is \u{1}new?  \nmuch",
    "",
    "é 1234567890 1234567890 1234567890 1234567890 1234567890 1234567890 1234567890 1234567890 1234567890 \
     1234567890 1234567890 1234567890 1234567890 1234567890 1234567890 1234567890 1234567890 123456789ééé",
];

impl World<'_> {
    /// Somebody decides, decides again, too late, about something else, sends input, or cancels what is over.
    pub(super) fn somebody_posts(&mut self) -> Result<(), Broken> {
        if self.posts_left > 0 && self.rng.percent(self.plan.input) {
            self.posts_left -= 1;
            return self.post_input();
        }
        let audit = &self.store.audit;
        if self.plan.cancel > 0 && audit.run.is_none() && self.rng.percent(10) {
            // For a run that is over, or never was.
            return self.post_cancel();
        }
        if self.store.timers() > 0 && self.rng.percent(5) {
            let timers = self.store.timers();
            let at = self.rng.index(timers);
            return self.store.cancel_timer(at);
        }
        if audit.approvals.is_empty() {
            return Ok(());
        }
        let waiting: Vec<usize> = audit.waiting().collect();
        let roll = self.rng.below(100);
        if roll < 10 {
            // About other arguments, or too early for a call that nobody asks about yet.
            self.post_stray(waiting.first().copied())
        } else if roll < 25 || waiting.is_empty() {
            // Perhaps one that was decided long ago, or that the source of a fork waits for.
            let known = audit.approvals.len();
            let at = self.rng.index(known);
            self.decide(at)
        } else if let Some(approval) = self.rng.pick(&waiting) {
            if self.rng.percent(10) { self.hand_on(approval) } else { self.decide(approval) }
        } else {
            Ok(())
        }
    }

    /// Posts at once, or has a timer do it.
    fn deliver(&mut self, key: &str, item: InboxItem) -> Result<bool, Broken> {
        if self.rng.percent(self.plan.timers) {
            let at = self.now + self.rng.below(2000) as i64;
            self.store.post_at(key.to_owned(), at, item)?;
            return Ok(true);
        }
        self.store.post(key, item)
    }

    fn post_input(&mut self) -> Result<(), Broken> {
        self.named += 1;
        let id = InputId::new(format!("in_{}_{}", self.depth, self.named));
        let mode = if self.rng.percent(50) { InputMode::Steer } else { InputMode::Queue };
        let audit = &self.store.audit;
        let only = match self.rng.below(10) {
            // A handle sends to its own run, which may be over.
            0..=2 => audit.run.as_ref().map(|run| run.id.clone()),
            3 => audit.last_run.clone(),
            4 => Some(RunId::new("run_of_nobody")),
            _ => None,
        };
        let count = self.rng.between(1, 2);
        let text = self.rng.pick(&TEXTS).unwrap_or("go on");
        let messages = (0..count).map(|n| Arc::new(Message::human(format!("{text}{n}")))).collect();
        let key = format!("input:{id}");
        self.stats.inputs += 1;
        self.deliver(&key, InboxItem::Input { id: id.clone(), mode, messages, only })?;
        if self.plan.cancel > 0 && self.rng.percent(10) {
            // Whoever said it thinks better of it.
            self.stats.cancels += 1;
            self.post_cancel()?;
        }
        if self.rng.percent(10) {
            // The same key again, with something else.
            let messages = vec![Arc::new(Message::human("never mind"))];
            self.stats.again += 1;
            self.deliver(&key, InboxItem::Input { id, mode: InputMode::Queue, messages, only: None })?;
        }
        Ok(())
    }

    pub(super) fn post_cancel(&mut self) -> Result<(), Broken> {
        let number = self.cancels;
        self.cancels += 1;
        let run = self.store.audit.run.as_ref().or(None).map(|run| run.id.clone());
        let run = match self.rng.below(4) {
            0 => run,
            1 => self.store.audit.last_run.clone(),
            _ => None,
        };
        let item = InboxItem::Cancel { reason: AbortReason::abort(format!("posted {number}")), run };
        self.deliver(&format!("cancel {number}"), item).map(drop)
    }

    fn post_stray(&mut self, waiting: Option<usize>) -> Result<(), Broken> {
        let audit = &self.store.audit;
        let about = match waiting.and_then(|at| audit.approvals.get(at)) {
            Some(approval) => audit.calls.get(approval.call).map(|call| (approval.id.clone(), call.id.clone())),
            None => audit
                .open()
                .find(|call| call.stage == Stage::Opened)
                .map(|call| (ApprovalId::of(&self.store.thread, &call.id, 1), call.id.clone())),
        };
        let Some((approval, call)) = about else { return Ok(()) };
        self.stats.altered += 1;
        let key = format!("stray {}", self.store.posted());
        let item = InboxItem::Decision { approval, call, sha256: "of other arguments".into(), decision: Decision::approve() };
        self.store.post(&key, item).map(drop)
    }
}
