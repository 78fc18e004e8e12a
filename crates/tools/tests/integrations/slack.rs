//! Slack's tools.

use serde_json::{Value, json};
use toolwright_tool::core::OnInterrupt;
use toolwright_tool::{NeedsApproval, Tool, ToolError};
use toolwright_tools::integrations::Slack;

use crate::call::{TOKEN, begin, parts, tool};
use crate::server::{Answer, Server};

fn tools(server: &Server) -> Vec<Tool> {
    Slack::new().base_url(format!("{}/api", server.url)).tools().unwrap()
}

async fn call(server: &Server, name: &str, args: Value) -> Result<Value, ToolError> {
    crate::call::call(&tools(server), name, args, "SLACK_BOT_TOKEN").await
}

fn no(error: &str) -> Answer {
    Answer::json(200, &json!({ "ok": false, "error": error }))
}

fn posted() -> Answer {
    Answer::json(200, &json!({ "ok": true, "channel": "C01", "ts": "1796130090.000100", "message": { "text": "hi" } }))
}

// rule: sdk-tools 9.6
#[test]
fn what_reads_runs_and_what_writes_asks() {
    let tools = Slack::new().tools().unwrap();
    let shown: Vec<(&str, bool, bool, bool)> = tools
        .iter()
        .map(|tool| {
            let asks = matches!(tool.needs_approval(), NeedsApproval::Always);
            (tool.name().as_str(), tool.spec().annotations.read_only(), asks, tool.spec().on_interrupt == Some(OnInterrupt::Ask))
        })
        .collect();
    let expected = [
        ("list_slack_channels", true, false, false),
        ("read_slack_history", true, false, false),
        ("read_slack_thread", true, false, false),
        ("post_slack_message", false, true, true),
        ("reply_in_slack_thread", false, true, true),
        ("upload_slack_file", false, true, true),
    ];
    assert_eq!(shown, expected);
    for tool in &tools {
        assert_eq!(tool.spec().annotations.open_world_hint, Some(true));
        let need = &tool.spec().env[0];
        assert_eq!((need.name.as_str(), need.secret, need.required), ("SLACK_BOT_TOKEN", true, true));
    }
    let refused = Slack::new().channels(["general"]).tools().unwrap_err().to_string();
    assert_eq!(refused, "the option `channels` can't be used: `general` is no id of a channel, such as `C0123ABCD`");
}

#[tokio::test]
async fn messages_are_posted_word_for_word() {
    let server = Server::answering([posted(), posted()]).await;
    let text = "<!channel> see <https://evil.example|our page> & tell @here";
    let made = call(&server, "post_slack_message", json!({ "channel": "C01", "text": text })).await.unwrap();
    assert_eq!(made, json!({ "posted": true, "channel": "C01", "ts": "1796130090.000100" }));
    let reply = json!({ "channel": "C01", "thread": "1796130090.000100", "text": "done" });
    assert_eq!(call(&server, "reply_in_slack_thread", reply).await.unwrap()["thread"], "1796130090.000100");
    let seen = server.seen();
    assert_eq!(seen[0].line, "POST /api/chat.postMessage");
    assert_eq!(seen[0].header("authorization"), Some(format!("Bearer {TOKEN}").as_str()));
    let sent = "&lt;!channel&gt; see &lt;https://evil.example|our page&gt; &amp; tell @here";
    assert_eq!(seen[0].json(), json!({ "channel": "C01", "text": sent }));
    assert_eq!(seen[1].json(), json!({ "channel": "C01", "text": "done", "thread_ts": "1796130090.000100" }));
}

#[tokio::test]
async fn history_and_threads_are_read_page_by_page() {
    let body = json!({ "ok": true, "has_more": true, "response_metadata": { "next_cursor": "bmV4dA==" }, "messages": [
        { "type": "message", "user": "U1", "text": "a &lt;b&gt; &amp;amp;", "ts": "2.0", "thread_ts": "2.0", "reply_count": 3, "blocks": [] },
        { "type": "message", "subtype": "bot_message", "bot_id": "B1", "text": "x".repeat(4001), "ts": "1.0", "files": [{ "name": "a.txt" }] },
    ] });
    let last = json!({ "ok": true, "response_metadata": { "next_cursor": "" }, "messages": [
        { "user": "U1", "text": "first", "ts": "2.0", "thread_ts": "2.0" }, { "user": "U2", "text": "reply", "ts": "2.1", "thread_ts": "2.0" },
    ] });
    let server = Server::answering([Answer::json(200, &body), Answer::json(200, &last)]).await;
    let shown = call(&server, "read_slack_history", json!({ "channel": "C01", "after": "0.5", "limit": 2 })).await.unwrap();
    assert_eq!(shown["messages"][0], json!({ "ts": "2.0", "user": "U1", "text": "a <b> &amp;", "replies": 3 }));
    assert_eq!(shown["messages"][1]["files"], json!(["a.txt"]));
    assert!(shown["messages"][1]["text"].as_str().unwrap().ends_with("x\n[cut: 4000 of 4001 characters]"));
    assert_eq!(shown["next_cursor"], "bmV4dA==");
    let args = json!({ "channel": "C01", "thread": "2.0", "cursor": "bmV4dA==" });
    let shown = call(&server, "read_slack_thread", args).await.unwrap();
    assert_eq!((shown["messages"].as_array().unwrap().len(), &shown["messages"][1]["thread"]), (2, &json!("2.0")));
    assert_eq!(shown.get("next_cursor"), None);
    assert_eq!(
        server.lines(),
        [
            "GET /api/conversations.history?channel=C01&limit=2&oldest=0.5",
            "GET /api/conversations.replies?channel=C01&ts=2.0&limit=15&cursor=bmV4dA%3D%3D",
        ]
    );
}

