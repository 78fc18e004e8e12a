//! Spawned programs.
//!
//! [`Program`] runs a program of ours to its end: a developer or an operator wrote it. [`Spawn`] is for what a model wrote: it has a scrubbed
//! environment, a process group of its own and a deadline; its output is bounded while it is read; and once it has [`Ended`], nothing that
//! it started is alive.
//!
//! How descendants are found, on Linux: the whole process group is killed; then every process that carries this run's mark in the
//! environment it was started with, however far it went (`setsid`, a double fork, `nohup`); both until a look around finds none. What a
//! program can still do is to clear the mark, leave the group and outlive its parent, all three. A [sandbox](crate::sandbox) with
//! a process namespace closes that too. On other systems the group is what is killed.

mod environment;
mod error;
mod group;
#[cfg(target_os = "linux")]
mod hunt;
mod output;
mod program;
mod running;
mod spawn;
#[cfg(all(target_os = "linux", feature = "sandbox"))]
mod unsafe_start;

pub use environment::Environment;
pub use error::ProcessError;
pub use output::Captured;
pub use program::{Finished, Program};
pub use running::{Ended, How, Process};
pub use spawn::{GRACE, KEPT, Launch, Spawn};
#[cfg(all(target_os = "linux", feature = "sandbox"))]
pub(crate) use unsafe_start::{Joins, waiting_child};
