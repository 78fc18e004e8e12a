//! `#[tool]`: what a function becomes, and what its body does.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "clippy knows no test helpers")]

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::time::Duration;

use futures_core::Stream;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use toolwright_tool::core::args::{Arguments, Repair};
use toolwright_tool::core::{OnInterrupt, ToolOrigin};
use toolwright_tool::macro_support::EnvNeed;
use toolwright_tool::prelude::*;
use toolwright_tool::{ApprovalOutcome, DefinitionError, Need, NeedsApproval, Running, StateMap};

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

fn schema(tool: &Tool) -> &Value {
    tool.spec().input.as_value()
}

#[args]
#[derive(Copy, PartialEq)]
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

// rule: sdk-tools 1.2/4
#[test]
fn arguments_are_properties_in_their_order() {
    let tool = &tools![weather][0];
    let expected = json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "location": { "type": "string", "description": "City name, such as \"Oslo\"." },
            "units": {
                "type": "string", "enum": ["celsius", "degrees_fahrenheit"], "description": "Temperature units.", "default": "celsius",
            },
            "days": { "type": "integer", "format": "uint8", "minimum": 1, "maximum": 7, "default": 3 },
        },
        "required": ["location"],
    });
    assert_eq!(schema(tool), &expected);
    let names: Vec<_> = schema(tool)["properties"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["location", "units", "days"]);
    assert_eq!(tool.spec().description, "Current weather for a city.\n\nIn the units that are asked for.");
}

// rule: sdk-tools 1.2/3
#[tokio::test]
async fn a_body_gets_decoded_values_and_defaults() {
    let mut state = StateMap::default();
    state.insert(Client("met")).unwrap();
    let out = run_in(&tools![weather][0], json!({ "location": "Oslo" }), state).await.unwrap();
    assert_eq!(out, json!({ "from": "met", "location": "Oslo", "units": "celsius", "days": 3, "call": "call_detached" }));
}

#[test]
fn a_misspelt_argument_is_an_issue_with_the_closest_name() {
    let found = issues(&tools![weather][0], json!({ "location": "Oslo", "unit": "celsius", "days": 8 }));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().any(|issue| issue.starts_with("unit: ") && issue.contains("did you mean units?")), "{found:?}");
    assert!(found.iter().any(|issue| issue.starts_with("days: ")), "{found:?}");
}

#[tokio::test]
async fn what_is_missing_is_named_before_and_during_the_call() {
    let tool = &tools![weather][0];
    let needs = tool.requirements().needs();
    assert!(matches!(needs, [Need::State { type_name, .. }] if type_name.ends_with("Client")), "{needs:?}");
    let error = run(tool, json!({ "location": "Oslo" })).await.unwrap_err();
    assert_eq!(error.name(), "StateMissingError");
}

#[tokio::test]
async fn the_function_stays_as_it_is() {
    let cx = ToolContext::detached(Arguments::from_value(json!({}), &tools![nothing][0].spec().input, Repair::On).unwrap());
    let weather = weather("Bergen".to_owned(), Units::DegreesFahrenheit, 1, State(Client("test")), Ctx(cx)).await.unwrap();
    assert_eq!(weather["units"], "degrees_fahrenheit");
    nothing();
}

#[test]
fn the_origin_is_the_function() {
    let tools = tools![weather];
    let ToolOrigin::Function { path, location } = &tools[0].spec().origin else { panic!("not a function") };
    assert_eq!(path, "tool_macro::weather");
    let (file, line) = location.rsplit_once(':').unwrap();
    assert!(file.ends_with("tool_macro.rs"));
    assert!(line.parse::<u32>().unwrap() > 1);
}

mod inner {
    use toolwright_tool::prelude::*;

    #[tool]
    pub(crate) fn add(a: i64, b: i64) -> i64 {
        a + b
    }
}

