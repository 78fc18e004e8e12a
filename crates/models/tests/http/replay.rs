//! Recording real conversations and replaying them without the server.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::{Value, json};
use toolwright_core::{ArgsState, Author, CallId, CallItem, Item, Message, Part, ResultItem, Transcript};
use toolwright_host::net::Client;
use toolwright_models::{Cassette, ChatModel, ChatResolver, ReplayMode, Switches};
use toolwright_runtime::{Model as _, ModelResolver as _};

use crate::server::{Answer, Server, pieces};
use crate::{collect, request};

const KEY: &str = "test-key-that-nobody-may-see";

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

fn live() -> Arc<Client> {
    Arc::new(Client::new(Duration::from_secs(10)))
}

fn model(url: &str, cassette: &Cassette) -> ChatModel {
    ChatModel::new(Switches::of("openai").unwrap().clone(), "m").base_url(url).key(KEY).transport(Arc::new(cassette.clone()))
}

fn chunk(text: &str) -> Value {
    json!({ "choices": [{ "delta": { "content": text }, "finish_reason": "stop" }] })
}

fn say(text: &str) -> Transcript {
    [Message::human(text)].into_iter().collect()
}

/// A turn whose call has this id.
fn turn(id: &str) -> Transcript {
    let call = CallItem {
        call_id: CallId::new(id),
        provider_id: None,
        name: "f".to_owned(),
        arguments: "{}".to_owned(),
        state: ArgsState::Complete,
        ask: None,
        provider_data: None,
    };
    let result = ResultItem {
        call_id: CallId::new(id),
        provider_id: None,
        tool_name: "f".to_owned(),
        parts: vec![Part::text("done")],
        failed: None,
        approval: None,
        marks: toolwright_core::taint::Marks::default(),
    };
    let message = |author, item| Message { author, items: vec![item], metadata: serde_json::Map::new() };
    [Message::human("go"), message(Author::SideA, Item::ToolCall(call)), message(Author::Tool, Item::ToolResult(result))]
        .into_iter()
        .collect()
}

#[tokio::test]
async fn a_recorded_conversation_is_replayed_without_the_server() {
    let folder = Folder::new();
    let file = folder.file("talk.json");
    // The é is in two pieces of the body.
    let split = chunk("caf\u{e9}").to_string();
    let (head, tail) = split.as_bytes().split_at(split.find('\u{e9}').unwrap() + 1);
    let cut = vec![[b"data: ", head].concat(), [tail, b"\n\ndata: [DONE]\n\n"].concat()];
    let server = Server::answering([
        Answer::Stream(cut),
        Answer::chunks(&[chunk("two")]),
        Answer::Whole {
            status: 429,
            headers: vec![("retry-after", "1".to_owned()), ("set-cookie", "c".to_owned())],
            body: "slow".to_owned(),
        },
    ])
    .await;
    let recording = Cassette::open(&file, ReplayMode::ReplayOrRecord, live()).unwrap();
    assert!(recording.records());
    let mut recorded = Vec::new();
    for messages in [say("one"), turn("call_abc"), say("three")] {
        recorded.push(collect(model(&server.url, &recording).stream(request(messages))).await);
    }
    assert_eq!(recorded[0].1.as_ref().unwrap().items, [Item::text("café")]);
    assert_eq!(recorded[2].1.as_ref().unwrap_err().retry_after_ms, Some(1000));

    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains(KEY) && !text.to_lowercase().contains("authorization") && !text.contains("set-cookie"), "{text}");
    assert!(text.contains("\"content\": \"one\""), "bodies are JSON that people can read: {text}");

    // In another order, with another id of the call, at an address where nobody is.
    let replaying = Cassette::open(&file, ReplayMode::ReplayOrRecord, live()).unwrap();
    assert!(!replaying.records());
    let mut replayed = Vec::new();
    for messages in [turn("call_xyz"), say("one"), say("three")] {
        replayed.push(collect(model("http://127.0.0.1:1/v1", &replaying).stream(request(messages))).await);
    }
    assert_eq!(replaying.unused(), 0);
    assert_eq!(replayed[1], recorded[0]);
    assert_eq!(replayed[0], recorded[1]);
    assert_eq!(replayed[2], recorded[2]);
}

