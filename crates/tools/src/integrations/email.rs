//! Email, handed to one mail server.

mod address;
mod compose;

use std::fmt;
use std::time::Duration;

use lettre::message::Mailbox;
use serde_json::{Value, json};
use tokio::time::Instant;
pub use toolwright_host::mail::Security;
use toolwright_host::mail::{Login, Mail, MailError, MailServer};
use toolwright_tool::core::sha256_hex;
use toolwright_tool::{OnInterrupt, Tool, ToolContext, ToolError, args};

use super::credential::Credential;
use super::option::OptionError;
use super::shape::in_line;
use address::Recipients;

/// The tool `send_email`, and its options.
///
/// It asks before each email. Who may be written to can be limited, and so what a model that was talked into it could do.
///
/// ```
/// use toolwright_tools::integrations::{Credential, Email};
///
/// let tool = Email::new("smtp.acme.example", "bot@acme.example")
///     .login("bot", Credential::env("SMTP_PASSWORD"))
///     .allowed_recipients(["*@acme.example", "kim@partner.example"])
///     .tool()?;
/// assert_eq!(tool.name().as_str(), "send_email");
/// # Ok::<_, toolwright_tools::integrations::OptionError>(())
/// ```
#[derive(Clone)]
pub struct Email {
    host: String,
    port: Option<u16>,
    security: Security,
    trusted: Option<Vec<u8>>,
    from: String,
    reply_to: Option<String>,
    login: Option<(String, Credential)>,
    allowed: Option<Vec<String>>,
    most_recipients: usize,
    largest_attachments: usize,
    timeout: Duration,
}

impl fmt::Debug for Email {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Email");
        shown.field("host", &self.host).field("security", &self.security).field("from", &self.from).field("login", &self.login);
        shown.field("allowed_recipients", &self.allowed).finish_non_exhaustive()
    }
}

impl Email {
    /// The mail server, reached by TLS, and who the emails are from: `bot@acme.example` or `Acme <bot@acme.example>`.
    pub fn new(host: impl Into<String>, from: impl Into<String>) -> Self {
        Self {
            host: host.into(),
            port: None,
            security: Security::Tls,
            trusted: None,
            from: from.into(),
            reply_to: None,
            login: None,
            allowed: None,
            most_recipients: 20,
            largest_attachments: 10 * 1024 * 1024,
            timeout: Duration::from_secs(60),
        }
    }

    /// How the connection is secured; [`Security::Tls`] by default.
    #[must_use]
    pub fn security(mut self, security: Security) -> Self {
        self.security = security;
        self
    }

    /// The port, where it is not the usual one of the security.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Trusts these certificates, in PEM, and none of the machine's own.
    #[must_use]
    pub fn trusting(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.trusted = Some(pem.into());
        self
    }

    /// Logs in as this user. Without it, nobody logs in.
    #[must_use]
    pub fn login(mut self, user: impl Into<String>, password: Credential) -> Self {
        self.login = Some((user.into(), password));
        self
    }

    /// Where answers go.
    #[must_use]
    pub fn reply_to(mut self, address: impl Into<String>) -> Self {
        self.reply_to = Some(address.into());
        self
    }

    /// Only addresses that match one of these are written to: `kim@acme.example`, `*@acme.example` for a whole domain, `*@*.acme.example`
    /// for those below it.
    #[must_use]
    pub fn allowed_recipients(mut self, patterns: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.allowed = Some(patterns.into_iter().map(Into::into).collect());
        self
    }

    /// How many addresses one email goes to at most; 20 by default.
    #[must_use]
    pub fn max_recipients(mut self, count: usize) -> Self {
        self.most_recipients = count;
        self
    }

    /// How large the attachments of one email may be together, in bytes; 10 MiB by default.
    #[must_use]
    pub fn largest_attachments(mut self, bytes: usize) -> Self {
        self.largest_attachments = bytes;
        self
    }

    /// How long one call may take; 60 s by default.
    #[must_use]
    pub fn timeout(mut self, time: Duration) -> Self {
        self.timeout = time;
        self
    }

    /// The tool. Fails where an option can't be used.
    pub fn tool(&self) -> Result<Tool, OptionError> {
        let server = MailServer::new(&self.host, self.port.unwrap_or(self.security.usual_port()), self.security)
            .map_err(|error| OptionError::new("host", error.to_string()))?;
        let server = match &self.trusted {
            Some(pem) => server.trusting(pem).map_err(|error| OptionError::new("trusting", error.to_string()))?,
            None => server,
        };
        let own = |option: &'static str, text: &str| address::mailbox(text).map_err(|problem| OptionError::new(option, problem));
        let from = own("from", &self.from)?;
        let reply_to = self.reply_to.as_deref().map(|reply_to| own("reply_to", reply_to)).transpose()?;
        let recipients = Recipients::new(self.allowed.as_deref(), self.most_recipients)?;
        if self.timeout.is_zero() {
            return Err(OptionError::new("timeout", "it is zero"));
        }
        let redactor = match &self.login {
            Some((user, _)) if user.is_empty() || user.chars().any(char::is_control) => {
                return Err(OptionError::new("login", "the user's name is empty or holds a control character"));
            }
            Some((_, password)) => password.redactor("login", "email-password")?,
            None => None,
        };
        let sender = Sender {
            server,
            from,
            reply_to,
            login: self.login.clone(),
            recipients,
            redactor,
            largest_attachments: self.largest_attachments,
            timeout: self.timeout,
        };
        let mut says = "Sends an email, as text, as HTML or as both, with attachments.".to_owned();
        if let Some(allowed) = self.allowed.as_ref().filter(|allowed| allowed.len() <= 10) {
            says = format!("{says} It may go to {}.", allowed.join(", "));
        }
        let mut builder = Tool::new("send_email", says)
            .open_world()
            .needs_approval()
            // After a crash in its middle nobody knows whether it was sent.
            .on_interrupt(OnInterrupt::Ask)
            .timeout(self.timeout.saturating_add(Duration::from_secs(5)));
        if let Some(need) =
            self.login.as_ref().and_then(|(user, password)| password.need(&format!("The password of {user} at {}.", self.host)))
        {
            builder = builder.env_need(need);
        }
        let sender = std::sync::Arc::new(sender);
        Ok(builder.run_with(move |email: SendEmail, cx: ToolContext| {
            let sender = std::sync::Arc::clone(&sender);
            async move { sender.send(email, &cx).await }
        })?)
    }
}

