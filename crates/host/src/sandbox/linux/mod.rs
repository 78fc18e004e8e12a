//! A sandbox of what Linux has for it, without a program of its own: a thread is restricted, and the program is started from it.
//!
//! Landlock, seccomp and namespaces other than of users belong to a thread and are passed on to what it starts. So nothing runs between `fork`
//! and `exec`, unless somebody who is not root wants a way out to some hosts: `network.rs` says why.

mod files;
mod filter;
mod network;
mod support;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::sched::{CloneFlags, unshare};
use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};
use tempfile::TempDir;

use super::{Broker, Confined, Guard, Sandbox, SandboxError, Served};
use crate::process::Launch;
use files::{Places, Rules};
use filter::{Filters, Sockets};
use network::Network;
pub use support::{Support, support};

/// What a program that runs as root keeps of root: what has to do with files, which have their own rules here.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETGID);

/// A sandbox of Landlock, seccomp and namespaces.
///
/// A program in it
/// - writes in its workspace and in a folder for temporary files, and nowhere else;
/// - reads those, the system's programs and libraries, and what in `/etc` everybody may read: neither home folders, nor other users'
///   temporary files, nor other processes;
/// - has no network, unless [`egress`](LinuxSandboxBuilder::egress) lets it reach some hosts, and no sockets of files either (through which a container engine or a key agent would do as it says);
/// - sends no signal to a program outside, and sees no memory of one;
/// - makes no namespaces, no mounts, no programs in the kernel, no requests that go round the filter.
///
/// What this kernel can't keep is an error when the sandbox is built, unless it was told to do without it.
///
/// ```no_run
/// use std::sync::Arc;
/// use toolwright_host::process::Spawn;
/// use toolwright_host::sandbox::LinuxSandbox;
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let sandbox = Arc::new(LinuxSandbox::of_workspace("work").build()?);
/// let ended = Spawn::shell("cat ~/.ssh/id_ed25519; curl example.com").dir("work").sandbox(sandbox).run().await?;
/// assert_ne!(ended.code, Some(0));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LinuxSandbox {
    inner: Arc<Inner>,
}

struct Inner {
    rules: Rules,
    filters: Filters,
    namespaces: bool,
    egress: Option<Egress>,
    /// Its home and its temporary files.
    scratch: TempDir,
    places: Places,
    without: Vec<(Guard, String)>,
}

/// A way out: the network that programs are in, and who serves it.
struct Egress {
    network: Network,
    served: Served,
    hosts: Vec<String>,
}

impl fmt::Debug for LinuxSandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinuxSandbox").field("places", &self.inner.places).field("without", &self.inner.without).finish_non_exhaustive()
    }
}

/// A [`LinuxSandbox`] that is being made.
#[derive(Clone, Debug)]
pub struct LinuxSandboxBuilder {
    workspace: PathBuf,
    places: Places,
    unix_sockets: bool,
    network: Reach,
    may_lack: Vec<Guard>,
}

/// How much of the network programs have.
#[derive(Clone, Debug)]
enum Reach {
    None,
    Through(Broker),
    Whole,
}

impl LinuxSandbox {
    /// A sandbox whose programs may write in `workspace`.
    pub fn of_workspace(workspace: impl Into<PathBuf>) -> LinuxSandboxBuilder {
        LinuxSandboxBuilder {
            workspace: workspace.into(),
            places: Places::default(),
            unix_sockets: false,
            network: Reach::None,
            may_lack: vec![Guard::Descendants],
        }
    }

    /// The proxy that programs reach, where there is one: [`Served::base_url`] is what to tell them for a host with a credential.
    pub fn served(&self) -> Option<&Served> {
        self.inner.egress.as_ref().map(|egress| &egress.served)
    }

    /// What was asked for and can't be kept here, each with why: empty unless it was told to do without.
    pub fn lacks(&self) -> &[(Guard, String)] {
        &self.inner.without
    }
}

impl LinuxSandboxBuilder {
    /// One more file or folder that programs may read: a toolchain in a home folder, say.
    #[must_use]
    pub fn read(mut self, path: impl Into<PathBuf>) -> Self {
        self.places.read.push(path.into());
        self
    }

    /// One more file or folder that programs may write.
    #[must_use]
    pub fn write(mut self, path: impl Into<PathBuf>) -> Self {
        self.places.write.push(path.into());
        self
    }

    /// Programs may make sockets that are files. Whatever listens on one that they can reach does what they say.
    #[must_use]
    pub fn unix_sockets(mut self) -> Self {
        self.unix_sockets = true;
        self
    }

