//! The workspace's tools over random trees of files and links, with random paths, while somebody swaps what they look at.
//!
//! Beside the workspace stands what nobody may reach. What is checked is not how paths are resolved, but what came of it: no
//! result holds anything from outside, no file inside does, and outside nothing is new, gone or changed.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail, ensure};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};
use tempfile::TempDir;
use toolwright_core::Outcome;
use toolwright_host::files::{Resolve, Root};
use toolwright_runtime::{Agent, ModelInfo, NoResolvers};
use toolwright_tool::NeedsApproval;
use toolwright_tools::workspace::{FileTool, Workspace};

use crate::sim::rng::Rng;

/// What happened over all trees.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) trees: u64,
    pub(super) calls: u64,
    pub(super) done: u64,
    pub(super) refused: u64,
    /// Calls with a path that the system itself would have followed out of the workspace.
    pub(super) outwards: u64,
    /// Trees in which somebody swapped something meanwhile.
    pub(super) raced: u64,
}

/// What stands outside, and in no other place.
const SECRET: &str = "kept-from-all-who-ask-4711";
/// What is written inside, and may stand in no other place.
const EVIL: &str = "written-by-a-model-0815";

pub(super) fn fuzz(time: Duration, seed: Option<u64>) -> ExitCode {
    let begun = Instant::now();
    let first = seed.unwrap_or_else(|| std::process::id().into());
    let mut told = Told::default();
    let mut n = 0u64;
    while begun.elapsed() < time {
        let seed = first.wrapping_add(n.wrapping_mul(0x9E37_79B9));
        n += 1;
        if let Err(found) = one(seed, &mut told) {
            println!("seed {seed}: {found:#}");
            return ExitCode::FAILURE;
        }
    }
    println!("{told:?} in {:.1} s", begun.elapsed().as_secs_f64());
    ExitCode::SUCCESS
}

const NAMES: [&str; 10] = ["a", "b", "sub", "deep", "x.txt", "y.md", "é", ".hidden", "..a", "secret.txt"];

/// One tree, and calls of tools on it. An error says what was reached.
pub(super) fn one(seed: u64, told: &mut Told) -> Result<()> {
    let mut rng = Rng::new(seed);
    let place = TempDir::new()?;
    let inside = place.path().join("in");
    fs::create_dir(&inside)?;
    for folder in ["out", "out/sub", "in-beside"] {
        fs::create_dir_all(place.path().join(folder))?;
        for name in ["secret.txt", "x.txt", "a"] {
            fs::write(place.path().join(folder).join(name), format!("{SECRET}\n"))?;
        }
    }
    let known = grow(&mut rng, place.path(), &inside)?;
    let outside = outside(place.path())?;
    let how = if rng.percent(50) { Resolve::Automatic } else { Resolve::NameByName };
    let agent = agent(Root::open_with(&inside, how)?)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build()?;
    let raced = rng.percent(25);
    let over = AtomicBool::new(false);
    told.trees += 1;
    told.raced += u64::from(raced);
    std::thread::scope(|scope| {
        if raced {
            let (inside, over) = (&inside, &over);
            let mut rng = Rng::new(seed ^ 0x5eed);
            scope.spawn(move || swap(&mut rng, inside, over));
        }
        let called = (0..24).try_for_each(|_| {
            let (tool, args) = call(&mut rng, place.path(), &known);
            told.outwards += u64::from(leads_out(&inside, &args));
            runtime.block_on(check(&agent, tool, &args, told)).map_err(|error| anyhow!("{} {args}: {error}", tool.name()))
        });
        over.store(true, Ordering::Relaxed);
        called
    })?;
    let now = self::outside(place.path())?;
    ensure!(now == outside, "outside changed: {now:?} was {outside:?}");
    nothing_secret(&inside)
}

fn agent(root: Root) -> Result<Agent<NoResolvers>> {
    let mut workspace = Workspace::of(root).gitignore(false);
    for tool in FileTool::ALL {
        workspace = workspace.needs_approval(tool, NeedsApproval::never());
    }
    Ok(Agent::<NoResolvers>::builder().model(Silent).tools(workspace.tools()).build()?)
}

/// A model that is never asked.
struct Silent;

