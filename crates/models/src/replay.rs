//! Recording and replaying whole HTTP conversations, below a wire.
//!
//! A cassette is a JSON file that people read and review: requests with their bodies as JSON, responses with their bodies in the pieces
//! they came in. Request headers are not written at all, and of a response's only those that a wire reads. Keys are taken out of
//! everything else.
//!
//! A request is answered by the first recorded one that equals it and was not used yet. Equal means: the same method, path and query,
//! and the same body as JSON, whatever the order of its keys. Ids of calls differ from run to run, so that only which ids are the same
//! counts, not what they are.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream::{self, StreamExt as _};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolwright_host::net::{Body, NetError, Request, Response};

use crate::secret::{REDACTED, without_keys};
use crate::transport::Transport;

/// The code of every error of a cassette.
pub const CASSETTE_INVALID: &str = "TOOLWRIGHT_CASSETTE_INVALID";

const VERSION: u32 = 1;

/// What a [`Cassette`] does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayMode {
    /// Sends it, and records the answer. The file starts anew.
    Record,
    /// Answers it from the file, and never from anywhere else.
    Replay,
    /// Answers from the file where the file exists, and records it where it does not.
    ReplayOrRecord,
}

/// Why a cassette can't be used, or does not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{CASSETTE_INVALID}: {message}")]
pub struct CassetteError {
    message: String,
}

impl CassetteError {
    fn new(file: &Path, problem: &str) -> Self {
        Self { message: format!("the cassette {}: {problem}", file.display()) }
    }

    /// The stable code.
    pub fn code(&self) -> &'static str {
        CASSETTE_INVALID
    }
}

/// Records conversations into a file, or replays them from it. A [`Transport`] for [`crate::ChatModel`] and [`crate::ChatResolver`].
#[derive(Clone)]
pub struct Cassette {
    shared: Arc<Shared>,
}

struct Shared {
    file: PathBuf,
    /// `None` replays.
    live: Option<Arc<dyn Transport>>,
    tape: Mutex<Tape>,
}

#[derive(Default)]
struct Tape {
    entries: Vec<Entry>,
    used: Vec<bool>,
}

/// The file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u32,
    entries: Vec<Entry>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    request: Asked,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    response: Option<Answered>,
    /// There was no response: what the network said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    method: String,
    path: String,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    body: Value,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Answered {
    status: u16,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    headers: Vec<(String, String)>,
    body: Vec<Piece>,
    /// The body did not come to its end: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    broken: Option<String>,
}

/// A piece of a body: text, or bytes that are no text by themselves (half a character, say) in hexadecimal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Piece {
    Text(String),
    Bytes { hex: String },
}

impl Piece {
    fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Bytes { hex: toolwright_core::hex(bytes) },
        }
    }

    fn bytes(&self) -> Option<Vec<u8>> {
        match self {
            Self::Text(text) => Some(text.clone().into_bytes()),
            Self::Bytes { hex } => {
                let digits = hex.as_bytes().chunks(2);
                digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
            }
        }
    }
}

/// Headers of a response that a wire reads.
const KEPT_HEADERS: [&str; 6] = ["content-type", "retry-after", "retry-after-ms", "x-request-id", "request-id", "x-groq-id"];

impl fmt::Debug for Cassette {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cassette").field("file", &self.shared.file).field("records", &self.records()).finish()
    }
}

impl Cassette {
    /// A cassette in a file. `live` sends what is recorded; replaying never touches it.
    pub fn open(file: impl Into<PathBuf>, mode: ReplayMode, live: Arc<dyn Transport>) -> Result<Self, CassetteError> {
        let file = file.into();
        match mode {
            ReplayMode::Replay => Self::replay(file),
            ReplayMode::ReplayOrRecord if file.exists() => Self::replay(file),
            ReplayMode::Record | ReplayMode::ReplayOrRecord => Ok(Self::recording(file, live)),
        }
    }

