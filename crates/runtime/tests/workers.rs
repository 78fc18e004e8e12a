//! Workers: who moves the threads of a store that nobody moves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::*;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use toolwright_core::{Decision, FinishReason, Item, Record, RecordBody, Seq, ThreadId, Timestamp};
use toolwright_runtime::{
    Agent, AgentError, Answer as StoreAnswer, Append, Claim, Clock, FixedClock, ForkPatch, MemoryStore, Store, StoreLayer, ThreadStatus,
};
use toolwright_tool::{Tool, ToolContext, ToolError};

fn thread(id: &str) -> ThreadId {
    ThreadId::new(id).unwrap()
}

struct Shared(Arc<FixedClock>);

impl Clock for Shared {
    fn now(&self) -> Timestamp {
        self.0.now()
    }
}

/// A model that makes one call for each input, and then answers.
fn once() -> Arc<Answers<impl Fn(&toolwright_runtime::ModelRequest) -> toolwright_runtime::ModelReply + Send + Sync>> {
    Answers::new(|request| {
        if request.messages.last().is_some_and(|message| message.results().next().is_some()) {
            return reply(vec![Item::text("Done.")], FinishReason::Stop);
        }
        reply(vec![Item::ToolCall(call_item(&format!("c{}", request.step), "act", "{}"))], FinishReason::ToolCalls)
    })
}

/// A tool that rests in its body and says for which thread it ran.
fn act(log: &Log, most: &Arc<(AtomicUsize, AtomicUsize)>) -> Tool {
    let (log, most) = (log.clone(), Arc::clone(most));
    Tool::new("act", "Acts.")
        .run_json(move |args, cx: ToolContext| {
            let (log, most) = (log.clone(), Arc::clone(&most));
            async move {
                let now = most.0.fetch_add(1, Ordering::SeqCst) + 1;
                most.1.fetch_max(now, Ordering::SeqCst);
                for _ in 0..20 {
                    tokio::task::yield_now().await;
                }
                most.0.fetch_sub(1, Ordering::SeqCst);
                log.add(cx.thread_id().map(ToString::to_string).unwrap_or_default());
                Ok::<_, ToolError>(args)
            }
        })
        .unwrap()
}

/// Works in the background until dropped.
struct Working(CancellationToken, tokio::task::JoinHandle<Result<(), AgentError>>);

fn works(agent: &Agent) -> Working {
    let stop = CancellationToken::new();
    let task = tokio::spawn(agent.worker().period(Duration::from_millis(50)).run(stop.clone()));
    Working(stop, task)
}

impl Working {
    async fn stop(self) {
        self.0.cancel();
        within(self.1).await.unwrap().unwrap();
    }
}