impl toolwright_runtime::Model for Silent {
    fn info(&self) -> ModelInfo {
        ModelInfo::new("fuzz", "silent")
    }

    fn stream(&self, _request: toolwright_runtime::ModelRequest) -> toolwright_runtime::ModelStream {
        Box::pin(futures_util::stream::empty())
    }
}

async fn check(agent: &Agent<NoResolvers>, tool: FileTool, args: &Value, told: &mut Told) -> Result<()> {
    let (name, written): (Arc<str>, Arc<str>) = (tool.name().into(), args.to_string().into());
    let executed = agent.dispatch_once(&name, &written).await;
    told.calls += 1;
    let shown = match &executed.outcome {
        Outcome::Done { output } => {
            told.done += 1;
            output.shown().to_string()
        }
        Outcome::Failed { failure } => {
            told.refused += 1;
            failure.message.clone()
        }
    };
    ensure!(!shown.contains(SECRET) && !shown.contains("root:x:0:"), "it gave what is outside: {shown}");
    ensure!(!shown.contains("panicked"), "it panicked: {shown}");
    Ok(())
}

/// Makes folders, files and links, some of which lead out; their paths.
fn grow(rng: &mut Rng, place: &Path, inside: &Path) -> Result<Vec<String>> {
    let mut folders = vec![inside.to_owned()];
    let mut known = Vec::new();
    for _ in 0..rng.between(2, 16) {
        let Some(folder) = folders.get(rng.index(folders.len())).cloned() else { continue };
        let at = folder.join(rng.pick(&NAMES).unwrap_or("a"));
        if at.symlink_metadata().is_ok() {
            continue;
        }
        known.extend(at.strip_prefix(inside).ok().and_then(Path::to_str).map(str::to_owned));
        match rng.below(5) {
            0 | 1 => {
                fs::create_dir(&at)?;
                folders.push(at);
            }
            2 => fs::write(&at, ["x=1\nx=2\n", "", "\u{feff}a\r\nb\r\n", "a\0b"].get(rng.index(4)).copied().unwrap_or_default())?,
            _ => symlink(target(rng, place), &at)?,
        }
    }
    Ok(known)
}

/// Where a link leads.
fn target(rng: &mut Rng, place: &Path) -> PathBuf {
    let name = rng.pick(&NAMES).unwrap_or("a");
    let up = "../".repeat(rng.between(1, 4) as usize);
    match rng.below(9) {
        0 => place.join("out"),
        1 => place.join("out/secret.txt"),
        2 => format!("{up}out").into(),
        3 => format!("{up}out/{name}").into(),
        4 => format!("{up}in/{name}").into(),
        5 => Path::new("/proc/self/root").join(place.strip_prefix("/").unwrap_or(place)).join("out"),
        6 => ["/", ".", "..", "/etc/passwd", "nowhere"].get(rng.index(5)).copied().unwrap_or_default().into(),
        7 => format!("{name}/../{name}").into(),
        _ => name.into(),
    }
}

/// A path as a model may write it: one that is there, one below that, or any other.
fn path(rng: &mut Rng, place: &Path, known: &[String]) -> String {
    if rng.percent(50)
        && let Some(there) = known.get(rng.index(known.len()))
    {
        return if rng.percent(50) { there.clone() } else { format!("{there}/{}", rng.pick(&NAMES).unwrap_or("a")) };
    }
    if rng.percent(6) {
        let absolute = [place.join("out/secret.txt"), place.join("in/a"), PathBuf::from("/etc/passwd"), PathBuf::from("//x/y")];
        return absolute.get(rng.index(4)).map(|path| path.display().to_string()).unwrap_or_default();
    }
    let odd = ["..", ".", "", "out", "in-beside", "%2e%2e", "C:", "\u{0}", "~", "sub"];
    let names = (0..rng.between(1, 5)).map(|_| if rng.percent(25) { rng.pick(&odd) } else { rng.pick(&NAMES) }.unwrap_or("a"));
    let names: Vec<&str> = names.collect();
    names.join(if rng.percent(10) { "\\" } else { "/" })
}

