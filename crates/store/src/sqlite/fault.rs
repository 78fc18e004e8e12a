//! What SQLite's errors mean for people.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rusqlite::ErrorCode;
use toolwright_runtime::StoreError;

use super::schema::BUSY_TIMEOUT;

/// Why a piece of work in the database was not done: it was refused, or the database failed.
#[derive(Debug)]
pub(super) enum Trouble {
    Refused(StoreError),
    Failed(rusqlite::Error),
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        Self::Failed(error)
    }
}

/// A database, as errors name it.
#[derive(Clone)]
pub(super) struct Database(Arc<str>);

impl Database {
    pub(super) fn of(path: &Path) -> Self {
        Self(path.display().to_string().into())
    }

    /// One sentence about a failure.
    pub(super) fn error(&self, trouble: Trouble) -> StoreError {
        match trouble {
            Trouble::Refused(error) => error,
            Trouble::Failed(error) if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) => self.no_database(),
            Trouble::Failed(error) => StoreError::failed(self.sentence(&error)),
        }
    }

    /// What is said of a file that is something else.
    pub(super) fn no_database(&self) -> StoreError {
        StoreError::invalid(format!("the file {self} is no SQLite database; name another file"))
    }

    fn sentence(&self, error: &rusqlite::Error) -> String {
        let Some(code) = error.sqlite_error_code() else {
            return format!("the database {self} holds what can't be read ({error}); it may be damaged: restore it from a copy");
        };
        match code {
            ErrorCode::DiskFull => {
                format!("there is no room left for the database {self}, so nothing was written; make room on its disk, then go on")
            }
            ErrorCode::ReadOnly => {
                format!("the database {self} can't be written, because it or its folder is read-only; make both writable")
            }
            ErrorCode::DatabaseCorrupt => {
                format!("the database {self} is damaged; restore it from a copy, or save what is left with `sqlite3 FILE .recover`")
            }
            ErrorCode::CannotOpen | ErrorCode::PermissionDenied => {
                format!("the database {self} can't be opened; see that its folder exists, and that both may be read and written")
            }
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => format!(
                "the database {self} was locked by another process for more than {} seconds; try again when that is done",
                BUSY_TIMEOUT.as_secs()
            ),
            ErrorCode::SystemIoFailure => {
                format!("the database {self} could not be read or written ({error}); look at its disk, then open it again")
            }
            ErrorCode::TooBig => format!("something is too large for the database {self}; keep less than a gigabyte in one piece"),
            _ => format!("the database {self} failed ({error}); open it again, and restore it from a copy if that does not help"),
        }
    }

    /// What is said of a record, or anything else kept as text, that can't be read back.
    pub(super) fn unreadable(&self, what: &str, error: &dyn fmt::Display) -> StoreError {
        StoreError::failed(format!("{what} in the database {self} can't be read ({error}); restore the database from a copy"))
    }

    /// What is said to whoever uses the store after its end.
    pub(super) fn closed(&self) -> StoreError {
        StoreError::failed(format!("the store {self} is closed; open it again"))
    }

    /// What is said when a thread that serves the store is gone or fell.
    pub(super) fn broken(&self, what: &str) -> StoreError {
        StoreError::failed(format!("{what} of the store {self} broke off; open the store again"))
    }
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    fn said(code: i32) -> String {
        let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
        Database::of(Path::new("threads.db")).error(error.into()).to_string()
    }

    #[test]
    fn each_failure_of_the_machine_has_its_sentence() {
        let cases = [
            (ffi::SQLITE_FULL, "no room left"),
            (ffi::SQLITE_READONLY_DIRECTORY, "read-only"),
            (ffi::SQLITE_CORRUPT_INDEX, "damaged"),
            (ffi::SQLITE_NOTADB, "no SQLite database"),
            (ffi::SQLITE_CANTOPEN, "can't be opened"),
            (ffi::SQLITE_BUSY_SNAPSHOT, "locked by another process for more than 5 seconds"),
            (ffi::SQLITE_IOERR_FSYNC, "could not be read or written"),
        ];
        for (code, holds) in cases {
            let said = said(code);
            assert!(said.contains(holds) && said.contains("threads.db"), "{code}: {said}");
        }
    }
}
