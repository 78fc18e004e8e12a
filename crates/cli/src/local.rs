//! The local model: where its weights are, and fetching them with a bar to watch.

use std::path::PathBuf;

use toolwright::AgentBuilder;

use crate::interrupt::Interrupts;
use crate::problem::Problem;
use crate::terminal::Terminal;

/// The name by which the local model is asked for.
pub(crate) const NAME: &str = "local";

/// What is known of the weights without reading them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "each build has its own answers")]
pub(crate) enum Weights {
    /// A file of the right size is there.
    Here(PathBuf),
    /// It would be fetched to this place.
    Absent(Option<PathBuf>),
    /// A path was set, and what is there can't be the model.
    Wrong(PathBuf),
    /// This build has no local model.
    NotBuilt,
}

#[cfg(feature = "local")]
mod built {
    use std::io::IsTerminal as _;

    use indicatif::{ProgressBar, ProgressStyle};
    use toolwright::models::local::{LocalError, LocalModel, weights};

    use super::{AgentBuilder, Interrupts, PathBuf, Problem, Terminal, Weights};
    use crate::exit::Exit;
    use crate::terminal::DIM;

    /// Gives the agent the local model, fetching its weights if need be.
    pub(crate) async fn give(builder: AgentBuilder, terminal: &mut Terminal, interrupts: &mut Interrupts) -> Result<AgentBuilder, Problem> {
        let path = fetch(terminal, interrupts).await?;
        Ok(builder.model(LocalModel::at(path)))
    }

    /// The weights, fetched if need be. A person sees a bar; a log gets a line for each source.
    pub(crate) async fn fetch(terminal: &mut Terminal, interrupts: &mut Interrupts) -> Result<PathBuf, Problem> {
        let bar = ProgressBar::hidden();
        if terminal.is_watched() {
            bar.set_draw_target(indicatif::ProgressDrawTarget::stderr());
        }
        let style = ProgressStyle::with_template("fetching the local model from {msg} {wide_bar} {bytes}/{total_bytes} {eta}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let mut source = "";
        let quiet = !std::io::stderr().is_terminal();
        let fetched = weights::ensure(|progress| {
            if source != progress.source {
                source = progress.source;
                bar.set_length(weights::SIZE);
                bar.set_message(source);
                if quiet {
                    terminal.note(format_args!("{DIM}fetching the local model from {source}{DIM:#}"));
                }
            }
            if let Some(total) = progress.total {
                bar.set_length(total);
            }
            bar.set_position(progress.done);
        });
        let fetched = tokio::select! {
            fetched = fetched => fetched,
            () = interrupts.next() => {
                bar.finish_and_clear();
                return Err(Problem::Quiet(Exit::Interrupted));
            }
        };
        bar.finish_and_clear();
        fetched.map_err(|error| problem(&error))
    }

    /// The weights, if they are here and whole.
    pub(crate) async fn verified() -> Result<Option<PathBuf>, Problem> {
        let found = tokio::task::spawn_blocking(|| weights::Places::of_user().find()).await;
        let broken = |error| Problem::failed("TOOLWRIGHT_AGENT_EXECUTION_FAILED", format!("the weights could not be read: {error}"));
        found.map_err(broken)?.map_err(|error| problem(&error))
    }

    /// What is known of the weights without reading them.
    pub(crate) fn weights() -> Weights {
        let places = weights::Places::of_user();
        let fits = |path: &PathBuf| path.metadata().is_ok_and(|file| file.len() == weights::SIZE);
        match (places.configured, places.folder.map(|folder| folder.join(weights::FILE))) {
            (Some(path), _) | (None, Some(path)) if fits(&path) => Weights::Here(path),
            (Some(path), _) => Weights::Wrong(path),
            (None, path) => Weights::Absent(path),
        }
    }

    /// The folder in which weights are kept.
    pub(crate) fn folder() -> Option<PathBuf> {
        weights::Places::of_user().folder
    }

    fn problem(error: &LocalError) -> Problem {
        let message = error.to_string();
        let code = "TOOLWRIGHT_PROVIDER_REQUEST_FAILED";
        match message.rsplit_once("; ") {
            Some((sentence, hint)) => Problem::new(Exit::Usage, code, sentence).hint(hint),
            None => Problem::new(Exit::Usage, code, message),
        }
    }
}

#[cfg(not(feature = "local"))]
mod built {
    use super::{AgentBuilder, Interrupts, PathBuf, Problem, Terminal, Weights};
    use crate::exit::Exit;

    fn absent() -> Problem {
        Problem::new(Exit::Usage, "TOOLWRIGHT_CONFIG_MISSING_PROVIDER", "no model is set up, and this build has no local one")
            .hint("name a model with --model provider/name or TOOLWRIGHT_MODEL, or build with the feature `local`")
    }

    pub(crate) async fn give(
        _builder: AgentBuilder,
        _terminal: &mut Terminal,
        _interrupts: &mut Interrupts,
    ) -> Result<AgentBuilder, Problem> {
        Err(absent())
    }

    pub(crate) async fn fetch(_terminal: &mut Terminal, _interrupts: &mut Interrupts) -> Result<PathBuf, Problem> {
        Err(absent())
    }

    pub(crate) async fn verified() -> Result<Option<PathBuf>, Problem> {
        Err(absent())
    }

    pub(crate) fn weights() -> Weights {
        Weights::NotBuilt
    }

    pub(crate) fn folder() -> Option<PathBuf> {
        None
    }
}

pub(crate) use built::{fetch, folder, give, verified, weights};
