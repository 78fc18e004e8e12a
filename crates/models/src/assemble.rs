//! Chat completions, in chunks or whole, to the items of a reply. Pure: text in, events and one reply out.
//!
//! - Items stand in the order received. Text, refusals, reasoning and calls that come in pieces are joined where they began.
//! - A refusal becomes a text item of its own: it is what the model says to the person. That it was withheld stands in the finish reason,
//!   where the provider says so.
//! - What a delta carries beside the known fields (audio, images, citations) is kept whole as an opaque item.
//! - A reply that breaks off is an error. One that ran into a limit is not: its unfinished call is marked, its whole siblings stand.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Map, Value};
use toolwright_core::{ArgsState, CallId, CallItem, FinishReason, Item, Usage, bounded};
use toolwright_runtime::{ModelError, ModelEvent, ModelReply};

use crate::chunk::{Choice, Chunk, Content, Delta, Raw, Text, UsageIn, without_lone_surrogates};
use crate::failure;
use crate::identity::{Arguments, Calls, OpenCall, Piece};

/// Puts one reply together from the chunks of its stream.
#[derive(Debug)]
pub struct Assembler {
    provider: Arc<str>,
    model: Arc<str>,
    slots: Vec<Slot>,
    calls: Calls,
    /// Of several choices, the one that came first.
    choice: Option<u64>,
    finish: Option<FinishReason>,
    usage: Option<Usage>,
    replied: Option<String>,
    done: bool,
}

/// An item while it comes in.
#[derive(Debug)]
enum Slot {
    Text(String),
    Refusal(String),
    Reasoning(Thought),
    /// The call at this place of the list.
    Call(usize),
    Opaque(Map<String, Value>),
}

impl Assembler {
    /// For a reply of `model`, as the request names it, at `provider`. Both stand in the provenance of its reasoning.
    pub fn new(provider: impl Into<Arc<str>>, model: impl Into<Arc<str>>) -> Self {
        Self {
            provider: provider.into(),
            model: model.into(),
            slots: Vec::new(),
            calls: Calls::default(),
            choice: None,
            finish: None,
            usage: None,
            replied: None,
            done: false,
        }
    }

