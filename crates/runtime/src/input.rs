//! Input for a run that goes on, or for the next one: queued and steering.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use toolwright_core::{InputId, InputMode, Message, Record, RecordBody, RunId, Seq, ThreadId};

use crate::agent::AgentInner;
use crate::attachments::keep_input;
use crate::error::AgentError;
use crate::keep::keep_of;
use crate::store::{InboxItem, Store};

/// What a send does while somebody moves the thread (sdk-runtime SES-5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TurnPolicy {
    /// It is refused as `TOOLWRIGHT_SESSION_BUSY`: two sends at once are a mistake unless the program says otherwise.
    #[default]
    Refuse,
    /// It becomes the next turn, in the order of the calls; first, a run that was interrupted is finished.
    Wait,
    /// It joins the run that goes on, as with [`crate::ThreadHandle::enqueue`]; the reply is that run's.
    Queue,
    /// It joins the run that goes on, as with [`crate::ThreadHandle::steer`]; the reply is that run's.
    Steer,
}

/// Input that was sent to a run, or to a thread.
#[derive(Clone)]
pub struct Ticket {
    sent: Option<Sent>,
}

#[derive(Clone)]
struct Sent {
    store: Arc<dyn Store>,
    thread: ThreadId,
    id: InputId,
    only: Option<RunId>,
    /// Nothing of it stands in the journal up to here.
    seen: Arc<AtomicU64>,
}

/// What became of input that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Joined {
    /// It joined a run.
    Run {
        /// The run.
        run: Option<RunId>,
        /// The step before whose model call it joined.
        step: u32,
        /// Whether a silent model call was given up for it.
        immediate: bool,
    },
    /// The run it was for ended without it: it is the sender's again.
    Returned,
}

enum Fate {
    Open,
    Joined { at: Seq, joined: Joined },
}

impl Ticket {
    /// Input that was not taken, because its run was over.
    pub(crate) fn returned() -> Self {
        Self { sent: None }
    }

    /// Its id, as events name it; `None` if it was not even posted, because its run was over.
    pub fn id(&self) -> Option<&InputId> {
        self.sent.as_ref().map(|sent| &sent.id)
    }

    /// Waits until it joins a run, or its run ends without it. Input that was sent to a thread, not to a run, waits for as long
    /// as no run takes it.
    pub async fn outcome(&self) -> Result<Joined, AgentError> {
        let Some(sent) = &self.sent else { return Ok(Joined::Returned) };
        let mut immediate = false;
        loop {
            match sent.look(&mut immediate).await? {
                Fate::Joined { joined, .. } => return Ok(joined),
                Fate::Open => sent.store.appended(&sent.thread, Seq(sent.seen.load(Ordering::Relaxed))).await,
            }
        }
    }

    /// Waits as [`Ticket::outcome`]; gives whether a run took it.
    pub async fn joined_run(&self) -> Result<bool, AgentError> {
        Ok(matches!(self.outcome().await?, Joined::Run { .. }))
    }

    /// Where it joined, if it has by now.
    pub(crate) async fn joined(&self) -> Result<Option<(Seq, Option<RunId>)>, AgentError> {
        let Some(sent) = &self.sent else { return Ok(None) };
        match sent.look(&mut false).await? {
            Fate::Joined { at, joined: Joined::Run { run, .. } } => Ok(Some((at, run))),
            _ => Ok(None),
        }
    }

    /// How far the journal was looked through.
    pub(crate) fn seen(&self) -> Seq {
        Seq(self.sent.as_ref().map_or(0, |sent| sent.seen.load(Ordering::Relaxed)))
    }
}

impl Sent {
    /// Looks through what the journal has that was not looked at.
    async fn look(&self, immediate: &mut bool) -> Result<Fate, AgentError> {
        loop {
            let records = self.store.read(&self.thread, Seq(self.seen.load(Ordering::Relaxed)), 256).await?;
            let Some(last) = records.last() else { return Ok(Fate::Open) };
            for record in &records {
                let joined = match &record.body {
                    RecordBody::InputQueued { id, immediate: now, .. } if *id == self.id => {
                        *immediate = *now;
                        continue;
                    }
                    RecordBody::InputApplied { id, step } if *id == self.id => {
                        Joined::Run { run: record.run.clone(), step: *step, immediate: *immediate }
                    }
                    RecordBody::InputReturned { id, .. } if *id == self.id => Joined::Returned,
                    RecordBody::RunDone { .. } if self.only.is_some() && record.run == self.only => Joined::Returned,
                    _ => continue,
                };
                return Ok(Fate::Joined { at: record.seq, joined });
            }
            self.seen.store(last.seq.0, Ordering::Relaxed);
        }
    }
}

/// Posts input to a thread, or to a run of it that has the records after a position.
pub(crate) async fn post_input(
    inner: &AgentInner,
    thread: &ThreadId,
    mode: InputMode,
    messages: Vec<Message>,
    only: Option<(RunId, Seq)>,
) -> Result<Ticket, AgentError> {
    let store = &inner.store;
    let messages = keep_input(&keep_of(inner, thread, None), messages).await;
    let (only, since) = only.unzip();
    let item = Box::pin(inner.clean_post(thread, input_item(mode, messages, only.clone())?)).await?;
    let InboxItem::Input { id, .. } = &item else { return Ok(Ticket::returned()) };
    let id = id.clone();
    // Read before it is posted, so that nothing of it can stand before.
    let mut head = store.info(thread).await?.map_or(Seq(0), |info| info.head);
    if let Some(since) = since {
        // The run it is for may be over by now: then its end is looked for from its beginning.
        let last = store.read_at(thread, &[head]).await?;
        let goes_on = |last: &Arc<Record>| last.run == only && !matches!(last.body, RecordBody::RunDone { .. });
        if !last.first().is_some_and(goes_on) {
            head = since;
        }
    }
    store.post(thread, &format!("input:{id}"), item).await?;
    Ok(Ticket { sent: Some(Sent { store: Arc::clone(store), thread: thread.clone(), id, only, seen: Arc::new(AtomicU64::new(head.0)) }) })
}

/// Input as it is posted. It joins in mid-conversation, so it holds no calls or results of its own.
pub(crate) fn input_item(mode: InputMode, messages: Vec<Message>, only: Option<RunId>) -> Result<InboxItem, AgentError> {
    if messages.iter().any(|message| message.calls().next().is_some() || message.results().next().is_some()) {
        return Err(AgentError::Unbalanced { problem: "input that joins a run holds no calls and no results".to_owned() });
    }
    let messages = messages.into_iter().map(Arc::new).collect();
    Ok(InboxItem::Input { id: crate::random::input_id(), mode, messages, only })
}
