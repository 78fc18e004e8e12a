//! What real shells run: a text is given to one in an empty folder, without any program to be found, and the commands it looks for
//! are written down.

use std::fmt::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// How long a text may run.
const LIMIT: Duration = Duration::from_secs(2);
/// After so many commands it is killed: it loops.
const MOST: u32 = 40;
/// Between the words of a command, and after it.
const UNIT: char = '\u{1f}';
const RECORD: char = '\u{1e}';

/// A shell that takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shell {
    Bash,
    Dash,
}

impl Shell {
    pub(super) const ALL: [Self; 2] = [Self::Bash, Self::Dash];

    fn program(self) -> &'static str {
        match self {
            Self::Bash => "bash",
            Self::Dash => "dash",
        }
    }

    /// The shell's own place, where it is installed.
    pub(super) fn find(self) -> Option<std::path::PathBuf> {
        ["/bin", "/usr/bin", "/usr/local/bin"].iter().map(|folder| Path::new(folder).join(self.program())).find(|path| path.exists())
    }
}

/// Programs that run others, as functions: what they do with their arguments is all that counts.
const WRAPPERS: [(&str, &str); 7] = [
    ("sudo", "{ while [ \"${1#*=}\" != \"$1\" ]; do shift; done; \"$@\"; }"),
    ("env", "{ while [ \"${1#*=}\" != \"$1\" ]; do shift; done; \"$@\"; }"),
    ("xargs", "{ if [ $# -gt 0 ]; then \"$@\" z; fi; }"),
    ("timeout", "{ if [ $# -gt 1 ]; then shift; \"$@\"; fi; }"),
    ("nohup", "{ \"$@\"; }"),
    ("sh", "{ if [ \"$1\" = -c ]; then fuzz_text=$2; set --; eval \"$fuzz_text\"; fi; }"),
    ("bash", "{ if [ \"$1\" = -c ]; then fuzz_text=$2; set --; eval \"$fuzz_text\"; fi; }"),
];

/// The commands that a shell looked for, each as its words, in the order it came to them.
pub(super) fn commands_run(shell: Shell, program: &Path, text: &str) -> Result<Vec<Vec<String>>> {
    let folder = tempfile::tempdir().context("a folder to run in")?;
    let log = tempfile::NamedTempFile::new().context("a file to write down commands in")?;
    // Its exit tells the shell whether the command "succeeded": by the last digit of its name.
    let told =
        format!("( IFS='{UNIT}'; printf '%s{RECORD}' \"$*\" >> \"$FUZZ_LOG\" ); case $1 in *[02468]) return 0 ;; *) return 1 ;; esac");
    let mut command = Command::new(program);
    command.env_clear().env("PATH", folder.path().join("nothing")).env("FUZZ_LOG", log.path()).env("HOME", folder.path());
    command.current_dir(folder.path()).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match shell {
        Shell::Bash => {
            let body = format!("() {{ if [ -s \"$FUZZ_LOG\" ] && fuzz_many; then kill -9 $$; fi; {told}; }}");
            command.env("BASH_FUNC_command_not_found_handle%%", body);
            // Builtins alone: a file of so many bytes has too many commands in it.
            command.env("BASH_FUNC_fuzz_many%%", format!("() {{ local n=0 line; while IFS= read -r -d '{RECORD}' line; do n=$((n+1)); done < \"$FUZZ_LOG\"; [ $n -gt {MOST} ]; }}"));
            for (name, body) in WRAPPERS {
                command.env(format!("BASH_FUNC_{name}%%"), format!("() {body}"));
            }
            command.args(["--norc", "--noprofile", "-c", text]);
        }
        Shell::Dash => {
            let mut before =
                format!("fuzz_n=0\nfuzz_told() {{ fuzz_n=$((fuzz_n+1)); if [ $fuzz_n -gt {MOST} ]; then kill -9 $$; fi; {told}; }}\n");
            for n in 0..120 {
                let _ = writeln!(before, "c{n}() {{ fuzz_told c{n} \"$@\"; }}");
            }
            for (name, body) in WRAPPERS {
                let _ = writeln!(before, "{name}() {body}");
            }
            command.args(["-c", &format!("{before}{text}")]);
        }
    }
    let mut child = command.spawn().with_context(|| format!("starting {}", program.display()))?;
    let group = rustix::process::Pid::from_child(&child);
    let begun = Instant::now();
    while child.try_wait()?.is_none() {
        if begun.elapsed() > LIMIT {
            break;
        }
        std::thread::sleep(Duration::from_micros(300));
    }
    // What it left in the background goes with it; a group that is gone already is no error.
    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    child.wait()?;
    let written = std::fs::read(log.path())?;
    let written = String::from_utf8_lossy(&written);
    Ok(written.split(RECORD).filter(|record| !record.is_empty()).map(|record| record.split(UNIT).map(str::to_owned).collect()).collect())
}

/// Whether bash takes it for a script at all.
pub(super) fn bash_parses(program: &Path, text: &str) -> Result<bool> {
    let mut command = Command::new(program);
    command.env_clear().args(["--norc", "--noprofile", "-n", "-c", text]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command.status()?.success())
}
