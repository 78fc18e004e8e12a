//! Why a guarded request was refused or failed.

use std::net::IpAddr;

use super::ranges::SpecialRange;

/// Why a guarded request had no response, or its body broke off. Each is one sentence that names the host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GuardError {
    /// It is no URL. The text is left out, as it may hold a password.
    #[error("the URL can't be read: {problem}; give a whole http or https URL")]
    Url {
        /// What is wrong with it.
        problem: String,
    },
    /// Its scheme is neither http nor https.
    #[error("a URL with the scheme `{scheme}` can't be requested; use http or https")]
    Scheme {
        /// The scheme.
        scheme: String,
    },
    /// It has a user or a password.
    #[error("the URL for {host} holds a user or a password, which may hide where it leads; leave out what stands before the `@`")]
    UserInfo {
        /// The host.
        host: String,
    },
    /// Its host is no name that can be looked up.
    #[error("`{host}` is no usable host: {problem}")]
    Host {
        /// The host.
        host: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// Its port belongs to a service that is not HTTP.
    #[error("port {port} of {host} is not for HTTP and is refused; use the port that the site serves pages on")]
    Port {
        /// The host.
        host: String,
        /// The port.
        port: u16,
    },
    /// Only some hosts are allowed, and this is none of them.
    #[error("{host} is none of the hosts that are allowed here; ask for one of those, or have it allowed")]
    NotAllowed {
        /// The host.
        host: String,
    },
    /// The host is blocked.
    #[error("{host} is blocked here; do without it")]
    Blocked {
        /// The host.
        host: String,
    },
    /// The host is this machine by name.
    #[error("{host} is this machine itself and is refused; whoever set this up may allow it by name with `allow_private`")]
    ThisMachine {
        /// The host.
        host: String,
    },
    /// The host leads to an address that is not public.
    #[error("{} ({range}), and is refused; whoever set this up may allow the host by name with `allow_private`", not_public(host, address))]
    Special {
        /// The host.
        host: String,
        /// The address, one of its.
        address: IpAddr,
        /// The range that the address is in.
        range: SpecialRange,
    },
    /// There is no such host, or nobody could say where it is.
    #[error("the address of {host} is not known: {problem}; check the name")]
    Unknown {
        /// The host.
        host: String,
        /// What the resolver said.
        problem: String,
    },
    /// No connection.
    #[error("no connection to {host} on port {port}: {problem}; check the address, or try later")]
    Connect {
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// What went wrong.
        problem: String,
    },
    /// The secure connection failed.
    #[error("no secure connection to {host}: {problem}; the certificate or the machine's roots have to be put right")]
    Tls {
        /// The host.
        host: String,
        /// What went wrong.
        problem: String,
    },
    /// The whole request took too long.
    #[error("{host} did not answer within {limit_ms} ms; try later, or ask for less")]
    Timeout {
        /// The host.
        host: String,
        /// The limit, in milliseconds.
        limit_ms: u64,
    },
    /// The exchange broke off.
    #[error("the exchange with {host} broke off: {problem}; try again")]
    Broken {
        /// The host.
        host: String,
        /// What went wrong.
        problem: String,
    },
    /// The head of the response is too long.
    #[error("{host} answered with headers of more than {limit} bytes or {count} lines, which is refused")]
    Headers {
        /// The host.
        host: String,
        /// The limit, in bytes.
        limit: usize,
        /// The limit, in lines.
        count: usize,
    },
    /// The body is packed in a way that was not asked for, or the packing is damaged.
    #[error("the body from {host} can't be unpacked: {problem}")]
    Packed {
        /// The host.
        host: String,
        /// What is wrong.
        problem: String,
    },
    /// Too many redirects.
    #[error("{host} redirects more than {limit} times; ask for the page it ends at")]
    Redirects {
        /// The host that was asked first.
        host: String,
        /// The limit.
        limit: usize,
    },
    /// A redirect leads to what is refused.
    #[error("{host} redirects to what is refused: {error}")]
    Redirected {
        /// The host that redirects.
        host: String,
        /// Why the next address is refused.
        error: Box<GuardError>,
    },
    /// The request itself can't be sent.
    #[error("the request can't be sent: {problem}")]
    Request {
        /// What is wrong with it.
        problem: String,
    },
}

impl GuardError {
    /// Whether the guard refused to send the request: nothing has gone out to the place that is refused.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Redirected { error, .. } => error.is_refusal(),
            Self::Scheme { .. }
            | Self::UserInfo { .. }
            | Self::Host { .. }
            | Self::Port { .. }
            | Self::NotAllowed { .. }
            | Self::Blocked { .. }
            | Self::ThisMachine { .. }
            | Self::Special { .. } => true,
            _ => false,
        }
    }
}

/// An option of a guarded client that is not usable. Code `TOOLWRIGHT_CONFIG_INVALID`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GuardConfigError {
    /// A pattern of hosts.
    #[error("`{pattern}` is no pattern of hosts: {problem}; write a host, or `*.` and a host for all below it")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A map of hosts can't be read.
    #[error("the net map {file} can't be read: {problem}")]
    MapFile {
        /// The file.
        file: String,
        /// What went wrong.
        problem: String,
    },
    /// A line of a map of hosts.
    #[error("line {line} of the net map is wrong: {problem}; write `host[:port] address:port`, or `roots: FILE`")]
    MapLine {
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// Certificates that are none.
    #[error("the extra root certificates can't be read: {problem}; give them as PEM")]
    Roots {
        /// What is wrong with them.
        problem: String,
    },
    /// What requests say about who sent them.
    #[error("the user agent holds characters that a header can't carry; use printable ASCII")]
    UserAgent,
}

impl GuardConfigError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        "TOOLWRIGHT_CONFIG_INVALID"
    }
}

/// A host that is an address leads nowhere else.
fn not_public(host: &str, address: &IpAddr) -> String {
    if host == address.to_string() { format!("{host} is not public") } else { format!("{host} leads to {address}, which is not public") }
}
