//! Slack: messages, threads, history and files.

mod files;
mod names;
mod read;
mod write;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use toolwright_host::net::Client;
use toolwright_tool::{Tool, ToolError};

use super::credential::Credential;
use super::http::{Api, Call, Effect, Scheme, Service, Session, Setup, Times};
use super::option::OptionError;
use super::refused;
use super::set::ToolSet;
use super::shape::{in_line, items, text};

const SERVICE: Service = Service { name: "Slack", said };

/// Slack's tools, and their options.
///
/// | tool | asks first |
/// |---|---|
/// | `list_slack_channels`, `read_slack_history`, `read_slack_thread` | no |
/// | `post_slack_message`, `reply_in_slack_thread`, `upload_slack_file` | yes |
///
/// The token is the environment value `SLACK_BOT_TOKEN` unless [`Slack::token`] says otherwise. What a model writes is sent as the text
/// it is: it mentions and calls nobody.
///
/// ```
/// use toolwright_tools::integrations::Slack;
///
/// let tools = Slack::new().channels(["C0123ABCD"]).tools()?;
/// assert_eq!(tools.len(), 6);
/// # Ok::<_, toolwright_tools::integrations::OptionError>(())
/// ```
#[derive(Clone)]
pub struct Slack {
    base_url: String,
    token: Credential,
    channels: Option<BTreeSet<String>>,
    largest_file: u64,
    times: Times,
    client: Option<Client>,
}

impl Default for Slack {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Slack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Slack");
        shown.field("base_url", &self.base_url).field("token", &self.token).field("channels", &self.channels).finish_non_exhaustive()
    }
}

impl Slack {
    /// `https://slack.com/api`, with the token of the environment value `SLACK_BOT_TOKEN`.
    pub fn new() -> Self {
        Self {
            base_url: "https://slack.com/api".to_owned(),
            token: Credential::env("SLACK_BOT_TOKEN"),
            channels: None,
            largest_file: 16 * 1024 * 1024,
            times: Times::DEFAULT,
            client: None,
        }
    }

    /// Where the token comes from.
    #[must_use]
    pub fn token(mut self, token: Credential) -> Self {
        self.token = token;
        self
    }

    /// Only these channels, by id, are read and written to.
    #[must_use]
    pub fn channels(mut self, ids: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.channels = Some(ids.into_iter().map(Into::into).collect());
        self
    }

    /// The largest file that is uploaded, in bytes; 16 MiB by default.
    #[must_use]
    pub fn largest_file(mut self, bytes: u64) -> Self {
        self.largest_file = bytes;
        self
    }

    /// Where the API is.
    #[must_use]
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.base_url = url.into();
        self
    }

    /// How long one call may take with all its requests; 60 s by default.
    #[must_use]
    pub fn timeout(mut self, time: Duration) -> Self {
        self.times.call = time;
        self
    }

    /// How long a call waits for the end of a rate limit instead of failing; 20 s by default, and never beyond the timeout.
    #[must_use]
    pub fn max_wait(mut self, time: Duration) -> Self {
        self.times.wait = time;
        self
    }

    /// Sends through this client, which may be shared.
    #[must_use]
    pub fn client(mut self, client: Client) -> Self {
        self.client = Some(client);
        self
    }

    /// The tools, always in this order. Fails where an option can't be used.
    pub fn tools(&self) -> Result<Vec<Tool>, OptionError> {
        for id in self.channels.iter().flatten() {
            if names::channel_id(id).is_err() {
                return Err(OptionError::new("channels", format!("`{}` is no id of a channel, such as `C0123ABCD`", in_line(id, 40))));
            }
        }
        let set = ToolSet::new(Api::new(Setup {
            service: SERVICE,
            base_url: self.base_url.clone(),
            client: self.client.clone(),
            credential: self.token.clone(),
            scheme: Scheme::Bearer,
            reads_without: false,
            headers: Vec::new(),
            times: self.times,
        })?);
        let limits = Arc::new(Limits { channels: self.channels.clone(), largest_file: self.largest_file });
        let mut tools = read::tools(&set, &limits)?;
        tools.extend(write::tools(&set, &limits)?);
        tools.push(files::tool(&set, &limits)?);
        Ok(tools)
    }
}

