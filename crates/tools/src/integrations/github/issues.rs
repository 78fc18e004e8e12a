//! Issues.

use serde_json::{Value, json};
use toolwright_tool::{Tool, ToolError, args};

use super::names::{Repository, full_name};
use super::{JSON, LONGEST_BODY, LONGEST_COMMENT, next_page};
use crate::integrations::http::{Call, Session};
use crate::integrations::option::OptionError;
use crate::integrations::set::{Access, Hub, ToolSet};
use crate::integrations::shape::{at, compact, items, short, text, texts};

pub(super) fn tools(set: &ToolSet) -> Result<Vec<Tool>, OptionError> {
    Ok(vec![
        set.tool("get_github_issue", "Reads an issue of a GitHub repository, with its comments.", Access::Reads, get)?,
        set.tool("create_github_issue", "Opens an issue in a GitHub repository.", Access::Adds, create)?,
        set.tool("comment_on_github_issue", "Adds a comment to an issue of a GitHub repository.", Access::Adds, comment)?,
        set.tool("label_github_issue", "Adds labels to an issue of a GitHub repository; those it has stay.", Access::Sets, label)?,
    ])
}

/// An issue, and which of its comments.
#[args]
pub(super) struct GetIssue {
    /// Owner of the repository.
    owner: String,
    /// Name of the repository.
    repo: String,
    /// Number of the issue.
    #[arg(range(min = 1))]
    number: u64,
    /// How many comments to read at once; 0 for none.
    #[arg(default = 10, range(max = 50))]
    comments: u32,
    /// Which page of comments.
    #[arg(default = 1, range(min = 1))]
    comments_page: u32,
}

/// A new issue.
#[args]
pub(super) struct CreateIssue {
    /// Owner of the repository.
    owner: String,
    /// Name of the repository.
    repo: String,
    /// Its title.
    #[arg(length(min = 1, max = 256))]
    title: String,
    /// Its text, in Markdown.
    body: Option<String>,
    /// Its labels.
    labels: Option<Vec<String>>,
    /// Who is to do it, by login.
    assignees: Option<Vec<String>>,
}

/// A comment on an issue.
#[args]
pub(super) struct CommentOnIssue {
    /// Owner of the repository.
    owner: String,
    /// Name of the repository.
    repo: String,
    /// Number of the issue.
    #[arg(range(min = 1))]
    number: u64,
    /// The comment, in Markdown.
    #[arg(length(min = 1))]
    body: String,
}

/// Labels for an issue.
#[args]
pub(super) struct LabelIssue {
    /// Owner of the repository.
    owner: String,
    /// Name of the repository.
    repo: String,
    /// Number of the issue.
    #[arg(range(min = 1))]
    number: u64,
    /// The labels to add, by name.
    #[arg(length(min = 1, max = 20))]
    labels: Vec<String>,
}

/// The fields of an issue that lists show.
pub(super) fn listed(issue: &Value) -> Value {
    json!({
        "repository": text(issue, "/repository_url").and_then(full_name),
        "number": at(issue, "/number"),
        "title": at(issue, "/title"),
        "state": at(issue, "/state"),
        "labels": texts(issue, "/labels", "/name"),
        "author": at(issue, "/user/login"),
        "comments": at(issue, "/comments"),
        "updated_at": at(issue, "/updated_at"),
        "is_pull_request": issue.get("pull_request").map(|_| true),
        "url": at(issue, "/html_url"),
    })
}

async fn get(hub: Hub, args: GetIssue) -> Result<Value, ToolError> {
    let repository = Repository::new(&args.owner, &args.repo)?;
    let number = args.number.to_string();
    let subject = format!("issue {number} in {repository}");
    let session = hub.session();
    let url = hub.api.url(repository.path(&["issues", &number]), &[])?;
    let (_, issue) = session.read(Call::get(url, format!("read {subject}"), &subject).header("accept", JSON)).await?;
    let mut shown = listed(&issue);
    if let Some(fields) = shown.as_object_mut() {
        fields.shift_remove("repository");
        fields.insert("assignees".to_owned(), texts(&issue, "/assignees", "/login"));
        fields.insert("milestone".to_owned(), at(&issue, "/milestone/title"));
        fields.insert("created_at".to_owned(), at(&issue, "/created_at"));
        fields.insert("closed_at".to_owned(), at(&issue, "/closed_at"));
        fields.insert("state_reason".to_owned(), at(&issue, "/state_reason"));
        fields.insert("body".to_owned(), short(&issue, "/body", LONGEST_BODY));
    }
    let count = issue.get("comments").and_then(Value::as_u64).unwrap_or(0);
    if args.comments > 0 && count > 0 {
        let (comments, next) = comments(&hub, &session, &repository, &number, args.comments, args.comments_page).await?;
        if let Some(fields) = shown.as_object_mut() {
            fields.insert("comments_shown".to_owned(), comments);
            fields.insert("next_comments_page".to_owned(), json!(next));
        }
    }
    Ok(shown)
}

