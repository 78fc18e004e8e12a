//! Requests, responses, and why there was none.

use std::fmt;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use url::Url;

/// What requests say about who sent them.
pub const USER_AGENT: &str = concat!("toolwright/", env!("CARGO_PKG_VERSION"));

/// A request, ready to be sent.
#[derive(Clone)]
pub struct Request {
    /// `GET`, `POST` and so on.
    pub method: String,
    /// The whole address.
    pub url: String,
    /// Headers in order.
    pub headers: Vec<Header>,
    /// The body; empty for none.
    pub body: Bytes,
}

/// One header of a request.
#[derive(Clone)]
pub struct Header {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// Whether the value, or a part of it, is a secret.
    pub secret: bool,
}

impl Header {
    /// A header that anyone may read.
    pub fn plain(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { name: name.into(), value: value.into(), secret: false }
    }

    /// A header that carries a secret.
    pub fn secret(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { name: name.into(), value: value.into(), secret: true }
    }
}

impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, if self.secret { "[REDACTED]" } else { &self.value })
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("host", &host_of(&self.url))
            .field("headers", &self.headers)
            .field("body", &format_args!("{} bytes", self.body.len()))
            .finish()
    }
}

/// The body of a response as it comes in. Dropping it closes the connection when there is more to come.
pub type Body = BoxStream<'static, Result<Bytes, NetError>>;

/// A response: its head, and its body as a stream.
pub struct Response {
    /// The status code.
    pub status: u16,
    /// Headers in order, names in lower case. A value that is not text is left out.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Body,
}

impl Response {
    /// The first header of this name, in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response").field("status", &self.status).field("headers", &self.headers).finish_non_exhaustive()
    }
}

/// Why a request had no response, or its body broke off.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// The address can't be used.
    #[error("the address is not a usable http or https URL: {problem}")]
    Address {
        /// What is wrong with it.
        problem: String,
    },
    /// No connection.
    #[error("no connection to {host}: {problem}")]
    Connect {
        /// The host.
        host: String,
        /// What went wrong.
        problem: String,
    },
    /// The connection, or the whole request, took too long.
    #[error("{host} did not answer in time: {problem}")]
    Timeout {
        /// The host.
        host: String,
        /// What took too long.
        problem: String,
    },
    /// The exchange broke off.
    #[error("the exchange with {host} broke off: {problem}")]
    Broken {
        /// The host.
        host: String,
        /// What went wrong.
        problem: String,
    },
    /// This machine can't make secure connections.
    #[error("secure connections are not possible on this machine: {problem}; install the system's CA certificates")]
    Tls {
        /// What went wrong.
        problem: String,
    },
    /// A transport that is not the network (a recording, say) had no answer.
    #[error("{message}")]
    NoAnswer {
        /// One sentence.
        message: String,
    },
}

/// The host of an address, for messages; an address may carry a key elsewhere.
pub fn host_of(url: &str) -> String {
    Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_else(|| "an unreadable address".to_owned())
}

/// An error with its causes, since the outermost often says nothing.
pub(super) fn causes(error: &dyn std::error::Error) -> String {
    let mut said = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        if !said.contains(&text) {
            said.push_str(": ");
            said.push_str(&text);
        }
        next = cause.source();
    }
    said
}
