//! Decisions: who may make them, how many it takes, until when, which of them counts, and for which calls an approval stands.

use std::collections::BTreeSet;
use std::sync::Arc;

use toolwright_core::json::sorted_hash;
use toolwright_core::{
    ApprovalAsk, ApprovalId, AskKind, CallId, Decision, DecisionVerdict, Delegation, OnInterrupt, Outcome, Record, Remember, Timestamp,
    Verdict,
};
use toolwright_runtime::InboxItem;

use super::super::tools::{self, Once};
use super::super::{Broken, broken};
use super::{Audit, AuditCall, FORK, Stage, on_interrupt};

const FIRST: &str = "of all who decide one is the first, and the others are told";
const APPLIED: &str = "a decision that was posted first is applied";
const QUORUM: &str = "as many different people approve as have to";
const WHO: &str = "who decides is one of those who may";
const STANDS: &str = "an approval stands for the calls it was given for, and for no others";
const OUTSIDE: &str = "a result from outside is the one that was posted first";

pub(in super::super) struct Approval {
    pub(in super::super) id: ApprovalId,
    pub(in super::super) call: usize,
    pub(in super::super) sha256: Arc<str>,
    /// What is asked, with who may decide as the journal says.
    pub(in super::super) ask: ApprovalAsk,
    /// What decided it, of all that was posted, and its position in the inbox.
    pub(in super::super) posted: Option<Decision>,
    posted_at: u64,
    /// Approvals before that, of a decision that several people make, with their positions; and how many of them were journaled.
    votes: Vec<(u64, Decision)>,
    voted: usize,
    /// Who may decide, as was posted; and what of that was not journaled yet.
    deciders: Vec<String>,
    delegated: Vec<(u64, Vec<String>)>,
    /// What was posted and counts, and whose sender was not told so yet.
    untold: Vec<Decision>,
    /// What the owner posted because an approval of another call stands for this one.
    answer: Option<Decision>,
    /// It let the call go on.
    answered: bool,
    reminded: u32,
    pub(in super::super) applied: bool,
    /// Asked for in the thread that this one is a fork of.
    pub(super) foreign: bool,
    pub(super) asked_at: i64,
}

impl Approval {
    fn new(ask: &ApprovalAsk, call: usize, sha256: &Arc<str>, asked_at: i64) -> Self {
        Self {
            id: ask.approval.clone(),
            call,
            sha256: Arc::clone(sha256),
            deciders: ask.deciders.clone(),
            ask: ask.clone(),
            posted: None,
            posted_at: 0,
            votes: Vec::new(),
            voted: 0,
            delegated: Vec::new(),
            untold: Vec::new(),
            answer: None,
            answered: false,
            reminded: 0,
            applied: false,
            foreign: false,
            asked_at,
        }
    }

    /// A decision about it came into the inbox: whether it counts is known by what came before.
    fn posted(&mut self, decision: &Decision, position: u64) {
        let of_another_wait = decision.verdict == DecisionVerdict::Lapsed && decision.at != self.ask.expires_at;
        if self.posted.is_some() || of_another_wait {
            return;
        }
        let votes = decision.approves() && self.ask.quorum > 1;
        if votes && (decision.by.is_none() || self.votes.iter().any(|(_, vote)| !goes_with(vote, decision))) {
            return;
        }
        self.untold.push(decision.clone());
        if votes && self.votes.len() + 1 < self.ask.quorum as usize {
            self.votes.push((position, decision.clone()));
        } else {
            (self.posted, self.posted_at) = (Some(decision.clone()), position);
        }
    }
}

/// Whether two approvals are of different people and say the same.
fn goes_with(vote: &Decision, other: &Decision) -> bool {
    vote.by != other.by && vote.edited() == other.edited()
}

fn is_in_time(decision: &Decision, ask: &ApprovalAsk) -> bool {
    decision.at.is_none_or(|at| ask.expires_at.is_none_or(|end| at < end))
}

/// An approval that stands for later calls of the thread.
pub(super) struct Stands {
    tool: Arc<str>,
    /// Hash of the only arguments it stands for.
    args: Option<String>,
    by: Option<String>,
}

impl Stands {
    fn is_for(&self, tool: &str, args: &str) -> bool {
        *self.tool == *tool && self.args.as_ref().is_none_or(|own| own == args)
    }

