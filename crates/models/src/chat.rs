//! The wire of OpenAI's Chat Completions, and of every server that speaks it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use futures_util::future::FutureExt as _;
use futures_util::stream::{self, StreamExt as _};
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use toolwright_core::{Item, Part, bounded};
use toolwright_host::net::{Body, Client, Header, NetError, Request, Response};
use toolwright_runtime::{ErrorCategory, Model, ModelError, ModelEvent, ModelInfo, ModelReply, ModelRequest, ModelStream, Prices};

use crate::assemble::Assembler;
use crate::decode::{MAX_REPLY, ReplyDecoder};
use crate::encode::{self, Mode};
use crate::failure;
use crate::secret::Secret;
use crate::switches::{Key, Switches};
use crate::transport::Transport;

/// The longest body of an error that is read.
const MAX_ERROR_BODY: usize = 64 << 10;

/// How long a wire waits (invariant 13). The runtime has its own deadline around the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// For a connection.
    pub connect: Duration,
    /// From the request to the first byte of the answer. Models that reason without streaming it take minutes.
    pub first_byte: Duration,
    /// Between two pieces of a stream.
    pub idle: Duration,
    /// For the whole exchange: a server that only ever says that it is alive ends here.
    pub total: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            first_byte: Duration::from_mins(5),
            idle: Duration::from_mins(2),
            total: Duration::from_mins(30),
        }
    }
}

/// A model behind Chat Completions.
///
/// ```
/// use toolwright_models::{ChatModel, Switches};
///
/// let model = ChatModel::new(Switches::compatible("my-server", "http://127.0.0.1:8000/v1"), "qwen3").key("not-shown");
/// assert!(!format!("{model:?}").contains("not-shown"));
/// ```
#[derive(Clone)]
pub struct ChatModel {
    switches: Switches,
    model: String,
    key: Option<Secret>,
    /// Set by the caller, or on the first request; clones share it, so that connections are used again.
    transport: Arc<OnceLock<Arc<dyn Transport>>>,
    deadlines: Deadlines,
    mode: Mode,
    max_reply: usize,
    context_window: Option<u64>,
    prices: Option<Prices>,
}

impl fmt::Debug for ChatModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatModel")
            .field("provider", &self.switches.provider)
            .field("model", &self.model)
            .field("key", &self.key)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

impl ChatModel {
    /// A model of the server that `switches` describe.
    pub fn new(switches: Switches, model: impl Into<String>) -> Self {
        Self {
            switches,
            model: model.into(),
            key: None,
            transport: Arc::default(),
            deadlines: Deadlines::default(),
            mode: Mode::Stream,
            max_reply: MAX_REPLY,
            context_window: None,
            prices: None,
        }
    }

    /// The key that requests carry. It is never shown, in no error and in no debug output.
    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        self.key = Some(Secret::new(key)).filter(|key| !key.expose().is_empty());
        self
    }

    /// Another address of the server.
    #[must_use]
    pub fn base_url(mut self, base_url: impl Into<String>) -> Self {
        self.switches.base_url = base_url.into().into();
        self
    }

    /// What sends the requests, instead of the network: a recording, say. Connections are shared where a transport is.
    #[must_use]
    pub fn transport(mut self, transport: Arc<dyn Transport>) -> Self {
        self.transport = Arc::new(OnceLock::from(transport));
        self
    }

    /// How long it waits. The deadline for connections is the transport's own where one was given.
    #[must_use]
    pub fn deadlines(mut self, deadlines: Deadlines) -> Self {
        self.deadlines = deadlines;
        self
    }

    /// The largest reply in bytes.
    #[must_use]
    pub fn max_reply(mut self, bytes: usize) -> Self {
        self.max_reply = bytes;
        self
    }

    /// Asks for the reply in one piece, for servers whose streams are broken. Its events then come all at once.
    #[must_use]
    pub fn whole(mut self) -> Self {
        self.mode = Mode::Whole;
        self
    }

    /// How many tokens fit in a request and its reply.
    #[must_use]
    pub fn context_window(mut self, tokens: u64) -> Self {
        self.context_window = Some(tokens);
        self
    }

    /// What tokens cost.
    #[must_use]
    pub fn prices(mut self, prices: Prices) -> Self {
        self.prices = Some(prices);
        self
    }

    fn request(&self, request: &ModelRequest) -> Request {
        let base = &*self.switches.base_url;
        let (path, query) = base.split_once('?').map_or((base, None), |(path, query)| (path, Some(query)));
        let mut url = format!("{}/chat/completions", path.trim_end_matches('/'));
        if let Some(query) = query {
            url.push('?');
            url.push_str(query);
        }
        let accept = match self.mode {
            Mode::Stream => "text/event-stream",
            Mode::Whole => "application/json",
        };
        let mut headers = vec![Header::plain("content-type", "application/json"), Header::plain("accept", accept)];
        if let Some(key) = &self.key {
            headers.push(Header::secret("authorization", format!("Bearer {}", key.expose())));
        }
        let body = encode::body(&self.switches, &self.model, request, self.mode).to_string();
        Request { method: "POST".to_owned(), url, headers, body: body.into() }
    }
}

