//! The one writer: a thread that owns the connection which writes, and commits for all who wait at once.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::{oneshot, watch};
use toolwright_runtime::StoreError;

use super::fault::{Database, Trouble};
use super::guests::Guests;
use super::wakes::{News, Wakes};

/// So many commands share a commit at most, so that the first of them does not wait for ever longer work.
const LARGEST_GROUP: usize = 512;

/// How long the others of this process may take to close, before the writer does without them.
const OTHERS_CLOSE: Duration = Duration::from_secs(5);

/// So long the writer looks for the next command before it sleeps: the next append of a thread that goes on comes well within,
/// and to be woken costs as much as a commit on a fast disk.
const WRITER_AWAKE: Duration = Duration::from_micros(80);
/// So long somebody who is alone in asking looks for the answer before its own thread may sleep, for the same reason. Other
/// tasks run meanwhile.
const ASKER_AWAKE: Duration = Duration::from_micros(400);

/// A transaction that is open, in which commands do their work.
pub(super) struct Writing<'a> {
    pub(super) connection: &'a Connection,
    pub(super) database: &'a Database,
    /// What waiters are told once it is durable.
    pub(super) news: Vec<News>,
}

/// A command, whatever it answers.
trait Command: Send {
    /// Does its work. What it found is told once the transaction is durable.
    fn run(&mut self, writing: &mut Writing<'_>) -> Result<(), StoreError>;

    /// Puts an error in the place of what it found.
    fn fail(&mut self, error: StoreError);

    /// Tells whoever asked.
    fn answer(self: Box<Self>);
}

struct Asked<T, Work> {
    work: Option<Work>,
    found: Option<Result<T, StoreError>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, Work> Command for Asked<T, Work>
where
    T: Send,
    Work: FnOnce(&mut Writing<'_>) -> Result<T, Trouble> + Send,
{
    fn run(&mut self, writing: &mut Writing<'_>) -> Result<(), StoreError> {
        let Some(work) = self.work.take() else { return Ok(()) };
        self.found = Some(Ok(work(writing).map_err(|trouble| writing.database.error(trouble))?));
        Ok(())
    }

    fn fail(&mut self, error: StoreError) {
        self.found = Some(Err(error));
    }

    fn answer(self: Box<Self>) {
        if let Some(found) = self.found {
            // Whoever asked may have gone.
            let _ = self.reply.send(found);
        }
    }
}

enum Message {
    Do(Box<dyn Command>),
    /// What came before is done, then the thread ends.
    Close,
}

/// The way to the writer's thread.
pub(super) struct Writer {
    commands: Sender<Message>,
    database: Database,
    /// How many wait for an answer.
    asking: AtomicUsize,
}

impl Writer {
    /// Starts the thread. It ends when this is dropped, or told to close.
    pub(super) fn start(
        connection: Connection,
        database: &Database,
        wakes: &Arc<Wakes>,
        alive: &watch::Sender<()>,
        guests: &Arc<Guests>,
    ) -> Result<Self, StoreError> {
        let (commands, inbox) = channel();
        let (served, wakes, alive, guests) = (database.clone(), Arc::clone(wakes), alive.subscribe(), Arc::clone(guests));
        let thread = std::thread::Builder::new().name("toolwright-write".to_owned());
        let started = thread.spawn(move || {
            let end = End { wakes: &wakes, _alive: alive };
            serve(&connection, &inbox, &served, &wakes);
            drop(inbox);
            wakes.shut();
            guests.wait(OTHERS_CLOSE);
            // Whoever waits for the end finds the file let go.
            drop((connection, end));
        });
        match started {
            Ok(_) => Ok(Self { commands, database: database.clone(), asking: AtomicUsize::new(0) }),
            Err(error) => {
                Err(StoreError::failed(format!("no thread could be started for the store {database} ({error}); end others first")))
            }
        }
    }

    /// Does a piece of work in a transaction. It is durable once this returns.
    pub(super) async fn ask<T, Work>(&self, work: Work) -> Result<T, StoreError>
    where
        T: Send + 'static,
        Work: FnOnce(&mut Writing<'_>) -> Result<T, Trouble> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let broken = || self.database.broken("the writer");
        self.commands.send(Message::Do(Box::new(Asked { work: Some(work), found: None, reply }))).map_err(|_| broken())?;
        let asking = Asking::begin(&self.asking);
        let answer = asking.answer(answer).await;
        answer.unwrap_or_else(|| Err(broken()))
    }

    /// Lets the thread end once it has done what it was asked before.
    pub(super) fn close(&self) {
        // It may have ended already.
        let _ = self.commands.send(Message::Close);
    }
}

/// Somebody who waits for an answer.
struct Asking<'a> {
    asking: &'a AtomicUsize,
}

impl<'a> Asking<'a> {
    fn begin(asking: &'a AtomicUsize) -> Self {
        asking.fetch_add(1, Ordering::Relaxed);
        Self { asking }
    }

