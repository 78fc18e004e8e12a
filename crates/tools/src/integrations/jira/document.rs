//! Jira's document format for texts: written from Markdown, read as plain text.

use std::fmt::Write as _;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use serde_json::{Value, json};

use crate::integrations::shape::{at, items, text};

/// How deep lists are nested; what is deeper stands at this depth.
const DEEPEST: usize = 6;

/// A document of this Markdown.
pub(super) fn from_markdown(markdown: &str) -> Value {
    let mut writer = Writer::default();
    for event in Parser::new_ext(markdown, Options::ENABLE_STRIKETHROUGH) {
        writer.event(event);
    }
    while let Some(open) = writer.open.pop() {
        writer.close(open);
    }
    if writer.done.is_empty() {
        // Markdown that shows nothing, such as a definition of a link.
        writer.done.push(json!({ "type": "paragraph", "content": [{ "type": "text", "text": markdown }] }));
    }
    json!({ "type": "doc", "version": 1, "content": writer.done })
}

#[derive(Clone, PartialEq)]
enum Kind {
    Paragraph {
        /// Begun by text that stands in no paragraph, as in a tight list.
        implied: bool,
    },
    Heading(u8),
    Quote,
    List(Option<u64>),
    Item,
    Code(String),
    /// Gives what it holds to what holds it.
    Nothing,
}

impl Kind {
    fn is_container(&self) -> bool {
        matches!(self, Self::Quote | Self::List(_) | Self::Item)
    }
}

struct Open {
    kind: Kind,
    content: Vec<Value>,
}

#[derive(Default)]
struct Writer {
    open: Vec<Open>,
    done: Vec<Value>,
    marks: Vec<Value>,
    /// How many of `open` hold blocks.
    containers: usize,
    /// How many of `open` are lists.
    lists: usize,
}

