//! `cargo xtask tidy`: the invariants that a script can check. Each violation says where it is and what to do.

mod code;
mod pages;
mod rooms;

use std::process::ExitCode;

use anyhow::Result;

use crate::repo::Tree;
use crate::{no_arguments, repo};

/// One broken invariant.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Violation {
    file: String,
    line: usize,
    /// One sentence that says what to do.
    say: String,
}

impl Violation {
    fn new(file: &str, line: usize, say: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, say: say.into() }
    }
}

type Check = fn(&Tree) -> Vec<Violation>;

/// Every check that needs the files alone.
const CHECKS: &[(&str, Check)] = &[
    ("core has no I/O, clock, randomness or async", code::pure_core),
    ("some things are done in one place only", code::one_place),
    ("files stay short", code::long_files),
    ("no test is ignored", code::ignored_tests),
    ("no test sleeps", code::sleeping_tests),
    ("nothing is left for later in the code", code::unfinished),
    ("dependencies between rooms point one way", rooms::directions),
    ("every crate has the workspace's lints, licence, edition and version", rooms::manifests),
    ("no path of one machine and no registry's host name", pages::machine_names),
    ("links between pages resolve", pages::links),
    ("the changelog has an Unreleased section", pages::changelog),
];

pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    no_arguments(args)?;
    let root = repo::root()?;
    let tree = Tree::read(&root)?;
    let mut violations = check(&tree);
    let core = repo::output(repo::cargo().current_dir(&root).args([
        "tree",
        "--edges",
        "normal",
        "--package",
        "toolwright-core",
        "--prefix",
        "none",
        "--format",
        "{p}|{f}",
    ]))?;
    violations.extend(rooms::core_dependencies(&core));
    violations.sort();
    for Violation { file, line, say } in &violations {
        println!("{file}:{line}: {say}");
    }
    if violations.is_empty() {
        println!("tidy: {} checks over {} files hold", CHECKS.len() + 1, tree.files.len());
        return Ok(ExitCode::SUCCESS);
    }
    println!("tidy: {} to put right", violations.len());
    Ok(ExitCode::FAILURE)
}

fn check(tree: &Tree) -> Vec<Violation> {
    CHECKS.iter().flat_map(|(_, check)| check(tree)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every check fails on its planted violation, through the files of a real folder.
    #[test]
    fn a_folder_with_one_of_each_fails_every_check() {
        let root = std::env::temp_dir().join(format!("toolwright-tidy-{}", std::process::id()));
        let long = "// x\n".repeat(code::LINE_LIMIT + 1);
        let mark = concat!("TO", "DO");
        let planted = [
            (
                "crates/core/Cargo.toml",
                "[package]\nname = \"toolwright-core\"\n[dependencies]\ntoolwright-host.workspace = true\n".to_owned(),
            ),
            ("crates/core/src/lib.rs", "use std::{fs, io};\n".to_owned()),
            ("crates/models/src/lib.rs", format!("fn f() {{ std::process::Command::new(\"sh\"); }}\n// {mark}\n")),
            ("crates/models/src/long.rs", long),
            ("crates/models/tests/it.rs", format!("#[test]\n#[{}]\nfn t() {{ std::thread::sleep(d); }}\n", "ignore")),
            ("README.md", "[gone](docs/gone.md) and ".to_owned() + concat!("/ho", "me/someone/x\n")),
            ("CHANGELOG.md", "# Changelog\n".to_owned()),
        ];
        for (path, text) in &planted {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let tree = Tree::read(&root).unwrap();
        let silent: Vec<&str> = CHECKS.iter().filter(|(_, check)| check(&tree).is_empty()).map(|(name, _)| *name).collect();
        std::fs::remove_dir_all(&root).unwrap();
        assert!(silent.is_empty(), "{silent:?}");
    }
}
