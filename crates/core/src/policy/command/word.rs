//! Words: quotes, escapes, and what a shell would expand.

use super::parse::{Parser, Unclear};
use super::{Expands, Word};

/// What a word is being read into.
#[derive(Default)]
pub(super) struct Building {
    pub(super) text: String,
    one: bool,
    many: bool,
    /// Some of it is quoted.
    pub(super) quoted: bool,
    /// How much of the text stands before the first quote or expansion.
    plain: Option<usize>,
    /// An unquoted brace, and then a comma or two dots.
    brace: bool,
    brace_lists: bool,
    /// An unquoted `[`.
    bracket: bool,
}

impl Building {
    fn is(&mut self, expands: Expands) {
        self.plain.get_or_insert(self.text.len());
        match expands {
            Expands::No => {}
            Expands::One => self.one = true,
            Expands::Many => self.many = true,
        }
    }

    fn quote(&mut self) {
        self.plain.get_or_insert(self.text.len());
        self.quoted = true;
    }

    /// What stands before the first `=`, if nothing of it is quoted or expanded.
    pub(super) fn assigns_to(&self) -> Option<&str> {
        let (name, _) = self.text.split_once('=')?;
        self.plain.is_none_or(|plain| name.len() < plain).then_some(name)
    }

    pub(super) fn done(self) -> Word {
        let expands = if self.many {
            Expands::Many
        } else if self.one {
            Expands::One
        } else {
            Expands::No
        };
        Word { text: self.text, expands }
    }
}

/// Whether a character ends an unquoted word.
pub(super) fn ends_word(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '|' | '&' | ';' | '(' | ')' | '<' | '>')
}

