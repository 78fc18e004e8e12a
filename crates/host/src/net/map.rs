//! Local servers that stand in for hosts outside.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::error::GuardConfigError;
use super::target::HostPattern;

/// Which hosts are reached at which address and port instead of their own, for tests and for trying things out. What is mapped is
/// not looked up and not checked: whoever writes the map says where it leads.
///
/// As a file it has one host a line, with the address and port that stand in for it. A host may be given with a port; then it is meant
/// with that port only. `roots:` names a file with certificates (PEM) that are trusted besides the machine's own; its path is
/// relative to the map's folder. Empty lines, and what follows a `#`, count for nothing.
///
/// ```text
/// # host[:port]          address:port
/// api.example.com        127.0.0.1:8080
/// shop.example.com:8443  [::1]:9443
/// roots:                 test-ca.pem
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetMap {
    entries: Vec<Entry>,
    roots: Vec<CertificateDer<'static>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    host: String,
    port: Option<u16>,
    to: SocketAddr,
}

impl NetMap {
    /// A map of nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a host, or a host and port (`example.com:8443`), and what stands in for it. The first of two entries for one host counts.
    pub fn map(mut self, host: &str, to: SocketAddr) -> Result<Self, GuardConfigError> {
        let (host, port) = match split_port(host) {
            Some((host, port)) => (host, Some(port)),
            None => (host, None),
        };
        match HostPattern::parse(host)? {
            HostPattern::Host(host) => self.entries.push(Entry { host, port, to }),
            HostPattern::Below(_) => {
                return Err(GuardConfigError::Pattern { pattern: host.to_owned(), problem: "a net map names each host" });
            }
        }
        Ok(self)
    }

    /// Trusts the certificates of a PEM text besides the machine's own.
    pub fn trust(mut self, pem: &[u8]) -> Result<Self, GuardConfigError> {
        self.roots.extend(certificates(pem)?);
        Ok(self)
    }

    /// Reads a file.
    pub fn read(file: &Path) -> Result<Self, GuardConfigError> {
        let unreadable = |file: &Path, problem: String| GuardConfigError::MapFile { file: file.display().to_string(), problem };
        let text = std::fs::read_to_string(file).map_err(|error| unreadable(file, error.to_string()))?;
        Self::parse(&text, |roots| {
            let roots = file.parent().unwrap_or_else(|| Path::new("")).join(roots);
            std::fs::read(&roots).map_err(|error| unreadable(&roots, error.to_string()))
        })
    }

    /// Reads the text of a file; `open` gives the content of a file that it names.
    fn parse(text: &str, open: impl Fn(&str) -> Result<Vec<u8>, GuardConfigError>) -> Result<Self, GuardConfigError> {
        let mut map = Self::default();
        for (line, text) in (1..).zip(text.lines()) {
            let wrong = |problem: String| GuardConfigError::MapLine { line, problem };
            let said = text.split_once('#').map_or(text, |(before, _)| before).trim();
            if said.is_empty() {
                continue;
            }
            if let Some(file) = said.strip_prefix("roots:") {
                map = map.trust(&open(file.trim())?)?;
                continue;
            }
            let Some((host, to)) = said.split_once(char::is_whitespace) else {
                return Err(wrong(format!("`{said}` has no address")));
            };
            let to = to.trim();
            let to = to.parse().map_err(|_| wrong(format!("`{to}` is no address and port")))?;
            map = map.map(host, to).map_err(|error| wrong(error.to_string()))?;
        }
        Ok(map)
    }

    /// Whether it maps nothing and trusts nothing.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.roots.is_empty()
    }

    /// Where a host with a port is reached instead.
    pub(super) fn of(&self, host: &str, port: u16) -> Option<SocketAddr> {
        self.entries.iter().find(|entry| entry.host == host && entry.port.is_none_or(|only| only == port)).map(|entry| entry.to)
    }

    pub(super) fn roots(&self) -> &[CertificateDer<'static>] {
        &self.roots
    }
}

/// One line for each host: `api.example.com -> 127.0.0.1:8080`, and one for the certificates.
impl fmt::Display for NetMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = self.entries.iter().map(|Entry { host, port, to }| match port {
            Some(port) => format!("{host}:{port} -> {to}"),
            None => format!("{host} -> {to}"),
        });
        if let Some(first) = lines.next() {
            f.write_str(&first)?;
        }
        lines.try_for_each(|line| write!(f, "\n{line}"))?;
        match self.roots.len() {
            0 => Ok(()),
            count if self.entries.is_empty() => write!(f, "trusted besides the machine's own roots: {count}"),
            count => write!(f, "\ntrusted besides the machine's own roots: {count}"),
        }
    }
}

/// `host:port`, where the host is no bare IPv6 address.
fn split_port(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
        return None;
    }
    Some((host, port.parse().ok()?))
}

/// The certificates of a PEM text; none is an error.
pub(super) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, GuardConfigError> {
    let wrong = |problem: String| GuardConfigError::Roots { problem };
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let read = read.map_err(|error| wrong(error.to_string()))?;
    if read.is_empty() { Err(wrong("there is no certificate in them".to_owned())) } else { Ok(read) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<NetMap, GuardConfigError> {
        NetMap::parse(text, |file| Err(GuardConfigError::MapFile { file: file.to_owned(), problem: "no".to_owned() }))
    }

    #[test]
    fn a_map_is_read_line_by_line() {
        let map =
            parse("# all\n\nApi.example.com 127.0.0.1:80 # here\n[::1]:8080\t127.0.0.1:81\n::1 127.0.0.1:82\nb.example:8443 [::1]:83\n")
                .unwrap();
        assert_eq!(map.of("api.example.com", 443), Some("127.0.0.1:80".parse().unwrap()));
        assert_eq!(map.of("::1", 8080), Some("127.0.0.1:81".parse().unwrap()));
        assert_eq!(map.of("::1", 80), Some("127.0.0.1:82".parse().unwrap()));
        assert_eq!(map.of("b.example", 8443), Some("[::1]:83".parse().unwrap()));
        assert_eq!(map.of("b.example", 443), None);
        assert_eq!(map.to_string().lines().count(), 4);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, problem) in [
            ("a.example", "line 1 of the net map is wrong: `a.example` has no address; "),
            ("\na.example 127.0.0.1", "line 2 of the net map is wrong: `127.0.0.1` is no address and port; "),
            ("*.example 127.0.0.1:80", "line 1 of the net map is wrong: `*.example` is no pattern of hosts: a net map names each host; "),
            ("roots: ca.pem", "the net map ca.pem can't be read: no"),
        ] {
            assert!(parse(text).unwrap_err().to_string().starts_with(problem), "{text}: {}", parse(text).unwrap_err());
        }
        assert!(NetMap::read(Path::new("no-such-map")).unwrap_err().to_string().starts_with("the net map no-such-map can't be read: "));
    }
}
