//! What a model sees, made shorter: which results become markers and which messages one summary (sdk-runtime 29).
//!
//! Pure planning. A plan is cut only where calls and results stay paired: a turn with calls and all its results is one group,
//! which is folded as a whole or not at all, so a reply that is kept stands as its model wrote it, reasoning and signatures
//! included. [`apply`] gives the transcript that the fold of a [`crate::Compaction`] with the same plan gives. All of it takes
//! time linear in the messages.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;

use crate::ids::CallId;
use crate::message::{Author, Item, Message, Part};
use crate::record::Folded;
use crate::reshape::{SUMMARY_HEADER, Standing, is_pruned, prune, pruned_marker, standing, summary_message};
use crate::tokens;
use crate::transcript::Transcript;

/// The key of [`Message::metadata`] that keeps a message as it is.
pub const PINNED: &str = "pinned";

/// A copy that compaction keeps as it is (sdk-runtime CMP-11). A pinned reply keeps the results of its calls; pinned results,
/// in a history brought along, keep the reply that asked for them.
#[must_use]
pub fn pin_message(message: &Message) -> Message {
    let mut pinned = message.clone();
    pinned.metadata.insert(PINNED.to_owned(), Value::Bool(true));
    pinned
}

/// Whether compaction keeps a message as it is.
pub fn is_pinned(message: &Message) -> bool {
    message.metadata.get(PINNED) == Some(&Value::Bool(true))
}

/// Whether a message is a summary that stands for older ones.
pub fn is_summary(message: &Message) -> bool {
    let [Item::Text { text }] = message.items.as_slice() else { return false };
    message.author == Author::Human && text.strip_prefix(SUMMARY_HEADER).is_some_and(|rest| rest.starts_with('\n'))
}

/// Where the messages begin that are left as they are: the newest that fit into `tokens`, and everything after the last reply,
/// however much that is, so that the results a model has not answered stay whole. The last message is always among them.
/// Without a reply there is nothing to leave out (sdk-runtime CMP-4).
pub fn protected_from(messages: &Transcript, tokens: u64) -> usize {
    let (mut from, mut left) = (messages.len(), tokens);
    for message in messages.iter().rev() {
        let Some(rest) = left.checked_sub(tokens::of_message(message)) else { break };
        left = rest;
        from -= 1;
    }
    from.min(newest_from(messages))
}

/// Where the messages begin that no compaction touches.
fn newest_from(messages: &Transcript) -> usize {
    let after_reply = messages.iter().rposition(|message| is_reply(message)).map_or(0, |at| at + 1);
    after_reply.min(messages.len().saturating_sub(1))
}

fn is_reply(message: &Message) -> bool {
    !matches!(message.author, Author::Human | Author::Tool | Author::System) || message.calls().next().is_some()
}

/// A turn with calls and all its results; any other message by itself.
struct Group {
    start: usize,
    end: usize,
    pinned: bool,
    system: bool,
}

fn groups(messages: &Transcript) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut open = false;
    for (at, message) in messages.iter().enumerate() {
        let (pinned, system) = (is_pinned(message), message.author == Author::System);
        match groups.last_mut().filter(|_| open) {
            Some(group) => {
                group.end = at + 1;
                group.pinned |= pinned;
                group.system |= system;
            }
            None => groups.push(Group { start: at, end: at + 1, pinned, system }),
        }
        open = message.calls().next().is_some();
    }
    groups
}

/// The calls before `protected` whose results become markers: each result that the marker is shorter than. Pinned turns and
/// what is a marker already are left alone, so doing it twice changes nothing more (sdk-runtime CMP-5). A call id that a
/// history uses twice names no one result, so it is left alone too.
pub fn prunable(messages: &Transcript, protected: usize) -> Vec<CallId> {
    let protected = protected.min(newest_from(messages));
    let mut times: HashMap<&CallId, u32> = HashMap::new();
    for result in messages.iter().flat_map(|message| message.results()) {
        *times.entry(&result.call_id).or_default() += 1;
    }
    let mut calls = Vec::new();
    for group in groups(messages).iter().take_while(|group| group.start < protected).filter(|group| !group.pinned) {
        for message in (group.start..group.end.min(protected)).filter_map(|at| messages.get(at)) {
            for result in message.results() {
                if times.get(&result.call_id) == Some(&1) && !is_pruned(result) && marker_is_shorter(result) {
                    calls.push(result.call_id.clone());
                }
            }
        }
    }
    calls
}

