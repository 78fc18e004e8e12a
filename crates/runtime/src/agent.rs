//! The agent: who acts. Instructions, a model, tools and policy.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde_json::{Map, Value};
use toolwright_core::policy::{Rule, RuleSet};
use toolwright_core::{
    AbortReason, Author, Budget, Budgets, CallId, CallOpening, CallOrigin, Fingerprint, Input, Item, Message, RunCause, RunLimits,
    ThreadId, ToolSpec,
};
use toolwright_tool::{Identity, KeepLimits, Need, StateMap, Tool, Tree};

use crate::approvals::Approving;
use crate::clock::{Clock, SystemClock};
use crate::compaction::{Around, Compaction, Configured};
use crate::dispatch::{DEFAULT_RESULT_LIMIT, DEFAULT_TIMEOUT, Dispatch, GRACE};
use crate::driver::NextRun;
use crate::environment::{EnvSetup, Environment};
use crate::error::AgentError;
use crate::guard::Guardrails;
use crate::hook::{Hook, Hooks};
use crate::hub::Hubs;
use crate::memory::MemoryStore;
use crate::model::{Model, ModelInfo, ModelRequest, ModelResolver, ModelSettings, ModelStream};
use crate::permissions::{Audit, ModeSource, PermissionEntry, PermissionOptions};
use crate::registry::Registry;
use crate::run::{Reply, RunStream};
use crate::stage::{Stage, StageKind, Stages};
use crate::store::Store;
use crate::thread::ThreadHandle;
use crate::threads::Threads;
use crate::worker::Worker;

/// What a model reads when an agent has no instructions (sdk-runtime 2).
pub const DEFAULT_INSTRUCTIONS: &str = "You are a helpful assistant.";
/// How long a model may be silent before the step fails.
pub const DEFAULT_MODEL_TIMEOUT: Duration = Duration::from_secs(300);

/// What happens when the agent that goes on with an interrupted or decided run differs from the one that began: in its model,
/// its tools or their arguments, its instructions (sdk-runtime DRF-2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDrift {
    /// A warning in the log and an `agent.drift` event; the run goes on, with the instructions it began with.
    #[default]
    Warn,
    /// The resume fails with `TOOLWRIGHT_AGENT_DRIFT`; nothing is changed.
    Error,
    /// Nothing.
    Ignore,
}

/// Model resolvers that come with a type: how a crate that bundles models installs its own.
pub trait InstalledResolvers: 'static {
    /// The resolvers, first asked first.
    fn resolvers() -> Vec<Arc<dyn ModelResolver>>;
}

/// No resolvers: models are given as values, or with [`AgentBuilder::resolver`].
#[derive(Clone, Copy, Debug)]
pub enum NoResolvers {}

impl InstalledResolvers for NoResolvers {
    fn resolvers() -> Vec<Arc<dyn ModelResolver>> {
        Vec::new()
    }
}

pub(crate) struct AgentInner {
    pub(crate) name: Arc<str>,
    pub(crate) instructions: Arc<str>,
    pub(crate) model: Arc<dyn Model>,
    pub(crate) settings: Arc<ModelSettings>,
    pub(crate) dispatch: Arc<Dispatch>,
    pub(crate) tools: Arc<[Arc<ToolSpec>]>,
    pub(crate) fingerprint: Arc<Fingerprint>,
    pub(crate) on_drift: OnDrift,
    pub(crate) limits: RunLimits,
    /// Whether the steps of a run were set, and are not the default.
    pub(crate) steps_given: bool,
    pub(crate) budgets: Arc<Budgets>,
    /// Whether it was said that a model's price is not known.
    pub(crate) price_warned: Arc<AtomicBool>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) model_timeout: Duration,
    pub(crate) run_state_missing: Vec<(String, Need)>,
    pub(crate) hubs: Arc<Hubs>,
    /// The turns of sends that wait for each other.
    pub(crate) turns: PerThread<()>,
    /// The right to change a thread's files.
    pub(crate) trees: PerThread<Tree>,
    pub(crate) keep_limits: KeepLimits,
    pub(crate) environment: Environment,
    pub(crate) compaction: Option<Configured>,
    pub(crate) approving: Approving,
    /// Whether it was said that the model's window is not known.
    pub(crate) window_warned: AtomicBool,
}

