//! The addresses that a namespace may connect to.

use std::collections::HashSet;
use std::net::IpAddr;

use super::metadata::{METADATA_REFUSED, is_metadata};
use super::network::{Network, is_internal, is_of_machine};

/// The allowed addresses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Egress {
    /// All addresses except for those that are refused for every namespace.
    #[default]
    Unrestricted,
    /// All addresses except for those of the machine: loopback and unspecified addresses. For commands on the machine of
    /// a user, which connect to addresses that others chose.
    OffMachine,
    /// Public addresses, and those that the operator allows.
    Confined,
}

/// Why an address is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EgressRefusal {
    /// The address is link-local or that of a metadata service, which is refused for every namespace.
    #[error("{METADATA_REFUSED}")]
    Metadata,
    /// The address is internal, and the namespace is confined. A tenant must get the same message as for a name that
    /// does not exist; otherwise a tenant could probe for names in the cluster.
    #[error(
        "connections to addresses of the cluster, of the machine and of private networks are refused for this namespace"
    )]
    Internal,
    /// The address is that of the user's machine or of its proxy.
    #[error("{MACHINE_REFUSED}")]
    Machine,
}

/// The message for a refused address of the user's machine.
pub const MACHINE_REFUSED: &str =
    "connections to this machine are refused, because users of the cluster choose the addresses";

/// The operator's rules.
#[derive(Clone, Debug, Default)]
pub struct EgressPolicy {
    /// Unconfined namespaces; `None` if no namespace is confined.
    pub unconfined: Option<Vec<String>>,
    /// Networks that confined namespaces may connect to, in addition to public addresses.
    pub allowed: Vec<Network>,
    /// Hosts of the proxies in the environment, which the operator configures.
    pub proxies: HashSet<String>,
}

impl EgressPolicy {
    /// Returns which addresses a namespace may connect to.
    pub fn of(&self, namespace: &str) -> Egress {
        let is_trusted = |all: &Vec<String>| all.iter().any(|one| one == namespace);
        let reaches_all = Network::ALL.iter().all(|all| self.allowed.contains(all));
        if reaches_all || self.unconfined.as_ref().is_none_or(is_trusted) {
            Egress::Unrestricted
        } else {
            Egress::Confined
        }
    }

    /// Returns why an address is refused.
    pub fn refusal(&self, egress: Egress, address: IpAddr) -> Option<EgressRefusal> {
        let address = address.to_canonical();
        if is_metadata(address) {
            return Some(EgressRefusal::Metadata);
        }
        let is_allowed = || self.allowed.iter().any(|network| network.contains(address));
        match egress {
            Egress::Unrestricted => None,
            Egress::OffMachine => is_of_machine(address).then_some(EgressRefusal::Machine),
            Egress::Confined => (is_internal(address) && !is_allowed()).then_some(EgressRefusal::Internal),
        }
    }

    /// Returns why a host is refused, without resolving its name.
    pub fn refusal_of_host(&self, egress: Egress, host: &str) -> Option<EgressRefusal> {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = host.parse() {
            return self.refusal(egress, address);
        }
        // The host may be used as a proxy, but not as a server.
        match egress {
            Egress::Unrestricted => None,
            // A proxy resolves the name, and may be on the same machine.
            Egress::OffMachine => (self.is_proxy(host) || is_localhost(host)).then_some(EgressRefusal::Machine),
            Egress::Confined => self.is_proxy(host).then_some(EgressRefusal::Internal),
        }
    }

    /// Returns whether a host is that of a proxy in the environment.
    pub fn is_proxy(&self, host: &str) -> bool {
        self.proxies.contains(host)
    }
}

/// Returns whether a name is that of the machine itself (RFC 6761).
fn is_localhost(host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    host == "localhost" || host.ends_with(".localhost")
}

/// Returns the hosts of the proxies in an environment.
pub fn proxy_hosts(environment: impl IntoIterator<Item = (String, String)>) -> HashSet<String> {
    let names = ["http_proxy", "https_proxy", "all_proxy"];
    let proxies = environment.into_iter().filter(|(name, _)| names.contains(&&*name.to_ascii_lowercase()));
    let hosts = proxies.filter_map(|(_, value)| {
        let address = if value.contains("://") { value } else { format!("http://{value}") };
        Some(reqwest::Url::parse(&address).ok()?.host_str()?.to_ascii_lowercase())
    });
    hosts.collect()
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
            assert_eq!(refusal(&[], Egress::Confined), Some(EgressRefusal::Internal), "{text}");
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
    fn credential_services_of_machines_are_unreachable() {
        for text in [
            "169.254.169.254",
            "168.63.129.16",
            "100.100.100.200",
            "fe80::1",
            "::ffff:169.254.169.254",
            "2002:a9fe:a9fe::",
            "fd00:ec2::254",
        ] {
            for egress in [Egress::Confined, Egress::Unrestricted] {
                let refusal = policy(&["0.0.0.0/0", "::/0"]).refusal(egress, text.parse().unwrap());
                assert_eq!(refusal, Some(EgressRefusal::Metadata), "{text}");
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
    fn a_command_off_the_machine_reaches_private_networks_but_not_the_machine() {
        let refusal = |text: &str| policy(&["0.0.0.0/0", "::/0"]).refusal_of_host(Egress::OffMachine, text);
        for text in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "[::1]",
            "[::]",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "localhost",
            "LocalHost.",
            "a.localhost",
            "proxy.corp",
        ] {
            assert_eq!(refusal(text), Some(EgressRefusal::Machine), "{text}");
        }
        for text in ["169.254.169.254", "[fe80::1]"] {
            assert_eq!(refusal(text), Some(EgressRefusal::Metadata), "{text}");
        }
        for text in ["10.0.0.1", "192.168.1.1", "100.64.0.1", "fd00::1", "8.8.8.8", "git.corp", "localhost.corp"] {
            assert_eq!(refusal(text), None, "{text}");
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
