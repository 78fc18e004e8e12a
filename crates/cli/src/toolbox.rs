//! Which tools there are for the command's agent: sets of them, each with a name.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueEnum;
use toolwright::builtin::integrations::{Credential, Email, GitHub, Jira, Slack};
use toolwright::builtin::shell::ShellTools;
use toolwright::builtin::{HttpRequest, TodoTools, WebFetch, current_date, day_name};
use toolwright::net::NetMap;
use toolwright::sandbox::Sandbox;
use toolwright::{NeedsApproval, Tool, ToolDef as _};

use crate::args::{PlaceOptions, ToolOptions};
use crate::choose::Choice;
use crate::problem::Problem;
use crate::terminal::{BOLD, Terminal, WARN};

/// A set of tools, as `--tools` and `--with` name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ToolSet {
    /// The current date, and the day of the week of any date
    Dates,
    /// A todo list of the agent's own
    Todo,
    /// Pages of the web, as text
    Web,
    /// Reading and searching the files of the workspace
    Files,
    /// Changing them too; each change asks
    Edit,
    /// Any HTTP request; each asks
    Http,
    /// Commands in a sandbox; each asks
    Shell,
    /// Issues, pull requests and files on GitHub; what writes asks
    Github,
    /// Messages and files in Slack; what writes asks
    Slack,
    /// Issues of the Jira at JIRA_URL; what writes asks
    Jira,
    /// Mail through the server SMTP_HOST, from the address EMAIL_FROM; each asks
    Email,
}

impl ToolSet {
    pub(crate) const ALL: [Self; 11] = [
        Self::Dates,
        Self::Todo,
        Self::Web,
        Self::Files,
        Self::Edit,
        Self::Http,
        Self::Shell,
        Self::Github,
        Self::Slack,
        Self::Jira,
        Self::Email,
    ];

    /// What an agent has where nobody says: what changes nothing outside. The local model chooses badly among many, so it has few.
    pub(crate) fn by_default(choice: &Choice) -> &'static [Self] {
        if choice.is_local() { &[Self::Dates, Self::Todo] } else { &[Self::Dates, Self::Todo, Self::Web, Self::Files] }
    }

    /// Its name, as it is written on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Dates => "dates",
            Self::Todo => "todo",
            Self::Web => "web",
            Self::Files => "files",
            Self::Edit => "edit",
            Self::Http => "http",
            Self::Shell => "shell",
            Self::Github => "github",
            Self::Slack => "slack",
            Self::Jira => "jira",
            Self::Email => "email",
        }
    }
}

/// Where tools work, and what stands in for hosts outside.
pub(crate) struct Toolbox<'a> {
    options: &'a PlaceOptions,
    map: NetMap,
}

impl<'a> Toolbox<'a> {
    /// Reads the net map, if there is one. What stands in for what is said each time: nobody should take an answer of a server of their
    /// own for one of the site that it stands in for.
    pub(crate) fn open(options: &'a PlaceOptions, terminal: &mut Terminal) -> Result<Self, Problem> {
        let Some(file) = &options.net_map else { return Ok(Self { options, map: NetMap::new() }) };
        let map = NetMap::read(file).map_err(|error| Problem::usage(error.to_string()))?;
        terminal.note(format_args!(
            "{WARN}{BOLD}warning:{BOLD:#}{WARN:#} with the net map {}, these hosts are reached elsewhere, and nothing checks where:",
            file.display()
        ));
        for line in map.to_string().lines() {
            terminal.note(format_args!("  {line}"));
        }
        Ok(Self { options, map })
    }

    /// The tools of an agent, each once.
    pub(crate) fn chosen(&self, options: &ToolOptions, choice: &Choice) -> Result<Vec<Tool>, Problem> {
        let sets = options.tools.as_deref().unwrap_or_else(|| ToolSet::by_default(choice));
        let mut tools: Vec<Tool> = Vec::new();
        for set in ToolSet::ALL.into_iter().filter(|set| sets.contains(set) || options.with.contains(set)) {
            for tool in self.of(set)? {
                if tools.iter().all(|other| other.name() != tool.name()) {
                    tools.push(tool);
                }
            }
        }
        Ok(tools)
    }

