//! Defining a tool.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use schemars::JsonSchema;
use serde_json::Value;
use toolwright_core::schema::{Schema, SchemaError};
use toolwright_core::{Annotations, EnvNeed, InvalidToolName, Issue, OnInterrupt, ToolName, ToolOrigin, ToolSpec};

use crate::approval::{ApprovalOutcome, ApprovalPolicy, ApprovalRequest, NeedsApproval};
use crate::body::{Running, ToolBody};
use crate::context::ToolContext;
use crate::error::ToolError;
use crate::extract::{Args, FromCall, ToolArg};
use crate::output::IntoToolResult;
use crate::require::Requirements;
use crate::state::StateMap;

/// Why a tool could not be defined. Code `TOOLWRIGHT_CONFIG_INVALID`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DefinitionError {
    /// The name.
    #[error(transparent)]
    Name(#[from] InvalidToolName),
    /// The description.
    #[error("the tool `{tool}` has no description; a model chooses tools by it, so say in a sentence what the tool does")]
    Description {
        /// The tool.
        tool: String,
    },
    /// The schema.
    #[error("the input schema of the tool `{tool}` is not usable: {error}")]
    Schema {
        /// The tool.
        tool: String,
        /// What is wrong with it.
        error: SchemaError,
    },
    /// An example of arguments.
    #[error("example {index} of the tool `{tool}` does not fit its schema: {problem}")]
    Example {
        /// The tool.
        tool: String,
        /// Its index.
        index: usize,
        /// What does not fit.
        problem: String,
    },
}

impl DefinitionError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        "TOOLWRIGHT_CONFIG_INVALID"
    }
}

/// A type that stands for a tool; `#[tool]` makes one beside each function.
pub trait ToolDef {
    /// The tool.
    fn tool() -> Tool;
}

/// A tool: what is known of it, and its body. Cheap to clone.
#[derive(Clone)]
pub struct Tool {
    inner: Arc<Inner>,
}

#[derive(Clone)]
struct Inner {
    spec: Arc<ToolSpec>,
    body: Arc<dyn ToolBody>,
    sandboxed: Option<Arc<dyn ToolBody>>,
    approval: NeedsApproval,
    external: Option<ApprovalRequest>,
    requirements: Requirements,
    state: StateMap,
    broken: Option<DefinitionError>,
}

impl Tool {
    /// Begins a tool whose arguments are a Rust type; end with [`ToolBuilder::run`].
    ///
    /// ```
    /// use toolwright_tool::prelude::*;
    ///
    /// #[args]
    /// struct Pair { a: i64, b: i64 }
    ///
    /// let add = Tool::new("add", "Adds two numbers.").run(|Args(p): Args<Pair>| async move { Ok::<_, ToolError>(p.a + p.b) })?;
    /// # Ok::<_, toolwright_tool::DefinitionError>(())
    /// ```
    #[expect(clippy::new_ret_no_self, reason = "a tool without a body is not a tool: the builder's end gives it")]
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> ToolBuilder {
        ToolBuilder::new(name.into(), description.into())
    }

    /// Begins a tool whose schema is known only at run time; end with [`ToolBuilder::run_json`].
    pub fn from_schema(name: impl Into<String>, description: impl Into<String>, schema: Value) -> Result<ToolBuilder, DefinitionError> {
        let name = name.into();
        let schema = Schema::new(schema).map_err(|error| DefinitionError::Schema { tool: name.clone(), error })?;
        let mut builder = ToolBuilder::new(name, description.into());
        builder.schema = Some(schema);
        Ok(builder)
    }

    /// Begins a tool without a body: a call of it waits, in the journal, until a result is posted from outside with
    /// `agent.calls().complete(..)`: by another service, a browser, a webhook. End with [`ToolBuilder::outside`].
    ///
    /// ```
    /// use toolwright_tool::Tool;
    ///
    /// let schema = serde_json::json!({ "type": "object", "properties": { "field": { "type": "string" } } });
    /// let pick = Tool::external("pick_date", "Lets the user pick a date in their browser.", schema)?.outside()?;
    /// assert!(pick.external_request().is_some());
    /// # Ok::<_, toolwright_tool::DefinitionError>(())
    /// ```
    pub fn external(name: impl Into<String>, description: impl Into<String>, schema: Value) -> Result<ToolBuilder, DefinitionError> {
        let mut builder = Self::from_schema(name, description, schema)?;
        builder.external = Some(ApprovalRequest { kind: toolwright_core::AskKind::External, ..ApprovalRequest::new() });
        Ok(builder)
    }

