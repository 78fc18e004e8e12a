//! Programs to run and read: `cargo run -p toolwright-examples --bin weather`.
//!
//! They need no key: where a model would decide, a scripted one stands in, so that what happens is the same each time.
//! Give them a real one with `.model("provider/name")`.

/// The code of the guide to threads compiles.
#[cfg(doctest)]
#[doc = include_str!("../../docs/threads.md")]
mod threads_guide {}

/// The code of the guide to secrets compiles.
#[cfg(doctest)]
#[doc = include_str!("../../docs/secrets.md")]
mod secrets_guide {}

/// The code of the guide to approvals compiles.
#[cfg(doctest)]
#[doc = include_str!("../../docs/approvals.md")]
mod approvals_guide {}

/// The code of the guide to permissions compiles.
#[cfg(doctest)]
#[doc = include_str!("../../docs/permissions.md")]
mod permissions_guide {}

/// The code of the guide to stores compiles.
#[cfg(doctest)]
#[doc = include_str!("../../docs/stores.md")]
mod stores_guide {}

/// The code of the guide to hooks, guardrails and budgets compiles.
#[cfg(doctest)]
#[doc = include_str!("../../docs/guardrails.md")]
mod guardrails_guide {}

/// The code of the guide to tools of services compiles.
#[cfg(doctest)]
#[doc = include_str!("../../docs/integrations.md")]
mod integrations_guide {}

/// The code of the guide to commands and sandboxes compiles.
#[cfg(doctest)]
#[doc = include_str!("../../docs/shell.md")]
mod shell_guide {}

/// The code of the guide to the web compiles.
#[cfg(doctest)]
#[doc = include_str!("../../docs/web.md")]
mod web_guide {}

/// The code of the guide to workspaces compiles.
#[cfg(all(doctest, unix))]
#[doc = include_str!("../../docs/workspace.md")]
mod workspace_guide {}
