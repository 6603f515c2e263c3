//! Ranges of IP addresses, and which of them are internal.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::metadata::embedded;

/// A range of addresses with a common prefix, such as `10.0.0.0/8`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    address: IpAddr,
    /// Length of the prefix, in bits.
    bits: u8,
}

/// Why a string is not a network.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a network must be an IP address or a CIDR without host bits, such as 10.0.0.0/8, fd00::/8 or 10.1.2.3")]
pub struct InvalidNetwork;

impl FromStr for Network {
    type Err = InvalidNetwork;

    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| InvalidNetwork)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), |bits| bits.parse().map_err(|_| InvalidNetwork))?;
        let network = Self { address, bits };
        // An address with bits after the prefix, such as 10.1.2.3/8, is a mistake.
        if bits > most || network.beginning(address) != number(address) { Err(InvalidNetwork) } else { Ok(network) }
    }
}

impl Network {
    /// All addresses.
    pub const ALL: [Self; 2] = [
        Self { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), bits: 0 },
        Self { address: IpAddr::V6(Ipv6Addr::UNSPECIFIED), bits: 0 },
    ];

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4() && self.beginning(address) == number(self.address)
    }

    /// Returns the prefix of an address.
    fn beginning(&self, address: IpAddr) -> u128 {
        let most: u32 = if self.address.is_ipv4() { 32 } else { 128 };
        let behind = most - u32::from(self.bits).min(most);
        let number = number(address);
        number.checked_shr(behind).unwrap_or_default().checked_shl(behind).unwrap_or_default()
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Returns whether an address is not on the public Internet.
pub(super) fn is_internal(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_internal_v4(address),
        IpAddr::V6(address) => {
            let [first, second, ..] = address.segments();
            address.is_unspecified()
                || address.is_loopback()
                || address.is_multicast()
                || address.is_unique_local()
                || address.is_unicast_link_local()
                // Site-local (RFC 3879), local translation (RFC 8215), discard-only (RFC 6666).
                || first & 0xffc0 == 0xfec0
                || (first, second) == (0x64, 0xff9b) && address.segments()[2] == 1
                || first == 0x100
                || embedded(address).is_some_and(is_internal_v4)
        }
    }
}

/// Returns whether an address is that of the machine itself: loopback, or unspecified, which systems treat as loopback.
pub(super) fn is_of_machine(address: IpAddr) -> bool {
    let is_v4 = |address: Ipv4Addr| address.is_loopback() || address.octets()[0] == 0;
    match address.to_canonical() {
        IpAddr::V4(address) => is_v4(address),
        IpAddr::V6(address) => {
            address.is_unspecified() || address.is_loopback() || embedded(address).is_some_and(is_v4)
        }
    }
}

fn is_internal_v4(address: Ipv4Addr) -> bool {
    let [first, second, third, _] = address.octets();
    address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_multicast()
        // This network, shared (RFC 6598), IETF protocol assignments (RFC 6890), benchmarking (RFC 2544), reserved.
        || first == 0
        || first == 100 && second & 0xc0 == 64
        || (first, second, third) == (192, 0, 0)
        || first == 198 && second & 0xfe == 18
        || first >= 240
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_strictly() {
        for good in ["10.0.0.0/8", "10.1.2.3", "10.1.2.3/32", "0.0.0.0/0", "::/0", "fd00::/8", "::1"] {
            assert!(good.parse::<Network>().is_ok(), "{good}");
        }
        for bad in
            ["", "10.0.0.1/8", "10.0.0.0/33", "10.0.0.0/", "/8", "fd00::/129", "fd00::1/8", "example.org", "10.0.0/8"]
        {
            assert_eq!(bad.parse::<Network>(), Err(InvalidNetwork), "{bad}");
        }
    }
}
