//! What a model should be told by now: the transcript, worked out from the records without the core's fold.

use std::collections::HashSet;
use std::sync::Arc;

use toolwright_core::{
    ApprovalMark, Author, CallId, Compaction, Message, Outcome, Part, ResultItem, RewrittenInput, SUMMARY_HEADER, ToolOutput, Transcript,
};

use super::super::{Broken, broken};

const TOLD: &str = "the transcript is what the records say";
const SHORTER: &str = "compaction leaves what no model has answered, and calls and results together";

/// A call's result, as it was recorded.
#[derive(Clone)]
pub(super) struct Told {
    pub(super) call: CallId,
    pub(super) tool: Arc<str>,
    pub(super) outcome: Outcome,
    pub(super) approval: Option<ApprovalMark>,
    pub(super) pruned: bool,
}

#[derive(Clone)]
enum Line {
    Message(Arc<Message>),
    Results(Vec<Told>),
    Summary(Arc<str>),
}

impl Line {
    fn asks(&self) -> bool {
        matches!(self, Self::Message(message) if message.calls().next().is_some())
    }

    fn is_reply(&self) -> bool {
        matches!(self, Self::Message(message) if matches!(message.author, Author::SideA | Author::SideB))
    }

    fn answers(&self) -> bool {
        match self {
            Self::Message(message) => message.results().next().is_some(),
            Self::Results(_) => true,
            Self::Summary(_) => false,
        }
    }
}

/// Whether a message came in from somebody.
pub(super) fn is_input(message: &Message) -> bool {
    matches!(message.author, Author::Human | Author::System)
}

/// The lines of a transcript.
#[derive(Default)]
pub(super) struct Script {
    lines: Vec<Line>,
}

impl Script {
    pub(super) fn message(&mut self, message: &Arc<Message>) {
        self.lines.push(Line::Message(Arc::clone(message)));
    }

    /// Results join, if a model asked for any. Gives whether it did.
    pub(super) fn results(&mut self, results: Vec<Told>) -> bool {
        let any = !results.is_empty();
        if any {
            self.lines.push(Line::Results(results));
        }
        any
    }

    /// How many lines at the end are input.
    pub(super) fn input_at_end(&self) -> usize {
        self.lines.iter().rev().take_while(|line| matches!(line, Line::Message(message) if is_input(message))).count()
    }

    /// The last lines are gone.
    pub(super) fn drop_last(&mut self, count: usize) {
        self.lines.truncate(self.lines.len().saturating_sub(count));
    }

    /// Guardrails changed the text of some of the last messages.
    pub(super) fn rewrite(&mut self, messages: usize, rewritten: &[RewrittenInput]) {
        let first = self.lines.len().saturating_sub(messages);
        for change in rewritten {
            if let Some(Line::Message(message)) = self.lines.get_mut(first + change.index) {
                *message = Arc::new(Message::text(message.author.clone(), change.text.to_string()));
            }
        }
    }

    /// The hashes of the arguments of a tool's calls that people approved, as their results say.
    pub(super) fn approved<'a>(&'a self, tool: &'a str) -> impl Iterator<Item = &'a str> {
        self.lines.iter().flat_map(move |line| {
            let marks: Vec<&ApprovalMark> = match line {
                Line::Results(results) => {
                    results.iter().filter(|told| *told.tool == *tool).filter_map(|told| told.approval.as_ref()).collect()
                }
                Line::Message(message) => {
                    message.results().filter(|result| result.tool_name == tool).filter_map(|result| result.approval.as_ref()).collect()
                }
                Line::Summary(_) => Vec::new(),
            };
            marks.into_iter().map(|mark| &*mark.args)
        })
    }

    pub(super) fn replace(&mut self, messages: &[Arc<Message>]) {
        self.lines = messages.iter().cloned().map(Line::Message).collect();
    }

    pub(super) fn ends_with_results(&self) -> bool {
        self.lines.last().is_some_and(Line::answers)
    }

    /// Whether the last line is something that a model has to answer.
    pub(super) fn awaits_reply(&self) -> bool {
        match self.lines.last() {
            Some(line) => !line.is_reply(),
            None => false,
        }
    }

