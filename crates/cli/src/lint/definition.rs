//! A tool as a provider gets it, from wherever it was written down.

use serde_json::{Value, json};
use toolwright::ToolSpec;

/// A tool's name, description and input schema.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// What a model calls it.
    pub name: String,
    /// What a model reads.
    pub description: Option<String>,
    /// The schema of its arguments.
    pub parameters: Value,
}

impl Definition {
    /// The definition of one of our tools.
    pub fn of(spec: &ToolSpec) -> Self {
        let description = Some(spec.description.clone()).filter(|text| !text.is_empty());
        Self { name: spec.name.to_string(), description, parameters: spec.input.as_value().clone() }
    }

    /// Reads a list of definitions, or an object that holds one, in any of the forms that providers and MCP servers use. The error is
    /// one sentence.
    pub fn read(value: &Value) -> Result<Vec<Self>, String> {
        let list = match value {
            Value::Array(list) => list,
            Value::Object(map) => {
                match ["tools", "functions", "functionDeclarations", "function_declarations"].iter().find_map(|key| map.get(*key)) {
                    Some(Value::Array(list)) => list,
                    _ => return Err("it holds neither a list of tools nor an object with a list under `tools`".to_owned()),
                }
            }
            _ => return Err("it holds neither a list of tools nor an object with a list under `tools`".to_owned()),
        };
        let mut tools = Vec::with_capacity(list.len());
        for (index, entry) in list.iter().enumerate() {
            // Gemini's lists hold lists.
            if ["functionDeclarations", "function_declarations"].iter().any(|key| entry.get(*key).is_some()) {
                tools.extend(Self::read(entry)?);
                continue;
            }
            tools.push(Self::read_one(entry).map_err(|problem| format!("tool {index} {problem}"))?);
        }
        Ok(tools)
    }

    fn read_one(entry: &Value) -> Result<Self, String> {
        if !entry.is_object() {
            return Err("is not an object".to_owned());
        }
        let tool = entry.get("function").filter(|function| function.is_object()).unwrap_or(entry);
        let Some(name) = tool.get("name").and_then(Value::as_str) else {
            return Err("has no text `name`".to_owned());
        };
        let description = tool.get("description").and_then(Value::as_str).map(str::to_owned);
        let schema = ["parameters", "inputSchema", "input_schema", "parametersJsonSchema"].iter().find_map(|key| tool.get(*key));
        let parameters = schema.cloned().unwrap_or_else(|| json!({ "type": "object", "properties": {} }));
        Ok(Self { name: name.to_owned(), description, parameters })
    }

    /// As it goes to a provider.
    pub fn to_wire(&self) -> Value {
        json!({
            "type": "function",
            "function": { "name": self.name, "description": self.description, "parameters": self.parameters },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_common_form_is_read() {
        let schema = json!({ "type": "object", "properties": { "a": { "type": "string" } } });
        let forms = [
            json!([{ "name": "t", "description": "d", "parameters": schema }]),
            json!([{ "name": "t", "description": "d", "inputSchema": schema }]),
            json!({ "tools": [{ "name": "t", "description": "d", "input_schema": schema }] }),
            json!([{ "type": "function", "function": { "name": "t", "description": "d", "parameters": schema } }]),
            json!([{ "type": "function", "name": "t", "description": "d", "parameters": schema }]),
            json!([{ "functionDeclarations": [{ "name": "t", "description": "d", "parameters": schema }] }]),
        ];
        for form in forms {
            let read = Definition::read(&form).unwrap();
            assert_eq!(read, [Definition { name: "t".into(), description: Some("d".into()), parameters: schema.clone() }], "{form}");
        }
    }

    #[test]
    fn what_is_no_list_of_tools_is_told() {
        let error = |value: &Value| Definition::read(value).unwrap_err();
        assert_eq!(error(&json!([{ "name": "t" }, {}])), "tool 1 has no text `name`");
        assert_eq!(error(&json!(["t"])), "tool 0 is not an object");
        assert!(error(&json!({ "tool": [] })).contains("neither a list"));
    }
}
