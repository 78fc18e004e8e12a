//! What a store can answer about threads without folding them: an index that each append keeps.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolwright_core::{
    ApprovalAsk, ApprovalId, AskKind, Author, Call, CallId, Delegation, FinishReason, Message, Record, RecordBody, Seq, ThreadId,
    Timestamp, Verdict, cut,
};

/// A title is the beginning of the first input: so many bytes at most.
const TITLE_BYTES: usize = 200;

/// Where a thread stands, as its journal says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ThreadStatus {
    /// A run has not ended: somebody moves it, or was interrupted. Or the last run ended without input that was sent to the thread.
    InProgress,
    /// The last run paused for a decision.
    AwaitingApproval,
    /// The last run is done, or there was none.
    Finished,
}

impl ThreadStatus {
    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InProgress => "in-progress",
            Self::AwaitingApproval => "awaiting-approval",
            Self::Finished => "finished",
        }
    }

    /// The status of a word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::InProgress, Self::AwaitingApproval, Self::Finished].into_iter().find(|status| status.as_str() == word)
    }
}

/// What the index says of a thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ThreadInfo {
    /// Its id.
    pub id: ThreadId,
    /// The agent it was opened with.
    pub agent: String,
    /// Where it stands.
    pub status: ThreadStatus,
    /// The beginning of its first input: one line without control characters, at most 200 bytes.
    pub title: String,
    /// The thread it is a child of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ThreadId>,
    /// The thread it was forked from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<ThreadId>,
    /// When its first record was written.
    pub created_at: Timestamp,
    /// When its last record was written.
    pub changed_at: Timestamp,
    /// The position of its last record.
    pub head: Seq,
}

impl ThreadInfo {
    /// Where the page goes on after it: pages of threads are in the order of when they were last changed, then of their ids.
    pub fn cursor(&self) -> String {
        format!("{}:{}", self.changed_at.0, self.id)
    }
}

/// A call that waits for a decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingApproval {
    /// The decision's id: all that a decider needs.
    pub id: ApprovalId,
    /// The thread.
    pub thread_id: ThreadId,
    /// The call.
    #[serde(rename = "toolCallId")]
    pub call_id: CallId,
    /// The tool.
    #[serde(rename = "toolName")]
    pub tool: Arc<str>,
    /// The arguments that would run: compact JSON, byte for byte.
    pub arguments: Arc<str>,
    /// Their SHA-256; the decision is bound to it.
    pub sha256: Arc<str>,
    /// Why it is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_at: Option<Timestamp>,
    /// When the question lapses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// What the call waits for.
    #[serde(default = "plain", skip_serializing_if = "AskKind::is_tool")]
    pub kind: AskKind,
    /// Detail of its kind: a question with options, a sign-in address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Value>,
    /// How many different people have to approve.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub quorum: u32,
    /// Who may decide; anybody where it is empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deciders: Vec<String>,
    /// Who has approved so far, where several have to. Known where one decision is looked at, not in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approved_by: Vec<String>,
}

