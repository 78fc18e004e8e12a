//! Context compaction: what a model sees is made shorter when it nears the model's window (sdk-runtime 29).
//!
//! Off unless [`crate::AgentBuilder::compaction`] asks for it. Before each model call the shell estimates the request; above the
//! threshold, a [`CompactionStrategy`] says which results become markers and which messages one summary. The answer is a record
//! of the step, so it holds for the steps after it, and a process that goes on after a crash sees the same. The journal keeps
//! everything. Nothing here fails a run: what goes wrong stands in the record, and the model is asked all the same.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use toolwright_core::compact::{apply, protected_from, prunable};
use toolwright_core::{CallId, Folded, Record, RecordBody, RunId, Seq, Thread, ThreadId, ToolSpec, Transcript, Usage, bounded, tokens};

use crate::error::AgentError;
use crate::load::load;
use crate::model::{Model, ModelInfo, ModelSettings};
use crate::shell::RENEWALS;
use crate::store::Append;
use crate::summarize::TwoPhase;
use crate::thread::ThreadHandle;

/// Above which part of the window something is done.
pub const DEFAULT_THRESHOLD_PERCENT: f64 = 0.9;
/// The window of a model that does not say (sdk-runtime CMP-15).
pub const DEFAULT_CONTEXT_WINDOW: u64 = 128_000;
/// How many tokens of the newest messages stay as they are, at most: where half of the threshold is less, it is that.
pub const DEFAULT_PROTECTED_TOKENS: u64 = 40_000;
/// The longest error that a record keeps, in characters.
const MAX_ERROR: usize = 500;

type Told = Arc<dyn Fn(&toolwright_core::Compaction) + Send + Sync>;

/// How what a model sees is made shorter when it grows too long; see [`crate::AgentBuilder::compaction`].
///
/// What is not set is taken from the agent for a thread's own options, and has a default otherwise.
#[derive(Clone, Default)]
pub struct Compaction {
    strategy: Option<Arc<dyn CompactionStrategy>>,
    summarizer: Option<Arc<dyn Model>>,
    threshold_percent: Option<f64>,
    context_window: Option<u64>,
    protected_tokens: Option<u64>,
    reserve_output_tokens: Option<u64>,
    told: Option<Told>,
}

impl std::fmt::Debug for Compaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compaction")
            .field("strategy", &self.strategy.as_ref().map(|strategy| strategy.name().to_owned()))
            .field("summarizer", &self.summarizer.as_ref().map(|model| model.info().name()))
            .field("threshold_percent", &self.threshold_percent)
            .field("context_window", &self.context_window)
            .field("protected_tokens", &self.protected_tokens)
            .field("reserve_output_tokens", &self.reserve_output_tokens)
            .finish_non_exhaustive()
    }
}

impl Compaction {
    /// Older tool results become markers; everything at its default.
    pub fn new() -> Self {
        Self::default()
    }

    /// What decides: [`PruneToolResults`] by default, [`crate::Summarize`], [`TwoPhase`], or one of the application's own.
    #[must_use]
    pub fn strategy(mut self, strategy: impl CompactionStrategy) -> Self {
        self.strategy = Some(Arc::new(strategy));
        self
    }

    /// The model that writes summaries: older results become markers, and where that is not enough, older turns one summary. The
    /// same as the strategy [`TwoPhase`]; set beside a strategy it is a mistake (sdk-runtime CMP-1).
    #[must_use]
    pub fn summarizer(mut self, model: impl Model) -> Self {
        self.summarizer = Some(Arc::new(model));
        self
    }

    /// Above which part of the window something is done, above 0 and up to 1; 0.9 by default.
    #[must_use]
    pub fn threshold_percent(mut self, part: f64) -> Self {
        self.threshold_percent = Some(part);
        self
    }

    /// Tokens that fit in a request and its reply together; what the model says by default, 128,000 where it does not.
    #[must_use]
    pub fn context_window(mut self, tokens: u64) -> Self {
        self.context_window = Some(tokens);
        self
    }

    /// How many tokens of the newest messages stay as they are; 40,000 by default, or half of the threshold if that is less.
    #[must_use]
    pub fn protected_tokens(mut self, tokens: u64) -> Self {
        self.protected_tokens = Some(tokens);
        self
    }

