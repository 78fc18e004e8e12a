//! What tests of processes share.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic, reason = "each test file uses a part")]

use std::time::{Duration, Instant};

/// A word that no other process of this machine has in its command line or environment.
pub fn token(name: &str) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
    format!("toolwright-{name}-{}-{now}", std::process::id())
}

/// The numbers of living processes with `token` in their command line or environment.
pub fn alive(token: &str) -> Vec<u32> {
    let has =
        |pid: u32, what: &str| std::fs::read(format!("/proc/{pid}/{what}")).is_ok_and(|all| String::from_utf8_lossy(&all).contains(token));
    let pids = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| *pid != std::process::id() && (has(*pid, "cmdline") || has(*pid, "environ"))).collect()
}

/// Waits until `what` holds; panics after half a minute.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(30), "in vain: {what}");
        tokio::task::yield_now().await;
    }
}
