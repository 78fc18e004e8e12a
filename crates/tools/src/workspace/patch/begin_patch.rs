//! The format that begins with `*** Begin Patch`.

use super::{FilePatch, Hunk, Kind, What};

/// Reads what stands between the first and the last line of it. `first` is the number of the first line.
pub(super) fn read(lines: &[&str], first: usize) -> Result<Vec<FilePatch>, String> {
    let mut files = Vec::new();
    let mut at = 0;
    let heads = ["*** Add File:", "*** Delete File:", "*** Update File:"];
    while let Some(line) = lines.get(at) {
        let number = first + at;
        at += 1;
        let Some((head, path)) = heads.iter().find_map(|head| Some((*head, line.strip_prefix(*head)?.trim()))) else {
            match line.trim() {
                "*** End Patch" => return Ok(files),
                "" => continue,
                _ => {
                    return Err(format!(
                        "line {number} of the patch is none that begins a file; write `*** Update File: PATH`, `*** Add File: PATH` or `*** Delete File: PATH`"
                    ));
                }
            }
        };
        if path.is_empty() {
            return Err(format!("line {number} of the patch names no file; write its path behind the colon"));
        }
        let end = (at..lines.len()).find(|at| lines.get(*at).is_some_and(|line| is_head(line, &heads))).unwrap_or(lines.len());
        let body = lines.get(at..end).unwrap_or_default();
        let what = match head {
            "*** Add File:" => add(body, first + at)?,
            "*** Delete File:" => What::Delete,
            _ => change(body, first + at)?,
        };
        files.push(FilePatch { path: path.to_owned(), what });
        at = end;
    }
    Err("the patch does not end; its last line is `*** End Patch`".to_owned())
}

fn is_head(line: &str, heads: &[&str]) -> bool {
    line.trim_end() == "*** End Patch" || heads.iter().any(|head| line.starts_with(head))
}

fn add(body: &[&str], first: usize) -> Result<What, String> {
    let mut content = String::new();
    for (at, line) in body.iter().enumerate() {
        match line.strip_prefix('+') {
            Some(text) => {
                content.push_str(text);
                content.push('\n');
            }
            None if line.trim().is_empty() => {}
            None => return Err(format!("line {} of the patch is part of a new file, so it has to begin with `+`", first + at)),
        }
    }
    Ok(What::Add { content, executable: false })
}

fn change(body: &[&str], first: usize) -> Result<What, String> {
    let mut to = None;
    let mut hunks: Vec<Hunk> = Vec::new();
    for (at, line) in body.iter().enumerate() {
        let number = first + at;
        if let Some(path) = line.strip_prefix("*** Move to:").map(str::trim).filter(|_| at == 0) {
            to = Some(path.to_owned());
        } else if let Some(head) = line.strip_prefix("@@") {
            // Several in a row narrow down one place; after lines, the next one begins a hunk.
            let head = head.trim().trim_end_matches("@@").trim();
            if hunks.last().is_none_or(|hunk| !hunk.lines.is_empty()) {
                hunks.push(Hunk::default());
            }
            if let Some(hunk) = hunks.last_mut().filter(|_| !head.is_empty()) {
                hunk.below.push(head.to_owned());
            }
        } else if line.trim_end() == "*** End of File" {
            if let Some(hunk) = hunks.last_mut() {
                hunk.at_end = true;
            }
        } else {
            let mut characters = line.chars();
            let kind = match characters.next() {
                Some('+') => Kind::Add,
                Some('-') => Kind::Remove,
                // An empty line whose space is lost is one that stays.
                Some(' ') | None => Kind::Keep,
                Some(_) => return Err(format!("line {number} of the patch has to begin with a space, `-`, `+` or `@@`")),
            };
            if hunks.is_empty() {
                hunks.push(Hunk::default());
            }
            if let Some(hunk) = hunks.last_mut() {
                hunk.lines.push((kind, characters.as_str().to_owned()));
            }
        }
    }
    for hunk in &mut hunks {
        // Empty lines between a hunk and what follows it are not the file's.
        while hunk.lines.last().is_some_and(|(kind, line)| *kind == Kind::Keep && line.is_empty()) {
            hunk.lines.pop();
        }
    }
    hunks.retain(|hunk| !hunk.lines.is_empty());
    if hunks.is_empty() && to.is_none() {
        return Err(format!(
            "the change at line {first} of the patch has no lines; write those that come with `+` and those that go with `-`"
        ));
    }
    Ok(What::Change { hunks, to })
}
