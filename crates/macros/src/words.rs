//! Words in sentences: the closest known one, and code as a person writes it.

use quote::ToTokens;

/// The known word closest to `given`, if it is close enough to have been meant.
pub(crate) fn closest<'a>(given: &str, known: &[&'a str]) -> Option<&'a str> {
    let given = given.to_lowercase().replace('-', "_");
    let near = |word: &str| if word.starts_with(&given) || given.starts_with(word) { 1 } else { distance(&given, word) };
    let (word, distance) = known.iter().map(|word| (*word, near(word))).min_by_key(|(_, distance)| *distance)?;
    (distance <= 1 + given.chars().count() / 3).then_some(word)
}

/// How many characters have to be put in, taken out or replaced.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.chars().enumerate() {
        let mut next = vec![i + 1];
        for (right, pair) in b.iter().zip(row.windows(2)) {
            if let (&[above_left, above], Some(&before)) = (pair, next.last()) {
                next.push((above_left + usize::from(left != *right)).min(above + 1).min(before + 1));
            }
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

/// A sentence about an unknown word.
pub(crate) fn unknown(what: &str, given: &str, known: &[&str]) -> String {
    match closest(given, known) {
        Some(word) => format!("there is no {what} `{given}`; did you mean `{word}`?"),
        None => format!(
            "there is no {what} `{given}`; there are {}",
            known.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
        ),
    }
}

/// Code as a person would write it in a sentence.
pub(crate) fn code(tokens: &impl ToTokens) -> String {
    let mut text = tokens.to_token_stream().to_string();
    for (spaced, tight) in [
        (" :: ", "::"),
        (":: ", "::"),
        (" < ", "<"),
        (" >", ">"),
        ("> ::", ">::"),
        (" ,", ","),
        ("& ", "&"),
        (" ;", ";"),
        ("< ", "<"),
        (" (", "("),
        ("( ", "("),
        (" )", ")"),
        ("[ ", "["),
        (" ]", "]"),
    ] {
        text = text.replace(spaced, tight);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_word_is_the_one_meant() {
        let known = ["read_only", "timeout", "sequential"];
        assert_eq!(closest("readonly", &known), Some("read_only"));
        assert_eq!(closest("read-only", &known), Some("read_only"));
        assert_eq!(closest("time", &known), Some("timeout"));
        assert_eq!(closest("colour", &known), None);
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn code_is_written_tightly() {
        let ty: syn::Type = syn::parse_quote!(std::collections::HashMap<String, &'static [u8]>);
        assert_eq!(code(&ty), "std::collections::HashMap<String, &'static [u8]>");
    }
}
