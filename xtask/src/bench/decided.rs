//! `decided`: how soon one of many pending decisions is made and its run is at its end.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use toolwright_core::{Decision, FinishReason, ThreadId};
use toolwright_runtime::{Agent, NoResolvers, Store};
use toolwright_store::sqlite::Sqlite;

use super::journal::{Stopwatch, asking_tool, folder, park};
use super::loops::runtime;
use super::{Measured, median};

/// Pending decisions in the store.
const PENDING: usize = 100_000;
/// How many of them are made; the first warms the page cache and does not count.
const MADE: usize = 21;

/// Milliseconds from a decision, of one of 100,000, to the end of its run; and those to open the store before.
pub(super) fn decided() -> Result<Measured> {
    let (folder, runtime) = (folder()?, runtime()?);
    let path = folder.path().join("store.db");
    runtime.block_on(async {
        let store = Sqlite::open(&path).await?;
        park(&store, PENDING).await?;
        store.close().await;
        Ok::<_, anyhow::Error>(())
    })?;
    let (mut opened, mut times) = (Vec::new(), Vec::new());
    let mut random = 88_172_645_463_325_252_u64;
    for made in 0..MADE {
        // Any of them, the same ones each time it is measured.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let thread = ThreadId::new(format!("waiting-{}", random % PENDING as u64))?;
        let (open, took) = runtime.block_on(async {
            let began = Instant::now();
            let store = Sqlite::open(&path).await?;
            let open = began.elapsed();
            let agent = Agent::<NoResolvers>::builder().model(Stopwatch::new()).tool(asking_tool()?).store(store.clone()).build()?;
            let waiting = store.pending(Some(&thread), None, 9).await?.items;
            let [pending] = waiting.as_slice() else { anyhow::bail!("{} calls of {thread} wait", waiting.len()) };
            let began = Instant::now();
            let reply = agent.approvals().resolve(&pending.id, Decision::approve().by("somebody")).await?;
            let took = began.elapsed();
            ensure!(reply.finish_reason == FinishReason::Stop, "the run of {thread} ended with {}", reply.finish_reason);
            ensure!(store.pending(Some(&thread), None, 9).await?.items.is_empty(), "a call of {thread} still waits");
            store.close().await;
            Ok::<_, anyhow::Error>((open, took))
        })?;
        if made > 0 {
            opened.push(open.as_secs_f64() * 1e3);
            times.push(took.as_secs_f64() * 1e3);
        }
    }
    let nothing = "nothing was measured";
    Ok(vec![("decided", median(times).context(nothing)?), ("decided.open", median(opened).context(nothing)?)])
}