#[tokio::test]
async fn channels_are_listed_and_may_be_few() {
    let channels = json!({ "ok": true, "channels": [
        { "id": "C01", "name": "general", "purpose": { "value": "all" }, "num_members": 4, "is_member": true },
        { "id": "C02", "name": "board", "purpose": { "value": "" }, "num_members": 2, "is_member": true },
    ] });
    let server = Server::answering([Answer::json(200, &channels), posted()]).await;
    let tools = Slack::new().base_url(&server.url).channels(["C01"]).tools().unwrap();
    let run = async |name: &str, args: Value| {
        let tool = tool(&tools, name);
        begin(&tool, parts(&tool, args, &[("SLACK_BOT_TOKEN", TOKEN)])).await
    };
    let shown = run("list_slack_channels", json!({})).await.unwrap();
    assert_eq!(shown, json!({ "channels": [{ "id": "C01", "name": "general", "purpose": "all", "members": 4, "is_member": true }] }));
    run("post_slack_message", json!({ "channel": "C01", "text": "hi" })).await.unwrap();
    for (name, args) in [
        ("post_slack_message", json!({ "channel": "C02", "text": "hi" })),
        ("reply_in_slack_thread", json!({ "channel": "C02", "thread": "1.0", "text": "hi" })),
        ("read_slack_history", json!({ "channel": "C02" })),
        ("read_slack_thread", json!({ "channel": "C02", "thread": "1.0" })),
        ("upload_slack_file", json!({ "channel": "C02", "content": "x" })),
    ] {
        let error = run(name, args).await.unwrap_err();
        assert_eq!(error.message(), "is not among the channels that may be used: C01", "{name}");
    }
    assert_eq!(server.lines().len(), 2);
}

#[tokio::test]
async fn a_file_is_uploaded_in_three_steps() {
    let server = Server::answering([
        // Nobody sees anything of the first two steps, so a stumble there is no harm.
        Answer::text(502, ""),
        Answer::json(200, &json!({ "ok": true, "upload_url": "http://127.0.0.1:9/", "file_id": "F1" })),
    ])
    .await;
    let unreachable = call(&server, "upload_slack_file", json!({ "channel": "C01", "content": "hello" })).await.unwrap_err();
    assert!(unreachable.message().starts_with("can't share `text.txt` in channel C01: no connection to 127.0.0.1"), "{unreachable}");

    // The place to upload to is on the server itself.
    let uploads = Server::answering([Answer::Closed, Answer::text(200, "OK - 9")]).await;
    let server = Server::answering([
        Answer::json(200, &json!({ "ok": true, "upload_url": format!("{}/upload/v1/abc?x=1", uploads.url), "file_id": "F1" })),
        Answer::json(
            200,
            &json!({ "ok": true, "files": [{ "id": "F1", "title": "notes.md", "permalink": "https://acme.slack.com/files/F1" }] }),
        ),
    ])
    .await;
    let tools = tools(&server);
    let upload = tool(&tools, "upload_slack_file");
    let args = json!({ "channel": "C01", "path": "/docs/notes.md", "comment": "see <this>", "thread": "2.0" });
    let context = parts(&upload, args, &[("SLACK_BOT_TOKEN", TOKEN)]);
    toolwright_tool::ToolContext::new(context.clone())
        .files()
        .write("/docs/notes.md", vec![0xff, 0, b'\r', b'\n', 1, 2, 3, 4, 5])
        .await
        .unwrap();
    let made = begin(&upload, context).await.unwrap();
    assert_eq!(made, json!({ "shared": true, "file": "F1", "name": "notes.md", "url": "https://acme.slack.com/files/F1" }));
    assert_eq!(
        server.lines(),
        ["GET /api/files.getUploadURLExternal?filename=notes.md&length=9", "POST /api/files.completeUploadExternal"]
    );
    let complete = json!({
        "files": [{ "id": "F1", "title": "notes.md" }], "channel_id": "C01", "initial_comment": "see &lt;this&gt;", "thread_ts": "2.0",
    });
    assert_eq!(server.seen()[1].json(), complete);
    let seen = uploads.seen();
    assert_eq!((seen.len(), seen[1].line.as_str()), (2, "POST /upload/v1/abc?x=1"));
    assert_eq!(seen[1].body, [0xff, 0, b'\r', b'\n', 1, 2, 3, 4, 5]);
    assert_eq!(seen[1].header("authorization"), None, "the token goes to the API only");
}

