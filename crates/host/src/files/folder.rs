//! What a folder holds.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, statat};
use rustix::io::Errno;

use super::{Content, FileError, FileKind, RootedPath, read_open, stat_of, told};

/// An open folder.
#[derive(Debug)]
pub struct Folder {
    open: OwnedFd,
    path: RootedPath,
}

/// What stands in a folder under one name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Its name.
    pub name: OsString,
    /// What it is; a link is one, whatever it leads to.
    pub kind: FileKind,
}

impl Folder {
    pub(super) fn new(open: OwnedFd, path: RootedPath) -> Self {
        Self { open, path }
    }

    /// Its path.
    pub fn path(&self) -> &RootedPath {
        &self.path
    }

    /// What it holds, by name in byte order, at most `limit` of it as the system lists it; whether that is all.
    pub fn entries(&self, limit: usize) -> Result<(Vec<Entry>, bool), FileError> {
        let failed = |errno: Errno| told(&self.path, "list", errno.into());
        let mut found = Vec::new();
        let mut whole = true;
        for entry in Dir::read_from(&self.open).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if found.len() == limit {
                whole = false;
                break;
            }
            let kind = match entry.file_type() {
                FileType::RegularFile => FileKind::File,
                FileType::Directory => FileKind::Folder,
                FileType::Symlink => FileKind::Link,
                // Some file systems do not say.
                FileType::Unknown => match statat(&self.open, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => stat_of(&stat).kind,
                    Err(_) => continue,
                },
                _ => FileKind::Other,
            };
            found.push(Entry { name: OsStr::from_bytes(name).to_owned(), kind });
        }
        found.sort_unstable();
        Ok((found, whole))
    }

    /// The whole content of a file in it, of at most `limit` bytes, read into `buffer`. A link is not followed.
    pub fn read(&self, name: &OsStr, limit: u64, buffer: Vec<u8>) -> Result<Content, FileError> {
        let path = || format!("{}/{}", self.path, name.to_string_lossy());
        if name.as_bytes().contains(&b'/') {
            return Err(FileError::NotAFolder { path: path() });
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = openat(&self.open, name.as_bytes(), flags, Mode::empty()).map_err(|errno| told(&path(), "read", errno.into()))?;
        read_open(open.into(), limit, buffer, &path)
    }
}
