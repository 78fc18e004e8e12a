//! What the wire sends, and what it makes of what comes back.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::{Map, Value, json};
use toolwright_core::schema::Schema;
use toolwright_core::{
    ArgsState, Author, CallId, CallItem, FinishReason, Item, Message, Part, ResultItem, Side, ToolFailureKind, ToolName, ToolOrigin,
    ToolSpec, Transcript,
};
use toolwright_models::{ChatModel, ChatResolver, Deadlines, Switches};
use toolwright_runtime::{ErrorCategory, Model, ModelEvent, ModelRequest, ModelResolver, ModelSettings, ToolChoice};

use crate::server::{Answer, Server, pieces};
use crate::{collect, request};

const KEY: &str = "test-key-that-nobody-may-see";

fn hello() -> ModelRequest {
    request([Message::human("hi")].into_iter().collect())
}

fn text_chunk(text: &str) -> Value {
    json!({ "model": "m-1", "choices": [{ "index": 0, "delta": { "content": text }, "finish_reason": null }] })
}

fn finish_chunk() -> Value {
    json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] })
}

fn at(provider: &str, server: &Server) -> ChatModel {
    ChatModel::new(Switches::of(provider).unwrap().clone(), "test-model").base_url(&server.url).key(KEY)
}

/// What `provider` is sent for this request.
async fn sent(provider: &str, request: ModelRequest) -> Value {
    sent_by(provider, "test-model", request).await
}

async fn sent_by(provider: &str, model: &str, request: ModelRequest) -> Value {
    let server = Server::answering([Answer::chunks(&[text_chunk("ok"), finish_chunk()])]).await;
    let model = ChatModel::new(Switches::of(provider).unwrap().clone(), model).base_url(&server.url).key(KEY);
    let (_, reply) = collect(model.stream(request)).await;
    reply.unwrap();
    server.seen()[0].json()
}

fn call(id: &str, name: &str, arguments: &str) -> Item {
    Item::ToolCall(CallItem {
        call_id: CallId::new(id),
        provider_id: None,
        name: name.to_owned(),
        arguments: arguments.to_owned(),
        state: ArgsState::Complete,
        ask: None,
        provider_data: None,
    })
}

fn result(id: &str, name: &str, parts: Vec<Part>) -> Item {
    Item::ToolResult(ResultItem {
        call_id: CallId::new(id),
        provider_id: None,
        tool_name: name.to_owned(),
        parts,
        failed: None,
        approval: None,
        marks: toolwright_core::taint::Marks::default(),
    })
}

fn message(author: Author, items: Vec<Item>) -> Message {
    Message { author, items, metadata: Map::new() }
}

fn tool(name: &str, schema: Value) -> Arc<ToolSpec> {
    let schema = Schema::new(schema).unwrap();
    Arc::new(ToolSpec::new(ToolName::new(name).unwrap(), format!("Does {name}."), schema, ToolOrigin::Value))
}

/// A turn with two calls, one answered in JSON and one with an image.
fn two_calls() -> Transcript {
    [
        Message::human("look"),
        message(
            Author::SideA,
            vec![
                Item::Reasoning {
                    text: "hm".to_owned(),
                    signature: None,
                    provenance: Some("deepseek/test-model".to_owned()),
                    encrypted: None,
                },
                Item::text("I look."),
                call("t1_call_00_that_is_longer_than_forty_characters", "search", "{\"q\":\"é\"}"),
                call("c2", "camera.snap", ""),
            ],
        ),
        message(
            Author::Tool,
            vec![
                result(
                    "t1_call_00_that_is_longer_than_forty_characters",
                    "search",
                    vec![Part::Json { value: json!({ "z": 1, "a": [2] }) }],
                ),
                result(
                    "c2",
                    "camera.snap",
                    vec![
                        Part::text("here"),
                        Part::Image { image: "data:image/png;base64,AA==".to_owned(), mime_type: Some("image/png".to_owned()) },
                    ],
                ),
            ],
        ),
    ]
    .into_iter()
    .collect()
}

