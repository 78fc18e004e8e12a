//! Random shell text, with the list of the commands that it was composed of.
//!
//! Every command has a name of its own, `c0`, `c1` and so on, of which no program exists. No text names a file by a path, so that
//! nothing it writes leaves the folder it runs in.

use std::fmt::Write as _;

use crate::sim::rng::Rng;

/// How deep text stands in text.
const DEPTH: u32 = 4;
/// From this many commands on, nothing more is nested.
const MOST: usize = 12;
/// What may be inserted where a text is damaged: nothing that names a folder, an option or a builtin.
const NOISE: &[char] = &[
    'c', '1', ';', '|', '&', '(', ')', '<', '>', '{', '}', '$', '`', '"', '\'', '\\', ' ', '\n', '#', '=', '!', '*', '?', '[', ']', ',',
    '@',
];

/// A text, and the names of the commands in it.
pub(super) struct Composed {
    pub(super) text: String,
    pub(super) names: Vec<String>,
    /// The text was changed after it was composed: the names may no longer be in it.
    pub(super) damaged: bool,
}

pub(super) fn compose(rng: &mut Rng) -> Composed {
    let mut grammar = Grammar { rng, names: Vec::new() };
    let text = grammar.list(0);
    let names = grammar.names;
    let damaged = rng.percent(45);
    let text = if damaged { damage(&text, rng) } else { text };
    Composed { text, names, damaged }
}

struct Grammar<'a> {
    rng: &'a mut Rng,
    names: Vec<String>,
}

