//! The journal and its snapshot, and the index that each append keeps.

use std::sync::Arc;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, params};
use toolwright_core::{Record, Seq, ThreadId};
use toolwright_runtime::{IndexChange, Snapshot, StoreError, ThreadInfo};

use super::claims::wall_clock;
use super::fault::{Database, Trouble};
use super::listing::{INFO, info_of};
use super::wakes::News;
use super::writer::Writing;

/// A number as SQLite keeps it. What is beyond is greater than anything there.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A number that SQLite kept.
pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

/// A limit as SQLite takes it.
pub(super) fn limit(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The number of a thread that was ever claimed or given anything.
pub(super) fn number(connection: &Connection, thread: &ThreadId) -> Result<Option<i64>, Trouble> {
    let mut find = connection.prepare_cached("SELECT number FROM threads WHERE id = ?1")?;
    Ok(find.query_row([thread.as_str()], |row| row.get(0)).optional()?)
}

/// The number of a thread, which gets one if it has none.
pub(super) fn number_or_new(writing: &Writing<'_>, thread: &ThreadId) -> Result<i64, Trouble> {
    if let Some(number) = number(writing.connection, thread)? {
        return Ok(number);
    }
    writing.connection.prepare_cached("INSERT INTO threads (id) VALUES (?1)")?.execute([thread.as_str()])?;
    Ok(writing.connection.last_insert_rowid())
}

/// A thread as its owner sees it: its number, and where its journal ends.
pub(super) struct Owned {
    pub(super) number: i64,
    head: i64,
    info: Option<ThreadInfo>,
}

/// Checks a claim.
pub(super) fn owned(writing: &Writing<'_>, thread: &ThreadId, fence: u64) -> Result<Owned, Trouble> {
    let sql = format!("SELECT {INFO}, number FROM threads WHERE id = ?1 AND fence = ?2");
    let mut find = writing.connection.prepare_cached(&sql)?;
    let mut rows = find.query((thread.as_str(), signed(fence)))?;
    match rows.next()? {
        // Fencing numbers begin at 1: a row that was never claimed has 0.
        Some(row) if fence > 0 => {
            let info = if row.get_ref("agent")? == ValueRef::Null { None } else { Some(info_of(row, writing.database)?) };
            Ok(Owned { number: row.get("number")?, head: row.get("head")?, info })
        }
        _ => Err(StoreError::Fenced { thread: thread.clone() }.into()),
    }
}

/// An append, as text.
pub(super) struct Written {
    pub(super) records: Vec<String>,
    pub(super) change: IndexChange,
    pub(super) pending: Vec<Pending>,
    pub(super) inbox_through: u64,
}

/// A pending decision, as text.
pub(super) struct Pending {
    pub(super) call: String,
    pub(super) approval: String,
    pub(super) asked_at: i64,
    pub(super) body: String,
}

pub(super) fn append(writing: &mut Writing<'_>, thread: &ThreadId, fence: u64, expected: Seq, written: &Written) -> Result<(), Trouble> {
    let row = owned(writing, thread, fence)?;
    let connection = writing.connection;
    if row.head != signed(expected.0) {
        let actual = Seq(unsigned(row.head));
        return Err(StoreError::Conflict { thread: thread.clone(), expected, actual }.into());
    }
    let mut head = row.head;
    let mut insert = connection.prepare_cached("INSERT INTO records (thread, seq, body) VALUES (?1, ?2, ?3)")?;
    for record in &written.records {
        head += 1;
        insert.execute(params![row.number, head, record])?;
    }
    if written.inbox_through > 0 {
        let mut take =
            connection.prepare_cached("UPDATE threads SET taken = min(posted, ?2) WHERE number = ?1 AND taken < min(posted, ?2)")?;
        take.execute((row.number, signed(written.inbox_through)))?;
    }
    let after = written.change.applied(thread, row.info.clone(), Seq(unsigned(head)));
    index(connection, &row, head, after.as_ref())?;
    decisions(connection, row.number, written)?;
    writing.news.push(News::Appended(thread.clone(), unsigned(head)));
    Ok(())
}

/// Writes what the index says now. A column that is named is one whose indexes are written: most appends name few.
fn index(connection: &Connection, row: &Owned, head: i64, after: Option<&ThreadInfo>) -> Result<(), Trouble> {
    let (number, now) = (row.number, wall_clock());
    let Some(after) = after.filter(|after| row.info.as_ref() != Some(after)) else {
        connection.prepare_cached("UPDATE threads SET beat = ?2, head = ?3 WHERE number = ?1")?.execute((number, now, head))?;
        return Ok(());
    };
    let moved = row.info.as_ref().map(|before| ThreadInfo { head: after.head, changed_at: after.changed_at, ..before.clone() });
    if moved.as_ref() == Some(after) {
        let sql = "UPDATE threads SET beat = ?2, head = ?3, changed_at = ?4 WHERE number = ?1";
        connection.prepare_cached(sql)?.execute((number, now, head, after.changed_at.0))?;
        return Ok(());
    }
    let sql = "UPDATE threads SET beat = ?2, head = ?3, changed_at = ?4, agent = ?5, status = ?6, title = ?7, search = ?8, parent = ?9,
        forked_from = ?10, created_at = ?11 WHERE number = ?1";
    connection.prepare_cached(sql)?.execute(params![
        number,
        now,
        head,
        after.changed_at.0,
        after.agent,
        after.status.as_str(),
        after.title,
        after.title.to_lowercase(),
        after.parent.as_ref().map(ThreadId::as_str),
        after.forked_from.as_ref().map(ThreadId::as_str),
        after.created_at.0,
    ])?;
    Ok(())
}

/// Writes which decisions are pending now.
fn decisions(connection: &Connection, number: i64, written: &Written) -> Result<(), Trouble> {
    let change = &written.change;
    if change.all_settled {
        connection.prepare_cached("DELETE FROM pending WHERE thread = ?1")?.execute([number])?;
    }
    for call in &change.settled {
        connection.prepare_cached("DELETE FROM pending WHERE thread = ?1 AND call = ?2")?.execute((number, call.as_str()))?;
    }
    for row in &written.pending {
        let sql = "INSERT OR REPLACE INTO pending (thread, call, asked_at, approval, body) VALUES (?1, ?2, ?3, ?4, ?5)";
        connection.prepare_cached(sql)?.execute((number, &row.call, row.asked_at, &row.approval, &row.body))?;
    }
    Ok(())
}

/// The records after a position. A journal that lacks some is damaged, and not read in part.
pub(super) fn read(
    connection: &Connection,
    database: &Database,
    thread: &ThreadId,
    after: Seq,
    most: usize,
) -> Result<Vec<Arc<Record>>, Trouble> {
    let mut find = connection.prepare_cached("SELECT number, head FROM threads WHERE id = ?1")?;
    let found: Option<(i64, i64)> = find.query_row([thread.as_str()], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let Some((number, head)) = found else { return Ok(Vec::new()) };
    let (after, most) = (signed(after.0), limit(most));
    let there = head.saturating_sub(after).clamp(0, most);
    let mut records = Vec::with_capacity(usize::try_from(there).unwrap_or_default().min(65_536));
    let sql = "SELECT seq, body FROM records WHERE thread = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3";
    let mut select = connection.prepare_cached(sql)?;
    let mut rows = select.query((number, after, most))?;
    while let Some(row) = rows.next()? {
        records.push(parse(row, database, thread)?);
    }
    if limit(records.len()) != there {
        let missing = format!("{there} records were written and {} are left", records.len());
        return Err(database.unreadable(&format!("the journal of the thread {thread}"), &missing).into());
    }
    Ok(records)
}

pub(super) fn read_at(
    connection: &Connection,
    database: &Database,
    thread: &ThreadId,
    positions: &[Seq],
) -> Result<Vec<Arc<Record>>, Trouble> {
    let Some(number) = number(connection, thread)? else { return Ok(Vec::new()) };
    let mut select = connection.prepare_cached("SELECT seq, body FROM records WHERE thread = ?1 AND seq = ?2")?;
    let mut records = Vec::with_capacity(positions.len());
    for position in positions {
        let mut rows = select.query((number, signed(position.0)))?;
        if let Some(row) = rows.next()? {
            records.push(parse(row, database, thread)?);
        }
    }
    Ok(records)
}

fn parse(row: &rusqlite::Row<'_>, database: &Database, thread: &ThreadId) -> Result<Arc<Record>, Trouble> {
    let body = row.get_ref(1)?.as_bytes().map_err(rusqlite::Error::from)?;
    serde_json::from_slice(body).map(Arc::new).map_err(|error| {
        let seq: i64 = row.get(0).unwrap_or_default();
        database.unreadable(&format!("the record {seq} of the thread {thread}"), &error).into()
    })
}

pub(super) fn save_snapshot(writing: &mut Writing<'_>, thread: &ThreadId, fence: u64, snapshot: &Snapshot) -> Result<(), Trouble> {
    let row = owned(writing, thread, fence)?;
    let mut insert = writing.connection.prepare_cached("INSERT OR REPLACE INTO snapshots (thread, at, body) VALUES (?1, ?2, ?3)")?;
    insert.execute((row.number, snapshot.at.0.cast_signed(), &*snapshot.text))?;
    Ok(())
}

pub(super) fn snapshot(connection: &Connection, thread: &ThreadId) -> Result<Option<Snapshot>, Trouble> {
    let sql = "SELECT at, body FROM snapshots WHERE thread = (SELECT number FROM threads WHERE id = ?1)";
    let found = connection.prepare_cached(sql)?.query_row([thread.as_str()], |row| {
        let text: String = row.get(1)?;
        Ok(Snapshot { at: Seq(row.get::<_, i64>(0)?.cast_unsigned()), text: text.into() })
    });
    Ok(found.optional()?)
}

/// Deletes what a thread has, but for its claim.
pub(super) fn delete(writing: &mut Writing<'_>, thread: &ThreadId, fence: u64) -> Result<(), Trouble> {
    let number = owned(writing, thread, fence)?.number;
    for sql in [
        "DELETE FROM blobs WHERE number IN (SELECT blob FROM kept WHERE thread = ?1)
            AND NOT EXISTS (SELECT 1 FROM kept WHERE blob = blobs.number AND thread <> ?1)",
        "DELETE FROM kept WHERE thread = ?1",
        "DELETE FROM files WHERE thread = ?1",
        "DELETE FROM thread_values WHERE thread = ?1",
        "DELETE FROM timers WHERE thread = ?1",
        "DELETE FROM inbox WHERE thread = ?1",
        "DELETE FROM pending WHERE thread = ?1",
        "DELETE FROM snapshots WHERE thread = ?1",
        "DELETE FROM records WHERE thread = ?1",
        "UPDATE threads SET head = 0, posted = 0, taken = 0, agent = NULL, status = NULL, title = '', search = '', parent = NULL,
            forked_from = NULL, created_at = 0, changed_at = 0 WHERE number = ?1",
    ] {
        writing.connection.prepare_cached(sql)?.execute([number])?;
    }
    writing.news.push(News::Deleted(thread.clone()));
    Ok(())
}