    /// Tokens of the window that are kept free for the reply; the `max_tokens` of the settings by default, where it is less than
    /// half of the window. The threshold is never above what is left.
    #[must_use]
    pub fn reserve_output_tokens(mut self, tokens: u64) -> Self {
        self.reserve_output_tokens = Some(tokens);
        self
    }

    /// Called after each compaction that changed something, once it is durable. It holds the thread for as long as it takes.
    #[must_use]
    pub fn on_compaction(mut self, told: impl Fn(&toolwright_core::Compaction) + Send + Sync + 'static) -> Self {
        self.told = Some(Arc::new(told));
        self
    }

    /// These options, and those of `base` where one is not set. Strategy and summarizer are one choice.
    pub(crate) fn over(self, base: Option<&Self>) -> Self {
        let Some(base) = base else { return self };
        let chooses = self.strategy.is_some() || self.summarizer.is_some();
        let (strategy, summarizer) =
            if chooses { (self.strategy, self.summarizer) } else { (base.strategy.clone(), base.summarizer.clone()) };
        Self {
            strategy,
            summarizer,
            threshold_percent: self.threshold_percent.or(base.threshold_percent),
            context_window: self.context_window.or(base.context_window),
            protected_tokens: self.protected_tokens.or(base.protected_tokens),
            reserve_output_tokens: self.reserve_output_tokens.or(base.reserve_output_tokens),
            told: self.told.or_else(|| base.told.clone()),
        }
    }

    /// The options with their figures, or what is wrong with them. `model` is the one whose window counts.
    pub(crate) fn resolve(&self, model: Option<&ModelInfo>, around: &Around<'_>) -> Result<Compacting, AgentError> {
        let invalid = |field: &str, given: String, fix: &str| AgentError::Invalid {
            field: format!("compaction.{field}"),
            given,
            fix: fix.to_owned(),
        };
        let strategy: Arc<dyn CompactionStrategy> = match (&self.strategy, &self.summarizer) {
            (Some(_), Some(_)) => {
                let given = "set together with compaction.strategy".to_owned();
                return Err(invalid("summarizer", given, "leave one of them out: a strategy has its own summarizer"));
            }
            (Some(strategy), None) => Arc::clone(strategy),
            (None, Some(model)) => Arc::new(TwoPhase::new(Arc::clone(model))),
            (None, None) => Arc::new(PruneToolResults),
        };
        let part = self.threshold_percent.unwrap_or(DEFAULT_THRESHOLD_PERCENT);
        if !(part > 0.0 && part <= 1.0) {
            return Err(invalid("threshold_percent", part.to_string(), "give a number above 0 and up to 1"));
        }
        let window = match self.context_window.or_else(|| model.and_then(|info| info.context_window)) {
            Some(0) => return Err(invalid("context_window", "0".to_owned(), "give a whole number of at least 1")),
            Some(window) => window,
            None => {
                if let Some(info) = model.filter(|_| !around.warned.swap(true, Ordering::Relaxed)) {
                    tracing::warn!(
                        model = %info.name(),
                        "the context window of {} is not known, so {DEFAULT_CONTEXT_WINDOW} tokens are assumed; give it with `context_window`",
                        info.name(),
                    );
                }
                DEFAULT_CONTEXT_WINDOW
            }
        };
        let reserve = match (self.reserve_output_tokens, around.settings.and_then(|settings| settings.max_tokens)) {
            (Some(reserve), _) if reserve >= window => {
                return Err(invalid(
                    "reserve_output_tokens",
                    reserve.to_string(),
                    &format!("give less than the window of {window} tokens"),
                ));
            }
            (Some(reserve), _) => reserve,
            (None, Some(longest)) => Some(u64::from(longest)).filter(|longest| *longest < window / 2).unwrap_or(0),
            (None, None) => 0,
        };
        let threshold_tokens = ((window as f64 * part) as u64).min(window - reserve).max(1);
        Ok(Compacting {
            strategy,
            context_window: window,
            threshold_tokens,
            protected_tokens: self.protected_tokens.unwrap_or_else(|| DEFAULT_PROTECTED_TOKENS.min(threshold_tokens / 2)),
            deadline: around.deadline,
            told: self.told.clone(),
        })
    }
}

