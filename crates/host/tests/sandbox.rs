//! What a confined program can't do, shown by a program that tries: this one, which the test starts with a list of what to try.
//! Each try is made outside a sandbox first, so that none fails for another reason than the sandbox.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::print_stdout, reason = "tests")]

mod common;

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use common::{alive, token};
use toolwright_host::process::{Environment, How, Spawn};
use toolwright_host::sandbox::{ContainerSandbox, Guard, LinuxSandbox, NoSandbox, Sandbox, support};

/// Where a try finds what it is about.
const PLACE: &str = "TOOLWRIGHT_TRY_IN";

type Tried = Result<(), std::io::Error>;

/// What is tried. Each gets the folder outside and the facts that the test wrote down there.
#[expect(clippy::disallowed_methods, reason = "these are the ways out that have to be closed")]
fn tries(outside: &Path) -> Vec<(&'static str, Tried)> {
    let fact = |name: &str| std::env::var(format!("TOOLWRIGHT_TRY_{name}")).unwrap();
    let inside = std::env::current_dir().unwrap();
    let pid = |name: &str| rustix::process::Pid::from_raw(fact(name).parse().unwrap()).unwrap();
    let read = |path: PathBuf| fs::File::open(path).and_then(|mut file| file.read(&mut [0; 1]).map(|_| ()));
    let errno = |result: Result<(), rustix::io::Errno>| result.map_err(std::io::Error::from);
    vec![
        ("tcp", TcpStream::connect(fact("TCP")).map(|_| ())),
        ("udp", UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.send_to(b"x", fact("UDP")).map(|_| ()))),
        ("listen", TcpListener::bind("127.0.0.1:0").map(|_| ())),
        ("a socket that is a file", UnixStream::connect(outside.join("socket")).map(|_| ())),
        (
            "a socket that is a name",
            SocketAddr::from_abstract_name(fact("ABSTRACT")).and_then(|address| UnixStream::connect_addr(&address)).map(|_| ()),
        ),
        ("a new file", fs::write(outside.join("new"), "x")),
        ("more in a file", OpenOptions::new().append(true).open(outside.join("log")).and_then(|mut file| file.write_all(b"x"))),
        ("less in a file", OpenOptions::new().write(true).truncate(true).open(outside.join("cut")).map(|_| ())),
        ("another name", fs::rename(outside.join("name"), outside.join("other"))),
        ("a file gone", fs::remove_file(outside.join("gone"))),
        ("a new folder", fs::create_dir(outside.join("folder"))),
        ("a file moved in", fs::rename(outside.join("moved"), inside.join("moved"))),
        ("a file moved out", fs::write(inside.join("out"), "x").and_then(|()| fs::rename(inside.join("out"), outside.join("out")))),
        ("a hard link", fs::hard_link(outside.join("secret"), inside.join("hard"))),
        ("a secret", read(outside.join("secret"))),
        (
            "a secret by a link",
            std::os::unix::fs::symlink(outside.join("secret"), inside.join("soft")).and_then(|()| read(inside.join("soft"))),
        ),
        ("a secret by its descriptor's path", read(PathBuf::from(format!("/proc/{}/cwd/{}", fact("PARENT"), fact("RELATIVE"))))),
        ("names of files", fs::read_dir(outside).map(|_| ())),
        ("the parent's environment", read(PathBuf::from(format!("/proc/{}/environ", fact("PARENT"))))),
        ("the parent's memory", read(PathBuf::from(format!("/proc/{}/maps", fact("PARENT"))))),
        ("a signal to the parent", errno(rustix::process::kill_process(pid("PARENT"), rustix::process::Signal::CONT))),
        ("a signal to another", errno(rustix::process::kill_process(pid("OTHER"), rustix::process::Signal::TERM))),
        (
            "the parent's limits",
            errno(
                rustix::process::prlimit(
                    Some(pid("PARENT")),
                    rustix::process::Resource::Nofile,
                    rustix::process::getrlimit(rustix::process::Resource::Nofile),
                )
                .map(|_| ()),
            ),
        ),
    ]
}

/// Not a test by itself: what a test starts this program for. Without the variable it does nothing.
#[test]
fn trying() {
    let Some(outside) = std::env::var_os(PLACE) else { return };
    for (name, tried) in tries(Path::new(&outside)) {
        println!("TRIED {name}: {}", tried.map_or_else(|error| format!("refused ({error})"), |()| "done".to_owned()));
    }
}