    /// Takes one event of the stream, `[DONE]` among them, and appends to `out` what is new. After an error the reply is lost.
    pub fn event(&mut self, name: &str, data: &str, out: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        let data = data.trim();
        if self.done || data.is_empty() {
            return Ok(());
        }
        if data == "[DONE]" {
            self.done = true;
            return Ok(());
        }
        let known = matches!(name, "" | "message" | "error");
        if name == "error" && !data.contains("\"choices\"") {
            return Err(self.failure(data));
        }
        match serde_json::from_str::<Chunk<'_>>(data) {
            Ok(chunk) => self.chunk(chunk, data, out),
            Err(first) => match without_lone_surrogates(data) {
                Cow::Owned(mended) => match serde_json::from_str::<Chunk<'_>>(&mended) {
                    Ok(chunk) => self.chunk(chunk, &mended, out),
                    Err(error) => Err(self.malformed(&error)),
                },
                Cow::Borrowed(_) if known => Err(self.malformed(&first)),
                // An event of another type may carry what it likes (invariant 10).
                Cow::Borrowed(_) => Ok(()),
            },
        }
    }

    /// Whether the stream said that it is over; what comes after is not looked at.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// The reply, at the end of the stream. A stream that ended without a finish reason and without `[DONE]` has broken off.
    pub fn finish(self) -> Result<ModelReply, ModelError> {
        if self.finish.is_none() && !self.done {
            return Err(ModelError::new(&*self.provider, "the stream ended before the reply was complete"));
        }
        Ok(self.reply())
    }

    /// Takes a whole completion, an answer without streaming, and gives the same items a stream would have given.
    pub fn whole(mut self, json: &str) -> Result<ModelReply, ModelError> {
        let mended = without_lone_surrogates(json);
        let chunk: Chunk<'_> = serde_json::from_str(&mended).map_err(|error| self.malformed(&error))?;
        if chunk.choices.0.is_empty() && chunk.error.0.is_none() {
            return Err(if mended.contains("error") || chunk.object.filled().as_deref() == Some("error") {
                self.failure(&mended)
            } else {
                ModelError::new(&*self.provider, "the answer is not a chat completion: it has no choices")
            });
        }
        self.chunk(chunk, &mended, &mut Vec::new())?;
        Ok(self.reply())
    }

    fn malformed(&self, error: &serde_json::Error) -> ModelError {
        ModelError::new(&*self.provider, &format!("the reply is not the JSON of a chat completion: {error}"))
    }

    /// An error that stands where a chunk should.
    fn failure(&self, json: &str) -> ModelError {
        match serde_json::from_str::<Value>(json) {
            Ok(Value::Object(mut object)) => {
                let inner = object.remove("error").filter(|error| !error.is_null());
                failure::from_json(&self.provider, &inner.unwrap_or(Value::Object(object)), None)
            }
            Ok(error) => failure::from_json(&self.provider, &error, None),
            Err(_) => failure::from_json(&self.provider, &Value::String(json.to_owned()), None),
        }
    }

    fn raised(&self, error: &RawValue) -> ModelError {
        let value = serde_json::from_str(error.get()).unwrap_or_else(|_| Value::String(error.get().to_owned()));
        failure::from_json(&self.provider, &value, None)
    }

    fn chunk(&mut self, chunk: Chunk<'_>, json: &str, out: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        if let Some(error) = chunk.error.0.or(chunk.groq.error.0) {
            return Err(self.raised(error));
        }
        if chunk.choices.0.is_empty() && chunk.object.filled().as_deref() == Some("error") {
            return Err(self.failure(json));
        }
        if self.replied.is_none() {
            self.replied = chunk.model.nonblank().map(Cow::into_owned);
        }
        let mut usage = self.read_usage(&chunk.usage).or_else(|| self.read_usage(&chunk.groq.usage));
        for choice in chunk.choices.0 {
            let index = choice.index.0.unwrap_or(0);
            if *self.choice.get_or_insert(index) != index {
                continue;
            }
            if let Some(error) = choice.error.0 {
                return Err(self.raised(error));
            }
            usage = usage.or_else(|| self.read_usage(&choice.usage));
            self.take_choice(choice, out);
        }
        // Where every chunk has usage, it counts from the reply's beginning, so the last is the one.
        self.usage = usage.or(self.usage);
        Ok(())
    }

    fn take_choice(&mut self, choice: Choice<'_>, out: &mut Vec<ModelEvent>) {
        self.take_delta(choice.delta, out);
        if let Some(word) = choice.finish.nonblank() {
            self.finish = Some(finish_reason(&word));
        }
    }

    fn take_delta(&mut self, delta: Delta<'_>, out: &mut Vec<ModelEvent>) {
        // Servers that have both put the same text in both.
        if let Some(text) = delta.reasoning_content.filled().or(delta.reasoning.filled()) {
            self.add_reasoning(&text, out);
            self.add_details(delta.reasoning_details.0, DetailText::Skip, out);
        } else {
            self.add_details(delta.reasoning_details.0, DetailText::Read, out);
        }
        match delta.content {
            Content::Absent => {}
            Content::Text(text) => self.add_text(text, out),
            Content::Parts(parts) => {
                for part in parts {
                    self.add_part(part, out);
                }
            }
        }
        if let Some(text) = delta.refusal.filled() {
            match self.slots.last_mut() {
                Some(Slot::Refusal(joined)) => joined.push_str(&text),
                _ => self.slots.push(Slot::Refusal(text.clone().into_owned())),
            }
            out.push(ModelEvent::TextDelta(text.into_owned()));
        }
        if !delta.calls.0.is_empty() {
            self.calls.next_delta();
            let among = delta.calls.0.len();
            for (position, call) in delta.calls.0.into_iter().enumerate() {
                let arguments = if call.function.arguments.0.is_some() { call.function.arguments } else { call.arguments };
                let mut rest = call.rest;
                rest.extend(call.function.rest);
                let piece = Piece {
                    index: call.index.0,
                    id: call.id.nonblank(),
                    name: call.function.name.nonblank().or_else(|| call.name.nonblank()),
                    arguments: read_arguments(arguments),
                    position,
                    among,
                };
                self.add_call(&piece, rest, out);
            }
        } else if !delta.function_call.is_empty() {
            // The form before `tool_calls`: one call, without id and index.
            self.calls.next_delta();
            let piece = Piece {
                index: None,
                id: None,
                name: delta.function_call.name.nonblank(),
                arguments: read_arguments(delta.function_call.arguments),
                position: 0,
                among: 1,
            };
            self.add_call(&piece, delta.function_call.rest, out);
        }
        for (key, value) in delta.rest {
            self.add_opaque(&key, value);
        }
    }

    fn add_text(&mut self, text: Cow<'_, str>, out: &mut Vec<ModelEvent>) {
        if text.is_empty() {
            return;
        }
        match self.slots.last_mut() {
            Some(Slot::Text(joined)) => joined.push_str(&text),
            _ => self.slots.push(Slot::Text(text.clone().into_owned())),
        }
        out.push(ModelEvent::TextDelta(text.into_owned()));
    }

    fn add_reasoning(&mut self, text: &str, out: &mut Vec<ModelEvent>) {
        if text.is_empty() {
            return;
        }
        match self.slots.last_mut() {
            Some(Slot::Reasoning(thought)) => thought.text.push_str(text),
            _ => self.slots.push(Slot::Reasoning(Thought { text: text.to_owned(), ..Thought::default() })),
        }
        out.push(ModelEvent::ReasoningDelta(text.to_owned()));
    }

    /// Parts of reasoning with their signatures and encrypted forms. Where no plain field carried their text, `text` says to read it here.
    fn add_details(&mut self, details: Vec<&RawValue>, text: DetailText, out: &mut Vec<ModelEvent>) {
        for raw in details {
            let Ok(detail @ Value::Object(_)) = serde_json::from_str::<Value>(raw.get()) else { continue };
            let said = ["text", "summary"].iter().find_map(|key| detail.get(key).and_then(Value::as_str)).unwrap_or_default().to_owned();
            if text == DetailText::Read {
                self.add_reasoning(&said, out);
            }
            // A signature may come when the text has begun already: it belongs to the reasoning before.
            let thought =
                self.slots.iter_mut().rev().find_map(|slot| if let Slot::Reasoning(thought) = slot { Some(thought) } else { None });
            if let Some(thought) = thought {
                thought.add_detail(detail);
            } else {
                let mut thought = Thought::default();
                thought.add_detail(detail);
                self.slots.push(Slot::Reasoning(thought));
            }
        }
    }

    fn add_part(&mut self, raw: &RawValue, out: &mut Vec<ModelEvent>) {
        let Ok(part) = serde_json::from_str::<Value>(raw.get()) else { return };
        match part.get("type").and_then(Value::as_str) {
            Some("text" | "output_text") if part.get("text").is_some_and(Value::is_string) => {
                let text = part.get("text").and_then(Value::as_str).unwrap_or_default();
                self.add_text(Cow::Owned(text.to_owned()), out);
            }
            Some("thinking") => {
                let text = match part.get("thinking") {
                    Some(Value::Array(parts)) => parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str)).collect(),
                    Some(Value::String(text)) => text.clone(),
                    _ => String::new(),
                };
                self.add_reasoning(&text, out);
                if let (Some(signature), Some(Slot::Reasoning(thought))) =
                    (part.get("signature").and_then(Value::as_str), self.slots.last_mut())
                {
                    thought.signature = Some(signature.to_owned());
                }
            }
            _ => match part {
                Value::String(text) => self.add_text(Cow::Owned(text), out),
                Value::Null => {}
                part => self.slots.push(Slot::Opaque(Map::from_iter([("content".to_owned(), Value::Array(vec![part]))]))),
            },
        }
    }

    fn add_call(&mut self, piece: &Piece<'_>, rest: Vec<(Cow<'_, str>, &RawValue)>, out: &mut Vec<ModelEvent>) {
        let empty = piece.id.is_none() && piece.name.is_none() && matches!(piece.arguments, Arguments::Absent);
        if empty && rest.is_empty() {
            return;
        }
        let placed = self.calls.take(piece);
        if placed.opened {
            self.slots.push(Slot::Call(placed.at));
        }
        let Some(call) = self.calls.all.get_mut(placed.at) else { return };
        for (key, raw) in rest {
            if let Ok(value) = serde_json::from_str(raw.get()) {
                merge_key(&mut call.rest, &key, value);
            }
        }
        let name = placed.named.then(|| call.name.clone());
        let arguments = match &piece.arguments {
            Arguments::Absent => "",
            Arguments::Text(text) => text,
            Arguments::Json(json) => json,
        };
        if name.is_some() || !arguments.is_empty() {
            let index = u32::try_from(placed.at).unwrap_or(u32::MAX);
            out.push(ModelEvent::CallDelta { index, name, arguments: arguments.to_owned() });
        }
    }

    /// A field of a delta that is not known here. It is kept where it carries content: text, or something in a list or an object.
    fn add_opaque(&mut self, key: &str, raw: &RawValue) {
        if matches!(raw.get(), "\"\"" | "[]" | "{}" | "true" | "false") || raw.get().starts_with(|c: char| c == '-' || c.is_ascii_digit()) {
            return;
        }
        let Ok(value) = serde_json::from_str(raw.get()) else { return };
        for slot in &mut self.slots {
            if let Slot::Opaque(map) = slot
                && map.contains_key(key)
                && key != "content"
            {
                merge_key(map, key, value);
                return;
            }
        }
        self.slots.push(Slot::Opaque(Map::from_iter([(key.to_owned(), value)])));
    }

    fn read_usage(&self, usage: &UsageIn<'_>) -> Option<Usage> {
        let (input, output) = (usage.input.0, usage.output.0);
        if input.is_none() && output.is_none() {
            return None;
        }
        let input_tokens = input.unwrap_or(0);
        let reasoning = usage.output_details.reasoning.0;
        let mut output_tokens = output.unwrap_or(0);
        // xAI counts reasoning beside the tokens written; its total shows it.
        if let (Some(reasoning), Some(total)) = (reasoning, usage.total.0)
            && total == input_tokens.saturating_add(output_tokens).saturating_add(reasoning)
        {
            output_tokens = output_tokens.saturating_add(reasoning);
        }
        Some(Usage {
            input_tokens,
            output_tokens,
            cached_input_tokens: usage.input_details.cached.0.or(usage.cached.0),
            cache_write_tokens: usage.input_details.cache_write.0,
            reasoning_tokens: reasoning,
            // Only OpenRouter's `cost` is known to be in US dollars.
            cost_usd: usage.cost.0.filter(|_| &*self.provider == "openrouter"),
            estimated: false,
        })
    }

    fn reply(self) -> ModelReply {
        let Self { provider, model, slots, calls, finish, usage, replied, .. } = self;
        let said = finish.unwrap_or(FinishReason::Unknown);
        let provenance = format!("{provider}/{model}");
        let opaque = |map| Item::Opaque { provider: provider.to_string(), value: Value::Object(map) };
        let mut items = Vec::with_capacity(slots.len());
        let mut called = false;
        for slot in slots {
            match slot {
                Slot::Text(text) | Slot::Refusal(text) => items.push(Item::Text { text }),
                Slot::Reasoning(thought) => items.push(Item::Reasoning {
                    text: thought.text,
                    signature: thought.signature,
                    provenance: Some(provenance.clone()),
                    encrypted: (!thought.details.is_empty()).then_some(Value::Array(thought.details)),
                }),
                Slot::Opaque(map) => items.push(opaque(map)),
                Slot::Call(at) => {
                    let Some(call) = calls.all.get(at) else { continue };
                    let rest = call.rest.clone();
                    if call.name.is_empty() && !call.has_arguments() && call.id.is_none() {
                        if !rest.is_empty() {
                            items.push(opaque(rest));
                        }
                        continue;
                    }
                    called = true;
                    items.push(Item::ToolCall(CallItem {
                        call_id: CallId::new(""),
                        provider_id: call.id.clone(),
                        name: call.name.clone(),
                        arguments: call.arguments.clone(),
                        state: args_state(call, &said, calls.is_latest(call)),
                        ask: None,
                        // Under the provider's name, because it means something only there.
                        provider_data: (!rest.is_empty())
                            .then(|| Value::Object(Map::from_iter([(provider.to_string(), Value::Object(rest))]))),
                    }));
                }
            }
        }
        // Servers that say `stop` after calls, or a word of their own, still asked for tools.
        let finish = if called && matches!(said, FinishReason::Stop | FinishReason::Unknown) { FinishReason::ToolCalls } else { said };
        ModelReply { items, finish, usage, model: replied.map(|model| bounded(&model, 200)) }
    }
}

