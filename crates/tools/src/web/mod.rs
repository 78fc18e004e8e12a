//! Tools that reach the web, through the guarded client.

mod fetch;
mod page;
mod pdf;
mod request;

pub use fetch::WebFetch;
pub use page::{Links, main_text, page_text};
pub use request::HttpRequest;

use page::charset::{Markup, text_of};
use tokio_util::sync::CancellationToken;
use toolwright_host::net::GuardError;
use toolwright_tool::ToolError;

/// What a body is, by its type and, where it has none, by how it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Html,
    Text,
    Pdf,
    Other,
}

impl Shape {
    /// Of a body with this `content-type`.
    fn of(content_type: &str, body: &[u8]) -> Self {
        let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match essence.as_str() {
            "text/html" | "application/xhtml+xml" => Self::Html,
            "application/pdf" => Self::Pdf,
            "application/json"
            | "application/xml"
            | "application/javascript"
            | "application/x-ndjson"
            | "application/yaml"
            | "application/toml"
            | "application/x-www-form-urlencoded"
            | "application/graphql"
            | "application/sql" => Self::Text,
            text if text.starts_with("text/") || text.ends_with("+json") || text.ends_with("+xml") || text.ends_with("+yaml") => Self::Text,
            "" => Self::sniffed(body),
            _ => Self::Other,
        }
    }

    fn sniffed(body: &[u8]) -> Self {
        let start = body.trim_ascii_start();
        let begins = |with: &[u8]| start.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with));
        if begins(b"<!doctype html") || begins(b"<html") {
            Self::Html
        } else if body.contains(&0) {
            Self::Other
        } else {
            Self::Text
        }
    }

    /// The text of a body that is text.
    fn text(self, body: &[u8], content_type: &str) -> String {
        let markup = if self == Self::Html { Markup::Html } else { Markup::None };
        text_of(body, content_type, markup).into_owned()
    }
}

/// At most this many characters of a text, and whether there are more.
fn cut(mut text: String, max_chars: usize) -> (String, bool) {
    match text.char_indices().nth(max_chars) {
        None => (text, false),
        Some((end, _)) => {
            text.truncate(end);
            (text, true)
        }
    }
}

/// Waits for an answer, unless the run is stopped first.
async fn unless_cancelled<T>(cancelled: CancellationToken, answer: impl Future<Output = Result<T, GuardError>>) -> Result<T, ToolError> {
    match cancelled.run_until_cancelled(answer).await {
        Some(answer) => Ok(answer?),
        None => Err(ToolError::new("the request was cancelled")),
    }
}
