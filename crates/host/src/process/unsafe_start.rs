//! Where code of ours runs between fork and exec, which is unsafe: a child of a process with threads may make system calls there and hardly
//! anything else. It is done for networks of who is not root alone; nothing else in this project is unsafe.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::process::{Child, Stdio};

use nix::sched::{CloneFlags, setns};
use tokio::process::Command;

/// Namespaces that a program joins once it is a process of its own: a process with threads can't enter one of users.
#[derive(Debug)]
pub(crate) struct Joins {
    pub(crate) user: File,
    pub(crate) network: File,
}

/// Has the program join namespaces before it begins.
#[allow(unsafe_code, reason = "a namespace of users is entered between fork and exec or not at all")]
pub(super) fn join(command: &mut Command, joins: std::sync::Arc<Joins>) {
    let joining = move || {
        setns(joins.user.as_fd(), CloneFlags::CLONE_NEWUSER).map_err(|error| io::Error::from_raw_os_error(error as i32))?;
        setns(joins.network.as_fd(), CloneFlags::CLONE_NEWNET).map_err(|error| io::Error::from_raw_os_error(error as i32))
    };
    // SAFETY: the closure makes two system calls with descriptors that were opened before, and an error out of a number: it neither
    // allocates nor locks, which is what a child of a process with threads must not do.
    unsafe {
        command.pre_exec(joining);
    }
}

/// Starts a child that does `first` and then waits until its input is closed.
///
/// # Safety
///
/// `first` runs between fork and exec: it may make system calls, and must neither allocate nor lock.
#[allow(unsafe_code, reason = "a namespace of users is made between fork and exec or not at all")]
#[allow(clippy::disallowed_methods, reason = "host::process is the one place that starts processes")]
pub(crate) unsafe fn waiting_child(first: impl Fn() -> io::Result<()> + Send + Sync + 'static) -> io::Result<Child> {
    let mut command = std::process::Command::new("cat");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: whoever calls this answers for `first`.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(&mut command, first);
    }
    command.spawn()
}
