//! Sessions with the server, lent out one at a time, and the rule by which an operation is tried again when one is lost.
//!
//! Every operation is one statement, so a session that is given back, or dropped in the middle, has no transaction open.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Row, Statement};
use toolwright_runtime::StoreError;

use super::address::{Address, causes};

/// Work that touches much at once may take so many times longer than other work.
const HEAVY: u32 = 6;
/// How long the second try waits; the waits double from there.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// How long a try waits at most.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// What each session is set to, whatever the server or the role says: the schema; isolation as our statements count on; durable
/// commits; no end for being idle; an end for a statement whose client gave up on it long ago. Each of our statements is written
/// for an index that has its rows in order, and a plan made while the tables were small, or before the server counted them, has to
/// use it too.
const SETTINGS: &str = "
    SET search_path TO {schema};
    SET default_transaction_isolation TO 'read committed';
    SET client_min_messages TO 'error';
    SET statement_timeout TO {limit};
    SET enable_seqscan TO off;
    SET enable_bitmapscan TO off;
    SET enable_sort TO off;
    SET jit TO off;
    SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';
    SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN ('idle_session_timeout', 'lock_timeout');
    SELECT set_config(name, wanted, false) FROM pg_settings JOIN (VALUES
        ('tcp_keepalives_idle', '15'), ('tcp_keepalives_interval', '5'), ('tcp_keepalives_count', '3')
    ) AS probes (of, wanted) ON name = of;
";

/// Why a try came to nothing.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The session or the server is gone, or the server asked to try again: another try may do better.
    Lost(String),
    /// It will not become better.
    Final(StoreError),
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::Final(error)
    }
}

/// A name as it stands in SQL.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A position, moment or limit as the server has numbers. None of ours comes near the greatest.
pub(super) fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A server and how it is used.
pub(super) struct Server {
    pub(super) address: Address,
    pub(super) schema: String,
    pub(super) patience: Duration,
}

impl Server {
    /// How long work may take that touches much at once: deleting, copying, content, migrations.
    pub(super) fn heavy(&self) -> Duration {
        self.patience.saturating_mul(HEAVY)
    }

    /// A failure at this server, in one sentence.
    pub(super) fn failed(&self, problem: impl fmt::Display) -> StoreError {
        StoreError::failed(format!("PostgreSQL at {}: {problem}", self.address.name))
    }

    /// What an error of the client means for the operation.
    pub(super) fn trouble(&self, error: &tokio_postgres::Error) -> Trouble {
        let Some(said) = error.as_db_error() else {
            let io = std::error::Error::source(error).is_some_and(<dyn std::error::Error>::is::<std::io::Error>);
            return if error.is_closed() || io { Trouble::Lost(causes(error)) } else { Trouble::Final(self.failed(causes(error))) };
        };
        let code = said.code();
        let mut text = said.message().to_owned();
        if let Some(detail) = said.detail() {
            text = format!("{text} ({detail})");
        }
        let passing = [
            SqlState::ADMIN_SHUTDOWN,
            SqlState::CRASH_SHUTDOWN,
            SqlState::CANNOT_CONNECT_NOW,
            SqlState::TOO_MANY_CONNECTIONS,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::T_R_SERIALIZATION_FAILURE,
        ];
        if passing.contains(code) || code.code().starts_with("08") {
            return Trouble::Lost(text);
        }
        let address = |advice: &str| Trouble::Final(StoreError::invalid(format!("PostgreSQL at {}: {text}; {advice}", self.address.name)));
        let advice = match code.code() {
            "28P01" | "28000" => return address("check the user and the password in the address"),
            "3D000" => return address("create it with CREATE DATABASE, or name another in the address"),
            "42501" => "; grant the role what it lacks",
            "25006" => "; name the primary server in the address",
            "53100" => "; make room on the server's disk",
            "42P01" | "42883" | "3F000" => "; connect again: the schema is not what it was",
            _ => "",
        };
        Trouble::Final(self.failed(format!("{text}{advice}")))
    }

    /// A new session.
    pub(super) async fn connect(&self) -> Result<Session, Trouble> {
        self.connect_with(|_| {}).await
    }