#[test]
fn tools_are_listed_by_path() {
    let none: Vec<Tool> = tools![];
    assert!(none.is_empty());
    let names: Vec<_> = tools![nothing, inner::add,].iter().map(|tool| tool.name().to_string()).collect();
    assert_eq!(names, ["nothing", "add"]);
    assert_eq!(<inner::add as ToolDef>::tool().name().as_str(), "add");
}

#[tokio::test]
async fn a_tool_may_stand_inside_a_function() {
    /// Doubles.
    #[tool]
    fn double(n: i32) -> i32 {
        n * 2
    }
    assert_eq!(run(&tools![double][0], json!({ "n": 4 })).await.unwrap(), json!(8));
}

// --- options

#[tool]
fn nothing() {}

// rule: sdk-tools 1.2/7
// rule: sdk-tools 1.2/8
#[test]
fn without_options_nothing_is_granted() {
    #[tool]
    fn write_file(path: String) {
        drop(path);
    }
    let spec = tools![write_file][0].spec().clone();
    assert!(!spec.edits_files);
    assert!(!spec.annotations.read_only() && spec.annotations.read_only_hint.is_none());
    assert_eq!(spec.description, "");
    assert!(spec.repair && !spec.sequential && !spec.defer_loading && !spec.requires_sandbox);
    assert!(matches!(tools![write_file][0].needs_approval(), NeedsApproval::Never));
    assert!(tools![write_file][0].definition_error().is_none());
}

const TEXT: &str = "From a constant.";

/// Not this.
#[tool(
    name = "publish-page",
    display_name = "Publish a page",
    description = TEXT,
    read_only = false,
    destructive,
    idempotent = false,
    open_world,
    needs_approval,
    on_interrupt = fail,
    defer_loading,
    edits_files,
    requires_sandbox,
    timeout = "1m30s",
    no_repair,
    sequential,
    result_limit = 500,
    max_calls = 3,
    max_retries = 1,
    env(REGION, TOKEN: secret "reads pages", LANG: optional, NOTE: secret optional scoped),
    examples = [{ "page": "a", "draft": true }, r#"{"page":"b"}"#],
    provider_options(openai = { "strict": true }, "other-one" = "[1]"),
    crate = toolwright_tool,
)]
fn publish(page: String, draft: Option<bool>) {
    drop((page, draft));
}

// rule: sdk-tools 1.2/8
#[test]
fn every_option_is_in_the_spec() {
    let tool = &tools![publish][0];
    let spec = tool.spec();
    assert_eq!((spec.name.as_str(), spec.label(), spec.description.as_str()), ("publish-page", "Publish a page", "From a constant."));
    let hints = spec.annotations;
    assert_eq!(
        (hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint, hints.open_world_hint),
        (Some(false), Some(true), Some(false), Some(true))
    );
    assert!(matches!(tool.needs_approval(), NeedsApproval::Always));
    assert_eq!(spec.on_interrupt, Some(OnInterrupt::Fail));
    assert!(spec.defer_loading && spec.edits_files && spec.requires_sandbox && spec.sequential && !spec.repair);
    assert!(tool.sandboxed_body().is_none());
    assert_eq!(spec.timeout, Some(Duration::from_secs(90)));
    assert_eq!((spec.result_limit, spec.max_calls, spec.max_retries), (Some(500), Some(3), 1));
    let env = [
        EnvNeed::text("REGION"),
        EnvNeed::secret("TOKEN").described("reads pages"),
        EnvNeed::text("LANG").optional(),
        EnvNeed::secret("NOTE").optional().scoped(),
    ];
    assert_eq!(spec.env, env);
    assert_eq!(spec.examples, [json!({ "page": "a", "draft": true }), json!({ "page": "b" })]);
    assert_eq!(json!(spec.provider_options), json!({ "openai": { "strict": true }, "other-one": [1] }));
    let needs: Vec<_> = tool.requirements().needs().to_vec();
    assert_eq!(needs, ["REGION", "TOKEN", "LANG", "NOTE"].map(|name| Need::Env { name: name.to_owned() }));
}