/// An email.
#[args]
pub(super) struct SendEmail {
    /// Addresses, such as `kim@acme.example` or `Kim <kim@acme.example>`.
    #[arg(length(min = 1))]
    to: Vec<String>,
    /// Who gets a copy.
    cc: Option<Vec<String>>,
    /// Who gets a copy that the others do not see.
    bcc: Option<Vec<String>>,
    /// The subject, in one line.
    #[arg(length(min = 1, max = 500))]
    subject: String,
    /// The text.
    text: Option<String>,
    /// The same in HTML.
    html: Option<String>,
    /// Files to go with it.
    attachments: Option<Vec<Attachment>>,
}

/// A file that goes with an email: one of path, content and base64.
#[args]
pub(super) struct Attachment {
    /// Path of a file of the thread.
    path: Option<String>,
    /// The content, as text.
    content: Option<String>,
    /// The content, as bytes in base64.
    base64: Option<String>,
    /// Name of the file; that of the path if left out.
    name: Option<String>,
    /// Its media type; by its name if left out.
    media_type: Option<String>,
}

struct Sender {
    server: MailServer,
    from: Mailbox,
    reply_to: Option<Mailbox>,
    login: Option<(String, Credential)>,
    recipients: Recipients,
    redactor: Option<std::sync::Arc<toolwright_tool::core::redact::Redactor>>,
    largest_attachments: usize,
    timeout: Duration,
}

impl Sender {
    async fn send(&self, email: SendEmail, cx: &ToolContext) -> Result<Value, ToolError> {
        let began = Instant::now();
        let deadline = began.checked_add(self.timeout).unwrap_or_else(|| began + Duration::from_secs(86_400 * 365));
        let people = self.recipients.checked(&email.to, email.cc.as_deref(), email.bcc.as_deref())?;
        let files = compose::attached(&email.attachments.unwrap_or_default(), cx, self.largest_attachments).await?;
        let login = match &self.login {
            Some((user, password)) => Some(Login { user: user.clone(), password: password.required(cx, "the mail server")? }),
            None => None,
        };
        // The same for each attempt at the same call, so that a server that has it already can tell.
        let call = format!("{:?} {:?} {} {}", cx.thread_id(), cx.run_id(), cx.call_id(), cx.args().value());
        let id = format!("<{}@{}>", sha256_hex(call.as_bytes()).chars().take(32).collect::<String>(), self.from.email.domain());
        let parts = compose::Parts { subject: &email.subject, text: email.text.as_deref(), html: email.html.as_deref(), files };
        let message = compose::message(&self.from, self.reply_to.as_ref(), &people, &id, parts)?;
        let mail = Mail {
            from: self.from.email.to_string(),
            to: people.all().map(|mailbox| mailbox.email.to_string()).collect(),
            message: message.formatted(),
        };
        if cx.cancelled().is_cancelled() {
            return Err(ToolError::new("can't send the email: the run was stopped").named("ServiceError"));
        }
        match self.server.send(login.as_ref(), &mail, deadline).await {
            Ok(_) => Ok(json!({ "sent": true, "recipients": mail.to.len(), "message_id": id })),
            Err(error) => Err(self.failed(&error)),
        }
    }

    fn failed(&self, error: &MailError) -> ToolError {
        let said = in_line(&error.to_string(), 500);
        let said = self.redactor.as_ref().map_or_else(|| said.clone(), |redactor| redactor.redact(&said).into_owned());
        let (name, what_to_do) = match error {
            MailError::Login { .. } => {
                let place = self.login.as_ref().map_or_else(String::new, |(_, password)| format!("; put a valid password into {password}"));
                ("CredentialsError", place)
            }
            MailError::Refused { later: true, .. } => ("RateLimitError", "; try again later".to_owned()),
            MailError::Refused { .. } => ("ServiceError", "; nobody got the email: put right what it names".to_owned()),
            MailError::Connect { .. } => ("ServiceError", "; check that it can be reached, then try again".to_owned()),
            MailError::NotSent { .. } => ("ServiceError", "; nobody got the email: try again later".to_owned()),
            MailError::Unknown { .. } => {
                let message = format!("{said}; the email may have been sent, so ask before sending it again");
                return ToolError::new(message).named("OutcomeUnknownError");
            }
            _ => ("ServiceError", String::new()),
        };
        ToolError::new(format!("can't send the email: {said}{what_to_do}")).named(name)
    }
}