#[tokio::test]
async fn what_is_not_on_the_tape_is_an_error_that_names_the_nearest() {
    let folder = Folder::new();
    let file = folder.file("talk.json");
    let server = Server::answering([Answer::chunks(&[chunk("one")]), Answer::chunks(&[chunk("two")])]).await;
    let recording = Cassette::open(&file, ReplayMode::Record, live()).unwrap();
    collect(model(&server.url, &recording).stream(request(say("one")))).await.1.unwrap();
    collect(model(&server.url, &recording).stream(request(turn("c")))).await.1.unwrap();

    let replaying = Cassette::replay(&file).unwrap();
    let ask = async |messages| collect(model(&server.url, &replaying).stream(request(messages))).await.1;
    let error = ask(say("other")).await.unwrap_err().message;
    assert!(error.starts_with("TOOLWRIGHT_CASSETTE_INVALID: the cassette ") && error.contains("talk.json"), "{error}");
    assert!(error.contains("the nearest is request 1 (POST /v1/chat/completions), where body.messages.0.content differs"), "{error}");
    ask(say("one")).await.unwrap();
    let error = ask(say("one")).await.unwrap_err().message;
    assert!(error.contains("all 1 recorded answers to POST /v1/chat/completions with this body are used"), "{error}");
    assert_eq!(replaying.unused(), 1);
    assert_eq!(server.seen().len(), 2, "replaying never sends");
}

#[tokio::test]
async fn files_that_are_no_cassettes_are_refused() {
    let folder = Folder::new();
    let say = |content: &str| {
        let file = folder.file("odd.json");
        std::fs::write(&file, content).unwrap();
        Cassette::replay(file).unwrap_err().to_string()
    };
    let missing = Cassette::replay(folder.file("missing.json")).unwrap_err();
    assert_eq!(missing.code(), "TOOLWRIGHT_CASSETTE_INVALID");
    assert!(missing.to_string().contains("missing.json: it does not exist; record it first"), "{missing}");
    assert!(say("{").contains("it is not JSON"));
    assert!(say("[]").contains("it has no version"));
    assert!(say("{\"version\":9,\"entries\":[]}").contains("version 9"));
    assert!(say("{\"version\":1,\"entries\":[{}]}").contains("it is not whole"));
    let bad_hex = json!({ "version": 1, "entries": [{ "request": { "method": "GET", "path": "/" }, "response": { "status": 200, "body": [{ "hex": "zz" }] } }] });
    assert!(say(&bad_hex.to_string()).contains("hexadecimal"));
}

#[tokio::test]
async fn secrets_in_bodies_and_addresses_are_not_written() {
    let folder = Folder::new();
    let file = folder.file("talk.json");
    // The server gives the key back, cut in two.
    let (head, tail) = KEY.split_at(7);
    let answer = vec![format!("data: {{\"error\":\"bad key {head}").into_bytes(), format!("{tail}\"}}\n\n").into_bytes()];
    let server = Server::answering([Answer::Stream(answer)]).await;
    let recording = Cassette::open(&file, ReplayMode::Record, live()).unwrap();
    let token = format!("sk-proj-{}", "a1".repeat(20));
    let model = model(&format!("{}?api_key=query-secret&v=2", server.url), &recording);
    collect(model.stream(request(say(&format!("my token is {token} and my key {KEY}"))))).await.1.unwrap_err();
    let text = std::fs::read_to_string(&file).unwrap();
    for secret in [KEY, &token, "query-secret"] {
        assert!(!text.contains(secret), "{text}");
    }
    assert!(text.contains("api_key=[REDACTED]&v=2"), "{text}");
    // It is found again all the same.
    let replaying = Cassette::replay(&file).unwrap();
    let model = model.transport(Arc::new(replaying.clone()));
    collect(model.stream(request(say(&format!("my token is {token} and my key {KEY}"))))).await.1.unwrap_err();
    assert_eq!(replaying.unused(), 0);
}

#[tokio::test]
async fn what_breaks_or_is_left_is_recorded_as_it_was() {
    let folder = Folder::new();
    let file = folder.file("talk.json");
    let server = Server::answering([
        Answer::Broken(pieces(&[json!({ "choices": [{ "delta": { "content": "a" } }] })])),
        Answer::Held(pieces(&[chunk("b")])),
    ])
    .await;
    let recording = Cassette::open(&file, ReplayMode::Record, live()).unwrap();
    let broken = collect(model(&server.url, &recording).stream(request(say("one")))).await;
    assert!(broken.1.is_err());
    let mut left = model(&server.url, &recording).stream(request(say("two")));
    assert!(left.next().await.unwrap().is_ok());
    drop(left);
    let replaying = Cassette::replay(&file).unwrap();
    let again = collect(model(&server.url, &replaying).stream(request(say("one")))).await;
    assert_eq!(again.0, broken.0);
    assert!(again.1.unwrap_err().message.contains("broke off"));
    assert_eq!(collect(model(&server.url, &replaying).stream(request(say("two")))).await.0.len(), 1);
}

#[tokio::test]
async fn a_replaying_resolver_needs_no_key() {
    let folder = Folder::new();
    let file = folder.file("talk.json");
    std::fs::write(&file, "{\"version\":1,\"entries\":[]}").unwrap();
    let resolver = ChatResolver::with_env(|_| None).transport(Arc::new(Cassette::replay(&file).unwrap()));
    let model = resolver.resolve("openai/m").unwrap().unwrap();
    assert!(collect(model.stream(request(say("x")))).await.1.unwrap_err().message.contains("it holds no request"));
}
