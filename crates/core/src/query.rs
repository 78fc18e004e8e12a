//! The query language of full-text search: the subset of FTS5 that we have, evaluated here, so that every store gives the same
//! hits (standard-agents FIL-8).
//!
//! | written | matches a text that holds |
//! |---|---|
//! | `budget` | the word |
//! | `"annual budget"` or `annual + budget` | the words, one directly after the other |
//! | `budg*`, `"annual bud" *` | a word that begins so |
//! | `^budget` | the word as the first of the text |
//! | `NEAR(budget "next year", 5)` | all of them, with at most 5 words between each and the last; 10 where no number stands |
//! | `annual budget`, `annual AND budget` | both |
//! | `annual OR yearly` | at least one |
//! | `budget NOT draft` | the first and not the second |
//!
//! `NOT` binds tighter than `AND`, and `AND` tighter than `OR`; words that only stand side by side bind tightest; parentheses
//! group. The operators are written in capitals. Words outside quotes hold letters, digits, `_` and whatever is not ASCII;
//! everything else goes into double quotes, a double quote itself as `""`.
//!
//! **Words.** A word is a run of letters, numbers and private-use characters, with the marks that belong to them; all else
//! separates. Case does not count, and neither do the diacritics of Latin letters (`Café` is `cafe`); those of other scripts do.
//! Whether a letter and its mark are one character or two does not count. Scripts without spaces are not cut into words: a run
//! of them is one word, and `東京*` finds `東京都`.
//!
//! **Against FTS5** (its tokenizer `unicode61` with `remove_diacritics 2`): the same, but that an implied `AND` may stand beside
//! parentheses too; a phrase without any word is refused, where FTS5 finds nothing or passes over it; a vowel sign does not cut
//! a word in two; and column filters (`title: x`) are refused, since a text has no columns.

use std::collections::HashMap;

use unicode_general_category::{GeneralCategory, get_general_category};
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::decompose_canonical;

mod parse;

/// The most lines that one text's hits have, where nothing else is asked for.
pub const MAX_HITS: usize = 100;
/// The most characters of a line that a hit shows.
pub const MAX_LINE: usize = 240;

/// A query that was read.
#[derive(Clone, Debug)]
pub struct Query {
    /// The distinct words, whole ones first looked up by their text.
    words: Vec<Word>,
    /// The distinct phrases.
    phrases: Vec<Phrase>,
    root: Node,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Word {
    /// As [`fold`] leaves it.
    text: String,
    prefix: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Phrase {
    /// Indices of words.
    words: Vec<usize>,
    /// Only as the first words of the text.
    first: bool,
}

#[derive(Clone, Debug)]
enum Node {
    /// Index of a phrase.
    Phrase(usize),
    Near {
        phrases: Vec<usize>,
        within: usize,
    },
    All(Vec<Node>),
    Any(Vec<Node>),
    /// The first, and none of the others.
    Without(Box<Node>, Vec<Node>),
}

/// A line on which a query hits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// From 1.
    pub line: usize,
    /// The line, without its end; of a long one the part around the hit.
    pub text: String,
}

/// What is wrong with a query, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the query is not valid at character {at}: {problem}")]
pub struct QueryError {
    /// The character, from 1; one more than there are if something is missing at the end.
    pub at: usize,
    /// What is wrong, and what to do.
    pub problem: String,
}

impl Query {
    /// The longest query, in bytes.
    pub const MAX: usize = 4096;
    /// The most words in a query.
    pub const MAX_WORDS: usize = 128;
    /// The deepest nesting of parentheses.
    pub const MAX_DEPTH: usize = 32;

    /// Reads a query.
    pub fn parse(text: &str) -> Result<Self, QueryError> {
        parse::parse(text)
    }

    /// Whether the text matches.
    pub fn is_match(&self, text: &str) -> bool {
        self.hits(&self.read(text)).is_some()
    }

    /// The lines on which the query hits, in order, at most [`MAX_HITS`]; none if the text as a whole does not match.
    pub fn matches(&self, text: &str) -> Vec<Hit> {
        self.matches_up_to(text, MAX_HITS)
    }

    /// As [`Query::matches`], with at most `lines` of them. A phrase that goes over a line's end counts for the line it begins on.
    pub fn matches_up_to(&self, text: &str, lines: usize) -> Vec<Hit> {
        let read = self.read(text);
        let Some(mut hits) = self.hits(&read) else { return Vec::new() };
        hits.sort_unstable();
        let mut found: Vec<Hit> = Vec::new();
        let (mut line, mut line_start, mut searched) = (1, 0, 0);
        for token in hits {
            let Some(&at) = read.starts.get(token) else { continue };
            let before = text.as_bytes().get(searched..at).unwrap_or_default();
            for (offset, _) in before.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
                line += 1;
                line_start = searched + offset + 1;
            }
            searched = at;
            if found.last().is_some_and(|hit| hit.line == line) {
                continue;
            }
            if found.len() == lines {
                break;
            }
            let rest = text.get(line_start..).unwrap_or_default();
            let whole = rest.split('\n').next().unwrap_or_default();
            let whole = whole.strip_suffix('\r').unwrap_or(whole);
            found.push(Hit { line, text: shown(whole, at - line_start) });
        }
        found
    }

