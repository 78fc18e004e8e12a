//! What is done with a reply: its calls run, wait for a person, or are dropped.
//!
//! The model's confidence head scores the finished reply. Beside it stands one cheap check of the model's worst habit: it
//! writes numbers that nobody gave, or loses some that were. Such arguments are filled once more, copied from the request.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;

use serde_json::{Map, Value};

use toolwright_core::rank::words;

use super::engine::{Engine, Reply, Turn};
use super::prompt::{Said, ToolText};
use super::{LocalError, closing};

/// From here up calls run; below, they are doubtful.
pub(crate) const ACT: f32 = 0.32;
/// From here up a doubtful call is put before a person, provided that the request shares a word with the tool; other doubtful
/// calls are dropped.
pub(crate) const ASK: f32 = 0.15;

/// A tool on offer.
#[derive(Clone, Debug)]
pub struct Offer {
    /// What the model reads.
    pub text: ToolText,
    /// Whether the tool changes nothing, so that a doubtful call of it may run unasked.
    pub read_only: bool,
}

/// What is to be answered.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// Today's date, such as `2026-11-30`.
    pub today: Option<&'a str>,
    /// The tools on offer.
    pub tools: &'a [Offer],
    /// What was said, oldest first; the first is a request, the last a request or results.
    pub said: &'a [Said],
}

/// A call to be made.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// The tool's name.
    pub name: String,
    /// The arguments as compact JSON.
    pub arguments: String,
    /// Why a person should confirm the call first, unless the tool is read-only.
    pub doubt: Option<String>,
}

/// What is answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// The model's reasoning.
    pub think: String,
    /// The calls to be made.
    pub calls: Vec<Asked>,
    /// What to say when there are none.
    pub text: String,
    /// How sure the model is.
    pub confidence: Option<f32>,
    /// Tokens read and written.
    pub tokens: (usize, usize),
}

/// Says that no tool fits.
const DECLINED: &str =
    "None of my tools fits that request. I am a small local model that only calls tools; name another model for anything else.";

/// Answers `question`. Blocks for about half a second, a little longer when arguments are filled again.
pub fn answer(engine: &Engine, question: &Question<'_>, cancel: &AtomicBool) -> Result<Answer, LocalError> {
    let request = question.said.iter().rev().find_map(|said| match said {
        Said::Request(text) => Some(text.as_str()),
        _ => None,
    });
    let request = request.unwrap_or_default();
    let facts = question.today.filter(|_| leans_on_today(request)).and_then(date_fact);
    let tools: Vec<ToolText> = question.tools.iter().map(|offer| offer.text.clone()).collect();
    let turn = Turn { facts: facts.as_deref(), tools: &tools, said: question.said, only_copy: None };
    let mut reply = engine.turn(&turn, cancel)?;
    drop_empty(&mut reply, &tools);

    let first = matches!(question.said.last(), Some(Said::Request(_)));
    let sources = sources(question.said, facts.as_deref());
    let mut doubt = doubt(&reply, request, &sources, first);
    if doubt.is_some() && first && !reply.calls.is_empty() {
        let called: Vec<ToolText> = tools.iter().filter(|tool| reply.calls.iter().any(|(name, _)| name == tool.name())).cloned().collect();
        if let Some(mut spans) = spans(request).filter(|_| called.len() == 1 && reply.calls.len() == 1) {
            // Where there is only one argument to fill, all numbers of the request belong into it.
            if called.iter().all(|tool| texts(tool.parameters()) == 1) {
                let all: Vec<String> = numbers(request);
                spans.retain(|span| all.iter().all(|n| numbers(span).contains(n)));
            }
            let turn = Turn { only_copy: Some((&called, &spans)), ..turn };
            let mut copied = engine.turn(&turn, cancel)?;
            drop_empty(&mut copied, &tools);
            reply.tokens_read += copied.tokens_read;
            reply.tokens_written += copied.tokens_written;
            if !copied.calls.is_empty() && self::doubt(&copied, request, &sources, first).is_none() {
                reply.calls = copied.calls;
                doubt = None;
            }
        }
    }

    let mut answer = Answer {
        think: std::mem::take(&mut reply.think),
        confidence: reply.confidence,
        tokens: (reply.tokens_read, reply.tokens_written),
        ..Answer::default()
    };
    let confidence = reply.confidence.unwrap_or(1.0);
    if confidence < ACT && first {
        reply.calls.retain(|(name, _)| confidence >= ASK && tools.iter().any(|tool| tool.name() == name && shares_word(tool, request)));
    }
    if confidence >= ASK {
        let unsure = (confidence < ACT).then(|| format!("the local model is not sure of this call (confidence {confidence:.2})"));
        let doubt = unsure.or(doubt);
        // A call that this exchange has made already brings nothing new; a small model that repeats itself is done.
        let calls = reply.calls.drain(..).filter(|call| !made_before(question.said, call));
        answer.calls = calls.map(|(name, arguments)| Asked { name, arguments, doubt: doubt.clone() }).collect();
    }
    if answer.calls.is_empty() {
        answer.text = closing::closing(&reply.text, request, question.said).unwrap_or_else(|| DECLINED.to_owned());
    }
    Ok(answer)
}

