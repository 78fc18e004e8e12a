//! Unified diffs, as `diff -u` and `git diff` write them. Counts in their heads may be wrong, as those of models often are.

use super::{FilePatch, Hunk, Kind, What};

/// What the lines before the hunks of a file say.
#[derive(Default)]
struct Head {
    old: Option<String>,
    new: Option<String>,
    from: Option<String>,
    to: Option<String>,
    executable: bool,
    /// A change of permissions alone.
    mode: bool,
    deleted: bool,
    added: bool,
    /// By git's own line, where nothing else names it.
    git: Option<String>,
}

pub(super) fn read(lines: &[&str]) -> Result<Vec<FilePatch>, String> {
    let mut files = Vec::new();
    let mut at = 0;
    let mut head = Head::default();
    let mut open = false;
    while let Some(line) = lines.get(at) {
        if let Some(both) = line.strip_prefix("diff --git ") {
            if open {
                files.extend(finish(std::mem::take(&mut head), Vec::new(), at)?);
            }
            open = true;
            // `a/x b/x`: where both are one path, its length is known.
            let one = both.strip_prefix("a/").and_then(|rest| rest.get(..rest.len().checked_sub(3)? / 2));
            head.git = one.filter(|one| *both == format!("a/{one} b/{one}")).map(str::to_owned);
        } else if begins_file(lines, at) {
            head.old = line.strip_prefix("--- ").map(|path| named(path).to_owned());
            head.new = lines.get(at + 1).and_then(|line| line.strip_prefix("+++ ")).map(|path| named(path).to_owned());
            at += 2;
            let mut hunks = Vec::new();
            while lines.get(at).is_some_and(|line| line.starts_with("@@")) {
                hunks.push(hunk(lines, &mut at)?);
            }
            files.extend(finish(std::mem::take(&mut head), hunks, at)?);
            open = false;
            continue;
        } else if open {
            match line.split_once(' ') {
                Some(("rename", rest)) if rest.starts_with("from ") => head.from = rest.strip_prefix("from ").map(str::to_owned),
                Some(("rename", rest)) if rest.starts_with("to ") => head.to = rest.strip_prefix("to ").map(str::to_owned),
                Some(("new", rest)) if rest.starts_with("file mode ") => {
                    head.added = true;
                    head.executable = rest.ends_with("755");
                }
                Some(("deleted", _)) => head.deleted = true,
                Some(("old" | "new", rest)) if rest.starts_with("mode ") => head.mode = true,
                Some(("copy", _)) => return Err(format!("line {} of the patch copies a file; write it as a new file", at + 1)),
                Some(("Binary" | "GIT", _)) => {
                    return Err(format!("line {} of the patch changes a file that is no text; only text can be patched", at + 1));
                }
                _ => {}
            }
        } else if line.starts_with("@@") {
            return Err(format!("line {} of the patch is a change of no file; write `--- a/FILE` and `+++ b/FILE` above it", at + 1));
        }
        at += 1;
    }
    if open {
        files.extend(finish(head, Vec::new(), at)?);
    }
    Ok(files)
}

fn begins_file(lines: &[&str], at: usize) -> bool {
    let begins = |at: usize, with: &str| lines.get(at).is_some_and(|line| line.starts_with(with));
    begins(at, "--- ") && begins(at + 1, "+++ ") && (begins(at + 2, "@@") || lines.get(at + 2).is_none_or(|line| line.trim().is_empty()))
}

/// A path without what may follow it behind a tab.
fn named(path: &str) -> &str {
    path.split('\t').next().unwrap_or_default().trim_end()
}

const NOTHING: &str = "/dev/null";