    /// Programs reach the hosts that this broker allows, through it, and no others: they are in a network of their own, in which there is nothing
    /// but its proxy. To make one takes root, or a system that lets users make namespaces. The broker is served by the tokio runtime that this sandbox is built on.
    #[must_use]
    pub fn egress(mut self, broker: &Broker) -> Self {
        self.network = Reach::Through(broker.clone());
        self
    }

    /// Programs have the whole network of this machine, its own addresses included.
    #[must_use]
    pub fn whole_network(mut self) -> Self {
        self.network = Reach::Whole;
        self
    }

    /// Where this kernel can't keep these, the sandbox does without. [`LinuxSandbox::lacks`] says what is missing. Programs that hide from their end
    /// are done without from the start, as only some users may make a namespace for processes: [`needs`](Self::needs) asks for it.
    #[must_use]
    pub fn may_lack(mut self, guards: impl IntoIterator<Item = Guard>) -> Self {
        self.may_lack.extend(guards);
        self
    }

    /// Where this kernel can't keep this, there is no sandbox.
    #[must_use]
    pub fn needs(mut self, guard: Guard) -> Self {
        self.may_lack.retain(|other| *other != guard);
        self
    }

    /// The sandbox.
    pub fn build(self) -> Result<LinuxSandbox, SandboxError> {
        self.build_with(support())
    }

    fn build_with(mut self, support: &Support) -> Result<LinuxSandbox, SandboxError> {
        let asked = Guard::ALL.iter().filter(|guard| **guard != Guard::Network || !matches!(self.network, Reach::Whole));
        let missing: Vec<(Guard, String)> = asked.filter_map(|guard| support.lacks(*guard).map(|why| (*guard, why))).collect();
        let refused: Vec<String> = missing
            .iter()
            .filter(|(guard, _)| !self.may_lack.contains(guard))
            .map(|(guard, why)| format!("{} can't be kept: {why}", guard.what()))
            .collect();
        if !refused.is_empty() {
            let fix = "use a newer kernel or a container, or say what the sandbox may do without".to_owned();
            return Err(SandboxError::Lacks { lacks: refused.join("; "), fix });
        }
        let setup = |problem: String| SandboxError::Setup { problem };
        let absent = |path: &Path| SandboxError::Config {
            problem: format!("there is no {}, which the sandbox was to open; create it, or leave it out", path.display()),
        };
        let workspace = self.workspace.canonicalize().map_err(|_| absent(&self.workspace))?;
        if let Some(path) = self.places.read.iter().chain(&self.places.write).find(|path| !path.exists()) {
            return Err(absent(path));
        }
        let scratch = tempfile::Builder::new().prefix("toolwright-").tempdir().map_err(|error| setup(error.to_string()))?;
        for folder in ["home", "tmp"] {
            std::fs::create_dir(scratch.path().join(folder)).map_err(|error| setup(error.to_string()))?;
        }
        self.places.write.push(workspace);
        self.places.write.push(scratch.path().to_path_buf());
        let (egress, sockets) = match (&self.network, self.unix_sockets) {
            (Reach::Whole, _) => (None, Sockets::Any),
            (Reach::None, true) => (None, Sockets::Unix),
            (Reach::None, false) => (None, Sockets::None),
            (Reach::Through(broker), unix) => (Some(egress(broker)?), if unix { Sockets::Both } else { Sockets::Internet }),
        };
        let rules = Rules::new(&self.places, matches!(self.network, Reach::None)).map_err(setup)?;
        let joins = egress.as_ref().is_some_and(|egress| egress.network.joins().is_some());
        let filters = filter::compile(sockets, joins).map_err(|error| setup(error.to_string()))?;
        let inner =
            Inner { rules, filters, namespaces: support.namespaces.is_ok(), egress, scratch, places: self.places, without: missing };
        Ok(LinuxSandbox { inner: Arc::new(inner) })
    }
}

fn egress(broker: &Broker) -> Result<Egress, SandboxError> {
    let no_way = |problem: String, fix: &str| SandboxError::Egress { problem, fix: fix.to_owned() };
    let runtime = tokio::runtime::Handle::try_current()
        .map_err(|_| no_way("nobody would serve the proxy".to_owned(), "build the sandbox where a tokio runtime runs"))?;
    let (network, listener) =
        Network::new().map_err(|problem| no_way(problem, "allow namespaces of users, run this as root, or leave the network off"))?;
    let _entered = runtime.enter();
    let served = tokio::net::TcpListener::from_std(listener).and_then(|listener| broker.serve(listener));
    let served = served.map_err(|error| SandboxError::Setup { problem: error.to_string() })?;
    Ok(Egress { network, served, hosts: broker.hosts().to_vec() })
}

