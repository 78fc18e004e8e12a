//! Ctrl-C, as something to wait for.

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Every Ctrl-C since it began to listen, each once.
pub(crate) struct Interrupts {
    pressed: UnboundedReceiver<()>,
}

impl Interrupts {
    pub(crate) fn listen() -> Self {
        let (press, pressed) = unbounded_channel();
        tokio::spawn(async move { while tokio::signal::ctrl_c().await.is_ok() && press.send(()).is_ok() {} });
        Self { pressed }
    }

    /// The next one.
    pub(crate) async fn next(&mut self) {
        if self.pressed.recv().await.is_none() {
            // This system has none.
            std::future::pending::<()>().await;
        }
    }
}
