//! `toolwright models`.

use std::io::Write as _;

use anstyle::Style;
use serde_json::json;
use toolwright::Agent;
use toolwright::models::switches::{Key, Switches};

use crate::args::{CheckOptions, Json};
use crate::choose::Choice;
use crate::exit::Exit;
use crate::interrupt::Interrupts;
use crate::local::{self, Weights};
use crate::problem::Problem;
use crate::terminal::{DIM, GOOD, Terminal, WARN};

/// Whether a variable has a value. The value itself is never shown.
pub(crate) fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.to_string_lossy().trim().is_empty())
}

/// Whether a provider can be asked as things are. Whether a server of one's own runs is not looked at.
fn is_ready(row: &Switches) -> bool {
    let address = row.base_url_var.is_some_and(is_set);
    let key = row.key_var.is_some_and(is_set);
    if row.key == Key::Optional { address || !row.base_url.is_empty() } else { key || address }
}

fn state(row: &Switches) -> (Style, &'static str, String) {
    let address = row.base_url_var.unwrap_or_default();
    let key = row.key_var.unwrap_or_default();
    match row.key {
        Key::Required if is_set(key) => (GOOD, "ready", format!("{key} is set")),
        _ if is_set(address) => (GOOD, "ready", format!("{address} is set")),
        Key::Required => (DIM, "no key", format!("set {key}")),
        Key::Optional if row.base_url.is_empty() => (DIM, "no address", format!("set {address}")),
        Key::Optional => (DIM, "own server", format!("at {}, or set {address}", row.base_url)),
    }
}

pub(crate) fn list(options: Json, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let weights = local::weights();
    if options.json {
        let providers: Vec<_> = Switches::table()
            .iter()
            .map(|row| {
                json!({
                    "provider": row.provider, "defaultModel": row.default_model,
                    "keyVariable": row.key_var, "keyIsSet": row.key_var.is_some_and(is_set), "keyIsRequired": row.key == Key::Required,
                    "addressVariable": row.base_url_var, "addressIsSet": row.base_url_var.is_some_and(is_set), "ready": is_ready(row),
                })
            })
            .collect();
        let (here, path) = match &weights {
            Weights::Here(path) => (true, Some(path)),
            Weights::Absent(path) => (false, path.as_ref()),
            Weights::Wrong(path) => (false, Some(path)),
            Weights::NotBuilt => (false, None),
        };
        writeln!(terminal.out(), "{}", json!({ "local": { "ready": here, "path": path }, "providers": providers }))?;
        return Ok(Exit::Done);
    }
    let out = terminal.out();
    let local = match &weights {
        Weights::Here(path) => format!("{GOOD}ready{GOOD:#}      {}", path.display()),
        Weights::Absent(Some(path)) => format!("{WARN}not here{WARN:#}   would be fetched to {}", path.display()),
        Weights::Absent(None) => format!("{WARN}not here{WARN:#}   and this user has no data folder"),
        Weights::Wrong(path) => format!("{WARN}not usable{WARN:#} {}", path.display()),
        Weights::NotBuilt => format!("{DIM}not in this build{DIM:#}"),
    };
    writeln!(out, "{:<12} {local}", local::NAME)?;
    for row in Switches::table() {
        let (style, state, detail) = state(row);
        let model = row.default_model.map(|model| format!(", such as {}/{model}", row.provider)).unwrap_or_default();
        writeln!(out, "{:<12} {style}{state:<10}{style:#} {detail}{DIM}{model}{DIM:#}", row.provider)?;
    }
    Ok(Exit::Done)
}

pub(crate) async fn fetch(terminal: &mut Terminal) -> Result<Exit, Problem> {
    let path = local::fetch(terminal, &mut Interrupts::listen()).await?;
    writeln!(terminal.out(), "{}", path.display())?;
    Ok(Exit::Done)
}

pub(crate) async fn check(options: &CheckOptions, terminal: &mut Terminal) -> Result<Exit, Problem> {
    match Choice::of(options.model.as_deref()) {
        Choice::Named(name) => {
            let agent = Agent::builder().model(name.as_str()).build()?;
            writeln!(terminal.out(), "{} can be asked; its name, address and key are there, and nothing was sent", agent.model().name())?;
            Ok(Exit::Done)
        }
        Choice::Local | Choice::Fallback => check_local(terminal).await,
    }
}

/// What the local model is asked. Its answer is known, and needs a tool.
const QUESTION: &str = "What day of the week was 31 December 1999?";

async fn check_local(terminal: &mut Terminal) -> Result<Exit, Problem> {
    let Some(path) = local::verified().await? else {
        return Err(Problem::new(Exit::Usage, "TOOLWRIGHT_CONFIG_MISSING_PROVIDER", "the local model's weights are not here")
            .hint("fetch them with `toolwright models fetch`"));
    };
    writeln!(terminal.out(), "{} is whole", path.display())?;
    let builder = Agent::builder().tools(toolwright::builtin::builtin());
    let agent = local::give(builder, terminal, &mut Interrupts::listen()).await?.build()?;
    let begun = std::time::Instant::now();
    let reply = agent.send(QUESTION).await?;
    let results = reply.messages.iter().flat_map(|message| message.results()).map(toolwright::core::ResultItem::text).collect::<String>();
    if !results.contains("Friday") {
        return Err(Problem::failed(
            "TOOLWRIGHT_PROVIDER_REQUEST_FAILED",
            format!("the local model did not find the answer to \"{QUESTION}\""),
        )
        .details([reply.text]));
    }
    writeln!(terminal.out(), "{} answered in {} ms: {}", agent.model().name(), begun.elapsed().as_millis(), reply.text)?;
    Ok(Exit::Done)
}
