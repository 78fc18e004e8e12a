//! Calling a tool as dispatch does, with an environment.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use toolwright_tool::core::args::{Arguments, Repair};
use toolwright_tool::{ContextParts, EnvSource, Running, Tool, ToolContext, ToolError, ToolFailureKind};

/// A token that must turn up in nothing but a request's header.
pub(crate) const TOKEN: &str = "tok-0123456789abcdef";

struct Variables(BTreeMap<&'static str, &'static str>);

impl EnvSource for Variables {
    fn get(&self, name: &str) -> Option<String> {
        self.0.get(name).map(|value| (*value).to_owned())
    }
}

#[cfg(feature = "_http")]
pub(crate) fn tool(tools: &[Tool], name: &str) -> Tool {
    tools.iter().find(|tool| tool.name().as_str() == name).unwrap_or_else(|| panic!("no tool {name}")).clone()
}

/// The parts of a call's context with these variables.
pub(crate) fn parts(tool: &Tool, args: Value, env: &[(&'static str, &'static str)]) -> ContextParts {
    let args = Arguments::from_value(args, &tool.spec().input, Repair::On).unwrap();
    let mut parts = ToolContext::detached(args).parts().clone();
    parts.env = Arc::new(Variables(env.iter().copied().collect()));
    parts.env_names = tool.spec().env.iter().map(|need| need.name.clone()).collect();
    parts
}

pub(crate) async fn begin(tool: &Tool, parts: ContextParts) -> Result<Value, ToolError> {
    let Running::Future(body) = tool.body().begin(ToolContext::new(parts)) else { panic!("an async tool") };
    let result = body.await.map(|output| output.shown());
    let shown = format!("{result:?}");
    assert!(!shown.contains(TOKEN), "the token is shown: {shown}");
    if let Err(error) = &result {
        // The message is the whole of what a model reads, in one sentence.
        let failure = error.to_failure(tool.name().as_str());
        assert!(!failure.message.contains('\n'), "{}", failure.message);
        if failure.kind == ToolFailureKind::Execution {
            assert_eq!(failure.message, error.message());
        }
    }
    result
}

/// Calls a tool with the token in this variable.
#[cfg(feature = "_http")]
pub(crate) async fn call(tools: &[Tool], name: &str, args: Value, variable: &'static str) -> Result<Value, ToolError> {
    let tool = tool(tools, name);
    let parts = parts(&tool, args, &[(variable, TOKEN)]);
    begin(&tool, parts).await
}
