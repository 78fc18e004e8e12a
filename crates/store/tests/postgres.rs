//! The PostgreSQL store, over a server of its own: what every store has to show, and what only this one has.
//! Where PostgreSQL is not installed the tests are skipped, each with a printed line.
#![cfg(all(feature = "postgres", feature = "suite"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;
use tokio_postgres::NoTls;
use toolwright_core::{AbortReason, Record, Seq, ThreadId};
use toolwright_runtime::{Append, InboxItem, Posted, Shelf, Store as _, StoreError, ThreadQuery};
use toolwright_store::postgres::Postgres;

use self::server::{PASSWORD_ROLE, SKIPPED, Server};

#[path = "support/server.rs"]
mod server;

/// More than anything here takes on a slow machine.
const LONG: Duration = Duration::from_secs(30);

fn thread(id: &str) -> ThreadId {
    ThreadId::new(id).unwrap()
}

/// Records of a kind that nobody folds, each with its position.
fn records(positions: RangeInclusive<u64>) -> Vec<Arc<Record>> {
    let record = |n: u64| serde_json::from_value(json!({ "seq": n, "at": 1000 + n, "kind": "test.thing", "zebra": n, "apple": "x" }));
    positions.map(|n| Arc::new(record(n).unwrap())).collect()
}

fn cancel(n: u64) -> InboxItem {
    serde_json::from_value(json!({ "kind": "cancel", "reason": AbortReason::abort("enough"), "run": format!("run-{n}") })).unwrap()
}

async fn opened(server: &Server, schema: &str) -> Postgres {
    // The name of the application tells the sessions of this test from those of others.
    let mark = if server.url().contains('?') { '&' } else { '?' };
    Postgres::builder().schema(schema).pool_size(4).connect(&format!("{}{mark}application_name={schema}", server.url())).await.unwrap()
}

async fn refused(server: &Server, schema: &str) -> (String, &'static str) {
    let error = Postgres::builder().schema(schema).connect(server.url()).await.unwrap_err();
    (error.to_string(), error.code())
}

/// A session without a store.
async fn raw(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Ends the sessions of a test's stores on the server.
async fn end_sessions(raw: &tokio_postgres::Client, schema: &str) {
    let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1";
    raw.execute(sql, &[&schema]).await.unwrap();
}

/// Ends those that hold locks of claims.
async fn end_lock_sessions(raw: &tokio_postgres::Client, schema: &str) {
    let sql = "SELECT pg_terminate_backend(pid) FROM (SELECT DISTINCT l.pid FROM pg_locks l JOIN pg_stat_activity a USING (pid)
        WHERE l.locktype = 'advisory' AND l.granted AND a.application_name = $1) AS those";
    raw.execute(sql, &[&schema]).await.unwrap();
}

/// Asks until it is so.
async fn until(what: &str, so: impl AsyncFn() -> bool) {
    let asking = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(10));
        while !so().await {
            ticks.tick().await;
        }
    };
    tokio::time::timeout(LONG, asking).await.unwrap_or_else(|_| panic!("not within {LONG:?}: {what}"));
}

mod suite {
    use std::sync::Arc;
    use std::time::Duration;

    use toolwright_runtime::Store;
    use toolwright_store::postgres::Postgres;
    use toolwright_store::suite::{Fixture, Opened};

    use super::server::Server;

    /// A schema of its own.
    struct Schema {
        server: &'static Server,
        name: String,
    }

    impl Schema {
        fn opened(&self, builder: toolwright_store::postgres::Builder) -> Opened<'_> {
            let builder = builder.schema(&self.name).pool_size(4);
            Box::pin(async move {
                let store = builder.connect(self.server.url()).await.map_err(|error| error.to_string())?;
                Ok(Arc::new(store) as Arc<dyn Store>)
            })
        }
    }

    impl Fixture for Schema {
        fn open(&self) -> Opened<'_> {
            self.opened(Postgres::builder())
        }

        fn open_with_limit(&self, limit: Duration) -> Option<Opened<'_>> {
            Some(self.opened(Postgres::builder().claim_limit(limit)))
        }
    }

    toolwright_store::store_suite!({
        let Some(server) = Server::shared() else { return Ok(()) };
        Schema { server, name: server.fresh_name() }
    });
}

