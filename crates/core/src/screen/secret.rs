//! Secrets that can be told by their form: private keys, keys with a vendor's prefix, tokens.
//!
//! This finds what nobody registered. What is registered as a secret is found by its value, in every encoding, by the redactor.

use super::{Finding, after, before, merged};

/// Which characters follow a prefix.
#[derive(Clone, Copy)]
enum Tail {
    /// Letters and digits.
    Alnum,
    /// Letters, digits, `_` and `-`.
    Word,
    /// Capitals and digits.
    Upper,
    /// Letters, digits, `_`, `-` and `.`.
    Dotted,
}

impl Tail {
    fn holds(self, byte: u8) -> bool {
        match self {
            Self::Alnum => byte.is_ascii_alphanumeric(),
            Self::Word => byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'),
            Self::Upper => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
            Self::Dotted => byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'),
        }
    }
}

/// A prefix, what follows it and how much of it at least, and what the whole is called. A longer prefix stands before its beginning.
const PREFIXES: [(&str, Tail, usize, &str); 46] = [
    ("sk-ant-", Tail::Word, 20, "anthropic-key"),
    ("sk-or-", Tail::Word, 20, "openrouter-key"),
    ("sk-", Tail::Word, 20, "openai-key"),
    ("sk_live_", Tail::Alnum, 16, "stripe-key"),
    ("sk_test_", Tail::Alnum, 16, "stripe-key"),
    ("rk_live_", Tail::Alnum, 16, "stripe-key"),
    ("rk_test_", Tail::Alnum, 16, "stripe-key"),
    ("whsec_", Tail::Alnum, 24, "stripe-key"),
    ("AKIA", Tail::Upper, 16, "aws-key"),
    ("ASIA", Tail::Upper, 16, "aws-key"),
    ("ghp_", Tail::Alnum, 30, "github-token"),
    ("gho_", Tail::Alnum, 30, "github-token"),
    ("ghu_", Tail::Alnum, 30, "github-token"),
    ("ghs_", Tail::Alnum, 30, "github-token"),
    ("ghr_", Tail::Alnum, 30, "github-token"),
    ("github_pat_", Tail::Word, 22, "github-token"),
    ("glpat-", Tail::Word, 20, "gitlab-token"),
    ("xoxa-", Tail::Word, 10, "slack-token"),
    ("xoxb-", Tail::Word, 10, "slack-token"),
    ("xoxe-", Tail::Word, 10, "slack-token"),
    ("xoxp-", Tail::Word, 10, "slack-token"),
    ("xoxr-", Tail::Word, 10, "slack-token"),
    ("xoxs-", Tail::Word, 10, "slack-token"),
    ("xapp-", Tail::Word, 20, "slack-token"),
    ("AIza", Tail::Word, 30, "google-key"),
    ("ya29.", Tail::Word, 20, "google-token"),
    ("GOCSPX-", Tail::Word, 20, "google-secret"),
    ("npm_", Tail::Alnum, 30, "npm-token"),
    ("pypi-", Tail::Word, 30, "pypi-token"),
    ("rubygems_", Tail::Alnum, 30, "rubygems-token"),
    ("dckr_pat_", Tail::Word, 20, "docker-token"),
    ("hf_", Tail::Alnum, 30, "huggingface-token"),
    ("gsk_", Tail::Alnum, 30, "groq-key"),
    ("xai-", Tail::Alnum, 40, "xai-key"),
    ("pplx-", Tail::Alnum, 30, "perplexity-key"),
    ("r8_", Tail::Alnum, 30, "replicate-token"),
    ("tvly-", Tail::Word, 20, "tavily-key"),
    ("SG.", Tail::Dotted, 40, "sendgrid-key"),
    ("shpat_", Tail::Alnum, 30, "shopify-token"),
    ("dop_v1_", Tail::Alnum, 40, "digitalocean-token"),
    ("lin_api_", Tail::Alnum, 30, "linear-key"),
    ("glsa_", Tail::Word, 30, "grafana-token"),
    ("sntrys_", Tail::Word, 30, "sentry-token"),
    ("figd_", Tail::Word, 30, "figma-token"),
    ("hvs.", Tail::Word, 20, "vault-token"),
    ("AGE-SECRET-KEY-1", Tail::Alnum, 40, "private-key"),
];

