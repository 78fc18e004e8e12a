//! The assembler on small streams of our own: each reported fault of its kind, and what else a stream may hold.
//!
//! Every stream here is read in one delta list, and again through bytes in all splits, which must give the same.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "clippy.toml allows these in test functions only, and the helpers beside them are as much a test"
)]

use proptest::prelude::*;
use serde_json::{Value, json};
use toolwright_core::{ArgsState, FinishReason, Item, Usage};
use toolwright_models::{Assembler, ReplyDecoder, assemble_bytes};
use toolwright_runtime::{ErrorCategory, ModelError, ModelEvent, ModelReply};

/// A stream of chunks whose deltas are given, ended by a finish reason and `[DONE]`.
fn stream(deltas: &[Value], finish: &str) -> String {
    let pieces = deltas.iter().map(|delta| json!({ "id": "c", "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] }));
    let last = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": finish }] });
    pieces.chain([last]).map(|chunk| format!("data: {chunk}\n\n")).chain(["data: [DONE]\n\n".to_owned()]).collect()
}

fn read(text: &str) -> Result<(ModelReply, Vec<ModelEvent>), ModelError> {
    let mut events = Vec::new();
    let whole = assemble_bytes("openai", [text], |event| events.push(event));
    for size in [1, 2, 7] {
        let mut again = Vec::new();
        let pieces = assemble_bytes("openai", text.as_bytes().chunks(size), |event| again.push(event));
        assert_eq!(pieces, whole);
        assert_eq!(again, events);
    }
    whole.map(|reply| (reply, events))
}

fn reply(deltas: &[Value], finish: &str) -> ModelReply {
    read(&stream(deltas, finish)).unwrap().0
}

/// `name(arguments)` of every call, with its provider id in front.
fn calls_of(reply: &ModelReply) -> Vec<String> {
    reply
        .items
        .iter()
        .filter_map(|item| match item {
            Item::ToolCall(call) => Some(format!("{}:{}({})", call.provider_id.as_deref().unwrap_or("-"), call.name, call.arguments)),
            _ => None,
        })
        .collect()
}

/// The calls of deltas that each hold a list of tool calls.
fn calls(lists: &[Value]) -> Vec<String> {
    let deltas: Vec<Value> = lists.iter().map(|list| json!({ "tool_calls": list })).collect();
    calls_of(&reply(&deltas, "tool_calls"))
}

// case: field-reports 1
#[test]
fn two_pieces_of_one_index_in_the_first_delta_are_one_call() {
    let got = calls(&[
        json!([{ "index": 0, "id": "c1", "function": { "name": "f", "arguments": "" } }, { "index": 0, "function": { "arguments": "{\"a\":" } }]),
        json!([{ "index": 0, "function": { "arguments": "1}" } }]),
    ]);
    assert_eq!(got, ["c1:f({\"a\":1})"]);
}

// case: field-reports 2
#[test]
fn a_new_id_on_a_used_index_opens_a_call() {
    let got = calls(&[
        json!([{ "index": 0, "id": "call_a", "function": { "name": "write_file", "arguments": "{\"path\":\"a\"}" } }]),
        json!([{ "index": 0, "id": "call_b", "function": { "name": "write_file", "arguments": "{\"path\":\"b\"}" } }]),
    ]);
    assert_eq!(got, ["call_a:write_file({\"path\":\"a\"})", "call_b:write_file({\"path\":\"b\"})"]);
    // Also when arguments come in fragments, and when the first has none at all.
    let got = calls(&[
        json!([{ "index": 0, "id": "a", "function": { "name": "f", "arguments": "" } }]),
        json!([{ "index": 0, "id": "b", "function": { "name": "f", "arguments": "" } }]),
        json!([{ "index": 0, "id": "b", "function": { "arguments": "{\"x\"" } }]),
        json!([{ "index": 0, "id": "b", "function": { "arguments": ":1}" } }]),
    ]);
    assert_eq!(got, ["a:f()", "b:f({\"x\":1})"]);
}

// case: field-reports 4
// case: field-reports 5
#[test]
fn blank_ids_and_names_are_absent() {
    let got = calls(&[
        json!([{ "index": 0, "id": "call_1", "function": { "name": "f", "arguments": "{\"a\":" } }]),
        json!([{ "index": 0, "id": " ", "function": { "arguments": "1}" } }]),
    ]);
    assert_eq!(got, ["call_1:f({\"a\":1})"]);
    let got = calls(&[
        json!([{ "id": "call_8", "function": { "name": "calculator", "arguments": "{" } }]),
        json!([{ "id": "", "function": { "name": "", "arguments": "\"expression\": " } }]),
        json!([{ "id": "", "function": { "name": "", "arguments": "\"2\"}" } }]),
    ]);
    assert_eq!(got, ["call_8:calculator({\"expression\": \"2\"})"]);
    let got = calls(&[json!([{ "id": "", "function": { "name": "f", "arguments": "{}" } }])]);
    assert_eq!(got, ["-:f({})"]);
}

// case: field-reports 7
// case: rust-reports A-13
#[test]
fn calls_without_an_index_are_told_by_id_then_by_order() {
    let got = calls(&[json!([{ "id": "c1", "type": "function", "function": { "name": "f", "arguments": "{}" } }])]);
    assert_eq!(got, ["c1:f({})"]);
    let got = calls(&[
        json!([{ "id": "a", "function": { "name": "f", "arguments": "{\"n\":" } }]),
        json!([{ "id": "b", "function": { "name": "g", "arguments": "{\"m\":" } }]),
        json!([{ "id": "a", "function": { "arguments": "1}" } }]),
        json!([{ "id": "b", "function": { "arguments": "2}" } }]),
    ]);
    assert_eq!(got, ["a:f({\"n\":1})", "b:g({\"m\":2})"]);
    // Side by side in one list, and later without ids.
    let got = calls(&[
        json!([{ "id": "a", "function": { "name": "f", "arguments": "{" } }, { "id": "b", "function": { "name": "g", "arguments": "{" } }]),
        json!([{ "function": { "arguments": "\"n\":1}" } }, { "function": { "arguments": "\"m\":2}" } }]),
    ]);
    assert_eq!(got, ["a:f({\"n\":1})", "b:g({\"m\":2})"]);
}

// case: field-reports 8
#[test]
fn a_missing_index_is_not_index_0() {
    let got = calls(&[json!([
        { "id": "a", "function": { "name": "f", "arguments": "{\"x\":1}" } },
        { "id": "b", "function": { "name": "g", "arguments": "{\"y\":2}" } },
    ])]);
    assert_eq!(got, ["a:f({\"x\":1})", "b:g({\"y\":2})"]);
    // Twice the same tool, without ids either.
    let got = calls(&[json!([
        { "function": { "name": "f", "arguments": "{\"x\":1}" } },
        { "function": { "name": "f", "arguments": "{\"x\":2}" } },
    ])]);
    assert_eq!(got, ["-:f({\"x\":1})", "-:f({\"x\":2})"]);
}

// case: field-reports 10
#[test]
fn interleaved_fragments_go_to_their_own_call() {
    let got = calls(&[
        json!([{ "index": 0, "id": "a", "function": { "name": "search_circular", "arguments": "" } }]),
        json!([{ "index": 1, "id": "b", "function": { "name": "search_circular", "arguments": "" } }]),
        json!([{ "index": 0, "function": { "arguments": "{\"q\":" } }]),
        json!([{ "index": 1, "function": { "arguments": "{\"q\":2" } }]),
        json!([{ "index": 0, "function": { "arguments": "1}" } }, { "index": 1, "function": { "arguments": "}" } }]),
    ]);
    assert_eq!(got, ["a:search_circular({\"q\":1})", "b:search_circular({\"q\":2})"]);
}

// case: field-reports 11
#[test]
fn a_name_that_comes_again_is_not_appended() {
    let piece = |id: &str, arguments: &str| json!([{ "index": 0, "id": id, "function": { "name": "write_file", "arguments": arguments } }]);
    let got = calls(&[piece("a", "{\"p\":1}"), piece("b", "{\"p\":2}"), piece("c", "{\"p\":3}")]);
    assert_eq!(got, ["a:write_file({\"p\":1})", "b:write_file({\"p\":2})", "c:write_file({\"p\":3})"]);
    let got = calls(&[piece("a", "{\"p\""), piece("a", ":"), piece("a", "1}"), piece("a", "")]);
    assert_eq!(got, ["a:write_file({\"p\":1})"]);
    // Without ids, and with a new id on every piece.
    let got = calls(&[piece("", "{\"p\""), piece("", ":1}"), piece("", "")]);
    assert_eq!(got, ["-:write_file({\"p\":1})"]);
    let got = calls(&[piece("a", "{\"p\""), piece("b", ":"), piece("c", "1}")]);
    assert_eq!(got, ["a:write_file({\"p\":1})"]);
    // A name that grows, or comes in parts.
    let named = |name: &str, arguments: &str| json!([{ "index": 0, "function": { "name": name, "arguments": arguments } }]);
    assert_eq!(calls(&[named("get", ""), named("get_weather", ""), named("get_weather", "{}")]), ["-:get_weather({})"]);
    assert_eq!(
        calls(&[named("get", ""), named("_weather", ""), json!([{ "index": 0, "function": { "arguments": "{}" } }])]),
        ["-:get_weather({})"]
    );
}

// case: field-reports 13
// case: rust-reports A-1
// case: rust-reports A-7
// case: rust-reports A-8
#[test]
fn arguments_may_be_an_object_null_or_absent() {
    let deltas = [json!({ "tool_calls": [{ "index": 0, "function": { "name": "w", "arguments": { "city": "Paris", "n": 1.50 } } }] })];
    let got = reply(&deltas, "stop");
    assert_eq!(calls_of(&got), ["-:w({\"city\":\"Paris\",\"n\":1.5})"]);
    assert_eq!(got.finish, FinishReason::ToolCalls, "calls go on whatever the finish reason says");
    for arguments in [json!(null), json!("")] {
        assert_eq!(calls(&[json!([{ "index": 0, "id": "a", "function": { "name": "f", "arguments": arguments } }])]), ["a:f()"]);
    }
    assert_eq!(calls(&[json!([{ "index": 0, "id": "a", "function": { "name": "f" } }])]), ["a:f()"]);
    assert_eq!(calls(&[json!([{ "index": 0, "id": "a", "name": "f", "arguments": "{}" }])]), ["a:f({})"]);
}

// case: rust-reports A-2
// case: rust-reports A-5
#[test]
fn json_that_is_no_object_is_kept_as_it_was_written() {
    for odd in ["[1,2]", "5", "\"text\"", "null", "{\"a\":", "nonsense"] {
        let got = calls(&[json!([{ "index": 0, "id": "a", "function": { "name": "f", "arguments": odd } }])]);
        assert_eq!(got, [format!("a:f({odd})")]);
    }
    assert_eq!(calls(&[json!([{ "index": 0, "id": "a", "function": { "name": "f", "arguments": [1, 2] } }])]), ["a:f([1,2])"]);
}

// case: field-reports 14
#[test]
fn a_missing_brace_is_left_missing() {
    let deltas =
        [json!({ "tool_calls": [{ "index": 0, "id": "a", "function": { "name": "f", "arguments": "{\"location\": \"Paris\"" } }] })];
    let got = reply(&deltas, "tool_calls");
    assert_eq!(calls_of(&got), ["a:f({\"location\": \"Paris\")"]);
}

// case: field-reports 16
#[test]
fn each_parallel_call_may_come_in_its_own_event() {
    let call = |city: &str| json!([{ "function": { "name": "get_weather", "arguments": format!("{{\"city\":\"{city}\"}}") } }]);
    assert_eq!(calls(&[call("Denver"), call("Moab")]), ["-:get_weather({\"city\":\"Denver\"})", "-:get_weather({\"city\":\"Moab\"})"]);
    // The same at one index.
    let call = |n: u8| json!([{ "index": 0, "function": { "name": "roll", "arguments": { "n": n } } }]);
    assert_eq!(calls(&[call(1), call(1)]), ["-:roll({\"n\":1})", "-:roll({\"n\":1})"]);
    // The same id again is the same call, updated.
    let call = |city: &str| json!([{ "id": "x", "function": { "name": "w", "arguments": format!("{{\"city\":\"{city}\"}}") } }]);
    assert_eq!(calls(&[call("Den"), call("Denver")]), ["x:w({\"city\":\"Denver\"})"]);
}

// case: field-reports 19
#[test]
fn one_id_for_two_calls_gives_two_calls() {
    let call = |path: &str| json!({ "id": "x", "function": { "name": "read", "arguments": format!("{{\"p\":\"{path}\"}}") } });
    assert_eq!(calls(&[json!([call("A"), call("B")])]), ["x:read({\"p\":\"A\"})", "x:read({\"p\":\"B\"})"]);
    let got = calls(&[
        json!([{ "index": 0, "id": "x", "function": { "name": "read", "arguments": "{\"p\":" } }]),
        json!([{ "index": 1, "id": "x", "function": { "name": "read", "arguments": "{\"p\":" } }]),
        json!([{ "index": 0, "function": { "arguments": "1}" } }]),
        json!([{ "index": 1, "function": { "arguments": "2}" } }]),
    ]);
    assert_eq!(got, ["x:read({\"p\":1})", "x:read({\"p\":2})"]);
}

// case: field-reports 17
// case: rust-reports B-29
#[test]
fn ids_are_the_providers_and_ours_stay_empty() {
    let got =
        reply(&[json!({ "tool_calls": [{ "index": 0, "id": "call_0", "function": { "name": "f", "arguments": "{}" } }] })], "tool_calls");
    let Item::ToolCall(call) = &got.items[0] else { panic!("{got:?}") };
    assert_eq!((call.call_id.as_str(), call.provider_id.as_deref()), ("", Some("call_0")));
}

// case: rust-reports A-11
#[test]
fn null_tool_calls_are_none() {
    let got =
        reply(&[json!({ "role": "assistant", "content": "hi", "tool_calls": null }), json!({ "content": null, "tool_calls": [] })], "stop");
    assert_eq!(got.items, [Item::text("hi")]);
    assert_eq!(got.finish, FinishReason::Stop);
}

// case: rust-reports A-16
#[test]
fn a_stream_that_breaks_off_is_an_error() {
    let whole = stream(
        &[
            json!({ "content": "hi" }),
            json!({ "tool_calls": [{ "index": 0, "id": "a", "function": { "name": "f", "arguments": "{\"a\"" } }] }),
        ],
        "tool_calls",
    );
    let lines: Vec<&str> = whole.split_inclusive("\n\n").collect();
    let mut said = Vec::new();
    let broken = assemble_bytes("openai", [lines[..2].concat()], |event| said.push(event)).unwrap_err();
    assert_eq!(broken.message, "the stream ended before the reply was complete");
    assert_eq!(said[0], ModelEvent::TextDelta("hi".to_owned()));
    // In the middle of an event, and with nothing at all.
    let cut = whole.get(..lines[0].len() + 20).unwrap();
    assert_eq!(read(cut).unwrap_err().message, "the stream ended before the reply was complete");
    assert!(read("").is_err());
    // A finish reason without `[DONE]`, and the other way round, are complete.
    assert!(read(&lines[..3].concat()).is_ok());
    assert!(read(&format!("{}data: [DONE]", lines[0])).is_ok());
}

// case: rust-reports A-19
#[test]
fn a_limit_marks_the_unfinished_call_and_keeps_the_rest() {
    let deltas = [
        json!({ "content": "I will." }),
        json!({ "tool_calls": [{ "index": 0, "id": "a", "function": { "name": "f", "arguments": "{\"x\":1}" } }] }),
        json!({ "tool_calls": [{ "index": 1, "id": "b", "function": { "name": "g", "arguments": "{\"y\":" } }] }),
    ];
    let states = |got: &ModelReply| -> Vec<ArgsState> {
        got.items.iter().filter_map(|item| if let Item::ToolCall(call) = item { Some(call.state) } else { None }).collect()
    };
    let got = reply(&deltas, "length");
    assert_eq!(states(&got), [ArgsState::Complete, ArgsState::Truncated]);
    assert_eq!(got.finish, FinishReason::Length);
    assert_eq!(got.items[0], Item::text("I will."));
    // The head of a call, and then the limit.
    let head = json!({ "tool_calls": [{ "index": 1, "id": "b", "function": { "name": "g", "arguments": "" } }] });
    assert_eq!(states(&reply(&[deltas[1].clone(), head.clone()], "length")), [ArgsState::Complete, ArgsState::Truncated]);
    assert_eq!(states(&reply(&[head], "tool_calls")), [ArgsState::Complete]);
}

// case: rust-reports A-20
#[test]
fn malformed_arguments_do_not_stop_the_stream() {
    let got = reply(
        &[
            json!({ "tool_calls": [{ "index": 0, "id": "a", "function": { "name": "f", "arguments": "{not json}" } }] }),
            json!({ "content": "on" }),
        ],
        "tool_calls",
    );
    assert_eq!(calls_of(&got), ["a:f({not json})"]);
    assert_eq!(got.items[1], Item::text("on"));
}

#[test]
fn a_piece_at_an_index_of_its_own_finds_its_call() {
    // The first piece came without its index.
    let got = calls(&[
        json!([{ "id": "a", "function": { "name": "f", "arguments": "{" } }]),
        json!([{ "index": 0, "function": { "arguments": "\"x\":1}" } }]),
    ]);
    assert_eq!(got, ["a:f({\"x\":1})"]);
    // Every fragment counts the index up.
    let got = calls(&[
        json!([{ "index": 0, "id": "a", "function": { "name": "f", "arguments": "{\"x\"" } }]),
        json!([{ "index": 1, "function": { "arguments": ":1" } }]),
        json!([{ "index": 2, "function": { "arguments": "}" } }]),
    ]);
    assert_eq!(got, ["a:f({\"x\":1})"]);
    // An echo of the head is not a call, unless arguments begin after it.
    let head = json!([{ "index": 0, "function": { "name": "f", "arguments": "" } }]);
    let arguments = json!([{ "index": 0, "function": { "arguments": "{\"x\":1}" } }]);
    assert_eq!(calls(&[head.clone(), arguments.clone(), head.clone()]), ["-:f({\"x\":1})"]);
    assert_eq!(calls(&[head.clone(), arguments.clone(), head, arguments]), ["-:f({\"x\":1})", "-:f({\"x\":1})"]);
}

#[test]
fn the_old_function_call_field_is_a_call() {
    let deltas = [json!({ "function_call": { "name": "f", "arguments": "" } }), json!({ "function_call": { "arguments": "{\"a\":1}" } })];
    let got = reply(&deltas, "function_call");
    assert_eq!(calls_of(&got), ["-:f({\"a\":1})"]);
    assert_eq!(got.finish, FinishReason::ToolCalls);
}

#[test]
fn items_stand_in_the_order_received() {
    let deltas = [
        json!({ "role": "assistant", "content": "", "reasoning_content": "think" }),
        json!({ "content": null, "reasoning_content": " more" }),
        json!({ "content": "say" }),
        json!({ "tool_calls": [{ "index": 0, "id": "a", "function": { "name": "f", "arguments": "{" } }] }),
        json!({ "content": " on", "reasoning": "again" }),
        json!({ "tool_calls": [{ "index": 0, "function": { "arguments": "}" } }] }),
        json!({ "refusal": "I " }),
        json!({ "refusal": "won't" }),
    ];
    let (got, events) = read(&stream(&deltas, "stop")).unwrap();
    let kinds: Vec<String> = got
        .items
        .iter()
        .map(|item| match item {
            Item::Text { text } => format!("text {text}"),
            Item::Reasoning { text, provenance, .. } => format!("reasoning {text} of {}", provenance.as_deref().unwrap_or("-")),
            Item::ToolCall(call) => format!("call {}", call.arguments),
            other => format!("{other:?}"),
        })
        .collect();
    assert_eq!(
        kinds,
        [
            "reasoning think more of openai/recorded",
            "text say",
            "call {}",
            "reasoning again of openai/recorded",
            "text  on",
            "text I won't"
        ]
    );
    assert_eq!(events[0], ModelEvent::ReasoningDelta("think".to_owned()));
    assert!(events.contains(&ModelEvent::CallDelta { index: 0, name: Some("f".to_owned()), arguments: "{".to_owned() }));
    assert!(events.contains(&ModelEvent::TextDelta("won't".to_owned())));
}

#[test]
fn content_in_parts_is_read_and_unknown_parts_are_kept() {
    let got = reply(
        &[
            json!({ "content": [{ "type": "thinking", "thinking": [{ "type": "text", "text": "hm" }], "signature": "s" }] }),
            json!({ "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }, { "type": "reference", "reference_ids": [1] }] }),
        ],
        "stop",
    );
    assert!(matches!(&got.items[0], Item::Reasoning { text, signature: Some(signature), .. } if text == "hm" && signature == "s"));
    assert_eq!(got.items[1], Item::text("ab"));
    let kept = json!({ "content": [{ "type": "reference", "reference_ids": [1] }] });
    assert_eq!(got.items[2], Item::Opaque { provider: "openai".to_owned(), value: kept });
}

#[test]
fn unknown_fields_are_kept_where_they_carry_content() {
    let got = reply(
        &[
            json!({ "content": "a", "annotations": [], "obscure": "", "flag": true, "count": 3 }),
            json!({ "audio": { "id": "au_1", "data": "AAA", "transcript": "he" } }),
            json!({ "audio": { "id": "au_1", "data": "BBB", "transcript": "y" }, "annotations": [{ "url": "u" }] }),
        ],
        "stop",
    );
    let opaque: Vec<&Value> =
        got.items.iter().filter_map(|item| if let Item::Opaque { value, .. } = item { Some(value) } else { None }).collect();
    assert_eq!(
        opaque,
        [&json!({ "audio": { "id": "au_1", "data": "AAABBB", "transcript": "hey" } }), &json!({ "annotations": [{ "url": "u" }] })]
    );
}

#[test]
fn parts_of_reasoning_keep_their_signature_and_encrypted_form() {
    let got = reply(
        &[
            json!({ "reasoning": "a", "reasoning_details": [{ "type": "reasoning.text", "text": "a", "index": 0, "format": "x" }] }),
            json!({ "reasoning": "b", "reasoning_details": [{ "type": "reasoning.text", "text": "b", "index": 0, "format": "x" }] }),
            json!({ "content": "", "reasoning_details": [{ "type": "reasoning.text", "signature": "sig", "index": 0, "format": "x" }] }),
            json!({ "content": "4" }),
        ],
        "stop",
    );
    let details = json!([{ "type": "reasoning.text", "text": "ab", "index": 0, "format": "x", "signature": "sig" }]);
    assert_eq!(
        got.items[0],
        Item::Reasoning {
            text: "ab".to_owned(),
            signature: Some("sig".to_owned()),
            provenance: Some("openai/recorded".to_owned()),
            encrypted: Some(details),
        }
    );
    // Without the plain field, the text is read from the parts.
    let got = reply(&[json!({ "reasoning_details": [{ "type": "reasoning.summary", "summary": "s", "index": 0 }] })], "stop");
    assert!(matches!(&got.items[0], Item::Reasoning { text, .. } if text == "s"));
}

#[test]
fn provider_json_of_a_call_is_kept_under_the_providers_name() {
    let extra = json!({ "google": { "thought_signature": "AVSo" } });
    let got =
        reply(&[json!({ "tool_calls": [{ "id": "", "function": { "name": "f", "arguments": "{}" }, "extra_content": extra }] })], "stop");
    let Item::ToolCall(call) = &got.items[0] else { panic!("{got:?}") };
    assert_eq!(call.provider_data, Some(json!({ "openai": { "extra_content": extra } })));
    assert_eq!(call.provider_id, None);
}

#[test]
fn usage_is_the_last_reported_and_never_made_up() {
    let usage = |text: &str| read(&format!("data: {text}\n\ndata: [DONE]\n\n")).unwrap().0.usage;
    let of = |usage: Value| json!({ "choices": [], "usage": usage }).to_string();
    assert_eq!(usage(&of(json!(null))), None);
    assert_eq!(usage(&of(json!({ "total_tokens": 3 }))), None);
    let got = usage(&of(json!({
        "prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15,
        "prompt_tokens_details": { "cached_tokens": 4 }, "completion_tokens_details": { "reasoning_tokens": 2 }, "cost": 0.5
    })));
    let expected =
        Usage { input_tokens: 10, output_tokens: 5, cached_input_tokens: Some(4), reasoning_tokens: Some(2), ..Usage::default() };
    assert_eq!(got, Some(expected));
    // Reasoning counted beside the tokens written, as the total shows.
    let beside = usage(&of(
        json!({ "prompt_tokens": 12, "completion_tokens": 2, "total_tokens": 354, "completion_tokens_details": { "reasoning_tokens": 340 } }),
    ));
    assert_eq!(beside.map(|usage| usage.output_tokens), Some(342));
    // In every chunk, inside the choice, or in a vendor's field.
    let several = [1, 2, 3].map(|n| format!("data: {}\n\n", of(json!({ "prompt_tokens": 7, "completion_tokens": n })))).concat();
    assert_eq!(read(&format!("{several}data: [DONE]\n\n")).unwrap().0.usage.map(|usage| usage.output_tokens), Some(3));
    let inside = json!({ "choices": [{ "delta": {}, "usage": { "prompt_tokens": 7, "completion_tokens": 9 } }] }).to_string();
    assert_eq!(usage(&inside).map(|usage| usage.output_tokens), Some(9));
    let vendor = json!({ "choices": [], "x_groq": { "usage": { "prompt_tokens": 7, "completion_tokens": 9 } } }).to_string();
    assert_eq!(usage(&vendor).map(|usage| usage.output_tokens), Some(9));
}

#[test]
fn finish_reasons_outside_the_set_are_other() {
    assert_eq!(reply(&[json!({ "content": "a" })], "insufficient_system_resource").finish, FinishReason::Unknown);
    assert_eq!(reply(&[json!({ "content": "a" })], "content_filter").finish, FinishReason::ContentFilter);
    assert_eq!(reply(&[json!({ "content": "a" })], "model_length").finish, FinishReason::Length);
}

#[test]
fn an_error_in_the_stream_is_the_models_error() {
    let error = |text: &str| {
        read(&format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"a\"}}}}]}}\n\n{text}\n\ndata: [DONE]\n\n")).unwrap_err()
    };
    let got = error("data: {\"error\":{\"code\":429,\"message\":\"slow down\"},\"choices\":[{\"delta\":{}}]}");
    assert_eq!((got.message.as_str(), got.category, got.status), ("slow down", ErrorCategory::RateLimit, Some(429)));
    assert_eq!(error("event: error\ndata: {\"message\":\"odd\"}").message, "odd");
    assert_eq!(error("event: error\ndata: plain words").message, "plain words");
    assert_eq!(error("data: {\"object\":\"error\",\"message\":\"bad\",\"code\":400}").message, "bad");
    assert_eq!(error("data: {\"error\":\"text\"}").message, "text");
    assert_eq!(error("data: {\"choices\":[{\"delta\":{},\"error\":{\"message\":\"inner\"}}]}").message, "inner");
}

// case: rust-reports A-10
// case: field-reports 50
#[test]
fn text_survives_splits_and_lone_surrogates() {
    let emoji = json!({ "choices": [{ "delta": { "content": "\u{1F600} é 現" } }] });
    assert_eq!(read(&format!("data: {emoji}\n\ndata: [DONE]\n\n")).unwrap().0.items, [Item::text("\u{1F600} é 現")]);
    let lone = "data: {\"choices\":[{\"delta\":{\"content\":\"a\\ud99c b\"}}]}\n\ndata: [DONE]\n\n";
    assert_eq!(read(lone).unwrap().0.items, [Item::text("a\u{fffd} b")]);
}

#[test]
fn garbage_oversized_and_non_utf8_streams_are_errors() {
    assert!(read("data: {\"choices\":[{\n\n").unwrap_err().message.contains("not the JSON of a chat completion"));
    assert!(read("data: nonsense\n\n").is_err());
    assert!(assemble_bytes("openai", [b"data: \xff\xfe\n\n"], |_| {}).unwrap_err().message.contains("not UTF-8"));
    let mut decoder = ReplyDecoder::new("openai", "m", 1000);
    let mut events = Vec::new();
    let endless = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
    let error = (0..100).find_map(|_| decoder.push(endless.as_bytes(), &mut events).err()).unwrap();
    assert!(error.message.contains("more than 1000 bytes"), "{error}");
    // A comment that never ends is no way around the limit.
    let mut decoder = ReplyDecoder::new("openai", "m", 1000);
    assert!((0..100).find_map(|_| decoder.push(b": still here, wait\n\n", &mut events).err()).is_some());
}

#[test]
fn a_whole_completion_gives_the_items_of_a_stream() {
    let message = json!({
        "role": "assistant", "content": "hi", "refusal": null, "reasoning_content": "hm", "annotations": [],
        "tool_calls": [
            { "id": "x", "type": "function", "function": { "name": "f", "arguments": "{\"a\":1}" } },
            { "id": "x", "type": "function", "function": { "name": "f", "arguments": { "a": 2 } } },
        ],
    });
    let whole = json!({ "object": "chat.completion", "model": "m-1", "choices": [{ "index": 0, "message": message, "finish_reason": "tool_calls" }] });
    let got = Assembler::new("openai", "recorded").whole(&whole.to_string()).unwrap();
    assert_eq!(calls_of(&got), ["x:f({\"a\":1})", "x:f({\"a\":2})"]);
    assert_eq!(got.items[1], Item::text("hi"));
    assert_eq!(got.model.as_deref(), Some("m-1"));
    let whole = |text: &str| Assembler::new("openai", "m").whole(text).unwrap_err();
    assert!(whole("{}").message.contains("no choices"));
    assert!(whole("<html>").message.contains("not the JSON"));
    assert_eq!(whole(r#"{"error":{"message":"no"}}"#).message, "no");
    assert_eq!(whole(r#"{"object":"error","message":"bad"}"#).message, "bad");
}

/// One piece of a call as any server may send it.
fn piece() -> impl Strategy<Value = Value> {
    let index = prop_oneof![Just(json!(null)), (0..3_u8).prop_map(|n| json!(n)), Just(json!("x"))];
    let id = prop_oneof![Just(json!(null)), Just(json!("")), "[abc]".prop_map(|id| json!(id))];
    let name = prop_oneof![Just(json!(null)), Just(json!("")), "[fg]".prop_map(|name| json!(name))];
    let arguments = prop_oneof![
        Just(json!(null)),
        Just(json!({ "a": 1 })),
        Just(json!(7)),
        "(\\{|\\}|\"|a|:|1|\\\\| ){0,6}".prop_map(|text| json!(text))
    ];
    (index, id, name, arguments)
        .prop_map(|(index, id, name, arguments)| json!({ "index": index, "id": id, "function": { "name": name, "arguments": arguments } }))
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = assemble_bytes("openai", [&bytes], |_| {});
        let mut framed = b"data: ".to_vec();
        framed.extend(&bytes);
        let _ = assemble_bytes("openai", [&framed], |_| {});
    }

    #[test]
    fn no_json_panics(text in "(\\{|\\}|\\[|\\]|\"choices\"|\"delta\"|\"tool_calls\"|\"content\"|\"usage\"|\"error\"|:|,|null|1|-1.5e400|\"a\"){0,40}") {
        let _ = Assembler::new("openai", "m").whole(&text);
        let _ = assemble_bytes("openai", [format!("data: {text}\n\ndata: [DONE]\n\n")], |_| {});
    }

    #[test]
    fn any_pieces_give_the_same_calls_in_any_chunking_and_lose_no_named_one(lists in proptest::collection::vec(proptest::collection::vec(piece(), 1..3), 0..6)) {
        let named = lists.iter().flatten().any(|piece| piece["function"]["name"].as_str().is_some_and(|name| !name.is_empty()));
        let deltas: Vec<Value> = lists.into_iter().map(|list| json!({ "tool_calls": list })).collect();
        let (got, _) = read(&stream(&deltas, "tool_calls")).unwrap();
        prop_assert_eq!(named, got.items.iter().any(|item| matches!(item, Item::ToolCall(call) if !call.name.is_empty())));
    }
}
