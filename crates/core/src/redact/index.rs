//! Where needles may begin: a table of their first four bytes, in front of it a map of bits that most places of a text fail.

use std::collections::{HashMap, HashSet};

use super::needle::{Needle, Scratch};

/// The map has two to the power of this many bits: 32 KiB, which a processor keeps close.
const BITS: u32 = 18;
const WORDS: usize = 1 << (BITS - 6);

/// Bytes that spellings begin or go on with, whatever the secret is.
const OF_ESCAPES: &[u8] = b"%\\+:\r\n uxntrbf\"'/0123456789abcdefABCDEFUXNTR";

/// See the module.
pub(super) struct Index {
    bits: Box<[u64]>,
    /// Needles by their first four bytes.
    heads: HashMap<u32, Vec<u32>>,
    /// Beginnings of one to three bytes, with their length.
    short: HashSet<(u8, u32)>,
    /// The longer ends of needles, as needle and unit, by their first four bytes: what a text begins with that was cut out of
    /// another.
    ends: HashMap<u32, Vec<(u32, u32)>>,
}

/// How far from its beginning the end of a needle may stand in a text: behind the rest of an escape that was cut.
const REST_OF_AN_ESCAPE: usize = 5;

fn spread(head: u32) -> u32 {
    head.wrapping_mul(0x9e37_79b1) >> (32 - BITS)
}

impl Index {
    pub(super) fn of(needles: &[Needle]) -> Self {
        let mut index = Self { bits: vec![0; WORDS].into(), heads: HashMap::new(), short: HashSet::new(), ends: HashMap::new() };
        let mut scratch = Scratch::default();
        for (number, needle) in needles.iter().enumerate() {
            let mut alphabet = needle.own_bytes(4);
            alphabet.extend(OF_ESCAPES);
            alphabet.sort_unstable();
            alphabet.dedup();
            index.grow(needle, number as u32, &alphabet, &mut Vec::with_capacity(4), &mut scratch);
            for unit in 1..needle.len().div_ceil(2) {
                for head in needle.heads_from(unit) {
                    index.ends.entry(u32::from_le_bytes(head)).or_default().push((number as u32, unit as u32));
                }
            }
        }
        index
    }

    /// Puts in every beginning of the needle that goes on from `so_far`.
    fn grow(&mut self, needle: &Needle, number: u32, alphabet: &[u8], so_far: &mut Vec<u8>, scratch: &mut Scratch) {
        for byte in alphabet {
            so_far.push(*byte);
            let found = needle.at(so_far, 0, scratch);
            if found.full.is_some() || found.open.is_some() {
                let value = so_far.iter().rev().fold(0_u32, |value, byte| value << 8 | u32::from(*byte));
                if so_far.len() < 4 {
                    self.short.insert((so_far.len() as u8, value));
                    self.grow(needle, number, alphabet, so_far, scratch);
                } else {
                    self.put(value, number);
                }
            }
            so_far.pop();
        }
    }

    fn put(&mut self, head: u32, needle: u32) {
        let place = spread(head);
        if let Some(word) = self.bits.get_mut((place >> 6) as usize) {
            *word |= 1 << (place & 63);
        }
        let needles = self.heads.entry(head).or_default();
        if needles.last() != Some(&needle) {
            needles.push(needle);
        }
    }

    /// Visits each place at which needles may begin, with those needles. Of the last three places it knows nothing.
    pub(super) fn candidates(&self, text: &[u8], mut visit: impl FnMut(usize, &[u32])) {
        for (at, window) in text.windows(4).enumerate() {
            let &[a, b, c, d] = window else { continue };
            let head = u32::from_le_bytes([a, b, c, d]);
            let place = spread(head);
            let word = self.bits.get((place >> 6) as usize & (WORDS - 1)).copied().unwrap_or_default();
            if word >> (place & 63) & 1 == 1
                && let Some(needles) = self.heads.get(&head)
            {
                visit(at, needles);
            }
        }
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
