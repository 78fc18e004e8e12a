//! The options of `#[tool(...)]`.

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Expr, ExprLit, Ident, Lit, LitInt, LitStr, Path, Token, bracketed, parenthesized};

use crate::examples::Json;

const KNOWN: &[&str] = &[
    "name",
    "display_name",
    "description",
    "read_only",
    "destructive",
    "idempotent",
    "open_world",
    "needs_approval",
    "on_interrupt",
    "defer_loading",
    "edits_files",
    "requires_sandbox",
    "timeout",
    "no_repair",
    "sequential",
    "result_limit",
    "max_calls",
    "max_retries",
    "env",
    "examples",
    "provider_options",
    "crate",
];

/// When calls need approval.
pub(crate) enum Approval {
    Always,
    /// `NeedsApproval::once()` or `once_per_arguments()`.
    Once(Ident),
    By(Expr),
}

/// Whether a tool needs a sandbox.
pub(crate) enum Sandbox {
    Needed,
    With(Expr),
}

/// An environment value.
pub(crate) struct EnvNeed {
    pub(crate) name: String,
    pub(crate) secret: bool,
    pub(crate) optional: bool,
    pub(crate) scoped: bool,
    pub(crate) description: Option<String>,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) name: Option<LitStr>,
    pub(crate) display_name: Option<LitStr>,
    pub(crate) description: Option<Expr>,
    pub(crate) read_only: Option<bool>,
    pub(crate) destructive: Option<bool>,
    pub(crate) idempotent: Option<bool>,
    pub(crate) open_world: Option<bool>,
    pub(crate) approval: Option<Approval>,
    pub(crate) on_interrupt: Option<&'static str>,
    pub(crate) defer_loading: bool,
    pub(crate) edits_files: bool,
    pub(crate) sandbox: Option<Sandbox>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) no_repair: bool,
    pub(crate) sequential: bool,
    pub(crate) result_limit: Option<LitInt>,
    pub(crate) max_calls: Option<LitInt>,
    pub(crate) max_retries: Option<LitInt>,
    pub(crate) env: Vec<EnvNeed>,
    pub(crate) examples: Vec<Json>,
    pub(crate) per_provider: Vec<(String, Json)>,
    pub(crate) root: Option<Path>,
}

/// Reads options; what can be read is, and every problem is said.
pub(crate) fn read(tokens: TokenStream) -> (Options, Option<syn::Error>) {
    let mut options = Options::default();
    let mut errors: Option<syn::Error> = None;
    let mut seen: Vec<String> = Vec::new();
    let outcome = (|input: ParseStream<'_>| {
        while !input.is_empty() {
            let name = input.call(Ident::parse_any)?;
            let word = name.to_string();
            if seen.contains(&word) {
                return Err(syn::Error::new(name.span(), format!("`{word}` is given twice")));
            }
            if let Err(error) = options.read_one(&word, name.span(), input) {
                match &mut errors {
                    Some(all) => all.combine(error),
                    None => errors = Some(error),
                }
                while !input.is_empty() && !input.peek(Token![,]) {
                    input.parse::<proc_macro2::TokenTree>()?;
                }
            }
            seen.push(word);
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(())
    })
    .parse2(tokens);
    if let Err(error) = outcome {
        match &mut errors {
            Some(all) => all.combine(error),
            None => errors = Some(error),
        }
    }
    (options, errors)
}

