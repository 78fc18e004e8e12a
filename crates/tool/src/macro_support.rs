//! What the code made by `#[tool]` and `#[args]` uses. Not a public interface.

use std::future::Future;
use std::sync::Arc;

use futures_util::{FutureExt, TryFutureExt};
use serde::Serialize;
use serde_json::Value;
use toolwright_core::ToolOutput;

use crate::approval::ApprovalOutcome;
use crate::define::ToolBuilder;
use crate::extract::ToolArg;
use crate::output::{IntoToolResult, output_of};
use crate::require::Requirements;

pub use crate::define::check_decodes;
pub use futures_core::Stream;
pub use futures_util::StreamExt;
pub use schemars;
pub use serde;
pub use serde_json;
pub use toolwright_core::{EnvNeed, Issue, ToolOrigin};

// Generated code names everything through this module, so that a facade has one thing to hand on.
pub use crate::{
    Annotations, Args, BlockingWork, FromCall, NeedsApproval, OnInterrupt, Running, Tool, ToolBody, ToolContext, ToolDef, ToolError,
};

/// Compiles where `T` can be an argument.
pub fn is_argument<T: ToolArg>() {}

/// Decodes one argument.
pub fn argument<'de, D: serde::Deserializer<'de>, T: ToolArg>(deserializer: D) -> Result<T, D::Error> {
    T::deserialize(deserializer)
}

/// The schema of one argument's type.
pub struct Described<T>(std::marker::PhantomData<fn() -> T>);

impl<T: ToolArg> schemars::JsonSchema for Described<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> std::borrow::Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        T::json_schema(generator)
    }
}

/// The arguments as `T`; the gate has checked them, so that a failure here is a path that it did not see.
pub fn decode<T: serde::de::DeserializeOwned>(cx: &ToolContext) -> Result<T, ToolError> {
    T::deserialize(cx.args().value()).map_err(|error| match check_decodes::<T>(cx.args().value()) {
        Err(issues) => issues
            .into_iter()
            .next()
            .map_or_else(|| ToolError::invalid("", error.to_string()), |issue| ToolError::invalid(issue.path, issue.message)),
        Ok(()) => ToolError::invalid("", error.to_string()),
    })
}

/// A body that did not begin.
pub fn refused(error: ToolError) -> Running {
    Running::Future(std::future::ready(Err(error)).boxed())
}

/// The stream of an extractor's success, or its error as the only item.
pub fn stream_after<F, S>(begin: F) -> impl Stream<Item = Result<Value, ToolError>> + Send
where
    F: Future<Output = Result<S, ToolError>> + Send,
    S: Stream<Item = Result<Value, ToolError>> + Send,
{
    begin.try_flatten_stream()
}

/// A value that a tool can return.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be returned by a tool",
    label = "not a result",
    note = "return `T` or `Result<T, E>`, where `T` implements `Serialize`: put `#[toolwright::args]` on it, or return a `ToolOutput`",
    note = "a stream of snapshots is written `-> impl Stream<Item = T>`"
)]
pub trait Returned: Serialize + 'static {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + 'static> Returned for T {}

/// The result of a body that did not fail.
pub fn returned<T: Returned>(value: T) -> Result<ToolOutput, ToolError> {
    Ok(output_of(value))
}

/// One item of a stream.
pub fn snapshot(result: Result<ToolOutput, ToolError>) -> Result<Value, ToolError> {
    result.map(|output| output.shown())
}

