//! The way out of a sandbox: which hosts are reached, with which credentials, and that nothing else is. The programs in the sandbox are
//! this one, started with what to ask for.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::print_stdout, reason = "tests")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use toolwright_host::net::NetMap;
use toolwright_host::process::{Environment, Spawn};
use toolwright_host::sandbox::{Broker, BrokerBuilder, LinuxSandbox, Sandbox, Served, support};

const SECRET: &str = "Bearer the-real-key";

/// A server that answers every request with its name, and writes down what it was asked.
#[derive(Clone)]
struct Server {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start(name: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self { address: listener.local_addr().unwrap(), seen: Arc::default() };
        let seen = Arc::clone(&server.seen);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, seen) = (stream.unwrap(), Arc::clone(&seen));
                std::thread::spawn(move || answer(&mut stream, name, &seen));
            }
        });
        server
    }

    /// The same behind TLS, with a certificate for `host`; the certificate comes with it.
    fn secure(name: &'static str, host: &str) -> (Self, String) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new([host.to_owned()]).unwrap().self_signed(&key).unwrap();
        let chain = vec![certificate.der().clone()];
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_no_client_auth().with_single_cert(chain, PrivateKeyDer::Pkcs8(key.serialize_der().into())).unwrap();
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self { address: listener.local_addr().unwrap(), seen: Arc::default() };
        let seen = Arc::clone(&server.seen);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, seen, config) = (stream.unwrap(), Arc::clone(&seen), Arc::clone(&config));
                std::thread::spawn(move || {
                    let tls = rustls::ServerConnection::new(config).unwrap();
                    answer(&mut rustls::StreamOwned::new(tls, stream), name, &seen);
                });
            }
        });
        (server, certificate.pem())
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

