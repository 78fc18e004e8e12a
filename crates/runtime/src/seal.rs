//! Encryption of environment values at rest (standard-agents ENV-8).
//!
//! ChaCha20-Poly1305 under a key made of the operator's text with HKDF-SHA-256. Each value has a nonce of its own, drawn at
//! random, and is bound to its thread and name: a row that is moved elsewhere does not open.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};
use ring::rand::{SecureRandom as _, SystemRandom};
use toolwright_core::ThreadId;

use crate::error::AgentError;

/// The variable that the key comes from (standard-agents ENV-8).
pub const ENCRYPTION_KEY: &str = "ENCRYPTION_KEY";
/// The same, for where the other name is taken by another program; it comes first.
pub const OWN_ENCRYPTION_KEY: &str = "TOOLWRIGHT_ENCRYPTION_KEY";
/// The shortest text that a key is made of, in characters.
const SHORTEST_KEY: usize = 16;

/// Seals and opens values.
pub(crate) struct Sealer {
    key: LessSafeKey,
}

impl Sealer {
    /// With the key that a text stands for.
    pub(crate) fn new(text: &str) -> Result<Self, AgentError> {
        let text = text.trim();
        let refused = |given: &str| AgentError::Invalid {
            field: format!("the key in `{ENCRYPTION_KEY}`"),
            given: given.to_owned(),
            fix: format!("give a random text of at least {SHORTEST_KEY} characters, such as the output of `openssl rand -base64 32`"),
        };
        if text.chars().take(SHORTEST_KEY).count() < SHORTEST_KEY {
            return Err(refused("too short"));
        }
        let extracted = Salt::new(HKDF_SHA256, b"toolwright environment").extract(text.as_bytes());
        let expanded = extracted.expand(&[b"values v1"], &CHACHA20_POLY1305).map_err(|_| refused("not usable"))?;
        Ok(Self { key: LessSafeKey::new(UnboundKey::from(expanded)) })
    }

    /// The value, sealed for a name of a thread.
    pub(crate) fn seal(&self, thread: &ThreadId, name: &str, value: &str) -> Result<String, AgentError> {
        let failed = |_| AgentError::Invalid {
            field: format!("the environment value {name}"),
            given: "not sealed".to_owned(),
            fix: "the system gave no random numbers; try again".to_owned(),
        };
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).map_err(failed)?;
        let mut sealed = value.as_bytes().to_vec();
        self.key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), bound(thread, name), &mut sealed).map_err(failed)?;
        Ok(STANDARD.encode([&nonce[..], &sealed].concat()))
    }

    /// The value that was sealed for this name of this thread; `None` if it was not, or with another key.
    pub(crate) fn open(&self, thread: &ThreadId, name: &str, sealed: &str) -> Option<String> {
        let mut bytes = STANDARD.decode(sealed).ok()?;
        let (nonce, value) = bytes.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let value = self.key.open_in_place(nonce, bound(thread, name), value).ok()?;
        String::from_utf8(value.to_vec()).ok()
    }
}

/// What a value is bound to. Neither part holds the character between them.
fn bound(thread: &ThreadId, name: &str) -> Aad<Vec<u8>> {
    Aad::from(format!("{thread}\n{name}").into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(id: &str) -> ThreadId {
        ThreadId::new(id).unwrap()
    }

    #[test]
    fn what_is_sealed_opens_with_its_key_and_in_its_place_only() {
        let sealer = Sealer::new("a key of sixteen and more").unwrap();
        let sealed = sealer.seal(&thread("t"), "NAME", "värde").unwrap();
        assert!(!sealed.contains("rde"));
        assert_ne!(sealed, sealer.seal(&thread("t"), "NAME", "värde").unwrap());
        assert_eq!(sealer.open(&thread("t"), "NAME", &sealed).as_deref(), Some("värde"));
        assert_eq!(sealer.open(&thread("u"), "NAME", &sealed), None);
        assert_eq!(sealer.open(&thread("t"), "OTHER", &sealed), None);
        assert_eq!(Sealer::new("another key of sixteen").unwrap().open(&thread("t"), "NAME", &sealed), None);
        for damaged in ["", "!", "AAAA", sealed.trim_end_matches('=').get(4..).unwrap(), &format!("AAAA{sealed}")] {
            assert_eq!(sealer.open(&thread("t"), "NAME", damaged), None, "{damaged}");
        }
        assert_eq!(sealer.seal(&thread("t"), "E", "").map(|sealed| sealer.open(&thread("t"), "E", &sealed)), Ok(Some(String::new())));
    }

    #[test]
    fn a_key_that_is_too_short_is_refused_without_its_text() {
        let error = Sealer::new("  short-key  ").map(|_| ()).unwrap_err();
        let said = error.to_string();
        assert!(said.contains("`ENCRYPTION_KEY` is too short") && !said.contains("short-key"), "{said}");
    }
}