#[tokio::test]
async fn a_file_that_cannot_be_uploaded_is_refused_before_anything_is_sent() {
    let server = Server::answering([]).await;
    let long = "x".repeat(201);
    for (args, path) in [
        (json!({ "channel": "C01" }), "path"),
        (json!({ "channel": "C01", "path": "/a", "content": "b" }), "content"),
        (json!({ "channel": "C01", "path": "/none" }), "path"),
        (json!({ "channel": "C01", "content": "" }), "path"),
        (json!({ "channel": "C01", "content": "x", "name": "../x" }), "name"),
        (json!({ "channel": "C01", "content": "x", "name": "a\r\nb" }), "name"),
        (json!({ "channel": "C01", "content": "x", "name": long }), "name"),
        (json!({ "channel": "C01", "content": "x", "thread": "now" }), "thread"),
        (json!({ "channel": "general", "content": "x" }), "channel"),
    ] {
        let error = call(&server, "upload_slack_file", args.clone()).await.unwrap_err();
        assert_eq!(error.to_failure("t").issues[0].path, path, "{args}");
    }
    let tools = Slack::new().base_url(&server.url).largest_file(4).tools().unwrap();
    let upload = tool(&tools, "upload_slack_file");
    let args = json!({ "channel": "C01", "content": "12345" });
    let error = begin(&upload, parts(&upload, args, &[("SLACK_BOT_TOKEN", TOKEN)])).await.unwrap_err();
    assert_eq!(error.message(), "`text.txt` has 5 bytes, and 4 may be uploaded");
    assert!(server.lines().is_empty());
}

#[tokio::test]
async fn a_place_to_upload_to_is_encrypted_or_on_this_machine() {
    for place in ["http://files.slack.example/upload", "ftp://127.0.0.1/", "https://ada:pw@files.slack.example/", "", "/upload"] {
        let server = Server::answering([Answer::json(200, &json!({ "ok": true, "upload_url": place, "file_id": "F1" }))]).await;
        let error = call(&server, "upload_slack_file", json!({ "channel": "C01", "content": "x" })).await.unwrap_err();
        assert!(error.message().contains("Slack gave no place to upload to that can be used"), "{place}: {error}");
    }
}

// rule: sdk-tools 9.1/5
#[tokio::test]
async fn a_failure_says_what_slack_said() {
    let scope = json!({ "ok": false, "error": "missing_scope", "needed": "chat:write", "provided": "channels:read" });
    let arguments = json!({ "ok": false, "error": "invalid_arguments", "response_metadata": { "messages": ["[ERROR] no such thing"] } });
    for (answer, name, message) in [
        (
            no("invalid_auth"),
            "CredentialsError",
            "Slack does not accept the environment value `SLACK_BOT_TOKEN` (invalid_auth); put a valid one there",
        ),
        (
            Answer::json(200, &scope),
            "ForbiddenError",
            "Slack does not allow it (missing_scope); give the environment value `SLACK_BOT_TOKEN` the right to do it, which needs chat:write",
        ),
        (
            no("channel_not_found"),
            "NotFoundError",
            "Slack has no channel C01 that the environment value `SLACK_BOT_TOKEN` may use (channel_not_found); check its id with list_slack_channels",
        ),
        (no("not_in_channel"), "ForbiddenError", "the app is not in it (not_in_channel); have it invited there"),
        (no("ratelimited"), "RateLimitError", "Slack takes no more for now (ratelimited); try again in a minute"),
        (
            Answer::json(200, &arguments),
            "ServiceError",
            "Slack refused it (invalid_arguments; [ERROR] no such thing); put right what it names",
        ),
    ] {
        let server = Server::answering([answer]).await;
        let error = call(&server, "post_slack_message", json!({ "channel": "C01", "text": "hi" })).await.unwrap_err();
        assert_eq!((error.name(), error.message()), (name, format!("can't post in channel C01: {message}").as_str()));
        assert_eq!(server.lines().len(), 1);
    }
}

#[tokio::test]
async fn a_message_that_may_have_been_posted_is_not_posted_again() {
    for (answer, why) in [
        (no("fatal_error"), "it answered fatal_error"),
        (Answer::text(500, ""), "it answered 500, and says no more"),
        (Answer::Closed, "the exchange with 127.0.0.1 broke off"),
        (Answer::Broken { status: 200, body: "{\"ok\": true" }, "its answer broke off"),
    ] {
        let server = Server::answering([answer, posted()]).await;
        let error = call(&server, "post_slack_message", json!({ "channel": "C01", "text": "hi" })).await.unwrap_err();
        assert_eq!(error.name(), "OutcomeUnknownError");
        assert!(error.message().starts_with(&format!("Slack was asked to post in channel C01, and {why}")), "{error}");
        assert_eq!(server.lines().len(), 1);
    }
    let limited = Answer::json(429, &json!({ "ok": false, "error": "ratelimited" })).with("retry-after", "1");
    let server = Server::answering([limited, posted()]).await;
    call(&server, "post_slack_message", json!({ "channel": "C01", "text": "hi" })).await.unwrap();
    assert_eq!(server.lines().len(), 2);
}
