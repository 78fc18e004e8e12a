//! Of which tools a rule speaks: by name, by origin, by what they say of themselves.

use crate::spec::{ToolOrigin, ToolSpec};

/// Names of tools.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Names {
    /// Every tool.
    Any,
    /// The tool of this name.
    Exact(String),
    /// Tools whose whole name fits: `*` is any characters, `?` one.
    Glob(String),
    /// Tools in whose name the regular expression finds something.
    Regex(String),
    /// Tools that any of these names.
    AnyOf(Vec<Names>),
}

impl From<&str> for Names {
    fn from(name: &str) -> Self {
        if name == "*" { Self::Any } else { Self::Exact(name.to_owned()) }
    }
}

impl From<String> for Names {
    fn from(name: String) -> Self {
        Self::from(name.as_str())
    }
}

impl<N: Into<Names>, const COUNT: usize> From<[N; COUNT]> for Names {
    fn from(names: [N; COUNT]) -> Self {
        Self::AnyOf(names.into_iter().map(Into::into).collect())
    }
}

impl<N: Into<Names>> From<Vec<N>> for Names {
    fn from(names: Vec<N>) -> Self {
        Self::AnyOf(names.into_iter().map(Into::into).collect())
    }
}

/// What a tool has to say of itself. `None` asks nothing; `Some(false)` wants a tool that does not say so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// It changes nothing.
    pub read_only: Option<bool>,
    /// It may destroy something.
    pub destructive: Option<bool>,
    /// Repeating a call is harmless.
    pub idempotent: Option<bool>,
    /// It touches the world outside this program.
    pub open_world: Option<bool>,
    /// It edits files.
    pub edits_files: Option<bool>,
}

impl Hints {
    /// Whether anything is asked.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// Whether a tool says so. `trusted` is whether its word counts for a yes; `grants` is whether the rule would be one.
    pub(crate) fn hold(self, spec: &ToolSpec, trusted: bool, grants: bool) -> bool {
        if self.is_empty() {
            return true;
        }
        if grants && !trusted {
            // A hint is never a grant where its origin is not trusted, whichever way it is asked for.
            return false;
        }
        let said = spec.annotations;
        // What calms: an untrusted "I only read" does not take a tool out of a rule about those that do not.
        let calming = |wanted: Option<bool>, says: bool| match wanted {
            None => true,
            Some(true) => says,
            Some(false) => !says || !trusted,
        };
        let alarming = |wanted: Option<bool>, says: bool| wanted.is_none_or(|wanted| wanted == says);
        calming(self.read_only, said.read_only())
            && calming(self.idempotent, said.idempotent())
            && alarming(self.destructive, said.destructive())
            && alarming(self.open_world, said.open_world_hint == Some(true))
            && alarming(self.edits_files, spec.edits_files)
    }
}

/// Of which tools a rule speaks; all that is said has to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matcher {
    /// Their names.
    pub names: Names,
    /// Their origin: a glob over `function`, `value`, `mcp`, `open-api` or `named`, or over one of these, a colon, and what it names: `mcp:docs`.
    pub origin: Option<String>,
    /// What they say of themselves.
    pub hints: Hints,
}

impl Default for Matcher {
    fn default() -> Self {
        Self { names: Names::Any, origin: None, hints: Hints::default() }
    }
}

impl Matcher {
    /// Both this and the other. Of two origins, or two sayings about one hint, the other's counts.
    ///
    /// ```
    /// use toolwright_core::policy::{allow, glob, read_only};
    /// let rule = allow(glob("fs_*").and(read_only()));
    /// ```
    #[must_use]
    pub fn and(mut self, other: impl Into<Self>) -> Self {
        let other: Self = other.into();
        self.names = match (self.names, other.names) {
            (Names::Any, names) | (names, Names::Any) => names,
            // There is no "both" of names: it is what the rule was narrowed to last.
            (_, names) => names,
        };
        self.origin = other.origin.or(self.origin);
        self.hints = Hints {
            read_only: other.hints.read_only.or(self.hints.read_only),
            destructive: other.hints.destructive.or(self.hints.destructive),
            idempotent: other.hints.idempotent.or(self.hints.idempotent),
            open_world: other.hints.open_world.or(self.hints.open_world),
            edits_files: other.hints.edits_files.or(self.hints.edits_files),
        };
        self
    }
}

impl<N: Into<Names>> From<N> for Matcher {
    fn from(names: N) -> Self {
        Self { names: names.into(), ..Self::default() }
    }
}

fn hinted(hints: Hints) -> Matcher {
    Matcher { hints, ..Matcher::default() }
}

/// Every tool.
pub fn any() -> Matcher {
    Matcher::default()
}

/// Tools whose whole name fits a glob: `*` is any characters, `?` one.
pub fn glob(pattern: impl Into<String>) -> Matcher {
    Matcher::from(Names::Glob(pattern.into()))
}

/// Tools in whose name a regular expression finds something; anchor it with `^` and `$`.
pub fn regex(pattern: impl Into<String>) -> Matcher {
    Matcher::from(Names::Regex(pattern.into()))
}

/// Tools of an origin, such as `mcp:docs`; see [`Matcher::origin`].
pub fn origin(pattern: impl Into<String>) -> Matcher {
    Matcher { origin: Some(pattern.into()), ..Matcher::default() }
}

/// Tools that say that they change nothing.
pub fn read_only() -> Matcher {
    hinted(Hints { read_only: Some(true), ..Hints::default() })
}

/// Tools that say that they may destroy something.
pub fn destructive() -> Matcher {
    hinted(Hints { destructive: Some(true), ..Hints::default() })
}

/// Tools for which repeating a call is harmless.
pub fn idempotent() -> Matcher {
    hinted(Hints { idempotent: Some(true), ..Hints::default() })
}

/// Tools that touch the world outside this program.
pub fn open_world() -> Matcher {
    hinted(Hints { open_world: Some(true), ..Hints::default() })
}

/// Tools that edit files.
pub fn edits_files() -> Matcher {
    hinted(Hints { edits_files: Some(true), ..Hints::default() })
}

impl ToolOrigin {
    /// Whether the author of such a tool is whoever builds the agent, so that what it says of itself counts for a yes. What an MCP server, a
    /// document or a script says is a hint (rust reports H-91).
    pub fn is_trusted(&self) -> bool {
        matches!(self, Self::Function { .. } | Self::Value)
    }

    /// Its kind as a word, and what it names.
    pub(crate) fn words(&self) -> (&'static str, &str) {
        match self {
            Self::Function { path, .. } => ("function", path),
            Self::Value => ("value", ""),
            Self::Mcp { server } => ("mcp", server),
            Self::OpenApi { document } => ("open-api", document),
            Self::Named { source } => ("named", source),
        }
    }

    /// Whether a pattern of an origin fits, such as `mcp` or `mcp:docs*`.
    pub fn fits(&self, pattern: &str) -> bool {
        use super::glob::Glob;
        let (kind, name) = self.words();
        match pattern.split_once(':') {
            Some((wanted, of)) => Glob::parse(wanted).is_match(kind) && Glob::parse(of).is_match(name),
            None => Glob::parse(pattern).is_match(kind),
        }
    }
}