    /// How the result is waited for, where it comes from outside.
    pub fn external_request(&self) -> Option<&ApprovalRequest> {
        self.inner.external.as_ref()
    }

    /// What is known of it.
    pub fn spec(&self) -> &Arc<ToolSpec> {
        &self.inner.spec
    }

    /// Its name.
    pub fn name(&self) -> &ToolName {
        &self.inner.spec.name
    }

    /// Its body. Only the runtime's `dispatch` begins one (invariant 5).
    pub fn body(&self) -> &Arc<dyn ToolBody> {
        &self.inner.body
    }

    /// The body for a sandbox, if it has one.
    pub fn sandboxed_body(&self) -> Option<&Arc<dyn ToolBody>> {
        self.inner.sandboxed.as_ref()
    }

    /// Whether its calls have to be approved.
    pub fn needs_approval(&self) -> &NeedsApproval {
        &self.inner.approval
    }

    /// What it needs from its run.
    pub fn requirements(&self) -> &Requirements {
        &self.inner.requirements
    }

    /// The values it brings along, looked up last.
    pub fn state(&self) -> &StateMap {
        &self.inner.state
    }

    /// What is wrong with its definition; `build()` refuses such a tool.
    pub fn definition_error(&self) -> Option<&DefinitionError> {
        self.inner.broken.as_ref()
    }

    /// The same tool with values of its tool set.
    #[must_use]
    pub fn with_tool_set_state(&self, state: StateMap) -> Self {
        let mut inner = (*self.inner).clone();
        inner.state = state;
        Self { inner: Arc::new(inner) }
    }

    /// The same tool under another name: sources with a prefix use it (sdk-tools 2.2/3).
    pub fn renamed(&self, name: impl Into<String>) -> Result<Self, DefinitionError> {
        let name = ToolName::new(name.into())?;
        Ok(self.with_spec(|spec| spec.name = name))
    }

    /// The same tool with another say about which calls have to be approved: for a tool that somebody else defined.
    ///
    /// ```
    /// use toolwright_tool::{NeedsApproval, Tool, ToolError};
    ///
    /// let look = Tool::new("look", "Looks something up.").run_json(|args, _| async move { Ok::<_, ToolError>(args) })?;
    /// assert!(matches!(look.with_approval(NeedsApproval::Always).needs_approval(), NeedsApproval::Always));
    /// # Ok::<_, toolwright_tool::DefinitionError>(())
    /// ```
    #[must_use]
    pub fn with_approval(&self, needs: NeedsApproval) -> Self {
        let mut inner = (*self.inner).clone();
        inner.approval = needs;
        Self { inner: Arc::new(inner) }
    }

    /// The same tool with a changed spec.
    #[must_use]
    pub fn with_spec(&self, change: impl FnOnce(&mut ToolSpec)) -> Self {
        let mut inner = (*self.inner).clone();
        change(Arc::make_mut(&mut inner.spec));
        Self { inner: Arc::new(inner) }
    }
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tool").field("name", &self.inner.spec.name).field("origin", &self.inner.spec.origin).finish_non_exhaustive()
    }
}

/// One option's effect.
type Change = Box<dyn FnOnce(&mut ToolSpec)>;

/// A tool that is being defined. Every option has the default of [`ToolSpec`].
pub struct ToolBuilder {
    name: String,
    description: String,
    schema: Option<Schema>,
    origin: ToolOrigin,
    approval: NeedsApproval,
    external: Option<ApprovalRequest>,
    sandboxed: Option<Arc<dyn ToolBody>>,
    requirements: Requirements,
    changes: Vec<Change>,
    /// The macro reports missing descriptions through `tools lint`; by hand they are refused.
    allow_no_description: bool,
}

impl ToolBuilder {
    fn new(name: String, description: String) -> Self {
        Self {
            name,
            description,
            schema: None,
            origin: ToolOrigin::Value,
            approval: NeedsApproval::Never,
            external: None,
            sandboxed: None,
            requirements: Requirements::new(),
            changes: Vec::new(),
            allow_no_description: false,
        }
    }

    #[must_use]
    fn change(mut self, change: impl FnOnce(&mut ToolSpec) + 'static) -> Self {
        self.changes.push(Box::new(change));
        self
    }

