//! Stores of threads.
//!
//! - `sqlite` (feature): a file on one machine, which processes share.
//! - `postgres` (feature): a server that several machines share.
//! - `suite` (feature): what every store has to hold, for the tests of a store.

#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(feature = "suite")]
pub mod suite;
