//! From a path to an open file, without ever leaving the root.
//!
//! Where the kernel can do it (`openat2` with `RESOLVE_BENEATH`), it does: whatever anybody renames or links meanwhile, it gives
//! a file below the root or none. Elsewhere each name is opened by itself, in the folder that the one before gave, and links are
//! read and followed by us: no name is ever given to the system that it could follow out.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, openat, readlinkat, statat};
use rustix::io::Errno;

/// How a path becomes an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolve {
    /// The kernel does it, where it can; else name by name.
    Automatic,
    /// Name by name, even where the kernel could do it: tests show that both hold.
    NameByName,
}

/// What becomes of links on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Links {
    /// Followed, as long as they stay inside.
    Follow,
    /// Refused.
    Refuse,
}

/// Why there is no open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    Outside,
    Link,
    Dangling,
    System(Errno),
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

/// Links that are followed in one path, as the kernel has it.
const MOST_LINKS: usize = 40;
/// How often the kernel is asked anew where somebody renames while it looks.
#[cfg(target_os = "linux")]
const TRIES: usize = 64;

/// Opens something only to look at it, or as the folder of what is opened next.
#[cfg(target_os = "linux")]
pub(super) const LOOK: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
pub(super) const LOOK: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK);

/// An open root.
#[derive(Debug)]
pub(super) struct Resolver {
    root: OwnedFd,
    by_kernel: bool,
}

/// The folder and the name that a path comes to, its links followed.
pub(super) struct Place {
    pub(super) folder: OwnedFd,
    pub(super) name: Vec<u8>,
}

impl Resolver {
    pub(super) fn new(root: OwnedFd, how: Resolve) -> Self {
        // A filter of system calls may refuse it, so it is tried.
        let by_kernel = how == Resolve::Automatic && by_kernel(root.as_fd(), b".", LOOK, Links::Follow).is_ok();
        Self { root, by_kernel }
    }

    pub(super) fn is_by_kernel(&self) -> bool {
        self.by_kernel
    }

    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Opens a path below the root; an empty one is the root. `..` in it is taken as it stands: it may come from a link.
    pub(super) fn open(&self, path: &[u8], flags: OFlags, links: Links) -> Result<OwnedFd, Stop> {
        if self.by_kernel {
            by_kernel(self.root(), if path.is_empty() { b"." } else { path }, flags, links)
        } else {
            name_by_name(self.root(), path, flags, links)
        }
    }

    /// Where a path leads. What is there is no link; where nothing is there, something may be made under that name.
    pub(super) fn place(&self, path: &[u8]) -> Result<Place, Stop> {
        let mut path = path.to_vec();
        for followed in 0..=MOST_LINKS {
            while path.last() == Some(&b'/') {
                path.pop();
            }
            let (folder, name) = split(&path);
            if name.is_empty() || name == b"." || name == b".." {
                return Err(Stop::System(Errno::ISDIR));
            }
            let (folder, name) = (folder.to_vec(), name.to_vec());
            let open = self.open(&folder, LOOK | OFlags::DIRECTORY, Links::Follow)?;
            match readlinkat(&open, name.as_slice(), Vec::new()) {
                Ok(target) => path = beside(folder, target.to_bytes())?,
                Err(Errno::NOENT) if followed > 0 => return Err(Stop::Dangling),
                Err(Errno::NOENT | Errno::INVAL) => return Ok(Place { folder: open, name }),
                Err(errno) => return Err(errno.into()),
            }
        }
        Err(Stop::Link)
    }

    /// The folder of a path and its last name, which may be a link.
    pub(super) fn last(&self, path: &[u8]) -> Result<Place, Stop> {
        let (folder, name) = split(path);
        if name.is_empty() {
            return Err(Stop::System(Errno::ISDIR));
        }
        let open = self.open(folder, LOOK | OFlags::DIRECTORY, Links::Follow)?;
        Ok(Place { folder: open, name: name.to_vec() })
    }
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (path.get(..at).unwrap_or_default(), path.get(at + 1..).unwrap_or_default()),
        None => (b"", path),
    }
}

