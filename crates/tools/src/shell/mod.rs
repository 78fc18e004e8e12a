//! The shell tool, and programs in the background (sdk-tools 25.2, 25.4, 26.1).
//!
//! ```
//! use toolwright_tools::shell::ShellTools;
//!
//! let tools = ShellTools::in_dir(".").allow(["git log", "git status", "ls"]).tools()?;
//! let names: Vec<_> = tools.iter().map(|tool| tool.name().to_string()).collect();
//! assert_eq!(names, ["shell", "shell_output", "shell_kill"]);
//! # Ok::<_, toolwright_tools::shell::ShellError>(())
//! ```

mod jobs;
mod patterns;
mod run;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use toolwright_host::process::{Environment, GRACE, KEPT, Spawn};
use toolwright_host::sandbox::Sandbox;
use toolwright_tool::{ApprovalOutcome, DefinitionError, NeedsApproval, Tool, ToolError};

use jobs::Jobs;
use patterns::Lists;
pub use patterns::ShellPattern;

/// How long a command may take where it does not say (sdk-tools 25.2).
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);
/// The most that it may ask for.
const MAX_TIMEOUT: Duration = Duration::from_secs(600);
/// How many characters of each output the model reads.
const MAX_OUTPUT: usize = 30_000;
/// How many programs of one thread run in the background at once.
const MAX_JOBS: usize = 8;

/// Why a shell tool can't be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShellError {
    /// A pattern of a command is not valid.
    #[error("{problem}")]
    Pattern {
        /// One sentence.
        problem: String,
    },
    /// A tool is not valid.
    #[error(transparent)]
    Definition(#[from] DefinitionError),
}

impl ShellError {
    /// Its stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Pattern { .. } => "TOOLWRIGHT_CONFIG_INVALID",
            Self::Definition(error) => error.code(),
        }
    }
}

type Ask = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Whether a command has to be approved.
#[derive(Clone)]
enum Approves {
    Always,
    Never,
    If(Ask),
}

/// A shell for a model: one tool that runs a command, and two for what it left running in the background. Every command has to be
/// approved unless told otherwise.
#[derive(Clone)]
pub struct ShellTools {
    name: String,
    dir: PathBuf,
    environment: Environment,
    allow: Option<Vec<ShellPattern>>,
    deny: Vec<ShellPattern>,
    approves: Approves,
    default_timeout: Duration,
    max_timeout: Duration,
    max_output: usize,
    grace: Duration,
    max_jobs: usize,
    sandbox: Option<Arc<dyn Sandbox>>,
}

impl fmt::Debug for ShellTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShellTools")
            .field("name", &self.name)
            .field("dir", &self.dir)
            .field("sandbox", &self.sandbox)
            .finish_non_exhaustive()
    }
}

impl ShellTools {
    /// A shell whose commands begin in `dir`. That is where they begin, not what they are kept to: for that, give it a sandbox.
    pub fn in_dir(dir: impl Into<PathBuf>) -> Self {
        Self {
            name: "shell".to_owned(),
            dir: dir.into(),
            environment: Environment::scrubbed(),
            allow: None,
            deny: Vec::new(),
            approves: Approves::Always,
            default_timeout: DEFAULT_TIMEOUT,
            max_timeout: MAX_TIMEOUT,
            max_output: MAX_OUTPUT,
            grace: GRACE,
            max_jobs: MAX_JOBS,
            sandbox: None,
        }
    }

    /// What the tool is called; the two others are called `<name>_output` and `<name>_kill`.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The variables that commands get; [`Environment::scrubbed`] unless told otherwise.
    #[must_use]
    pub fn environment(mut self, environment: Environment) -> Self {
        self.environment = environment;
        self
    }

    /// Only these commands run. A line runs if each command in it is allowed and nothing about it is unclear. Whether somebody is asked is another
    /// matter: see [`needs_approval`](Self::needs_approval).
    #[must_use]
    pub fn allow<P: Into<ShellPattern>>(mut self, patterns: impl IntoIterator<Item = P>) -> Self {
        self.allow.get_or_insert_default().extend(patterns.into_iter().map(Into::into));
        self
    }

