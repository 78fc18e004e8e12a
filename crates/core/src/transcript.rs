//! The transcript: a persistent list, so that requests and contexts share it and a step costs no copy.

use std::sync::Arc;

use rpds::VectorSync;

use crate::message::Message;

/// Messages in order. Cloning and appending cost O(log n), never a copy of the list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transcript(VectorSync<Arc<Message>>);

impl Transcript {
    /// An empty one.
    pub fn new() -> Self {
        Self(VectorSync::new_sync())
    }

    /// Appends.
    pub fn push(&mut self, message: Arc<Message>) {
        self.0.push_back_mut(message);
    }

    /// How many messages.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// In order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<Message>> + ExactSizeIterator {
        self.0.iter()
    }

    /// Those from a place on, in order. What is skipped costs nothing, unlike with [`Transcript::iter`].
    pub fn from(&self, index: usize) -> impl Iterator<Item = &Arc<Message>> {
        (index..self.len()).filter_map(|index| self.get(index))
    }

    /// The last one.
    pub fn last(&self) -> Option<&Arc<Message>> {
        self.0.last()
    }

    /// One of them.
    pub fn get(&self, index: usize) -> Option<&Arc<Message>> {
        self.0.get(index)
    }

    /// Puts another in place of one that is there; gives whether it is.
    pub fn set(&mut self, index: usize, message: Arc<Message>) -> bool {
        self.0.set_mut(index, message)
    }

    /// Without the last one.
    #[must_use]
    pub fn without_last(&self) -> Self {
        Self(self.0.drop_last().unwrap_or_else(VectorSync::new_sync))
    }
}

impl FromIterator<Arc<Message>> for Transcript {
    fn from_iter<I: IntoIterator<Item = Arc<Message>>>(messages: I) -> Self {
        let mut out = Self::new();
        for message in messages {
            out.push(message);
        }
        out
    }
}

impl FromIterator<Message> for Transcript {
    fn from_iter<I: IntoIterator<Item = Message>>(messages: I) -> Self {
        let mut out = Self::new();
        for message in messages {
            out.push(Arc::new(message));
        }
        out
    }
}

/// Why a transcript may not be sent to a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the transcript is not balanced at message {at}: {problem}")]
pub struct Unbalanced {
    /// The message's index.
    pub at: usize,
    /// What is wrong.
    pub problem: String,
}

impl Transcript {
    /// Checks invariant 2: every call has exactly one result, results stand in call order directly after their turn.
    /// The fold keeps this by construction; tests, the simulator and stores of foreign histories check it.
    pub fn check_balance(&self) -> Result<(), Unbalanced> {
        let mut open: Vec<&str> = Vec::new();
        for (at, message) in self.iter().enumerate() {
            let results: Vec<&str> = message.results().map(|result| result.call_id.as_str()).collect();
            if results != open {
                let problem = if open.is_empty() {
                    format!("results {results:?} answer no call")
                } else {
                    format!("calls {open:?} should be answered here in order, found {results:?}")
                };
                return Err(Unbalanced { at, problem });
            }
            open = message.calls().map(|call| call.call_id.as_str()).collect();
        }
        if open.is_empty() { Ok(()) } else { Err(Unbalanced { at: self.len(), problem: format!("calls {open:?} have no result") }) }
    }
}