async fn until_status(agent: &Agent, id: &str, status: ThreadStatus) {
    within(async {
        while agent.thread(id).info().await.unwrap().is_none_or(|info| info.status != status) {
            tokio::time::sleep(Duration::from_millis(10)).await; // paused clock
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn two_workers_share_the_threads_and_each_run_happens_once() {
    let (store, log) = (MemoryStore::new(), Log::default());
    let most: [Arc<(AtomicUsize, AtomicUsize)>; 2] = Default::default();
    let agents = most.each_ref().map(|most| agent(once()).tool(act(&log, most)).store(store.clone()).build().unwrap());
    let names: Vec<String> = (0..50).map(|n| format!("t{n:02}")).collect();
    for name in &names {
        agents[0].thread(name.as_str()).enqueue("go").await.unwrap();
    }
    let told: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
    let work = |agent: &Agent| {
        let told = Arc::clone(&told);
        agent.worker().concurrency(4).until_idle().on_reply(move |thread, reply| {
            assert_eq!(reply.as_ref().unwrap().text, "Done.");
            *told.lock().unwrap().entry(thread.to_string()).or_default() += 1;
        })
    };
    let (one, two) = tokio::join!(
        tokio::spawn(work(&agents[0]).run(CancellationToken::new())),
        tokio::spawn(work(&agents[1]).run(CancellationToken::new()))
    );
    one.unwrap().unwrap();
    two.unwrap().unwrap();
    let mut ran = log.all();
    ran.sort();
    assert_eq!(ran, names);
    assert!(told.lock().unwrap().values().all(|times| *times == 1) && told.lock().unwrap().len() == 50);
    for name in &names {
        let records = agents[0].thread(name.as_str()).records().await.unwrap();
        assert_eq!(records.iter().filter(|record| matches!(record.body, RecordBody::RunDone { .. })).count(), 1);
    }
    // Both worked, and neither did more at once than it was told.
    for most in &most {
        assert!((1..=4).contains(&most.1.load(Ordering::SeqCst)), "{}", most.1.load(Ordering::SeqCst));
    }
    assert!(store.unfinished(None, 10).await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_worker_goes_on_when_somebody_has_decided() {
    let (store, log) = (MemoryStore::new(), Log::default());
    let ask = logged_with(Tool::new("ask", "Asks first.").needs_approval(), &log);
    let script = Script::new([calls([("c", "ask", "{}")]), calls([("d", "ask", "{}")]), say("done")]);
    let agent = agent(script).tool(ask).store(store.clone()).build().unwrap();
    // Another process decides and sends; it runs nothing.
    let desk = common::agent(Script::new([])).store(store.clone()).build().unwrap();
    let working = works(&agent);
    desk.thread("t").enqueue("go").await.unwrap();
    for _ in 0..2 {
        until_status(&desk, "t", ThreadStatus::AwaitingApproval).await;
        let pending = desk.approvals().pending().await.unwrap();
        desk.approvals().decide(&pending[0].id, Decision::approve()).await.unwrap();
        within(async {
            while desk.approvals().pending().await.unwrap().iter().any(|now| now.id == pending[0].id) {
                tokio::time::sleep(Duration::from_millis(10)).await; // paused clock
            }
        })
        .await;
    }
    until_status(&desk, "t", ThreadStatus::Finished).await;
    assert_eq!(
        (log.all(), desk.thread("t").history().await.unwrap().last().unwrap().text_of().as_str()),
        (vec!["body c".to_owned(), "body d".to_owned()], "done")
    );
    working.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_takes_on_what_was_left_and_what_a_fork_has_to_do() {
    let (whole, log) = (MemoryStore::new(), Log::default());
    let build = |store: &MemoryStore| agent(once()).tool(logged("act", &log)).store(store.clone()).build().unwrap();
    build(&whole).thread("t").send("go").await.unwrap();
    let records = journal(&whole, &thread("t")).await;
    let cut = records.iter().position(|record| matches!(record.body, RecordBody::CallDone { .. })).unwrap();
    let store = store_of(&thread("t"), &records[..=cut]).await;
    let agent = build(&store);
    log.take();
    agent.worker().until_idle().run(CancellationToken::new()).await.unwrap();
    assert_eq!(agent.thread("t").info().await.unwrap().unwrap().status, ThreadStatus::Finished);
    assert!(log.all().is_empty());
    let fork = agent.thread("t").fork(2, ForkPatch::new().append_input("and?")).await.unwrap();
    agent.worker().until_idle().run(CancellationToken::new()).await.unwrap();
    assert_eq!((fork.history().await.unwrap().len(), log.len()), (8, 1));
    assert!(store.unfinished(None, 10).await.unwrap().is_empty());
}

/// Counts claims by thread.
#[derive(Clone, Default)]
struct Claims(MemoryStore, Arc<Mutex<BTreeMap<String, Vec<Instant>>>>);

impl StoreLayer for Claims {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    fn claim<'a>(&'a self, thread: &'a ThreadId) -> StoreAnswer<'a, Box<dyn Claim>> {
        self.1.lock().unwrap().entry(thread.to_string()).or_default().push(Instant::now());
        self.0.claim(thread)
    }
}

#[tokio::test(start_paused = true)]
async fn a_thread_that_can_not_be_moved_is_tried_ever_less_often_and_stops_no_other() {
    let (layer, log) = (Claims::default(), Log::default());
    let store = layer.0.clone();
    // A record of a kind that this version does not know.
    let good = MemoryStore::new();
    agent(once()).tool(logged("act", &log)).store(good.clone()).build().unwrap().thread("a-bad").send("go").await.unwrap();
    let mut records = journal(&good, &thread("a-bad")).await;
    records.truncate(4);
    let unknown = RecordBody::Unknown(serde_json::json!({ "kind": "from.tomorrow" }));
    records.push(Arc::new(Record { seq: Seq(5), at: Timestamp(1), run: None, body: unknown }));
    let claim = store.claim(&thread("a-bad")).await.unwrap();
    store.append(&*claim, Seq(0), Append::records(records)).await.unwrap();
    drop(claim);
    let ask = || Tool::new("ask", "Asks first.").needs_approval().run_json(|args, _| async move { Ok::<_, ToolError>(args) }).unwrap();
    let agent = agent(once()).tool(logged("act", &log)).tool(ask()).store(layer.clone()).build().unwrap();
    log.take();
    // One that somebody else moves, and does not end.
    agent.thread("b-busy").enqueue("go").await.unwrap();
    let busy = store.claim(&thread("b-busy")).await.unwrap();
    // One that waits for a decision while input waits behind it.
    let paused = common::agent(Script::new([calls([("c", "ask", "{}")])])).tool(ask()).store(store.clone()).build().unwrap();
    paused.thread("c-paused").send("go").await.unwrap();
    paused.thread("c-paused").enqueue("and?").await.unwrap();
    let working = works(&agent);
    for n in 0..20 {
        agent.thread(format!("d{n}")).enqueue("go").await.unwrap();
        until_status(&agent, &format!("d{n}"), ThreadStatus::Finished).await;
    }
    assert_eq!(log.len(), 20);
    tokio::time::sleep(Duration::from_secs(600)).await; // paused clock
    let claims = layer.1.lock().unwrap().clone();
    let pauses: Vec<u64> = claims["a-bad"].windows(2).map(|two| (two[1] - two[0]).as_secs()).collect();
    assert!(pauses.len() >= 8 && pauses.is_sorted(), "{pauses:?}");
    assert!((1..=2).contains(&pauses[0]) && (256..=301).contains(&pauses[pauses.len() - 1]), "{pauses:?}");
    // About once a second; it may be free any moment.
    let busy_claims = claims["b-busy"].len();
    assert!((300..=900).contains(&busy_claims), "{busy_claims}");
    // Taken down once, it is not looked at again.
    assert!(claims["c-paused"].len() <= 2, "{}", claims["c-paused"].len());
    drop(busy);
    until_status(&agent, "b-busy", ThreadStatus::Finished).await;
    working.stop().await;
}

#[tokio::test(start_paused = true)]
async fn input_for_later_comes_when_it_is_due() {
    let clock = Arc::new(FixedClock::at(Timestamp(1_000)));
    let log = Log::default();
    let store = MemoryStore::new();
    let agent = agent(once()).tool(logged("act", &log)).store(store.clone()).clock(Shared(Arc::clone(&clock))).build().unwrap();
    let handle = agent.thread("t");
    let first = handle.enqueue_at(Timestamp(5_000), "later").await.unwrap();
    let second = handle.enqueue_at(Timestamp(6_000), "never").await.unwrap();
    let work = async || agent.worker().until_idle().run(CancellationToken::new()).await.unwrap();
    work().await;
    assert!(handle.info().await.unwrap().is_none());
    clock.advance(3_999);
    work().await;
    assert!(handle.info().await.unwrap().is_none());
    clock.advance(1);
    work().await;
    assert_eq!((log.len(), handle.history().await.unwrap().iter().next().unwrap().text_of().as_str()), (1, "later"));
    // Taken back once, and not after it came.
    assert!(handle.unschedule(&second).await.unwrap() && !handle.unschedule(&second).await.unwrap());
    assert!(!handle.unschedule(&first).await.unwrap());
    clock.advance(10_000);
    work().await;
    assert_eq!(log.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn runs_that_go_on_outlive_their_worker() {
    let (store, latch) = (MemoryStore::new(), Latch::default());
    let script = Script::new([calls([("c", "wait", "{}")]), say("done")]);
    let agent = agent(script).tool(holding("wait", &latch)).store(store.clone()).build().unwrap();
    agent.thread("t").enqueue("go").await.unwrap();
    let working = works(&agent);
    latch.reached().await;
    working.stop().await;
    latch.release();
    until_status(&agent, "t", ThreadStatus::Finished).await;
    assert_eq!(agent.thread("t").history().await.unwrap().last().unwrap().text_of(), "done");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_fails_is_told_and_is_not_run_again() {
    let store = MemoryStore::new();
    let script = Script::new([fails(toolwright_runtime::ModelError::new("test", "overloaded")), say("never said")]);
    let agent = agent(script.clone()).store(store.clone()).build().unwrap();
    agent.thread("t").enqueue("go").await.unwrap();
    let told = Log::default();
    let tells = told.clone();
    let worker = agent.worker().until_idle().on_reply(move |thread, reply| {
        tells.add(format!("{thread} {}", reply.as_ref().unwrap_err()));
    });
    worker.run(CancellationToken::new()).await.unwrap();
    assert_eq!((told.len(), script.times()), (1, 1));
    assert!(told.all()[0].starts_with("t ") && told.all()[0].contains("overloaded"), "{:?}", told.all());
}
