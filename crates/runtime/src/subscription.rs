//! A subscription to a thread's events: the journal's, and what is live between them.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::watch;
use toolwright_core::{Event, EventKind, Record, RecordBody, RunId, Seq, ThreadId, Timestamp, project};

use crate::agent::AgentInner;
use crate::clock::Clock;
use crate::hub::{Cursor, Hub, Hubs, Snapshot, Stretch, Unseen};
use crate::store::{Store, StoreError};

const PAGE: usize = 256;

/// Reads a thread's events in order, replayed and then live, without gap or repeat.
pub(crate) struct Subscription {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    thread: ThreadId,
    /// Who moves the thread here, if anybody does.
    live: Option<Live>,
    follows: Follows,
    /// The last record seen.
    position: Seq,
    /// The position at which the live part was joined: what had its record by then is not shown.
    joined_at: Seq,
    /// The live part was joined in the middle: of each call, the last snapshot is enough.
    joins: bool,
    cursor: Cursor,
    /// The last step whose reply, or end, was read from the journal.
    closed_through: u32,
    /// What of the open step's reply was delivered live.
    delivered: Delivered,
    /// The last record that whoever streamed it can have written. What comes after is by somebody else.
    delivered_until: Option<Seq>,
    /// The run whose events come now.
    run: RunId,
    seq: u64,
    queue: VecDeque<Event>,
    ended: bool,
}

/// What a subscription is about.
enum Follows {
    /// One run, up to its end.
    Run,
    /// A thread, for as long as somebody listens.
    Thread { hubs: Arc<Hubs>, changes: watch::Receiver<u64> },
}

struct Live {
    hub: Arc<Hub>,
    changes: watch::Receiver<u64>,
}

impl Live {
    fn of(hub: Arc<Hub>) -> Self {
        let changes = hub.subscribe();
        Self { hub, changes }
    }
}

#[derive(Default)]
struct Delivered {
    step: u32,
    text: usize,
    reasoning: usize,
    reasoning_open: bool,
    reasoning_text: String,
}

impl Subscription {
    /// Events of `run`, from the record after `after`, up to its end.
    pub(crate) fn of_run(inner: &AgentInner, thread: &ThreadId, hub: Arc<Hub>, run: RunId, after: Seq) -> Self {
        Self { run, live: Some(Live::of(hub)), ..Self::new(inner, thread, Follows::Run, after) }
    }

    /// Events of a thread, from the record after `after`, without end.
    pub(crate) fn of_thread(inner: &AgentInner, thread: &ThreadId, after: Seq) -> Self {
        let hubs = Arc::clone(&inner.hubs);
        let changes = hubs.subscribe();
        Self::new(inner, thread, Follows::Thread { hubs, changes }, after)
    }

    fn new(inner: &AgentInner, thread: &ThreadId, follows: Follows, after: Seq) -> Self {
        Self {
            store: Arc::clone(&inner.store),
            clock: Arc::clone(&inner.clock),
            thread: thread.clone(),
            live: None,
            follows,
            position: after,
            joined_at: Seq(0),
            joins: false,
            cursor: Cursor::default(),
            closed_through: 0,
            delivered: Delivered::default(),
            delivered_until: None,
            run: RunId::new(""),
            seq: 0,
            queue: VecDeque::new(),
            ended: false,
        }
    }