/// An optional text argument that is empty says nothing, and a tool may take it for a value.
fn drop_empty(reply: &mut Reply, tools: &[ToolText]) {
    for (name, arguments) in &mut reply.calls {
        let Some(tool) = tools.iter().find(|tool| tool.name() == name) else { continue };
        let Ok(Value::Object(fields)) = serde_json::from_str::<Value>(arguments) else { continue };
        let required = |key: &str| {
            tool.parameters().get("required").and_then(Value::as_array).is_some_and(|required| required.iter().any(|r| r == key))
        };
        let kept: Map<String, Value> = fields
            .into_iter()
            .filter(|(key, value)| required(key) || !matches!(value, Value::String(text) if text.trim().is_empty()))
            .collect();
        *arguments = Value::Object(kept).to_string();
    }
}

/// Whether `request` and what is said of `tool` have a telling word in common.
fn shares_word(tool: &ToolText, request: &str) -> bool {
    let schema = tool.parameters().get("properties").and_then(Value::as_object).into_iter().flatten();
    let fields: Vec<&str> =
        schema.flat_map(|(name, schema)| std::iter::once(name.as_str()).chain(schema.get("description").and_then(Value::as_str))).collect();
    let about = words(&format!("{} {} {}", tool.name(), tool.description(), fields.join(" ")));
    words(request).iter().any(|word| about.contains(word))
}

/// How many free texts a schema's properties are.
fn texts(parameters: &Value) -> usize {
    let properties = parameters.get("properties").and_then(Value::as_object).into_iter().flatten();
    properties.filter(|(_, schema)| schema.get("type").is_some_and(|t| t == "string") && schema.get("enum").is_none()).count()
}

/// Whether this exchange has made `call` and it did not fail.
fn made_before(said: &[Said], call: &(String, String)) -> bool {
    let made = |calls: &str| {
        let calls = serde_json::from_str::<Value>(calls).ok();
        let calls = calls.as_ref().and_then(Value::as_array).into_iter().flatten();
        calls.into_iter().any(|made| {
            made.get("name").is_some_and(|name| name == call.0.as_str())
                && made.get("arguments").is_some_and(|arguments| *arguments.to_string() == call.1)
        })
    };
    let mut replies = said.windows(2);
    replies.any(|pair| match pair {
        [Said::Reply { calls: Some(calls), .. }, Said::Results(results)] => made(calls) && !results.iter().any(|result| result.failed),
        _ => false,
    })
}

