//! Checks of a patch before anybody applies it (sdk-tools 27.3).
//!
//! ```
//! use toolwright_tools::patch::{DiffSizeCheck, PatchChecks, SecretScanCheck};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let checks = PatchChecks::new().check(SecretScanCheck).check(DiffSizeCheck::at_most(200));
//! let verdict = checks.run("+let key = \"AKIAABCDEFGHIJKLMNOP\";\n").await;
//! assert!(!verdict.pass);
//! assert_eq!(verdict.failures[0].name, "secret-scan");
//! # });
//! # Ok::<_, std::io::Error>(())
//! ```

mod command;
mod copy;

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use serde::Serialize;
use toolwright_tool::core::{bounded, screen};

pub use command::CommandCheck;

/// How long one check may take unless told otherwise.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What a check says: nothing, or why the patch fails it.
pub type Checked = Result<(), String>;

/// Looks at a patch.
pub trait PatchCheck: Send + Sync {
    /// What it is called in a verdict.
    fn name(&self) -> &str;

    /// Whether the patch passes. Anything but `Ok` is a failure, a panic included.
    fn check<'a>(&'a self, diff: &'a str) -> BoxFuture<'a, Checked>;
}

/// Why a patch did not pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PatchFailure {
    /// Which check it did not pass.
    pub name: String,
    /// Why, for people and models.
    pub reason: String,
}

/// What became of a patch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PatchVerdict {
    /// Whether it passed every check.
    pub pass: bool,
    /// Which it did not pass, in the order of the checks.
    pub failures: Vec<PatchFailure>,
}

/// Checks that are made together. Whoever has none lets every patch pass.
#[derive(Clone)]
pub struct PatchChecks {
    checks: Vec<Arc<dyn PatchCheck>>,
    timeout: Duration,
}

impl Default for PatchChecks {
    fn default() -> Self {
        Self { checks: Vec::new(), timeout: TIMEOUT }
    }
}

impl fmt::Debug for PatchChecks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.checks.iter().map(|check| check.name()).collect();
        f.debug_struct("PatchChecks").field("checks", &names).field("timeout", &self.timeout).finish()
    }
}

impl PatchChecks {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check.
    #[must_use]
    pub fn check(mut self, check: impl PatchCheck + 'static) -> Self {
        self.checks.push(Arc::new(check));
        self
    }

    /// How long each check may take: half a minute unless told otherwise. One that takes longer has failed.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Makes all of them, side by side.
    pub async fn run(&self, diff: &str) -> PatchVerdict {
        let failed = join_all(self.checks.iter().map(|check| self.one(&**check, diff))).await;
        let failures: Vec<PatchFailure> = failed.into_iter().flatten().collect();
        PatchVerdict { pass: failures.is_empty(), failures }
    }

    async fn one(&self, check: &dyn PatchCheck, diff: &str) -> Option<PatchFailure> {
        // What panics while it is only being begun is caught too.
        let checked = AssertUnwindSafe(async { check.check(diff).await }).catch_unwind();
        let reason = match tokio::time::timeout(self.timeout, checked).await {
            Ok(Ok(Ok(()))) => return None,
            Ok(Ok(Err(reason))) => bounded(&reason, 2_000),
            Ok(Err(_)) => "the check itself failed: it panicked".to_owned(),
            Err(_) => format!("the check did not end within {} ms", self.timeout.as_millis()),
        };
        Some(PatchFailure { name: check.name().to_owned(), reason })
    }
}

/// A patch of too many lines fails.
#[derive(Clone, Copy, Debug)]
pub struct DiffSizeCheck {
    lines: usize,
}

impl DiffSizeCheck {
    /// A diff may have this many lines, context and headings included.
    pub fn at_most(lines: usize) -> Self {
        Self { lines }
    }
}

impl PatchCheck for DiffSizeCheck {
    fn name(&self) -> &'static str {
        "diff-size"
    }

    fn check<'a>(&'a self, diff: &'a str) -> BoxFuture<'a, Checked> {
        let lines = diff.lines().count();
        let checked = if lines <= self.lines {
            Ok(())
        } else {
            Err(format!("the diff has {lines} lines, and {} are allowed; split it into smaller ones", self.lines))
        };
        std::future::ready(checked).boxed()
    }
}

/// A patch that brings in something which has the form of a secret fails: private keys, keys with a vendor's prefix, tokens.
#[derive(Clone, Copy, Debug, Default)]
pub struct SecretScanCheck;

impl PatchCheck for SecretScanCheck {
    fn name(&self) -> &'static str {
        "secret-scan"
    }

    fn check<'a>(&'a self, diff: &'a str) -> BoxFuture<'a, Checked> {
        // What is taken away, or only stands around, is not brought in. What is in no known place of a diff counts.
        let lines = diff.lines().enumerate().filter(|(_, line)| !line.starts_with(['-', ' ']));
        let found: Vec<String> = lines
            .filter_map(|(number, line)| {
                let line = line.strip_prefix('+').unwrap_or(line);
                screen::secrets(line).first().map(|found| format!("{} in line {}", found.kind, number + 1))
            })
            .take(10)
            .collect();
        let checked = if found.is_empty() { Ok(()) } else { Err(format!("it holds secrets: {}; take them out", found.join(", "))) };
        std::future::ready(checked).boxed()
    }
}
