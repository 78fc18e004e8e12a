//! Which tools an agent has: exactly one per name, in the order they were registered.

use std::collections::HashMap;
use std::sync::Arc;

use toolwright_core::{OnInterrupt, ToolName, ToolOrigin, ToolSpec};
use toolwright_tool::{DefinitionError, Tool};

use crate::driver::ToolFacts;

/// Tools by name, in registration order (invariant 11). Cheap to clone; a clone is a snapshot.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    tools: Arc<Vec<Tool>>,
    by_name: Arc<HashMap<ToolName, usize>>,
}

/// Why a tool could not be registered. Code `TOOLWRIGHT_CONFIG_INVALID`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// Two tools of one name.
    #[error(
        "two tools are named `{name}`: {first} and {second}; rename one with `#[tool(name = \"...\")]` or `Tool::renamed`, or give the server a prefix"
    )]
    Duplicate {
        /// The name.
        name: ToolName,
        /// The one that was there.
        first: ToolOrigin,
        /// The one that came.
        second: ToolOrigin,
    },
    /// A tool whose definition is wrong.
    #[error(transparent)]
    Definition(#[from] DefinitionError),
}

impl Registry {
    /// Without tools.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool. Clones of the registry don't see it.
    pub fn register(&mut self, tool: Tool) -> Result<(), RegistryError> {
        if let Some(error) = tool.definition_error() {
            return Err(error.clone().into());
        }
        if let Some(there) = self.get(tool.name().as_str()) {
            let (first, second) = (there.spec().origin.clone(), tool.spec().origin.clone());
            return Err(RegistryError::Duplicate { name: tool.name().clone(), first, second });
        }
        Arc::make_mut(&mut self.by_name).insert(tool.name().clone(), self.tools.len());
        Arc::make_mut(&mut self.tools).push(tool);
        Ok(())
    }

    /// Adds tools in order.
    pub fn register_all(&mut self, tools: impl IntoIterator<Item = Tool>) -> Result<(), RegistryError> {
        tools.into_iter().try_for_each(|tool| self.register(tool))
    }

    /// The tool of a name.
    pub fn get(&self, name: &str) -> Option<&Tool> {
        self.by_name.get(name).and_then(|index| self.tools.get(*index))
    }

    /// The tool that a model meant: the one of that name, or, where some models put a prefix before it
    /// (`default_api:view`), the only one of the part after the last colon (field reports U-167).
    pub fn resolve(&self, written: &str) -> Option<&Tool> {
        let trimmed = written.trim();
        self.get(trimmed).or_else(|| self.get(trimmed.rsplit_once(':')?.1))
    }

    /// The tools in order.
    pub fn iter(&self) -> impl Iterator<Item = &Tool> {
        self.tools.iter()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.tools.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// The specs in order, for requests.
    pub fn specs(&self) -> Arc<[Arc<ToolSpec>]> {
        self.iter().map(|tool| Arc::clone(tool.spec())).collect()
    }

    /// Names like `written`, closest first: what to say when there is no such tool.
    pub fn closest(&self, written: &str, limit: usize) -> Vec<&ToolName> {
        let mut names: Vec<(usize, &ToolName)> = self.iter().map(|tool| (distance(written, tool.name().as_str()), tool.name())).collect();
        names.sort_by_key(|(distance, _)| *distance);
        names.into_iter().take(limit).map(|(_, name)| name).collect()
    }
}

/// Edit distance, ignoring case; bounded by cutting what no name can match anyway.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, l) in left.to_lowercase().chars().take(128).enumerate() {
        let mut diagonal = i;
        let mut before = i + 1;
        for (cell, r) in row.iter_mut().skip(1).zip(&right) {
            let above = *cell;
            let value = (diagonal + usize::from(l != *r)).min(above + 1).min(before + 1);
            diagonal = above;
            before = value;
            *cell = value;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

impl ToolFacts for Registry {
    fn resolve(&self, written: &str) -> Option<Arc<str>> {
        Self::resolve(self, written).map(|tool| tool.name().to_shared())
    }

    fn is_sequential(&self, tool: &str) -> bool {
        self.get(tool).is_some_and(|tool| tool.spec().sequential)
    }

    fn after_interrupt(&self, tool: &str) -> OnInterrupt {
        self.get(tool).map_or(OnInterrupt::Fail, |tool| tool.spec().after_interrupt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolwright_tool::ToolError;

    fn named(name: &str) -> Tool {
        Tool::new(name, "A tool.").run_json(|args, _cx| async move { Ok::<_, ToolError>(args) }).unwrap()
    }

    // rule: sdk-tools 2.2/2
    // rule: sdk-runtime EXE-2
    // case: rust-reports B-23
    #[test]
    fn a_duplicate_name_is_refused_with_both_origins() {
        let mut registry = Registry::new();
        let origin = ToolOrigin::Function { path: "demo::search".to_owned(), location: "src/lib.rs:12".to_owned() };
        registry.register(named("search").with_spec(|spec| spec.origin = origin)).unwrap();
        let mcp = named("search").with_spec(|spec| spec.origin = ToolOrigin::Mcp { server: "docs".to_owned() });
        let error = registry.register(mcp).unwrap_err().to_string();
        assert_eq!(
            error,
            "two tools are named `search`: function tool demo::search (src/lib.rs:12) and MCP tool of server `docs`; \
             rename one with `#[tool(name = \"...\")]` or `Tool::renamed`, or give the server a prefix"
        );
    }

    // rule: sdk-tools 2.2/9
    // case: rust-reports F-80
    #[test]
    fn a_clone_is_a_snapshot() {
        let mut registry = Registry::new();
        registry.register(named("a")).unwrap();
        let snapshot = registry.clone();
        registry.register(named("b")).unwrap();
        assert_eq!((snapshot.len(), registry.len()), (1, 2));
    }

    // case: field-reports 167
    #[test]
    fn a_prefix_is_dropped_only_where_the_rest_is_a_name() {
        let mut registry = Registry::new();
        registry.register_all([named("view"), named("edit")]).unwrap();
        for written in ["view", "creating:view", "default_api:view", "google:view", " view "] {
            assert_eq!(registry.resolve(written).map(|tool| tool.name().as_str()), Some("view"), "{written}");
        }
        assert!(registry.resolve("default_api:views").is_none());
        assert!(registry.resolve("viewer").is_none());
    }

    // rule: sdk-tools 2.2/3
    #[test]
    fn a_tool_may_be_registered_under_another_name() {
        let mut registry = Registry::new();
        registry.register_all([named("view"), named("view").renamed("look").unwrap()]).unwrap();
        assert!(registry.get("look").is_some());
    }

    #[test]
    fn closest_names_come_first() {
        let mut registry = Registry::new();
        registry.register_all([named("send_email"), named("get_weather"), named("get_date")]).unwrap();
        assert_eq!(registry.closest("get_dates", 2).iter().map(|name| name.as_str()).collect::<Vec<_>>(), ["get_date", "get_weather"]);
    }

    // case: rust-reports B-25
    #[test]
    fn order_is_that_of_registration() {
        let mut registry = Registry::new();
        let names: Vec<String> = (0..50).map(|n| format!("tool_{}", (n * 37) % 50)).collect();
        registry.register_all(names.iter().map(|name| named(name))).unwrap();
        assert_eq!(registry.specs().iter().map(|spec| spec.name.to_string()).collect::<Vec<_>>(), names);
    }
}
