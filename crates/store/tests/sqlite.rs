//! The SQLite store: what every store has to show, in a file and in memory.
#![cfg(all(feature = "sqlite", feature = "suite"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use toolwright_runtime::Store;
use toolwright_store::sqlite::{Sqlite, SqliteOptions};
use toolwright_store::suite::{Fixture, Opened};

async fn opened(options: SqliteOptions, path: &Path) -> Result<Arc<dyn Store>, String> {
    let store = options.open(path).await.map_err(|error| error.to_string())?;
    Ok(Arc::new(store) as Arc<dyn Store>)
}

/// A file in a folder of its own.
struct InFile(tempfile::TempDir);

impl InFile {
    fn path(&self) -> std::path::PathBuf {
        self.0.path().join("threads.db")
    }
}

impl Fixture for InFile {
    fn open(&self) -> Opened<'_> {
        Box::pin(async { opened(Sqlite::options(), &self.path()).await })
    }

    fn open_with_limit(&self, limit: Duration) -> Option<Opened<'_>> {
        Some(Box::pin(async move { opened(Sqlite::options().claim_limit(limit), &self.path()).await }))
    }
}

struct InMemory;

impl Fixture for InMemory {
    fn open(&self) -> Opened<'_> {
        Box::pin(async { opened(Sqlite::options(), Path::new(":memory:")).await })
    }

    fn is_shared(&self) -> bool {
        false
    }
}

mod in_a_file {
    use super::InFile;

    toolwright_store::store_suite!(InFile(tempfile::tempdir().unwrap()));
}

mod in_memory {
    use super::InMemory;

    toolwright_store::store_suite!(InMemory);
}
