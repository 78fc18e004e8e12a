//! A thread's keyed values.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::ToolError;
use crate::keep::Keep;

/// The longest key, in bytes.
const LONGEST_KEY: usize = 512;
const PAGE: usize = 500;

/// The keyed values of a thread: JSON, durable once a call returns, gone with the thread (standard-agents STA-2, STA-3).
///
/// ```
/// # use toolwright_tool::prelude::*;
/// # async fn body(cx: &ToolContext) -> Result<(), ToolError> {
/// let values = cx.values();
/// let count: u32 = values.get("visits").await?.unwrap_or(0);
/// values.set("visits", &(count + 1)).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ThreadValues {
    keep: Arc<dyn Keep>,
}

impl fmt::Debug for ThreadValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadValues").finish_non_exhaustive()
    }
}

/// A key is text that is not empty.
fn checked(key: &str) -> Result<(), ToolError> {
    let refused =
        |what: &str| Err(ToolError::new(format!("the key {:?} {what}", toolwright_core::bounded(key, 80))).named("InvalidKeyError"));
    if key.is_empty() {
        return refused("is empty; give it at least one character");
    }
    if key.len() > LONGEST_KEY {
        return refused(&format!("is longer than {LONGEST_KEY} bytes; shorten it"));
    }
    if key.contains('\0') {
        return refused("holds the character U+0000; take it out");
    }
    Ok(())
}

impl ThreadValues {
    /// The values of what is kept.
    pub fn new(keep: Arc<dyn Keep>) -> Self {
        Self { keep }
    }

    /// The value of a key; `None` if it has none.
    pub async fn get<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, ToolError> {
        checked(key)?;
        let Some(text) = self.keep.value(key).await? else { return Ok(None) };
        serde_json::from_str(&text).map(Some).map_err(|error| {
            ToolError::new(format!("the value of {key:?} is not of the type that was asked for: {error}")).named("ValueTypeError")
        })
    }

    /// Sets the value of a key, in place of one that it has. What is `null` as JSON removes it (standard-agents 9.2).
    pub async fn set<T: Serialize + ?Sized>(&self, key: &str, value: &T) -> Result<(), ToolError> {
        checked(key)?;
        let text = serde_json::to_string(value)
            .map_err(|error| ToolError::new(format!("the value of {key:?} can't be written as JSON: {error}")).named("ValueTypeError"))?;
        let limit = self.keep.limits().value;
        if text.len() as u64 > limit {
            let message = format!("the value of {key:?} takes {} bytes, and {limit} are allowed; keep it as a file", text.len());
            return Err(ToolError::new(message).named("ValueTooLargeError"));
        }
        let value = if text == "null" { None } else { Some(text.into()) };
        self.keep.set_value(key, value).await
    }

    /// Removes the value of a key; nothing happens if it has none.
    pub async fn remove(&self, key: &str) -> Result<(), ToolError> {
        checked(key)?;
        self.keep.set_value(key, None).await
    }

    /// All values whose keys begin with `prefix`, by key; with an empty prefix all there are.
    pub async fn list(&self, prefix: &str) -> Result<Vec<(String, Value)>, ToolError> {
        let mut all: Vec<(String, Value)> = Vec::new();
        loop {
            let page = self.page(prefix, all.last().map(|(key, _)| key.as_str()), PAGE).await?;
            let more = page.len() == PAGE;
            all.extend(page);
            if !more {
                return Ok(all);
            }
        }
    }

    /// As [`ThreadValues::list`], those after the key `after`, at most `limit`.
    pub async fn page(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Vec<(String, Value)>, ToolError> {
        if prefix.contains('\0') {
            return Ok(Vec::new());
        }
        let values = self.keep.values(prefix, after, limit).await?;
        // What is not JSON was not written here; it is shown as the text it is.
        let value = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()));
        Ok(values.into_iter().map(|(key, text)| (key, value(&text))).collect())
    }
}