/// The path of a link's target, from the folder that the link is in.
fn beside(mut folder: Vec<u8>, target: &[u8]) -> Result<Vec<u8>, Stop> {
    if target.first() == Some(&b'/') {
        return Err(Stop::Outside);
    }
    if !folder.is_empty() {
        folder.push(b'/');
    }
    folder.extend_from_slice(target);
    Ok(folder)
}

#[cfg(target_os = "linux")]
fn by_kernel(root: BorrowedFd<'_>, path: &[u8], flags: OFlags, links: Links) -> Result<OwnedFd, Stop> {
    use rustix::fs::{ResolveFlags, openat2};

    let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    if links == Links::Refuse {
        resolve |= ResolveFlags::NO_SYMLINKS;
    }
    for _ in 0..TRIES {
        match openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
            Ok(open) => return Ok(open),
            // Something was renamed while `..` was followed; or a signal came.
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(Errno::XDEV) => return Err(Stop::Outside),
            Err(Errno::LOOP) => return Err(Stop::Link),
            Err(errno) => return Err(errno.into()),
        }
    }
    Err(Stop::System(Errno::AGAIN))
}

#[cfg(not(target_os = "linux"))]
fn by_kernel(_root: BorrowedFd<'_>, _path: &[u8], _flags: OFlags, _links: Links) -> Result<OwnedFd, Stop> {
    Err(Stop::System(Errno::NOSYS))
}

fn name_by_name(root: BorrowedFd<'_>, path: &[u8], flags: OFlags, links: Links) -> Result<OwnedFd, Stop> {
    // The folders that were passed, so that `..` goes back to one that is held open instead of asking the system.
    let mut passed: Vec<OwnedFd> = Vec::new();
    let mut ahead: Vec<Vec<u8>> = path.rsplit(|byte| *byte == b'/').map(<[u8]>::to_vec).collect();
    let mut followed = 0;
    while let Some(name) = ahead.pop() {
        if name.is_empty() || name == b"." {
            continue;
        }
        if name == b".." {
            if passed.pop().is_none() {
                return Err(Stop::Outside);
            }
            continue;
        }
        let here = passed.last().map_or(root, AsFd::as_fd);
        match readlinkat(here, name.as_slice(), Vec::new()) {
            Ok(_) if links == Links::Refuse => return Err(Stop::Link),
            Ok(target) => {
                followed += 1;
                if followed > MOST_LINKS {
                    return Err(Stop::Link);
                }
                let target = target.to_bytes();
                if target.first() == Some(&b'/') {
                    return Err(Stop::Outside);
                }
                ahead.extend(target.rsplit(|byte| *byte == b'/').map(<[u8]>::to_vec));
                continue;
            }
            Err(Errno::INVAL | Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
        let last = ahead.iter().all(|name| name.is_empty() || name == b".");
        let flags = if last { flags } else { LOOK | OFlags::DIRECTORY };
        let open = match openat(here, name.as_slice(), flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
            Ok(open) => open,
            // It became a link since it was looked at.
            Err(Errno::LOOP | Errno::MLINK) => return Err(Stop::Link),
            Err(errno) => return Err(errno.into()),
        };
        // A link can be opened to be looked at; it is not what was asked for.
        if flags.contains(LOOK) && FileType::from_raw_mode(rustix::fs::fstat(&open)?.st_mode) == FileType::Symlink {
            return Err(Stop::Link);
        }
        if last {
            return Ok(open);
        }
        passed.push(open);
    }
    // The path came back to a folder: the root, or one that was passed.
    let here = passed.last().map_or(root, AsFd::as_fd);
    Ok(openat(here, b".".as_slice(), flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?)
}

/// Whether a name in a folder is a link.
pub(super) fn is_link(place: &Place) -> bool {
    let stat = statat(&place.folder, place.name.as_slice(), AtFlags::SYMLINK_NOFOLLOW);
    stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
}