impl Model for ChatModel {
    fn info(&self) -> ModelInfo {
        let mut info = ModelInfo::new(&*self.switches.provider, &self.model);
        info.context_window = self.context_window;
        info.prices = self.prices;
        info
    }

    fn stream(&self, request: ModelRequest) -> ModelStream {
        let exchange = Exchange {
            provider: Arc::from(&*self.switches.provider),
            model: Arc::from(self.model.as_str()),
            key: self.key.clone(),
            key_var: self.switches.key_var,
            local: self.switches.key == Key::Optional,
            transport: Arc::clone(self.transport.get_or_init(|| Arc::new(Client::new(self.deadlines.connect)))),
            deadlines: self.deadlines,
            mode: self.mode,
            max_reply: self.max_reply,
            cancelled: request.cancelled.clone(),
            ends: None,
            request_id: None,
            ready: VecDeque::new(),
            failed: None,
            phase: Phase::Ask(self.request(&request)),
        };
        stream::unfold(exchange, |mut exchange| async move { Some((exchange.next().await?, exchange)) }).boxed()
    }

    /// Four characters a token, and a flat thousand for an image or a file (sdk-runtime MM-3).
    fn estimate_tokens(&self, request: &ModelRequest) -> Option<u64> {
        const ATTACHMENT: usize = 4000;
        let mut characters = request.instructions.len();
        for tool in request.tools.iter() {
            characters += tool.definition().to_string().len();
        }
        for item in request.messages.iter().flat_map(|message| &message.items) {
            characters += match item {
                Item::Text { text } | Item::Reasoning { text, .. } => text.len(),
                Item::ToolCall(call) => call.name.len() + call.arguments.len(),
                Item::ToolResult(result) => {
                    let attached = result.parts.iter().filter(|part| matches!(part, Part::Image { .. } | Part::File { .. })).count();
                    result.text().len() + attached * ATTACHMENT
                }
                Item::Image { .. } | Item::File { .. } => ATTACHMENT,
                _ => 0,
            };
        }
        u64::try_from(characters / 4).ok()
    }
}

/// One request and its answer.
struct Exchange {
    provider: Arc<str>,
    model: Arc<str>,
    key: Option<Secret>,
    key_var: Option<&'static str>,
    local: bool,
    transport: Arc<dyn Transport>,
    deadlines: Deadlines,
    mode: Mode,
    max_reply: usize,
    cancelled: CancellationToken,
    /// When the total deadline is over; set when the request is sent.
    ends: Option<Instant>,
    request_id: Option<String>,
    ready: VecDeque<ModelEvent>,
    /// Given out when `ready` is empty.
    failed: Option<ModelError>,
    phase: Phase,
}

enum Phase {
    Ask(Request),
    Read(Body, Box<ReplyDecoder>),
    Over,
}

