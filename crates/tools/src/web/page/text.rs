//! From markup to text, in one pass over its tags.
//!
//! No tree is built: nesting costs a counter, so that the time is linear in the length of the markup, however it nests, and there is
//! nothing that could overflow.

use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{Tag, TagKind};
use url::Url;

use super::flow::{Flow, Gap};
use super::tokens::{See, Seen, attribute, each_token};

/// Tables within tables beyond this depth are text like any other.
const TABLES: usize = 8;
/// Lists within lists beyond this depth move no further to the right.
const LISTS: usize = 8;
/// A row with a cell longer than this, in bytes, is no row of data.
const CELL: usize = 400;

/// Whether links keep their addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// Each link is followed by its address in parentheses.
    Shown,
    /// Only the text of links is kept.
    Hidden,
}

/// The text of a page: blocks apart, headings with `#`, items with `-` or their number, rows of tables with ` | ` between cells, links with
/// their address, and none of what is no content (scripts, styles, templates, graphics).
///
/// `base` is the page's own address, which relative links are relative to.
///
/// ```
/// use toolwright_tools::{Links, page_text};
///
/// let page = "<h1>News</h1><p>Read <a href='/more'>more</a> &amp; less<script>x()</script></p>";
/// assert_eq!(page_text(page, Some("https://example.com/a"), Links::Shown), "# News\n\nRead more (https://example.com/more) & less");
/// ```
pub fn page_text(html: &str, base: Option<&str>, links: Links) -> String {
    let writer = Writer { base: base.and_then(|base| Url::parse(base).ok()), links, ..Writer::default() };
    each_token(html, writer).finish()
}

/// What a tag does to the text around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Nothing.
    Inline,
    /// What is in it is no text of the page.
    Skipped,
    /// A block of its own.
    Block,
    /// A line of its own.
    Line,
    Break,
    Rule,
    Heading(usize),
    List(Option<u32>),
    Item,
    Table,
    Row,
    Cell,
    Pre,
    Link,
    Image,
    Base,
}

fn kind(tag: &str) -> Kind {
    match tag {
        "a" => Kind::Link,
        "script" | "style" | "noscript" | "template" | "svg" | "iframe" | "noembed" | "noframes" | "title" | "textarea" | "datalist" => {
            Kind::Skipped
        }
        "address" | "article" | "aside" | "blockquote" | "body" | "center" | "dd" | "details" | "dialog" | "dir" | "div" | "dl"
        | "fieldset" | "figcaption" | "figure" | "footer" | "form" | "header" | "hgroup" | "legend" | "main" | "nav" | "p" | "search"
        | "section" | "summary" | "caption" => Kind::Block,
        "dt" | "option" | "optgroup" => Kind::Line,
        "br" => Kind::Break,
        "hr" => Kind::Rule,
        "h1" => Kind::Heading(1),
        "h2" => Kind::Heading(2),
        "h3" => Kind::Heading(3),
        "h4" => Kind::Heading(4),
        "h5" => Kind::Heading(5),
        "h6" => Kind::Heading(6),
        "ul" | "menu" => Kind::List(None),
        "ol" => Kind::List(Some(1)),
        "li" => Kind::Item,
        "table" => Kind::Table,
        "tr" => Kind::Row,
        "td" | "th" => Kind::Cell,
        "pre" | "listing" | "xmp" | "plaintext" => Kind::Pre,
        "img" => Kind::Image,
        "base" => Kind::Base,
        _ => Kind::Inline,
    }
}

/// A link that is open.
#[derive(Debug)]
struct Link {
    href: String,
    /// Text to show where the link has none: that of an image.
    alt: String,
    /// How long the text around it was, to tell whether it has text, and in how many tables it stands.
    began: (usize, usize),
}

/// A table that is open: the cells of its row so far, and the one that is being written.
#[derive(Debug, Default)]
struct Table {
    row: Vec<String>,
    cell: Flow,
    has_cell: bool,
}

/// What is no text of the page: the tag that began it, and how many of that name are open.
#[derive(Debug)]
struct Skip {
    name: String,
    depth: usize,
}

#[derive(Debug)]
struct Writer {
    base: Option<Url>,
    has_base: bool,
    links: Links,
    page: Flow,
    tables: Vec<Table>,
    /// Tables that are too deep to be one.
    deep: usize,
    lists: Vec<Option<u32>>,
    pre: usize,
    skip: Option<Skip>,
    link: Option<Link>,
}

