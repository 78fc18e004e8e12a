//! `read_file`, `list_dir`, `file_info`, and where no tool gets.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};
use toolwright_tool::{NeedsApproval, OnInterrupt};
use toolwright_tools::workspace::{FileTool, Workspace};

use super::desk::Desk;
use FileTool::{ApplyPatch, EditFile, FileInfo, Glob, Grep, ListDir, MultiEdit, ReadFile, WriteFile};

// rule: sdk-tools 25.1
#[test]
fn tools_say_what_they_are() {
    let desk = Desk::new();
    let tools = desk.workspace.tools();
    let names: Vec<_> = tools.iter().map(|tool| tool.name().as_str()).collect();
    assert_eq!(names, FileTool::ALL.map(FileTool::name));
    for (tool, which) in tools.iter().zip(FileTool::ALL) {
        let (spec, hints) = (tool.spec(), tool.spec().annotations);
        assert!(tool.definition_error().is_none());
        assert_eq!(hints.read_only_hint, Some(which.only_reads()));
        assert_eq!(hints.destructive_hint, Some(!which.only_reads()));
        assert_eq!(hints.open_world_hint, Some(false));
        assert_eq!(spec.edits_files, !which.only_reads());
        assert_eq!(matches!(tool.needs_approval(), NeedsApproval::Always), !which.only_reads());
        assert_eq!(spec.after_interrupt(), OnInterrupt::Rerun);
    }
    let only: Vec<_> = desk.workspace.clone().read_only().tools().iter().map(|tool| tool.name().to_string()).collect();
    assert_eq!(only, ["read_file", "list_dir", "file_info", "glob", "grep"]);
    let free = desk.workspace.clone().needs_approval(EditFile, NeedsApproval::never());
    assert!(matches!(free.tool(EditFile).needs_approval(), NeedsApproval::Never));
    assert!(matches!(free.tool(WriteFile).needs_approval(), NeedsApproval::Always));
}

#[tokio::test]
async fn lines_are_read_with_their_numbers() {
    let desk = Desk::with([("a.txt", "one\ntwo\r\nthree"), ("empty", ""), ("end.txt", "x\n")]);
    assert_eq!(desk.says(ReadFile, json!({ "path": "a.txt" })).await, "     1\tone\n     2\ttwo\n     3\tthree");
    assert_eq!(desk.says(ReadFile, json!({ "path": "./a.txt", "offset": 3 })).await, "     3\tthree");
    assert_eq!(
        desk.says(ReadFile, json!({ "path": "a.txt", "offset": 2, "limit": 1 })).await,
        "     2\ttwo\n[lines 2 to 2 of 3; go on with offset 3]"
    );
    assert_eq!(desk.says(ReadFile, json!({ "path": "empty" })).await, "[empty is empty]");
    assert_eq!(desk.says(ReadFile, json!({ "path": "end.txt" })).await, "     1\tx");
    let error = desk.refuses(ReadFile, json!({ "path": "a.txt", "offset": 4 })).await;
    assert_eq!(error, "a.txt has 3 lines, so there is no line 4; begin with one of those");
    assert!(desk.refuses(ReadFile, json!({ "path": "a.txt", "offset": 0 })).await.contains("counted from 1"));
}

#[tokio::test]
async fn a_large_file_is_read_in_pages() {
    let all = (1..=5_000).map(|n| format!("line {n}\n")).collect::<Vec<_>>().concat();
    let desk = Desk::with([("big.txt", all.as_bytes())]);
    let page = desk.says(ReadFile, json!({ "path": "big.txt" })).await;
    assert!(page.ends_with("  2000\tline 2000\n[lines 1 to 2000 of 5000; go on with offset 2001]"), "{page}");
    // Page after page, each line once.
    let (mut seen, mut offset) = (Vec::new(), 1);
    let desk = desk.changed(|workspace| workspace.max_output_chars(1_000));
    while offset <= 5_000 {
        let page = desk.says(ReadFile, json!({ "path": "big.txt", "offset": offset })).await;
        assert!(page.chars().count() <= 1_100);
        let lines: Vec<&str> = page.lines().filter_map(|line| line.split_once('\t')).map(|(_, text)| text).collect();
        assert!(!lines.is_empty());
        offset += lines.len();
        seen.extend(lines.iter().map(|line| format!("{line}\n")));
    }
    assert_eq!(seen.concat(), all);
    // One line longer than a result is cut, and says so.
    let desk = Desk::with([("min.js", "é".repeat(3_000) + "\nnext\n")]).changed(|workspace| workspace.max_output_chars(1_000));
    let page = desk.says(ReadFile, json!({ "path": "min.js" })).await;
    assert!(
        page.contains("[line 1 has 3000 characters, of which these are the first]\n[lines 1 to 1 of 2; go on with offset 2]"),
        "{page}"
    );
    let desk = desk.changed(|workspace| workspace.max_file_bytes(5_000));
    assert!(desk.refuses(ReadFile, json!({ "path": "min.js" })).await.starts_with("min.js has 6006 bytes, and at most 5000 are taken"));
}

