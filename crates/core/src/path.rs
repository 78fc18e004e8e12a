//! Paths in a thread's file tree, and names that are safe in one.

use std::fmt;
use std::sync::Arc;

/// A path from the root of a thread's tree, normalised: `/notes/today.md`. The root is `/` (standard-agents FIL-13).
///
/// Letters of every script stay as they are, and so does their case. Two paths are the same file if they are the same text.
///
/// ```
/// use toolwright_core::FilePath;
/// let path = FilePath::parse("notes//./drafts/../today.md")?;
/// assert_eq!((path.as_str(), path.name()), ("/notes/today.md", "today.md"));
/// assert!(FilePath::parse("notes/../../secret").is_err());
/// # Ok::<_, toolwright_core::InvalidPath>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FilePath(Arc<str>);

/// Why a text is no path of a tree.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidPath {
    /// Nothing stands there.
    #[error("the path is empty; give one such as `/notes/today.md`, or `/` for the root")]
    Empty,
    /// It leads out of the tree.
    #[error("the path {given:?} leads out of the thread's files; take a `..` away")]
    Outside {
        /// As given, cut if it is long.
        given: String,
    },
    /// It holds a character that no path may hold.
    #[error("the path {given:?} holds a control character; take it out")]
    Control {
        /// As given, cut if it is long.
        given: String,
    },
    /// It is too long.
    #[error("the path {given:?} is too long; use at most {} bytes, and {} for each name in it", FilePath::MAX, FilePath::MAX_NAME)]
    TooLong {
        /// As given, cut.
        given: String,
    },
    /// A name of one part has several.
    #[error("{given:?} is no name of a file; give one part of a path, without `/`")]
    NoName {
        /// As given, cut if it is long.
        given: String,
    },
}

impl FilePath {
    /// The longest path, in bytes.
    pub const MAX: usize = 1024;
    /// The longest name in it, in bytes.
    pub const MAX_NAME: usize = 255;

    /// The root.
    pub fn root() -> Self {
        Self("/".into())
    }

    /// Normalises what was given: it begins at the root whether it says so or not, empty parts and `.` fall away, `..` goes up.
    pub fn parse(given: &str) -> Result<Self, InvalidPath> {
        let shown = || crate::text::bounded(given, 80);
        if given.is_empty() {
            return Err(InvalidPath::Empty);
        }
        if given.chars().any(char::is_control) {
            return Err(InvalidPath::Control { given: shown() });
        }
        let mut parts: Vec<&str> = Vec::new();
        for part in given.split('/') {
            match part {
                "" | "." => {}
                ".." if parts.pop().is_none() => return Err(InvalidPath::Outside { given: shown() }),
                ".." => {}
                part if part.len() > Self::MAX_NAME => return Err(InvalidPath::TooLong { given: shown() }),
                part => parts.push(part),
            }
        }
        let path = format!("/{}", parts.join("/"));
        if path.len() > Self::MAX { Err(InvalidPath::TooLong { given: shown() }) } else { Ok(Self(path.into())) }
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is the root.
    pub fn is_root(&self) -> bool {
        &*self.0 == "/"
    }

    /// Its last part; empty for the root.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// The directory it is in; `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        let (before, name) = self.0.rsplit_once('/')?;
        match (before, name) {
            (_, "") => None,
            ("", _) => Some(Self::root()),
            (before, _) => Some(Self(before.into())),
        }
    }

    /// The path of `name` in this directory.
    pub fn child(&self, name: &str) -> Result<Self, InvalidPath> {
        if matches!(name, "" | "." | "..") || name.contains('/') {
            return Err(InvalidPath::NoName { given: crate::text::bounded(name, 80) });
        }
        Self::parse(&format!("{}{name}", self.inside()))
    }

    /// What every path in this directory begins with: the path and a `/`.
    pub fn inside(&self) -> String {
        if self.is_root() { "/".to_owned() } else { format!("{}/", self.0) }
    }
}

impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// A given name made safe as one part of a path, wherever the file may end up: letters, digits, `.`, `_` and `-` stay, runs of
/// anything else become one `-`, and it neither begins with a dot nor has a directory. At most 80 characters, the ending kept.
/// Empty if nothing of it can stay.
pub fn sanitized_name(given: &str) -> String {
    const LONGEST: usize = 80;
    let given = given.rsplit(['/', '\\']).next().unwrap_or_default();
    let mut name = String::new();
    for character in given.chars() {
        if character.is_alphanumeric() || matches!(character, '.' | '_') {
            name.push(character);
        } else if !name.ends_with('-') {
            name.push('-');
        }
    }
    let name = name.trim_matches(['-', '.']);
    if name.chars().count() <= LONGEST {
        return name.to_owned();
    }
    let ending = name.rsplit_once('.').map(|(_, ending)| ending).filter(|ending| ending.chars().count() <= 10);
    match ending {
        Some(ending) => {
            let kept: String = name.chars().take(LONGEST - 1 - ending.chars().count()).collect();
            format!("{kept}.{ending}")
        }
        None => name.chars().take(LONGEST).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(given: &str) -> String {
        FilePath::parse(given).unwrap().as_str().to_owned()
    }

    // rule: standard-agents FIL-13
    #[test]
    fn paths_are_normalised_and_stay_in_the_tree() {
        for (given, wanted) in [
            ("a", "/a"),
            ("/a/b/", "/a/b"),
            ("//a///b", "/a/b"),
            ("./a/./b", "/a/b"),
            ("a/b/../c", "/a/c"),
            ("a/..", "/"),
            (".", "/"),
            ("/", "/"),
            ("...", "/..."),
            ("a b/ç/東京.txt", "/a b/ç/東京.txt"),
            ("C:\\x", "/C:\\x"),
        ] {
            assert_eq!(path(given), wanted, "{given}");
        }
        for given in ["..", "/..", "a/../..", "a/../../a", "/../a"] {
            assert!(matches!(FilePath::parse(given), Err(InvalidPath::Outside { .. })), "{given}");
        }
        for given in ["a\0b", "a\nb", "\u{7f}", "a\u{85}"] {
            assert!(matches!(FilePath::parse(given), Err(InvalidPath::Control { .. })), "{given:?}");
        }
        assert_eq!(FilePath::parse(""), Err(InvalidPath::Empty));
        assert!(FilePath::parse(&"x".repeat(255)).is_ok());
        for long in ["x".repeat(256), "abc/".repeat(300), "ü".repeat(128)] {
            let error = FilePath::parse(&long).unwrap_err();
            assert!(error.to_string().len() < 300, "{error}");
        }
        // Normalising is done once it is done.
        assert_eq!(path(&path("x/../y//z")), "/y/z");
    }

    #[test]
    fn a_path_knows_its_directory() {
        let deep = FilePath::parse("/a/b/c").unwrap();
        let up: Vec<String> = std::iter::successors(Some(deep.clone()), FilePath::parent).map(|path| path.to_string()).collect();
        assert_eq!(up, ["/a/b/c", "/a/b", "/a", "/"]);
        assert_eq!((deep.inside(), FilePath::root().inside()), ("/a/b/c/".to_owned(), "/".to_owned()));
        assert_eq!(FilePath::root().child("x").unwrap().as_str(), "/x");
        for name in ["", ".", "..", "a/b", "/a"] {
            assert!(matches!(deep.child(name), Err(InvalidPath::NoName { .. })), "{name}");
        }
    }

    // rule: standard-agents FIL-10
    #[test]
    fn a_name_from_outside_is_made_safe() {
        for (given, wanted) in [
            ("report.pdf", "report.pdf"),
            ("my  report (final).pdf", "my-report-final-.pdf"),
            ("../../etc/passwd", "passwd"),
            ("C:\\Users\\x\\a.txt", "a.txt"),
            (".bashrc", "bashrc"),
            ("...", ""),
            ("bücher/日本語.txt", "日本語.txt"),
            ("a\0\n\u{202e}b", "a-b"),
            ("", ""),
        ] {
            assert_eq!(sanitized_name(given), wanted, "{given:?}");
        }
        let long = sanitized_name(&format!("{}.jpeg", "x".repeat(300)));
        assert!(long.ends_with("x.jpeg") && long.chars().count() == 80);
    }
}
