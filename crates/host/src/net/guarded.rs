//! The client for addresses that a model, a page or a tool's arguments wrote.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode, Uri, header};
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::Instant;
use url::Url;

use super::body::GuardedBody;
use super::connect::{Connector, Dial, Direct, Rules};
use super::decode::{ACCEPTED, Decoder};
use super::error::{GuardConfigError, GuardError};
use super::map::NetMap;
use super::message::{Header, Request, USER_AGENT, causes};
use super::resolve::{Resolver, SystemResolver};
use super::target::HostPattern;

/// Headers that go along to another origin. Everything else may be a credential.
const HARMLESS: &[HeaderName] =
    &[header::ACCEPT, header::ACCEPT_LANGUAGE, header::ACCEPT_ENCODING, header::USER_AGENT, header::CACHE_CONTROL, header::RANGE];

/// Headers that belong to the connection. A caller that sets one of them would change whom the request is for, or where it ends.
const RESERVED: &[&str] =
    &["host", "connection", "content-length", "expect", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"];

/// How a [`GuardedClient`] is set up.
///
/// | option | default |
/// |---|---|
/// | `timeout`, for the whole request: look-ups, redirects, body | 30 s |
/// | `connect_timeout`, for each look-up, connection and handshake | 10 s |
/// | `max_redirects` | 10 |
/// | `max_header_bytes`, `max_headers` of a response | 64 KiB, 100 |
/// | `max_body_bytes`, counted as they come in and as they are unpacked | 2 MiB |
#[derive(Clone)]
pub struct GuardedClientBuilder {
    resolver: Arc<dyn Resolver>,
    map: NetMap,
    roots: Vec<Vec<u8>>,
    allow_private: Vec<String>,
    allowed: Option<Vec<String>>,
    blocked: Vec<String>,
    user_agent: String,
    timeout: Duration,
    connect: Duration,
    redirects: usize,
    header_bytes: usize,
    headers: usize,
    body_bytes: usize,
    dial: Arc<dyn Dial>,
}

impl fmt::Debug for GuardedClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedClientBuilder")
            .field("map", &self.map)
            .field("allow_private", &self.allow_private)
            .field("allowed", &self.allowed)
            .field("blocked", &self.blocked)
            .finish_non_exhaustive()
    }
}

impl Default for GuardedClientBuilder {
    fn default() -> Self {
        Self {
            resolver: Arc::new(SystemResolver),
            map: NetMap::new(),
            roots: Vec::new(),
            allow_private: Vec::new(),
            allowed: None,
            blocked: Vec::new(),
            user_agent: USER_AGENT.to_owned(),
            timeout: Duration::from_secs(30),
            connect: Duration::from_secs(10),
            redirects: 10,
            header_bytes: 64 << 10,
            headers: 100,
            body_bytes: 2 << 20,
            dial: Arc::new(Direct),
        }
    }
}

impl GuardedClientBuilder {
    /// Who says which addresses a name has; without this the machine's own resolver.
    #[must_use]
    pub fn resolver(mut self, resolver: impl Resolver + 'static) -> Self {
        self.resolver = Arc::new(resolver);
        self
    }

    /// Hosts that are reached elsewhere, at addresses that are not checked.
    #[must_use]
    pub fn net_map(mut self, map: NetMap) -> Self {
        self.map = map;
        self
    }

    /// Certificates (PEM) that are trusted besides the machine's own.
    #[must_use]
    pub fn extra_roots(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.roots.push(pem.into());
        self
    }

    /// Hosts that may lead to addresses that are not public, and may be asked on any port: `wiki.corp`, `*.lab.corp`, `127.0.0.1`.
    #[must_use]
    pub fn allow_private<I: IntoIterator<Item = P>, P: Into<String>>(mut self, hosts: I) -> Self {
        self.allow_private.extend(hosts.into_iter().map(Into::into));
        self
    }

    /// The only hosts that may be asked. Others are refused before they are looked up.
    #[must_use]
    pub fn allowed_hosts<I: IntoIterator<Item = P>, P: Into<String>>(mut self, hosts: I) -> Self {
        self.allowed.get_or_insert_default().extend(hosts.into_iter().map(Into::into));
        self
    }

    /// Hosts that are refused before they are looked up, even if they are allowed.
    #[must_use]
    pub fn blocked_hosts<I: IntoIterator<Item = P>, P: Into<String>>(mut self, hosts: I) -> Self {
        self.blocked.extend(hosts.into_iter().map(Into::into));
        self
    }

    /// What requests say about who sent them, unless a request says something itself.
    #[must_use]
    pub fn user_agent(mut self, user_agent: impl Into<String>) -> Self {
        self.user_agent = user_agent.into();
        self
    }