fn plain() -> AskKind {
    AskKind::Tool
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out a reference")]
fn is_one(quorum: &u32) -> bool {
    *quorum == 1
}

impl PendingApproval {
    fn new(thread: &ThreadId, call: &CallId, asked_at: Option<Timestamp>, asked: &Asked) -> Self {
        let (tool, arguments, sha256, ask) = asked;
        Self {
            id: ask.approval.clone(),
            thread_id: thread.clone(),
            call_id: call.clone(),
            tool: Arc::clone(tool),
            arguments: Arc::clone(arguments),
            sha256: Arc::clone(sha256),
            reason: ask.reason.clone(),
            asked_at,
            expires_at: ask.expires_at,
            kind: ask.kind.clone(),
            detail: ask.detail.clone(),
            quorum: ask.quorum,
            deciders: ask.deciders.clone(),
            approved_by: Vec::new(),
        }
    }

    /// Where the page goes on after it: pages of decisions are in the order of when they were asked for, then of their ids.
    pub fn cursor(&self) -> String {
        format!("{}:{}", self.asked_at.unwrap_or_default().0, self.id)
    }

    /// The question that is asked, where it is one.
    pub fn question(&self) -> Option<Question> {
        let question = self.detail.as_ref().filter(|_| self.kind == AskKind::Question)?.get("question")?;
        let texts = |value: &Value| value.as_array().map(|all| all.iter().filter_map(Value::as_str).map(str::to_owned).collect());
        Some(Question {
            text: question.get("text")?.as_str()?.to_owned(),
            options: question.get("options").and_then(texts).unwrap_or_default(),
            allow_free_text: question.get("allowFreeText").and_then(Value::as_bool).unwrap_or(true),
        })
    }

    /// As people and programs see it (sdk-tools 13.7): the arguments as a value, moments in ISO 8601.
    pub fn to_json(&self) -> Value {
        let mut shape = serde_json::Map::new();
        let mut put = |key: &str, value: Value| drop(shape.insert(key.to_owned(), value));
        put("id", self.id.as_str().into());
        put("threadId", self.thread_id.as_str().into());
        put("toolCallId", self.call_id.as_str().into());
        put("toolName", (&*self.tool).into());
        put("args", serde_json::from_str(&self.arguments).unwrap_or_default());
        put("sha256", (&*self.sha256).into());
        put("kind", self.kind.as_str().into());
        if let Some(at) = self.asked_at {
            put("createdAt", at.to_iso().into());
        }
        if let Some(at) = self.expires_at {
            put("expiresAt", at.to_iso().into());
        }
        if let Some(reason) = &self.reason {
            put("reason", reason.as_str().into());
        }
        for key in ["question", "signIn"] {
            if let Some(detail) = self.detail.as_ref().and_then(|detail| detail.get(key)) {
                put(key, detail.clone());
            }
        }
        if self.quorum > 1 {
            put("quorum", self.quorum.into());
            put("approvedBy", self.approved_by.clone().into());
        }
        if !self.deciders.is_empty() {
            put("deciders", self.deciders.clone().into());
        }
        Value::Object(shape)
    }

    /// The pending decision of an open call.
    pub fn of(thread: &ThreadId, call: &Call, ask: &ApprovalAsk) -> Option<Self> {
        let gated = call.gated.as_ref()?;
        let asked = (Arc::clone(&call.tool), Arc::clone(&gated.text), Arc::clone(&gated.sha256), ask.clone());
        let mut pending = Self::new(thread, &call.id, call.asked_at, &asked);
        pending.approved_by = call.votes.iter().filter_map(|vote| vote.by.clone()).collect();
        Some(pending)
    }
}

/// A question to a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The question.
    pub text: String,
    /// Answers to choose from.
    pub options: Vec<String>,
    /// Whether an answer that is none of them counts.
    pub allow_free_text: bool,
}

/// What records change in the index. A store applies it in the same write as the records: [`IndexChange::applied`] to what it
/// says of the thread, then to the pending decisions `all_settled`, `settled` and `asked`, in this order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IndexChange {
    /// The thread came to be: agent, parent, and when.
    pub opened: Option<Opening>,
    /// The thread it was forked from.
    pub forked_from: Option<ThreadId>,
    /// The title, for a thread that has none yet.
    pub title: Option<String>,
    /// Where the thread stands now, if that changed.
    pub status: Option<ThreadStatus>,
    /// Input waits for a run: a thread that would be finished is not.
    pub input_waits: bool,
    /// When the last of the records was written.
    pub changed_at: Option<Timestamp>,
    /// Decisions that are asked for and still pending after these records; without the thread's id, which the store knows.
    pub asked: Vec<PendingRow>,
    /// Calls that wait no longer. Applied before `asked`.
    pub settled: Vec<CallId>,
    /// Nothing of the thread waits any longer. Applied before `settled`.
    pub all_settled: bool,
}

/// How a thread came to be.
#[derive(Clone, Debug, PartialEq)]
pub struct Opening {
    /// The agent.
    pub agent: Arc<str>,
    /// The thread it is a child of.
    pub parent: Option<ThreadId>,
    /// When.
    pub at: Timestamp,
}

/// A decision that is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingRow {
    /// The call.
    pub call: CallId,
    /// The decision's id.
    pub approval: ApprovalId,
    /// When it was asked for.
    pub at: Timestamp,
    /// What people see, but for the thread's id.
    body: Box<Asked>,
}

/// Tool, arguments, their hash, and the question.
type Asked = (Arc<str>, Arc<str>, Arc<str>, ApprovalAsk);

impl PendingRow {
    /// What people see.
    pub fn of_thread(&self, thread: &ThreadId) -> PendingApproval {
        PendingApproval::new(thread, &self.call, Some(self.at), &self.body)
    }
}

