//! One schedule: owners, a model, tools, people and a store, under one seeded scheduler and a fake clock.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use toolwright_core::{
    Budget, Budgets, CallId, CallOpening, CallOrigin, Drift, Fingerprint, Message, Record, RunCause, RunId, RunLimits, Seq, Thread,
    ThreadId, Timestamp,
};
use toolwright_runtime::planted::Bug;
use toolwright_runtime::{Driver, InboxItem, MemoryStore, NextRun, ToolFacts};

use super::deciders::Attempt;
use super::model::{self, Character};
use super::owner::{Fate, Owner};
use super::rng::Rng;
use super::store::Store;
use super::tools::{self, Table};
use super::{Broken, Stats, broken, checks, people};

/// After so many turns nothing goes wrong any more, so that the schedule comes to its end.
const CALM_AFTER: u32 = 2_000;
/// A schedule that takes more turns than this is stuck.
const MOST_TURNS: u32 = 20_000;
const HOUR: i64 = 3_600_000;
const STORED: &str = "the fold of the stored journal is the owner's";

/// What a schedule is like; drawn from its seed.
#[derive(Clone)]
pub(super) struct Plan {
    pub(super) limit: Option<u32>,
    /// Whether each run has limits of its own.
    limits_vary: bool,
    max_steps: u32,
    max_repeats: Option<u32>,
    pub(super) model: Character,
    /// In a thousand appends, those at which the owner dies.
    pub(super) crash: u64,
    /// In a thousand turns, those at which the owner dies, hangs, or is told to stop.
    die: u64,
    hang: u64,
    pub(super) cancel: u64,
    /// In a hundred turns, those in which somebody posts.
    post: u64,
    /// In a hundred posts, those that are input, and those that a timer makes.
    pub(super) input: u64,
    pub(super) timers: u64,
    /// What nobody decided on their own stays undecided.
    abandon: bool,
    /// In a hundred gates, those that answer at once.
    pub(super) at_once: u64,
    /// In a hundred model calls, those before which what the model sees is made shorter.
    pub(super) compact: u64,
    /// In a hundred appends, those after which the fold is saved.
    pub(super) save: u64,
    /// In a thousand turns, those after which the thread is forked.
    fork: u64,
    /// In a thousand steps, those before which the clock jumps back an hour.
    jump: u64,
    /// What runs and the thread may use.
    budgets: Option<Arc<Budgets>>,
    /// Whether input is checked, and in a hundred checks and replies, those that do not pass.
    checks_input: bool,
    pub(super) trips: u64,
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
            input: rng.pick(&[0, 20, 60]).unwrap_or(0),
            timers: rng.pick(&[0, 0, 20]).unwrap_or(0),
            abandon: rng.percent(15),
            at_once: rng.pick(&[0, 60, 100]).unwrap_or(0),
            compact: rng.pick(&[0, 0, 10, 50]).unwrap_or(0),
            save: rng.pick(&[0, 10, 40]).unwrap_or(0),
            fork: rng.pick(&[0, 0, 0, 0, 10]).unwrap_or(0),
            jump: rng.pick(&[0, 5]).unwrap_or(0),
            budgets: rng.percent(35).then(|| Arc::new(Budgets { run: budget(rng, 1), thread: budget(rng, 4) })),
            checks_input: rng.percent(35),
            trips: rng.pick(&[0, 0, 8]).unwrap_or(0),
        }
    }
}

/// Limits, some of them near.
fn budget(rng: &mut Rng, runs: u64) -> Option<Budget> {
    if rng.percent(30) {
        return None;
    }
    let mut budget = Budget::new();
    if rng.percent(50) {
        budget = budget.max_tokens(rng.between(100, 900) * runs);
    }
    if rng.percent(50) {
        budget = budget.max_duration(Duration::from_millis(rng.between(200, 3_000) * runs));
    }
    if rng.percent(40) {
        budget = budget.max_steps(rng.between(1, 6) as u32 * runs as u32);
    }
    Some(if rng.percent(20) { budget.throws() } else { budget })
}

pub(super) enum Start {
    GoOn,
    Input,
    Direct,
    /// To end a run that nobody moves, or a wait.
    Stop,
}

