//! The JSON Schema test suite for 2020-12, read from the shared fixtures.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "clippy.toml allows these in test functions only, and the helpers beside them are as much a test"
)]

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use toolwright_core::args::{Arguments, Repair};
use toolwright_core::schema::Schema;

const SUITE: &str = "../../../shared/fixtures/json-schema-test-suite/draft2020-12";

/// Groups that refer to documents which the suite serves over HTTP. Nothing is ever fetched, so such a schema is refused when it is made.
const REFUSED: &[(&str, &str)] = &[
    ("dynamicRef", "$ref and $dynamicAnchor are independent of order - $defs first"),
    ("dynamicRef", "$ref and $dynamicAnchor are independent of order - $ref first"),
    ("dynamicRef", "$ref to $dynamicRef finds detached $dynamicAnchor"),
    ("dynamicRef", "strict-tree schema, guards against misspelled properties"),
    ("dynamicRef", "tests for implementation dynamic anchor and reference link"),
    ("refRemote", "$ref to $ref finds detached $anchor"),
    ("refRemote", "Location-independent identifier in remote ref"),
    ("refRemote", "anchor within remote ref"),
    ("refRemote", "base URI change"),
    ("refRemote", "base URI change - change folder"),
    ("refRemote", "base URI change - change folder in subschema"),
    ("refRemote", "fragment within remote ref"),
    ("refRemote", "ref within remote ref"),
    ("refRemote", "remote HTTP ref with different $id"),
    ("refRemote", "remote HTTP ref with different URN $id"),
    ("refRemote", "remote HTTP ref with nested absolute ref"),
    ("refRemote", "remote ref"),
    ("refRemote", "remote ref with ref to defs"),
    ("refRemote", "retrieved nested refs resolve relative to their URI not $id"),
    ("refRemote", "root ref in remote ref"),
    ("vocabulary", "ignore unrecognized optional vocabulary"),
    ("vocabulary", "schema that uses custom metaschema with with no validation vocabulary"),
];

// rule: sdk-tools 4.1/1
#[test]
fn the_2020_12_suite_holds() {
    let Ok(folder) = std::fs::read_dir(SUITE) else {
        println!("skipped: the shared fixtures are not here");
        return;
    };
    let mut files: Vec<_> =
        folder.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|ext| ext == "json")).collect();
    files.sort();
    assert!(files.len() > 40);

    let (mut held, mut broken, mut refused) = (0, Vec::new(), BTreeMap::new());
    for file in files {
        let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        for group in read(&file).as_array().unwrap() {
            let description = group["description"].as_str().unwrap();
            let tests = group["tests"].as_array().unwrap();
            let schema = match Schema::any(group["schema"].clone()) {
                Ok(schema) => schema,
                Err(error) => {
                    refused.insert((name.clone(), description.to_owned()), (tests.len(), error.to_string()));
                    continue;
                }
            };
            for test in tests {
                let issues = schema.validate(&test["data"]);
                if issues.is_empty() == test["valid"].as_bool().unwrap() {
                    held += 1;
                } else {
                    broken.push(format!("{name}: {description}: {}: {issues:?}", test["description"]));
                }
                // What holds as written is never refused because a repair or a default was tried on it.
                if issues.is_empty()
                    && test["data"].is_object()
                    && let Ok(tool) = Schema::new(group["schema"].clone())
                    && tool.is_valid(&test["data"])
                {
                    let read = Arguments::from_value(test["data"].clone(), &tool, Repair::On);
                    assert!(read.is_ok(), "{name}: {description}: {}: {read:?}", test["description"]);
                }
                for issue in issues {
                    assert!(!issue.message.is_empty() && issue.message.chars().count() <= 600, "{issue:?}");
                }
            }
        }
    }
    let left_out: usize = refused.values().map(|(tests, _)| tests).sum();
    println!(
        "json-schema-test-suite 2020-12: {held} hold, {} do not, {left_out} left out with {} refused schemas",
        broken.len(),
        refused.len()
    );
    for ((file, group), (_, error)) in &refused {
        println!("refused: {file}: {group}: {error}");
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    for (key, (_, error)) in &refused {
        assert!(REFUSED.contains(&(key.0.as_str(), key.1.as_str())), "{key:?} is refused: {error}");
        assert!(error.contains("never fetched") || error.contains("none is ever fetched"), "{key:?}: {error}");
    }
    assert_eq!(refused.len(), REFUSED.len());
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}
