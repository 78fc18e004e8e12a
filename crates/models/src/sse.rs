//! Server-sent events: bytes in any chunking to events.
//!
//! Our own rather than `eventsource-stream`: the wire needs a bound on one event's size, bytes that are not UTF-8 named as an error,
//! what a server left unterminated at the end, and no copy of each event's data; that crate has none of the four. Bytes become text
//! only once an event is whole, so a character that two network reads share is never seen in halves.

use std::ops::Range;

/// The largest event by default.
pub const MAX_EVENT: usize = 16 << 20;

/// One event. `id` and `retry` fields are read and dropped: a model's reply can't be resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SseEvent<'a> {
    /// The event's type; empty where none was given, which means `message`.
    pub name: &'a str,
    /// Its data, lines joined by a line feed.
    pub data: &'a str,
}

/// Why a stream of events can't be read on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SseError {
    /// An event that is larger than allowed.
    #[error("the stream holds an event of more than {limit} bytes")]
    TooLarge {
        /// The limit.
        limit: usize,
    },
    /// Bytes that are not UTF-8.
    #[error("the stream holds bytes that are not UTF-8 (first at byte {at} of an event's data)")]
    NotUtf8 {
        /// Where, from the start of the line's value.
        at: usize,
    },
}

/// Reads events from bytes that come in any chunking. Lines end with LF, CR or CRLF.
#[derive(Debug)]
pub struct SseDecoder {
    /// Bytes from the start of the event in progress on.
    buffer: Vec<u8>,
    /// Where the line in progress starts in `buffer`.
    line: usize,
    /// How far `buffer` was searched for the end of that line.
    searched: usize,
    /// Everything before this belongs to events that were given out.
    spent: usize,
    /// The line before ended with CR, so that a LF that comes now belongs to it.
    after_cr: bool,
    /// Nothing was read yet, so that a byte order mark may come.
    at_start: bool,
    event: Fields,
    /// The event given out last; its text is borrowed from here or from `buffer`.
    given: Fields,
    limit: usize,
}

/// An event's fields while its lines come in.
#[derive(Debug, Default)]
struct Fields {
    name: String,
    data: Data,
}

#[derive(Debug, Default)]
enum Data {
    #[default]
    None,
    /// One line: a range of the buffer.
    Line(Range<usize>),
    /// Several, joined.
    Lines(Vec<u8>),
}

impl Default for SseDecoder {
    fn default() -> Self {
        Self::new(MAX_EVENT)
    }
}

