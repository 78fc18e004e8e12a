//! Decisions that somebody has to make, and results that come from outside.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use toolwright_core::args::Repair;
use toolwright_core::{
    ApprovalId, AskKind, CallId, Decision, DecisionVerdict, RecordBody, Seq, Thread, ThreadId, ToolFailure, ToolFailureKind, ToolOutput,
};
use toolwright_tool::Identity;

use crate::agent::{Agent, AgentBuilder, AgentInner};
use crate::approve::{Approve, ApproveAnswer};
use crate::error::AgentError;
use crate::index::PendingApproval;
use crate::load::load;
use crate::posting::{begin, decided, fits, may_decide, people, post_decision, with_posted};
use crate::run::{Reply, RunStream};
use crate::store::{InboxItem, Page};
use crate::thread::ThreadHandle;

/// Whether somebody may decide, in place of the default: see [`AgentBuilder::authorize_approvals`].
type Authorize = Arc<dyn Fn(Identity, PendingApproval) -> BoxFuture<'static, bool> + Send + Sync>;

/// How an agent has its calls decided.
#[derive(Clone, Default)]
pub(crate) struct Approving {
    /// How long a question stands where neither tool nor rule says.
    pub(crate) ttl: Option<Duration>,
    /// Decides in code.
    pub(crate) approve: Option<Approve>,
    authorize: Option<Authorize>,
}

impl<R> AgentBuilder<R> {
    /// How long a decision is waited for where neither the tool nor a rule says; for ever by default. What is decided later is
    /// refused, and so is the call; a worker that runs then lets the run go on by itself (sdk-tools 13.4/2).
    #[must_use]
    pub fn approval_ttl(mut self, time: Duration) -> Self {
        self.approving.ttl = Some(time);
        self
    }

    /// Decides in code what waits: after a `send`, and after [`Approvals::resolve`], until the run is done or `approve` defers.
    /// Streams still end at the pause. It is not asked about sign-ins, nor about results that come from outside (sdk-tools 13.6). If
    /// it fails or panics, the send fails with `TOOLWRIGHT_AGENT_EXECUTION_FAILED` and the call still waits.
    ///
    /// Code is nobody: where certain people have to decide, or several have to approve, its yes without a [`Decision::by`] that
    /// counts there is no decision, and the call waits for them.
    ///
    /// ```
    /// use toolwright_runtime::{Agent, ApproveAnswer, NoResolvers};
    ///
    /// let builder = Agent::<NoResolvers>::builder().approve(|pending| async move {
    ///     match &*pending.tool {
    ///         "delete_branch" => Ok(ApproveAnswer::reject().note("branches are kept")),
    ///         "send_mail" => Ok(ApproveAnswer::Defer),
    ///         _ => Ok(ApproveAnswer::approve()),
    ///     }
    /// });
    /// # let _ = builder;
    /// ```
    #[must_use]
    pub fn approve<F, Fut>(mut self, approve: F) -> Self
    where
        F: Fn(PendingApproval) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<ApproveAnswer, toolwright_tool::ToolError>> + Send + 'static,
    {
        self.approving.approve = Some(Approve::new(approve));
        self
    }

    /// Who may decide through [`Approvals::on_behalf_of`], in place of the default: only whom the run acts for, and anybody where it
    /// acts for nobody (sdk-tools 15/6).
    #[must_use]
    pub fn authorize_approvals<F, Fut>(mut self, authorize: F) -> Self
    where
        F: Fn(Identity, PendingApproval) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = bool> + Send + 'static,
    {
        self.approving.authorize = Some(Arc::new(move |who, pending| authorize(who, pending).boxed()));
        self
    }
}

impl<R> Agent<R> {
    /// Decisions that somebody has to make, on any of the store's threads.
    pub fn approvals(&self) -> Approvals {
        Approvals::of(&self.inner)
    }

    /// Calls whose results come from outside: of tools made with [`toolwright_tool::Tool::external`].
    pub fn calls(&self) -> Calls {
        Calls { approvals: self.approvals() }
    }
}

/// An agent's pending decisions.
///
/// A decision may be made from any process that has the store: it is posted to the thread, where only the first counts, and whoever
/// moves the thread takes it from there. It is bound to the call and to the SHA-256 of the arguments that were shown.
#[derive(Clone)]
pub struct Approvals {
    inner: Arc<AgentInner>,
    principal: Option<Identity>,
}

