//! Who moves a thread: the lock of one process, which its death frees, and the number that fences off all before.
//!
//! The lock is one on a file beside the database, taken while the database's own write lock is held: two who claim at once do
//! so one after the other. Its name has the claim's generation, so that an owner who hangs can be left alone with its lock:
//! whoever takes its place locks the file of the next generation.

use std::collections::HashSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::OptionalExtension;
use toolwright_core::ThreadId;
use toolwright_runtime::{Claim, StoreError};

use super::fault::Trouble;
use super::journal::{signed, unsigned};
use super::writer::Writing;

/// A lock file is made anew at most so often when another was taken away meanwhile.
const TRIES: u32 = 100;

/// The wall clock, in milliseconds. It may jump, and is never all that an owner is judged by.
pub(super) fn wall_clock() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// A claim's lock: the thread's number in the store, and the generation.
type Name = (i64, i64);

/// Where the locks of a store are.
#[derive(Clone)]
pub(super) enum Locks {
    Folder(PathBuf),
    Memory(Arc<Mutex<HashSet<Name>>>),
}

impl Locks {
    fn file(folder: &Path, (number, generation): Name) -> PathBuf {
        folder.join(format!("{number}-{generation}.lock"))
    }

    /// Takes a lock; `None` if somebody has it.
    fn take(&self, name: Name) -> io::Result<Option<Lock>> {
        match self {
            Self::Folder(folder) => {
                let path = Self::file(folder, name);
                Ok(take_file(&path)?.map(|file| Lock::File { file, path }))
            }
            Self::Memory(taken) => {
                let is_first = taken.lock().unwrap_or_else(PoisonError::into_inner).insert(name);
                Ok(is_first.then(|| Lock::Memory { taken: Arc::clone(taken), name }))
            }
        }
    }

    /// Takes away the lock file of a generation that is over, whoever still holds it.
    pub(super) fn forget(&self, name: Name) {
        if let Self::Folder(folder) = self {
            // It is litter: nobody looks at it again.
            let _ = std::fs::remove_file(Self::file(folder, name));
        }
    }
}

fn take_file(path: &Path) -> io::Result<Option<File>> {
    for _ in 0..TRIES {
        let file = match OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let Some(folder) = path.parent() else { return Err(error) };
                std::fs::create_dir_all(folder)?;
                continue;
            }
            Err(error) => return Err(error),
        };
        match file.try_lock() {
            // Between opening and locking, the one before may have taken the file away, and a third may have made another.
            Ok(()) if is_at(&file, path)? => return Ok(Some(file)),
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(io::Error::other("its lock file is taken away again and again"))
}

/// Whether a path still leads to an open file.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;

    let open = file.metadata()?;
    match std::fs::metadata(path) {
        Ok(there) => Ok((open.dev(), open.ino()) == (there.dev(), there.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Lock files are never taken away here, because one that is open can't be.
#[cfg(not(unix))]
fn is_at(_file: &File, _path: &Path) -> io::Result<bool> {
    Ok(true)
}

/// A lock that is held; dropping it frees it.
#[derive(Debug)]
pub(super) enum Lock {
    File { file: File, path: PathBuf },
    Memory { taken: Arc<Mutex<HashSet<Name>>>, name: Name },
}

impl Drop for Lock {
    fn drop(&mut self) {
        match self {
            Self::File { file, path } => {
                // While the lock is held nobody else takes the file away, so what is at the path is ours, or was left by a
                // person. Closing the file frees the lock, whatever becomes of the path.
                if cfg!(unix) && is_at(file, path).unwrap_or(false) {
                    let _ = std::fs::remove_file(path);
                }
            }
            Self::Memory { taken, name } => {
                taken.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
            }
        }
    }
}

/// A claim that is held.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) thread: ThreadId,
    pub(super) fence: u64,
    /// Frees the thread when it is dropped.
    pub(super) _lock: Lock,
}

impl Claim for Held {
    fn thread(&self) -> &ThreadId {
        &self.thread
    }

    fn fence(&self) -> u64 {
        self.fence
    }
}

/// An owner, as its last sign of life shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sign {
    number: i64,
    fence: i64,
    generation: i64,
    beat: i64,
}

impl Sign {
    /// Whether the wall clock counts it as recent. A sign from the future is as doubtful as one long past.
    pub(super) fn is_recent(&self, now: i64, limit_ms: u128) -> bool {
        u128::from(now.abs_diff(self.beat)) <= limit_ms
    }
}

/// What became of an attempt to claim.
#[derive(Debug)]
pub(super) enum Attempt {
    Claimed {
        claim: Held,
        /// The lock of the owner whose place was taken.
        replaced: Option<Name>,
    },
    /// Another has it.
    Owned(Sign),
}

/// Claims a thread if it is free, or if its owner still is as `silent` shows it.
pub(super) fn claim(writing: &mut Writing<'_>, locks: &Locks, thread: &ThreadId, silent: Option<Sign>) -> Result<Attempt, Trouble> {
    let mut insert = writing.connection.prepare_cached("INSERT INTO threads (id) VALUES (?1) ON CONFLICT DO NOTHING")?;
    let mut find = writing.connection.prepare_cached("SELECT number, fence, generation, beat FROM threads WHERE id = ?1")?;
    let mut sign = || {
        let row =
            |row: &rusqlite::Row<'_>| Ok(Sign { number: row.get(0)?, fence: row.get(1)?, generation: row.get(2)?, beat: row.get(3)? });
        find.query_row([thread.as_str()], row).optional()
    };
    let sign = if let Some(sign) = sign()? {
        sign
    } else {
        insert.execute([thread.as_str()])?;
        sign()?.ok_or(rusqlite::Error::QueryReturnedNoRows)?
    };
    let take = |name| {
        locks.take(name).map_err(|error| {
            let database = writing.database;
            StoreError::failed(format!(
                "the thread {thread} can't be claimed, because its lock beside {database} failed ({error}); see that the folder may be written"
            ))
        })
    };
    let name = (sign.number, sign.generation);
    let (lock, generation) = match take(name)? {
        Some(lock) => (lock, sign.generation),
        None if silent == Some(sign) => {
            let generation = sign.generation.saturating_add(1);
            // Nobody uses this generation before this is committed.
            (take((sign.number, generation))?.ok_or_else(|| StoreError::Busy { thread: thread.clone() })?, generation)
        }
        None => return Ok(Attempt::Owned(sign)),
    };
    let fence = sign.fence.saturating_add(1);
    let mut update = writing.connection.prepare_cached("UPDATE threads SET fence = ?2, generation = ?3, beat = ?4 WHERE number = ?1")?;
    update.execute((sign.number, fence, generation, wall_clock()))?;
    let fence = unsigned(fence);
    let claim = Held { thread: thread.clone(), fence, _lock: lock };
    Ok(Attempt::Claimed { claim, replaced: (generation != sign.generation).then_some(name) })
}

/// A sign of life.
pub(super) fn renew(writing: &mut Writing<'_>, thread: &ThreadId, fence: u64) -> Result<(), Trouble> {
    let mut update = writing.connection.prepare_cached("UPDATE threads SET beat = ?3 WHERE id = ?1 AND fence = ?2")?;
    if update.execute((thread.as_str(), signed(fence), wall_clock()))? == 0 {
        return Err(StoreError::Fenced { thread: thread.clone() }.into());
    }
    Ok(())
}
