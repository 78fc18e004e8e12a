//! The grammar: lists, pipelines, compound commands, redirections, here-documents.

use std::iter::Peekable;
use std::str::Chars;

use super::word::{Building, ends_word};
use super::{Expands, MAX_DEPTH, Redirect, RedirectKind, Script, SimpleCommand, Word};

/// Why a text is not clear.
pub(super) type Unclear = String;

/// Words that mean something where a command can begin.
const RESERVED: [&str; 22] = [
    "!", "{", "}", "[[", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if", "in", "select", "then",
    "time", "until", "while", "]]",
];

/// A here-document whose body comes after the line.
struct Pending {
    /// Where it was announced.
    at: usize,
    end: String,
    /// A shell expands the body.
    expands: bool,
    strip_tabs: bool,
}

pub(super) struct Parser<'a> {
    chars: Vec<char>,
    at: usize,
    script: &'a mut Script,
    depth: usize,
    /// How deep compound commands stand in this text.
    nested: usize,
    pending: Vec<Pending>,
}

/// Reads `text` and adds what it would run. An error says why there may be more.
pub(super) fn parse(text: &str, script: &mut Script, depth: usize) -> Result<(), Unclear> {
    let mut parser = Parser { chars: text.chars().collect(), at: 0, script, depth, nested: 0, pending: Vec::new() };
    parser.list()?;
    if parser.peek().is_some() {
        return Err(parser.unexpected());
    }
    parser.no_pending()
}

