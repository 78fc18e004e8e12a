//! Checks of patches, rule by rule.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_core::future::BoxFuture;
use serde_json::json;
use tokio::sync::Barrier;
use toolwright_host::process::Environment;
use toolwright_tools::patch::{Checked, CommandCheck, DiffSizeCheck, PatchCheck, PatchChecks, SecretScanCheck};

/// A check of the test's own.
struct Own(&'static str, Box<dyn Fn() -> BoxFuture<'static, Checked> + Send + Sync>);

/// A check that does what the test says.
fn own(name: &'static str, says: impl Fn() -> BoxFuture<'static, Checked> + Send + Sync + 'static) -> Own {
    Own(name, Box::new(says))
}

impl PatchCheck for Own {
    fn name(&self) -> &str {
        self.0
    }

    fn check<'a>(&'a self, _diff: &'a str) -> BoxFuture<'a, Checked> {
        (self.1)()
    }
}

const DIFF: &str = "--- a/greeting\n+++ b/greeting\n@@ -1 +1 @@\n-hello\n+goodbye\n";

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("sub")).unwrap();
    fs::write(folder.path().join("greeting"), "hello\n").unwrap();
    fs::write(folder.path().join("sub/big"), "left out").unwrap();
    std::os::unix::fs::symlink("greeting", folder.path().join("link")).unwrap();
    folder
}

// rule: sdk-tools 27.3/1
#[tokio::test]
async fn checks_run_side_by_side_and_failures_stand_in_their_order() {
    let both = Arc::new(Barrier::new(2));
    let wait = |both: &Arc<Barrier>, says: Checked| {
        let both = Arc::clone(both);
        move || -> BoxFuture<'static, Checked> {
            let (both, says) = (Arc::clone(&both), says.clone());
            Box::pin(async move {
                both.wait().await;
                says
            })
        }
    };
    let checks = PatchChecks::new().check(own("first", wait(&both, Err("no".to_owned())))).check(own("second", wait(&both, Ok(()))));
    let verdict = checks.check(SecretScanCheck).check(DiffSizeCheck::at_most(1)).run("a\nb\n").await;
    let expected = json!({
        "pass": false,
        "failures": [
            { "name": "first", "reason": "no" },
            { "name": "diff-size", "reason": "the diff has 2 lines, and 1 are allowed; split it into smaller ones" },
        ],
    });
    assert_eq!(serde_json::to_value(verdict).unwrap(), expected);
    assert!(PatchChecks::new().run("anything").await.pass);
}

// rule: sdk-tools 27.3/2
#[tokio::test]
async fn anything_but_a_yes_is_a_failure() {
    let checks = PatchChecks::new()
        .timeout(Duration::from_millis(50))
        .check(own("panics", || panic!("oh")))
        .check(own("panics later", || Box::pin(async { panic!("oh") })))
        .check(own("hangs", || Box::pin(std::future::pending())))
        .check(own("refuses", || Box::pin(std::future::ready(Err(String::new())))))
        .check(own("passes", || Box::pin(std::future::ready(Ok(())))));
    let verdict = checks.run("").await;
    let names: Vec<&str> = verdict.failures.iter().map(|failure| failure.name.as_str()).collect();
    assert_eq!((verdict.pass, names), (false, vec!["panics", "panics later", "hangs", "refuses"]));
    assert_eq!(verdict.failures[2].reason, "the check did not end within 50 ms");
}

async fn reason(check: CommandCheck, diff: &str) -> Option<String> {
    let verdict = PatchChecks::new().check(check).run(diff).await;
    verdict.failures.first().map(|failure| failure.reason.clone())
}