    /// A new session, whose notifications go to `notified`.
    pub(super) async fn connect_with(&self, notified: impl Fn(&str) + Send + 'static) -> Result<Session, Trouble> {
        let connected = self.address.config.connect(self.address.tls.clone()).await;
        let (client, mut connection) = connected.map_err(|error| match self.trouble(&error) {
            // A certificate that is no good stays so.
            Trouble::Lost(text) if text.contains("TLS") => Trouble::Final(self.failed(text)),
            other => other,
        })?;
        let ended = Ended::default();
        let guard = EndGuard(ended.clone());
        tokio::spawn(async move {
            let _guard = guard;
            loop {
                match std::future::poll_fn(|cx| connection.poll_message(cx)).await {
                    Some(Ok(AsyncMessage::Notification(note))) => notified(note.payload()),
                    Some(Ok(_)) => {}
                    Some(Err(error)) => {
                        tracing::debug!(error = %causes(&error), "a session with PostgreSQL ended");
                        break;
                    }
                    None => break,
                }
            }
        });
        let session = Session { client, ended, statements: Mutex::default() };
        let limit = self.heavy().as_millis().min(i32::MAX as u128);
        let settings = SETTINGS.replace("{schema}", &quoted(&self.schema)).replace("{limit}", &limit.to_string());
        session.client.batch_execute(&settings).await.map_err(|error| self.trouble(&error))?;
        Ok(session)
    }
}

/// Becomes true when a session is over.
#[derive(Clone, Default)]
pub(super) struct Ended(Arc<tokio::sync::watch::Sender<bool>>);

impl Ended {
    /// Returns once the session is over.
    pub(super) async fn wait(&self) {
        // It can't fail: we hold the sender.
        let _ = self.0.subscribe().wait_for(|over| *over).await;
    }
}

struct EndGuard(Ended);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.0.send_replace(true);
    }
}

/// One session. Statements are prepared once.
pub(super) struct Session {
    client: Client,
    ended: Ended,
    statements: Mutex<HashMap<String, Statement>>,
}

/// A parameter of a statement.
pub(super) type Param<'a> = &'a (dyn ToSql + Sync);