/// What options are resolved with.
pub(crate) struct Around<'a> {
    /// Sampling settings of the agent.
    pub(crate) settings: Option<&'a ModelSettings>,
    /// How long a strategy may take.
    pub(crate) deadline: Duration,
    /// Whether it was said that the window is not known.
    pub(crate) warned: &'a AtomicBool,
}

/// An agent's options, as given and with their figures.
#[derive(Clone)]
pub(crate) struct Configured {
    pub(crate) given: Compaction,
    pub(crate) compacting: Arc<Compacting>,
}

/// What a strategy is given (sdk-runtime CMP-10).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CompactionRequest {
    /// The transcript, balanced.
    pub messages: Transcript,
    /// Tokens of the whole request now: instructions, tools and messages. Where the provider counted the last one, no fewer.
    pub tokens: u64,
    /// The model's window.
    pub context_window: u64,
    /// How many tokens of the newest messages stay as they are.
    pub protected_tokens: u64,
    /// From how many tokens on something is to be done.
    pub threshold_tokens: u64,
    /// Somebody asked for it: it is to be done whatever the threshold says.
    pub forced: bool,
    /// The thread, if it is about one.
    pub thread: Option<ThreadId>,
    /// The run before whose model call it is.
    pub run: Option<RunId>,
    /// Its step.
    pub step: Option<u32>,
    /// Today's date as the runtime's clock has it.
    pub today: Arc<str>,
    /// How long the strategy may take, what it asks of models included.
    pub deadline: Duration,
    /// Fires when the answer is no longer wanted.
    pub cancelled: CancellationToken,
    /// Of `tokens`, those of the messages as we count them.
    counted: u64,
}

impl CompactionRequest {
    /// The token counter: how many tokens the whole request would have with these messages in place of its own.
    pub fn count(&self, messages: &Transcript) -> u64 {
        let now = tokens::of_messages(messages.iter());
        // What is not ours to count, and what a provider counted beyond our estimate, stays.
        self.tokens.saturating_sub(self.counted).saturating_add(now)
    }
}

/// What a strategy wants done. Nothing, by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CompactionPlan {
    /// Calls whose results become markers.
    pub pruned: Vec<CallId>,
    /// Messages that become one summary: index ranges in the messages as they were given, each whole groups of calls and results.
    pub folded: Option<Folded>,
    /// What the summary cost.
    pub usage: Option<Usage>,
    /// What went wrong on the way.
    pub error: Option<String>,
}

impl CompactionPlan {
    /// Nothing is done.
    pub fn nothing() -> Self {
        Self::default()
    }

    /// Every older result that the marker is shorter than becomes one.
    pub fn prune(messages: &Transcript, protected_tokens: u64) -> Self {
        Self { pruned: prunable(messages, protected_from(messages, protected_tokens)), ..Self::default() }
    }
}

/// Why a strategy has no plan.
pub type CompactionFailure = Box<dyn std::error::Error + Send + Sync>;

/// Decides how what a model sees is made shorter.
///
/// A plan is held to what always holds, whatever it says: calls and results stay paired; pinned and system messages stay, and so
/// does everything after the last reply. One that breaks this, an error, a panic or a missed deadline changes nothing and is told
/// in the record. A strategy changes only what it names, so that the journal need not carry the transcript once more.
pub trait CompactionStrategy: Send + Sync + 'static {
    /// What it is called in records and events.
    fn name(&self) -> &str;

    /// The plan. [`CompactionPlan::nothing`] where there is nothing to do.
    fn plan<'a>(&'a self, request: &'a CompactionRequest) -> BoxFuture<'a, Result<CompactionPlan, CompactionFailure>>;
}

/// Older tool results become markers (sdk-runtime CMP-5).
#[derive(Clone, Copy, Debug, Default)]
pub struct PruneToolResults;

impl CompactionStrategy for PruneToolResults {
    fn name(&self) -> &'static str {
        "prune"
    }

    fn plan<'a>(&'a self, request: &'a CompactionRequest) -> BoxFuture<'a, Result<CompactionPlan, CompactionFailure>> {
        std::future::ready(Ok(CompactionPlan::prune(&request.messages, request.protected_tokens))).boxed()
    }
}

