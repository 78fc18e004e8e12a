//! Outbound HTTP. Nothing but this module builds an HTTP client.
//!
//! [`Client`] is for endpoints that a developer or an operator chose: model providers. It checks no address. [`GuardedClient`] is for
//! addresses that a model, a page or a tool's arguments wrote: it reaches public addresses only, and bounds all that comes back.

mod address;
mod body;
mod client;
mod connect;
mod decode;
mod error;
mod guarded;
mod map;
mod message;
mod ranges;
mod resolve;
mod target;

pub use address::{SpecialRange, special_range};
pub use body::{GuardedBody, ReadBody};
pub use client::Client;
pub use error::{GuardConfigError, GuardError};
pub use guarded::{GuardedClient, GuardedClientBuilder, GuardedResponse};
pub use map::NetMap;
pub use message::{Body, Header, NetError, Request, Response, USER_AGENT, host_of};
pub use resolve::{Resolver, SystemResolver};
pub use url::Url;

#[cfg(test)]
mod tests;
