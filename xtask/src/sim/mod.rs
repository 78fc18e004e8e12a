//! The simulator: core and driver under a seeded scheduler, with its invariants checked after each schedule.

use std::process::ExitCode;

/// `cargo xtask sim [--schedules N] [--seed S]`.
pub(crate) fn run(_args: &[String]) -> anyhow::Result<ExitCode> {
    anyhow::bail!("the simulator is not built yet")
}
