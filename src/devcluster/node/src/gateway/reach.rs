//! Restricts the issuers that the gateway connects to. Otherwise, an author of Rules could reach internal addresses.
//!
//! Invariant: the check is made after name resolution, on the address that is then connected to.
//! Invariant: link-local addresses, where clouds serve credentials, are never requested.

use std::net::{IpAddr, Ipv4Addr};

/// Internal hosts and ports that are permitted.
#[derive(Clone, Debug, Default)]
pub(super) struct Reach(Vec<(String, u16)>);

impl Reach {
    /// Permits the hosts of URLs such as `http://dex.auth.svc.cluster.local:5556`. Other texts permit nothing.
    pub(super) fn new(urls: &[String]) -> Self {
        let place = |url: &String| {
            let uri: http::Uri = url.parse().ok()?;
            let is_plain = uri.scheme_str() == Some("http");
            is_plain.then_some((normal(uri.host()?), uri.port_u16().unwrap_or(80)))
        };
        Self(urls.iter().filter_map(place).collect())
    }

    /// Whether a host may resolve to an internal address.
    pub(super) fn permits(&self, host: &str, port: u16) -> bool {
        self.0.contains(&(normal(host), port))
    }
}

fn normal(host: &str) -> String {
    host.trim_end_matches('.').to_ascii_lowercase()
}

/// Whether an address may be requested. `is_permitted`: whether its host may resolve to an internal address.
pub(super) fn may_ask(address: IpAddr, is_permitted: bool) -> bool {
    let address = address.to_canonical();
    !is_metadata(address) && (is_permitted || !is_internal(address))
}

/// Whether an address is link-local, or a cloud's metadata service.
fn is_metadata(address: IpAddr) -> bool {
    // The metadata services of Azure and Alibaba.
    const OTHERS: [Ipv4Addr; 2] = [Ipv4Addr::new(168, 63, 129, 16), Ipv4Addr::new(100, 100, 100, 200)];
    match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_unspecified() || OTHERS.contains(&v4),
        IpAddr::V6(v6) => {
            let is_of_cloud = v6.segments()[..2] == [0xfd00, 0x0ec2];
            let embedded = embedded(&v6.segments()).is_some_and(|v4| is_metadata(v4.into()));
            v6.is_unicast_link_local() || v6.is_unspecified() || is_of_cloud || embedded
        }
    }
}

/// Whether an address is not a public one.
fn is_internal(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [first, second, third, _] = v4.octets();
            let is_shared = first == 100 && second & 0xc0 == 64;
            let is_special = (first, second, third) == (192, 0, 0) || first == 198 && second & 0xfe == 18;
            v4.is_loopback()
                || v4.is_private()
                || v4.is_multicast()
                || first == 0
                || first >= 240
                || is_shared
                || is_special
        }
        IpAddr::V6(v6) => {
            let [first, second, third, ..] = v6.segments();
            let is_local = v6.is_loopback() || v6.is_unique_local() || v6.is_multicast() || first & 0xffc0 == 0xfec0;
            let is_special = first == 0x100 || (first, second, third) == (0x64, 0xff9b, 1);
            is_local || is_special || embedded(&v6.segments()).is_some_and(|v4| is_internal(v4.into()))
        }
    }
}

/// Returns the IPv4 address embedded in an IPv6 address: compatible, translated (64:ff9b::/96) or 6to4.
fn embedded(segments: &[u16; 8]) -> Option<Ipv4Addr> {
    let of = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    match *segments {
        [0, 0, 0, 0, 0, 0, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
            Some(of(high, low))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_inside_are_asked_for_permitted_hosts_only() {
        let ask = |text: &str, is_permitted: bool| may_ask(text.parse().unwrap(), is_permitted);
        for inside in [
            "127.0.0.1",
            "10.96.0.1",
            "172.16.0.9",
            "192.168.1.1",
            "100.64.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "::1",
            "fd00::1",
            "fec0::1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "2002:a00:1::",
        ] {
            assert!(!ask(inside, false) && ask(inside, true), "{inside}");
        }
        for metadata in [
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "fe80::1",
            "fd00:ec2::254",
            "0.0.0.0",
            "::",
            "168.63.129.16",
            "100.100.100.200",
        ] {
            assert!(!ask(metadata, true), "{metadata}");
        }
        for public in ["8.8.8.8", "2606:4700::1", "172.32.0.1"] {
            assert!(ask(public, false), "{public}");
        }
    }

    #[test]
    fn a_permitted_host_has_one_port() {
        let reach =
            Reach::new(&["http://Dex.auth.svc:5556".into(), "http://keys".into(), "file:///a".into(), "x".into()]);
        assert!(reach.permits("dex.AUTH.svc.", 5556) && reach.permits("keys", 80));
        assert!(!reach.permits("dex.auth.svc", 80) && !reach.permits("a", 80) && !reach.permits("x", 80));
        assert!(!Reach::default().permits("localhost", 80));
    }
}
