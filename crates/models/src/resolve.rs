//! Names such as `openai/gpt-4o` to models.

use std::fmt;
use std::sync::{Arc, OnceLock};

use toolwright_host::net::Client;
use toolwright_runtime::{Model, ModelResolver, ResolveError};

use crate::chat::{ChatModel, Deadlines};
use crate::switches::{Key, Switches};
use crate::transport::Transport;

/// The variable that names the model to use.
pub const MODEL_VAR: &str = "TOOLWRIGHT_MODEL";

/// Reads one variable of the environment.
type Env = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Resolves `provider/model` for every provider of [`Switches::table`], with keys and addresses from the environment.
///
/// A name is split at its first `/`. A name that is none of ours is left to the next resolver; one that is nearly ours, or an OpenAI
/// model without its provider, is an error that says what to write.
#[derive(Clone)]
pub struct ChatResolver {
    env: Env,
    transport: Option<Arc<dyn Transport>>,
    shared: Arc<OnceLock<Arc<dyn Transport>>>,
    deadlines: Deadlines,
}

impl fmt::Debug for ChatResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatResolver").field("transport", &self.transport).finish_non_exhaustive()
    }
}

impl Default for ChatResolver {
    fn default() -> Self {
        Self::new()
    }
}

impl ChatResolver {
    /// Over this process's environment.
    pub fn new() -> Self {
        Self::with_env(|name| std::env::var(name).ok())
    }

    /// Over an environment of the caller's.
    pub fn with_env(env: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self { env: Arc::new(env), transport: None, shared: Arc::default(), deadlines: Deadlines::default() }
    }

    /// What sends the requests of its models. One that is not live needs no keys.
    #[must_use]
    pub fn transport(mut self, transport: Arc<dyn Transport>) -> Self {
        self.transport = Some(transport);
        self
    }

    /// How long its models wait.
    #[must_use]
    pub fn deadlines(mut self, deadlines: Deadlines) -> Self {
        self.deadlines = deadlines;
        self
    }

    /// A variable that is set and not blank.
    fn var(&self, name: &str) -> Option<String> {
        (self.env)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    fn model(&self, row: &Switches, model: &str) -> Result<ChatModel, ResolveError> {
        let mut switches = row.clone();
        let mut key_needed = row.key == Key::Required;
        if let Some(address) = row.base_url_var.and_then(|name| self.var(name)) {
            // Another server may need none.
            key_needed = false;
            switches.base_url = with_path(&row.provider, address).into();
        }
        if switches.base_url.is_empty() {
            let message =
                format!("{}/{model} has no address; set {} to the server's URL", row.provider, row.base_url_var.unwrap_or_default());
            return Err(ResolveError { message, code: "TOOLWRIGHT_PROVIDER_SPEC_INVALID" });
        }
        let transport = match &self.transport {
            Some(transport) => Arc::clone(transport),
            // One client, so that connections are shared.
            None => Arc::clone(self.shared.get_or_init(|| Arc::new(Client::new(self.deadlines.connect)))),
        };
        let key = row.key_var.and_then(|name| self.var(name));
        if let (None, true, true, Some(variable)) = (&key, key_needed, transport.is_live(), row.key_var) {
            let message = format!("{}/{model} needs a key; set {variable}", row.provider);
            return Err(ResolveError { message, code: "TOOLWRIGHT_PROVIDER_MISSING_API_KEY" });
        }
        let mut out = ChatModel::new(switches, model).transport(transport).deadlines(self.deadlines);
        if let Some(key) = key {
            out = out.key(&key);
        }
        Ok(out)
    }
}

/// A bare host gets the path that the compatible API has there; an address with any path is used as it is (sdk-runtime PRV-8, for this API).
fn with_path(provider: &str, address: String) -> String {
    let bare = |address: &str| !address.split_once("://").map_or(address, |(_, rest)| rest).trim_end_matches('/').contains('/');
    let address = if address.contains("://") { address } else { format!("http://{address}") };
    if provider == "ollama" && bare(&address) { format!("{}/v1", address.trim_end_matches('/')) } else { address }
}

impl ModelResolver for ChatResolver {
    fn resolve(&self, name: &str) -> Option<Result<Arc<dyn Model>, ResolveError>> {
        let Some((prefix, model)) = name.split_once('/') else {
            return without_slash(name).map(Err);
        };
        if model.trim().is_empty() {
            let row = Switches::of(prefix)?;
            return Some(Err(names_no_model(row)));
        }
        match Switches::of(prefix) {
            Some(row) => Some(self.model(row, model).map(|model| Arc::new(model) as Arc<dyn Model>)),
            None => closest(prefix).map(|known| {
                let message = format!("no provider is called `{prefix}`; did you mean `{known}/{model}`? Known are {}", providers());
                Err(ResolveError { message, code: "TOOLWRIGHT_PROVIDER_UNKNOWN" })
            }),
        }
    }

