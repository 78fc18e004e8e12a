//! `cargo xtask features`: the facade compiles with none of its features, and with each one alone.

use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::{no_arguments, repo};

pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    no_arguments(args)?;
    let root = repo::root()?;
    let mut broken = Vec::new();
    let features = facade_features(&repo::metadata(&root)?)?;
    for feature in std::iter::once(String::new()).chain(features) {
        let shown = if feature.is_empty() { "no feature" } else { &feature };
        println!("facade with {shown}");
        let status = repo::cargo()
            .current_dir(&root)
            .args(["check", "--quiet", "-p", "toolwright", "--no-default-features", "--features", &feature])
            .status()
            .context("starting cargo")?;
        if !status.success() {
            broken.push(shown.to_owned());
        }
    }
    if broken.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("error: the facade does not compile with {}", broken.join(", with "));
    Ok(ExitCode::FAILURE)
}

/// The facade's features, `default` left out.
fn facade_features(metadata: &serde_json::Value) -> Result<Vec<String>> {
    let packages = metadata.get("packages").and_then(|packages| packages.as_array());
    let facade = packages
        .into_iter()
        .flatten()
        .find(|package| package.get("name").and_then(|name| name.as_str()) == Some("toolwright"))
        .context("cargo metadata lists no package `toolwright`")?;
    let features = facade.get("features").and_then(|features| features.as_object());
    Ok(features.into_iter().flatten().map(|(name, _)| name.clone()).filter(|name| name != "default").collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_is_no_feature_of_its_own() {
        let metadata = serde_json::json!({ "packages": [
            { "name": "other", "features": { "x": [] } },
            { "name": "toolwright", "features": { "default": ["local"], "local": [], "openai": [] } },
        ]});
        assert_eq!(facade_features(&metadata).unwrap(), ["local", "openai"]);
    }
}