impl Options {
    fn read_one(&mut self, word: &str, span: Span, input: ParseStream<'_>) -> syn::Result<()> {
        match word {
            "name" | "display_name" | "result_limit" | "max_calls" | "max_retries" if !input.peek(Token![=]) => {
                return Err(syn::Error::new(span, format!("`{word}` takes a value: write `{word} = ...`")));
            }
            "name" => self.name = Some(literal(word, input, ", so that it can be checked now")?),
            "display_name" => self.display_name = Some(literal(word, input, "")?),
            "description" if !input.peek(Token![=]) => {
                return Err(syn::Error::new(span, "`description` takes a text: write `description = \"...\"`"));
            }
            "description" => self.description = Some(value(word, input, "a text")?),
            "read_only" => self.read_only = Some(yes_or_no(word, input)?),
            "destructive" => self.destructive = Some(yes_or_no(word, input)?),
            "idempotent" => self.idempotent = Some(yes_or_no(word, input)?),
            "open_world" => self.open_world = Some(yes_or_no(word, input)?),
            "needs_approval" => {
                self.approval = Some(if input.peek(syn::token::Paren) {
                    Approval::Once(once(input)?)
                } else if input.peek(Token![=]) {
                    Approval::By(function(word, input)?)
                } else {
                    Approval::Always
                });
            }
            "requires_sandbox" => {
                self.sandbox = Some(if input.peek(Token![=]) { Sandbox::With(function(word, input)?) } else { Sandbox::Needed });
            }
            "on_interrupt" => self.on_interrupt = Some(on_interrupt(span, input)?),
            "defer_loading" => self.defer_loading = yes_or_no(word, input)?,
            "edits_files" => self.edits_files = yes_or_no(word, input)?,
            "no_repair" => self.no_repair = yes_or_no(word, input)?,
            "sequential" => self.sequential = yes_or_no(word, input)?,
            "timeout" => self.timeout_ms = Some(timeout(input, span)?),
            "result_limit" => self.result_limit = Some(number::<usize>(word, input)?),
            "max_calls" => self.max_calls = Some(number::<u32>(word, input)?),
            "max_retries" => self.max_retries = Some(number::<u32>(word, input)?),
            "env" => self.env = env(input, span)?,
            "examples" => self.examples = examples(input, span)?,
            "provider_options" => self.per_provider = provider_options(input, span)?,
            "crate" => {
                if !input.peek(Token![=]) {
                    return Err(syn::Error::new(span, "write `crate = path`"));
                }
                input.parse::<Token![=]>()?;
                self.root = Some(input.call(Path::parse_mod_style)?);
            }
            _ => return Err(syn::Error::new(span, crate::words::unknown("option", word, KNOWN))),
        }
        Ok(())
    }
}

fn value(word: &str, input: ParseStream<'_>, what: &str) -> syn::Result<Expr> {
    if !input.peek(Token![=]) {
        return Err(input.error(format!("`{word}` takes {what}: write `{word} = ...`")));
    }
    input.parse::<Token![=]>()?;
    input.parse()
}

fn literal(word: &str, input: ParseStream<'_>, why: &str) -> syn::Result<LitStr> {
    match value(word, input, "a literal text")? {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Ok(text),
        other => Err(syn::Error::new_spanned(other, format!("`{word}` takes a literal text{why}"))),
    }
}

fn yes_or_no(word: &str, input: ParseStream<'_>) -> syn::Result<bool> {
    if !input.peek(Token![=]) {
        return Ok(true);
    }
    match value(word, input, "yes or no")? {
        Expr::Lit(ExprLit { lit: Lit::Bool(answer), .. }) => Ok(answer.value),
        other => Err(syn::Error::new_spanned(other, format!("`{word}` is a yes or a no: write `{word}` or `{word} = false`"))),
    }
}

fn function(word: &str, input: ParseStream<'_>) -> syn::Result<Expr> {
    match value(word, input, "a function")? {
        Expr::Lit(literal) => {
            Err(syn::Error::new_spanned(literal, format!("`{word}` stands alone, or takes a function: `{word} = path::to::function`")))
        }
        other => Ok(other),
    }
}

fn on_interrupt(span: Span, input: ParseStream<'_>) -> syn::Result<&'static str> {
    const SAY: &str = "write `on_interrupt = rerun`, `on_interrupt = ask` or `on_interrupt = fail`";
    if !input.peek(Token![=]) {
        return Err(syn::Error::new(span, SAY));
    }
    let choice = value("on_interrupt", input, SAY)?;
    match choice.to_token_stream().to_string().as_str() {
        "rerun" => Ok("Rerun"),
        "ask" => Ok("Ask"),
        "fail" => Ok("Fail"),
        _ => Err(syn::Error::new_spanned(choice, SAY)),
    }
}

fn number<N>(word: &str, input: ParseStream<'_>) -> syn::Result<LitInt>
where
    N: std::str::FromStr,
    N::Err: std::fmt::Display,
{
    match value(word, input, "a number")? {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => {
            number.base10_parse::<N>().map_err(|_| syn::Error::new(number.span(), format!("`{word}` takes a whole number from 0 up")))?;
            Ok(number)
        }
        other => Err(syn::Error::new_spanned(other, format!("`{word}` takes a whole number from 0 up"))),
    }
}

fn timeout(input: ParseStream<'_>, span: Span) -> syn::Result<u64> {
    const SAY: &str = "a timeout is a text with a unit, such as \"500ms\", \"30s\", \"5m\", \"1h30m\"";
    if !input.peek(Token![=]) {
        return Err(syn::Error::new(span, SAY));
    }
    let given = value("timeout", input, SAY)?;
    let text = match &given {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => text.value(),
        _ => return Err(syn::Error::new_spanned(given, SAY)),
    };
    match milliseconds(&text) {
        Some(0) | None => Err(syn::Error::new_spanned(given, SAY)),
        Some(time) => Ok(time),
    }
}

fn milliseconds(text: &str) -> Option<u64> {
    let mut total: u64 = 0;
    let mut rest = text.trim();
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, tail) = rest.split_at_checked(digits)?;
        let letters = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at_checked(letters)?;
        let factor = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return None,
        };
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(factor)?)?;
        rest = tail.trim_start();
    }
    Some(total)
}

