//! The files of the workspace, read once, and the outside commands that describe it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::rust_text::RustText;

/// The workspace's root folder.
pub(crate) fn root() -> Result<PathBuf> {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    let root = manifest.parent().context("xtask has no parent folder")?;
    Ok(root.to_owned())
}

/// One text file of the workspace.
pub(crate) struct File {
    /// Path from the root, with `/` between its parts.
    pub(crate) path: String,
    pub(crate) text: String,
    /// Present for `.rs` files.
    pub(crate) rust: Option<RustText>,
}

impl File {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let is_rust = Path::new(path).extension().is_some_and(|ext| ext == "rs");
        Self { path: path.to_owned(), text: text.to_owned(), rust: is_rust.then(|| RustText::read(path, text)) }
    }

    /// Lines with their numbers, from 1.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.lines())
    }

    pub(crate) fn is(&self, extension: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|ext| ext == extension)
    }
}

/// The workspace's own files: what git tracks or would track.
pub(crate) struct Tree {
    pub(crate) files: Vec<File>,
    /// Every path, binary files included, and the folders above them.
    paths: BTreeSet<String>,
}

impl Tree {
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let mut files = Vec::new();
        let mut paths = Vec::new();
        for path in listing(root)? {
            // A file that is removed but still tracked, or that isn't text, has nothing to check.
            if let Ok(text) = std::fs::read_to_string(root.join(&path)) {
                files.push(File::new(&path, &text));
            }
            if root.join(&path).exists() {
                paths.push(path);
            }
        }
        Ok(Self { paths: with_folders(&paths), files })
    }

    /// A tree that exists only in a test.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let paths: Vec<String> = files.iter().map(|(path, _)| (*path).to_owned()).collect();
        Self { files: files.iter().map(|(path, text)| File::new(path, text)).collect(), paths: with_folders(&paths) }
    }

    pub(crate) fn has(&self, path: &str) -> bool {
        path.is_empty() || self.paths.contains(path)
    }

    pub(crate) fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Rust files with their text.
    pub(crate) fn rust(&self) -> impl Iterator<Item = (&File, &RustText)> {
        self.files.iter().filter_map(|file| file.rust.as_ref().map(|rust| (file, rust)))
    }
}

fn with_folders(paths: &[String]) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for path in paths {
        for folder in Path::new(path).ancestors().skip(1) {
            all.insert(folder.to_string_lossy().into_owned());
        }
        all.insert(path.clone());
    }
    all
}

/// Paths from the root: git's list where there is a repository, else every file but build output.
fn listing(root: &Path) -> Result<Vec<String>> {
    if root.join(".git").exists() {
        let out = output(Command::new("git").current_dir(root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]))?;
        let mut paths: Vec<String> = out.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect();
        paths.sort();
        paths.dedup();
        return Ok(paths);
    }
    let mut paths = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                if path.file_name().is_none_or(|name| name != "target") {
                    folders.push(path);
                }
            } else if let Ok(relative) = path.strip_prefix(root) {
                paths.push(relative.to_string_lossy().replace('\\', "/"));
            }
        }
    }
    paths.sort();
    Ok(paths)
}

/// What a command prints; an error that quotes its complaint when it fails.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let out = command.output().with_context(|| format!("starting {}", command.get_program().display()))?;
    if !out.status.success() {
        bail!("{} failed: {}", command.get_program().display(), String::from_utf8_lossy(&out.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// The cargo that runs us.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// `cargo metadata` as JSON.
pub(crate) fn metadata(root: &Path) -> Result<serde_json::Value> {
    let text = output(cargo().current_dir(root).args(["metadata", "--format-version", "1"]))?;
    serde_json::from_str(&text).context("reading what cargo metadata printed")
}
