//! `read_file`, `list_dir` and `file_info`.

use serde_json::json;
use toolwright_host::files::{FileError, FileKind, FileStat, Root, RootedPath};
use toolwright_tool::{DefinitionError, Tool, ToolError, ToolOutput, args, media_type_of};

use super::text::Text;
use super::{FileTool, Lines, Workspace, counted, file_path_of, folder_path_of, path_of, refused, run, seen, told};

#[args]
struct ReadArgs {
    /// The file, such as src/main.rs.
    path: String,
    /// The first line to read, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    /// How many lines to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
}

/// Reads a text file.
pub(super) fn read_file(workspace: &Workspace) -> Result<Tool, DefinitionError> {
    let defined = workspace.define(FileTool::ReadFile, "Reads a text file. Each line is given with its number and a tab before it.");
    run(workspace, defined, |workspace, args: ReadArgs, cx| async move {
        let path = file_path_of(&args.path)?;
        if args.offset == Some(0) || args.limit == Some(0) {
            return Err(ToolError::invalid(if args.limit == Some(0) { "limit" } else { "offset" }, "lines are counted from 1"));
        }
        let at = path.clone();
        let read = workspace.blocking(move |workspace| Ok(workspace.root.read(&at, workspace.options.max_file))).await?;
        let content = match read {
            Ok(content) => content,
            Err(error) => {
                if matches!(error, FileError::NotFound { .. }) {
                    seen::forget(&workspace, &cx, &path).await?;
                }
                return Err(told(error));
            }
        };
        let Some(text) = Text::read(&content.bytes) else {
            let kind = media_type_of(path.name()).unwrap_or("of unknown type");
            return Err(refused(format!("{path} is no text, but {} bytes, {kind}; use a tool for such files", content.bytes.len())));
        };
        seen::note(&workspace, &cx, &path, &content.bytes).await?;
        shown(&workspace, &path, &text.text, &args)
    })
}

/// A page of a text.
fn shown(workspace: &Workspace, path: &RootedPath, text: &str, args: &ReadArgs) -> Result<ToolOutput, ToolError> {
    let all = text.lines().count();
    if all == 0 {
        return Ok(ToolOutput::text(format!("[{path} is empty]")));
    }
    let first = usize::try_from(args.offset.unwrap_or(1)).unwrap_or(usize::MAX);
    if first > all {
        let has = counted(all, "line", "lines");
        return Err(ToolError::invalid("offset", format!("{path} has {has}, so there is no line {first}; begin with one of those")));
    }
    let most = workspace.options.max_read_lines;
    let wanted = args.limit.and_then(|limit| usize::try_from(limit).ok()).map_or(most, |limit| limit.min(most));
    let mut lines = Lines::new(workspace.options.max_output);
    let (mut last, mut marks) = (first - 1, Vec::new());
    for (at, line) in text.lines().enumerate().skip(first - 1).take(wanted) {
        let number = at + 1;
        if lines.push(&format!("{number:>6}\t{line}")) {
            last = number;
            continue;
        }
        if last < first {
            // A line longer than a whole result: its beginning, and that it is not all.
            let begin: String = line.chars().take(lines.room().saturating_sub(number.to_string().len().max(6) + 1)).collect();
            lines.push(&format!("{number:>6}\t{begin}"));
            marks.push(format!("line {number} has {} characters, of which these are the first", line.chars().count()));
            last = number;
        }
        break;
    }
    if last < all {
        marks.push(format!("lines {first} to {last} of {all}; go on with offset {}", last + 1));
    }
    Ok(lines.finish(&marks))
}

#[args]
struct ListArgs {
    /// The folder; the workspace's own if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<String>,
}

/// The most entries of one folder that are looked at.
const MOST_ENTRIES: usize = 100_000;

/// Lists a folder.
pub(super) fn list_dir(workspace: &Workspace) -> Result<Tool, DefinitionError> {
    let defined = workspace.define(FileTool::ListDir, "Lists what is in a folder. Folders end with a slash.");
    run(workspace, defined, |workspace, args: ListArgs, _cx| async move {
        let path = folder_path_of(args.path.as_deref())?;
        workspace.blocking(move |workspace| listed(workspace, &path)).await
    })
}

