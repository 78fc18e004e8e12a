//! The chat wire, and recording, against a real server on this machine.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "clippy.toml allows these in test functions only, and the helpers beside them are as much a test"
)]

mod replay;
mod scripted;
mod server;
mod wire;

use futures_util::StreamExt as _;
use toolwright_core::{Side, Transcript};
use toolwright_runtime::{ModelError, ModelEvent, ModelReply, ModelRequest, ModelStream};

/// A request of these messages, and nothing else.
fn request(messages: Transcript) -> ModelRequest {
    ModelRequest {
        instructions: "".into(),
        messages,
        acting: Side::A,
        tools: Vec::new().into(),
        settings: std::sync::Arc::default(),
        thread: None,
        run: None,
        step: 1,
        today: "2026-11-30".into(),
        cancelled: tokio_util::sync::CancellationToken::new(),
    }
}

/// All of a stream: its events before the end, and how it ended.
async fn collect(stream: ModelStream) -> (Vec<ModelEvent>, Result<ModelReply, ModelError>) {
    let mut events = Vec::new();
    let mut stream = std::pin::pin!(stream);
    while let Some(event) = stream.next().await {
        match event {
            Ok(ModelEvent::Done(reply)) => {
                assert!(stream.next().await.is_none(), "events after the last");
                return (events, Ok(reply));
            }
            Ok(event) => events.push(event),
            Err(error) => {
                assert!(stream.next().await.is_none(), "events after an error");
                return (events, Err(error));
            }
        }
    }
    panic!("the stream ended without an end: {events:?}");
}
