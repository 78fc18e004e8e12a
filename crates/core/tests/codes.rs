//! The registry of codes against the source and the page.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeSet;
use std::path::Path;

use toolwright_core::codes::{CODES, hint, table};

/// Variables of the environment begin like codes and are none.
const VARIABLES: [&str; 5] =
    ["TOOLWRIGHT_ENCRYPTION_KEY", "TOOLWRIGHT_LOCAL_MODEL", "TOOLWRIGHT_MODEL", "TOOLWRIGHT_PROCESS", "TOOLWRIGHT_STORE"];

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().and_then(Path::parent).unwrap()
}

/// Every quoted word that begins with `TOOLWRIGHT_` in the crates' sources.
fn used(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            used(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("codes.rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            for piece in text.split("\"TOOLWRIGHT_").skip(1) {
                let word: String = piece.chars().take_while(|c| c.is_ascii_uppercase() || *c == '_').collect();
                if !word.is_empty() && piece.get(word.len()..).is_some_and(|rest| rest.starts_with('"')) {
                    found.insert(format!("TOOLWRIGHT_{word}"));
                }
            }
        }
    }
}

// rule: sdk-tools 33.1/3
// rule: sdk-tools 33.2
#[test]
fn every_code_in_the_source_is_listed_once_with_a_hint() {
    let mut found = BTreeSet::new();
    for room in std::fs::read_dir(workspace().join("crates")).unwrap() {
        used(&room.unwrap().path().join("src"), &mut found);
    }
    let listed: Vec<&str> = CODES.iter().map(|code| code.code).collect();
    let mut sorted = listed.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(listed, sorted, "alphabetical, each once");
    for variable in VARIABLES {
        found.remove(variable);
    }
    let found: Vec<&str> = found.iter().map(String::as_str).collect();
    assert_eq!(found, listed, "the codes of the source and those of codes.rs");
    assert!(CODES.iter().all(|code| hint(code.code).is_some_and(|hint| !hint.is_empty()) && !code.when.is_empty()));
}

// rule: sdk-tools 33.1/3
#[test]
fn the_page_lists_them() {
    let path = workspace().join("docs/errors.md");
    let head = "# Errors\n\nEvery error that Toolwright returns has one sentence that names the thing, and a code. Codes are stable; sentences are not, so \
                branch on the code alone.\nThe command maps errors to exit codes: 1 where a run failed, 2 where usage or configuration is at fault.\n\n";
    let page = format!("{head}{}", table());
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap_or_default(), page, "docs/errors.md is stale; run this test with UPDATE=1");
}