    /// These commands do not run, and nobody is asked. A list of what is refused is easily got round; what has to hold belongs into
    /// [`allow`](Self::allow), or into a sandbox.
    #[must_use]
    pub fn deny<P: Into<ShellPattern>>(mut self, patterns: impl IntoIterator<Item = P>) -> Self {
        self.deny.extend(patterns.into_iter().map(Into::into));
        self
    }

    /// Whether every command has to be approved. It has to, unless this says `false`.
    #[must_use]
    pub fn needs_approval(mut self, always: bool) -> Self {
        self.approves = if always { Approves::Always } else { Approves::Never };
        self
    }

    /// Which commands have to be approved, by the whole line.
    #[must_use]
    pub fn needs_approval_if(mut self, asks: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        self.approves = Approves::If(Arc::new(asks));
        self
    }

    /// How long a command may take where the model does not say: two minutes unless told otherwise.
    #[must_use]
    pub fn default_timeout(mut self, timeout: Duration) -> Self {
        self.default_timeout = timeout;
        self
    }

    /// The most that a model may ask for: ten minutes unless told otherwise. What is more is lowered to it.
    #[must_use]
    pub fn max_timeout(mut self, timeout: Duration) -> Self {
        self.max_timeout = timeout;
        self
    }

    /// How many characters of each output the model reads, half of them from the beginning and half from the end: 30,000 unless told
    /// otherwise.
    #[must_use]
    pub fn max_output(mut self, characters: usize) -> Self {
        self.max_output = characters;
        self
    }

    /// How long a command has between being asked to end and being killed: two seconds unless told otherwise. A run that is
    /// stopped waits five seconds for its tools.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// How many programs of one thread may run in the background at once: 8 unless told otherwise.
    #[must_use]
    pub fn max_jobs(mut self, jobs: usize) -> Self {
        self.max_jobs = jobs;
        self
    }

    /// Commands run in this sandbox.
    #[must_use]
    pub fn sandbox(mut self, sandbox: Arc<dyn Sandbox>) -> Self {
        self.sandbox = Some(sandbox);
        self
    }

    /// The three tools. What runs in the background belongs to them: it is killed once they are dropped.
    pub fn tools(&self) -> Result<Vec<Tool>, ShellError> {
        let shell =
            Shell { lists: Lists::compile(self.allow.as_deref(), &self.deny)?, jobs: Jobs::new(self.max_jobs), options: self.clone() };
        run::tools(&Arc::new(shell))
    }
}

/// What the three tools share.
struct Shell {
    options: ShellTools,
    lists: Lists,
    jobs: Jobs,
}

impl Shell {
    fn spawn(&self, command: &str) -> Spawn {
        let options = &self.options;
        let spawn = Spawn::shell(command).environment(options.environment.clone()).dir(&options.dir).grace(options.grace).keep(KEPT);
        match &options.sandbox {
            Some(sandbox) => spawn.sandbox(Arc::clone(sandbox)),
            None => spawn,
        }
    }

    fn timeout(&self, asked_ms: Option<u64>) -> Duration {
        asked_ms.map_or(self.options.default_timeout, Duration::from_millis).min(self.options.max_timeout)
    }

    /// A refusal that no approval gets past.
    fn permits(&self, command: &str) -> Result<(), String> {
        if command.contains('\0') {
            return Err("it holds a NUL character, which no command can".to_owned());
        }
        self.lists.refusal(command).map_or(Ok(()), Err)
    }

    fn approval(self: &Arc<Self>) -> NeedsApproval {
        let shell = Arc::clone(self);
        NeedsApproval::Policy(Arc::new(move |cx| {
            let command = cx.args().value().get("command").and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
            let outcome = match (shell.permits(&command), &shell.options.approves) {
                (Err(why), _) => ApprovalOutcome::Deny(Some(why)),
                (Ok(()), Approves::Always) => ApprovalOutcome::Ask,
                (Ok(()), Approves::Never) => ApprovalOutcome::Run,
                (Ok(()), Approves::If(asks)) => asks(&command).into(),
            };
            Box::pin(std::future::ready(Ok::<_, ToolError>(outcome)))
        }))
    }
}
