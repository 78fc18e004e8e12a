//! Where needles may begin: a table of their first four bytes, in front of it a map of bits that most places of a text fail.

use std::collections::{HashMap, HashSet};

use super::needle::{ESCAPES, Needle, Scratch};

/// The map has two to the power of this many bits: 32 KiB, which a processor keeps close.
const BITS: u32 = 18;
const WORDS: usize = 1 << (BITS - 6);

/// Bytes that spellings begin or go on with, whatever the secret is.
const OF_ESCAPES: &[u8] = b"%\\+:\r\n uxntrbf\"'/0123456789abcdefABCDEFUXNTR";

/// See the module.
pub(super) struct Index {
    bits: Box<[u64]>,
    /// Needles by their first four bytes.
    heads: HashMap<u32, Head>,
    /// Beginnings of one to three bytes, with their length.
    short: HashSet<(u8, u32)>,
    /// The longer ends of needles, as needle and unit, by their first four bytes: what a text begins with that was cut out of
    /// another.
    ends: HashMap<u32, Vec<(u32, u32)>>,
}

/// Needles that begin with the same four bytes.
#[derive(Default)]
struct Head {
    needles: Vec<u32>,
    /// Where they are many and begin with an escape: by the first byte that is escaped. Every secret may begin with `\\u00`.
    escaped: Option<HashMap<u8, Vec<u32>>>,
}

/// How many needles of one beginning are many.
const MANY: usize = 4;

/// The backslashes, `u` and four digits.
const LONGEST_ESCAPE: usize = ESCAPES + 5;

/// How far from its beginning the end of a needle may stand in a text: behind the rest of an escape that was cut.
const REST_OF_AN_ESCAPE: usize = 5;

fn spread(head: u32) -> u32 {
    head.wrapping_mul(0x9e37_79b1) >> (32 - BITS)
}

/// The bytes that a needle may begin with, and go on with.
fn alphabet(needle: &Needle) -> Vec<u8> {
    let mut alphabet = needle.own_bytes(4);
    alphabet.extend(OF_ESCAPES);
    alphabet.sort_unstable();
    alphabet.dedup();
    alphabet
}

/// Visits every beginning of the needle that goes on from `so_far`, of up to four bytes: how many, and their value.
fn grow(needle: &Needle, alphabet: &[u8], so_far: &mut Vec<u8>, scratch: &mut Scratch, visit: &mut dyn FnMut(usize, u32)) {
    for byte in alphabet {
        so_far.push(*byte);
        let found = needle.at(so_far, 0, scratch);
        if found.full.is_some() || found.open.is_some() {
            let value = so_far.iter().rev().fold(0_u32, |value, byte| value << 8 | u32::from(*byte));
            visit(so_far.len(), value);
            if so_far.len() < 4 {
                grow(needle, alphabet, so_far, scratch, visit);
            }
        }
        so_far.pop();
    }
}

/// Visits the bytes that an escape at the beginning of the text may stand for the first of; each perhaps more than once.
fn escaped_bytes(text: &[u8], visit: &mut dyn FnMut(u8)) {
    let hex = |digits: &[u8]| std::str::from_utf8(digits).ok().and_then(|digits| u16::from_str_radix(digits, 16).ok());
    let run = text.iter().take(ESCAPES).take_while(|byte| **byte == b'\\').count();
    if run == 0 {
        // `%41`, `%2541`, `%252541`; or a percent sign as it is.
        visit(b'%');
        for skip in [1, 3, 5] {
            text.get(skip..skip + 2).and_then(hex).into_iter().for_each(|byte| visit(byte as u8));
        }
        return;
    }
    visit(b'\\');
    let after = text.get(run..).unwrap_or_default();
    match after.split_first() {
        Some((b'u' | b'U', rest)) => {
            if let Some(unit) = rest.get(..4).and_then(hex) {
                let mut buffer = [0; 4];
                let lead = match char::from_u32(u32::from(unit)) {
                    Some(c) => c.encode_utf8(&mut buffer).bytes().next(),
                    // The first half of a pair decides the first of the four bytes.
                    None => Some(0xf0 | (((u32::from(unit & 0x3ff) << 10) + 0x10000) >> 18) as u8),
                };
                lead.into_iter().for_each(visit);
            }
        }
        Some((b'x' | b'X', rest)) => rest.get(..2).and_then(hex).into_iter().for_each(|byte| visit(byte as u8)),
        Some((letter, _)) => match letter.to_ascii_lowercase() {
            b'n' => visit(b'\n'),
            b'r' => visit(b'\r'),
            b't' => visit(b'\t'),
            b'b' => visit(8),
            b'f' => visit(12),
            byte => visit(byte),
        },
        None => {}
    }
}

