//! Reading a query: from text to its tree, with an error that says what and where.

use super::{Node, Phrase, Query, QueryError, Word, fold, words};

/// How many words may stand between those of a `NEAR` that does not say.
const NEAR: usize = 10;

#[derive(Clone, Debug, PartialEq)]
enum Token {
    /// A word without quotes.
    Bare(String),
    /// What stood in quotes.
    Quoted(String),
    And,
    Or,
    Not,
    Open,
    Close,
    Plus,
    Star,
    Caret,
    Comma,
}

/// A token, and the character it begins at, from 1.
type At = (usize, Token);

pub(super) fn parse(text: &str) -> Result<Query, QueryError> {
    if text.len() > Query::MAX {
        return Err(error(1, format!("it is {} bytes long; use at most {}", text.len(), Query::MAX)));
    }
    let tokens = tokens(text)?;
    let end = text.chars().count() + 1;
    let mut parser = Parser { tokens: &tokens, next: 0, end, words: Vec::new(), phrases: Vec::new(), count: 0, depth: 0 };
    if tokens.is_empty() {
        return Err(error(1, "it is empty; write a word to search for"));
    }
    let root = parser.any()?;
    if let Some((at, token)) = parser.peek() {
        return Err(unexpected(*at, token));
    }
    Ok(Query { words: parser.words, phrases: parser.phrases, root })
}

fn error(at: usize, problem: impl Into<String>) -> QueryError {
    QueryError { at, problem: problem.into() }
}

fn unexpected(at: usize, token: &Token) -> QueryError {
    let problem = match token {
        Token::And | Token::Or | Token::Not => {
            let word = match token {
                Token::And => "AND",
                Token::Or => "OR",
                _ => "NOT",
            };
            format!("`{word}` stands between two things to search for; to search for the word, write it small or in double quotes")
        }
        Token::Open => "`(` may not stand here; put it in double quotes if you search for text that holds it".to_owned(),
        Token::Close => "`)` closes nothing".to_owned(),
        Token::Plus => "`+` stands between two words or phrases".to_owned(),
        Token::Star => "`*` stands directly after a word or a phrase, for words that begin so".to_owned(),
        Token::Caret => "`^` stands before a word or a phrase outside `NEAR`".to_owned(),
        Token::Comma => "`,` stands only in `NEAR(a b, 5)`; put it in double quotes if you search for text that holds it".to_owned(),
        Token::Bare(word) | Token::Quoted(word) => format!("{word:?} may not stand here"),
    };
    error(at, problem)
}

fn is_bare(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_' || !character.is_ascii()
}

fn tokens(text: &str) -> Result<Vec<At>, QueryError> {
    let mut tokens = Vec::new();
    let mut characters = text.chars().enumerate().map(|(index, character)| (index + 1, character)).peekable();
    while let Some((at, character)) = characters.next() {
        let token = match character {
            ' ' | '\t' | '\n' | '\r' => continue,
            '(' => Token::Open,
            ')' => Token::Close,
            '+' => Token::Plus,
            '*' => Token::Star,
            '^' => Token::Caret,
            ',' => Token::Comma,
            '"' => {
                let mut quoted = String::new();
                loop {
                    match characters.next() {
                        None => return Err(error(at, "the double quote is never closed")),
                        Some((_, '"')) if characters.next_if(|(_, next)| *next == '"').is_some() => quoted.push('"'),
                        Some((_, '"')) => break,
                        Some((_, character)) => quoted.push(character),
                    }
                }
                Token::Quoted(quoted)
            }
            character if is_bare(character) => {
                let mut bare = String::from(character);
                while let Some((_, character)) = characters.next_if(|(_, next)| is_bare(*next)) {
                    bare.push(character);
                }
                match bare.as_str() {
                    "AND" => Token::And,
                    "OR" => Token::Or,
                    "NOT" => Token::Not,
                    _ => Token::Bare(bare),
                }
            }
            ':' | '{' | '}' => {
                return Err(error(
                    at,
                    format!(
                        "column filters (`name: word`) are not supported, since a text has no columns; put text that holds `{character}` in double quotes"
                    ),
                ));
            }
            other => {
                let shown = if other.is_control() { other.escape_unicode().to_string() } else { other.to_string() };
                return Err(error(at, format!("`{shown}` may not stand outside double quotes; write \"...\" around text that holds it")));
            }
        };
        tokens.push((at, token));
    }
    Ok(tokens)
}