// rule: sdk-tools 7.1/1
// rule: sdk-tools 2.2/10
// case: rust-reports B-28
#[tokio::test]
async fn a_request_is_sent_as_it_stands_here() {
    let server = Server::answering([Answer::chunks(&[text_chunk("ok"), finish_chunk()])]).await;
    let mut asked = request(two_calls());
    asked.instructions = "Be brief.".into();
    let first = tool(
        "search",
        json!({ "type": "object", "properties": { "q": { "type": "string" }, "a": { "type": "integer" } }, "required": ["q"] }),
    );
    asked.tools = vec![first, tool("another", json!({ "type": "object", "properties": {} }))].into();
    asked.settings = Arc::new(ModelSettings { max_tokens: Some(50), temperature: Some(0.5), seed: Some(7), ..ModelSettings::default() });
    let (_, reply) = collect(at("openai", &server).stream(asked)).await;
    assert_eq!(reply.unwrap().items, [Item::text("ok")]);

    let seen = &server.seen()[0];
    assert_eq!(seen.line, "POST /v1/chat/completions HTTP/1.1");
    assert_eq!(seen.header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    assert_eq!(seen.header("content-type"), Some("application/json"));
    assert!(seen.header("user-agent").unwrap().starts_with("toolwright/"));
    let body = seen.json();
    let mapped = ToolName::mapped("camera.snap").to_string();
    let id = body["messages"][2]["tool_calls"][0]["id"].as_str().unwrap().to_owned();
    assert!(id.len() <= 40 && id != "c2", "{id}");
    let expected = json!({
        "model": "test-model",
        "messages": [
            { "role": "developer", "content": "Be brief." },
            { "role": "user", "content": "look" },
            {
                "role": "assistant",
                "content": "I look.",
                "tool_calls": [
                    { "id": id, "type": "function", "function": { "name": "search", "arguments": "{\"q\":\"é\"}" } },
                    { "id": "c2", "type": "function", "function": { "name": mapped, "arguments": "{}" } },
                ],
            },
            { "role": "tool", "tool_call_id": id, "content": "{\"z\":1,\"a\":[2]}" },
            { "role": "tool", "tool_call_id": "c2", "content": "here\n[image image/png]" },
            {
                "role": "user",
                "content": [
                    { "type": "text", "text": "Images in the result of the tool `camera.snap`:" },
                    { "type": "image_url", "image_url": { "url": "data:image/png;base64,AA==" } },
                ],
            },
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "search",
                    "description": "Does search.",
                    "parameters": { "type": "object", "properties": { "q": { "type": "string" }, "a": { "type": "integer" } }, "required": ["q"] },
                },
            },
            { "type": "function", "function": { "name": "another", "description": "Does another.", "parameters": { "type": "object", "properties": {} } } },
        ],
        "max_completion_tokens": 50,
        "temperature": 0.5,
        "seed": 7,
        "stream": true,
        "stream_options": { "include_usage": true },
    });
    // As text, because the order of keys counts too (invariant 11).
    assert_eq!(body.to_string(), expected.to_string());
}

#[tokio::test]
async fn mistral_gets_ids_of_its_shape_and_its_own_words() {
    let mut asked = request(two_calls());
    asked.tools = vec![tool("search", json!({ "type": "object", "properties": {} }))].into();
    asked.settings = Arc::new(ModelSettings { tool_choice: Some(ToolChoice::Required), seed: Some(3), ..ModelSettings::default() });
    let body = sent("mistral", asked).await;
    let ids: Vec<&str> = body["messages"][1]["tool_calls"].as_array().unwrap().iter().map(|call| call["id"].as_str().unwrap()).collect();
    assert!(ids.iter().all(|id| id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric())), "{ids:?}");
    assert_ne!(ids[0], ids[1]);
    assert_eq!((&body["messages"][2]["tool_call_id"], &body["messages"][3]["tool_call_id"]), (&json!(ids[0]), &json!(ids[1])));
    assert_eq!(body["messages"][2]["name"], "search");
    assert_eq!((&body["tool_choice"], &body["random_seed"]), (&json!("any"), &json!(3)));
    assert!(body.get("stream_options").is_none() && body.get("seed").is_none());
}

