//! What an owner does: the shell of the runtime, without an executor. Completions come when the scheduler says so.

use std::collections::VecDeque;
use std::sync::Arc;

use toolwright_core::{AbortReason, CallId, CallState, Compaction, DecisionVerdict, Key, Record, RecordBody, Seq, Timestamp};
use toolwright_runtime::simulated::timers_of;
use toolwright_runtime::{Completion, Driver, Effect, InboxItem, Posted, Streamed};

use super::audit::Heard;
use super::rng::Rng;
use super::tools::{self, GateRequest, Tool};
use super::world::World;
use super::{Broken, broken, compaction, model};

/// Work that an owner has begun and that has not completed.
pub(super) enum Work {
    /// A model call, and what of its reply was streamed.
    Ask {
        step: u32,
        said: Streamed,
    },
    Compact(Box<Compaction>),
    /// Guardrails check so many messages.
    Check(usize),
    Gate(Box<GateRequest>),
    Body {
        call: CallId,
        tool: &'static Tool,
        told_to_stop: bool,
    },
    /// A body that was given up says something after all.
    Ghost {
        call: CallId,
        tool: &'static Tool,
    },
}

pub(super) struct Flight {
    due: i64,
    work: Work,
}

/// A process that moves the thread, or thinks that it does.
pub(super) struct Owner {
    pub(super) fence: u64,
    pub(super) driver: Driver,
    pub(super) durable: Seq,
    pub(super) seen: u64,
    pub(super) flights: Vec<Flight>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Alive,
    Rests,
    Gone,
}