fn answer(stream: &mut (impl std::io::Read + std::io::Write), name: &str, seen: &Mutex<Vec<String>>) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).unwrap_or(0) == 0 {
            return;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let redirects = head.contains(" /redirect ");
    seen.lock().unwrap().push(head);
    let body = format!("this is {name}");
    let line = if redirects { "302 Found\r\nlocation: http://other.example/" } else { "200 OK" };
    let _ = write!(stream, "HTTP/1.1 {line}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
    let _ = stream.flush();
}

/// Says something to the proxy, then, where there is more to say, the rest once it has answered; and reads to the end.
#[expect(clippy::disallowed_methods, reason = "this is the client of the proxy")]
fn ask(proxy: &str, first: &str, then: Option<&str>) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(proxy.trim_start_matches("http://"))?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    stream.write_all(first.as_bytes())?;
    let mut text = Vec::new();
    if let Some(then) = then {
        let mut byte = [0];
        while !text.ends_with(b"\r\n\r\n") && stream.read(&mut byte)? > 0 {
            text.push(byte[0]);
        }
        stream.write_all(then.as_bytes())?;
    }
    if let Err(error) = stream.read_to_end(&mut text) {
        return Err(std::io::Error::other(format!("{error} after {:?}", String::from_utf8_lossy(&text))));
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn get(url: &str) -> String {
    format!(
        "GET {url} HTTP/1.1\r\nhost: wrong.example\r\nauthorization: Bearer placeholder\r\nconnection: close, x-hop\r\nx-hop: 1\r\nx-kept: 2\r\nproxy-authorization: p\r\n\r\n"
    )
}

/// Not a test by itself: what a test starts this program for.
#[test]
fn asking() {
    let Ok(first) = std::env::var("ASK") else { return };
    let proxy = std::env::var("HTTP_PROXY").unwrap();
    let direct = std::env::var("DIRECT").unwrap();
    let then = std::env::var("ASK_THEN").ok();
    println!("\nANSWER {:?}", ask(&proxy, &first, then.as_deref()));
    println!("DIRECT {:?}", ask(&direct, "GET / HTTP/1.0\r\n\r\n", None).is_ok());
    println!("SECRET {}", std::env::vars().any(|(_, value)| value.contains("the-real-key")));
}

struct World {
    api: Server,
    other: Server,
    secure: Server,
    builder: BrokerBuilder,
}

fn world() -> World {
    let (api, other) = (Server::start("api"), Server::start("other"));
    let (secure, pem) = Server::secure("secure", "secure.example");
    let map = NetMap::new().map("api.example", api.address).unwrap().map("other.example", other.address).unwrap();
    let map = map.map("secure.example", secure.address).unwrap().trust(pem.as_bytes()).unwrap();
    let builder = Broker::builder()
        .net_map(map)
        .header("api.example", "Authorization", SECRET)
        .header_with("secure.example", "Authorization", |request| (request.path != "/public").then(|| SECRET.to_owned()))
        .allow(["plain.example"]);
    World { api, other, secure, builder }
}

async fn asked(served: &Served, first: &str, then: Option<&str>) -> String {
    let (proxy, first, then) = (served.url(), first.to_owned(), then.map(str::to_owned));
    tokio::task::spawn_blocking(move || ask(&proxy, &first, then.as_deref()).unwrap()).await.unwrap()
}

// rule: sdk-tools 26.3/2
// rule: sdk-tools 26.3/4
#[tokio::test(flavor = "multi_thread")]
async fn a_request_gets_the_credential_of_its_host() {
    let world = world();
    let served = world.builder.build().unwrap().listen().await.unwrap();
    let answer = asked(&served, &get("http://api.example/v1/x?y=z"), None).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("this is api"), "{answer}");
    let seen = world.api.seen().remove(0).to_ascii_lowercase();
    assert!(seen.starts_with("get /v1/x?y=z http/1.1\r\n") && seen.contains("host: api.example\r\n"), "{seen}");
    assert!(seen.contains("authorization: bearer the-real-key\r\n") && !seen.contains("placeholder"), "{seen}");
    assert!(seen.contains("x-kept: 2") && !seen.contains("x-hop") && !seen.contains("proxy-authorization"), "{seen}");
    let redirect = asked(&served, &get("http://api.example/redirect"), None).await;
    assert!(redirect.starts_with("HTTP/1.1 302") && redirect.contains("http://other.example/"), "{redirect}");
    let refused = asked(&served, &get("http://other.example/"), None).await;
    assert!(refused.starts_with("HTTP/1.1 403") && refused.contains("other.example is none of the hosts that are allowed"), "{refused}");
    assert_eq!(world.other.seen(), [""; 0], "who is not allowed is not asked");
    assert!(!answer.contains("the-real-key") && !refused.contains("the-real-key"));
}

// rule: sdk-tools 26.3/5
#[tokio::test(flavor = "multi_thread")]
async fn a_path_with_a_host_goes_on_by_https_and_a_tunnel_as_it_is() {
    let world = world();
    let map = NetMap::new().map("tunnel.example", world.other.address).unwrap();
    let served = world.builder.build().unwrap().listen().await.unwrap();
    let path = served.base_url("secure.example").split_once(&served.url()).unwrap().1.to_owned();
    let answer = asked(&served, &get(&format!("{path}/v1/x")), None).await;
    assert!(answer.ends_with("this is secure"), "{answer}");
    let seen = world.secure.seen().remove(0).to_ascii_lowercase();
    assert!(seen.starts_with("get /v1/x ") && seen.contains("authorization: bearer the-real-key"), "{seen}");
    let public = asked(&served, &get(&format!("{path}/public")), None).await;
    assert!(public.ends_with("this is secure") && !world.secure.seen().remove(1).to_ascii_lowercase().contains("authorization"));
    for odd in ["/other.example/x", "//api.example/x", "/a@secure.example/x", "/secure.example@other.example/", "/", "/%2e%2e/x", "*"] {
        let answer = asked(&served, &get(odd), None).await;
        assert!(answer.starts_with("HTTP/1.1 4"), "{odd}: {answer}");
    }
    let tunnels = Broker::builder().net_map(map).header("tunnel.example", "authorization", SECRET).build().unwrap().listen().await.unwrap();
    let connect = |place: &str| format!("CONNECT {place} HTTP/1.1\r\nhost: {place}\r\n\r\n");
    let through = asked(&tunnels, &connect("tunnel.example:443"), Some("GET /inside HTTP/1.0\r\n\r\n")).await;
    assert!(through.starts_with("HTTP/1.1 200") && through.ends_with("this is other"), "{through}");
    assert_eq!(world.other.seen(), ["GET /inside HTTP/1.0\r\n\r\n"], "nothing is put into a tunnel");
    for refused in ["other.example:443", "127.0.0.1:443", "tunnel.example.evil.example:443"] {
        let answer = asked(&tunnels, &connect(refused), None).await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{refused}: {answer}");
    }
}

// rule: sdk-tools 26.3/3
#[tokio::test(flavor = "multi_thread")]
async fn an_allowed_host_inside_is_refused_unless_it_is_named() {
    let inside = Server::start("inside");
    let url = format!("http://127.0.0.1:{}/", inside.address.port());
    let served = Broker::builder().allow(["127.0.0.1"]).build().unwrap().listen().await.unwrap();
    let answer = asked(&served, &get(&url), None).await;
    assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("not public"), "{answer}");
    let place = format!("127.0.0.1:{}", inside.address.port());
    let tunnel = asked(&served, &format!("CONNECT {place} HTTP/1.1\r\nhost: {place}\r\n\r\n"), None).await;
    assert!(tunnel.starts_with("HTTP/1.1 403"), "{tunnel}");
    let named = Broker::builder().allow(["127.0.0.1"]).allow_private(["127.0.0.1"]).build().unwrap().listen().await.unwrap();
    assert!(asked(&named, &get(&url), None).await.ends_with("this is inside"));
}

