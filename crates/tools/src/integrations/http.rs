//! One service behind HTTP: addresses that can't lead elsewhere, deadlines, limits, and the question whether a write was done.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};
use toolwright_host::net::{Body, Client, Header, NetError, Request};
use toolwright_tool::core::redact::Redactor;
use toolwright_tool::{ToolContext, ToolError};
use url::Url;

use super::credential::Credential;
use super::option::OptionError;
use super::rate::{Head, moment};
use super::refused;
use super::shape::in_line;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);
/// How often what only reads is tried again after a service stumbled, and anything after a rate limit.
const AGAIN: u32 = 2;
/// The pause before the first of these; the next is twice as long.
const PAUSE: Duration = Duration::from_millis(250);
/// The most that is read of an answer, in bytes.
const LONGEST_ANSWER: usize = 8 * 1024 * 1024;
/// The most of a service's own words in a sentence, in characters.
const LONGEST_SAID: usize = 300;

/// What is known of a service.
#[derive(Clone, Copy)]
pub(super) struct Service {
    /// Its name, for sentences.
    pub(super) name: &'static str,
    /// What an error body says, in the service's own words.
    pub(super) said: fn(&Value) -> Option<String>,
}

/// How a service takes its credential.
#[derive(Clone)]
pub(super) enum Scheme {
    Bearer,
    /// With the name of a user.
    #[cfg(feature = "jira")]
    Basic(String),
}

/// What a service is reached with, as its options say.
pub(super) struct Setup {
    pub(super) service: Service,
    pub(super) base_url: String,
    pub(super) client: Option<Client>,
    pub(super) credential: Credential,
    pub(super) scheme: Scheme,
    /// Whether it can be read without the credential.
    pub(super) reads_without: bool,
    /// What goes with every request.
    pub(super) headers: Vec<Header>,
    pub(super) times: Times,
}

/// How a service is reached.
pub(super) struct Api {
    pub(super) service: Service,
    base: Url,
    client: Client,
    credential: Credential,
    scheme: Scheme,
    reads_without: bool,
    headers: Vec<Header>,
    redactor: Option<Arc<Redactor>>,
    times: Times,
}

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// One call of a tool, with all its requests and waiting.
    pub(super) call: Duration,
    /// Waiting for the end of a rate limit.
    pub(super) wait: Duration,
}

impl Times {
    pub(super) const DEFAULT: Self = Self { call: Duration::from_secs(60), wait: Duration::from_secs(20) };

    /// The deadline that dispatch sets: later than ours, so that a call ends with our sentence.
    pub(super) fn of_tool(self) -> Duration {
        self.call.saturating_add(Duration::from_secs(5))
    }
}

/// One request.
#[derive(Clone)]
pub(super) struct Call {
    method: &'static str,
    url: Url,
    headers: Vec<Header>,
    body: bytes::Bytes,
    effect: Effect,
    /// Whether it goes without the credential.
    bare: bool,
    /// What it is to do, in the infinitive, for sentences.
    action: String,
    /// What it is about; what is not there, where the service finds nothing.
    subject: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing changes; it may be sent again.
    Read,
    /// Something changes; it is sent again only if it surely was not done.
    Write,
}

impl Call {
    pub(super) fn get(url: Url, action: impl Into<String>, subject: impl Into<String>) -> Self {
        Self {
            method: "GET",
            url,
            headers: Vec::new(),
            body: bytes::Bytes::new(),
            effect: Effect::Read,
            bare: false,
            action: action.into(),
            subject: subject.into(),
        }
    }

    /// Changes something.
    pub(super) fn post(url: Url, body: &Value, action: impl Into<String>, subject: impl Into<String>) -> Self {
        let content_type = Header::plain("content-type", "application/json; charset=utf-8");
        let body = serde_json::to_vec(body).unwrap_or_default().into();
        Self { method: "POST", headers: vec![content_type], body, effect: Effect::Write, ..Self::get(url, action, subject) }
    }

    /// Brings bytes to a place that the service named, without the credential. That counts only once the service is told so.
    pub(super) fn upload(url: Url, body: bytes::Bytes, action: impl Into<String>, subject: impl Into<String>) -> Self {
        let content_type = Header::plain("content-type", "application/octet-stream");
        Self { method: "POST", headers: vec![content_type], body, bare: true, ..Self::get(url, action, subject) }
    }

