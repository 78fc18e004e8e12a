//! New content of a file, written beside it and then put in its place: whole, or not at all.

use std::fs::File;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::Write as _;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Access, AtFlags, Gid, Mode, OFlags, Uid, accessat, fchmod, fchown, fstat, fsync, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

use super::resolve::Place;
use super::{Doing, FileError, FileKind, RootedPath, Stamp, stat_of, told};

/// What has to be in a file's place when new content takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Anything but a folder.
    Anything,
    /// Nothing.
    Absent,
    /// The file that had this stamp, unchanged.
    Same(Stamp),
}

/// New content that waits beside its file. Dropped without [`Staged::commit`], it goes and the file stays as it is.
#[derive(Debug)]
pub struct Staged {
    folder: OwnedFd,
    name: Vec<u8>,
    /// The name it waits under; `None` once it is in its place.
    waiting: Option<Vec<u8>>,
    path: RootedPath,
    expected: Expected,
}

const DOING: Doing = "write";
/// How often another name is tried where one is taken.
const TRIES: usize = 16;

impl Staged {
    pub(super) fn write(place: Place, path: &RootedPath, content: &[u8], mode: Option<u32>, expected: Expected) -> Result<Self, FileError> {
        let failed = |errno: Errno| told(path, DOING, errno.into());
        let Place { folder, name } = place;
        let before = match statat(&folder, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Some(stat),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(failed(errno)),
        };
        check(path, before.as_ref(), expected)?;
        if before.is_some() {
            // To put another file in its place the folder's permissions would do; who may not write it means the file.
            accessat(&folder, name.as_slice(), Access::WRITE_OK, AtFlags::EACCESS).map_err(failed)?;
        }
        let (waiting, mut file) = waiting_file(&folder, before.is_some() || mode.is_some()).map_err(failed)?;
        let staged = Self { folder, name, waiting: Some(waiting), path: path.clone(), expected };
        file.write_all(content).map_err(|source| FileError::System { path: path.to_string(), doing: DOING, source })?;
        if let Some(before) = &before {
            // Who else may own it is up to the system: not everybody may give a file away.
            let own = fstat(&file).map_err(failed)?;
            if (own.st_uid, own.st_gid) != (before.st_uid, before.st_gid) {
                let _ = fchown(&file, Some(Uid::from_raw(before.st_uid)), Some(Gid::from_raw(before.st_gid)));
            }
        }
        if let Some(mode) = mode.or(before.as_ref().map(|before| stat_of(before).mode)) {
            fchmod(&file, mode_of(mode)).map_err(failed)?;
        }
        fsync(&file).map_err(failed)?;
        Ok(staged)
    }

    /// Puts the content in its file's place, in one step: who reads sees the old content or the new, after a crash as well.
    /// Refused where what is there is not what was expected.
    pub fn commit(mut self) -> Result<Stamp, FileError> {
        let failed = |errno: Errno| told(&self.path, DOING, errno.into());
        let Some(waiting) = &self.waiting else { return Err(failed(Errno::NOENT)) };
        let before = match statat(&self.folder, self.name.as_slice(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Some(stat),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(failed(errno)),
        };
        check(&self.path, before.as_ref(), self.expected)?;
        if self.expected == Expected::Absent {
            rename_to_nothing(&self.folder, waiting, &self.name)
        } else {
            renameat(&self.folder, waiting.as_slice(), &self.folder, self.name.as_slice())
        }
        .map_err(failed)?;
        sync(&self.folder);
        let stat = statat(&self.folder, self.name.as_slice(), AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        self.waiting = None;
        Ok(stat_of(&stat).stamp)
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if let Some(waiting) = &self.waiting {
            // It may be gone with its folder; there is nobody to tell.
            let _ = unlinkat(&self.folder, waiting.as_slice(), AtFlags::empty());
        }
    }
}

fn check(path: &RootedPath, before: Option<&rustix::fs::Stat>, expected: Expected) -> Result<(), FileError> {
    let shown = || path.to_string();
    let stat = before.map(stat_of);
    match (stat.map(|stat| stat.kind), expected) {
        (Some(FileKind::Folder), _) => Err(FileError::IsAFolder { path: shown() }),
        (Some(FileKind::Other), _) => Err(FileError::NotAFile { path: shown() }),
        // It was no link when the path was resolved.
        (Some(FileKind::Link), _) => Err(FileError::Changed { path: shown() }),
        (Some(FileKind::File), Expected::Absent) => Err(FileError::Exists { path: shown() }),
        (Some(FileKind::File), Expected::Same(stamp)) if stat.is_none_or(|stat| stat.stamp != stamp) => {
            Err(FileError::Changed { path: shown() })
        }
        (None, Expected::Same(_)) => Err(FileError::Changed { path: shown() }),
        _ => Ok(()),
    }
}

#[expect(clippy::useless_conversion, reason = "the type of permission bits differs between systems")]
fn mode_of(bits: u32) -> Mode {
    Mode::from_raw_mode((bits & 0o7777).try_into().unwrap_or(0o600))
}

/// A new file of ours. One that takes another's place is nobody else's to read until it has that one's permissions.
fn waiting_file(folder: &OwnedFd, closed: bool) -> Result<(Vec<u8>, File), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(if closed { 0o600 } else { 0o666 });
    for _ in 0..TRIES {
        // A new state has new keys of the system's randomness. A name that is guessed all the same is refused by `EXCL`.
        let chance = RandomState::new().build_hasher().finish();
        let name = format!(".toolwright-{chance:016x}.tmp").into_bytes();
        match openat(folder, name.as_slice(), flags, mode) {
            Ok(open) => return Ok((name, open.into())),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::EXIST)
}

#[cfg(any(target_os = "linux", target_vendor = "apple"))]
fn rename_to_nothing(folder: &OwnedFd, from: &[u8], to: &[u8]) -> Result<(), Errno> {
    match rustix::fs::renameat_with(folder, from, folder, to, rustix::fs::RenameFlags::NOREPLACE) {
        // A file system that can't: that nothing was there was seen a moment ago.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => renameat(folder, from, folder, to),
        done => done,
    }
}

#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
fn rename_to_nothing(folder: &OwnedFd, from: &[u8], to: &[u8]) -> Result<(), Errno> {
    renameat(folder, from, folder, to)
}

/// Makes what a folder lists durable. A file system that can't is none that anybody could do better on.
pub(super) fn sync(folder: impl AsFd) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if let Ok(open) = openat(folder, c".", flags, Mode::empty()) {
        let _ = fsync(open);
    }
}
