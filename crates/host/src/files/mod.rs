//! Files below one folder, the root: whatever a path says, whatever links there are and whoever changes them meanwhile, nothing
//! outside is read or changed.
//!
//! [`Root`] resolves a path once, to an open file or an open folder, and works with that: there is no check that something else
//! could come after. It is public, for users' own tools.
//!
//! ```
//! use toolwright_host::files::{Expected, Root, RootedPath};
//!
//! # let folder = std::env::temp_dir().join(format!("toolwright-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder).unwrap();
//! let root = Root::open(&folder)?;
//! let path = RootedPath::parse("notes/today.md")?;
//! root.make_folders(&path.parent())?;
//! root.stage(&path, b"# Today\n", None, Expected::Absent)?.commit()?;
//! assert_eq!(root.read(&path, 1_000)?.bytes, b"# Today\n");
//! # std::fs::remove_dir_all(&folder).unwrap();
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

mod error;
mod folder;
mod path;
mod resolve;
mod stage;

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, mkdirat, statat, unlinkat};
use rustix::io::Errno;

pub use error::{FileError, RootError};
pub use folder::{Entry, Folder};
pub use path::RootedPath;
pub use resolve::Resolve;
use resolve::{LOOK, Links, Place, Resolver, Stop, is_link};
pub use stage::{Expected, Staged};

/// A folder, opened once. What is reached through it is below it.
///
/// Links are followed as long as they stay below: a link with an absolute target leads out, wherever that is. Hard links can't
/// be told from files.
#[derive(Debug)]
pub struct Root {
    resolver: Resolver,
    folder: PathBuf,
}

/// What something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileKind {
    /// A file.
    File,
    /// A folder.
    Folder,
    /// A link, looked at itself.
    Link,
    /// A device, a socket or a pipe.
    Other,
}

/// What is known of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStat {
    /// What it is.
    pub kind: FileKind,
    /// Its size in bytes.
    pub size: u64,
    /// Its permission bits, such as `0o644`.
    pub mode: u32,
    /// When its content last changed.
    pub modified: SystemTime,
    /// Tells whether it is still the same, unchanged.
    pub stamp: Stamp,
}

/// Which file it was, in which state: two are equal if nobody changed or replaced it between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    device: u64,
    number: u64,
    size: u64,
    modified: (i64, u64),
    changed: (i64, u64),
}

/// The content of a file, with what is known of it at that time.
#[derive(Clone, Debug)]
pub struct Content {
    /// The content.
    pub bytes: Vec<u8>,
    /// The file's.
    pub stat: FileStat,
}

#[expect(clippy::unnecessary_cast, clippy::useless_conversion, reason = "the types of these fields differ between systems")]
fn stat_of(stat: &rustix::fs::Stat) -> FileStat {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Folder,
        FileType::Symlink => FileKind::Link,
        _ => FileKind::Other,
    };
    let (modified, changed) = ((stat.st_mtime as i64, stat.st_mtime_nsec as u64), (stat.st_ctime as i64, stat.st_ctime_nsec as u64));
    let size = stat.st_size as u64;
    let since = Duration::new(modified.0.unsigned_abs(), modified.1 as u32);
    let time = if modified.0 < 0 { UNIX_EPOCH.checked_sub(since) } else { UNIX_EPOCH.checked_add(since) };
    FileStat {
        kind,
        size,
        mode: u32::from(stat.st_mode) & 0o7777,
        modified: time.unwrap_or(UNIX_EPOCH),
        stamp: Stamp { device: stat.st_dev as u64, number: stat.st_ino as u64, size, modified, changed },
    }
}

/// What was tried, in words that fit after "could not".
type Doing = &'static str;

fn told(path: &(impl ToString + ?Sized), doing: Doing, stop: Stop) -> FileError {
    let path = path.to_string();
    match stop {
        Stop::Outside => FileError::Outside { path },
        Stop::Dangling => FileError::Dangling { path },
        Stop::Link => FileError::Link { path },
        Stop::System(errno) => match errno {
            Errno::NOENT => FileError::NotFound { path },
            Errno::NOTDIR => FileError::NotAFolder { path },
            Errno::ISDIR => FileError::IsAFolder { path },
            Errno::LOOP => FileError::Link { path },
            Errno::ACCESS | Errno::PERM | Errno::ROFS => FileError::NotPermitted { path, doing },
            Errno::EXIST => FileError::Exists { path },
            Errno::NXIO => FileError::NotAFile { path },
            Errno::AGAIN => FileError::Changed { path },
            errno => FileError::System { path, doing, source: errno.into() },
        },
    }
}

