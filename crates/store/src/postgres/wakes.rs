//! Waiting for what others write: one listening session a process, begun at the first wait.
//!
//! Whoever waits registers first, then looks, then waits, so that nothing falls between. A notification is only ever a reason to
//! look again; when the session is lost, everyone looks again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;
use toolwright_core::ThreadId;

use super::session::{Ended, Pool, Session, Tries, Trouble, lock, quoted};

/// What is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Event {
    Appended,
    Posted,
}

impl Event {
    fn word(self) -> &'static str {
        match self {
            Self::Appended => "appended",
            Self::Posted => "posted",
        }
    }

    /// What a notification of it carries. `at` is where it stands now, if that is known.
    pub(super) fn payload(self, thread: &ThreadId, at: Option<u64>) -> String {
        match at {
            Some(at) => format!("{} {thread} {at}", self.word()),
            None => format!("{} {thread}", self.word()),
        }
    }
}

/// Who waits for one thing, each beyond a position.
type Waiting = Vec<(u64, u64, oneshot::Sender<()>)>;

/// Everyone in this process who waits.
#[derive(Default)]
pub(super) struct Wakes {
    waiting: Arc<Mutex<HashMap<(Event, String), Waiting>>>,
    next: Mutex<u64>,
    listener: tokio::sync::Mutex<Option<Session>>,
}

/// A place among those who wait; it is given up when dropped.
pub(super) struct Ticket {
    waiting: Arc<Mutex<HashMap<(Event, String), Waiting>>>,
    of: (Event, String),
    number: u64,
    woken: oneshot::Receiver<()>,
}

impl Ticket {
    /// Returns when there is a reason to look again.
    pub(super) async fn woken(mut self) {
        // An error means that everyone was woken at once.
        let _ = (&mut self.woken).await;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut waiting = lock(&self.waiting);
        if let Some(those) = waiting.get_mut(&self.of) {
            those.retain(|(number, ..)| *number != self.number);
            if those.is_empty() {
                waiting.remove(&self.of);
            }
        }
    }
}

impl Wakes {
    /// Registers whoever waits for `event` beyond `after`.
    pub(super) fn register(&self, event: Event, thread: &ThreadId, after: u64) -> Ticket {
        let number = {
            let mut next = lock(&self.next);
            *next = next.wrapping_add(1);
            *next
        };
        let (wake, woken) = oneshot::channel();
        let of = (event, thread.as_str().to_owned());
        lock(&self.waiting).entry(of.clone()).or_default().push((number, after, wake));
        Ticket { waiting: Arc::clone(&self.waiting), of, number, woken }
    }

    /// Listens, if nobody does yet.
    pub(super) async fn listen(&self, pool: &Pool) -> Result<(), toolwright_runtime::StoreError> {
        let mut listener = self.listener.lock().await;
        if listener.as_ref().is_some_and(|session| !session.is_over()) {
            return Ok(());
        }
        *listener = None;
        let mut tries = Tries::new(&pool.server, pool.server.patience);
        loop {
            match tries.bounded(self.open_listener(pool)).await {
                Ok(session) => {
                    wake_all_at_the_end(session.ended(), Arc::clone(&self.waiting));
                    *listener = Some(session);
                    return Ok(());
                }
                Err(trouble) => tries.after(trouble).await?,
            }
        }
    }

    async fn open_listener(&self, pool: &Pool) -> Result<Session, Trouble> {
        let waiting = Arc::clone(&self.waiting);
        let session = pool.server.connect_with(move |payload| wake(&waiting, payload)).await?;
        let sql = format!("LISTEN {}", quoted(&pool.server.schema));
        session.batch(&sql).await.map_err(|error| pool.server.trouble(&error))?;
        Ok(session)
    }

    /// Ends the listening, and wakes everyone.
    pub(super) async fn close(&self) {
        *self.listener.lock().await = None;
        lock(&self.waiting).clear();
    }
}

fn wake_all_at_the_end(ended: Ended, waiting: Arc<Mutex<HashMap<(Event, String), Waiting>>>) {
    tokio::spawn(async move {
        ended.wait().await;
        lock(&waiting).clear();
    });
}

/// Wakes those that a notification is for. One that names no position is for all who wait for the thread.
fn wake(waiting: &Mutex<HashMap<(Event, String), Waiting>>, payload: &str) {
    let mut words = payload.split(' ');
    let event = match words.next() {
        Some("appended") => Event::Appended,
        Some("posted") => Event::Posted,
        _ => return,
    };
    let Some(thread) = words.next() else { return };
    let at: u64 = words.next().and_then(|at| at.parse().ok()).unwrap_or(u64::MAX);
    let of = (event, thread.to_owned());
    let mut waiting = lock(waiting);
    if let Some(those) = waiting.get_mut(&of) {
        let (woken, others) = std::mem::take(those).into_iter().partition(|(_, after, _)| *after < at);
        *those = others;
        if those.is_empty() {
            waiting.remove(&of);
        }
        drop::<Waiting>(woken);
    }
}