// rule: sdk-tools 1.2/1
#[test]
fn an_example_that_does_not_fit_breaks_the_definition() {
    #[tool(examples = [{ "count": "three" }])]
    fn order(count: u32) {
        let _ = count;
    }
    let tool = &tools![order][0];
    let error = tool.definition_error().unwrap();
    assert!(matches!(error, DefinitionError::Example { tool, index: 0, .. } if tool == "order"), "{error}");
    assert_eq!(error.code(), "TOOLWRIGHT_CONFIG_INVALID");
}

// rule: sdk-tools 1.3/3
#[test]
fn an_argument_type_that_is_no_object_breaks_the_definition() {
    #[tool]
    fn whole(Args(list): Args<Vec<String>>) {
        drop(list);
    }
    let error = tools![whole][0].definition_error().unwrap().to_string();
    assert!(error.starts_with("the input schema of the tool `whole` is not usable"), "{error}");
}

// --- arguments

#[args]
#[derive(PartialEq)]
struct Address {
    /// Street and
    /// number.
    street: String,
    #[arg(length(equal = 4))]
    zip: String,
    #[arg(default = "NO")]
    country: String,
    note: Option<String>,
}

#[tool]
fn send(
    r#type: String,
    #[arg(rename = "reply-to", email)] reply_to: Option<String>,
    #[arg(url)] link: Option<String>,
    #[arg(regex(r"^[A-Z]{2}\d+$"))] code: String,
    #[arg(length(min = 1, max = 2), inner(range(min = 0)))] counts: Vec<i32>,
    #[arg(default)] urgent: bool,
    #[arg(default = "plain")] format: String,
    #[arg(default = 2)] copies: Option<u8>,
    #[arg(description = "Where to.")] address: Option<Address>,
    #[serde(alias = "labels")]
    #[schemars(title = "Tags")]
    tags: Option<BTreeMap<String, String>>,
) -> Value {
    json!([r#type, reply_to, link, code, counts, urgent, format, copies, address, tags])
}

#[test]
fn constraints_are_in_the_schema() {
    let tool = &tools![send][0];
    let properties = &schema(tool)["properties"];
    assert_eq!(schema(tool)["required"], json!(["type", "code", "counts"]));
    assert_eq!(properties["type"], json!({ "type": "string" }));
    assert_eq!(properties["reply-to"], json!({ "type": "string", "format": "email" }));
    assert_eq!(properties["link"], json!({ "type": "string", "format": "uri" }));
    assert_eq!(properties["code"], json!({ "type": "string", "pattern": r"^[A-Z]{2}\d+$" }));
    assert_eq!((&properties["counts"]["minItems"], &properties["counts"]["maxItems"]), (&json!(1), &json!(2)));
    assert_eq!(properties["counts"]["items"]["minimum"], json!(0));
    assert_eq!(properties["urgent"], json!({ "type": "boolean", "default": false }));
    assert_eq!(properties["format"], json!({ "type": "string", "default": "plain" }));
    assert_eq!(properties["copies"]["default"], json!(2));
    assert_eq!(properties["copies"]["type"], json!("integer"));
    assert_eq!(properties["tags"]["title"], json!("Tags"));
    assert_eq!(
        properties["address"],
        json!({
            "type": "object",
            "additionalProperties": false,
            "description": "Where to.",
            "properties": {
                "street": { "type": "string", "description": "Street and number." },
                "zip": { "type": "string", "minLength": 4, "maxLength": 4 },
                "country": { "type": "string", "default": "NO" },
                "note": { "type": "string" },
            },
            "required": ["street", "zip"],
        })
    );
}

#[tokio::test]
async fn constraints_hold_before_the_body() {
    let tool = &tools![send][0];
    let found = issues(tool, json!({ "type": "a", "code": "x", "counts": [1, -2, 3], "copies": null }));
    for path in ["code: ", "counts", "copies: "] {
        assert!(found.iter().any(|issue| issue.starts_with(path)), "{path} in {found:?}");
    }
    let out = run(tool, json!({ "type": "a", "code": "AB12", "counts": [1], "address": { "street": "s", "zip": "0001" } })).await.unwrap();
    let address = json!({ "street": "s", "zip": "0001", "country": "NO" });
    assert_eq!(out, json!(["a", null, null, "AB12", [1], false, "plain", 2, address, null]));
}

#[test]
fn null_is_asked_for_only_where_it_is_written() {
    #[tool]
    #[allow(clippy::option_option, reason = "how an author asks for null")]
    fn set(value: Option<Option<u8>>) {
        let _ = value;
    }
    let tool = &tools![set][0];
    assert!(schema(tool).get("required").is_none());
    assert_eq!(issues(tool, json!({ "value": null })), [""; 0]);
}

#[test]
fn no_arguments_are_an_object_without_properties() {
    assert_eq!(schema(&tools![nothing][0]), &json!({ "type": "object", "properties": {}, "additionalProperties": false }));
    assert_eq!(issues(&tools![nothing][0], json!({ "a": 1 })).len(), 1);
}

/// A search.
#[args]
struct Search {
    query: String,
    #[arg(default = 10)]
    limit: u32,
}

#[tokio::test]
async fn one_type_may_be_the_whole_object() {
    #[tool]
    async fn find(Args(search): Args<Search>, CallId(id): CallId) -> String {
        format!("{} {} {id}", search.query, search.limit)
    }
    let tool = &tools![find][0];
    assert_eq!(schema(tool)["required"], json!(["query"]));
    assert_eq!(schema(tool).get("description"), None);
    assert_eq!(run(tool, json!({ "query": "q" })).await.unwrap(), json!("q 10 call_detached"));
}

#[args]
#[serde(tag = "kind")]
#[derive(PartialEq)]
enum Shape {
    /// A circle
    /// around a point.
    Circle { radius: f64 },
    WideSquare {
        #[arg(default = 1.0)]
        side: f64,
    },
}

#[args]
struct Wrapped<T>(T);

#[test]
fn args_take_enums_with_fields_and_generic_types() {
    let schema = toolwright_tool::schema_of::<Shape>();
    let variants = schema["oneOf"].as_array().unwrap();
    assert_eq!(variants[0]["description"], "A circle around a point.");
    assert_eq!(variants[0]["properties"]["kind"]["const"], "circle");
    assert_eq!(variants[1]["properties"]["side"]["default"], 1.0);
    let square: Shape = serde_json::from_value(json!({ "kind": "wide_square" })).unwrap();
    assert_eq!(square, Shape::WideSquare { side: 1.0 });
    assert_eq!(serde_json::to_value(Wrapped(vec![1].clone())).unwrap(), json!([1]));
    assert_eq!(toolwright_tool::schema_of::<Wrapped<u8>>()["type"], "integer");
}

// --- bodies and what they return

struct Tenant(String);

impl FromCall for Tenant {
    fn requires(requirements: &mut Requirements) {
        requirements.env("TENANT");
    }

    async fn from_call(cx: &ToolContext) -> Result<Self, ToolError> {
        Ok(Self(format!("tenant of {}", cx.call_id())))
    }
}

// rule: sdk-tools 1.2/4
#[tokio::test]
async fn a_plain_function_runs_on_the_blocking_pool() {
    #[tool]
    fn hash(text: String, Tenant(tenant): Tenant) -> Result<String, fmt::Error> {
        Ok(format!("{text} {tenant}"))
    }
    let tool = &tools![hash][0];
    assert_eq!(tool.requirements().needs(), [Need::Env { name: "TENANT".to_owned() }]);
    assert!(matches!(tool.body().begin(detached(tool, json!({ "text": "a" }))), Running::Blocking(_)));
    assert_eq!(run(tool, json!({ "text": "a" })).await.unwrap(), json!("a tenant of call_detached"));
}

fn detached(tool: &Tool, args: Value) -> ToolContext {
    ToolContext::detached(Arguments::from_value(args, &tool.spec().input, Repair::On).unwrap())
}

#[tokio::test]
async fn a_function_that_returns_a_future_is_awaited() {
    #[tool]
    #[allow(clippy::manual_async_fn, reason = "the form that is tested")]
    fn later(n: u8) -> impl Future<Output = Result<u8, ToolError>> + Send {
        async move { Ok(n) }
    }
    let tool = &tools![later][0];
    assert!(matches!(tool.body().begin(detached(tool, json!({ "n": 1 }))), Running::Future(_)));
    assert_eq!(tool.spec().output.as_ref().unwrap()["type"], "integer");
    assert_eq!(run(tool, json!({ "n": 5 })).await.unwrap(), json!(5));
}

// rule: sdk-tools 8.1/1
#[tokio::test]
async fn a_literal_stream_gives_snapshots() {
    #[tool]
    fn count(to: u32) -> impl Stream<Item = u32> + Send + 'static {
        stream::iter(1..=to)
    }
    #[tool]
    fn read(State(client): State<Client>, fail: bool) -> impl Stream<Item = Result<String, fmt::Error>> {
        stream::iter([Ok(client.0.to_owned()), if fail { Err(fmt::Error) } else { Ok("done".to_owned()) }])
    }
    let [count, read] = &tools![count, read][..] else { panic!("two tools") };
    assert!(matches!(count.body().begin(detached(count, json!({ "to": 1 }))), Running::Stream(_)));
    assert_eq!(run(count, json!({ "to": 3 })).await.unwrap(), json!([1, 2, 3]));
    assert_eq!(run(count, json!({ "to": 0 })).await.unwrap(), json!([]));
    let mut state = StateMap::default();
    state.insert(Client("here")).unwrap();
    assert_eq!(run_in(read, json!({ "fail": false }), state.clone()).await.unwrap(), json!(["here", "done"]));
    assert_eq!(run_in(read, json!({ "fail": true }), state).await.unwrap_err().name(), "Error");
    assert_eq!(run(read, json!({ "fail": false })).await.unwrap_err().name(), "StateMissingError");
}

type Answer<T> = Result<T, StationError>;

#[derive(Debug)]
struct StationError;

impl fmt::Display for StationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the station is offline")
    }
}

