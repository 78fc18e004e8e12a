//! From a page to its text.

pub(crate) mod charset;
mod flow;
mod main_content;
mod text;
mod tokens;

pub use main_content::main_text;
pub use text::{Links, page_text};
