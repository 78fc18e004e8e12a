//! What a thread last read of a file, so that it overwrites nothing that it has not seen.
//!
//! It is kept among the thread's values, so that it is known after a crash as well. Before a change is made, what the file will
//! be is written down beside what it was: whichever of both is there afterwards, the thread has seen it.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use toolwright_host::files::RootedPath;
use toolwright_tool::core::CallId;
use toolwright_tool::{ToolContext, ToolError};

use super::{Workspace, refused};

/// What was seen of a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Seen {
    /// The hash of its content.
    sha256: String,
    /// The hash of its content before the call that made it so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    was: Option<String>,
    /// The call that made it so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    call: Option<String>,
}

/// The hash of content, in hexadecimal.
pub(super) fn hash(bytes: &[u8]) -> String {
    let mut hash = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        // Writing to a String can't fail.
        let _ = write!(hash, "{byte:02x}");
    }
    hash
}

/// A short name of the workspace: a thread may work in several.
pub(super) fn workspace_key(workspace: &Workspace) -> String {
    hash(workspace.root.folder().as_os_str().as_encoded_bytes()).chars().take(8).collect()
}

/// A path as part of a key, which may not be as long as a path.
pub(super) fn path_key(path: &RootedPath) -> String {
    if path.as_str().len() <= 300 { path.as_str().to_owned() } else { format!("sha256:{}", hash(path.as_str().as_bytes())) }
}

fn key(workspace: &Workspace, path: &RootedPath) -> String {
    format!("workspace.read/{}/{}", workspace_key(workspace), path_key(path))
}

async fn seen(workspace: &Workspace, cx: &ToolContext, path: &RootedPath) -> Result<Option<Seen>, ToolError> {
    // What somebody else put there is nothing that was seen.
    let value: Option<serde_json::Value> = cx.values().get(&key(workspace, path)).await?;
    Ok(value.and_then(|value| serde_json::from_value(value).ok()))
}

/// Notes that a file was read.
pub(super) async fn note(workspace: &Workspace, cx: &ToolContext, path: &RootedPath, content: &[u8]) -> Result<(), ToolError> {
    let sha256 = hash(content);
    if seen(workspace, cx, path).await?.is_some_and(|seen| seen.sha256 == sha256) {
        return Ok(());
    }
    cx.values().set(&key(workspace, path), &Seen { sha256, was: None, call: None }).await
}

/// Notes what a file will be once this call has changed it.
pub(super) async fn note_change(
    workspace: &Workspace,
    cx: &ToolContext,
    path: &RootedPath,
    before: Option<&[u8]>,
    after: &[u8],
) -> Result<(), ToolError> {
    let next = Seen { sha256: hash(after), was: before.map(hash), call: Some(cx.call_id().to_string()) };
    cx.values().set(&key(workspace, path), &next).await
}

/// Forgets a file that is gone.
pub(super) async fn forget(workspace: &Workspace, cx: &ToolContext, path: &RootedPath) -> Result<(), ToolError> {
    cx.values().remove(&key(workspace, path)).await
}

/// Refuses a change of a file that is not what the thread last saw of it. One that it never read is not refused.
pub(super) async fn check(workspace: &Workspace, cx: &ToolContext, path: &RootedPath, content: Option<&[u8]>) -> Result<(), ToolError> {
    let Some(seen) = seen(workspace, cx, path).await? else { return Ok(()) };
    match content.map(hash) {
        Some(now) if now == seen.sha256 || seen.was.as_ref() == Some(&now) => Ok(()),
        Some(_) => {
            Err(refused(format!("{path} changed since this thread last read it, so nothing was written; read it again, then change it")))
        }
        None => {
            // The next call knows that it is gone.
            forget(workspace, cx, path).await?;
            Err(refused(format!(
                "{path} is gone since this thread last read it, so nothing was written; write it again if it shall be there"
            )))
        }
    }
}

/// Whether a file is what this very call made it, in an attempt that was cut short.
pub(super) async fn is_done(
    workspace: &Workspace,
    cx: &ToolContext,
    call: &CallId,
    path: &RootedPath,
    content: Option<&[u8]>,
) -> Result<bool, ToolError> {
    let Some(seen) = seen(workspace, cx, path).await? else { return Ok(false) };
    Ok(seen.call.as_deref() == Some(call.as_str()) && content.map(hash) == Some(seen.sha256))
}
