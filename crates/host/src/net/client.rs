//! The client for endpoints that a developer or an operator chose.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::StreamExt as _;

use super::message::{Header, NetError, Request, Response, USER_AGENT, causes};

/// How many redirects one request may follow.
const REDIRECTS: usize = 5;

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
