//! Where generated code finds the traits it names.

use proc_macro_crate::{FoundCrate, crate_name};
use proc_macro2::Span;
use syn::{Ident, Path, parse_quote};

/// `::toolwright_tool` or `::toolwright`, under the name that the user's manifest gives it.
pub(crate) fn root(given: Option<Path>) -> syn::Result<Path> {
    if let Some(path) = given {
        return Ok(path);
    }
    // `toolwright-tool` first: the facade itself has it too. It names itself with `extern crate self`, so that this path works within.
    for (package, own) in [("toolwright-tool", "toolwright_tool"), ("toolwright", "toolwright")] {
        let name = match crate_name(package) {
            Ok(FoundCrate::Itself) => own.to_owned(),
            Ok(FoundCrate::Name(name)) => name,
            Err(_) => continue,
        };
        let ident = Ident::new(&name, Span::call_site());
        return Ok(parse_quote!(::#ident));
    }
    Err(syn::Error::new(
        Span::call_site(),
        "neither `toolwright` nor `toolwright-tool` is among this crate's dependencies; add one, or say where it is with `crate = path`",
    ))
}

/// A path as a literal, for `#[serde(crate = "...")]`.
pub(crate) fn literal(path: &Path) -> syn::LitStr {
    syn::LitStr::new(&crate::words::code(path), Span::call_site())
}
