//! Strict JSON text to a [`Value`].
//!
//! Models write this text, so the reader differs from `serde_json` where a model's text could otherwise come to mean something else:
//! an integer beyond 64 bits is an error and not a rounded number, a key given twice is an error and not the last one, and half of a
//! surrogate pair becomes U+FFFD and is reported, because a string that can't be sent again would brick a thread.

use std::fmt;

use serde_json::{Map, Number, Value};

/// How deep arrays and objects may stand in each other.
pub const MAX_DEPTH: usize = 128;

/// Longest piece of the text that an error quotes, in bytes.
const QUOTE: usize = 48;

/// Where a value stands in a document, from the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A property of an object.
    Key(String),
    /// An item of an array.
    Index(usize),
}

/// A dotted path: `files.0.path`; the root is empty.
pub fn dotted(steps: &[Step]) -> String {
    let mut out = String::new();
    for step in steps {
        if !out.is_empty() {
            out.push('.');
        }
        match step {
            Step::Key(key) => out.push_str(key),
            Step::Index(index) => {
                use fmt::Write as _;
                // Writing to a String can't fail.
                let _ = write!(out, "{index}");
            }
        }
    }
    out
}

/// A string in which half of a surrogate pair was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// Where the string stands; for a key, the path of the property it names.
    pub path: Vec<Step>,
    /// The string between its quotes as it was written, escapes included.
    pub written: String,
    /// What was read, with U+FFFD for each lone half.
    pub read: String,
}

/// What was read from a text.
#[derive(Clone, Debug)]
pub struct Document {
    /// The value, keys in the order written.
    pub value: Value,
    /// Strings with half of a surrogate pair.
    pub replaced: Vec<Replaced>,
    /// Whether any number has a fraction or an exponent.
    pub has_floats: bool,
}

/// Text that is not one JSON value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem} at line {line} column {column}")]
pub struct SyntaxError {
    problem: String,
    offset: usize,
    line: usize,
    column: usize,
}

impl SyntaxError {
    /// What is wrong, without the position.
    pub fn problem(&self) -> &str {
        &self.problem
    }

    /// Position in bytes, from 0.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Line, from 1.
    pub fn line(&self) -> usize {
        self.line
    }

    /// Column in characters, from 1.
    pub fn column(&self) -> usize {
        self.column
    }
}

/// Reads a text that holds exactly one JSON value; white space and a byte order mark around it are tolerated.
pub fn read(text: &str) -> Result<Document, SyntaxError> {
    read_within(text, MAX_DEPTH)
}

/// Like [`read`], for a text that stands inside a value: at most `depth` levels may open.
pub(crate) fn read_within(text: &str, depth: usize) -> Result<Document, SyntaxError> {
    let mut reader = Reader { text, bytes: text.as_bytes(), at: 0, replaced: Vec::new(), has_floats: false };
    match reader.document(depth) {
        Ok(value) => Ok(Document { value, replaced: reader.replaced, has_floats: reader.has_floats }),
        Err(Problem { at, what }) => Err(locate(text, at, what)),
    }
}

/// Whether arrays and objects stand at most `depth` deep in a value.
pub fn is_within(value: &Value, depth: usize) -> bool {
    match value {
        Value::Array(items) => depth > 0 && items.iter().all(|item| is_within(item, depth - 1)),
        Value::Object(map) => depth > 0 && map.values().all(|item| is_within(item, depth - 1)),
        _ => true,
    }
}

/// SHA-256 of a JSON text's value with the keys of its objects in order, in hexadecimal: equal for texts that differ in white space
/// or in the order of keys (sdk-tools 11.2/4). Of a text that is no JSON, the hash of the text.
pub fn sorted_hash(text: &str) -> String {
    match serde_json::from_str::<Value>(text) {
        Ok(mut value) => {
            value.sort_all_objects();
            crate::text::sha256_hex(value.to_string().as_bytes())
        }
        Err(_) => crate::text::sha256_hex(text.as_bytes()),
    }
}