    /// One person's word stands where one is enough, and may decide.
    fn is_enough(&self, quorum: u32, deciders: &[String]) -> bool {
        quorum <= 1 && (deciders.is_empty() || self.by.as_ref().is_some_and(|by| deciders.contains(by)))
    }
}

impl Audit {
    /// The approvals that wait, by index.
    pub(in super::super) fn waiting(&self) -> impl Iterator<Item = usize> {
        self.open().filter_map(|call| match call.stage {
            Stage::Asking(approval) => Some(approval),
            _ => None,
        })
    }

    /// An approval that a call of this tool waits for, by index.
    pub(in super::super) fn waits_alike(&self, tool: &str) -> Option<usize> {
        self.open().filter(|call| *call.tool == *tool).find_map(|call| match call.stage {
            Stage::Asking(approval) => Some(approval),
            _ => None,
        })
    }

    fn asked_about(&mut self, id: &ApprovalId) -> Option<&mut Approval> {
        self.approvals.iter_mut().find(|known| known.id == *id)
    }

    /// Something about a decision came into the inbox.
    pub(super) fn posted_about(&mut self, item: &InboxItem, position: u64) {
        match item {
            InboxItem::Decision { approval, sha256, decision, .. } => {
                if let Some(asked) = self.asked_about(approval).filter(|asked| asked.sha256 == *sha256) {
                    asked.posted(decision, position);
                }
            }
            InboxItem::Delegate { approval, to, .. } => {
                if let Some(asked) = self.asked_about(approval) {
                    asked.deciders.clone_from(to);
                    asked.delegated.push((position, to.clone()));
                }
            }
            _ => {}
        }
    }

    /// Everything up to a position of the inbox is taken: nothing of it that is about a call that still waits is lost.
    pub(super) fn decisions_taken(&self, through: u64) -> Result<(), Broken> {
        for approval in self.waiting().filter_map(|at| self.approvals.get(at)) {
            let taken = |position: u64| position <= through;
            if approval.posted.is_some() && taken(approval.posted_at) && !approval.applied {
                return broken(APPLIED, format!("{} is taken from the inbox and journaled nowhere", approval.id));
            }
            if let Some((_, lost)) = approval.votes.get(approval.voted).filter(|(position, _)| taken(*position)) {
                return broken(APPLIED, format!("an approval of {} is journaled nowhere: {lost:?}", approval.id));
            }
            if let Some((_, to)) = approval.delegated.first().filter(|(position, _)| taken(*position)) {
                return broken("a decision that is handed to others is theirs", format!("{} to {to:?} is journaled nowhere", approval.id));
            }
        }
        Ok(())
    }

    /// Whether somebody may decide, for all that was posted.
    pub(in super::super) fn may_decide(&self, at: usize, by: Option<&String>, may: bool) -> Result<(), Broken> {
        let Some(approval) = self.approvals.get(at) else { return Ok(()) };
        if (approval.deciders.is_empty() || by.is_some_and(|by| approval.deciders.contains(by))) == may {
            return Ok(());
        }
        broken(WHO, format!("{by:?} may decide {}: {may}; they are {:?}", approval.id, approval.deciders))
    }

    /// Whoever posted this was told that it counts.
    pub(in super::super) fn told(&mut self, at: usize, decision: &Decision) -> Result<(), Broken> {
        let Some(approval) = self.approvals.get_mut(at) else { return Ok(()) };
        let Some(told) = approval.untold.iter().position(|posted| posted == decision) else {
            return broken(FIRST, format!("{}: {decision:?} is said to count, and {:?} did", approval.id, approval.posted));
        };
        approval.untold.remove(told);
        if approval.answered {
            return broken(FIRST, format!("{}: {decision:?} is said to count, and another approval let the call go on", approval.id));
        }
        Ok(())
    }

    /// Whoever wanted to post this was told that others were first.
    pub(in super::super) fn refused(&self, at: usize, decision: &Decision) -> Result<(), Broken> {
        let Some(approval) = self.approvals.get(at) else { return Ok(()) };
        if approval.posted.is_some() || approval.votes.iter().any(|(_, vote)| !goes_with(vote, decision)) {
            return Ok(());
        }
        broken(FIRST, format!("{}: {decision:?} is refused, and nobody was first", approval.id))
    }

