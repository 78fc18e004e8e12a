//! A process that is killed at any moment, and another one that goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use toolwright_core::{CallId, Message, Part, Record, RecordBody, Seq, Thread, ThreadId};
use toolwright_runtime::Store;

use crate::job::Log;
use crate::stores::{self, Place};
use crate::{Orders, job};

const KILLS: u32 = 200;
const PACE: Duration = Duration::from_millis(2);

/// The same sequence in each run of the tests, so that a failure can be repeated; the moments are the machine's all the same.
pub(crate) struct Moments(pub(crate) u64);

impl Moments {
    pub(crate) fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

/// What a journal says.
pub(crate) struct Said {
    pub(crate) records: Vec<Arc<Record>>,
    pub(crate) thread: Thread,
}

pub(crate) async fn read(store: &Arc<dyn Store>, thread: &str) -> Said {
    let id = ThreadId::new(thread).unwrap();
    let records = store.read(&id, Seq(0), 10_000).await.unwrap();
    let mut fold = Thread::new();
    for record in &records {
        fold.apply(record).unwrap();
    }
    Said { records, thread: fold }
}

/// What a journal says once nothing of a killed process can come any more: a server finishes what it had sent. A claim of our
/// own sees to that, since its fencing number shuts out whatever is late.
pub(crate) async fn settled(store: &Arc<dyn Store>, thread: &str) -> Said {
    let id = ThreadId::new(thread).unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    let claim = loop {
        match store.claim(&id).await {
            Ok(claim) => break claim,
            Err(error) => assert!(Instant::now() < deadline, "the killed process still holds its thread: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    };
    let said = read(store, thread).await;
    store.release(Arc::from(claim)).await;
    said
}

impl Said {
    fn results(&self) -> BTreeMap<CallId, u32> {
        let mut results = BTreeMap::new();
        for record in &self.records {
            if let RecordBody::CallDone { call, .. } = &record.body {
                *results.entry(call.clone()).or_default() += 1;
            }
        }
        results
    }

    fn replies(&self) -> BTreeSet<u32> {
        let replied = |record: &Arc<Record>| match record.body {
            RecordBody::ModelReplied { step, .. } => Some(step),
            _ => None,
        };
        self.records.iter().filter_map(replied).collect()
    }

    /// Calls whose body had begun and had no result.
    fn running(&self) -> BTreeSet<CallId> {
        let begun = self.records.iter().filter_map(|record| match &record.body {
            RecordBody::CallExecuting { call, .. } => Some(call.clone()),
            _ => None,
        });
        let done = self.results();
        begun.filter(|call| !done.contains_key(call)).collect()
    }

    fn attempts(&self) -> BTreeMap<CallId, u32> {
        let mut attempts = BTreeMap::new();
        for record in &self.records {
            if let RecordBody::CallExecuting { call, attempt, .. } = &record.body {
                attempts.insert(call.clone(), *attempt);
            }
        }
        attempts
    }

    /// The transcript, but for results that a kill may change: those of calls that were running and must not run again.
    fn transcript_without(&self, excused: &BTreeSet<CallId>) -> Vec<Message> {
        let mut transcript: Vec<Message> = self.thread.transcript().iter().map(|message| (**message).clone()).collect();
        for message in &mut transcript {
            for item in &mut message.items {
                if let toolwright_core::Item::ToolResult(result) = item {
                    // Whether a person let it run depends on whether one had to be asked.
                    result.approval = None;
                    if excused.contains(&result.call_id) {
                        result.parts = vec![Part::text("interrupted")];
                        result.failed = None;
                    }
                }
            }
        }
        transcript
    }
}

fn bodies(log: &Log) -> Vec<(CallId, u32)> {
    let body = |line: &String| {
        let mut words = line.strip_prefix("body ")?.split(' ');
        Some((CallId::new(words.next()?), words.next()?.parse().ok()?))
    };
    log.lines().iter().filter_map(body).collect()
}

fn asks(log: &Log) -> Vec<u32> {
    log.lines().iter().filter_map(|line| line.strip_prefix("ask ")?.parse().ok()).collect()
}

fn work(place: &Place, thread: &str, log: Log) -> Orders {
    Orders { role: "work", store: place.address(), thread: thread.to_owned(), log, pace: PACE }
}

/// Kills a process so many times, each on a thread of its own, and lets another one go on.
async fn killed_and_gone_on(place: Place) {
    let store = stores::open(&place.address()).await.unwrap();
    let logs = tempfile::tempdir().unwrap();
    // Undisturbed: what the transcript has to be, and how long it takes.
    let log = Log::at(logs.path().join("undisturbed"));
    let mut took = Duration::MAX;
    for thread in ["undisturbed", "again", "and-again"] {
        let mut child = work(&place, thread, log.clone()).start();
        assert_eq!(child.says().as_deref(), Some("begins"));
        let began = Instant::now();
        assert_eq!(child.says().as_deref(), Some("done"));
        took = took.min(began.elapsed());
    }
    let expected = read(&store, "undisturbed").await;
    assert_eq!(expected.results().len(), 13);

    let mut moments = Moments(42);
    let (mut early, mut late, mut reruns, mut failed, mut again) = (0, 0, 0, 0, 0);
    for round in 0..KILLS {
        let thread = format!("killed-{round}");
        let (before, after) = (Log::at(logs.path().join(format!("{thread}-1"))), Log::at(logs.path().join(format!("{thread}-2"))));
        let mut child = work(&place, &thread, before.clone()).start();
        assert_eq!(child.says().as_deref(), Some("begins"));
        std::thread::sleep(Duration::from_micros(moments.next(took.as_micros() as u64)));
        // SIGKILL: nothing of the process runs any more.
        child.child.kill().unwrap();
        child.child.wait().unwrap();
        let killed = settled(&store, &thread).await;
        early += u32::from(killed.records.is_empty());
        late += u32::from(killed.thread.run().is_none() && !killed.records.is_empty() && killed.thread.pending().next().is_none());

        let mut second = work(&place, &thread, after.clone()).start();
        assert_eq!(second.says().as_deref(), Some("begins"));
        assert_eq!(second.says().as_deref(), Some("done"), "round {round}");
        let ended = read(&store, &thread).await;

        // Every call has exactly one result, and the journal only grew.
        assert_eq!(ended.results().values().copied().collect::<BTreeSet<u32>>(), BTreeSet::from([1]), "round {round}");
        assert_eq!(ended.records[..killed.records.len()], killed.records[..], "round {round}");
        ended.thread.transcript().check_balance().unwrap();
        // No recorded result was produced again, no recorded reply was asked for again.
        let done = killed.results();
        let repeated: Vec<_> = bodies(&after).into_iter().filter(|(call, _)| done.contains_key(call)).collect();
        assert_eq!(repeated, Vec::new(), "round {round}: recorded results were produced again");
        let replied = killed.replies();
        let asked: Vec<u32> = asks(&after).into_iter().filter(|step| replied.contains(step)).collect();
        assert_eq!(asked, Vec::<u32>::new(), "round {round}: recorded replies were asked for again");
        // Each attempt had its effect at most once, and none that was not recorded before.
        let attempts = ended.attempts();
        let effects: Vec<(CallId, u32)> = bodies(&before).into_iter().chain(bodies(&after)).collect();
        assert_eq!(effects.iter().collect::<BTreeSet<_>>().len(), effects.len(), "round {round}: an attempt ran twice: {effects:?}");
        for (call, attempt) in &effects {
            assert!(attempts.get(call).is_some_and(|recorded| attempt <= recorded), "round {round}: {call} ran without its record");
        }
        // The end is that of an undisturbed run, but for what was running at the kill and follows its `on_interrupt`.
        let running = killed.running();
        let excused: BTreeSet<CallId> = running.iter().filter(|call| call.as_str().starts_with("fragile")).cloned().collect();
        let (is, should) = (ended.transcript_without(&excused), expected.transcript_without(&excused));
        let differs = is.iter().zip(&should).position(|(is, should)| is != should);
        assert!(is.len() == should.len() && differs.is_none(), "round {round}: message {differs:?} differs, {running:?} ran at the kill");
        for call in &running {
            let runs = bodies(&after).iter().filter(|(ran, _)| ran == call).count();
            let expected_runs = usize::from(!call.as_str().starts_with("fragile"));
            assert_eq!(runs, expected_runs, "round {round}: {call} was running at the kill");
            reruns += expected_runs;
            failed += 1 - expected_runs;
        }
        again += asks(&before).len() + asks(&after).len() - ended.replies().len();
    }
    println!(
        "{place}: {KILLS} kills within {} ms, {early} before the first record, {late} after the last; {reruns} calls ran again, \
         {failed} were left with an unknown outcome, {again} requests had no recorded reply and were made again",
        took.as_millis()
    );
    // They went where it hurts.
    assert!(reruns + failed >= 20 && early + late < KILLS * 3 / 4, "the kills came at the wrong moments");
}

// rule: sdk-runtime DUR-8
// rule: sdk-runtime DUR-9
// rule: sdk-runtime DUR-10
// case: field-reports 149
#[tokio::test(flavor = "multi_thread")]
async fn over_sqlite_a_process_killed_at_any_moment_is_followed_and_nothing_is_lost_or_doubled() {
    killed_and_gone_on(Place::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn over_postgres_a_process_killed_at_any_moment_is_followed_and_nothing_is_lost_or_doubled() {
    if let Some(place) = Place::postgres() {
        killed_and_gone_on(place).await;
    }
}

/// The journal of the job, cut where its last running calls have begun: a thread that was interrupted.
pub(crate) async fn interrupted(store: &Arc<dyn Store>, from: &str, to: &str, step: u32) {
    let said = read(store, from).await;
    let id = ThreadId::new(to).unwrap();
    let begun = |record: &Arc<Record>| matches!(&record.body, RecordBody::CallExecuting { call, .. } if *call == CallId::new(format!("write_{step}_2")));
    let cut = said.records.iter().position(begun).unwrap();
    let records = said.records[..=cut].iter().map(|record| match &record.body {
        RecordBody::ThreadOpened { version, agent, .. } => Arc::new(Record {
            body: RecordBody::ThreadOpened { thread: id.clone(), version: *version, agent: Arc::clone(agent), parent: None },
            ..(**record).clone()
        }),
        _ => Arc::clone(record),
    });
    let claim = store.claim(&id).await.unwrap();
    store.append(&*claim, Seq(0), toolwright_runtime::Append::records(records.collect())).await.unwrap();
    store.release(Arc::from(claim)).await;
}

/// Runs the job undisturbed in this process.
pub(crate) async fn undisturbed(store: &Arc<dyn Store>, thread: &str) {
    let logs = tempfile::tempdir().unwrap();
    let agent = job::agent(Arc::clone(store), &Log::at(logs.path().join("log")), Duration::ZERO);
    job::finish(&agent, thread).await.unwrap();
}

/// The calls of a thread that have a result.
pub(crate) async fn results(store: &Arc<dyn Store>, thread: &str) -> BTreeSet<CallId> {
    read(store, thread).await.results().into_keys().collect()
}

/// Every call of a thread has one result.
pub(crate) async fn check_whole(store: &Arc<dyn Store>, thread: &str) {
    let said = read(store, thread).await;
    assert_eq!(said.results().values().copied().collect::<BTreeSet<u32>>(), BTreeSet::from([1]), "{thread}");
    said.thread.transcript().check_balance().unwrap();
    assert!(said.thread.run().is_none(), "{thread} has a run that has not ended");
}
