//! What a thread survives: another agent, a long past, a damaged snapshot, the loss of its claim.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use common::*;
use futures_util::FutureExt;
use serde_json::json;
use tokio::time::Instant;
use toolwright_core::{Decision, EventKind, FinishReason, Item, Record, RecordBody, Seq, Thread, ThreadId};
use toolwright_runtime::{
    Agent, AgentBuilder, AgentError, Answer as StoreAnswer, Append, Claim, MemoryStore, NoResolvers, OnDrift, Snapshot, Store, StoreError,
    StoreLayer, ThreadStatus,
};
use toolwright_tool::{Tool, ToolBuilder, ToolError};

fn id() -> ThreadId {
    ThreadId::new("t").unwrap()
}

fn gives(builder: ToolBuilder) -> Tool {
    builder.run_json(|args, _| async move { Ok::<_, ToolError>(args) }).unwrap()
}

fn asks(name: &str) -> Tool {
    gives(Tool::new(name, "Asks first.").needs_approval())
}

fn with_field(name: &str, field: &str) -> Tool {
    let schema = json!({ "type": "object", "properties": { field: { "type": "string" } } });
    Tool::new(name, "Has an argument.").run_body(schema, Arc::new(Body(|_cx| panic!("never begun")))).unwrap()
}

// ----------------------------------------------------------------------------------------------------------------- drift

/// The agent that begins: a model, two tools beside the one that asks, instructions.
fn first(store: &MemoryStore) -> AgentBuilder<NoResolvers> {
    let script = Script::new([calls([("c", "ask", "{}")]), say("never said")]);
    agent(script).instructions("Be kind.").tool(asks("ask")).tool(echo("old")).tool(with_field("same", "a")).store(store.clone())
}

/// A thread that waits for a decision, and its decision, posted.
async fn decided() -> MemoryStore {
    let store = MemoryStore::new();
    let agent = first(&store).build().unwrap();
    let paused = agent.thread("t").send("go").await.unwrap();
    agent.approvals().decide(&paused.pending[0].id, Decision::approve()).await.unwrap();
    store
}

fn other(script: Arc<Script>, store: &MemoryStore) -> AgentBuilder<NoResolvers> {
    agent(script).instructions("Be brief.").tool(with_field("same", "b")).tool(asks("ask")).tool(echo("new")).store(store.clone())
}

// rule: sdk-runtime DRF-1, sdk-runtime DRF-2, sdk-runtime DRF-6
// rule: sdk-tools 13.4/3
#[tokio::test]
async fn another_agent_is_told_and_goes_on_with_the_instructions_that_were_there() {
    let store = decided().await;
    let script = Script::new([calls([("c", "ask", "{}")]), say("done"), say("anew")]);
    let agent = other(script.clone(), &store).build().unwrap();
    let (events, reply) = collect(agent.thread("t").resume_stream()).await;
    let paused = reply.unwrap();
    assert_eq!(brief(&events)[..3], ["run.start", "agent.drift", "tool.resume c"]);
    let drift = events.iter().find_map(|event| match &event.kind {
        EventKind::AgentDrift { model, tools_added, tools_removed, tools_changed, instructions } => {
            Some((*model, tools_added.clone(), tools_removed.clone(), tools_changed.clone(), *instructions))
        }
        _ => None,
    });
    let one = |name: &str| vec![name.to_owned()];
    assert_eq!(drift.unwrap(), (false, one("new"), one("old"), one("same"), true));
    assert_eq!(&*script.asked()[0].instructions, "Be kind.");
    // However often it pauses, it goes on with what it began with, and is told again.
    agent.approvals().decide(&paused.pending[0].id, Decision::approve()).await.unwrap();
    let (events, reply) = collect(agent.thread("t").resume_stream()).await;
    assert_eq!((reply.unwrap().text.as_str(), brief(&events)[1].as_str()), ("done", "agent.drift"));
    assert_eq!(&*script.asked()[1].instructions, "Be kind.");
    // A new turn is the new agent's own.
    let (events, _) = collect(agent.thread("t").stream("next")).await;
    assert_eq!(&*script.asked()[2].instructions, "Be brief.");
    assert!(!brief(&events).contains(&"agent.drift".to_owned()));
}

