//! The SQLite store: what every store has to show, in a file and in memory.
#![cfg(all(feature = "sqlite", feature = "suite"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use toolwright_runtime::Store;
use toolwright_store::sqlite::{Sqlite, SqliteOptions};
use toolwright_store::suite::{Fixture, Opened};

async fn opened(options: SqliteOptions, path: &Path) -> Result<Arc<dyn Store>, String> {
    let store = options.open(path).await.map_err(|error| error.to_string())?;
    Ok(Arc::new(store) as Arc<dyn Store>)
}

/// A file in a folder of its own.
struct InFile(tempfile::TempDir);

impl InFile {
    fn path(&self) -> std::path::PathBuf {
        self.0.path().join("threads.db")
    }
}

impl Fixture for InFile {
    fn open(&self) -> Opened<'_> {
        Box::pin(async { opened(Sqlite::options(), &self.path()).await })
    }

    fn open_with_limit(&self, limit: Duration) -> Option<Opened<'_>> {
        Some(Box::pin(async move { opened(Sqlite::options().claim_limit(limit), &self.path()).await }))
    }
}

struct InMemory;

impl Fixture for InMemory {
    fn open(&self) -> Opened<'_> {
        Box::pin(async { opened(Sqlite::options(), Path::new(":memory:")).await })
    }

    fn is_shared(&self) -> bool {
        false
    }
}

mod in_a_file {
    use super::InFile;

    toolwright_store::store_suite!(InFile(tempfile::tempdir().unwrap()));
}

mod in_memory {
    use super::InMemory;

    toolwright_store::store_suite!(InMemory);
}

/// What only this store has to show.
mod the_file {
    use std::fs;
    use std::ops::RangeInclusive;
    use std::path::PathBuf;
    use std::time::Instant;

    use bytes::Bytes;
    use rusqlite::Connection;
    use serde_json::json;
    use toolwright_core::{AbortReason, Record, Seq, ThreadId, sha256_hex};
    use toolwright_runtime::{Append, Claim, DataStore, InboxItem, Posted, Shelf, StoreError, ThreadQuery};

    use super::*;

