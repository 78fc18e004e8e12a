//! Text to tokens.
//!
//! The tokenizer of `needle-infer` finds each merge by a scan over the whole text, which takes seconds on a long tool list;
//! here a heap holds the possible merges. The result is the same, and a test holds the two side by side.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use needle_infer::sp_tokenizer::{META_SPACE, SpTokenizer, TK_BYTE, TK_NORMAL, TK_USER_DEFINED};

/// A marker that no text of a person, a tool or a document may contain, because the model takes it for the frame of a turn.
const MARKERS: [&str; 10] = [
    "<|im_start|>",
    "<|im_end|>",
    "<think>",
    "</think>",
    "<tools>",
    "</tools>",
    "<tool_call>",
    "</tool_call>",
    "<tool_result>",
    "</tool_result>",
];

/// Two neighbouring symbols that are one piece of the vocabulary.
struct Merge {
    score: f32,
    left: usize,
    right: usize,
    end: usize,
}

impl Ord for Merge {
    fn cmp(&self, other: &Self) -> Ordering {
        // The best score first and, among equals, the leftmost.
        self.score.total_cmp(&other.score).then(other.left.cmp(&self.left))
    }
}

impl PartialOrd for Merge {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Merge {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Merge {}

struct Symbol {
    end: usize,
    previous: Option<usize>,
    next: Option<usize>,
}

/// The tokens of plain text, which contains no markers (see [`plain`]).
pub(crate) fn encode(tokenizer: &SpTokenizer, text: &str) -> Vec<u32> {
    let text = text.replace(' ', META_SPACE);
    // A symbol is known by where it begins; slots between beginnings stay unused.
    let mut symbols: Vec<Option<Symbol>> = Vec::with_capacity(text.len());
    symbols.resize_with(text.len(), || None);
    let mut previous = None;
    for (start, character) in text.char_indices() {
        let end = start + character.len_utf8();
        let next = (end < text.len()).then_some(end);
        if let Some(slot) = symbols.get_mut(start) {
            *slot = Some(Symbol { end, previous, next });
        }
        previous = Some(start);
    }

    let merge = |symbols: &[Option<Symbol>], left: usize| -> Option<Merge> {
        let right = symbols.get(left)?.as_ref()?.next?;
        let end = symbols.get(right)?.as_ref()?.end;
        let id = tokenizer.id_of(text.get(left..end)?)?;
        Some(Merge { score: tokenizer.score(id)?, left, right, end })
    };
    let mut merges: BinaryHeap<Merge> = text.char_indices().filter_map(|(start, _)| merge(&symbols, start)).collect();
    while let Some(Merge { left, right, end, .. }) = merges.pop() {
        // A merge is stale when one of its symbols has since become part of another.
        let current = |at: usize| symbols.get(at).and_then(Option::as_ref);
        let is_current = current(left).is_some_and(|l| l.end == right) && current(right).is_some_and(|r| r.end == end);
        if !is_current {
            continue;
        }
        let after = symbols.get_mut(right).and_then(Option::take).and_then(|right| right.next);
        let mut before = None;
        if let Some(Some(symbol)) = symbols.get_mut(left) {
            symbol.end = end;
            symbol.next = after;
            before = symbol.previous;
        }
        if let Some(Some(symbol)) = after.and_then(|at| symbols.get_mut(at)) {
            symbol.previous = Some(left);
        }
        merges.extend(merge(&symbols, left));
        merges.extend(before.and_then(|before| merge(&symbols, before)));
    }

    let mut ids = Vec::new();
    for (start, symbol) in symbols.iter().enumerate() {
        let Some(piece) = symbol.as_ref().and_then(|symbol| text.get(start..symbol.end)) else { continue };
        match tokenizer.id_of(piece) {
            Some(id) => ids.push(id),
            None => ids.extend(piece.bytes().map(|byte| byte_token(tokenizer, byte))),
        }
    }
    ids
}

fn byte_token(tokenizer: &SpTokenizer, byte: u8) -> u32 {
    tokenizer.id_of(&format!("<0x{byte:02X}>")).unwrap_or(tokenizer.unk_id)
}

/// The bytes each token stands for; `None` for markers and control tokens, which stand for no text.
pub(crate) fn bytes_of_tokens(tokenizer: &SpTokenizer) -> Vec<Option<Vec<u8>>> {
    let text = |id: u32| matches!(tokenizer.piece_type(id), Some(TK_NORMAL | TK_BYTE));
    let bytes = tokenizer.token_bytes();
    bytes.into_iter().zip(0..).map(|(bytes, id)| (text(id) && !bytes.is_empty()).then_some(bytes)).collect()
}

/// `text` with every marker broken up, so that it can't pass for the frame of a turn.
pub(crate) fn plain(text: &str) -> String {
    let mut text = text.to_owned();
    for marker in MARKERS {
        if text.contains(marker) {
            let inner = marker.trim_start_matches('<');
            text = text.replace(marker, &format!("< {inner}"));
        }
    }
    text
}

/// True when the vocabulary knows every marker as a token of its own.
pub(crate) fn has_markers(tokenizer: &SpTokenizer) -> bool {
    let user_defined = |id| tokenizer.piece_type(id) == Some(TK_USER_DEFINED);
    MARKERS.iter().all(|marker| tokenizer.id_of(marker).is_some_and(user_defined))
}
