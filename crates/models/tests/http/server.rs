//! A small HTTP server that answers what a test wrote, and tells what it was asked.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What the server does with one request.
pub(crate) enum Answer {
    /// A whole response.
    Whole { status: u16, headers: Vec<(&'static str, String)>, body: String },
    /// A stream of events in these pieces, and then its end.
    Stream(Vec<Vec<u8>>),
    /// A stream of events in these pieces, which then stays open.
    Held(Vec<Vec<u8>>),
    /// A stream of events in these pieces, broken off.
    Broken(Vec<Vec<u8>>),
    /// This piece for ever.
    Endless(Vec<u8>),
    /// Nothing at all.
    Silence,
}

impl Answer {
    pub(crate) fn json(status: u16, body: &Value) -> Self {
        Self::Whole { status, headers: vec![("content-type", "application/json".to_owned())], body: body.to_string() }
    }

    /// A stream of chunks, each in a piece of its own, and `[DONE]`.
    pub(crate) fn chunks(chunks: &[Value]) -> Self {
        Self::Stream(pieces(chunks).into_iter().chain([b"data: [DONE]\n\n".to_vec()]).collect())
    }
}

pub(crate) fn pieces(chunks: &[Value]) -> Vec<Vec<u8>> {
    chunks.iter().map(|chunk| format!("data: {chunk}\n\n").into_bytes()).collect()
}

/// A request as the server saw it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// The request line.
    pub(crate) line: String,
    /// Headers in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

pub(crate) struct Server {
    pub(crate) url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    closed: watch::Sender<usize>,
}

impl Server {
    pub(crate) async fn answering(answers: impl IntoIterator<Item = Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let answers: Arc<Mutex<VecDeque<Answer>>> = Arc::new(Mutex::new(answers.into_iter().collect()));
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let closed = watch::Sender::new(0);
        let server = Self { url, seen: Arc::clone(&seen), closed: closed.clone() };
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (answers, seen, closed) = (Arc::clone(&answers), Arc::clone(&seen), closed.clone());
                tokio::spawn(async move {
                    serve(socket, &answers, &seen).await;
                    closed.send_modify(|count| *count += 1);
                });
            }
        });
        server
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Waits until a connection was closed by its client.
    pub(crate) async fn closed(&self) {
        self.closed.subscribe().wait_for(|count| *count > 0).await.unwrap();
    }
}

async fn serve(mut socket: TcpStream, answers: &Mutex<VecDeque<Answer>>, seen: &Mutex<Vec<Seen>>) -> Option<()> {
    let mut buffer = Vec::new();
    loop {
        let request = read_request(&mut socket, &mut buffer).await?;
        seen.lock().unwrap().push(request);
        let answer = answers.lock().unwrap().pop_front()?;
        match answer {
            Answer::Whole { status, headers, body } => {
                let headers: Vec<String> = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
                let head = format!("HTTP/1.1 {status} Said\r\ncontent-length: {}\r\n{}", body.len(), headers.concat());
                socket.write_all(format!("{head}\r\n{body}").as_bytes()).await.ok()?;
            }
            Answer::Stream(pieces) => {
                stream(&mut socket, &pieces).await?;
                socket.write_all(b"0\r\n\r\n").await.ok()?;
            }
            Answer::Held(pieces) => {
                stream(&mut socket, &pieces).await?;
                // Until the client goes away.
                while socket.read(&mut [0; 64]).await.ok()? > 0 {}
                return None;
            }
            Answer::Broken(pieces) => {
                stream(&mut socket, &pieces).await?;
                return None;
            }
            Answer::Endless(piece) => {
                stream(&mut socket, &[]).await?;
                loop {
                    write_piece(&mut socket, &piece).await?;
                }
            }
            Answer::Silence => {
                while socket.read(&mut [0; 64]).await.ok()? > 0 {}
                return None;
            }
        }
    }
}

async fn stream(socket: &mut TcpStream, pieces: &[Vec<u8>]) -> Option<()> {
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\nx-request-id: req-7\r\n\r\n";
    socket.write_all(head.as_bytes()).await.ok()?;
    for piece in pieces {
        write_piece(socket, piece).await?;
    }
    Some(())
}

async fn write_piece(socket: &mut TcpStream, piece: &[u8]) -> Option<()> {
    let mut chunk = format!("{:x}\r\n", piece.len()).into_bytes();
    chunk.extend_from_slice(piece);
    chunk.extend_from_slice(b"\r\n");
    socket.write_all(&chunk).await.ok()
}

async fn read_request(socket: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Seen> {
    let head_end = loop {
        if let Some(at) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        if socket.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(buffer[..head_end].to_vec()).unwrap();
    let mut lines = head.lines();
    let line = lines.next().unwrap().to_owned();
    let headers: Vec<(String, String)> =
        lines.filter_map(|line| line.split_once(": ")).map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
    let length: usize = headers.iter().find(|(name, _)| name == "content-length").map_or(0, |(_, value)| value.parse().unwrap());
    while buffer.len() < head_end + 4 + length {
        if socket.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    let body = String::from_utf8(buffer[head_end + 4..head_end + 4 + length].to_vec()).unwrap();
    buffer.drain(..head_end + 4 + length);
    Some(Seen { line, headers, body })
}
