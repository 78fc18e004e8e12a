//! A small HTTP server that answers what a test wrote, and tells what it was asked.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What the server does with one request.
pub(crate) enum Answer {
    /// A whole answer.
    Whole { status: u16, headers: Vec<(&'static str, String)>, body: Vec<u8> },
    /// The head of an answer and a part of its body; then the connection ends.
    Broken { status: u16, body: &'static str },
    /// The head of an answer and a part of its body, and no more.
    Stuck { status: u16 },
    /// A body without end.
    Endless,
    /// The connection ends.
    Closed,
    /// Nothing at all.
    Silence,
}

impl Answer {
    pub(crate) fn json(status: u16, body: &Value) -> Self {
        Self::Whole { status, headers: vec![("content-type", "application/json".to_owned())], body: body.to_string().into() }
    }

    pub(crate) fn text(status: u16, body: &str) -> Self {
        Self::Whole { status, headers: Vec::new(), body: body.into() }
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        if let Self::Whole { headers, .. } = &mut self {
            headers.push((name, value.into()));
        }
        self
    }
}

/// A request as the server saw it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// The request line without the version.
    pub(crate) line: String,
    /// Headers, their names in lower case.
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

pub(crate) struct Server {
    /// `http://127.0.0.1:PORT`.
    pub(crate) url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    asked: watch::Sender<usize>,
}

impl Server {
    /// Answers the requests in their order; who asks more finds the connection closed.
    pub(crate) async fn answering(answers: impl IntoIterator<Item = Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answers: Arc<Mutex<VecDeque<Answer>>> = Arc::new(Mutex::new(answers.into_iter().collect()));
        let server = Self { url, seen: Arc::default(), asked: watch::Sender::new(0) };
        let (seen, asked) = (Arc::clone(&server.seen), server.asked.clone());
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (answers, seen, asked) = (Arc::clone(&answers), Arc::clone(&seen), asked.clone());
                tokio::spawn(async move { serve(socket, &answers, &seen, &asked).await });
            }
        });
        server
    }

    /// The requests so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// The request lines so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.line).collect()
    }

    /// The only request.
    pub(crate) fn only(&self) -> Seen {
        let seen = self.seen();
        assert_eq!(seen.len(), 1, "{:?}", self.lines());
        seen[0].clone()
    }

    /// Waits until this many requests were there.
    pub(crate) async fn asked(&self, times: usize) {
        self.asked.subscribe().wait_for(|asked| *asked >= times).await.unwrap();
    }
}

async fn serve(
    mut socket: TcpStream,
    answers: &Mutex<VecDeque<Answer>>,
    seen: &Mutex<Vec<Seen>>,
    asked: &watch::Sender<usize>,
) -> Option<()> {
    let mut buffer = Vec::new();
    loop {
        let request = read_request(&mut socket, &mut buffer).await?;
        seen.lock().unwrap().push(request);
        asked.send_modify(|asked| *asked += 1);
        let answer = answers.lock().unwrap().pop_front()?;
        match answer {
            Answer::Whole { status, headers, body } => {
                let headers = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect::<Vec<_>>().concat();
                let head = format!("HTTP/1.1 {status} Said\r\ncontent-length: {}\r\n{headers}\r\n", body.len());
                socket.write_all(&[head.as_bytes(), &body].concat()).await.ok()?;
            }
            Answer::Broken { status, body } => {
                let head = format!("HTTP/1.1 {status} Said\r\ncontent-length: 100000\r\n\r\n{body}");
                socket.write_all(head.as_bytes()).await.ok()?;
                return None;
            }
            Answer::Stuck { status } => {
                socket.write_all(format!("HTTP/1.1 {status} Said\r\ncontent-length: 100\r\n\r\n{{").as_bytes()).await.ok()?;
                while socket.read(&mut [0; 64]).await.ok()? > 0 {}
                return None;
            }
            Answer::Endless => {
                socket.write_all(b"HTTP/1.1 200 Said\r\n\r\n").await.ok()?;
                loop {
                    socket.write_all(&[b' '; 8192]).await.ok()?;
                }
            }
            Answer::Closed => return None,
            Answer::Silence => {
                while socket.read(&mut [0; 64]).await.ok()? > 0 {}
                return None;
            }
        }
    }
}

async fn read_request(socket: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Seen> {
    let end = loop {
        if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if socket.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(buffer[..end].to_vec()).unwrap();
    buffer.drain(..end + 4);
    let (line, rest) = head.split_once("\r\n").unwrap();
    let headers: Vec<(String, String)> = rest
        .split("\r\n")
        .map(|header| header.split_once(": ").map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).unwrap())
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length").map_or(0, |(_, length)| length.parse().unwrap());
    while buffer.len() < length {
        if socket.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    let body = buffer.drain(..length).collect();
    Some(Seen { line: line.strip_suffix(" HTTP/1.1").unwrap_or(line).to_owned(), headers, body })
}
