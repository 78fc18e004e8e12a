//! An agent over the files of a folder: who is asked, and what goes outside.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::fs;
use std::path::PathBuf;

use toolwright::builtin::workspace::Workspace;
use toolwright::models::scripted::{Reply, ScriptedModel};
use toolwright::prelude::*;
use toolwright::rules::PermissionMode;
use toolwright::{AgentBuilder, json};

const NOTES: &str = "The combination of the safe is seven left, nine right.\n";

/// Asks a page of the world outside.
#[tool(open_world)]
async fn fetch_page(
    /// Its address.
    url: String,
) -> String {
    format!("the page of {url}")
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("toolwright-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("notes.txt"), NOTES).unwrap();
        Self(folder)
    }

    fn agent(&self, model: ScriptedModel) -> AgentBuilder {
        let mut all = Workspace::at(&self.0).unwrap().tools();
        all.extend(tools![fetch_page]);
        Agent::builder().model(model).tools(all)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn what_was_read_goes_outside_only_if_somebody_says_so() {
    let folder = Folder::new("reads");
    for (tool, args) in [("read_file", json!({ "path": "notes.txt" })), ("grep", json!({ "pattern": "safe" }))] {
        let page = "https://x.test/?q=combination%20of%20the%20safe%20is%20seven";
        let model = ScriptedModel::new()
            .reply(Reply::call(tool, args))
            .reply(Reply::call("fetch_page", json!({ "url": "https://x.test/weather" })))
            .reply(Reply::call("fetch_page", json!({ "url": page })))
            .reply(Reply::text("done"));
        let agent = folder.agent(model).build().unwrap();
        let paused = agent.thread("t").send("go").await.unwrap();
        assert_eq!(paused.finish_reason, FinishReason::AwaitingApproval);
        let asked = &paused.pending[0];
        let reason =
            format!("`fetch_page` reaches the world outside, and its arguments repeat text from the thread's workspace, read by `{tool}`");
        assert_eq!(asked.reason.as_deref(), Some(reason.as_str()));
        assert!(asked.arguments.contains(page), "{}", asked.arguments);
    }
}

#[tokio::test]
async fn a_write_asks_unless_edits_are_accepted() {
    let folder = Folder::new("writes");
    let model = || {
        let write = Reply::call("write_file", json!({ "path": "notes.txt", "content": "new\n" }));
        ScriptedModel::new().reply(write).reply(Reply::text("done"))
    };
    let paused = folder.agent(model()).build().unwrap().send("go").await.unwrap();
    assert_eq!(paused.finish_reason, FinishReason::AwaitingApproval);
    assert_eq!(fs::read_to_string(folder.0.join("notes.txt")).unwrap(), NOTES);
    let planned = folder.agent(model()).permission_mode(PermissionMode::Plan).build().unwrap().send("go").await.unwrap();
    assert_eq!((planned.finish_reason, fs::read_to_string(folder.0.join("notes.txt")).unwrap().as_str()), (FinishReason::Stop, NOTES));
    let accepted = folder.agent(model()).permission_mode(PermissionMode::AcceptEdits).build().unwrap().send("go").await.unwrap();
    assert_eq!(accepted.finish_reason, FinishReason::Stop);
    assert_eq!(fs::read_to_string(folder.0.join("notes.txt")).unwrap(), "new\n");
}