/// The world of one schedule.
pub(super) struct World<'a> {
    pub(super) rng: Rng,
    pub(super) plan: Plan,
    pub(super) table: &'a Arc<Table>,
    pub(super) bug: Option<Bug>,
    pub(super) store: Store,
    pub(super) now: i64,
    pub(super) owner: Option<Owner>,
    /// Owners that hang, or woke up to find another in their place.
    pub(super) hanging: Vec<Owner>,
    pub(super) inputs_left: u64,
    /// How often others may still send input.
    pub(super) posts_left: u64,
    /// People who have looked at what waits, and have not posted.
    pub(super) attempts: Vec<Attempt>,
    pub(super) forks_left: u64,
    /// How many threads this one is a fork of.
    pub(super) depth: u32,
    pub(super) named: u64,
    pub(super) cancels: u64,
    pub(super) begun: HashSet<(CallId, u32)>,
    /// The journals of its forks, one after the other.
    pub(super) forks: Vec<Arc<Record>>,
    pub(super) stats: &'a mut Stats,
}

impl<'a> World<'a> {
    pub(super) fn new(seed: u64, bug: Option<Bug>, table: &'a Arc<Table>, stats: &'a mut Stats) -> Result<Self, Broken> {
        let Ok(thread) = ThreadId::new("sim") else { return broken("a thread id has its grammar", "sim".to_owned()) };
        let mut rng = Rng::new(seed);
        let plan = Plan::draw(&mut rng);
        let inputs_left = rng.between(1, 4);
        let real = rng.percent(15).then(MemoryStore::new);
        stats.real += u64::from(real.is_some());
        Ok(Self {
            posts_left: if plan.input > 0 { rng.between(1, 8) } else { 0 },
            attempts: Vec::new(),
            forks_left: rng.between(1, 2),
            rng,
            plan,
            table,
            bug,
            store: Store::new(thread, bug, real),
            now: 1_700_000_000_000,
            owner: None,
            hanging: Vec::new(),
            inputs_left,
            depth: 0,
            named: 0,
            cancels: 0,
            begun: HashSet::new(),
            forks: Vec::new(),
            stats,
        })
    }

    /// Runs the schedule to its end and checks everything.
    pub(super) fn run(&mut self) -> Result<(), Broken> {
        let mut turns = 0;
        while self.turn()? {
            turns += 1;
            if turns == CALM_AFTER {
                (self.plan.crash, self.plan.die, self.plan.hang, self.plan.fork) = (0, 0, 0, 0);
            }
            if turns > MOST_TURNS {
                return broken("runs end", format!("{turns} turns of the scheduler were not enough"));
            }
        }
        // Whoever still hangs wakes up to find that its time is over.
        while !self.hanging.is_empty() {
            self.wake()?;
            turns += 1;
            if turns > MOST_TURNS {
                return broken("runs end", format!("an owner that hung did not end within {turns} turns of the scheduler"));
            }
        }
        self.store.audit.none_is_overdue()?;
        self.store.reminds()?;
        let round_trip = self.rng.percent(2);
        checks::whole_journal(&self.store, round_trip)?;
        if self.depth == 0 && self.rng.percent(10) {
            self.fork()?;
        }
        self.stats.records += self.store.records.len() as u64;
        self.stats.runs += self.store.audit.runs;
        self.stats.calls += self.store.audit.calls.len() as u64;
        self.stats.steered += self.store.audit.steered;
        self.stats.exceeded += self.store.audit.exceeded();
        self.stats.covered += self.store.audit.covered;
        self.stats.remembered += self.store.audit.remembered;
        self.stats.left_waiting += u64::from(self.store.audit.waiting().next().is_some());
        if self.rng.percent(20) {
            self.store.refuses_a_gap()?;
            self.store.delete(3)?;
        }
        Ok(())
    }

