//! Keys, and texts that may hold them.

use std::fmt;
use std::sync::Arc;

/// Stands where a secret stood.
pub(crate) const REDACTED: &str = "[REDACTED]";

/// A provider's key. Never shown.
#[derive(Clone)]
pub(crate) struct Secret(Arc<str>);

impl Secret {
    /// Takes a key; white space around it, from a file or a shell, is not part of it.
    pub(crate) fn new(key: &str) -> Self {
        Self(key.trim().into())
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// The text without the key.
    pub(crate) fn redact(&self, text: &str) -> String {
        if self.0.is_empty() { text.to_owned() } else { text.replace(&*self.0, REDACTED) }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

/// What keys of providers begin with.
const PREFIXES: [&str; 12] = ["sk-", "sk_", "pk-", "gsk_", "xai-", "AIza", "ghp_", "gho_", "github_pat_", "hf_", "fw_", "Bearer "];

/// The text without what looks like a key: a known beginning and at least 16 more characters of a key's alphabet.
pub(crate) fn without_keys(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let is_key = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_' || c == '.';
    let mut before: Option<char> = None;
    while let Some(first) = rest.chars().next() {
        let at_word = before.is_none_or(|c| !c.is_ascii_alphanumeric());
        let prefix = if at_word { PREFIXES.iter().find(|prefix| rest.starts_with(**prefix)) } else { None };
        let key = prefix.and_then(|prefix| {
            let tail = rest.get(prefix.len()..)?;
            let length = tail.find(|c| !is_key(c)).unwrap_or(tail.len());
            (length >= 16).then_some(prefix.len() + length)
        });
        if let Some(length) = key {
            out.push_str(REDACTED);
            before = Some(']');
            rest = rest.get(length..).unwrap_or_default();
        } else {
            out.push(first);
            before = Some(first);
            rest = rest.get(first.len_utf8()..).unwrap_or_default();
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_taken_out_and_words_stay() {
        assert_eq!(without_keys("key sk-proj-abcdefghijklmnop1234, so"), "key [REDACTED], so");
        assert_eq!(without_keys("task-oriented-programming-languages é"), "task-oriented-programming-languages é");
        assert_eq!(without_keys("sk-short"), "sk-short");
        let secret = Secret::new(" k-1 \n");
        assert_eq!(secret.redact("a k-1 b"), "a [REDACTED] b");
        assert_eq!(format!("{secret:?}"), "[REDACTED]");
    }
}