// rule: sdk-tools 26.3/1
#[tokio::test(flavor = "multi_thread")]
async fn dropping_it_closes_everything() {
    let world = world();
    let served = world.builder.build().unwrap().listen().await.unwrap();
    assert!(served.url().starts_with("http://127.0.0.1:"));
    assert_eq!(served.env()["https_proxy"], served.url());
    let (proxy, address) = (served.url(), served.url().trim_start_matches("http://").parse::<SocketAddr>().unwrap());
    #[expect(clippy::disallowed_methods, reason = "this is the client of the proxy")]
    let mut idle = TcpStream::connect(address).unwrap();
    assert!(asked(&served, &get("http://api.example/"), None).await.ends_with("this is api"));
    drop(served);
    let over = tokio::task::spawn_blocking(move || idle.read(&mut [0]).unwrap_or(0)).await.unwrap();
    assert_eq!(over, 0, "an open connection is closed");
    let mut again = 0;
    while ask(&proxy, &get("http://api.example/"), None).is_ok_and(|answer| !answer.is_empty()) {
        again += 1;
        assert!(again < 1000);
    }
}

// rule: sdk-tools 26.3/6
#[tokio::test(flavor = "multi_thread")]
async fn a_confined_program_reaches_what_is_allowed_and_nothing_else() {
    let world = world();
    let workspace = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let exe = std::env::current_exe().unwrap();
    let builder = LinuxSandbox::of_workspace(workspace.path()).read(&exe);
    let broker = world.builder.build().unwrap();
    let sandbox = match builder.egress(&broker).build() {
        Ok(sandbox) => sandbox,
        Err(error) => {
            assert!(support().namespaces.is_err(), "{error}");
            assert_eq!(error.code(), "TOOLWRIGHT_SANDBOX_EGRESS_UNSUPPORTED");
            println!("not shown here: {error}");
            return;
        }
    };
    assert!(sandbox.tells().iter().any(|line| line.contains("api.example") && line.contains("no other host")), "{:?}", sandbox.tells());
    let base = sandbox.served().unwrap().base_url("secure.example");
    let sandbox: Arc<dyn Sandbox> = Arc::new(sandbox);
    let run = async |first: &str, then: Option<&str>| {
        let mut environment = Environment::scrubbed().set("ASK", first).set("DIRECT", world.other.address.to_string());
        if let Some(then) = then {
            environment = environment.set("ASK_THEN", then);
        }
        let ended = Spawn::new(&exe)
            .arg("asking")
            .arg("--exact")
            .arg("--nocapture")
            .environment(environment)
            .dir(workspace.path())
            .sandbox(Arc::clone(&sandbox))
            .deadline(Duration::from_secs(60))
            .run()
            .await
            .unwrap();
        let said = ended.stdout.text();
        assert!(said.contains("DIRECT false") && said.contains("SECRET false"), "{said}{}", ended.stderr.text());
        said
    };
    let allowed = run(&get("http://api.example/"), None).await;
    assert!(allowed.contains("this is api"), "{allowed}");
    assert!(world.api.seen().remove(0).contains(SECRET));
    let path = format!("/{}", base.rsplit_once('/').unwrap().1);
    assert!(run(&get(&path), None).await.contains("this is secure"));
    let refused = run(&get("http://other.example/"), None).await;
    assert!(refused.contains("403 Forbidden"), "{refused}");
    let metadata = run(&get("http://169.254.169.254/"), None).await;
    assert!(metadata.contains("403 Forbidden"), "{metadata}");
    let tunnel = run("CONNECT api.example:80 HTTP/1.1\r\nhost: api.example\r\n\r\n", Some("GET /t HTTP/1.0\r\n\r\n")).await;
    assert!(tunnel.contains("this is api"), "{tunnel}");
    assert_eq!(world.other.seen(), [""; 0]);
}
