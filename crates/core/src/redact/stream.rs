//! Redaction of text that comes in pieces.

use std::sync::Arc;

use super::{Redactor, Scan, Span};

/// Redacts text that comes in pieces: what may be the beginning of a secret is held back until it is known not to be.
///
/// ```
/// use std::sync::Arc;
/// use toolwright_core::redact::{Redactor, StreamRedactor};
///
/// let mut stream = StreamRedactor::new(Arc::new(Redactor::new([("KEY", "sesame-open")])?));
/// assert_eq!(stream.push("say: ses"), "say: ");
/// assert_eq!(stream.push("ame-open now"), "[redacted:KEY] now");
/// assert_eq!(stream.push("ses"), "");
/// assert_eq!(stream.finish(), "ses");
/// # Ok::<(), toolwright_core::redact::SecretRefused>(())
/// ```
#[derive(Clone, Debug)]
pub struct StreamRedactor {
    redactor: Arc<Redactor>,
    held: String,
    /// So much of what is held was replaced already, as part of a longer stretch.
    gone: usize,
    /// Nothing of the text was given yet.
    begins: bool,
}

impl StreamRedactor {
    /// At the beginning of a text.
    pub fn new(redactor: Arc<Redactor>) -> Self {
        Self { redactor, held: String::new(), gone: 0, begins: true }
    }

    /// One more piece. Gives what is safe to show by now, which may be nothing.
    pub fn push(&mut self, piece: &str) -> String {
        if self.redactor.is_empty() {
            return piece.to_owned();
        }
        self.held.push_str(piece);
        let scan = self.redactor.scan(&self.held, self.begins, false);
        let through = scan.open.unwrap_or(self.held.len());
        self.release(scan, through)
    }

    /// The text ends, or is cut, here: what was held back, without a secret and without the longer part of one. The next piece
    /// begins a new text.
    pub fn finish(&mut self) -> String {
        let scan = self.redactor.scan(&self.held, self.begins, true);
        let through = self.held.len();
        let out = self.release(scan, through);
        (self.held, self.gone, self.begins) = (String::new(), 0, true);
        out
    }

    /// Gives what is held up to `through`.
    fn release(&mut self, mut scan: Scan, through: usize) -> String {
        if self.gone > 0 {
            let end = scan.spans.iter().filter(|span| span.start < self.gone).map(|span| span.end).max();
            scan.spans.retain(|span| span.start >= self.gone);
            scan.spans.insert(0, Span { start: 0, end: end.unwrap_or_default().max(self.gone), secret: u32::MAX });
        }
        let mut out = String::new();
        let mut at = 0;
        let mut gone = 0;
        for span in scan.spans.iter().take_while(|span| span.start < through) {
            out.push_str(self.held.get(at..span.start).unwrap_or_default());
            // No secret has that number: it stands for a stretch whose mark was given before.
            out.push_str(self.redactor.mark(span.secret));
            at = span.end.min(through);
            gone = span.end.saturating_sub(through);
        }
        out.push_str(self.held.get(at..through).unwrap_or_default());
        self.held.drain(..through);
        self.gone = gone;
        self.begins &= through == 0;
        out
    }
}
