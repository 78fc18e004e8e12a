//! What is kept of an output.

use std::borrow::Cow;

/// What was kept of one output: its beginning, its end, and how much there was between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    head: Vec<u8>,
    tail: Vec<u8>,
    dropped: u64,
}

impl Captured {
    /// The beginning; all of it, where nothing was dropped.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// The end; empty where nothing was dropped.
    pub fn tail(&self) -> &[u8] {
        &self.tail
    }

    /// How many bytes between them were read and dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// How many bytes the program wrote.
    pub fn written(&self) -> u64 {
        self.dropped + (self.head.len() + self.tail.len()) as u64
    }

    /// As text; what is not UTF-8 is replaced, and a mark in the middle says how many bytes are missing.
    pub fn text(&self) -> String {
        if self.dropped == 0 {
            return String::from_utf8_lossy(&self.head).into_owned();
        }
        format!("{}{}{}", beginning(&self.head), mark(&format!("{} bytes", self.dropped)), ending(&self.tail))
    }

    /// As text of at most `limit` characters besides the mark: as much of the beginning as of the end.
    pub fn shortened(&self, limit: usize) -> String {
        if self.dropped == 0 {
            let whole = String::from_utf8_lossy(&self.head);
            let characters = whole.chars().count();
            if characters <= limit {
                return whole.into_owned();
            }
            let end = limit / 2;
            let mut text: String = whole.chars().take(limit - end).collect();
            text.push_str(&mark(&format!("{} characters", characters - limit)));
            text.extend(whole.chars().skip(characters - end));
            return text;
        }
        let (head, tail) = (beginning(&self.head), ending(&self.tail));
        let end = limit / 2;
        let kept: String = head.chars().take(limit - end).collect();
        let skipped = tail.chars().count().saturating_sub(end);
        let last: String = tail.chars().skip(skipped).collect();
        let lost = self.written().saturating_sub((kept.len() + last.len()) as u64);
        format!("{kept}{}{last}", mark(&format!("{lost} bytes")))
    }
}

fn mark(what: &str) -> String {
    format!("\n[... {what} left out ...]\n")
}

/// The text of bytes that were cut at their end: a character that was cut through is left out.
fn beginning(bytes: &[u8]) -> Cow<'_, str> {
    let whole = match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => bytes.get(..error.valid_up_to()).unwrap_or(bytes),
        _ => cut_end(bytes),
    };
    String::from_utf8_lossy(whole)
}

/// Without the bytes of a last character that is not all there, in text that is broken elsewhere too.
fn cut_end(bytes: &[u8]) -> &[u8] {
    for back in 1..=3_usize.min(bytes.len()) {
        let at = bytes.len() - back;
        match bytes.get(at) {
            Some(0b1100_0000..=0b1101_1111) if back < 2 => return bytes.get(..at).unwrap_or(bytes),
            Some(0b1110_0000..=0b1110_1111) if back < 3 => return bytes.get(..at).unwrap_or(bytes),
            Some(0b1111_0000..) if back < 4 => return bytes.get(..at).unwrap_or(bytes),
            Some(0b1000_0000..=0b1011_1111) => {}
            _ => return bytes,
        }
    }
    bytes
}

/// The text of bytes that were cut at their beginning.
fn ending(bytes: &[u8]) -> Cow<'_, str> {
    let broken = bytes.iter().take(3).take_while(|byte| (0b1000_0000..=0b1011_1111).contains(*byte)).count();
    String::from_utf8_lossy(bytes.get(broken..).unwrap_or_default())
}

/// Keeps an output while it is read, in bounded memory.
#[derive(Debug)]
pub(super) struct Keeper {
    head: Vec<u8>,
    tail: Vec<u8>,
    head_limit: usize,
    tail_limit: usize,
    dropped: u64,
}

impl Keeper {
    /// Keeps `limit` bytes: half from the beginning, half from the end.
    pub(super) fn both_ends(limit: usize) -> Self {
        let tail_limit = limit / 2;
        Self { head: Vec::new(), tail: Vec::new(), head_limit: limit - tail_limit, tail_limit, dropped: 0 }
    }

    /// Keeps the first `limit` bytes.
    pub(super) fn beginning(limit: usize) -> Self {
        Self { head: Vec::new(), tail: Vec::new(), head_limit: limit, tail_limit: 0, dropped: 0 }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let room = self.head_limit.saturating_sub(self.head.len()).min(bytes.len());
        let (first, rest) = bytes.split_at_checked(room).unwrap_or((bytes, &[]));
        self.head.extend_from_slice(first);
        self.tail.extend_from_slice(rest);
        // Moved down only when twice as much is there, so that each byte is moved a bounded number of times.
        if self.tail.len() > self.tail_limit.saturating_mul(2) {
            self.trim();
        }
    }

