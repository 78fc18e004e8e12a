//! What may be reached, and what not.

use std::io;

use super::server::{Server, reply};
use super::*;

const PUBLIC: &str = "93.184.216.34";

/// A client for which every name is public, so that what is refused is refused for what the URL says.
fn public() -> GuardedClient {
    let names = Names::new(|name, _| Ok(vec![if name.ends_with("localhost") { "127.0.0.1" } else { PUBLIC }.parse().unwrap()]));
    GuardedClient::builder().resolver(names).build().unwrap()
}

fn has_scheme(url: &str) -> bool {
    url.contains("://") || Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https"))
}

// rule: sdk-tools 9.2/1
// rule: sdk-tools 9.3/1
// rule: sdk-tools 9.3/3
#[tokio::test]
async fn what_has_to_be_blocked_is() {
    let Some(text) = fixture("ssrf/must_block.json") else { return };
    let client = public();
    let urls = strings(&text);
    for url in &urls {
        let refused = client.resolve(url).await;
        assert!(refused.is_err(), "{url} leads to {refused:?}");
        if !has_scheme(url) {
            let refused = client.resolve(&format!("https://{url}")).await;
            assert!(refused.is_err(), "https://{url} leads to {refused:?}");
        }
    }
    println!("{} refused", urls.len());
    assert!(urls.len() > 200);
}

/// Their embedded address is public, but the form is one that we refuse, whatever is inside.
const REFUSED_FORMS: [&str; 4] =
    ["http://[::ffff:0:808:808]/", "http://[64:ff9b:1::8.8.8.8]/", "http://[64:ff9b:1::808:808]/", "http://[::8.8.8.8]/"];

#[tokio::test]
async fn what_has_to_pass_does() {
    let Some(text) = fixture("ssrf/must_pass.json") else { return };
    let client = public();
    let urls = strings(&text);
    for url in &urls {
        let whole = if has_scheme(url) { url.clone() } else { format!("https://{url}") };
        let found = client.resolve(&whole).await;
        if REFUSED_FORMS.contains(&url.as_str()) {
            assert!(matches!(found, Err(GuardError::Special { .. })), "{whole}: {found:?}");
        } else {
            assert!(found.is_ok(), "{whole}: {found:?}");
        }
    }
    println!("{} allowed, {} refused for their form", urls.len() - REFUSED_FORMS.len(), REFUSED_FORMS.len());
    assert!(REFUSED_FORMS.iter().all(|form| urls.iter().any(|url| url == form)));
}

#[tokio::test]
async fn public_literals_pass() {
    let Some(text) = fixture("ssrf/ip_literals.json") else { return };
    let client = public();
    let literals = strings(&text);
    for literal in &literals {
        let found = client.resolve(&format!("http://{literal}/")).await.unwrap();
        assert_eq!(found, [format!("{literal}:80").parse().unwrap()]);
    }
    println!("{} allowed", literals.len());
    assert!(literals.len() > 60);
}

