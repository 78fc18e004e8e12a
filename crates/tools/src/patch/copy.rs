//! A copy of a folder to try a patch on.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::TempDir;

/// How many files and folders are copied; a folder of more is not one to try a patch on.
const MOST: usize = 200_000;

/// Stops a copy once it is dropped: whoever waited for it is gone.
struct Wanted(Arc<AtomicBool>);

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Copies a folder, without what is left out by name. Links stay links.
pub(super) async fn copied(from: &Path, left_out: &[String]) -> io::Result<TempDir> {
    let over = Arc::new(AtomicBool::new(false));
    let _wanted = Wanted(Arc::clone(&over));
    let (from, left_out) = (from.to_owned(), left_out.to_vec());
    let work = move || {
        let to = tempfile::Builder::new().prefix("toolwright-patch-").tempdir()?;
        let mut left = MOST;
        folder(&from, to.path(), &left_out, &over, &mut left)?;
        Ok(to)
    };
    tokio::task::spawn_blocking(work).await.map_err(|error| io::Error::other(error.to_string()))?
}

fn folder(from: &Path, to: &Path, left_out: &[String], over: &AtomicBool, left: &mut usize) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if over.load(Ordering::Relaxed) {
            return Err(io::Error::other("it is not wanted any more"));
        }
        *left = left.checked_sub(1).ok_or_else(|| io::Error::other(format!("it holds more than {MOST} files")))?;
        let (name, kind) = (entry.file_name(), entry.file_type()?);
        if left_out.iter().any(|other| **other == *name) {
            continue;
        }
        let target = to.join(&name);
        if kind.is_dir() {
            fs::create_dir(&target)?;
            folder(&entry.path(), &target, left_out, over, left)?;
        } else if kind.is_symlink() {
            link(&fs::read_link(entry.path())?, &target)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

#[cfg(unix)]
fn link(to: &Path, at: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(to, at)
}

#[cfg(not(unix))]
fn link(_to: &Path, _at: &Path) -> io::Result<()> {
    Ok(())
}
