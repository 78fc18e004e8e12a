//! The guarded client over real sockets.

#![allow(clippy::disallowed_methods, reason = "tests connect to servers of their own")]
#![allow(clippy::items_after_statements, reason = "a test has its own resolver or dialler beside what it is for")]

mod bodies;
mod redirects;
mod server;
mod ssrf;
mod tls;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::net::TcpStream;

use super::connect::Dial;
use super::*;

/// The text of a file of the public data beside the checkout; `None` where it is absent, which is printed.
fn fixture(path: &str) -> Option<String> {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures").join(path);
    let text = std::fs::read_to_string(&file).ok();
    if text.is_none() {
        println!("skipped: there is no {path} beside this checkout");
    }
    text
}

fn strings(json: &str) -> Vec<String> {
    serde_json::from_str(json).unwrap()
}

type Answer = dyn Fn(&str, usize) -> std::io::Result<Vec<IpAddr>> + Send + Sync;

/// Answers by a function of the name and of how often it was asked, and keeps what it was asked.
#[derive(Clone)]
struct Names {
    answer: Arc<Answer>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl std::fmt::Debug for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Names").finish_non_exhaustive()
    }
}

impl Names {
    fn new(answer: impl Fn(&str, usize) -> std::io::Result<Vec<IpAddr>> + Send + Sync + 'static) -> Self {
        Self { answer: Arc::new(answer), asked: Arc::default() }
    }

    /// Every name has these addresses.
    fn all(addresses: &[&str]) -> Self {
        let addresses: Vec<IpAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
        Self::new(move |_, _| Ok(addresses.clone()))
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl Resolver for Names {
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, std::io::Result<Vec<IpAddr>>> {
        let nth = {
            let mut asked = self.asked.lock().unwrap();
            asked.push(name.to_owned());
            asked.len() - 1
        };
        let answer = (self.answer)(name, nth);
        async move { answer }.boxed()
    }
}

/// Notes which addresses are connected, and connects to a local server instead, or to nothing.
#[derive(Clone, Debug, Default)]
struct Noted {
    to: Option<std::net::SocketAddr>,
    dialled: Arc<Mutex<Vec<std::net::SocketAddr>>>,
    count: Arc<AtomicUsize>,
}

impl Noted {
    fn leading_to(to: std::net::SocketAddr) -> Self {
        Self { to: Some(to), ..Self::default() }
    }

    fn dialled(&self) -> Vec<std::net::SocketAddr> {
        self.dialled.lock().unwrap().clone()
    }
}

impl Dial for Noted {
    fn dial(&self, address: std::net::SocketAddr) -> BoxFuture<'static, std::io::Result<TcpStream>> {
        self.dialled.lock().unwrap().push(address);
        self.count.fetch_add(1, Ordering::SeqCst);
        let to = self.to;
        async move {
            match to {
                Some(to) => TcpStream::connect(to).await,
                None => Err(std::io::ErrorKind::ConnectionRefused.into()),
            }
        }
        .boxed()
    }
}

/// A client for which `name` is the server at `to`.
fn mapped(hosts: &[(&str, std::net::SocketAddr)]) -> GuardedClientBuilder {
    let map = hosts.iter().fold(NetMap::new(), |map, (host, to)| map.map(host, *to).unwrap());
    GuardedClient::builder().net_map(map)
}

async fn text_of(response: GuardedResponse) -> String {
    String::from_utf8(response.body.read().await.unwrap().bytes).unwrap()
}
