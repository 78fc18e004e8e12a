//! Paths below a root: what may be written, before any file is looked at.

use std::fmt;
use std::sync::Arc;

use super::FileError;

/// The longest path, in bytes.
const LONGEST: usize = 4096;

/// A path below a root, normalised: names joined by `/`, without `.` and `..`. The root itself is shown as `.`.
///
/// Refused on every platform (sdk-tools 25.3/1): absolute paths, into the root as well; `..` that climbs above the root; drive
/// letters; control characters. A backslash is a separator. Nothing is decoded: `%2e%2e` is a name.
///
/// ```
/// use toolwright_host::files::RootedPath;
///
/// let path = RootedPath::parse("src//./bin/../lib.rs")?;
/// assert_eq!((path.as_str(), path.name()), ("src/lib.rs", "lib.rs"));
/// for outside in ["../x", "/etc/passwd", r"C:\x", r"\\host\share", "a/../../x"] {
///     assert!(RootedPath::parse(outside).is_err(), "{outside}");
/// }
/// # Ok::<_, toolwright_host::files::FileError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RootedPath(Arc<str>);

impl RootedPath {
    /// The root itself.
    pub fn root() -> Self {
        Self("".into())
    }

    /// Normalises what was written.
    pub fn parse(written: &str) -> Result<Self, FileError> {
        let refused = |problem| Err(FileError::Path { given: toolwright_core::bounded(written, 80), problem });
        if written.chars().any(char::is_control) {
            return refused("holds a control character; take it out");
        }
        if written.len() > LONGEST {
            return refused("is too long; use at most 4096 bytes");
        }
        if written.starts_with(['/', '\\']) {
            return refused("is absolute; write it from the workspace's folder on, such as `src/main.rs`");
        }
        let mut characters = written.chars();
        if characters.next().is_some_and(|letter| letter.is_ascii_alphabetic()) && characters.next() == Some(':') {
            return refused("begins with a drive letter; write it from the workspace's folder on, such as `src/main.rs`");
        }
        let mut names: Vec<&str> = Vec::new();
        for name in written.split(['/', '\\']) {
            match name {
                "" | "." => {}
                ".." if names.pop().is_none() => return refused("leads out of the workspace; take a `..` away"),
                ".." => {}
                name => names.push(name),
            }
        }
        Ok(Self(names.join("/").into()))
    }

    /// As text; empty for the root.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is the root itself.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Its last name; empty for the root.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// The folder it is in; that of the root is the root.
    #[must_use]
    pub fn parent(&self) -> Self {
        Self(self.0.rsplit_once('/').map_or("", |(parent, _)| parent).into())
    }

    /// The path of `name` in it. The name is one that a folder gave; `None` if no path can hold it.
    pub fn join(&self, name: &str) -> Option<Self> {
        let one = !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\\']) && !name.chars().any(char::is_control);
        let joined = if self.is_root() { name.to_owned() } else { format!("{}/{name}", self.0) };
        (one && joined.len() <= LONGEST).then(|| Self(joined.into()))
    }
}

impl fmt::Display for RootedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_root() { "." } else { &self.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // rule: sdk-tools 25.3/1
    // case: field-reports 106
    #[test]
    fn what_leads_out_is_refused_as_it_is_written() {
        for outside in [
            "..",
            "../x",
            "a/../../x",
            r"a\..\..\x",
            "/",
            "/etc/passwd",
            "//host/share",
            r"\\host\share",
            r"\\?\C:\x",
            r"C:\x",
            "c:x",
            "Z:",
            "a\0b",
            "a\nb",
            "\u{7f}",
        ] {
            assert!(matches!(RootedPath::parse(outside), Err(FileError::Path { .. })), "{outside:?}");
        }
        assert!(RootedPath::parse(&"a/".repeat(3000)).is_err());
        for (written, path) in [
            ("", ""),
            (".", ""),
            ("./", ""),
            ("a/..", ""),
            ("a/b/../c", "a/c"),
            (r"a\b", "a/b"),
            ("a//b/", "a/b"),
            ("..a", "..a"),
            ("...", "..."),
            // Nothing is decoded: these are names.
            ("%2e%2e%2fx", "%2e%2e%2fx"),
            ("~/x", "~/x"),
            ("é/日本", "é/日本"),
        ] {
            assert_eq!(RootedPath::parse(written).unwrap().as_str(), path, "{written:?}");
        }
    }

    #[test]
    fn paths_are_taken_apart_and_put_together() {
        let path = RootedPath::parse("a/b/c").unwrap();
        assert_eq!((path.name(), path.parent().as_str(), path.parent().parent().parent().as_str()), ("c", "a/b", ""));
        assert_eq!(RootedPath::root().join("x").unwrap().join("y").unwrap().as_str(), "x/y");
        for name in ["", ".", "..", "a/b", r"a\b", "a\nb"] {
            assert_eq!(path.join(name), None, "{name:?}");
        }
        assert_eq!(RootedPath::root().to_string(), ".");
    }
}
