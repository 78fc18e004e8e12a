//! `#[tool]`: what a function becomes, and what its body does.

use std::time::Duration;

use futures_util::StreamExt;
use serde_json::{Value, json};
use toolwright_tool::core::args::{Arguments, Repair};
use toolwright_tool::core::{OnInterrupt, ToolOrigin};
use toolwright_tool::prelude::*;
use toolwright_tool::{Running, StateMap};

/// Runs a tool's body as the runtime would after its gate, without the gate.
async fn run_in(tool: &Tool, args: Value, state: StateMap) -> Result<Value, ToolError> {
    let args = Arguments::from_value(args, &tool.spec().input, Repair::On).expect("the arguments hold for the schema");
    tool.body().check(args.value()).expect("the arguments decode");
    let mut parts = ToolContext::detached(args).parts().clone();
    parts.state = vec![state];
    match tool.body().begin(ToolContext::new(parts)) {
        Running::Future(future) => future.await.map(|output| output.shown()),
        Running::Blocking(begin) => begin.await?().map(|output| output.shown()),
        Running::Stream(mut stream) => {
            let mut items = Vec::new();
            while let Some(item) = stream.next().await {
                items.push(item?);
            }
            Ok(Value::Array(items))
        }
    }
}

async fn run(tool: &Tool, args: Value) -> Result<Value, ToolError> {
    run_in(tool, args, StateMap::default()).await
}

fn issues(tool: &Tool, args: Value) -> Vec<String> {
    match Arguments::from_value(args, &tool.spec().input, Repair::Off) {
        Ok(_) => Vec::new(),
        Err(issues) => issues.into_iter().map(|issue| format!("{}: {}", issue.path, issue.message)).collect(),
    }
}

#[args]
#[derive(PartialEq, Copy)]
enum Units {
    Celsius,
    DegreesFahrenheit,
}

#[derive(Clone)]
struct Client(&'static str);

/// Current weather
/// for a city.
///
/// In the units that are asked for.
#[tool(read_only)]
async fn weather(
    /// City name, such as
    /// "Oslo".
    location: String,
    /// Temperature units.
    #[arg(default = Units::Celsius)]
    units: Units,
    #[arg(default = 3, range(min = 1, max = 7))] days: u8,
    State(client): State<Client>,
    Ctx(cx): Ctx,
) -> Result<Value, ToolError> {
    Ok(json!({ "from": client.0, "location": location, "units": units, "days": days, "call": cx.call_id() }))
}

#[tokio::test]
async fn first() {
    let tool = &tools![weather][0];
    println!("{}", serde_json::to_string_pretty(tool.spec().input.as_value()).unwrap());
    let mut state = StateMap::default();
    state.insert(Client("met")).unwrap();
    println!("{}", run_in(tool, json!({"location": "Oslo"}), state).await.unwrap());
    println!("{:?} {:?}", tool.spec().origin, tool.spec().description);
    println!("{:?}", issues(tool, json!({"location": 3, "day": 4})));
    let _ = (Duration::ZERO, OnInterrupt::Ask, ToolOrigin::Value);
}
