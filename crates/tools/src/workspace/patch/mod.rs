//! Patches over several files: unified diffs, and the `*** Begin Patch` format that some models are trained on.

mod apply;
mod begin_patch;
mod unified;

pub(super) use apply::apply;

/// What a patch says about one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FilePatch {
    /// Its path, as written.
    pub(super) path: String,
    pub(super) what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A new file.
    Add { content: String, executable: bool },
    /// It goes.
    Delete,
    /// It changes, and perhaps goes to another path.
    Change { hunks: Vec<Hunk>, to: Option<String> },
}

/// One change in a file: lines that are there, with those that come and go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Hunk {
    pub(super) lines: Vec<(Kind, String)>,
    /// The line, from 1, that its old lines begin on, as the patch says.
    pub(super) at: Option<usize>,
    /// Lines that stand above it, outermost first.
    pub(super) below: Vec<String>,
    /// Whether its old lines are the file's last.
    pub(super) at_end: bool,
    /// What is said of the end of the file's last line, before and after: `true` if it has none.
    pub(super) unended: (bool, bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Keep,
    Remove,
    Add,
}

impl Hunk {
    /// The lines that have to be there.
    pub(super) fn old(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().filter(|(kind, _)| *kind != Kind::Add).map(|(_, line)| line.as_str())
    }
}

/// Reads a patch of either format. An error says what is wrong with it, and what to do.
pub(super) fn read(patch: &str) -> Result<Vec<FilePatch>, String> {
    let lines: Vec<&str> = patch.lines().collect();
    let begins = lines.iter().position(|line| line.trim_end() == "*** Begin Patch");
    let files = match begins {
        Some(at) => begin_patch::read(lines.get(at + 1..).unwrap_or_default(), at + 2)?,
        None => unified::read(&lines)?,
    };
    if files.is_empty() {
        return Err(
            "there is no change in the patch; write a unified diff (`--- a/FILE`, `+++ b/FILE`, `@@`) or one that begins with `*** Begin Patch`"
                .to_owned(),
        );
    }
    Ok(files)
}