#[tokio::test]
async fn reasoning_goes_back_only_in_the_turn_and_to_the_model_it_came_from() {
    let body = sent("deepseek", request(two_calls())).await;
    assert_eq!(body["messages"][1]["reasoning_content"], "hm");
    assert_eq!(body["messages"][3]["content"], "here\n[image image/png]");
    assert_eq!(body["messages"].as_array().unwrap().len(), 4, "no message with images for a model that takes none");
    let other = sent_by("deepseek", "another-model", request(two_calls())).await;
    assert!(other["messages"][1].get("reasoning_content").is_none());
    let later: Transcript = two_calls().iter().map(|message| (**message).clone()).chain([Message::human("and?")]).collect();
    assert!(sent("deepseek", request(later)).await["messages"][1].get("reasoning_content").is_none());
    assert!(sent("openai", request(two_calls())).await["messages"][1].get("reasoning_content").is_none());
    // OpenRouter's parts of reasoning go back whole.
    let details = json!([{ "type": "reasoning.text", "text": "hm", "signature": "s" }]);
    let thought = Item::Reasoning {
        text: "hm".to_owned(),
        signature: Some("s".to_owned()),
        provenance: Some("openrouter/test-model".to_owned()),
        encrypted: Some(details.clone()),
    };
    let turn = [Message::human("hi"), message(Author::SideA, vec![thought, Item::text("yes")]), Message::human("go on")];
    assert_eq!(sent("openrouter", request(turn.into_iter().collect())).await["messages"][1]["reasoning_details"], details);
}

// case: field-reports 50
#[tokio::test]
async fn earlier_arguments_never_spoil_later_requests() {
    let turn = |arguments: &str| -> Transcript {
        let turn = [
            Message::human("hi"),
            message(Author::SideA, vec![call("c1", "f", arguments)]),
            message(Author::Tool, vec![result("c1", "f", vec![Part::text("no")])]),
        ];
        turn.into_iter().collect()
    };
    for (written, as_written, as_object) in [
        ("", "{}", "{}"),
        ("  ", "{}", "{}"),
        ("{\"a\":1}", "{\"a\":1}", "{\"a\":1}"),
        ("{\"a\":", "{\"a\":", "{\"malformed\":\"{\\\"a\\\":\"}"),
        ("[1]", "[1]", "{\"malformed\":\"[1]\"}"),
        ("{\"d\":\"\\ud99c\"}", "{\"d\":\"\\ufffd\"}", "{\"d\":\"\\ufffd\"}"),
    ] {
        let arguments = |body: &Value| body["messages"][1]["tool_calls"][0]["function"]["arguments"].clone();
        assert_eq!(arguments(&sent("openai", request(turn(written))).await), as_written);
        assert_eq!(arguments(&sent("vllm", request(turn(written))).await), as_object);
    }
}

// case: rust-reports D-58
#[tokio::test]
async fn a_name_in_the_history_that_providers_refuse_is_mapped() {
    let long = "x".repeat(80);
    let turn = [
        Message::human("hi"),
        message(Author::SideA, vec![call("c1", "admin.tools.list", "{}"), call("c2", &long, "{}")]),
        message(Author::Tool, vec![result("c1", "admin.tools.list", vec![]), result("c2", &long, vec![])]),
    ];
    let body = sent("openai", request(turn.into_iter().collect())).await;
    for call in body["messages"][1]["tool_calls"].as_array().unwrap() {
        assert!(ToolName::new(call["function"]["name"].as_str().unwrap()).is_ok(), "{call}");
    }
}

#[tokio::test]
async fn roles_are_those_of_whoever_acts() {
    let talk = || -> Transcript {
        let talk = [
            message(Author::SideA, vec![Item::text("I ask."), call("c1", "f", "{}")]),
            message(Author::Tool, vec![result("c1", "f", vec![Part::text("secret of A")])]),
            message(Author::SideB, vec![Item::text("I answer.")]),
            Message::text(Author::System, "It is late."),
        ];
        talk.into_iter().collect()
    };
    let body = sent("openai", ModelRequest { acting: Side::B, ..request(talk()) }).await;
    assert_eq!(
        body["messages"],
        json!([
            { "role": "user", "content": "I ask." },
            { "role": "assistant", "content": "I answer." },
            { "role": "developer", "content": "It is late." },
        ]),
        "the other side's calls and results are its own"
    );
    let body = sent("vllm", request(talk())).await;
    let roles: Vec<&str> = body["messages"].as_array().unwrap().iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["assistant", "tool", "user", "user"], "templates of open models refuse a late system message");
}