    /// Goes through the text once: where its words begin, and which of them are words of the query.
    fn read(&self, text: &str) -> Read {
        let mut read = Read { starts: Vec::new(), positions: vec![Vec::new(); self.words.len()] };
        let whole: HashMap<&str, usize> =
            self.words.iter().enumerate().filter(|(_, word)| !word.prefix).map(|(index, word)| (word.text.as_str(), index)).collect();
        let prefixes: Vec<(usize, &str)> =
            self.words.iter().enumerate().filter(|(_, word)| word.prefix).map(|(index, word)| (index, word.text.as_str())).collect();
        let mut folded = String::new();
        for (start, word) in words(text) {
            fold(word, &mut folded);
            let token = read.starts.len();
            read.starts.push(start);
            let mut at = |index: usize| {
                if let Some(positions) = read.positions.get_mut(index) {
                    positions.push(token);
                }
            };
            if let Some(index) = whole.get(folded.as_str()) {
                at(*index);
            }
            for (index, prefix) in &prefixes {
                if folded.starts_with(prefix) {
                    at(*index);
                }
            }
        }
        read
    }

    /// The words on which the phrases that make the text match begin; `None` if it does not match.
    fn hits(&self, read: &Read) -> Option<Vec<usize>> {
        let places: Vec<Vec<usize>> = self.phrases.iter().map(|phrase| read.places(phrase)).collect();
        let mut hits = Vec::new();
        self.root.eval(&self.phrases, &places, &mut hits).then_some(hits)
    }
}

/// A text as a query sees it.
struct Read {
    /// Where each word begins, in bytes.
    starts: Vec<usize>,
    /// For each word of the query, which words of the text it is.
    positions: Vec<Vec<usize>>,
}

impl Read {
    /// The words on which a phrase begins, ascending.
    fn places(&self, phrase: &Phrase) -> Vec<usize> {
        let lists: Vec<&[usize]> = phrase.words.iter().map(|word| self.positions.get(*word).map_or(&[][..], Vec::as_slice)).collect();
        let Some((first, others)) = lists.split_first() else { return Vec::new() };
        // Each list is gone through once: the wanted positions ascend.
        let mut ahead: Vec<&[usize]> = others.to_vec();
        let starts = first.iter().copied().take_while(|start| !phrase.first || *start == 0);
        starts
            .filter(|start| {
                ahead.iter_mut().enumerate().all(|(offset, list)| {
                    let wanted = start + offset + 1;
                    while list.first().is_some_and(|position| *position < wanted) {
                        *list = list.get(1..).unwrap_or_default();
                    }
                    list.first() == Some(&wanted)
                })
            })
            .collect()
    }
}

impl Node {
    /// Whether it matches; then its hits are added.
    fn eval(&self, phrases: &[Phrase], places: &[Vec<usize>], hits: &mut Vec<usize>) -> bool {
        let before = hits.len();
        let matched = match self {
            Self::Phrase(phrase) => {
                let found = places.get(*phrase).map_or(&[][..], Vec::as_slice);
                hits.extend(found);
                !found.is_empty()
            }
            Self::Near { phrases: near, within } => {
                let near = near.iter().filter_map(|phrase| {
                    let (places, length) = (places.get(*phrase)?.as_slice(), phrases.get(*phrase)?.words.len());
                    Some(NearPhrase { places, length, hit: None })
                });
                clumps(near.collect(), *within, hits);
                hits.len() > before
            }
            Self::All(nodes) => nodes.iter().all(|node| node.eval(phrases, places, hits)),
            Self::Any(nodes) => {
                // Every alternative that matches has its hits shown.
                let matching = nodes.iter().filter(|node| node.eval(phrases, places, hits)).count();
                matching > 0
            }
            Self::Without(node, others) => {
                node.eval(phrases, places, hits) && !others.iter().any(|other| other.eval(phrases, places, &mut Vec::new()))
            }
        };
        if !matched {
            hits.truncate(before);
        }
        matched
    }
}

/// One of the phrases that have to stand together.
struct NearPhrase<'a> {
    /// Its places from where the search is.
    places: &'a [usize],
    length: usize,
    /// The last place that is a hit.
    hit: Option<usize>,
}

