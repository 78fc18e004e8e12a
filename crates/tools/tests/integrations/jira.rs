//! Jira's tools.

use base64::Engine as _;
use serde_json::{Value, json};
use toolwright_tool::core::OnInterrupt;
use toolwright_tool::{NeedsApproval, ToolError};
use toolwright_tools::integrations::{Credential, Jira};

use crate::call::TOKEN;
use crate::server::{Answer, Server};

async fn call(server: &Server, name: &str, args: Value) -> Result<Value, ToolError> {
    let tools = Jira::new(&server.url).user("bot@acme.example").tools().unwrap();
    crate::call::call(&tools, name, args, "JIRA_API_TOKEN").await
}

fn issue() -> Value {
    json!({ "id": "10042", "key": "SHOP-12", "self": "https://acme.atlassian.net/rest/api/3/issue/10042", "fields": {
        "summary": "Login fails", "status": { "name": "To Do", "id": "1" }, "issuetype": { "name": "Bug" }, "priority": { "name": "High" },
        "assignee": null, "labels": ["web"], "updated": "2026-11-30T10:00:00.000+0000", "reporter": { "displayName": "Ada" },
        "description": { "type": "doc", "version": 1, "content": [{ "type": "paragraph", "content": [{ "type": "text", "text": "No." }] }] },
        "subtasks": [],
    } })
}

fn document(text: &str) -> Value {
    json!({ "type": "doc", "version": 1, "content": [{ "type": "paragraph", "content": [{ "type": "text", "text": text }] }] })
}

// rule: sdk-tools 9.6
#[test]
fn what_reads_runs_and_what_writes_asks() {
    let tools = Jira::new("https://acme.atlassian.net").tools().unwrap();
    let shown: Vec<(&str, bool, bool, bool)> = tools
        .iter()
        .map(|tool| {
            let asks = matches!(tool.needs_approval(), NeedsApproval::Always);
            (tool.name().as_str(), tool.spec().annotations.read_only(), asks, tool.spec().on_interrupt == Some(OnInterrupt::Ask))
        })
        .collect();
    let expected = [
        ("search_jira_issues", true, false, false),
        ("get_jira_issue", true, false, false),
        ("create_jira_issue", false, true, true),
        ("comment_on_jira_issue", false, true, true),
        ("transition_jira_issue", false, true, true),
    ];
    assert_eq!(shown, expected);
    for tool in &tools {
        assert_eq!(tool.spec().annotations.open_world_hint, Some(true));
        let need = &tool.spec().env[0];
        assert_eq!((need.name.as_str(), need.secret, need.required), ("JIRA_API_TOKEN", true, true));
    }
    let refused = Jira::new("https://acme.atlassian.net").user("a:b").tools().unwrap_err();
    assert_eq!(
        (refused.to_string().as_str(), refused.code()),
        ("the option `user` can't be used: it is no e-mail address", "TOOLWRIGHT_CONFIG_INVALID")
    );
}

#[tokio::test]
async fn issues_are_searched_page_by_page() {
    let server = Server::answering([
        Answer::json(200, &json!({ "issues": [issue()], "nextPageToken": "CAEa+/=", "isLast": false })),
        Answer::json(200, &json!({ "issues": [issue()], "nextPageToken": "again", "isLast": true })),
        Answer::json(200, &json!({ "issues": [] })),
    ])
    .await;
    let first = call(&server, "search_jira_issues", json!({ "jql": "project = SHOP AND text ~ \"a&b\"", "limit": 1 })).await.unwrap();
    assert_eq!(
        first["issues"][0],
        json!({
            "key": "SHOP-12", "type": "Bug", "summary": "Login fails", "status": "To Do", "priority": "High", "labels": ["web"],
            "updated": "2026-11-30T10:00:00.000+0000", "url": format!("{}/browse/SHOP-12", server.url),
        })
    );
    assert_eq!(first["next_page_token"], "CAEa+/=");
    let next = json!({ "jql": "project = SHOP", "next_page_token": "CAEa+/=" });
    assert_eq!(call(&server, "search_jira_issues", next).await.unwrap().get("next_page_token"), None);
    assert_eq!(call(&server, "search_jira_issues", json!({ "jql": "project = X" })).await.unwrap(), json!({ "issues": [] }));
    let fields = "fields=summary%2Cstatus%2Cissuetype%2Cpriority%2Cassignee%2Clabels%2Cupdated";
    let seen = server.seen();
    assert_eq!(seen[0].line, format!("GET /rest/api/3/search/jql?jql=project+%3D+SHOP+AND+text+%7E+%22a%26b%22&maxResults=1&{fields}"));
    assert_eq!(seen[1].line, format!("GET /rest/api/3/search/jql?jql=project+%3D+SHOP&maxResults=20&{fields}&nextPageToken=CAEa%2B%2F%3D"));
    let basic = base64::engine::general_purpose::STANDARD.encode(format!("bot@acme.example:{TOKEN}"));
    assert_eq!(seen[0].header("authorization"), Some(format!("Basic {basic}").as_str()));
}

