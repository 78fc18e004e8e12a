//! The body of a guarded response: unpacked, bounded, in time.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::time::Instant;

use super::decode::Decoder;
use super::error::GuardError;
use super::message::causes;

/// The body of a response as it comes in, unpacked, up to the limits of its client. Dropping it closes the connection when there is more
/// to come.
pub struct GuardedBody {
    host: String,
    /// Absent once nothing more is read.
    incoming: Option<Incoming>,
    decoder: Decoder,
    /// Bytes that may still come from the network.
    left: usize,
    truncated: bool,
    deadline: Instant,
    limit: Duration,
}

/// A body that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadBody {
    /// Its bytes, unpacked.
    pub bytes: Vec<u8>,
    /// Whether there was more than the limit allows.
    pub truncated: bool,
}

impl fmt::Debug for GuardedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedBody").field("host", &self.host).field("truncated", &self.truncated).finish_non_exhaustive()
    }
}

impl GuardedBody {
    pub(super) fn new(host: String, incoming: Incoming, decoder: Decoder, bytes: usize, deadline: Instant, limit: Duration) -> Self {
        Self { host, incoming: Some(incoming), decoder, left: bytes, truncated: false, deadline, limit }
    }

    /// The next piece; `None` at the end, or at the limit.
    pub async fn next(&mut self) -> Option<Result<Bytes, GuardError>> {
        loop {
            let incoming = self.incoming.as_mut()?;
            let Ok(frame) = tokio::time::timeout_at(self.deadline, incoming.frame()).await else {
                self.incoming = None;
                return Some(Err(GuardError::Timeout { host: self.host.clone(), limit_ms: self.limit.as_millis() as u64 }));
            };
            let out = match frame {
                None => {
                    self.incoming = None;
                    self.decoder.finish()
                }
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(piece) => self.take(&piece),
                    // Trailers are of no use to anybody here.
                    Err(_) => continue,
                },
                Some(Err(error)) => {
                    self.incoming = None;
                    return Some(Err(GuardError::Broken { host: self.host.clone(), problem: causes(&error) }));
                }
            };
            match out {
                Ok(out) if out.is_empty() => {}
                Ok(out) => return Some(Ok(out.into())),
                Err(problem) => {
                    self.incoming = None;
                    return Some(Err(GuardError::Packed { host: self.host.clone(), problem }));
                }
            }
        }
    }

    fn take(&mut self, piece: &Bytes) -> Result<Vec<u8>, String> {
        let kept = piece.slice(..piece.len().min(self.left));
        self.left -= kept.len();
        let out = self.decoder.push(&kept);
        if kept.len() < piece.len() || self.decoder.is_full() {
            self.truncated = true;
            self.incoming = None;
        }
        out
    }

    /// Whether there was more than the limit allows; known once [`Self::next`] has given `None`.
    pub fn is_truncated(&self) -> bool {
        self.truncated
    }

    /// Reads it to its end, or to the limit.
    pub async fn read(mut self) -> Result<ReadBody, GuardError> {
        let mut bytes = Vec::new();
        while let Some(piece) = self.next().await {
            bytes.extend_from_slice(&piece?);
        }
        Ok(ReadBody { bytes, truncated: self.truncated })
    }
}
