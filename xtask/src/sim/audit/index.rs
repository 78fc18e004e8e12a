//! What an index should say of the thread, worked out from its records.

use toolwright_core::{Author, FinishReason, Message, Record, RecordBody, ThreadId};
use toolwright_runtime::{PendingApproval, ThreadInfo, ThreadStatus};

use super::super::{Broken, broken};
use super::{Audit, Stage};

const INDEX: &str = "the index says what the journal says";

#[derive(Default)]
pub(super) struct Index {
    /// The last run paused for a decision.
    paused: bool,
    /// A fork that was cut in a run, or in a pause.
    cut_open: bool,
    title: Option<String>,
    forked_from: Option<ThreadId>,
    agent: String,
    created_at: i64,
    changed_at: i64,
}

impl Index {
    pub(super) fn note(&mut self, record: &Record) {
        self.changed_at = record.at.0;
        match &record.body {
            RecordBody::ThreadOpened { agent, .. } => {
                self.created_at = record.at.0;
                self.agent = agent.to_string();
            }
            RecordBody::RunDone { finish, .. } => self.paused = *finish == FinishReason::AwaitingApproval,
            RecordBody::ThreadForked { from, .. } => self.forked_from = Some(from.clone()),
            RecordBody::MessageAdded { message } => self.titled(message),
            RecordBody::InputQueued { messages, .. } => messages.iter().for_each(|message| self.titled(message)),
            _ => {}
        }
    }

    fn titled(&mut self, message: &Message) {
        if self.title.is_some() || message.author != Author::Human {
            return;
        }
        let clean = |line: &str| line.chars().filter(|sign| !sign.is_control()).collect::<String>().trim().to_owned();
        let Some(line) = message.text_of().lines().map(clean).find(|line| !line.is_empty()) else { return };
        let mut title = String::new();
        for sign in line.chars() {
            if title.len() + sign.len_utf8() > 200 {
                break;
            }
            title.push(sign);
        }
        self.title = Some(title.trim_end().to_owned());
    }

    /// A run begins.
    pub(super) fn begins(&mut self) {
        (self.paused, self.cut_open) = (false, false);
    }

    /// What waited in the source is for whoever resumes the fork.
    pub(super) fn forked(&mut self, in_run: bool) {
        self.cut_open |= in_run || self.paused;
        self.paused = false;
    }
}

impl Audit {
    /// Where the thread stands.
    pub(in super::super) fn status(&self) -> ThreadStatus {
        if self.known.paused {
            ThreadStatus::AwaitingApproval
        } else if self.run.is_some() || self.known.cut_open || self.inputs.is_queued() {
            ThreadStatus::InProgress
        } else {
            ThreadStatus::Finished
        }
    }

    /// What an index says of this thread, held against its records.
    pub(in super::super) fn is_shown(&self, thread: &ThreadId, info: &ThreadInfo) -> Result<(), Broken> {
        let known = &self.known;
        let title = known.title.as_deref().unwrap_or_default();
        let same = info.id == *thread
            && info.agent == known.agent
            && info.status == self.status()
            && info.title == title
            && info.parent.is_none()
            && info.forked_from == known.forked_from
            && (info.created_at.0, info.changed_at.0, info.head.0) == (known.created_at, known.changed_at, self.last);
        if same { Ok(()) } else { broken(INDEX, format!("{info:?}; the journal: {:?}, {title:?}, {}", self.status(), self.last)) }
    }

    /// The pending decisions of this thread that an index has, held against its records.
    pub(in super::super) fn is_pending(&self, thread: &ThreadId, shown: &[PendingApproval]) -> Result<(), Broken> {
        let mut waiting: Vec<_> = self.waiting().filter_map(|at| self.approvals.get(at)).collect();
        waiting.sort_by(|a, b| (a.asked_at, a.id.as_str()).cmp(&(b.asked_at, b.id.as_str())));
        let same = waiting.len() == shown.len()
            && waiting.iter().zip(shown).all(|(approval, shown)| {
                let ask = &approval.ask;
                self.calls.get(approval.call).is_some_and(|call| {
                    matches!(call.stage, Stage::Asking(_))
                        && (&shown.thread_id, &shown.id, &shown.call_id) == (thread, &approval.id, &call.id)
                        && (&shown.tool, &shown.sha256) == (&call.tool, &approval.sha256)
                        && call.arguments.as_ref() == Some(&shown.arguments)
                        && shown.asked_at.map(|at| at.0) == Some(approval.asked_at)
                        && (&shown.reason, &shown.kind, &shown.expires_at) == (&ask.reason, &ask.kind, &ask.expires_at)
                        && (shown.quorum, &shown.deciders) == (ask.quorum, &ask.deciders)
                })
            });
        let ids: Vec<_> = waiting.iter().map(|approval| &approval.id).collect();
        if same { Ok(()) } else { broken(INDEX, format!("pending are {shown:?}; the journal: {ids:?}")) }
    }
}