    /// The owner is about to post that an approval of another call lets this one run.
    pub(in super::super) fn answers(&mut self, id: &CallId, item: &InboxItem) -> Result<(), Broken> {
        let (_, call) = self.at(id)?;
        let (Stage::Asking(at), InboxItem::Decision { decision, .. }) = (call.stage, item) else { return Ok(()) };
        if !call.covered {
            return broken(STANDS, format!("{id} is answered, and nobody's approval stands for it"));
        }
        if let Some(approval) = self.approvals.get_mut(at) {
            approval.answer = Some(decision.clone());
        }
        Ok(())
    }

    /// Whether an approval stands for a call with these arguments that nobody was asked about.
    fn is_stood_for(&self, at: usize, arguments: &str) -> bool {
        let Some((call, tool)) = self.calls.get(at).and_then(|call| Some((call, tools::tool(&call.tool)?))) else { return false };
        let args = sorted_hash(arguments);
        let deciders = tool.deciders();
        let always = |known: &Stands| known.is_for(&call.tool, &args) && known.is_enough(tool.quorum, &deciders);
        if self.memory.iter().any(always) {
            return true;
        }
        let same = |approved: &str| tool.once == Once::All || approved == args;
        let in_turn = |other: &AuditCall| {
            other.id != call.id
                && other.tool == call.tool
                && self.approved_arguments(other).is_some_and(|approved| same(&sorted_hash(&approved)))
        };
        tool.once != Once::None && (self.script.approved(tool.name).any(same) || self.open().any(in_turn))
    }

    /// The arguments that a person approved.
    fn approved_arguments(&self, call: &AuditCall) -> Option<Arc<str>> {
        let shown = call.arguments.clone()?;
        let Stage::Decided(at) = call.stage else {
            return call.decision.as_ref().is_some_and(Decision::approves).then_some(shown);
        };
        let approval = self.approvals.get(at)?;
        let decision = approval.posted.as_ref()?;
        let counts = decision.approves() && is_in_time(decision, &approval.ask) && approval.ask.kind == AskKind::Tool;
        counts.then(|| decision.edited().cloned().unwrap_or(shown))
    }

    pub(super) fn gated(
        &mut self,
        record: &Record,
        id: &CallId,
        verdict: &Verdict,
        resumed: bool,
        arguments: Option<&Arc<str>>,
        sha256: Option<&Arc<str>>,
    ) -> Result<(), Broken> {
        let (at, call) = self.at(id)?;
        if call.stage == Stage::Opened && self.is_steered() {
            return broken("what has not begun when input steers does not begin", format!("{}: {id} passes the gate", record.seq));
        }
        let (stage, asks) = (call.stage, call.asks);
        match stage {
            // In a fork it may have been shown before.
            Stage::Opened if resumed == call.gated => {}
            Stage::Decided(_) if resumed => {}
            // An approval of another call may answer.
            Stage::Asking(_) if resumed && call.covered => {}
            Stage::Executing if resumed && matches!(verdict, Verdict::Ask(_)) && on_interrupt(&call.tool) == OnInterrupt::Ask => {}
            _ => {
                return broken("a call passes the gate once, and once more when decided", format!("{}: {id} is {stage:?}", record.seq));
            }
        }
        if stage == Stage::Opened || matches!(verdict, Verdict::Run) {
            self.may_start(record, at, stage == Stage::Opened)?;
        }
        match (stage, verdict) {
            // What is waited for now is its result.
            (Stage::Asking(approval), Verdict::Ask(ask)) if ask.kind == AskKind::External => self.goes_on(record, approval)?,
            (Stage::Decided(approval), _) => self.as_decided(record, approval, verdict, arguments, sha256)?,
            (Stage::Asking(approval), Verdict::Run | Verdict::Answer { .. } | Verdict::Refuse { .. }) => self.goes_on(record, approval)?,
            (Stage::Opened, Verdict::Run) if asks => {
                if !arguments.is_some_and(|arguments| self.is_stood_for(at, arguments)) {
                    return broken(STANDS, format!("{}: nobody was asked about {id}", record.seq));
                }
                self.remembered += 1;
            }
            (Stage::Opened, Verdict::Ask(ask))
                if ask.kind == AskKind::Tool && arguments.is_some_and(|arguments| self.is_stood_for(at, arguments)) =>
            {
                return broken(STANDS, format!("{}: somebody is asked about {id}, which was approved before", record.seq));
            }
            _ => {}
        }
        let next = match verdict {
            Verdict::Run => Stage::Cleared,
            Verdict::Ask(ask) => self.asked(record, at, ask, sha256)?,
            Verdict::EndRun { .. } => {
                self.run_ends();
                Stage::Stopped
            }
            _ => Stage::Stopped,
        };
        let decided = match stage {
            Stage::Decided(approval) => self.approvals.get(approval).and_then(|approval| approval.posted.clone()),
            _ => None,
        };
        self.set(at, |call| {
            (call.stage, call.gated, call.covered) = (next, true, false);
            if let (Some(arguments), Some(sha256)) = (arguments, sha256) {
                call.arguments = Some(Arc::clone(arguments));
                call.sha256 = Some(Arc::clone(sha256));
            }
            // What a person let run counts as approved, also where its result came from elsewhere after that.
            let from_outside = |decision: &Decision| {
                matches!(decision.verdict, DecisionVerdict::Complete { .. } | DecisionVerdict::Fail { .. }) && call.decision.is_some()
            };
            if let Some(decided) = decided.filter(|decided| !from_outside(decided)) {
                call.decision = Some(decided);
            }
        });
        Ok(())
    }

