//! One model call of a run, with all that looks at it: hooks before and after, guardrails on input that race it, guardrails on
//! what it says. Nothing of a reply is shown before it passed what checks it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use serde_json::{Map, Value};
use toolwright_core::redact::Redactor;
use toolwright_core::{Author, Ending, Message, Transcript, Usage, tokens, with_text};
use toolwright_tool::{Identity, ToolError};

use crate::attachments::Shown;
use crate::driver::{Completion, Review};
use crate::guard::{Around, Guardrails};
use crate::hook::{BeforeGenerate, GenerateContext, Hooks, asked, thrown};
use crate::hub::{Hub, Stretch};
use crate::model::{ErrorCategory, Model, ModelError, ModelEvent, ModelReply, ModelRequest};
use crate::side::{Aside, price};

/// A model call about to begin.
pub(crate) struct Generation {
    pub(crate) model: Arc<dyn Model>,
    pub(crate) request: ModelRequest,
    pub(crate) shown: Arc<Shown>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) timeout: Duration,
    pub(crate) watched: Option<Watched>,
    /// What takes the run's secrets out, of what is asked and of what is said.
    pub(crate) redactor: Option<Arc<Redactor>>,
    /// What is not reported is estimated: a budget counts it.
    pub(crate) estimates: bool,
    /// Where a budget limits what models cost: whether it was said that a price is not known.
    pub(crate) price_warned: Option<Arc<AtomicBool>>,
}

/// What those need who look at it.
pub(crate) struct Watched {
    pub(crate) hooks: Hooks,
    pub(crate) guardrails: Arc<Guardrails>,
    pub(crate) agent: Arc<str>,
    pub(crate) principal: Option<Arc<Identity>>,
    pub(crate) metadata: Map<String, Value>,
    /// Input that no model has answered, for those guardrails that race it.
    pub(crate) raced: Vec<Arc<Message>>,
    /// The transcript, as it stands in the journal.
    pub(crate) messages: Transcript,
    pub(crate) aside: Aside,
}

impl Generation {
    /// To its completion.
    pub(crate) async fn run(mut self) -> Completion {
        let step = self.request.step;
        let Some(watched) = self.watched.take() else {
            let result = self.reply(&Voice::live(&self.hub, step)).await;
            self.hub.said_all(step);
            return Completion::Model { step, result, review: Box::default() };
        };
        let mut review = Review::default();
        let result = self.watched_reply(&watched, &mut review).await;
        self.hub.said_all(step);
        review.side = watched.aside.taken();
        let result = match result {
            Ok(reply) => Ok(reply),
            Err(Broken::Model(error)) => Err(error),
            Err(Broken::Ended(ending, usage)) => {
                review.ending = Some(*ending);
                let error = || ModelError::new(self.model.info().provider, "its reply is withheld");
                // Of a reply that nobody may see, what it used is all that is left.
                usage
                    .map(|usage| ModelReply {
                        items: Vec::new(),
                        finish: toolwright_core::FinishReason::Stop,
                        usage: Some(usage),
                        model: None,
                    })
                    .ok_or_else(error)
            }
        };
        Completion::Model { step, result, review: Box::new(review) }
    }

    async fn watched_reply(&mut self, watched: &Watched, review: &mut Review) -> Result<ModelReply, Broken> {
        let cx = GenerateContext {
            agent: &watched.agent,
            step: self.request.step,
            principal: watched.principal.as_deref(),
            metadata: &watched.metadata,
            aside: &watched.aside,
        };
        for hook in watched.hooks.iter() {
            let request = &self.request;
            let changed = asked(|| hook.pre_generate(&cx, request)).await.map_err(|error| Broken::hook(hook.name(), &error, None))?;
            if let BeforeGenerate::Request(changed) = changed {
                self.request = self.changed(*changed, hook.name())?;
            }
        }
        let around = Around {
            guardrails: &watched.guardrails,
            messages: &watched.messages,
            principal: watched.principal.as_ref(),
            call: None,
            aside: &watched.aside,
        };
        let checked = !watched.guardrails.output.is_empty();
        let races = watched.guardrails.races_input() && !watched.raced.is_empty();
        let voice = if checked || races { Voice::held(&self.hub, self.request.step) } else { Voice::live(&self.hub, self.request.step) };
        let mut reply = if races {
            self.race(&around, &watched.raced, &voice, checked).await?
        } else {
            self.reply(&voice).await.map_err(Broken::Model)?
        };
        for hook in watched.hooks.iter() {
            let looked = asked(|| hook.post_generate(&cx, &reply)).await;
            looked.map_err(|error| Broken::hook(hook.name(), &error, reply.usage))?;
        }
        if checked {
            let message = Message { author: Author::SideA, items: std::mem::take(&mut reply.items), metadata: Map::new() };
            let text = message.text_of();
            let passed = if text.is_empty() { Ok(crate::guard::Checked::default()) } else { around.output(&text).await };
            let passed = passed.map_err(|ending| Broken::Ended(Box::new(ending), reply.usage))?;
            review.rewrote = passed.rewrote;
            reply.items = match passed.text {
                Some(text) => with_text(&message, &text).items,
                None => message.items,
            };
        }
        Ok(reply)
    }

