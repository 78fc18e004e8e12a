//! Which marked texts a text repeats.
//!
//! Texts are compared as words: case, white space, punctuation and escapes don't count, and what looks like base64 or
//! hexadecimal is looked at decoded as well. A stretch that begins at a word is hashed, and so is a word that is long and holds a
//! digit; what both texts have of either is repeated. What a person said in the conversation counts as theirs, wherever else it
//! stands.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;

use super::{Marks, Taint, TaintSource};
use crate::ids::CallId;
use crate::message::{Author, Part};
use crate::transcript::Transcript;

/// The length of a stretch, in bytes of words.
const STRETCH: usize = 16;
/// The shortest word that counts by itself, in letters and digits.
const WORD: usize = 10;
/// Hashes that are kept. Beyond that half of all are left out, again and again: long texts are still found, since they have many.
const KEPT: usize = 400_000;
/// The shortest text in base64 or hexadecimal that is decoded, in characters.
const ENCODED: usize = 16;

/// Marked texts of a thread, to be compared with. It grows with the transcript.
#[derive(Clone, Debug, Default)]
pub struct TaintIndex {
    sources: Vec<(TaintSource, Marks)>,
    marked: HashMap<u64, Vec<u32>>,
    /// What people said.
    spoken: HashSet<u64>,
    /// Only hashes with these bits at zero are kept.
    thinned: u64,
    /// Messages that were looked at.
    seen: usize,
    /// Whether what people said is in it, which it is once there are marks.
    listens: bool,
}

impl TaintIndex {
    /// Nothing is marked.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether nothing is marked: then no text repeats anything.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Looks at what the transcript has that was not looked at. Where nothing is marked, that reads no text.
    pub fn follow(&mut self, transcript: &Transcript) {
        if transcript.len() < self.seen {
            // It was made shorter: what is marked stays marked, and what is new is not known, so all of it is looked at.
            self.seen = 0;
        }
        for message in transcript.from(self.seen) {
            for result in message.results().filter(|result| !result.marks.is_empty()) {
                let source = (result.call_id.clone(), Arc::from(result.tool_name.as_str()));
                self.add(source.0, source.1, &result.marks, &result.parts);
            }
        }
        if !self.is_empty() {
            let from = if self.listens { self.seen } else { 0 };
            let said = transcript.from(from).filter(|message| message.author == Author::Human);
            for message in said {
                let mut hashes = Vec::new();
                each_hash(&message.text_of(), &mut |hash| hashes.push(hash));
                self.spoken.extend(hashes);
            }
            self.listens = true;
        }
        self.seen = transcript.len();
    }

    /// Adds the result of a call, with its marks.
    pub fn add(&mut self, call: CallId, tool: Arc<str>, marks: &Marks, parts: &[Part]) {
        if marks.is_empty() || self.sources.iter().any(|(source, _)| source.call == call) {
            return;
        }
        let number = self.sources.len() as u32;
        self.sources.push((TaintSource { call, tool, read: marks.private.clone() }, marks.clone()));
        let mut hashes = Vec::new();
        for part in parts {
            match part {
                Part::Text { text } => each_hash(text, &mut |hash| hashes.push(hash)),
                Part::Json { value } | Part::Unknown(value) => each_text(value, &mut |text| each_hash(text, &mut |hash| hashes.push(hash))),
                Part::Image { .. } | Part::File { .. } => {}
            }
        }
        for hash in hashes {
            if hash & self.thinned != 0 {
                continue;
            }
            let sources = self.marked.entry(hash).or_default();
            // A text that many results hold is told of the first few.
            if sources.last() != Some(&number) && sources.len() < 4 {
                sources.push(number);
            }
        }
        while self.marked.len() > KEPT {
            self.thinned = self.thinned << 1 | 1;
            let thinned = self.thinned;
            self.marked.retain(|hash, _| hash & thinned == 0);
        }
    }

    /// What a call's arguments repeat.
    pub fn taint_of(&self, arguments: &Value) -> Taint {
        let mut found: Vec<u32> = Vec::new();
        if !self.is_empty() {
            each_text(arguments, &mut |text| self.look(text, &mut found));
        }
        found.sort_unstable();
        found.dedup();
        let mut taint = Taint::default();
        for (source, marks) in found.iter().filter_map(|number| self.sources.get(*number as usize)) {
            if marks.untrusted {
                taint.untrusted.push(TaintSource { read: Vec::new(), ..source.clone() });
            }
            if !marks.private.is_empty() {
                taint.private.push(source.clone());
            }
        }
        taint
    }

