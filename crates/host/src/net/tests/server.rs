//! A small HTTP server on loopback, which answers with the bytes it is told to.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// What a request was.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) line: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Seen {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }
}

/// What is answered.
pub(super) enum Reply {
    /// These bytes; then the next request is read.
    Bytes(Vec<u8>),
    /// These bytes, then the second ones again and again until nobody reads them.
    Endless(Vec<u8>, Vec<u8>),
    /// These bytes, and nothing more; the connection stays open.
    Stalled(Vec<u8>),
    /// These bytes, then the connection is closed.
    Closed(Vec<u8>),
}

/// A response with a length.
pub(super) fn reply(head: &str, body: impl AsRef<[u8]>) -> Reply {
    let body = body.as_ref();
    let mut bytes = format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\n\r\n", body.len()).into_bytes();
    bytes.extend_from_slice(body);
    Reply::Bytes(bytes)
}

#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Server {
    pub(super) async fn start(answer: impl Fn(&Seen) -> Reply + Clone + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self { address: listener.local_addr().unwrap(), seen: Arc::default() };
        let seen = Arc::clone(&server.seen);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&seen), answer.clone()));
            }
        });
        server
    }

    /// With TLS.
    pub(super) async fn start_secure(
        config: rustls::ServerConfig,
        answer: impl Fn(&Seen) -> Reply + Clone + Send + Sync + 'static,
    ) -> (Self, Arc<Mutex<Vec<Option<String>>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self { address: listener.local_addr().unwrap(), seen: Arc::default() };
        let (seen, names) = (Arc::clone(&server.seen), Arc::<Mutex<Vec<Option<String>>>>::default());
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let noted = Arc::clone(&names);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(stream) = acceptor.accept(stream).await else { continue };
                noted.lock().unwrap().push(stream.get_ref().1.server_name().map(str::to_owned));
                tokio::spawn(serve(stream, Arc::clone(&seen), answer.clone()));
            }
        });
        (server, names)
    }

    /// Every request so far.
    pub(super) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Its address as a URL.
    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send>(mut stream: S, seen: Arc<Mutex<Vec<Seen>>>, answer: impl Fn(&Seen) -> Reply) {
    while let Some(request) = read_request(&mut stream).await {
        let reply = answer(&request);
        seen.lock().unwrap().push(request);
        let (bytes, then) = match reply {
            Reply::Bytes(bytes) => (bytes, None),
            Reply::Endless(bytes, again) => {
                let _ = stream.write_all(&bytes).await;
                while stream.write_all(&again).await.is_ok() {}
                return;
            }
            Reply::Stalled(bytes) => (bytes, Some(true)),
            Reply::Closed(bytes) => (bytes, Some(false)),
        };
        if stream.write_all(&bytes).await.is_err() {
            return;
        }
        let _ = stream.flush().await;
        match then {
            None => {}
            // Until the other side goes.
            Some(true) => {
                let _ = stream.read(&mut [0]).await;
                return;
            }
            Some(false) => {
                let _ = stream.shutdown().await;
                return;
            }
        }
    }
}

async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<Seen> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).ok()?;
    let mut lines = head.lines();
    let line = lines.next()?.to_owned();
    let headers: Vec<(String, String)> =
        lines.filter_map(|line| line.split_once(':')).map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect();
    let length = headers.iter().find(|(name, _)| name == "content-length").map_or(0, |(_, value)| value.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(Seen { line, headers, body })
}
