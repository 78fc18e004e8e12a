//! Which encoding a page is in: byte order mark, then header, then what the page says of itself, then a guess.

use std::borrow::Cow;

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, UTF_8, WINDOWS_1252, X_USER_DEFINED};

/// How far into a page its own word on its encoding is looked for.
const PRESCAN: usize = 1024;

/// The text of a body. `content_type` is its header; `markup` says whether a page may name its encoding itself.
pub(crate) fn text_of<'b>(body: &'b [u8], content_type: &str, markup: Markup) -> Cow<'b, str> {
    if let Some((encoding, mark)) = Encoding::for_bom(body) {
        return encoding.decode_without_bom_handling(body.get(mark..).unwrap_or_default()).0;
    }
    let named = header_charset(content_type).or_else(|| match markup {
        Markup::Html => prescan(body.get(..PRESCAN).unwrap_or(body)),
        Markup::None => None,
    });
    named.unwrap_or_else(|| guess(body)).decode_without_bom_handling(body).0
}

/// Whether a body may name its encoding itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Markup {
    /// It may, in a `meta` element.
    Html,
    /// It may not.
    None,
}

fn guess(body: &[u8]) -> &'static Encoding {
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    detector.feed(body, true);
    detector.guess(None, Utf8Detection::Allow)
}

/// The encoding that a header names: the first parameter `charset`.
fn header_charset(content_type: &str) -> Option<&'static Encoding> {
    let value = content_type.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("charset").then_some(value)
    })?;
    Encoding::for_label(value.trim().trim_matches(['"', '\'']).as_bytes())
}

/// What a page says of itself in a `meta` element within its first bytes, by the algorithm of the HTML standard.
fn prescan(start: &[u8]) -> Option<&'static Encoding> {
    let mut at = 0;
    while let Some(found) = memchr::memchr(b'<', start.get(at..)?) {
        at += found;
        let rest = start.get(at..)?;
        if rest.starts_with(b"<!--") {
            // `<!-->` is a whole comment.
            at += 2 + memchr::memmem::find(rest.get(2..)?, b"-->")? + 3;
            continue;
        }
        let is_meta = rest.get(1..5).is_some_and(|name| name.eq_ignore_ascii_case(b"meta"))
            && rest.get(5).is_some_and(|next| is_space(*next) || *next == b'/');
        if is_meta {
            let (named, length) = meta(rest.get(5..)?);
            if named.is_some() {
                return named;
            }
            at += 5 + length;
            continue;
        }
        let is_tag = rest.get(1).is_some_and(u8::is_ascii_alphabetic)
            || (rest.get(1) == Some(&b'/') && rest.get(2).is_some_and(u8::is_ascii_alphabetic));
        if is_tag {
            // Past its attributes: one of them may hold what looks like a tag.
            let name = rest.iter().position(|byte| is_space(*byte) || *byte == b'>')?;
            at += name;
            while let Some((_, _, length)) = attribute(start.get(at..)?) {
                at += length;
            }
        }
        at += 1;
    }
    None
}

/// The encoding that a `meta` element names, and how long its attributes are.
fn meta(attributes: &[u8]) -> (Option<&'static Encoding>, usize) {
    let (mut at, mut pragma, mut needs_pragma, mut named) = (0, false, false, None);
    while let Some((name, value, length)) = attribute(attributes.get(at..).unwrap_or_default()) {
        at += length;
        match name.as_slice() {
            b"http-equiv" => pragma |= value.eq_ignore_ascii_case(b"content-type"),
            b"content" if named.is_none() => {
                named = charset_in(&value);
                needs_pragma = named.is_some();
            }
            b"charset" => {
                named = Encoding::for_label(&value);
                needs_pragma = false;
            }
            _ => {}
        }
    }
    let named = named.filter(|_| !needs_pragma || pragma).map(|encoding| {
        // A page whose first bytes can be read as ASCII is in no encoding of two bytes.
        if encoding.output_encoding() != encoding {
            UTF_8
        } else if encoding == X_USER_DEFINED {
            WINDOWS_1252
        } else {
            encoding
        }
    });
    (named, at)
}

/// The encoding in a text like `text/html; charset=gbk`, wherever in it the word stands.
fn charset_in(content: &[u8]) -> Option<&'static Encoding> {
    let lower = content.to_ascii_lowercase();
    let mut rest = lower.as_slice();
    loop {
        let found = memchr::memmem::find(rest, b"charset")?;
        rest = rest.get(found + 7..)?.trim_ascii_start();
        if let Some(value) = rest.strip_prefix(b"=") {
            let value = value.trim_ascii_start();
            let label = match value.first()? {
                quote @ (b'"' | b'\'') => value.get(1..)?.split(|byte| byte == quote).next()?,
                _ => value.split(|byte| is_space(*byte) || *byte == b';').next()?,
            };
            return Encoding::for_label(label);
        }
    }
}

