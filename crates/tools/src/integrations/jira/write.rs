//! What changes issues.

use serde_json::{Value, json};
use toolwright_tool::{Tool, ToolError, args};

use super::document::from_markdown;
use super::read::page;
use super::{issue_key, project_key};
use crate::integrations::http::Call;
use crate::integrations::option::OptionError;
use crate::integrations::set::{Access, Hub, ToolSet};
use crate::integrations::shape::{at, compact, items, text};

pub(super) fn tools(set: &ToolSet) -> Result<Vec<Tool>, OptionError> {
    let transition_says = "Moves an issue of Jira to another status, by the name of the status or of the transition.";
    Ok(vec![
        set.tool("create_jira_issue", "Creates an issue in a project of Jira.", Access::Adds, create)?,
        set.tool("comment_on_jira_issue", "Adds a comment to an issue of Jira.", Access::Adds, comment)?,
        set.tool("transition_jira_issue", transition_says, Access::Adds, transition)?,
    ])
}

/// A new issue.
#[args]
pub(super) struct CreateIssue {
    /// Key of the project, such as `SHOP`.
    project: String,
    /// Its title.
    #[arg(length(min = 1, max = 255))]
    summary: String,
    /// Its type, such as `Task`, `Bug` or `Story`.
    #[arg(default = "Task")]
    r#type: String,
    /// Its text, in Markdown.
    description: Option<String>,
    /// Its labels, without spaces.
    labels: Option<Vec<String>>,
    /// Its priority, such as `High`.
    priority: Option<String>,
    /// Key of the issue that it is a part of.
    parent: Option<String>,
}

/// A comment on an issue.
#[args]
pub(super) struct CommentOnIssue {
    /// Key of the issue, such as `SHOP-12`.
    issue: String,
    /// The comment, in Markdown.
    #[arg(length(min = 1))]
    body: String,
}

/// Another status for an issue.
#[args]
pub(super) struct TransitionIssue {
    /// Key of the issue, such as `SHOP-12`.
    issue: String,
    /// The status or transition, such as `Done`.
    #[arg(length(min = 1))]
    to: String,
    /// The resolution, where the transition asks for one.
    resolution: Option<String>,
}

async fn create(hub: Hub, args: CreateIssue) -> Result<Value, ToolError> {
    let project = project_key(&args.project, "project")?;
    if args.summary.trim().is_empty() {
        return Err(ToolError::invalid("summary", "says what the issue is about, so it can't be empty"));
    }
    if let Some(index) = args.labels.iter().flatten().position(|label| label.is_empty() || label.contains(char::is_whitespace)) {
        return Err(ToolError::invalid(format!("labels.{index}"), "is a label of Jira, which has no spaces"));
    }
    let parent = args.parent.as_deref().map(issue_key).transpose()?;
    let named = |name: Option<String>| name.map(|name| json!({ "name": name }));
    let fields = compact(json!({
        "project": { "key": project },
        "issuetype": { "name": args.r#type },
        // It is one line.
        "summary": args.summary.split_whitespace().collect::<Vec<_>>().join(" "),
        "description": args.description.as_deref().filter(|text| !text.trim().is_empty()).map(from_markdown),
        "labels": args.labels,
        "priority": named(args.priority),
        "parent": parent.map(|key| json!({ "key": key })),
    }));
    let url = hub.api.url(["rest", "api", "3", "issue"], &[])?;
    let call = Call::post(url, &json!({ "fields": fields }), format!("create an issue in {project}"), format!("project {project}"));
    let made = hub.session().write(call, 201).await?;
    Ok(made.map_or_else(
        || json!({ "created": true, "note": "Jira's answer broke off before the key came; search for the summary" }),
        |made| json!({ "created": true, "key": at(&made, "/key"), "url": text(&made, "/key").and_then(|key| page(&hub.api, key)) }),
    ))
}

async fn comment(hub: Hub, args: CommentOnIssue) -> Result<Value, ToolError> {
    let key = issue_key(&args.issue)?;
    if args.body.trim().is_empty() {
        return Err(ToolError::invalid("body", "is the comment's text, so it can't be empty"));
    }
    let url = hub.api.url(["rest", "api", "3", "issue", &key, "comment"], &[])?;
    let body = json!({ "body": from_markdown(&args.body) });
    let made = hub.session().write(Call::post(url, &body, format!("comment on issue {key}"), format!("issue {key}")), 201).await?;
    Ok(json!({ "commented": true, "id": made.map(|made| at(&made, "/id")) }))
}

async fn transition(hub: Hub, args: TransitionIssue) -> Result<Value, ToolError> {
    let key = issue_key(&args.issue)?;
    let subject = format!("issue {key}");
    let session = hub.session();
    let url = hub.api.url(["rest", "api", "3", "issue", &key, "transitions"], &[])?;
    let (_, found) = session.read(Call::get(url.clone(), format!("read the transitions of {subject}"), &subject)).await?;
    let transitions = items(&found, "/transitions");
    let wanted = args.to.trim().to_lowercase();
    let is = |transition: &&Value, pointer: &str| text(transition, pointer).is_some_and(|name| name.to_lowercase() == wanted);
    // A status is what people see; a transition's own name is for where several lead to one status.
    let by_name: Vec<&Value> = transitions.iter().filter(|transition| is(transition, "/name")).collect();
    let by_status: Vec<&Value> = transitions.iter().filter(|transition| is(transition, "/to/name")).collect();
    let chosen = match (by_status.as_slice(), by_name.as_slice()) {
        ([one], _) | (_, [one]) => *one,
        _ => {
            let shown = |transition: &Value| {
                let name = text(transition, "/name").unwrap_or_default();
                let to = text(transition, "/to/name").unwrap_or_default();
                if name == to { format!("`{name}`") } else { format!("`{name}` (to `{to}`)") }
            };
            let there: Vec<String> = transitions.iter().take(20).map(shown).collect();
            let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
            let few = if by_status.is_empty() && by_name.is_empty() { "no" } else { "more than one" };
            return Err(ToolError::new(format!(
                "can't move {subject}: {few} transition fits `{}`; use the name of one of these: {there}",
                crate::integrations::shape::in_line(&args.to, 80)
            ))
            .named("NotFoundError"));
        }
    };
    let to = at(chosen, "/to/name");
    let body = compact(json!({
        "transition": { "id": at(chosen, "/id") },
        "fields": args.resolution.map(|name| json!({ "resolution": { "name": name } })),
    }));
    let action = format!("move {subject} to {}", to.as_str().unwrap_or(&args.to));
    session.write(Call::post(url, &body, action, subject), 204).await?;
    Ok(json!({ "moved": true, "key": key, "status": to }))
}
