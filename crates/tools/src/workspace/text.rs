//! The text of a file, and back to its bytes: byte order mark, encoding and line endings stay what they were.

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{EncoderResult, Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};

/// A file's text, without its byte order mark.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Text {
    pub(super) text: String,
    pub(super) form: Form,
}

/// How a text is written as bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Form {
    pub(super) encoding: &'static Encoding,
    pub(super) mark: bool,
}

impl Default for Form {
    /// UTF-8 without a mark: what a new file gets.
    fn default() -> Self {
        Self { encoding: UTF_8, mark: false }
    }
}

/// A character that an encoding has no bytes for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unwritable(pub(super) char);

impl Text {
    /// Reads bytes as text; `None` if they are none. What has a byte of zero is no text, except in UTF-16 with its mark.
    ///
    /// Whatever is read here is written as the same bytes: where a guess would lose some, another reading takes its place.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        if let Some((encoding, length)) = Encoding::for_bom(bytes)
            && let Some(text) = encoding.decode_without_bom_handling_and_without_replacement(bytes.get(length..).unwrap_or_default())
        {
            let read = Self { text: text.into_owned(), form: Form { encoding, mark: true } };
            return Some(read).filter(|read| encoding != UTF_8 || !read.text.contains('\0'));
        }
        if bytes.contains(&0) {
            return None;
        }
        if let Ok(text) = std::str::from_utf8(bytes) {
            return Some(Self { text: text.to_owned(), form: Form::default() });
        }
        let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
        detector.feed(bytes, true);
        let guess = detector.guess(None, Utf8Detection::Deny);
        // Windows-1252 has a character for every byte, so it reads anything without loss.
        [guess, WINDOWS_1252].into_iter().find_map(|encoding| {
            let text = encoding.decode_without_bom_handling_and_without_replacement(bytes)?.into_owned();
            let form = Form { encoding, mark: false };
            form.bytes(&text).is_ok_and(|written| written == bytes).then_some(Self { text, form })
        })
    }

    /// Which line endings it has.
    pub(super) fn endings(&self) -> Endings {
        Endings::of(&self.text)
    }
}

impl Form {
    /// The bytes of a text in this form.
    pub(super) fn bytes(self, text: &str) -> Result<Vec<u8>, Unwritable> {
        let mut bytes = Vec::with_capacity(text.len() + 3);
        let sixteen: Option<fn(u16) -> [u8; 2]> = match self.encoding {
            encoding if encoding == UTF_16LE => Some(u16::to_le_bytes),
            encoding if encoding == UTF_16BE => Some(u16::to_be_bytes),
            _ => None,
        };
        if let Some(sixteen) = sixteen {
            let mark = self.mark.then_some(0xfeff);
            bytes.extend(mark.into_iter().chain(text.encode_utf16()).flat_map(sixteen));
            return Ok(bytes);
        }
        if self.encoding == UTF_8 {
            if self.mark {
                bytes.extend_from_slice(b"\xef\xbb\xbf");
            }
            bytes.extend_from_slice(text.as_bytes());
            return Ok(bytes);
        }
        let mut encoder = self.encoding.new_encoder();
        let mut rest = text;
        loop {
            let needed = encoder.max_buffer_length_from_utf8_without_replacement(rest.len()).unwrap_or(rest.len());
            bytes.reserve(needed);
            let (result, read) = encoder.encode_from_utf8_to_vec_without_replacement(rest, &mut bytes, true);
            match result {
                EncoderResult::InputEmpty => return Ok(bytes),
                EncoderResult::OutputFull => rest = rest.get(read..).unwrap_or_default(),
                EncoderResult::Unmappable(character) => return Err(Unwritable(character)),
            }
        }
    }
}

/// The line endings of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endings {
    /// It has one line.
    None,
    /// `\n`.
    Lf,
    /// `\r\n`.
    CrLf,
    /// Both.
    Mixed,
}

impl Endings {
    pub(super) fn of(text: &str) -> Self {
        let all = text.matches('\n').count();
        match text.matches("\r\n").count() {
            _ if all == 0 => Self::None,
            0 => Self::Lf,
            crlf if crlf == all => Self::CrLf,
            _ => Self::Mixed,
        }
    }

    /// In words.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lf => "LF",
            Self::CrLf => "CRLF",
            Self::Mixed => "mixed",
        }
    }
}

/// A text with `\n` for every line ending.
pub(super) fn with_lf(text: &str) -> String {
    text.replace("\r\n", "\n")
}

/// A text with `\r\n` for every line ending.
pub(super) fn with_crlf(text: &str) -> String {
    with_lf(text).replace('\n', "\r\n")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(bytes: &[u8]) -> Text {
        Text::read(bytes).unwrap()
    }

    #[test]
    fn text_is_read_in_its_encoding() {
        let (mark, plain) = (Form { encoding: UTF_8, mark: true }, Form::default());
        assert_eq!(read(b"\xef\xbb\xbfimport os\n"), Text { text: "import os\n".into(), form: mark });
        assert_eq!(read("häuser".as_bytes()), Text { text: "häuser".into(), form: plain });
        assert_eq!(read(b"").text, "");
        assert_eq!(read(b"\xff\xfeh\0\xe4\0"), Text { text: "hä".into(), form: Form { encoding: UTF_16LE, mark: true } });
        assert_eq!(read(b"\xfe\xff\0h\0\xe4"), Text { text: "hä".into(), form: Form { encoding: UTF_16BE, mark: true } });
        assert_eq!(read(b"Gr\xfc\xdfe aus M\xfcnchen, sch\xf6ne Stra\xdfe\n").text, "Grüße aus München, schöne Straße\n");
        let (japanese, ..) = encoding_rs::SHIFT_JIS.encode("これは日本語のテキストです。漢字とかなを含みます。\n");
        assert_eq!(read(&japanese).text, "これは日本語のテキストです。漢字とかなを含みます。\n");
    }

    #[test]
    fn what_has_a_zero_is_no_text() {
        for bytes in [&b"\0"[..], b"\x7fELF\x02\x01\x01\0\0", b"abc\0def", b"\xef\xbb\xbfa\0b", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"] {
            assert_eq!(Text::read(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn what_an_encoding_lacks_is_told() {
        let form = read(b"caf\xe9 cr\xe8me br\xfbl\xe9e\n").form;
        assert_ne!(form.encoding, UTF_8);
        assert_eq!(form.bytes("日本"), Err(Unwritable('日')));
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_as_the_same_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(text) = Text::read(&bytes) {
                prop_assert_eq!(text.form.bytes(&text.text), Ok(bytes));
            }
        }

        #[test]
        fn text_in_utf_16_is_written_as_the_same_bytes(units in proptest::collection::vec(any::<u16>(), 0..100), little in any::<bool>()) {
            let bytes: Vec<u8> = std::iter::once(0xfeff).chain(units).flat_map(if little { u16::to_le_bytes } else { u16::to_be_bytes }).collect();
            if let Some(text) = Text::read(&bytes) {
                prop_assert_eq!(text.form.bytes(&text.text), Ok(bytes));
            }
        }
    }
}
