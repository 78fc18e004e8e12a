//! Why a file could not be reached.

use std::path::PathBuf;

/// Why a file below a root was not read or changed. Paths are those below the root: where the root is on this machine is not
/// told, since a model reads this (sdk-tools 25.3/5).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// What was written is no path below a root.
    #[error("the path {given:?} {problem}")]
    Path {
        /// As written, cut if it is long.
        given: String,
        /// What is wrong with it, and what to do.
        problem: &'static str,
    },
    /// A link leads out.
    #[error("{path} leads out of the workspace through a link; only what is inside can be reached")]
    Outside {
        /// The path.
        path: String,
    },
    /// A link whose target is not there.
    #[error("{path} is a link to something that is not there; remove it, or name a file")]
    Dangling {
        /// The path.
        path: String,
    },
    /// A link where none may be, or links in a circle.
    #[error("{path} is, or goes through, a link that can't be followed; name the file itself")]
    Link {
        /// The path.
        path: String,
    },
    /// Nothing is there.
    #[error("there is no {path}; list its folder to see what is there")]
    NotFound {
        /// The path.
        path: String,
    },
    /// A folder, where a file was wanted.
    #[error("{path} is a folder; name a file in it")]
    IsAFolder {
        /// The path.
        path: String,
    },
    /// A file, where a folder was wanted: it, or a part of it.
    #[error("{path} is no folder, or goes through a file; name a folder")]
    NotAFolder {
        /// The path.
        path: String,
    },
    /// A device, a socket or a pipe.
    #[error("{path} is no file that can be read, but a device, a socket or a pipe; name a file")]
    NotAFile {
        /// The path.
        path: String,
    },
    /// Too large.
    #[error("{path} has {size} bytes, and at most {limit} are taken; search it, or work with a part of it")]
    TooLarge {
        /// The path.
        path: String,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The system does not allow it.
    #[error("the system does not permit to {doing} {path}; change its permissions, or use another one")]
    NotPermitted {
        /// The path.
        path: String,
        /// What was tried.
        doing: &'static str,
    },
    /// Something is there already.
    #[error("{path} is there already; choose another name, or change what is there")]
    Exists {
        /// The path.
        path: String,
    },
    /// It is not what it was when it was looked at.
    #[error("{path} changed while it was worked on, and was left as it is; read it again")]
    Changed {
        /// The path.
        path: String,
    },
    /// The system failed in another way.
    #[error("the system could not {doing} {path}: {source}; see to that, then try again")]
    System {
        /// The path.
        path: String,
        /// What was tried.
        doing: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Why a folder can't be a root. Code `TOOLWRIGHT_CONFIG_INVALID` (sdk-tools 25.3/6).
#[derive(Debug, thiserror::Error)]
#[error("the workspace {} can't be used: {problem}", folder.display())]
pub struct RootError {
    /// The folder, as given.
    pub folder: PathBuf,
    /// What is wrong, and what to do.
    pub problem: String,
}

impl RootError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        "TOOLWRIGHT_CONFIG_INVALID"
    }
}