#[tokio::test]
async fn without_a_user_the_token_is_that_of_a_sign_in() {
    let server = Server::answering([Answer::json(200, &json!({ "issues": [issue()] }))]).await;
    let base = format!("{}/ex/jira/0f9/", server.url);
    let tools = Jira::new(base).token(Credential::env("SIGN_IN")).tools().unwrap();
    crate::call::call(&tools, "search_jira_issues", json!({ "jql": "project = SHOP" }), "SIGN_IN").await.unwrap();
    let seen = server.only();
    assert!(seen.line.starts_with("GET /ex/jira/0f9/rest/api/3/search/jql?"), "{}", seen.line);
    assert_eq!(seen.header("authorization"), Some(format!("Bearer {TOKEN}").as_str()));
}

#[tokio::test]
async fn an_issue_is_read_with_its_newest_comments() {
    let comments = json!({ "startAt": 2, "maxResults": 1, "total": 7, "comments": [
        { "author": { "displayName": "Kim" }, "created": "2026-11-30T11:00:00.000+0000", "body": document("me too") },
    ] });
    let server = Server::answering([Answer::json(200, &issue()), Answer::json(200, &comments)]).await;
    let shown = call(&server, "get_jira_issue", json!({ "issue": "shop-12", "comments": 1, "skip_comments": 2 })).await.unwrap();
    assert_eq!((&shown["description"], &shown["reporter"], &shown["comments_total"]), (&json!("No."), &json!("Ada"), &json!(7)));
    assert_eq!(shown["comments"], json!([{ "author": "Kim", "created": "2026-11-30T11:00:00.000+0000", "body": "me too" }]));
    assert_eq!((&shown["next_skip_comments"], shown.get("subtasks")), (&json!(3), None));
    let lines = server.lines();
    assert!(lines[0].starts_with("GET /rest/api/3/issue/SHOP-12?fields=summary%2C"), "{}", lines[0]);
    assert_eq!(lines[1], "GET /rest/api/3/issue/SHOP-12/comment?startAt=2&maxResults=1&orderBy=-created");
}

#[tokio::test]
async fn issues_are_created_and_commented_on() {
    let server = Server::answering([
        Answer::json(201, &json!({ "id": "10043", "key": "SHOP-13" })),
        Answer::json(201, &json!({ "id": "77" })),
        Answer::Broken { status: 201, body: "{" },
    ])
    .await;
    let args = json!({
        "project": "shop", "summary": "Login\nfails", "type": "Bug", "description": "It says no.", "labels": ["web"], "priority": "High",
        "parent": "SHOP-1",
    });
    let made = call(&server, "create_jira_issue", args).await.unwrap();
    assert_eq!(made, json!({ "created": true, "key": "SHOP-13", "url": format!("{}/browse/SHOP-13", server.url) }));
    let commented = call(&server, "comment_on_jira_issue", json!({ "issue": "SHOP-13", "body": "Seen too." })).await.unwrap();
    assert_eq!(commented, json!({ "commented": true, "id": "77" }));
    let lost = call(&server, "create_jira_issue", json!({ "project": "SHOP", "summary": "x" })).await.unwrap();
    assert_eq!(lost["note"], "Jira's answer broke off before the key came; search for the summary");
    let sent: Vec<(String, Value)> = server.seen().iter().map(|seen| (seen.line.clone(), seen.json())).collect();
    let fields = json!({
        "project": { "key": "SHOP" }, "issuetype": { "name": "Bug" }, "summary": "Login fails", "description": document("It says no."),
        "labels": ["web"], "priority": { "name": "High" }, "parent": { "key": "SHOP-1" },
    });
    assert_eq!(sent[0], ("POST /rest/api/3/issue".to_owned(), json!({ "fields": fields })));
    assert_eq!(sent[1], ("POST /rest/api/3/issue/SHOP-13/comment".to_owned(), json!({ "body": document("Seen too.") })));
    assert_eq!(sent[2].1["fields"], json!({ "project": { "key": "SHOP" }, "issuetype": { "name": "Task" }, "summary": "x" }));
}