impl World<'_> {
    /// Something that the owner waits for comes.
    pub(super) fn advance(&mut self, owner: &mut Owner) -> Result<Fate, Broken> {
        if self.store.has_news(owner.seen) && (owner.flights.is_empty() || self.rng.percent(40)) {
            return self.take_inbox(owner);
        }
        if let Some(at) = owner.driver.wake_at()
            && !owner.flights.is_empty()
            && (self.now >= at.0 || self.rng.percent(10))
        {
            // The time of a budget is over before anything else comes.
            self.now = self.now.max(at.0);
            let said = said(owner).cloned().unwrap_or_default();
            owner.driver.streamed(said);
            return self.step(owner, None);
        }
        if owner.flights.is_empty() {
            let next = owner.driver.thread().next();
            return broken("a thread rests or has something in flight", format!("neither, and outstanding is {next:?}"));
        }
        let at = if self.rng.percent(60) {
            owner.flights.iter().enumerate().min_by_key(|(_, flight)| flight.due).map_or(0, |(at, _)| at)
        } else {
            self.rng.index(owner.flights.len())
        };
        if self.rng.percent(30)
            && let Some(Flight { work: Work::Ask { said, .. }, .. }) = owner.flights.get_mut(at)
        {
            say_more(said, &mut self.rng);
            return Ok(Fate::Alive);
        }
        let Flight { due, work } = owner.flights.swap_remove(at);
        self.now = self.now.max(due);
        let completion = match work {
            Work::Ask { step, .. } => {
                let result = model::reply(self.plan.model, &mut self.rng);
                let review = Box::new(model::review(self.plan.trips, result.is_ok(), &mut self.rng));
                Completion::Model { step, result, review }
            }
            Work::Check(messages) => Completion::Checked(Box::new(model::check(messages, self.plan.trips, &mut self.rng))),
            Work::Compact(compaction) => Completion::Compacted(compaction),
            Work::Gate(request) => {
                let outcome = Box::new(tools::gate(&self.store.thread, &request));
                Completion::Gated { call: request.call, outcome }
            }
            Work::Body { call, tool, told_to_stop } => {
                if self.rng.percent(2) {
                    owner.flights.push(Flight { due: self.now, work: Work::Ghost { call: call.clone(), tool } });
                }
                Completion::Executed { call, executed: Box::new(tools::body(tool, told_to_stop, &mut self.rng)) }
            }
            Work::Ghost { call, tool } => Completion::Executed { call, executed: Box::new(tools::body(tool, false, &mut self.rng)) },
        };
        self.step(owner, Some(completion))
    }

    /// The run's own handle tells it to stop.
    pub(super) fn cancel(&mut self, owner: &mut Owner) -> Result<Fate, Broken> {
        let partial = said(owner).map(|said| said.text.clone());
        self.step(owner, Some(Completion::Cancel { reason: AbortReason::abort("handle"), partial }))
    }

    /// The owner takes what was posted: one item after the other, or all that there is before it goes on.
    pub(super) fn take_inbox(&mut self, owner: &mut Owner) -> Result<Fate, Broken> {
        let items = self.store.inbox(owner.seen)?;
        if items.is_empty() {
            return Ok(Fate::Alive);
        }
        let together = self.rng.percent(50);
        let mut fate = Fate::Alive;
        for (position, item) in items {
            owner.seen = position;
            self.listen(owner, &item);
            let posted = Completion::Posted { position, item };
            if !together {
                fate = self.step(owner, Some(posted))?;
                // What comes after its run is for the next owner.
                if fate == Fate::Gone || (fate == Fate::Rests && !owner.driver.can_start()) {
                    break;
                }
            } else if let Err(misfit) = owner.driver.take(posted, Timestamp(self.now)) {
                return broken("what a driver records fits its thread", misfit.to_string());
            }
        }
        if together { self.step(owner, None) } else { Ok(fate) }
    }

    /// The driver is told what its model has said by now.
    fn listen(&mut self, owner: &mut Owner, item: &InboxItem) {
        // It may go on talking while what was posted is taken.
        for flight in &mut owner.flights {
            if let Work::Ask { said, .. } = &mut flight.work
                && self.rng.percent(20)
            {
                say_more(said, &mut self.rng);
            }
        }
        let said = said(owner);
        if let InboxItem::Input { id, .. } = item {
            match said {
                Some(said) if said.text.is_empty() && !said.calls => drop(self.store.audit.heard.insert(id.clone(), Heard::Nothing)),
                Some(_) => drop(self.store.audit.heard.insert(id.clone(), Heard::Something)),
                None => drop(self.store.audit.heard.remove(id)),
            }
        }
        let said = said.cloned().unwrap_or_default();
        owner.driver.streamed(said);
    }

    /// One step of an owner's driver, and its effects. A gate that answers at once shares the append of what led to it;
    /// everything else that follows an append waits until that is durable.
    pub(super) fn step(&mut self, owner: &mut Owner, completion: Option<Completion>) -> Result<Fate, Broken> {
        self.tick();
        let mut effects = self.drive(owner, completion)?;
        loop {
            let (fate, answer) = self.carry_out(owner, effects)?;
            let Some((call, key, item)) = answer.filter(|_| fate != Fate::Gone) else { return Ok(fate) };
            if !self.store.is_current(owner.fence) {
                // Nobody answers for a thread that has another owner by now.
                return Ok(Fate::Gone);
            }
            if self.rng.percent(30) {
                self.somebody_is_faster(&call)?;
            }
            self.store.audit.answers(&call, &item)?;
            let posted = self.store.post_first(&key, *item)?;
            self.stats.overtaken += u64::from(posted != Posted::First);
            if self.rng.permille(self.plan.crash) {
                self.stats.crashes_before += 1;
                return Ok(Fate::Gone);
            }
            if self.rng.percent(30) {
                self.somebody_is_faster(&call)?;
            }
            effects = self.drive(owner, Some(Completion::First { call, posted }))?;
        }
    }

    /// Begins what a step of the driver gave, as far as the answer that is to be posted, if there is one.
    fn carry_out(&mut self, owner: &mut Owner, effects: Vec<Effect>) -> Result<(Fate, Option<Answer>), Broken> {
        let mut todo: VecDeque<Effect> = effects.into();
        let mut answer = None;
        let (mut records, mut after) = (Vec::new(), Vec::new());
        let mut fate = Fate::Alive;
        while let Some(effect) = todo.pop_front() {
            match effect {
                Effect::Append(more) => records.extend(more),
                Effect::Gate { call } if self.rng.percent(self.plan.at_once) => {
                    let request = self.gate_request(owner, &call)?;
                    let outcome = Box::new(tools::gate(&self.store.thread, &request));
                    // What the step before said about rest is said anew.
                    after.retain(|effect| !matches!(effect, Effect::Rest));
                    fate = Fate::Alive;
                    self.stats.at_once += 1;
                    todo.extend(self.drive(owner, Some(Completion::Gated { call, outcome }))?);
                }
                Effect::Answer { call, key, item } => answer = Some((call, key, item)),
                effect if records.is_empty() => fate = self.set_going(owner, effect)?.unwrap_or(fate),
                effect => after.push(effect),
            }
        }
        if !records.is_empty() && !self.append(owner, &records)? {
            return Ok((Fate::Gone, None));
        }
        for effect in after {
            fate = self.set_going(owner, effect)?.unwrap_or(fate);
        }
        Ok((fate, answer))
    }

    fn drive(&mut self, owner: &mut Owner, completion: Option<Completion>) -> Result<Vec<Effect>, Broken> {
        match owner.driver.step(completion, Timestamp(self.now)) {
            Ok(effects) => Ok(effects),
            Err(misfit) => broken("what a driver records fits its thread", misfit.to_string()),
        }
    }

    fn set_going(&mut self, owner: &mut Owner, effect: Effect) -> Result<Option<Fate>, Broken> {
        match effect {
            Effect::Append(_) | Effect::Answer { .. } => {}
            Effect::Ask { step } => self.ask(owner, step)?,
            Effect::CheckInput => {
                if owner.flights.iter().any(|flight| matches!(flight.work, Work::Check(_))) {
                    return broken("input is checked once at a time", String::new());
                }
                self.stats.checks += 1;
                let messages = owner.driver.thread().unchecked_input().count();
                self.set_out(owner, 100, Work::Check(messages));
            }
            Effect::Gate { call } => {
                let request = self.gate_request(owner, &call)?;
                let alike = self.store.audit.waits_alike(&request.tool);
                self.set_out(owner, 10, Work::Gate(Box::new(request)));
                if let Some(at) = alike.filter(|_| self.rng.percent(30)) {
                    // Somebody decides about another call of the tool while the gate looks at this one.
                    self.decide(at)?;
                }
            }
            Effect::Execute { call, attempt } => self.execute(owner, &call, attempt)?,
            Effect::Cancel(key) => self.tell_to_stop(owner, &key),
            Effect::Rest => return Ok(Some(Fate::Rests)),
        }
        Ok(None)
    }

    /// `false`: the owner is gone, with or without its records being durable.
    pub(super) fn append(&mut self, owner: &mut Owner, records: &[Arc<Record>]) -> Result<bool, Broken> {
        // One that comes to nothing is passed over, one that is missing would never come: they are set first.
        for (key, at, item) in timers_of(owner.driver.thread(), records, self.bug) {
            self.store.post_at(key, at.0, item)?;
        }
        let crash = self.store.is_current(owner.fence) && self.rng.permille(self.plan.crash);
        if crash && self.rng.percent(50) {
            self.stats.crashes_before += 1;
            if self.plan.save > 0 {
                self.store.save_ahead(owner.driver.thread());
            }
            return Ok(false);
        }
        if !self.store.append(owner.fence, owner.durable, records, owner.driver.inbox_through())? {
            self.stats.refused += 1;
            if self.store.save(owner.fence, owner.driver.thread())? {
                return broken("only one writer moves the thread", "a fold was saved under a claim that was lost".to_owned());
            }
            return Ok(false);
        }
        for record in records {
            self.count(record);
        }
        if crash {
            self.stats.crashes_after += 1;
            return Ok(false);
        }
        owner.durable = records.last().map_or(owner.durable, |record| record.seq);
        if self.rng.percent(self.plan.save) && owner.driver.thread().head() == owner.durable {
            self.stats.saved += u64::from(self.store.save(owner.fence, owner.driver.thread())?);
        }
        Ok(true)
    }

    fn count(&mut self, record: &Record) {
        match &record.body {
            RecordBody::InputApplied { .. } => self.stats.applied += 1,
            RecordBody::InputReturned { .. } => self.stats.returned += 1,
            RecordBody::CallVoted { .. } => self.stats.voted += 1,
            RecordBody::ApprovalDelegated(_) => self.stats.handed_on += 1,
            RecordBody::ApprovalReminded { .. } => self.stats.reminded += 1,
            RecordBody::CallDecided { decision, .. } => self.stats.lapsed += u64::from(decision.verdict == DecisionVerdict::Lapsed),
            RecordBody::ContextCompacted(compaction) => {
                self.stats.pruned += compaction.pruned.len() as u64;
                self.stats.folded += u64::from(compaction.folded.is_some());
                self.stats.compacted += 1;
            }
            _ => {}
        }
    }

    fn set_out(&mut self, owner: &mut Owner, slowest: u64, work: Work) {
        let due = self.now + self.rng.below(slowest + 1) as i64;
        owner.flights.push(Flight { due, work });
    }

    fn ask(&mut self, owner: &mut Owner, step: u32) -> Result<(), Broken> {
        if self.store.is_current(owner.fence) {
            self.store.audit.may_ask(step)?;
        }
        if owner.flights.iter().any(|flight| matches!(flight.work, Work::Ask { step: other, .. } if other == step)) {
            return broken("a model is asked once at a time", format!("step {step}"));
        }
        let thread = owner.driver.thread();
        if let Err(unbalanced) = thread.transcript().check_balance() {
            return broken("the transcript is balanced, results in call order", format!("sent with step {step}: {unbalanced}"));
        }
        if thread.compacted_for() < step && self.rng.percent(self.plan.compact) {
            let compaction = compaction::of(thread, Some(step), &mut self.rng);
            self.set_out(owner, 200, Work::Compact(Box::new(compaction)));
            return Ok(());
        }
        self.stats.asks += 1;
        self.set_out(owner, 500, Work::Ask { step, said: Streamed::default() });
        Ok(())
    }

    fn execute(&mut self, owner: &mut Owner, call: &CallId, attempt: u32) -> Result<(), Broken> {
        let open = owner.driver.thread().call(call);
        let sha256 = open.and_then(|open| Some(&open.gated.as_ref()?.sha256));
        self.store.audit.may_begin(call, attempt, sha256)?;
        let Some(tool) = open.and_then(|open| tools::tool(&open.tool)) else {
            return broken("a body belongs to an open call of a tool", call.to_string());
        };
        if !self.begun.insert((call.clone(), attempt)) {
            return broken("each attempt begins once", format!("attempt {attempt} of {call}"));
        }
        let mut beside = 0;
        for flight in &owner.flights {
            let Work::Body { call: other, tool: theirs, .. } = &flight.work else { continue };
            beside += 1;
            if other == call || tool.sequential || theirs.sequential {
                return broken("a sequential tool runs alone, and a call once", format!("{call} begins beside {other}"));
            }
        }
        let limit = owner.driver.thread().run().and_then(|run| run.limits.tool_concurrency);
        if limit.is_some_and(|limit| beside >= limit) {
            return broken("no more bodies at once than tool_concurrency", format!("{call} begins beside {beside} others"));
        }
        self.stats.bodies += 1;
        self.stats.reruns += u64::from(attempt > 1);
        self.set_out(owner, tool.slowest, Work::Body { call: call.clone(), tool, told_to_stop: false });
        Ok(())
    }

    fn tell_to_stop(&mut self, owner: &mut Owner, key: &Key) {
        match key {
            // A reply may already be on its way when the model is told to stop.
            Key::Ask(step) if self.rng.percent(50) => owner.flights.retain(|flight| match &flight.work {
                Work::Ask { step: asked, .. } => asked != step,
                Work::Compact(compaction) => compaction.step != Some(*step),
                _ => true,
            }),
            Key::CheckInput if self.rng.percent(50) => owner.flights.retain(|flight| !matches!(flight.work, Work::Check(_))),
            Key::Execute(stopping) => {
                let grace = self.now + self.rng.below(5000) as i64;
                for flight in &mut owner.flights {
                    if let Work::Body { call, told_to_stop, .. } = &mut flight.work
                        && call == stopping
                    {
                        *told_to_stop = true;
                        flight.due = flight.due.min(grace);
                    }
                }
            }
            _ => {}
        }
    }
}