fn listed(workspace: &Workspace, path: &RootedPath) -> Result<ToolOutput, ToolError> {
    let (entries, whole) = workspace.root.read_folder(path).and_then(|folder| folder.entries(MOST_ENTRIES)).map_err(told)?;
    if entries.is_empty() {
        return Ok(ToolOutput::text(format!("[{path} is empty]")));
    }
    let mut lines = Lines::new(workspace.options.max_output);
    let mut shown = 0;
    for entry in entries.iter().take(workspace.options.max_results) {
        let name = printable(&entry.name.to_string_lossy());
        let line = match entry.kind {
            FileKind::Folder => format!("{name}/"),
            FileKind::Link => format!("{name} (link)"),
            FileKind::Other => format!("{name} (no file)"),
            FileKind::File => name,
        };
        if !lines.push(&line) {
            break;
        }
        shown += 1;
    }
    let mut marks = Vec::new();
    if shown < entries.len() || !whole {
        let more = if whole { "" } else { " and more" };
        marks.push(format!("the first {shown} of {}{more}; use glob to find the others", entries.len()));
    }
    Ok(lines.finish(&marks))
}

/// A name without characters that would move it to another line.
pub(super) fn printable(name: &str) -> String {
    name.chars().flat_map(|c| if c.is_control() { c.escape_default().collect::<Vec<_>>() } else { vec![c] }).collect()
}

#[args]
struct InfoArgs {
    /// The file or folder.
    path: String,
}

/// What is known of a file or folder.
pub(super) fn file_info(workspace: &Workspace) -> Result<Tool, DefinitionError> {
    let defined = workspace.define(FileTool::FileInfo, "Tells what is known of a file or folder: kind, size, time, mode, lines, encoding.");
    run(workspace, defined, |workspace, args: InfoArgs, _cx| async move {
        let path = path_of(&args.path)?;
        workspace.blocking(move |workspace| info(&workspace.root, workspace.options.max_file, &path)).await
    })
}

fn info(root: &Root, limit: u64, path: &RootedPath) -> Result<ToolOutput, ToolError> {
    let itself = root.stat_itself(path).map_err(told)?;
    let stat = if itself.kind == FileKind::Link { root.stat(path).map_err(told)? } else { itself };
    let mut told_of = json!({ "path": path.to_string(), "kind": kind_of(stat) });
    let mut add = |key: &str, value: serde_json::Value| told_of.as_object_mut().map(|fields| fields.insert(key.to_owned(), value));
    if itself.kind == FileKind::Link {
        add("link", json!(true));
    }
    if let Ok(modified) = jiff::Timestamp::try_from(stat.modified) {
        add("modified", json!(format!("{modified:.0}")));
    }
    add("mode", json!(format!("{:03o}", stat.mode)));
    if stat.kind != FileKind::File {
        return Ok(ToolOutput::json(told_of));
    }
    add("size", json!(stat.size));
    if let Some(media_type) = media_type_of(path.name()) {
        add("mediaType", json!(media_type));
    }
    match root.read(path, limit) {
        Ok(content) => match Text::read(&content.bytes) {
            Some(text) => {
                add("lines", json!(text.text.lines().count()));
                add("encoding", json!(text.form.encoding.name()));
                add("byteOrderMark", json!(text.form.mark));
                add("lineEndings", json!(text.endings().as_str()));
                add("endsWithNewline", json!(text.text.ends_with('\n')));
            }
            None => drop(add("binary", json!(true))),
        },
        Err(FileError::TooLarge { limit, .. }) => drop(add("tooLargeToRead", json!(limit))),
        Err(error) => return Err(told(error)),
    }
    Ok(ToolOutput::json(told_of))
}

fn kind_of(stat: FileStat) -> &'static str {
    match stat.kind {
        FileKind::File => "file",
        FileKind::Folder => "folder",
        FileKind::Link => "link",
        FileKind::Other => "device, socket or pipe",
    }
}
