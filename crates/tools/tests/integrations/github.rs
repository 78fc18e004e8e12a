//! GitHub's tools.

use base64::Engine as _;
use serde_json::{Value, json};
use toolwright_tool::core::OnInterrupt;
use toolwright_tool::{NeedsApproval, Tool, ToolError, ToolFailureKind};
use toolwright_tools::integrations::{Credential, GitHub};

use crate::call::{TOKEN, begin, parts, tool};
use crate::server::{Answer, Server};

fn tools(server: &Server) -> Vec<Tool> {
    GitHub::new().base_url(&server.url).tools().unwrap()
}

async fn call(server: &Server, name: &str, args: Value) -> Result<Value, ToolError> {
    crate::call::call(&tools(server), name, args, "GITHUB_TOKEN").await
}

fn issue(number: u64, comments: u64) -> Value {
    json!({
        "number": number, "title": "Login fails", "state": "open", "user": { "login": "ada" }, "comments": comments,
        "labels": [{ "name": "bug" }, { "name": "priority: high" }], "updated_at": "2026-11-30T10:00:00Z",
        "repository_url": "https://api.github.com/repos/acme/shop", "html_url": format!("https://github.com/acme/shop/issues/{number}"),
        "body": "It says \"no\".", "assignees": [], "milestone": null, "reactions": { "total_count": 3 },
    })
}

// rule: sdk-tools 9.6
#[test]
fn what_reads_runs_and_what_writes_asks() {
    let tools = GitHub::new().tools().unwrap();
    for tool in &tools {
        let (name, spec) = (tool.name().as_str(), tool.spec());
        let writes = ["create", "comment", "label"].iter().any(|verb| name.starts_with(verb));
        assert_eq!(spec.annotations.open_world_hint, Some(true), "{name}");
        assert_eq!(spec.annotations.read_only(), !writes, "{name}");
        assert_eq!(matches!(tool.needs_approval(), NeedsApproval::Always), writes, "{name}");
        let [need] = spec.env.as_slice() else { panic!("{name} has one variable") };
        assert_eq!((need.name.as_str(), need.secret, need.required), ("GITHUB_TOKEN", true, writes), "{name}");
        // After a crash in the middle, nobody knows whether a comment was posted.
        let asks = writes && name != "label_github_issue";
        assert_eq!(spec.on_interrupt == Some(OnInterrupt::Ask), asks, "{name}");
    }
    assert_eq!(tools.len(), 11);
    let elsewhere = GitHub::new().token(Credential::env("ACME_TOKEN")).tools().unwrap();
    assert!(elsewhere.iter().all(|tool| tool.spec().env[0].name == "ACME_TOKEN"));
    let given = GitHub::new().token(Credential::value(TOKEN)).tools().unwrap();
    assert!(given.iter().all(|tool| tool.spec().env.is_empty()));
}

// rule: sdk-tools 9.6
#[test]
fn options_that_cannot_be_used_are_refused() {
    let refused = |github: GitHub| github.tools().unwrap_err().to_string();
    let long = |url: &str| refused(GitHub::new().base_url(url));
    assert_eq!(long("github.com"), "the option `base_url` can't be used: it is no URL: relative URL without a base");
    assert!(long("http://github.example/api/v3").contains("use `https`"));
    assert!(long("file:///etc/passwd").contains("its scheme is `file`"));
    assert!(long("https://ada:secret@github.example").contains("put credentials into their own option"));
    assert!(refused(GitHub::new().token(Credential::value("abc"))).contains("fewer than 6 characters"));
    assert!(refused(GitHub::new().token(Credential::value("abc\r\nx-evil: 1"))).contains("a line break"));
    assert!(refused(GitHub::new().token(Credential::env(" "))).contains("has no name"));
    assert!(GitHub::new().base_url("https://github.example/api/v3/").tools().is_ok());
    assert!(GitHub::new().base_url("http://[::1]:8080").tools().is_ok());
    let shown = format!("{:?}", GitHub::new().token(Credential::value(TOKEN)));
    assert!(!shown.contains(TOKEN), "{shown}");
}

