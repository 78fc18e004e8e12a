//! Searching and reading.

use serde_json::{Value, json};
use toolwright_tool::{Tool, ToolError, args};

use super::document::to_text;
use super::issue_key;
use crate::integrations::http::{Api, Call, Session};
use crate::integrations::option::OptionError;
use crate::integrations::set::{Access, Hub, ToolSet};
use crate::integrations::shape::{at, items, shortened, text};

/// The longest description that a model gets, in characters.
const LONGEST_BODY: usize = 8000;
/// The longest comment that a model gets, in characters.
const LONGEST_COMMENT: usize = 2000;
/// The fields of an issue in a list.
const LISTED: &str = "summary,status,issuetype,priority,assignee,labels,updated";
/// The fields of an issue that is read.
const READ: &str =
    "summary,status,issuetype,priority,assignee,labels,updated,reporter,created,resolution,parent,description,subtasks,duedate";

pub(super) fn tools(set: &ToolSet) -> Result<Vec<Tool>, OptionError> {
    let search_says = "Searches Jira's issues by JQL, such as `project = SHOP AND status != Done ORDER BY updated DESC`. A query has to be \
                       narrowed by at least one condition.";
    Ok(vec![
        set.tool("search_jira_issues", search_says, Access::Reads, search)?,
        set.tool("get_jira_issue", "Reads an issue of Jira, with its newest comments.", Access::Reads, get)?,
    ])
}

/// A search.
#[args]
pub(super) struct Search {
    /// The query in JQL.
    #[arg(length(min = 1, max = 4000))]
    jql: String,
    /// How many issues at once.
    #[arg(default = 20, range(min = 1, max = 50))]
    limit: u32,
    /// From the result before, to go on.
    next_page_token: Option<String>,
}

/// An issue, and which of its comments.
#[args]
pub(super) struct GetIssue {
    /// Key of the issue, such as `SHOP-12`.
    issue: String,
    /// How many comments to read at once; 0 for none.
    #[arg(default = 10, range(max = 50))]
    comments: u32,
    /// How many of the newest comments to pass over.
    #[arg(default = 0)]
    skip_comments: u32,
}

fn listed(api: &Api, issue: &Value) -> Value {
    json!({
        "key": at(issue, "/key"),
        "type": at(issue, "/fields/issuetype/name"),
        "summary": at(issue, "/fields/summary"),
        "status": at(issue, "/fields/status/name"),
        "priority": at(issue, "/fields/priority/name"),
        "assignee": at(issue, "/fields/assignee/displayName"),
        "labels": at(issue, "/fields/labels"),
        "updated": at(issue, "/fields/updated"),
        "url": text(issue, "/key").and_then(|key| page(api, key)),
    })
}

/// The address of an issue for people. The gateway for scoped tokens has no pages.
pub(super) fn page(api: &Api, key: &str) -> Option<String> {
    let url = api.url(["browse", key], &[]).ok()?;
    (url.host_str() != Some("api.atlassian.com")).then(|| url.to_string())
}

async fn search(hub: Hub, args: Search) -> Result<Value, ToolError> {
    if args.jql.trim().is_empty() {
        return Err(ToolError::invalid("jql", "says what to search for, so it can't be empty"));
    }
    let limit = args.limit.to_string();
    let mut query = vec![("jql", args.jql.as_str()), ("maxResults", &limit), ("fields", LISTED)];
    if let Some(token) = &args.next_page_token {
        query.push(("nextPageToken", token));
    }
    let url = hub.api.url(["rest", "api", "3", "search", "jql"], &query)?;
    let (_, found) = hub.session().read(Call::get(url, "search issues", "search by JQL")).await?;
    let issues: Value = items(&found, "/issues").iter().map(|issue| listed(&hub.api, issue)).collect();
    // Some sites give a token with the last page too, which leads to nothing.
    let is_last = found.pointer("/isLast").and_then(Value::as_bool).unwrap_or(false);
    let next = if is_last { Value::Null } else { at(&found, "/nextPageToken") };
    Ok(json!({ "issues": issues, "next_page_token": next }))
}

async fn get(hub: Hub, args: GetIssue) -> Result<Value, ToolError> {
    let key = issue_key(&args.issue)?;
    let subject = format!("issue {key}");
    let session = hub.session();
    let url = hub.api.url(["rest", "api", "3", "issue", &key], &[("fields", READ)])?;
    let (_, issue) = session.read(Call::get(url, format!("read {subject}"), &subject)).await?;
    let mut shown = listed(&hub.api, &issue);
    let mut put = |name: &str, value: Value| {
        if let Some(fields) = shown.as_object_mut() {
            fields.insert(name.to_owned(), value);
        }
    };
    put("reporter", at(&issue, "/fields/reporter/displayName"));
    put("created", at(&issue, "/fields/created"));
    put("due", at(&issue, "/fields/duedate"));
    put("resolution", at(&issue, "/fields/resolution/name"));
    put("parent", at(&issue, "/fields/parent/key"));
    let subtasks: Vec<Value> = items(&issue, "/fields/subtasks")
        .iter()
        .map(|task| json!({ "key": at(task, "/key"), "summary": at(task, "/fields/summary"), "status": at(task, "/fields/status/name") }))
        .collect();
    put("subtasks", if subtasks.is_empty() { Value::Null } else { subtasks.into() });
    let description = to_text(&at(&issue, "/fields/description"));
    put("description", description.map_or(Value::Null, |text| shortened(&text, LONGEST_BODY).into()));
    if args.comments > 0 {
        let found = comments(&hub, &session, &key, args.comments, args.skip_comments).await?;
        let shown: Vec<Value> = items(&found, "/comments")
            .iter()
            .map(|comment| {
                json!({
                    "author": at(comment, "/author/displayName"),
                    "created": at(comment, "/created"),
                    "body": to_text(&at(comment, "/body")).map(|body| shortened(&body, LONGEST_COMMENT)),
                })
            })
            .collect();
        let total = found.pointer("/total").and_then(Value::as_u64).unwrap_or(0);
        let through = u64::from(args.skip_comments) + shown.len() as u64;
        let more = !shown.is_empty() && through < total;
        put("comments", shown.into());
        put("comments_total", total.into());
        put("next_skip_comments", if more { through.into() } else { Value::Null });
    }
    Ok(shown)
}

async fn comments(hub: &Hub, session: &Session<'_>, key: &str, limit: u32, skip: u32) -> Result<Value, ToolError> {
    let query = [("startAt", &*skip.to_string()), ("maxResults", &*limit.to_string()), ("orderBy", "-created")];
    let url = hub.api.url(["rest", "api", "3", "issue", key, "comment"], &query)?;
    let subject = format!("issue {key}");
    let (_, found) = session.read(Call::get(url, format!("read the comments on {subject}"), subject)).await?;
    Ok(found)
}
