//! How ids, keys and payloads stand in the tables.

use serde::Serialize;
use serde::de::DeserializeOwned;
use toolwright_core::{ThreadId, sha256_hex};
use toolwright_runtime::StoreError;

/// The longest text that an index can hold, in bytes. PostgreSQL's own bound is some 2,700 for all columns of an index together.
const INDEXED: usize = 2000;
/// The length of what stands for a longer one.
const SHORTENED: usize = INDEXED - 64;

/// A key or path that is given back as it is. `Failed` if it can't be kept.
pub(super) fn key<'a>(what: &str, text: &'a str) -> Result<&'a [u8], StoreError> {
    StoreError::refuse_nul(what, text)?;
    let (length, shown) = (text.len(), toolwright_core::cut(text, 100));
    if length > INDEXED {
        Err(StoreError::failed(format!(
            "the {what} that begins with {shown:?} has {length} bytes; PostgreSQL takes up to {INDEXED}, so make it shorter"
        )))
    } else {
        Ok(text.as_bytes())
    }
}

/// An id that is only compared: where it is too long for an index, its beginning and a hash of it all stand for it.
pub(super) fn compared(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    match bytes.get(..SHORTENED) {
        Some(beginning) if bytes.len() > INDEXED => [beginning, sha256_hex(bytes).as_bytes()].concat(),
        _ => bytes.to_vec(),
    }
}

/// Where a listing begins and ends in byte order: with what begins with `prefix`, after `after`. The end is not in it.
pub(super) fn range(prefix: &str, after: Option<&str>) -> (Vec<u8>, Vec<u8>) {
    let prefix = prefix.as_bytes();
    // What follows a text directly is the same with a zero byte behind it.
    let behind = after.map(|after| [after.as_bytes(), &[0]].concat()).unwrap_or_default();
    let from = behind.max(prefix.to_vec());
    let mut to = prefix.to_vec();
    match to.last_mut() {
        // UTF-8 has no byte that can't be raised.
        Some(last) => *last = last.saturating_add(1),
        None => to.push(u8::MAX),
    }
    (from, to)
}

/// A payload as text.
pub(super) fn written(what: &str, value: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::failed(format!("{what} can't be written as JSON: {error}")))
}

/// A payload from text.
pub(super) fn read<T: DeserializeOwned>(what: &str, thread: &ThreadId, text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| {
        StoreError::failed(format!("{what} of the thread {thread} can't be read; restore the store from a backup: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_holds_what_begins_with_a_prefix_and_comes_after() {
        let all = ["", "a", "a\u{1}", "a/", "a/b", "a/b\u{10FFFF}z", "a/\u{10FFFF}", "a0", "b", "\u{10FFFF}"];
        for prefix in all {
            for after in all.map(Some).into_iter().chain([None]) {
                let (from, to) = range(prefix, after);
                for text in all {
                    let within = from.as_slice() <= text.as_bytes() && text.as_bytes() < to.as_slice();
                    let fits = text.starts_with(prefix) && after.is_none_or(|after| text > after);
                    assert_eq!(within, fits, "{text:?} for {prefix:?} after {after:?}");
                }
            }
        }
    }

    #[test]
    fn long_ids_stay_apart() {
        let (one, two) = ("x".repeat(5000), format!("{}y", "x".repeat(4999)));
        assert_eq!(compared(&one).len(), INDEXED);
        assert_ne!(compared(&one), compared(&two));
        assert_eq!(compared("short"), b"short");
    }

    #[test]
    fn keys_that_cannot_be_kept_are_named() {
        assert!(key("key", "a\0b").unwrap_err().to_string().contains("U+0000"));
        assert!(key("path", &"x".repeat(2001)).unwrap_err().to_string().contains("2001 bytes"));
        assert_eq!(key("path", "/a").unwrap(), b"/a");
    }
}