mod opening {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn ten_processes_open_an_empty_database_at_once() {
        let Some(server) = Server::shared() else { return };
        let name = server.fresh_name();
        let open = |_| {
            let name = name.clone();
            tokio::spawn(async move { opened(server, &name).await })
        };
        let opening: Vec<_> = (0..10).map(open).collect();
        for store in opening {
            let store = store.await.unwrap();
            assert_eq!(store.threads(&ThreadQuery::default()).await.unwrap().items, []);
        }
    }

    // rule: sdk-runtime STO-4
    #[tokio::test(flavor = "multi_thread")]
    async fn a_newer_schema_is_refused_and_both_versions_are_named() {
        let Some(server) = Server::shared() else { return };
        let name = server.fresh_name();
        let store = opened(server, &name).await;
        store.close().await;
        let raw = raw(server.url()).await;
        raw.batch_execute(&format!("UPDATE {name}.toolwright_version SET version = 99")).await.unwrap();
        let (error, code) = refused(server, &name).await;
        assert!(error.contains("has version 99") && error.contains("versions up to 1"), "{error}");
        assert_eq!(code, "TOOLWRIGHT_STORAGE_FAILED");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_schema_that_is_not_ours_is_refused_untouched() {
        let Some(server) = Server::shared() else { return };
        let raw = raw(server.url()).await;
        for made in [
            "CREATE TABLE threads (id INT)",
            "CREATE TABLE toolwright_version (version TEXT)",
            "CREATE TABLE toolwright_version (other INT)",
            "CREATE FUNCTION one() RETURNS INT LANGUAGE sql AS 'SELECT 1'",
        ] {
            let name = server.fresh_name();
            raw.batch_execute(&format!("CREATE SCHEMA {name}; SET search_path TO {name}; {made}; RESET search_path")).await.unwrap();
            let count = "SELECT (SELECT count(*) FROM pg_class WHERE relnamespace = $1::TEXT::REGNAMESPACE)
                + (SELECT count(*) FROM pg_proc WHERE pronamespace = $1::TEXT::REGNAMESPACE)";
            let before: i64 = raw.query_one(count, &[&name]).await.unwrap().get(0);
            let (error, code) = refused(server, &name).await;
            assert_eq!(code, "TOOLWRIGHT_CONFIG_INVALID");
            assert!(error.contains(&format!("the schema {name} holds")) && error.contains("name another schema"), "{error}");
            assert_eq!(raw.query_one(count, &[&name]).await.unwrap().get::<_, i64>(0), before, "{made}");
        }
        let name = server.fresh_name();
        raw.batch_execute(&format!("CREATE SCHEMA {name}")).await.unwrap();
        opened(server, &name).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_is_wrong_with_an_address_is_said_in_one_sentence_without_the_password() {
        let Some(server) = Server::shared() else { return };
        let mut cases = vec![
            // Nobody listens on the port that reserves itself.
            ("postgres://me:geheim@127.0.0.1:1/app".to_owned(), "127.0.0.1:1 (database app)", "TOOLWRIGHT_STORAGE_FAILED"),
            ("postgres://me:geheim@no-such-host.invalid/app".to_owned(), "no-such-host.invalid:5432", "TOOLWRIGHT_STORAGE_FAILED"),
            ("postgres://me:geheim@h/app?no_such_option=1".to_owned(), "no_such_option", "TOOLWRIGHT_CONFIG_INVALID"),
        ];
        if server.folder().is_some() {
            let raw = raw(server.url()).await;
            let _ = raw.batch_execute(&format!("CREATE ROLE {PASSWORD_ROLE} LOGIN PASSWORD 'richtig'")).await;
            let at = format!("127.0.0.1:{}", server.port());
            cases.push((
                format!("postgres://{PASSWORD_ROLE}:geheim@{at}/postgres"),
                "check the user and the password in the address",
                "TOOLWRIGHT_CONFIG_INVALID",
            ));
            cases.push((format!("postgres://toolwright:geheim@{at}/nothing_here"), "CREATE DATABASE", "TOOLWRIGHT_CONFIG_INVALID"));
            cases.push((
                format!("postgres://toolwright:geheim@{at}/postgres?sslmode=require"),
                "does not support TLS",
                "TOOLWRIGHT_STORAGE_FAILED",
            ));
            let right = format!("postgres://{PASSWORD_ROLE}:richtig@{at}/postgres");
            raw.batch_execute(&format!("GRANT CREATE ON DATABASE postgres TO {PASSWORD_ROLE}")).await.unwrap();
            // The right to make a schema is all that a role needs.
            Postgres::builder().schema(server.fresh_name()).connect(&right).await.unwrap();
        }
        for (url, says, code) in cases {
            let error = Postgres::connect(&url).await.unwrap_err();
            assert_eq!(error.code(), code, "{error}");
            let said = error.to_string();
            assert!(said.contains(says), "{said}");
            assert!(!said.contains("geheim"), "{said}");
            assert!(!said.contains('\n'), "{said}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_unix_socket_is_a_host() {
        let Some(server) = Server::shared() else { return };
        let Some(folder) = server.folder() else { return };
        let url = format!("postgres://toolwright@/postgres?host={}&port={}", folder.display(), server.port());
        let store = Postgres::builder().schema(server.fresh_name()).connect(&url).await.unwrap();
        let id = thread("socket");
        let claim = store.claim(&id).await.unwrap();
        store.append(&*claim, Seq(0), Append::records(records(1..=2))).await.unwrap();
        assert_eq!(store.read(&id, Seq(0), 9).await.unwrap().len(), 2);
    }

    /// Makes an authority, and by it a certificate for `localhost`, in the server's folder.
    const CERTIFICATES: &str = "
        openssl req -x509 -newkey rsa:2048 -nodes -days 9 -subj /CN=authority -keyout ca.key -out ca.crt &&
        openssl req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout server.key -out server.csr &&
        echo subjectAltName=DNS:localhost >server.ext &&
        openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 9 -extfile server.ext -out server.crt &&
        chmod 600 server.key";

    #[tokio::test(flavor = "multi_thread")]
    async fn a_connection_is_encrypted_and_its_server_checked_where_the_address_says_so() {
        // One of its own: the other tests' server has no TLS.
        let Ok(server) = Server::start() else {
            println!("{SKIPPED}");
            return;
        };
        let Some(folder) = server.folder() else { return };
        let raw = raw(server.url()).await;
        if raw.batch_execute(&format!("COPY (SELECT 1) TO PROGRAM '{CERTIFICATES}'")).await.is_err() {
            println!("skipped: openssl is not installed here");
            return;
        }
        raw.batch_execute("ALTER SYSTEM SET ssl = on").await.unwrap();
        raw.batch_execute("SELECT pg_reload_conf()").await.unwrap();
        let encrypted = async |name: &str, host: &str, options: &str| {
            let port = server.port();
            let url = format!("postgres://toolwright@{host}:{port}/postgres?application_name={name}&{options}");
            let store = Postgres::builder().schema(name).connect(&url).await?;
            store.threads(&ThreadQuery::default()).await?;
            let sql = "SELECT bool_and(s.ssl) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) WHERE a.application_name = $1";
            Ok::<bool, StoreError>(raw.query_one(sql, &[&name]).await.unwrap().get(0))
        };
        let ca = format!("sslmode=verify-full&sslrootcert={}/data/ca.crt", folder.display());
        until("the server has TLS", async || encrypted("begins", "localhost", "sslmode=prefer").await == Ok(true)).await;
        assert_eq!(encrypted("checked", "localhost", &ca).await, Ok(true));
        assert_eq!(encrypted("plain", "localhost", "sslmode=disable").await, Ok(false));
        for (host, options, says) in [
            ("localhost", "sslmode=require", "UnknownIssuer"),
            ("127.0.0.1", &*ca, "not valid for name"),
            ("localhost", "sslmode=require&sslrootcert=/no/such/file", "/no/such/file"),
        ] {
            let error = encrypted("refused", host, options).await.unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    // rule: sdk-runtime STO-4
    #[tokio::test(flavor = "multi_thread")]
    async fn a_closed_store_says_so_and_its_claims_are_free() {
        let Some(server) = Server::shared() else { return };
        let name = server.fresh_name();
        let (store, other) = (opened(server, &name).await, opened(server, &name).await);
        let id = thread("closed");
        let _claim = store.claim(&id).await.unwrap();
        assert_eq!(other.claim(&id).await.err(), Some(StoreError::Busy { thread: id.clone() }));
        store.close().await;
        other.claim(&id).await.unwrap();
        for error in [store.info(&id).await.unwrap_err(), store.claim(&id).await.err().unwrap()] {
            assert!(error.to_string().contains("the store was closed"), "{error}");
        }
        // A wait ends, so that whoever waits asks again and is told.
        tokio::time::timeout(LONG, store.appended(&id, Seq(7))).await.unwrap();
    }
}

mod claims {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn of_two_that_race_for_a_thread_one_has_it_and_the_other_is_told_at_once() {
        let Some(server) = Server::shared() else { return };
        let name = server.fresh_name();
        let stores = [opened(server, &name).await, opened(server, &name).await];
        for round in 0..50 {
            let id = thread(&format!("race-{round}"));
            let began = Instant::now();
            let (one, two) = tokio::join!(stores[0].claim(&id), stores[1].claim(&id));
            assert!(one.is_ok() != two.is_ok(), "round {round}");
            assert_eq!(one.err().or(two.err()), Some(StoreError::Busy { thread: id }), "round {round}");
            // Far below the time for which a silent owner is watched.
            assert!(began.elapsed() < Duration::from_secs(5), "round {round}: {:?}", began.elapsed());
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_end_of_the_owners_session_frees_its_threads() {
        let Some(server) = Server::shared() else { return };
        let name = server.fresh_name();
        let (store, other) = (opened(server, &name).await, opened(server, &name).await);
        let id = thread("orphan");
        let lost = store.claim(&id).await.unwrap();
        store.append(&*lost, Seq(0), Append::records(records(1..=1))).await.unwrap();
        let before = lost.fence();
        // A claim of another owner meets the moment between the end of the session and the owner's having it again.
        let raw = raw(server.url()).await;
        let found = loop {
            end_lock_sessions(&raw, &name).await;
            match other.claim(&id).await {
                Ok(claim) => break claim,
                Err(error) => assert_eq!(error, StoreError::Busy { thread: id.clone() }),
            }
        };
        assert!(found.fence() > before);
        let fenced = StoreError::Fenced { thread: id.clone() };
        assert_eq!(store.append(&*lost, Seq(1), Append::records(records(2..=2))).await, Err(fenced.clone()));
        assert_eq!(store.renew(&*lost).await, Err(fenced.clone()));
        assert_eq!(store.data().set_value(&id, Shelf::Values, "a", Some("1".into()), Some(before)).await, Err(fenced.clone()));
        assert_eq!(store.delete(&*lost).await, Err(fenced));
        other.append(&*found, Seq(1), Append::records(records(2..=2))).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_owner_whose_session_was_cut_has_its_threads_again() {
        let Some(server) = Server::shared() else { return };
        let name = server.fresh_name();
        let (store, other) = (opened(server, &name).await, opened(server, &name).await);
        let ids: Vec<ThreadId> = (0..3).map(|n| thread(&format!("mine-{n}"))).collect();
        let mut claims = Vec::new();
        for id in &ids {
            claims.push(store.claim(id).await.unwrap());
        }
        let raw = raw(server.url()).await;
        end_lock_sessions(&raw, &name).await;
        let locks = "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
            WHERE l.locktype = 'advisory' AND l.granted AND a.application_name = $1";
        until("the locks are held again", async || raw.query_one(locks, &[&name]).await.unwrap().get::<_, i64>(0) == 3).await;
        for (id, claim) in ids.iter().zip(claims) {
            assert_eq!(other.claim(id).await.err(), Some(StoreError::Busy { thread: id.clone() }));
            store.append(&*claim, Seq(0), Append::records(records(1..=1))).await.unwrap();
            drop(claim);
            until("the thread is free", async || other.claim(id).await.is_ok()).await;
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_silent_owner_is_followed_and_can_write_nothing() {
        let Some(server) = Server::shared() else { return };
        let name = server.fresh_name();
        let limit = Duration::from_millis(1200);
        let builder = || Postgres::builder().schema(&name).claim_limit(limit);
        let (store, other) = (builder().connect(server.url()).await.unwrap(), builder().connect(server.url()).await.unwrap());
        let id = thread("silent");
        let silent = store.claim(&id).await.unwrap();
        store.append(&*silent, Seq(0), Append::records(records(1..=1))).await.unwrap();
        let began = Instant::now();
        let busy = Some(StoreError::Busy { thread: id.clone() });
        assert_eq!(other.claim(&id).await.err(), busy);
        let next = loop {
            match other.claim(&id).await {
                Ok(claim) => break claim,
                Err(error) => assert_eq!(Some(error), busy),
            }
        };
        // It was silent for the limit by the server's clock, and for a quarter of it by ours.
        assert!(began.elapsed() >= limit, "{:?}", began.elapsed());
        assert!(next.fence() > silent.fence());
        assert_eq!(store.append(&*silent, Seq(1), Append::records(records(2..=2))).await, Err(StoreError::Fenced { thread: id.clone() }));
        other.append(&*next, Seq(1), Append::records(records(2..=2))).await.unwrap();
        // Its lock was of the generation before: neither its end nor another look of its process changes anything.
        drop(silent);
        assert_eq!(store.claim(&id).await.err(), busy);
        drop(next);
        until("the thread is free", async || store.claim(&id).await.is_ok()).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_clock_that_jumps_makes_no_owner_silent_and_hides_none() {
        let Some(server) = Server::shared() else { return };
        let name = server.fresh_name();
        let limit = Duration::from_millis(1200);
        let builder = || Postgres::builder().schema(&name).claim_limit(limit);
        let (store, other) = (builder().connect(server.url()).await.unwrap(), builder().connect(server.url()).await.unwrap());
        let raw = raw(server.url()).await;
        let jump = async |id: &ThreadId, hours: i64| {
            let sql = format!("UPDATE {name}.claims SET beat = beat + $2 * 3600000000 WHERE thread = $1");
            assert_eq!(raw.execute(&sql, &[&id.as_str(), &hours]).await.unwrap(), 1);
        };
        // The clock went forward an hour: the owner seems silent, and is watched until it gives a sign.
        let id = thread("forward");
        let claim = store.claim(&id).await.unwrap();
        jump(&id, -1).await;
        let (tried, renewed) = tokio::join!(other.claim(&id), store.renew(&*claim));
        renewed.unwrap();
        assert_eq!(tried.err(), Some(StoreError::Busy { thread: id.clone() }));
        store.append(&*claim, Seq(0), Append::records(records(1..=1))).await.unwrap();
        // It went back an hour: the last sign lies in the future, and the silent owner is followed all the same.
        let id = thread("back");
        let claim = store.claim(&id).await.unwrap();
        jump(&id, 1).await;
        let next = other.claim(&id).await.unwrap();
        assert_eq!(store.renew(&*claim).await, Err(StoreError::Fenced { thread: id.clone() }));
        other.renew(&*next).await.unwrap();
    }
}

mod connections {
    use super::*;

    /// A forwarder that can cut its connections, or stop forwarding.
    struct Proxy {
        port: u16,
        faults: Arc<Faults>,
    }

    #[derive(Default)]
    struct Faults {
        /// Of so many pieces one is cut off; none for 0.
        one_in: AtomicU64,
        /// Nothing gets through, and nothing is closed.
        deaf: watch::Sender<bool>,
        /// So many connections were opened.
        opened: AtomicU64,
        /// Of so many the clients' ends are closed, of which the server hears only once they are let go.
        orphaned: watch::Sender<u64>,
        let_go: watch::Sender<bool>,
        random: AtomicU64,
        cuts: AtomicU64,
    }

    impl Faults {
        fn random(&self) -> u64 {
            let step = |state: u64| state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let state = self.random.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |state| Some(step(state))).unwrap();
            step(state) >> 33
        }

        fn strikes(&self) -> bool {
            let one_in = self.one_in.load(Ordering::Relaxed);
            one_in > 0 && self.random().is_multiple_of(one_in)
        }
    }

    impl Proxy {
        #[expect(clippy::disallowed_methods, reason = "it stands in for the network")]
        async fn before(server: &Server) -> Self {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let faults = Arc::new(Faults { random: AtomicU64::new(7), ..Faults::default() });
            let (target, shared) = (server.port(), Arc::clone(&faults));
            tokio::spawn(async move {
                while let Ok((client, _)) = listener.accept().await {
                    let Ok(server) = tokio::net::TcpStream::connect(("127.0.0.1", target)).await else { continue };
                    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
                    let faults = Arc::clone(&shared);
                    let number = faults.opened.fetch_add(1, Ordering::Relaxed);
                    tokio::spawn(async move {
                        let (mut from_client, mut to_server) = (from_client, to_server);
                        let (mut from_server, mut to_client) = (from_server, to_client);
                        let mut orphaned = faults.orphaned.subscribe();
                        // Whichever side ends first ends both.
                        let cut = tokio::select! {
                            () = pump(&mut from_client, &mut to_server, &faults) => false,
                            () = pump(&mut from_server, &mut to_client, &faults) => false,
                            _ = orphaned.wait_for(|orphaned| *orphaned > number) => true,
                        };
                        if cut {
                            drop((from_client, to_client));
                            let _ = faults.let_go.subscribe().wait_for(|let_go| *let_go).await;
                        }
                    });
                }
            });
            Self { port, faults }
        }

        fn url(&self) -> String {
            format!("postgres://toolwright:geheim@127.0.0.1:{}/postgres", self.port)
        }
    }

    /// Forwards until the end or the cut: before a piece, in its middle, or behind it, so that what was sent arrived and the
    /// answer does not.
    async fn pump(from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf, faults: &Faults) {
        let mut piece = vec![0; 65536];
        loop {
            let length = from.read(&mut piece).await.unwrap_or(0);
            if length == 0 {
                return;
            }
            let _ = faults.deaf.subscribe().wait_for(|deaf| !deaf).await;
            if faults.strikes() {
                faults.cuts.fetch_add(1, Ordering::Relaxed);
                let through = [0, length / 2, length][(faults.random() % 3) as usize];
                let _ = to.write_all(&piece[..through]).await;
                let _ = to.flush().await;
                return;
            }
            if to.write_all(&piece[..length]).await.is_err() {
                return;
            }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_append_is_there_exactly_once_wherever_its_connection_is_cut() {
        let Some(server) = Server::shared() else { return };
        if server.folder().is_none() {
            return;
        }
        let name = server.fresh_name();
        let proxy = Proxy::before(server).await;
        let store = Postgres::builder().schema(&name).pool_size(2).connect(&proxy.url()).await.unwrap();
        let id = thread("cut");
        let claim = store.claim(&id).await.unwrap();
        proxy.faults.one_in.store(16, Ordering::Relaxed);
        let mut head = 0;
        for round in 0..100 {
            let made = records(head + 1..=head + 1 + round % 3);
            let many = made.len() as u64;
            store.append(&*claim, Seq(head), Append::records(made)).await.unwrap();
            head += many;
            let key = format!("key-{round}");
            assert_eq!(store.post(&id, &key, cancel(round)).await.unwrap(), Posted::First, "{key}");
            assert!(matches!(store.post(&id, &key, cancel(round)).await.unwrap(), Posted::Late(_)), "{key}");
            store.data().set_value(&id, Shelf::Values, &key, Some("1".into()), Some(claim.fence())).await.unwrap();
        }
        proxy.faults.one_in.store(0, Ordering::Relaxed);
        let cuts = proxy.faults.cuts.load(Ordering::Relaxed);
        assert!(cuts > 25, "{cuts} cuts");
        let there = opened(server, &name).await;
        assert_eq!(there.read(&id, Seq(0), usize::MAX).await.unwrap(), records(1..=head));
        assert_eq!(there.inbox(&id, 0).await.unwrap().len(), 100);
        assert_eq!(there.data().values(&id, Shelf::Values, "", None, 999).await.unwrap().len(), 100);
        // An append that was never sent is none of those that were.
        let error = store.append(&*claim, Seq(head - 1), Append::records(records(head..=head))).await.unwrap_err();
        assert_eq!(error, StoreError::Conflict { thread: id, expected: Seq(head - 1), actual: Seq(head) });
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_server_that_stops_answering_is_given_up_in_a_bounded_time() {
        let Some(server) = Server::shared() else { return };
        if server.folder().is_none() {
            return;
        }
        let proxy = Proxy::before(server).await;
        let patience = Duration::from_millis(1000);
        let store = Postgres::builder().schema(server.fresh_name()).patience(patience).connect(&proxy.url()).await.unwrap();
        let id = thread("deaf");
        let claim = store.claim(&id).await.unwrap();
        proxy.faults.deaf.send_replace(true);
        let began = Instant::now();
        let error = store.append(&*claim, Seq(0), Append::records(records(1..=1))).await.unwrap_err();
        assert!(began.elapsed() < patience * 3, "{:?}", began.elapsed());
        let said = error.to_string();
        assert!(said.contains(&format!("127.0.0.1:{}", proxy.port)) && said.contains("no answer for 1s"), "{said}");
        assert!(!said.contains("geheim"), "{said}");
        proxy.faults.deaf.send_replace(false);
        // What was on its way may arrive now. Either way the journal goes on from where it ends.
        until("the server answers again", async || store.renew(&*claim).await.is_ok()).await;
        let ends = store.read(&id, Seq(0), 9).await.unwrap().len() as u64;
        assert!(ends <= 1);
        let mut appended = store.append(&*claim, Seq(ends), Append::records(records(ends + 1..=3))).await;
        if let Err(StoreError::Conflict { actual, .. }) = appended {
            appended = store.append(&*claim, actual, Append::records(records(actual.0 + 1..=3))).await;
        }
        appended.unwrap();
        assert_eq!(store.read(&id, Seq(0), 9).await.unwrap(), records(1..=3));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_lock_that_a_lost_session_still_has_is_waited_for() {
        let Some(server) = Server::shared() else { return };
        if server.folder().is_none() {
            return;
        }
        let name = server.fresh_name();
        let proxy = Proxy::before(server).await;
        let store = Postgres::builder().schema(&name).connect(&format!("{}?application_name={name}", proxy.url())).await.unwrap();
        let id = thread("orphaned");
        let claim = store.claim(&id).await.unwrap();
        let raw = raw(server.url()).await;
        let owners = async || {
            let sql = "SELECT l.pid FROM pg_locks l JOIN pg_stat_activity a USING (pid)
                WHERE l.locktype = 'advisory' AND l.granted AND a.application_name = $1";
            raw.query(sql, &[&name]).await.unwrap().iter().map(|row| row.get::<_, i32>(0)).collect::<Vec<_>>()
        };
        let before = owners().await;
        assert_eq!(before.len(), 1);
        proxy.faults.orphaned.send_replace(proxy.faults.opened.load(Ordering::Relaxed));
        let tries = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND query LIKE '%pg_try_advisory_lock(o.key)%'";
        until("the next session has tried", async || raw.query_one(tries, &[&name]).await.unwrap().get::<_, i64>(0) == 1).await;
        assert_eq!(owners().await, before);
        proxy.faults.let_go.send_replace(true);
        until("another session has the lock", async || matches!(owners().await.as_slice(), [owner] if !before.contains(owner))).await;
        store.append(&*claim, Seq(0), Append::records(records(1..=1))).await.unwrap();
        let other = opened(server, &name).await;
        assert_eq!(other.claim(&id).await.err(), Some(StoreError::Busy { thread: id.clone() }));
        drop(claim);
        until("the thread is free", async || other.claim(&id).await.is_ok()).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn sessions_that_the_server_ends_are_opened_again() {
        let Some(server) = Server::shared() else { return };
        let name = server.fresh_name();
        let store = opened(server, &name).await;
        let id = thread("ended");
        let claim = store.claim(&id).await.unwrap();
        let raw = raw(server.url()).await;
        for round in 0..5 {
            store.append(&*claim, Seq(round), Append::records(records(round + 1..=round + 1))).await.unwrap();
            end_sessions(&raw, &name).await;
        }
        assert_eq!(store.read(&id, Seq(0), 9).await.unwrap(), records(1..=5));
    }
}

mod waking {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn another_process_is_woken() {
        let Some(server) = Server::shared() else { return };
        let name = server.fresh_name();
        let (store, other) = (opened(server, &name).await, opened(server, &name).await);
        let id = thread("woken");
        let claim = store.claim(&id).await.unwrap();
        for round in 0..20 {
            let follower = tokio::spawn({
                let (other, id) = (other.clone(), id.clone());
                async move {
                    while other.read(&id, Seq(round), 1).await.unwrap().is_empty() {
                        other.appended(&id, Seq(round)).await;
                    }
                    while other.inbox(&id, round).await.unwrap().is_empty() {
                        other.posted(&id, round).await;
                    }
                }
            });
            store.append(&*claim, Seq(round), Append::records(records(round + 1..=round + 1))).await.unwrap();
            store.post(&id, &format!("{round}"), cancel(round)).await.unwrap();
            tokio::time::timeout(LONG, follower).await.unwrap().unwrap();
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_wait_ends_only_for_its_own_thread() {
        let Some(server) = Server::shared() else { return };
        let name = server.fresh_name();
        let (store, other) = (opened(server, &name).await, opened(server, &name).await);
        let (id, busy) = (thread("quiet"), thread("busy"));
        let (claim, busy_claim) = (store.claim(&id).await.unwrap(), store.claim(&busy).await.unwrap());
        let mut wait = std::pin::pin!(other.appended(&id, Seq(0)));
        let mut posted = std::pin::pin!(other.posted(&id, 0));
        for round in 0..20 {
            store.append(&*busy_claim, Seq(round), Append::records(records(round + 1..=round + 1))).await.unwrap();
            store.post(&busy, &format!("{round}"), cancel(round)).await.unwrap();
            tokio::select! {
                biased;
                () = &mut wait => panic!("woken in round {round}"),
                () = &mut posted => panic!("woken in round {round}"),
                () = tokio::task::yield_now() => {}
            }
        }
        store.append(&*claim, Seq(0), Append::records(records(1..=1))).await.unwrap();
        tokio::time::timeout(LONG, wait).await.unwrap();
        store.post(&id, "a", cancel(1)).await.unwrap();
        tokio::time::timeout(LONG, posted).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn whoever_waits_looks_again_when_the_listening_is_lost() {
        let Some(server) = Server::shared() else { return };
        let name = server.fresh_name();
        let (store, other) = (opened(server, &name).await, opened(server, &name).await);
        let id = thread("lost");
        let claim = store.claim(&id).await.unwrap();
        let raw = raw(server.url()).await;
        let follower = tokio::spawn({
            let (other, id) = (other.clone(), id.clone());
            async move {
                while other.read(&id, Seq(0), 1).await.unwrap().is_empty() {
                    other.appended(&id, Seq(0)).await;
                }
            }
        });
        for _ in 0..5 {
            end_sessions(&raw, &name).await;
        }
        store.append(&*claim, Seq(0), Append::records(records(1..=1))).await.unwrap();
        tokio::time::timeout(LONG, follower).await.unwrap().unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn whoever_follows_positions_misses_no_post_of_many_at_once() {
        let Some(server) = Server::shared() else { return };
        let name = server.fresh_name();
        let stores = [opened(server, &name).await, opened(server, &name).await];
        let id = thread("many");
        let posters: Vec<_> = (0..8)
            .map(|poster| {
                let (store, id) = (stores[poster % 2].clone(), id.clone());
                tokio::spawn(async move {
                    for n in 0..25 {
                        let first = store.post(&id, &format!("{poster}-{n}"), cancel(n)).await.unwrap();
                        assert_eq!(first, Posted::First);
                    }
                })
            })
            .collect();
        let reader = opened(server, &name).await;
        let (mut seen, mut last) = (0, 0);
        let reading = async {
            while seen < 200 {
                for (position, _) in reader.inbox(&id, last).await.unwrap() {
                    assert!(position > last);
                    (seen, last) = (seen + 1, position);
                }
                if seen < 200 {
                    reader.posted(&id, last).await;
                }
            }
        };
        tokio::time::timeout(LONG, reading).await.expect("every post is seen");
        for poster in posters {
            poster.await.unwrap();
        }
        assert_eq!(reader.inbox(&id, 0).await.unwrap().len(), 200);
    }
}
