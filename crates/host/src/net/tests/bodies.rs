//! Bodies and heads that are larger, longer or slower than they may be.

use std::io::Write as _;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::server::{Reply, Server, reply};
use super::*;

const LIMIT: usize = 2 << 20;

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(content).unwrap();
    packed.finish().unwrap()
}

async fn read(answer: impl Fn() -> Reply + Clone + Send + Sync + 'static) -> (Result<ReadBody, GuardError>, Duration) {
    let server = Server::start(move |_| answer()).await;
    let client = mapped(&[("a.example", server.address)]).build().unwrap();
    let began = Instant::now();
    let body = match client.get("http://a.example/").await {
        Ok(response) => response.body.read().await,
        Err(error) => Err(error),
    };
    (body, began.elapsed())
}

fn chunk(bytes: &[u8]) -> Vec<u8> {
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    chunk
}

// case: field-reports 124
#[tokio::test]
async fn a_gzip_bomb_stops_at_the_limit() {
    // 2 MB for 2 GB.
    let bomb = gzip(&vec![0; 1 << 20]).repeat(2048);
    assert!(bomb.len() < 3_000_000, "{}", bomb.len());
    let chunked = bomb.clone();
    let (body, _) = read(move || reply("200 OK\r\ncontent-encoding: gzip", &bomb)).await;
    let body = body.unwrap();
    assert_eq!((body.bytes.len(), body.truncated), (LIMIT, true));
    let (body, _) = read(move || {
        let mut bytes = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
        bytes.extend(chunked.chunks(1000).flat_map(chunk));
        bytes.extend(b"0\r\n\r\n");
        Reply::Bytes(bytes)
    })
    .await;
    let body = body.unwrap();
    assert_eq!((body.bytes.len(), body.truncated), (LIMIT, true));
}

// case: field-reports 124
#[tokio::test]
async fn a_brotli_bomb_stops_at_the_limit() {
    let mut packed = brotli::CompressorWriter::new(Vec::new(), 4096, 5, 22);
    packed.write_all(&vec![0; 30 << 20]).unwrap();
    let bomb = packed.into_inner();
    assert!(bomb.len() < 10_000, "{}", bomb.len());
    let (body, _) = read(move || reply("200 OK\r\ncontent-encoding: br", &bomb)).await;
    let body = body.unwrap();
    assert_eq!((body.bytes.len(), body.truncated), (LIMIT, true));
}

// case: field-reports 125
#[tokio::test]
async fn a_thousand_empty_members_are_an_empty_body() {
    let many = gzip(b"").repeat(1025);
    let (body, took) = read(move || reply("200 OK\r\ncontent-encoding: gzip", &many)).await;
    assert_eq!(body.unwrap(), ReadBody { bytes: Vec::new(), truncated: false });
    assert!(took < Duration::from_secs(5), "{took:?}");
}

// case: field-reports 124
#[tokio::test]
async fn a_body_without_end_stops_at_the_limit() {
    let (body, _) = read(|| {
        let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
        Reply::Endless(head, chunk(&[b'x'; 4096]))
    })
    .await;
    let body = body.unwrap();
    assert_eq!((body.bytes.len(), body.truncated), (LIMIT, true));
    let (body, _) = read(|| Reply::Endless(b"HTTP/1.0 200 OK\r\n\r\n".to_vec(), vec![b'x'; 4096])).await;
    assert_eq!(body.unwrap().bytes.len(), LIMIT);
    // Without content: what comes in is counted too.
    let empty = gzip(b"");
    let (body, _) = read(move || {
        let head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
        Reply::Endless(head, chunk(&empty.repeat(100)))
    })
    .await;
    assert!(matches!(body, Err(GuardError::Packed { .. })), "{body:?}");
}

#[tokio::test]
async fn a_body_of_exactly_the_limit_is_whole() {
    let (body, _) = read(|| reply("200 OK", vec![b'x'; LIMIT])).await;
    let body = body.unwrap();
    assert_eq!((body.bytes.len(), body.truncated), (LIMIT, false));
    let packed = gzip(&vec![b'x'; LIMIT]);
    let (body, _) = read(move || reply("200 OK\r\ncontent-encoding: gzip", &packed)).await;
    assert!(!body.unwrap().truncated);
}

