//! Outbound mail: one SMTP server, which a developer or an operator chose.
//!
//! It checks no address of the server, as [`crate::net::Client`] does not. What it knows better than a plain mailer is whether a message
//! that got no answer may have been taken.

use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::time::Duration;

use lettre::Address;
use lettre::transport::smtp::Error as SmtpError;
use lettre::transport::smtp::authentication::{Credentials, DEFAULT_MECHANISMS};
use lettre::transport::smtp::client::{AsyncSmtpConnection, Certificate, CertificateStore, TlsParameters};
use lettre::transport::smtp::commands::{Data, Mail as MailCommand, Rcpt};
use lettre::transport::smtp::extension::ClientId;
use tokio::time::{Instant, timeout, timeout_at};

/// How long the good-bye may take, once all is done.
const QUIT: Duration = Duration::from_secs(2);

/// How the connection to a mail server is secured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// TLS from the beginning, on port 465 as a rule.
    Tls,
    /// TLS after `STARTTLS`, on port 587 as a rule. A server that does not offer it gets nothing.
    StartTls,
    /// None. For a server on this machine only.
    Plain,
}

impl Security {
    /// The port it is usual on.
    pub fn usual_port(self) -> u16 {
        match self {
            Self::Tls => 465,
            Self::StartTls => 587,
            Self::Plain => 25,
        }
    }
}

/// Who sends, at the server. `Debug` shows the user alone.
#[derive(Clone)]
pub struct Login {
    /// The user.
    pub user: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

/// A message, ready to be sent: in ASCII, with its headers.
#[derive(Clone, Debug)]
pub struct Mail {
    /// Who it is from, as an address alone.
    pub from: String,
    /// Who gets it, as addresses alone.
    pub to: Vec<String>,
    /// Headers and body.
    pub message: Vec<u8>,
}

/// Why a message was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MailError {
    /// The options of the server can't be used.
    #[error("the mail server {server} can't be used: {problem}")]
    Setup {
        /// The server.
        server: String,
        /// What is wrong.
        problem: String,
    },
    /// An address or a message that can't be sent.
    #[error("{problem}")]
    Message {
        /// What is wrong with it.
        problem: String,
    },
    /// No connection, or none that is secure. Nothing was sent.
    #[error("no secure connection to the mail server {server}: {problem}")]
    Connect {
        /// The server.
        server: String,
        /// What went wrong.
        problem: String,
    },
    /// The server does not take the login. Nothing was sent.
    #[error("the mail server {server} does not accept the login of {user}: {said}")]
    Login {
        /// The server.
        server: String,
        /// The user.
        user: String,
        /// The server's words.
        said: String,
    },
    /// The server refused the message, or one who was to get it. Nobody gets it.
    #[error("the mail server {server} refuses {what}: {said}")]
    Refused {
        /// The server.
        server: String,
        /// What it refuses: an address, or the message.
        what: String,
        /// The server's words.
        said: String,
        /// Whether it may take it later.
        later: bool,
    },
    /// Too late, or broken off, before the message was handed over. Nobody gets it.
    #[error("the exchange with the mail server {server} broke off before the message was sent: {problem}")]
    NotSent {
        /// The server.
        server: String,
        /// What went wrong.
        problem: String,
    },
    /// The message was handed over, and the server's answer did not come: it may have been taken.
    #[error("the mail server {server} was given the message and did not say whether it takes it: {problem}")]
    Unknown {
        /// The server.
        server: String,
        /// What went wrong.
        problem: String,
    },
}

/// A mail server.
#[derive(Clone)]
pub struct MailServer {
    host: String,
    port: u16,
    security: Security,
    roots: Option<Certificate>,
}

impl fmt::Debug for MailServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MailServer")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("security", &self.security)
            .finish_non_exhaustive()
    }
}

impl MailServer {
    /// A server by name or address.
    pub fn new(host: impl Into<String>, port: u16, security: Security) -> Result<Self, MailError> {
        let host = host.into();
        let setup = |problem: &str| MailError::Setup { server: host.clone(), problem: problem.to_owned() };
        if host.is_empty()
            || host.contains(|c: char| c.is_whitespace() || c.is_control() || "/@:".contains(c)) && host.parse::<IpAddr>().is_err()
        {
            return Err(setup("it is no name or address of a host"));
        }
        let here = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        if security == Security::Plain && !here {
            return Err(setup("without TLS only a server on this machine is used; choose TLS or STARTTLS"));
        }
        Ok(Self { host, port, security, roots: None })
    }

    /// Trusts these certificates, in PEM, and none of the machine's own.
    pub fn trusting(mut self, pem: &[u8]) -> Result<Self, MailError> {
        let certificate = Certificate::from_pem(pem)
            .map_err(|error| MailError::Setup { server: self.host.clone(), problem: format!("the certificates to trust: {error}") })?;
        self.roots = Some(certificate);
        Ok(self)
    }