impl Session {
    async fn prepared(&self, sql: &str) -> Result<Statement, tokio_postgres::Error> {
        if let Some(statement) = lock(&self.statements).get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql).await?;
        lock(&self.statements).insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    /// The rows of a statement.
    pub(super) async fn rows(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, tokio_postgres::Error> {
        let statement = self.prepared(sql).await?;
        self.client.query(&statement, params).await
    }

    /// The row of a statement that has at most one.
    pub(super) async fn row(&self, sql: &str, params: &[Param<'_>]) -> Result<Option<Row>, tokio_postgres::Error> {
        Ok(self.rows(sql, params).await?.into_iter().next())
    }

    /// The rows of a statement, which the server follows at once with another whose answer nobody waits for: both are on their
    /// way before the first is answered, so that the second happens even if this process ends.
    pub(super) async fn rows_and(
        &self,
        (sql, params): (&str, &[Param<'_>]),
        (then, then_params): (&str, &[Param<'_>]),
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let (first, second) = (self.prepared(sql).await?, self.prepared(then).await?);
        let mut rows = std::pin::pin!(self.client.query(&first, params));
        let mut follows = std::pin::pin!(self.client.query(&second, then_params));
        let mut sent = false;
        std::future::poll_fn(move |cx| {
            let answer = rows.as_mut().poll(cx);
            if !sent {
                sent = true;
                let _ = follows.as_mut().poll(cx);
            }
            answer
        })
        .await
    }

    /// Sends SQL without waiting for an answer, in the order of what is sent on this session.
    pub(super) fn send(&self, sql: &str) {
        use futures_util::FutureExt as _;
        let _ = self.client.simple_query(sql).now_or_never();
    }

    /// Several statements, without parameters.
    pub(super) async fn batch(&self, sql: &str) -> Result<(), tokio_postgres::Error> {
        self.client.batch_execute(sql).await
    }

    pub(super) fn is_over(&self) -> bool {
        self.client.is_closed()
    }

    /// When it is over.
    pub(super) fn ended(&self) -> Ended {
        self.ended.clone()
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is under these locks is whole after each step, so a panic elsewhere leaves nothing half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sessions that nobody uses at the moment, and room for so many in all.
pub(super) struct Pool {
    pub(super) server: Server,
    idle: Mutex<Vec<Arc<Session>>>,
    room: Semaphore,
    closed: AtomicBool,
}

/// A session that is lent out. It goes back when this is dropped, unless it was spoilt.
struct Lent<'a> {
    pool: &'a Pool,
    session: Option<Arc<Session>>,
    _room: SemaphorePermit<'a>,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.session.take()
            && !session.is_over()
            && !self.pool.is_closed()
        {
            lock(&self.pool.idle).push(session);
        }
    }
}

impl Pool {
    pub(super) fn new(server: Server, size: usize) -> Self {
        Self { server, idle: Mutex::default(), room: Semaphore::new(size.max(1)), closed: AtomicBool::new(false) }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Ends the sessions that nobody uses; the others end when they come back.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        lock(&self.idle).clear();
    }

    async fn lend(&self) -> Result<Lent<'_>, Trouble> {
        if self.is_closed() {
            return Err(Trouble::Final(self.server.failed("the store was closed; open it again")));
        }
        let room = self.room.acquire().await.map_err(|error| Trouble::Final(self.server.failed(error)))?;
        let idle = {
            let mut idle = lock(&self.idle);
            idle.retain(|session| !session.is_over());
            idle.pop()
        };
        let session = match idle {
            Some(session) => session,
            None => Arc::new(self.server.connect().await?),
        };
        Ok(Lent { pool: self, session: Some(session), _room: room })
    }

    /// Does an operation, again where its session is lost before the answer, until it is answered or the server was not to be
    /// had for too long. `operation` is told whether an earlier try may have been done without our knowing.
    pub(super) async fn attempt<T, F, Fut>(&self, operation: F) -> Result<T, StoreError>
    where
        F: Fn(Arc<Session>, bool) -> Fut,
        Fut: Future<Output = Result<T, Trouble>>,
    {
        self.attempt_within(self.server.patience, operation).await
    }

    /// As [`Pool::attempt`], for work that touches much at once.
    pub(super) async fn attempt_heavy<T, F, Fut>(&self, operation: F) -> Result<T, StoreError>
    where
        F: Fn(Arc<Session>, bool) -> Fut,
        Fut: Future<Output = Result<T, Trouble>>,
    {
        self.attempt_within(self.server.heavy(), operation).await
    }

    /// Whether the statement's only row says yes.
    pub(super) async fn says(&self, sql: &str, params: &[Param<'_>]) -> Result<bool, StoreError> {
        self.attempt(|session, _| self.ask(session, sql, params)).await
    }

    /// As [`Pool::says`], for work that touches much at once.
    pub(super) async fn says_heavy(&self, sql: &str, params: &[Param<'_>]) -> Result<bool, StoreError> {
        self.attempt_heavy(|session, _| self.ask(session, sql, params)).await
    }

    async fn ask(&self, session: Arc<Session>, sql: &str, params: &[Param<'_>]) -> Result<bool, Trouble> {
        let failed = |error: tokio_postgres::Error| self.server.trouble(&error);
        let row = session.row(sql, params).await.map_err(failed)?;
        row.map(|row| row.try_get(0)).transpose().map_err(failed).map(Option::unwrap_or_default)
    }

    async fn attempt_within<T, F, Fut>(&self, patience: Duration, operation: F) -> Result<T, StoreError>
    where
        F: Fn(Arc<Session>, bool) -> Fut,
        Fut: Future<Output = Result<T, Trouble>>,
    {
        let mut tries = Tries::new(&self.server, patience);
        let mut again = false;
        loop {
            let lent = match tries.bounded(self.lend()).await {
                Ok(lent) => lent,
                Err(trouble) => {
                    tries.after(trouble).await?;
                    continue;
                }
            };
            let mut lent = lent;
            let Some(session) = lent.session.clone() else { continue };
            match tries.bounded(operation(session, again)).await {
                Ok(answer) => return Ok(answer),
                Err(trouble) => {
                    if matches!(trouble, Trouble::Lost(_)) {
                        lent.session = None;
                    }
                    drop(lent);
                    again = true;
                    tries.after(trouble).await?;
                }
            }
        }
    }
}

/// Tries of one operation, bounded in time together.
pub(super) struct Tries<'a> {
    server: &'a Server,
    patience: Duration,
    deadline: Instant,
    pause: Option<Duration>,
}

impl<'a> Tries<'a> {
    pub(super) fn new(server: &'a Server, patience: Duration) -> Self {
        Self { server, patience, deadline: Instant::now() + patience, pause: None }
    }

    /// One part of a try. It may take half of the time, so that a server that stopped answering on one session is asked on
    /// another.
    pub(super) async fn bounded<T>(&self, part: impl Future<Output = Result<T, Trouble>>) -> Result<T, Trouble> {
        let half = Instant::now() + self.patience / 2;
        let given_up = |_| Err(Trouble::Lost(format!("no answer within {:?}", self.patience / 2)));
        tokio::time::timeout_at(self.deadline.min(half), part).await.unwrap_or_else(given_up)
    }

    /// Waits before the next try; an error where there is to be none.
    pub(super) async fn after(&mut self, trouble: Trouble) -> Result<(), StoreError> {
        let problem = match trouble {
            Trouble::Final(error) => return Err(error),
            Trouble::Lost(problem) => problem,
        };
        let pause = self.pause.unwrap_or_default();
        if Instant::now() + pause >= self.deadline {
            return Err(self.server.failed(format!(
                "no answer for {:?}: {problem}; check that the server runs and can be reached, then go on from what is there",
                self.patience
            )));
        }
        tracing::debug!(server = %self.server.address.name, problem, "trying PostgreSQL again");
        tokio::time::sleep(pause).await;
        self.pause = Some(if pause.is_zero() { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) });
        Ok(())
    }
}
