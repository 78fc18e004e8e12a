//! Checks of the crates: who may depend on whom, and what each manifest says.

use super::Violation;
use crate::repo::{File, Tree};

/// What core's dependency tree never holds, because core has no async, I/O, clock or randomness.
/// `getrandom` is not here: a hasher in the tree seeds itself with it, and no order of ours comes from a hash map.
const NOT_BELOW_CORE: &[&str] = &[
    "async-io",
    "async-std",
    "chrono",
    "futures-executor",
    "h2",
    "hyper",
    "hyper-util",
    "mio",
    "notify",
    "postgres",
    "rand",
    "reqwest",
    "rusqlite",
    "rustls",
    "smol",
    "socket2",
    "sqlx",
    "tempfile",
    "time",
    "tokio",
    "tokio-util",
    "ureq",
    "walkdir",
];

/// Crates that core may use only without a feature: crate, feature, what the feature would bring.
const NOT_WITH: &[(&str, &str, &str)] = &[("jiff", "std", "the system's clock and time zones")];

/// Who may depend on whom, in normal and build dependencies. A crate that is not here is refused until it is.
const MAY_USE: &[(&str, &[&str])] = &[
    ("toolwright-core", &[]),
    ("toolwright-macros", &[]),
    ("toolwright-tool", &["toolwright-core", "toolwright-macros"]),
    ("toolwright-runtime", &["toolwright-core", "toolwright-tool"]),
    ("toolwright-host", &["toolwright-core"]),
    ("toolwright-store", BESIDE),
    ("toolwright-models", BESIDE),
    ("toolwright-tools", BESIDE),
    ("toolwright-mcp", BESIDE),
    ("toolwright-openapi", BESIDE),
    ("toolwright-script", BESIDE),
    ("toolwright-project", BESIDE),
    ("toolwright", ROOMS),
    ("toolwright-server", ROOMS_AND_FACADE),
    ("toolwright-cli", EVERYTHING),
    ("xtask", EVERYTHING),
];

/// The rooms beside each other: they do not know each other.
const BESIDE: &[&str] = &["toolwright-core", "toolwright-macros", "toolwright-tool", "toolwright-runtime", "toolwright-host"];

const ROOMS: &[&str] = &[
    "toolwright-core",
    "toolwright-macros",
    "toolwright-tool",
    "toolwright-runtime",
    "toolwright-host",
    "toolwright-store",
    "toolwright-models",
    "toolwright-tools",
    "toolwright-mcp",
    "toolwright-openapi",
    "toolwright-script",
    "toolwright-project",
];

const ROOMS_AND_FACADE: &[&str] = &[
    "toolwright-core",
    "toolwright-macros",
    "toolwright-tool",
    "toolwright-runtime",
    "toolwright-host",
    "toolwright-store",
    "toolwright-models",
    "toolwright-tools",
    "toolwright-mcp",
    "toolwright-openapi",
    "toolwright-script",
    "toolwright-project",
    "toolwright",
];

const EVERYTHING: &[&str] = &[
    "toolwright-core",
    "toolwright-macros",
    "toolwright-tool",
    "toolwright-runtime",
    "toolwright-host",
    "toolwright-store",
    "toolwright-models",
    "toolwright-tools",
    "toolwright-mcp",
    "toolwright-openapi",
    "toolwright-script",
    "toolwright-project",
    "toolwright",
    "toolwright-server",
    "toolwright-cli",
];

/// Checks what `cargo tree` lists below core: a package and its features on each line, with a `|` between.
pub(super) fn core_dependencies(listing: &str) -> Vec<Violation> {
    let mut found = Vec::new();
    for line in listing.lines() {
        let (package, features) = line.split_once('|').unwrap_or((line, ""));
        let name = package.split_whitespace().next().unwrap_or_default();
        let how = format!("(see `cargo tree -p toolwright-core -e normal -i {name}`)");
        if NOT_BELOW_CORE.contains(&name) {
            let say = format!("core's dependency tree holds `{name}`; take the dependency or its feature out {how}");
            found.push(Violation::new("crates/core/Cargo.toml", 1, say));
        }
        for (_, feature, brings) in NOT_WITH.iter().filter(|(of, ..)| *of == name) {
            if features.split([',', ' ']).any(|on| on == *feature) {
                let say = format!("core may not use `{name}` with the feature `{feature}`: it brings {brings} {how}");
                found.push(Violation::new("crates/core/Cargo.toml", 1, say));
            }
        }
    }
    found.sort();
    found.dedup();
    found
}

pub(super) fn directions(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (file, manifest) in packages(tree) {
        let name = package_name(&manifest);
        let Some((_, allowed)) = MAY_USE.iter().find(|(room, _)| *room == name) else {
            let say = format!("crate `{name}` is in no room; give it a row in xtask/src/tidy/rooms.rs and in ARCHITECTURE.md");
            found.push(Violation::new(&file.path, 1, say));
            continue;
        };
        for used in ours(&manifest) {
            if !allowed.contains(&used.as_str()) {
                let say =
                    format!("`{name}` may not depend on `{used}`: dependencies between rooms point one way (ARCHITECTURE.md, The rooms)");
                found.push(Violation::new(&file.path, line_of(file, &used), say));
            }
        }
    }
    found
}

