//! A request to the JSON of a chat completion's.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use toolwright_core::{CallItem, Item, Message, Part, ResultItem, Role, ToolName};
use toolwright_runtime::{ModelRequest, ToolChoice};

use crate::chunk::without_lone_surrogates;
use crate::ids::WireIds;
use crate::switches::{ArgumentsShape, InstructionsRole, Knob, Notes, ReasoningEcho, ResultImages, Switches};

/// Whether the reply is streamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Stream,
    Whole,
}

/// The body of the request.
pub(crate) fn body(switches: &Switches, model: &str, request: &ModelRequest, mode: Mode) -> Value {
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(model));
    body.insert("messages".to_owned(), Value::Array(Encoder::new(switches, model, request).messages()));
    if !request.tools.is_empty() {
        body.insert("tools".to_owned(), Value::Array(request.tools.iter().map(|tool| definition(switches, tool)).collect()));
    }
    settings(switches, model, request, &mut body);
    if mode == Mode::Stream {
        body.insert("stream".to_owned(), json!(true));
        if switches.stream_usage {
            body.insert("stream_options".to_owned(), json!({ "include_usage": true }));
        }
    }
    let mut body = Value::Object(body);
    if let Some(options) = request.settings.provider_options.get(&*switches.provider) {
        put_onto(&mut body, options);
    }
    body
}

fn definition(switches: &Switches, tool: &toolwright_core::ToolSpec) -> Value {
    let mut definition = tool.definition();
    if let Some(options) = tool.provider_options.get(&*switches.provider) {
        put_onto(&mut definition, options);
    }
    definition
}

/// Merges options last: objects into objects, anything else in the place of what stood there; `null` takes a field out.
fn put_onto(target: &mut Value, options: &Value) {
    match (target, options) {
        (Value::Object(target), Value::Object(options)) => {
            for (key, option) in options {
                if option.is_null() {
                    target.shift_remove(key);
                } else {
                    put_onto(target.entry(key.clone()).or_insert(Value::Null), option);
                }
            }
        }
        (target, option) => *target = option.clone(),
    }
}

fn settings(switches: &Switches, model: &str, request: &ModelRequest, body: &mut Map<String, Value>) {
    let settings = &request.settings;
    let takes = |knob| !(switches.refuses)(model, knob);
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            body.insert(key.to_owned(), value);
        }
    };
    set(switches.max_tokens, settings.max_tokens.map(Value::from));
    set("temperature", settings.temperature.filter(|_| takes(Knob::Temperature)).map(Value::from));
    set("top_p", settings.top_p.filter(|_| takes(Knob::TopP)).map(Value::from));
    set("frequency_penalty", settings.frequency_penalty.filter(|_| takes(Knob::Penalties)).map(Value::from));
    set("presence_penalty", settings.presence_penalty.filter(|_| takes(Knob::Penalties)).map(Value::from));
    set("stop", settings.stop.clone().filter(|_| takes(Knob::Stop)).map(Value::from));
    if let Some(key) = switches.seed {
        set(key, settings.seed.map(Value::from));
    }
    // A choice among no tools is refused.
    if !request.tools.is_empty() {
        let choice = match &settings.tool_choice {
            None | Some(ToolChoice::Auto) => None,
            Some(ToolChoice::Required) => Some(json!(switches.required)),
            Some(ToolChoice::None) => Some(json!("none")),
            Some(ToolChoice::Tool(name)) => Some(json!({ "type": "function", "function": { "name": ToolName::mapped(name) } })),
        };
        set("tool_choice", choice);
    }
}

struct Encoder<'a> {
    switches: &'a Switches,
    request: &'a ModelRequest,
    ids: WireIds,
    provenance: String,
    out: Vec<Value>,
}

impl<'a> Encoder<'a> {
    fn new(switches: &'a Switches, model: &str, request: &'a ModelRequest) -> Self {
        let ids = request.messages.iter().flat_map(|message| message.calls()).map(|call| call.call_id.as_str());
        Self {
            switches,
            request,
            ids: WireIds::new(switches.ids, ids),
            provenance: format!("{}/{model}", switches.provider),
            out: Vec::new(),
        }
    }