impl Writer {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => self.text(&text, false),
            Event::Code(text) => self.text(&text, true),
            Event::SoftBreak | Event::HardBreak => {
                if let Some(content) = self.inline() {
                    content.push(json!({ "type": "hardBreak" }));
                }
            }
            Event::Rule => {
                self.end_implied();
                if self.open.is_empty() {
                    self.done.push(json!({ "type": "rule" }));
                }
            }
            Event::FootnoteReference(_) | Event::TaskListMarker(_) | Event::InlineMath(_) | Event::DisplayMath(_) => {}
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        let mark = |kind: &str| json!({ "type": kind });
        match tag {
            Tag::Emphasis => return self.marks.push(mark("em")),
            Tag::Strong => return self.marks.push(mark("strong")),
            Tag::Strikethrough => return self.marks.push(mark("strike")),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                let known = ["https://", "http://", "mailto:"].iter().any(|scheme| dest_url.starts_with(scheme));
                // A mark that is none keeps the count.
                return self.marks.push(if known { json!({ "type": "link", "attrs": { "href": &*dest_url } }) } else { Value::Null });
            }
            _ => {}
        }
        self.end_implied();
        let kind = match tag {
            Tag::Paragraph | Tag::HtmlBlock => Kind::Paragraph { implied: false },
            // A heading stands at the top level only.
            Tag::Heading { .. } if self.containers > 0 => Kind::Paragraph { implied: false },
            Tag::Heading { level, .. } => Kind::Heading(level as u8),
            Tag::BlockQuote(_) if self.containers == 0 => Kind::Quote,
            Tag::CodeBlock(CodeBlockKind::Fenced(language)) => {
                Kind::Code(language.split_whitespace().next().unwrap_or_default().to_owned())
            }
            Tag::CodeBlock(CodeBlockKind::Indented) => Kind::Code(String::new()),
            Tag::List(first) if self.lists < DEEPEST => Kind::List(first),
            Tag::Item if self.open.last().is_some_and(|open| matches!(open.kind, Kind::List(_))) => Kind::Item,
            _ => Kind::Nothing,
        };
        self.containers += usize::from(kind.is_container());
        self.lists += usize::from(matches!(kind, Kind::List(_)));
        self.open.push(Open { kind, content: Vec::new() });
    }

    fn end(&mut self, tag: TagEnd) {
        if matches!(tag, TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough | TagEnd::Link | TagEnd::Image) {
            self.marks.pop();
            return;
        }
        self.end_implied();
        if let Some(open) = self.open.pop() {
            self.close(open);
        }
    }

    fn end_implied(&mut self) {
        if self.open.last().is_some_and(|open| open.kind == Kind::Paragraph { implied: true })
            && let Some(open) = self.open.pop()
        {
            self.close(open);
        }
    }

    /// What text goes into.
    fn inline(&mut self) -> Option<&mut Vec<Value>> {
        if !self.open.last().is_some_and(|open| matches!(open.kind, Kind::Paragraph { .. } | Kind::Heading(_) | Kind::Code(_))) {
            self.open.push(Open { kind: Kind::Paragraph { implied: true }, content: Vec::new() });
        }
        self.open.last_mut().map(|open| &mut open.content)
    }

    fn text(&mut self, text: &str, code: bool) {
        if text.is_empty() {
            return;
        }
        let mut marks: Vec<Value> = Vec::new();
        for mark in self.marks.iter().filter(|mark| !mark.is_null()) {
            let kind = mark.get("type");
            // With code goes a link and nothing else, and no mark goes twice.
            if marks.iter().all(|other| other.get("type") != kind) && (!code || kind == Some(&json!("link"))) {
                marks.push(mark.clone());
            }
        }
        if code {
            marks.push(json!({ "type": "code" }));
        }
        let in_code = self.open.last().is_some_and(|open| matches!(open.kind, Kind::Code(_)));
        let Some(content) = self.inline() else { return };
        let marks = (!marks.is_empty() && !in_code).then_some(marks);
        if let Some(last) = content.last_mut()
            && last.get("type") == Some(&json!("text"))
            && last.get("marks") == marks.as_ref().map(|marks| json!(marks)).as_ref()
            && let Some(Value::String(before)) = last.get_mut("text")
        {
            before.push_str(text);
            return;
        }
        let mut node = json!({ "type": "text", "text": text });
        if let (Some(fields), Some(marks)) = (node.as_object_mut(), marks) {
            fields.insert("marks".to_owned(), marks.into());
        }
        content.push(node);
    }

    fn close(&mut self, open: Open) {
        let Open { kind, mut content } = open;
        self.containers -= usize::from(kind.is_container());
        self.lists -= usize::from(matches!(kind, Kind::List(_)));
        let node = match kind {
            Kind::Nothing => {
                self.target().extend(content);
                return;
            }
            Kind::Item => {
                let first = content.first().and_then(|first| first.get("type")).and_then(Value::as_str);
                if !matches!(first, Some("paragraph" | "codeBlock")) {
                    content.insert(0, json!({ "type": "paragraph", "content": [] }));
                }
                json!({ "type": "listItem", "content": content })
            }
            Kind::Code(language) => {
                if let Some(Value::String(code)) = content.last_mut().and_then(|last| last.get_mut("text")) {
                    code.truncate(code.trim_end_matches('\n').len());
                }
                content.retain(|node| text(node, "/text") != Some(""));
                let mut node = json!({ "type": "codeBlock", "content": content });
                if let (Some(fields), false) = (node.as_object_mut(), language.is_empty()) {
                    fields.insert("attrs".to_owned(), json!({ "language": language }));
                }
                node
            }
            _ if content.is_empty() => return,
            Kind::Paragraph { .. } => json!({ "type": "paragraph", "content": content }),
            Kind::Heading(level) => json!({ "type": "heading", "attrs": { "level": level }, "content": content }),
            Kind::Quote => json!({ "type": "blockquote", "content": content }),
            Kind::List(None) => json!({ "type": "bulletList", "content": content }),
            Kind::List(Some(first)) => json!({ "type": "orderedList", "attrs": { "order": first }, "content": content }),
        };
        self.target().push(node);
    }

    /// Where a node goes that is done.
    fn target(&mut self) -> &mut Vec<Value> {
        self.open.last_mut().map_or(&mut self.done, |open| &mut open.content)
    }
}

/// A document as plain text; a text as it is; `None` for nothing.
pub(super) fn to_text(document: &Value) -> Option<String> {
    let written = match document {
        Value::String(text) => text.clone(),
        Value::Object(_) => {
            let blocks: Vec<String> = items(document, "/content").iter().map(block).filter(|block| !block.is_empty()).collect();
            blocks.join("\n\n")
        }
        _ => return None,
    };
    Some(written).filter(|written| !written.trim().is_empty())
}

