//! What can go wrong with the local model.

use std::path::PathBuf;

/// Why the local model could not reply. Each is one sentence that says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LocalError {
    /// The model file can't be read or is not a model of the known kind.
    #[error("the model file {} can't be used: {why}; fetch it again with `toolwright models fetch`", .path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// `TOOLWRIGHT_LOCAL_MODEL` names a file that is not the known model.
    #[error("TOOLWRIGHT_LOCAL_MODEL is {}, and {why}; correct the path, or unset it to use the model in the data folder", .path.display())]
    Configured {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// No source gave the model file.
    #[error(
        "the local model could not be fetched ({}); set TOOLWRIGHT_LOCAL_MODEL to a copy of needle3.cact, or name another model", .tried.join("; ")
    )]
    NoSource {
        /// What was tried, each with its outcome.
        tried: Vec<String>,
    },
    /// The data folder can't be used.
    #[error("the model can't be kept in {}: {why}; set TOOLWRIGHT_LOCAL_MODEL to a copy of needle3.cact", .folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Tools and request together are longer than the local model reads.
    #[error("the request and its tools are {tokens} tokens long and the local model reads {most}; offer fewer tools or name another model")]
    TooLong {
        /// How long they are.
        tokens: usize,
        /// How long they may be.
        most: usize,
    },
    /// The turn was cancelled.
    #[error("the turn was cancelled")]
    Cancelled,
    /// The grammar of calls failed, which is a fault of ours.
    #[error("the local model's reply could not be kept to the tools' schemas ({0}); please report it")]
    Grammar(String),
}
