//! A worker: moves the threads of a store that nobody moves and that have something to do.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use toolwright_core::ThreadId;

use crate::agent::AgentInner;
use crate::error::AgentError;
use crate::run::Reply;
use crate::store::StoreError;
use crate::thread::ThreadHandle;

/// How many threads at once, where the worker is not told otherwise.
const CONCURRENCY: usize = 16;
/// How often the store is asked for something to do.
const PERIOD: Duration = Duration::from_millis(250);
/// A thread that could not be moved is tried again after this long, then after twice as long, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// Threads read at once.
const PAGE: usize = 256;

type Report = Arc<dyn Fn(&ThreadId, &Result<Reply, AgentError>) + Send + Sync>;

/// Moves the threads of a store that nobody moves and that have something to do: a run whose owner died, a decision or input
/// that was posted, a timer that is due. Any number of workers, in any number of processes, share a store: a claim decides who
/// moves a thread.
///
/// ```no_run
/// # async fn f(agent: toolwright_runtime::Agent) -> Result<(), toolwright_runtime::AgentError> {
/// let stop = tokio_util::sync::CancellationToken::new();
/// agent.worker().concurrency(8).run(stop).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Worker {
    inner: Arc<AgentInner>,
    concurrency: usize,
    period: Duration,
    until_idle: bool,
    report: Option<Report>,
}

impl Worker {
    pub(crate) fn new(inner: Arc<AgentInner>) -> Self {
        Self { inner, concurrency: CONCURRENCY, period: PERIOD, until_idle: false, report: None }
    }

    /// How many threads it moves at once; 16 by default.
    #[must_use]
    pub fn concurrency(mut self, threads: usize) -> Self {
        self.concurrency = threads.max(1);
        self
    }

    /// How often it asks the store for something to do; 250 ms by default.
    #[must_use]
    pub fn period(mut self, period: Duration) -> Self {
        self.period = period;
        self
    }

    /// It returns once nothing is left to do here, rather than waiting for more.
    #[must_use]
    pub fn until_idle(mut self) -> Self {
        self.until_idle = true;
        self
    }

    /// Is told how each run ended.
    #[must_use]
    pub fn on_reply(mut self, report: impl Fn(&ThreadId, &Result<Reply, AgentError>) + Send + Sync + 'static) -> Self {
        self.report = Some(Arc::new(report));
        self
    }

    /// Works until `stop` fires. Runs that go on then are not stopped: they are left where they are, for the next worker, once
    /// this process ends; wait for them or cancel them where that matters.
    ///
    /// # Errors
    ///
    /// A store that can't be asked for what there is to do. A thread that can't be moved is logged, and tried again ever less
    /// often.
    pub async fn run(self, stop: CancellationToken) -> Result<(), AgentError> {
        let mut running: JoinSet<(ThreadId, Result<Reply, AgentError>)> = JoinSet::new();
        let mut moving = Moving::default();
        loop {
            while let Some(ended) = running.try_join_next() {
                self.ended(ended, &mut moving);
            }
            if stop.is_cancelled() {
                running.detach_all();
                return Ok(());
            }
            let started = self.start_what_there_is(&mut running, &mut moving).await?;
            if self.until_idle && !started && running.is_empty() {
                return Ok(());
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(self.period) => {}
                Some(ended) = running.join_next(), if !running.is_empty() => self.ended(ended, &mut moving),
            }
        }
    }

    async fn start_what_there_is(
        &self,
        running: &mut JoinSet<(ThreadId, Result<Reply, AgentError>)>,
        moving: &mut Moving,
    ) -> Result<bool, AgentError> {
        let store = &self.inner.store;
        store.post_due(self.inner.clock.now(), PAGE).await?;
        let mut started = false;
        let mut after: Option<ThreadId> = None;
        loop {
            let page = store.unfinished(after.as_ref(), PAGE).await?;
            let last = page.len() < PAGE;
            after = page.last().cloned();
            for thread in page {
                if running.len() >= self.concurrency {
                    return Ok(started);
                }
                if moving.may_try(&thread) {
                    moving.begins(&thread);
                    started = true;
                    let handle = ThreadHandle::new(Arc::clone(&self.inner), Ok(thread.clone()));
                    running.spawn(async move {
                        let reply = handle.resume().await;
                        (thread, reply)
                    });
                }
            }
            if last {
                moving.forget_old();
                return Ok(started);
            }
        }
    }

    fn ended(&self, ended: Result<(ThreadId, Result<Reply, AgentError>), tokio::task::JoinError>, moving: &mut Moving) {
        // A task that panicked has no thread to tell of; its claim went with it.
        let Ok((thread, reply)) = ended else { return };
        match &reply {
            Ok(_) | Err(AgentError::Run { .. }) => moving.went_well(&thread),
            // Somebody else moves it.
            Err(AgentError::Store(StoreError::Busy { .. })) => moving.is_busy(&thread),
            // What was posted changed nothing; a thread that is listed all the same is looked at ever less often.
            Err(AgentError::NothingToResume { .. } | AgentError::AwaitingApproval { .. }) => drop(moving.failed(&thread)),
            Err(error) => {
                let pause = moving.failed(&thread);
                tracing::warn!(%thread, %error, ?pause, "a thread could not be moved; it is tried again later");
            }
        }
        let quiet = matches!(
            &reply,
            Err(AgentError::Store(StoreError::Busy { .. }) | AgentError::NothingToResume { .. } | AgentError::AwaitingApproval { .. })
        );
        if let Some(report) = self.report.as_ref().filter(|_| !quiet) {
            report(&thread, &reply);
        }
    }
}

/// The threads this worker moves, and those it leaves alone for a while.
#[derive(Default)]
struct Moving {
    by_thread: HashMap<ThreadId, Standing>,
}

enum Standing {
    Moves,
    Pauses { until: Instant, pause: Duration },
}

impl Moving {
    fn may_try(&self, thread: &ThreadId) -> bool {
        match self.by_thread.get(thread) {
            None => true,
            Some(Standing::Moves) => false,
            Some(Standing::Pauses { until, .. }) => *until <= Instant::now(),
        }
    }

    fn begins(&mut self, thread: &ThreadId) {
        // The pause is kept while it is tried: it grows if that fails again.
        match self.by_thread.get_mut(thread) {
            Some(Standing::Pauses { until, .. }) => *until = Instant::now() + LONGEST_PAUSE,
            _ => drop(self.by_thread.insert(thread.clone(), Standing::Moves)),
        }
    }

    /// Those that could have been tried again long since, and were not, are no longer listed.
    fn forget_old(&mut self) {
        let now = Instant::now();
        self.by_thread.retain(|_, standing| match standing {
            Standing::Moves => true,
            Standing::Pauses { until, pause } => *until + *pause + FIRST_PAUSE > now,
        });
    }

    fn went_well(&mut self, thread: &ThreadId) {
        self.by_thread.remove(thread);
    }

    fn is_busy(&mut self, thread: &ThreadId) {
        self.by_thread.insert(thread.clone(), Standing::Pauses { until: Instant::now() + FIRST_PAUSE, pause: Duration::ZERO });
    }

    fn failed(&mut self, thread: &ThreadId) -> Duration {
        let last = match self.by_thread.get(thread) {
            Some(Standing::Pauses { pause, .. }) => *pause,
            _ => Duration::ZERO,
        };
        let pause = (last * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.by_thread.insert(thread.clone(), Standing::Pauses { until: Instant::now() + pause, pause });
        pause
    }
}
