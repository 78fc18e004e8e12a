//! Checks of Rust source.

use super::Violation;
use crate::repo::Tree;

/// Beyond this many lines a file has a second purpose.
pub(super) const LINE_LIMIT: usize = 900;

/// Files that may be longer, each with its reason.
const LONG_FILES: &[(&str, &str)] = &[];

/// What core never touches: path, and what to do instead.
const NOT_IN_CORE: &[(&str, &str)] = &[
    ("std::fs", "core does no I/O; read files outside and pass their content in"),
    ("std::net", "core does no I/O"),
    ("std::process", "core starts no process and never exits"),
    ("std::env", "core reads no environment; pass values in"),
    ("std::thread", "core has no threads; return an action and let the driver act"),
    ("std::time::SystemTime", "core has no clock; time comes in with records"),
    ("std::time::Instant", "core has no clock; time comes in with records"),
    ("std::io::stdin", "core does no I/O"),
    ("std::io::stdout", "core does no I/O"),
    ("std::io::stderr", "core does no I/O"),
];

/// A thing that is done in one place only.
struct OnePlace {
    /// Code that does it, as it stands in source or as a `use` writes it out.
    patterns: &'static [&'static str],
    /// Files and folders where it may stand.
    allowed: &'static [&'static str],
    /// Whether test code may do it too.
    tests: Tests,
    say: &'static str,
}

#[derive(PartialEq)]
enum Tests {
    May,
    MayNot,
}

const ONE_PLACE: &[OnePlace] = &[
    OnePlace {
        patterns: &["std::process::Command", "tokio::process"],
        // An example is a user's program: those about several processes start them.
        allowed: &["crates/host/src/", "xtask/", "examples/"],
        tests: Tests::May,
        say: "only `host` starts processes (invariant 6); use its process module",
    },
    OnePlace {
        patterns: &["reqwest::Client", "reqwest::ClientBuilder", "reqwest::get", "reqwest::blocking"],
        allowed: &["crates/host/src/"],
        tests: Tests::May,
        say: "only `host` builds HTTP clients (invariant 6); use its net module",
    },
    OnePlace {
        patterns: &["TcpStream::connect", "UdpSocket::bind", "UnixStream::connect"],
        allowed: &["crates/host/src/"],
        tests: Tests::May,
        say: "only `host` opens outbound connections (invariant 6); use its net module",
    },
    OnePlace {
        // The method of `ToolBody` that starts a body. A transaction that begins is another thing: list its file.
        patterns: &[".begin(", "ToolBody::begin"],
        allowed: &["crates/runtime/src/dispatch.rs", "crates/runtime/src/dispatch/"],
        tests: Tests::May,
        say: "only the runtime's dispatch starts a tool's body (invariant 5); go through it",
    },
    OnePlace {
        patterns: &["std::process::exit", "process::abort("],
        allowed: &["crates/cli/src/", "xtask/"],
        tests: Tests::MayNot,
        say: "a library never ends the process; return an error and let the command choose its exit code",
    },
];

pub(super) fn pure_core(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (file, rust) in tree.rust().filter(|(file, _)| file.path.starts_with("crates/core/src/")) {
        let used: Vec<(usize, String)> = rust.uses();
        for (pattern, say) in NOT_IN_CORE {
            let inline = rust
                .code_lines()
                .filter(|(_, line, test)| !test && !line.trim_start().starts_with("use ") && holds_path(line, pattern))
                .map(|(number, _, _)| number);
            let named =
                used.iter().filter(|(number, path)| holds_path(path, pattern) && !is_test(&rust.test, *number)).map(|(number, _)| *number);
            found.extend(inline.chain(named).map(|line| Violation::new(&file.path, line, *say)));
        }
        for (number, line, test) in rust.code_lines() {
            if !test && (holds_word(line, "async") || line.contains(".await")) {
                found.push(Violation::new(&file.path, number, "core has no async; return an action and let the driver act"));
            }
        }
    }
    found
}

