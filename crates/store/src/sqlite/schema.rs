//! The file: how it is opened, what stands in it, and how an older one becomes a newer one.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use toolwright_runtime::StoreError;

use super::fault::{Database, Trouble};

/// How long a connection waits for another process to be done.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// `TwSt`: how a database of ours is told from that of another application.
const APPLICATION: i32 = 0x5477_5374;

/// No database is shorter than its smallest possible page.
const SMALLEST: u64 = 512;

/// After so many pages of its log the file itself is written. Not the usual thousand: what a step costs then is the same
/// from the beginning, and a log that is written over is cheaper than one that grows.
const CHECKPOINT_PAGES: i64 = 400;

/// What leads from each version of the schema to the next.
///
/// - `threads` has one row for each thread that was ever claimed or given anything. `fence`, `generation` and `beat` are the
///   claim's; the row stays when the thread is deleted, so that no fencing number is used twice. The rest is the index, which
///   each append keeps: one row, so that an append writes few pages. `agent` is null for a thread without a journal.
/// - `records` are appended to the end of their table whatever their thread, and found through a small index. A table
///   ordered by thread and position was measured too: a group commit of a hundred threads then writes three times the bytes,
///   and reading a journal is no faster.
/// - Payloads are text as it was given, or bytes. What they hold stands in columns only where it is searched for.
const MIGRATIONS: &[&str] = &["
    CREATE TABLE threads (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        fence INTEGER NOT NULL DEFAULT 0,
        generation INTEGER NOT NULL DEFAULT 0,
        beat INTEGER NOT NULL DEFAULT 0,
        head INTEGER NOT NULL DEFAULT 0,
        posted INTEGER NOT NULL DEFAULT 0,
        taken INTEGER NOT NULL DEFAULT 0,
        agent TEXT,
        status TEXT,
        title TEXT NOT NULL DEFAULT '',
        search TEXT NOT NULL DEFAULT '',
        parent TEXT,
        forked_from TEXT,
        created_at INTEGER NOT NULL DEFAULT 0,
        changed_at INTEGER NOT NULL DEFAULT 0
    );
    CREATE INDEX threads_listed ON threads (status, changed_at, id);
    CREATE INDEX threads_of_parent ON threads (parent) WHERE parent IS NOT NULL;
    CREATE INDEX threads_unfinished ON threads (id) WHERE status = 'in-progress' OR posted > taken;

    CREATE TABLE records (place INTEGER PRIMARY KEY, thread INTEGER NOT NULL, seq INTEGER NOT NULL, body TEXT NOT NULL);
    CREATE UNIQUE INDEX records_of_thread ON records (thread, seq);

    CREATE TABLE snapshots (thread INTEGER PRIMARY KEY, at INTEGER NOT NULL, body TEXT NOT NULL);

    CREATE TABLE pending (
        thread INTEGER NOT NULL, call TEXT NOT NULL, asked_at INTEGER NOT NULL, approval TEXT NOT NULL, body TEXT NOT NULL,
        PRIMARY KEY (thread, call)
    );
    CREATE INDEX pending_by_age ON pending (asked_at, approval);

    CREATE TABLE inbox (
        thread INTEGER NOT NULL, position INTEGER NOT NULL, key TEXT NOT NULL, item TEXT NOT NULL,
        PRIMARY KEY (thread, position)
    );
    CREATE UNIQUE INDEX inbox_of_key ON inbox (thread, key);

    CREATE TABLE timers (
        thread INTEGER NOT NULL, key TEXT NOT NULL, at INTEGER NOT NULL, item TEXT NOT NULL,
        PRIMARY KEY (thread, key)
    );
    CREATE INDEX timers_due ON timers (at);

    CREATE TABLE thread_values (
        thread INTEGER NOT NULL, shelf TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,
        PRIMARY KEY (thread, shelf, key)
    );

    CREATE TABLE files (
        thread INTEGER NOT NULL, path TEXT NOT NULL, entry TEXT NOT NULL,
        PRIMARY KEY (thread, path)
    );

    CREATE TABLE blobs (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, bytes BLOB NOT NULL);
    CREATE TABLE kept (thread INTEGER NOT NULL, blob INTEGER NOT NULL, PRIMARY KEY (thread, blob)) WITHOUT ROWID;
    CREATE INDEX kept_by_blob ON kept (blob);
"];

/// Opens the connection that writes. The file is made if there is none, and brought to this version's schema; one that is not
/// ours is left as it is.
pub(super) fn open_writer(path: &Path, database: &Database, max_bytes: Option<u64>) -> Result<Connection, StoreError> {
    // Nothing but SQLite opens the file: by the rules of POSIX, closing it would free the locks that SQLite has on it in this process.
    if path.is_dir() {
        return Err(StoreError::invalid(format!("the store {database} is a folder; name a file in it")));
    }
    // SQLite takes a file of one byte for an empty one, and would write over it.
    if std::fs::metadata(path).is_ok_and(|file| (1..SMALLEST).contains(&file.len())) {
        return Err(database.no_database());
    }
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let has_log = std::fs::metadata(log).is_ok_and(|log| log.len() > 0);
    let opened = connect(path, OpenFlags::SQLITE_OPEN_CREATE).and_then(|connection| {
        // Until it is known to be ours, not even a log that is there is folded into it.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, has_log)?;
        let version = version(&connection, database)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
        if connection.is_readonly(rusqlite::MAIN_DB)? {
            let read_only = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_READONLY);
            return Err(rusqlite::Error::SqliteFailure(read_only, None).into());
        }
        write_ahead(&connection, database)?;
        settings(&connection)?;
        if let Some(bytes) = max_bytes {
            let page: i64 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
            let pages = i64::try_from(bytes).unwrap_or(i64::MAX) / page.max(1);
            connection.pragma_update_and_check(None, "max_page_count", pages.max(1), |_| Ok(()))?;
        }
        if version < MIGRATIONS.len() {
            migrate(&connection, database)?;
        }
        Ok(connection)
    });
    opened.map_err(|trouble| database.error(trouble))
}

