//! The sentence that closes an exchange.
//!
//! The model's own sentence is sensible most of the time and wrong some of the time, so it is kept only when it says what the
//! results say; otherwise a plain sentence is made from the results.

use serde_json::Value;

use super::prompt::Said;

/// The most values of one result that a plain sentence names.
const MOST_VALUES: usize = 12;
/// The longest text of one result that is repeated, in characters.
const MOST_TEXT: usize = 1200;

/// What to say: the model's `text` if it can be trusted, a plain sentence from the last results otherwise; `None` when there
/// are neither results nor text.
pub(crate) fn closing(text: &str, request: &str, said: &[Said]) -> Option<String> {
    let results: Vec<&super::prompt::Outcome> = said
        .iter()
        .filter_map(|said| match said {
            Said::Results(results) => Some(results),
            _ => None,
        })
        .flatten()
        .collect();
    if results.is_empty() {
        return (!text.is_empty()).then(|| text.to_owned());
    }
    let told: Vec<Value> =
        results.iter().map(|result| serde_json::from_str(&result.text).unwrap_or_else(|_| Value::String(result.text.clone()))).collect();
    let ok = !text.is_empty() && !results.iter().any(|result| result.failed) && told.iter().all(|result| says(text, request, result));
    if ok && adds_nothing(text, request, &told) {
        return Some(text.to_owned());
    }
    let sentences: Vec<String> = results
        .iter()
        .zip(&told)
        .map(|(result, told)| {
            let plain = sentence(told);
            if result.failed {
                format!("{} failed: {plain}", result.tool)
            } else if results.len() > 1 {
                format!("{}: {plain}", result.tool)
            } else {
                plain
            }
        })
        .collect();
    Some(sentences.join("\n"))
}

/// Whether `text` names what is new in `result`: a value that the request did not have already. A short result must be named
/// whole, a long one somewhere.
fn says(text: &str, request: &str, result: &Value) -> bool {
    let mut values = Vec::new();
    collect(result, &mut values);
    let mut new: Vec<String> = values.into_iter().filter(|value| !contains(request, value) && !is_date_of(value, request)).collect();
    new.dedup();
    if new.is_empty() {
        return true;
    }
    let named = new.iter().filter(|value| contains(text, value)).count();
    if new.len() <= 2 { named == new.len() } else { named > 0 }
}

/// Whether every number and every day's name in `text` stands in the request or a result.
fn adds_nothing(text: &str, request: &str, told: &[Value]) -> bool {
    let known = told.iter().fold(request.to_lowercase(), |known, value| format!("{known} {}", value.to_string().to_lowercase()));
    let days = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
    let lower = text.to_lowercase();
    // "18C" is the number 18, "24th" the number 24.
    let mut numbers = lower.split(|c: char| !c.is_ascii_digit()).map(|number| number.trim_start_matches('0'));
    let mut named = lower.split(|c: char| !c.is_alphabetic()).filter(|word| days.contains(word));
    numbers.all(|number| known.contains(number)) && named.all(|day| known.contains(day))
}

/// The scalar values in `value`, as they are written.
fn collect(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::Null | Value::Bool(_) => {}
        Value::Number(number) => into.push(number.to_string()),
        Value::String(text) => into.push(text.trim().to_owned()),
        Value::Array(items) => items.iter().for_each(|item| collect(item, into)),
        Value::Object(fields) => fields.values().for_each(|field| collect(field, into)),
    }
}

fn contains(text: &str, value: &str) -> bool {
    text.to_lowercase().contains(&value.to_lowercase())
}

/// Whether `value` is an ISO date whose year and day the request gave in another form.
fn is_date_of(value: &str, request: &str) -> bool {
    let parts: Vec<&str> = value.split('-').collect();
    let [year, month, day] = parts.as_slice() else { return false };
    let digits = [year, month, day].iter().all(|part| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit()));
    digits && request.contains(year) && request.contains(day.trim_start_matches('0'))
}

/// `result` as a plain sentence or a short list.
fn sentence(result: &Value) -> String {
    match result {
        Value::Null => "Done.".into(),
        Value::String(text) if text.trim().is_empty() => "Done.".into(),
        Value::String(text) => toolwright_core::bounded(text.trim(), MOST_TEXT),
        Value::Bool(_) | Value::Number(_) => format!("The result is {result}."),
        Value::Object(fields) if !fields.is_empty() && fields.values().all(|field| !field.is_object() && !field.is_array()) => {
            let named = fields.iter().filter(|(_, field)| !field.is_null()).take(MOST_VALUES);
            let named: Vec<String> = named.map(|(name, field)| format!("{} is {}", words(name), scalar(field))).collect();
            match named.split_last() {
                None => "Done.".into(),
                Some((only, [])) => format!("The {only}."),
                Some((last, rest)) => format!("The {} and the {last}.", rest.join(", the ")),
            }
        }
        other => toolwright_core::bounded(&other.to_string(), MOST_TEXT),
    }
}

fn scalar(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A field's name as words: `dayName` and `day_name` are `day name`.
fn words(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        match c {
            '_' | '-' => out.push(' '),
            upper if upper.is_uppercase() => {
                if !out.is_empty() && !out.ends_with(' ') {
                    out.push(' ');
                }
                out.extend(upper.to_lowercase());
            }
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::prompt::Outcome;
    use super::*;

    fn close(text: &str, request: &str, result: &str) -> String {
        let outcome = Outcome { tool: "tool".into(), text: result.into(), failed: false };
        closing(text, request, &[Said::Request(request.into()), Said::Results(vec![outcome])]).unwrap()
    }

    const DAY: &str = r#"{"date":"1999-12-31","day":"Friday"}"#;
    const WHICH: &str = "What day of the week was 31 December 1999?";

    #[test]
    fn a_sentence_that_says_what_the_result_says_is_kept() {
        assert_eq!(close("31 December 1999 was a Friday.", WHICH, DAY), "31 December 1999 was a Friday.");
        assert_eq!(
            close("It's 18C and cloudy in Paris.", "Weather in Paris?", r#"{"temp":18,"sky":"cloudy"}"#),
            "It's 18C and cloudy in Paris."
        );
    }

    #[test]
    fn a_sentence_without_the_result_is_replaced() {
        let plain = "The date is 1999-12-31 and the day is Friday.";
        assert_eq!(close("The day of the week was 31 December 1999.", WHICH, DAY), plain);
        assert_eq!(close("", WHICH, DAY), plain);
    }

    #[test]
    fn a_sentence_that_makes_things_up_is_replaced() {
        assert_eq!(close("It was a Friday, not a Monday.", WHICH, DAY), "The date is 1999-12-31 and the day is Friday.");
        assert_eq!(close("18 now, 25 tomorrow.", "Weather?", r#"{"degrees":18}"#), "The degrees is 18.");
    }

    #[test]
    fn plain_texts_and_odd_results_are_repeated() {
        assert_eq!(close("", "Read it", "hello\nworld"), "hello\nworld");
        assert_eq!(close("", "Do it", "null"), "Done.");
        assert_eq!(close("", "List", "[1,2]"), "[1,2]");
    }

    #[test]
    fn a_failure_is_told_as_one() {
        let outcome = Outcome { tool: "read_file".into(), text: "no such file".into(), failed: true };
        let said = [Said::Request("Read a.txt".into()), Said::Results(vec![outcome])];
        assert_eq!(closing("Here it is.", "Read a.txt", &said).unwrap(), "read_file failed: no such file");
    }
}
