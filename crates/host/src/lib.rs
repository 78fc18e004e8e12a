//! The guarded ways out (invariant 6 of ARCHITECTURE.md): outbound HTTP and spawned processes leave through here and nowhere else.
//! So do the files of a folder that a model works in.

#[cfg(unix)]
pub mod files;
#[cfg(feature = "mail")]
pub mod mail;
pub mod net;
pub mod process;
pub mod sandbox;