    /// The tools of a set.
    pub(crate) fn of(&self, set: ToolSet) -> Result<Vec<Tool>, Problem> {
        let wrong = |error: &dyn std::fmt::Display| Problem::usage(error.to_string());
        match set {
            ToolSet::Dates => Ok(vec![current_date::tool(), day_name::tool()]),
            ToolSet::Todo => Ok(TodoTools::new().tools()),
            ToolSet::Web => Ok(vec![WebFetch::new().net_map(self.map.clone()).tool().map_err(|error| wrong(&error))?]),
            ToolSet::Http => {
                // Nobody has said here which hosts it is for.
                let request = HttpRequest::new().net_map(self.map.clone()).tool().map_err(|error| wrong(&error))?;
                Ok(vec![request.with_approval(NeedsApproval::Always)])
            }
            ToolSet::Files => files(&self.folder()?, true),
            ToolSet::Edit => files(&self.folder()?, false),
            ToolSet::Shell => {
                let folder = self.folder()?;
                let mut shell = ShellTools::in_dir(&folder);
                if !self.options.no_sandbox {
                    shell = shell.sandbox(sandbox(&folder)?);
                }
                shell.tools().map_err(|error| wrong(&error))
            }
            ToolSet::Github => GitHub::new().tools().map_err(|error| wrong(&error)),
            ToolSet::Slack => Slack::new().tools().map_err(|error| wrong(&error)),
            ToolSet::Jira => {
                let jira = Jira::new(self.variable(set, "JIRA_URL", "https://jira.example")?);
                let jira = if let Some(user) = set_variable("JIRA_USER") { jira.user(user) } else { jira };
                jira.tools().map_err(|error| wrong(&error))
            }
            ToolSet::Email => {
                let email =
                    Email::new(self.variable(set, "SMTP_HOST", "mail.example")?, self.variable(set, "EMAIL_FROM", "agent@mail.example")?);
                let email = match set_variable("SMTP_USER") {
                    Some(user) => email.login(user, Credential::env("SMTP_PASSWORD")),
                    None => email,
                };
                Ok(vec![email.tool().map_err(|error| wrong(&error))?])
            }
        }
    }

    /// What a set can't do without. Who only looks at its tools needs none of it.
    fn variable(&self, set: ToolSet, name: &str, shown: &str) -> Result<String, Problem> {
        if self.options.only_shown {
            return Ok(shown.to_owned());
        }
        set_variable(name).ok_or_else(|| {
            Problem::usage(format!("the tools `{}` need the environment variable {name}, which is not set", set.name()))
                .hint("set it, or leave them out; docs/integrations.md says what each service needs")
        })
    }

    /// The folder that file tools and the shell work in.
    fn folder(&self) -> Result<PathBuf, Problem> {
        match &self.options.workspace {
            Some(folder) => Ok(folder.clone()),
            None => std::env::current_dir().map_err(|error| {
                Problem::usage(format!("the current folder can't be used as workspace: {error}")).hint("name another one with --workspace")
            }),
        }
    }
}

fn set_variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}

#[cfg(unix)]
fn files(folder: &Path, only_read: bool) -> Result<Vec<Tool>, Problem> {
    use toolwright::builtin::workspace::Workspace;

    let workspace =
        Workspace::at(folder).map_err(|error| Problem::usage(error.to_string()).hint("name a folder that is there with --workspace"))?;
    Ok(if only_read { workspace.read_only() } else { workspace }.tools())
}

#[cfg(not(unix))]
fn files(_folder: &Path, _only_read: bool) -> Result<Vec<Tool>, Problem> {
    Err(Problem::usage("file tools need a system of the Unix kind").hint("leave them out: --tools dates,todo,web"))
}

#[cfg(target_os = "linux")]
fn sandbox(folder: &Path) -> Result<Arc<dyn Sandbox>, Problem> {
    let sandbox = toolwright::sandbox::LinuxSandbox::of_workspace(folder).build();
    let sandbox = sandbox.map_err(|error| Problem::new(crate::exit::Exit::Usage, error.code(), error.to_string()).hint(NO_SANDBOX))?;
    Ok(Arc::new(sandbox))
}

#[cfg(not(target_os = "linux"))]
fn sandbox(_folder: &Path) -> Result<Arc<dyn Sandbox>, Problem> {
    Err(Problem::usage("there is no sandbox of our own on this system").hint(NO_SANDBOX))
}

const NO_SANDBOX: &str = "run `toolwright doctor` to see what this system has; with --no-sandbox commands can do what you can";
