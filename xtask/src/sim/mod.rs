//! The simulator: core and driver under a seeded scheduler, with its invariants checked as they go and after each schedule.
//!
//! A schedule is one thread from its first input until it rests for good: a scripted model, tools with chosen latencies and
//! failures, a store that crashes at any append, owners that die or hang, decisions that come early, late, twice or never, of one
//! person or several, about one call or those to come, results from outside, input that is queued or steers, cancellations that race, timers, compaction, saved folds that are stale or damaged, and forks from
//! any place. In some schedules the runtime's own store is asked everything too. Everything is drawn from one seed, so a seed
//! that breaks an invariant replays.

mod audit;
mod checks;
mod compaction;
mod deciders;
mod forks;
mod model;
mod owner;
mod people;
pub(crate) mod rng;
mod store;
#[cfg(test)]
mod tests;
mod tools;
mod world;

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use toolwright_core::Record;
use toolwright_runtime::planted::Bug;

use self::tools::Table;
use self::world::World;
use crate::usage;

const SCHEDULES: u64 = 100_000;
/// A planted bug has to be found within so many schedules.
const PLANTED_WITHIN: u64 = 2_000;
/// Records shown of a journal that broke an invariant.
const TAIL: usize = 30;

/// An invariant that did not hold.
#[derive(Debug)]
pub(crate) struct Broken {
    invariant: &'static str,
    detail: String,
}

fn broken<T>(invariant: &'static str, detail: String) -> Result<T, Broken> {
    Err(Broken { invariant, detail })
}

macro_rules! stats {
    ($($name:ident)+) => {
        /// What happened over all schedules.
        #[derive(Default)]
        struct Stats {
            $($name: u64,)+
        }

        impl Stats {
            fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)+
            }
        }
    };
}

stats! {
    records runs asks calls at_once bodies reruns
    crashes_before crashes_after deaths hangs wakes refused jumps
    approved edited rejected late again altered cancels left_waiting
    voted handed_on reminded lapsed forbidden outside covered remembered overtaken
    inputs applied returned steered timers
    compacted pruned folded tidied
    saved loaded passed_over
    forks patches real
    checks exceeded
}

/// A schedule that broke an invariant, with its journal.
struct Found {
    seed: u64,
    broken: Broken,
    journal: Vec<Arc<Record>>,
}

/// Runs one schedule; gives its journal.
fn schedule(seed: u64, bug: Option<Bug>, table: &Arc<Table>, stats: &mut Stats) -> Result<Vec<Arc<Record>>, Box<Found>> {
    let mut world = World::new(seed, bug, table, stats).map_err(|broken| Box::new(Found { seed, broken, journal: Vec::new() }))?;
    let ran = world.run();
    let mut journal = world.store.records;
    journal.append(&mut world.forks);
    match ran {
        Ok(()) => Ok(journal),
        Err(broken) => Err(Box::new(Found { seed, broken, journal })),
    }
}

/// Runs schedules, as many at once as the machine can, until one breaks an invariant: the one with the lowest seed.
fn schedules(first: u64, count: u64, bug: Option<Bug>, stats: &mut Stats) -> Result<(), Box<Found>> {
    let end = first.saturating_add(count);
    let (next, lowest) = (AtomicU64::new(first), AtomicU64::new(end));
    let found: Mutex<Vec<Box<Found>>> = Mutex::default();
    let all: Mutex<&mut Stats> = Mutex::new(stats);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                let (table, mut mine) = (Arc::new(Table::new()), Stats::default());
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    // Every schedule below the lowest that broke something runs to its end, so which is found is no race.
                    if seed >= end || seed > lowest.load(Ordering::Relaxed) {
                        break;
                    }
                    if let Err(broken) = schedule(seed, bug, &table, &mut mine) {
                        lowest.fetch_min(seed, Ordering::Relaxed);
                        found.lock().unwrap_or_else(PoisonError::into_inner).push(broken);
                        break;
                    }
                }
                all.lock().unwrap_or_else(PoisonError::into_inner).add(&mine);
            });
        }
    });
    let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.into_iter().min_by_key(|found| found.seed).map_or(Ok(()), Err)
}

fn name_of(bug: Bug) -> &'static str {
    match bug {
        Bug::RerunOfARecordedCall => "rerun-of-a-recorded-call",
        Bug::ResultOutOfOrder => "result-out-of-order",
        Bug::LostDecision => "lost-decision",
        Bug::BodyBeforeRecord => "body-before-record",
        Bug::LostInput => "lost-input",
        Bug::InputTakenTwice => "input-taken-twice",
        Bug::SteerOverAReply => "steer-over-a-reply",
        Bug::PruneOfTheLatestTurn => "prune-of-the-latest-turn",
        Bug::ForkKeepsApprovals => "fork-keeps-approvals",
        Bug::SavedWithoutInput => "saved-without-input",
        Bug::SavedWithoutIds => "saved-without-ids",
        Bug::TimeIsNotLimited => "time-is-not-limited",
        Bug::InputIsNotChecked => "input-is-not-checked",
        Bug::SpentIsForgotten => "spent-is-forgotten",
        Bug::OneVotesTwice => "one-votes-twice",
        Bug::DelegationIsIgnored => "delegation-is-ignored",
        Bug::LapseHasAKeyOfItsOwn => "lapse-has-a-key-of-its-own",
        Bug::FailureHasAKeyOfItsOwn => "failure-has-a-key-of-its-own",
        Bug::CoveredBesideARejection => "covered-beside-a-rejection",
        Bug::AlwaysForgetsTheArguments => "always-forgets-the-arguments",
        Bug::AlwaysAnswersNobody => "always-answers-nobody",
        Bug::AskedBesideAnApproval => "asked-beside-an-approval",
        Bug::SavedWithoutApprovals => "saved-without-approvals",
        Bug::RemindedOnce => "reminded-once",
    }
}

