//! Making shorter what a model sees: by the core's own choice, or by any other that a journal may hold.

use std::sync::Arc;

use toolwright_core::compact::{foldable, protected_from, prunable};
use toolwright_core::{Author, CallId, Compaction, Folded, Message, Record, RecordBody, Thread, Timestamp, Transcript, Usage};

use super::rng::Rng;
use super::world::World;
use super::{Broken, broken};

impl World<'_> {
    /// Somebody makes shorter what a model sees of a thread at rest, or empties it.
    pub(super) fn somebody_tidies(&mut self) -> Result<(), Broken> {
        let fence = self.store.claim()?;
        let thread = self.store.load_saved(&mut self.rng, self.stats)?;
        let messages = thread.transcript().len() as u64;
        if messages > 0 && thread.run().is_none() && thread.open_calls().next().is_none() {
            let body = if self.rng.percent(25) {
                RecordBody::TranscriptReplaced { messages: Vec::new(), cleared: Some((self.store.thread.clone(), messages)) }
            } else {
                RecordBody::ContextCompacted(of(&thread, None, &mut self.rng))
            };
            self.tick();
            let record = Arc::new(Record { seq: thread.head().next(), at: Timestamp(self.now), run: None, body });
            let mut after = thread.clone();
            if let Err(misfit) = after.apply(&record) {
                return broken("a thread at rest may be made shorter", misfit.to_string());
            }
            self.store.append(fence, thread.head(), &[record], 0)?;
            self.stats.tidied += 1;
        }
        self.store.release(fence);
        Ok(())
    }
}

/// A choice of what to leave out: before the model call of a step, or of a thread at rest.
pub(super) fn of(thread: &Thread, step: Option<u32>, rng: &mut Rng) -> Compaction {
    let transcript = thread.transcript();
    let (mut pruned, mut ranges) = (Vec::new(), Vec::new());
    match rng.below(5) {
        // It finds nothing to leave out, or fails.
        0 => {}
        1 | 2 => {
            let protected = protected_from(transcript, rng.below(100));
            if rng.percent(70) {
                pruned = prunable(transcript, protected);
            }
            if rng.percent(50) {
                ranges = foldable(transcript, protected);
            }
        }
        _ => {
            let old = latest(transcript);
            pruned = any_results(transcript, old, rng);
            if rng.percent(50) {
                ranges = any_groups(transcript, old, rng);
            }
        }
    }
    let folded = (!ranges.is_empty()).then(|| Folded { ranges, summary: Arc::from(format!("the summary at {}", thread.head())) });
    let changes = !pruned.is_empty() || folded.is_some();
    Compaction {
        step,
        strategy: rng.pick(&["prune", "summarize", "two-phase"]).unwrap_or("prune").into(),
        tokens_before: 100,
        tokens_after: if changes { 50 } else { 100 },
        context_window: 200,
        threshold_tokens: 80,
        prune_only: folded.is_some() && rng.percent(20),
        usage: folded.is_some().then(|| Usage { input_tokens: rng.below(100), ..Usage::default() }),
        pruned,
        folded,
        error: rng.percent(10).then(|| "the summarizer gave nothing".to_owned()),
    }
}

/// What stands before may be made shorter: everything up to the last reply, but for one whose calls were just answered.
fn latest(transcript: &Transcript) -> usize {
    let reply = |message: &Arc<Message>| matches!(message.author, Author::SideA | Author::SideB);
    let Some(at) = transcript.iter().rposition(reply) else { return 0 };
    let asks = transcript.get(at).is_some_and(|message| message.calls().next().is_some());
    if asks { at } else { (at + 1).min(transcript.len().saturating_sub(1)) }
}

/// Results that are old, also such as are markers already.
fn any_results(transcript: &Transcript, old: usize, rng: &mut Rng) -> Vec<CallId> {
    let results = transcript.iter().take(old).flat_map(|message| message.results().map(|result| result.call_id.clone()));
    results.filter(|_| rng.percent(40)).collect()
}

/// Whole groups of calls and results, each a range of its own or together with its neighbours.
fn any_groups(transcript: &Transcript, old: usize, rng: &mut Rng) -> Vec<(usize, usize)> {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    let mut at = 0;
    while at < old {
        let asks = transcript.get(at).is_some_and(|message| message.calls().next().is_some());
        let end = at + if asks { 2 } else { 1 };
        if end <= old && rng.percent(50) {
            match ranges.last_mut() {
                Some(last) if last.1 == at && rng.percent(50) => last.1 = end,
                _ => ranges.push((at, end)),
            }
        }
        at = end;
    }
    ranges
}