    /// Replays from a file.
    pub fn replay(file: impl Into<PathBuf>) -> Result<Self, CassetteError> {
        let file = file.into();
        let fails = |problem: &str| CassetteError::new(&file, problem);
        let text = std::fs::read_to_string(&file).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => fails("it does not exist; record it first"),
            _ => fails(&format!("it can't be read: {error}")),
        })?;
        let value: Value = serde_json::from_str(&text).map_err(|error| fails(&format!("it is not JSON: {error}")))?;
        match value.get("version").and_then(Value::as_u64) {
            Some(version) if version == u64::from(VERSION) => {}
            Some(version) => return Err(fails(&format!("it has version {version} and this reads version {VERSION}; record it again"))),
            None => return Err(fails("it has no version, so it is not a cassette")),
        }
        let entries = serde_json::from_value::<File>(value).map_err(|error| fails(&format!("it is not whole: {error}")))?.entries;
        for (at, entry) in entries.iter().enumerate() {
            if let Some(answered) = &entry.response
                && answered.body.iter().any(|piece| piece.bytes().is_none())
            {
                return Err(fails(&format!("the body of answer {} holds digits that are not hexadecimal", at + 1)));
            }
        }
        let used = vec![false; entries.len()];
        Ok(Self { shared: Arc::new(Shared { file, live: None, tape: Mutex::new(Tape { entries, used }) }) })
    }

    fn recording(file: PathBuf, live: Arc<dyn Transport>) -> Self {
        Self { shared: Arc::new(Shared { file, live: Some(live), tape: Mutex::default() }) }
    }

    /// Whether it records.
    pub fn records(&self) -> bool {
        self.shared.live.is_some()
    }

    /// How many recorded answers were not asked for.
    pub fn unused(&self) -> usize {
        self.shared.tape().used.iter().filter(|used| !**used).count()
    }
}

impl Transport for Cassette {
    fn send(&self, request: Request) -> BoxFuture<'static, Result<Response, NetError>> {
        let shared = Arc::clone(&self.shared);
        async move {
            match shared.live.clone() {
                Some(live) => record(shared, live, request).await,
                None => shared.answer(&request),
            }
        }
        .boxed()
    }

    fn is_live(&self) -> bool {
        self.records()
    }
}

impl Tape {
    /// What to say of a request without an answer: the nearest recorded one, and where it differs.
    fn no_answer(&self, asked: &Asked, same: usize) -> String {
        if same > 0 {
            return format!("all {same} recorded answers to {} {} with this body are used; record it again", asked.method, asked.path);
        }
        let nearest = self
            .entries
            .iter()
            .enumerate()
            .map(|(at, entry)| (entry.request.differences(asked), at, entry))
            .min_by_key(|(differences, ..)| differences.len());
        match nearest {
            None => "it holds no request".to_owned(),
            Some((differences, at, entry)) => {
                let first = differences.first().map_or("it", |path| path.as_str());
                format!(
                    "no recorded request equals this {} {}; the nearest is request {} ({} {}), where {first} differs; record it again",
                    asked.method,
                    asked.path,
                    at + 1,
                    entry.request.method,
                    entry.request.path
                )
            }
        }
    }
}

impl Shared {
    fn tape(&self) -> MutexGuard<'_, Tape> {
        self.tape.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, request: &Request) -> Result<Response, NetError> {
        let asked = Asked::of(request, &secrets(request));
        let mut tape = self.tape();
        let same: Vec<usize> =
            tape.entries.iter().enumerate().filter(|(_, entry)| entry.request.equals(&asked)).map(|(at, _)| at).collect();
        let unused = |at: &usize| tape.used.get(*at) == Some(&false);
        let Some(at) = same.iter().copied().find(|at| unused(at)) else {
            let problem = tape.no_answer(&asked, same.len());
            return Err(NetError::NoAnswer { message: CassetteError::new(&self.file, &problem).to_string() });
        };
        if let Some(used) = tape.used.get_mut(at) {
            *used = true;
        }
        let entry = tape.entries.get(at).cloned();
        match entry.map(|entry| (entry.response, entry.error)) {
            Some((Some(answered), _)) => Ok(answered.replayed()),
            Some((None, Some(message))) => Err(NetError::NoAnswer { message }),
            _ => {
                let problem = format!("request {} has neither a response nor an error", at + 1);
                Err(NetError::NoAnswer { message: CassetteError::new(&self.file, &problem).to_string() })
            }
        }
    }

    fn add(&self, entry: Entry) {
        let mut tape = self.tape();
        tape.entries.push(entry);
        tape.used.push(true);
        let file = File { version: VERSION, entries: tape.entries.clone() };
        if let Err(error) = write(&self.file, &file) {
            tracing::warn!(file = %self.file.display(), %error, "a cassette could not be written");
        }
    }
}