// rule: sdk-tools 25.7/3
#[tokio::test]
async fn what_can_t_be_read_is_told() {
    let desk = Desk::with([("logo.png", &b"\x89PNG\r\n\x1a\n\0\0"[..]), ("zero", b"a\0b"), ("latin.txt", b"caf\xe9 cr\xe8me\n")]);
    let error = desk.refuses(ReadFile, json!({ "path": "logo.png" })).await;
    assert_eq!(error, "logo.png is no text, but 10 bytes, image/png; use a tool for such files");
    assert!(desk.refuses(ReadFile, json!({ "path": "zero" })).await.contains("is no text"));
    assert!(desk.refuses(EditFile, json!({ "path": "zero", "old_string": "a", "new_string": "b" })).await.contains("is no text"));
    assert_eq!(desk.says(ReadFile, json!({ "path": "latin.txt" })).await, "     1\tcafé crème");
    desk.put("folder/x", "");
    assert_eq!(desk.refuses(ReadFile, json!({ "path": "folder" })).await, "folder is a folder; name a file in it");
    assert_eq!(desk.refuses(ReadFile, json!({ "path": "none" })).await, "there is no none; list its folder to see what is there");
    let desk = desk.changed(|workspace| workspace.max_file_bytes(5));
    assert!(desk.refuses(ReadFile, json!({ "path": "latin.txt" })).await.contains("has 11 bytes, and at most 5 are taken"));
}

#[tokio::test]
async fn a_folder_is_listed() {
    let desk = Desk::with([("b.txt", ""), ("a/x", ""), (".hidden", "")]);
    desk.link("a", "link");
    desk.link(desk.outside(), "escape");
    desk.put("odd\nname", "");
    assert_eq!(desk.says(ListDir, json!({})).await, ".hidden\na/\nb.txt\nescape (link)\nlink (link)\nodd\\nname");
    assert_eq!(desk.says(ListDir, json!({ "path": "link" })).await, "x");
    assert_eq!(desk.says(ListDir, json!({ "path": "." })).await, desk.says(ListDir, json!({ "path": "a/.." })).await);
    assert!(desk.refuses(ListDir, json!({ "path": "b.txt" })).await.contains("is no folder"));
    assert!(desk.refuses(ListDir, json!({ "path": "nowhere" })).await.contains("there is no nowhere"));
    let desk = desk.changed(|workspace| workspace.max_results(2));
    assert_eq!(desk.says(ListDir, json!({})).await, ".hidden\na/\n[the first 2 of 6; use glob to find the others]");
}

#[tokio::test]
async fn what_is_known_of_a_file_is_told() {
    let desk = Desk::with([("a.txt", &b"\xef\xbb\xbfone\r\ntwo"[..]), ("bin", b"\0\0")]);
    fs::set_permissions(desk.path("a.txt"), fs::Permissions::from_mode(0o640)).unwrap();
    let info: Value = desk.call(FileInfo, json!({ "path": "a.txt" })).await.unwrap().shown();
    for (key, value) in [
        ("kind", json!("file")),
        ("size", json!(11)),
        ("mode", json!("640")),
        ("lines", json!(2)),
        ("encoding", json!("UTF-8")),
        ("byteOrderMark", json!(true)),
        ("lineEndings", json!("CRLF")),
        ("endsWithNewline", json!(false)),
        ("mediaType", json!("text/plain")),
    ] {
        assert_eq!(info[key], value, "{key}");
    }
    assert!(info["modified"].as_str().unwrap().ends_with('Z'));
    assert_eq!(desk.call(FileInfo, json!({ "path": "bin" })).await.unwrap().shown()["binary"], true);
    assert_eq!(desk.call(FileInfo, json!({ "path": "." })).await.unwrap().shown()["kind"], "folder");
    desk.link("a.txt", "link");
    assert_eq!(desk.call(FileInfo, json!({ "path": "link" })).await.unwrap().shown()["link"], true);
    assert!(desk.refuses(FileInfo, json!({ "path": "nowhere" })).await.contains("there is no nowhere"));
}

