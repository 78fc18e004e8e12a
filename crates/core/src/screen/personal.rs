//! Personal data: what has a form that can be told from other text, with its check digits where it has some.

use super::{Finding, after, before, merged};

/// A kind of personal data (sdk-tools 27.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pii {
    /// An e-mail address.
    Email,
    /// A telephone number: 9 to 15 digits, with the usual separators.
    Phone,
    /// A payment card's number: 13 to 19 digits whose check digit is right.
    CreditCard,
    /// An international bank account number whose check digits are right.
    Iban,
    /// A social security number of the United States, with its separators.
    UsSsn,
    /// An IPv4 address.
    IpAddress,
}

impl Pii {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Email, Self::Phone, Self::CreditCard, Self::Iban, Self::UsSsn, Self::IpAddress];

    /// Its name in findings and options.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Email => "email",
            Self::Phone => "phone",
            Self::CreditCard => "credit-card",
            Self::Iban => "iban",
            Self::UsSsn => "us-ssn",
            Self::IpAddress => "ip-address",
        }
    }

    /// The kind of that name.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// Personal data of these kinds, in order and apart. Where one text could be two kinds, the stricter form counts: a card's number is no
/// telephone number.
pub fn pii(text: &str, kinds: &[Pii]) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut add = |kind: Pii, find: fn(&str) -> Vec<Finding>| {
        if kinds.contains(&kind) {
            found = merged(std::mem::take(&mut found), find(text));
        }
    };
    add(Pii::Email, emails);
    add(Pii::Iban, ibans);
    add(Pii::CreditCard, cards);
    add(Pii::UsSsn, ssns);
    add(Pii::IpAddress, addresses);
    add(Pii::Phone, phones);
    found
}

/// The longest local part and domain of an address (RFC 5321).
const LOCAL: usize = 64;
const DOMAIN: usize = 255;

fn emails(text: &str) -> Vec<Finding> {
    let local = |c: &char| c.is_alphanumeric() || matches!(c, '.' | '_' | '%' | '+' | '-' | '\'');
    let mut found: Vec<Finding> = Vec::new();
    for (at, _) in text.match_indices('@') {
        let Some((left, right)) = text.split_at_checked(at) else { continue };
        let name: usize = left.chars().rev().take(LOCAL).take_while(local).map(char::len_utf8).sum();
        let start = at - name;
        // A dot or a quote that only stands before the address is none of it.
        let lead = left.get(start..).map_or(0, |name| name.len() - name.trim_start_matches(['.', '\'']).len());
        let domain = domain_len(right.get(1..).unwrap_or_default());
        if name > lead && domain > 0 && found.last().is_none_or(|last| last.end <= start + lead) {
            found.push(Finding::new(Pii::Email.as_str(), start + lead, at + 1 + domain));
        }
    }
    found
}

/// How many bytes at the beginning are a domain: labels, a dot, and at the end a label of two letters or more.
fn domain_len(text: &str) -> usize {
    let (mut end, mut labels, mut valid) = (0, 0, 0);
    let (mut label, mut letters, mut punycode) = (0, true, false);
    for c in text.chars().take(DOMAIN) {
        match c {
            '.' if label > 0 => {
                // The top label may be one of an international name, which has digits and hyphens too.
                punycode = text.get(end + 1..).is_some_and(|next| next.get(..4).is_some_and(|head| head.eq_ignore_ascii_case("xn--")));
                (labels, label, letters) = (labels + 1, 0, true);
            }
            c if c.is_alphanumeric() || c == '-' => {
                label += 1;
                letters &= c.is_alphabetic();
            }
            _ => break,
        }
        end += c.len_utf8();
        if labels > 0 && label >= 2 && (letters || punycode && label > 4) && c != '-' {
            valid = end;
        }
    }
    valid
}

/// A run of digits in groups, each separated from the next by one of the separators allowed.
struct Group {
    start: usize,
    end: usize,
}

/// Runs of groups of digits. A run ends where neither a digit nor one separator with a digit behind it follows.
fn digit_runs(text: &str, separators: &[u8]) -> Vec<Vec<Group>> {
    let bytes = text.as_bytes();
    let mut runs: Vec<Vec<Group>> = Vec::new();
    let mut run: Vec<Group> = Vec::new();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        if !byte.is_ascii_digit() {
            at += 1;
            continue;
        }
        let start = at;
        while bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        let joined = run
            .last()
            .is_some_and(|last| start == last.end + 1 && bytes.get(last.end).is_some_and(|separator| separators.contains(separator)));
        if !joined && !run.is_empty() {
            runs.push(std::mem::take(&mut run));
        }
        run.push(Group { start, end: at });
    }
    if !run.is_empty() {
        runs.push(run);
    }
    runs
}

/// Whether a number may begin here: not in the middle of a word, an identifier, a path or an amount.
fn may_begin(text: &str, at: usize) -> bool {
    before(text, at).is_none_or(|c| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '/' | '.' | '@' | '#' | '$' | '€' | '£' | '%')))
}

