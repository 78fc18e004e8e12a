//! The command line. Its doc comments are the help texts, and docs/command.md.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;

use anstream::ColorChoice;
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};

/// Agents whose power is their tools, from the command line.
#[derive(Debug, Parser)]
#[command(
    name = "toolwright",
    version,
    arg_required_else_help = true,
    args_override_self = true,
    after_long_help = "Exit codes: 0 done, 1 the run failed, 2 bad usage or configuration, 3 waiting for a decision, 130 interrupted.

Examples:
  toolwright run \"What day of the week was 31 December 1999?\"
  toolwright tools call day_name '{\"date\": \"1999-12-31\"}'
  toolwright tools lint --tools my-tools.json
  toolwright doctor"
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Args)]
pub(crate) struct Global {
    /// When to use colour; `auto` is only on a terminal, and not if `NO_COLOR` is set
    #[arg(long, value_name = "WHEN", value_enum, default_value = "auto", global = true)]
    color: When,
    /// Write the library's log to standard error: a level, or targets and levels
    #[arg(long, value_name = "FILTER", global = true)]
    pub(crate) log: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum When {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Send one request to an agent with the built-in tools, and show what it does
    #[command(
        after_long_help = "Without --model the model is taken from TOOLWRIGHT_MODEL, then from the first provider whose key is set; \
if there is none, the local model runs in this process and a line on standard error says so.

The reply goes to standard output; tool calls, notes and errors go to standard error.

Examples:
  toolwright run \"What day of the week was 31 December 1999?\"
  toolwright run --model openai/gpt-4o-mini --json \"What day is it?\"
  echo \"What day is it?\" | toolwright run"
    )]
    Run(RunOptions),
    /// Talk with an agent, line by line, until /quit or the end of the input
    #[command(after_long_help = "Lines that begin with / are for the command: /tools lists the tools, /help the commands, /quit ends.

Examples:
  toolwright chat
  toolwright chat --model groq/llama-3.3-70b-versatile")]
    Chat(ChatOptions),
    /// Look at tools, call them, and check their definitions
    #[command(subcommand)]
    Tools(ToolsCommand),
    /// See which models can be used, and fetch the local one
    #[command(subcommand)]
    Models(ModelsCommand),
    /// Check what this machine has and what is missing
    #[command(after_long_help = "Ends with 0 unless something fails; a warning is no failure. Values of keys are never shown.

Example:
  toolwright doctor")]
    Doctor(Json),
}

#[derive(Debug, Args)]
pub(crate) struct AgentOptions {
    /// The model: `provider/name`, or `local`
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// What the model reads first
    #[arg(long, value_name = "TEXT")]
    pub(crate) instructions: Option<String>,
    /// How many times the model may be asked in one run [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_steps: Option<u32>,
    /// How many tools may run side by side [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) tool_concurrency: Option<u32>,
    /// Write events to standard output, one JSON object a line, and nothing else
    #[arg(long)]
    pub(crate) json: bool,
    /// Approve every call that asks for a decision
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    /// The request; `-`, or nothing and a pipe, reads it from standard input
    #[arg(value_name = "PROMPT")]
    pub(crate) prompt: Option<String>,
    #[command(flatten)]
    pub(crate) agent: AgentOptions,
}

