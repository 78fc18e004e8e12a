//! What a thread did, step by step, from its journal; and how two threads compare (sdk-runtime 22, 24).
//!
//! The journal keeps what compaction takes out of a model's sight, so these steps are all there ever were.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::finish::FinishReason;
use crate::ids::{CallId, Seq};
use crate::message::Author;
use crate::output::ToolOutput;
use crate::record::{Outcome, Record, RecordBody, RunCause};

/// One step: what the model said, the calls it made, and what became of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryStep {
    /// Its number, as `step.start` has it.
    pub step: u32,
    /// Which of the thread's inputs it answers, from 0; input that joined a run counts.
    pub turn: u32,
    /// The position of the model's reply in the journal.
    pub at: Seq,
    /// What the model said.
    pub text: String,
    /// Its calls, in order.
    pub tool_calls: Vec<HistoryCall>,
}

/// A call of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryCall {
    /// The call.
    pub id: CallId,
    /// The tool.
    pub name: String,
    /// The arguments: as they ran, else as they were written; text that is no JSON stays text.
    pub args: Value,
    /// The result as the model reads it; absent while there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Whether it failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
}

/// What a thread did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Trajectory {
    /// Its steps.
    pub steps: Vec<HistoryStep>,
    /// How its last run ended; absent while it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<FinishReason>,
    #[serde(skip)]
    inputs: u32,
    #[serde(skip)]
    by_call: HashMap<CallId, (usize, usize)>,
}

impl Trajectory {
    /// Of a whole journal.
    pub fn of(records: &[Arc<Record>]) -> Self {
        let mut trajectory = Self::default();
        for record in records {
            trajectory.add(record);
        }
        trajectory
    }

    /// Takes the next record in.
    pub fn add(&mut self, record: &Record) {
        match &record.body {
            RecordBody::RunStarted { .. } => self.finish_reason = None,
            RecordBody::MessageAdded { message } if message.author == Author::Human => self.inputs += 1,
            RecordBody::InputApplied { .. } => self.inputs += 1,
            RecordBody::ModelReplied { step, message, .. } => {
                let index = self.steps.len();
                let mut tool_calls = Vec::new();
                for call in message.calls() {
                    self.by_call.insert(call.call_id.clone(), (index, tool_calls.len()));
                    let args = parsed(&call.arguments);
                    tool_calls.push(HistoryCall { id: call.call_id.clone(), name: call.name.clone(), args, result: None, failed: false });
                }
                let turn = self.inputs.saturating_sub(1);
                self.steps.push(HistoryStep { step: *step, turn, at: record.seq, text: message.text_of(), tool_calls });
            }
            RecordBody::CallGated { call, arguments: Some(arguments), .. } => {
                if let Some(known) = self.call(call) {
                    known.args = parsed(arguments);
                }
            }
            RecordBody::CallDone { call, outcome, .. } => {
                if let Some(known) = self.call(call) {
                    match outcome {
                        Outcome::Done { output } => known.result = Some(output.shown()),
                        Outcome::Failed { failure } => {
                            known.failed = true;
                            known.result = serde_json::to_value(&**failure).ok();
                        }
                    }
                }
            }
            RecordBody::ResultReplaced { call, output, .. } => {
                if let Some(known) = self.call(call) {
                    known.failed = false;
                    known.result = Some(output.shown());
                }
            }
            // What a fork changed in the messages is what a model reads from then on.
            RecordBody::TranscriptReplaced { messages, cleared: None } => {
                for result in messages.iter().flat_map(|message| message.results()) {
                    if let Some(known) = self.call(&result.call_id) {
                        known.failed = result.failed.is_some();
                        known.result = Some(ToolOutput::of(result.parts.clone()).shown());
                    }
                }
            }
            RecordBody::RunDone { finish, .. } => self.finish_reason = Some(finish.clone()),
            _ => {}
        }
    }

    fn call(&mut self, call: &CallId) -> Option<&mut HistoryCall> {
        let (step, position) = self.by_call.get(call)?;
        self.steps.get_mut(*step)?.tool_calls.get_mut(*position)
    }
}

