//! GitHub: issues, pull requests, files and searches.

mod files;
mod issues;
mod names;
mod pulls;
mod search;

use std::fmt::{self, Write as _};
use std::time::Duration;

use serde_json::Value;
use toolwright_host::net::{Client, Header};
use toolwright_tool::Tool;

use super::credential::Credential;
use super::http::{Answer, Api, Scheme, Service, Setup, Times};
use super::option::OptionError;
use super::set::ToolSet;
use super::shape::{items, text};

/// The version of the API that requests name.
const API_VERSION: &str = "2022-11-28";
/// The longest text of an issue, a pull request or a release that a model gets, in characters.
const LONGEST_BODY: usize = 8000;
/// The longest comment that a model gets, in characters.
const LONGEST_COMMENT: usize = 2000;

const SERVICE: Service = Service { name: "GitHub", said };

/// GitHub's tools, and their options.
///
/// | tool | asks first |
/// |---|---|
/// | `search_github_issues`, `search_github_code`, `search_github_repositories` | no |
/// | `get_github_issue`, `list_github_pull_requests`, `get_github_pull_request`, `read_github_file` | no |
/// | `create_github_issue`, `comment_on_github_issue`, `label_github_issue`, `comment_on_github_pull_request` | yes |
///
/// The token is the environment value `GITHUB_TOKEN` unless [`GitHub::token`] says otherwise. Tools that read do without one, as far as
/// GitHub lets them; those that write need it.
///
/// ```
/// use toolwright_tools::integrations::GitHub;
///
/// let tools = GitHub::new().tools()?;
/// let reads = tools.iter().filter(|tool| tool.spec().annotations.read_only()).count();
/// assert_eq!((tools.len(), reads), (11, 7));
/// # Ok::<_, toolwright_tools::integrations::OptionError>(())
/// ```
#[derive(Clone)]
pub struct GitHub {
    token: Credential,
    base_url: String,
    times: Times,
    client: Option<Client>,
}

impl Default for GitHub {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for GitHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GitHub").field("base_url", &self.base_url).field("token", &self.token).finish_non_exhaustive()
    }
}

impl GitHub {
    /// `https://api.github.com`, with the token of the environment value `GITHUB_TOKEN`.
    pub fn new() -> Self {
        Self { token: Credential::env("GITHUB_TOKEN"), base_url: "https://api.github.com".to_owned(), times: Times::DEFAULT, client: None }
    }

    /// Where the token comes from.
    #[must_use]
    pub fn token(mut self, token: Credential) -> Self {
        self.token = token;
        self
    }

    /// Where the API is: for an Enterprise Server, `https://HOST/api/v3`.
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
        let set = ToolSet::new(Api::new(Setup {
            service: SERVICE,
            base_url: self.base_url.clone(),
            client: self.client.clone(),
            credential: self.token.clone(),
            scheme: Scheme::Bearer,
            reads_without: true,
            headers: vec![Header::plain("x-github-api-version", API_VERSION)],
            times: self.times,
        })?);
        let mut tools = search::tools(&set)?;
        tools.extend(issues::tools(&set)?);
        tools.extend(pulls::tools(&set)?);
        tools.push(files::tool(&set)?);
        Ok(tools)
    }
}

/// The media type of ordinary answers.
const JSON: &str = "application/vnd.github+json";

/// What an error body says: its message, and what is wrong with which field.
fn said(body: &Value) -> Option<String> {
    let mut all = text(body, "/message")?.to_owned();
    for error in items(body, "/errors") {
        let field = text(error, "/field").map(|field| format!("{field} ")).unwrap_or_default();
        if let Some(problem) = error.as_str().or_else(|| text(error, "/message")).or_else(|| text(error, "/code")) {
            // Writing to a String can't fail.
            let _ = write!(all, "; {field}{problem}");
        }
    }
    Some(all)
}

/// The next page's number, where the answer says that there is one.
fn next_page(answer: &Answer, page: u32) -> Option<u32> {
    let more = answer.header("link").is_some_and(|link| link.split(',').any(|part| part.contains("rel=\"next\"")));
    more.then(|| page.checked_add(1)).flatten()
}
