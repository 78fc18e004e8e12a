//! The command line. Its doc comments are the help texts, and docs/command.md.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;

use anstream::ColorChoice;
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use toolwright::rules::PermissionMode;

use crate::toolbox::ToolSet;

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
  toolwright run --thread trip \"What day is it?\"
  toolwright threads list
  toolwright approvals list
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

Without --store and --thread nothing is kept. With --thread the conversation is kept under this name, and goes on with each run. \
With a store alone, each run is kept as a thread of its own.

Examples:
  toolwright run \"What day of the week was 31 December 1999?\"
  toolwright run --model openai/gpt-4o-mini --json \"What day is it?\"
  echo \"What day is it?\" | toolwright run
  toolwright run --thread trip \"And the day after?\"
  toolwright run --thread trip --store ./threads.db \"And the day after?\"
  toolwright run --rules rules.toml --mode plan \"What would you change?\""
    )]
    Run(RunOptions),
    /// Talk with an agent, line by line, until /quit or the end of the input
    #[command(after_long_help = "Lines that begin with / are for the command: /tools lists the tools, /help the commands, /quit ends.

With --thread the conversation is kept, and goes on where it was left.

Examples:
  toolwright chat
  toolwright chat --model groq/llama-3.3-70b-versatile
  toolwright chat --thread trip")]
    Chat(TalkOptions),
    /// Look at threads that are kept, go on with them, fork, compare, export and delete them
    #[command(subcommand)]
    Threads(ThreadsCommand),
    /// See what waits for a decision, and decide it, from any process that has the store
    #[command(subcommand)]
    Approvals(ApprovalsCommand),
    /// See, set and remove the variables of a thread, which its tools get
    #[command(subcommand)]
    Env(EnvCommand),
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
    #[command(flatten)]
    pub(crate) tools: ToolOptions,
    /// Permission rules: a TOML or JSON file; given more than once, the rules of the first file are tried first
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: Vec<PathBuf>,
    /// The permission mode: `plan` only reads, `acceptEdits` edits files without asking, `dontAsk` refuses what would ask [default: the thread's]
    #[arg(long, value_name = "MODE", value_enum)]
    pub(crate) mode: Option<Mode>,
    /// Write events to standard output, one JSON object a line, and nothing else
    #[arg(long)]
    pub(crate) json: bool,
    /// Approve every call that asks for a decision
    #[arg(long)]
    pub(crate) yes: bool,
    /// The agent may ask you questions, and waits for the answers
    #[arg(long)]
    pub(crate) questions: bool,
}

/// Which tools the agent has.
#[derive(Debug, Args)]
pub(crate) struct ToolOptions {
    /// The sets of tools the agent has, with commas between [default: dates,todo,web,files; with the local model dates,todo]
    #[arg(long, value_name = "SETS", value_enum, value_delimiter = ',')]
    pub(crate) tools: Option<Vec<ToolSet>>,
    /// Sets of tools besides those
    #[arg(long, value_name = "SETS", value_enum, value_delimiter = ',', hide_possible_values = true)]
    pub(crate) with: Vec<ToolSet>,
    #[command(flatten)]
    pub(crate) places: PlaceOptions,
}

/// Where tools work.
#[derive(Debug, Args)]
pub(crate) struct PlaceOptions {
    /// The folder that file tools and the shell work in [default: the current one]
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// The shell's commands run outside the sandbox: they can do what you can
    #[arg(long)]
    pub(crate) no_sandbox: bool,
    /// Reach hosts elsewhere, by the lines `host[:port] address:port` of a file
    #[arg(long, value_name = "FILE")]
    pub(crate) net_map: Option<PathBuf>,
    /// Their tools are looked at, and not called.
    #[arg(skip)]
    pub(crate) only_shown: bool,
}

impl PlaceOptions {
    /// For looking at tools that are not called: nothing is confined for them, and no service is named.
    pub(crate) fn anywhere() -> Self {
        Self { workspace: None, no_sandbox: true, net_map: None, only_shown: true }
    }
}

/// A permission mode, as it is written on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "camelCase")]
pub(crate) enum Mode {
    Default,
    Plan,
    AcceptEdits,
    DontAsk,
}

impl From<Mode> for PermissionMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Default => Self::Default,
            Mode::Plan => Self::Plan,
            Mode::AcceptEdits => Self::AcceptEdits,
            Mode::DontAsk => Self::DontAsk,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    /// The request; `-`, or nothing and a pipe, reads it from standard input
    #[arg(value_name = "PROMPT")]
    pub(crate) prompt: Option<String>,
    #[command(flatten)]
    pub(crate) talk: TalkOptions,
}

