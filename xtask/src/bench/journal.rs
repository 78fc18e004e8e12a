//! `journal.*`, `growth`, `resume`, `parked`: what durability costs over SQLite, and how soon a thread is there again.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use toolwright_core::{ApprovalId, FinishReason, Item, Record, RecordBody, Seq, ThreadId, Verdict};
use toolwright_runtime::{
    Agent, Append, MemoryStore, Model, ModelEvent, ModelInfo, ModelReply, ModelRequest, ModelStream, NoResolvers, Store,
};
use toolwright_store::sqlite::Sqlite;
use toolwright_tool::{Tool, ToolError, tools};

use super::loops::{Caller, order_line, runtime};
use super::{Measured, cold, median};

/// Steps of a run whose rate is measured.
const STEPS: u32 = 400;
/// Threads at once.
const THREADS: u32 = 100;
/// Waiting threads in the store, and on a page.
const PARKED: usize = 100_000;
const PAGE: usize = 100;

pub(super) fn folder() -> Result<tempfile::TempDir> {
    // Where the project's own build is, so that the disk is the one that people's stores would be on.
    let target = crate::repo::root()?.join("target");
    std::fs::create_dir_all(&target)?;
    tempfile::Builder::new().prefix("bench-store-").tempdir_in(target).context("making a folder for the store")
}

/// Steps a second of so many threads at once, each of so many steps.
async fn rate(store: &Sqlite, name: &str, threads: u32, steps: u32) -> Result<f64> {
    let agents = (0..threads)
        .map(|_| {
            let builder = Agent::<NoResolvers>::builder().model(Caller::new(steps, 1)).tools(tools![order_line]);
            Ok(builder.max_steps(steps + 1).store(store.clone()).build()?)
        })
        .collect::<Result<Vec<_>>>()?;
    let began = Instant::now();
    let runs: Vec<_> = agents
        .iter()
        .enumerate()
        .map(|(at, agent)| {
            let thread = agent.thread(format!("{name}-{at}"));
            tokio::spawn(async move { thread.send("go").await })
        })
        .collect();
    for run in runs {
        let reply = run.await??;
        ensure!(reply.finish_reason == FinishReason::Stop, "a run ended with {}", reply.finish_reason);
    }
    Ok(f64::from(threads * steps) / began.elapsed().as_secs_f64())
}

/// SQLite alone, with the store's settings: what durability costs on this disk whatever is built on it.
struct Raw {
    connection: rusqlite::Connection,
    body: String,
}

impl Raw {
    fn open(folder: &Path) -> Result<Self> {
        let connection = rusqlite::Connection::open(folder.join("raw.db"))?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update_and_check(None, "wal_autocheckpoint", 400, |_| Ok(()))?;
        connection.execute_batch("CREATE TABLE rows (at INTEGER PRIMARY KEY, body TEXT NOT NULL)")?;
        let raw = Self { connection, body: "x".repeat(900) };
        // A log that is written over costs less than one that grows: both sides are measured once theirs is.
        raw.insert(4 * STEPS)?;
        Ok(raw)
    }

    fn insert(&self, rows: u32) -> Result<()> {
        let mut insert = self.connection.prepare_cached("INSERT INTO rows (body) VALUES (?1)")?;
        for _ in 0..rows {
            insert.execute([&self.body])?;
        }
        Ok(())
    }

    /// Inserts and commits a second, of a row about as long as the records of half a step.
    fn rate(&self) -> Result<f64> {
        let began = Instant::now();
        self.insert(2 * STEPS)?;
        Ok(f64::from(2 * STEPS) / began.elapsed().as_secs_f64())
    }
}

