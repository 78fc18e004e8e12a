//! The simulated store: one thread's journal, claims with fences, an inbox; and what was posted to it.

use std::collections::HashSet;
use std::sync::Arc;

use toolwright_core::{Record, Seq, Thread, ThreadId};
use toolwright_runtime::InboxItem;

use super::audit::Audit;
use super::{Broken, broken};

pub(super) struct Store {
    pub(super) thread: ThreadId,
    pub(super) records: Vec<Arc<Record>>,
    /// What the journal says, read independently of the core's fold.
    pub(super) audit: Audit,
    fence: u64,
    last_writer: u64,
    inbox: Vec<(u64, InboxItem)>,
    keys: HashSet<String>,
    position: u64,
}

impl Store {
    pub(super) fn new(thread: ThreadId) -> Self {
        Self {
            thread,
            records: Vec::new(),
            audit: Audit::default(),
            fence: 0,
            last_writer: 0,
            inbox: Vec::new(),
            keys: HashSet::new(),
            position: 0,
        }
    }

    /// A later claim fences all earlier ones.
    pub(super) fn claim(&mut self) -> u64 {
        self.fence += 1;
        self.fence
    }

    pub(super) fn is_current(&self, fence: u64) -> bool {
        fence == self.fence
    }

    /// Appends, all or nothing. `false`: refused, because a later owner has the thread.
    pub(super) fn append(&mut self, fence: u64, expected: Seq, records: &[Arc<Record>], inbox_through: u64) -> Result<bool, Broken> {
        if fence != self.fence {
            return Ok(false);
        }
        if fence < self.last_writer {
            return broken("only one writer moves the thread", format!("fence {fence} wrote after {}", self.last_writer));
        }
        self.last_writer = fence;
        let actual = Seq(self.records.len() as u64);
        if expected != actual {
            return broken("an owner knows where its journal ends", format!("it expected {expected}, the journal ends at {actual}"));
        }
        for record in records {
            self.records.push(Arc::clone(record));
            self.audit.note(record)?;
        }
        self.inbox.retain(|(position, _)| *position > inbox_through);
        Ok(true)
    }

    /// The fold of the journal.
    pub(super) fn load(&self) -> Result<Thread, Broken> {
        let mut thread = Thread::new();
        for record in &self.records {
            if let Err(misfit) = thread.apply(record) {
                return broken("the stored journal folds without misfit", misfit.to_string());
            }
        }
        Ok(thread)
    }

    /// Posts under a key. `false`: another came first.
    pub(super) fn post(&mut self, key: String, item: InboxItem) -> bool {
        let first = self.keys.insert(key);
        if first {
            self.position += 1;
            self.inbox.push((self.position, item));
        }
        first
    }

    /// The position of the last item posted.
    pub(super) fn posted(&self) -> u64 {
        self.position
    }

    pub(super) fn has_news(&self, after: u64) -> bool {
        self.inbox.last().is_some_and(|(position, _)| *position > after)
    }

    /// What was not taken yet.
    pub(super) fn inbox(&self, after: u64) -> Vec<(u64, InboxItem)> {
        self.inbox.iter().filter(|(position, _)| *position > after).cloned().collect()
    }
}
