//! The parser of shell text against what it was composed of, and against what shells run.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::json;
use toolwright_core::policy::command::{Expands, Script, SimpleCommand, Word, read};
use toolwright_core::policy::{RuleAction, RuleCall, RuleSet, Taint, allow, any, deny};
use toolwright_core::schema::Schema;
use toolwright_core::{ToolName, ToolOrigin, ToolSpec};

use super::grammar::{Composed, compose};
use super::shells::{Shell, bash_parses, commands_run};
use crate::sim::rng::Rng;

/// What happened over all texts.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) texts: u64,
    pub(super) clear: u64,
    pub(super) run: u64,
    pub(super) commands: u64,
    pub(super) not_shell: u64,
}

/// The shells that are installed.
pub(super) fn shells() -> Vec<(Shell, PathBuf)> {
    Shell::ALL.into_iter().filter_map(|shell| Some((shell, shell.find()?))).collect()
}

pub(super) fn fuzz(time: Duration, seed: Option<u64>) -> ExitCode {
    let shells = shells();
    let begun = Instant::now();
    let first = seed.unwrap_or_else(|| std::process::id().into());
    let mut told = Told::default();
    let mut n = 0u64;
    while begun.elapsed() < time {
        let seed = first.wrapping_add(n.wrapping_mul(0x9E37_79B9));
        n += 1;
        // Most texts are checked against what they were composed of; every eighth is run too.
        if let Err(found) = one(seed, if n.is_multiple_of(8) { &shells } else { &[] }, &mut told) {
            println!("seed {seed}: {found}");
            return ExitCode::FAILURE;
        }
    }
    println!("{told:?} in {:.1} s; shells: {:?}", begun.elapsed().as_secs_f64(), shells.iter().map(|(shell, _)| shell).collect::<Vec<_>>());
    ExitCode::SUCCESS
}

/// Checks one text. An error says what is wrong.
pub(super) fn one(seed: u64, shells: &[(Shell, PathBuf)], told: &mut Told) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    let composed = compose(&mut rng);
    let Composed { text, names, damaged } = &composed;
    let script = read(text);
    told.texts += 1;
    told.clear += u64::from(script.unclear.is_empty());
    if !damaged {
        for name in names {
            listed(text, &script, name, "composed")?;
        }
        if let Some(at) = names.get(rng.index(names.len())) {
            denied(text, &script, at)?;
        }
    }
    if !script.unclear.is_empty() {
        return Ok(());
    }
    for (shell, program) in shells {
        told.run += 1;
        let is_listed = |words: &Vec<String>| script.commands.iter().any(|command| fits(&command.words, words));
        let mut ran = Vec::new();
        // Two commands that write at once may mix what is written down of them: what is wrong is wrong each time.
        for _ in 0..4 {
            ran = commands_run(*shell, program, text).map_err(|error| error.to_string())?;
            if ran.iter().all(is_listed) {
                break;
            }
        }
        told.commands += ran.len() as u64;
        if let Some(words) = ran.iter().find(|words| !is_listed(words)) {
            return Err(format!("{shell:?} ran {words:?}, which is not listed\n{}", shown(text, &script)));
        }
        if let Some(name) = ran.get(rng.index(ran.len())).and_then(|words| words.first()) {
            denied(text, &script, name)?;
        }
        if *shell == Shell::Bash && ran.is_empty() && !bash_parses(program, text).map_err(|error| error.to_string())? {
            // Read as more than bash does: it runs nothing, so nothing is missed.
            told.not_shell += 1;
        }
    }
    Ok(())
}

/// A command that is in a text is listed, if the text is clear.
fn listed(text: &str, script: &Script, name: &str, how: &str) -> Result<(), String> {
    let listed = script.commands.iter().any(|command| command.words.first().and_then(Word::known) == Some(name));
    if listed || !script.unclear.is_empty() { Ok(()) } else { Err(format!("{name} is {how} and not listed\n{}", shown(text, script))) }
}

/// A rule that denies a command in a text denies the text, or the text asks: it is never allowed.
fn denied(text: &str, script: &Script, name: &str) -> Result<(), String> {
    // A name that is no plain word can't be part of a pattern.
    if !name.chars().all(|c| c.is_ascii_alphanumeric()) {
        return Ok(());
    }
    let rules = RuleSet::compile(vec![deny(any()).command([format!("{name} *")]), allow(any()).command(["*"])]);
    let rules = rules.map_err(|error| error.to_string())?;
    let spec = spec()?;
    let args = json!({ "command": text });
    let judged = rules.for_tool(&spec, true).judge(RuleCall { args: &args, taint: Taint::default() }, false, |_| true);
    let safe = match judged.action {
        Some(RuleAction::Deny) => true,
        Some(RuleAction::Ask) => !script.unclear.is_empty(),
        _ => false,
    };
    if safe { Ok(()) } else { Err(format!("{name} is denied by a rule, and there comes {judged:?}\n{}", shown(text, script))) }
}

fn spec() -> Result<ToolSpec, String> {
    let schema = Schema::new(json!({ "type": "object" })).map_err(|error| error.to_string())?;
    let name = ToolName::new("shell").map_err(|error| error.to_string())?;
    Ok(ToolSpec::new(name, "A shell.", schema, ToolOrigin::Value))
}

/// Whether what was run may have come from a command that is listed.
fn fits(listed: &[Word], ran: &[String]) -> bool {
    match (listed.split_first(), ran.split_first()) {
        (None, None) => true,
        (None, Some(_)) => false,
        (Some((word, rest)), first) => match (word.expands, first) {
            (Expands::Many, _) => (0..=ran.len()).any(|taken| fits(rest, ran.get(taken..).unwrap_or_default())),
            (Expands::One, Some((_, ran))) => fits(rest, ran),
            (Expands::No, Some((first, ran))) => word.text == *first && fits(rest, ran),
            (_, None) => false,
        },
    }
}

fn shown(text: &str, script: &Script) -> String {
    let commands: Vec<String> = script.commands.iter().map(SimpleCommand::shown).collect();
    format!("in {text:?}\nlisted: {commands:?}\nunclear: {:?}", script.unclear)
}

#[cfg(test)]
mod tests {
    use super::*;

    // case: field-reports 131
    // case: field-reports 133
    #[test]
    fn no_text_of_several_commands_is_read_as_fewer() {
        let mut told = Told::default();
        for seed in 0..6_000 {
            one(seed, &[], &mut told).unwrap_or_else(|found| panic!("seed {seed}: {found}"));
        }
        // The check looks at something: a good part of the texts is clear.
        assert!(told.clear > 1_500, "{told:?}");
    }

    // case: field-reports 134
    #[test]
    fn shells_run_nothing_that_is_not_listed() {
        let shells = shells();
        if shells.is_empty() {
            println!("there is neither bash nor dash here");
            return;
        }
        let mut told = Told::default();
        for seed in 100_000..100_200 {
            one(seed, &shells, &mut told).unwrap_or_else(|found| panic!("seed {seed}: {found}"));
        }
        assert!(told.commands > 100, "{told:?}");
    }
}
