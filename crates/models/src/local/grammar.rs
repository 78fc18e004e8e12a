//! The grammar of a reply's calls: an array of objects that name a declared tool and fit its schema.
//!
//! Without it the model can name a tool that does not exist, leave a required argument out or stop in the middle of a value.
//! It also says which tokens are forced, and those are read in one batch instead of being decoded one by one.

use std::sync::Arc;

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenizerEnv};
use llguidance::{Matcher, ParserFactory};
use serde_json::{Map, Value, json};

use super::prompt::{ToolText, has_type};
use super::tokens;

/// The most calls one reply may hold. The model repeats itself when it may go on for ever.
const MAX_CALLS: usize = 4;
/// The most characters of a string that its schema does not bound.
const MAX_STRING: usize = 400;
/// The most items of an array that its schema does not bound.
const MAX_ITEMS: usize = 12;
/// How deep a schema is followed; below, any JSON will do, and validation has the last word anyway.
const MAX_DEPTH: usize = 6;

/// Makes matchers for tool lists.
pub(crate) struct Grammars {
    factory: ParserFactory,
}

struct Vocabulary {
    trie: TokTrie,
    network: Arc<super::forward::Network>,
}

impl TokenizerEnv for Vocabulary {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<u32> {
        match std::str::from_utf8(bytes) {
            Ok(text) => tokens::encode(&self.network.tokenizer, text),
            Err(_) => self.trie.greedy_tokenize(bytes),
        }
    }
}

impl Grammars {
    /// `end` is the token that closes the calls.
    pub(crate) fn new(network: &Arc<super::forward::Network>, end: u32) -> Result<Self, String> {
        let words = tokens::bytes_of_tokens(&network.tokenizer);
        let words: Vec<Vec<u8>> = words
            .into_iter()
            .enumerate()
            .map(|(id, word)| {
                // A token that is no text gets a name that no grammar can spell.
                word.unwrap_or_else(|| [&[TokTrie::SPECIAL_TOKEN_MARKER], format!("<{id}>").as_bytes()].concat())
            })
            .collect();
        let info = TokRxInfo::new(words.len() as u32, end);
        let vocabulary: TokEnv = Arc::new(Vocabulary { trie: TokTrie::from(&info, &words), network: Arc::clone(network) });
        let abilities = InferenceCapabilities { ff_tokens: true, ..InferenceCapabilities::default() };
        let mut factory = ParserFactory::new(&vocabulary, abilities, &[]).map_err(|error| error.to_string())?;
        factory.quiet();
        Ok(Self { factory })
    }

    /// A matcher for one reply over `tools`. A schema that the grammar can't express is loosened to "any object"; its tool's
    /// arguments are still validated like any others. `None` when even that fails, and then the model writes freely.
    pub(crate) fn matcher(&self, tools: &[ToolText]) -> Option<Matcher> {
        let attempts = [Arguments::Bounded, Arguments::Any];
        attempts.into_iter().find_map(|arguments| self.compile(&calls_schema(tools, &arguments, 0, MAX_CALLS)))
    }

    /// A matcher for exactly one call of `tool`, whose free texts are copied from `spans`.
    pub(crate) fn copying_matcher(&self, tool: &ToolText, spans: &[String]) -> Option<Matcher> {
        self.compile(&calls_schema(std::slice::from_ref(tool), &Arguments::Copied(spans), 1, 1))
    }

    fn compile(&self, schema: &Value) -> Option<Matcher> {
        match self.factory.create_parser(TopLevelGrammar::from_json_schema(schema.clone())) {
            Ok(parser) => Some(Matcher::new(Ok(parser))).filter(|matcher| !matcher.is_error()),
            Err(error) => {
                tracing::debug!(%error, "no grammar for these tools");
                None
            }
        }
    }
}

/// How closely arguments are held to their schema.
enum Arguments<'a> {
    /// Its types, with limits where it has none.
    Bounded,
    /// Any object.
    Any,
    /// Its types, free texts being one of these.
    Copied(&'a [String]),
}

fn calls_schema(tools: &[ToolText], arguments: &Arguments<'_>, least: usize, most: usize) -> Value {
    let calls: Vec<Value> = tools
        .iter()
        .map(|tool| {
            let arguments = match arguments {
                Arguments::Bounded => bounded(tool.parameters(), None, 0),
                Arguments::Any => json!({"type": "object"}),
                Arguments::Copied(spans) => bounded(tool.parameters(), Some(spans), 0),
            };
            json!({
                "type": "object",
                "properties": {"name": {"const": tool.name()}, "arguments": arguments},
                "required": ["name", "arguments"],
                "additionalProperties": false
            })
        })
        .collect();
    json!({
        "x-guidance": {"whitespace_flexible": false, "lenient": true, "coerce_one_of": true},
        "type": "array",
        "items": {"anyOf": calls},
        "minItems": least,
        "maxItems": most
    })
}

/// `schema` with limits where it has none, and without what the grammar has no use for. Free texts are one of `spans`, if given.
fn bounded(schema: &Value, spans: Option<&[String]>, depth: usize) -> Value {
    let Some(fields) = schema.as_object() else { return schema.clone() };
    if depth > MAX_DEPTH {
        return json!({});
    }
    let mut out = Map::new();
    for (key, value) in fields {
        let kept = match key.as_str() {
            "type" | "enum" | "const" | "required" | "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "minLength"
            | "maxLength" | "minItems" | "maxItems" | "pattern" => value.clone(),
            "properties" => {
                let fields = value.as_object().into_iter().flatten();
                Value::Object(fields.map(|(name, schema)| (name.clone(), bounded(schema, spans, depth + 1))).collect())
            }
            "items" | "additionalProperties" => bounded(value, spans, depth + 1),
            "anyOf" | "oneOf" | "allOf" => {
                Value::Array(value.as_array().into_iter().flatten().map(|schema| bounded(schema, spans, depth + 1)).collect())
            }
            _ => continue,
        };
        out.insert(key.clone(), kept);
    }
    let is = |name: &str| has_type(schema, name);
    let is_free = !["enum", "const", "pattern", "maxLength"].iter().any(|key| out.contains_key(*key));
    if is("string") && is_free {
        match spans {
            Some(spans) => {
                // Null is no text to copy.
                out.insert("type".into(), "string".into());
                out.insert("enum".into(), spans.into())
            }
            None => out.insert("maxLength".into(), MAX_STRING.into()),
        };
    }
    if is("array") && !out.contains_key("maxItems") {
        out.insert("maxItems".into(), MAX_ITEMS.into());
    }
    if out.contains_key("properties") || is("object") {
        // A key that no property declares is never what a small model means.
        let open = !out.contains_key("properties") && !fields.contains_key("properties");
        out.entry("additionalProperties").or_insert(Value::Bool(open));
    }
    Value::Object(out)
}