impl AgentInner {
    /// What options of compaction are resolved with.
    pub(crate) fn around_compaction(&self) -> Around<'_> {
        Around { settings: Some(&self.settings), deadline: self.model_timeout, warned: &self.window_warned }
    }
}

type Lock<T> = tokio::sync::Mutex<T>;

/// What those who work on one thread in this process take turns with, for as long as one of them is there.
#[derive(Default)]
pub(crate) struct PerThread<T> {
    by_thread: std::sync::Mutex<HashMap<ThreadId, std::sync::Weak<Lock<T>>>>,
}

impl<T: Default> PerThread<T> {
    pub(crate) fn of(&self, thread: &ThreadId) -> Arc<Lock<T>> {
        let mut by_thread = self.by_thread.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(turn) = by_thread.get(thread).and_then(std::sync::Weak::upgrade) {
            return turn;
        }
        if by_thread.len() >= 64 && by_thread.len().is_power_of_two() {
            by_thread.retain(|_, turn| turn.strong_count() > 0);
        }
        let turn: Arc<Lock<T>> = Arc::default();
        by_thread.insert(thread.clone(), Arc::downgrade(&turn));
        turn
    }
}

/// An agent. Cheap to clone.
pub struct Agent<R = NoResolvers> {
    pub(crate) inner: Arc<AgentInner>,
    resolvers: PhantomData<fn() -> R>,
}

impl<R> Clone for Agent<R> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), resolvers: PhantomData }
    }
}

impl<R> std::fmt::Debug for Agent<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent").field("name", &self.inner.name).field("tools", &self.inner.dispatch.registry.len()).finish_non_exhaustive()
    }
}

impl<R: InstalledResolvers> Agent<R> {
    /// Begins one; see [`AgentBuilder`].
    pub fn builder() -> AgentBuilder<R> {
        AgentBuilder::new()
    }
}

impl<R> Agent<R> {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Its tools, in registration order.
    pub fn tools(&self) -> &Registry {
        &self.inner.dispatch.registry
    }

    /// What is known of its model.
    pub fn model(&self) -> ModelInfo {
        self.inner.model.info()
    }

    /// Sends to a new thread and waits for the end of the run. Each send starts from an empty history (sdk-runtime AGT-6).
    pub async fn send(&self, input: impl Into<Input>) -> Result<Reply, AgentError> {
        self.new_thread().send(input).await
    }

    /// Sends to a new thread; a stream of events that can be awaited for the reply.
    pub fn stream(&self, input: impl Into<Input>) -> RunStream {
        self.new_thread().stream(input)
    }

    /// The thread of an id; it need not exist yet.
    pub fn thread(&self, id: impl Into<Arc<str>>) -> ThreadHandle {
        ThreadHandle::new(Arc::clone(&self.inner), ThreadId::new(id))
    }

    /// A thread with an id of its own.
    pub fn new_thread(&self) -> ThreadHandle {
        ThreadHandle::new(Arc::clone(&self.inner), Ok(crate::random::thread_id()))
    }

    /// The threads of the store.
    pub fn threads(&self) -> Threads {
        Threads::new(Arc::clone(&self.inner))
    }

    /// A worker that moves threads which nobody moves and that have something to do.
    pub fn worker(&self) -> Worker {
        Worker::new(Arc::clone(&self.inner))
    }

    /// One call through the gate and its body, without a thread around it.
    #[doc(hidden)]
    pub async fn dispatch_once(&self, tool: &Arc<str>, written: &Arc<str>) -> crate::driver::Executed {
        self.dispatch_alone()(tool, written).await
    }

    /// Calls through the gate and their bodies, without a thread around them: what the bench `dispatch` measures. They share what the
    /// calls of one run share.
    #[doc(hidden)]
    pub fn dispatch_alone(&self) -> impl AsyncFn(&Arc<str>, &Arc<str>) -> crate::driver::Executed {
        let (dispatch, run) = (Arc::clone(&self.inner.dispatch), self.inner.dispatch.alone());
        async move |tool: &Arc<str>, written: &Arc<str>| dispatch.once(&run, tool, written).await
    }

    /// Calls one tool directly, through the same gate as a model's call, in a thread of its own. `arguments` is the JSON text.
    pub async fn invoke(&self, tool: &str, arguments: &str) -> Result<Reply, AgentError> {
        self.new_thread().invoke(tool, arguments).await
    }
}