    /// Another result for a call, in a fork.
    pub(super) fn replace_result(&mut self, call: &CallId, output: &Arc<ToolOutput>) {
        for line in &mut self.lines {
            let Line::Results(results) = line else { continue };
            for told in results.iter_mut().filter(|told| told.call == *call) {
                told.outcome = Outcome::Done { output: Arc::clone(output) };
                told.pruned = false;
            }
        }
    }

    pub(super) fn compact(&mut self, compaction: &Compaction) -> Result<(), Broken> {
        // What came after the last reply is not answered.
        let answered = self.lines.iter().rposition(Line::is_reply).unwrap_or(0);
        let wanted: HashSet<&CallId> = compaction.pruned.iter().collect();
        for (at, line) in self.lines.iter_mut().enumerate() {
            let hit = match line {
                Line::Results(results) => {
                    let mut hit = false;
                    for told in results.iter_mut().filter(|told| wanted.contains(&told.call)) {
                        told.pruned = true;
                        hit = true;
                    }
                    hit
                }
                Line::Message(message) if message.results().any(|result| wanted.contains(&result.call_id)) => {
                    let mut marked = (**message).clone();
                    for item in &mut marked.items {
                        if let toolwright_core::Item::ToolResult(result) = item
                            && wanted.contains(&result.call_id)
                        {
                            mark(result);
                        }
                    }
                    *message = Arc::new(marked);
                    true
                }
                _ => false,
            };
            if hit && at > answered {
                return broken(SHORTER, format!("results that no model has answered are pruned: {:?}", compaction.pruned));
            }
        }
        let Some(folded) = &compaction.folded else { return Ok(()) };
        let gone = |at: usize| folded.ranges.iter().any(|(start, end)| (*start..*end).contains(&at));
        let last = self.lines.len().saturating_sub(1);
        let mut kept = Vec::new();
        let mut summary = Some(Line::Summary(Arc::clone(&folded.summary)));
        for (at, line) in self.lines.iter().enumerate() {
            if !gone(at) {
                kept.push(line.clone());
                continue;
            }
            let torn = (line.asks() && !gone(at + 1)) || (line.answers() && (at == 0 || !gone(at - 1)));
            if torn || at == last || at > answered {
                return broken(SHORTER, format!("the messages {:?} of {} are folded", folded.ranges, last + 1));
            }
            kept.extend(summary.take());
        }
        self.lines = kept;
        Ok(())
    }

    /// Whether a transcript is what it should be; calls that are open have no results in either.
    pub(super) fn is_told(&self, transcript: &Transcript) -> Result<(), Broken> {
        if transcript.len() != self.lines.len() {
            return broken(TOLD, format!("it has {} messages, they say {}", transcript.len(), self.lines.len()));
        }
        for (at, (message, line)) in transcript.iter().zip(&self.lines).enumerate() {
            let same = match line {
                Line::Message(said) => Arc::ptr_eq(said, message) || said == message,
                Line::Summary(summary) => {
                    message.author == Author::Human && message.text_of().strip_prefix(SUMMARY_HEADER).map(str::trim_start) == Some(summary)
                }
                Line::Results(results) => {
                    message.author == Author::Tool
                        && message.items.len() == results.len()
                        && message.results().zip(results).all(|(there, told)| told.is(there))
                }
            };
            if !same {
                return broken(TOLD, format!("message {at} is {message:?}"));
            }
        }
        Ok(())
    }
}

impl Told {
    fn is(&self, there: &ResultItem) -> bool {
        let (parts, failed) = match &self.outcome {
            Outcome::Done { output } if output.parts().is_empty() => (vec![Part::Json { value: serde_json::Value::Null }], None),
            Outcome::Done { output } => (output.parts().to_vec(), None),
            Outcome::Failed { failure } => {
                (vec![Part::Json { value: serde_json::to_value(&**failure).unwrap_or_default() }], Some(failure.kind.clone()))
            }
        };
        let mut whole = ResultItem {
            call_id: self.call.clone(),
            provider_id: there.provider_id.clone(),
            tool_name: self.tool.to_string(),
            parts,
            failed,
            approval: self.approval.clone(),
            marks: there.marks.clone(),
        };
        if self.pruned {
            mark(&mut whole);
        }
        whole == *there
    }
}

/// A marker in place of a result, once.
fn mark(result: &mut ResultItem) {
    let text = result.text();
    if !text.starts_with("[pruned: ") {
        result.parts = vec![Part::text(format!("[pruned: {} result, {} chars]", result.tool_name, text.chars().count()))];
    }
}