/// What the options allow.
struct Limits {
    channels: Option<BTreeSet<String>>,
    largest_file: u64,
}

impl Limits {
    /// The id of a channel that may be used.
    fn channel(&self, given: &str) -> Result<String, ToolError> {
        let id = names::channel_id(given)?;
        match &self.channels {
            Some(allowed) if !allowed.contains(&id) => {
                let allowed: Vec<&str> = allowed.iter().map(String::as_str).collect();
                Err(ToolError::invalid("channel", format!("is not among the channels that may be used: {}", allowed.join(", "))))
            }
            _ => Ok(id),
        }
    }
}

/// What an answer that is no success says: its code, and what it lacks.
fn said(body: &Value) -> Option<String> {
    let mut said = text(body, "/error")?.to_owned();
    for message in items(body, "/response_metadata/messages").iter().filter_map(Value::as_str).take(3) {
        said.push_str("; ");
        said.push_str(message);
    }
    Some(said)
}

/// Sends it, and gives what Slack answered where that says that it is well. `None` where a write is done and its answer was lost.
async fn ask(session: &Session<'_>, call: Call) -> Result<Option<Value>, ToolError> {
    let (action, subject, effect) = (call.action().to_owned(), call.subject().to_owned(), call.effect());
    let answer = session.ask(call).await?;
    let Some(body) = answer.json() else {
        // Slack says in the body whether it was done.
        return Err(match effect {
            Effect::Read => refused::unreadable(SERVICE, &action, answer.status),
            Effect::Write => refused::unknown(SERVICE, &action, "its answer broke off"),
        });
    };
    if body.get("ok").and_then(Value::as_bool) == Some(true) {
        return Ok(Some(body));
    }
    let code = text(&body, "/error").unwrap_or("no reason");
    let said = session.without_credential(&in_line(&said(&body).unwrap_or_else(|| code.to_owned()), 300));
    let credential = session.api.credential();
    let (name, problem) = match code {
        "invalid_auth" | "not_authed" | "account_inactive" | "token_revoked" | "token_expired" | "not_allowed_token_type" => {
            ("CredentialsError", format!("Slack does not accept {credential} ({said}); put a valid one there"))
        }
        "missing_scope" | "no_permission" | "access_denied" | "restricted_action" | "ekm_access_denied" => {
            let needed = text(&body, "/needed").map(|needed| format!(", which needs {}", in_line(needed, 80))).unwrap_or_default();
            ("ForbiddenError", format!("Slack does not allow it ({said}); give {credential} the right to do it{needed}"))
        }
        "channel_not_found" | "thread_not_found" | "message_not_found" | "is_archived" => {
            ("NotFoundError", format!("Slack has no {subject} that {credential} may use ({said}); check its id with list_slack_channels"))
        }
        "not_in_channel" => ("ForbiddenError", format!("the app is not in it ({said}); have it invited there")),
        // Something broke at Slack, after nobody knows how much of it.
        "fatal_error" | "internal_error" | "request_timeout" | "service_unavailable" if effect == Effect::Write => {
            return Err(refused::unknown(SERVICE, &action, &format!("it answered {said}")));
        }
        "ratelimited" | "rate_limited" | "message_limit_exceeded" => {
            return Err(ToolError::new(format!("can't {action}: Slack takes no more for now ({said}); try again in a minute"))
                .named("RateLimitError"));
        }
        _ => ("ServiceError", format!("Slack refused it ({said}); put right what it names")),
    };
    Err(ToolError::new(format!("can't {action}: {problem}")).named(name))
}
