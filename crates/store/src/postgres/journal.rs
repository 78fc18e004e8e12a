//! Journals and their snapshots.

use std::sync::Arc;

use toolwright_core::{Record, Seq, ThreadId};
use toolwright_runtime::{Append, Claim, Snapshot, StoreError};

use super::session::{Param, Pool, number};
use super::text::{compared, read, written};
use super::wakes::Event;

const APPEND: &str = "SELECT outcome, head
    FROM append($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)";
const READ: &str = "SELECT seq, body FROM records WHERE thread = $1 AND seq > $2 ORDER BY seq LIMIT $3";
const READ_AT: &str = "SELECT seq, body FROM records WHERE thread = $1 AND seq = ANY ($2) ORDER BY seq";
pub(super) const NOTIFY: &str = "SELECT pg_notify($1, $2)";

/// What an append came to.
enum Outcome {
    Written,
    Fenced,
    Conflict(u64),
}

/// Appends, once however often the connection is lost on the way.
pub(super) async fn append(pool: &Pool, claim: &dyn Claim, expected: Seq, append: Append) -> Result<(), StoreError> {
    let thread = claim.thread();
    let (id, fence, from) = (thread.as_str(), number(claim.fence()), number(expected.0));
    let bodies = append.records.iter().map(|record| written("a record", record)).collect::<Result<Vec<String>, _>>()?;
    let head = expected.0.saturating_add(bodies.len() as u64);
    let through = number(append.inbox_through);
    let change = append.index();
    let (agent, parent) =
        change.opened.as_ref().map_or((None, None), |opened| (Some(&*opened.agent), opened.parent.as_ref().map(ThreadId::as_str)));
    let opened_at = change.opened.as_ref().map(|opened| opened.at.0);
    let changed_at = change.changed_at.map(|at| at.0);
    let status = change.status.map(toolwright_runtime::ThreadStatus::as_str);
    let (title, title_lower) = (change.title.as_deref(), change.title.as_ref().map(|title| title.to_lowercase()));
    let id_lower = id.to_lowercase();
    let forked_from = change.forked_from.as_ref().map(ThreadId::as_str);
    let settled: Vec<Vec<u8>> = change.settled.iter().map(|call| compared(call.as_str())).collect();
    let calls: Vec<Vec<u8>> = change.asked.iter().map(|row| compared(row.call.as_str())).collect();
    let ids: Vec<Vec<u8>> = change.asked.iter().map(|row| compared(row.approval.as_str())).collect();
    let asked_at: Vec<i64> = change.asked.iter().map(|row| row.at.0).collect();
    let asked = change.asked.iter().map(|row| written("a pending decision", &row.of_thread(thread))).collect::<Result<Vec<_>, _>>()?;
    let payload = Event::Appended.payload(thread, Some(head));
    let append: (&str, &[Param<'_>]) = (
        APPEND,
        &[
            &id,
            &fence,
            &from,
            &bodies,
            &through,
            &agent,
            &parent,
            &opened_at,
            &changed_at,
            &status,
            &title,
            &id_lower,
            &title_lower,
            &forked_from,
            &change.all_settled,
            &settled,
            &calls,
            &ids,
            &asked_at,
            &asked,
        ],
    );
    let notify: (&str, &[Param<'_>]) = (NOTIFY, &[&pool.server.schema, &payload]);
    let bodies = &bodies;

    let outcome = pool.attempt(|session, again| async move {
        let failed = |error: tokio_postgres::Error| pool.server.trouble(&error);
        let rows = session.rows_and(append, notify).await.map_err(failed)?;
        let row = rows.first();
        let Some(row) = row else { return Err(pool.server.failed("an append had no answer").into()) };
        let outcome: &str = row.try_get(0).map_err(failed)?;
        let found = u64::try_from(row.try_get::<_, i64>(1).map_err(failed)?).unwrap_or_default();
        match outcome {
            "written" => Ok(Outcome::Written),
            "conflict" => {
                // An earlier try may have been done before its session was lost. The fencing number is still ours, so nobody else
                // can have written since.
                let last = bodies.last().filter(|_| again && found == head);
                if let Some(last) = last {
                    let there = session.row(READ_AT, &[&id, &vec![number(head)]]).await.map_err(failed)?;
                    let there: Option<String> = there.map(|row| row.try_get(1)).transpose().map_err(failed)?;
                    if there.as_ref() == Some(last) {
                        return Ok(Outcome::Written);
                    }
                }
                Ok(Outcome::Conflict(found))
            }
            _ => Ok(Outcome::Fenced),
        }
    });
    match outcome.await? {
        Outcome::Written => Ok(()),
        Outcome::Fenced => Err(StoreError::Fenced { thread: thread.clone() }),
        Outcome::Conflict(actual) => Err(StoreError::Conflict { thread: thread.clone(), expected, actual: Seq(actual) }),
    }
}

/// A sign of life.
pub(super) async fn renew(pool: &Pool, claim: &dyn Claim) -> Result<(), StoreError> {
    let (id, fence) = (claim.thread().as_str(), number(claim.fence()));
    let sql = "UPDATE claims SET beat = now_micros() WHERE thread = $1 AND fence = $2 RETURNING TRUE";
    let found =
        pool.attempt(|session, _| async move { session.row(sql, &[&id, &fence]).await.map_err(|error| pool.server.trouble(&error)) });
    fenced_unless(found.await?.is_some(), claim.thread())
}

pub(super) fn fenced_unless(held: bool, thread: &ThreadId) -> Result<(), StoreError> {
    if held { Ok(()) } else { Err(StoreError::Fenced { thread: thread.clone() }) }
}

async fn records(pool: &Pool, thread: &ThreadId, sql: &str, params: &[Param<'_>]) -> Result<Vec<Arc<Record>>, StoreError> {
    let rows = pool.attempt_heavy(|session, _| async move { session.rows(sql, params).await.map_err(|error| pool.server.trouble(&error)) });
    let record = |row: &tokio_postgres::Row| {
        let failed = |error: tokio_postgres::Error| pool.server.failed(super::address::causes(&error));
        let seq: i64 = row.try_get(0).map_err(failed)?;
        read(&format!("the record {seq}"), thread, row.try_get(1).map_err(failed)?).map(Arc::new)
    };
    rows.await?.iter().map(record).collect()
}

pub(super) async fn read_after(pool: &Pool, thread: &ThreadId, after: Seq, limit: usize) -> Result<Vec<Arc<Record>>, StoreError> {
    records(pool, thread, READ, &[&thread.as_str(), &number(after.0), &number(limit as u64)]).await
}

pub(super) async fn read_at(pool: &Pool, thread: &ThreadId, positions: &[Seq]) -> Result<Vec<Arc<Record>>, StoreError> {
    let positions: Vec<i64> = positions.iter().map(|seq| number(seq.0)).collect();
    records(pool, thread, READ_AT, &[&thread.as_str(), &positions]).await
}

/// Where a journal ends.
pub(super) async fn head(pool: &Pool, thread: &ThreadId) -> Result<u64, StoreError> {
    position(pool, "SELECT head FROM claims WHERE thread = $1", thread).await
}

/// One position of a thread, 0 if there is none.
pub(super) async fn position(pool: &Pool, sql: &str, thread: &ThreadId) -> Result<u64, StoreError> {
    let found = pool.attempt(|session, _| async move {
        let failed = |error: tokio_postgres::Error| pool.server.trouble(&error);
        let row = session.row(sql, &[&thread.as_str()]).await.map_err(failed)?;
        row.map(|row| row.try_get::<_, i64>(0)).transpose().map_err(failed)
    });
    Ok(found.await?.and_then(|at| u64::try_from(at).ok()).unwrap_or_default())
}

pub(super) async fn save_snapshot(pool: &Pool, claim: &dyn Claim, snapshot: Snapshot) -> Result<(), StoreError> {
    // Nothing compares where a snapshot is, so that all 64 bits may be used.
    let (id, fence, at, text) = (claim.thread().as_str(), number(claim.fence()), snapshot.at.0.cast_signed(), &*snapshot.text);
    let sql = "SELECT save_snapshot($1, $2, $3, $4)";
    fenced_unless(pool.says(sql, &[&id, &fence, &at, &text]).await?, claim.thread())
}

pub(super) async fn snapshot(pool: &Pool, thread: &ThreadId) -> Result<Option<Snapshot>, StoreError> {
    pool.attempt(|session, _| async move {
        let failed = |error: tokio_postgres::Error| pool.server.trouble(&error);
        let row = session.row("SELECT at, body FROM snapshots WHERE thread = $1", &[&thread.as_str()]).await.map_err(failed)?;
        let Some(row) = row else { return Ok(None) };
        let at: i64 = row.try_get(0).map_err(failed)?;
        let text: &str = row.try_get(1).map_err(failed)?;
        Ok(Some(Snapshot { at: Seq(at.cast_unsigned()), text: text.into() }))
    })
    .await
}

pub(super) async fn delete(pool: &Pool, claim: &dyn Claim) -> Result<(), StoreError> {
    let (id, fence) = (claim.thread().as_str(), number(claim.fence()));
    fenced_unless(pool.says_heavy("SELECT delete_thread($1, $2)", &[&id, &fence]).await?, claim.thread())
}
