//! Rules with code.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::Value;
use toolwright_core::policy::{Predicate, Rule};
use toolwright_tool::{Identity, ToolContext, ToolError};

/// A call as the code of a rule sees it: validated arguments, as hooks left them.
#[derive(Clone)]
pub struct WhenCall {
    pub(super) cx: ToolContext,
}

impl WhenCall {
    /// The arguments.
    pub fn args(&self) -> &Value {
        self.cx.args().value()
    }

    /// The tool.
    pub fn tool(&self) -> &str {
        self.cx.tool_name()
    }

    /// Who the run acts for.
    pub fn principal(&self) -> Option<&Identity> {
        self.cx.principal()
    }

    /// Everything else that is known of the call: its id, its thread, the transcript, state.
    pub fn context(&self) -> &ToolContext {
        &self.cx
    }
}

type Code = dyn Fn(WhenCall) -> BoxFuture<'static, Result<bool, ToolError>> + Send + Sync;

/// What a rule's predicate holds.
pub(super) struct When(Box<Code>);

impl When {
    pub(super) fn of(predicate: &Predicate) -> Option<&Self> {
        predicate.0.downcast_ref()
    }

    pub(super) async fn says(&self, call: WhenCall) -> Result<bool, ToolError> {
        (self.0)(call).await
    }
}

/// Adds code to a rule.
pub trait RuleWhen: Sized {
    /// The rule matches only if `says` gives `Ok(true)` too. It is asked where everything else of the rule matches and no earlier rule
    /// decided. An error or a panic is the call's failure: the call does not run.
    ///
    /// ```
    /// use toolwright_core::policy::ask;
    /// use toolwright_runtime::RuleWhen as _;
    ///
    /// let rule = ask("transfer").when(|call| async move { Ok(call.args()["amount"].as_f64().is_none_or(|amount| amount >= 100.0)) });
    /// # let _ = rule;
    /// ```
    #[must_use]
    fn when<F, Fut>(self, says: F) -> Self
    where
        F: Fn(WhenCall) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<bool, ToolError>> + Send + 'static;
}

impl RuleWhen for Rule {
    fn when<F, Fut>(self, says: F) -> Self
    where
        F: Fn(WhenCall) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<bool, ToolError>> + Send + 'static,
    {
        self.predicate(Predicate(Arc::new(When(Box::new(move |call| says(call).boxed())))))
    }
}
