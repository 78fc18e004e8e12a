//! What is known of a tool without running it.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::name::ToolName;
use crate::schema::Schema;

/// MCP's behaviour hints (sdk-tools 1.1). A promise of the tool's author, never checked against what the body does;
/// rules count them only from trusted origins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Annotations {
    /// The tool changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only_hint: Option<bool>,
    /// The tool may destroy something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destructive_hint: Option<bool>,
    /// Calling it twice with the same arguments does no more than calling it once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotent_hint: Option<bool>,
    /// The tool touches the world outside this program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_world_hint: Option<bool>,
}

impl Annotations {
    /// Whether the tool promises to change nothing.
    pub fn read_only(self) -> bool {
        self.read_only_hint == Some(true)
    }

    /// Whether the tool says that it may destroy something.
    pub fn destructive(self) -> bool {
        self.destructive_hint == Some(true)
    }

    /// Whether the tool says that it touches the world outside this program.
    pub fn open_world(self) -> bool {
        self.open_world_hint == Some(true)
    }

    /// Whether repeating a call is harmless.
    pub fn idempotent(self) -> bool {
        self.idempotent_hint == Some(true)
    }
}

/// What happens to a call that had begun when the process died.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnInterrupt {
    /// It runs again with the same call id, which serves as idempotency key.
    #[default]
    Rerun,
    /// A person decides, told that the outcome is unknown.
    Ask,
    /// Its result says that the outcome is unknown.
    Fail,
}

/// Where a tool comes from. Two tools of one name are refused with both origins named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ToolOrigin {
    /// A Rust function.
    Function {
        /// Path of the function, such as `demo::search`.
        path: String,
        /// Where it stands, such as `src/lib.rs:12`; empty when not known.
        location: String,
    },
    /// Built at run time from a schema and a body.
    Value,
    /// A tool of an MCP server.
    Mcp {
        /// The server's name.
        server: String,
    },
    /// An operation of an OpenAPI document.
    OpenApi {
        /// The document's name.
        document: String,
    },
    /// Any other source, named.
    Named {
        /// What it is, in words that fit after "from".
        source: String,
    },
}

impl fmt::Display for ToolOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Function { path, location } if location.is_empty() => write!(f, "function tool {path}"),
            Self::Function { path, location } => write!(f, "function tool {path} ({location})"),
            Self::Value => f.write_str("a tool built at run time"),
            Self::Mcp { server } => write!(f, "MCP tool of server `{server}`"),
            Self::OpenApi { document } => write!(f, "OpenAPI operation of `{document}`"),
            Self::Named { source } => write!(f, "a tool from {source}"),
        }
    }
}

/// An environment value a tool asks for. Its body gets it through `Env`; arguments never carry it (invariant 7).
///
/// ```
/// use toolwright_core::EnvNeed;
/// let token = EnvNeed::secret("GITHUB_TOKEN").described("A token that may read the repository.");
/// let region = EnvNeed::text("REGION").optional();
/// assert!(token.secret && token.required && !region.required);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvNeed {
    /// The variable's name.
    pub name: String,
    /// Whether the value is a secret.
    pub secret: bool,
    /// Whether the body never runs without it: a call gets a failure that names what is missing (standard-agents TOL-9).
    #[serde(default = "yes")]
    pub required: bool,
    /// Whether children of a thread do not inherit its value (standard-agents ENV-5).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub scoped: bool,
    /// What it is for; empty if nobody says.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
}

fn yes() -> bool {
    true
}

impl EnvNeed {
    /// A text that may be shown; required.
    pub fn text(name: impl Into<String>) -> Self {
        Self { name: name.into(), secret: false, required: true, scoped: false, description: String::new() }
    }

    /// A secret; required.
    pub fn secret(name: impl Into<String>) -> Self {
        Self { secret: true, ..Self::text(name) }
    }

