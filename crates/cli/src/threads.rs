//! `toolwright threads`: what is kept, and what can be done with it.

mod compare;
mod delete;
mod events;
mod export;
mod go_on;
mod list;
#[cfg(unix)]
mod rewind;
mod show;

use std::sync::Arc;

use toolwright::store::Opened;
use toolwright::{Agent, AgentError, Clock as _, Store, SystemClock, ThreadHandle, ThreadId, ThreadInfo, ThreadStatus, Timestamp};

pub(crate) use compare::compare;
pub(crate) use delete::delete;
pub(crate) use events::events;
pub(crate) use export::export;
pub(crate) use go_on::{fork, resume};
pub(crate) use list::list;
#[cfg(unix)]
pub(crate) use rewind::rewind;
pub(crate) use show::show;

use crate::args::StoreOptions;
use crate::kept::{Kept, close, thread_id};
use crate::problem::Problem;

/// A store that is looked at, and an agent that says what is in it; it has no model and no tools, and moves nothing.
pub(crate) struct Looked {
    pub(crate) kept: Kept,
    opened: Opened,
    store: Arc<dyn Store>,
    pub(crate) agent: Agent,
}

impl Looked {
    /// The store that the options name; `None` if it is the default one and does not exist.
    pub(crate) async fn at(kept: Kept) -> Result<Result<Self, Kept>, Problem> {
        let Some(opened) = kept.look().await? else { return Ok(Err(kept)) };
        let store = opened.store();
        let agent = Agent::builder().name("toolwright").store(Arc::clone(&store)).build_without_model()?;
        Ok(Ok(Self { kept, opened, store, agent }))
    }

    /// The store, and a thread that is in it.
    async fn thread(options: &StoreOptions, id: &str) -> Result<(Self, ThreadHandle, ThreadInfo), Problem> {
        let thread = thread_id(id)?;
        let looked = match Self::at(Kept::named_or_default(options)?).await? {
            Ok(looked) => looked,
            Err(kept) => return Err(kept.problem(AgentError::UnknownThread { thread })),
        };
        let (handle, info) = looked.known(thread).await?;
        Ok((looked, handle, info))
    }

    /// A thread that is in it.
    async fn known(&self, thread: ThreadId) -> Result<(ThreadHandle, ThreadInfo), Problem> {
        let handle = self.agent.thread(thread.as_str());
        match handle.info().await {
            Ok(Some(info)) => Ok((handle, info)),
            Ok(None) => Err(self.problem(AgentError::UnknownThread { thread })),
            Err(error) => Err(self.problem(error)),
        }
    }

    /// What was looked at was changed: the store is closed as it should be.
    pub(crate) async fn close(self) {
        close(self.opened).await;
    }

    pub(crate) fn problem(&self, error: impl Into<AgentError>) -> Problem {
        self.kept.problem(error.into())
    }
}

/// Where a thread stands, in a word with its colour.
fn status(status: ThreadStatus) -> (anstyle::Style, &'static str) {
    use crate::terminal::{CALL, GOOD, WARN};
    let style = match status {
        ThreadStatus::InProgress => CALL,
        ThreadStatus::AwaitingApproval => WARN,
        ThreadStatus::Finished => GOOD,
    };
    (style, status.as_str())
}

pub(crate) fn now() -> Timestamp {
    SystemClock.now()
}

/// How long ago, at a glance.
pub(crate) fn ago(then: Timestamp, now: Timestamp) -> String {
    let minutes = now.0.saturating_sub(then.0) / 60_000;
    match minutes {
        // A clock that jumped back makes the past the future.
        ..1 => "just now".to_owned(),
        1..60 => format!("{minutes} min ago"),
        60..1_440 => format!("{} h ago", minutes / 60),
        1_440..2_880 => "1 day ago".to_owned(),
        2_880..86_400 => format!("{} days ago", minutes / 1_440),
        _ => then.to_iso().split('T').next().unwrap_or_default().to_owned(),
    }
}

fn count(number: usize, one: &str, more: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {more}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_past_is_told_at_a_glance() {
        let now = Timestamp(1_767_225_600_000);
        let minutes = |minutes: i64| ago(Timestamp(now.0 - minutes * 60_000), now);
        assert_eq!([minutes(-60), minutes(0), minutes(1)], ["just now", "just now", "1 min ago"]);
        assert_eq!([minutes(90), minutes(1_440), minutes(5_000)], ["1 h ago", "1 day ago", "3 days ago"]);
        assert_eq!(minutes(100_000), "2025-10-23");
        assert_eq!(ago(Timestamp(i64::MAX), Timestamp(i64::MIN)), "just now");
    }
}