struct Options {
    schedules: u64,
    seed: u64,
    bug: Option<Bug>,
}

impl Options {
    fn read(args: &[String]) -> anyhow::Result<Self> {
        let mut options = Self { schedules: SCHEDULES, seed: 1, bug: None };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let number =
                |text: Option<&String>| text.and_then(|text| text.parse().ok()).ok_or_else(|| usage(&format!("{arg} takes a number")));
            match arg.as_str() {
                "--schedules" => options.schedules = number(args.next())?,
                "--seed" => options.seed = number(args.next())?,
                "--bug" => {
                    let name = args.next().map(String::as_str);
                    let Some(bug) = Bug::ALL.into_iter().find(|bug| name == Some(name_of(*bug))) else {
                        let names: Vec<&str> = Bug::ALL.into_iter().map(name_of).collect();
                        return Err(usage(&format!("--bug takes one of {}", names.join(", "))));
                    };
                    options.bug = Some(bug);
                }
                other => return Err(usage(&format!("sim has no option `{other}`"))),
            }
        }
        Ok(options)
    }
}

/// `cargo xtask sim [--schedules N] [--seed S] [--bug NAME]`.
pub(crate) fn run(args: &[String]) -> anyhow::Result<ExitCode> {
    let options = Options::read(args)?;
    let started = Instant::now();
    let mut stats = Stats::default();
    if let Err(found) = schedules(options.seed, options.schedules, options.bug, &mut stats) {
        tell(&found, options.bug);
        return Ok(ExitCode::FAILURE);
    }
    let seconds = started.elapsed().as_secs_f64();
    print_stats(&stats, options.schedules, seconds);
    if options.bug.is_none() && options.schedules >= PLANTED_WITHIN && !all_planted_found(options.seed) {
        return Ok(ExitCode::FAILURE);
    }
    println!("{} schedules, no invariant broken", options.schedules);
    Ok(ExitCode::SUCCESS)
}

fn tell(found: &Found, bug: Option<Bug>) {
    let Found { seed, broken, journal } = found;
    let skipped = journal.len().saturating_sub(TAIL);
    println!("the journal of seed {seed}, {} records, the last {}:", journal.len(), journal.len() - skipped);
    for record in journal.iter().skip(skipped) {
        println!("  {}", serde_json::to_string(record).unwrap_or_default());
    }
    println!("broken: {}", broken.invariant);
    println!("        {}", broken.detail);
    let planted = bug.map(|bug| format!(" --bug {}", name_of(bug))).unwrap_or_default();
    println!("replay: cargo xtask sim --seed {seed} --schedules 1{planted}");
}

fn print_stats(stats: &Stats, schedules: u64, seconds: f64) {
    let Stats { records, runs, asks, calls, bodies, reruns, at_once, .. } = stats;
    println!("schedules  {schedules} in {seconds:.1} s, {:.0} a second", schedules as f64 / seconds.max(0.001));
    println!("journals   {records} records, {runs} runs, {} threads left waiting", stats.left_waiting);
    println!(
        "work       {asks} model requests, {calls} calls, {at_once} gates at once, {bodies} bodies, {reruns} of them again after a crash"
    );
    println!("crashes    {} before an append was durable, {} after", stats.crashes_before, stats.crashes_after);
    println!(
        "owners     {} died, {} hung, {} woke up, {} appends refused, {} clocks jumped back",
        stats.deaths, stats.hangs, stats.wakes, stats.refused, stats.jumps
    );
    println!(
        "decisions  {} approved, {} edited, {} rejected, {} late, {} again, {} altered; {} cancellations",
        stats.approved, stats.edited, stats.rejected, stats.late, stats.again, stats.altered, stats.cancels
    );
    println!(
        "people     {} votes, {} handed on, {} not theirs, {} reminders, {} lapsed, {} results from outside",
        stats.voted, stats.handed_on, stats.forbidden, stats.reminded, stats.lapsed, stats.outside
    );
    println!(
        "approvals  {} calls of others that waited and {} that were not asked about, {} times somebody was faster",
        stats.covered, stats.remembered, stats.overtaken
    );
    println!(
        "input      {} posted, {} joined, {} went back, {} model calls given up; {} timers",
        stats.inputs, stats.applied, stats.returned, stats.steered, stats.timers
    );
    println!(
        "compaction {} times, {} results pruned, {} summaries; {} threads made shorter at rest",
        stats.compacted, stats.pruned, stats.folded, stats.tidied
    );
    println!("limits     {} budgets reached, {} checks of input", stats.exceeded, stats.checks);
    println!("folds      {} saved, {} loaded, {} passed over", stats.saved, stats.loaded, stats.passed_over);
    println!("forks      {} with {} patches; {} schedules over the store in memory", stats.forks, stats.patches, stats.real);
}

/// How many schedules it takes to find each planted bug.
fn all_planted_found(first: u64) -> bool {
    let mut all = true;
    for bug in Bug::ALL {
        if let Err(found) = schedules(first, PLANTED_WITHIN, Some(bug), &mut Stats::default()) {
            println!("planted    {}: found by schedule {} ({})", name_of(bug), found.seed - first + 1, found.broken.invariant);
        } else {
            println!("planted    {}: NOT found in {PLANTED_WITHIN} schedules", name_of(bug));
            all = false;
        }
    }
    all
}
