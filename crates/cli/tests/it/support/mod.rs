//! The real binary, with an empty home and nothing of this machine's environment; and a server that speaks Chat Completions.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

pub(crate) mod server;

/// A home of its own, gone with the value.
pub(crate) struct Home(tempfile::TempDir);

/// How a command ended, as text.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// A file in it.
    pub(crate) fn file(&self, name: &str, content: &str) -> String {
        let path = self.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_toolwright"));
        command.args(arguments).env_clear().env("HOME", self.path()).env("NO_COLOR", "1").current_dir(self.path());
        // Programs are found as usual; the model hub is not.
        command.envs(std::env::vars_os().filter(|(name, _)| name == "PATH")).env("HF_ENDPOINT", "http://127.0.0.1:1");
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        self.run_with(arguments, &[], "")
    }

    pub(crate) fn run_with(&self, arguments: &[&str], env: &[(&str, &str)], input: &str) -> Ended {
        let mut child = self.start(arguments, env);
        let mut stdin = child.stdin.take().unwrap();
        // A command that does not read its input closes it.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        ended(child.wait_with_output().unwrap())
    }

    /// Starts it with all three streams piped.
    pub(crate) fn start(&self, arguments: &[&str], env: &[(&str, &str)]) -> Child {
        let mut command = self.command(arguments);
        command.envs(env.iter().copied()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }
}

pub(crate) fn ended(output: Output) -> Ended {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// Waits for the end of a child whose standard output nobody reads.
pub(crate) fn end_of(mut child: Child) -> Ended {
    drop(child.stdin.take());
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    Ended { code: child.wait().unwrap().code(), out: String::new(), err }
}