    /// A question is asked, or stands although an approval of another call might have answered it.
    fn asked(&mut self, record: &Record, at: usize, ask: &ApprovalAsk, sha256: Option<&Arc<str>>) -> Result<Stage, Broken> {
        let Some(sha256) = sha256 else { return broken("a decision is about arguments", ask.approval.to_string()) };
        if let Some(Stage::Asking(waiting)) = self.calls.get(at).map(|call| call.stage)
            && let Some(approval) = self.approvals.get_mut(waiting)
            && (approval.id == ask.approval || ask.kind != AskKind::External)
        {
            if approval.ask != *ask || approval.sha256 != *sha256 {
                return broken("a question stands as it was", format!("{}: {:?} became {ask:?}", record.seq, approval.ask));
            }
            approval.asked_at = record.at.0;
            return Ok(Stage::Asking(waiting));
        }
        if self.approvals.iter().any(|known| known.id == ask.approval) {
            return broken("every decision that is asked for has an id of its own", ask.approval.to_string());
        }
        self.approvals.push(Approval::new(ask, at, sha256, record.at.0));
        Ok(Stage::Asking(self.approvals.len() - 1))
    }

    /// What the gate says of a call that was decided.
    fn as_decided(
        &self,
        record: &Record,
        at: usize,
        verdict: &Verdict,
        arguments: Option<&Arc<str>>,
        sha256: Option<&Arc<str>>,
    ) -> Result<(), Broken> {
        let Some(approval) = self.approvals.get(at) else { return Ok(()) };
        let Some(decision) = &approval.posted else { return broken(APPLIED, format!("{}: {} was not", record.seq, approval.id)) };
        let in_time = is_in_time(decision, &approval.ask);
        let fits = match (&decision.verdict, verdict) {
            (DecisionVerdict::Approve, Verdict::Run) => in_time && sha256 == Some(&approval.sha256),
            (DecisionVerdict::ApproveEdited { arguments: edited }, Verdict::Run) => in_time && arguments == Some(edited),
            (_, Verdict::Run) => false,
            (DecisionVerdict::Approve | DecisionVerdict::ApproveEdited { .. }, Verdict::Ask(ask)) => ask.kind == AskKind::External,
            (_, Verdict::Ask(_)) => false,
            (DecisionVerdict::Complete { output }, Verdict::Answer { output: said }) => in_time && output == said,
            (DecisionVerdict::Complete { .. }, _) => !in_time,
            _ => true,
        };
        if fits { Ok(()) } else { broken("a call runs as it was decided", format!("{}: {} as {decision:?}", record.seq, approval.id)) }
    }

    /// An approval of another call lets this one go on: nobody else had decided about it, and nobody does after.
    fn goes_on(&mut self, record: &Record, at: usize) -> Result<(), Broken> {
        let copied = self.is_copied();
        let Some(approval) = self.approvals.get_mut(at) else { return Ok(()) };
        if !copied && approval.posted.is_some() && approval.posted != approval.answer {
            return broken(FIRST, format!("{}: {} goes on, and was decided: {:?}", record.seq, approval.id, approval.posted));
        }
        (approval.applied, approval.answered) = (true, true);
        self.covered += 1;
        Ok(())
    }

