//! How models are reached: wires to providers, the scripted model, record and replay.
//!
//! - [`ChatModel`], [`Switches`], [`ChatResolver`]: Chat Completions, and how the servers that speak it differ.
//! - [`sse`], [`Assembler`], [`ReplyDecoder`]: a stream's bytes to the items of a reply; pure.
//! - `local` (feature `local`): the embedded model, run in this process.
//! - [`scripted`]: a model that says what a test wrote.
//! - [`replay`]: whole HTTP conversations, recorded into a file and replayed from it.
//! - [`Transport`]: what lies below a wire, the network or a recording.

mod assemble;
mod chat;
mod chunk;
mod decode;
mod encode;
mod failure;
mod identity;
mod ids;
#[cfg(feature = "local")]
pub mod local;
pub mod replay;
mod resolve;
pub mod scripted;
mod secret;
pub mod sse;
pub mod switches;
mod transport;

pub use assemble::Assembler;
pub use chat::{ChatModel, Deadlines};
pub use decode::{MAX_REPLY, ReplyDecoder, assemble_bytes};
pub use replay::{Cassette, ReplayMode};
pub use resolve::{ChatResolver, MODEL_VAR};
pub use scripted::ScriptedModel;
pub use switches::Switches;
pub use transport::Transport;