impl Exchange {
    /// The next event. What was read before an error comes out before it.
    async fn next(&mut self) -> Option<Result<ModelEvent, ModelError>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            if let Some(error) = self.failed.take() {
                return Some(Err(error));
            }
            let phase = std::mem::replace(&mut self.phase, Phase::Over);
            if matches!(phase, Phase::Over) {
                return None;
            }
            let cancelled = self.cancelled.clone();
            // Cancelling drops the phase, and with it the connection.
            let moved = tokio::select! {
                biased;
                () = cancelled.cancelled() => Err(self.error("the request was cancelled before the reply was complete")),
                moved = self.advance(phase) => moved,
            };
            match moved {
                Ok(phase) => self.phase = phase,
                Err(error) => self.failed = Some(self.dress(error)),
            }
        }
    }

    async fn advance(&mut self, phase: Phase) -> Result<Phase, ModelError> {
        match phase {
            Phase::Ask(request) => self.ask(request).await,
            Phase::Read(body, decoder) => self.read(body, decoder).await,
            Phase::Over => Ok(Phase::Over),
        }
    }

    async fn ask(&mut self, request: Request) -> Result<Phase, ModelError> {
        let ends = Instant::now() + self.deadlines.total;
        self.ends = Some(ends);
        let sent = tokio::time::timeout_at(self.within(self.deadlines.first_byte), self.transport.send(request)).await;
        let response = match sent {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(self.net(&error)),
            Err(_) => return Err(self.timeout(&format!("no answer came within {}", seconds(self.deadlines.first_byte)))),
        };
        self.request_id =
            ["x-request-id", "request-id", "x-groq-id", "cf-ray"].iter().find_map(|name| response.header(name)).map(|id| bounded(id, 200));
        if !(200..300).contains(&response.status) {
            return Err(self.refused(response).await);
        }
        let is_json = response.header("content-type").is_some_and(|kind| kind.trim_start().starts_with("application/json"));
        if self.mode == Mode::Whole || is_json {
            let body = self.read_all(response.body, self.max_reply, TooLong::Fails).await?;
            let text = String::from_utf8(body).map_err(|_| self.error("the answer holds bytes that are not UTF-8"))?;
            let reply = Assembler::new(Arc::clone(&self.provider), Arc::clone(&self.model)).whole(&text)?;
            self.give_whole(reply);
            return Ok(Phase::Over);
        }
        let decoder = ReplyDecoder::new(Arc::clone(&self.provider), Arc::clone(&self.model), self.max_reply);
        Ok(Phase::Read(response.body, Box::new(decoder)))
    }

    /// Reads one piece of a stream.
    async fn read(&mut self, mut body: Body, mut decoder: Box<ReplyDecoder>) -> Result<Phase, ModelError> {
        let wait = if decoder.is_fresh() { self.deadlines.first_byte } else { self.deadlines.idle };
        let piece = tokio::time::timeout_at(self.within(wait), body.next()).await;
        let mut events = Vec::new();
        let trouble = match piece {
            Ok(Some(Ok(bytes))) => {
                let read = decoder.push(&bytes, &mut events);
                self.ready.extend(events);
                read?;
                if !decoder.is_done() {
                    return Ok(Phase::Read(body, decoder));
                }
                // A connection that was read to its end can be used again.
                let _ = body.next().now_or_never();
                None
            }
            Ok(None) => None,
            Ok(Some(Err(error))) => Some(self.net(&error)),
            Err(_) if self.is_past_total() => Some(self.timeout(&format!("the reply took more than {}", seconds(self.deadlines.total)))),
            Err(_) => Some(self.timeout(&format!("the stream stood still for {}", seconds(wait)))),
        };
        let mut events = Vec::new();
        let reply = decoder.finish(&mut events);
        self.ready.extend(events);
        match (reply, trouble) {
            // A server that has said how the reply ended need not close the stream well.
            (Ok(reply), _) => self.ready.push_back(ModelEvent::Done(reply)),
            (Err(_), Some(trouble)) => return Err(trouble),
            (Err(error), None) => return Err(error),
        }
        Ok(Phase::Over)
    }

    /// The events of a reply that came in one piece.
    fn give_whole(&mut self, reply: ModelReply) {
        let mut index = 0;
        for item in &reply.items {
            let event = match item {
                Item::Text { text } => ModelEvent::TextDelta(text.clone()),
                Item::Reasoning { text, .. } if !text.is_empty() => ModelEvent::ReasoningDelta(text.clone()),
                Item::ToolCall(call) => {
                    index += 1;
                    ModelEvent::CallDelta { index: index - 1, name: Some(call.name.clone()), arguments: call.arguments.clone() }
                }
                _ => continue,
            };
            self.ready.push_back(event);
        }
        self.ready.push_back(ModelEvent::Done(reply));
    }

    async fn read_all(&mut self, mut body: Body, limit: usize, too_long: TooLong) -> Result<Vec<u8>, ModelError> {
        let mut read = Vec::new();
        loop {
            let piece = tokio::time::timeout_at(self.within(self.deadlines.first_byte), body.next()).await;
            match piece {
                Ok(Some(Ok(bytes))) if read.len() + bytes.len() <= limit => read.extend_from_slice(&bytes),
                Ok(Some(Ok(bytes))) => match too_long {
                    TooLong::Fails => return Err(self.error(&format!("the answer has more than {limit} bytes; set a limit on its tokens"))),
                    TooLong::Cut => {
                        read.extend(bytes.iter().take(limit - read.len()));
                        return Ok(read);
                    }
                },
                Ok(None) => return Ok(read),
                Ok(Some(Err(error))) => return Err(self.net(&error)),
                Err(_) => return Err(self.timeout(&format!("the answer stood still for {}", seconds(self.deadlines.first_byte)))),
            }
        }
    }

    /// An answer with a status that says no.
    async fn refused(&mut self, response: Response) -> ModelError {
        let status = response.status;
        let retry_after_ms = retry_after(&response, SystemTime::now());
        let body = self.read_all(response.body, MAX_ERROR_BODY, TooLong::Cut).await.unwrap_or_default();
        let text = String::from_utf8_lossy(&body);
        let text = text.trim();
        let mut error = match serde_json::from_str::<Value>(text) {
            Ok(mut value) => {
                // Some wrap the error in a list.
                if let Value::Array(items) = &mut value
                    && let Some(first) = items.first_mut()
                {
                    value = first.take();
                }
                let inner = value.get_mut("error").filter(|error| !error.is_null()).map(Value::take);
                failure::from_json(&self.provider, &inner.unwrap_or(value), Some(status))
            }
            // A page for people, or nothing.
            Err(_) if text.is_empty() || text.starts_with('<') => {
                failure::from_json(&self.provider, &Value::String(format!("answered with HTTP status {status}")), Some(status))
            }
            Err(_) => failure::from_json(&self.provider, &Value::String(text.to_owned()), Some(status)),
        };
        if error.category == ErrorCategory::AuthFailure
            && let Some(variable) = self.key_var
        {
            let hint = format!("; check the key in {variable}");
            let room = ModelError::MAX_MESSAGE.saturating_sub(hint.len());
            error.message = bounded(&error.message, room) + &hint;
        }
        error.retry_after_ms = retry_after_ms;
        error
    }

    fn within(&self, wait: Duration) -> Instant {
        let end = Instant::now() + wait;
        self.ends.map_or(end, |ends| end.min(ends))
    }

    fn is_past_total(&self) -> bool {
        self.ends.is_some_and(|ends| Instant::now() >= ends)
    }

    fn error(&self, message: &str) -> ModelError {
        ModelError::new(&*self.provider, message)
    }

    fn timeout(&self, message: &str) -> ModelError {
        self.error(message).in_category(ErrorCategory::Timeout)
    }

    fn net(&self, error: &NetError) -> ModelError {
        match error {
            NetError::Timeout { .. } => self.timeout(&error.to_string()),
            NetError::Connect { .. } if self.local => self.error(&format!("{error}; is the server running?")),
            error => self.error(&error.to_string()),
        }
    }

    /// Adds what every error of this exchange carries, and takes the key out.
    fn dress(&self, mut error: ModelError) -> ModelError {
        if let Some(key) = &self.key {
            error.message = bounded(&key.redact(&error.message), ModelError::MAX_MESSAGE);
        }
        error.request_id = error.request_id.or_else(|| self.request_id.clone());
        error
    }
}

