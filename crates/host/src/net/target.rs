//! Where a request goes, as the one parser of URLs reads it.

use std::net::IpAddr;

use url::{Host, Url};

use super::error::{GuardConfigError, GuardError};

/// Ports of services that are not HTTP: what the Fetch standard calls bad ports. A request to one of them could be read as a command
/// of another protocol.
const BAD_PORTS: &[u16] = &[
    0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104, 109, 110, 111, 113, 115,
    117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601,
    636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697,
    10080,
];

/// The host of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Site {
    /// A name, in lower case and without the dot of the root.
    Name(String),
    /// An address that stands in the URL.
    Address(IpAddr),
}

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) site: Site,
    /// The host as it is shown and matched with patterns: without brackets and without the dot of the root.
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) secure: bool,
}

impl Target {
    /// Reads it from a URL; what can't be told for sure is refused.
    pub(super) fn of(url: &Url) -> Result<Self, GuardError> {
        let secure = match url.scheme() {
            "http" => false,
            "https" => true,
            scheme => return Err(GuardError::Scheme { scheme: scheme.to_owned() }),
        };
        let shown = || url.host_str().unwrap_or_default().to_owned();
        if !url.username().is_empty() || url.password().is_some() {
            return Err(GuardError::UserInfo { host: shown() });
        }
        let unusable = |problem: &'static str| GuardError::Host { host: shown(), problem };
        let site = match url.host() {
            None => return Err(unusable("there is none")),
            Some(Host::Ipv4(address)) => Site::Address(address.into()),
            Some(Host::Ipv6(address)) => Site::Address(address.into()),
            Some(Host::Domain(name)) => Site::Name(plain_name(name).map_err(unusable)?),
        };
        let host = match &site {
            Site::Name(name) => name.clone(),
            Site::Address(address) => address.to_string(),
        };
        let port = url.port_or_known_default().ok_or_else(|| unusable("it has no port"))?;
        Ok(Self { site, host, port, secure })
    }

    /// Whether its port belongs to another protocol.
    pub(super) fn has_bad_port(&self) -> bool {
        BAD_PORTS.contains(&self.port)
    }

    /// Whether it is this machine, by name.
    pub(super) fn is_this_machine(&self) -> bool {
        matches!(&self.site, Site::Name(name) if name == "localhost" || name.ends_with(".localhost"))
    }
}

/// A name that a resolver may be asked for, in lower case and without the dot of the root.
fn plain_name(name: &str) -> Result<String, &'static str> {
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.is_empty() {
        return Err("there is none");
    }
    if name.len() > 253 || name.split('.').any(|label| label.len() > 63) {
        return Err("it is longer than a name can be");
    }
    if name.split('.').any(str::is_empty) {
        return Err("two of its dots have nothing between them");
    }
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')) {
        return Err("it holds characters that no name has");
    }
    // Without its dot it could be read as an address; then it is neither.
    match Host::parse(name) {
        Ok(Host::Domain(parsed)) if parsed.eq_ignore_ascii_case(name) => Ok(parsed.to_ascii_lowercase()),
        _ => Err("it can be read as something else"),
    }
}

/// A host, or all hosts below one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HostPattern {
    Host(String),
    Below(String),
}

impl HostPattern {
    /// `host` or `*.host`; a host is a name or an address.
    pub(super) fn parse(pattern: &str) -> Result<Self, GuardConfigError> {
        let wrong = |problem| GuardConfigError::Pattern { pattern: pattern.to_owned(), problem };
        let (below, host) = match pattern.trim().strip_prefix("*.") {
            Some(host) => (true, host),
            None => (false, pattern.trim()),
        };
        // An IPv6 address stands in a URL with brackets; here it may stand without.
        let bracketed = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_owned() };
        match Host::parse(&bracketed).map_err(|_| wrong("its host can't be read"))? {
            Host::Domain(name) => {
                let name = plain_name(&name).map_err(wrong)?;
                Ok(if below { Self::Below(format!(".{name}")) } else { Self::Host(name) })
            }
            _ if below => Err(wrong("there are no hosts below an address")),
            Host::Ipv4(address) => Ok(Self::Host(address.to_string())),
            Host::Ipv6(address) => Ok(Self::Host(address.to_string())),
        }
    }

    /// Whether a host, as [`Target::host`] has it, is meant.
    pub(super) fn matches(&self, host: &str) -> bool {
        match self {
            Self::Host(name) => name == host,
            Self::Below(ending) => host.ends_with(ending.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> Result<Target, GuardError> {
        Target::of(&Url::parse(url).unwrap())
    }

    // case: field-reports 95
    #[test]
    fn the_dot_of_the_root_changes_nothing() {
        assert_eq!(target("http://localhost./").unwrap(), target("http://localhost/").unwrap());
        assert!(target("http://LOCALHOST./").unwrap().is_this_machine());
        assert!(target("http://a.localhost./").unwrap().is_this_machine());
        assert_eq!(target("http://169.254.169.254./").unwrap().site, Site::Address("169.254.169.254".parse().unwrap()));
        assert_eq!(target("http://192.168.1.5./").unwrap().site, Site::Address("192.168.1.5".parse().unwrap()));
        assert_eq!(target("http://metadata.google.internal./").unwrap().host, "metadata.google.internal");
        for unclear in ["http://127.0.0.1../", "http://a..b/", "http://./", "http://../", "http://example.com../"] {
            assert!(matches!(target(unclear), Err(GuardError::Host { .. })), "{unclear}");
        }
    }

    // case: field-reports 97
    #[test]
    fn userinfo_is_refused_wherever_the_parser_finds_it() {
        assert_eq!(target("http://localhoste\\@localhost").unwrap().host, "localhoste");
        for url in ["http://user@example.com/", "http://user:pass@example.com/", "http://:pass@example.com/", "http://a@b@c/"] {
            let error = target(url).unwrap_err();
            assert!(matches!(error, GuardError::UserInfo { .. }) && !error.to_string().contains("pass@"), "{error}");
        }
    }

    // rule: sdk-tools 9.2/7
    #[test]
    fn a_star_matches_what_is_below_only() {
        let below = HostPattern::parse("*.Example.com").unwrap();
        assert!(below.matches("a.example.com") && below.matches("a.b.example.com"));
        assert!(!below.matches("example.com") && !below.matches("badexample.com"));
        let host = HostPattern::parse("example.com.").unwrap();
        assert!(host.matches("example.com") && !host.matches("a.example.com"));
        assert!(HostPattern::parse("::1").unwrap().matches("::1") && HostPattern::parse("[0:0::1]").unwrap().matches("::1"));
        assert!(HostPattern::parse("bücher.example").unwrap().matches("xn--bcher-kva.example"));
        for wrong in ["*", "*.", "", "*.10.0.0.1", "a b", "http://a", "a*.b"] {
            assert!(HostPattern::parse(wrong).is_err(), "{wrong}");
        }
    }
}
