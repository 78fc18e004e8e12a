//! `write_file`, `edit_file`, `multi_edit`: what changes, what stays, and what a thread has seen.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use proptest::prelude::*;
use serde_json::json;
use toolwright_tools::workspace::FileTool;

use super::desk::Desk;
use FileTool::{EditFile, MultiEdit, ReadFile, WriteFile};

#[tokio::test]
async fn a_file_is_written_with_its_folders() {
    let desk = Desk::new();
    assert_eq!(desk.says(WriteFile, json!({ "path": "a/b/c.txt", "content": "hi\n" })).await, "wrote 3 bytes to a/b/c.txt, a new file");
    assert_eq!(desk.text("a/b/c.txt"), "hi\n");
    let again = desk.says(WriteFile, json!({ "path": "a/b/c.txt", "content": "" })).await;
    assert_eq!((again.as_str(), desk.text("a/b/c.txt").as_str()), ("wrote 0 bytes to a/b/c.txt, in place of what was there", ""));
    assert_eq!(fs::read_dir(desk.path("a/b")).unwrap().count(), 1, "nothing is left beside it");
    assert!(desk.refuses(WriteFile, json!({ "path": "a/b", "content": "x" })).await.contains("is a folder"));
    assert!(desk.refuses(WriteFile, json!({ "path": ".", "content": "x" })).await.contains("the workspace itself"));
    assert!(desk.refuses(WriteFile, json!({ "path": "a/b/c.txt/d", "content": "x" })).await.contains("goes through a file"));
    let desk = desk.changed(|workspace| workspace.max_file_bytes(4));
    assert!(desk.refuses(WriteFile, json!({ "path": "new/x", "content": "12345" })).await.contains("would take 5 bytes"));
    assert!(!desk.there("new"));
}

// case: field-reports 104
// case: field-reports 110
#[tokio::test]
async fn a_write_keeps_the_form_of_what_was_there() {
    let (le, be) = (&b"\xff\xfeh\0i\0"[..], &b"\xfe\xff\0h\0i"[..]);
    for (before, content, after) in [
        (&b"a\r\nb\r\n"[..], "c\nd\n", &b"c\r\nd\r\n"[..]),
        (b"\xef\xbb\xbfa\n", "b\n", b"\xef\xbb\xbfb\n"),
        (b"\xef\xbb\xbfa\n", "\u{feff}b\n", b"\xef\xbb\xbfb\n"),
        (le, "h\u{e4}", b"\xff\xfeh\0\xe4\0"),
        (be, "h\u{e4}", b"\xfe\xff\0h\0\xe4"),
        (b"caf\xe9 cr\xe8me br\xfbl\xe9e\n", "th\u{e9}\n", b"th\xe9\n"),
        (b"a\nb\r\n", "c\nd\n", b"c\nd\n"),
        (b"a\n", "b\r\n", b"b\r\n"),
    ] {
        let desk = Desk::with([("f", before)]);
        desk.says(WriteFile, json!({ "path": "f", "content": content })).await;
        assert_eq!(desk.bytes("f"), after, "{before:?} {content:?}");
    }
    let desk = Desk::with([("f", &b"caf\xe9 cr\xe8me br\xfbl\xe9e\n"[..])]);
    assert!(desk.refuses(WriteFile, json!({ "path": "f", "content": "\u{65e5}" })).await.contains("which has no '\u{65e5}'"));
    assert_eq!(desk.bytes("f"), b"caf\xe9 cr\xe8me br\xfbl\xe9e\n");
}

// case: field-reports 104
// case: field-reports 110
// case: field-reports 112
#[tokio::test]
async fn an_edit_keeps_all_else() {
    for (before, old, new, after) in [
        (&b"a\r\nb\r\n"[..], "a\nb", "a\nc", &b"a\r\nc\r\n"[..]),
        (b"\xef\xbb\xbfimport os\n", "import os", "import sys", b"\xef\xbb\xbfimport sys\n"),
        (b"\xef\xbb\xbfimport os\n", "\u{feff}import os", "\u{feff}import sys", b"\xef\xbb\xbfimport sys\n"),
        (b"x\ny", "y", "log(\"$& ok\");", b"x\nlog(\"$& ok\");"),
        (b"x", "x", "${1} \\1 $$ $` $'", b"${1} \\1 $$ $` $'"),
        (b"gr\xfc\xdfe aus m\xfcnchen\n", "aus", "\u{fc}ber", b"gr\xfc\xdfe \xfcber m\xfcnchen\n"),
    ] {
        let desk = Desk::with([("f", before)]);
        fs::set_permissions(desk.path("f"), fs::Permissions::from_mode(0o755)).unwrap();
        desk.says(ReadFile, json!({ "path": "f" })).await;
        desk.says(EditFile, json!({ "path": "f", "old_string": old, "new_string": new })).await;
        assert_eq!(desk.bytes("f"), after, "{before:?}");
        assert_eq!(fs::metadata(desk.path("f")).unwrap().permissions().mode() & 0o777, 0o755);
    }
}

