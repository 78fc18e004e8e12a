//! Inboxes and timers.

use toolwright_core::{ThreadId, Timestamp};
use toolwright_runtime::{InboxItem, Posted, StoreError};

use super::journal::{NOTIFY, position};
use super::session::{Param, Pool, number};
use super::text::{compared, read, written};
use super::wakes::Event;

/// A key of an inbox or of a timer. These are only compared, so that they may have any length.
fn inbox_key(text: &str) -> Result<Vec<u8>, StoreError> {
    StoreError::refuse_nul("key", text)?;
    Ok(compared(text))
}

pub(super) async fn post(pool: &Pool, thread: &ThreadId, key: &str, item: &InboxItem) -> Result<Posted, StoreError> {
    let (id, key, text) = (thread.as_str(), inbox_key(key)?, written("an item", item)?);
    // Tells our own item from an equal one of somebody else, where the connection is lost before the answer.
    let token = &uuid::Uuid::now_v7().to_string();
    let payload = Event::Posted.payload(thread, None);
    let post: (&str, &[Param<'_>]) = ("SELECT item, token FROM post($1, $2, $3, $4)", &[&id, &key, token, &text]);
    let notify: (&str, &[Param<'_>]) = (NOTIFY, &[&pool.server.schema, &payload]);
    let first = pool.attempt(|session, again| async move {
        let failed = |error: tokio_postgres::Error| pool.server.trouble(&error);
        let rows = session.rows_and(post, notify).await.map_err(failed)?;
        let Some(row) = rows.first() else { return Ok(None) };
        let ours = again && row.try_get::<_, &str>(1).map_err(failed)? == token;
        Ok(if ours { None } else { Some(row.try_get::<_, String>(0).map_err(failed)?) })
    });
    match first.await? {
        None => Ok(Posted::First),
        Some(text) => Ok(Posted::Late(Box::new(read("an item", thread, &text)?))),
    }
}

pub(super) async fn inbox(pool: &Pool, thread: &ThreadId, after: u64) -> Result<Vec<(u64, InboxItem)>, StoreError> {
    let (id, after) = (thread.as_str(), number(after));
    let sql = "SELECT position, item FROM inbox WHERE thread = $1 AND position > $2 AND NOT taken ORDER BY position";
    let failed = |error: tokio_postgres::Error| pool.server.trouble(&error);
    let items = pool.attempt(|session, _| async move {
        let rows = session.rows(sql, &[&id, &after]).await.map_err(failed)?;
        let item = |row: &tokio_postgres::Row| Ok((row.try_get::<_, i64>(0)?, row.try_get::<_, String>(1)?));
        rows.iter().map(item).collect::<Result<Vec<_>, _>>().map_err(failed)
    });
    let item = |(at, text): (i64, String)| Ok((u64::try_from(at).unwrap_or_default(), read("an item", thread, &text)?));
    items.await?.into_iter().map(item).collect()
}

/// The last position of an inbox.
pub(super) async fn last(pool: &Pool, thread: &ThreadId) -> Result<u64, StoreError> {
    position(pool, "SELECT last FROM inboxes WHERE thread = $1", thread).await
}

pub(super) async fn post_at(pool: &Pool, thread: &ThreadId, key: &str, at: Timestamp, item: &InboxItem) -> Result<(), StoreError> {
    let sql = "INSERT INTO timers (thread, key, at, item) VALUES ($1, $2, $3, $4)
        ON CONFLICT (thread, key) DO UPDATE SET at = excluded.at, item = excluded.item RETURNING TRUE";
    pool.says(sql, &[&thread.as_str(), &inbox_key(key)?, &at.0, &written("an item", item)?]).await.map(drop)
}

pub(super) async fn cancel_timer(pool: &Pool, thread: &ThreadId, key: &str) -> Result<bool, StoreError> {
    let (id, key) = (thread.as_str(), &compared(key));
    pool.attempt(|session, again| async move {
        let failed = |error: tokio_postgres::Error| pool.server.trouble(&error);
        let row = session.row("SELECT cancel_timer($1, $2, $3)", &[&id, key, &again]).await.map_err(failed)?;
        row.map(|row| row.try_get(0)).transpose().map_err(failed).map(Option::unwrap_or_default)
    })
    .await
}

pub(super) async fn post_due(pool: &Pool, now: Timestamp, limit: usize) -> Result<Vec<ThreadId>, StoreError> {
    let (now, limit) = (now.0, number(limit as u64));
    let threads = pool.attempt_heavy(|session, _| async move {
        let failed = |error: tokio_postgres::Error| pool.server.trouble(&error);
        let rows = session.rows("SELECT post_due($1, $2, $3)", &[&now, &limit, &pool.server.schema]).await.map_err(failed)?;
        rows.iter().map(|row| row.try_get::<_, String>(0)).collect::<Result<Vec<_>, _>>().map_err(failed)
    });
    threads.await?.into_iter().map(|id| super::listing::thread_id(&id)).collect()
}
