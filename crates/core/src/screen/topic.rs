//! Keywords, whatever their case.

use std::borrow::Cow;

use super::{Finding, after, before};

/// Topics by their keywords.
///
/// ```
/// use toolwright_core::screen::Topics;
///
/// let topics = Topics::new(["stock tips", "Horoscope"]);
/// let found = topics.find("Any Stock\nTips for a tipster?");
/// assert_eq!((found[0].kind.as_ref(), found[0].start, found[0].end), ("stock tips", 4, 14));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topics {
    /// Each as it was given, and folded.
    all: Vec<(String, String)>,
}

impl Topics {
    /// Topics by these keywords. White space of any kind and length is one blank; empty ones are left out.
    pub fn new<T: Into<String>>(keywords: impl IntoIterator<Item = T>) -> Self {
        let folded = |given: String| (Folded::of(&given).text.trim().to_owned(), given);
        let all = keywords.into_iter().map(|given| folded(given.into())).filter(|(folded, _)| !folded.is_empty());
        Self { all: all.map(|(folded, given)| (given, folded)).collect() }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Where they stand as whole words, in the order of the text. A finding's kind is the keyword as it was given.
    pub fn find(&self, text: &str) -> Vec<Finding> {
        let folded = Folded::of(text);
        let mut found = Vec::new();
        for (given, keyword) in &self.all {
            for (at, keyword) in folded.text.match_indices(keyword.as_str()) {
                let end = at + keyword.len();
                let alone = !joins(before(&folded.text, at), keyword.chars().next())
                    && !joins(keyword.chars().next_back(), after(&folded.text, end));
                if alone {
                    found.push(Finding { kind: Cow::Owned(given.clone()), start: folded.start_of(at), end: folded.end_of(end) });
                }
            }
        }
        found.sort_by_key(|finding| (finding.start, finding.end));
        found
    }
}

/// Whether two neighbours are of one word. Scripts without blanks between words have no such thing.
fn joins(left: Option<char>, right: Option<char>) -> bool {
    let of_a_word = |c: char| c.is_alphanumeric() && c < '\u{2E80}' && !('\u{E00}'..='\u{EFF}').contains(&c);
    left.is_some_and(of_a_word) && right.is_some_and(of_a_word)
}

/// Text in lower case, white space as single blanks, with the places that its characters come from.
struct Folded {
    text: String,
    /// Of each character that changed how far apart the two texts are: its place here, where it comes from, and where that ends.
    places: Vec<(usize, usize, usize)>,
}

impl Folded {
    fn of(source: &str) -> Self {
        let (mut text, mut places) = (String::with_capacity(source.len()), Vec::new());
        let mut blank = false;
        for (at, c) in source.char_indices() {
            if c.is_whitespace() {
                if !std::mem::replace(&mut blank, true) {
                    places.push((text.len(), at, at + c.len_utf8()));
                    text.push(' ');
                }
                continue;
            }
            blank = false;
            places.push((text.len(), at, at + c.len_utf8()));
            text.extend(c.to_lowercase());
        }
        Self { text, places }
    }

    /// Where in the source the character that holds the byte `at` begins.
    fn start_of(&self, at: usize) -> usize {
        let next = self.places.partition_point(|(here, ..)| *here <= at);
        next.checked_sub(1).and_then(|found| self.places.get(found)).map_or(0, |(_, start, _)| *start)
    }

    /// Where in the source the last character before the byte `end` ends.
    fn end_of(&self, end: usize) -> usize {
        let next = self.places.partition_point(|(here, ..)| *here < end);
        next.checked_sub(1).and_then(|found| self.places.get(found)).map_or(0, |(.., end)| *end)
    }
}