/// Every tool with a path, each of which would do something with it.
fn with_path(path: &str) -> Vec<(FileTool, Value)> {
    let patch = format!("*** Begin Patch\n*** Add File: {path}\n+evil\n*** End Patch");
    let change = format!("--- {path}\n+++ {path}\n@@ -1 +1 @@\n-the secret\n+evil\n");
    vec![
        (ReadFile, json!({ "path": path })),
        (ListDir, json!({ "path": path })),
        (FileInfo, json!({ "path": path })),
        (Grep, json!({ "pattern": "secret", "path": path })),
        (WriteFile, json!({ "path": path, "content": "evil" })),
        (EditFile, json!({ "path": path, "old_string": "the secret", "new_string": "evil" })),
        (MultiEdit, json!({ "path": path, "edits": [{ "old_string": "the secret", "new_string": "evil" }] })),
        (ApplyPatch, json!({ "patch": patch })),
        (ApplyPatch, json!({ "patch": change })),
        (ApplyPatch, json!({ "patch": format!("*** Begin Patch\n*** Delete File: {path}\n*** End Patch") })),
        (ApplyPatch, json!({ "patch": format!("*** Begin Patch\n*** Update File: a.txt\n*** Move to: {path}\n*** End Patch") })),
    ]
}

fn nothing_happened(desk: &Desk) {
    let names: Vec<_> = fs::read_dir(desk.outside()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["secret.txt"]);
    assert_eq!(fs::read_to_string(desk.outside().join("secret.txt")).unwrap(), "the secret\n");
    assert_eq!(desk.text("a.txt"), "mine\n");
}

// rule: sdk-tools 25.3/1
// rule: sdk-tools 25.3/5
// rule: sdk-tools 25.7/1
// case: field-reports 106
#[tokio::test]
async fn no_path_leads_out() {
    let desk = Desk::with([("a.txt", "mine\n")]);
    let secret = desk.outside().join("secret.txt").display().to_string();
    let paths = [
        "../out/secret.txt",
        "../out",
        "a/../../out/secret.txt",
        r"..\out\secret.txt",
        "/etc/passwd",
        &secret,
        r"C:\x",
        r"\\host\share",
        r"\\?\C:\x",
        "out/\0",
        "..",
        "../in-beside/x",
    ];
    for path in paths {
        for (tool, args) in with_path(path) {
            // A patch can't hold every path; what it holds is refused all the same.
            desk.refuses(tool, args).await;
        }
        nothing_happened(&desk);
    }
    // What is encoded is a name, not a way.
    let error = desk.refuses(ReadFile, json!({ "path": "%2e%2e%2fout/secret.txt" })).await;
    assert!(error.contains("there is no %2e%2e%2fout/secret.txt"), "{error}");
    for pattern in ["../out/*", "/etc/*", "a/../../out/*"] {
        desk.refuses(Glob, json!({ "pattern": pattern })).await;
    }
    desk.refuses(Glob, json!({ "pattern": "*", "path": "../out" })).await;
}

// rule: sdk-tools 25.3/3
// rule: sdk-tools 25.3/4
// rule: sdk-tools 25.7/2
// case: field-reports 107
#[tokio::test]
async fn no_link_leads_out() {
    let desk = Desk::with([("a.txt", "mine\n")]);
    desk.link("../out", "escape");
    desk.link(desk.outside(), "absolute");
    desk.link("../out/secret.txt", "file");
    desk.link("../out/new", "dangling");
    for path in ["escape/secret.txt", "absolute/secret.txt", "file", "escape/new/deeper", "escape"] {
        for (tool, args) in with_path(path) {
            // A link that leads out may itself be told of, but nothing behind it.
            desk.refuses(tool, args).await;
        }
        nothing_happened(&desk);
    }
    for (tool, args) in with_path("dangling") {
        desk.refuses(tool, args).await;
    }
    nothing_happened(&desk);
    assert_eq!(desk.says(Glob, json!({ "pattern": "**/*" })).await, "a.txt");
    assert!(desk.refuses(Glob, json!({ "pattern": "escape/*" })).await.contains("leads out"));
}

// rule: sdk-tools 25.3/6
#[test]
fn a_workspace_is_a_folder_that_is_there() {
    let desk = Desk::with([("a.txt", "")]);
    for (folder, problem) in [("nowhere", "it is not there"), ("a.txt", "it is no folder")] {
        let error = Workspace::at(desk.path(folder)).unwrap_err();
        assert_eq!(error.code(), "TOOLWRIGHT_CONFIG_INVALID");
        assert!(error.to_string().contains(problem), "{error}");
    }
    assert!(desk.workspace.clone().ignore(["{a", "b"]).is_err());
}
