//! Tool names.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The name a model calls a tool by: 1 to 64 of `A-Z a-z 0-9 _ -` (sdk-tools 1.1, sdk-runtime GATE-10).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct ToolName(Arc<str>);

impl ToolName {
    /// The longest name providers take.
    pub const MAX: usize = 64;

    /// Checks the grammar.
    pub fn new(text: impl Into<Arc<str>>) -> Result<Self, InvalidToolName> {
        let text = text.into();
        match problem(&text) {
            None => Ok(Self(text)),
            Some(problem) => Err(InvalidToolName { given: crate::text::cut(&text, 100).to_owned(), problem }),
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A shared copy of the text.
    pub fn to_shared(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }

    /// A valid name for any `foreign` name, injective and stable: a valid one stays as it is; otherwise the invalid
    /// characters become `_`, and a hash of the whole foreign name ends it, so that two foreign names never meet.
    pub fn mapped(foreign: &str) -> Self {
        use sha2::{Digest, Sha256};
        if let Ok(name) = Self::new(foreign) {
            return name;
        }
        let digest = Sha256::digest(foreign.as_bytes());
        let hash = crate::text::hex(digest.get(..5).unwrap_or_default());
        let keep = Self::MAX - hash.len() - 1;
        let head: String = foreign.chars().take(keep).map(|c| if allowed(c) { c } else { '_' }).collect();
        Self(format!("{head}_{hash}").into())
    }
}

fn allowed(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

fn problem(text: &str) -> Option<String> {
    if text.is_empty() {
        return Some("is empty".to_owned());
    }
    if let Some(bad) = text.chars().find(|c| !allowed(*c)) {
        return Some(match bad {
            ' ' => "has a space".to_owned(),
            '.' => "has a dot".to_owned(),
            c => format!("has the character {c:?}"),
        });
    }
    (text.len() > ToolName::MAX).then(|| format!("has {} characters", text.len()))
}

impl fmt::Display for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl std::borrow::Borrow<str> for ToolName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for ToolName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// A tool name outside the grammar.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the tool name `{given}` {problem}; use letters, digits, `_` and `-`, at most 64")]
pub struct InvalidToolName {
    given: String,
    problem: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    // rule: sdk-tools 1.2/2
    // rule: sdk-tools 1.3/1
    // rule: sdk-runtime GATE-10
    #[test]
    fn a_name_has_its_grammar() {
        for good in ["a", "get_weather", "get-weather-2", &"x".repeat(64)] {
            assert!(ToolName::new(good).is_ok(), "{good}");
        }
        let say = |bad: &str| ToolName::new(bad).unwrap_err().to_string();
        assert_eq!(say("get weather"), "the tool name `get weather` has a space; use letters, digits, `_` and `-`, at most 64");
        assert!(say("").contains("is empty"));
        assert!(say("a.b").contains("has a dot"));
        assert!(say("größe").contains("'ö'"));
        assert!(say(&"x".repeat(65)).contains("has 65 characters"));
    }

    // case: field-reports 37
    // case: field-reports 38
    // case: field-reports 40
    // case: rust-reports D-59
    #[test]
    fn mapping_foreign_names_is_injective_and_stable() {
        let pairs = [
            (
                "createConfluencePageWithAttachmentsAndPermissionsOnAtlassianRovoMcpServerX",
                "deleteConfluencePageWithAttachmentsAndPermissionsOnAtlassianRovoMcpServerX",
            ),
            (
                "mcplink_github_v3_rest_api_get_repos_owner_repo_environments_environment_name_secrets_secret_name",
                "mcplink_github_v3_rest_api_delete_repos_owner_repo_environments_environment_name_secrets_secret_name",
            ),
            ("admin.tools.list", "admin_tools_list"),
            ("user-profile/update", "user-profile.update"),
            ("a-b", "a_b"),
        ];
        for (left, right) in pairs {
            assert_ne!(ToolName::mapped(left), ToolName::mapped(right));
        }
        assert_eq!(ToolName::mapped("fine_name").as_str(), "fine_name");
        assert_eq!(ToolName::mapped("admin.tools.list"), ToolName::mapped("admin.tools.list"));
        assert!(ToolName::new(ToolName::mapped("").as_str()).is_ok());
        assert!(ToolName::new(ToolName::mapped(&"é".repeat(300)).as_str()).is_ok());
    }
}