impl Index {
    pub(super) fn of(needles: &[Needle]) -> Self {
        let mut index = Self { bits: vec![0; WORDS].into(), heads: HashMap::new(), short: HashSet::new(), ends: HashMap::new() };
        let mut scratch = Scratch::default();
        let alphabets: Vec<Vec<u8>> = needles.iter().map(alphabet).collect();
        for (number, (needle, alphabet)) in needles.iter().zip(&alphabets).enumerate() {
            let number = number as u32;
            let mut found: Vec<(usize, u32)> = Vec::new();
            grow(needle, alphabet, &mut Vec::with_capacity(4), &mut scratch, &mut |depth, value| found.push((depth, value)));
            for (depth, value) in found {
                if depth < 4 {
                    index.short.insert((depth as u8, value));
                } else {
                    index.put(value, number);
                }
            }
            for unit in 1..needle.len().div_ceil(2) {
                for head in needle.heads_from(unit) {
                    index.ends.entry(u32::from_le_bytes(head)).or_default().push((number, unit as u32));
                }
            }
        }
        for (value, head) in &mut index.heads {
            if head.needles.len() <= MANY || !matches!(value.to_le_bytes().first(), Some(b'\\' | b'%')) {
                continue;
            }
            let by_first = head.escaped.insert(HashMap::new());
            for number in &head.needles {
                for byte in needles.get(*number as usize).map(Needle::first_bytes).unwrap_or_default() {
                    by_first.entry(byte).or_default().push(*number);
                }
            }
        }
        index
    }

    fn put(&mut self, head: u32, needle: u32) {
        let place = spread(head);
        if let Some(word) = self.bits.get_mut((place >> 6) as usize) {
            *word |= 1 << (place & 63);
        }
        self.heads.entry(head).or_default().needles.push(needle);
    }

    /// Visits each place at which needles may begin, with those needles. Of the last three places it knows nothing.
    pub(super) fn candidates(&self, text: &[u8], mut visit: impl FnMut(usize, &[u32])) {
        let mut from = 0;
        while let Some((at, head)) = self.next_place(text, from) {
            if let Some(head) = self.heads.get(&head) {
                match &head.escaped {
                    // Not where the text may end within the escape.
                    Some(by_first) if text.len() - at > LONGEST_ESCAPE => {
                        let mut visited: [Option<u8>; 4] = [None; 4];
                        escaped_bytes(text.get(at..).unwrap_or_default(), &mut |byte| {
                            if visited.contains(&Some(byte)) {
                                return;
                            }
                            visited.rotate_right(1);
                            visited.iter_mut().take(1).for_each(|slot| *slot = Some(byte));
                            by_first.get(&byte).into_iter().for_each(|needles| visit(at, needles));
                        });
                    }
                    _ => visit(at, &head.needles),
                }
            }
            from = at + 1;
        }
    }

    /// The next place whose four bytes are in the map. All text goes through here, so it stands by itself.
    #[inline(never)]
    fn next_place(&self, text: &[u8], from: usize) -> Option<(usize, u32)> {
        let rest = text.get(from..)?;
        let found = rest.windows(4).position(|window| {
            let &[a, b, c, d] = window else { return false };
            let place = spread(u32::from_le_bytes([a, b, c, d]));
            let word = self.bits.get((place >> 6) as usize & (WORDS - 1)).copied().unwrap_or_default();
            word >> (place & 63) & 1 == 1
        })?;
        let head = rest.get(found..)?.first_chunk::<4>().copied().map(u32::from_le_bytes)?;
        Some((from + found, head))
    }

    /// Visits each place at the beginning of a text at which longer ends of needles may stand, with needle and unit.
    pub(super) fn ends(&self, text: &[u8], mut visit: impl FnMut(usize, &[(u32, u32)])) {
        let of_escape = |byte: &u8| byte.is_ascii_hexdigit() || matches!(byte, b'u' | b'x' | b'%' | b'\\');
        for (at, window) in text.windows(4).enumerate().take(REST_OF_AN_ESCAPE + 1) {
            let &[a, b, c, d] = window else { continue };
            if at > 0 && (!matches!(a, b'%' | b'\\') || !text.iter().take(at).all(of_escape)) {
                continue;
            }
            if let Some(ends) = self.ends.get(&u32::from_le_bytes([a, b, c, d])) {
                visit(at, ends);
            }
        }
    }

    /// The first of the last three places at which the text may be the beginning of a needle.
    pub(super) fn open_tail(&self, text: &[u8]) -> Option<usize> {
        (1..=text.len().min(3)).rev().map(|length| text.len() - length).find(|at| {
            let tail = text.get(*at..).unwrap_or_default();
            let value = tail.iter().rev().fold(0_u32, |value, byte| value << 8 | u32::from(*byte));
            self.short.contains(&(tail.len() as u8, value))
        })
    }
}