impl Default for Writer {
    fn default() -> Self {
        Self {
            base: None,
            has_base: false,
            links: Links::Shown,
            page: Flow::default(),
            tables: Vec::new(),
            deep: 0,
            lists: Vec::new(),
            pre: 0,
            skip: None,
            link: None,
        }
    }
}

impl See for Writer {
    fn tag(&mut self, tag: &Tag) -> Seen {
        match tag.kind {
            TagKind::StartTag => self.start(tag),
            TagKind::EndTag => {
                self.end(&tag.name);
                Seen::Markup
            }
        }
    }

    fn text(&mut self, text: &str) {
        if self.skip.is_some() {
            return;
        }
        if self.pre > 0 { self.flow().lines(text) } else { self.flow().words(text) }
    }
}

/// How the content of an element is read, where it is no markup.
pub(super) fn content(tag: &str) -> Seen {
    match tag {
        "script" => Seen::Raw(RawKind::ScriptData),
        "style" | "noscript" | "iframe" | "noembed" | "noframes" | "xmp" => Seen::Raw(RawKind::Rawtext),
        "title" | "textarea" => Seen::Raw(RawKind::Rcdata),
        "plaintext" => Seen::Plain,
        _ => Seen::Markup,
    }
}

impl Writer {
    fn flow(&mut self) -> &mut Flow {
        match self.tables.last_mut() {
            Some(table) => &mut table.cell,
            None => &mut self.page,
        }
    }

    fn start(&mut self, tag: &Tag) -> Seen {
        let kind = kind(&tag.name);
        if let Some(skip) = &mut self.skip {
            let graphics = skip.name == "svg";
            if *skip.name == *tag.name {
                skip.depth += usize::from(!(graphics && tag.self_closing));
                return Seen::Markup;
            }
            // Markup of pages ends graphics that nobody closed, as browsers have it.
            if graphics && !matches!(kind, Kind::Inline | Kind::Skipped | Kind::Link | Kind::Image | Kind::Base) {
                self.skip = None;
            } else {
                // Within graphics, these are elements like any other.
                return if graphics { Seen::Markup } else { content(&tag.name) };
            }
        }
        match kind {
            Kind::Inline => {}
            Kind::Skipped => {
                // Of foreign elements, `/>` is the end.
                if !(tag.self_closing && &*tag.name == "svg") {
                    self.skip = Some(Skip { name: tag.name.to_string(), depth: 1 });
                }
            }
            Kind::Block => self.flow().gap(Gap::Block),
            Kind::Line | Kind::Break => self.flow().gap(Gap::Line),
            Kind::Rule => self.flow().gap(Gap::Block),
            Kind::Heading(level) => {
                let flow = self.flow();
                flow.gap(Gap::Block);
                flow.mark(format!("{} ", "#".repeat(level)));
            }
            Kind::List(first) => {
                let gap = if self.lists.is_empty() { Gap::Block } else { Gap::Line };
                self.flow().gap(gap);
                self.lists.push(first);
            }
            Kind::Item => self.item(),
            Kind::Pre => {
                self.flow().gap(Gap::Block);
                self.pre += 1;
            }
            Kind::Table => {
                if self.tables.len() < TABLES {
                    self.tables.push(Table::default());
                } else {
                    self.deep += 1;
                    self.flow().gap(Gap::Block);
                }
            }
            Kind::Row => self.end_row(),
            Kind::Cell => self.next_cell(),
            Kind::Link => self.start_link(tag),
            Kind::Image => {
                if let (Some(link), Some(alt)) = (self.link.as_mut().filter(|link| link.alt.is_empty()), attribute(tag, "alt")) {
                    link.alt.push_str(alt);
                }
            }
            Kind::Base => {
                if let (false, Some(href)) = (self.has_base, attribute(tag, "href").map(str::trim)) {
                    self.has_base = true;
                    let base = self.base.as_ref().map_or_else(|| Url::parse(href), |base| base.join(href));
                    self.base = base.ok().or(self.base.take());
                }
            }
        }
        content(&tag.name)
    }

    fn end(&mut self, name: &str) {
        if let Some(skip) = &mut self.skip {
            if *skip.name == *name {
                skip.depth -= 1;
                if skip.depth == 0 {
                    self.skip = None;
                }
            }
            return;
        }
        match kind(name) {
            Kind::Inline | Kind::Skipped | Kind::Image | Kind::Base => {}
            Kind::Block | Kind::Rule => self.flow().gap(Gap::Block),
            // `</p>` alone is an empty block, `</br>` a line: both as browsers have it.
            Kind::Line | Kind::Break | Kind::Item => {
                let flow = self.flow();
                flow.unmark();
                flow.gap(Gap::Line);
            }
            Kind::Heading(_) => {
                let flow = self.flow();
                flow.unmark();
                flow.gap(Gap::Block);
            }
            Kind::List(_) => {
                self.lists.pop();
                let gap = if self.lists.is_empty() { Gap::Block } else { Gap::Line };
                self.flow().gap(gap);
            }
            Kind::Pre => {
                self.pre = self.pre.saturating_sub(1);
                self.flow().gap(Gap::Block);
            }
            Kind::Table => self.end_table(),
            Kind::Row => self.end_row(),
            Kind::Cell => {}
            Kind::Link => self.end_link(),
        }
    }

