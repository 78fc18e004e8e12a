//! Redaction: registered secrets are taken out of what is written down, shown or sent.
//!
//! A secret is found as it is, escaped as JSON escapes it, percent-encoded, in hexadecimal and in base64 at each alignment;
//! a secret of several lines also line by line, one that is JSON also by its texts. See [`Redactor`] and, for text that comes
//! in pieces, [`StreamRedactor`].

mod index;
mod needle;
mod stream;
mod structure;

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::text::TRUNCATION_MARKER;
use index::Index;
use needle::{Needle, Scratch};
pub use stream::StreamRedactor;
pub use structure::Unredactable;

/// The shortest secret, in characters: what is shorter stands in ordinary text by chance.
pub const MIN_SECRET: usize = 6;
/// The shortest line of a secret of several lines that is taken out by itself.
const MIN_LINE: usize = 16;

/// Why something can't be registered as a secret. Never shows the value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretRefused {
    /// Too short.
    #[error(
        "the secret {name} has fewer than {MIN_SECRET} characters, so that taking it out would hide ordinary text; use a longer one, or give it as a text value"
    )]
    TooShort {
        /// Its name.
        name: String,
    },
    /// A name that can't stand in its place.
    #[error("a secret can't be called {name:?}; use 1 to 128 letters, digits, `_`, `-`, `.` and `/`")]
    BadName {
        /// Its name.
        name: String,
    },
}

/// Takes registered secrets out of text and values. Making one takes a moment, using it is fast; share it.
///
/// ```
/// use toolwright_core::redact::Redactor;
///
/// let redactor = Redactor::new([("API_KEY", "s3cr3t/value")])?;
/// assert_eq!(redactor.redact("key=s3cr3t/value!"), "key=[redacted:API_KEY]!");
/// assert_eq!(redactor.redact("?key=s3cr3t%2Fvalue"), "?key=[redacted:API_KEY]");
/// assert_eq!(redactor.redact(r#"{"key":"s3cr3t\/value"}"#), r#"{"key":"[redacted:API_KEY]"}"#);
/// assert!(Redactor::new([("PIN", "1234")]).is_err());
/// # Ok::<(), toolwright_core::redact::SecretRefused>(())
/// ```
#[derive(Default)]
pub struct Redactor {
    needles: Vec<Needle>,
    /// The secret of each needle.
    owners: Vec<u32>,
    secrets: Vec<Registered>,
    index: Option<Index>,
}

struct Registered {
    name: Arc<str>,
    /// What stands in its place.
    mark: Arc<str>,
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

/// A stretch of a text that goes, and the secret it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    start: usize,
    end: usize,
    secret: u32,
}

/// What a look through a text found.
#[derive(Default)]
struct Scan {
    /// What goes: apart, ascending.
    spans: Vec<Span>,
    /// Where a needle may have begun that the text does not end.
    open: Option<usize>,
}

impl Redactor {
    /// For these secrets, each with its name. White space around a value is not part of it.
    pub fn new<N: Into<Arc<str>>, V: AsRef<str>>(secrets: impl IntoIterator<Item = (N, V)>) -> Result<Self, SecretRefused> {
        let mut redactor = Self::default();
        let mut known = HashSet::new();
        for (name, value) in secrets {
            let name: Arc<str> = name.into();
            check(&name, value.as_ref())?;
            let secret = redactor.secrets.len() as u32;
            for text in texts(value.as_ref()) {
                let encoded = (0..3).map(|before| Needle::base64(&text, before));
                for needle in [Needle::text(&text), Needle::hex(&text)].into_iter().chain(encoded) {
                    if known.insert(needle.clone()) {
                        redactor.needles.push(needle);
                        redactor.owners.push(secret);
                    }
                }
            }
            redactor.secrets.push(Registered { mark: format!("[redacted:{name}]").into(), name });
        }
        if !redactor.needles.is_empty() {
            redactor.index = Some(Index::of(&redactor.needles));
        }
        // What stands in place of a secret holds none, whatever secrets and names are.
        let marks: Vec<Arc<str>> = redactor
            .secrets
            .iter()
            .map(|registered| {
                let candidates = [&*registered.mark, "[redacted]", "[hidden]", "*****"];
                candidates.into_iter().find(|mark| redactor.find(mark).is_none()).unwrap_or_default().into()
            })
            .collect();
        redactor.secrets.iter_mut().zip(marks).for_each(|(registered, mark)| registered.mark = mark);
        Ok(redactor)
    }

    /// Whether there is nothing to take out.
    pub fn is_empty(&self) -> bool {
        self.index.is_none()
    }

