//! `apply_patch`: both formats, all or nothing, and what a patch may get wrong.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use proptest::prelude::*;
use serde_json::json;
use toolwright_tools::workspace::FileTool::ApplyPatch;

use super::desk::Desk;

async fn patch(desk: &Desk, patch: &str) -> String {
    desk.says(ApplyPatch, json!({ "patch": patch })).await
}

async fn no_patch(desk: &Desk, patch: &str) -> String {
    desk.refuses(ApplyPatch, json!({ "patch": patch })).await
}

#[tokio::test]
async fn a_unified_diff_is_applied() {
    let desk = Desk::with([("src/a.rs", "fn a() {\n    one();\n    two();\n}\n\nfn b() {\n    one();\n}\n"), ("gone.txt", "bye\n")]);
    let done = patch(
        &desk,
        "diff --git a/src/a.rs b/src/a.rs\nindex 111..222 100644\n--- a/src/a.rs\n+++ b/src/a.rs\n@@ -1,4 +1,5 @@\n fn a() {\n-    one();\n+    uno();\n+    dos();\n     two();\n }\n@@ -6,3 +7,3 @@ fn b\n fn b() {\n-    one();\n+    tres();\n }\ndiff --git a/new/x.sh b/new/x.sh\nnew file mode 100755\n--- /dev/null\n+++ b/new/x.sh\n@@ -0,0 +1,2 @@\n+#!/bin/sh\n+echo hi\n\\ No newline at end of file\ndiff --git a/gone.txt b/gone.txt\ndeleted file mode 100644\n--- a/gone.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-bye\n",
    )
    .await;
    assert_eq!(done, "changed src/a.rs: 2 hunks\nadded new/x.sh\ndeleted gone.txt");
    assert_eq!(desk.text("src/a.rs"), "fn a() {\n    uno();\n    dos();\n    two();\n}\n\nfn b() {\n    tres();\n}\n");
    assert_eq!(desk.text("new/x.sh"), "#!/bin/sh\necho hi");
    assert_eq!(fs::metadata(desk.path("new/x.sh")).unwrap().permissions().mode() & 0o777, 0o755);
    assert!(!desk.there("gone.txt"));
}

#[tokio::test]
async fn the_format_of_begin_patch_is_applied() {
    let desk = Desk::with([
        ("a.py", "class A:\n    def f(self):\n        pass\n\nclass B:\n    def f(self):\n        pass\n"),
        ("old.txt", "x\ny\n"),
        ("bye", "1\n"),
    ]);
    let done = patch(
        &desk,
        "*** Begin Patch\n*** Update File: a.py\n@@ class B:\n     def f(self):\n-        pass\n+        return 1\n*** Add File: sub/new.txt\n+hello\n+\n+there\n*** Update File: old.txt\n*** Move to: moved/new.txt\n@@\n x\n-y\n+z\n*** Delete File: bye\n*** End Patch\n",
    )
    .await;
    assert_eq!(done, "changed a.py: 1 hunk\nadded sub/new.txt\nmoved old.txt to moved/new.txt\ndeleted bye");
    assert_eq!(desk.text("a.py"), "class A:\n    def f(self):\n        pass\n\nclass B:\n    def f(self):\n        return 1\n");
    assert_eq!((desk.text("sub/new.txt").as_str(), desk.text("moved/new.txt").as_str()), ("hello\n\nthere\n", "x\nz\n"));
    assert!(!desk.there("old.txt") && !desk.there("bye"));
}

#[tokio::test]
async fn a_patch_is_made_whole_or_not_at_all() {
    let desk = Desk::with([("a", "1\n"), ("b", "2\n")]);
    let first = "--- a\n+++ a\n@@ -1 +1 @@\n-1\n+one\n";
    for second in [
        "--- b\n+++ b\n@@ -1 +1 @@\n-3\n+x\n",
        "--- nowhere\n+++ nowhere\n@@ -1 +1 @@\n-3\n+x\n",
        "--- /dev/null\n+++ b\n@@ -0,0 +1 @@\n+x\n",
        "--- nowhere\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n",
        "--- /dev/null\n+++ new/a/../../../out/x\n@@ -0,0 +1 @@\n+x\n",
        // Found out only when it is written: a file stands where a folder would have to be made.
        "--- /dev/null\n+++ new/x\n@@ -0,0 +1 @@\n+x\n--- /dev/null\n+++ a/x/y\n@@ -0,0 +1 @@\n+x\n",
    ] {
        no_patch(&desk, &format!("{first}{second}")).await;
        assert_eq!((desk.text("a").as_str(), desk.text("b").as_str()), ("1\n", "2\n"), "{second}");
        assert!(!desk.there("new"), "{second}");
    }
    assert_eq!(fs::read_dir(desk.path(".")).unwrap().count(), 2);
}

