//! `grep` and `glob`: the workspace's tools over 20,000 files, beside ripgrep over the same ones.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use toolwright_core::Outcome;
use toolwright_runtime::{Agent, NoResolvers};
use toolwright_tools::workspace::Workspace;

use super::loops::{Caller, runtime};
use super::{Measured, median};

/// Files, in folders of this many, and folders in folders of this many.
const FILES: usize = 20_000;
const IN_FOLDER: usize = 80;
const IN_PARENT: usize = 16;
const ROUNDS: usize = 9;

/// A tree like that of a large project: code, prose and data of some kilobytes each.
fn tree() -> Result<TempDir> {
    let dir = tempfile::tempdir()?;
    let mut number = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
        number
    };
    for file in 0..FILES {
        let folder = file / IN_FOLDER;
        let place = dir.path().join(format!("part_{}/module_{folder}", folder / IN_PARENT));
        if file % IN_FOLDER == 0 {
            fs::create_dir_all(&place)?;
        }
        let ending = ["rs", "md", "json", "py"].get(file % 4).copied().unwrap_or_default();
        let lines = 20 + next() % 100;
        let mut text = String::new();
        for line in 0..lines {
            // Writing to a String can't fail.
            let _ = match next() % 4 {
                0 => writeln!(text, "    let value_{line} = compute(&items[{}], {:x})?;", line, next()),
                1 => writeln!(text, "// The order of these lines is that of the table above; see also item {}.", next() % 1000),
                2 => writeln!(text, "  {{ \"name\": \"entry {}\", \"size\": {}, \"done\": true }},", next() % 500, next() % 100_000),
                _ => writeln!(text, "fn handler_{}(request: Request) -> Result<Reply, Error> {{", next() % 10_000),
            };
        }
        if file % 400 == 7 {
            text.push_str("fn needle_of_the_bench(haystack: &str) -> bool {\n");
        }
        fs::write(place.join(format!("file_{file}.{ending}")), text)?;
    }
    Ok(dir)
}

/// Seconds of ripgrep with these arguments, and how many lines it gave. A user's own settings of it do not count.
fn ripgrep(dir: &Path, args: &[&str]) -> Result<(f64, usize)> {
    let mut command = Command::new("rg");
    command.args(["--no-config", "--hidden"]).args(args).arg(".").current_dir(dir).stdin(Stdio::null());
    let began = Instant::now();
    let output =
        command.output().context("these figures are over the time of `rg`, which is not here; install ripgrep, or name other figures")?;
    let took = began.elapsed().as_secs_f64();
    ensure!(output.status.success(), "rg failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok((took, String::from_utf8_lossy(&output.stdout).lines().count()))
}

/// Seconds of a tool's call, gate and body, and how many lines it gave.
async fn call(agent: &Agent<NoResolvers>, tool: &str, args: &Value) -> Result<(f64, usize)> {
    let (name, written): (Arc<str>, Arc<str>) = (tool.into(), args.to_string().into());
    let began = Instant::now();
    let executed = agent.dispatch_once(&name, &written).await;
    let took = began.elapsed().as_secs_f64();
    let Outcome::Done { output } = &executed.outcome else { bail!("the call of {tool} failed: {:?}", executed.outcome) };
    Ok((took, output.shown().as_str().map_or(0, |text| text.lines().count())))
}

/// The tool's time over ripgrep's: medians of rounds in which they take turns, summed over what is looked for.
async fn ratio(agent: &Agent<NoResolvers>, dir: &Path, tool: &str, searches: &[(Value, &[&str])]) -> Result<f64> {
    let (mut ours, mut theirs) = (0.0, 0.0);
    for (args, arguments) in searches {
        let (mut own, mut other) = (Vec::new(), Vec::new());
        // The first round warms up: the files are in memory then, for both.
        for round in 0..=ROUNDS {
            let (took, lines) = call(agent, tool, args).await?;
            let (their, wanted) = ripgrep(dir, arguments)?;
            ensure!(lines == wanted && lines > 0, "{tool} gave {lines} lines for {args}, and rg {wanted}");
            if round > 0 {
                own.push(took);
                other.push(their);
            }
        }
        ours += median(own).unwrap_or_default();
        theirs += median(other).unwrap_or_default();
    }
    Ok(ours / theirs)
}

pub(super) fn search() -> Result<Measured> {
    let dir = tree()?;
    // What both give is whole, so that both look at all.
    let workspace = Workspace::at(dir.path())?.max_results(10_000).max_output_chars(10_000_000);
    let agent = Agent::<NoResolvers>::builder().model(Caller::new(0, 0)).tools(workspace.tools()).result_limit(10_000_000).build()?;
    let expressions: [(Value, &[&str]); 2] = [
        (json!({ "pattern": "needle_of_the_bench" }), &["-n", "--no-heading", "needle_of_the_bench"]),
        (json!({ "pattern": r"NEEDLE_\w+\(", "ignore_case": true }), &["-n", "--no-heading", "-i", r"NEEDLE_\w+\("]),
    ];
    let names: [(Value, &[&str]); 2] = [
        (json!({ "pattern": "**/*.rs" }), &["--files", "-g", "**/*.rs"]),
        (json!({ "pattern": "**/module_1*/*7.{md,py}" }), &["--files", "-g", "**/module_1*/*7.{md,py}"]),
    ];
    runtime()?.block_on(async {
        let grep = ratio(&agent, dir.path(), "grep", &expressions).await?;
        let glob = ratio(&agent, dir.path(), "glob", &names).await?;
        Ok(vec![("grep", grep), ("glob", glob)])
    })
}
