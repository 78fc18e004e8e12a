//! The query language of full-text search: what matches, where, and what is refused with which words.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use std::time::{Duration, Instant};

use proptest::prelude::*;
use toolwright_core::query::{MAX_HITS, MAX_LINE, Query};

fn query(text: &str) -> Query {
    Query::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The numbers of the lines that are hit.
fn lines(text: &str, in_text: &str) -> Vec<usize> {
    let hits = query(text).matches(in_text);
    assert_eq!(query(text).is_match(in_text), !hits.is_empty(), "{text}");
    hits.into_iter().map(|hit| hit.line).collect()
}

fn refused(text: &str) -> (usize, String) {
    let error = Query::parse(text).expect_err(text);
    (error.at, error.problem)
}

const NOTES: &str = "The annual budget of 2026\nis a draft.\n\nTravel: 1,200 EUR (see budgets/old.csv)\nLunch with Zoë at Café Ünal\n";

// rule: standard-agents FIL-8
#[test]
fn what_each_form_matches() {
    for (text, wanted) in [
        ("budget", vec![1]),
        ("BUDGET", vec![1]),
        ("budg*", vec![1, 4]),
        ("budg", vec![]),
        ("\"annual budget\"", vec![1]),
        ("\"budget annual\"", vec![]),
        ("annual + budget", vec![1]),
        ("\"annual bud\" *", vec![1]),
        ("ann* + budget", vec![1]),
        ("\"2026 is a\"", vec![1]),
        ("^the", vec![1]),
        ("^ \"the annual\"", vec![1]),
        ("^annual", vec![]),
        ("annual travel", vec![1, 4]),
        ("annual AND travel", vec![1, 4]),
        ("annual AND nothing", vec![]),
        ("nothing OR travel", vec![4]),
        ("annual OR travel", vec![1, 4]),
        ("budget NOT draft", vec![]),
        ("budget NOT final", vec![1]),
        ("budget NOT final NOT draft", vec![]),
        ("NEAR(annual draft)", vec![1, 2]),
        ("NEAR(annual draft, 3)", vec![]),
        ("NEAR(annual draft, 5)", vec![1, 2]),
        ("NEAR (draft annual, 5)", vec![1, 2]),
        ("NEAR(\"annual budget\" \"a draft\", 3)", vec![1, 2]),
        ("near", vec![]),
        ("NEAR", vec![]),
        ("and", vec![]),
        ("cafe", vec![5]),
        ("CAFÉ", vec![5]),
        ("unal zoe", vec![5]),
        ("\"budgets/old.csv\"", vec![4]),
        ("1200", vec![]),
        ("\"1,200\"", vec![4]),
    ] {
        assert_eq!(lines(text, NOTES), wanted, "{text}");
    }
}

// rule: standard-agents FIL-8
#[test]
fn operators_bind_as_in_fts5() {
    // Side by side, then NOT, then AND, then OR.
    for (text, document, wanted) in [
        ("a OR b AND c", "a", true),
        ("(a OR b) AND c", "a", false),
        ("a OR b c", "a", true),
        ("(a OR b) c", "a", false),
        ("(a OR b) c", "b c", true),
        ("a NOT b c", "a b", true),
        ("a NOT b c", "a b c", false),
        ("a NOT b AND c", "a c", true),
        ("a NOT b AND c", "a b c", false),
        ("a AND b NOT c", "a b c", false),
        ("a OR b NOT c", "a c", true),
        ("a NOT (b OR c)", "a c", false),
        ("a NOT (b NOT c)", "a b c", true),
        ("((((a))))", "a", true),
    ] {
        assert_eq!(query(text).is_match(document), wanted, "{text} in {document}");
    }
}

#[test]
fn words_are_words_in_every_script() {
    for (text, document, wanted) in [
        // One mark or two characters, capital or small.
        ("cafe\u{301}", "café", true),
        ("й", "и\u{306}", true),
        ("и", "й", false),
        ("ΣΊΣΥΦΟΣ", "σίσυφος", true),
        ("straße", "STRAßE", true),
        ("kelvin", "\u{212a}elvin", true),
        ("ısı", "isi", false),
        // A vowel sign is part of its word.
        ("हिन्दी", "यह हिन्दी है", true),
        ("हिन", "यह हिन्दी है", false),
        // A script without spaces is one word until something separates.
        ("東京*", "東京都に行く", true),
        ("京都", "東京都に行く", false),
        ("東京", "東京、大阪", true),
        // Symbols separate.
        ("don", "don't", true),
        ("\"don't\"", "don t", true),
        ("foo_bar", "foo bar", true),
        ("c", "C++", true),
        ("x", "x👍y", true),
        ("\u{201c}quoted words\u{201d}", "words, quoted", true),
    ] {
        assert_eq!(query(text).is_match(document), wanted, "{text} in {document}");
    }
}

// rule: standard-agents FIL-8
#[test]
fn a_hit_shows_its_line_and_number() {
    let hits = query("draft OR lunch").matches("one\r\na draft\r\nthree\nLunch draft draft\nlast");
    let shown: Vec<(usize, &str)> = hits.iter().map(|hit| (hit.line, hit.text.as_str())).collect();
    assert_eq!(shown, [(2, "a draft"), (4, "Lunch draft draft")]);
    // Only what makes the text match is shown: not the words of an alternative that fails.
    assert_eq!(lines("(one AND nothing) OR three", "one\ntwo\nthree"), [3]);
    // Only the places that stand together.
    assert_eq!(lines("NEAR(a b, 0)", "a\nx\na b\nx\nb x a\n"), [3]);
    assert_eq!(lines("NEAR(a b a, 1)", "a\nb\na\nx x x\na\n"), [1, 2, 3]);
}

#[test]
fn a_long_line_is_shown_around_its_hit() {
    let line = format!("{} needle {}", "é".repeat(5000), "w ".repeat(5000));
    let hit = &query("needle").matches(&line)[0];
    assert!(hit.text.chars().count() <= MAX_LINE, "{}", hit.text.chars().count());
    assert!(hit.text.starts_with('…') && hit.text.ends_with('…') && hit.text.contains(" needle w"), "{}", hit.text);
    let many = "needle\n".repeat(1000);
    assert_eq!(query("needle").matches(&many).len(), MAX_HITS);
    assert_eq!(query("needle").matches_up_to(&many, 3).iter().map(|hit| hit.line).collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    for (text, at, part) in [
        ("", 1, "it is empty"),
        ("  ", 1, "it is empty"),
        ("a AND", 6, "a word to search for is missing"),
        ("a AND OR b", 7, "`OR` stands between"),
        ("OR b", 1, "`OR` stands between"),
        ("NOT a", 1, "`NOT` stands between"),
        ("(a", 1, "never closed"),
        ("a)", 2, "closes nothing"),
        ("()", 1, "nothing stands between"),
        ("a \"b", 3, "double quote is never closed"),
        ("title: a", 6, "column filters"),
        ("{a b}: c", 1, "column filters"),
        ("a.b", 2, "`.` may not stand outside double quotes"),
        ("a-b", 2, "`-` may not stand outside double quotes"),
        ("it's", 3, "`'` may not stand outside double quotes"),
        ("a \"...\"", 3, "\"...\" holds no word"),
        ("*", 1, "`*` stands directly after"),
        ("a, b", 2, "`,` stands only in"),
        ("near(a b)", 1, "`near(` is no function"),
        ("NEAR(a b, c)", 11, "a whole number"),
        ("NEAR(a b, 99999999999)", 11, "a whole number"),
        ("NEAR(a b,", 10, "a whole number"),
        ("NEAR()", 1, "`NEAR` has nothing"),
        ("NEAR(a (b))", 8, "`(` may not stand here"),
        ("NEAR(a ^b)", 8, "`^` stands before"),
        ("a + AND", 5, "`AND` stands between"),
        ("ä ö. ü", 4, "`.` may not"),
    ] {
        let (place, problem) = refused(text);
        assert!(place == at && problem.contains(part), "{text}: at {place}: {problem}");
    }
    let said = Query::parse("title: a").unwrap_err().to_string();
    assert_eq!(
        said,
        "the query is not valid at character 6: column filters (`name: word`) are not supported, since a text has no columns; put text that holds `:` in double quotes"
    );
}

#[test]
fn a_query_is_bounded() {
    assert!(refused(&"a".repeat(5000)).1.contains("use at most"));
    assert!(refused(&"a ".repeat(200)).1.contains("more than 128 words"));
    let deep = |levels: usize| format!("{}a{}", "(".repeat(levels), ")".repeat(levels));
    assert!(Query::parse(&deep(32)).is_ok());
    assert!(refused(&deep(33)).1.contains("nested more than 32 deep"));
    assert!(refused(&deep(2000)).1.contains("nested more than 32 deep"));
}

// Texts and queries that are bad for backtracking, for lists of places, and for marks.
#[test]
fn hostile_queries_take_no_longer_than_the_text_is_long() {
    let repeated = "a ".repeat(200_000);
    let runs = "a".repeat(400_000);
    let marks = format!("e{}", "\u{301}\u{327}".repeat(100_000));
    let phrases: Vec<String> = (1..15).map(|length| format!("\"{}\"", "a ".repeat(length))).collect();
    let prefixes: Vec<String> = (1..80).map(|length| format!("{}*", "a".repeat(length))).collect();
    let near = format!("NEAR({}, 4000000000)", "a ".repeat(100));
    let near_none = format!("NEAR({} b, 1)", "a ".repeat(100));
    let begun = Instant::now();
    for text in [phrases.join(" OR "), prefixes.join(" OR "), near, near_none, format!("\"{}b\"", "a ".repeat(100))] {
        let query = query(&text);
        for document in [&repeated, &runs, &marks] {
            query.matches(document);
        }
    }
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

/// What the words of the tiny language of the test below mean, read naively.
fn naive(words: &[&str], document: &[&str]) -> bool {
    document.windows(words.len()).any(|window| window == words)
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in ".{0,80}", document in ".{0,200}") {
        if let Ok(query) = Query::parse(&text) {
            let hits = query.matches(&document);
            prop_assert_eq!(query.is_match(&document), !hits.is_empty());
            for hit in hits {
                prop_assert!(hit.line >= 1 && hit.line <= document.split('\n').count());
            }
        }
    }

    #[test]
    fn queries_of_tokens_are_read_or_refused(
        tokens in prop::collection::vec(prop::sample::select(vec!["a", "b*", "\"a b\"", "AND", "OR", "NOT", "(", ")", "NEAR(", ", 2)", "+", "^", "*"]), 0..20),
    ) {
        match Query::parse(&tokens.join(" ")) {
            Ok(query) => { query.matches("a b a c b"); }
            Err(error) => prop_assert!(error.at >= 1 && error.at <= tokens.join(" ").chars().count() + 1),
        }
    }

    #[test]
    fn a_phrase_is_its_words_in_a_row(
        words in prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 1..5),
        document in prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 0..30),
    ) {
        let query = query(&format!("\"{}\"", words.join(" ")));
        prop_assert_eq!(query.is_match(&document.join("\n")), naive(&words, &document));
        let expected: Vec<usize> = (0..document.len()).filter(|at| document[*at..].starts_with(&words)).map(|at| at + 1).collect();
        let found: Vec<usize> = query.matches(&document.join("\n")).into_iter().map(|hit| hit.line).collect();
        prop_assert_eq!(found, expected);
    }
}
