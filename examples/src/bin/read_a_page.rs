//! An agent reads a page, and a page that tries to lead it elsewhere gets nowhere. The site is a server in this program that stands in
//! for `news.example`; the guard is what a real site would meet.
#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use toolwright::builtin::WebFetch;
use toolwright::models::scripted::{Reply, ScriptedModel};
use toolwright::net::NetMap;
use toolwright::prelude::*;

const PAGE: &str = "<title>News</title><script>track()</script>\
    <h1>Rain &amp; wind</h1><p>It rains until <a href=\"/tuesday\">Tuesday</a>.</p>";

/// A site with one page; everything else on it redirects to an address that no page should lead to.
async fn site(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let mut request = [0; 1024];
        let read = stream.read(&mut request).await.unwrap_or(0);
        let response = if request.get(..read).is_some_and(|request| request.starts_with(b"GET /weather ")) {
            format!("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{PAGE}", PAGE.len())
        } else {
            let there = "http://169.254.169.254/latest/meta-data/";
            format!("HTTP/1.1 302 Found\r\nlocation: {there}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        };
        // Whoever asked may be gone.
        let _ = stream.write_all(response.as_bytes()).await;
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let map = NetMap::new().map("news.example", listener.local_addr()?)?;
    tokio::spawn(site(listener));

    let model = ScriptedModel::new()
        .reply(Reply::call("web_fetch", toolwright::json!({ "url": "http://news.example/weather" })))
        .reply(Reply::call("web_fetch", toolwright::json!({ "url": "http://news.example/more" })))
        .reply(Reply::text("It rains until Tuesday. The other page was refused."));
    let agent = Agent::builder().model(model).tool(WebFetch::new().net_map(map).tool()?).build()?;
    let reply = agent.send("What is the weather?").await?;
    for result in reply.messages.iter().flat_map(|message| message.results()) {
        println!("{}\n", result.text());
    }
    println!("{}", reply.text);
    Ok(())
}