#[tokio::test]
async fn what_a_patch_leaves_alone_stays() {
    for (before, hunk, after) in [
        (&b"a\r\nb\r\nc\r\n"[..], "@@ -1,3 +1,4 @@\n a\n-b\n+x\n+y\n c\n", &b"a\r\nx\r\ny\r\nc\r\n"[..]),
        (b"\xef\xbb\xbfa\nb", "@@ -1,2 +1,2 @@\n-a\n+x\n b\n", b"\xef\xbb\xbfx\nb"),
        (b"a\nb", "@@ -1,2 +1,3 @@\n a\n-b\n\\ No newline at end of file\n+b\n+c\n\\ No newline at end of file\n", b"a\nb\nc"),
        (b"a\nb", "@@ -2 +2 @@\n-b\n\\ No newline at end of file\n+b\n", b"a\nb\n"),
        (b"a\nb\n", "@@ -2 +2 @@\n-b\n+b\n\\ No newline at end of file\n", b"a\nb"),
        (b"a\nb", "@@ -2 +2,2 @@\n b\n+c\n", b"a\nb\nc"),
        (b"a  \nb\n", "@@ -1,2 +1,2 @@\n a\n-b\n+c\n", b"a  \nc\n"),
        (b"a\n\nb\n", "@@ -1,3 +1,3 @@\n a\n\n-b\n+c\n", b"a\n\nc\n"),
        (b"\xff\xfea\0\n\0", "@@ -1 +1 @@\n-a\n+b\n", b"\xff\xfeb\0\n\0"),
    ] {
        let desk = Desk::with([("f", before)]);
        patch(&desk, &format!("--- a/f\n+++ b/f\n{hunk}")).await;
        assert_eq!(desk.bytes("f"), after, "{hunk}");
    }
}

// case: field-reports 113
#[tokio::test]
async fn a_hunk_that_fits_several_places_is_not_guessed() {
    let text = "x\ny\nx\ny\nx\ny\n";
    let desk = Desk::with([("f", text)]);
    let error = no_patch(&desk, "*** Begin Patch\n*** Update File: f\n@@\n-y\n+z\n*** End Patch").await;
    assert_eq!(
        error,
        "the patch does not fit f, and nothing was changed: hunk 1 fits 3 places, at lines 2, 4, 6; give it more lines around the change, so that it fits one"
    );
    // The line of a diff's head has the say, if it fits there.
    patch(&desk, "--- f\n+++ f\n@@ -4 +4 @@\n-y\n+z\n").await;
    assert_eq!(desk.text("f"), "x\ny\nx\nz\nx\ny\n");
    no_patch(&desk, "--- f\n+++ f\n@@ -3 +3 @@\n-y\n+z\n").await;
    patch(&desk, "*** Begin Patch\n*** Update File: f\n@@\n x\n-y\n+end\n*** End of File\n*** End Patch").await;
    assert_eq!(desk.text("f"), "x\ny\nx\nz\nx\nend\n");
    // A head whose numbers are wrong does no harm where the lines are clear.
    patch(&desk, "--- f\n+++ f\n@@ -40,7 +90,2 @@\n-z\n+Z\n").await;
    assert_eq!(desk.text("f"), "x\ny\nx\nZ\nx\nend\n");
}

#[tokio::test]
async fn what_is_no_patch_is_told() {
    let desk = Desk::with([("f", "a\n"), ("bin", "\0")]);
    for (text, wanted) in [
        ("", "there is no change in the patch"),
        ("hello", "there is no change in the patch"),
        ("@@ -1 +1 @@\n-a\n+b\n", "a change of no file"),
        ("--- f\n+++ f\n@@ -1 +1 @@\nhello\n", "line 4 of the patch has to begin with"),
        ("--- f\n+++ f\n@@ -1 +1 @@\n", "has no lines"),
        ("*** Begin Patch\n*** Update File: f\n@@\n-a\n+b\n", "the patch does not end"),
        ("*** Begin Patch\nhello\n*** End Patch", "line 2 of the patch is none that begins a file"),
        ("*** Begin Patch\n*** Update File:\n*** End Patch", "names no file"),
        ("*** Begin Patch\n*** Update File: f\n*** End Patch", "has no lines"),
        ("*** Begin Patch\n*** Add File: g\nhello\n*** End Patch", "has to begin with `+`"),
        ("*** Begin Patch\n*** Update File: f\n@@ nowhere\n-a\n+b\n*** End Patch", "stands below a line \"nowhere\""),
        ("*** Begin Patch\n*** Update File: bin\n@@\n-a\n+b\n*** End Patch", "is no text"),
        ("diff --git a/f b/f\nold mode 100644\nnew mode 100755\n", "changes only permissions"),
        ("diff --git a/f b/f\nBinary files a/f and b/f differ\n", "is no text"),
        ("--- f\n+++ f\n@@ -1 +1 @@\n-b\n+c\n", "the line \"b\" is not in the rest of the file"),
        ("--- f\n+++ f\n@@ -1,2 +1 @@\n-a\n-b\n+c\n", "\"a\" is line 1 of the file, but the lines around it differ"),
    ] {
        let error = no_patch(&desk, text).await;
        assert!(error.contains(wanted), "{text:?}: {error}");
    }
    assert_eq!(desk.text("f"), "a\n");
}

