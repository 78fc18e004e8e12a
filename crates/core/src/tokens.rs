//! How many tokens something is, estimated without any provider's tokenizer.
//!
//! The same text gives the same figure in every version of a provider's model. Where tokenizers differ, the estimate leans to the
//! high side: a request taken for too long is made shorter a little early, one taken for too short is refused by its provider.
//! Measured beside the vocabularies `cl100k` and `o200k`: 1.05 to 1.3 times their figures for prose, code, JSON and logs, 0.8 for
//! base64, up to 3.5 times for scripts that the newer one is good at. Words of random letters come out lowest, at a third.
//!
//! | what | tokens |
//! |---|---|
//! | a word of ASCII letters | 1 up to six letters, then one for every four more; capitals inside a word begin another |
//! | capitals, `LIKE_THIS` | one for every three |
//! | digits | three for every four: some tokenizers give each its own |
//! | punctuation | one for the first two characters, then a half each; a repeated one an eighth |
//! | a single space | none, it belongs to what follows; other white space one, more for long indents |
//! | other alphabets (two bytes in UTF-8) | three quarters a character |
//! | CJK, Indic scripts, typographic marks (three bytes) | one and a quarter a character |
//! | emoji and rare ideographs (four bytes) | three a character |
//! | an image, a file | 1,000 (sdk-runtime MM-3); a file of text that is there as a `data:` address, a quarter of its length if that is more |
//! | a message; a call, a result | 4; 12 beside its name and text |

use serde_json::Value;

use crate::file::BlobRef;
use crate::message::{Item, Message, Part};
use crate::spec::ToolSpec;

/// An image, or a file whose text is not known (sdk-runtime MM-3).
pub const ATTACHMENT: u64 = 1000;

const MESSAGE: u64 = 4;
const CALL: u64 = 12;
const TOOL: u64 = 8;

/// Of a text.
pub fn of_text(text: &str) -> u64 {
    let mut count = Count::default();
    for character in text.chars() {
        count.take(character);
    }
    count.end();
    count.quarters.div_ceil(4)
}

/// Of a JSON value, as the compact text that a model gets.
pub fn of_json(value: &Value) -> u64 {
    match value {
        Value::String(text) => of_text(text).saturating_add(1),
        value => of_text(&value.to_string()),
    }
}

/// Of a tool's definition.
pub fn of_tool(tool: &ToolSpec) -> u64 {
    of_json(&tool.definition()).saturating_add(TOOL)
}

/// Of a message, with everything it holds.
pub fn of_message(message: &Message) -> u64 {
    message.items.iter().map(of_item).fold(MESSAGE, u64::saturating_add)
}

/// Of messages.
pub fn of_messages<'a, M: AsRef<Message> + 'a>(messages: impl IntoIterator<Item = &'a M>) -> u64 {
    messages.into_iter().map(|message| of_message(message.as_ref())).fold(0, u64::saturating_add)
}

/// Of one item of a message.
pub fn of_item(item: &Item) -> u64 {
    match item {
        Item::Text { text } => of_text(text),
        // A signature is not read by a model; encrypted reasoning is.
        Item::Reasoning { text, encrypted, .. } => of_text(text).saturating_add(encrypted.as_ref().map_or(0, of_json)),
        Item::ToolCall(call) => CALL.saturating_add(of_text(&call.name)).saturating_add(of_text(&call.arguments)),
        Item::ToolResult(result) => {
            result.parts.iter().map(of_part).fold(CALL.saturating_add(of_text(&result.tool_name)), u64::saturating_add)
        }
        Item::Image { .. } => ATTACHMENT,
        Item::File { data, mime_type, .. } => of_file(data, mime_type),
        Item::Opaque { value, .. } | Item::Unknown(value) => of_json(value),
    }
}

/// Of one part of a result.
pub fn of_part(part: &Part) -> u64 {
    match part {
        Part::Text { text } => of_text(text),
        Part::Json { value } | Part::Unknown(value) => of_json(value),
        Part::Image { .. } => ATTACHMENT,
        Part::File { data, mime_type, .. } => of_file(data, mime_type),
    }
}

fn of_file(data: &str, mime_type: &str) -> u64 {
    let text = ["text/", "application/json", "application/xml", "application/yaml", "application/x-ndjson"];
    if !text.iter().any(|kind| mime_type.starts_with(kind)) {
        return ATTACHMENT;
    }
    // Content that the thread keeps is sent in base64, which is a third longer.
    let kept = BlobRef::parse(data).and_then(|kept| kept.size).map(|size| size / 3);
    let sent = kept.or_else(|| data.starts_with("data:").then_some(data.len() as u64 / 4));
    ATTACHMENT.max(sent.unwrap_or(0))
}

/// What neighbouring characters have in common.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Run {
    #[default]
    None,
    Lower,
    Upper,
    Digits,
    Symbols,
    Space,
}

/// Quarters of a token so far, and the run that is open.
#[derive(Default)]
struct Count {
    quarters: u64,
    run: Run,
    length: u64,
    /// Of the run, characters that repeat the one before.
    repeated: u64,
    last: char,
}

