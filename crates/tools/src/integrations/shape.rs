//! What a model gets: few fields, short texts, and always what was left out.

use serde_json::{Map, Value};

/// `text` in at most `max` characters and, where that cuts it, a line that says so.
pub(super) fn shortened(text: &str, max: usize) -> String {
    // Bytes are at least characters, so a short text needs no counting.
    if text.len() <= max {
        return text.to_owned();
    }
    let Some((end, _)) = text.char_indices().nth(max) else { return text.to_owned() };
    let all = text.chars().count();
    format!("{}\n[cut: {max} of {all} characters]", text.get(..end).unwrap_or_default())
}

/// A service's own words in one line of at most `max` characters, for a sentence.
pub(super) fn in_line(text: &str, max: usize) -> String {
    let words: Vec<&str> = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()).collect();
    toolwright_tool::core::bounded(&words.join(" "), max)
}

/// A text at a JSON pointer.
pub(super) fn text<'v>(value: &'v Value, pointer: &str) -> Option<&'v str> {
    value.pointer(pointer).and_then(Value::as_str)
}

/// A text at a JSON pointer, shortened.
pub(super) fn short(value: &Value, pointer: &str, max: usize) -> Value {
    text(value, pointer).map_or(Value::Null, |text| Value::String(shortened(text, max)))
}

/// What stands at a JSON pointer, as it is; null where nothing does.
pub(super) fn at(value: &Value, pointer: &str) -> Value {
    value.pointer(pointer).cloned().unwrap_or_default()
}

/// The items of an array at a JSON pointer.
pub(super) fn items<'v>(value: &'v Value, pointer: &str) -> &'v [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The texts at `inner` of the items of an array at `pointer`.
pub(super) fn texts(value: &Value, pointer: &str, inner: &str) -> Value {
    items(value, pointer).iter().filter_map(|item| text(item, inner)).map(str::to_owned).collect::<Vec<_>>().into()
}

/// Without what is null: a model pays for each field.
pub(super) fn compact(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept: Map<String, Value> =
                fields.into_iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| (name, compact(value))).collect();
            Value::Object(kept)
        }
        Value::Array(items) => Value::Array(items.into_iter().map(compact).collect()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_is_said() {
        assert_eq!(shortened("abc", 3), "abc");
        assert_eq!(shortened("äöü", 3), "äöü");
        assert_eq!(shortened("äöüß", 3), "äöü\n[cut: 3 of 4 characters]");
        assert_eq!(in_line(" a\r\nb\u{7}c  d ", 80), "a b c d");
        assert_eq!(compact(serde_json::json!({ "a": null, "b": [{ "c": null, "d": 1 }] })), serde_json::json!({ "b": [{ "d": 1 }] }));
    }
}
