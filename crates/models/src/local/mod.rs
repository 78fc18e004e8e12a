//! The embedded model, Needle 3: a tool-calling model of 121M parameters in a 35 MB file, run in this process.
//!
//! It picks tools and fills their arguments, says when no tool fits, and closes with a sentence. It does not converse, reason over
//! long text or write code.
//!
//! - [`LocalModel`], [`LocalResolver`]: how an agent reaches it.
//! - [`weights`]: where its file comes from.
//! - [`answer`]: from what was said to the calls to make, with what is done about doubtful ones.
//! - [`Engine`]: the model itself, which knows nothing of agents: [`forward`](self) pass, kept states, grammar of calls.

mod closing;
mod engine;
mod error;
mod forward;
mod gate;
mod grammar;
mod model;
mod narrow;
mod prompt;
mod tokens;
pub mod weights;

pub use engine::{Engine, Reply, Turn};
pub use error::LocalError;
pub use gate::{Answer, Asked, Offer, Question, answer};
pub use model::{LocalModel, LocalResolver, NAME};
pub use prompt::{Outcome, Said, ToolText};