/// Durable steps over raw commits, and many threads over one. All of it alternates, since a disk has moods.
pub(super) fn journal() -> Result<Measured> {
    let (folder, runtime) = (folder()?, runtime()?);
    let (mut ratios, mut scalings) = (Vec::new(), Vec::new());
    runtime.block_on(async {
        let raw = Raw::open(folder.path())?;
        let store = Sqlite::open(folder.path().join("store.db")).await?;
        rate(&store, "warm", 1, STEPS).await?;
        for round in 0..7 {
            let before = raw.rate()?;
            let one = rate(&store, &format!("one-{round}"), 1, STEPS).await?;
            let after = raw.rate()?;
            ratios.push(one / f64::midpoint(before, after));
            scalings.push(rate(&store, &format!("many-{round}"), THREADS, 20).await? / one);
        }
        Ok::<_, anyhow::Error>(())
    })?;
    Ok(vec![
        ("journal.ratio", median(ratios).context("nothing was measured")?),
        ("journal.scaling", median(scalings).context("nothing was measured")?),
    ])
}

/// Bytes that this process has written so far.
fn written() -> Result<u64> {
    let io = std::fs::read_to_string("/proc/self/io").context("bytes written are counted by Linux only")?;
    let line = io.lines().find_map(|line| line.strip_prefix("wchar: ")).context("/proc/self/io has no wchar")?;
    Ok(line.trim().parse()?)
}

/// Bytes written for a run of 1,000 steps over those for one of 100, the checkpoint of the log included.
pub(super) fn growth() -> Result<Measured> {
    let runtime = runtime()?;
    let mut bytes = Vec::new();
    for steps in [100, 1000] {
        let folder = folder()?;
        bytes.push(runtime.block_on(async {
            let store = Sqlite::open(folder.path().join("store.db")).await?;
            let before = written()?;
            rate(&store, "thread", 1, steps).await?;
            store.close().await;
            Ok::<_, anyhow::Error>(written()?.saturating_sub(before))
        })?);
    }
    let [short, long] = bytes.as_slice() else { bail!("two runs were measured") };
    Ok(vec![("growth", *long as f64 / *short as f64)])
}

/// Says when it is asked.
pub(super) struct Stopwatch {
    asked: Arc<Mutex<Option<Instant>>>,
}

impl Stopwatch {
    pub(super) fn new() -> Self {
        Self { asked: Arc::default() }
    }
}

impl Model for Stopwatch {
    fn info(&self) -> ModelInfo {
        ModelInfo::new("bench", "caller")
    }

    fn stream(&self, request: ModelRequest) -> ModelStream {
        if let Ok(mut asked) = self.asked.lock() {
            asked.get_or_insert_with(Instant::now);
        }
        let items = vec![Item::text(format!("done, after {} messages", request.messages.len()))];
        let reply = ModelReply { items, finish: FinishReason::Stop, usage: None, model: None };
        Box::pin(futures_util::stream::once(std::future::ready(Ok(ModelEvent::Done(reply)))))
    }
}

/// Milliseconds from opening the store to the model being asked, for a thread of 10,000 events.
pub(super) fn resume() -> Result<Measured> {
    let (folder, runtime) = (folder()?, runtime()?);
    let path = folder.path().join("store.db");
    let thread = ThreadId::new("long-0")?;
    runtime.block_on(async {
        let store = Sqlite::open(&path).await?;
        rate(&store, "long", 1, 1700).await?;
        let head = store.info(&thread).await?.map_or(0, |info| info.head.0);
        ensure!(head >= 10_000, "the thread has {head} records only");
        store.close().await;
        Ok::<_, anyhow::Error>(())
    })?;
    let mut times = Vec::new();
    for _ in 0..9 {
        let took = runtime.block_on(async {
            let model = Stopwatch::new();
            let asked = Arc::clone(&model.asked);
            let began = Instant::now();
            let store = Sqlite::open(&path).await?;
            let agent = Agent::<NoResolvers>::builder().model(model).tools(tools![order_line]).store(store.clone()).build()?;
            agent.thread(thread.as_str()).send("And now?").await?;
            store.close().await;
            let asked = asked.lock().ok().and_then(|asked| *asked).context("the model was not asked")?;
            Ok::<_, anyhow::Error>(asked.duration_since(began))
        })?;
        times.push(took.as_secs_f64() * 1e3);
    }
    Ok(vec![("resume", median(times).context("nothing was measured")?)])
}

