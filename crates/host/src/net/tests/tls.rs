//! Secure connections, with certificates of our own.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;

use super::server::{Server, reply};
use super::*;

/// A root as PEM, and a server's configuration with a certificate for these names.
fn certified(names: &[&str]) -> (String, ServerConfig) {
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let root = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    let own_key = KeyPair::generate().unwrap();
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let own = CertificateParams::new(names).unwrap().signed_by(&own_key, &issuer).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![own.der().clone()], PrivateKeyDer::try_from(own_key.serialize_der()).unwrap())
        .unwrap();
    (root.pem(), config)
}

// case: field-reports 91
// rule: sdk-tools 9.3/2
#[tokio::test]
async fn the_name_stays_in_the_handshake_and_in_the_request() {
    let (root, config) = certified(&["secure.example", "93.184.216.34"]);
    let (server, names) = Server::start_secure(config, |_| reply("200 OK", "safe")).await;
    let client = GuardedClient::builder()
        .resolver(Names::all(&["93.184.216.34"]))
        .dial(Noted::leading_to(server.address))
        .extra_roots(root)
        .build()
        .unwrap();
    assert_eq!(text_of(client.get("https://secure.example/").await.unwrap()).await, "safe");
    assert_eq!(text_of(client.get("https://secure.example./").await.unwrap()).await, "safe");
    assert_eq!(text_of(client.get("https://93.184.216.34/").await.unwrap()).await, "safe");
    assert_eq!(*names.lock().unwrap(), [Some("secure.example".to_owned()), Some("secure.example".to_owned()), None]);
    let hosts: Vec<_> = server.seen().iter().map(|seen| seen.header("host").unwrap().to_owned()).collect();
    assert_eq!(hosts, ["secure.example", "secure.example.", "93.184.216.34"]);
}

#[tokio::test]
async fn a_map_may_name_roots() {
    let (root, config) = certified(&["secure.example"]);
    let (server, _) = Server::start_secure(config, |_| reply("200 OK", "safe")).await;
    let folder = std::env::temp_dir().join(format!("toolwright-net-map-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("ca.pem"), root).unwrap();
    std::fs::write(folder.join("map"), format!("secure.example {}\nroots: ca.pem\n", server.address)).unwrap();
    let map = NetMap::read(&folder.join("map")).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(map.to_string(), format!("secure.example -> {}\ntrusted besides the machine's own roots: 1", server.address));
    let client = GuardedClient::builder().net_map(map).build().unwrap();
    assert_eq!(text_of(client.get("https://secure.example/").await.unwrap()).await, "safe");
}

#[tokio::test]
async fn certificates_that_do_not_fit_are_refused() {
    let (root, config) = certified(&["secure.example"]);
    let (server, _) = Server::start_secure(config, |_| reply("200 OK", "safe")).await;
    let hosts = [("secure.example", server.address), ("other.example", server.address)];
    let stranger = mapped(&hosts).extra_roots(certified(&["x.example"]).0).build().unwrap();
    let error = stranger.get("https://secure.example/").await.unwrap_err();
    assert!(error.to_string().starts_with("no secure connection to secure.example: invalid peer certificate"), "{error}");
    let client = mapped(&hosts).extra_roots(root).build().unwrap();
    assert!(matches!(client.get("https://other.example/").await, Err(GuardError::Tls { .. })));
    assert!(server.seen().is_empty());
    assert!(GuardedClient::builder().extra_roots("no pem").build().is_err());
}
