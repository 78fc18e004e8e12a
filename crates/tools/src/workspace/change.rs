//! Changes of files: planned whole, then made whole or not at all.

use toolwright_host::files::{Content, Expected, FileError, Root, RootedPath, Staged};
use toolwright_tool::{ToolContext, ToolError};

use super::{Workspace, refused, rewind, seen, told};

/// One file, as it is and as it shall be.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) path: RootedPath,
    /// What is there; `None` where nothing is.
    pub(super) before: Option<Content>,
    /// What shall be there; `None` where nothing shall be.
    pub(super) after: Option<Vec<u8>>,
    /// Permission bits, where they are not those of the file it was.
    pub(super) mode: Option<u32>,
}

impl Change {
    pub(super) fn is_none(&self) -> bool {
        self.mode.is_none() && self.before.as_ref().map(|before| &before.bytes) == self.after.as_ref()
    }

    fn expected(&self) -> Expected {
        self.before.as_ref().map_or(Expected::Absent, |before| Expected::Same(before.stat.stamp))
    }
}

/// What is there, as far as it is a file that may be changed; `None` where nothing is.
pub(super) fn current(root: &Root, path: &RootedPath, limit: u64) -> Result<Option<Content>, ToolError> {
    match root.read(path, limit) {
        Ok(content) => Ok(Some(content)),
        Err(FileError::NotFound { .. }) => Ok(None),
        Err(error) => Err(told(error)),
    }
}

impl Workspace {
    /// Makes changes, all of them or none, of files that are what this thread last saw of them. What they were is kept first.
    pub(super) async fn make(&self, cx: &ToolContext, changes: Vec<Change>) -> Result<(), ToolError> {
        let changes: Vec<Change> = changes.into_iter().filter(|change| !change.is_none()).collect();
        for change in &changes {
            seen::check(self, cx, &change.path, change.before.as_ref().map(|before| before.bytes.as_slice())).await?;
            let size = change.after.as_ref().map_or(0, Vec::len) as u64;
            if size > self.options.max_file {
                let path = &change.path;
                return Err(refused(format!(
                    "{path} would take {size} bytes, and at most {} are written; write less",
                    self.options.max_file
                )));
            }
        }
        for change in &changes {
            if self.options.checkpoints {
                rewind::keep(self, cx, change).await?;
            }
            if let Some(after) = &change.after {
                let before = change.before.as_ref().map(|before| before.bytes.as_slice());
                seen::note_change(self, cx, &change.path, before, after).await?;
            }
        }
        let gone: Vec<RootedPath> = changes.iter().filter(|change| change.after.is_none()).map(|change| change.path.clone()).collect();
        self.blocking(move |workspace| make(&workspace.root, &changes)).await?;
        for path in gone {
            seen::forget(self, cx, &path).await?;
        }
        Ok(())
    }
}

/// Makes changes in two steps: all new content is written beside the files first; only then does it take their places.
pub(super) fn make(root: &Root, changes: &[Change]) -> Result<(), ToolError> {
    let mut made = Vec::new();
    let staged = stage(root, changes, &mut made);
    let mut done = Vec::new();
    let failed = match staged {
        Err(error) => Some(error),
        Ok(staged) => commit(root, changes, staged, &mut done).err(),
    };
    let Some(error) = failed else { return Ok(()) };
    let left: Vec<String> = done.into_iter().rev().filter_map(|change| undo(root, change).err()).collect();
    // Folders that were made for files that are not there now; one that is in use by then stays.
    for path in made.iter().rev() {
        let _ = root.remove_empty_folder(path);
    }
    if left.is_empty() {
        return Err(told(error));
    }
    Err(refused(format!("{error}; and what was changed before that could not be taken back: {}", left.join("; "))))
}

fn stage(root: &Root, changes: &[Change], made: &mut Vec<RootedPath>) -> Result<Vec<Option<Staged>>, FileError> {
    let mut staged = Vec::with_capacity(changes.len());
    for change in changes {
        let Some(after) = &change.after else {
            staged.push(None);
            continue;
        };
        if change.before.is_none() {
            made.extend(root.make_folders(&change.path.parent())?);
        }
        staged.push(Some(root.stage(&change.path, after, change.mode, change.expected())?));
    }
    Ok(staged)
}

fn commit<'a>(root: &Root, changes: &'a [Change], staged: Vec<Option<Staged>>, done: &mut Vec<&'a Change>) -> Result<(), FileError> {
    for (change, staged) in changes.iter().zip(staged) {
        if let Some(staged) = staged {
            staged.commit()?;
        } else {
            let there = root.stat(&change.path)?;
            if change.before.as_ref().is_some_and(|before| before.stat.stamp != there.stamp) {
                return Err(FileError::Changed { path: change.path.to_string() });
            }
            root.remove(&change.path)?;
        }
        done.push(change);
    }
    Ok(())
}

/// Takes one change back. An error is what could not be.
fn undo(root: &Root, change: &Change) -> Result<(), String> {
    let undone = match &change.before {
        None => root.remove(&change.path),
        Some(before) => {
            root.stage(&change.path, &before.bytes, Some(before.stat.mode), Expected::Anything).and_then(|staged| staged.commit().map(drop))
        }
    };
    undone.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_before_a_failure_is_taken_back() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let path = |text: &str| RootedPath::parse(text).unwrap();
        for name in ["a", "b", "gone"] {
            std::fs::write(folder.path().join(name), name).unwrap();
        }
        let planned = |name: &str, after: Option<&str>| {
            let before = current(&root, &path(name), 100).unwrap();
            Change { path: path(name), before, after: after.map(|after| after.as_bytes().to_vec()), mode: None }
        };
        let changes = [planned("a", Some("new a")), planned("new/deep/x", Some("x")), planned("gone", None), planned("b", None)];
        // The last one is found to have changed only when those before it are made.
        std::fs::write(folder.path().join("b"), "somebody's").unwrap();
        let error = make(&root, &changes).unwrap_err();
        assert_eq!(error.message(), "b changed while it was worked on, and was left as it is; read it again");
        let text = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!((text("a").as_str(), text("b").as_str(), text("gone").as_str()), ("a", "somebody's", "gone"));
        let mut names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["a", "b", "gone"]);
        // Planned anew, all of it is made.
        make(&root, &[planned("a", Some("new a")), planned("new/deep/x", Some("x")), planned("b", None)]).unwrap();
        assert_eq!((text("a").as_str(), text("new/deep/x").as_str(), folder.path().join("b").exists()), ("new a", "x", false));
    }
}
