//! Stores of threads.
//!
//! - `sqlite` (feature): a file on one machine, which processes share.
//! - `postgres` (feature): a server that several machines share.
//! - `suite` (feature): what every store has to hold, for the tests of a store.
//!
//! [`open`] opens any of them by its address.

mod place;

#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(feature = "suite")]
pub mod suite;

use std::sync::Arc;

use toolwright_runtime::{Store, StoreError};

pub use place::{Opened, Place};

/// Opens a store by its address: `sqlite:PATH` or a plain path for a file, which is made if it is not there;
/// `postgres://user:password@host/database` for a server; `memory:` for one that is gone with the process.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let store = toolwright_store::open("memory:").await?;
/// assert_eq!(store.info(&toolwright_core::ThreadId::new("chat-42").unwrap()).await?, None);
/// # Ok::<_, toolwright_runtime::StoreError>(())
/// # }).unwrap();
/// ```
///
/// # Errors
///
/// [`StoreError::Invalid`] for an address of another form, or of a store that this build does not have; else what the store says.
pub async fn open(address: &str) -> Result<Arc<dyn Store>, StoreError> {
    Ok(Place::read(address)?.open().await?.store())
}
