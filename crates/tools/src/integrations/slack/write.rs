//! Messages.

use std::sync::Arc;

use serde_json::{Value, json};
use toolwright_tool::{Tool, ToolError, args};

use super::names::{escaped, timestamp};
use super::{Limits, ask};
use crate::integrations::http::Call;
use crate::integrations::option::OptionError;
use crate::integrations::set::{Access, Hub, ToolSet};
use crate::integrations::shape::{at, compact};

/// The longest text that Slack keeps, in characters; it cuts the rest off without a word.
const LONGEST_TEXT: usize = 40_000;

pub(super) fn tools(set: &ToolSet, limits: &Arc<Limits>) -> Result<Vec<Tool>, OptionError> {
    Ok(vec![
        set.tool_with(limits, "post_slack_message", "Posts a message in a Slack channel.", Access::Adds, post)?,
        set.tool_with(limits, "reply_in_slack_thread", "Replies in a thread of a Slack channel.", Access::Adds, reply)?,
    ])
}

/// A message.
#[args]
pub(super) struct Post {
    /// Id of the channel.
    channel: String,
    /// The text.
    #[arg(length(min = 1, max = 40000))]
    text: String,
}

/// A reply.
#[args]
pub(super) struct Reply {
    /// Id of the channel.
    channel: String,
    /// The `ts` of the message that began the thread.
    thread: String,
    /// The text.
    #[arg(length(min = 1, max = 40000))]
    text: String,
}

async fn post(hub: Hub, limits: Arc<Limits>, args: Post) -> Result<Value, ToolError> {
    let channel = limits.channel(&args.channel)?;
    let subject = format!("channel {channel}");
    send(&hub, &channel, None, &args.text, format!("post in {subject}"), subject).await
}

async fn reply(hub: Hub, limits: Arc<Limits>, args: Reply) -> Result<Value, ToolError> {
    let channel = limits.channel(&args.channel)?;
    let thread = timestamp(&args.thread, "thread")?;
    let subject = format!("thread {thread} in channel {channel}");
    send(&hub, &channel, Some(&thread), &args.text, format!("reply in {subject}"), subject).await
}

async fn send(hub: &Hub, channel: &str, thread: Option<&str>, text: &str, action: String, subject: String) -> Result<Value, ToolError> {
    let text = escaped(text);
    if text.trim().is_empty() {
        return Err(ToolError::invalid("text", "is what the message says, so it can't be empty"));
    }
    if text.chars().count() > LONGEST_TEXT {
        return Err(ToolError::invalid("text", format!("is longer than the {LONGEST_TEXT} characters that Slack keeps; post it in parts")));
    }
    let url = hub.api.url(["chat.postMessage"], &[])?;
    let body = compact(json!({ "channel": channel, "text": text, "thread_ts": thread }));
    let made = ask(&hub.session(), Call::post(url, &body, action, subject)).await?.unwrap_or_default();
    Ok(json!({ "posted": true, "channel": at(&made, "/channel"), "ts": at(&made, "/ts"), "thread": thread }))
}