#[tokio::test]
async fn issues_are_searched_page_by_page() {
    let found = json!({ "total_count": 23, "incomplete_results": false, "items": [issue(7, 2), issue(9, 0)] });
    let link =
        "<https://api.github.com/search/issues?q=x&page=2>; rel=\"next\", <https://api.github.com/search/issues?q=x&page=12>; rel=\"last\"";
    let server =
        Server::answering([Answer::json(200, &found).with("link", link), Answer::json(200, &found), Answer::json(200, &found)]).await;
    let args = json!({ "query": "login is:open & more", "owner": "acme", "repo": "shop", "limit": 2 });
    let shown = call(&server, "search_github_issues", args).await.unwrap();
    assert_eq!((&shown["total"], &shown["next_page"], &shown["issues"][0]["number"]), (&json!(23), &json!(2), &json!(7)));
    assert_eq!(
        shown["issues"][1],
        json!({
            "repository": "acme/shop", "number": 9, "title": "Login fails", "state": "open", "labels": ["bug", "priority: high"],
            "author": "ada", "comments": 0, "updated_at": "2026-11-30T10:00:00Z", "url": "https://github.com/acme/shop/issues/9",
        })
    );
    let seen = server.only();
    assert_eq!(seen.line, "GET /search/issues?q=repo%3Aacme%2Fshop+login+is%3Aopen+%26+more+is%3Aissue&per_page=2&page=1");
    assert_eq!(seen.header("authorization"), Some(format!("Bearer {TOKEN}").as_str()));
    assert_eq!((seen.header("accept"), seen.header("x-github-api-version")), (Some("application/vnd.github+json"), Some("2022-11-28")));
    assert!(seen.header("user-agent").unwrap().starts_with("toolwright/"));

    let last = call(&server, "search_github_issues", json!({ "query": "is:pr review", "limit": 2, "page": 12 })).await.unwrap();
    assert_eq!(last.get("next_page"), None);
    call(&server, "search_github_issues", json!({ "query": "login", "limit": 50, "page": 20 })).await.unwrap();
    assert_eq!(server.lines()[1], "GET /search/issues?q=is%3Apr+review&per_page=2&page=12");

    let beyond = call(&server, "search_github_issues", json!({ "query": "x", "limit": 50, "page": 21 })).await.unwrap_err();
    assert_eq!(beyond.to_failure("t").issues[0].path, "page");
    let half = call(&server, "search_github_issues", json!({ "query": "x", "owner": "acme" })).await.unwrap_err();
    assert_eq!(half.to_failure("t").issues[0].path, "repo");
    assert_eq!(server.lines().len(), 3);
}

#[tokio::test]
async fn code_and_repositories_are_searched() {
    let code = json!({ "total_count": 1, "incomplete_results": true, "items": [{
        "path": "src/date.rs", "html_url": "https://github.com/acme/shop/blob/main/src/date.rs", "repository": { "full_name": "acme/shop" },
        "text_matches": [{ "fragment": "fn parse_date(" }, { "fragment": "x".repeat(500) }],
    }] });
    let repositories = json!({ "total_count": 1, "incomplete_results": false, "items": [{
        "full_name": "acme/shop", "description": null, "language": "Rust", "stargazers_count": 12, "archived": true,
        "updated_at": "2026-11-30T10:00:00Z", "html_url": "https://github.com/acme/shop",
    }] });
    let server = Server::answering([Answer::json(200, &code), Answer::json(200, &repositories)]).await;
    let shown = call(&server, "search_github_code", json!({ "query": "parse_date language:rust" })).await.unwrap();
    assert_eq!((&shown["incomplete"], &shown["files"][0]["matches"][0]), (&json!(true), &json!("fn parse_date(")));
    assert!(shown["files"][0]["matches"][1].as_str().unwrap().ends_with("x\n[cut: 400 of 500 characters]"));
    let shown = call(&server, "search_github_repositories", json!({ "query": "shop" })).await.unwrap();
    let expected = json!({
        "name": "acme/shop", "language": "Rust", "stars": 12, "archived": true, "updated_at": "2026-11-30T10:00:00Z",
        "url": "https://github.com/acme/shop",
    });
    assert_eq!(shown, json!({ "total": 1, "repositories": [expected] }));
    assert_eq!(
        server.lines(),
        ["GET /search/code?q=parse_date+language%3Arust&per_page=10&page=1", "GET /search/repositories?q=shop&per_page=10&page=1"]
    );
    assert_eq!(server.seen()[0].header("accept"), Some("application/vnd.github.text-match+json"));
}

