//! Text that is laid out while it is written: words, lines and blocks, whatever white space the markup had.

/// How far apart two pieces of text stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Gap {
    /// Directly beside each other.
    #[default]
    None,
    /// Two words.
    Space,
    /// Two lines.
    Line,
    /// Two blocks, with an empty line between them.
    Block,
}

impl Gap {
    fn text(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Space => " ",
            Self::Line => "\n",
            Self::Block => "\n\n",
        }
    }
}

/// Text so far, and what has to stand before the next of it.
#[derive(Debug, Default)]
pub(super) struct Flow {
    text: String,
    gap: Gap,
    /// What the next line begins with: `# ` or `- `.
    mark: String,
}

impl Flow {
    /// The next text stands at least this far from what is there.
    pub(super) fn gap(&mut self, gap: Gap) {
        self.gap = self.gap.max(gap);
    }

    /// The next text begins with `mark`, which is forgotten if no text comes in its block.
    pub(super) fn mark(&mut self, mark: String) {
        self.mark = mark;
    }

    /// Forgets a mark that no text came for.
    pub(super) fn unmark(&mut self) {
        self.mark.clear();
    }

    /// Whether nothing was written.
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// How much was written, in bytes.
    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    /// Writes text as it is, after the gap and the mark.
    pub(super) fn push(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if !self.text.is_empty() {
            self.text.push_str(self.gap.text());
        }
        self.gap = Gap::None;
        self.text.push_str(&self.mark);
        self.mark.clear();
        self.text.push_str(text);
    }

    /// Writes words: white space between them counts as one space.
    pub(super) fn words(&mut self, text: &str) {
        let mut words = text.split(is_space).peekable();
        while let Some(word) = words.next() {
            self.push(word);
            if words.peek().is_some() {
                self.gap(Gap::Space);
            }
        }
    }

    /// Writes lines as they are, as in `pre`.
    pub(super) fn lines(&mut self, text: &str) {
        let mut lines = text.split('\n').peekable();
        while let Some(line) = lines.next() {
            let line = line.strip_suffix('\r').unwrap_or(line);
            // A gap before the first line is a gap of the markup; inside, each line stands for itself.
            self.push(line);
            if lines.peek().is_some() {
                if self.gap >= Gap::Line || self.text.is_empty() {
                    // An empty line, or lines before anything was written.
                    if !self.text.is_empty() {
                        self.gap = Gap::Block;
                    }
                } else {
                    self.gap = Gap::Line;
                }
            }
        }
    }

    /// Narrows the gap to a space, and gives what it was: what comes next belongs to what is there.
    pub(super) fn close_up(&mut self) -> Gap {
        std::mem::replace(&mut self.gap, if self.text.is_empty() { Gap::None } else { Gap::Space })
    }

    /// What was written.
    pub(super) fn take(self) -> String {
        self.text
    }
}

/// White space of HTML, and the space that breaks no line: a reader of text sees no difference.
fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\n' | '\t' | '\r' | '\x0c' | '\u{a0}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_the_widest_of_those_asked_for() {
        let mut flow = Flow::default();
        flow.gap(Gap::Block);
        flow.words(" a  b\u{a0}\n c");
        flow.gap(Gap::Line);
        flow.gap(Gap::Space);
        flow.words("d");
        flow.gap(Gap::Block);
        flow.words("   ");
        flow.words("e");
        assert_eq!(flow.take(), "a b c\nd\n\ne");
    }

    #[test]
    fn a_mark_waits_for_its_text() {
        let mut flow = Flow::default();
        flow.mark("# ".to_owned());
        flow.words(" T ");
        flow.gap(Gap::Block);
        flow.mark("- ".to_owned());
        flow.unmark();
        flow.words("x");
        assert_eq!(flow.take(), "# T\n\nx");
    }

    #[test]
    fn lines_stay_lines() {
        let mut flow = Flow::default();
        flow.words("before");
        flow.gap(Gap::Block);
        flow.lines("a\n  b\r\n\nc\n");
        flow.words("after");
        assert_eq!(flow.take(), "before\n\na\n  b\n\nc\nafter");
    }
}
