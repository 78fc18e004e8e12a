//! Where the runtime's time comes from.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use toolwright_core::Timestamp;

/// A clock. The core has none: time comes in with records.
pub trait Clock: Send + Sync + 'static {
    /// Now.
    fn now(&self) -> Timestamp;
}

/// The system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

/// A clock that a test sets. Clones are one clock.
#[derive(Clone, Debug, Default)]
pub struct FixedClock(Arc<AtomicI64>);

impl FixedClock {
    /// Stands at `at`.
    pub fn at(at: Timestamp) -> Self {
        Self(Arc::new(AtomicI64::new(at.0)))
    }

    /// Moves on.
    pub fn advance(&self, millis: i64) {
        self.0.fetch_add(millis, Ordering::Relaxed);
    }
}

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }
}