struct Parser<'a> {
    tokens: &'a [At],
    next: usize,
    /// One character behind the query's last.
    end: usize,
    words: Vec<Word>,
    phrases: Vec<Phrase>,
    /// Words so far, repeated ones each time.
    count: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a At> {
        self.tokens.get(self.next)
    }

    /// Takes the next token if it is this one.
    fn take(&mut self, wanted: &Token) -> bool {
        let there = self.peek().is_some_and(|(_, token)| token == wanted);
        self.next += usize::from(there);
        there
    }

    /// `a OR b`, the loosest.
    fn any(&mut self) -> Result<Node, QueryError> {
        let mut nodes = vec![self.all()?];
        while self.take(&Token::Or) {
            nodes.push(self.all()?);
        }
        Ok(single(nodes, Node::Any))
    }

    fn all(&mut self) -> Result<Node, QueryError> {
        let mut nodes = vec![self.without()?];
        while self.take(&Token::And) {
            nodes.push(self.without()?);
        }
        Ok(single(nodes, Node::All))
    }

    fn without(&mut self) -> Result<Node, QueryError> {
        let node = self.side_by_side()?;
        let mut others = Vec::new();
        while self.take(&Token::Not) {
            others.push(self.side_by_side()?);
        }
        Ok(if others.is_empty() { node } else { Node::Without(Box::new(node), others) })
    }

    /// What only stands side by side: both, the tightest.
    fn side_by_side(&mut self) -> Result<Node, QueryError> {
        let mut nodes = vec![self.one()?];
        while let Some((_, Token::Bare(_) | Token::Quoted(_) | Token::Open | Token::Caret)) = self.peek() {
            nodes.push(self.one()?);
        }
        Ok(single(nodes, Node::All))
    }

    fn one(&mut self) -> Result<Node, QueryError> {
        let Some((at, token)) = self.peek() else {
            return Err(error(self.end, "a word to search for is missing"));
        };
        match token {
            Token::Open => {
                self.next += 1;
                self.depth += 1;
                if self.depth > Query::MAX_DEPTH {
                    return Err(error(*at, format!("it is nested more than {} deep", Query::MAX_DEPTH)));
                }
                if self.peek().is_some_and(|(_, token)| *token == Token::Close) {
                    return Err(error(*at, "nothing stands between the parentheses"));
                }
                let node = self.any()?;
                self.close(*at)?;
                self.depth -= 1;
                Ok(node)
            }
            Token::Caret => {
                self.next += 1;
                self.phrase(true).map(Node::Phrase)
            }
            Token::Bare(word) if matches!(self.tokens.get(self.next + 1), Some((open, Token::Open)) if *open == at + word.chars().count() || word == "NEAR") =>
            {
                if word != "NEAR" {
                    return Err(error(*at, format!("`{word}(` is no function; the only one is `NEAR(a b, 5)`, in capitals")));
                }
                self.next += 2;
                self.near(*at)
            }
            _ => self.phrase(false).map(Node::Phrase),
        }
    }

    fn close(&mut self, opened: usize) -> Result<(), QueryError> {
        match self.peek() {
            Some((_, Token::Close)) => {
                self.next += 1;
                Ok(())
            }
            Some((at, token)) => Err(unexpected(*at, token)),
            None => Err(error(opened, "the parenthesis is never closed")),
        }
    }

    /// After `NEAR(`.
    fn near(&mut self, began: usize) -> Result<Node, QueryError> {
        let mut phrases = Vec::new();
        while let Some((_, Token::Bare(_) | Token::Quoted(_))) = self.peek() {
            let phrase = self.phrase(false)?;
            // Said twice, it is there as soon as it is there once.
            if !phrases.contains(&phrase) {
                phrases.push(phrase);
            }
        }
        if phrases.is_empty() {
            return Err(match self.peek() {
                Some((at, token)) if *token != Token::Close => unexpected(*at, token),
                _ => error(began, "`NEAR` has nothing to search for; write `NEAR(a b, 5)`"),
            });
        }
        let mut within = NEAR;
        if self.take(&Token::Comma) {
            let number = match self.peek() {
                Some((_, Token::Bare(digits))) if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().ok(),
                _ => None,
            };
            let at = self.peek().map_or(self.end, |(at, _)| *at);
            let number: Option<u32> = number;
            within = number.ok_or_else(|| error(at, "after the comma of `NEAR` stands a whole number of words"))? as usize;
            self.next += 1;
        }
        self.close(began)?;
        Ok(Node::Near { phrases, within })
    }

    /// A phrase: what is quoted or stands alone, perhaps joined by `+`; its index.
    fn phrase(&mut self, first: bool) -> Result<usize, QueryError> {
        let mut found = Vec::new();
        loop {
            let (at, text) = match self.peek() {
                Some((at, Token::Bare(text) | Token::Quoted(text))) => (*at, text),
                Some((at, token)) => return Err(unexpected(*at, token)),
                None => return Err(error(self.end, "a word to search for is missing")),
            };
            self.next += 1;
            let from = found.len();
            for (_, word) in words(text) {
                let mut folded = String::new();
                fold(word, &mut folded);
                found.push(Word { text: folded, prefix: false });
            }
            if found.len() == from {
                return Err(error(at, format!("{text:?} holds no word; words are made of letters and digits")));
            }
            self.count += found.len() - from;
            if self.count > Query::MAX_WORDS {
                return Err(error(at, format!("it has more than {} words", Query::MAX_WORDS)));
            }
            if self.take(&Token::Star)
                && let Some(last) = found.last_mut()
            {
                last.prefix = true;
            }
            if !self.take(&Token::Plus) {
                break;
            }
        }
        let words = found.into_iter().map(|word| index_of(&mut self.words, word)).collect();
        Ok(index_of(&mut self.phrases, Phrase { words, first }))
    }
}

/// One node stands for itself.
fn single(mut nodes: Vec<Node>, many: fn(Vec<Node>) -> Node) -> Node {
    match nodes.pop() {
        Some(only) if nodes.is_empty() => only,
        Some(last) => {
            nodes.push(last);
            many(nodes)
        }
        None => many(nodes),
    }
}

/// Where the thing stands in the list, which it joins if it is new.
fn index_of<T: PartialEq>(list: &mut Vec<T>, thing: T) -> usize {
    list.iter().position(|known| *known == thing).unwrap_or_else(|| {
        list.push(thing);
        list.len() - 1
    })
}