    /// The server's host.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Hands the message over by `deadline`, and gives what the server said to it. All who are to get it get it, or nobody.
    pub async fn send(&self, login: Option<&Login>, mail: &Mail, deadline: Instant) -> Result<String, MailError> {
        let problem = |problem: String| MailError::Message { problem };
        let address = |text: &String| text.parse::<Address>().map_err(|error| problem(format!("{text:?} is no address: {error}")));
        let from = address(&mail.from)?;
        let to = mail.to.iter().map(address).collect::<Result<Vec<_>, _>>()?;
        if to.is_empty() {
            return Err(problem("nobody is to get the message".to_owned()));
        }
        if !mail.message.is_ascii() || !mail.from.is_ascii() || !mail.to.iter().all(|to| to.is_ascii()) {
            return Err(problem("a message and its addresses are sent in ASCII".to_owned()));
        }
        let mut connection = self.connected(deadline).await?;
        if let Some(login) = login {
            let credentials = Credentials::new(login.user.clone(), login.password.clone());
            let done = self.step(deadline, connection.auth(DEFAULT_MECHANISMS, &credentials)).await?;
            done.map_err(|error| match error.status() {
                Some(_) => MailError::Login { server: self.host.clone(), user: login.user.clone(), said: said(&error) },
                None => self.not_sent(&error),
            })?;
        }
        self.command(&mut connection, deadline, MailCommand::new(Some(from), Vec::new()), &mail.from).await?;
        for (address, text) in to.into_iter().zip(&mail.to) {
            self.command(&mut connection, deadline, Rcpt::new(address, Vec::new()), text).await?;
        }
        self.command(&mut connection, deadline, Data, "the message").await?;
        let unknown = |problem: String| MailError::Unknown { server: self.host.clone(), problem };
        let taken = timeout_at(deadline, connection.message(&mail.message)).await.map_err(|_| unknown("no answer in time".to_owned()))?;
        let response = taken.map_err(|error| self.refused(&error, "the message").unwrap_or_else(|| unknown(said(&error))))?;
        // What comes after that changes nothing.
        let _ = timeout(QUIT, connection.quit()).await;
        Ok(response.message().collect::<Vec<_>>().join(" "))
    }

    async fn connected(&self, deadline: Instant) -> Result<AsyncSmtpConnection, MailError> {
        let failed = |problem: String| MailError::Connect { server: self.host.clone(), problem };
        let tls = match self.security {
            Security::Plain => None,
            Security::Tls | Security::StartTls => Some(self.tls().map_err(|error| failed(said(&error)))?),
        };
        let hello = ClientId::default();
        let (wrapped, later) = if self.security == Security::Tls { (tls, None) } else { (None, tls) };
        let remaining = deadline.saturating_duration_since(Instant::now());
        let connecting = AsyncSmtpConnection::connect_tokio1((self.host.as_str(), self.port), Some(remaining), &hello, wrapped, None);
        let connected = timeout_at(deadline, connecting).await.map_err(|_| failed("it did not answer in time".to_owned()))?;
        let mut connection = connected.map_err(|error| failed(said(&error)))?;
        if let Some(tls) = later {
            if !connection.can_starttls() {
                connection.abort().await;
                return Err(failed("it does not offer STARTTLS; use TLS from the beginning, or another server".to_owned()));
            }
            let secured = timeout_at(deadline, connection.starttls(tls, &hello)).await;
            secured.map_err(|_| failed("it did not answer in time".to_owned()))?.map_err(|error| failed(said(&error)))?;
        }
        Ok(connection)
    }

    fn tls(&self) -> Result<TlsParameters, SmtpError> {
        let mut builder = TlsParameters::builder(self.host.clone());
        if let Some(roots) = &self.roots {
            builder = builder.certificate_store(CertificateStore::None).add_root_certificate(roots.clone());
        }
        builder.build()
    }

    async fn step<T>(&self, deadline: Instant, step: impl Future<Output = T>) -> Result<T, MailError> {
        let late = |_| MailError::NotSent { server: self.host.clone(), problem: "no answer in time".to_owned() };
        timeout_at(deadline, step).await.map_err(late)
    }

    async fn command(
        &self,
        connection: &mut AsyncSmtpConnection,
        deadline: Instant,
        command: impl fmt::Display,
        what: &str,
    ) -> Result<(), MailError> {
        let answered = self.step(deadline, connection.command(command)).await?;
        match answered {
            Ok(_) => Ok(()),
            Err(error) => Err(self.refused(&error, what).unwrap_or_else(|| self.not_sent(&error))),
        }
    }

    /// The error for a server's no.
    fn refused(&self, error: &SmtpError, what: &str) -> Option<MailError> {
        error.status()?;
        Some(MailError::Refused { server: self.host.clone(), what: what.to_owned(), said: said(error), later: error.is_transient() })
    }

    fn not_sent(&self, error: &SmtpError) -> MailError {
        MailError::NotSent { server: self.host.clone(), problem: said(error) }
    }
}

/// An error with its causes.
fn said(error: &SmtpError) -> String {
    let mut said = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        let text = cause.to_string();
        if !said.contains(&text) {
            said.push_str(": ");
            said.push_str(&text);
        }
        next = cause.source();
    }
    said
}