// rule: sdk-tools 25.7/4
// case: field-reports 113
#[tokio::test]
async fn an_edit_that_does_not_fit_changes_nothing() {
    let desk = Desk::with([("f", "x=1\nx=1\n")]);
    let error = desk.refuses(EditFile, json!({ "path": "f", "old_string": "x=1", "new_string": "x=2" })).await;
    assert_eq!(
        error,
        "f is unchanged: old_string is in the file 2 times, at lines 1, 2; add text around it so that it fits one place, or set replace_all"
    );
    let error = desk.refuses(EditFile, json!({ "path": "f", "old_string": "y", "new_string": "x" })).await;
    assert!(error.starts_with("f is unchanged: old_string is not in the file; "), "{error}");
    assert!(desk.refuses(EditFile, json!({ "path": "g", "old_string": "y", "new_string": "x" })).await.contains("there is no g"));
    assert_eq!(desk.text("f"), "x=1\nx=1\n");
    let done = desk.says(EditFile, json!({ "path": "f", "old_string": "x=1", "new_string": "x=2", "replace_all": true })).await;
    assert_eq!((done.as_str(), desk.text("f").as_str()), ("edited f: 2 replacements, at lines 1, 2", "x=2\nx=2\n"));
}

#[tokio::test]
async fn several_edits_are_all_made_or_none() {
    let desk = Desk::with([("f", "a\nb\nc\n")]);
    let edits = json!([{ "old_string": "a", "new_string": "b2" }, { "old_string": "b2\nb", "new_string": "x" }]);
    assert_eq!(desk.says(MultiEdit, json!({ "path": "f", "edits": edits })).await, "edited f: 2 replacements, at lines 1, 1");
    assert_eq!(desk.text("f"), "x\nc\n");
    let edits = json!([{ "old_string": "x", "new_string": "y" }, { "old_string": "nothing", "new_string": "z" }]);
    let error = desk.refuses(MultiEdit, json!({ "path": "f", "edits": edits })).await;
    assert!(error.starts_with("f is unchanged: edit 2 of 2: old_string is not in the file"), "{error}");
    assert_eq!(desk.text("f"), "x\nc\n");
    desk.refuses(MultiEdit, json!({ "path": "f", "edits": [] })).await;
}

#[tokio::test]
async fn what_changed_since_it_was_read_is_not_overwritten() {
    let desk = Desk::with([("f", "one\n"), ("g", "never read\n")]);
    desk.says(ReadFile, json!({ "path": "f", "limit": 1 })).await;
    desk.put("f", "two, one\n");
    for (tool, args) in [
        (WriteFile, json!({ "path": "f", "content": "mine\n" })),
        (EditFile, json!({ "path": "f", "old_string": "one", "new_string": "1" })),
        (MultiEdit, json!({ "path": "f", "edits": [{ "old_string": "one", "new_string": "1" }] })),
        (FileTool::ApplyPatch, json!({ "patch": "--- f\n+++ f\n@@ -1 +1 @@\n-two, one\n+x\n" })),
        (FileTool::ApplyPatch, json!({ "patch": "*** Begin Patch\n*** Delete File: f\n*** End Patch" })),
    ] {
        let error = desk.refuses(tool, args).await;
        assert_eq!(error, "f changed since this thread last read it, so nothing was written; read it again, then change it");
    }
    assert_eq!(desk.text("f"), "two, one\n");
    desk.says(ReadFile, json!({ "path": "f" })).await;
    desk.says(EditFile, json!({ "path": "f", "old_string": "one", "new_string": "1" })).await;
    // What the thread wrote, it has seen.
    desk.says(EditFile, json!({ "path": "f", "old_string": "1", "new_string": "one" })).await;
    desk.says(WriteFile, json!({ "path": "f", "content": "all new\n" })).await;
    desk.says(WriteFile, json!({ "path": "g", "content": "never seen, and not refused\n" })).await;
    // What is gone is told once.
    fs::remove_file(desk.path("f")).unwrap();
    assert!(desk.refuses(WriteFile, json!({ "path": "f", "content": "x" })).await.contains("is gone since"));
    desk.says(WriteFile, json!({ "path": "f", "content": "x" })).await;
    fs::remove_file(desk.path("f")).unwrap();
    desk.refuses(ReadFile, json!({ "path": "f" })).await;
    desk.says(WriteFile, json!({ "path": "f", "content": "y" })).await;
}