/// A model streams more of its reply.
fn say_more(said: &mut Streamed, rng: &mut Rng) {
    if rng.percent(70) {
        said.text.push_str("so far");
    } else {
        said.calls = true;
    }
}

/// What the model of the open step has said, if it was asked by this owner.
fn said(owner: &Owner) -> Option<&Streamed> {
    let open = owner.driver.thread().step();
    owner.flights.iter().find_map(|flight| match &flight.work {
        Work::Ask { step, said } if *step == open => Some(said),
        _ => None,
    })
}

/// A call, the key of the decision it waits for, and what is to be posted there.
type Answer = (CallId, String, Box<InboxItem>);

impl World<'_> {
    /// What a gate goes by, as it stands when the gate begins.
    fn gate_request(&self, owner: &Owner, call: &CallId) -> Result<GateRequest, Broken> {
        let thread = owner.driver.thread();
        let Some(open) = thread.call(call) else {
            return broken("a gate is for an open call", call.to_string());
        };
        let moving = |id: &CallId| thread.call(id).is_some_and(|other| !matches!(other.state, CallState::Done));
        if owner.flights.iter().any(|flight| matches!(&flight.work, Work::Gate(other) if moving(&other.call))) {
            return broken("gates resolve one at a time", call.to_string());
        }
        let decided = match (&open.state, &open.gated) {
            (CallState::Decided(ask, decision), Some(gated)) => Some((ask.clone(), decision.clone(), Arc::clone(&gated.text))),
            _ => None,
        };
        let results = thread.transcript().iter().flat_map(|message| message.results());
        let marks = results.filter(|result| result.tool_name == *open.tool).filter_map(|result| result.approval.clone());
        Ok(GateRequest {
            call: call.clone(),
            tool: Arc::clone(&open.tool),
            written: Arc::clone(&open.written),
            state: open.item.as_ref().map(|item| item.state).unwrap_or_default(),
            confirm: open.item.as_ref().is_some_and(|item| item.ask.is_some()),
            decided,
            asked: open.asked,
            remembered: thread.remembered(&open.tool).cloned().collect(),
            approved_in_turn: thread.approved_in_turn(&open.tool),
            approved: if tools::tool(&open.tool).is_some_and(|tool| tool.once().is_some()) { marks.collect() } else { Vec::new() },
            now: self.now,
        })
    }
}