fn locate(text: &str, at: usize, problem: String) -> SyntaxError {
    let before = crate::text::cut(text, at);
    let line = before.bytes().filter(|b| *b == b'\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    SyntaxError { problem, offset: at, line, column }
}

struct Problem {
    at: usize,
    what: String,
}

type Read<T> = Result<T, Problem>;

struct Reader<'t> {
    text: &'t str,
    bytes: &'t [u8],
    at: usize,
    replaced: Vec<Replaced>,
    has_floats: bool,
}

impl Reader<'_> {
    fn document(&mut self, depth: usize) -> Read<Value> {
        if self.text.starts_with('\u{feff}') {
            self.at = '\u{feff}'.len_utf8();
        }
        self.space();
        if self.peek().is_none() {
            return self.fail("the text is empty");
        }
        let value = self.value(depth)?;
        self.space();
        match self.peek() {
            None => Ok(value),
            Some(_) => self.fail("text goes on after the JSON value"),
        }
    }

    #[inline]
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    #[inline]
    fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    #[cold]
    fn fail<T>(&self, what: impl Into<String>) -> Read<T> {
        Err(Problem { at: self.at, what: what.into() })
    }

    #[cold]
    fn wanted<T>(&self, what: &str) -> Read<T> {
        match self.text.get(self.at..).and_then(|rest| rest.chars().next()) {
            None => self.fail(format!("the text ends where {what} was expected")),
            Some(found) => self.fail(format!("{found:?} stands where {what} was expected")),
        }
    }

    fn value(&mut self, depth: usize) -> Read<Value> {
        match self.peek() {
            Some(b'"') => self.string().map(Value::String),
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => self.word("null", Value::Null),
            _ => self.wanted("a value"),
        }
    }

    fn word(&mut self, word: &str, value: Value) -> Read<Value> {
        if self.bytes.get(self.at..).is_some_and(|rest| rest.starts_with(word.as_bytes())) {
            self.at += word.len();
            return Ok(value);
        }
        self.wanted("a value")
    }

    fn object(&mut self, depth: usize) -> Read<Value> {
        let Some(depth) = depth.checked_sub(1) else { return self.too_deep() };
        self.at += 1;
        let mut map = Map::new();
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Value::Object(map));
        }
        loop {
            if self.peek() != Some(b'"') {
                return self.wanted(if map.is_empty() { "a quoted key or `}`" } else { "a quoted key" });
            }
            let key_at = self.at;
            let replaced = self.replaced.len();
            let key = self.string()?;
            self.space();
            if self.peek() != Some(b':') {
                return self.wanted("`:`");
            }
            self.at += 1;
            self.space();
            let value = self.value(depth)?;
            if self.replaced.len() > replaced {
                self.standing_under(replaced, &Step::Key(key.clone()));
            }
            match map.entry(key) {
                serde_json::map::Entry::Vacant(slot) => {
                    slot.insert(value);
                }
                serde_json::map::Entry::Occupied(slot) => {
                    let key = crate::text::cut(slot.key(), QUOTE);
                    return Err(Problem { at: key_at, what: format!("the key {key:?} is given twice") });
                }
            }
            self.space();
            match self.peek() {
                Some(b',') => {
                    self.at += 1;
                    self.space();
                }
                Some(b'}') => {
                    self.at += 1;
                    return Ok(Value::Object(map));
                }
                _ => return self.wanted("`,` or `}`"),
            }
        }
    }

    fn array(&mut self, depth: usize) -> Read<Value> {
        let Some(depth) = depth.checked_sub(1) else { return self.too_deep() };
        self.at += 1;
        let mut items = Vec::new();
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Value::Array(items));
        }
        loop {
            let replaced = self.replaced.len();
            let item = self.value(depth)?;
            if self.replaced.len() > replaced {
                self.standing_under(replaced, &Step::Index(items.len()));
            }
            items.push(item);
            self.space();
            match self.peek() {
                Some(b',') => {
                    self.at += 1;
                    self.space();
                }
                Some(b']') => {
                    self.at += 1;
                    return Ok(Value::Array(items));
                }
                _ => return self.wanted("`,` or `]`"),
            }
        }
    }

    #[cold]
    fn too_deep<T>(&self) -> Read<T> {
        self.fail(format!("arrays and objects stand more than {MAX_DEPTH} deep"))
    }

    /// Paths are built on the way out, so that text without surrogates pays nothing for them.
    #[cold]
    fn standing_under(&mut self, from: usize, step: &Step) {
        for replaced in self.replaced.iter_mut().skip(from) {
            replaced.path.insert(0, step.clone());
        }
    }

    fn string(&mut self) -> Read<String> {
        self.at += 1;
        let start = self.at;
        self.plain();
        match self.peek() {
            // Most strings have no escapes: one copy.
            Some(b'"') => {
                let text = self.text.get(start..self.at).unwrap_or_default().to_owned();
                self.at += 1;
                Ok(text)
            }
            _ => self.escaped(start),
        }
    }

    /// Moves to the next quote, backslash or control character.
    #[inline]
    fn plain(&mut self) {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        self.at += rest.iter().position(|b| matches!(b, b'"' | b'\\' | 0..=0x1f)).unwrap_or(rest.len());
    }

    fn escaped(&mut self, start: usize) -> Read<String> {
        let mut out = String::new();
        let mut copied = start;
        let mut lone = false;
        loop {
            self.plain();
            // Stops are ASCII, so every cut stands between characters.
            out.push_str(self.text.get(copied..self.at).unwrap_or_default());
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => {
                    let (c, whole) = self.escape()?;
                    lone |= !whole;
                    out.push(c);
                }
                Some(control) => return self.fail(format!("the control character U+{control:04X} stands unescaped in a string")),
                None => return self.fail("the text ends inside a string"),
            }
            copied = self.at;
        }
        if lone {
            let written = self.text.get(start..self.at).unwrap_or_default().to_owned();
            self.replaced.push(Replaced { path: Vec::new(), written, read: out.clone() });
        }
        self.at += 1;
        Ok(out)
    }

    /// One escape, and whether it stood for a whole character.
    fn escape(&mut self) -> Read<(char, bool)> {
        let c = match self.bytes.get(self.at + 1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(),
            None => {
                self.at = self.bytes.len();
                return self.fail("the text ends inside a string");
            }
            Some(_) => {
                let c = self.text.get(self.at + 1..).and_then(|rest| rest.chars().next()).unwrap_or('\\');
                return self.fail(format!("`\\{}` is no JSON escape", c.escape_debug()));
            }
        };
        self.at += 2;
        Ok((c, true))
    }

    fn unicode(&mut self) -> Read<(char, bool)> {
        let Some(first) = self.hex(self.at + 2) else {
            return self.fail("`\\u` needs four hexadecimal digits");
        };
        self.at += 6;
        if let Some(c) = char::from_u32(first) {
            return Ok((c, true));
        }
        let is_high = first < 0xDC00;
        if is_high
            && self.bytes.get(self.at) == Some(&b'\\')
            && self.bytes.get(self.at + 1) == Some(&b'u')
            && let Some(second @ 0xDC00..=0xDFFF) = self.hex(self.at + 2)
        {
            self.at += 6;
            let code = 0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00);
            return Ok((char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), true));
        }
        Ok((char::REPLACEMENT_CHARACTER, false))
    }

    fn hex(&self, at: usize) -> Option<u32> {
        let digits = self.bytes.get(at..at + 4)?;
        digits.iter().try_fold(0, |code, digit| Some(code * 16 + char::from(*digit).to_digit(16)?))
    }

    fn number(&mut self) -> Read<Value> {
        let start = self.at;
        let negative = self.peek() == Some(b'-');
        if negative {
            self.at += 1;
        }
        let first = self.at;
        // `None` once the integer is beyond 64 bits.
        let mut integer = Some(0_u64);
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            integer = integer.and_then(|n| n.checked_mul(10)?.checked_add(u64::from(digit - b'0')));
            self.at += 1;
        }
        match self.at - first {
            0 => return self.wanted("a digit"),
            1 => {}
            _ if self.bytes.get(first) == Some(&b'0') => {
                self.at = start;
                return self.fail("a number has a leading zero");
            }
            _ => {}
        }
        if let Some(b'.' | b'e' | b'E') = self.peek() {
            return self.float(start);
        }
        let number = match (negative, integer) {
            (false, Some(n)) => Some(Number::from(n)),
            // The negative zero is a float: no integer has a sign at zero.
            (true, Some(0)) => Number::from_f64(-0.0),
            (true, Some(n)) => 0_i64.checked_sub_unsigned(n).map(Number::from),
            (_, None) => None,
        };
        let Some(number) = number else {
            let what = format!("the integer {} is beyond 64 bits", self.quoted(start));
            return Err(Problem { at: start, what });
        };
        self.has_floats |= number.is_f64();
        Ok(Value::Number(number))
    }

    #[cold]
    fn quoted(&self, start: usize) -> String {
        let written = self.text.get(start..self.at).unwrap_or_default();
        let shown = crate::text::cut(written, QUOTE);
        if shown.len() < written.len() { format!("{shown}...") } else { shown.to_owned() }
    }

    fn float(&mut self, start: usize) -> Read<Value> {
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        let written = self.text.get(start..self.at).unwrap_or_default();
        let number = written.parse().ok().and_then(Number::from_f64);
        let Some(number) = number else {
            let what = format!("the number {} is too large", self.quoted(start));
            return Err(Problem { at: start, what });
        };
        self.has_floats = true;
        Ok(Value::Number(number))
    }

    fn digits(&mut self) -> Read<()> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at == start { self.wanted("a digit") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value(text: &str) -> Value {
        read(text).unwrap().value
    }

    fn problem(text: &str) -> String {
        read(text).unwrap_err().to_string()
    }

    #[test]
    fn reads_every_kind_of_value() {
        let text = "\u{feff} {\"a\" : [1, -2, 0.5, 1E3, true, false, null], \"\\u00e9\\n\": {}, \"e\": []}\n";
        assert_eq!(value(text).to_string(), r#"{"a":[1,-2,0.5,1000.0,true,false,null],"é\n":{},"e":[]}"#);
    }

    // case: field-reports 52
    #[test]
    fn integers_are_exact_or_refused() {
        for exact in ["2512292042121000001", "18446744073709551615", "-9223372036854775808", "9007199254740993"] {
            assert_eq!(value(exact).to_string(), exact);
        }
        assert_eq!(problem(r#"{"id": 18446744073709551616}"#), "the integer 18446744073709551616 is beyond 64 bits at line 1 column 8");
        assert!(problem("-9223372036854775809").contains("-9223372036854775809"));
        assert!(problem(&"9".repeat(1000)).len() < 120);
        assert!(problem("1e400").contains("1e400 is too large"));
        assert!(value("1e30").is_f64());
    }

    // case: field-reports 50
    #[test]
    fn half_a_surrogate_pair_is_replaced_and_reported() {
        let document = read(r#"{"l":[{"d":"현\ud99c 보유"}],"ok":"\ud83d\ude00"}"#).unwrap();
        assert_eq!(document.value["l"][0]["d"], "현\u{fffd} 보유");
        assert_eq!(document.value["ok"], "\u{1F600}");
        assert_eq!(document.replaced.len(), 1);
        assert_eq!(dotted(&document.replaced[0].path), "l.0.d");
        assert_eq!(document.replaced[0].written, r"현\ud99c 보유");
        assert_eq!(value(r#""\udc00\ud800\ud83d\ude00""#), "\u{fffd}\u{fffd}\u{1F600}");
        assert_eq!(dotted(&read(r#"{"\ud800":1}"#).unwrap().replaced[0].path), "\u{fffd}");
    }

    #[test]
    fn what_means_two_things_is_refused() {
        assert_eq!(problem(r#"{"a":1,"b":2,"a":3}"#), "the key \"a\" is given twice at line 1 column 14");
    }

    // case: field-reports 14
    #[test]
    fn errors_say_where_and_what() {
        for (text, said) in [
            (r#"{"location": "Paris""#, "the text ends where `,` or `}` was expected at line 1 column 21"),
            ("{\"a\": 1,\n \"b\" 2}", "'2' stands where `:` was expected at line 2 column 6"),
            ("{} {}", "text goes on after the JSON value at line 1 column 4"),
            ("[1,]", "']' stands where a value was expected at line 1 column 4"),
            ("{\"a\":1,}", "'}' stands where a quoted key was expected at line 1 column 8"),
            ("{a:1}", "'a' stands where a quoted key or `}` was expected at line 1 column 2"),
            ("", "the text is empty at line 1 column 1"),
            ("nul", "'n' stands where a value was expected at line 1 column 1"),
            ("04", "a number has a leading zero at line 1 column 1"),
            ("1.", "the text ends where a digit was expected at line 1 column 3"),
            ("\"a\nb\"", "the control character U+000A stands unescaped in a string at line 1 column 3"),
            (r#""\x""#, "`\\x` is no JSON escape at line 1 column 2"),
            (r#""\u12""#, "`\\u` needs four hexadecimal digits at line 1 column 2"),
            (r#""abc"#, "the text ends inside a string at line 1 column 5"),
            (r#""abc\"#, "the text ends inside a string at line 1 column 6"),
        ] {
            assert_eq!(problem(text), said, "{text}");
        }
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(read(&nested(MAX_DEPTH)).is_ok());
        assert!(problem(&nested(MAX_DEPTH + 1)).contains("128 deep"));
        assert!(read(&"[{\"a\":".repeat(1_000_000)).is_err());
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_filter_map("finite", |f| Number::from_f64(f).map(Value::Number)),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::vec((any::<String>(), inner), 0..5).prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
            ]
        })
    }

    /// Text that is nearly JSON: tokens in any order.
    fn nearly_json() -> impl Strategy<Value = String> {
        let token = prop_oneof![
            prop::sample::select(vec![
                "{", "}", "[", "]", ",", ":", "\"", "\\", "\\u", "d83d", "\\ude00", "null", "true", "fals", "0", "12", "-", ".", "e", "+",
                " ", "\n", "\"a\"", "\"a\":", "é", "\u{feff}", "\t", "\u{1}",
            ])
            .prop_map(str::to_owned),
            any::<char>().prop_map(String::from),
        ];
        prop::collection::vec(token, 0..12).prop_map(|tokens| tokens.concat())
    }

    fn agrees_with_serde(text: &str) {
        let ours = read(text);
        let Ok(theirs) = serde_json::from_str::<Value>(text) else { return };
        match ours {
            Ok(document) => assert!(same(&document.value, &theirs), "{text}"),
            Err(error) => assert!(error.problem().contains("beyond 64 bits") || error.problem().contains("twice"), "{text}: {error}"),
        }
    }

    /// Equal, but for the last digit of a float: `serde_json` reads floats fast, ours exactly.
    fn same(a: &Value, b: &Value) -> bool {
        match (a, b) {
            (Value::Number(a), Value::Number(b)) if a.is_f64() || b.is_f64() => {
                let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
                (a - b).abs() <= 1e-15 * b.abs()
            }
            (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
            (Value::Object(a), Value::Object(b)) => a.len() == b.len() && a.iter().zip(b).all(|((ka, a), (kb, b))| ka == kb && same(a, b)),
            _ => a == b,
        }
    }

    proptest! {
        #[test]
        fn reads_back_what_is_written(value in json()) {
            for text in [serde_json::to_string(&value).unwrap(), serde_json::to_string_pretty(&value).unwrap()] {
                prop_assert_eq!(&read(&text).unwrap().value, &value);
            }
        }

        #[test]
        fn never_panics_and_agrees(text in nearly_json(), any in any::<String>()) {
            agrees_with_serde(&text);
            agrees_with_serde(&any);
        }

        #[test]
        fn agrees_on_cut_and_changed_text(value in json(), at in any::<prop::sample::Index>(), by in any::<char>()) {
            let text = value.to_string();
            let cut = crate::text::cut(&text, at.index(text.len() + 1));
            agrees_with_serde(cut);
            agrees_with_serde(&format!("{cut}{by}{}", text.strip_prefix(cut).unwrap()));
        }
    }
}
