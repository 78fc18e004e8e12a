//! What a tool's body fails with.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use toolwright_core::{Issue, ToolFailure, ToolFailureKind};

/// A failed body: a result for the model, unless it propagates (sdk-tools 7).
///
/// Any `std::error::Error` turns into one with `?`; the model sees that error's type name and message.
///
/// ```
/// use toolwright_tool::ToolError;
/// fn parse(text: &str) -> Result<i64, ToolError> {
///     Ok(text.parse::<i64>()?)
/// }
/// assert_eq!(parse("x").unwrap_err().name(), "ParseIntError");
/// ```
#[derive(Clone)]
pub struct ToolError {
    inner: Box<Inner>,
}

#[derive(Clone)]
struct Inner {
    name: Option<String>,
    message: String,
    kind: ToolFailureKind,
    propagates: bool,
    retry: bool,
    issues: Vec<Issue>,
    reason: Option<String>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl ToolError {
    /// A failure of kind `execution` with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            inner: Box::new(Inner {
                name: None,
                message: message.into(),
                kind: ToolFailureKind::Execution,
                propagates: false,
                retry: false,
                issues: Vec::new(),
                reason: None,
                source: None,
            }),
        }
    }

    /// From an error, under its type's name.
    pub fn from_error<E: StdError + Send + Sync + 'static>(error: E) -> Self {
        let mut made = Self::new(chain(&error));
        made.inner.name = Some(short_type_name(std::any::type_name::<E>()));
        made.inner.source = Some(Arc::new(error));
        made
    }

    /// From an error whose type is gone, such as `anyhow`'s or a boxed one.
    pub fn from_dyn(error: &(dyn StdError + 'static)) -> Self {
        Self::new(chain(error))
    }

    /// Asks the model for another try; bounded by the tool's `max_retries`.
    pub fn retry(message: impl Into<String>) -> Self {
        let mut made = Self::new(message);
        made.inner.retry = true;
        made
    }

    /// Ends the run with an error instead of telling the model (sdk-tools 7.4/5).
    pub fn propagate(error: impl Into<Self>) -> Self {
        let mut made = error.into();
        made.inner.propagates = true;
        made
    }

    /// Arguments that are wrong in a way no schema says.
    pub fn invalid(path: impl Into<String>, message: impl Into<String>) -> Self {
        let issue = Issue { path: path.into(), message: message.into() };
        let mut made = Self::new(issue.message.clone()).with_kind(ToolFailureKind::Validation);
        made.inner.issues = vec![issue];
        made
    }

    /// Under another name than the error's type.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.inner.name = Some(name.into());
        self
    }

    /// Of another kind than `execution` (sdk-tools 7.4/3).
    #[must_use]
    pub fn with_kind(mut self, kind: ToolFailureKind) -> Self {
        self.inner.kind = kind;
        self
    }

    /// With the reason a denial gives.
    #[must_use]
    pub fn with_reason(mut self, reason: impl Into<String>) -> Self {
        self.inner.reason = Some(reason.into());
        self
    }

    /// Its name, as the model sees it.
    pub fn name(&self) -> &str {
        self.inner.name.as_deref().unwrap_or_else(|| self.inner.kind.default_error())
    }

    /// Its message.
    pub fn message(&self) -> &str {
        &self.inner.message
    }

    /// Its kind.
    pub fn kind(&self) -> &ToolFailureKind {
        &self.inner.kind
    }

    /// Whether it ends the run.
    pub fn propagates(&self) -> bool {
        self.inner.propagates
    }

    /// Whether it asks for another try.
    pub fn asks_for_retry(&self) -> bool {
        self.inner.retry
    }

    /// The error it came from.
    pub fn source(&self) -> Option<&(dyn StdError + Send + Sync + 'static)> {
        self.inner.source.as_deref()
    }

    /// The failure the model gets.
    pub fn to_failure(&self, tool_name: &str) -> ToolFailure {
        if self.inner.kind == ToolFailureKind::Validation && !self.inner.issues.is_empty() {
            return ToolFailure::validation(tool_name, self.inner.issues.clone());
        }
        let mut failure = ToolFailure::new(self.inner.kind.clone(), tool_name, &self.inner.message).named(self.name());
        failure.reason.clone_from(&self.inner.reason);
        failure
    }
}

/// The message with those of its causes, each once.
fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let said = inner.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = inner.source();
    }
    text
}

/// `demo::errors::WeatherError<alloc::string::String>` is `WeatherError` to a model.
fn short_type_name(full: &str) -> String {
    let base = full.split('<').next().unwrap_or(full);
    base.rsplit("::").next().unwrap_or(base).to_owned()
}

impl<E: StdError + Send + Sync + 'static> From<E> for ToolError {
    fn from(error: E) -> Self {
        Self::from_error(error)
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.inner.message)
    }
}

impl fmt::Debug for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolError")
            .field("name", &self.name())
            .field("kind", &self.inner.kind)
            .field("message", &self.inner.message)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the station is offline")]
    struct StationError(#[source] std::num::ParseIntError);

    // rule: sdk-tools 7.3/1
    #[test]
    fn an_error_keeps_its_name_and_causes() {
        let error = ToolError::from(StationError("x".parse::<i64>().unwrap_err()));
        assert_eq!(error.name(), "StationError");
        assert_eq!(error.message(), "the station is offline: invalid digit found in string");
        let failure = error.to_failure("weather");
        assert_eq!((failure.error.as_str(), failure.tool_name.as_str()), ("StationError", "weather"));
        assert_eq!(failure.kind, ToolFailureKind::Execution);
    }

    // rule: sdk-tools 7.4/3
    #[test]
    fn an_error_may_choose_its_kind() {
        let failure = ToolError::new("no").with_kind(ToolFailureKind::Denied).with_reason("night").to_failure("t");
        assert_eq!(
            (failure.error.as_str(), failure.kind, failure.reason.as_deref()),
            ("ToolDeniedError", ToolFailureKind::Denied, Some("night"))
        );
    }
}
