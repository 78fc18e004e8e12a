//! The ranges that no request may reach.
//!
//! An IPv4 address is the number of its IPv4-mapped IPv6 address, so that one comparison of 128 bits does for both.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// What an IPv4 address is prefixed with as a number: `::ffff:0:0/96`.
pub(super) const MAPPED: u128 = 0xffff << 32;

/// A range of addresses with a purpose of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpecialRange {
    first: u128,
    /// Bits of its prefix, of 128.
    length: u32,
    name: &'static str,
}

impl SpecialRange {
    const fn v4(octets: [u8; 4], length: u32, name: &'static str) -> Self {
        Self { first: MAPPED | u32::from_be_bytes(octets) as u128, length: length + 96, name }
    }

    const fn v6(segments: [u16; 8], length: u32, name: &'static str) -> Self {
        let [s0, s1, s2, s3, s4, s5, s6, s7] = segments;
        Self { first: Ipv6Addr::new(s0, s1, s2, s3, s4, s5, s6, s7).to_bits(), length, name }
    }

    /// What the range is for, mostly in the words of its registry: `Private-Use`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// How many bits the prefix has.
    pub(super) fn length(&self) -> u32 {
        self.length
    }

    /// Whether the number of an address is in it.
    pub(super) fn contains(&self, number: u128) -> bool {
        // A prefix of no bits would shift by 128; there is none.
        let free = u128::BITS.saturating_sub(self.length);
        number.checked_shr(free) == self.first.checked_shr(free)
    }
}

/// Its name and prefix: `Private-Use, 10.0.0.0/8`.
impl fmt::Display for SpecialRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.length >= 96 && self.first >> 32 == MAPPED >> 32 {
            write!(f, "{}, {}/{}", self.name, Ipv4Addr::from_bits(self.first as u32), self.length - 96)
        } else {
            write!(f, "{}, {}/{}", self.name, Ipv6Addr::from_bits(self.first), self.length)
        }
    }
}

const fn v4(octets: [u8; 4], length: u32, name: &'static str) -> SpecialRange {
    SpecialRange::v4(octets, length, name)
}

const fn v6(segments: [u16; 8], length: u32, name: &'static str) -> SpecialRange {
    SpecialRange::v6(segments, length, name)
}

/// `64:ff9b::/96`: an IPv4 address behind a translator. It is judged by the address inside.
pub(super) const NAT64: SpecialRange = v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96, "IPv4-IPv6 Translat.");

/// `2000::/3`: the only part of IPv6 that is given out for hosts of the internet.
pub(super) const GLOBAL_UNICAST: SpecialRange = v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3, "Global Unicast");

/// What an IPv6 address outside [`GLOBAL_UNICAST`] is in.
pub(super) const NOT_GLOBAL: SpecialRange = v6([0; 8], 0, "not Global Unicast");

/// An IPv4 address in the last 32 bits of any network's address (RFC 5214), with the global bit unset and set.
pub(super) const ISATAP: SpecialRange = v6([0, 0, 0, 0, 0, 0x5efe, 0, 0], 96, "ISATAP");
pub(super) const ISATAP_IDS: [u32; 2] = [0x0000_5efe, 0x0200_5efe];

