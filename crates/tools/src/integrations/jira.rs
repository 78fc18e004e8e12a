//! Jira Cloud: issues, found by JQL.

mod document;
mod read;
mod write;

use std::fmt;
use std::time::Duration;

use serde_json::Value;
use toolwright_host::net::{Client, Header};
use toolwright_tool::{Tool, ToolError};

use super::credential::Credential;
use super::http::{Api, Scheme, Service, Setup, Times};
use super::option::OptionError;
use super::set::ToolSet;
use super::shape::items;

const SERVICE: Service = Service { name: "Jira", said };

/// Jira's tools, and their options. For Jira Cloud, in version 3 of its API.
///
/// | tool | asks first |
/// |---|---|
/// | `search_jira_issues`, `get_jira_issue` | no |
/// | `create_jira_issue`, `comment_on_jira_issue`, `transition_jira_issue` | yes |
///
/// The token is the environment value `JIRA_API_TOKEN` unless [`Jira::token`] says otherwise. Texts are Markdown on our side, and
/// Jira's own document format on its.
///
/// ```
/// use toolwright_tools::integrations::Jira;
///
/// let tools = Jira::new("https://acme.atlassian.net").user("bot@acme.example").tools()?;
/// assert_eq!(tools.len(), 5);
/// # Ok::<_, toolwright_tools::integrations::OptionError>(())
/// ```
#[derive(Clone)]
pub struct Jira {
    base_url: String,
    user: Option<String>,
    token: Credential,
    times: Times,
    client: Option<Client>,
}

impl fmt::Debug for Jira {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jira")
            .field("base_url", &self.base_url)
            .field("user", &self.user)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}

impl Jira {
    /// The site, such as `https://acme.atlassian.net`, with the token of the environment value `JIRA_API_TOKEN`.
    pub fn new(base_url: impl Into<String>) -> Self {
        Self { base_url: base_url.into(), user: None, token: Credential::env("JIRA_API_TOKEN"), times: Times::DEFAULT, client: None }
    }

    /// Whose API token it is, by e-mail address. Without a user the token is sent as that of OAuth 2.0.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// Where the token comes from.
    #[must_use]
    pub fn token(mut self, token: Credential) -> Self {
        self.token = token;
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
        let scheme = match &self.user {
            None => Scheme::Bearer,
            Some(user) if user.trim().is_empty() || user.contains(':') || user.chars().any(char::is_control) => {
                return Err(OptionError::new("user", "it is no e-mail address"));
            }
            Some(user) => Scheme::Basic(user.trim().to_owned()),
        };
        let set = ToolSet::new(Api::new(Setup {
            service: SERVICE,
            base_url: self.base_url.clone(),
            client: self.client.clone(),
            credential: self.token.clone(),
            scheme,
            reads_without: false,
            headers: vec![Header::plain("accept", "application/json")],
            times: self.times,
        })?);
        let mut tools = read::tools(&set)?;
        tools.extend(write::tools(&set)?);
        Ok(tools)
    }
}

/// What an error body says: messages of the whole, and of fields.
fn said(body: &Value) -> Option<String> {
    let mut all: Vec<String> = items(body, "/errorMessages").iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let fields = body.pointer("/errors").and_then(Value::as_object);
    all.extend(fields.into_iter().flatten().filter_map(|(name, problem)| Some(format!("{name}: {}", problem.as_str()?))));
    if all.is_empty() {
        all.extend(body.pointer("/message").and_then(Value::as_str).map(str::to_owned));
    }
    (!all.is_empty()).then(|| all.join("; "))
}

/// The key of an issue, checked before it becomes a part of an address: a project's key, a hyphen and a number; or a number alone.
fn issue_key(given: &str) -> Result<String, ToolError> {
    let given = given.trim();
    let is_number = |text: &str| !text.is_empty() && text.len() <= 20 && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number(given) {
        return Ok(given.to_owned());
    }
    match given.split_once('-') {
        Some((project, number)) if is_number(number) => Ok(format!("{}-{number}", project_key(project, "issue")?)),
        _ => Err(ToolError::invalid("issue", "is an issue's key, such as `SHOP-12`")),
    }
}

/// The key of a project.
fn project_key(given: &str, path: &str) -> Result<String, ToolError> {
    let given = given.trim();
    let plain = given.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !plain || given.len() > 50 || !given.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return Err(ToolError::invalid(path, "holds the key of a project, such as `SHOP`: letters, digits and `_`"));
    }
    Ok(given.to_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_checked() {
        assert_eq!(issue_key(" shop-12 ").unwrap(), "SHOP-12");
        assert_eq!(issue_key("10042").unwrap(), "10042");
        for wrong in ["", "SHOP", "SHOP-", "SHOP-1/x", "SHOP-1?x", "../SHOP-1", "SHOP--1", "1SHOP-1", "SH OP-1", "SHOP-1\n2", "%2e-1", "-1"]
        {
            assert_eq!(issue_key(wrong).unwrap_err().to_failure("t").issues[0].path, "issue", "{wrong:?}");
        }
    }

    #[test]
    fn every_way_of_saying_no_is_read() {
        let body = serde_json::json!({ "errorMessages": ["No."], "errors": { "summary": "is required", "x": 1 } });
        assert_eq!(said(&body).unwrap(), "No.; summary: is required");
        assert_eq!(said(&serde_json::json!({ "message": "Client must be authenticated" })).unwrap(), "Client must be authenticated");
        assert_eq!(said(&serde_json::json!([1])), None);
    }
}
