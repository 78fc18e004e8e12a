//! `redact`: how fast text without secrets is looked through for many of them.

use std::fmt::Write as _;
use std::time::Instant;

use anyhow::{Result, ensure};
use toolwright_core::redact::Redactor;

use super::{Measured, median};

/// Secrets that are registered.
const SECRETS: usize = 100;
/// Bytes that are looked through, and how often.
const BYTES: usize = 10_000_000;
const ROUNDS: usize = 5;

/// Numbers that look like chance and are the same each time.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// What tools give: lines of a log, JSON with escapes, addresses with percent signs, long texts in base64.
fn text(numbers: &mut Numbers) -> String {
    let mut text = String::with_capacity(BYTES + 4096);
    while text.len() < BYTES {
        let (a, b) = (numbers.next(), numbers.next());
        // Writing to a String can't fail.
        let _ = match a % 4 {
            0 => writeln!(text, "2026-12-01T10:{:02}:00Z INFO the request {b:x} took {} ms and gave \"ok\"", a % 60, b % 1000),
            1 => writeln!(text, r#"{{"id":{b},"path":"C:\\users\\{a}","note":"line\nline \u00e9 \u0041","ok":true}}"#),
            2 => writeln!(text, "GET https://example.test/a%20b/{a}?q=x%2By%2Fz&token={b:016x} HTTP/1.1"),
            _ => (0..8).try_for_each(|_| write!(text, "{}", word(numbers.next()))).and_then(|()| writeln!(text)),
        };
    }
    text
}

/// Eleven characters of base64.
fn word(number: u64) -> String {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    (0..11).filter_map(|place| ALPHABET.get((number >> (6 * place) & 63) as usize).copied()).map(char::from).collect()
}

pub(crate) fn throughput() -> Result<Measured> {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let secrets: Vec<(String, String)> = (0..SECRETS)
        .map(|at| {
            let value = format!("sk-{}{}{}", word(numbers.next()), word(numbers.next()), word(numbers.next()));
            (format!("SECRET_{at}"), value)
        })
        .collect();
    let redactor = Redactor::new(secrets.clone())?;
    let text = text(&mut numbers);
    let mut rates = Vec::new();
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let clean = redactor.redact(&text);
        rates.push(text.len() as f64 / 1e6 / began.elapsed().as_secs_f64());
        ensure!(*clean == *text, "text without secrets was changed");
    }
    // It looks: one secret at the very end is found.
    let (name, value) = secrets.last().map(|(name, value)| (name.as_str(), value.as_str())).unwrap_or_default();
    ensure!(redactor.redact(&format!("{text}{value}")).ends_with(&format!("[redacted:{name}]")), "a secret was not found");
    Ok(vec![("redact", median(rates).unwrap_or_default())])
}
