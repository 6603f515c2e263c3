//! Which addresses a repository's host may lead to: whoever writes the address of a repository has the agent connect to it, from
//! inside of the cluster, and reads in a status what came of that.
//!
//! Invariant: what is judged is an address that is connected to, never a name: names are resolved first, and once.
//! Invariant: link-local addresses are refused for everyone, whatever is allowed.
//!
//! Deliberately not here: resolving names, and which namespaces are confined.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::Arc;

use super::link_local::{self, embedded};

/// What is said of a host that a confined namespace may not have connected to. Nothing is said of what is there, and the same is
/// said of a name that nobody has: or the names within the cluster could be found out one by one.
pub(super) const REFUSED: &str = "the host is not found, or has an address of the cluster, of the machine or of a private network, which \
     repositories of this namespace are not read from; the operator of the agent allows networks with --allow-network";

/// Which addresses are connected to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Egress {
    /// All but those that are refused for everyone.
    #[default]
    Unrestricted,
    /// Public ones, and those that the operator allows.
    Confined,
}

/// Addresses with a common beginning, such as `10.0.0.0/8`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    address: IpAddr,
    /// Bits of the beginning.
    bits: u8,
}

/// Why a text is no network.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a network has the form 10.0.0.0/8, fd00::/8 or 10.1.2.3, without bits behind its beginning")]
pub struct InvalidNetwork;

impl FromStr for Network {
    type Err = InvalidNetwork;

    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| InvalidNetwork)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), |bits| bits.parse().map_err(|_| InvalidNetwork))?;
        let network = Self { address, bits };
        // 10.1.2.3/8 was meant otherwise, one way or the other.
        if bits > most || network.beginning(address) != number(address) { Err(InvalidNetwork) } else { Ok(network) }
    }
}

impl Network {
    /// Every address there is.
    pub const ALL: [Self; 2] = [
        Self { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), bits: 0 },
        Self { address: IpAddr::V6(Ipv6Addr::UNSPECIFIED), bits: 0 },
    ];

    fn contains(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4() && self.beginning(address) == number(self.address)
    }

    /// The address without what is behind the beginning.
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

/// What the operator allows.
#[derive(Clone, Debug, Default)]
pub struct EgressPolicy {
    /// Namespaces that are not confined; `None`: none is.
    pub unconfined: Option<Vec<String>>,
    /// Networks that confined namespaces reach besides public addresses.
    pub allowed: Vec<Network>,
    /// Hosts of the proxies in the environment, which the operator chose.
    pub proxies: HashSet<String>,
}

impl EgressPolicy {
    /// What a namespace reaches.
    pub(super) fn of(&self, namespace: &str) -> Egress {
        let is_trusted = |all: &Vec<String>| all.iter().any(|one| one == namespace);
        let reaches_all = Network::ALL.iter().all(|all| self.allowed.contains(all));
        if reaches_all || self.unconfined.as_ref().is_none_or(is_trusted) {
            Egress::Unrestricted
        } else {
            Egress::Confined
        }
    }

    /// Why an address is not connected to.
    pub(super) fn refusal(&self, egress: Egress, address: IpAddr) -> Option<&'static str> {
        let address = address.to_canonical();
        if link_local::is_link_local(address) {
            return Some(link_local::REFUSED);
        }
        let is_allowed = || self.allowed.iter().any(|network| network.contains(address));
        (egress == Egress::Confined && is_internal(address) && !is_allowed()).then_some(REFUSED)
    }

    /// Why a host is not connected to, as far as that is written in it.
    pub(super) fn refusal_of_host(&self, egress: Egress, host: &str) -> Option<&'static str> {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = host.parse() {
            return self.refusal(egress, address);
        }
        // It is reached as a proxy, not as a repository.
        (egress == Egress::Confined && self.is_proxy(host)).then_some(REFUSED)
    }

    /// Whether a host is that of a proxy that the operator chose.
    pub(super) fn is_proxy(&self, host: &str) -> bool {
        self.proxies.contains(host)
    }
}

/// The hosts of the proxies in an environment.
pub fn proxy_hosts(environment: impl IntoIterator<Item = (String, String)>) -> HashSet<String> {
    let names = ["http_proxy", "https_proxy", "all_proxy"];
    let proxies = environment.into_iter().filter(|(name, _)| names.contains(&&*name.to_ascii_lowercase()));
    let hosts = proxies.filter_map(|(_, value)| {
        let address = if value.contains("://") { value } else { format!("http://{value}") };
        Some(reqwest::Url::parse(&address).ok()?.host_str()?.to_ascii_lowercase())
    });
    hosts.collect()
}

/// The policy of an agent.
pub(super) type SharedPolicy = Arc<EgressPolicy>;

/// Whether an address is none of the Internet.
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
                // Site-local (RFC 3879), translated within a network (RFC 8215), discarded (RFC 6666).
                || first & 0xffc0 == 0xfec0
                || (first, second) == (0x64, 0xff9b) && address.segments()[2] == 1
                || first == 0x100
                || embedded(address).is_some_and(is_internal_v4)
        }
    }
}

