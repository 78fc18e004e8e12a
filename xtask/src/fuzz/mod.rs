//! `cargo xtask fuzz`: random input for code that reads what others wrote, for as long as it is told to.

mod address;
mod command;
mod grammar;
#[cfg(unix)]
mod paths;
mod shells;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;

use crate::usage;

pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    let mut args = args.iter();
    let target = args.next().map(String::as_str);
    let (mut seconds, mut seed) = (60u64, None);
    while let Some(arg) = args.next() {
        let mut number =
            || args.next().and_then(|text| text.parse::<u64>().ok()).ok_or_else(|| usage(&format!("{arg} takes a whole number")));
        match arg.as_str() {
            "--seconds" => seconds = number()?,
            "--seed" => seed = Some(number()?),
            other => return Err(usage(&format!("fuzz has no option `{other}`"))),
        }
    }
    match target {
        Some("address") => address::fuzz(Duration::from_secs(seconds), seed),
        Some("command") => Ok(command::fuzz(Duration::from_secs(seconds), seed)),
        #[cfg(unix)]
        Some("paths") => Ok(paths::fuzz(Duration::from_secs(seconds), seed)),
        Some(other) => Err(usage(&format!("there is nothing to fuzz called `{other}`; there are `address`, `command` and `paths`"))),
        None => Err(usage("say what to fuzz: `address`, `command` or `paths`")),
    }
}
