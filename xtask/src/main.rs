//! The chores of this workspace, each a subcommand of `cargo xtask`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a developer's command: what it prints is its result")]
#![allow(clippy::disallowed_methods, reason = "xtask starts cargo and git; it is no part of the product")]

mod bench;
mod features;
mod fuzz;
mod licences;
mod repo;
mod rules;
mod rust_text;
mod sim;
mod tidy;

use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask <chore>

  tidy                              check the invariants that a script can check
  rules [--check | --missing]       write docs/rules.md; or check that it is fresh and complete; or list what has no state
  features                          check each feature of the facade by itself
  licences                          check every dependency's licence against deny.toml
  bench [NAME ...] [--json] [--slack FACTOR]
                                    measure figures and compare them with their limits
  local-eval [dev] [-v]             show the local model on its evaluation sets
  sim [--schedules N] [--seed S] [--bug NAME]
                                    run the simulator
  fuzz command [--seconds N] [--seed S]
                                    give the parser of shell commands random texts
  fuzz paths [--seconds N] [--seed S]
                                    give the tools on files random trees of links and random paths
  fuzz address [--seconds N] [--seed S]
                                    compare which addresses are refused with the registries of special-purpose addresses";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let chore = args.next();
    let rest: Vec<String> = args.collect();
    let done = match chore.as_deref() {
        Some("tidy") => tidy::run(&rest),
        Some("rules") => rules::run(&rest),
        Some("features") => features::run(&rest),
        Some("licences") => licences::run(&rest),
        Some("bench") => bench::run(&rest),
        Some("local-eval") => bench::local::run(&rest),
        Some("fuzz") => fuzz::run(&rest),
        Some("sim") => sim::run(&rest),
        Some("help" | "--help" | "-h") => {
            println!("{USAGE}");
            Ok(ExitCode::SUCCESS)
        }
        Some(other) => Err(usage(&format!("there is no chore `{other}`"))),
        None => Err(usage("say which chore")),
    };
    match done {
        Ok(code) => code,
        Err(error) if error.is::<Usage>() => {
            eprintln!("error: {error}\n\n{USAGE}");
            ExitCode::from(2)
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A mistake in how the command was called: exit code 2 and the usage text.
#[derive(Debug)]
struct Usage(String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

fn usage(message: &str) -> anyhow::Error {
    anyhow::Error::new(Usage(message.to_owned()))
}

/// Refuses arguments of a chore that takes none.
fn no_arguments(args: &[String]) -> anyhow::Result<()> {
    match args.first() {
        None => Ok(()),
        Some(arg) => Err(usage(&format!("this chore takes no arguments, but got `{arg}`"))),
    }
}