/// Options with their figures: what a shell compacts with.
pub(crate) struct Compacting {
    strategy: Arc<dyn CompactionStrategy>,
    context_window: u64,
    threshold_tokens: u64,
    protected_tokens: u64,
    deadline: Duration,
    told: Option<Told>,
}

/// Why what a model sees is made shorter now.
pub(crate) enum Trigger {
    /// It is too long for this step's model call.
    Step { run: Option<RunId>, step: u32, prune_only: bool },
    /// Somebody asked.
    Manual,
}

impl Compacting {
    pub(crate) fn threshold_tokens(&self) -> u64 {
        self.threshold_tokens
    }

    /// What a strategy is given.
    pub(crate) fn request(
        &self,
        messages: Transcript,
        size: Size,
        thread: Option<ThreadId>,
        today: Arc<str>,
        cancelled: CancellationToken,
    ) -> CompactionRequest {
        CompactionRequest {
            messages,
            tokens: size.total,
            context_window: self.context_window,
            protected_tokens: self.protected_tokens,
            threshold_tokens: self.threshold_tokens,
            forced: false,
            thread,
            run: None,
            step: None,
            today,
            deadline: self.deadline,
            cancelled,
            counted: size.messages,
        }
    }

    /// Asks the strategy, holds its plan to the rules, and gives the record. Never fails.
    pub(crate) async fn run(&self, mut request: CompactionRequest, trigger: Trigger) -> toolwright_core::Compaction {
        let prune_only = matches!(trigger, Trigger::Step { prune_only: true, .. });
        match trigger {
            Trigger::Step { run, step, .. } => (request.run, request.step) = (run, Some(step)),
            Trigger::Manual => request.forced = true,
        }
        let strategy: &dyn CompactionStrategy = if prune_only { &PruneToolResults } else { &*self.strategy };
        let planned = AssertUnwindSafe(async { strategy.plan(&request).await }).catch_unwind();
        // A summarizer has ended by itself before.
        let plan = match tokio::time::timeout(self.deadline + Duration::from_secs(1), planned).await {
            Ok(Ok(Ok(plan))) => plan,
            Ok(Ok(Err(error))) => failed(&error.to_string()),
            Ok(Err(_)) => failed(&format!("the code of the strategy `{}` panicked", strategy.name())),
            Err(_) => failed(&format!("the strategy `{}` did not end within {} s", strategy.name(), self.deadline.as_secs())),
        };
        self.held(strategy.name(), plan, &request)
    }

    /// The plan as far as it may be used, as a record.
    fn held(&self, strategy: &str, plan: CompactionPlan, request: &CompactionRequest) -> toolwright_core::Compaction {
        let mut record = self.unchanged(strategy, request.tokens, request.step);
        (record.usage, record.error) = (plan.usage, plan.error.map(|error| bounded(&error, MAX_ERROR)));
        let after = match apply(&request.messages, &plan.pruned, plan.folded.as_ref()) {
            Ok(messages) => request.count(&messages),
            Err(why) => {
                record.error = Some(bounded(&format!("the plan of `{strategy}` can't be used: {why}"), MAX_ERROR));
                return record;
            }
        };
        let limit = if request.forced { request.tokens } else { request.threshold_tokens.min(request.tokens) };
        if plan.folded.is_some() && after > limit {
            // sdk-runtime CMP-9
            let what = if after > request.tokens { "would make it longer" } else { "is not enough" };
            record.error = Some(format!("the summary {what}: {after} tokens where {limit} are wanted; it was not used"));
            record.prune_only = !request.forced;
            let pruned = CompactionPlan::prune(&request.messages, request.protected_tokens).pruned;
            if let Ok(messages) = apply(&request.messages, &pruned, None) {
                (record.tokens_after, record.pruned) = (request.count(&messages), pruned);
            }
            return record;
        }
        if after > request.tokens {
            record.error = Some(format!("the plan of `{strategy}` would make it longer, {after} tokens in place of {}", request.tokens));
            return record;
        }
        (record.tokens_after, record.pruned, record.folded) = (after, plan.pruned, plan.folded);
        record
    }

    /// The record of a compaction that changes nothing.
    fn unchanged(&self, strategy: &str, tokens: u64, step: Option<u32>) -> toolwright_core::Compaction {
        toolwright_core::Compaction {
            step,
            strategy: strategy.into(),
            tokens_before: tokens,
            tokens_after: tokens,
            context_window: self.context_window,
            threshold_tokens: self.threshold_tokens,
            pruned: Vec::new(),
            folded: None,
            error: None,
            prune_only: false,
            usage: None,
        }
    }