    fn look(&self, text: &str, found: &mut Vec<u32>) {
        let mut at = |text: &str| {
            each_hash(text, &mut |hash| {
                if hash & self.thinned == 0
                    && let Some(sources) = self.marked.get(&hash)
                    && !self.spoken.contains(&hash)
                {
                    found.extend(sources);
                }
            });
        };
        at(text);
        for text in decoded(text) {
            at(&text);
        }
    }
}

/// Every text in a value, keys included. Numbers are texts too.
fn each_text(value: &Value, visit: &mut dyn FnMut(&str)) {
    match value {
        Value::String(text) => visit(text),
        Value::Number(number) => visit(&number.to_string()),
        Value::Array(items) => items.iter().for_each(|item| each_text(item, visit)),
        Value::Object(fields) => fields.iter().for_each(|(key, value)| {
            visit(key);
            each_text(value, visit);
        }),
        _ => {}
    }
}

/// The hashes of a text: of each stretch that begins at a word, and of each long word with a digit.
fn each_hash(text: &str, visit: &mut dyn FnMut(u64)) {
    let words = words(text);
    let bytes = words.as_bytes();
    let mut begins = true;
    for (at, byte) in bytes.iter().enumerate() {
        // Languages without spaces begin a word at each character.
        if (begins || *byte >= 0xc0)
            && *byte != b' '
            && let Some(stretch) = bytes.get(at..at + STRETCH)
        {
            visit(hash_of(stretch));
        }
        begins = *byte == b' ';
    }
    for token in
        text.split(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',' | ';' | '(' | ')' | '<' | '>' | '=' | '&' | '?' | '/'))
    {
        let kept: String = token.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
        if kept.len() >= WORD && kept.bytes().any(|byte| byte.is_ascii_digit()) {
            visit(hash_of(kept.as_bytes()));
        }
    }
}

/// FNV-1a, with its bits spread: which of them are kept goes by the low ones.
fn hash_of(bytes: &[u8]) -> u64 {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    hash ^ hash >> 29
}

/// A text as words in lower case with one space between: escapes of JSON and of addresses undone, everything else that is
/// neither letter nor digit a space.
fn words(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut push = |c: char| {
        if c.is_alphanumeric() {
            out.extend(c.to_lowercase());
        } else if !out.ends_with(' ') && !out.is_empty() {
            out.push(' ');
        }
    };
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let after = rest.get(c.len_utf8()..).unwrap_or_default();
        let hex = |digits: Option<&str>| digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        match c {
            '%' if hex(after.get(..2)).is_some() => {
                let run = escaped_run(rest);
                String::from_utf8_lossy(&run).chars().for_each(&mut push);
                rest = rest.get(3 * run.len()..).unwrap_or_default();
            }
            '\\' => {
                let unicode = after.strip_prefix('u').and_then(|digits| hex(digits.get(..4))).and_then(char::from_u32);
                match (unicode, after.chars().next()) {
                    (Some(c), _) => {
                        push(c);
                        rest = after.get(5..).unwrap_or_default();
                    }
                    (None, Some('n' | 'r' | 't')) => {
                        push(' ');
                        rest = after.get(1..).unwrap_or_default();
                    }
                    _ => {
                        push(' ');
                        rest = after;
                    }
                }
            }
            c => {
                push(c);
                rest = after;
            }
        }
    }
    out
}

/// The bytes of `%41%42` at the beginning of a text.
fn escaped_run(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(byte) = rest.strip_prefix('%').and_then(|after| after.get(..2)).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
        bytes.push(byte);
        rest = rest.get(3..).unwrap_or_default();
    }
    bytes
}

/// What stands in a text in base64 or hexadecimal, where it is text itself.
fn decoded(text: &str) -> Vec<String> {
    let encoded = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '-' | '_');
    let runs = text.split(|c: char| !encoded(c)).filter(|run| run.len() >= ENCODED);
    runs.flat_map(|run| [of_base64(run), of_hex(run)]).flatten().collect()
}

fn of_hex(run: &str) -> Option<String> {
    let pair = |pair: &[u8]| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let run = run.strip_prefix("0x").unwrap_or(run);
    let bytes: Option<Vec<u8>> = run.as_bytes().chunks_exact(2).map(pair).collect();
    readable(bytes?)
}

fn of_base64(run: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(run.len() / 4 * 3);
    let (mut value, mut bits) = (0_u32, 0);
    for byte in run.bytes() {
        let sextet = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            _ => 63,
        };
        value = value << 6 | u32::from(sextet);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((value >> bits) as u8);
            value &= (1 << bits) - 1;
        }
    }
    readable(bytes)
}

/// Bytes as text, if they are one.
fn readable(bytes: Vec<u8>) -> Option<String> {
    let text = String::from_utf8(bytes).ok()?;
    (!text.chars().any(|c| c.is_control() && !c.is_whitespace())).then_some(text)
}
