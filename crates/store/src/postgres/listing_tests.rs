//! With very many threads a page is still read from an index.

#[path = "../../tests/support/server.rs"]
mod server;

use std::time::{Duration, Instant};

use self::server::Server;
use super::super::address::Address;
use super::super::schema;
use super::*;

/// Threads that wait for a decision, all since the same moment or each since its own, and one that moves.
const FILL: &str = "
    INSERT INTO threads SELECT 'thread-' || n, 'agent', 'awaiting-approval', 'Title ' || n, 'thread-' || n, 'title ' || n,
        CASE WHEN n % 1000 = 0 THEN 'thread-1' END, NULL, n, n / 2, 9 FROM generate_series(1, 100000) AS n;
    INSERT INTO pending SELECT 'thread-' || n, 'call', convert_to('thread-' || n || ':1:call', 'UTF8'), 7,
        json_build_object('id', 'thread-' || n || ':1:call', 'threadId', 'thread-' || n, 'toolCallId', 'call', 'toolName', 'send',
            'arguments', '{}', 'sha256', '', 'askedAt', 7)::TEXT FROM generate_series(1, 100000) AS n;
    INSERT INTO inbox SELECT 'thread-' || n, 1, 'key', '', '{}', TRUE FROM generate_series(1, 100000) AS n;
    INSERT INTO threads VALUES ('moves', 'agent', 'in-progress', '', 'moves', '', NULL, NULL, 1, 1, 1);";

async fn plan(pool: &Pool, asked: &Asked<'_>) -> String {
    let rows = rows(pool, &format!("EXPLAIN {}", asked.sql), &asked.params()).await.unwrap();
    rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>().join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_a_hundred_thousand_is_read_from_an_index() {
    let Some(server) = Server::shared() else { return };
    let patience = Duration::from_secs(20);
    let address = Address::parse(server.url(), patience).unwrap();
    let pool = Pool::new(super::super::session::Server { address, schema: server.fresh_name(), patience }, 1);
    schema::open(&pool.server).await.unwrap();
    let session = pool.server.connect().await.unwrap();
    session.batch(FILL).await.unwrap();
    let of = |id: &str| ThreadId::new(id).unwrap();
    for analyzed in [false, true] {
        if analyzed {
            session.batch("ANALYZE").await.unwrap();
        }
        let all = ThreadQuery::default();
        let waiting = ThreadQuery { status: Some(ThreadStatus::AwaitingApproval), ..all.clone() };
        let queries = [
            all.clone(),
            ThreadQuery { cursor: Some("25000:thread-50001".to_owned()), ..all.clone() },
            waiting.clone(),
            ThreadQuery { cursor: Some("25000:thread-50001".to_owned()), ..waiting },
            ThreadQuery { changed_before: Some(Timestamp(30_000)), ..all.clone() },
            ThreadQuery { parent: Some(of("thread-1")), ..all.clone() },
        ];
        for query in &queries {
            let plan = plan(&pool, &asked(query).unwrap()).await;
            assert!(plan.contains("Index") && !plan.contains("Sort") && !plan.contains("Seq Scan"), "{query:?}\n{plan}");
            let began = Instant::now();
            assert_eq!(threads(&pool, query).await.unwrap().items.len(), 100);
            println!("a page of threads, analyzed {analyzed}: {:?}", began.elapsed());
        }
        let one = of("thread-77");
        for (thread, cursor) in [(None, None), (None, Some("7:thread-50001:1:call")), (Some(&one), None)] {
            let plan = plan(&pool, &asked_pending(thread, cursor, 100).unwrap()).await;
            assert!(plan.contains("Index") && !plan.contains("Seq Scan"), "{thread:?} {cursor:?}\n{plan}");
            assert!(thread.is_some() || !plan.contains("Sort"), "{cursor:?}\n{plan}");
            let began = Instant::now();
            assert_eq!(pending(&pool, thread, cursor, 100).await.unwrap().items.len(), if thread.is_some() { 1 } else { 100 });
            println!("a page of pending decisions, analyzed {analyzed}: {:?}", began.elapsed());
        }
        let began = Instant::now();
        assert_eq!(unfinished(&pool, None, 100).await.unwrap(), [of("moves")]);
        println!("unfinished threads, analyzed {analyzed}: {:?}", began.elapsed());
    }
}
