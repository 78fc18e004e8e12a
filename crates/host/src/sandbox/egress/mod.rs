//! The one way out of a sandbox: a proxy that knows which hosts are allowed, and puts credentials in on the way (sdk-tools 26.3).
//!
//! What is in the sandbox has no credential, only the address of the proxy. A program gives any text where it is made to give a key; the broker
//! replaces it for the host that the key is for, and for no other.

mod serve;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use url::Url;

use crate::net::{GuardConfigError, GuardedClient, GuardedClientBuilder, NetMap, Resolver};

/// How long one forwarded request may take.
const REQUEST: Duration = Duration::from_secs(600);
/// How much of one forwarded response is passed on. Tunnels have no such limit.
const RESPONSE: usize = 1 << 30;

/// What a header is made from, anew for each request.
pub type HeaderSource = Arc<dyn Fn(&BrokeredRequest<'_>) -> Option<String> + Send + Sync>;

/// What the source of a header is told of a request.
#[derive(Clone, Copy, Debug)]
pub struct BrokeredRequest<'a> {
    /// `GET`, `POST` and so on.
    pub method: &'a str,
    /// Where it goes.
    pub host: &'a str,
    /// The path, without the query.
    pub path: &'a str,
}

/// The headers that requests to a host get.
struct Rule {
    host: String,
    headers: Vec<(String, HeaderSource)>,
}

/// A broker that is being made.
pub struct BrokerBuilder {
    rules: Vec<Rule>,
    allow: Vec<String>,
    client: GuardedClientBuilder,
}

/// Which hosts programs may reach, and with which credentials. Cheap to clone.
///
/// - Hosts are named exactly, or as `*.example.com` for all below one. Every other host is refused before anything is looked up.
/// - An allowed host that leads to an address which is not public is refused, unless [`allow_private`](BrokerBuilder::allow_private) names it.
/// - Headers are put into requests in plain HTTP, and into those that a program sends to [`Served::base_url`], which go on by
///   HTTPS. What a program sends in their place is dropped. A tunnel (`CONNECT`) is checked and passed on as it is: its inside is never read.
/// - A host that sends back what it was sent shows the credential to the program. Allow credentials only where that is no harm.
#[derive(Clone)]
pub struct Broker {
    inner: Arc<Inner>,
}

struct Inner {
    rules: Vec<Rule>,
    hosts: Vec<String>,
    client: GuardedClient,
    /// As many as may have a request in memory at once.
    requests: Semaphore,
    tunnels: Arc<Semaphore>,
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker").field("hosts", &self.inner.hosts).finish_non_exhaustive()
    }
}

impl Broker {
    /// A broker that lets nothing out, to begin with.
    pub fn builder() -> BrokerBuilder {
        BrokerBuilder {
            rules: Vec::new(),
            allow: Vec::new(),
            client: GuardedClient::builder().max_redirects(0).timeout(REQUEST).max_body_bytes(RESPONSE),
        }
    }

    /// The hosts that are allowed.
    pub fn hosts(&self) -> &[String] {
        &self.inner.hosts
    }

    /// Listens on this machine's loopback address, for programs without a sandbox of their own. Until the returned value is dropped.
    pub async fn listen(&self) -> io::Result<Served> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        self.serve(listener)
    }

    /// Serves a listener, wherever that is. Needs a tokio runtime.
    pub(super) fn serve(&self, listener: TcpListener) -> io::Result<Served> {
        let address = listener.local_addr()?;
        let (open, closed) = watch::channel(());
        tokio::spawn(serve::accept(listener, Arc::clone(&self.inner), closed));
        Ok(Served { address, _open: open })
    }
}

/// A broker that listens. Dropping it closes the listener and every connection.
#[derive(Debug)]
pub struct Served {
    address: SocketAddr,
    _open: watch::Sender<()>,
}

impl Served {
    /// The proxy's address.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What a program is told as the address of `host`, so that what it sends there goes through the broker to HTTPS.
    pub fn base_url(&self, host: &str) -> String {
        format!("http://{}/{host}", self.address)
    }

    /// The variables by which programs find the proxy.
    pub fn env(&self) -> BTreeMap<String, String> {
        let mut env = BTreeMap::new();
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
            env.insert(name.to_owned(), self.url());
            env.insert(name.to_lowercase(), self.url());
        }
        // What a program reaches by itself is the proxy, as the place that `base_url` names.
        let own = format!("localhost,{}", self.address.ip());
        env.insert("NO_PROXY".to_owned(), own.clone());
        env.insert("no_proxy".to_owned(), own);
        env
    }
}

