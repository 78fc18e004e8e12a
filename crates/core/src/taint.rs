//! Taint: where the text of a call's arguments came from.
//!
//! The result of a tool with the hint `open_world` is text that somebody outside wrote: untrusted. What a body read of the
//! thread's files, values, environment or workspace is text that somebody outside should not get: private. The marks stand beside the
//! result in the journal; a later call whose arguments repeat the text carries them to the gate.

mod index;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::CallId;
use crate::words::words;
pub use index::TaintIndex;

words! {
    /// What private text was read from.
    PrivateSource {
        /// The thread's files.
        Files = "files",
        /// The thread's values.
        Values = "values",
        /// The thread's or the agent's environment.
        Environment = "environment",
        /// The files of the folder that the thread works in.
        Workspace = "workspace",
    }
}

/// The marks of one result, as its record has them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marks {
    /// The tool reaches the world outside: whoever is there may have written this.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub untrusted: bool,
    /// What the body read that is the thread's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub private: Vec<PrivateSource>,
}

impl Marks {
    /// Whether there is no mark.
    pub fn is_empty(&self) -> bool {
        !self.untrusted && self.private.is_empty()
    }
}

/// A result whose text a call's arguments repeat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaintSource {
    /// The call that gave the text.
    pub call: CallId,
    /// Its tool.
    pub tool: Arc<str>,
    /// Of private text: what the tool read it from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<PrivateSource>,
}

impl fmt::Display for TaintSource {
    /// In words that fit after "text from".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.read.as_slice() {
            [] => write!(f, "the result of `{}`", self.tool),
            read => {
                let read: Vec<&str> = read.iter().map(PrivateSource::as_str).collect();
                write!(f, "the thread's {}, read by `{}`", read.join(" and "), self.tool)
            }
        }
    }
}

/// What a call's arguments repeat of marked text. Empty where nothing is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taint {
    /// Results of tools that reach the world outside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub untrusted: Vec<TaintSource>,
    /// Results that hold what is the thread's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub private: Vec<TaintSource>,
}

impl Taint {
    /// Whether the arguments repeat no marked text.
    pub fn is_empty(&self) -> bool {
        self.untrusted.is_empty() && self.private.is_empty()
    }
}
