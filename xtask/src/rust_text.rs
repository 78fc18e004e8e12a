//! Rust source as text: with strings and comments blanked out, and with its test code found.
//!
//! A scanner, not a parser: enough to tell code from prose, so that checks may be plain searches.

use std::path::Path;

/// A source file in three readings with equal line numbers.
pub(crate) struct RustText {
    /// Code alone: comments and the insides of literals are spaces.
    pub(crate) code: Vec<String>,
    /// Code and comments: the insides of literals are spaces.
    pub(crate) commented: Vec<String>,
    /// For each line, whether it is compiled for tests only.
    pub(crate) test: Vec<bool>,
}

impl RustText {
    pub(crate) fn read(path: &str, text: &str) -> Self {
        let (code, commented) = blank(text);
        let code: Vec<String> = code.lines().map(str::to_owned).collect();
        let commented = commented.lines().map(str::to_owned).collect();
        let for_tests = test_lines(path, &code);
        Self { code, commented, test: for_tests }
    }

    /// Code lines with their numbers, from 1, and whether each is test code.
    pub(crate) fn code_lines(&self) -> impl Iterator<Item = (usize, &str, bool)> {
        (1..).zip(&self.code).zip(&self.test).map(|((number, line), test)| (number, line.as_str(), *test))
    }

    /// Each path that a `use` names, written out whole, with the line of its `use`.
    pub(crate) fn uses(&self) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        let mut statement: Option<(usize, String)> = None;
        for (number, line) in (1..).zip(&self.code) {
            let trimmed = line.trim_start();
            if statement.is_none() {
                let start = trimmed
                    .strip_prefix("use ")
                    .or_else(|| trimmed.find(" use ").filter(|_| trimmed.starts_with("pub")).and_then(|at| trimmed.get(at + 5..)));
                statement = start.map(|rest| (number, rest.to_owned()));
            } else if let Some((_, text)) = &mut statement {
                text.push(' ');
                text.push_str(trimmed);
            }
            if let Some((at, text)) = statement.take() {
                match text.split_once(';') {
                    Some((tree, _)) => {
                        let mut paths = Vec::new();
                        expand("", tree, &mut paths);
                        found.extend(paths.into_iter().map(|path| (at, path)));
                    }
                    None => statement = Some((at, text)),
                }
            }
        }
        found
    }
}

