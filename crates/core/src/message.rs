//! Messages: ordered items with an author.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::decision::ApprovalMark;
use crate::failure::ToolFailureKind;
use crate::ids::CallId;
use crate::taint::Marks;
use crate::words::words;

words! {
    /// A side of an agent. A one-sided agent is [`Side::A`]; whoever talks to it is the other.
    Side {
        /// The first side.
        A = "side_a",
        /// The second side.
        B = "side_b",
    }
}

words! {
    /// Who wrote a message. Roles of a provider are computed from it for whoever acts, see [`Author::role_for`].
    Author {
        /// A person outside the agent.
        Human = "human",
        /// The agent's first side.
        SideA = "side_a",
        /// The agent's second side.
        SideB = "side_b",
        /// The tools of the turn before.
        Tool = "tool",
        /// The program around the agent: facts, notes.
        System = "system",
    }
}

/// A provider's role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions and notes.
    System,
    /// Whoever the model answers.
    User,
    /// The model itself.
    Assistant,
    /// Tool results.
    Tool,
}

impl Author {
    /// The author that `side` is.
    pub fn of_side(side: &Side) -> Self {
        match side {
            Side::A => Self::SideA,
            Side::B => Self::SideB,
            Side::Other(word) => Self::Other(Arc::clone(word)),
        }
    }

    /// The role of this author's message when `acting` is about to speak: its own are the assistant's.
    pub fn role_for(&self, acting: &Side) -> Role {
        match self {
            Self::Tool => Role::Tool,
            Self::System => Role::System,
            own if *own == Self::of_side(acting) => Role::Assistant,
            _ => Role::User,
        }
    }
}

/// How much of a call's arguments arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ArgsState {
    /// All of it, as far as the provider says.
    #[default]
    Complete,
    /// The reply ended first. Such a call never runs.
    Truncated,
    /// They held a registered secret, which was taken out. Such a call never runs.
    Redacted,
}

/// A call as the model wrote it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallItem {
    /// Our id, unique in the thread; empty until the thread has given one.
    pub call_id: CallId,
    /// The provider's id, where it sent one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// The tool's name as the model wrote it.
    pub name: String,
    /// The arguments as the model wrote them.
    pub arguments: String,
    /// Whether all of them arrived.
    #[serde(default)]
    pub state: ArgsState,
    /// Why the model (or what watches over it) wants a person to confirm the call; the gate then asks, unless the tool is read-only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<String>,
    /// Provider JSON that belongs to this call, such as a signature, kept whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_data: Option<Value>,
}

/// A part of a tool result or of an input message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Part {
    /// Plain text.
    Text {
        /// The text.
        text: String,
    },
    /// A JSON value.
    Json {
        /// The value.
        value: Value,
    },
    /// An image.
    Image {
        /// An http(s), `data:` or `blob:` address; see [`crate::BlobRef`].
        image: String,
        /// Its media type, where it is known.
        #[serde(default, rename = "mimeType", skip_serializing_if = "Option::is_none")]
        mime_type: Option<String>,
    },
    /// A file.
    File {
        /// An http(s), `data:` or `blob:` address; see [`crate::BlobRef`].
        data: String,
        /// Its media type.
        #[serde(rename = "mimeType")]
        mime_type: String,
        /// Its name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        filename: Option<String>,
    },
    /// A part this version does not know, kept whole.
    #[serde(untagged)]
    Unknown(Value),
}

impl Part {
    /// A text part.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }
}

/// The one result of a call, as it stands in the transcript.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResultItem {
    /// The call it answers.
    pub call_id: CallId,
    /// The provider's id of that call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// The tool.
    pub tool_name: String,
    /// What the model reads.
    pub parts: Vec<Part>,
    /// The failure's kind, if the call failed (sdk-tools 7.4/1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<ToolFailureKind>,
    /// The approval that let the call run; "once" rules read it (sdk-tools 11.2/6).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalMark>,
    /// Where its text came from; no model is told.
    #[serde(default, skip_serializing_if = "Marks::is_empty")]
    pub marks: Marks,
}

impl ResultItem {
    /// Whether the call failed.
    pub fn is_error(&self) -> bool {
        self.failed.is_some()
    }

