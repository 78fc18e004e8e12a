//! What threads keep beside their journals.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use toolwright_core::ThreadId;
use toolwright_runtime::{BlobId, FileChange, FileEntry, Shelf, StoreError};

use super::journal::fenced_unless;
use super::session::{Param, Pool, number};
use super::text::{key, range, read, written};

/// The largest content, in bytes. PostgreSQL's own bound on a message is twice as much.
const LARGEST: usize = 512 << 20;

/// The only row's only column.
async fn text(pool: &Pool, sql: &str, params: &[Param<'_>]) -> Result<Option<String>, StoreError> {
    pool.attempt(|session, _| async move {
        let failed = |error: tokio_postgres::Error| pool.server.trouble(&error);
        session.row(sql, params).await.map_err(failed)?.map(|row| row.try_get(0)).transpose().map_err(failed)
    })
    .await
}

/// Rows of a key and a text.
async fn keyed(pool: &Pool, sql: &str, params: &[Param<'_>]) -> Result<Vec<(String, String)>, StoreError> {
    let rows = pool.attempt(|session, _| async move {
        let failed = |error: tokio_postgres::Error| pool.server.trouble(&error);
        let rows = session.rows(sql, params).await.map_err(failed)?;
        let row = |row: &tokio_postgres::Row| Ok((row.try_get::<_, Vec<u8>>(0)?, row.try_get::<_, String>(1)?));
        rows.iter().map(row).collect::<Result<Vec<_>, _>>().map_err(failed)
    });
    let of = |(key, text)| {
        Ok((String::from_utf8(key).map_err(|_| pool.server.failed("a key is no text; restore the store from a backup"))?, text))
    };
    rows.await?.into_iter().map(of).collect()
}

pub(super) async fn value(pool: &Pool, thread: &ThreadId, shelf: Shelf, key: &str) -> Result<Option<Arc<str>>, StoreError> {
    let sql = "SELECT value FROM shelves WHERE thread = $1 AND shelf = $2 AND key = $3";
    Ok(text(pool, sql, &[&thread.as_str(), &shelf.as_str(), &key.as_bytes()]).await?.map(Into::into))
}

pub(super) async fn set_value(
    pool: &Pool,
    thread: &ThreadId,
    shelf: Shelf,
    name: &str,
    value: Option<Arc<str>>,
    fence: Option<u64>,
) -> Result<(), StoreError> {
    if let Some(value) = &value {
        StoreError::refuse_nul("value", value)?;
    }
    let sql = "SELECT set_value($1, $2, $3, $4, $5)";
    let fence = fence.map(number);
    let done = pool.says(sql, &[&thread.as_str(), &fence, &shelf.as_str(), &key("key", name)?, &value.as_deref()]).await?;
    fenced_unless(done, thread)
}

pub(super) async fn values(
    pool: &Pool,
    thread: &ThreadId,
    shelf: Shelf,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<(String, Arc<str>)>, StoreError> {
    let sql = "SELECT key, value FROM shelves WHERE thread = $1 AND shelf = $2 AND key >= $3 AND key < $4 ORDER BY key LIMIT $5";
    let (from, to) = range(prefix, after);
    let found = keyed(pool, sql, &[&thread.as_str(), &shelf.as_str(), &from, &to, &number(limit as u64)]).await?;
    Ok(found.into_iter().map(|(key, value)| (key, value.into())).collect())
}

pub(super) async fn keep_blob(pool: &Pool, thread: &ThreadId, bytes: &Bytes, fence: Option<u64>) -> Result<BlobId, StoreError> {
    if bytes.len() > LARGEST {
        let (found, most) = (bytes.len(), LARGEST);
        return Err(StoreError::failed(format!(
            "content of {found} bytes is too large for PostgreSQL, which takes {most}; refer to it by a link"
        )));
    }
    let id = BlobId::of(bytes);
    let fence = fence.map(number);
    // Most content that is given again is large, so its address goes first alone.
    for content in [None, Some(&**bytes)] {
        let params: [Param<'_>; 4] = [&thread.as_str(), &fence, &id.as_str(), &content];
        let params = &params;
        let outcome = pool.attempt_heavy(|session, _| async move {
            let failed = |error: tokio_postgres::Error| pool.server.trouble(&error);
            let row = session.row("SELECT keep_blob($1, $2, $3, $4)", params).await.map_err(failed)?;
            row.map(|row| row.try_get::<_, String>(0)).transpose().map_err(failed)
        });
        match outcome.await?.as_deref() {
            Some("kept") => return Ok(id),
            Some("fenced") => break,
            _ => {}
        }
    }
    Err(StoreError::Fenced { thread: thread.clone() })
}

pub(super) async fn blob(pool: &Pool, thread: &ThreadId, id: &BlobId) -> Result<Option<Bytes>, StoreError> {
    let sql = "SELECT b.bytes FROM kept k JOIN blobs b ON b.id = k.blob WHERE k.thread = $1 AND k.blob = $2";
    let found = pool.attempt_heavy(|session, _| async move {
        let failed = |error: tokio_postgres::Error| pool.server.trouble(&error);
        let row = session.row(sql, &[&thread.as_str(), &id.as_str()]).await.map_err(failed)?;
        row.map(|row| row.try_get::<_, Vec<u8>>(0)).transpose().map_err(failed)
    });
    Ok(found.await?.map(Bytes::from))
}

pub(super) async fn change_files(pool: &Pool, thread: &ThreadId, changes: &[FileChange], fence: Option<u64>) -> Result<(), StoreError> {
    let fence = fence.map(number);
    // One after the other: the last change of a path counts.
    let mut last: BTreeMap<&[u8], Option<String>> = BTreeMap::new();
    let (mut blobs, mut of) = (Vec::new(), Vec::new());
    for change in changes {
        match change {
            FileChange::Put(entry) => {
                last.insert(key("path", &entry.path)?, Some(written("a file's entry", entry)?));
                if let Some(blob) = &entry.blob {
                    blobs.push(blob.as_str());
                    of.push(entry.path.as_str());
                }
            }
            FileChange::Remove(path) => drop(last.insert(path.as_bytes(), None)),
        }
    }
    let (paths, entries): (Vec<&[u8]>, Vec<Option<String>>) = last.into_iter().unzip();
    let params: [Param<'_>; 5] = [&thread.as_str(), &fence, &paths, &entries, &blobs];
    let params = &params;
    let (outcome, place) = pool
        .attempt(|session, _| async move {
            let failed = |error: tokio_postgres::Error| pool.server.trouble(&error);
            let row = session.row("SELECT outcome, place FROM change_files($1, $2, $3, $4, $5)", params).await.map_err(failed)?;
            let Some(row) = row else { return Err(pool.server.failed("a change of files had no answer").into()) };
            Ok((row.try_get::<_, String>(0).map_err(failed)?, row.try_get::<_, i64>(1).map_err(failed)?))
        })
        .await?;
    match outcome.as_str() {
        "changed" => Ok(()),
        "missing" => {
            let path = usize::try_from(place - 1).ok().and_then(|place| of.get(place)).copied().unwrap_or_default();
            Err(StoreError::failed(format!("the content of {path} was not kept before")))
        }
        _ => Err(StoreError::Fenced { thread: thread.clone() }),
    }
}

pub(super) async fn file(pool: &Pool, thread: &ThreadId, path: &str) -> Result<Option<FileEntry>, StoreError> {
    let sql = "SELECT entry FROM files WHERE thread = $1 AND path = $2";
    let found = text(pool, sql, &[&thread.as_str(), &path.as_bytes()]).await?;
    found.map(|text| read("a file's entry", thread, &text)).transpose()
}

pub(super) async fn files(
    pool: &Pool,
    thread: &ThreadId,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<FileEntry>, StoreError> {
    let sql = "SELECT path, entry FROM files WHERE thread = $1 AND path >= $2 AND path < $3 ORDER BY path LIMIT $4";
    let (from, to) = range(prefix, after);
    let found = keyed(pool, sql, &[&thread.as_str(), &from, &to, &number(limit as u64)]).await?;
    found.iter().map(|(_, text)| read("a file's entry", thread, text)).collect()
}

pub(super) async fn copy(pool: &Pool, from: &ThreadId, to: &ThreadId) -> Result<(), StoreError> {
    let sql = "SELECT TRUE FROM copy_kept($1, $2)";
    pool.says_heavy(sql, &[&from.as_str(), &to.as_str()]).await.map(drop)
}
