//! The scripted model.

use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use serde_json::json;
use toolwright_core::{ArgsState, FinishReason, Item, Message};
use toolwright_models::scripted::{Gate, Reply, ScriptedModel};
use toolwright_runtime::{ErrorCategory, Model as _, ModelError, ModelEvent, ModelRequest};

use crate::{collect, request};

fn hello() -> ModelRequest {
    request([Message::human("hi there")].into_iter().collect())
}

#[tokio::test]
async fn replies_come_in_order_and_requests_are_kept() {
    let model = ScriptedModel::new()
        .reply(Reply::text("one two").usage(3, 2))
        .reply(
            Reply::default()
                .and_reasoning("hm")
                .and_text("so")
                .and_call("f", json!({ "a": 1 }))
                .id("x")
                .and_raw_call("g", "{\"b")
                .truncated(),
        )
        .reply(Reply::empty());
    let (events, reply) = collect(model.stream(hello())).await;
    assert_eq!(events, [ModelEvent::TextDelta("one ".to_owned()), ModelEvent::TextDelta("two".to_owned())]);
    let reply = reply.unwrap();
    assert_eq!((reply.finish, reply.usage.map(|usage| usage.total_tokens())), (FinishReason::Stop, Some(5)));

    let reply = collect(model.stream(hello())).await.1.unwrap();
    assert_eq!(reply.finish, FinishReason::ToolCalls);
    let Item::ToolCall(call) = &reply.items[3] else { panic!("{reply:?}") };
    assert_eq!((call.arguments.as_str(), call.state), ("{\"b", ArgsState::Truncated));
    assert_eq!(collect(model.stream(hello())).await.1.unwrap().items, []);
    assert_eq!((model.calls(), model.remaining()), (3, 0));
    assert_eq!(model.request(2).unwrap().messages.last().unwrap().text_of(), "hi there");
    assert!(model.request(0).is_none() && model.request(4).is_none());
}

#[tokio::test]
async fn a_call_too_many_names_itself() {
    let model = ScriptedModel::texts(["only"]);
    collect(model.stream(hello())).await.1.unwrap();
    let error = collect(model.stream(hello())).await.1.unwrap_err();
    assert_eq!(error.message, "the script has 1 reply and this is call 2; the last message is \"hi there\"");
    assert_eq!(model.calls(), 2);
    let model = ScriptedModel::texts(["again"]).repeat_last();
    for _ in 0..3 {
        assert!(collect(model.stream(hello())).await.1.is_ok());
    }
}

#[tokio::test]
async fn checks_see_the_request_and_their_failures_are_told() {
    let model = ScriptedModel::new()
        .reply(Reply::text("fine").check(|request| assert_eq!(request.messages.len(), 1)))
        .reply(Reply::text("never").check(|request| assert!(request.messages.is_empty(), "there are messages")))
        .reply(Reply::with(|request| Reply::text(format!("{} messages", request.messages.len()))));
    assert!(collect(model.stream(hello())).await.1.is_ok());
    let error = collect(model.stream(hello())).await.1.unwrap_err();
    assert_eq!(error.message, "the check of call 2 failed: there are messages");
    assert_eq!(model.failures(), ["the check of call 2 failed: there are messages"]);
    assert_eq!(collect(model.stream(hello())).await.1.unwrap().items, [Item::text("1 messages")]);
}

#[tokio::test]
async fn texts_are_cut_as_asked() {
    let deltas = async |reply: Reply| collect(ScriptedModel::new().reply(reply).stream(hello())).await.0.len();
    assert_eq!(deltas(Reply::text("one two three")).await, 3);
    assert_eq!(deltas(Reply::text("one two three").in_one_piece()).await, 1);
    assert_eq!(deltas(Reply::text("éé\u{1F600}").in_pieces_of(1)).await, 3);
    assert_eq!(deltas(Reply::call("f", json!({})).in_pieces_of(1)).await, 2);
    assert_eq!(deltas(Reply::default().and_raw_call("f", "")).await, 1);
}

#[tokio::test]
async fn errors_come_instead_of_a_reply_or_after_some_of_it() {
    let error = || ModelError::new("p", "no").in_category(ErrorCategory::RateLimit);
    let model = ScriptedModel::new()
        .reply(Reply::error(error()))
        .reply(Reply::text("a b").then_error(error()))
        .reply(Reply::text("a").then_break_off());
    assert_eq!(collect(model.stream(hello())).await.1.unwrap_err(), error());
    let (events, end) = collect(model.stream(hello())).await;
    assert_eq!((events.len(), end.unwrap_err()), (2, error()));
    let left: Vec<_> = model.stream(hello()).collect().await;
    assert_eq!(left, [Ok(ModelEvent::TextDelta("a".to_owned()))]);
}

#[tokio::test]
async fn a_gate_holds_a_reply_without_sleeping() {
    let (first, second) = (Gate::new(), Gate::new());
    let model = ScriptedModel::new().reply(Reply::text("a b").at(&first).at_event(1, &second));
    let mut stream = model.stream(hello());
    let mut next = Box::pin(stream.next());
    tokio::select! {
        biased;
        event = &mut next => panic!("{event:?}"),
        () = first.reached() => {}
    }
    first.open();
    assert_eq!(next.await, Some(Ok(ModelEvent::TextDelta("a ".to_owned()))));
    let mut next = Box::pin(stream.next());
    tokio::select! {
        biased;
        event = &mut next => panic!("{event:?}"),
        () = second.reached() => {}
    }
    second.open();
    assert_eq!(next.await, Some(Ok(ModelEvent::TextDelta("b".to_owned()))));
}

#[tokio::test(start_paused = true)]
async fn delays_are_on_tokios_clock() {
    let before = tokio::time::Instant::now();
    let model = ScriptedModel::new().reply(Reply::text("a b c").after(Duration::from_mins(1)).every(Duration::from_secs(5)));
    collect(model.stream(hello())).await.1.unwrap();
    assert_eq!(before.elapsed(), Duration::from_secs(70));
}

#[tokio::test]
async fn what_never_ends_ends_when_cancelled() {
    for reply in [Reply::endless("a "), Reply::hang(), Reply::text("a ").at_event(1, &Gate::new()), Reply::text("a ").then_hang()] {
        let model = ScriptedModel::new().reply(reply);
        let asked = hello();
        let cancel = asked.cancelled.clone();
        let mut stream = model.stream(asked);
        let first = stream.next().now_or_never();
        assert!(matches!(first, None | Some(Some(Ok(_)))), "an end before the cancellation: {first:?}");
        cancel.cancel();
        assert!(stream.next().await.unwrap().unwrap_err().message.contains("cancelled"));
        assert!(stream.next().await.is_none());
    }
}