/// JSON that the macro has checked.
pub fn json_text(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

/// The schema of the arguments. Its root has no description: that is the tool's.
pub fn arguments_schema<T: schemars::JsonSchema>() -> Value {
    let mut schema = crate::define::schema_of::<T>();
    if let Some(object) = schema.as_object_mut() {
        object.shift_remove("description");
        // Some providers refuse an object schema without properties.
        if object.get("type").is_some_and(|kind| kind == "object") && !object.contains_key("properties") {
            object.insert("properties".to_owned(), Value::Object(serde_json::Map::new()));
        }
    }
    schema
}

/// The schema of the result; none where it would say nothing.
pub fn output_schema<T: schemars::JsonSchema>() -> Option<Value> {
    let settings = schemars::generate::SchemaSettings::draft2020_12().for_serialize().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    let object = schema.as_object_mut()?;
    object.shift_remove("title");
    let says_nothing = object.is_empty() || object.get("type").is_some_and(|kind| kind == "null");
    (!says_nothing).then_some(schema)
}

/// The tool, or one that `build()` refuses with the reason.
pub fn finish(builder: ToolBuilder, schema: Value, body: impl ToolBody) -> Tool {
    builder.run_body(schema, Arc::new(body)).unwrap_or_else(Tool::broken)
}

/// `needs_approval = path`.
pub fn needs_approval_by<M, P: Policy<M>>(builder: ToolBuilder, policy: P) -> ToolBuilder {
    let policy = Arc::new(policy);
    builder.requires(P::requires).needs_approval_if(move |cx| {
        let policy = Arc::clone(&policy);
        async move { policy.decide(cx).await }
    })
}

/// `requires_sandbox = path`.
pub fn sandboxed_by<M: 'static, B: SandboxBody<M>>(builder: ToolBuilder, body: B) -> ToolBuilder {
    builder.requires(B::requires).requires_sandbox(Some(Arc::new(Sandboxed { body: Arc::new(body), marker: std::marker::PhantomData })))
}

/// A function of extractors that decides whether a call needs approval.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't decide whether a call needs approval",
    label = "not an approval policy",
    note = "its parameters are extractors, such as `Ctx(cx): Ctx`, `State(db): State<Db>` or `Args(pay): Args<Pay>` for the arguments",
    note = "it returns `bool`, `ApprovalOutcome`, or a `Result` of one; it may be `async`"
)]
pub trait Policy<M>: Send + Sync + 'static {
    /// What its extractors need.
    fn requires(requirements: &mut Requirements);

    /// Decides.
    fn decide(&self, cx: ToolContext) -> impl Future<Output = Result<ApprovalOutcome, ToolError>> + Send;
}

/// What a policy answers.
pub trait Answer {
    /// The outcome.
    fn into_outcome(self) -> Result<ApprovalOutcome, ToolError>;
}

impl Answer for bool {
    fn into_outcome(self) -> Result<ApprovalOutcome, ToolError> {
        Ok(self.into())
    }
}

impl Answer for ApprovalOutcome {
    fn into_outcome(self) -> Result<ApprovalOutcome, ToolError> {
        Ok(self)
    }
}

impl<T: Into<ApprovalOutcome>, E: Into<ToolError>> Answer for Result<T, E> {
    fn into_outcome(self) -> Result<ApprovalOutcome, ToolError> {
        self.map(Into::into).map_err(Into::into)
    }
}

/// A function of extractors that runs in a sandbox.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't run in a sandbox",
    label = "not a sandboxed body",
    note = "its parameters are extractors, such as `Ctx(cx): Ctx` or `Args(command): Args<Command>` for the arguments",
    note = "it returns a `Result` whose value implements `Serialize`; it may be `async`"
)]
pub trait SandboxBody<M>: Send + Sync + 'static {
    /// What its extractors need.
    fn requires(requirements: &mut Requirements);

    /// Begins.
    fn sandboxed(self: &Arc<Self>, cx: ToolContext) -> Running;
}

struct Sandboxed<B, M> {
    body: Arc<B>,
    marker: std::marker::PhantomData<fn() -> M>,
}

impl<M: 'static, B: SandboxBody<M>> ToolBody for Sandboxed<B, M> {
    fn check(&self, _args: &Value) -> Result<(), Vec<Issue>> {
        Ok(())
    }

    fn begin(&self, cx: ToolContext) -> Running {
        self.body.sandboxed(cx)
    }
}

/// Marks a plain function.
pub struct Plain;

