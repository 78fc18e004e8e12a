//! What is looked for: a secret in one family of encodings, matched piece by piece.
//!
//! A needle is a row of units, each with several spellings, in any mixture: a character may stand as itself, escaped as JSON
//! escapes it (up to three times over) or percent-encoded (also twice). That covers every encoder's own choice of what must be
//! escaped, without listing the products.

/// How far a spelling goes in a text.
#[derive(Clone, Copy)]
enum Reach {
    /// It ends after so many bytes.
    Ends(usize),
    /// The text ends within it.
    Open,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Family {
    /// Units are characters.
    Text,
    /// Units are hexadecimal digits, in lower case.
    Hex,
    /// Units are six bits each.
    Base64,
}

/// What a needle has at a place of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Where the whole of it ends.
    pub(super) full: Option<usize>,
    /// How many of its units stand before the end of the text, where the text ends before the needle does.
    pub(super) open: Option<usize>,
}

/// Places in a text, used again for each needle.
#[derive(Default)]
pub(super) struct Scratch {
    here: Vec<usize>,
    next: Vec<usize>,
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Needle {
    family: Family,
    units: Box<[u32]>,
}

/// Backslashes in a row that count as one escape: JSON in JSON in JSON.
pub(super) const ESCAPES: usize = 8;

impl Needle {
    /// The text itself, plain, escaped or percent-encoded. Its line ends may also be `\r\n`.
    pub(super) fn text(text: &str) -> Self {
        Self { family: Family::Text, units: text.chars().map(u32::from).collect() }
    }

    /// The text's bytes in hexadecimal.
    pub(super) fn hex(text: &str) -> Self {
        let digits = text.bytes().flat_map(|byte| [byte >> 4, byte & 15]).map(u32::from).collect();
        Self { family: Family::Hex, units: digits }
    }

    /// The text's bytes in base64, where so many bytes stand before them in their group of three: those characters that do not
    /// depend on what stands around them.
    pub(super) fn base64(text: &str, before: usize) -> Self {
        let bits = 8 * before..8 * (before + text.len());
        let bit = |at: usize| -> u32 {
            let byte = at.checked_sub(bits.start).and_then(|at| text.as_bytes().get(at / 8)).copied().unwrap_or_default();
            u32::from(byte >> (7 - at % 8) & 1)
        };
        let sextets = bits.start.div_ceil(6)..bits.end / 6;
        let units = sextets.map(|sextet| (0..6).fold(0, |value, place| value << 1 | bit(6 * sextet + place))).collect();
        Self { family: Family::Base64, units }
    }

    /// How many units it has.
    pub(super) fn len(&self) -> usize {
        self.units.len()
    }

    /// The bytes that its spellings begin with, escapes undone.
    pub(super) fn first_bytes(&self) -> Vec<u8> {
        let mut bytes = self.own_bytes(1);
        if self.family == Family::Text {
            bytes.truncate(1);
            if bytes == *b"\n" {
                bytes.push(b'\r');
            }
        }
        bytes
    }

    /// Bytes that its first units may begin with, besides those of escapes.
    pub(super) fn own_bytes(&self, first: usize) -> Vec<u8> {
        let mut out = Vec::new();
        for unit in self.units.iter().take(first) {
            match self.family {
                Family::Text => {
                    let mut buffer = [0; 4];
                    out.extend(char::from_u32(*unit).map(|c| c.encode_utf8(&mut buffer).as_bytes().to_vec()).unwrap_or_default());
                }
                Family::Hex => out.extend([hex_digit(*unit), hex_digit(*unit).to_ascii_uppercase()]),
                Family::Base64 => out.extend([sextet_byte(*unit), sextet_url_byte(*unit)]),
            }
        }
        out
    }

    /// First four bytes of what of it stands from a unit on, in its usual spellings.
    pub(super) fn heads_from(&self, unit: usize) -> Vec<[u8; 4]> {
        let four = |bytes: &[u8]| bytes.first_chunk::<4>().copied();
        let units: Vec<u32> = self.units.iter().skip(unit).take(4).copied().collect();
        let heads: Vec<Option<[u8; 4]>> = match self.family {
            Family::Text => {
                let raw: String = units.iter().filter_map(|unit| char::from_u32(*unit)).collect();
                let mut pair = [0; 2];
                let unicode = raw.chars().next().and_then(|c| c.encode_utf16(&mut pair).first().copied()).unwrap_or_default();
                let [percent, escape] = [raw.bytes().next().unwrap_or_default(), (unicode >> 8) as u8].map(hex_pair);
                let both = |[a, b]: [u8; 2]| [[a, b], [a.to_ascii_uppercase(), b.to_ascii_uppercase()]];
                let encoded = both(percent).map(|[a, b]| Some([b'%', a, b, b'%']));
                let escaped = both(escape).map(|[a, b]| Some([b'\\', b'u', a, b]));
                encoded.into_iter().chain(escaped).chain([four(raw.as_bytes())]).collect()
            }
            Family::Hex => {
                let lower: Vec<u8> = units.iter().map(|unit| hex_digit(*unit)).collect();
                vec![four(&lower), four(&lower.to_ascii_uppercase())]
            }
            Family::Base64 => {
                let of = |byte: fn(u32) -> u8| four(&units.iter().map(|unit| byte(*unit)).collect::<Vec<u8>>());
                vec![of(sextet_byte), of(sextet_url_byte)]
            }
        };
        let mut heads: Vec<[u8; 4]> = heads.into_iter().flatten().collect();
        heads.dedup();
        heads
    }

