//! A folder, a thread, and calls of tools on both.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;
use tempfile::TempDir;
use toolwright_tool::core::args::{Arguments, Repair};
use toolwright_tool::core::{CallId, Message, Transcript};
use toolwright_tool::{MemoryKeep, Running, ThreadFiles, ThreadValues, ToolContext, ToolError, ToolOutput};
use toolwright_tools::workspace::{FileTool, Workspace};

pub(crate) struct Desk {
    both: TempDir,
    pub(crate) workspace: Workspace,
    pub(crate) keep: Arc<MemoryKeep>,
    messages: Transcript,
    calls: AtomicU32,
}

impl Desk {
    /// An empty folder, with a secret beside it.
    pub(crate) fn new() -> Self {
        let both = TempDir::new().unwrap();
        fs::create_dir(both.path().join("in")).unwrap();
        fs::create_dir(both.path().join("out")).unwrap();
        fs::write(both.path().join("out/secret.txt"), "the secret\n").unwrap();
        let workspace = Workspace::at(both.path().join("in")).unwrap();
        Self { both, workspace, keep: Arc::default(), messages: Transcript::new(), calls: AtomicU32::new(0) }
    }

    /// With files, by path and content.
    pub(crate) fn with<C: AsRef<[u8]>>(files: impl IntoIterator<Item = (&'static str, C)>) -> Self {
        let desk = Self::new();
        for (path, content) in files {
            desk.put(path, content);
        }
        desk
    }

    /// The same with another workspace of that folder.
    pub(crate) fn changed(mut self, change: impl FnOnce(Workspace) -> Workspace) -> Self {
        self.workspace = change(self.workspace);
        self
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.both.path().join("in").join(path)
    }

    pub(crate) fn outside(&self) -> PathBuf {
        self.both.path().join("out")
    }

    /// Somebody else writes a file.
    pub(crate) fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn bytes(&self, path: &str) -> Vec<u8> {
        fs::read(self.path(path)).unwrap()
    }

    pub(crate) fn text(&self, path: &str) -> String {
        String::from_utf8(self.bytes(path)).unwrap()
    }

    pub(crate) fn there(&self, path: &str) -> bool {
        self.path(path).symlink_metadata().is_ok()
    }

    pub(crate) fn link(&self, target: impl AsRef<Path>, at: &str) {
        std::os::unix::fs::symlink(target, self.path(at)).unwrap();
    }

    /// A person sends one more message.
    pub(crate) fn say(&mut self, text: &str) {
        self.messages.push(Arc::new(Message::human(text)));
    }

    pub(crate) fn values(&self) -> ThreadValues {
        ThreadValues::new(Arc::clone(&self.keep) as _)
    }

    pub(crate) fn files(&self) -> ThreadFiles {
        ThreadFiles::new(Arc::clone(&self.keep) as _)
    }

    /// Calls a tool, as a call of its own.
    pub(crate) async fn call(&self, tool: FileTool, args: Value) -> Result<ToolOutput, ToolError> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        self.attempt(&format!("call_{number}"), 1, tool, args).await
    }

    /// Calls a tool as an attempt at a call.
    pub(crate) async fn attempt(&self, call: &str, attempt: u32, tool: FileTool, args: Value) -> Result<ToolOutput, ToolError> {
        let tool = self.workspace.tool(tool);
        assert!(tool.definition_error().is_none(), "{:?}", tool.definition_error());
        let args = Arguments::from_value(args, &tool.spec().input, Repair::On).map_err(|issues| {
            let issue = issues.first().cloned().unwrap();
            ToolError::invalid(issue.path, issue.message)
        })?;
        let mut parts = ToolContext::detached(args).parts().clone();
        parts.call_id = CallId::new(call);
        parts.attempt = attempt;
        parts.keep = Arc::clone(&self.keep) as _;
        parts.messages = self.messages.clone();
        let Running::Future(body) = tool.body().begin(ToolContext::new(parts)) else { panic!("an async tool") };
        body.await
    }

    /// The text that a tool gives.
    pub(crate) async fn says(&self, tool: FileTool, args: Value) -> String {
        match self.call(tool, args).await {
            Ok(output) => output.shown().as_str().map_or_else(|| output.shown().to_string(), str::to_owned),
            Err(error) => panic!("{error}"),
        }
    }

    /// What a tool says where it refuses. Where the folder is on this machine is in none of it.
    pub(crate) async fn refuses(&self, tool: FileTool, args: Value) -> String {
        match self.call(tool, args.clone()).await {
            Ok(output) => panic!("{args} was not refused: {}", output.shown()),
            Err(error) => {
                let place = self.both.path().to_str().unwrap();
                assert!(args.to_string().contains(place) || !error.message().contains(place), "{error}");
                assert!(matches!(error.name(), "WorkspaceError" | "ToolArgumentsValidationError"), "{} {error}", error.name());
                error.message().to_owned()
            }
        }
    }
}