    pub(super) fn decided(&mut self, id: &ApprovalId, call: &CallId, sha256: &Arc<str>, decision: &Decision) -> Result<(), Broken> {
        let (at, open) = self.at(call)?;
        let Stage::Asking(waiting) = open.stage else {
            return broken("a decision is applied once", format!("{call} waits for none"));
        };
        let copied = self.is_copied();
        let Some(approval) = self.approvals.get_mut(waiting) else { return Ok(()) };
        if approval.foreign {
            return broken(FORK, format!("{id} of the source is decided"));
        }
        if copied {
            approval.posted = Some(decision.clone());
        }
        if approval.id != *id || approval.applied {
            return broken("a decision is applied once", format!("{id} for {call}"));
        }
        if approval.sha256 != *sha256 || approval.posted.as_ref() != Some(decision) {
            return broken(
                "late and altered decisions change nothing",
                format!("{id} was decided as {decision:?}, posted first was {:?}", approval.posted),
            );
        }
        if !approval.ask.kind.takes(&decision.verdict) {
            return broken("a decision is an answer to what is asked", format!("{id} was decided as {decision:?}"));
        }
        let people: BTreeSet<_> = approval.votes.iter().take(approval.voted).map(|(_, vote)| &vote.by).chain([&decision.by]).collect();
        if decision.approves() && approval.ask.quorum > 1 && people.len() < approval.ask.quorum as usize {
            return broken(QUORUM, format!("{id} is approved by {people:?}, and {} have to", approval.ask.quorum));
        }
        approval.applied = true;
        let allowed = decision.approves() && is_in_time(decision, &approval.ask);
        let plain = approval.ask.kind == AskKind::Tool;
        self.set(at, |call| {
            call.stage = Stage::Decided(waiting);
            call.allowed = allowed;
        });
        if allowed && plain {
            self.approved(at, waiting, decision);
        }
        Ok(())
    }

    /// What an approval stands for besides its own call.
    fn approved(&mut self, at: usize, approval: usize, decision: &Decision) {
        let (Some(call), Some(approval)) = (self.calls.get(at), self.approvals.get(approval)) else { return };
        let tool = Arc::clone(&call.tool);
        let args = sorted_hash(decision.edited().or(call.arguments.as_ref()).map_or("{}", |text| text));
        let stands = |per: &Remember| Stands {
            tool: Arc::clone(&tool),
            args: (*per == Remember::Arguments).then(|| args.clone()),
            by: decision.by.clone(),
        };
        let (always, once) = (decision.remember.as_ref().map(&stands), approval.ask.once.as_ref().map(&stands));
        let mut covered = Vec::new();
        for other in self.turn.iter().filter(|other| **other != at) {
            let Some(waits) = self.calls.get(*other) else { continue };
            let Stage::Asking(asked) = waits.stage else { continue };
            let Some(asked) = self.approvals.get(asked).map(|asked| &asked.ask) else { continue };
            let args = sorted_hash(waits.arguments.as_deref().unwrap_or("{}"));
            let is_for = |stands: &&Stands| stands.is_for(&waits.tool, &args);
            let answers = always.as_ref().filter(is_for).is_some_and(|stands| stands.is_enough(asked.quorum, &asked.deciders))
                || once.as_ref().filter(is_for).is_some_and(|_| asked.quorum <= 1);
            if answers && asked.kind == AskKind::Tool && is_in_time(decision, asked) {
                covered.push(*other);
            }
        }
        for other in covered {
            self.set(other, |call| call.covered = true);
        }
        self.memory.extend(always);
    }

    pub(super) fn voted(&mut self, id: &ApprovalId, call: &CallId, decision: &Decision, votes: u32) -> Result<(), Broken> {
        let copied = self.is_copied();
        let approval = self.waits_about(id, call)?;
        if copied {
            approval.votes.push((0, decision.clone()));
        }
        let expected = approval.votes.get(approval.voted).map(|(_, vote)| vote);
        approval.voted += 1;
        if expected != Some(decision) || votes as usize != approval.voted || votes >= approval.ask.quorum {
            return broken(QUORUM, format!("approval {votes} of {id} is {decision:?}, posted was {expected:?}"));
        }
        Ok(())
    }

