//! A thread's file tree.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::sync::MutexGuard;
use toolwright_core::{BlobId, BlobRef, FileChange, FileEntry, FilePath, Part};

use crate::error::ToolError;
use crate::keep::{Keep, Tree, Used};

mod glob;
mod media;
mod search;

pub use media::{ending_of, is_text, media_type_of};
pub use search::{FileKind, GrepHit};

/// How many entries are read at once.
const PAGE: usize = 500;
/// The longest address of a link, in bytes.
const LONGEST_LOCATION: usize = 2048;
/// The most metadata of a file, in bytes of JSON.
const MOST_METADATA: usize = 64 * 1024;

/// The files of a thread: a tree of its own whose root is `/`, kept with the thread, durable once a call returns
/// (standard-agents FIL-1).
///
/// Paths are normalised to a leading `/`; one that leads out of the tree is refused (FIL-13). Directories that a path needs are
/// made. Each change is made whole or not at all, and within a process one after another; of two processes that change one path
/// at once, the later one wins.
///
/// ```
/// # use toolwright_tool::prelude::*;
/// # async fn body(cx: &ToolContext) -> Result<(), ToolError> {
/// let files = cx.files();
/// files.write("notes/today.md", "# Budget\nTravel is over.").await?;
/// let hits = files.grep("travel OR hotel", "/notes", 10).await?;
/// assert_eq!((hits[0].path.as_str(), hits[0].line_numbers[0]), ("/notes/today.md", 2));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ThreadFiles {
    keep: Arc<dyn Keep>,
}

impl fmt::Debug for ThreadFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadFiles").finish_non_exhaustive()
    }
}

/// What is written into a file.
#[derive(Clone, Debug)]
pub enum Content {
    /// Text, in UTF-8.
    Text(String),
    /// Bytes.
    Bytes(Bytes),
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<&String> for Content {
    fn from(text: &String) -> Self {
        Self::Text(text.clone())
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&[u8]> for Content {
    fn from(bytes: &[u8]) -> Self {
        Self::Bytes(Bytes::copy_from_slice(bytes))
    }
}

impl From<Vec<u8>> for Content {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes.into())
    }
}

impl From<Bytes> for Content {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

/// What is said about a file besides its content.
#[derive(Clone, Debug, Default)]
pub struct FileOptions {
    /// The media type; where it is not given, it is read from the name, and else it is plain text or bytes.
    pub mime_type: Option<String>,
    /// The application's own data.
    pub metadata: Map<String, Value>,
    /// The size in bytes, of a link.
    pub size: Option<u64>,
}

impl FileOptions {
    /// Of this media type.
    pub fn of_type(mime_type: impl Into<String>) -> Self {
        Self { mime_type: Some(mime_type.into()), ..Self::default() }
    }

    /// With one more field of metadata.
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.metadata.insert(key.into(), value.into());
        self
    }
}

/// What a thread's files come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FileStats {
    /// Of all files whose content is kept, in bytes. A link has none.
    pub total_size: u64,
    /// Files and links, without directories.
    pub file_count: u64,
}

/// Entries of a subtree, by path in byte order.
pub struct Walk {
    keep: Arc<dyn Keep>,
    prefix: String,
    page: std::vec::IntoIter<FileEntry>,
    after: Option<String>,
    over: bool,
}

impl Walk {
    fn new(keep: &Arc<dyn Keep>, prefix: String) -> Self {
        Self { keep: Arc::clone(keep), prefix, page: Vec::new().into_iter(), after: None, over: false }
    }

    /// The next entry; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<FileEntry>, ToolError> {
        loop {
            if let Some(entry) = self.page.next() {
                // The root's own entry, where a store has one, is in no directory.
                if entry.path == "/" {
                    continue;
                }
                return Ok(Some(entry));
            }
            if self.over {
                return Ok(None);
            }
            let page = self.keep.files(&self.prefix, self.after.as_deref(), PAGE).await?;
            self.over = page.len() < PAGE;
            self.after = page.last().map(|entry| entry.path.clone());
            self.page = page.into_iter();
        }
    }
}

