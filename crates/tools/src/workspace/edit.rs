//! Replacing text by text: literally, in one place unless all are meant, whatever the line endings are.

use super::text::{with_crlf, with_lf};

/// One replacement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edit<'a> {
    pub(super) old: &'a str,
    pub(super) new: &'a str,
    pub(super) all: bool,
}

/// A text with replacements made, and the lines, from 1, that they begin on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Edited {
    pub(super) text: String,
    pub(super) lines: Vec<usize>,
}

/// Why nothing was replaced: what is wrong, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Misfit {
    Empty,
    Same,
    Absent(String),
    Repeated(Vec<usize>),
}

/// Lines that are named in an error.
const NAMED: usize = 20;

impl std::fmt::Display for Misfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Empty => f.write_str("old_string is empty; give the text to replace, or write a whole file with write_file"),
            Self::Same => f.write_str("old_string and new_string are the same, so nothing would change; say what it shall become"),
            Self::Absent(hint) => write!(f, "old_string is not in the file; {hint}"),
            Self::Repeated(lines) => {
                let shown: Vec<String> = lines.iter().take(NAMED).map(usize::to_string).collect();
                let more = if lines.len() > NAMED { ", and more" } else { "" };
                write!(
                    f,
                    "old_string is in the file {} times, at lines {}{more}; add text around it so that it fits one place, or set replace_all",
                    lines.len(),
                    shown.join(", ")
                )
            }
        }
    }
}

/// A text with `\n` for every line ending, which knows where each of its bytes was.
struct Folded {
    text: String,
    /// Where, in the folded text, a `\r` was taken out: before the `\n` that stands there.
    taken: Vec<usize>,
}

impl Folded {
    fn of(text: &str) -> Self {
        let mut folded = Self { text: String::with_capacity(text.len()), taken: Vec::new() };
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("\r\n") {
            folded.text.push_str(before);
            folded.taken.push(folded.text.len());
            folded.text.push('\n');
            rest = after;
        }
        folded.text.push_str(rest);
        folded
    }

    /// The place in the whole text of a place in the folded one; between `\r` and `\n` there is none.
    fn place(&self, at: usize) -> usize {
        at + self.taken.partition_point(|taken| *taken < at)
    }
}

/// Every place where `wanted` begins, those that overlap as well.
fn places(text: &str, wanted: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = text.get(from..).and_then(|rest| rest.find(wanted)) {
        found.push(from + at);
        let step = text.get(from + at..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8);
        from += at + step;
    }
    found
}

fn line_of(text: &str, at: usize) -> usize {
    text.get(..at).unwrap_or_default().matches('\n').count() + 1
}

/// Makes a replacement. A line ending in `old` fits any of the two, and `new` gets those of the place it comes to.
pub(super) fn replace(text: &str, edit: Edit<'_>) -> Result<Edited, Misfit> {
    if edit.old.is_empty() {
        return Err(Misfit::Empty);
    }
    let folded = Folded::of(text);
    let old = with_lf(edit.old);
    let found = places(&folded.text, &old);
    if found.is_empty() {
        return Err(Misfit::Absent(hint(&folded.text, &old)));
    }
    if edit.old == edit.new {
        return Err(Misfit::Same);
    }
    if found.len() > 1 && !edit.all {
        return Err(Misfit::Repeated(found.iter().map(|at| line_of(&folded.text, *at)).collect()));
    }
    let mut edited = Edited { text: String::with_capacity(text.len() + edit.new.len()), lines: Vec::new() };
    // Up to where, in each of both texts, it is done.
    let (mut done, mut free) = (0, 0);
    for at in found {
        if at < free {
            continue;
        }
        free = at + old.len();
        let (begin, end) = (folded.place(at), folded.place(free));
        edited.text.push_str(text.get(done..begin).unwrap_or_default());
        edited.text.push_str(&fitted(text, begin, end, edit));
        edited.lines.push(line_of(&folded.text, at));
        done = end;
    }
    edited.text.push_str(text.get(done..).unwrap_or_default());
    Ok(edited)
}

