//! The time that tools go by.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use toolwright_tool::{FromCall, Requirements, ToolContext, ToolError};

/// What tells the tools the time. The system's clock, unless an agent is given another: `.state(Clock::fixed(time))`.
#[derive(Clone)]
pub struct Clock {
    now: Arc<dyn Fn() -> SystemTime + Send + Sync>,
}

impl Clock {
    /// The time that `now` tells.
    pub fn new(now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self { now: Arc::new(now) }
    }

    /// Always the same time.
    pub fn fixed(time: SystemTime) -> Self {
        Self::new(move || time)
    }

    /// The time.
    pub fn now(&self) -> SystemTime {
        (self.now)()
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new(SystemTime::now)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").finish_non_exhaustive()
    }
}

/// The day it is, in UTC. Takes the [`Clock`] where there is one and asks nobody for it.
pub struct Today(pub(crate) Date);

impl FromCall for Today {
    fn requires(_requirements: &mut Requirements) {}

    async fn from_call(cx: &ToolContext) -> Result<Self, ToolError> {
        let now = cx.state::<Clock>().map_or_else(SystemTime::now, Clock::now);
        let now = jiff::Timestamp::try_from(now).map_err(|_| ToolError::new("the clock is set to a time that no calendar has"))?;
        Ok(Self(now.to_zoned(TimeZone::UTC).date()))
    }
}
