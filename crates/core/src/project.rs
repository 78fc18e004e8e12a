//! From records to events: the one table of the public catalogue (sdk-runtime 15, 16).

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::event::{CompactionError, ErrorBody, EventKind, EventUsage};
use crate::failure::ToolFailureKind;
use crate::finish::Failure;
use crate::ids::{CallId, Timestamp};
use crate::message::Item;
use crate::notes::{PermissionNote, RewriteNote};
use crate::record::{Ending, InputMode, Outcome, Record, RecordBody, Verdict};

impl From<&Failure> for ErrorBody {
    fn from(failure: &Failure) -> Self {
        Self { name: failure.name.clone(), message: failure.message.clone(), code: failure.code.clone() }
    }
}

/// Gated arguments as a value; `{}` where they could not be read (sdk-tools 4.1/6).
fn args_value(arguments: Option<&Arc<str>>) -> Value {
    arguments.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_else(|| Value::Object(Map::new()))
}

/// The events of a record, in order. A whole reply projects to its deltas too, so that a reader of the journal alone sees
/// the same shape as one who watched; a live subscription leaves out what it has delivered.
///
/// | record | events |
/// |---|---|
/// | `run.started` | `run.start` |
/// | `step.started` | `step.start` |
/// | `model.replied` | `guardrail.rewrote`, `reasoning.*`, `text.delta`, `text.done` |
/// | `reply.withheld` | `guardrail.tripped` |
/// | `input.checked` | `guardrail.rewrote`, then `guardrail.tripped` if it is blocked |
/// | `budget.exceeded` | `budget.exceeded` |
/// | `call.gated` | `tool.start` or `tool.resume`, `guardrail.rewrote`, `permission.decision`, then `approval.requested` if it asks, `guardrail.tripped` if it ends the run |
/// | `call.voted`, `approval.delegated`, `.reminded` | `approval.voted`, `approval.delegated`, `approval.reminded` |
/// | `call.executing`, from the second attempt | `tool.start` anew |
/// | `call.done` | `guardrail.rewrote`, `tool.done` or `tool.error`, then the call's own events and `guardrail.tripped` if it is withheld; nothing for a call that never started |
/// | `step.done` | `step.done` |
/// | `input.queued`, `.applied`, `.returned` | `input.queued` or `input.steered`, `input.applied`, `input.returned` |
/// | `context.compacted` | `compaction.start`, `compaction.done` |
/// | `transcript.replaced` | `context.cleared` if it was emptied |
/// | `agent.drifted`, `thread.forked` | `agent.drift`, `thread.forked` |
/// | `permission.mode` | `permission.mode` |
/// | `run.done` | `error` if it failed, `guardrail.tripped` if a repetition ended it, then `run.done` |
/// | others | none |
pub fn project(record: &Record) -> Vec<EventKind> {
    match &record.body {
        RecordBody::RunStarted { agent, .. } => vec![EventKind::RunStart { agent_name: Arc::clone(agent), agent_id: None }],
        RecordBody::StepStarted { step } => vec![EventKind::StepStart { step: *step }],
        RecordBody::ModelReplied { message, usage, rewrote: notes, .. } => {
            let mut events: Vec<EventKind> = notes.iter().map(|note| rewrote(note, "output", None)).collect();
            if let Some(reasoning) = message.reasoning_of() {
                events.push(EventKind::ReasoningStart {});
                if !reasoning.is_empty() {
                    events.push(EventKind::ReasoningDelta { text: reasoning.clone() });
                }
                events.push(EventKind::ReasoningDone { text: reasoning, tokens: usage.and_then(|usage| usage.reasoning_tokens) });
            }
            if message.items.iter().any(|item| matches!(item, Item::Text { text } if !text.is_empty())) {
                let text = message.text_of();
                events.push(EventKind::TextDelta { text: text.clone() });
                events.push(EventKind::TextDone { text });
            }
            events
        }
        RecordBody::CallGated { call, tool, arguments, repairs, resumed, parent, verdict, notes, .. } => {
            let args = args_value(arguments.as_ref());
            let mut events = Vec::with_capacity(2);
            events.push(if *resumed {
                EventKind::ToolResume {
                    tool_call_id: call.clone(),
                    tool_name: Arc::clone(tool),
                    args: args.clone(),
                    edited: notes.as_ref().is_some_and(|notes| notes.edited),
                }
            } else {
                EventKind::ToolStart {
                    tool_call_id: call.clone(),
                    tool_name: Arc::clone(tool),
                    args: args.clone(),
                    repairs: repairs.clone(),
                    executed_by: None,
                    parent_tool_call_id: parent.clone(),
                }
            });
            if let Some(notes) = notes {
                events.extend(notes.rewrote.iter().map(|note| rewrote(note, "tool", Some((call, tool)))));
                events.extend(notes.permission.as_ref().map(|note| audited(note, call, tool, &args, record.at)));
            }
            match verdict {
                Verdict::Ask(ask) => {
                    let detail = |key: &str| ask.detail.as_ref().and_then(|detail| detail.get(key)).cloned();
                    events.push(EventKind::ApprovalRequested {
                        approval_id: ask.approval.clone(),
                        tool_call_id: call.clone(),
                        tool_name: Arc::clone(tool),
                        args,
                        reason: ask.reason.clone(),
                        approval_kind: (!ask.kind.is_tool()).then(|| ask.kind.as_str().to_owned()),
                        question: detail("question"),
                        sign_in: detail("signIn"),
                        expires_at: ask.expires_at.map(Timestamp::to_iso),
                        quorum: Some(ask.quorum).filter(|quorum| *quorum > 1),
                        deciders: ask.deciders.clone(),
                    });
                }
                Verdict::EndRun { ending } => events.extend(tripped(ending)),
                _ => {}
            }
            events
        }
        RecordBody::CallExecuting { call, tool, attempt, arguments } if *attempt > 1 => vec![EventKind::ToolStart {
            tool_call_id: call.clone(),
            tool_name: Arc::clone(tool),
            args: args_value(arguments.as_ref()),
            repairs: Vec::new(),
            executed_by: None,
            parent_tool_call_id: None,
        }],
        RecordBody::CallDone { call, tool, outcome, duration_ms, replaced_by, notes, .. } => {
            let Some(duration_ms) = *duration_ms else { return Vec::new() };
            let rewritten = notes.iter().flat_map(|notes| &notes.rewrote).map(|note| rewrote(note, "result", Some((call, tool))));
            let mut events: Vec<EventKind> = rewritten.collect();
            match outcome {
                Outcome::Done { output } => {
                    events.push(EventKind::ToolDone {
                        tool_call_id: call.clone(),
                        tool_name: Arc::clone(tool),
                        result: output.shown(),
                        attachments: output.attachments().to_vec(),
                        duration_ms,
                        replaced_by_hook: replaced_by.clone(),
                        executed_by: None,
                    });
                    events.extend(output.events().iter().cloned());
                }
                Outcome::Failed { failure } => events.push(EventKind::ToolError {
                    tool_call_id: call.clone(),
                    tool_name: Arc::clone(tool),
                    error: ErrorBody { name: failure.error.clone(), message: failure.message.clone(), code: code_of(&failure.kind) },
                    duration_ms,
                }),
            }
            events.extend(notes.as_ref().and_then(|notes| tripped(notes.ending.as_ref()?)));
            events
        }
        RecordBody::CallVoted { approval, call, decision, votes, .. } => vec![EventKind::ApprovalVoted {
            approval_id: approval.clone(),
            tool_call_id: call.clone(),
            by: decision.by.clone(),
            votes: *votes,
        }],
        RecordBody::ApprovalDelegated(delegation) => vec![EventKind::ApprovalDelegated {
            approval_id: delegation.ask.approval.clone(),
            tool_call_id: delegation.call.clone(),
            to: delegation.ask.deciders.clone(),
            by: delegation.by.clone(),
            note: delegation.note.clone(),
        }],
        RecordBody::ApprovalReminded { approval, call, tool, times } => vec![EventKind::ApprovalReminded {
            approval_id: approval.clone(),
            tool_call_id: call.clone(),
            tool_name: Arc::clone(tool),
            times: *times,
        }],
        RecordBody::InputChecked { rewrote: notes, ending, .. } => {
            let mut events: Vec<EventKind> = notes.iter().map(|note| rewrote(note, "input", None)).collect();
            events.extend(ending.as_ref().and_then(tripped));
            events
        }
        RecordBody::ReplyWithheld { ending, .. } => tripped(ending).into_iter().collect(),
        RecordBody::BudgetExceeded { budget, .. } => vec![EventKind::BudgetExceeded(budget.clone())],
        RecordBody::StepDone { step, finish, usage } => vec![EventKind::StepDone {
            step: *step,
            finish_reason: finish.clone(),
            usage: usage.as_ref().map(|usage| EventUsage::of(usage, None)),
        }],
        RecordBody::RunDone { finish, text, usage, model_calls, ending, .. } => {
            let mut events = Vec::new();
            let mut abort_reason = None;
            match ending {
                Some(Ending::Aborted { reason }) => abort_reason = Some(reason.clone()),
                // Every other was told with what it tripped over; a repetition has no record of its own.
                Some(ending @ Ending::Guardrail { trip, .. }) if trip.kind == "tool" && trip.tool_name.is_none() => {
                    events.extend(tripped(ending))
                }
                _ => {}
            }
            if let Some(failure) = ending.as_ref().and_then(Ending::failure) {
                events.push(EventKind::Error { error: (&failure).into() });
            }
            events.push(EventKind::RunDone {
                finish_reason: finish.clone(),
                text: Arc::clone(text),
                abort_reason,
                usage: usage.as_ref().map(|usage| EventUsage::of(usage, Some(*model_calls))),
                object: None,
            });
            events
        }
        RecordBody::InputQueued { id, mode, messages, immediate, .. } => {
            let text: Vec<String> = messages.iter().map(|message| message.text_of()).collect();
            let (id, text) = (id.clone(), text.join("\n"));
            vec![match mode {
                InputMode::Steer => {
                    let mode = if *immediate { "immediate" } else { "queued" };
                    EventKind::InputSteered { id, text, mode: mode.to_owned() }
                }
                _ => EventKind::InputQueued { id, text },
            }]
        }
        RecordBody::InputApplied { id, step } => vec![EventKind::InputApplied { id: id.clone(), step: *step }],
        RecordBody::InputReturned { id, why } => vec![EventKind::InputReturned { id: id.clone(), reason: Arc::clone(why) }],
        RecordBody::ContextCompacted(compaction) => {
            let trigger = compaction.step.is_none().then(|| "manual".to_owned());
            vec![
                EventKind::CompactionStart {
                    strategy: Arc::clone(&compaction.strategy),
                    tokens_before: compaction.tokens_before,
                    context_window: compaction.context_window,
                    threshold_tokens: compaction.threshold_tokens,
                    trigger: trigger.clone(),
                },
                EventKind::CompactionDone {
                    strategy: Arc::clone(&compaction.strategy),
                    tokens_before: compaction.tokens_before,
                    tokens_after: compaction.tokens_after,
                    pruned_tool_call_ids: compaction.pruned.clone(),
                    summary: compaction.folded.as_ref().map(|_| true),
                    error: compaction.error.clone().map(|message| CompactionError { message }),
                    trigger,
                },
            ]
        }
        RecordBody::TranscriptReplaced { cleared: Some((thread, messages)), .. } => {
            vec![EventKind::ContextCleared { session_id: thread.clone(), messages_cleared: *messages }]
        }
        RecordBody::AgentDrifted(drift) => vec![EventKind::AgentDrift {
            model: drift.model,
            tools_added: drift.tools_added.clone(),
            tools_removed: drift.tools_removed.clone(),
            tools_changed: drift.tools_changed.clone(),
            instructions: drift.instructions,
        }],
        RecordBody::PermissionMode { from, to, run_only } => {
            vec![EventKind::PermissionMode { from: *from, to: *to, run_only: *run_only }]
        }
        RecordBody::ThreadForked { from, through } => vec![EventKind::ThreadForked { from: from.clone(), at: *through }],
        _ => Vec::new(),
    }
}

