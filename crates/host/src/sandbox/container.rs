//! A container for each program, by the command line of Docker or of one that takes the same words.
//!
//! No container engine runs where this is built and tested: what is shown there is which words are said to an engine and that a program that is
//! stopped takes its container with it, by a program that stands in for the engine. Whether a real engine then keeps what it
//! promises is not.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Confined, Sandbox, SandboxError};
use crate::process::{Environment, Launch};

/// Programs run in a container each, which is removed with them. It has no network, no privileges, and of this machine's files only the
/// folder that the program runs in, at the same path. **Unproven**: no container engine runs where this is tested.
#[derive(Clone, Debug)]
pub struct ContainerSandbox {
    engine: OsString,
    image: String,
    network: bool,
    arguments: Vec<OsString>,
}

impl ContainerSandbox {
    /// Containers of this image, by `docker`.
    pub fn of_image(image: impl Into<String>) -> Result<Self, SandboxError> {
        let image = image.into();
        // What begins with a dash would be an option.
        if image.is_empty() || image.starts_with('-') || image.contains(char::is_whitespace) {
            return Err(SandboxError::Config { problem: format!("{image:?} is no name of an image; write it as `name:tag`") });
        }
        Ok(Self { engine: "docker".into(), image, network: false, arguments: Vec::new() })
    }

    /// Another program than `docker` that takes the same words, such as `podman`.
    #[must_use]
    pub fn engine(mut self, engine: impl Into<OsString>) -> Self {
        self.engine = engine.into();
        self
    }

    /// The engine's own network, without a guard.
    #[must_use]
    pub fn whole_network(mut self) -> Self {
        self.network = true;
        self
    }

    /// One more argument for the engine's `run`.
    #[must_use]
    pub fn argument(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }
}

impl Sandbox for ContainerSandbox {
    fn name(&self) -> &'static str {
        "container"
    }

    fn tells(&self) -> Vec<String> {
        let network = if self.network { "the engine's network" } else { "no network" };
        vec![
            format!("each program runs in a container of `{}` with {network} and, of this machine's files, its own folder", self.image),
            "NOT proven: this has not been tried with a container engine".to_owned(),
        ]
    }

    fn confine(&self, launch: Launch) -> Result<Confined, SandboxError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("toolwright-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let mut args: Vec<OsString> = ["run", "--rm", "--init", "--name", &name].map(OsString::from).into();
        if !self.network {
            args.extend(["--network", "none"].map(OsString::from));
        }
        args.extend(["--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--pids-limit", "512"].map(OsString::from));
        if let Some(dir) = &launch.dir {
            let dir = absolute(dir)?;
            let mut mount = OsString::from("type=bind,source=");
            mount.push(&dir);
            mount.push(",target=");
            mount.push(&dir);
            args.extend([OsString::from("--mount"), mount, OsString::from("--workdir"), dir.into()]);
        }
        // The values go to the engine in its own environment, so that no list of processes shows them.
        args.extend(
            launch.env.iter().filter(|(name, _)| name != "PATH" && name != "HOME").flat_map(|(name, _)| ["-e".into(), name.clone()]),
        );
        args.extend(self.arguments.iter().cloned());
        args.push(self.image.clone().into());
        args.push(launch.program);
        args.extend(launch.args);
        let mut env: Vec<_> = launch.env;
        // Where the engine is, and which one it talks to, is this process's own matter.
        let own = Environment::empty().inherit("PATH").inherit("HOME").inherit("DOCKER_HOST").inherit("DOCKER_CONTEXT").variables();
        env.retain(|(name, _)| !own.iter().any(|(other, _)| other == name));
        env.extend(own.iter().cloned());
        let remove = ["rm", "--force", &name].map(OsString::from).into();
        let cleanup = Launch { program: self.engine.clone(), args: remove, env: own, dir: None };
        let mut confined = Confined::plain(Launch { program: self.engine.clone(), args, env, dir: launch.dir });
        confined.cleanup = Some(cleanup);
        Ok(confined)
    }
}

/// A comma in a path would begin another option of a mount.
fn absolute(dir: &std::path::Path) -> Result<PathBuf, SandboxError> {
    let absolute = std::path::absolute(dir).map_err(|error| SandboxError::Setup { problem: error.to_string() })?;
    if absolute.to_string_lossy().contains([',', '"']) {
        let problem = format!("{} can't be mounted into a container; use a folder without `,` and `\"` in its path", absolute.display());
        return Err(SandboxError::Config { problem });
    }
    Ok(absolute)
}