fn env(input: ParseStream<'_>, span: Span) -> syn::Result<Vec<EnvNeed>> {
    const SAY: &str = "write `env(REGION, GITHUB_TOKEN: secret \"reads issues\", LANG: optional)`";
    if !input.peek(syn::token::Paren) {
        return Err(syn::Error::new(span, SAY));
    }
    let content;
    parenthesized!(content in input);
    let mut needs: Vec<EnvNeed> = Vec::new();
    while !content.is_empty() {
        let name = content.call(Ident::parse_any)?;
        let mut need = EnvNeed { name: name.to_string(), secret: false, optional: false, scoped: false, description: None };
        if content.peek(Token![:]) {
            content.parse::<Token![:]>()?;
            while !content.is_empty() && !content.peek(Token![,]) && !content.peek(LitStr) {
                let word = content.call(Ident::parse_any)?;
                let said = match word.to_string().as_str() {
                    "secret" => &mut need.secret,
                    "optional" => &mut need.optional,
                    "scoped" => &mut need.scoped,
                    _ => {
                        let message = format!("an environment value is `secret`, `optional`, `scoped` or nothing: {SAY}");
                        return Err(syn::Error::new(word.span(), message));
                    }
                };
                *said = true;
            }
            if content.peek(LitStr) {
                need.description = Some(content.parse::<LitStr>()?.value());
            }
        }
        if needs.iter().any(|other| other.name == need.name) {
            return Err(syn::Error::new(name.span(), format!("`{name}` is given twice")));
        }
        needs.push(need);
        if !content.is_empty() {
            content.parse::<Token![,]>()?;
        }
    }
    Ok(needs)
}

fn examples(input: ParseStream<'_>, span: Span) -> syn::Result<Vec<Json>> {
    if !input.peek(Token![=]) || !input.peek2(syn::token::Bracket) {
        return Err(syn::Error::new(span, "write `examples = [{ \"city\": \"Oslo\" }]`: a list of argument objects"));
    }
    input.parse::<Token![=]>()?;
    let content;
    bracketed!(content in input);
    Ok(Punctuated::<Json, Token![,]>::parse_terminated(&content)?.into_iter().collect())
}

struct ProviderOption(String, Json);

impl Parse for ProviderOption {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let provider = if input.peek(LitStr) { input.parse::<LitStr>()?.value() } else { input.call(Ident::parse_any)?.to_string() };
        input.parse::<Token![=]>()?;
        Ok(Self(provider, input.parse()?))
    }
}

fn provider_options(input: ParseStream<'_>, span: Span) -> syn::Result<Vec<(String, Json)>> {
    if !input.peek(syn::token::Paren) {
        return Err(syn::Error::new(span, "write `provider_options(openai = { \"strict\": true })`"));
    }
    let content;
    parenthesized!(content in input);
    let options = Punctuated::<ProviderOption, Token![,]>::parse_terminated(&content)?;
    Ok(options.into_iter().map(|ProviderOption(provider, json)| (provider, json)).collect())
}

/// What stands in `needs_approval(..)`.
fn once(input: ParseStream<'_>) -> syn::Result<Ident> {
    let inner;
    syn::parenthesized!(inner in input);
    let word: Ident = inner.parse()?;
    if (word == "once" || word == "once_per_arguments") && inner.is_empty() {
        return Ok(word);
    }
    Err(syn::Error::new(word.span(), "write `needs_approval(once)` or `needs_approval(once_per_arguments)`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_has_units() {
        assert_eq!(milliseconds("500ms"), Some(500));
        assert_eq!(milliseconds("30s"), Some(30_000));
        assert_eq!(milliseconds("1h30m"), Some(5_400_000));
        assert_eq!(milliseconds("1 h"), None);
        for bad in ["30", "s", "5 d", "-1s", "1.5s", "99999999999999999999h"] {
            assert_eq!(milliseconds(bad), None, "{bad}");
        }
    }
}
