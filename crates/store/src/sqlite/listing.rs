//! Lists of threads and of pending decisions, a page at a time, each from an index that is in the order of the list.

use rusqlite::{Connection, Row, params};
use toolwright_core::{Seq, ThreadId, Timestamp};
use toolwright_runtime::{Page, PendingApproval, ThreadInfo, ThreadQuery, ThreadStatus, read_cursor};

use super::fault::{Database, Trouble};
use super::journal::{limit, unsigned};

/// What [`info_of`] reads.
pub(super) const INFO: &str = "id, agent, status, title, parent, forked_from, created_at, changed_at, head";

/// Greater than any thread's id.
const BEYOND_IDS: &str = "~";

pub(super) fn info_of(row: &Row<'_>, database: &Database) -> Result<ThreadInfo, Trouble> {
    let id = |text: String| ThreadId::new(text).map_err(|error| database.unreadable("a thread's id", &error));
    let optional = |text: Option<String>| text.map(id).transpose();
    let status: String = row.get(2)?;
    Ok(ThreadInfo {
        id: id(row.get(0)?)?,
        agent: row.get(1)?,
        status: ThreadStatus::from_word(&status).ok_or_else(|| database.unreadable("a thread's status", &format!("{status:?}")))?,
        title: row.get(3)?,
        parent: optional(row.get(4)?)?,
        forked_from: optional(row.get(5)?)?,
        created_at: Timestamp(row.get(6)?),
        changed_at: Timestamp(row.get(7)?),
        head: Seq(unsigned(row.get(8)?)),
    })
}

pub(super) fn info(connection: &Connection, database: &Database, thread: &ThreadId) -> Result<Option<ThreadInfo>, Trouble> {
    let mut select = connection.prepare_cached(&format!("SELECT {INFO} FROM threads WHERE id = ?1 AND agent IS NOT NULL"))?;
    let mut rows = select.query([thread.as_str()])?;
    rows.next()?.map(|row| info_of(row, database)).transpose()
}

/// The threads of a state, from an index that is in their order; the few of one parent are sorted instead.
fn threads_sql(of_parent: bool) -> String {
    let of_parent = if of_parent { "parent = ?4 AND +status = ?1" } else { "?4 IS NULL AND status = ?1" };
    format!(
        "SELECT {INFO} FROM threads WHERE {of_parent} AND (changed_at, id) < (?2, ?3) AND (?5 IS NULL OR agent = ?5)
            AND (?6 IS NULL OR instr(lower(id), ?6) > 0 OR instr(search, ?6) > 0)
            ORDER BY changed_at DESC, id DESC LIMIT ?7"
    )
}

/// The threads of each state are in order in one index; what is asked of several states is merged from them.
pub(super) fn threads(connection: &Connection, database: &Database, query: &ThreadQuery) -> Result<Page<ThreadInfo>, Trouble> {
    let mut before = (i64::MAX, BEYOND_IDS);
    if let Some(cursor) = &query.cursor {
        before = read_cursor(cursor)?;
    }
    if let Some(moment) = query.changed_before {
        before = before.min((moment.0, ""));
    }
    let sql = threads_sql(query.parent.is_some());
    let text = query.text.as_ref().map(|text| text.to_lowercase());
    let parent = query.parent.as_ref().map(ThreadId::as_str);
    let mut found = Vec::new();
    for status in [ThreadStatus::InProgress, ThreadStatus::AwaitingApproval, ThreadStatus::Finished] {
        if query.status.is_some_and(|wanted| wanted != status) {
            continue;
        }
        let mut select = connection.prepare_cached(&sql)?;
        let most = limit(query.limit).saturating_add(1);
        let mut rows = select.query(params![status.as_str(), before.0, before.1, parent, query.agent, text, most])?;
        while let Some(row) = rows.next()? {
            found.push(info_of(row, database)?);
        }
    }
    found.sort_by(|a, b| (b.changed_at, &b.id).cmp(&(a.changed_at, &a.id)));
    Ok(Page::of(found, query.limit, ThreadInfo::cursor))
}

/// Its condition is that of the index which has these threads alone.
const UNFINISHED: &str = "SELECT id FROM threads WHERE (status = 'in-progress' OR posted > taken) AND id > ?1 ORDER BY id LIMIT ?2";

pub(super) fn unfinished(
    connection: &Connection,
    database: &Database,
    after: Option<&ThreadId>,
    most: usize,
) -> Result<Vec<ThreadId>, Trouble> {
    let mut select = connection.prepare_cached(UNFINISHED)?;
    let rows = select.query_map((after.map_or("", ThreadId::as_str), limit(most)), |row| row.get::<_, String>(0))?;
    let mut threads = Vec::new();
    for id in rows {
        threads.push(ThreadId::new(id?).map_err(|error| database.unreadable("a thread's id", &error))?);
    }
    Ok(threads)
}

/// Pending decisions, from an index that is in their order; those of one thread are sorted instead.
fn pending_sql(of_thread: bool) -> String {
    let of_thread = if of_thread {
        "thread = (SELECT number FROM threads WHERE id = ?4) AND (+asked_at, approval)"
    } else {
        "?4 IS NULL AND (asked_at, approval)"
    };
    format!("SELECT body FROM pending WHERE {of_thread} > (?1, ?2) ORDER BY asked_at, approval LIMIT ?3")
}

pub(super) fn pending(
    connection: &Connection,
    database: &Database,
    thread: Option<&ThreadId>,
    cursor: Option<&str>,
    most: usize,
) -> Result<Page<PendingApproval>, Trouble> {
    let after = cursor.map_or(Ok((i64::MIN, "")), read_cursor)?;
    let sql = pending_sql(thread.is_some());
    let mut select = connection.prepare_cached(&sql)?;
    let one_more = limit(most).saturating_add(1);
    let mut rows = select.query((after.0, after.1, one_more, thread.map(ThreadId::as_str)))?;
    let mut found: Vec<PendingApproval> = Vec::new();
    while let Some(row) = rows.next()? {
        let body = row.get_ref(0)?.as_bytes().map_err(rusqlite::Error::from)?;
        found.push(serde_json::from_slice(body).map_err(|error| database.unreadable("a pending decision", &error))?);
    }
    Ok(Page::of(found, most, PendingApproval::cursor))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::sqlite::schema;

    /// How SQLite would answer a query.
    fn plan(sql: &str) -> String {
        let connection = schema::open_in_memory(&Database::of(Path::new(":memory:"))).unwrap();
        let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let steps = explain.raw_query().mapped(|row| row.get::<_, String>(3));
        steps.map(Result::unwrap).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn pages_are_read_off_an_index_that_is_in_their_order() {
        for (sql, index) in [
            (threads_sql(false), "threads USING INDEX threads_listed (status=? AND (changed_at,id)<(?,?))"),
            (pending_sql(false), "pending USING INDEX pending_by_age ((asked_at,approval)>(?,?))"),
            (UNFINISHED.to_owned(), "threads USING INDEX threads_unfinished (id>?)"),
        ] {
            let plan = plan(&sql);
            assert!(plan.contains(index) && !plan.contains("TEMP B-TREE"), "{plan}");
        }
        for (sql, index) in [
            (threads_sql(true), "threads USING INDEX threads_of_parent (parent=?)"),
            (pending_sql(true), "pending USING INDEX sqlite_autoindex_pending_1 (thread=?)"),
        ] {
            let plan = plan(&sql);
            assert!(plan.contains(index), "{plan}");
        }
    }
}
