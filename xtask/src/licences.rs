//! `cargo xtask licences`: every dependency has a licence that deny.toml allows.
//!
//! The same list that `cargo deny` reads, checked where that tool is not installed.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::{no_arguments, repo};

#[derive(Deserialize)]
struct Deny {
    licenses: Licences,
}

#[derive(Deserialize)]
struct Licences {
    allow: Vec<String>,
    #[serde(default)]
    exceptions: Vec<Exception>,
}

/// Licences that one crate alone may have.
#[derive(Deserialize)]
struct Exception {
    #[serde(rename = "crate")]
    name: String,
    allow: Vec<String>,
}

pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    no_arguments(args)?;
    let root = repo::root()?;
    let text = std::fs::read_to_string(root.join("deny.toml")).context("reading deny.toml")?;
    let deny: Deny = toml::from_str(&text).context("reading deny.toml")?;
    let metadata = repo::metadata(&root)?;
    let packages = metadata.get("packages").and_then(|packages| packages.as_array()).context("no packages")?;
    let mut refused = 0;
    let mut used: BTreeMap<String, usize> = BTreeMap::new();
    for package in packages {
        let text = |key: &str| package.get(key).and_then(|value| value.as_str()).unwrap_or_default();
        let (name, licence) = (text("name"), text("license"));
        let mut allowed: Vec<&str> = deny.licenses.allow.iter().map(String::as_str).collect();
        for exception in deny.licenses.exceptions.iter().filter(|exception| exception.name == name) {
            allowed.extend(exception.allow.iter().map(String::as_str));
        }
        if allows(licence, &allowed) {
            *used.entry(licence.to_owned()).or_default() += 1;
        } else {
            refused += 1;
            let shown = if licence.is_empty() { "states no licence" } else { licence };
            eprintln!("{name} {}: {shown}; choose another crate, or allow it in deny.toml with a reason", text("version"));
        }
    }
    for (licence, count) in &used {
        println!("{count:5}  {licence}");
    }
    Ok(if refused == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether an SPDX expression holds with these licences. `/` is the old spelling of `OR`.
fn allows(expression: &str, allowed: &[&str]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words = spaced.split_whitespace().peekable();
    any_of(&mut words, allowed) && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any_of(words: &mut Words<'_>, allowed: &[&str]) -> bool {
    let mut holds = all_of(words, allowed);
    while words.next_if_eq(&"OR").is_some() {
        holds |= all_of(words, allowed);
    }
    holds
}

fn all_of(words: &mut Words<'_>, allowed: &[&str]) -> bool {
    let mut holds = one(words, allowed);
    while words.next_if_eq(&"AND").is_some() {
        holds &= one(words, allowed);
    }
    holds
}

fn one(words: &mut Words<'_>, allowed: &[&str]) -> bool {
    match words.next() {
        None => false,
        Some("(") => {
            let holds = any_of(words, allowed);
            holds & words.next_if_eq(&")").is_some()
        }
        Some(licence) => {
            if words.next_if_eq(&"WITH").is_some() {
                let exception = words.next().unwrap_or_default();
                allowed.contains(&format!("{licence} WITH {exception}").as_str())
            } else {
                allowed.contains(&licence)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_judged() {
        let allowed = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "Unicode-3.0"];
        for (expression, holds) in [
            ("MIT", true),
            ("MIT/Apache-2.0", true),
            ("GPL-3.0 OR MIT", true),
            ("GPL-3.0", false),
            ("MIT AND GPL-3.0", false),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("GPL-2.0 WITH Classpath-exception", false),
            ("", false),
            ("MIT OR", true),
            ("(MIT", false),
        ] {
            assert_eq!(allows(expression, &allowed), holds, "{expression:?}");
        }
    }
}