    /// The result as the text a `tool` message carries: text parts as they are, JSON parts encoded (sdk-tools 7.1/1).
    pub fn text(&self) -> String {
        let mut out = String::new();
        for part in &self.parts {
            if !out.is_empty() {
                out.push('\n');
            }
            match part {
                Part::Text { text } => out.push_str(text),
                Part::Json { value } => out.push_str(&value.to_string()),
                Part::Image { mime_type, .. } => {
                    out.push_str("[image");
                    if let Some(mime) = mime_type {
                        out.push(' ');
                        out.push_str(mime);
                    }
                    out.push(']');
                }
                Part::File { filename, mime_type, .. } => {
                    out.push_str("[file ");
                    out.push_str(filename.as_deref().unwrap_or(mime_type));
                    out.push(']');
                }
                Part::Unknown(value) => out.push_str(&value.to_string()),
            }
        }
        out
    }
}

/// One item of a message, in the order received.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Item {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// What the model thought.
    Reasoning {
        /// Readable text, possibly empty.
        text: String,
        /// The provider's signature over it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
        /// The provider and model it came from: it is sent back only there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        provenance: Option<String>,
        /// Encrypted or redacted parts, kept whole.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        encrypted: Option<Value>,
    },
    /// A tool call.
    ToolCall(CallItem),
    /// A tool result.
    ToolResult(ResultItem),
    /// An image.
    Image {
        /// An http(s), `data:` or `blob:` address; see [`crate::BlobRef`].
        image: String,
        /// Its media type, where it is known.
        #[serde(default, rename = "mimeType", skip_serializing_if = "Option::is_none")]
        mime_type: Option<String>,
    },
    /// A file.
    File {
        /// An http(s), `data:` or `blob:` address; see [`crate::BlobRef`].
        data: String,
        /// Its media type.
        #[serde(rename = "mimeType")]
        mime_type: String,
        /// Its name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        filename: Option<String>,
    },
    /// Provider JSON kept whole: hosted tool items and whatever is new.
    Opaque {
        /// The provider it came from.
        provider: String,
        /// The item.
        value: Value,
    },
    /// An item this version does not know, kept whole.
    #[serde(untagged)]
    Unknown(Value),
}

impl Item {
    /// A text item.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }
}

/// A message: who wrote it, and what, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who wrote it.
    pub author: Author,
    /// What it says, in the order received.
    pub items: Vec<Item>,
    /// The application's own data; never sent to a model (sdk-runtime 1).
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
}

impl Message {
    /// A message of one text.
    pub fn text(author: Author, text: impl Into<String>) -> Self {
        Self { author, items: vec![Item::text(text)], metadata: Map::new() }
    }

    /// A person's message.
    pub fn human(text: impl Into<String>) -> Self {
        Self::text(Author::Human, text)
    }

    /// Its text items joined (sdk-runtime DATA-2).
    pub fn text_of(&self) -> String {
        let mut out = String::new();
        for item in &self.items {
            if let Item::Text { text } = item {
                out.push_str(text);
            }
        }
        out
    }

    /// Its readable reasoning, blocks joined by a blank line; `None` if there is none.
    pub fn reasoning_of(&self) -> Option<String> {
        let mut out: Option<String> = None;
        for item in &self.items {
            if let Item::Reasoning { text, .. } = item {
                let joined = out.get_or_insert_with(String::new);
                if !joined.is_empty() && !text.is_empty() {
                    joined.push_str("\n\n");
                }
                joined.push_str(text);
            }
        }
        out
    }

    /// Its calls in order.
    pub fn calls(&self) -> impl Iterator<Item = &CallItem> {
        self.items.iter().filter_map(|item| match item {
            Item::ToolCall(call) => Some(call),
            _ => None,
        })
    }

    /// Its results in order.
    pub fn results(&self) -> impl Iterator<Item = &ResultItem> {
        self.items.iter().filter_map(|item| match item {
            Item::ToolResult(result) => Some(result),
            _ => None,
        })
    }
}

/// What a caller may send: a text, parts, or whole messages (sdk-runtime DATA-1).
#[derive(Clone, Debug, Default)]
pub struct Input(pub Vec<Message>);

impl From<&str> for Input {
    fn from(text: &str) -> Self {
        Self(vec![Message::human(text)])
    }
}

impl From<String> for Input {
    fn from(text: String) -> Self {
        Self(vec![Message::human(text)])
    }
}

impl From<Message> for Input {
    fn from(message: Message) -> Self {
        Self(vec![message])
    }
}

impl From<Vec<Message>> for Input {
    fn from(messages: Vec<Message>) -> Self {
        Self(messages)
    }
}

impl From<Vec<Item>> for Input {
    fn from(items: Vec<Item>) -> Self {
        Self(vec![Message { author: Author::Human, items, metadata: Map::new() }])
    }
}
