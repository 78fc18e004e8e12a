//! `toolwright threads rewind`: what a thread changed in a folder goes back.
#![cfg(unix)]

use std::fs;

use serde_json::json;
use toolwright::builtin::workspace::{FileTool, Workspace};
use toolwright::models::scripted::{Reply as Turn, ScriptedModel};
use toolwright::{Agent, FinishReason, NeedsApproval};

use crate::threads::{Kept, refused};

/// A thread `t` that changed files in two turns, in the folder `project` of the home.
fn changed() -> (Kept, String) {
    let kept = Kept::new();
    let folder = kept.home.path().join("project");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("plan.md"), "one\n").unwrap();
    kept.with(async |store| {
        let workspace = Workspace::at(&folder).unwrap();
        let free = FileTool::ALL.into_iter().fold(workspace, |workspace, tool| workspace.needs_approval(tool, NeedsApproval::never()));
        let model = ScriptedModel::new()
            .reply(Turn::call("edit_file", json!({ "path": "plan.md", "old_string": "one", "new_string": "two" })))
            .reply(Turn::text("done"))
            .reply(Turn::call("write_file", json!({ "path": "new.md", "content": "new\n" })))
            .reply(Turn::text("done"));
        let agent = Agent::builder().model(model).tools(free.tools()).store(store).build().unwrap();
        for text in ["first", "second"] {
            assert_eq!(agent.thread("t").send(text).await.unwrap().finish_reason, FinishReason::Stop);
        }
    });
    let folder = folder.to_str().unwrap().to_owned();
    (kept, folder)
}

#[test]
fn files_go_back_to_before_a_turn() {
    let (kept, folder) = changed();
    let rewind = |more: &[&str]| kept.run(&[&["threads", "rewind", "t", "--workspace", &folder], more].concat(), &[]);
    let text = |name: &str| fs::read_to_string(format!("{folder}/{name}")).ok();
    let listed = rewind(&[]);
    assert_eq!(listed.out, "   0  plan.md\n   1  new.md\n", "{listed:?}");
    let would = rewind(&["--turn", "0", "--dry-run"]);
    assert_eq!((would.out.as_str(), would.err.as_str()), ("restored  plan.md\ndeleted   new.md\n", "2 files would be taken back\n"));
    assert_eq!((text("plan.md").as_deref(), text("new.md").as_deref()), (Some("two\n"), Some("new\n")));

    fs::write(format!("{folder}/plan.md"), "somebody's\n").unwrap();
    let left = rewind(&["--turn", "0", "--dry-run", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&left.out).unwrap();
    let expected =
        json!({ "dryRun": true, "restored": [], "deleted": ["new.md"], "skipped": [{ "path": "plan.md", "reason": "changed-since" }] });
    assert_eq!(report, expected);
    let did = rewind(&["--turn", "0", "--force"]);
    assert_eq!((did.out.as_str(), did.err.as_str()), ("restored  plan.md\ndeleted   new.md\n", "2 files taken back\n"));
    assert_eq!((text("plan.md").as_deref(), text("new.md")), (Some("one\n"), None));
    let nothing = rewind(&["--turn", "0"]);
    assert_eq!((nothing.out.as_str(), nothing.err.as_str()), ("", "0 files taken back\n"));
}

#[test]
fn what_is_wrong_is_told() {
    let (kept, folder) = changed();
    let nowhere = kept.run(&["threads", "rewind", "t", "--workspace", "nowhere"], &[]);
    refused(
        &nowhere,
        "error: the workspace nowhere can't be used: it is not there [TOOLWRIGHT_CONFIG_INVALID]\nhint: make the folder, or name another one\n",
    );
    let nobody = kept.run(&["threads", "rewind", "nobody", "--workspace", &folder], &[]);
    assert_eq!(nobody.code, Some(2), "{nobody:?}");
    let alone = kept.run(&["threads", "rewind", "t", "--force"], &[]);
    assert_eq!(alone.code, Some(2), "{alone:?}");
}