/// Adds the places of phrases that stand together: between the end of each and the beginning of the last, at most `within` words.
/// Each place of each phrase is gone past once.
fn clumps(mut near: Vec<NearPhrase<'_>>, within: usize, hits: &mut Vec<usize>) {
    let mut last = 0;
    for phrase in &near {
        let Some(first) = phrase.places.first() else { return };
        last = last.max(*first);
    }
    loop {
        let mut together = true;
        for phrase in &mut near {
            let from = last.saturating_sub(phrase.length.saturating_add(within));
            while phrase.places.first().is_some_and(|place| *place < from) {
                phrase.places = phrase.places.get(1..).unwrap_or_default();
                together = false;
            }
            let Some(place) = phrase.places.first() else { return };
            if *place > last {
                last = *place;
                together = false;
            }
        }
        if !together {
            continue;
        }
        for phrase in &mut near {
            let place = phrase.places.first().copied();
            if phrase.hit != place {
                phrase.hit = place;
                hits.extend(place);
            }
        }
        // The phrase whose next place comes first goes on.
        let next = near.iter_mut().filter(|phrase| phrase.places.len() > 1).min_by_key(|phrase| phrase.places.get(1).copied());
        let Some(phrase) = next else { return };
        phrase.places = phrase.places.get(1..).unwrap_or_default();
        last = last.max(phrase.places.first().copied().unwrap_or_default());
    }
}

/// The part of a line around the byte `at`.
fn shown(line: &str, at: usize) -> String {
    const BEFORE: usize = 60;
    if line.chars().count() <= MAX_LINE {
        return line.to_owned();
    }
    let (before, after) = line.split_at_checked(at).unwrap_or((line, ""));
    let skipped = before.chars().count().saturating_sub(BEFORE);
    let start = if skipped > 1 { "…" } else { "" };
    let from = if skipped > 1 { skipped } else { 0 };
    let mut text: String = start.to_owned();
    let mut rest = before.chars().skip(from).chain(after.chars());
    text.extend(rest.by_ref().take(MAX_LINE - 2));
    if rest.next().is_some() {
        text.push('…');
    }
    text
}

/// The words of a text, with the byte each begins at.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut characters = text.char_indices().peekable();
    std::iter::from_fn(move || {
        let (start, _) = characters.by_ref().find(|(_, character)| begins_word(*character))?;
        let mut end = text.len();
        while let Some((at, character)) = characters.peek().copied() {
            if !(begins_word(character) || is_mark(character)) {
                end = at;
                break;
            }
            characters.next();
        }
        Some((start, text.get(start..end)?))
    })
}

/// Letters, numbers and private-use characters.
fn begins_word(character: char) -> bool {
    use GeneralCategory as Is;
    if character.is_ascii() {
        return character.is_ascii_alphanumeric();
    }
    matches!(
        get_general_category(character),
        Is::UppercaseLetter
            | Is::LowercaseLetter
            | Is::TitlecaseLetter
            | Is::ModifierLetter
            | Is::OtherLetter
            | Is::DecimalNumber
            | Is::LetterNumber
            | Is::OtherNumber
            | Is::PrivateUse
    )
}

fn is_mark(character: char) -> bool {
    use GeneralCategory as Is;
    !character.is_ascii() && matches!(get_general_category(character), Is::NonspacingMark | Is::SpacingMark | Is::EnclosingMark)
}

/// Writes a word in the one form that is compared: small letters, composed, Latin ones without their diacritics.
fn fold(word: &str, into: &mut String) {
    into.clear();
    if word.is_ascii() {
        into.extend(word.chars().map(|character| character.to_ascii_lowercase()));
        return;
    }
    let mut latin = false;
    for character in word.nfc() {
        if is_mark(character) {
            // A mark that does not compose stands by itself; on a Latin letter it does not count.
            if !latin {
                into.push(character);
            }
            continue;
        }
        latin = matches!(character, '\0'..='\u{24f}' | '\u{1e00}'..='\u{1eff}');
        if !latin {
            into.push(small(character));
            continue;
        }
        let mut base = None;
        decompose_canonical(character, |part| {
            base.get_or_insert(part);
        });
        into.push(small(base.unwrap_or(character)));
    }
}

/// The small letter, where that is one character. By way of the capital, so that both small sigmas are one letter.
fn small(character: char) -> char {
    fn one(mut characters: impl Iterator<Item = char>) -> Option<char> {
        characters.next().filter(|_| characters.next().is_none())
    }
    // The dotless i is a letter of its own, though its capital is that of the other.
    if character == 'ı' {
        return character;
    }
    let capital = one(character.to_uppercase()).unwrap_or(character);
    one(capital.to_lowercase()).unwrap_or(character)
}