    /// The record where even that code failed which has to hold everything.
    pub(crate) fn broken(&self, tokens: u64, step: u32) -> toolwright_core::Compaction {
        let mut record = self.unchanged(self.strategy.name(), tokens, Some(step));
        record.error = Some("compaction panicked".to_owned());
        record
    }

    /// Tells the application, if something changed.
    pub(crate) fn tell(&self, compaction: &toolwright_core::Compaction) {
        let Some(told) = self.told.as_ref().filter(|_| changed(compaction)) else { return };
        if std::panic::catch_unwind(AssertUnwindSafe(|| told(compaction))).is_err() {
            tracing::warn!("`on_compaction` panicked; the run goes on");
        }
    }
}

fn failed(error: &str) -> CompactionPlan {
    CompactionPlan { error: Some(error.to_owned()), ..CompactionPlan::default() }
}

fn changed(compaction: &toolwright_core::Compaction) -> bool {
    !compaction.pruned.is_empty() || compaction.folded.is_some()
}

/// How long a request is, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    /// The messages, as we count them.
    pub(crate) messages: u64,
    /// All of it; no less than what the provider counted of the last one.
    pub(crate) total: u64,
}

/// Measures a thread's next request. A message is counted once, however many steps follow it.
pub(crate) struct Meter {
    /// Instructions and tools.
    fixed: u64,
    counted: usize,
    messages: u64,
}

impl Meter {
    pub(crate) fn new(instructions: &str, tools: &[Arc<ToolSpec>]) -> Self {
        let tools = tools.iter().map(|tool| tokens::of_tool(tool)).fold(0, u64::saturating_add);
        Self { fixed: tokens::of_text(instructions).saturating_add(tools), counted: 0, messages: 0 }
    }

    pub(crate) fn size(&mut self, thread: &Thread) -> Size {
        let transcript = thread.transcript();
        self.messages = self.messages.saturating_add(tokens_from(transcript, self.counted));
        self.counted = transcript.len();
        let own = self.fixed.saturating_add(self.messages);
        let reported = thread.measured().map(|measured| measured.tokens.saturating_add(tokens_from(transcript, measured.messages)));
        Size { messages: self.messages, total: own.max(reported.unwrap_or(0)) }
    }

    /// What was counted has changed.
    pub(crate) fn forget(&mut self) {
        (self.counted, self.messages) = (0, 0);
    }
}

fn tokens_from(transcript: &Transcript, from: usize) -> u64 {
    (from..transcript.len()).filter_map(|at| transcript.get(at)).map(|message| tokens::of_message(message)).fold(0, u64::saturating_add)
}

/// What a compaction that somebody asked for did (sdk-runtime CMP-13).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompactionOutcome {
    /// Messages of the transcript before.
    pub messages_before: usize,
    /// And after.
    pub messages_after: usize,
    /// Tokens of a request with them before, estimated: instructions and tools included.
    pub tokens_before: u64,
    /// And after.
    pub tokens_after: u64,
    /// What decided.
    pub strategy: Arc<str>,
    /// What went wrong on the way.
    pub error: Option<String>,
}

impl ThreadHandle {
    /// Makes what a model sees of the thread shorter now, whatever its length, with the options of the thread, else of the agent.
    /// The journal keeps everything. A thread without messages stays as it is. Refused while somebody moves the thread, and where
    /// its run was interrupted or calls wait for decisions.
    pub async fn compact(&self) -> Result<CompactionOutcome, AgentError> {
        self.compact_with(Compaction::new()).await
    }