/// Arguments as a value; text that is no JSON stays text (sdk-runtime FRK-2).
fn parsed(arguments: &str) -> Value {
    if arguments.trim().is_empty() {
        return Value::Object(serde_json::Map::new());
    }
    serde_json::from_str(arguments).unwrap_or_else(|_| Value::String(arguments.to_owned()))
}

/// How two trajectories compare (sdk-runtime HIS-9).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Comparison {
    /// The steps of the first.
    pub a: Vec<HistoryStep>,
    /// The steps of the second.
    pub b: Vec<HistoryStep>,
    /// The index of the first step that differs; ids of calls do not count. Absent if none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diverged_at: Option<usize>,
    /// In what they differ as wholes.
    pub drift: TrajectoryDrift,
}

/// In what two trajectories differ as wholes; a field is `true` where they do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TrajectoryDrift {
    /// The tools called, in order.
    pub tool_order: bool,
    /// The arguments of calls that stand at the same place and are of the same tool.
    pub args: bool,
    /// The number of steps.
    pub step_count: bool,
    /// How the last run ended.
    pub finish_reason: bool,
}

/// Compares two trajectories.
pub fn compare(a: &Trajectory, b: &Trajectory) -> Comparison {
    let same = |a: &HistoryStep, b: &HistoryStep| {
        let call = |call: &HistoryCall| (call.name.clone(), call.args.clone(), call.result.as_ref().map(without_id), call.failed);
        a.text == b.text && a.tool_calls.iter().map(call).eq(b.tool_calls.iter().map(call))
    };
    let shared = a.steps.iter().zip(&b.steps).take_while(|(a, b)| same(a, b)).count();
    let all = |trajectory: &Trajectory| -> Vec<HistoryCall> {
        trajectory.steps.iter().flat_map(|step| step.tool_calls.iter().cloned()).collect()
    };
    let (calls_a, calls_b) = (all(a), all(b));
    let names = |calls: &[HistoryCall]| calls.iter().map(|call| call.name.clone()).collect::<Vec<_>>();
    let args = calls_a.iter().zip(&calls_b).any(|(a, b)| a.name == b.name && a.args != b.args);
    Comparison {
        diverged_at: (shared < a.steps.len() || shared < b.steps.len()).then_some(shared),
        drift: TrajectoryDrift {
            tool_order: names(&calls_a) != names(&calls_b),
            args,
            step_count: a.steps.len() != b.steps.len(),
            finish_reason: a.finish_reason != b.finish_reason,
        },
        a: a.steps.clone(),
        b: b.steps.clone(),
    }
}

/// A failure names its call; two failures are the same whichever call they belong to.
fn without_id(result: &Value) -> Value {
    let mut result = result.clone();
    if let Value::Object(fields) = &mut result {
        fields.remove("toolCallId");
    }
    result
}

/// Where the thread has to be cut so that everything of the step `step` is kept and nothing of what follows: 0 keeps only the
/// thread's opening. `None` if there is no such step, or it has not come to its end or to a pause.
pub fn end_of_step(records: &[Arc<Record>], step: u32) -> Option<Seq> {
    if step == 0 {
        return records.first().map(|first| first.seq);
    }
    let mut end = None;
    for record in records {
        match &record.body {
            RecordBody::StepDone { step: done, .. } if *done == step => end = Some(record.seq),
            _ if end.is_none() => {}
            // The step's calls may go on after a pause, in a run that a decision starts, or in a fork that was made there; and what
            // the fork changed is part of it.
            RecordBody::CallGated { .. }
            | RecordBody::CallDecided { .. }
            | RecordBody::CallExecuting { .. }
            | RecordBody::CallDone { .. }
            | RecordBody::RunDone { .. }
            | RecordBody::ThreadForked { .. }
            | RecordBody::ResultReplaced { .. }
            | RecordBody::TranscriptReplaced { cleared: None, .. } => end = Some(record.seq),
            RecordBody::RunStarted { cause: RunCause::Decision | RunCause::Resume, .. }
            | RecordBody::RunCancelled { .. }
            | RecordBody::InputQueued { .. }
            | RecordBody::InputReturned { .. }
            | RecordBody::AgentDrifted(_)
            | RecordBody::PermissionMode { .. } => {}
            _ => break,
        }
    }
    end
}