impl Parser<'_> {
    // -- characters ---------------------------------------------------------------------------------------------------------

    /// The position of the `n`-th character from here, line continuations left out.
    fn position(&self, n: usize) -> usize {
        let mut at = self.at;
        let mut left = n;
        loop {
            at = self.past_continuations(at);
            if left == 0 {
                return at;
            }
            left -= 1;
            at += 1;
        }
    }

    /// The position from `at` on that is no line continuation.
    fn past_continuations(&self, mut at: usize) -> usize {
        while self.chars.get(at) == Some(&'\\') && self.chars.get(at + 1) == Some(&'\n') {
            at += 2;
        }
        at
    }

    /// Whether the digits that stand here are followed by an arrow, so that a shell may take them for a descriptor.
    fn digits_end_in_arrow(&self) -> bool {
        let mut at = self.past_continuations(self.at);
        while self.chars.get(at).is_some_and(char::is_ascii_digit) {
            at = self.past_continuations(at + 1);
        }
        matches!(self.chars.get(at), Some('<' | '>')) && self.chars.get(self.past_continuations(at + 1)) != Some(&'(')
    }

    pub(super) fn look(&self, n: usize) -> Option<char> {
        self.chars.get(self.position(n)).copied()
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.look(0)
    }

    pub(super) fn bump(&mut self) -> Option<char> {
        self.at = self.position(0);
        self.bump_raw()
    }

    /// The next character, where a backslash and a line end are two of them.
    pub(super) fn bump_raw(&mut self) -> Option<char> {
        let c = self.chars.get(self.at).copied();
        self.at += usize::from(c.is_some());
        c
    }

    pub(super) fn peek_raw(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn takes(&mut self, wanted: &str) -> bool {
        let there = wanted.chars().enumerate().all(|(n, c)| self.look(n) == Some(c));
        if there {
            for _ in wanted.chars() {
                self.bump();
            }
        }
        there
    }

    fn unexpected(&self) -> Unclear {
        match self.peek() {
            Some('\n') => "a line ends where a command is expected".into(),
            Some(c) => format!("`{c}` stands where it means nothing"),
            None => "it ends in the middle of a command".into(),
        }
    }

    /// Blanks and a comment, up to the end of the line.
    fn blanks(&mut self) {
        while matches!(self.peek(), Some(' ' | '\t')) {
            self.bump();
        }
        if self.peek() == Some('#') {
            // A backslash at a comment's end continues nothing.
            self.at = self.position(0);
            while self.peek_raw().is_some_and(|c| c != '\n') {
                self.bump_raw();
            }
        }
    }

    /// Blanks, comments and line ends.
    fn lines(&mut self) -> Result<(), Unclear> {
        loop {
            self.blanks();
            if self.peek() != Some('\n') {
                return Ok(());
            }
            self.line_end()?;
        }
    }

    /// One line end, and the here-documents that begin after it.
    fn line_end(&mut self) -> Result<(), Unclear> {
        let line_end = self.position(0);
        self.bump();
        for pending in std::mem::take(&mut self.pending) {
            if self.chars.get(pending.at..line_end).is_none_or(|line| line.contains(&'\n')) {
                return Err("a here-document begins in the middle of something".into());
            }
            self.body(&pending)?;
        }
        Ok(())
    }

    fn no_pending(&self) -> Result<(), Unclear> {
        if self.pending.is_empty() { Ok(()) } else { Err("a here-document has no body".into()) }
    }

    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Unclear>) -> Result<T, Unclear> {
        self.nested += 1;
        if self.nested + self.depth > MAX_DEPTH {
            return Err("its commands stand too deep in each other".into());
        }
        let done = read(self);
        self.nested -= 1;
        done
    }

    // -- lists --------------------------------------------------------------------------------------------------------------

    /// Commands up to the end, a closing bracket, or a word that closes what is around. Nothing is an empty list.
    fn list(&mut self) -> Result<(), Unclear> {
        loop {
            self.lines()?;
            if self.ends_list() {
                return Ok(());
            }
            self.and_or()?;
            self.blanks();
            match self.peek() {
                Some(';') if self.look(1) == Some(';') => return Ok(()),
                // `;&` goes on in a `case`.
                Some(';') if self.look(1) == Some('&') => return Ok(()),
                Some(';' | '&') => {
                    self.bump();
                }
                Some('\n') => self.line_end()?,
                _ if self.ends_list() => return Ok(()),
                _ => return Err(self.unexpected()),
            }
        }
    }

    fn ends_list(&self) -> bool {
        match self.peek() {
            None | Some(')') => true,
            Some(';') => self.look(1) == Some(';'),
            _ => matches!(self.reserved(), Some("}" | "do" | "done" | "elif" | "else" | "esac" | "fi" | "then")),
        }
    }

    /// The reserved word that stands here, if it is one by itself.
    fn reserved(&self) -> Option<&'static str> {
        RESERVED.into_iter().find(|word| {
            let length = word.chars().count();
            word.chars().enumerate().all(|(n, c)| self.look(n) == Some(c)) && self.look(length).is_none_or(ends_word)
        })
    }

    fn expect(&mut self, word: &'static str) -> Result<(), Unclear> {
        if self.reserved() == Some(word) {
            self.takes(word);
            return Ok(());
        }
        Err(format!("`{word}` is missing"))
    }

    fn and_or(&mut self) -> Result<(), Unclear> {
        loop {
            self.pipeline()?;
            self.blanks();
            if !self.takes("&&") && !self.takes("||") {
                return Ok(());
            }
            self.lines()?;
        }
    }

    fn pipeline(&mut self) -> Result<(), Unclear> {
        loop {
            self.blanks();
            match self.reserved() {
                Some("!") => {
                    self.takes("!");
                }
                Some("time") => {
                    self.takes("time");
                    self.blanks();
                    if self.peek() == Some('-') && self.look(1) == Some('p') && self.look(2).is_none_or(ends_word) {
                        self.takes("-p");
                    }
                    self.blanks();
                    if self.peek().is_none_or(|c| matches!(c, '\n' | ';')) {
                        return Ok(());
                    }
                    if self.peek() == Some('-') {
                        // Not the keyword's option: where `time` is a program, it takes more.
                        return Err("`time` has an option that is not known".into());
                    }
                    if self.reserved().is_some_and(|word| word != "!") {
                        // Bash finds the end of a substitution with such a thing in it elsewhere than its own grammar says.
                        return Err("`time` stands before a keyword, which shells read differently".into());
                    }
                }
                _ => break,
            }
        }
        loop {
            self.command()?;
            self.blanks();
            if self.peek() != Some('|') || self.look(1) == Some('|') {
                return Ok(());
            }
            self.bump();
            if self.peek() == Some('&') {
                self.bump();
            }
            self.lines()?;
        }
    }

    // -- commands -----------------------------------------------------------------------------------------------------------

    fn command(&mut self) -> Result<(), Unclear> {
        self.blanks();
        if self.peek() == Some('(') {
            if self.look(1) == Some('(') {
                return Err("it has `((`, which is arithmetic or two groups".into());
            }
            self.bump();
            self.deeper(Self::list)?;
            self.close_bracket()?;
            return self.redirects_after();
        }
        let Some(word) = self.reserved() else { return self.simple() };
        match word {
            // Read as a command whose words are what is in it: a shell that does not know it does so.
            "[[" | "]]" | "in" => return self.simple(),
            "{" => {
                self.takes("{");
                self.deeper(Self::list)?;
                self.expect("}")?;
            }
            "if" => self.deeper(|parser| {
                parser.takes("if");
                parser.list()?;
                parser.expect("then")?;
                parser.list()?;
                while parser.reserved() == Some("elif") {
                    parser.takes("elif");
                    parser.list()?;
                    parser.expect("then")?;
                    parser.list()?;
                }
                if parser.reserved() == Some("else") {
                    parser.takes("else");
                    parser.list()?;
                }
                parser.expect("fi")
            })?,
            "while" | "until" => self.deeper(|parser| {
                parser.takes(word);
                parser.list()?;
                parser.do_group()
            })?,
            "for" => self.deeper(Self::for_loop)?,
            "case" => self.deeper(Self::case)?,
            "function" => {
                self.takes("function");
                self.blanks();
                let name = self.word()?.done().text;
                self.blanks();
                if self.peek() == Some('(') {
                    self.bump();
                    self.blanks();
                    self.close_bracket()?;
                }
                self.function(&name)?;
            }
            other => return Err(format!("`{other}` stands where it means nothing, or is not understood")),
        }
        self.redirects_after()
    }

    fn close_bracket(&mut self) -> Result<(), Unclear> {
        if self.peek() == Some(')') {
            // A body that has not come by here belongs to no shell's reading of it.
            self.no_pending()?;
            self.bump();
            return Ok(());
        }
        Err(if self.peek().is_none() { "a bracket is not closed".into() } else { self.unexpected() })
    }

    fn do_group(&mut self) -> Result<(), Unclear> {
        self.expect("do")?;
        self.list()?;
        self.expect("done")
    }

    fn for_loop(&mut self) -> Result<(), Unclear> {
        self.takes("for");
        self.blanks();
        let name = self.word()?.done();
        if !name.known().is_some_and(is_name) {
            return Err("a loop has no plain name".into());
        }
        self.lines()?;
        if self.reserved() == Some("in") {
            self.takes("in");
            loop {
                self.blanks();
                if self.peek().is_none_or(|c| matches!(c, ';' | '\n')) {
                    break;
                }
                let at = self.at;
                self.word()?;
                if self.at == at {
                    return Err(self.unexpected());
                }
            }
        }
        self.blanks();
        if self.peek() == Some(';') {
            self.bump();
        }
        self.lines()?;
        self.do_group()
    }

    fn case(&mut self) -> Result<(), Unclear> {
        self.takes("case");
        self.blanks();
        self.word()?;
        self.lines()?;
        self.expect("in")?;
        loop {
            self.lines()?;
            if self.reserved() == Some("esac") {
                self.takes("esac");
                return Ok(());
            }
            if self.peek() == Some('(') {
                self.bump();
            }
            loop {
                self.blanks();
                let at = self.at;
                self.word()?;
                if self.at == at {
                    return Err(self.unexpected());
                }
                self.blanks();
                if self.peek() != Some('|') {
                    break;
                }
                self.bump();
            }
            self.close_bracket()?;
            self.list()?;
            if self.takes(";;&") || self.takes(";;") || self.takes(";&") {
                continue;
            }
            self.expect("esac")?;
            return Ok(());
        }
    }

    /// A function's body, its name and brackets read already. What the name means from here on is not what it says.
    fn function(&mut self, name: &str) -> Result<(), Unclear> {
        self.script.doubt(format!("it defines `{name}` anew"));
        self.lines()?;
        self.deeper(Self::command)
    }

    /// The inside of `$(`, up to its bracket.
    pub(super) fn substitution(&mut self) -> Result<(), Unclear> {
        let waiting = std::mem::take(&mut self.pending);
        self.deeper(Self::list)?;
        self.close_bracket()?;
        self.pending = waiting;
        Ok(())
    }

    /// Text that a shell runs as a script of its own.
    pub(super) fn inner_script(&mut self, text: &str) {
        super::read_into(text, self.script, self.depth + self.nested + 1);
    }

    fn redirects_after(&mut self) -> Result<(), Unclear> {
        let mut around = SimpleCommand::default();
        loop {
            self.blanks();
            if !self.redirect(&mut around)? {
                break;
            }
        }
        if around.redirects.iter().any(Redirect::touches_a_file) {
            // A group that reads or writes a file: no command of it says so.
            self.script.doubt("a group of commands reads or writes a file");
        }
        Ok(())
    }

    fn simple(&mut self) -> Result<(), Unclear> {
        let mut command = SimpleCommand::default();
        let mut ends_in_dash = false;
        loop {
            self.blanks();
            if self.peek() == Some('&') && self.look(1) == Some('>') {
                ends_in_dash = true;
            }
            if self.redirect(&mut command)? {
                continue;
            }
            match self.peek() {
                Some('(') => {
                    let [name] = command.words.as_slice() else { return Err(self.unexpected()) };
                    if !command.assignments.is_empty() || !command.redirects.is_empty() {
                        return Err(self.unexpected());
                    }
                    let name = name.text.clone();
                    self.bump();
                    self.blanks();
                    self.close_bracket()?;
                    return self.function(&name);
                }
                None => break,
                // `<(` and `>(` begin a word.
                Some('<' | '>') => {}
                Some(c) if ends_word(c) => break,
                Some(_) => {}
            }
            if ends_in_dash {
                return Err("it has `&>` in the middle, which shells read differently".into());
            }
            let from = self.at;
            let word = self.word()?;
            if self.at == from {
                return Err(self.unexpected());
            }
            self.take_word(word, &mut command)?;
        }
        if command.words.is_empty() && command.assignments.is_empty() && command.redirects.is_empty() {
            return Err(self.unexpected());
        }
        if let Some(name) = command.words.first()
            && name.expands != Expands::No
        {
            self.script.doubt("the name of a command is computed");
            return Ok(());
        }
        self.script.add(command, self.depth + self.nested);
        Ok(())
    }

    /// A word joins the command: as an assignment while there is no name.
    fn take_word(&mut self, word: Building, command: &mut SimpleCommand) -> Result<(), Unclear> {
        let name = word.assigns_to().map(|name| name.strip_suffix('+').unwrap_or(name));
        if command.words.is_empty()
            && let Some(name) = name
        {
            if name.contains('[') {
                return Err("it assigns to an element of an array".into());
            }
            if is_name(name) {
                if word.text.ends_with('=') && self.peek() == Some('(') {
                    return Err("it assigns an array".into());
                }
                command.assignments.push(word.done());
                return Ok(());
            }
        }
        if self.peek() == Some('(') && !command.words.is_empty() {
            return Err(self.unexpected());
        }
        command.words.push(word.done());
        Ok(())
    }

    // -- redirections -------------------------------------------------------------------------------------------------------

    /// One redirection, if one begins here.
    fn redirect(&mut self, command: &mut SimpleCommand) -> Result<bool, Unclear> {
        let mut digits = 0;
        // Two are as good as many: more than one is not read.
        while digits < 2 && self.look(digits).is_some_and(|c| c.is_ascii_digit()) {
            digits += 1;
        }
        if self.peek() == Some('{') {
            self.named_descriptor()?;
        }
        if digits == 2 {
            if self.digits_end_in_arrow() {
                return Err("it names a descriptor with more than one digit, which shells read differently".into());
            }
            return Ok(false);
        }
        let both = digits == 0 && self.peek() == Some('&') && self.look(1) == Some('>');
        let first = self.look(digits);
        if !both && (!matches!(first, Some('<' | '>')) || (self.look(digits + 1) == Some('('))) {
            return Ok(false);
        }
        for _ in 0..digits {
            self.bump();
        }
        let kind = if both {
            self.takes("&>");
            self.takes(">");
            RedirectKind::Write
        } else if self.takes("<<<") {
            RedirectKind::Text
        } else if self.takes("<<") {
            let strip_tabs = self.takes("-");
            return self.here_document(command, strip_tabs).map(|()| true);
        } else if self.takes("<>") || self.takes(">>") || self.takes(">|") {
            RedirectKind::Write
        } else if self.takes("<&") || self.takes(">&") {
            RedirectKind::Duplicate
        } else if self.takes("<") {
            RedirectKind::Read
        } else {
            self.bump();
            RedirectKind::Write
        };
        let target = self.target()?.done();
        // `>&file` writes one; `>&2`, `<&3-` and `>&-` only move descriptors.
        let moves = |text: &str| {
            let number = text.strip_suffix('-').unwrap_or(text);
            number.chars().all(|c| c.is_ascii_digit())
        };
        let kind = if kind == RedirectKind::Duplicate && !target.known().is_some_and(moves) { RedirectKind::Write } else { kind };
        command.redirects.push(Redirect { kind, target });
        Ok(true)
    }

    fn target(&mut self) -> Result<Building, Unclear> {
        while matches!(self.peek(), Some(' ' | '\t')) {
            self.bump();
        }
        let from = self.at;
        if self.peek() == Some('#') {
            return Err(self.unexpected());
        }
        let word = self.word()?;
        if self.at == from { Err("a redirection names nothing".into()) } else { Ok(word) }
    }

    /// `{name}>file` opens a descriptor in some shells and is a word in others.
    fn named_descriptor(&self) -> Result<(), Unclear> {
        let mut at = self.position(1);
        let mut next = |parser: &Self| -> Option<char> {
            at = parser.past_continuations(at);
            let c = parser.chars.get(at).copied();
            at += 1;
            c
        };
        let mut last = next(self);
        while last.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_') {
            last = next(self);
        }
        if last == Some('}') && matches!(next(self), Some('<' | '>')) {
            return Err("it opens a descriptor by name, which shells read differently".into());
        }
        Ok(())
    }

    fn here_document(&mut self, command: &mut SimpleCommand, strip_tabs: bool) -> Result<(), Unclear> {
        let from = self.at;
        let end = self.target()?;
        let raw: String = self.chars.get(from..self.at).unwrap_or_default().iter().collect();
        if raw.contains(['$', '`', '\n']) || end.text.is_empty() {
            return Err("the end of a here-document is not a plain word".into());
        }
        let expands = !end.quoted;
        self.pending.push(Pending { at: self.at, end: end.done().text, expands, strip_tabs });
        command.redirects.push(Redirect { kind: RedirectKind::Text, target: Word::unknown() });
        Ok(())
    }

    /// The body of a here-document, up to and with its last line.
    fn body(&mut self, pending: &Pending) -> Result<(), Unclear> {
        let mut body: Vec<char> = Vec::new();
        loop {
            let mut line: Vec<char> = Vec::new();
            let mut closed = false;
            while let Some(c) = self.bump_raw() {
                if c == '\n' {
                    closed = true;
                    break;
                }
                line.push(c);
            }
            let text: String = line.iter().collect();
            let shown = if pending.strip_tabs { text.trim_start_matches('\t') } else { text.as_str() };
            if shown == pending.end {
                break;
            }
            if !closed {
                return Err("a here-document is not closed".into());
            }
            if shown.trim_start().starts_with(pending.end.as_str()) {
                // Inside a substitution some shells end the body here.
                return Err("a here-document has a line that begins like its end".into());
            }
            if pending.expands && shown.ends_with('\\') {
                return Err("a here-document has a line that ends with a backslash".into());
            }
            body.extend(line);
            body.push('\n');
        }
        if pending.expands {
            let depth = self.depth + self.nested + 1;
            if depth > MAX_DEPTH {
                return Err("its commands stand too deep in each other".into());
            }
            let mut inner = Parser { chars: body, at: 0, script: &mut *self.script, depth, nested: 0, pending: Vec::new() };
            inner.expand_body()?;
        }
        Ok(())
    }
}

/// Whether a shell takes it for a variable's name.
pub(super) fn is_name(text: &str) -> bool {
    let mut chars: Peekable<Chars<'_>> = text.chars().peekable();
    chars.peek().is_some_and(|c| !c.is_ascii_digit()) && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}
