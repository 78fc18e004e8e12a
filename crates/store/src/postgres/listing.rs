//! The index: what is said of threads and pending decisions, in pages.

use std::fmt::Write as _;

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use toolwright_core::{Seq, ThreadId, Timestamp};
use toolwright_runtime::{Page, PendingApproval, StoreError, ThreadInfo, ThreadQuery, ThreadStatus, read_cursor};

use super::session::{Param, Pool, number};
use super::text::{compared, read};

const INFO: &str = "SELECT id, agent, status, title, parent, forked_from, created_at, changed_at, head FROM threads";

/// An id that stands in a table, which took only those that fit.
pub(super) fn thread_id(text: &str) -> Result<ThreadId, StoreError> {
    ThreadId::new(text).map_err(|error| StoreError::failed(format!("{error}; restore the store from a backup")))
}

fn info_of(row: &Row) -> Result<ThreadInfo, StoreError> {
    let failed = |error: tokio_postgres::Error| StoreError::failed(super::address::causes(&error));
    let text = |place: usize| row.try_get::<_, &str>(place).map_err(failed);
    let number = |place: usize| row.try_get::<_, i64>(place).map_err(failed);
    let thread = |place: usize| row.try_get::<_, Option<&str>>(place).map_err(failed)?.map(thread_id).transpose();
    let word = text(2)?;
    let status = ThreadStatus::from_word(word)
        .ok_or_else(|| StoreError::failed(format!("{word:?} is no state of a thread; restore the store from a backup")))?;
    Ok(ThreadInfo {
        id: thread_id(text(0)?)?,
        agent: text(1)?.to_owned(),
        status,
        title: text(3)?.to_owned(),
        parent: thread(4)?,
        forked_from: thread(5)?,
        created_at: Timestamp(number(6)?),
        changed_at: Timestamp(number(7)?),
        head: Seq(u64::try_from(number(8)?).unwrap_or_default()),
    })
}

async fn rows(pool: &Pool, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, StoreError> {
    pool.attempt(|session, _| async move { session.rows(sql, params).await.map_err(|error| pool.server.trouble(&error)) }).await
}

pub(super) async fn info(pool: &Pool, thread: &ThreadId) -> Result<Option<ThreadInfo>, StoreError> {
    rows(pool, &format!("{INFO} WHERE id = $1"), &[&thread.as_str()]).await?.first().map(info_of).transpose()
}

/// A statement that names only what is asked for, so that each has its own plan over its own index.
struct Asked<'a> {
    sql: String,
    params: Vec<Box<dyn ToSql + Sync + Send + 'a>>,
}

impl<'a> Asked<'a> {
    fn new(sql: &str) -> Self {
        Self { sql: sql.to_owned(), params: Vec::new() }
    }

    fn param(&mut self, value: impl ToSql + Sync + Send + 'a) -> String {
        self.params.push(Box::new(value));
        format!("${}", self.params.len())
    }

    /// Adds a condition, in which `$` stands for its parameter.
    fn whose(&mut self, condition: &str, value: impl ToSql + Sync + Send + 'a) {
        let param = self.param(value);
        self.and(&condition.replace('$', &param));
    }

    /// Adds that a pair of columns is beyond a cursor.
    fn beyond(&mut self, columns: &str, at: i64, id: impl ToSql + Sync + Send + 'a) {
        let (at, id) = (self.param(at), self.param(id));
        self.and(&format!("{columns} ({at}, {id})"));
    }

    fn and(&mut self, condition: &str) {
        let word = if self.sql.contains(" WHERE ") { "AND" } else { "WHERE" };
        // Writing to a string does not fail.
        let _ = write!(self.sql, " {word} {condition}");
    }

    /// Ends the statement. One more row than a page has tells whether another page follows.
    fn page(&mut self, order: &str, limit: usize) {
        let limit = self.param(number(limit as u64).saturating_add(1));
        let _ = write!(self.sql, " ORDER BY {order} LIMIT {limit}");
    }

    fn params(&self) -> Vec<Param<'_>> {
        self.params.iter().map(|param| &**param as Param<'_>).collect()
    }
}