/// Writes out a use tree: `std::{fs, io::Read}` is `std::fs` and `std::io::Read`.
fn expand(prefix: &str, tree: &str, paths: &mut Vec<String>) {
    let tree = tree.trim();
    let Some((head, group)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or(tree).trim();
        if !path.is_empty() {
            paths.push(format!("{prefix}{path}"));
        }
        return;
    };
    let group = group.rsplit_once('}').map_or(group, |(inside, _)| inside);
    let head = head.trim();
    let prefix = format!("{prefix}{head}");
    let mut depth = 0usize;
    let mut part = String::new();
    for c in group.chars() {
        match c {
            ',' if depth == 0 => {
                expand(&prefix, &part, paths);
                part.clear();
                continue;
            }
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        part.push(c);
    }
    expand(&prefix, &part, paths);
}

/// The text with comments and literals blanked, and with literals alone blanked.
fn blank(text: &str) -> (String, String) {
    let chars: Vec<char> = text.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let mut code = String::with_capacity(text.len());
    let mut commented = String::with_capacity(text.len());
    let space = |c: char| if c == '\n' { '\n' } else { ' ' };
    let mut i = 0;
    while i < chars.len() {
        let c = at(i);
        let end = match c {
            '/' if at(i + 1) == '/' => {
                let mut end = i;
                while end < chars.len() && at(end) != '\n' {
                    end += 1;
                }
                for &c in chars.get(i..end).unwrap_or_default() {
                    code.push(' ');
                    commented.push(c);
                }
                i = end;
                continue;
            }
            '/' if at(i + 1) == '*' => {
                let mut depth = 0usize;
                let mut end = i;
                while end < chars.len() {
                    if at(end) == '/' && at(end + 1) == '*' {
                        depth += 1;
                        end += 2;
                    } else if at(end) == '*' && at(end + 1) == '/' {
                        depth -= 1;
                        end += 2;
                        if depth == 0 {
                            break;
                        }
                    } else {
                        end += 1;
                    }
                }
                for &c in chars.get(i..end.min(chars.len())).unwrap_or_default() {
                    code.push(space(c));
                    commented.push(c);
                }
                i = end;
                continue;
            }
            'r' if !follows_name(&chars, i) && matches!(at(i + 1), '"' | '#') => raw_end(&chars, i + 1),
            'b' if !follows_name(&chars, i) && at(i + 1) == 'r' && matches!(at(i + 2), '"' | '#') => raw_end(&chars, i + 2),
            '"' => quoted_end(&chars, i, '"'),
            // A lifetime has no closing quote right behind its first letter.
            '\'' if at(i + 1) == '\\' || at(i + 2) == '\'' => quoted_end(&chars, i, '\''),
            _ => i,
        };
        if end > i + 1 {
            code.push(c);
            commented.push(c);
            for &c in chars.get(i + 1..end - 1).unwrap_or_default() {
                code.push(space(c));
                commented.push(space(c));
            }
            let last = at(end - 1);
            code.push(last);
            commented.push(last);
            i = end;
        } else {
            code.push(c);
            commented.push(c);
            i += 1;
        }
    }
    (code, commented)
}

fn follows_name(chars: &[char], i: usize) -> bool {
    i.checked_sub(1).and_then(|before| chars.get(before)).is_some_and(|c| c.is_alphanumeric() || *c == '_')
}

/// Where a literal that opens at `start` ends (behind its closing quote).
fn quoted_end(chars: &[char], start: usize, quote: char) -> usize {
    let mut i = start + 1;
    while let Some(&c) = chars.get(i) {
        match c {
            '\\' => i += 2,
            c if c == quote => return i + 1,
            _ => i += 1,
        }
    }
    chars.len()
}

/// Where a raw string whose hashes or quote begin at `start` ends; `start` itself when it is none.
fn raw_end(chars: &[char], start: usize) -> usize {
    let hashes = chars.iter().skip(start).take_while(|c| **c == '#').count();
    if chars.get(start + hashes) != Some(&'"') {
        return start;
    }
    let mut i = start + hashes + 1;
    while i < chars.len() {
        if chars.get(i) == Some(&'"') && chars.iter().skip(i + 1).take_while(|c| **c == '#').count() >= hashes {
            return i + 1 + hashes;
        }
        i += 1;
    }
    chars.len()
}

/// Which lines are compiled for tests only: whole files by their place, else the items under a test `cfg`.
fn test_lines(path: &str, code: &[String]) -> Vec<bool> {
    let whole = path.contains("/tests/")
        || path.contains("/benches/")
        || Path::new(path).file_stem().is_some_and(|stem| {
            let stem = stem.to_string_lossy();
            stem == "tests" || stem.ends_with("_tests")
        })
        || code.iter().any(|line| line.trim_start().starts_with("#![cfg(test)]"));
    let mut test = vec![whole; code.len()];
    if whole {
        return test;
    }
    let mut line = 0;
    while let Some(text) = code.get(line) {
        if !(text.contains("#[cfg(test)]") || text.contains("#[cfg(all(test") || text.contains("#[cfg(any(test")) {
            line += 1;
            continue;
        }
        let end = item_end(code, line);
        for flag in test.iter_mut().take(end + 1).skip(line) {
            *flag = true;
        }
        line = end + 1;
    }
    test
}

/// The last line of the item whose attributes begin at `start`.
fn item_end(code: &[String], start: usize) -> usize {
    let mut depth = 0i32;
    let mut brackets = 0i32;
    let mut opened = false;
    for (number, line) in code.iter().enumerate().skip(start) {
        for c in line.chars() {
            match c {
                '[' | '(' => brackets += 1,
                ']' | ')' => brackets -= 1,
                '{' => {
                    depth += 1;
                    opened = true;
                }
                '}' => depth -= 1,
                ';' if depth == 0 && brackets == 0 => return number,
                _ => {}
            }
            if opened && depth == 0 {
                return number;
            }
        }
    }
    code.len().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_and_comments_are_no_code() {
        let text = RustText::read(
            "crates/x/src/lib.rs",
            "let a = \"thread::sleep\"; // sleep here\nlet b = r#\"a \"quoted\" sleep\"#; /* sleep /* nested */ */ let c = 'x';\nfn f<'a>(x: &'a str) {}\n",
        );
        assert!(!text.code.iter().any(|line| line.contains("sleep")), "{:?}", text.code);
        assert!(text.commented[0].contains("// sleep here"));
        assert!(text.code[1].contains("let c = ' ';"));
        assert!(text.code[2].contains("fn f<'a>(x: &'a str)"));
    }

    #[test]
    fn grouped_uses_are_written_out() {
        let text = RustText::read(
            "crates/x/src/lib.rs",
            "use std::{fs, time::{Duration, Instant as Now}};\npub(crate) use a::b;\nuse std::{\n    env,\n    net::{self},\n};\n",
        );
        let uses: Vec<String> = text.uses().into_iter().map(|(_, path)| path).collect();
        assert_eq!(uses, ["std::fs", "std::time::Duration", "std::time::Instant", "a::b", "std::env", "std::net::self"]);
    }

    #[test]
    fn test_code_is_found() {
        let text = RustText::read(
            "crates/x/src/lib.rs",
            "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() { let x = [1; 2]; }\n}\nfn c() {}\n#[cfg(test)]\nuse x::{y};\nfn d() {}\n",
        );
        assert_eq!(text.test, [false, true, true, true, true, false, true, true, false]);
        assert!(RustText::read("crates/x/tests/it.rs", "fn a() {}\n").test[0]);
    }
}
