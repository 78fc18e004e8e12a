//! Where a program runs that a model asked for, and what it can reach from there.
//!
//! [`Sandbox`] says how a program is started so that it is confined; [`Spawn::sandbox`](crate::process::Spawn::sandbox) starts it that way. The
//! trait is here and not with those who run tools, because only this room starts programs, and what a sandbox does, it does to a start.
//!
//! | sandbox | what it is |
//! |---|---|
//! | [`NoSandbox`] | none: the program can do what this process's user can |
//! | `LinuxSandbox` | Landlock, seccomp and, where this process may make them, namespaces (Linux, feature `sandbox`) |
//! | [`ContainerSandbox`] | a container for each program, by Docker's command line. No engine runs where this is tested: unproven |
//!
//! A sandbox that can't give what it was asked for is an error when it is made, not something that is left out.

mod container;
#[cfg(feature = "sandbox")]
mod egress;
mod error;
#[cfg(all(target_os = "linux", feature = "sandbox"))]
mod linux;

use std::any::Any;
use std::fmt;
use std::io;

pub use container::ContainerSandbox;
#[cfg(feature = "sandbox")]
pub use egress::{Broker, BrokerBuilder, BrokeredRequest, HeaderSource, Served};
pub use error::SandboxError;
#[cfg(all(target_os = "linux", feature = "sandbox"))]
pub use linux::{LinuxSandbox, LinuxSandboxBuilder, Support, support};

use crate::process::Launch;

/// What a sandbox does on the thread that starts a program, right before it is started. The thread is made for this and ends after it, so
/// whatever restricts it restricts the program and nobody else.
pub type Entry = Box<dyn FnOnce() -> io::Result<()> + Send>;

/// A program, as it is started in a sandbox. Begin with [`Confined::plain`].
#[non_exhaustive]
pub struct Confined {
    /// What is started: the program itself, or one that runs it.
    pub launch: Launch,
    /// What is done to the thread that starts it.
    pub entry: Option<Entry>,
    /// A command that is run once the program has ended early: it removes what killing the program leaves.
    pub cleanup: Option<Launch>,
    /// Kept until the program has ended.
    pub held: Option<Box<dyn Any + Send>>,
    /// Namespaces that it joins as soon as it is a process.
    #[cfg(all(target_os = "linux", feature = "sandbox"))]
    pub(crate) joins: Option<std::sync::Arc<crate::process::Joins>>,
}

impl Confined {
    /// Started as it is.
    pub fn plain(launch: Launch) -> Self {
        Self {
            launch,
            entry: None,
            cleanup: None,
            held: None,
            #[cfg(all(target_os = "linux", feature = "sandbox"))]
            joins: None,
        }
    }
}

impl fmt::Debug for Confined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Confined").field("program", &self.launch.program).field("entry", &self.entry.is_some()).finish_non_exhaustive()
    }
}

/// Something that a sandbox keeps programs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Guard {
    /// Files: what is read and written are the places that were named.
    Files,
    /// Signals: none reaches a program outside.
    Signals,
    /// The network: off, or only to the hosts that were named.
    Network,
    /// The kernel: calls that reach into other programs, or into the machine, are refused.
    Kernel,
    /// Descendants: all of them end with the program, also those that hide.
    Descendants,
}

impl Guard {
    /// All of them.
    pub const ALL: &[Self] = &[Self::Files, Self::Signals, Self::Network, Self::Kernel, Self::Descendants];

    /// What it is, in a few words.
    pub fn what(self) -> &'static str {
        match self {
            Self::Files => "files outside the workspace",
            Self::Signals => "signals to other programs",
            Self::Network => "the network",
            Self::Kernel => "dangerous system calls",
            Self::Descendants => "descendants that hide from their end",
        }
    }
}

/// Confines programs.
///
/// One value serves many programs, also side by side. Tools take it as shared state, `State<Arc<dyn Sandbox>>`; an agent gets it with
/// `.state(sandbox)`.
pub trait Sandbox: fmt::Debug + Send + Sync {
    /// What it is called in messages.
    fn name(&self) -> &str;

    /// What it keeps programs from, and what it does not, a sentence each: people read it before they trust it.
    fn tells(&self) -> Vec<String>;

    /// Whether it keeps programs from anything.
    fn isolates(&self) -> bool {
        true
    }

    /// How `launch` is started in it.
    fn confine(&self, launch: Launch) -> Result<Confined, SandboxError>;
}

/// No sandbox: a program can read, write and reach whatever the user can that this process runs as.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSandbox;

impl Sandbox for NoSandbox {
    fn name(&self) -> &'static str {
        "none"
    }

    fn tells(&self) -> Vec<String> {
        vec!["programs run as this user, with all that this user can do".to_owned()]
    }

    fn isolates(&self) -> bool {
        false
    }

    fn confine(&self, launch: Launch) -> Result<Confined, SandboxError> {
        Ok(Confined::plain(launch))
    }
}