pub(super) fn one_place(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (file, rust) in tree.rust() {
        for place in ONE_PLACE {
            if place.allowed.iter().any(|allowed| file.path.starts_with(allowed)) {
                continue;
            }
            let used = rust.uses();
            for pattern in place.patterns {
                let inline = rust
                    .code_lines()
                    .filter(|(_, line, _)| !line.trim_start().starts_with("use ") && line.contains(pattern))
                    .map(|(number, _, _)| number);
                let named = used.iter().filter(|(_, path)| path.contains(pattern)).map(|(number, _)| *number);
                for number in inline.chain(named) {
                    if place.tests == Tests::May && is_test(&rust.test, number) {
                        continue;
                    }
                    found.push(Violation::new(&file.path, number, place.say));
                }
            }
        }
    }
    found
}

pub(super) fn long_files(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (file, _) in tree.rust().filter(|(file, _)| in_src(&file.path)) {
        let lines = file.text.lines().count();
        if lines > LINE_LIMIT && !LONG_FILES.iter().any(|(path, _)| *path == file.path) {
            found.push(Violation::new(
                &file.path,
                LINE_LIMIT + 1,
                format!(
                    "{lines} lines: find the second purpose and give it a file of its own, or list the reason in xtask/src/tidy/code.rs"
                ),
            ));
        }
    }
    for (path, _) in LONG_FILES {
        if tree.file(path).is_none_or(|file| file.text.lines().count() <= LINE_LIMIT) {
            found.push(Violation::new(path, 1, "no longer long; take it off the list in xtask/src/tidy/code.rs"));
        }
    }
    found
}

pub(super) fn ignored_tests(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (file, rust) in tree.rust() {
        for (number, line, _) in rust.code_lines() {
            if line.contains("#[ignore") || (line.contains("cfg_attr") && holds_word(line, "ignore")) {
                found.push(Violation::new(
                    &file.path,
                    number,
                    "an ignored test proves nothing; make it run, or print why it skips and return",
                ));
            }
        }
    }
    found
}

/// The comment that says why a sleep in a test costs no time.
const PAUSED: &str = "// paused clock";

pub(super) fn sleeping_tests(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (file, rust) in tree.rust() {
        // Tests over real processes take real time: nothing tells them when another process has got as far.
        if file.path.contains("/tests/processes/") {
            continue;
        }
        for (number, line, test) in rust.code_lines() {
            if !test || !(calls(line, "sleep") || calls(line, "sleep_until") || calls(line, "sleep_ms")) {
                continue;
            }
            let said =
                |number: usize| number.checked_sub(1).and_then(|at| rust.commented.get(at)).is_some_and(|line| line.contains(PAUSED));
            if !said(number) && !said(number - 1) {
                found.push(Violation::new(
                    &file.path,
                    number,
                    format!("a test waits for an event or a barrier, never for time; under tokio's paused clock say so with `{PAUSED}` on this line or the one above"),
                ));
            }
        }
    }
    found
}

pub(super) fn unfinished(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (file, rust) in tree.rust() {
        for (number, line, _) in rust.code_lines() {
            if calls(line, "todo!") || calls(line, "unimplemented!") {
                found.push(Violation::new(&file.path, number, "write it, or return an error that says what is missing"));
            }
        }
    }
    for file in &tree.files {
        if !(file.is("rs") || file.is("toml") || file.is("yml") || file.path == "justfile" || file.path == ".ci/run") {
            continue;
        }
        for (number, line) in file.lines() {
            if [concat!("TO", "DO"), concat!("FIX", "ME")].iter().any(|word| holds_word(line, word)) {
                found.push(Violation::new(&file.path, number, "do it now, or file an issue and take the note out"));
            }
        }
    }
    found
}

fn in_src(path: &str) -> bool {
    path.starts_with("crates/") && path.contains("/src/")
}

fn is_test(test: &[bool], number: usize) -> bool {
    number.checked_sub(1).and_then(|at| test.get(at)).copied().unwrap_or(false)
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether `word` stands in the line with no letter, digit or `_` beside it.
fn holds_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line.get(..at).and_then(|text| text.chars().next_back());
        let after = line.get(at + word.len()..).and_then(|text| text.chars().next());
        !before.is_some_and(is_name) && !after.is_some_and(is_name)
    })
}

