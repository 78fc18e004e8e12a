//! Permission modes: presets that have the last word about a call, and never take back a refusal.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A permission mode (sdk-tools 16).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PermissionMode {
    /// Nothing special.
    #[default]
    Default,
    /// Only tools that read run: a plan is made, nothing is changed.
    Plan,
    /// File edits run without asking.
    AcceptEdits,
    /// Nobody is asked: what would ask is refused.
    DontAsk,
}

/// A word that is no permission mode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no permission mode; use `default`, `plan`, `acceptEdits` or `dontAsk`")]
pub struct UnknownMode(pub String);

/// What the stages before the mode found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Earlier {
    /// A hook, a rule, a guardrail or the tool refused it.
    Denied,
    /// A guardrail ended the run.
    EndsRun,
    /// Somebody would have to decide.
    WouldAsk,
    /// A rule allowed it.
    AllowedByRule,
    /// Nobody said anything.
    Nothing,
}

/// What becomes of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModeVerdict {
    /// It runs.
    Run,
    /// Somebody decides.
    Ask,
    /// It does not run.
    Deny,
    /// The run ends.
    EndsRun,
}

impl PermissionMode {
    /// Every mode.
    pub const ALL: [Self; 4] = [Self::Default, Self::Plan, Self::AcceptEdits, Self::DontAsk];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Plan => "plan",
            Self::AcceptEdits => "acceptEdits",
            Self::DontAsk => "dontAsk",
        }
    }

    /// The table of sdk-tools 16.4, an unknown tool left out: it is not found in any mode.
    ///
    /// | before | `default` | `plan`, reads | `plan`, other | `acceptEdits`, edits | `acceptEdits`, other | `dontAsk` |
    /// |---|---|---|---|---|---|---|
    /// | denied | deny | deny | deny | deny | deny | deny |
    /// | ends the run | ends | ends | ends | ends | ends | ends |
    /// | would ask | ask | ask | deny | run | ask | deny |
    /// | allowed by a rule | run | run | deny | run | run | run |
    /// | nothing | run | run | deny | run | run | run |
    pub fn decide(self, earlier: Earlier, read_only: bool, edits_files: bool) -> ModeVerdict {
        let may_not_plan = self == Self::Plan && !read_only;
        match earlier {
            Earlier::Denied => ModeVerdict::Deny,
            Earlier::EndsRun => ModeVerdict::EndsRun,
            _ if may_not_plan => ModeVerdict::Deny,
            Earlier::WouldAsk => match self {
                Self::DontAsk => ModeVerdict::Deny,
                Self::AcceptEdits if edits_files => ModeVerdict::Run,
                _ => ModeVerdict::Ask,
            },
            Earlier::AllowedByRule | Earlier::Nothing => ModeVerdict::Run,
        }
    }

    /// What a model reads when this mode refuses its call.
    pub fn refusal(self) -> &'static str {
        match self {
            Self::Plan => "plan mode is on, so nothing may be changed: describe the change you would make instead of making it",
            _ => "nobody can be asked, and the call would have to be approved",
        }
    }

    /// What the instructions of a run that begins in plan mode end with (sdk-tools 16.3/3).
    pub const PLAN_NOTE: &'static str = "Plan mode is on. You may read and look things up, but you may not change anything: calls of tools that do \
         more than read are refused. Find out what is needed, then answer with a plan of the changes you would make.";
}

impl fmt::Display for PermissionMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for PermissionMode {
    type Err = UnknownMode;

    fn from_str(word: &str) -> Result<Self, UnknownMode> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == word).ok_or_else(|| UnknownMode(word.to_owned()))
    }
}