#[tokio::test]
async fn images_and_files_of_people_are_sent_or_named() {
    let items = || {
        vec![
            Item::text("see"),
            Item::Image { image: "https://example.org/a.png".to_owned(), mime_type: None },
            Item::File {
                data: "data:application/pdf;base64,AA==".to_owned(),
                mime_type: "application/pdf".to_owned(),
                filename: Some("a.pdf".to_owned()),
            },
        ]
    };
    let body = |provider| async move {
        sent(provider, request([message(Author::Human, items())].into_iter().collect())).await["messages"][0].take()
    };
    assert_eq!(
        body("openai").await["content"],
        json!([
            { "type": "text", "text": "see" },
            { "type": "image_url", "image_url": { "url": "https://example.org/a.png" } },
            { "type": "file", "file": { "filename": "a.pdf", "file_data": "data:application/pdf;base64,AA==" } },
        ])
    );
    assert_eq!(body("groq").await["content"][2], json!({ "type": "text", "text": "[file a.pdf (application/pdf)]" }));
    assert_eq!(body("deepseek").await["content"], "see\n[image left out]\n[file a.pdf (application/pdf)]");
}

// case: rust-reports D-62
#[tokio::test]
async fn settings_are_sent_where_they_are_taken_and_options_last() {
    let settings = ModelSettings {
        max_tokens: Some(9),
        temperature: Some(0.1),
        top_p: Some(0.2),
        frequency_penalty: Some(0.3),
        stop: Some(vec!["END".to_owned()]),
        tool_choice: Some(ToolChoice::Required),
        ..ModelSettings::default()
    };
    let with = |settings: &ModelSettings| ModelRequest { settings: Arc::new(settings.clone()), ..hello() };
    let keys = |body: Value| body.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let all = ["model", "messages", "max_tokens", "temperature", "top_p", "frequency_penalty", "stop", "stream", "stream_options"];
    assert_eq!(keys(sent("together", with(&settings)).await), all, "without tools there is no choice among them");
    let few = ["model", "messages", "max_completion_tokens", "stream", "stream_options"];
    assert_eq!(keys(sent_by("openai", "o3-mini", with(&settings)).await), few);
    assert_eq!(keys(sent("openai", hello()).await), ["model", "messages", "stream", "stream_options"], "what is absent is not sent");

    let mut settings = settings;
    settings.provider_options =
        json!({ "openai": { "temperature": 2, "stream_options": null, "user": "u" }, "groq": { "x": 1 } }).as_object().unwrap().clone();
    let mut tool = ToolSpec::clone(&tool("f", json!({ "type": "object", "properties": {} })));
    tool.provider_options = json!({ "openai": { "function": { "strict": true } } }).as_object().unwrap().clone();
    let body = sent("openai", ModelRequest { tools: vec![Arc::new(tool)].into(), ..with(&settings) }).await;
    assert_eq!((&body["temperature"], &body["user"], &body["tool_choice"]), (&json!(2), &json!("u"), &json!("required")));
    assert!(body.get("stream_options").is_none() && body.get("x").is_none());
    assert_eq!((&body["tools"][0]["function"]["strict"], &body["tools"][0]["function"]["name"]), (&json!(true), &json!("f")));
}

