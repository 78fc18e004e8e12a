//! One schedule: owners, a model, tools, people and a store, under one seeded scheduler and a fake clock.

use std::collections::HashSet;
use std::sync::Arc;

use toolwright_core::{
    AbortReason, ApprovalId, CallId, CallOpening, CallOrigin, CallState, Decision, DecisionVerdict, Key, Message, Record, RunCause, RunId,
    RunLimits, Seq, ThreadId, Timestamp,
};
use toolwright_runtime::planted::Bug;
use toolwright_runtime::{Completion, Driver, Effect, InboxItem, NextRun, Streamed};

use super::audit::Stage;
use super::model::{self, Character};
use super::rng::Rng;
use super::store::Store;
use super::tools::{self, GateRequest, Table, Tool};
use super::{Broken, Stats, broken, checks};

/// After so many turns nothing goes wrong any more, so that the schedule comes to its end.
const CALM_AFTER: u32 = 2_000;
/// A schedule that takes more turns than this is stuck.
const MOST_TURNS: u32 = 20_000;

/// What a schedule is like; drawn from its seed.
struct Plan {
    limit: Option<u32>,
    /// Whether each run has limits of its own.
    limits_vary: bool,
    max_steps: u32,
    max_repeats: Option<u32>,
    model: Character,
    /// In a thousand appends, those at which the owner dies.
    crash: u64,
    /// In a thousand turns, those at which the owner dies, hangs, or is told to stop.
    die: u64,
    hang: u64,
    cancel: u64,
    /// In a hundred turns, those in which somebody posts.
    post: u64,
    /// What nobody decided on their own stays undecided.
    abandon: bool,
}

impl Plan {
    fn draw(rng: &mut Rng) -> Self {
        let (crash, die, hang) = match rng.below(5) {
            0 => (0, 0, 0),
            1 => (40, 10, 0),
            2 => (10, 10, 20),
            3 => (150, 40, 10),
            _ => (20, 20, 20),
        };
        let endless = rng.percent(5);
        Self {
            limit: rng.pick(&[None, None, Some(1), Some(2), Some(2), Some(3)]).flatten(),
            limits_vary: rng.percent(10),
            max_steps: rng.between(1, 8) as u32,
            max_repeats: rng.pick(&[None, Some(2), Some(5)]).flatten(),
            model: Character {
                calls: if rng.percent(20) { 95 } else { 60 },
                fails: if rng.percent(50) { 5 } else { 0 },
                most: rng.between(1, 5),
                endless,
            },
            crash,
            die,
            hang,
            cancel: if rng.percent(30) { 20 } else { 0 },
            post: rng.between(2, 40),
            abandon: rng.percent(15),
        }
    }
}

/// Work that an owner has begun and that has not completed.
enum Work {
    Ask(u32),
    Gate(GateRequest),
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

struct Flight {
    due: i64,
    work: Work,
}

/// A process that moves the thread, or thinks that it does.
struct Owner {
    fence: u64,
    driver: Driver,
    durable: Seq,
    seen: u64,
    flights: Vec<Flight>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Alive,
    Rests,
    Gone,
}

enum Start {
    GoOn,
    Input,
    Direct,
    /// To end a run that nobody moves, or a wait.
    Stop,
}

/// The world of one schedule.
pub(super) struct World<'a> {
    rng: Rng,
    plan: Plan,
    table: &'a Arc<Table>,
    bug: Option<Bug>,
    pub(super) store: Store,
    now: i64,
    owner: Option<Owner>,
    /// Owners that hang, or woke up to find another in their place.
    hanging: Vec<Owner>,
    inputs_left: u64,
    named: u64,
    begun: HashSet<(CallId, u32)>,
    stats: &'a mut Stats,
}

impl<'a> World<'a> {
    pub(super) fn new(seed: u64, bug: Option<Bug>, table: &'a Arc<Table>, stats: &'a mut Stats) -> Result<Self, Broken> {
        let Ok(thread) = ThreadId::new("sim") else { return broken("a thread id has its grammar", "sim".to_owned()) };
        let mut rng = Rng::new(seed);
        let plan = Plan::draw(&mut rng);
        let inputs_left = rng.between(1, 4);
        Ok(Self {
            rng,
            plan,
            table,
            bug,
            store: Store::new(thread),
            now: 1_700_000_000_000,
            owner: None,
            hanging: Vec::new(),
            inputs_left,
            named: 0,
            begun: HashSet::new(),
            stats,
        })
    }

