//! What a function's signature says: its arguments, its extractors, and how its body runs.

use proc_macro2::Span;
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::visit::Visit;
use syn::{
    Attribute, FnArg, GenericArgument, Ident, ItemFn, Pat, Path, PathArguments, ReturnType, Type, TypeImplTrait, TypeParamBound, TypePath,
    TypeReference,
};

use crate::words::code;

/// A parameter.
pub(crate) enum Param {
    /// The model fills it in.
    Argument(Argument),
    /// Taken from the call.
    Extractor(Type),
    /// The whole argument object: `Args<T>`.
    Whole {
        /// `Args`, as the user writes it.
        ty: Type,
        /// `T`.
        inner: Type,
    },
}

/// A plain argument.
pub(crate) struct Argument {
    pub(crate) ident: Ident,
    pub(crate) ty: Type,
    pub(crate) attrs: Vec<Attribute>,
}

/// How the body runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Future,
    Blocking,
    Stream,
}

/// A function that can be a tool.
pub(crate) struct Signature {
    pub(crate) params: Vec<Param>,
    pub(crate) kind: Kind,
    /// The type of the result, where it can be named.
    pub(crate) output: Option<Type>,
    /// Where the return type stands.
    pub(crate) output_span: Span,
    /// Whether a type can stand beside the function: not beside a method.
    pub(crate) is_free: bool,
}

/// Errors, each with its place.
#[derive(Default)]
pub(crate) struct Problems(Option<syn::Error>);

impl Problems {
    pub(crate) fn say(&mut self, at: &impl ToTokens, text: impl std::fmt::Display) {
        self.add(syn::Error::new_spanned(at, text));
    }

    pub(crate) fn add(&mut self, error: syn::Error) {
        match &mut self.0 {
            Some(all) => all.combine(error),
            None => self.0 = Some(error),
        }
    }

    pub(crate) fn into_error(self) -> Option<syn::Error> {
        self.0
    }
}

/// Reads the signature and takes what belongs to the fields off the parameters.
pub(crate) fn read(function: &mut ItemFn, problems: &mut Problems) -> Signature {
    let signature = &mut function.sig;
    if let Some(word) = &signature.constness {
        problems.say(word, "a tool runs when a model calls it, so its function can't be `const`");
    }
    if let Some(word) = &signature.unsafety {
        problems.say(
            word,
            "a model's call proves nothing, so a tool's function can't be `unsafe`; check in the body and call the unsafe function there",
        );
    }
    if let Some(word) = &signature.abi {
        problems.say(word, "a tool is a Rust function; call the `extern` one from its body");
    }
    if let Some(dots) = &signature.variadic {
        problems.say(dots, "a tool's arguments each have a name");
    }
    if !signature.generics.params.is_empty() {
        problems.say(
            &signature.generics,
            "a tool has one schema, so its function can't be generic; write one tool for each type, or take `serde_json::Value`",
        );
    }
    let (kind, output, output_span) = outcome(signature.asyncness.is_some(), &signature.output, signature.ident.span(), problems);
    let is_free = signature.receiver().is_none();
    let mut params = Vec::new();
    for input in &mut signature.inputs {
        match input {
            FnArg::Receiver(receiver) => {
                problems.say(receiver, "a tool is a free function, so it has no `self`; take what it needs as `State(name): State<Type>`");
            }
            FnArg::Typed(typed) => {
                let (fields, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut typed.attrs).into_iter().partition(crate::arg::belongs_to_field);
                typed.attrs = kept;
                params.extend(param(&typed.pat, &typed.ty, fields, problems));
            }
        }
    }
    whole_or_plain(&params, problems);
    Signature { params, kind, output, output_span, is_free }
}

fn param(pat: &Pat, ty: &Type, attrs: Vec<Attribute>, problems: &mut Problems) -> Option<Param> {
    match pat {
        Pat::Ident(name) if name.subpat.is_none() && name.by_ref.is_none() => {
            if let Some(wanted) = extractor_named(ty) {
                let (name, ty) = (&name.ident, code(ty));
                problems.say(
                    pat,
                    format!(
                        "`{name}: {ty}` is an extractor: write `{}({name}): {}`, or it would be an argument that the model has to fill",
                        wanted.constructor, wanted.ty
                    ),
                );
                return None;
            }
            owned(&name.ident, ty, problems);
            Some(Param::Argument(Argument { ident: name.ident.clone(), ty: ty.clone(), attrs }))
        }
        Pat::Ident(_) => {
            problems.say(pat, "an argument is a plain name: its name and its type are what the model sees");
            None
        }
        _ => {
            if let Some(attr) = attrs.first() {
                let what = if attr.path().is_ident("doc") { "documentation" } else { "attributes" };
                problems.say(attr, format!("an extractor is never shown to the model, so {what} of it would be lost; remove it here"));
            }
            let mut references = FindReference::default();
            references.visit_type(ty);
            if let Some(found) = &references.found {
                problems.say(found, format!("an extractor is owned: `{}` can't borrow", code(ty)));
            }
            if let Some(inner) = generic_of(ty, "Args") {
                return Some(Param::Whole { ty: ty.clone(), inner: inner.clone() });
            }
            Some(Param::Extractor(ty.clone()))
        }
    }
}

/// `Args<T>` is the whole argument object, so nothing stands beside it.
fn whole_or_plain(params: &[Param], problems: &mut Problems) {
    let mut wholes = params.iter().filter_map(|param| match param {
        Param::Whole { ty, .. } => Some(ty),
        _ => None,
    });
    let Some(first) = wholes.next() else { return };
    if let Some(second) = wholes.next() {
        problems.say(second, "`Args` is the whole argument object; one is enough");
    }
    for param in params {
        if let Param::Argument(argument) = param {
            problems.say(
                &argument.ident,
                format!("`{}` takes the whole argument object, so `{}` can't stand beside it: make it a field of that type, or list all arguments by name", code(first), argument.ident),
            );
        }
    }
}

