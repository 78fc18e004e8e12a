//! The JSON of a chat completion, whole or in chunks, as servers really send it.
//!
//! Every field may be absent, null or of another type than documented; then it reads as absent. What a server may have invented is kept
//! as raw JSON where it could carry content. Nothing here builds a tree of values for the fields that come with every chunk.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Methods of a visitor for all types that read as absent.
macro_rules! else_absent {
    ($($method:ident)+) => {
        $(else_absent!(@ $method);)+
    };
    (@ unit) => {
        fn visit_unit<E>(self) -> Result<Self::Value, E> { Ok(Self::Value::default()) }
    };
    (@ some) => {
        fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<Self::Value, D::Error> { inner.deserialize_any(self) }
    };
    (@ none) => {
        fn visit_none<E>(self) -> Result<Self::Value, E> { Ok(Self::Value::default()) }
    };
    (@ bool) => {
        fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> { Ok(Self::Value::default()) }
    };
    (@ number) => {
        fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> { Ok(Self::Value::default()) }
        fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> { Ok(Self::Value::default()) }
        fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> { Ok(Self::Value::default()) }
    };
    (@ str) => {
        fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> { Ok(Self::Value::default()) }
    };
    (@ seq) => {
        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            Ok(Self::Value::default())
        }
    };
    (@ map) => {
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            Ok(Self::Value::default())
        }
    };
}

/// A text; a number counts as its digits.
#[derive(Debug, Default)]
pub(crate) struct Text<'a>(Option<Cow<'a, str>>);

impl<'a> Text<'a> {
    /// The text, unless it is absent or empty.
    pub(crate) fn filled(self) -> Option<Cow<'a, str>> {
        self.0.filter(|text| !text.is_empty())
    }

    /// The text, unless it is absent or blank: a blank id or name is none.
    pub(crate) fn nonblank(self) -> Option<Cow<'a, str>> {
        self.0.filter(|text| !text.trim().is_empty())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Read<'a>(PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for Read<'a> {
            type Value = Text<'a>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'a>, E> {
                Ok(Text(Some(Cow::Borrowed(text))))
            }
            fn visit_str<E>(self, text: &str) -> Result<Text<'a>, E> {
                Ok(Text(Some(Cow::Owned(text.to_owned()))))
            }
            fn visit_string<E>(self, text: String) -> Result<Text<'a>, E> {
                Ok(Text(Some(Cow::Owned(text))))
            }
            fn visit_u64<E>(self, number: u64) -> Result<Text<'a>, E> {
                Ok(Text(Some(Cow::Owned(number.to_string()))))
            }
            fn visit_i64<E>(self, number: i64) -> Result<Text<'a>, E> {
                Ok(Text(Some(Cow::Owned(number.to_string()))))
            }
            fn visit_f64<E>(self, _: f64) -> Result<Text<'a>, E> {
                Ok(Text(None))
            }
            else_absent!(unit none some bool seq map);
        }
        from.deserialize_any(Read(PhantomData))
    }
}

/// A count; a number in quotes counts, anything else does not.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Count(pub(crate) Option<u64>);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Count;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a count")
            }
            fn visit_u64<E>(self, number: u64) -> Result<Count, E> {
                Ok(Count(Some(number)))
            }
            fn visit_i64<E>(self, number: i64) -> Result<Count, E> {
                Ok(Count(u64::try_from(number).ok()))
            }
            fn visit_f64<E>(self, number: f64) -> Result<Count, E> {
                Ok(Count((0.0..9e15).contains(&number).then_some(number as u64)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Count, E> {
                Ok(Count(text.trim().parse().ok()))
            }
            else_absent!(unit none some bool seq map);
        }
        from.deserialize_any(Read)
    }
}

/// A sum of money.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Amount(pub(crate) Option<f64>);

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Amount;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an amount")
            }
            fn visit_u64<E>(self, number: u64) -> Result<Amount, E> {
                Ok(Amount(Some(number as f64)))
            }
            fn visit_i64<E>(self, _: i64) -> Result<Amount, E> {
                Ok(Amount(None))
            }
            fn visit_f64<E>(self, number: f64) -> Result<Amount, E> {
                Ok(Amount((number >= 0.0).then_some(number)))
            }
            else_absent!(unit none some bool str seq map);
        }
        from.deserialize_any(Read)
    }
}