    /// How long a request may take from look-up to the last byte of its body, redirects and all.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How long each look-up, connection and handshake may take.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect = timeout;
        self
    }

    /// How many redirects one request follows; one more is an error. With 0, a response that redirects is given back.
    #[must_use]
    pub fn max_redirects(mut self, redirects: usize) -> Self {
        self.redirects = redirects;
        self
    }

    /// The most bytes that the head of a response may have; at least 8 KiB.
    #[must_use]
    pub fn max_header_bytes(mut self, bytes: usize) -> Self {
        self.header_bytes = bytes.max(8 << 10);
        self
    }

    /// The most headers that a response may have.
    #[must_use]
    pub fn max_headers(mut self, headers: usize) -> Self {
        self.headers = headers;
        self
    }

    /// The most bytes of a body that are read, and the most that come out of them.
    #[must_use]
    pub fn max_body_bytes(mut self, bytes: usize) -> Self {
        self.body_bytes = bytes;
        self
    }

    /// Opens connections in another way.
    #[cfg(test)]
    pub(super) fn dial(mut self, dial: impl Dial + 'static) -> Self {
        self.dial = Arc::new(dial);
        self
    }

    /// The client.
    pub fn build(self) -> Result<GuardedClient, GuardConfigError> {
        let patterns = |hosts: &[String]| hosts.iter().map(|host| HostPattern::parse(host)).collect::<Result<Vec<_>, _>>();
        let mut map = self.map;
        for pem in &self.roots {
            map = map.trust(pem)?;
        }
        let rules = Arc::new(Rules {
            resolver: self.resolver,
            map,
            allow_private: patterns(&self.allow_private)?,
            allowed: self.allowed.as_deref().map(patterns).transpose()?,
            blocked: patterns(&self.blocked)?,
            connect: self.connect,
            dial: self.dial,
            tls: OnceLock::new(),
        });
        let mut pool = legacy::Client::builder(TokioExecutor::new());
        pool.pool_idle_timeout(Duration::from_secs(30))
            .pool_max_idle_per_host(4)
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .http1_max_buf_size(self.header_bytes)
            .http1_max_headers(self.headers)
            .http2_max_header_list_size(u32::try_from(self.header_bytes).unwrap_or(u32::MAX));
        Ok(GuardedClient(Arc::new(Inner {
            pool: pool.build(Connector(Arc::clone(&rules))),
            rules,
            user_agent: HeaderValue::try_from(self.user_agent).map_err(|_| GuardConfigError::UserAgent)?,
            timeout: self.timeout,
            redirects: self.redirects,
            header_bytes: self.header_bytes,
            headers: self.headers,
            body_bytes: self.body_bytes,
        })))
    }
}

/// Sends requests to addresses that nobody trusts. Cheap to clone; clones share their connections.
///
/// - One parser, that of the URL standard, decides what the host is. A URL with a user or password is refused.
/// - An address in the URL is checked at once. A name is looked up once; if any of its addresses is not public, it is refused, and the
///   connection goes to one of the addresses that were checked, with the name in `Host` and in the handshake.
/// - Each redirect is checked again. Only harmless headers go along to another origin; a body never does: such a response is given
///   back as it is.
/// - No proxy is used, whatever the environment says: it would look names up by itself.
/// - Time, redirects, headers and bodies are bounded, bodies as they come in and as they are unpacked.
///
/// ```no_run
/// use toolwright_host::net::GuardedClient;
///
/// # async fn fetch() -> Result<(), Box<dyn std::error::Error>> {
/// let client = GuardedClient::builder().allow_private(["wiki.corp"]).build()?;
/// let response = client.get("https://example.com/").await?;
/// let body = response.body.read().await?;
/// println!("{} bytes, status {}", body.bytes.len(), response.status);
/// let refused = client.get("http://169.254.169.254/latest/meta-data/").await.unwrap_err();
/// assert!(refused.is_refusal());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct GuardedClient(Arc<Inner>);

struct Inner {
    pool: legacy::Client<Connector, Full<Bytes>>,
    rules: Arc<Rules>,
    user_agent: HeaderValue,
    timeout: Duration,
    redirects: usize,
    header_bytes: usize,
    headers: usize,
    body_bytes: usize,
}

impl fmt::Debug for GuardedClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedClient").field("rules", &self.0.rules).finish_non_exhaustive()
    }
}

/// A guarded response: its head, and its body as it comes in.
#[derive(Debug)]
pub struct GuardedResponse {
    /// The URL that answered: the last one, where redirects were followed.
    pub url: Url,
    /// The status code.
    pub status: u16,
    /// Headers in order, names in lower case; those about the packing are left out where the body is unpacked. A value that is not text
    /// is left out.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: GuardedBody,
}

