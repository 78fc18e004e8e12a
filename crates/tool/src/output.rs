//! From what a body returns to its one result.

use std::any::Any;

use serde::Serialize;
use serde_json::Value;
use toolwright_core::ToolOutput;

use crate::error::ToolError;

/// What a body may return without the macro: `Result<T, E>` with any serialisable `T` ([`ToolOutput`] as it is) and any `E` that turns into a [`ToolError`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be returned by a tool",
    note = "return `Result<T, E>`, where `T` implements `Serialize` and `E` turns into `ToolError`"
)]
pub trait IntoToolResult {
    /// The result.
    fn into_tool_result(self) -> Result<ToolOutput, ToolError>;
}

impl<T: Serialize + 'static, E: Into<ToolError>> IntoToolResult for Result<T, E> {
    fn into_tool_result(self) -> Result<ToolOutput, ToolError> {
        self.map(output_of).map_err(Into::into)
    }
}

/// The output of any serialisable value; a [`ToolOutput`] stays itself. What can't be serialised is null (sdk-tools 7.1/2).
pub(crate) fn output_of<T: Serialize + 'static>(value: T) -> ToolOutput {
    let mut value = Some(value);
    if let Some(output) = (&mut value as &mut dyn Any).downcast_mut::<Option<ToolOutput>>() {
        return output.take().unwrap_or_default();
    }
    match value {
        Some(value) => ToolOutput::json(value_of(&value)),
        None => ToolOutput::json(Value::Null),
    }
}

pub(crate) fn value_of<T: Serialize>(value: &T) -> Value {
    serde_json::to_value(value).unwrap_or(Value::Null)
}
