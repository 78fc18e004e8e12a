//! Those who read: threads with a connection each, so that neither the writer nor the async runtime waits for them.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rusqlite::Connection;
use tokio::sync::{oneshot, watch};
use toolwright_runtime::StoreError;

use super::fault::{Database, Trouble};
use super::guests::{Guest, Guests};
use super::schema;

/// A question to the database. Is given the error where no connection could be opened.
type Question = Box<dyn FnOnce(Result<&Connection, StoreError>) + Send>;

/// The way to the readers. They end when this is dropped.
pub(super) struct Readers {
    shared: Arc<Shared>,
    most: usize,
    alive: watch::Sender<()>,
    guests: Arc<Guests>,
}

struct Shared {
    path: PathBuf,
    database: Database,
    waiting: Mutex<Waiting>,
    came: Condvar,
}

#[derive(Default)]
struct Waiting {
    questions: VecDeque<Question>,
    /// Threads that wait for a question.
    idle: usize,
    threads: usize,
    closed: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Every change under the lock is complete at each step.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next question; `None` at the end.
    fn next(&self) -> Option<Question> {
        let mut waiting = self.lock();
        waiting.idle += 1;
        let mut waiting = self
            .came
            .wait_while(waiting, |waiting| waiting.questions.is_empty() && !waiting.closed)
            .unwrap_or_else(PoisonError::into_inner);
        waiting.idle -= 1;
        waiting.questions.pop_front()
    }
}

impl Readers {
    /// A thread is started when a question comes and nobody is free for it.
    pub(super) fn of(path: PathBuf, database: &Database, alive: &watch::Sender<()>, guests: &Arc<Guests>) -> Self {
        let shared = Shared { path, database: database.clone(), waiting: Mutex::default(), came: Condvar::new() };
        let most = std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 8);
        Self { shared: Arc::new(shared), most, alive: alive.clone(), guests: Arc::clone(guests) }
    }

    /// Asks the database, which does not change while the question is answered.
    pub(super) async fn ask<T, Work>(&self, work: Work) -> Result<T, StoreError>
    where
        T: Send + 'static,
        Work: FnOnce(&Connection) -> Result<T, Trouble> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let database = self.shared.database.clone();
        self.submit(Box::new(move |connection| {
            let found = connection.and_then(|connection| in_one_view(connection, work).map_err(|trouble| database.error(trouble)));
            // Whoever asked may have gone.
            let _ = reply.send(found);
        }))?;
        answer.await.unwrap_or_else(|_| Err(self.shared.database.broken("a reader")))
    }

    fn submit(&self, question: Question) -> Result<(), StoreError> {
        let mut waiting = self.shared.lock();
        if waiting.closed {
            return Err(self.shared.database.closed());
        }
        waiting.questions.push_back(question);
        if waiting.questions.len() > waiting.idle && waiting.threads < self.most {
            let (shared, alive, guest) = (Arc::clone(&self.shared), self.alive.subscribe(), self.guests.enter());
            let thread = std::thread::Builder::new().name("toolwright-read".to_owned());
            match thread.spawn(move || serve(&shared, &alive, &guest)) {
                Ok(_) => waiting.threads += 1,
                // Those there are get to it.
                Err(_) if waiting.threads > 0 => {}
                Err(error) => {
                    waiting.questions.clear();
                    let database = &self.shared.database;
                    let message = format!("no thread could be started for the store {database} ({error}); end others first");
                    return Err(StoreError::failed(message));
                }
            }
        }
        drop(waiting);
        self.shared.came.notify_one();
        Ok(())
    }

    /// Lets the threads end once what was asked is answered.
    pub(super) fn close(&self) {
        self.shared.lock().closed = true;
        self.shared.came.notify_all();
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.close();
    }
}

/// `alive` and `guest` are held for as long as the thread has the file.
fn serve(shared: &Shared, _alive: &watch::Receiver<()>, _guest: &Guest) {
    let mut connection = None;
    while let Some(question) = shared.next() {
        let opened = match connection.take() {
            Some(connection) => Ok(connection),
            None => schema::open_reader(&shared.path, &shared.database),
        };
        // A question that falls takes its reply along: whoever asked is told so.
        let _ = catch_unwind(AssertUnwindSafe(|| question(opened.as_ref().map_err(Clone::clone))));
        connection = opened.ok().filter(Connection::is_autocommit);
    }
}

fn in_one_view<T>(connection: &Connection, work: impl FnOnce(&Connection) -> Result<T, Trouble>) -> Result<T, Trouble> {
    connection.prepare_cached("BEGIN")?.execute([])?;
    let found = work(connection);
    connection.prepare_cached("COMMIT")?.execute([])?;
    found
}
