//! The attributes `#[tool]` and `#[args]`, and `tools![]`.
//!
//! Sugar over the public traits of `toolwright-tool`: whatever these write, a person could write by hand. Use them through
//! `toolwright` or `toolwright-tool`, whose documentation shows them at work.

mod arg;
mod args;
mod docs;
mod examples;
mod expand;
mod options;
mod root;
mod signature;
mod tools;
mod words;

use proc_macro::TokenStream;

/// Makes a tool of a function.
///
/// The function stays as it is, to be called and tested. Beside it stands a type of the same name that implements `ToolDef`, so that
/// `tools![weather]` finds it.
///
/// A plain parameter is an argument that the model fills in; a parameter with a pattern is an extractor, taken from the call and never
/// shown to the model. Doc comments are descriptions.
///
/// ```text
/// /// Current weather for a city.
/// #[tool(read_only, timeout = "30s")]
/// async fn weather(
///     /// City name, such as "Oslo".
///     #[arg(length(min = 1))]
///     location: String,
///     /// How many days ahead.
///     #[arg(default = 1, range(min = 1, max = 7))]
///     days: u8,
///     State(client): State<WeatherClient>,
///     Ctx(cx): Ctx,
/// ) -> Result<Weather, WeatherError> { ... }
/// ```
///
/// # What the function is
///
/// | function | runs |
/// |---|---|
/// | `async fn`, or one that returns `impl Future` | on the async runtime |
/// | `fn` | on the blocking pool |
/// | `fn ... -> impl Stream<Item = T>` | as a stream of snapshots, the last of which is the result |
///
/// It returns `T` or `Result<T, E>`, with `T` anything `Serialize` (an output schema is made where it is `JsonSchema`) or a `ToolOutput`, and
/// `E` a `ToolError`, any `std::error::Error`, a boxed one, `anyhow::Error`, or anything that is `Display`.
///
/// # Options
///
/// | option | meaning |
/// |---|---|
/// | `name = "..."` | what the model calls it, where that is not the function's name |
/// | `display_name = "..."` | a label for people |
/// | `description = "..."` | instead of the doc comment |
/// | `read_only`, `destructive`, `idempotent`, `open_world` | behaviour hints; `= false` says no |
/// | `needs_approval` | every call has to be approved |
/// | `needs_approval(once)`, `needs_approval(once_per_arguments)` | calls have to be approved until one was, in this thread |
/// | `needs_approval = path` | calls for which that function says so; its parameters are extractors, `Args<T>` among them; it returns `bool`, `ApprovalOutcome`, or a `Result` of one |
/// | `on_interrupt = rerun`, `ask` or `fail` | what happens to a call that had begun when the process died |
/// | `defer_loading` | kept out of the list until a search finds it |
/// | `edits_files` | marks a file edit |
/// | `requires_sandbox` | runs in a sandbox only |
/// | `requires_sandbox = path` | the function that runs there instead; its parameters are extractors, `Args<T>` among them; it returns a `Result` |
/// | `timeout = "30s"` | how long the body may take: `ms`, `s`, `m`, `h`, also together |
/// | `no_repair` | arguments are validated as written |
/// | `sequential` | a barrier in its batch |
/// | `result_limit = N` | the longest result, in characters |
/// | `max_calls = N` | how many calls of one run may reach the body |
/// | `max_retries = N` | how often in a run the body may ask for another try |
/// | `env(NAME, TOKEN: secret "what for", LANG: optional)` | environment values that the body reads through `Env`; `secret`, `optional`, `scoped` |
/// | `examples = [{ "a": 1 }, r#"{"a": 2}"#]` | worked examples of arguments; they have to fit the schema |
/// | `provider_options(openai = { "strict": true })` | merged into the definition that one provider gets |
/// | `crate = path` | where `toolwright` or `toolwright-tool` is, if it is not found |
///
/// # `#[arg(...)]` on a parameter
///
/// `default`, `default = expr`, `rename = "..."`, `description = "..."`, and constraints, written into the schema and enforced before the
/// body: `range(min = .., max = ..)`, `length(min = .., max = .., equal = ..)`, `regex("...")`, `contains("...")`, `email`, `url`, `ip`,
/// `inner(...)`. Attributes of schemars, serde and validator are passed on.
#[proc_macro_attribute]
pub fn tool(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::tool(options.into(), &item.into()).into()
}

/// Makes a struct or an enum usable in arguments and results: derives `Deserialize`, `Serialize`, `JsonSchema`, `Debug` and `Clone`, as far
/// as it does not derive them already, without the crate depending on serde or schemars.
///
/// Doc comments are descriptions. Variants are written in snake case: `Units::Celsius` is `"celsius"`. Fields take `#[arg(...)]` as
/// parameters of a tool do; one that is an `Option` may be left out. Write it above other attributes.
///
/// `#[args(crate = path)]` says where `toolwright` or `toolwright-tool` is, if it is not found.
#[proc_macro_attribute]
pub fn args(options: TokenStream, item: TokenStream) -> TokenStream {
    args::args(options.into(), &item.into()).into()
}

/// The tools of some functions: `tools![weather, calendar::add]` is a `Vec<Tool>`.
#[proc_macro]
pub fn tools(items: TokenStream) -> TokenStream {
    tools::tools(items.into()).into()
}
