//! A small mail server: it speaks SMTP on a real socket, takes what it is given, and tells what it was told.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// How the server secures its connections.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Tls {
    None,
    /// Offered with `STARTTLS`.
    Offered,
    /// From the beginning.
    Always,
}

/// What it does instead of what it should.
#[derive(Clone, Copy)]
pub(crate) enum Instead {
    Say(&'static str),
    Close,
    Silence,
}

/// What it was told.
#[derive(Default)]
pub(crate) struct Told {
    /// Commands in order; those over TLS begin with a lock.
    pub(crate) commands: Vec<String>,
    /// Messages, as they were written, without the dot at the end and the dots that it takes.
    pub(crate) messages: Vec<String>,
}

pub(crate) struct Smtp {
    pub(crate) port: u16,
    /// The certificate to trust.
    pub(crate) pem: String,
    told: Arc<Mutex<Told>>,
}

struct Rules {
    tls: Tls,
    /// For the command with this beginning; `.` is the end of a message.
    instead: Vec<(&'static str, Instead)>,
}

impl Smtp {
    pub(crate) async fn start(tls: Tls, instead: &[(&'static str, Instead)]) -> Self {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self { port: listener.local_addr().unwrap().port(), pem: made.cert.pem(), told: Arc::default() };
        let (told, rules) = (Arc::clone(&server.told), Arc::new(Rules { tls, instead: instead.to_vec() }));
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (told, rules, acceptor) = (Arc::clone(&told), Arc::clone(&rules), acceptor.clone());
                tokio::spawn(async move {
                    if rules.tls == Tls::Always {
                        let mut secured = BufReader::new(acceptor.accept(socket).await.ok()?);
                        greet(&mut secured, &rules).await?;
                        return talk(&mut secured, &rules, &told, true).await.map(drop);
                    }
                    let mut plain = BufReader::new(socket);
                    greet(&mut plain, &rules).await?;
                    if talk(&mut plain, &rules, &told, false).await? {
                        let mut secured = BufReader::new(acceptor.accept(plain.into_inner()).await.ok()?);
                        talk(&mut secured, &rules, &told, true).await?;
                    }
                    Some(())
                });
            }
        });
        server
    }

    pub(crate) fn commands(&self) -> Vec<String> {
        self.told.lock().unwrap().commands.clone()
    }

    /// The only message.
    pub(crate) fn message(&self) -> String {
        let told = self.told.lock().unwrap();
        assert_eq!(told.messages.len(), 1, "{:?}", told.commands);
        told.messages[0].clone()
    }

    pub(crate) fn messages(&self) -> usize {
        self.told.lock().unwrap().messages.len()
    }
}

async fn say<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut BufReader<S>, line: &str) -> Option<()> {
    stream.write_all(format!("{line}\r\n").as_bytes()).await.ok()?;
    stream.flush().await.ok()
}

async fn greet<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut BufReader<S>, rules: &Rules) -> Option<()> {
    if instead(stream, rules, "GREETING").await? {
        return Some(());
    }
    say(stream, "220 mail.localhost ESMTP").await
}

/// Does what is to be done instead, and says whether there was something; `None` where the connection ends.
async fn instead<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut BufReader<S>, rules: &Rules, line: &str) -> Option<bool> {
    let Some((_, what)) = rules.instead.iter().find(|(begins, _)| line.starts_with(begins)) else { return Some(false) };
    match what {
        Instead::Say(text) => say(stream, text).await.map(|()| true),
        Instead::Close => None,
        Instead::Silence => {
            let mut rest = String::new();
            while stream.read_line(&mut rest).await.ok()? > 0 {}
            None
        }
    }
}

/// Whether TLS follows.
async fn talk<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut BufReader<S>,
    rules: &Rules,
    told: &Mutex<Told>,
    secured: bool,
) -> Option<bool> {
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return Some(false);
        }
        let line = line.trim_end_matches("\r\n").to_owned();
        told.lock().unwrap().commands.push(format!("{}{line}", if secured { "\u{1f512}" } else { "" }));
        if instead(stream, rules, &line).await? {
            continue;
        }
        match line.split(' ').next().unwrap_or_default() {
            "EHLO" => {
                say(stream, "250-mail.localhost").await?;
                if rules.tls == Tls::Offered && !secured {
                    say(stream, "250-STARTTLS").await?;
                }
                say(stream, "250 AUTH PLAIN LOGIN").await?;
            }
            "STARTTLS" => {
                say(stream, "220 go on").await?;
                return Some(true);
            }
            "AUTH" => say(stream, "235 welcome").await?,
            "DATA" => {
                say(stream, "354 go on").await?;
                let mut message = String::new();
                loop {
                    let mut line = String::new();
                    if stream.read_line(&mut line).await.ok()? == 0 {
                        return Some(false);
                    }
                    if line == ".\r\n" {
                        break;
                    }
                    message.push_str(line.strip_prefix('.').unwrap_or(&line));
                }
                told.lock().unwrap().messages.push(message);
                if !instead(stream, rules, ".").await? {
                    say(stream, "250 queued as 42").await?;
                }
            }
            "QUIT" => {
                say(stream, "221 bye").await?;
                return Some(false);
            }
            "MAIL" | "RCPT" => say(stream, "250 fine").await?,
            _ => say(stream, "500 what?").await?,
        }
    }
}
