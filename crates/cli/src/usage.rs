//! A command line that can't be read, said in one sentence.

use std::ffi::OsString;
use std::io::Write as _;

use clap::CommandFactory as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::args::Cli;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::terminal::Terminal;

/// Help and version are shown; anything else is a problem.
pub(crate) fn told(error: &clap::Error, arguments: &[OsString], terminal: &mut Terminal) -> Result<Exit, Problem> {
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
        _ => Err(problem(error, arguments)),
    }
}

fn problem(error: &clap::Error, arguments: &[OsString]) -> Problem {
    let Asked { command: asked, commands, options } = asked(arguments);
    let said = |kind| error.get(kind).map(words);
    let argument = said(ContextKind::InvalidArg).unwrap_or_default();
    let argument = argument.split_once(" <").map_or(argument.as_str(), |(option, _)| option);
    let value = said(ContextKind::InvalidValue).unwrap_or_default();
    let known = error.get(ContextKind::ValidValue).map(|names| up_to(names, MOST_VALUES)).filter(|names| !names.is_empty());
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
    let meant = match error.kind() {
        ErrorKind::InvalidSubcommand => said(ContextKind::InvalidSubcommand).and_then(|written| closest(&written, &commands)),
        ErrorKind::UnknownArgument if closest(argument, &options).is_some() => closest(argument, &options),
        _ => [ContextKind::SuggestedArg, ContextKind::SuggestedValue].into_iter().find_map(said),
    };
    let hint = match (meant, known) {
        (Some(meant), _) => format!("did you mean `{meant}`?"),
        (None, Some(known)) => format!("use one of {known}"),
        (None, None) => format!("see `{asked} --help`"),
    };
    Problem::usage(sentence).hint(hint)
}

/// The command that was asked for, as far as it can be read, those below it, and its options.
struct Asked {
    command: String,
    commands: Vec<String>,
    options: Vec<String>,
}

fn asked(arguments: &[OsString]) -> Asked {
    let mut command = Cli::command();
    let mut asked = command.get_name().to_owned();
    let options = |command: &clap::Command| -> Vec<String> {
        command.get_arguments().filter_map(|option| option.get_long()).map(|name| format!("--{name}")).collect()
    };
    let global = options(&command);
    for word in arguments.iter().skip(1).filter_map(|word| word.to_str()) {
        let Some(inner) = command.find_subcommand(word).cloned() else { continue };
        command = inner;
        asked = format!("{asked} {word}");
    }
    let mut options = options(&command);
    options.extend(global);
    Asked { command: asked, commands: command.get_subcommands().map(|inner| inner.get_name().to_owned()).collect(), options }
}

/// The name that a mistyped one most likely means; swapped letters count once. Of names as close, the one as long, with the same letters.
fn closest(written: &str, names: &[String]) -> Option<String> {
    let apart = |name: &String| {
        let longer = name.chars().count().abs_diff(written.chars().count());
        (strsim::damerau_levenshtein(written, name), longer, -(strsim::jaro(written, name) * 1e6) as i64)
    };
    let name = names.iter().min_by_key(|name| apart(name))?;
    let (distance, ..) = apart(name);
    (distance <= 2 && distance < written.chars().count()).then(|| name.clone())
}

/// The most values of an option that are listed.
const MOST_VALUES: usize = 12;

fn words(value: &ContextValue) -> String {
    up_to(value, 3)
}

fn up_to(value: &ContextValue, most: usize) -> String {
    match value {
        ContextValue::String(text) => text.clone(),
        ContextValue::Strings(texts) => texts.iter().take(most).map(String::as_str).collect::<Vec<_>>().join(", "),
        ContextValue::StyledStr(text) => text.to_string(),
        ContextValue::StyledStrs(texts) => texts.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
        ContextValue::Number(number) => number.to_string(),
        _ => String::new(),
    }
}