/// What `run` and `chat` have in common: who answers, and where the conversation is kept.
#[derive(Debug, Args)]
pub(crate) struct TalkOptions {
    #[command(flatten)]
    pub(crate) agent: AgentOptions,
    /// The thread: 1 to 128 letters, digits, `_` and `-`; it is made if it is not there
    #[arg(long, value_name = "ID")]
    pub(crate) thread: Option<String>,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

#[derive(Debug, Args)]
pub(crate) struct StoreOptions {
    /// Where threads are kept: a file, `postgres://user:password@host/database`, or `memory:` [default: TOOLWRIGHT_STORE, then a file in your data folder]
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
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
    #[command(flatten)]
    pub(crate) places: PlaceOptions,
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
pub(crate) enum ThreadsCommand {
    /// List threads, the last changed first
    #[command(after_long_help = "A page at a time; where there are more, a line says how to see them.

Examples:
  toolwright threads list
  toolwright threads list --status awaiting-approval
  toolwright threads list --search trip --limit 5 --json")]
    List(ListOptions),
    /// Show one thread: where it stands, what was said, which calls ran, what waits for a decision
    #[command(after_long_help = "Examples:
  toolwright threads show trip
  toolwright threads show trip --json")]
    Show(OneOptions),
    /// Replay a thread's events as `run` shows them, and follow what comes
    #[command(
        after_long_help = "With --follow it goes on until Ctrl-C, whoever moves the thread: runs of other processes are seen step by step. Each event \
that is kept has a `position`; --from goes on after it.

Examples:
  toolwright threads events trip
  toolwright threads events trip --follow
  toolwright threads events trip --from 12 --json"
    )]
    Events(EventsOptions),
    /// Go on with a thread that was interrupted, or that waits for a decision
    #[command(
        after_long_help = "A run whose process died goes on where it was: what the model had said is not asked for again, no result is made twice. \
Of a call that was running nobody knows whether it had done its work: it runs again if its tool allows that, else it asks or fails.

Decisions are asked for on a terminal; without one, the command ends with 3 and names them.

Examples:
  toolwright threads resume trip
  toolwright threads resume trip --model openai/gpt-4o-mini --yes"
    )]
    Resume(ResumeOptions),
    /// Begin a new thread with the past of another one
    #[command(
        after_long_help = "The new thread's name goes to standard output. The thread it comes from stays as it is; no call runs again.

Examples:
  toolwright threads fork trip
  toolwright threads fork trip --step 1 --input \"And if it rains?\"
  toolwright threads fork trip --at 12 --id trip-b"
    )]
    Fork(ForkOptions),
    /// Compare what two threads did, step by step
    #[command(after_long_help = "Example:\n  toolwright threads compare trip trip-b")]
    Compare(CompareOptions),
    /// Write a thread's journal as JSON, one record a line, exactly as it is kept
    #[command(
        after_long_help = "The first line is the record `thread.opened`, which has the thread's name and the version of the records; nothing is added \
to what the journal has. Values and files of the thread are not part of it.

Examples:
  toolwright threads export trip --output trip.jsonl
  toolwright threads export trip | head -n 1"
    )]
    Export(ExportOptions),
    /// Take back what a thread changed in the files of its workspace
    #[cfg(unix)]
    #[command(
        after_long_help = "Without --turn it lists the turns in which files were changed; a turn is a message of yours, counted from 0. Files go back to what \
they were before that turn, those that were new are deleted, and what somebody else has changed since is left. The conversation stays as it is.

Examples:
  toolwright threads rewind trip
  toolwright threads rewind trip --turn 2 --dry-run
  toolwright threads rewind trip --turn 2 --workspace ../project"
    )]
    Rewind(RewindOptions),
    /// Delete a thread with everything it has, or those that have been finished for long
    #[command(
        after_long_help = "Asks on a terminal; without one --yes is needed. With --finished-before, threads that wait for a decision, that are being \
moved or that were interrupted stay.

Examples:
  toolwright threads delete trip
  toolwright threads delete --finished-before 2026-01-31 --yes"
    )]
    Delete(DeleteOptions),
}

#[derive(Debug, Args)]
pub(crate) struct ListOptions {
    /// Only those that stand there
    #[arg(long, value_name = "STATUS", value_enum)]
    pub(crate) status: Option<Status>,
    /// Only those begun with this agent
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Only those with this text in the name or the title
    #[arg(long, value_name = "TEXT")]
    pub(crate) search: Option<String>,
    /// How many on a page
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) limit: u32,
    /// The page after the one that gave this cursor
    #[arg(long, value_name = "CURSOR")]
    pub(crate) after: Option<String>,
    #[command(flatten)]
    pub(crate) json: Json,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