#[tokio::test]
async fn an_issue_is_moved_by_the_name_of_a_status_or_a_transition() {
    let transitions = json!({ "transitions": [
        { "id": "11", "name": "Start", "to": { "name": "In Progress" } },
        { "id": "21", "name": "Close", "to": { "name": "Done" } },
        { "id": "31", "name": "Reject", "to": { "name": "Done" } },
    ] });
    let server = Server::answering([
        Answer::json(200, &transitions),
        Answer::text(204, ""),
        Answer::json(200, &transitions),
        Answer::text(204, ""),
        Answer::json(200, &transitions),
        Answer::json(200, &transitions),
    ])
    .await;
    let moved = call(&server, "transition_jira_issue", json!({ "issue": "SHOP-12", "to": "in progress" })).await.unwrap();
    assert_eq!(moved, json!({ "moved": true, "key": "SHOP-12", "status": "In Progress" }));
    let args = json!({ "issue": "SHOP-12", "to": "Reject", "resolution": "Won't Do" });
    assert_eq!(call(&server, "transition_jira_issue", args).await.unwrap()["status"], "Done");
    let seen = server.seen();
    assert_eq!(
        (seen[1].line.as_str(), seen[1].json()),
        ("POST /rest/api/3/issue/SHOP-12/transitions", json!({ "transition": { "id": "11" } }))
    );
    assert_eq!(seen[3].json(), json!({ "transition": { "id": "31" }, "fields": { "resolution": { "name": "Won't Do" } } }));
    let error = call(&server, "transition_jira_issue", json!({ "issue": "SHOP-12", "to": "Done" })).await.unwrap_err();
    assert_eq!(
        error.message(),
        "can't move issue SHOP-12: more than one transition fits `Done`; use the name of one of these: `Start` (to `In Progress`), `Close` (to `Done`), `Reject` (to `Done`)"
    );
    let error = call(&server, "transition_jira_issue", json!({ "issue": "SHOP-12", "to": "Shipped" })).await.unwrap_err();
    assert!(error.message().starts_with("can't move issue SHOP-12: no transition fits `Shipped`"), "{}", error.message());
    assert_eq!(server.lines().len(), 6);
}

// rule: sdk-tools 9.1/5
#[tokio::test]
async fn a_failure_says_what_jira_said() {
    let said = json!({ "errorMessages": ["Issue does not exist or you do not have permission to see it."], "errors": {} });
    let fields = json!({ "errorMessages": [], "errors": { "summary": "You must specify a summary of the issue." } });
    let server = Server::answering([
        Answer::json(404, &said),
        Answer::json(400, &fields),
        Answer::json(200, &json!({ "issues": [] })).with("x-seraph-loginreason", "AUTHENTICATED_FAILED"),
        Answer::json(429, &json!({ "errorMessages": ["slow down"] })).with("retry-after", "90"),
    ])
    .await;
    let message =
        call(&server, "comment_on_jira_issue", json!({ "issue": "SHOP-99", "body": "x" })).await.unwrap_err().message().to_owned();
    assert_eq!(
        message,
        "can't comment on issue SHOP-99: Jira has no issue SHOP-99, or the environment value `JIRA_API_TOKEN` may not see it; check how it is written"
    );
    let message = call(&server, "create_jira_issue", json!({ "project": "SHOP", "summary": "x" })).await.unwrap_err().message().to_owned();
    assert_eq!(
        message,
        "can't create an issue in SHOP: Jira refused it with 400 (summary: You must specify a summary of the issue.); put right what it names"
    );
    let error = call(&server, "search_jira_issues", json!({ "jql": "project = SHOP" })).await.unwrap_err();
    assert_eq!(error.name(), "CredentialsError", "an empty list would be a lie");
    assert_eq!(call(&server, "search_jira_issues", json!({ "jql": "project = SHOP" })).await.unwrap_err().name(), "RateLimitError");
    for (name, args, path) in [
        ("get_jira_issue", json!({ "issue": "../../users" }), "issue"),
        ("create_jira_issue", json!({ "project": "a/b", "summary": "x" }), "project"),
        ("create_jira_issue", json!({ "project": "SHOP", "summary": " " }), "summary"),
        ("create_jira_issue", json!({ "project": "SHOP", "summary": "x", "labels": ["a", "b c"] }), "labels.1"),
        ("create_jira_issue", json!({ "project": "SHOP", "summary": "x", "parent": "x" }), "issue"),
        ("comment_on_jira_issue", json!({ "issue": "SHOP-1", "body": "\n" }), "body"),
    ] {
        assert_eq!(call(&server, name, args).await.unwrap_err().to_failure("t").issues[0].path, path);
    }
    assert_eq!(server.lines().len(), 4);
}