    /// The names of the secrets, as they were registered.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.secrets.iter().map(|registered| &registered.name)
    }

    /// What stands in place of a secret.
    fn mark(&self, secret: u32) -> &str {
        self.secrets.get(secret as usize).map_or("", |registered| &registered.mark)
    }

    /// Looks through a text. Where it `begins` and where it `ends` may be where it was cut: the longer part of a needle that stands
    /// there goes too.
    fn scan(&self, text: &str, begins: bool, ends: bool) -> Scan {
        let Some(index) = &self.index else { return Scan::default() };
        let bytes = text.as_bytes();
        let mut scratch = Scratch::default();
        let mut scan = Scan::default();
        if begins {
            index.ends(bytes, |at, found| {
                for (number, unit) in found {
                    let (Some(needle), Some(secret)) = (self.needles.get(*number as usize), self.owners.get(*number as usize)) else {
                        continue;
                    };
                    let found = needle.since_unit(*unit as usize, bytes, at, &mut scratch);
                    let longer = |there: &usize| 2 * there.saturating_sub(*unit as usize) > needle.len();
                    let cut = found.open.filter(|there| ends && longer(there)).map(|_| bytes.len());
                    if let Some(end) = found.full.max(cut) {
                        scan.add(Span { start: 0, end, secret: *secret });
                    }
                    if found.open.is_some() {
                        scan.open = Some(0);
                    }
                }
            });
            if !ends && bytes.len() < 4 {
                scan.open = Some(0);
            }
        }
        index.candidates(bytes, |at, numbers| {
            for number in numbers {
                let (Some(needle), Some(secret)) = (self.needles.get(*number as usize), self.owners.get(*number as usize)) else {
                    continue;
                };
                let found = needle.at(bytes, at, &mut scratch);
                let cut = found.open.filter(|there| ends && 2 * there > needle.len()).map(|_| bytes.len());
                if let Some(end) = found.full.max(cut) {
                    scan.add(Span { start: at, end, secret: *secret });
                }
                if found.open.is_some() {
                    scan.open = Some(scan.open.map_or(at, |before| before.min(at)));
                }
            }
        });
        if !ends && scan.open.is_none() {
            scan.open = index.open_tail(bytes);
        }
        scan
    }

    /// The text without secrets. Its beginning and its end count as cuts: the longer part of a secret that stands there goes too.
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if self.is_empty() {
            return Cow::Borrowed(text);
        }
        match self.once(text) {
            None => Cow::Borrowed(text),
            Some(mut clean) => {
                // What remains may meet what was put in its place; that does not go on for long.
                for _ in 0..4 {
                    match self.once(&clean) {
                        None => return Cow::Owned(clean),
                        Some(cleaner) => clean = cleaner,
                    }
                }
                Cow::Owned(self.mark(0).to_owned())
            }
        }
    }

    fn once(&self, text: &str) -> Option<String> {
        // Text that was cut before it came here ends where it was cut.
        let whole = text.strip_suffix(TRUNCATION_MARKER);
        let scan = self.scan(whole.unwrap_or(text), true, true);
        if scan.spans.is_empty() {
            return None;
        }
        let body = whole.unwrap_or(text);
        let mut out = String::with_capacity(text.len());
        let mut at = 0;
        for span in &scan.spans {
            out.push_str(body.get(at..span.start).unwrap_or_default());
            out.push_str(self.mark(span.secret));
            at = span.end;
        }
        out.push_str(body.get(at..).unwrap_or_default());
        out.push_str(text.get(body.len()..).unwrap_or_default());
        Some(out)
    }

    /// The name of a secret that stands in the text, or the longer part of it at the text's end.
    pub fn find(&self, text: &str) -> Option<&Arc<str>> {
        let whole = text.strip_suffix(TRUNCATION_MARKER).unwrap_or(text);
        let span = *self.scan(whole, true, true).spans.first()?;
        self.secrets.get(span.secret as usize).map(|registered| &registered.name)
    }

    /// The name of a secret that stands in the value: in a text, a key, a number or all of it as JSON.
    pub fn find_in_value(&self, value: &Value) -> Option<&Arc<str>> {
        let in_text = match value {
            _ if self.is_empty() => return None,
            Value::String(text) => return self.find(text),
            Value::Array(items) => items.iter().find_map(|item| self.find_in_value(item)),
            Value::Object(fields) => fields.iter().find_map(|(key, value)| self.find(key).or_else(|| self.find_in_value(value))),
            _ => None,
        };
        in_text.or_else(|| self.find(&value.to_string()))
    }
}

impl Scan {
    /// One more stretch; those that overlap become one.
    fn add(&mut self, mut span: Span) {
        while let Some(last) = self.spans.last().filter(|last| last.end > span.start) {
            span = Span { start: last.start.min(span.start), end: last.end.max(span.end), secret: last.secret };
            self.spans.pop();
        }
        self.spans.push(span);
    }
}

fn check(name: &str, value: &str) -> Result<(), SecretRefused> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    if name.is_empty() || name.len() > 128 || !name.chars().all(fits) {
        return Err(SecretRefused::BadName { name: crate::text::bounded(name, 80) });
    }
    if value.trim().chars().take(MIN_SECRET).count() < MIN_SECRET {
        return Err(SecretRefused::TooShort { name: name.to_owned() });
    }
    Ok(())
}

/// Whether a value is long enough to be registered as a secret.
pub fn check_secret(name: &str, value: &str) -> Result<(), SecretRefused> {
    check(name, value)
}

/// The texts that give a secret away: itself, its longer lines, the texts in it where it is JSON.
fn texts(value: &str) -> Vec<String> {
    let mut out = Vec::new();
    add_text(value, &mut out);
    if let Ok(value) = serde_json::from_str::<Value>(value) {
        add_leaves(&value, &mut out);
    } else {
        add_lines(value, &mut out);
    }
    out
}

fn add_text(text: &str, out: &mut Vec<String>) {
    let text = text.trim().replace("\r\n", "\n");
    if text.chars().take(MIN_SECRET).count() == MIN_SECRET && !out.contains(&text) {
        out.push(text);
    }
}

fn add_leaves(value: &Value, out: &mut Vec<String>) {
    match value {
        Value::String(text) => {
            add_text(text, out);
            add_lines(text, out);
        }
        Value::Array(items) => items.iter().for_each(|item| add_leaves(item, out)),
        Value::Object(fields) => fields.values().for_each(|value| add_leaves(value, out)),
        _ => {}
    }
}

fn add_lines(text: &str, out: &mut Vec<String>) {
    if !text.trim().contains('\n') {
        return;
    }
    // What frames a key is the same for all keys.
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with("-----"));
    lines.filter(|line| line.chars().take(MIN_LINE).count() == MIN_LINE).for_each(|line| add_text(line, out));
}
