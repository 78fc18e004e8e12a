//! Forks: a thread that goes on from any place in the past of another, which does not notice.

use std::collections::HashSet;
use std::sync::Arc;

use toolwright_core::{
    CallId, CallState, InputId, InputMode, Message, Outcome, Record, RecordBody, Seq, Thread, ThreadId, Timestamp, ToolOutput, Transcript,
};
use toolwright_runtime::{MemoryStore, Shelf, Store as _};

use super::rng::Rng;
use super::store::{Store, done};
use super::world::World;
use super::{Broken, broken};

const COPIED: &str = "a copied journal folds without misfit";
const ALONE: &str = "a fork leaves its source alone";

/// A fork being made: its journal, and the fold that says what fits.
struct Fork {
    thread: Thread,
    records: Vec<Arc<Record>>,
    now: i64,
}

impl World<'_> {
    /// Forks the thread at any record, and runs the fork to its end.
    pub(super) fn fork(&mut self) -> Result<(), Broken> {
        if self.forks_left == 0 || self.store.records.is_empty() {
            return Ok(());
        }
        self.forks_left -= 1;
        self.stats.forks += 1;
        let Ok(target) = ThreadId::new(format!("{}-fork-{}", self.store.thread, self.forks_left)) else { return Ok(()) };
        let through = self.rng.between(1, self.store.records.len() as u64);
        let mut fork = Fork { thread: self.store.fresh(), records: Vec::new(), now: self.now };
        for record in self.store.records.iter().take(through as usize) {
            fork.copy(record, &target)?;
        }
        let forked = RecordBody::ThreadForked { from: self.store.thread.clone(), through: Seq(through) };
        if !fork.add(forked) {
            return broken(COPIED, format!("it can't be forked at {through}"));
        }
        fork.patch(&mut self.rng, &mut self.stats.patches)?;
        let before = (self.store.records.len(), self.store.inbox(0)?, self.store.timers());

        let real = self.store.real().cloned();
        let mut store = Store::new(target, self.bug, real.clone());
        store.audit.copy(through);
        let fence = store.claim()?;
        if let Some(real) = &real {
            kept_apart(real, &self.store.thread, &store.thread)?;
        }
        store.append(fence, Seq(0), &fork.records, 0)?;
        store.release(fence);
        let mut world = World {
            rng: Rng::new(self.rng.next()),
            plan: self.plan.clone(),
            table: self.table,
            bug: self.bug,
            store,
            now: self.now,
            owner: None,
            hanging: Vec::new(),
            inputs_left: self.rng.below(3),
            posts_left: self.posts_left,
            attempts: Vec::new(),
            forks_left: u64::from(self.depth == 0),
            depth: self.depth + 1,
            named: self.named,
            cancels: self.cancels,
            begun: HashSet::new(),
            forks: Vec::new(),
            stats: &mut *self.stats,
        };
        let ran = world.run();
        let (mut store, forks) = (world.store, world.forks);
        self.store.posted_by(&mut store);
        self.forks.extend(store.records);
        self.forks.extend(forks);
        ran?;
        self.store.load()?;
        let after = (self.store.records.len(), self.store.inbox(0)?, self.store.timers());
        if before.0 != after.0 || before.1.len() + before.2 < after.1.len() + after.2 || !after.1.starts_with(&before.1) {
            return broken(ALONE, format!("{before:?} became {after:?}"));
        }
        Ok(())
    }
}

/// What threads keep goes along, and then each has its own.
fn kept_apart(real: &MemoryStore, from: &ThreadId, to: &ThreadId) -> Result<(), Broken> {
    if done("info", real.info(to))?.is_some() {
        return broken("a store keeps its contract", format!("{to} is there before it was made"));
    }
    let data = real.data();
    let value = |thread| done("value", data.value(thread, Shelf::Values, "n"));
    done("set_value", data.set_value(from, Shelf::Values, "n", Some("1".into()), None))?;
    done("copy", data.copy(from, to))?;
    let copied = value(to)?;
    done("set_value", data.set_value(to, Shelf::Values, "n", Some("2".into()), None))?;
    if copied.as_deref() != Some("1") || value(from)?.as_deref() != Some("1") {
        return broken(ALONE, format!("the value of {from} is {:?}, and {copied:?} came along", value(from)?));
    }
    Ok(())
}

