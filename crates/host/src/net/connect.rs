//! Opens connections to places that have been checked.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use hyper::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use url::Url;

use super::address::special_range;
use super::error::GuardError;
use super::map::NetMap;
use super::message::causes;
use super::resolve::Resolver;
use super::target::{HostPattern, Site, Target};

/// How long one address is tried before the next is tried beside it.
const NEXT_ADDRESS: Duration = Duration::from_millis(250);

/// Opens a connection to an address; a test may look at which.
pub(super) trait Dial: fmt::Debug + Send + Sync {
    fn dial(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<TcpStream>>;
}

/// Connects.
#[derive(Debug)]
pub(super) struct Direct;

impl Dial for Direct {
    #[allow(clippy::disallowed_methods, reason = "the one place that opens guarded connections, to addresses that were checked")]
    fn dial(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<TcpStream>> {
        async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(stream)
        }
        .boxed()
    }
}

/// What decides where a request may go.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) resolver: Arc<dyn Resolver>,
    pub(super) map: NetMap,
    pub(super) allow_private: Vec<HostPattern>,
    pub(super) allowed: Option<Vec<HostPattern>>,
    pub(super) blocked: Vec<HostPattern>,
    pub(super) connect: Duration,
    pub(super) dial: Arc<dyn Dial>,
    pub(super) tls: OnceLock<Result<Arc<ClientConfig>, String>>,
}

impl Rules {
    /// Reads where a URL leads and refuses what needs no look-up to be refused.
    pub(super) fn admit(&self, url: &Url) -> Result<Target, GuardError> {
        let target = Target::of(url)?;
        let host = || target.host.clone();
        let is_in = |patterns: &[HostPattern]| patterns.iter().any(|pattern| pattern.matches(&target.host));
        if is_in(&self.blocked) {
            return Err(GuardError::Blocked { host: host() });
        }
        if self.allowed.as_deref().is_some_and(|allowed| !is_in(allowed)) {
            return Err(GuardError::NotAllowed { host: host() });
        }
        if self.map.of(&target.host, target.port).is_some() || is_in(&self.allow_private) {
            return Ok(target);
        }
        if target.has_bad_port() {
            return Err(GuardError::Port { host: host(), port: target.port });
        }
        if target.is_this_machine() {
            return Err(GuardError::ThisMachine { host: host() });
        }
        if let Site::Address(address) = target.site {
            self.check(&target, address)?;
        }
        Ok(target)
    }

    fn check(&self, target: &Target, address: IpAddr) -> Result<(), GuardError> {
        match special_range(address) {
            Some(range) if !self.allow_private.iter().any(|pattern| pattern.matches(&target.host)) => {
                Err(GuardError::Special { host: target.host.clone(), address, range })
            }
            _ => Ok(()),
        }
    }

    /// The addresses a target is reached at, each of them checked; one that is refused refuses them all.
    pub(super) async fn addresses(&self, target: &Target) -> Result<Vec<SocketAddr>, GuardError> {
        if let Some(address) = self.map.of(&target.host, target.port) {
            return Ok(vec![address]);
        }
        let name = match &target.site {
            Site::Address(address) => {
                self.check(target, *address)?;
                return Ok(vec![SocketAddr::new(*address, target.port)]);
            }
            Site::Name(name) => name,
        };
        let unknown = |problem: String| GuardError::Unknown { host: target.host.clone(), problem };
        let found = match tokio::time::timeout(self.connect, self.resolver.resolve(name)).await {
            Ok(found) => found.map_err(|error| unknown(error.to_string()))?,
            Err(_) => return Err(unknown("the look-up took too long".to_owned())),
        };
        if found.is_empty() {
            return Err(unknown("it has no address".to_owned()));
        }
        for address in &found {
            self.check(target, *address)?;
        }
        Ok(found.into_iter().map(|address| SocketAddr::new(address, target.port)).collect())
    }

