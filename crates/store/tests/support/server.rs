//! A PostgreSQL server for tests: Debian's, in a folder of its own under the system's temporary folder, on a free port, with
//! trust for this machine alone. It has nothing to do with a server that may run here.
//!
//! The server is the child of a shell that reads from us. When our end closes, because the server is dropped or because this
//! process ended however it did, the shell stops the server and removes the folder.
//!
//! `TOOLWRIGHT_TEST_POSTGRES=postgres://...` names a server to use instead; schemas and databases are made there.
//!
//! Standard library only, so that any crate's tests can include this file by its path.
#![expect(clippy::disallowed_methods, reason = "tests start the server themselves")]
#![allow(dead_code, reason = "not every test needs all of it")]

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Names a server to use in place of one of our own.
pub(crate) const VARIABLE: &str = "TOOLWRIGHT_TEST_POSTGRES";

/// What a test prints where there is no server.
pub(crate) const SKIPPED: &str = "skipped: PostgreSQL is not installed here";

/// How often a start is tried: somebody may take the port between our look and the server's.
const STARTS: u32 = 3;

/// A role that has to show a password, once a test has made it. Every other is trusted.
pub(crate) const PASSWORD_ROLE: &str = "with_password";

/// Arguments: where to make the folder, programs, port, and the role that has to show a password. The default order of text is made
/// one that is not that of bytes, where the server can: our order must not depend on it.
const SCRIPT: &str = r#"
set -u
folder=$(mktemp -d "$1/toolwright-postgres.XXXXXX") || exit 1
chmod 700 "$folder"
give_up() { echo "failed: $1"; tail -n 5 "$folder/log"; rm -rf "$folder"; exit 1; }
"$2/initdb" -D "$folder/data" -U toolwright -A trust -E UTF8 --no-sync --locale C.UTF-8 --locale-provider icu --icu-locale en >"$folder/log" 2>&1 ||
    "$2/initdb" -D "$folder/data" -U toolwright -A trust -E UTF8 --no-sync --locale C.UTF-8 >"$folder/log" 2>&1 ||
    "$2/initdb" -D "$folder/data" -U toolwright -A trust -E UTF8 --no-sync --no-locale >"$folder/log" 2>&1 ||
    give_up "initdb"
# The one role that has to show a password.
{ echo "host all $4 127.0.0.1/32 scram-sha-256"; cat "$folder/data/pg_hba.conf"; } >"$folder/hba" && cat "$folder/hba" >"$folder/data/pg_hba.conf"
"$2/pg_ctl" -D "$folder/data" -l "$folder/log" -w -t 60 -s start \
    -o "-p $3 -k '$folder' -c listen_addresses=127.0.0.1 -c fsync=on -c max_connections=300 -c max_locks_per_transaction=256" </dev/null ||
    give_up "pg_ctl"
echo "ready: $folder"
cat >/dev/null
"$2/pg_ctl" -D "$folder/data" -m immediate -s stop
rm -rf "$folder"
"#;

/// A server that runs.
pub(crate) struct Server {
    url: String,
    port: u16,
    folder: Option<PathBuf>,
    next: AtomicU32,
    child: Option<(Child, Option<ChildStdin>)>,
}

impl Server {
    /// Starts one, or takes the one that the variable names. The error says what went wrong, in one sentence.
    pub(crate) fn start() -> Result<Self, String> {
        if let Ok(url) = std::env::var(VARIABLE) {
            return Ok(Self { url, port: 0, folder: None, next: AtomicU32::new(0), child: None });
        }
        let programs = programs().ok_or_else(|| SKIPPED.to_owned())?;
        let mut last = String::new();
        for _ in 0..STARTS {
            match Self::start_once(&programs) {
                Ok(server) => return Ok(server),
                Err(problem) => last = problem,
            }
        }
        Err(format!("{SKIPPED}, or can't start: {last}"))
    }

    fn start_once(programs: &Path) -> Result<Self, String> {
        let said = |error: std::io::Error| error.to_string();
        let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).map_err(said)?.port();
        let root = Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout.trim_ascii() == b"0");
        // The server refuses to run as root. Its user may not be able to enter a temporary folder of our own.
        let mut command = Command::new(if root { "runuser" } else { "sh" });
        if root {
            command.args(["-u", "postgres", "--", "sh"]);
        }
        let home = if root { PathBuf::from("/tmp") } else { std::env::temp_dir() };
        command.args(["-c", SCRIPT, "server"]).arg(home).arg(programs).arg(port.to_string()).arg(PASSWORD_ROLE).current_dir("/");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().map_err(said)?;
        let stdin = child.stdin.take();
        let mut lines = BufReader::new(child.stdout.take().ok_or("the shell has no output")?).lines();
        let first = lines.next().and_then(Result::ok).unwrap_or_default();
        if let Some(folder) = first.strip_prefix("ready: ") {
            Ok(Self {
                url: format!("postgres://toolwright@127.0.0.1:{port}/postgres"),
                port,
                folder: Some(folder.into()),
                next: AtomicU32::new(0),
                child: Some((child, stdin)),
            })
        } else {
            drop(stdin);
            let _ = child.wait();
            Err(std::iter::once(first).chain(lines.map_while(Result::ok)).collect::<Vec<_>>().join(" "))
        }
    }

    /// The server of this process, which ends with it; nothing, and a printed line, where there is none.
    #[allow(clippy::print_stdout, reason = "whoever runs the tests has to see that they were skipped")]
    pub(crate) fn shared() -> Option<&'static Self> {
        static SERVER: OnceLock<Result<Server, String>> = OnceLock::new();
        match SERVER.get_or_init(Self::start) {
            Ok(server) => Some(server),
            Err(problem) => {
                println!("{problem}");
                None
            }
        }
    }

    /// The address of its first database.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The folder of its socket and its data, of a server of our own.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// The port, of a server of our own.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// A name that nobody has used on this server, for a schema or a database.
    pub(crate) fn fresh_name(&self) -> String {
        let moment = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis());
        format!("test_{}_{}_{}", moment, std::process::id(), self.next.fetch_add(1, Ordering::Relaxed))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some((child, stdin)) = &mut self.child {
            drop(stdin.take());
            let _ = child.wait();
        }
    }
}

/// Where the newest installed server's programs are.
fn programs() -> Option<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .ok()?
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .filter(|(_, programs)| programs.join("initdb").exists() && programs.join("postgres").exists())
        .collect();
    found.sort();
    found.pop().map(|(_, programs)| programs)
}
