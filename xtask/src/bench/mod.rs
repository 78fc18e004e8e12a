//! `cargo xtask bench`: figures, measured and held against their limits.
//!
//! A figure is measured by a function in a file of its own here and has its row in [`FIGURES`]. Absolute times differ
//! between machines, so a figure is a ratio within one run wherever it can be.

mod assemble;
mod cold;
mod decided;
mod journal;
pub(crate) mod local;
mod loops;
mod policy;
mod redact;
mod search;
#[cfg(target_os = "linux")]
mod shell;
mod web;

use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::usage;

/// What a measurement gives: figures by name, in any order; not a number where the data for it is not there.
pub(crate) type Measured = Vec<(&'static str, f64)>;

/// A figure and the limit it is held to.
struct Figure {
    name: &'static str,
    unit: &'static str,
    limit: Limit,
    /// Gives this figure, and perhaps others that come from the same work; it runs once for all of them.
    measure: fn() -> Result<Measured>,
}

#[derive(Clone, Copy)]
enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

impl Limit {
    fn value(self) -> f64 {
        match self {
            Limit::AtMost(value) | Limit::AtLeast(value) => value,
        }
    }

    /// Whether the figure holds when the limit is loosened by this factor.
    fn holds(self, figure: f64, slack: f64) -> bool {
        match self {
            Limit::AtMost(limit) => figure <= limit * slack,
            Limit::AtLeast(limit) => figure >= limit / slack,
        }
    }

    fn sign(self) -> &'static str {
        match self {
            Limit::AtMost(_) => "at most",
            Limit::AtLeast(_) => "at least",
        }
    }
}

/// Every figure, in the order it is printed.
const FIGURES: &[Figure] = &[
    Figure { name: "dispatch", unit: "µs", limit: Limit::AtMost(3.0), measure: loops::dispatch },
    Figure { name: "gate", unit: "µs", limit: Limit::AtMost(10.0), measure: loops::gate },
    Figure { name: "loop.step", unit: "µs", limit: Limit::AtMost(25.0), measure: loops::step },
    Figure { name: "loop.growth", unit: "x", limit: Limit::AtMost(4.4), measure: loops::growth },
    Figure { name: "assemble", unit: "MB/s", limit: Limit::AtLeast(100.0), measure: assemble::recorded },
    Figure { name: "redact", unit: "MB/s", limit: Limit::AtLeast(200.0), measure: redact::throughput },
    Figure { name: "policy", unit: "µs", limit: Limit::AtMost(20.0), measure: policy::rules },
    Figure { name: "net", unit: "µs", limit: Limit::AtMost(50.0), measure: web::guard },
    Figure { name: "html.speed", unit: "MB/s", limit: Limit::AtLeast(20.0), measure: web::html },
    Figure { name: "html.f1", unit: "", limit: Limit::AtLeast(0.98), measure: web::html },
    Figure { name: "parallel", unit: "ms", limit: Limit::AtMost(25.0), measure: loops::parallel },
    Figure { name: "journal.ratio", unit: "x", limit: Limit::AtLeast(0.35), measure: journal::journal },
    Figure { name: "journal.scaling", unit: "x", limit: Limit::AtLeast(5.0), measure: journal::journal },
    Figure { name: "growth", unit: "x", limit: Limit::AtMost(10.5), measure: journal::growth },
    Figure { name: "resume", unit: "ms", limit: Limit::AtMost(50.0), measure: journal::resume },
    Figure { name: "parked", unit: "ms", limit: Limit::AtMost(20.0), measure: journal::parked },
    Figure { name: "decided", unit: "ms", limit: Limit::AtMost(20.0), measure: decided::decided },
    Figure { name: "decided.open", unit: "ms", limit: Limit::AtMost(50.0), measure: decided::decided },
    #[cfg(target_os = "linux")]
    Figure { name: "shell", unit: "ms", limit: Limit::AtMost(2.0), measure: shell::sandboxed },
    Figure { name: "grep", unit: "x", limit: Limit::AtMost(1.3), measure: search::search },
    Figure { name: "glob", unit: "x", limit: Limit::AtMost(1.3), measure: search::search },
    Figure { name: "cold.version", unit: "ms", limit: Limit::AtMost(10.0), measure: cold::version },
    Figure { name: "cold.binary", unit: "MB", limit: Limit::AtMost(30.0), measure: cold::binary },
    Figure { name: "local.turn", unit: "ms", limit: Limit::AtMost(800.0), measure: local::measured },
    Figure { name: "local.right", unit: "%", limit: Limit::AtLeast(75.0), measure: local::measured },
    Figure { name: "local.asks", unit: "%", limit: Limit::AtMost(15.0), measure: local::measured },
    Figure { name: "local.declines", unit: "%", limit: Limit::AtLeast(85.0), measure: local::measured },
];