/// An agent being made. Every option has a default but the model.
pub struct AgentBuilder<R = NoResolvers> {
    name: Arc<str>,
    instructions: Arc<str>,
    model: Option<ModelChoice>,
    resolvers: Vec<Arc<dyn ModelResolver>>,
    settings: ModelSettings,
    registry: Registry,
    stages: Stages,
    permissions: PermissionOptions,
    hooks: Hooks,
    guardrails: Guardrails,
    budgets: Budgets,
    max_calls: Vec<(String, u32)>,
    max_steps: Option<u32>,
    state: StateMap,
    run_state: Vec<(std::any::TypeId, &'static str)>,
    pub(crate) environment: EnvSetup,
    limits: RunLimits,
    timeout: Duration,
    grace: Duration,
    result_limit: usize,
    keep_limits: KeepLimits,
    store: Arc<dyn Store>,
    on_drift: OnDrift,
    clock: Arc<dyn Clock>,
    model_timeout: Duration,
    compaction: Option<Compaction>,
    pub(crate) approving: Approving,
    errors: Vec<AgentError>,
    installed: PhantomData<fn() -> R>,
}

/// A model: a value, or a name for the resolvers.
pub enum ModelChoice {
    /// A model.
    Value(Arc<dyn Model>),
    /// A name such as `openai/gpt-5`.
    Named(String),
    /// What the environment asks for.
    FromEnv,
}

impl From<&str> for ModelChoice {
    fn from(name: &str) -> Self {
        Self::Named(name.to_owned())
    }
}

impl From<String> for ModelChoice {
    fn from(name: String) -> Self {
        Self::Named(name)
    }
}

impl<M: Model> From<M> for ModelChoice {
    fn from(model: M) -> Self {
        Self::Value(Arc::new(model))
    }
}

/// Stands in where an agent is never asked to speak: `invoke` needs no model.
struct Unset;

impl Model for Unset {
    fn info(&self) -> ModelInfo {
        ModelInfo::new("none", "none")
    }

    fn stream(&self, _request: ModelRequest) -> ModelStream {
        let error = crate::model::ModelError::new("none", &AgentError::NoModel.to_string());
        Box::pin(futures_util::stream::once(std::future::ready(Err(error))))
    }
}

impl<R: InstalledResolvers> AgentBuilder<R> {
    fn new() -> Self {
        Self {
            name: Arc::from("agent"),
            instructions: Arc::from(DEFAULT_INSTRUCTIONS),
            model: None,
            resolvers: R::resolvers(),
            settings: ModelSettings::default(),
            registry: Registry::new(),
            stages: Stages::default(),
            permissions: PermissionOptions::default(),
            hooks: Hooks::default(),
            guardrails: Guardrails::new(),
            budgets: Budgets::default(),
            max_calls: Vec::new(),
            max_steps: None,
            state: StateMap::default(),
            run_state: Vec::new(),
            environment: EnvSetup::default(),
            limits: RunLimits::default(),
            timeout: DEFAULT_TIMEOUT,
            grace: GRACE,
            result_limit: DEFAULT_RESULT_LIMIT,
            keep_limits: KeepLimits::default(),
            store: Arc::new(MemoryStore::new()),
            on_drift: OnDrift::default(),
            clock: Arc::new(SystemClock),
            model_timeout: DEFAULT_MODEL_TIMEOUT,
            compaction: None,
            approving: Approving::default(),
            errors: Vec::new(),
            installed: PhantomData,
        }
    }

    /// What it is called in events; `agent` by default.
    #[must_use]
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// Its model: a value implementing [`Model`], or a name such as `openai/gpt-5` or `local`.
    #[must_use]
    pub fn model(mut self, model: impl Into<ModelChoice>) -> Self {
        self.model = Some(model.into());
        self
    }

    /// The model that the environment asks for: `TOOLWRIGHT_MODEL`, else the first provider whose key is set.
    #[must_use]
    pub fn model_from_env(mut self) -> Self {
        self.model = Some(ModelChoice::FromEnv);
        self
    }

    /// One more source of models by name, asked before the others.
    #[must_use]
    pub fn resolver(mut self, resolver: impl ModelResolver) -> Self {
        self.resolvers.insert(0, Arc::new(resolver));
        self
    }

    /// What the model reads first.
    #[must_use]
    pub fn instructions(mut self, instructions: impl Into<Arc<str>>) -> Self {
        self.instructions = instructions.into();
        self
    }

