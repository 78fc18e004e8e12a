//! A stream's bytes to events and a reply: [`SseDecoder`] and [`Assembler`] joined, still without I/O.

use std::sync::Arc;

use toolwright_runtime::{ModelError, ModelEvent, ModelReply};

use crate::assemble::Assembler;
use crate::sse::{MAX_EVENT, SseDecoder};

/// The largest reply by default, in bytes of its stream: an endless one must end somewhere.
pub const MAX_REPLY: usize = 256 << 20;

/// Reads one streamed reply.
#[derive(Debug)]
pub struct ReplyDecoder {
    provider: Arc<str>,
    sse: SseDecoder,
    assembler: Assembler,
    bytes: usize,
    limit: usize,
}

impl ReplyDecoder {
    /// For a reply of `model` at `provider`, of at most `limit` bytes.
    pub fn new(provider: impl Into<Arc<str>>, model: impl Into<Arc<str>>, limit: usize) -> Self {
        let provider = provider.into();
        Self {
            provider: Arc::clone(&provider),
            sse: SseDecoder::new(MAX_EVENT.min(limit)),
            assembler: Assembler::new(provider, model),
            bytes: 0,
            limit,
        }
    }

    /// Takes bytes of the stream, cut anywhere, and appends to `out` what is new.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        self.bytes = self.bytes.saturating_add(bytes.len());
        if self.bytes > self.limit {
            let message = format!("the reply was cut off: it has more than {} bytes; set a limit on its tokens", self.limit);
            return Err(ModelError::new(&*self.provider, &message));
        }
        self.sse.push(bytes);
        loop {
            match self.sse.next_event() {
                Ok(Some(event)) => self.assembler.event(event.name, event.data, out)?,
                Ok(None) => return Ok(()),
                Err(error) => return Err(ModelError::new(&*self.provider, &error.to_string())),
            }
        }
    }

    /// Whether the stream said that it is over.
    pub fn is_done(&self) -> bool {
        self.assembler.is_done()
    }

    /// Whether nothing has come yet.
    pub fn is_fresh(&self) -> bool {
        self.bytes == 0
    }

    /// The reply, at the end of the stream.
    pub fn finish(mut self, out: &mut Vec<ModelEvent>) -> Result<ModelReply, ModelError> {
        match self.sse.finish() {
            Ok(None) => self.assembler.finish(),
            Ok(Some(event)) => match self.assembler.event(event.name, event.data, out) {
                Ok(()) => self.assembler.finish(),
                // The stream broke off in the middle of an event. What it had said before that still counts, if it was all.
                Err(_) if serde_json::from_str::<serde::de::IgnoredAny>(event.data.trim()).is_err() => self.assembler.finish(),
                Err(error) => Err(error),
            },
            Err(error) => Err(ModelError::new(&*self.provider, &error.to_string())),
        }
    }
}

/// Decodes and assembles a whole recorded stream, given in chunks, and gives every event to `on`.
pub fn assemble_bytes<C: AsRef<[u8]>>(
    provider: &str,
    chunks: impl IntoIterator<Item = C>,
    mut on: impl FnMut(ModelEvent),
) -> Result<ModelReply, ModelError> {
    let mut decoder = ReplyDecoder::new(provider, "recorded", usize::MAX);
    let mut events = Vec::new();
    for chunk in chunks {
        let read = decoder.push(chunk.as_ref(), &mut events);
        events.drain(..).for_each(&mut on);
        read?;
    }
    let reply = decoder.finish(&mut events);
    events.drain(..).for_each(&mut on);
    reply
}