fn is_internal_v4(address: Ipv4Addr) -> bool {
    let [first, second, third, _] = address.octets();
    address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_multicast()
        // This network, shared (RFC 6598), of the IETF (RFC 6890), of measurements (RFC 2544), reserved.
        || first == 0
        || first == 100 && second & 0xc0 == 64
        || (first, second, third) == (192, 0, 0)
        || first == 198 && second & 0xfe == 18
        || first >= 240
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(allowed: &[&str]) -> EgressPolicy {
        EgressPolicy {
            unconfined: Some(vec!["mainstay-system".into()]),
            allowed: allowed.iter().map(|text| text.parse().unwrap()).collect(),
            proxies: ["proxy.corp".to_owned()].into(),
        }
    }

    #[test]
    fn a_confined_namespace_reaches_public_addresses_and_what_is_allowed() {
        let internal = [
            "127.0.0.1",
            "127.1.2.3",
            "10.96.0.1",
            "172.16.0.9",
            "172.31.255.255",
            "192.168.1.1",
            "0.0.0.0",
            "100.64.0.1",
            "192.0.0.8",
            "198.18.0.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fd00::1",
            "fec0::1",
            "ff02::1",
            "::ffff:10.0.0.1",
            "::10.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b:1::1",
            "2002:a00:1::",
            "100::1",
        ];
        for text in internal {
            let address: IpAddr = text.parse().unwrap();
            let refusal = |allowed: &[&str], egress| policy(allowed).refusal(egress, address);
            assert_eq!(refusal(&[], Egress::Confined), Some(REFUSED), "{text}");
            assert_eq!(refusal(&[], Egress::Unrestricted), None, "{text}");
            assert_eq!(refusal(&["0.0.0.0/0", "::/0"], Egress::Confined), None, "{text}");
        }
        for text in
            ["8.8.8.8", "172.32.0.1", "100.128.0.1", "192.0.2.1", "2001:db8::1", "2606:4700::1", "64:ff9b::808:808"]
        {
            assert_eq!(policy(&[]).refusal(Egress::Confined, text.parse().unwrap()), None, "{text}");
        }
        let allowed = |address: &str| {
            policy(&["10.20.0.0/16", "fd00:1::/32", "10.1.2.3"])
                .refusal(Egress::Confined, address.parse().unwrap())
                .is_none()
        };
        for (address, expected) in [
            ("10.20.255.1", true),
            ("::ffff:10.20.0.1", true),
            ("10.21.0.1", false),
            ("10.1.2.3", true),
            ("10.1.2.4", false),
            ("fd00:1::9", true),
            ("fd00:2::9", false),
        ] {
            assert_eq!(allowed(address), expected, "{address}");
        }
    }

    #[test]
    fn nobody_reaches_the_credentials_of_a_machine() {
        for text in ["169.254.169.254", "fe80::1", "::ffff:169.254.169.254", "2002:a9fe:a9fe::", "fd00:ec2::254"] {
            for egress in [Egress::Confined, Egress::Unrestricted] {
                let refusal = policy(&["0.0.0.0/0", "::/0"]).refusal(egress, text.parse().unwrap());
                assert_eq!(refusal, Some(link_local::REFUSED), "{text}");
            }
        }
    }

    #[test]
    fn namespaces_are_confined_but_those_that_are_not() {
        let of = |policy: &EgressPolicy, namespace: &str| policy.of(namespace);
        assert_eq!(of(&policy(&[]), "shop"), Egress::Confined);
        assert_eq!(of(&policy(&["0.0.0.0/0"]), "shop"), Egress::Confined);
        assert_eq!(of(&policy(&["0.0.0.0/0", "::/0"]), "shop"), Egress::Unrestricted);
        assert_eq!(of(&policy(&[]), "mainstay-system"), Egress::Unrestricted);
        assert_eq!(of(&EgressPolicy::default(), "shop"), Egress::Unrestricted);
    }

    #[test]
    fn a_host_is_refused_by_what_is_written_in_it() {
        let refused = |host: &str| policy(&[]).refusal_of_host(Egress::Confined, host).is_some();
        assert!(refused("[::1]") && refused("127.0.0.1") && refused("proxy.corp"));
        assert!(!refused("git.example.org") && !refused("8.8.8.8"));
        assert_eq!(policy(&[]).refusal_of_host(Egress::Unrestricted, "proxy.corp"), None);
    }

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

    #[test]
    fn the_environment_names_proxies() {
        let environment = [
            ("HTTPS_PROXY", "http://user:word@Proxy.corp:3128"),
            ("http_proxy", "10.0.0.9:3128"),
            ("ALL_PROXY", "socks5://socks.corp"),
            ("NO_PROXY", "inside.corp"),
        ];
        let hosts = proxy_hosts(environment.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(hosts, ["proxy.corp", "10.0.0.9", "socks.corp"].map(str::to_owned).into());
    }
}
