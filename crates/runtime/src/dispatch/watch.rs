//! Those who look at calls: hooks before and after, guardrails on arguments and on results.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;
use toolwright_core::{GateNotes, Outcome, ResultNotes, RewriteNote, ToolFailure, ToolSpec, Transcript};
use toolwright_tool::{Snapshots, Tool, ToolContext};

use super::{Dispatch, GateRequest, NoSnapshots, RunFacts, Stopped, bound, rewritten, secrets};
use crate::attachments;
use crate::driver::Executed;
use crate::guard::{Around, GuardrailKind, GuardrailVerdict};
use crate::hook::{AfterCall, BeforeCall, HookCall, asked, thrown};
use crate::permissions::Trail;
use crate::side::Aside;

/// What hooks and guardrails are told about a run.
#[derive(Clone, Default)]
pub(crate) struct WatchedRun {
    pub(crate) metadata: Map<String, Value>,
    pub(crate) today: Arc<str>,
    pub(crate) model_timeout: Duration,
}

/// Those who look at one call, and what they note.
pub(super) struct Watch {
    metadata: Map<String, Value>,
    aside: Aside,
    notes: GateNotes,
}

/// What is known of a call at its end.
pub(super) struct After<'a> {
    pub(super) run: &'a RunFacts,
    pub(super) resumed: bool,
    pub(super) watch: Option<&'a Watch>,
    /// Whether its result is not of our own making.
    pub(super) from_outside: bool,
}

impl Watch {
    pub(super) fn of(run: &RunFacts, cancelled: &CancellationToken) -> Option<Self> {
        let watched = run.watched.as_deref()?;
        let (thread, id, today) = (run.thread.clone(), run.run.clone(), Arc::clone(&watched.today));
        let aside = Aside::new(thread, id, today, watched.model_timeout, cancelled.clone());
        Some(Self { metadata: watched.metadata.clone(), aside, notes: GateNotes::default() })
    }

    /// What they noted at the gate.
    pub(super) fn noted(&mut self) -> GateNotes {
        GateNotes { side: self.aside.taken(), ..std::mem::take(&mut self.notes) }
    }

    fn call<'a>(&'a self, spec: &'a Arc<ToolSpec>, cx: &'a ToolContext, resumed: bool) -> HookCall<'a> {
        HookCall { spec, cx, resumed, metadata: &self.metadata, aside: &self.aside }
    }
}

impl Dispatch {
    /// Pre-call hooks, in order; later ones see what earlier ones rewrote.
    pub(super) async fn before_hooks(
        &self,
        tool: &Tool,
        cx: &mut ToolContext,
        resumed: bool,
        watch: &Watch,
        trail: &mut Trail,
    ) -> Result<(), Stopped> {
        let spec = tool.spec();
        for hook in self.hooks.iter() {
            let call = watch.call(spec, cx, resumed);
            let says = asked(|| hook.pre_tool_call(&call)).await;
            match says.map_err(|error| Stopped::threw("hook", hook.name(), &error))? {
                BeforeCall::Pass => {}
                BeforeCall::Deny(reason) => {
                    trail.refused_by_hook(hook.name(), Some(&reason));
                    return Err(Stopped::refused(ToolFailure::denied(spec.name.as_str(), Some(reason))));
                }
                BeforeCall::Answer(output) => return Err(Stopped::answered(Some(hook.name()), output)),
                BeforeCall::Rewrite(value) => {
                    *cx = rewritten(tool, cx, value, hook.name(), resumed).map_err(|failure| Stopped::refused(*failure))?
                }
            }
        }
        Ok(())
    }

    /// Guardrails on arguments, in order: each sees the JSON text as the one before left it.
    pub(super) async fn guard_arguments(
        &self,
        tool: &Tool,
        cx: &mut ToolContext,
        resumed: bool,
        request: &GateRequest,
        watch: &mut Watch,
    ) -> Result<(), Stopped> {
        for guardrail in &self.guardrails.tool {
            let around = self.around(&request.messages, &request.run, Some(cx), &watch.aside);
            let verdict = around.ask(&**guardrail, GuardrailKind::Tool, Arc::clone(cx.args().text())).await.map_err(Stopped::ends_run)?;
            let GuardrailVerdict::Rewrite { replacement, reason, info } = verdict else { continue };
            let value = serde_json::from_str(&replacement).unwrap_or(Value::String(replacement));
            *cx = rewritten(tool, cx, value, guardrail.name(), resumed).map_err(|failure| Stopped::refused(*failure))?;
            watch.notes.rewrote.push(RewriteNote { name: guardrail.name().to_owned(), reason: Some(reason), info });
        }
        Ok(())
    }

    /// Where snapshots of a running call go: nowhere, where guardrails check the result that they are steps to.
    pub(super) fn shown_on_the_way(&self, snapshots: Arc<dyn Snapshots>) -> Arc<dyn Snapshots> {
        if self.guardrails.result.is_empty() { snapshots } else { Arc::new(NoSnapshots) }
    }

    fn around<'a>(&'a self, messages: &'a Transcript, run: &'a RunFacts, call: Option<&'a ToolContext>, aside: &'a Aside) -> Around<'a> {
        Around { guardrails: &self.guardrails, messages, principal: run.principal.as_ref(), call, aside }
    }

    /// Post-call hooks see every end, failures and refusals too, and may replace it. One that throws ends the run, and the
    /// call keeps the result it had (field reports U-170). Then guardrails look at what came from outside. Whoever made the result, it
    /// is bounded (field reports F-47), and its images and files are kept apart from the journal.
    ///
    /// Secrets go first, and before anything is cut: nobody sees a part of one.
    pub(super) async fn after_hooks(&self, tool: &Tool, cx: &ToolContext, mut executed: Executed, after: &After<'_>) -> Executed {
        let After { run, resumed, watch, from_outside } = *after;
        let redactor = run.beside.redactor.as_ref();
        secrets::clean(redactor, cx.tool_name(), &mut executed.outcome);
        if let Some(watch) = watch {
            let call = watch.call(tool.spec(), cx, resumed);
            for hook in self.hooks.iter() {
                match asked(|| hook.post_tool_call(&call, &executed.outcome)).await {
                    Ok(AfterCall::Keep) => {}
                    Ok(AfterCall::Replace(outcome)) => {
                        executed.outcome = outcome;
                        secrets::clean(redactor, cx.tool_name(), &mut executed.outcome);
                        executed.replaced_by = Some(hook.name().to_owned());
                    }
                    Err(error) => {
                        executed.fatal.get_or_insert_with(|| thrown("hook", hook.name(), &error));
                    }
                }
            }
            let mut notes = ResultNotes::default();
            if from_outside && !self.guardrails.result.is_empty() {
                let principal = cx.parts().principal.as_ref();
                let around =
                    Around { guardrails: &self.guardrails, messages: cx.messages(), principal, call: Some(cx), aside: &watch.aside };
                (notes.rewrote, notes.ending) = Box::pin(around.result(&mut executed.outcome)).await;
                secrets::clean(redactor, cx.tool_name(), &mut executed.outcome);
            }
            notes.side = watch.aside.taken();
            executed.notes = notes.some();
        }
        bound(&mut executed.outcome, tool.spec().result_limit.unwrap_or(self.result_limit));
        if let (Outcome::Done { output }, Some(_)) = (&mut executed.outcome, cx.thread_id())
            && attachments::has_content(output)
        {
            Box::pin(attachments::keep_output(&cx.parts().keep, cx.tool_name(), cx.call_id().as_str(), output)).await;
        }
        executed
    }
}
