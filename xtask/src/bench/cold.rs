//! `cold.*`: how soon the release binary is there, and how big it is.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use super::{Measured, median};
use crate::repo;

const RUNS: usize = 20;

/// Milliseconds from starting `toolwright --version` to its end.
pub(super) fn version() -> Result<Measured> {
    let binary = release_binary()?;
    let mut times = Vec::with_capacity(RUNS);
    // The first run warms the page cache and does not count.
    for run in 0..=RUNS {
        let start = Instant::now();
        let status = Command::new(&binary)
            .arg("--version")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .context("starting the release binary")?;
        let took = start.elapsed();
        if !status.success() {
            bail!("`toolwright --version` failed");
        }
        if run > 0 {
            times.push(took.as_secs_f64() * 1_000.0);
        }
    }
    Ok(vec![("cold.version", median(times).context("no run")?)])
}

/// Megabytes of the release binary.
pub(super) fn binary() -> Result<Measured> {
    let size = release_binary()?.metadata().context("reading the release binary")?.len();
    Ok(vec![("cold.binary", size as f64 / 1_000_000.0)])
}

/// Builds the command as a user gets it.
pub(super) fn release_binary() -> Result<PathBuf> {
    let root = repo::root()?;
    let messages = repo::output(repo::cargo().current_dir(&root).args([
        "build",
        "--quiet",
        "--release",
        "--bin",
        "toolwright",
        "--message-format",
        "json",
    ]))?;
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter_map(|message| message.get("executable").and_then(|path| path.as_str()).map(PathBuf::from))
        .find(|path| path.file_stem().is_some_and(|name| name == "toolwright"))
        .context("cargo built no binary `toolwright`")
}