/// Whether a request is about a day that only today's date tells. The model mistakes a date it is told for one it was asked
/// about, so it is told today's date only then: told always, it got 7 weekday questions of 50 wrong that it gets right.
fn leans_on_today(request: &str) -> bool {
    const CUES: [&str; 20] = [
        "today",
        "tonight",
        "tomorrow",
        "yesterday",
        "next",
        "this",
        "coming",
        "now",
        "ago",
        "in",
        "last",
        "monday",
        "tuesday",
        "wednesday",
        "thursday",
        "friday",
        "saturday",
        "sunday",
        "weekend",
        "date",
    ];
    let words: Vec<String> = request.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase).collect();
    let has = |word: &str| words.iter().any(|w| w == word);
    let has_year = words.iter().any(|word| word.len() == 4 && word.chars().all(|c| c.is_ascii_digit()));
    // "in" counts only before a span of days: "in two weeks".
    let span = has("in") && ["day", "days", "week", "weeks", "month", "months", "year", "years"].iter().any(|unit| has(unit));
    !has_year && (span || CUES.iter().any(|cue| *cue != "in" && has(cue)))
}

/// `date: 2026-11-30 Mon`, the form the model was trained on.
fn date_fact(today: &str) -> Option<String> {
    let mut parts = today.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Days since 1 March of year 0, whose weekday was a Wednesday: a year that begins in March ends with its leap day.
    let (year, month) = if month < 3 { (year - 1, month + 9) } else { (year, month - 3) };
    let days = 365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + (153 * month + 2) / 5 + day - 1;
    let names = ["Wed", "Thu", "Fri", "Sat", "Sun", "Mon", "Tue"];
    let name = names.get(usize::try_from(days.rem_euclid(7)).ok()?)?;
    Some(format!("date: {today} {name}"))
}

/// Everything numbers may come from, besides the request.
fn sources(said: &[Said], facts: Option<&str>) -> String {
    let mut sources = vec![facts.unwrap_or_default()];
    for said in said {
        match said {
            Said::Request(text) => sources.push(text),
            Said::Results(results) => sources.extend(results.iter().map(|result| result.text.as_str())),
            Said::Reply { .. } => {}
        }
    }
    sources.join("\n")
}

/// Why the arguments may not be what was asked for.
fn doubt(reply: &Reply, request: &str, sources: &str, first: bool) -> Option<String> {
    if reply.calls.is_empty() {
        return None;
    }
    let written = reply.calls.iter().map(|(_, arguments)| arguments.as_str()).collect::<Vec<_>>().join(" ");
    let given: String = sources.chars().filter(char::is_ascii_digit).collect();
    if !given.is_empty() {
        let implied = implied(sources);
        let unknown = numbers(&written).into_iter().find(|n| !given.contains(n.as_str()) && !implied.contains(n));
        if let Some(number) = unknown {
            return Some(format!("nothing in the request says {number}"));
        }
    }
    let used: String = written.chars().filter(char::is_ascii_digit).collect();
    // An hour after noon may be written as the one of the 24 that it is.
    let afternoon = |n: &str| n.parse::<u32>().ok().map(|hour| (hour + 12).to_string()).filter(|hour| implied(request).contains(hour));
    let is_used = |n: &str| used.contains(n) || afternoon(n).is_some_and(|hour| used.contains(&hour));
    let left_out = numbers(request).into_iter().find(|n| first && !is_used(n));
    left_out.map(|number| format!("the call leaves out {number}"))
}

/// Runs of digits, without leading zeros.
fn numbers(text: &str) -> Vec<String> {
    let runs = text.split(|c: char| !c.is_ascii_digit()).filter(|run| !run.is_empty());
    runs.map(|run| run.trim_start_matches('0').to_owned()).filter(|run| !run.is_empty()).collect()
}