    /// A hook's request: what it may not change is as it was, and what can't be sent is its failure.
    fn changed(&self, mut request: ModelRequest, hook: &str) -> Result<ModelRequest, Broken> {
        if let Err(unbalanced) = request.messages.check_balance() {
            return Err(Broken::hook(hook, &ToolError::new(unbalanced.to_string()), None));
        }
        (request.thread, request.run) = (self.request.thread.clone(), self.request.run.clone());
        (request.step, request.cancelled) = (self.request.step, self.request.cancelled.clone());
        if let Some(redactor) = &self.redactor {
            request.messages = without_secrets(redactor, &request.messages);
            request.instructions = redactor.redact(&request.instructions).into();
        }
        Ok(request)
    }

    /// The model's reply beside the checks of its input: whoever of them blocks first ends it, and nothing was shown of it.
    async fn race(&self, around: &Around<'_>, raced: &[Arc<Message>], voice: &Voice, checked: bool) -> Result<ModelReply, Broken> {
        let mut reply = std::pin::pin!(self.reply(voice));
        let mut checks = std::pin::pin!(around.race(raced));
        let passed = || {
            if !checked {
                voice.release();
            }
        };
        tokio::select! {
            biased;
            verdict = &mut checks => {
                if let Err(ending) = verdict {
                    // A model that has just ended may still say what it used; one that goes on is dropped.
                    let said = futures_util::FutureExt::now_or_never(&mut reply);
                    self.request.cancelled.cancel();
                    return Err(Broken::blocked(ending, said));
                }
                passed();
                reply.await.map_err(Broken::Model)
            }
            said = &mut reply => {
                if let Err(ending) = checks.await {
                    return Err(Broken::blocked(ending, Some(said)));
                }
                passed();
                said.map_err(Broken::Model)
            }
        }
    }

    /// Asks the model, with the content that its messages refer to.
    async fn reply(&self, voice: &Voice) -> Result<ModelReply, ModelError> {
        let mut request = self.request.clone();
        match tokio::time::timeout(self.timeout, self.shown.to_model(request.messages.clone())).await {
            Ok(messages) => request.messages = messages,
            Err(_) => return Err(content_is_late(self.timeout)),
        }
        let mut reply = reply_of(&*self.model, request, voice, self.timeout).await?;
        if let Some(redactor) = &self.redactor {
            let clean = redactor.redacted(&reply.items).map_err(|error| ModelError::new(self.model.info().provider, &error.to_string()))?;
            reply.items = clean.unwrap_or(reply.items);
        }
        if self.estimates && reply.usage.is_none() {
            reply.usage = Some(self.estimated(&reply));
        }
        let info = self.model.info();
        price(&info, reply.usage.as_mut());
        let priced = reply.usage.is_some_and(|usage| usage.cost_usd.is_some());
        if !priced && self.price_warned.as_ref().is_some_and(|warned| !warned.swap(true, Ordering::Relaxed)) {
            tracing::warn!(model = info.name(), "the price of this model is not known, so `max_cost_usd` is not held");
        }
        Ok(reply)
    }

