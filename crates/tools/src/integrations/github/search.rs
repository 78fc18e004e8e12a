//! Searches.

use serde_json::{Value, json};
use toolwright_tool::{Tool, ToolError, args};

use super::names::Repository;
use super::{JSON, issues, next_page};
use crate::integrations::http::Call;
use crate::integrations::option::OptionError;
use crate::integrations::set::{Access, Hub, ToolSet};
use crate::integrations::shape::{at, items, short};

/// GitHub finds no more than this.
const REACH: u64 = 1000;

pub(super) fn tools(set: &ToolSet) -> Result<Vec<Tool>, OptionError> {
    let issues_say = "Searches the issues of GitHub or of one repository, in GitHub's search syntax, such as `is:open label:bug login`. \
                      With `is:pr` it finds pull requests.";
    let code_says = "Searches code on GitHub or in one repository, in GitHub's search syntax, such as `parse_date language:rust`. \
                     Shows where the words stand.";
    let repositories_say = "Searches GitHub's repositories, in GitHub's search syntax, such as `http client language:rust stars:>100`.";
    Ok(vec![
        set.tool("search_github_issues", issues_say, Access::Reads, search_issues)?,
        set.tool("search_github_code", code_says, Access::Reads, search_code)?,
        set.tool("search_github_repositories", repositories_say, Access::Reads, search_repositories)?,
    ])
}

/// A search, of one repository if both its names are given.
#[args]
pub(super) struct Search {
    /// What to search for.
    #[arg(length(min = 1, max = 1000))]
    query: String,
    /// Owner of the repository to search in; together with repo.
    owner: Option<String>,
    /// Name of the repository to search in; together with owner.
    repo: Option<String>,
    /// How many results at once.
    #[arg(default = 10, range(min = 1, max = 50))]
    limit: u32,
    /// Which page of results.
    #[arg(default = 1, range(min = 1))]
    page: u32,
}

/// A search of repositories.
#[args]
pub(super) struct SearchRepositories {
    /// What to search for.
    #[arg(length(min = 1, max = 1000))]
    query: String,
    /// How many results at once.
    #[arg(default = 10, range(min = 1, max = 50))]
    limit: u32,
    /// Which page of results.
    #[arg(default = 1, range(min = 1))]
    page: u32,
}

impl Search {
    /// The query, held to the repository where one is named.
    fn scoped(&self) -> Result<String, ToolError> {
        match (&self.owner, &self.repo) {
            (Some(owner), Some(repo)) => Ok(format!("repo:{} {}", Repository::new(owner, repo)?, self.query)),
            (None, None) => Ok(self.query.clone()),
            (Some(_), None) => Err(ToolError::invalid("repo", "is missing: name owner and repo, or neither")),
            (None, Some(_)) => Err(ToolError::invalid("owner", "is missing: name owner and repo, or neither")),
        }
    }
}

struct Found {
    total: Value,
    incomplete: Option<bool>,
    items: Vec<Value>,
    next_page: Option<u32>,
}

async fn find(hub: &Hub, what: &str, query: &str, accept: &str, limit: u32, page: u32) -> Result<Found, ToolError> {
    if query.trim().is_empty() {
        return Err(ToolError::invalid("query", "says what to search for, so it can't be empty"));
    }
    let before = u64::from(limit) * u64::from(page.saturating_sub(1));
    if before >= REACH {
        return Err(ToolError::invalid(
            "page",
            format!("leads beyond the first {REACH} results, which are all that GitHub shows; narrow the query"),
        ));
    }
    let query = [("q", query), ("per_page", &*limit.to_string()), ("page", &*page.to_string())];
    let url = hub.api.url(["search", what], &query)?;
    let call = Call::get(url, format!("search {what}"), format!("search of {what}"));
    let (answer, found) = hub.session().read(call.header("accept", accept)).await?;
    Ok(Found {
        total: at(&found, "/total_count"),
        incomplete: found.get("incomplete_results").and_then(Value::as_bool).filter(|incomplete| *incomplete),
        items: items(&found, "/items").to_vec(),
        next_page: next_page(&answer, page).filter(|_| before + u64::from(limit) < REACH),
    })
}

impl Found {
    fn shown(self, name: &str, item: impl Fn(&Value) -> Value) -> Value {
        let mut shown = json!({ "total": self.total, "incomplete": self.incomplete });
        if let Some(fields) = shown.as_object_mut() {
            fields.insert(name.to_owned(), self.items.iter().map(item).collect());
            fields.insert("next_page".to_owned(), json!(self.next_page));
        }
        shown
    }
}

async fn search_issues(hub: Hub, args: Search) -> Result<Value, ToolError> {
    let mut query = args.scoped()?;
    // GitHub wants to be told one of them.
    let told = query.split_whitespace().any(|word| {
        let word = word.to_ascii_lowercase();
        ["is:issue", "is:pr", "is:pull-request", "type:issue", "type:pr"].contains(&word.trim_start_matches('-'))
    });
    if !told {
        query.push_str(" is:issue");
    }
    Ok(find(&hub, "issues", &query, JSON, args.limit, args.page).await?.shown("issues", issues::listed))
}

async fn search_code(hub: Hub, args: Search) -> Result<Value, ToolError> {
    let query = args.scoped()?;
    let found = find(&hub, "code", &query, "application/vnd.github.text-match+json", args.limit, args.page).await?;
    Ok(found.shown("files", |file| {
        let matches: Vec<Value> = items(file, "/text_matches").iter().take(3).map(|found| short(found, "/fragment", 400)).collect();
        json!({
            "repository": at(file, "/repository/full_name"),
            "path": at(file, "/path"),
            "matches": matches,
            "url": at(file, "/html_url"),
        })
    }))
}

async fn search_repositories(hub: Hub, args: SearchRepositories) -> Result<Value, ToolError> {
    let found = find(&hub, "repositories", &args.query, JSON, args.limit, args.page).await?;
    Ok(found.shown("repositories", |repository| {
        json!({
            "name": at(repository, "/full_name"),
            "description": short(repository, "/description", 300),
            "language": at(repository, "/language"),
            "stars": at(repository, "/stargazers_count"),
            "archived": repository.get("archived").and_then(Value::as_bool).filter(|archived| *archived),
            "updated_at": at(repository, "/updated_at"),
            "url": at(repository, "/html_url"),
        })
    }))
}
