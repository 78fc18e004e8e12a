//! How a program that a model asked for is started.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::process::{Child, Command};

use super::environment::Environment;
use super::error::ProcessError;
use super::group::Group;
use super::output::Keeper;
use super::running::{Ended, Process, Watched};
use crate::sandbox::{Confined, Entry, Sandbox};

/// How many bytes of each output are kept by default (sdk-tools 25.2/7).
pub const KEPT: usize = 1_000_000;
/// How long a program that was asked to end has by default before it is killed.
pub const GRACE: Duration = Duration::from_secs(2);

/// A program that is started for a model: what runs, where, with what, and for how long.
///
/// ```
/// use std::time::Duration;
/// use toolwright_host::process::Spawn;
///
/// # #[cfg(unix)]
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let ended = Spawn::shell("echo hello; exit 3").deadline(Duration::from_secs(5)).run().await?;
/// assert_eq!((ended.code, ended.stdout.text().as_str()), (Some(3), "hello\n"));
/// # Ok::<_, toolwright_host::process::ProcessError>(())
/// # })?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Spawn {
    launch: Launch,
    environment: Environment,
    deadline: Option<Duration>,
    grace: Duration,
    keep: usize,
    sandbox: Option<Arc<dyn Sandbox>>,
}

/// What is started: a program by name or path, its arguments, variables and folder. Nothing is inherited.
#[derive(Clone, Debug, Default)]
pub struct Launch {
    /// The program.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Its environment, all of it.
    pub env: Vec<(OsString, OsString)>,
    /// The folder it runs in; that of this process where there is none.
    pub dir: Option<PathBuf>,
}

impl Launch {
    /// The program's name, for sentences.
    pub fn name(&self) -> String {
        self.program.to_string_lossy().into_owned()
    }

    #[allow(clippy::disallowed_methods, reason = "host::process is the one place that starts processes")]
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).env_clear().envs(self.env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        if let Some(dir) = &self.dir {
            command.current_dir(dir);
        }
        #[cfg(unix)]
        command.process_group(0);
        command
    }
}

impl Spawn {
    /// A program by name or path, with a scrubbed environment, no input, no deadline, and [`KEPT`] bytes of each output.
    pub fn new(program: impl Into<OsString>) -> Self {
        let launch = Launch { program: program.into(), ..Launch::default() };
        Self { launch, environment: Environment::scrubbed(), deadline: None, grace: GRACE, keep: KEPT, sandbox: None }
    }

    /// A line of shell text: `sh -c` on Unix, `cmd /C` on Windows.
    pub fn shell(command: impl Into<OsString>) -> Self {
        if cfg!(windows) { Self::new("cmd").arg("/C").arg(command) } else { Self::new("sh").arg("-c").arg(command) }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.launch.args.push(arg.into());
        self
    }

    /// The variables it gets.
    #[must_use]
    pub fn environment(mut self, environment: Environment) -> Self {
        self.environment = environment;
        self
    }

    /// The folder it runs in.
    #[must_use]
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.launch.dir = Some(dir.into());
        self
    }

    /// How long it may take from its start; then it and all that it started are ended.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// How long it has between being asked to end and being killed.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// How many bytes of each output are kept, half from its beginning and half from its end. The rest is read, counted and dropped.
    #[must_use]
    pub fn keep(mut self, bytes: usize) -> Self {
        self.keep = bytes;
        self
    }

    /// Runs it confined. The sandbox may set variables and change the folder for temporary files and `HOME`.
    #[must_use]
    pub fn sandbox(mut self, sandbox: Arc<dyn Sandbox>) -> Self {
        self.sandbox = Some(sandbox);
        self
    }

    /// Runs it to its end. Where this future is dropped, it and all that it started are killed.
    pub async fn run(&self) -> Result<Ended, ProcessError> {
        self.run_until(std::future::pending()).await
    }

    /// Runs it to its end, or until `stop` is done: then it and all that it started are asked to end, and killed after the grace.
    pub async fn run_until(&self, stop: impl Future<Output = ()>) -> Result<Ended, ProcessError> {
        let process = self.start()?;
        tokio::select! {
            ended = process.ended() => ended,
            () = stop => process.stop().await,
        }
    }

    /// Starts it and leaves it running. It needs a tokio runtime with time and I/O; dropping the [`Process`] kills it.
    pub fn start(&self) -> Result<Process, ProcessError> {
        let mut launch = self.launch.clone();
        launch.env = self.environment.variables();
        let name = launch.name();
        if tokio::runtime::Handle::try_current().is_err() {
            let source = std::io::Error::other("there is no tokio runtime here to follow it");
            return Err(ProcessError::Start { program: name, source });
        }
        if let Some(dir) = launch.dir.as_ref().filter(|dir| !dir.is_dir()) {
            return Err(ProcessError::Folder { program: name, dir: dir.display().to_string() });
        }
        #[cfg(target_os = "linux")]
        let mark = {
            let mark = super::hunt::new_mark();
            launch.env.push((super::hunt::MARK.into(), mark.clone().into()));
            Some(mark)
        };
        #[cfg(not(target_os = "linux"))]
        let mark = None;
        let confined = match &self.sandbox {
            None => Confined::plain(launch),
            Some(sandbox) => {
                sandbox.confine(launch).map_err(|error| ProcessError::Sandbox { program: name.clone(), problem: error.to_string() })?
            }
        };
        let mut command = confined.launch.command();
        #[cfg(all(target_os = "linux", feature = "sandbox"))]
        if let Some(joins) = confined.joins {
            super::unsafe_start::join(&mut command, joins);
        }
        let started = match confined.entry {
            None => command.spawn(),
            Some(entry) => on_a_thread_of_its_own(command, entry),
        };
        let child = started.map_err(|source| ProcessError::Start { program: name.clone(), source })?;
        let watched = Watched { deadline: self.deadline, grace: self.grace, cleanup: confined.cleanup, held: confined.held };
        Ok(Process::follow(name, Group::of(child, mark), || Keeper::both_ends(self.keep), watched))
    }
}

/// Starts a program on a thread that `entry` restricts for good: what a thread is restricted to, its child is too.
fn on_a_thread_of_its_own(mut command: Command, entry: Entry) -> std::io::Result<Child> {
    let runtime = tokio::runtime::Handle::current();
    let thread = std::thread::Builder::new().name("toolwright-sandbox".to_owned()).spawn(move || {
        let _entered = runtime.enter();
        entry()?;
        command.spawn()
    })?;
    thread.join().unwrap_or_else(|_| Err(std::io::Error::other("the thread that was to start it panicked")))
}