impl Parser<'_> {
    /// Reads one word; empty if none begins here.
    pub(super) fn word(&mut self) -> Result<Building, Unclear> {
        let mut word = Building::default();
        let mut begun = false;
        while let Some(c) = self.peek() {
            match c {
                '<' | '>' if self.look(1) == Some('(') => {
                    // A process substitution is a word, or part of one.
                    self.bump();
                    self.bump();
                    self.substitution()?;
                    word.is(Expands::One);
                }
                c if ends_word(c) => break,
                '\'' => {
                    self.bump();
                    word.quote();
                    self.single_quoted(&mut word.text)?;
                }
                '"' => {
                    self.bump();
                    word.quote();
                    self.double_quoted(&mut word)?;
                }
                '\\' => {
                    self.bump();
                    word.quote();
                    match self.bump_raw() {
                        Some(escaped) => word.text.push(escaped),
                        None => return Err("it ends with a backslash".into()),
                    }
                }
                '$' => {
                    self.bump();
                    self.dollar(&mut word, false)?;
                }
                '`' => {
                    self.bump();
                    self.backticks()?;
                    word.is(Expands::Many);
                }
                '*' | '?' => {
                    // A pattern for file names.
                    self.bump();
                    word.is(Expands::Many);
                    word.text.push(c);
                }
                '[' => {
                    self.bump();
                    word.bracket = true;
                    word.text.push(c);
                }
                '~' if !begun => {
                    self.bump();
                    word.text.push(c);
                    word.is(Expands::One);
                }
                '{' => {
                    self.bump();
                    word.text.push(c);
                    word.brace = true;
                }
                '\0' => return Err("it has a NUL character".into()),
                c => {
                    self.bump();
                    if word.brace && (c == ',' || (c == '.' && word.text.ends_with('.'))) {
                        word.brace_lists = true;
                    }
                    word.text.push(c);
                }
            }
            begun = true;
        }
        if (word.brace && word.brace_lists) || (word.bracket && word.text.contains(']')) {
            // What is closed where does not matter: it counts as what it may be.
            word.is(Expands::Many);
        }
        Ok(word)
    }

    fn single_quoted(&mut self, into: &mut String) -> Result<(), Unclear> {
        loop {
            match self.bump_raw() {
                Some('\'') => return Ok(()),
                Some('\0') => return Err("it has a NUL character".into()),
                Some(c) => into.push(c),
                None => return Err("a single quote is not closed".into()),
            }
        }
    }

    fn double_quoted(&mut self, word: &mut Building) -> Result<(), Unclear> {
        loop {
            match self.bump() {
                Some('"') => return Ok(()),
                Some('\\') => match self.bump_raw() {
                    Some(c @ ('$' | '`' | '"' | '\\')) => word.text.push(c),
                    Some(c) => {
                        word.text.push('\\');
                        word.text.push(c);
                    }
                    None => return Err("a double quote is not closed".into()),
                },
                Some('$') => self.dollar(word, true)?,
                Some('`') => {
                    self.backticks()?;
                    word.is(Expands::One);
                }
                Some('\0') => return Err("it has a NUL character".into()),
                Some(c) => word.text.push(c),
                None => return Err("a double quote is not closed".into()),
            }
        }
    }

    /// What follows a dollar sign, which is read already.
    fn dollar(&mut self, word: &mut Building, quoted: bool) -> Result<(), Unclear> {
        let unquoted_many = if quoted { Expands::One } else { Expands::Many };
        match self.peek() {
            Some('(') if self.look(1) == Some('(') => {
                self.bump();
                self.bump();
                self.arithmetic()?;
                word.is(unquoted_many);
            }
            Some('(') => {
                self.bump();
                self.substitution()?;
                word.is(unquoted_many);
            }
            Some('{') => {
                self.bump();
                let expands = self.parameter(quoted)?;
                word.is(expands);
            }
            Some('[') => return Err("it has arithmetic in `$[ ]`".into()),
            Some('\'') if !quoted => {
                self.bump();
                self.ansi_quoted()?;
                word.quote();
                // A shell that does not know this form reads another text.
                word.is(Expands::One);
            }
            Some('"') if !quoted => {
                self.bump();
                word.quote();
                self.double_quoted(word)?;
                word.is(Expands::One);
            }
            Some('@') => {
                self.bump();
                word.is(Expands::Many);
            }
            Some(c) if c.is_ascii_digit() || matches!(c, '*' | '#' | '?' | '-' | '$' | '!') => {
                self.bump();
                word.is(unquoted_many);
            }
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                while self.peek().is_some_and(|c| c.is_ascii_alphanumeric() || c == '_') {
                    self.bump();
                }
                word.is(unquoted_many);
            }
            _ => word.text.push('$'),
        }
        Ok(())
    }

    /// `$'...'`, the opening read already.
    fn ansi_quoted(&mut self) -> Result<(), Unclear> {
        loop {
            match self.bump_raw() {
                Some('\'') => return Ok(()),
                // A shell that does not know this form ends it at another quote.
                Some('\\') if matches!(self.peek_raw(), Some('\'' | '\\') | None) => {
                    return Err("it has an escaped quote in `$' '`, which shells read differently".into());
                }
                Some('\0') | None => return Err("a quote is not closed".into()),
                Some(_) => {}
            }
        }
    }

    /// The inside of `$((...))` or a look-alike; only numbers and operators are clear, since names are evaluated again.
    fn arithmetic(&mut self) -> Result<(), Unclear> {
        let mut open = 0usize;
        loop {
            match self.bump() {
                Some('(') => open += 1,
                Some(')') if open > 0 => open -= 1,
                Some(')') if self.peek() == Some(')') => {
                    self.bump();
                    return Ok(());
                }
                Some(c) if c.is_ascii_digit() || matches!(c, ' ' | '+' | '-' | '*' | '/' | '%') => {}
                _ => return Err("it computes with names, which a shell evaluates".into()),
            }
        }
    }

    /// The inside of `${...}`.
    fn parameter(&mut self, quoted: bool) -> Result<Expands, Unclear> {
        let evaluated = || Unclear::from("it has a parameter that a shell evaluates as code");
        let mut many = !quoted;
        match self.peek() {
            Some('#') => {
                self.bump();
            }
            Some('!') => return Err(evaluated()),
            _ => {}
        }
        match self.peek() {
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                while self.peek().is_some_and(|c| c.is_ascii_alphanumeric() || c == '_') {
                    self.bump();
                }
            }
            Some(c) if c.is_ascii_digit() => {
                while self.peek().is_some_and(|c| c.is_ascii_digit()) {
                    self.bump();
                }
            }
            Some('@') => {
                self.bump();
                many = true;
            }
            Some('*' | '#' | '?' | '-' | '$') => {
                self.bump();
            }
            // `${#}` is the count itself.
            Some('}') => {}
            _ => return Err(evaluated()),
        }
        if self.peek() == Some('[') {
            // A subscript is arithmetic, unless it says "all".
            if !matches!(self.look(1), Some('@' | '*')) || self.look(2) != Some(']') {
                return Err(evaluated());
            }
            many |= self.look(1) == Some('@');
            self.bump();
            self.bump();
            self.bump();
        }
        match self.peek() {
            Some('}') => {}
            // Offsets are arithmetic.
            Some(':') if !matches!(self.look(1), Some('-' | '+' | '=' | '?')) => return Err(evaluated()),
            Some(':' | '-' | '+' | '=' | '?' | '%' | '#' | '/' | '^' | ',') => {}
            _ => return Err(evaluated()),
        }
        loop {
            match self.bump() {
                Some('}') => return Ok(if many { Expands::Many } else { Expands::One }),
                Some('\\') => {
                    if matches!(self.bump_raw(), None | Some('}' | '\'' | '"')) {
                        return Err("it has an escape in `${ }`, which shells read differently".into());
                    }
                }
                Some('\'' | '"') if quoted => return Err("it has quotes in a quoted `${ }`, which shells read differently".into()),
                Some('\'') => self.single_quoted(&mut String::new())?,
                Some('"') => self.double_quoted(&mut Building::default())?,
                Some('$') => self.dollar(&mut Building::default(), quoted)?,
                Some('`') => self.backticks()?,
                Some('{' | '<' | '>' | '\n' | '\0') => return Err("it has a `${ }` that shells read differently".into()),
                Some(_) => {}
                None => return Err("a `${` is not closed".into()),
            }
        }
    }

    /// A command in backticks, the first read already.
    fn backticks(&mut self) -> Result<(), Unclear> {
        let mut inner = String::new();
        loop {
            match self.bump_raw() {
                Some('`') => break,
                // What an escape means here depends on what stands around it.
                Some('\\') => return Err("it has an escape in backticks".into()),
                Some(c) => inner.push(c),
                None => return Err("a backtick is not closed".into()),
            }
        }
        self.inner_script(&inner);
        Ok(())
    }

    /// The body of a here-document whose end is not quoted: what a shell would expand in it.
    pub(super) fn expand_body(&mut self) -> Result<(), Unclear> {
        let mut word = Building::default();
        while let Some(c) = self.bump() {
            match c {
                '\\' => {
                    self.bump_raw();
                }
                '$' => self.dollar(&mut word, true)?,
                '`' => self.backticks()?,
                _ => {}
            }
        }
        Ok(())
    }
}