fn call(rng: &mut Rng, place: &Path, known: &[String]) -> (FileTool, Value) {
    let tool = rng.pick(&FileTool::ALL).unwrap_or(FileTool::ReadFile);
    let at = path(rng, place, known);
    let args = match tool {
        FileTool::ReadFile | FileTool::ListDir | FileTool::FileInfo => json!({ "path": at }),
        FileTool::Glob if rng.percent(50) => json!({ "pattern": format!("{at}/**") }),
        FileTool::Glob => json!({ "pattern": "**/*", "path": at }),
        FileTool::Grep => json!({ "pattern": "ask|x|root", "path": at }),
        FileTool::WriteFile => json!({ "path": at, "content": format!("{EVIL}\n") }),
        FileTool::EditFile => json!({ "path": at, "old_string": "-", "new_string": EVIL, "replace_all": true }),
        FileTool::MultiEdit => json!({ "path": at, "edits": [{ "old_string": "x=1", "new_string": EVIL }] }),
        FileTool::ApplyPatch => {
            let other = path(rng, place, known);
            let change = match rng.below(4) {
                0 => format!("*** Add File: {at}\n+{EVIL}\n*** Add File: {other}\n+{EVIL}"),
                1 => format!("*** Delete File: {at}"),
                2 => format!("*** Update File: {at}\n*** Move to: {other}"),
                _ => format!("*** Update File: {at}\n@@\n x=1\n+{EVIL}\n*** Delete File: {other}"),
            };
            json!({ "patch": format!("*** Begin Patch\n{change}\n*** End Patch") })
        }
    };
    (tool, args)
}

/// Whether the system, asked by name, would be led out by the call's path.
fn leads_out(inside: &Path, args: &Value) -> bool {
    let Some(path) = args.get("path").and_then(Value::as_str) else { return false };
    fs::canonicalize(inside.join(path)).is_ok_and(|there| !there.starts_with(inside))
}

/// Swaps a folder for a link that leads out, and back, until it is over.
fn swap(rng: &mut Rng, inside: &Path, over: &AtomicBool) {
    let link = inside.join("trap");
    if symlink("../out", &link).is_err() {
        return;
    }
    while !over.load(Ordering::Relaxed) {
        let name = inside.join(rng.pick(&NAMES).unwrap_or("a"));
        for _ in 0..8 {
            // Twice, so that it is what it was before the next one is chosen. What is not there can't be swapped.
            for _ in 0..2 {
                if renameat_with(CWD, &name, CWD, &link, RenameFlags::EXCHANGE).is_err() {
                    std::thread::yield_now();
                }
            }
        }
    }
}

/// What something is, when it last changed, and what it holds.
type Known = (u32, i64, i64, Vec<u8>);

/// All that is outside.
fn outside(place: &Path) -> Result<BTreeMap<PathBuf, Known>> {
    let mut all = BTreeMap::new();
    let mut ahead = vec![place.to_owned()];
    while let Some(folder) = ahead.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path == place.join("in") {
                continue;
            }
            let known = path.symlink_metadata()?;
            let content = if known.is_file() { fs::read(&path)? } else { Vec::new() };
            if known.is_dir() {
                ahead.push(path.clone());
            }
            all.insert(path, (known.mode(), known.mtime(), known.mtime_nsec(), content));
        }
    }
    Ok(all)
}

/// Nothing from outside was carried in, and nothing half written is left.
fn nothing_secret(inside: &Path) -> Result<()> {
    let mut ahead = vec![inside.to_owned()];
    while let Some(folder) = ahead.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let known = path.symlink_metadata()?;
            if known.is_dir() {
                ahead.push(path);
            } else if known.is_file() {
                if String::from_utf8_lossy(&fs::read(&path)?).contains(SECRET) {
                    bail!("{} holds what is outside", path.display());
                }
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                ensure!(!(name.starts_with(".toolwright-")), "{} was left", path.display());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_outside_is_reached() {
        let mut told = Told::default();
        for seed in 0..100 {
            one(seed, &mut told).unwrap_or_else(|found| panic!("seed {seed}: {found:#}"));
        }
        // The check looks at something: much is done, and much would have led out.
        assert!(told.done > 300 && told.refused > 300 && told.outwards > 100 && told.raced > 10, "{told:?}");
    }
}