    /// Runs the schedule to its end and checks everything.
    pub(super) fn run(&mut self) -> Result<(), Broken> {
        let mut turns = 0;
        while self.turn()? {
            turns += 1;
            if turns == CALM_AFTER {
                (self.plan.crash, self.plan.die, self.plan.hang) = (0, 0, 0);
            }
            if turns > MOST_TURNS {
                return broken("runs end", format!("{turns} turns of the scheduler were not enough"));
            }
        }
        // Whoever still hangs wakes up to find that its time is over.
        while !self.hanging.is_empty() {
            self.wake()?;
        }
        let round_trip = self.rng.percent(2);
        checks::whole_journal(&self.store, round_trip)?;
        self.stats.records += self.store.records.len() as u64;
        self.stats.runs += self.store.audit.runs;
        self.stats.calls += self.store.audit.calls.len() as u64;
        self.stats.left_waiting += u64::from(self.store.audit.waiting().next().is_some());
        Ok(())
    }

    fn turn(&mut self) -> Result<bool, Broken> {
        if self.rng.percent(self.plan.post) {
            self.somebody_posts();
        }
        if !self.hanging.is_empty() && self.rng.percent(15) {
            self.wake()?;
        }
        let Some(mut owner) = self.owner.take() else { return self.nobody_moves() };
        let roll = self.rng.below(1000);
        let Plan { die, hang, cancel, .. } = self.plan;
        if roll < die {
            self.stats.deaths += 1;
            return Ok(true);
        }
        if roll < die + hang {
            self.stats.hangs += 1;
            self.hanging.push(owner);
            return Ok(true);
        }
        let fate = if roll < die + hang + cancel && self.store.audit.run.is_some() {
            self.stats.cancels += 1;
            if self.rng.percent(50) {
                self.post_cancel();
                Fate::Alive
            } else {
                self.cancel(&mut owner)?
            }
        } else {
            self.advance(&mut owner)?
        };
        self.settle(owner, fate)?;
        Ok(true)
    }

    /// What becomes of an owner after a step.
    fn settle(&mut self, owner: Owner, fate: Fate) -> Result<(), Broken> {
        match fate {
            Fate::Gone => {}
            Fate::Alive => self.owner = Some(owner),
            Fate::Rests => checks::same_state(&self.store.load()?, owner.driver.thread())?,
        }
        Ok(())
    }

