//! The stores that processes share here.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use toolwright_runtime::{Store, StoreError};
use toolwright_store::postgres::Postgres;
use toolwright_store::sqlite::Sqlite;

use crate::server::Server;

/// Where a store is; what is of this test alone is gone when this is.
pub(crate) struct Place {
    address: String,
    /// The schema, on a server.
    schema: String,
    limit: Option<Duration>,
    kind: &'static str,
    _folder: Option<tempfile::TempDir>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind)
    }
}

impl Place {
    pub(crate) fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let address = folder.path().join("threads.db").display().to_string();
        Self { address, schema: String::new(), limit: None, kind: "SQLite", _folder: Some(folder) }
    }

    /// `None` where there is no server: that was said.
    pub(crate) fn postgres() -> Option<Self> {
        let server = Server::shared()?;
        let (address, schema) = (server.url().to_owned(), server.fresh_name());
        Some(Self { address, schema, limit: None, kind: "PostgreSQL", _folder: None })
    }

    /// What a child opens the store with: address, schema and claim limit, with bars between.
    pub(crate) fn address(&self) -> String {
        let limit = self.limit.map(|limit| limit.as_millis().to_string()).unwrap_or_default();
        format!("{}|{}|{limit}", self.address, self.schema)
    }

    /// The file, of a store that is one.
    pub(crate) fn path(&self) -> std::path::PathBuf {
        self.address.clone().into()
    }

    /// The same, opened with another limit for owners that give no sign of life.
    pub(crate) fn with_claim_limit(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }
}

/// Opens the store of a [`Place::address`].
pub(crate) async fn open(address: &str) -> Result<Arc<dyn Store>, StoreError> {
    let [address, schema, limit] = address.split('|').collect::<Vec<_>>()[..] else { panic!("{address} has three parts") };
    let limit = limit.parse().map_or(toolwright_runtime::CLAIM_LIMIT, Duration::from_millis);
    if schema.is_empty() {
        return Ok(Arc::new(Sqlite::options().claim_limit(limit).open(address).await?));
    }
    Ok(Arc::new(Postgres::builder().schema(schema).claim_limit(limit).pool_size(4).connect(address).await?))
}
