//! From a PDF to its text, by a program of its own.
//!
//! Readers of PDFs follow references and unpack streams without a bound, and the ones that are libraries take this process with them
//! when they overflow. A process can be ended, and confined.

use std::io::Write as _;
use std::time::Duration;

use toolwright_host::process::{How, Spawn};

/// How long a PDF may take to be read.
const TIME: Duration = Duration::from_secs(20);

/// At most `bytes` of the text of a PDF, and whether there is more. An error says why there is none.
pub(super) async fn text(reader: &Spawn, pdf: &[u8], bytes: usize) -> Result<(String, bool), String> {
    let file = written(pdf).map_err(|error| format!("it can't be kept for its reader: {error}"))?;
    // Half of what is kept is the beginning.
    let reader = reader.clone().arg(file.path()).arg("-").deadline(TIME).keep(bytes.saturating_mul(2));
    let ended = reader.run().await.map_err(|error| error.to_string())?;
    match (ended.how, ended.code) {
        (How::Exited, Some(0)) => {}
        (How::TimedOut, _) => return Err(format!("its reader took more than {} s", TIME.as_secs())),
        _ => return Err("its reader failed".to_owned()),
    }
    let whole = ended.stdout.dropped() == 0;
    let text = if whole { ended.stdout.text() } else { String::from_utf8_lossy(ended.stdout.head()).into_owned() };
    // A page's end, as readers write it.
    Ok((text.replace('\x0c', "\n").trim_end().to_owned(), !whole))
}

fn written(pdf: &[u8]) -> std::io::Result<tempfile::NamedTempFile> {
    let mut file = tempfile::Builder::new().prefix("toolwright-").suffix(".pdf").tempfile()?;
    file.write_all(pdf)?;
    file.flush()?;
    Ok(file)
}
