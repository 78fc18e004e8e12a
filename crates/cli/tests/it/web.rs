//! `--net-map`: a server of one's own stands in for a site outside.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};

use crate::support::Home;
use crate::support::server::{Reply, Server};

/// A site with one page, for one request.
fn site() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap()).lines();
        assert!(lines.map_while(Result::ok).take_while(|line| !line.is_empty()).any(|line| line == "host: news.example"));
        let page = "<h1>News</h1><p>It rains.";
        let mut stream = stream;
        write!(stream, "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\n\r\n{page}", page.len()).unwrap();
    });
    address
}

#[test]
fn a_server_stands_in_and_that_is_said() {
    let home = Home::new();
    let address = site();
    let map = home.file("map", &format!("news.example {address}\n"));
    let calls = Reply::Calls(&[("web_fetch", r#"{"url":"http://news.example/"}"#)]);
    let inward = Reply::Calls(&[("web_fetch", r#"{"url":"http://169.254.169.254/"}"#)]);
    let server = Server::new(vec![calls, inward, Reply::Text(&["It rains."])]);
    let ended = home.run_with(&["run", "What is new?", "--net-map", &map], &server.env(), "");
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "It rains.\n"), "{}", ended.err);
    let said = format!(
        "warning: with the net map {map}, these hosts are reached elsewhere, and nothing checks where:\n  news.example -> {address}\n"
    );
    assert!(ended.err.starts_with(&said), "{}", ended.err);
    assert!(ended.err.contains(r"# News\n\nIt rains."), "{}", ended.err);
    assert!(ended.err.contains("✗ web_fetch GuardError: 169.254.169.254 is not public"), "{}", ended.err);
}

#[test]
fn a_map_that_can_not_be_read_is_bad_usage() {
    let home = Home::new();
    let map = home.file("map", "news.example nowhere\n");
    let ended = home.run(&["run", "What is new?", "--model", "openai/x", "--net-map", &map]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.err.starts_with("error: line 1 of the net map is wrong: `nowhere` is no address and port; "), "{}", ended.err);
}
