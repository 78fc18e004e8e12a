//! The rules and cases of docs/rules.toml, joined with the markers.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use super::SOURCE;
use super::markers::{Markers, Test};
use crate::repo::Tree;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Source {
    #[serde(default)]
    group: Vec<GroupSource>,
    #[serde(default)]
    part: Vec<Part>,
    #[serde(default)]
    state: Vec<StateSource>,
}

/// A section of rules, or a group of cases.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupSource {
    /// What its rules are cited under.
    of: String,
    title: String,
    /// Topics of rules numbered from 1.
    #[serde(default)]
    rules: Vec<String>,
    /// Topics of cases with their numbers.
    #[serde(default)]
    cases: Vec<(u32, String)>,
    /// The topic of a section that is one rule.
    whole: Option<String>,
}

/// Something that will be built, and what tells that it has been.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    name: String,
    /// Files or folders that exist once the part does.
    #[serde(default)]
    absent: Vec<String>,
    /// Code that stands in a crate once the part does.
    #[serde(default)]
    absent_code: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StateSource {
    of: Vec<String>,
    is: Is,
    why: Option<String>,
    #[serde(default)]
    waits_for: Vec<String>,
}

#[derive(Deserialize, Clone, Copy, PartialEq)]
enum Is {
    #[serde(rename = "deviates")]
    Deviates,
    #[serde(rename = "out of scope")]
    OutOfScope,
    #[serde(rename = "open")]
    Open,
}

/// The state of a rule that its tests alone do not tell.
pub(super) enum State {
    Deviates(String),
    OutOfScope(String),
    /// Waits for these parts; perhaps with a note.
    Open(Vec<String>, Option<String>),
}

pub(super) struct Row {
    pub(super) id: String,
    pub(super) topic: String,
    pub(super) state: Option<State>,
    pub(super) tests: Vec<Test>,
}

pub(super) struct Group {
    pub(super) of: String,
    pub(super) title: String,
    pub(super) rows: Vec<Row>,
}

pub(super) struct Table {
    pub(super) groups: Vec<Group>,
}

impl Table {
    /// Joins the lists; what does not fit is added to `faults`.
    pub(super) fn build(source: &str, mut markers: Markers, tree: &Tree, faults: &mut Vec<String>) -> Result<Self> {
        let source: Source = toml::from_str(source).with_context(|| format!("reading {SOURCE}"))?;
        let built = built_parts(&source.part, tree);
        let mut states = BTreeMap::new();
        for state in source.state {
            for id in &state.of {
                if let Some(fault) = fault_of(&state, &source.part, &built) {
                    faults.push(format!("{SOURCE}: {id}: {fault}"));
                }
                if states.insert(id.clone(), state.kind()).is_some() {
                    faults.push(format!("{SOURCE}: {id} has two states; keep one"));
                }
            }
        }
        let mut groups: Vec<Group> = Vec::new();
        for group in source.group {
            let rows = group.ids().map(|(id, topic)| {
                let mut tests = markers.remove(&id).map(|marked| marked.tests).unwrap_or_default();
                if group.whole.is_some() {
                    // A section that is one rule may be cited by its first number too.
                    tests.extend(markers.remove(&format!("{id}/1")).map(|marked| marked.tests).unwrap_or_default());
                }
                Row { state: states.remove(&id), tests, id, topic }
            });
            let rows: Vec<Row> = rows.collect();
            groups.push(Group { of: group.of, title: group.title, rows });
        }
        let table = Self { groups };
        for row in table.rows() {
            if matches!(row.state, Some(State::OutOfScope(_))) && !row.tests.is_empty() {
                faults.push(format!("{SOURCE}: {} is out of scope but has a test; take its state out", row.id));
            }
        }
        faults.extend(states.keys().map(|id| format!("{SOURCE}: a state is given to `{id}`, which no group lists")));
        faults.extend(markers.iter().map(|(id, marked)| format!("{}: `{id}` is no rule or case of {SOURCE}", marked.at)));
        Ok(table)
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.groups.iter().flat_map(|group| &group.rows)
    }

    pub(super) fn len(&self) -> usize {
        self.rows().count()
    }

    pub(super) fn without_state(&self) -> Vec<&Row> {
        self.rows().filter(|row| row.state.is_none() && row.tests.is_empty()).collect()
    }
}

impl GroupSource {
    /// Each rule's or case's citation and topic.
    fn ids(&self) -> impl Iterator<Item = (String, String)> {
        let (document, section) = self.of.split_once(' ').unwrap_or((&self.of, ""));
        // `sdk-runtime GATE` has GATE-1; `sdk-tools 5.2` has 5.2/1; cases of field-reports are numbered through.
        let named = section.chars().all(|c| c.is_ascii_uppercase());
        let rules = (1..).zip(&self.rules).map(move |(number, topic)| {
            let id = if named { format!("{}-{number}", self.of) } else { format!("{}/{number}", self.of) };
            (id, topic.clone())
        });
        let cases = self.cases.iter().map(move |(number, topic)| {
            let id = if document == "field-reports" { format!("{document} {number}") } else { format!("{}-{number}", self.of) };
            (id, topic.clone())
        });
        let whole = self.whole.iter().map(|topic| (self.of.clone(), topic.clone()));
        rules.chain(cases).chain(whole)
    }
}

impl StateSource {
    fn kind(&self) -> State {
        let why = || self.why.clone().unwrap_or_default();
        match self.is {
            Is::Deviates => State::Deviates(why()),
            Is::OutOfScope => State::OutOfScope(why()),
            Is::Open => State::Open(self.waits_for.clone(), self.why.clone()),
        }
    }
}

