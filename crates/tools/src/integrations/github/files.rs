//! Reading a file of a repository.

use base64::Engine as _;
use serde_json::{Value, json};
use toolwright_tool::{Tool, ToolError, args};

use super::JSON;
use super::names::Repository;
use crate::integrations::http::Call;
use crate::integrations::option::OptionError;
use crate::integrations::set::{Access, Hub, ToolSet};
use crate::integrations::shape::{at, compact, items, shortened, text};

/// The most of a file that a model gets at once, in characters.
const LONGEST_PIECE: usize = 40_000;
/// The largest file that is read, in bytes.
const LARGEST_FILE: u64 = 8 * 1024 * 1024;
/// How many entries of a directory a model gets.
const MOST_ENTRIES: usize = 500;

pub(super) fn tool(set: &ToolSet) -> Result<Tool, OptionError> {
    let says = "Reads a text file of a GitHub repository, or lists a directory. Long files come in pieces: go on with from_line.";
    set.tool("read_github_file", says, Access::Reads, read)
}

/// A file, and from where on.
#[args]
pub(super) struct ReadFile {
    /// Owner of the repository.
    owner: String,
    /// Name of the repository.
    repo: String,
    /// Path of the file or directory; empty for the root.
    path: String,
    /// A branch, a tag or a commit; the default branch if left out.
    #[arg(rename = "ref")]
    revision: Option<String>,
    /// The first line to read.
    #[arg(default = 1, range(min = 1))]
    from_line: u64,
}

async fn read(hub: Hub, args: ReadFile) -> Result<Value, ToolError> {
    let repository = Repository::new(&args.owner, &args.repo)?;
    let path = args.path.trim_matches('/');
    let parts: Vec<&str> = if path.is_empty() { Vec::new() } else { path.split('/').collect() };
    if parts.iter().any(|part| matches!(*part, "" | "." | "..") || part.chars().any(char::is_control)) {
        return Err(ToolError::invalid("path", "is the path from the root of the repository, without `.`, `..` and empty parts"));
    }
    let at_revision = args.revision.as_ref().map(|revision| format!(" at {}", shortened(revision, 80))).unwrap_or_default();
    let subject = format!("{} in {repository}{at_revision}", if path.is_empty() { "root directory" } else { path });
    let query: Vec<(&str, &str)> = args.revision.iter().map(|revision| ("ref", revision.as_str())).collect();
    let mut segments = repository.path(&["contents"]);
    segments.extend(parts);
    let url = hub.api.url(segments, &query)?;
    let session = hub.session();
    let call = |accept: &str| Call::get(url.clone(), format!("read {subject}"), &subject).header("accept", accept);
    let (_, found) = session.read(call(JSON)).await?;
    if found.is_array() {
        return Ok(directory(path, &found));
    }
    let kind = text(&found, "/type").unwrap_or_default();
    if kind != "file" || found.get("submodule_git_url").is_some_and(|url| !url.is_null()) {
        let kind = if kind == "file" { "submodule" } else { kind };
        return Err(ToolError::new(format!("{subject} is a {kind}, not a file or a directory")).named("NotAFileError"));
    }
    let size = found.get("size").and_then(Value::as_u64).unwrap_or(0);
    if size > LARGEST_FILE {
        let message = format!("{subject} has {size} bytes, and {LARGEST_FILE} can be read; search in it with search_github_code");
        return Err(ToolError::new(message).named("FileTooLargeError"));
    }
    let bytes = match text(&found, "/encoding") {
        Some("base64") => {
            let packed: String = text(&found, "/content").unwrap_or_default().split_ascii_whitespace().collect();
            let unpacked = base64::engine::general_purpose::STANDARD.decode(packed);
            unpacked.map_err(|_| ToolError::new(format!("GitHub sent {subject} in a form that is no base64")).named("ServiceError"))?.into()
        }
        // From one megabyte on, the content comes only by itself.
        _ => session.ask(call("application/vnd.github.raw+json")).await?.bytes(),
    };
    let Ok(content) = std::str::from_utf8(&bytes) else {
        return Ok(json!({ "path": path, "size": size, "note": "not text in UTF-8, so its content is not shown" }));
    };
    Ok(piece(path, size, content.strip_prefix('\u{feff}').unwrap_or(content), args.from_line))
}

fn directory(path: &str, found: &Value) -> Value {
    let entries = items(found, "");
    let shown: Vec<Value> = entries
        .iter()
        .take(MOST_ENTRIES)
        .map(|entry| {
            let is_file = text(entry, "/type") == Some("file");
            json!({ "name": at(entry, "/name"), "type": at(entry, "/type"), "size": if is_file { at(entry, "/size") } else { Value::Null } })
        })
        .collect();
    let left = entries.len() - shown.len();
    json!({ "path": path, "entries": shown, "entries_left_out": (left > 0).then_some(left) })
}

/// The lines from `from` on, as many as a model gets at once.
fn piece(path: &str, size: u64, content: &str, from: u64) -> Value {
    let total = content.lines().count() as u64;
    let (mut shown, mut characters, mut last) = (String::new(), 0, from.saturating_sub(1));
    for line in content.split_inclusive('\n').skip(usize::try_from(from.saturating_sub(1)).unwrap_or(usize::MAX)) {
        let length = line.chars().count();
        if characters + length > LONGEST_PIECE {
            if shown.is_empty() {
                // A line that is longer than a piece is shown as far as it goes.
                shown = shortened(line, LONGEST_PIECE);
                last += 1;
            }
            break;
        }
        shown.push_str(line);
        characters += length;
        last += 1;
    }
    let next = (last < total).then_some(last + 1);
    let from = (from > 1 || next.is_some()).then_some(from);
    let note = (from.is_some_and(|from| from > total)).then(|| format!("the file has {total} lines"));
    compact(json!({
        "path": path, "size": size, "from_line": from, "lines": total, "content": shown, "next_line": next, "note": note,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_comes_in_pieces_that_join_to_the_whole() {
        let content = (0..9000).map(|line| format!("line {line}\r\n")).collect::<Vec<_>>().concat();
        let (mut from, mut all, mut pieces) = (1, String::new(), 0);
        loop {
            let shown = piece("a", 1, &content, from);
            all.push_str(shown["content"].as_str().unwrap());
            pieces += 1;
            match shown["next_line"].as_u64() {
                Some(next) => from = next,
                None => break,
            }
        }
        assert_eq!((all == content, pieces), (true, 3));
        let whole = piece("a", 2, "a\nb", 1);
        assert_eq!(whole, json!({ "path": "a", "size": 2, "lines": 2, "content": "a\nb" }));
        assert_eq!(piece("a", 2, "a\nb", 7)["note"], "the file has 2 lines");
        assert_eq!(piece("a", 0, "", 1), json!({ "path": "a", "size": 0, "lines": 0, "content": "" }));
        let long = format!("{}\nnext", "x".repeat(LONGEST_PIECE + 1));
        let shown = piece("a", 2, &long, 1);
        assert!(shown["content"].as_str().unwrap().ends_with("x\n[cut: 40000 of 40002 characters]"));
        assert_eq!(shown["next_line"], 2);
    }
}