/// A folder outside, with all that is tried there, and a workspace.
struct Outside {
    folder: tempfile::TempDir,
    workspace: tempfile::TempDir,
    other: std::process::Child,
    tcp: TcpListener,
    udp: UdpSocket,
    _unix: UnixListener,
    _named: UnixListener,
    name: String,
}

impl Outside {
    #[expect(clippy::disallowed_methods, reason = "what is outside is made here")]
    fn new() -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        for file in ["secret", "log", "cut", "name", "gone", "moved"] {
            fs::write(folder.path().join(file), "planted").unwrap();
        }
        let name = token("abstract");
        Self {
            workspace: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap(),
            other: std::process::Command::new("sleep").arg("600").spawn().unwrap(),
            tcp: TcpListener::bind("127.0.0.1:0").unwrap(),
            udp: UdpSocket::bind("127.0.0.1:0").unwrap(),
            _unix: UnixListener::bind(folder.path().join("socket")).unwrap(),
            _named: UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap(),
            folder,
            name,
        }
    }

    /// Starts this program in `sandbox` and gives what came of each try.
    async fn tried(&self, sandbox: Arc<dyn Sandbox>) -> BTreeMap<String, String> {
        let relative = pathdiff(&std::env::current_dir().unwrap(), &self.folder.path().join("secret"));
        let facts = [
            ("TCP", self.tcp.local_addr().unwrap().to_string()),
            ("UDP", self.udp.local_addr().unwrap().to_string()),
            ("ABSTRACT", self.name.clone()),
            ("PARENT", std::process::id().to_string()),
            ("OTHER", self.other.id().to_string()),
            ("RELATIVE", relative.display().to_string()),
        ];
        let place = Environment::scrubbed().set(PLACE, self.folder.path());
        let environment = facts.into_iter().fold(place, |all, (name, value)| all.set(format!("TOOLWRIGHT_TRY_{name}"), value));
        let ended = Spawn::new(std::env::current_exe().unwrap())
            .arg("trying")
            .arg("--exact")
            .arg("--nocapture")
            .environment(environment)
            .dir(self.workspace.path())
            .sandbox(sandbox)
            .deadline(Duration::from_secs(60))
            .run()
            .await
            .unwrap();
        let text = ended.stdout.text();
        assert_eq!(ended.code, Some(0), "{text}{}", ended.stderr.text());
        // The test harness writes `test trying ... ` before the first line.
        let lines = text.lines().filter_map(|line| line.split_once("TRIED ")?.1.split_once(": "));
        lines.map(|(name, tried)| (name.to_owned(), tried.to_owned())).collect()
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = self.other.kill();
        let _ = self.other.wait();
    }
}

/// The way from one folder to a file.
fn pathdiff(from: &Path, to: &Path) -> PathBuf {
    from.components().skip(1).map(|_| Path::new("..")).collect::<PathBuf>().join(to.strip_prefix("/").unwrap())
}

fn linux(workspace: &Path) -> Option<Arc<dyn Sandbox>> {
    // This program itself has to be readable.
    let exe = std::env::current_exe().unwrap();
    match LinuxSandbox::of_workspace(workspace).read(exe).build() {
        Ok(sandbox) => Some(Arc::new(sandbox)),
        Err(error) => {
            println!("not shown here: {error}");
            None
        }
    }
}

#[tokio::test]
async fn a_confined_program_reaches_nothing_outside() {
    let outside = Outside::new();
    let free = outside.tried(Arc::new(NoSandbox)).await;
    assert!(free.len() > 20 && free.values().all(|tried| tried == "done"), "a try fails without a sandbox too: {free:#?}");
    let outside = Outside::new();
    let Some(sandbox) = linux(outside.workspace.path()) else { return };
    let confined = outside.tried(sandbox).await;
    assert_eq!(confined.len(), free.len());
    assert!(confined.values().all(|tried| tried.starts_with("refused")), "{confined:#?}");
    for file in ["secret", "log", "cut", "name", "gone", "moved"] {
        assert_eq!(fs::read_to_string(outside.folder.path().join(file)).unwrap(), "planted", "{file}");
    }
    let there = fs::read_dir(outside.folder.path()).unwrap().count();
    assert_eq!(there, 7, "nothing new is there");
}

