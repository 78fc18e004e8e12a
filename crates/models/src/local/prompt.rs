//! What the model reads: the frame of a turn, tools as it was trained on them, and what was said so far.

use serde_json::{Map, Value};

/// Schema keys that the model was trained on. Others cost tokens and make it choose worse.
const SCHEMA_KEYS: [&str; 7] = ["type", "description", "enum", "items", "properties", "required", "default"];

/// How deep references between schemas are followed.
const MAX_DEPTH: usize = 8;

/// A tool as the model sees it.
#[derive(Clone, Debug)]
pub struct ToolText {
    name: String,
    description: String,
    text: String,
    parameters: Value,
}

impl ToolText {
    /// The tool `name` with its description and the JSON schema of its arguments, whose key order is kept.
    pub fn new(name: &str, description: &str, parameters: &Value) -> Self {
        let parameters = resolved(parameters, parameters, 0);
        let description = first_sentences(description);
        let mut tool = Map::new();
        tool.insert("name".into(), name.into());
        tool.insert("description".into(), description.as_str().into());
        tool.insert("parameters".into(), trained(&parameters));
        Self { name: name.into(), description, text: Value::Object(tool).to_string(), parameters }
    }

    /// The same tool with exactly the arguments `keys` required.
    pub(crate) fn requiring(&self, keys: Vec<String>) -> Self {
        let mut tool = self.clone();
        if let Some(fields) = tool.parameters.as_object_mut() {
            fields.insert("required".into(), keys.into());
        }
        tool
    }

    /// The tool's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it does, as the model reads it.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The compact JSON the model reads.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The schema of the arguments, its references resolved.
    pub fn parameters(&self) -> &Value {
        &self.parameters
    }
}

/// One thing that was said in the exchange a turn continues.
#[derive(Clone, Debug)]
pub enum Said {
    /// What a person asked for.
    Request(String),
    /// What the model answered: calls as a JSON array, or text.
    Reply {
        /// The reasoning, when it was kept.
        think: Option<String>,
        /// The calls as compact JSON text, `None` for a reply without calls.
        calls: Option<String>,
        /// Text outside the calls.
        text: String,
    },
    /// The results of the calls just before, in call order.
    Results(Vec<Outcome>),
}

/// What a call came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The tool.
    pub tool: String,
    /// The result as JSON or plain text.
    pub text: String,
    /// Whether the call failed.
    pub failed: bool,
}

/// The longest result that is shown whole, in characters: a token is read in some 8 ms.
const RESULT: usize = 1500;

impl Outcome {
    /// The result as the model reads it: an object, as it was trained.
    fn shown(&self) -> String {
        let value = serde_json::from_str::<Value>(&self.text).ok();
        match value {
            Some(value @ Value::Object(_)) if !self.failed && self.text.chars().count() <= RESULT => value.to_string(),
            _ => {
                let key = if self.failed { "error" } else { "result" };
                let text: String = self.text.chars().take(RESULT).collect();
                let mut out = Map::new();
                out.insert(key.into(), value.filter(|value| value.is_number() || value.is_boolean()).unwrap_or(Value::String(text)));
                Value::Object(out).to_string()
            }
        }
    }
}

/// The longest description that is shown whole, in characters.
const DESCRIPTION: usize = 300;

/// `description` on one line, cut at the end of a sentence when it is long: the model reads short descriptions best.
fn first_sentences(description: &str) -> String {
    let line = description.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= DESCRIPTION {
        return line;
    }
    let mut kept = String::new();
    for sentence in line.split_inclusive(". ") {
        if !kept.is_empty() && kept.chars().count() + sentence.chars().count() > DESCRIPTION {
            break;
        }
        kept.push_str(sentence);
    }
    kept.trim_end().chars().take(2 * DESCRIPTION).collect()
}

/// `schema` with its local references put in place.
fn resolved(schema: &Value, root: &Value, depth: usize) -> Value {
    match schema {
        Value::Object(fields) if depth < MAX_DEPTH => {
            if let Some(target) = fields.get("$ref").and_then(Value::as_str) {
                let found = target.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
                return found.map_or_else(|| Value::Object(Map::new()), |found| resolved(found, root, depth + 1));
            }
            let fields = fields.iter().filter(|(key, _)| !matches!(key.as_str(), "$defs" | "definitions"));
            Value::Object(fields.map(|(key, value)| (key.clone(), resolved(value, root, depth + 1))).collect())
        }
        Value::Object(_) => Value::Object(Map::new()),
        Value::Array(items) => Value::Array(items.iter().map(|item| resolved(item, root, depth)).collect()),
        other => other.clone(),
    }
}

