//! Which server, and how it is reached: the address, TLS, and the name that errors give.

use std::fs::File;
use std::io::BufReader;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;
use toolwright_runtime::StoreError;

/// How an address is written; it ends the sentences that refuse one.
const FORM: &str = "write postgres://user:password@host:port/database, with odd characters of the password as %40 for @";

/// A connection that says nothing is probed after so long.
const PROBE_AFTER: Duration = Duration::from_secs(15);
/// The probes follow each other after so long.
const PROBE_EVERY: Duration = Duration::from_secs(5);
/// After so many probes without an answer the connection counts as lost.
const PROBES: u32 = 3;

/// A server, as an address names it.
pub(super) struct Address {
    pub(super) config: Config,
    pub(super) tls: MakeRustlsConnect,
    /// Server and database, without user and password.
    pub(super) name: String,
}

impl Address {
    /// Reads an address. No error shows any part of it but the names of options: a part that looks harmless may be a piece of
    /// a password with odd characters in it.
    pub(super) fn parse(url: &str, patience: Duration) -> Result<Self, StoreError> {
        let refuse = |problem: &str| StoreError::invalid(format!("the address of the PostgreSQL server {problem}; {FORM}"));
        if !(url.starts_with("postgres://") || url.starts_with("postgresql://")) {
            return Err(refuse("does not begin with postgres://"));
        }
        let options = Options::split(url).ok_or_else(|| refuse("has a part that is no %-encoded UTF-8"))?;
        let mut config: Config = options.url.parse().map_err(|error| refuse(&format!("can't be read: {}", causes(&error))))?;
        let odd = |host: &Host| matches!(host, Host::Tcp(host) if host.contains(['@', ':', '/', ' ']) && host.parse::<std::net::IpAddr>().is_err());
        if config.get_hosts().iter().any(odd) {
            return Err(refuse("has a host with characters that no host has"));
        }
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(refuse("names no host"));
        }
        let name = name_of(&config);
        if config.get_application_name().is_none() {
            config.application_name("toolwright");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(patience);
        }
        config.keepalives_idle(PROBE_AFTER).keepalives_interval(PROBE_EVERY).keepalives_retries(PROBES);
        let tls = tls(config.get_ssl_mode(), options.roots.as_deref())?;
        Ok(Self { config, tls, name })
    }
}

/// The options that we read ourselves, and the address without them.
struct Options {
    url: String,
    roots: Option<String>,
}

impl Options {
    fn split(url: &str) -> Option<Self> {
        let Some((base, query)) = url.split_once('?') else {
            return Some(Self { url: url.to_owned(), roots: None });
        };
        let mut roots = None;
        let mut others = Vec::new();
        for pair in query.split('&') {
            match pair.split_once('=') {
                Some(("sslrootcert", file)) => roots = Some(decoded(file)?),
                // What `require` means here, see `tls`.
                Some(("sslmode", "verify-ca" | "verify-full")) => others.push("sslmode=require"),
                _ => others.push(pair),
            }
        }
        let url = if others.is_empty() { base.to_owned() } else { format!("{base}?{}", others.join("&")) };
        Some(Self { url, roots })
    }
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let mut digit = || char::from(rest.next()?).to_digit(16);
            bytes.push(u8::try_from(digit()? * 16 + digit()?).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

fn name_of(config: &Config) -> String {
    let ports = config.get_ports();
    let port = |place: usize| ports.get(place).or_else(|| ports.first()).copied().unwrap_or(5432);
    let mut hosts: Vec<String> = (0..)
        .zip(config.get_hosts())
        .map(|(place, host)| match host {
            Host::Tcp(host) => format!("{host}:{}", port(place)),
            #[cfg(unix)]
            Host::Unix(folder) => format!("{}:{}", folder.display(), port(place)),
        })
        .collect();
    if hosts.is_empty() {
        hosts = (0..).zip(config.get_hostaddrs()).map(|(place, address)| format!("{address}:{}", port(place))).collect();
    }
    match config.get_dbname() {
        Some(database) => format!("{} (database {database})", hosts.join(",")),
        None => hosts.join(","),
    }
}

/// With `require`, the server's certificate has to be good for its name. With `prefer`, which is also what counts where the
/// address says nothing, the connection is encrypted if the server can, and nothing is checked, as with every other client of
/// PostgreSQL: whoever could forge the certificate could as well say that the server has no TLS.
fn tls(mode: SslMode, roots: Option<&str>) -> Result<MakeRustlsConnect, StoreError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let broken = |error: rustls::Error| StoreError::failed(format!("TLS can't be set up: {error}"));
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions().map_err(broken)?;
    let config = if mode == SslMode::Require {
        builder.with_root_certificates(trusted(roots)?).with_no_client_auth()
    } else {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate { provider })).with_no_client_auth()
    };
    Ok(MakeRustlsConnect::new(config))
}

fn trusted(file: Option<&str>) -> Result<RootCertStore, StoreError> {
    let mut store = RootCertStore::empty();
    if let Some(file) = file {
        let unreadable = |problem: String| StoreError::invalid(format!("the certificates in {file} can't be read: {problem}"));
        let reader = BufReader::new(File::open(file).map_err(|error| unreadable(error.to_string()))?);
        for certificate in CertificateDer::pem_reader_iter(reader) {
            let certificate = certificate.map_err(|error| unreadable(error.to_string()))?;
            store.add(certificate).map_err(|error| unreadable(error.to_string()))?;
        }
        if store.is_empty() {
            return Err(unreadable("there is none in PEM form".to_owned()));
        }
    } else {
        store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if store.is_empty() {
            return Err(StoreError::invalid(
                "this system has no root certificates; install them, or name a file with sslrootcert= in the address of the \
                 PostgreSQL server",
            ));
        }
    }
    Ok(store)
}

/// Takes whatever certificate the server shows, but only from a server that has its key.
#[derive(Debug)]
struct AnyCertificate {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _between: &[CertificateDer<'_>],
        _server: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// An error with its causes, since the outermost often says nothing.
pub(super) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str) -> String {
        match Address::parse(url, Duration::from_secs(1)) {
            Ok(address) => panic!("{url} is {}", address.name),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_server_is_named_without_user_and_password() {
        for (url, name) in [
            ("postgres://me:geheim@db.example:5433/app", "db.example:5433 (database app)"),
            ("postgresql://me:ge%40heim@db.example", "db.example:5432"),
            ("postgres://me:geheim@/app?host=/run/postgresql", "/run/postgresql:5432 (database app)"),
            ("postgres://me:geheim@[::1]:1,two:2/app?sslmode=disable", "::1:1,two:2 (database app)"),
        ] {
            let address = Address::parse(url, Duration::from_secs(1)).unwrap();
            assert_eq!(address.name, name);
        }
    }

    #[test]
    fn a_bad_address_is_refused_without_its_password() {
        for url in [
            "postgres://me:geheim@secret@db.example/app",
            "postgres://me:geheim@db.example:port/app",
            "postgres://me:geheim@db.example/app?sslmode=secret",
            "postgres://me:geheim@db.example/app?secret=1",
            "postgres://me:geheim@/app",
            "me:geheim@db.example",
            "",
        ] {
            let error = refused(url);
            assert!(error.contains("postgres://user:password@host:port/database"), "{error}");
            assert!(!error.contains("geheim"), "{error}");
        }
    }

    #[test]
    fn certificates_are_read_or_their_file_is_named() {
        let error = refused("postgres://me@db.example/app?sslmode=verify-full&sslrootcert=/no%20such/roots.pem");
        assert!(error.contains("/no such/roots.pem"), "{error}");
    }
}