#[tokio::test]
async fn a_confined_program_can_do_its_work() {
    let workspace = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::write(workspace.path().join("in"), "3\n1\n2\n").unwrap();
    let Some(sandbox) = linux(workspace.path()) else { return };
    let script = "set -e; sort in > out; mkdir -p a/b; mv out a/b/; ln -s a/b/out link; cat link; rm link; chmod 700 a
        echo x > \"$TMPDIR/t\"; echo y > ~/h; cat \"$TMPDIR/t\" ~/h; test -r /etc/passwd; echo z >/dev/null
        head -c 3 /dev/urandom | wc -c; (sleep 0 & wait); echo done | sh -c cat; nproc >/dev/null; cat <<EOF
here
EOF";
    let ended = Spawn::shell(script).dir(workspace.path()).sandbox(sandbox).run().await.unwrap();
    assert_eq!((ended.code, ended.stdout.text().as_str()), (Some(0), "1\n2\n3\nx\ny\n3\ndone\nhere\n"), "{}", ended.stderr.text());
    assert_eq!(fs::read_to_string(workspace.path().join("a/b/out")).unwrap(), "1\n2\n3\n");
}

#[tokio::test]
async fn calls_that_go_round_the_guards_are_refused() {
    let workspace = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let Some(sandbox) = linux(workspace.path()) else { return };
    // Each of these programs is part of every system; where one is not, it is refused all the same.
    for script in [
        "unshare -U true",
        "unshare -n true",
        "unshare -m true",
        "mount -t tmpfs x .",
        "chroot . true",
        "mknod disk b 8 0",
        "setpriv --clear-groups true; nsenter -t 1 -m true",
        "dmesg",
        "cat /dev/tty",
        "cat /proc/1/environ",
        "ls /proc",
        "ls /root /home /tmp /var",
    ] {
        let ended = Spawn::shell(script).dir(workspace.path()).sandbox(Arc::clone(&sandbox)).run().await.unwrap();
        assert!(ended.code != Some(0), "{script}: {}", ended.stdout.text());
    }
}

/// Two programs that hide: without their mark, out of their group, without their parent. Their command lines hold `token`.
fn hiding(token: &str) -> String {
    let hidden = format!("env -i setsid sh -c ': > started; (sh -c \"sleep 300; :\" {token}) & sleep 301; :' {token}");
    format!("rm -f started; {hidden} & until test -e started; do sleep 0.01; done; echo left")
}

#[tokio::test]
async fn nobody_survives_a_confined_program() {
    let workspace = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let Some(sandbox) = linux(workspace.path()) else { return };
    let token = token("hidden");
    let environment = Environment::scrubbed().set("TOKEN", &token);
    let spinning = "for c in 1 2 3; do (while :; do :; done) & done; setsid sleep 300 & sleep 999";
    let run = Spawn::shell(spinning).environment(environment).dir(workspace.path()).sandbox(sandbox);
    let ended = run.grace(Duration::from_millis(100)).deadline(Duration::from_millis(300)).run().await.unwrap();
    assert_eq!(ended.how, How::TimedOut);
    assert_eq!(alive(&token), [0; 0]);
}

#[tokio::test]
async fn nobody_hides_from_the_end_of_a_namespace() {
    let workspace = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let built = LinuxSandbox::of_workspace(workspace.path()).needs(Guard::Descendants).build();
    let sandbox = match built {
        Ok(sandbox) => Arc::new(sandbox),
        Err(error) => {
            assert!(support().namespaces.is_err(), "{error}");
            println!("not shown here: {error}");
            return;
        }
    };
    // Outside a sandbox they do survive, so that it is known that they would be seen.
    let free = token("free");
    let ended = Spawn::shell(hiding(&free)).dir(workspace.path()).run().await.unwrap();
    assert_eq!(ended.stdout.text(), "left\n");
    common::until("they have hidden", || !alive(&free).is_empty()).await;
    // They lead the group that their children are in too.
    while let Some(pid) = alive(&free).first() {
        let pid = rustix::process::Pid::from_raw(i32::try_from(*pid).unwrap());
        if let Ok(group) = rustix::process::getpgid(pid) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
    let kept = token("kept");
    let ended = Spawn::shell(hiding(&kept)).dir(workspace.path()).sandbox(sandbox).run().await.unwrap();
    assert_eq!((ended.how, ended.stdout.text().as_str()), (How::Exited, "left\n"));
    assert_eq!(alive(&kept), [0; 0]);
}

#[tokio::test]
async fn the_thread_that_starts_it_is_the_only_one_restricted() {
    let workspace = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let Some(sandbox) = linux(workspace.path()) else { return };
    for _ in 0..3 {
        let ended = Spawn::shell("true").dir(workspace.path()).sandbox(Arc::clone(&sandbox)).run().await.unwrap();
        assert_eq!(ended.code, Some(0));
    }
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("file"), "x").unwrap();
    assert!(TcpListener::bind("127.0.0.1:0").is_ok());
    assert_eq!(Spawn::shell("ls /proc >/dev/null").run().await.unwrap().code, Some(0));
}