fn rewrote(note: &RewriteNote, kind: &str, of: Option<(&CallId, &Arc<str>)>) -> EventKind {
    EventKind::GuardrailRewrote {
        name: note.name.clone(),
        kind: kind.to_owned(),
        tool_name: of.map(|(_, tool)| Arc::clone(tool)),
        tool_call_id: of.map(|(call, _)| call.clone()),
        reason: note.reason.clone(),
        info: note.info.clone(),
    }
}

/// The audit entry of a call (sdk-tools 12.3).
fn audited(note: &PermissionNote, call: &CallId, tool: &Arc<str>, args: &Value, at: Timestamp) -> EventKind {
    EventKind::PermissionDecision {
        tool_call_id: call.clone(),
        tool_name: Arc::clone(tool),
        decision: note.decision.as_str().to_owned(),
        rule: note.rule.clone(),
        args: Some(args.clone()),
        at: at.to_iso(),
        hook: note.hook.clone(),
        reason: note.reason.clone(),
        mode: note.mode.clone(),
        shadow: note.shadow.clone(),
    }
}

fn tripped(ending: &Ending) -> Option<EventKind> {
    match ending {
        Ending::Guardrail { trip, .. } => Some(EventKind::GuardrailTripped {
            name: trip.name.clone(),
            kind: trip.kind.clone(),
            reason: trip.reason.clone(),
            tool_name: trip.tool_name.clone(),
            info: trip.info.clone(),
        }),
        _ => None,
    }
}

/// The stable code of a failed call (sdk-tools 33.2).
fn code_of(kind: &ToolFailureKind) -> Option<String> {
    let code = match kind {
        ToolFailureKind::Execution | ToolFailureKind::Mcp | ToolFailureKind::Sandbox => "TOOLWRIGHT_TOOL_EXECUTION_FAILED",
        ToolFailureKind::Validation => "TOOLWRIGHT_TOOL_ARGS_INVALID",
        ToolFailureKind::NotFound => "TOOLWRIGHT_TOOL_NOT_FOUND",
        _ => return None,
    };
    Some(code.to_owned())
}
