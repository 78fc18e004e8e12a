//! Which files a confined program may read and write.

use std::fs::Metadata;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr as _, RulesetCreated,
    RulesetCreatedAttr as _, Scope, make_bitflags,
};

/// The interface this was written and tried with. What a kernel does not know of it, `Support` has said.
const KNOWN: ABI = ABI::V6;

/// Where programs and their libraries are.
const PROGRAMS: &[&str] = &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/run/current-system"];
/// What programs ask about the machine.
const MACHINE: &[&str] = &[
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/loadavg",
    "/proc/uptime",
    "/proc/version",
    "/proc/filesystems",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/random",
    "/proc/sys/vm/overcommit_memory",
    "/sys/devices/system/cpu",
    "/sys/kernel/mm/transparent_hugepage",
];
/// Devices that lead nowhere.
const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// How deep configuration is looked through; what lies deeper is not readable.
const DEPTH: usize = 8;

/// What is readable, and what is writable.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    pub(super) read: Vec<PathBuf>,
    pub(super) write: Vec<PathBuf>,
}

/// A ruleset for the kernel, made once. It holds what it is about open, so that a path that comes to mean something else changes nothing.
#[derive(Debug)]
pub(super) struct Rules {
    ruleset: RulesetCreated,
    /// What is in `/proc` is made anew when nobody holds it, and then is not what the rule is about.
    held: Vec<PathFd>,
}

impl Rules {
    pub(super) fn new(places: &Places, no_network: bool) -> Result<Self, String> {
        Self::made(places, no_network).map_err(|error| error.to_string())
    }

    fn made(places: &Places, no_network: bool) -> Result<Self, Box<dyn std::error::Error>> {
        let (all, read) = (AccessFs::from_all(KNOWN), AccessFs::from_read(KNOWN));
        let mut ruleset = Ruleset::default().handle_access(all)?.scope(Scope::from_all(KNOWN))?;
        if no_network {
            ruleset = ruleset.handle_access(AccessNet::from_all(KNOWN))?;
        }
        let mut rules = Self { ruleset: ruleset.create()?, held: Vec::new() };
        for path in PROGRAMS.iter().chain(MACHINE) {
            rules.add(Path::new(path), read, false)?;
        }
        for path in DEVICES {
            rules.add(Path::new(path), make_bitflags!(AccessFs::{ReadFile | WriteFile}), false)?;
        }
        for (path, listed_only) in configuration(Path::new("/etc")) {
            rules.add(&path, if listed_only { BitFlags::from(AccessFs::ReadDir) } else { read }, false)?;
        }
        for path in &places.read {
            rules.add(path, read, true)?;
        }
        // A device made in the workspace would be the device.
        let write = all & !make_bitflags!(AccessFs::{MakeChar | MakeBlock | IoctlDev});
        for path in &places.write {
            rules.add(path, write, true)?;
        }
        Ok(rules)
    }

    /// What is not there needs no rule, unless somebody asked for it.
    fn add(&mut self, path: &Path, access: BitFlags<AccessFs>, needed: bool) -> Result<(), Box<dyn std::error::Error>> {
        let opened = match PathFd::new(path) {
            Ok(opened) => opened,
            Err(_) if !needed => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let access = if path.is_dir() { access } else { access & AccessFs::from_file(KNOWN) };
        (&mut self.ruleset).add_rule(PathBeneath::new(&opened, access))?;
        self.held.push(opened);
        Ok(())
    }

    /// Restricts this thread, for good.
    pub(super) fn apply(&self) -> std::io::Result<()> {
        self.ruleset.try_clone()?.restrict_self().map(|_| ()).map_err(|error| std::io::Error::other(error.to_string()))
    }
}

/// The parts of a folder that everybody may read: the folder itself where that is all of it, else what can be read in it, and the folder to
/// be listed (`true`). Root reads what it likes, so what is kept from other users has to be kept from a program here.
fn configuration(folder: &Path) -> Vec<(PathBuf, bool)> {
    let mut found = Vec::new();
    let listed_only = !whole(folder, DEPTH, &mut found);
    found.push((folder.to_path_buf(), listed_only));
    found
}

/// Whether all of it may be read. If not, what of it may be is in `found`.
fn whole(path: &Path, depth: usize, found: &mut Vec<(PathBuf, bool)>) -> bool {
    let Ok(about) = std::fs::symlink_metadata(path) else { return false };
    if about.is_symlink() {
        // What it leads to has its own rule, or none.
        return true;
    }
    let open = |about: &Metadata, bits: u32| about.permissions().mode() & bits == bits;
    if !about.is_dir() {
        return about.is_file() && open(&about, 0o004);
    }
    if depth == 0 || !open(&about, 0o005) {
        return false;
    }
    let Ok(entries) = std::fs::read_dir(path) else { return false };
    let (mut all, mut parts, mut deeper) = (true, Vec::new(), Vec::new());
    for entry in entries {
        let Ok(entry) = entry else { return false };
        let within = deeper.len();
        if whole(&entry.path(), depth - 1, &mut deeper) {
            deeper.truncate(within);
            parts.push((entry.path(), false));
        } else {
            all = false;
        }
    }
    if !all {
        found.append(&mut parts);
        found.append(&mut deeper);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_from_others_is_kept_from_a_program() {
        let folder = tempfile::tempdir().unwrap();
        let place = |path: &str| folder.path().join(path);
        let mode = |path: &str, mode: u32| std::fs::set_permissions(place(path), PermissionsExt::from_mode(mode)).unwrap();
        std::fs::create_dir_all(place("open/deep")).unwrap();
        std::fs::create_dir_all(place("ssl/private")).unwrap();
        std::fs::create_dir_all(place("ssl/certs")).unwrap();
        for file in ["passwd", "shadow", "open/deep/a", "ssl/private/key", "ssl/certs/c", "ssl/conf"] {
            std::fs::write(place(file), "x").unwrap();
            mode(file, 0o644);
        }
        for open in ["", "open", "open/deep", "ssl", "ssl/certs"] {
            mode(open, 0o755);
        }
        mode("shadow", 0o640);
        mode("ssl/private", 0o710);
        std::os::unix::fs::symlink("/srv/secret", place("link")).unwrap();
        let mut found = configuration(folder.path());
        found.sort();
        let expected = [("", true), ("link", false), ("open", false), ("passwd", false), ("ssl/certs", false), ("ssl/conf", false)];
        assert_eq!(found, expected.map(|(path, listed)| (if path.is_empty() { folder.path().to_path_buf() } else { place(path) }, listed)));
        mode("shadow", 0o644);
        mode("ssl/private", 0o755);
        assert_eq!(configuration(folder.path()), [(folder.path().to_path_buf(), false)]);
    }
}