fn refused(name: &str, message: String) -> ToolError {
    ToolError::new(message).named(name)
}

fn path_of(given: &str) -> Result<FilePath, ToolError> {
    FilePath::parse(given).map_err(|error| refused("InvalidPathError", error.to_string()))
}

fn not_found(path: &FilePath) -> ToolError {
    refused("FileNotFoundError", format!("there is no file or directory {path}"))
}

fn is_a_directory(path: &FilePath) -> ToolError {
    refused("IsADirectoryError", format!("{path} is a directory"))
}

fn not_a_directory(path: &FilePath) -> ToolError {
    refused("NotADirectoryError", format!("{path} is not a directory"))
}

fn exists(path: &FilePath) -> ToolError {
    refused("FileExistsError", format!("{path} exists; choose another path, or remove it first"))
}

fn directory(path: &FilePath, keep: &dyn Keep) -> FileEntry {
    let now = keep.now();
    FileEntry {
        path: path.to_string(),
        mime_type: String::new(),
        size: 0,
        blob: None,
        location: None,
        is_directory: true,
        metadata: Map::new(),
        created_at: now,
        modified_at: now,
    }
}

fn checked_metadata(path: &FilePath, metadata: &Map<String, Value>) -> Result<(), ToolError> {
    let length = serde_json::to_string(metadata).map_or(0, |text| text.len());
    if length > MOST_METADATA {
        let message = format!("the metadata of {path} takes {length} bytes, and {MOST_METADATA} are allowed; put it into a file");
        return Err(refused("MetadataTooLargeError", message));
    }
    Ok(())
}

fn checked_media_type(path: &FilePath, given: String) -> Result<String, ToolError> {
    let fits = given.len() <= 255 && given.bytes().all(|byte| (0x20..0x7f).contains(&byte)) && given.contains('/');
    if fits {
        return Ok(given);
    }
    let shown = toolwright_core::bounded(&given, 80);
    Err(refused("InvalidMediaTypeError", format!("{shown:?} is no media type for {path}; give one such as `text/plain`")))
}

/// What an entry counts for its thread.
fn counted(entry: &FileEntry) -> Used {
    Used { bytes: if entry.blob.is_some() { entry.size } else { 0 }, entries: 1 }
}

impl ThreadFiles {
    /// The files of what is kept.
    pub fn new(keep: Arc<dyn Keep>) -> Self {
        Self { keep }
    }

    // ------------------------------------------------------------------------------------------------------------ reading

    /// The content of a file; `None` if there is none, or a directory, or a link, whose content is elsewhere
    /// (standard-agents FIL-4).
    pub async fn read(&self, path: &str) -> Result<Option<Bytes>, ToolError> {
        match self.keep.file(path_of(path)?.as_str()).await? {
            Some(FileEntry { blob: Some(blob), .. }) => self.keep.blob(&blob).await,
            _ => Ok(None),
        }
    }

    /// The content of a file as text; `None` as with [`ThreadFiles::read`]. What is not UTF-8 is an error.
    #[doc(alias = "cat")]
    pub async fn read_text(&self, path: &str) -> Result<Option<String>, ToolError> {
        let Some(bytes) = self.read(path).await? else { return Ok(None) };
        let text = String::from_utf8(bytes.into());
        text.map(Some).map_err(|_| {
            refused(
                "NotTextError",
                format!("{} is not text in UTF-8; read its bytes", path_of(path).map_or_else(|_| path.to_owned(), |path| path.to_string())),
            )
        })
    }

    /// The first lines of a text file; `None` as with [`ThreadFiles::read`].
    pub async fn head(&self, path: &str, lines: usize) -> Result<Option<String>, ToolError> {
        Ok(self.read_text(path).await?.map(|text| text.split_inclusive('\n').take(lines).collect()))
    }