// rule: sdk-tools 27.3/3
#[tokio::test]
async fn a_command_sees_the_patch_applied_to_a_copy() {
    let folder = folder();
    let command = |script: &str| CommandCheck::new("own", folder.path(), "sh").args(["-c", script]);
    assert_eq!(reason(command("test $(cat greeting) = goodbye && test $(cat link) = goodbye && rm greeting"), DIFF).await, None);
    assert_eq!(fs::read_to_string(folder.path().join("greeting")).unwrap(), "hello\n", "the folder itself is as it was");
    assert_eq!(reason(command("test $(cat greeting) = hello"), "\n").await, None, "nothing to apply, nothing to copy");
    assert_eq!(reason(command("echo boom >&2; exit 3"), DIFF).await.unwrap(), "`sh` ended with 3: boom");
    assert_eq!(reason(command("test ! -e sub").leave_out(["sub"]), DIFF).await, None);
    for bad in [
        "not a diff",
        "--- a/greeting\n+++ b/greeting\n@@ -1 +1 @@\n-another\n+goodbye\n",
        "--- a/../out\n+++ b/../out\n@@ -0,0 +1 @@\n+x\n",
        "--- /dev/null\n+++ b/link/x\n@@ -0,0 +1 @@\n+x\n",
    ] {
        let why = reason(command("true"), bad).await.unwrap();
        assert!(why.starts_with("the diff does not apply: "), "{bad}: {why}");
    }
    let missing = reason(CommandCheck::new("own", folder.path(), "toolwright-no-such-program"), DIFF).await.unwrap();
    assert!(missing.contains("could not be started"), "{missing}");
    let nowhere = reason(CommandCheck::new("own", "/nowhere/at/all", "true"), DIFF).await.unwrap();
    assert!(nowhere.starts_with("/nowhere/at/all could not be copied"), "{nowhere}");
}

// rule: sdk-tools 27.3/3
#[tokio::test]
async fn a_command_that_takes_too_long_is_killed_with_all_that_it_started() {
    let folder = folder();
    let token = format!("toolwright-patch-{}", std::process::id());
    let began = Instant::now();
    let slow = CommandCheck::new("own", folder.path(), "sh").args(["-c", "setsid sleep 300 & sleep 300"]);
    let slow = slow.environment(Environment::scrubbed().set("TOKEN", &token)).deadline(Duration::from_millis(200));
    let why = reason(slow, DIFF).await.unwrap();
    assert_eq!(why, "`sh` did not end within 200 ms and was killed: it said nothing");
    assert!(began.elapsed() < Duration::from_secs(20));
    if cfg!(target_os = "linux") {
        let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let marked = |pid: &u32| fs::read(format!("/proc/{pid}/environ")).is_ok_and(|all| String::from_utf8_lossy(&all).contains(&token));
        assert_eq!(pids.filter(marked).count(), 0);
    }
}

// rule: sdk-tools 27.3/4
#[tokio::test]
async fn size_secrets_and_scripts() {
    let secrets = async |diff: &str| PatchChecks::new().check(SecretScanCheck).run(diff).await.failures.pop().map(|failure| failure.reason);
    for secret in ["-----BEGIN RSA PRIVATE KEY-----", "sk-abcdefghijklmnopqrstuvwx", "key = AKIAABCDEFGHIJKLMNOP"] {
        let why = secrets(&format!("@@ -1 +1 @@\n+{secret}\n")).await.unwrap_or_else(|| panic!("{secret}"));
        assert!(why.starts_with("it holds secrets: ") && why.contains(" in line 2") && !why.contains(secret), "{why}");
        assert_eq!(secrets(&format!("-{secret}\n")).await, None, "taking it out is no fault");
    }
    assert_eq!(secrets(DIFF).await, None);
    assert!(PatchChecks::new().check(DiffSizeCheck::at_most(5)).run(DIFF).await.pass);
    assert!(!PatchChecks::new().check(DiffSizeCheck::at_most(4)).run(DIFF).await.pass);
    // A program of this name that is found first says what it was called with.
    let folder = folder();
    let npm = folder.path().join("sub/npm");
    fs::write(&npm, "#!/bin/sh\necho \"$@\" >&2; exit 1\n").unwrap();
    fs::set_permissions(&npm, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for (check, words) in [(CommandCheck::test_run(folder.path()), "test"), (CommandCheck::lint(folder.path()), "run lint")] {
        let path = format!("{}:{}", folder.path().join("sub").display(), std::env::var("PATH").unwrap());
        let why = reason(check.environment(Environment::scrubbed().set("PATH", path)), DIFF).await.unwrap();
        assert_eq!(why, format!("`npm` ended with 1: {words}"));
    }
}