struct Options {
    names: Vec<String>,
    json: bool,
    /// A figure fails the command only when it misses its limit by more than this factor.
    slack: f64,
}

impl Options {
    fn read(args: &[String]) -> Result<Self> {
        let mut options = Self { names: Vec::new(), json: false, slack: 1.0 };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--json" => options.json = true,
                "--slack" => {
                    let factor = args.next().and_then(|text| text.parse().ok()).filter(|factor| *factor >= 1.0);
                    options.slack = factor.ok_or_else(|| usage("--slack takes a factor of at least 1"))?;
                }
                flag if flag.starts_with('-') => return Err(usage(&format!("bench has no option `{flag}`"))),
                name => {
                    if !FIGURES.iter().any(|figure| chosen(figure.name, name)) {
                        let known: Vec<&str> = FIGURES.iter().map(|figure| figure.name).collect();
                        return Err(usage(&format!("there is no figure `{name}`; there are {}", known.join(", "))));
                    }
                    options.names.push(name.to_owned());
                }
            }
        }
        Ok(options)
    }

    fn chooses(&self, figure: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|name| chosen(figure, name))
    }
}

/// A name stands for the figure itself or for all figures below it: `cold` for `cold.version` and `cold.binary`.
fn chosen(figure: &str, name: &str) -> bool {
    figure == name || figure.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'))
}

pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    let options = Options::read(args)?;
    let mut rows = Vec::new();
    let mut known: Vec<(&str, f64)> = Vec::new();
    let mut missed = false;
    if !options.json {
        println!("{:<28} {:>12} {:<6} {:>20}  holds", "name", "figure", "unit", "limit");
    }
    for figure in FIGURES.iter().filter(|figure| options.chooses(figure.name)) {
        let of_it = |known: &[(&str, f64)]| known.iter().find(|(name, _)| *name == figure.name).map(|(_, value)| *value);
        if of_it(&known).is_none() {
            known.extend((figure.measure)().with_context(|| format!("measuring {}", figure.name))?);
        }
        let value = of_it(&known).with_context(|| format!("measuring gave no figure `{}`", figure.name))?;
        if value.is_nan() {
            eprintln!("{:<28} is not measured: its data is not beside this checkout", figure.name);
            continue;
        }
        let holds = figure.limit.holds(value, 1.0);
        missed |= !figure.limit.holds(value, options.slack);
        if options.json {
            rows.push(serde_json::json!({
                "name": figure.name,
                "figure": value,
                "unit": figure.unit,
                "limit": figure.limit.value(),
                "holds": holds,
            }));
        } else {
            let limit = format!("{} {}", figure.limit.sign(), figure.limit.value());
            println!("{:<28} {value:>12.3} {:<6} {limit:>20}  {}", figure.name, figure.unit, if holds { "yes" } else { "NO" });
        }
    }
    if options.json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
    }
    Ok(if missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The middle of some measurements.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_hold_both_ways() {
        assert!(Limit::AtMost(3.0).holds(3.0, 1.0));
        assert!(!Limit::AtMost(3.0).holds(3.1, 1.0));
        assert!(Limit::AtMost(3.0).holds(5.9, 2.0));
        assert!(Limit::AtLeast(100.0).holds(100.0, 1.0));
        assert!(!Limit::AtLeast(100.0).holds(99.0, 1.0));
        assert!(Limit::AtLeast(100.0).holds(50.0, 2.0));
    }

    #[test]
    fn names_choose_figures() {
        assert!(chosen("cold.version", "cold"));
        assert!(chosen("cold.version", "cold.version"));
        assert!(!chosen("cold.version", "col"));
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert!(Options::read(&words(&["nothing"])).is_err());
        assert!(Options::read(&words(&["--slack", "0.5"])).is_err());
        assert!(Options::read(&words(&["--json", "cold"])).unwrap().json);
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(Vec::new()), None);
    }
}
