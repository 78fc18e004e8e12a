//! What goes wrong outside: a disk that is full, a file that can't be written, a clock that jumps.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use toolwright_core::{FinishReason, Timestamp};
use toolwright_runtime::{Clock, Store, SystemClock};
use toolwright_store::sqlite::Sqlite;

use crate::job::{self, Log};
use crate::kill::{check_whole, interrupted, results, undisturbed};
use crate::stores::{self, Place};
use crate::{Orders, Told};

/// A disk that fills at any moment of a run: the run ends and says so, and goes on where there is room again.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_fills_ends_the_run_with_a_clear_error_and_the_thread_goes_on_later() {
    let mut full = 0;
    for round in 0..12u64 {
        let folder = tempfile::tempdir().unwrap();
        let (path, log) = (folder.path().join("threads.db"), Log::at(folder.path().join("log")));
        // As SQLite does it itself when the disk is full: a file that may grow so far and no further.
        Sqlite::open(&path).await.unwrap().close().await;
        let empty = std::fs::metadata(&path).unwrap().len();
        let small = Sqlite::options().max_bytes(empty + round * 4096).open(&path).await.unwrap();
        let agent = job::agent(Arc::new(small.clone()), &log, Duration::ZERO);
        match job::finish(&agent, "fills").await {
            Ok(()) => {}
            Err(error) => {
                full += 1;
                assert_eq!(error.code(), "TOOLWRIGHT_STORAGE_FAILED", "{error}");
                assert!(error.to_string().contains("no room left"), "{error}");
            }
        }
        small.close().await;
        let roomy: Arc<dyn Store> = Arc::new(Sqlite::open(&path).await.unwrap());
        let (done, after) = (results(&roomy, "fills").await, Log::at(folder.path().join("after")));
        job::finish(&job::agent(Arc::clone(&roomy), &after, Duration::ZERO), "fills").await.unwrap();
        check_whole(&roomy, "fills").await;
        let again: Vec<String> =
            after.lines().into_iter().filter(|line| done.iter().any(|call| line.starts_with(&format!("body {call} ")))).collect();
        assert_eq!(again, Vec::<String>::new(), "what was recorded before the disk was full ran again");
    }
    assert!(full >= 3, "the disk was full {full} times only");
}

/// A file that became read-only: nothing runs, the error says why, and the thread goes on when it can be written again.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_can_be_read_only_is_told_and_nothing_runs() {
    let place = Place::sqlite();
    let store = stores::open(&place.address()).await.unwrap();
    undisturbed(&store, "whole").await;
    interrupted(&store, "whole", "waits", 3).await;
    drop(store);
    let folder = tempfile::tempdir().unwrap();
    let log = Log::at(folder.path().join("log"));
    let orders = Orders { role: "work", store: place.address(), thread: "waits".to_owned(), log: log.clone(), pace: Duration::ZERO };
    let mut command = orders.command();
    if rustix::process::geteuid().is_root() {
        // Root may write anything: the child is somebody else.
        command.uid(65534).gid(65534);
    }
    let allow = |file: u32, folder: u32| {
        let path = place.path();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(file)).unwrap();
        std::fs::set_permissions(path.parent().unwrap(), std::fs::Permissions::from_mode(folder)).unwrap();
    };
    allow(0o444, 0o555);
    match command.spawn() {
        Err(error) => println!("skipped: another user can't start this test binary: {error}"),
        Ok(child) => {
            let said = Told::of(child).says().unwrap();
            assert!(said.starts_with("TOOLWRIGHT_STORAGE_FAILED") && said.contains("threads.db"), "{said}");
            assert!(said.contains("read-only") || said.contains("written"), "{said}");
        }
    }
    allow(0o644, 0o755);
    assert_eq!(log.lines(), Vec::<String>::new(), "something ran");
    let store = stores::open(&place.address()).await.unwrap();
    job::finish(&job::agent(Arc::clone(&store), &log, Duration::ZERO), "waits").await.unwrap();
    check_whole(&store, "waits").await;
}

/// A clock that jumps back an hour now and then.
struct Jumpy {
    real: SystemClock,
    asked: AtomicI64,
}

impl Clock for Jumpy {
    fn now(&self) -> Timestamp {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        let hours = if asked % 7 > 3 { 3_600_000 } else { 0 };
        Timestamp(self.real.now().0 - hours)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_jumps_back_an_hour_changes_nothing_but_times() {
    let place = Place::sqlite();
    let store = stores::open(&place.address()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let log = Log::at(folder.path().join("log"));
    undisturbed(&store, "steady").await;
    let jumpy = || Jumpy { real: SystemClock, asked: AtomicI64::new(0) };
    let agent = job::agent_with(Arc::clone(&store), &log, Duration::ZERO, |builder| builder.clock(jumpy()));
    job::finish(&agent, "jumps").await.unwrap();
    check_whole(&store, "jumps").await;
    let comparison = agent.thread("jumps").compare(&toolwright_core::ThreadId::new("steady").unwrap()).await.unwrap();
    assert_eq!(comparison.diverged_at, None);
    // And over a crash.
    interrupted(&store, "steady", "jumps-on", 4).await;
    job::finish(&agent, "jumps-on").await.unwrap();
    let info = agent.thread("jumps-on").steps().await.unwrap();
    assert_eq!(info.finish_reason, Some(FinishReason::Stop));
    check_whole(&store, "jumps-on").await;
}