/// Every range that is refused. The rows of IANA's special-purpose registries come first, in their order, whether a row says that it is
/// globally reachable or not: no page is served from an anycast address of a protocol. `::ffff:0:0/96` and `64:ff9b::/96` are missing,
/// as they are judged by the address inside.
pub(super) const SPECIAL: &[SpecialRange] = &[
    v4([0, 0, 0, 0], 8, "\"This network\""),
    v4([0, 0, 0, 0], 32, "\"This host on this network\""),
    v4([10, 0, 0, 0], 8, "Private-Use"),
    v4([100, 64, 0, 0], 10, "Shared Address Space"),
    v4([127, 0, 0, 0], 8, "Loopback"),
    v4([169, 254, 0, 0], 16, "Link Local"),
    v4([172, 16, 0, 0], 12, "Private-Use"),
    v4([192, 0, 0, 0], 24, "IETF Protocol Assignments"),
    v4([192, 0, 0, 0], 29, "IPv4 Service Continuity Prefix"),
    v4([192, 0, 0, 8], 32, "IPv4 dummy address"),
    v4([192, 0, 0, 9], 32, "Port Control Protocol Anycast"),
    v4([192, 0, 0, 10], 32, "Traversal Using Relays around NAT Anycast"),
    v4([192, 0, 0, 170], 32, "NAT64/DNS64 Discovery"),
    v4([192, 0, 0, 171], 32, "NAT64/DNS64 Discovery"),
    v4([192, 0, 2, 0], 24, "Documentation (TEST-NET-1)"),
    v4([192, 31, 196, 0], 24, "AS112-v4"),
    v4([192, 52, 193, 0], 24, "AMT"),
    v4([192, 88, 99, 0], 24, "Deprecated (6to4 Relay Anycast)"),
    v4([192, 88, 99, 2], 32, "6a44-relay anycast address"),
    v4([192, 168, 0, 0], 16, "Private-Use"),
    v4([192, 175, 48, 0], 24, "Direct Delegation AS112 Service"),
    v4([198, 18, 0, 0], 15, "Benchmarking"),
    v4([198, 51, 100, 0], 24, "Documentation (TEST-NET-2)"),
    v4([203, 0, 113, 0], 24, "Documentation (TEST-NET-3)"),
    v4([240, 0, 0, 0], 4, "Reserved"),
    v4([255, 255, 255, 255], 32, "Limited Broadcast"),
    v6([0, 0, 0, 0, 0, 0, 0, 1], 128, "Loopback Address"),
    v6([0; 8], 128, "Unspecified Address"),
    v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48, "IPv4-IPv6 Translat."),
    v6([0x100, 0, 0, 0, 0, 0, 0, 0], 64, "Discard-Only Address Block"),
    v6([0x100, 0, 0, 1, 0, 0, 0, 0], 64, "Dummy IPv6 Prefix"),
    v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23, "IETF Protocol Assignments"),
    v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32, "TEREDO"),
    v6([0x2001, 1, 0, 0, 0, 0, 0, 1], 128, "Port Control Protocol Anycast"),
    v6([0x2001, 1, 0, 0, 0, 0, 0, 2], 128, "Traversal Using Relays around NAT Anycast"),
    v6([0x2001, 1, 0, 0, 0, 0, 0, 3], 128, "DNS-SD Service Registration Protocol Anycast"),
    v6([0x2001, 2, 0, 0, 0, 0, 0, 0], 48, "Benchmarking"),
    v6([0x2001, 3, 0, 0, 0, 0, 0, 0], 32, "AMT"),
    v6([0x2001, 4, 0x112, 0, 0, 0, 0, 0], 48, "AS112-v6"),
    v6([0x2001, 0x10, 0, 0, 0, 0, 0, 0], 28, "Deprecated (previously ORCHID)"),
    v6([0x2001, 0x20, 0, 0, 0, 0, 0, 0], 28, "ORCHIDv2"),
    v6([0x2001, 0x30, 0, 0, 0, 0, 0, 0], 28, "Drone Remote ID Protocol Entity Tags (DETs) Prefix"),
    v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32, "Documentation"),
    v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16, "6to4"),
    v6([0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0], 48, "Direct Delegation AS112 Service"),
    v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20, "Documentation"),
    v6([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16, "Segment Routing (SRv6) SIDs"),
    v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, "Unique-Local"),
    v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, "Link-Local Unicast"),
    // From here on: what those registries do not list.
    v4([224, 0, 0, 0], 4, "Multicast"),
    v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, "Multicast"),
    v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10, "Deprecated (Site-Local Unicast)"),
    v6([0; 8], 96, "Deprecated (IPv4-compatible Address)"),
    v6([0, 0, 0, 0, 0xffff, 0, 0, 0], 96, "IPv4-translated Address"),
    // A public number that leads to a service of the machine one runs on.
    v4([168, 63, 129, 16], 32, "Cloud platform service"),
];
