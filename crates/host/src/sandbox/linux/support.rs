//! What this kernel has, found out by trying: each on a thread that ends afterwards.

use std::sync::OnceLock;

use landlock::{ABI, Access as _, AccessFs, LandlockStatus, Ruleset, RulesetAttr as _};
use nix::sched::{CloneFlags, unshare};

use super::filter;
use super::network::Network;
use crate::sandbox::Guard;

/// What this system can keep programs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Support {
    /// The version of Landlock's interface; `Err` says why there is none.
    pub landlock: Result<u8, String>,
    /// Whether system calls can be filtered.
    pub seccomp: Result<(), String>,
    /// Whether this process may make namespaces of processes, of IPC and of the network.
    pub namespaces: Result<(), String>,
}

/// The first interface of Landlock that keeps programs from cutting files short, without which files are not kept.
const FILES: u8 = 3;
/// The first one that keeps signals in.
const SIGNALS: u8 = 6;

/// What this system has. It is found out once.
pub fn support() -> &'static Support {
    static FOUND: OnceLock<Support> = OnceLock::new();
    FOUND.get_or_init(|| Support { landlock: landlock_version(), seccomp: tried(seccomp), namespaces: tried(namespaces) })
}

impl Support {
    /// Why something can't be kept; `None` where it can.
    pub fn lacks(&self, guard: Guard) -> Option<String> {
        let landlock = |needed: u8, linux: &str| match &self.landlock {
            Ok(version) if *version >= needed => None,
            Ok(version) => Some(format!("this kernel has Landlock {version}, and it takes {needed} (Linux {linux})")),
            Err(why) => Some(format!("{why}, and it takes Landlock {needed} (Linux {linux})")),
        };
        match guard {
            Guard::Files => landlock(FILES, "6.2"),
            // Who is in a namespace of processes sees none outside it.
            Guard::Signals if self.namespaces.is_ok() => None,
            Guard::Signals => landlock(SIGNALS, "6.12"),
            Guard::Network | Guard::Kernel => self.seccomp.as_ref().err().cloned(),
            Guard::Descendants => self.namespaces.as_ref().err().cloned(),
        }
    }

    /// Why a sandbox can have no way out to some hosts; `None` where it can. This tries it out.
    pub fn lacks_a_way_out(&self) -> Option<String> {
        Network::new().err()
    }

    /// All of it in one line, for people.
    pub fn summary(&self) -> String {
        let landlock = match &self.landlock {
            Ok(version) => format!("Landlock {version}"),
            Err(_) => "no Landlock".to_owned(),
        };
        let seccomp = if self.seccomp.is_ok() { "seccomp" } else { "no seccomp" };
        let namespaces = if self.namespaces.is_ok() { "namespaces" } else { "no namespaces for this user" };
        format!("{landlock}, {seccomp}, {namespaces}")
    }
}

fn landlock_version() -> Result<u8, String> {
    let status = tried(|| {
        let ruleset = Ruleset::default().handle_access(AccessFs::from_all(ABI::V1)).and_then(Ruleset::create);
        let restricted = ruleset.and_then(landlock::RulesetCreated::restrict_self).map_err(|error| error.to_string())?;
        Ok(restricted.landlock)
    })?;
    match status {
        LandlockStatus::NotEnabled => Err("Landlock is built into this kernel but not enabled (`lsm=landlock,...` at boot)".to_owned()),
        LandlockStatus::NotImplemented => Err("this kernel has no Landlock".to_owned()),
        LandlockStatus::Available { effective_abi, .. } => {
            effective_abi.to_string().parse().map_err(|_| "this kernel's Landlock could not be told".to_owned())
        }
    }
}

fn seccomp() -> Result<(), String> {
    let filters = filter::compile(filter::Sockets::None, false).map_err(|error| error.to_string())?;
    filter::apply(&filters).map_err(|error| format!("system calls can't be filtered here ({error})"))
}

fn namespaces() -> Result<(), String> {
    unshare(CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWNET)
        .map_err(|error| format!("this process may not make namespaces ({error}); they take root, or CAP_SYS_ADMIN"))
}

/// Does something on a thread of its own, so that what it changes changes nothing here.
pub(super) fn tried<T: Send + 'static>(what: impl FnOnce() -> Result<T, String> + Send + 'static) -> Result<T, String> {
    let thread = std::thread::Builder::new().name("toolwright-probe".to_owned()).spawn(what).map_err(|error| error.to_string())?;
    thread.join().unwrap_or_else(|_| Err("the thread that tried it panicked".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(landlock: Result<u8, &str>, namespaces: bool) -> Support {
        Support {
            landlock: landlock.map_err(str::to_owned),
            seccomp: Ok(()),
            namespaces: if namespaces { Ok(()) } else { Err("no".to_owned()) },
        }
    }

    #[test]
    fn what_a_kernel_lacks_is_said() {
        let old = of(Err("this kernel has no Landlock"), false);
        assert_eq!(old.lacks(Guard::Files).unwrap(), "this kernel has no Landlock, and it takes Landlock 3 (Linux 6.2)");
        assert!(old.lacks(Guard::Signals).is_some() && old.lacks(Guard::Network).is_none());
        assert_eq!(old.summary(), "no Landlock, seccomp, no namespaces for this user");
        let middle = of(Ok(4), false);
        assert!(middle.lacks(Guard::Files).is_none());
        assert_eq!(middle.lacks(Guard::Signals).unwrap(), "this kernel has Landlock 4, and it takes 6 (Linux 6.12)");
        assert!(of(Ok(4), true).lacks(Guard::Signals).is_none(), "a namespace keeps signals too");
        let new = of(Ok(7), false);
        assert!(Guard::ALL.iter().filter(|guard| **guard != Guard::Descendants).all(|guard| new.lacks(*guard).is_none()));
    }

    #[test]
    fn this_kernel_can_be_asked() {
        let found = support();
        assert_eq!(found, support());
        assert!(!found.summary().is_empty());
    }
}
