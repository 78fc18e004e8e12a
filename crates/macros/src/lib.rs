//! The attributes `#[tool]` and `#[args]`, and `tools![]`.

use proc_macro::TokenStream;

/// Not written yet.
#[proc_macro_attribute]
pub fn tool(_options: TokenStream, item: TokenStream) -> TokenStream {
    item
}

/// Not written yet.
#[proc_macro_attribute]
pub fn args(_options: TokenStream, item: TokenStream) -> TokenStream {
    item
}

/// Not written yet.
#[proc_macro]
pub fn tools(_items: TokenStream) -> TokenStream {
    TokenStream::new()
}
