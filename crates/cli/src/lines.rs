//! Standard input, line by line.

use std::io::BufRead as _;

use tokio::sync::mpsc::{Receiver, channel};

/// Lines of standard input. Reading begins with the first one that is asked for.
#[derive(Default)]
pub(crate) struct Lines {
    receive: Option<Receiver<String>>,
}

impl Lines {
    /// The next line without its end; `None` at the end of the input.
    pub(crate) async fn next(&mut self) -> Option<String> {
        self.receive.get_or_insert_with(reader).recv().await
    }
}

/// Reads on a thread of its own: a read that waits for a key can't be taken back, and the process ends without it.
fn reader() -> Receiver<String> {
    let (send, receive) = channel(1);
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        let mut line = Vec::new();
        while input.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
            let text = String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']).to_owned();
            if send.blocking_send(text).is_err() {
                return;
            }
            line.clear();
        }
    });
    receive
}
