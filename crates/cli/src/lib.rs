//! The command `toolwright`: what stands between a person, or a script, and the library.
//!
//! - [`main`]: arguments in, an [`Exit`] out;
//! - [`lint`]: what is doubtful about tools, as plain data;
//! - [`reference()`]: the help texts of every command.

mod approvals;
mod args;
mod ask;
mod chat;
mod choose;
mod doctor;
mod env;
mod exit;
mod follow;
mod interrupt;
mod kept;
mod lines;
pub mod lint;
mod local;
mod models;
mod problem;
mod rules;
mod run;
mod show;
mod talk;
mod terminal;
mod threads;
mod toolbox;
mod tools;
mod usage;

use std::ffi::OsString;

use clap::Parser;

pub use args::reference;
use args::{ApprovalsCommand, Cli, Command, EnvCommand, ModelsCommand, ThreadsCommand, ToolsCommand};
pub use exit::Exit;
use problem::Problem;
use terminal::Terminal;

/// Runs the command with these arguments, the program's own name first.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let mut terminal = Terminal::new(args::color_of(&arguments));
    let outcome = match Cli::try_parse_from(&arguments) {
        Ok(cli) => dispatch(cli, &mut terminal),
        Err(error) => usage::told(&error, &arguments, &mut terminal),
    };
    outcome.unwrap_or_else(|problem| problem.tell(&mut terminal))
}

fn dispatch(cli: Cli, terminal: &mut Terminal) -> Result<Exit, Problem> {
    if let Some(filter) = &cli.global.log {
        terminal::log(filter)?;
    }
    match cli.command {
        Command::Run(options) => on_runtime(run::run(options, terminal)),
        Command::Chat(options) => on_runtime(chat::chat(&options, terminal)),
        Command::Threads(command) => on_runtime(of_threads(command, terminal)),
        Command::Env(EnvCommand::List(options)) => on_runtime(env::list(&options, terminal)),
        Command::Env(EnvCommand::Set(options)) => on_runtime(env::set(&options, terminal)),
        Command::Env(EnvCommand::Unset(options)) => on_runtime(env::unset(&options, terminal)),
        Command::Approvals(command) => on_runtime(of_approvals(command, terminal)),
        Command::Tools(ToolsCommand::List(options)) => tools::list(options, terminal),
        Command::Tools(ToolsCommand::Show(options)) => tools::show(&options, terminal),
        Command::Tools(ToolsCommand::Call(options)) => on_runtime(tools::call(options, terminal)),
        Command::Tools(ToolsCommand::Lint(options)) => tools::lint(&options, terminal),
        Command::Models(ModelsCommand::List(options)) => models::list(options, terminal),
        Command::Models(ModelsCommand::Fetch) => on_runtime(models::fetch(terminal)),
        Command::Models(ModelsCommand::Check(options)) => on_runtime(models::check(&options, terminal)),
        Command::Doctor(options) => on_runtime(doctor::doctor(options, terminal)),
    }
}

async fn of_threads(command: ThreadsCommand, terminal: &mut Terminal) -> Result<Exit, Problem> {
    match command {
        ThreadsCommand::List(options) => threads::list(&options, terminal).await,
        ThreadsCommand::Show(options) => threads::show(&options, terminal).await,
        ThreadsCommand::Events(options) => threads::events(&options, terminal).await,
        ThreadsCommand::Resume(options) => threads::resume(&options, terminal).await,
        ThreadsCommand::Fork(options) => threads::fork(options, terminal).await,
        ThreadsCommand::Compare(options) => threads::compare(&options, terminal).await,
        ThreadsCommand::Export(options) => threads::export(&options, terminal).await,
        #[cfg(unix)]
        ThreadsCommand::Rewind(options) => threads::rewind(&options, terminal).await,
        ThreadsCommand::Delete(options) => threads::delete(&options, terminal).await,
    }
}

async fn of_approvals(command: ApprovalsCommand, terminal: &mut Terminal) -> Result<Exit, Problem> {
    match command {
        ApprovalsCommand::List(options) => approvals::list(&options, terminal).await,
        ApprovalsCommand::Show(options) => approvals::show(&options, terminal).await,
        ApprovalsCommand::Approve(options) => approvals::approve(&options, terminal).await,
        ApprovalsCommand::Reject(options) => approvals::reject(&options, terminal).await,
        ApprovalsCommand::Answer(options) => approvals::answer(&options, terminal).await,
        ApprovalsCommand::Complete(options) => approvals::complete(&options, terminal).await,
        ApprovalsCommand::Delegate(options) => approvals::delegate(&options, terminal).await,
    }
}

/// Runs `work` to its end. What is still on other threads then, such as a reader that waits for a key, is left behind.
fn on_runtime(work: impl Future<Output = Result<Exit, Problem>>) -> Result<Exit, Problem> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| Problem::failed("TOOLWRIGHT_AGENT_EXECUTION_FAILED", format!("no threads could be started: {error}")))?;
    let exit = runtime.block_on(work);
    runtime.shutdown_background();
    exit
}
