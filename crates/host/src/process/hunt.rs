//! Descendants that left their process group, found by the mark in their environment.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The variable that every program started for a model carries, and all that it starts.
pub(super) const MARK: &str = "TOOLWRIGHT_PROCESS";

/// A mark that no other run has.
pub(super) fn new_mark() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    format!("{}-{}-{now:x}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// What is looked for: members of a group, and whatever carries a mark.
pub(super) struct Hunt<'a> {
    pub(super) leader: u32,
    pub(super) mark: Option<&'a str>,
}

/// What the system tells of a process in one line.
struct Stat {
    dead: bool,
    group: u32,
    started: u64,
}

impl Hunt<'_> {
    /// Kills what is found; how many there were. The leader itself is not among them.
    pub(super) fn kill(&self) -> usize {
        let entry = self.mark.map(|mark| format!("{MARK}={mark}").into_bytes());
        let since = stat(self.leader).map_or(0, |leader| leader.started);
        let own = std::process::id();
        let mut found = 0;
        let Ok(all) = std::fs::read_dir("/proc") else { return 0 };
        for pid in all.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
            // Nobody older than the leader comes from it. The clock of this is coarse, so equal counts.
            if pid == self.leader || pid == own || !stat(pid).is_some_and(|stat| !stat.dead && stat.started >= since) {
                continue;
            }
            let Some(target) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { continue };
            // Held before it is looked at again: what is killed is what was looked at, whatever becomes of the number.
            let Ok(held) = pidfd_open(target, PidfdFlags::empty()) else { continue };
            let is_it = stat(pid).is_some_and(|stat| !stat.dead && stat.group == self.leader)
                || entry.as_ref().is_some_and(|entry| carries(pid, entry));
            if is_it {
                found += 1;
                let _ = pidfd_send_signal(&held, Signal::KILL);
            }
        }
        found
    }
}

fn carries(pid: u32, entry: &[u8]) -> bool {
    std::fs::read(format!("/proc/{pid}/environ")).is_ok_and(|all| all.split(|byte| *byte == 0).any(|one| one == entry))
}

fn stat(pid: u32) -> Option<Stat> {
    parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The name in parentheses may hold anything, so fields are counted from the last one that closes.
fn parse(line: &str) -> Option<Stat> {
    let (_, rest) = line.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    let group = fields.nth(1)?.parse().ok()?;
    let started = fields.nth(16)?.parse().ok()?;
    Some(Stat { dead: matches!(state, "Z" | "X" | "x"), group, started })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_whatever_the_name_is() {
        let line = "77 (a) S 1 (b) Z 1 4321 4321 0 -1 4194304 106 0 0 0 0 0 0 0 20 0 1 0 987654 2506752 189 18446744073709551615";
        let stat = parse(line).unwrap();
        assert_eq!((stat.dead, stat.group, stat.started), (true, 4321, 987_654));
        assert!(parse("77 (a").is_none());
    }

    #[test]
    fn marks_differ() {
        assert_ne!(new_mark(), new_mark());
    }
}