/// A node that stands by itself, without a line break at its end. The parser of JSON bounds how deep this goes.
fn block(node: &Value) -> String {
    let inside = || items(node, "/content").iter().map(block).filter(|block| !block.is_empty()).collect::<Vec<_>>().join("\n");
    match text(node, "/type").unwrap_or_default() {
        "paragraph" => inline(node),
        "heading" => {
            let level = node.pointer("/attrs/level").and_then(Value::as_u64).unwrap_or(1).clamp(1, 6);
            format!("{} {}", "#".repeat(usize::try_from(level).unwrap_or(1)), inline(node))
        }
        "codeBlock" => format!("```{}\n{}\n```", text(node, "/attrs/language").unwrap_or_default(), inline(node)),
        "blockquote" => indented(&inside(), "> ", "> "),
        "bulletList" | "taskList" | "decisionList" => {
            items(node, "/content").iter().map(|item| indented(&block(item), "- ", "  ")).collect::<Vec<_>>().join("\n")
        }
        "orderedList" => {
            let first = node.pointer("/attrs/order").and_then(Value::as_u64).unwrap_or(1);
            let number = |index: usize| first.saturating_add(index as u64);
            let item = |(index, item)| indented(&block(item), &format!("{}. ", number(index)), "   ");
            items(node, "/content").iter().enumerate().map(item).collect::<Vec<_>>().join("\n")
        }
        "taskItem" => format!("[{}] {}", if text(node, "/attrs/state") == Some("DONE") { "x" } else { " " }, inline(node)),
        "decisionItem" => inline(node),
        "rule" => "---".to_owned(),
        "tableRow" => items(node, "/content").iter().map(block).map(|cell| cell.replace('\n', " ")).collect::<Vec<_>>().join(" | "),
        "expand" | "nestedExpand" => format!("{}\n{}", text(node, "/attrs/title").unwrap_or_default(), inside()),
        "doc" | "listItem" | "panel" | "table" | "tableCell" | "tableHeader" | "mediaSingle" | "mediaGroup" | "layoutSection"
        | "layoutColumn" => inside(),
        _ => piece(node),
    }
}

fn indented(text: &str, first: &str, others: &str) -> String {
    let mut lines = text.split('\n');
    let mut out = format!("{first}{}", lines.next().unwrap_or_default());
    for line in lines {
        let _ = write!(out, "\n{others}{line}");
    }
    out
}

/// What stands in a node's lines.
fn inline(node: &Value) -> String {
    items(node, "/content").iter().map(piece).collect::<Vec<_>>().concat()
}

