//! Permission rules, modes and their audit: what an agent says about which calls may run.
//!
//! What rules mean is in [`toolwright_core::policy`]. Here they are asked within the gate, together with the code that a rule may have,
//! and what was decided is noted.

mod audit;
mod facts;
mod mode;
mod rules;
mod thread;

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use serde_json::Value;
use toolwright_core::policy::{Earlier, ModeVerdict, PermissionMode, Rule, RuleAction, RuleCall, RuleSet, Step, Taint, ToolRules};
use toolwright_core::{CallId, PermissionNote, PermissionWord, RuleMatch, ShadowNote, Timestamp, ToolSpec};
use toolwright_tool::{ApprovalRequest, Identity, ToolContext, ToolError};

pub use audit::PermissionEntry;
pub(crate) use audit::{Audit, Trail};
pub(crate) use facts::Facts;
pub use mode::ModeSource;
pub use rules::{RuleWhen, WhenCall};

use crate::dispatch::panicked;
use crate::error::AgentError;
use crate::registry::Registry;

/// What an agent is built with.
#[derive(Default)]
pub(crate) struct PermissionOptions {
    pub(crate) rules: Vec<Rule>,
    pub(crate) mode: ModeSource,
    pub(crate) audit: Option<Audit>,
    pub(crate) trusted: Vec<String>,
}

/// What an agent says about which calls may run.
#[derive(Clone, Default)]
pub(crate) struct Permissions {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    /// The rules that concern each tool; a tool that none concerns is not here.
    by_tool: HashMap<Arc<str>, ToolRules>,
    has_rules: bool,
    mode: ModeSource,
    audit: Option<Audit>,
    trusted: Vec<String>,
}

/// What the rules say about a call.
pub(crate) enum Said {
    /// Nothing.
    Nothing,
    /// It may run without asking.
    Allow,
    /// Somebody has to decide.
    Ask(ApprovalRequest),
    /// It does not run.
    Deny(Option<String>),
}

impl PermissionOptions {
    /// Checks everything and makes it ready for these tools.
    pub(crate) fn build(self, registry: &Registry) -> Result<Permissions, AgentError> {
        let rules = self.rules;
        if let Some(index) = rules.iter().position(|rule| rule.asks().is_some_and(|code| rules::When::of(code).is_none())) {
            return Err(AgentError::Rules {
                problems: format!("rule {index} has code that nobody here can ask; add it with `.when(...)`"),
            });
        }
        let has_rules = !rules.is_empty();
        let mut by_tool = HashMap::new();
        if has_rules {
            let set = RuleSet::compile(rules).map_err(|problems| AgentError::Rules { problems: problems.to_string() })?;
            for tool in registry.iter() {
                let spec = tool.spec();
                let rules = set.for_tool(spec, is_trusted(spec, &self.trusted));
                if !rules.is_empty() {
                    by_tool.insert(spec.name.to_shared(), rules);
                }
            }
        }
        let Self { mode, audit, trusted, .. } = self;
        Ok(Permissions { inner: Arc::new(Inner { by_tool, has_rules, mode, audit, trusted }) })
    }
}

fn is_trusted(spec: &ToolSpec, trusted: &[String]) -> bool {
    spec.origin.is_trusted() || trusted.iter().any(|pattern| spec.origin.fits(pattern))
}

impl Permissions {
    /// The agent's own mode, as it is now.
    pub(crate) fn mode(&self) -> Result<PermissionMode, ToolError> {
        self.inner.mode.now()
    }

    /// Whether anything is to be noted about calls in this mode (sdk-tools 12.3/5).
    pub(crate) fn audits(&self, mode: PermissionMode) -> bool {
        self.inner.has_rules || self.inner.audit.is_some() || mode != PermissionMode::Default
    }

    /// Whether a tool only reads, by the word of somebody who is trusted (sdk-tools 16.3/6).
    pub(crate) fn only_reads(&self, spec: &ToolSpec) -> bool {
        spec.annotations.read_only() && is_trusted(spec, &self.inner.trusted)
    }

    /// Whether any rule is about a tool.
    pub(crate) fn concern(&self, tool: &str) -> bool {
        self.inner.by_tool.contains_key(tool)
    }

