//! Bugs that the simulator has to find: proof that it looks. Compiled only with the feature `planted-bugs`, on only where a
//! test switches one on.

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A call with a recorded result runs again.
    RerunOfARecordedCall,
    /// Results join the transcript in the order they came.
    ResultOutOfOrder,
    /// A decision that comes while the run is going on is dropped.
    LostDecision,
    /// A body begins before its record is durable.
    BodyBeforeRecord,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::RerunOfARecordedCall, Self::ResultOutOfOrder, Self::LostDecision, Self::BodyBeforeRecord];
}