#[tokio::test]
async fn an_issue_is_read_with_its_comments() {
    let mut long = issue(7, 12);
    long["body"] = json!("ß".repeat(9000));
    let comments = json!([{ "user": { "login": "kim" }, "created_at": "2026-11-30T11:00:00Z", "body": "me too" }]);
    let next = "<http://x/?page=3>; rel=\"next\"";
    let server = Server::answering([
        Answer::json(200, &long),
        Answer::json(200, &comments).with("link", next),
        Answer::json(200, &issue(8, 5)),
        Answer::json(200, &issue(9, 0)),
    ])
    .await;
    let args = json!({ "owner": "acme", "repo": "shop", "number": 7, "comments": 1, "comments_page": 2 });
    let shown = call(&server, "get_github_issue", args).await.unwrap();
    assert!(shown["body"].as_str().unwrap().ends_with("ß\n[cut: 8000 of 9000 characters]"));
    assert_eq!(shown["comments_shown"], json!([{ "author": "kim", "created_at": "2026-11-30T11:00:00Z", "body": "me too" }]));
    assert_eq!((&shown["comments"], &shown["next_comments_page"], &shown["labels"][0]), (&json!(12), &json!(3), &json!("bug")));
    let bare = json!({ "owner": "acme", "repo": "shop", "number": 8, "comments": 0 });
    assert_eq!(call(&server, "get_github_issue", bare).await.unwrap().get("comments_shown"), None);
    call(&server, "get_github_issue", json!({ "owner": "acme", "repo": "shop", "number": 9 })).await.unwrap();
    assert_eq!(
        server.lines(),
        [
            "GET /repos/acme/shop/issues/7",
            "GET /repos/acme/shop/issues/7/comments?per_page=1&page=2",
            "GET /repos/acme/shop/issues/8",
            "GET /repos/acme/shop/issues/9",
        ]
    );
}

#[tokio::test]
async fn reading_does_without_a_token_and_writing_does_not() {
    let server = Server::answering([Answer::json(200, &issue(7, 0))]).await;
    let tools = tools(&server);
    let get = tool(&tools, "get_github_issue");
    begin(&get, parts(&get, json!({ "owner": "acme", "repo": "shop", "number": 7 }), &[])).await.unwrap();
    assert_eq!(server.only().header("authorization"), None);
    let comment = tool(&tools, "comment_on_github_issue");
    let args = json!({ "owner": "acme", "repo": "shop", "number": 7, "body": "hi" });
    let error = begin(&comment, parts(&comment, args, &[])).await.unwrap_err();
    assert_eq!(
        (error.name(), error.message()),
        ("CredentialsError", "GitHub wants a credential; set the environment value `GITHUB_TOKEN`")
    );
    assert_eq!(server.lines().len(), 1);
}

#[tokio::test]
async fn issues_are_created_commented_on_and_labelled() {
    let server = Server::answering([
        Answer::json(201, &issue(31, 0)),
        Answer::json(201, &json!({ "id": 99, "html_url": "https://github.com/acme/shop/issues/31#issuecomment-99" })),
        Answer::json(200, &json!([{ "name": "bug" }, { "name": "priority: high" }])),
    ])
    .await;
    let args = json!({ "owner": "acme", "repo": "shop", "title": "Login fails", "body": "It says \"no\".", "labels": ["bug"] });
    let created = call(&server, "create_github_issue", args).await.unwrap();
    assert_eq!(created, json!({ "created": true, "number": 31, "url": "https://github.com/acme/shop/issues/31" }));
    let args = json!({ "owner": "acme", "repo": "shop", "number": 31, "body": "Seen too." });
    let commented = call(&server, "comment_on_github_issue", args).await.unwrap();
    assert_eq!(commented["id"], 99);
    let args = json!({ "owner": "acme", "repo": "shop", "number": 31, "labels": ["priority: high"] });
    let labelled = call(&server, "label_github_issue", args).await.unwrap();
    assert_eq!(labelled, json!({ "labelled": true, "labels": ["bug", "priority: high"] }));
    let seen = server.seen();
    let sent: Vec<(String, Value)> = seen.iter().map(|seen| (seen.line.clone(), seen.json())).collect();
    let expected = [
        ("POST /repos/acme/shop/issues", json!({ "title": "Login fails", "body": "It says \"no\".", "labels": ["bug"] })),
        ("POST /repos/acme/shop/issues/31/comments", json!({ "body": "Seen too." })),
        ("POST /repos/acme/shop/issues/31/labels", json!({ "labels": ["priority: high"] })),
    ];
    assert_eq!(sent, expected.map(|(line, body)| (line.to_owned(), body)));
    assert_eq!(seen[0].header("content-type"), Some("application/json; charset=utf-8"));
}