    /// Something that the owner waits for comes.
    fn advance(&mut self, owner: &mut Owner) -> Result<Fate, Broken> {
        if self.store.has_news(owner.seen) && (owner.flights.is_empty() || self.rng.percent(40)) {
            return self.take_inbox(owner);
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
        let Flight { due, work } = owner.flights.swap_remove(at);
        self.now = self.now.max(due);
        let completion = match work {
            Work::Ask(step) => Completion::Model { step, result: model::reply(self.plan.model, &mut self.rng) },
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
    fn cancel(&mut self, owner: &mut Owner) -> Result<Fate, Broken> {
        let partial = self.rng.percent(50).then(|| "so far".to_owned());
        self.step(owner, Some(Completion::Cancel { reason: AbortReason::abort("handle"), partial }))
    }

    fn take_inbox(&mut self, owner: &mut Owner) -> Result<Fate, Broken> {
        let mut fate = Fate::Alive;
        for (position, item) in self.store.inbox(owner.seen) {
            owner.seen = position;
            if self.rng.percent(50) {
                owner.driver.streamed(Streamed { text: "so far".to_owned(), calls: false });
            }
            fate = self.step(owner, Some(Completion::Posted { position, item }))?;
            if fate == Fate::Gone {
                break;
            }
        }
        Ok(fate)
    }

    /// One step of an owner's driver, and its effects in order.
    fn step(&mut self, owner: &mut Owner, completion: Option<Completion>) -> Result<Fate, Broken> {
        // Clocks go forward, stand still, and sometimes jump back.
        self.now += if self.rng.permille(2) { -5 } else { self.rng.below(3) as i64 };
        let effects = match owner.driver.step(completion, Timestamp(self.now)) {
            Ok(effects) => effects,
            Err(misfit) => return broken("what a driver records fits its thread", misfit.to_string()),
        };
        let mut fate = Fate::Alive;
        for effect in effects {
            match effect {
                Effect::Append(records) => {
                    if !self.append(owner, &records)? {
                        return Ok(Fate::Gone);
                    }
                }
                Effect::Ask { step } => self.ask(owner, step)?,
                Effect::Gate { call } => self.gate(owner, &call)?,
                Effect::Execute { call, attempt } => self.execute(owner, &call, attempt)?,
                Effect::Cancel(key) => self.tell_to_stop(owner, &key),
                Effect::Rest => fate = Fate::Rests,
            }
        }
        Ok(fate)
    }

    /// `false`: the owner is gone, with or without its records being durable.
    fn append(&mut self, owner: &mut Owner, records: &[Arc<Record>]) -> Result<bool, Broken> {
        let crash = self.store.is_current(owner.fence) && self.rng.permille(self.plan.crash);
        if crash && self.rng.percent(50) {
            self.stats.crashes_before += 1;
            return Ok(false);
        }
        if !self.store.append(owner.fence, owner.durable, records, owner.driver.inbox_through())? {
            self.stats.refused += 1;
            return Ok(false);
        }
        if crash {
            self.stats.crashes_after += 1;
            return Ok(false);
        }
        owner.durable = records.last().map_or(owner.durable, |record| record.seq);
        Ok(true)
    }

    fn set_out(&mut self, owner: &mut Owner, slowest: u64, work: Work) {
        let due = self.now + self.rng.below(slowest + 1) as i64;
        owner.flights.push(Flight { due, work });
    }

    fn ask(&mut self, owner: &mut Owner, step: u32) -> Result<(), Broken> {
        self.stats.asks += 1;
        if self.store.is_current(owner.fence) {
            self.store.audit.may_ask(step)?;
        }
        if owner.flights.iter().any(|flight| matches!(flight.work, Work::Ask(other) if other == step)) {
            return broken("a model is asked once at a time", format!("step {step}"));
        }
        if let Err(unbalanced) = owner.driver.thread().transcript().check_balance() {
            return broken("the transcript is balanced, results in call order", format!("sent with step {step}: {unbalanced}"));
        }
        self.set_out(owner, 500, Work::Ask(step));
        Ok(())
    }

    fn gate(&mut self, owner: &mut Owner, call: &CallId) -> Result<(), Broken> {
        let Some(open) = owner.driver.thread().call(call) else {
            return broken("a gate is for an open call", call.to_string());
        };
        let moving = |id: &CallId| owner.driver.thread().call(id).is_some_and(|other| !matches!(other.state, CallState::Done));
        if owner.flights.iter().any(|flight| matches!(&flight.work, Work::Gate(other) if moving(&other.call))) {
            return broken("gates resolve one at a time", call.to_string());
        }
        let decided = match (&open.state, &open.gated) {
            (CallState::Decided(_, decision), Some(gated)) => Some((decision.clone(), Arc::clone(&gated.text))),
            _ => None,
        };
        let request = GateRequest {
            call: call.clone(),
            tool: Arc::clone(&open.tool),
            written: Arc::clone(&open.written),
            state: open.item.as_ref().map(|item| item.state).unwrap_or_default(),
            confirm: open.item.as_ref().is_some_and(|item| item.ask.is_some()),
            decided,
            asked: open.asked,
        };
        self.set_out(owner, 10, Work::Gate(request));
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
            Key::Ask(step) if self.rng.percent(50) => {
                owner.flights.retain(|flight| !matches!(flight.work, Work::Ask(asked) if asked == *step))
            }
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

    /// Nobody moves the thread. Gives whether anything is left to do.
    fn nobody_moves(&mut self) -> Result<bool, Broken> {
        let stops = self.plan.cancel > 0 && self.store.audit.open().next().is_some() && self.rng.percent(4);
        if stops {
            self.stats.cancels += 1;
            self.post_cancel();
            self.claim(&Start::Stop)?;
            return Ok(true);
        }
        let audit = &self.store.audit;
        if audit.run.is_some() || audit.can_resume() {
            self.claim(&Start::GoOn)?;
            return Ok(true);
        }
        // Somebody who saw a decision that changed nothing asks the thread to go on: it rests as it did.
        if self.store.has_news(0) && self.rng.percent(3) {
            self.claim(&Start::GoOn)?;
            return Ok(true);
        }
        let waiting = self.store.audit.waiting().next();
        if let Some(approval) = waiting {
            if self.plan.abandon {
                return Ok(false);
            }
            if self.rng.percent(20) {
                self.decide(approval);
            } else {
                self.somebody_posts();
            }
            return Ok(true);
        }
        if self.inputs_left == 0 {
            return Ok(false);
        }
        self.inputs_left -= 1;
        let start = if self.rng.percent(10) { Start::Direct } else { Start::Input };
        self.claim(&start)?;
        Ok(true)
    }

    /// A process claims the thread, reads its journal, and begins where that ends.
    fn claim(&mut self, start: &Start) -> Result<(), Broken> {
        let fence = self.store.claim();
        let thread = self.store.load()?;
        self.named += 1;
        let mut limits =
            RunLimits { max_steps: self.plan.max_steps, tool_concurrency: self.plan.limit, max_repeats: self.plan.max_repeats };
        if self.plan.limits_vary {
            limits.tool_concurrency = self.rng.pick(&[None, Some(1), Some(2)]).flatten();
        }
        let next = NextRun {
            id: RunId::new(format!("run_{}", self.named)),
            agent: "sim".into(),
            limits,
            principal: None,
            metadata: serde_json::Map::new(),
            instructions: None,
            added: None,
            fingerprint: None,
        };
        let durable = thread.head();
        let mut driver = Driver::new(thread, Arc::clone(self.table) as Arc<dyn toolwright_runtime::ToolFacts>, next);
        if let Some(bug) = self.bug {
            driver = driver.with_bug(bug);
        }
        if matches!(start, Start::Input | Start::Direct) {
            driver.disregard_posted_through(self.store.posted());
            self.store.audit.stale_cancels = self.store.posted();
        }
        if let Err(misfit) = self.starting(&mut driver, start) {
            return broken("what a driver records fits its thread", misfit.to_string());
        }
        let mut owner = Owner { fence, driver, durable, seen: 0, flights: Vec::new() };
        let mut fate = self.take_inbox(&mut owner)?;
        if fate != Fate::Gone {
            fate = if matches!(start, Start::Stop) || (self.plan.cancel > 0 && self.rng.percent(2)) {
                self.cancel(&mut owner)?
            } else {
                self.step(&mut owner, None)?
            };
        }
        self.settle(owner, fate)
    }

    fn starting(&mut self, driver: &mut Driver, start: &Start) -> Result<(), toolwright_core::Misfit> {
        let now = Timestamp(self.now);
        driver.open(&self.store.thread, now)?;
        match start {
            Start::GoOn | Start::Stop => Ok(()),
            Start::Input => driver.start(RunCause::Input, Vec::new(), vec![Message::human("go on")], now),
            Start::Direct => {
                driver.start(RunCause::Invocation, Vec::new(), Vec::new(), now)?;
                let tool = tools::TOOLS.get(self.rng.index(tools::TOOLS.len())).map_or("read", |tool| tool.name);
                let opening = CallOpening {
                    call: CallId::new(format!("direct_{}", self.named)),
                    tool: tool.into(),
                    origin: CallOrigin::Client,
                    parent: None,
                    arguments: Some(model::arguments(&mut self.rng).into()),
                    sequential: false,
                };
                driver.open_call(opening, now)
            }
        }
    }

    /// An owner that hung comes to.
    fn wake(&mut self) -> Result<(), Broken> {
        if self.hanging.is_empty() {
            return Ok(());
        }
        let at = self.rng.index(self.hanging.len());
        let mut owner = self.hanging.swap_remove(at);
        self.stats.wakes += 1;
        if self.store.is_current(owner.fence) && self.owner.is_none() {
            // Nobody missed it.
            self.owner = Some(owner);
            return Ok(());
        }
        // What nobody waits for any more ends quietly.
        if owner.flights.is_empty() && !self.store.has_news(owner.seen) {
            return Ok(());
        }
        if self.advance(&mut owner)? == Fate::Alive {
            self.hanging.push(owner);
        }
        Ok(())
    }

    fn post_cancel(&mut self) {
        let at = self.store.posted() + 1;
        self.store.post(format!("cancel {at}"), InboxItem::Cancel { reason: AbortReason::abort(format!("inbox {at}")), run: None });
    }

    /// Somebody decides, decides again, too late, about something else, or cancels what is over.
    fn somebody_posts(&mut self) {
        let audit = &self.store.audit;
        if self.plan.cancel > 0 && audit.run.is_none() && self.rng.percent(10) {
            // For a run that is over, or never was.
            self.post_cancel();
            return;
        }
        if audit.approvals.is_empty() {
            return;
        }
        let waiting: Vec<usize> = audit.waiting().collect();
        let roll = self.rng.below(100);
        if roll < 10 {
            // About other arguments, or too early for a call that nobody asks about yet.
            self.post_stray(waiting.first().copied());
        } else if roll < 25 || waiting.is_empty() {
            // Perhaps one that was decided long ago.
            let known = audit.approvals.len();
            let at = self.rng.index(known);
            self.decide(at);
        } else if let Some(approval) = self.rng.pick(&waiting) {
            self.decide(approval);
        }
    }

    fn post_stray(&mut self, waiting: Option<usize>) {
        let audit = &self.store.audit;
        let about = match waiting.and_then(|at| audit.approvals.get(at)) {
            Some(approval) => audit.calls.get(approval.call).map(|call| (approval.id.clone(), call.id.clone())),
            None => audit
                .open()
                .find(|call| call.stage == Stage::Opened)
                .map(|call| (ApprovalId::of(&self.store.thread, &call.id, 1), call.id.clone())),
        };
        let Some((approval, call)) = about else { return };
        self.stats.altered += 1;
        let key = format!("stray {}", self.store.posted());
        self.store.post(key, InboxItem::Decision { approval, call, sha256: "of other arguments".into(), decision: Decision::approve() });
    }

    /// Decides what the approval of this index asks.
    fn decide(&mut self, at: usize) {
        let Some((approval, call)) =
            self.store.audit.approvals.get(at).and_then(|approval| Some((approval, self.store.audit.calls.get(approval.call)?)))
        else {
            return;
        };
        let decision = match self.rng.below(10) {
            0..=4 => Decision::approve(),
            5 => Decision::approve_with(r#"{"n":9}"#),
            6 => Decision::approve_with(self.rng.pick(&[r#"{"deny":2}"#, r#"{"n":"#, r#"{"answer":2}"#]).unwrap_or("{}")),
            _ => Decision::reject(),
        };
        let decision = decision.by(format!("person {}", self.rng.below(100)));
        let (id, waits, again) = (approval.id.clone(), call.stage == Stage::Asking(at), approval.posted.is_some());
        let item = InboxItem::Decision {
            approval: id.clone(),
            call: call.id.clone(),
            sha256: Arc::clone(&approval.sha256),
            decision: decision.clone(),
        };
        // A second decision is refused by its key; now and then one gets past it, and changes nothing either.
        let key = if again && self.rng.percent(30) { format!("again {}", self.store.posted()) } else { format!("decision:{id}") };
        if !self.store.post(key, item) || again {
            let count = if waits { &mut self.stats.again } else { &mut self.stats.late };
            *count += 1;
            return;
        }
        match decision.verdict {
            _ if !waits => self.stats.late += 1,
            DecisionVerdict::Approve => self.stats.approved += 1,
            DecisionVerdict::ApproveEdited { .. } => self.stats.edited += 1,
            _ => self.stats.rejected += 1,
        }
        if let Some(approval) = self.store.audit.approvals.get_mut(at) {
            approval.posted = Some(decision);
        }
    }
}