    /// With one more header.
    #[must_use]
    pub(super) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push(Header::plain(name, value));
        self
    }

    pub(super) fn effect(&self) -> Effect {
        self.effect
    }

    pub(super) fn action(&self) -> &str {
        &self.action
    }

    pub(super) fn subject(&self) -> &str {
        &self.subject
    }
}

/// What a service answered: neither a rate limit nor a failure of its own.
pub(super) struct Answer {
    pub(super) status: u16,
    headers: Vec<(String, String)>,
    /// The body, the credential taken out. Without it where it broke off after the service had said that a write is done.
    body: Option<bytes::Bytes>,
}

impl Answer {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    /// The body as it came.
    pub(super) fn bytes(&self) -> bytes::Bytes {
        self.body.clone().unwrap_or_default()
    }

    /// The body as JSON; `None` where it is none.
    pub(super) fn json(&self) -> Option<Value> {
        self.body.as_ref().and_then(|body| serde_json::from_slice(body).ok())
    }
}

/// Why a request has no answer.
enum Failed {
    /// The service had no request.
    NotSent(NetError),
    /// It may have had it.
    Lost(String),
    /// It has sent too much.
    TooLong,
    /// The call's time is over; it may have had the request.
    Late,
    /// The run was stopped.
    Stopped,
}

impl Api {
    /// Checks the options. A plain `http` address is for this machine only, since requests carry credentials.
    pub(super) fn new(setup: Setup) -> Result<Self, OptionError> {
        let Setup { service, base_url, client, credential, scheme, reads_without, headers, times } = setup;
        let problem = |problem: String| OptionError::new("base_url", problem);
        let url = Url::parse(&base_url).map_err(|error| problem(format!("it is no URL: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") || url.cannot_be_a_base() {
            return Err(problem(format!("its scheme is `{}`; use `https`", url.scheme())));
        }
        if url.scheme() == "http" && !is_this_machine(&url) {
            return Err(problem("it is plain `http`, which would send credentials unencrypted; use `https`".to_owned()));
        }
        if !url.username().is_empty() || url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
            return Err(problem("it holds more than a scheme, a host and a path; put credentials into their own option".to_owned()));
        }
        if times.call.is_zero() {
            return Err(OptionError::new("timeout", "it is zero"));
        }
        let redactor = credential.redactor("credential", &format!("{} credential", service.name).replace(' ', "-"))?;
        let client = client.unwrap_or_else(|| Client::new(CONNECT));
        Ok(Self { service, base: url, client, credential, scheme, reads_without, headers, redactor, times })
    }

    pub(super) fn credential(&self) -> &Credential {
        &self.credential
    }

    pub(super) fn is_on_this_machine(&self) -> bool {
        is_this_machine(&self.base)
    }

    pub(super) fn times(&self) -> Times {
        self.times
    }

    pub(super) fn reads_without(&self) -> bool {
        self.reads_without
    }

    /// An address below the base. Each of `segments` stays one segment, whatever a model wrote into it.
    pub(super) fn url<'s>(&self, segments: impl IntoIterator<Item = &'s str>, query: &[(&str, &str)]) -> Result<Url, ToolError> {
        let mut url = self.base.clone();
        {
            let mut path = url.path_segments_mut().map_err(|()| ToolError::new("the base URL has no path"))?;
            path.pop_if_empty();
            for segment in segments {
                // Dots would climb, and a URL drops control characters, which could make such dots.
                if matches!(segment, "" | "." | "..") || segment.chars().any(char::is_control) {
                    return Err(ToolError::new(format!("{segment:?} can't be a part of an address")).named("AddressError"));
                }
                path.push(segment);
            }
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        Ok(url)
    }

    /// What one call of a tool does with the service.
    pub(super) fn session(&self, cx: &ToolContext) -> Session<'_> {
        // A deadline beyond what the clock can hold is none; a year will do.
        let until = Instant::now().checked_add(self.times.call).unwrap_or_else(|| Instant::now() + Duration::from_secs(86_400 * 365));
        let mut headers = self.headers.clone();
        if let Some(secret) = self.credential.get(cx) {
            let value = match &self.scheme {
                Scheme::Bearer => format!("Bearer {secret}"),
                #[cfg(feature = "jira")]
                Scheme::Basic(user) => {
                    use base64::Engine as _;
                    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(format!("{user}:{secret}")))
                }
            };
            headers.push(Header::secret("authorization", value));
        }
        Session { api: self, cx: cx.clone(), until, headers }
    }
}

