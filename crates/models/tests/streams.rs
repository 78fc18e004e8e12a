//! Recorded streams of real servers, from the shared fixtures beside this repository: whole, one byte at a time, and in a thousand
//! random chunkings each, and against the reply without streaming that lies beside them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "clippy.toml allows these in test functions only, and the helpers beside them are as much a test"
)]

use std::path::{Path, PathBuf};

use serde_json::Value;
use toolwright_core::{CallItem, Item};
use toolwright_models::{Assembler, assemble_bytes};
use toolwright_runtime::{ModelError, ModelEvent, ModelReply};

const FOLDERS: [&str; 7] = ["openai-chat", "openai-compatible", "deepseek", "groq", "mistral", "moonshotai", "alibaba"];

/// Stems where the `.json` is the same reply as the stream: the same id, or the same question answered with the same calls.
/// For those the calls are compared by name and arguments, and by id where the recording is one and the same.
///
/// | stem | compared | not compared |
/// |---|---|---|
/// | mistral-tool-call | everything: one recording | |
/// | mistral-reasoning | everything: one recording | |
/// | deepseek-tool-call | the call's name and arguments: two recordings of one question | ids, reasoning |
/// | openai-text, xai-text, groq-*, deepseek-reasoning, alibaba-* | that both are read, and the kinds of their items | two recordings; texts differ |
const ONE_RECORDING: [&str; 2] = ["mistral-tool-call", "mistral-reasoning"];
const SAME_CALLS: [&str; 3] = ["mistral-tool-call", "mistral-reasoning", "deepseek-tool-call"];

fn shared() -> Option<PathBuf> {
    fixtures("model-streams")
}

fn fixtures(of: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures").join(of);
    if folder.is_dir() {
        return Some(folder);
    }
    println!("skipped: the shared fixtures are not beside this repository");
    None
}

struct Recorded {
    provider: String,
    stem: String,
    bytes: Vec<u8>,
    json: Option<String>,
}

/// The recorded streams, as they came over the wire: `data: {...}` and an empty line each.
fn recorded(folder: &Path) -> Vec<Recorded> {
    let mut out = Vec::new();
    for provider in FOLDERS {
        let mut names: Vec<PathBuf> = std::fs::read_dir(folder.join(provider)).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        for path in names {
            let Some(stem) = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".chunks.txt")) else {
                continue;
            };
            let text = std::fs::read_to_string(&path).unwrap();
            let mut bytes = Vec::new();
            for line in text.lines().filter(|line| !line.trim().is_empty()) {
                bytes.extend_from_slice(format!("data: {line}\n\n").as_bytes());
            }
            bytes.extend_from_slice(b"data: [DONE]\n\n");
            let json = std::fs::read_to_string(path.with_file_name(format!("{stem}.json"))).ok();
            out.push(Recorded { provider: provider.to_owned(), stem: stem.to_owned(), bytes, json });
        }
    }
    assert!(out.len() >= 12, "only {} streams found", out.len());
    out
}

fn read<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Result<(ModelReply, Vec<ModelEvent>), ModelError> {
    let mut events = Vec::new();
    let reply = assemble_bytes("recorded", chunks, |event| events.push(event))?;
    Ok((reply, events))
}

/// xorshift: seeded, so that a failure can be had again.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }
}

fn chunked<'a>(mut bytes: &'a [u8], random: &mut Random) -> Vec<&'a [u8]> {
    // Some chunkings are fine, some coarse.
    let largest = [2, 17, 300, 5000, 100_000][random.below(5)];
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let (head, tail) = bytes.split_at((1 + random.below(largest)).min(bytes.len()));
        out.push(head);
        bytes = tail;
    }
    out
}

#[test]
fn every_recorded_stream_gives_the_same_in_any_chunking() {
    let Some(folder) = shared() else { return };
    for (seed, stream) in (1_u64..).zip(recorded(&folder)) {
        let name = format!("{}/{}", stream.provider, stream.stem);
        let whole = read([stream.bytes.as_slice()]).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(!whole.0.items.is_empty(), "{name}");
        assert!(whole.0.usage.is_some_and(|usage| usage.input_tokens > 0 && usage.output_tokens > 0), "{name}: {:?}", whole.0.usage);
        assert_eq!(read(stream.bytes.chunks(1)).unwrap(), whole, "{name}, one byte at a time");
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        for round in 0..1000 {
            let chunks = chunked(&stream.bytes, &mut random);
            assert!(read(chunks).unwrap() == whole, "{name}, seed {seed}, round {round}");
        }
        // What was streamed is what stands in the items.
        let (mut text, mut reasoning) = (String::new(), String::new());
        for event in &whole.1 {
            match event {
                ModelEvent::TextDelta(piece) => text.push_str(piece),
                ModelEvent::ReasoningDelta(piece) => reasoning.push_str(piece),
                _ => {}
            }
        }
        assert_eq!(text, joined(&whole.0, |item| if let Item::Text { text } = item { Some(text) } else { None }), "{name}");
        assert_eq!(reasoning, joined(&whole.0, |item| if let Item::Reasoning { text, .. } = item { Some(text) } else { None }), "{name}");
    }
}