    fn turn(&mut self) -> Result<bool, Broken> {
        if self.rng.percent(self.plan.post) {
            self.somebody_posts()?;
        }
        if self.store.timers() > 0 && self.rng.percent(20) {
            self.look_at_timers()?;
        }
        if !self.attempts.is_empty() && self.rng.percent(15) {
            self.somebody_goes_on()?;
        }
        if !self.hanging.is_empty() && self.rng.percent(15) {
            self.wake()?;
        }
        if self.plan.fork > 0 && self.rng.permille(self.plan.fork) {
            self.fork()?;
        }
        let Some(mut owner) = self.owner.take() else { return self.nobody_moves() };
        let roll = self.rng.below(1000);
        let Plan { die, hang, cancel, .. } = self.plan;
        if roll < die {
            self.stats.deaths += 1;
            self.store.release(owner.fence);
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
                self.post_cancel()?;
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
    pub(super) fn settle(&mut self, mut owner: Owner, mut fate: Fate) -> Result<(), Broken> {
        // What came meanwhile may start the run; what comes after it is for the next owner.
        while fate == Fate::Rests && owner.driver.can_start() && self.store.has_news(owner.seen) && self.rng.percent(80) {
            fate = self.take_inbox(&mut owner)?;
        }
        match fate {
            Fate::Alive => self.owner = Some(owner),
            Fate::Gone => self.store.release(owner.fence),
            Fate::Rests => {
                let stored = self.store.load()?;
                checks::same_shown(STORED, &stored, owner.driver.thread())?;
                if self.rng.percent(5) {
                    checks::same_fold(STORED, &stored, owner.driver.thread())?;
                    self.store.audit.is_told(stored.transcript())?;
                    checks::index(&self.store)?;
                    self.store.reminds()?;
                }
                // What changed nothing is not read again.
                if self.rng.percent(80) {
                    self.append(&mut owner, &[])?;
                }
                self.store.release(owner.fence);
            }
        }
        Ok(())
    }

    /// Nobody moves the thread. Gives whether anything is left to do.
    fn nobody_moves(&mut self) -> Result<bool, Broken> {
        let stops = self.plan.cancel > 0 && self.store.audit.open().next().is_some() && self.rng.percent(4);
        if stops {
            self.stats.cancels += 1;
            self.post_cancel()?;
            self.claim(&Start::Stop)?;
            return Ok(true);
        }
        let audit = &self.store.audit;
        if audit.is_open_fork() {
            return self.somebody_resumes();
        }
        if audit.run.is_some() || audit.can_resume() || audit.input_waits() {
            checks::is_found(&self.store)?;
            self.claim(&Start::GoOn)?;
            return Ok(true);
        }
        // What was posted may change nothing, or decide nothing yet: the thread rests as it did.
        if self.store.has_news(0) && self.rng.percent(if audit.waiting().next().is_some() { 40 } else { 3 }) {
            self.claim(&Start::GoOn)?;
            return Ok(true);
        }
        if self.plan.compact > 0 && self.rng.percent(5) {
            self.somebody_tidies()?;
        }
        if !self.attempts.is_empty() && self.rng.percent(50) {
            self.somebody_goes_on()?;
            return Ok(true);
        }
        let waiting: Vec<usize> = self.store.audit.waiting().collect();
        let waiting = self.rng.pick(&waiting);
        // Where somebody is waited for, they may be faster than the time. Reminders go on for ever.
        let time_passes = match waiting {
            None => self.store.timers() > 0,
            Some(_) if self.plan.abandon => self.store.has_to_come(),
            Some(_) => self.store.timers() > 0 && self.rng.percent(25),
        };
        if time_passes {
            let next = self.store.next_timer().unwrap_or(self.now);
            self.now = self.now.max(next);
            self.look_at_timers()?;
            return Ok(true);
        }
        if let Some(approval) = waiting {
            if self.plan.abandon {
                return Ok(!self.attempts.is_empty());
            }
            if self.rng.percent(20) {
                self.decide(approval)?;
            } else {
                self.somebody_posts()?;
            }
            return Ok(true);
        }
        if self.inputs_left == 0 {
            return Ok(!self.attempts.is_empty());
        }
        self.inputs_left -= 1;
        let start = if self.rng.percent(10) { Start::Direct } else { Start::Input };
        self.claim(&start)?;
        Ok(true)
    }

    /// A fork stands in the middle of a run: somebody resumes it, sends something, or never comes.
    fn somebody_resumes(&mut self) -> Result<bool, Broken> {
        let roll = self.rng.below(20);
        if roll == 0 {
            return Ok(self.store.timers() > 0);
        }
        let sends = roll < 4 && self.store.audit.may_send();
        self.claim(if sends { &Start::Input } else { &Start::GoOn })?;
        Ok(true)
    }

    /// A process claims the thread, reads its journal, and begins where that ends.
    pub(super) fn claim(&mut self, start: &Start) -> Result<(), Broken> {
        let fence = self.store.claim()?;
        let thread = self.store.load_saved(&mut self.rng, self.stats)?;
        let posted = self.store.inbox(0)?;
        if matches!(start, Start::GoOn) && self.rng.percent(80) && self.nothing_to_do(fence, &thread, &posted)? {
            return Ok(());
        }
        let next = self.next_run();
        let durable = thread.head();
        let mut driver = Driver::new(thread, Arc::clone(self.table) as Arc<dyn ToolFacts>, next);
        if let Some(bug) = self.bug {
            driver = driver.with_bug(bug);
        }
        let through = posted.last().map_or(0, |(position, _)| *position);
        if matches!(start, Start::Input | Start::Direct) {
            driver.disregard_posted_through(through);
            self.store.audit.stale_cancels = through;
        }
        let waiting = posted.into_iter().filter(|(_, item)| matches!(item, InboxItem::Input { .. })).collect();
        if matches!(start, Start::GoOn) && self.rng.percent(3) {
            let drift = Drift { model: true, ..Drift::default() };
            if let Err(misfit) = driver.drifted(drift, Timestamp(self.now)) {
                return broken("what a driver records fits its thread", misfit.to_string());
            }
        }
        if let Err(misfit) = self.starting(&mut driver, start, waiting) {
            return broken("what a driver records fits its thread", misfit.to_string());
        }
        let mut owner = Owner::new(fence, driver, durable);
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

    /// Whether there is nothing to go on with, as the runtime sees it. What was posted for runs that are over is then marked.
    fn nothing_to_do(&mut self, fence: u64, thread: &Thread, posted: &[(u64, InboxItem)]) -> Result<bool, Broken> {
        let waits = thread.open_calls().next().is_some();
        let wakes = |item: &InboxItem| match item {
            InboxItem::Decision { .. } | InboxItem::Delegate { .. } | InboxItem::Remind { .. } => true,
            InboxItem::Input { only, .. } => only.is_none(),
            InboxItem::Cancel { run, .. } => waits && (run.is_none() || run.as_ref() == thread.run_to_cancel()),
            _ => false,
        };
        if thread.can_go_on() || posted.iter().any(|(_, item)| wakes(item)) {
            return Ok(false);
        }
        if let Some((through, _)) = posted.last().filter(|_| thread.pending().next().is_none()) {
            self.store.append(fence, thread.head(), &[], *through)?;
        }
        self.store.release(fence);
        Ok(true)
    }

    fn next_run(&mut self) -> NextRun {
        self.named += 1;
        let mut limits =
            RunLimits { max_steps: self.plan.max_steps, tool_concurrency: self.plan.limit, max_repeats: self.plan.max_repeats };
        if self.plan.limits_vary {
            limits.tool_concurrency = self.rng.pick(&[None, Some(1), Some(2)]).flatten();
        }
        // Now and then the agent is another one.
        let version = if self.rng.percent(5) { "2" } else { "1" };
        let fingerprint = Fingerprint { model: "sim".to_owned(), tools: Vec::new(), instructions: version.to_owned() };
        let mut metadata = serde_json::Map::new();
        if self.rng.percent(10) {
            metadata.insert("ticket".to_owned(), json!(self.named));
        }
        NextRun {
            id: RunId::new(format!("run_{}_{}", self.depth, self.named)),
            agent: "sim".into(),
            limits,
            principal: self.rng.percent(20).then(|| json!({ "id": "somebody" })),
            metadata,
            instructions: Some(version.into()),
            added: self.rng.percent(10).then(|| "Be brief.".into()),
            fingerprint: Some(Arc::new(fingerprint)),
            mode: None,
            budgets: self.plan.budgets.clone(),
            checks_input: self.plan.checks_input,
        }
    }

    fn starting(&mut self, driver: &mut Driver, start: &Start, waiting: Vec<(u64, InboxItem)>) -> Result<(), toolwright_core::Misfit> {
        let now = Timestamp(self.now);
        driver.open(&self.store.thread, now)?;
        match start {
            Start::GoOn | Start::Stop => Ok(()),
            Start::Input => {
                let text = self.rng.pick(&people::TEXTS).unwrap_or("go on");
                driver.start(RunCause::Input, waiting, vec![Message::human(text)], now)
            }
            Start::Direct => {
                driver.start(RunCause::Invocation, waiting, Vec::new(), now)?;
                let tool = tools::TOOLS.get(self.rng.index(tools::TOOLS.len())).map_or("read", |tool| tool.name);
                let opening = CallOpening {
                    call: CallId::new(format!("direct_{}_{}", self.depth, self.named)),
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

    /// Clocks go forward, stand still, and sometimes jump back.
    pub(super) fn tick(&mut self) {
        if self.plan.jump > 0 && self.rng.permille(self.plan.jump) {
            self.stats.jumps += 1;
            self.now -= HOUR;
        } else if self.rng.permille(2) {
            self.now -= 5;
        } else {
            self.now += self.rng.below(3) as i64;
        }
    }

    /// Somebody asks the store for timers that are due.
    pub(super) fn look_at_timers(&mut self) -> Result<(), Broken> {
        let limit = self.rng.between(1, 3) as usize;
        self.stats.timers += self.store.post_due(self.now, limit)? as u64;
        Ok(())
    }
}

/// Where an owner begins: nothing of the inbox is seen.
impl Owner {
    fn new(fence: u64, driver: Driver, durable: Seq) -> Self {
        Self { fence, driver, durable, seen: 0, flights: Vec::new() }
    }
}
