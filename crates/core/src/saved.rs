//! The fold, saved: positions of the records that hold bodies, and what is counted. Never a message's text.
//!
//! A saved fold is a cache. It is written by [`Thread::save`] between turns, and completed with the records it points at by
//! [`Saved::complete`]; one that this version does not know, or that does not fit its journal, is passed over.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Map;

use crate::budget::Spent;
use crate::checked::with_text;
use crate::decision::{ApprovalMark, Remembered};
use crate::fingerprint::Fingerprint;
use crate::finish::FinishReason;
use crate::ids::{CallId, InputId, RunId, Seq, ThreadId, Timestamp};
use crate::message::{Author, Item, Message};
use crate::policy::PermissionMode;
use crate::record::{Ending, Outcome, Record, RecordBody};
use crate::reshape::{is_pruned, mark_pruned, summary_message};
use crate::state::{LastRun, Measured, OpenStep, QueuedInput, Repetition, Run, Turn, result_item};
use crate::taint::Marks;
use crate::thread::Thread;
use crate::transcript::Transcript;
use crate::usage::Usage;

/// The layout of what [`Thread::save`] writes.
const VERSION: u32 = 2;

/// Where a message of the transcript came from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Origin {
    /// A record that holds it.
    Record(Seq),
    /// One of a record's messages.
    Part(Seq, usize),
    /// The results of a turn.
    Results(Vec<ResultOrigin>),
    /// The summary of a compaction.
    Summary(Seq),
    /// Input whose text a guardrail changed: the record of the check, which of its changes, and where the message came from.
    Checked(Seq, usize, Box<Self>),
}

impl Origin {
    /// The records that it points at.
    fn positions(&self, all: &mut BTreeSet<Seq>) {
        match self {
            Self::Record(at) | Self::Part(at, _) | Self::Summary(at) => drop(all.insert(*at)),
            Self::Results(results) => all.extend(results.iter().map(|result| result.at)),
            Self::Checked(at, _, of) => {
                all.insert(*at);
                of.positions(all);
            }
        }
    }
}

/// Where a result came from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ResultOrigin {
    pub(crate) at: Seq,
    pub(crate) call: CallId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) provider_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) approval: Option<ApprovalMark>,
}

/// Why a saved fold can't be used. The journal can: it is read from its beginning.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the saved fold can't be used: {0}")]
pub struct SavedError(String);