impl Root {
    /// Opens a folder as a root. It has to be there; a link to a folder counts as that folder.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, RootError> {
        Self::open_with(folder, Resolve::Automatic)
    }

    /// As [`Root::open`], with a say in how paths are resolved.
    pub fn open_with(folder: impl AsRef<Path>, how: Resolve) -> Result<Self, RootError> {
        let given = folder.as_ref();
        let refused = |problem: String| RootError { folder: given.to_owned(), problem };
        let folder = std::fs::canonicalize(given).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => refused("it is not there; make the folder, or name another one".to_owned()),
            _ => refused(format!("{error}; name a folder that can be read")),
        })?;
        let root = rustix::fs::open(&folder, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let root = root.map_err(|errno| match errno {
            Errno::NOTDIR => refused("it is no folder; name the folder that the files are in".to_owned()),
            errno => refused(format!("{}; name a folder that can be read", std::io::Error::from(errno))),
        })?;
        Ok(Self { resolver: Resolver::new(root, how), folder })
    }

    /// Where the root is on this machine. Not for a model's eyes.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether the kernel resolves paths; else they are resolved name by name.
    pub fn is_by_kernel(&self) -> bool {
        self.resolver.is_by_kernel()
    }

    fn open_at(&self, path: &RootedPath, flags: OFlags, links: Links, doing: Doing) -> Result<OwnedFd, FileError> {
        self.resolver.open(path.as_str().as_bytes(), flags, links).map_err(|stop| {
            let dangling =
                stop == Stop::System(Errno::NOENT) && self.resolver.last(path.as_str().as_bytes()).is_ok_and(|place| is_link(&place));
            told(path, doing, if dangling { Stop::Dangling } else { stop })
        })
    }

    fn place(&self, path: &RootedPath, doing: Doing) -> Result<Place, FileError> {
        self.resolver.place(path.as_str().as_bytes()).map_err(|stop| told(path, doing, stop))
    }

    /// What is known of what a path leads to, links followed.
    pub fn stat(&self, path: &RootedPath) -> Result<FileStat, FileError> {
        let open = self.open_at(path, LOOK, Links::Follow, "look at")?;
        let stat = fstat(&open).map_err(|errno| told(path, "look at", errno.into()))?;
        Ok(stat_of(&stat))
    }

    /// What is known of what stands under a path; of a link, itself.
    pub fn stat_itself(&self, path: &RootedPath) -> Result<FileStat, FileError> {
        if path.is_root() {
            return self.stat(path);
        }
        let place = self.resolver.last(path.as_str().as_bytes()).map_err(|stop| told(path, "look at", stop))?;
        let stat = statat(&place.folder, place.name.as_slice(), AtFlags::SYMLINK_NOFOLLOW);
        stat.map(|stat| stat_of(&stat)).map_err(|errno| told(path, "look at", errno.into()))
    }

    /// The whole content of a file of at most `limit` bytes.
    pub fn read(&self, path: &RootedPath, limit: u64) -> Result<Content, FileError> {
        // Without waiting, so that a pipe that nobody writes into holds nobody up.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let open = self.open_at(path, flags, Links::Follow, "read")?;
        read_open(File::from(open), limit, Vec::new(), &|| path.to_string())
    }

    /// A folder, to list it; links on the way are followed.
    pub fn read_folder(&self, path: &RootedPath) -> Result<Folder, FileError> {
        self.folder_at(path, Links::Follow)
    }

    /// A folder, to list it, unless a link is on the way: for walks, which follow none.
    pub fn read_folder_itself(&self, path: &RootedPath) -> Result<Folder, FileError> {
        self.folder_at(path, Links::Refuse)
    }

    fn folder_at(&self, path: &RootedPath, links: Links) -> Result<Folder, FileError> {
        let open = self.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY, links, "list")?;
        Ok(Folder::new(open, path.clone()))
    }

    /// Makes a folder and those it is in, as far as they are not there. Gives those that were made, outermost first.
    pub fn make_folders(&self, path: &RootedPath) -> Result<Vec<RootedPath>, FileError> {
        let mut missing = Vec::new();
        let mut here = path.clone();
        while !here.is_root() {
            match self.stat(&here) {
                Ok(stat) if stat.kind == FileKind::Folder => break,
                Ok(_) => return Err(FileError::NotAFolder { path: here.to_string() }),
                Err(FileError::NotFound { .. }) => missing.push(here.clone()),
                Err(error) => return Err(error),
            }
            here = here.parent();
        }
        missing.reverse();
        for path in &missing {
            let place = self.place(path, "make")?;
            match mkdirat(&place.folder, place.name.as_slice(), Mode::from_raw_mode(0o777)) {
                // Somebody else was faster.
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(told(path, "make", errno.into())),
            }
        }
        Ok(missing)
    }

    /// Writes new content beside a file, to take its place, or that of nothing, with [`Staged::commit`]; see there. `mode` are
    /// the permission bits; where it is `None`, those of the file it replaces, or those of any new file.
    ///
    /// A link is followed, as long as it stays inside: what it leads to is replaced, the link stays.
    pub fn stage(&self, path: &RootedPath, content: &[u8], mode: Option<u32>, expected: Expected) -> Result<Staged, FileError> {
        Staged::write(self.place(path, "write")?, path, content, mode, expected)
    }

    /// Removes a file, or a link itself: what it leads to stays. A folder is left.
    pub fn remove(&self, path: &RootedPath) -> Result<(), FileError> {
        if path.is_root() {
            return Err(FileError::IsAFolder { path: path.to_string() });
        }
        let place = self.resolver.last(path.as_str().as_bytes()).map_err(|stop| told(path, "remove", stop))?;
        let stat = statat(&place.folder, place.name.as_slice(), AtFlags::SYMLINK_NOFOLLOW);
        let stat = stat_of(&stat.map_err(|errno| told(path, "remove", errno.into()))?);
        if stat.kind == FileKind::Folder {
            return Err(FileError::IsAFolder { path: path.to_string() });
        }
        unlinkat(&place.folder, place.name.as_slice(), AtFlags::empty()).map_err(|errno| told(path, "remove", errno.into()))?;
        stage::sync(&place.folder);
        Ok(())
    }

    /// Removes a folder that holds nothing; a link to one is left.
    pub fn remove_empty_folder(&self, path: &RootedPath) -> Result<(), FileError> {
        let place = self.resolver.last(path.as_str().as_bytes()).map_err(|stop| told(path, "remove", stop))?;
        let removed = unlinkat(&place.folder, place.name.as_slice(), AtFlags::REMOVEDIR);
        removed.map_err(|errno| told(path, "remove", errno.into()))
    }

    /// A folder below as a root of its own: what is reached through it is below that folder, without the links that led to it.
    pub fn below(&self, path: &RootedPath) -> Result<Self, FileError> {
        let open = self.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY, Links::Follow, "open")?;
        let how = if self.is_by_kernel() { Resolve::Automatic } else { Resolve::NameByName };
        Ok(Self { resolver: Resolver::new(open, how), folder: self.folder.join(path.as_str()) })
    }
}

/// Reads an open file to its end. What is no file is refused; so is one that grows beyond the limit while it is read.
fn read_open(mut file: File, limit: u64, mut bytes: Vec<u8>, path: &dyn Fn() -> String) -> Result<Content, FileError> {
    let stat = stat_of(&fstat(&file).map_err(|errno| told(&path(), "read", errno.into()))?);
    match stat.kind {
        FileKind::File => {}
        FileKind::Folder => return Err(FileError::IsAFolder { path: path() }),
        FileKind::Link | FileKind::Other => return Err(FileError::NotAFile { path: path() }),
    }
    if stat.size > limit {
        return Err(FileError::TooLarge { path: path(), size: stat.size, limit });
    }
    bytes.clear();
    bytes.reserve(stat.size as usize + 1);
    let read = (&mut file).take(limit + 1).read_to_end(&mut bytes);
    let read = read.map_err(|source| FileError::System { path: path(), doing: "read", source })?;
    if read as u64 > limit {
        return Err(FileError::TooLarge { path: path(), size: read as u64, limit });
    }
    Ok(Content { bytes, stat })
}