    /// Sampling settings.
    #[must_use]
    pub fn settings(mut self, settings: ModelSettings) -> Self {
        self.settings = settings;
        self
    }

    /// One more tool.
    #[must_use]
    pub fn tool(mut self, tool: Tool) -> Self {
        if let Err(error) = self.registry.register(tool) {
            self.errors.push(error.into());
        }
        self
    }

    /// More tools, in this order.
    #[must_use]
    pub fn tools(self, tools: impl IntoIterator<Item = Tool>) -> Self {
        tools.into_iter().fold(self, Self::tool)
    }

    /// A value that tools take with `State<T>`; one of each type.
    #[must_use]
    pub fn state<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        if let Err(error) = self.state.insert(value) {
            self.errors.push(error.into());
        }
        self
    }

    /// Says that each run brings a value of this type along, with `thread.with_state(...)`.
    #[must_use]
    pub fn run_state<T: Send + Sync + 'static>(mut self) -> Self {
        self.run_state.push((std::any::TypeId::of::<T>(), std::any::type_name::<T>()));
        self
    }

    /// Code that watches and changes calls of tools and of the model. One that has the name of an earlier one takes its place.
    #[must_use]
    pub fn hook(mut self, hook: impl Hook) -> Self {
        self.hooks.add(Arc::new(hook));
        self
    }

    /// More hooks, in this order.
    #[must_use]
    pub fn hooks(mut self, hooks: impl IntoIterator<Item = Arc<dyn Hook>>) -> Self {
        hooks.into_iter().for_each(|hook| self.hooks.add(hook));
        self
    }

    /// Checks of what goes into a run, comes out of it, into tools and out of them. Given again, those are added.
    #[must_use]
    pub fn guardrails(mut self, guardrails: Guardrails) -> Self {
        self.guardrails = self.guardrails.and(guardrails);
        self
    }

    /// What each run may use, from input to answer, pauses included. A limit on steps takes the place of the 10 that a run may take by
    /// default; beside `max_steps`, the stricter counts.
    #[must_use]
    pub fn budget(mut self, budget: Budget) -> Self {
        self.budgets.run = Some(budget);
        self
    }

    /// What a thread may use over all its runs. One that was aborted does not count.
    #[must_use]
    pub fn thread_budget(mut self, budget: Budget) -> Self {
        self.budgets.thread = Some(budget);
        self
    }

    /// How often a run may call a tool; further calls are denied. The tool's own `max_calls` holds beside it.
    #[must_use]
    pub fn max_calls(mut self, tool: impl Into<String>, calls: u32) -> Self {
        self.max_calls.push((tool.into(), calls));
        self
    }

    /// A stage of the gate.
    #[must_use]
    pub fn stage(mut self, kind: StageKind, stage: impl Stage) -> Self {
        self.stages.add(kind, Arc::new(stage));
        self
    }

    /// Permission rules, tried in this order after those that were given before; the first that matches decides. Where none does, the
    /// tool's own `needs_approval` has its say. They apply however a call comes.
    ///
    /// ```
    /// use toolwright_core::policy::{allow, ask, deny, destructive, glob, read_only};
    /// # use toolwright_runtime::{Agent, NoResolvers};
    /// let agent = Agent::<NoResolvers>::builder()
    ///     .rules([deny(glob("delete_*")), ask(destructive()), allow(read_only())])
    ///     .build_without_model()?;
    /// # Ok::<_, toolwright_runtime::AgentError>(())
    /// ```
    #[must_use]
    pub fn rules(mut self, rules: impl IntoIterator<Item = Rule>) -> Self {
        self.permissions.rules.extend(rules);
        self
    }

    /// As [`rules`](Self::rules), for rules that were read from data.
    #[must_use]
    pub fn rule_set(self, rules: &RuleSet) -> Self {
        self.rules(rules.rules().iter().cloned())
    }

    /// The permission mode where neither the thread nor the run has one: a mode, or a function that is asked at every call.
    #[must_use]
    pub fn permission_mode(mut self, mode: impl Into<ModeSource>) -> Self {
        self.permissions.mode = mode.into();
        self
    }

    /// What tools of this origin, such as `mcp:docs`, say of themselves counts for a yes: for rules that allow, and in plan mode. See
    /// [`Matcher::origin`](toolwright_core::policy::Matcher::origin) for the form.
    #[must_use]
    pub fn trust_hints_of(mut self, origin: impl Into<String>) -> Self {
        self.permissions.trusted.push(origin.into());
        self
    }

    /// Is told of what was decided about each call, with who the run acts for (sdk-tools 12.3). It decides nothing.
    #[must_use]
    pub fn on_permission_decision(mut self, tell: impl Fn(&PermissionEntry, Option<&Identity>) + Send + Sync + 'static) -> Self {
        self.permissions.audit = Some(Audit::new(tell));
        self
    }

    /// How many model calls a run may take, pauses included; 10 by default.
    #[must_use]
    pub fn max_steps(mut self, steps: u32) -> Self {
        self.max_steps = Some(steps);
        self
    }

    /// How many bodies run side by side; unbounded by default, 1 is strictly one after another (sdk-tools 5.1).
    #[must_use]
    pub fn tool_concurrency(mut self, limit: u32) -> Self {
        self.limits.tool_concurrency = Some(limit);
        self
    }

    /// How often the same call may give the same result in a row before the run is stopped; 5 by default, `None` is never.
    #[must_use]
    pub fn max_repeats(mut self, repeats: Option<u32>) -> Self {
        self.limits.max_repeats = repeats;
        self
    }

    /// How long a tool may take where it does not say; 120 s by default.
    #[must_use]
    pub fn tool_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How long a body that was told to stop may take to end; 5 s by default.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// The longest tool result, in characters; 100,000 by default.
    #[must_use]
    pub fn result_limit(mut self, characters: usize) -> Self {
        self.result_limit = characters;
        self
    }

    /// How much a thread may keep in files, attachments and values; see [`KeepLimits`] for the defaults.
    #[must_use]
    pub fn keep_limits(mut self, limits: KeepLimits) -> Self {
        self.keep_limits = limits;
        self
    }

    /// How long the model may be silent before the step fails; 300 s by default.
    #[must_use]
    pub fn model_timeout(mut self, timeout: Duration) -> Self {
        self.model_timeout = timeout;
        self
    }

    /// What a model sees is made shorter when it nears the model's window: older tool results become markers, or whatever the
    /// options say. Off by default. The journal keeps everything.
    #[must_use]
    pub fn compaction(mut self, compaction: Compaction) -> Self {
        self.compaction = Some(compaction);
        self
    }

    /// Where journals live; in memory by default.
    #[must_use]
    pub fn store(mut self, store: impl Store) -> Self {
        self.store = Arc::new(store);
        self
    }

    /// What happens when the agent that goes on with a thread differs from the one that began; by default it is told and goes on.
    #[must_use]
    pub fn on_drift(mut self, on_drift: OnDrift) -> Self {
        self.on_drift = on_drift;
        self
    }

    /// Where the time comes from; the system by default.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// The agent, or the first thing that is wrong.
    pub fn build(self) -> Result<Agent<R>, AgentError> {
        let model = self.resolve()?;
        self.build_with(model)
    }

    /// An agent that only calls tools directly, with [`Agent::invoke`]: it needs no model.
    pub fn build_without_model(self) -> Result<Agent<R>, AgentError> {
        self.build_with(Arc::new(Unset))
    }

    fn build_with(mut self, model: Arc<dyn Model>) -> Result<Agent<R>, AgentError> {
        if !self.errors.is_empty() {
            return Err(self.errors.remove(0));
        }
        let by_budget = self.budgets.run.as_ref().and_then(|budget| budget.max_steps);
        self.limits.max_steps = self.max_steps.unwrap_or(if by_budget.is_some() { u32::MAX } else { self.limits.max_steps });
        check_limits(&self.limits)?;
        check_budgets(&self.budgets)?;
        let max_calls = self.checked_max_calls()?;
        check_settings(&self.settings)?;
        let (mut missing, mut of_runs) = (Vec::new(), Vec::new());
        for tool in self.registry.iter() {
            for need in tool.requirements().needs() {
                let Need::State { id, type_name } = need else { continue };
                if self.run_state.iter().any(|(declared, _)| declared == id) {
                    of_runs.push((tool.name().to_string(), need.clone()));
                } else if !self.state.contains_id(*id) && !tool.state().contains_id(*id) {
                    missing.push((tool.name().to_string(), short(type_name)));
                }
            }
        }
        if !missing.is_empty() {
            return Err(AgentError::MissingState { missing });
        }
        let window_warned = AtomicBool::new(false);
        let around = Around { settings: Some(&self.settings), deadline: self.model_timeout, warned: &window_warned };
        let compaction = match self.compaction {
            Some(given) => {
                let compacting = Arc::new(given.resolve(Some(&model.info()), &around)?);
                Some(Configured { given, compacting })
            }
            None => None,
        };
        let tools = self.registry.specs();
        let permissions = self.permissions.build(&self.registry)?;
        let environment = self.environment.build(&self.registry)?;
        let dispatch = Dispatch {
            registry: self.registry,
            stages: self.stages,
            permissions,
            hooks: self.hooks,
            guardrails: Arc::new(self.guardrails),
            max_calls,
            agent: Arc::clone(&self.name),
            state: self.state,
            env: environment.of_nobody(),
            timeout: self.timeout,
            grace: self.grace,
            result_limit: self.result_limit,
            approval_ttl: self.approving.ttl,
        };
        let fingerprint = Fingerprint::of(&model.info().model, &tools, &self.instructions);
        let inner = AgentInner {
            fingerprint: Arc::new(fingerprint),
            on_drift: self.on_drift,
            name: self.name,
            instructions: self.instructions,
            model,
            settings: Arc::new(self.settings),
            dispatch: Arc::new(dispatch),
            tools,
            limits: self.limits,
            steps_given: self.max_steps.is_some(),
            budgets: Arc::new(self.budgets),
            price_warned: Arc::default(),
            store: self.store,
            clock: self.clock,
            model_timeout: self.model_timeout,
            run_state_missing: of_runs,
            hubs: Arc::default(),
            compaction,
            window_warned,
            turns: PerThread::default(),
            trees: PerThread::default(),
            keep_limits: self.keep_limits,
            approving: self.approving,
            environment,
        };
        Ok(Agent { inner: Arc::new(inner), resolvers: PhantomData })
    }

    /// Limits on calls, of tools that there are.
    fn checked_max_calls(&self) -> Result<HashMap<Arc<str>, u32>, AgentError> {
        let mut limits = HashMap::new();
        for (name, calls) in &self.max_calls {
            let tool = self.registry.resolve(name).ok_or_else(|| AgentError::Invalid {
                field: "max_calls".to_owned(),
                given: format!("for `{name}`"),
                fix: "give the name of a tool of this agent".to_owned(),
            })?;
            limits.insert(tool.name().to_shared(), *calls);
        }
        Ok(limits)
    }

    fn resolve(&self) -> Result<Arc<dyn Model>, AgentError> {
        let name = match &self.model {
            None => return Err(AgentError::NoModel),
            Some(ModelChoice::Value(model)) => return Ok(Arc::clone(model)),
            Some(ModelChoice::Named(name)) => name.clone(),
            Some(ModelChoice::FromEnv) => self.resolvers.iter().find_map(|resolver| resolver.from_env()).ok_or(AgentError::NoModel)?,
        };
        match self.resolvers.iter().find_map(|resolver| resolver.resolve(&name)) {
            Some(resolved) => Ok(resolved?),
            None => Err(AgentError::Model(unknown_model(&name, &self.resolvers))),
        }
    }
}

