//! What threads keep beside their journals.

use std::sync::Arc;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, params};
use toolwright_core::ThreadId;
use toolwright_runtime::{BlobId, FileChange, FileEntry, Shelf, StoreError};

use super::fault::{Database, Trouble};
use super::journal::{number, number_or_new, owned};
use super::json;
use super::writer::Writing;

/// The number of a thread that is given something, under a claim or without.
fn giving(writing: &Writing<'_>, thread: &ThreadId, fence: Option<u64>) -> Result<i64, Trouble> {
    match fence {
        Some(fence) => Ok(owned(writing, thread, fence)?.number),
        None => number_or_new(writing, thread),
    }
}

pub(super) fn value(connection: &Connection, thread: &ThreadId, shelf: Shelf, key: &str) -> Result<Option<Arc<str>>, Trouble> {
    let sql = "SELECT value FROM thread_values WHERE thread = (SELECT number FROM threads WHERE id = ?1) AND shelf = ?2 AND key = ?3";
    let mut select = connection.prepare_cached(sql)?;
    let found = select.query_row((thread.as_str(), shelf.as_str(), key), |row| row.get::<_, Arc<str>>(0));
    Ok(found.optional()?)
}

pub(super) fn set_value(
    writing: &mut Writing<'_>,
    thread: &ThreadId,
    shelf: Shelf,
    key: &str,
    value: Option<&str>,
    fence: Option<u64>,
) -> Result<(), Trouble> {
    let number = giving(writing, thread, fence)?;
    let connection = writing.connection;
    if let Some(value) = value {
        let sql = "INSERT OR REPLACE INTO thread_values (thread, shelf, key, value) VALUES (?1, ?2, ?3, ?4)";
        connection.prepare_cached(sql)?.execute((number, shelf.as_str(), key, value))?;
    } else {
        let sql = "DELETE FROM thread_values WHERE thread = ?1 AND shelf = ?2 AND key = ?3";
        connection.prepare_cached(sql)?.execute((number, shelf.as_str(), key))?;
    }
    Ok(())
}