#[tokio::test]
async fn a_reply_comes_streamed_whole_or_whole_although_streamed_was_asked() {
    let whole = json!({
        "model": "m-1",
        "choices": [{ "index": 0, "message": { "role": "assistant", "content": "hi", "reasoning_content": "hm" }, "finish_reason": "stop" }],
        "usage": { "prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5 },
    });
    let usage = json!({ "choices": [], "usage": { "prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5 } });
    let thought = json!({ "model": "m-1", "choices": [{ "delta": { "reasoning_content": "hm" } }] });
    let server = Server::answering([
        Answer::chunks(&[thought, text_chunk("h"), text_chunk("i"), finish_chunk(), usage]),
        Answer::json(200, &whole),
        Answer::json(200, &whole),
    ])
    .await;
    let model = at("openai", &server);
    let (events, streamed) = collect(model.stream(hello())).await;
    assert_eq!(events.len(), 3);
    let streamed = streamed.unwrap();
    let (events, reply) = collect(model.clone().whole().stream(hello())).await;
    assert_eq!(reply.unwrap(), streamed);
    assert_eq!(events, [ModelEvent::ReasoningDelta("hm".to_owned()), ModelEvent::TextDelta("hi".to_owned())]);
    assert_eq!(collect(model.stream(hello())).await.1.unwrap(), streamed);
    assert!(server.seen()[1].json().get("stream").is_none());
    assert_eq!(streamed.finish, FinishReason::Stop);
}

// rule: sdk-tools 33.1/6
// case: rust-reports D-47
#[tokio::test]
async fn statuses_become_classified_errors() {
    let with = |status: u16, headers: Vec<(&'static str, String)>, body: &str| Answer::Whole { status, headers, body: body.to_owned() };
    let long = "x".repeat(2000);
    let server = Server::answering([
        Answer::json(401, &json!({ "error": { "message": "Incorrect API key", "code": "invalid_api_key" } })),
        with(429, vec![("retry-after", "3".to_owned()), ("x-request-id", "req-9".to_owned())], "{\"error\":\"slow down\"}"),
        Answer::json(400, &json!({ "error": { "message": "maximum context length is 10", "code": "context_length_exceeded" } })),
        with(502, vec![], "<html>Bad Gateway</html>"),
        with(404, vec![], "model not found"),
        Answer::json(400, &json!([{ "error": { "message": "listed" } }])),
        Answer::json(422, &json!({ "detail": [{ "loc": ["body", "tools"], "msg": "bad" }] })),
        with(500, vec![], &long),
        with(504, vec![], ""),
        with(200, vec![], ""),
        Answer::json(200, &json!({ "error": { "message": "in the body" } })),
    ])
    .await;
    let model = at("openai", &server);
    let next = async || collect(model.stream(hello())).await.1.unwrap_err();
    let error = next().await;
    assert_eq!((error.category, error.status), (ErrorCategory::AuthFailure, Some(401)));
    assert_eq!(error.message, "Incorrect API key; check the key in OPENAI_API_KEY");
    let error = next().await;
    assert_eq!((error.category, error.retry_after_ms, error.request_id.as_deref()), (ErrorCategory::RateLimit, Some(3000), Some("req-9")));
    assert_eq!(error.code(), "TOOLWRIGHT_PROVIDER_RATE_LIMITED");
    assert_eq!(next().await.category, ErrorCategory::ContextLengthExceeded);
    assert_eq!(next().await.message, "answered with HTTP status 502");
    assert_eq!(next().await.message, "model not found");
    assert_eq!(next().await.message, "listed");
    assert!(next().await.message.contains("\"msg\":\"bad\""));
    assert_eq!(next().await.message.chars().count(), 500);
    assert_eq!(next().await.category, ErrorCategory::Timeout);
    assert_eq!(next().await.message, "the stream ended before the reply was complete");
    assert_eq!(next().await.message, "in the body");
}

#[tokio::test]
async fn the_key_is_in_no_error_and_no_debug_output() {
    let echo = json!({ "error": { "message": format!("Incorrect API key provided: {KEY}.") } });
    let server =
        Server::answering([Answer::json(401, &echo), Answer::Stream(vec![format!("data: {}\n\n", json!({ "error": KEY })).into_bytes()])])
            .await;
    let model = at("openai", &server);
    assert!(!format!("{model:?}").contains(KEY));
    for _ in 0..2 {
        let error = collect(model.stream(hello())).await.1.unwrap_err();
        assert!(!format!("{error:?} {error}").contains(KEY), "{error}");
        assert!(error.message.contains("[REDACTED]"));
    }
    // A key with a line break in it can't be sent, and is not shown either.
    let error = collect(model.key("bad\nkey-value").stream(hello())).await.1.unwrap_err();
    assert!(error.message.contains("authorization") && !error.message.contains("key-value"), "{error}");
}

// case: rust-reports F-77
#[tokio::test]
async fn cancelling_in_mid_stream_closes_the_connection() {
    let server = Server::answering([Answer::Held(pieces(&[text_chunk("one")]))]).await;
    let asked = hello();
    let cancel = asked.cancelled.clone();
    let mut stream = at("openai", &server).stream(asked);
    assert_eq!(stream.next().await.unwrap().unwrap(), ModelEvent::TextDelta("one".to_owned()));
    cancel.cancel();
    assert!(stream.next().await.unwrap().unwrap_err().message.contains("cancelled"));
    assert!(stream.next().await.is_none());
    server.closed().await;
    drop(stream);
    // A request that is cancelled already is not sent.
    let asked = hello();
    asked.cancelled.cancel();
    assert!(collect(at("openai", &server).stream(asked)).await.1.is_err());
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn dropping_the_stream_closes_the_connection() {
    let server = Server::answering([Answer::Held(pieces(&[text_chunk("one")]))]).await;
    let mut stream = at("openai", &server).stream(hello());
    assert!(stream.next().await.unwrap().is_ok());
    drop(stream);
    server.closed().await;
}

fn short(of: impl Fn(&mut Deadlines)) -> Deadlines {
    let mut deadlines = Deadlines::default();
    of(&mut deadlines);
    deadlines
}

#[tokio::test]
async fn a_server_that_stands_still_is_left() {
    let wait = Duration::from_millis(40);
    let server = Server::answering([
        Answer::Held(pieces(&[text_chunk("one")])),
        Answer::Silence,
        Answer::Held(vec![]),
        Answer::Endless(b": still here\n\n".to_vec()),
        Answer::Held(pieces(&[text_chunk("one"), finish_chunk()])),
    ])
    .await;
    let model = at("openai", &server);
    let (events, end) = collect(model.clone().deadlines(short(|d| d.idle = wait)).stream(hello())).await;
    let error = end.unwrap_err();
    assert_eq!(events, [ModelEvent::TextDelta("one".to_owned())]);
    assert_eq!((error.category, error.message.as_str()), (ErrorCategory::Timeout, "the stream stood still for 40 ms"));
    assert_eq!((error.code(), error.request_id.as_deref()), ("TOOLWRIGHT_OPERATION_TIMEOUT", Some("req-7")));
    for _ in 0..2 {
        let error = collect(model.clone().deadlines(short(|d| d.first_byte = wait)).stream(hello())).await.1.unwrap_err();
        assert_eq!(error.category, ErrorCategory::Timeout, "{error}");
    }
    let error = collect(model.clone().deadlines(short(|d| d.total = wait)).stream(hello())).await.1.unwrap_err();
    assert_eq!(error.message, "the reply took more than 40 ms");
    // What is complete is complete, even if the server forgets to say so.
    assert!(collect(model.deadlines(short(|d| d.idle = wait)).stream(hello())).await.1.is_ok());
}

// case: rust-reports A-16
#[tokio::test]
async fn a_connection_that_breaks_is_an_error_after_what_came() {
    let server = Server::answering([
        Answer::Broken(pieces(&[text_chunk("one")])),
        Answer::Broken(pieces(&[text_chunk("one"), finish_chunk()])),
        Answer::Stream(pieces(&[text_chunk("one")])),
        Answer::Stream(vec![b"data: {\"choices\":[{\"delta\":{\"content\":\"\xff\"}}]}\n\n".to_vec()]),
    ])
    .await;
    let model = at("openai", &server);
    let (events, end) = collect(model.stream(hello())).await;
    assert_eq!(events.len(), 1);
    assert!(end.unwrap_err().message.contains("broke off"));
    assert!(collect(model.stream(hello())).await.1.is_ok());
    let (events, end) = collect(model.stream(hello())).await;
    assert_eq!((events.len(), end.unwrap_err().message.as_str()), (1, "the stream ended before the reply was complete"));
    assert!(collect(model.stream(hello())).await.1.unwrap_err().message.contains("not UTF-8"));
}

#[tokio::test]
async fn an_endless_reply_is_bounded() {
    let server = Server::answering([Answer::Endless(pieces(&[text_chunk("and ")]).concat()), Answer::Endless(b": hm\n\n".to_vec())]).await;
    let model = at("openai", &server).max_reply(10_000);
    for _ in 0..2 {
        let error = collect(model.stream(hello())).await.1.unwrap_err();
        assert!(error.message.contains("more than 10000 bytes"), "{error}");
    }
    server.closed().await;
}

#[tokio::test]
async fn nobody_there_is_said() {
    let port = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let model = ChatModel::new(Switches::of("ollama").unwrap().clone(), "m").base_url(format!("http://127.0.0.1:{port}/v1?key={KEY}"));
    let error = collect(model.stream(hello())).await.1.unwrap_err();
    assert!(error.message.starts_with("no connection to 127.0.0.1") && error.message.ends_with("is the server running?"), "{error}");
    assert!(!error.message.contains(KEY));
    let odd = ChatModel::new(Switches::compatible("mine", "ftp://h"), "m");
    assert!(collect(odd.stream(hello())).await.1.unwrap_err().message.contains("its scheme is `ftp`"));
}

#[tokio::test]
async fn a_redirect_to_another_origin_gets_no_key() {
    let other = Server::answering([Answer::chunks(&[text_chunk("stolen"), finish_chunk()])]).await;
    let to = |url: String| Answer::Whole { status: 307, headers: vec![("location", url)], body: String::new() };
    let server = Server::answering([
        to(format!("{}/chat/completions", other.url)),
        to("/v2".to_owned()),
        Answer::chunks(&[text_chunk("ok"), finish_chunk()]),
    ])
    .await;
    let model = at("openai", &server);
    let error = collect(model.stream(hello())).await.1.unwrap_err();
    assert_eq!((error.status, error.message.as_str()), (Some(307), "answered with HTTP status 307"));
    assert!(other.seen().is_empty());
    assert!(collect(model.stream(hello())).await.1.is_ok(), "within one origin it is followed");
    assert_eq!(server.seen()[2].line, "POST /v2 HTTP/1.1");
}

#[tokio::test]
async fn the_resolver_takes_address_and_key_from_its_environment() {
    let server = Server::answering([Answer::chunks(&[text_chunk("ok"), finish_chunk()])]).await;
    let url = server.url.clone();
    let resolver = ChatResolver::with_env(move |name| match name {
        "OPENAI_BASE_URL" => Some(format!("{url}/")),
        "OPENAI_API_KEY" => Some(KEY.to_owned()),
        _ => None,
    });
    let model = resolver.resolve(&resolver.from_env().unwrap()).unwrap().unwrap();
    assert!(collect(model.stream(hello())).await.1.is_ok());
    assert_eq!(server.seen()[0].json()["model"], "gpt-4o-mini");
    assert_eq!(server.seen()[0].line, "POST /v1/chat/completions HTTP/1.1");
    assert_eq!(server.seen()[0].header("authorization"), Some(format!("Bearer {KEY}").as_str()));
}

#[tokio::test]
async fn the_estimate_counts_text_tools_and_images() {
    let model = ChatModel::new(Switches::of("openai").unwrap().clone(), "m");
    let small = model.estimate_tokens(&hello()).unwrap();
    let with_image = message(Author::Human, vec![Item::text("x".repeat(400)), Item::Image { image: "data:".to_owned(), mime_type: None }]);
    assert_eq!(model.estimate_tokens(&request([with_image].into_iter().collect())).unwrap(), 1100);
    assert!(small < 10);
    let failed = Item::ToolResult(ResultItem {
        call_id: CallId::new("c"),
        provider_id: None,
        tool_name: "f".to_owned(),
        parts: vec![Part::text("x".repeat(40))],
        failed: Some(ToolFailureKind::Execution),
        approval: None,
        marks: toolwright_core::taint::Marks::default(),
    });
    assert_eq!(model.estimate_tokens(&request([message(Author::Tool, vec![failed])].into_iter().collect())), Some(10));
}