fn unknown_model(name: &str, resolvers: &[Arc<dyn ModelResolver>]) -> crate::model::ResolveError {
    let known: Vec<String> = resolvers.iter().flat_map(|resolver| resolver.known()).collect();
    let message = if known.is_empty() {
        format!(
            "no source of models by name is installed, so `{name}` is not found; give a model value, or a resolver with `.resolver(...)`"
        )
    } else {
        format!("the model `{name}` is not known; use one of {}", known.join(", "))
    };
    crate::model::ResolveError { message, code: "TOOLWRIGHT_PROVIDER_UNKNOWN" }
}

/// `demo::clients::WeatherClient` is `WeatherClient` to the author of the builder.
fn short(type_name: &str) -> String {
    let base = type_name.split('<').next().unwrap_or(type_name);
    base.rsplit("::").next().unwrap_or(base).to_owned()
}

pub(crate) fn check_limits(limits: &RunLimits) -> Result<(), AgentError> {
    let invalid = |field: &str, fix: &str| AgentError::Invalid { field: field.to_owned(), given: "0".to_owned(), fix: fix.to_owned() };
    if limits.max_steps == 0 {
        return Err(invalid("max_steps", "give a whole number of at least 1"));
    }
    if limits.tool_concurrency == Some(0) {
        return Err(invalid("tool_concurrency", "give a whole number of at least 1, or leave it out for no limit"));
    }
    if limits.max_repeats == Some(0) {
        return Err(invalid("max_repeats", "give a whole number of at least 1, or `None` for no limit"));
    }
    Ok(())
}

