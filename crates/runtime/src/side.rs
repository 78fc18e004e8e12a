//! Model calls beside the agent's own: hooks and guardrails that ask a model. What they use counts for the run and its budgets.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use tokio_util::sync::CancellationToken;
use toolwright_core::{RunId, SideUsage, ThreadId, Usage};

use crate::model::{ErrorCategory, Model, ModelError, ModelEvent, ModelInfo, ModelReply, ModelRequest};

/// What is the same for all that look at a run, and what they used.
#[derive(Clone)]
pub(crate) struct Aside {
    pub(crate) thread: Option<ThreadId>,
    pub(crate) run: Option<RunId>,
    pub(crate) today: Arc<str>,
    pub(crate) deadline: Duration,
    pub(crate) cancelled: CancellationToken,
    used: Arc<Mutex<SideUsage>>,
}

impl Aside {
    pub(crate) fn new(
        thread: Option<ThreadId>,
        run: Option<RunId>,
        today: Arc<str>,
        deadline: Duration,
        cancelled: CancellationToken,
    ) -> Self {
        Self { thread, run, today, deadline, cancelled, used: Arc::default() }
    }

    /// What was used so far; nothing is left.
    pub(crate) fn taken(&self) -> Option<SideUsage> {
        std::mem::take(&mut *self.used.lock().unwrap_or_else(PoisonError::into_inner)).some()
    }

    /// Asks a model and reads its reply to the end: bounded in time, ended by the run's end, a panic is its failure.
    pub(crate) async fn ask(&self, model: &dyn Model, mut request: ModelRequest) -> Result<ModelReply, ModelError> {
        let info = model.info();
        request.thread.clone_from(&self.thread);
        request.run.clone_from(&self.run);
        request.today = Arc::clone(&self.today);
        request.cancelled = self.cancelled.child_token();
        let asked = AssertUnwindSafe(whole_reply(model, request)).catch_unwind();
        let failed = |message: String| ModelError::new(info.provider.as_str(), &message);
        let reply = tokio::select! {
            biased;
            () = self.cancelled.cancelled() => return Err(failed("the run was stopped".to_owned())),
            reply = tokio::time::timeout(self.deadline, asked) => reply,
        };
        let mut reply = match reply {
            Ok(Ok(reply)) => reply?,
            Ok(Err(_)) => return Err(failed("the model's own code panicked".to_owned())),
            Err(_) => {
                let message = format!("it did not end within {} s; try again, or raise `model_timeout`", self.deadline.as_secs());
                return Err(failed(message).in_category(ErrorCategory::Timeout));
            }
        };
        price(&info, reply.usage.as_mut());
        self.used.lock().unwrap_or_else(PoisonError::into_inner).add(reply.usage.as_ref());
        Ok(reply)
    }
}

/// What a reply cost, where its provider does not say and prices are known (sdk-runtime COS-4).
pub(crate) fn price(info: &ModelInfo, usage: Option<&mut Usage>) {
    if let (Some(usage), Some(prices)) = (usage, &info.prices) {
        usage.cost_usd = usage.cost_usd.or_else(|| Some(prices.cost(usage)));
    }
}

/// A model's reply, read to its end.
pub(crate) async fn whole_reply(model: &dyn Model, request: ModelRequest) -> Result<ModelReply, ModelError> {
    let mut stream = model.stream(request);
    loop {
        // A stream that is always ready must not keep everything else from running.
        tokio::task::coop::consume_budget().await;
        match stream.next().await {
            Some(Ok(ModelEvent::Done(reply))) => return Ok(reply),
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(error),
            None => return Err(ModelError::new(model.info().provider, "the reply ended before it was complete")),
        }
    }
}
