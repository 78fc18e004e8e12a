//! Redirects over real sockets.

use bytes::Bytes;

use super::server::{Server, reply};
use super::*;

fn to(location: &str) -> String {
    format!("302 Found\r\nlocation: {location}")
}

fn request(method: &str, url: &str, headers: Vec<Header>, body: &'static str) -> Request {
    Request { method: method.to_owned(), url: url.to_owned(), headers, body: Bytes::from_static(body.as_bytes()) }
}

// case: field-reports 92
// rule: sdk-tools 9.3/4
#[tokio::test]
async fn each_hop_is_checked_again() {
    let private = Server::start(|_| reply("200 OK", "secret")).await;
    let inner = private.url("/");
    for location in [
        inner.as_str(),
        "http://169.254.169.254/latest/meta-data/",
        "//localhost/",
        "http://[::ffff:127.0.0.1]/",
        "http://user:pass@elsewhere.example/",
        "file:///etc/passwd",
        "http://private.example/",
    ] {
        let (first, second) = (to("http://b.example/next"), to(location));
        let server = Server::start(move |seen| reply(if seen.line.contains("/next") { &second } else { &first }, "")).await;
        let map = NetMap::new().map("a.example", server.address).unwrap().map("b.example", server.address).unwrap();
        let client = GuardedClient::builder().net_map(map).resolver(Names::all(&["10.0.0.1"])).build().unwrap();
        let refused = client.get("http://a.example/").await.unwrap_err();
        assert!(refused.is_refusal() && matches!(refused, GuardError::Redirected { .. }), "{location}: {refused}");
        assert!(!refused.to_string().contains("pass@"), "{refused}");
        assert_eq!(server.seen().len(), 2, "{location}");
    }
    assert!(private.seen().is_empty());
}

#[tokio::test]
async fn credentials_stay_with_their_origin() {
    let other = Server::start(|_| reply("200 OK", "other")).await;
    let there = to("http://other.example/in");
    let first = Server::start(move |seen| match seen.line.as_str() {
        "GET /start HTTP/1.1" => reply(&to("/same"), ""),
        _ => reply(&there, ""),
    })
    .await;
    let client = mapped(&[("first.example", first.address), ("other.example", other.address)]).build().unwrap();
    let headers = vec![
        Header::secret("Authorization", "Bearer s3cret"),
        Header::plain("Cookie", "a=b"),
        Header::plain("X-Api-Key", "k"),
        Header::secret("Accept-Language", "s3cret"),
        Header::plain("Accept", "text/html"),
    ];
    let response = client.send(request("GET", "http://first.example/start", headers, "")).await.unwrap();
    assert_eq!(response.url.as_str(), "http://other.example/in");
    assert_eq!(text_of(response).await, "other");
    let same = first.seen();
    assert!(same.iter().all(|seen| seen.header("authorization") == Some("Bearer s3cret") && seen.header("cookie").is_some()), "{same:?}");
    let seen = &other.seen()[0];
    assert!(!format!("{:?}", seen.headers).contains("s3cret"), "{seen:?}");
    assert_eq!((seen.header("cookie"), seen.header("x-api-key"), seen.header("accept")), (None, None, Some("text/html")));
}

#[tokio::test]
async fn another_port_or_scheme_is_another_origin() {
    let server = Server::start(|seen| match seen.line.as_str() {
        "GET / HTTP/1.1" => reply(&to("http://a.example:8080/next"), ""),
        _ => reply("200 OK", "x"),
    })
    .await;
    let client = mapped(&[("a.example", server.address)]).build().unwrap();
    client.send(request("GET", "http://a.example/", vec![Header::plain("cookie", "a=b")], "")).await.unwrap();
    let seen = server.seen();
    assert_eq!((seen[0].header("cookie"), seen[1].header("cookie")), (Some("a=b"), None));
    assert_eq!(seen[1].header("host"), Some("a.example:8080"));
}

#[tokio::test]
async fn redirects_are_counted() {
    let server = Server::start(|_| reply(&to("/again"), "")).await;
    let client = mapped(&[("loop.example", server.address)]).build().unwrap();
    let error = client.get("http://loop.example/").await.unwrap_err();
    assert_eq!(error.to_string(), "loop.example redirects more than 10 times; ask for the page it ends at");
    assert_eq!(server.seen().len(), 11);
    let none = mapped(&[("loop.example", server.address)]).max_redirects(0).build().unwrap();
    assert_eq!(none.get("http://loop.example/").await.unwrap().status, 302);
}

#[tokio::test]
async fn methods_and_bodies_follow_the_rules_of_http() {
    for (status, method, becomes) in [
        ("301", "POST", "GET"),
        ("302", "POST", "GET"),
        ("303", "POST", "GET"),
        ("303", "PUT", "GET"),
        ("303", "HEAD", "HEAD"),
        ("307", "POST", "POST"),
        ("308", "PUT", "PUT"),
        ("302", "PUT", "PUT"),
    ] {
        let head = format!("{status} X\r\nlocation: /next");
        let server = Server::start(move |seen| if seen.line.contains("/next") { reply("204 No", "") } else { reply(&head, "") }).await;
        let client = mapped(&[("a.example", server.address)]).build().unwrap();
        let body = if method == "HEAD" { "" } else { "data" };
        let headers = vec![Header::plain("content-type", "text/plain")];
        client.send(request(method, "http://a.example/", headers, body)).await.unwrap();
        let seen = server.seen();
        assert_eq!(seen[1].line, format!("{becomes} /next HTTP/1.1"), "{status} {method}");
        let keeps = becomes == method && !body.is_empty();
        assert_eq!(seen[1].body == b"data", keeps, "{status} {method}");
        assert_eq!(seen[1].header("content-type").is_some(), becomes == method, "{status} {method}");
    }
}

#[tokio::test]
async fn a_body_never_goes_to_another_origin() {
    let server = Server::start(|_| reply("307 X\r\nlocation: http://b.example/in", "")).await;
    let other = Server::start(|_| reply("200 OK", "")).await;
    let client = mapped(&[("a.example", server.address), ("b.example", other.address)]).build().unwrap();
    let response = client.send(request("POST", "http://a.example/", Vec::new(), "data")).await.unwrap();
    assert_eq!((response.status, response.header("location")), (307, Some("http://b.example/in")));
    assert!(other.seen().is_empty());
}

#[tokio::test]
async fn headers_of_the_connection_are_the_clients_own() {
    let client = GuardedClient::builder().build().unwrap();
    for name in ["Host", "Content-Length", "Transfer-Encoding", "Connection"] {
        let sent = client.send(request("GET", "http://a.example/", vec![Header::plain(name, "b.example")], "")).await;
        assert!(matches!(sent, Err(GuardError::Request { .. })), "{name}: {sent:?}");
    }
    let key = vec![Header::secret("x", "s3cret\r\ny: z")];
    let error = client.send(request("GET", "http://a.example/", key, "")).await.unwrap_err();
    assert!(!error.to_string().contains("s3cret"), "{error}");
    assert!(client.send(request("CONNECT", "http://a.example/", Vec::new(), "")).await.is_err());
    assert!(client.send(request("GET /x", "http://a.example/", Vec::new(), "")).await.is_err());
}