pub(super) fn manifests(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (file, manifest) in packages(tree) {
        if manifest.get("lints").and_then(|lints| lints.get("workspace")) != Some(&toml::Value::Boolean(true)) {
            found.push(Violation::new(&file.path, 1, "add `[lints] workspace = true`"));
        }
        for key in ["license", "edition", "rust-version", "version"] {
            let inherited = manifest.get("package").and_then(|package| package.get(key)).and_then(|value| value.get("workspace"));
            if inherited != Some(&toml::Value::Boolean(true)) {
                found.push(Violation::new(&file.path, 1, format!("take `{key}` from the workspace: `{key}.workspace = true`")));
            }
        }
        if manifest.get("package").and_then(|package| package.get("description")).is_none() {
            found.push(Violation::new(&file.path, 1, "add a `description`: what this crate is, in a sentence"));
        }
    }
    found
}

/// The manifests of the workspace's own packages. Those inside a crate's tests are users' crates, not ours.
fn packages(tree: &Tree) -> impl Iterator<Item = (&File, toml::Table)> {
    tree.files.iter().filter_map(|file| {
        let room = file.path.strip_suffix("/Cargo.toml")?;
        let ours = room == "xtask" || room.strip_prefix("crates/").is_some_and(|name| !name.contains('/'));
        let manifest = file.text.parse::<toml::Table>().ok().filter(|_| ours)?;
        manifest.contains_key("package").then_some((file, manifest))
    })
}

fn package_name(manifest: &toml::Table) -> String {
    let name = manifest.get("package").and_then(|package| package.get("name")).and_then(toml::Value::as_str);
    name.unwrap_or_default().to_owned()
}

/// Our own crates among a manifest's normal and build dependencies, for every target.
fn ours(manifest: &toml::Table) -> Vec<String> {
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let tables = std::iter::once(manifest)
        .chain(targets.into_iter().flatten().filter_map(|(_, target)| target.as_table()))
        .flat_map(|table| ["dependencies", "build-dependencies"].map(|kind| table.get(kind)))
        .filter_map(|table| table.and_then(toml::Value::as_table));
    let mut names = Vec::new();
    for (key, value) in tables.flatten() {
        let name = value.get("package").and_then(toml::Value::as_str).unwrap_or(key);
        if name == "toolwright" || name.starts_with("toolwright-") || name == "xtask" {
            names.push(name.to_owned());
        }
    }
    names
}

fn line_of(file: &File, word: &str) -> usize {
    file.lines().find(|(_, line)| line.trim_start().starts_with(word)).map_or(1, |(number, _)| number)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[package]\nname = \"NAME\"\ndescription = \"x\"\nversion.workspace = true\nedition.workspace = true\nrust-version.workspace = true\nlicense.workspace = true\n[lints]\nworkspace = true\n";

    #[test]
    fn rooms_know_only_what_is_below() {
        let models = GOOD.replace("NAME", "toolwright-models")
            + "[dependencies]\ntoolwright-core.workspace = true\ntoolwright-tools.workspace = true\n[dev-dependencies]\ntoolwright-cli = \"1\"\n";
        let stranger = GOOD.replace("NAME", "toolwright-garage");
        let tree = Tree::of(&[
            ("crates/models/Cargo.toml", &models),
            ("crates/garage/Cargo.toml", &stranger),
            ("crates/models/tests/user/Cargo.toml", "[package]\nname = \"user\"\n"),
        ]);
        let found = directions(&tree);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].say.contains("may not depend on `toolwright-tools`"));
        assert_eq!(found[0].line, 12);
        assert!(found[1].say.contains("is in no room"));
    }

    #[test]
    fn manifests_follow_the_workspace() {
        let good = GOOD.replace("NAME", "toolwright-core");
        let bad = good.replace("[lints]\nworkspace = true\n", "").replace("license.workspace = true", "license = \"MIT\"");
        assert!(manifests(&Tree::of(&[("crates/core/Cargo.toml", &good)])).is_empty());
        assert_eq!(manifests(&Tree::of(&[("crates/core/Cargo.toml", &bad)])).len(), 2);
    }

    #[test]
    fn cores_tree_is_searched_by_whole_names() {
        let found = core_dependencies(
            "toolwright-core v0.1.0 (x)|\ntimer v1.0.0|\ntokio v1.0.0|rt\nserde v1.0.0|std\ntokio v1.0.0|rt (*)\njiff v0.2.0|alloc\n",
        );
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].say.contains("`tokio`"));
        let found = core_dependencies("jiff v0.2.0|alloc,std (*)\n");
        assert!(found.len() == 1 && found[0].say.contains("clock"), "{found:?}");
    }
}