impl std::error::Error for StationError {}

struct Said(&'static str);

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

struct Own;

impl From<Own> for ToolError {
    fn from(_: Own) -> Self {
        Self::new("own").with_kind(ToolFailureKind::Denied)
    }
}

// rule: sdk-tools 7.3/1
// rule: sdk-tools 7.4/3
#[tokio::test]
async fn any_error_becomes_a_failure() {
    #[tool]
    async fn alias() -> Answer<String> {
        Err(StationError)
    }
    #[tool]
    async fn with_anyhow() -> anyhow::Result<String> {
        Err(anyhow::Error::new(StationError).context("no weather"))
    }
    #[tool]
    async fn boxed() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Err(Box::new(StationError))
    }
    #[tool]
    async fn local_box() -> Result<(), Box<dyn std::error::Error>> {
        Err(Box::new(StationError))
    }
    #[tool]
    fn text() -> Result<(), String> {
        Err("no".to_owned())
    }
    #[tool]
    fn borrowed() -> Result<(), &'static str> {
        Err("no")
    }
    #[tool]
    fn said() -> Result<(), Said> {
        Err(Said("display"))
    }
    #[tool]
    fn own() -> Result<(), Own> {
        Err(Own)
    }
    #[tool]
    fn ends() -> Result<(), ToolError> {
        Err(ToolError::propagate(StationError))
    }
    let expected = [
        ("StationError", "the station is offline"),
        ("ToolExecutionError", "no weather: the station is offline"),
        ("ToolExecutionError", "the station is offline"),
        ("ToolExecutionError", "the station is offline"),
        ("ToolExecutionError", "no"),
        ("ToolExecutionError", "no"),
        ("ToolExecutionError", "display"),
        ("ToolDeniedError", "own"),
        ("StationError", "the station is offline"),
    ];
    let tools = tools![alias, with_anyhow, boxed, local_box, text, borrowed, said, own, ends];
    for (tool, (name, message)) in tools.iter().zip(expected) {
        let error = run(tool, json!({})).await.unwrap_err();
        assert_eq!((error.name(), error.message(), error.propagates()), (name, message, tool.name().as_str() == "ends"), "{}", tool.name());
    }
}

