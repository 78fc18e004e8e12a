//! `#[tool]`: the function, the type beside it, and its body.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Ident, ItemFn, LitStr, Path, parse_quote};

use crate::arg::Place;
use crate::options::{Approval, Options, Sandbox};
use crate::root;
use crate::signature::{self, Kind, Param, Problems, Signature};

/// Names of types that a tool's own type would hide.
const PRIMITIVES: &[&str] =
    &["bool", "char", "str", "u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize", "f32", "f64"];

pub(crate) fn tool(options: TokenStream, item: &TokenStream) -> TokenStream {
    let mut function: ItemFn = match syn::parse2(item.clone()) {
        Ok(function) => function,
        Err(error) => {
            let error = match syn::parse2::<syn::Item>(item.clone()) {
                Ok(other) => syn::Error::new_spanned(other, "`#[tool]` stands on a function; for the type of an argument write `#[args]`"),
                Err(_) => error,
            };
            let error = error.to_compile_error();
            return quote!(#error #item);
        }
    };
    let (options, error) = crate::options::read(options);
    let mut problems = Problems::default();
    if let Some(error) = error {
        problems.add(error);
    }
    let signature = signature::read(&mut function, &mut problems);
    let name = tool_name(&options, &function.sig.ident, &mut problems);
    if let (Some(true), Some(true)) = (options.read_only, options.destructive) {
        problems.say(&function.sig.ident, "a tool that is `read_only` changes nothing, so it can't be `destructive`; drop one of them");
    }
    allow_what_tools_need(&mut function);
    let support: Path = match root::root(options.root.clone()) {
        // One path, so that a facade has one thing to hand on.
        Ok(root) => parse_quote!(#root::macro_support),
        Err(error) => {
            let error = error.to_compile_error();
            return quote!(#error #function);
        }
    };
    let body = body(&signature, &function.sig.ident, &support, &mut problems);
    if let Some(error) = problems.into_error() {
        let error = error.to_compile_error();
        let ident = &function.sig.ident;
        // The name stays known, so that the one mistake gives no others.
        let stand_in = (signature.is_free && !is_primitive(ident)).then(|| {
            let marker = marker(&function);
            quote! {
                #marker
                impl #support::ToolDef for #ident {
                    fn tool() -> #support::Tool {
                        ::core::panic!()
                    }
                }
            }
        });
        return quote!(#error #[allow(unused)] #function #stand_in);
    }
    let marker = marker(&function);
    let cfgs = function.attrs.iter().filter(|attr| attr.path().is_ident("cfg"));
    let definition = definition(&options, &function, &signature, &name, &support);
    quote! {
        #function
        #marker
        #(#cfgs)*
        #[allow(clippy::all, clippy::pedantic, clippy::nursery, clippy::restriction, unused, deprecated, missing_docs, non_snake_case, non_upper_case_globals)]
        const _: () = {
            #body
            #definition
        };
    }
}

/// What a tool has to do, lints should not complain of.
fn allow_what_tools_need(function: &mut ItemFn) {
    function.attrs.push(parse_quote!(
        #[allow(
            clippy::needless_pass_by_value,
            clippy::trivially_copy_pass_by_ref,
            clippy::unused_async,
            clippy::too_many_arguments,
            clippy::unnecessary_wraps,
            clippy::fn_params_excessive_bools
        )]
    ));
}

/// The type of the function's name: braced, so that only the type's name is taken.
fn marker(function: &ItemFn) -> TokenStream {
    let (vis, ident) = (&function.vis, &function.sig.ident);
    let cfgs = function.attrs.iter().filter(|attr| attr.path().is_ident("cfg"));
    let doc = format!("The tool `{}`, for `tools![{}]`.", ident.unraw(), ident);
    quote! {
        #(#cfgs)*
        #[doc = #doc]
        #[allow(non_camel_case_types, dead_code, unreachable_pub, clippy::empty_structs_with_brackets, clippy::exhaustive_structs)]
        #vis struct #ident {}
    }
}

