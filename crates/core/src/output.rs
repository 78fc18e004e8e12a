//! What a tool's body returns.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::event::EventKind;
use crate::file::AttachmentRef;
use crate::message::Part;

/// What a tool's body returns: what the model reads, what people are shown where that differs, and events to go with it.
///
/// ```
/// use toolwright_core::{Part, ToolOutput};
/// let chart = ToolOutput::text("12 sales in March").with(Part::Image { image: "data:image/png;base64,AA==".into(), mime_type: None });
/// assert_eq!(chart.parts().len(), 2);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolOutput {
    parts: Vec<Part>,
    /// What people are shown instead of what the model reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    display: Option<Value>,
    /// Events that follow this call's `tool.done`, such as `todo.updated`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    events: Vec<EventKind>,
    /// The files of the thread that belong to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    attachments: Vec<AttachmentRef>,
}

impl ToolOutput {
    /// One JSON value.
    pub fn json(value: Value) -> Self {
        Self { parts: vec![Part::Json { value }], ..Self::default() }
    }

    /// Plain text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { parts: vec![Part::text(text)], ..Self::default() }
    }

    /// Several parts: text, JSON, images and files together.
    pub fn of(parts: Vec<Part>) -> Self {
        Self { parts, ..Self::default() }
    }

    /// One more part.
    #[must_use]
    pub fn with(mut self, part: Part) -> Self {
        self.parts.push(part);
        self
    }

    /// People see `display` in events and on screens; the model goes on reading the parts.
    #[must_use]
    pub fn shown_as(mut self, display: Value) -> Self {
        self.display = Some(display);
        self
    }

    /// `event` follows this call's `tool.done`, durably.
    #[must_use]
    pub fn with_event(mut self, event: EventKind) -> Self {
        self.events.push(event);
        self
    }

    /// With a file that the thread keeps. People see the reference in `tool.done`; the model reads the parts.
    #[must_use]
    pub fn with_attachment(mut self, attachment: AttachmentRef) -> Self {
        if !self.attachments.contains(&attachment) {
            self.attachments.push(attachment);
        }
        self
    }

    /// What the model reads.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The parts, to be changed.
    pub fn parts_mut(&mut self) -> &mut Vec<Part> {
        &mut self.parts
    }

    /// The files of the thread that belong to it: its images and files were put there, or its tool named them.
    pub fn attachments(&self) -> &[AttachmentRef] {
        &self.attachments
    }

    /// Events that go with it.
    pub fn events(&self) -> &[EventKind] {
        &self.events
    }

    /// What people are shown, where it differs.
    pub fn display(&self) -> Option<&Value> {
        self.display.as_ref()
    }

    /// The value of `tool.done.result`: what people are shown; one JSON or text part stands for itself, nothing is null,
    /// and several parts are listed.
    pub fn shown(&self) -> Value {
        if let Some(display) = &self.display {
            return display.clone();
        }
        match self.parts.as_slice() {
            [] => Value::Null,
            [Part::Json { value }] => value.clone(),
            [Part::Text { text }] => Value::String(text.clone()),
            parts => serde_json::to_value(parts).unwrap_or(Value::Null),
        }
    }
}
