//! Redaction: what no text, value, record or stream may let out.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::string_slice, clippy::panic, reason = "tests")]

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use toolwright_core::redact::{Redactor, SecretRefused, StreamRedactor};
use toolwright_core::{
    ArgsState, CallId, CallItem, Decision, DecisionVerdict, Item, Message, Outcome, Part, Record, RecordBody, ResultItem, Seq, Timestamp,
    ToolFailure, ToolFailureKind, ToolOutput,
};

fn of(secrets: &[(&str, &str)]) -> Redactor {
    Redactor::new(secrets.iter().map(|(name, value)| (*name, *value))).unwrap()
}

fn one(value: &str) -> Redactor {
    of(&[("KEY", value)])
}

// ------------------------------------------------------------------------------------- encoders, not those of the redactor

const STANDARD: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

fn base64(bytes: &[u8], alphabet: &[u8], padded: bool) -> String {
    let mut out = String::new();
    for group in bytes.chunks(3) {
        let value = group.iter().fold(0_u32, |value, byte| value << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for place in 0..4 {
            if place <= group.len() {
                out.push(alphabet[(value >> (18 - 6 * place) & 63) as usize] as char);
            } else if padded {
                out.push('=');
            }
        }
    }
    out
}

fn hex(bytes: &[u8], upper: bool) -> String {
    bytes.iter().map(|byte| if upper { format!("{byte:02X}") } else { format!("{byte:02x}") }).collect()
}

/// Percent-encoding: `all` bytes, or those that are not unreserved.
fn percent(text: &str, all: bool, upper: bool) -> String {
    text.bytes()
        .map(|byte| {
            let plain = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
            match (plain && !all, upper) {
                (true, _) => (byte as char).to_string(),
                (false, true) => format!("%{byte:02X}"),
                (false, false) => format!("%{byte:02x}"),
            }
        })
        .collect()
}

fn json_text(text: &str) -> String {
    let quoted = serde_json::to_string(text).unwrap();
    quoted[1..quoted.len() - 1].to_owned()
}

fn json_escaped(text: &str, upper: bool) -> String {
    text.encode_utf16().map(|unit| if upper { format!("\\u{unit:04X}") } else { format!("\\u{unit:04x}") }).collect()
}

/// Every listed way to write a secret; of base64, the characters that it alone decides.
fn spellings(secret: &str) -> Vec<String> {
    let mut out = vec![
        secret.to_owned(),
        json_text(secret),
        json_text(&json_text(secret)),
        json_text(secret).replace('/', "\\/"),
        json_escaped(secret, false),
        json_escaped(secret, true),
        percent(secret, false, true),
        percent(secret, false, false),
        percent(secret, true, true),
        percent(secret, true, false),
        percent(secret, false, true).replace("%20", "+"),
        hex(secret.as_bytes(), false),
        hex(secret.as_bytes(), true),
    ];
    for before in 0..3 {
        let mut bytes = b"xyz"[..before].to_vec();
        bytes.extend(secret.as_bytes());
        let (first, last) = ((8 * before).div_ceil(6), (8 * bytes.len()) / 6);
        for alphabet in [STANDARD, URL] {
            out.push(base64(&bytes, alphabet, false)[first..last].to_owned());
        }
    }
    out
}

/// Whether the text holds the secret in any listed encoding.
fn leaks(text: &str, secret: &str) -> Option<String> {
    spellings(secret).into_iter().find(|spelling| text.contains(spelling.as_str()))
}

// --------------------------------------------------------------------------------------------------------------- by example

#[test]
fn a_secret_goes_in_every_listed_encoding() {
    let secret = "s3/cr+t \"v\\al\n ué😀";
    let redactor = one(secret);
    for spelling in spellings(secret) {
        let clean = redactor.redact(&format!("a {spelling} b")).into_owned();
        assert_eq!(clean, "a [redacted:KEY] b", "{spelling}");
    }
    assert_eq!(redactor.redact(&format!("0x{}", hex(secret.as_bytes(), true))), "0x[redacted:KEY]");
}

// case: field-reports 118
#[test]
fn base64_goes_at_each_alignment_padded_and_wrapped() {
    let secret = "correct-horse-battery-staple";
    let redactor = one(secret);
    for before in ["", "u", "us", "user", "user:"] {
        for after in ["", "\n", "@host"] {
            for (alphabet, padded) in [(STANDARD, true), (STANDARD, false), (URL, true), (URL, false)] {
                let text = base64(format!("{before}{secret}{after}").as_bytes(), alphabet, padded);
                let clean = redactor.redact(&text).into_owned();
                assert!(clean.contains("[redacted:KEY]") && clean.len() < 16 + 24, "{text} -> {clean}");
                // As the command of that name prints it: in lines.
                let wrapped: Vec<String> = text.as_bytes().chunks(19).map(|line| String::from_utf8(line.to_vec()).unwrap()).collect();
                let clean = redactor.redact(&wrapped.join("\n")).into_owned();
                assert!(clean.contains("[redacted:KEY]") && clean.len() < 16 + 24, "{wrapped:?} -> {clean}");
            }
        }
    }
    assert_eq!(redactor.redact(&percent(&base64(secret.as_bytes(), STANDARD, false), false, true)).find("Y29y"), None);
}

// case: field-reports 119
#[test]
fn of_a_json_secret_the_texts_go_and_of_many_lines_the_long_ones() {
    let redactor = of(&[("ACCOUNT", r#"{"id":123,"password":"foobar","nested":["open sesame"]}"#)]);
    assert_eq!(redactor.redact("{\n  \"password\" : \"foobar\"\n}"), "{\n  \"password\" : \"[redacted:ACCOUNT]\"\n}");
    assert_eq!(redactor.redact("it is { and } and 123, not open sesame"), "it is { and } and 123, not [redacted:ACCOUNT]");
    assert!(redactor.redact(&hex(b"foobar", false)).contains("redacted"));

    let pem = "-----BEGIN KEY-----\r\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\r\nshort\r\n-----END KEY-----\r\n";
    let redactor = of(&[("PEM", pem)]);
    for text in [pem.to_owned(), pem.replace("\r\n", "\n"), json_text(pem), json_text(&pem.replace("\r\n", "\n"))] {
        let clean = redactor.redact(&text).into_owned();
        assert!(clean.starts_with("[redacted:PEM]") && !clean.contains("MIIE") && !clean.contains("short"), "{clean}");
    }
    assert_eq!(redactor.redact("> MIIEvQIBADANBgkqhkiG9w0BAQEFAASC"), "> [redacted:PEM]");
    assert_eq!(redactor.redact("a short line, -----BEGIN KEY-----"), "a short line, -----BEGIN KEY-----");
}

#[test]
fn what_is_too_short_or_badly_named_is_refused_without_its_value() {
    let refused = |name: &str, value: &str| Redactor::new([(name, value)]).unwrap_err();
    let error = refused("PIN", "12345");
    assert_eq!(error, SecretRefused::TooShort { name: "PIN".to_owned() });
    assert!(error.to_string().contains("the secret PIN has fewer than 6 characters") && !error.to_string().contains("12345"));
    // White space around a value is not part of it.
    assert!(matches!(refused("PIN", " 12345\n"), SecretRefused::TooShort { .. }));
    assert_eq!(one("123456\n").redact("pin 123456."), "pin [redacted:KEY].");
    assert!(matches!(refused("a]b", "123456"), SecretRefused::BadName { .. }));
    assert!(matches!(refused("", "123456"), SecretRefused::BadName { .. }));
    assert!(!format!("{:?}", one("top-secret")).contains("top-secret"));
}

#[test]
fn secrets_that_overlap_go_together_and_no_mark_holds_one() {
    let redactor = of(&[("A", "abcdefgh"), ("B", "efghijkl"), ("C", "abcdefghijklmnop")]);
    assert_eq!(redactor.redact("x abcdefghijkl y"), "x [redacted:A] y");
    assert_eq!(redactor.redact("abcdefghijklmnop"), "[redacted:A]");
    assert_eq!(redactor.redact("abcdefghabcdefgh"), "[redacted:A][redacted:A]");
    // A name that is its value, a value that is our word.
    let redactor = of(&[("hunter22", "hunter22"), ("W", "redacted")]);
    assert_eq!(redactor.redact("hunter22 was redacted"), "[hidden] was [hidden]");
}

// case: field-reports 115
#[test]
fn a_stream_holds_back_what_may_begin_a_secret_and_masks_its_longer_part() {
    let redactor = Arc::new(one("sk-0123456789"));
    let mut stream = StreamRedactor::new(Arc::clone(&redactor));
    assert_eq!(stream.push("my key: sk-01"), "my key: ");
    assert_eq!(stream.push("234567"), "");
    assert_eq!(stream.finish(), "[redacted:KEY]");
    assert_eq!(stream.push("my key: sk-0"), "my key: ");
    // Less than half says little.
    assert_eq!(stream.finish(), "sk-0");
    // Whole within a piece, its last character in the next.
    assert_eq!(stream.push("key sk-0123456789 and sk-012345678"), "key [redacted:KEY] and ");
    assert_eq!(stream.push("9."), "[redacted:KEY].");
    // What was held back and is none comes out.
    assert_eq!(stream.push("sk-01x"), "sk-01x");
    assert_eq!(stream.finish(), "");
}

// case: field-reports 116
#[test]
fn what_is_split_at_a_limit_is_redacted_before() {
    let redactor = Arc::new(one("sk-0123456789"));
    let mut stream = StreamRedactor::new(redactor);
    let text = format!("{} sk-0123456789 end", "x".repeat(498));
    let mut out = stream.push(&text[..500]);
    out.push_str(&stream.push(&text[500..]));
    out.push_str(&stream.finish());
    assert_eq!(out, format!("{} [redacted:KEY] end", "x".repeat(498)));
}

#[test]
fn both_sides_of_a_cut_lose_the_longer_part() {
    let redactor = one("abcdefghij");
    assert_eq!(redactor.redact("it is abcdefg"), "it is [redacted:KEY]");
    assert_eq!(redactor.redact("it is abcd"), "it is abcd");
    assert_eq!(redactor.redact("defghij it is"), "[redacted:KEY] it is");
    assert_eq!(redactor.redact("cdefghi"), "[redacted:KEY]");
    let cut = toolwright_core::bounded(&format!("{} abcdefghij", "x".repeat(75)), 98 - 15 + 15);
    assert_eq!(redactor.redact(&cut), cut.replace("abcdefghij", "[redacted:KEY]"));
    let cut = toolwright_core::bounded(&format!("{} abcdefghij and more", "x".repeat(75)), 98);
    assert!(!redactor.redact(&cut).contains("abcdef"), "{cut}");
}

#[test]
fn values_lose_secrets_in_texts_keys_numbers_and_as_a_whole() {
    let redactor = of(&[("A", "alpha-secret"), ("N", "73310042"), ("J", r#"["a","b","c"]"#)]);
    let mut value = json!({ "k": ["x alpha-secret"], "alpha-secret": 73_310_042, "list": ["a", "b", "c"], "fine": 7 });
    assert!(redactor.redact_value(&mut value));
    assert_eq!(value, json!({ "k": ["x [redacted:A]"], "fine": 7, "[redacted:A]": "[redacted:N]", "list": "[redacted:J]" }));
    assert!(!redactor.redact_value(&mut value));
    assert!(redactor.find_in_value(&json!({ "a": [{ "b": 73_310_042 }] })).is_some());
    assert!(redactor.find_in_value(&json!({ "a": [{ "b": 7331 }] })).is_none());
}

fn record(body: RecordBody) -> Record {
    Record { seq: Seq(7), at: Timestamp(1_700_000_000_000), run: None, body }
}

fn call(arguments: &str) -> CallItem {
    CallItem {
        call_id: CallId::new("call_1"),
        provider_id: None,
        name: "f".to_owned(),
        arguments: arguments.to_owned(),
        state: ArgsState::Complete,
        ask: None,
        provider_data: None,
    }
}

#[test]
fn a_record_is_redacted_as_a_whole_and_stays_a_record() {
    // A secret that happens to be a word and a figure of ours changes nothing in them.
    let redactor = of(&[("A", "alpha-secret"), ("W", "tool-call"), ("T", "1700000000000")]);
    let message = Message {
        author: toolwright_core::Author::SideA,
        items: vec![
            Item::text("it is alpha-"),
            Item::Reasoning { text: "alpha-secret?".to_owned(), signature: None, provenance: None, encrypted: Some(json!("alpha-secret")) },
            Item::text("secret, "),
            Item::ToolCall(call(r#"{"q":"alpha-\u0073ecret","n":1}"#)),
            Item::ToolCall(call(r#"{"q":"fine"}"#)),
            Item::Opaque { provider: "p".to_owned(), value: json!({ "type": "x", "id": "alpha-secret" }) },
            Item::Unknown(json!({ "type": "new", "id": "alpha-secret" })),
        ],
        metadata: json!({ "kind": "alpha-secret" }).as_object().unwrap().clone(),
    };
    let given = record(RecordBody::MessageAdded { message: Arc::new(message) });
    let clean = redactor.record(&given).unwrap().unwrap();
    let text = serde_json::to_string(&clean).unwrap();
    assert_eq!(leaks(&text, "alpha-secret"), None, "{text}");
    let RecordBody::MessageAdded { message } = &clean.body else { panic!("{clean:?}") };
    assert_eq!(message.text_of(), "it is [redacted:A], ");
    let calls: Vec<(&str, ArgsState)> = message.calls().map(|call| (call.arguments.as_str(), call.state)).collect();
    assert_eq!(calls, [(r#"{"q":"[redacted:A]","n":1}"#, ArgsState::Redacted), (r#"{"q":"fine"}"#, ArgsState::Complete)]);
    assert_eq!(message.items.len(), 7);
    assert!(redactor.record(&clean).unwrap().is_none());

    let fine = record(RecordBody::MessageAdded { message: Arc::new(Message::human("nothing to see")) });
    assert!(redactor.record(&fine).unwrap().is_none());
    assert!(Redactor::default().record(&given).unwrap().is_none());
}

#[test]
fn results_failures_and_unknown_records_lose_secrets() {
    let redactor = one("alpha-secret");
    let output = ToolOutput::json(json!({ "id": "alpha-secret" })).with(Part::text("alpha-secret")).shown_as(json!(["alpha-secret"]));
    let failure = ToolFailure::new(ToolFailureKind::Execution, "f", "no: alpha-secret").named("alpha-secret");
    let done = |outcome| RecordBody::CallDone {
        call: CallId::new("c"),
        tool: "f".into(),
        outcome,
        duration_ms: Some(1),
        replaced_by: None,
        fatal: None,
        notes: None,
    };
    let edited = Decision::approve_with(r#"{"q":"alpha-secret"}"#).by("alpha-secret");
    let bodies = [
        done(Outcome::done(output)),
        done(Outcome::failed(failure)),
        RecordBody::Unknown(json!({ "kind": "new.kind", "id": "alpha-secret" })),
        RecordBody::CallDecided {
            approval: toolwright_core::ApprovalId::new("a"),
            call: CallId::new("c"),
            sha256: "x".into(),
            decision: edited,
        },
        RecordBody::MessageAdded {
            message: Arc::new(Message {
                author: toolwright_core::Author::Tool,
                items: vec![Item::ToolResult(ResultItem {
                    call_id: CallId::new("c"),
                    provider_id: None,
                    tool_name: "f".to_owned(),
                    parts: vec![Part::Json { value: json!({ "type": "alpha-secret", "alpha-secret": 1 }) }],
                    failed: None,
                    approval: None,
                    marks: toolwright_core::taint::Marks::default(),
                })],
                metadata: serde_json::Map::new(),
            }),
        },
    ];
    for body in bodies {
        let clean = redactor.record(&record(body)).unwrap().unwrap();
        let text = serde_json::to_string(&clean).unwrap();
        assert_eq!(leaks(&text, "alpha-secret"), None, "{text}");
        assert!(!matches!(&clean.body, RecordBody::Unknown(value) if value["kind"] != "new.kind"), "{text}");
        if let RecordBody::CallDecided { decision, .. } = &clean.body {
            assert_eq!(decision.verdict, DecisionVerdict::Reject);
            assert!(decision.note.as_ref().unwrap().contains("held a secret"));
        }
    }
}

// -------------------------------------------------------------------------------------------------------------- by property

fn secret() -> impl Strategy<Value = String> {
    prop_oneof![
        "[!-~]{6,40}",
        "[A-Za-z0-9_-]{6,64}",
        "[ -~]{0,10}[!-~]{6}[ -~]{0,20}[!-~]",
        "[!-~]{5}(\\\\|\"|/|\n|%|\\+| |é|😀|ß){1,4}[!-~]{3}",
        "[!-~]{4,12}\n[!-~]{18,30}\n[!-~]{4,12}",
    ]
    .prop_map(|text| text.trim().to_owned())
    .prop_filter("long enough", |text| text.chars().count() >= 6)
}

fn noise() -> impl Strategy<Value = String> {
    prop_oneof!["[ -~]{0,20}", "[a-z ]{0,30}", "\\PC{0,8}", "(\\\\|%|\"|[0-9a-f]){0,12}"]
}

/// Text with secrets in it, in some encoding each; and which those were.
fn text_with(secrets: &[String]) -> impl Strategy<Value = String> + use<> {
    let spelled: Vec<String> = secrets.iter().flat_map(|secret| spellings(secret)).collect();
    proptest::collection::vec((noise(), proptest::sample::select(spelled)), 1..4)
        .prop_flat_map(|parts| (Just(parts), noise()))
        .prop_map(|(parts, last)| parts.into_iter().flat_map(|(noise, spelled)| [noise, spelled]).collect::<String>() + &last)
}

fn scene() -> impl Strategy<Value = (Vec<String>, String)> {
    proptest::collection::vec(secret(), 1..9).prop_flat_map(|secrets| {
        let text = text_with(&secrets);
        (Just(secrets), text)
    })
}

fn redactor_of(secrets: &[String]) -> Redactor {
    Redactor::new(secrets.iter().enumerate().map(|(at, secret)| (format!("S{at}"), secret))).unwrap()
}

/// Cuts a text at characters, after lengths that repeat.
fn pieces(text: &str, lengths: &[usize]) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    let (mut out, mut at) = (Vec::new(), 0);
    for length in lengths.iter().cycle() {
        if at >= characters.len() {
            break;
        }
        let end = (at + length).min(characters.len());
        out.push(characters[at..end].iter().collect());
        at = end;
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn no_secret_leaves_a_text((secrets, text) in scene()) {
        let redactor = redactor_of(&secrets);
        let clean = redactor.redact(&text).into_owned();
        for secret in &secrets {
            prop_assert_eq!(leaks(&clean, secret), None, "{:?} in {:?} from {:?}", secret, clean, text);
        }
        let again = redactor.redact(&clean).into_owned();
        prop_assert_eq!(again, clean);
    }

    #[test]
    fn no_secret_leaves_a_stream_however_it_is_cut((secrets, text) in scene(), lengths in proptest::collection::vec(1_usize..12, 1..6)) {
        let redactor = Arc::new(redactor_of(&secrets));
        let mut stream = StreamRedactor::new(Arc::clone(&redactor));
        let mut out = String::new();
        for piece in pieces(&text, &lengths) {
            out.push_str(&stream.push(&piece));
        }
        out.push_str(&stream.finish());
        for secret in &secrets {
            prop_assert_eq!(leaks(&out, secret), None, "{:?} in {:?} from {:?}", secret, out, text);
        }
    }

    #[test]
    fn a_stream_without_secrets_comes_out_as_it_went_in(secrets in proptest::collection::vec("[A-Z]{30}", 1..3), text in "[a-z0-9 %\\\\]{0,60}", lengths in proptest::collection::vec(1_usize..7, 1..4)) {
        let mut stream = StreamRedactor::new(Arc::new(redactor_of(&secrets)));
        let mut out: String = pieces(&text, &lengths).iter().map(|piece| stream.push(piece)).collect();
        out.push_str(&stream.finish());
        prop_assert_eq!(out, text);
    }

    #[test]
    fn no_cut_or_flush_lets_the_longer_part_out(secret in "[A-Za-z0-9]{8,40}", which in 0_usize..19, at in 0_usize..200, before in "[ .]{0,6}") {
        let spelled = spellings(&secret)[which].clone();
        let text: Vec<char> = format!("{before}{spelled}").chars().collect();
        let at = at % (text.len() + 1);
        let (head, tail): (String, String) = (text[..at].iter().collect(), text[at..].iter().collect());
        let redactor = Arc::new(one(&secret));
        let mut stream = StreamRedactor::new(Arc::clone(&redactor));
        let flushed = stream.push(&head) + &stream.finish();
        let went_on = stream.push(&tail) + &stream.finish();
        // More than half of the spelling; of an escaped one two escapes more, since a cut may lie within one.
        let characters: Vec<char> = spelled.chars().collect();
        let longer = characters.len() / 2 + if spelled.contains(['%', '\\']) { 12 } else { 1 };
        for out in [redactor.redact(&head).into_owned(), redactor.redact(&tail).into_owned(), flushed, went_on] {
            for part in characters.windows(longer.min(characters.len())) {
                let part: String = part.iter().collect();
                prop_assert!(!out.contains(&part), "{} of {} in {}", part, secret, out);
            }
        }
    }

    #[test]
    fn no_secret_leaves_a_record((secrets, text) in scene(), other in "[a-z]{0,10}") {
        let redactor = redactor_of(&secrets);
        let value: Value = json!({ "text": text, other.clone(): [text.clone(), 4, { "type": text }], "fine": other });
        let message = Message {
            author: toolwright_core::Author::SideA,
            items: vec![Item::text(text.clone()), Item::ToolCall(call(&value.to_string())), Item::ToolCall(call(&text))],
            metadata: value.as_object().unwrap().clone(),
        };
        let given = record(RecordBody::MessageAdded { message: Arc::new(message) });
        let clean = redactor.record(&given).unwrap().unwrap_or(given);
        let written = serde_json::to_string(&clean).unwrap();
        for secret in &secrets {
            prop_assert_eq!(leaks(&written, secret), None, "{:?} in {}", secret, written);
        }
        let RecordBody::MessageAdded { message } = &clean.body else { panic!("{clean:?}") };
        for call in message.calls().take(1) {
            prop_assert!(serde_json::from_str::<Value>(&call.arguments).is_ok(), "{}", call.arguments);
        }
    }
}
