//! Bugs that the simulator has to find: proof that it looks. Compiled only with the feature `planted-bugs`, on only where a
//! test switches one on.

use toolwright_core::FoldBug;

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
    /// Input that comes during a model call is dropped.
    LostInput,
    /// Input is not marked as taken with the record that journals it: after a crash it is taken again.
    InputTakenTwice,
    /// A model call is given up for input that steers although it has said something.
    SteerOverAReply,
    /// Compaction takes the results that the model has not answered yet.
    PruneOfTheLatestTurn,
    /// A fork keeps what its source waits for.
    ForkKeepsApprovals,
    /// A saved fold lacks queued input.
    SavedWithoutInput,
    /// A saved fold lacks the ids that calls had.
    SavedWithoutIds,
    /// Nobody looks at the time of a budget.
    TimeIsNotLimited,
    /// A model is asked although its input was not checked.
    InputIsNotChecked,
    /// What earlier runs used is not counted.
    SpentIsForgotten,
    /// A person who approves twice is two people.
    OneVotesTwice,
    /// A decision that is handed to others stays where it was.
    DelegationIsIgnored,
    /// The end of the time for a decision has a key of its own, so that somebody may decide after it.
    LapseHasAKeyOfItsOwn,
    /// A failure from outside has a key of its own, beside that of a result.
    FailureHasAKeyOfItsOwn,
    /// What an approval of another call lets run passes the gate although somebody rejected it.
    CoveredBesideARejection,
    /// An approval that stands for calls with the same arguments stands for all calls of the tool.
    AlwaysForgetsTheArguments,
    /// An approval that stands for other calls leaves those alone that wait already.
    AlwaysAnswersNobody,
    /// Somebody is asked about a call that an approval of another one answered while its gate looked.
    AskedBesideAnApproval,
    /// A saved fold lacks approvals that stand for later calls.
    SavedWithoutApprovals,
    /// Deciders are reminded once and never again.
    RemindedOnce,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 24] = [
        Self::RerunOfARecordedCall,
        Self::ResultOutOfOrder,
        Self::LostDecision,
        Self::BodyBeforeRecord,
        Self::LostInput,
        Self::InputTakenTwice,
        Self::SteerOverAReply,
        Self::PruneOfTheLatestTurn,
        Self::ForkKeepsApprovals,
        Self::SavedWithoutInput,
        Self::SavedWithoutIds,
        Self::TimeIsNotLimited,
        Self::InputIsNotChecked,
        Self::SpentIsForgotten,
        Self::OneVotesTwice,
        Self::DelegationIsIgnored,
        Self::LapseHasAKeyOfItsOwn,
        Self::FailureHasAKeyOfItsOwn,
        Self::CoveredBesideARejection,
        Self::AlwaysForgetsTheArguments,
        Self::AlwaysAnswersNobody,
        Self::AskedBesideAnApproval,
        Self::SavedWithoutApprovals,
        Self::RemindedOnce,
    ];

    /// The bug as it is planted in folds, where it is one of theirs.
    pub fn of_folds(self) -> Option<FoldBug> {
        match self {
            Self::ForkKeepsApprovals => Some(FoldBug::ForkKeepsApprovals),
            Self::SavedWithoutInput => Some(FoldBug::SavedWithoutInput),
            Self::SavedWithoutIds => Some(FoldBug::SavedWithoutIds),
            Self::InputIsNotChecked => Some(FoldBug::InputIsNotChecked),
            Self::SpentIsForgotten => Some(FoldBug::SpentIsForgotten),
            Self::OneVotesTwice => Some(FoldBug::OneVotesTwice),
            Self::AlwaysForgetsTheArguments => Some(FoldBug::AlwaysForgetsTheArguments),
            Self::AlwaysAnswersNobody => Some(FoldBug::AlwaysAnswersNobody),
            Self::SavedWithoutApprovals => Some(FoldBug::SavedWithoutApprovals),
            _ => None,
        }
    }
}