    /// A label for people.
    #[must_use]
    pub fn display_name(self, name: impl Into<String>) -> Self {
        let name = name.into();
        self.change(move |spec| spec.display_name = Some(name))
    }

    /// All hints at once.
    #[must_use]
    pub fn annotations(self, annotations: Annotations) -> Self {
        self.change(move |spec| spec.annotations = annotations)
    }

    /// The tool changes nothing.
    #[must_use]
    pub fn read_only(self) -> Self {
        self.change(|spec| spec.annotations.read_only_hint = Some(true))
    }

    /// The tool may destroy something.
    #[must_use]
    pub fn destructive(self) -> Self {
        self.change(|spec| spec.annotations.destructive_hint = Some(true))
    }

    /// Repeating a call is harmless.
    #[must_use]
    pub fn idempotent(self) -> Self {
        self.change(|spec| spec.annotations.idempotent_hint = Some(true))
    }

    /// The tool touches the world outside.
    #[must_use]
    pub fn open_world(self) -> Self {
        self.change(|spec| spec.annotations.open_world_hint = Some(true))
    }

    /// Kept out of the list until a search finds it.
    #[must_use]
    pub fn defer_loading(self) -> Self {
        self.change(|spec| spec.defer_loading = true)
    }

    /// Marks a file edit.
    #[must_use]
    pub fn edits_files(self) -> Self {
        self.change(|spec| spec.edits_files = true)
    }

    /// A barrier in its batch.
    #[must_use]
    pub fn sequential(self) -> Self {
        self.change(|spec| spec.sequential = true)
    }

    /// Arguments are validated as written, never repaired.
    #[must_use]
    pub fn no_repair(self) -> Self {
        self.change(|spec| spec.repair = false)
    }