/// What is put in: with the line endings of what it replaces, else of the line it comes to, else of the line above.
fn fitted(text: &str, begin: usize, end: usize, edit: Edit<'_>) -> String {
    let (before, replaced, after) = (text.get(..begin), text.get(begin..end), text.get(end..));
    let ends_with_crlf = |text: Option<&str>, last: bool| {
        let text = text.unwrap_or_default();
        let at = if last { text.rfind('\n') } else { text.find('\n') }?;
        Some(text.get(..at).is_some_and(|line| line.ends_with('\r')))
    };
    // Where nothing but the line's own ending follows, that is found in what comes after.
    match ends_with_crlf(replaced, false).or_else(|| ends_with_crlf(after, false)).or_else(|| ends_with_crlf(before, true)) {
        Some(true) => with_crlf(edit.new),
        // Who wrote `\r\n` for what has `\n` means line endings, not bytes.
        Some(false) if edit.old.contains("\r\n") => with_lf(edit.new),
        _ => edit.new.to_owned(),
    }
}

/// What may help where a text was not found.
fn hint(text: &str, old: &str) -> String {
    let numbered = |line: &str| {
        line.trim_start().split_once('\t').is_some_and(|(number, _)| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
    };
    if old.lines().any(numbered) && old.lines().all(|line| line.is_empty() || numbered(line)) {
        return "leave out the line numbers and tabs that read_file puts before each line".to_owned();
    }
    let squeezed = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let wanted: Vec<String> = old.lines().map(squeezed).collect();
    let lines: Vec<String> = text.lines().map(squeezed).collect();
    let alike = |at: &usize| lines.get(*at..*at + wanted.len()).is_some_and(|there| there == wanted.as_slice());
    if wanted.iter().any(|line| !line.is_empty())
        && let Some(at) = (0..lines.len()).find(alike)
    {
        let (first, last) = (at + 1, at + wanted.len());
        return format!("lines {first} to {last} differ from it only in white space: read them again and copy them as they are");
    }
    let first = wanted.iter().find(|line| !line.is_empty());
    if wanted.len() > 1
        && let Some(first) = first
        && let Some(at) = lines.iter().position(|line| line == first)
    {
        return format!("its first line is line {} of the file, but what follows there is something else: read it again", at + 1);
    }
    "read the file again and copy the text as it is there".to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn edit(text: &str, old: &str, new: &str) -> Result<String, Misfit> {
        replace(text, Edit { old, new, all: false }).map(|edited| edited.text)
    }

    fn all(text: &str, old: &str, new: &str) -> Edited {
        replace(text, Edit { old, new, all: true }).unwrap()
    }

    // case: field-reports 104
    #[test]
    fn line_endings_fit_each_other_and_stay() {
        assert_eq!(edit("a\r\nb\r\n", "a\nb", "a\nc").unwrap(), "a\r\nc\r\n");
        assert_eq!(edit("a\r\nb\r\n", "a\nb\n", "x\n").unwrap(), "x\r\n");
        assert_eq!(edit("a\r\nb\r\n", "a\r\nb", "a\r\nc").unwrap(), "a\r\nc\r\n");
        assert_eq!(edit("a\nb\n", "a\r\nb", "a\r\nc").unwrap(), "a\nc\n");
        // New lines are those of the file, also where the old text had none.
        assert_eq!(edit("a\r\nb\r\n", "b", "b\nc").unwrap(), "a\r\nb\r\nc\r\n");
        assert_eq!(edit("a\r\nb", "b", "b\nc").unwrap(), "a\r\nb\r\nc");
        assert_eq!(edit("a\nb\r\nc\n", "b", "b\nx").unwrap(), "a\nb\r\nx\r\nc\n");
        // A pair is never split, whichever half is named.
        assert_eq!(edit("a\r\nb\r\n", "\nb", "\nc").unwrap(), "a\r\nc\r\n");
        assert_eq!(edit("a\r\nb\r\n", "a", "").unwrap(), "\r\nb\r\n");
        assert_eq!(edit("a\rb\n", "a\rb", "c").unwrap(), "c\n");
        assert_eq!(edit("a\n", "a", "b\r\nc").unwrap(), "b\r\nc\n", "what is written as bytes stays so");
    }

    // case: field-reports 112
    #[test]
    fn a_replacement_is_put_in_as_it_is() {
        for new in ["log(\"$& ok\");", "$$", "`$`", "$'", "\\1", "${1}", "$0", "\\n", "%s{}"] {
            assert_eq!(edit("x old y", "old", new).unwrap(), format!("x {new} y"));
            assert_eq!(all("old old", "old", new).text, format!("{new} {new}"));
        }
        assert_eq!(edit("a.b a+b", "a.b", "c").unwrap(), "c a+b", "what is looked for is no pattern either");
    }

    // case: field-reports 113
    #[test]
    fn what_is_there_twice_is_not_replaced_once() {
        let error = edit("x=1\nx=1\n", "x=1", "x=2").unwrap_err();
        assert_eq!(error, Misfit::Repeated(vec![1, 2]));
        assert_eq!(
            error.to_string(),
            "old_string is in the file 2 times, at lines 1, 2; add text around it so that it fits one place, or set replace_all"
        );
        assert_eq!(all("x=1\nx=1\n", "x=1", "x=2"), Edited { text: "x=2\nx=2\n".into(), lines: vec![1, 2] });
        // Places that overlap are two as well.
        assert_eq!(edit("aaa", "aa", "b").unwrap_err(), Misfit::Repeated(vec![1, 1]));
        assert_eq!(all("aaa", "aa", "b").text, "ba");
        assert_eq!(edit("a\nb\r\na\r\nb\n", "a\nb", "c").unwrap_err(), Misfit::Repeated(vec![1, 3]));
        assert!(edit(&"x\n".repeat(50), "x", "y").unwrap_err().to_string().contains("20, and more"));
    }

    #[test]
    fn what_is_not_there_is_told_with_what_may_help() {
        let text = "fn main() {\n    run();\n}\n";
        for (old, wanted) in [
            ("fn main() {\n  run();\n}", "lines 1 to 3 differ from it only in white space"),
            ("     1\tfn main() {\n     2\t    run();", "leave out the line numbers"),
            ("fn main() {\n    stop();", "its first line is line 1"),
            ("nowhere", "read the file again"),
        ] {
            let error = edit(text, old, "x").unwrap_err().to_string();
            assert!(error.starts_with("old_string is not in the file; ") && error.contains(wanted), "{error}");
        }
        assert_eq!(edit(text, "", "x"), Err(Misfit::Empty));
        assert_eq!(edit(text, "run", "run"), Err(Misfit::Same));
    }

    /// Text of few characters, so that what is looked for is often there, once or more often.
    fn text() -> impl Strategy<Value = String> {
        proptest::collection::vec(prop_oneof![Just("a"), Just("b"), Just("é"), Just("$&"), Just("\\1"), Just(" "), Just("\n")], 0..12)
            .prop_map(|pieces| pieces.concat())
    }

    proptest! {
        /// Files whose line endings are of one kind and of which at least one stays. What a thread read has only `\n`.
        #[test]
        fn an_edit_and_its_inverse_restore_every_byte(
            (before, old, after, new) in (text(), text(), text(), text()), crlf in any::<bool>(), last in any::<bool>(),
        ) {
            let text = format!("top\n{before}{old}{after}{}", if last { "\n" } else { "" });
            let file = if crlf { with_crlf(&text) } else { text };
            if let Ok(there) = replace(&file, Edit { old: &old, new: &new, all: false }) {
                prop_assert_eq!(there.lines.len(), 1);
                prop_assert!(!crlf || !with_lf(&there.text).contains('\r'));
                if let Ok(back) = replace(&there.text, Edit { old: &new, new: &old, all: false }) {
                    prop_assert_eq!(back.text, file);
                }
            }
        }

        /// Within a line nothing but that text changes, whatever the file is made of.
        #[test]
        fn what_stands_around_an_edit_stays(before in any::<String>(), after in any::<String>(), new in "[^\r\n]*") {
            let file = format!("{before}\u{1}old\u{1}{after}");
            if let Ok(edited) = replace(&file, Edit { old: "\u{1}old\u{1}", new: &new, all: false }) {
                prop_assert_eq!(edited.text, format!("{before}{new}{after}"));
            }
        }

        #[test]
        fn all_places_are_replaced_as_text_is(text in text(), old in "[ab]{1,2}", new in "[ab$]{0,2}") {
            if let Ok(edited) = replace(&text, Edit { old: &old, new: &new, all: true }) {
                prop_assert_eq!(edited.text, text.replace(&old, &new));
            }
        }
    }
}
