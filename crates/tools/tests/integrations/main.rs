//! The tools of services, each against a server of its own on a real socket: what is sent, and what a model gets.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

#[cfg(feature = "_integrations")]
mod call;
#[cfg(feature = "email")]
mod email;
#[cfg(feature = "github")]
mod github;
#[cfg(feature = "github")]
mod http;
#[cfg(feature = "jira")]
mod jira;
#[cfg(feature = "_http")]
mod server;
#[cfg(feature = "slack")]
mod slack;
#[cfg(feature = "email")]
mod smtp;
