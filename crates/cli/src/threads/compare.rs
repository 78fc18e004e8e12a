//! `toolwright threads compare`.

use std::io::Write as _;

use toolwright::core::{Comparison, HistoryStep};

use super::{Looked, count};
use crate::args::CompareOptions;
use crate::exit::Exit;
use crate::kept::thread_id;
use crate::problem::Problem;
use crate::terminal::{BOLD, DIM, Terminal, one_line};

/// How many lines of a step are shown.
const LINES: usize = 12;

pub(crate) async fn compare(options: &CompareOptions, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let b = thread_id(&options.b)?;
    let (looked, thread, info) = Looked::thread(&options.store, &options.a).await?;
    let comparison = thread.compare(&b).await.map_err(|error| looked.problem(error))?;
    if options.json.json {
        let text =
            serde_json::to_string(&comparison).map_err(|error| Problem::failed("TOOLWRIGHT_AGENT_EXECUTION_FAILED", error.to_string()))?;
        writeln!(terminal.out(), "{text}")?;
        return Ok(Exit::Done);
    }
    let (a, b) = (info.id.as_str(), b.as_str());
    let Some(at) = comparison.diverged_at else {
        writeln!(terminal.out(), "{BOLD}{a}{BOLD:#} and {BOLD}{b}{BOLD:#} did the same, in {}", steps(comparison.a.len()))?;
        if comparison.drift.finish_reason {
            writeln!(terminal.out(), "but their last runs ended differently")?;
        }
        return Ok(Exit::Done);
    };
    let same = if at == 0 { "they differ from the beginning on".to_owned() } else { format!("the first {} are the same", steps(at)) };
    let same = same.replace("the first 1 step are", "the first step is");
    writeln!(terminal.out(), "{same}; {a} has {}, {b} has {}", steps(comparison.a.len()), steps(comparison.b.len()))?;
    side_by_side(&comparison, at, (a, b), terminal)?;
    let drift = comparison.drift;
    let differs =
        [(drift.tool_order, "the tools called"), (drift.args, "arguments of the same calls"), (drift.finish_reason, "how they ended")];
    let differs: Vec<&str> = differs.into_iter().filter_map(|(differs, what)| differs.then_some(what)).collect();
    if !differs.is_empty() {
        writeln!(terminal.out(), "\n{DIM}as wholes they differ in{DIM:#} {}", differs.join(", "))?;
    }
    Ok(Exit::Done)
}

fn steps(number: usize) -> String {
    count(number, "step", "steps")
}

/// The first step that differs, as it is in both.
fn side_by_side(comparison: &Comparison, at: usize, names: (&str, &str), terminal: &mut Terminal) -> Result<(), Problem> {
    let width = terminal.width().min(160).saturating_sub(3) / 2;
    let (left, right) = (lines(comparison.a.get(at)), lines(comparison.b.get(at)));
    let out = terminal.out();
    let heads = (one_line(names.0, width), one_line(names.1, width));
    writeln!(out, "\n{BOLD}{:<width$}{BOLD:#} {DIM}|{DIM:#} {BOLD}{}{BOLD:#}", heads.0, heads.1)?;
    for row in 0..left.len().max(right.len()) {
        let cell = |lines: &[String]| one_line(lines.get(row).map_or("", String::as_str), width);
        let (left, right) = (cell(&left), cell(&right));
        let left = console::pad_str(&left, width, console::Alignment::Left, None);
        writeln!(out, "{left} {DIM}|{DIM:#}{}{right}", if right.is_empty() { "" } else { " " })?;
    }
    Ok(())
}

/// A step in a few lines: its calls with their results, and what the model said.
fn lines(step: Option<&HistoryStep>) -> Vec<String> {
    let Some(step) = step else { return vec!["(has no such step)".to_owned()] };
    let mut lines = vec![format!("step {}", step.step)];
    for call in &step.tool_calls {
        lines.push(format!("→ {} {}", call.name, call.args));
        match &call.result {
            None => lines.push("(no result yet)".to_owned()),
            Some(result) if call.failed => {
                let message = result.get("message").and_then(|message| message.as_str());
                lines.push(format!("✗ {}", message.map_or_else(|| result.to_string(), str::to_owned)));
            }
            Some(result) => lines.push(format!("✓ {}", result.as_str().map_or_else(|| result.to_string(), str::to_owned))),
        }
    }
    lines.extend(step.text.lines().map(str::to_owned));
    if lines.len() > LINES {
        let more = lines.len() - LINES;
        lines.truncate(LINES);
        lines.push(format!("({} more)", count(more, "line", "lines")));
    }
    lines
}