/// The tool whose calls wait.
pub(super) fn asking_tool() -> Result<Tool> {
    Ok(Tool::new("order_line", "Orders.").needs_approval().run_json(|_args, _cx| async { Ok::<_, ToolError>(true) })?)
}

/// The journal of a thread that waits for a decision.
async fn waiting_journal() -> Result<Vec<Arc<Record>>> {
    let store = MemoryStore::new();
    let agent = Agent::<NoResolvers>::builder().model(Caller::new(1, 1)).tool(asking_tool()?).store(store.clone()).build()?;
    let reply = agent.thread("parked").send("Please order twelve of the blue ones.").await?;
    ensure!(reply.finish_reason == FinishReason::AwaitingApproval, "the run ended with {}", reply.finish_reason);
    Ok(store.read(&ThreadId::new("parked")?, Seq(0), 1000).await?)
}

/// The same journal, of another thread.
fn of_thread(records: &[Arc<Record>], id: &ThreadId) -> Vec<Arc<Record>> {
    let renamed = |record: &Arc<Record>| match &record.body {
        RecordBody::ThreadOpened { .. } | RecordBody::CallGated { .. } => {
            let mut record = (**record).clone();
            match &mut record.body {
                RecordBody::ThreadOpened { thread, .. } => *thread = id.clone(),
                RecordBody::CallGated { call, verdict: Verdict::Ask(ask), .. } => ask.approval = ApprovalId::of(id, call, 1),
                _ => {}
            }
            Arc::new(record)
        }
        _ => Arc::clone(record),
    };
    records.iter().map(renamed).collect()
}

/// So many threads that wait for a decision: `waiting-0` and on.
pub(super) async fn park(store: &Sqlite, threads: usize) -> Result<()> {
    let journal: Arc<[Arc<Record>]> = waiting_journal().await?.into();
    let next = Arc::new(AtomicU32::new(0));
    // Many at once, so that they share commits.
    let workers: Vec<_> = (0..256)
        .map(|_| {
            let (store, journal, next) = (store.clone(), Arc::clone(&journal), Arc::clone(&next));
            tokio::spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number as usize >= threads {
                        return Ok::<_, anyhow::Error>(());
                    }
                    let id = ThreadId::new(format!("waiting-{number}"))?;
                    let claim = store.claim(&id).await?;
                    store.append(&*claim, Seq(0), Append::records(of_thread(&journal, &id))).await?;
                }
            })
        })
        .collect();
    for worker in workers {
        worker.await??;
    }
    Ok(())
}

/// Milliseconds of a whole process that lists a page of 100 of 100,000 waiting threads.
pub(super) fn parked() -> Result<Measured> {
    let (folder, runtime) = (folder()?, runtime()?);
    let path = folder.path().join("store.db");
    runtime.block_on(async {
        let store = Sqlite::open(&path).await?;
        park(&store, PARKED).await?;
        store.close().await;
        Ok::<_, anyhow::Error>(())
    })?;
    let binary = cold::release_binary()?;
    let mut times = Vec::new();
    for run in 0..=20 {
        let began = Instant::now();
        let output = Command::new(&binary)
            .args(["threads", "list", "--json", "--status", "awaiting-approval", "--limit", &PAGE.to_string(), "--store"])
            .arg(&path)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .context("starting the release binary")?;
        let took = began.elapsed();
        ensure!(output.status.success(), "`toolwright threads list` failed");
        let listed = String::from_utf8_lossy(&output.stdout).matches("\"waiting-").count();
        ensure!(listed == PAGE, "`toolwright threads list` listed {listed} threads");
        // The first run warms the page cache and does not count.
        if run > 0 {
            times.push(took.as_secs_f64() * 1e3);
        }
    }
    Ok(vec![("parked", median(times).context("nothing was measured")?)])
}
