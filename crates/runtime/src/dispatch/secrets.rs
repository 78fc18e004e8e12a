//! Secrets at a call: arguments never carry one, results lose them before anything sees them, and a body has its variables.

use std::sync::Arc;

use toolwright_core::args::Arguments;
use toolwright_core::redact::Redactor;
use toolwright_core::{Outcome, ToolFailure, ToolFailureKind, ToolSpec};
use toolwright_tool::{EnvSource, ToolError};

/// The refusal of a call whose arguments held a secret (invariant 7).
pub(super) fn refusal(spec: &ToolSpec, name: Option<&str>) -> ToolFailure {
    let which = name.map_or_else(|| "a secret".to_owned(), |name| format!("the secret {name}"));
    let reason = format!("its arguments hold {which}; arguments never carry secrets, a tool gets them from its environment");
    ToolFailure::denied(spec.name.as_str(), Some(reason))
}

/// The name of a secret that the arguments hold, and what they are without it.
pub(super) fn held(redactor: Option<&Arc<Redactor>>, arguments: &Arguments) -> Option<(Arc<str>, Arguments)> {
    let redactor = redactor?;
    let name = redactor.find(arguments.text()).or_else(|| redactor.find_in_value(arguments.value()))?;
    let mut clean = arguments.value().clone();
    redactor.redact_value(&mut clean);
    let clean = Arguments::unchecked(&clean.to_string()).ok().filter(|clean| redactor.find(clean.text()).is_none());
    Some((Arc::clone(name), clean.unwrap_or_else(Arguments::empty)))
}

/// Takes secrets out of a result.
pub(super) fn clean(redactor: Option<&Arc<Redactor>>, tool: &str, outcome: &mut Outcome) {
    let Some(redactor) = redactor else { return };
    let cleaned = match &*outcome {
        Outcome::Done { output } => redactor.redacted_texts(&**output).map(|clean| clean.map(Outcome::done)),
        Outcome::Failed { failure } => redactor.redacted_texts(&**failure).map(|clean| clean.map(Outcome::failed)),
    };
    match cleaned {
        Ok(None) => {}
        Ok(Some(clean)) => *outcome = clean,
        Err(error) => {
            let message = format!("the result of `{tool}` was dropped: {error}");
            *outcome = Outcome::failed(ToolFailure::new(ToolFailureKind::Execution, tool, &message));
        }
    }
}

/// Whether a body has what it can't do without; a failure that names all that is missing (standard-agents TOL-9). Blank is
/// missing (standard-agents ENV-3).
pub(super) fn has_environment(spec: &ToolSpec, env: &dyn EnvSource) -> Result<(), ToolError> {
    let there = |name: &str| env.get(name).is_some_and(|value| !value.trim().is_empty());
    let missing: Vec<&str> = spec.env.iter().filter(|need| need.required && !there(&need.name)).map(|need| need.name.as_str()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let problems: Vec<String> = missing.iter().filter_map(|name| env.problem(name)).collect();
    let values = if missing.len() == 1 { "the environment value" } else { "the environment values" };
    let mut message = format!("`{}` needs {values} {}, which nobody has set, so it did not run", spec.name, missing.join(", "));
    if !problems.is_empty() {
        message = format!("`{}` needs {values} {}, so it did not run: {}", spec.name, missing.join(", "), problems.join("; "));
    }
    Err(ToolError::new(message).named("EnvMissingError"))
}
