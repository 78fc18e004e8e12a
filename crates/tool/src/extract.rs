//! Extractors: what a body takes from its call, besides the model's arguments.

use std::future::Future;
use std::marker::PhantomData;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::context::{Identity, ToolContext};
use crate::error::ToolError;
use crate::files::ThreadFiles;
use crate::require::Requirements;
use crate::values::ThreadValues;

/// Something a body takes from its call.
///
/// ```
/// use toolwright_tool::prelude::*;
///
/// struct Tenant(String);
///
/// impl FromCall for Tenant {
///     fn requires(_requirements: &mut Requirements) {}
///     async fn from_call(cx: &ToolContext) -> Result<Self, ToolError> {
///         let tenant = cx.principal().and_then(|who| who.claims.get("tenant")?.as_str().map(str::to_owned));
///         Ok(Self(tenant.ok_or_else(|| ToolError::new("the caller has no tenant"))?))
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be taken from a call",
    label = "not an extractor",
    note = "a pattern in a tool's signature is an extractor: `Ctx`, `State<T>`, `Args<T>`, `Progress<T>`, `Env`, `Values`, `Files`, `Principal`, `CallId`, or a type that implements `FromCall`; an argument that the model fills in is a plain name"
)]
pub trait FromCall: Sized + Send {
    /// Says what has to be there, so that `build()` can name what is missing. Wrappers pass it on.
    fn requires(requirements: &mut Requirements);

    /// Takes it. An error is the call's result.
    fn from_call(cx: &ToolContext) -> impl Future<Output = Result<Self, ToolError>> + Send;
}

/// A type that a model can fill in: a plain argument of a tool.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be an argument that a model fills in",
    label = "not an argument",
    note = "an argument's type implements `Deserialize` and `JsonSchema`: put `#[toolwright::args]` on it",
    note = "an extractor is written as a pattern: `Ctx(cx): Ctx`, `State(db): State<Db>`"
)]
pub trait ToolArg: DeserializeOwned + JsonSchema + Send + 'static {}

#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned + JsonSchema + Send + 'static> ToolArg for T {}

/// The call's context.
#[derive(Clone, Debug)]
pub struct Ctx(pub ToolContext);

impl FromCall for Ctx {
    fn requires(_requirements: &mut Requirements) {}

    async fn from_call(cx: &ToolContext) -> Result<Self, ToolError> {
        Ok(Self(cx.clone()))
    }
}

/// A shared value: from the run, then the agent, then the tool set.
#[derive(Clone, Debug)]
pub struct State<T>(pub T);

impl<T: Clone + Send + Sync + 'static> FromCall for State<T> {
    fn requires(requirements: &mut Requirements) {
        requirements.state::<T>();
    }

    async fn from_call(cx: &ToolContext) -> Result<Self, ToolError> {
        cx.state::<T>().cloned().map(Self).ok_or_else(|| {
            ToolError::new(format!("the state {} is not there; give it with `.state(...)`", std::any::type_name::<T>()))
                .named("StateMissingError")
        })
    }
}

/// The whole argument object as one type.
#[derive(Clone, Debug)]
pub struct Args<T>(pub T);

impl<T: ToolArg> FromCall for Args<T> {
    fn requires(_requirements: &mut Requirements) {}

    async fn from_call(cx: &ToolContext) -> Result<Self, ToolError> {
        T::deserialize(cx.args().value()).map(Self).map_err(|error| ToolError::invalid("", error.to_string()))
    }
}

/// Shows complete snapshots of the result while the body runs.
#[derive(Clone, Debug)]
pub struct Progress<T>(pub ProgressSender<T>);

/// The sending end of [`Progress`].
pub struct ProgressSender<T> {
    cx: ToolContext,
    shows: PhantomData<fn(T)>,
}

impl<T> Clone for ProgressSender<T> {
    fn clone(&self) -> Self {
        Self { cx: self.cx.clone(), shows: PhantomData }
    }
}

impl<T> std::fmt::Debug for ProgressSender<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProgressSender").finish_non_exhaustive()
    }
}

impl<T: Serialize> ProgressSender<T> {
    /// Shows `snapshot` in place of the one before.
    pub fn send(&self, snapshot: &T) {
        self.cx.show(crate::output::value_of(snapshot));
    }
}

impl<T: Send + 'static> FromCall for Progress<T> {
    fn requires(_requirements: &mut Requirements) {}

    async fn from_call(cx: &ToolContext) -> Result<Self, ToolError> {
        Ok(Self(ProgressSender { cx: cx.clone(), shows: PhantomData }))
    }
}

/// The environment values the tool declared.
#[derive(Clone, Debug)]
pub struct Env(pub EnvView);

/// Reads declared environment values.
#[derive(Clone, Debug)]
pub struct EnvView {
    cx: ToolContext,
}

impl EnvView {
    /// The value of a variable that the tool declared with `env(NAME)`.
    pub fn get(&self, name: &str) -> Result<String, ToolError> {
        self.cx.env(name).ok_or_else(|| {
            let why = self.cx.parts().env.problem(name);
            let why = why.unwrap_or_else(|| format!("the environment value {name} is not there; declare it with `env({name})` and set it"));
            ToolError::new(why).named("EnvMissingError")
        })
    }
}

impl FromCall for Env {
    fn requires(_requirements: &mut Requirements) {}

    async fn from_call(cx: &ToolContext) -> Result<Self, ToolError> {
        Ok(Self(EnvView { cx: cx.clone() }))
    }
}

/// The thread's keyed values.
#[derive(Clone, Debug)]
pub struct Values(pub ThreadValues);

impl FromCall for Values {
    fn requires(_requirements: &mut Requirements) {}

    async fn from_call(cx: &ToolContext) -> Result<Self, ToolError> {
        Ok(Self(cx.values()))
    }
}

/// The thread's files.
#[derive(Clone, Debug)]
pub struct Files(pub ThreadFiles);

impl FromCall for Files {
    fn requires(_requirements: &mut Requirements) {}

    async fn from_call(cx: &ToolContext) -> Result<Self, ToolError> {
        Ok(Self(cx.files()))
    }
}

/// Who the run acts for; `None` if for nobody in particular.
#[derive(Clone, Debug)]
pub struct Principal(pub Option<Identity>);

impl FromCall for Principal {
    fn requires(_requirements: &mut Requirements) {}

    async fn from_call(cx: &ToolContext) -> Result<Self, ToolError> {
        Ok(Self(cx.principal().cloned()))
    }
}

/// The call's id, an idempotency key.
#[derive(Clone, Debug)]
pub struct CallId(pub toolwright_core::CallId);

impl FromCall for CallId {
    fn requires(_requirements: &mut Requirements) {}

    async fn from_call(cx: &ToolContext) -> Result<Self, ToolError> {
        Ok(Self(cx.call_id().clone()))
    }
}