/// Whether a number may end here.
fn may_end(text: &str, at: usize) -> bool {
    after(text, at).is_none_or(|c| !(c.is_alphanumeric() || matches!(c, '_' | '@' | '%')))
}

const SHORTEST_CARD: usize = 13;
const LONGEST_CARD: usize = 19;

fn cards(text: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    for run in digit_runs(text, b" -") {
        let mut from = 0;
        while from < run.len() {
            match card_from(text, run.get(from..).unwrap_or_default()) {
                Some((groups, start, end)) => {
                    found.push(Finding::new(Pii::CreditCard.as_str(), start, end));
                    from += groups;
                }
                None => from += 1,
            }
        }
    }
    found
}

/// The longest card number that begins with the first group: how many groups it has, and where it stands.
fn card_from(text: &str, groups: &[Group]) -> Option<(usize, usize, usize)> {
    let start = groups.first()?.start;
    // One that follows another group of the same run is separated by a blank, not by a hyphen.
    if !may_begin(text, start) {
        return None;
    }
    let (mut digits, mut best) = (Vec::with_capacity(LONGEST_CARD), None);
    for (at, group) in groups.iter().enumerate() {
        if digits.len() + (group.end - group.start) > LONGEST_CARD {
            break;
        }
        digits.extend(text.get(group.start..group.end).unwrap_or_default().bytes().map(|digit| digit - b'0'));
        if digits.len() >= SHORTEST_CARD && may_end(text, group.end) && passes_luhn(&digits) {
            best = Some((at + 1, start, group.end));
        }
    }
    best
}

/// The check of ISO/IEC 7812-1. A number of one digit repeated passes it and is none.
fn passes_luhn(digits: &[u8]) -> bool {
    let doubled = |digit: u8| if digit > 4 { digit * 2 - 9 } else { digit * 2 };
    let sum: u32 = digits.iter().rev().enumerate().map(|(at, digit)| u32::from(if at % 2 == 1 { doubled(*digit) } else { *digit })).sum();
    sum.is_multiple_of(10) && digits.windows(2).any(|pair| pair.first() != pair.last())
}

const SHORTEST_PHONE: usize = 9;
const LONGEST_PHONE: usize = 15;

fn phones(text: &str) -> Vec<Finding> {
    let bytes = text.as_bytes();
    let mut found: Vec<Finding> = Vec::new();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        if !(byte.is_ascii_digit() || matches!(byte, b'+' | b'(')) {
            at += 1;
            continue;
        }
        let number = Number::read(text, at);
        if may_begin(text, at) && number.is_phone(text, at) {
            found.push(Finding::new(Pii::Phone.as_str(), at, number.end));
        } else if number.digits > LONGEST_PHONE {
            // Perhaps several, side by side.
            found.extend(
                number
                    .words
                    .iter()
                    .filter(|(start, end)| {
                        let alone = Number::read(text.get(..*end).unwrap_or_default(), *start);
                        may_begin(text, *start) && alone.end == *end && alone.is_phone(text, *start)
                    })
                    .map(|(start, end)| Finding::new(Pii::Phone.as_str(), *start, *end)),
            );
        }
        at = number.next.max(at + 1);
    }
    found
}

/// Digits and what may stand between those of a telephone number.
struct Number {
    digits: usize,
    separators: usize,
    dots: usize,
    has_plus: bool,
    /// Its parts between blanks.
    words: Vec<(usize, usize)>,
    /// After its last digit, and where the reading goes on.
    end: usize,
    next: usize,
}

impl Number {
    fn read(text: &str, start: usize) -> Self {
        let mut number = Self { digits: 0, separators: 0, dots: 0, has_plus: false, words: Vec::new(), end: start, next: start };
        let (mut gap, mut word) = (0, start);
        for (offset, byte) in text.as_bytes().iter().skip(start).enumerate() {
            let at = start + offset;
            match byte {
                b'0'..=b'9' => {
                    number.digits += 1;
                    number.separators += usize::from(gap > 0);
                    number.end = at + 1;
                    gap = 0;
                }
                b'+' if at == start => number.has_plus = true,
                b' ' | b'-' | b'.' | b'(' | b')' | b'/' if gap < 2 => {
                    gap += usize::from(offset > 0);
                    number.dots += usize::from(*byte == b'.');
                    if *byte == b' ' {
                        number.words.push((word, number.end));
                        word = at + 1;
                    }
                }
                _ => break,
            }
            number.next = at + 1;
        }
        number.words.push((word, number.end));
        number
    }

    fn is_phone(&self, text: &str, start: usize) -> bool {
        let clock = |c: Option<char>| c == Some(':');
        (SHORTEST_PHONE..=LONGEST_PHONE).contains(&self.digits)
            && may_end(text, self.end)
            // A decimal number, and a date with its time, are none.
            && !(self.dots == 1 && self.separators == 1 && !self.has_plus)
            && !(clock(after(text, self.end)) && text.get(self.end + 1..).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())))
            && !(clock(before(text, start)) && before(text, start - 1).is_some_and(|c| c.is_ascii_digit()))
    }
}

