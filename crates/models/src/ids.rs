//! Ids of calls in the shape a provider demands.

use std::collections::{HashMap, HashSet};

use sha2::{Digest as _, Sha256};

use crate::switches::IdShape;

/// Maps our ids of calls for one request. Injective within it, and the same in every request, so that a provider's cache of the prompt
/// stays good: an id that fits is sent as it is, any other becomes a hash of itself.
#[derive(Debug)]
pub(crate) struct WireIds {
    shape: IdShape,
    given: HashMap<String, String>,
    taken: HashSet<String>,
}

const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

impl WireIds {
    /// For a request in which these ids stand. They are all needed first, so that one that fits keeps its form whatever others map to.
    pub(crate) fn new<'a>(shape: IdShape, ids: impl Iterator<Item = &'a str>) -> Self {
        let taken = ids.filter(|id| fits(shape, id)).map(str::to_owned).collect();
        Self { shape, given: HashMap::new(), taken }
    }

    /// The id on the wire.
    pub(crate) fn of(&mut self, id: &str) -> String {
        if fits(self.shape, id) {
            return id.to_owned();
        }
        if let Some(given) = self.given.get(id) {
            return given.clone();
        }
        let mut round = 0_u32;
        let given = loop {
            let candidate = hashed(self.shape, id, round);
            if self.taken.insert(candidate.clone()) {
                break candidate;
            }
            round += 1;
        };
        self.given.insert(id.to_owned(), given.clone());
        given
    }
}

fn fits(shape: IdShape, id: &str) -> bool {
    match shape {
        IdShape::Any => !id.is_empty(),
        IdShape::UpTo(most) => {
            (1..=most).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
        }
        IdShape::Alphanumeric(length) => id.len() == length && id.bytes().all(|byte| byte.is_ascii_alphanumeric()),
    }
}

fn hashed(shape: IdShape, id: &str, round: u32) -> String {
    let length = match shape {
        IdShape::Any => 24,
        IdShape::UpTo(most) => most.min(24),
        IdShape::Alphanumeric(length) => length,
    };
    let mut hash = Sha256::new();
    hash.update(round.to_le_bytes());
    hash.update(id.as_bytes());
    let digest = hash.finalize();
    digest
        .iter()
        .cycle()
        .take(length)
        .filter_map(|byte| DIGITS.get(usize::from(*byte) % DIGITS.len()))
        .map(|digit| char::from(*digit))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_id_that_fits_stays_and_others_get_the_shape() {
        let ids = ["abcDEF123", "call_00_9V0vrf86Pc9aelHCJMZqnJBo", "x"];
        let mut wire = WireIds::new(IdShape::Alphanumeric(9), ids.into_iter());
        assert_eq!(wire.of(ids[0]), ids[0]);
        let long = wire.of(ids[1]);
        assert!(long.len() == 9 && long.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{long}");
        assert_eq!(wire.of(ids[1]), long);
        assert_eq!(WireIds::new(IdShape::Alphanumeric(9), ids.into_iter()).of(ids[1]), long, "the same in each request");
        assert_eq!(WireIds::new(IdShape::Any, std::iter::empty()).of("t:1/x"), "t:1/x");
    }

    proptest! {
        #[test]
        fn no_two_ids_meet(ids in proptest::collection::hash_set("[a-c:]{0,4}", 0..60), length in 3..9_usize) {
            let shape = IdShape::Alphanumeric(length);
            let mut wire = WireIds::new(shape, ids.iter().map(String::as_str));
            let given: HashSet<String> = ids.iter().map(|id| wire.of(id)).collect();
            prop_assert_eq!(given.len(), ids.len());
            prop_assert!(given.iter().all(|id| fits(shape, id)));
        }
    }
}