#[tokio::test]
async fn a_run_that_was_interrupted_goes_on_with_its_instructions_and_what_was_added_to_them() {
    let whole = MemoryStore::new();
    let agent = common::agent(Script::new([calls([("c", "act", "{}")]), say("done")])).instructions("Be kind.");
    let agent = agent.tool(echo("act")).store(whole.clone()).build().unwrap();
    agent.thread("t").instructions("In French.").send("go").await.unwrap();
    let records = journal(&whole, &id()).await;
    let cut = records.iter().position(|record| matches!(record.body, RecordBody::CallDone { .. })).unwrap();
    let store = store_of(&id(), &records[..=cut]).await;
    let script = Script::new([say("done")]);
    let agent = common::agent(script.clone()).instructions("Be brief.").tool(echo("act")).store(store).build().unwrap();
    let (events, reply) = collect(agent.thread("t").resume_stream()).await;
    assert_eq!((reply.unwrap().text.as_str(), &*script.asked()[0].instructions), ("done", "Be kind.\n\nIn French."));
    assert_eq!(brief(&events).iter().filter(|event| *event == "agent.drift").count(), 1);
    assert_eq!(brief(&events)[0], "run.start");
}

// rule: sdk-runtime DRF-2
// rule: sdk-tools 13.4/3
#[tokio::test]
async fn an_agent_that_minds_changes_nothing_and_one_that_does_not_says_nothing() {
    let store = decided().await;
    let before = journal(&store, &id()).await;
    let script = Script::new([say("done")]);
    let minds = other(script.clone(), &store).on_drift(OnDrift::Error).build().unwrap();
    let refused = minds.thread("t").resume().await.unwrap_err();
    assert_eq!(refused.code(), "TOOLWRIGHT_AGENT_DRIFT");
    let said = refused.to_string();
    assert!(said.contains("other instructions; tools added: new; tools removed: old; tools changed: same"), "{said}");
    // Journal, question and decision are as they were.
    assert_eq!(journal(&store, &id()).await, before);
    assert_eq!((script.times(), minds.approvals().pending().await.unwrap().len()), (0, 1));
    assert_eq!(store.inbox(&id(), 0).await.unwrap().len(), 1);
    let ignores = other(script.clone(), &store).on_drift(OnDrift::Ignore).build().unwrap();
    let (events, reply) = collect(ignores.thread("t").resume_stream()).await;
    assert_eq!((reply.unwrap().text.as_str(), brief(&events)[1].as_str()), ("done", "tool.resume c"));
    // At rest it is a new turn, with whatever agent sends it.
    let minds = other(Script::new([say("mine")]), &store).on_drift(OnDrift::Error).build().unwrap();
    assert_eq!(minds.thread("t").send("next").await.unwrap().text, "mine");
}

// rule: sdk-runtime DRF-1
#[tokio::test]
async fn the_order_of_tools_is_no_difference_and_bodies_are_none() {
    let store = decided().await;
    let script = Script::new([say("done")]);
    let agent = agent(script).instructions("Be kind.").tool(with_field("same", "a")).tool(asks("old")).tool(asks("ask"));
    let agent = agent.on_drift(OnDrift::Error).store(store.clone()).build().unwrap();
    assert_eq!(agent.thread("t").resume().await.unwrap().text, "done");
    // Another model is one.
    let store = decided().await;
    let model = Answers::new(|_| reply(vec![Item::text("done")], FinishReason::Stop));
    let agent = common::agent(model).instructions("Be kind.").tool(with_field("same", "a")).tool(echo("old")).tool(asks("ask"));
    let agent = agent.on_drift(OnDrift::Error).store(store).build().unwrap();
    assert!(agent.thread("t").resume().await.unwrap_err().to_string().contains("another model"));
}

