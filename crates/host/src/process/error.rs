//! Why a program did not run.

/// Why a program did not run to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// It could not be started.
    #[error("`{program}` could not be started: {source}; check that it is installed and in PATH")]
    Start {
        /// The program.
        program: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The folder it was to run in is not there.
    #[error("`{program}` can't run in {dir}: there is no such folder; create it, or name another one")]
    Folder {
        /// The program.
        program: String,
        /// The folder.
        dir: String,
    },
    /// It was ended because it took too long.
    #[error("`{program}` did not end within {seconds} s and was killed")]
    Timeout {
        /// The program.
        program: String,
        /// The limit.
        seconds: u64,
    },
    /// Waiting for it, or reading its output, failed.
    #[error("`{program}` could not be followed: {source}")]
    Follow {
        /// The program.
        program: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// It was to run in a sandbox, and that could not be had.
    #[error("`{program}` was not started: {problem}")]
    Sandbox {
        /// The program.
        program: String,
        /// One sentence, with what to do about it.
        problem: String,
    },
}