    pub(super) fn delegated(&mut self, delegation: &Delegation) -> Result<(), Broken> {
        let copied = self.is_copied();
        let approval = self.waits_about(&delegation.ask.approval, &delegation.call)?;
        let to = &delegation.ask.deciders;
        if copied {
            approval.deciders.clone_from(to);
            approval.delegated = vec![(0, to.clone())];
        }
        let next = (!approval.delegated.is_empty()).then(|| approval.delegated.remove(0).1);
        let ask = ApprovalAsk { deciders: to.clone(), ..approval.ask.clone() };
        if next.as_ref() != Some(to) || ask != delegation.ask {
            return broken("a decision that is handed to others is theirs", format!("{delegation:?}, posted was {next:?}"));
        }
        approval.ask = ask;
        Ok(())
    }

    pub(super) fn reminded(&mut self, id: &ApprovalId, call: &CallId, times: u32) -> Result<(), Broken> {
        let approval = self.waits_about(id, call)?;
        approval.reminded += 1;
        if approval.reminded != times || approval.ask.remind_every_ms.is_none() {
            return broken("deciders are reminded of what waits, each time once", format!("{id}: {times}, and {}", approval.reminded));
        }
        Ok(())
    }

    fn waits_about(&mut self, id: &ApprovalId, call: &CallId) -> Result<&mut Approval, Broken> {
        let (_, open) = self.at(call)?;
        let stage = open.stage;
        if let Stage::Asking(at) = stage
            && let Some(approval) = self.approvals.get_mut(at).filter(|approval| approval.id == *id && !approval.applied)
        {
            return Ok(approval);
        }
        broken("what is said about a decision is said while it waits", format!("{id}: {call} is {stage:?}"))
    }

    /// Nothing can move before somebody decides: nothing that waits is answered by another approval.
    pub(super) fn none_is_covered(&self, record: &Record) -> Result<(), Broken> {
        match self.open().find(|call| call.covered) {
            Some(call) => broken(STANDS, format!("{}: {} waits, and another approval stands for it", record.seq, call.id)),
            None => Ok(()),
        }
    }

    /// Whether a call whose result comes from outside has the one that was posted.
    pub(super) fn is_from_outside(&self, call: &AuditCall, outcome: &Outcome) -> Result<(), Broken> {
        let (Some(tool), Outcome::Done { output }) = (tools::tool(&call.tool), outcome) else { return Ok(()) };
        // A fork's own, or a hook's.
        if !tool.external || self.patched || call.arguments.as_ref().is_some_and(|text| text.contains("answer")) {
            return Ok(());
        }
        let posted = self.approvals.iter().filter(|approval| self.calls.get(approval.call).is_some_and(|other| other.id == call.id));
        let complete = |approval: &Approval| match approval.posted.as_ref().map(|decision| &decision.verdict) {
            Some(DecisionVerdict::Complete { output: posted }) => approval.applied && posted == output,
            _ => false,
        };
        if posted.into_iter().any(complete) { Ok(()) } else { broken(OUTSIDE, format!("{}: {output:?}", call.id)) }
    }

    /// Nobody is waited for beyond the time there was.
    pub(in super::super) fn none_is_overdue(&self) -> Result<(), Broken> {
        let late = self.waiting().filter_map(|at| self.approvals.get(at)).find(|approval| approval.ask.expires_at.is_some());
        match late {
            Some(approval) => broken("a decision that nobody makes in time is refused by itself", approval.id.to_string()),
            None => Ok(()),
        }
    }

    /// Those that deciders are to be reminded of.
    pub(in super::super) fn to_be_reminded(&self) -> impl Iterator<Item = &ApprovalId> {
        let waiting = self.waiting().filter_map(|at| self.approvals.get(at));
        waiting.filter(|approval| approval.ask.remind_every_ms.is_some() && approval.posted.is_none()).map(|approval| &approval.id)
    }

    /// Whether the question's time is limited, or was.
    pub(in super::super) fn expires_at(&self, at: usize) -> Option<Timestamp> {
        self.approvals.get(at).and_then(|approval| approval.ask.expires_at)
    }
}
