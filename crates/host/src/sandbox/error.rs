//! Why there is no sandbox.

/// Why a sandbox could not be made, or a program not be put into it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// This system can't keep what was asked for.
    #[error("a sandbox is not possible as asked for: {lacks}; {fix}")]
    Lacks {
        /// What it can't keep, each with why.
        lacks: String,
        /// What to do about it.
        fix: String,
    },
    /// There is no way out of this sandbox that could be guarded.
    #[error("no guarded way out of the sandbox: {problem}; {fix}")]
    Egress {
        /// Why.
        problem: String,
        /// What to do about it.
        fix: String,
    },
    /// An option is not valid.
    #[error("{problem}")]
    Config {
        /// One sentence.
        problem: String,
    },
    /// The system refused in the middle.
    #[error("the sandbox could not be set up: {problem}")]
    Setup {
        /// What it said.
        problem: String,
    },
}

impl SandboxError {
    /// Its stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Lacks { .. } | Self::Setup { .. } => "TOOLWRIGHT_SANDBOX_UNAVAILABLE",
            Self::Egress { .. } => "TOOLWRIGHT_SANDBOX_EGRESS_UNSUPPORTED",
            Self::Config { .. } => "TOOLWRIGHT_CONFIG_INVALID",
        }
    }
}
