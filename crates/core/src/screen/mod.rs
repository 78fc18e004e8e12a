//! What a text holds that somebody may mind: personal data, secrets, attempts to talk a model over, topics.
//!
//! A detector says what it found and where, never the text itself, so that what it says may be logged and shown. Offsets are bytes of
//! UTF-8 in the text that was checked, the end not included. Time is linear in the text, whatever it holds: these read what models and
//! strangers write.
//!
//! ```
//! use toolwright_core::screen::{self, Pii};
//!
//! let text = "Write to ada@example.org, or call.";
//! let found = screen::pii(text, &Pii::ALL);
//! assert_eq!((found[0].kind.as_ref(), found[0].start, found[0].end), ("email", 9, 24));
//! assert_eq!(screen::masked(text, &found, |found| format!("[{}]", found.kind)), "Write to [email], or call.");
//! ```

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

mod injection;
mod personal;
mod secret;
mod topic;

pub use injection::{Signal, injection};
pub use personal::{Pii, pii};
pub use secret::secrets;
pub use topic::Topics;

/// Something that was found in a text: what it is, and where; never the text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What it is, such as `email`.
    #[serde(rename = "type")]
    pub kind: Cow<'static, str>,
    /// Its first byte.
    pub start: usize,
    /// The byte after its last.
    pub end: usize,
}

impl Finding {
    fn new(kind: &'static str, start: usize, end: usize) -> Self {
        Self { kind: Cow::Borrowed(kind), start, end }
    }
}

/// The text with every finding replaced. Findings stand in order and apart, as the detectors give them; one that does not fit the text
/// is left out.
pub fn masked(text: &str, findings: &[Finding], mut mask: impl FnMut(&Finding) -> String) -> String {
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for finding in findings {
        let Some(between) = text.get(from..finding.start).filter(|_| text.is_char_boundary(finding.end)) else { continue };
        out.push_str(between);
        out.push_str(&mask(finding));
        from = finding.end;
    }
    out.push_str(text.get(from..).unwrap_or_default());
    out
}

/// Findings of two detectors, each in order, as one list in order: where two overlap, the one of `first` stays.
fn merged(first: Vec<Finding>, second: Vec<Finding>) -> Vec<Finding> {
    if first.is_empty() {
        return second;
    }
    let mut all = Vec::with_capacity(first.len() + second.len());
    let mut rest = second.into_iter().peekable();
    for kept in first {
        while let Some(other) = rest.next_if(|other| other.end <= kept.start) {
            all.push(other);
        }
        // Whatever begins before this one ends overlaps it.
        while rest.next_if(|other| other.start < kept.end).is_some() {}
        all.push(kept);
    }
    all.extend(rest);
    all
}

/// The character before a place.
fn before(text: &str, at: usize) -> Option<char> {
    text.get(..at)?.chars().next_back()
}

/// The character at a place.
fn after(text: &str, at: usize) -> Option<char> {
    text.get(at..)?.chars().next()
}
