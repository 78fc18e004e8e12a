//! The main content of a page: the article without menus, teasers and comments.

use html5ever::tokenizer::{Tag, TagKind};

use super::text::{Links, content, page_text};
use super::tokens::{See, Seen, each_token, without_excess};

/// Elements within elements. A page that nests deeper costs a tree builder its depth for each tag, and a walk of the tree its stack.
const DEPTH: usize = 128;
/// What a tree of the page may have, about: elements, and what unclosed `<b>` and the like add to each block that follows.
const NODES: usize = 60_000;
/// Pieces that its text comes in: a `<` or `&` that begins nothing is one.
const PIECES: usize = 300_000;

/// The text of a page's main content, as [`page_text`] writes it; `None` where nothing stands out, or where the markup nests or repeats so
/// that it can't be told in the time a page is worth.
///
/// `base` is the page's own address, which relative links are relative to.
pub fn main_text(html: &str, base: Option<&str>, links: Links) -> Option<String> {
    let html = without_excess(html);
    if !is_worth_a_tree(&html) {
        return None;
    }
    let base = base.filter(|base| url::Url::parse(base).is_ok());
    let article = dom_smoothie::Readability::new(&*html, base, None).ok()?.parse().ok()?;
    let text = page_text(&article.content, base, links);
    Some(text).filter(|text| !text.is_empty())
}

/// Whether a tree of this page is of a size that is known before it is built.
fn is_worth_a_tree(html: &str) -> bool {
    let size = each_token(html, Size::default());
    !size.over
}

/// About what a tree builder will make of the tags it gets.
#[derive(Debug, Default)]
struct Size {
    /// Open elements, innermost last.
    open: Vec<Box<str>>,
    deepest: usize,
    /// Formatting elements that were opened and not closed: they are opened anew in each block that follows.
    formatting: Vec<Box<str>>,
    nodes: usize,
    pieces: usize,
    /// Whether it is too much already: the rest is not looked at.
    over: bool,
}

impl See for Size {
    fn tag(&mut self, tag: &Tag) -> Seen {
        if self.over {
            return content(&tag.name);
        }
        let name = &*tag.name;
        match tag.kind {
            TagKind::StartTag => {
                self.nodes += 1 + self.formatting.len();
                if is_formatting(name) {
                    self.formatting.push(name.into());
                }
                if !is_void(name) && !tag.self_closing {
                    if ends_itself(name) {
                        self.close(name);
                    }
                    self.open.push(name.into());
                    self.deepest = self.deepest.max(self.open.len());
                }
                self.over |= self.nodes > NODES || self.deepest > DEPTH;
                content(name)
            }
            TagKind::EndTag => {
                if let Some(at) = self.formatting.iter().rposition(|open| **open == *name) {
                    self.formatting.remove(at);
                }
                self.close(name);
                Seen::Markup
            }
        }
    }

    fn text(&mut self, _text: &str) {
        self.pieces += 1;
        self.over |= self.pieces > PIECES;
    }
}

impl Size {
    /// An end tag closes what is open within its element. The stack is no higher than the depth that is looked at.
    fn close(&mut self, name: &str) {
        if let Some(at) = self.open.iter().rposition(|open| **open == *name) {
            self.open.truncate(at);
        }
    }
}

fn is_void(tag: &str) -> bool {
    matches!(
        tag,
        "area" | "base" | "br" | "col" | "embed" | "hr" | "img" | "input" | "link" | "meta" | "param" | "source" | "track" | "wbr"
    )
}

/// Elements that end where the next of their kind begins, as nobody writes their end tags.
fn ends_itself(tag: &str) -> bool {
    matches!(tag, "p" | "option" | "dd" | "dt" | "rt" | "rp")
}

fn is_formatting(tag: &str) -> bool {
    matches!(tag, "a" | "b" | "big" | "code" | "em" | "font" | "i" | "nobr" | "s" | "small" | "strike" | "strong" | "tt" | "u")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sloppy_pages_are_worth_a_tree() {
        let page = "<p>x".repeat(5000) + &"<table><tr><td>x</table>".repeat(1000) + &"<ul><li>x<li>y</ul>".repeat(1000);
        assert!(is_worth_a_tree(&page));
        assert!(is_worth_a_tree(&"<div><b>x</b></div>".repeat(20_000)));
    }

    // case: field-reports 127
    #[test]
    fn what_would_grow_without_end_is_not() {
        for page in [
            "<div>".repeat(100_000),
            "<b>".repeat(100_000),
            (0..3000).fold(String::new(), |page, n| page + &format!("<p><b c={n}>x</p>")),
            "<p>x</p>".repeat(100_000),
            "<table><tr><td>".repeat(10_000),
            "<".repeat(1_000_000),
        ] {
            assert!(!is_worth_a_tree(&page), "{}", page.get(..30).unwrap());
            assert_eq!(main_text(&page, None, Links::Shown), None);
        }
    }
}
