//! What the tools of services behind HTTP share, shown with GitHub's: limits, failures, and the outcome of writes.

use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolwright_tool::{Tool, ToolError, ToolFailureKind};
use toolwright_tools::integrations::{Credential, GitHub};

use crate::call::{TOKEN, begin, call, parts, tool};
use crate::server::{Answer, Server};

fn tools(server: &Server) -> Vec<Tool> {
    GitHub::new().base_url(&server.url).timeout(Duration::from_secs(20)).tools().unwrap()
}

async fn read(server: &Server) -> Result<Value, ToolError> {
    call(&tools(server), "get_github_issue", json!({ "owner": "acme", "repo": "shop", "number": 7 }), "GITHUB_TOKEN").await
}

async fn write(server: &Server) -> Result<Value, ToolError> {
    write_with(&tools(server)).await
}

async fn write_with(tools: &[Tool]) -> Result<Value, ToolError> {
    call(tools, "comment_on_github_issue", json!({ "owner": "acme", "repo": "shop", "number": 7, "body": "hi" }), "GITHUB_TOKEN").await
}

fn issue() -> Answer {
    Answer::json(200, &json!({ "number": 7, "comments": 0 }))
}

fn commented() -> Answer {
    Answer::json(201, &json!({ "id": 1 }))
}

fn limited(status: u16) -> Answer {
    Answer::json(status, &json!({ "message": "API rate limit exceeded" }))
}

#[tokio::test]
async fn a_short_limit_is_waited_for() {
    for limit in [
        limited(429).with("retry-after", "1"),
        limited(403).with("x-ratelimit-remaining", "0").with("x-ratelimit-reset", "1000"),
        Answer::json(403, &json!({ "message": "You have exceeded a secondary rate limit" })).with("retry-after", "0"),
    ] {
        // A write too: a request that was turned away did nothing.
        let server = Server::answering([limit, commented()]).await;
        assert_eq!(write(&server).await.unwrap()["id"], 1);
        assert_eq!(server.lines().len(), 2);
    }
}

#[tokio::test]
async fn a_long_limit_says_until_when() {
    let date = "Tue, 01 Dec 2026 13:00:00 GMT";
    for (limit, seconds) in [
        (limited(429).with("retry-after", "900"), 900),
        (limited(403).with("date", date).with("x-ratelimit-remaining", "0").with("x-ratelimit-reset", "1796130090"), 90),
        (Answer::json(403, &json!({ "message": "You have exceeded a secondary rate limit" })), 60),
    ] {
        let server = Server::answering([limit]).await;
        let error = read(&server).await.unwrap_err();
        assert_eq!(error.name(), "RateLimitError");
        let message = error.message();
        assert!(
            message.starts_with("can't read issue 7 in acme/shop: GitHub takes no more requests for now; try again after 20"),
            "{message}"
        );
        assert!(message.ends_with(&format!("Z (in {seconds} s)")), "{message}");
        assert_eq!(server.lines().len(), 1);
    }
}

#[tokio::test]
async fn a_limit_that_does_not_end_is_given_up() {
    let server = Server::answering((0..9).map(|_| limited(429).with("retry-after", "0"))).await;
    assert_eq!(read(&server).await.unwrap_err().name(), "RateLimitError");
    assert_eq!(server.lines().len(), 3);
}

#[tokio::test]
async fn a_wait_never_passes_the_deadline() {
    let server = Server::answering([limited(429).with("retry-after", "5")]).await;
    let tools = GitHub::new().base_url(&server.url).timeout(Duration::from_secs(3)).tools().unwrap();
    let error = write_with(&tools).await.unwrap_err();
    assert!(error.message().ends_with("(in 5 s)"), "{}", error.message());
    assert_eq!(tools[0].spec().timeout, Some(Duration::from_secs(8)), "dispatch waits for our sentence");
}

#[tokio::test]
async fn reading_survives_a_stumble() {
    for stumble in [Answer::text(502, "<html>"), Answer::text(500, ""), Answer::Closed, Answer::Broken { status: 200, body: "{\"num" }] {
        let server = Server::answering([stumble, issue()]).await;
        assert_eq!(read(&server).await.unwrap()["number"], 7);
        assert_eq!(server.lines().len(), 2);
    }
    let server = Server::answering((0..9).map(|_| Answer::json(503, &json!({ "message": "Unicorn!" })))).await;
    let error = read(&server).await.unwrap_err();
    assert_eq!(error.message(), "can't read issue 7 in acme/shop: GitHub answered 503, and says: Unicorn!; try again later");
    assert_eq!(server.lines().len(), 3);
    let server = Server::answering([Answer::text(503, "").with("retry-after", "3600")]).await;
    assert_eq!(read(&server).await.unwrap_err().name(), "ServiceError");
    assert_eq!(server.lines().len(), 1, "a service that asks for an hour gets it");
}

