//! How the command ends.

use std::process::ExitCode;

/// How the command ended. The codes are part of its interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0: done.
    Done,
    /// 1: the run, the call or the check failed.
    Failed,
    /// 2: the command line or the configuration is wrong.
    Usage,
    /// 3: somebody has to decide first.
    Waiting,
    /// 130: interrupted.
    Interrupted,
}

impl Exit {
    /// The process's exit code.
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Waiting => 3,
            Self::Interrupted => 130,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
