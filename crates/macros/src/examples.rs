//! JSON in options: a literal in JSON's own form, or a string that holds it.

use proc_macro2::{TokenStream, TokenTree};
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::{LitStr, Path, Token};

/// One JSON value.
pub(crate) enum Json {
    /// Text that has been checked.
    Text(LitStr),
    /// Tokens for `json!`.
    Tokens(TokenStream),
}

impl Parse for Json {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        if input.peek(LitStr) && (input.peek2(Token![,]) || input.cursor().token_tree().is_some_and(|(_, rest)| rest.eof())) {
            let text: LitStr = input.parse()?;
            return match serde_json::from_str::<serde_json::Value>(&text.value()) {
                Ok(_) => Ok(Self::Text(text)),
                Err(error) => Err(syn::Error::new(text.span(), format!("this is not JSON: {error}"))),
            };
        }
        let mut tokens = TokenStream::new();
        while !input.is_empty() && !input.peek(Token![,]) {
            tokens.extend([input.parse::<TokenTree>()?]);
        }
        if tokens.is_empty() {
            return Err(input.error("here belongs a JSON value"));
        }
        Ok(Self::Tokens(tokens))
    }
}

impl Json {
    /// An expression of this value.
    pub(crate) fn to_expr(&self, support: &Path) -> TokenStream {
        match self {
            Self::Text(text) => quote!(#support::json_text(#text)),
            Self::Tokens(tokens) => quote!(#support::serde_json::json!(#tokens)),
        }
    }
}