/// Whether the line names this path or something below it.
fn holds_path(line: &str, path: &str) -> bool {
    holds_word(line, path)
}

/// Whether the line calls a function or macro of this name, by whatever path.
fn calls(line: &str, name: &str) -> bool {
    line.match_indices(name).any(|(at, _)| {
        let before = line.get(..at).and_then(|text| text.chars().next_back());
        let after = line.get(at + name.len()..).map(str::trim_start);
        !before.is_some_and(is_name)
            && !line.get(..at).is_some_and(|text| text.trim_end().ends_with("fn"))
            && after.is_some_and(|text| text.starts_with(['(', '[', '{']))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(found: &[Violation]) -> Vec<usize> {
        let mut lines: Vec<usize> = found.iter().map(|violation| violation.line).collect();
        lines.sort_unstable();
        lines
    }

    #[test]
    fn core_touches_nothing_outside() {
        let tree = Tree::of(&[(
            "crates/core/src/lib.rs",
            "use std::{collections::BTreeMap, time::{Duration, Instant}};\n\
             fn a() { std::fs::read(\"x\"); }\n\
             // std::net is only prose\n\
             const X: &str = \"std::env\";\n\
             async fn b() {}\n\
             #[cfg(test)]\nmod tests { use std::fs; }\n",
        )]);
        assert_eq!(lines(&pure_core(&tree)), [1, 2, 5]);
        let elsewhere = Tree::of(&[("crates/models/src/lib.rs", "use std::fs;\n")]);
        assert!(pure_core(&elsewhere).is_empty());
    }

    #[test]
    fn ways_out_are_in_host() {
        let source = "use std::process::{Command, ExitCode};\nfn a() { reqwest::Client::new(); }\nasync fn b() { tokio::net::TcpStream::connect(x).await; }\n";
        let tree =
            Tree::of(&[("crates/models/src/lib.rs", source), ("crates/host/src/net.rs", source), ("crates/cli/tests/it.rs", source)]);
        let found = one_place(&tree);
        assert_eq!(lines(&found), [1, 2, 3]);
        assert!(found.iter().all(|violation| violation.file == "crates/models/src/lib.rs"));
    }

    #[test]
    fn bodies_are_started_by_dispatch() {
        let source = "fn a() { tool.body().begin(cx); }\n";
        let tree = Tree::of(&[
            ("crates/runtime/src/dispatch.rs", source),
            ("crates/runtime/src/driver.rs", source),
            ("crates/tool/tests/it.rs", source),
        ]);
        let found = one_place(&tree);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].file, "crates/runtime/src/driver.rs");
    }

    #[test]
    fn a_long_file_is_named() {
        let long = "// x\n".repeat(LINE_LIMIT + 1);
        let tree = Tree::of(&[("crates/core/src/long.rs", &long), ("crates/core/tests/long.rs", &long)]);
        assert_eq!(long_files(&tree).len(), 1);
    }

    #[test]
    fn sleeping_needs_a_paused_clock() {
        let tree = Tree::of(&[(
            "crates/x/tests/it.rs",
            "async fn a() {\n    tokio::time::sleep(d).await;\n    // paused clock\n    sleep(d).await;\n    let sleep = 1; no_sleep(d);\n}\nfn sleep() {}\n",
        )]);
        assert_eq!(lines(&sleeping_tests(&tree)), [2]);
    }

    #[test]
    fn ignored_and_unfinished_code_is_found() {
        let text = format!(
            "#[{}]\nfn a() {{ {}() }}\n// {}: later\nfn todo_write() {{}}\n",
            "ignore = \"slow\"",
            concat!("todo", "!"),
            concat!("FIX", "ME")
        );
        let tree = Tree::of(&[("crates/x/src/lib.rs", &text)]);
        assert_eq!(lines(&ignored_tests(&tree)), [1]);
        assert_eq!(lines(&unfinished(&tree)), [2, 3]);
    }
}