/// The next attribute, in lower case, its value, and the length of both; `None` at the end of the tag.
fn attribute(bytes: &[u8]) -> Option<(Vec<u8>, Vec<u8>, usize)> {
    let skip = |from: usize, while_: fn(u8) -> bool| {
        bytes.get(from..).unwrap_or_default().iter().position(|byte| !while_(*byte)).map_or(bytes.len(), |found| from + found)
    };
    let begin = skip(0, |byte| is_space(byte) || byte == b'/');
    if bytes.get(begin).is_none_or(|byte| *byte == b'>') {
        return None;
    }
    let end = skip(begin + 1, |byte| !is_space(byte) && !matches!(byte, b'=' | b'/' | b'>'));
    let name = bytes.get(begin..end)?.to_ascii_lowercase();
    let after = skip(end, is_space);
    if bytes.get(after) != Some(&b'=') {
        return Some((name, Vec::new(), end));
    }
    let value = skip(after + 1, is_space);
    if let Some(quote @ (b'"' | b'\'')) = bytes.get(value) {
        let inside = bytes.get(value + 1..)?;
        let length = memchr::memchr(*quote, inside)?;
        Some((name, inside.get(..length)?.to_vec(), value + length + 2))
    } else {
        let end = skip(value, |byte| !is_space(byte) && byte != b'>');
        Some((name, bytes.get(value..end)?.to_vec(), end))
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b'\t' | b'\n' | b'\x0c' | b'\r' | b' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(head: &str, rest: &[u8]) -> Vec<u8> {
        [head.as_bytes(), rest].concat()
    }

    // case: field-reports 121
    // case: field-reports 122
    #[test]
    fn the_first_that_says_something_counts() {
        let sjis = b"\x93\xfa\x96\x7b";
        let gbk = b"\xd6\xd0\xce\xc4";
        for (body, header, text) in [
            (page("\u{feff}", "é".as_bytes()), "text/html; charset=shift_jis", "é"),
            (b"\xff\xfea\0b\0".to_vec(), "text/html", "ab"),
            (page("", sjis), "text/html; Charset=\"Shift_JIS\"", "日本"),
            (page("<meta charset=\"Shift_JIS\">", sjis), "text/html", "日本"),
            (page("<META charset=utf-8 x>", "日".as_bytes()), "text/html; charset=nonsense", "日"),
            (page("<meta http-equiv=\"Content-Type\" content=\"charset=gbk\">", gbk), "text/html", "中文"),
            (page("<meta content='text/html; x; charset = \"gb2312\"' http-equiv=content-type>", gbk), "text/html", "中文"),
            (page("<!-- <meta charset=utf-16> --><a title='<meta charset=big5>'><meta charset=gbk>", gbk), "", "中文"),
            (page("<meta charset=utf-16>", "é".as_bytes()), "", "é"),
        ] {
            let read = text_of(&body, header, Markup::Html);
            assert!(read.ends_with(text), "{header}: {read}");
        }
    }

    #[test]
    fn the_rest_is_guessed() {
        assert_eq!(text_of("naïve".as_bytes(), "text/html", Markup::Html), "naïve");
        assert_eq!(text_of(b"na\xefve caf\xe9 fa\xe7ade", "text/plain", Markup::None), "naïve café façade");
        let cyrillic = b"\xcf\xf0\xe8\xe2\xe5\xf2, \xec\xe8\xf0. \xdd\xf2\xee \xf0\xf3\xf1\xf1\xea\xe8\xe9 \xf2\xe5\xea\xf1\xf2.";
        assert_eq!(text_of(cyrillic, "text/html", Markup::Html), "Привет, мир. Это русский текст.");
        // What is no page names no encoding of its own.
        assert_eq!(
            text_of(b"<meta charset=shift_jis> caf\xe9 na\xefve", "text/plain", Markup::None),
            "<meta charset=shift_jis> café naïve"
        );
    }

    #[test]
    fn no_start_of_a_page_is_too_odd() {
        for odd in [
            "<",
            "<meta",
            "<meta ",
            "<meta charset",
            "<meta charset=",
            "<meta charset='",
            "<!--",
            "<!-->",
            "<a ",
            "</",
            "<meta /",
            "<a b='",
        ] {
            assert_eq!(prescan(odd.as_bytes()), None, "{odd}");
        }
        assert_eq!(prescan(b"<!--><meta charset=gbk>").map(Encoding::name), Some("GBK"));
        assert_eq!(prescan(b"<meta content='charset=gbk'>"), None);
    }
}