impl GuardedResponse {
    /// The first header of this name, in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }
}

/// A request on its way through redirects.
struct Hop {
    method: Method,
    url: Url,
    headers: HeaderMap,
    body: Bytes,
}

impl GuardedClient {
    /// A client with every option at its default.
    pub fn builder() -> GuardedClientBuilder {
        GuardedClientBuilder::default()
    }

    /// Gets a page.
    pub async fn get(&self, url: &str) -> Result<GuardedResponse, GuardError> {
        self.send(Request { method: "GET".to_owned(), url: url.to_owned(), headers: Vec::new(), body: Bytes::new() }).await
    }

    /// Sends, follows redirects, and gives the response when its head is there.
    pub async fn send(&self, request: Request) -> Result<GuardedResponse, GuardError> {
        let deadline = Instant::now() + self.0.timeout;
        let mut hop = self.first(request)?;
        let first = self.0.rules.admit(&hop.url)?.host;
        let mut followed = 0;
        loop {
            let (host, response) = self.send_once(&hop, deadline).await.map_err(|error| redirected(followed, &first, error))?;
            let next = match self.0.redirects {
                0 => None,
                _ => follow(&mut hop, response.status(), response.headers(), &host)?,
            };
            let Some(from) = next else {
                return self.finish(hop.url, host, response, deadline);
            };
            followed += 1;
            if followed > self.0.redirects {
                return Err(GuardError::Redirects { host: first, limit: self.0.redirects });
            }
            // Before anything of it is looked up.
            self.0.rules.admit(&hop.url).map_err(|error| GuardError::Redirected { host: from, error: Box::new(error) })?;
        }
    }

    /// The addresses that a URL leads to, each of them checked, for whoever opens the connection itself.
    pub async fn resolve(&self, url: &str) -> Result<Vec<SocketAddr>, GuardError> {
        let target = self.0.rules.admit(&parse(url)?)?;
        self.0.rules.addresses(&target).await
    }

    /// Whether a URL is refused without looking anything up.
    pub fn check(&self, url: &str) -> Result<(), GuardError> {
        self.0.rules.admit(&parse(url)?).map(|_| ())
    }

    fn first(&self, request: Request) -> Result<Hop, GuardError> {
        let wrong = |problem: String| GuardError::Request { problem };
        let url = parse(&request.url)?;
        let method = Method::from_bytes(request.method.as_bytes()).map_err(|_| wrong("its method is no word of HTTP".to_owned()))?;
        if method == Method::CONNECT || method == Method::TRACE {
            return Err(wrong(format!("the method {method} is not for requests like this")));
        }
        let mut headers = HeaderMap::new();
        for Header { name, value, secret } in request.headers {
            let lower = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong("the name of a header is none".to_owned()))?;
            if RESERVED.contains(&lower.as_str()) {
                return Err(wrong(format!("the header `{lower}` is set by the client itself; leave it out")));
            }
            // The value stays out of the error: it may be a key with a stray line break.
            let mut value = HeaderValue::try_from(value)
                .map_err(|_| wrong(format!("the value of the header `{lower}` holds characters that a header can't carry")))?;
            value.set_sensitive(secret);
            headers.append(lower, value);
        }
        headers.entry(header::USER_AGENT).or_insert_with(|| self.0.user_agent.clone());
        headers.entry(header::ACCEPT).or_insert(HeaderValue::from_static("*/*"));
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(ACCEPTED));
        Ok(Hop { method, url, headers, body: request.body })
    }

    async fn send_once(&self, hop: &Hop, deadline: Instant) -> Result<(String, hyper::Response<hyper::body::Incoming>), GuardError> {
        let host = hop.url.host_str().unwrap_or_default().to_owned();
        let unsendable = |problem: String| GuardError::Url { problem };
        let target = hop.url.query().map_or_else(|| hop.url.path().to_owned(), |query| format!("{}?{query}", hop.url.path()));
        let uri = Uri::builder().scheme(hop.url.scheme()).authority(hop.url.authority()).path_and_query(target).build();
        let mut request = hyper::Request::new(Full::new(hop.body.clone()));
        *request.uri_mut() = uri.map_err(|error| unsendable(error.to_string()))?;
        *request.method_mut() = hop.method.clone();
        *request.headers_mut() = hop.headers.clone();
        match tokio::time::timeout_at(deadline, self.0.pool.request(request)).await {
            Ok(Ok(response)) => {
                // What bounds the memory while a head is read is coarser than what it may have in the end.
                let bytes: usize = response.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
                if bytes > self.0.header_bytes || response.headers().len() > self.0.headers {
                    return Err(GuardError::Headers { host, limit: self.0.header_bytes, count: self.0.headers });
                }
                Ok((host, response))
            }
            Ok(Err(error)) => Err(self.failure(host, &error)),
            Err(_) => Err(GuardError::Timeout { host, limit_ms: self.0.timeout.as_millis() as u64 }),
        }
    }

    fn failure(&self, host: String, error: &legacy::Error) -> GuardError {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = std::error::Error::source(error);
        while let Some(inner) = cause {
            if let Some(guard) = inner.downcast_ref::<GuardError>() {
                return guard.clone();
            }
            // hyper tells which kind of parse error it was to servers only.
            if inner.downcast_ref::<hyper::Error>().is_some_and(|error| error.is_parse() && error.to_string().contains("too large")) {
                return GuardError::Headers { host, limit: self.0.header_bytes, count: self.0.headers };
            }
            cause = inner.source();
        }
        GuardError::Broken { host, problem: causes(error) }
    }

    fn finish(
        &self,
        url: Url,
        host: String,
        response: hyper::Response<hyper::body::Incoming>,
        deadline: Instant,
    ) -> Result<GuardedResponse, GuardError> {
        let (head, incoming) = response.into_parts();
        let encodings: Vec<&str> = head.headers.get_all(header::CONTENT_ENCODING).iter().filter_map(|value| value.to_str().ok()).collect();
        let decoder =
            Decoder::new(&encodings.join(", "), self.0.body_bytes).map_err(|problem| GuardError::Packed { host: host.clone(), problem })?;
        let told = |name: &HeaderName| decoder.is_plain() || (*name != header::CONTENT_ENCODING && *name != header::CONTENT_LENGTH);
        let headers = head
            .headers
            .iter()
            .filter(|(name, _)| told(name))
            .filter_map(|(name, value)| Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned())))
            .collect();
        let status = head.status.as_u16();
        let body = GuardedBody::new(host, incoming, decoder, self.0.body_bytes, deadline, self.0.timeout);
        Ok(GuardedResponse { url, status, headers, body })
    }
}

