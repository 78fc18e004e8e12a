//! Names that a model writes: checked before they become a part of an address.

use toolwright_tool::ToolError;

/// A repository of GitHub.
pub(super) struct Repository<'a> {
    pub(super) owner: &'a str,
    pub(super) name: &'a str,
}

impl<'a> Repository<'a> {
    /// Letters, digits and what GitHub allows between them: 39 and one of each name's own rules.
    pub(super) fn new(owner: &'a str, name: &'a str) -> Result<Self, ToolError> {
        let (owner, name) = (owner.trim(), name.trim());
        let plain = |text: &str, others: &[char]| text.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(&c));
        if owner.is_empty() || owner.len() > 64 || !plain(owner, &['-', '_']) {
            return Err(ToolError::invalid("owner", "is the name of a user or an organisation: letters, digits, `-` and `_`"));
        }
        if name.is_empty() || name.len() > 100 || !plain(name, &['-', '_', '.']) || matches!(name, "." | "..") {
            return Err(ToolError::invalid("repo", "is a repository's name without its owner: letters, digits, `-`, `_` and `.`"));
        }
        Ok(Self { owner, name })
    }

    /// The segments of an address in it.
    pub(super) fn path<'s>(&'s self, rest: &[&'s str]) -> Vec<&'s str> {
        let mut path = vec!["repos", self.owner, self.name];
        path.extend(rest);
        path
    }
}

impl std::fmt::Display for Repository<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.owner, self.name)
    }
}

/// The `owner/name` at the end of an address such as `https://api.github.com/repos/acme/shop`.
pub(super) fn full_name(url: &str) -> Option<String> {
    let (rest, name) = url.rsplit_once('/')?;
    let owner = rest.rsplit('/').next()?;
    Some(format!("{owner}/{name}"))
}
