//! Searching a thread's files: by what they say, and by their paths.

use std::future::poll_fn;
use std::task::Poll;

use serde::Serialize;
use toolwright_core::FileEntry;
use toolwright_core::query::Query;

use super::glob::Glob;
use super::{ThreadFiles, Walk, is_text, refused};
use crate::error::ToolError;

/// A file whose text matches a query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GrepHit {
    /// Its path.
    pub path: String,
    /// Its name.
    pub name: String,
    /// The lines on which the query hits, the first hundred; of a long line the part around the hit.
    pub matches: Vec<String>,
    /// Their numbers, from 1.
    pub line_numbers: Vec<usize>,
}

/// What is looked for by path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileKind {
    /// Files and links.
    File,
    /// Directories.
    Directory,
    /// All of them.
    #[default]
    All,
}

impl ThreadFiles {
    /// Full-text search: the files in `under` (a directory at every depth, or one file) whose text matches, by path, at most
    /// `limit` of them. See [`toolwright_core::query`] for the language (standard-agents FIL-8).
    ///
    /// Only text is searched: files whose media type is one of text, which are valid UTF-8 and not larger than
    /// [`crate::KeepLimits::searched`]. Links are not followed.
    pub async fn grep(&self, query: &str, under: &str, limit: usize) -> Result<Vec<GrepHit>, ToolError> {
        let query = Query::parse(query).map_err(|error| refused("QuerySyntaxError", error.to_string()))?;
        let largest = self.keep.limits().searched;
        let mut found = Vec::new();
        let mut walk = match self.walk(under).await {
            // A place where nothing is has no hits.
            Err(error) if error.name() == "FileNotFoundError" => return Ok(found),
            walk => walk?,
        };
        while found.len() < limit {
            let Some(entry) = walk.next().await? else { break };
            let Some(blob) = entry.blob.as_ref().filter(|_| is_text(&entry.mime_type) && entry.size <= largest) else { continue };
            let Some(bytes) = self.keep.blob(blob).await? else { continue };
            let Ok(text) = std::str::from_utf8(&bytes) else { continue };
            let hits = query.matches(text);
            // A search through much text lets others run, and can be stopped.
            yield_now().await;
            if hits.is_empty() {
                continue;
            }
            let (line_numbers, matches) = hits.into_iter().map(|hit| (hit.line, hit.text)).unzip();
            found.push(GrepHit { name: entry.name().to_owned(), path: entry.path, matches, line_numbers });
        }
        Ok(found)
    }

    /// The entries whose paths match a glob, by path, at most `limit` of them (standard-agents FIL-8).
    ///
    /// `*` is any part of a name, `?` one character, `**` any number of directories, `[a-z]` one of these characters and `[!a-z]`
    /// one of the others, `{a,b}` either; `\` takes the next character as it is. Letters count as they are written. A glob without `/` is matched
    /// with names at every depth, one with `/` with whole paths from the root.
    pub async fn find(&self, glob: &str, kind: FileKind, limit: usize) -> Result<Vec<FileEntry>, ToolError> {
        let glob = Glob::parse(glob).map_err(|why| {
            let shown = toolwright_core::bounded(glob, 80);
            refused("GlobSyntaxError", format!("the glob {shown:?} is not valid: {why}"))
        })?;
        let (mut found, mut seen) = (Vec::new(), 0_u32);
        let mut walk = Walk::new(&self.keep, glob.prefix().to_owned());
        while found.len() < limit {
            let Some(entry) = walk.next().await? else { break };
            let wanted = match kind {
                FileKind::File => !entry.is_directory,
                FileKind::Directory => entry.is_directory,
                FileKind::All => true,
            };
            seen += 1;
            if seen.is_multiple_of(256) {
                yield_now().await;
            }
            if wanted && glob.is_match(&entry.path) {
                found.push(entry);
            }
        }
        Ok(found)
    }
}

/// Lets others run once.
async fn yield_now() {
    let mut yielded = false;
    poll_fn(|cx| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
