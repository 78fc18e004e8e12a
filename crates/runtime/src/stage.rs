//! Stages of the gate that are code of the application: rules and modes of its own.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use toolwright_core::ToolSpec;
use toolwright_tool::{ApprovalRequest, ToolContext, ToolError};

/// Where in the gate a stage stands: rules after hooks, the mode last, after guardrails and the tool's own `needs_approval`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StageKind {
    /// Permission rules: the first one that decides wins.
    Rule,
    /// The permission mode: last, and can never un-deny.
    Mode,
}

/// What a stage says about a call.
#[must_use = "a decision counts only where it is returned"]
#[derive(Debug)]
#[non_exhaustive]
pub enum Check {
    /// Nothing.
    Pass,
    /// The call may run without asking. Takes back an ask of `needs_approval`, never a refusal.
    Allow,
    /// Somebody has to decide.
    Ask(Box<ApprovalRequest>),
    /// The call does not run.
    Deny(Option<String>),
}

impl Check {
    /// Somebody has to decide, for this reason.
    pub fn ask(reason: Option<String>) -> Self {
        Self::Ask(Box::new(ApprovalRequest { reason, ..ApprovalRequest::new() }))
    }
}

/// A call as a stage sees it.
pub struct GateCall<'a> {
    /// The tool.
    pub spec: &'a Arc<ToolSpec>,
    /// The call's facts; `args()` are those that would run.
    pub cx: &'a ToolContext,
    /// Whether a person has approved the call, and the gate runs once more.
    pub resumed_after_approval: bool,
}

/// A stage of the gate.
///
/// An error is no yes (invariant 8): of a rule it is the call's failure, of a mode it ends the run.
pub trait Stage: Send + Sync + 'static {
    /// What messages call it.
    fn name(&self) -> &str;

    /// Looks at a call before it runs.
    fn check<'a>(&'a self, call: &'a GateCall<'a>) -> BoxFuture<'a, Result<Check, ToolError>>;
}

/// The stages of an agent, each kind in registration order.
#[derive(Clone, Default)]
pub(crate) struct Stages {
    all: Arc<Vec<(StageKind, Arc<dyn Stage>)>>,
}

impl Stages {
    pub(crate) fn add(&mut self, kind: StageKind, stage: Arc<dyn Stage>) {
        let all = Arc::make_mut(&mut self.all);
        // Stable: stages of one kind keep their order.
        let at = all.partition_point(|(there, _)| *there <= kind);
        all.insert(at, (kind, stage));
    }

    pub(crate) fn of(&self, kind: StageKind) -> impl Iterator<Item = &Arc<dyn Stage>> {
        self.all.iter().filter(move |(there, _)| *there == kind).map(|(_, stage)| stage)
    }
}