#[tokio::test]
async fn pull_requests_are_listed_read_and_commented_on() {
    let pull = json!({
        "number": 5, "title": "Fix login", "state": "open", "draft": false, "user": { "login": "kim" }, "head": { "label": "kim:fix" },
        "base": { "ref": "main" }, "labels": [], "updated_at": "2026-11-30T10:00:00Z", "html_url": "https://github.com/acme/shop/pull/5",
        "merged": false, "mergeable": null, "additions": 3, "deletions": 1, "changed_files": 1, "body": "Closes #7.", "comments": 0,
    });
    let files = json!([{ "filename": "src/login.rs", "status": "modified", "additions": 3, "deletions": 1, "patch": "y".repeat(4001) }]);
    let server = Server::answering([
        Answer::json(200, &json!([pull])).with("link", "<http://x/?page=2>; rel=\"next\""),
        Answer::json(200, &pull),
        Answer::json(200, &files),
        Answer::json(200, &pull),
        Answer::json(201, &json!({ "id": 3 })),
        Answer::json(404, &json!({ "message": "Not Found" })),
    ])
    .await;
    let listed = call(&server, "list_github_pull_requests", json!({ "owner": "acme", "repo": "shop", "base": "main", "limit": 1 })).await;
    let listed = listed.unwrap();
    assert_eq!((&listed["pull_requests"][0]["head"], &listed["next_page"]), (&json!("kim:fix"), &json!(2)));
    let read = call(&server, "get_github_pull_request", json!({ "owner": "acme", "repo": "shop", "number": 5 })).await.unwrap();
    assert_eq!((&read["merged"], &read["additions"], &read["files"][0]["path"]), (&json!(false), &json!(3), &json!("src/login.rs")));
    assert!(read["files"][0]["patch"].as_str().unwrap().ends_with("[cut: 4000 of 4001 characters]"));
    let args = json!({ "owner": "acme", "repo": "shop", "number": 5, "body": "Nice." });
    assert_eq!(call(&server, "comment_on_github_pull_request", args).await.unwrap(), json!({ "commented": true, "id": 3 }));
    let args = json!({ "owner": "acme", "repo": "shop", "number": 7, "body": "Nice." });
    let error = call(&server, "comment_on_github_pull_request", args).await.unwrap_err();
    assert_eq!(
        error.message(),
        "can't comment on pull request 7 in acme/shop: GitHub has no pull request 7 in acme/shop, or the environment value `GITHUB_TOKEN` may not see it; check how it is written"
    );
    assert_eq!(
        server.lines(),
        [
            "GET /repos/acme/shop/pulls?state=open&per_page=1&page=1&base=main",
            "GET /repos/acme/shop/pulls/5",
            "GET /repos/acme/shop/pulls/5/files?per_page=10&page=1",
            "GET /repos/acme/shop/pulls/5",
            "POST /repos/acme/shop/issues/5/comments",
            "GET /repos/acme/shop/pulls/7",
        ],
        "an issue that is no pull request gets no comment as one"
    );
}

fn file(content: &[u8]) -> Answer {
    let packed = base64::engine::general_purpose::STANDARD.encode(content);
    let lines = packed.as_bytes().chunks(60).map(String::from_utf8_lossy).collect::<Vec<_>>().join("\n");
    Answer::json(200, &json!({ "type": "file", "encoding": "base64", "size": content.len(), "content": lines }))
}