#[tokio::test]
async fn a_write_whose_outcome_is_unknown_is_not_repeated() {
    for (stumble, why) in [
        (Answer::text(502, "<html>"), "it answered 502, and says no more"),
        (Answer::json(500, &json!({ "message": "oops" })), "it answered 500, and says: oops"),
        (Answer::Closed, "the exchange with 127.0.0.1 broke off: "),
        (Answer::json(200, &json!([])), "it answered 200 and not 201"),
    ] {
        let server = Server::answering([stumble, commented()]).await;
        let error = write(&server).await.unwrap_err();
        assert_eq!(error.name(), "OutcomeUnknownError");
        let message = error.message();
        assert!(message.starts_with(&format!("GitHub was asked to comment on issue 7 in acme/shop, and {why}")), "{message}");
        assert!(message.ends_with("; it may have been done, so look before asking for it again"), "{message}");
        assert_eq!(server.lines().len(), 1, "{message}");
    }
}

#[tokio::test]
async fn a_write_on_a_connection_that_was_kept_is_not_repeated() {
    // The first answer keeps the connection, the second breaks it: HTTP clients like to send again there.
    let server = Server::answering([commented(), Answer::Closed, commented()]).await;
    let tools = tools(&server);
    write_with(&tools).await.unwrap();
    assert_eq!(write_with(&tools).await.unwrap_err().name(), "OutcomeUnknownError");
    assert_eq!(server.lines().len(), 2);
}

#[tokio::test]
async fn silence_ends_at_the_deadline() {
    let server = Server::answering([Answer::Silence, Answer::Silence]).await;
    let tools = GitHub::new().base_url(&server.url).timeout(Duration::from_millis(300)).tools().unwrap();
    let error = write_with(&tools).await.unwrap_err();
    assert_eq!(error.name(), "OutcomeUnknownError");
    assert!(error.message().contains("and no whole answer came within 0.3 s; it may have been done"), "{}", error.message());
    let args = json!({ "owner": "acme", "repo": "shop", "number": 7 });
    let error = call(&tools, "get_github_issue", args, "GITHUB_TOKEN").await.unwrap_err();
    assert_eq!(error.message(), "can't read issue 7 in acme/shop: GitHub: no whole answer came within 0.3 s; try again later");
    assert_eq!(server.lines().len(), 2);
}

#[tokio::test]
async fn a_write_that_is_done_is_done_whatever_comes_of_the_rest() {
    let server = Server::answering([Answer::Broken { status: 201, body: "{\"id\": 1, \"htm" }]).await;
    assert_eq!(write(&server).await.unwrap(), json!({ "commented": true }));
    let server = Server::answering([Answer::Stuck { status: 201 }]).await;
    let tools = GitHub::new().base_url(&server.url).timeout(Duration::from_millis(300)).tools().unwrap();
    assert_eq!(write_with(&tools).await.unwrap(), json!({ "commented": true }));
    let server = Server::answering([Answer::Broken { status: 422, body: "{\"mess" }]).await;
    let message = write(&server).await.unwrap_err().message().to_owned();
    assert_eq!(message, "can't comment on issue 7 in acme/shop: GitHub refused it with 422; put right what it names");
    assert_eq!(server.lines().len(), 1);
}

#[tokio::test]
async fn a_body_without_end_is_cut_off() {
    let server = Server::answering([Answer::Endless]).await;
    let error = read(&server).await.unwrap_err();
    assert_eq!(error.message(), "can't read issue 7 in acme/shop: the answer is longer than 8388608 bytes; ask for less at once");
    assert_eq!(server.lines().len(), 1);
}