/// Whether the reply ended before a call did.
fn args_state(call: &OpenCall, said: &FinishReason, latest: bool) -> ArgsState {
    let truncated = match said {
        // What is malformed now was written like that.
        FinishReason::Stop | FinishReason::ToolCalls => false,
        _ if call.has_arguments() => !call.is_whole(),
        // A call without arguments may have been about to get some, if nothing came after it.
        FinishReason::Length | FinishReason::ContentFilter => latest,
        _ => false,
    };
    if truncated { ArgsState::Truncated } else { ArgsState::Complete }
}

/// Reasoning while it comes in.
#[derive(Debug, Default)]
struct Thought {
    text: String,
    signature: Option<String>,
    details: Vec<Value>,
}

impl Thought {
    /// Joins a part with the one before where both are pieces of one.
    fn add_detail(&mut self, detail: Value) {
        if let Some(signature) = detail.get("signature").and_then(Value::as_str).filter(|signature| !signature.is_empty()) {
            self.signature = Some(signature.to_owned());
        }
        let key = |of: &Value| (of.get("type").cloned(), of.get("index").cloned());
        match self.details.last_mut() {
            Some(last) if key(last) == key(&detail) && last.get("index").is_some() => merge(last, detail),
            _ => self.details.push(detail),
        }
    }
}