impl Grammar<'_> {
    /// Whether more may stand in this: a text has some twenty commands at most.
    fn may_nest(&self, depth: u32) -> bool {
        depth < DEPTH && self.names.len() < MOST
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.rng.percent(percent)
    }

    fn list(&mut self, depth: u32) -> String {
        let mut out = String::new();
        let count = self.rng.between(1, if depth == 0 { 4 } else { 2 });
        for n in 0..count {
            if n > 0 {
                out.push_str(self.rng.pick(&[";", " ; ", "\n", " & ", "&", "; \n", " # c0; c1 '\n", "\n\n"]).unwrap_or(";"));
            }
            out.push_str(&self.and_or(depth));
        }
        if self.chance(8) {
            let body = self.here_body(depth);
            let quoted = self.chance(50);
            let command = self.simple(depth);
            // A comment or a group at its end would swallow the operator: the line is one simple command.
            let end = if quoted { "'E'" } else { "E" };
            let _ = write!(out, "\n{command} <<{end}\n{body}\nE\n");
            out.push_str(&self.and_or(depth));
        }
        out
    }

    fn here_body(&mut self, depth: u32) -> String {
        match self.rng.below(4) {
            0 => "a ; c0 | c1 '".to_owned(),
            1 => "two\nlines".to_owned(),
            // Expanded where the end is not quoted: then it is among the names, and where it is quoted it counts as listed too much.
            2 if self.may_nest(depth) => {
                let known = self.names.len();
                let inner = self.list(DEPTH);
                // Whether it runs depends on the quotes of the end, so it is not promised.
                self.names.truncate(known);
                format!("x $({inner}) y")
            }
            _ => "${x:-z} $x".to_owned(),
        }
    }

    fn and_or(&mut self, depth: u32) -> String {
        let mut out = self.pipeline(depth);
        while self.chance(20) {
            out.push_str(self.rng.pick(&[" && ", "||", " &&\n", " &\\\n& ", " || "]).unwrap_or("&&"));
            out.push_str(&self.pipeline(depth));
        }
        out
    }

    fn pipeline(&mut self, depth: u32) -> String {
        let mut out = self.rng.pick(&["", "", "", "", "! ", "time ", "time -p "]).unwrap_or("").to_owned();
        out.push_str(&self.command(depth));
        while self.chance(18) {
            out.push_str(self.rng.pick(&[" | ", "|", " |& ", "|\n"]).unwrap_or("|"));
            out.push_str(&self.command(depth));
        }
        out
    }

    fn command(&mut self, depth: u32) -> String {
        if !self.may_nest(depth) || self.chance(70) {
            return self.simple(depth);
        }
        let inner = depth + 1;
        let list = |grammar: &mut Self| grammar.list(inner);
        match self.rng.below(8) {
            0 => format!("({})", list(self)),
            1 => format!("{{ {}\n}}", list(self)),
            2 => format!("if {}; then {}\nelse {}\nfi", list(self), list(self), list(self)),
            3 => format!("while {}; do {}\ndone", list(self), list(self)),
            4 => format!("for x in a $({}) b; do {}\ndone", list(self), list(self)),
            5 => format!("case $({}) in a|b) {}\n;; (c) {} ;;\n*) {}\n;; esac", list(self), list(self), list(self), list(self)),
            6 => format!("until {}; do {}\ndone 2>&1", list(self), list(self)),
            _ => format!("({}) <f1", list(self)),
        }
    }

    fn simple(&mut self, depth: u32) -> String {
        let mut out = String::new();
        while self.chance(8) {
            let value = self.value(depth);
            let _ = write!(out, "x={value} ");
        }
        if self.chance(6) {
            out.push_str(">f1 ");
        }
        if self.may_nest(depth) && self.chance(16) {
            out.push_str(&self.wrapped(depth));
        } else {
            out.push_str(&self.name());
            for _ in 0..self.rng.below(3) {
                out.push_str(self.rng.pick(&[" ", "  ", " \\\n", "\t"]).unwrap_or(" "));
                let word = self.word(depth);
                out.push_str(&word);
            }
        }
        if self.chance(15) {
            out.push_str(
                self.rng
                    .pick(&[" >f1", " 2>&1", " <f2", ">>f1", " <<<a", " 2>f1", " >|f1", " <>f1", " >&f1", " 3<f2", " &>f1"])
                    .unwrap_or(""),
            );
        }
        out
    }

    /// A command that runs another one.
    fn wrapped(&mut self, depth: u32) -> String {
        let quoted = |text: &str| format!("'{}'", text.replace('\'', "'\\''"));
        match self.rng.below(8) {
            0 => {
                let inner = self.list(depth + 1);
                format!("eval {}", quoted(&inner))
            }
            1 => {
                let inner = self.list(depth + 1);
                format!("sh -c {}", quoted(&inner))
            }
            2 => {
                let inner = self.list(depth + 1);
                format!("bash -c {} c0", quoted(&inner))
            }
            n => {
                let before = ["sudo ", "env x=1 ", "xargs ", "timeout 5 ", "nohup "];
                let before = before.get((n - 3) as usize).copied().unwrap_or("command ");
                let name = self.name();
                let word = self.word(depth + 1);
                format!("{before}{name} {word}")
            }
        }
    }

    /// A new name, written in one of the ways that a shell reads as the same.
    fn name(&mut self) -> String {
        let name = format!("c{}", self.names.len());
        self.names.push(name.clone());
        let digits = name.get(1..).unwrap_or_default();
        match self.rng.below(9) {
            0 => format!("'{name}'"),
            1 => format!("\"{name}\""),
            2 => format!("\\c{digits}"),
            3 => format!("c''{digits}"),
            4 => format!("c\"{digits}\""),
            5 => format!("c\\\n{digits}"),
            _ => name,
        }
    }

    fn value(&mut self, depth: u32) -> String {
        if self.may_nest(depth) && self.chance(40) {
            let inner = self.list(depth + 1);
            return format!("$({inner})");
        }
        "1".to_owned()
    }

    fn word(&mut self, depth: u32) -> String {
        if self.may_nest(depth) && self.chance(30) {
            let inner = depth + 1;
            return match self.rng.below(6) {
                0 => format!("\"a $({}) b\"", self.list(inner)),
                1 => format!("a$({})", self.list(inner)),
                2 => format!("${{x:-$({})}}", self.list(inner)),
                3 => format!("<({})", self.list(inner)),
                4 => format!("\"${{x:-$({})}}\"", self.list(inner)),
                _ => self.backticks(),
            };
        }
        let words = [
            "a",
            "'b c; d & e | f'",
            "\"g ; h\"",
            "\\;",
            "a#b",
            "$x",
            "\"$x\"",
            "$((1 + 2))",
            "{a,b}",
            "*",
            "f?",
            "''",
            "$'a b'",
            "~",
            "=",
            "x=1",
            "\"\\$(c0)\"",
            "'$(c0)'",
            "\\`",
            "a\\ b",
            "{}",
            "]",
            "if",
            "done",
            "}",
            "!",
            "$1",
            "$?",
            "\"$@\"",
            "a=b",
            "\"'\"",
            "'\"'",
        ];
        self.rng.pick(&words).unwrap_or("a").to_owned()
    }

    fn backticks(&mut self) -> String {
        let name = format!("c{}", self.names.len());
        self.names.push(name.clone());
        format!("`{name} a`")
    }
}

/// Changes a few characters.
fn damage(text: &str, rng: &mut Rng) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for _ in 0..rng.between(1, 3) {
        if chars.is_empty() {
            break;
        }
        let at = rng.index(chars.len());
        match rng.below(6) {
            0 => {
                chars.remove(at);
            }
            1 => {
                let c = chars.get(at).copied().unwrap_or(' ');
                chars.insert(at, c);
            }
            2 if at + 1 < chars.len() => chars.swap(at, at + 1),
            3 => {
                let end = (at + rng.index(6)).min(chars.len());
                chars.drain(at..end);
            }
            4 => chars.truncate(at + 1),
            _ => {
                if let Some(noise) = rng.pick(NOISE) {
                    chars.insert(at, noise);
                }
            }
        }
    }
    chars.into_iter().collect()
}
