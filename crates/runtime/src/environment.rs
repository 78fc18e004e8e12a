//! Variables of tools: where their values come from, which of them are secrets, and how a thread's own are kept.
//!
//! The first that has a value wins: the thread, the agent, the process (standard-agents ENV-2). A secret is sealed where it is
//! kept and taken out of everything that is written down, shown or sent; see [`toolwright_core::redact`].

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use toolwright_core::redact::{self, Redactor};
use toolwright_core::{Decision, ThreadId, sha256_hex};
use toolwright_tool::EnvSource;

use crate::agent::{AgentBuilder, AgentInner, InstalledResolvers};
use crate::error::AgentError;
use crate::registry::Registry;
use crate::seal::{ENCRYPTION_KEY, OWN_ENCRYPTION_KEY, Sealer};
use crate::store::{InboxItem, Shelf, Store, StoreError};
use crate::thread::ThreadHandle;

/// How many values are read at once.
const PAGE: usize = 500;
/// Redactors that are kept: threads with the same secrets share one.
const REDACTORS_KEPT: usize = 8;

/// What the type of an environment value is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EnvType {
    /// It may be shown.
    Text,
    /// Nothing shows it (standard-agents ENV-7).
    #[default]
    Secret,
}

/// One variable of a thread, as it may be shown: never a secret's value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EnvEntry {
    /// Its name.
    pub name: String,
    /// Its type.
    pub env_type: EnvType,
    /// Whether a tool of the agent declares it. One that none does is write-only (standard-agents ENV-13).
    pub declared: bool,
    /// The value of a declared text.
    pub value: Option<String>,
    /// Why it has no value that can be used, in a sentence.
    pub problem: Option<String>,
}

/// What an agent is given of an environment, until it is built.
pub(crate) struct EnvSetup {
    source: Arc<dyn EnvSource>,
    own: Vec<(String, String, EnvType)>,
    secrets: Vec<(String, String)>,
    key: Option<String>,
}

struct ProcessEnv;

impl EnvSource for ProcessEnv {
    fn get(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }
}

impl Default for EnvSetup {
    fn default() -> Self {
        Self { source: Arc::new(ProcessEnv), own: Vec::new(), secrets: Vec::new(), key: None }
    }
}

/// A row of a thread's environment, as a store has it. Rows of before types were kept are the value alone.
#[derive(Deserialize, Serialize)]
#[serde(untagged)]
enum Row {
    Bare(String),
    Typed {
        #[serde(rename = "type")]
        env_type: EnvType,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sealed: Option<String>,
    },
}

/// A value, or why there is none.
type Valued = Result<String, String>;

/// An agent's environment.
pub(crate) struct Environment {
    source: Arc<dyn EnvSource>,
    own: HashMap<String, (String, EnvType)>,
    secrets: Vec<(String, String)>,
    sealer: Option<Sealer>,
    /// Why there is none although the process's environment has a key; told where one is needed.
    key_problem: Option<AgentError>,
    /// What its tools declare. A name that one of them calls a secret is one.
    declared: BTreeMap<String, EnvType>,
    redactors: Mutex<VecDeque<(String, Arc<Redactor>)>>,
}

/// What a run has of it.
pub(crate) struct RunEnvironment {
    pub(crate) env: Arc<dyn EnvSource>,
    /// What takes the run's secrets out; `None` where there are none.
    pub(crate) redactor: Option<Arc<Redactor>>,
}

impl EnvSetup {
    pub(crate) fn build(self, registry: &Registry) -> Result<Environment, AgentError> {
        let set = |name| std::env::var(name).ok().filter(|text| !text.trim().is_empty());
        let (given, of_process) = (self.key.is_some(), || set(OWN_ENCRYPTION_KEY).or_else(|| set(ENCRYPTION_KEY)));
        let (sealer, key_problem) = match self.key.or_else(of_process).map(|key| Sealer::new(&key)) {
            Some(Ok(sealer)) => (Some(sealer), None),
            Some(Err(problem)) if given => return Err(problem),
            Some(Err(problem)) => (None, Some(problem)),
            None => (None, None),
        };
        let mut declared: BTreeMap<String, EnvType> = BTreeMap::new();
        for need in registry.iter().flat_map(|tool| &tool.spec().env) {
            let known = declared.entry(need.name.clone()).or_insert(EnvType::Text);
            if need.secret {
                *known = EnvType::Secret;
            }
        }
        let mut own = HashMap::new();
        for (name, value, env_type) in self.own {
            checked_name(&name)?;
            let env_type = if declared.get(&name) == Some(&EnvType::Secret) { EnvType::Secret } else { env_type };
            if env_type == EnvType::Secret && !value.trim().is_empty() {
                redact::check_secret(&name, &value)?;
            }
            own.insert(name, (value, env_type));
        }
        for (name, value) in &self.secrets {
            redact::check_secret(name, value)?;
        }
        Ok(Environment { source: self.source, own, secrets: self.secrets, sealer, key_problem, declared, redactors: Mutex::default() })
    }
}