fn marker_is_shorter(result: &crate::message::ResultItem) -> bool {
    let text = result.text();
    let characters = text.chars().count();
    let marker = pruned_marker(&result.tool_name, characters);
    let attached = result.parts.iter().any(|part| matches!(part, Part::Image { .. } | Part::File { .. }));
    let tokens = result.parts.iter().map(tokens::of_part).fold(0, u64::saturating_add);
    (attached || marker.chars().count() < characters) && tokens::of_text(&marker) < tokens
}

/// The ranges before `protected` that one summary can stand for: every whole group without a pinned or a system message
/// (sdk-runtime CMP-6). Empty where nothing but an earlier summary is left.
pub fn foldable(messages: &Transcript, protected: usize) -> Vec<(usize, usize)> {
    let protected = protected.min(newest_from(messages));
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for group in groups(messages).iter().take_while(|group| group.end <= protected) {
        if group.pinned || group.system {
            continue;
        }
        match ranges.last_mut().filter(|(_, end)| *end == group.start) {
            Some((_, end)) => *end = group.end,
            None => ranges.push((group.start, group.end)),
        }
    }
    let mut all = ranges.iter().flat_map(|(start, end)| *start..*end).filter_map(|at| messages.get(at));
    if all.all(|message| is_summary(message)) {
        ranges.clear();
    }
    ranges
}

/// The transcript with markers in place of the results of `pruned`, and then with a summary in place of what is folded.
///
/// Refused with a reason: a call without a result, a range that is none or tears a call from its result, one with a pinned or a
/// system message, and whatever touches the messages after the last reply.
pub fn apply(messages: &Transcript, pruned: &[CallId], folded: Option<&Folded>) -> Result<Transcript, String> {
    let newest = newest_from(messages);
    if !pruned.is_empty() {
        let wanted: HashSet<&CallId> = pruned.iter().collect();
        for group in groups(messages) {
            let results = || (group.start..group.end).filter_map(|at| messages.get(at).map(|message| (at, message)));
            let hit = |from: usize| {
                results().filter(|(at, _)| *at >= from).flat_map(|(_, message)| message.results()).find(|one| wanted.contains(&one.call_id))
            };
            if let Some(result) = hit(newest) {
                return Err(format!("the result of {} is one of the last reply's, which stay", result.call_id));
            }
            if let Some(result) = hit(0).filter(|_| group.pinned) {
                return Err(format!("the result of {} is pinned", result.call_id));
            }
        }
    }
    let mut transcript = messages.clone();
    prune(&mut transcript, pruned)?;
    let Some(folded) = folded else { return Ok(transcript) };
    if folded.summary.trim().is_empty() {
        return Err("the summary is empty".to_owned());
    }
    let mut out = Transcript::new();
    let mut next = 0;
    let mut check_gone = |up_to: usize| {
        for (at, message) in (next..up_to).filter_map(|at| transcript.get(at).map(|message| (at, message))) {
            if at >= newest {
                return Err(format!("the message {at} comes after the last reply, and stays"));
            }
            if is_pinned(message) || message.author == Author::System {
                return Err(format!("the message {at} is {}, and stays", if is_pinned(message) { "pinned" } else { "the system's" }));
            }
        }
        next = up_to + 1;
        Ok(())
    };
    for stands in standing(transcript.len(), folded)? {
        match stands {
            Standing::Summary => out.push(Arc::new(summary_message(&folded.summary))),
            Standing::Kept(at) => {
                check_gone(at)?;
                out.extend_one(transcript.get(at));
            }
        }
    }
    check_gone(transcript.len())?;
    out.check_balance().map_err(|error| error.to_string())?;
    Ok(out)
}

impl Transcript {
    fn extend_one(&mut self, message: Option<&Arc<Message>>) {
        if let Some(message) = message {
            self.push(Arc::clone(message));
        }
    }
}
