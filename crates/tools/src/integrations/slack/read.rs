//! Channels, and what was said in them.

use std::sync::Arc;

use serde_json::{Value, json};
use toolwright_tool::{Tool, ToolError, args};

use super::names::{timestamp, unescaped};
use super::{Limits, ask};
use crate::integrations::http::Call;
use crate::integrations::option::OptionError;
use crate::integrations::set::{Access, Hub, ToolSet};
use crate::integrations::shape::{at, items, short, shortened, text};

/// The longest message that a model gets, in characters.
const LONGEST_MESSAGE: usize = 4000;

pub(super) fn tools(set: &ToolSet, limits: &Arc<Limits>) -> Result<Vec<Tool>, OptionError> {
    let history_says = "Reads the messages of a Slack channel, newest first.";
    let thread_says = "Reads the messages of a thread in a Slack channel, oldest first.";
    Ok(vec![
        set.tool_with(limits, "list_slack_channels", "Lists Slack's channels with their ids.", Access::Reads, list)?,
        set.tool_with(limits, "read_slack_history", history_says, Access::Reads, history)?,
        set.tool_with(limits, "read_slack_thread", thread_says, Access::Reads, thread)?,
    ])
}

/// A list of channels.
#[args]
pub(super) struct ListChannels {
    /// How many at once.
    #[arg(default = 100, range(min = 1, max = 200))]
    limit: u32,
    /// From the result before, to go on.
    cursor: Option<String>,
}

/// What was said in a channel.
#[args]
pub(super) struct History {
    /// Id of the channel.
    channel: String,
    /// How many messages at once.
    #[arg(default = 15, range(min = 1, max = 100))]
    limit: u32,
    /// Only messages after this `ts`.
    after: Option<String>,
    /// From the result before, to go on.
    cursor: Option<String>,
}

/// What was said in a thread.
#[args]
pub(super) struct Replies {
    /// Id of the channel.
    channel: String,
    /// The `ts` of the message that began the thread.
    thread: String,
    /// How many messages at once.
    #[arg(default = 15, range(min = 1, max = 100))]
    limit: u32,
    /// From the result before, to go on.
    cursor: Option<String>,
}

fn next_cursor(body: &Value) -> Option<&str> {
    text(body, "/response_metadata/next_cursor").filter(|cursor| !cursor.is_empty())
}

fn messages(body: &Value) -> Value {
    let shown = items(body, "/messages").iter().map(|message| {
        let by = text(message, "/user").or_else(|| text(message, "/username")).or_else(|| text(message, "/bot_id"));
        let files: Vec<Value> = items(message, "/files").iter().map(|file| at(file, "/name")).filter(|name| !name.is_null()).collect();
        json!({
            "ts": at(message, "/ts"),
            "user": by,
            "text": text(message, "/text").map(|text| shortened(&unescaped(text), LONGEST_MESSAGE)),
            "kind": at(message, "/subtype"),
            "thread": text(message, "/thread_ts").filter(|thread| text(message, "/ts") != Some(thread)),
            "replies": at(message, "/reply_count"),
            "files": if files.is_empty() { Value::Null } else { files.into() },
        })
    });
    json!({ "messages": shown.collect::<Vec<_>>(), "next_cursor": next_cursor(body) })
}

async fn list(hub: Hub, limits: Arc<Limits>, args: ListChannels) -> Result<Value, ToolError> {
    let limit = args.limit.to_string();
    let mut query = vec![("types", "public_channel,private_channel"), ("exclude_archived", "true"), ("limit", &*limit)];
    if let Some(cursor) = &args.cursor {
        query.push(("cursor", cursor));
    }
    let url = hub.api.url(["conversations.list"], &query)?;
    let body = ask(&hub.session(), Call::get(url, "list the channels", "channels")).await?.unwrap_or_default();
    let usable = |channel: &&Value| limits.channels.as_ref().is_none_or(|ids| text(channel, "/id").is_some_and(|id| ids.contains(id)));
    let channels = items(&body, "/channels").iter().filter(usable).map(|channel| {
        json!({
            "id": at(channel, "/id"),
            "name": at(channel, "/name"),
            "purpose": text(channel, "/purpose/value").filter(|purpose| !purpose.is_empty()).map(|_| short(channel, "/purpose/value", 300)),
            "members": at(channel, "/num_members"),
            "is_member": at(channel, "/is_member"),
        })
    });
    Ok(json!({ "channels": channels.collect::<Vec<_>>(), "next_cursor": next_cursor(&body) }))
}

async fn history(hub: Hub, limits: Arc<Limits>, args: History) -> Result<Value, ToolError> {
    let channel = limits.channel(&args.channel)?;
    let after = args.after.as_deref().map(|after| timestamp(after, "after")).transpose()?;
    let limit = args.limit.to_string();
    let mut query = vec![("channel", channel.as_str()), ("limit", &limit)];
    query.extend(after.as_deref().map(|after| ("oldest", after)));
    query.extend(args.cursor.as_deref().map(|cursor| ("cursor", cursor)));
    let url = hub.api.url(["conversations.history"], &query)?;
    let subject = format!("channel {channel}");
    let body = ask(&hub.session(), Call::get(url, format!("read {subject}"), subject)).await?.unwrap_or_default();
    Ok(messages(&body))
}

async fn thread(hub: Hub, limits: Arc<Limits>, args: Replies) -> Result<Value, ToolError> {
    let channel = limits.channel(&args.channel)?;
    let thread = timestamp(&args.thread, "thread")?;
    let limit = args.limit.to_string();
    let mut query = vec![("channel", channel.as_str()), ("ts", &thread), ("limit", &limit)];
    query.extend(args.cursor.as_deref().map(|cursor| ("cursor", cursor)));
    let url = hub.api.url(["conversations.replies"], &query)?;
    let subject = format!("thread {thread} in channel {channel}");
    let body = ask(&hub.session(), Call::get(url, format!("read {subject}"), subject)).await?.unwrap_or_default();
    Ok(messages(&body))
}
