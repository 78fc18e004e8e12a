//! `toolwright tools`.

use std::io::Write as _;

use serde_json::{Map, Value, json};
use toolwright::{Agent, Outcome, Tool, ToolSpec};

use crate::args::{CallOptions, Json, LintOptions, PlaceOptions, ShowOptions};
use crate::exit::Exit;
use crate::follow::{Answers, Session};
use crate::interrupt::Interrupts;
use crate::lines::Lines;
use crate::lint::{CHARACTERS_A_TOKEN, Definition, Effect, Level, Report, lint as check, tokens};
use crate::problem::Problem;
use crate::run::input;
use crate::show::Show;
use crate::terminal::{BAD, BOLD, DIM, GOOD, Terminal, WARN, plain};
use crate::toolbox::{ToolSet, Toolbox};

/// Every tool there is, in its sets.
struct Shelf(Vec<(ToolSet, Vec<Tool>)>);

impl Shelf {
    fn of(places: &PlaceOptions, terminal: &mut Terminal) -> Result<Self, Problem> {
        let toolbox = Toolbox::open(places, terminal)?;
        ToolSet::ALL.into_iter().map(|set| Ok((set, toolbox.of(set)?))).collect::<Result<_, Problem>>().map(Self)
    }

    /// Each tool once, with the first set it is in.
    fn tools(&self) -> Vec<(ToolSet, &Tool)> {
        let mut all: Vec<(ToolSet, &Tool)> = Vec::new();
        for (set, tools) in &self.0 {
            for tool in tools {
                if all.iter().all(|(_, other)| other.name() != tool.name()) {
                    all.push((*set, tool));
                }
            }
        }
        all
    }

    fn named(&self, name: &str) -> Result<(ToolSet, &Tool), Problem> {
        let all = self.tools();
        if let Some(found) = all.iter().find(|(_, tool)| tool.name().as_str() == name) {
            return Ok(*found);
        }
        let problem = Problem::new(Exit::Usage, "TOOLWRIGHT_TOOL_NOT_FOUND", format!("no tool is called `{name}`"));
        let likeness = |other: &str| strsim::normalized_levenshtein(name, other);
        let close = all.iter().map(|(_, tool)| tool.name().as_str()).max_by(|one, other| likeness(one).total_cmp(&likeness(other)));
        Err(match close.filter(|close| likeness(close) > 0.5) {
            Some(close) => problem.hint(format!("did you mean `{close}`?")),
            None => problem.hint("list them with `toolwright tools list`"),
        })
    }
}

pub(crate) fn list(options: Json, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let shelf = Shelf::of(&PlaceOptions::anywhere(), terminal)?;
    let tools = shelf.tools();
    if options.json {
        let all = tools.iter().map(|(set, tool)| described(tool.spec(), *set)).collect::<Vec<Value>>();
        writeln!(terminal.out(), "{}", Value::from(all))?;
        return Ok(Exit::Done);
    }
    let widest = tools.iter().map(|(_, tool)| tool.name().as_str().len()).max().unwrap_or_default();
    for (set, tool) in tools {
        writeln!(terminal.out(), "{DIM}{:<7}{DIM:#} {}", set.name(), line(tool, widest))?;
    }
    Ok(Exit::Done)
}

/// Tools, one a line: name, first line of the description, what they promise.
pub(crate) fn lines<'t>(tools: impl Iterator<Item = &'t Tool>) -> Vec<String> {
    let tools: Vec<&Tool> = tools.collect();
    let widest = tools.iter().map(|tool| tool.name().as_str().len()).max().unwrap_or_default();
    tools.into_iter().map(|tool| line(tool, widest)).collect()
}

fn line(tool: &Tool, widest: usize) -> String {
    let spec = tool.spec();
    let first = spec.description.lines().next().unwrap_or_default();
    let hints = hints(spec);
    let hints = if hints.is_empty() { String::new() } else { format!(" {DIM}({}){DIM:#}", hints.join(", ")) };
    format!("{BOLD}{:<widest$}{BOLD:#} {}{hints}", spec.name.as_str(), plain(first))
}

