//! Hunks on the text of a file.

use super::{Hunk, Kind};

/// A line and how it ends: `\n`, `\r\n`, or with the file.
#[derive(Clone, Copy, Debug)]
struct Line<'a> {
    text: &'a str,
    end: &'a str,
}

fn lines_of(text: &str) -> Vec<Line<'_>> {
    let one = |line: &str| -> usize { if line.ends_with("\r\n") { 2 } else { usize::from(line.ends_with('\n')) } };
    text.split_inclusive('\n')
        .map(|line| {
            let (text, end) = line.split_at_checked(line.len() - one(line)).unwrap_or((line, ""));
            Line { text, end }
        })
        .collect()
}

/// Lines that are named in an error.
const NAMED: usize = 10;

/// The text after the hunks, in their order; the endings of lines stay as they are, and new lines get those around them. An
/// error says which hunk does not fit, why, and what to do.
pub(in crate::workspace) fn apply(text: &str, hunks: &[Hunk]) -> Result<String, String> {
    let old = lines_of(text);
    let mut new: Vec<(String, &str)> = Vec::with_capacity(old.len() + 8);
    let mut done = 0;
    for (number, hunk) in hunks.iter().enumerate() {
        let at = place(&old, done, hunk).map_err(|why| format!("hunk {} {why}", number + 1))?;
        new.extend(old.get(done..at).unwrap_or_default().iter().map(|line| (line.text.to_owned(), line.end)));
        done = at;
        // The ending of new lines: of the lines they stand with, of those above, of those below.
        let with = old.get(at..at + hunk.old().count()).unwrap_or_default();
        let above = old.get(..at).unwrap_or_default().iter().rev();
        let end = with.iter().chain(above).chain(&old).map(|line| line.end).find(|end| !end.is_empty()).unwrap_or("\n");
        let unended = old.last().is_some_and(|line| line.end.is_empty());
        for (kind, line) in &hunk.lines {
            match kind {
                Kind::Add => {
                    if let Some(last) = new.last_mut().filter(|last| last.1.is_empty()) {
                        last.1 = end;
                    }
                    new.push((line.clone(), end));
                }
                Kind::Remove => done += 1,
                Kind::Keep => {
                    if let Some(last) = new.last_mut().filter(|last| last.1.is_empty()) {
                        last.1 = end;
                    }
                    new.extend(old.get(done).map(|line| (line.text.to_owned(), line.end)));
                    done += 1;
                }
            }
        }
        // What the last line of all ends with: as the patch says, else as it was.
        if done == old.len()
            && let Some(last) = new.last_mut()
        {
            match hunk.unended {
                (_, true) => last.1 = "",
                (true, false) => last.1 = end,
                (false, false) if unended => last.1 = "",
                (false, false) if last.1.is_empty() => last.1 = end,
                (false, false) => {}
            }
        }
    }
    new.extend(old.get(done..).unwrap_or_default().iter().map(|line| (line.text.to_owned(), line.end)));
    Ok(new.into_iter().flat_map(|(text, end)| [text, end.to_owned()]).collect())
}

/// The line, from 0, at which the old lines of a hunk stand, from `from` on.
fn place(lines: &[Line<'_>], from: usize, hunk: &Hunk) -> Result<usize, String> {
    let mut from = from;
    for head in &hunk.below {
        let stands =
            |at: &usize| lines.get(*at).is_some_and(|line| line.text.trim() == head || line.text.trim_start().starts_with(head.as_str()));
        let at = (from..lines.len()).find(stands).ok_or_else(|| {
            format!(
                "stands below a line {:?} that is not in the rest of the file; copy it as it is there",
                toolwright_tool::core::bounded(head, 80)
            )
        })?;
        from = at + 1;
    }
    let old: Vec<&str> = hunk.old().collect();
    if old.is_empty() {
        let at = match hunk.at {
            Some(line) => line.saturating_sub(1),
            None if hunk.below.is_empty() => lines.len(),
            None => from,
        };
        return if (from..=lines.len()).contains(&at) {
            Ok(at)
        } else {
            Err(format!("goes to line {}, where the file has no place for it", at + 1))
        };
    }
    let last = lines.len().checked_sub(old.len()).filter(|last| *last >= from);
    let first = if hunk.at_end { last.unwrap_or(from) } else { from };
    let fits = |exact: bool| -> Vec<usize> {
        let Some(last) = last else { return Vec::new() };
        let same = |a: &str, b: &str| if exact { a == b } else { a.trim_end() == b.trim_end() };
        let fits = |at: &usize| {
            lines.get(*at..*at + old.len()).is_some_and(|there| there.iter().zip(&old).all(|(line, old)| same(line.text, old)))
        };
        (first..=last).filter(fits).collect()
    };
    let mut found = fits(true);
    if found.is_empty() {
        // A space more at the end of a line is nothing that anybody sees.
        found = fits(false);
    }
    match (found.as_slice(), hunk.at) {
        ([], _) => Err(missing(lines, from, &old)),
        ([at], _) => Ok(*at),
        (several, Some(line)) if several.contains(&line.wrapping_sub(1)) => Ok(line - 1),
        ([at, ..], _) if !hunk.below.is_empty() => Ok(*at),
        (several, _) => {
            let shown: Vec<String> = several.iter().take(NAMED).map(|at| (at + 1).to_string()).collect();
            let more = if several.len() > NAMED { ", and more" } else { "" };
            Err(format!(
                "fits {} places, at lines {}{more}; give it more lines around the change, so that it fits one",
                several.len(),
                shown.join(", ")
            ))
        }
    }
}

fn missing(lines: &[Line<'_>], from: usize, old: &[&str]) -> String {
    let wanted = old.iter().find(|line| !line.trim().is_empty()).copied().unwrap_or_default();
    let shown = toolwright_tool::core::bounded(wanted, 80);
    match lines.iter().enumerate().skip(from).find(|(_, line)| line.text.trim() == wanted.trim()) {
        Some((at, _)) => {
            format!("does not fit: {shown:?} is line {} of the file, but the lines around it differ; read the file again", at + 1)
        }
        None => format!("does not fit: the line {shown:?} is not in the rest of the file; read the file again"),
    }
}
