//! The proxy itself.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::HeaderName;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use url::Url;

use super::Inner;
use crate::net::{GuardError, Header, Request as Outgoing};

/// How long a client may take to say what it wants.
const HEAD: Duration = Duration::from_secs(30);
/// How long a place has to accept a tunnel.
const CONNECT: Duration = Duration::from_secs(10);
/// How much of a request's body is taken in before it is passed on.
const BODY: usize = 32 << 20;
/// How many connections, and how many requests with a body in memory, there are at once; more have to wait. A tunnel too many is refused.
const CONNECTIONS: usize = 256;
pub(super) const TUNNELS: usize = 256;
pub(super) const REQUESTS: usize = 16;

/// What stands between one client and this proxy, or is set anew for the way on.
const OF_THE_CONNECTION: &[&str] = &[
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

type Answer = Response<UnsyncBoxBody<Bytes, io::Error>>;

/// Accepts connections until `closed` is.
pub(super) async fn accept(listener: TcpListener, broker: Arc<Inner>, closed: watch::Receiver<()>) {
    let mut over = closed.clone();
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let next = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, stream) = tokio::select! {
            _ = over.changed() => return,
            next = next => next,
        };
        match stream {
            Ok((stream, _)) => {
                let served = connection(stream, Arc::clone(&broker), closed.clone());
                until(closed.clone(), async move {
                    served.await;
                    drop(place);
                });
            }
            // Too many open files, say: a short rest, or this turns into a busy loop.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Does something beside, until it is done or the broker is closed.
fn until(mut closed: watch::Receiver<()>, work: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(async move {
        tokio::select! {
            _ = closed.changed() => {}
            () = work => {}
        }
    });
}

async fn connection(stream: TcpStream, broker: Arc<Inner>, closed: watch::Receiver<()>) {
    let service = service_fn(move |request| {
        let (broker, closed) = (Arc::clone(&broker), closed.clone());
        async move { Ok::<_, std::convert::Infallible>(answer(request, broker, closed).await) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    // What goes wrong between a program and its proxy is the program's to see.
    let _ = served.await;
}

async fn answer(request: Request<Incoming>, broker: Arc<Inner>, closed: watch::Receiver<()>) -> Answer {
    if request.method() == Method::CONNECT {
        return tunnel(request, &broker, closed).await;
    }
    let Some(url) = target(&request) else {
        return say(StatusCode::BAD_REQUEST, "this is a proxy: send it the whole URL, or a path of `/<host>/...`");
    };
    forward(request, url, &broker).await
}

/// Where a request goes: its whole URL, or what the first part of its path names, by HTTPS.
fn target(request: &Request<Incoming>) -> Option<Url> {
    let uri = request.uri();
    if uri.scheme().is_some() {
        return Url::parse(&uri.to_string()).ok();
    }
    let path = uri.path_and_query()?.as_str().strip_prefix('/')?;
    let (host, rest) = path.split_once('/').unwrap_or((path, ""));
    let url = Url::parse(&format!("https://{host}/")).ok().filter(|url| url.path() == "/" && url.query().is_none())?;
    // Joined as text, so that nothing in the path is read as another host.
    Url::parse(&format!("{url}{rest}")).ok().filter(|whole| whole.origin() == url.origin())
}

/// Passes a connection on as it is, to an address that was checked.
#[allow(clippy::disallowed_methods, reason = "host opens connections, here to addresses that host::net has checked")]
async fn tunnel(request: Request<Incoming>, broker: &Inner, closed: watch::Receiver<()>) -> Answer {
    let Some(place) = request.uri().authority().filter(|place| place.port().is_some()) else {
        return say(StatusCode::BAD_REQUEST, "a tunnel is asked for by host and port");
    };
    let Ok(kept) = Arc::clone(&broker.tunnels).try_acquire_owned() else {
        return say(StatusCode::SERVICE_UNAVAILABLE, "there are too many tunnels; close one first");
    };
    let addresses = match broker.client.resolve(&format!("https://{place}/")).await {
        Ok(addresses) => addresses,
        Err(error) => return refuse(&error),
    };
    let mut there = None;
    for address in addresses {
        if let Ok(Ok(stream)) = tokio::time::timeout(CONNECT, TcpStream::connect(address)).await {
            there = Some(stream);
            break;
        }
    }
    let Some(mut there) = there else {
        return say(StatusCode::BAD_GATEWAY, &format!("no connection to {}", place.host()));
    };
    until(closed, async move {
        if let Ok(here) = hyper::upgrade::on(request).await {
            let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(here), &mut there).await;
        }
        drop(kept);
    });
    say(StatusCode::OK, "")
}

/// Sends a request on, with the credentials of its host.
async fn forward(request: Request<Incoming>, url: Url, broker: &Inner) -> Answer {
    // Before its body is taken in: who may not send may not make this process read either.
    if let Err(error) = broker.client.check(url.as_str()) {
        return refuse(&error);
    }
    let Ok(_place) = broker.requests.acquire().await else {
        return say(StatusCode::SERVICE_UNAVAILABLE, "the broker is closed");
    };
    let (head, body) = request.into_parts();
    let body = match Limited::new(body, BODY).collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => return say(StatusCode::PAYLOAD_TOO_LARGE, "the body broke off, or is too long to be passed on"),
    };
    let named: Vec<String> = head
        .headers
        .get_all(hyper::header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(',').map(|name| name.trim().to_ascii_lowercase()))
        .collect();
    let credentials = broker.credentials(head.method.as_str(), &url);
    let passes = |name: &HeaderName| {
        let name = name.as_str();
        !OF_THE_CONNECTION.contains(&name) && !named.iter().any(|other| other == name) && !credentials.iter().any(|(own, _)| *own == name)
    };
    let mut headers: Vec<Header> = head
        .headers
        .iter()
        .filter(|(name, _)| passes(name))
        .filter_map(|(name, value)| Some(Header::plain(name.as_str(), value.to_str().ok()?)))
        .collect();
    headers.extend(credentials.into_iter().filter_map(|(name, value)| Some(Header::secret(name, value?))));
    let outgoing = Outgoing { method: head.method.as_str().to_owned(), url: url.to_string(), headers, body };
    match broker.client.send(outgoing).await {
        Ok(response) => pass_back(response),
        Err(error) => refuse(&error),
    }
}

fn pass_back(response: crate::net::GuardedResponse) -> Answer {
    let mut back = Response::builder().status(response.status);
    for (name, value) in response.headers {
        // The length stands only where the body is passed on as it came.
        if name == "content-length" || !OF_THE_CONNECTION.contains(&name.as_str()) {
            back = back.header(name, value);
        }
    }
    let pieces = futures_util::stream::unfold(Some(response.body), |body| async move {
        let mut body = body?;
        match body.next().await {
            Some(Ok(piece)) => Some((Ok(Frame::data(piece)), Some(body))),
            Some(Err(error)) => Some((Err(io::Error::other(error.to_string())), None)),
            // A part that looks whole would be taken for all of it.
            None if body.is_truncated() => Some((Err(io::Error::other("the response is too long to be passed on")), None)),
            None => None,
        }
    });
    back.body(StreamBody::new(pieces).boxed_unsync()).unwrap_or_else(|_| say(StatusCode::BAD_GATEWAY, "the response can't be passed on"))
}

fn refuse(error: &GuardError) -> Answer {
    let status = match error {
        error if error.is_refusal() => StatusCode::FORBIDDEN,
        GuardError::Url { .. } | GuardError::Request { .. } => StatusCode::BAD_REQUEST,
        GuardError::Timeout { .. } => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::BAD_GATEWAY,
    };
    say(status, &error.to_string())
}

fn say(status: StatusCode, text: &str) -> Answer {
    let text = if text.is_empty() { Bytes::new() } else { Bytes::from(format!("{text}\n")) };
    let mut answer = Response::new(Full::new(text).map_err(|never| match never {}).boxed_unsync());
    *answer.status_mut() = status;
    if !status.is_success() {
        // What else the program wanted to send is not read.
        answer.headers_mut().insert(hyper::header::CONNECTION, hyper::header::HeaderValue::from_static("close"));
    }
    answer
}
