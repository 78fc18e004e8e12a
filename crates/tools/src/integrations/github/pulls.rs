//! Pull requests.

use serde_json::{Value, json};
use toolwright_tool::{Tool, ToolError, args};

use super::names::Repository;
use super::{JSON, LONGEST_BODY, issues, next_page};
use crate::integrations::http::Call;
use crate::integrations::option::OptionError;
use crate::integrations::set::{Access, Hub, ToolSet};
use crate::integrations::shape::{at, items, short, texts};

/// The longest change of one file that a model gets, in characters.
const LONGEST_PATCH: usize = 4000;

pub(super) fn tools(set: &ToolSet) -> Result<Vec<Tool>, OptionError> {
    let get_says = "Reads a pull request of a GitHub repository, with the changes of its files. Its conversation is in get_github_issue.";
    Ok(vec![
        set.tool("list_github_pull_requests", "Lists the pull requests of a GitHub repository, newest first.", Access::Reads, list)?,
        set.tool("get_github_pull_request", get_says, Access::Reads, get)?,
        set.tool("comment_on_github_pull_request", "Adds a comment to a pull request's conversation.", Access::Adds, comment)?,
    ])
}

/// Which pull requests.
#[args]
#[derive(Copy)]
pub(super) enum PullState {
    Open,
    Closed,
    All,
}

impl PullState {
    fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closed => "closed",
            Self::All => "all",
        }
    }
}

/// A list of pull requests.
#[args]
pub(super) struct ListPulls {
    /// Owner of the repository.
    owner: String,
    /// Name of the repository.
    repo: String,
    /// Open ones if left out.
    state: Option<PullState>,
    /// Only those into this branch.
    base: Option<String>,
    /// How many at once.
    #[arg(default = 20, range(min = 1, max = 50))]
    limit: u32,
    /// Which page.
    #[arg(default = 1, range(min = 1))]
    page: u32,
}

/// A pull request, and which of its files.
#[args]
pub(super) struct GetPull {
    /// Owner of the repository.
    owner: String,
    /// Name of the repository.
    repo: String,
    /// Number of the pull request.
    #[arg(range(min = 1))]
    number: u64,
    /// How many changed files to read at once; 0 for none.
    #[arg(default = 10, range(max = 50))]
    files: u32,
    /// Which page of files.
    #[arg(default = 1, range(min = 1))]
    files_page: u32,
}

/// A comment on a pull request.
#[args]
pub(super) struct CommentOnPull {
    /// Owner of the repository.
    owner: String,
    /// Name of the repository.
    repo: String,
    /// Number of the pull request.
    #[arg(range(min = 1))]
    number: u64,
    /// The comment, in Markdown.
    #[arg(length(min = 1))]
    body: String,
}

fn listed(pull: &Value) -> Value {
    json!({
        "number": at(pull, "/number"),
        "title": at(pull, "/title"),
        "state": at(pull, "/state"),
        "draft": at(pull, "/draft"),
        "author": at(pull, "/user/login"),
        "head": at(pull, "/head/label"),
        "base": at(pull, "/base/ref"),
        "labels": texts(pull, "/labels", "/name"),
        "updated_at": at(pull, "/updated_at"),
        "url": at(pull, "/html_url"),
    })
}

async fn list(hub: Hub, args: ListPulls) -> Result<Value, ToolError> {
    let repository = Repository::new(&args.owner, &args.repo)?;
    let (limit, page) = (args.limit.to_string(), args.page.to_string());
    let state = args.state.unwrap_or(PullState::Open).word();
    let mut query = vec![("state", state), ("per_page", &*limit), ("page", &*page)];
    if let Some(base) = &args.base {
        query.push(("base", base));
    }
    let url = hub.api.url(repository.path(&["pulls"]), &query)?;
    let call = Call::get(url, format!("list the pull requests of {repository}"), format!("repository {repository}"));
    let (answer, pulls) = hub.session().read(call.header("accept", JSON)).await?;
    let shown: Value = items(&pulls, "").iter().map(listed).collect();
    Ok(json!({ "pull_requests": shown, "next_page": next_page(&answer, args.page) }))
}

async fn get(hub: Hub, args: GetPull) -> Result<Value, ToolError> {
    let repository = Repository::new(&args.owner, &args.repo)?;
    let number = args.number.to_string();
    let subject = format!("pull request {number} in {repository}");
    let session = hub.session();
    let url = hub.api.url(repository.path(&["pulls", &number]), &[])?;
    let (_, pull) = session.read(Call::get(url, format!("read {subject}"), &subject).header("accept", JSON)).await?;
    let mut shown = listed(&pull);
    let mut put = |name: &str, value: Value| {
        if let Some(fields) = shown.as_object_mut() {
            fields.insert(name.to_owned(), value);
        }
    };
    for name in ["merged", "mergeable", "merged_at", "created_at", "commits", "additions", "deletions", "changed_files", "comments"] {
        put(name, pull.get(name).cloned().unwrap_or_default());
    }
    put("body", short(&pull, "/body", LONGEST_BODY));
    if args.files > 0 {
        let query = [("per_page", &*args.files.to_string()), ("page", &*args.files_page.to_string())];
        let url = hub.api.url(repository.path(&["pulls", &number, "files"]), &query)?;
        let call = Call::get(url, format!("read the files of {subject}"), &subject);
        let (answer, files) = session.read(call.header("accept", JSON)).await?;
        let files = items(&files, "").iter().map(|file| {
            json!({
                "path": at(file, "/filename"),
                "previous_path": at(file, "/previous_filename"),
                "status": at(file, "/status"),
                "additions": at(file, "/additions"),
                "deletions": at(file, "/deletions"),
                "patch": short(file, "/patch", LONGEST_PATCH),
            })
        });
        put("files", files.collect());
        put("next_files_page", json!(next_page(&answer, args.files_page)));
    }
    Ok(shown)
}

async fn comment(hub: Hub, args: CommentOnPull) -> Result<Value, ToolError> {
    let repository = Repository::new(&args.owner, &args.repo)?;
    let number = args.number.to_string();
    let subject = format!("pull request {number} in {repository}");
    let session = hub.session();
    // The comment goes to the issue of that number, and not every issue is a pull request.
    let url = hub.api.url(repository.path(&["pulls", &number]), &[])?;
    session.ask(Call::get(url, format!("comment on {subject}"), subject).header("accept", JSON)).await?;
    issues::post_comment(&hub, &session, &repository, args.number, &args.body, "pull request").await
}
