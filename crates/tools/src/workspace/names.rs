//! `glob`.

use globset::{GlobBuilder, GlobMatcher};
use tokio_util::sync::CancellationToken;
use toolwright_host::files::{FileError, RootedPath};
use toolwright_tool::{DefinitionError, Tool, ToolError, ToolOutput, args};

use super::walk::{joined, marks, walk};
use super::{FileTool, Lines, Workspace, folder_path_of, run, told};

#[args]
struct GlobArgs {
    /// Such as src/**/*.rs: * is within a name, ** is any number of folders.
    pattern: String,
    /// The folder that the pattern begins in; the workspace's own if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<String>,
}

/// Finds files by their paths.
pub(super) fn glob(workspace: &Workspace) -> Result<Tool, DefinitionError> {
    let defined = workspace.define(FileTool::Glob, "Finds files whose paths match a pattern such as **/*.md. Links are not followed.");
    run(workspace, defined, |workspace, args: GlobArgs, cx| async move {
        let path = folder_path_of(args.path.as_deref())?;
        let stop = cx.cancelled();
        workspace.blocking(move |workspace| found(workspace, &args.pattern, &path, &stop)).await
    })
}

/// The longest pattern, in characters.
const LONGEST: usize = 1_000;

/// A glob on whole paths.
pub(super) fn compiled(pattern: &str) -> Result<GlobMatcher, ToolError> {
    let refused =
        |why: &str| Err(ToolError::invalid("pattern", format!("the pattern {:?} {why}", toolwright_tool::core::bounded(pattern, 80))));
    if pattern.chars().count() > LONGEST {
        return refused("is too long; use at most 1,000 characters");
    }
    if pattern.starts_with('/') || pattern.split('/').any(|name| name == "..") {
        return refused("leads out of the folder; write it from that folder on, such as src/**/*.rs");
    }
    let plain = pattern.trim_start_matches("./");
    if plain.is_empty() {
        return refused("is empty; write one such as **/*.md");
    }
    match GlobBuilder::new(plain).literal_separator(true).empty_alternates(true).build() {
        Ok(glob) => Ok(glob.compile_matcher()),
        Err(error) => refused(&format!("is not valid: {}; write one such as src/**/*.rs", error.kind())),
    }
}

/// The folders that a pattern begins with by name: nothing else needs to be looked at.
fn plain_folders(pattern: &str) -> (RootedPath, String) {
    let mut folder = RootedPath::root();
    let mut rest = pattern.trim_start_matches("./");
    while let Some((name, after)) = rest.split_once('/') {
        let plain = name.chars().all(|c| !matches!(c, '*' | '?' | '[' | ']' | '{' | '}' | '\\' | '!' | ','));
        let Some(next) = folder.join(name).filter(|_| plain) else { break };
        folder = next;
        rest = after;
    }
    (folder, rest.to_owned())
}

fn found(workspace: &Workspace, pattern: &str, path: &RootedPath, stop: &CancellationToken) -> Result<ToolOutput, ToolError> {
    compiled(pattern)?;
    let (folders, rest) = plain_folders(pattern);
    let start = RootedPath::parse(&joined(path, folders.as_str())).map_err(told)?;
    // Where the pattern names a folder that is not there, nothing matches; a path that is not there is a mistake.
    let below = match workspace.root.below(&start) {
        Ok(below) => below,
        Err(FileError::NotFound { .. } | FileError::NotAFolder { .. }) if !folders.is_root() => {
            workspace.root.below(path).map_err(told)?;
            return Ok(nothing(pattern, path, &[]));
        }
        Err(error) => return Err(told(error)),
    };
    let glob = compiled(&rest)?;
    let walked = walk(workspace, &below, &start, stop)?;
    let mut matching = Vec::new();
    for in_folder in &walked.folders {
        for name in &in_folder.files {
            let Some(name) = name.to_str() else { continue };
            let inside = in_folder.folder.as_str();
            let whole = if inside.is_empty() { name.to_owned() } else { format!("{inside}/{name}") };
            if glob.is_match(&whole) {
                matching.push(whole);
            }
        }
    }
    matching.sort_unstable();
    let mut marks = marks(workspace, &walked);
    if matching.is_empty() {
        return Ok(nothing(pattern, path, &marks));
    }
    let mut lines = Lines::new(workspace.options.max_output);
    let mut shown = 0;
    for file in matching.iter().take(workspace.options.max_results) {
        if !lines.push(&super::read_tools::printable(&joined(&start, file))) {
            break;
        }
        shown += 1;
    }
    if shown < matching.len() {
        marks.insert(0, format!("the first {shown} of {} files; use a narrower pattern", matching.len()));
    }
    Ok(lines.finish(&marks))
}

fn nothing(pattern: &str, path: &RootedPath, marks: &[String]) -> ToolOutput {
    let pattern = toolwright_tool::core::bounded(pattern, 80);
    let deeper = if pattern.contains('/') { String::new() } else { format!("; **/{pattern} looks in every folder") };
    let mut all = vec![format!("no file in {path} matches {pattern}{deeper}")];
    all.extend(marks.iter().cloned());
    Lines::new(usize::MAX).finish(&all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_begin_with_plain_folders() {
        for (pattern, folder, rest) in [
            ("src/**/*.rs", "src", "**/*.rs"),
            ("./a/b/c.txt", "a/b", "c.txt"),
            ("*.md", "", "*.md"),
            ("a/{b,c}/d", "a", "{b,c}/d"),
            ("**/x", "", "**/x"),
        ] {
            assert_eq!(plain_folders(pattern), (RootedPath::parse(folder).unwrap(), rest.to_owned()), "{pattern}");
        }
        for pattern in ["", "./", "/etc/*", "../*", "a/../../b", "[a", "{a", &"a".repeat(2_000)] {
            assert!(compiled(pattern).is_err(), "{pattern}");
        }
    }
}