pub(crate) fn check_budgets(budgets: &Budgets) -> Result<(), AgentError> {
    for (scope, budget) in [("budget", &budgets.run), ("thread_budget", &budgets.thread)] {
        if let Some(Err((limit, given))) = budget.as_ref().map(Budget::check) {
            let fix = "give a number above 0, or leave it out for no limit".to_owned();
            return Err(AgentError::Invalid { field: format!("{scope}.{limit}"), given, fix });
        }
    }
    Ok(())
}

pub(crate) fn check_settings(settings: &ModelSettings) -> Result<(), AgentError> {
    let within = |name: &str, value: Option<f64>, low: f64, high: f64| match value {
        Some(value) if !(low..=high).contains(&value) => Err(AgentError::Invalid {
            field: format!("settings.{name}"),
            given: value.to_string(),
            fix: format!("give a number from {low} to {high}"),
        }),
        _ => Ok(()),
    };
    within("temperature", settings.temperature, 0.0, 2.0)?;
    within("top_p", settings.top_p, 0.0, 1.0)?;
    within("frequency_penalty", settings.frequency_penalty, -2.0, 2.0)?;
    within("presence_penalty", settings.presence_penalty, -2.0, 2.0)?;
    if settings.max_tokens == Some(0) {
        let fix = "give a whole number of at least 1".to_owned();
        return Err(AgentError::Invalid { field: "settings.max_tokens".to_owned(), given: "0".to_owned(), fix });
    }
    Ok(())
}

