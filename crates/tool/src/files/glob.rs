//! Globs over paths, by characters, not bytes: `?` is one letter of any script.

use std::sync::Arc;

/// The longest glob, in bytes.
const LONGEST: usize = 1024;
/// The most globs without braces that one with braces stands for.
const MOST: usize = 256;
const DEEPEST: usize = 16;

/// A glob that was read.
#[derive(Debug)]
pub(super) struct Glob {
    /// Whether it speaks of names alone.
    of_names: bool,
    /// What every path that matches begins with.
    prefix: String,
    /// Any of these, each a name after the other.
    any: Vec<Vec<Segment>>,
}

#[derive(Clone, Debug)]
enum Segment {
    /// `**`: any number of names.
    Names,
    Name(Vec<Piece>),
}

#[derive(Clone, Debug)]
enum Piece {
    Is(char),
    /// `?`
    One,
    /// `*`
    Many,
    Class(Arc<Class>),
}

#[derive(Debug)]
struct Class {
    negated: bool,
    ranges: Vec<(char, char)>,
}

/// A piece of a glob as it is written.
#[derive(Clone, Debug)]
enum Token {
    Piece(Piece),
    Slash,
    Open,
    Comma,
    Close,
}

impl Glob {
    /// Reads a glob; an error says what is wrong with it.
    pub(super) fn parse(given: &str) -> Result<Self, String> {
        if given.is_empty() {
            return Err("it is empty; use `**` for everything".to_owned());
        }
        if given.len() > LONGEST {
            return Err(format!("it is longer than {LONGEST} bytes"));
        }
        let tokens = tokens(given.strip_prefix("./").unwrap_or(given))?;
        let of_names = !given.contains('/');
        let mut at = 0;
        let expanded = expand(&tokens, &mut at, 0)?;
        let any: Vec<Vec<Segment>> = expanded.iter().map(|tokens| segments(tokens)).collect();
        let prefix = if of_names { "/".to_owned() } else { prefix(&any) };
        Ok(Self { of_names, prefix, any })
    }

    /// What every path that matches begins with; it ends with `/`.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Whether a path, or the last name in it, matches.
    pub(super) fn is_match(&self, path: &str) -> bool {
        let mut names: Vec<Vec<char>> = Vec::new();
        if self.of_names {
            names.push(path.rsplit('/').next().unwrap_or_default().chars().collect());
        } else {
            names.extend(path.split('/').skip(1).map(|name| name.chars().collect()));
        }
        self.any.iter().any(|segments| all_match(segments, &names))
    }
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        tokens.push(match character {
            '/' => Token::Slash,
            '{' => Token::Open,
            ',' => Token::Comma,
            '}' => Token::Close,
            '?' => Token::Piece(Piece::One),
            '*' => Token::Piece(Piece::Many),
            '[' => Token::Piece(Piece::Class(Arc::new(class(&mut characters)?))),
            '\\' => Token::Piece(Piece::Is(escaped(&mut characters)?)),
            other => Token::Piece(Piece::Is(other)),
        });
    }
    Ok(tokens)
}

fn escaped(characters: &mut impl Iterator<Item = char>) -> Result<char, String> {
    match characters.next() {
        None => Err("nothing stands behind `\\`".to_owned()),
        Some('/') => Err("`/` separates names, it can't be escaped".to_owned()),
        Some(character) => Ok(character),
    }
}

/// After `[`.
fn class(characters: &mut std::iter::Peekable<impl Iterator<Item = char>>) -> Result<Class, String> {
    let negated = characters.next_if(|next| matches!(next, '!' | '^')).is_some();
    let mut ranges = Vec::new();
    let one = |characters: &mut std::iter::Peekable<_>, first: bool| -> Result<Option<char>, String> {
        match Iterator::next(characters) {
            None => Err("`[` is never closed".to_owned()),
            Some('/') => Err("`[...]` is part of a name, so it holds no `/`".to_owned()),
            Some('\\') => escaped(characters).map(Some),
            Some(']') if !first => Ok(None),
            Some(character) => Ok(Some(character)),
        }
    };
    while let Some(low) = one(characters, ranges.is_empty())? {
        if characters.next_if_eq(&'-').is_none() {
            ranges.push((low, low));
        } else if characters.peek() == Some(&']') {
            ranges.extend([(low, low), ('-', '-')]);
        } else {
            let high = one(characters, true)?.unwrap_or(low);
            if high < low {
                return Err(format!("the range `{low}-{high}` goes backwards"));
            }
            ranges.push((low, high));
        }
    }
    Ok(Class { negated, ranges })
}