fn joined(reply: &ModelReply, of: impl Fn(&Item) -> Option<&String>) -> String {
    reply.items.iter().filter_map(of).map(String::as_str).collect()
}

fn calls(reply: &ModelReply) -> Vec<&CallItem> {
    reply.items.iter().filter_map(|item| if let Item::ToolCall(call) = item { Some(call) } else { None }).collect()
}

#[test]
fn streams_give_the_calls_of_the_reply_beside_them() {
    let Some(folder) = shared() else { return };
    let mut compared = Vec::new();
    for stream in recorded(&folder) {
        let Some(json) = &stream.json else { continue };
        let (streamed, _) = read([stream.bytes.as_slice()]).unwrap();
        let whole = Assembler::new("recorded", "recorded").whole(json).unwrap_or_else(|error| panic!("{}: {error}", stream.stem));
        let parsed = |reply: &ModelReply| -> Vec<(String, Value)> {
            calls(reply).iter().map(|call| (call.name.clone(), serde_json::from_str(&call.arguments).unwrap())).collect()
        };
        if SAME_CALLS.contains(&stream.stem.as_str()) {
            assert_eq!(parsed(&streamed), parsed(&whole), "{}", stream.stem);
            compared.push(stream.stem.clone());
        }
        if ONE_RECORDING.contains(&stream.stem.as_str()) {
            assert_eq!(streamed.items, whole.items, "{}", stream.stem);
            assert_eq!(streamed.usage, whole.usage, "{}", stream.stem);
        }
        let kinds = |reply: &ModelReply| reply.items.iter().map(std::mem::discriminant).collect::<Vec<_>>();
        // An empty text is no item, in either form.
        assert_eq!(kinds(&streamed), kinds(&whole), "{}", stream.stem);
        assert_eq!(streamed.finish, whole.finish, "{}", stream.stem);
    }
    println!("calls compared: {}", compared.join(", "));
    assert_eq!(compared.len(), SAME_CALLS.len());
}

#[test]
fn whole_replies_without_a_stream_are_read() {
    let Some(folder) = shared() else { return };
    for (provider, file) in [("deepseek", "deepseek-json"), ("moonshotai", "moonshotai-reasoning"), ("moonshotai", "moonshotai-tool-call")]
    {
        let json = std::fs::read_to_string(folder.join(provider).join(format!("{file}.json"))).unwrap();
        let reply = Assembler::new(provider, "m").whole(&json).unwrap();
        assert!(!reply.items.is_empty() && reply.usage.is_some(), "{file}");
        if file.ends_with("tool-call") {
            assert_eq!(calls(&reply)[0].arguments, "{\"city\":\"Paris\"}");
        }
    }
}

/// The streamed bodies of chat completions in a recorded conversation. The file is YAML, of which only block texts are read.
fn bodies(yaml: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut lines = yaml.lines().peekable();
    while let Some(line) = lines.next() {
        if !line.trim_end().trim_start().starts_with("string: |") {
            continue;
        }
        let indent = lines.peek().map_or(0, |first| first.len() - first.trim_start().len());
        let mut body = String::new();
        while let Some(line) = lines.next_if(|line| line.trim().is_empty() || line.len() - line.trim_start().len() >= indent) {
            body.push_str(line.get(indent..).unwrap_or_default());
            body.push('\n');
        }
        if body.contains("\"chat.completion.chunk\"") {
            out.push(body);
        }
    }
    out
}

/// OpenRouter's streams hold comments, parts of reasoning with signatures, citations, and an error in mid-stream.
#[test]
fn streams_of_recorded_conversations_are_read() {
    let Some(folder) = fixtures("cassettes") else { return };
    let (mut read_well, mut with_errors) = (0, Vec::new());
    for suite in ["test_openai", "test_openrouter"] {
        let mut files: Vec<PathBuf> = std::fs::read_dir(folder.join(suite)).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        for file in files {
            for body in bodies(&std::fs::read_to_string(&file).unwrap()) {
                let whole = read([body.as_bytes()]);
                assert_eq!(read(body.as_bytes().chunks(1)), whole, "{}", file.display());
                match whole {
                    Ok((reply, _)) => {
                        assert!(!reply.items.is_empty() && reply.usage.is_some(), "{}: {reply:?}", file.display());
                        for item in &reply.items {
                            let Item::Reasoning { text, encrypted: Some(Value::Array(details)), .. } = item else { continue };
                            let said: String = details.iter().filter_map(|part| part.get("text").and_then(Value::as_str)).collect();
                            assert!(said.is_empty() || said == *text, "{}", file.display());
                        }
                        read_well += 1;
                    }
                    Err(error) => with_errors.push(format!("{}: {}", file.file_stem().unwrap().display(), error.message)),
                }
            }
        }
    }
    assert!(read_well >= 5, "only {read_well} streams found");
    assert_eq!(with_errors, ["test_openrouter_stream_error: Token limit reached"]);
}
