//! One argument or field: from `#[arg(...)]`, doc comments and passed attributes to those of serde and schemars.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Attribute, Expr, ExprLit, GenericArgument, Ident, Lit, LitStr, Path, PathArguments, Token, Type, parenthesized};

/// What `#[arg(...)]` knows.
const KNOWN: &[&str] =
    &["default", "rename", "description", "title", "range", "length", "regex", "contains", "email", "url", "ip", "inner", "example"];

/// Attributes whose meaning is that of their own crates.
pub(crate) const PASSED: &[&str] = &["schemars", "serde", "validate", "garde"];

/// Where a field stands.
#[derive(Clone, Copy)]
pub(crate) enum Place<'a> {
    /// A parameter: only ever decoded, through what stands at this path.
    Parameter(&'a Path),
    /// A field of a type that is written too.
    NamedField,
    /// A field without a name.
    TupleField,
}

/// A field of generated code.
pub(crate) struct Field {
    /// Its attributes.
    pub(crate) attrs: Vec<TokenStream>,
    /// The function that makes its default.
    pub(crate) default_fn: Option<TokenStream>,
    /// Whether other properties than those declared may end up in it.
    pub(crate) flattens: bool,
}

struct Item {
    name: Ident,
    value: Value,
}

enum Value {
    None,
    Expr(Box<Expr>),
    List(TokenStream),
}

impl Parse for Item {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let name = input.call(Ident::parse_any)?;
        let value = if input.peek(Token![=]) {
            input.parse::<Token![=]>()?;
            Value::Expr(input.parse()?)
        } else if input.peek(syn::token::Paren) {
            let content;
            parenthesized!(content in input);
            Value::List(content.parse()?)
        } else {
            Value::None
        };
        Ok(Self { name, value })
    }
}

/// Whether `attr` is for a field of generated code and has to leave the function's parameter.
pub(crate) fn belongs_to_field(attr: &Attribute) -> bool {
    attr.path().is_ident("arg") || attr.path().is_ident("doc") || is_passed(attr)
}

fn is_passed(attr: &Attribute) -> bool {
    PASSED.iter().any(|name| attr.path().is_ident(name))
}

/// The `T` of an `Option<T>`, as far as syntax tells.
pub(crate) fn option_of(ty: &Type) -> Option<&Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == "Option")?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match arguments.args.first() {
        Some(GenericArgument::Type(inner)) => Some(inner),
        _ => None,
    }
}