/// What a glob with braces stands for. Ends behind the brace that closes, or at the end.
fn expand(tokens: &[Token], at: &mut usize, depth: usize) -> Result<Vec<Vec<Token>>, String> {
    if depth > DEEPEST {
        return Err(format!("its braces are nested more than {DEEPEST} deep"));
    }
    let mut alternatives: Vec<Vec<Token>> = Vec::new();
    let mut current: Vec<Vec<Token>> = vec![Vec::new()];
    loop {
        let token = tokens.get(*at);
        *at += 1;
        match token {
            None if depth > 0 => return Err("`{` is never closed".to_owned()),
            Some(Token::Close) if depth == 0 => return Err("`}` closes nothing; write `\\}` for the character".to_owned()),
            None | Some(Token::Close) => {
                alternatives.append(&mut current);
                return Ok(alternatives);
            }
            Some(Token::Comma) if depth > 0 => {
                alternatives.append(&mut current);
                current.push(Vec::new());
            }
            Some(Token::Comma) => current.iter_mut().for_each(|one| one.push(Token::Piece(Piece::Is(',')))),
            Some(Token::Open) => {
                let inner = expand(tokens, at, depth + 1)?;
                if current.len() * inner.len() > MOST {
                    return Err(format!("its braces stand for more than {MOST} globs"));
                }
                current = current.iter().flat_map(|one| inner.iter().map(move |more| [one.as_slice(), more].concat())).collect();
            }
            Some(token) => current.iter_mut().for_each(|one| one.push(token.clone())),
        }
        if alternatives.len() + current.len() > MOST {
            return Err(format!("its braces stand for more than {MOST} globs"));
        }
    }
}

fn segments(tokens: &[Token]) -> Vec<Segment> {
    let mut segments = Vec::new();
    for name in tokens.split(|token| matches!(token, Token::Slash)) {
        let mut pieces: Vec<Piece> = Vec::new();
        for token in name {
            if let Token::Piece(piece) = token {
                pieces.push(piece.clone());
            }
        }
        if pieces.is_empty() {
            continue;
        }
        let stars = pieces.iter().all(|piece| matches!(piece, Piece::Many));
        if stars && pieces.len() > 1 {
            segments.push(Segment::Names);
        } else {
            segments.push(Segment::Name(pieces));
        }
    }
    // What ends with `**` means what is inside, not the directory itself.
    if matches!(segments.last(), Some(Segment::Names)) {
        segments.push(Segment::Name(vec![Piece::Many]));
    }
    segments
}

/// The directory that all of them are in, as far as it is plain.
fn prefix(any: &[Vec<Segment>]) -> String {
    let plain = |segments: &Vec<Segment>| -> Vec<String> {
        let inside = segments.split_last().map(|(_, above)| above).unwrap_or_default();
        let names = inside.iter().map_while(|segment| match segment {
            Segment::Names => None,
            Segment::Name(pieces) => pieces
                .iter()
                .map(|piece| if let Piece::Is(character) = piece { Some(*character) } else { None })
                .collect::<Option<String>>(),
        });
        names.collect()
    };
    let mut all = any.iter().map(plain);
    let mut shared = all.next().unwrap_or_default();
    for names in all {
        let same = shared.iter().zip(&names).take_while(|(a, b)| a == b).count();
        shared.truncate(same);
    }
    shared.iter().fold("/".to_owned(), |prefix, name| format!("{prefix}{name}/"))
}

