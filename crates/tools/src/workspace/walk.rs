//! A walk through folders: breadth first, in the same order each time, following no link, bounded.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use tokio_util::sync::CancellationToken;
use toolwright_host::files::{FileKind, Root, RootedPath};
use toolwright_tool::ToolError;

use super::{Workspace, refused, told};

/// What is passed over everywhere.
#[derive(Clone, Debug)]
pub(super) struct Ignored {
    /// Plain names, compared as they are.
    names: Vec<String>,
    patterns: Option<Arc<Gitignore>>,
}

impl Ignored {
    /// `.git` and `node_modules`.
    pub(super) fn usual() -> Self {
        Self { names: vec![".git".to_owned(), "node_modules".to_owned()], patterns: None }
    }

    /// As patterns of a `.gitignore`. An error says which one is not valid.
    pub(super) fn of(patterns: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, String> {
        let mut names = Vec::new();
        let mut builder = GitignoreBuilder::new(BASE);
        let mut any = false;
        for pattern in patterns {
            let pattern = pattern.as_ref();
            if pattern.chars().all(|c| c.is_alphanumeric() || matches!(c, '.' | '_' | '-')) && !pattern.is_empty() {
                names.push(pattern.to_owned());
            } else {
                builder
                    .add_line(None, pattern)
                    .map_err(|error| format!("the pattern {pattern:?} is not valid: {error}; write it as in a .gitignore"))?;
                any = true;
            }
        }
        let built = builder.build().map_err(|error| format!("its patterns are not valid: {error}; write them as in a .gitignore"))?;
        Ok(Self { names, patterns: any.then(|| Arc::new(built)) })
    }

    fn has(&self, name: &str, path: &str, is_folder: bool) -> bool {
        self.names.iter().any(|ignored| ignored == name)
            || self.patterns.as_ref().is_some_and(|patterns| patterns.matched(at(path), is_folder).is_ignore())
    }
}

/// Patterns are matched with paths below this one, which stands for the workspace.
const BASE: &str = "/workspace";

fn at(path: &str) -> String {
    format!("{BASE}/{path}")
}

/// The rules of a folder's `.gitignore`, with those of the folders it is in.
struct Rules {
    above: Option<Arc<Rules>>,
    own: Gitignore,
}

impl Rules {
    /// The rules of a folder, from the text of its file; a line that is no pattern counts for nothing, as for git.
    fn read(folder: &str, text: &str, above: Option<Arc<Rules>>) -> Option<Arc<Self>> {
        let mut builder = GitignoreBuilder::new(if folder.is_empty() { BASE.to_owned() } else { at(folder) });
        for line in text.lines() {
            let _ = builder.add_line(None, line);
        }
        match builder.build() {
            Ok(own) if !own.is_empty() => Some(Arc::new(Self { above, own })),
            _ => above,
        }
    }

    /// The folder nearest to a file that says something has the say.
    fn ignores(&self, path: &str, is_folder: bool) -> bool {
        let mut rules = Some(self);
        while let Some(here) = rules {
            match here.own.matched(path, is_folder) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => rules = here.above.as_deref(),
            }
        }
        false
    }
}

/// The files of one folder.
#[derive(Debug)]
pub(super) struct InFolder {
    /// From the folder that the walk began in.
    pub(super) folder: RootedPath,
    /// By name in byte order.
    pub(super) files: Vec<OsString>,
}

/// What a walk came by.
#[derive(Debug, Default)]
pub(super) struct Walked {
    pub(super) folders: Vec<InFolder>,
    /// Files in all of them.
    pub(super) files: usize,
    /// Whether there was more than a walk takes.
    pub(super) cut: bool,
    /// Files and folders that a `.gitignore` names.
    pub(super) ignored: usize,
    /// Folders that can't be read.
    pub(super) unreadable: usize,
}

/// The largest `.gitignore` that is read, in bytes.
const LARGEST: u64 = 1024 * 1024;
const GITIGNORE: &str = ".gitignore";