    async fn connect(self: Arc<Self>, uri: Uri) -> Result<Stream, GuardError> {
        // The same parser as for the request reads it again, so that what is connected is what is checked here.
        let url = Url::parse(&uri.to_string()).map_err(|error| GuardError::Url { problem: error.to_string() })?;
        let target = self.admit(&url)?;
        let addresses = self.addresses(&target).await?;
        let tcp = match tokio::time::timeout(self.connect, self.first_of(&addresses)).await {
            Ok(opened) => opened.map_err(|error| error.to_string()),
            Err(_) => Err(format!("it took longer than {} ms", self.connect.as_millis())),
        };
        let tcp = tcp.map_err(|problem| GuardError::Connect { host: target.host.clone(), port: target.port, problem })?;
        if !target.secure {
            return Ok(Stream::Plain(tcp));
        }
        let failed = |problem: String| GuardError::Tls { host: target.host.clone(), problem };
        let config = self.tls.get_or_init(|| tls_config(self.map.roots())).clone().map_err(failed)?;
        let name = match &target.site {
            Site::Name(name) => ServerName::try_from(name.clone()).map_err(|error| failed(error.to_string()))?,
            Site::Address(address) => ServerName::from(*address),
        };
        match tokio::time::timeout(self.connect, TlsConnector::from(config).connect(name, tcp)).await {
            Ok(Ok(stream)) => Ok(Stream::Secure(Box::new(stream))),
            Ok(Err(error)) => Err(failed(causes(&error))),
            Err(_) => Err(failed(format!("the handshake took longer than {} ms", self.connect.as_millis()))),
        }
    }

    /// The first address that answers. Each has a head start before the next is tried beside it.
    async fn first_of(&self, addresses: &[SocketAddr]) -> io::Result<TcpStream> {
        let mut waiting = addresses.iter();
        let mut running = FuturesUnordered::new();
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        loop {
            if let Some(address) = waiting.next() {
                running.push(self.dial.dial(*address));
            }
            if running.is_empty() {
                return Err(last);
            }
            let next = if waiting.len() == 0 {
                running.next().map(Some).left_future()
            } else {
                tokio::time::timeout(NEXT_ADDRESS, running.next()).map(Result::ok).right_future()
            };
            match next.await {
                Some(Some(Ok(stream))) => return Ok(stream),
                Some(Some(Err(error))) => last = error,
                Some(None) | None => {}
            }
        }
    }
}

/// How secure connections are made: with the machine's roots, and those that were given besides.
fn tls_config(roots: &[CertificateDer<'static>]) -> Result<Arc<ClientConfig>, String> {
    let said = |error: rustls::Error| error.to_string();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = rustls_platform_verifier::Verifier::new_with_extra_roots(roots.iter().cloned(), Arc::clone(&provider)).map_err(said)?;
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(said)?;
    let mut config = config.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Gives the pool of connections its connections.
#[derive(Clone, Debug)]
pub(super) struct Connector(pub(super) Arc<Rules>);

impl tower_service::Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = GuardError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, GuardError>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), GuardError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let rules = Arc::clone(&self.0);
        Box::pin(async move { rules.connect(uri).await.map(TokioIo::new) })
    }
}

/// An open connection.
pub(super) enum Stream {
    Plain(TcpStream),
    Secure(Box<TlsStream<TcpStream>>),
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        match self {
            Self::Secure(stream) if stream.get_ref().1.alpn_protocol() == Some(b"h2") => Connected::new().negotiated_h2(),
            _ => Connected::new(),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, into),
            Self::Secure(stream) => Pin::new(stream).poll_read(cx, into),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, from),
            Self::Secure(stream) => Pin::new(stream).poll_write(cx, from),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Secure(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Secure(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, from),
            Self::Secure(stream) => Pin::new(stream).poll_write_vectored(cx, from),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Secure(stream) => stream.is_write_vectored(),
        }
    }
}