/// Numbers that words in `text` stand for: months, hours after noon, small numbers.
fn implied(text: &str) -> BTreeSet<String> {
    const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    const SMALL: [&str; 13] = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"];
    let mut implied = BTreeSet::new();
    let lower = text.to_lowercase();
    let words: Vec<&str> = lower.split(|c: char| !c.is_alphanumeric()).collect();
    for word in &words {
        for (number, month) in (1..).zip(MONTHS) {
            if word.starts_with(month) {
                implied.insert(number.to_string());
            }
        }
        if let Some(number) = SMALL.iter().position(|small| small == word) {
            implied.insert(number.to_string());
        }
    }
    if lower.contains("pm") || lower.contains("p.m") || lower.contains("evening") || lower.contains("afternoon") {
        implied.extend(numbers(text).iter().filter_map(|n| n.parse::<u32>().ok()).filter(|n| *n < 12).map(|n| (n + 12).to_string()));
    }
    implied
}

/// The longest request whose spans are offered for copying, in words, and the longest span.
const COPY_WORDS: (usize, usize) = (32, 12);

/// Every run of words of the request, without the punctuation around it.
fn spans(request: &str) -> Option<Vec<String>> {
    let words: Vec<&str> = request.split_whitespace().collect();
    if words.is_empty() || words.len() > COPY_WORDS.0 {
        return None;
    }
    let mut spans = Vec::new();
    for start in 0..words.len() {
        for end in start + 1..=words.len().min(start + COPY_WORDS.1) {
            let span = words.get(start..end).unwrap_or_default().join(" ");
            let span = span.trim_matches(|c: char| matches!(c, '"' | '\'' | '?' | '!' | ',' | ';' | ':' | '.')).to_owned();
            if !span.is_empty() && !spans.contains(&span) {
                spans.push(span);
            }
        }
    }
    Some(spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_names_its_weekday() {
        assert_eq!(date_fact("2026-11-30").as_deref(), Some("date: 2026-11-30 Mon"));
        assert_eq!(date_fact("1999-12-31").as_deref(), Some("date: 1999-12-31 Fri"));
        assert_eq!(date_fact("2024-02-29").as_deref(), Some("date: 2024-02-29 Thu"));
        assert_eq!(date_fact("soon"), None);
        assert_eq!(date_fact("2024-13-01"), None);
    }

    #[test]
    fn today_is_told_only_when_a_request_leans_on_it() {
        assert!(leans_on_today("Put lunch into my calendar for tomorrow"));
        assert!(leans_on_today("What is the date in two weeks?"));
        assert!(!leans_on_today("What day of the week was 31 December 1999?"));
        assert!(!leans_on_today("What's the weather in Paris?"));
    }

    fn reply(arguments: &str) -> Reply {
        Reply { calls: vec![("tool".into(), arguments.into())], ..Reply::default() }
    }

    #[test]
    fn numbers_come_from_the_request_and_all_of_them_are_used() {
        let check = |request: &str, arguments: &str| doubt(&reply(arguments), request, request, true).is_none();
        assert!(check("What day was 31 December 1999?", r#"{"date":"1999-12-31"}"#));
        assert!(check("What day was 8 May 1945?", r#"{"date":"8 May 1945"}"#));
        assert!(!check("What day was 31 December 1999?", r#"{"date":"2024-12-31"}"#));
        assert!(!check("What day was 4 July 1976?", r#"{"date":"1976"}"#));
        assert!(!check("What is 17 times 23?", r#"{"expression":"17"}"#));
        assert!(check("Convert 1,200 JPY", r#"{"amount":1200}"#));
        assert!(check("Call Ann at 3 pm", r#"{"time":"15:00"}"#));
        assert!(check("A timer of ten minutes", r#"{"minutes":10}"#));
    }

    #[test]
    fn spans_are_runs_of_words() {
        let spans = spans("Was it \"8 May\"?").unwrap();
        assert!(spans.contains(&"8 May".to_owned()));
        assert!(spans.contains(&"it".to_owned()));
        assert!(super::spans(&"word ".repeat(40)).is_none());
    }
}