/// Matches names against segments. Of several `**` only the last one passed is come back to: what stood before it has matched
/// as early as it can.
fn all_match(segments: &[Segment], names: &[Vec<char>]) -> bool {
    let (mut segment, mut name) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    loop {
        match (segments.get(segment), names.get(name)) {
            (None, None) => return true,
            (Some(Segment::Names), _) => {
                segment += 1;
                back = Some((segment, name));
                continue;
            }
            (Some(Segment::Name(pieces)), Some(characters)) if name_matches(pieces, characters) => {
                segment += 1;
                name += 1;
                continue;
            }
            _ => {}
        }
        match &mut back {
            Some((after, from)) if *from < names.len() => {
                *from += 1;
                (segment, name) = (*after, *from);
            }
            _ => return false,
        }
    }
}

/// As [`all_match`], for the characters of one name.
fn name_matches(pieces: &[Piece], name: &[char]) -> bool {
    let (mut piece, mut at) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    loop {
        let fits = match (pieces.get(piece), name.get(at)) {
            (None, None) => return true,
            (Some(Piece::Many), _) => {
                piece += 1;
                back = Some((piece, at));
                continue;
            }
            (Some(Piece::One), Some(_)) => true,
            (Some(Piece::Is(wanted)), Some(character)) => wanted == character,
            (Some(Piece::Class(class)), Some(character)) => {
                class.ranges.iter().any(|(low, high)| (low..=high).contains(&character)) != class.negated
            }
            _ => false,
        };
        if fits {
            piece += 1;
            at += 1;
            continue;
        }
        match &mut back {
            Some((after, from)) if *from < name.len() => {
                *from += 1;
                (piece, at) = (*after, *from);
            }
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_paths() {
        for (glob, path, wanted) in [
            ("/a/*/c", "/a/b/c", true),
            ("/a/*/c", "/a/c", false),
            ("/a/*/c", "/a/b/b/c", false),
            ("/a/**/c", "/a/c", true),
            ("/a/**/c", "/a/b/b/c", true),
            ("/a/**/b/**/c", "/a/b/x/b/y/c", true),
            ("/a/**/b/**/c", "/a/x/y/c", false),
            ("/a/**", "/a", false),
            ("/a/**", "/a/b", true),
            ("**/c", "/c", true),
            ("/a**", "/abc", true),
            ("/a**", "/ab/c", false),
            ("*a*a*b", "/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
            ("*a*a*b", "/x/xaxab", true),
            ("[]x]", "/]", true),
            ("[a-]", "/-", true),
            ("[!]x]", "/y", true),
            ("[^é-ü]", "/ö", false),
            ("[\\]]", "/]", true),
            ("{a,b{c,d},}x", "/bdx", true),
            ("{a,b{c,d},}x", "/x", true),
            ("{a,b{c,d},}x", "/bx", false),
            ("{/a/*,/b/c/*}", "/b/c/d", true),
            ("[,]{a,[}]}", "/,}", true),
            ("a,b", "/a,b", true),
            ("\\*", "/*", true),
            ("\\*", "/a", false),
        ] {
            assert_eq!(Glob::parse(glob).unwrap().is_match(path), wanted, "{glob} {path}");
        }
    }

    #[test]
    fn what_all_that_match_begin_with_is_known() {
        for (glob, wanted) in [
            ("*.md", "/"),
            ("/a/b/*.md", "/a/b/"),
            ("/a/b", "/a/"),
            ("/a/{b/c,b/d}/*", "/a/b/"),
            ("/a/**/c", "/a/"),
            ("{/a/x,/b/x}", "/"),
            ("/\\[a\\]/*", "/[a]/"),
        ] {
            assert_eq!(Glob::parse(glob).unwrap().prefix(), wanted, "{glob}");
        }
    }

    #[test]
    fn what_is_no_glob_is_refused() {
        let many = "{a,b}".repeat(9);
        let deep = format!("{}a{}", "{".repeat(20), "}".repeat(20));
        for glob in ["", "[a", "[", "[a/b]", "{a", "a}", "a\\", "\\/", "[z-a]", &many, &deep, &"a".repeat(2000)] {
            assert!(Glob::parse(glob).is_err(), "{glob}");
        }
    }
}
