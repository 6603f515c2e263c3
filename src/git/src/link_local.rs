//! Addresses that no repository has, and where other programs of a machine give away credentials.
//!
//! Deliberately not here: other private networks, where people do keep repositories.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What is said of such an address.
pub(super) const REFUSED: &str = "link-local addresses are not connected to: they serve a machine's own credentials";
/// Where one cloud serves them over IP version 6, in a range that is private otherwise.
const METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// Whether an address is link-local, however it is written.
pub(super) fn is_link_local(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => {
            address.is_unicast_link_local()
                || address == METADATA
                || embedded(address).is_some_and(|v4| v4.is_link_local())
        }
    }
}

/// Whether a host is written as such an address.
pub(super) fn is_link_local_host(host: &str) -> bool {
    host.trim_start_matches('[').trim_end_matches(']').parse().is_ok_and(is_link_local)
}

/// The address of IP version 4 that a translator (RFC 6052), an old form (RFC 4291) or 6to4 (RFC 3056) makes of one of version 6.
pub(super) fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    match address.octets() {
        [0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d]
        | [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d]
        | [0x20, 0x02, a, b, c, d, ..] => Some(Ipv4Addr::new(a, b, c, d)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_link_local_addresses_in_every_form() {
        for bad in [
            "169.254.169.254",
            "169.254.0.1",
            "fe80::1",
            "[fe80::1]",
            "::ffff:169.254.169.254",
            "::169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "2002:a9fe:a9fe::1",
            "fd00:ec2::254",
        ] {
            assert!(is_link_local_host(bad), "{bad}");
        }
        for good in ["127.0.0.1", "10.0.0.1", "192.168.1.1", "::1", "fd00::1", "git.example.org", "169.253.1.1", ""] {
            assert!(!is_link_local_host(good), "{good}");
        }
    }
}