#[derive(Debug, Args)]
pub(crate) struct ChatOptions {
    #[command(flatten)]
    pub(crate) agent: AgentOptions,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Json {
    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ToolsCommand {
    /// List the built-in tools
    #[command(after_long_help = "Example:\n  toolwright tools list")]
    List(Json),
    /// Show one tool: its description, its schema, how it behaves, what it costs
    #[command(after_long_help = "Example:\n  toolwright tools show day_name")]
    Show(ShowOptions),
    /// Call one tool, through the same gate as a model's call
    #[command(after_long_help = "The result goes to standard output. A call that fails ends with 1 and says what is wrong with it.

Examples:
  toolwright tools call current_date
  toolwright tools call day_name '{\"date\": \"1999-12-31\"}'
  echo '{\"date\": \"tomorrow\"}' | toolwright tools call day_name -")]
    Call(CallOptions),
    /// Check definitions of tools: what a model or a provider will stumble over
    #[command(after_long_help = "Reports missing descriptions, names that providers refuse, what of a schema each provider loses, \
tools that are nearly the same, and what each costs in tokens. Ends with 1 if anything found is an error.

A file holds a list of tools, or an object with the list under `tools`. Each is { name, description, parameters } (or \
`inputSchema`, `input_schema`), or { type: \"function\", function: { ... } }.

Examples:
  toolwright tools lint
  toolwright tools lint --tools my-tools.json --json")]
    Lint(LintOptions),
}

#[derive(Debug, Args)]
pub(crate) struct ShowOptions {
    /// The tool's name
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(Debug, Args)]
pub(crate) struct CallOptions {
    /// The tool's name
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// The arguments, a JSON object; `-` reads them from standard input
    #[arg(value_name = "ARGUMENTS", default_value = "{}")]
    pub(crate) arguments: String,
    /// Write events to standard output, one JSON object a line, and nothing else
    #[arg(long)]
    pub(crate) json: bool,
    /// Approve the call if it asks for a decision
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LintOptions {
    /// A JSON file with definitions, in place of the built-in tools; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) tools: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ModelsCommand {
    /// List the providers, the variables that hold their keys, and the local model
    #[command(after_long_help = "Example:\n  toolwright models list")]
    List(Json),
    /// Fetch the local model's weights, if they are not here, and say where they are
    #[command(after_long_help = "Example:\n  toolwright models fetch")]
    Fetch,
    /// Check that a model can be used, and say what is missing
    #[command(
        after_long_help = "The local model's weights are checked and asked one question. Of any other model only the name, the address \
and the key are looked at; nothing is sent.

Examples:
  toolwright models check
  toolwright models check local
  toolwright models check openai/gpt-4o-mini"
    )]
    Check(CheckOptions),
}

#[derive(Debug, Args)]
pub(crate) struct CheckOptions {
    /// The model; the one that `run` would take if left out
    #[arg(value_name = "MODEL")]
    pub(crate) model: Option<String>,
}

/// What the arguments say about colour, before they are read: a wrong command line is told in the colour it asks for, too.
pub(crate) fn color_of(arguments: &[OsString]) -> ColorChoice {
    let mut choice = ColorChoice::Auto;
    let mut arguments = arguments.iter().skip(1).filter_map(|argument| argument.to_str());
    while let Some(argument) = arguments.next() {
        let value = match argument.strip_prefix("--color") {
            _ if argument == "--" => break,
            Some("") => arguments.next(),
            Some(rest) => rest.strip_prefix('='),
            None => continue,
        };
        choice = match value {
            Some("always") => ColorChoice::Always,
            Some("never") => ColorChoice::Never,
            _ => ColorChoice::Auto,
        };
    }
    choice
}

/// The help texts of every command, as Markdown: the generated part of docs/command.md.
pub fn reference() -> String {
    let mut out = String::new();
    let mut command = Cli::command();
    command.build();
    describe(&mut command, &mut out);
    out
}

fn describe(command: &mut clap::Command, out: &mut String) {
    let name = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
    // Writing to a text can't fail.
    let _ = write!(out, "\n## `{name}`\n\n```text\n");
    for line in command.render_long_help().to_string().trim_end().lines() {
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out.push_str("```\n");
    for inner in command.get_subcommands_mut().filter(|inner| inner.get_name() != "help") {
        describe(inner, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn colour_is_known_before_the_rest() {
        let of = |words: &[&str]| color_of(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(of(&["toolwright", "--color", "always", "rnu"]), ColorChoice::Always);
        assert_eq!(of(&["toolwright", "run", "--color=never"]), ColorChoice::Never);
        assert_eq!(of(&["toolwright", "run", "--", "--color=never"]), ColorChoice::Auto);
        assert_eq!(of(&["toolwright", "--colorful"]), ColorChoice::Auto);
    }
}
