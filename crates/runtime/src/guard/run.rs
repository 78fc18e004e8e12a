//! Running guardrails: in order, a rewrite feeding the next, a block ending the run.

use std::sync::Arc;

use serde_json::Value;
use toolwright_core::{Ending, GuardrailTrip, Message, Outcome, Part, RewriteNote, RewrittenInput, ToolFailure, Transcript};
use toolwright_tool::{Identity, ToolContext};

use super::{Guardrail, GuardrailContext, GuardrailKind, GuardrailVerdict, Guardrails, OnTripped};
use crate::driver::InputCheck;
use crate::hook::{asked, thrown};
use crate::side::Aside;

/// What a text became.
#[derive(Default)]
pub(crate) struct Checked {
    /// Its replacement, if there was one.
    pub(crate) text: Option<String>,
    pub(crate) rewrote: Vec<RewriteNote>,
}

/// What is the same for all checks of one moment.
pub(crate) struct Around<'a> {
    pub(crate) guardrails: &'a Guardrails,
    pub(crate) messages: &'a Transcript,
    pub(crate) principal: Option<&'a Arc<Identity>>,
    pub(crate) call: Option<&'a ToolContext>,
    pub(crate) aside: &'a Aside,
}

impl Around<'_> {
    fn context(&self, kind: GuardrailKind, text: Arc<str>) -> GuardrailContext {
        GuardrailContext {
            kind,
            text,
            messages: self.messages.clone(),
            call: self.call.cloned(),
            principal: self.principal.cloned(),
            aside: self.aside.clone(),
        }
    }

    /// One verdict, or how the run ends.
    pub(crate) async fn ask(&self, guardrail: &dyn Guardrail, kind: GuardrailKind, text: Arc<str>) -> Result<GuardrailVerdict, Ending> {
        let cx = self.context(kind, text);
        match asked(|| guardrail.check(cx)).await {
            Ok(GuardrailVerdict::Block { reason, info }) => Err(self.ending(guardrail, kind, reason, info)),
            Ok(verdict) => Ok(verdict),
            Err(error) => Err(Ending::Error { failure: thrown("guardrail", guardrail.name(), &error) }),
        }
    }

    pub(crate) fn ending(&self, guardrail: &dyn Guardrail, kind: GuardrailKind, reason: String, info: Option<Value>) -> Ending {
        let trip = GuardrailTrip {
            name: guardrail.name().to_owned(),
            kind: kind.as_str().to_owned(),
            reason,
            tool_name: self.call.map(|call| call.tool_name().to_owned()),
            info,
        };
        Ending::Guardrail { trip, throws: self.guardrails.on_tripped == OnTripped::Throw }
    }

    /// A text through a list, in order.
    async fn through(&self, list: &[Arc<dyn Guardrail>], kind: GuardrailKind, text: &str) -> Result<Checked, Ending> {
        let (mut now, mut checked): (Arc<str>, Checked) = (text.into(), Checked::default());
        for guardrail in list {
            if let GuardrailVerdict::Rewrite { replacement, reason, info } = self.ask(&**guardrail, kind, Arc::clone(&now)).await? {
                checked.rewrote.push(RewriteNote { name: guardrail.name().to_owned(), reason: Some(reason), info });
                now = replacement.as_str().into();
                checked.text = Some(replacement);
            }
        }
        Ok(checked)
    }

    /// New input, message by message. What the first block says counts.
    pub(crate) async fn input(&self, messages: &[Arc<Message>]) -> InputCheck {
        let blocking: Vec<_> = self.guardrails.input.iter().filter(|guardrail| !guardrail.run_in_parallel()).cloned().collect();
        let mut check = InputCheck::default();
        for (index, message) in messages.iter().enumerate() {
            let Some(text) = text_to_check(message) else { continue };
            match self.through(&blocking, GuardrailKind::Input, &text).await {
                Ok(checked) => {
                    check.rewritten.extend(checked.text.map(|text| RewrittenInput { index, text: text.into() }));
                    check.rewrote.extend(checked.rewrote);
                }
                Err(ending) => {
                    check.ending = Some(ending);
                    break;
                }
            }
        }
        check.side = self.aside.taken();
        check
    }

    /// Input beside a model call: all at once. A rewrite comes too late and blocks.
    pub(crate) async fn race(&self, messages: &[Arc<Message>]) -> Result<(), Ending> {
        let mut checks = Vec::new();
        for message in messages {
            let Some(text) = text_to_check(message) else { continue };
            let text: Arc<str> = text.into();
            for guardrail in self.guardrails.input.iter().filter(|guardrail| guardrail.run_in_parallel()) {
                let text = Arc::clone(&text);
                checks.push(async move {
                    match self.ask(&**guardrail, GuardrailKind::Input, text).await? {
                        GuardrailVerdict::Rewrite { reason, info, .. } => {
                            Err(self.ending(&**guardrail, GuardrailKind::Input, reason, info))
                        }
                        _ => Ok(()),
                    }
                });
            }
        }
        let all = futures_util::future::try_join_all(checks);
        all.await.map(drop)
    }

    /// What the model wrote.
    pub(crate) async fn output(&self, text: &str) -> Result<Checked, Ending> {
        self.through(&self.guardrails.output, GuardrailKind::Output, text).await
    }

    /// The end of a call, part by part. Blocked, it becomes a failure that says so, and the run ends with it.
    pub(crate) async fn result(&self, outcome: &mut Outcome) -> (Vec<RewriteNote>, Option<Ending>) {
        let list = &self.guardrails.result;
        let mut rewrote = Vec::new();
        let blocked = match outcome {
            Outcome::Done { output } => {
                let mut parts = output.parts().to_vec();
                let mut blocked = None;
                for part in &mut parts {
                    let text = match part {
                        Part::Text { text } | Part::Json { value: Value::String(text) } => std::mem::take(text),
                        Part::Json { value } => value.to_string(),
                        _ => continue,
                    };
                    match self.through(list, GuardrailKind::Result, &text).await {
                        Ok(checked) => {
                            rewrote.extend(checked.rewrote);
                            put_back(part, text, checked.text);
                        }
                        Err(ending) => {
                            blocked = Some(ending);
                            break;
                        }
                    }
                }
                if blocked.is_none() && !rewrote.is_empty() {
                    // What was made to be shown, and what would tell of it, was not checked.
                    *outcome = Outcome::done(toolwright_core::ToolOutput::of(parts));
                }
                blocked
            }
            Outcome::Failed { failure } => match self.through(list, GuardrailKind::Result, &failure.message).await {
                Ok(checked) => {
                    rewrote.extend(checked.rewrote);
                    if let Some(text) = checked.text {
                        Arc::make_mut(failure).message = text;
                    }
                    None
                }
                Err(ending) => Some(ending),
            },
        };
        if let Some(ending) = &blocked {
            *outcome = withheld(outcome, ending, self.call);
        }
        (rewrote, blocked)
    }
}