#[tokio::test]
async fn more_can_be_opened_by_name() {
    let outside = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let workspace = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::create_dir(outside.path().join("read")).unwrap();
    fs::create_dir(outside.path().join("write")).unwrap();
    fs::write(outside.path().join("read/file"), "tool").unwrap();
    let built = LinuxSandbox::of_workspace(workspace.path()).read(outside.path().join("read")).write(outside.path().join("write")).build();
    let Ok(sandbox) = built else { return };
    assert!(!sandbox.lacks().iter().any(|(guard, _)| *guard != Guard::Descendants), "{:?}", sandbox.lacks());
    let sandbox: Arc<dyn Sandbox> = Arc::new(sandbox);
    let script = "cat ../*/read/file 2>/dev/null || cat \"$R/file\"; echo x > \"$W/new\"; echo x > \"$R/new\"";
    let environment = Environment::scrubbed().set("R", outside.path().join("read")).set("W", outside.path().join("write"));
    let ended = Spawn::shell(script).environment(environment).dir(workspace.path()).sandbox(sandbox).run().await.unwrap();
    assert!(ended.stdout.text().starts_with("tool") && ended.code != Some(0), "{}", ended.stdout.text());
    assert!(outside.path().join("write/new").exists() && !outside.path().join("read/new").exists());
}

/// A program that stands in for a container engine: it writes down what it is told, and runs what comes after the image.
fn engine(folder: &Path) -> PathBuf {
    let engine = folder.join("engine");
    let script = r#"#!/bin/sh
echo "$@" >> "$0.log"
case "$1" in
run) while [ "$1" != "the/image:1" ]; do shift; done; shift; exec "$@" ;;
rm) echo removed >> "$0.log" ;;
esac
"#;
    fs::write(&engine, script).unwrap();
    fs::set_permissions(&engine, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    engine
}

// rule: sdk-tools 26.1/1
#[tokio::test]
async fn a_container_gets_its_folder_its_variables_and_no_network() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let workspace = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let engine = engine(folder.path());
    let sandbox = Arc::new(ContainerSandbox::of_image("the/image:1").unwrap().engine(&engine));
    let environment = Environment::scrubbed().set("TOKEN", "t0p");
    let ended = Spawn::shell("pwd; echo $TOKEN").environment(environment).dir(workspace.path()).sandbox(sandbox).run().await.unwrap();
    assert_eq!(ended.stdout.text(), format!("{}\nt0p\n", workspace.path().display()), "{}", ended.stderr.text());
    let told = fs::read_to_string(folder.path().join("engine.log")).unwrap();
    let dir = workspace.path().display();
    assert!(told.starts_with("run --rm --init --name toolwright-"), "{told}");
    for words in ["--network none", "--cap-drop ALL", &format!("type=bind,source={dir},target={dir}"), "-e TOKEN", "the/image:1 sh -c pwd"]
    {
        assert!(told.contains(words), "{words}: {told}");
    }
    assert!(!told.contains("t0p"), "a value stands in no argument: {told}");
    assert!(!told.contains("removed"), "what ended by itself has removed itself: {told}");
    for image in ["", "-v", "a b"] {
        assert!(ContainerSandbox::of_image(image).is_err(), "{image:?}");
    }
}

// rule: sdk-tools 10.2/2
// rule: sdk-tools 10.2/3
#[tokio::test]
async fn a_container_is_removed_when_its_program_is_stopped() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let engine = engine(folder.path());
    let sandbox = Arc::new(ContainerSandbox::of_image("the/image:1").unwrap().engine(&engine));
    let log = || fs::read_to_string(folder.path().join("engine.log")).unwrap_or_default();
    let spawn = Spawn::shell("sleep 300").sandbox(sandbox.clone()).grace(Duration::from_millis(100));
    let ended = spawn.clone().deadline(Duration::from_millis(200)).run().await.unwrap();
    assert_eq!(ended.how, How::TimedOut);
    assert!(log().contains("rm --force toolwright-") && log().contains("removed"), "{}", log());
    let told = log();
    let began = async { common::until("it was begun", || log().len() > told.len()).await };
    let ended = spawn.run_until(began).await.unwrap();
    assert_eq!((ended.how, log().matches("removed").count()), (How::Stopped, 2));
    // Who is told to stop before it begins begins nothing; an engine that can't remove is nobody's error.
    fs::remove_file(&engine).unwrap();
    assert!(Spawn::shell("true").sandbox(sandbox).run().await.is_err());
}