    /// More than anything here takes on a slow machine.
    const LONG: Duration = Duration::from_secs(60);

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("threads.db");
        (folder, path)
    }

    fn thread(id: &str) -> ThreadId {
        ThreadId::new(id).unwrap()
    }

    /// Records of a kind that nobody folds, each with its position.
    fn records(positions: RangeInclusive<u64>) -> Append {
        let record = |n: u64| serde_json::from_value(json!({ "seq": n, "at": 1000 + n, "kind": "test.thing", "zebra": n, "apple": "x" }));
        Append::records(positions.map(|n| Arc::new(record(n).unwrap())).collect())
    }

    fn opening(thread: &ThreadId) -> Append {
        let opened = json!({ "seq": 1, "at": 1000, "kind": "thread.opened", "thread": thread, "version": 1, "agent": "agent" });
        Append::records(vec![Arc::new(serde_json::from_value(opened).unwrap())])
    }

    fn cancel(n: u64) -> InboxItem {
        serde_json::from_value(json!({ "kind": "cancel", "reason": AbortReason::abort("enough"), "run": format!("run-{n}") })).unwrap()
    }

    /// A connection beside the store.
    fn beside(path: &Path) -> Connection {
        let connection = Connection::open(path).unwrap();
        connection.busy_timeout(LONG).unwrap();
        connection
    }

    /// A thread with so many records of about a kilobyte.
    async fn filled(store: &Sqlite, id: &str, count: u64) -> Box<dyn Claim> {
        let id = thread(id);
        let claim = store.claim(&id).await.unwrap();
        let record = |n: u64| serde_json::from_value(json!({ "seq": n, "at": n, "kind": "test.thing", "text": "x".repeat(1000) }));
        let records: Vec<Arc<Record>> = (1..=count).map(|n| Arc::new(record(n).unwrap())).collect();
        store.append(&*claim, Seq(0), Append::records(records)).await.unwrap();
        claim
    }

    async fn refusal(path: &Path) -> StoreError {
        Sqlite::open(path).await.unwrap_err()
    }

    /// Everything in a folder, by name: how long each file is, and its hash.
    fn contents(folder: &Path) -> Vec<(String, usize, String)> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
        let mut contents: Vec<_> = entries
            .map(|entry| {
                let bytes = fs::read(entry.path()).unwrap();
                (entry.file_name().into_string().unwrap(), bytes.len(), sha256_hex(&bytes))
            })
            .collect();
        contents.sort();
        contents
    }

    // rule: sdk-runtime STO-4
    #[tokio::test]
    async fn a_newer_schema_is_refused_with_both_versions_and_left_alone() {
        let (folder, path) = folder();
        Sqlite::open(&path).await.unwrap().close().await;
        beside(&path).pragma_update(None, "user_version", 7).unwrap();
        let before = contents(folder.path());
        let error = refusal(&path).await;
        let said = error.to_string();
        assert!(said.contains("schema version 7") && said.contains("up to 1") && said.contains("threads.db"), "{said}");
        assert_eq!(error.code(), "TOOLWRIGHT_CONFIG_INVALID");
        assert_eq!(contents(folder.path()), before);
    }

    // rule: sdk-runtime STO-4
    #[tokio::test]
    async fn the_file_has_a_log_and_its_schemas_version() {
        let (_folder, path) = folder();
        let store = Sqlite::open(&path).await.unwrap();
        let there = beside(&path);
        assert_eq!(there.pragma_query_value(None, "journal_mode", |row| row.get::<_, String>(0)).unwrap(), "wal");
        assert_eq!(there.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0)).unwrap(), 1);
        // A crash between making the file and writing its schema leaves an empty database, which is ours to fill.
        drop((store, there));
        let (_folder, path) = super::the_file::folder();
        beside(&path).pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).unwrap();
        let store = Sqlite::open(&path).await.unwrap();
        filled(&store, "t", 3).await;
    }

    #[tokio::test]
    async fn a_database_of_another_application_is_refused_and_left_alone() {
        type Making = fn(&Connection);
        let makings: [Making; 4] = [
            |other| other.execute_batch("CREATE TABLE notes (text); INSERT INTO notes VALUES ('mine')").unwrap(),
            |other| other.execute_batch("PRAGMA application_id = 77; CREATE TABLE threads (id)").unwrap(),
            |other| other.execute_batch("PRAGMA user_version = 1").unwrap(),
            |other| {
                other.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).unwrap();
                other.execute_batch("CREATE TABLE notes (text)").unwrap();
            },
        ];
        for make in makings {
            let (folder, path) = folder();
            let other = beside(&path);
            make(&other);
            // Once as its owner left it, and once while its owner has it open: the log is not folded in either.
            for open in [Some(other), None] {
                let before = contents(folder.path());
                let said = refusal(&path).await.to_string();
                assert!(said.contains("belongs to another application") && said.contains("threads.db"), "{said}");
                let after = contents(folder.path());
                // Who reads beside others says so in the part of memory that all share.
                let files = |contents: Vec<(String, usize, String)>| contents.into_iter().filter(|(name, ..)| !name.ends_with("-shm"));
                assert!(files(after).eq(files(before)), "it was touched");
                drop(open);
            }
        }
    }

    // rule: sdk-runtime STO-4
    #[tokio::test]
    async fn a_file_that_is_no_database_is_named_and_left_alone() {
        for content in ["x", "hello, this is a note\n", &"# A long page\n".repeat(1000)] {
            let (folder, path) = folder();
            fs::write(&path, content).unwrap();
            let before = contents(folder.path());
            let error = refusal(&path).await;
            let said = error.to_string();
            assert!(said.contains(&path.display().to_string()) && said.contains("is no SQLite database"), "{said}");
            assert_eq!(error.code(), "TOOLWRIGHT_CONFIG_INVALID");
            assert_eq!(contents(folder.path()), before);
        }
        let (folder, path) = folder();
        let said = refusal(folder.path()).await.to_string();
        assert!(said.contains("is a folder"), "{said}");
        let said = refusal(&path.join("none").join("threads.db")).await.to_string();
        assert!(said.contains("can't be opened; see that its folder exists"), "{said}");
    }

    #[tokio::test]
    async fn a_damaged_file_is_told_in_one_sentence() {
        type Damage = fn(Vec<u8>) -> Vec<u8>;
        let damages: [Damage; 4] = [
            // Cut off in the middle of a page, and at the end of one.
            |bytes| bytes[..bytes.len() / 2 - 100].to_vec(),
            |bytes| bytes[..bytes.len() / 8192 * 4096].to_vec(),
            // All pages but the first, and all of the first but its beginning.
            |bytes| bytes.iter().enumerate().map(|(at, byte)| if at < 4096 { *byte } else { 0xa5 }).collect(),
            |bytes| bytes.iter().enumerate().map(|(at, byte)| if (100..4096).contains(&at) { 0 } else { *byte }).collect(),
        ];
        for (number, damage) in damages.into_iter().enumerate() {
            let (_folder, path) = folder();
            let store = Sqlite::open(&path).await.unwrap();
            drop(filled(&store, "t", 500).await);
            store.close().await;
            fs::write(&path, damage(fs::read(&path).unwrap())).unwrap();
            let read = async {
                let store = Sqlite::open(&path).await?;
                store.read(&thread("t"), Seq(0), 1000).await
            };
            let said = read.await.unwrap_err().to_string();
            assert!(said.contains("damaged") || said.contains("restore"), "{number}: {said}");
            assert!(said.contains("threads.db") && !said.contains('\n'), "{number}: {said}");
        }
    }

    #[tokio::test]
    async fn a_journal_that_lost_records_is_not_read_in_part() {
        let (_folder, path) = folder();
        let store = Sqlite::open(&path).await.unwrap();
        filled(&store, "t", 10).await;
        beside(&path).execute("DELETE FROM records WHERE seq = 4", []).unwrap();
        let said = store.read(&thread("t"), Seq(0), 100).await.unwrap_err().to_string();
        assert!(said.contains("the journal of the thread t") && said.contains("10 records were written and 9 are left"), "{said}");
        assert_eq!(store.read(&thread("t"), Seq(4), 100).await.unwrap().len(), 6);
        beside(&path).execute("UPDATE records SET body = '{\"seq\":7' WHERE seq = 7", []).unwrap();
        let said = store.read(&thread("t"), Seq(6), 100).await.unwrap_err().to_string();
        assert!(said.contains("the record 7 of the thread t"), "{said}");
    }

    /// Takes the right to write a file from everyone, also from root where the file system can.
    #[expect(clippy::disallowed_methods, reason = "an attribute that only a program sets without unsafe code")]
    fn chattr(flag: &str, path: &Path) {
        // Whether it could is seen by trying to write.
        let _ = std::process::Command::new("chattr").arg(flag).arg(path).output();
    }

    #[tokio::test]
    async fn a_file_that_is_read_only_is_told_in_one_sentence() {
        let (_folder, path) = folder();
        Sqlite::open(&path).await.unwrap().close().await;
        let mut permissions = fs::metadata(&path).unwrap().permissions();
        permissions.set_readonly(true);
        fs::set_permissions(&path, permissions).unwrap();
        chattr("+i", &path);
        if fs::OpenOptions::new().write(true).open(&path).is_ok() {
            println!("skipped: this user may write every file");
            return;
        }
        let error = refusal(&path).await;
        chattr("-i", &path);
        let said = error.to_string();
        assert!(said.contains("can't be written, because it or its folder is read-only") && said.contains("threads.db"), "{said}");
    }

    // rule: sdk-runtime STO-4
    #[tokio::test]
    async fn use_after_close_is_an_error_by_name() {
        let (_folder, path) = folder();
        for path in [path, PathBuf::from(":memory:")] {
            let store = Sqlite::open(&path).await.unwrap();
            let clone = store.clone();
            let claim = store.claim(&thread("t")).await.unwrap();
            let waits = tokio::spawn({
                let store = store.clone();
                async move { store.appended(&thread("t"), Seq(0)).await }
            });
            store.close().await;
            store.close().await;
            // Whoever waits is let go.
            tokio::time::timeout(LONG, waits).await.unwrap().unwrap();
            tokio::time::timeout(LONG, clone.posted(&thread("t"), 0)).await.unwrap();
            let errors = [
                clone.claim(&thread("t")).await.err(),
                clone.renew(&*claim).await.err(),
                clone.append(&*claim, Seq(0), records(1..=1)).await.err(),
                clone.read(&thread("t"), Seq(0), 1).await.err(),
                clone.post(&thread("t"), "k", cancel(1)).await.err(),
                clone.threads(&ThreadQuery::default()).await.err(),
                clone.value(&thread("t"), Shelf::Values, "k").await.err(),
                clone.keep_blob(&thread("t"), Bytes::from_static(b"x"), None).await.err(),
            ];
            for error in errors {
                let error = error.unwrap();
                assert!(error.to_string().contains("is closed; open it again"), "{error}");
                assert_eq!(error.code(), "TOOLWRIGHT_STORAGE_FAILED");
            }
        }
    }

    #[tokio::test]
    async fn the_end_of_the_last_handle_lets_the_file_go() {
        let (folder, path) = folder();
        let store = Sqlite::open(&path).await.unwrap();
        drop(filled(&store, "t", 3).await);
        drop(store.clone());
        assert_eq!(store.read(&thread("t"), Seq(0), 9).await.unwrap().len(), 3);
        tokio::time::timeout(Duration::from_millis(50), store.appended(&thread("t"), Seq(3))).await.unwrap_err();
        drop(store);
        // SQLite takes its log away with the last connection, whichever thread had it.
        let log = folder.path().join("threads.db-wal");
        let since = Instant::now();
        let mut ticks = tokio::time::interval(Duration::from_millis(5));
        while log.exists() {
            assert!(since.elapsed() < LONG, "the file is still open");
            ticks.tick().await;
        }
        assert_eq!(beside(&path).query_row("SELECT count(*) FROM records", [], |row| row.get::<_, i64>(0)).unwrap(), 3);
    }

    // rule: sdk-runtime STO-4
    #[tokio::test]
    async fn another_process_is_waited_for_and_then_told_of() {
        let (_folder, path) = folder();
        let store = Sqlite::open(&path).await.unwrap();
        let claim = store.claim(&thread("t")).await.unwrap();
        let other = beside(&path);
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let since = Instant::now();
        let said = store.append(&*claim, Seq(0), records(1..=1)).await.unwrap_err().to_string();
        assert!(said.contains("was locked by another process for more than 5 seconds"), "{said}");
        assert!(since.elapsed() >= Duration::from_secs(5));
        // One that is done within that time is only waited for; and readers wait for nobody.
        let append = tokio::spawn({
            let store = store.clone();
            async move { store.append(&*claim, Seq(0), records(1..=1)).await }
        });
        assert_eq!(store.read(&thread("t"), Seq(0), 9).await.unwrap(), []);
        other.execute_batch("COMMIT").unwrap();
        append.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_full_disk_is_told_of_and_the_thread_goes_on_after() {
        let (_folder, path) = folder();
        let store = Sqlite::options().max_bytes(300_000).open(&path).await.unwrap();
        let claim = filled(&store, "t", 100).await;
        let large = Append::records(vec![Arc::new(
            serde_json::from_value(json!({ "seq": 101, "at": 1, "kind": "test.thing", "text": "x".repeat(400_000) })).unwrap(),
        )]);
        let said = store.append(&*claim, Seq(100), large.clone()).await.unwrap_err().to_string();
        assert!(said.contains("there is no room left for the database") && said.contains("threads.db"), "{said}");
        // Nothing of it was written, those beside it were, and what fits still does.
        let (small, again) =
            tokio::join!(store.append(&*claim, Seq(100), records(101..=102)), store.append(&*claim, Seq(102), large.clone()));
        small.unwrap();
        again.unwrap_err();
        assert_eq!(store.read(&thread("t"), Seq(100), 9).await.unwrap(), records(101..=102).records);
        drop(claim);
        store.close().await;
        let store = Sqlite::open(&path).await.unwrap();
        let claim = store.claim(&thread("t")).await.unwrap();
        store.append(&*claim, Seq(102), large).await.unwrap();
    }

    // rule: sdk-runtime STO-5
    #[tokio::test]
    async fn payloads_are_kept_as_they_were_given() {
        let (_folder, path) = folder();
        let store = Sqlite::open(&path).await.unwrap();
        let claim = store.claim(&thread("t")).await.unwrap();
        let text = r#"{"seq":1,"at":5,"kind":"test.thing","zebra":1.50,"apple":{"b":18446744073709551615,"a":"\u0000é"},"new":null}"#;
        let record: Record = serde_json::from_str(text).unwrap();
        let text = serde_json::to_string(&record).unwrap();
        store.append(&*claim, Seq(0), Append::records(vec![Arc::new(record)])).await.unwrap();
        store.set_value(&thread("t"), Shelf::Values, "k", Some(r#"{"z":1,  "a":2}"#.into()), None).await.unwrap();
        let there = beside(&path);
        assert_eq!(there.query_row("SELECT body FROM records", [], |row| row.get::<_, String>(0)).unwrap(), text);
        assert_eq!(there.query_row("SELECT value FROM thread_values", [], |row| row.get::<_, String>(0)).unwrap(), r#"{"z":1,  "a":2}"#);
        drop((claim, there));
        store.close().await;
        let store = Sqlite::open(&path).await.unwrap();
        let read = store.read(&thread("t"), Seq(0), 9).await.unwrap();
        assert_eq!(serde_json::to_string(&*read[0]).unwrap(), text);
    }

    // rule: sdk-runtime STO-5
    #[tokio::test(flavor = "multi_thread")]
    async fn of_all_who_decide_at_once_one_is_first_and_the_others_are_told_who() {
        let (_folder, path) = folder();
        let stores = [Sqlite::open(&path).await.unwrap(), Sqlite::open(&path).await.unwrap()];
        for round in 0..50 {
            let key = format!("approval-{round}");
            let posts = (0..8).map(|n| {
                let (store, key) = (stores[n as usize % 2].clone(), key.clone());
                tokio::spawn(async move { (n, store.post(&thread("t"), &key, cancel(n)).await.unwrap()) })
            });
            let mut firsts = Vec::new();
            let mut told = Vec::new();
            for post in posts.collect::<Vec<_>>() {
                match post.await.unwrap() {
                    (n, Posted::First) => firsts.push(n),
                    (_, Posted::Late(first)) => told.push(*first),
                }
            }
            assert_eq!(firsts.len(), 1);
            assert_eq!(told, vec![cancel(firsts[0]); 7]);
        }
        let inbox = stores[0].inbox(&thread("t"), 0).await.unwrap();
        assert_eq!(inbox.iter().map(|(position, _)| *position).collect::<Vec<_>>(), (1..=50).collect::<Vec<_>>());
    }

    /// How many transactions a log holds that was not written over yet.
    fn commits(path: &Path) -> usize {
        let log = fs::read(path.with_extension("db-wal")).unwrap();
        log[32..].chunks(24 + 4096).filter(|frame| frame[4..8] != [0; 4]).count()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn those_who_wait_share_a_commit_and_one_that_fails_undoes_only_itself() {
        let (_folder, path) = folder();
        let store = Sqlite::open(&path).await.unwrap();
        let mut claims = Vec::new();
        for n in 0..60 {
            claims.push(store.claim(&thread(&format!("t{n}"))).await.unwrap());
        }
        let other = beside(&path);
        other.pragma_update_and_check(None, "wal_checkpoint", "TRUNCATE", |_| Ok(())).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let appends: Vec<_> = (0u64..)
            .zip(claims)
            .map(|(n, claim)| {
                let store = store.clone();
                // Every tenth thinks that the journal ends elsewhere.
                let expected = if n % 10 == 9 { 5 } else { 0 };
                tokio::spawn(async move {
                    let append = store.append(&*claim, Seq(expected), records(expected + 1..=expected + 3)).await;
                    (n, claim, append)
                })
            })
            .collect();
        // A read that a reader answers after all of them were sent; then the lock is given free.
        store.info(&thread("t0")).await.unwrap();
        other.execute_batch("COMMIT").unwrap();
        for append in appends {
            let (n, claim, append) = append.await.unwrap();
            let read = store.read(claim.thread(), Seq(0), 9).await.unwrap();
            if n % 10 == 9 {
                let (thread, expected, actual) = (claim.thread().clone(), Seq(5), Seq(0));
                assert_eq!(append, Err(StoreError::Conflict { thread, expected, actual }));
                assert_eq!(read, []);
            } else {
                append.unwrap();
                assert_eq!(read, records(1..=3).records);
            }
        }
        let commits = commits(&path);
        assert!((1..=30).contains(&commits), "{commits} commits for 60 appends that came at once");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn one_of_two_handles_claims_a_thread_and_the_other_is_told() {
        let (folder, path) = folder();
        let stores = [Sqlite::open(&path).await.unwrap(), Sqlite::open(&path).await.unwrap()];
        let mut last = 0;
        for _ in 0..200 {
            let (a, b) = tokio::join!(
                tokio::spawn({
                    let store = stores[0].clone();
                    async move { store.claim(&thread("t")).await }
                }),
                tokio::spawn({
                    let store = stores[1].clone();
                    async move { store.claim(&thread("t")).await }
                })
            );
            let (claim, busy) = match (a.unwrap(), b.unwrap()) {
                (Ok(claim), Err(error)) | (Err(error), Ok(claim)) => (claim, error),
                (Ok(_), Ok(_)) => panic!("both have it"),
                (Err(a), Err(b)) => panic!("neither has it: {a}; {b}"),
            };
            assert_eq!(busy, StoreError::Busy { thread: thread("t") });
            assert!(claim.fence() > last);
            last = claim.fence();
        }
        // What lay in the folder of locks went with its claims; what a dead process left there is in nobody's way.
        let locks = folder.path().join("threads.db.claims");
        assert_eq!(fs::read_dir(&locks).unwrap().count(), 0);
        fs::write(locks.join("1-0.lock"), "").unwrap();
        stores[1].claim(&thread("t")).await.unwrap();
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn another_path_to_the_file_has_the_same_locks() {
        let (folder, path) = folder();
        let store = Sqlite::open(&path).await.unwrap();
        let _claim = store.claim(&thread("t")).await.unwrap();
        let other = folder.path().join("elsewhere.db");
        std::os::unix::fs::symlink(&path, &other).unwrap();
        let other = Sqlite::open(&other).await.unwrap();
        assert_eq!(other.claim(&thread("t")).await.err(), Some(StoreError::Busy { thread: thread("t") }));
    }

    /// A short limit, still long beside what a claim takes.
    const LIMIT: Duration = Duration::from_millis(800);

    async fn pair(path: &Path) -> [Sqlite; 2] {
        let open = || Sqlite::options().claim_limit(LIMIT).open(path);
        [open().await.unwrap(), open().await.unwrap()]
    }

    fn now() -> i64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        since.as_millis() as i64
    }

    fn set_beat(path: &Path, beat: i64) {
        beside(path).execute("UPDATE threads SET beat = ?1", [beat]).unwrap();
    }

    #[tokio::test]
    async fn an_owner_that_was_silent_for_too_long_is_followed_and_fenced() {
        // By the clock it was silent for an hour; or its sign of life lies an hour ahead, because the clock jumped back.
        for ahead in [-3_600_000, 3_600_000] {
            let (_folder, path) = folder();
            let [first, second] = pair(&path).await;
            let hangs = first.claim(&thread("t")).await.unwrap();
            first.append(&*hangs, Seq(0), records(1..=2)).await.unwrap();
            let since = Instant::now();
            assert_eq!(second.claim(&thread("t")).await.err(), Some(StoreError::Busy { thread: thread("t") }));
            assert!(since.elapsed() < LIMIT / 2, "an owner that gave a sign just now is not watched");
            set_beat(&path, now() + ahead);
            let follows = second.claim(&thread("t")).await.unwrap();
            assert!(follows.fence() > hangs.fence());
            let lost = StoreError::Fenced { thread: thread("t") };
            assert_eq!(first.append(&*hangs, Seq(2), records(3..=3)).await, Err(lost.clone()));
            assert_eq!(first.renew(&*hangs).await, Err(lost.clone()));
            assert_eq!(first.set_value(&thread("t"), Shelf::Values, "k", None, Some(hangs.fence())).await, Err(lost));
            second.append(&*follows, Seq(2), records(3..=3)).await.unwrap();
            // What the one before still holds, and lets go at last, is none of the new one's.
            assert!(first.claim(&thread("t")).await.is_err());
            drop(hangs);
            assert!(first.claim(&thread("t")).await.is_err());
            drop(follows);
            first.claim(&thread("t")).await.unwrap();
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_owner_that_lives_keeps_its_thread_whatever_the_clock_says() {
        for ahead in [-3_600_000, 3_600_000] {
            let (_folder, path) = folder();
            let [first, second] = pair(&path).await;
            let claim = first.claim(&thread("t")).await.unwrap();
            // The clock jumped: what was written last is far off by now. The next sign of life comes in time.
            let owner = tokio::spawn(async move {
                let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + LIMIT / 4, LIMIT / 4);
                for _ in 0..8 {
                    ticks.tick().await;
                    first.renew(&*claim).await.unwrap();
                }
                claim
            });
            for _ in 0..4 {
                set_beat(&path, now() + ahead);
                assert_eq!(second.claim(&thread("t")).await.err(), Some(StoreError::Busy { thread: thread("t") }));
            }
            drop(owner.await.unwrap());
            second.claim(&thread("t")).await.unwrap();
        }
    }

    #[tokio::test]
    async fn of_two_that_watch_a_silent_owner_one_follows() {
        let (_folder, path) = folder();
        let [first, second] = pair(&path).await;
        let third = Sqlite::options().claim_limit(LIMIT).open(&path).await.unwrap();
        let _hangs = first.claim(&thread("t")).await.unwrap();
        set_beat(&path, 0);
        let id = thread("t");
        let (a, b) = tokio::join!(second.claim(&id), third.claim(&id));
        assert!(a.is_ok() != b.is_ok(), "one follows, and the other is told");
        let busy = a.err().or(b.err());
        assert_eq!(busy, Some(StoreError::Busy { thread: thread("t") }));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn no_news_of_another_process_are_missed() {
        let (_folder, path) = folder();
        let stores = [Sqlite::open(&path).await.unwrap(), Sqlite::open(&path).await.unwrap()];
        let reader = tokio::spawn({
            let store = stores[1].clone();
            async move {
                let (id, mut head, mut seen) = (thread("t"), 0, 0);
                while head < 300 || seen < 300 {
                    tokio::select! {
                        () = store.appended(&id, Seq(head)), if head < 300 => {
                            head += store.read(&thread("t"), Seq(head), 1000).await.unwrap().len() as u64;
                        }
                        () = store.posted(&id, seen), if seen < 300 => {
                            seen = store.inbox(&thread("t"), seen).await.unwrap().last().map_or(seen, |(position, _)| *position);
                        }
                    }
                }
            }
        });
        let claim = stores[0].claim(&thread("t")).await.unwrap();
        for n in 1..=300 {
            stores[0].append(&*claim, Seq(n - 1), records(n..=n)).await.unwrap();
            stores[0].post(&thread("t"), &n.to_string(), cancel(n)).await.unwrap();
        }
        tokio::time::timeout(LONG, reader).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn content_is_stored_once_and_goes_with_the_last_thread_that_keeps_it() {
        let (_folder, path) = folder();
        let store = Sqlite::open(&path).await.unwrap();
        let there = beside(&path);
        let stored = || there.query_row("SELECT count(*), total(length(bytes)) FROM blobs", [], |row| Ok((row.get(0)?, row.get(1)?)));
        let large = Bytes::from(vec![7; 1_000_000]);
        for id in ["a", "b"] {
            let id = store.keep_blob(&thread(id), large.clone(), None).await.unwrap();
            assert_eq!(id, toolwright_runtime::BlobId::of(&large));
        }
        store.copy(&thread("a"), &thread("c")).await.unwrap();
        store.keep_blob(&thread("a"), Bytes::from_static(b"only a's"), None).await.unwrap();
        assert_eq!(stored().unwrap(), (2, 1_000_008.0));
        for (id, left) in [("a", (1, 1_000_000.0)), ("c", (1, 1_000_000.0)), ("b", (0, 0.0))] {
            let claim = store.claim(&thread(id)).await.unwrap();
            store.delete(&*claim).await.unwrap();
            assert_eq!(stored().unwrap(), left, "after {id}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_new_file_may_be_opened_by_many_at_once() {
        for _ in 0..10 {
            let (_folder, path) = folder();
            let opens: Vec<_> = (0..8)
                .map(|n| {
                    let path = path.clone();
                    tokio::spawn(async move {
                        let store = Sqlite::open(&path).await.unwrap();
                        let id = thread(&format!("t{n}"));
                        let claim = store.claim(&id).await.unwrap();
                        store.append(&*claim, Seq(0), opening(&id)).await.unwrap();
                        store
                    })
                })
                .collect();
            let mut stores = Vec::new();
            for open in opens {
                stores.push(open.await.unwrap());
            }
            for store in stores {
                assert_eq!(store.threads(&ThreadQuery::default()).await.unwrap().items.len(), 8);
            }
        }
    }

    #[tokio::test]
    async fn a_store_is_opened_by_its_address() {
        let (_folder, path) = folder();
        let store = toolwright_store::open(&format!("sqlite:{}", path.display())).await.unwrap();
        let claim = store.claim(&thread("t")).await.unwrap();
        store.append(&*claim, Seq(0), opening(&thread("t"))).await.unwrap();
        assert!(Sqlite::open(&path).await.unwrap().info(&thread("t")).await.unwrap().is_some());
    }
}
