//! What an agent is, in short: so that whoever goes on with a thread can tell whether it is the agent that began (sdk-runtime 25).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::spec::ToolSpec;
use crate::text::sha256_hex;

/// An agent in short: model, tools with their input schemas, instructions. Bodies are no part of it (sdk-runtime DRF-1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fingerprint {
    /// The model's id.
    pub model: String,
    /// Each tool with a hash of its input schema, in registration order.
    pub tools: Vec<(String, String)>,
    /// SHA-256 of the instructions, in hexadecimal.
    pub instructions: String,
}

/// In what an agent differs from the one that began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Drift {
    /// The model is another.
    #[serde(default)]
    pub model: bool,
    /// Tools it did not have.
    #[serde(default)]
    pub tools_added: Vec<String>,
    /// Tools it has no longer.
    #[serde(default)]
    pub tools_removed: Vec<String>,
    /// Tools whose arguments are others.
    #[serde(default)]
    pub tools_changed: Vec<String>,
    /// The instructions are others.
    #[serde(default)]
    pub instructions: bool,
}

impl Fingerprint {
    /// Of an agent.
    pub fn of(model: &str, tools: &[Arc<ToolSpec>], instructions: &str) -> Self {
        let tools = tools
            .iter()
            .map(|tool| {
                let schema = serde_json::to_string(tool.input.as_value()).unwrap_or_default();
                let mut hash = sha256_hex(schema.as_bytes());
                hash.truncate(16);
                (tool.name.to_string(), hash)
            })
            .collect();
        Self { model: model.to_owned(), tools, instructions: sha256_hex(instructions.as_bytes()) }
    }

    /// What is different in `now`; `None` if nothing is. The order of tools does not count.
    pub fn drift(&self, now: &Self) -> Option<Drift> {
        let hash = |of: &Self, name: &str| of.tools.iter().find(|(known, _)| known == name).map(|(_, hash)| hash.clone());
        let missing = |from: &Self, of: &Self| -> Vec<String> {
            of.tools.iter().filter(|(name, _)| hash(from, name).is_none()).map(|(name, _)| name.clone()).collect()
        };
        let changed = now.tools.iter().filter(|(name, new)| hash(self, name).is_some_and(|old| old != *new));
        let drift = Drift {
            model: self.model != now.model,
            tools_added: missing(self, now),
            tools_removed: missing(now, self),
            tools_changed: changed.map(|(name, _)| name.clone()).collect(),
            instructions: self.instructions != now.instructions,
        };
        (drift != Drift::default()).then_some(drift)
    }
}

impl std::fmt::Display for Drift {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut parts = Vec::new();
        if self.model {
            parts.push("another model".to_owned());
        }
        if self.instructions {
            parts.push("other instructions".to_owned());
        }
        for (what, tools) in
            [("tools added", &self.tools_added), ("tools removed", &self.tools_removed), ("tools changed", &self.tools_changed)]
        {
            if !tools.is_empty() {
                parts.push(format!("{what}: {}", tools.join(", ")));
            }
        }
        f.write_str(&parts.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(model: &str, tools: &[(&str, &str)], instructions: &str) -> Fingerprint {
        let tools = tools.iter().map(|(name, hash)| ((*name).to_owned(), (*hash).to_owned())).collect();
        Fingerprint { model: model.to_owned(), tools, instructions: sha256_hex(instructions.as_bytes()) }
    }

    // rule: sdk-runtime DRF-1
    #[test]
    fn a_fingerprint_tells_what_is_different() {
        let then = print("m", &[("a", "1"), ("b", "2"), ("c", "3")], "Be kind.");
        assert_eq!(then.drift(&print("m", &[("c", "3"), ("a", "1"), ("b", "2")], "Be kind.")), None);
        let drift = then.drift(&print("n", &[("a", "1"), ("b", "9"), ("d", "4")], "Be brief.")).unwrap();
        assert_eq!((drift.model, drift.instructions), (true, true));
        assert_eq!(
            (&*drift.tools_added, &*drift.tools_removed, &*drift.tools_changed),
            (&["d".to_owned()][..], &["c".to_owned()][..], &["b".to_owned()][..])
        );
        assert_eq!(drift.to_string(), "another model; other instructions; tools added: d; tools removed: c; tools changed: b");
    }
}
