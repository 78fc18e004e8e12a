//! A command line that can't be read, said in one sentence.

use std::io::Write as _;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use clap::CommandFactory as _;

use crate::args::Cli;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::terminal::Terminal;

/// Help and version are shown; anything else is a problem.
pub(crate) fn told(error: &clap::Error, terminal: &mut Terminal) -> Result<Exit, Problem> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            write!(terminal.out(), "{}", error.render().ansi())?;
            terminal.out().flush()?;
            Ok(Exit::Done)
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            terminal.prompt(error.render().ansi());
            Ok(Exit::Usage)
        }
        _ => Err(problem(error)),
    }
}

fn problem(error: &clap::Error) -> Problem {
    let said = |kind| error.get(kind).map(words);
    let argument = said(ContextKind::InvalidArg).unwrap_or_default();
    let argument = argument.split_once(" <").map_or(argument.as_str(), |(option, _)| option);
    let value = said(ContextKind::InvalidValue).unwrap_or_default();
    let known = said(ContextKind::ValidValue);
    let sentence = match error.kind() {
        ErrorKind::UnknownArgument if !argument.starts_with('-') => format!("`{argument}` is one argument too many"),
        ErrorKind::UnknownArgument => format!("there is no option `{argument}` here"),
        ErrorKind::InvalidSubcommand => format!("there is no command `{}`", said(ContextKind::InvalidSubcommand).unwrap_or_default()),
        ErrorKind::MissingSubcommand => "a command is missing".to_owned(),
        ErrorKind::MissingRequiredArgument => format!("{} is missing", said(ContextKind::InvalidArg).unwrap_or_default()),
        ErrorKind::InvalidValue if value.is_empty() => format!("`{argument}` needs a value"),
        ErrorKind::InvalidValue => format!("`{value}` is not a value of `{argument}`"),
        ErrorKind::ValueValidation => {
            let why = std::error::Error::source(error).map(|why| format!(": {why}")).unwrap_or_default();
            format!("`{value}` is not a value of `{argument}`{why}")
        }
        ErrorKind::NoEquals | ErrorKind::TooManyValues | ErrorKind::TooFewValues | ErrorKind::WrongNumberOfValues => {
            format!("`{argument}` has the wrong number of values")
        }
        ErrorKind::ArgumentConflict => {
            format!("`{argument}` can't be used with `{}`", said(ContextKind::PriorArg).unwrap_or_default())
        }
        ErrorKind::InvalidUtf8 => "an argument is not valid UTF-8".to_owned(),
        _ => {
            let rendered = error.render().to_string();
            rendered.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
        }
    };
    let meant = [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue].into_iter().find_map(said);
    let meant = meant.or_else(|| closest_command(&asked(error), &said(ContextKind::InvalidSubcommand)?));
    let hint = match (meant, known) {
        (Some(meant), _) => format!("did you mean `{meant}`?"),
        (None, Some(known)) => format!("use one of {known}"),
        (None, None) => format!("see `{} --help`", asked(error)),
    };
    Problem::usage(sentence).hint(hint)
}

/// The command whose help says more.
fn asked(error: &clap::Error) -> String {
    let usage = error.get(ContextKind::Usage).map(words).unwrap_or_default();
    let line = usage.trim_start().trim_start_matches("Usage:").trim_start();
    let names: Vec<&str> = line.split_whitespace().take_while(|word| word.starts_with(|c: char| c.is_ascii_lowercase())).collect();
    if names.is_empty() { "toolwright".to_owned() } else { names.join(" ") }
}

/// The command below `above` that a mistyped one most likely means; swapped letters count once.
fn closest_command(above: &str, written: &str) -> Option<String> {
    let mut command = Cli::command();
    for name in above.split(' ').skip(1) {
        command = command.find_subcommand(name)?.clone();
    }
    let names = command.get_subcommands().map(clap::Command::get_name);
    let (distance, name) = names.map(|name| (strsim::damerau_levenshtein(written, name), name)).min()?;
    (distance <= 2 && distance < written.chars().count()).then(|| name.to_owned())
}

fn words(value: &ContextValue) -> String {
    match value {
        ContextValue::String(text) => text.clone(),
        ContextValue::Strings(texts) => texts.iter().take(3).map(String::as_str).collect::<Vec<_>>().join(", "),
        ContextValue::StyledStr(text) => text.to_string(),
        ContextValue::StyledStrs(texts) => texts.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
        ContextValue::Number(number) => number.to_string(),
        _ => String::new(),
    }
}
