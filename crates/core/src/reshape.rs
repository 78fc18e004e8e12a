//! What changes a transcript other than by adding to it: compaction, and the patches of a fork.
//!
//! The journal keeps everything; these folds change what a model sees. Calls and results stay paired in each of them.

use std::collections::HashSet;
use std::sync::Arc;

use crate::checked::is_input;
use crate::ids::{CallId, Seq};
use crate::message::{Author, Item, Message, Part, ResultItem};
use crate::output::ToolOutput;
use crate::record::{Compaction, Folded};
use crate::saved::Origin;
use crate::state::{CallState, LastRun, parts_of};
use crate::thread::Thread;
use crate::transcript::Transcript;

/// The first line of a summary that stands for older messages (sdk-runtime CMP-6).
pub const SUMMARY_HEADER: &str = "[Conversation summary]";

/// What stands for a pruned result (sdk-runtime CMP-5).
pub fn pruned_marker(tool: &str, characters: usize) -> String {
    format!("[pruned: {tool} result, {characters} chars]")
}

/// The message that stands for folded ones.
pub(crate) fn summary_message(summary: &str) -> Message {
    Message::text(Author::Human, format!("{SUMMARY_HEADER}\n{summary}"))
}

impl Thread {
    pub(crate) fn compact(&mut self, seq: Seq, compaction: &Compaction) -> Result<(), String> {
        if !self.turn.is_empty() {
            return Err("calls of the last turn have no result yet".to_owned());
        }
        // Worked out beside the thread, so that a record that does not fit changes nothing.
        let (mut transcript, mut origins) = (self.transcript.clone(), self.origins.clone());
        prune(&mut transcript, &compaction.pruned)?;
        if let Some(folded) = &compaction.folded {
            fold_ranges(&mut transcript, &mut origins, folded, seq)?;
            transcript.check_balance().map_err(|error| error.to_string())?;
        }
        (self.transcript, self.origins) = (transcript, origins);
        // What became part of a summary is input no longer.
        let tail = self.origins.iter().rev().take(self.unchecked);
        self.unchecked = tail.take_while(|origin| !matches!(origin, Origin::Summary(_))).count();
        if !compaction.pruned.is_empty() || compaction.folded.is_some() {
            self.measured = None;
        }
        if let Some(step) = compaction.step {
            self.compacted_for = step;
        }
        if let Some(run) = self.run.as_mut() {
            run.prune_only |= compaction.prune_only;
            if let Some(usage) = &compaction.usage {
                run.usage = Some(run.usage.unwrap_or_default().plus(usage));
                run.spent.add(Some(usage));
            }
        } else if let Some(usage) = &compaction.usage {
            self.spent_in_all.add(Some(usage));
        }
        Ok(())
    }

    /// What was copied from another thread becomes this one's past: nothing that the source waits for is decided here, and
    /// nobody goes on with its run but whoever resumes the fork (sdk-runtime HIS-8, FRK-10).
    pub(crate) fn become_fork(&mut self) {
        self.queued.clear();
        #[cfg(feature = "planted-bugs")]
        let keeps = self.planted == Some(crate::thread::FoldBug::ForkKeepsApprovals);
        for call in self.calls.values_mut() {
            #[cfg(feature = "planted-bugs")]
            if keeps {
                continue;
            }
            if matches!(call.state, CallState::Executing { .. } | CallState::Done) {
                continue;
            }
            // What has not begun comes before the gate again, as that is now. A body that had begun is for its tool to say, whatever
            // was asked or decided about it since.
            call.state = match call.attempts {
                0 => CallState::Opened,
                attempt => CallState::Executing { attempt },
            };
            call.decision = None;
            call.votes.clear();
            call.covered = None;
        }
        if self.step.as_ref().is_some_and(|step| !step.replied) {
            // A model call that the source had not heard the end of.
            self.step = None;
            self.last_step = self.last_step.saturating_sub(1);
            self.steps_taken = self.steps_taken.saturating_sub(1);
            if let Some(run) = self.run.as_mut() {
                run.spent.steps = run.spent.steps.saturating_sub(1);
            }
            // No model has answered it, and whoever goes on may have other guardrails.
            self.unchecked = self.input_at_end();
        } else if self.turn.is_empty()
            && (self.step.as_ref().is_some_and(|step| step.finish.is_none())
                || self.transcript.last().is_some_and(|last| last.author != Author::Tool))
        {
            // The model's last word was recorded, or withheld; the step has nothing left to do.
            self.step = None;
        }
        if let Some(last) = &mut self.last_run {
            last.principal = None;
        }
        self.ended_direct = false;
        self.forked_open = true;
        if let Some(run) = self.run.take() {
            self.count_run(&run, &crate::finish::FinishReason::Aborted, self.last_at);
            self.last_run = Some(LastRun {
                since: run.since,
                text_at: run.text_at,
                id: run.id,
                finish: crate::finish::FinishReason::Aborted,
                text: run.text,
                usage: run.usage,
                model_calls: run.model_calls,
                ending: None,
                added: run.added,
                principal: None,
                metadata: run.metadata,
            });
        }
    }