fn piece(node: &Value) -> String {
    let attribute = |name: &str| text(node, &format!("/attrs/{name}")).unwrap_or_default().to_owned();
    match text(node, "/type").unwrap_or_default() {
        "text" => {
            let said = text(node, "/text").unwrap_or_default();
            let mark = |kind: &str| items(node, "/marks").iter().find(|mark| text(mark, "/type") == Some(kind));
            let said = if mark("code").is_some() { format!("`{said}`") } else { said.to_owned() };
            match mark("link").and_then(|link| text(link, "/attrs/href")) {
                Some(href) if href != said => format!("{said} ({href})"),
                _ => said,
            }
        }
        "hardBreak" => "\n".to_owned(),
        "mention" | "status" => attribute("text"),
        "emoji" => Some(attribute("text")).filter(|text| !text.is_empty()).unwrap_or_else(|| attribute("shortName")),
        "inlineCard" | "blockCard" | "embedCard" => attribute("url"),
        "date" => {
            let millis = at(node, "/attrs/timestamp");
            let millis = millis.as_str().and_then(|millis| millis.parse().ok()).or_else(|| millis.as_i64()).unwrap_or(0);
            jiff::Timestamp::from_millisecond(millis).map(|at| at.to_string().chars().take(10).collect()).unwrap_or_default()
        }
        "media" | "mediaInline" => match attribute("alt") {
            alt if alt.is_empty() => "[attachment]".to_owned(),
            alt => format!("[attachment: {alt}]"),
        },
        // What a later version of the format has: its text at least.
        _ => inline(node),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(markdown: &str) -> Value {
        from_markdown(markdown)["content"].clone()
    }

    fn word(text: &str) -> Value {
        json!({ "type": "text", "text": text })
    }

    #[test]
    fn markdown_becomes_a_document() {
        let written = content("# Login\n\nIt **fails** with `E1`,\nsee [the log](https://x.example/log).\n\n---\n\n> quoted\n");
        let strong = json!({ "type": "text", "text": "fails", "marks": [{ "type": "strong" }] });
        let code = json!({ "type": "text", "text": "E1", "marks": [{ "type": "code" }] });
        let link =
            json!({ "type": "text", "text": "the log", "marks": [{ "type": "link", "attrs": { "href": "https://x.example/log" } }] });
        let paragraph = |content: Value| json!({ "type": "paragraph", "content": content });
        assert_eq!(
            written,
            json!([
                { "type": "heading", "attrs": { "level": 1 }, "content": [word("Login")] },
                paragraph(json!([word("It "), strong, word(" with "), code, word(","), { "type": "hardBreak" }, word("see "), link, word(".")])),
                { "type": "rule" },
                { "type": "blockquote", "content": [paragraph(json!([word("quoted")]))] },
            ])
        );
        let item = |content: Value| json!({ "type": "listItem", "content": content });
        assert_eq!(
            content("- one\n  - two\n\n        code\n3. three\n"),
            json!([
                { "type": "bulletList", "content": [item(json!([
                    paragraph(json!([word("one")])),
                    { "type": "bulletList", "content": [item(json!([
                        paragraph(json!([word("two")])),
                        { "type": "codeBlock", "content": [word("code")] },
                    ]))] },
                ]))] },
                { "type": "orderedList", "attrs": { "order": 3 }, "content": [item(json!([paragraph(json!([word("three")]))]))] },
            ])
        );
        assert_eq!(content("```rust\nfn a() {}\n\n```")[0]["attrs"]["language"], "rust");
        assert_eq!(content("```rust\nfn a() {}\n\n```")[0]["content"], json!([word("fn a() {}")]));
        assert_eq!(content("[x](javascript:alert(1)) <b>y</b>"), json!([paragraph(json!([word("x <b>y</b>")]))]));
        assert_eq!(content("[a]: https://x.example"), json!([paragraph(json!([word("[a]: https://x.example")]))]));
        assert_eq!(content("***~~`x`~~***")[0]["content"][0]["marks"], json!([{ "type": "code" }]));
    }

    /// What Jira takes: which node may stand in which.
    fn fits(node: &Value, depth: usize) {
        assert!(depth < 40);
        let kind = text(node, "/type").unwrap();
        let allowed: &[&str] = match kind {
            "doc" => &["paragraph", "heading", "bulletList", "orderedList", "codeBlock", "blockquote", "rule"],
            "blockquote" => &["paragraph", "bulletList", "orderedList", "codeBlock"],
            "bulletList" | "orderedList" => &["listItem"],
            "listItem" => &["paragraph", "bulletList", "orderedList", "codeBlock"],
            "paragraph" | "heading" => &["text", "hardBreak"],
            "codeBlock" => &["text"],
            _ => &[],
        };
        for inner in items(node, "/content") {
            let inside = text(inner, "/type").unwrap();
            assert!(allowed.contains(&inside), "{inside} in {kind}");
            fits(inner, depth + 1);
        }
        assert_ne!(text(node, "/text"), Some(""));
        if matches!(kind, "bulletList" | "orderedList" | "listItem" | "blockquote" | "doc") {
            assert!(!items(node, "/content").is_empty(), "an empty {kind}");
        }
        if kind == "listItem" {
            assert!(matches!(text(node, "/content/0/type"), Some("paragraph" | "codeBlock")));
        }
    }

    #[test]
    fn any_markdown_is_a_document_that_jira_takes() {
        let pieces = [
            "- ",
            "1. ",
            "> ",
            "# ",
            "**",
            "`",
            "```\n",
            "\n",
            "\n\n",
            "    ",
            "x",
            "[a](b)",
            "---\n",
            "<p>",
            "![i](http://i)",
            "~~",
            "|a|\n|-|\n",
        ];
        let mut state = 7_u64;
        for _ in 0..3000 {
            let mut markdown = String::new();
            for _ in 0..14 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                markdown.push_str(pieces[usize::try_from(state >> 33).unwrap() % pieces.len()]);
            }
            fits(&from_markdown(&markdown), 0);
        }
        for deep in ["> ".repeat(20_000), "- ".repeat(20_000) + "x", "**".repeat(20_000) + "x", "[".repeat(20_000)] {
            fits(&from_markdown(&deep), 0);
        }
    }

    #[test]
    fn a_document_is_read_as_text() {
        let markdown = "# Login\n\nIt fails with `E1`,\nsee the log (https://x.example/log).\n\n- one\n  - two\n- three\n\n3. a\n4. b\n\n> said\n\n```rust\nfn a() {}\n```";
        let written = from_markdown(&markdown.replace("the log (https://x.example/log)", "[the log](https://x.example/log)"));
        assert_eq!(to_text(&written).unwrap(), markdown);
        let others = json!({ "type": "doc", "content": [
            { "type": "paragraph", "content": [
                { "type": "mention", "attrs": { "id": "5b1", "text": "@Ada" } }, word(" by "), { "type": "date", "attrs": { "timestamp": "1796083200000" } },
                word(" "), { "type": "emoji", "attrs": { "shortName": ":smile:" } }, word(" "), { "type": "inlineCard", "attrs": { "url": "https://x.example" } },
            ] },
            { "type": "table", "content": [{ "type": "tableRow", "content": [
                { "type": "tableHeader", "content": [{ "type": "paragraph", "content": [word("a")] }] },
                { "type": "tableCell", "content": [{ "type": "paragraph", "content": [word("b")] }] },
            ] }] },
            { "type": "mediaSingle", "content": [{ "type": "media", "attrs": { "alt": "shot.png" } }] },
            { "type": "novelty", "content": [word("new")] },
        ] });
        assert_eq!(to_text(&others).unwrap(), "@Ada by 2026-12-01 :smile: https://x.example\n\na | b\n\n[attachment: shot.png]\n\nnew");
        assert_eq!(to_text(&json!("plain")).unwrap(), "plain");
        assert_eq!((to_text(&Value::Null), to_text(&json!({ "type": "doc", "content": [] }))), (None, None));
    }
}