/// Whether `schema` says that a value may be of type `name`.
pub(crate) fn has_type(schema: &Value, name: &str) -> bool {
    match schema.get("type") {
        Some(Value::Array(names)) => names.iter().any(|known| known == name),
        Some(known) => known == name,
        None => false,
    }
}

/// The part of a schema that the model was trained on.
fn trained(schema: &Value) -> Value {
    let Some(fields) = schema.as_object() else { return schema.clone() };
    let mut out = Map::new();
    // A choice between a type and null is that type; the model knows optional arguments by `required` alone.
    let choices = ["anyOf", "oneOf"].iter().find_map(|key| fields.get(*key)?.as_array());
    if let Some(choices) = choices {
        let mut real = choices.iter().filter(|choice| choice.get("type").is_none_or(|t| t != "null"));
        if let (Some(Value::Object(only)), None) = (real.next().map(trained), real.next()) {
            out.extend(only);
        }
    }
    for (key, value) in fields {
        match key.as_str() {
            "type" => {
                let name = value.as_array().and_then(|names| names.iter().find(|name| *name != "null"));
                out.insert(key.clone(), name.unwrap_or(value).clone());
            }
            "properties" => {
                let properties = value.as_object().into_iter().flatten();
                let properties = properties.map(|(name, schema)| (name.clone(), trained(schema))).collect();
                out.insert(key.clone(), Value::Object(properties));
            }
            "items" => {
                out.insert(key.clone(), trained(value));
            }
            "default" if value.is_null() => {}
            "required" if value.as_array().is_some_and(Vec::is_empty) => {}
            known if SCHEMA_KEYS.contains(&known) => {
                out.insert(key.clone(), value.clone());
            }
            _ => {}
        }
    }
    Value::Object(out)
}

/// The text before the first request: facts, and the tool list up to its closing marker.
pub(crate) fn opening(facts: Option<&str>, tools: &[ToolText]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    if let Some(facts) = facts.map(str::trim).filter(|facts| !facts.is_empty()) {
        pieces.extend([Piece::Marker("<|im_start|>"), Piece::Text(format!("system\n{facts}"))]);
        pieces.extend([Piece::Marker("<|im_end|>"), Piece::Text("\n".into())]);
    }
    pieces.extend([Piece::Marker("<|im_start|>"), Piece::Text("user\n".into())]);
    let list: Vec<&str> = tools.iter().map(ToolText::text).collect();
    pieces.extend([Piece::Marker("<tools>"), Piece::Text(format!("[{}]", list.join(",")))]);
    pieces.push(Piece::Marker("</tools>"));
    pieces
}

/// What was said, up to the point where the model's next reply begins.
pub(crate) fn exchange(said: &[Said]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (index, said) in said.iter().enumerate() {
        match said {
            Said::Request(text) => {
                // The first request stands in the turn that the tool list has opened.
                if index == 0 {
                    pieces.push(Piece::Text(format!("\n{text}")));
                } else {
                    pieces.extend([Piece::Marker("<|im_start|>"), Piece::Text(format!("user\n{text}"))]);
                }
                pieces.extend(reply_begins());
            }
            Said::Reply { think, calls, text } => {
                if let Some(think) = think {
                    pieces.extend([Piece::Marker("<think>"), Piece::Text(format!("\n{think}\n"))]);
                    pieces.extend([Piece::Marker("</think>"), Piece::Text("\n".into())]);
                }
                if let Some(calls) = calls {
                    pieces.extend([Piece::Marker("<tool_call>"), Piece::Text(calls.clone())]);
                    pieces.push(Piece::Marker("</tool_call>"));
                }
                pieces.extend([Piece::Text(text.clone()), Piece::Marker("<|im_end|>"), Piece::Text("\n".into())]);
            }
            Said::Results(results) => {
                pieces.extend([Piece::Marker("<|im_start|>"), Piece::Text("user\n".into())]);
                pieces.push(Piece::Marker("<tool_result>"));
                let results: Vec<String> = results.iter().map(Outcome::shown).collect();
                pieces.push(Piece::Text(format!("[{}]", results.join(","))));
                pieces.push(Piece::Marker("</tool_result>"));
                pieces.extend(reply_begins());
            }
        }
    }
    pieces
}

fn reply_begins() -> [Piece; 4] {
    [Piece::Marker("<|im_end|>"), Piece::Text("\n".into()), Piece::Marker("<|im_start|>"), Piece::Text("assistant\n".into())]
}

/// A piece of a prompt: a marker of the frame, or text in which markers mean nothing.
pub(crate) enum Piece {
    /// One token of the frame.
    Marker(&'static str),
    /// Anything anybody wrote.
    Text(String),
}