    fn from_env(&self) -> Option<String> {
        if let Some(name) = self.var(MODEL_VAR) {
            // Whoever it belongs to, it is what was asked for: no key in the environment outranks it.
            return self.resolve(&name).is_some().then_some(name);
        }
        Switches::table().iter().find_map(|row| {
            let model = row.default_model?;
            // A server of one's own is asked for by its address, a service by its key.
            let variable = if row.key == Key::Optional { row.base_url_var } else { row.key_var };
            self.var(variable?)?;
            Some(format!("{}/{model}", row.provider))
        })
    }

    fn known(&self) -> Vec<String> {
        Switches::table().iter().map(|row| format!("{}/{}", row.provider, row.default_model.unwrap_or("MODEL"))).collect()
    }
}

fn providers() -> String {
    Switches::table().iter().map(|row| &*row.provider).collect::<Vec<_>>().join(", ")
}

fn names_no_model(row: &Switches) -> ResolveError {
    let example = row.default_model.unwrap_or("MODEL");
    let message = format!("`{0}` names a provider and no model; write `{0}/MODEL`, such as `{0}/{example}`", row.provider);
    ResolveError { message, code: "TOOLWRIGHT_PROVIDER_SPEC_INVALID" }
}

/// A name without a slash: a provider without a model, or a model whose provider is known from its name.
fn without_slash(name: &str) -> Option<ResolveError> {
    const FAMILIES: [(&str, &str); 12] = [
        ("gpt-", "openai"),
        ("chatgpt-", "openai"),
        ("o1", "openai"),
        ("o3", "openai"),
        ("o4", "openai"),
        ("deepseek-", "deepseek"),
        ("mistral-", "mistral"),
        ("magistral-", "mistral"),
        ("codestral-", "mistral"),
        ("grok-", "xai"),
        ("kimi-", "moonshot"),
        ("qwen-", "alibaba"),
    ];
    if let Some(row) = Switches::of(name) {
        return Some(names_no_model(row));
    }
    let (_, provider) = FAMILIES.iter().find(|(family, _)| name.starts_with(family))?;
    let message = format!("the model `{name}` has no provider in front; write `{provider}/{name}`");
    Some(ResolveError { message, code: "TOOLWRIGHT_PROVIDER_SPEC_INVALID" })
}

/// The provider that a mistyped name most likely means.
fn closest(name: &str) -> Option<&'static str> {
    let (distance, provider) =
        Switches::table().iter().map(|row| (distance(name, &row.provider), &*row.provider)).min_by_key(|(distance, _)| *distance)?;
    (distance <= 2 && distance < name.chars().count()).then_some(provider)
}

