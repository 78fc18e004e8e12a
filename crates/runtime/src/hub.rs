//! What is live about a thread that is being moved: how far its journal is, and what has no record yet.
//!
//! The driver writes here and never waits for readers; a reader that falls behind finds merged text and the last snapshots,
//! so a slow one costs bounded memory (invariant 14).

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use serde_json::Value;
use tokio::sync::watch;
use toolwright_core::redact::{Redactor, StreamRedactor};
use toolwright_core::{CallId, Record, RecordBody, RunId, Seq, ThreadId};

use crate::driver::Streamed;

/// Snapshots kept for readers that are behind. Beyond that the oldest go; each replaces the one before anyway.
const SNAPSHOTS_KEPT: usize = 256;

/// What a stretch of a model's reply is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stretch {
    Text,
    Reasoning,
    Input { index: u32, name: Option<String> },
}

/// A snapshot of a running call.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) number: u64,
    pub(crate) after: Seq,
    pub(crate) call: CallId,
    pub(crate) tool: Arc<str>,
    pub(crate) index: u64,
    pub(crate) output: Value,
    /// The record of the call's result, once there is one.
    pub(crate) done_at: Option<Seq>,
}

#[derive(Default)]
struct Live {
    head: Seq,
    /// The reply of the open step so far, in stretches of one kind.
    step: u32,
    step_after: Seq,
    replied_at: Option<Seq>,
    stretches: Vec<(Stretch, String)>,
    /// What is held back of each kind of text, because it may be the beginning of a secret.
    held: Vec<(Stretch, StreamRedactor)>,
    snapshots: VecDeque<Snapshot>,
    next_snapshot: u64,
    closed: bool,
}

impl Live {
    /// Text of a kind as far as it is safe to show.
    fn pass(&mut self, stretch: &Stretch, text: &str, redactor: &Arc<Redactor>) -> String {
        if let Some((_, held)) = self.held.iter_mut().find(|(there, _)| same_stretch(there, stretch)) {
            return held.push(text);
        }
        let mut held = StreamRedactor::new(Arc::clone(redactor));
        let safe = held.push(text);
        self.held.push((stretch.clone(), held));
        safe
    }

    /// More text; gives whether there is anything new.
    fn say(&mut self, stretch: Stretch, text: &str) -> bool {
        // A call that was begun without arguments so far is a call that was begun.
        if text.is_empty() && !matches!(stretch, Stretch::Input { .. }) {
            return false;
        }
        match self.stretches.last_mut() {
            Some((there, so_far)) if same_stretch(there, &stretch) => so_far.push_str(text),
            _ => self.stretches.push((stretch, text.to_owned())),
        }
        true
    }
}

/// See the module.
pub(crate) struct Hub {
    /// The run that goes on.
    pub(crate) run: RunId,
    /// What takes secrets out of whatever is live (invariant 7).
    redactor: Option<Arc<Redactor>>,
    live: Mutex<Live>,
    changes: watch::Sender<u64>,
}

/// Where a reader stands in the live part.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cursor {
    pub(crate) step: u32,
    pub(crate) stretch: usize,
    pub(crate) offset: usize,
    pub(crate) snapshot: u64,
}

/// What a reader has not seen of the live part.
#[derive(Debug, Default)]
pub(crate) struct Unseen {
    pub(crate) step: u32,
    pub(crate) step_after: Seq,
    /// The record of the step's reply, or of its end without one, once there is one.
    pub(crate) replied_at: Option<Seq>,
    /// New text by stretch, with the stretch's index and the offset its text ends at.
    pub(crate) stretches: Vec<(usize, Stretch, String, usize)>,
    pub(crate) snapshots: Vec<Snapshot>,
    pub(crate) closed: bool,
}

impl Unseen {
    /// Of each call, only the last snapshot.
    pub(crate) fn keep_last_snapshots(&mut self) {
        let last: HashMap<CallId, u64> = self.snapshots.iter().map(|snapshot| (snapshot.call.clone(), snapshot.number)).collect();
        self.snapshots.retain(|snapshot| last.get(&snapshot.call) == Some(&snapshot.number));
    }
}

impl Hub {
    pub(crate) fn new(head: Seq, run: RunId) -> Self {
        Self { run, redactor: None, live: Mutex::new(Live { head, ..Live::default() }), changes: watch::Sender::new(0) }
    }

    /// With what takes the run's secrets out.
    pub(crate) fn redacting(mut self, redactor: Option<Arc<Redactor>>) -> Self {
        self.redactor = redactor;
        self
    }