#[tokio::test]
async fn nobody_there_is_said() {
    let server = Server::answering([]).await;
    let gone = {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    let tools = GitHub::new().base_url(format!("http://{gone}")).tools().unwrap();
    let message = write_with(&tools).await.unwrap_err().message().to_owned();
    assert!(message.starts_with("can't comment on issue 7 in acme/shop: no connection to 127.0.0.1: "), "{message}");
    assert!(message.ends_with("; check that it can be reached, then try again"), "{message}");
    drop(server);
}

// rule: sdk-tools 9.1/5
#[tokio::test]
async fn a_failure_is_one_sentence_and_nothing_more() {
    let errors = json!({ "message": "Validation Failed", "errors": [{ "field": "title", "code": "missing_field" }, "and so on"] });
    for (answer, name, message) in [
        (
            Answer::json(401, &json!({ "message": "Bad credentials" })),
            "CredentialsError",
            "GitHub does not accept the environment value `GITHUB_TOKEN` (Bad credentials); put a valid one there",
        ),
        (
            Answer::json(403, &json!({ "message": "Resource not accessible\nby personal access token" })),
            "ForbiddenError",
            "GitHub does not allow it (Resource not accessible by personal access token); give the environment value `GITHUB_TOKEN` the right to comment on issue 7 in acme/shop",
        ),
        (
            Answer::json(404, &json!({ "message": "Not Found" })),
            "NotFoundError",
            "GitHub has no issue 7 in acme/shop, or the environment value `GITHUB_TOKEN` may not see it; check how it is written",
        ),
        (
            Answer::json(410, &json!({ "message": "Issues are disabled for this repo" })),
            "NotFoundError",
            "issue 7 in acme/shop is gone, or switched off (Issues are disabled for this repo)",
        ),
        (
            Answer::json(422, &errors),
            "ServiceError",
            "GitHub refused it with 422 (Validation Failed; title missing_field; and so on); put right what it names",
        ),
        (
            Answer::text(307, "").with("location", "https://evil.example/"),
            "ServiceError",
            "GitHub answered 307, a redirect to elsewhere, which is not followed with credentials; set the base URL to where its API is",
        ),
    ] {
        let server = Server::answering([answer]).await;
        let error = write(&server).await.unwrap_err();
        let expected = format!("can't comment on issue 7 in acme/shop: {message}");
        assert_eq!((error.name(), error.message()), (name, expected.as_str()));
        let failure = error.to_failure("comment_on_github_issue");
        assert_eq!((failure.kind, failure.message.as_str(), failure.issues.len()), (ToolFailureKind::Execution, expected.as_str(), 0));
        assert_eq!(server.lines().len(), 1);
    }
    let server = Server::answering([Answer::text(200, "<html>Welcome</html>")]).await;
    let message = read(&server).await.unwrap_err().message().to_owned();
    assert!(
        message.ends_with("GitHub answered 200 with something that is no JSON; check that the base URL is that of its API"),
        "{message}"
    );
}

#[tokio::test]
async fn a_service_that_repeats_the_token_shows_it_to_nobody() {
    let echo = |status: u16| {
        let encoded = TOKEN.replace('-', "%2D");
        Answer::json(status, &json!({ "number": 7, "comments": 0, "title": TOKEN, "body": encoded, "message": format!("no {TOKEN}") }))
    };
    let server = Server::answering([echo(200), echo(403)]).await;
    let tools = GitHub::new().base_url(&server.url).token(Credential::value(TOKEN)).tools().unwrap();
    let get = tool(&tools, "get_github_issue");
    let args = json!({ "owner": "acme", "repo": "shop", "number": 7 });
    let shown = begin(&get, parts(&get, args.clone(), &[])).await.unwrap();
    assert_eq!((&shown["title"], &shown["body"]), (&json!("[redacted:GitHub-credential]"), &json!("[redacted:GitHub-credential]")));
    let error = begin(&get, parts(&get, args, &[])).await.unwrap_err();
    assert!(error.message().contains("(no [redacted:GitHub-credential])"), "{}", error.message());
    assert_eq!(server.seen()[1].header("authorization"), Some(format!("Bearer {TOKEN}").as_str()));
}

#[tokio::test]
async fn a_stopped_run_stops_reading_and_waiting_but_not_a_write() {
    let server = Server::answering([Answer::Silence]).await;
    let tools = tools(&server);
    let get = tool(&tools, "get_github_issue");
    let stop = CancellationToken::new();
    let mut context = parts(&get, json!({ "owner": "acme", "repo": "shop", "number": 7 }), &[]);
    context.cancelled = stop.clone();
    let (result, ()) = tokio::join!(begin(&get, context), async {
        server.asked(1).await;
        stop.cancel();
    });
    assert_eq!(result.unwrap_err().message(), "can't read issue 7 in acme/shop: the run was stopped");

    let comment = tool(&tools, "comment_on_github_issue");
    let args = json!({ "owner": "acme", "repo": "shop", "number": 7, "body": "hi" });
    let mut context = parts(&comment, args, &[("GITHUB_TOKEN", TOKEN)]);
    context.cancelled = stop;
    assert!(begin(&comment, context).await.unwrap_err().message().ends_with("the run was stopped"), "nothing new begins");
    assert_eq!(server.lines().len(), 1);
}