impl Count {
    fn take(&mut self, character: char) {
        let kind = match character {
            'a'..='z' => Run::Lower,
            'A'..='Z' => Run::Upper,
            '0'..='9' => Run::Digits,
            ' ' | '\t' | '\n' | '\r' => Run::Space,
            '!'..='~' => Run::Symbols,
            _ => {
                self.other(character);
                return;
            }
        };
        // A word may begin with one capital.
        let goes_on = kind == self.run || (kind == Run::Lower && self.run == Run::Upper && self.length == 1);
        if !goes_on {
            self.end();
        }
        self.run = kind;
        self.length += 1;
        if goes_on && character == self.last {
            self.repeated += 1;
        }
        self.last = character;
    }

    /// A character outside ASCII, or a control character.
    fn other(&mut self, character: char) {
        match character.len_utf8() {
            1 => {
                self.end();
                self.quarters += 4;
            }
            // An accented letter stays within its word.
            2 if ('\u{C0}'..='\u{24F}').contains(&character) && matches!(self.run, Run::Lower | Run::Upper) => self.quarters += 3,
            bytes => {
                self.end();
                self.quarters += match bytes {
                    2 => 3,
                    3 => 5,
                    _ => 12,
                };
            }
        }
        self.last = character;
    }

    fn end(&mut self) {
        let (length, fresh) = (self.length, self.length - self.repeated);
        self.quarters += match self.run {
            Run::None => 0,
            Run::Lower => 4 + length.saturating_sub(6) + length.saturating_sub(16),
            Run::Upper => (length * 4).div_ceil(3).max(4),
            Run::Digits => (length * 3).max(4),
            Run::Symbols => 4 + fresh.saturating_sub(2) * 2 + self.repeated / 2,
            Run::Space if length == 1 && self.last == ' ' => 0,
            Run::Space => 4 + length / 4,
        };
        (self.run, self.length, self.repeated) = (Run::None, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_code_and_other_scripts_are_near_what_tokenizers_say_and_never_far_below() {
        // Beside what `o200k` and `cl100k` say.
        for (text, fewer, more) in [
            ("", 0, 0),
            ("Hello, world!", 4, 4),
            ("The quick brown fox jumps over the lazy dog.", 10, 10),
            ("internationalization of user interfaces", 5, 5),
            (r#"{"city":"Berlin","temperature":21.5,"unit":"C"}"#, 15, 15),
            ("fn main() { println!(\"{}\", 1 + 1); }", 13, 13),
            ("3141592653", 4, 4),
            ("https://example.com/a/b?c=1&d=2", 14, 14),
            ("5f4dcc3b5aa765d61d8327deb882cf99", 18, 18),
            ("TG9yZW0gaXBzdW0gZG9sb3Igc2l0IGFtZXQsIGNvbnNlY3RldHVy", 34, 38),
            ("\u{65E5}\u{672C}\u{8A9E}\u{306E}\u{6587}\u{7AE0}\u{3067}\u{3059}\u{3002}", 6, 8),
            ("\u{41F}\u{440}\u{438}\u{432}\u{435}\u{442}, \u{43C}\u{438}\u{440}", 4, 6),
            ("\u{1F600}\u{1F600}", 2, 4),
            ("        let x = 1;\n        let y = 2;\n", 14, 14),
        ] {
            let estimated = of_text(text);
            assert!(estimated * 10 >= fewer * 7 && estimated <= more * 2, "{text}: {estimated}, where others say {fewer} to {more}");
        }
        assert!(of_text(&"-".repeat(1000)) < 250);
    }

    #[test]
    fn an_estimate_is_linear_enough_to_add_up() {
        let line = "A line of plain text with 12 words, and a number.\n";
        let (one, many) = (of_text(line), of_text(&line.repeat(1000)));
        assert!(many.abs_diff(one * 1000) <= 1000, "{one} {many}");
        assert!(of_text(&"\u{4E2D}".repeat(1000)) >= 1000);
        assert!(of_text(&"x".repeat(100_000)) >= 25_000);
    }

    // As sdk-runtime MM-3 counts it.
    #[test]
    fn an_image_costs_a_thousand_however_long_its_address_is() {
        let long = format!("data:image/png;base64,{}", "A".repeat(1_000_000));
        let image = Part::Image { image: long.clone(), mime_type: None };
        assert_eq!(of_part(&image), 1000);
        assert_eq!(of_item(&Item::Image { image: long, mime_type: None }), 1000);
        let file = |data: &str, mime: &str| of_part(&Part::File { data: data.to_owned(), mime_type: mime.to_owned(), filename: None });
        assert_eq!(file("https://example.com/a.pdf", "application/pdf"), 1000);
        // A file of text is as long as its text.
        assert_eq!(file(&format!("data:text/plain;base64,{}", "A".repeat(1_000_000)), "text/plain"), 250_005);
        let id = crate::file::BlobId::of(b"");
        let kept = |size| BlobRef { id: id.clone(), size, media_type: None }.to_string();
        assert_eq!((file(&kept(Some(750_000)), "text/plain"), file(&kept(Some(750_000)), "application/pdf")), (250_000, 1000));
        assert_eq!(file(&kept(None), "text/plain"), 1000);
    }
}
