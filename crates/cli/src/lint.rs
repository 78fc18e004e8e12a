//! What is doubtful about tools, before a model or a provider stumbles over it. Pure: definitions in, a report out.
//!
//! ```
//! use serde_json::json;
//! use toolwright_cli::lint::{Definition, lint};
//!
//! let tools = Definition::read(&json!([{ "name": "get weather", "parameters": { "type": "object" } }])).unwrap();
//! let report = lint(&tools);
//! assert_eq!(report.errors, 2); // the name has a space, and nothing says what the tool does
//! ```

mod alike;
mod definition;
pub mod providers;
mod walk;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use toolwright::core::schema::Schema;

pub use alike::ALIKE;
pub use definition::Definition;
pub use providers::{Effect, Loss};

/// Characters of a definition that make a token, roughly: the estimate's one figure.
pub const CHARACTERS_A_TOKEN: usize = 4;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// A provider refuses the tool, or a model can't choose it.
    Error,
    /// The tool works, and models will use it worse than they could.
    Warning,
}

/// One thing that is doubtful about a tool.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// How bad.
    pub level: Level,
    /// Which check found it: `name`, `description`, `parameter`, `schema` or `alike`.
    pub check: &'static str,
    /// Where in the schema, as a JSON pointer; empty for the tool as a whole.
    pub place: String,
    /// One sentence.
    pub message: String,
}

/// What was found about one tool.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ToolReport {
    /// The tool.
    pub name: String,
    /// What its definition costs in each request: an estimate.
    pub tokens: usize,
    /// What is doubtful.
    pub findings: Vec<Finding>,
    /// What providers lose of its schema.
    pub losses: Vec<Loss>,
}

/// What was found about all of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Findings of level error.
    pub errors: usize,
    /// Findings of level warning.
    pub warnings: usize,
    /// What all definitions together cost in each request: an estimate.
    pub tokens: usize,
    /// Each tool, in the order given.
    pub tools: Vec<ToolReport>,
}

/// Checks tools, each by itself and against the others.
pub fn lint(tools: &[Definition]) -> Report {
    let mut reports: Vec<ToolReport> = tools.iter().map(one).collect();
    same_names(tools, &mut reports);
    for alike in alike::pairs(tools) {
        if let (Some(first), Some(second)) = (tools.get(alike.first), reports.get_mut(alike.second)) {
            let message = format!("it is much like `{}`: they share {} % of their words; say when to use which", first.name, alike.percent);
            second.findings.push(Finding { level: Level::Warning, check: "alike", place: String::new(), message });
        }
    }
    let count = |level| reports.iter().flat_map(|report| &report.findings).filter(|finding| finding.level == level).count();
    let (errors, warnings) = (count(Level::Error), count(Level::Warning));
    Report { errors, warnings, tokens: reports.iter().map(|report| report.tokens).sum(), tools: reports }
}

fn one(tool: &Definition) -> ToolReport {
    let mut findings = Vec::new();
    let mut found = |level, check, place: &str, message: String| findings.push(Finding { level, check, place: place.to_owned(), message });
    for (providers, problem) in providers::name_problems(&tool.name) {
        found(Level::Error, "name", "", format!("the name is refused by {}: it {problem}", providers.join(", ")));
    }
    if tool.description.as_deref().is_none_or(|text| text.trim().is_empty()) {
        found(Level::Error, "description", "", "it has no description, and models choose tools by it".to_owned());
    }
    if let Err(error) = Schema::new(tool.parameters.clone()) {
        found(Level::Error, "schema", error.pointer(), format!("the schema can't be used: {}; {}", error.problem(), error.fix()));
    }
    if let Some(keyword) = ["anyOf", "oneOf", "allOf"].into_iter().find(|keyword| tool.parameters.get(keyword).is_some()) {
        let message = format!("openai (strict) and anthropic refuse `{keyword}` at the root; move it into a property");
        found(Level::Error, "schema", &format!("/{keyword}"), message);
    }
    for property in walk::properties(&tool.parameters) {
        if !property.is_described {
            let message = format!("the parameter `{}` has no description", property.name);
            found(Level::Warning, "parameter", &property.pointer, message);
        }
        for (providers, problem) in providers::property_problems(&property.name) {
            let message = format!("the parameter name {:?} is refused by {}: it {problem}", property.name, providers.join(", "));
            found(Level::Error, "parameter", &property.pointer, message);
        }
    }
    ToolReport { name: tool.name.clone(), tokens: tokens(tool), findings, losses: providers::losses(&tool.parameters) }
}

fn same_names(tools: &[Definition], reports: &mut [ToolReport]) {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for (tool, report) in tools.iter().zip(reports) {
        let count = seen.entry(&tool.name).or_default();
        *count += 1;
        if *count > 1 {
            let message = "another tool has the same name; providers refuse the list".to_owned();
            report.findings.push(Finding { level: Level::Error, check: "name", place: String::new(), message });
        }
    }
}

/// What a definition costs in each request: its compact JSON at [`CHARACTERS_A_TOKEN`]. An estimate; tokenizers differ.
pub fn tokens(tool: &Definition) -> usize {
    tool.to_wire().to_string().chars().count().div_ceil(CHARACTERS_A_TOKEN)
}

/// A step of a JSON pointer.
fn step(pointer: &str, name: &str) -> String {
    format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// The part of a schema that a reference within it leads to.
fn resolve<'s>(root: &'s Value, schema: &'s Value) -> &'s Value {
    let target = schema.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix('#'));
    target.and_then(|pointer| root.pointer(pointer)).unwrap_or(schema)
}
