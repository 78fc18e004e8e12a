//! `glob` and `grep`.

use serde_json::json;
use toolwright_tools::workspace::FileTool::{Glob, Grep};

use super::desk::Desk;

#[tokio::test]
async fn files_are_found_by_their_paths() {
    let desk = Desk::with([
        ("a.rs", ""),
        ("src/b.rs", ""),
        ("src/deep/c.rs", ""),
        ("src/d.txt", ""),
        (".hidden/e.rs", ""),
        (".git/f.rs", ""),
        ("src/node_modules/g.rs", ""),
        ("x1.md", ""),
        ("x2.md", ""),
    ]);
    for (pattern, wanted) in [
        ("**/*.rs", ".hidden/e.rs\na.rs\nsrc/b.rs\nsrc/deep/c.rs"),
        ("*.rs", "a.rs"),
        ("src/*", "src/b.rs\nsrc/d.txt"),
        ("src/**", "src/b.rs\nsrc/d.txt\nsrc/deep/c.rs"),
        ("./src/**/[bc].rs", "src/b.rs\nsrc/deep/c.rs"),
        ("x?.md", "x1.md\nx2.md"),
        ("{a,x1}.{rs,md}", "a.rs\nx1.md"),
        ("src/d.txt", "src/d.txt"),
        ("nowhere/*", "[no file in . matches nowhere/*]"),
        ("*.py", "[no file in . matches *.py; **/*.py looks in every folder]"),
        ("a.rs/*", "[no file in . matches a.rs/*]"),
    ] {
        assert_eq!(desk.says(Glob, json!({ "pattern": pattern })).await, wanted, "{pattern}");
    }
    assert_eq!(desk.says(Glob, json!({ "pattern": "*.rs", "path": "src" })).await, "src/b.rs");
    assert!(desk.refuses(Glob, json!({ "pattern": "*", "path": "nowhere" })).await.contains("there is no nowhere"));
    for pattern in ["[a", "{a", "", "/x"] {
        desk.refuses(Glob, json!({ "pattern": pattern })).await;
    }
}

// rule: sdk-tools 25.7/5
#[tokio::test]
async fn lines_are_found_by_what_they_say() {
    let desk = Desk::with([
        ("a.txt", &b"one\nTwo one\r\nthree\n"[..]),
        ("sub/b.rs", b"let one = 1;\n"),
        ("bin", b"one\0"),
        ("sub/c.md", b"none\n"),
        ("utf16", b"\xff\xfeo\0n\0e\0\n\0"),
    ]);
    assert_eq!(
        desk.says(Grep, json!({ "pattern": r"\bone\b" })).await,
        "a.txt:1: one\na.txt:2: Two one\nutf16:1: one\nsub/b.rs:1: let one = 1;\n[1 files that are no text were left out]"
    );
    assert_eq!(desk.says(Grep, json!({ "pattern": "^two", "ignore_case": true, "glob": "*.txt" })).await, "a.txt:2: Two one");
    assert_eq!(desk.says(Grep, json!({ "pattern": "one$", "path": "a.txt" })).await, "a.txt:1: one\na.txt:2: Two one");
    assert_eq!(desk.says(Grep, json!({ "pattern": "one", "glob": "*.{rs,md}" })).await, "sub/b.rs:1: let one = 1;\nsub/c.md:1: none");
    assert_eq!(desk.says(Grep, json!({ "pattern": "one", "glob": "sub/*.rs" })).await, "sub/b.rs:1: let one = 1;");
    assert_eq!(desk.says(Grep, json!({ "pattern": "one", "path": "sub", "glob": "*.rs" })).await, "sub/b.rs:1: let one = 1;");
    assert_eq!(desk.says(Grep, json!({ "pattern": "nowhere", "path": "sub" })).await, "[no line matches in 2 files]");
    for pattern in ["(", "[z-a]", "a{1000}{1000}{1000}", "", "a\nb", r"\p{Nothing}", "(?<a"] {
        let error = desk.refuses(Grep, json!({ "pattern": pattern })).await;
        assert!(error.len() < 400, "{error}");
    }
    assert!(desk.refuses(Grep, json!({ "pattern": "a", "path": "bin" })).await.contains("is no text"));
    assert!(desk.refuses(Grep, json!({ "pattern": "a", "glob": "[" })).await.contains("is not valid"));
}

// rule: sdk-tools 36/16
#[tokio::test]
async fn an_expression_takes_time_in_proportion_to_the_text() {
    // A backtracking engine would need longer than anybody lives.
    let desk = Desk::with([("a", "a".repeat(500_000) + "b\n")]);
    for pattern in ["^(a+)+$", "(a|aa)+c", "(a*)*c", "(.*a){20}c"] {
        assert_eq!(desk.says(Grep, json!({ "pattern": pattern })).await, "[no line matches in 1 files]", "{pattern}");
    }
    // What such an engine alone can do is refused.
    for pattern in [r"(a)\1", "a(?=b)", "(?<!a)b"] {
        desk.refuses(Grep, json!({ "pattern": pattern })).await;
    }
}