// rule: sdk-runtime DRF-3
// rule: sdk-tools 13.4/4
#[tokio::test]
async fn a_call_that_waits_needs_its_tool_whatever_else_is_allowed() {
    for on_drift in [OnDrift::Warn, OnDrift::Error, OnDrift::Ignore] {
        let store = decided().await;
        let before = journal(&store, &id()).await;
        let without = agent(Script::new([])).tool(echo("old")).on_drift(on_drift).store(store.clone()).build().unwrap();
        let refused = without.thread("t").resume().await.unwrap_err();
        assert_eq!(refused.code(), "TOOLWRIGHT_RESUME_TOOL_MISSING");
        assert!(refused.to_string().contains("`ask`") && refused.to_string().contains("the call c"), "{refused}");
        assert_eq!(journal(&store, &id()).await, before);
        assert_eq!((store.inbox(&id(), 0).await.unwrap().len(), without.approvals().pending().await.unwrap().len()), (1, 1));
        // It can be stopped without the tool, and gone on with by who has it.
        if on_drift == OnDrift::Warn {
            without.thread("t").cancel("give it up").await.unwrap();
            assert_eq!(without.thread("t").info().await.unwrap().unwrap().status, ThreadStatus::Finished);
        } else {
            let with = first(&store).build().unwrap();
            assert!(with.thread("t").resume().await.is_ok());
        }
    }
    // The same for a call whose body had begun.
    let whole = MemoryStore::new();
    let agent =
        common::agent(Script::new([calls([("c", "act", "{}")]), say("done")])).tool(echo("act")).store(whole.clone()).build().unwrap();
    agent.thread("t").send("go").await.unwrap();
    let records = journal(&whole, &id()).await;
    let cut = records.iter().position(|record| matches!(record.body, RecordBody::CallExecuting { .. })).unwrap();
    let store = store_of(&id(), &records[..=cut]).await;
    let without = common::agent(Script::new([])).store(store).build().unwrap();
    assert_eq!(without.thread("t").resume().await.unwrap_err().code(), "TOOLWRIGHT_RESUME_TOOL_MISSING");
}

// rule: sdk-runtime DRF-4
#[tokio::test]
async fn a_thread_of_before_agents_were_told_apart_goes_on_silently() {
    let records: Vec<Arc<Record>> = journal(&decided().await, &id())
        .await
        .iter()
        .map(|record| {
            let mut record = (**record).clone();
            if let RecordBody::RunStarted { fingerprint, instructions, .. } = &mut record.body {
                (*fingerprint, *instructions) = (None, None);
            }
            Arc::new(record)
        })
        .collect();
    let store = store_of(&id(), &records).await;
    let script = Script::new([say("done")]);
    let agent = other(script.clone(), &store).on_drift(OnDrift::Error).build().unwrap();
    let pending = agent.approvals().pending().await.unwrap();
    agent.approvals().decide(&pending[0].id, Decision::approve()).await.unwrap();
    let (events, reply) = collect(agent.thread("t").resume_stream()).await;
    assert_eq!((reply.unwrap().text.as_str(), &*script.asked()[0].instructions), ("done", "Be brief."));
    assert!(!brief(&events).contains(&"agent.drift".to_owned()));
}

// ------------------------------------------------------------------------------------------------------------- snapshots

/// Counts what is read and written.
#[derive(Clone, Default)]
struct Counts {
    store: MemoryStore,
    appends: Arc<AtomicUsize>,
    records: Arc<AtomicUsize>,
    snapshots: Arc<AtomicUsize>,
}

impl StoreLayer for Counts {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    fn append<'a>(&'a self, claim: &'a dyn Claim, expected: Seq, append: Append) -> StoreAnswer<'a, ()> {
        self.appends.fetch_add(1, Ordering::SeqCst);
        self.store.append(claim, expected, append)
    }