/// How many characters to insert, delete or replace.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        let mut next = vec![left];
        for (b, above) in to.iter().zip(row.iter().skip(1)) {
            left = (diagonal + usize::from(a != *b)).min(left + 1).min(above + 1);
            diagonal = *above;
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(vars: &'static [(&'static str, &'static str)]) -> ChatResolver {
        ChatResolver::with_env(move |name| vars.iter().find(|(var, _)| *var == name).map(|(_, value)| (*value).to_owned()))
    }

    fn error(resolver: &ChatResolver, name: &str) -> (String, &'static str) {
        let error = resolver.resolve(name).unwrap().err().unwrap();
        (error.message, error.code)
    }

    #[test]
    fn a_name_leads_to_a_model_with_slashes_in_its_name() {
        let resolver = over(&[("OPENROUTER_API_KEY", "k-secret")]);
        let model = resolver.resolve("openrouter/openai/gpt-4o").unwrap().unwrap();
        assert_eq!(model.info().name(), "openrouter/openai/gpt-4o");
        assert!(resolver.resolve("local").is_none());
        assert!(resolver.resolve("acme/model").is_none());
        assert!(resolver.resolve("anthropic/claude").is_none());
    }

    #[test]
    fn wrong_names_say_what_to_write() {
        let none = over(&[]);
        let (message, code) = error(&none, "gpt-4o");
        assert_eq!((code, message.contains("`openai/gpt-4o`")), ("TOOLWRIGHT_PROVIDER_SPEC_INVALID", true), "{message}");
        assert!(error(&none, "openai").0.contains("`openai/gpt-4o-mini`"));
        assert!(error(&none, "openai/").0.contains("names a provider and no model"));
        let (message, code) = error(&none, "opnai/x");
        assert_eq!((code, message.contains("`openai/x`")), ("TOOLWRIGHT_PROVIDER_UNKNOWN", true), "{message}");
        assert_eq!(
            error(&none, "openai/gpt-4o"),
            ("openai/gpt-4o needs a key; set OPENAI_API_KEY".to_owned(), "TOOLWRIGHT_PROVIDER_MISSING_API_KEY")
        );
        assert_eq!(error(&over(&[("OPENAI_API_KEY", "  ")]), "openai/gpt-4o").1, "TOOLWRIGHT_PROVIDER_MISSING_API_KEY");
        assert!(error(&none, "compatible/m").0.contains("COMPATIBLE_BASE_URL"));
    }

    #[test]
    fn the_environment_is_asked_in_a_fixed_order() {
        assert_eq!(over(&[]).from_env(), None);
        assert_eq!(over(&[("MISTRAL_API_KEY", "a"), ("OPENAI_API_KEY", "b")]).from_env().as_deref(), Some("openai/gpt-4o-mini"));
        assert_eq!(over(&[("OLLAMA_BASE_URL", "http://localhost:1")]).from_env().as_deref(), Some("ollama/llama3"));
        assert_eq!(over(&[("TOOLWRIGHT_MODEL", "groq/x"), ("OPENAI_API_KEY", "b")]).from_env().as_deref(), Some("groq/x"));
        assert_eq!(over(&[("TOOLWRIGHT_MODEL", "local"), ("OPENAI_API_KEY", "b")]).from_env(), None, "another resolver's");
    }

    #[test]
    fn servers_of_ones_own_need_no_key() {
        assert!(over(&[]).resolve("ollama/qwen3").unwrap().is_ok());
        assert!(over(&[("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")]).resolve("openai/any").unwrap().is_ok());
        assert_eq!(with_path("ollama", "localhost:11434".to_owned()), "http://localhost:11434/v1");
        assert_eq!(with_path("ollama", "http://h:1/".to_owned()), "http://h:1/v1");
        assert_eq!(with_path("ollama", "http://h:1/api".to_owned()), "http://h:1/api");
        assert_eq!(with_path("vllm", "http://h:1".to_owned()), "http://h:1");
    }

    #[test]
    fn distances() {
        assert_eq!(distance("opnai", "openai"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(closest("xa"), Some("xai"));
        assert_eq!(closest("zz"), None);
    }
}
