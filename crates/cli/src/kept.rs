//! Where threads are kept between commands, and how to name that in what the command says.

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Duration;

use toolwright::store::{Opened, Place, StoreError};
use toolwright::{AgentError, ThreadId};

use crate::args::StoreOptions;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::terminal::{DIM, Terminal};

/// The variable that names a store.
pub(crate) const STORE_VAR: &str = "TOOLWRIGHT_STORE";

/// Where threads are kept.
pub(crate) struct Kept {
    place: Place,
    named: Named,
}

/// How the place came to be chosen.
enum Named {
    /// By `--store`, which the next command needs too.
    Option(String),
    /// By the environment, which the next command has too.
    Variable,
    /// By nobody: the user's data folder.
    Default,
}

impl Kept {
    /// The place that was named; `None` if none was.
    pub(crate) fn named(options: &StoreOptions) -> Result<Option<Self>, Problem> {
        let set = || std::env::var(STORE_VAR).ok().filter(|address| !address.trim().is_empty());
        let (address, named) = match (&options.store, set()) {
            (Some(address), _) => (address.clone(), Named::Option(address.clone())),
            (None, Some(address)) => (address, Named::Variable),
            (None, None) => return Ok(None),
        };
        let place = Place::read(&address).map_err(|error| Problem::from(AgentError::from(error)))?;
        Ok(Some(Self { place, named }))
    }

    /// The place that was named, else the file in the user's data folder.
    pub(crate) fn named_or_default(options: &StoreOptions) -> Result<Self, Problem> {
        if let Some(kept) = Self::named(options)? {
            return Ok(kept);
        }
        let file = default_file().ok_or_else(|| {
            Problem::usage("this user has no data folder to keep threads in")
                .hint("name a store with --store, or set HOME or XDG_DATA_HOME")
        })?;
        Ok(Self { place: Place::Sqlite(file), named: Named::Default })
    }

    /// Whether it keeps nothing beyond this process.
    pub(crate) fn is_memory(&self) -> bool {
        self.place == Place::Memory
    }

    /// Opens it to keep something. The default file is made where it is missing, which is said once.
    pub(crate) async fn open(&self, terminal: &mut Terminal) -> Result<Opened, Problem> {
        let new = matches!(self.named, Named::Default).then(|| self.place.file()).flatten().filter(|file| !file.exists());
        if let Some(file) = new {
            let folder = file.parent().unwrap_or(file);
            std::fs::create_dir_all(folder).map_err(|error| {
                Problem::usage(format!("the folder {} for threads can't be made: {error}", folder.display()))
                    .hint("make it, or name another store with --store")
            })?;
            let opened = self.opened().await?;
            terminal.note(format_args!("{DIM}threads are kept in {}; see them with `toolwright threads list`{DIM:#}", file.display()));
            return Ok(opened);
        }
        self.opened().await
    }

    /// Opens it to look at what is there: nothing is made. `None` if the default file does not exist, so that there are no threads.
    pub(crate) async fn look(&self) -> Result<Option<Opened>, Problem> {
        if self.is_memory() {
            return Err(Problem::usage("the store `memory:` keeps nothing from one command to the next")
                .hint("name a file or a server with --store"));
        }
        match (self.place.file().filter(|file| !file.exists()), &self.named) {
            (None, _) => self.opened().await.map(Some),
            (Some(_), Named::Default) => Ok(None),
            (Some(file), _) => Err(Problem::usage(format!("there is no store {}", file.display()))
                .hint("check the path; `toolwright run --thread ID --store PATH` makes one")),
        }
    }

    async fn opened(&self) -> Result<Opened, Problem> {
        self.place.open().await.map_err(|error| Problem::from(AgentError::from(error)))
    }

    /// The place as people may see it, in a sentence.
    pub(crate) fn shown(&self) -> String {
        match &self.named {
            Named::Default => "the default store".to_owned(),
            _ => format!("the store {}", self.place),
        }
    }

    /// A command to type next, which finds the same store. A password is not repeated.
    pub(crate) fn command(&self, words: &str) -> String {
        match &self.named {
            Named::Option(address) => format!("toolwright {words} --store {}", quoted(&without_password(address, &self.place))),
            Named::Variable | Named::Default => format!("toolwright {words}"),
        }
    }

