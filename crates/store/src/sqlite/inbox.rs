//! The inbox, and the timers that post to it.

use rusqlite::{Connection, OptionalExtension, params};
use toolwright_core::{ThreadId, Timestamp};
use toolwright_runtime::{InboxItem, StoreError};

use super::fault::{Database, Trouble};
use super::journal::{limit, number, number_or_new, signed, unsigned};
use super::wakes::News;
use super::writer::Writing;

/// Reads an item back.
pub(super) fn item(text: &str, database: &Database, thread: &ThreadId) -> Result<InboxItem, StoreError> {
    serde_json::from_str(text).map_err(|error| database.unreadable(&format!("what was posted to the thread {thread}"), &error))
}

/// Posts an item; gives the one that came before it under the same key, if one did.
pub(super) fn post(writing: &mut Writing<'_>, thread: &ThreadId, key: &str, item: &str) -> Result<Option<String>, Trouble> {
    let number = number_or_new(writing, thread)?;
    post_to(writing, thread, number, key, item)
}

fn post_to(writing: &mut Writing<'_>, thread: &ThreadId, number: i64, key: &str, item: &str) -> Result<Option<String>, Trouble> {
    let connection = writing.connection;
    let mut first = connection.prepare_cached("SELECT item FROM inbox WHERE thread = ?1 AND key = ?2")?;
    if let Some(first) = first.query_row((number, key), |row| row.get(0)).optional()? {
        return Ok(Some(first));
    }
    let mut next = connection.prepare_cached("UPDATE threads SET posted = posted + 1 WHERE number = ?1 RETURNING posted")?;
    let position: i64 = next.query_row([number], |row| row.get(0))?;
    let mut insert = connection.prepare_cached("INSERT INTO inbox (thread, position, key, item) VALUES (?1, ?2, ?3, ?4)")?;
    insert.execute((number, position, key, item))?;
    writing.news.push(News::Posted(thread.clone(), unsigned(position)));
    Ok(None)
}

/// The position of the last item that was posted.
pub(super) fn last(connection: &Connection, thread: &ThreadId) -> Result<u64, Trouble> {
    let mut select = connection.prepare_cached("SELECT posted FROM threads WHERE id = ?1")?;
    let last: Option<i64> = select.query_row([thread.as_str()], |row| row.get(0)).optional()?;
    Ok(last.map(unsigned).unwrap_or_default())
}

/// What is in the inbox after a position.
pub(super) fn after(connection: &Connection, database: &Database, thread: &ThreadId, after: u64) -> Result<Vec<(u64, InboxItem)>, Trouble> {
    let sql = "SELECT position, item FROM inbox JOIN threads ON threads.number = inbox.thread
        WHERE threads.id = ?1 AND position > max(taken, ?2) ORDER BY position";
    let mut select = connection.prepare_cached(sql)?;
    let mut rows = select.query((thread.as_str(), signed(after)))?;
    let mut items = Vec::new();
    while let Some(row) = rows.next()? {
        let text = row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?;
        items.push((unsigned(row.get(0)?), item(text, database, thread)?));
    }
    Ok(items)
}

pub(super) fn post_at(writing: &mut Writing<'_>, thread: &ThreadId, key: &str, at: Timestamp, item: &str) -> Result<(), Trouble> {
    let number = number_or_new(writing, thread)?;
    let sql = "INSERT OR REPLACE INTO timers (thread, key, at, item) VALUES (?1, ?2, ?3, ?4)";
    writing.connection.prepare_cached(sql)?.execute((number, key, at.0, item))?;
    Ok(())
}

/// Takes a timer back; gives whether it was there.
pub(super) fn cancel_timer(writing: &mut Writing<'_>, thread: &ThreadId, key: &str) -> Result<bool, Trouble> {
    let Some(number) = number(writing.connection, thread)? else { return Ok(false) };
    let mut delete = writing.connection.prepare_cached("DELETE FROM timers WHERE thread = ?1 AND key = ?2")?;
    Ok(delete.execute((number, key))? > 0)
}

/// Posts what is due, and takes it off the timers. The write lock makes sure that nobody else does.
pub(super) fn post_due(writing: &mut Writing<'_>, now: Timestamp, most: usize) -> Result<Vec<ThreadId>, Trouble> {
    let sql = "SELECT timers.thread, id, key, item FROM timers JOIN threads ON number = timers.thread
        WHERE at <= ?1 ORDER BY at, id, key LIMIT ?2";
    let due: Vec<(i64, String, String, String)> = {
        let mut select = writing.connection.prepare_cached(sql)?;
        let rows = select.query_map((now.0, limit(most)), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
        rows.collect::<Result<_, _>>()?
    };
    let mut threads = Vec::with_capacity(due.len());
    for (number, id, key, item) in due {
        let thread = ThreadId::new(id).map_err(|error| writing.database.unreadable("a thread's id", &error))?;
        post_to(writing, &thread, number, &key, &item)?;
        writing.connection.prepare_cached("DELETE FROM timers WHERE thread = ?1 AND key = ?2")?.execute(params![number, key])?;
        threads.push(thread);
    }
    Ok(threads)
}
