//! The tokens of some markup, one after the other.

use std::borrow::Cow;
use std::cell::RefCell;

use html5ever::TokenizerResult;
use html5ever::tendril::StrTendril;
use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{BufferQueue, Tag, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts};

/// How what follows a tag is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// As markup.
    Markup,
    /// As text, up to the tag that ends the element.
    Raw(RawKind),
    /// As text, to the end of the page.
    Plain,
}

/// Looks at tags and text.
pub(super) trait See {
    /// A tag. What a start tag gives says how its content is read.
    fn tag(&mut self, tag: &Tag) -> Seen;

    /// Text, with entities resolved. Text between two tags may come in several pieces.
    fn text(&mut self, text: &str);
}

/// Shows every token to `see`, and gives it back.
pub(super) fn each_token<S: See>(html: &str, see: S) -> S {
    let html = without_excess(html);
    let input = BufferQueue::default();
    input.push_back(StrTendril::from_slice(&html));
    let tokens = Tokenizer::new(Sink(RefCell::new(see)), TokenizerOpts::default());
    // It pauses at places that matter to browsers only.
    while !matches!(tokens.feed(&input), TokenizerResult::Done) {}
    tokens.end();
    tokens.sink.0.into_inner()
}

/// The value of an attribute; names are in lower case.
pub(super) fn attribute<'t>(tag: &'t Tag, name: &str) -> Option<&'t str> {
    tag.attrs.iter().find(|attribute| &*attribute.name.local == name).map(|attribute| &*attribute.value)
}

struct Sink<S>(RefCell<S>);

impl<S: See> TokenSink for Sink<S> {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        match token {
            Token::TagToken(tag) => match self.0.borrow_mut().tag(&tag) {
                Seen::Markup => TokenSinkResult::Continue,
                Seen::Raw(kind) => TokenSinkResult::RawData(kind),
                Seen::Plain => TokenSinkResult::Plaintext,
            },
            Token::CharacterTokens(text) => {
                self.0.borrow_mut().text(&text);
                TokenSinkResult::Continue
            }
            _ => TokenSinkResult::Continue,
        }
    }
}

/// How many attributes a tag may have. Each is compared with all before it, so a tag of a page's length would take minutes.
const ATTRIBUTES: usize = 256;

/// The markup without attributes beyond [`ATTRIBUTES`]. Any parser gets its markup from here.
pub(super) fn without_excess(html: &str) -> Cow<'_, str> {
    let bytes = html.as_bytes();
    let mut kept = String::new();
    let (mut from, mut at) = (0, 0);
    while let Some(found) = memchr::memchr(b'<', bytes.get(at..).unwrap_or_default()) {
        at += found + 1;
        let rest = bytes.get(at..).unwrap_or_default();
        if rest.starts_with(b"!--") {
            at += memchr::memmem::find(rest, b"-->").unwrap_or(rest.len());
        } else if rest.first().is_some_and(u8::is_ascii_alphabetic) {
            let (end, excess) = tag_end(rest);
            if let Some(excess) = excess {
                kept.push_str(html.get(from..at + excess).unwrap_or_default());
                from = at + end;
            }
            // What is in scripts and styles is no tag.
            let raw = [&b"script"[..], b"style"].into_iter().find(|name| {
                rest.get(..name.len()).is_some_and(|begins| begins.eq_ignore_ascii_case(name))
                    && rest.get(name.len()).is_some_and(|next| matches!(next, b' ' | b'\t' | b'\n' | b'\r' | b'\x0c' | b'/' | b'>'))
            });
            at += end;
            if let Some(name) = raw {
                at += raw_end(bytes.get(at..).unwrap_or_default(), name);
            }
        }
    }
    if from == 0 {
        return Cow::Borrowed(html);
    }
    kept.push_str(html.get(from..).unwrap_or_default());
    Cow::Owned(kept)
}

/// Where the end tag of a raw element begins.
fn raw_end(bytes: &[u8], name: &[u8]) -> usize {
    let ends = |at: &usize| bytes.get(at + 2..at + 2 + name.len()).is_some_and(|tag| tag.eq_ignore_ascii_case(name));
    memchr::memmem::find_iter(bytes, b"</").find(ends).unwrap_or(bytes.len())
}

/// Where a tag ends, before its `>`, and where its excess attributes begin. `tag` begins with its name.
fn tag_end(tag: &[u8]) -> (usize, Option<usize>) {
    let (mut count, mut at, mut excess) = (0, 0, None);
    let space = |byte: u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b'\x0c' | b'/');
    let mut before = b'x';
    while let Some(&byte) = tag.get(at) {
        match byte {
            b'>' => break,
            b'"' | b'\'' if before == b'=' => {
                // A value in quotes.
                let rest = tag.get(at + 1..).unwrap_or_default();
                at += 1 + memchr::memchr(byte, rest).unwrap_or(rest.len());
                before = b' ';
            }
            byte if space(byte) => {
                // A value may stand apart from its `=`.
                before = if before == b'=' { b'=' } else { b' ' };
            }
            b'=' => before = b'=',
            _ => {
                if before == b' ' {
                    count += 1;
                    if count > ATTRIBUTES && excess.is_none() {
                        excess = Some(at);
                    }
                }
                before = b'x';
            }
        }
        at += 1;
    }
    (at.min(tag.len()), excess)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_markup_stays_as_it_is() {
        let page = "<!-- <a b c> --><p class='x y' title=\"a > b\">text < more<br/><script>if (a <b && c) '</p>'</script>";
        assert!(matches!(without_excess(page), Cow::Borrowed(_)));
    }

    #[test]
    fn attributes_beyond_the_bound_are_dropped() {
        let many = (0..1000).fold(String::new(), |many, n| many + &format!(" a{n}='{n}>'"));
        let cut = without_excess(&format!("x<p{many}>y</p><i{many}>z")).into_owned();
        assert!(cut.starts_with("x<p a0='0>' ") && cut.contains(" a255='255>' >y</p><i a0='0>'") && cut.ends_with(">z"), "{cut}");
        assert!(!cut.contains("a256"));
        let words = "word ".repeat(1000);
        let script = format!("<script>x <b {words}</script><p>text");
        assert!(matches!(without_excess(&script), Cow::Borrowed(_)));
        let unclosed = without_excess(&format!("<p {words}")).into_owned();
        assert_eq!(unclosed.len(), 3 + 5 * ATTRIBUTES);
    }
}