    /// The last lines of a text file; `None` as with [`ThreadFiles::read`].
    pub async fn tail(&self, path: &str, lines: usize) -> Result<Option<String>, ToolError> {
        let Some(text) = self.read_text(path).await? else { return Ok(None) };
        let all = text.split_inclusive('\n').count();
        Ok(Some(text.split_inclusive('\n').skip(all.saturating_sub(lines)).collect()))
    }

    /// The entry of a path; `None` if there is none. The root always has one.
    pub async fn stat(&self, path: &str) -> Result<Option<FileEntry>, ToolError> {
        self.entry(&path_of(path)?).await
    }

    async fn entry(&self, path: &FilePath) -> Result<Option<FileEntry>, ToolError> {
        if path.is_root() {
            let epoch = toolwright_core::Timestamp(0);
            return Ok(Some(FileEntry { created_at: epoch, modified_at: epoch, ..directory(path, &*self.keep) }));
        }
        self.keep.file(path.as_str()).await
    }

    /// Whether there is a file, a link or a directory.
    pub async fn exists(&self, path: &str) -> Result<bool, ToolError> {
        Ok(self.stat(path).await?.is_some())
    }

    /// What a directory holds, by name, not what its directories hold.
    pub async fn list(&self, path: &str) -> Result<Vec<FileEntry>, ToolError> {
        let path = path_of(path)?;
        match self.entry(&path).await? {
            Some(entry) if entry.is_directory => {}
            Some(_) => return Err(not_a_directory(&path)),
            None => return Err(not_found(&path)),
        }
        let inside = path.inside();
        let (mut found, mut after): (Vec<FileEntry>, Option<String>) = (Vec::new(), None);
        loop {
            let page = self.keep.files(&inside, after.as_deref(), PAGE).await?;
            let Some(last) = page.last().filter(|_| page.len() == PAGE).map(|entry| entry.path.clone()) else {
                found.extend(page.into_iter().filter(|entry| is_direct(&inside, &entry.path)));
                break;
            };
            // A directory's own entries may be many pages: they are passed over at once.
            after = Some(match last.strip_prefix(&inside).and_then(|rest| rest.split_once('/')) {
                Some((name, _)) => behind(&format!("{inside}{name}/")),
                None => last,
            });
            found.extend(page.into_iter().filter(|entry| is_direct(&inside, &entry.path)));
        }
        // In the order of paths `a/` stands behind `a-`; a reader expects that of names.
        found.sort_by(|a, b| a.name().cmp(b.name()));
        Ok(found)
    }

    /// Everything in a directory, at every depth, by path; of a file, itself.
    pub async fn walk(&self, path: &str) -> Result<Walk, ToolError> {
        let path = path_of(path)?;
        let entry = self.entry(&path).await?.ok_or_else(|| not_found(&path))?;
        if entry.is_directory {
            return Ok(Walk::new(&self.keep, path.inside()));
        }
        Ok(Walk { keep: Arc::clone(&self.keep), prefix: String::new(), page: vec![entry].into_iter(), after: None, over: true })
    }

    /// What the thread's files come to.
    pub async fn stats(&self) -> Result<FileStats, ToolError> {
        let mut stats = FileStats::default();
        let mut walk = Walk::new(&self.keep, "/".to_owned());
        while let Some(entry) = walk.next().await? {
            if !entry.is_directory {
                stats.total_size = stats.total_size.saturating_add(counted(&entry).bytes);
                stats.file_count += 1;
            }
        }
        Ok(stats)
    }

    /// The content behind an address that results and messages hold, such as `blob:sha256:<hex>`; `None` if it is no such
    /// address or the thread does not keep that content.
    pub async fn content(&self, address: &str) -> Result<Option<Bytes>, ToolError> {
        match BlobRef::parse(address) {
            Some(BlobRef { id, .. }) => self.keep.blob(&id).await,
            None => Ok(None),
        }
    }