/// A message's content: a text, or parts.
#[derive(Debug, Default)]
pub(crate) enum Content<'a> {
    #[default]
    Absent,
    Text(Cow<'a, str>),
    Parts(Vec<&'a RawValue>),
}

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Read<'a>(PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for Read<'a> {
            type Value = Content<'a>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a message's content")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Content<'a>, E> {
                Ok(Content::Text(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Content<'a>, E> {
                Ok(Content::Text(Cow::Owned(text.to_owned())))
            }
            fn visit_string<E>(self, text: String) -> Result<Content<'a>, E> {
                Ok(Content::Text(Cow::Owned(text)))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Content<'a>, A::Error> {
                let mut parts = Vec::new();
                while let Some(part) = seq.next_element()? {
                    parts.push(part);
                }
                Ok(Content::Parts(parts))
            }
            else_absent!(unit none some bool number map);
        }
        from.deserialize_any(Read(PhantomData))
    }
}

/// A list; anything else is an empty one, and so is what in it is not of the type.
#[derive(Debug)]
pub(crate) struct List<T>(pub(crate) Vec<T>);

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Read<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Read<T> {
            type Value = List<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<List<T>, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(List(items))
            }
            else_absent!(unit none some bool number str map);
        }
        from.deserialize_any(Read(PhantomData))
    }
}

/// Raw JSON that is not null.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Raw<'a>(pub(crate) Option<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Raw<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let raw = <&'a RawValue>::deserialize(from)?;
        Ok(Self((raw.get() != "null").then_some(raw)))
    }
}

/// Fields that are not known here, in order.
pub(crate) type Rest<'a> = Vec<(Cow<'a, str>, &'a RawValue)>;

/// An object with the given fields, each absent until it comes. A key that comes twice counts as it came last.
macro_rules! object {
    ($(#[$meta:meta])* $name:ident { $($field:ident: $type:ty = $($key:literal)|+,)+ } $($rest:ident)?) => {
        $(#[$meta])*
        #[derive(Debug, Default)]
        pub(crate) struct $name<'a> {
            $(pub(crate) $field: $type,)+
            $(pub(crate) $rest: Rest<'a>,)?
            _life: PhantomData<&'a ()>,
        }

        impl<'de: 'a, 'a> Deserialize<'de> for $name<'a> {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Read<'a>(PhantomData<&'a ()>);
                impl<'de: 'a, 'a> Visitor<'de> for Read<'a> {
                    type Value = $name<'a>;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("an object")
                    }
                    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<$name<'a>, A::Error> {
                        let mut out = $name::default();
                        while let Some(Text(key)) = map.next_key()? {
                            let key = key.unwrap_or_default();
                            match &*key {
                                $($($key)|+ => out.$field = map.next_value()?,)+
                                _ => object!(@ map key out $($rest)?),
                            }
                        }
                        Ok(out)
                    }
                    else_absent!(unit none some bool number str seq);
                }
                from.deserialize_any(Read(PhantomData))
            }
        }
    };
    (@ $map:ident $key:ident $out:ident) => {{ $map.next_value::<IgnoredAny>()?; }};
    (@ $map:ident $key:ident $out:ident $rest:ident) => {{
        if let Raw(Some(value)) = $map.next_value()? {
            $out.$rest.push(($key, value));
        }
    }};
}

object! {
    /// A chunk, a whole completion, or an error in the place of either.
    Chunk {
        choices: List<Choice<'a>> = "choices",
        usage: UsageIn<'a> = "usage",
        model: Text<'a> = "model",
        object: Text<'a> = "object",
        error: Raw<'a> = "error",
        groq: Groq<'a> = "x_groq",
    }
}

object! {
    /// Where Groq puts usage and late errors.
    Groq {
        usage: UsageIn<'a> = "usage",
        error: Raw<'a> = "error",
    }
}

object! {
    /// One choice: a delta of it, or its message.
    Choice {
        index: Count = "index",
        delta: Delta<'a> = "delta" | "message",
        finish: Text<'a> = "finish_reason",
        usage: UsageIn<'a> = "usage",
        error: Raw<'a> = "error",
    }
}

object! {
    /// A message, or a piece of one.
    Delta {
        role: Text<'a> = "role",
        noise: Ignored = "index" | "name",
        content: Content<'a> = "content",
        refusal: Text<'a> = "refusal",
        reasoning_content: Text<'a> = "reasoning_content",
        reasoning: Text<'a> = "reasoning",
        reasoning_details: List<&'a RawValue> = "reasoning_details",
        calls: List<Call<'a>> = "tool_calls",
        function_call: Function<'a> = "function_call",
    } rest
}

