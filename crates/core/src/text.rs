//! Cutting text without breaking characters (invariant 12), and hashing it.

use sha2::{Digest, Sha256};

/// SHA-256 in lower-case hexadecimal.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Bytes in lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 };
    let mut hex = Vec::with_capacity(2 * bytes.len());
    for byte in bytes {
        hex.extend([digit(byte >> 4), digit(byte & 15)]);
    }
    // Digits are text.
    String::from_utf8(hex).unwrap_or_default()
}

/// The longest prefix of at most `max_bytes` bytes that ends on a character boundary.
pub fn cut(text: &str, max_bytes: usize) -> &str {
    let mut end = max_bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    text.get(..end).unwrap_or_default()
}

/// Ends text that was cut.
pub const TRUNCATION_MARKER: &str = "... [truncated]";

/// `text` in at most `max_chars` characters, the marker included where something was cut.
pub fn bounded(text: &str, max_chars: usize) -> String {
    // Bytes are at least characters, so a short text needs no counting.
    if text.len() <= max_chars || text.chars().count() <= max_chars {
        return text.to_owned();
    }
    let keep = max_chars.saturating_sub(TRUNCATION_MARKER.len());
    let mut out: String = text.chars().take(keep).collect();
    out.push_str(TRUNCATION_MARKER);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    // case: field-reports 46
    #[test]
    fn cutting_respects_characters() {
        let text = format!("{}\u{2500}\u{2500}", "x".repeat(199));
        assert_eq!(cut(&text, 200).len(), 199);
        assert_eq!(cut("abc", 10), "abc");
        assert_eq!(cut("\u{1F600}", 1), "");
    }

    #[test]
    fn bounded_text_counts_characters() {
        assert_eq!(bounded("short", 20), "short");
        let long = "é".repeat(50);
        let cut = bounded(&long, 20);
        assert_eq!(cut.chars().count(), 20);
        assert!(cut.ends_with(TRUNCATION_MARKER));
    }
}
