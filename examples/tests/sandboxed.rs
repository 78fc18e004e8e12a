//! A shell and a tool of one's own in a sandbox, as a user's crate has them.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, reason = "tests")]

use std::path::PathBuf;
use std::sync::Arc;

use toolwright::builtin::patch::{CommandCheck, PatchChecks};
use toolwright::builtin::shell::ShellTools;
use toolwright::models::scripted::{Reply, ScriptedModel};
use toolwright::prelude::*;
use toolwright::process::Spawn;
use toolwright::rules::{allow, deny};
use toolwright::sandbox::{LinuxSandbox, Sandbox, SandboxError};

#[args]
struct Script {
    /// What to run.
    text: String,
}

/// Runs a script.
#[tool(requires_sandbox = confined)]
async fn run_script(Args(script): Args<Script>) -> Result<String, ToolError> {
    Err(ToolError::new(format!("outside: {}", script.text)))
}

async fn confined(Args(script): Args<Script>, State(sandbox): State<Arc<dyn Sandbox>>) -> Result<String, ToolError> {
    let ended = Spawn::shell(script.text).sandbox(sandbox).run().await?;
    Ok(format!("{:?} {}", ended.code, ended.stdout.text()))
}

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What came of the calls of a model that asks for these commands, and how the run ended.
async fn run(workspace: &Folder, commands: &[&str]) -> (Vec<String>, FinishReason) {
    let model = commands
        .iter()
        .fold(ScriptedModel::new(), |model, command| model.reply(Reply::call("shell", toolwright::json!({ "command": command }))));
    let shell = ShellTools::in_dir(&workspace.0).tools().unwrap();
    let rules = [deny("shell").command(["rm *"]), allow("shell").command(["echo *", "cat *"])];
    let agent = Agent::builder().model(model.reply(Reply::text("done"))).tools(shell).rules(rules).build().unwrap();
    let reply = agent.send("Run it.").await.unwrap();
    let texts = reply.messages.iter().flat_map(|message| message.results().map(toolwright::core::ResultItem::text).collect::<Vec<_>>());
    (texts.collect(), reply.finish_reason)
}

#[tokio::test]
async fn a_command_asks_unless_a_rule_knows_each_part_of_it() {
    let workspace = Folder::new("ruled");
    let (results, finish) = run(&workspace, &["echo a | cat", "echo a; rm file"]).await;
    assert_eq!(finish, FinishReason::Stop, "{results:?}");
    assert!(results[0].contains(r#""stdout":"a\n""#) && results[1].contains("denied"), "{results:?}");
    for command in ["ls", "echo a > file", "echo $(ls)", "echo a; ls"] {
        let (results, finish) = run(&workspace, &[command]).await;
        assert_eq!((finish, results.len()), (FinishReason::AwaitingApproval, 0), "{command}");
    }
    assert_eq!(std::fs::read_dir(&workspace.0).unwrap().count(), 0);
}

#[tokio::test]
async fn a_check_of_a_patch_runs_confined() {
    let (project, outside) = (Folder::new("project"), Folder::new("secrets"));
    std::fs::write(project.0.join("check.sh"), "true\n").unwrap();
    let secret = outside.0.join("secret");
    std::fs::write(&secret, "planted").unwrap();
    let confine =
        |dir: &std::path::Path| -> Result<Arc<dyn Sandbox>, SandboxError> { Ok(Arc::new(LinuxSandbox::of_workspace(dir).build()?)) };
    if let Err(error) = confine(&project.0) {
        println!("not shown here: {error}");
        return;
    }
    let diff = |line: &str| format!("--- a/check.sh\n+++ b/check.sh\n@@ -1 +1 @@\n-true\n+{line}\n");
    let verdict = async |line: &str, confined: bool| {
        let check = CommandCheck::new("own", &project.0, "sh").args(["check.sh"]);
        let check = if confined { check.sandbox(confine) } else { check };
        PatchChecks::new().check(check).run(&diff(line)).await
    };
    let reads = format!("cat {}", secret.display());
    assert!(verdict(&reads, false).await.pass, "outside a sandbox a patch reads what it likes");
    let confined = verdict(&reads, true).await;
    assert!(!confined.pass && confined.failures[0].reason.contains("denied"), "{confined:?}");
    assert!(verdict("echo made > here && cat here", true).await.pass);
}

#[tokio::test]
async fn what_a_model_runs_reaches_its_workspace_and_nothing_else() {
    let (workspace, outside) = (Folder::new("workspace"), Folder::new("outside"));
    let secret = outside.0.join("secret");
    std::fs::write(&secret, "planted").unwrap();
    let sandbox: Arc<dyn Sandbox> = match LinuxSandbox::of_workspace(&workspace.0).build() {
        Ok(sandbox) => Arc::new(sandbox),
        Err(error) => {
            println!("not shown here: {error}");
            return;
        }
    };
    let command = format!("echo mine > file; cat file; cat {0}; echo x > {0}", secret.display());
    let model = ScriptedModel::new()
        .reply(Reply::call("shell", toolwright::json!({ "command": command })))
        .reply(Reply::call("run_script", toolwright::json!({ "text": format!("echo in; cat {}", secret.display()) })))
        .reply(Reply::text("done"));
    let shell = ShellTools::in_dir(&workspace.0).needs_approval(false).sandbox(Arc::clone(&sandbox)).tools().unwrap();
    let agent = Agent::builder().model(model).tools(shell).tools(tools![run_script]).state(sandbox).build().unwrap();
    let reply = agent.send("Run it.").await.unwrap();
    let results: Vec<String> =
        reply.messages.iter().flat_map(|message| message.results().map(toolwright::core::ResultItem::text).collect::<Vec<_>>()).collect();
    assert!(results[0].contains("mine") && results[0].contains("denied") && !results[0].contains("planted"), "{results:?}");
    assert!(results[1].contains("Some(1) in") && !results[1].contains("planted"), "{results:?}");
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "planted");
    assert_eq!(std::fs::read_to_string(workspace.0.join("file")).unwrap(), "mine\n");
}