/// Writes beside the file, then in its place, so that a reader never sees half of it.
fn write(path: &Path, file: &File) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let beside = path.with_extension("partial");
    let mut text = serde_json::to_string_pretty(file)?;
    text.push('\n');
    std::fs::write(&beside, text)?;
    std::fs::rename(&beside, path)
}

async fn record(shared: Arc<Shared>, live: Arc<dyn Transport>, request: Request) -> Result<Response, NetError> {
    let secrets = secrets(&request);
    let asked = Asked::of(&request, &secrets);
    match live.send(request).await {
        Err(error) => {
            shared.add(Entry { request: asked, response: None, error: Some(redact(&error.to_string(), &secrets)) });
            Err(error)
        }
        Ok(response) => {
            let headers = response
                .headers
                .iter()
                .filter(|(name, _)| KEPT_HEADERS.contains(&name.as_str()))
                .map(|(name, value)| (name.clone(), redact(value, &secrets)))
                .collect();
            let tap = Tap {
                body: Some(response.body),
                recorded: Some(Recorded { shared, secrets, asked, status: response.status, headers, pieces: Vec::new() }),
            };
            let body = stream::unfold(tap, |mut tap| async move { Some((tap.next().await?, tap)) }).boxed();
            Ok(Response { status: response.status, headers: response.headers, body })
        }
    }
}

/// A body on its way to the wire. What passes is recorded when it ends, breaks or is dropped.
struct Tap {
    body: Option<Body>,
    recorded: Option<Recorded>,
}

struct Recorded {
    shared: Arc<Shared>,
    secrets: Vec<String>,
    asked: Asked,
    status: u16,
    headers: Vec<(String, String)>,
    pieces: Vec<Bytes>,
}

impl Tap {
    async fn next(&mut self) -> Option<Result<Bytes, NetError>> {
        let piece = self.body.as_mut()?.next().await;
        match &piece {
            Some(Ok(bytes)) => {
                if let Some(recorded) = &mut self.recorded {
                    recorded.pieces.push(bytes.clone());
                }
            }
            Some(Err(error)) => self.end(Some(error.to_string())),
            None => self.end(None),
        }
        piece
    }

    fn end(&mut self, broken: Option<String>) {
        self.body = None;
        if let Some(recorded) = self.recorded.take() {
            recorded.save(broken);
        }
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.end(Some("the reader went away".to_owned()));
    }
}

impl Recorded {
    fn save(self, broken: Option<String>) {
        let whole: Vec<u8> = self.pieces.concat();
        let text = String::from_utf8_lossy(&whole);
        let clean = redact(&text, &self.secrets);
        // A secret may lie across pieces; then the body is kept in one.
        let body = if clean == text { self.pieces.iter().map(|piece| Piece::of(piece)).collect() } else { vec![Piece::Text(clean)] };
        let broken = broken.map(|why| redact(&why, &self.secrets));
        // A wire stops reading at the stream's own end, which is not the connection's.
        let broken = broken.filter(|_| !text.trim_end().ends_with("data: [DONE]"));
        let answered = Answered { status: self.status, headers: self.headers, body, broken };
        self.shared.add(Entry { request: self.asked, response: Some(answered), error: None });
    }
}

impl Answered {
    fn replayed(self) -> Response {
        let pieces = self.body.into_iter().filter_map(|piece| piece.bytes()).map(|bytes| Ok(Bytes::from(bytes)));
        let end = self.broken.map(|problem| Err(NetError::Broken { host: "the recorded server".to_owned(), problem }));
        let body: Vec<Result<Bytes, NetError>> = pieces.chain(end).collect();
        Response { status: self.status, headers: self.headers, body: stream::iter(body).boxed() }
    }
}

