//! A program that runs, and how it ended.

use std::any::Any;
use std::fmt;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::watch;
use tokio::time::Instant;

use super::error::ProcessError;
use super::group::Group;
use super::output::{Captured, Keeper};
use super::spawn::Launch;

/// How long outputs are read after all is dead: somebody who could not be found may hold them open for ever.
const DRAIN: Duration = Duration::from_millis(500);

/// How long a sandbox's own command may take to remove what is left of a program.
const CLEANUP: Duration = Duration::from_secs(20);

/// How a program came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// By itself.
    Exited,
    /// It was ended at its deadline.
    TimedOut,
    /// It was ended because somebody wanted it to.
    Stopped,
}

/// A program's end. Nothing that it started is alive, where the system lets us see that.
#[derive(Clone, Debug)]
pub struct Ended {
    /// How it came to its end.
    pub how: How,
    /// Its exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// What it wrote to standard output.
    pub stdout: Captured,
    /// What it wrote to standard error.
    pub stderr: Captured,
    /// How long it ran.
    pub took: Duration,
}

/// What is followed of a program besides its end.
pub(super) struct Watched {
    pub(super) deadline: Option<Duration>,
    pub(super) grace: Duration,
    /// Run where the program was ended early.
    pub(super) cleanup: Option<Launch>,
    /// Dropped once it has ended.
    pub(super) held: Option<Box<dyn Any + Send>>,
}

/// Who wants a program to end, and how urgently.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Run,
    Stop,
}

#[derive(Debug)]
struct Outputs {
    out: Mutex<Keeper>,
    err: Mutex<Keeper>,
    /// How many pieces were read.
    pieces: watch::Sender<u64>,
}

type End = Option<Result<Ended, Arc<std::io::Error>>>;

/// A running program. Dropping it kills the program and all that it started.
pub struct Process {
    name: String,
    id: Option<u32>,
    outputs: Arc<Outputs>,
    orders: watch::Sender<Order>,
    end: watch::Receiver<End>,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("name", &self.name).field("id", &self.id).finish_non_exhaustive()
    }
}

impl Process {
    pub(super) fn follow(name: String, mut group: Group, keeper: impl Fn() -> Keeper, watched: Watched) -> Self {
        let outputs = Arc::new(Outputs { out: Mutex::new(keeper()), err: Mutex::new(keeper()), pieces: watch::channel(0).0 });
        let (orders, heard) = watch::channel(Order::Run);
        let (tell, end) = watch::channel(None);
        let id = group.child().id();
        tokio::spawn(supervise(group, Arc::clone(&outputs), heard, tell, watched));
        Self { name, id, outputs, orders, end }
    }

    /// Its number in the system.
    pub fn id(&self) -> Option<u32> {
        self.id
    }

    /// What it has written so far: standard output, then standard error.
    pub fn output(&self) -> (Captured, Captured) {
        (lock(&self.outputs.out).captured(), lock(&self.outputs.err).captured())
    }

    /// What it has written after the first so many bytes of each output.
    pub fn output_since(&self, out: u64, err: u64) -> (Captured, Captured) {
        (lock(&self.outputs.out).since(out), lock(&self.outputs.err).since(err))
    }

    /// Whether its end has come.
    pub fn has_ended(&self) -> bool {
        self.end.borrow().is_some()
    }

    /// A watch that changes with each piece of output.
    pub fn pieces(&self) -> watch::Receiver<u64> {
        self.outputs.pieces.subscribe()
    }

    /// Waits for its end.
    pub async fn ended(&self) -> Result<Ended, ProcessError> {
        let mut end = self.end.clone();
        let follow = |source| ProcessError::Follow { program: self.name.clone(), source };
        let end = end.wait_for(Option::is_some).await;
        match end.as_deref() {
            Ok(Some(Ok(ended))) => Ok(ended.clone()),
            Ok(Some(Err(error))) => Err(follow(std::io::Error::new(error.kind(), error.to_string()))),
            _ => Err(follow(std::io::Error::other("the runtime that followed it has ended"))),
        }
    }

    /// Has it end: asks, waits for the grace, kills. Then its end, which may have come before.
    pub async fn stop(&self) -> Result<Ended, ProcessError> {
        self.orders.send_replace(Order::Stop);
        self.ended().await
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn supervise(mut group: Group, outputs: Arc<Outputs>, mut orders: watch::Receiver<Order>, end: watch::Sender<End>, watched: Watched) {
    let began = Instant::now();
    let (out, err) = (group.child().stdout.take(), group.child().stderr.take());
    let reading = async {
        tokio::join!(read(out, &outputs.out, &outputs.pieces), read(err, &outputs.err, &outputs.pieces));
    };
    tokio::pin!(reading);
    let mut read_all = false;
    // A handle that is gone counts as an order without grace.
    let how = loop {
        tokio::select! {
            _ = group.exited() => break Some(How::Exited),
            stopped = orders.wait_for(|order| *order == Order::Stop) => break stopped.is_ok().then_some(How::Stopped),
            () = at(watched.deadline.map(|deadline| began + deadline)) => break Some(How::TimedOut),
            () = &mut reading, if !read_all => read_all = true,
        }
    };
    if matches!(how, Some(How::Stopped | How::TimedOut)) {
        group.terminate();
        let grace = at(Some(Instant::now() + watched.grace));
        tokio::pin!(grace);
        loop {
            tokio::select! {
                _ = group.exited() => break,
                () = &mut grace => break,
                _ = orders.wait_for(|_| false) => break,
                () = &mut reading, if !read_all => read_all = true,
            }
        }
    }
    let status = group.finish().await;
    if !read_all {
        let _ = tokio::time::timeout(DRAIN, reading).await;
    }
    if let (Some(cleanup), true) = (&watched.cleanup, how != Some(How::Exited)) {
        clean_up(cleanup).await;
    }
    drop(watched.held);
    let told = match status {
        Ok(status) => Ok(Ended {
            how: how.unwrap_or(How::Stopped),
            code: status.code(),
            signal: signal_of(status),
            stdout: lock(&outputs.out).captured(),
            stderr: lock(&outputs.err).captured(),
            took: began.elapsed(),
        }),
        Err(error) => Err(Arc::new(error)),
    };
    end.send_replace(Some(told));
}

/// What can't be removed any more is gone already, so nobody hears of a failure.
async fn clean_up(launch: &Launch) {
    if let Ok(mut child) = launch.command().spawn() {
        drop((child.stdout.take(), child.stderr.take()));
        let _ = tokio::time::timeout(CLEANUP, child.wait()).await;
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Reads to the end, or to an error, which ends an output too.
async fn read(from: Option<impl AsyncRead + Unpin>, into: &Mutex<Keeper>, pieces: &watch::Sender<u64>) {
    let Some(mut from) = from else { return };
    let mut piece = vec![0_u8; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut piece).await {
        lock(into).push(piece.get(..count).unwrap_or_default());
        pieces.send_modify(|pieces| *pieces += 1);
    }
}

#[cfg(unix)]
fn signal_of(status: ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

#[cfg(not(unix))]
fn signal_of(_status: ExitStatus) -> Option<i32> {
    None
}
