//! Outbound HTTP.
//!
//! [`Client`] is for endpoints that a developer or an operator chose: model providers. It checks no address. The guarded client, for
//! addresses that a model or a tool's arguments wrote, comes to this module later; nothing but this module builds an HTTP client.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;

/// What requests say about who sent them.
pub const USER_AGENT: &str = concat!("toolwright/", env!("CARGO_PKG_VERSION"));

/// How many redirects one request may follow.
const REDIRECTS: usize = 5;

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

/// Sends requests to endpoints that a developer or an operator chose. Cheap to clone; connections are kept and used again.
///
/// Redirects are followed within one origin only, because requests carry credentials: a response that points elsewhere is given back
/// as it is. Proxies named by the environment are used, except for this machine's own addresses.
#[derive(Clone)]
pub struct Client(Arc<Clients>);

struct Clients {
    connect: Duration,
    /// For everything but plain HTTP on this machine.
    outward: OnceLock<Result<reqwest::Client, NetError>>,
    /// For plain HTTP on this machine: no proxy, no certificates to load.
    local: OnceLock<Result<reqwest::Client, NetError>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("connect", &self.0.connect).finish_non_exhaustive()
    }
}

impl Client {
    /// A client that waits at most `connect` for a connection. Other deadlines are the caller's.
    pub fn new(connect: Duration) -> Self {
        Self(Arc::new(Clients { connect, outward: OnceLock::new(), local: OnceLock::new() }))
    }

    /// Sends, and gives the response when its head is there.
    pub async fn send(&self, request: Request) -> Result<Response, NetError> {
        let address = |problem: String| NetError::Address { problem };
        let url = reqwest::Url::parse(&request.url).map_err(|error| address(error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(address(format!("its scheme is `{}`", url.scheme())));
        }
        let host = url.host_str().unwrap_or_default().to_owned();
        let client = if url.scheme() == "http" && is_this_machine(&url) {
            self.0.local.get_or_init(|| build(self.0.connect, Reach::ThisMachine))
        } else {
            self.0.outward.get_or_init(|| build(self.0.connect, Reach::Anywhere))
        };
        let client = client.as_ref().map_err(Clone::clone)?;
        let method = reqwest::Method::from_bytes(request.method.as_bytes()).map_err(|error| address(error.to_string()))?;
        let mut outgoing = client.request(method, url);
        for Header { name, value, secret } in request.headers {
            // The value stays out of the error: it may be a key with a stray line break.
            let mut value = reqwest::header::HeaderValue::try_from(value)
                .map_err(|_| address(format!("the value of the header `{name}` holds characters that a header can't carry")))?;
            value.set_sensitive(secret);
            outgoing = outgoing.header(name, value);
        }
        if !request.body.is_empty() {
            outgoing = outgoing.body(request.body);
        }
        let response = outgoing.send().await.map_err(|error| failure(&host, error))?;
        let headers = response
            .headers()
            .iter()
            .filter_map(|(name, value)| Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned())))
            .collect();
        let status = response.status().as_u16();
        let body = response.bytes_stream().map(move |piece| piece.map_err(|error| failure(&host, error))).boxed();
        Ok(Response { status, headers, body })
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Reach {
    Anywhere,
    ThisMachine,
}

#[allow(clippy::disallowed_methods, reason = "the one place that builds HTTP clients")]
fn build(connect: Duration, reach: Reach) -> Result<reqwest::Client, NetError> {
    // `ring` needs nothing but a C compiler to build. Whoever installed another provider first keeps it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder =
        reqwest::Client::builder().user_agent(USER_AGENT).connect_timeout(connect).redirect(reqwest::redirect::Policy::custom(|attempt| {
            let from = attempt.previous().first().map(reqwest::Url::origin);
            if attempt.previous().len() > REDIRECTS || from != Some(attempt.url().origin()) { attempt.stop() } else { attempt.follow() }
        }));
    if reach == Reach::ThisMachine {
        builder = builder.no_proxy().tls_certs_only([]);
    }
    builder.build().map_err(|error| NetError::Tls { problem: causes(&error) })
}

fn is_this_machine(url: &reqwest::Url) -> bool {
    match url.host_str() {
        Some("localhost") => true,
        Some(host) => host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback()),
        None => false,
    }
}

/// The host of an address, for messages; an address may carry a key elsewhere.
pub fn host_of(url: &str) -> String {
    reqwest::Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_else(|| "an unreadable address".to_owned())
}

fn failure(host: &str, error: reqwest::Error) -> NetError {
    let host = host.to_owned();
    // Addresses may carry keys.
    let error = error.without_url();
    let problem = causes(&error);
    if error.is_timeout() {
        NetError::Timeout { host, problem }
    } else if error.is_connect() {
        NetError::Connect { host, problem }
    } else {
        NetError::Broken { host, problem }
    }
}

/// An error with its causes, since the outermost often says nothing.
fn causes(error: &dyn std::error::Error) -> String {
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