    fn item(&mut self) {
        let indent = "  ".repeat(self.lists.len().saturating_sub(1).min(LISTS));
        let mark = match self.lists.last_mut() {
            Some(Some(number)) => {
                let mark = format!("{indent}{number}. ");
                *number = number.saturating_add(1);
                mark
            }
            _ => format!("{indent}- "),
        };
        let flow = self.flow();
        flow.gap(Gap::Line);
        flow.mark(mark);
    }

    fn start_link(&mut self, tag: &Tag) {
        self.end_link();
        if let (Links::Shown, Some(href)) = (self.links, attribute(tag, "href")) {
            let began = (self.flow().len(), self.tables.len());
            self.link = Some(Link { href: href.trim().to_owned(), alt: String::new(), began });
        }
    }

    fn end_link(&mut self) {
        let Some(Link { href, alt, began }) = self.link.take() else { return };
        let Some(address) = self.address(&href) else { return };
        let has_text = began.1 != self.tables.len() || self.flow().len() != began.0;
        let flow = self.flow();
        if !has_text {
            flow.words(&alt);
        }
        // The address belongs to its text: no line or block stands between them.
        let after = flow.close_up();
        flow.push(&format!("({address})"));
        flow.gap(after);
    }

    /// Where a link leads; `None` if nowhere.
    fn address(&self, href: &str) -> Option<String> {
        // A place on this page, unless the page says that its links are relative to another.
        if href.is_empty() || (href.starts_with('#') && !self.has_base) {
            return Some(href.to_owned()).filter(|href| href.len() > 1);
        }
        let url = match &self.base {
            Some(base) => base.join(href),
            None => Url::parse(href),
        };
        match url {
            Ok(url) if matches!(url.scheme(), "javascript" | "data") => None,
            Ok(url) => Some(url.into()),
            Err(_) => Some(href.to_owned()),
        }
    }

    fn next_cell(&mut self) {
        self.end_link_in_cell();
        let Some(table) = self.tables.last_mut() else { return self.flow().gap(Gap::Line) };
        if table.has_cell || !table.cell.is_empty() {
            let cell = std::mem::take(&mut table.cell).take();
            table.row.push(cell);
        }
        table.has_cell = true;
    }

    /// Writes the row so far: as one line if it is a row of data, else as the blocks that it holds.
    fn end_row(&mut self) {
        self.end_link_in_cell();
        let Some(table) = self.tables.last_mut() else { return self.flow().gap(Gap::Line) };
        let mut row = std::mem::take(&mut table.row);
        let cell = std::mem::take(&mut table.cell).take();
        if table.has_cell || !cell.is_empty() {
            row.push(cell);
        }
        table.has_cell = false;
        if row.iter().all(String::is_empty) {
            return;
        }
        let Some(inner) = self.tables.pop() else { return };
        let flow = self.flow();
        let data = row.iter().all(|cell| cell.len() <= CELL && !cell.contains('\n'));
        if data && row.len() > 1 {
            flow.gap(Gap::Line);
            let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
            flow.push(cells.join(" | ").trim_end());
        } else {
            for cell in row.iter().filter(|cell| !cell.is_empty()) {
                flow.gap(Gap::Block);
                flow.push(cell);
            }
        }
        flow.gap(Gap::Line);
        self.tables.push(inner);
    }

    /// A link that a cell leaves open ends with it, so that its address stands in the cell.
    fn end_link_in_cell(&mut self) {
        if self.link.as_ref().is_some_and(|link| link.began.1 == self.tables.len() && link.began.1 > 0) {
            self.end_link();
        }
    }

    fn end_table(&mut self) {
        if self.deep > 0 {
            self.deep -= 1;
            return self.flow().gap(Gap::Block);
        }
        self.end_row();
        self.tables.pop();
        self.flow().gap(Gap::Block);
    }

    fn finish(mut self) -> String {
        self.end_link();
        self.deep = 0;
        while !self.tables.is_empty() {
            self.end_table();
        }
        self.page.take()
    }
}