/// Where a thread stands.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Status {
    /// A run has not ended: somebody moves it, or it was interrupted
    InProgress,
    /// The last run waits for a decision
    AwaitingApproval,
    /// The last run is done
    Finished,
}

#[derive(Debug, Args)]
pub(crate) struct OneOptions {
    /// The thread
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) json: Json,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

#[derive(Debug, Args)]
pub(crate) struct EventsOptions {
    /// The thread
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Begin after this position of the journal
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    pub(crate) from: u64,
    /// Go on with what comes, until Ctrl-C
    #[arg(long)]
    pub(crate) follow: bool,
    #[command(flatten)]
    pub(crate) json: Json,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

#[derive(Debug, Args)]
pub(crate) struct ResumeOptions {
    /// The thread
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) agent: AgentOptions,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

#[derive(Debug, Args)]
pub(crate) struct ForkOptions {
    /// The thread to begin from
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Keep what the journal has up to this position [default: all of it]
    #[arg(long, value_name = "SEQ", conflicts_with = "step")]
    pub(crate) at: Option<u64>,
    /// Keep everything up to the end of this step; 0 keeps nothing
    #[arg(long, value_name = "N")]
    pub(crate) step: Option<u32>,
    /// The new thread's name [default: ID-fork-1, or the next that is free]
    #[arg(long = "id", value_name = "NEW")]
    pub(crate) new: Option<String>,
    /// What to say next in the new thread, once it goes on
    #[arg(long, value_name = "TEXT")]
    pub(crate) input: Option<String>,
    #[command(flatten)]
    pub(crate) json: Json,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

#[derive(Debug, Args)]
pub(crate) struct CompareOptions {
    /// One thread
    #[arg(value_name = "A")]
    pub(crate) a: String,
    /// The other
    #[arg(value_name = "B")]
    pub(crate) b: String,
    #[command(flatten)]
    pub(crate) json: Json,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

#[derive(Debug, Args)]
pub(crate) struct ExportOptions {
    /// The thread
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// The file to write, in place of standard output; it is there once it is whole
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

#[cfg(unix)]
#[derive(Debug, Args)]
pub(crate) struct RewindOptions {
    /// The thread
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// The turn, from 0, before which the files shall be as they were
    #[arg(long, value_name = "N")]
    pub(crate) turn: Option<u32>,
    /// The folder that the thread worked in
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    pub(crate) workspace: PathBuf,
    /// Only say what would be done
    #[arg(long, requires = "turn")]
    pub(crate) dry_run: bool,
    /// Take back also what somebody else has changed since
    #[arg(long, requires = "turn")]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) json: Json,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteOptions {
    /// The thread
    #[arg(value_name = "ID", required_unless_present = "finished_before", conflicts_with = "finished_before")]
    pub(crate) id: Option<String>,
    /// All threads whose last run was done before this date (UTC), or this moment: 2026-01-31, or 2026-01-31T12:00:00Z
    #[arg(long, value_name = "DATE")]
    pub(crate) finished_before: Option<String>,
    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsCommand {
    /// List what waits for a decision, the oldest first
    #[command(after_long_help = "A page at a time; where there are more, a line says how to see them.

Examples:
  toolwright approvals list
  toolwright approvals list --json")]
    List(ApprovalsOptions),
    /// Show one: what is asked, the whole arguments, who may decide, until when
    #[command(after_long_help = "Example:\n  toolwright approvals show trip:1:call_1_1")]
    Show(ApprovalOptions),
    /// Let a call run, as it was shown or with other arguments
    #[command(
        after_long_help = "A decision counts once: whoever comes second is told who was first. It is posted; the thread goes on where its program \
runs, or with `threads resume`.

Examples:
  toolwright approvals approve trip:1:call_1_1
  toolwright approvals approve trip:1:call_1_1 --always --note \"fine for this trip\"
  toolwright approvals approve trip:1:call_1_1 --edit '{\"date\": \"2000-01-01\"}'"
    )]
    Approve(ApproveOptions),
    /// Refuse a call, or decline to answer a question
    #[command(after_long_help = "Example:\n  toolwright approvals reject trip:1:call_1_1 --note \"too expensive\"")]
    Reject(RejectOptions),
    /// Answer a question that the agent asks
    #[command(after_long_help = "Example:\n  toolwright approvals answer trip:1:call_1_1 \"the second one\"")]
    Answer(AnswerOptions),
    /// Give the result of a call that is made outside
    #[command(after_long_help = "Text that is JSON is given as JSON.

Examples:
  toolwright approvals complete trip:1:call_1_1 '{\"picked\": 7}'
  toolwright approvals complete trip:1:call_1_1 --failed \"the browser was closed\"")]
    Complete(CompleteOptions),
    /// Hand a decision to others: from then on they decide, and nobody else
    #[command(after_long_help = "Example:\n  toolwright approvals delegate trip:1:call_1_1 --to ada --to grace")]
    Delegate(DelegateOptions),
}

#[derive(Debug, Args)]
pub(crate) struct ApprovalsOptions {
    /// How many on a page
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) limit: u32,
    /// The page after the one that gave this cursor
    #[arg(long, value_name = "CURSOR")]
    pub(crate) after: Option<String>,
    #[command(flatten)]
    pub(crate) json: Json,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

#[derive(Debug, Args)]
pub(crate) struct ApprovalOptions {
    /// The decision
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) json: Json,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

/// What every decision has.
#[derive(Debug, Args)]
pub(crate) struct DecideOptions {
    /// The decision
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// What the model, or the tool, is told
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
    /// Who decides [default: USER]
    #[arg(long, value_name = "NAME")]
    pub(crate) by: Option<String>,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

#[derive(Debug, Args)]
pub(crate) struct ApproveOptions {
    #[command(flatten)]
    pub(crate) decide: DecideOptions,
    /// Run it with these arguments instead, a JSON object; `-` reads them from standard input
    #[arg(long, value_name = "ARGUMENTS")]
    pub(crate) edit: Option<String>,
    /// It stands for every later call of this tool in the thread
    #[arg(long)]
    pub(crate) always: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RejectOptions {
    #[command(flatten)]
    pub(crate) decide: DecideOptions,
}

#[derive(Debug, Args)]
pub(crate) struct AnswerOptions {
    /// The question
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// The answer; `-` reads it from standard input
    #[arg(value_name = "ANSWER")]
    pub(crate) answer: String,
    /// Who answers [default: USER]
    #[arg(long, value_name = "NAME")]
    pub(crate) by: Option<String>,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

#[derive(Debug, Args)]
pub(crate) struct CompleteOptions {
    /// What the call waits with
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// The result, or what went wrong; `-` reads it from standard input
    #[arg(value_name = "RESULT")]
    pub(crate) result: String,
    /// The call failed
    #[arg(long)]
    pub(crate) failed: bool,
    /// Who says so [default: USER]
    #[arg(long, value_name = "NAME")]
    pub(crate) by: Option<String>,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

#[derive(Debug, Args)]
pub(crate) struct DelegateOptions {
    /// The decision
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Who shall decide, once for each; nobody named is anybody
    #[arg(long, value_name = "NAME")]
    pub(crate) to: Vec<String>,
    /// What they are told
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
    /// Who hands it on [default: USER]
    #[arg(long, value_name = "NAME")]
    pub(crate) by: Option<String>,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EnvCommand {
    /// List a thread's variables by name and type; no value is shown
    #[command(after_long_help = "Example:\n  toolwright env list trip")]
    List(EnvListOptions),
    /// Set a variable of a thread; its value is read from standard input, or typed unseen
    #[command(
        after_long_help = "A variable is a secret unless --type says otherwise, or it was a text before. A secret is encrypted with the key in \
ENCRYPTION_KEY (or TOOLWRIGHT_ENCRYPTION_KEY, which comes first); without one it is refused. It has at least 6 characters, and is taken out of \
everything that is written down, shown or sent to a model. The thread need not exist yet.

Examples:
  toolwright env set trip GITHUB_TOKEN < token.txt
  printf %s eu-west-1 | toolwright env set trip REGION --type text"
    )]
    Set(EnvSetOptions),
    /// Remove a variable of a thread
    #[command(after_long_help = "Example:\n  toolwright env unset trip GITHUB_TOKEN")]
    Unset(EnvUnsetOptions),
}

#[derive(Debug, Args)]
pub(crate) struct EnvListOptions {
    /// The thread
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) json: Json,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

#[derive(Debug, Args)]
pub(crate) struct EnvSetOptions {
    /// The thread
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// The variable: letters, digits and `_`
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Whether its value may be shown [default: the type it has, else secret]
    #[arg(long = "type", value_name = "TYPE", value_enum)]
    pub(crate) variable_type: Option<VariableType>,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum VariableType {
    Text,
    Secret,
}

#[derive(Debug, Args)]
pub(crate) struct EnvUnsetOptions {
    /// The thread
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// The variable
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
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