    /// The body runs without it too.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.required = false;
        self
    }

    /// Children of a thread do not inherit its value.
    #[must_use]
    pub fn scoped(mut self) -> Self {
        self.scoped = true;
        self
    }

    /// What it is for.
    #[must_use]
    pub fn described(mut self, description: impl Into<String>) -> Self {
        self.description = description.into();
        self
    }
}

/// One worked example of arguments: sent where a provider takes examples, written into the description elsewhere.
pub type ArgsExample = Value;

/// What is known of a tool without running it: what the model sees, and what the gate and the driver go by.
#[derive(Clone, Debug)]
pub struct ToolSpec {
    /// What the model calls it.
    pub name: ToolName,
    /// A label for people; the name where none was given.
    pub display_name: Option<String>,
    /// What the model reads.
    pub description: String,
    /// The schema of the arguments.
    pub input: Schema,
    /// The schema of the result, where one is known.
    pub output: Option<Value>,
    /// Behaviour hints.
    pub annotations: Annotations,
    /// Kept out of the list until a search finds it (sdk-tools 1.1).
    pub defer_loading: bool,
    /// Marks a file edit (sdk-tools 1.2/7): only this flag does, never the name.
    pub edits_files: bool,
    /// Runs through the run's sandbox only.
    pub requires_sandbox: bool,
    /// A barrier in its batch: begins when all earlier calls are done, and later calls wait for it.
    pub sequential: bool,
    /// Whether arguments that can mean only one thing are repaired.
    pub repair: bool,
    /// How long the body may take; the agent's default where `None`.
    pub timeout: Option<Duration>,
    /// What happens to a call that had begun when the process died.
    pub on_interrupt: Option<OnInterrupt>,
    /// The longest result in characters; the agent's default where `None`.
    pub result_limit: Option<usize>,
    /// How many calls of one run may reach the body.
    pub max_calls: Option<u32>,
    /// How often in a run the body may ask the model for another try.
    pub max_retries: u32,
    /// Environment values the body asks for.
    pub env: Vec<EnvNeed>,
    /// Worked examples of arguments.
    pub examples: Vec<ArgsExample>,
    /// Merged into the definition that a provider gets, by provider name, last.
    pub provider_options: Map<String, Value>,
    /// Where the tool comes from.
    pub origin: ToolOrigin,
}

impl ToolSpec {
    /// How often a tool may ask for another try when it does not say.
    pub const MAX_RETRIES: u32 = 2;

    /// A spec with every option at its default.
    pub fn new(name: ToolName, description: impl Into<String>, input: Schema, origin: ToolOrigin) -> Self {
        Self {
            name,
            display_name: None,
            description: description.into(),
            input,
            output: None,
            annotations: Annotations::default(),
            defer_loading: false,
            edits_files: false,
            requires_sandbox: false,
            sequential: false,
            repair: true,
            timeout: None,
            on_interrupt: None,
            result_limit: None,
            max_calls: None,
            max_retries: Self::MAX_RETRIES,
            env: Vec::new(),
            examples: Vec::new(),
            provider_options: Map::new(),
            origin,
        }
    }

    /// The label for people.
    pub fn label(&self) -> &str {
        self.display_name.as_deref().unwrap_or(self.name.as_str())
    }

    /// What happens to a call of this tool that had begun when the process died: read-only and idempotent ones run again,
    /// destructive ones ask, others do as they say.
    pub fn after_interrupt(&self) -> OnInterrupt {
        if self.annotations.read_only() || self.annotations.idempotent() {
            return OnInterrupt::Rerun;
        }
        match self.on_interrupt {
            Some(choice) => choice,
            None if self.annotations.destructive() => OnInterrupt::Ask,
            None => OnInterrupt::Rerun,
        }
    }

    /// The definition a model gets: `{ type, function: { name, description, parameters } }` (sdk-tools 2.2/10).
    pub fn definition(&self) -> Value {
        serde_json::json!({
            "type": "function",
            "function": { "name": self.name, "description": self.description, "parameters": self.input.as_value() },
        })
    }
}
