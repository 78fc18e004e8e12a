//! `toolwright doctor`: what this machine has, and what to do about what it has not.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use toolwright::models::switches::Switches;
use toolwright_host::process::Program;

use crate::args::Json;
use crate::choose::Choice;
use crate::exit::Exit;
use crate::local::{self, Weights};
use crate::models::is_set;
use crate::problem::Problem;
use crate::terminal::{BAD, GOOD, Terminal, WARN};

/// How long a program may take to tell its version.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Ok,
    Warn,
    Fail,
}

#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    state: State,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, state: State::Ok, found: found.into(), fix: None }
    }

    fn not(name: &'static str, state: State, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, state, found: found.into(), fix: Some(fix.into()) }
    }
}

pub(crate) async fn doctor(options: Json, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let checks = [
        Check::ok("version", env!("CARGO_PKG_VERSION")),
        Check::ok("platform", format!("{} {}", std::env::consts::OS, std::env::consts::ARCH)),
        model(),
        keys(),
        weights(),
        pip().await,
        folder(),
        sandbox(),
    ];
    let fails = checks.iter().any(|check| check.state == State::Fail);
    if options.json {
        writeln!(terminal.out(), "{}", json!({ "ok": !fails, "checks": checks }))?;
    } else {
        for Check { name, state, found, fix } in &checks {
            let (style, word) = match state {
                State::Ok => (GOOD, "ok"),
                State::Warn => (WARN, "warn"),
                State::Fail => (BAD, "fail"),
            };
            writeln!(terminal.out(), "{style}{word:<4}{style:#}  {name:<12} {found}")?;
            if let Some(fix) = fix {
                writeln!(terminal.out(), "      {:<12} {fix}", "")?;
            }
        }
    }
    Ok(if fails { Exit::Failed } else { Exit::Done })
}

/// Which model a run would have.
fn model() -> Check {
    match Choice::of(None) {
        Choice::Named(name) => {
            let agent = toolwright::Agent::builder().model(name.as_str()).build();
            match agent {
                Ok(_) => Check::ok("model", name),
                Err(error) => Check::not("model", State::Fail, error.to_string(), "correct TOOLWRIGHT_MODEL, or unset it"),
            }
        }
        Choice::Local => Check::ok("model", "local, which the environment asks for"),
        Choice::Fallback if local::weights() == Weights::NotBuilt => {
            Check::not("model", State::Warn, "none is set up", "set TOOLWRIGHT_MODEL, or the key of a provider")
        }
        Choice::Fallback => Check::ok("model", "local, as nothing else is set up"),
    }
}

/// Which keys are set; never what they are.
fn keys() -> Check {
    let variables = Switches::table().iter().flat_map(|row| [row.key_var, row.base_url_var]).flatten();
    let set: Vec<&str> = variables.filter(|name| is_set(name)).collect();
    if set.is_empty() {
        return Check::not(
            "keys",
            State::Warn,
            "no provider's key is set",
            "set one of those that `toolwright models list` names, to use a larger model",
        );
    }
    Check::ok("keys", format!("{} set", set.join(", ")))
}

fn weights() -> Check {
    let fetch = "fetch it with `toolwright models fetch`; the first run that needs it does so too";
    match local::weights() {
        Weights::Here(path) => Check::ok("local model", path.display().to_string()),
        Weights::Absent(_) => Check::not("local model", State::Warn, "its weights are not here", fetch),
        Weights::Wrong(path) => {
            let found = format!("{} can't be the local model", path.display());
            Check::not("local model", State::Fail, found, "correct TOOLWRIGHT_LOCAL_MODEL, or unset it")
        }
        Weights::NotBuilt => Check::not("local model", State::Warn, "this build has none", "build with the feature `local`"),
    }
}

/// pip is the second source of the weights.
async fn pip() -> Check {
    let needed = !matches!(local::weights(), Weights::Here(_) | Weights::NotBuilt);
    for python in ["python3", "python"] {
        let told = Program::new(python).args(["-m", "pip", "--version"]).timeout(PATIENCE).run().await;
        if let Ok(told) = told
            && told.succeeded()
        {
            let line = told.stdout_text();
            let version = line.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
            return Check::ok("python", format!("{python} with {version}"));
        }
    }
    let found = "no Python with pip was found";
    if needed {
        Check::not("python", State::Warn, found, "install Python 3 with pip: it is the second source of the local model's weights")
    } else {
        Check::ok("python", format!("{found}, and none is needed"))
    }
}

/// Whether weights can be kept. Nothing is left behind.
fn folder() -> Check {
    if local::weights() == Weights::NotBuilt {
        return Check::ok("data folder", "none is needed");
    }
    let Some(folder) = local::folder() else {
        return Check::not("data folder", State::Warn, "this user has none", "set HOME, or XDG_DATA_HOME");
    };
    let Some(there) = nearest(&folder) else {
        return Check::not(
            "data folder",
            State::Fail,
            format!("no part of {} exists", folder.display()),
            "set XDG_DATA_HOME to a folder of yours",
        );
    };
    let probe = there.join(format!(".toolwright-doctor-{}", std::process::id()));
    let written = std::fs::write(&probe, b"");
    let _ = std::fs::remove_file(&probe);
    match written {
        Ok(()) => Check::ok("data folder", format!("{} can be written", folder.display())),
        Err(error) => {
            let fix = "make it writable, or set XDG_DATA_HOME to another one";
            Check::not("data folder", State::Fail, format!("{} can't be written: {error}", there.display()), fix)
        }
    }
}

/// What programs that a model asks for can be kept to here.
#[cfg(target_os = "linux")]
fn sandbox() -> Check {
    use toolwright_host::sandbox::{Guard, support};

    let support = support();
    let found = support.summary();
    // To hide from one's end takes intent; everything else is what a sandbox is for.
    let needed = [Guard::Files, Guard::Signals, Guard::Network, Guard::Kernel];
    let lacks: Vec<String> =
        needed.iter().filter_map(|guard| Some(format!("{} can't be kept ({})", guard.what(), support.lacks(*guard)?))).collect();
    if !lacks.is_empty() {
        let found = format!("{found}: {}", lacks.join("; "));
        return Check::not(
            "sandbox",
            State::Warn,
            found,
            "use a newer kernel, or a container; without a sandbox commands can do what you can",
        );
    }
    let more = [
        support.lacks_a_way_out().map(|why| format!("no way out to chosen hosts ({why})")),
        support.lacks(Guard::Descendants).map(|why| format!("no end for programs that hide from it ({why})")),
    ];
    let more: Vec<String> = more.into_iter().flatten().collect();
    Check::ok("sandbox", if more.is_empty() { found } else { format!("{found}; {}", more.join("; ")) })
}

#[cfg(not(target_os = "linux"))]
fn sandbox() -> Check {
    let fix = "use a container; without a sandbox commands can do what you can";
    Check::not("sandbox", State::Warn, "there is none of our own on this system", fix)
}

/// The folder itself, or the nearest one above it that exists.
fn nearest(folder: &Path) -> Option<PathBuf> {
    folder.ancestors().find(|folder| folder.is_dir()).map(Path::to_path_buf)
}