impl Fork {
    fn copy(&mut self, record: &Arc<Record>, target: &ThreadId) -> Result<(), Broken> {
        let mut copied = Arc::clone(record);
        if let RecordBody::ThreadOpened { version, agent, .. } = &record.body {
            let body = RecordBody::ThreadOpened { thread: target.clone(), version: *version, agent: Arc::clone(agent), parent: None };
            copied = Arc::new(Record { body, ..(**record).clone() });
        }
        if let Err(misfit) = self.thread.apply(&copied) {
            return broken(COPIED, misfit.to_string());
        }
        self.records.push(copied);
        Ok(())
    }

    /// Adds a record if it fits.
    fn add(&mut self, body: RecordBody) -> bool {
        let record = Arc::new(Record { seq: self.thread.head().next(), at: Timestamp(self.now), run: None, body });
        let fits = self.thread.apply(&record).is_ok();
        if fits {
            self.records.push(record);
        }
        fits
    }

    /// Changes at random: messages, results, input, in this order.
    fn patch(&mut self, rng: &mut Rng, patches: &mut u64) -> Result<(), Broken> {
        let before = self.records.len();
        if rng.percent(25) {
            let whole = self.thread.open_calls().next().is_none();
            let messages = edited(self.thread.transcript(), rng);
            if self.add(RecordBody::TranscriptReplaced { messages, cleared: None }) != whole {
                return broken("what a fork is given is balanced", format!("with open calls: {}", !whole));
            }
        }
        let asks = self.thread.transcript().iter().position(|message| message.calls().next().is_some());
        if let Some(asks) = asks.filter(|_| rng.percent(10)) {
            // Calls without their results.
            let messages = self.thread.transcript().iter().take(asks + 1).cloned().collect();
            if self.add(RecordBody::TranscriptReplaced { messages, cleared: None }) {
                return broken("what a fork is given is balanced", "calls without results were taken".to_owned());
            }
        }
        let output = Arc::new(ToolOutput::text("as it should have been"));
        let results: Vec<(CallId, Arc<str>)> = self
            .thread
            .transcript()
            .iter()
            .flat_map(|message| message.results().map(|result| (result.call_id.clone(), result.tool_name.as_str().into())))
            .collect();
        if let Some((call, tool)) = results.get(rng.index(results.len())).filter(|_| rng.percent(30)).cloned() {
            // One that was brought along stays as it is.
            self.add(RecordBody::ResultReplaced { call, tool, output: Arc::clone(&output) });
        }
        let open: Vec<(CallId, Arc<str>, bool)> = self
            .thread
            .open_calls()
            .filter(|call| !matches!(call.state, CallState::Done))
            .map(|call| (call.id.clone(), Arc::clone(&call.tool), call.started_at.is_some()))
            .collect();
        if let Some((call, tool, shown)) = open.get(rng.index(open.len())).filter(|_| rng.percent(30)).cloned() {
            let body = RecordBody::CallDone {
                call,
                tool,
                outcome: Outcome::Done { output },
                duration_ms: shown.then_some(0),
                replaced_by: Some("fork".to_owned()),
                fatal: None,
                notes: None,
            };
            if !self.add(body) {
                return broken("an open call of a fork can be given its result", "it was refused".to_owned());
            }
        }
        if rng.percent(30) {
            let id = InputId::new(format!("patch_{before}"));
            let messages = vec![Arc::new(Message::human("and if it rains?"))];
            if !self.add(RecordBody::InputQueued { id, mode: InputMode::Queue, messages, only: None, immediate: false }) {
                return broken("a fork can be given input", "it was refused".to_owned());
            }
        }
        *patches += (self.records.len() - before) as u64;
        Ok(())
    }
}

/// A balanced history made of another one: groups are left out, texts are others, something is added.
fn edited(transcript: &Transcript, rng: &mut Rng) -> Vec<Arc<Message>> {
    let mut messages: Vec<Arc<Message>> = Vec::new();
    let mut kept = true;
    for message in transcript.iter() {
        if message.results().next().is_none() {
            kept = rng.percent(80);
        }
        if kept {
            let changed = message.calls().next().is_none() && message.results().next().is_none() && rng.percent(20);
            messages.push(if changed { Arc::new(Message::human("said otherwise")) } else { Arc::clone(message) });
        }
    }
    if rng.percent(30) {
        messages.push(Arc::new(Message::human("added")));
    }
    messages
}