/// Marks an async function.
pub struct Async;

macro_rules! functions_of {
    ($($extractor:ident)*) => {
        impl<F, R, $($extractor),*> Policy<(Plain, R, $($extractor,)*)> for F
        where
            F: Fn($($extractor),*) -> R + Send + Sync + 'static,
            R: Answer + Send,
            $($extractor: FromCall,)*
        {
            fn requires(_requirements: &mut Requirements) {
                $($extractor::requires(_requirements);)*
            }

            async fn decide(&self, _cx: ToolContext) -> Result<ApprovalOutcome, ToolError> {
                self($($extractor::from_call(&_cx).await?),*).into_outcome()
            }
        }

        impl<F, Fut, $($extractor),*> Policy<(Async, Fut, $($extractor,)*)> for F
        where
            F: Fn($($extractor),*) -> Fut + Send + Sync + 'static,
            Fut: Future + Send,
            Fut::Output: Answer + Send,
            $($extractor: FromCall,)*
        {
            fn requires(_requirements: &mut Requirements) {
                $($extractor::requires(_requirements);)*
            }

            async fn decide(&self, _cx: ToolContext) -> Result<ApprovalOutcome, ToolError> {
                self($($extractor::from_call(&_cx).await?),*).await.into_outcome()
            }
        }

        impl<F, R, $($extractor),*> SandboxBody<(Plain, R, $($extractor,)*)> for F
        where
            F: Fn($($extractor),*) -> R + Send + Sync + 'static,
            R: IntoToolResult,
            $($extractor: FromCall + 'static,)*
        {
            fn requires(_requirements: &mut Requirements) {
                $($extractor::requires(_requirements);)*
            }

            #[allow(non_snake_case, reason = "an extractor's value is named as its type")]
            fn sandboxed(self: &Arc<Self>, _cx: ToolContext) -> Running {
                let body = Arc::clone(self);
                Running::Blocking(Box::pin(async move {
                    $(let $extractor = $extractor::from_call(&_cx).await?;)*
                    let work: BlockingWork = Box::new(move || body($($extractor),*).into_tool_result());
                    Ok(work)
                }))
            }
        }

        impl<F, Fut, $($extractor),*> SandboxBody<(Async, Fut, $($extractor,)*)> for F
        where
            F: Fn($($extractor),*) -> Fut + Send + Sync + 'static,
            Fut: Future + Send,
            Fut::Output: IntoToolResult,
            $($extractor: FromCall,)*
        {
            fn requires(_requirements: &mut Requirements) {
                $($extractor::requires(_requirements);)*
            }

            fn sandboxed(self: &Arc<Self>, _cx: ToolContext) -> Running {
                let body = Arc::clone(self);
                Running::Future(Box::pin(async move { body($($extractor::from_call(&_cx).await?),*).await.into_tool_result() }))
            }
        }
    };
}

functions_of!();
functions_of!(A);
functions_of!(A B);
functions_of!(A B C);
functions_of!(A B C D);
functions_of!(A B C D E);
functions_of!(A B C D E G);

/// What a value is, told by which method is found first: each trait here stands one reference further out than the next.
pub mod kind {
    use std::convert::Infallible;
    use std::error::Error as StdError;
    use std::fmt::Display;
    use std::marker::PhantomData;

    use schemars::JsonSchema;
    use serde_json::Value;

    use crate::error::ToolError;

    /// Stands for a type.
    pub struct Kind<T>(PhantomData<fn() -> T>);

    impl<T> Kind<T> {
        /// The type by name.
        #[expect(clippy::new_without_default, reason = "only written by the macro")]
        pub fn new() -> Self {
            Self(PhantomData)
        }

        /// The type of a value.
        pub fn of(_value: &T) -> Self {
            Self(PhantomData)
        }
    }

    /// A result is split into its arms.
    pub struct IsResult;
    impl IsResult {
        /// Its arms.
        pub fn split<T, E>(self, value: Result<T, E>) -> Result<T, E> {
            value
        }
    }
    /// Finds results.
    pub trait SplitResult {
        /// What it is.
        fn __split(&self) -> IsResult;
    }
    impl<T, E> SplitResult for &Kind<Result<T, E>> {
        fn __split(&self) -> IsResult {
            IsResult
        }
    }

    /// Any other value is a success.
    pub struct IsPlain;
    impl IsPlain {
        /// Always the first arm.
        pub fn split<T>(self, value: T) -> Result<T, Infallible> {
            Ok(value)
        }
    }
    /// Finds the rest.
    pub trait SplitPlain {
        /// What it is.
        fn __split(&self) -> IsPlain;
    }
    impl<T> SplitPlain for Kind<T> {
        fn __split(&self) -> IsPlain {
            IsPlain
        }
    }

    /// An error that turns into a tool's by itself.
    pub struct IsInto;
    impl IsInto {
        /// The failure.
        pub fn of<E: Into<ToolError>>(self, error: E) -> ToolError {
            error.into()
        }
    }
    /// Finds tool errors and `std` errors.
    pub trait FailsInto {
        /// What it is.
        fn __failure(&self) -> IsInto;
    }
    impl<E: Into<ToolError>> FailsInto for &&&Kind<E> {
        fn __failure(&self) -> IsInto {
            IsInto
        }
    }

    /// An error whose type is gone, or a text: what turns into a boxed error.
    pub struct IsBoxable;
    impl IsBoxable {
        /// The failure.
        pub fn of<E: Into<Box<dyn StdError + Send + Sync>>>(self, error: E) -> ToolError {
            let error: Box<dyn StdError + Send + Sync> = error.into();
            ToolError::from_dyn(&*error)
        }
    }
    /// Finds `anyhow::Error`, boxed errors and texts.
    pub trait FailsBoxable {
        /// What it is.
        fn __failure(&self) -> IsBoxable;
    }
    impl<E: Into<Box<dyn StdError + Send + Sync>>> FailsBoxable for &&Kind<E> {
        fn __failure(&self) -> IsBoxable {
            IsBoxable
        }
    }

    /// Anything else that says something.
    pub struct IsDisplay;
    impl IsDisplay {
        /// The failure.
        pub fn of<E: Failure>(self, error: E) -> ToolError {
            ToolError::new(error.to_string())
        }
    }
    /// An error that a tool can return.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` can't be the error of a tool",
        label = "not an error",
        note = "it implements `std::error::Error`, is `anyhow::Error` or a text, or turns into `ToolError`"
    )]
    pub trait Failure: Display {}
    #[diagnostic::do_not_recommend]
    impl<E: Display> Failure for E {}
    /// Finds the rest.
    pub trait FailsDisplay {
        /// What it is.
        fn __failure(&self) -> IsDisplay;
    }
    impl<E> FailsDisplay for Kind<E> {
        fn __failure(&self) -> IsDisplay {
            IsDisplay
        }
    }

    /// Finds the schema of a result's value.
    pub trait SchemaOfResult {
        /// It.
        fn __schema(&self) -> Option<Value>;
    }
    impl<T: JsonSchema, E> SchemaOfResult for &&Kind<Result<T, E>> {
        fn __schema(&self) -> Option<Value> {
            super::output_schema::<T>()
        }
    }

    /// Stops at results without one, so that `Err` is never in a schema.
    pub trait SchemaOfValue {
        /// It.
        fn __schema(&self) -> Option<Value>;
    }
    impl<T: JsonSchema> SchemaOfValue for &Kind<T> {
        fn __schema(&self) -> Option<Value> {
            super::output_schema::<T>()
        }
    }

    /// Finds the rest.
    pub trait SchemaOfNone {
        /// Nothing.
        fn __schema(&self) -> Option<Value>;
    }
    impl<T> SchemaOfNone for Kind<T> {
        fn __schema(&self) -> Option<Value> {
            None
        }
    }
}