// case: field-reports 97
#[tokio::test]
async fn the_host_that_is_checked_is_the_host_that_is_connected() {
    let Some(text) = fixture("url/urltestdata.json") else { return };
    let entries: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    let server = Server::start(|_| reply("200 OK", "")).await;
    let (mut sent, mut refused) = (0, 0);
    for entry in entries.iter().filter(|entry| entry.is_object()) {
        let base = entry["base"].as_str().and_then(|base| Url::parse(base).ok());
        let input = entry["input"].as_str().unwrap();
        let url = match (&base, entry["base"].is_null()) {
            (Some(base), _) => base.join(input).ok(),
            (None, true) => Url::parse(input).ok(),
            (None, false) => None,
        };
        let Some(mut url) = url.filter(|url| matches!(url.scheme(), "http" | "https")) else { continue };
        let names = Names::all(&[PUBLIC]);
        // Of a secure request it counts where it is connected.
        let secure = url.scheme() == "https";
        let dial = if secure { Noted::default() } else { Noted::leading_to(server.address) };
        let client = GuardedClient::builder().resolver(names.clone()).dial(dial.clone()).build().unwrap();
        if client.check(url.as_str()).is_err() {
            assert!(client.get(url.as_str()).await.is_err(), "{url}");
            assert!(names.asked().is_empty() && dial.dialled().is_empty(), "{url} went out although it is refused");
            refused += 1;
            continue;
        }
        let host = url.host_str().unwrap().trim_end_matches('.').trim_matches(['[', ']']).to_owned();
        let port = url.port_or_known_default().unwrap();
        let before = server.seen().len();
        let response = client.get(url.as_str()).await;
        let dialled = dial.dialled();
        assert_eq!(dialled.len(), 1, "{url}: {response:?}");
        assert_eq!(dialled[0].port(), port, "{url}");
        if let url::Host::Domain(_) = url.host().unwrap() {
            assert_eq!(names.asked(), [host.as_str()], "{url}");
            assert_eq!(dialled[0].ip().to_string(), PUBLIC, "{url}");
        } else {
            assert!(names.asked().is_empty(), "{url}");
            assert_eq!(dialled[0].ip().to_string(), host, "{url}");
        }
        if !secure {
            let response = response.unwrap();
            assert_eq!(response.status, 200, "{url}");
            let seen = server.seen().split_off(before);
            let asked = url.port().map_or_else(|| url.host_str().unwrap().to_owned(), |port| format!("{}:{port}", url.host_str().unwrap()));
            assert_eq!(seen[0].header("host"), Some(asked.as_str()), "{url}");
            url.set_fragment(None);
            let path = url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()));
            assert_eq!(seen[0].line, format!("GET {path} HTTP/1.1"));
        }
        sent += 1;
    }
    println!("{sent} sent to the host that was checked, {refused} refused");
    assert!(sent > 150 && refused > 10, "{sent} sent, {refused} refused");
}

// case: field-reports 91
// rule: sdk-tools 9.3/2
#[tokio::test]
async fn a_name_is_looked_up_once_and_the_checked_address_is_connected() {
    let server = Server::start(|_| reply("200 OK", "hello")).await;
    let names = Names::new(|_, nth| Ok(vec![if nth == 0 { PUBLIC } else { "127.0.0.1" }.parse().unwrap()]));
    let dial = Noted::leading_to(server.address);
    let client = GuardedClient::builder().resolver(names.clone()).dial(dial.clone()).build().unwrap();
    let response = client.get("http://rebind.example/").await.unwrap();
    assert_eq!(text_of(response).await, "hello");
    assert_eq!(names.asked(), ["rebind.example"]);
    assert_eq!(dial.dialled(), [format!("{PUBLIC}:80").parse().unwrap()]);
    assert_eq!(server.seen()[0].header("host"), Some("rebind.example"));
    // A second look-up, for a second connection, is checked for itself.
    let refused = client.get("http://rebind.example:8080/").await.unwrap_err();
    assert!(matches!(refused, GuardError::Special { .. }), "{refused}");
    assert_eq!(dial.dialled().len(), 1);
}

// rule: sdk-tools 9.3/2
#[tokio::test]
async fn one_private_address_refuses_the_name() {
    let dial = Noted::default();
    for addresses in [["93.184.216.34", "10.0.0.1"], ["127.0.0.1", "93.184.216.34"], ["93.184.216.34", "64:ff9b::a00:1"]] {
        let client = GuardedClient::builder().resolver(Names::all(&addresses)).dial(dial.clone()).build().unwrap();
        let refused = client.get("https://two.example/").await.unwrap_err();
        assert!(refused.is_refusal() && refused.to_string().starts_with("two.example leads to "), "{refused}");
    }
    assert!(dial.dialled().is_empty());
}

// case: field-reports 94
#[tokio::test]
async fn a_resolver_that_fails_lets_nothing_through() {
    let names = Names::new(|_, nth| if nth == 0 { Err(io::Error::other("no answer")) } else { Ok(vec!["127.0.0.1".parse().unwrap()]) });
    let dial = Noted::default();
    let client = GuardedClient::builder().resolver(names).dial(dial.clone()).build().unwrap();
    let error = client.get("http://flaky.example/").await.unwrap_err();
    assert_eq!(error.to_string(), "the address of flaky.example is not known: no answer; check the name");
    assert!(client.get("http://flaky.example/").await.unwrap_err().is_refusal());
    let nobody = GuardedClient::builder().resolver(Names::all(&[])).dial(dial.clone()).build().unwrap();
    assert!(matches!(nobody.get("http://nobody.example/").await, Err(GuardError::Unknown { .. })));
    assert!(dial.dialled().is_empty());
}

