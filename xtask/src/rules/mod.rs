//! `cargo xtask rules`: the table of rules and reported faults, each with the state it has here.
//!
//! docs/rules.toml lists every rule and case, and the states of those that no test covers; markers in the tests say
//! what is tested; docs/rules.md is made from both.

mod markers;
mod page;
mod table;

use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::repo::Tree;
use crate::{repo, usage};

/// Where the universe of rules and the untested states are kept.
const SOURCE: &str = "docs/rules.toml";
/// The page that is made from it.
const PAGE: &str = "docs/rules.md";

pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let root = repo::root()?;
    let tree = Tree::read(&root)?;
    let source = tree.file(SOURCE).with_context(|| format!("there is no {SOURCE}"))?;
    let (markers, mut faults) = markers::find(&tree);
    let table = table::Table::build(&source.text, markers, &tree, &mut faults)?;
    for fault in &faults {
        eprintln!("{fault}");
    }
    let missing = table.without_state();
    match args.as_slice() {
        [] => {
            std::fs::write(root.join(PAGE), page::write(&table)).with_context(|| format!("writing {PAGE}"))?;
            println!("{PAGE} is written; {} of {} have no state yet", missing.len(), table.len());
            Ok(success(faults.is_empty()))
        }
        ["--missing"] => {
            for row in &missing {
                println!("{}  {}", row.id, row.topic);
            }
            Ok(success(faults.is_empty()))
        }
        ["--check"] => {
            for row in &missing {
                eprintln!("{}: no state ({}); mark its test, or give it a state in {SOURCE}", row.id, row.topic);
            }
            let fresh = tree.file(PAGE).is_some_and(|file| file.text == page::write(&table));
            if !fresh {
                eprintln!("{PAGE} is stale; run `cargo xtask rules`");
            }
            Ok(success(fresh && missing.is_empty() && faults.is_empty()))
        }
        _ => Err(usage("rules takes nothing, `--check` or `--missing`")),
    }
}

fn success(yes: bool) -> ExitCode {
    if yes { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
