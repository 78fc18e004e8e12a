//! A server on this machine that speaks Chat Completions, from a script.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};

use serde_json::{Value, json};

/// Answers each request with the next reply of its script, one connection at a time.
pub(crate) struct Server {
    pub(crate) url: String,
    requests: Receiver<Value>,
    release: Sender<()>,
}

/// One reply.
pub(crate) enum Reply {
    /// These pieces of text.
    Text(&'static [&'static str]),
    /// These calls: name and arguments.
    Calls(&'static [(&'static str, &'static str)]),
    /// This text, and the word for how it ended.
    Ends(&'static str, &'static str),
    /// An HTTP error.
    Fails(u16, &'static str),
    /// One piece of text, then nothing until [`Server::release`], then another.
    Held(&'static str, &'static str),
}

impl Server {
    pub(crate) fn new(script: Vec<Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let (sent, requests) = channel();
        let (release, released) = channel();
        std::thread::spawn(move || {
            for reply in script {
                let Ok((stream, _)) = listener.accept() else { return };
                let mut stream = BufReader::new(stream);
                let _ = sent.send(request(&mut stream));
                // The client may hang up at any time.
                let _ = answer(stream.get_mut(), &reply, &released);
            }
        });
        Self { url, requests, release }
    }

    /// The environment in which the command finds this server.
    pub(crate) fn env(&self) -> [(&str, &str); 2] {
        [("COMPATIBLE_BASE_URL", &self.url), ("TOOLWRIGHT_MODEL", "compatible/tiny")]
    }

    /// The next request's body; waits for it.
    pub(crate) fn request(&self) -> Value {
        self.requests.recv().unwrap()
    }

    pub(crate) fn release(&self) {
        self.release.send(()).unwrap();
    }
}

fn request(stream: &mut BufReader<TcpStream>) -> Value {
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    serde_json::from_slice(&body).unwrap()
}

fn answer(stream: &mut TcpStream, reply: &Reply, released: &Receiver<()>) -> std::io::Result<()> {
    if let Reply::Fails(status, message) = reply {
        let body = json!({ "error": { "message": message } }).to_string();
        let head = format!(
            "HTTP/1.1 {status} No\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        return stream.write_all(format!("{head}{body}").as_bytes());
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")?;
    let mut chunk = |delta: Value, finish: Option<&str>| {
        let chunk = json!({
            "id": "c", "object": "chat.completion.chunk", "model": "tiny",
            "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }],
        });
        stream.write_all(format!("data: {chunk}\n\n").as_bytes())
    };
    let finish = match reply {
        Reply::Text(pieces) => {
            for piece in *pieces {
                chunk(json!({ "content": piece }), None)?;
            }
            "stop"
        }
        Reply::Calls(calls) => {
            for (index, (name, arguments)) in calls.iter().enumerate() {
                let call = json!({ "index": index, "id": format!("c{index}"), "type": "function", "function": { "name": name, "arguments": arguments } });
                chunk(json!({ "tool_calls": [call] }), None)?;
            }
            "tool_calls"
        }
        Reply::Ends(text, finish) => {
            chunk(json!({ "content": text }), None)?;
            finish
        }
        Reply::Held(before, after) => {
            chunk(json!({ "content": before }), None)?;
            let _ = released.recv();
            chunk(json!({ "content": after }), None)?;
            "stop"
        }
        Reply::Fails(..) => unreachable!("answered above"),
    };
    chunk(json!({}), Some(finish))?;
    stream.write_all(b"data: [DONE]\n\n")
}