    /// As [`ThreadHandle::compact`], with these options before those of the thread and the agent.
    pub async fn compact_with(&self, options: Compaction) -> Result<CompactionOutcome, AgentError> {
        let id = self.id()?;
        let inner = &self.inner;
        let given = self.compaction_in_force().map(|configured| &configured.given);
        let compacting = options.over(given).resolve(Some(&inner.model.info()), &inner.around_compaction())?;
        let claim = inner.store.claim(id).await?;
        let thread = load(&*inner.store, id).await?.thread;
        if let Some(kind) = thread.blocked_by() {
            return Err(AgentError::UnknownRecord { thread: id.clone(), kind: kind.to_owned() });
        }
        if thread.head() > Seq(0) {
            Self::must_rest(&thread, id)?;
        }
        let size = Meter::new(&inner.instructions, &inner.tools).size(&thread);
        let messages_before = thread.transcript().len();
        let mut outcome = CompactionOutcome {
            messages_before,
            messages_after: messages_before,
            tokens_before: size.total,
            tokens_after: size.total,
            strategy: compacting.strategy.name().into(),
            error: None,
        };
        if thread.transcript().is_empty() {
            inner.store.release(Arc::from(claim)).await;
            return Ok(outcome);
        }
        let now = inner.clock.now();
        let today = now.to_iso().get(..10).unwrap_or_default().into();
        // Whoever asked may stop waiting: a summarizer hears of it.
        let cancelled = CancellationToken::new();
        let _guard = cancelled.clone().drop_guard();
        let request = compacting.request(thread.transcript().clone(), size, Some(id.clone()), today, cancelled);
        let mut work = std::pin::pin!(compacting.run(request, Trigger::Manual));
        let compaction = loop {
            tokio::select! {
                compaction = &mut work => break compaction,
                () = tokio::time::sleep(inner.store.claim_limit() / RENEWALS) => inner.store.renew(&*claim).await?,
            }
        };
        let mut after = thread;
        let mut record =
            Record { seq: after.head().next(), at: inner.clock.now(), run: None, body: RecordBody::ContextCompacted(compaction.clone()) };
        if let Some(redactor) = inner.redactor(id).await? {
            let clean = redactor.record(&record).map_err(|error| AgentError::Unredactable { problem: error.to_string() })?;
            record = clean.unwrap_or(record);
        }
        let head = after.head();
        after.apply(&record)?;
        inner.store.append(&*claim, head, Append::records(vec![Arc::new(record)])).await?;
        inner.store.release(Arc::from(claim)).await;
        compacting.tell(&compaction);
        outcome.messages_after = after.transcript().len();
        (outcome.tokens_after, outcome.strategy, outcome.error) = (compaction.tokens_after, compaction.strategy, compaction.error);
        Ok(outcome)
    }
}

/// A list of messages that was made shorter.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CompactedMessages {
    /// The new list.
    pub messages: Transcript,
    /// Tokens of the messages before, estimated.
    pub tokens_before: u64,
    /// And after.
    pub tokens_after: u64,
    /// Calls whose results are now a marker.
    pub pruned: Vec<CallId>,
    /// The summary, without its header, if there is one.
    pub summary: Option<Arc<str>>,
    /// What decided.
    pub strategy: Arc<str>,
    /// What went wrong on the way.
    pub error: Option<String>,
}

/// Makes a list of messages shorter, whatever its length, and leaves it as it is: the new list is another (sdk-runtime CMP-12). No
/// model is known here, so the window is 128,000 tokens unless the options say; a summarizer has 300 s.
pub async fn compact_messages(messages: &Transcript, options: &Compaction) -> Result<CompactedMessages, AgentError> {
    messages.check_balance().map_err(|error| AgentError::Unbalanced { problem: error.to_string() })?;
    let warned = AtomicBool::new(true);
    let around = Around { settings: None, deadline: crate::agent::DEFAULT_MODEL_TIMEOUT, warned: &warned };
    let compacting = options.resolve(None, &around)?;
    let counted = tokens::of_messages(messages.iter());
    let cancelled = CancellationToken::new();
    let _guard = cancelled.clone().drop_guard();
    let size = Size { messages: counted, total: counted };
    let request = compacting.request(messages.clone(), size, None, Arc::from(""), cancelled);
    let done = compacting.run(request, Trigger::Manual).await;
    let messages = apply(messages, &done.pruned, done.folded.as_ref()).map_err(|problem| AgentError::Unbalanced { problem })?;
    compacting.tell(&done);
    Ok(CompactedMessages {
        messages,
        tokens_before: done.tokens_before,
        tokens_after: done.tokens_after,
        pruned: done.pruned,
        summary: done.folded.map(|folded| folded.summary),
        strategy: done.strategy,
        error: done.error,
    })
}
