//! The command as people and scripts meet it: these tests run the real binary. One program, as linking takes longer than running.

#![expect(clippy::disallowed_methods, reason = "these tests run the command")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::unreachable, clippy::indexing_slicing, reason = "a test that can't go on fails")]

mod approvals;
mod env;
#[cfg(feature = "local")]
mod local;
mod reference;
mod rewind;
mod rules;
mod run;
mod support;
mod threads;
mod toolbox;
mod tools;
mod usage;
mod web;