/// The rows of a thread whose name begins with `prefix` and comes after `after`, by name, in the byte order that SQLite
/// compares text by. `sql` is given the thread, the least name, and the most rows; it has to give the name first.
fn with_prefix<T>(
    connection: &Connection,
    sql: &str,
    (number, prefix, after, most): (i64, &str, Option<&str>, usize),
    shelf: Option<Shelf>,
    take: impl Fn(String, &rusqlite::Row<'_>) -> Result<T, Trouble>,
) -> Result<Vec<T>, Trouble> {
    let least = after.map_or(prefix, |after| after.max(prefix));
    let mut select = connection.prepare_cached(sql)?;
    let mut rows = select.query(params![number, least, shelf.map(Shelf::as_str)])?;
    let mut found = Vec::new();
    while found.len() < most
        && let Some(row) = rows.next()?
    {
        let name: String = row.get(0)?;
        if !name.starts_with(prefix) {
            break;
        }
        if after.is_none_or(|after| *name > *after) {
            found.push(take(name, row)?);
        }
    }
    Ok(found)
}

pub(super) fn values(
    connection: &Connection,
    thread: &ThreadId,
    shelf: Shelf,
    (prefix, after, most): (&str, Option<&str>, usize),
) -> Result<Vec<(String, Arc<str>)>, Trouble> {
    let Some(number) = number(connection, thread)? else { return Ok(Vec::new()) };
    let sql = "SELECT key, value FROM thread_values WHERE thread = ?1 AND key >= ?2 AND shelf = ?3 ORDER BY key";
    with_prefix(connection, sql, (number, prefix, after, most), Some(shelf), |key, row| Ok((key, row.get(1)?)))
}

pub(super) fn keep_blob(
    writing: &mut Writing<'_>,
    thread: &ThreadId,
    id: &BlobId,
    bytes: &[u8],
    fence: Option<u64>,
) -> Result<(), Trouble> {
    let number = giving(writing, thread, fence)?;
    let connection = writing.connection;
    let mut find = connection.prepare_cached("SELECT number FROM blobs WHERE id = ?1")?;
    let known: Option<i64> = find.query_row([id.as_str()], |row| row.get(0)).optional()?;
    let blob = if let Some(blob) = known {
        blob
    } else {
        connection.prepare_cached("INSERT INTO blobs (id, bytes) VALUES (?1, ?2)")?.execute((id.as_str(), bytes))?;
        connection.last_insert_rowid()
    };
    connection.prepare_cached("INSERT OR IGNORE INTO kept (thread, blob) VALUES (?1, ?2)")?.execute((number, blob))?;
    Ok(())
}

/// Names a blob of a thread: `?1` is its address, `?2` the thread's number.
const KEPT: &str = "FROM blobs JOIN kept ON kept.blob = blobs.number WHERE blobs.id = ?1 AND kept.thread = ?2";

pub(super) fn blob(connection: &Connection, thread: &ThreadId, id: &BlobId) -> Result<Option<Bytes>, Trouble> {
    let Some(number) = number(connection, thread)? else { return Ok(None) };
    let mut select = connection.prepare_cached(&format!("SELECT bytes {KEPT}"))?;
    let found = select.query_row((id.as_str(), number), |row| row.get::<_, Vec<u8>>(0));
    Ok(found.optional()?.map(Bytes::from))
}

/// A change of a file tree, with the entry as text.
pub(super) enum Change {
    Put { path: String, blob: Option<BlobId>, entry: String },
    Remove(String),
}

impl Change {
    pub(super) fn of(change: FileChange) -> Result<Self, StoreError> {
        match change {
            FileChange::Put(entry) => {
                StoreError::refuse_nul("path", &entry.path)?;
                let text = json(&format!("the entry of {}", entry.path), &entry)?;
                Ok(Self::Put { path: entry.path, blob: entry.blob, entry: text })
            }
            FileChange::Remove(path) => Ok(Self::Remove(path)),
        }
    }
}

pub(super) fn change_files(writing: &mut Writing<'_>, thread: &ThreadId, changes: &[Change], fence: Option<u64>) -> Result<(), Trouble> {
    let number = giving(writing, thread, fence)?;
    let connection = writing.connection;
    for change in changes {
        match change {
            Change::Put { path, blob, entry } => {
                if let Some(blob) = blob
                    && !connection.prepare_cached(&format!("SELECT 1 {KEPT}"))?.exists((blob.as_str(), number))?
                {
                    return Err(StoreError::failed(format!("the content of {path} was not kept before")).into());
                }
                let sql = "INSERT OR REPLACE INTO files (thread, path, entry) VALUES (?1, ?2, ?3)";
                connection.prepare_cached(sql)?.execute((number, path, entry))?;
            }
            Change::Remove(path) => {
                connection.prepare_cached("DELETE FROM files WHERE thread = ?1 AND path = ?2")?.execute((number, path))?;
            }
        }
    }
    Ok(())
}

fn entry(text: &str, database: &Database, path: &str) -> Result<FileEntry, Trouble> {
    serde_json::from_str(text).map_err(|error| database.unreadable(&format!("the entry of the file {path}"), &error).into())
}

pub(super) fn file(connection: &Connection, database: &Database, thread: &ThreadId, path: &str) -> Result<Option<FileEntry>, Trouble> {
    let sql = "SELECT entry FROM files WHERE thread = (SELECT number FROM threads WHERE id = ?1) AND path = ?2";
    let found = connection.prepare_cached(sql)?.query_row((thread.as_str(), path), |row| row.get::<_, String>(0)).optional()?;
    found.map(|text| entry(&text, database, path)).transpose()
}

pub(super) fn files(
    connection: &Connection,
    database: &Database,
    thread: &ThreadId,
    (prefix, after, most): (&str, Option<&str>, usize),
) -> Result<Vec<FileEntry>, Trouble> {
    let Some(number) = number(connection, thread)? else { return Ok(Vec::new()) };
    let sql = "SELECT path, entry FROM files WHERE thread = ?1 AND path >= ?2 AND ?3 IS NULL ORDER BY path";
    with_prefix(connection, sql, (number, prefix, after, most), None, |path, row| {
        let text = row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?;
        entry(text, database, &path)
    })
}

/// Content is stored once however many threads keep it, so a copy of it is a row.
pub(super) fn copy(writing: &mut Writing<'_>, from: &ThreadId, to: &ThreadId) -> Result<(), Trouble> {
    let Some(source) = number(writing.connection, from)? else { return Ok(()) };
    let target = number_or_new(writing, to)?;
    for sql in [
        "INSERT OR REPLACE INTO thread_values (thread, shelf, key, value) SELECT ?2, shelf, key, value FROM thread_values WHERE thread = ?1",
        "INSERT OR IGNORE INTO kept (thread, blob) SELECT ?2, blob FROM kept WHERE thread = ?1",
        "INSERT OR REPLACE INTO files (thread, path, entry) SELECT ?2, path, entry FROM files WHERE thread = ?1",
    ] {
        writing.connection.prepare_cached(sql)?.execute((source, target))?;
    }
    Ok(())
}
