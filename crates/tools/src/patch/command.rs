//! A command that has to succeed with the patch applied.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_util::FutureExt as _;
use toolwright_host::process::{Ended, Environment, How, Spawn};
use toolwright_host::sandbox::{Sandbox, SandboxError};
use toolwright_tool::core::bounded;

use super::copy::copied;
use super::{Checked, PatchCheck};

/// How long the command may take unless told otherwise.
const DEADLINE: Duration = Duration::from_secs(30);
/// How much of its last output stands in a reason, in characters.
const SHOWN: usize = 1_000;

type Confine = Arc<dyn Fn(&Path) -> Result<Arc<dyn Sandbox>, SandboxError> + Send + Sync>;

/// Runs a command on a copy of a folder to which the patch was applied; a code other than 0 fails it. A diff that is empty needs no copy: then
/// the command runs in the folder itself.
///
/// The diff has to apply cleanly, which `git` says. It may have been written by a model: so may be what the command then runs. Give it a
/// [`sandbox`](Self::sandbox).
#[derive(Clone)]
pub struct CommandCheck {
    name: String,
    dir: PathBuf,
    program: OsString,
    args: Vec<OsString>,
    environment: Environment,
    deadline: Duration,
    left_out: Vec<String>,
    confine: Option<Confine>,
}

impl fmt::Debug for CommandCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandCheck")
            .field("name", &self.name)
            .field("dir", &self.dir)
            .field("program", &self.program)
            .finish_non_exhaustive()
    }
}

impl CommandCheck {
    /// A check by this name, of what is in `dir`, by a program.
    pub fn new(name: impl Into<String>, dir: impl Into<PathBuf>, program: impl Into<OsString>) -> Self {
        Self {
            name: name.into(),
            dir: dir.into(),
            program: program.into(),
            args: Vec::new(),
            environment: Environment::scrubbed(),
            deadline: DEADLINE,
            left_out: Vec::new(),
            confine: None,
        }
    }

    /// `npm test`.
    pub fn test_run(dir: impl Into<PathBuf>) -> Self {
        Self::new("test-run", dir, "npm").args(["test"])
    }

    /// `npm run lint`.
    pub fn lint(dir: impl Into<PathBuf>) -> Self {
        Self::new("lint", dir, "npm").args(["run", "lint"])
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// The variables it gets.
    #[must_use]
    pub fn environment(mut self, environment: Environment) -> Self {
        self.environment = environment;
        self
    }

    /// How long the command may take: half a minute unless told otherwise. [`PatchChecks::timeout`](super::PatchChecks::timeout) holds beside it.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Names of files and folders that are not copied, such as `target`.
    #[must_use]
    pub fn leave_out<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.left_out.extend(names.into_iter().map(Into::into));
        self
    }

    /// Runs the command in a sandbox, which is made for the folder that it runs in.
    #[must_use]
    pub fn sandbox(mut self, sandbox: impl Fn(&Path) -> Result<Arc<dyn Sandbox>, SandboxError> + Send + Sync + 'static) -> Self {
        self.confine = Some(Arc::new(sandbox));
        self
    }

    async fn checked(&self, diff: &str) -> Checked {
        if diff.trim().is_empty() {
            return self.run_in(&self.dir).await;
        }
        let dir = self.dir.display();
        let copy = copied(&self.dir, &self.left_out).await.map_err(|error| format!("{dir} could not be copied: {error}"))?;
        let patch = tempfile::NamedTempFile::new().map_err(|error| format!("the diff could not be written: {error}"))?;
        std::fs::write(patch.path(), diff).map_err(|error| format!("the diff could not be written: {error}"))?;
        // A repository that the copy happens to lie in is none of its business; without one, git applies to files alone.
        let environment = Environment::scrubbed()
            .set("GIT_CEILING_DIRECTORIES", copy.path().parent().unwrap_or_else(|| Path::new("/")))
            .set("GIT_CONFIG_NOSYSTEM", "1")
            .set("GIT_CONFIG_GLOBAL", if cfg!(windows) { "NUL" } else { "/dev/null" });
        let apply = Spawn::new("git").arg("-c").arg("core.hooksPath=/dev/null").arg("apply").arg("--whitespace=nowarn").arg(patch.path());
        let applied = apply.environment(environment).dir(copy.path()).deadline(self.deadline).run().await;
        let applied = applied.map_err(|error| error.to_string())?;
        if applied.code != Some(0) {
            return Err(format!("the diff does not apply: {}", last(&applied)));
        }
        self.run_in(copy.path()).await
    }

    async fn run_in(&self, dir: &Path) -> Checked {
        let spawn = self.args.iter().fold(Spawn::new(&self.program), Spawn::arg);
        let mut spawn = spawn.environment(self.environment.clone()).dir(dir).deadline(self.deadline);
        if let Some(confine) = &self.confine {
            spawn = spawn.sandbox(confine(dir).map_err(|error| error.to_string())?);
        }
        let ended = spawn.run().await.map_err(|error| error.to_string())?;
        let program = self.program.to_string_lossy();
        match (ended.how, ended.code, ended.signal) {
            (How::Exited, Some(0), _) => Ok(()),
            (How::Exited, Some(code), _) => Err(format!("`{program}` ended with {code}: {}", last(&ended))),
            (How::Exited, None, signal) => Err(format!("signal {} ended `{program}`: {}", signal.unwrap_or_default(), last(&ended))),
            _ => Err(format!("`{program}` did not end within {} ms and was killed: {}", self.deadline.as_millis(), last(&ended))),
        }
    }
}

/// The end of what a program said, rather of its errors.
fn last(ended: &Ended) -> String {
    let (out, err) = (ended.stdout.text(), ended.stderr.text());
    let said = if err.trim().is_empty() { out } else { err };
    let said = said.trim();
    let skipped = said.chars().count().saturating_sub(SHOWN);
    let end: String = said.chars().skip(skipped).collect();
    if end.is_empty() { "it said nothing".to_owned() } else { bounded(&end, SHOWN + 100) }
}

impl PatchCheck for CommandCheck {
    fn name(&self) -> &str {
        &self.name
    }

    fn check<'a>(&'a self, diff: &'a str) -> BoxFuture<'a, Checked> {
        self.checked(diff).boxed()
    }
}