struct Wanted {
    constructor: String,
    ty: String,
}

/// How an extractor that is written as an argument should be written.
fn extractor_named(ty: &Type) -> Option<Wanted> {
    let Type::Path(TypePath { qself: None, path }) = ty else { return None };
    let last = path.segments.last()?;
    let name = last.ident.to_string();
    let is_generic = matches!(last.arguments, PathArguments::AngleBracketed(_));
    match (name.as_str(), is_generic) {
        ("ToolContext", false) => Some(Wanted { constructor: "Ctx".to_owned(), ty: "Ctx".to_owned() }),
        ("Ctx" | "Principal" | "CallId", false) | ("State" | "Args" | "Progress", true) => {
            Some(Wanted { constructor: constructor(path), ty: code(ty) })
        }
        _ => None,
    }
}

/// `tool::State<Db>` is made by `tool::State`.
fn constructor(path: &Path) -> String {
    let mut path = path.clone();
    if let Some(last) = path.segments.last_mut() {
        last.arguments = PathArguments::None;
    }
    code(&path)
}

/// The `T` of `name<T>`.
fn generic_of<'a>(ty: &'a Type, name: &str) -> Option<&'a Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == name)?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match arguments.args.first() {
        Some(GenericArgument::Type(inner)) => Some(inner),
        _ => None,
    }
}

#[derive(Default)]
struct FindReference {
    found: Option<proc_macro2::TokenStream>,
    reference: Option<TypeReference>,
    opaque: Option<TypeImplTrait>,
}

impl<'ast> Visit<'ast> for FindReference {
    fn visit_type_reference(&mut self, reference: &'ast TypeReference) {
        self.found.get_or_insert_with(|| reference.to_token_stream());
        self.reference.get_or_insert_with(|| reference.clone());
    }

    fn visit_lifetime(&mut self, lifetime: &'ast syn::Lifetime) {
        if lifetime.ident != "static" {
            self.found.get_or_insert_with(|| lifetime.to_token_stream());
        }
    }

    fn visit_type_impl_trait(&mut self, opaque: &'ast TypeImplTrait) {
        self.opaque.get_or_insert_with(|| opaque.clone());
    }
}

/// An argument is decoded from what a model wrote, so it owns what it holds.
fn owned(name: &Ident, ty: &Type, problems: &mut Problems) {
    let mut found = FindReference::default();
    found.visit_type(ty);
    let written = code(ty);
    if let Some(opaque) = &found.opaque {
        problems.say(opaque, format!("`{name}: {written}` has no schema; name a type, such as `String`"));
    }
    if let Some(borrowed) = &found.found {
        let instead = match found.reference.as_ref().map(|reference| &*reference.elem) {
            Some(Type::Path(path)) if path.path.is_ident("str") => "`String` instead of `&str`".to_owned(),
            Some(Type::Slice(slice)) => format!("`Vec<{0}>` instead of `&[{0}]`", code(&slice.elem)),
            Some(elem) => format!("`{}` by value", code(elem)),
            None => "a type without lifetimes".to_owned(),
        };
        problems.say(borrowed, format!("`{name}: {written}` borrows, and a tool owns its arguments: take {instead}"));
    }
}

/// How the body runs, and what it returns.
fn outcome(is_async: bool, output: &ReturnType, name: Span, problems: &mut Problems) -> (Kind, Option<Type>, Span) {
    let kind = if is_async { Kind::Future } else { Kind::Blocking };
    let ReturnType::Type(_, ty) = output else { return (kind, None, name) };
    if let Type::ImplTrait(opaque) = &**ty {
        if let Some(item) = associated(opaque, "Stream", "Item") {
            if is_async {
                problems.say(
                    ty,
                    "a tool that shows snapshots is a plain function: write `fn` instead of `async fn`, and await inside the stream",
                );
            }
            return (Kind::Stream, nameable(item), ty.span());
        }
        if let Some(item) = associated(opaque, "Future", "Output").filter(|_| !is_async) {
            return (Kind::Future, nameable(item), ty.span());
        }
        if bound(opaque, "Stream").is_some() {
            problems.say(ty, "say what the stream yields: `impl Stream<Item = T>`");
        }
    }
    (kind, nameable(ty), ty.span())
}

/// `ty`, if code beside the function can name it.
fn nameable(ty: &Type) -> Option<Type> {
    let mut found = FindReference::default();
    found.visit_type(ty);
    let is_borrowed = found.reference.is_some_and(|reference| reference.lifetime.is_none_or(|lifetime| lifetime.ident != "static"));
    (found.opaque.is_none() && !is_borrowed).then(|| ty.clone())
}

fn bound<'a>(opaque: &'a TypeImplTrait, name: &str) -> Option<&'a PathArguments> {
    opaque.bounds.iter().find_map(|bound| match bound {
        TypeParamBound::Trait(bound) => bound.path.segments.last().filter(|last| last.ident == name).map(|last| &last.arguments),
        _ => None,
    })
}

/// The `T` of `impl Stream<Item = T>`.
fn associated<'a>(opaque: &'a TypeImplTrait, name: &str, item: &str) -> Option<&'a Type> {
    let PathArguments::AngleBracketed(arguments) = bound(opaque, name)? else { return None };
    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::AssocType(associated) if associated.ident == item => Some(&associated.ty),
        _ => None,
    })
}