#[tokio::test]
async fn time_is_bounded_from_the_look_up_to_the_last_byte() {
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf";
    for stalled in ["", "HTTP/1.1 200 OK\r\nx: ", head] {
        let server = Server::start(move |_| Reply::Stalled(stalled.as_bytes().to_vec())).await;
        let client = mapped(&[("slow.example", server.address)]).timeout(Duration::from_millis(200)).build().unwrap();
        let error = match client.get("http://slow.example/").await {
            Ok(response) => response.body.read().await.unwrap_err(),
            Err(error) => error,
        };
        assert_eq!(error.to_string(), "slow.example did not answer within 200 ms; try later, or ask for less");
    }
    #[derive(Debug)]
    struct Never;
    impl Resolver for Never {
        fn resolve<'a>(&'a self, _name: &'a str) -> BoxFuture<'a, std::io::Result<Vec<IpAddr>>> {
            std::future::pending().boxed()
        }
    }
    let client = GuardedClient::builder().resolver(Never).timeout(Duration::from_millis(50)).build().unwrap();
    assert!(matches!(client.get("http://slow.example/").await, Err(GuardError::Timeout { .. })));
}

#[tokio::test]
async fn heads_are_bounded() {
    let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(100_000));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(200));
    for head in [long, many] {
        let (body, _) = read(move || Reply::Closed(head.clone().into_bytes())).await;
        let error = body.unwrap_err();
        assert_eq!(error.to_string(), "a.example answered with headers of more than 65536 bytes or 100 lines, which is refused");
    }
}

#[tokio::test]
async fn what_breaks_off_is_an_error() {
    let (body, _) = read(|| Reply::Closed(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf".to_vec())).await;
    assert!(matches!(body, Err(GuardError::Broken { .. })), "{body:?}");
    let (body, _) = read(|| Reply::Closed(b"SSH-2.0-OpenSSH_9.2\r\n\r\n".to_vec())).await;
    assert!(matches!(body, Err(GuardError::Broken { .. })), "{body:?}");
    let (body, _) = read(|| reply("200 OK\r\ncontent-encoding: zstd", "x")).await;
    assert!(body.unwrap_err().to_string().contains("`zstd`"));
    let half = gzip(&[b'x'; 10_000]);
    let (body, _) = read(move || reply("200 OK\r\ncontent-encoding: gzip", &half[..half.len() - 4])).await;
    assert!(matches!(body, Err(GuardError::Packed { .. })), "{body:?}");
    let closed = {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    let client = mapped(&[("closed.example", closed)]).build().unwrap();
    let error = client.get("http://closed.example/").await.unwrap_err();
    assert!(error.to_string().starts_with("no connection to closed.example on port 80: "), "{error}");
}

#[tokio::test]
async fn a_body_is_unpacked_and_its_headers_say_so() {
    let packed = gzip(b"hello");
    let server = Server::start(move |_| reply("200 OK\r\ncontent-encoding: gzip\r\ncontent-type: text/plain", &packed)).await;
    let client = mapped(&[("a.example", server.address)]).build().unwrap();
    let response = client.get("http://a.example/").await.unwrap();
    assert_eq!((response.header("content-encoding"), response.header("content-length")), (None, None));
    assert_eq!(response.header("content-type"), Some("text/plain"));
    assert_eq!(text_of(response).await, "hello");
    assert_eq!(server.seen()[0].header("accept-encoding"), Some("gzip, deflate, br"));
}

#[tokio::test]
async fn connections_are_used_again() {
    let server = Server::start(|_| reply("200 OK", "x")).await;
    let dial = Noted::leading_to(server.address);
    let client = GuardedClient::builder().resolver(Names::all(&["8.8.8.8"])).dial(dial.clone()).build().unwrap();
    for _ in 0..5 {
        assert_eq!(text_of(client.get("http://a.example/").await.unwrap()).await, "x");
        // The connection goes back to the pool in a task of its own.
        tokio::task::yield_now().await;
    }
    assert!(dial.dialled().len() < 5, "{:?}", dial.dialled());
}
