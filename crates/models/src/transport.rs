//! What lies below a wire: something that answers HTTP requests. The network, or a recording.

use std::fmt;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use toolwright_host::net::{Client, NetError, Request, Response};

/// Answers HTTP requests.
pub trait Transport: fmt::Debug + Send + Sync + 'static {
    /// Sends the request, and gives the response when its head is there. The body follows as a stream; dropping it ends the exchange.
    fn send(&self, request: Request) -> BoxFuture<'static, Result<Response, NetError>>;

    /// Whether requests reach a provider, so that a key is needed.
    fn is_live(&self) -> bool {
        true
    }
}

impl Transport for Client {
    fn send(&self, request: Request) -> BoxFuture<'static, Result<Response, NetError>> {
        let client = self.clone();
        async move { Client::send(&client, request).await }.boxed()
    }
}
