//! Recognizes names and addresses of a private network or of the cluster.
//!
//! Not here: name resolution. A public name may resolve to a private address.

use std::net::{IpAddr, Ipv6Addr};

/// Returns whether the host string alone shows that the host belongs to a private network.
pub(super) fn is_private(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
    if let Ok(address) = host.parse::<IpAddr>() {
        return is_private_address(address);
    }
    // The search list of a Pod also resolves names of Services with one dot or none. Only the known suffixes can be
    // recognized.
    let cluster = ["localhost", "svc", "local", "internal"];
    let last = host.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    !host.contains('.') || cluster.contains(&last.as_str()) || host.to_ascii_lowercase().contains(".svc.")
}

fn is_private_address(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let [first, second, ..] = address.octets();
            let is_shared = first == 100 && second & 0xc0 == 64;
            address.is_loopback() || address.is_private() || address.is_link_local() || first == 0 || is_shared
        }
        IpAddr::V6(address) => {
            address == Ipv6Addr::UNSPECIFIED
                || address.is_loopback()
                || address.is_unique_local()
                || address.is_unicast_link_local()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_hosts_of_private_networks_in_every_form() {
        for private in [
            "127.0.0.1",
            "10.0.0.1",
            "172.16.0.9",
            "192.168.1.1",
            "0.0.0.0",
            "100.64.0.1",
            "[::1]",
            "::",
            "fd00::1",
            "::ffff:10.0.0.1",
            "localhost",
            "a.localhost",
            "vault",
            "vault.ops.svc",
            "vault.ops.svc.cluster.local",
            "vault.ops.svc.example.org",
            "metadata.google.internal",
            "Vault.Ops.SVC.",
        ] {
            assert!(is_private(private), "{private}");
        }
        for public in ["git.example.org", "8.8.8.8", "100.128.0.1", "2001:db8::1", "svc.example.org", "local.org"] {
            assert!(!is_private(public), "{public}");
        }
    }
}