fn is_primitive(ident: &Ident) -> bool {
    PRIMITIVES.iter().any(|name| ident == name)
}

/// The name the model calls, checked by the rules of `ToolName`.
fn tool_name(options: &Options, ident: &Ident, problems: &mut Problems) -> LitStr {
    let own = ident.unraw().to_string();
    if is_primitive(ident) {
        problems.say(ident, format!("a tool has a type of its function's name, which would hide Rust's `{own}`; call the function otherwise and write `#[tool(name = \"{own}\")]`"));
    }
    let name = options.name.clone().unwrap_or_else(|| LitStr::new(&own, ident.span()));
    let text = name.value();
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let problem = match text.chars().find(|c| !allowed(*c)) {
        _ if text.is_empty() => "is empty".to_owned(),
        Some(' ') => "has a space".to_owned(),
        Some('.') => "has a dot".to_owned(),
        Some(c) => format!("has the character {c:?}"),
        None if text.len() > 64 => format!("has {} characters", text.len()),
        None => return name,
    };
    let fix = if options.name.is_none() { "; give it one with `#[tool(name = \"...\")]`" } else { "" };
    problems.say(&name, format!("the tool name `{text}` {problem}; use letters, digits, `_` and `-`, at most 64{fix}"));
    name
}

/// The hidden types: arguments and body.
fn body(signature: &Signature, function: &Ident, support: &Path, problems: &mut Problems) -> TokenStream {
    let arguments = arguments(signature, support, problems);
    let mut take = Vec::new();
    let mut pass = Vec::new();
    for (index, param) in signature.params.iter().enumerate() {
        match param {
            Param::Argument(argument) => {
                let ident = &argument.ident;
                pass.push(quote!(__args.#ident));
            }
            Param::Whole { .. } => pass.push(quote!(#support::Args(__args))),
            Param::Extractor(ty) => {
                let name = format_ident!("__taken_{index}");
                take.push(quote_spanned!(ty.span()=> let #name = <#ty as #support::FromCall>::from_call(&__cx).await?;));
                pass.push(quote!(#name));
            }
        }
    }
    let call = quote!(#function(#(#pass),*));
    let result = result(&quote!(__value), signature.output_span, support);
    let running = match signature.kind {
        Kind::Future => quote! {
            #support::Running::Future(::std::boxed::Box::pin(async move {
                #(#take)*
                let __value = #call.await;
                #result
            }))
        },
        Kind::Blocking => quote! {
            #support::Running::Blocking(::std::boxed::Box::pin(async move {
                #(#take)*
                let __work: #support::BlockingWork = ::std::boxed::Box::new(move || {
                    let __value = #call;
                    #result
                });
                ::core::result::Result::Ok(__work)
            }))
        },
        Kind::Stream => {
            // Written where it is called, so that the item's type is known.
            let snapshots = quote!(#support::StreamExt::map(#call, |__value| #support::snapshot(#result)));
            let stream = if take.is_empty() {
                snapshots
            } else {
                quote!(#support::stream_after(async move {
                    #(#take)*
                    ::core::result::Result::<_, #support::ToolError>::Ok(#snapshots)
                }))
            };
            quote!(#support::Running::Stream(::std::boxed::Box::pin(#stream)))
        }
    };
    quote! {
        #arguments
        struct __ToolBody;
        #[automatically_derived]
        impl #support::ToolBody for __ToolBody {
            fn check(&self, __args: &#support::serde_json::Value) -> ::core::result::Result<(), ::std::vec::Vec<#support::Issue>> {
                #support::check_decodes::<__ToolArgs>(__args)
            }

            fn begin(&self, __cx: #support::ToolContext) -> #support::Running {
                let __args = match #support::decode::<__ToolArgs>(&__cx) {
                    ::core::result::Result::Ok(__args) => __args,
                    ::core::result::Result::Err(__error) => return #support::refused(__error),
                };
                #running
            }
        }
    }
}

