//! Who else of this process has the file open. The writer's connection is the last to close: SQLite takes its log away with the last
//! one, and of two that close at once each takes the other for one that stays.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How many connections there are beside the writer's.
#[derive(Default)]
pub(super) struct Guests {
    there: Mutex<usize>,
    left: Condvar,
}

impl Guests {
    /// One more, for as long as what this gives is kept.
    pub(super) fn enter(self: &Arc<Self>) -> Guest {
        *self.there.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Guest(Arc::clone(self))
    }

    /// Waits until all have left; no longer than this, as one may be busy with a question for long.
    pub(super) fn wait(&self, at_most: Duration) {
        let there = self.there.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.left.wait_timeout_while(there, at_most, |there| *there > 0));
    }
}

/// One of them.
pub(super) struct Guest(Arc<Guests>);

impl Drop for Guest {
    fn drop(&mut self) {
        let mut there = self.0.there.lock().unwrap_or_else(PoisonError::into_inner);
        *there = there.saturating_sub(1);
        drop(there);
        self.0.left.notify_all();
    }
}
