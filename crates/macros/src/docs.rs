//! Doc comments as descriptions.

use syn::{Attribute, Expr, ExprLit, Lit, Meta};

/// The text of the doc comment among `attrs`: lines of a paragraph are joined, paragraphs, lists, tables and code are kept.
pub(crate) fn text(attrs: &[Attribute]) -> String {
    let mut lines = Vec::new();
    for attr in attrs {
        if let Some(text) = line(attr) {
            lines.extend(text.lines().map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end().to_owned()));
            if text.is_empty() {
                lines.push(String::new());
            }
        }
    }
    joined(&lines)
}

/// The text of one doc attribute, where it is a literal.
fn line(attr: &Attribute) -> Option<String> {
    if !attr.path().is_ident("doc") {
        return None;
    }
    match &attr.meta {
        Meta::NameValue(pair) => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    }
}

fn joined(lines: &[String]) -> String {
    let mut text = String::new();
    let mut in_code = false;
    let mut begins = true;
    for line in lines {
        let fence = line.trim_start().starts_with("```");
        if line.trim().is_empty() && !in_code {
            begins = true;
            if !text.is_empty() && !text.ends_with("\n\n") {
                text.push_str("\n\n");
            }
            continue;
        }
        if begins || text.is_empty() {
            begins = false;
        } else {
            text.push(if in_code || fence || stands_alone(line) { '\n' } else { ' ' });
        }
        text.push_str(if in_code || stands_alone(line) { line } else { line.trim_start() });
        in_code ^= fence;
        // What follows a fence or a table begins on a line of its own.
        if fence || line.starts_with('|') || line.starts_with('#') {
            text.push('\n');
            begins = true;
        }
    }
    text.trim().to_owned()
}

/// Whether a line is an item, a row or a heading, which does not run on from the line before.
fn stands_alone(line: &str) -> bool {
    let line = line.trim_start();
    let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    line.starts_with(['|', '#'])
        || line.starts_with("- ")
        || line.starts_with("* ")
        || line.starts_with("+ ")
        || (number.len() < line.len() && (number.starts_with(". ") || number.starts_with(") ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> String {
        joined(&text.lines().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn lines_are_joined_and_paragraphs_kept() {
        assert_eq!(of("Current weather\nfor a city.\n\n\nIn the unit\ngiven."), "Current weather for a city.\n\nIn the unit given.");
        assert_eq!(of("\nFirst.\n"), "First.");
        assert_eq!(of(""), "");
    }

    #[test]
    fn lists_and_code_keep_their_lines() {
        assert_eq!(of("One of:\n- red\n- green,\n  or so\n\n1. a\n2. b"), "One of:\n- red\n- green, or so\n\n1. a\n2. b");
        assert_eq!(of("Say:\n```\na\n\n  b\n```\nand\nmore"), "Say:\n```\na\n\n  b\n```\nand more");
        assert_eq!(of("| a | b |\n| - | - |\nend"), "| a | b |\n| - | - |\nend");
    }

    #[test]
    fn block_comments_are_read_too() {
        let item: syn::ItemFn = syn::parse_quote! {
            #[doc = " One\n two"]
            #[doc = " three."]
            fn x() {}
        };
        assert_eq!(text(&item.attrs), "One two three.");
    }
}
