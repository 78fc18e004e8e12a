//! What a model writes of Slack's names, and texts to and from Slack.

use toolwright_tool::ToolError;

/// The id of a channel, a group or a direct conversation.
pub(super) fn channel_id(given: &str) -> Result<String, ToolError> {
    let id = given.trim();
    let plain = id.len() <= 40 && id.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
    if plain && id.len() > 1 && id.starts_with(['C', 'G', 'D']) {
        return Ok(id.to_owned());
    }
    Err(ToolError::invalid("channel", "is a channel's id, such as `C0123ABCD`; list_slack_channels shows them"))
}

/// The moment by which Slack names a message.
pub(super) fn timestamp(given: &str, path: &str) -> Result<String, ToolError> {
    let given = given.trim();
    let digits = |text: &str| !text.is_empty() && text.len() <= 20 && text.bytes().all(|byte| byte.is_ascii_digit());
    match given.split_once('.') {
        Some((seconds, part)) if digits(seconds) && digits(part) => Ok(given.to_owned()),
        None if digits(given) => Ok(given.to_owned()),
        _ => Err(ToolError::invalid(path, "is the `ts` of a message, such as `1796130090.000100`")),
    }
}

/// A text as Slack shows it word for word: no mention, no call of a whole channel, no link under another name.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A text of Slack as people read it.
pub(super) fn unescaped(text: &str) -> String {
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        assert_eq!(channel_id(" C0123ABCD ").unwrap(), "C0123ABCD");
        for wrong in ["", "C", "#general", "general", "U0123", "c0123", "C01/x", "C01&x=1", "C01\nD"] {
            assert!(channel_id(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(timestamp("1796130090.000100", "thread").unwrap(), "1796130090.000100");
        for wrong in ["", ".", "1.", ".1", "1.2.3", "now", "1796130090.0001&x=1", "-1.2"] {
            assert_eq!(timestamp(wrong, "thread").unwrap_err().to_failure("t").issues[0].path, "thread", "{wrong:?}");
        }
    }

    #[test]
    fn texts_survive_the_way_there_and_back() {
        let text = "<!channel> & <@U1> &lt; <https://evil.example|https://acme.example>";
        assert_eq!(escaped("<!channel> & you"), "&lt;!channel&gt; &amp; you");
        assert_eq!(unescaped(&escaped(text)), text);
    }
}