    fn lock(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        self.changes.send_modify(|version| *version = version.wrapping_add(1));
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The journal goes on with these records, durably.
    pub(crate) fn appended(&self, records: &[Arc<Record>]) {
        let mut live = self.lock();
        for record in records {
            live.head = record.seq;
            match &record.body {
                // A step that ends without a reply had it given up, or it failed.
                RecordBody::ModelReplied { step, .. }
                | RecordBody::ReplyWithheld { step, .. }
                | RecordBody::ModelFailed { step, .. }
                | RecordBody::StepDone { step, .. }
                    if *step == live.step =>
                {
                    live.replied_at.get_or_insert(record.seq);
                }
                RecordBody::CallDone { call, .. } => {
                    let of_call = live.snapshots.iter_mut().filter(|snapshot| snapshot.call == *call);
                    of_call.for_each(|snapshot| snapshot.done_at = Some(record.seq));
                }
                _ => {}
            }
        }
        drop(live);
        self.changed();
    }

    /// A model is being asked for `step`.
    pub(crate) fn step_begins(&self, step: u32) {
        let mut live = self.lock();
        live.step = step;
        live.step_after = live.head;
        live.replied_at = None;
        live.stretches.clear();
        live.held.clear();
    }

    /// The model said more.
    pub(crate) fn said(&self, step: u32, stretch: Stretch, text: &str) {
        let mut live = self.lock();
        if live.step != step {
            return;
        }
        let text = match &self.redactor {
            None => Cow::Borrowed(text),
            Some(redactor) => Cow::Owned(live.pass(&stretch, text, redactor)),
        };
        if live.say(stretch, &text) {
            drop(live);
            self.changed();
        }
    }

    /// The model said all it says: what was held back comes out, unless it is most of a secret.
    pub(crate) fn said_all(&self, step: u32) {
        let mut live = self.lock();
        if live.step != step || live.held.is_empty() {
            return;
        }
        for (stretch, mut held) in std::mem::take(&mut live.held) {
            let text = held.finish();
            if !text.is_empty() {
                live.say(stretch, &text);
            }
        }
        drop(live);
        self.changed();
    }

    /// The text of the open step so far.
    pub(crate) fn text_so_far(&self) -> String {
        let live = self.lock();
        let said = live.stretches.iter().filter(|(stretch, _)| *stretch == Stretch::Text).map(|(_, text)| text.as_str());
        let mut text: String = said.collect();
        let held = live.held.iter().find(|(stretch, _)| *stretch == Stretch::Text);
        text.push_str(&held.map(|(_, held)| held.clone().finish()).unwrap_or_default());
        text
    }

    /// What the model of the open step has said so far.
    pub(crate) fn so_far(&self) -> Streamed {
        let calls = self.lock().stretches.iter().any(|(stretch, _)| matches!(stretch, Stretch::Input { .. }));
        Streamed { text: self.text_so_far(), calls }
    }

    /// A running call shows a snapshot.
    pub(crate) fn shown(&self, call: &CallId, tool: &Arc<str>, index: u64, mut output: Value) {
        if let Some(redactor) = &self.redactor {
            redactor.redact_value(&mut output);
        }
        let mut live = self.lock();
        let (number, after) = (live.next_snapshot, live.head);
        live.next_snapshot += 1;
        if live.snapshots.len() >= SNAPSHOTS_KEPT {
            live.snapshots.pop_front();
        }
        live.snapshots.push_back(Snapshot { number, after, call: call.clone(), tool: Arc::clone(tool), index, output, done_at: None });
        drop(live);
        self.changed();
    }

    /// Nobody moves the thread any more.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed();
    }

    /// How far the journal is, as whoever moves the thread here has written it.
    pub(crate) fn head(&self) -> Seq {
        self.lock().head
    }

    /// What a reader at `cursor` has not seen.
    pub(crate) fn unseen(&self, cursor: &Cursor) -> Unseen {
        let live = self.lock();
        let (from, offset) = if cursor.step == live.step { (cursor.stretch, cursor.offset) } else { (0, 0) };
        let mut stretches = Vec::new();
        for (index, (stretch, text)) in live.stretches.iter().enumerate().skip(from) {
            let offset = if index == from { offset } else { 0 };
            let new = text.get(offset..).unwrap_or_default();
            if !new.is_empty() {
                stretches.push((index, stretch.clone(), new.to_owned(), text.len()));
            }
        }
        let snapshots = live.snapshots.iter().filter(|snapshot| snapshot.number >= cursor.snapshot).cloned().collect();
        Unseen { step: live.step, step_after: live.step_after, replied_at: live.replied_at, stretches, snapshots, closed: live.closed }
    }
}

fn same_stretch(a: &Stretch, b: &Stretch) -> bool {
    match (a, b) {
        (Stretch::Input { index: left, .. }, Stretch::Input { index: right, .. }) => left == right,
        (a, b) => a == b,
    }
}

/// The hubs of the threads that are moved here, for those who attach from outside a run.
#[derive(Default)]
pub(crate) struct Hubs {
    by_thread: Mutex<HashMap<ThreadId, Weak<Hub>>>,
    changes: watch::Sender<u64>,
}

impl Hubs {
    fn lock(&self) -> MutexGuard<'_, HashMap<ThreadId, Weak<Hub>>> {
        self.by_thread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `hub` is now the one of `thread`.
    pub(crate) fn register(&self, thread: &ThreadId, hub: &Arc<Hub>) {
        let mut by_thread = self.lock();
        // Those whose runs are over go along, so that the map does not grow with the threads there ever were.
        if by_thread.len() >= 64 && by_thread.len().is_power_of_two() {
            by_thread.retain(|_, hub| hub.strong_count() > 0);
        }
        by_thread.insert(thread.clone(), Arc::downgrade(hub));
        drop(by_thread);
        self.changes.send_modify(|version| *version = version.wrapping_add(1));
    }

    /// The hub of `thread`, while somebody here moves it.
    pub(crate) fn of(&self, thread: &ThreadId) -> Option<Arc<Hub>> {
        self.lock().get(thread).and_then(Weak::upgrade).filter(|hub| !hub.lock().closed)
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}
