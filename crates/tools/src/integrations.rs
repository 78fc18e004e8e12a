//! Tools of services that need credentials, each built with its options (sdk-tools 9.6).
//!
//! What reads is annotated `read_only`, what writes asks first; all are `open_world`, since what a service gives was written by others.
//! Tokens come from the tool's environment or from the options, see [`Credential`]; no argument, error or event carries one.
//!
//! - A service is reached under the address that the developer set. What a model writes (owners, repositories, issue keys, paths) is
//!   checked and encoded, so that it can't lead elsewhere.
//! - A rate limit that is over soon is waited for; otherwise the call fails and says when to try again.
//! - What only reads is tried again when a service stumbles. What writes is sent again only where the service said that it did nothing.
//!   Where nobody knows whether it was done, the failure says so.

mod credential;
#[cfg(feature = "email")]
mod email;
#[cfg(feature = "github")]
mod github;
#[cfg(feature = "_http")]
#[cfg_attr(not(all(feature = "github", feature = "jira", feature = "slack")), allow(dead_code, reason = "no service uses all of it"))]
mod http;
#[cfg(feature = "jira")]
mod jira;
mod option;
#[cfg(feature = "_http")]
mod rate;
#[cfg(feature = "_http")]
#[cfg_attr(not(all(feature = "github", feature = "jira", feature = "slack")), allow(dead_code, reason = "no service uses all of it"))]
mod refused;
#[cfg(feature = "_http")]
#[cfg_attr(not(all(feature = "github", feature = "jira", feature = "slack")), allow(dead_code, reason = "no service uses all of it"))]
mod set;
#[cfg_attr(not(all(feature = "github", feature = "jira", feature = "slack")), allow(dead_code, reason = "no service uses all of it"))]
mod shape;
#[cfg(feature = "slack")]
mod slack;

pub use credential::Credential;
#[cfg(feature = "email")]
pub use email::{Email, Security};
#[cfg(feature = "github")]
pub use github::GitHub;
#[cfg(feature = "jira")]
pub use jira::Jira;
pub use option::OptionError;
#[cfg(feature = "slack")]
pub use slack::Slack;