/// How often somebody looks again at a thread that moved while they looked.
const MOST_LOOKS: u32 = 8;

/// A pending decision, and what it is bound to.
struct Found {
    thread: ThreadId,
    fold: Thread,
    pending: PendingApproval,
}

impl Approvals {
    pub(crate) fn of(inner: &Arc<AgentInner>) -> Self {
        Self { inner: Arc::clone(inner), principal: None }
    }

    /// The same, for `who`: what they may not decide is refused with `TOOLWRIGHT_APPROVAL_FORBIDDEN`, and decisions are made in their
    /// name. Whom the run acts for does not change (sdk-tools 15/4).
    #[must_use]
    pub fn on_behalf_of(mut self, who: Identity) -> Self {
        self.principal = Some(who);
        self
    }

    /// What waits, on every thread of the store, oldest first.
    pub async fn pending(&self) -> Result<Vec<PendingApproval>, AgentError> {
        let mut all = Vec::new();
        let mut cursor = None;
        loop {
            let page = self.page(cursor.as_deref(), 1000).await?;
            all.extend(page.items);
            cursor = page.next;
            if cursor.is_none() {
                return Ok(all);
            }
        }
    }

    /// A page of what waits, oldest first: at most `limit`, from the `next` of the page before.
    pub async fn page(&self, cursor: Option<&str>, limit: usize) -> Result<Page<PendingApproval>, AgentError> {
        Ok(self.inner.store.pending(None, cursor, limit).await?)
    }

    /// One of them, with what was handed on and approved so far.
    ///
    /// # Errors
    ///
    /// `TOOLWRIGHT_APPROVAL_NOT_FOUND` if there is none, `TOOLWRIGHT_APPROVAL_CONFLICT` if it was decided.
    pub async fn get(&self, id: &ApprovalId) -> Result<PendingApproval, AgentError> {
        Ok(self.find(id).await?.pending)
    }

    async fn find(&self, id: &ApprovalId) -> Result<Found, AgentError> {
        let not_found = || AgentError::ApprovalNotFound { approval: id.to_string() };
        let thread = id.thread().ok_or_else(not_found)?;
        let (mut fold, mut posted);
        let mut looks = 0;
        loop {
            fold = load(&*self.inner.store, &thread).await?.thread;
            posted = self.inner.store.inbox(&thread, 0).await?;
            looks += 1;
            // What an owner took in between stands in neither.
            let head = self.inner.store.info(&thread).await?.map(|info| info.head);
            if head.is_none_or(|head| head == fold.head()) || looks >= MOST_LOOKS {
                break;
            }
        }
        let waiting = fold.waiting_for(id).and_then(|call| call.asking().and_then(|ask| PendingApproval::of(&thread, call, ask)));
        let Some(pending) = waiting else { return Err(self.decided_before(&thread, id).await?.unwrap_or_else(not_found)) };
        let pending = with_posted(pending, posted.into_iter().map(|(_, item)| item))?;
        Ok(Found { thread, fold, pending })
    }

    /// Who decided what waits no longer, as an error that says so.
    async fn decided_before(&self, thread: &ThreadId, id: &ApprovalId) -> Result<Option<AgentError>, AgentError> {
        let mut after = Seq(0);
        loop {
            let records = self.inner.store.read(thread, after, 1000).await?;
            let Some(last) = records.last() else { return Ok(None) };
            after = last.seq;
            for record in &records {
                if let RecordBody::CallDecided { approval, decision, .. } = &record.body
                    && approval == id
                {
                    return Ok(Some(decided(id, decision)));
                }
            }
        }
    }

    /// Decides, once: records the decision and wakes whoever moves the thread. It does not run the thread; [`Approvals::resolve`] and
    /// [`ThreadHandle::resume`] do, where nobody moves it.
    ///
    /// # Errors
    ///
    /// `TOOLWRIGHT_APPROVAL_NOT_FOUND` for what does not wait, `TOOLWRIGHT_APPROVAL_CONFLICT`, with who was first, for what was decided,
    /// and also for what comes too late, which then counts as refused; `TOOLWRIGHT_APPROVAL_FORBIDDEN` for who may not decide, `TOOLWRIGHT_APPROVAL_INVALID` for a decision that does not fit what is
    /// asked, edited arguments that don't match the tool's schema among them.
    pub async fn decide(&self, id: &ApprovalId, decision: Decision) -> Result<(), AgentError> {
        self.decide_bound(id, None, decision).await
    }