/// A part as it was, or as it was rewritten: JSON stays JSON where it can.
fn put_back(part: &mut Part, was: String, rewritten: Option<String>) {
    match (part, rewritten) {
        (Part::Text { text } | Part::Json { value: Value::String(text) }, rewritten) => *text = rewritten.unwrap_or(was),
        (_, None) => {}
        (part, Some(new)) => {
            *part = match serde_json::from_str(&new) {
                Ok(value) => Part::Json { value },
                Err(_) => Part::Text { text: new },
            }
        }
    }
}

/// What stands for a result that nobody may see.
fn withheld(outcome: &Outcome, ending: &Ending, call: Option<&ToolContext>) -> Outcome {
    let tool = call.map(ToolContext::tool_name).unwrap_or_default();
    let how = match outcome {
        Outcome::Done { .. } => "ran",
        Outcome::Failed { .. } => "failed",
    };
    let why = match ending {
        Ending::Guardrail { trip, .. } => format!("the guardrail `{}` withheld its result", trip.name),
        Ending::Error { failure } => failure.message.clone(),
        _ => "its result was withheld".to_owned(),
    };
    let kind = toolwright_core::ToolFailureKind::Denied;
    let mut failure = ToolFailure::new(kind, tool, &format!("`{tool}` {how}, and {why}")).named("GuardrailError");
    failure.tool_call_id = call.map(|call| call.call_id().to_string());
    Outcome::failed(failure)
}

/// The text of a message of a person; what a program put there is its own business.
fn text_to_check(message: &Message) -> Option<String> {
    let text = message.text_of();
    (message.author == toolwright_core::Author::Human && !text.is_empty()).then_some(text)
}
