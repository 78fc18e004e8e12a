//! The query language beside FTS5 itself: random queries over random texts hit the same ones.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use rusqlite::{Connection, params};
use toolwright_core::query::Query;

/// A generator whose numbers are the same on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }

    fn one<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }
}

/// Few words, so that they meet. With diacritics, capitals, digits and scripts that both tokenizers read alike.
const WORDS: [&str; 16] =
    ["a", "A", "b", "ab", "abc", "café", "CAFE", "cafe\u{301}", "Ünal", "7", "x2", "слово", "СЛОВО", "λόγος", "東京", "東京都"];
const BETWEEN: [&str; 10] = [" ", " ", " ", "\n", ", ", ".", "-", " 👍 ", "\u{a0}", "_"];

fn document(random: &mut Random) -> String {
    let mut text = String::new();
    for _ in 0..random.below(14) {
        text.push_str(random.one(&WORDS));
        text.push_str(random.one(&BETWEEN));
    }
    text
}

fn phrase(random: &mut Random) -> String {
    let quoted = |random: &mut Random| {
        let words: Vec<&str> = (0..=random.below(3)).map(|_| random.one(&WORDS)).collect();
        format!("\"{}\"", words.join(random.one(&[" ", "-", ". ", "\"\""])))
    };
    let mut text = if random.below(3) == 0 { quoted(random) } else { random.one(&WORDS).to_owned() };
    if random.below(6) == 0 {
        text = format!("{text} + {}", quoted(random));
    }
    match random.below(5) {
        0 => format!("{text}*"),
        1 => format!("{text} *"),
        _ => text,
    }
}

/// A query of the grammar that both have: `AND` is only implied between phrases and groups, not beside parentheses.
fn query(random: &mut Random, depth: usize) -> String {
    match random.below(if depth == 0 { 4 } else { 9 }) {
        0 | 1 => phrase(random),
        2 => format!("^{}", phrase(random)),
        3 => {
            let phrases: Vec<String> = (0..=random.below(3)).map(|_| phrase(random)).collect();
            let within = if random.below(2) == 0 { format!(", {}", random.below(5)) } else { String::new() };
            format!("NEAR({}{within})", phrases.join(" "))
        }
        4 => {
            let plain: Vec<String> = (0..2 + random.below(2)).map(|_| query(random, 0)).collect();
            plain.join(" ")
        }
        5 => format!("({})", query(random, depth - 1)),
        _ => {
            let operator = random.one(&["AND", "OR", "NOT"]);
            format!("{} {operator} {}", query(random, depth - 1), query(random, depth - 1))
        }
    }
}

fn fts5(documents: &[String]) -> Connection {
    let database = Connection::open_in_memory().unwrap();
    database.execute("CREATE VIRTUAL TABLE texts USING fts5(text, tokenize = 'unicode61 remove_diacritics 2')", []).unwrap();
    for (number, text) in documents.iter().enumerate() {
        database.execute("INSERT INTO texts (rowid, text) VALUES (?1, ?2)", params![i64::try_from(number).unwrap(), text]).unwrap();
    }
    database
}

fn theirs(database: &Connection, query: &str) -> Result<Vec<usize>, rusqlite::Error> {
    let mut statement = database.prepare_cached("SELECT rowid FROM texts WHERE texts MATCH ?1 ORDER BY rowid")?;
    let rows = statement.query_map([query], |row| row.get::<_, i64>(0))?;
    rows.map(|row| row.map(|number| usize::try_from(number).unwrap())).collect()
}

fn ours(documents: &[String], query: &Query) -> Vec<usize> {
    (0..documents.len()).filter(|number| query.is_match(&documents[*number])).collect()
}

// rule: standard-agents FIL-8
#[test]
fn the_same_texts_are_hit() {
    let mut random = Random(7);
    let (mut compared, mut hit) = (0, 0);
    for _ in 0..12 {
        let documents: Vec<String> = (0..40).map(|_| document(&mut random)).collect();
        let database = fts5(&documents);
        for _ in 0..200 {
            let text = query(&mut random, 3);
            let read = Query::parse(&text);
            match (theirs(&database, &text), &read) {
                (Ok(theirs), Ok(read)) => {
                    let ours = ours(&documents, read);
                    let differ = ours.iter().chain(&theirs).find(|number| ours.contains(number) != theirs.contains(number));
                    assert_eq!(ours, theirs, "{text} over {:?}", differ.map(|number| &documents[*number]));
                    compared += 1;
                    hit += ours.len();
                }
                // We take more: an implied AND beside parentheses.
                (Err(_), Ok(_)) => {}
                (theirs, Err(error)) => panic!("{text}: {error}, where FTS5 says {theirs:?}"),
            }
        }
    }
    assert!(compared > 2_000 && hit > 4_000, "{compared} queries compared, {hit} hits");
}

// What FTS5 refuses, we refuse too, but for what the language's description names.
#[test]
fn the_same_queries_are_refused() {
    let database = fts5(&["a b c".to_owned()]);
    for text in [
        "a AND",
        "AND a",
        "OR",
        "a OR OR b",
        "NOT a",
        "(a",
        "a)",
        "()",
        "\"a",
        "a.b",
        "a-b",
        "it's",
        "*",
        "a + ",
        "+ a",
        "a, b",
        "NEAR(a b, x)",
        "NEAR()",
        "NEAR(a (b))",
        "NEAR(a ^b)",
        "a AND NOT b",
        "{a",
        "a:b",
        "text : : a",
        "^",
        "^^a",
        "a(b)",
        "near(a b)",
        "a; b",
        "a = b",
        "a\u{1}b",
    ] {
        assert!(Query::parse(text).is_err(), "{text} is read");
        assert!(theirs(&database, text).is_err(), "{text} is read by FTS5");
    }
    for text in ["a", "\"a b\"", "a*", "a AND b NOT x", "NEAR(a c, 1)", "(a OR b) AND c", "^a", "a + b", "NEAR (a b)", "and", "near"] {
        assert!(Query::parse(text).is_ok(), "{text} is refused");
        assert!(theirs(&database, text).is_ok(), "{text} is refused by FTS5");
    }
}