impl Environment {
    /// The environment of a run of the thread that begins now.
    pub(crate) async fn of_run(&self, store: &dyn Store, thread: &ThreadId) -> Result<RunEnvironment, StoreError> {
        let rows = rows(store, thread).await?;
        let mut values: HashMap<String, Valued> = HashMap::with_capacity(rows.len());
        let mut secrets: Vec<(String, String)> = self.secrets.clone();
        let mut add = |name: &str, value: &str| {
            let fits = redact::check_secret(name, value);
            if fits.is_ok() && !secrets.iter().any(|(_, known)| known == value) {
                secrets.push((name.to_owned(), value.to_owned()));
            }
            fits.map_err(|refused| refused.to_string())
        };
        for (name, row) in rows {
            let env_type = self.type_of(&name, &row);
            let value = self.opened(thread, &name, row).and_then(|value| {
                if env_type == EnvType::Secret && !value.trim().is_empty() {
                    add(&name, &value)?;
                }
                Ok(value)
            });
            values.insert(name, value);
        }
        for (name, (value, env_type)) in &self.own {
            if *env_type == EnvType::Secret && !value.trim().is_empty() {
                // It was checked when the agent was built.
                let _ = add(name, value);
            }
        }
        // Of the process's variables, those that tools declare and no others (standard-agents ENV-2).
        for (name, env_type) in &self.declared {
            if *env_type == EnvType::Secret
                && let Some(value) = self.source.get(name).filter(|value| !value.trim().is_empty())
                && let Err(refused) = add(name, &value)
                && !self.own.contains_key(name)
            {
                // What can't be taken out is not given to anybody.
                values.entry(name.clone()).or_insert(Err(refused));
            }
        }
        let env: Arc<dyn EnvSource> = if values.is_empty() && self.own.is_empty() {
            Arc::clone(&self.source)
        } else {
            let own = self.own.iter().map(|(name, (value, _))| (name.clone(), value.clone())).collect();
            Arc::new(Layers { thread: values, own, below: Arc::clone(&self.source) })
        };
        Ok(RunEnvironment { env, redactor: self.redactor(secrets) })
    }

    /// The environment of a call without a thread.
    pub(crate) fn of_nobody(&self) -> Arc<dyn EnvSource> {
        Arc::clone(&self.source)
    }

    fn redactor(&self, secrets: Vec<(String, String)>) -> Option<Arc<Redactor>> {
        if secrets.is_empty() {
            return None;
        }
        let mut whole = String::new();
        for (name, value) in &secrets {
            // Writing to a String can't fail.
            let _ = write!(whole, "{}:{name}{}:{value}", name.len(), value.len());
        }
        let hash = sha256_hex(whole.as_bytes());
        let mut kept = self.redactors.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, redactor)) = kept.iter().find(|(known, _)| *known == hash) {
            return Some(Arc::clone(redactor));
        }
        // Each was checked before it came here.
        let redactor = Arc::new(Redactor::new(secrets).ok()?);
        if kept.len() >= REDACTORS_KEPT {
            kept.pop_front();
        }
        kept.push_back((hash, Arc::clone(&redactor)));
        Some(redactor)
    }

    fn type_of(&self, name: &str, row: &Row) -> EnvType {
        let declared = self.declared.get(name).copied();
        match row {
            // What a tool calls a secret is one, whatever the row says.
            Row::Typed { env_type, .. } if declared != Some(EnvType::Secret) => *env_type,
            _ => declared.unwrap_or_default(),
        }
    }

    fn opened(&self, thread: &ThreadId, name: &str, row: Row) -> Valued {
        match row {
            Row::Bare(value) | Row::Typed { value: Some(value), .. } => Ok(value),
            Row::Typed { sealed: Some(sealed), .. } => match &self.sealer {
                None if self.key_problem.is_some() => Err(format!(
                    "the environment value {name} is encrypted, and the key in `{ENCRYPTION_KEY}` is too short to be one; set the key that it was set with"
                )),
                None => Err(format!(
                    "the environment value {name} is encrypted, and no key is there; set `{ENCRYPTION_KEY}` to the key that it was set with"
                )),
                Some(sealer) => sealer.open(thread, name, &sealed).ok_or_else(|| {
                    format!(
                        "the environment value {name} can't be decrypted with the key in `{ENCRYPTION_KEY}`; set the key that it was set with, or set the value again"
                    )
                }),
            },
            Row::Typed { .. } => Err(format!("the environment value {name} is damaged in the store; set it again")),
        }
    }

    /// The row that keeps a value.
    fn row(&self, thread: &ThreadId, name: &str, value: &str, env_type: EnvType) -> Result<Row, AgentError> {
        match &self.sealer {
            Some(sealer) => Ok(Row::Typed { env_type, value: None, sealed: Some(sealer.seal(thread, name, value)?) }),
            // Blank says nothing.
            None if env_type == EnvType::Text || value.is_empty() => {
                Ok(Row::Typed { env_type, value: Some(value.to_owned()), sealed: None })
            }
            None => Err(self.key_problem.clone().unwrap_or_else(|| AgentError::NoEncryptionKey { name: name.to_owned() })),
        }
    }

    /// Seals what a fork got from its source anew: a value is bound to its thread. What does not open stays as it is.
    pub(crate) async fn rebind(&self, store: &dyn Store, from: &ThreadId, to: &ThreadId) -> Result<(), AgentError> {
        let Some(sealer) = &self.sealer else { return Ok(()) };
        for (name, row) in rows(store, to).await? {
            let Row::Typed { env_type, sealed: Some(sealed), .. } = &row else { continue };
            let Some(value) = sealer.open(from, &name, sealed) else { continue };
            let row = self.row(to, &name, &value, *env_type)?;
            store.data().set_value(to, Shelf::Environment, &name, Some(text_of(&row)), None).await?;
        }
        Ok(())
    }
}

