//! What the guard costs a request, and how fast and how well pages become text.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures_util::future::BoxFuture;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use toolwright_host::net::{Client, GuardedClient, Request, Resolver};
use toolwright_tools::{Links, main_text, page_text};

use super::{Measured, median};
use crate::repo;

/// Requests of each kind in one round.
const REQUESTS: u32 = 100;

/// Microseconds that a request on loopback takes longer through the guard than without it, each over a connection of its own, so that
/// each is looked up, checked and connected: the median of rounds in which both take turns.
pub(super) fn guard() -> Result<Measured> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        tokio::spawn(serve(listener));
        let plain = Client::new(Duration::from_secs(10));
        let guarded = GuardedClient::builder().resolver(Loopback).allow_private(["bench.example"]).build()?;
        let url = format!("http://127.0.0.1:{port}/");
        let guarded_url = format!("http://bench.example:{port}/");
        let mut added = Vec::new();
        for round in 0..31 {
            let began = Instant::now();
            for _ in 0..REQUESTS {
                let request = Request { method: "GET".to_owned(), url: url.clone(), headers: Vec::new(), body: Vec::new().into() };
                let response = plain.send(request).await?;
                let body: Vec<_> = futures_util::StreamExt::collect(response.body).await;
                ensure!(response.status == 200 && !body.is_empty(), "the request without the guard failed");
            }
            let without = began.elapsed();
            let began = Instant::now();
            for _ in 0..REQUESTS {
                let response = guarded.get(&guarded_url).await?;
                ensure!(response.status == 200, "the guarded request failed");
                ensure!(response.body.read().await?.bytes == b"hello", "the guarded request lost its body");
            }
            let with = began.elapsed();
            // The first round sets both clients up.
            if round > 0 {
                added.push((with.as_secs_f64() - without.as_secs_f64()) * 1e6 / f64::from(REQUESTS));
            }
        }
        Ok(vec![("net", median(added).context("nothing was measured")?)])
    })
}

/// Every name is this machine.
struct Loopback;

impl fmt::Debug for Loopback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Loopback")
    }
}

impl Resolver for Loopback {
    fn resolve<'a>(&'a self, _name: &'a str) -> BoxFuture<'a, std::io::Result<Vec<IpAddr>>> {
        Box::pin(async { Ok(vec![IpAddr::from([127, 0, 0, 1])]) })
    }
}

async fn serve(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                match stream.read_buf(&mut request).await {
                    Ok(0) | Err(_) => return,
                    Ok(_) => {}
                }
            }
            // Whoever asked may be gone.
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello").await;
        });
    }
}

/// A page and its main content.
struct Page {
    source: String,
    expected: String,
}

const ADDRESS: &str = "http://fakehost/test/page.html";

/// The pages beside the checkout that come with their source; none where there are none.
fn pages() -> Result<Vec<Page>> {
    let folder: PathBuf = repo::root()?.join("../shared/fixtures/html");
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let folder = entry?.path();
        if let Ok(source) = std::fs::read_to_string(folder.join("source.html")) {
            pages.push(Page { source, expected: std::fs::read_to_string(folder.join("expected.html"))? });
        }
    }
    Ok(pages)
}

/// Markup to whole-page text, and how well main content is found: the mean over all pages. Not a number where there are no pages.
pub(super) fn html() -> Result<Measured> {
    let pages = pages()?;
    if pages.is_empty() {
        return Ok(vec![("html.speed", f64::NAN), ("html.f1", f64::NAN)]);
    }
    let bytes: usize = pages.iter().map(|page| page.source.len()).sum();
    let mut rates = Vec::new();
    for _ in 0..9 {
        let began = Instant::now();
        let text: usize = pages.iter().map(|page| page_text(&page.source, Some(ADDRESS), Links::Shown).len()).sum();
        rates.push(bytes as f64 / 1e6 / began.elapsed().as_secs_f64());
        ensure!(text > 10_000, "the pages gave {text} bytes of text");
    }
    let scores: Vec<f64> = pages.iter().map(score).collect();
    let mean = scores.iter().sum::<f64>() / scores.len() as f64;
    Ok(vec![("html.speed", median(rates).context("nothing was measured")?), ("html.f1", mean)])
}

/// F1 over words, each as often as it occurs.
fn score(page: &Page) -> f64 {
    let found = words(&main_text(&page.source, Some(ADDRESS), Links::Hidden).unwrap_or_default());
    let expected = words(&page_text(&page.expected, Some(ADDRESS), Links::Hidden));
    let both: usize = found.iter().map(|(word, count)| *count.min(expected.get(word).unwrap_or(&0))).sum();
    let all: usize = found.values().chain(expected.values()).sum();
    if all == 0 { 1.0 } else { 2.0 * both as f64 / all as f64 }
}

fn words(text: &str) -> HashMap<String, usize> {
    let mut words = HashMap::new();
    for word in text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
        *words.entry(word.to_lowercase()).or_default() += 1;
    }
    words
}