// case: field-reports 109
#[tokio::test]
async fn a_walk_follows_no_link() {
    let desk = Desk::with([("a/secret.txt", "my secret\n")]);
    desk.link(desk.outside().join("secret.txt"), "link.rs");
    desk.link("../../out/secret.txt", "a/link.txt");
    desk.link("../../out", "a/folder");
    desk.link("..", "a/up");
    desk.link("a", "inside");
    assert_eq!(desk.says(Grep, json!({ "pattern": "secret" })).await, "a/secret.txt:1: my secret");
    assert_eq!(desk.says(Glob, json!({ "pattern": "**/*" })).await, "a/secret.txt");
    // A link that is named is followed, if it stays inside.
    assert_eq!(desk.says(Grep, json!({ "pattern": "secret", "path": "inside" })).await, "inside/secret.txt:1: my secret");
    assert_eq!(desk.says(Glob, json!({ "pattern": "inside/*.txt" })).await, "inside/secret.txt");
    for path in ["link.rs", "a/link.txt", "a/folder", "a/folder/secret.txt"] {
        assert!(desk.refuses(Grep, json!({ "pattern": "secret", "path": path })).await.contains("leads out"), "{path}");
    }
}

#[tokio::test]
async fn what_is_left_out_is_told() {
    let desk = Desk::with((0..30).map(|_| ("", "")).take(0));
    for n in 0..30 {
        desk.put(&format!("d{}/f{n:02}.txt", n % 3), "hit\nhit\n");
    }
    desk.put("large.txt", "hit\n".repeat(1_000));
    let desk = desk.changed(|workspace| workspace.max_results(5).max_searched_bytes(1_000));
    let found = desk.says(Grep, json!({ "pattern": "hit" })).await;
    assert_eq!(
        found,
        "d0/f00.txt:1: hit\nd0/f00.txt:2: hit\nd0/f03.txt:1: hit\nd0/f03.txt:2: hit\nd0/f06.txt:1: hit\n[the first 5 lines, there may be more; narrow it down with path, glob or a longer pattern]\n[1 files of more than 1000 bytes were left out]"
    );
    let found = desk.says(Glob, json!({ "pattern": "d1/*" })).await;
    assert!(found.ends_with("d1/f13.txt\n[the first 5 of 10 files; use a narrower pattern]"), "{found}");
    let desk = desk.changed(|workspace| workspace.max_files_scanned(7).max_results(100));
    for found in [desk.says(Glob, json!({ "pattern": "**/*.txt" })).await, desk.says(Grep, json!({ "pattern": "hit" })).await] {
        assert!(found.contains("[only 7 files were looked at, and there are more; name a folder with path]"), "{found}");
    }
    let desk = Desk::with([("long.txt", "x".repeat(2_000))]).changed(|workspace| workspace.max_output_chars(600));
    assert!(desk.says(Grep, json!({ "pattern": "x" })).await.ends_with("x [and 1500 characters more]"));
}

#[tokio::test]
async fn gitignore_has_the_say_unless_it_is_told_not_to() {
    let desk = Desk::with([
        (".gitignore", "*.log\n/build/\n!keep.log\n"),
        ("a.log", "hit"),
        ("keep.log", "hit"),
        ("build/x", "hit"),
        ("src/build/y", "hit"),
        ("src/.gitignore", "secret.*\n"),
        ("src/secret.txt", "hit"),
        ("secret.txt", "hit"),
        ("src/deep/secret.md", "hit"),
        ("src/deep/b.log", "hit"),
    ]);
    let found = desk.says(Grep, json!({ "pattern": "hit" })).await;
    assert_eq!(found, "keep.log:1: hit\nsecret.txt:1: hit\nsrc/build/y:1: hit\n[5 files and folders that .gitignore names were left out]");
    // Also where a search begins below.
    let found = desk.says(Grep, json!({ "pattern": "hit", "path": "src/deep" })).await;
    assert_eq!(found, "[no line matches in 0 files]\n[2 files and folders that .gitignore names were left out]");
    // What is named is searched.
    assert_eq!(desk.says(Grep, json!({ "pattern": "hit", "path": "build" })).await, "build/x:1: hit");
    assert_eq!(desk.says(Grep, json!({ "pattern": "hit", "path": "a.log" })).await, "a.log:1: hit");
    let desk = desk.changed(|workspace| workspace.gitignore(false).ignore(["*.md", "build"]).unwrap());
    assert_eq!(
        desk.says(Glob, json!({ "pattern": "**/*" })).await,
        ".gitignore\na.log\nkeep.log\nsecret.txt\nsrc/.gitignore\nsrc/deep/b.log\nsrc/secret.txt"
    );
}