fn finish(head: Head, hunks: Vec<Hunk>, at: usize) -> Result<Option<FilePatch>, String> {
    let plain = |path: &str, with: &str| path.strip_prefix(with).unwrap_or(path).to_owned();
    let (old, new) = (head.old.as_deref(), head.new.as_deref());
    // Git writes `a/` and `b/` before paths; others do not. Both have it, or it is a folder's name.
    let git = old.is_none_or(|path| path == NOTHING || path.starts_with("a/"))
        && new.is_none_or(|path| path == NOTHING || path.starts_with("b/"));
    let (old, new) = if git {
        (old.map(|path| plain(path, "a/")), new.map(|path| plain(path, "b/")))
    } else {
        (old.map(str::to_owned), new.map(str::to_owned))
    };
    let (is_new, is_gone) = (old.as_deref() == Some(NOTHING) || head.added, new.as_deref() == Some(NOTHING) || head.deleted);
    let there = |path: Option<String>| path.filter(|path| path != NOTHING);
    let from = head.from.or_else(|| there(old)).or_else(|| head.git.clone());
    let to = head.to.or_else(|| there(new)).or_else(|| head.git.clone());
    if let Some(quoted) = from.iter().chain(&to).find(|path| path.starts_with('"')) {
        return Err(format!("the patch has the path {quoted} in quotes; write it as it is"));
    }
    let unnamed = || format!("the change above line {} of the patch names no file; write `--- a/FILE` and `+++ b/FILE`", at + 1);
    if is_gone {
        return Ok(Some(FilePatch { path: from.or(to).ok_or_else(unnamed)?, what: What::Delete }));
    }
    if is_new {
        let mut content = String::new();
        for hunk in &hunks {
            if hunk.old().next().is_some() {
                return Err(format!(
                    "the patch makes {} and changes lines of it; a new file has only lines with `+`",
                    to.unwrap_or_default()
                ));
            }
            for (_, line) in &hunk.lines {
                content.push_str(line);
                content.push('\n');
            }
            if hunk.unended.1 {
                content.pop();
            }
        }
        return Ok(Some(FilePatch { path: to.ok_or_else(unnamed)?, what: What::Add { content, executable: head.executable } }));
    }
    let (path, to) = match (from, to) {
        (Some(from), Some(to)) if from != to => (from, Some(to)),
        (Some(path), _) | (None, Some(path)) => (path, None),
        (None, None) => return Err(unnamed()),
    };
    if hunks.is_empty() && to.is_none() {
        let why = if head.mode {
            "changes only permissions, which a patch can't; do it in another way"
        } else {
            "has no `@@` part; write what changes"
        };
        return Err(format!("the patch of {path} {why}"));
    }
    Ok(Some(FilePatch { path, what: What::Change { hunks, to } }))
}

/// `@@ -12,7 +12,8 @@ what stands above`.
fn hunk(lines: &[&str], at: &mut usize) -> Result<Hunk, String> {
    let head = lines.get(*at).copied().unwrap_or_default();
    let range = head.split_whitespace().find_map(|word| word.strip_prefix('-'));
    let (line, count) = match range {
        Some(range) => {
            let (line, count) = range.split_once(',').unwrap_or((range, "1"));
            (line.parse::<usize>().ok(), count.parse::<usize>().ok())
        }
        None => (None, None),
    };
    *at += 1;
    // Of a hunk without old lines, the number is that of the line before.
    let mut hunk = Hunk { at: line.map(|line| if count == Some(0) { line + 1 } else { line }), ..Hunk::default() };
    let mut last = Kind::Keep;
    while let Some(line) = lines.get(*at) {
        if line.starts_with("@@") || line.starts_with("diff --git ") || begins_file(lines, *at) {
            break;
        }
        let mut characters = line.chars();
        let kind = match characters.next() {
            Some('+') => Kind::Add,
            Some('-') => Kind::Remove,
            Some(' ') | None => Kind::Keep,
            Some('\\') => {
                hunk.unended.0 |= last != Kind::Add;
                hunk.unended.1 |= last != Kind::Remove;
                *at += 1;
                continue;
            }
            Some(_) => return Err(format!("line {} of the patch has to begin with a space, `-`, `+` or `@@`", *at + 1)),
        };
        last = kind;
        hunk.lines.push((kind, characters.as_str().to_owned()));
        *at += 1;
    }
    // Empty lines behind it that its head does not count are not the file's.
    let old = hunk.old().count();
    let mut surplus = count.map_or(usize::MAX, |count| old.saturating_sub(count));
    while surplus > 0 && hunk.lines.last().is_some_and(|(kind, line)| *kind == Kind::Keep && line.is_empty()) {
        hunk.lines.pop();
        surplus -= 1;
    }
    if hunk.lines.is_empty() {
        return Err(format!(
            "the `@@` above line {} of the patch has no lines; write those that come with `+` and those that go with `-`",
            *at + 1
        ));
    }
    Ok(hunk)
}