/// A saved fold, before its bodies are there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Saved {
    version: u32,
    id: Option<ThreadId>,
    head: Seq,
    origins: Vec<Origin>,
    run: Option<SavedRun>,
    last_run: Option<SavedLastRun>,
    fingerprint: Option<Arc<Fingerprint>>,
    /// The record that has the instructions.
    instructions: Option<Seq>,
    /// Results that are markers: the message's index, and the call.
    pruned: Vec<(usize, CallId)>,
    queued: Vec<(InputId, Seq)>,
    forked_open: bool,
    compacted_for: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    measured: Option<Measured>,
    last_results: Vec<(Seq, CallId)>,
    ended_direct: bool,
    step: Option<OpenStep>,
    #[serde(default)]
    unchecked: usize,
    #[serde(default)]
    spent: Spent,
    #[serde(default)]
    spent_in_all: Spent,
    #[serde(default)]
    last_at: Timestamp,
    steps_taken: u32,
    last_step: u32,
    used_ids: BTreeSet<CallId>,
    repetition: (String, u32),
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    remembered: Vec<Remembered>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<(Seq, PermissionMode)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run_mode: Option<(Seq, PermissionMode)>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct SavedRun {
    since: Seq,
    text_at: Option<Seq>,
    usage: Option<Usage>,
    model_calls: u32,
    ending: Option<Ending>,
    last_finish: Option<FinishReason>,
    calls_per_tool: Vec<(Arc<str>, u32)>,
    retries_per_tool: Vec<(Arc<str>, u32)>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    prune_only: bool,
    #[serde(default)]
    spent: Spent,
    #[serde(default)]
    idle_ms: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct SavedLastRun {
    id: RunId,
    since: Seq,
    text_at: Option<Seq>,
    finish: FinishReason,
    usage: Option<Usage>,
    model_calls: u32,
    ending: Option<Ending>,
    /// Whether who it acted for was left with the thread it was forked from.
    anonymous: bool,
}

impl Thread {
    /// The fold as text, to go on from later; `None` in the middle of a turn, between the messages of a history that is brought
    /// along, and for a thread that does not move.
    ///
    /// It grows with the thread, so whoever saves it does so ever more rarely.
    pub fn save(&self) -> Option<String> {
        if !self.turn.is_empty() || self.blocked_by.is_some() || self.transcript.check_balance().is_err() {
            return None;
        }
        let counted = |map: &HashMap<Arc<str>, u32>| {
            let mut all: Vec<(Arc<str>, u32)> = map.iter().map(|(tool, count)| (Arc::clone(tool), *count)).collect();
            all.sort();
            all
        };
        let saved = Saved {
            version: VERSION,
            id: self.id.clone(),
            head: self.head,
            origins: self.origins.clone(),
            run: self.run.as_ref().map(|run| SavedRun {
                since: run.since,
                text_at: run.text_at,
                usage: run.usage,
                model_calls: run.model_calls,
                ending: run.ending.clone(),
                last_finish: run.last_finish.clone(),
                calls_per_tool: counted(&run.calls_per_tool),
                retries_per_tool: counted(&run.retries_per_tool),
                prune_only: run.prune_only,
                spent: run.spent,
                idle_ms: run.idle_ms,
            }),
            last_run: self.last_run.as_ref().map(|run| SavedLastRun {
                id: run.id.clone(),
                since: run.since,
                text_at: run.text_at,
                finish: run.finish.clone(),
                usage: run.usage,
                model_calls: run.model_calls,
                ending: run.ending.clone(),
                anonymous: run.principal.is_none(),
            }),
            fingerprint: self.fingerprint.clone(),
            instructions: self.instructions.as_ref().map(|(at, _)| *at),
            pruned: self.markers(),
            queued: self.queued.iter().map(|input| (input.id.clone(), input.since)).collect(),
            forked_open: self.forked_open,
            compacted_for: self.compacted_for,
            measured: self.measured,
            last_results: self.last_results.iter().map(|(seq, call, _)| (*seq, call.clone())).collect(),
            ended_direct: self.ended_direct,
            step: self.step.clone(),
            unchecked: self.unchecked,
            spent: self.spent,
            spent_in_all: self.spent_in_all,
            last_at: self.last_at,
            steps_taken: self.steps_taken,
            last_step: self.last_step,
            used_ids: self.used_ids.iter().cloned().collect(),
            repetition: (self.repetition.what.hash(), self.repetition.count),
            mode: self.mode,
            run_mode: self.run_mode,
            remembered: self.remembered.clone(),
        };
        #[cfg(feature = "planted-bugs")]
        let saved = match self.planted {
            Some(crate::thread::FoldBug::SavedWithoutInput) => Saved { queued: Vec::new(), ..saved },
            Some(crate::thread::FoldBug::SavedWithoutApprovals) => Saved { remembered: Vec::new(), ..saved },
            Some(crate::thread::FoldBug::SavedWithoutIds) => Saved { used_ids: BTreeSet::new(), ..saved },
            _ => saved,
        };
        serde_json::to_string(&saved).ok()
    }

    /// The results that are markers now. A body that reads like one is among them, which changes nothing: it stays as it is.
    fn markers(&self) -> Vec<(usize, CallId)> {
        let results = self.transcript.iter().enumerate().flat_map(|(at, message)| message.results().map(move |result| (at, result)));
        results.filter(|(_, result)| is_pruned(result)).map(|(at, result)| (at, result.call_id.clone())).collect()
    }
}

impl Saved {
    /// Reads what [`Thread::save`] wrote.
    pub fn read(text: &str) -> Result<Self, SavedError> {
        let saved: Self = serde_json::from_str(text).map_err(|error| SavedError(error.to_string()))?;
        if saved.version == VERSION { Ok(saved) } else { Err(SavedError(format!("its layout is {}, not {VERSION}", saved.version))) }
    }

    /// The position of the last record in it.
    pub fn head(&self) -> Seq {
        self.head
    }

    /// The records whose bodies it needs, ascending.
    pub fn positions(&self) -> Vec<Seq> {
        let mut all = BTreeSet::new();
        self.origins.iter().for_each(|origin| origin.positions(&mut all));
        all.extend(self.instructions);
        all.extend(self.queued.iter().map(|(_, at)| *at));
        all.extend(self.last_results.iter().map(|(at, _)| *at));
        all.extend(self.run.iter().flat_map(|run| [Some(run.since), run.text_at]).flatten());
        all.extend(self.last_run.iter().flat_map(|run| [Some(run.since), run.text_at]).flatten());
        all.into_iter().collect()
    }

    /// The fold, with the records of [`Saved::positions`].
    pub fn complete(self, records: &[Arc<Record>]) -> Result<Thread, SavedError> {
        let bodies: HashMap<Seq, &Record> = records.iter().map(|record| (record.seq, &**record)).collect();
        let bodies = Bodies { bodies };
        let mut transcript = Transcript::new();
        for origin in &self.origins {
            transcript.push(bodies.message(origin)?);
        }
        for (at, call) in &self.pruned {
            let message = transcript.get(*at).ok_or_else(|| SavedError(format!("there is no message {at} to prune")))?;
            let mut marked = (**message).clone();
            mark_pruned(&mut marked, |id| id == call);
            transcript.set(*at, Arc::new(marked));
        }
        transcript.check_balance().map_err(|error| SavedError(error.to_string()))?;
        if self.unchecked > transcript.len() {
            return Err(SavedError(format!("{} messages can't be unchecked, there are {}", self.unchecked, transcript.len())));
        }
        let mut last_results = Vec::with_capacity(self.last_results.len());
        for (at, call) in self.last_results {
            let RecordBody::CallDone { outcome, .. } = &bodies.at(at)?.body else { return Err(misplaced(at)) };
            last_results.push((at, call, outcome.clone()));
        }
        let mut queued = Vec::with_capacity(self.queued.len());
        for (id, at) in self.queued {
            let RecordBody::InputQueued { mode, messages, only, .. } = &bodies.at(at)?.body else { return Err(misplaced(at)) };
            queued.push(QueuedInput { id, mode: mode.clone(), messages: messages.clone(), only: only.clone(), since: at });
        }
        let mut instructions = None;
        if let Some(at) = self.instructions {
            let RecordBody::RunStarted { instructions: Some(text), .. } = &bodies.at(at)?.body else { return Err(misplaced(at)) };
            instructions = Some((at, Arc::clone(text)));
        }
        let run = self.run.map(|run| bodies.run(run)).transpose()?;
        let last_run = self.last_run.map(|run| bodies.last_run(run)).transpose()?;
        let mut thread = Thread::new();
        thread.id = self.id;
        thread.head = self.head;
        thread.transcript = transcript;
        thread.origins = self.origins;
        thread.run = run;
        thread.last_run = last_run;
        thread.fingerprint = self.fingerprint;
        thread.instructions = instructions;
        thread.queued = queued;
        thread.forked_open = self.forked_open;
        thread.compacted_for = self.compacted_for;
        thread.measured = self.measured;
        thread.last_results = last_results;
        thread.ended_direct = self.ended_direct;
        thread.step = self.step;
        thread.unchecked = self.unchecked;
        thread.spent = self.spent;
        thread.spent_in_all = self.spent_in_all;
        thread.last_at = self.last_at;
        thread.steps_taken = self.steps_taken;
        thread.last_step = self.last_step;
        thread.used_ids = self.used_ids.into_iter().collect::<HashSet<_>>();
        thread.remembered = self.remembered;
        thread.mode = self.mode;
        thread.run_mode = self.run_mode;
        thread.repetition = Repetition { what: Turn::Hash(self.repetition.0), count: self.repetition.1 };
        Ok(thread)
    }
}

fn misplaced(at: Seq) -> SavedError {
    SavedError(format!("record {at} is not of the kind it points at"))
}

struct Bodies<'a> {
    bodies: HashMap<Seq, &'a Record>,
}