    /// Asks the rules about a call. The first that matches decides; code of a rule that fails is the call's failure, never a yes.
    pub(crate) async fn ask(&self, cx: &ToolContext, taint: Taint, trail: &mut Trail) -> Result<Said, ToolError> {
        let Some(rules) = self.inner.by_tool.get(cx.tool_name()) else { return Ok(Said::Nothing) };
        let args = cx.args();
        let call = RuleCall { args: args.value(), taint };
        let mut answers: HashMap<usize, bool> = HashMap::new();
        if rules.has_shadows() {
            let mut judging = rules.judging(call, true);
            let would = loop {
                match judging.step() {
                    Step::Done(judged) => break judged,
                    Step::Ask(index) => {
                        // A rule in shadow disturbs nobody, whatever its code does.
                        let said = says(rules, index, cx).await;
                        if let Ok(said) = &said {
                            answers.insert(index, *said);
                        }
                        judging.answer(index, said.unwrap_or(false));
                    }
                }
            };
            let in_shadow = would.rule.filter(|index| rules.rule(*index).is_some_and(Rule::is_shadow));
            if let (Some(index), Some(action)) = (in_shadow, would.action) {
                trail.shadow.push(ShadowNote { index, decision: action.word(), reason: would.reason });
            }
        }
        let mut judging = rules.judging(call, false);
        let judged = loop {
            match judging.step() {
                Step::Done(judged) => break judged,
                Step::Ask(index) => {
                    let said = match answers.get(&index) {
                        Some(said) => *said,
                        None => says(rules, index, cx).await?,
                    };
                    judging.answer(index, said);
                }
            }
        };
        let Some(action) = judged.action else { return Ok(Said::Nothing) };
        trail.decision = action.word();
        trail.rule = judged.rule.map(|index| {
            let reason = rules.rule(index).and_then(Rule::why).map(str::to_owned);
            RuleMatch { index, reason }
        });
        Ok(match action {
            RuleAction::Allow => Said::Allow,
            RuleAction::Deny => {
                trail.reason.clone_from(&judged.reason);
                Said::Deny(judged.reason)
            }
            RuleAction::Ask => {
                let within = judged.ttl_ms.map(std::time::Duration::from_millis);
                Said::Ask(ApprovalRequest { reason: judged.reason, within, ..ApprovalRequest::new() })
            }
        })
    }

    /// The last word about a call that nothing refused: `asks` is whether somebody would have to decide, `allowed` whether a rule lets it
    /// run. Says why, if the mode refuses; `Ok(true)` skips the pause.
    pub(crate) fn last_word(
        &self,
        spec: &ToolSpec,
        mode: PermissionMode,
        asks: bool,
        allowed: bool,
        trail: &mut Trail,
    ) -> Result<bool, &'static str> {
        if mode == PermissionMode::Default {
            return Ok(false);
        }
        let earlier = match (asks, allowed) {
            (true, _) => Earlier::WouldAsk,
            (false, true) => Earlier::AllowedByRule,
            (false, false) => Earlier::Nothing,
        };
        match mode.decide(earlier, self.only_reads(spec), spec.edits_files) {
            ModeVerdict::Deny => {
                trail.decision = PermissionWord::Deny;
                trail.reason = Some(mode.refusal().to_owned());
                trail.mode = Some(mode);
                Err(mode.refusal())
            }
            ModeVerdict::Run if asks => {
                trail.decision = PermissionWord::Allow;
                trail.mode = Some(mode);
                Ok(true)
            }
            ModeVerdict::Run | ModeVerdict::Ask | ModeVerdict::EndsRun => Ok(false),
        }
    }

    /// The audit entry of a call, which is told to whoever listens.
    pub(crate) fn note(
        &self,
        trail: Trail,
        tool: &str,
        call: &CallId,
        args: &Value,
        who: Option<&Identity>,
        now: Timestamp,
    ) -> PermissionNote {
        let note = trail.into_note();
        if let Some(audit) = &self.inner.audit {
            audit.tell(&PermissionEntry::of(&note, tool, call, args, now), who);
        }
        note
    }
}

/// Whether the code of a rule says yes to a call.
async fn says(rules: &ToolRules, index: usize, cx: &ToolContext) -> Result<bool, ToolError> {
    let Some(when) = rules.rule(index).and_then(Rule::asks).and_then(rules::When::of) else { return Ok(false) };
    let asked = AssertUnwindSafe(async { when.says(WhenCall { cx: cx.clone() }).await }).catch_unwind().await;
    let said = asked.unwrap_or_else(|panic| Err(panicked(&*panic)));
    said.map_err(|error| {
        let name = error.name().to_owned();
        ToolError::new(format!("the condition of permission rule {index} failed, so the call does not run: {}", error.message()))
            .named(name)
    })
}