#[derive(Clone, Copy)]
enum TooLong {
    Fails,
    Cut,
}

fn seconds(wait: Duration) -> String {
    if wait.subsec_millis() == 0 { format!("{} s", wait.as_secs()) } else { format!("{} ms", wait.as_millis()) }
}

/// How long a provider asks to wait, from `retry-after-ms` or `retry-after`, in seconds or as a date.
fn retry_after(response: &Response, now: SystemTime) -> Option<u64> {
    if let Some(millis) = response.header("retry-after-ms").and_then(|text| text.trim().parse::<f64>().ok()) {
        return (millis >= 0.0).then_some(millis as u64);
    }
    let text = response.header("retry-after")?.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return (seconds >= 0.0).then_some((seconds * 1000.0) as u64);
    }
    let at = jiff::fmt::rfc2822::parse(text).ok()?.timestamp().as_millisecond();
    let now = now.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_millis();
    Some(u64::try_from(at).ok()?.saturating_sub(u64::try_from(now).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    // rule: sdk-tools 33.1/6
    #[test]
    fn retry_after_is_read_in_its_three_forms() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let of = |name: &str, value: &str| {
            let headers = vec![(name.to_owned(), value.to_owned())];
            retry_after(&Response { status: 429, headers, body: stream::empty().boxed() }, now)
        };
        assert_eq!(of("retry-after", "2"), Some(2000));
        assert_eq!(of("retry-after", "0.5"), Some(500));
        assert_eq!(of("retry-after-ms", "250"), Some(250));
        // 1_700_000_000 is Tue, 14 Nov 2023 22:13:20 GMT.
        assert_eq!(of("retry-after", "Tue, 14 Nov 2023 22:13:50 GMT"), Some(30_000));
        assert_eq!(of("retry-after", "Tue, 14 Nov 2023 22:13:00 GMT"), Some(0));
        for odd in ["", "-1", "soon", "NaN"] {
            assert_eq!(of("retry-after", odd), None, "{odd}");
        }
    }
}
