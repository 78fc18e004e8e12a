//! Which model the agent of a command has.

use std::sync::Arc;

use toolwright::models::MODEL_VAR;
use toolwright::{Agent, AgentBuilder, FeatureResolvers, InstalledResolvers as _, Store, ToolDef as _};

use crate::args::AgentOptions;
use crate::interrupt::Interrupts;
use crate::local;
use crate::problem::Problem;
use crate::rules;
use crate::terminal::{DIM, Terminal};
use crate::toolbox::Toolbox;

/// A model, and how it came to be chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The one that was named, here or in the environment.
    Named(String),
    /// The local model, which was asked for.
    Local,
    /// The local model, because nothing else is set up. Only the command falls back; the library never does.
    Fallback,
}

impl Choice {
    /// The model named, else the one that the environment asks for, else the local one.
    pub(crate) fn of(named: Option<&str>) -> Self {
        let set = || std::env::var(MODEL_VAR).ok().filter(|name| !name.trim().is_empty());
        let asked = || FeatureResolvers::resolvers().iter().find_map(|resolver| resolver.from_env());
        let name = named.map(str::to_owned).or_else(set).or_else(asked);
        match name {
            Some(name) if name.trim() == local::NAME => Self::Local,
            Some(name) => Self::Named(name.trim().to_owned()),
            None => Self::Fallback,
        }
    }

    pub(crate) fn is_local(&self) -> bool {
        !matches!(self, Self::Named(_))
    }
}

/// The agent of `run`, `chat` and `threads resume`, with the sets of tools that were asked for.
pub(crate) async fn agent(
    options: &AgentOptions,
    choice: &Choice,
    store: Option<Arc<dyn Store>>,
    terminal: &mut Terminal,
    interrupts: &mut Interrupts,
) -> Result<Agent, Problem> {
    let tools = Toolbox::open(&options.tools.places, terminal)?.chosen(&options.tools, choice)?;
    let mut builder = Agent::builder().name("toolwright").tools(tools);
    if let Some(store) = store {
        builder = builder.store(store);
    }
    if let Some(instructions) = &options.instructions {
        builder = builder.instructions(instructions.as_str());
    }
    if let Some(steps) = options.max_steps {
        builder = builder.max_steps(steps);
    }
    if let Some(limit) = options.tool_concurrency {
        builder = builder.tool_concurrency(limit);
    }
    if options.questions {
        builder = builder.tool(toolwright::builtin::ask_question::tool());
    }
    for file in &options.rules {
        builder = builder.rule_set(&rules::of_file(file)?);
    }
    if *choice == Choice::Fallback {
        terminal.note(format_args!(
            "{DIM}no model is set up, so the local one runs here: it calls tools and does not converse; name another with --model or {MODEL_VAR}{DIM:#}"
        ));
    }
    Ok(with_model(builder, choice, terminal, interrupts).await?.build()?)
}

async fn with_model(
    builder: AgentBuilder,
    choice: &Choice,
    terminal: &mut Terminal,
    interrupts: &mut Interrupts,
) -> Result<AgentBuilder, Problem> {
    match choice {
        Choice::Named(name) => Ok(builder.model(name.as_str())),
        Choice::Local | Choice::Fallback => local::give(builder, terminal, interrupts).await,
    }
}
