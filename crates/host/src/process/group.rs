//! A program together with whatever it started.

use std::process::ExitStatus;
use std::time::Duration;

use tokio::process::Child;
use tokio::time::{Instant, sleep};

#[cfg(target_os = "linux")]
use super::hunt::Hunt;

/// How long killed processes are waited for. They can't refuse; this is for a machine that is busy.
const GONE_WITHIN: Duration = Duration::from_secs(5);

/// A program that takes all that it started with it when it goes. The program itself stays uncollected until [`Group::collect`], so that
/// its number, which is its group's too, can't come to mean another one.
pub(super) struct Group {
    child: Child,
    #[cfg_attr(not(unix), allow(dead_code, reason = "groups are of Unix"))]
    leader: Option<u32>,
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "marks are looked for on Linux"))]
    mark: Option<String>,
    collected: Option<ExitStatus>,
    /// Readable once the program has ended.
    #[cfg(target_os = "linux")]
    ended: Option<tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>>,
}

impl Group {
    /// Takes a child that leads a process group of its own.
    pub(super) fn of(child: Child, mark: Option<String>) -> Self {
        let leader = child.id();
        #[cfg(target_os = "linux")]
        #[expect(deprecated, reason = "sound for an owned descriptor; what replaces it is unsafe to call for every type")]
        let ended = pid_of(leader)
            .and_then(|pid| rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok())
            .and_then(|fd| tokio::io::unix::AsyncFd::with_interest(fd, tokio::io::Interest::READABLE).ok());
        Self {
            child,
            leader,
            mark,
            collected: None,
            #[cfg(target_os = "linux")]
            ended,
        }
    }

    pub(super) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Waits until the program itself has ended, without collecting it where the system can tell the one from the other.
    pub(super) async fn exited(&mut self) -> std::io::Result<()> {
        #[cfg(target_os = "linux")]
        if let Some(ended) = &self.ended {
            return ended.readable().await.map(|_| ());
        }
        self.collect().await.map(|_| ())
    }

    /// Asks all of the group to end.
    pub(super) fn terminate(&self) {
        #[cfg(unix)]
        if let (Some(group), None) = (pid_of(self.leader), self.collected) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::TERM);
        }
    }

    /// Kills all of the group, and on Linux what left it. One look: who is just being started may be missed.
    pub(super) fn kill(&mut self) -> usize {
        #[cfg(unix)]
        if let (Some(group), None) = (pid_of(self.leader), self.collected) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.child.start_kill();
        #[cfg(target_os = "linux")]
        if let (Some(leader), None) = (self.leader, self.collected) {
            return Hunt { leader, mark: self.mark.as_deref() }.kill();
        }
        0
    }

    /// Kills until nobody is left, then collects the program.
    pub(super) async fn finish(&mut self) -> std::io::Result<ExitStatus> {
        let until = Instant::now() + GONE_WITHIN;
        let mut pause = Duration::from_micros(200);
        while self.kill() > 0 && Instant::now() < until {
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(20));
        }
        self.collect().await
    }

    async fn collect(&mut self) -> std::io::Result<ExitStatus> {
        if let Some(status) = self.collected {
            return Ok(status);
        }
        let status = self.child.wait().await?;
        self.collected = Some(status);
        Ok(status)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.collected.is_none() {
            self.kill();
        }
    }
}

#[cfg(unix)]
fn pid_of(id: Option<u32>) -> Option<rustix::process::Pid> {
    id.and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw)
}