/// The statement of a page of threads.
fn asked(query: &ThreadQuery) -> Result<Asked<'_>, StoreError> {
    let mut asked = Asked::new(INFO);
    if let Some(status) = query.status {
        // As a literal: only then does the server see that the index of unfinished threads has all of them.
        asked.and(&format!("status = '{}'", status.as_str()));
    }
    if let Some(agent) = &query.agent {
        asked.whose("agent = $", agent.as_str());
    }
    if let Some(parent) = &query.parent {
        asked.whose("parent = $", parent.as_str());
    }
    if let Some(text) = &query.text {
        asked.whose("(position($ IN title_lower) > 0 OR position($ IN id_lower) > 0)", text.to_lowercase());
    }
    if let Some(moment) = query.changed_before {
        asked.whose("changed_at < $", moment.0);
    }
    if let Some(cursor) = &query.cursor {
        let (at, id) = read_cursor(cursor)?;
        asked.beyond("(changed_at, id) <", at, id);
    }
    asked.page("changed_at DESC, id DESC", query.limit);
    Ok(asked)
}

pub(super) async fn threads(pool: &Pool, query: &ThreadQuery) -> Result<Page<ThreadInfo>, StoreError> {
    let asked = asked(query)?;
    let odd = |text: &Option<String>| text.as_ref().is_some_and(|text| text.contains('\0'));
    if query.limit == 0 || odd(&query.text) || odd(&query.agent) {
        // The server has no U+0000, so nothing there has it.
        return Ok(Page::default());
    }
    let found = rows(pool, &asked.sql, &asked.params()).await?;
    Ok(Page::of(found.iter().map(info_of).collect::<Result<_, _>>()?, query.limit, ThreadInfo::cursor))
}

pub(super) async fn unfinished(pool: &Pool, after: Option<&ThreadId>, limit: usize) -> Result<Vec<ThreadId>, StoreError> {
    let sql = "
        (SELECT id FROM threads WHERE status = 'in-progress' AND id > $1 ORDER BY id LIMIT $2)
        UNION
        (SELECT DISTINCT thread FROM inbox WHERE NOT taken AND thread > $1 ORDER BY thread LIMIT $2)
        ORDER BY id LIMIT $2";
    let after = after.map_or("", ThreadId::as_str);
    let found = rows(pool, sql, &[&after, &number(limit as u64)]).await?;
    let id = |row: &Row| thread_id(row.try_get(0).map_err(|error| pool.server.failed(super::address::causes(&error)))?);
    found.iter().map(id).collect()
}

/// The statement of a page of pending decisions.
fn asked_pending<'a>(thread: Option<&'a ThreadId>, cursor: Option<&'a str>, limit: usize) -> Result<Asked<'a>, StoreError> {
    let mut asked = Asked::new("SELECT thread, body FROM pending");
    if let Some(thread) = thread {
        asked.whose("thread = $", thread.as_str());
    }
    if let Some(cursor) = cursor {
        let (at, id) = read_cursor(cursor)?;
        asked.beyond("(asked_at, id) >", at, compared(id));
    }
    asked.page("asked_at, id", limit);
    Ok(asked)
}

pub(super) async fn pending(
    pool: &Pool,
    thread: Option<&ThreadId>,
    cursor: Option<&str>,
    limit: usize,
) -> Result<Page<PendingApproval>, StoreError> {
    let asked = asked_pending(thread, cursor, limit)?;
    let found = rows(pool, &asked.sql, &asked.params()).await?;
    let item = |row: &Row| {
        let failed = |error: tokio_postgres::Error| pool.server.failed(super::address::causes(&error));
        let thread = thread_id(row.try_get(0).map_err(failed)?)?;
        read("a pending decision", &thread, row.try_get(1).map_err(failed)?)
    };
    Ok(Page::of(found.iter().map(item).collect::<Result<_, _>>()?, limit, PendingApproval::cursor))
}

#[cfg(test)]
#[path = "listing_tests.rs"]
mod tests;