/// What starts a run: new input, or a call that no model asked for.
pub(crate) enum Start {
    Input(Vec<Message>),
    Call(CallOpening),
    GoOn,
    /// A run that nobody moves any more, or a wait, is ended.
    Stop(AbortReason),
}

impl Start {
    pub(crate) fn cause(&self) -> RunCause {
        match self {
            Self::Input(_) => RunCause::Input,
            Self::Call(_) => RunCause::Invocation,
            Self::GoOn | Self::Stop(_) => RunCause::Resume,
        }
    }

    pub(crate) fn call(tool: Arc<str>, arguments: &str, id: CallId) -> Self {
        Self::Call(CallOpening {
            call: id,
            tool,
            origin: CallOrigin::Client,
            parent: None,
            arguments: Some(arguments.into()),
            sequential: false,
        })
    }
}

/// Input as messages, checked: not empty, balanced, no role that only the runtime writes.
pub(crate) fn checked_input(input: Input) -> Result<Vec<Message>, AgentError> {
    let blank = |item: &Item| matches!(item, Item::Text { text } if text.trim().is_empty());
    if input.0.iter().all(|message| message.items.iter().all(blank)) {
        return Err(AgentError::MissingInput);
    }
    let transcript: toolwright_core::Transcript = input.0.iter().cloned().collect();
    transcript.check_balance().map_err(|error| AgentError::Unbalanced { problem: error.to_string() })?;
    let results_by_others = input.0.iter().any(|message| message.author != Author::Tool && message.results().next().is_some());
    if results_by_others {
        return Err(AgentError::Unbalanced { problem: "only a message of the author `tool` holds results".to_owned() });
    }
    Ok(input.0)
}

pub(crate) fn next_run(
    inner: &AgentInner,
    (limits, budgets): (RunLimits, &Arc<Budgets>),
    principal: Option<&Identity>,
    metadata: Map<String, Value>,
    added: Option<Arc<str>>,
) -> NextRun {
    NextRun {
        id: crate::random::run_id(),
        agent: Arc::clone(&inner.name),
        limits,
        principal: principal.and_then(|who| serde_json::to_value(who).ok()),
        metadata,
        instructions: Some(Arc::clone(&inner.instructions)),
        added,
        fingerprint: Some(Arc::clone(&inner.fingerprint)),
        mode: None,
        budgets: (**budgets != Budgets::default()).then(|| Arc::clone(budgets)),
        checks_input: inner.dispatch.guardrails.checks_input(),
    }
}
