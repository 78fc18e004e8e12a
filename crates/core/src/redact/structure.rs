//! Redaction of values and records: by structure, so that what remains is still what it was.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::Redactor;
use crate::decision::{Decision, DecisionVerdict};
use crate::event::EventKind;
use crate::message::ArgsState;
use crate::record::{Record, RecordBody};

/// Something that would no longer be readable without the secret in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a secret stands where nothing can stand in its place ({0}), so it was not written down")]
pub struct Unredactable(String);

/// Where a value stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In a structure of ours: its keys are ours, and some of its words.
    Ours,
    /// Anything may be anywhere.
    Free,
}

/// Fields of our structures whose words are ours: kinds, states, ids that we give.
const OUR_WORDS: &[&str] = &[
    "kind", "type", "verdict", "outcome", "ending", "is", "author", "origin", "cause", "mode", "finish", "state", "failed", "run", "call",
    "callId", "approval", "sha256", "parent", "only", "code", "waitsFor", "once", "remember",
];
/// Fields of our structures that hold what others made.
const FREE_FIELDS: &[&str] =
    &["value", "metadata", "detail", "display", "principal", "providerData", "encrypted", "info", "claims", "from", "to", "output_schema"];
/// The types of parts and items that are known.
const KNOWN_TYPES: &[&str] = &["text", "json", "image", "file", "reasoning", "tool-call", "tool-result", "opaque"];

impl Redactor {
    /// Takes secrets out of a value: out of its texts, keys and numbers, and where only all of it as JSON is a secret, all of it.
    /// Gives whether there were any.
    pub fn redact_value(&self, value: &mut Value) -> bool {
        !self.is_empty() && self.walk_free(value)
    }

    /// What a record, message or other structure of ours is without secrets; `None` if it holds none. It is looked through once,
    /// as the text that would be written down.
    pub fn redacted<T: Serialize + DeserializeOwned>(&self, whole: &T) -> Result<Option<T>, Unredactable> {
        if self.is_empty() {
            return Ok(None);
        }
        let text = serde_json::to_string(whole).map_err(|error| Unredactable(error.to_string()))?;
        if self.scan(&text, false, false).spans.is_empty() {
            return Ok(None);
        }
        let mut value: Value = serde_json::from_str(&text).map_err(|error| Unredactable(error.to_string()))?;
        if !self.walk(&mut value, Place::Ours) {
            return Ok(None);
        }
        serde_json::from_value(value).map(Some).map_err(|error| Unredactable(error.to_string()))
    }

    /// As [`Redactor::redacted`], text by text: also without the longer part of a secret at either end of a text, where a tool may
    /// have cut it.
    pub fn redacted_texts<T: Serialize + DeserializeOwned>(&self, whole: &T) -> Result<Option<T>, Unredactable> {
        if self.is_empty() {
            return Ok(None);
        }
        let mut value = serde_json::to_value(whole).map_err(|error| Unredactable(error.to_string()))?;
        if !self.walk(&mut value, Place::Ours) {
            return Ok(None);
        }
        serde_json::from_value(value).map(Some).map_err(|error| Unredactable(error.to_string()))
    }

    /// The name of the secret that the text has only the mark of: it was taken out before.
    pub fn find_mark(&self, text: &str) -> Option<&Arc<str>> {
        self.secrets.iter().find(|secret| !secret.mark.is_empty() && text.contains(&*secret.mark)).map(|secret| &secret.name)
    }

    /// What a record is without secrets; `None` if it holds none. A call whose arguments held one is marked, so that it never runs,
    /// and a decision that brings arguments with one becomes a refusal.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use toolwright_core::redact::Redactor;
    /// use toolwright_core::{Message, Record, RecordBody, Seq, Timestamp};
    ///
    /// let redactor = Redactor::new([("KEY", "sesame-open")])?;
    /// let body = RecordBody::MessageAdded { message: Arc::new(Message::human("the key is sesame-open")) };
    /// let record = Record { seq: Seq(1), at: Timestamp(0), run: None, body };
    /// let clean = redactor.record(&record).unwrap().unwrap();
    /// let RecordBody::MessageAdded { message } = &clean.body else { panic!() };
    /// assert_eq!(message.text_of(), "the key is [redacted:KEY]");
    /// # Ok::<(), toolwright_core::redact::SecretRefused>(())
    /// ```
    pub fn record(&self, record: &Record) -> Result<Option<Record>, Unredactable> {
        if self.is_empty() {
            return Ok(None);
        }
        if let RecordBody::Unknown(value) = &record.body {
            let mut value = value.clone();
            let changed = self.walk_free(&mut value);
            return Ok(changed.then(|| Record { body: RecordBody::Unknown(value), ..record.clone() }));
        }
        let Some(mut clean) = self.redacted(record)? else { return Ok(None) };
        if let (RecordBody::CallDecided { decision, .. }, RecordBody::CallDecided { decision: given, .. }) = (&mut clean.body, &record.body)
            && let (DecisionVerdict::ApproveEdited { arguments }, DecisionVerdict::ApproveEdited { arguments: written }) =
                (&decision.verdict, &given.verdict)
            && arguments != written
        {
            let note = "the arguments that it was approved with held a secret, and arguments never carry one";
            *decision = Decision { by: decision.by.take(), at: decision.at, ..Decision::reject().note(note) };
        }
        Ok(Some(clean))
    }