    /// How long the body may take.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        self.change(move |spec| spec.timeout = Some(timeout))
    }

    /// What happens to a call that had begun when the process died.
    #[must_use]
    pub fn on_interrupt(self, choice: OnInterrupt) -> Self {
        self.change(move |spec| spec.on_interrupt = Some(choice))
    }

    /// The longest result, in characters.
    #[must_use]
    pub fn result_limit(self, characters: usize) -> Self {
        self.change(move |spec| spec.result_limit = Some(characters))
    }

    /// How many calls of one run may reach the body.
    #[must_use]
    pub fn max_calls(self, calls: u32) -> Self {
        self.change(move |spec| spec.max_calls = Some(calls))
    }

    /// How often in a run the body may ask the model for another try.
    #[must_use]
    pub fn max_retries(self, retries: u32) -> Self {
        self.change(move |spec| spec.max_retries = retries)
    }

    /// An environment value the body reads through `Env`. It has to be there before the body runs.
    #[must_use]
    pub fn env(self, name: impl Into<String>) -> Self {
        self.env_need(EnvNeed::text(name))
    }

    /// A secret environment value the body reads through `Env`. It has to be there before the body runs, and no record, event or
    /// model ever sees it.
    #[must_use]
    pub fn secret_env(self, name: impl Into<String>) -> Self {
        self.env_need(EnvNeed::secret(name))
    }

    /// An environment value the body reads through `Env`, with all that can be said of it.
    #[must_use]
    pub fn env_need(mut self, need: EnvNeed) -> Self {
        self.requirements.env(need.name.clone());
        self.change(move |spec| spec.env.push(need))
    }

    /// One worked example of arguments; it has to fit the schema.
    #[must_use]
    pub fn example(self, arguments: Value) -> Self {
        self.change(move |spec| spec.examples.push(arguments))
    }

    /// The schema of the result.
    #[must_use]
    pub fn output_schema(self, schema: Value) -> Self {
        self.change(move |spec| spec.output = Some(schema))
    }

    /// Options merged into the definition that `provider` gets, last.
    #[must_use]
    pub fn provider_option(self, provider: impl Into<String>, options: Value) -> Self {
        let provider = provider.into();
        self.change(move |spec| {
            spec.provider_options.insert(provider, options);
        })
    }

    /// Where the tool comes from.
    #[must_use]
    pub fn origin(mut self, origin: ToolOrigin) -> Self {
        self.origin = origin;
        self
    }

    /// A missing description is not refused here but reported by `tools lint`: compiled tools use it.
    #[doc(hidden)]
    #[must_use]
    pub fn description_optional(mut self) -> Self {
        self.allow_no_description = true;
        self
    }

    /// What the body and the policies need besides what the builder sees by itself.
    #[doc(hidden)]
    #[must_use]
    pub fn requires(mut self, fill: impl FnOnce(&mut Requirements)) -> Self {
        fill(&mut self.requirements);
        self
    }

    /// Every call has to be approved.
    #[must_use]
    pub fn needs_approval(mut self) -> Self {
        self.approval = NeedsApproval::Always;
        self
    }

    /// Which calls have to be approved, by one of the ready-made policies (sdk-tools 11.1).
    ///
    /// ```
    /// use toolwright_tool::{NeedsApproval, Tool, ToolError};
    ///
    /// let send = Tool::new("send", "Sends a letter.")
    ///     .approval(NeedsApproval::once())
    ///     .run_json(|args, _| async move { Ok::<_, ToolError>(args) })?;
    /// # let _ = send;
    /// # Ok::<_, toolwright_tool::DefinitionError>(())
    /// ```
    #[must_use]
    pub fn approval(mut self, needs: NeedsApproval) -> Self {
        self.approval = needs;
        self
    }

    /// How long a call waits for its result from outside; then it fails. Without this it waits as long as the agent's
    /// `approval_ttl` says, by default for ever.
    #[must_use]
    pub fn result_within(mut self, time: std::time::Duration) -> Self {
        if let Some(external) = &mut self.external {
            external.within = Some(time);
        }
        self
    }

    /// The tool whose results come from outside; see [`Tool::external`].
    pub fn outside(mut self) -> Result<Tool, DefinitionError> {
        self.external.get_or_insert_with(|| ApprovalRequest { kind: toolwright_core::AskKind::External, ..ApprovalRequest::new() });
        self.run_body(serde_json::json!({ "type": "object" }), Arc::new(OutsideBody))
    }

    /// Calls have to be approved where `policy` says so.
    #[must_use]
    pub fn needs_approval_if<F, Fut, O>(mut self, policy: F) -> Self
    where
        F: Fn(ToolContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, ToolError>> + Send + 'static,
        O: Into<ApprovalOutcome>,
    {
        let policy: ApprovalPolicy = Arc::new(move |cx| policy(cx).map(|outcome| outcome.map(Into::into)).boxed());
        self.approval = NeedsApproval::Policy(policy);
        self
    }

    /// Runs through the run's sandbox only; `body` is what runs there.
    #[must_use]
    pub fn requires_sandbox(mut self, body: Option<Arc<dyn ToolBody>>) -> Self {
        self.sandboxed = body;
        self.change(|spec| spec.requires_sandbox = true)
    }

    /// The tool, with a body that takes its arguments as one type.
    pub fn run<T, F, Fut, R>(mut self, body: F) -> Result<Tool, DefinitionError>
    where
        T: ToolArg,
        F: Fn(Args<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = R> + Send + 'static,
        R: IntoToolResult + 'static,
    {
        Args::<T>::requires(&mut self.requirements);
        self.run_body(schema_of::<T>(), Arc::new(TypedBody { body, types: PhantomData::<fn(T) -> R> }))
    }

    /// The tool, with a body that takes its arguments as one type, and the context.
    pub fn run_with<T, F, Fut, R>(self, body: F) -> Result<Tool, DefinitionError>
    where
        T: ToolArg,
        F: Fn(T, ToolContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = R> + Send + 'static,
        R: IntoToolResult + 'static,
    {
        self.run_body(schema_of::<T>(), Arc::new(TypedContextBody { body, types: PhantomData::<fn(T) -> R> }))
    }

    /// The tool, with a body that takes its arguments as JSON.
    pub fn run_json<F, Fut, R>(self, body: F) -> Result<Tool, DefinitionError>
    where
        F: Fn(Value, ToolContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = R> + Send + 'static,
        R: IntoToolResult + 'static,
    {
        self.run_body(serde_json::json!({ "type": "object" }), Arc::new(JsonBody { body, returns: PhantomData::<fn() -> R> }))
    }

    /// The tool, with any body. `schema` counts unless the builder began with one.
    pub fn run_body(self, schema: Value, body: Arc<dyn ToolBody>) -> Result<Tool, DefinitionError> {
        let name = ToolName::new(self.name)?;
        if self.description.trim().is_empty() && !self.allow_no_description {
            return Err(DefinitionError::Description { tool: name.to_string() });
        }
        let input = match self.schema {
            Some(schema) => schema,
            None => Schema::new(schema).map_err(|error| DefinitionError::Schema { tool: name.to_string(), error })?,
        };
        let mut spec = ToolSpec::new(name, self.description, input, self.origin);
        for change in self.changes {
            change(&mut spec);
        }
        for (index, example) in spec.examples.iter().enumerate() {
            let mut issues = spec.input.validate(example);
            if issues.is_empty() {
                issues = body.check(example).err().unwrap_or_default();
            }
            if let Some(issue) = issues.first() {
                let problem = if issue.path.is_empty() { issue.message.clone() } else { format!("{}: {}", issue.path, issue.message) };
                return Err(DefinitionError::Example { tool: spec.name.to_string(), index, problem });
            }
        }
        Ok(Tool {
            inner: Arc::new(Inner {
                spec: Arc::new(spec),
                body,
                sandboxed: self.sandboxed,
                approval: self.approval,
                external: self.external,
                requirements: self.requirements,
                state: StateMap::default(),
                broken: None,
            }),
        })
    }
}

impl Tool {
    /// A tool that could not be defined, so that `tools![]` needs no `?`: `build()` reports the error.
    #[doc(hidden)]
    pub fn broken(error: DefinitionError) -> Self {
        let spec = ToolSpec::new(ToolName::mapped("broken"), "", any_object(), ToolOrigin::Value);
        Self {
            inner: Arc::new(Inner {
                spec: Arc::new(spec),
                body: Arc::new(BrokenBody(error.to_string())),
                sandboxed: None,
                approval: NeedsApproval::Never,
                external: None,
                requirements: Requirements::new(),
                state: StateMap::default(),
                broken: Some(error),
            }),
        }
    }
}

#[expect(clippy::expect_used, reason = "a literal that always compiles; `tests::any_object_compiles` shows it")]
fn any_object() -> Schema {
    Schema::new(serde_json::json!({ "type": "object" })).expect("an object schema without properties is valid")
}

/// Stands where a body would: dispatch waits for a result instead of beginning it.
struct OutsideBody;

impl ToolBody for OutsideBody {
    fn check(&self, _args: &Value) -> Result<(), Vec<Issue>> {
        Ok(())
    }

    fn begin(&self, _cx: ToolContext) -> Running {
        let failed = ToolError::new("its result comes from outside, so there is nothing to run");
        Running::Future(std::future::ready(Err(failed)).boxed())
    }
}

struct BrokenBody(String);

impl ToolBody for BrokenBody {
    fn check(&self, _args: &Value) -> Result<(), Vec<Issue>> {
        Err(vec![Issue { path: String::new(), message: self.0.clone() }])
    }

    fn begin(&self, _cx: ToolContext) -> Running {
        let error = ToolError::new(self.0.clone());
        Running::Future(std::future::ready(Err(error)).boxed())
    }
}

/// The JSON Schema of a type as tools use it: draft 2020-12, properties in declaration order, without `$schema` and title,
/// with definitions inlined where they are not recursive.
pub fn schema_of<T: JsonSchema>() -> Value {
    let settings = schemars::generate::SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    if let Some(object) = schema.as_object_mut() {
        object.shift_remove("title");
    }
    schema
}

/// Whether `args` decode into `T`; the path is that of the first value that does not.
pub fn check_decodes<T: serde::de::DeserializeOwned>(args: &Value) -> Result<(), Vec<Issue>> {
    if T::deserialize(args).is_ok() {
        return Ok(());
    }
    // Only a failure pays for the path.
    match serde_path_to_error::deserialize::<_, T>(args) {
        Ok(_) => Ok(()),
        Err(error) => {
            let path = error.path().to_string().replace('[', ".").replace(']', "");
            let path = if path == "." { String::new() } else { path };
            Err(vec![Issue { path: path.trim_start_matches('.').to_owned(), message: error.into_inner().to_string() }])
        }
    }
}

struct TypedBody<T, F, R> {
    body: F,
    types: PhantomData<fn(T) -> R>,
}

impl<T, F, Fut, R> ToolBody for TypedBody<T, F, R>
where
    T: ToolArg,
    F: Fn(Args<T>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = R> + Send + 'static,
    R: IntoToolResult + 'static,
{
    fn check(&self, args: &Value) -> Result<(), Vec<Issue>> {
        check_decodes::<T>(args)
    }

    fn begin(&self, cx: ToolContext) -> Running {
        match T::deserialize(cx.args().value()) {
            Ok(args) => Running::Future((self.body)(Args(args)).map(IntoToolResult::into_tool_result).boxed()),
            Err(error) => Running::Future(std::future::ready(Err(ToolError::invalid("", error.to_string()))).boxed()),
        }
    }
}

struct TypedContextBody<T, F, R> {
    body: F,
    types: PhantomData<fn(T) -> R>,
}

impl<T, F, Fut, R> ToolBody for TypedContextBody<T, F, R>
where
    T: ToolArg,
    F: Fn(T, ToolContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = R> + Send + 'static,
    R: IntoToolResult + 'static,
{
    fn check(&self, args: &Value) -> Result<(), Vec<Issue>> {
        check_decodes::<T>(args)
    }

    fn begin(&self, cx: ToolContext) -> Running {
        match T::deserialize(cx.args().value()) {
            Ok(args) => Running::Future((self.body)(args, cx).map(IntoToolResult::into_tool_result).boxed()),
            Err(error) => Running::Future(std::future::ready(Err(ToolError::invalid("", error.to_string()))).boxed()),
        }
    }
}

struct JsonBody<F, R> {
    body: F,
    returns: PhantomData<fn() -> R>,
}

impl<F, Fut, R> ToolBody for JsonBody<F, R>
where
    F: Fn(Value, ToolContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = R> + Send + 'static,
    R: IntoToolResult + 'static,
{
    fn check(&self, _args: &Value) -> Result<(), Vec<Issue>> {
        Ok(())
    }

    fn begin(&self, cx: ToolContext) -> Running {
        let args = cx.args().value().clone();
        Running::Future((self.body)(args, cx).map(IntoToolResult::into_tool_result).boxed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_object_compiles() {
        assert!(any_object().is_valid(&serde_json::json!({ "a": 1 })));
    }

    fn define(name: &str, description: &str) -> Result<Tool, DefinitionError> {
        Tool::new(name, description).run_json(|args, _cx| async move { Ok::<_, ToolError>(args) })
    }

    // rule: sdk-tools 1.2/1
    // rule: sdk-tools 1.3/2
    #[test]
    fn a_bad_definition_is_refused_when_it_is_made() {
        assert_eq!(
            define("get weather", "x").unwrap_err().to_string(),
            "the tool name `get weather` has a space; use letters, digits, `_` and `-`, at most 64"
        );
        assert!(define("a", " ").unwrap_err().to_string().contains("has no description"));
        let error = Tool::from_schema("a", "b", serde_json::json!({ "type": "string" })).err().unwrap();
        assert!(error.to_string().starts_with("the input schema of the tool `a` is not usable"), "{error}");
        assert_eq!(error.code(), "TOOLWRIGHT_CONFIG_INVALID");
    }

    // rule: sdk-tools 1.3/3
    #[test]
    fn a_schema_that_is_none_is_refused() {
        assert!(Tool::from_schema("a", "b", serde_json::json!("not a schema")).is_err());
        assert!(Tool::from_schema("a", "b", serde_json::json!({ "type": "object", "properties": { "x": { "type": "strin" } } })).is_err());
    }

    #[test]
    fn an_example_has_to_fit() {
        let schema = serde_json::json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
        let tool = Tool::from_schema("a", "b", schema.clone()).unwrap().example(serde_json::json!({ "n": "x" }));
        let error = tool.run_json(|args, _cx| async move { Ok::<_, ToolError>(args) }).unwrap_err();
        assert!(error.to_string().starts_with("example 0 of the tool `a` does not fit its schema: n: "), "{error}");
    }

    #[test]
    fn a_decoding_error_has_its_path() {
        #[derive(serde::Deserialize)]
        #[expect(dead_code, reason = "only decoded")]
        struct Outer {
            list: Vec<Inner>,
        }
        #[derive(serde::Deserialize)]
        #[expect(dead_code, reason = "only decoded")]
        struct Inner {
            n: u8,
        }
        let issues = check_decodes::<Outer>(&serde_json::json!({ "list": [{ "n": 1 }, { "n": 300 }] })).unwrap_err();
        assert_eq!(issues[0].path, "list.1.n");
    }
}
