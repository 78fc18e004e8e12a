//! A thread's events, for whoever attaches from outside a run.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use toolwright_core::Event;

use crate::error::AgentError;
use crate::subscription::Subscription;

/// The events of a thread from a position on: replayed, then live. It does not end by itself; a position to go on from later
/// is [`Event::position`].
pub struct ThreadEvents {
    events: BoxStream<'static, Result<Event, AgentError>>,
}

impl ThreadEvents {
    pub(crate) fn new(subscription: Subscription) -> Self {
        let events = futures_util::stream::unfold(Some(subscription), |subscription| async move {
            let mut subscription = subscription?;
            match subscription.next().await {
                Ok(Some(event)) => Some((Ok(event), Some(subscription))),
                Ok(None) => None,
                // A store that fails ends the stream; the reader goes on from the last position.
                Err(error) => Some((Err(error.into()), None)),
            }
        });
        Self { events: events.boxed() }
    }

    pub(crate) fn there_are(subscription: Subscription) -> Self {
        let events = futures_util::stream::unfold(Some(subscription), |subscription| async move {
            let mut subscription = subscription?;
            match subscription.next_there_is().await {
                Ok(Some(event)) => Some((Ok(event), Some(subscription))),
                Ok(None) => None,
                Err(error) => Some((Err(error.into()), None)),
            }
        });
        Self { events: events.boxed() }
    }
}

impl Stream for ThreadEvents {
    type Item = Result<Event, AgentError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.events.poll_next_unpin(cx)
    }
}