impl BrokerBuilder {
    /// Hosts that may be reached, without a credential: `example.com`, `*.example.com`.
    #[must_use]
    pub fn allow<H: Into<String>>(mut self, hosts: impl IntoIterator<Item = H>) -> Self {
        self.allow.extend(hosts.into_iter().map(Into::into));
        self
    }

    /// Requests to `host`, which is allowed by this, get a header. Another one of that name is dropped.
    #[must_use]
    pub fn header(self, host: impl Into<String>, name: impl Into<String>, value: impl Into<String>) -> Self {
        let value = value.into();
        self.header_with(host, name, move |_| Some(value.clone()))
    }

    /// Requests to `host`, which is allowed by this, get a header that is made for each; none where `value` gives none.
    #[must_use]
    pub fn header_with(
        mut self,
        host: impl Into<String>,
        name: impl Into<String>,
        value: impl Fn(&BrokeredRequest<'_>) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        let (host, name) = (host.into().to_ascii_lowercase(), name.into().to_ascii_lowercase());
        let header = (name, Arc::new(value) as HeaderSource);
        match self.rules.iter_mut().find(|rule| rule.host == host) {
            Some(rule) => rule.headers.push(header),
            None => self.rules.push(Rule { host, headers: vec![header] }),
        }
        self
    }

    /// Allowed hosts that may lead to addresses which are not public.
    #[must_use]
    pub fn allow_private<I: IntoIterator<Item = H>, H: Into<String>>(mut self, hosts: I) -> Self {
        self.client = self.client.allow_private(hosts);
        self
    }

    /// Who looks names up.
    #[must_use]
    pub fn resolver(mut self, resolver: impl Resolver + 'static) -> Self {
        self.client = self.client.resolver(resolver);
        self
    }

    /// Local servers that stand in for hosts outside.
    #[must_use]
    pub fn net_map(mut self, map: NetMap) -> Self {
        self.client = self.client.net_map(map);
        self
    }

    /// The broker; a host that is a URL, or no name, is an error.
    pub fn build(self) -> Result<Broker, GuardConfigError> {
        let mut hosts = self.allow;
        hosts.extend(self.rules.iter().map(|rule| rule.host.clone()));
        let client = self.client.allowed_hosts(hosts.clone()).build()?;
        Ok(Broker {
            inner: Arc::new(Inner {
                rules: self.rules,
                hosts,
                client,
                requests: Semaphore::new(serve::REQUESTS),
                tunnels: Arc::new(Semaphore::new(serve::TUNNELS)),
            }),
        })
    }
}

impl fmt::Debug for BrokerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrokerBuilder").field("allow", &self.allow).finish_non_exhaustive()
    }
}

impl Inner {
    /// The headers for a request, the first of two rules for one name first.
    fn credentials(&self, method: &str, url: &Url) -> Vec<(&str, Option<String>)> {
        let host = url.host_str().unwrap_or_default().trim_end_matches('.');
        let request = BrokeredRequest { method, host, path: url.path() };
        let rules = self.rules.iter().filter(|rule| is_meant(&rule.host, host));
        rules.flat_map(|rule| &rule.headers).map(|(name, value)| (name.as_str(), value(&request))).collect()
    }
}

/// Whether a pattern, which the client has read as one too, is about a host as a URL has it.
fn is_meant(pattern: &str, host: &str) -> bool {
    match pattern.strip_prefix("*.") {
        Some(below) => host.strip_suffix(below).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
        None => pattern == host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_about_a_host_or_those_below_it() {
        assert!(is_meant("a.example", "a.example") && is_meant("*.example", "a.example") && is_meant("*.example", "b.a.example"));
        for (pattern, host) in
            [("*.example", "example"), ("*.example", ".example"), ("*.example", "anexample"), ("a.example", "b.a.example")]
        {
            assert!(!is_meant(pattern, host), "{pattern} {host}");
        }
    }

    // rule: sdk-tools 26.2/1
    #[test]
    fn a_host_has_to_be_a_name() {
        for host in ["https://example.com", "example.com/path", "", "a b", "*"] {
            assert!(Broker::builder().allow([host]).build().is_err(), "{host:?}");
            assert!(Broker::builder().header(host, "authorization", "x").build().is_err(), "{host:?}");
        }
    }
}
