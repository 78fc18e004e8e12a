//! An owner that hangs past its limit, and wakes up to find another in its place.

use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::Orders;
use crate::job::Log;
use crate::kill::check_whole;
use crate::stores::{self, Place};

const LIMIT: Duration = Duration::from_millis(1200);

/// How long a body or a model of the job takes.
const PACE: Duration = Duration::from_millis(100);

/// It is stopped while all that it has begun goes on: after so many lines of its log, which are the first model call, the bodies
/// of its first step, and the same of the second. Nothing can make a look at the claim and what follows it one instant, so a stop
/// between the two is no test of either; that the look is there is shown by the clock, in the runtime's own tests.
const BEGUN: [usize; 4] = [1, 4, 5, 8];

/// A signal to stop is on its way when `kill` returns, and the other process may still be in the middle of a write.
fn wait_until_it_stands(child: &Child) {
    let deadline = Instant::now() + Duration::from_secs(20);
    let runs = |task: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        // `pid (name) state …`
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('T'))
    };
    while std::fs::read_dir(format!("/proc/{}/task", child.id())).unwrap().flatten().any(runs) {
        assert!(Instant::now() < deadline, "the process does not stop");
        std::thread::sleep(Duration::from_millis(1));
    }
}

async fn hang(place: Place) {
    let place = place.with_claim_limit(LIMIT);
    let store = stores::open(&place.address()).await.unwrap();
    let logs = tempfile::tempdir().unwrap();
    let (mut followed, mut locked) = (0usize, 0u64);
    while let Some(begun) = BEGUN.get(followed) {
        let thread = format!("hangs-{followed}-{locked}");
        let (first, second) = (Log::at(logs.path().join(format!("{thread}-1"))), Log::at(logs.path().join(format!("{thread}-2"))));
        let orders = |log: &Log| Orders { role: "work", store: place.address(), thread: thread.clone(), log: log.clone(), pace: PACE };
        let id = toolwright_core::ThreadId::new(thread.as_str()).unwrap();
        let start = |log: &Log| {
            let mut child = orders(log).start();
            assert_eq!(child.says().as_deref(), Some("begins"));
            child
        };
        let mut hangs = start(&first);
        let deadline = Instant::now() + Duration::from_secs(20);
        while first.lines().len() < *begun {
            assert!(Instant::now() < deadline, "the first process does nothing");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(followed as u64 * 7 + locked * 3));
        let pid = Pid::from_child(&hangs.child);
        kill_process(pid, Signal::STOP).unwrap();
        wait_until_it_stands(&hangs.child);
        let stopped_at = first.lines();

        // Within the limit nobody takes its place.
        let mut early = start(&second);
        let said = early.says().unwrap();
        if said.contains("was locked by another process") {
            // SQLite has one writer, and this one was stopped in the middle of a write: nobody can write before it goes on or
            // dies, and everybody is told so. The thread is whole either way.
            locked += 1;
            assert!(locked < 12, "the process is always stopped in the middle of a write");
            kill_process(pid, Signal::CONT).unwrap();
            assert_eq!(hangs.says().as_deref(), Some("done"), "{thread}");
            check_whole(&store, &thread).await;
            continue;
        }
        assert!(said.starts_with("TOOLWRIGHT_SESSION_BUSY"), "{thread}: {said}");
        std::thread::sleep(LIMIT);
        let mut follows = start(&second);
        assert_eq!(follows.says().as_deref(), Some("done"), "{thread}");
        check_whole(&store, &thread).await;
        let head = store.info(&id).await.unwrap().unwrap().head;

        // It wakes up, and can neither begin a body, nor ask a model, nor append.
        kill_process(pid, Signal::CONT).unwrap();
        let said = hangs.says().unwrap();
        assert!(said.starts_with("TOOLWRIGHT_STORAGE_FAILED") && said.contains("lost to a later owner"), "{thread}: {said}");
        assert_eq!(first.lines(), stopped_at, "{thread}: it went on after another took its place");
        assert_eq!(store.info(&id).await.unwrap().unwrap().head, head, "{thread}: it appended after another took its place");
        followed += 1;
    }
    println!("{place}: an owner that hung was followed 4 times after its limit of {} ms, and did nothing more", LIMIT.as_millis());
}

#[tokio::test(flavor = "multi_thread")]
async fn over_sqlite_an_owner_that_hangs_is_followed_and_can_do_nothing_more() {
    hang(Place::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn over_postgres_an_owner_that_hangs_is_followed_and_can_do_nothing_more() {
    if let Some(place) = Place::postgres() {
        hang(place).await;
    }
}
