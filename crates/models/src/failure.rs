//! Providers' failures, reduced to one small classified error (sdk-tools 33.1/6).

use serde_json::Value;
use toolwright_core::bounded;
use toolwright_runtime::{ErrorCategory, ModelError};

/// An error object as providers send it, in a response's body or in the middle of a stream.
pub(crate) fn from_json(provider: &str, error: &Value, status: Option<u16>) -> ModelError {
    let text = |key: &str| error.get(key).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty());
    let said = text("message").or_else(|| text("detail")).or_else(|| text("msg")).or_else(|| error.as_str());
    let code = match error.get("code") {
        Some(Value::String(code)) => code.clone(),
        Some(Value::Number(code)) => code.to_string(),
        _ => String::new(),
    };
    let kind = text("type").unwrap_or_default();
    // Gateways put what the provider behind them said into the metadata.
    let behind = error.pointer("/metadata/raw").and_then(Value::as_str).filter(|text| !text.is_empty());
    let mut message = match said {
        Some(said) => said.to_owned(),
        None => bounded(&error.to_string(), ModelError::MAX_MESSAGE),
    };
    if let Some(behind) = behind {
        message.push_str(": ");
        message.push_str(behind);
    }
    let status = status.or_else(|| code.parse().ok().filter(|status| (400..600).contains(status)));
    let category = category(status, &code, kind, &message);
    let mut out = ModelError::new(provider, &message).in_category(category);
    out.status = status;
    out
}

/// Which category a failure is in. The words come before the status, because providers spend a plain 400 on most things.
pub(crate) fn category(status: Option<u16>, code: &str, kind: &str, message: &str) -> ErrorCategory {
    let message = message.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| message.contains(word) || code.contains(word) || kind.contains(word));
    if says(&[
        "context_length_exceeded",
        "context length",
        "context window",
        "context size",
        "maximum context",
        "too many tokens",
        "prompt is too long",
        "input is too long",
        "exceed_context_size",
    ]) && !matches!(status, Some(401 | 403 | 429))
    {
        return ErrorCategory::ContextLengthExceeded;
    }
    match status {
        Some(429) => ErrorCategory::RateLimit,
        Some(401 | 403) => ErrorCategory::AuthFailure,
        Some(408 | 504 | 524) => ErrorCategory::Timeout,
        _ if says(&["rate_limit", "rate limit", "too many requests"]) => ErrorCategory::RateLimit,
        _ if says(&["invalid_api_key", "authentication_error", "invalid api key", "incorrect api key"]) => ErrorCategory::AuthFailure,
        _ => ErrorCategory::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn errors_are_classified_by_what_they_say_and_by_their_status() {
        let of = |error: Value, status| from_json("p", &error, status).category;
        let long = json!({ "message": "This model's maximum context length is 8192 tokens.", "code": "context_length_exceeded" });
        assert_eq!(of(long, Some(400)), ErrorCategory::ContextLengthExceeded);
        assert_eq!(of(json!({ "message": "slow down", "type": "rate_limit_error" }), None), ErrorCategory::RateLimit);
        assert_eq!(of(json!({ "message": "slow down", "code": 429 }), None), ErrorCategory::RateLimit);
        assert_eq!(of(json!({ "message": "no", "code": "invalid_api_key" }), None), ErrorCategory::AuthFailure);
        assert_eq!(of(json!({ "message": "upstream" }), Some(504)), ErrorCategory::Timeout);
        assert_eq!(of(json!("overloaded"), Some(500)), ErrorCategory::Unknown);
    }

    #[test]
    fn the_message_is_found_wherever_it_is_and_bounded() {
        let said = |error: Value| from_json("p", &error, None).message;
        assert_eq!(said(json!("plain")), "plain");
        assert_eq!(said(json!({ "message": "m", "metadata": { "raw": "behind" } })), "m: behind");
        assert_eq!(said(json!({ "detail": "d" })), "d");
        assert_eq!(said(json!({ "odd": [1] })), r#"{"odd":[1]}"#);
        assert_eq!(said(json!({ "message": "é".repeat(900) })).chars().count(), 500);
    }
}