/// What a tool promises, in words.
fn hints(spec: &ToolSpec) -> Vec<&'static str> {
    let annotations = spec.annotations;
    let words = [
        (annotations.read_only(), "read-only"),
        (annotations.destructive(), "destructive"),
        (annotations.idempotent(), "idempotent"),
        (annotations.open_world_hint == Some(true), "open world"),
        (spec.sequential, "sequential"),
    ];
    words.into_iter().filter_map(|(holds, word)| holds.then_some(word)).collect()
}

fn described(spec: &ToolSpec, set: ToolSet) -> Value {
    let mut map = Map::new();
    map.insert("set".to_owned(), json!(set.name()));
    map.insert("name".to_owned(), json!(spec.name));
    map.insert("description".to_owned(), json!(spec.description));
    map.insert("annotations".to_owned(), json!(spec.annotations));
    map.insert("inputSchema".to_owned(), spec.input.as_value().clone());
    if let Some(output) = &spec.output {
        map.insert("outputSchema".to_owned(), output.clone());
    }
    map.insert("estimatedTokens".to_owned(), json!(tokens(&Definition::of(spec))));
    Value::Object(map)
}

pub(crate) fn show(options: &ShowOptions, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let shelf = Shelf::of(&PlaceOptions::anywhere(), terminal)?;
    let (set, tool) = shelf.named(&options.name)?;
    let spec = tool.spec();
    if options.json.json {
        writeln!(terminal.out(), "{}", described(spec, set))?;
        return Ok(Exit::Done);
    }
    let out = terminal.out();
    writeln!(out, "{BOLD}{}{BOLD:#}", spec.name)?;
    writeln!(out, "{}", plain(&spec.description))?;
    writeln!(out)?;
    let mut options: Vec<(&str, String)> = Vec::new();
    let hints = hints(spec);
    if !hints.is_empty() {
        options.push(("hints", hints.join(", ")));
    }
    if let Some(timeout) = spec.timeout {
        options.push(("timeout", format!("{timeout:?}")));
    }
    if let Some(most) = spec.max_calls {
        options.push(("calls", format!("at most {most} in a run")));
    }
    if !spec.repair {
        options.push(("repair", "off".to_owned()));
    }
    options.push(("set", set.name().to_owned()));
    options.push(("from", spec.origin.to_string()));
    options.push(("cost", format!("about {} tokens in each request (an estimate)", tokens(&Definition::of(spec)))));
    for (name, value) in options {
        writeln!(out, "{DIM}{name:<8}{DIM:#} {value}")?;
    }
    writeln!(out, "\n{DIM}arguments{DIM:#}\n{:#}", spec.input.as_value())?;
    if let Some(output) = &spec.output {
        writeln!(out, "\n{DIM}result{DIM:#}\n{output:#}")?;
    }
    for example in &spec.examples {
        writeln!(out, "\n{DIM}example{DIM:#} {example}")?;
    }
    Ok(Exit::Done)
}

pub(crate) async fn call(options: CallOptions, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let shelf = Shelf::of(&PlaceOptions::anywhere(), terminal)?;
    let (set, tool) = shelf.named(&options.name)?;
    let name = tool.name().clone();
    // What it works in and with is made for its set alone. Without a model: the agent calls it and is never asked to speak.
    let tools = Toolbox::open(&options.places, terminal)?.of(set)?;
    let agent = Agent::builder().name("toolwright").tools(tools).build_without_model()?;
    let arguments = if options.arguments == "-" { input("the arguments")? } else { options.arguments };
    let mut session = Session {
        thread: agent.new_thread(),
        agent,
        stays: None,
        show: if options.json { Show::Events } else { Show::Nothing },
        lines: Lines::default(),
        interrupts: Interrupts::listen(),
        answers: Answers::new(options.yes, options.json, terminal),
        terminal,
    };
    let stream = session.thread.invoke_stream(name.as_str(), &arguments);
    let reply = session.follow(stream).await?;
    match &reply.outcome {
        Some(Outcome::Done { output }) => {
            if !options.json {
                writeln!(terminal.out(), "{:#}", output.shown())?;
            }
            Ok(Exit::Done)
        }
        Some(Outcome::Failed { failure }) => Err(Problem::of_failure(failure)),
        None => crate::follow::ended(&reply),
    }
}

