//! The guarded ways out (invariant 6 of ARCHITECTURE.md): outbound HTTP and spawned processes leave through here and nowhere else.

pub mod net;
pub mod process;