/// The field of `attrs` and `ty`. `default_name` names the function that makes the default.
pub(crate) fn field(attrs: &[Attribute], ty: &Type, place: Place<'_>, default_name: &Ident) -> syn::Result<Field> {
    let mut made = Field { attrs: Vec::new(), default_fn: None, flattens: false };
    let mut description = Some(crate::docs::text(attrs)).filter(|text| !text.is_empty()).map(|text| quote!(#text));
    let mut has_default = false;
    let mut optional = option_of(ty);
    let mut skips = false;
    let mut is_decoded_elsewhere = false;
    let mut is_described_elsewhere = false;
    let mut errors: Option<syn::Error> = None;
    for attr in attrs {
        if attr.path().is_ident("arg") {
            let items = attr.parse_args_with(Punctuated::<Item, Token![,]>::parse_terminated)?;
            for item in items {
                if item.name == "default" {
                    has_default = true;
                }
                if let Err(error) = apply(item, ty, default_name, &mut made, &mut description) {
                    match &mut errors {
                        Some(all) => all.combine(error),
                        None => errors = Some(error),
                    }
                }
            }
        } else if is_passed(attr) {
            let words = words(attr);
            let has = |word: &str| words.iter().any(|known| known == word);
            if ["with", "schema_with", "required", "deserialize_with", "flatten"].iter().any(|word| has(word)) {
                optional = None;
            }
            made.flattens |= has("flatten");
            is_decoded_elsewhere |= has("with") || has("deserialize_with") || has("flatten") || has("skip") || has("skip_deserializing");
            is_described_elsewhere |= has("with") || has("schema_with") || has("flatten");
            has_default |= has("default");
            skips |= has("skip_serializing_if");
            if has("description") {
                description = None;
            }
            made.attrs.push(attr.to_token_stream());
        } else if !(matches!(place, Place::Parameter(_)) && attr.path().is_ident("doc")) {
            made.attrs.push(attr.to_token_stream());
        }
    }
    if let Some(error) = errors {
        return Err(error);
    }
    if let Some(text) = description {
        made.attrs.push(quote!(#[schemars(description = #text)]));
    }
    if let Place::Parameter(support) = place {
        // Both say in one sentence what is wrong with a type that no model can fill in, where the derives' own bounds give four.
        let at = ty.span();
        if !is_decoded_elsewhere {
            let decode = LitStr::new(&format!("{}::argument", crate::words::code(support)), at);
            made.attrs.push(quote!(#[serde(deserialize_with = #decode)]));
        }
        if !is_described_elsewhere && optional.is_none() {
            let schema = LitStr::new(&format!("{}::Described<{}>", crate::words::code(support), ty.to_token_stream()), at);
            made.attrs.push(quote!(#[schemars(with = #schema)]));
        }
    }
    if let Some(inner) = optional.filter(|_| !matches!(place, Place::TupleField)) {
        // An optional argument is one that may be left out; null is not asked for.
        let inner = match place {
            Place::Parameter(support) => format!("{}::Described<{}>", crate::words::code(support), inner.to_token_stream()),
            _ => inner.to_token_stream().to_string(),
        };
        let inner = LitStr::new(&inner, ty.span());
        made.attrs.push(quote!(#[schemars(with = #inner)]));
        if !has_default {
            made.attrs.push(quote!(#[serde(default)]));
        }
        if !skips {
            let skip = quote!(skip_serializing_if = "::core::option::Option::is_none");
            made.attrs.push(if matches!(place, Place::Parameter(_)) { quote!(#[schemars(#skip)]) } else { quote!(#[serde(#skip)]) });
        }
    }
    Ok(made)
}

fn apply(item: Item, ty: &Type, default_name: &Ident, made: &mut Field, description: &mut Option<TokenStream>) -> syn::Result<()> {
    let Item { name, value } = item;
    let span = name.span();
    let word = name.to_string();
    let say = |text: &str| Err(syn::Error::new(span, text));
    match (word.as_str(), value) {
        ("default", Value::None) => made.attrs.push(quote_spanned!(span=> #[serde(default)])),
        ("default", Value::Expr(expr)) => {
            let path = LitStr::new(&default_name.to_string(), span);
            made.attrs.push(quote_spanned!(span=> #[serde(default = #path)]));
            let expr = default_value(&expr, ty);
            made.default_fn = Some(quote!(fn #default_name() -> #ty { #expr }));
        }
        ("rename", Value::Expr(expr)) => match *expr {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => made.attrs.push(quote_spanned!(span=> #[serde(rename = #text)])),
            _ => return say("a property's name is a literal: `rename = \"...\"`"),
        },
        ("description", Value::Expr(expr)) => *description = Some(expr.to_token_stream()),
        ("title", Value::Expr(expr)) => made.attrs.push(quote_spanned!(span=> #[schemars(title = #expr)])),
        ("example", Value::Expr(expr)) => made.attrs.push(quote_spanned!(span=> #[schemars(example = #expr)])),
        ("range" | "length", Value::List(tokens)) => {
            bounds(&word, &tokens, span)?;
            made.attrs.push(quote_spanned!(span=> #[schemars(#name(#tokens))]));
        }
        ("inner", Value::List(tokens)) => made.attrs.push(quote_spanned!(span=> #[schemars(inner(#tokens))])),
        ("regex" | "contains", Value::Expr(expr)) => made.attrs.push(quote_spanned!(span=> #[schemars(#name(pattern = #expr))])),
        ("regex" | "contains", Value::List(tokens)) => {
            let is_literal = syn::parse2::<LitStr>(tokens.clone()).is_ok();
            let pattern = if is_literal { quote!(pattern = #tokens) } else { tokens };
            made.attrs.push(quote_spanned!(span=> #[schemars(#name(#pattern))]));
        }
        ("email" | "url" | "ip", Value::None) => made.attrs.push(quote_spanned!(span=> #[schemars(#name)])),
        ("range" | "length", _) => return say(&format!("`{word}` takes its bounds: `{word}(min = 1, max = 10)`")),
        ("inner", _) => return say("`inner` takes the constraints of the items: `inner(length(min = 1))`"),
        ("regex" | "contains", Value::None) => return say(&format!("`{word}` takes a pattern: `{word}(\"...\")`")),
        ("email" | "url" | "ip", _) => return say(&format!("`{word}` stands alone")),
        ("rename" | "description" | "title" | "example" | "default", _) => return say(&format!("write `{word} = ...`")),
        _ => return Err(syn::Error::new(span, crate::words::unknown("constraint", &word, KNOWN))),
    }
    Ok(())
}

/// The bounds of a range or a length.
fn bounds(word: &str, tokens: &TokenStream, span: Span) -> syn::Result<()> {
    let known: &[&str] = if word == "length" { &["min", "max", "equal"] } else { &["min", "max"] };
    let items = Punctuated::<Item, Token![,]>::parse_terminated.parse2(tokens.clone())?;
    if items.is_empty() {
        return Err(syn::Error::new(span, format!("`{word}` takes its bounds: `{word}(min = 1, max = 10)`")));
    }
    for Item { name, value } in items {
        if !known.contains(&name.to_string().as_str()) || !matches!(value, Value::Expr(_)) {
            let known = known.iter().map(|word| format!("`{word} = ...`")).collect::<Vec<_>>().join(", ");
            return Err(syn::Error::new(name.span(), format!("the bounds of `{word}` are {known}")));
        }
    }
    Ok(())
}

/// A literal text fits any type made from one, and a literal fits an `Option` of its type.
fn default_value(expr: &Expr, ty: &Type) -> TokenStream {
    match expr {
        Expr::Lit(literal) => {
            let value = match &literal.lit {
                Lit::Str(text) => quote_spanned!(text.span()=> ::core::convert::Into::into(#text)),
                other => other.to_token_stream(),
            };
            if option_of(ty).is_some() { quote!(::core::option::Option::Some(#value)) } else { value }
        }
        other => other.to_token_stream(),
    }
}

/// The words of an attribute's list: `#[serde(default = "x", flatten)]` has `default` and `flatten`.
pub(crate) fn words(attr: &Attribute) -> Vec<String> {
    let mut words = Vec::new();
    // What does not parse is for the attribute's own crate to say.
    let _ = attr.parse_nested_meta(|meta| {
        if let Some(ident) = meta.path.get_ident() {
            words.push(ident.to_string());
        }
        if meta.input.peek(Token![=]) {
            meta.value()?.parse::<Expr>()?;
        } else if meta.input.peek(syn::token::Paren) {
            let content;
            parenthesized!(content in meta.input);
            content.parse::<TokenStream>()?;
        }
        Ok(())
    });
    words
}
