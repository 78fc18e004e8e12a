//! The workspace's tools over real folders, rule by rule.
#![cfg(all(unix, feature = "workspace"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod changing;
mod desk;
mod patching;
mod reading;
mod rewinding;
mod searching;