/// A backslash in the place of a slash is read differently by different programs: what stands behind it may be a path or the host.
fn has_backslash(url: &str) -> bool {
    url.split(['?', '#']).next().is_some_and(|place| place.contains('\\'))
}

/// Reads a URL; it has to be whole.
fn parse(url: &str) -> Result<Url, GuardError> {
    if has_backslash(url) {
        return Err(GuardError::Url { problem: "it has a backslash, which hides where it leads".to_owned() });
    }
    Url::parse(url).map_err(|error| GuardError::Url { problem: error.to_string() })
}

/// An error of a later hop says how one came there.
fn redirected(followed: usize, first: &str, error: GuardError) -> GuardError {
    if followed > 0 && error.is_refusal() { GuardError::Redirected { host: first.to_owned(), error: Box::new(error) } } else { error }
}

/// Makes the next request of a response that redirects, and gives the host that redirects; `None` if the response is to be given back.
fn follow(hop: &mut Hop, status: StatusCode, headers: &HeaderMap, host: &str) -> Result<Option<String>, GuardError> {
    let redirects = matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308);
    let Some(location) = headers.get(header::LOCATION).filter(|_| redirects) else { return Ok(None) };
    let location = String::from_utf8_lossy(location.as_bytes());
    let unreadable = |problem: String| GuardError::Redirected { host: host.to_owned(), error: Box::new(GuardError::Url { problem }) };
    if has_backslash(&location) {
        return Err(unreadable("it has a backslash, which hides where it leads".to_owned()));
    }
    let mut next = hop.url.join(&location).map_err(|error| unreadable(error.to_string()))?;
    if next.fragment().is_none() {
        next.set_fragment(hop.url.fragment());
    }
    let becomes_get = (status == StatusCode::SEE_OTHER && hop.method != Method::HEAD)
        || (matches!(status.as_u16(), 301 | 302) && hop.method == Method::POST);
    let other_origin = next.origin() != hop.url.origin();
    if other_origin && !becomes_get && !hop.body.is_empty() {
        return Ok(None);
    }
    if becomes_get {
        hop.method = Method::GET;
        hop.body = Bytes::new();
        for name in [header::CONTENT_TYPE, header::CONTENT_ENCODING, header::CONTENT_LANGUAGE, header::CONTENT_LOCATION] {
            hop.headers.remove(name);
        }
    }
    if other_origin {
        let kept = HARMLESS.iter().filter_map(|name| Some((name.clone(), hop.headers.get(name)?.clone())));
        hop.headers = kept.filter(|(_, value)| !value.is_sensitive()).collect();
    }
    hop.url = next;
    Ok(Some(host.to_owned()))
}