    /// What of it stands at `at`.
    pub(super) fn at(&self, text: &[u8], at: usize, scratch: &mut Scratch) -> Found {
        self.since_unit(0, text, at, scratch)
    }

    /// What of it, from a unit on, stands at `at`.
    pub(super) fn since_unit(&self, from: usize, text: &[u8], at: usize, scratch: &mut Scratch) -> Found {
        let Scratch { here, next } = scratch;
        let mut found = Found::default();
        here.clear();
        here.push(at);
        for (number, unit) in self.units.iter().enumerate().skip(from) {
            next.clear();
            for place in here.iter() {
                let rest = text.get(*place..).unwrap_or_default();
                self.spellings(number, *unit, rest, &mut |reach| match reach {
                    Reach::Ends(length) => {
                        let end = place + length;
                        if !next.contains(&end) {
                            next.push(end);
                        }
                    }
                    Reach::Open => found.open = Some(number),
                });
            }
            std::mem::swap(here, next);
            if here.is_empty() {
                return found;
            }
        }
        found.full = here.iter().copied().max();
        found
    }

    fn spellings(&self, number: usize, unit: u32, rest: &[u8], visit: &mut dyn FnMut(Reach)) {
        if rest.is_empty() {
            return visit(Reach::Open);
        }
        match self.family {
            Family::Text => {
                let Some(c) = char::from_u32(unit) else { return };
                character(c, rest, visit);
                if c == '\n' {
                    then(rest, visit, &|rest, visit| character('\r', rest, visit), &|rest, visit| character('\n', rest, visit));
                }
            }
            Family::Hex => {
                let digit = |rest: &[u8], visit: &mut dyn FnMut(Reach)| no_case(rest, &[hex_digit(unit)], visit);
                digit(rest, visit);
                if number > 0 && number.is_multiple_of(2) {
                    then(
                        rest,
                        visit,
                        &|rest, visit| {
                            line_break(rest, visit);
                            literal(rest, b" ", visit);
                            literal(rest, b":", visit);
                        },
                        &digit,
                    );
                }
            }
            Family::Base64 => {
                let sextet = |rest: &[u8], visit: &mut dyn FnMut(Reach)| match unit {
                    62 => ['+', '-'].into_iter().for_each(|c| character(c, rest, visit)),
                    63 => ['/', '_'].into_iter().for_each(|c| character(c, rest, visit)),
                    _ => literal(rest, &[sextet_byte(unit)], visit),
                };
                sextet(rest, visit);
                if number > 0 {
                    then(rest, visit, &line_break, &sextet);
                }
            }
        }
    }
}

fn hex_digit(value: u32) -> u8 {
    let value = (value & 15) as u8;
    if value < 10 { b'0' + value } else { b'a' + value - 10 }
}

/// The byte of six bits in the standard alphabet.
fn sextet_byte(value: u32) -> u8 {
    let value = (value & 63) as u8;
    match value {
        0..26 => b'A' + value,
        26..52 => b'a' + value - 26,
        52..62 => b'0' + value - 52,
        62 => b'+',
        _ => b'/',
    }
}

/// The byte of six bits in the alphabet for addresses.
fn sextet_url_byte(value: u32) -> u8 {
    match sextet_byte(value) {
        b'+' => b'-',
        b'/' => b'_',
        byte => byte,
    }
}

type Spell<'s> = &'s dyn Fn(&[u8], &mut dyn FnMut(Reach));

/// One spelling after another.
fn then(rest: &[u8], visit: &mut dyn FnMut(Reach), first: Spell<'_>, second: Spell<'_>) {
    first(rest, &mut |reach| match reach {
        Reach::Open => visit(Reach::Open),
        Reach::Ends(length) => match rest.get(length..) {
            None | Some([]) => visit(Reach::Open),
            Some(after) => second(after, &mut |reach| {
                visit(match reach {
                    Reach::Ends(more) => Reach::Ends(length + more),
                    Reach::Open => Reach::Open,
                });
            }),
        },
    });
}

fn literal(rest: &[u8], wanted: &[u8], visit: &mut dyn FnMut(Reach)) {
    if rest.starts_with(wanted) {
        visit(Reach::Ends(wanted.len()));
    } else if wanted.starts_with(rest) {
        visit(Reach::Open);
    }
}

fn no_case(rest: &[u8], wanted: &[u8], visit: &mut dyn FnMut(Reach)) {
    let there = rest.len().min(wanted.len());
    let same = rest.iter().zip(wanted).all(|(a, b)| a.eq_ignore_ascii_case(b));
    if same {
        visit(if there == wanted.len() { Reach::Ends(there) } else { Reach::Open });
    }
}

/// A line end between the characters of an encoding that is wrapped, as it is or escaped.
fn line_break(rest: &[u8], visit: &mut dyn FnMut(Reach)) {
    character('\n', rest, visit);
    then(rest, visit, &|rest, visit| character('\r', rest, visit), &|rest, visit| character('\n', rest, visit));
}

/// The spellings of a character.
fn character(c: char, rest: &[u8], visit: &mut dyn FnMut(Reach)) {
    let mut buffer = [0; 4];
    let bytes = c.encode_utf8(&mut buffer).as_bytes();
    literal(rest, bytes, visit);
    match rest.first() {
        Some(b'%') => percent(rest, bytes, visit),
        Some(b'\\') => escaped(c, bytes, rest, visit),
        Some(b'+') if c == ' ' => visit(Reach::Ends(1)),
        _ => {}
    }
}

fn hex_pair(byte: u8) -> [u8; 2] {
    [hex_digit(u32::from(byte >> 4)), hex_digit(u32::from(byte & 15))]
}

/// `%41`, and `%2541` or `%252541` where it was encoded again.
fn percent(rest: &[u8], bytes: &[u8], visit: &mut dyn FnMut(Reach)) {
    for again in 0..3 {
        let mut at = 0;
        for byte in bytes {
            let [high, low] = hex_pair(*byte);
            let (wanted, length) = match again {
                0 => ([b'%', high, low, 0, 0, 0, 0], 3),
                1 => ([b'%', b'2', b'5', high, low, 0, 0], 5),
                _ => ([b'%', b'2', b'5', b'2', b'5', high, low], 7),
            };
            let wanted = wanted.get(..length).unwrap_or_default();
            let mut reached = None;
            no_case(rest.get(at..).unwrap_or_default(), wanted, &mut |reach| reached = Some(reach));
            match reached {
                Some(Reach::Ends(more)) => at += more,
                Some(Reach::Open) => return visit(Reach::Open),
                None => {
                    at = 0;
                    break;
                }
            }
        }
        if at > 0 {
            visit(Reach::Ends(at));
        }
    }
}

/// What stands after some backslashes: so many bytes of an array.
type Part = ([u8; 5], usize);

/// Parts, each after one backslash or more.
fn after_escapes(rest: &[u8], parts: &[Part], visit: &mut dyn FnMut(Reach)) {
    let mut at = 0;
    for (part, length) in parts {
        let run = rest.iter().skip(at).take(ESCAPES).take_while(|byte| **byte == b'\\').count();
        let after = rest.get(at + run..).unwrap_or_default();
        if after.is_empty() {
            return visit(Reach::Open);
        }
        if run == 0 {
            return;
        }
        let mut reached = None;
        no_case(after, part.get(..*length).unwrap_or_default(), &mut |reach| reached = Some(reach));
        match reached {
            Some(Reach::Ends(length)) => at += run + length,
            Some(Reach::Open) => return visit(Reach::Open),
            None => return,
        }
    }
    visit(Reach::Ends(at));
}

/// `\n`, `\"`, `\u000a`, `\x0a`, with one backslash or more.
fn escaped(c: char, bytes: &[u8], rest: &[u8], visit: &mut dyn FnMut(Reach)) {
    if c == '\\' {
        let run = rest.iter().take(ESCAPES).take_while(|byte| **byte == b'\\').count();
        [2, 4, 8].into_iter().filter(|length| *length <= run).for_each(|length| visit(Reach::Ends(length)));
    }
    let letter = match c {
        '\n' => b'n',
        '\r' => b'r',
        '\t' => b't',
        '\u{8}' => b'b',
        '\u{c}' => b'f',
        '"' => b'"',
        '\'' => b'\'',
        '/' => b'/',
        _ => 0,
    };
    if letter != 0 {
        after_escapes(rest, &[([letter, 0, 0, 0, 0], 1)], visit);
    }
    let mut buffer = [0; 2];
    let unicode = |unit: u16| -> Part {
        let ([a, b], [c, d]) = (hex_pair((unit >> 8) as u8), hex_pair((unit & 0xff) as u8));
        ([b'u', a, b, c, d], 5)
    };
    match *c.encode_utf16(&mut buffer) {
        [one] => after_escapes(rest, &[unicode(one)], visit),
        [high, low] => after_escapes(rest, &[unicode(high), unicode(low)], visit),
        _ => {}
    }
    let mut parts: [Part; 4] = [([0; 5], 0); 4];
    for (part, byte) in parts.iter_mut().zip(bytes) {
        let [high, low] = hex_pair(*byte);
        *part = ([b'x', high, low, 0, 0], 3);
    }
    after_escapes(rest, parts.get(..bytes.len()).unwrap_or_default(), visit);
}