    pub(crate) fn replace_transcript(&mut self, seq: Seq, messages: &[Arc<Message>]) -> Result<(), String> {
        if !self.turn.is_empty() {
            return Err("calls of the last turn have no result yet".to_owned());
        }
        let transcript: Transcript = messages.iter().cloned().collect();
        transcript.check_balance().map_err(|error| error.to_string())?;
        self.used_ids.extend(messages.iter().flat_map(|message| message.calls()).map(|call| call.call_id.clone()));
        self.origins = (0..messages.len()).map(|index| Origin::Part(seq, index)).collect();
        self.transcript = transcript;
        self.measured = None;
        self.unchecked = messages.iter().rev().take_while(|message| is_input(message)).count();
        Ok(())
    }

    pub(crate) fn replace_result(&mut self, seq: Seq, call: &CallId, output: &ToolOutput) -> Result<(), String> {
        let (at, message, item) = find_result(&self.transcript, call)?;
        let mut message = (**message).clone();
        let Some(Item::ToolResult(result)) = message.items.get_mut(item) else { return Err(format!("the call {call} has no result")) };
        result.parts = parts_of(output);
        result.failed = None;
        result.marks = crate::taint::Marks::default();
        match self.origins.get_mut(at) {
            Some(Origin::Results(results)) => {
                let origin = results.get_mut(item).filter(|origin| origin.call == *call).ok_or("the result came from elsewhere")?;
                origin.at = seq;
            }
            _ => return Err(format!("the result of {call} was brought along, not made here")),
        }
        self.measured = None;
        self.transcript.set(at, Arc::new(message));
        Ok(())
    }
}

/// Where the result of `call` stands: the message's index, the message, the item's index.
fn find_result<'a>(transcript: &'a Transcript, call: &CallId) -> Result<(usize, &'a Arc<Message>, usize), String> {
    transcript
        .iter()
        .enumerate()
        .rev()
        .find_map(|(at, message)| {
            let item = message.items.iter().position(|item| matches!(item, Item::ToolResult(result) if result.call_id == *call))?;
            Some((at, message, item))
        })
        .ok_or_else(|| format!("the call {call} has no result in the transcript"))
}

/// Markers in place of the results of `calls`.
pub(crate) fn prune(transcript: &mut Transcript, calls: &[CallId]) -> Result<(), String> {
    if calls.is_empty() {
        return Ok(());
    }
    let wanted: HashSet<&CallId> = calls.iter().collect();
    let (mut found, mut marked) = (HashSet::new(), Vec::new());
    for (at, message) in transcript.iter().enumerate() {
        let hits: Vec<&CallId> = message.results().map(|result| &result.call_id).filter(|call| wanted.contains(call)).collect();
        if !hits.is_empty() {
            found.extend(hits);
            let mut changed = (**message).clone();
            mark_pruned(&mut changed, |id| wanted.contains(id));
            marked.push((at, Arc::new(changed)));
        }
    }
    if let Some(call) = calls.iter().find(|call| !found.contains(call)) {
        return Err(format!("the call {call} has no result in the transcript"));
    }
    for (at, message) in marked {
        transcript.set(at, message);
    }
    Ok(())
}

/// Whether a result is a marker already.
pub(crate) fn is_pruned(result: &ResultItem) -> bool {
    let [Part::Text { text }] = result.parts.as_slice() else { return false };
    let rest = text.strip_prefix("[pruned: ").and_then(|rest| rest.strip_prefix(result.tool_name.as_str()));
    let count = rest.and_then(|rest| rest.strip_prefix(" result, ")).and_then(|rest| rest.strip_suffix(" chars]"));
    count.is_some_and(|count| !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Markers in place of those results of a message that are pruned.
pub(crate) fn mark_pruned(message: &mut Message, pruned: impl Fn(&CallId) -> bool) {
    for item in &mut message.items {
        if let Item::ToolResult(result) = item
            && pruned(&result.call_id)
            && !is_pruned(result)
        {
            result.parts = vec![Part::text(pruned_marker(&result.tool_name, result.text().chars().count()))];
        }
    }
}

/// What stands in a transcript after messages were folded.
pub(crate) enum Standing {
    /// A message that was there.
    Kept(usize),
    /// The summary.
    Summary,
}

/// What stands in a transcript of `len` messages once some of them are folded.
pub(crate) fn standing(len: usize, folded: &Folded) -> Result<Vec<Standing>, String> {
    let Some((first, _)) = folded.ranges.first().copied() else { return Err("nothing is folded".to_owned()) };
    let (mut standing, mut from) = (Vec::new(), 0);
    for (start, end) in folded.ranges.iter().copied() {
        if start < from || end <= start || end > len {
            return Err(format!("the messages {start} to {end} can't be folded"));
        }
        standing.extend((from..start).map(Standing::Kept));
        if start == first {
            standing.push(Standing::Summary);
        }
        from = end;
    }
    standing.extend((from..len).map(Standing::Kept));
    Ok(standing)
}

fn fold_ranges(transcript: &mut Transcript, origins: &mut Vec<Origin>, folded: &Folded, seq: Seq) -> Result<(), String> {
    let (mut messages, mut kept) = (Transcript::new(), Vec::new());
    for stands in standing(transcript.len(), folded)? {
        match stands {
            Standing::Summary => {
                messages.push(Arc::new(summary_message(&folded.summary)));
                kept.push(Origin::Summary(seq));
            }
            Standing::Kept(at) => {
                let (Some(message), Some(origin)) = (transcript.get(at), origins.get(at)) else { continue };
                messages.push(Arc::clone(message));
                kept.push(origin.clone());
            }
        }
    }
    (*transcript, *origins) = (messages, kept);
    Ok(())
}