    /// The answer; `None` if there is none any more. Where many ask they share commits, and being woken costs little beside.
    async fn answer<T>(&self, mut answer: oneshot::Receiver<T>) -> Option<T> {
        let began = Instant::now();
        while self.asking.load(Ordering::Relaxed) == 1 && began.elapsed() < ASKER_AWAKE {
            match answer.try_recv() {
                Ok(found) => return Some(found),
                Err(oneshot::error::TryRecvError::Closed) => return None,
                Err(oneshot::error::TryRecvError::Empty) => {
                    // Not at once again: the writer may need this very core.
                    std::thread::yield_now();
                    tokio::task::yield_now().await;
                }
            }
        }
        answer.await.ok()
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.asking.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The next command, looked for a while before the thread sleeps. `None` once nobody can ask any more.
fn next(inbox: &Receiver<Message>) -> Option<Message> {
    let began = Instant::now();
    while began.elapsed() < WRITER_AWAKE {
        match inbox.try_recv() {
            Ok(message) => return Some(message),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => std::hint::spin_loop(),
        }
    }
    inbox.recv().ok()
}

/// However the thread ends, nobody waits for what won't come.
struct End<'a> {
    wakes: &'a Wakes,
    _alive: watch::Receiver<()>,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.wakes.shut();
    }
}

fn serve(connection: &Connection, inbox: &Receiver<Message>, database: &Database, wakes: &Wakes) {
    let mut group = VecDeque::new();
    while let Some(first) = next(inbox) {
        let mut closes = false;
        for message in std::iter::once(first).chain(inbox.try_iter()) {
            match message {
                Message::Do(command) => group.push_back(command),
                Message::Close => closes = true,
            }
            if closes || group.len() >= LARGEST_GROUP {
                break;
            }
        }
        while !group.is_empty() {
            let mut writing = Writing { connection, database, news: Vec::new() };
            let (begun, outcome) = commit(&mut group, &mut writing);
            if outcome.is_ok() {
                wakes.tell(&writing.news);
            }
            for mut command in begun {
                if let Err(error) = &outcome {
                    command.fail(error.clone());
                }
                command.answer();
            }
        }
        if closes {
            return;
        }
    }
}

/// Runs commands in one transaction and commits it. Gives those that were run, which share the outcome; those that were not
/// stay in the group, where a failure ended the transaction before their turn.
fn commit(group: &mut VecDeque<Box<dyn Command>>, writing: &mut Writing<'_>) -> (Vec<Box<dyn Command>>, Result<(), StoreError>) {
    let (connection, database) = (writing.connection, writing.database);
    if let Err(error) = run_sql(connection, "BEGIN IMMEDIATE") {
        return (group.drain(..).collect(), Err(database.error(error.into())));
    }
    let mut begun = Vec::with_capacity(group.len());
    let (mut outcome, mut any_stands) = (Ok(()), false);
    let alone = group.len() == 1;
    while let Some(mut command) = group.pop_front() {
        let ran = if alone { run_alone(&mut *command, writing) } else { run_apart(&mut *command, writing) };
        begun.push(command);
        match ran {
            Ok(stands) => any_stands |= stands,
            Err(error) => {
                outcome = Err(error);
                break;
            }
        }
    }
    if outcome.is_ok() && any_stands {
        outcome = run_sql(connection, "COMMIT").map_err(|error| database.error(error.into()));
    }
    if !connection.is_autocommit()
        && let Err(error) = run_sql(connection, "ROLLBACK")
    {
        tracing::error!(%database, %error, "a transaction could be neither committed nor undone");
    }
    (begun, outcome)
}

/// Runs a command. Gives whether it stands, and an error where the database gave up the whole transaction, as it does when
/// the disk is full.
fn run_alone(command: &mut dyn Command, writing: &mut Writing<'_>) -> Result<bool, StoreError> {
    let told = writing.news.len();
    let ran = catch_unwind(AssertUnwindSafe(|| command.run(writing))).unwrap_or_else(|_| Err(writing.database.broken("a piece of work")));
    let stands = ran.is_ok();
    if let Err(error) = ran {
        writing.news.truncate(told);
        if writing.connection.is_autocommit() {
            return Err(error);
        }
        command.fail(error);
    }
    Ok(stands)
}

/// Runs a command so that, if it fails, it undoes only itself.
fn run_apart(command: &mut dyn Command, writing: &mut Writing<'_>) -> Result<bool, StoreError> {
    let (connection, database) = (writing.connection, writing.database);
    let step = |sql| run_sql(connection, sql).map_err(|error| database.error(error.into()));
    step("SAVEPOINT command")?;
    let stands = run_alone(command, writing)?;
    if !stands {
        step("ROLLBACK TO command")?;
    }
    step("RELEASE command")?;
    Ok(stands)
}

fn run_sql(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::sqlite::schema;

    fn started() -> (Writer, Arc<Wakes>, watch::Sender<()>) {
        let database = Database::of(Path::new(":memory:"));
        let (wakes, alive, guests) = (Arc::new(Wakes::new(false)), watch::channel(()).0, Arc::default());
        let writer = Writer::start(schema::open_in_memory(&database).unwrap(), &database, &wakes, &alive, &guests).unwrap();
        (writer, wakes, alive)
    }

    fn insert(id: &str) -> impl FnOnce(&mut Writing<'_>) -> Result<i64, Trouble> + Send + use<> {
        let id = id.to_owned();
        move |writing| {
            writing.connection.execute("INSERT INTO threads (id) VALUES (?1)", [id])?;
            Ok(writing.connection.last_insert_rowid())
        }
    }

    #[tokio::test]
    async fn work_that_panics_is_undone_and_the_writer_goes_on() {
        let (writer, _wakes, _alive) = started();
        let panics = |writing: &mut Writing<'_>| {
            insert("lost")(writing)?;
            assert!(!writing.news.is_empty(), "a bug");
            Ok(0)
        };
        // Alone, and in a group: the writer is held up until the others are there.
        let said = writer.ask(panics).await.unwrap_err().to_string();
        assert!(said.contains("broke off"), "{said}");
        let (go, held) = channel::<()>();
        let holds = writer.ask(move |_| {
            let _ = held.recv();
            Ok(())
        });
        let send = async {
            let (first, lost, second) = (writer.ask(insert("first")), writer.ask(panics), writer.ask(insert("second")));
            let go = async { drop(go) };
            let (first, lost, second, ()) = tokio::join!(first, lost, second, go);
            (first.is_ok(), lost.is_ok(), second.is_ok())
        };
        let (held, sent) = tokio::join!(holds, send);
        held.unwrap();
        assert_eq!(sent, (true, false, true));
        let ids = writer.ask(|writing| {
            let mut select = writing.connection.prepare("SELECT id FROM threads ORDER BY number")?;
            Ok(select.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?)
        });
        assert_eq!(ids.await.unwrap(), ["first", "second"]);
    }

    #[tokio::test]
    async fn whoever_asks_a_writer_that_has_ended_is_told_so() {
        let (writer, _wakes, alive) = started();
        writer.ask(insert("first")).await.unwrap();
        writer.close();
        alive.closed().await;
        let said = writer.ask(insert("second")).await.unwrap_err().to_string();
        assert!(said.contains("the writer of the store :memory: broke off"), "{said}");
    }
}
