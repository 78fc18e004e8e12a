//! An owner that hangs past its limit, and wakes up to find another in its place.

use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::Orders;
use crate::job::Log;
use crate::kill::check_whole;
use crate::stores::{self, Place};

const LIMIT: Duration = Duration::from_millis(1200);

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
    let (mut followed, mut locked, mut between) = (0, 0u64, 0);
    while followed < 4 {
        let thread = format!("hangs-{followed}-{locked}");
        let (first, second) = (Log::at(logs.path().join(format!("{thread}-1"))), Log::at(logs.path().join(format!("{thread}-2"))));
        let orders = |log: &Log| Orders {
            role: "work",
            store: place.address(),
            thread: thread.clone(),
            log: log.clone(),
            pace: Duration::from_millis(15),
        };
        let id = toolwright_core::ThreadId::new(thread.as_str()).unwrap();
        let start = |log: &Log| {
            let mut child = orders(log).start();
            assert_eq!(child.says().as_deref(), Some("begins"));
            child
        };
        let mut hangs = start(&first);
        let deadline = Instant::now() + Duration::from_secs(20);
        while first.lines().len() < 3 {
            assert!(Instant::now() < deadline, "the first process does nothing");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(followed * 7 + locked * 3));
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
        let after = first.lines();
        if after != stopped_at {
            // Nothing can make a look at the clock and what follows it one instant: once in a very long while it is stopped between
            // them. More than the one thing it was about to begin, or a second time, is a fault.
            between += 1;
            assert!(
                between == 1 && after.len() == stopped_at.len() + 1,
                "{thread}: it went on after another took its place: {stopped_at:?}, then {after:?}"
            );
        }
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