impl Bodies<'_> {
    fn at(&self, at: Seq) -> Result<&Record, SavedError> {
        self.bodies.get(&at).copied().ok_or_else(|| SavedError(format!("record {at} is missing")))
    }

    fn message(&self, origin: &Origin) -> Result<Arc<Message>, SavedError> {
        match origin {
            Origin::Record(at) => match &self.at(*at)?.body {
                RecordBody::MessageAdded { message } | RecordBody::ModelReplied { message, .. } => Ok(Arc::clone(message)),
                _ => Err(misplaced(*at)),
            },
            Origin::Part(at, index) => match &self.at(*at)?.body {
                RecordBody::InputQueued { messages, .. } | RecordBody::TranscriptReplaced { messages, .. } => {
                    messages.get(*index).cloned().ok_or_else(|| misplaced(*at))
                }
                _ => Err(misplaced(*at)),
            },
            Origin::Summary(at) => match &self.at(*at)?.body {
                RecordBody::ContextCompacted(compaction) => {
                    let folded = compaction.folded.as_ref().ok_or_else(|| misplaced(*at))?;
                    Ok(Arc::new(summary_message(&folded.summary)))
                }
                _ => Err(misplaced(*at)),
            },
            Origin::Checked(at, index, of) => match &self.at(*at)?.body {
                RecordBody::InputChecked { rewritten, .. } => {
                    let change = rewritten.get(*index).ok_or_else(|| misplaced(*at))?;
                    let message = self.message(of)?;
                    Ok(Arc::new(with_text(&message, &change.text)))
                }
                _ => Err(misplaced(*at)),
            },
            Origin::Results(results) => {
                let mut items = Vec::with_capacity(results.len());
                for result in results {
                    items.push(Item::ToolResult(self.result(result)?));
                }
                Ok(Arc::new(Message { author: Author::Tool, items, metadata: Map::new() }))
            }
        }
    }

    fn result(&self, origin: &ResultOrigin) -> Result<crate::message::ResultItem, SavedError> {
        let made = |tool: &str, outcome: &Outcome, marks: Marks| {
            result_item(&origin.call, tool, outcome, origin.provider_id.clone(), origin.approval.clone(), marks)
        };
        match &self.at(origin.at)?.body {
            RecordBody::CallDone { call, tool, outcome, notes, .. } if *call == origin.call => {
                Ok(made(tool, outcome, notes.as_ref().map(|notes| notes.marks.clone()).unwrap_or_default()))
            }
            RecordBody::ResultReplaced { call, tool, output } if *call == origin.call => {
                Ok(made(tool, &Outcome::Done { output: Arc::clone(output) }, Marks::default()))
            }
            _ => Err(misplaced(origin.at)),
        }
    }

    fn run(&self, saved: SavedRun) -> Result<Run, SavedError> {
        let record = self.at(saved.since)?;
        let (RecordBody::RunStarted { cause, agent, limits, added, principal, metadata, budgets, checks_input, .. }, Some(id)) =
            (&record.body, &record.run)
        else {
            return Err(misplaced(saved.since));
        };
        Ok(Run {
            id: id.clone(),
            cause: cause.clone(),
            agent: Arc::clone(agent),
            limits: *limits,
            added: added.clone(),
            principal: principal.clone(),
            metadata: metadata.clone(),
            usage: saved.usage,
            model_calls: saved.model_calls,
            ending: saved.ending,
            since: saved.since,
            last_finish: saved.last_finish,
            text: self.text(saved.text_at)?,
            text_at: saved.text_at,
            calls_per_tool: saved.calls_per_tool.into_iter().collect(),
            retries_per_tool: saved.retries_per_tool.into_iter().collect(),
            prune_only: saved.prune_only,
            budgets: budgets.clone(),
            checks_input: *checks_input,
            spent: saved.spent,
            began_at: record.at,
            idle_ms: saved.idle_ms,
        })
    }

    fn last_run(&self, saved: SavedLastRun) -> Result<LastRun, SavedError> {
        let RecordBody::RunStarted { added, principal, metadata, .. } = &self.at(saved.since)?.body else {
            return Err(misplaced(saved.since));
        };
        Ok(LastRun {
            id: saved.id,
            finish: saved.finish,
            text: self.text(saved.text_at)?,
            usage: saved.usage,
            model_calls: saved.model_calls,
            ending: saved.ending,
            added: added.clone(),
            principal: principal.clone().filter(|_| !saved.anonymous),
            metadata: metadata.clone(),
            since: saved.since,
            text_at: saved.text_at,
        })
    }

    fn text(&self, at: Option<Seq>) -> Result<Arc<str>, SavedError> {
        let Some(at) = at else { return Ok(Arc::from("")) };
        match &self.at(at)?.body {
            RecordBody::ModelReplied { message, .. } => Ok(message.text_of().into()),
            RecordBody::RunDone { text, .. } => Ok(Arc::clone(text)),
            _ => Err(misplaced(at)),
        }
    }
}
