//! Options that can't be used.

use toolwright_tool::DefinitionError;

/// Why tools could not be built. Code `TOOLWRIGHT_CONFIG_INVALID`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// An option.
    #[error("the option `{option}` can't be used: {problem}")]
    Option {
        /// Its name.
        option: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// A tool.
    #[error(transparent)]
    Definition(#[from] DefinitionError),
}

impl OptionError {
    pub(super) fn new(option: &'static str, problem: impl Into<String>) -> Self {
        Self::Option { option, problem: problem.into() }
    }

    /// The stable code.
    pub fn code(&self) -> &'static str {
        "TOOLWRIGHT_CONFIG_INVALID"
    }
}
