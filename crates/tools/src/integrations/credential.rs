//! Where a tool's secret comes from.

use std::fmt;
use std::sync::Arc;

use toolwright_tool::core::EnvNeed;
use toolwright_tool::core::redact::Redactor;
use toolwright_tool::{ToolContext, ToolError};

use super::option::OptionError;

/// Where a tool takes a token or a password from: never from its arguments.
///
/// ```
/// use toolwright_tools::integrations::Credential;
///
/// // From the environment of the thread, the agent or the process: the tool declares the name as a secret.
/// let token = Credential::env("GITHUB_TOKEN");
/// // A value that the program has from elsewhere. It is in no `Debug`, error or result.
/// let password = Credential::value("correct horse battery staple");
/// assert_eq!(format!("{token:?} {password:?}"), "Credential(env GITHUB_TOKEN) Credential([REDACTED])");
/// ```
#[derive(Clone)]
pub struct Credential(Source);

#[derive(Clone)]
enum Source {
    Env(String),
    Value(Arc<str>),
}

impl Credential {
    /// The environment value of this name, which the tools declare as a secret.
    pub fn env(name: impl Into<String>) -> Self {
        Self(Source::Env(name.into()))
    }

    /// This value.
    pub fn value(value: impl AsRef<str>) -> Self {
        Self(Source::Value(Arc::from(value.as_ref().trim())))
    }

    /// What tools declare for it.
    pub(super) fn need(&self, described: &str) -> Option<EnvNeed> {
        match &self.0 {
            Source::Env(name) => Some(EnvNeed::secret(name).described(described)),
            Source::Value(_) => None,
        }
    }

    /// The secret for one call; `None` where there is none.
    pub(super) fn get(&self, cx: &ToolContext) -> Option<String> {
        let found = match &self.0 {
            Source::Env(name) => cx.env(name).map(|value| value.trim().to_owned()),
            Source::Value(value) => Some((**value).to_owned()),
        };
        found.filter(|value| !value.is_empty())
    }

    /// The secret for one call, which can't do without it. Dispatch refuses a call whose tool lacks a variable; this is for whoever
    /// calls a body without it.
    pub(super) fn required(&self, cx: &ToolContext, service: &str) -> Result<String, ToolError> {
        self.get(cx).ok_or_else(|| ToolError::new(format!("{service} wants a credential; set {self}")).named("CredentialsError"))
    }

    /// Takes a value of the options out of what a service answers. A value of the environment is taken out by dispatch.
    pub(super) fn redactor(&self, option: &'static str, mark: &str) -> Result<Option<Arc<Redactor>>, OptionError> {
        match &self.0 {
            Source::Env(name) if name.trim().is_empty() => {
                Err(OptionError::new(option, "the environment value it is taken from has no name"))
            }
            Source::Env(_) => Ok(None),
            Source::Value(value) => {
                if value.chars().any(char::is_control) {
                    return Err(OptionError::new(option, "it holds a line break or another control character"));
                }
                let made = Redactor::new([(mark, &**value)]).map_err(|error| OptionError::new(option, error.to_string()))?;
                Ok(Some(Arc::new(made)))
            }
        }
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::Env(name) => write!(f, "Credential(env {name})"),
            Source::Value(_) => f.write_str("Credential([REDACTED])"),
        }
    }
}

/// Where it is to be put, for sentences.
impl fmt::Display for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::Env(name) => write!(f, "the environment value `{name}`"),
            Source::Value(_) => f.write_str("the credential that the tools were built with"),
        }
    }
}