    /// What the library says, with what to do about it here.
    pub(crate) fn problem(&self, error: AgentError) -> Problem {
        let hint = match &error {
            AgentError::UnknownThread { .. } => format!("list what there is with `{}`", self.command("threads list")),
            AgentError::Interrupted { thread } => {
                format!("finish it with `{}` before sending more", self.command(&format!("threads resume {thread}")))
            }
            AgentError::NothingToResume { thread } => {
                format!("say something new with `{}`", self.command(&format!("run --thread {thread} \"...\"")))
            }
            AgentError::Store(StoreError::Busy { thread }) => {
                format!("watch it with `{}`, or wait for its run to end", self.command(&format!("threads events {thread} --follow")))
            }
            AgentError::AwaitingApproval { thread, .. } => {
                let problem = Problem::new(Exit::Waiting, error.code(), format!("the thread {thread} waits for a decision"));
                return problem.hint(self.how_to_decide(thread));
            }
            AgentError::ToolMissing { thread, .. } => {
                format!("go on with the program that has it, or look at it with `{}`", self.command(&format!("threads show {thread}")))
            }
            AgentError::ApprovalNotFound { .. } => format!("list what waits with `{}`", self.command("approvals list")),
            _ => return error.into(),
        };
        Problem::from(error).hint(hint)
    }

    /// How the decisions that a thread waits for are made.
    pub(crate) fn how_to_decide(&self, thread: &ThreadId) -> String {
        let resume = self.command(&format!("threads resume {thread}"));
        let yes = self.command(&format!("threads resume {thread} --yes"));
        let list = self.command("approvals list");
        format!("decide on a terminal with `{resume}`, see what waits with `{list}`, or approve every call with `{yes}`")
    }
}

/// How long a store may take to close; what is written is safe before.
const CLOSING: Duration = Duration::from_secs(5);

/// Closes a store that something was written to, so that a file is whole without its log.
pub(crate) async fn close(opened: Opened) {
    // The next one to open it tidies up.
    let _ = tokio::time::timeout(CLOSING, opened.close()).await;
}

/// The file in which threads are kept where nothing else is said.
pub(crate) fn default_file() -> Option<PathBuf> {
    Some(dirs::data_dir()?.join("toolwright").join("threads.db"))
}

/// An id, checked before anything is opened for it.
pub(crate) fn thread_id(text: &str) -> Result<ThreadId, Problem> {
    ThreadId::new(text).map_err(|error| Problem::from(AgentError::from(error)))
}

/// An address as it was given, unless it has a password.
fn without_password<'a>(address: &'a str, place: &Place) -> Cow<'a, str> {
    let Place::Postgres(_) = place else { return address.into() };
    let (server, options) = address.split_once('?').unwrap_or((address, ""));
    let user = server.rsplit_once('@').map_or("", |(user, _)| user.split_once("://").map_or("", |(_, user)| user));
    if !user.contains(':') && !options.contains("password") {
        return address.into();
    }
    let name = user.split(':').next().filter(|name| !name.is_empty()).unwrap_or("USER");
    place.to_string().replacen("postgres://", &format!("postgres://{name}:PASSWORD@"), 1).into()
}

/// An argument as a shell takes it.
pub(crate) fn quoted(argument: &str) -> Cow<'_, str> {
    let safe = |sign: char| sign.is_ascii_alphanumeric() || matches!(sign, '_' | '-' | '.' | '/' | ':' | '@' | '%' | '+' | ',' | '=');
    if !argument.is_empty() && argument.chars().all(safe) {
        return argument.into();
    }
    format!("'{}'", argument.replace('\'', "'\\''")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(address: &str) -> Kept {
        Kept { place: Place::read(address).unwrap(), named: Named::Option(address.to_owned()) }
    }

    #[test]
    fn the_next_command_finds_the_same_store() {
        for (address, command) in [
            ("./threads.db", "toolwright threads list --store ./threads.db"),
            ("my threads.db", "toolwright threads list --store 'my threads.db'"),
            ("it's.db", "toolwright threads list --store 'it'\\''s.db'"),
            ("postgres://me@db.example/app", "toolwright threads list --store postgres://me@db.example/app"),
            (
                "postgres://me@db.example/app?sslmode=require",
                "toolwright threads list --store 'postgres://me@db.example/app?sslmode=require'",
            ),
        ] {
            assert_eq!(of(address).command("threads list"), command);
        }
        let default = Kept { place: Place::Sqlite("x".into()), named: Named::Default };
        assert_eq!(default.command("threads list"), "toolwright threads list");
    }

    #[test]
    fn a_password_is_never_repeated() {
        for address in [
            "postgres://me:geheim@db.example/app",
            "postgres://me:ge@heim@db.example/app?sslmode=require",
            "postgres://db.example/app?user=me&password=geheim",
        ] {
            let kept = of(address);
            let said = kept.command("threads list") + &kept.shown() + &kept.how_to_decide(&ThreadId::new("t").unwrap());
            assert!(!said.contains("geheim") && !said.contains("heim@") && said.contains("PASSWORD"), "{said}");
        }
    }
}
