//! Which addresses the guarded client refuses, against the registries of special-purpose addresses as their files have them.
//!
//! The client compares numbers; here an address is its bits written out, and a range the text that they begin with.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use toolwright_host::net::special_range;

use crate::repo;
use crate::sim::rng::Rng;

const IPV4: &str = "crates/host/data/iana-ipv4-special-registry.csv";
const IPV6: &str = "crates/host/data/iana-ipv6-special-registry.csv";

/// What is refused besides the rows of the registries, each with its reason in `ranges.rs`.
const BESIDES_IPV4: &[(&str, &str)] = &[("224.0.0.0/4", "Multicast"), ("168.63.129.16/32", "Cloud platform service")];
const BESIDES_IPV6: &[(&str, &str)] = &[
    ("ff00::/8", "Multicast"),
    ("fec0::/10", "Deprecated (Site-Local Unicast)"),
    ("::/96", "Deprecated (IPv4-compatible Address)"),
    ("::ffff:0:0:0/96", "IPv4-translated Address"),
];

/// Forms that are judged by the IPv4 address in their last 32 bits.
const JUDGED_INSIDE: [&str; 2] = ["::ffff:0:0/96", "64:ff9b::/96"];

/// Ranges of one kind of address: the bits they begin with, and their names.
struct Registry {
    prefixes: Vec<(String, String)>,
    /// Bits that a public address begins with: all of them, or the part of IPv6 that is given out.
    public: &'static str,
}

pub(super) struct Registries {
    v4: Registry,
    v6: Registry,
    inside: Vec<String>,
}

impl Registries {
    pub(super) fn read() -> Result<Self> {
        let root = repo::root()?;
        let rows = |path: &str| rows(&std::fs::read_to_string(root.join(path)).with_context(|| format!("reading {path}"))?);
        let inside: Vec<String> = JUDGED_INSIDE.iter().map(|range| prefix(range)).collect::<Result<_>>()?;
        let v4 = Registry { prefixes: prefixes(&rows(IPV4)?, BESIDES_IPV4)?, public: "" };
        let mut v6 = Registry { prefixes: prefixes(&rows(IPV6)?, BESIDES_IPV6)?, public: "001" };
        v6.prefixes.retain(|(bits, _)| !inside.contains(bits));
        ensure!(v4.prefixes.len() > 25 && v6.prefixes.len() > 25, "a registry has lost its rows");
        Ok(Self { v4, v6, inside })
    }

    /// The name of the narrowest range an address is in; `None` if it is public.
    fn judge(&self, address: IpAddr) -> Option<&str> {
        let bits = bits(address);
        if address.is_ipv4() {
            return self.v4.find(&bits);
        }
        if let Some(inside) = self.inside.iter().find_map(|form| bits.strip_prefix(form.as_str())) {
            return self.v4.find(inside);
        }
        let found = self.v6.find(&bits);
        // ISATAP: an interface's number that says which IPv4 address it has.
        let isatap = bits.get(64..96).is_some_and(|id| id.ends_with(ISATAP) && matches!(id.strip_suffix(ISATAP), Some(LOCAL | GLOBAL)));
        found.or(isatap.then_some("ISATAP"))
    }

    /// The first and the last address of every range, and their neighbours.
    fn edges(&self) -> Vec<IpAddr> {
        let mut edges = Vec::new();
        for (bits, _) in &self.v4.prefixes {
            let (first, last) = ends(bits, 32);
            for number in [first.wrapping_sub(1), first, last, last.wrapping_add(1)] {
                edges.push(IpAddr::V4(Ipv4Addr::from_bits(number as u32)));
                for form in &self.inside {
                    edges.push(IpAddr::V6(Ipv6Addr::from_bits(ends(form, 128).0 | (number & 0xffff_ffff))));
                }
            }
        }
        for bits in self.v6.prefixes.iter().map(|(bits, _)| bits).chain(&self.inside).chain([&"001".to_owned()]) {
            let (first, last) = ends(bits, 128);
            edges.extend([first.wrapping_sub(1), first, last, last.wrapping_add(1)].map(|number| IpAddr::V6(Ipv6Addr::from_bits(number))));
        }
        edges
    }
}

const ISATAP: &str = "0101111011111110";
const LOCAL: &str = "0000000000000000";
const GLOBAL: &str = "0000001000000000";

impl Registry {
    fn find(&self, bits: &str) -> Option<&str> {
        let narrowest = self.prefixes.iter().filter(|(prefix, _)| bits.starts_with(prefix.as_str())).max_by_key(|(prefix, _)| prefix.len());
        match narrowest {
            Some((_, name)) => Some(name),
            None => (!bits.starts_with(self.public)).then_some("not Global Unicast"),
        }
    }
}

/// The bits of an address, written out.
fn bits(address: IpAddr) -> String {
    let octets = match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    octets.iter().fold(String::new(), |mut bits, octet| {
        let _ = write!(bits, "{octet:08b}");
        bits
    })
}

/// The bits that a range like `10.0.0.0/8` begins with.
fn prefix(range: &str) -> Result<String> {
    let (address, length) = range.split_once('/').with_context(|| format!("`{range}` has no length"))?;
    let mut bits = bits(address.parse().with_context(|| format!("`{address}` is no address"))?);
    let rest = bits.split_off(length.parse::<usize>()?.min(bits.len()));
    ensure!(!rest.contains('1'), "`{range}` has bits beyond its length");
    Ok(bits)
}

