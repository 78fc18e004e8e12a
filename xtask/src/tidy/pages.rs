//! Checks of prose: links, names of machines, the changelog.

use std::collections::BTreeSet;

use super::Violation;
use crate::repo::Tree;

/// Paths that exist on one machine only. Written in halves, so that this file passes its own check.
const MACHINE_PATHS: &[&str] = &[concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/Us", "ers/"), concat!("/ho", "me/")];

/// Hosts of package registries, name and ending apart, so that no host stands here. Packages are named; where they come
/// from is the reader's client's choice.
const REGISTRIES: &[(&str, &str)] =
    &[("crates", "io"), ("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("npmjs", "com"), ("debian", "org"), ("golang", "org")];

pub(super) fn machine_names(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in tree.files.iter().filter(|file| file.path != "Cargo.lock") {
        for (number, line) in file.lines() {
            for path in MACHINE_PATHS.iter().filter(|path| holds_root(line, path)) {
                let say = format!("`{path}...` is a path of one machine; use a relative path, or an invented one such as `/srv/app`");
                found.push(Violation::new(&file.path, number, say));
            }
            let names = |name: &str, ending: &str| {
                line.split(name).skip(1).any(|rest| rest.strip_prefix('.').is_some_and(|rest| rest.starts_with(ending)))
            };
            if let Some((name, ending)) = REGISTRIES.iter().find(|(name, ending)| names(name, ending)) {
                let say = format!("name the package, not the registry's host `{name}.{ending}`");
                found.push(Violation::new(&file.path, number, say));
            }
        }
    }
    found
}

/// Whether an absolute path begins with this folder: the folder itself is not the middle of a longer path or URL.
fn holds_root(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line.get(..at).and_then(|text| text.chars().next_back());
        !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | '}' | '>' | '*' | '~' | '$'))
    })
}

pub(super) fn links(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in tree.files.iter().filter(|file| file.is("md")) {
        for (number, target) in targets(&file.text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let path = resolve(&file.path, path);
            if !tree.has(&path) {
                found.push(Violation::new(&file.path, number, format!("the link to `{target}` leads to no file; mend or remove it")));
            } else if !anchor.is_empty() && !tree.file(&path).is_none_or(|page| anchors(&page.text).contains(anchor)) {
                found.push(Violation::new(&file.path, number, format!("`{path}` has no heading `#{anchor}`; mend the link")));
            }
        }
    }
    found
}

pub(super) fn changelog(tree: &Tree) -> Vec<Violation> {
    let present = tree.file("CHANGELOG.md").is_some_and(|file| file.text.lines().any(|line| line.trim_end() == "## Unreleased"));
    if present {
        return Vec::new();
    }
    vec![Violation::new("CHANGELOG.md", 1, "add a section `## Unreleased` with what a user can see of this change")]
}

/// Lines outside fenced blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            return false;
        }
        !fenced
    })
}

/// Targets of a page's links.
fn targets(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        // Every second piece between backticks is code.
        let shown: String = line.split('`').enumerate().map(|(piece, text)| if piece % 2 == 0 { text } else { "code" }).collect();
        for (at, _) in shown.match_indices("](") {
            if let Some((target, _)) = shown.get(at + 2..).and_then(|rest| rest.split_once(')')) {
                found.push((number, target.split_whitespace().next().unwrap_or_default().to_owned()));
            }
        }
    }
    found
}

/// A link's path from the root, seen from the page it stands on.
fn resolve(page: &str, target: &str) -> String {
    if target.is_empty() {
        return page.to_owned();
    }
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                // Above the root there is no file of ours.
                if parts.pop().is_none() {
                    return target.to_owned();
                }
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The anchors of a page's headings, as code hosts make them.
fn anchors(text: &str) -> BTreeSet<String> {
    prose(text)
        .filter(|(_, line)| line.starts_with('#'))
        .map(|(_, line)| {
            line.trim_start_matches('#')
                .trim()
                .to_lowercase()
                .chars()
                .filter_map(|c| match c {
                    ' ' => Some('-'),
                    c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
                    _ => None,
                })
                .collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_paths_and_registries_are_found() {
        let [root, _, users, _] = MACHINE_PATHS else { panic!("four folders") };
        let [(name, ending), ..] = REGISTRIES else { panic!("some registries") };
        let registry = format!("{name}.{ending}");
        let text = format!("at {root}x\n\"{users}a\"\nhttps://example.com{root}\nfrom {registry}\nfine\n");
        let tree = Tree::of(&[("docs/x.md", &text), ("Cargo.lock", &text)]);
        let lines: Vec<usize> = machine_names(&tree).iter().map(|violation| violation.line).collect();
        assert_eq!(lines, [1, 2, 4]);
    }

    #[test]
    fn links_resolve() {
        let tree = Tree::of(&[
            (
                "README.md",
                "[a](docs/a.md) [b](docs/a.md#two-words) [c](docs) [d](https://x.y/z) `[e](gone.md)`\n```\n[f](gone.md)\n```\n[g](docs/gone.md)\n[h](docs/a.md#none)\n[i](../above.md)\n",
            ),
            ("docs/a.md", "# Two words\n[up](../README.md) [self](#two-words)\n"),
        ]);
        let found = links(&tree);
        let lines: Vec<usize> = found.iter().map(|violation| violation.line).collect();
        assert_eq!(lines, [5, 6, 7], "{found:?}");
    }

    #[test]
    fn the_changelog_has_unreleased() {
        assert!(changelog(&Tree::of(&[("CHANGELOG.md", "# Changelog\n\n## Unreleased\n")])).is_empty());
        assert_eq!(changelog(&Tree::of(&[("CHANGELOG.md", "# Changelog\n")])).len(), 1);
    }
}