    fn trim(&mut self) {
        let surplus = self.tail.len().saturating_sub(self.tail_limit);
        self.tail.drain(..surplus);
        self.dropped += surplus as u64;
    }

    pub(super) fn captured(&mut self) -> Captured {
        self.trim();
        if self.dropped == 0 {
            return Captured { head: [self.head.as_slice(), &self.tail].concat(), ..Captured::default() };
        }
        Captured { head: self.head.clone(), tail: self.tail.clone(), dropped: self.dropped }
    }

    /// What came after the first `from` bytes, as far as it was kept.
    pub(super) fn since(&mut self, from: u64) -> Captured {
        self.trim();
        let at = |place: u64, in_all: &[u8]| in_all.get(usize::try_from(place).unwrap_or(usize::MAX)..).unwrap_or_default().to_vec();
        let (head_end, tail_start) = (self.head.len() as u64, self.head.len() as u64 + self.dropped);
        let (mut head, mut tail) = (at(from, &self.head), at(from.saturating_sub(tail_start), &self.tail));
        let dropped = tail_start.saturating_sub(from.max(head_end));
        if dropped == 0 {
            head.append(&mut tail);
        }
        Captured { head, tail, dropped }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(limit: usize, pieces: &[&[u8]]) -> Captured {
        let mut keeper = Keeper::both_ends(limit);
        for piece in pieces {
            keeper.push(piece);
            assert!(keeper.head.len() + keeper.tail.len() <= limit * 2 + piece.len(), "memory is bounded");
        }
        let captured = keeper.captured();
        assert_eq!(captured, keeper.since(0));
        captured
    }

    // rule: sdk-tools 25.2/7
    #[test]
    fn both_ends_are_kept_and_the_middle_is_counted() {
        let captured = kept(10, &[b"0123", b"456789", b"abcdef", b"ghij"]);
        assert_eq!((captured.head(), captured.tail(), captured.dropped(), captured.written()), (&b"01234"[..], &b"fghij"[..], 10, 20));
        assert_eq!(captured.text(), "01234\n[... 10 bytes left out ...]\nfghij");
        let small = kept(10, &[b"0123", b"456789"]);
        assert_eq!((small.text().as_str(), small.dropped()), ("0123456789", 0));
        let streamed = kept(1000, &vec![&b"x"[..]; 50_000]);
        assert_eq!((streamed.written(), streamed.dropped()), (50_000, 49_000));
    }

    #[test]
    fn what_came_since_is_told_with_what_was_lost() {
        let mut keeper = Keeper::both_ends(10);
        keeper.push(b"0123456789");
        let text = |captured: Captured| captured.text();
        assert_eq!(
            (text(keeper.since(3)), text(keeper.since(7)), text(keeper.since(10)), text(keeper.since(99))),
            ("3456789".into(), "789".into(), String::new(), String::new())
        );
        keeper.push(b"abcdefghij");
        assert_eq!(text(keeper.since(3)), "34\n[... 10 bytes left out ...]\nfghij");
        assert_eq!(text(keeper.since(10)), "\n[... 5 bytes left out ...]\nfghij");
        assert_eq!(text(keeper.since(17)), "hij");
    }

    #[test]
    fn characters_are_not_cut_through() {
        let text = "a\u{e9}\u{20ac}\u{1f600}".repeat(20);
        for limit in 0..60 {
            let captured = kept(limit, &[text.as_bytes()]);
            assert!(!captured.text().contains('\u{fffd}'), "{limit}: {}", captured.text());
            assert!(!captured.shortened(7).contains('\u{fffd}'), "{limit}");
        }
        let broken = [b"\xff".as_slice(), text.as_bytes()].concat();
        for limit in 4..60 {
            let shown = kept(limit, &[&broken]).text();
            assert_eq!(shown.matches('\u{fffd}').count(), 1, "{limit}: {shown}");
        }
    }

    #[test]
    fn a_long_text_is_shortened_in_its_middle() {
        let captured = kept(1000, &[b"0123456789"]);
        assert_eq!(captured.shortened(10), "0123456789");
        assert_eq!(captured.shortened(4), "01\n[... 6 characters left out ...]\n89");
        assert_eq!(captured.shortened(0), "\n[... 10 characters left out ...]\n");
        let cut = kept(6, &[b"0123456789"]);
        assert_eq!(cut.shortened(100), "012\n[... 4 bytes left out ...]\n789");
        assert_eq!(cut.shortened(2), "0\n[... 8 bytes left out ...]\n9");
    }
}