impl IndexChange {
    /// What these records change, in order.
    pub fn of(records: &[Arc<Record>]) -> Self {
        let mut change = Self::default();
        let mut asked: BTreeMap<CallId, PendingRow> = BTreeMap::new();
        // Whether the thread would be finished but for input that waits.
        let mut only_input = false;
        for record in records {
            change.changed_at = Some(record.at);
            match &record.body {
                RecordBody::ThreadOpened { agent, parent, .. } => {
                    change.opened = Some(Opening { agent: Arc::clone(agent), parent: parent.clone(), at: record.at });
                }
                RecordBody::ThreadForked { from, .. } => {
                    // Nothing that the source waits for is decided here; the calls come before the gate again.
                    asked.clear();
                    change.settled.clear();
                    change.all_settled = true;
                    change.forked_from = Some(from.clone());
                    change.input_waits = false;
                    if only_input {
                        change.status = Some(ThreadStatus::Finished);
                    }
                    if change.status == Some(ThreadStatus::AwaitingApproval) {
                        change.status = Some(ThreadStatus::InProgress);
                    }
                }
                RecordBody::MessageAdded { message } => change.title = change.title.take().or_else(|| title_of(message)),
                RecordBody::InputQueued { messages, only, .. } => {
                    change.title = change.title.take().or_else(|| messages.iter().find_map(|message| title_of(message)));
                    change.input_waits |= record.run.is_none() && only.is_none();
                }
                RecordBody::RunStarted { .. } => {
                    (change.input_waits, only_input) = (false, false);
                    change.status = Some(ThreadStatus::InProgress);
                }
                RecordBody::RunDone { finish, input_waits, .. } => {
                    only_input = *input_waits && *finish != FinishReason::AwaitingApproval;
                    change.status = Some(match finish {
                        FinishReason::AwaitingApproval => ThreadStatus::AwaitingApproval,
                        _ if *input_waits => ThreadStatus::InProgress,
                        _ => ThreadStatus::Finished,
                    });
                }
                RecordBody::CallGated {
                    call,
                    tool,
                    arguments: Some(arguments),
                    sha256: Some(sha256),
                    verdict: Verdict::Ask(ask),
                    resumed,
                    ..
                } => {
                    if *resumed {
                        // An approval of another call was thought to answer what it waited for.
                        change.settled.push(call.clone());
                    }
                    let body = Box::new((Arc::clone(tool), Arc::clone(arguments), Arc::clone(sha256), ask.clone()));
                    asked.insert(call.clone(), PendingRow { call: call.clone(), approval: ask.approval.clone(), at: record.at, body });
                }
                RecordBody::ApprovalDelegated(delegation) => {
                    let Delegation { call, tool, arguments, sha256, asked_at, ask, .. } = &**delegation;
                    change.settled.push(call.clone());
                    let body = Box::new((Arc::clone(tool), Arc::clone(arguments), Arc::clone(sha256), ask.clone()));
                    let approval = ask.approval.clone();
                    asked.insert(call.clone(), PendingRow { call: call.clone(), approval, at: *asked_at, body });
                }
                // An approval of another call answers it: nobody decides any more.
                RecordBody::CallGated { call, resumed: true, .. } if asked.remove(call).is_none() => change.settled.push(call.clone()),
                RecordBody::CallDecided { call, .. } | RecordBody::CallDone { call, .. } if asked.remove(call).is_none() => {
                    change.settled.push(call.clone());
                }
                _ => {}
            }
        }
        change.asked = asked.into_values().collect();
        change
    }

    /// What the index says of the thread after this change, from what it said before; the journal now ends at `head`. `None`
    /// as long as the journal has no record that opens it.
    pub fn applied(&self, thread: &ThreadId, before: Option<ThreadInfo>, head: Seq) -> Option<ThreadInfo> {
        let opened = self.opened.as_ref().map(|opened| ThreadInfo {
            id: thread.clone(),
            agent: opened.agent.to_string(),
            status: ThreadStatus::Finished,
            title: String::new(),
            parent: opened.parent.clone(),
            forked_from: None,
            created_at: opened.at,
            changed_at: opened.at,
            head,
        });
        let mut info = opened.or(before)?;
        info.head = head;
        info.changed_at = self.changed_at.unwrap_or(info.changed_at);
        if self.all_settled && info.status == ThreadStatus::AwaitingApproval {
            // The records that were copied came in an append of their own.
            info.status = ThreadStatus::InProgress;
        }
        info.status = self.status.unwrap_or(info.status);
        if self.input_waits && info.status == ThreadStatus::Finished {
            info.status = ThreadStatus::InProgress;
        }
        info.forked_from = self.forked_from.clone().or(info.forked_from);
        if info.title.is_empty() {
            info.title = self.title.clone().unwrap_or_default();
        }
        Some(info)
    }
}

/// The title that a person's message gives: the first line that says something, without control characters.
fn title_of(message: &Message) -> Option<String> {
    if message.author != Author::Human {
        return None;
    }
    let clean = |line: &str| line.chars().filter(|sign| !sign.is_control()).collect::<String>().trim().to_owned();
    let first = message.text_of().lines().map(clean).find(|line| !line.is_empty())?;
    Some(cut(&first, TITLE_BYTES).trim_end().to_owned())
}