impl SseDecoder {
    /// A decoder that refuses events of more than `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            buffer: Vec::new(),
            line: 0,
            searched: 0,
            spent: 0,
            after_cr: false,
            at_start: true,
            event: Fields::default(),
            given: Fields::default(),
            limit,
        }
    }

    /// Takes more bytes. Events are then had from [`SseDecoder::next_event`] until there are none.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.spent > 0 {
            self.buffer.drain(..self.spent);
            self.line -= self.spent;
            self.searched -= self.spent;
            if let Data::Line(range) = &mut self.event.data {
                *range = range.start.saturating_sub(self.spent)..range.end.saturating_sub(self.spent);
            }
            self.spent = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole event, or `None` until more bytes come.
    pub fn next_event(&mut self) -> Result<Option<SseEvent<'_>>, SseError> {
        loop {
            if self.after_cr {
                match self.buffer.get(self.line) {
                    None => return self.wait(),
                    Some(b'\n') => self.skip_one(),
                    Some(_) => {}
                }
                self.after_cr = false;
            }
            let rest = self.buffer.get(self.searched..).unwrap_or_default();
            let Some(found) = memchr::memchr2(b'\n', b'\r', rest) else {
                self.searched = self.buffer.len();
                return self.wait();
            };
            let end = self.searched + found;
            self.after_cr = rest.get(found) == Some(&b'\r');
            let line = self.line..end;
            self.line = end + 1;
            self.searched = end + 1;
            if self.line - self.spent > self.limit {
                return Err(SseError::TooLarge { limit: self.limit });
            }
            if self.take_line(line) {
                return self.give();
            }
        }
    }

    /// The event that the stream's end left without its empty line, if it has data. Servers do end like that.
    pub fn finish(&mut self) -> Result<Option<SseEvent<'_>>, SseError> {
        let line = self.line..self.buffer.len();
        self.line = self.buffer.len();
        self.searched = self.line;
        self.after_cr = false;
        if !line.is_empty() {
            self.take_line(line);
        }
        if matches!(self.event.data, Data::None) { Ok(None) } else { self.give() }
    }

    fn wait(&self) -> Result<Option<SseEvent<'_>>, SseError> {
        if self.buffer.len() - self.spent > self.limit { Err(SseError::TooLarge { limit: self.limit }) } else { Ok(None) }
    }

    fn skip_one(&mut self) {
        self.line += 1;
        self.searched = self.line;
        if matches!(self.event.data, Data::None) && self.event.name.is_empty() {
            self.spent = self.line;
        }
    }

    /// Whether the line, which is at `range` of the buffer, ends an event that has data.
    fn take_line(&mut self, mut range: Range<usize>) -> bool {
        let mut line = self.buffer.get(range.clone()).unwrap_or_default();
        if std::mem::take(&mut self.at_start)
            && let Some(rest) = line.strip_prefix(b"\xef\xbb\xbf")
        {
            line = rest;
            range.start += 3;
        }
        if line.is_empty() {
            if matches!(self.event.data, Data::None) {
                // An event without data is none.
                self.event.name.clear();
                self.spent = self.line;
                return false;
            }
            return true;
        }
        let (field, mut value) = match memchr::memchr(b':', line) {
            Some(colon) => (range.start..range.start + colon, range.start + colon + 1..range.end),
            None => (range.clone(), range.end..range.end),
        };
        if self.buffer.get(value.start) == Some(&b' ') && !value.is_empty() {
            value.start += 1;
        }
        match self.buffer.get(field).unwrap_or_default() {
            b"data" => match &mut self.event.data {
                data @ Data::None => *data = Data::Line(value),
                Data::Line(first) => {
                    let mut joined = self.buffer.get(first.clone()).unwrap_or_default().to_vec();
                    joined.push(b'\n');
                    joined.extend_from_slice(self.buffer.get(value).unwrap_or_default());
                    self.event.data = Data::Lines(joined);
                }
                Data::Lines(joined) => {
                    joined.push(b'\n');
                    joined.extend_from_slice(self.buffer.get(value).unwrap_or_default());
                }
            },
            b"event" => {
                let name = String::from_utf8_lossy(self.buffer.get(value).unwrap_or_default());
                self.event.name.clear();
                self.event.name.push_str(&name);
            }
            // Comments (an empty field), `id`, `retry`, and whatever is new.
            _ => {
                if matches!(self.event.data, Data::None) && self.event.name.is_empty() {
                    // Comments before an event don't count towards its size.
                    self.spent = self.line;
                }
            }
        }
        false
    }

    fn give(&mut self) -> Result<Option<SseEvent<'_>>, SseError> {
        self.spent = self.line;
        self.given.data = std::mem::take(&mut self.event.data);
        // Swapped, so that neither name is allocated again.
        std::mem::swap(&mut self.given.name, &mut self.event.name);
        self.event.name.clear();
        let bytes = match &self.given.data {
            Data::None => &[],
            Data::Line(range) => self.buffer.get(range.clone()).unwrap_or_default(),
            Data::Lines(joined) => joined.as_slice(),
        };
        match std::str::from_utf8(bytes) {
            Ok(data) => Ok(Some(SseEvent { name: &self.given.name, data })),
            Err(error) => Err(SseError::NotUtf8 { at: error.valid_up_to() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn events(chunks: &[&[u8]]) -> Result<Vec<(String, String)>, SseError> {
        let mut decoder = SseDecoder::default();
        let mut out = Vec::new();
        for chunk in chunks {
            decoder.push(chunk);
            while let Some(event) = decoder.next_event()? {
                out.push((event.name.to_owned(), event.data.to_owned()));
            }
        }
        if let Some(event) = decoder.finish()? {
            out.push((event.name.to_owned(), event.data.to_owned()));
        }
        Ok(out)
    }

    fn data(text: &str) -> Vec<String> {
        events(&[text.as_bytes()]).unwrap().into_iter().map(|(_, data)| data).collect()
    }

    #[test]
    fn lines_end_in_three_ways() {
        for end in ["\n", "\r", "\r\n"] {
            let text = format!("data: a{end}data: b{end}{end}:comment{end}{end}event: x{end}data:c{end}{end}");
            let expected = vec![(String::new(), "a\nb".to_owned()), ("x".to_owned(), "c".to_owned())];
            assert_eq!(events(&[text.as_bytes()]).unwrap(), expected, "{end:?}");
            let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
            assert_eq!(events(&bytes).unwrap(), expected, "{end:?}");
        }
    }

    #[test]
    fn odd_lines() {
        assert_eq!(data("\u{feff}data: a\n\n"), ["a"]);
        assert_eq!(data("data\n\n"), [""]);
        assert_eq!(data("data:  two spaces\n\n"), [" two spaces"]);
        assert_eq!(data("data: \n\n"), [""]);
        assert_eq!(data("event: only\n\ndata: a\n\n"), ["a"]);
        assert_eq!(data(": keep-alive\n\n: keep-alive\n\ndata: a\n\n"), ["a"]);
        assert_eq!(data("id: 7\nretry: 10\nnew: x\ndata: a\n\n"), ["a"]);
        assert_eq!(data("data: a\n\ndata: unterminated"), ["a", "unterminated"]);
        assert_eq!(data("data: a\r\rdata: b\r"), ["a", "b"]);
        assert!(data("").is_empty());
        // A name does not outlive its event.
        assert_eq!(events(&[b"event: x\ndata: a\n\ndata: b\n\n"]).unwrap()[1].0, "");
    }

    // case: rust-reports A-10
    #[test]
    fn a_character_split_across_chunks_survives() {
        let text = "data: \u{1F600}é\n\n";
        for cut in 0..text.len() {
            let (head, tail) = text.as_bytes().split_at(cut);
            assert_eq!(events(&[head, tail]).unwrap()[0].1, "\u{1F600}é");
        }
    }

    #[test]
    fn bytes_that_are_not_utf8_are_named() {
        assert_eq!(events(&[b"data: ab\xff\n\n"]).unwrap_err(), SseError::NotUtf8 { at: 2 });
    }

    #[test]
    fn an_event_is_bounded_and_comments_are_not_part_of_it() {
        let mut decoder = SseDecoder::new(64);
        decoder.push(b"data: ");
        decoder.push(&[b'x'; 64]);
        assert_eq!(decoder.next_event().unwrap_err(), SseError::TooLarge { limit: 64 });

        let mut decoder = SseDecoder::new(64);
        for _ in 0..100 {
            decoder.push(b": comment\n\n");
            assert_eq!(decoder.next_event(), Ok(None));
        }
        decoder.push(b"data: a\n\n");
        assert_eq!(decoder.next_event().unwrap().unwrap().data, "a");

        let mut decoder = SseDecoder::new(64);
        decoder.push(&b"data: a\n".repeat(20));
        assert!(decoder.next_event().is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_chunking_give_the_same(bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in 0..200_usize) {
            let whole = events(&[&bytes]);
            let (head, tail) = bytes.split_at(cut.min(bytes.len()));
            prop_assert_eq!(&whole, &events(&[head, tail]));
        }

        #[test]
        fn event_like_bytes_in_any_chunking_give_the_same(text in "(data|event|:|id|\n|\r|\r\n| |é|\u{feff}|a){0,60}", size in 1..9_usize) {
            let whole = events(&[text.as_bytes()]);
            let chunks: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            prop_assert_eq!(&whole, &events(&chunks));
        }
    }
}