    /// What a call used of which its provider says nothing (sdk-runtime COS-5).
    fn estimated(&self, reply: &ModelReply) -> Usage {
        let request = &self.request;
        let tools = request.tools.iter().map(|tool| tokens::of_tool(tool)).fold(0, u64::saturating_add);
        let read =
            tokens::of_text(&request.instructions).saturating_add(tools).saturating_add(tokens::of_messages(request.messages.iter()));
        let written = reply.items.iter().map(tokens::of_item).fold(0, u64::saturating_add);
        Usage { input_tokens: read, output_tokens: written, estimated: true, ..Usage::default() }
    }
}

/// Messages without secrets; those that have none are as they are.
pub(crate) fn without_secrets(redactor: &Redactor, messages: &Transcript) -> Transcript {
    let clean = |message: &Arc<Message>| match redactor.redacted(&**message) {
        Ok(None) => Arc::clone(message),
        Ok(Some(clean)) => Arc::new(clean),
        // Nothing that can't be cleaned is sent.
        Err(error) => Arc::new(Message::text(message.author.clone(), error.to_string())),
    };
    let mut out = Transcript::new();
    messages.iter().map(clean).for_each(|message| out.push(message));
    out
}

/// Why there is no reply.
enum Broken {
    Model(ModelError),
    /// The run ends; with what the reply used, if there was one.
    Ended(Box<Ending>, Option<Usage>),
}

impl Broken {
    /// What the reply used counts, where there is one.
    fn blocked(ending: Ending, reply: Option<Result<ModelReply, ModelError>>) -> Self {
        Self::Ended(Box::new(ending), reply.and_then(Result::ok).and_then(|reply| reply.usage))
    }

    fn hook(name: &str, error: &ToolError, usage: Option<Usage>) -> Self {
        Self::Ended(Box::new(Ending::Error { failure: thrown("hook", name, error) }), usage)
    }
}

/// Where what a model says goes: to whoever watches, or nowhere until it passed.
struct Voice {
    hub: Arc<Hub>,
    step: u32,
    /// What waits; `None` once it goes straight on.
    held: Mutex<Option<Vec<(Stretch, String)>>>,
}

impl Voice {
    fn live(hub: &Arc<Hub>, step: u32) -> Self {
        Self { hub: Arc::clone(hub), step, held: Mutex::new(None) }
    }

    fn held(hub: &Arc<Hub>, step: u32) -> Self {
        Self { hub: Arc::clone(hub), step, held: Mutex::new(Some(Vec::new())) }
    }

    fn say(&self, stretch: Stretch, text: String) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        match held.as_mut() {
            Some(waiting) => waiting.push((stretch, text)),
            None => self.hub.said(self.step, stretch, &text),
        }
    }

    /// What waits goes on, in order, and so does what follows.
    fn release(&self) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        for (stretch, text) in held.take().unwrap_or_default() {
            self.hub.said(self.step, stretch, &text);
        }
    }
}

/// A store that does not give what messages refer to.
fn content_is_late(timeout: Duration) -> ModelError {
    let message = format!("the store did not give the content that messages refer to within {} s; try again", timeout.as_secs());
    ModelError::new("store", &message).in_category(ErrorCategory::Timeout)
}

/// Asks a model and reads its reply to the end, showing it as it comes. Bounded in time between pieces.
async fn reply_of(model: &dyn Model, request: ModelRequest, voice: &Voice, timeout: Duration) -> Result<ModelReply, ModelError> {
    let provider = model.info().provider;
    let mut stream = model.stream(request);
    loop {
        // A stream that is always ready must not keep everything else from running.
        tokio::task::coop::consume_budget().await;
        let Ok(next) = tokio::time::timeout(timeout, stream.next()).await else {
            let message = format!("nothing came for {} s; try again, or raise `model_timeout`", timeout.as_secs());
            return Err(ModelError::new(provider, &message).in_category(ErrorCategory::Timeout));
        };
        match next {
            Some(Ok(ModelEvent::TextDelta(text))) => voice.say(Stretch::Text, text),
            Some(Ok(ModelEvent::ReasoningDelta(text))) => voice.say(Stretch::Reasoning, text),
            Some(Ok(ModelEvent::CallDelta { index, name, arguments })) => voice.say(Stretch::Input { index, name }, arguments),
            Some(Ok(ModelEvent::Done(reply))) => return Ok(reply),
            Some(Err(error)) => return Err(error),
            None => return Err(ModelError::new(provider, "the reply ended before it was complete; nothing of it was kept")),
        }
    }
}