/// What of a request must not be written: secret headers, whole and without their scheme.
fn secrets(request: &Request) -> Vec<String> {
    let mut out = Vec::new();
    for header in request.headers.iter().filter(|header| header.secret) {
        if let Some((_, bare)) = header.value.split_once(' ') {
            out.push(bare.to_owned());
        }
        out.push(header.value.clone());
    }
    out.retain(|secret| !secret.trim().is_empty());
    // The longest first, so that none leaves a part of another.
    out.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    out
}

fn redact(text: &str, secrets: &[String]) -> String {
    let mut out = text.to_owned();
    for secret in secrets {
        out = out.replace(secret, REDACTED);
    }
    without_keys(&out)
}

impl Asked {
    fn of(request: &Request, secrets: &[String]) -> Self {
        let text = redact(&String::from_utf8_lossy(&request.body), secrets);
        let body = match serde_json::from_str(&text) {
            Ok(body) => body,
            Err(_) if text.is_empty() => Value::Null,
            Err(_) => Value::String(text),
        };
        Self { method: request.method.clone(), path: redact(&path_of(&request.url), secrets), body }
    }

    fn equals(&self, other: &Self) -> bool {
        self.differences(other).is_empty()
    }

    /// The paths at which two requests differ.
    fn differences(&self, other: &Self) -> Vec<String> {
        let mut out = Vec::new();
        if self.method != other.method {
            out.push("the method".to_owned());
        }
        if self.path != other.path {
            out.push("the path".to_owned());
        }
        let (mut ours, mut theirs) = (self.body.clone(), other.body.clone());
        name_ids(&mut ours, &mut HashMap::new());
        name_ids(&mut theirs, &mut HashMap::new());
        compare(&ours, &theirs, "body", &mut out);
        out
    }
}

/// The path and query of an address, with what looks like a secret in the query taken out.
fn path_of(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let path = rest.find('/').and_then(|at| rest.get(at..)).unwrap_or("/");
    let path = path.split('#').next().unwrap_or(path);
    let Some((path, query)) = path.split_once('?') else { return path.to_owned() };
    let clean: Vec<String> = query
        .split('&')
        .map(|pair| match pair.split_once('=') {
            Some((name, _)) if ["key", "token", "secret", "signature", "sig"].iter().any(|word| name.to_lowercase().contains(word)) => {
                format!("{name}={REDACTED}")
            }
            _ => pair.to_owned(),
        })
        .collect();
    format!("{path}?{}", clean.join("&"))
}

/// Puts a number in the place of each id of a call, by its first appearance.
fn name_ids(value: &mut Value, names: &mut HashMap<String, usize>) {
    match value {
        Value::Object(map) => {
            let is_call = map.contains_key("function") || map.contains_key("arguments");
            for (key, value) in map {
                match value {
                    Value::String(id) if matches!(key.as_str(), "tool_call_id" | "call_id") || (is_call && key == "id") => {
                        let next = names.len() + 1;
                        let number = *names.entry(std::mem::take(id)).or_insert(next);
                        *id = format!("call {number}");
                    }
                    value => name_ids(value, names),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| name_ids(item, names)),
        _ => {}
    }
}

fn compare(ours: &Value, theirs: &Value, path: &str, out: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => {
            for (key, value) in ours {
                let path = format!("{path}.{key}");
                match theirs.get(key) {
                    Some(other) => compare(value, other, &path, out),
                    None => out.push(path),
                }
            }
            out.extend(theirs.keys().filter(|key| !ours.contains_key(*key)).map(|key| format!("{path}.{key}")));
        }
        (Value::Array(ours), Value::Array(theirs)) => {
            for (at, (value, other)) in ours.iter().zip(theirs).enumerate() {
                compare(value, other, &format!("{path}.{at}"), out);
            }
            out.extend((ours.len().min(theirs.len())..ours.len().max(theirs.len())).map(|at| format!("{path}.{at}")));
        }
        (ours, theirs) if ours == theirs => {}
        _ => out.push(path.to_owned()),
    }
}
