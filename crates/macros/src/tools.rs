//! `tools![]`.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Path, Token};

struct ToolPath(Path);

impl Parse for ToolPath {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let path = input.call(Path::parse_mod_style)?;
        if input.is_empty() || input.peek(Token![,]) {
            return Ok(Self(path));
        }
        let name = crate::words::code(&path);
        Err(input.error(format!(
            "`tools![]` lists the names of functions that have `#[tool]`: write `{name}` alone; other tools are added with `.tool(...)`"
        )))
    }
}

pub(crate) fn tools(items: TokenStream) -> TokenStream {
    let root = match crate::root::root(None) {
        Ok(root) => root,
        Err(error) => return error.to_compile_error(),
    };
    match Punctuated::<ToolPath, Token![,]>::parse_terminated.parse2(items) {
        Ok(paths) => {
            let tools = paths.iter().map(|ToolPath(path)| quote_spanned!(path.span()=> <#path as #root::ToolDef>::tool()));
            quote!(<::std::vec::Vec<#root::Tool> as ::core::convert::From<_>>::from([#(#tools),*]))
        }
        Err(error) => error.to_compile_error(),
    }
}