/// Files below a folder. `below` is the root of that folder, `start` its path in the workspace.
pub(super) fn walk(workspace: &Workspace, below: &Root, start: &RootedPath, stop: &CancellationToken) -> Result<Walked, ToolError> {
    let options = &*workspace.options;
    let mut walked = Walked::default();
    let rules = if options.gitignore { rules_above(&workspace.root, start) } else { None };
    let mut ahead: VecDeque<(RootedPath, Option<Arc<Rules>>)> = VecDeque::from([(RootedPath::root(), rules)]);
    let mut folders = 0;
    while let Some((path, rules)) = ahead.pop_front() {
        if stop.is_cancelled() {
            return Err(refused("the search was stopped"));
        }
        folders += 1;
        if folders > options.max_files {
            walked.cut = true;
            break;
        }
        let opened = below.read_folder_itself(&path).and_then(|folder| Ok((folder.entries(options.max_files.saturating_add(1))?, folder)));
        let ((entries, whole), folder) = match opened {
            Ok(opened) => opened,
            Err(error) if path.is_root() => return Err(told(error)),
            // Gone, swapped for a link, or not ours to read.
            Err(_) => {
                walked.unreadable += 1;
                continue;
            }
        };
        walked.cut |= !whole;
        let in_workspace = joined(start, path.as_str());
        let rules = if options.gitignore && entries.iter().any(|entry| entry.name == GITIGNORE && entry.kind == FileKind::File) {
            let text = folder.read(GITIGNORE.as_ref(), LARGEST, Vec::new()).map(|content| content.bytes).unwrap_or_default();
            Rules::read(&in_workspace, &String::from_utf8_lossy(&text), rules)
        } else {
            rules
        };
        let mut files = Vec::new();
        for entry in entries {
            let is_folder = match entry.kind {
                FileKind::Folder => true,
                FileKind::File => false,
                FileKind::Link | FileKind::Other => continue,
            };
            let name = entry.name.to_string_lossy();
            if options.ignore.names.iter().any(|ignored| *ignored == *name) {
                continue;
            }
            if options.ignore.patterns.is_some() || rules.is_some() {
                let path = if in_workspace.is_empty() { name.to_string() } else { format!("{in_workspace}/{name}") };
                if options.ignore.has(&name, &path, is_folder) {
                    continue;
                }
                if rules.as_ref().is_some_and(|rules| rules.ignores(&at(&path), is_folder)) {
                    walked.ignored += 1;
                    continue;
                }
            }
            if is_folder {
                // A name that no path can hold can't be asked for either.
                match entry.name.to_str().and_then(|name| path.join(name)) {
                    Some(inner) => ahead.push_back((inner, rules.clone())),
                    None => walked.unreadable += 1,
                }
            } else if walked.files + files.len() == options.max_files {
                walked.cut = true;
                break;
            } else {
                files.push(entry.name);
            }
        }
        walked.files += files.len();
        if !files.is_empty() {
            walked.folders.push(InFolder { folder: path, files });
        }
    }
    Ok(walked)
}

/// The rules that the folders above a start have for it.
fn rules_above(root: &Root, start: &RootedPath) -> Option<Arc<Rules>> {
    let mut above = Vec::new();
    let mut here = start.clone();
    while !here.is_root() {
        here = here.parent();
        above.push(here.clone());
    }
    above.into_iter().rev().fold(None, |rules, folder| {
        let file = folder.join(GITIGNORE)?;
        match root.read(&file, LARGEST) {
            Ok(content) => Rules::read(folder.as_str(), &String::from_utf8_lossy(&content.bytes), rules),
            Err(_) => rules,
        }
    })
}

/// A path below a start, as a path of the workspace.
pub(super) fn joined(start: &RootedPath, path: &str) -> String {
    match (start.is_root(), path.is_empty()) {
        (true, _) => path.to_owned(),
        (false, true) => start.as_str().to_owned(),
        (false, false) => format!("{start}/{path}"),
    }
}

/// Marks of what a walk left out.
pub(super) fn marks(workspace: &Workspace, walked: &Walked) -> Vec<String> {
    let mut marks = Vec::new();
    if walked.cut {
        marks.push(format!("only {} files were looked at, and there are more; name a folder with path", workspace.options.max_files));
    }
    if walked.ignored > 0 {
        marks.push(format!("{} files and folders that .gitignore names were left out", walked.ignored));
    }
    if walked.unreadable > 0 {
        marks.push(format!("{} folders could not be read", walked.unreadable));
    }
    marks
}
