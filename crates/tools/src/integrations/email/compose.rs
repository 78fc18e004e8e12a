//! Making the message.

use base64::Engine as _;
use lettre::Message;
use lettre::message::header::{Bcc, Cc, ContentType, To};
use lettre::message::{Attachment as Attached, Body, Mailbox, MultiPart, SinglePart};
use toolwright_tool::{ToolContext, ToolError, media_type_of};

use super::Attachment;
use super::address::{People, mailboxes};
use crate::integrations::shape::in_line;

/// The longest text, and the longest HTML, in bytes.
const LONGEST_TEXT: usize = 1024 * 1024;
/// How many files go with one email.
const MOST_FILES: usize = 20;

/// What an email says.
pub(super) struct Parts<'a> {
    pub(super) subject: &'a str,
    pub(super) text: Option<&'a str>,
    pub(super) html: Option<&'a str>,
    pub(super) files: Vec<File>,
}

/// A file that goes with it.
pub(super) struct File {
    name: String,
    content_type: ContentType,
    content: Vec<u8>,
}

/// Reads the files, within `most` bytes together.
pub(super) async fn attached(attachments: &[Attachment], cx: &ToolContext, most: usize) -> Result<Vec<File>, ToolError> {
    if attachments.len() > MOST_FILES {
        return Err(ToolError::invalid("attachments", format!("are more than the {MOST_FILES} that go with one email")));
    }
    let (mut files, mut total) = (Vec::with_capacity(attachments.len()), 0_usize);
    for (index, attachment) in attachments.iter().enumerate() {
        let invalid = |field: &str, message: &str| ToolError::invalid(format!("attachments.{index}.{field}"), message);
        let (content, own_name) = match (&attachment.path, &attachment.content, &attachment.base64) {
            (Some(path), None, None) => {
                let found = cx.files().read(path).await?;
                let found = found.ok_or_else(|| invalid("path", "names no file of the thread whose content is kept"))?;
                (found.to_vec(), path.rsplit('/').next().map(str::to_owned))
            }
            (None, Some(content), None) => (content.clone().into_bytes(), None),
            (None, None, Some(packed)) => {
                // Its length tells the size before it is unpacked.
                if packed.len() / 4 * 3 > most.saturating_add(3) {
                    return Err(too_large(most));
                }
                let packed: String = packed.split_ascii_whitespace().collect();
                let unpacked = base64::engine::general_purpose::STANDARD.decode(packed);
                (unpacked.map_err(|_| invalid("base64", "is no base64"))?, None)
            }
            _ => return Err(invalid("path", "is to be given, or content, or base64: one of the three")),
        };
        total = total.saturating_add(content.len());
        if total > most {
            return Err(too_large(most));
        }
        let name = attachment.name.clone().or(own_name).ok_or_else(|| invalid("name", "is missing: what the file is called"))?;
        let name = name.trim();
        if name.is_empty() || name.chars().count() > 200 || name.contains(['/', '\\', '"']) || name.chars().any(char::is_control) {
            return Err(invalid("name", "is a file's name without folders and quotes, at most 200 characters"));
        }
        let media_type = match &attachment.media_type {
            Some(given) => checked_media_type(given).ok_or_else(|| invalid("media_type", "is no media type such as `text/csv`"))?,
            None => media_type_of(name).unwrap_or("application/octet-stream").to_owned(),
        };
        let content_type = ContentType::parse(&media_type).map_err(|_| invalid("media_type", "is no media type such as `text/csv`"))?;
        files.push(File { name: name.to_owned(), content_type, content });
    }
    Ok(files)
}

fn too_large(most: usize) -> ToolError {
    ToolError::new(format!("the attachments have more than the {most} bytes that may go with one email")).named("FileTooLargeError")
}

/// A type and a subtype, without parameters. Parts that hold parts are files like others.
fn checked_media_type(given: &str) -> Option<String> {
    let given = given.trim().to_ascii_lowercase();
    let token = |text: &str| {
        !text.is_empty() && text.len() <= 100 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".+-_".contains(&byte))
    };
    let (kind, sub) = given.split_once('/')?;
    if !token(kind) || !token(sub) {
        return None;
    }
    Some(if matches!(kind, "multipart" | "message") { "application/octet-stream".to_owned() } else { given })
}

/// The message. What is not ASCII is encoded, and no line of a header is a model's.
pub(super) fn message(
    from: &Mailbox,
    reply_to: Option<&Mailbox>,
    people: &People,
    id: &str,
    parts: Parts<'_>,
) -> Result<Message, ToolError> {
    let Parts { subject, text, html, files } = parts;
    if subject.chars().any(char::is_control) {
        return Err(ToolError::invalid("subject", "is one line, without line breaks and other control characters"));
    }
    if subject.trim().is_empty() {
        return Err(ToolError::invalid("subject", "says what the email is about, so it can't be empty"));
    }
    let written = |text: Option<&str>| text.filter(|text| !text.trim().is_empty()).map(lines);
    for (name, text) in [("text", text), ("html", html)] {
        if text.is_some_and(|text| text.len() > LONGEST_TEXT) {
            return Err(ToolError::invalid(name, format!("is longer than {LONGEST_TEXT} bytes; attach it as a file")));
        }
    }
    let mut builder = Message::builder().from(from.clone()).date_now().message_id(Some(id.to_owned())).subject(subject.trim());
    builder = builder.mailbox(To::from(mailboxes(&people.to)));
    if !people.cc.is_empty() {
        builder = builder.mailbox(Cc::from(mailboxes(&people.cc)));
    }
    if !people.bcc.is_empty() {
        // The builder keeps them in the envelope and drops the header.
        builder = builder.mailbox(Bcc::from(mailboxes(&people.bcc)));
    }
    if let Some(reply_to) = reply_to {
        builder = builder.reply_to(reply_to.clone());
    }
    let content = match (written(text), written(html)) {
        (Some(text), Some(html)) => Content::Parts(MultiPart::alternative_plain_html(text, html)),
        (Some(text), None) => Content::Part(SinglePart::plain(text)),
        (None, Some(html)) => Content::Part(SinglePart::html(html)),
        (None, None) => return Err(ToolError::invalid("text", "is missing: give text, html or both")),
    };
    let made = if files.is_empty() {
        match content {
            Content::Parts(parts) => builder.multipart(parts),
            Content::Part(part) => builder.singlepart(part),
        }
    } else {
        let mut mixed = match content {
            Content::Parts(parts) => MultiPart::mixed().multipart(parts),
            Content::Part(part) => MultiPart::mixed().singlepart(part),
        };
        for File { name, content_type, content } in files {
            // Bytes stay as they are, whatever they look like.
            let packed = Body::new_with_encoding(content, lettre::message::header::ContentTransferEncoding::Base64);
            let packed = packed.map_err(|_| ToolError::new(format!("the file `{}` can't be packed into an email", in_line(&name, 80))))?;
            mixed = mixed.singlepart(Attached::new(name).body(packed, content_type));
        }
        builder.multipart(mixed)
    };
    made.map_err(|error| ToolError::new(format!("can't make the email: {error}")).named("ServiceError"))
}

/// The text with the line ends of a message, and no other control character than tabs: a server that sees a line's end in a lone `\r` or
/// `\n` would see the end of the message in what is a part of it.
fn lines(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 32);
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '\r' if characters.peek() == Some(&'\n') => {}
            '\r' | '\n' => out.push_str("\r\n"),
            '\t' => out.push(c),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}

enum Content {
    Parts(MultiPart),
    Part(SinglePart),
}
