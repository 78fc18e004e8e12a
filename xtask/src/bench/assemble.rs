//! How fast a recorded stream becomes items.

use std::fmt::Write as _;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use super::{Measured, median};

/// Bytes a second through decoder and assembler, of a reply like those recorded: text in small pieces and one call.
pub(super) fn recorded() -> Result<Measured> {
    let body = recorded_like();
    let megabytes = body.len() as f64 / 1e6;
    let mut rates = Vec::new();
    for _ in 0..15 {
        let mut events = 0u64;
        let began = Instant::now();
        // As a socket gives it.
        let reply = toolwright_models::assemble_bytes("bench", body.as_bytes().chunks(16 * 1024), |_| events += 1)
            .context("the recorded stream does not assemble")?;
        rates.push(megabytes / began.elapsed().as_secs_f64());
        ensure!(reply.items.len() == 2 && events > 1000, "the stream gave {} items and {events} events", reply.items.len());
    }
    Ok(vec![("assemble", median(rates).context("nothing was measured")?)])
}

/// A chat stream of the usual shape: every chunk repeats its envelope around a few characters.
fn recorded_like() -> String {
    let mut body = String::new();
    let mut chunk = |delta: &str, finish: &str| {
        let _ = write!(
            body,
            "data: {{\"id\":\"chatcmpl-Bk2vS0aYtq1\",\"object\":\"chat.completion.chunk\",\"created\":1780000000,\"model\":\"gpt-5-mini-2026-01\",\
             \"service_tier\":\"default\",\"system_fingerprint\":\"fp_0f1e2d3c4b\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"logprobs\":null,\
             \"finish_reason\":{finish}}}],\"usage\":null,\"obfuscation\":\"x8Kq2\"}}\n\n"
        );
    };
    chunk(r#"{"role":"assistant","content":"","refusal":null}"#, "null");
    for n in 0..20_000u32 {
        chunk(&format!(r#"{{"content":" word{}"}}"#, n % 97), "null");
    }
    chunk(r#"{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"order_line","arguments":""}}]}"#, "null");
    for piece in [r#"{\"article\":"#, r#"\"A-1\","#, r#"\"count\":3}"#] {
        chunk(&format!(r#"{{"tool_calls":[{{"index":0,"function":{{"arguments":"{piece}"}}}}]}}"#), "null");
    }
    chunk("{}", "\"tool_calls\"");
    body.push_str("data: [DONE]\n\n");
    body
}