    fn instructions_role(&self) -> &'static str {
        match self.switches.instructions {
            InstructionsRole::System => "system",
            InstructionsRole::Developer => "developer",
        }
    }

    fn messages(mut self) -> Vec<Value> {
        if !self.request.instructions.is_empty() {
            self.out.push(json!({ "role": self.instructions_role(), "content": &*self.request.instructions }));
        }
        let role = |message: &Message| message.author.role_for(&self.request.acting);
        let human = |(at, message): (usize, &Arc<Message>)| (role(message) == Role::User).then_some(at);
        let last_human = self.request.messages.iter().enumerate().filter_map(human).next_back();
        // Calls of the turn before that wait for their results. Results of the other side's calls are that side's own business.
        let mut open: Vec<&CallItem> = Vec::new();
        for (at, message) in self.request.messages.iter().enumerate() {
            match role(message) {
                Role::System => self.note(message),
                Role::User => self.user(message),
                Role::Assistant => {
                    self.assistant(message, last_human.is_none_or(|human| at > human));
                    open = message.calls().collect();
                }
                Role::Tool => self.results(message, &std::mem::take(&mut open)),
            }
        }
        self.out
    }

    fn note(&mut self, message: &Message) {
        let text = message.text_of();
        if text.is_empty() {
            return;
        }
        let role = match self.switches.notes {
            _ if self.out.is_empty() => self.instructions_role(),
            Notes::AsInstructions => self.instructions_role(),
            Notes::AsUser => "user",
        };
        self.out.push(json!({ "role": role, "content": text }));
    }

    fn user(&mut self, message: &Message) {
        let mut parts = Vec::new();
        for item in &message.items {
            match item {
                Item::Text { text } => parts.push(text_part(text)),
                Item::Image { image, .. } if self.switches.images => parts.push(image_part(image)),
                Item::Image { mime_type, .. } => parts.push(text_part(&format!("[image {}]", mime_type.as_deref().unwrap_or("left out")))),
                Item::File { data, mime_type, filename } => parts.push(self.file_part(data, mime_type, filename.as_deref())),
                // The other side's reasoning and calls are its own; what is opaque means something only to whoever wrote it.
                _ => {}
            }
        }
        if let Some(content) = content(parts) {
            self.out.push(json!({ "role": "user", "content": content }));
        }
    }

    fn file_part(&self, data: &str, mime_type: &str, filename: Option<&str>) -> Value {
        if self.switches.files && data.starts_with("data:") {
            return json!({ "type": "file", "file": { "filename": filename.unwrap_or("file"), "file_data": data } });
        }
        match filename {
            Some(name) => text_part(&format!("[file {name} ({mime_type})]")),
            None => text_part(&format!("[file ({mime_type})]")),
        }
    }

    fn assistant(&mut self, message: &Message, in_this_turn: bool) {
        let mut out = Map::from_iter([("role".to_owned(), json!("assistant"))]);
        let text = message.text_of();
        let calls: Vec<Value> = message.calls().map(|call| self.call(call)).collect();
        if text.is_empty() && calls.is_empty() {
            // Nothing but reasoning, say: an empty message is refused.
            return;
        }
        out.insert("content".to_owned(), if text.is_empty() { Value::Null } else { json!(text) });
        match self.switches.reasoning {
            ReasoningEcho::ToolTurns(field) if in_this_turn && !calls.is_empty() => {
                let thought: Vec<&str> = self.own_reasoning(message).map(|(text, _)| text).filter(|text| !text.is_empty()).collect();
                if !thought.is_empty() {
                    out.insert(field.to_owned(), json!(thought.join("\n\n")));
                }
            }
            ReasoningEcho::Details => {
                let details: Vec<Value> =
                    self.own_reasoning(message).filter_map(|(_, details)| details?.as_array()).flatten().cloned().collect();
                if !details.is_empty() {
                    out.insert("reasoning_details".to_owned(), Value::Array(details));
                }
            }
            ReasoningEcho::ToolTurns(_) | ReasoningEcho::Never => {}
        }
        if !calls.is_empty() {
            out.insert("tool_calls".to_owned(), Value::Array(calls));
        }
        self.out.push(Value::Object(out));
    }

    /// The reasoning of a message that came from this provider and model: its text and its encrypted form.
    fn own_reasoning<'m>(&'m self, message: &'m Message) -> impl Iterator<Item = (&'m str, Option<&'m Value>)> {
        message.items.iter().filter_map(|item| match item {
            Item::Reasoning { text, encrypted, provenance: Some(from), .. } if *from == self.provenance => {
                Some((text.as_str(), encrypted.as_ref()))
            }
            _ => None,
        })
    }

    fn call(&mut self, call: &CallItem) -> Value {
        let mut out = json!({
            "id": self.ids.of(call.call_id.as_str()),
            "type": "function",
            "function": { "name": ToolName::mapped(&call.name), "arguments": self.arguments(&call.arguments) },
        });
        if self.switches.call_data
            && let Some(data) = call.provider_data.as_ref().and_then(|data| data.get(&*self.switches.provider))
        {
            put_onto(&mut out, data);
        }
        out
    }

    fn arguments(&self, written: &str) -> String {
        if written.trim().is_empty() {
            return "{}".to_owned();
        }
        // Half a surrogate pair would make every later request fail.
        let text = without_lone_surrogates(written);
        let is_object = || text.trim_start().starts_with('{') && serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok();
        match self.switches.arguments {
            ArgumentsShape::Object if !is_object() => json!({ "malformed": text }).to_string(),
            _ => text.into_owned(),
        }
    }

    /// One tool message for each call, in call order, and nothing between them.
    fn results(&mut self, message: &Message, open: &[&CallItem]) {
        let mut after = Vec::new();
        for call in open {
            let Some(result) = message.results().find(|result| result.call_id == call.call_id) else { continue };
            let id = self.ids.of(call.call_id.as_str());
            let mut out = json!({ "role": "tool", "tool_call_id": id, "content": self.result(result, &mut after) });
            if self.switches.result_name
                && let Value::Object(out) = &mut out
            {
                out.insert("name".to_owned(), json!(ToolName::mapped(&call.name)));
            }
            self.out.push(out);
        }
        if let Some(content) = content(after) {
            self.out.push(json!({ "role": "user", "content": content }));
        }
    }

    fn result(&self, result: &ResultItem, after: &mut Vec<Value>) -> Value {
        let images = || {
            result.parts.iter().filter_map(|part| match part {
                Part::Image { image, .. } => Some(image.as_str()),
                _ => None,
            })
        };
        if images().next().is_none() {
            return json!(result.text());
        }
        match self.switches.result_images {
            ResultImages::Placeholder => json!(result.text()),
            ResultImages::UserMessage => {
                after.push(text_part(&format!("Images in the result of the tool `{}`:", result.tool_name)));
                after.extend(images().map(image_part));
                json!(result.text())
            }
            ResultImages::Parts => {
                let mut rest = result.clone();
                rest.parts.retain(|part| !matches!(part, Part::Image { .. }));
                let text = rest.text();
                let text = (!text.is_empty()).then(|| text_part(&text));
                Value::Array(text.into_iter().chain(images().map(image_part)).collect())
            }
        }
    }
}

fn text_part(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn image_part(address: &str) -> Value {
    json!({ "type": "image_url", "image_url": { "url": address } })
}

/// Parts as the content of a message: plain text where there is nothing else, because not every server takes parts.
fn content(parts: Vec<Value>) -> Option<Value> {
    let texts: Option<Vec<&str>> =
        parts.iter().map(|part| if part.get("type")? == "text" { part.get("text")?.as_str() } else { None }).collect();
    match texts {
        _ if parts.is_empty() => None,
        Some(texts) => Some(json!(texts.join("\n"))),
        None => Some(Value::Array(parts)),
    }
}