/// From the value a body returned to its result: what it is decides, not how its type is written.
fn result(value: &TokenStream, span: Span, support: &Path) -> TokenStream {
    let returned = quote_spanned!(span=> #support::returned(__returned));
    quote! {{
        use #support::kind::{FailsBoxable as _, FailsDisplay as _, FailsInto as _, SplitPlain as _, SplitResult as _};
        let __split = (&&#support::kind::Kind::of(&#value)).__split();
        match __split.split(#value) {
            ::core::result::Result::Ok(__returned) => #returned,
            ::core::result::Result::Err(__error) => {
                let __failure = (&&&&#support::kind::Kind::of(&__error)).__failure();
                ::core::result::Result::Err(__failure.of(__error))
            }
        }
    }}
}

/// The type that the arguments are decoded into.
fn arguments(signature: &Signature, support: &Path, problems: &mut Problems) -> TokenStream {
    if let Some(inner) = signature.params.iter().find_map(|param| match param {
        Param::Whole { inner, .. } => Some(inner),
        _ => None,
    }) {
        let is_argument = quote_spanned!(inner.span()=> #support::is_argument::<#inner>());
        return quote! {
            type __ToolArgs = #inner;
            const _: fn() = || #is_argument;
        };
    }
    let mut fields = Vec::new();
    let mut defaults = Vec::new();
    let mut flattens = false;
    for param in &signature.params {
        let Param::Argument(argument) = param else { continue };
        let (ident, ty) = (&argument.ident, &argument.ty);
        let default_name = format_ident!("__default_{}", ident.unraw(), span = Span::call_site());
        match crate::arg::field(&argument.attrs, ty, Place::Parameter(support), &default_name) {
            Ok(field) => {
                let attrs = &field.attrs;
                fields.push(quote!(#(#attrs)* #ident: #ty));
                defaults.extend(field.default_fn);
                flattens |= field.flattens;
            }
            Err(error) => problems.add(error),
        }
    }
    let closed = (!flattens).then(|| quote!(, deny_unknown_fields));
    let serde = root::literal(&parse_quote!(#support::serde));
    let schemars = root::literal(&parse_quote!(#support::schemars));
    quote! {
        #(#defaults)*
        #[derive(#support::serde::Deserialize, #support::schemars::JsonSchema)]
        #[serde(crate = #serde)]
        #[schemars(crate = #schemars #closed)]
        struct __ToolArgs { #(#fields),* }
    }
}

/// `impl ToolDef`.
fn definition(options: &Options, function: &ItemFn, signature: &Signature, name: &LitStr, support: &Path) -> TokenStream {
    let ident = &function.sig.ident;
    let path_end = format!("::{}", ident.unraw());
    let description = match &options.description {
        Some(description) => description.to_token_stream(),
        None => crate::docs::text(&function.attrs).to_token_stream(),
    };
    let requires = signature.params.iter().filter_map(|param| match param {
        Param::Extractor(ty) => Some(quote_spanned!(ty.span()=> <#ty as #support::FromCall>::requires(__requirements);)),
        _ => None,
    });
    let steps = steps(options, support);
    let output = signature.output.as_ref().map(|ty| {
        quote! {
            let __schema = {
                use #support::kind::{SchemaOfNone as _, SchemaOfResult as _, SchemaOfValue as _};
                (&&&#support::kind::Kind::<#ty>::new()).__schema()
            };
            let __builder = match __schema {
                ::core::option::Option::Some(__schema) => __builder.output_schema(__schema),
                ::core::option::Option::None => __builder,
            };
        }
    });
    quote! {
        #[automatically_derived]
        impl #support::ToolDef for #ident {
            fn tool() -> #support::Tool {
                let __builder = #support::Tool::new(#name, #description)
                    .description_optional()
                    .origin(#support::ToolOrigin::Function {
                        path: ::std::string::String::from(::core::concat!(::core::module_path!(), #path_end)),
                        location: ::std::string::String::from(::core::concat!(::core::file!(), ":", ::core::line!())),
                    })
                    .requires(|__requirements| { let _ = &__requirements; #(#requires)* });
                #(let __builder = #steps;)*
                #output
                #support::finish(__builder, #support::arguments_schema::<__ToolArgs>(), __ToolBody)
            }
        }
    }
}

/// One call of the builder for each option.
fn steps(options: &Options, support: &Path) -> Vec<TokenStream> {
    let mut steps = Vec::new();
    if let Some(label) = &options.display_name {
        steps.push(quote!(__builder.display_name(#label)));
    }
    let hints: Vec<_> = [
        ("read_only_hint", options.read_only),
        ("destructive_hint", options.destructive),
        ("idempotent_hint", options.idempotent),
        ("open_world_hint", options.open_world),
    ]
    .into_iter()
    .filter_map(|(field, hint)| hint.map(|hint| (Ident::new(field, Span::call_site()), hint)))
    .map(|(field, hint)| quote!(__hints.#field = ::core::option::Option::Some(#hint);))
    .collect();
    if !hints.is_empty() {
        steps.push(quote!({
            let mut __hints = #support::Annotations::default();
            #(#hints)*
            __builder.annotations(__hints)
        }));
    }
    match &options.approval {
        Some(Approval::Always) => steps.push(quote!(__builder.needs_approval())),
        Some(Approval::Once(per)) => steps.push(quote!(__builder.approval(#support::NeedsApproval::#per()))),
        Some(Approval::By(policy)) => steps.push(quote_spanned!(policy.span()=> #support::needs_approval_by(__builder, #policy))),
        None => {}
    }
    match &options.sandbox {
        Some(Sandbox::Needed) => steps.push(quote!(__builder.requires_sandbox(::core::option::Option::None))),
        Some(Sandbox::With(body)) => steps.push(quote_spanned!(body.span()=> #support::sandboxed_by(__builder, #body))),
        None => {}
    }
    if let Some(choice) = options.on_interrupt {
        let choice = Ident::new(choice, Span::call_site());
        steps.push(quote!(__builder.on_interrupt(#support::OnInterrupt::#choice)));
    }
    let flags = [
        ("defer_loading", options.defer_loading),
        ("edits_files", options.edits_files),
        ("no_repair", options.no_repair),
        ("sequential", options.sequential),
    ];
    for (method, _) in flags.into_iter().filter(|(_, is_set)| *is_set) {
        let method = Ident::new(method, Span::call_site());
        steps.push(quote!(__builder.#method()));
    }
    if let Some(time) = options.timeout_ms {
        steps.push(quote!(__builder.timeout(::core::time::Duration::from_millis(#time))));
    }
    let numbers = [("result_limit", &options.result_limit), ("max_calls", &options.max_calls), ("max_retries", &options.max_retries)];
    for (method, number) in numbers {
        let method = Ident::new(method, Span::call_site());
        steps.extend(number.as_ref().map(|number| quote!(__builder.#method(#number))));
    }
    for need in &options.env {
        let name = &need.name;
        let kind = if need.secret { quote!(secret) } else { quote!(text) };
        let mut said = quote!(#support::EnvNeed::#kind(#name));
        if need.optional {
            said = quote!(#said.optional());
        }
        if need.scoped {
            said = quote!(#said.scoped());
        }
        if let Some(description) = &need.description {
            said = quote!(#said.described(#description));
        }
        steps.push(quote!(__builder.env_need(#said)));
    }
    for example in &options.examples {
        let example = example.to_expr(support);
        steps.push(quote!(__builder.example(#example)));
    }
    for (provider, json) in &options.per_provider {
        let json = json.to_expr(support);
        steps.push(quote!(__builder.provider_option(#provider, #json)));
    }
    steps
}
