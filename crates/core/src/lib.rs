//! Vocabulary and decisions of Toolwright.
//!
//! No I/O, no clock, no randomness, no async: time and ids come in with records (invariant 1 of ARCHITECTURE.md).

pub mod args;
pub mod json;
pub mod rank;
pub mod schema;