#[tokio::test]
async fn git_says_where_a_file_goes() {
    let desk = Desk::with([("a/b/old name.txt", "x\n")]);
    let moved = "diff --git a/a/b/old name.txt b/c/new.txt\nsimilarity index 100%\nrename from a/b/old name.txt\nrename to c/new.txt\n";
    assert_eq!(patch(&desk, moved).await, "moved a/b/old name.txt to c/new.txt");
    assert_eq!(desk.text("c/new.txt"), "x\n");
    let gone = "diff --git a/c/new.txt b/c/new.txt\ndeleted file mode 100644\nindex 111..000\n";
    assert_eq!(patch(&desk, gone).await, "deleted c/new.txt");
    // A folder named `a` is one where the other side does not say `b/`.
    let desk = Desk::with([("a/f", "x\n")]);
    patch(&desk, "--- a/f\n+++ a/f\n@@ -1 +1 @@\n-x\n+y\n").await;
    assert_eq!(desk.text("a/f"), "y\n");
}

/// A diff that makes `count` lines from `at` on into others, with up to three lines around.
fn diff(lines: &[&str], at: usize, count: usize, new: &[&str]) -> (String, String) {
    let (first, last) = (at.saturating_sub(3), (at + count + 3).min(lines.len()));
    let (before, after) = (&lines[first..at], &lines[at + count..last]);
    let old = &lines[at..at + count];
    let make = |old: &[&str], new: &[&str]| {
        let (had, has) = (before.len() + old.len() + after.len(), before.len() + new.len() + after.len());
        let start = |count: usize| if count == 0 { first } else { first + 1 };
        let mut text = format!("--- a/f\n+++ b/f\n@@ -{},{had} +{},{has} @@\n", start(had), start(has));
        let kinds = [(" ", before), ("-", old), ("+", new), (" ", after)];
        for (kind, lines) in kinds {
            for line in lines {
                writeln!(text, "{kind}{line}").unwrap();
            }
        }
        text
    };
    (make(old, new), make(new, old))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn a_patch_and_its_inverse_restore_every_byte(
        lines in proptest::collection::vec("[ab -]{0,3}", 1..12), new in proptest::collection::vec("[xyé+]{0,3}", 0..4),
        at in any::<prop::sample::Index>(), count in 0..4_usize, crlf in any::<bool>(), mark in any::<bool>(), last in any::<bool>(),
    ) {
        let end = if crlf { "\r\n" } else { "\n" };
        let file = format!("{}{}{}", if mark { "\u{feff}" } else { "" }, lines.join(end), if last { end } else { "" });
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let at = at.index(lines.len() + 1);
        let count = count.min(lines.len() - at);
        // Where no line ending is left, nothing tells which it was; an empty last line is none.
        let bare = lines.len() - count + new.len() < 2;
        let odd = !last && (lines.last() == Some(&"") || new.last().is_some_and(String::is_empty) || at + count == lines.len());
        prop_assume!(!bare && !odd && (count > 0 || !new.is_empty()));
        let new: Vec<&str> = new.iter().map(String::as_str).collect();
        let (there, back) = diff(&lines, at, count, &new);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let desk = Desk::with([("f", &file)]);
            let mut wanted = lines.clone();
            wanted.splice(at..at + count, new.iter().copied());
            patch(&desk, &there).await;
            let expected = format!("{}{}{}", if mark { "\u{feff}" } else { "" }, wanted.join(end), if last { end } else { "" });
            assert_eq!(desk.text("f"), expected, "{there}");
            patch(&desk, &back).await;
            assert_eq!(desk.text("f"), file, "{back}");
        });
    }
}