    /// The next event. `None` for a run after `run.done`, or when nobody moves the thread any more; never for a thread.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, StoreError> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                return Ok(Some(event));
            }
            if self.ended {
                return Ok(None);
            }
            if !self.read().await? {
                return Ok(None);
            }
        }
    }

    /// The next event of what the journal has now; `None` at its end.
    pub(crate) async fn next_there_is(&mut self) -> Result<Option<Event>, StoreError> {
        while self.queue.is_empty() {
            let records = self.store.read(&self.thread, self.position, PAGE).await?;
            if records.is_empty() {
                return Ok(None);
            }
            self.merge(&records, Unseen::default(), true);
        }
        Ok(self.queue.pop_front())
    }

    /// Reads what is new, or waits for it. Gives whether there can be more.
    async fn read(&mut self) -> Result<bool, StoreError> {
        // Seen first, so that a change during the reading wakes the next round.
        self.attach();
        if let Some(live) = &mut self.live {
            live.changes.borrow_and_update();
        }
        let records = self.store.read(&self.thread, self.position, PAGE).await?;
        let full = records.len() == PAGE;
        let mut unseen = self.live.as_ref().map(|live| live.hub.unseen(&self.cursor)).unwrap_or_default();
        if self.joins {
            unseen.keep_last_snapshots();
            self.joins = full;
        }
        let closed = unseen.closed;
        self.merge(&records, unseen, full);
        if !self.queue.is_empty() || full || self.ended || !records.is_empty() {
            return Ok(true);
        }
        match (&mut self.follows, &mut self.live) {
            (Follows::Run, None) => Ok(false),
            (Follows::Run, Some(_)) if closed => Ok(false),
            (Follows::Run, Some(live)) => Ok(live.changes.changed().await.is_ok()),
            (Follows::Thread { .. }, Some(_)) if closed => {
                // Who moves it next has a hub of its own.
                self.leave();
                Ok(true)
            }
            (Follows::Thread { hubs, changes }, live) => {
                // Others' threads begin to move all the time; this one's hub is what counts.
                let thread = &self.thread;
                let joined = live.as_ref().map(|live| Arc::clone(&live.hub));
                let new_hub = async {
                    loop {
                        let is_joined = |hub: &Arc<Hub>| joined.as_ref().is_some_and(|joined| Arc::ptr_eq(joined, hub));
                        if changes.changed().await.is_err() || hubs.of(thread).is_some_and(|hub| !is_joined(&hub)) {
                            return;
                        }
                    }
                };
                let moved = async {
                    match live {
                        Some(live) => drop(live.changes.changed().await),
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    () = self.store.appended(thread, self.position) => {}
                    () = moved => {}
                    () = new_hub => {}
                }
                Ok(true)
            }
        }
    }

    /// Joins the live part of whoever moves the thread here now.
    fn attach(&mut self) {
        let Follows::Thread { hubs, changes } = &mut self.follows else { return };
        changes.borrow_and_update();
        let Some(hub) = hubs.of(&self.thread) else { return };
        if self.live.as_ref().is_none_or(|live| !Arc::ptr_eq(&live.hub, &hub)) {
            self.leave();
            self.live = Some(Live::of(hub));
            self.cursor = Cursor::default();
            self.joined_at = self.position;
            self.joins = true;
        }
    }

    /// Leaves the live part of whoever moved the thread here before.
    fn leave(&mut self) {
        let Some(left) = self.live.take() else { return };
        self.delivered_until = self.delivered_until.or(Some(left.hub.head()));
        self.forget_delivered(self.position.next());
    }

    fn merge(&mut self, records: &[Arc<Record>], unseen: Unseen, more: bool) {
        let mut snapshots = unseen.snapshots.into_iter().peekable();
        for record in records {
            while let Some(snapshot) = snapshots.next_if(|snapshot| snapshot.after < record.seq) {
                self.show(snapshot);
            }
            self.replay(record);
            if self.ended {
                return;
            }
        }
        if more {
            return;
        }
        // What is live belongs after every record read, unless a record it follows was not read yet.
        let open = unseen.step > self.closed_through && unseen.replied_at.is_none_or(|at| at > self.position);
        if unseen.step_after <= self.position && open {
            for (index, stretch, text, end) in unseen.stretches {
                self.say(unseen.step, index, &stretch, text, end);
            }
        }
        while let Some(snapshot) = snapshots.next_if(|snapshot| snapshot.after <= self.position) {
            self.show(snapshot);
        }
    }

    fn replay(&mut self, record: &Record) {
        self.position = record.seq;
        self.forget_delivered(record.seq);
        match (&self.follows, &record.run) {
            (Follows::Run, run) if run.as_ref() != Some(&self.run) => return,
            (Follows::Thread { .. }, Some(run)) => self.run = run.clone(),
            _ => {}
        }
        if let RecordBody::StepDone { step, .. } | RecordBody::ModelFailed { step, .. } | RecordBody::ReplyWithheld { step, .. } =
            &record.body
        {
            // Where no reply was read, it was given up, or failed: what it had streamed is over.
            self.end_reasoning(record.at);
            self.closed_through = *step;
        }
        let live = match &record.body {
            RecordBody::ModelReplied { step, message, .. } => {
                if message.reasoning_of().is_none() {
                    self.end_reasoning(record.at);
                }
                let live = self.delivered.step == *step
                    && (self.delivered.text > 0 || self.delivered.reasoning > 0 || self.delivered.reasoning_open);
                self.closed_through = *step;
                live
            }
            _ => false,
        };
        let kinds = project(record);
        let last = kinds.iter().rposition(EventKind::is_durable);
        for (at, kind) in kinds.into_iter().enumerate() {
            let kind = if live { self.remainder(kind) } else { Some(kind) };
            if let Some(kind) = kind {
                let ends = matches!(kind, EventKind::RunDone { .. }) && matches!(self.follows, Follows::Run);
                // Who goes on from here must not miss what else the record says.
                let resume_after = if Some(at) == last { record.seq } else { Seq(record.seq.0.saturating_sub(1)) };
                let position = kind.is_durable().then_some(resume_after);
                self.push(kind, record.at, position);
                if ends {
                    self.ended = true;
                }
            }
        }
        if live {
            self.delivered = Delivered::default();
        }
    }

    /// What is left to say of a reply that was partly delivered live.
    fn remainder(&mut self, kind: EventKind) -> Option<EventKind> {
        match kind {
            EventKind::ReasoningStart {} => None,
            EventKind::ReasoningDelta { text } => {
                if !self.delivered.reasoning_open {
                    return None;
                }
                // Blocks are joined by blank lines in the record and were not when they were streamed: lengths only agree for one block.
                let rest = text.get(self.delivered.reasoning..).filter(|rest| !rest.is_empty())?.to_owned();
                self.delivered.reasoning_text.push_str(&rest);
                Some(EventKind::ReasoningDelta { text: rest })
            }
            EventKind::ReasoningDone { text, tokens } => {
                std::mem::take(&mut self.delivered.reasoning_open).then_some(EventKind::ReasoningDone { text, tokens })
            }
            EventKind::TextDelta { text } => {
                let rest = text.get(self.delivered.text..).unwrap_or_default();
                (!rest.is_empty()).then(|| EventKind::TextDelta { text: rest.to_owned() })
            }
            kind => Some(kind),
        }
    }

    /// What comes next is live: it belongs to the run that goes on here.
    fn is_live(&mut self) {
        if let (Follows::Thread { .. }, Some(live)) = (&self.follows, &self.live) {
            self.run = live.hub.run.clone();
        }
    }

    /// What was streamed by somebody whose records are all read, and has none, never gets one: `next` is by somebody else.
    fn forget_delivered(&mut self, next: Seq) {
        if self.delivered_until.is_some_and(|until| next > until) {
            self.end_reasoning(self.clock.now());
            (self.delivered, self.delivered_until) = (Delivered::default(), None);
        }
    }

    /// Reasoning that was begun ends.
    fn end_reasoning(&mut self, at: Timestamp) {
        if std::mem::take(&mut self.delivered.reasoning_open) {
            let text = std::mem::take(&mut self.delivered.reasoning_text);
            self.push(EventKind::ReasoningDone { text, tokens: None }, at, None);
        }
    }

    fn say(&mut self, step: u32, index: usize, stretch: &Stretch, text: String, end: usize) {
        let at = self.clock.now();
        self.is_live();
        if self.delivered.step != step {
            self.delivered = Delivered { step, ..Delivered::default() };
        }
        if *stretch != Stretch::Reasoning {
            self.end_reasoning(at);
        }
        self.cursor.step = step;
        self.cursor.stretch = index;
        self.cursor.offset = end;
        match stretch {
            Stretch::Text => {
                self.delivered.text += text.len();
                self.push(EventKind::TextDelta { text }, at, None);
            }
            Stretch::Reasoning => {
                if !self.delivered.reasoning_open {
                    self.delivered.reasoning_open = true;
                    self.push(EventKind::ReasoningStart {}, at, None);
                }
                self.delivered.reasoning += text.len();
                self.delivered.reasoning_text.push_str(&text);
                self.push(EventKind::ReasoningDelta { text }, at, None);
            }
            Stretch::Input { index, name } => {
                self.push(EventKind::ToolInputDelta { index: *index, tool_name: name.clone(), text }, at, None);
            }
        }
    }

    fn show(&mut self, snapshot: Snapshot) {
        self.cursor.snapshot = snapshot.number + 1;
        if snapshot.done_at.is_some_and(|at| at <= self.joined_at) {
            return;
        }
        let at = self.clock.now();
        self.is_live();
        let kind = EventKind::ToolPartial {
            tool_call_id: snapshot.call,
            tool_name: snapshot.tool,
            index: snapshot.index,
            output: snapshot.output,
        };
        self.push(kind, at, None);
    }

    fn push(&mut self, kind: EventKind, timestamp: Timestamp, position: Option<Seq>) {
        let seq = self.seq;
        self.seq += 1;
        self.queue.push_back(Event { run_id: self.run.clone(), seq, timestamp, position, subagent: None, kind });
    }
}