/// What is wrong with a state in itself.
fn fault_of(state: &StateSource, parts: &[Part], built: &[&str]) -> Option<String> {
    if state.is != Is::Open {
        let blank = state.why.as_deref().is_none_or(|why| why.trim().is_empty());
        return blank.then(|| "say why".to_owned());
    }
    if state.waits_for.is_empty() {
        return Some("say which part it waits for".to_owned());
    }
    state.waits_for.iter().find_map(|waits| {
        if !parts.iter().any(|part| part.name == *waits) {
            return Some(format!("waits for `{waits}`, which is no part of this file"));
        }
        built.contains(&waits.as_str()).then(|| format!("waits for `{waits}`, which exists now; test the rule or give it another state"))
    })
}

/// The parts that exist already.
fn built_parts<'a>(parts: &'a [Part], tree: &Tree) -> Vec<&'a str> {
    let stands = |code: &str| {
        let in_crates = tree.rust().filter(|(file, _)| file.path.starts_with("crates/") && file.path.contains("/src/"));
        in_crates.flat_map(|(_, rust)| &rust.code).any(|line| line.contains(code))
    };
    let built =
        parts.iter().filter(|part| part.absent.iter().any(|path| tree.has(path)) || part.absent_code.iter().any(|code| stands(code)));
    built.map(|part| part.name.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::markers;

    const SOURCE_TEXT: &str = r#"
[[group]]
of = "sdk-tools 5.2"
title = "Batches"
rules = ["one", "two", "three"]

[[group]]
of = "sdk-runtime GATE"
title = "Gate"
rules = ["one"]

[[group]]
of = "sdk-tools 33.2"
title = "Codes"
whole = "all codes"

[[group]]
of = "field-reports A"
title = "Assembly"
cases = [[20, "blank arguments"]]

[[group]]
of = "rust-reports A"
title = "Assembly"
cases = [[5, "garbled arguments"]]

[[part]]
name = "room store"
absent = ["crates/store"]

[[state]]
of = ["sdk-tools 5.2/2"]
is = "open"
waits_for = ["room store"]

[[state]]
of = ["sdk-tools 33.2"]
is = "deviates"
why = "another prefix"
"#;

    fn build(files: &[(&str, &str)], source: &str) -> (Table, Vec<String>) {
        let tree = Tree::of(files);
        let (markers, mut faults) = markers::find(&tree);
        let table = Table::build(source, markers, &tree, &mut faults).unwrap();
        (table, faults)
    }

    #[test]
    fn every_rule_is_cited_by_its_place() {
        let (table, faults) = build(&[], SOURCE_TEXT);
        let ids: Vec<&str> = table.rows().map(|row| row.id.as_str()).collect();
        assert_eq!(
            ids,
            [
                "sdk-tools 5.2/1",
                "sdk-tools 5.2/2",
                "sdk-tools 5.2/3",
                "sdk-runtime GATE-1",
                "sdk-tools 33.2",
                "field-reports 20",
                "rust-reports A-5"
            ]
        );
        assert_eq!(faults, Vec::<String>::new());
    }

    #[test]
    fn a_rule_has_a_test_or_a_state() {
        let test =
            "#[cfg(test)]\nmod tests {\n    // rule: sdk-tools 5.2/1\n    // case: rust-reports A-5\n    #[test]\n    fn t() {}\n}\n";
        let (table, faults) = build(&[("crates/core/src/lib.rs", test)], SOURCE_TEXT);
        let missing: Vec<&str> = table.without_state().iter().map(|row| row.id.as_str()).collect();
        assert_eq!(missing, ["sdk-tools 5.2/3", "sdk-runtime GATE-1", "field-reports 20"]);
        assert_eq!(faults, Vec::<String>::new());
    }

    #[test]
    fn a_section_that_is_one_rule_may_be_cited_by_number() {
        let (table, faults) = build(&[("crates/core/tests/t.rs", "// rule: sdk-tools 33.2/1\n#[test]\nfn t() {}\n")], SOURCE_TEXT);
        assert_eq!(faults, Vec::<String>::new());
        assert!(table.rows().any(|row| row.id == "sdk-tools 33.2" && row.tests.len() == 1));
    }

    #[test]
    fn what_does_not_fit_is_a_fault() {
        let unknown = "// rule: sdk-tools 5.2/9\n#[test]\nfn t() {}\n";
        let (_, faults) = build(&[("crates/core/src/lib.rs", unknown)], SOURCE_TEXT);
        assert_eq!(faults, ["crates/core/src/lib.rs:1: `sdk-tools 5.2/9` is no rule or case of docs/rules.toml"]);

        let (_, faults) = build(&[("crates/store/src/lib.rs", "")], SOURCE_TEXT);
        assert!(faults[0].contains("waits for `room store`, which exists now"), "{faults:?}");

        for (state, fault) in [
            ("of = [\"sdk-tools 9/1\"]\nis = \"open\"\nwaits_for = [\"room store\"]", "which no group lists"),
            ("of = [\"sdk-tools 5.2/3\"]\nis = \"open\"\nwaits_for = [\"garden\"]", "which is no part"),
            ("of = [\"sdk-tools 5.2/3\"]\nis = \"open\"", "say which part"),
            ("of = [\"sdk-tools 5.2/3\"]\nis = \"deviates\"", "say why"),
            ("of = [\"sdk-tools 5.2/2\"]\nis = \"deviates\"\nwhy = \"x\"", "two states"),
        ] {
            let (_, faults) = build(&[], &format!("{SOURCE_TEXT}\n[[state]]\n{state}\n"));
            assert!(faults.len() == 1 && faults[0].contains(fault), "{state} gave {faults:?}");
        }
    }
}
