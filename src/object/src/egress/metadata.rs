//! Addresses of metadata services, from which cloud machines get their credentials.
//!
//! Not here: other private networks, where users do run servers of their own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The message for a refused address.
pub const METADATA_REFUSED: &str = "connections to link-local and metadata addresses are refused: these addresses serve the credentials of the machine";

/// IPv4 metadata services outside of the link-local range: Azure, Alibaba Cloud and the classic Oracle Cloud.
const METADATA_V4: [Ipv4Addr; 3] =
    [Ipv4Addr::new(168, 63, 129, 16), Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(192, 0, 0, 192)];

/// IPv6 metadata services: Google Cloud, Oracle Cloud, Alibaba Cloud, Scaleway and Akamai.
const METADATA_V6: [Ipv6Addr; 5] = [
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe),
    Ipv6Addr::new(0xfd00, 0x100, 0, 0, 0, 0, 0x100, 0x200),
    Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42),
    Ipv6Addr::new(0xfd00, 0xa9fe, 0xa9fe, 0, 0, 0, 0, 1),
];

/// The IPv6 network of all link-local services of AWS: metadata, pod credentials, DNS and time.
const METADATA_OF_AWS: [u16; 2] = [0xfd00, 0xec2];

/// Returns whether an address, in any notation, is link-local or that of a metadata service.
pub(super) fn is_metadata(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_metadata_v4(address),
        IpAddr::V6(address) => {
            address.is_unicast_link_local()
                || address.segments().starts_with(&METADATA_OF_AWS)
                || METADATA_V6.contains(&address)
                || embedded(address).is_some_and(is_metadata_v4)
        }
    }
}

/// Returns whether a host is written as a link-local or metadata address.
pub fn is_metadata_host(host: &str) -> bool {
    host.trim_start_matches('[').trim_end_matches(']').parse().is_ok_and(is_metadata)
}

fn is_metadata_v4(address: Ipv4Addr) -> bool {
    address.is_link_local() || METADATA_V4.contains(&address)
}

/// Returns the IPv4 address that an IPv6 address embeds: by a translator (RFC 6052, RFC 8215, RFC 2765), in an old
/// form (RFC 4291), or for 6to4 (RFC 3056).
pub(super) fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    match address.octets() {
        [0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d]
        | [0, 0x64, 0xff, 0x9b, 0, 1, _, _, _, _, _, _, a, b, c, d]
        | [0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, a, b, c, d]
        | [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d]
        | [0x20, 0x02, a, b, c, d, ..] => Some(Ipv4Addr::new(a, b, c, d)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_addresses_are_known_in_every_form() {
        for bad in [
            "169.254.169.254",
            "169.254.0.1",
            "168.63.129.16",
            "100.100.100.200",
            "192.0.0.192",
            "fe80::1",
            "[fe80::1]",
            "::ffff:169.254.169.254",
            "::ffff:168.63.129.16",
            "::ffff:0:100.100.100.200",
            "::169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b::168.63.129.16",
            "64:ff9b:1::169.254.169.254",
            "2002:a9fe:a9fe::1",
            "2002:a83f:8110::1",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd20:ce::254",
            "fd00:c1::a9fe:a9fe",
            "fd00:100::100:200",
            "fd00:42::42",
            "fd00:a9fe:a9fe::1",
        ] {
            assert!(is_metadata_host(bad), "{bad}");
        }
        for good in [
            "127.0.0.1",
            "10.0.0.1",
            "192.168.1.1",
            "168.63.129.17",
            "100.100.100.201",
            "::1",
            "fd00::1",
            "fd00:ec3::254",
            "git.example.org",
            "169.253.1.1",
            "",
        ] {
            assert!(!is_metadata_host(good), "{good}");
        }
    }
}
