//! Uploading a file.

use std::sync::Arc;

use serde_json::{Value, json};
use toolwright_tool::{Tool, ToolError, args};
use url::Url;

use super::names::{escaped, timestamp};
use super::{Limits, ask};
use crate::integrations::http::{Call, is_this_machine};
use crate::integrations::option::OptionError;
use crate::integrations::refused;
use crate::integrations::set::{Access, Hub, ToolSet};
use crate::integrations::shape::{at, compact, text};

pub(super) fn tool(set: &ToolSet, limits: &Arc<Limits>) -> Result<Tool, OptionError> {
    let says = "Shares a file in a Slack channel: a file of the thread by its path, or a text of its own.";
    set.tool_with(limits, "upload_slack_file", says, Access::Adds, upload)
}

/// A file to share.
#[args]
pub(super) struct Upload {
    /// Id of the channel.
    channel: String,
    /// Path of a file of the thread.
    path: Option<String>,
    /// The content, instead of a path.
    content: Option<String>,
    /// Name of the file; that of the path if left out.
    name: Option<String>,
    /// What to say with it.
    comment: Option<String>,
    /// The `ts` of the message that began a thread, to share it there.
    thread: Option<String>,
}

async fn upload(hub: Hub, limits: Arc<Limits>, args: Upload) -> Result<Value, ToolError> {
    let channel = limits.channel(&args.channel)?;
    let thread = args.thread.as_deref().map(|thread| timestamp(thread, "thread")).transpose()?;
    let (content, own_name) = match (&args.path, &args.content) {
        (Some(path), None) => {
            let found = hub.cx.files().read(path).await?;
            let content = found.ok_or_else(|| ToolError::invalid("path", "names no file of the thread whose content is kept"))?;
            (content, path.rsplit('/').next().unwrap_or_default().to_owned())
        }
        (None, Some(content)) => (content.clone().into_bytes().into(), "text.txt".to_owned()),
        (Some(_), Some(_)) => return Err(ToolError::invalid("content", "stands beside a path; give one of them")),
        (None, None) => return Err(ToolError::invalid("path", "is missing: give the path of a file, or content")),
    };
    let name = args.name.unwrap_or(own_name);
    if name.trim().is_empty() || name.chars().count() > 200 || name.contains(['/', '\\']) || name.chars().any(char::is_control) {
        return Err(ToolError::invalid("name", "is a file's name without folders, at most 200 characters"));
    }
    if content.is_empty() {
        return Err(ToolError::invalid("path", "leads to an empty file, which Slack does not take"));
    }
    if content.len() as u64 > limits.largest_file {
        let (length, most) = (content.len(), limits.largest_file);
        return Err(ToolError::new(format!("`{name}` has {length} bytes, and {most} may be uploaded")).named("FileTooLargeError"));
    }
    let session = hub.session();
    let (action, subject) = (format!("share `{name}` in channel {channel}"), format!("channel {channel}"));
    // Until the last of the three requests nobody sees anything, so the first two may be sent again.
    let length = content.len().to_string();
    let url = hub.api.url(["files.getUploadURLExternal"], &[("filename", &name), ("length", &length)])?;
    let place = ask(&session, Call::get(url, &action, &subject)).await?.unwrap_or_default();
    let id = text(&place, "/file_id").unwrap_or_default().to_owned();
    let there = upload_address(&hub, text(&place, "/upload_url").unwrap_or_default()).filter(|_| !id.is_empty());
    let there = there.ok_or_else(|| refused::failed(&action, "Slack gave no place to upload to that can be used; try again later"))?;
    session.ask(Call::upload(there, content, &action, &subject)).await?;
    let url = hub.api.url(["files.completeUploadExternal"], &[])?;
    let body = compact(json!({
        "files": [{ "id": id, "title": name }],
        "channel_id": channel,
        "initial_comment": args.comment.as_deref().filter(|comment| !comment.trim().is_empty()).map(escaped),
        "thread_ts": thread,
    }));
    let made = ask(&session, Call::post(url, &body, action, subject)).await?.unwrap_or_default();
    Ok(json!({ "shared": true, "file": id, "name": name, "url": at(&made, "/files/0/permalink") }))
}

/// Where the bytes go: Slack says where, and they go there encrypted, unless Slack's API itself is on this machine.
fn upload_address(hub: &Hub, given: &str) -> Option<Url> {
    let url = Url::parse(given).ok()?;
    let local = is_this_machine(&url) && hub.api.is_on_this_machine();
    let fits = (url.scheme() == "https" || (url.scheme() == "http" && local)) && url.username().is_empty() && url.password().is_none();
    fits.then_some(url)
}