impl AgentInner {
    /// What takes the secrets that a run of the thread would have out.
    pub(crate) async fn redactor(&self, thread: &ThreadId) -> Result<Option<Arc<Redactor>>, AgentError> {
        // Boxed: it is one step among many of whoever asks.
        Ok(Box::pin(self.environment.of_run(&*self.store, thread)).await?.redactor)
    }

    /// What is posted to a thread without the secrets of its runs: a post is kept until somebody takes it.
    pub(crate) async fn clean_post(&self, thread: &ThreadId, item: InboxItem) -> Result<InboxItem, AgentError> {
        let Some(redactor) = self.redactor(thread).await? else { return Ok(item) };
        Ok(redactor.redacted(&item).map_err(|error| AgentError::Unredactable { problem: error.to_string() })?.unwrap_or(item))
    }

    /// A decision without the secrets of the thread's runs. One that brings arguments with a secret is refused.
    pub(crate) async fn clean_decision(&self, thread: &ThreadId, decision: Decision) -> Result<Decision, AgentError> {
        let Some(redactor) = self.redactor(thread).await? else { return Ok(decision) };
        if let Some(name) = decision.edited().and_then(|edited| redactor.find(edited)) {
            return Err(AgentError::Invalid {
                field: "an edited argument".to_owned(),
                given: format!("the secret {name}"),
                fix: "leave it out; tools get secrets from their environment".to_owned(),
            });
        }
        Ok(redactor.redacted(&decision).map_err(|error| AgentError::Unredactable { problem: error.to_string() })?.unwrap_or(decision))
    }
}

/// The thread's environment, then the agent's, then what is below.
struct Layers {
    thread: HashMap<String, Valued>,
    own: HashMap<String, String>,
    below: Arc<dyn EnvSource>,
}

impl EnvSource for Layers {
    fn get(&self, name: &str) -> Option<String> {
        match self.thread.get(name) {
            Some(value) => value.clone().ok(),
            None => self.own.get(name).cloned().or_else(|| self.below.get(name)),
        }
    }

    fn problem(&self, name: &str) -> Option<String> {
        match self.thread.get(name) {
            Some(value) => value.clone().err(),
            None => self.below.problem(name),
        }
    }
}

fn text_of(row: &Row) -> Arc<str> {
    // A row is texts, so it has JSON.
    serde_json::to_string(row).unwrap_or_default().into()
}

async fn rows(store: &dyn Store, thread: &ThreadId) -> Result<BTreeMap<String, Row>, StoreError> {
    let mut all = BTreeMap::new();
    let mut after: Option<String> = None;
    loop {
        let page = store.data().values(thread, Shelf::Environment, "", after.as_deref(), PAGE).await?;
        let more = page.len() == PAGE;
        after = page.last().map(|(name, _)| name.clone());
        let row = |text: &str| serde_json::from_str(text).unwrap_or(Row::Typed { env_type: EnvType::Secret, value: None, sealed: None });
        all.extend(page.into_iter().map(|(name, text)| (name, row(&text))));
        if !more {
            return Ok(all);
        }
    }
}