    /// As [`Approvals::decide`], about the arguments with this hash, as they were shown to who decides: refused with
    /// `TOOLWRIGHT_APPROVAL_INVALID` if the call waits with others.
    pub async fn decide_about(&self, id: &ApprovalId, sha256: &str, decision: Decision) -> Result<(), AgentError> {
        self.decide_bound(id, Some(sha256), decision).await
    }

    pub(crate) async fn decide_bound(&self, id: &ApprovalId, sha256: Option<&str>, mut decision: Decision) -> Result<(), AgentError> {
        let found = Box::pin(self.find(id)).await?;
        let invalid = |problem: String| AgentError::ApprovalInvalid { approval: id.to_string(), problem };
        if sha256.is_some_and(|sha256| *found.pending.sha256 != *sha256) {
            return Err(invalid("it is about other arguments than those the call waits with; look at it again".to_owned()));
        }
        if let Some(who) = &self.principal {
            self.authorize(who, &found).await?;
            // Whoever they say they are: a decision may have come in a request of theirs.
            decision.by = Some(who.id.clone());
        }
        self.check(&found.pending, &decision).map_err(invalid)?;
        may_decide(&found.pending, decision.by.as_ref())?;
        decision = Box::pin(self.inner.clean_decision(&found.thread, decision)).await?;
        let (bound, decision) = begin(&found.pending, decision, self.inner.clock.now());
        let too_late = (decision.verdict == DecisionVerdict::Lapsed).then(|| decided(id, &decision));
        post_decision(&*self.inner.store, bound, decision).await?;
        too_late.map_or(Ok(()), Err)
    }

    async fn authorize(&self, who: &Identity, found: &Found) -> Result<(), AgentError> {
        let allowed = if let Some(authorize) = &self.inner.approving.authorize {
            authorize(who.clone(), found.pending.clone()).await
        } else {
            let run = found.fold.run().map(|run| &run.principal).or(found.fold.last_run().map(|run| &run.principal));
            run.and_then(Option::as_ref).is_none_or(|principal| {
                serde_json::from_value::<Identity>(principal.clone()).is_ok_and(|principal| principal.is_same_as(who))
            })
        };
        if allowed {
            return Ok(());
        }
        Err(AgentError::ApprovalForbidden { approval: found.pending.id.to_string(), who: who.id.clone() })
    }

    /// Whether the decision is an answer to what is asked.
    fn check(&self, pending: &PendingApproval, decision: &Decision) -> Result<(), String> {
        fits(pending, decision)?;
        let Some(edited) = decision.edited() else { return Ok(()) };
        // The gate reads them again; where the tool is known here, a mistake is told at once.
        let Some(tool) = self.inner.dispatch.registry.get(&pending.tool) else { return Ok(()) };
        let repair = if tool.spec().repair { Repair::On } else { Repair::Off };
        let read = toolwright_core::args::read(edited, &tool.spec().input, repair);
        let checked = read.and_then(|args| tool.body().check(args.value()));
        checked.map_err(|issues| {
            let listed: Vec<String> = issues
                .iter()
                .map(|issue| if issue.path.is_empty() { issue.message.clone() } else { format!("{}: {}", issue.path, issue.message) })
                .collect();
            format!("the edited arguments don't fit `{}`: {}", pending.tool, listed.join("; "))
        })
    }

    /// Answers a question: `ask_question`, or another that waits for an answer (sdk-tools 13.1).
    pub async fn answer(&self, id: &ApprovalId, answer: impl Into<String>) -> Result<(), AgentError> {
        self.decide(id, Decision::answer(answer)).await
    }

    /// Decides and lets the thread go on; gives the reply of the run that follows. One that comes too late lets it go on as well, with
    /// the call refused. Where another process moves the thread, it goes on there, and this fails with `TOOLWRIGHT_SESSION_BUSY`
    /// although the decision counts.
    pub async fn resolve(&self, id: &ApprovalId, decision: Decision) -> Result<Reply, AgentError> {
        match Box::pin(self.decide(id, decision)).await {
            Ok(()) => Box::pin(self.handle(id)?.resume()).await,
            Err(lapsed @ AgentError::ApprovalLapsed { .. }) => match Box::pin(self.handle(id)?.resume()).await {
                // It was refused before this, and the run has gone on.
                Err(AgentError::NothingToResume { .. } | AgentError::AwaitingApproval { .. }) => Err(lapsed),
                resumed => resumed,
            },
            Err(error) => Err(error),
        }
    }