/// Whether the text of a part of reasoning is read, or has come in a field of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DetailText {
    Read,
    Skip,
}

fn finish_reason(word: &str) -> FinishReason {
    match word {
        "function_call" => FinishReason::ToolCalls,
        // Mistral's word for a full window, and what servers of other families' models pass on.
        "model_length" | "max_tokens" => FinishReason::Length,
        "eos" | "end_turn" => FinishReason::Stop,
        word => FinishReason::from_provider(word),
    }
}

fn read_arguments(raw: Raw<'_>) -> Arguments<'_> {
    let Some(raw) = raw.0 else { return Arguments::Absent };
    if !raw.get().starts_with('"') {
        return Arguments::Json(raw.get());
    }
    match serde_json::from_str::<Text<'_>>(raw.get()) {
        Ok(text) => text.filled().map_or(Arguments::Absent, Arguments::Text),
        Err(_) => Arguments::Json(raw.get()),
    }
}

/// Puts a later piece of provider JSON onto an earlier one: text is appended, lists grow, objects merge, anything else is replaced.
fn merge(into: &mut Value, piece: Value) {
    match (into, piece) {
        (_, Value::Null) => {}
        (Value::String(text), Value::String(more)) => text.push_str(&more),
        (Value::Array(items), Value::Array(more)) => items.extend(more),
        (Value::Object(map), Value::Object(more)) => {
            for (key, value) in more {
                merge_key(map, &key, value);
            }
        }
        (into, piece) => *into = piece,
    }
}

fn merge_key(map: &mut Map<String, Value>, key: &str, piece: Value) {
    // These name things, so a second one is the same again.
    const NAMES: [&str; 6] = ["id", "type", "format", "index", "name", "signature"];
    match map.get_mut(key) {
        Some(into) if NAMES.contains(&key) => {
            if !piece.is_null() && piece != "" {
                *into = piece;
            }
        }
        Some(into) => merge(into, piece),
        None => {
            map.insert(key.to_owned(), piece);
        }
    }
}