fn ssns(text: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    for run in digit_runs(text, b" -") {
        let mut from = 0;
        while let [area, group, serial, ..] = run.get(from..).unwrap_or_default() {
            let digits = |group: &Group| text.get(group.start..group.end).unwrap_or_default();
            let separator = |group: &Group| text.as_bytes().get(group.end).copied();
            let (a, g, s) = (digits(area), digits(group), digits(serial));
            let formed = (a.len(), g.len(), s.len()) == (3, 2, 4) && separator(area) == separator(group);
            // Numbers that are never given out.
            let given = !matches!(a, "000" | "666") && !a.starts_with('9') && g != "00" && s != "0000";
            let alone = may_begin(text, area.start) && may_end(text, serial.end) && after(text, serial.end) != Some('-');
            if formed && given && alone {
                found.push(Finding::new(Pii::UsSsn.as_str(), area.start, serial.end));
                from += 3;
            } else {
                from += 1;
            }
        }
    }
    found
}

fn addresses(text: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    for run in digit_runs(text, b".") {
        // Four numbers and no more: five are a version.
        let [first, .., last] = run.as_slice() else { continue };
        let octet =
            |group: &Group| text.get(group.start..group.end).is_some_and(|digits| digits.len() <= 3 && digits.parse::<u8>().is_ok());
        let begins = before(text, first.start).is_none_or(|c| !(c.is_alphanumeric() || matches!(c, '_' | '.' | '-')));
        if run.len() == 4 && run.iter().all(octet) && begins && may_end(text, last.end) {
            found.push(Finding::new(Pii::IpAddress.as_str(), first.start, last.end));
        }
    }
    found
}

const SHORTEST_IBAN: usize = 15;
const LONGEST_IBAN: usize = 34;

/// How long the account numbers of a country are, where they are registered. Others count with any length whose check digits are right.
const IBAN_LENGTHS: &str = "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DK18 DO28 EE20 EG29 \
ES24 FI18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 LC32 LI21 LT20 LU20 LV21 \
LY25 MC27 MD24 ME22 MK19 MR27 MT31 MU30 NL18 NO15 PK24 PL28 PS29 PT25 QA29 RO24 RS22 SA24 SC31 SD18 SE24 SI19 SK24 SM27 ST25 SV28 \
TL23 TN24 TR26 UA29 VA22 VG24 XK20";

fn ibans(text: &str) -> Vec<Finding> {
    let bytes = text.as_bytes();
    let mut found: Vec<Finding> = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let head = |offset: usize| bytes.get(at + offset).copied().unwrap_or_default();
        let formed = head(0).is_ascii_alphabetic() && head(1).is_ascii_alphabetic() && head(2).is_ascii_digit() && head(3).is_ascii_digit();
        let begins = || before(text, at).is_none_or(|c| !(c.is_alphanumeric() || c == '_'));
        match (formed && begins()).then(|| iban_len(text, at)).flatten() {
            Some(len) => {
                found.push(Finding::new(Pii::Iban.as_str(), at, at + len));
                at += len;
            }
            None => at += 1,
        }
    }
    found
}

/// How many bytes an account number that begins at `start` has, blanks between its groups included.
fn iban_len(text: &str, start: usize) -> Option<usize> {
    let mut symbols = Vec::with_capacity(LONGEST_IBAN);
    let mut best = None;
    let rest = text.as_bytes().get(start..)?;
    let mut blank = false;
    for (offset, byte) in rest.iter().enumerate() {
        match byte {
            b' ' if !blank => blank = true,
            byte if byte.is_ascii_alphanumeric() && symbols.len() < LONGEST_IBAN => {
                blank = false;
                symbols.push(byte.to_ascii_uppercase());
                let end = start + offset + 1;
                let ends = after(text, end).is_none_or(|c| !(c.is_alphanumeric() || c == '_'));
                if ends && symbols.len() >= SHORTEST_IBAN && has_registered_length(&symbols) && passes_mod_97(&symbols) {
                    best = Some(offset + 1);
                }
            }
            _ => break,
        }
    }
    best
}

fn has_registered_length(symbols: &[u8]) -> bool {
    let country = symbols.get(..2).and_then(|country| std::str::from_utf8(country).ok()).unwrap_or_default();
    let known = IBAN_LENGTHS.split(' ').find_map(|entry| entry.strip_prefix(country));
    known.is_none_or(|length| length.parse() == Ok(symbols.len()))
}

/// The check of ISO 7064, MOD 97-10, with the first four symbols moved to the end and letters as numbers from 10 on.
fn passes_mod_97(symbols: &[u8]) -> bool {
    let Some((head, tail)) = symbols.split_at_checked(4) else { return false };
    let rest = tail.iter().chain(head).fold(0u32, |rest, symbol| match symbol {
        b'0'..=b'9' => (rest * 10 + u32::from(symbol - b'0')) % 97,
        _ => (rest * 100 + u32::from(symbol - b'A') + 10) % 97,
    });
    rest == 1
}