impl Inner {
    /// Restricts the thread that starts a program.
    fn enter(&self) -> std::io::Result<()> {
        if let Some(egress) = &self.egress {
            egress.network.enter()?;
        }
        if self.namespaces {
            unshare(CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWIPC).map_err(std::io::Error::from)?;
            for capability in CapabilitySet::all().difference(KEPT).iter() {
                // A kernel that does not know one has none to give.
                let _ = remove_capability_from_bounding_set(capability);
            }
        }
        self.rules.apply()?;
        filter::apply(&self.filters)
    }

    /// The variables with those that name places the program can't use replaced.
    fn variables(&self, given: Vec<(OsString, OsString)>) -> Vec<(OsString, OsString)> {
        let mut all: BTreeMap<OsString, OsString> = given.into_iter().collect();
        let tmp = self.scratch.path().join("tmp");
        for name in ["TMPDIR", "TMP", "TEMP"] {
            all.insert(name.into(), tmp.clone().into());
        }
        if let Some(egress) = &self.egress {
            all.extend(egress.served.env().into_iter().map(|(name, value)| (name.into(), value.into())));
        }
        all.insert("HOME".into(), self.scratch.path().join("home").into());
        all.into_iter().collect()
    }
}

impl Sandbox for LinuxSandbox {
    fn name(&self) -> &'static str {
        "linux"
    }

    fn tells(&self) -> Vec<String> {
        let inner = &self.inner;
        let shown = |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
        let mut tells = vec![format!("programs write only in {}", shown(&inner.places.write))];
        if !inner.places.read.is_empty() {
            tells.push(format!("programs also read {}", shown(&inner.places.read)));
        }
        tells.extend(inner.egress.as_ref().map(|egress| format!("programs reach {} and no other host", egress.hosts.join(", "))));
        tells.extend(inner.without.iter().map(|(guard, why)| format!("NOT kept: {}, as {why}", guard.what())));
        tells
    }

    fn confine(&self, mut launch: Launch) -> Result<Confined, SandboxError> {
        launch.env = self.inner.variables(launch.env);
        let inner = Arc::clone(&self.inner);
        let mut confined = Confined::plain(launch);
        confined.joins = inner.egress.as_ref().and_then(|egress| egress.network.joins());
        // The folders of the sandbox stay while a program uses them.
        confined.held = Some(Box::new(Arc::clone(&inner)));
        confined.entry = Some(Box::new(move || inner.enter()));
        Ok(confined)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(landlock: Result<u8, &str>, seccomp: bool, namespaces: bool) -> Support {
        let or = |there: bool| if there { Ok(()) } else { Err("it is not there".to_owned()) };
        Support { landlock: landlock.map_err(str::to_owned), seccomp: or(seccomp), namespaces: or(namespaces) }
    }

    #[test]
    fn what_a_kernel_lacks_is_an_error_unless_told_otherwise() {
        let workspace = tempfile::tempdir().unwrap();
        let builder = LinuxSandbox::of_workspace(workspace.path());
        let old = kernel(Err("this kernel has no Landlock"), true, false);
        let error = builder.clone().build_with(&old).unwrap_err();
        assert_eq!(error.code(), "TOOLWRIGHT_SANDBOX_UNAVAILABLE");
        let said = error.to_string();
        assert!(said.contains("files outside the workspace can't be kept: this kernel has no Landlock"), "{said}");
        assert!(said.contains("signals to other programs can't be kept"), "{said}");
        let half = builder.clone().may_lack([Guard::Files]).build_with(&old).unwrap_err().to_string();
        assert!(!half.contains("files outside") && half.contains("signals"), "{half}");
        let told = builder.clone().may_lack([Guard::Files, Guard::Signals]).build_with(&old).unwrap();
        let kept: Vec<Guard> = told.lacks().iter().map(|(guard, _)| *guard).collect();
        assert_eq!(kept, [Guard::Files, Guard::Signals, Guard::Descendants]);
        assert!(told.tells().iter().any(|line| line.starts_with("NOT kept: files outside the workspace")), "{:?}", told.tells());
        let wanted = builder.needs(Guard::Descendants).build_with(&kernel(Ok(7), true, false)).unwrap_err().to_string();
        assert!(wanted.contains("descendants that hide"), "{wanted}");
    }

    #[test]
    fn places_that_are_not_there_are_named() {
        let workspace = tempfile::tempdir().unwrap();
        let error = LinuxSandbox::of_workspace("/nowhere/at/all").build_with(&kernel(Ok(7), true, false)).unwrap_err();
        assert_eq!(error.to_string(), "there is no /nowhere/at/all, which the sandbox was to open; create it, or leave it out");
        let error = LinuxSandbox::of_workspace(workspace.path()).read("/nowhere").build_with(&kernel(Ok(7), true, false)).unwrap_err();
        assert_eq!(error.code(), "TOOLWRIGHT_CONFIG_INVALID");
    }
}
