//! What a sandbox adds to a command.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use toolwright_host::process::Spawn;
use toolwright_host::sandbox::{LinuxSandbox, Sandbox};

use super::{Measured, median};

const RUNS: usize = 60;

/// Milliseconds that a sandboxed `true` takes more than one without a sandbox: the middle of each, taken in turns.
pub(super) fn sandboxed() -> Result<Measured> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(async {
        let workspace = tempfile::tempdir()?;
        let sandbox: Arc<dyn Sandbox> = Arc::new(LinuxSandbox::of_workspace(workspace.path()).build()?);
        let free = Spawn::new("true").dir(workspace.path());
        let confined = free.clone().sandbox(sandbox);
        let (mut without, mut with) = (Vec::new(), Vec::new());
        // The first of each warms what there is to warm and does not count.
        for run in 0..=RUNS {
            for (spawn, times) in [(&free, &mut without), (&confined, &mut with)] {
                let began = Instant::now();
                let ended = spawn.run().await?;
                let took = began.elapsed().as_secs_f64() * 1e3;
                ensure!(ended.code == Some(0), "`true` failed: {}", ended.stderr.text());
                if run > 0 {
                    times.push(took);
                }
            }
        }
        let middle = |times| median(times).context("nothing was measured");
        Ok(vec![("shell", middle(with)? - middle(without)?)])
    })
}
