//! docs/rules.md, written from the table.

use std::fmt::Write as _;

use super::table::{Row, State, Table};

const HEAD: &str = "\
# Rules and their states

Made by `cargo xtask rules` from `rules.toml` beside this page and from the markers in the tests; do not edit it by hand.

Toolwright follows the numbered rules of the systems it grew from, and the faults that users of other frameworks reported.
A rule is cited by its document, section and number (`sdk-tools 5.2/4`, `sdk-runtime GATE-3`), a fault by its report
(`field-reports 20`, `rust-reports A-5`). Each has one state:

- **tested**: by the tests named;
- **deviates**: what Toolwright does instead, and why; perhaps tested too;
- **out of scope**: why it does not apply;
- **open**: waits for a part that is not built yet; perhaps tested as far as it goes.
";

/// The whole page.
pub(super) fn write(table: &Table) -> String {
    let mut page = HEAD.to_owned();
    counts(&mut page, table);
    for group in &table.groups {
        let _ = write!(page, "\n## {}: {}\n\n| rule | about | state |\n| --- | --- | --- |\n", group.of, group.title);
        for row in &group.rows {
            let _ = writeln!(page, "| {} | {} | {} |", row.id, cell(&row.topic), cell(&state(row)));
        }
    }
    page
}

fn counts(page: &mut String, table: &Table) {
    let mut documents: Vec<&str> = Vec::new();
    for group in &table.groups {
        let document = document(&group.of);
        if !documents.contains(&document) {
            documents.push(document);
        }
    }
    page.push_str("\n| document | rules | tested | deviates | out of scope | open | no state yet |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n");
    for name in documents {
        let of_it = || table.rows().filter(move |row| document(&row.id) == name);
        let count = |word: &str| of_it().filter(|row| kind(row) == word).count();
        let _ = writeln!(
            page,
            "| {name} | {} | {} | {} | {} | {} | {} |",
            of_it().count(),
            count("tested"),
            count("deviates"),
            count("out of scope"),
            count("open"),
            count("none")
        );
    }
}

fn document(id: &str) -> &str {
    id.split(' ').next().unwrap_or(id)
}

fn kind(row: &Row) -> &'static str {
    match &row.state {
        Some(State::Deviates(_)) => "deviates",
        Some(State::OutOfScope(_)) => "out of scope",
        Some(State::Open(..)) => "open",
        None if row.tests.is_empty() => "none",
        None => "tested",
    }
}

fn state(row: &Row) -> String {
    let tests: Vec<String> = row.tests.iter().map(|test| format!("`{}` in `{}`", test.name, test.file)).collect();
    let tests = tests.join(", ");
    let also = |lead: &str| if tests.is_empty() { String::new() } else { format!(" {lead} {tests}") };
    match &row.state {
        None if tests.is_empty() => "**no state yet**".to_owned(),
        None => format!("tested: {tests}"),
        Some(State::Deviates(why)) => format!("deviates: {why}{}", also("Tested by")),
        Some(State::OutOfScope(why)) => format!("out of scope: {why}"),
        Some(State::Open(parts, note)) => {
            let note = note.as_deref().map(|note| format!(". {note}")).unwrap_or_default();
            format!("open: waits for {}{note}{}", parts.join(", "), also("So far tested by"))
        }
    }
}

/// Text that may stand in a table's cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repo::Tree;
    use crate::rules::markers;

    #[test]
    fn the_page_shows_each_state() {
        let source = "[[group]]\nof = \"sdk-tools 5.2\"\ntitle = \"Batches\"\nrules = [\"a | b\", \"two\", \"three\", \"four\", \"five\"]\n\
            [[part]]\nname = \"hooks\"\nabsent = [\"x\"]\n\
            [[state]]\nof = [\"sdk-tools 5.2/2\"]\nis = \"deviates\"\nwhy = \"Ours.\"\n\
            [[state]]\nof = [\"sdk-tools 5.2/3\"]\nis = \"out of scope\"\nwhy = \"No such thing.\"\n\
            [[state]]\nof = [\"sdk-tools 5.2/4\"]\nis = \"open\"\nwaits_for = [\"hooks\"]\n";
        let tree = Tree::of(&[("crates/a/tests/t.rs", "// rule: sdk-tools 5.2/1\n// rule: sdk-tools 5.2/2\n#[test]\nfn t() {}\n")]);
        let (markers, mut faults) = markers::find(&tree);
        let table = Table::build(source, markers, &tree, &mut faults).unwrap();
        let page = write(&table);
        assert_eq!(faults, Vec::<String>::new());
        let body = page.strip_prefix(HEAD).unwrap();
        assert_eq!(
            body,
            "
| document | rules | tested | deviates | out of scope | open | no state yet |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
| sdk-tools | 5 | 1 | 1 | 1 | 1 | 1 |

## sdk-tools 5.2: Batches

| rule | about | state |
| --- | --- | --- |
| sdk-tools 5.2/1 | a \\| b | tested: `t` in `crates/a/tests/t.rs` |
| sdk-tools 5.2/2 | two | deviates: Ours. Tested by `t` in `crates/a/tests/t.rs` |
| sdk-tools 5.2/3 | three | out of scope: No such thing. |
| sdk-tools 5.2/4 | four | open: waits for hooks |
| sdk-tools 5.2/5 | five | **no state yet** |
"
        );
    }
}