    /// As [`Approvals::resolve`], as a stream that begins with `tool.resume`.
    pub async fn resolve_stream(&self, id: &ApprovalId, decision: Decision) -> Result<RunStream, AgentError> {
        match Box::pin(self.decide(id, decision)).await {
            Ok(()) | Err(AgentError::ApprovalLapsed { .. }) => Ok(self.handle(id)?.resume_stream()),
            Err(error) => Err(error),
        }
    }

    fn handle(&self, id: &ApprovalId) -> Result<ThreadHandle, AgentError> {
        let thread = id.thread().ok_or_else(|| AgentError::ApprovalNotFound { approval: id.to_string() })?;
        Ok(ThreadHandle::new(Arc::clone(&self.inner), Ok(thread)))
    }

    /// Hands the decision to others: from now on they decide, by the names that decisions come with, and nobody else. With nobody
    /// named, anybody may decide. Told as `approval.delegated` once an owner of the thread takes it.
    pub async fn delegate(&self, id: &ApprovalId, to: Vec<String>, by: Option<String>, note: Option<String>) -> Result<(), AgentError> {
        let found = Box::pin(self.find(id)).await?;
        let mut by = by;
        if let Some(who) = &self.principal {
            self.authorize(who, &found).await?;
            // Nobody makes a decider of themselves.
            if !found.pending.deciders.is_empty() && !found.pending.deciders.contains(&who.id) {
                return Err(AgentError::ApprovalForbidden { approval: id.to_string(), who: who.id.clone() });
            }
            by = Some(who.id.clone());
        }
        let to_count = people(&to);
        if !to.is_empty() && to_count < found.pending.quorum {
            let problem = format!("{} people have to approve, and it would be handed to {to_count}", found.pending.quorum);
            return Err(AgentError::ApprovalInvalid { approval: id.to_string(), problem });
        }
        let key = format!("delegate:{}", crate::random::call_id());
        let item = InboxItem::Delegate { approval: id.clone(), call: found.pending.call_id, to, by, note };
        let item = Box::pin(self.inner.clean_post(&found.thread, item)).await?;
        self.inner.store.post(&found.thread, &key, item).await?;
        Ok(())
    }
}

/// Calls whose results come from outside.
#[derive(Clone)]
pub struct Calls {
    approvals: Approvals,
}

impl Calls {
    /// A page of the calls that wait for a result, oldest first.
    pub async fn page(&self, cursor: Option<&str>, limit: usize) -> Result<Page<PendingApproval>, AgentError> {
        let mut page = self.approvals.page(cursor, limit).await?;
        page.items.retain(|pending| pending.kind == AskKind::External);
        Ok(page)
    }

    /// What `call` of `thread` waits with.
    ///
    /// # Errors
    ///
    /// `TOOLWRIGHT_APPROVAL_NOT_FOUND` if it waits for no result: it is unknown, another thread's, or has its result.
    pub async fn waiting(&self, thread: &ThreadId, call: &CallId) -> Result<PendingApproval, AgentError> {
        let fold = load(&*self.approvals.inner.store, thread).await?.thread;
        let pending = fold.call(call).and_then(|call| call.asking().and_then(|ask| PendingApproval::of(thread, call, ask)));
        let waits = pending.filter(|pending| pending.kind == AskKind::External);
        waits.ok_or_else(|| AgentError::ApprovalNotFound { approval: format!("of the call {call} of the thread {thread}") })
    }

    /// Posts the result of a call, once: the first counts, whoever posts. Errors as [`Approvals::decide`].
    pub async fn complete(&self, id: &ApprovalId, result: ToolOutput) -> Result<(), AgentError> {
        self.approvals.decide(id, Decision::complete(result)).await
    }

    /// Posts that a call failed, once. The model is told `message`.
    pub async fn fail(&self, id: &ApprovalId, message: &str) -> Result<(), AgentError> {
        let tool = self.approvals.get(id).await?.tool;
        let failure = ToolFailure::new(ToolFailureKind::Execution, &*tool, message);
        self.approvals.decide(id, Decision::fail(failure)).await
    }
}
