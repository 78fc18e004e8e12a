//! Permission rules from files.

use std::path::Path;

use serde_json::Value;
use toolwright::rules::RuleSet;

use crate::problem::Problem;

/// The largest file of rules, in bytes.
const MOST: u64 = 4 << 20;

/// The rules of a file, TOML or JSON by its ending.
pub(crate) fn of_file(path: &Path) -> Result<RuleSet, Problem> {
    let name = path.display().to_string();
    let unreadable = |error: &dyn std::fmt::Display| Problem::usage(format!("the rules in {name} can't be read: {error}"));
    let is_too_long = std::fs::metadata(path).is_ok_and(|file| file.len() > MOST);
    if is_too_long {
        return Err(unreadable(&format!("the file is longer than {} MiB", MOST >> 20)));
    }
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(&error))?;
    let value: Value = match path.extension().and_then(|ending| ending.to_str()) {
        Some("toml") => toml::from_str(&text).map_err(|error| unreadable(&at_line(&text, &error)))?,
        Some("json") => toolwright::core::json::read(&text).map_err(|error| unreadable(&error))?.value,
        _ => return Err(Problem::usage(format!("{name} is no file of rules")).hint("give a file that ends with .toml or .json")),
    };
    RuleSet::from_value(&value, &name).map_err(|wrong| {
        let count = wrong.0.len();
        let sentence = format!("the rules in {name} can't be used: {count} {} wrong", if count == 1 { "thing is" } else { "things are" });
        Problem::usage(sentence).details(wrong.0.into_iter().map(|mut rule| {
            // The sentence names the file.
            rule.source = None;
            rule.to_string()
        }))
    })
}

/// What is wrong, and where, without the drawing of it.
fn at_line(text: &str, error: &toml::de::Error) -> String {
    let what = error.message().lines().collect::<Vec<_>>().join(", ");
    match error.span().and_then(|span| text.get(..span.start)) {
        Some(before) => format!("{what} at line {}", before.matches('\n').count() + 1),
        None => what,
    }
}
