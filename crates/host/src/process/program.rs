//! Programs of our own.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::environment::Environment;
use super::error::ProcessError;
use super::group::Group;
use super::output::Keeper;
use super::running::{How, Process, Watched};
use super::spawn::Launch;

/// A program to run to its end.
#[derive(Clone, Debug)]
pub struct Program {
    name: OsString,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    dir: Option<PathBuf>,
    timeout: Duration,
    output_limit: usize,
}

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Its exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// What it wrote to standard output, up to the limit.
    pub stdout: Vec<u8>,
    /// What it wrote to standard error, up to the limit.
    pub stderr: Vec<u8>,
    /// Whether either was longer than the limit.
    pub truncated: bool,
}

impl Finished {
    /// Whether it ended with code 0.
    pub fn succeeded(&self) -> bool {
        self.code == Some(0)
    }

    /// Standard output as text; what is not UTF-8 is replaced.
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text; what is not UTF-8 is replaced.
    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}

impl Program {
    /// A program by name or path. It inherits this process's environment and folder, has no input, two minutes, and 1 MiB for each of
    /// its two outputs, unless told otherwise.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self { name: program.into(), args: Vec::new(), env: Vec::new(), dir: None, timeout: Duration::from_mins(2), output_limit: 1 << 20 }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<I: IntoIterator<Item = A>, A: Into<OsString>>(mut self, args: I) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets a variable of its environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// The folder it runs in.
    #[must_use]
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// How long it may take.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How many bytes of each output are kept; the rest is read and dropped, so that the program never waits for a reader.
    #[must_use]
    pub fn output_limit(mut self, bytes: usize) -> Self {
        self.output_limit = bytes;
        self
    }

    /// Runs it to its end. At the time limit, or when this future is dropped, the program and all that it started in its process group
    /// are killed. A descendant that keeps the outputs open after the program has ended is not waited for.
    pub async fn run(&self) -> Result<Finished, ProcessError> {
        let env = Environment::everything();
        let env = self.env.iter().fold(env, |env, (name, value)| env.set(name, value));
        let launch = Launch { program: self.name.clone(), args: self.args.clone(), env: env.variables(), dir: self.dir.clone() };
        let name = launch.name();
        let child = launch.command().spawn().map_err(|source| ProcessError::Start { program: name.clone(), source })?;
        let watched = Watched { deadline: Some(self.timeout), grace: Duration::ZERO, cleanup: None, held: None };
        let keeper = || Keeper::beginning(self.output_limit);
        let ended = Process::follow(name.clone(), Group::of(child, None), keeper, watched).ended().await?;
        if ended.how != How::Exited {
            return Err(ProcessError::Timeout { program: name, seconds: self.timeout.as_secs() });
        }
        let truncated = ended.stdout.dropped() > 0 || ended.stderr.dropped() > 0;
        Ok(Finished { code: ended.code, stdout: ended.stdout.head().to_vec(), stderr: ended.stderr.head().to_vec(), truncated })
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn shell(script: &str) -> Program {
        Program::new("sh").arg("-c").arg(script)
    }

    #[tokio::test]
    async fn a_program_ends_with_its_code_and_outputs() {
        let done = shell("printf out; printf err >&2; printf \"$X\"; exit 3").env("X", "y").run().await.unwrap();
        assert_eq!((done.code, done.stdout_text(), done.stderr_text()), (Some(3), "outy".to_owned(), "err".to_owned()));
        assert!(!done.succeeded() && !done.truncated);
    }

    #[tokio::test]
    async fn a_missing_program_is_named() {
        let error = Program::new("toolwright-no-such-program").run().await.unwrap_err();
        assert!(error.to_string().starts_with("`toolwright-no-such-program` could not be started"), "{error}");
    }

    #[tokio::test]
    async fn output_is_bounded_and_the_writer_is_not_held_up() {
        let done = shell("head -c 300000 /dev/zero").output_limit(1000).run().await.unwrap();
        assert_eq!((done.stdout.len(), done.truncated, done.succeeded()), (1000, true, true));
    }

    #[tokio::test]
    async fn a_time_limit_ends_it() {
        let error = shell("while :; do :; done").timeout(Duration::from_millis(50)).run().await.unwrap_err();
        assert!(matches!(error, ProcessError::Timeout { .. }), "{error}");
    }

    // A descendant writes its own id into a file; when that is there, the run is dropped.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn dropping_the_run_ends_the_whole_group() {
        let file = std::env::temp_dir().join(format!("toolwright-group-{}", std::process::id()));
        let program = shell(&format!("sh -c 'echo $$ > {}; while :; do :; done' & wait", file.display()));
        let written = async {
            loop {
                if let Some(pid) = std::fs::read_to_string(&file).ok().and_then(|text| text.trim().parse::<i32>().ok()) {
                    break pid;
                }
                tokio::task::yield_now().await;
            }
        };
        let pid = tokio::select! {
            ended = program.run() => panic!("{ended:?}"),
            pid = written => pid,
        };
        std::fs::remove_file(&file).unwrap();
        let gone = async {
            // A dead process that nobody has collected yet has no command line.
            while std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty()) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), gone).await.expect("the descendant lives on");
    }

    #[tokio::test]
    async fn a_background_child_with_open_outputs_is_not_waited_for() {
        let done = shell("sleep 600 & printf done").timeout(Duration::from_mins(1)).run().await.unwrap();
        assert_eq!(done.stdout_text(), "done");
    }
}