    /// The text of a call's arguments without secrets: still JSON, if it was.
    pub fn redact_arguments(&self, text: &str) -> Option<String> {
        self.find(text)?;
        if let Ok(mut value) = serde_json::from_str::<Value>(text)
            && self.walk_free(&mut value)
        {
            return Some(value.to_string());
        }
        Some(self.redact(text).into_owned())
    }

    /// Takes secrets out; gives whether there were any.
    fn walk(&self, value: &mut Value, place: Place) -> bool {
        match value {
            Value::String(text) => match self.redact(text) {
                std::borrow::Cow::Borrowed(_) => false,
                std::borrow::Cow::Owned(clean) => {
                    *text = clean;
                    true
                }
            },
            Value::Number(number) if place == Place::Free => {
                let text = number.to_string();
                let found = self.find(&text).is_some();
                if found {
                    *value = Value::String(self.redact(&text).into_owned());
                }
                found
            }
            Value::Array(items) => {
                let joined = place == Place::Ours && self.across_texts(items);
                items.iter_mut().fold(joined, |changed, item| self.walk(item, place) | changed)
            }
            Value::Object(fields) if place == Place::Free => self.free_fields(fields),
            Value::Object(fields) => self.our_fields(fields),
            _ => false,
        }
    }

    /// As [`Redactor::walk`], of a value that is free. A secret that is made of more than one text is there only in the JSON of all
    /// of them: then all of them go.
    fn walk_free(&self, value: &mut Value) -> bool {
        let changed = self.walk(value, Place::Free);
        self.as_whole(value) | changed
    }

    fn as_whole(&self, value: &mut Value) -> bool {
        if !matches!(value, Value::Array(_) | Value::Object(_)) || !self.has_secret(&value.to_string()) {
            return false;
        }
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| {
                self.as_whole(item);
            }),
            Value::Object(fields) => fields.values_mut().for_each(|value| {
                self.as_whole(value);
            }),
            _ => {}
        }
        let text = value.to_string();
        if self.has_secret(&text) {
            *value = Value::String(self.redact(&text).into_owned());
        }
        true
    }

    fn has_secret(&self, text: &str) -> bool {
        !self.scan(text, false, false).spans.is_empty()
    }

    fn free_fields(&self, fields: &mut Map<String, Value>) -> bool {
        let mut changed = false;
        if fields.keys().any(|key| self.find(key).is_some()) {
            changed = true;
            for (key, value) in std::mem::take(fields) {
                let mut name = self.redact(&key).into_owned();
                while fields.contains_key(&name) {
                    name.push('_');
                }
                fields.insert(name, value);
            }
        }
        fields.values_mut().fold(changed, |changed, value| self.walk(value, Place::Free) | changed)
    }

    fn our_fields(&self, fields: &mut Map<String, Value>) -> bool {
        let known = match fields.get("type").and_then(Value::as_str) {
            Some(word) => KNOWN_TYPES.contains(&word) || EventKind::is_known_type(word),
            None => true,
        };
        if !known {
            return fields.iter_mut().filter(|(key, _)| *key != "type").fold(false, |changed, (_, value)| self.walk_free(value) | changed);
        }
        let mut changed = false;
        let mut of_arguments = false;
        for (key, value) in fields.iter_mut() {
            match (key.as_str(), &mut *value) {
                ("arguments", Value::String(text)) => {
                    if let Some(clean) = self.redact_arguments(text) {
                        *text = clean;
                        of_arguments = true;
                    }
                }
                (key, Value::String(_)) if OUR_WORDS.contains(&key) => {}
                (key, value) if FREE_FIELDS.contains(&key) => changed |= self.walk_free(value),
                (_, value) => changed |= self.walk(value, Place::Ours),
            }
        }
        // Of a model's call, the mark is what the gate refuses it for.
        if of_arguments
            && fields.get("type").and_then(Value::as_str) == Some("tool-call")
            && let Ok(word) = serde_json::to_value(ArgsState::Redacted)
        {
            fields.insert("state".to_owned(), word);
        }
        changed | of_arguments
    }

    /// A secret that lies across the text items of a message: readers join them.
    fn across_texts(&self, items: &mut [Value]) -> bool {
        let is_text = |item: &Value| item.get("type").and_then(Value::as_str) == Some("text");
        let text = |item: &Value| item.get("text").and_then(Value::as_str).unwrap_or_default().to_owned();
        if items.iter().filter(|item| is_text(item)).count() < 2 {
            return false;
        }
        let joined: String = items.iter().filter(|item| is_text(item)).map(text).collect();
        let spans = self.scan(&joined, false, false).spans;
        let mut changed = false;
        let mut start = 0;
        for item in items.iter_mut().filter(|item| is_text(item)) {
            let own = text(item);
            let end = start + own.len();
            let mut out = String::with_capacity(own.len());
            let mut at = start;
            let mut across = false;
            for span in spans.iter().filter(|span| span.start < end && span.end > start) {
                across |= span.start < start || span.end > end;
                out.push_str(joined.get(at..span.start.max(at)).unwrap_or_default());
                // The mark stands where the secret begins.
                if span.start >= start {
                    out.push_str(self.mark(span.secret));
                }
                at = span.end.min(end);
            }
            if across {
                out.push_str(joined.get(at..end).unwrap_or_default());
                if let Some(slot) = item.get_mut("text") {
                    *slot = Value::String(out);
                }
                changed = true;
            }
            start = end;
        }
        changed
    }
}