pub(crate) fn lint(options: &LintOptions, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let definitions = match &options.tools {
        None => {
            let shelf = Shelf::of(&PlaceOptions::anywhere(), terminal)?;
            shelf.tools().into_iter().map(|(_, tool)| Definition::of(tool.spec())).collect()
        }
        Some(path) => {
            let name = path.display();
            let text = if path.as_os_str() == "-" {
                input("the list of tools")?
            } else {
                std::fs::read_to_string(path).map_err(|error| Problem::usage(format!("{name} can't be read: {error}")))?
            };
            let value: Value = serde_json::from_str(text.trim_start_matches('\u{feff}'))
                .map_err(|error| Problem::usage(format!("{name} is not JSON: {error}")))?;
            Definition::read(&value).map_err(|problem| {
                Problem::usage(format!("{name} is no list of tools: {problem}"))
                    .hint("see `toolwright tools lint --help` for the forms it may have")
            })?
        }
    };
    let report = check(&definitions);
    if options.json.json {
        let text =
            serde_json::to_string(&report).map_err(|error| Problem::failed("TOOLWRIGHT_AGENT_EXECUTION_FAILED", error.to_string()))?;
        writeln!(terminal.out(), "{text}")?;
    } else {
        write_report(&report, terminal)?;
    }
    Ok(if report.errors > 0 { Exit::Failed } else { Exit::Done })
}

fn write_report(report: &Report, terminal: &mut Terminal) -> Result<(), Problem> {
    let out = terminal.out();
    for tool in &report.tools {
        writeln!(out, "{BOLD}{}{BOLD:#} {DIM}about {} tokens{DIM:#}", plain(&tool.name), tool.tokens)?;
        for finding in &tool.findings {
            let (style, word) = match finding.level {
                Level::Error => (BAD, "error"),
                Level::Warning => (WARN, "warning"),
            };
            let place = if finding.place.is_empty() { String::new() } else { format!(" {DIM}at {}{DIM:#}", plain(&finding.place)) };
            writeln!(out, "  {style}{word:<8}{style:#} {}{place}", plain(&finding.message))?;
        }
        if tool.findings.is_empty() {
            writeln!(out, "  {GOOD}nothing found{GOOD:#}")?;
        }
    }
    let widest = report.tools.iter().map(|tool| tool.name.chars().count()).max().unwrap_or_default();
    for provider in crate::lint::providers::PROVIDERS.iter().map(|provider| provider.name) {
        let rows: Vec<_> = report
            .tools
            .iter()
            .flat_map(|tool| tool.losses.iter().filter(|loss| loss.provider == provider).map(move |loss| (tool.name.as_str(), loss)))
            .collect();
        let what = rows.iter().map(|(_, loss)| loss.what.chars().count()).max().unwrap_or_default();
        if rows.is_empty() {
            writeln!(out, "\n{BOLD}{provider}{BOLD:#} loses nothing")?;
            continue;
        }
        writeln!(out, "\n{BOLD}{provider}{BOLD:#} loses")?;
        for (name, loss) in rows {
            let effect = match loss.effect {
                Effect::Refused => "refused as it stands",
                Effect::Ignored => "taken, and ignored",
            };
            let first = loss.places.first().map(String::as_str).unwrap_or_default();
            let more = if loss.places.len() > 1 { format!(" and {} more", loss.places.len() - 1) } else { String::new() };
            writeln!(out, "  {:<widest$}  {:<what$}  {effect}  {DIM}{}{more}{DIM:#}", plain(name), plain(&loss.what), plain(first))?;
        }
    }
    let count = |number: usize, word: &str| format!("{number} {word}{}", if number == 1 { "" } else { "s" });
    writeln!(
        out,
        "\n{}, {}, {}; about {} tokens in each request (an estimate: {CHARACTERS_A_TOKEN} characters a token)",
        count(report.tools.len(), "tool"),
        count(report.errors, "error"),
        count(report.warnings, "warning"),
        report.tokens
    )?;
    Ok(())
}