/// The name of an environment value: letters, digits and `_`, not beginning with a digit.
fn checked_name(name: &str) -> Result<(), AgentError> {
    let letters = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if letters && !name.is_empty() && name.len() <= 128 && !name.starts_with(|first: char| first.is_ascii_digit()) {
        return Ok(());
    }
    Err(AgentError::Invalid {
        field: "the name of an environment value".to_owned(),
        given: format!("{:?}", toolwright_core::bounded(name, 80)),
        fix: "use 1 to 128 letters, digits and `_`, and no digit first".to_owned(),
    })
}

impl<R: InstalledResolvers> AgentBuilder<R> {
    /// Where values of variables come from that neither a thread nor the agent has; the process's environment by default. Only
    /// names that tools declare are asked for.
    #[must_use]
    pub fn env(mut self, source: impl EnvSource + 'static) -> Self {
        self.environment.source = Arc::new(source);
        self
    }

    /// The agent's own value of a variable, which may be shown. A thread's comes before it.
    #[must_use]
    pub fn env_value(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.environment.own.push((name.into(), value.into(), EnvType::Text));
        self
    }

    /// The agent's own value of a variable, a secret: tools that declare it get it, and it is taken out of everything else.
    #[must_use]
    pub fn env_secret(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.environment.own.push((name.into(), value.into(), EnvType::Secret));
        self
    }

    /// A secret that no tool gets and that is taken out of everything that is written down, shown or sent, in every encoding
    /// that [`toolwright_core::redact`] names. It has at least 6 characters.
    #[must_use]
    pub fn secret(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.environment.secrets.push((name.into(), value.into()));
        self
    }

    /// The key that threads' environment values are encrypted with where they are kept: a random text of at least 16
    /// characters. By default what `TOOLWRIGHT_ENCRYPTION_KEY` or `ENCRYPTION_KEY` of the process's environment holds.
    #[must_use]
    pub fn encryption_key(mut self, key: impl Into<String>) -> Self {
        self.environment.key = Some(key.into());
        self
    }
}

impl ThreadHandle {
    /// Sets a value of the thread's environment, or removes it with `None`. Tools that declare `env(NAME)` get it in runs that
    /// begin from now on, before the agent's own (standard-agents ENV-2). It keeps the type that it has; a new one is what the
    /// tools say, and a secret where they say nothing (standard-agents ENV-6). No event, record or reply ever shows a secret.
    pub async fn set_env(&self, name: &str, value: Option<&str>) -> Result<(), AgentError> {
        checked_name(name)?;
        let id = self.id()?;
        let data = self.inner.store.data();
        let Some(value) = value else {
            return Ok(data.set_value(id, Shelf::Environment, name, None, None).await?);
        };
        let there = data.value(id, Shelf::Environment, name).await?;
        let environment = &self.inner.environment;
        let env_type = match there.and_then(|text| serde_json::from_str::<Row>(&text).ok()) {
            Some(row) => environment.type_of(name, &row),
            None => environment.declared.get(name).copied().unwrap_or_default(),
        };
        self.set_env_as(name, value, env_type).await
    }

    /// As [`ThreadHandle::set_env`], with its type. A secret has at least 6 characters, and there has to be a key to encrypt it
    /// with; see [`AgentBuilder::encryption_key`].
    pub async fn set_env_as(&self, name: &str, value: &str, env_type: EnvType) -> Result<(), AgentError> {
        checked_name(name)?;
        let id = self.id()?;
        let environment = &self.inner.environment;
        let row = Row::Typed { env_type, value: None, sealed: None };
        let env_type = environment.type_of(name, &row);
        if env_type == EnvType::Secret && !value.trim().is_empty() {
            redact::check_secret(name, value)?;
        }
        let row = environment.row(id, name, value, env_type)?;
        Ok(self.inner.store.data().set_value(id, Shelf::Environment, name, Some(text_of(&row)), None).await?)
    }

    /// The names in the thread's environment, sorted. Nothing is decrypted for it.
    pub async fn env_names(&self) -> Result<Vec<String>, AgentError> {
        Ok(rows(&*self.inner.store, self.id()?).await?.into_keys().collect())
    }

    /// The thread's environment as it may be shown, by name: values of declared texts, and of everything else the type alone.
    pub async fn env(&self) -> Result<Vec<EnvEntry>, AgentError> {
        let id = self.id()?;
        let environment = &self.inner.environment;
        let entry = |(name, row): (String, Row)| {
            let declared = environment.declared.contains_key(&name);
            // What nobody declares shows as a secret (standard-agents ENV-13).
            let env_type = if declared { environment.type_of(&name, &row) } else { EnvType::Secret };
            let opened = environment.opened(id, &name, row);
            let problem = opened.as_ref().err().cloned();
            EnvEntry { name, env_type, declared, value: opened.ok().filter(|_| env_type == EnvType::Text), problem }
        };
        Ok(rows(&*self.inner.store, id).await?.into_iter().map(entry).collect())
    }
}
