//! Identifiers and positions. Each is its own type, cheap to clone.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Takes the text as it is.
            pub fn new(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}

id!(
    /// One run: from a send, a resume or a decision to one finish reason.
    RunId
);
id!(
    /// One tool call, unique in its thread. The provider's id where that was usable, else one of ours;
    /// stable over crashes and pauses, so a body may use it as an idempotency key (sdk-tools 6/5).
    CallId
);
id!(
    /// One pending decision. It names its thread and its call, so that a decider needs nothing else.
    ApprovalId
);

id!(
    /// One piece of input that was queued for a run.
    InputId
);

impl ApprovalId {
    /// The id of the decision that `call` of `thread` waits for; `round` tells a second wait of one call from the first.
    pub fn of(thread: &ThreadId, call: &CallId, round: u32) -> Self {
        Self(format!("{thread}:{round}:{call}").into())
    }

    /// The thread the decision belongs to, or `None` if this is not an id made by [`ApprovalId::of`].
    pub fn thread(&self) -> Option<ThreadId> {
        let (thread, _) = self.0.split_once(':')?;
        ThreadId::new(thread).ok()
    }
}

/// A durable conversation. 1 to 128 of `A-Z a-z 0-9 _ -` (sdk-runtime DATA-5).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct ThreadId(Arc<str>);

impl ThreadId {
    /// Checks the grammar.
    pub fn new(text: impl Into<Arc<str>>) -> Result<Self, InvalidThreadId> {
        let text = text.into();
        let fits = (1..=128).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        if fits { Ok(Self(text)) } else { Err(InvalidThreadId { given: crate::text::cut(&text, 140).to_owned() }) }
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl<'de> Deserialize<'de> for ThreadId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// A thread id outside the grammar.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the thread id {given:?} is not valid; use 1 to 128 letters, digits, `_` and `-`")]
pub struct InvalidThreadId {
    given: String,
}

/// A position in a thread's journal: the first record has 1, and 0 means "before the first".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl Seq {
    /// The position after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A moment, in milliseconds since 1970-01-01 UTC. The core never asks for it; records bring it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// ISO 8601 in UTC with milliseconds, as events write it (sdk-runtime EV-2).
    pub fn to_iso(self) -> String {
        jiff::Timestamp::from_millisecond(self.0).map_or_else(|_| self.0.to_string(), |moment| format!("{moment:.3}"))
    }

    /// The moment of an ISO 8601 text, if it is one.
    pub fn from_iso(text: &str) -> Option<Self> {
        text.parse::<jiff::Timestamp>().ok().map(|moment| Self(moment.as_millisecond()))
    }

    /// Milliseconds from `earlier` to this moment; 0 if the clock went backwards.
    pub fn millis_since(self, earlier: Self) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // rule: sdk-runtime DATA-5
    #[test]
    fn a_thread_id_has_its_grammar() {
        for good in ["a", "chat-42", "A_b-9", &"x".repeat(128)] {
            assert!(ThreadId::new(good).is_ok(), "{good}");
        }
        for bad in ["", "../x", "a/b", "a.b", "a:b", "é", &"x".repeat(129)] {
            assert!(ThreadId::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_approval_names_its_thread() {
        let thread = ThreadId::new("t-1").unwrap();
        let approval = ApprovalId::of(&thread, &CallId::new("call:odd"), 1);
        assert_eq!(approval.thread(), Some(thread));
        assert_eq!(ApprovalId::new("nonsense").thread(), None);
    }

    // rule: sdk-runtime EV-2
    #[test]
    fn timestamps_are_iso_with_milliseconds() {
        assert_eq!(Timestamp(1_767_225_600_005).to_iso(), "2026-01-01T00:00:00.005Z");
        assert_eq!(Timestamp::from_iso("2026-01-01T00:00:00.005Z"), Some(Timestamp(1_767_225_600_005)));
        assert_eq!(Timestamp(i64::MAX).to_iso(), i64::MAX.to_string());
    }
}
