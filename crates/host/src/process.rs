//! Spawned programs.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};

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

/// Why a program did not run to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// It could not be started.
    #[error("`{program}` could not be started: {source}; check that it is installed and in PATH")]
    Start {
        /// The program.
        program: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// It was ended because it took too long.
    #[error("`{program}` did not end within {seconds} s and was killed")]
    Timeout {
        /// The program.
        program: String,
        /// The limit.
        seconds: u64,
    },
    /// Waiting for it, or reading its output, failed.
    #[error("`{program}` could not be followed: {source}")]
    Follow {
        /// The program.
        program: String,
        /// What the system said.
        source: std::io::Error,
    },
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
    #[allow(clippy::disallowed_methods, reason = "the one place that starts processes")]
    pub async fn run(&self) -> Result<Finished, ProcessError> {
        let name = || self.name.to_string_lossy().into_owned();
        let mut command = Command::new(&self.name);
        command.args(&self.args).envs(self.env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        if let Some(dir) = &self.dir {
            command.current_dir(dir);
        }
        #[cfg(unix)]
        command.process_group(0);
        let child = command.spawn().map_err(|source| ProcessError::Start { program: name(), source })?;
        let mut group = Group::of(child);
        let stdout = group.child.stdout.take();
        let stderr = group.child.stderr.take();

        let mut out = Kept::new(self.output_limit);
        let mut err = Kept::new(self.output_limit);
        let whole = tokio::time::timeout(self.timeout, follow(&mut group.child, stdout, stderr, &mut out, &mut err)).await;
        // Whatever the program left running goes with it.
        group.kill();
        match whole {
            Ok(Ok(status)) => {
                let truncated = out.truncated || err.truncated;
                Ok(Finished { code: status.code(), stdout: out.bytes, stderr: err.bytes, truncated })
            }
            Ok(Err(source)) => Err(ProcessError::Follow { program: name(), source }),
            Err(_) => {
                // Killed above; this only collects it.
                let _ = group.child.wait().await;
                Err(ProcessError::Timeout { program: name(), seconds: self.timeout.as_secs() })
            }
        }
    }
}

/// How long outputs are read after the program itself has ended: a descendant may hold them open for ever.
const DRAIN: Duration = Duration::from_millis(500);

async fn follow(
    child: &mut Child,
    stdout: Option<impl AsyncRead + Unpin>,
    stderr: Option<impl AsyncRead + Unpin>,
    out: &mut Kept,
    err: &mut Kept,
) -> std::io::Result<std::process::ExitStatus> {
    let reading = async { tokio::try_join!(out.read(stdout), err.read(stderr)).map(|_| ()) };
    tokio::pin!(reading);
    let mut read = false;
    let status = loop {
        tokio::select! {
            status = child.wait() => break status?,
            done = &mut reading, if !read => {
                done?;
                read = true;
            }
        }
    };
    if !read && let Ok(done) = tokio::time::timeout(DRAIN, reading).await {
        done?;
    }
    Ok(status)
}

struct Kept {
    bytes: Vec<u8>,
    limit: usize,
    truncated: bool,
}

impl Kept {
    fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), limit, truncated: false }
    }

    async fn read(&mut self, from: Option<impl AsyncRead + Unpin>) -> std::io::Result<()> {
        let Some(mut from) = from else { return Ok(()) };
        let mut piece = vec![0_u8; 8192];
        loop {
            let count = from.read(&mut piece).await?;
            if count == 0 {
                return Ok(());
            }
            let room = self.limit.saturating_sub(self.bytes.len());
            self.bytes.extend(piece.iter().take(count.min(room)));
            self.truncated |= count > room;
        }
    }
}

/// A program that takes its process group with it, once.
struct Group {
    child: Child,
    #[cfg(unix)]
    group: Option<rustix::process::Pid>,
}

impl Group {
    fn of(child: Child) -> Self {
        Self {
            #[cfg(unix)]
            group: child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw),
            child,
        }
    }

    fn kill(&mut self) {
        // The group has the program's id, which stays taken while any member lives.
        #[cfg(unix)]
        if let Some(group) = self.group.take() {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.child.start_kill();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
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
