//! `#[args]`.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident, quote};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Attribute, Data, DeriveInput, Fields, Ident, Path, Token, parse_quote};

use crate::arg::Place;
use crate::root;
use crate::signature::Problems;

pub(crate) fn args(options: TokenStream, item: &TokenStream) -> TokenStream {
    match expand(options, item.clone()) {
        Ok(tokens) => tokens,
        Err(error) => {
            let error = error.to_compile_error();
            quote!(#error #item)
        }
    }
}

fn expand(options: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let given = (|input: ParseStream<'_>| options_of(input)).parse2(options)?;
    let mut item: DeriveInput = syn::parse2(item).map_err(|error| {
        syn::Error::new(error.span(), "`#[args]` stands on a struct or an enum: the type of an argument or of a result")
    })?;
    let root = root::root(given)?;
    let support: Path = parse_quote!(#root::macro_support);
    let mut problems = Problems::default();
    let mut defaults = Vec::new();
    let mut flattens = false;
    let ident = item.ident.unraw();
    let mut on = |fields: &mut Fields, prefix: &str, problems: &mut Problems| {
        let place = if matches!(fields, Fields::Named(_)) { Place::NamedField } else { Place::TupleField };
        for (index, field) in fields.iter_mut().enumerate() {
            let name = field.ident.as_ref().map_or_else(|| index.to_string(), |name| name.unraw().to_string());
            let default_name = format_ident!("__default_{prefix}_{name}", span = Span::call_site());
            match crate::arg::field(&field.attrs, &field.ty, place, &default_name) {
                Ok(made) => {
                    let attrs = made.attrs;
                    match Attribute::parse_outer.parse2(quote!(#(#attrs)*)) {
                        Ok(attrs) => field.attrs = attrs,
                        Err(error) => problems.add(error),
                    }
                    defaults.extend(made.default_fn);
                    flattens |= made.flattens;
                }
                Err(error) => {
                    field.attrs.retain(|attr| !attr.path().is_ident("arg"));
                    problems.add(error);
                }
            }
        }
    };
    let is_enum = matches!(item.data, Data::Enum(_));
    let has_names = match &mut item.data {
        Data::Struct(data) => {
            on(&mut data.fields, &ident.to_string(), &mut problems);
            matches!(data.fields, Fields::Named(_))
        }
        Data::Enum(data) => {
            for variant in &mut data.variants {
                on(&mut variant.fields, &format!("{ident}_{}", variant.ident.unraw()), &mut problems);
                describe(&mut variant.attrs);
            }
            data.variants.iter().any(|variant| matches!(variant.fields, Fields::Named(_)))
        }
        Data::Union(data) => {
            return Err(syn::Error::new(data.union_token.span, "a union has no schema; write an enum"));
        }
    };
    if let Some(error) = problems.into_error() {
        let error = error.to_compile_error();
        return Ok(quote!(#error #[allow(unused)] #item));
    }
    describe(&mut item.attrs);
    let derived = derived(&item.attrs);
    let missing: Vec<Path> = [
        ("Debug", parse_quote!(::core::fmt::Debug)),
        ("Clone", parse_quote!(::core::clone::Clone)),
        ("Deserialize", parse_quote!(#support::serde::Deserialize)),
        ("Serialize", parse_quote!(#support::serde::Serialize)),
        ("JsonSchema", parse_quote!(#support::schemars::JsonSchema)),
    ]
    .into_iter()
    .filter(|(name, _)| !derived.iter().any(|known| known == name))
    .map(|(_, path)| path)
    .collect();
    let serde = root::literal(&parse_quote!(#support::serde));
    let schemars = root::literal(&parse_quote!(#support::schemars));
    let words: Vec<String> = item
        .attrs
        .iter()
        .filter(|attr| attr.path().is_ident("serde") || attr.path().is_ident("schemars"))
        .flat_map(crate::arg::words)
        .collect();
    let has = |word: &str| words.iter().any(|known| known == word);
    let rename = (is_enum && !has("rename_all")).then(|| quote!(, rename_all = "snake_case"));
    let closed = (has_names && !flattens && !has("transparent") && !has("untagged")).then(|| quote!(, deny_unknown_fields));
    // Derives stand first: rustc wants their helper attributes after them.
    let (own_derives, attrs): (Vec<_>, Vec<_>) = item.attrs.drain(..).partition(|attr| attr.path().is_ident("derive"));
    Ok(quote! {
        #(#own_derives)*
        #[derive(#(#missing),*)]
        #[serde(crate = #serde #rename)]
        #[schemars(crate = #schemars #closed)]
        #(#attrs)*
        #item
        #(#[doc(hidden)] #[allow(non_snake_case, clippy::all, clippy::pedantic)] #defaults)*
    })
}

fn options_of(input: ParseStream<'_>) -> syn::Result<Option<Path>> {
    if input.is_empty() {
        return Ok(None);
    }
    let name = input.call(Ident::parse_any)?;
    if name != "crate" {
        return Err(syn::Error::new(
            name.span(),
            format!("`#[args]` has no option `{name}`; serde's and schemars' attributes go below it"),
        ));
    }
    input.parse::<Token![=]>()?;
    input.call(Path::parse_mod_style).map(Some)
}

/// A doc comment becomes the description as a whole, where schemars would keep its line breaks and make a title of a heading.
fn describe(attrs: &mut Vec<Attribute>) {
    let is_given =
        attrs.iter().filter(|attr| attr.path().is_ident("schemars")).flat_map(crate::arg::words).any(|word| word == "description");
    let text = crate::docs::text(attrs);
    if !is_given && !text.is_empty() {
        attrs.push(parse_quote!(#[schemars(description = #text)]));
    }
}

/// The names of what is derived already.
fn derived(attrs: &[Attribute]) -> Vec<String> {
    attrs
        .iter()
        .filter(|attr| attr.path().is_ident("derive"))
        .filter_map(|attr| attr.parse_args_with(Punctuated::<Path, Token![,]>::parse_terminated).ok())
        .flatten()
        .filter_map(|path| path.segments.last().map(|last| last.ident.to_token_stream().to_string()))
        .collect()
}