    /// A file as a part of a tool's result: a model that can see images or files sees it, and its bytes are kept once. `None` as
    /// with [`ThreadFiles::read`].
    pub async fn part(&self, path: &str) -> Result<Option<Part>, ToolError> {
        let Some(entry) = self.keep.file(path_of(path)?.as_str()).await? else { return Ok(None) };
        let Some(id) = entry.blob.clone() else { return Ok(None) };
        let address = BlobRef { id, size: Some(entry.size), media_type: None }.to_string();
        let name = entry.name().to_owned();
        Ok(Some(if entry.mime_type.starts_with("image/") {
            Part::Image { image: address, mime_type: Some(entry.mime_type) }
        } else {
            Part::File { data: address, mime_type: entry.mime_type, filename: Some(name) }
        }))
    }

    // ------------------------------------------------------------------------------------------------------------ writing

    /// Writes a file, in place of one that is there. Gives its entry.
    pub async fn write(&self, path: &str, content: impl Into<Content>) -> Result<FileEntry, ToolError> {
        self.write_with(path, content, FileOptions::default()).await
    }

    /// As [`ThreadFiles::write`], with a media type or metadata.
    pub async fn write_with(&self, path: &str, content: impl Into<Content>, options: FileOptions) -> Result<FileEntry, ToolError> {
        let path = path_of(path)?;
        let (bytes, plain) = match content.into() {
            Content::Text(text) => (Bytes::from(text), "text/plain"),
            Content::Bytes(bytes) => (bytes, "application/octet-stream"),
        };
        let (size, limit) = (bytes.len() as u64, self.keep.limits().file);
        if size > limit {
            return Err(refused("FileTooLargeError", format!("{path} would take {size} bytes, and a file may take {limit}")));
        }
        let mime_type = match options.mime_type {
            Some(given) => checked_media_type(&path, given)?,
            None => media_type_of(path.name()).unwrap_or(plain).to_owned(),
        };
        checked_metadata(&path, &options.metadata)?;
        let mut tree = self.keep.tree().lock().await;
        let now = self.keep.now();
        let entry = FileEntry {
            path: path.to_string(),
            mime_type,
            size,
            blob: Some(BlobId::of(&bytes)),
            location: None,
            is_directory: false,
            metadata: options.metadata,
            created_at: now,
            modified_at: now,
        };
        self.put(&mut tree, &path, entry, Some(bytes)).await
    }