#[tokio::test]
async fn a_file_is_read_and_a_directory_listed() {
    let listing = json!([{ "name": "src", "type": "dir", "size": 0 }, { "name": "a.txt", "type": "file", "size": 5 }]);
    let server = Server::answering([
        file("\u{feff}# Shop\nGrüße\n".as_bytes()),
        file(&[0xff, 0xfe, 0, 1]),
        Answer::json(200, &listing),
        Answer::json(200, &json!({ "type": "file", "encoding": "none", "size": 1_200_000, "content": "" })),
        Answer::text(200, &"a line\n".repeat(10)),
        Answer::json(200, &json!({ "type": "file", "encoding": "none", "size": 90_000_000, "content": "" })),
        Answer::json(200, &json!({ "type": "submodule", "size": 0 })),
    ])
    .await;
    let read = async |path: &str| call(&server, "read_github_file", json!({ "owner": "acme", "repo": "shop", "path": path })).await;
    let shown =
        call(&server, "read_github_file", json!({ "owner": "acme", "repo": "shop", "path": "/docs/a b?#%.md", "ref": "v1/x" })).await;
    assert_eq!(shown.unwrap(), json!({ "path": "docs/a b?#%.md", "size": 18, "lines": 2, "content": "# Shop\nGrüße\n" }));
    assert!(read("logo.png").await.unwrap()["note"].as_str().unwrap().starts_with("not text"));
    let entries = json!([{ "name": "src", "type": "dir" }, { "name": "a.txt", "type": "file", "size": 5 }]);
    assert_eq!(read("").await.unwrap(), json!({ "path": "", "entries": entries }));
    assert_eq!(read("big.csv").await.unwrap()["lines"], 10);
    assert!(read("huge.csv").await.unwrap_err().message().starts_with("huge.csv in acme/shop has 90000000 bytes, and 8388608 can be read"));
    assert_eq!(read("vendor/x").await.unwrap_err().message(), "vendor/x in acme/shop is a submodule, not a file or a directory");
    let lines = server.lines();
    assert_eq!(lines[0], "GET /repos/acme/shop/contents/docs/a%20b%3F%23%25.md?ref=v1%2Fx");
    assert_eq!(lines[2], "GET /repos/acme/shop/contents");
    assert_eq!(server.seen()[4].header("accept"), Some("application/vnd.github.raw+json"));
}

#[tokio::test]
async fn what_a_model_writes_stays_in_its_place() {
    let server = Server::answering((0..40).map(|_| Answer::json(404, &json!({ "message": "Not Found" })))).await;
    for owner in ["..", "acme/../evil", "acme?x=1", "acme#", "ac me", "%2e%2e", "", "acme\n", "äcme", "acme\\evil"] {
        let error = call(&server, "get_github_issue", json!({ "owner": owner, "repo": "shop", "number": 1 })).await.unwrap_err();
        // Spaces around a name are a slip of the pen.
        if owner.trim() == "acme" {
            continue;
        }
        assert_eq!((error.kind(), error.to_failure("t").issues[0].path.as_str()), (&ToolFailureKind::Validation, "owner"), "{owner:?}");
    }
    for repo in [".", "..", "a/b", "shop?x", "%2e", "..%2f"] {
        let error = call(&server, "get_github_issue", json!({ "owner": "acme", "repo": repo, "number": 1 })).await.unwrap_err();
        assert_eq!(error.to_failure("t").issues[0].path, "repo", "{repo:?}");
    }
    for path in ["../x", "a/../../x", "a//b", "a/./b", ".\t./x", "a/.\n./b"] {
        let error = call(&server, "read_github_file", json!({ "owner": "acme", "repo": "shop", "path": path })).await.unwrap_err();
        assert_eq!(error.to_failure("t").issues[0].path, "path", "{path:?}");
    }
    for path in ["%2e%2e/x", "a\\..\\x", "...", "a%2f..%2fb", "x;y=1", "@evil.example"] {
        let error = call(&server, "read_github_file", json!({ "owner": "acme", "repo": "shop", "path": path })).await.unwrap_err();
        assert_eq!(error.name(), "NotFoundError", "{path:?}");
    }
    assert_eq!(
        server.lines(),
        [
            "GET /repos/acme/shop/issues/1",
            "GET /repos/acme/shop/contents/%252e%252e/x",
            "GET /repos/acme/shop/contents/a%5C..%5Cx",
            "GET /repos/acme/shop/contents/...",
            "GET /repos/acme/shop/contents/a%252f..%252fb",
            "GET /repos/acme/shop/contents/x;y=1",
            "GET /repos/acme/shop/contents/@evil.example",
        ]
    );
}
