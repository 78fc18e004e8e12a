//! What the code made by `#[tool]` and `#[args]` uses. Not a public interface.

pub use crate::define::check_decodes;
pub use futures_core::Stream;
pub use futures_util::{FutureExt, StreamExt};
pub use schemars;
pub use serde;
pub use serde_json;