async fn comments(
    hub: &Hub,
    session: &Session<'_>,
    repository: &Repository<'_>,
    number: &str,
    limit: u32,
    page: u32,
) -> Result<(Value, Option<u32>), ToolError> {
    let subject = format!("issue {number} in {repository}");
    let query = [("per_page", &*limit.to_string()), ("page", &*page.to_string())];
    let url = hub.api.url(repository.path(&["issues", number, "comments"]), &query)?;
    let (answer, comments) =
        session.read(Call::get(url, format!("read the comments on {subject}"), subject).header("accept", JSON)).await?;
    let shown = items(&comments, "").iter().map(|comment| {
        json!({
            "author": at(comment, "/user/login"),
            "created_at": at(comment, "/created_at"),
            "body": short(comment, "/body", LONGEST_COMMENT),
        })
    });
    Ok((shown.collect(), next_page(&answer, page)))
}

async fn create(hub: Hub, args: CreateIssue) -> Result<Value, ToolError> {
    let repository = Repository::new(&args.owner, &args.repo)?;
    if args.title.trim().is_empty() {
        return Err(ToolError::invalid("title", "says what the issue is about, so it can't be empty"));
    }
    let url = hub.api.url(repository.path(&["issues"]), &[])?;
    let body = compact(json!({ "title": args.title, "body": args.body, "labels": args.labels, "assignees": args.assignees }));
    let call = Call::post(url, &body, format!("open an issue in {repository}"), format!("repository {repository} with issues"));
    let issue = hub.session().write(call.header("accept", JSON), 201).await?;
    Ok(issue.map_or_else(
        || json!({ "created": true, "note": "GitHub's answer broke off before the number came; search for the title" }),
        |issue| json!({ "created": true, "number": at(&issue, "/number"), "url": at(&issue, "/html_url") }),
    ))
}

async fn comment(hub: Hub, args: CommentOnIssue) -> Result<Value, ToolError> {
    let repository = Repository::new(&args.owner, &args.repo)?;
    post_comment(&hub, &hub.session(), &repository, args.number, &args.body, "issue").await
}

/// Posts a comment; of a pull request too, since GitHub keeps its conversation as that of an issue.
pub(super) async fn post_comment(
    hub: &Hub,
    session: &Session<'_>,
    repository: &Repository<'_>,
    number: u64,
    body: &str,
    kind: &str,
) -> Result<Value, ToolError> {
    if body.trim().is_empty() {
        return Err(ToolError::invalid("body", "is the comment's text, so it can't be empty"));
    }
    let number = number.to_string();
    let subject = format!("{kind} {number} in {repository}");
    let url = hub.api.url(repository.path(&["issues", &number, "comments"]), &[])?;
    let call = Call::post(url, &json!({ "body": body }), format!("comment on {subject}"), subject);
    let comment = session.write(call.header("accept", JSON), 201).await?;
    Ok(comment.map_or_else(
        || json!({ "commented": true }),
        |comment| json!({ "commented": true, "id": at(&comment, "/id"), "url": at(&comment, "/html_url") }),
    ))
}

async fn label(hub: Hub, args: LabelIssue) -> Result<Value, ToolError> {
    let repository = Repository::new(&args.owner, &args.repo)?;
    if let Some(index) = args.labels.iter().position(|label| label.trim().is_empty()) {
        return Err(ToolError::invalid(format!("labels.{index}"), "is the name of a label, so it can't be empty"));
    }
    let number = args.number.to_string();
    let subject = format!("issue {number} in {repository}");
    let url = hub.api.url(repository.path(&["issues", &number, "labels"]), &[])?;
    let call = Call::post(url, &json!({ "labels": args.labels }), format!("label {subject}"), subject);
    let labels = hub.session().write(call.header("accept", JSON), 200).await?;
    Ok(labels.map_or_else(|| json!({ "labelled": true }), |labels| json!({ "labelled": true, "labels": texts(&labels, "", "/name") })))
}
