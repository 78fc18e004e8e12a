//! Markers: comment lines directly above a test that say which rule or case it is about.
//!
//! `// rule: sdk-tools 5.2/4` or `// case: rust-reports A-5`, among the test's other comments and attributes.

use std::collections::BTreeMap;

use crate::repo::{File, Tree};
use crate::rust_text::RustText;

/// A test that carries a marker.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Test {
    pub(super) file: String,
    pub(super) name: String,
}

/// A marker's text, and where it stands.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Marked {
    pub(super) tests: Vec<Test>,
    /// `file:line` of the first marker.
    pub(super) at: String,
}

pub(super) type Markers = BTreeMap<String, Marked>;

/// Every marker of the workspace by its rule or case, and what is wrong with some.
pub(super) fn find(tree: &Tree) -> (Markers, Vec<String>) {
    let mut markers = Markers::new();
    let mut faults = Vec::new();
    for (file, rust) in tree.rust() {
        for (at, line) in rust.commented.iter().enumerate() {
            let Some(ids) = marker(line) else { continue };
            let place = format!("{}:{}", file.path, at + 1);
            match test_below(file, rust, at) {
                Ok(test) => {
                    for id in ids.split(',').map(|id| id.split_whitespace().collect::<Vec<_>>().join(" ")) {
                        let marked = markers.entry(id).or_insert_with(|| Marked { tests: Vec::new(), at: place.clone() });
                        if !marked.tests.contains(&test) {
                            marked.tests.push(test.clone());
                        }
                    }
                }
                Err(why) => faults.push(format!("{place}: {why}")),
            }
        }
    }
    for marked in markers.values_mut() {
        marked.tests.sort();
    }
    (markers, faults)
}

/// What a marker line names.
fn marker(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?.trim_start();
    text.strip_prefix("rule:").or_else(|| text.strip_prefix("case:")).map(str::trim)
}

/// The test function whose comments and attributes hold line `at`.
fn test_below(file: &File, rust: &RustText, at: usize) -> Result<Test, String> {
    let code = |line: usize| rust.code.get(line).map_or("", |text| text.trim());
    let blank = |line: usize| rust.commented.get(line).is_none_or(|text| text.trim().is_empty());
    let mut attributes = String::new();
    let mut open = 0i32;
    let mut line = at;
    let name = loop {
        line += 1;
        let text = code(line);
        if blank(line) && open == 0 {
            return Err("a marker stands directly above its test; nothing follows this one".to_owned());
        }
        if text.is_empty() {
            continue;
        }
        if open == 0 && !text.starts_with("#[") {
            match function_name(text) {
                Some(name) => break name.to_owned(),
                None => return Err("a marker stands above a test function; this one stands above something else".to_owned()),
            }
        }
        open += brackets(text);
        attributes.push_str(text);
        attributes.push('\n');
    };
    // Attributes may stand above the marker too.
    let mut above: Vec<&str> =
        (0..at).rev().take_while(|line| !blank(*line) && !code(*line).ends_with(['{', '}', ';'])).map(code).collect();
    above.reverse();
    attributes.push_str(&above.concat());
    if is_test(&attributes) {
        return Ok(Test { file: file.path.clone(), name });
    }
    Err(format!("`{name}` is no test; put the marker above a function with `#[test]`"))
}

fn brackets(text: &str) -> i32 {
    text.chars()
        .map(|c| match c {
            '[' | '(' | '{' => 1,
            ']' | ')' | '}' => -1,
            _ => 0,
        })
        .sum()
}

fn function_name(text: &str) -> Option<&str> {
    let (before, after) = text.split_once("fn ")?;
    let modifiers = before.split_whitespace().all(|word| matches!(word, "pub" | "async" | "const" | "unsafe") || word.starts_with("pub("));
    let name = after.split(['(', '<', ' ']).next()?;
    (modifiers && !name.is_empty()).then_some(name)
}

/// Whether one of these attributes makes a test: `#[test]`, `#[tokio::test(...)]` and the like.
fn is_test(attributes: &str) -> bool {
    attributes.split("#[").skip(1).any(|attribute| {
        let path = attribute.split(['(', ']']).next().unwrap_or_default().trim();
        path.rsplit("::").next() == Some("test")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_find_their_tests() {
        let tree = Tree::of(&[
            (
                "crates/core/src/a.rs",
                "#[cfg(test)]\nmod tests {\n    // rule: sdk-tools 1.2/1\n    // case: field-reports 20, field-reports 22\n    #[test]\n    fn plain() {}\n\n    /// Words.\n    #[tokio::test(\n        start_paused = true,\n    )]\n    // rule: sdk-tools 1.2/1\n    async fn waits() {}\n}\n",
            ),
            ("crates/core/src/b.rs", "const X: &str = \"\n// rule: in a string\n\";\n"),
        ]);
        let (markers, faults) = find(&tree);
        assert_eq!(faults, Vec::<String>::new());
        let names = |id: &str| markers[id].tests.iter().map(|test| test.name.as_str()).collect::<Vec<_>>();
        assert_eq!(names("sdk-tools 1.2/1"), ["plain", "waits"]);
        assert_eq!(names("field-reports 20"), ["plain"]);
        assert_eq!(names("field-reports 22"), ["plain"]);
        assert_eq!(markers.len(), 3);
    }

    #[test]
    fn a_marker_without_a_test_is_a_fault() {
        for (text, why) in [
            ("// rule: a 1/1\n\n#[test]\nfn t() {}\n", "directly above"),
            ("// rule: a 1/1\nfn t() {}\n", "is no test"),
            ("// rule: a 1/1\nmod x;\n", "something else"),
            ("// rule: a 1/1\n", "directly above"),
            ("#[test]\nfn other() {}\n// rule: a 1/1\nfn t() {}\n", "is no test"),
        ] {
            let (markers, faults) = find(&Tree::of(&[("crates/x/src/lib.rs", text)]));
            assert!(markers.is_empty(), "{text}");
            assert!(faults[0].starts_with("crates/x/src/lib.rs:"), "{faults:?}");
            assert!(faults[0].contains(why), "{text} gave {faults:?}");
        }
    }
}