/// The first and the last number that begin with these bits.
fn ends(bits: &str, length: usize) -> (u128, u128) {
    let read = |filled: String| u128::from_str_radix(&filled, 2).unwrap_or_default();
    (read(format!("{bits:0<length$}")), read(format!("{bits:1<length$}")))
}

fn prefixes(rows: &[BTreeMap<String, String>], besides: &[(&str, &str)]) -> Result<Vec<(String, String)>> {
    let mut prefixes = Vec::new();
    for row in rows {
        let (Some(blocks), Some(name)) = (row.get("Address Block"), row.get("Name")) else { bail!("a row has no block or no name") };
        // A block may list several ranges and refer to notes: `192.0.0.0/24 [2]`.
        for block in blocks.split(',') {
            let range = block.split_whitespace().next().context("an empty block")?;
            prefixes.push((prefix(range)?, name.clone()));
        }
    }
    for (range, name) in besides {
        prefixes.push((prefix(range)?, (*name).to_owned()));
    }
    Ok(prefixes)
}

/// The rows of a file of values separated by commas, by the names of their columns. A value in quotes may hold commas, lines and, doubled,
/// quotes.
fn rows(text: &str) -> Result<Vec<BTreeMap<String, String>>> {
    let mut lines: Vec<Vec<String>> = vec![vec![String::new()]];
    let mut quoted = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let Some(line) = lines.last_mut() else { bail!("no lines") };
        let Some(value) = line.last_mut() else { bail!("no values") };
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                value.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => line.push(String::new()),
            '\n' if !quoted => lines.push(vec![String::new()]),
            c => value.push(c),
        }
    }
    lines.retain(|line| line.len() > 1);
    let mut lines = lines.into_iter();
    let names = lines.next().context("the file is empty")?;
    Ok(lines.map(|line| names.iter().cloned().zip(line).collect()).collect())
}

/// Compares one address. An error says what differs.
fn one(registries: &Registries, address: IpAddr) -> Result<bool, String> {
    let found = special_range(address);
    let (found, expected) = (found.as_ref().map(toolwright_host::net::SpecialRange::name), registries.judge(address));
    if found == expected { Ok(found.is_some()) } else { Err(format!("{address} is {found:?}, and by the registries {expected:?}")) }
}

/// An address near a range: some bits of it, and the rest by chance.
fn some(registries: &Registries, edges: &[IpAddr], rng: &mut Rng) -> IpAddr {
    let random = u128::from(rng.next()) << 64 | u128::from(rng.next());
    match rng.index(4) {
        0 => IpAddr::V4(Ipv4Addr::from_bits(random as u32)),
        1 => IpAddr::V6(Ipv6Addr::from_bits(random)),
        2 => {
            // A form that has an address inside.
            let form = registries.inside.get(rng.index(registries.inside.len())).map_or(0, |form| ends(form, 128).0);
            IpAddr::V6(Ipv6Addr::from_bits(form | (random & 0xffff_ffff)))
        }
        _ => match edges.get(rng.index(edges.len())) {
            Some(IpAddr::V4(address)) => IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() ^ (1 << rng.index(32)))),
            Some(IpAddr::V6(address)) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() ^ (1 << rng.index(128)))),
            None => IpAddr::V6(Ipv6Addr::from_bits(random)),
        },
    }
}

pub(super) fn fuzz(time: Duration, seed: Option<u64>) -> Result<ExitCode> {
    let registries = Registries::read()?;
    let edges = registries.edges();
    let seed = seed.unwrap_or_else(|| std::process::id().into());
    let mut rng = Rng::new(seed);
    let begun = Instant::now();
    let (mut compared, mut refused) = (0u64, 0u64);
    let mut edge = edges.iter();
    while begun.elapsed() < time {
        for _ in 0..1_000 {
            let address = edge.next().copied().unwrap_or_else(|| some(&registries, &edges, &mut rng));
            match one(&registries, address) {
                Ok(special) => refused += u64::from(special),
                Err(found) => {
                    println!("seed {seed}: {found}");
                    return Ok(ExitCode::FAILURE);
                }
            }
            compared += 1;
        }
    }
    println!("{compared} addresses compared, {refused} of them refused, in {:.1} s", begun.elapsed().as_secs_f64());
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_judged_as_the_registries_say() {
        let registries = Registries::read().unwrap();
        let edges = registries.edges();
        let (mut refused, mut rng) = (0, Rng::new(7));
        let count = edges.len() + 100_000;
        let random: Vec<IpAddr> = (edges.len()..count).map(|_| some(&registries, &edges, &mut rng)).collect();
        for address in edges.into_iter().chain(random) {
            refused += usize::from(one(&registries, address).unwrap());
        }
        // The comparison looks at both kinds.
        assert!(refused > 20_000 && refused < count - 20_000, "{refused} of {count}");
    }

    #[test]
    fn a_row_that_only_the_registry_has_is_found() {
        let mut registries = Registries::read().unwrap();
        registries.v4.prefixes.push((prefix("8.8.0.0/16").unwrap(), "Planted".to_owned()));
        assert!(one(&registries, "8.8.8.8".parse().unwrap()).is_err());
        registries.v6.prefixes.retain(|(_, name)| name != "6to4");
        assert!(one(&registries, "2002::1".parse().unwrap()).is_err());
    }

    #[test]
    fn rows_are_read_with_their_quotes() {
        let rows = rows("a,b\n\"x, \"\"y\"\"\nz\",2\n").unwrap();
        assert_eq!(rows[0]["a"], "x, \"y\"\nz");
        assert_eq!(rows[0]["b"], "2");
    }
}