    /// Makes an entry for content that is elsewhere, at an `https://`, `s3://` or `r2://` address (standard-agents FIL-6). Nothing
    /// is fetched.
    pub async fn link(&self, path: &str, location: &str, options: FileOptions) -> Result<FileEntry, ToolError> {
        let path = path_of(path)?;
        let known =
            ["https://", "s3://", "r2://"].into_iter().any(|scheme| location.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty()));
        if !known || location.len() > LONGEST_LOCATION || location.chars().any(|character| character.is_control() || character == ' ') {
            let shown = toolwright_core::bounded(location, 80);
            let message = format!("{shown:?} is no address to link {path} to; give one that begins with https://, s3:// or r2://");
            return Err(refused("InvalidLocationError", message));
        }
        let mime_type = match options.mime_type {
            Some(given) => checked_media_type(&path, given)?,
            None => media_type_of(path.name()).unwrap_or("application/octet-stream").to_owned(),
        };
        checked_metadata(&path, &options.metadata)?;
        let mut tree = self.keep.tree().lock().await;
        let now = self.keep.now();
        let entry = FileEntry {
            path: path.to_string(),
            mime_type,
            size: options.size.unwrap_or(0),
            blob: None,
            location: Some(location.to_owned()),
            is_directory: false,
            metadata: options.metadata,
            created_at: now,
            modified_at: now,
        };
        self.put(&mut tree, &path, entry, None).await
    }

    /// Makes a directory, and those above it. One that is there stays.
    pub async fn mkdir(&self, path: &str) -> Result<FileEntry, ToolError> {
        let path = path_of(path)?;
        let mut tree = self.keep.tree().lock().await;
        match self.entry(&path).await? {
            Some(entry) if entry.is_directory => Ok(entry),
            Some(_) => Err(exists(&path)),
            None => {
                let entry = directory(&path, &*self.keep);
                self.put(&mut tree, &path, entry, None).await
            }
        }
    }

    /// Removes a directory that is empty. Gives whether there was one.
    pub async fn rmdir(&self, path: &str) -> Result<bool, ToolError> {
        let path = path_of(path)?;
        if path.is_root() {
            return Err(refused("InvalidPathError", "the root can't be removed".to_owned()));
        }
        let mut tree = self.keep.tree().lock().await;
        match self.entry(&path).await? {
            None => return Ok(false),
            Some(entry) if !entry.is_directory => return Err(not_a_directory(&path)),
            Some(_) => {}
        }
        if !self.keep.files(&path.inside(), None, 1).await?.is_empty() {
            return Err(refused("DirectoryNotEmptyError", format!("{path} is not empty; remove what it holds first")));
        }
        self.change(&mut tree, vec![FileChange::Remove(path.to_string())], Used { bytes: 0, entries: 1 }, Used::default()).await?;
        Ok(true)
    }

    /// Removes a file or a link. Gives whether there was one. A directory is removed with [`ThreadFiles::rmdir`].
    #[doc(alias = "unlink")]
    pub async fn remove(&self, path: &str) -> Result<bool, ToolError> {
        let path = path_of(path)?;
        let mut tree = self.keep.tree().lock().await;
        let entry = match self.entry(&path).await? {
            None => return Ok(false),
            Some(entry) if entry.is_directory => return Err(is_a_directory(&path)),
            Some(entry) => entry,
        };
        self.change(&mut tree, vec![FileChange::Remove(path.to_string())], counted(&entry), Used::default()).await?;
        Ok(true)
    }

    /// Moves a file, or a directory with everything in it. Nothing may be at the target. Gives the entry at its new path
    /// (standard-agents FIL-5).
    #[doc(alias = "move")]
    pub async fn move_to(&self, from: &str, to: &str) -> Result<FileEntry, ToolError> {
        let (from, to) = (path_of(from)?, path_of(to)?);
        self.relocate(&from, &to).await
    }

    /// Gives a file or a directory another name in its directory (standard-agents FIL-5).
    pub async fn rename(&self, path: &str, name: &str) -> Result<FileEntry, ToolError> {
        let path = path_of(path)?;
        let parent = path.parent().ok_or_else(|| refused("InvalidPathError", "the root has no name".to_owned()))?;
        let to = parent.child(name).map_err(|error| refused("InvalidPathError", error.to_string()))?;
        self.relocate(&path, &to).await
    }

    async fn relocate(&self, from: &FilePath, to: &FilePath) -> Result<FileEntry, ToolError> {
        if from.is_root() || to.as_str().starts_with(&from.inside()) {
            return Err(refused("InvalidPathError", format!("{from} can't be moved into itself")));
        }
        let mut tree = self.keep.tree().lock().await;
        let entry = self.entry(from).await?.ok_or_else(|| not_found(from))?;
        if self.entry(to).await?.is_some() {
            return Err(exists(to));
        }
        let mut changes = self.missing_parents(to).await?;
        let made = Used { bytes: 0, entries: changes.len() as u64 };
        if made.entries > 0 {
            self.must_fit(&mut tree, to, Used::default(), made).await?;
        }
        if entry.is_directory {
            let mut walk = Walk::new(&self.keep, from.inside());
            while let Some(inner) = walk.next().await? {
                let rest = inner.path.strip_prefix(from.as_str()).unwrap_or_default();
                // A longer name for the directory may make a path in it too long.
                let path = path_of(&format!("{to}{rest}"))?.to_string();
                changes.push(FileChange::Remove(inner.path.clone()));
                changes.push(FileChange::Put(FileEntry { path, ..inner }));
            }
        }
        let moved = FileEntry { path: to.to_string(), ..entry };
        changes.push(FileChange::Remove(from.to_string()));
        changes.push(FileChange::Put(moved.clone()));
        self.change(&mut tree, changes, Used::default(), made).await?;
        Ok(moved)
    }

    /// Puts an entry, with the directories above it, if there is room.
    async fn put(
        &self,
        tree: &mut MutexGuard<'_, Tree>,
        path: &FilePath,
        mut entry: FileEntry,
        content: Option<Bytes>,
    ) -> Result<FileEntry, ToolError> {
        let mut freed = Used::default();
        match self.entry(path).await? {
            Some(there) if there.is_directory => return Err(is_a_directory(path)),
            Some(there) => {
                freed = counted(&there);
                entry.created_at = there.created_at;
            }
            None => {}
        }
        let mut changes = self.missing_parents(path).await?;
        let counts = counted(&entry);
        let taken = Used { bytes: counts.bytes, entries: counts.entries + changes.len() as u64 };
        self.must_fit(tree, path, freed, taken).await?;
        if let Some(content) = content {
            entry.blob = Some(self.keep.keep_blob(content).await?);
        }
        changes.push(FileChange::Put(entry.clone()));
        self.change(tree, changes, freed, taken).await?;
        Ok(entry)
    }

    /// The directories above a path that are not there yet.
    async fn missing_parents(&self, path: &FilePath) -> Result<Vec<FileChange>, ToolError> {
        let mut missing = Vec::new();
        let mut next = path.parent();
        while let Some(parent) = next.filter(|parent| !parent.is_root()) {
            match self.entry(&parent).await? {
                Some(entry) if entry.is_directory => break,
                Some(_) => return Err(not_a_directory(&parent)),
                None => missing.push(FileChange::Put(directory(&parent, &*self.keep))),
            }
            next = parent.parent();
        }
        Ok(missing)
    }

    async fn must_fit(&self, tree: &mut MutexGuard<'_, Tree>, path: &FilePath, freed: Used, taken: Used) -> Result<(), ToolError> {
        let used = if let Some(used) = tree.used {
            used
        } else {
            let mut used = Used::default();
            let mut walk = Walk::new(&self.keep, "/".to_owned());
            while let Some(entry) = walk.next().await? {
                used = used.and(counted(&entry));
            }
            *tree.used.insert(used)
        };
        let (after, limits) = (used.without(freed).and(taken), self.keep.limits());
        if after.bytes > limits.total && taken.bytes > freed.bytes {
            let message = format!(
                "{path} does not fit: the thread's files would take {} bytes, and {} are allowed; remove some",
                after.bytes, limits.total
            );
            return Err(refused("StorageFullError", message));
        }
        if after.entries > limits.entries && taken.entries > freed.entries {
            let message = format!(
                "{path} does not fit: the thread would have {} files and directories, and {} are allowed; remove some",
                after.entries, limits.entries
            );
            return Err(refused("StorageFullError", message));
        }
        Ok(())
    }

    async fn change(&self, tree: &mut MutexGuard<'_, Tree>, changes: Vec<FileChange>, freed: Used, taken: Used) -> Result<(), ToolError> {
        // Should it fail, or be dropped on the way, nobody knows what the files come to.
        let used = tree.used.take();
        self.keep.change_files(changes).await?;
        tree.used = used.map(|used| used.without(freed).and(taken));
        Ok(())
    }
}

impl Used {
    fn and(self, more: Self) -> Self {
        Self { bytes: self.bytes.saturating_add(more.bytes), entries: self.entries.saturating_add(more.entries) }
    }

    fn without(self, less: Self) -> Self {
        Self { bytes: self.bytes.saturating_sub(less.bytes), entries: self.entries.saturating_sub(less.entries) }
    }
}

/// Whether a path is directly in the directory whose paths begin with `inside`.
fn is_direct(inside: &str, path: &str) -> bool {
    path.strip_prefix(inside).is_some_and(|rest| !rest.is_empty() && !rest.contains('/'))
}

/// A text behind every path that begins with `prefix`, and before every other that comes behind those.
fn behind(prefix: &str) -> String {
    // No name in a path is as long, and no character is greater.
    format!("{prefix}{}", "\u{10ffff}".repeat(FilePath::MAX_NAME / 4 + 1))
}