/// The requests of one call of a tool.
pub(super) struct Session<'a> {
    pub(super) api: &'a Api,
    cx: ToolContext,
    until: Instant,
    headers: Vec<Header>,
}

impl Session<'_> {
    /// Sends it and gives the answer where it is a success; else the sentence for its status.
    pub(super) async fn ask(&self, call: Call) -> Result<Answer, ToolError> {
        let mut answer = self.answer(&call).await?;
        // Jira answers a wrong token as it does somebody unknown, at times with an empty success.
        if answer.header("x-seraph-loginreason").is_some_and(|reason| reason.contains("AUTHENTICATED_FAILED")) {
            answer.status = 401;
        }
        if answer.is_success() {
            return Ok(answer);
        }
        Err(refused::by_status(self, &call, &answer))
    }

    /// As [`Session::ask`], and the answer's JSON.
    pub(super) async fn read(&self, call: Call) -> Result<(Answer, Value), ToolError> {
        let action = call.action.clone();
        let answer = self.ask(call).await?;
        match answer.json() {
            Some(json) => Ok((answer, json)),
            None => Err(refused::unreadable(self.api.service, &action, answer.status)),
        }
    }

    /// Sends what writes. `done` is the status that says that it was done. Where the rest of the answer was lost, there is none.
    pub(super) async fn write(&self, call: Call, done: u16) -> Result<Option<Value>, ToolError> {
        let action = call.action.clone();
        let answer = self.ask(call).await?;
        if answer.status != done {
            // A redirect that turned the request into another one, say.
            return Err(refused::unknown(self.api.service, &action, &format!("it answered {} and not {done}", answer.status)));
        }
        Ok(answer.json())
    }

    /// Sends it, as often as it may be, and gives whatever the service answered to it.
    pub(super) async fn answer(&self, call: &Call) -> Result<Answer, ToolError> {
        let service = self.api.service;
        let (mut stumbled, mut waited) = (0, 0);
        loop {
            let problem = match self.once(call).await {
                Ok(answer) => {
                    let said = answer.json().as_ref().and_then(service.said).map(|said| in_line(&said, LONGEST_SAID));
                    let head = Head { status: answer.status, headers: &answer.headers, said: said.as_deref() };
                    if let Some(wait) = head.limited() {
                        waited += 1;
                        self.wait_for_limit(call, wait, waited).await?;
                        continue;
                    }
                    if answer.status < 500 {
                        return Ok(answer);
                    }
                    let later = head.retry_after().unwrap_or_default();
                    let said = said.map_or_else(|| "and says no more".to_owned(), |said| format!("and says: {said}"));
                    if call.effect == Effect::Write {
                        return Err(refused::unknown(service, &call.action, &format!("it answered {}, {said}", answer.status)));
                    }
                    if later > self.api.times.wait {
                        stumbled = AGAIN;
                    }
                    (format!("{} answered {}, {said}; try again later", service.name, answer.status), later)
                }
                Err(Failed::NotSent(error)) => (format!("{error}; check that it can be reached, then try again"), Duration::ZERO),
                Err(Failed::Lost(why)) if call.effect == Effect::Read => (format!("{why}; try again later"), Duration::ZERO),
                Err(Failed::Lost(why)) => return Err(refused::unknown(service, &call.action, &why)),
                Err(Failed::Late) => return Err(self.late(call)),
                Err(Failed::TooLong) => {
                    let problem = format!("the answer is longer than {LONGEST_ANSWER} bytes; ask for less at once");
                    return Err(refused::failed(&call.action, &problem));
                }
                Err(Failed::Stopped) => return Err(refused::failed(&call.action, "the run was stopped")),
            };
            let (problem, later) = problem;
            if stumbled >= AGAIN {
                return Err(refused::failed(&call.action, &problem));
            }
            let pause = later.max(PAUSE * 2_u32.pow(stumbled));
            stumbled += 1;
            if !self.pause(pause).await {
                return Err(refused::failed(&call.action, &problem));
            }
        }
    }

    async fn wait_for_limit(&self, call: &Call, wait: Duration, waited: u32) -> Result<(), ToolError> {
        if waited <= AGAIN && wait <= self.api.times.wait && self.pause(wait).await {
            return Ok(());
        }
        Err(refused::limited(self.api.service, &call.action, wait, moment(wait)))
    }

    /// Waits, and says whether there is time left and a run that wants to go on.
    async fn pause(&self, pause: Duration) -> bool {
        if pause >= self.until.saturating_duration_since(Instant::now()) {
            return false;
        }
        let stopped = self.cx.cancelled();
        tokio::select! {
            biased;
            () = stopped.cancelled() => false,
            () = tokio::time::sleep(pause) => true,
        }
    }

    async fn once(&self, call: &Call) -> Result<Answer, Failed> {
        let stopped = self.cx.cancelled();
        if stopped.is_cancelled() {
            return Err(Failed::Stopped);
        }
        if call.effect == Effect::Write {
            // What has begun is brought to its end, so that its outcome is known.
            return self.exchange(call).await;
        }
        tokio::select! {
            biased;
            () = stopped.cancelled() => Err(Failed::Stopped),
            answer = self.exchange(call) => answer,
        }
    }

    async fn exchange(&self, call: &Call) -> Result<Answer, Failed> {
        let request = Request {
            method: call.method.to_owned(),
            url: call.url.to_string(),
            headers: self.headers.iter().filter(|_| !call.bare).chain(&call.headers).cloned().collect(),
            body: call.body.clone(),
        };
        let sent = timeout_at(self.until, self.api.client.send(request)).await.map_err(|_| Failed::Late)?;
        let response = sent.map_err(|error| match error {
            NetError::Broken { .. } | NetError::Timeout { .. } => Failed::Lost(self.without_credential(&error.to_string())),
            other => Failed::NotSent(other),
        })?;
        let (status, headers) = (response.status, response.headers);
        let body = match timeout_at(self.until, whole(response.body)).await {
            Ok(Ok(body)) => Some(self.redacted(body)),
            // The head said that it is done, and no rest of the answer takes that back.
            Ok(Err(_)) | Err(_) if call.effect == Effect::Write && (200..300).contains(&status) => None,
            // The status is known, and with it that nothing was done; what was said of it is lost.
            Ok(Err(_)) | Err(_) if call.effect == Effect::Write && (400..500).contains(&status) => None,
            Ok(Err(failed)) => return Err(failed),
            Err(_) => return Err(Failed::Late),
        };
        Ok(Answer { status, headers, body })
    }

    fn redacted(&self, body: bytes::Bytes) -> bytes::Bytes {
        let Some(redactor) = &self.api.redactor else { return body };
        let redacted = std::str::from_utf8(&body).ok().map(|text| redactor.redact(text));
        match redacted {
            Some(std::borrow::Cow::Owned(text)) => text.into(),
            _ => body,
        }
    }

    pub(super) fn without_credential(&self, text: &str) -> String {
        self.api.redactor.as_ref().map_or_else(|| text.to_owned(), |redactor| redactor.redact(text).into_owned())
    }

    fn late(&self, call: &Call) -> ToolError {
        let seconds = self.api.times.call.as_secs_f32();
        let why = format!("no whole answer came within {seconds} s");
        match call.effect {
            Effect::Read => refused::failed(&call.action, &format!("{}: {why}; try again later", self.api.service.name)),
            Effect::Write => refused::unknown(self.api.service, &call.action, &why),
        }
    }
}

/// The whole body, if it is not too long.
async fn whole(mut body: Body) -> Result<bytes::Bytes, Failed> {
    let mut all = Vec::new();
    while let Some(piece) = body.next().await {
        let piece = piece.map_err(|error| Failed::Lost(error.to_string()))?;
        if all.len() + piece.len() > LONGEST_ANSWER {
            return Err(Failed::TooLong);
        }
        all.extend_from_slice(&piece);
    }
    Ok(all.into())
}

pub(super) fn is_this_machine(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}