// case: field-reports 89
#[tokio::test]
async fn what_cannot_be_classified_is_refused() {
    let dial = Noted::default();
    let client = GuardedClient::builder().resolver(Names::all(&[PUBLIC])).dial(dial.clone()).build().unwrap();
    for url in [
        "http://[::ffff:127.0.0.1]:6666/",
        "http://[::ffff:127.0.0.1]:8080/",
        "http://[fe80::1%25eth0]/",
        "http://[fe80::1%eth0]/",
        "http://1.2.3.4.5/",
        "http://0x7f.1/",
        "http://exa!mple.com/",
        "http://example.com\\@localhost/",
        "http:\\\\example.com/",
        "http:///",
        "/relative",
        "",
    ] {
        assert!(client.get(url).await.is_err(), "{url}");
    }
    assert!(dial.dialled().is_empty());
}

// rule: sdk-tools 9.3/5
#[tokio::test]
async fn hosts_may_be_private_by_name() {
    let server = Server::start(|_| reply("200 OK", "inside")).await;
    let names = Names::all(&["127.0.0.1"]);
    let client = GuardedClient::builder().resolver(names).allow_private(["wiki.corp", "*.lab.corp", "127.0.0.1"]).build().unwrap();
    let port = server.address.port();
    for host in ["wiki.corp", "a.lab.corp", "127.0.0.1"] {
        assert_eq!(text_of(client.get(&format!("http://{host}:{port}/")).await.unwrap()).await, "inside", "{host}");
    }
    for host in ["lab.corp", "other.corp", "x.wiki.corp", "localhost", "[::1]"] {
        assert!(client.get(&format!("http://{host}:{port}/")).await.unwrap_err().is_refusal(), "{host}");
    }
}

#[tokio::test]
async fn hosts_are_allowed_and_blocked_before_they_are_looked_up() {
    let names = Names::all(&[PUBLIC]);
    let client = GuardedClient::builder()
        .resolver(names.clone())
        .dial(Noted::default())
        .allowed_hosts(["example.com", "*.example.com"])
        .blocked_hosts(["bad.example.com"])
        .build()
        .unwrap();
    assert!(matches!(client.get("https://example.org/").await, Err(GuardError::NotAllowed { .. })));
    assert!(matches!(client.get("https://bad.example.com./").await, Err(GuardError::Blocked { .. })));
    assert!(names.asked().is_empty());
    assert!(matches!(client.get("https://good.example.com/").await, Err(GuardError::Connect { .. })));
    assert_eq!(names.asked(), ["good.example.com"]);
}

#[tokio::test]
async fn ports_of_other_protocols_are_refused() {
    let client = public();
    for port in [22, 25, 6667] {
        let refused = client.resolve(&format!("http://example.com:{port}/")).await.unwrap_err();
        assert!(matches!(refused, GuardError::Port { .. }), "{refused}");
    }
    assert!(client.resolve("http://example.com:8080/").await.is_ok());
}

#[tokio::test]
async fn the_second_address_is_tried_when_the_first_does_not_answer() {
    #[derive(Debug)]
    struct FirstHangs(std::net::SocketAddr);
    impl Dial for FirstHangs {
        fn dial(&self, address: std::net::SocketAddr) -> BoxFuture<'static, io::Result<TcpStream>> {
            let to = self.0;
            match address.ip().to_string().as_str() {
                PUBLIC => std::future::pending().boxed(),
                "1.1.1.1" => async { Err(io::ErrorKind::ConnectionRefused.into()) }.boxed(),
                _ => async move { TcpStream::connect(to).await }.boxed(),
            }
        }
    }
    let server = Server::start(|_| reply("200 OK", "second")).await;
    let names = Names::all(&[PUBLIC, "1.1.1.1", "8.8.8.8"]);
    let client = GuardedClient::builder().resolver(names).dial(FirstHangs(server.address)).build().unwrap();
    assert_eq!(text_of(client.get("http://three.example/").await.unwrap()).await, "second");
}
