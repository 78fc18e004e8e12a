//! Globs over one name or word: `*` is any characters, `?` one.

/// A glob that was read. Every text is a glob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Glob {
    text: String,
    /// It has neither stars nor question marks.
    literal: bool,
    /// What stands between the stars, in order; one piece means no star.
    pieces: Vec<Vec<Option<char>>>,
}

impl Glob {
    pub(crate) fn parse(text: &str) -> Self {
        let piece = |piece: &str| piece.chars().map(|c| (c != '?').then_some(c)).collect();
        Self { text: text.to_owned(), literal: !Self::is_glob(text), pieces: text.split('*').map(piece).collect() }
    }

    /// Whether a text has something that makes it a glob.
    pub(crate) fn is_glob(text: &str) -> bool {
        text.contains(['*', '?'])
    }

    /// The text, if it stands for itself.
    pub(crate) fn literal(&self) -> Option<&str> {
        self.literal.then_some(self.text.as_str())
    }

    /// Whether it is `*` alone.
    pub(crate) fn is_any(&self) -> bool {
        self.text == "*"
    }

    pub(crate) fn is_match(&self, text: &str) -> bool {
        if let Some(literal) = self.literal() {
            return literal == text;
        }
        let chars: Vec<char> = text.chars().collect();
        let [first, middle @ .., last] = self.pieces.as_slice() else {
            // No star: as long as the piece, letter by letter.
            return self.pieces.first().is_some_and(|piece| piece.len() == chars.len() && begins(&chars, piece));
        };
        if chars.len() < first.len() + last.len() || !begins(&chars, first) {
            return false;
        }
        let end = chars.len() - last.len();
        if !chars.get(end..).is_some_and(|tail| begins(tail, last)) {
            return false;
        }
        // The earliest place of each piece leaves the most for those after it.
        let mut at = first.len();
        for piece in middle {
            let Some(found) = (at..=end.saturating_sub(piece.len()))
                .find(|from| from + piece.len() <= end && chars.get(*from..).is_some_and(|rest| begins(rest, piece)))
            else {
                return false;
            };
            at = found + piece.len();
        }
        true
    }

    /// The same as a regular expression that matches whole texts.
    pub(crate) fn to_regex(&self) -> String {
        let mut out = String::from("^(?s:");
        for c in self.text.chars() {
            match c {
                '*' => out.push_str(".*"),
                '?' => out.push('.'),
                c => out.push_str(&regex::escape(c.encode_utf8(&mut [0; 4]))),
            }
        }
        out.push_str(")$");
        out
    }
}

fn begins(chars: &[char], piece: &[Option<char>]) -> bool {
    chars.len() >= piece.len() && chars.iter().zip(piece).all(|(c, wanted)| wanted.is_none_or(|wanted| wanted == *c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks() {
        let fits = |glob: &str, text: &str| Glob::parse(glob).is_match(text);
        assert!(fits("*", "") && fits("**", "x") && fits("a*", "a") && fits("*a", "bba") && fits("a?c", "aéc"));
        assert!(fits("a*b*c", "a-b-b-c") && fits("*mid*", "in the mid dle"));
        assert!(!fits("a*a", "a") && !fits("a?", "a") && !fits("abc", "ab") && !fits("a*b*c", "a-c-b"));
        assert!(!fits("", "x") && fits("", ""));
    }
}