#[args]
struct Report {
    title: String,
    note: Option<String>,
}

#[derive(serde::Serialize)]
struct Unsaid(#[serde(serialize_with = "fails")] u8);

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn fails<S: serde::Serializer>(_: &u8, _: S) -> Result<S::Ok, S::Error> {
    Err(serde::ser::Error::custom("no"))
}

// rule: sdk-tools 7.1/2
#[tokio::test]
async fn any_value_becomes_a_result() {
    #[tool]
    async fn unit() {}
    #[tool]
    async fn none() -> Option<String> {
        None
    }
    #[tool]
    async fn unsaid() -> Unsaid {
        Unsaid(1)
    }
    #[tool]
    async fn report() -> Answer<Report> {
        Ok(Report { title: "t".to_owned(), note: None })
    }
    #[tool]
    async fn opaque() -> impl serde::Serialize {
        [1, 2]
    }
    #[tool]
    async fn output() -> Result<ToolOutput, StationError> {
        Ok(ToolOutput::text("read").shown_as(json!("seen")))
    }
    let tools = tools![unit, none, unsaid, report, opaque, output];
    let mut results = Vec::new();
    for tool in &tools {
        results.push(run(tool, json!({})).await.unwrap());
    }
    assert_eq!(results, [json!(null), json!(null), json!(null), json!({ "title": "t" }), json!([1, 2]), json!("seen")]);
    let schemas: Vec<_> = tools.iter().map(|tool| tool.spec().output.clone()).collect();
    assert_eq!(schemas[0], None);
    assert_eq!(schemas[1].as_ref().unwrap()["type"], json!(["string", "null"]));
    assert_eq!(schemas[2], None);
    assert_eq!(
        schemas[3].as_ref().unwrap(),
        &json!({
            "type": "object",
            "properties": { "title": { "type": "string" }, "note": { "type": "string" } },
            "required": ["title"],
            "additionalProperties": false,
        })
    );
    assert_eq!((&schemas[4], &schemas[5]), (&None, &None));
}

#[tokio::test]
async fn arguments_that_pass_the_schema_and_not_the_type_are_issues_with_their_path() {
    #[tool]
    fn ping(addresses: Vec<std::net::IpAddr>) -> usize {
        addresses.len()
    }
    let tool = &tools![ping][0];
    let issues = tool.body().check(&json!({ "addresses": ["127.0.0.1", "here"] })).unwrap_err();
    assert_eq!(issues[0].path, "addresses.1");
    let args = Arguments::from_value(json!({ "addresses": ["here"] }), &tools![any_list][0].spec().input, Repair::On).unwrap();
    let Running::Future(refused) = tool.body().begin(ToolContext::detached(args)) else { panic!("refused at once") };
    let error = refused.await.unwrap_err();
    assert_eq!(error.to_failure("ping").issues[0].path, "addresses.0");
}

#[tool]
fn any_list(addresses: Vec<String>) -> usize {
    addresses.len()
}

// --- approval and sandbox

#[args]
struct Pay {
    amount: f64,
}

fn large(Args(pay): Args<Pay>) -> bool {
    pay.amount > 100.0
}

async fn by_client(State(client): State<Client>, Ctx(cx): Ctx) -> Result<ApprovalOutcome, StationError> {
    match (client.0, cx.args().value()["amount"].as_f64()) {
        ("closed", _) => Ok(ApprovalOutcome::Deny(Some("closed".to_owned()))),
        ("offline", _) => Err(StationError),
        (_, Some(0.0)) => Ok(ApprovalOutcome::Run),
        _ => Ok(ApprovalOutcome::Ask),
    }
}

async fn outcome(tool: &Tool, args: Value, client: &'static str) -> Result<ApprovalOutcome, ToolError> {
    let NeedsApproval::Policy(policy) = tool.needs_approval() else { panic!("no policy") };
    let mut parts = detached(tool, args).parts().clone();
    let mut state = StateMap::default();
    state.insert(Client(client)).unwrap();
    parts.state = vec![state];
    policy(ToolContext::new(parts)).await
}

// rule: sdk-tools 1.2/3
// rule: sdk-tools 1.3/4
#[tokio::test]
async fn a_policy_gets_decoded_values() {
    #[tool(needs_approval = large)]
    fn pay(amount: f64, to: Option<String>) -> f64 {
        drop(to);
        amount
    }
    #[tool(needs_approval = by_client)]
    fn pay_client(amount: f64) -> f64 {
        amount
    }
    #[tool(needs_approval = |Ctx(cx): Ctx| cx.attempt() > 1)]
    fn pay_again(amount: f64) -> f64 {
        amount
    }
    let [pay, client, again] = &tools![pay, pay_client, pay_again][..] else { panic!("three tools") };
    assert_eq!(outcome(pay, json!({ "amount": 50, "to": "kim" }), "").await.unwrap(), ApprovalOutcome::Run);
    assert_eq!(outcome(pay, json!({ "amount": 500 }), "").await.unwrap(), ApprovalOutcome::Ask);
    assert!(matches!(client.requirements().needs(), [Need::State { .. }]));
    assert_eq!(outcome(client, json!({ "amount": 0 }), "open").await.unwrap(), ApprovalOutcome::Run);
    assert_eq!(outcome(client, json!({ "amount": 1 }), "open").await.unwrap(), ApprovalOutcome::Ask);
    assert_eq!(outcome(client, json!({ "amount": 1 }), "closed").await.unwrap(), ApprovalOutcome::Deny(Some("closed".to_owned())));
    assert_eq!(outcome(client, json!({ "amount": 1 }), "offline").await.unwrap_err().name(), "StationError");
    assert_eq!(outcome(again, json!({ "amount": 1 }), "").await.unwrap(), ApprovalOutcome::Run);
}

async fn in_sandbox(Args(pay): Args<Pay>, Ctx(cx): Ctx) -> Result<String, ToolError> {
    Ok(format!("{} {}", pay.amount, cx.call_id()))
}

fn in_plain_sandbox(Args(pay): Args<Pay>) -> Result<f64, StationError> {
    if pay.amount < 0.0 { Err(StationError) } else { Ok(pay.amount) }
}

// rule: sdk-tools 1.2/3
// rule: sdk-tools 6/2
#[tokio::test]
async fn a_sandboxed_body_is_a_function_of_extractors() {
    #[tool(requires_sandbox = in_sandbox)]
    fn pay(amount: f64) -> f64 {
        amount
    }
    #[tool(requires_sandbox = in_plain_sandbox)]
    fn pay_plain(amount: f64) -> f64 {
        amount
    }
    let [pay, plain] = &tools![pay, pay_plain][..] else { panic!("two tools") };
    assert!(pay.spec().requires_sandbox);
    let Running::Future(future) = pay.sandboxed_body().unwrap().begin(detached(pay, json!({ "amount": 1.5 }))) else { panic!("async") };
    assert_eq!(future.await.unwrap().shown(), json!("1.5 call_detached"));
    let Running::Blocking(begin) = plain.sandboxed_body().unwrap().begin(detached(plain, json!({ "amount": -1 }))) else { panic!("plain") };
    assert_eq!(begin.await.unwrap()().unwrap_err().name(), "StationError");
}