object! {
    /// A tool call, or a piece of one.
    Call {
        index: Count = "index",
        id: Text<'a> = "id",
        kind: Text<'a> = "type",
        function: Function<'a> = "function",
        name: Text<'a> = "name",
        arguments: Raw<'a> = "arguments",
    } rest
}

object! {
    /// A called function, or a piece of it.
    Function {
        name: Text<'a> = "name",
        arguments: Raw<'a> = "arguments",
    } rest
}

object! {
    /// Tokens used.
    UsageIn {
        input: Count = "prompt_tokens" | "input_tokens",
        output: Count = "completion_tokens" | "output_tokens",
        total: Count = "total_tokens",
        input_details: UsageDetails<'a> = "prompt_tokens_details" | "input_tokens_details",
        output_details: UsageDetails<'a> = "completion_tokens_details" | "output_tokens_details",
        cached: Count = "prompt_cache_hit_tokens" | "cached_tokens",
        cost: Amount = "cost",
    }
}

object! {
    /// Of which kinds they were.
    UsageDetails {
        cached: Count = "cached_tokens",
        cache_write: Count = "cache_write_tokens" | "cache_creation_tokens",
        reasoning: Count = "reasoning_tokens",
    }
}

impl Function<'_> {
    /// Whether it says nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.name.0.is_none() && self.arguments.0.is_none()
    }
}

/// A field that is known to carry nothing.
#[derive(Debug, Default)]
pub(crate) struct Ignored;

impl<'de> Deserialize<'de> for Ignored {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(from).map(|_| Self)
    }
}

/// Reads a text that [`serde_json`] may refuse for half a surrogate pair in a string: that half reads as U+FFFD.
pub(crate) fn without_lone_surrogates(json: &str) -> Cow<'_, str> {
    const LONE: &str = "\\ufffd";
    let unit = |at: usize| -> Option<u16> {
        let escape = json.get(at..at + 6)?;
        u16::from_str_radix(escape.strip_prefix("\\u")?, 16).ok()
    };
    let mut out: Option<String> = None;
    let mut kept = 0;
    let mut at = 0;
    while let Some(found) = json.as_bytes().get(at..).and_then(|rest| memchr::memchr(b'\\', rest)) {
        at += found;
        let lone = match unit(at) {
            Some(0xD800..=0xDBFF) => {
                if matches!(unit(at + 6), Some(0xDC00..=0xDFFF)) {
                    at += 12;
                    continue;
                }
                true
            }
            Some(0xDC00..=0xDFFF) => true,
            _ => false,
        };
        if lone {
            let text = out.get_or_insert_default();
            text.push_str(json.get(kept..at).unwrap_or_default());
            text.push_str(LONE);
            at += 6;
            kept = at;
        } else {
            // The escape is two bytes, or more that hold no backslash.
            at += 2;
        }
    }
    match out {
        None => Cow::Borrowed(json),
        Some(mut text) => {
            text.push_str(json.get(kept..).unwrap_or_default());
            Cow::Owned(text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // case: field-reports 50
    #[test]
    fn half_a_surrogate_pair_is_replaced() {
        for (json, expected) in [
            (r#""a\ud99c b""#, r#""a\ufffd b""#),
            (r#""\ud83d\ude00""#, r#""\ud83d\ude00""#),
            (r#""\ude00\ud83d\ud83d\ude00""#, r#""\ufffd\ufffd\ud83d\ude00""#),
            (r#""\\ud99c""#, r#""\\ud99c""#),
            (r#""\\\ud99c""#, r#""\\\ufffd""#),
            (r#""\ud99"#, r#""\ud99"#),
            (r#""\"#, r#""\"#),
            ("plain é", "plain é"),
        ] {
            assert_eq!(without_lone_surrogates(json), expected, "{json}");
        }
    }

    #[test]
    fn fields_of_another_type_are_absent() {
        let odd = r#"{"choices":[null,7,{"index":"0","delta":{"content":5,"tool_calls":{},"refusal":[],"x":{}}}],"usage":[1],"model":{},"error":null}"#;
        let chunk: Chunk<'_> = serde_json::from_str(odd).unwrap();
        assert_eq!(chunk.choices.0.len(), 3);
        let choice = chunk.choices.0.into_iter().nth(2).unwrap();
        assert_eq!(choice.index.0, Some(0));
        assert!(matches!(choice.delta.content, Content::Absent) && choice.delta.calls.0.is_empty());
        assert_eq!(choice.delta.rest[0].0, "x");
        assert!(chunk.error.0.is_none() && chunk.model.filled().is_none());
    }
}