#[tokio::test]
async fn what_was_read_is_known_after_a_crash() {
    let desk = Desk::with([("f", "one\n")]);
    desk.says(ReadFile, json!({ "path": "f" })).await;
    desk.put("f", "two\n");
    // Another process: a workspace of its own, over the same thread.
    let folder = desk.path(".");
    let desk = desk.changed(|_| toolwright_tools::workspace::Workspace::at(folder).unwrap());
    assert!(desk.refuses(WriteFile, json!({ "path": "f", "content": "x" })).await.contains("changed since"));
}

#[tokio::test]
async fn a_call_that_runs_again_after_a_crash_finds_its_work_done() {
    let desk = Desk::with([("f", "a\n"), ("g", "a\n")]);
    let edit = json!({ "path": "f", "old_string": "a", "new_string": "aa" });
    let write = json!({ "path": "w", "content": "w\n" });
    let patch = json!({ "patch": "--- g\n+++ g\n@@ -1 +1 @@\n-a\n+b\n--- /dev/null\n+++ new\n@@ -0,0 +1 @@\n+n\n" });
    for (tool, args) in [(EditFile, &edit), (WriteFile, &write), (FileTool::ApplyPatch, &patch)] {
        let call = format!("c_{}", tool.name());
        desk.attempt(&call, 1, tool, args.clone()).await.unwrap();
        desk.attempt(&call, 2, tool, args.clone()).await.unwrap();
    }
    assert_eq!((desk.text("f").as_str(), desk.text("g").as_str(), desk.text("new").as_str()), ("aa\n", "b\n", "n\n"));
    // Another call makes its own change, and one that had not begun is made.
    desk.says(EditFile, json!({ "path": "f", "old_string": "aa", "new_string": "b" })).await;
    desk.attempt("later", 2, EditFile, json!({ "path": "f", "old_string": "b", "new_string": "c" })).await.unwrap();
    assert_eq!(desk.text("f"), "c\n");
}

// rule: sdk-tools 25.6/10
#[tokio::test]
async fn calls_at_once_lose_nothing() {
    let all = |open: &str, close: &str| (0..40).map(|n| format!("{open}{n}{close}")).collect::<Vec<_>>().join("\n");
    let desk = Desk::with([("f", all("<", ">"))]);
    let edits =
        (0..40).map(|n| desk.call(EditFile, json!({ "path": "f", "old_string": format!("<{n}>"), "new_string": format!("[{n}]") })));
    for edited in futures_util::future::join_all(edits).await {
        edited.unwrap();
    }
    assert_eq!(desk.text("f"), all("[", "]"));
}

#[tokio::test]
async fn what_may_not_be_written_is_left() {
    let desk = Desk::with([("f", "x")]);
    fs::set_permissions(desk.path("f"), fs::Permissions::from_mode(0o444)).unwrap();
    let is_root = fs::write(desk.path("f"), "x").is_ok();
    if is_root {
        println!("the user of these tests may write everything: nothing to see here");
        return;
    }
    assert!(desk.refuses(WriteFile, json!({ "path": "f", "content": "y" })).await.contains("does not permit"));
}

/// A file as bytes: mark, lines of few characters, endings of one kind, with or without the last.
fn file() -> impl Strategy<Value = (Vec<u8>, bool)> {
    let line = proptest::string::string_regex("[abé$ ]{0,6}").unwrap();
    (proptest::collection::vec(line, 2..8), any::<bool>(), 0..4_u8, any::<bool>()).prop_map(|(lines, crlf, form, last)| {
        let end = if crlf { "\r\n" } else { "\n" };
        let mut text = lines.join(end);
        if last {
            text.push_str(end);
        }
        let units = |to: fn(u16) -> [u8; 2]| std::iter::once(0xfeff).chain(text.encode_utf16()).flat_map(to).collect();
        let bytes = match form {
            0 => text.into_bytes(),
            1 => [&b"\xef\xbb\xbf"[..], text.as_bytes()].concat(),
            2 => units(u16::to_le_bytes),
            _ => units(u16::to_be_bytes),
        };
        (bytes, crlf)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Through the tools, over marks, encodings and endings. At least one line ending stays in the file.
    #[test]
    fn an_edit_and_its_inverse_restore_every_byte((bytes, _) in file(), old in "[abé]{1,2}(\n[ab]?)?", new in "[xy$é]{1,3}(\n[xy\\\\1]?){0,2}") {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let desk = Desk::with([("f", &bytes)]);
            let there = desk.call(EditFile, json!({ "path": "f", "old_string": old, "new_string": new })).await;
            if there.is_err() {
                assert_eq!(desk.bytes("f"), bytes);
                return;
            }
            if !desk.bytes("f").contains(&b'\n') {
                return;
            }
            let back = desk.call(EditFile, json!({ "path": "f", "old_string": new, "new_string": old })).await;
            if back.is_ok() {
                assert_eq!(desk.bytes("f"), bytes);
            }
        });
    }
}