    fn read<'a>(&'a self, thread: &'a ThreadId, after: Seq, limit: usize) -> StoreAnswer<'a, Vec<Arc<Record>>> {
        let read = self.store.read(thread, after, limit);
        async move {
            let records = read.await?;
            self.records.fetch_add(records.len(), Ordering::SeqCst);
            Ok(records)
        }
        .boxed()
    }

    fn read_at<'a>(&'a self, thread: &'a ThreadId, positions: &'a [Seq]) -> StoreAnswer<'a, Vec<Arc<Record>>> {
        self.records.fetch_add(positions.len(), Ordering::SeqCst);
        self.store.read_at(thread, positions)
    }

    fn save_snapshot<'a>(&'a self, claim: &'a dyn Claim, snapshot: Snapshot) -> StoreAnswer<'a, ()> {
        self.snapshots.fetch_add(1, Ordering::SeqCst);
        self.store.save_snapshot(claim, snapshot)
    }
}

/// An agent whose model makes one call in each of so many steps.
fn stepping(steps: u32, store: impl Store) -> Agent {
    let model = Answers::new(move |request| {
        if request.step % (steps + 1) == 0 || request.messages.last().is_some_and(|message| message.text_of() == "more") {
            return reply(vec![Item::text("Done.")], FinishReason::Stop);
        }
        let call = call_item(&format!("c{}", request.step), "act", &format!(r#"{{"n":{}}}"#, request.step));
        reply(vec![Item::ToolCall(call)], FinishReason::ToolCalls)
    });
    agent(model).tool(echo("act")).max_steps(steps + 1).store(store).build().unwrap()
}

fn fold(records: &[Arc<Record>]) -> Thread {
    let mut thread = Thread::new();
    for record in records {
        thread.apply(record).unwrap();
    }
    thread
}

#[tokio::test]
async fn a_step_with_one_call_takes_two_appends() {
    for steps in [1, 7, 40] {
        let counts = Counts::default();
        let reply = stepping(steps, counts.clone()).thread("t").send("go").await.unwrap();
        assert_eq!((reply.finish_reason, reply.steps), (FinishReason::Stop, steps + 1));
        let appends = counts.appends.load(Ordering::SeqCst);
        assert!(appends <= 2 * steps as usize + 2, "{appends} appends for {steps} steps");
    }
}

#[tokio::test]
async fn a_long_thread_is_loaded_through_its_snapshot() {
    let counts = Counts::default();
    let agent = stepping(500, counts.clone());
    agent.thread("t").send("go").await.unwrap();
    let records = journal(&counts.store, &id()).await;
    assert!(records.len() > 3_000);
    // Ever more rarely, so that all of them together cost no more than the journal.
    let saved = counts.snapshots.load(Ordering::SeqCst);
    assert!((3..=5).contains(&saved), "{saved}");
    let snapshot = counts.store.snapshot(&id()).await.unwrap().unwrap();
    assert!(snapshot.at.0 * 2 > records.len() as u64 && !snapshot.text.contains("Done."));
    counts.records.store(0, Ordering::SeqCst);
    let history = agent.thread("t").history().await.unwrap();
    assert_eq!(&history, fold(&records).transcript());
    let read = counts.records.load(Ordering::SeqCst);
    assert!(read < records.len() * 2 / 3, "{read} of {} records were read", records.len());
    // The run after it goes on as from a whole journal.
    let reply = agent.thread("t").send("more").await.unwrap();
    assert_eq!((reply.text.as_str(), reply.messages.len()), ("Done.", history.len() + 2));
    assert_eq!(&reply.messages, fold(&journal(&counts.store, &id()).await).transcript());
}

#[tokio::test]
async fn a_snapshot_that_can_not_be_used_costs_time_only() {
    let whole = MemoryStore::new();
    stepping(100, whole.clone()).thread("t").send("go").await.unwrap();
    let records = journal(&whole, &id()).await;
    let good = whole.snapshot(&id()).await.unwrap().unwrap();
    let text = good.text.to_string();
    let cut = text.chars().take(text.len() / 2).collect::<String>();
    let elsewhere = text.replace(&format!("\"head\":{}", good.at), &format!("\"head\":{}", good.at.0 - 1));
    assert_ne!(text, elsewhere);
    let of_another_layout = text.replacen("\"version\":", "\"version\":9", 1);
    assert_ne!(text, of_another_layout);
    // Damaged, of another layout, of another thread, and ahead of a journal that was put back from a backup.
    for (name, text, records) in [
        ("empty", String::new(), records.clone()),
        ("no snapshot", "{}".to_owned(), records.clone()),
        ("cut", cut, records.clone()),
        ("another layout", of_another_layout, records.clone()),
        ("misplaced", elsewhere, records.clone()),
        ("ahead", text.clone(), records[..usize::try_from(good.at.0).unwrap() - 20].to_vec()),
        ("good", text, records.clone()),
    ] {
        let counts = Counts { store: store_of(&id(), &records).await, ..Counts::default() };
        let claim = counts.store.claim(&id()).await.unwrap();
        counts.store.save_snapshot(&*claim, Snapshot { at: good.at, text: text.as_str().into() }).await.unwrap();
        drop(claim);
        let agent = stepping(100, counts.clone());
        assert_eq!(&agent.thread("t").history().await.unwrap(), fold(&records).transcript(), "{name}");
        let reply = if fold(&records).run().is_some() { agent.thread("t").resume().await } else { agent.thread("t").send("more").await };
        assert_eq!(reply.unwrap().text, "Done.", "{name}");
    }
}

/// A store whose appends take a while.
#[derive(Clone, Default)]
struct Slow(MemoryStore, Arc<AtomicUsize>);

impl StoreLayer for Slow {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    fn append<'a>(&'a self, claim: &'a dyn Claim, expected: Seq, append: Append) -> StoreAnswer<'a, ()> {
        async move {
            assert_eq!(self.1.fetch_add(1, Ordering::SeqCst), 0, "two appends at once");
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            self.1.fetch_sub(1, Ordering::SeqCst);
            self.0.append(claim, expected, append).await
        }
        .boxed()
    }
}

// rule: sdk-runtime DUR-1
#[tokio::test]
async fn appends_do_not_overtake_each_other() {
    let slow = Slow::default();
    let many = calls([("a", "act", "{}"), ("b", "act", "{}"), ("c", "act", "{}"), ("d", "act", "{}")]);
    let agent = agent(Script::new([many, say("done")])).tool(echo("act")).store(slow.clone()).build().unwrap();
    let run = agent.thread("t").stream("go");
    for n in 0..20 {
        run.enqueue(n.to_string()).await.unwrap();
    }
    // What is posted while the last append goes on is asked for once more.
    drop(collect(run).await.1);
    let records = journal(&slow.0, &id()).await;
    assert!(records.iter().enumerate().all(|(at, record)| record.seq.0 == at as u64 + 1));
    fold(&records).transcript().check_balance().unwrap();
}

// rule: sdk-runtime DSE-3
#[tokio::test]
async fn a_run_whose_end_was_written_down_is_over() {
    let whole = MemoryStore::new();
    let agent = common::agent(Script::new([say("one")])).store(whole.clone()).build().unwrap();
    agent.thread("t").send("go").await.unwrap();
    // The process died before it told anybody.
    let script = Script::new([say("two")]);
    let store = store_of(&id(), &journal(&whole, &id()).await).await;
    let agent = common::agent(script.clone()).store(store.clone()).build().unwrap();
    assert!(store.unfinished(None, 10).await.unwrap().is_empty());
    assert_eq!(agent.thread("t").resume().await.unwrap_err().code(), "TOOLWRIGHT_CHECKPOINT_NOT_FOUND");
    let reply = agent.thread("t").send("next").await.unwrap();
    assert_eq!((reply.messages.len(), script.times()), (4, 1));
}

// --------------------------------------------------------------------------------------------------------------- claims

/// A store whose claims last three seconds, and are lost once told.
#[derive(Clone)]
struct Short {
    store: MemoryStore,
    lost: Arc<AtomicBool>,
    renewed: Arc<AtomicUsize>,
    appends: Arc<AtomicUsize>,
}

impl Short {
    fn new() -> Self {
        Self { store: MemoryStore::new(), lost: Arc::default(), renewed: Arc::default(), appends: Arc::default() }
    }
}

impl StoreLayer for Short {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    fn claim_limit(&self) -> Duration {
        Duration::from_secs(3)
    }

    fn renew<'a>(&'a self, claim: &'a dyn Claim) -> StoreAnswer<'a, ()> {
        self.renewed.fetch_add(1, Ordering::SeqCst);
        if self.lost.load(Ordering::SeqCst) {
            return async { Err(StoreError::Fenced { thread: claim.thread().clone() }) }.boxed();
        }
        self.store.renew(claim)
    }

    fn append<'a>(&'a self, claim: &'a dyn Claim, expected: Seq, append: Append) -> StoreAnswer<'a, ()> {
        self.appends.fetch_add(1, Ordering::SeqCst);
        self.store.append(claim, expected, append)
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_waits_gives_signs_of_life() {
    let (short, latch) = (Short::new(), Latch::default());
    let agent = agent(Script::new([calls([("a", "wait", "{}")]), say("done")])).tool(holding("wait", &latch)).store(short.clone()).build();
    let agent = agent.unwrap();
    let run = agent.thread("t").stream("go");
    latch.reached().await;
    tokio::time::sleep(Duration::from_secs(60)).await; // paused clock
    // Six in the time after which another could take its place.
    let renewed = short.renewed.load(Ordering::SeqCst);
    assert!((115..=120).contains(&renewed), "{renewed}");
    latch.release();
    assert_eq!(collect(run).await.1.unwrap().text, "done");
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_lost_its_claim_ends_and_begins_and_writes_nothing_more() {
    let (short, latch, log) = (Short::new(), Latch::default(), Log::default());
    let script = Script::new([calls([("a", "wait", "{}"), ("b", "act", "{}")]), say("never said")]);
    let agent = agent(script.clone()).tool(holding("wait", &latch)).tool(logged("act", &log)).tool_concurrency(1);
    let agent = agent.store(short.clone()).build().unwrap();
    let run = agent.thread("t").stream("go");
    latch.reached().await;
    let (appends, records) = (short.appends.load(Ordering::SeqCst), journal(&short.store, &id()).await);
    short.lost.store(true, Ordering::SeqCst);
    let (_, ended) = collect(run).await;
    assert_eq!(ended.unwrap_err(), AgentError::Store(StoreError::Fenced { thread: id() }));
    // The body that was running ends; nothing comes of it.
    latch.release();
    tokio::time::sleep(Duration::from_secs(30)).await; // paused clock
    assert_eq!((short.appends.load(Ordering::SeqCst), log.len(), script.times()), (appends, 0, 1));
    assert_eq!(journal(&short.store, &id()).await, records);
    // Who takes over goes on from there; the call that ran is run again, under its id.
    short.lost.store(false, Ordering::SeqCst);
    latch.release();
    let script = Script::new([say("done")]);
    let next = common::agent(script).tool(holding("wait", &latch)).tool(logged("act", &log)).store(short.clone()).build().unwrap();
    let reply = within(next.thread("t").resume()).await.unwrap();
    assert_eq!((reply.text.as_str(), log.all()), ("done", vec!["body b".to_owned()]));
    assert_eq!(results(&reply.messages).len(), 2);
}

/// A store whose claims last three seconds, and whose word comes late: two seconds for an append, `renewal` for a renewal. What is
/// asked after `lost` is refused.
#[derive(Clone)]
struct Late {
    store: MemoryStore,
    opened: Instant,
    renewal: Duration,
    lost: Duration,
}

impl StoreLayer for Late {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    fn claim_limit(&self) -> Duration {
        Duration::from_secs(3)
    }

    fn renew<'a>(&'a self, claim: &'a dyn Claim) -> StoreAnswer<'a, ()> {
        async move {
            if self.opened.elapsed() > self.lost {
                return Err(StoreError::Fenced { thread: claim.thread().clone() });
            }
            self.store.renew(claim).await?;
            tokio::time::sleep(self.renewal).await; // paused clock
            Ok(())
        }
        .boxed()
    }

    fn append<'a>(&'a self, claim: &'a dyn Claim, expected: Seq, append: Append) -> StoreAnswer<'a, ()> {
        async move {
            self.store.append(claim, expected, append).await?;
            tokio::time::sleep(Duration::from_secs(2)).await; // paused clock
            Ok(())
        }
        .boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_stores_word_counts_from_when_it_was_asked_and_nothing_begins_on_a_stale_one() {
    let seconds = Duration::from_secs;
    let fenced = || AgentError::Store(StoreError::Fenced { thread: id() });
    for (renewal, lost, begins) in [(0, 1, false), (2, 3, false), (1, 1000, true), (0, 1000, true)] {
        let late = Late { store: MemoryStore::new(), opened: Instant::now(), renewal: seconds(renewal), lost: seconds(lost) };
        let script = Script::new([say("done")]);
        let ended = within(agent(script.clone()).store(late).build().unwrap().thread("t").send("go")).await;
        assert_eq!((script.times(), ended.err()), (usize::from(begins), (!begins).then(fenced)), "{renewal} s, lost after {lost} s");
    }
    // A store that is always too slow is said to be, rather than asked for ever.
    let late = Late { store: MemoryStore::new(), opened: Instant::now(), renewal: seconds(2), lost: seconds(1000) };
    let script = Script::new([say("never said")]);
    let ended = within(agent(script.clone()).store(late).build().unwrap().thread("t").send("go")).await.unwrap_err();
    assert!(ended.code() == "TOOLWRIGHT_STORAGE_FAILED" && ended.to_string().contains("half the claim limit of 3000 ms"), "{ended}");
    assert_eq!(script.times(), 0);
}

/// A store whose appends are refused, because a later owner is there.
struct Taken(MemoryStore, Arc<AtomicUsize>, usize);

impl StoreLayer for Taken {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    fn append<'a>(&'a self, claim: &'a dyn Claim, expected: Seq, append: Append) -> StoreAnswer<'a, ()> {
        if self.1.fetch_add(1, Ordering::SeqCst) >= self.2 {
            return async { Err(StoreError::Fenced { thread: claim.thread().clone() }) }.boxed();
        }
        self.0.append(claim, expected, append)
    }
}

#[tokio::test]
async fn wherever_a_claim_is_lost_nothing_begins_after_it() {
    for appends in 0..=4 {
        let (store, log) = (MemoryStore::new(), Log::default());
        let script = Script::new([calls([("a", "act", "{}")]), say("done")]);
        let layer = Taken(store.clone(), Arc::default(), appends);
        let agent = agent(script.clone()).tool(logged("act", &log)).store(layer).build().unwrap();
        let ended = agent.thread("t").send("go").await;
        let begun = journal(&store, &id()).await.iter().filter(|record| matches!(record.body, RecordBody::CallExecuting { .. })).count();
        assert_eq!(log.len(), begun, "after {appends}");
        // The model is asked only where the step's start was written down.
        assert!(script.times() <= appends, "after {appends}");
        // The first append has the run's start, the last its end.
        assert_eq!(ended.is_err(), appends < 4, "after {appends}");
        if let Err(error) = ended {
            assert_eq!(error.code(), "TOOLWRIGHT_STORAGE_FAILED");
            let again = common::agent(Script::new([calls([("a", "act", "{}")]), say("done")])).tool(logged("act", &log));
            let again = again.store(store.clone()).build().unwrap();
            let reply = match journal(&store, &id()).await.len() {
                0 => again.thread("t").send("go").await,
                _ => again.thread("t").resume().await,
            };
            reply.unwrap().messages.check_balance().unwrap();
        }
    }
}
