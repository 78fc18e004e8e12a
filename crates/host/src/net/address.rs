//! Which addresses belong to the internet, and which to this machine, its network, or nobody.

use std::net::IpAddr;

use super::ranges::{GLOBAL_UNICAST, ISATAP, ISATAP_IDS, MAPPED, NAT64, NOT_GLOBAL, SPECIAL};

pub use super::ranges::SpecialRange;

/// The special range that an address is in, the narrowest one; `None` for a public address.
///
/// An IPv4-mapped address and one behind the well-known translation prefix (`64:ff9b::/96`) are judged by the IPv4 address inside.
/// Every other form with an IPv4 address inside (IPv4-compatible, IPv4-translated, 6to4, Teredo, ISATAP, translation prefixes of one
/// network) is special, whatever is inside.
///
/// ```
/// use toolwright_host::net::special_range;
///
/// assert!(special_range("93.184.216.34".parse()?).is_none());
/// assert_eq!(special_range("::ffff:10.0.0.1".parse()?).unwrap().to_string(), "Private-Use, 10.0.0.0/8");
/// # Ok::<_, std::net::AddrParseError>(())
/// ```
pub fn special_range(address: IpAddr) -> Option<SpecialRange> {
    let number = match address {
        IpAddr::V4(address) => MAPPED | u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    };
    let number = if NAT64.contains(number) { MAPPED | (number & u128::from(u32::MAX)) } else { number };
    if let Some(range) = SPECIAL.iter().filter(|range| range.contains(number)).max_by_key(|range| range.length()) {
        return Some(*range);
    }
    if number >> 32 == MAPPED >> 32 {
        return None;
    }
    if !GLOBAL_UNICAST.contains(number) {
        return Some(NOT_GLOBAL);
    }
    ISATAP_IDS.contains(&((number >> 32) as u32)).then_some(ISATAP)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(address: &str) -> Option<&'static str> {
        special_range(address.parse().unwrap()).map(|range| range.name())
    }

    // rule: sdk-tools 9.3/3
    #[test]
    fn each_kind_of_range_is_known() {
        for (address, range) in [
            ("127.0.0.1", "Loopback"),
            ("::1", "Loopback Address"),
            ("10.1.2.3", "Private-Use"),
            ("172.31.255.255", "Private-Use"),
            ("192.168.0.1", "Private-Use"),
            ("169.254.169.254", "Link Local"),
            ("100.100.100.200", "Shared Address Space"),
            ("224.0.0.1", "Multicast"),
            ("ff02::1", "Multicast"),
            ("240.0.0.1", "Reserved"),
            ("255.255.255.255", "Limited Broadcast"),
            ("0.0.0.0", "\"This host on this network\""),
            ("fd00:ec2::254", "Unique-Local"),
            ("fe80::1", "Link-Local Unicast"),
            ("168.63.129.16", "Cloud platform service"),
            ("4000::1", "not Global Unicast"),
        ] {
            assert_eq!(name(address), Some(range), "{address}");
        }
        for public in ["8.8.8.8", "172.32.0.0", "172.15.255.255", "100.63.255.255", "100.128.0.0", "223.255.255.255", "2606:4700::1111"] {
            assert_eq!(name(public), None, "{public}");
        }
    }

    // case: field-reports 88
    #[test]
    fn transition_forms_are_refused() {
        for (address, range) in [
            ("2002:a9fe:a9fe::", "6to4"),
            ("2002:808:808::1", "6to4"),
            ("64:ff9b:1::a9fe:a9fe", "IPv4-IPv6 Translat."),
            ("fec0::1", "Deprecated (Site-Local Unicast)"),
            ("2001:0:4136:e378:8000:63bf:3fff:fdd2", "TEREDO"),
            ("::8.8.8.8", "Deprecated (IPv4-compatible Address)"),
            ("::ffff:0:8.8.8.8", "IPv4-translated Address"),
            ("2606:4700::5efe:10.0.0.1", "ISATAP"),
            ("2606:4700::200:5efe:10.0.0.1", "ISATAP"),
        ] {
            assert_eq!(name(address), Some(range), "{address}");
        }
    }

    // case: field-reports 98
    #[test]
    fn spellings_of_one_address_are_one_number() {
        for (address, range) in [
            ("0:0:0:0:0:ffff:7f00:1", "Loopback"),
            ("::ffff:7f00:1", "Loopback"),
            ("::ffff:127.0.0.1", "Loopback"),
            ("64:ff9b::7f00:1", "Loopback"),
            ("64:ff9b::169.254.169.254", "Link Local"),
            ("64:ff9b:1::7f00:1", "IPv4-IPv6 Translat."),
            ("100::1", "Discard-Only Address Block"),
            ("2001:db8::1", "Documentation"),
        ] {
            assert_eq!(name(address), Some(range), "{address}");
        }
        assert_eq!(name("::ffff:8.8.8.8"), None);
        assert_eq!(name("64:ff9b::8.8.8.8"), None);
    }

    #[test]
    fn a_range_shows_its_prefix() {
        let shown = |address: &str| special_range(address.parse().unwrap()).unwrap().to_string();
        assert_eq!(shown("10.0.0.1"), "Private-Use, 10.0.0.0/8");
        assert_eq!(shown("::ffff:10.0.0.1"), "Private-Use, 10.0.0.0/8");
        assert_eq!(shown("fc00::1"), "Unique-Local, fc00::/7");
        assert_eq!(shown("::"), "Unspecified Address, ::/128");
    }
}
