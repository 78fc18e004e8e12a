//! A typed tool with shared state, and an agent that uses it.
#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::StreamExt;
use toolwright::models::scripted::{Reply, ScriptedModel};
use toolwright::prelude::*;

/// Temperature units.
#[args]
#[derive(PartialEq)]
enum Units {
    Celsius,
    Fahrenheit,
}

#[args]
struct Weather {
    location: String,
    degrees: f64,
    units: Units,
}

/// What the tool asks; a real one would hold an HTTP client.
#[derive(Clone)]
struct Stations(Arc<HashMap<&'static str, f64>>);

/// Current weather for a city.
#[tool(read_only)]
async fn weather(
    /// City name, such as "Oslo".
    location: String,
    /// Temperature units.
    #[arg(default = Units::Celsius)]
    units: Units,
    State(stations): State<Stations>,
) -> Result<Weather, ToolError> {
    let celsius = *stations.0.get(location.as_str()).ok_or_else(|| ToolError::new(format!("there is no station in {location}")))?;
    let degrees = if units == Units::Fahrenheit { celsius * 1.8 + 32.0 } else { celsius };
    Ok(Weather { location, degrees, units })
}

#[tokio::main]
async fn main() -> Result<(), AgentError> {
    let model = ScriptedModel::new()
        .reply(Reply::call("weather", toolwright::json!({ "location": "Oslo" })))
        .reply(Reply::text("It is 4 degrees in Oslo; take a coat."));
    let agent = Agent::builder()
        .model(model)
        .instructions("You help people plan their day.")
        .tools(tools![weather])
        .state(Stations(Arc::new(HashMap::from([("Oslo", 4.0)]))))
        .build()?;

    let mut run = agent.stream("Do I need a coat in Oslo?");
    while let Some(event) = run.next().await {
        match event.kind {
            EventKind::ToolStart { tool_name, args, .. } => println!("-> {tool_name} {args}"),
            EventKind::ToolDone { result, .. } => println!("<- {result}"),
            EventKind::TextDone { text } => println!("{text}"),
            _ => {}
        }
    }
    let reply = run.await?;
    println!("({} after {} steps)", reply.finish_reason, reply.steps);
    Ok(())
}
