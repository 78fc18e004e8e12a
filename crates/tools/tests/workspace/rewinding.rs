//! Going back to what files were.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;
use toolwright_tools::workspace::FileTool::{ApplyPatch, EditFile, WriteFile};
use toolwright_tools::workspace::{Checkpoints, Rewind, RewindReport, SkipReason, Skipped};

use super::desk::Desk;

fn checkpoints(desk: &Desk) -> Checkpoints {
    desk.workspace.checkpoints_of(desk.values(), desk.files())
}

async fn write(desk: &Desk, path: &str, content: &str) {
    desk.says(WriteFile, json!({ "path": path, "content": content })).await;
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Three turns over some files.
async fn three_turns() -> Desk {
    let mut desk = Desk::with([("a", "a0"), ("b", "b0"), ("sub/c", "c0")]);
    fs::set_permissions(desk.path("a"), fs::Permissions::from_mode(0o755)).unwrap();
    desk.say("first");
    write(&desk, "a", "a1").await;
    write(&desk, "new", "n1").await;
    write(&desk, "a", "a1 again").await;
    desk.say("second");
    desk.says(EditFile, json!({ "path": "b", "old_string": "b0", "new_string": "b2" })).await;
    write(&desk, "a", "a2").await;
    desk.say("third");
    desk.says(
        ApplyPatch,
        json!({ "patch": "*** Begin Patch\n*** Delete File: sub/c\n*** Update File: new\n*** Move to: moved\n*** End Patch" }),
    )
    .await;
    desk
}

// rule: sdk-tools 25.6/1
// rule: sdk-tools 25.6/2
// rule: sdk-tools 25.6/3
#[tokio::test]
async fn what_changed_is_listed_by_turn() {
    let desk = three_turns().await;
    let list = checkpoints(&desk).list().await.unwrap();
    let list: Vec<_> = list.into_iter().map(|changes| (changes.turn, changes.paths)).collect();
    assert_eq!(list, [(0, names(&["a", "new"])), (1, names(&["a", "b"])), (2, names(&["moved", "new", "sub/c"]))]);
    // One content for each path and turn, each once.
    let mut kept = Vec::new();
    let mut walk = desk.files().walk("/.workspace").await.unwrap();
    while let Some(entry) = walk.next().await.unwrap() {
        if !entry.is_directory {
            kept.push(desk.files().read_text(&entry.path).await.unwrap().unwrap());
        }
    }
    kept.sort();
    assert_eq!(kept, ["a0", "a1 again", "b0", "c0", "n1"]);
}

// rule: sdk-tools 25.6/4
// rule: sdk-tools 25.6/6
#[tokio::test]
async fn files_go_back_to_before_a_turn() {
    let desk = three_turns().await;
    let history = checkpoints(&desk);
    let would = history.rewind(1, Rewind { dry_run: true, ..Rewind::default() }).await.unwrap();
    assert_eq!(json!(would), json!({ "dryRun": true, "restored": ["a", "b", "new", "sub/c"], "deleted": ["moved"], "skipped": [] }));
    assert_eq!((desk.text("a").as_str(), desk.there("sub/c")), ("a2", false));

    let did = history.rewind(1, Rewind::default()).await.unwrap();
    assert_eq!(did, RewindReport { dry_run: false, ..would });
    assert_eq!(["a", "b", "new", "sub/c"].map(|path| desk.text(path)), ["a1 again", "b0", "n1", "c0"]);
    assert!(!desk.there("moved"));
    assert_eq!(fs::metadata(desk.path("a")).unwrap().permissions().mode() & 0o777, 0o755);
    // A second time there is nothing to do.
    assert_eq!(history.rewind(1, Rewind::default()).await.unwrap(), RewindReport::default());
    assert_eq!(history.list().await.unwrap().len(), 1);

    let did = history.rewind(0, Rewind::default()).await.unwrap();
    assert_eq!((did.restored, did.deleted), (names(&["a"]), names(&["new"])));
    assert_eq!(desk.text("a"), "a0");
    assert!(history.list().await.unwrap().is_empty());
    assert_eq!(desk.files().stats().await.unwrap().file_count, 0, "no content is kept that nothing needs");
    // What the thread last saw is not what is there now.
    assert!(desk.refuses(WriteFile, json!({ "path": "a", "content": "x" })).await.contains("changed since"));
}

// rule: sdk-tools 25.6/5
// rule: sdk-tools 25.6/6
#[tokio::test]
async fn what_somebody_else_changed_is_left() {
    let mut desk = Desk::with([("a", "a0"), ("b", "b0"), ("large", "l0 l0 l0 l0")]);
    desk = desk.changed(|workspace| workspace.max_checkpoint_bytes(5));
    desk.say("go");
    for (path, content) in [("a", "a1"), ("b", "b1"), ("large", "l1"), ("new", "n1")] {
        write(&desk, path, content).await;
    }
    desk.put("a", "somebody's");
    desk.put("new", "somebody's");
    let skipped = |path: &str, reason| Skipped { path: path.to_owned(), reason };
    let did = checkpoints(&desk).rewind(0, Rewind::default()).await.unwrap();
    assert_eq!(did.restored, ["b"]);
    let expected =
        [skipped("a", SkipReason::ChangedSince), skipped("large", SkipReason::TooLarge), skipped("new", SkipReason::ChangedSince)];
    assert_eq!(did.skipped, expected);
    assert_eq!(json!(did.skipped[1]), json!({ "path": "large", "reason": "too-large" }));
    assert_eq!((desk.text("a").as_str(), desk.text("large").as_str()), ("somebody's", "l1"));
    assert_eq!(checkpoints(&desk).rewind(0, Rewind::default()).await.unwrap(), RewindReport::default(), "it is forgotten");

    let mut desk = Desk::with([("a", "a0")]);
    desk.say("go");
    write(&desk, "a", "a1").await;
    write(&desk, "new", "n1").await;
    desk.put("a", "somebody's");
    desk.put("new", "somebody's");
    let did = checkpoints(&desk).rewind(0, Rewind { force: true, ..Rewind::default() }).await.unwrap();
    assert_eq!((did.restored, did.deleted), (names(&["a"]), names(&["new"])));
    assert_eq!((desk.text("a").as_str(), desk.there("new")), ("a0", false));
}

// rule: sdk-tools 25.6/7
#[tokio::test]
async fn old_turns_are_forgotten() {
    let mut desk = Desk::with([("a", "0")]).changed(|workspace| workspace.max_checkpoint_turns(3));
    for turn in 0..6 {
        desk.say("go on");
        write(&desk, "a", &format!("after {turn}")).await;
    }
    let history = checkpoints(&desk);
    let turns: Vec<u32> = history.list().await.unwrap().iter().map(|changes| changes.turn).collect();
    assert_eq!(turns, [3, 4, 5]);
    let error = history.rewind(2, Rewind::default()).await.unwrap_err();
    assert_eq!(error.message(), "what files were before turn 2 is not kept any more; go back to turn 3 or a later one");
    assert_eq!(history.rewind(3, Rewind::default()).await.unwrap().restored, ["a"]);
    assert_eq!(desk.text("a"), "after 2");
    history.clear().await.unwrap();
    assert!(history.list().await.unwrap().is_empty());
    assert_eq!(desk.files().stats().await.unwrap().file_count, 0);
}

#[tokio::test]
async fn a_workspace_may_keep_nothing() {
    let mut desk = Desk::with([("a", "0")]).changed(|workspace| workspace.checkpoints(false));
    desk.say("go");
    write(&desk, "a", "1").await;
    assert!(checkpoints(&desk).list().await.unwrap().is_empty());
}

#[tokio::test]
async fn what_is_in_the_way_is_left() {
    let mut desk = Desk::with([("a", "a0"), ("sub/b", "b0")]);
    desk.say("go");
    desk.says(ApplyPatch, json!({ "patch": "*** Begin Patch\n*** Update File: a\n@@\n-a0\n+a1\n*** Delete File: sub/b\n*** End Patch" }))
        .await;
    // Where its folder was, a file is now.
    fs::remove_dir(desk.path("sub")).unwrap();
    desk.put("sub", "in the way");
    let did = checkpoints(&desk).rewind(0, Rewind { force: true, ..Rewind::default() }).await.unwrap();
    assert_eq!(did.restored, ["a"]);
    assert_eq!(did.skipped, [Skipped { path: "sub/b".to_owned(), reason: SkipReason::Unreadable }]);
    assert_eq!((desk.text("a").as_str(), desk.text("sub").as_str()), ("a0", "in the way"));
}