/// A database that lives in one connection.
pub(super) fn open_in_memory(database: &Database) -> Result<Connection, StoreError> {
    let opened = Connection::open_in_memory().map_err(Trouble::from).and_then(|connection| {
        settings(&connection)?;
        migrate(&connection, database)?;
        Ok(connection)
    });
    opened.map_err(|trouble| database.error(trouble))
}

/// Opens a connection that only reads. The file is there, and of this version's schema.
pub(super) fn open_reader(path: &Path, database: &Database) -> Result<Connection, StoreError> {
    let opened = connect(path, OpenFlags::empty()).and_then(|connection| {
        settings(&connection)?;
        connection.pragma_update(None, "query_only", true)?;
        Ok(connection)
    });
    opened.map_err(|trouble| database.error(trouble))
}

fn connect(path: &Path, more: OpenFlags) -> Result<Connection, Trouble> {
    // One thread has one connection. No flag for URIs: a path is a path, whatever characters it has.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_EXRESCODE | more;
    let mut connection = Connection::open_with_flags(path, flags)?;
    // SQLite's own way of waiting sleeps longer and longer, up to a tenth of a second. Beside a process that writes all the
    // time it would seldom look in the moment between two commits.
    let mut since = Instant::now();
    connection.busy_handler(Some(move |before: i32| {
        if before == 0 {
            since = Instant::now();
        }
        std::thread::sleep(Duration::from_millis(1));
        since.elapsed() < BUSY_TIMEOUT
    }))?;
    Ok(connection)
}

fn settings(connection: &Connection) -> Result<(), Trouble> {
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update_and_check(None, "wal_autocheckpoint", CHECKPOINT_PAGES, |_| Ok(()))?;
    connection.set_prepared_statement_cache_capacity(128);
    Ok(())
}

/// The schema's version, of a database that is ours or empty.
fn version(connection: &Connection, database: &Database) -> Result<usize, Trouble> {
    let (application, version, tables): (i32, i64, i64) = connection.query_row(
        "SELECT (SELECT application_id FROM pragma_application_id), (SELECT user_version FROM pragma_user_version),
            (SELECT count(*) FROM sqlite_schema)",
        [],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )?;
    let is_new = application == 0 && version == 0 && tables == 0;
    if application != APPLICATION && !is_new {
        return Err(StoreError::invalid(format!(
            "the database {database} belongs to another application and was left as it is; name another file"
        ))
        .into());
    }
    let known = MIGRATIONS.len();
    usize::try_from(version).ok().filter(|version| *version <= known).ok_or_else(|| {
        StoreError::invalid(format!(
            "the database {database} has the schema version {version}, and this version of Toolwright knows those up to {known}; \
             use a newer Toolwright, or another file"
        ))
        .into()
    })
}

/// Readers and the writer don't hinder each other then, and a commit costs one flush.
fn write_ahead(connection: &Connection, database: &Database) -> Result<(), Trouble> {
    let since = Instant::now();
    loop {
        // Where two processes switch a new file at once, one of them is told so without having waited.
        match connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0)) {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(mode) => {
                return Err(StoreError::failed(format!(
                    "the database {database} can't have a write-ahead log (its journal mode stays {mode:?}); keep it on a local disk"
                ))
                .into());
            }
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && since.elapsed() < BUSY_TIMEOUT => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// All of it in one transaction: a crash leaves the version that was.
fn migrate(connection: &Connection, database: &Database) -> Result<(), Trouble> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let migrated = (|| {
        // Another process may have been faster.
        let from = version(connection, database)?;
        for script in MIGRATIONS.iter().skip(from) {
            connection.execute_batch(script)?;
        }
        connection.pragma_update(None, "application_id", APPLICATION)?;
        connection.pragma_update(None, "user_version", MIGRATIONS.len() as i64)?;
        Ok(connection.execute_batch("COMMIT")?)
    })();
    if migrated.is_err() && !connection.is_autocommit() {
        connection.execute_batch("ROLLBACK")?;
    }
    migrated
}