/// Secrets, in order and apart.
pub fn secrets(text: &str) -> Vec<Finding> {
    merged(private_keys(text), merged(prefixed(text), bearers(text)))
}

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const KEY: &str = "PRIVATE KEY";
/// The longest line that opens or closes a key.
const LINE: usize = 80;

/// Keys in armour, from their first line to their last; to the end of the text where the last line is missing.
fn private_keys(text: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some((start, line_end)) = line_of_key(text, from, BEGIN) {
        let end = line_of_key(text, line_end, END).map_or(text.len(), |(_, end)| end);
        found.push(Finding::new("private-key", start, end));
        from = end;
    }
    found
}

/// The next line of armour that is about a private key: where it begins and ends.
fn line_of_key(text: &str, from: usize, opens: &str) -> Option<(usize, usize)> {
    let rest = text.get(from..)?;
    for (at, _) in rest.match_indices(opens) {
        let start = from + at;
        let body = start + opens.len();
        let line: &str = crate::text::cut(text.get(body..)?, LINE);
        let Some(dashes) = line.find("-----") else { continue };
        if line.get(..dashes).is_some_and(|name| name.contains(KEY)) {
            return Some((start, body + dashes + 5));
        }
    }
    None
}

/// Keys with a vendor's prefix, and signed tokens.
fn prefixed(text: &str) -> Vec<Finding> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = bytes.get(at..).unwrap_or_default();
        if !starts_here(text, at) {
            at += 1;
            continue;
        }
        match vendor_key(rest).or_else(|| jwt(rest)) {
            Some((kind, len)) => {
                found.push(Finding::new(kind, at, at + len));
                at += len;
            }
            None => at += 1,
        }
    }
    found
}

/// Whether a token may begin here: where no word goes on.
fn starts_here(text: &str, at: usize) -> bool {
    let here = text.as_bytes().get(at).is_some_and(u8::is_ascii_alphabetic);
    here && before(text, at).is_none_or(|c| !(c.is_alphanumeric() || matches!(c, '_' | '-')))
}

fn vendor_key(rest: &[u8]) -> Option<(&'static str, usize)> {
    PREFIXES.iter().find_map(|(prefix, tail, least, kind)| {
        let behind = rest.strip_prefix(prefix.as_bytes())?;
        let len = behind.iter().take_while(|byte| tail.holds(**byte)).count();
        (len >= *least).then_some((*kind, prefix.len() + len))
    })
}

/// A JSON Web Token: three parts in base64, the first of which is an object.
fn jwt(rest: &[u8]) -> Option<(&'static str, usize)> {
    if !rest.starts_with(b"eyJ") {
        return None;
    }
    let mut len = 0;
    for part in 0..3 {
        let behind = rest.get(len..)?;
        let behind = if part == 0 { behind } else { behind.strip_prefix(b".")? };
        let symbols = behind.iter().take_while(|byte| Tail::Word.holds(**byte)).count();
        if symbols < 8 {
            return None;
        }
        len += symbols + usize::from(part > 0);
    }
    Some(("jwt", len))
}

const BEARER: &str = "bearer";
const SHORTEST_BEARER: usize = 16;

/// What follows `Bearer` in a header, the word itself left.
fn bearers(text: &str) -> Vec<Finding> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let word = bytes.get(at..at + BEARER.len()).is_some_and(|word| word.eq_ignore_ascii_case(BEARER.as_bytes()));
        if !word || !starts_here(text, at) {
            at += 1;
            continue;
        }
        at += BEARER.len();
        let blanks = bytes.iter().skip(at).take_while(|byte| **byte == b' ').count();
        let start = at + blanks;
        let token = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'~' | b'+' | b'/' | b'=' | b'-');
        let len = bytes.iter().skip(start).take_while(|byte| token(byte)).count();
        let end = start + len;
        let said = text.get(start..end).unwrap_or_default();
        // Prose about bearers has no digits in so long a word.
        if blanks > 0 && len >= SHORTEST_BEARER && said.bytes().any(|byte| byte.is_ascii_digit()) && after(text, end) != Some('@') {
            found.push(Finding::new("bearer-token", start, end));
        }
        at = end;
    }
    found
}
